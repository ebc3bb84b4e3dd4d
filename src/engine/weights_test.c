/* weights_test.c: y = x * (w as f32), again and again: the conversion of w runs once, and again when w changes.
 *
 * The device is the CPU, with launches counted. Numbers are small whole ones, so that sums are exact in any order.
 */
#include "engine/weights.h"

#include <math.h>

#include "hr_test.h"

#include "cpu_stand_in.h"
#include "engine/instantiate.h"
#include "engine/stream.h"
#include "headrace/part.h"

enum { K = 300, N = 80, WIDE_BYTES = K * N * sizeof(float) };
static const int64_t row[2] = {1, K}, matrix[2] = {K, N}, result[2] = {1, N}, by_k[2] = {K, 1}, by_n[2] = {N, 1};

static hr_driver driver;
static const hr_driver *cpu;
static hr_device device;
static int launched;

static hr_status count_launches(void *impl, int count, const hr_host_launch *launches) {
  launched += count;
  return cpu->launch(impl, count, launches);
}

static hr_stream *open_stream(void) {
  hr_stream *stream;
  cpu = hr__cpu_driver();
  driver = *cpu;
  driver.launch = count_launches;
  hr__stand_in_open(&device, &driver, "counted");
  HR_ASSERT_OK(hr_stream_create(&device, &stream));
  hr_stream_set_mode(stream, HR_MODE_FUSE);
  HR_ASSERT_EQ(hr__cached_weights_bytes(), 0);
  return stream;
}

static void close_stream(hr_stream *stream) {
  hr_stream_release(stream);
  hr__stand_in_close(&device);
}

static void release_all(int count, hr_buffer *const *buffers) {
  for (int i = 0; i < count; ++i) {
    hr_buffer_release(buffers[i]);
  }
}

static hr_view view_of(hr_buffer *buffer, hr_dtype dtype, const int64_t *dims, const int64_t *strides) {
  return (hr_view){.buffer = buffer, .dtype = dtype, .rank = 2, .dims = dims, .strides = strides};
}

static hr_buffer *make(size_t bytes) {
  hr_buffer *buffer;
  HR_ASSERT_OK(hr_buffer_create(&device, bytes, &buffer));
  return buffer;
}

/* Into y as well: a result without contents would make another program. */
static void write_x(hr_stream *stream, hr_buffer *x, hr_buffer *y) {
  float values[K];
  for (int k = 0; k < K; ++k) {
    values[k] = (float)(k % 5 - 2);
  }
  hr_view view = view_of(x, HR_DTYPE_F32, row, by_k);
  HR_ASSERT_OK(hr_stream_write(stream, &view, values));
  view = view_of(y, HR_DTYPE_F32, result, by_n);
  HR_ASSERT_OK(hr_stream_write(stream, &view, values));
}

static float weight_at(int k, int n, int turn) {
  return (float)((k * 7 + n * 3 + turn * 5) % 9 - 4);
}

static void write_w(hr_stream *stream, hr_buffer *w, int turn) {
  static int16_t values[K * N];
  for (int i = 0; i < K * N; ++i) {
    values[i] = (int16_t)weight_at(i / N, i % N, turn);
  }
  hr_view view = view_of(w, HR_DTYPE_I16, matrix, by_n);
  HR_ASSERT_OK(hr_stream_write(stream, &view, values));
  HR_ASSERT_OK(hr_stream_synchronize(stream)); /* a program of its own */
}

/* y = x * (w as f32), with rounds of y = 2 y after it to make other programs. */
static void record(hr_stream *stream, hr_buffer *x, hr_buffer *w, hr_buffer *y, int rounds) {
  hr_buffer *wide = make(WIDE_BYTES);
  hr_view from = view_of(w, HR_DTYPE_I16, matrix, by_n), to = view_of(wide, HR_DTYPE_F32, matrix, by_n);
  hr_view out = view_of(y, HR_DTYPE_F32, result, by_n), factors[3] = {view_of(x, HR_DTYPE_F32, row, by_k), to, {0}};
  HR_ASSERT_OK(hr_stream_record(stream, HR_OP_COPY, NULL, 1, &from, 1, &to));
  HR_ASSERT_OK(hr_stream_record(stream, HR_OP_MATMUL, NULL, 3, factors, 1, &out));
  for (int i = 0; i < rounds; ++i) {
    HR_ASSERT_OK(hr_stream_record(stream, HR_OP_ADD, NULL, 2, (hr_view[]){out, out}, 1, &out));
  }
  hr_buffer_release(wide);
}

static void check(hr_stream *stream, hr_buffer *y, int turn, float times) {
  float values[N];
  hr_view view = view_of(y, HR_DTYPE_F32, result, by_n);
  HR_ASSERT_OK(hr_stream_read(stream, &view, values));
  for (int n = 0; n < N; ++n) {
    float expected = 0;
    for (int k = 0; k < K; ++k) {
      expected += (float)(k % 5 - 2) * weight_at(k, n, turn);
    }
    HR_ASSERT_EQ(values[n], expected * times);
  }
}

/* Launches of one run. */
static int run(hr_stream *stream, hr_buffer *x, hr_buffer *w, hr_buffer *y, int turn, int rounds) {
  int before = launched;
  record(stream, x, w, y, rounds);
  HR_ASSERT_OK(hr_stream_commit(stream)); /* not begun early while `wide` lives */
  HR_ASSERT_OK(hr_stream_synchronize(stream));
  int count = launched - before;
  check(stream, y, turn, (float)(1 << rounds));
  return count;
}

HR_TEST(weights_are_made_once_and_again_when_they_change) {
  hr_stream *stream = open_stream();
  hr_buffer *x = make(K * sizeof(float)), *w = make(K * N * 2), *y = make(N * sizeof(float));
  write_x(stream, x, y);
  for (int turn = 0; turn < 3; ++turn) {
    write_w(stream, w, turn);
    HR_ASSERT_EQ(run(stream, x, w, y, turn, 0), 1);
    HR_ASSERT_EQ(hr__cached_weights_bytes(), 0);    /* those of the turn before are gone */
    HR_ASSERT_EQ(run(stream, x, w, y, turn, 0), 1); /* fills the cache */
    HR_ASSERT_EQ(hr__cached_weights_bytes(), WIDE_BYTES);
    for (int i = 0; i < 3; ++i) {
      HR_ASSERT_EQ(run(stream, x, w, y, turn, 0), 0);
    }
    HR_ASSERT_EQ(hr__cached_weights_bytes(), WIDE_BYTES);
  }
  hr_buffer_release(w);
  HR_ASSERT_EQ(hr__cached_weights_bytes(), 0);
  release_all(2, (hr_buffer *[]){x, y});
  close_stream(stream);
}

HR_TEST(programs_share_values_computed_from_a_weight) {
  hr_stream *stream = open_stream();
  hr_buffer *x = make(K * sizeof(float)), *w = make(K * N * 2), *y = make(N * sizeof(float));
  write_x(stream, x, y);
  write_w(stream, w, 4);
  int alone = run(stream, x, w, y, 4, 1);
  run(stream, x, w, y, 4, 0);
  run(stream, x, w, y, 4, 0);
  HR_ASSERT_EQ(hr__cached_weights_bytes(), WIDE_BYTES);
  HR_ASSERT_EQ(run(stream, x, w, y, 4, 1), alone - 1);
  HR_ASSERT_EQ(run(stream, x, w, y, 4, 2), alone - 1);
  hr__cached_weights_forget_all();
  HR_ASSERT_EQ(run(stream, x, w, y, 4, 1), alone);
  hr_buffer_release(w);
  HR_ASSERT_EQ(hr__cached_weights_bytes(), 0);
  release_all(2, (hr_buffer *[]){x, y});
  close_stream(stream);
}

/* An update by the program's own operations, as an optimizer's, is seen like the host's. */
HR_TEST(weights_that_operations_write_are_made_anew) {
  hr_stream *stream = open_stream();
  hr_buffer *x = make(K * sizeof(float)), *w = make(K * N * 2), *other = make(K * N * 2), *y = make(N * sizeof(float));
  write_x(stream, x, y);
  write_w(stream, w, 0);
  hr_view to = view_of(w, HR_DTYPE_I16, matrix, by_n), from = view_of(other, HR_DTYPE_I16, matrix, by_n);
  for (int turn = 1; turn < 4; ++turn) {
    for (int i = 0; i < 3; ++i) {
      run(stream, x, w, y, turn - 1, 0);
    }
    HR_ASSERT_EQ(hr__cached_weights_bytes(), WIDE_BYTES);
    write_w(stream, other, turn);
    HR_ASSERT_OK(hr_stream_record(stream, HR_OP_COPY, NULL, 1, &from, 1, &to));
    record(stream, x, w, y, 0); /* in one program with the write */
    check(stream, y, turn, 1);
    HR_ASSERT_EQ(hr__cached_weights_bytes(), 0);
  }
  release_all(4, (hr_buffer *[]){w, other, x, y});
  close_stream(stream);
}

/* ---- factors ---- */

enum { ROWS = 600 };

/* y = x * f, f = (v + eps) * g for each column, as a batch norm's. */
static int run_factors(hr_stream *stream, hr_buffer *const *b, double eps, float expected) {
  static const int64_t tall[2] = {ROWS, N}, spread[2] = {0, 1};
  static float values[ROWS * N];
  int before = launched;
  hr_buffer *factors = make(N * sizeof(float));
  hr_scalar number = hr_scalar_f64(eps);
  hr_view x = view_of(b[0], HR_DTYPE_F32, tall, by_n), y = view_of(b[3], HR_DTYPE_F32, tall, by_n);
  hr_view v = view_of(b[1], HR_DTYPE_F32, result, by_n), g = view_of(b[2], HR_DTYPE_F32, result, by_n);
  hr_view f = view_of(factors, HR_DTYPE_F32, result, by_n), all = view_of(factors, HR_DTYPE_F32, tall, spread);
  hr_view scalar = {.scalar = &number, .dtype = number.dtype};
  HR_ASSERT_OK(hr_stream_record(stream, HR_OP_ADD, NULL, 2, (hr_view[]){v, scalar}, 1, &f));
  HR_ASSERT_OK(hr_stream_record(stream, HR_OP_EXP, NULL, 1, &f, 1, &f));
  HR_ASSERT_OK(hr_stream_record(stream, HR_OP_MUL, NULL, 2, (hr_view[]){f, g}, 1, &f));
  HR_ASSERT_OK(hr_stream_record(stream, HR_OP_MUL, NULL, 2, (hr_view[]){x, all}, 1, &y));
  hr_buffer_release(factors);
  HR_ASSERT_OK(hr_stream_commit(stream));
  HR_ASSERT_OK(hr_stream_read(stream, &y, values));
  HR_ASSERT(values[0] == expected && values[ROWS * N - 1] == expected);
  return launched - before;
}

static void fill(hr_stream *stream, hr_buffer *buffer, int rows, float value) {
  static float values[ROWS * N];
  const int64_t dims[2] = {rows, N};
  for (int i = 0; i < rows * N; ++i) {
    values[i] = value;
  }
  hr_view view = view_of(buffer, HR_DTYPE_F32, dims, by_n);
  HR_ASSERT_OK(hr_stream_write(stream, &view, values));
  HR_ASSERT_OK(hr_stream_synchronize(stream));
}

HR_TEST(factors_of_small_buffers_are_made_again_when_one_of_them_or_a_scalar_changes) {
  hr_stream *stream = open_stream();
  hr_buffer *b[4] = {make(ROWS * N * sizeof(float)), make(N * sizeof(float)), make(N * sizeof(float)),
                     make(ROWS * N * sizeof(float))};
  fill(stream, b[0], ROWS, 3), fill(stream, b[1], 1, 0), fill(stream, b[2], 1, 1), fill(stream, b[3], ROWS, 0);
  HR_ASSERT_EQ(run_factors(stream, b, 0, 3), 2);
  for (int turn = 1; turn < 4; ++turn) {
    fill(stream, b[2], 1, (float)turn);
    HR_ASSERT_EQ(run_factors(stream, b, 0, 3 * (float)turn), 2);
    HR_ASSERT_EQ(run_factors(stream, b, 0, 3 * (float)turn), 2); /* fills the cache */
    HR_ASSERT_EQ(run_factors(stream, b, 0, 3 * (float)turn), 1);
    fill(stream, b[0], ROWS, 1); /* buffers that aren't small may change */
    HR_ASSERT_EQ(run_factors(stream, b, 0, (float)turn), 1);
    HR_ASSERT_EQ(run_factors(stream, b, -INFINITY, 0), 2);
    HR_ASSERT_EQ(run_factors(stream, b, 0, (float)turn), 1);
    fill(stream, b[1], 1, -INFINITY);
    HR_ASSERT_EQ(run_factors(stream, b, 0, 0), 2);
    fill(stream, b[1], 1, 0), fill(stream, b[0], ROWS, 3);
    HR_ASSERT(hr__cached_weights_bytes() <= N * (int64_t)sizeof(float) + 64);
  }
  release_all(4, b);
  HR_ASSERT_EQ(hr__cached_weights_bytes(), 0);
  close_stream(stream);
}

/* ---- weights with a factor of each column ---- */

/* y = x * ((w as f32) * f), f = exp(v + eps) * g, as a batch norm in the weights in front of it; f is read by others,
 * too: z = f * f. */
static int run_scaled(hr_stream *stream, hr_buffer *const *b, double eps, int turn, float factor) {
  static const int64_t spread[2] = {0, 1};
  int before = launched;
  float values[N], squares[N];
  hr_buffer *factors = make(N * sizeof(float)), *wide = make(WIDE_BYTES), *scaled = make(WIDE_BYTES);
  hr_scalar number = hr_scalar_f64(eps);
  hr_view x = view_of(b[0], HR_DTYPE_F32, row, by_k), w = view_of(b[1], HR_DTYPE_I16, matrix, by_n);
  hr_view v = view_of(b[2], HR_DTYPE_F32, result, by_n), g = view_of(b[3], HR_DTYPE_F32, result, by_n);
  hr_view y = view_of(b[4], HR_DTYPE_F32, result, by_n), z = view_of(b[5], HR_DTYPE_F32, result, by_n);
  hr_view f = view_of(factors, HR_DTYPE_F32, result, by_n), all = view_of(factors, HR_DTYPE_F32, matrix, spread);
  hr_view to = view_of(wide, HR_DTYPE_F32, matrix, by_n), product = view_of(scaled, HR_DTYPE_F32, matrix, by_n);
  hr_view scalar = {.scalar = &number, .dtype = number.dtype};
  HR_ASSERT_OK(hr_stream_record(stream, HR_OP_ADD, NULL, 2, (hr_view[]){v, scalar}, 1, &f));
  HR_ASSERT_OK(hr_stream_record(stream, HR_OP_EXP, NULL, 1, &f, 1, &f));
  HR_ASSERT_OK(hr_stream_record(stream, HR_OP_MUL, NULL, 2, (hr_view[]){f, g}, 1, &f));
  HR_ASSERT_OK(hr_stream_record(stream, HR_OP_COPY, NULL, 1, &w, 1, &to));
  HR_ASSERT_OK(hr_stream_record(stream, HR_OP_MUL, NULL, 2, (hr_view[]){to, all}, 1, &product));
  HR_ASSERT_OK(hr_stream_record(stream, HR_OP_MATMUL, NULL, 3, (hr_view[]){x, product, {0}}, 1, &y));
  HR_ASSERT_OK(hr_stream_record(stream, HR_OP_MUL, NULL, 2, (hr_view[]){f, y}, 1, &z));
  release_all(3, (hr_buffer *[]){factors, wide, scaled});
  HR_ASSERT_OK(hr_stream_commit(stream));
  HR_ASSERT_OK(hr_stream_synchronize(stream));
  int count = launched - before;
  check(stream, b[4], turn, factor);
  HR_ASSERT_OK(hr_stream_read(stream, &y, values));
  HR_ASSERT_OK(hr_stream_read(stream, &z, squares));
  for (int n = 0; n < N; ++n) {
    HR_ASSERT_EQ(squares[n], factor * values[n]);
  }
  return count;
}

HR_TEST(weights_with_a_factor_are_made_again_when_either_or_a_scalar_changes) {
  hr_stream *stream = open_stream();
  hr_buffer *b[6] = {make(K * sizeof(float)), make(K * N * 2),         make(N * sizeof(float)),
                     make(N * sizeof(float)), make(N * sizeof(float)), make(N * sizeof(float))};
  write_x(stream, b[0], b[4]);
  write_x(stream, b[0], b[5]);
  fill(stream, b[2], 1, 0), fill(stream, b[3], 1, 1);
  write_w(stream, b[1], 0);
  int first = run_scaled(stream, b, 0, 0, 1), least = 0;
  for (int turn = 1; turn < 4; ++turn) {
    write_w(stream, b[1], turn);
    (void)run_scaled(stream, b, 0, turn, 1);
    (void)run_scaled(stream, b, 0, turn, 1); /* fills the cache */
    least = run_scaled(stream, b, 0, turn, 1);
    HR_ASSERT(least < first);
    fill(stream, b[3], 1, 2); /* the factor's own */
    HR_ASSERT(run_scaled(stream, b, 0, turn, 2) > least);
    HR_ASSERT(run_scaled(stream, b, 0, turn, 2) > least);
    HR_ASSERT_EQ(run_scaled(stream, b, 0, turn, 2), least);
    HR_ASSERT(run_scaled(stream, b, -INFINITY, turn, 0) > least); /* its scalar */
    HR_ASSERT_EQ(run_scaled(stream, b, 0, turn, 2), least);
    fill(stream, b[3], 1, 1);
    (void)run_scaled(stream, b, 0, turn, 1);
  }
  release_all(6, b);
  HR_ASSERT_EQ(hr__cached_weights_bytes(), 0);
  close_stream(stream);
}

/* ---- values computed from cached weights ---- */

enum { LENGTH = 60, CHAIN_SIDE = 8 };

/* y = m m m ... v, each product by a kernel of its own: launches. */
static int run_chain(hr_stream *stream, hr_buffer *m, hr_buffer *v, hr_buffer *y, float expected) {
  static const int64_t square[2] = {CHAIN_SIDE, CHAIN_SIDE}, down[2] = {CHAIN_SIDE, 1}, across[2] = {0, 1},
                       column[2] = {CHAIN_SIDE, 1}, ones[2] = {1, 1}, mask = 2;
  const hr_attrs along = {.ints = &mask, .int_count = 1};
  hr_view all = view_of(m, HR_DTYPE_F32, square, down), x = view_of(v, HR_DTYPE_F32, square, across);
  hr_buffer *made[2 * LENGTH];
  float values[CHAIN_SIDE];
  int before = launched, count = 0;
  for (int i = 0; i < LENGTH; ++i) {
    hr_buffer *products = made[count++] = make(CHAIN_SIDE * CHAIN_SIDE * sizeof(float)), *sums = y;
    if (i < LENGTH - 1) {
      sums = made[count++] = make(CHAIN_SIDE * sizeof(float));
    }
    hr_view to = view_of(products, HR_DTYPE_F32, square, down), out = view_of(sums, HR_DTYPE_F32, column, ones);
    HR_ASSERT_OK(hr_stream_record(stream, HR_OP_MUL, NULL, 2, (hr_view[]){all, x}, 1, &to));
    HR_ASSERT_OK(hr_stream_record(stream, HR_OP_SUM, &along, 1, &to, 1, &out));
    x = view_of(sums, HR_DTYPE_F32, square, across);
  }
  release_all(count, made);
  HR_ASSERT_OK(hr_stream_commit(stream));
  HR_ASSERT_OK(hr_stream_synchronize(stream));
  count = launched - before;
  hr_view out = view_of(y, HR_DTYPE_F32, column, ones);
  HR_ASSERT_OK(hr_stream_read(stream, &out, values));
  HR_ASSERT(values[0] == expected && values[CHAIN_SIDE - 1] == expected);
  return count;
}

/* A chain of any length is cached at once, and made again when its first input changes. */
HR_TEST(a_chain_of_small_results_is_kept_as_a_whole) {
  static const int64_t square[2] = {CHAIN_SIDE, CHAIN_SIDE}, down[2] = {CHAIN_SIDE, 1}, column[2] = {CHAIN_SIDE, 1},
                       ones[2] = {1, 1};
  hr_stream *stream = open_stream();
  hr_buffer *b[3] = {make(CHAIN_SIDE * CHAIN_SIDE * sizeof(float)), make(CHAIN_SIDE * sizeof(float)),
                     make(CHAIN_SIDE * sizeof(float))};
  float values[CHAIN_SIDE * CHAIN_SIDE];
  for (int i = 0; i < CHAIN_SIDE * CHAIN_SIDE; ++i) {
    values[i] = 1.0F / CHAIN_SIDE;
  }
  hr_view m = view_of(b[0], HR_DTYPE_F32, square, down);
  HR_ASSERT_OK(hr_stream_write(stream, &m, values));
  hr_view y = view_of(b[2], HR_DTYPE_F32, column, ones);
  HR_ASSERT_OK(hr_stream_write(stream, &y, values)); /* a result without contents would make another program */
  for (int turn = 1; turn < 4; ++turn) {
    for (int i = 0; i < CHAIN_SIDE; ++i) {
      values[i] = (float)turn;
    }
    hr_view v = view_of(b[1], HR_DTYPE_F32, column, ones);
    HR_ASSERT_OK(hr_stream_write(stream, &v, values));
    HR_ASSERT_OK(hr_stream_synchronize(stream));
    HR_ASSERT_EQ(run_chain(stream, b[0], b[1], b[2], (float)turn), LENGTH);
    HR_ASSERT_EQ(run_chain(stream, b[0], b[1], b[2], (float)turn), LENGTH); /* fills the cache */
    HR_ASSERT_EQ(run_chain(stream, b[0], b[1], b[2], (float)turn), 1);
  }
  release_all(3, b);
  HR_ASSERT_EQ(hr__cached_weights_bytes(), 0);
  close_stream(stream);
}

/* Results that aren't weights, because they are small, or factors that change from call to call, are made in each
 * run. */
HR_TEST(activations_are_not_kept) {
  enum { COUNT = 128 };
  hr_stream *stream = open_stream();
  const int64_t tall[2] = {COUNT, K}, column[2] = {K, 1}, sums[2] = {COUNT, 1}, ones[2] = {1, 1};
  hr_buffer *x = make(COUNT * K * 2), *w = make(K * sizeof(float)), *y = make(COUNT * sizeof(float));
  static int16_t halves[COUNT * K];
  static float floats[K];
  for (int i = 0; i < COUNT * K; ++i) {
    halves[i] = 1;
  }
  for (int i = 0; i < K; ++i) {
    floats[i] = 1;
  }
  hr_view narrow = view_of(x, HR_DTYPE_I16, tall, by_k), weight = view_of(w, HR_DTYPE_F32, column, ones);
  HR_ASSERT_OK(hr_stream_write(stream, &narrow, halves));
  HR_ASSERT_OK(hr_stream_write(stream, &weight, floats));
  for (int i = 0; i < 4; ++i) {
    float values[COUNT];
    hr_buffer *wide = make(COUNT * K * sizeof(float));
    hr_view to = view_of(wide, HR_DTYPE_F32, tall, by_k), out = view_of(y, HR_DTYPE_F32, sums, ones);
    HR_ASSERT_OK(hr_stream_record(stream, HR_OP_COPY, NULL, 1, &narrow, 1, &to));
    HR_ASSERT_OK(hr_stream_record(stream, HR_OP_MATMUL, NULL, 3, (hr_view[]){to, weight, {0}}, 1, &out));
    hr_buffer_release(wide);
    HR_ASSERT_OK(hr_stream_read(stream, &out, values));
    HR_ASSERT(values[0] == K && values[COUNT - 1] == K);
    HR_ASSERT_EQ(hr__cached_weights_bytes(), 0);
  }
  release_all(3, (hr_buffer *[]){w, x, y});
  close_stream(stream);
}

/* Buffers that have no contents before a run, such as temporaries of parts, are no sources. */
HR_TEST(only_buffers_with_contents_are_sources) {
  hr_stream *stream = open_stream(), *capture;
  for (int has_contents = 0; has_contents < 2; ++has_contents) {
    hr_buffer *x = make(K * sizeof(float)), *w = make(K * N * sizeof(int16_t)), *y = make(N * sizeof(float));
    hr_instance *instance;
    hr_key key;
    write_x(stream, x, y);
    if (has_contents) {
      write_w(stream, w, 0);
    }
    HR_ASSERT_OK(hr_stream_synchronize(stream));
    HR_ASSERT_OK(hr_capture_create(&device, &capture));
    record(capture, x, w, y, 0);
    HR_ASSERT_OK(hr__trace_key(&capture->pending, false, &key));
    HR_ASSERT_OK(hr__instance_create(&key, &device, NULL, &instance));
    HR_ASSERT_EQ(instance->weights.count, has_contents);
    hr__instance_release(instance);
    hr_stream_release(capture);
    release_all(3, (hr_buffer *[]){w, x, y});
  }
  close_stream(stream);
}
