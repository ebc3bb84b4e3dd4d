/* Tapes: views, in-place records, kept values, several tapes, errors, failing allocations. */
#include "base/allocator.h"
#include "core/ops/op.h"
#include "headrace/part.h"
#include "tensor_test.h"
#include "transform/tape.h"

enum { MOST = 64, TENSORS = 4 };

/* ---- tensors of f64 ---- */

static void write(const hr_tensor *x, const double *values) {
  hr_view view = hr_tensor_view(x);
  HR_ASSERT_OK(hr_stream_write(stream, &view, values));
}

static void read(const hr_tensor *x, double *values) {
  hr_view view = hr_tensor_view(x);
  HR_ASSERT_EQ(x->dtype, HR_DTYPE_F64);
  HR_ASSERT(hr_tensor_count(x) <= MOST);
  HR_ASSERT_OK(hr_stream_read(stream, &view, values));
}

/* Another view of x's buffer; borrowed. */
static hr_tensor as_strided(const hr_tensor *x, int64_t offset, int rank, const int64_t *dims, const int64_t *strides) {
  hr_tensor view = *x;
  view.rank = rank, view.offset = offset;
  for (int d = 0; d < rank; ++d) {
    view.dims[d] = dims[d], view.strides[d] = strides[d];
  }
  return view;
}
#define STRIDES(...)  \
  (const int64_t[]) { \
    __VA_ARGS__       \
  }

static void record_with(hr_op op, const hr_attrs *attrs, const hr_tensor *out, int count,
                        const hr_tensor *const *inputs) {
  hr_view views[TENSORS], output = hr_tensor_view(out);
  for (int i = 0; i < count; ++i) {
    views[i] = hr_tensor_view(inputs[i]);
  }
  HR_ASSERT_OK(hr_stream_record(stream, op, attrs, count, views, 1, &output));
}
#define ON(...)                                                                                         \
  (int)(sizeof((const hr_tensor *[]){__VA_ARGS__}) / sizeof(hr_tensor *)), (const hr_tensor *const[]) { \
    __VA_ARGS__                                                                                         \
  }
#define RECORD(op, out, ...) record_with(op, NULL, out, ON(__VA_ARGS__))

static void reduce(hr_op op, int64_t mask, const hr_tensor *out, const hr_tensor *x) {
  const hr_attrs attrs = {.int_count = 1, .ints = &mask};
  record_with(op, &attrs, out, 1, &x);
}

/* ---- programs: a number as a function of some tensors ---- */

typedef struct program {
  int count, sizes[TENSORS]; /* of the tensors, which are f64 vectors */
  /* Records; returns the result, [] */
  hr_tensor (*run)(const hr_tensor *inputs);
} program;

static double value_of(const program *p, double values[][MOST]) {
  hr_tensor inputs[TENSORS], y;
  double result;
  for (int i = 0; i < p->count; ++i) {
    inputs[i] = new_tensor(HR_DTYPE_F64, DIMS(p->sizes[i]));
    write(&inputs[i], values[i]);
  }
  y = p->run(inputs);
  read(&y, &result);
  hr_tensor_release(&y);
  for (int i = 0; i < p->count; ++i) {
    hr_tensor_release(&inputs[i]);
  }
  return result;
}

static void draw(const program *p, double values[][MOST]) {
  uint64_t state = 7;
  for (int i = 0; i < p->count; ++i) {
    for (int k = 0; k < p->sizes[i]; ++k) {
      state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
      values[i][k] = 0.2 + (double)(state >> 11) / 9007199254740992.0;
    }
  }
}

static void expect_differences(const program *p, double values[][MOST], double gradients[][MOST]) {
  for (int i = 0; i < p->count; ++i) {
    for (int k = 0; k < p->sizes[i]; ++k) {
      const double h = 1e-6, value = values[i][k];
      values[i][k] = value + h;
      double high = value_of(p, values);
      values[i][k] = value - h;
      double low = value_of(p, values);
      values[i][k] = value;
      HR_ASSERT_NEAR(gradients[i][k], (high - low) / (2 * h), 1e-7 * (1 + fabs(gradients[i][k])));
    }
  }
}

static void check(const program *p) {
  hr_tape *tape;
  double values[TENSORS][MOST], gradients[TENSORS][MOST];
  hr_tensor inputs[TENSORS], results[TENSORS], y;
  const hr_tensor *pointers[TENSORS], *end = &y;
  draw(p, values);
  for (int i = 0; i < p->count; ++i) {
    inputs[i] = new_tensor(HR_DTYPE_F64, DIMS(p->sizes[i]));
    write(&inputs[i], values[i]);
    pointers[i] = &inputs[i];
  }
  HR_ASSERT_OK(hr_tape_begin(stream, &tape));
  HR_ASSERT_OK(hr_tape_watch(tape, p->count, pointers));
  y = p->run(inputs);
  hr_tape_end(tape);
  HR_ASSERT_OK(hr_tape_gradient(tape, 1, &end, NULL, p->count, pointers, results));
  for (int i = 0; i < p->count; ++i) {
    read(&results[i], gradients[i]);
    hr_tensor_release(&results[i]);
    hr_tensor_release(&inputs[i]);
  }
  hr_tensor_release(&y);
  hr_tape_destroy(tape);
  expect_differences(p, values, gradients);
}

/* The sum of all elements of x, with weights that differ. */
static hr_tensor weighted_sum(const hr_tensor *x) {
  hr_tensor weights = new_tensor(HR_DTYPE_F64, x->rank, x->dims), products = new_tensor(HR_DTYPE_F64, x->rank, x->dims);
  hr_tensor y = new_tensor(HR_DTYPE_F64, x->rank, (const int64_t[]){1, 1, 1, 1});
  double values[MOST];
  for (int i = 0; i < MOST; ++i) {
    values[i] = 1 + 0.25 * i;
  }
  write(&weights, values);
  RECORD(HR_OP_MUL, &products, x, &weights);
  reduce(HR_OP_SUM, (INT64_C(1) << x->rank) - 1, &y, &products);
  y.rank = 0;
  hr_tensor_release(&weights);
  hr_tensor_release(&products);
  return y;
}

static hr_tensor slices_and_broadcasts(const hr_tensor *in) {
  /* x [3, 4]: rows 0 and 2 reversed, times column 1 of x, plus b [4] */
  hr_tensor rows = as_strided(&in[0], 11, 2, (const int64_t[]){2, 4}, STRIDES(-8, -1));
  hr_tensor column = as_strided(&in[0], 1, 2, (const int64_t[]){2, 1}, STRIDES(4, 1));
  hr_tensor y = new_tensor(HR_DTYPE_F64, DIMS(2, 4)), z = new_tensor(HR_DTYPE_F64, DIMS(2, 4));
  RECORD(HR_OP_MUL, &y, &rows, &column);
  RECORD(HR_OP_ADD, &z, &y, &in[1]);
  hr_tensor result = weighted_sum(&z);
  hr_tensor_release(&y);
  hr_tensor_release(&z);
  return result;
}

static hr_tensor expanded_views(const hr_tensor *in) {
  /* x [3] seen as [2, 3] with stride 0, and transposed; squared by one record of two equal views */
  hr_tensor wide = as_strided(&in[0], 0, 2, (const int64_t[]){2, 3}, STRIDES(0, 1));
  hr_tensor other = as_strided(&in[1], 0, 2, (const int64_t[]){2, 3}, STRIDES(1, 2));
  hr_tensor y = new_tensor(HR_DTYPE_F64, DIMS(2, 3)), z = new_tensor(HR_DTYPE_F64, DIMS(2, 3));
  RECORD(HR_OP_MUL, &y, &wide, &wide);
  RECORD(HR_OP_DIV, &z, &y, &other);
  hr_tensor result = weighted_sum(&z);
  hr_tensor_release(&y);
  hr_tensor_release(&z);
  return result;
}

static hr_tensor overlapping_windows(const hr_tensor *in) {
  /* windows of 3 of x [6], as they are and with leading dims of size 1 */
  hr_tensor windows = as_strided(&in[0], 0, 2, (const int64_t[]){4, 3}, STRIDES(1, 1));
  hr_tensor others = as_strided(&in[0], 1, 3, (const int64_t[]){1, 2, 3}, STRIDES(1, 2, 1));
  hr_tensor y = new_tensor(HR_DTYPE_F64, DIMS(4, 3)), z = new_tensor(HR_DTYPE_F64, DIMS(1, 2, 3));
  RECORD(HR_OP_SQUARE, &y, &windows);
  RECORD(HR_OP_EXP, &z, &others);
  hr_tensor part = as_strided(&y, 0, 3, (const int64_t[]){1, 2, 3}, STRIDES(0, 3, 1));
  RECORD(HR_OP_MUL, &part, &part, &z);
  hr_tensor result = weighted_sum(&y);
  hr_tensor_release(&y);
  hr_tensor_release(&z);
  return result;
}

static hr_tensor in_place_records(const hr_tensor *in) {
  hr_tensor h = new_tensor(HR_DTYPE_F64, DIMS(3, 4));
  hr_tensor x = as_strided(&in[0], 0, 2, (const int64_t[]){3, 4}, STRIDES(4, 1));
  RECORD(HR_OP_TANH, &h, &x);
  RECORD(HR_OP_ADD, &h, &h, &in[1]); /* broadcast */
  hr_tensor column2 = as_strided(&h, 2, 2, (const int64_t[]){3, 1}, STRIDES(4, 1));
  hr_tensor column0 = as_strided(&h, 0, 2, (const int64_t[]){3, 1}, STRIDES(4, 1));
  RECORD(HR_OP_MUL, &column2, &column2, &column0); /* by another column of the same buffer */
  hr_tensor row = as_strided(&h, 4, 1, (const int64_t[]){4}, STRIDES(1));
  RECORD(HR_OP_EXP, &row, &row);
  RECORD(HR_OP_SQUARE, &row, &row);
  hr_tensor reversed = as_strided(&h, 3, 2, (const int64_t[]){3, 4}, STRIDES(4, -1));
  RECORD(HR_OP_MUL, &h, &h, &reversed); /* reads itself, reversed */
  hr_tensor result = weighted_sum(&h);
  hr_tensor_release(&h);
  return result;
}

static hr_tensor overwritten_values(const hr_tensor *in) {
  hr_tensor h = new_tensor(HR_DTYPE_F64, DIMS(4)), y = new_tensor(HR_DTYPE_F64, DIMS(4)),
            z = new_tensor(HR_DTYPE_F64, DIMS(4));
  RECORD(HR_OP_EXP, &h, &in[0]);
  RECORD(HR_OP_MUL, &y, &h, &in[1]); /* reads h */
  RECORD(HR_OP_SIN, &h, &in[1]);     /* overwrites h, with another function */
  RECORD(HR_OP_MUL, &z, &h, &y);
  hr_tensor half = as_strided(&h, 2, 1, (const int64_t[]){2}, STRIDES(1));
  hr_tensor zero = hr_tensor_number(hr_scalar_f64(3));
  RECORD(HR_OP_COPY, &half, &zero); /* a constant: ends the gradient of a part */
  RECORD(HR_OP_MUL, &z, &z, &h);
  RECORD(HR_OP_ADD, &z, &z, &in[0]);
  write(&h, (const double[]){1, 2, 3, 4});
  RECORD(HR_OP_MUL, &z, &z, &h);
  hr_tensor result = weighted_sum(&z);
  hr_tensor_release(&h);
  hr_tensor_release(&y);
  hr_tensor_release(&z);
  return result;
}

static hr_tensor updated_input(const hr_tensor *in) { /* the input itself is changed in place */
  RECORD(HR_OP_SQUARE, &in[0], &in[0]);
  hr_tensor part = as_strided(&in[0], 1, 1, (const int64_t[]){2}, STRIDES(1));
  RECORD(HR_OP_MUL, &part, &part, &in[1]);
  return weighted_sum(&in[0]);
}

static hr_tensor ties(const hr_tensor *in) {
  /* the largest of each row of x and its copies; their gradient is divided */
  hr_tensor wide = as_strided(&in[0], 0, 2, (const int64_t[]){3, 4}, STRIDES(1, 0));
  hr_tensor y = new_tensor(HR_DTYPE_F64, DIMS(3, 1));
  reduce(HR_OP_AMAX, 2, &y, &wide);
  hr_tensor result = weighted_sum(&y);
  hr_tensor_release(&y);
  return result;
}

/* ---- records that change a part of their output ---- */

static hr_op updating;
static int64_t updating_ints[3];
static int64_t updating_index[4];
static int updating_count;

/* y = exp(x0); y is changed at places 3, 1, 3 (or those given) with values of x1; y * y */
static hr_tensor partial_updates(const hr_tensor *in) {
  hr_tensor y = new_tensor(HR_DTYPE_F64, DIMS(5)), z = new_tensor(HR_DTYPE_F64, DIMS(5));
  hr_tensor index = new_tensor(HR_DTYPE_I64, DIMS(updating_count));
  hr_view view = hr_tensor_view(&index);
  const hr_scalar alpha = hr_scalar_f64(0.5);
  const hr_attrs attrs = {.int_count = updating == HR_OP_INDEX_ADD ? 1 : 3,
                          .scalar_count = updating == HR_OP_INDEX_ADD,
                          .ints = updating_ints,
                          .scalars = &alpha};
  HR_ASSERT_OK(hr_stream_write(stream, &view, updating_index));
  RECORD(HR_OP_EXP, &y, &in[0]);
  if (updating == HR_OP_INDEX_PUT) {
    record_with(updating, &attrs, &y, ON(&in[1], &index));
  } else {
    record_with(updating, &attrs, &y, ON(&index, &in[1]));
  }
  RECORD(HR_OP_SQUARE, &z, &y);
  hr_tensor result = weighted_sum(&z);
  hr_tensor_release(&y);
  hr_tensor_release(&z);
  hr_tensor_release(&index);
  return result;
}

static void check_update(hr_op op, int64_t a, int64_t b, int64_t c, int values) {
  updating = op;
  updating_ints[0] = a, updating_ints[1] = b, updating_ints[2] = c;
  updating_count = 3;
  updating_index[0] = 3, updating_index[1] = 1, updating_index[2] = 3; /* twice the same: the last one stays */
  check(&(const program){2, {5, values}, partial_updates});
}

HR_TEST(records_that_change_a_part_keep_the_gradient_of_the_rest) {
  check_update(HR_OP_INDEX_PUT, 1, 0, 0, 3);
  check_update(HR_OP_INDEX_PUT, 1, 0, 1, 3);
  check_update(HR_OP_INDEX_PUT, 1, 0, 0, 1); /* one value for all places */
  check_update(HR_OP_INDEX_PUT, 1, 0, 1, 1);
  check_update(HR_OP_SCATTER, 0, 0, 0, 3);
  check_update(HR_OP_SCATTER, 0, 1, 0, 3);
  check_update(HR_OP_SCATTER, 0, 1, 0, 4); /* more values than places */
  check_update(HR_OP_INDEX_ADD, 0, 0, 0, 3);
}

static hr_tensor constant_update(const hr_tensor *in) {
  hr_tensor y = new_tensor(HR_DTYPE_F64, DIMS(5)), index = new_tensor(HR_DTYPE_I64, DIMS(2)),
            values = new_tensor(HR_DTYPE_F64, DIMS(2));
  hr_view view = hr_tensor_view(&index);
  const int64_t ints[3] = {1, 0, 0};
  const hr_attrs attrs = {.int_count = 3, .ints = ints};
  HR_ASSERT_OK(hr_stream_write(stream, &view, (const int64_t[]){4, 0}));
  write(&values, (const double[]){7, 8});
  RECORD(HR_OP_EXP, &y, &in[0]);
  record_with(HR_OP_INDEX_PUT, &attrs, &y, ON(&values, &index));
  hr_tensor result = weighted_sum(&y);
  hr_tensor_release(&y);
  hr_tensor_release(&index);
  hr_tensor_release(&values);
  return result;
}

HR_TEST(constants_change_a_part) {
  check(&(const program){1, {5}, constant_update});
}

HR_TEST(views_need_no_rules) {
  check(&(const program){2, {12, 4}, slices_and_broadcasts});
  check(&(const program){2, {3, 6}, expanded_views});
  check(&(const program){1, {6}, overlapping_windows});
  check(&(const program){1, {3}, ties});
}

HR_TEST(in_place_records_need_no_rules) {
  check(&(const program){2, {12, 4}, in_place_records});
  check(&(const program){2, {4, 4}, overwritten_values});
  check(&(const program){2, {4, 2}, updated_input});
}

/* ---- lists ---- */

static hr_tensor lists(const hr_tensor *in) {
  /* (a, b) *= (b, a): first a, then b */
  hr_tensor a = new_tensor(HR_DTYPE_F64, DIMS(3)), b = new_tensor(HR_DTYPE_F64, DIMS(3));
  RECORD(HR_OP_EXP, &a, &in[0]);
  RECORD(HR_OP_COPY, &b, &in[1]);
  hr_view inputs[4] = {hr_tensor_view(&a), hr_tensor_view(&b), hr_tensor_view(&b), hr_tensor_view(&a)},
          outputs[2] = {hr_tensor_view(&a), hr_tensor_view(&b)};
  HR_ASSERT_OK(hr_stream_record(stream, HR_OP_MUL, NULL, 4, inputs, 2, outputs));
  RECORD(HR_OP_SUB, &a, &a, &in[0]);
  RECORD(HR_OP_MUL, &a, &a, &b);
  hr_tensor result = weighted_sum(&a);
  hr_tensor_release(&a);
  hr_tensor_release(&b);
  return result;
}

HR_TEST(lists_are_records_of_their_elements) {
  check(&(const program){2, {3, 3}, lists});
}

/* ---- several tapes ---- */

/* The gradient of the sum of f over x, on a tape of its own. */
static hr_tensor slope(hr_functional f, const hr_tensor *x) {
  hr_tape *tape;
  hr_tensor y, gradient;
  const hr_tensor *end = &y;
  HR_ASSERT_OK(hr_tape_begin(stream, &tape));
  HR_ASSERT_OK(hr_tape_watch(tape, 1, &x));
  HR_ASSERT_OK(hr_functional_apply(stream, f, 1, &x, 0, NULL, 1, &y));
  HR_ASSERT_OK(hr_tape_gradient(tape, 1, &end, NULL, 1, &x, &gradient));
  hr_tape_destroy(tape);
  hr_tensor_release(&y);
  return gradient;
}

static hr_functional tested;

static hr_tensor sum_of_slopes(const hr_tensor *in) {
  hr_tensor gradient = slope(tested, &in[0]), result = weighted_sum(&gradient);
  hr_tensor_release(&gradient);
  return result;
}

HR_TEST(second_derivatives) {
  static const hr_functional functions[] = {HR_FUNCTIONAL_SQUARE,
                                            HR_FUNCTIONAL_SQRT,
                                            HR_FUNCTIONAL_RSQRT,
                                            HR_FUNCTIONAL_RECIPROCAL,
                                            HR_FUNCTIONAL_EXP,
                                            HR_FUNCTIONAL_LOG,
                                            HR_FUNCTIONAL_SIN,
                                            HR_FUNCTIONAL_TAN,
                                            HR_FUNCTIONAL_TANH,
                                            HR_FUNCTIONAL_SIGMOID,
                                            HR_FUNCTIONAL_SILU,
                                            HR_FUNCTIONAL_GELU,
                                            HR_FUNCTIONAL_ERF,
                                            HR_FUNCTIONAL_LGAMMA,
                                            HR_FUNCTIONAL_RELU,
                                            HR_FUNCTIONAL_PROD,
                                            HR_FUNCTIONAL_MEAN,
                                            HR_FUNCTIONAL_STD,
                                            HR_FUNCTIONAL_CUMULATIVE_PROD,
                                            HR_FUNCTIONAL_SOFTMAX,
                                            HR_FUNCTIONAL_LOGSUMEXP};
  for (size_t i = 0; i < sizeof functions / sizeof *functions; ++i) {
    tested = functions[i];
    check(&(const program){1, {3}, sum_of_slopes});
  }
}

static hr_tensor third_of_sine(const hr_tensor *in) {
  hr_tape *tape;
  const hr_tensor *x = &in[0];
  HR_ASSERT_OK(hr_tape_begin(stream, &tape));
  HR_ASSERT_OK(hr_tape_watch(tape, 1, &x));
  hr_tensor first = slope(HR_FUNCTIONAL_SIN, x), second;
  const hr_tensor *end = &first;
  HR_ASSERT_OK(hr_tape_gradient(tape, 1, &end, NULL, 1, &x, &second));
  hr_tape_destroy(tape);
  hr_tensor result = weighted_sum(&second);
  hr_tensor_release(&first);
  hr_tensor_release(&second);
  return result;
}

HR_TEST(third_derivatives) {
  check(&(const program){1, {3}, third_of_sine});
}

/* The gradient of sum(y^3), where y is a layer norm of x by a tape that gets mean and deviation too. */
static hr_tensor slopes_of_layer_norm(const hr_tensor *in) {
  hr_tape *tape;
  hr_tensor y, square, cube, gradient;
  hr_tensor x = as_strided(&in[0], 0, 2, (const int64_t[]){2, 4}, STRIDES(4, 1));
  const hr_tensor *watched = &x, *three[3] = {&x, &in[1], NULL}, *end = &cube, *once[1] = {&y},
                  *both[2] = {&square, &y};
  HR_ASSERT_OK(hr_tape_begin(stream, &tape));
  HR_ASSERT_OK(hr_tape_watch(tape, 1, &watched));
  HR_ASSERT_OK(hr_functional_apply(stream, HR_FUNCTIONAL_LAYER_NORM, 3, three, 0, NULL, 1, &y));
  HR_ASSERT_OK(hr_functional_apply(stream, HR_FUNCTIONAL_SQUARE, 1, once, 0, NULL, 1, &square));
  HR_ASSERT_OK(hr_functional_apply(stream, HR_FUNCTIONAL_MULTIPLY, 2, both, 0, NULL, 1, &cube));
  HR_ASSERT_OK(hr_tape_gradient(tape, 1, &end, NULL, 1, &watched, &gradient));
  hr_tape_destroy(tape);
  hr_tensor result = weighted_sum(&gradient);
  hr_tensor_release(&y);
  hr_tensor_release(&square);
  hr_tensor_release(&cube);
  hr_tensor_release(&gradient);
  return result;
}

HR_TEST(second_derivatives_through_outputs_that_a_tape_adds) {
  check(&(const program){2, {8, 4}, slopes_of_layer_norm});
}

/* The first tape keeps the copies that the second one makes of overwritten values. */
static hr_tensor slopes_in_place(const hr_tensor *in) {
  hr_tape *tape;
  const hr_tensor *x = &in[0];
  hr_tensor h = new_tensor(HR_DTYPE_F64, DIMS(3)), y = new_tensor(HR_DTYPE_F64, DIMS(3)), gradient;
  const hr_tensor *end = &y;
  HR_ASSERT_OK(hr_tape_begin(stream, &tape));
  HR_ASSERT_OK(hr_tape_watch(tape, 1, &x));
  RECORD(HR_OP_EXP, &h, x);
  RECORD(HR_OP_MUL, &y, &h, x);
  RECORD(HR_OP_SIN, &h, x);
  RECORD(HR_OP_MUL, &y, &y, &h);
  hr_tape_end(tape);
  HR_ASSERT_OK(hr_tape_gradient(tape, 1, &end, NULL, 1, &x, &gradient));
  hr_tape_destroy(tape);
  hr_tensor result = weighted_sum(&gradient);
  hr_tensor_release(&h);
  hr_tensor_release(&y);
  hr_tensor_release(&gradient);
  return result;
}

HR_TEST(second_derivatives_of_overwritten_values) {
  check(&(const program){1, {3}, slopes_in_place});
}

/* ---- what is kept ---- */

HR_TEST(a_tape_retains_what_rules_read) {
  hr_tape *tape;
  hr_tensor x = new_tensor(HR_DTYPE_F64, DIMS(4)), a = new_tensor(HR_DTYPE_F64, DIMS(4)),
            b = new_tensor(HR_DTYPE_F64, DIMS(4));
  const hr_tensor *in = &x;
  write(&x, (const double[]){1, 2, 3, 4});
  HR_ASSERT_OK(hr_tape_begin(stream, &tape));
  HR_ASSERT_OK(hr_tape_watch(tape, 1, &in));
  const hr_tensor two = hr_tensor_number(hr_scalar_f64(2));
  RECORD(HR_OP_MUL, &a, &x, &two);
  HR_ASSERT_EQ(tape->kept.count, 0); /* the number is kept, the input is not needed */
  RECORD(HR_OP_TANH, &b, &a);
  HR_ASSERT_EQ(tape->kept.count, 1);
  HR_ASSERT_NULL(hr_table_get(&tape->kept, hr_buffer_serial(a.buffer)));
  HR_ASSERT_NOT_NULL(hr_table_get(&tape->kept, hr_buffer_serial(b.buffer)));
  size_t count = tape->records.count;
  RECORD(HR_OP_GT, &a, &b, &x); /* overwrites a, which is active */
  HR_ASSERT_EQ(tape->records.count, count + 1);
  hr_tensor other = new_tensor(HR_DTYPE_F64, DIMS(4));
  RECORD(HR_OP_COPY, &other, &two); /* depends on nothing */
  HR_ASSERT_EQ(tape->records.count, count + 1);
  hr_tape_destroy(tape);
  hr_tensor_release(&x);
  hr_tensor_release(&a);
  hr_tensor_release(&b);
  hr_tensor_release(&other);
}

HR_TEST(intermediate_values_can_be_watched) {
  hr_tape *tape;
  hr_tensor x = new_tensor(HR_DTYPE_F64, DIMS(2)), h = new_tensor(HR_DTYPE_F64, DIMS(2)),
            y = new_tensor(HR_DTYPE_F64, DIMS(2));
  const hr_tensor *in[2] = {&x, &h}, *end = &y;
  hr_tensor gradients[2];
  double values[2];
  write(&x, (const double[]){1, 2});
  HR_ASSERT_OK(hr_tape_begin(stream, &tape));
  HR_ASSERT_OK(hr_tape_watch(tape, 1, &in[0]));
  RECORD(HR_OP_SQUARE, &h, &x);
  HR_ASSERT_OK(hr_tape_watch(tape, 1, &in[1]));
  RECORD(HR_OP_SQUARE, &h, &h); /* in place, after it was watched */
  RECORD(HR_OP_COPY, &y, &h);
  HR_ASSERT_OK(hr_tape_gradient(tape, 1, &end, NULL, 2, in, gradients));
  read(&gradients[0], values);
  HR_ASSERT_NEAR(values[0], 4, 1e-12);
  HR_ASSERT_NEAR(values[1], 32, 1e-12);
  read(&gradients[1], values);
  HR_ASSERT_NEAR(values[0], 2, 1e-12);
  HR_ASSERT_NEAR(values[1], 8, 1e-12);
  hr_tape_destroy(tape);
  hr_tensor_release(&gradients[0]);
  hr_tensor_release(&gradients[1]);
  hr_tensor_release(&x);
  hr_tensor_release(&h);
  hr_tensor_release(&y);
}

HR_TEST(gradients_of_constants_are_zeros) {
  hr_tape *tape;
  hr_tensor x = new_tensor(HR_DTYPE_F64, DIMS(2)), y = new_tensor(HR_DTYPE_F64, DIMS(2)), gradient;
  const hr_tensor *in = &x, *end = &y;
  double values[2];
  write(&x, (const double[]){1, 2});
  write(&y, (const double[]){1, 2});
  HR_ASSERT_OK(hr_tape_begin(stream, &tape));
  HR_ASSERT_OK(hr_tape_watch(tape, 1, &in));
  HR_ASSERT_OK(hr_tape_gradient(tape, 1, &end, NULL, 1, &in, &gradient));
  read(&gradient, values);
  HR_ASSERT(values[0] == 0 && values[1] == 0);
  hr_tensor_release(&gradient);
  RECORD(HR_OP_FLOOR, &y, &x); /* constant between steps */
  HR_ASSERT_OK(hr_tape_gradient(tape, 1, &end, NULL, 1, &in, &gradient));
  read(&gradient, values);
  HR_ASSERT(values[0] == 0 && values[1] == 0);
  hr_tensor_release(&gradient);
  end = &x; /* of itself */
  HR_ASSERT_OK(hr_tape_gradient(tape, 1, &end, NULL, 1, &in, &gradient));
  read(&gradient, values);
  HR_ASSERT(values[0] == 1 && values[1] == 1);
  hr_tensor_release(&gradient);
  hr_tape_destroy(tape);
  hr_tensor_release(&x);
  hr_tensor_release(&y);
}

/* ---- dtypes ---- */

HR_TEST(gradients_have_the_dtype_of_their_inputs) {
  static const hr_dtype dtypes[] = {HR_DTYPE_F16, HR_DTYPE_BF16, HR_DTYPE_F32, HR_DTYPE_F64};
  for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; ++i) {
    hr_tape *tape;
    hr_tensor w = new_tensor(HR_DTYPE_F64, DIMS(4)), x, y, gradient, wide;
    const hr_tensor *from = &w, *in = &x, *both[2] = {&x, &w}, *end = &y, *result = &gradient;
    hr_attribute dtype = {.kind = HR_ATTRIBUTE_DTYPE, .value = {.dtype = dtypes[i]}};
    hr_attribute f64 = {.kind = HR_ATTRIBUTE_DTYPE, .value = {.dtype = HR_DTYPE_F64}};
    double values[4];
    write(&w, (const double[]){0.5, -1, 2, 0.25});
    HR_ASSERT_OK(hr_functional_apply(stream, HR_FUNCTIONAL_ASTYPE, 1, &from, 1, &dtype, 1, &x));
    HR_ASSERT_OK(hr_tape_begin(stream, &tape));
    HR_ASSERT_OK(hr_tape_watch(tape, 1, &in));
    HR_ASSERT_OK(hr_functional_apply(stream, HR_FUNCTIONAL_MULTIPLY, 2, both, 0, NULL, 1, &y)); /* f64 */
    HR_ASSERT_OK(hr_tape_gradient(tape, 1, &end, NULL, 1, &in, &gradient));
    HR_ASSERT_EQ(gradient.dtype, dtypes[i]);
    HR_ASSERT_OK(hr_functional_apply(stream, HR_FUNCTIONAL_ASTYPE, 1, &result, 1, &f64, 1, &wide));
    read(&wide, values);
    HR_ASSERT(values[0] == 0.5 && values[1] == -1 && values[2] == 2 && values[3] == 0.25);
    hr_tape_destroy(tape);
    hr_tensor_release(&w);
    hr_tensor_release(&x);
    hr_tensor_release(&y);
    hr_tensor_release(&gradient);
    hr_tensor_release(&wide);
  }
}

/* L = |z|^2 / 2: the gradient is z itself; of the real numbers that z shares memory with, too. */
HR_TEST(complex_gradients_are_steps_of_ascent) {
  hr_tape *tape;
  hr_tensor parts = new_tensor(HR_DTYPE_F64, DIMS(2, 2)), size = new_tensor(HR_DTYPE_F64, DIMS(2)),
            y = new_tensor(HR_DTYPE_F64, DIMS(2)), gradient;
  hr_tensor z = as_strided(&parts, 0, 1, (const int64_t[]){2}, STRIDES(1));
  z.dtype = HR_DTYPE_C128;
  const hr_tensor *in = &parts, *end = &y, half = hr_tensor_number(hr_scalar_f64(0.5));
  double values[4];
  write(&parts, (const double[]){3, 4, -1, 0.5});
  HR_ASSERT_OK(hr_tape_begin(stream, &tape));
  HR_ASSERT_OK(hr_tape_watch(tape, 1, &in));
  RECORD(HR_OP_ABS_COMPLEX, &size, &z);
  RECORD(HR_OP_SQUARE, &y, &size);
  RECORD(HR_OP_MUL, &y, &y, &half);
  HR_ASSERT_OK(hr_tape_gradient(tape, 1, &end, NULL, 1, &in, &gradient));
  read(&gradient, values);
  HR_ASSERT_NEAR(values[0], 3, 1e-12);
  HR_ASSERT_NEAR(values[1], 4, 1e-12);
  HR_ASSERT_NEAR(values[2], -1, 1e-12);
  HR_ASSERT_NEAR(values[3], 0.5, 1e-12);
  hr_tape_destroy(tape);
  hr_tensor_release(&parts);
  hr_tensor_release(&size);
  hr_tensor_release(&y);
  hr_tensor_release(&gradient);
}

HR_TEST(empty_tensors_have_empty_gradients) {
  hr_tape *tape;
  hr_tensor x = new_tensor(HR_DTYPE_F64, DIMS(0, 3)), b = new_tensor(HR_DTYPE_F64, DIMS(3)),
            y = new_tensor(HR_DTYPE_F64, DIMS(0, 3));
  const hr_tensor *in[2] = {&x, &b}, *end = &y;
  hr_tensor gradients[2];
  double values[3];
  write(&b, (const double[]){1, 2, 3});
  HR_ASSERT_OK(hr_tape_begin(stream, &tape));
  HR_ASSERT_OK(hr_tape_watch(tape, 2, in));
  RECORD(HR_OP_MUL, &y, &x, &b);
  HR_ASSERT_OK(hr_tape_gradient(tape, 1, &end, NULL, 2, in, gradients));
  HR_ASSERT_EQ(hr_tensor_count(&gradients[0]), 0);
  read(&gradients[1], values);
  HR_ASSERT(values[0] == 0 && values[1] == 0 && values[2] == 0);
  hr_tape_destroy(tape);
  hr_tensor_release(&gradients[0]);
  hr_tensor_release(&gradients[1]);
  hr_tensor_release(&x);
  hr_tensor_release(&b);
  hr_tensor_release(&y);
}

/* ---- errors ---- */

HR_TEST(wrong_calls_are_errors) {
  hr_tape *tape;
  hr_tensor x = new_tensor(HR_DTYPE_F64, DIMS(2)), n = new_tensor(HR_DTYPE_I64, DIMS(2)),
            y = new_tensor(HR_DTYPE_F64, DIMS(2));
  hr_tensor two = hr_tensor_number(hr_scalar_f64(2)), gradient;
  const hr_tensor *in = &x, *integers = &n, *number = &two, *end = &y, *nothing = NULL;
  write(&x, (const double[]){0.3, 0.4});
  HR_ASSERT_OK(hr_tape_begin(stream, &tape));
  HR_ASSERT_ERROR(hr_tape_watch(tape, 1, &integers), HR_STATUS_INVALID_ARGUMENT, "tensor 0 is i64");
  HR_ASSERT_ERROR(hr_tape_watch(tape, 1, &number), HR_STATUS_INVALID_ARGUMENT, "without a buffer");
  HR_ASSERT_ERROR(hr_tape_watch(tape, 1, &nothing), HR_STATUS_INVALID_ARGUMENT, "tensor 0 is absent");
  HR_ASSERT_OK(hr_tape_watch(tape, 1, &in));
  RECORD(HR_OP_AIRY_AI, &y, &x);
  HR_ASSERT_ERROR(hr_tape_gradient(tape, 1, &integers, NULL, 1, &in, &gradient), HR_STATUS_INVALID_ARGUMENT,
                  "output 0 is i64");
  HR_ASSERT_ERROR(hr_tape_gradient(tape, 1, &end, NULL, 1, &end, &gradient), HR_STATUS_INVALID_ARGUMENT,
                  "input 0 is not watched");
  HR_ASSERT_ERROR(hr_tape_gradient(tape, 1, &end, NULL, 1, &in, &gradient), HR_STATUS_UNIMPLEMENTED,
                  "airy_ai has no gradient by input 0: no row computes");
  hr_tensor product;
  HR_ASSERT_ERROR(hr_tape_product(tape, 1, &in, &in, 1, &integers, &product), HR_STATUS_INVALID_ARGUMENT,
                  "output 0 is i64");
  HR_ASSERT_ERROR(hr_tape_product(tape, 1, &end, &in, 1, &end, &product), HR_STATUS_INVALID_ARGUMENT,
                  "input 0 is not watched");
  HR_ASSERT_ERROR(hr_tape_product(tape, 1, &in, &integers, 1, &end, &product), HR_STATUS_INVALID_ARGUMENT,
                  "tangent 0 is not a floating tensor");
  HR_ASSERT_ERROR(hr_tape_product(tape, 1, &in, &in, 1, &end, &product), HR_STATUS_UNIMPLEMENTED,
                  "airy_ai has no gradient by input 0: no row computes");
  const hr_tensor *seed = &n;
  n.dims[0] = 3;
  HR_ASSERT_ERROR(hr_tape_gradient(tape, 1, &end, &seed, 1, &in, &gradient), HR_STATUS_INVALID_ARGUMENT,
                  "dims [3] can't be broadcast to [2]");
  hr_view view = hr_tensor_view(&x), integer = hr_tensor_view(&y);
  HR_ASSERT_STATUS(hr_stream_record(stream, HR_OP_BIT_AND, NULL, 1, &view, 1, &integer), HR_STATUS_INVALID_ARGUMENT);
  HR_ASSERT_STATUS(hr_stream_record(stream, HR_OP_COUNT, NULL, 1, &view, 1, &integer), HR_STATUS_INVALID_ARGUMENT);
  RECORD(HR_OP_SIN, &y, &x); /* the tape goes on */
  HR_ASSERT_OK(hr_tape_gradient(tape, 1, &end, NULL, 1, &in, &gradient));
  hr_tensor_release(&gradient);
  hr_tape_destroy(tape);
  hr_tape_destroy(NULL);
  hr_tensor_release(&x);
  hr_tensor_release(&n);
  hr_tensor_release(&y);
}

HR_TEST(what_is_no_record_is_rejected) {
  hr_tape *tape;
  hr_stream *capture;
  hr_part *part;
  open_stream();
  HR_ASSERT_OK(hr_capture_create(device, &capture));
  const hr_part_spec spec = {0};
  HR_ASSERT_OK(hr_part_create(capture, &spec, &part));
  HR_ASSERT_OK(hr_tape_begin(stream, &tape));
  HR_ASSERT_ERROR(hr_part_run(stream, part, NULL, NULL, NULL), HR_STATUS_UNIMPLEMENTED, "part: the stream has a tape");
  hr_tape_destroy(tape);
  HR_ASSERT_OK(hr_part_run(stream, part, NULL, NULL, NULL));
  hr_part_release(part);
  hr_stream_release(capture);
}

/* ---- memory ---- */

static hr_status record_one(hr_op op, const hr_tensor *a, const hr_tensor *b, const hr_tensor *out) {
  hr_view inputs[2] = {hr_tensor_view(a), hr_tensor_view(b)}, output = hr_tensor_view(out);
  return hr_stream_record(stream, op, NULL, hr_op_table(op)->arity, inputs, 1, &output);
}

static hr_tensor oom_x, oom_y;

static hr_status record_and_differentiate(hr_tape *tape) {
  hr_tensor gradient = {0};
  const hr_tensor *in = &oom_x, *end = &oom_y;
  hr_tensor windows = as_strided(&oom_x, 0, 2, (const int64_t[]){2, 2}, STRIDES(1, 1));
  hr_tensor part = as_strided(&oom_y, 0, 2, (const int64_t[]){2, 2}, STRIDES(2, 1));
  HR_RETURN_IF_ERROR(hr_tape_watch(tape, 1, &in));
  HR_RETURN_IF_ERROR(record_one(HR_OP_MUL, &windows, &windows, &part));
  HR_RETURN_IF_ERROR(record_one(HR_OP_TANH, &oom_y, &oom_y, &oom_y));
  HR_RETURN_IF_ERROR(record_one(HR_OP_MUL, &oom_y, &oom_y, &oom_y));
  HR_RETURN_IF_ERROR(hr_tape_gradient(tape, 1, &end, NULL, 1, &in, &gradient));
  hr_tensor_release(&gradient);
  hr_tensor size;
  HR_RETURN_IF_ERROR(hr_functional_apply(stream, HR_FUNCTIONAL_LOGSUMEXP, 1, &end, 0, NULL, 1, &size));
  const hr_tensor *ends[2] = {&oom_y, &size};
  hr_tensor products[2];
  hr_status status = hr_tape_product(tape, 1, &in, &in, 2, ends, products);
  for (int i = 0; status == HR_OK && i < 2; ++i) {
    hr_tensor_release(&products[i]);
  }
  hr_tensor_release(&size);
  return status;
}

static hr_status tape_all(void) {
  hr_tape *tape;
  HR_RETURN_IF_ERROR(hr_tape_begin(stream, &tape));
  hr_status status = record_and_differentiate(tape);
  hr_tape_destroy(tape);
  return status;
}

/* Every allocation fails once. The stream has no hook afterwards, and records as before. */
HR_TEST(failing_allocations_leave_the_stream_without_a_tape) {
  oom_x = new_tensor(HR_DTYPE_F64, DIMS(3)), oom_y = new_tensor(HR_DTYPE_F64, DIMS(4));
  write(&oom_x, (const double[]){1, 2, 3});
  HR_ASSERT_OK(tape_all());
  for (int64_t n = 0;; ++n) {
    hr__allocator_fail_after(n);
    hr_status status = tape_all();
    int64_t failures = hr__allocator_failures();
    hr__allocator_fail_after(-1);
    if (status != HR_OK) {
      HR_ASSERT_STATUS(status, HR_STATUS_RESOURCE_EXHAUSTED);
    }
    HR_ASSERT_OK(hr_stream_synchronize(stream));
    if (failures == 0) {
      break;
    }
  }
  HR_ASSERT_OK(tape_all());
  hr_tensor_release(&oom_x);
  hr_tensor_release(&oom_y);
}
