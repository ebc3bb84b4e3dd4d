/* wide_scalar_test.c: the host's integers above the largest i64: with elements of u64 they are exact, in f64 they are
 * rounded, interpreted and compiled; a dump preserves them.
 */
#include "hr_test.h"

#include "base/env.h"
#include "headrace/stream.h"

enum { COUNT = 5 };
static int64_t dims[1] = {COUNT}; /* of other dims for each kind of code, so that the kernels are others */
static const int64_t strides[1] = {1};
static const uint64_t large = (UINT64_C(1) << 63) + 5;
static const uint64_t xs[COUNT] = {0, 7, (UINT64_C(1) << 63) + 4, (UINT64_C(1) << 63) + 5, UINT64_MAX};

static hr_device *device;
static hr_stream *stream;

static hr_view view(hr_dtype dtype) {
  hr_buffer *buffer;
  HR_ASSERT_OK(hr_buffer_create(device, COUNT * hr_dtype_size(dtype), &buffer));
  return (hr_view){.buffer = buffer, .dtype = dtype, .rank = 1, .dims = dims, .strides = strides};
}

static hr_view number(const hr_scalar *scalar) {
  return (hr_view){.scalar = scalar, .dtype = scalar->dtype};
}

/* op(x, number, number...) in `dtype`, read into `out`. */
static void run(hr_op op, int numbers, const hr_scalar *scalar, hr_dtype dtype, void *out) {
  hr_view inputs[3] = {view(HR_DTYPE_U64), number(scalar), number(scalar + 1)}, output = view(dtype);
  HR_ASSERT_OK(hr_stream_write(stream, &inputs[0], xs));
  HR_ASSERT_OK(hr_stream_record(stream, op, NULL, 1 + numbers, inputs, 1, &output));
  HR_ASSERT_OK(hr_stream_read(stream, &output, out));
  hr_buffer_release(inputs[0].buffer);
  hr_buffer_release(output.buffer);
}

static void fill(const hr_scalar *scalar, hr_dtype dtype, void *out) {
  hr_view input = number(scalar), output = view(dtype);
  HR_ASSERT_OK(hr_stream_record(stream, HR_OP_COPY, NULL, 1, &input, 1, &output));
  HR_ASSERT_OK(hr_stream_read(stream, &output, out));
  hr_buffer_release(output.buffer);
}

static void check_all(void) {
  hr_scalar scalars[2] = {hr_scalar_u64(large), hr_scalar_u64(UINT64_MAX - 1)};
  uint64_t u[COUNT];
  double f[COUNT];
  uint8_t b[COUNT];
  fill(scalars, HR_DTYPE_U64, u);
  HR_ASSERT(u[3] == large);
  fill(scalars, HR_DTYPE_F64, f);
  HR_ASSERT(f[0] == 0x1p63);
  fill(scalars, HR_DTYPE_BOOL, b);
  HR_ASSERT_EQ(b[0], 1);
  run(HR_OP_ADD, 1, scalars, HR_DTYPE_U64, u);
  run(HR_OP_LT, 1, scalars, HR_DTYPE_BOOL, b);
  for (int i = 0; i < dims[0]; ++i) {
    HR_ASSERT(u[i] == xs[i] + large);
    HR_ASSERT_EQ(b[i], xs[i] < large);
  }
  run(HR_OP_CLAMP, 2, scalars, HR_DTYPE_U64, u);
  run(HR_OP_GE, 1, scalars, HR_DTYPE_BOOL, b);
  for (int i = 0; i < dims[0]; ++i) {
    HR_ASSERT(u[i] == (xs[i] < large ? large : xs[i] > UINT64_MAX - 1 ? UINT64_MAX - 1 : xs[i]));
    HR_ASSERT_EQ(b[i], xs[i] >= large);
  }
}

static void check_with(const char *jit, int count) {
  setenv("HEADRACE_JIT", jit, 1);
  hr__env_reload();
  dims[0] = count;
  HR_ASSERT_OK(hr_device_open("cpu", &device));
  HR_ASSERT_OK(hr_stream_create(device, &stream));
  check_all();
  hr_stats stats;
  hr_stream_stats(stream, &stats);
  HR_ASSERT_EQ(stats.kernels_interpreted > 0, strcmp(jit, "off") == 0);
  hr_stream_release(stream);
  hr_device_release(device);
  unsetenv("HEADRACE_JIT");
}

HR_TEST(numbers_above_the_largest_i64_are_interpreted) {
  check_with("off", COUNT - 1);
}

HR_TEST(numbers_above_the_largest_i64_are_compiled) {
  check_with("wait", COUNT);
}
