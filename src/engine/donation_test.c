/* Donated buffers on a stream: whose memory results have, and what they contain. */
#include <stdlib.h>

#include "layout_fixture.h"

enum { COUNT = 1 << 15 };

static hr_view view_of(hr_buffer *buffer) {
  static const int64_t dims[1] = {COUNT}, strides[1] = {1};
  return (hr_view){.buffer = buffer, .dtype = HR_DTYPE_F32, .rank = 1, .dims = dims, .strides = strides};
}

static hr_buffer *make(const fixture *f, float first) {
  static float values[COUNT];
  hr_buffer *buffer;
  for (int i = 0; i < COUNT; ++i) {
    values[i] = first + (float)i;
  }
  HR_ASSERT_OK(hr_buffer_create(f->device, sizeof values, &buffer));
  hr_view view = view_of(buffer);
  HR_ASSERT_OK(hr_stream_write(f->stream, &view, values));
  HR_ASSERT_OK(hr_stream_synchronize(f->stream));
  return buffer;
}

/* x * x, and -x as a second result. */
static void step(const fixture *f, hr_buffer *x, hr_buffer *const *results) {
  hr_view from = view_of(x), inputs[2] = {from, from}, to[2] = {view_of(results[0]), view_of(results[1])};
  HR_ASSERT_OK(hr_stream_record(f->stream, HR_OP_NEG, NULL, 1, &from, 1, &to[1]));
  HR_ASSERT_OK(hr_stream_record(f->stream, HR_OP_MUL, NULL, 2, inputs, 1, &to[0]));
}

static void check(const fixture *f, hr_buffer *buffer, float first, int power) {
  static float values[COUNT];
  hr_view view = view_of(buffer);
  HR_ASSERT_OK(hr_stream_read(f->stream, &view, values));
  for (int i = 0; i < COUNT; ++i) {
    float x = first + (float)i;
    HR_ASSERT_NEAR(values[i], power == 2 ? x * x : power == 1 ? x : -x, 0);
  }
}

static void create(const fixture *f, hr_buffer **results) {
  for (int i = 0; i < 2; ++i) {
    HR_ASSERT_OK(hr_buffer_create(f->device, COUNT * sizeof(float), &results[i]));
  }
}

static void release(hr_buffer **results) {
  hr_buffer_release(results[0]);
  hr_buffer_release(results[1]);
}

HR_TEST(a_result_has_the_memory_of_a_donated_buffer) {
  fixture f = open_fixture();
  hr_buffer *x = make(&f, 3), *results[2];
  void *address = hr__buffer_address(x);
  create(&f, results);
  step(&f, x, results);
  hr_buffer_donate(x);
  hr_buffer_release(x);
  HR_ASSERT_OK(hr_stream_commit(f.stream));
  HR_ASSERT(hr__buffer_address(results[0]) == address && hr__buffer_address(results[1]) != address);
  check(&f, results[0], 3, 2);
  check(&f, results[1], 3, -1);
  release(results);
  close_fixture(&f);
}

HR_TEST(a_buffer_that_somebody_holds_stays) {
  fixture f = open_fixture();
  hr_buffer *x = make(&f, 5), *results[2];
  void *address = hr__buffer_address(x);
  create(&f, results);
  step(&f, x, results);
  hr_buffer_donate(x);
  HR_ASSERT_OK(hr_stream_commit(f.stream));
  HR_ASSERT(hr__buffer_address(results[0]) != address);
  check(&f, x, 5, 1);
  check(&f, results[0], 5, 2);
  hr_buffer_release(x);
  release(results);
  close_fixture(&f);
}

HR_TEST(buffers_that_are_not_donated_stay) {
  fixture f = open_fixture();
  hr_buffer *x = make(&f, 7), *results[2];
  void *address = hr__buffer_address(x);
  create(&f, results);
  step(&f, x, results);
  hr_buffer_release(x);
  HR_ASSERT_OK(hr_stream_commit(f.stream));
  HR_ASSERT(hr__buffer_address(results[0]) != address);
  check(&f, results[0], 7, 2);
  release(results);
  close_fixture(&f);
}

static void count_release(void *arg) {
  ++*(int *)arg;
}

HR_TEST(adopted_memory_is_not_written) {
  fixture f = open_fixture();
  int releases = 0;
  float *memory = aligned_alloc(64, COUNT * sizeof *memory);
  for (int i = 0; i < COUNT; ++i) {
    memory[i] = 9 + (float)i;
  }
  hr_buffer *x, *results[2];
  HR_ASSERT_OK(hr_buffer_adopt(f.device, COUNT * sizeof *memory, memory, count_release, &releases, &x));
  create(&f, results);
  step(&f, x, results);
  hr_buffer_donate(x);
  hr_buffer_release(x);
  HR_ASSERT_OK(hr_stream_synchronize(f.stream));
  HR_ASSERT_EQ(releases, 1);
  check(&f, results[0], 9, 2);
  for (int i = 0; i < COUNT; ++i) {
    HR_ASSERT_NEAR(memory[i], 9 + (float)i, 0);
  }
  free(memory);
  release(results);
  close_fixture(&f);
}

/* While a call is recorded, limits don't commit: its buffers are still held. */
HR_TEST(a_call_is_committed_at_its_end) {
  fixture f = open_fixture();
  f.stream->policy.bytes_max = COUNT;
  hr_buffer *x = make(&f, 2), *results[2];
  void *address = hr__buffer_address(x);
  hr_stream_hint(f.stream, HR_HINT_CALL_BEGINS);
  create(&f, results);
  step(&f, x, results);
  HR_ASSERT(hr__buffer_address(results[0]) == NULL);
  hr_buffer_donate(x);
  hr_buffer_release(x);
  hr_stream_hint(f.stream, HR_HINT_CALL_ENDS);
  HR_ASSERT(hr__buffer_address(results[0]) == address);
  check(&f, results[0], 2, 2);
  release(results);
  close_fixture(&f);
}
