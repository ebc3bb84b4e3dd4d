/* Memory that is short for a part of a trace: records before that part run, those after it do not. */
#include "hr_test.h"

#include "engine/stream.h"

enum { SMALL = 1000, LARGE = 1 << 20, LIMIT = 32 << 20 };

typedef struct fixture {
  hr_device *device;
  hr_stream *stream;
  hr_buffer *weight; /* SMALL zeros */
} fixture;

/* The stream has the whole limit for itself: memory left over from other tests of the process is returned. */
static fixture open_fixture(void) {
  fixture f;
  float zeros[SMALL] = {0};
  const int64_t dims[1] = {SMALL}, strides[1] = {1};
  HR_ASSERT_OK(hr_device_open("cpu", &f.device));
  HR_ASSERT_OK(hr_stream_create(f.device, &f.stream));
  hr_stream_set_mode(f.stream, HR_MODE_FUSE);
  hr_device_memory_trim(f.device);
  HR_ASSERT_OK(hr_buffer_create(f.device, sizeof zeros, &f.weight));
  hr_view view = {.buffer = f.weight, .dtype = HR_DTYPE_F32, .rank = 1, .dims = dims, .strides = strides};
  HR_ASSERT_OK(hr_stream_write(f.stream, &view, zeros));
  hr_device_memory_limit(f.device, LIMIT);
  return f;
}

static void close_fixture(fixture *f) {
  hr_device_memory_limit(f->device, 0);
  hr_buffer_release(f->weight);
  hr_stream_release(f->stream);
  hr_device_release(f->device);
}

static hr_buffer *make(const fixture *f, int64_t count) {
  hr_buffer *buffer;
  HR_ASSERT_OK(hr_buffer_create(f->device, (size_t)count * sizeof(float), &buffer));
  return buffer;
}

/* out = a + b of `count` elements; if `a` has another size, its first element is added to all. */
static void add(const fixture *f, int64_t count, hr_buffer *a, double b, hr_buffer *out) {
  const int64_t strides[1] = {1}, one[1] = {hr_buffer_bytes(a) == (size_t)count * sizeof(float)};
  hr_scalar number = hr_scalar_f64(b);
  hr_view inputs[2] = {{.buffer = a, .dtype = HR_DTYPE_F32, .rank = 1, .dims = &count, .strides = one},
                       {.scalar = &number, .dtype = number.dtype}};
  hr_view output = {.buffer = out, .dtype = HR_DTYPE_F32, .rank = 1, .dims = &count, .strides = strides};
  HR_ASSERT_OK(hr_stream_record(f->stream, HR_OP_ADD, NULL, 2, inputs, 1, &output));
}

static void step(const fixture *f, double by) {
  add(f, SMALL, f->weight, by, f->weight);
}

static float weight_of(const fixture *f) {
  float values[SMALL];
  const int64_t dims[1] = {SMALL}, strides[1] = {1};
  hr_view view = {.buffer = f->weight, .dtype = HR_DTYPE_F32, .rank = 1, .dims = dims, .strides = strides};
  HR_ASSERT_OK(hr_stream_read(f->stream, &view, values));
  return values[SMALL - 1];
}

HR_TEST(a_step_in_front_of_a_tensor_that_is_too_large_is_done) {
  fixture f = open_fixture();
  hr_buffer *first = make(&f, LARGE), *large = make(&f, 16 * LARGE), *behind = make(&f, SMALL);
  step(&f, 1);
  add(&f, LARGE, f.weight, 5, first);
  add(&f, 16 * LARGE, f.weight, 1, large);
  step(&f, 10);
  add(&f, SMALL, f.weight, 1, behind);
  HR_ASSERT_ERROR(hr_stream_synchronize(f.stream), HR_STATUS_RESOURCE_EXHAUSTED,
                  "the result f32[16777216] of add: cpu: out of memory: 67108864 bytes requested");
  HR_ASSERT_NEAR(weight_of(&f), 1, 0);
  HR_ASSERT(!hr__buffer_is_invalid(first) && hr__buffer_is_invalid(large) && hr__buffer_is_invalid(behind));
  step(&f, 100); /* after the report */
  HR_ASSERT_NEAR(weight_of(&f), 101, 0);
  hr_buffer *all[] = {first, large, behind};
  hr__buffers_release(3, all);
  close_fixture(&f);
}

HR_TEST(halving_the_size_and_trying_again_loses_no_step) {
  fixture f = open_fixture();
  int64_t count = 64 * LARGE;
  int done = 0, failures = 0;
  while (done < 3) {
    hr_buffer *activations = make(&f, count);
    step(&f, 1);
    add(&f, count, f.weight, 1, activations);
    step(&f, 1000);
    hr_status status = hr_stream_synchronize(f.stream);
    failures += status != HR_OK;
    done += status == HR_OK;
    count = status != HR_OK ? count / 2 : count;
    HR_ASSERT(status == HR_OK || hr_status_code_of(status) == HR_STATUS_RESOURCE_EXHAUSTED);
    hr_status_ignore(status);
    hr_buffer_release(activations);
  }
  HR_ASSERT(failures >= 4);
  HR_ASSERT_NEAR(weight_of(&f), failures + 3 * 1001, 0);
  close_fixture(&f);
}

/* Running sums of x: a kernel of its own. */
static hr_buffer *sum_up(const fixture *f, int64_t count, hr_buffer *x) {
  const int64_t strides[1] = {1}, ints[1] = {0};
  hr_attrs attrs = {.int_count = 1, .ints = ints};
  hr_buffer *y = make(f, count);
  hr_view in = {.buffer = x, .dtype = HR_DTYPE_F32, .rank = 1, .dims = &count, .strides = strides}, out = in;
  out.buffer = y;
  HR_ASSERT_OK(hr_stream_record(f->stream, HR_OP_CUMSUM, &attrs, 1, &in, 1, &out));
  return y;
}

HR_TEST(temporaries_that_are_too_large_fail_only_later_records) {
  fixture f = open_fixture();
  hr_buffer *result = make(&f, SMALL), *x = make(&f, 6 * LARGE);
  step(&f, 1);
  add(&f, 6 * LARGE, f.weight, 1, x);
  hr_buffer *y = sum_up(&f, 6 * LARGE, x);
  step(&f, 10);
  hr_buffer *z = sum_up(&f, 6 * LARGE, y);
  add(&f, SMALL, z, 1, result);
  hr_buffer *temporaries[] = {x, y, z};
  hr__buffers_release(3, temporaries);
  HR_ASSERT_ERROR(hr_stream_synchronize(f.stream), HR_STATUS_RESOURCE_EXHAUSTED,
                  "temporaries, the largest f32[6291456] of add: cpu: out of memory");
  HR_ASSERT_NEAR(weight_of(&f), 11, 0); /* without z, x and y are not needed */
  HR_ASSERT(hr__buffer_is_invalid(result));
  hr_buffer_release(result);
  close_fixture(&f);
}

HR_TEST(work_submitted_earlier_is_done) {
  fixture f = open_fixture();
  hr_buffer *large = make(&f, 16 * LARGE), *chain = make(&f, LARGE);
  add(&f, LARGE, f.weight, 0, chain);
  for (int i = 0; i < 3; ++i) {
    for (int j = 0; j < 20; ++j) {
      add(&f, LARGE, chain, 1, chain);
    }
    step(&f, 1);
    HR_ASSERT_OK(hr_stream_commit(f.stream));
  }
  add(&f, 16 * LARGE, f.weight, 1, large);
  HR_ASSERT_STATUS(hr_stream_synchronize(f.stream), HR_STATUS_RESOURCE_EXHAUSTED);
  HR_ASSERT_NEAR(weight_of(&f), 3, 0);
  hr_buffer_release(large);
  hr_buffer_release(chain);
  close_fixture(&f);
}

/* Temporaries of a large step don't block a smaller one. */
HR_TEST(temporaries_of_earlier_programs_make_room) {
  fixture f = open_fixture();
  hr_buffer *x = make(&f, 3 * LARGE), *result = make(&f, SMALL);
  add(&f, 3 * LARGE, f.weight, 1, x);
  hr_buffer *y = sum_up(&f, 3 * LARGE, x);
  add(&f, SMALL, y, 1, result);
  hr_buffer_release(x);
  hr_buffer_release(y);
  HR_ASSERT_OK(hr_stream_synchronize(f.stream));
  hr_buffer *large = make(&f, 7 * LARGE);
  add(&f, 7 * LARGE, f.weight, 1, large);
  HR_ASSERT_OK(hr_stream_synchronize(f.stream));
  hr_buffer_release(large);
  hr_buffer_release(result);
  close_fixture(&f);
}
