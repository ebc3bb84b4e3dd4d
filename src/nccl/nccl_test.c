/* Calls of NCCL on a stub of the library (tests/stubs/nccl.c), from a stream of the host and from one of the CUDA
 * driver on its stand-in. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/dynlib.h"
#include "base/env.h"
#include "cuda_stand_in.h"
#include "headrace/mark.h"
#include "headrace/nccl.h"
#include "nccl_counts.h"
#include "runtime/device.h"

enum { COUNT = 32, BYTES = COUNT * sizeof(float) };
#include "vectors.h"

typedef hr__nccl_counts counts;

static counts *stub(void) {
  static const char *const name = "ncclStubCounts";
  hr_dynlib library = {0};
  void *found = NULL;
  setenv("HEADRACE_NCCL", HR_TEST_NCCL, 1);
  hr__env_reload();
  HR_ASSERT_OK(hr_dynlib_open(HR_TEST_NCCL, &library));
  HR_ASSERT_OK(hr_dynlib_symbol(&library, name, &found));
  memset(found, 0, sizeof(counts));
  return found;
}

typedef struct world {
  hr_device *device;
  hr_stream *stream;
  hr_nccl *nccl;
  hr_buffer *a, *b;
} world;

static world begin(const char *device, int rank, int size) {
  world w;
  hr_nccl_id id;
  HR_ASSERT_OK(hr_device_open(device, &w.device));
  HR_ASSERT_OK(hr_stream_create(w.device, &w.stream));
  HR_ASSERT_OK(hr_buffer_create(w.device, BYTES, &w.a));
  HR_ASSERT_OK(hr_buffer_create(w.device, BYTES, &w.b));
  HR_ASSERT_OK(hr_nccl_make_id(&id));
  HR_ASSERT_OK(hr_nccl_create(w.device, &id, rank, size, NULL, &w.nccl));
  return w;
}

static void end(world *w) {
  hr_nccl_release(w->nccl);
  hr_buffer_release(w->a);
  hr_buffer_release(w->b);
  hr_stream_release(w->stream);
  hr_device_release(w->device);
}

static hr_status add(void *arg, int input_count, void *const *inputs, int output_count, void *const *outputs) {
  hr_nccl *nccl = arg;
  HR_ASSERT_EQ(input_count, 1);
  HR_ASSERT_EQ(output_count, 1);
  HR_RETURN_IF_ERROR(hr_nccl_begin_calls(nccl));
  hr_status status =
      hr_nccl_reduce(nccl, "all_reduce", HR_GROUP_AVERAGE, HR_DTYPE_F32, COUNT, -1, inputs[0], outputs[0]);
  return hr_nccl_end_calls(nccl, status);
}

/* Writes to a, reduces into b, reads b. */
static void reduce_on(const char *device) {
  counts *c = stub();
  world w = begin(device, 0, 1);
  float in[COUNT], out[COUNT] = {0};
  for (int i = 0; i < COUNT; ++i) {
    in[i] = (float)i - 7;
  }
  const hr_view from = view_of(w.a), to = view_of(w.b);
  HR_ASSERT_OK(hr_stream_write(w.stream, &from, in));
  HR_ASSERT_OK(hr_stream_call(w.stream, add, w.nccl, NULL, 1, &w.a, 1, &w.b));
  HR_ASSERT_OK(hr_stream_synchronize(w.stream));
  HR_ASSERT_EQ(c->reductions, 1);
  HR_ASSERT_EQ(c->groups, 1);
  HR_ASSERT_EQ(c->last_type, 7);
  HR_ASSERT_EQ(c->last_op, 4);
  HR_ASSERT_EQ(c->last_root, -1);
  const hr_driver *driver = w.device->driver;
  HR_ASSERT(c->last_stream == (driver->native != NULL ? driver->native(w.device->impl) : NULL));
  if (strcmp(device, "cpu") == 0) {
    HR_ASSERT_OK(hr_stream_read(w.stream, &to, out));
    HR_ASSERT_BYTES_EQ(out, in, sizeof in);
  }
  end(&w);
  HR_ASSERT_EQ(c->communicators, 0);
}

HR_TEST(a_call_reduces_on_the_host) {
  reduce_on("cpu");
}

HR_TEST(a_call_reduces_on_the_queue_of_the_cuda_driver) {
  hr_context *context, *before;
  HR_ASSERT_OK(hr__context_create(&context));
  before = hr__context_enter(context);
  hr__cuda_replace(&fake, 1);
  reduce_on("cuda");
  hr__context_enter(before);
  hr__context_destroy(context);
  hr__cuda_replace(NULL, 0);
}

HR_TEST(types_and_operations_have_the_numbers_of_nccl) {
  static const struct {
    hr_dtype dtype;
    hr_group_op op;
    int type, number;
  } rows[] = {
      {HR_DTYPE_I8, HR_GROUP_SUM, 0, 0},      {HR_DTYPE_U8, HR_GROUP_MIN, 1, 3},   {HR_DTYPE_I32, HR_GROUP_MAX, 2, 2},
      {HR_DTYPE_U32, HR_GROUP_PRODUCT, 3, 1}, {HR_DTYPE_I64, HR_GROUP_SUM, 4, 0},  {HR_DTYPE_U64, HR_GROUP_SUM, 5, 0},
      {HR_DTYPE_F16, HR_GROUP_AVERAGE, 6, 4}, {HR_DTYPE_F64, HR_GROUP_SUM, 8, 0},  {HR_DTYPE_BF16, HR_GROUP_SUM, 9, 0},
      {HR_DTYPE_BOOL, HR_GROUP_SUM, 1, 2},    {HR_DTYPE_BOOL, HR_GROUP_AND, 1, 3}, {HR_DTYPE_BOOL, HR_GROUP_OR, 1, 2},
      {HR_DTYPE_C64, HR_GROUP_SUM, 7, 0},     {HR_DTYPE_C128, HR_GROUP_SUM, 8, 0},
  };
  counts *c = stub();
  world w = begin("cpu", 1, 3);
  char data[512] = {0};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; ++i) {
    HR_ASSERT_OK(hr_nccl_check_op(rows[i].op, rows[i].dtype));
    HR_ASSERT_OK(hr_nccl_reduce(w.nccl, "reduce", rows[i].op, rows[i].dtype, 4, 1, data, data + 256));
    HR_ASSERT_EQ(c->last_type, rows[i].type);
    HR_ASSERT_EQ(c->last_op, rows[i].number);
    HR_ASSERT_EQ(c->last_root, 1);
  }
  HR_ASSERT_ERROR(hr_nccl_check_op(HR_GROUP_XOR, HR_DTYPE_I32), HR_STATUS_UNIMPLEMENTED, "NCCL has no xor of i32");
  HR_ASSERT_ERROR(hr_nccl_check_op(HR_GROUP_SUM, HR_DTYPE_I16), HR_STATUS_UNIMPLEMENTED, "of i16");
  HR_ASSERT_STATUS(hr_nccl_check_op(HR_GROUP_PRODUCT, HR_DTYPE_C64), HR_STATUS_UNIMPLEMENTED);
  end(&w);
}

HR_TEST(parts_are_reduced_to_each_rank) {
  counts *c = stub();
  world w = begin("cpu", 2, 3);
  const float parts[3][4] = {{1}, {2}, {3, 4, 5, 6}};
  float out[4] = {0};
  const void *const inputs[] = {parts[0], parts[1], parts[2]};
  HR_ASSERT_OK(hr_nccl_reduce_scatter(w.nccl, "reduce_scatter", HR_GROUP_SUM, HR_DTYPE_F32, 4, inputs, out));
  HR_ASSERT_EQ(c->reductions, 3);
  HR_ASSERT_BYTES_EQ(out, parts[2], sizeof out);
  end(&w);
}

/* Blocks of nothing are no messages; the own one is a copy. */
HR_TEST(an_exchange_is_a_group_of_messages) {
  counts *c = stub();
  world w = begin("cpu", 1, 4);
  char from[4][8], to[4][8];
  memset(from, 9, sizeof from);
  memset(to, 0, sizeof to);
  hr_group_block blocks[4] = {
      {from[0], 8, to[0], 8}, {from[1], 8, to[1], 8}, {from[2], 0, to[2], 3}, {from[3], 5, to[3], 0}};
  HR_ASSERT_STATUS(hr_nccl_exchange(w.nccl, "gather", blocks), HR_STATUS_UNAVAILABLE); /* not in a group */
  c->sends = c->receives = 0;
  HR_ASSERT_OK(hr_nccl_begin_calls(w.nccl));
  HR_ASSERT_OK(hr_nccl_end_calls(w.nccl, hr_nccl_exchange(w.nccl, "gather", blocks)));
  HR_ASSERT_EQ(c->sends, 2);
  HR_ASSERT_EQ(c->receives, 2);
  const char expected[4][8] = {{0}, {9, 9, 9, 9, 9, 9, 9, 9}, {2, 2, 2}, {0}};
  HR_ASSERT_BYTES_EQ(to, expected, sizeof to);
  blocks[1].receive_bytes = 4;
  HR_ASSERT_ERROR(hr_nccl_exchange(w.nccl, "gather", blocks), HR_STATUS_INVALID_ARGUMENT,
                  "rank 1 sends 8 bytes to itself and expects 4");
  end(&w);
}

HR_TEST(failures_are_statuses) {
  counts *c = stub();
  world w = begin("cpu", 0, 2);
  c->next_error = 3;
  HR_ASSERT_ERROR(hr_nccl_begin_calls(w.nccl), HR_STATUS_UNAVAILABLE, "earlier work: an error of the stub (3)");
  c->next_error = 0;
  float x = 1;
  HR_ASSERT_ERROR(hr_nccl_reduce(w.nccl, "reduce", HR_GROUP_SUM, HR_DTYPE_F32, 1, 5, &x, &x), HR_STATUS_UNAVAILABLE,
                  "NCCL: reduce: invalid argument (4)");
  hr_nccl_break(w.nccl, "enough");
  hr_nccl_break(w.nccl, "again");
  HR_ASSERT_EQ(c->aborts, 1);
  HR_ASSERT_ERROR(hr_nccl_begin_calls(w.nccl), HR_STATUS_UNAVAILABLE, "the group is broken: enough");
  HR_ASSERT_STATUS(hr_nccl_send(w.nccl, 1, &x, 4), HR_STATUS_UNAVAILABLE);
  hr_nccl *none = NULL;
  hr_nccl_id id = {{0}};
  HR_ASSERT_STATUS(hr_nccl_create(w.device, &id, 0, 1, NULL, &none), HR_STATUS_UNAVAILABLE);
  HR_ASSERT_STATUS(hr_nccl_create(w.device, &id, 2, 2, NULL, &none), HR_STATUS_INVALID_ARGUMENT);
  HR_ASSERT_NULL(none);
  end(&w);
  HR_ASSERT_EQ(c->communicators, 0);
}

/* ---- calls that do not end ---- */

static hr_status add_within(int64_t timeout_ns, hr_nccl *nccl, const void *input, void *output) {
  const hr_group_call call = {.name = "all_reduce", .timeout_ns = timeout_ns, .dtype = HR_DTYPE_F32};
  HR_RETURN_IF_ERROR(hr_nccl_begin_calls(nccl));
  hr_nccl_expect(nccl, &call);
  hr_status status = hr_nccl_reduce(nccl, call.name, HR_GROUP_SUM, call.dtype, COUNT, -1, input, output);
  return hr_nccl_end_calls(nccl, status);
}

static hr_status add_in_time(void *arg, int input_count, void *const *inputs, int output_count, void *const *outputs) {
  HR_ASSERT(input_count == 1 && output_count == 1);
  return add_within(60000000, arg, inputs[0], outputs[0]);
}

static hr_status add_in_a_minute(void *arg, int input_count, void *const *inputs, int output_count,
                                 void *const *outputs) {
  HR_ASSERT(input_count == 1 && output_count == 1);
  return add_within(INT64_C(60000000000), arg, inputs[0], outputs[0]);
}

/* Waits until the stream reports a failure, at most five seconds. */
static hr_status wait_for_failure(hr_stream *stream) {
  hr_status status = HR_OK;
  for (int i = 0; i < 500 && status == HR_OK; ++i) {
    nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    status = hr_stream_synchronize(stream);
  }
  return status;
}

static void check_late(counts *c) {
  world w = begin("cuda", 1, 2);
  HR_ASSERT_OK(hr_nccl_watch(w.nccl, w.stream, NULL, NULL));
  HR_ASSERT_ERROR(hr_nccl_watch(w.nccl, w.stream, NULL, NULL), HR_STATUS_FAILED_PRECONDITION, "watched already");
  for (int i = 0; i < 100; ++i) { /* more than are watched at once */
    HR_ASSERT_OK(hr_stream_call(w.stream, add_in_time, w.nccl, NULL, 1, &w.a, 1, &w.b));
  }
  HR_ASSERT_OK(hr_stream_synchronize(w.stream));
  nanosleep(&(struct timespec){.tv_nsec = 200000000}, NULL);
  HR_ASSERT_OK(hr_stream_synchronize(w.stream)); /* all have ended */
  HR_ASSERT_EQ(c->aborts, 0);
  fake_is_busy = true;
  HR_ASSERT_OK(hr_stream_call(w.stream, add_in_time, w.nccl, NULL, 1, &w.a, 1, &w.b));
  HR_ASSERT_ERROR(wait_for_failure(w.stream), HR_STATUS_UNAVAILABLE,
                  "all_reduce, call 101 of the group, has not ended on rank 1 of 2 within 60 ms");
  for (int i = 0; i < 500 && c->aborts == 0; ++i) {
    nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
  }
  HR_ASSERT_EQ(c->aborts, 1);
  HR_ASSERT_OK(hr_stream_call(w.stream, add_in_time, w.nccl, NULL, 1, &w.a, 1, &w.b));
  HR_ASSERT_ERROR(hr_stream_synchronize(w.stream), HR_STATUS_UNAVAILABLE, "the group is broken: all_reduce, call 101");
  fake_is_busy = false;
  end(&w);
}

static void on_cuda(void (*check)(counts *c)) {
  hr_context *context, *before;
  counts *c = stub();
  HR_ASSERT_OK(hr__context_create(&context));
  before = hr__context_enter(context);
  hr__cuda_replace(&fake, 1);
  check(c);
  hr__context_enter(before);
  hr__context_destroy(context);
  hr__cuda_replace(NULL, 0);
}

HR_TEST(a_call_that_does_not_end_in_time_fails_with_its_name) {
  on_cuda(check_late);
}

static hr_status look(void *arg) {
  int *looks = arg;
  return ++*looks < 2 ? HR_OK : hr_status_make(HR_STATUS_INVALID_ARGUMENT, "rank 0 runs something else");
}

static void check_slow(counts *c) {
  world w = begin("cuda", 1, 2);
  int looks = 0;
  HR_ASSERT_OK(hr_nccl_watch(w.nccl, w.stream, look, &looks));
  fake_is_busy = true;
  HR_ASSERT_OK(hr_stream_call(w.stream, add_in_a_minute, w.nccl, NULL, 1, &w.a, 1, &w.b));
  HR_ASSERT_ERROR(wait_for_failure(w.stream), HR_STATUS_UNAVAILABLE, "rank 0 runs something else");
  HR_ASSERT_EQ(looks, 2);
  fake_is_busy = false;
  end(&w);
  HR_ASSERT_EQ(c->aborts, 1);
}

HR_TEST(a_call_that_takes_long_is_looked_at_with_those_of_other_ranks) {
  on_cuda(check_slow);
}

/* The end of a call is that of the queue which it is in. */
static void check_queue(counts *c) {
  world w = begin("cuda", 1, 2);
  hr_stream *second;
  float values[COUNT] = {0};
  HR_ASSERT_OK(hr_stream_create(w.device, &second));
  void *queues[2] = {hr_device_queue(w.device), w.device->driver->native(w.device->lanes[1].impl)};
  HR_ASSERT_OK(hr_nccl_watch(w.nccl, w.stream, NULL, NULL));
  for (int i = 0; i < 2; ++i) {
    hr_nccl_set_queue(w.nccl, queues[i]);
    HR_ASSERT_OK(add_within(INT64_C(60000000000), w.nccl, values, values));
    HR_ASSERT(c->last_stream == queues[i] && fake_recorded == queues[i]);
  }
  HR_ASSERT(queues[0] != queues[1]);
  hr_stream_release(second);
  end(&w);
}

HR_TEST(a_call_ends_in_its_own_queue) {
  on_cuda(check_queue);
}

/* ---- ranks that do not come ---- */

/* The join that is left behind ends its communicator when NCCL returns. */
static void expect_no_join(counts *c, const hr_nccl_wait *wait, hr_status_code code, const char *message) {
  const hr_nccl_id id = {{0}};
  hr_device *device;
  hr_nccl *none = NULL;
  hr_nccl_id name;
  HR_ASSERT_OK(hr_device_open("cpu", &device));
  HR_ASSERT_OK(hr_nccl_make_id(&name));
  c->is_alone = true;
  HR_ASSERT_ERROR(hr_nccl_create(device, &name, 0, 2, wait, &none), code, message);
  HR_ASSERT_STATUS(hr_nccl_create(device, &id, 0, 2, wait, &none), HR_STATUS_UNAVAILABLE); /* at once */
  HR_ASSERT_NULL(none);
  HR_ASSERT_EQ(c->aborts, 0);
  __atomic_store_n(&c->is_alone, false, __ATOMIC_RELEASE);
  for (int i = 0; i < 500 && __atomic_load_n(&c->aborts, __ATOMIC_ACQUIRE) == 0; ++i) {
    nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
  }
  HR_ASSERT_EQ(c->aborts, 1);
  HR_ASSERT_OK(hr_nccl_create(device, &name, 0, 2, wait, &none));
  hr_nccl_release(none);
  hr_device_release(device);
}

HR_TEST(a_join_that_other_ranks_do_not_follow_ends_in_time) {
  expect_no_join(stub(), &(hr_nccl_wait){.timeout_ns = 50000000}, HR_STATUS_UNAVAILABLE,
                 "rank 0 of 2 has not ended within 50 ms: another rank has not come");
}

HR_TEST(a_join_ends_when_another_rank_has_failed) {
  int looks = 0;
  expect_no_join(stub(), &(hr_nccl_wait){.timeout_ns = INT64_C(60000000000), .look = look, .arg = &looks},
                 HR_STATUS_INVALID_ARGUMENT, "rank 0 runs something else");
  HR_ASSERT_EQ(looks, 2);
}
