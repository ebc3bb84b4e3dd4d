/* Hooks of a stream. */
#include "hr_test.h"

#include "headrace/hook.h"
#include "headrace/mark.h"

static hr_device *device;
static hr_stream *stream;

typedef struct counting {
  hr_hook hook; /* first */
  int seen;
  hr_op last;
  bool is_new;
  bool is_stopper; /* passes nothing on */
} counting;

static hr_status count_record(hr_hook *hook, hr_stream *of, const hr_hook_record *record) {
  counting *c = (counting *)hook;
  ++c->seen, c->last = record->op, c->is_new = record->is_new;
  return c->is_stopper ? hr_status_make(HR_STATUS_CANCELLED, "stopped") : hr_hook_pass(hook, of, record);
}

static hr_status refuse_function(hr_hook *hook, hr_stream *of, const hr_hook_function *function) {
  (void)hook, (void)of, (void)function;
  return hr_status_make(HR_STATUS_CANCELLED, "no function");
}

static const int64_t dims[1] = {2}, strides[1] = {1};

static hr_view view_of(hr_buffer *buffer) {
  return (hr_view){.buffer = buffer, .dtype = HR_DTYPE_F32, .rank = 1, .dims = dims, .strides = strides};
}

static void open_stream(hr_buffer **out_buffer) {
  HR_ASSERT_OK(hr_device_open("cpu", &device));
  HR_ASSERT_OK(hr_stream_create(device, &stream));
  HR_ASSERT_OK(hr_buffer_create(device, 2 * sizeof(float), out_buffer));
}

HR_TEST(hooks_see_records_from_the_last_added_one_down) {
  hr_buffer *buffer;
  counting below = {.hook = {.record = count_record}}, above = {.hook = {.record = count_record}};
  const float two[2] = {1, 2};
  float values[2];
  open_stream(&buffer);
  hr_view view = view_of(buffer);
  hr_hook_add(stream, &below.hook);
  hr_hook_add(stream, &above.hook);
  HR_ASSERT_OK(hr_stream_write(stream, &view, two)); /* to a new buffer: no record */
  HR_ASSERT_EQ(below.seen, 0);
  HR_ASSERT_OK(hr_stream_record(stream, HR_OP_NEG, NULL, 1, &view, 1, &view));
  HR_ASSERT(below.seen == 1 && above.seen == 1 && below.last == HR_OP_NEG);
  HR_ASSERT_OK(hr_stream_write(stream, &view, two));
  HR_ASSERT(below.seen == 2 && above.seen == 2 && below.last == HR_OP_COPY);
  above.is_stopper = true;
  HR_ASSERT_ERROR(hr_stream_record(stream, HR_OP_NEG, NULL, 1, &view, 1, &view), HR_STATUS_CANCELLED, "stopped");
  HR_ASSERT(below.seen == 2 && above.seen == 3);
  HR_ASSERT_OK(hr_stream_read(stream, &view, values));
  HR_ASSERT(values[0] == 1 && values[1] == 2);
  hr_hook_remove(stream, &below.hook);
  hr_hook_remove(stream, &below.hook); /* it is not there */
  hr_hook_remove(stream, &above.hook);
  HR_ASSERT_OK(hr_stream_record(stream, HR_OP_NEG, NULL, 1, &view, 1, &view));
  HR_ASSERT(below.seen == 2 && above.seen == 3);
  hr_buffer_release(buffer);
  hr_stream_release(stream);
  hr_device_release(device);
}

HR_TEST(hooks_see_records_of_new_outputs) {
  hr_buffer *buffer, *made;
  counting hook = {.hook = {.record = count_record}};
  const float two[2] = {1, 2};
  float values[2];
  open_stream(&buffer);
  HR_ASSERT_OK(hr_buffer_create(device, 2 * sizeof(float), &made));
  hr_view from = view_of(buffer), to = view_of(made);
  HR_ASSERT_OK(hr_stream_write(stream, &from, two));
  hr_hook_add(stream, &hook.hook);
  HR_ASSERT_OK(hr_stream_record_new(stream, HR_OP_NEG, NULL, 1, &from, &to));
  HR_ASSERT(hook.seen == 1 && hook.last == HR_OP_NEG && hook.is_new);
  hr_view alike = from;
  HR_ASSERT_OK(hr_stream_record_alike(stream, HR_OP_NEG, 1, &from, &alike));
  HR_ASSERT(hook.seen == 2 && alike.buffer != NULL && hook.is_new);
  HR_ASSERT_OK(hr_stream_read(stream, &alike, values));
  HR_ASSERT(values[0] == -1 && values[1] == -2);
  hr_buffer_release(alike.buffer);
  HR_ASSERT_OK(hr_stream_record(stream, HR_OP_NEG, NULL, 1, &from, 1, &to));
  HR_ASSERT(hook.seen == 3 && !hook.is_new);
  hook.is_stopper = true;
  HR_ASSERT_ERROR(hr_stream_record_alike(stream, HR_OP_NEG, 1, &from, &alike), HR_STATUS_CANCELLED, "stopped");
  HR_ASSERT(hook.seen == 4 && alike.buffer == NULL);
  hook.is_stopper = false;
  hook.hook.apply = refuse_function;
  HR_ASSERT_OK(hr_stream_record_alike(stream, HR_OP_NEG, 1, &from, &alike));
  HR_ASSERT(hook.seen == 4 && alike.buffer == NULL); /* it gets the function */
  hr_hook_remove(stream, &hook.hook);
  HR_ASSERT_OK(hr_stream_read(stream, &to, values));
  HR_ASSERT(values[0] == -1 && values[1] == -2);
  hr_buffer_release(buffer);
  hr_buffer_release(made);
  hr_stream_release(stream);
  hr_device_release(device);
}

static hr_status do_nothing(void *arg, int input_count, void *const *inputs, int output_count, void *const *outputs) {
  (void)arg, (void)input_count, (void)inputs, (void)output_count, (void)outputs;
  return HR_OK;
}

HR_TEST(functions_that_write_are_rejected_while_there_are_hooks) {
  hr_buffer *buffer;
  counting hook = {.hook = {.record = count_record}};
  open_stream(&buffer);
  hr_hook_add(stream, &hook.hook);
  HR_ASSERT_ERROR(hr_stream_call(stream, do_nothing, NULL, NULL, 0, NULL, 1, &buffer), HR_STATUS_UNIMPLEMENTED,
                  "call: the stream has a tape");
  hr_hook_remove(stream, &hook.hook);
  HR_ASSERT_OK(hr_stream_call(stream, do_nothing, NULL, NULL, 0, NULL, 1, &buffer));
  HR_ASSERT_OK(hr_stream_synchronize(stream));
  hr_buffer_release(buffer);
  hr_stream_release(stream);
  hr_device_release(device);
}

HR_TEST(no_two_buffers_have_one_serial_number) {
  hr_buffer *buffer;
  open_stream(&buffer);
  uint64_t first = hr_buffer_serial(buffer);
  HR_ASSERT(first != 0);
  hr_buffer_release(buffer);
  HR_ASSERT_OK(hr_buffer_create(device, 2 * sizeof(float), &buffer)); /* in the place of the first one */
  HR_ASSERT(hr_buffer_serial(buffer) != first);
  hr_buffer_release(buffer);
  hr_stream_release(stream);
  hr_device_release(device);
}

HR_TEST(claimed_buffers_are_no_operands_of_later_records) {
  hr_buffer *claimed, *result;
  counting hook = {.hook = {.record = count_record, .below = NULL}};
  const float two[2] = {1, 2};
  float values[2];
  open_stream(&claimed);
  HR_ASSERT_OK(hr_buffer_create(device, 2 * sizeof(float), &result));
  hr_view from = view_of(claimed), to = view_of(result);
  HR_ASSERT_OK(hr_stream_write(stream, &from, two));
  HR_ASSERT_OK(hr_stream_record(stream, HR_OP_NEG, NULL, 1, &from, 1, &from));
  HR_ASSERT_OK(hr_stream_record(stream, HR_OP_NEG, NULL, 1, &from, 1, &to)); /* pending: it runs */
  hr_status failure = hr_status_make(HR_STATUS_INVALID_ARGUMENT, "claimed by a test");
  hr_hook_claim_buffer(claimed, failure);
  hr_status_free(failure);
  HR_ASSERT_ERROR(hr_stream_record(stream, HR_OP_NEG, NULL, 1, &from, 1, &to), HR_STATUS_INVALID_ARGUMENT, "claimed");
  HR_ASSERT_ERROR(hr_stream_read(stream, &from, values), HR_STATUS_INVALID_ARGUMENT, "claimed by a test");
  HR_ASSERT_OK(hr_stream_read(stream, &to, values));
  HR_ASSERT(values[0] == 1 && values[1] == 2);
  hr_hook_add(stream, &hook.hook);
  hook.is_stopper = true;
  HR_ASSERT_ERROR(hr_stream_write(stream, &from, two), HR_STATUS_CANCELLED, "stopped"); /* hooks see the write */
  HR_ASSERT_EQ(hook.seen, 1);
  hr_hook_remove(stream, &hook.hook);
  HR_ASSERT_OK(hr_stream_write(stream, &from, two)); /* whole: it has contents again */
  HR_ASSERT_OK(hr_stream_read(stream, &from, values));
  HR_ASSERT(values[0] == 1 && values[1] == 2);
  hr_buffer_release(claimed);
  hr_buffer_release(result);
  hr_stream_release(stream);
  hr_device_release(device);
}
