/* shared_calls_test.c: which library calls of a program run the same prepared object; results of a chain of products.
 */
#include "engine/shared_calls.h"

#include "hr_test.h"

#include "engine/stream.h"

/* For the second of two nodes: the first's number, or 0. Buffers 0 to 2 are live as the caller's; 3 to 5 are the
 * program's, and 6 to 7 of them stay alive. Libraries may keep what they derive from buffers below `constants`. */
static size_t second_for(uint32_t constants, const char *buffer_0, const char *first, const char *second) {
  hr_text text = {0};
  hr_program program;
  hr_shared_calls calls = {0};
  for (int i = 0; i < 8; ++i) {
    const char *of = i == 0 ? buffer_0 : i < 3 ? "live" : i < 6 ? "dead fresh" : "live fresh";
    hr_text_printf(&text, "buffer %%%d 4096 %s\n", i, of);
  }
  hr_text_printf(&text, "scalar $0 f64\nscalar $1 i64\n%s\n%s\n", first, second);
  HR_ASSERT_OK(hr_program_parse(hr_text_chars(&text), &program));
  HR_ASSERT_EQ(hr__shared_calls_find(&calls, &program, &program.nodes[0], constants, 1), 0);
  size_t found = hr__shared_calls_find(&calls, &program, &program.nodes[1], constants, 2);
  hr__shared_calls_fini(&calls);
  hr_program_fini(&program);
  hr_text_fini(&text);
  return found;
}

static size_t second_with(const char *buffer_0, const char *first, const char *second) {
  return second_for(3, buffer_0, first, second);
}

static size_t second_of(const char *first, const char *second) {
  return second_with("live", first, second);
}

#define PRODUCT(y, x, w) y ":f32[4,8]{8,1}+0 = matmul(" x ":f32[4,16]{16,1}+0, " w ":f32[16,8]{8,1}+0, _)"

HR_TEST(the_same_weights_and_other_values_of_the_program) {
  HR_ASSERT_EQ(second_of(PRODUCT("%4", "%3", "%1"), PRODUCT("%3", "%4", "%1")), 1);
  HR_ASSERT_EQ(second_of(PRODUCT("%4", "%3", "%1"), PRODUCT("%4", "%3", "%1")), 1);
}

#define AT(y, x) "%0:f32[4,8]{8,1}+" y " = matmul(%0:f32[4,16]{16,1}+" x ", %1:f32[16,8]{8,1}+0, _)"

HR_TEST(other_places_of_values_that_the_program_makes) {
  const char *written = "live versions 1";
  HR_ASSERT_EQ(second_of(PRODUCT("%4", "%3", "%1"),
                         "%4:f32[4,8]{8,1}+32 = matmul(%3:f32[4,16]{16,1}+16, %1:f32[16,8]{8,1}+0, _)"),
               1);
  HR_ASSERT_EQ(second_with(written, PRODUCT("%4", "%3", "%1"), PRODUCT("%4", "%0", "%1")), 0); /* it stays alive */
  HR_ASSERT_EQ(second_with(written, AT("64", "0"), AT("128", "64")), 1);
  HR_ASSERT_EQ(second_with(written, AT("64", "0"), AT("128", "32")), 0); /* another distance between operands */
  HR_ASSERT_EQ(second_with(written, AT("64", "0"), AT("65", "1")), 0);   /* another alignment */
}

HR_TEST(what_a_provider_can_tell_apart) {
  const char *plain = PRODUCT("%4", "%3", "%1");
  const char *others[] = {
      PRODUCT("%4", "%3", "%2"), /* the caller's other buffer */
      PRODUCT("%4", "%0", "%1"), /* an input of the caller */
      PRODUCT("%6", "%3", "%1"), /* a result that stays alive */
      "%4:f32[4,8]{8,1}+0 = matmul(%3:f32[4,16]{16,1}+8, %1:f32[16,8]{8,1}+0, _)",
      "%4:f32[4,8]{8,1}+0 = matmul(%3:f32[4,16]{1,4}+0, %1:f32[16,8]{8,1}+0, _)",
      "%4:f32[5,8]{8,1}+0 = matmul(%3:f32[5,16]{16,1}+0, %1:f32[16,8]{8,1}+0, _)",
      "%4:f64[4,8]{8,1}+0 = matmul(%3:f64[4,16]{16,1}+0, %1:f64[16,8]{8,1}+0, _)",
      "%4:f32[4,8]{8,1}+0 = matmul(%3:f32[4,16]{16,1}+0, %1:f32[16,8]{8,1}+0, %5:f32[4,8]{0,1}+0)",
  };
  for (size_t i = 0; i < sizeof others / sizeof *others; ++i) {
    HR_ASSERT_EQ(second_of(plain, others[i]), 0);
  }
}

HR_TEST(libraries_that_keep_nothing_share_calls_with_other_weights) {
  const char *plain = PRODUCT("%4", "%3", "%1");
  HR_ASSERT_EQ(second_for(0, "live", plain, PRODUCT("%4", "%3", "%2")), 1);
  HR_ASSERT_EQ(second_for(0, "live", plain, PRODUCT("%6", "%3", "%2")), 0); /* a result that stays alive */
  HR_ASSERT_EQ(
      second_for(0, "live", plain, "%4:f32[4,8]{8,1}+0 = matmul(%3:f32[4,16]{16,1}+0, %2:f32[16,8]{8,1}+1, _)"), 0);
}

#define SQUARE(y, x, w) y ":f32[4,4]{4,1}+0 = matmul(" x ":f32[4,4]{4,1}+0, " w ":f32[4,4]{4,1}+0, _)"

HR_TEST(operands_that_are_one_buffer) {
  HR_ASSERT_EQ(second_of(SQUARE("%5", "%3", "%4"), SQUARE("%5", "%4", "%4")), 0);
  HR_ASSERT_EQ(second_of(SQUARE("%5", "%3", "%3"), SQUARE("%5", "%4", "%4")), 1);
}

HR_TEST(attributes) {
#define CONV(stride) \
  "%4:f32[1,2,4,4]{32,16,4,1}+0 = conv(%3:f32[1,2,4,4]{32,16,4,1}+0, %1:f32[2,2,1,1]{2,1,1,1}+0, _) ints(2, " stride ")"
  HR_ASSERT_EQ(second_of(CONV("1, 1, 0, 0, 1, 1, 1"), CONV("1, 1, 0, 0, 1, 1, 1")), 1);
  HR_ASSERT_EQ(second_of(CONV("1, 1, 0, 0, 1, 1, 1"), CONV("1, 1, 0, 0, 2, 1, 1")), 0);
#undef CONV
}

/* ---- a chain of products with one weight, and with two in turn ---- */

enum { ROWS = 4, N = 64, STEPS = 12 };

static void multiply(const float *x, const float *w, float *y) {
  for (int i = 0; i < ROWS; ++i) {
    for (int j = 0; j < N; ++j) {
      float sum = 0;
      for (int k = 0; k < N; ++k) {
        sum += x[i * N + k] * w[k * N + j];
      }
      y[i * N + j] = sum;
    }
  }
}

static void record_product(hr_stream *stream, hr_buffer *x, hr_buffer *w, hr_buffer *y) {
  static const int64_t rows[2] = {ROWS, N}, square[2] = {N, N}, strides[2] = {N, 1};
  const hr_view inputs[3] = {{.buffer = x, .dtype = HR_DTYPE_F32, .rank = 2, .dims = rows, .strides = strides},
                             {.buffer = w, .dtype = HR_DTYPE_F32, .rank = 2, .dims = square, .strides = strides},
                             {0}};
  const hr_view output = {.buffer = y, .dtype = HR_DTYPE_F32, .rank = 2, .dims = rows, .strides = strides};
  HR_ASSERT_OK(hr_stream_record(stream, HR_OP_MATMUL, NULL, 3, inputs, 1, &output));
}

/* Permutations: products of whole numbers, exact in any order. */
static void permute(float *w, int step) {
  memset(w, 0, N * N * sizeof *w);
  for (int i = 0; i < N; ++i) {
    w[i * N + (i + step) % N] = (float)(1 + i % 2);
  }
}

static void run_chain(hr_device *device, hr_stream *stream, hr_buffer *const weights[2], const float *x, float *out_y) {
  hr_buffer *now;
  HR_ASSERT_OK(hr_buffer_create(device, ROWS * N * sizeof(float), &now));
  static const int64_t dims[2] = {ROWS, N}, strides[2] = {N, 1};
  hr_view view = {.buffer = now, .dtype = HR_DTYPE_F32, .rank = 2, .dims = dims, .strides = strides};
  HR_ASSERT_OK(hr_stream_write(stream, &view, x));
  for (int i = 0; i < STEPS; ++i) {
    hr_buffer *next;
    HR_ASSERT_OK(hr_buffer_create(device, ROWS * N * sizeof(float), &next));
    record_product(stream, now, weights[i / 3 % 2], next);
    hr_buffer_release(now);
    now = next;
  }
  view.buffer = now;
  HR_ASSERT_OK(hr_stream_read(stream, &view, out_y));
  hr_buffer_release(now);
}

HR_TEST(chains_of_products_that_share) {
  hr_device *device;
  hr_stream *stream;
  hr_buffer *weights[2];
  static float x[ROWS * N], w[2][N * N], y[ROWS * N], expected[2][ROWS * N];
  HR_ASSERT_OK(hr_device_open("cpu", &device));
  HR_ASSERT_OK(hr_stream_create(device, &stream));
  static const int64_t dims[2] = {N, N}, strides[2] = {N, 1};
  for (int k = 0; k < 2; ++k) {
    HR_ASSERT_OK(hr_buffer_create(device, sizeof w[k], &weights[k]));
  }
  for (int run = 0; run < 6; ++run) { /* repeats, and weights that change between runs */
    for (int k = 0; k < 2; ++k) {
      hr_view view = {.buffer = weights[k], .dtype = HR_DTYPE_F32, .rank = 2, .dims = dims, .strides = strides};
      permute(w[k], 3 + 5 * k + run / 2);
      HR_ASSERT_OK(hr_stream_write(stream, &view, w[k]));
    }
    for (int i = 0; i < ROWS * N; ++i) {
      x[i] = expected[0][i] = (float)(i % 7 - 3);
    }
    for (int i = 0; i < STEPS; ++i) {
      multiply(expected[i % 2], w[i / 3 % 2], expected[(i + 1) % 2]);
    }
    run_chain(device, stream, weights, x, y);
    HR_ASSERT_EQ(memcmp(y, expected[STEPS % 2], sizeof y), 0);
  }
  hr_buffer_release(weights[0]);
  hr_buffer_release(weights[1]);
  hr_stream_release(stream);
  hr_device_release(device);
}

/* y[t + 1] = y[t] * w, all of them in one buffer of the caller. */
HR_TEST(a_recurrence_in_one_buffer) {
  hr_device *device;
  hr_stream *stream;
  hr_buffer *all, *weight;
  static float w[N * N], y[(STEPS + 1) * ROWS * N], expected[(STEPS + 1) * ROWS * N];
  HR_ASSERT_OK(hr_device_open("cpu", &device));
  HR_ASSERT_OK(hr_stream_create(device, &stream));
  HR_ASSERT_OK(hr_buffer_create(device, sizeof y, &all));
  HR_ASSERT_OK(hr_buffer_create(device, sizeof w, &weight));
  static const int64_t rows[2] = {ROWS, N}, square[2] = {N, N}, strides[2] = {N, 1},
                       whole[1] = {(STEPS + 1) * ROWS * N};
  static const int64_t one[1] = {1};
  hr_view weights = {.buffer = weight, .dtype = HR_DTYPE_F32, .rank = 2, .dims = square, .strides = strides};
  hr_view every = {.buffer = all, .dtype = HR_DTYPE_F32, .rank = 1, .dims = whole, .strides = one};
  for (int run = 0; run < 4; ++run) {
    permute(w, 1 + run / 2);
    for (int i = 0; i < (STEPS + 1) * ROWS * N; ++i) {
      y[i] = expected[i] = i < ROWS * N ? (float)(i % 5 - 2 + run) : -1;
    }
    HR_ASSERT_OK(hr_stream_write(stream, &weights, w));
    HR_ASSERT_OK(hr_stream_write(stream, &every, y));
    for (int t = 0; t < STEPS; ++t) {
      hr_view x = {
          .buffer = all, .dtype = HR_DTYPE_F32, .rank = 2, .offset = t * ROWS * N, .dims = rows, .strides = strides};
      hr_view next = x;
      next.offset += ROWS * N;
      const hr_view inputs[3] = {x, weights, {0}};
      HR_ASSERT_OK(hr_stream_record(stream, HR_OP_MATMUL, NULL, 3, inputs, 1, &next));
      multiply(expected + t * ROWS * N, w, expected + (t + 1) * ROWS * N);
    }
    HR_ASSERT_OK(hr_stream_read(stream, &every, y));
    HR_ASSERT_EQ(memcmp(y, expected, sizeof y), 0);
  }
  hr_buffer_release(all);
  hr_buffer_release(weight);
  hr_stream_release(stream);
  hr_device_release(device);
}
