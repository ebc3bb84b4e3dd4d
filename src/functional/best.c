/* best.c: the largest or smallest complex numbers.
 *
 * They have NumPy's order: by the real part, then by the imaginary one. A number with a NaN in a part is the largest
 * and the smallest one, or takes no part; of several the first one counts, as of equal numbers.
 */
#include <math.h>

#include "core/ir/dtype.h"
#include "functional/formula.h"

enum { AXIS, KEEPDIMS };

/* x with the dims of the mask as one last dim; [.., n]. */
static const hr_tensor *merged(hr__formula *f, const hr_tensor *x, uint32_t mask) {
  int64_t dims[HR_RANK_MAX + 1], count = 1;
  int kept = 0;
  hr_tensor *view = hr__view(f, x);
  if (view == NULL) {
    return x;
  }
  for (int d = 0; d < x->rank; ++d) {
    if ((mask >> d & 1u) == 0) {
      view->dims[kept] = x->dims[d], view->strides[kept] = x->strides[d];
      dims[kept++] = x->dims[d];
    }
  }
  int at = kept;
  for (int d = 0; d < x->rank; ++d) {
    if ((mask >> d & 1u) != 0) {
      view->dims[at] = x->dims[d], view->strides[at++] = x->strides[d];
      count *= x->dims[d];
    }
  }
  dims[kept] = count;
  if (kept == HR_RANK_MAX) {
    hr__formula_fail(f, HR__CALL_FAIL(f->call, "%d dims, expected one of them in axis", kept));
    return x;
  }
  return hr__as_dims(f, view, kept + 1, dims);
}

/* True where a part is NaN. */
static const hr_tensor *has_nan(hr__formula *f, const hr_tensor *real, const hr_tensor *imaginary) {
  return hr__binary(f, HR_OP_LOGICAL_OR, hr__binary(f, HR_OP_NE, real, real),
                    hr__binary(f, HR_OP_NE, imaginary, imaginary));
}

/* True where x is the best one of the last dim among the numbers that take part. */
static const hr_tensor *are_best(hr__formula *f, const hr_tensor *x, const hr_tensor *takes_part, bool is_max) {
  const hr_tensor *worst = hr__real(f, is_max ? -INFINITY : INFINITY);
  const hr_tensor *key = hr__ternary(f, HR_OP_WHERE, takes_part, x, worst);
  int64_t last = hr__formula_failed(f) ? 0 : INT64_C(1) << (x->rank - 1);
  const hr_tensor *best = hr__along(f, is_max ? HR_OP_AMAX : HR_OP_AMIN, key, last);
  return hr__binary(f, HR_OP_LOGICAL_AND, takes_part, hr__binary(f, HR_OP_EQ, key, best));
}

/* The places of the best numbers of x [.., n]: i64 [.., 1]. Without NaN, 0 if all are NaN. */
static const hr_tensor *best_places(hr__formula *f, const hr_tensor *x, bool is_max, bool has_nans) {
  const hr_tensor *real = hr__unary(f, HR_OP_REAL, x), *imaginary = hr__unary(f, HR_OP_IMAG, x);
  const hr_tensor *is_nan = has_nan(f, real, imaginary);
  const hr_tensor *ties = are_best(f, real, hr__unary(f, HR_OP_LOGICAL_NOT, is_nan), is_max);
  const hr_tensor *best = are_best(f, imaginary, ties, is_max);
  int64_t last = hr__formula_failed(f) ? 0 : INT64_C(1) << (x->rank - 1);
  if (has_nans) {
    best = hr__ternary(f, HR_OP_WHERE, hr__along(f, HR_OP_ANY, is_nan, last), is_nan, best);
  }
  return hr__along(f, HR_OP_ARGMAX, hr__as_dtype(f, best, HR_DTYPE_U8), last);
}

/* [.., 1] with x's dims, those of the mask as 1, or without them. */
static const hr_tensor *with_dims(hr__formula *f, const hr_tensor *y, const hr_tensor *x, uint32_t mask) {
  int64_t dims[HR_RANK_MAX];
  int rank = 0;
  bool keeps = hr__int_attribute(f->call, KEEPDIMS) != 0;
  for (int d = 0; d < x->rank; ++d) {
    bool is_reduced = (mask >> d & 1u) != 0;
    if (keeps || !is_reduced) {
      dims[rank++] = is_reduced ? 1 : x->dims[d];
    }
  }
  return hr__as_dims(f, y, rank, dims);
}

/* A failure if the result has elements and each is the best one of none. */
static void want_elements(hr__formula *f, const hr_tensor *x, uint32_t mask) {
  int64_t reduced = 1, kept = 1;
  for (int d = 0; d < x->rank; ++d) {
    *((mask >> d & 1u) != 0 ? &reduced : &kept) *= x->dims[d] > 0;
  }
  if (reduced == 0 && kept != 0) {
    char dims[HR__SHAPE_TEXT];
    hr__formula_fail(
        f, HR__CALL_FAIL(f->call, "no elements to reduce in dims %s", hr__shape_text(x->rank, x->dims, dims)));
  }
}

const hr_tensor *hr__best_complex(hr__formula *f, uint32_t mask, bool is_max, bool has_nans) {
  const hr_tensor *whole = f->call->inputs[0];
  want_elements(f, whole, mask);
  const hr_tensor *x = merged(f, whole, mask);
  const hr_tensor *both[2] = {x, best_places(f, x, is_max, has_nans)};
  const int64_t dim = hr__formula_failed(f) ? 0 : x->rank - 1;
  const hr_attrs attrs = {.int_count = 1, .ints = &dim};
  return with_dims(f, hr__step(f, HR_OP_GATHER, &attrs, 2, both, HR_DTYPE_NONE), whole, mask);
}

/* The row's reduction; of complex numbers by comparisons. */
hr_status hr__emit_best(const hr__function_call *c) {
  uint32_t mask;
  if (!hr_dtype_is_complex(c->inputs[0]->dtype)) {
    return hr__emit_reduce(c);
  }
  HR_RETURN_IF_ERROR(hr__axes_attribute(c, AXIS, c->inputs[0]->rank, &mask));
  hr__formula f;
  hr__formula_begin(&f, c);
  return hr__formula_end(&f, hr__best_complex(&f, mask, c->row->op == HR_OP_AMAX, true));
}

/* The index of one axis, or in the flattened x. */
hr_status hr__emit_best_place(const hr__function_call *c) {
  uint32_t mask;
  const hr_tensor *x = c->inputs[0];
  if (!hr_dtype_is_complex(x->dtype)) {
    return hr__emit_argreduce(c);
  }
  HR_RETURN_IF_ERROR(hr__axes_attribute(c, AXIS, x->rank, &mask));
  const hr_attribute *axes = hr__given_attribute(c, AXIS);
  if (axes != NULL && axes->count != 1) {
    return HR__CALL_FAIL(c, "%d axes, expected one or none", axes->count);
  }
  hr__formula f;
  hr__formula_begin(&f, c);
  want_elements(&f, x, mask);
  const hr_tensor *places = best_places(&f, merged(&f, x, mask), c->row->op == HR_OP_ARGMAX, true);
  return hr__formula_end(&f, with_dims(&f, places, x, mask));
}
