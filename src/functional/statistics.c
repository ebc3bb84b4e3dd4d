/* statistics.c: reductions of several records: without NaN, norms, quantiles, differences. */
#include <math.h>

#include "functional/formula.h"

enum { AXIS = 0, KEEPDIMS = 1, EXTRA = 2 };

/* Gives the reduced tensor, whose dims of the mask have size 1. */
static hr_status finish(hr__formula *f, const hr_tensor *x, uint32_t mask) {
  bool is_kept = hr__int_attribute(f->call, KEEPDIMS) != 0;
  return hr__formula_end(f, is_kept ? x : hr__without(f, x, mask));
}

static void begin(hr__formula *f, const hr__function_call *c, uint32_t *mask) {
  hr__formula_begin(f, c);
  *mask = 0;
  hr__formula_fail(f, hr__axes_attribute(c, AXIS, c->inputs[0]->rank, mask));
}

hr_status hr__emit_count_nonzero(const hr__function_call *c) {
  hr__formula f;
  uint32_t mask;
  begin(&f, c, &mask);
  return finish(&f, hr__along(&f, HR_OP_SUM, hr__binary(&f, HR_OP_NE, c->inputs[0], hr__integer(&f, 0)), mask), mask);
}

hr_status hr__emit_ptp(const hr__function_call *c) {
  hr__formula f;
  uint32_t mask;
  begin(&f, c, &mask);
  if (hr_dtype_is_complex(c->inputs[0]->dtype)) {
    const hr_tensor *largest = hr__best_complex(&f, mask, true, true);
    return hr__formula_end(&f, hr__binary(&f, HR_OP_SUB, largest, hr__best_complex(&f, mask, false, true)));
  }
  const hr_tensor *most = hr__along(&f, HR_OP_AMAX, c->inputs[0], mask);
  return finish(&f, hr__binary(&f, HR_OP_SUB, most, hr__along(&f, HR_OP_AMIN, c->inputs[0], mask)), mask);
}

/* ---- without NaN ---- */

static const hr_tensor *are_nan(hr__formula *f) {
  const hr_tensor *x = f->call->inputs[0];
  return hr__binary(f, HR_OP_NE, x, x);
}

static const hr_tensor *replaced(hr__formula *f, const hr_tensor *are, double number) {
  const hr_tensor *x = f->call->inputs[0];
  return hr_dtype_is_integer(x->dtype) ? x : hr__ternary(f, HR_OP_WHERE, are, hr__real(f, number), x);
}

hr_status hr__emit_nan_reduce(const hr__function_call *c) {
  hr__formula f;
  uint32_t mask;
  begin(&f, c, &mask);
  const hr_tensor *x = replaced(&f, are_nan(&f), c->row->op == HR_OP_PROD ? 1 : 0);
  return finish(&f, hr__along(&f, c->row->op, x, mask), mask);
}

/* NaN if all are NaN; of complex numbers the first one then. */
hr_status hr__emit_nan_best(const hr__function_call *c) {
  hr__formula f;
  uint32_t mask;
  begin(&f, c, &mask);
  if (hr_dtype_is_complex(c->inputs[0]->dtype)) {
    return hr__formula_end(&f, hr__best_complex(&f, mask, c->row->op == HR_OP_AMAX, false));
  }
  const hr_tensor *are = are_nan(&f), *x = replaced(&f, are, c->row->op == HR_OP_AMAX ? -INFINITY : INFINITY);
  const hr_tensor *best = hr__along(&f, c->row->op, x, mask);
  if (!hr_dtype_is_integer(c->inputs[0]->dtype)) {
    best = hr__ternary(&f, HR_OP_WHERE, hr__along(&f, HR_OP_ALL, are, mask), hr__real(&f, NAN), best);
  }
  return finish(&f, best, mask);
}

/* The count of numbers, in i64. */
static const hr_tensor *counted(hr__formula *f, const hr_tensor *are, uint32_t mask) {
  return hr__along(f, HR_OP_SUM, hr__unary(f, HR_OP_LOGICAL_NOT, are), mask);
}

static const hr_tensor *mean_of_numbers(hr__formula *f, const hr_tensor *are, uint32_t mask) {
  return hr__binary(f, HR_OP_DIV, hr__along(f, HR_OP_SUM, replaced(f, are, 0), mask), counted(f, are, mask));
}

hr_status hr__emit_nan_mean(const hr__function_call *c) {
  hr__formula f;
  uint32_t mask;
  begin(&f, c, &mask);
  return finish(&f, mean_of_numbers(&f, are_nan(&f), mask), mask);
}

hr_status hr__emit_nan_variance(const hr__function_call *c) {
  hr__formula f;
  uint32_t mask;
  begin(&f, c, &mask);
  const hr_tensor *are = are_nan(&f), *mean = mean_of_numbers(&f, are, mask);
  const hr_tensor *distance = hr__binary(&f, HR_OP_SUB, replaced(&f, are, 0), mean);
  distance = hr__ternary(&f, HR_OP_WHERE, are, hr__integer(&f, 0), distance);
  const hr_tensor *sum = hr__along(&f, HR_OP_SUM, hr__unary(&f, HR_OP_SQUARE, distance), mask);
  const hr_tensor *count =
      hr__binary(&f, HR_OP_SUB, counted(&f, are, mask), hr__number(&f, hr__real_attribute(c, EXTRA)));
  count = hr__binary(&f, HR_OP_MAXIMUM, count, hr__integer(&f, 0)); /* too few are NaN */
  const hr_tensor *variance = hr__binary(&f, HR_OP_DIV, sum, count);
  return finish(&f, c->row->op == HR_OP_SQRT ? hr__unary(&f, HR_OP_SQRT, variance) : variance, mask);
}

/* ---- norms ---- */

/* The row's kind of an order: 0 for any. */
static int kind_of(double order) {
  return order == 0 ? 1 : order == 1 ? 2 : order == 2 ? 3 : isinf(order) ? (order > 0 ? 4 : 5) : 0;
}

hr_status hr__emit_vector_norm(const hr__function_call *c) {
  hr__formula f;
  uint32_t mask;
  begin(&f, c, &mask);
  hr_scalar order = hr__real_attribute(c, EXTRA);
  double p = hr_scalar_as_f64(&order);
  order = hr_scalar_f64(p);
  const int64_t ints[2] = {mask, kind_of(p)};
  hr_attrs attrs = {.int_count = 2, .scalar_count = 1, .ints = ints, .scalars = &order};
  const hr_tensor *x = c->inputs[0];
  x = hr_dtype_is_integer(x->dtype) ? hr__as_dtype(&f, x, HR_DTYPE_F32) : x;
  return finish(&f, hr__step(&f, HR_OP_NORM, &attrs, 1, &x, HR_DTYPE_NONE), mask);
}

/* ---- along one axis ---- */

/* Running sums or products, behind their neutral number if that is wanted. */
hr_status hr__emit_cumulative(const hr__function_call *c) {
  enum { ALONG, HAS_INITIAL, DTYPE };
  const hr_tensor *x = c->inputs[0];
  int64_t dims[HR_RANK_MAX];
  int axis;
  HR_RETURN_IF_ERROR(hr__check_axis(c, hr__int_attribute(c, ALONG), x->rank, &axis));
  hr__formula f;
  hr__formula_begin(&f, c);
  const hr_tensor *y = hr__along_as(&f, c->row->op, x, axis, hr__sum_dtype(c, DTYPE));
  if (hr__int_attribute(c, HAS_INITIAL) == 0) {
    return hr__formula_end(&f, y);
  }
  hr__copy_dims(x->rank, x->dims, dims);
  dims[axis] = 1;
  const hr_tensor *first = hr__integer(&f, c->row->op == HR_OP_CUMPROD);
  const hr_tensor *both[2] = {hr__copied(&f, first, y->dtype, x->rank, dims), y};
  return hr__formula_end(&f, hr__along_pair(&f, HR_OP_CAT, both, axis));
}

hr_status hr__emit_diff(const hr__function_call *c) {
  enum { TIMES, ALONG };
  const hr_tensor *x = c->inputs[0];
  int64_t times = hr__int_attribute(c, TIMES);
  int axis;
  HR_RETURN_IF_ERROR(hr__check_axis(c, hr__int_attribute(c, ALONG), x->rank, &axis));
  if (times < 0 || times > 8) {
    return HR__CALL_FAIL(c, "n is %lld, expected 0 to 8", (long long)times);
  }
  hr_op op = x->dtype == HR_DTYPE_BOOL ? HR_OP_LOGICAL_XOR : HR_OP_SUB;
  hr__formula f;
  hr__formula_begin(&f, c);
  for (; times > 0 && !hr__formula_failed(&f); --times) {
    int64_t rest = x->dims[axis] > 0 ? x->dims[axis] - 1 : 0;
    x = hr__binary(&f, op, hr__part(&f, x, axis, 1, rest), hr__part(&f, x, axis, 0, rest));
  }
  return hr__formula_end(&f, x);
}

hr_status hr__emit_trapezoid(const hr__function_call *c) {
  enum { STEP, ALONG };
  const hr_tensor *x = c->inputs[0];
  int axis;
  HR_RETURN_IF_ERROR(hr__check_axis(c, hr__int_attribute(c, ALONG), x->rank, &axis));
  hr__formula f;
  hr__formula_begin(&f, c);
  int64_t rest = x->dims[axis] > 0 ? x->dims[axis] - 1 : 0;
  const hr_tensor *sum = hr__binary(&f, HR_OP_ADD, hr__part(&f, x, axis, 1, rest), hr__part(&f, x, axis, 0, rest));
  sum = hr__reduced(&f, HR_OP_SUM, hr__binary(&f, HR_OP_MUL, sum, hr__real(&f, 0.5)), 1u << axis);
  return hr__formula_end(&f, hr__binary(&f, HR_OP_MUL, sum, hr__number(&f, hr__real_attribute(c, STEP))));
}

/* The library row works on the last dim of row-major tensors. */
hr_status hr__emit_running(const hr__function_call *c) {
  const hr_tensor *x = c->inputs[0];
  int axis;
  HR_RETURN_IF_ERROR(hr__check_axis(c, hr__int_attribute(c, 0), x->rank, &axis));
  int last = x->rank - 1;
  hr__formula f;
  hr__formula_begin(&f, c);
  const hr_tensor *ordered = hr__dense(&f, hr__moved(&f, x, axis, last));
  return hr__formula_end(&f, hr__moved(&f, hr__step(&f, c->row->op, NULL, 1, &ordered, HR_DTYPE_NONE), last, axis));
}

/* x with the reduced dims joined as its last dim. */
static const hr_tensor *lined_up(hr__formula *f, const hr_tensor *x, uint32_t mask) {
  int64_t dims[HR_RANK_MAX + 1], size = 1;
  int rank = 0;
  hr_tensor *view = hr__view(f, x);
  if (view == NULL) {
    return x;
  }
  for (int d = 0; d < x->rank; ++d) {
    if ((mask >> d & 1u) == 0) {
      view->dims[rank] = x->dims[d], view->strides[rank] = x->strides[d];
      dims[rank++] = x->dims[d];
    }
  }
  int at = rank;
  for (int d = 0; d < x->rank; ++d) {
    if ((mask >> d & 1u) != 0) {
      view->dims[at] = x->dims[d], view->strides[at++] = x->strides[d];
      size *= x->dims[d];
    }
  }
  dims[rank++] = size;
  return hr__dense(f, hr__as_dims(f, view, rank, dims));
}

/* Between the neighbours of place q (n - 1) in order; NaN if any is NaN. */
static hr_status emit_quantile(const hr__function_call *c, double q) {
  hr__formula f;
  uint32_t mask;
  begin(&f, c, &mask);
  const hr_tensor *x = c->inputs[0];
  x = hr_dtype_is_integer(x->dtype) ? hr__as_dtype(&f, x, HR_DTYPE_F32) : x;
  x = lined_up(&f, x, mask);
  int last = x->rank > 0 ? x->rank - 1 : 0;
  int64_t count = x->rank > 0 ? x->dims[last] : 1;
  if (!(q >= 0 && q <= 1) || count == 0) {
    hr__formula_fail(
        &f, HR__CALL_FAIL(c, "q is %g of %lld elements, expected 0 to 1 of at least one", q, (long long)count));
  }
  const hr_tensor *sorted = hr__function(&f, HR_FUNCTIONAL_SORT, 1, &x, 0, NULL);
  if (hr__formula_failed(&f)) {
    return hr__formula_end(&f, sorted);
  }
  double place = q * (double)(count - 1);
  int64_t low = (int64_t)place, high = low + 1 < count ? low + 1 : low;
  const hr_tensor *largest = hr__part(&f, sorted, last, count - 1, 1);
  const hr_tensor *y = hr__ternary(&f, HR_OP_LERP, hr__part(&f, sorted, last, low, 1),
                                   hr__part(&f, sorted, last, high, 1), hr__real(&f, place - (double)low));
  y = hr__ternary(&f, HR_OP_WHERE, hr__binary(&f, HR_OP_NE, largest, largest), largest, y);
  int64_t dims[HR_RANK_MAX];
  for (int d = 0; d < c->inputs[0]->rank; ++d) {
    dims[d] = (mask >> d & 1u) != 0 ? 1 : c->inputs[0]->dims[d];
  }
  return finish(&f, hr__as_dims(&f, y, c->inputs[0]->rank, dims), mask);
}

hr_status hr__emit_median(const hr__function_call *c) {
  return emit_quantile(c, 0.5);
}

hr_status hr__emit_quantile(const hr__function_call *c) {
  hr_scalar q = hr__real_attribute(c, EXTRA);
  return emit_quantile(c, hr_scalar_as_f64(&q));
}

/* Rows are variables: (x - mean) (x - mean)^H / (n - correction). */
hr_status hr__emit_cov(const hr__function_call *c) {
  const hr_tensor *x = c->inputs[0];
  if (x->rank < 1 || x->rank > 2) {
    return HR__CALL_FAIL(c, "%d dims, expected 1 or 2", x->rank);
  }
  hr__formula f;
  hr__formula_begin(&f, c);
  int last = x->rank - 1;
  hr_scalar correction = hr__real_attribute(c, 0);
  double count = (double)x->dims[last] - hr_scalar_as_f64(&correction);
  x = hr_dtype_is_integer(x->dtype) ? hr__as_dtype(&f, x, HR_DTYPE_F32) : x;
  x = hr__binary(&f, HR_OP_SUB, x, hr__along(&f, HR_OP_MEAN, x, 1u << last));
  const hr_tensor *other = hr_dtype_is_complex(x->dtype) ? hr__unary(&f, HR_OP_CONJ, x) : x;
  const hr_tensor *both[2] = {x, last > 0 ? hr__moved(&f, other, 0, 1) : other};
  const hr_tensor *product = hr__function(&f, HR_FUNCTIONAL_MATMUL, 2, both, 0, NULL);
  return hr__formula_end(&f, hr__binary(&f, HR_OP_DIV, product, hr__real(&f, count > 0 ? count : 0)));
}
