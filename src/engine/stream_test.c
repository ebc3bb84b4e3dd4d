/* Streams from outside: results on the cpu, counts of the stream's work on the null device. */
#include "hr_test.h"

#include "base/arena.h"
#include "base/float_mode.h"
#include "base/thread.h"
#include "engine/compile_queue.h"
#include "engine/stream.h"
#include "headrace/mark.h"

enum { ROWS = 6, COLUMNS = 32, COUNT = ROWS * COLUMNS };
static const int64_t dims[2] = {ROWS, COLUMNS}, strides[2] = {COLUMNS, 1};

typedef struct fixture {
  hr_device *device;
  hr_stream *stream;
} fixture;

static fixture open_fixture(const char *name) {
  fixture f;
  HR_ASSERT_OK(hr_device_open(name, &f.device));
  HR_ASSERT_OK(hr_stream_create(f.device, &f.stream));
  hr_stream_set_mode(f.stream, HR_MODE_FUSE);
  return f;
}

static void close_fixture(fixture *f) {
  hr_stream_release(f->stream);
  hr_memory_stats stats;
  hr_device_memory_limit(f->device, 0);
  hr_device_memory_stats(f->device, &stats);
  hr_device_release(f->device);
}

static hr_view view_of(hr_buffer *buffer) {
  return (hr_view){.buffer = buffer, .dtype = HR_DTYPE_F32, .rank = 2, .dims = dims, .strides = strides};
}

static hr_view number(const hr_scalar *scalar) {
  return (hr_view){.scalar = scalar, .dtype = scalar->dtype};
}

static hr_buffer *make(const fixture *f) {
  hr_buffer *buffer;
  HR_ASSERT_OK(hr_buffer_create(f->device, COUNT * sizeof(float), &buffer));
  return buffer;
}

/* A buffer whose element i is first + i * step. */
static hr_buffer *make_ramp(const fixture *f, float first, float step) {
  float values[COUNT];
  hr_buffer *buffer = make(f);
  hr_view view = view_of(buffer);
  for (int i = 0; i < COUNT; ++i) {
    values[i] = first + (float)i * step;
  }
  HR_ASSERT_OK(hr_stream_write(f->stream, &view, values));
  return buffer;
}

static hr_status binary(const fixture *f, hr_op op, hr_buffer *a, hr_buffer *b, hr_buffer *out) {
  hr_view inputs[2] = {view_of(a), view_of(b)}, output = view_of(out);
  return hr_stream_record(f->stream, op, NULL, 2, inputs, 1, &output);
}

static hr_status with_number(const fixture *f, hr_op op, hr_buffer *a, double value, hr_buffer *out) {
  hr_scalar scalar = hr_scalar_f64(value);
  hr_view inputs[2] = {view_of(a), number(&scalar)}, output = view_of(out);
  return hr_stream_record(f->stream, op, NULL, 2, inputs, 1, &output);
}

static float read_at(const fixture *f, hr_buffer *buffer, int i) {
  float values[COUNT];
  hr_view view = view_of(buffer);
  HR_ASSERT_OK(hr_stream_read(f->stream, &view, values));
  return values[i];
}

static hr_stats stats_of(const fixture *f) {
  hr_stats stats;
  hr_stream_stats(f->stream, &stats);
  return stats;
}

/* ---- results ---- */

HR_TEST(temporaries_die_and_scalars_are_arguments) {
  fixture f = open_fixture("cpu");
  hr_buffer *x = make_ramp(&f, 1, 1);
  for (int round = 0; round < 3; ++round) {
    hr_buffer *t = make(&f), *y = make(&f);
    HR_ASSERT_OK(with_number(&f, HR_OP_MUL, x, 2.0 + round, t));
    HR_ASSERT_OK(binary(&f, HR_OP_ADD, t, x, y));
    hr_buffer_release(t);
    HR_ASSERT_NEAR(read_at(&f, y, 9), 10 * (2.0 + round) + 10, 0);
    hr_buffer_release(y);
  }
  hr_stats stats = stats_of(&f);
  HR_ASSERT_EQ(stats.compiles, 1);
  HR_ASSERT_EQ(stats.cache_hits, 2);
  HR_ASSERT_EQ(stats.commits_by_read, 3);
  HR_ASSERT_EQ(stats.kernels, 3);
  HR_ASSERT_EQ(stats.temporaries_elided, 3);
  HR_ASSERT_EQ(stats.operations, 6);
  hr_buffer_release(x);
  close_fixture(&f);
}

/* Kernels run on threads that the program, or its libraries, may have told to flush subnormal numbers. */
HR_TEST(kernels_round_alike_on_all_threads) {
#if defined(__x86_64__)
  fixture f = open_fixture("cpu");
  const hr_float_mode before = hr_float_mode_get(), flushing = before | 0xe040; /* towards zero, too */
  hr_float_mode_set(flushing);
  hr_buffer *x = make_ramp(&f, 0, 1), *small = make(&f), *third = make(&f);
  HR_ASSERT_OK(with_number(&f, HR_OP_MUL, x, 1e-40, small));
  HR_ASSERT_OK(with_number(&f, HR_OP_DIV, x, 3, third));
  float a = read_at(&f, small, 2), b = read_at(&f, third, 2);
  const hr_float_mode after = hr_float_mode_get();
  hr_float_mode_set(before);
  HR_ASSERT(a == 2 * 1e-40F && a > 0);
  HR_ASSERT(b == 2.0F / 3);
  HR_ASSERT_EQ(after & 0xe040, flushing & 0xe040);
  hr_buffer_release(x);
  hr_buffer_release(small);
  hr_buffer_release(third);
  close_fixture(&f);
#endif
}

static hr_status record_new(const fixture *f, hr_op op, const hr_view *a, const hr_view *b, hr_buffer **out) {
  hr_view inputs[2] = {*a, *b};
  *out = make(f);
  hr_view output = view_of(*out);
  return hr_stream_record_new(f->stream, op, NULL, 2, inputs, &output);
}

/* Another thread may ask for a handle that a buffer has again. */
HR_TEST(new_outputs_keep_the_references_of_their_handles) {
  fixture f = open_fixture("cpu");
  hr_buffer *x = make_ramp(&f, 1, 1), *y = make(&f);
  size_t offset = 1;
  HR_ASSERT(hr_buffer_from_handle(hr_buffer_handle(y), &offset) == y);
  hr_view x_view = view_of(x), y_view = view_of(y);
  HR_ASSERT_OK(hr_stream_record_new(f.stream, HR_OP_NEG, NULL, 1, &x_view, &y_view));
  HR_ASSERT_EQ(hr__buffer_holders(y), 3);
  hr_buffer_release(y);
  HR_ASSERT_NEAR(read_at(&f, y, 9), -10, 0);
  HR_ASSERT_EQ(hr__buffer_holders(y), 1);
  hr_buffer_release(y);
  hr_buffer_release(x);
  close_fixture(&f);
}

/* x and y are ramps of one shape, and y begins behind its buffer's first row. */
HR_TEST(operations_on_tensors_alike_are_one_call) {
  fixture f = open_fixture("cpu");
  const hr_scalar two = hr_scalar_i64(2), zero = hr_scalar_f64(0);
  const int64_t two_rows[2] = {2, COLUMNS};
  hr_buffer *x = make_ramp(&f, 1, 1), *y = make_ramp(&f, 0, 10);
  hr_view inputs[2] = {view_of(x), view_of(y)}, sum, product, is_more;
  inputs[0].dims = inputs[1].dims = two_rows, inputs[1].offset = COLUMNS;
  HR_ASSERT_OK(hr_stream_record_alike(f.stream, HR_OP_ADD, 2, inputs, &sum));
  HR_ASSERT(sum.buffer != NULL && sum.dtype == HR_DTYPE_F32 && sum.rank == 2 && sum.dims == two_rows);
  HR_ASSERT_EQ(hr_buffer_bytes(sum.buffer), 2 * COLUMNS * sizeof(float));
  HR_ASSERT_EQ(hr__buffer_holders(sum.buffer), 2);
  HR_ASSERT_OK(hr_stream_record_alike(f.stream, HR_OP_MUL, 2, (hr_view[]){sum, number(&two)}, &product));
  HR_ASSERT_OK(hr_stream_record_alike(f.stream, HR_OP_GT, 2, (hr_view[]){number(&zero), product}, &is_more));
  hr_buffer_release(sum.buffer); /* dead: it gets no memory */
  float values[2 * COLUMNS];
  bool truth[2 * COLUMNS];
  HR_ASSERT_OK(hr_stream_read(f.stream, &product, values));
  HR_ASSERT_NEAR(values[3], 2 * (4 + 10 * (COLUMNS + 3)), 0);
  HR_ASSERT_EQ(stats_of(&f).temporaries_elided, 1);
  HR_ASSERT_EQ(is_more.dtype, HR_DTYPE_BOOL);
  HR_ASSERT_OK(hr_stream_read(f.stream, &is_more, truth));
  HR_ASSERT(!truth[3]);
  hr_buffer_release(is_more.buffer);
  hr_buffer_release(product.buffer);
  hr_buffer_release(x);
  hr_buffer_release(y);
  close_fixture(&f);
}

static void expect_other(const fixture *f, hr_op op, int count, const hr_view *inputs) {
  hr_view out = inputs[0];
  HR_ASSERT_OK(hr_stream_record_alike(f->stream, op, count, inputs, &out));
  HR_ASSERT(out.buffer == NULL);
}

HR_TEST(operations_on_other_tensors_are_left_to_the_general_call) {
  fixture f = open_fixture("cpu");
  const hr_scalar complex = {HR_DTYPE_C128, {.f = {1, 1}}}, whole = hr_scalar_i64(2), single = {HR_DTYPE_F32, {0}};
  const int64_t none[2] = {0, COLUMNS}, one_row[2] = {1, COLUMNS}, turned[2] = {1, ROWS},
                wide[2] = {INT64_C(1) << 40, 1};
  hr_buffer *buffer = make_ramp(&f, 1, 1);
  hr_view x = view_of(buffer), other = x;
  expect_other(&f, HR_OP_ADD, 1, &x);
  expect_other(&f, HR_OP_COUNT, 2, (hr_view[]){x, x});
  expect_other(&f, HR_OP_SUM, 1, &x);
  expect_other(&f, HR_OP_MUL, 2, (hr_view[]){x, number(&complex)});
  expect_other(&f, HR_OP_MUL, 2, (hr_view[]){x, number(&single)});
  expect_other(&f, HR_OP_MUL, 2, (hr_view[]){number(&whole), number(&whole)});
  expect_other(&f, HR_OP_MUL, 2, (hr_view[]){x, {0}});
  expect_other(&f, HR_OP_WHERE, 3, (hr_view[]){x, x, x});
  expect_other(&f, HR_OP_BIT_AND, 2, (hr_view[]){x, x});
  const int64_t *const dims_of[4] = {none, one_row, wide, dims};
  for (int i = 0; i < 4; ++i) {
    other = x, other.dims = dims_of[i], other.offset = i == 3 ? COLUMNS : 0; /* the last one is too long */
    expect_other(&f, HR_OP_ADD, 2, (hr_view[]){x, other});
    expect_other(&f, HR_OP_ADD, 2, (hr_view[]){other, x});
  }
  other = x, other.strides = turned;
  expect_other(&f, HR_OP_ADD, 2, (hr_view[]){x, other});
  expect_other(&f, HR_OP_NEG, 1, &other);
  other = x, other.dtype = HR_DTYPE_I32;
  expect_other(&f, HR_OP_ADD, 2, (hr_view[]){x, other});
  expect_other(&f, HR_OP_ADD, 2, (hr_view[]){other, number(&whole)});
  other.dtype = (hr_dtype)1000;
  expect_other(&f, HR_OP_NEG, 1, &other);
  other = x, other.offset = -COLUMNS;
  expect_other(&f, HR_OP_NEG, 1, &other);
  expect_other(&f, HR_OP_ADD, 2, (hr_view[]){x, other});
  HR_ASSERT_EQ(stats_of(&f).operations, 0);
  hr_buffer_release(buffer);
  close_fixture(&f);
}

HR_TEST(new_outputs_are_recorded_like_others) {
  fixture f = open_fixture("cpu");
  hr_buffer *x = make_ramp(&f, 1, 1), *t, *y, *z;
  hr_scalar three = hr_scalar_f64(3);
  hr_view x_view = view_of(x), scalar = number(&three);
  HR_ASSERT_OK(record_new(&f, HR_OP_MUL, &x_view, &scalar, &t));
  HR_ASSERT_EQ(hr__buffer_holders(t), 2);
  hr_view t_view = view_of(t);
  HR_ASSERT_OK(record_new(&f, HR_OP_ADD, &t_view, &x_view, &y));
  hr_buffer_release(t); /* dead: it gets no memory */
  HR_ASSERT_NEAR(read_at(&f, y, 9), 40, 0);
  HR_ASSERT_EQ(hr__buffer_holders(y), 1);
  HR_ASSERT_EQ(stats_of(&f).temporaries_elided, 1);
  hr_view y_view = view_of(y);
  hr_stream_set_mode(f.stream, HR_MODE_STRICT);
  HR_ASSERT_OK(record_new(&f, HR_OP_SUB, &y_view, &x_view, &z));
  HR_ASSERT_NEAR(read_at(&f, z, 9), 30, 0);
  hr_buffer_release(z);
  hr_buffer_release(y);
  hr_buffer_release(x);
  close_fixture(&f);
}

HR_TEST(inputs_beside_a_new_output_are_checked) {
  fixture f = open_fixture("cpu"), other = open_fixture("null");
  hr_buffer *x = make_ramp(&f, 1, 1), *away = make(&other), *y;
  hr_scalar bad = {.dtype = HR_DTYPE_F32};
  hr_view x_view = view_of(x), far = view_of(x), foreign = view_of(away), none = {0}, scalar = number(&bad);
  far.offset = 1;
  HR_ASSERT_ERROR(record_new(&f, HR_OP_ADD, &x_view, &far, &y), HR_STATUS_INVALID_ARGUMENT,
                  "add: input 1 of dims [6,32] reaches elements 1 to 192 of a buffer of 768 bytes");
  hr_buffer_release(y);
  HR_ASSERT_ERROR(record_new(&f, HR_OP_ADD, &x_view, &none, &y), HR_STATUS_INVALID_ARGUMENT, "add: input 1 is absent");
  hr_buffer_release(y);
  HR_ASSERT_ERROR(record_new(&f, HR_OP_ADD, &scalar, &x_view, &y), HR_STATUS_INVALID_ARGUMENT,
                  "add: input 0 is a number of a dtype other than");
  hr_buffer_release(y);
  HR_ASSERT_ERROR(record_new(&f, HR_OP_ADD, &foreign, &x_view, &y), HR_STATUS_INVALID_ARGUMENT,
                  "add: a buffer of device \"null\" on a stream of device \"cpu\"");
  hr_buffer_release(y);
  HR_ASSERT_ERROR(record_new(&f, HR_OP_MATMUL, &x_view, &x_view, &y), HR_STATUS_INVALID_ARGUMENT, "matmul: ");
  hr_buffer_release(y);
  HR_ASSERT_EQ(stats_of(&f).operations, 0);
  hr_buffer_release(x);
  hr_buffer_release(away);
  close_fixture(&f);
  close_fixture(&other);
}

/* x + 1 is recorded and finished; *out_is_short: without a wait. */
static hr_buffer *increase(const fixture *f, hr_buffer *x, bool *out_is_short) {
  hr_buffer *y = make(f);
  HR_ASSERT_OK(with_number(f, HR_OP_ADD, x, 1, y));
  *out_is_short = hr_stream_finish_short(f->stream);
  HR_ASSERT_OK(hr_stream_synchronize(f->stream));
  return y;
}

HR_TEST(short_programs_that_are_known_are_finished_without_a_wait) {
  fixture f = open_fixture("cpu");
  hr_buffer *x = make_ramp(&f, 1, 1), *y;
  bool is_short;
  HR_ASSERT(hr_stream_finish_short(f.stream)); /* nothing is pending */
  for (int round = 0; round < 4; ++round) {
    y = increase(&f, x, &is_short);
    HR_ASSERT_EQ(is_short, round > 1); /* compiled, found again, expected */
    HR_ASSERT_NEAR(read_at(&f, y, 9), 11, 0);
    HR_ASSERT_EQ(hr__buffer_holders(y), 1);
    hr_buffer_release(y);
  }
  hr_stats stats = stats_of(&f);
  HR_ASSERT(stats.compiles == 1 && stats.cache_hits == 3 && stats.commits_by_read == 4 && stats.operations == 4);
  hr_buffer_release(x);
  close_fixture(&f);
}

/* A row times a matrix of zeros, n x n, several times; true if `finish` was enough the last time. */
static bool finishes_product(const fixture *f, int64_t n, bool (*finish)(hr_stream *stream)) {
  const int64_t row[2] = {1, n}, square[2] = {n, n}, rows_first[2] = {n, 1};
  hr_buffer *x, *w, *y;
  bool is_finished = false;
  HR_ASSERT_OK(hr_buffer_create(f->device, (size_t)n * sizeof(float), &x));
  HR_ASSERT_OK(hr_buffer_create(f->device, (size_t)(n * n) * sizeof(float), &w));
  HR_ASSERT_OK(hr_buffer_create(f->device, (size_t)n * sizeof(float), &y));
  hr_view inputs[2] = {{.buffer = x, .dtype = HR_DTYPE_F32, .rank = 2, .dims = row, .strides = rows_first},
                       {.buffer = w, .dtype = HR_DTYPE_F32, .rank = 2, .dims = square, .strides = rows_first}};
  hr_view out = inputs[0], zero = {.scalar = &(hr_scalar){.dtype = HR_DTYPE_F64}};
  out.buffer = y;
  for (int i = 0; i < 2; ++i) {
    HR_ASSERT_OK(hr_stream_record(f->stream, HR_OP_COPY, NULL, 1, &zero, 1, &inputs[i]));
  }
  HR_ASSERT_OK(hr_stream_synchronize(f->stream));
  for (int round = 0; round < 4; ++round) {
    HR_ASSERT_OK(hr_stream_record(f->stream, HR_OP_MATMUL, NULL, 2, inputs, 1, &out));
    is_finished = finish(f->stream);
    HR_ASSERT_OK(hr_stream_synchronize(f->stream));
  }
  hr_buffer_release(x), hr_buffer_release(w), hr_buffer_release(y);
  return is_finished;
}

HR_TEST(small_products_are_finished_without_a_wait) {
  fixture f = open_fixture("cpu");
  HR_ASSERT(finishes_product(&f, 256, hr_stream_finish_short));
  HR_ASSERT(!finishes_product(&f, 1024, hr_stream_finish_short)); /* 4 MB */
  close_fixture(&f);
}

static bool has_queue_thread(const fixture *f) {
  return f->stream->lane->queue.thread.started;
}

HR_TEST(work_of_some_milliseconds_is_finished_soon) {
  fixture f = open_fixture("cpu");
  HR_ASSERT(finishes_product(&f, 1024, hr_stream_finish_soon));
  hr_mutex_lock(&f.stream->mutex); /* as another thread that records */
  HR_ASSERT(!hr_stream_finish_soon(f.stream));
  hr_mutex_unlock(&f.stream->mutex);
  hr_stream_fail(f.stream, hr_status_make(HR_STATUS_INTERNAL, "a failure"));
  HR_ASSERT(!hr_stream_finish_soon(f.stream));
  HR_ASSERT_ERROR(hr_stream_synchronize(f.stream), HR_STATUS_INTERNAL, "a failure");
  HR_ASSERT(!has_queue_thread(&f));
  f.stream->long_bytes = 0; /* all programs are long */
  (void)finishes_product(&f, 1024, hr_stream_finish_soon);
  HR_ASSERT(has_queue_thread(&f));
  close_fixture(&f);
}

HR_TEST(other_work_is_not_finished_without_a_wait) {
  fixture f = open_fixture("cpu");
  hr_buffer *x = make_ramp(&f, 1, 1), *y;
  bool is_short;
  for (int round = 0; round < 3; ++round) {
    y = increase(&f, x, &is_short);
    hr_buffer_release(y);
  }
  HR_ASSERT(is_short);
  y = make(&f);
  HR_ASSERT_OK(with_number(&f, HR_OP_MUL, x, 2, y)); /* not the expected one: it stays pending */
  HR_ASSERT(!hr_stream_finish_short(f.stream));
  HR_ASSERT_EQ(stats_of(&f).commits_by_read, 3);
  HR_ASSERT_NEAR(read_at(&f, y, 9), 20, 0);
  hr_buffer_release(y);
  hr_mutex_lock(&f.stream->mutex); /* as another thread that records */
  HR_ASSERT(!hr_stream_finish_short(f.stream));
  hr_mutex_unlock(&f.stream->mutex);
  hr_stream_fail(f.stream, hr_status_make(HR_STATUS_INTERNAL, "a failure"));
  HR_ASSERT(!hr_stream_finish_short(f.stream));
  HR_ASSERT_ERROR(hr_stream_synchronize(f.stream), HR_STATUS_INTERNAL, "a failure");
  HR_ASSERT(hr_stream_finish_short(f.stream));
  hr_buffer_release(x);
  close_fixture(&f);
}

HR_TEST(modes_agree) {
  for (int mode = HR_MODE_FUSE; mode <= HR_MODE_STRICT; ++mode) {
    fixture f = open_fixture("cpu");
    hr_stream_set_mode(f.stream, (hr_mode)mode);
    hr_buffer *x = make_ramp(&f, -3, 0.25f), *t = make(&f);
    HR_ASSERT_OK(binary(&f, HR_OP_MUL, x, x, t));
    HR_ASSERT_OK(binary(&f, HR_OP_SUB, t, x, x));
    HR_ASSERT_OK(binary(&f, HR_OP_MAXIMUM, x, t, t));
    HR_ASSERT_NEAR(read_at(&f, x, 0), 12, 0);
    HR_ASSERT_NEAR(read_at(&f, t, 191), 44.75 * 44.75, 0);
    HR_ASSERT_EQ(stats_of(&f).commits_by_mode, mode == HR_MODE_FUSE ? 0 : 3);
    hr_buffer_release(x);
    hr_buffer_release(t);
    close_fixture(&f);
  }
}

HR_TEST(writes_are_snapshots_in_order) {
  fixture f = open_fixture("cpu");
  float values[COUNT], old[COUNT];
  hr_buffer *x = make_ramp(&f, 5, 0), *y = make(&f);
  hr_view view = view_of(x), out = view_of(y);
  HR_ASSERT_OK(binary(&f, HR_OP_ADD, x, x, y));
  for (int i = 0; i < COUNT; ++i) {
    values[i] = 7;
  }
  HR_ASSERT_OK(hr_stream_write(f.stream, &view, values));
  HR_ASSERT_EQ(stats_of(&f).commits, 0);
  memset(values, 0, sizeof values);
  HR_ASSERT_OK(binary(&f, HR_OP_MUL, x, y, x));
  HR_ASSERT_OK(hr_stream_read(f.stream, &out, old));
  HR_ASSERT_NEAR(old[3], 10, 0);
  HR_ASSERT_NEAR(read_at(&f, x, 100), 70, 0);
  HR_ASSERT_EQ(stats_of(&f).bytes_copied_in, 2 * (int64_t)sizeof values);
  hr_buffer_release(x);
  hr_buffer_release(y);
  close_fixture(&f);
}

HR_TEST(reads_gather_strided_views) {
  fixture f = open_fixture("cpu");
  hr_buffer *x = make_ramp(&f, 0, 1);
  const int64_t turned[2] = {COLUMNS, ROWS}, turned_strides[2] = {1, COLUMNS};
  hr_view view = {.buffer = x, .dtype = HR_DTYPE_F32, .rank = 2, .dims = turned, .strides = turned_strides};
  float values[COUNT];
  HR_ASSERT_OK(hr_stream_read(f.stream, &view, values));
  for (int i = 0; i < COUNT; ++i) {
    HR_ASSERT_NEAR(values[i], (i % ROWS) * COLUMNS + i / ROWS, 0);
  }
  view.offset = 1;
  HR_ASSERT_ERROR(hr_stream_read(f.stream, &view, values), HR_STATUS_OUT_OF_RANGE, "elements 1 to 192");
  hr_buffer *fresh = make(&f);
  HR_ASSERT_NEAR(read_at(&f, fresh, 0), 0, 0);
  hr_buffer_release(fresh);
  hr_buffer_release(x);
  close_fixture(&f);
}

HR_TEST(addresses_stay_and_show_recorded_results) {
  fixture f = open_fixture("cpu");
  hr_buffer *x = make_ramp(&f, 1, 0), *y = make(&f);
  void *address, *again;
  HR_ASSERT_OK(hr_stream_address(f.stream, y, &address));
  HR_ASSERT_OK(binary(&f, HR_OP_ADD, x, x, y));
  HR_ASSERT_OK(hr_stream_address(f.stream, y, &again));
  HR_ASSERT(address == again);
  HR_ASSERT_NEAR(((float *)address)[COUNT - 1], 2, 0);
  ((float *)address)[0] = 40;
  HR_ASSERT_OK(binary(&f, HR_OP_ADD, y, x, y));
  HR_ASSERT_NEAR(read_at(&f, y, 0), 41, 0);
  hr_buffer_release(x);
  hr_buffer_release(y);
  close_fixture(&f);
}

static void count_release(void *count) {
  ++*(int *)count;
}

HR_TEST(memory_of_the_host_becomes_a_buffer) {
  fixture f = open_fixture("cpu");
  float *memory = hr_aligned_malloc(COUNT * sizeof *memory, 64);
  for (int i = 0; i < COUNT; ++i) {
    memory[i] = (float)i;
  }
  int released = 0;
  hr_buffer *adopted, *refused = NULL, *x = make_ramp(&f, 1, 0), *y = make(&f);
  HR_ASSERT_ERROR(hr_buffer_adopt(f.device, 8, memory + 1, count_release, &released, &refused),
                  HR_STATUS_FAILED_PRECONDITION, "aligned to 16");
  HR_ASSERT(refused == NULL);
  HR_ASSERT_OK(hr_buffer_adopt(f.device, COUNT * sizeof *memory, memory, count_release, &released, &adopted));
  HR_ASSERT_OK(binary(&f, HR_OP_ADD, adopted, x, y)); /* read */
  HR_ASSERT_OK(binary(&f, HR_OP_ADD, y, x, adopted)); /* written in place */
  HR_ASSERT_NEAR(read_at(&f, y, 3), 4, 0);
  HR_ASSERT_NEAR(memory[3], 5, 0);
  void *address;
  HR_ASSERT_OK(hr_stream_address(f.stream, adopted, &address));
  HR_ASSERT(address == memory);
  HR_ASSERT_OK(binary(&f, HR_OP_ADD, adopted, x, y));
  HR_ASSERT_EQ(released, 0);
  hr_buffer_release(adopted); /* while work on it is pending */
  HR_ASSERT_NEAR(read_at(&f, y, 3), 6, 0);
  HR_ASSERT_OK(hr_stream_synchronize(f.stream));
  HR_ASSERT_EQ(released, 1);
  hr_buffer_release(x);
  hr_buffer_release(y);
  close_fixture(&f);
  hr_aligned_free(memory);
}

HR_TEST(elements_that_are_read_are_adopted_at_their_address) {
  fixture f = open_fixture("cpu");
  float *memory = hr_aligned_malloc((COUNT + 1) * sizeof *memory, 64);
  for (int i = 0; i < COUNT; ++i) {
    memory[i + 1] = (float)i;
  }
  int released = 0;
  hr_buffer *adopted = NULL, *x = make_ramp(&f, 1, 0), *y = make(&f);
  HR_ASSERT_ERROR(hr_buffer_adopt_elements(f.device, HR_DTYPE_F32, 0, memory, count_release, &released, &adopted),
                  HR_STATUS_FAILED_PRECONDITION, "0 bytes");
  HR_ASSERT_OK(hr_buffer_adopt_elements(f.device, HR_DTYPE_F32, COUNT, memory + 1, count_release, &released, &adopted));
  HR_ASSERT_OK(binary(&f, HR_OP_ADD, adopted, x, y));
  HR_ASSERT_NEAR(read_at(&f, y, 3), 4, 0);
  hr_buffer_release(adopted);
  HR_ASSERT_OK(hr_stream_synchronize(f.stream));
  HR_ASSERT_EQ(released, 1);
  hr_buffer_release(x);
  hr_buffer_release(y);
  close_fixture(&f);
  hr_aligned_free(memory);
}

HR_TEST(work_above_the_grain_runs_on_the_executor) {
  fixture f = open_fixture("cpu");
  enum { LARGE = 1 << 20 };
  hr_buffer *x, *y;
  const int64_t large[1] = {LARGE}, one[1] = {1};
  float *values = hr_malloc(LARGE * sizeof *values);
  HR_ASSERT_OK(hr_buffer_create(f.device, LARGE * sizeof(float), &x));
  HR_ASSERT_OK(hr_buffer_create(f.device, LARGE * sizeof(float), &y));
  for (int i = 0; i < LARGE; ++i) {
    values[i] = (float)i;
  }
  hr_view in = {.buffer = x, .dtype = HR_DTYPE_F32, .rank = 1, .dims = large, .strides = one}, out = in;
  out.buffer = y;
  HR_ASSERT_OK(hr_stream_write(f.stream, &in, values));
  for (int i = 0; i < 20; ++i) {
    hr_view inputs[2] = {i == 0 ? in : out, in};
    HR_ASSERT_OK(hr_stream_record(f.stream, HR_OP_ADD, NULL, 2, inputs, 1, &out));
    HR_ASSERT_OK(hr_stream_commit(f.stream));
  }
  HR_ASSERT_OK(hr_stream_read(f.stream, &out, values));
  for (int i = 0; i < LARGE; i += 997) {
    HR_ASSERT_NEAR(values[i], (float)i * 21, 0.001 * i);
  }
  HR_ASSERT_EQ(stats_of(&f).commits_by_request, 20);
  hr_free(values);
  hr_buffer_release(x);
  hr_buffer_release(y);
  close_fixture(&f);
}

/* ---- early commits ---- */

/* Adds b to a, `count` times one after the other, and multiplies: out[0] is the sum over the first row of ones. */
static void add_and_multiply(const fixture *f, int count, hr_buffer *a, hr_buffer *b, hr_buffer *out) {
  const int64_t turned[2] = {COLUMNS, ROWS}, turned_strides[2] = {1, COLUMNS};
  const int64_t square[2] = {ROWS, ROWS}, across[2] = {ROWS, 1};
  hr_view inputs[2] = {view_of(a), view_of(b)}, output = view_of(out);
  for (int i = 0; i < count; ++i) {
    HR_ASSERT_OK(binary(f, HR_OP_ADD, a, b, a));
  }
  inputs[1].dims = turned, inputs[1].strides = turned_strides;
  output.dims = square, output.strides = across;
  HR_ASSERT_OK(hr_stream_record(f->stream, HR_OP_MATMUL, NULL, 2, inputs, 1, &output));
}

HR_TEST(a_stream_beside_the_host_commits_in_front_of_products_at_the_same_places_in_each_step) {
  fixture f = open_fixture("cpu");
  hr_buffer *a = make_ramp(&f, 1, 0), *b = make_ramp(&f, 1, 0), *y = make(&f), *z = make(&f);
  f.stream->policy.first_ops = f.stream->policy.next_ops = 4;
  hr_stats first = {0};
  for (int step = 0; step < 4; ++step) {
    hr_stats before = stats_of(&f);
    add_and_multiply(&f, 6, a, b, y);  /* 6 are at least 4 */
    add_and_multiply(&f, 2, a, b, y);  /* 3 are less than 8 */
    add_and_multiply(&f, 10, a, b, z); /* 14 are not */
    HR_ASSERT_OK(hr_stream_synchronize(f.stream));
    hr_stats after = stats_of(&f);
    HR_ASSERT_EQ(after.commits_by_limit - before.commits_by_limit, 2);
    HR_ASSERT_EQ(after.commits - before.commits, 3);
    HR_ASSERT_NEAR(read_at(&f, y, 0), COLUMNS * (1 + 18 * step + 8), 0);
    HR_ASSERT_NEAR(read_at(&f, z, ROWS - 1), COLUMNS * (1 + 18 * step + 18), 0);
    first = step <= 1 ? after : first; /* in the first step two buffers are new */
  }
  HR_ASSERT_EQ(stats_of(&f).compiles, first.compiles);
  hr_stream_set_mode(f.stream, HR_MODE_EAGER);
  hr_stats before = stats_of(&f);
  add_and_multiply(&f, 12, a, b, y);
  HR_ASSERT_EQ(stats_of(&f).commits_by_limit, before.commits_by_limit);
  hr_buffer *all[] = {a, b, y, z};
  for (int i = 0; i < 4; ++i) {
    hr_buffer_release(all[i]);
  }
  close_fixture(&f);
}

/* ---- errors ---- */

static hr_status select_rows_by(const fixture *f, hr_buffer *x, hr_dtype dtype, hr_buffer *index, hr_buffer *out) {
  const int64_t count[1] = {ROWS}, one[1] = {1}, ints[1] = {0};
  hr_attrs attrs = {.int_count = 1, .ints = ints};
  hr_view inputs[2] = {view_of(x), {.buffer = index, .dtype = dtype, .rank = 1, .dims = count, .strides = one}};
  hr_view output = view_of(out);
  return hr_stream_record(f->stream, HR_OP_INDEX_SELECT, &attrs, 2, inputs, 1, &output);
}

static hr_status select_rows(const fixture *f, hr_buffer *x, hr_buffer *index, hr_buffer *out) {
  return select_rows_by(f, x, HR_DTYPE_I64, index, out);
}

static hr_buffer *make_index(const fixture *f, int64_t last) {
  int64_t values[ROWS] = {0, 1, 2, 3, 4, last};
  const int64_t count[1] = {ROWS}, one[1] = {1};
  hr_buffer *buffer;
  HR_ASSERT_OK(hr_buffer_create(f->device, sizeof values, &buffer));
  hr_view view = {.buffer = buffer, .dtype = HR_DTYPE_I64, .rank = 1, .dims = count, .strides = one};
  HR_ASSERT_OK(hr_stream_write(f->stream, &view, values));
  return buffer;
}

/* It stands for none in the check, and NaN becomes it as an integer, as does 2^63. */
HR_TEST(the_least_integer_is_an_index_out_of_range) {
  fixture f = open_fixture("cpu");
  hr_buffer *x = make_ramp(&f, 0, 1), *least = make_index(&f, INT64_MIN), *y = make(&f);
  for (int i = 0; i < 2; ++i) {
    HR_ASSERT_OK(select_rows_by(&f, x, i == 0 ? HR_DTYPE_I64 : HR_DTYPE_U64, least, y));
    HR_ASSERT_STATUS(hr_stream_synchronize(f.stream), HR_STATUS_OUT_OF_RANGE);
  }
  hr_buffer_release(x);
  hr_buffer_release(least);
  hr_buffer_release(y);
  close_fixture(&f);
}

HR_TEST(an_index_out_of_range_invalidates_its_results) {
  fixture f = open_fixture("cpu");
  hr_buffer *x = make_ramp(&f, 0, 1), *old = make_ramp(&f, 3, 0), *good = make_index(&f, 5), *bad = make_index(&f, 6);
  hr_buffer *y = make(&f), *z = make(&f);
  HR_ASSERT_OK(select_rows(&f, x, good, y));
  HR_ASSERT_NEAR(read_at(&f, y, COUNT - 1), COUNT - 1, 0);
  HR_ASSERT_OK(select_rows(&f, x, bad, z));
  HR_ASSERT_OK(binary(&f, HR_OP_ADD, old, z, old));
  HR_ASSERT_ERROR(hr_stream_synchronize(f.stream), HR_STATUS_OUT_OF_RANGE, "6");
  HR_ASSERT_OK(hr_stream_synchronize(f.stream));
  HR_ASSERT_NEAR(read_at(&f, old, 0), 3, 0);
  float values[COUNT];
  hr_view view = view_of(z);
  HR_ASSERT_STATUS(hr_stream_read(f.stream, &view, values), HR_STATUS_OUT_OF_RANGE);
  HR_ASSERT_STATUS(binary(&f, HR_OP_ADD, z, x, y), HR_STATUS_OUT_OF_RANGE);
  HR_ASSERT_OK(binary(&f, HR_OP_ADD, x, x, z)); /* written from end to end: good again */
  HR_ASSERT_NEAR(read_at(&f, z, 7), 14, 0);
  HR_ASSERT_OK(select_rows(&f, x, bad, y)); /* y existed: it keeps its contents */
  HR_ASSERT_STATUS(hr_stream_synchronize(f.stream), HR_STATUS_OUT_OF_RANGE);
  HR_ASSERT_NEAR(read_at(&f, y, COUNT - 1), COUNT - 1, 0);
  hr_buffer *all[] = {x, old, good, bad, y, z};
  for (int i = 0; i < 6; ++i) {
    hr_buffer_release(all[i]);
  }
  close_fixture(&f);
}

/* Rows of x summed over one segment, whose limits are the last numbers of `begin` and `end`. */
static hr_status record_segment(const fixture *f, hr_buffer *x, hr_buffer *begin, hr_buffer *end, hr_buffer *y) {
  const int64_t one[1] = {1}, line[2] = {1, COLUMNS}, ints[2] = {1, -1}; /* a sum; no row is skipped */
  hr_view limit = {.dtype = HR_DTYPE_I64, .rank = 1, .dims = one, .strides = one, .offset = ROWS - 1};
  hr_view inputs[3] = {view_of(x), limit, limit}, out = view_of(y);
  inputs[1].buffer = begin, inputs[2].buffer = end, out.dims = line;
  hr_scalar start = hr_scalar_f64(0);
  hr_attrs attrs = {.ints = ints, .int_count = 2, .scalars = &start, .scalar_count = 1};
  return hr_stream_record(f->stream, HR_OP_SEGMENTS, &attrs, 3, inputs, 1, &out);
}

HR_TEST(nothing_behind_segments_outside_of_their_rows_is_stored) {
  fixture f = open_fixture("cpu");
  hr_buffer *x = make_ramp(&f, 1, 0), *before = make_ramp(&f, 2, 0), *after = make_ramp(&f, 3, 0), *sums = make(&f);
  hr_buffer *first = make_index(&f, 0), *last = make_index(&f, ROWS);
  hr_buffer *bad[2] = {make_index(&f, ROWS + 1), make_index(&f, -1)};
  HR_ASSERT_OK(record_segment(&f, x, first, last, sums));
  HR_ASSERT_NEAR(read_at(&f, sums, 0), ROWS, 0);
  for (int i = 0; i < 2; ++i) {
    HR_ASSERT_OK(binary(&f, HR_OP_ADD, before, x, before));
    HR_ASSERT_OK(record_segment(&f, x, first, bad[i], sums));
    HR_ASSERT_OK(binary(&f, HR_OP_ADD, after, x, after));
    HR_ASSERT_ERROR(hr_stream_synchronize(f.stream), HR_STATUS_OUT_OF_RANGE, i == 0 ? "index 7 " : "index -1 ");
    HR_ASSERT_NEAR(read_at(&f, before, 5), 3 + i, 0);
    HR_ASSERT_NEAR(read_at(&f, after, 5), 3, 0);
    HR_ASSERT_NEAR(read_at(&f, sums, 0), ROWS, 0);
  }
  hr_buffer *all[] = {x, before, after, sums, first, last, bad[0], bad[1]};
  for (int i = 0; i < 8; ++i) {
    hr_buffer_release(all[i]);
  }
  close_fixture(&f);
}

/* Writes a number that the host has not seen after the last index: row 7 of eight, of which six may be chosen. Without
 * a check it reads the last one of these. */
static void spoil(hr_buffer *index) {
  ((int64_t *)hr__buffer_address(index))[ROWS - 1] = ROWS + 1;
}

HR_TEST(indices_that_the_host_wrote_are_checked_without_a_look_at_the_device) {
  fixture f = open_fixture("cpu");
  const int64_t large[2] = {ROWS + 2, COLUMNS};
  float values[(ROWS + 2) * COLUMNS] = {0};
  hr_buffer *x, *good, *bad, *y = make(&f);
  hr_view view = {.dtype = HR_DTYPE_F32, .rank = 2, .dims = large, .strides = strides};
  f.stream->notes_indices = true;
  good = make_index(&f, ROWS - 1), bad = make_index(&f, ROWS);
  HR_ASSERT_OK(hr_buffer_create(f.device, sizeof values, &x));
  values[(ROWS - 1) * COLUMNS] = 9;
  view.buffer = x;
  HR_ASSERT_OK(hr_stream_write(f.stream, &view, values));
  spoil(good);
  HR_ASSERT_OK(select_rows(&f, x, good, y)); /* not checked */
  HR_ASSERT_NEAR(read_at(&f, y, (ROWS - 1) * COLUMNS), 9, 0);
  HR_ASSERT_OK(select_rows(&f, x, bad, y));
  HR_ASSERT_ERROR(hr_stream_synchronize(f.stream), HR_STATUS_OUT_OF_RANGE, "index 6 is out of bounds");
  hr_buffer *copied = make_index(&f, 0);
  const int64_t count[1] = {ROWS}, one[1] = {1};
  hr_view from = {.buffer = good, .dtype = HR_DTYPE_I64, .rank = 1, .dims = count, .strides = one}, to = from;
  to.buffer = copied;
  HR_ASSERT_OK(hr_stream_record(f.stream, HR_OP_COPY, NULL, 1, &from, 1, &to)); /* numbers other than those the host
                                                                                 * wrote there */
  HR_ASSERT_OK(hr_stream_synchronize(f.stream));
  HR_ASSERT_OK(select_rows(&f, x, copied, y));
  HR_ASSERT_ERROR(hr_stream_synchronize(f.stream), HR_STATUS_OUT_OF_RANGE, "index 7 is out of bounds");
  void *address;
  HR_ASSERT_OK(hr_stream_address(f.stream, good, &address)); /* the holder of the address may write there */
  HR_ASSERT_OK(select_rows(&f, x, good, y));
  HR_ASSERT_ERROR(hr_stream_synchronize(f.stream), HR_STATUS_OUT_OF_RANGE, "index 7 is out of bounds");
  hr_buffer *all[] = {x, good, bad, y, copied};
  for (int i = 0; i < 5; ++i) {
    hr_buffer_release(all[i]);
  }
  close_fixture(&f);
}

HR_TEST(indices_that_the_host_has_read_are_checked_without_a_look_at_the_device) {
  fixture f = open_fixture("cpu");
  const int64_t large[2] = {ROWS + 2, COLUMNS}, count[1] = {ROWS}, one[1] = {1};
  float values[(ROWS + 2) * COLUMNS] = {0};
  int64_t seen[ROWS];
  hr_buffer *x, *made, *index = make_index(&f, ROWS - 1), *y = make(&f);
  hr_view view = {.dtype = HR_DTYPE_F32, .rank = 2, .dims = large, .strides = strides};
  hr_view from = {.buffer = index, .dtype = HR_DTYPE_I64, .rank = 1, .dims = count, .strides = one}, to = from;
  HR_ASSERT_OK(hr_buffer_create(f.device, sizeof values, &x));
  HR_ASSERT_OK(hr_buffer_create(f.device, sizeof seen, &made));
  view.buffer = x, to.buffer = made;
  HR_ASSERT_OK(hr_stream_write(f.stream, &view, values));
  f.stream->notes_indices = true;
  for (int is_seen = 0; is_seen < 3; ++is_seen) { /* not; half of them; all */
    hr_view half = to;
    half.dims = (const int64_t[1]){ROWS / 2};
    HR_ASSERT_OK(hr_stream_record(f.stream, HR_OP_COPY, NULL, 1, &from, 1, &to));
    HR_ASSERT_OK(hr_stream_synchronize(f.stream));
    HR_ASSERT_OK(is_seen > 0 ? hr_stream_read(f.stream, is_seen == 1 ? &half : &to, seen) : HR_OK);
    spoil(made);
    HR_ASSERT_OK(select_rows(&f, x, made, y));
    if (is_seen == 2) {
      HR_ASSERT_OK(hr_stream_synchronize(f.stream));
    } else {
      HR_ASSERT_ERROR(hr_stream_synchronize(f.stream), HR_STATUS_OUT_OF_RANGE, "index 7 is out of bounds");
    }
  }
  HR_ASSERT_OK(hr_stream_record(f.stream, HR_OP_COPY, NULL, 1, &from, 1, &to)); /* the same numbers, written again */
  HR_ASSERT_OK(hr_stream_synchronize(f.stream));
  spoil(made);
  HR_ASSERT_OK(select_rows(&f, x, made, y));
  HR_ASSERT_ERROR(hr_stream_synchronize(f.stream), HR_STATUS_OUT_OF_RANGE, "index 7 is out of bounds");
  hr_buffer *all[] = {x, index, made, y};
  for (int i = 0; i < 4; ++i) {
    hr_buffer_release(all[i]);
  }
  close_fixture(&f);
}

HR_TEST(work_behind_a_failure_is_discarded_in_later_commits_too) {
  fixture f = open_fixture("cpu");
  hr_buffer *x = make_ramp(&f, 0, 1), *bad = make_index(&f, -9), *y = make(&f), *z = make(&f);
  HR_ASSERT_OK(select_rows(&f, x, bad, y));
  HR_ASSERT_OK(binary(&f, HR_OP_ADD, x, y, z));
  HR_ASSERT_OK(hr_stream_commit(f.stream));
  hr_status late = binary(&f, HR_OP_ADD, z, x, x); /* seen at once, or when it runs */
  bool is_seen = late != HR_OK;
  hr_status_ignore(late);
  hr_status waited = hr_stream_synchronize(f.stream); /* reported once, by the first call that saw it */
  HR_ASSERT_EQ(hr_status_code_of(waited), is_seen ? HR_STATUS_OK : HR_STATUS_OUT_OF_RANGE);
  hr_status_ignore(waited);
  HR_ASSERT(hr__buffer_is_invalid(z));
  HR_ASSERT_NEAR(read_at(&f, x, 9), 9, 0);
  hr_buffer *all[] = {x, bad, y, z};
  for (int i = 0; i < 4; ++i) {
    hr_buffer_release(all[i]);
  }
  close_fixture(&f);
}

/* Had the operations run one by one, none after the failure would have. */
HR_TEST(a_failure_ends_later_work_until_it_is_reported) {
  fixture f = open_fixture("cpu");
  hr_buffer *x = make_ramp(&f, 0, 1), *bad = make_index(&f, 6), *y = make(&f), *z = make(&f),
            *old = make_ramp(&f, 1, 0);
  HR_ASSERT_OK(with_number(&f, HR_OP_ADD, old, 1, old)); /* before the failure: done */
  HR_ASSERT_OK(select_rows(&f, x, bad, y));
  HR_ASSERT_OK(hr_stream_commit(f.stream));
  HR_ASSERT_OK(with_number(&f, HR_OP_ADD, old, 10, old)); /* touches nothing that failed */
  HR_ASSERT_OK(hr_stream_commit(f.stream));
  HR_ASSERT_OK(with_number(&f, HR_OP_ADD, old, 20, z));
  HR_ASSERT_ERROR(hr_stream_synchronize(f.stream), HR_STATUS_OUT_OF_RANGE, "6");
  HR_ASSERT_NEAR(read_at(&f, old, 5), 2, 0);
  float values[COUNT];
  hr_view view = view_of(z);
  HR_ASSERT_STATUS(hr_stream_read(f.stream, &view, values), HR_STATUS_OUT_OF_RANGE);
  HR_ASSERT_OK(with_number(&f, HR_OP_ADD, old, 30, old)); /* after the report: done */
  HR_ASSERT_NEAR(read_at(&f, old, 5), 32, 0);
  hr_buffer *all[] = {x, bad, y, z, old};
  for (int i = 0; i < 5; ++i) {
    hr_buffer_release(all[i]);
  }
  close_fixture(&f);
}

HR_TEST(failures_that_are_kept_apart_end_the_work_that_uses_them) {
  fixture f = open_fixture("cpu");
  hr_stream_keep_failures_apart(f.stream);
  hr_buffer *x = make_ramp(&f, 0, 1), *bad = make_index(&f, 6), *y = make(&f), *z = make(&f), *w = make(&f);
  HR_ASSERT_OK(select_rows(&f, x, bad, y));
  HR_ASSERT_OK(hr_stream_commit(f.stream));
  HR_ASSERT_OK(with_number(&f, HR_OP_ADD, x, 10, z)); /* touches nothing that failed */
  HR_ASSERT_OK(hr_stream_commit(f.stream));
  hr__device_drain(f.device);
  HR_ASSERT_OK(with_number(&f, HR_OP_ADD, x, 20, w)); /* pending while another record meets the failure */
  HR_ASSERT_ERROR(binary(&f, HR_OP_ADD, y, x, y), HR_STATUS_OUT_OF_RANGE, "6");
  HR_ASSERT_ERROR(hr_stream_synchronize(f.stream), HR_STATUS_OUT_OF_RANGE, "6");
  HR_ASSERT_NEAR(read_at(&f, z, 5), 15, 0);
  HR_ASSERT_NEAR(read_at(&f, w, 5), 25, 0);
  HR_ASSERT(hr__buffer_is_invalid(y));
  hr_buffer *all[] = {x, bad, y, z, w};
  for (int i = 0; i < 5; ++i) {
    hr_buffer_release(all[i]);
  }
  close_fixture(&f);
}

/* A program that nobody has waited for is no failure of what others read. */
HR_TEST(failures_that_are_kept_apart_end_no_read_of_other_buffers) {
  fixture f = open_fixture("cpu");
  hr_stream_keep_failures_apart(f.stream);
  hr_buffer *x = make_ramp(&f, 0, 1), *bad = make_index(&f, 6), *y = make(&f), *z = make(&f);
  void *address;
  HR_ASSERT_OK(with_number(&f, HR_OP_ADD, x, 10, z));
  HR_ASSERT_OK(hr_stream_synchronize(f.stream));
  HR_ASSERT_OK(select_rows(&f, x, bad, y));
  HR_ASSERT_OK(hr_stream_commit(f.stream));
  HR_ASSERT_NEAR(read_at(&f, z, 5), 15, 0);
  HR_ASSERT_OK(hr_stream_address(f.stream, z, &address));
  HR_ASSERT_ERROR(hr_stream_address(f.stream, y, &address), HR_STATUS_OUT_OF_RANGE, "6");
  HR_ASSERT_ERROR(hr_stream_synchronize(f.stream), HR_STATUS_OUT_OF_RANGE, "6");
  hr_buffer *all[] = {x, bad, y, z};
  for (int i = 0; i < 4; ++i) {
    hr_buffer_release(all[i]);
  }
  close_fixture(&f);
}

/* Waits until the submitted work has run, without its result. */
static void let_run(const fixture *f) {
  hr__device_drain(f->device);
}

HR_TEST(a_record_reports_a_failure_and_later_work_is_done) {
  fixture f = open_fixture("cpu");
  hr_buffer *x = make_ramp(&f, 0, 1), *bad = make_index(&f, 6), *y = make(&f), *z = make(&f),
            *old = make_ramp(&f, 1, 0);
  HR_ASSERT_OK(hr_stream_synchronize(f.stream));
  HR_ASSERT_OK(select_rows(&f, x, bad, y));
  HR_ASSERT_OK(hr_stream_commit(f.stream));
  let_run(&f);
  HR_ASSERT_OK(with_number(&f, HR_OP_ADD, old, 10, old)); /* between the failure and its report */
  HR_ASSERT_OK(binary(&f, HR_OP_ADD, x, x, z));
  HR_ASSERT_ERROR(binary(&f, HR_OP_ADD, y, x, x), HR_STATUS_OUT_OF_RANGE, "6");
  HR_ASSERT_OK(with_number(&f, HR_OP_ADD, old, 20, old));
  HR_ASSERT_ERROR(binary(&f, HR_OP_ADD, y, x, x), HR_STATUS_OUT_OF_RANGE, "6"); /* again, and drops nothing */
  HR_ASSERT_OK(hr_stream_synchronize(f.stream));
  HR_ASSERT_NEAR(read_at(&f, old, 5), 21, 0);
  HR_ASSERT(hr__buffer_is_invalid(z));
  HR_ASSERT_OK(binary(&f, HR_OP_ADD, x, x, z));
  HR_ASSERT_NEAR(read_at(&f, z, 5), 10, 0);
  hr_buffer *all[] = {x, bad, y, z, old};
  for (int i = 0; i < 5; ++i) {
    hr_buffer_release(all[i]);
  }
  close_fixture(&f);
}

HR_TEST(an_invalid_buffer_whose_repair_is_dropped_stays_invalid) {
  fixture f = open_fixture("cpu");
  hr_buffer *x = make_ramp(&f, 0, 1), *bad = make_index(&f, 6), *y = make(&f), *z = make(&f);
  for (int round = 0; round < 2; ++round) {
    HR_ASSERT_OK(select_rows(&f, x, bad, z)); /* gives z memory in the first round */
    HR_ASSERT_STATUS(hr_stream_synchronize(f.stream), HR_STATUS_OUT_OF_RANGE);
    HR_ASSERT(hr__buffer_is_invalid(z));
    HR_ASSERT_OK(select_rows(&f, x, bad, y));
    HR_ASSERT_OK(hr_stream_commit(f.stream));
    let_run(&f);
    HR_ASSERT_OK(binary(&f, HR_OP_ADD, x, x, z));
    HR_ASSERT(!hr__buffer_is_invalid(z));
    HR_ASSERT_STATUS(round == 0 ? hr_stream_synchronize(f.stream) : binary(&f, HR_OP_ADD, y, y, x),
                     HR_STATUS_OUT_OF_RANGE);
    HR_ASSERT(hr__buffer_is_invalid(z));
  }
  HR_ASSERT_OK(hr_stream_synchronize(f.stream));
  hr_buffer *all[] = {x, bad, y, z};
  for (int i = 0; i < 4; ++i) {
    hr_buffer_release(all[i]);
  }
  close_fixture(&f);
}

HR_TEST(buffers_of_another_device_are_refused) {
  fixture f = open_fixture("cpu"), g = open_fixture("null");
  hr_buffer *x = make(&f), *y = make(&g);
  HR_ASSERT_ERROR(binary(&f, HR_OP_ADD, x, x, y), HR_STATUS_INVALID_ARGUMENT, "add: a buffer of device \"null\"");
  hr_buffer_release(x);
  hr_buffer_release(y);
  close_fixture(&f);
  close_fixture(&g);
}

/* ---- memory ---- */

HR_TEST(memory_that_is_short_fails_with_sizes_and_leaves_the_rest_intact) {
  fixture f = open_fixture("cpu");
  enum { LARGE = 4 << 20 };
  const int64_t large[1] = {LARGE}, one[1] = {1};
  hr_buffer *x = make_ramp(&f, 1, 1), *y = make(&f), *big;
  HR_ASSERT_OK(hr_buffer_create(f.device, LARGE * sizeof(float), &big));
  HR_ASSERT_OK(hr_stream_synchronize(f.stream));
  hr_device_memory_limit(f.device, 8 << 20);
  hr_scalar scalar = hr_scalar_f64(1);
  hr_view input = number(&scalar);
  hr_view output = {.buffer = big, .dtype = HR_DTYPE_F32, .rank = 1, .dims = large, .strides = one};
  HR_ASSERT_OK(hr_stream_record(f.stream, HR_OP_COPY, NULL, 1, &input, 1, &output));
  HR_ASSERT_OK(binary(&f, HR_OP_ADD, x, x, y));
  HR_ASSERT_ERROR(hr_stream_synchronize(f.stream), HR_STATUS_RESOURCE_EXHAUSTED, "16777216 bytes requested");
  HR_ASSERT_NEAR(read_at(&f, x, 3), 4, 0);
  HR_ASSERT_ERROR(binary(&f, HR_OP_ADD, y, x, x), HR_STATUS_RESOURCE_EXHAUSTED, "limit 8388608");
  HR_ASSERT_OK(binary(&f, HR_OP_ADD, x, x, y));
  HR_ASSERT_NEAR(read_at(&f, y, 3), 8, 0);
  hr_device_memory_limit(f.device, 0);
  HR_ASSERT_OK(hr_stream_record(f.stream, HR_OP_COPY, NULL, 1, &input, 1, &output));
  HR_ASSERT_OK(hr_stream_synchronize(f.stream));
  hr_buffer_release(x);
  hr_buffer_release(y);
  hr_buffer_release(big);
  close_fixture(&f);
}

/* Two commits and a read; any failing host allocation is reported by the stream, or not needed. */
static hr_status run_short_of_memory(void) {
  hr_device *device = NULL;
  hr_stream *stream = NULL;
  hr_buffer *x = NULL, *y = NULL;
  float values[COUNT] = {0};
  hr_status status = hr_device_open("cpu", &device);
  status = status == HR_OK ? hr_stream_create(device, &stream) : status;
  status = status == HR_OK ? hr_buffer_create(device, sizeof values, &x) : status;
  status = status == HR_OK ? hr_buffer_create(device, sizeof values, &y) : status;
  if (status == HR_OK) {
    fixture f = {device, stream};
    hr_view in = view_of(x), out = view_of(y);
    status = hr_stream_write(stream, &in, values);
    status = status == HR_OK ? binary(&f, HR_OP_ADD, x, x, y) : status;
    status = status == HR_OK ? hr_stream_commit(stream) : status;
    status = status == HR_OK ? binary(&f, HR_OP_MUL, y, y, y) : status;
    status = status == HR_OK ? hr_stream_write(stream, &in, values) : status;
    status = status == HR_OK ? hr_stream_read(stream, &out, values) : status;
  }
  hr_buffer_release(x);
  hr_buffer_release(y);
  hr_stream_release(stream);
  hr_device_release(device);
  hr__compile_queue_wait(); /* it allocates, too */
  return status;
}

HR_TEST(failing_host_allocations_are_reported_and_leak_nothing) {
  HR_ASSERT_OK(run_short_of_memory());
  hr_arena_forget();
  int64_t live = hr__allocator_live();
  for (int64_t n = 0; n < 5000; ++n) {
    hr__allocator_fail_after(n);
    hr_status status = run_short_of_memory();
    int64_t failures = hr__allocator_failures();
    hr__allocator_fail_after(-1);
    hr_status_code code = hr_status_code_of(status);
    hr_status_ignore(status);
    HR_ASSERT(code == HR_STATUS_OK || code == HR_STATUS_RESOURCE_EXHAUSTED);
    hr_arena_forget();
    HR_ASSERT_EQ(hr__allocator_live(), live);
    if (failures == 0) {
      HR_ASSERT_EQ(code, HR_STATUS_OK);
      return;
    }
  }
  HR_FAIL("allocations never stopped failing");
}

/* ---- loops, caches ---- */

HR_TEST(loops_that_never_synchronise_hit_the_cache) {
  static const int bodies[] = {7, 60, 300};
  for (int b = 0; b < 3; ++b) {
    fixture f = open_fixture("null");
    f.stream->policy.records_max = 128;
    hr_buffer *x = make_ramp(&f, 1, 0), *weight = make_ramp(&f, 1, 0);
    int64_t compiles = 0;
    for (int iteration = 0; iteration < 300 / bodies[b] * 4 + 12; ++iteration) {
      if (iteration == 3 + 2 * 128 / bodies[b]) {
        compiles = stats_of(&f).compiles;
      }
      for (int i = 0; i < bodies[b]; ++i) {
        hr_buffer *y = make(&f);
        hr_op op = (hr_op)(HR_OP_ADD + (i * i + i / 5) % 4);
        HR_ASSERT_OK(i % 3 == 2 ? with_number(&f, op, x, 0.001 * iteration, y) : binary(&f, op, x, weight, y));
        hr_buffer_release(x);
        x = y;
      }
    }
    hr_stats stats = stats_of(&f);
    HR_ASSERT_EQ(stats.compiles, compiles);
    HR_ASSERT(stats.commits_by_limit > compiles && stats.cache_hits == stats.commits - stats.compiles);
    hr_buffer_release(x);
    hr_buffer_release(weight);
    close_fixture(&f);
  }
}

HR_TEST(the_cache_evicts_the_least_recently_used) {
  fixture f = open_fixture("null");
  f.stream->cache.limits.count = 2;
  hr_buffer *x = make_ramp(&f, 1, 0);
  static const hr_op ops[] = {HR_OP_ADD, HR_OP_MUL, HR_OP_ADD, HR_OP_SUB, HR_OP_ADD, HR_OP_MUL};
  static const int compiles[] = {1, 2, 2, 3, 3, 4};
  for (int i = 0; i < 6; ++i) {
    HR_ASSERT_OK(binary(&f, ops[i], x, x, x));
    HR_ASSERT_OK(hr_stream_synchronize(f.stream));
    HR_ASSERT_EQ(stats_of(&f).compiles, compiles[i]);
    HR_ASSERT_EQ(stats_of(&f).cache_entries, i == 0 ? 1 : 2);
  }
  hr_stream_reset_stats(f.stream);
  HR_ASSERT_EQ(stats_of(&f).compiles, 0);
  hr_buffer_release(x);
  close_fixture(&f);
}

/* ADD comes back after it was evicted, and stays from then on; so does MUL. */
HR_TEST(programs_that_come_once_evict_each_other_and_none_that_repeats) {
  fixture f = open_fixture("null");
  f.stream->cache.limits.once_bytes = 1;
  hr_buffer *x = make_ramp(&f, 1, 0);
  static const hr_op ops[] = {HR_OP_ADD, HR_OP_MUL, HR_OP_ADD, HR_OP_SUB, HR_OP_ADD, HR_OP_MUL, HR_OP_ADD, HR_OP_MUL};
  static const int compiles[] = {1, 2, 3, 4, 4, 5, 5, 5}, entries[] = {1, 1, 1, 2, 2, 2, 2, 2};
  for (int i = 0; i < 8; ++i) {
    HR_ASSERT_OK(binary(&f, ops[i], x, x, x));
    HR_ASSERT_OK(hr_stream_synchronize(f.stream));
    HR_ASSERT_EQ(stats_of(&f).compiles, compiles[i]);
    HR_ASSERT_EQ(stats_of(&f).cache_entries, entries[i]);
  }
  HR_ASSERT_EQ(f.stream->cache.once_bytes, 0);
  hr_buffer_release(x);
  close_fixture(&f);
}

HR_TEST(programs_come_in_an_order_or_in_any) {
  static const hr_op ops[] = {HR_OP_ADD, HR_OP_SUB, HR_OP_MUL, HR_OP_MAXIMUM};
  static const float expected[] = {8, 2, 15, 5};
  for (size_t entries = 1; entries <= 4; ++entries) {
    fixture f = open_fixture("cpu");
    f.stream->cache.limits.count = entries;
    hr_buffer *a = make_ramp(&f, 5, 0), *b = make_ramp(&f, 3, 0), *y = make_ramp(&f, 0, 0);
    uint32_t random = 1;
    for (int i = 0; i < 200; ++i) {
      random = random * 1664525u + 1013904223u;
      int which = i < 100 ? i % 4 : (int)(random >> 30);
      HR_ASSERT_OK(binary(&f, ops[which], a, b, y));
      HR_ASSERT_NEAR(read_at(&f, y, 7), expected[which], 0);
      HR_ASSERT(stats_of(&f).cache_entries <= (int64_t)entries);
      const hr_instance *newest = f.stream->cache.newest, *next = newest->successor;
      HR_ASSERT(i < 8 || i >= 100 || entries < 4 || (next != NULL && next != newest && next->successor != newest));
    }
    HR_ASSERT_EQ(stats_of(&f).compiles == 4, entries == 4);
    hr_buffer_release(a);
    hr_buffer_release(b);
    hr_buffer_release(y);
    close_fixture(&f);
  }
}

/* Records a chain of additions whose results are dropped; pending bytes stay below the limit. */
static void record_additions(fixture *f, int count) {
  hr_buffer *x = make_ramp(f, 1, 0);
  for (int i = 0; i < count; ++i) {
    hr_buffer *y = make(f);
    HR_ASSERT_OK(binary(f, HR_OP_ADD, x, x, y));
    hr_buffer_release(x);
    x = y;
    HR_ASSERT(f->stream->pending.pending_bytes < f->stream->policy.bytes_max);
  }
  hr_buffer_release(x);
}

HR_TEST(pending_bytes_are_bounded) {
  fixture f = open_fixture("null");
  f.stream->policy.bytes_max = 64 * COUNT * (int64_t)sizeof(float);
  record_additions(&f, 1000);
  hr_stats stats = stats_of(&f);
  HR_ASSERT(stats.commits_by_limit >= 1000 / 64 && stats.compiles <= 3);
  close_fixture(&f);
}

HR_TEST(values_as_large_as_the_limit_wait_to_be_fused) {
  fixture f = open_fixture("null");
  f.stream->policy.bytes_max = f.stream->pending.single_max = f.stream->rest.single_max =
      COUNT * (int64_t)sizeof(float);
  record_additions(&f, 100);
  HR_ASSERT_EQ(stats_of(&f).commits_by_limit, 0);
  close_fixture(&f);
}

/* ---- threads ---- */

enum { THREAD_ROUNDS = 300 };

typedef struct recorder {
  fixture f;
  hr_buffer *x, *sum;
  hr_status status;
} recorder;

/* sum += x, over a temporary, and now and then a wait. */
static void record_many(void *arg) {
  recorder *r = arg;
  for (int i = 0; i < THREAD_ROUNDS && r->status == HR_OK; ++i) {
    hr_buffer *t;
    r->status = hr_buffer_create(r->f.device, COUNT * sizeof(float), &t);
    r->status = r->status == HR_OK ? binary(&r->f, HR_OP_ADD, r->sum, r->x, t) : r->status;
    r->status = r->status == HR_OK ? with_number(&r->f, HR_OP_MUL, t, 1.0, r->sum) : r->status;
    hr_buffer_release(t);
    if (i % 5 == 3) {
      (void)hr_stream_finish_short(r->f.stream);
    }
    if (i % 50 == 17 && r->status == HR_OK) {
      r->status = hr_stream_synchronize(r->f.stream);
    }
  }
}

HR_TEST(two_threads_record_into_one_stream) {
  fixture f = open_fixture("cpu");
  f.stream->policy.records_max = 40;
  recorder recorders[2];
  hr_thread threads[2];
  for (int i = 0; i < 2; ++i) {
    recorders[i] = (recorder){.f = f, .x = make_ramp(&f, 1, 1), .sum = make_ramp(&f, 0, 0)};
  }
  for (int i = 0; i < 2; ++i) {
    HR_ASSERT_OK(hr_thread_start("recorder", record_many, &recorders[i], &threads[i]));
  }
  for (int i = 0; i < 2; ++i) {
    hr_thread_join(&threads[i]);
  }
  for (int i = 0; i < 2; ++i) {
    HR_ASSERT_OK(recorders[i].status);
    HR_ASSERT_NEAR(read_at(&f, recorders[i].sum, 4), 5 * THREAD_ROUNDS, 0);
    hr_buffer_release(recorders[i].x);
    hr_buffer_release(recorders[i].sum);
  }
  close_fixture(&f);
}

HR_TEST(two_streams_of_two_threads_share_a_buffer) {
  fixture f = open_fixture("cpu"), g = open_fixture("cpu");
  recorder recorders[2] = {{.f = f}, {.f = g}};
  hr_thread threads[2];
  hr_buffer *x = make_ramp(&f, 1, 1);
  for (int i = 0; i < 2; ++i) {
    recorders[i].x = x;
    recorders[i].sum = make_ramp(&recorders[i].f, 0, 0);
    HR_ASSERT_OK(hr_thread_start("recorder", record_many, &recorders[i], &threads[i]));
  }
  for (int i = 0; i < 2; ++i) {
    hr_thread_join(&threads[i]);
    HR_ASSERT_OK(recorders[i].status);
    HR_ASSERT_NEAR(read_at(&recorders[i].f, recorders[i].sum, 4), 5 * THREAD_ROUNDS, 0);
    hr_buffer_release(recorders[i].sum);
  }
  hr_buffer_release(x);
  close_fixture(&f);
  close_fixture(&g);
}
