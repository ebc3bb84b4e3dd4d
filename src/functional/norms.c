/* norms.c: norms of several records, and rotary encodings. Floats of 16 bits are computed in f32 and rounded once. */
#include "functional/formula.h"

/* x as floats in which its squares do not overflow. */
static const hr_tensor *widened(hr__formula *f, const hr_tensor *x) {
  return hr__as_dtype(f, x, hr__wide_dtype(x->dtype));
}

/* In x's dtype, if that is floating. */
static const hr_tensor *narrowed(hr__formula *f, const hr_tensor *y, const hr_tensor *x) {
  return hr_dtype_is_integer(x->dtype) || hr__formula_failed(f) ? y : hr__as_dtype(f, y, x->dtype);
}

/* ---- batches ---- */

/* A vector of x's elements along the axis, with dims of size 1 behind; NULL for NULL. */
static const hr_tensor *channels(hr__formula *f, int input, const hr_tensor *x, int axis) {
  const hr__function_call *c = f->call;
  const hr_tensor *v = c->inputs[input];
  if (v == NULL || hr__formula_failed(f)) {
    return v;
  }
  if (v->rank != 1 || v->dims[0] != x->dims[axis]) {
    char text[HR__SHAPE_TEXT];
    hr__formula_fail(f, HR__CALL_FAIL(c, "%s has dims %s, expected [%lld]", c->row->inputs[input],
                                      hr__shape_text(v->rank, v->dims, text), (long long)x->dims[axis]));
    return v;
  }
  int64_t dims[HR_RANK_MAX] = {v->dims[0]};
  for (int d = 1; d < x->rank - axis; ++d) {
    dims[d] = 1;
  }
  return hr__as_dims(f, v, x->rank - axis, dims);
}

/* (x - mean) / sqrt(var + eps) * weight + bias; the last two may be NULL. */
static const hr_tensor *scaled(hr__formula *f, const hr_tensor *x, const hr_tensor *mean, const hr_tensor *var,
                               hr_scalar eps, const hr_tensor *weight, const hr_tensor *bias) {
  const hr_tensor *factor = hr__unary(f, HR_OP_RSQRT, hr__binary(f, HR_OP_ADD, var, hr__number(f, eps)));
  const hr_tensor *y = hr__binary(f, HR_OP_MUL, hr__binary(f, HR_OP_SUB, x, mean), factor);
  y = weight != NULL ? hr__binary(f, HR_OP_MUL, y, weight) : y;
  return bias != NULL ? hr__binary(f, HR_OP_ADD, y, bias) : y;
}

hr_status hr__emit_batch_norm(const hr__function_call *c) {
  enum { AXIS, EPS };
  const hr_tensor *x = c->inputs[0], *all[5];
  int axis;
  HR_RETURN_IF_ERROR(hr__check_axis(c, hr__int_attribute(c, AXIS), x->rank, &axis));
  hr__formula f;
  hr__formula_begin(&f, c);
  for (int i = 1; i < 5; ++i) {
    all[i] = channels(&f, i, x, axis);
  }
  const hr_tensor *y = scaled(&f, widened(&f, x), all[1], all[2], hr__real_attribute(c, EPS), all[3], all[4]);
  return hr__formula_end(&f, narrowed(&f, y, x));
}

hr_status hr__emit_batch_norm_training(const hr__function_call *c) {
  enum { AXIS, EPS };
  const hr_tensor *x = c->inputs[0];
  int axis;
  HR_RETURN_IF_ERROR(hr__check_axis(c, hr__int_attribute(c, AXIS), x->rank, &axis));
  hr__formula f;
  hr__formula_begin(&f, c);
  uint32_t mask = ((1u << x->rank) - 1) & ~(1u << axis);
  const int64_t ints[2] = {mask, 0};
  hr_scalar correction = hr_scalar_i64(0);
  hr_attrs attrs = {.int_count = 2, .scalar_count = 1, .ints = ints, .scalars = &correction};
  const hr_tensor *wide = widened(&f, x);
  hr_tensor *var = hr__output(&f, HR_DTYPE_NONE, 0, NULL), *mean = hr__output(&f, HR_DTYPE_NONE, 0, NULL);
  hr_tensor *moments[2] = {var, mean};
  hr__record_to(&f, HR_OP_VAR_MEAN, &attrs, 1, &wide, 2, moments);
  const hr_tensor *y =
      scaled(&f, wide, mean, var, hr__real_attribute(c, EPS), channels(&f, 1, x, axis), channels(&f, 2, x, axis));
  const hr_tensor *results[3] = {narrowed(&f, y, x), hr__without(&f, mean, mask), hr__without(&f, var, mask)};
  return hr__formula_finish(&f, 3, results);
}

hr_status hr__emit_group_norm(const hr__function_call *c) {
  enum { GROUPS, EPS };
  const int64_t ints[1] = {hr__int_attribute(c, GROUPS)};
  hr_scalar eps = hr__real_attribute(c, EPS);
  hr_attrs attrs = {.int_count = 1, .scalar_count = 1, .ints = ints, .scalars = &eps};
  return hr__record_one(c, c->row->op, &attrs, 3, c->inputs, HR_DTYPE_NONE, c->output);
}

/* ---- neighbours, vectors ---- */

/* Sums of `size` neighbours along an axis; of an even number the one more is behind. */
static const hr_tensor *neighbour_sums(hr__formula *f, const hr_tensor *x, int axis, int64_t size) {
  int64_t window[HR_RANK_MAX], before[HR_RANK_MAX] = {0}, after[HR_RANK_MAX] = {0};
  if (hr__formula_failed(f)) {
    return x;
  }
  for (int d = 0; d < x->rank; ++d) {
    window[d] = 1;
  }
  window[axis] = size, before[axis] = (size - 1) / 2, after[axis] = size / 2;
  const hr_attribute attributes[4] = {{.kind = HR_ATTRIBUTE_INTS, .count = x->rank, .value = {.ints = window}},
                                      {.kind = HR_ATTRIBUTE_NONE},
                                      {.kind = HR_ATTRIBUTE_INTS, .count = x->rank, .value = {.ints = before}},
                                      {.kind = HR_ATTRIBUTE_INTS, .count = x->rank, .value = {.ints = after}}};
  return hr__function(f, HR_FUNCTIONAL_REDUCE_WINDOW, 1, &x, 4, attributes);
}

hr_status hr__emit_local_response_norm(const hr__function_call *c) {
  enum { SIZE, ALPHA, BETA, BIAS, AXIS };
  const hr_tensor *x = c->inputs[0];
  int64_t size = hr__int_attribute(c, SIZE);
  int axis;
  HR_RETURN_IF_ERROR(hr__check_axis(c, hr__int_attribute(c, AXIS), x->rank, &axis));
  if (size < 1 || size > INT32_MAX) {
    return HR__CALL_FAIL(c, "size is %lld, expected at least 1", (long long)size);
  }
  hr_scalar alpha = hr__real_attribute(c, ALPHA), beta = hr__real_attribute(c, BETA);
  hr__formula f;
  hr__formula_begin(&f, c);
  const hr_tensor *wide = widened(&f, x), *sums = neighbour_sums(&f, hr__unary(&f, HR_OP_SQUARE, wide), axis, size);
  const hr_tensor *share = hr__binary(&f, HR_OP_MUL, sums, hr__real(&f, hr_scalar_as_f64(&alpha) / (double)size));
  share = hr__binary(&f, HR_OP_ADD, share, hr__number(&f, hr__real_attribute(c, BIAS)));
  const hr_tensor *factor = hr__binary(&f, HR_OP_POW, share, hr__real(&f, -hr_scalar_as_f64(&beta)));
  return hr__formula_end(&f, narrowed(&f, hr__binary(&f, HR_OP_MUL, wide, factor), x));
}

hr_status hr__emit_normalize(const hr__function_call *c) {
  enum { AXIS, ORD, EPS };
  const hr_tensor *x = c->inputs[0];
  int axis;
  HR_RETURN_IF_ERROR(hr__check_axis(c, hr__int_attribute(c, AXIS), x->rank, &axis));
  hr__formula f;
  hr__formula_begin(&f, c);
  const int64_t axes[1] = {axis};
  const hr_attribute attributes[3] = {{.kind = HR_ATTRIBUTE_INTS, .count = 1, .value = {.ints = axes}},
                                      {.kind = HR_ATTRIBUTE_FLAG, .value = {.integer = 1}},
                                      {.kind = HR_ATTRIBUTE_REAL, .value = {.number = hr__real_attribute(c, ORD)}}};
  const hr_tensor *wide = widened(&f, x), *norm = hr__function(&f, HR_FUNCTIONAL_VECTOR_NORM, 1, &wide, 3, attributes);
  norm = hr__binary(&f, HR_OP_MAXIMUM, norm, hr__number(&f, hr__real_attribute(c, EPS)));
  return hr__formula_end(&f, narrowed(&f, hr__binary(&f, HR_OP_DIV, wide, norm), x));
}

/* ---- rotary encodings ---- */

/* The i-th element of each pair among the first `dims` elements of x's last dim. */
static const hr_tensor *half_of(hr__formula *f, const hr_tensor *x, int64_t dims, bool is_interleaved, int i) {
  hr_tensor *view = hr__view(f, x);
  if (view == NULL) {
    return x;
  }
  int last = x->rank - 1;
  view->offset += (is_interleaved ? i : i * (dims / 2)) * x->strides[last];
  view->dims[last] = dims / 2, view->strides[last] = (is_interleaved ? 2 : 1) * x->strides[last];
  return view;
}

static const hr_tensor *joined(hr__formula *f, const hr_tensor *first, const hr_tensor *second, int dim) {
  const hr_tensor *both[2] = {first, second};
  return hr__formula_failed(f) ? first : hr__along_pair(f, HR_OP_CAT, both, dim);
}

static const hr_tensor *turned(hr__formula *f, const hr_tensor *x, int64_t dims, bool is_interleaved) {
  const hr_tensor *cosine = f->call->inputs[1], *sine = f->call->inputs[2];
  const hr_tensor *a = half_of(f, x, dims, is_interleaved, 0), *b = half_of(f, x, dims, is_interleaved, 1);
  const hr_tensor *p = hr__binary(f, HR_OP_SUB, hr__binary(f, HR_OP_MUL, a, cosine), hr__binary(f, HR_OP_MUL, b, sine));
  const hr_tensor *q = hr__binary(f, HR_OP_ADD, hr__binary(f, HR_OP_MUL, a, sine), hr__binary(f, HR_OP_MUL, b, cosine));
  if (!is_interleaved || hr__formula_failed(f)) {
    return joined(f, p, q, x->rank - 1);
  }
  int64_t shape[HR_RANK_MAX];
  hr__copy_dims(p->rank, p->dims, shape);
  shape[p->rank - 1] = dims;
  return hr__as_dims(f, joined(f, hr__with_dim(f, p, p->rank), hr__with_dim(f, q, q->rank), p->rank), p->rank, shape);
}

/* Angles are of pairs, and broadcast to those of x. */
static hr_status check_angles(const hr__function_call *c, int64_t dims) {
  const hr_tensor *x = c->inputs[0];
  for (int i = 1; i < 3; ++i) {
    const hr_tensor *angle = c->inputs[i];
    bool fits = angle->rank >= 1 && angle->rank <= x->rank && angle->dims[angle->rank - 1] == dims / 2;
    for (int d = 1; fits && d < angle->rank; ++d) {
      int64_t size = angle->dims[angle->rank - 1 - d];
      fits = size == 1 || size == x->dims[x->rank - 1 - d];
    }
    if (!fits) {
      char text[HR__SHAPE_TEXT], own[HR__SHAPE_TEXT];
      return HR__CALL_FAIL(c, "%s has dims %s, expected those of %s with %lld in the last one", c->row->inputs[i],
                           hr__shape_text(angle->rank, angle->dims, text), hr__shape_text(x->rank, x->dims, own),
                           (long long)(dims / 2));
    }
  }
  return HR_OK;
}

hr_status hr__emit_rotary(const hr__function_call *c) {
  enum { INTERLEAVED, DIMS };
  const hr_tensor *x = c->inputs[0];
  int64_t size = x->rank > 0 ? x->dims[x->rank - 1] : 0;
  int64_t dims = hr__given_attribute(c, DIMS) != NULL ? hr__int_attribute(c, DIMS) : size;
  if (dims < 2 || dims % 2 != 0 || dims > size) {
    return HR__CALL_FAIL(c, "%lld dims of %lld, expected an even number", (long long)dims, (long long)size);
  }
  HR_RETURN_IF_ERROR(check_angles(c, dims));
  hr__formula f;
  hr__formula_begin(&f, c);
  const hr_tensor *wide = widened(&f, x), *y = turned(&f, wide, dims, hr__int_attribute(c, INTERLEAVED) != 0);
  y = narrowed(&f, y, x);
  if (dims < size) {
    y = joined(&f, y, hr__part(&f, x, x->rank - 1, dims, size - dims), x->rank - 1);
  }
  return hr__formula_end(&f, y);
}
