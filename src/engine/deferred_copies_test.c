/* Copies of what a function wrote: which of them a read leaves to the next commit, and their contents. */
#include "hr_test.h"

#include "engine/deferred_copies.h"
#include "engine/stream.h"
#include "headrace/function.h"

enum { COUNT = 64 };
#include "vectors.h"

typedef struct world {
  hr_device *device;
  hr_stream *stream;
  hr_buffer *weight, *gradient, *bucket, *other;
  hr_status_code code; /* what the function returns */
  int calls;
} world;

static world begin(void) {
  world w = {.code = HR_STATUS_OK};
  HR_ASSERT_OK(hr_device_open("cpu", &w.device));
  HR_ASSERT_OK(hr_stream_create(w.device, &w.stream));
  hr_stream_set_mode(w.stream, HR_MODE_FUSE);
  w.weight = make_vector(w.device);
  w.gradient = make_vector(w.device);
  w.bucket = make_vector(w.device);
  w.other = make_vector(w.device);
  fill(w.stream, w.weight, 1);
  fill(w.stream, w.bucket, 0);
  fill(w.stream, w.other, 0);
  HR_ASSERT_OK(hr_stream_synchronize(w.stream));
  return w;
}

static void end(world *w) {
  hr_buffer *all[] = {w->weight, w->bucket, w->other};
  hr__buffers_release(3, all);
  hr_buffer_release(w->gradient);
  hr_stream_release(w->stream);
  hr_device_release(w->device);
}

static hr_status add_ten(const hr_function_call *call) {
  world *w = call->arg;
  float *values = call->outputs[0];
  ++w->calls;
  for (int i = 0; i < COUNT; ++i) {
    values[i] += 10;
  }
  return w->code == HR_STATUS_OK ? HR_OK : hr_status_make(w->code, "the peer is gone");
}

static void copy(hr_stream *stream, hr_buffer *from, hr_buffer *to) {
  hr_view input = view_of(from), output = view_of(to);
  HR_ASSERT_OK(hr_stream_record(stream, HR_OP_COPY, NULL, 1, &input, 1, &output));
}

static void call(world *w, hr_buffer *buffer) {
  const hr_function_spec spec = {.name = "add_ten", .run = add_ten, .arg = w, .updated_count = 1};
  hr_view view = view_of(buffer);
  HR_ASSERT_OK(hr_function_record(w->stream, &spec, 0, NULL, 1, &view));
  hr_stream_hint(w->stream, HR_HINT_AWAITED);
}

/* gradient = 2 * weight, its average by way of the bucket: 2 * weight + 10 */
static void pass(world *w) {
  record(w->stream, HR_OP_MUL, w->weight, 2, w->gradient);
  copy(w->stream, w->gradient, w->bucket);
  call(w, w->bucket);
  copy(w->stream, w->bucket, w->gradient);
}

static void update(world *w) {
  hr_view inputs[2] = {view_of(w->weight), view_of(w->gradient)}, output = view_of(w->weight);
  HR_ASSERT_OK(hr_stream_record(w->stream, HR_OP_ADD, NULL, 2, inputs, 1, &output));
}

static bool has_memory(const hr_buffer *buffer) {
  return hr__buffer_address(buffer) != NULL;
}

static void replace_gradient(world *w) {
  hr_buffer_release(w->gradient);
  w->gradient = make_vector(w->device);
}

HR_TEST(a_gradient_that_dies_before_the_next_commit_is_never_copied) {
  world w = begin();
  float weight = 1;
  for (int k = 0; k < 4; ++k) {
    pass(&w);
    update(&w);
    HR_ASSERT_EQ(read_first(w.stream, w.weight), weight = weight + 2 * weight + 10);
    HR_ASSERT(!has_memory(w.gradient));
    HR_ASSERT_EQ(w.stream->pending.records.count, 1);
    replace_gradient(&w);
  }
  hr_stats before, after;
  hr_stream_stats(w.stream, &before);
  HR_ASSERT_OK(hr_stream_synchronize(w.stream)); /* nothing is left of the last copy */
  hr_stream_stats(w.stream, &after);
  HR_ASSERT_EQ(after.kernels, before.kernels);
  HR_ASSERT_EQ(w.calls, 4);
  end(&w);
}

HR_TEST(a_deferred_copy_has_the_contents_of_its_time) {
  world w = begin();
  pass(&w);
  HR_ASSERT_EQ(read_first(w.stream, w.weight), 1);
  HR_ASSERT(!has_memory(w.gradient));
  update(&w);                    /* of the next program */
  fill(w.stream, w.bucket, 100); /* the copy is recorded before */
  HR_ASSERT_EQ(read_first(w.stream, w.weight), 13);
  HR_ASSERT(has_memory(w.gradient));
  HR_ASSERT_EQ(read_first(w.stream, w.gradient), 12);
  HR_ASSERT_EQ(read_first(w.stream, w.bucket), 100);
  end(&w);
}

HR_TEST(a_gradient_that_the_host_reads_is_copied) {
  world w = begin();
  pass(&w);
  HR_ASSERT_EQ(read_first(w.stream, w.gradient), 12);
  HR_ASSERT_EQ(w.stream->pending.records.count, 0);
  replace_gradient(&w);
  pass(&w);
  HR_ASSERT_EQ(read_first(w.stream, w.other), 0);
  HR_ASSERT_EQ(w.stream->pending.records.count, 1);
  HR_ASSERT_EQ(read_first(w.stream, w.gradient), 12); /* later */
  end(&w);
}

HR_TEST(the_host_gets_addresses_and_waits_after_the_copies) {
  world w = begin();
  void *address;
  pass(&w);
  HR_ASSERT_OK(hr_stream_synchronize(w.stream));
  HR_ASSERT(has_memory(w.gradient));
  replace_gradient(&w);
  pass(&w);
  HR_ASSERT_EQ(read_first(w.stream, w.other), 0);
  HR_ASSERT(!has_memory(w.gradient));
  HR_ASSERT_OK(hr_stream_address(w.stream, w.bucket, &address)); /* the host may write there */
  HR_ASSERT(has_memory(w.gradient));
  memset(address, 0, COUNT * sizeof(float));
  HR_ASSERT_EQ(read_first(w.stream, w.gradient), 12);
  end(&w);
}

/* The bytes of a write of the host come after what has been recorded. */
HR_TEST(the_host_writes_to_both_buffers_after_the_copy) {
  world w = begin();
  float ones[COUNT];
  hr_view bucket = view_of(w.bucket), gradient = view_of(w.gradient);
  for (int i = 0; i < COUNT; ++i) {
    ones[i] = 1;
  }
  pass(&w);
  HR_ASSERT_EQ(read_first(w.stream, w.other), 0);
  HR_ASSERT_OK(hr_stream_write(w.stream, &bucket, ones));
  HR_ASSERT_EQ(read_first(w.stream, w.gradient), 12);
  HR_ASSERT_EQ(read_first(w.stream, w.bucket), 1);
  replace_gradient(&w);
  gradient = view_of(w.gradient);
  pass(&w);
  HR_ASSERT_EQ(read_first(w.stream, w.other), 0);
  HR_ASSERT_OK(hr_stream_write(w.stream, &gradient, ones));
  HR_ASSERT_EQ(read_first(w.stream, w.gradient), 1);
  end(&w);
}

/* ---- copies that are not deferred ---- */

static void expect_none(world *w) {
  HR_ASSERT_EQ(read_first(w->stream, w->other), 0);
  HR_ASSERT_EQ(w->stream->pending.records.count, 0);
}

HR_TEST(a_gradient_with_contents_is_copied_at_once) {
  world w = begin();
  fill(w.stream, w.gradient, 5);
  HR_ASSERT_OK(hr_stream_synchronize(w.stream));
  pass(&w);
  expect_none(&w);
  HR_ASSERT_EQ(read_first(w.stream, w.gradient), 12);
  end(&w);
}

HR_TEST(a_copy_whose_buffers_are_written_later_is_made_at_once) {
  world w = begin();
  pass(&w);
  record(w.stream, HR_OP_ADD, w.gradient, 1, w.gradient);
  expect_none(&w);
  HR_ASSERT_EQ(read_first(w.stream, w.gradient), 13);
  replace_gradient(&w);
  pass(&w);
  record(w.stream, HR_OP_ADD, w.bucket, 1, w.bucket);
  expect_none(&w);
  HR_ASSERT_EQ(read_first(w.stream, w.gradient), 12);
  HR_ASSERT_EQ(read_first(w.stream, w.bucket), 13);
  end(&w);
}

HR_TEST(a_copy_of_what_no_function_wrote_is_made_at_once) {
  world w = begin();
  call(&w, w.bucket);
  copy(w.stream, w.weight, w.gradient);
  expect_none(&w);
  HR_ASSERT_EQ(read_first(w.stream, w.gradient), 1);
  replace_gradient(&w);
  call(&w, w.bucket);
  record(w.stream, HR_OP_MUL, w.bucket, 2, w.bucket);
  copy(w.stream, w.bucket, w.gradient);
  expect_none(&w);
  HR_ASSERT_EQ(read_first(w.stream, w.gradient), 40);
  end(&w);
}

HR_TEST(a_copy_without_others_that_wait_is_made_at_once) {
  world w = begin();
  const hr_function_spec spec = {.name = "add_ten", .run = add_ten, .arg = &w, .updated_count = 1};
  hr_view view = view_of(w.bucket);
  HR_ASSERT_OK(hr_function_record(w.stream, &spec, 0, NULL, 1, &view));
  copy(w.stream, w.bucket, w.gradient);
  expect_none(&w);
  HR_ASSERT_EQ(read_first(w.stream, w.gradient), 10);
  end(&w);
}

HR_TEST(a_copy_of_a_part_another_dtype_or_a_dead_buffer_is_made_at_once) {
  world w = begin();
  static const int64_t half[1] = {COUNT / 2};
  call(&w, w.bucket);
  hr_view input = view_of(w.bucket), output = view_of(w.gradient);
  input.dims = output.dims = half;
  fill(w.stream, w.gradient, 3);
  HR_ASSERT_OK(hr_stream_record(w.stream, HR_OP_COPY, NULL, 1, &input, 1, &output));
  expect_none(&w);
  float values[COUNT];
  read_vector(w.stream, w.gradient, values);
  HR_ASSERT(values[0] == 10 && values[COUNT / 2 - 1] == 10 && values[COUNT / 2] == 3 && values[COUNT - 1] == 3);
  replace_gradient(&w);
  call(&w, w.bucket);
  input = view_of(w.bucket), output = view_of(w.gradient);
  output.dtype = HR_DTYPE_I32;
  HR_ASSERT_OK(hr_stream_record(w.stream, HR_OP_COPY, NULL, 1, &input, 1, &output));
  expect_none(&w);
  replace_gradient(&w);
  hr_buffer *dead = make_vector(w.device);
  fill(w.stream, dead, 1);
  call(&w, dead);
  copy(w.stream, dead, w.gradient);
  hr_buffer_release(dead);
  expect_none(&w);
  HR_ASSERT_EQ(read_first(w.stream, w.gradient), 11);
  end(&w);
}

/* A part of the bucket, which is longer, in another order. */
HR_TEST(a_copy_of_a_strided_view_is_deferred) {
  world w = begin();
  static const int64_t dims[2] = {8, 8}, rows[2] = {8, 1}, columns[2] = {1, 8};
  float values[COUNT];
  for (int i = 0; i < COUNT; ++i) {
    values[i] = (float)i;
  }
  hr_view bucket = view_of(w.bucket), from = bucket, to = view_of(w.gradient);
  HR_ASSERT_OK(hr_stream_write(w.stream, &bucket, values));
  call(&w, w.bucket);
  from.rank = to.rank = 2, from.dims = to.dims = dims, from.strides = columns, to.strides = rows;
  HR_ASSERT_OK(hr_stream_record(w.stream, HR_OP_COPY, NULL, 1, &from, 1, &to));
  HR_ASSERT_EQ(read_first(w.stream, w.other), 0);
  HR_ASSERT_EQ(w.stream->pending.records.count, 1);
  read_vector(w.stream, w.gradient, values);
  HR_ASSERT(values[0] == 10 && values[1] == 18 && values[8] == 11 && values[COUNT - 1] == 73);
  end(&w);
}

/* ---- failures ---- */

HR_TEST(a_deferred_copy_fails_with_its_program) {
  world w = begin();
  w.code = HR_STATUS_ABORTED;
  float value[COUNT];
  hr_view other = view_of(w.other), gradient;
  for (int k = 0; k < 2; ++k) {
    gradient = view_of(w.gradient);
    pass(&w);
    update(&w);
    HR_ASSERT_ERROR(hr_stream_read(w.stream, k == 0 ? &other : &gradient, value), HR_STATUS_ABORTED,
                    "add_ten: the peer is gone");
    HR_ASSERT_EQ(w.stream->pending.records.count, 0);
    HR_ASSERT_ERROR(hr_stream_read(w.stream, &gradient, value), HR_STATUS_ABORTED, "add_ten: the peer is gone");
    HR_ASSERT_EQ(read_first(w.stream, w.weight), 1); /* older buffers stay */
    replace_gradient(&w);
    hr_buffer_release(w.bucket);
    w.bucket = make_vector(w.device);
    fill(w.stream, w.bucket, 0);
  }
  w.code = HR_STATUS_OK;
  pass(&w);
  update(&w);
  HR_ASSERT_EQ(read_first(w.stream, w.weight), 13);
  HR_ASSERT_EQ(read_first(w.stream, w.gradient), 12);
  end(&w);
}

/* The records before the one without memory run, with the copy among them. */
HR_TEST(copies_return_to_a_commit_that_has_no_memory) {
  world w = begin();
  hr_device_memory_trim(w.device);
  hr_device_memory_limit(w.device, 32 << 20);
  pass(&w);
  static const int64_t dims[1] = {16 << 20}, zero[1] = {0}, one[1] = {1};
  hr_buffer *large;
  HR_ASSERT_OK(hr_buffer_create(w.device, (size_t)dims[0] * sizeof(float), &large));
  hr_view input = {.buffer = w.weight, .dtype = HR_DTYPE_F32, .rank = 1, .dims = dims, .strides = zero},
          output = {.buffer = large, .dtype = HR_DTYPE_F32, .rank = 1, .dims = dims, .strides = one};
  HR_ASSERT_OK(hr_stream_record(w.stream, HR_OP_COPY, NULL, 1, &input, 1, &output));
  hr_view other = view_of(w.other);
  float values[COUNT];
  HR_ASSERT_ERROR(hr_stream_read(w.stream, &other, values), HR_STATUS_RESOURCE_EXHAUSTED, "67108864 bytes requested");
  HR_ASSERT_EQ(w.stream->pending.records.count, 0);
  HR_ASSERT_EQ(read_first(w.stream, w.gradient), 12);
  HR_ASSERT_EQ(w.calls, 1);
  hr_device_memory_limit(w.device, 0);
  hr_buffer_release(large);
  end(&w);
}

/* The n-th allocation fails: copies from there on are not deferred. */
static size_t defer_without_memory(const world *w, int64_t n) {
  hr_trace trace, rest;
  hr_buffer *fresh[2] = {make_vector(w->device), make_vector(w->device)};
  hr_view bucket = view_of(w->bucket);
  hr__trace_init(&trace, 1000);
  hr__trace_init(&rest, 1000);
  HR_ASSERT_OK(hr__trace_record(&trace, HR_OP_CALL, NULL, 0, NULL, 1, &bucket));
  for (int k = 0; k < 2; ++k) {
    hr_view gradient = view_of(fresh[k]);
    HR_ASSERT_OK(hr__trace_record(&trace, HR_OP_COPY, NULL, 1, &bucket, 1, &gradient));
  }
  hr__allocator_fail_after(n);
  hr__defer_copies(&trace, &rest);
  hr__allocator_fail_after(-1);
  size_t count = rest.records.count;
  HR_ASSERT_EQ(trace.deferred.count, count);
  HR_ASSERT(count == 0 ||
            (trace.deferred.data[0] == 1 && rest.locals.data[1] == 1 && rest.buffers.data[1] == fresh[0]));
  hr__recall_copies(&trace, &rest);
  HR_ASSERT_EQ(trace.deferred.count + rest.buffers.count, 0);
  hr__trace_fini(&trace);
  hr__trace_fini(&rest);
  HR_ASSERT_EQ(hr__buffer_holders(fresh[0]) + hr__buffer_holders(fresh[1]), 2);
  hr__buffers_release(2, fresh);
  return count;
}

HR_TEST(copies_without_host_memory_stay) {
  world w = begin();
  size_t count = 0, before = 0;
  for (int64_t n = 0; count < 2; ++n, before = count) {
    count = defer_without_memory(&w, n);
    HR_ASSERT(count >= before && n < 20);
  }
  end(&w);
}

/* ---- limits of a stream ---- */

HR_TEST(a_second_stream_gets_the_copy) {
  world w = begin();
  hr_stream *second;
  pass(&w);
  HR_ASSERT_EQ(read_first(w.stream, w.other), 0);
  HR_ASSERT_OK(hr_stream_create(w.device, &second)); /* commits the first one */
  HR_ASSERT_EQ(read_first(second, w.gradient), 12);
  replace_gradient(&w);
  pass(&w);
  HR_ASSERT_EQ(read_first(w.stream, w.other), 0);
  fill(second, w.bucket, 100);
  HR_ASSERT_EQ(read_first(second, w.bucket), 100);
  HR_ASSERT_EQ(read_first(second, w.gradient), 12);
  hr_stream_release(second);
  end(&w);
}

HR_TEST(a_stream_that_ends_makes_its_copies) {
  world w = begin();
  pass(&w);
  HR_ASSERT_EQ(read_first(w.stream, w.other), 0);
  hr_stream_release(w.stream);
  HR_ASSERT_OK(hr_stream_create(w.device, &w.stream));
  HR_ASSERT_EQ(read_first(w.stream, w.gradient), 12);
  end(&w);
}
