/* Parts: running one gives the results of recording its operations, and operations that can't be part of one are
 * refused.
 */
#include "hr_test.h"

#include "base/arena.h"
#include "base/thread.h"
#include "engine/stream.h"
#include "headrace/part.h"

enum { COUNT = 64 };
#include "vectors.h"

typedef struct fixture {
  hr_device *device;
  hr_stream *stream, *capture;
} fixture;

static fixture open_fixture(void) {
  fixture f;
  HR_ASSERT_OK(hr_device_open("cpu", &f.device));
  HR_ASSERT_OK(hr_stream_create(f.device, &f.stream));
  HR_ASSERT_OK(hr_capture_create(f.device, &f.capture));
  hr_stream_set_mode(f.stream, HR_MODE_FUSE);
  return f;
}

static void close_fixture(fixture *f) {
  hr_stream_release(f->capture);
  hr_stream_release(f->stream);
  hr_device_release(f->device);
}

static hr_buffer *make(const fixture *f) {
  return make_vector(f->device);
}

static hr_buffer *make_filled(const fixture *f, hr_stream *stream, float value) {
  float values[COUNT];
  hr_buffer *buffer = make(f);
  hr_view view = view_of(buffer);
  for (int i = 0; i < COUNT; ++i) {
    values[i] = value;
  }
  HR_ASSERT_OK(hr_stream_write(stream, &view, values));
  return buffer;
}

static hr_status binary(hr_stream *stream, hr_op op, hr_buffer *a, hr_buffer *b, hr_buffer *out) {
  hr_view inputs[2] = {view_of(a), view_of(b)}, output = view_of(out);
  return hr_stream_record(stream, op, NULL, 2, inputs, 1, &output);
}

static hr_status add_number(hr_stream *stream, hr_buffer *a, double value, hr_buffer *out) {
  hr_scalar scalar = hr_scalar_f64(value);
  hr_view inputs[2] = {view_of(a), {.scalar = &scalar, .dtype = scalar.dtype}}, output = view_of(out);
  return hr_stream_record(stream, HR_OP_ADD, NULL, 2, inputs, 1, &output);
}

static float first_of(hr_stream *stream, hr_buffer *buffer) {
  float values[COUNT];
  hr_view view = view_of(buffer);
  HR_ASSERT_OK(hr_stream_read(stream, &view, values));
  return values[0];
}

/* (a + number) * b, and then b += a: two parameters, a temporary, a result, a number that each run passes. */
static hr_status capture_example(const fixture *f, hr_part **out_part) {
  hr_buffer *a = make(f), *b = make(f), *sum = make(f), *result = make(f), *params[2] = {a, b};
  hr_status status = add_number(f->capture, a, 3, sum);
  int64_t number = hr_capture_scalar_count(f->capture) - 1;
  hr_part_spec spec = {.param_count = 2,
                       .result_count = 1,
                       .argument_count = 1,
                       .params = params,
                       .results = &result,
                       .arguments = &number};
  status = status == HR_OK ? binary(f->capture, HR_OP_MUL, sum, b, result) : status;
  status = status == HR_OK ? binary(f->capture, HR_OP_ADD, a, b, b) : status;
  if (status == HR_OK) {
    HR_ASSERT_EQ(hr_capture_buffer_count(f->capture), 4);
    HR_ASSERT_EQ(hr_capture_scalar(f->capture, number).value.f[0] == 3, true);
    HR_ASSERT_EQ(hr_capture_scalar(f->capture, number + 1).dtype, HR_DTYPE_BOOL);
    HR_ASSERT(hr_capture_buffer(f->capture, 1) == sum && hr_capture_buffer(f->capture, 4) == NULL);
    HR_ASSERT(hr_capture_uses(f->capture, b) && !hr_buffer_has_memory(b));
  }
  status = status == HR_OK ? hr_part_create(f->capture, &spec, out_part) : status;
  hr_buffer_release(a);
  hr_buffer_release(b);
  hr_buffer_release(sum);
  hr_buffer_release(result);
  return status;
}

HR_TEST(a_part_runs_again_with_other_buffers_and_numbers) {
  static const hr_mode modes[] = {HR_MODE_FUSE, HR_MODE_EAGER, HR_MODE_STRICT};
  for (size_t m = 0; m < 3; ++m) {
    fixture f = open_fixture();
    hr_part *part;
    HR_ASSERT_OK(capture_example(&f, &part));
    HR_ASSERT_EQ(hr_part_record_count(part), 3);
    HR_ASSERT_EQ(hr_part_param_use(part, 0), HR_PART_READS);
    HR_ASSERT_EQ(hr_part_param_use(part, 1), HR_PART_READS | HR_PART_WRITES);
    HR_ASSERT_EQ(hr_part_param_use(part, 2), 0);
    hr_stream_set_mode(f.stream, modes[m]);
    for (int i = 0; i < 3; ++i) {
      hr_buffer *params[2] = {make_filled(&f, f.stream, 1), make_filled(&f, f.stream, 2)}, *result = make(&f);
      hr_scalar number = hr_scalar_f64(i);
      HR_ASSERT_OK(add_number(f.stream, params[0], 10, params[0])); /* pending before it: a = 11 */
      HR_ASSERT_OK(hr_part_run(f.stream, part, params, &result, &number));
      HR_ASSERT_OK(add_number(f.stream, result, 1, result)); /* and after it */
      HR_ASSERT(first_of(f.stream, result) == (float)(11 + i) * 2 + 1);
      HR_ASSERT(first_of(f.stream, params[1]) == 13);
      hr_buffer_release(params[0]);
      hr_buffer_release(params[1]);
      hr_buffer_release(result);
    }
    hr_stats stats;
    hr_stream_stats(f.stream, &stats);
    HR_ASSERT_EQ(stats.operations, 3 * 5);
    HR_ASSERT(modes[m] != HR_MODE_FUSE || (stats.compiles == 1 && stats.cache_hits == 2));
    hr_part_release(part);
    close_fixture(&f);
  }
}

/* ---- early submit ---- */

enum { SIDE = 8 };

/* (a + a) times a, both matrices of 8 x 8. */
static void capture_product(const fixture *f, hr_part **out_part) {
  static const int64_t square[2] = {SIDE, SIDE}, rows[2] = {SIDE, 1};
  hr_buffer *a = make(f), *sum = make(f), *product = make(f);
  hr_view views[3] = {view_of(sum), view_of(a), view_of(product)};
  for (int i = 0; i < 3; ++i) {
    views[i].rank = 2, views[i].dims = square, views[i].strides = rows;
  }
  hr_part_spec spec = {.param_count = 1, .result_count = 1, .params = &a, .results = &product};
  HR_ASSERT_OK(binary(f->capture, HR_OP_ADD, a, a, sum));
  HR_ASSERT_OK(hr_stream_record(f->capture, HR_OP_MATMUL, NULL, 2, views, 1, &views[2]));
  HR_ASSERT_OK(hr_part_create(f->capture, &spec, out_part));
  hr_buffer_release(a);
  hr_buffer_release(sum);
  hr_buffer_release(product);
}

/* Commits of a stream beside the host after an early submit of a part with one result; *out_left is the number of
 * operations left. */
static int64_t begin_early(fixture *f, const hr_part *part, size_t *out_left) {
  hr_stats before, after;
  hr_buffer *a = make_filled(f, f->stream, 1), *param = make(f), *result = make(f);
  hr_stream_stats(f->stream, &before);
  HR_ASSERT_OK(add_number(f->stream, a, 1, param));
  HR_ASSERT_OK(hr_part_run(f->stream, part, &param, &result, NULL));
  hr_buffer_release(param); /* dies in the submitted work */
  hr_part_submit_early(f->stream, part);
  *out_left = f->stream->pending.records.count;
  hr_stream_stats(f->stream, &after);
  HR_ASSERT_OK(add_number(f->stream, result, 1, result));
  HR_ASSERT(first_of(f->stream, result) == 2 * 2 * 2 * SIDE + 1);
  hr_buffer_release(a);
  hr_buffer_release(result);
  return after.commits_by_limit - before.commits_by_limit;
}

HR_TEST(an_offer_hands_over_all_but_a_large_result) {
  fixture f = open_fixture();
  hr_part *part, *without;
  size_t left;
  capture_product(&f, &part);
  HR_ASSERT_OK(capture_example(&f, &without));
  HR_ASSERT_EQ(begin_early(&f, part, &left), 0); /* nothing is submitted early on the CPU */
  HR_ASSERT_EQ(left, 3);
  for (int turn = 0; turn < 3; ++turn) {
    hr_stats before, after;
    f.stream->policy.first_ops = f.stream->policy.next_ops = 4;
    f.stream->policy.large_bytes = COUNT * sizeof(float);
    HR_ASSERT_EQ(begin_early(&f, part, &left), 1);
    HR_ASSERT_EQ(left, 1);
    ++f.stream->policy.large_bytes;
    hr_stream_stats(f.stream, &before);
    HR_ASSERT_EQ(begin_early(&f, part, &left), 1);
    HR_ASSERT_EQ(left, 0);
    hr_stream_stats(f.stream, &after);
    HR_ASSERT(turn == 0 || after.compiles == before.compiles);
    f.stream->policy.next_ops = 4,
    f.stream->policy.first_ops = 1; /* not the first since a wait, and three are less than four */
    HR_ASSERT_EQ(begin_early(&f, part, &left), 0);
    HR_ASSERT_EQ(left, 3);
  }
  f.stream->policy.large_bytes = 0;
  f.stream->policy.first_ops = f.stream->policy.next_ops = 1;
  hr_part_submit_early(f.stream, without); /* there is nothing to submit */
  HR_ASSERT_EQ(f.stream->pending.records.count, 0);
  hr_part_release(part);
  hr_part_release(without);
  close_fixture(&f);
}

HR_TEST(a_capture_holds_temporaries_alone) {
  fixture f = open_fixture();
  hr_buffer *a = make_filled(&f, f.stream, 1), *sum = make(&f);
  HR_ASSERT_OK(add_number(f.capture, a, 3, sum));
  HR_ASSERT(!hr_capture_holds_alone(f.capture, 0) && !hr_capture_holds_alone(f.capture, 1));
  hr_buffer_release(sum);
  HR_ASSERT(!hr_capture_holds_alone(f.capture, 0) && hr_capture_holds_alone(f.capture, 1));
  HR_ASSERT(!hr_capture_holds_alone(f.capture, 2) && !hr_capture_holds_alone(f.capture, -1));
  hr_buffer_release(a);
  close_fixture(&f);
}

/* True if the temporary of capture_example, buffer 1 of its part, is a buffer. */
static bool has_temporary(hr_stream *stream, const hr_part *part) {
  HR_ASSERT_EQ(stream->pending.records.count, (size_t)hr_part_record_count(part));
  return stream->pending.buffers.data[1] != NULL;
}

/* Checks the results of the example for a = 1, b = 2 and the number 3. */
static void check_example(hr_stream *stream, hr_buffer *b, hr_buffer *result) {
  HR_ASSERT(first_of(stream, result) == 8);
  HR_ASSERT(first_of(stream, b) == 3);
}

/* With two streams a device's jobs are put in order by the memory that they use. */
HR_TEST(temporaries_of_a_run_are_no_buffers) {
  fixture f = open_fixture();
  hr_stream *other;
  HR_ASSERT_OK(hr_stream_create(f.device, &other));
  hr_part *part;
  HR_ASSERT_OK(capture_example(&f, &part));
  hr_buffer *params[2] = {make_filled(&f, f.stream, 1), make_filled(&f, other, 2)}, *result = make(&f);
  hr_scalar number = hr_scalar_f64(3);
  HR_ASSERT_OK(hr_part_run(f.stream, part, params, &result, &number));
  HR_ASSERT(!has_temporary(f.stream, part));
  check_example(other, params[1], result);
  hr_buffer_release(params[0]);
  hr_buffer_release(params[1]);
  hr_buffer_release(result);
  hr_part_release(part);
  hr_stream_release(other);
  close_fixture(&f);
}

HR_TEST(a_trace_may_be_cut_inside_of_a_part) {
  for (size_t count = 1; count <= 3; ++count) {
    fixture f = open_fixture();
    hr_part *part;
    HR_ASSERT_OK(capture_example(&f, &part));
    hr_buffer *params[2] = {make_filled(&f, f.stream, 1), make_filled(&f, f.stream, 2)}, *result = make(&f);
    hr_scalar number = hr_scalar_f64(3);
    HR_ASSERT_OK(hr_part_run(f.stream, part, params, &result, &number));
    hr_mutex_lock(&f.stream->mutex);
    HR_ASSERT_OK(hr__stream_commit(f.stream, count, HR_COMMIT_LIMIT, false));
    HR_ASSERT_EQ(f.stream->pending.records.count, 3 - count);
    hr_mutex_unlock(&f.stream->mutex);
    check_example(f.stream, params[1], result);
    hr_buffer_release(params[0]);
    hr_buffer_release(params[1]);
    hr_buffer_release(result);
    hr_part_release(part);
    close_fixture(&f);
  }
}

HR_TEST(a_part_may_be_run_in_a_capture) {
  fixture f = open_fixture();
  hr_part *part, *outer;
  HR_ASSERT_OK(capture_example(&f, &part));
  hr_buffer *params[2] = {make(&f), make(&f)}, *result = make(&f);
  hr_scalar number = hr_scalar_f64(3);
  HR_ASSERT_OK(hr_part_run(f.capture, part, params, &result, &number));
  HR_ASSERT(has_temporary(f.capture, part) && hr_capture_holds_alone(f.capture, 1));
  const hr_part_spec spec = {.param_count = 2, .result_count = 1, .params = params, .results = &result};
  HR_ASSERT_OK(hr_part_create(f.capture, &spec, &outer));
  hr_buffer *filled[2] = {make_filled(&f, f.stream, 1), make_filled(&f, f.stream, 2)}, *product = make(&f);
  HR_ASSERT_OK(hr_part_run(f.stream, outer, filled, &product, NULL));
  check_example(f.stream, filled[1], product);
  for (int i = 0; i < 2; ++i) {
    hr_buffer_release(params[i]);
    hr_buffer_release(filled[i]);
  }
  hr_buffer_release(result);
  hr_buffer_release(product);
  hr_part_release(part);
  hr_part_release(outer);
  close_fixture(&f);
}

/* A `cat` may take over the memory of a piece that dies, but not if its result is a temporary. */
HR_TEST(a_temporary_may_be_a_cat_of_a_buffer_that_dies) {
  fixture f = open_fixture();
  const int64_t dims[1] = {COUNT + 1}, strides[1] = {1}, one[1] = {1}, dim = 0;
  hr_buffer *piece = make(&f), *last = make(&f), *all, *sum = make(&f);
  HR_ASSERT_OK(hr_buffer_create(f.device, (COUNT + 1) * sizeof(float), &all));
  hr_view pieces[2] = {view_of(piece), {.buffer = last, .dtype = HR_DTYPE_F32, .rank = 1, .dims = one, .strides = one}};
  hr_view joined = {.buffer = all, .dtype = HR_DTYPE_F32, .rank = 1, .dims = dims, .strides = strides},
          out = view_of(sum);
  const hr_attrs attrs = {.int_count = 1, .ints = &dim};
  HR_ASSERT_OK(hr_stream_record(f.capture, HR_OP_CAT, &attrs, 2, pieces, 1, &joined));
  joined.dims = view_of(sum).dims, joined.offset = 1;
  HR_ASSERT_OK(hr_stream_record(f.capture, HR_OP_COPY, NULL, 1, &joined, 1, &out));
  hr_buffer *params[2] = {piece, last};
  const hr_part_spec spec = {.param_count = 2, .result_count = 1, .params = params, .results = &sum};
  hr_part *part;
  HR_ASSERT_OK(hr_part_create(f.capture, &spec, &part));
  for (int i = 0; i < 3; ++i) {
    hr_buffer *filled[2] = {make_filled(&f, f.stream, 1), make_filled(&f, f.stream, 7)}, *result = make(&f);
    HR_ASSERT_OK(hr_part_run(f.stream, part, filled, &result, NULL));
    hr_buffer_release(filled[0]);
    hr_buffer_release(filled[1]);
    float values[COUNT];
    hr_view view = view_of(result);
    HR_ASSERT_OK(hr_stream_read(f.stream, &view, values));
    HR_ASSERT(values[0] == 1 && values[COUNT - 1] == 7);
    hr_buffer_release(result);
  }
  hr_buffer_release(piece);
  hr_buffer_release(last);
  hr_buffer_release(all);
  hr_buffer_release(sum);
  hr_part_release(part);
  close_fixture(&f);
}

HR_TEST(one_buffer_may_be_several_parameters) {
  fixture f = open_fixture();
  hr_part *part;
  HR_ASSERT_OK(capture_example(&f, &part));
  hr_buffer *a = make_filled(&f, f.stream, 2), *params[2] = {a, a}, *result = make(&f);
  hr_scalar number = hr_scalar_f64(1);
  HR_ASSERT_OK(hr_part_run(f.stream, part, params, &result, &number));
  HR_ASSERT(first_of(f.stream, result) == 6);
  HR_ASSERT(first_of(f.stream, a) == 4);
  hr_buffer_release(a);
  hr_buffer_release(result);
  hr_part_release(part);
  close_fixture(&f);
}

HR_TEST(buffers_written_during_a_capture_are_constants) {
  fixture f = open_fixture();
  hr_buffer *constant = make_filled(&f, f.capture, 5), *a = make(&f), *sum = make(&f), *result = make(&f);
  HR_ASSERT_OK(binary(f.capture, HR_OP_ADD, a, constant, result));
  hr_part_spec spec = {.param_count = 1, .result_count = 1, .params = &a, .results = &result};
  hr_part *part;
  HR_ASSERT_OK(hr_part_create(f.capture, &spec, &part));
  hr_buffer_release(constant); /* the part keeps it */
  hr_buffer *param = make_filled(&f, f.stream, 1);
  HR_ASSERT_OK(hr_part_run(f.stream, part, &param, &sum, NULL));
  HR_ASSERT(first_of(f.stream, sum) == 6);
  hr_buffer_release(param);
  hr_buffer_release(a);
  hr_buffer_release(sum);
  hr_buffer_release(result);
  hr_part_release(part);
  close_fixture(&f);
}

/* Sums of no rows, which nothing has written, are 0. */
HR_TEST(a_buffer_without_elements_need_not_be_written) {
  fixture f = open_fixture();
  hr_buffer *none, *sum = make(&f), *result = make(&f);
  HR_ASSERT_OK(hr_buffer_create(f.device, 0, &none));
  static const int64_t mask = 1, none_dims[2] = {0, COUNT}, sum_dims[2] = {1, COUNT}, strides[2] = {COUNT, 1};
  const hr_view rows = {.buffer = none, .dtype = HR_DTYPE_F32, .rank = 2, .dims = none_dims, .strides = strides};
  const hr_view output = {.buffer = sum, .dtype = HR_DTYPE_F32, .rank = 2, .dims = sum_dims, .strides = strides};
  const hr_attrs attrs = {.int_count = 1, .ints = &mask};
  HR_ASSERT_OK(hr_stream_record(f.capture, HR_OP_SUM, &attrs, 1, &rows, 1, &output));
  hr_part_spec spec = {.result_count = 1, .results = &sum};
  hr_part *part;
  HR_ASSERT_OK(hr_part_create(f.capture, &spec, &part));
  HR_ASSERT_OK(hr_part_run(f.stream, part, NULL, &result, NULL));
  HR_ASSERT(first_of(f.stream, result) == 0);
  hr_buffer_release(none);
  hr_buffer_release(sum);
  hr_buffer_release(result);
  hr_part_release(part);
  close_fixture(&f);
}

HR_TEST(a_capture_rejects_operations_that_need_a_value) {
  fixture f = open_fixture();
  hr_buffer *a = make(&f);
  float values[COUNT];
  void *address;
  hr_view view = view_of(a);
  HR_ASSERT_OK(add_number(f.capture, a, 1, a));
  HR_ASSERT_STATUS(hr_stream_read(f.capture, &view, values), HR_STATUS_FAILED_PRECONDITION);
  HR_ASSERT_STATUS(hr_stream_address(f.capture, a, &address), HR_STATUS_FAILED_PRECONDITION);
  HR_ASSERT_STATUS(hr_stream_synchronize(f.capture), HR_STATUS_FAILED_PRECONDITION);
  HR_ASSERT_STATUS(hr_stream_commit(f.capture), HR_STATUS_FAILED_PRECONDITION);
  hr_buffer_release(a);
  close_fixture(&f);
}

HR_TEST(invalid_parts_are_rejected_and_the_capture_stays) {
  fixture f = open_fixture();
  hr_part *part;
  hr_buffer *a = make(&f), *b = make(&f), *constant = make_filled(&f, f.stream, 1);
  hr_buffer *twice[2] = {a, a}, *both[2] = {a, b};
  int64_t far = 7;
  HR_ASSERT_OK(binary(f.capture, HR_OP_ADD, a, b, b));
  hr_part_spec only_a = {.param_count = 1, .params = &a}, same = {.param_count = 2, .params = twice};
  hr_part_spec is_param = {.param_count = 2, .params = both, .result_count = 1, .results = &b};
  hr_part_spec no_scalar = {.param_count = 2, .params = both, .argument_count = 1, .arguments = &far};
  hr_part_spec good = {.param_count = 2, .params = both};
  HR_ASSERT_STATUS(hr_part_create(f.capture, &only_a, &part), HR_STATUS_FAILED_PRECONDITION); /* b has no contents */
  HR_ASSERT_STATUS(hr_part_create(f.capture, &same, &part), HR_STATUS_INVALID_ARGUMENT);
  HR_ASSERT_STATUS(hr_part_create(f.capture, &is_param, &part), HR_STATUS_INVALID_ARGUMENT);
  HR_ASSERT_STATUS(hr_part_create(f.capture, &no_scalar, &part), HR_STATUS_OUT_OF_RANGE);
  HR_ASSERT_STATUS(hr_part_create(f.stream, &good, &part), HR_STATUS_INVALID_ARGUMENT);
  HR_ASSERT_OK(hr_part_create(f.capture, &good, &part));
  hr_part_release(part);
  HR_ASSERT_OK(binary(f.capture, HR_OP_ADD, a, constant, constant));
  HR_ASSERT_STATUS(hr_part_create(f.capture, &good, &part), HR_STATUS_FAILED_PRECONDITION);
  hr_buffer_release(a);
  hr_buffer_release(b);
  hr_buffer_release(constant);
  close_fixture(&f);
}

HR_TEST(a_run_refuses_buffers_and_numbers_that_do_not_fit) {
  fixture f = open_fixture();
  hr_part *part;
  HR_ASSERT_OK(capture_example(&f, &part));
  hr_buffer *a = make_filled(&f, f.stream, 1), *result = make(&f), *small;
  HR_ASSERT_OK(hr_buffer_create(f.device, 16, &small));
  hr_buffer *good[2] = {a, a}, *missing[2] = {a, NULL}, *too_small[2] = {a, small};
  hr_scalar number = hr_scalar_f64(1), other_kind = hr_scalar_i64(1);
  HR_ASSERT_STATUS(hr_part_run(f.stream, part, missing, &result, &number), HR_STATUS_INVALID_ARGUMENT);
  HR_ASSERT_STATUS(hr_part_run(f.stream, part, too_small, &result, &number), HR_STATUS_INVALID_ARGUMENT);
  HR_ASSERT_STATUS(hr_part_run(f.stream, part, good, &result, &other_kind), HR_STATUS_INVALID_ARGUMENT);
  HR_ASSERT_OK(hr_part_run(f.stream, part, good, &result, &number));
  HR_ASSERT_OK(hr_stream_synchronize(f.stream));
  hr_buffer_release(a);
  hr_buffer_release(small);
  hr_buffer_release(result);
  hr_part_release(part);
  close_fixture(&f);
}

/* An index out of range in a part: older contents are intact, and the part runs again. */
/* ---- programs that are always waited for ---- */

enum { WIDTH = 256 };
static const int64_t row_dims[2] = {1, WIDTH}, square_dims[2] = {WIDTH, WIDTH}, square_strides[2] = {WIDTH, 1};
static const int64_t column_strides[2] = {1, WIDTH};

static hr_buffer *make_floats(const fixture *f, int count, float value) {
  hr_buffer *buffer;
  int64_t length = count, one = 1;
  float *values = malloc((size_t)count * sizeof *values);
  HR_ASSERT_OK(hr_buffer_create(f->device, (size_t)count * sizeof(float), &buffer));
  hr_view view = {.buffer = buffer, .dtype = HR_DTYPE_F32, .rank = 1, .dims = &length, .strides = &one};
  for (int i = 0; i < count; ++i) {
    values[i] = value * (float)(i % 7 - 3);
  }
  HR_ASSERT_OK(hr_stream_write(f->stream, &view, values));
  free(values);
  return buffer;
}

/* relu(x w) w, with the columns of w in memory: enough for two threads. */
static hr_part *capture_products(const fixture *f) {
  enum { X, W, HIDDEN, POSITIVE, Y, COUNTED };
  hr_buffer *b[COUNTED];
  hr_view v[COUNTED];
  hr_part *part;
  for (int i = 0; i < COUNTED; ++i) {
    size_t count = i == W ? WIDTH * WIDTH : WIDTH;
    HR_ASSERT_OK(hr_buffer_create(f->device, count * sizeof(float), &b[i]));
    v[i] = (hr_view){.buffer = b[i], .dtype = HR_DTYPE_F32, .rank = 2};
    v[i].dims = i == W ? square_dims : row_dims, v[i].strides = i == W ? column_strides : square_strides;
  }
  hr_view first[2] = {v[X], v[W]}, second[2] = {v[POSITIVE], v[W]};
  HR_ASSERT_OK(hr_stream_record(f->capture, HR_OP_MATMUL, NULL, 2, first, 1, &v[HIDDEN]));
  HR_ASSERT_OK(hr_stream_record(f->capture, HR_OP_RELU, NULL, 1, &v[HIDDEN], 1, &v[POSITIVE]));
  HR_ASSERT_OK(hr_stream_record(f->capture, HR_OP_MATMUL, NULL, 2, second, 1, &v[Y]));
  hr_part_spec spec = {.param_count = 2, .result_count = 1, .params = b, .results = &b[Y]};
  HR_ASSERT_OK(hr_part_create(f->capture, &spec, &part));
  for (int i = 0; i < COUNTED; ++i) {
    hr_buffer_release(b[i]);
  }
  return part;
}

static void read_row(const fixture *f, hr_buffer *buffer, float *out) {
  hr_view view = {.buffer = buffer, .dtype = HR_DTYPE_F32, .rank = 2, .dims = row_dims, .strides = square_strides};
  HR_ASSERT_OK(hr_stream_read(f->stream, &view, out));
}

static hr_buffer *run_products(const fixture *f, const hr_part *part, hr_buffer *const *params) {
  hr_buffer *result;
  HR_ASSERT_OK(hr_buffer_create(f->device, WIDTH * sizeof(float), &result));
  HR_ASSERT_OK(hr_part_run(f->stream, part, params, &result, NULL));
  return result;
}

/* Runs and waits until a run is begun ahead of the wait; false when none was in some seconds. */
static bool wait_until_begun(const fixture *f, const hr_part *part, hr_buffer *const *params, const float *expected) {
  bool is_begun = false;
  float actual[WIDTH];
  for (int64_t end = hr_clock_ns() + INT64_C(5000000000); !is_begun && hr_clock_ns() < end;) {
    hr_buffer *result = run_products(f, part, params);
    is_begun = f->stream->policy.awaited.is_begun;
    HR_ASSERT(f->stream->pending.records.count == (is_begun ? 0 : 3));
    read_row(f, result, actual);
    HR_ASSERT(memcmp(actual, expected, sizeof actual) == 0);
    hr_buffer_release(result);
  }
  return is_begun;
}

/* The bits are those of a run without early submit; later work sees the results of an early run. */
HR_TEST(programs_that_are_always_waited_for_begin_early) {
  fixture f = open_fixture();
  float expected[WIDTH], actual[WIDTH];
  hr_thread_count_set(2);
  hr_part *part = capture_products(&f);
  hr_buffer *params[2] = {make_floats(&f, WIDTH, 0.5f), make_floats(&f, WIDTH * WIDTH, 0.25f)};
  hr_buffer *result = run_products(&f, part, params);
  read_row(&f, result, expected);
  hr_buffer_release(result);
  for (int round = 0; round < 4 && hr_core_count() > 1; ++round) {
    HR_ASSERT(round > 1 || wait_until_begun(&f, part, params, expected));
    int wanted = f.stream->policy.awaited.wanted;
    hr_stats before, after;
    hr_stream_stats(f.stream, &before);
    result = run_products(&f, part, params);
    HR_ASSERT(f.stream->policy.awaited.is_begun == (round < 2));
    hr_buffer *other = make_floats(&f, WIDTH, 1);
    hr_view row = {.buffer = result, .dtype = HR_DTYPE_F32, .rank = 2, .dims = row_dims, .strides = square_strides};
    hr_view first[2] = {row, row};
    if (round == 0) { /* the host goes on */
      HR_ASSERT_OK(hr_stream_record(f.stream, HR_OP_ADD, NULL, 2, first, 1, &row));
    } else if (round == 1) { /* the parameter changes after the run */
      row.buffer = first[0].buffer = first[1].buffer = params[0];
      HR_ASSERT_OK(hr_stream_record(f.stream, HR_OP_SUB, NULL, 2, first, 1, &row));
    } else if (round == 2) { /* no wait and no read */
      hr_buffer_release(result);
      result = run_products(&f, part, params);
    }
    read_row(&f, result, actual);
    for (int i = 0; i < WIDTH; ++i) {
      float factor = round == 0 ? 2.0f : round < 2 ? 1.0f : 0.0f;
      HR_ASSERT(actual[i] == factor * expected[i]);
    }
    HR_ASSERT_EQ(f.stream->policy.awaited.wanted, round < 2 ? 2 * wanted : wanted);
    hr_stream_stats(f.stream, &after);
    HR_ASSERT_EQ(after.operations - before.operations, round == 2 ? 6 : round == 3 ? 3 : 4);
    hr_buffer_release(other);
    hr_buffer_release(result);
  }
  hr_part_release(part);
  hr_buffer_release(params[0]);
  hr_buffer_release(params[1]);
  hr_thread_count_set(0);
  close_fixture(&f);
}

HR_TEST(a_failing_part_changes_nothing_older) {
  fixture f = open_fixture();
  static const int64_t one[1] = {1}, bad_index = 1000, good_index = 3, ints[1] = {0};
  hr_buffer *table = make(&f), *index, *picked, *params[2];
  HR_ASSERT_OK(hr_buffer_create(f.device, sizeof(int64_t), &index));
  HR_ASSERT_OK(hr_buffer_create(f.device, sizeof(float), &picked));
  hr_view inputs[2] = {view_of(table),
                       {.buffer = index, .dtype = HR_DTYPE_I64, .rank = 1, .dims = one, .strides = vector_strides}};
  hr_view output = {.buffer = picked, .dtype = HR_DTYPE_F32, .rank = 1, .dims = one, .strides = vector_strides};
  hr_attrs attrs = {.int_count = 1, .ints = ints};
  HR_ASSERT_OK(hr_stream_record(f.capture, HR_OP_INDEX_SELECT, &attrs, 2, inputs, 1, &output));
  HR_ASSERT_OK(add_number(f.capture, table, 1, table));
  params[0] = table;
  params[1] = index;
  hr_part_spec spec = {.param_count = 2, .params = params, .result_count = 1, .results = &picked};
  hr_part *part;
  HR_ASSERT_OK(hr_part_create(f.capture, &spec, &part));
  hr_buffer *real = make_filled(&f, f.stream, 7), *real_index, *out;
  HR_ASSERT_OK(hr_buffer_create(f.device, sizeof(int64_t), &real_index));
  HR_ASSERT_OK(hr_buffer_create(f.device, sizeof(float), &out));
  hr_view where = {.buffer = real_index, .dtype = HR_DTYPE_I64, .rank = 1, .dims = one, .strides = vector_strides};
  hr_buffer *given[2] = {real, real_index};
  HR_ASSERT_OK(hr_stream_write(f.stream, &where, &bad_index));
  HR_ASSERT_OK(hr_part_run(f.stream, part, given, &out, NULL));
  HR_ASSERT_STATUS(hr_stream_synchronize(f.stream), HR_STATUS_OUT_OF_RANGE);
  HR_ASSERT(first_of(f.stream, real) == 7);
  HR_ASSERT_OK(hr_stream_write(f.stream, &where, &good_index));
  hr_buffer_release(out);
  HR_ASSERT_OK(hr_buffer_create(f.device, sizeof(float), &out));
  HR_ASSERT_OK(hr_part_run(f.stream, part, given, &out, NULL));
  HR_ASSERT_OK(hr_stream_synchronize(f.stream));
  HR_ASSERT(first_of(f.stream, real) == 8);
  hr_buffer *all[] = {table, index, picked, real, real_index, out};
  for (size_t i = 0; i < sizeof all / sizeof all[0]; ++i) {
    hr_buffer_release(all[i]);
  }
  hr_part_release(part);
  close_fixture(&f);
}

/* Capture, run and read; any failing host allocation is reported, and nothing is half done. */
static hr_status use(float *out_value) {
  fixture f = {0};
  hr_part *part = NULL;
  hr_buffer *a = NULL, *b = NULL, *result = NULL;
  float values[COUNT] = {1};
  hr_scalar number = hr_scalar_f64(2);
  hr_status status = hr_device_open("cpu", &f.device);
  status = status == HR_OK ? hr_stream_create(f.device, &f.stream) : status;
  status = status == HR_OK ? hr_capture_create(f.device, &f.capture) : status;
  status = status == HR_OK ? capture_example(&f, &part) : status;
  status = status == HR_OK ? hr_buffer_create(f.device, sizeof values, &a) : status;
  status = status == HR_OK ? hr_buffer_create(f.device, sizeof values, &b) : status;
  status = status == HR_OK ? hr_buffer_create(f.device, sizeof values, &result) : status;
  if (status == HR_OK) {
    hr_buffer *params[2] = {a, b};
    hr_view in = view_of(a), other = view_of(b), out = view_of(result);
    status = hr_stream_write(f.stream, &in, values);
    status = status == HR_OK ? hr_stream_write(f.stream, &other, values) : status;
    status = status == HR_OK ? hr_part_run(f.stream, part, params, &result, &number) : status;
    status = status == HR_OK ? hr_stream_read(f.stream, &out, values) : status;
    *out_value = values[0];
  }
  hr_buffer_release(a);
  hr_buffer_release(b);
  hr_buffer_release(result);
  hr_part_release(part);
  hr_stream_release(f.capture);
  hr_stream_release(f.stream);
  hr_device_release(f.device);
  return status;
}

HR_TEST(failing_host_allocations_are_reported) {
  float value = 0;
  HR_ASSERT_OK(use(&value)); /* makes all that lives as long as the process */
  hr_arena_forget();
  int64_t live = hr__allocator_live();
  for (int n = 0; n < 2000; ++n) {
    hr__allocator_fail_after(n);
    hr_status status = use(&value);
    int64_t failures = hr__allocator_failures();
    hr__allocator_fail_after(-1);
    bool failed = status != HR_OK;
    hr_status_ignore(status);
    HR_ASSERT(failed || value == 3);
    hr_arena_forget();
    HR_ASSERT_EQ(hr__allocator_live(), live);
    if (failures == 0) {
      return;
    }
  }
  HR_FAIL("allocations never stopped failing");
}
