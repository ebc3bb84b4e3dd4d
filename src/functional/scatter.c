/* scatter.c: reading and writing at tuples of indices, and the modes of updates. */
#include "functional/scatter.h"

#include "core/ops/index_row.h"

/* ---- updates ---- */

hr_status hr__read_update_mode(const hr__function_call *c, int index, int *out_mode) {
  static const char *const words[HR__UPDATE_MODES] = {"set", "add", "multiply", "max", "min", "subtract", "divide"};
  HR_RETURN_IF_ERROR(hr__word_attribute(c, index, HR__UPDATE_MODES, words, out_mode));
  return *out_mode == HR__UPDATE_SUBTRACT && c->inputs[0]->dtype == HR_DTYPE_BOOL
             ? HR__CALL_FAIL(c, "mode subtract of bool: expected numbers")
             : HR_OK;
}

/* The dtype of a product of several divisors of one element, which has a wider range. */
static hr_dtype product_dtype(hr_dtype dtype) {
  if (dtype == HR_DTYPE_F64 || dtype == HR_DTYPE_U64 || dtype == HR_DTYPE_BOOL || hr_dtype_is_complex(dtype)) {
    return dtype;
  }
  return hr_dtype_is_integer(dtype) ? HR_DTYPE_I64 : HR_DTYPE_F64;
}

hr_status hr__read_bounds(const hr__function_call *c, int index, bool *out_drops) {
  static const char *const words[2] = {"error", "drop"};
  int word;
  HR_RETURN_IF_ERROR(hr__word_attribute(c, index, 2, words, &word));
  *out_drops = word == 1;
  return HR_OK;
}

hr__update hr__update_begin(hr__formula *f, int mode, const hr_tensor *x, const hr_tensor *values) {
  hr__update update = {.x = x, .base = x, .values = hr__as_dtype(f, values, x->dtype), .mode = mode};
  if (mode == HR__UPDATE_SUBTRACT) {
    update.mode = HR__UPDATE_ADD;
    update.values = hr__binary(f, HR_OP_SUB, hr__integer(f, 0), update.values);
  } else if (mode == HR__UPDATE_DIVIDE) {
    hr_dtype dtype = product_dtype(x->dtype);
    update.mode = HR__UPDATE_MULTIPLY, update.divides = true;
    update.base = hr__copied(f, hr__integer(f, 1), dtype, x->rank, x->dims);
    update.values = hr__as_dtype(f, update.values, dtype);
  }
  return update;
}

const hr_tensor *hr__update_end(hr__formula *f, const hr__update *update, const hr_tensor *y) {
  hr_op op = hr_dtype_is_integer(update->x->dtype) ? HR_OP_DIV_TRUNC : HR_OP_DIV;
  if (!update->divides) {
    return y;
  }
  return hr__as_dtype(f, hr__binary(f, op, hr__as_dtype(f, update->x, y->dtype), y), update->x->dtype);
}

/* Places out of range become `size`, that of one more element. */
static const hr_tensor *or_behind(hr__formula *f, const hr_tensor *places, int64_t size) {
  const hr_tensor *is_negative = hr__binary(f, HR_OP_LT, places, hr__integer(f, 0));
  const hr_tensor *bounded = hr__binary(f, HR_OP_MINIMUM, places, hr__integer(f, size));
  return hr__ternary(f, HR_OP_WHERE, is_negative, hr__integer(f, size), bounded);
}

const hr_tensor *hr__scattered(hr__formula *f, const hr__update *update, int axis, const hr_tensor *places,
                               bool drops) {
  const hr_tensor *base = update->base;
  if (hr__formula_failed(f)) {
    return base;
  }
  int64_t size = base->dims[axis];
  const hr_tensor *y =
      drops ? hr__extended(f, base, axis, size + 1) : hr__copied(f, base, base->dtype, base->rank, base->dims);
  const hr_tensor *inputs[2] = {drops ? or_behind(f, places, size) : places, update->values};
  const int64_t ints[3] = {axis, update->mode, drops ? HR_SCATTER_BOUNDED : 1};
  hr_attrs attrs = {.int_count = 3, .ints = ints};
  if (!hr__formula_failed(f)) {
    hr__formula_fail(f, hr__write_row(f->call, HR_OP_SCATTER, &attrs, 2, inputs, y));
  }
  y = drops ? hr__part(f, y, axis, 0, size) : y;
  return hr__update_end(f, update, y);
}

/* ---- tuples of indices ---- */

/* x [batch dims, indexed dims, others] and indices [batch dims, more dims, indexed dims]. */
typedef struct tuples {
  const hr_tensor *x, *indices;
  int batch, indexed, rank; /* numbers of dims; of one tuple's component */
} tuples;

static hr_status read_tuples(const hr__function_call *c, tuples *t) {
  const hr_tensor *x = c->inputs[0], *indices = c->inputs[1];
  int64_t batch = hr__int_attribute(c, 0), last = indices->rank > 0 ? indices->dims[indices->rank - 1] : 0;
  char dims[2][HR__SHAPE_TEXT];
  if (batch < 0 || batch >= indices->rank || last < 1 || last > x->rank - batch) {
    return HR__CALL_FAIL(c, "indices %s of x %s with %lld batch_dims, expected a last dim of 1 to %lld",
                         hr__shape_text(indices->rank, indices->dims, dims[0]),
                         hr__shape_text(x->rank, x->dims, dims[1]), (long long)batch, (long long)(x->rank - batch));
  }
  *t = (tuples){.x = x, .indices = indices, .batch = (int)batch, .indexed = (int)last, .rank = indices->rank - 1};
  for (int d = 0; d < t->batch; ++d) {
    if (x->dims[d] != indices->dims[d]) {
      return HR__CALL_FAIL(c, "batch dim %d of indices is %lld, of x %lld", d, (long long)indices->dims[d],
                           (long long)x->dims[d]);
    }
  }
  return t->rank + x->rank - t->batch - t->indexed <= HR_RANK_MAX ? HR_OK
                                                                  : HR__CALL_FAIL(c, "more than %d dims", HR_RANK_MAX);
}

/* The indices of dim d of x, in i64: 0, 1, ... of batch dims. */
static const hr_tensor *component(hr__formula *f, const tuples *t, int d) {
  if (d >= t->batch) {
    return hr__without(f, hr__part(f, hr__places(f, t->indices), t->rank, d - t->batch, 1), 1u << t->rank);
  }
  return hr__counted(f, t->x->dims[d], t->rank, d);
}

/* True for indices out of range. */
static const hr_tensor *is_outside(hr__formula *f, const hr_tensor *at, int64_t size) {
  return hr__binary(f, HR_OP_LOGICAL_OR, hr__binary(f, HR_OP_LT, at, hr__integer(f, 0)),
                    hr__binary(f, HR_OP_GE, at, hr__integer(f, size)));
}

enum { ERROR, CLIP, DROP, MODES };

/* 0 for tuples with an index out of range. The mask is that of the tuples, to which dims of size 1 are added behind. */
static const hr_tensor *or_zero(hr__formula *f, const hr_tensor *y, const hr_tensor *mask) {
  for (; mask != NULL && !hr__formula_failed(f) && mask->rank < y->rank;) {
    mask = hr__with_dim(f, mask, mask->rank);
  }
  return mask == NULL ? y : hr__ternary(f, HR_OP_WHERE, mask, hr__number(f, hr_scalar_bool(0)), y);
}

hr_status hr__emit_gather_nd(const hr__function_call *c) {
  static const char *const words[MODES] = {"error", "clip", "drop"};
  tuples t;
  int mode;
  HR_RETURN_IF_ERROR(read_tuples(c, &t));
  HR_RETURN_IF_ERROR(hr__word_attribute(c, 1, MODES, words, &mode));
  hr__formula f;
  hr__formula_begin(&f, c);
  const hr_tensor *inputs[HR_RANK_MAX + 1] = {t.x}, *mask = NULL;
  int count = t.batch + t.indexed;
  for (int d = 0; d < count; ++d) {
    const hr_tensor *at = component(&f, &t, d);
    if (d >= t.batch && mode != ERROR) {
      int64_t size = t.x->dims[d];
      if (size == 0) {
        return hr__formula_end(&f, at), HR__CALL_FAIL(c, "dim %d of x has no elements", d);
      }
      const hr_tensor *is_bad = mode == DROP ? is_outside(&f, at, size) : NULL;
      mask = is_bad == NULL || mask == NULL ? is_bad : hr__binary(&f, HR_OP_LOGICAL_OR, mask, is_bad);
      at = hr__ternary(&f, HR_OP_CLAMP, at, hr__integer(&f, 0), hr__integer(&f, size - 1));
    }
    inputs[1 + d] = hr__spread(&f, at, t.rank, t.indices->dims);
  }
  const int64_t ints[2] = {(INT64_C(1) << count) - 1, 0};
  hr_attrs attrs = {.int_count = 2, .ints = ints};
  const hr_tensor *y = hr__step(&f, HR_OP_INDEX, &attrs, 1 + count, inputs, HR_DTYPE_NONE);
  return hr__formula_end(&f, or_zero(&f, y, mask));
}

/* Row-major places of tuples in the batch and indexed dims, of which there are `all`; -1 for those out of range. */
static const hr_tensor *joined_places(hr__formula *f, const tuples *t, bool drops) {
  const hr_tensor *places = NULL, *mask = NULL;
  for (int d = 0; d < t->batch + t->indexed; ++d) {
    int64_t size = t->x->dims[d];
    const hr_tensor *at = component(f, t, d);
    if (d >= t->batch) {
      at = drops ? at : hr__from_end(f, at, size);
      const hr_tensor *is_bad = is_outside(f, at, size);
      mask = mask == NULL ? is_bad : hr__binary(f, HR_OP_LOGICAL_OR, mask, is_bad);
    }
    places = places == NULL ? at : hr__plus(f, hr__times(f, places, hr__integer(f, size)), at);
  }
  return hr__ternary(f, HR_OP_WHERE, mask, hr__integer(f, -1), places);
}

/* As one dim of slices and one of their elements. */
static const hr_tensor *as_slices(hr__formula *f, const hr_tensor *x, int first) {
  int64_t dims[2] = {1, 1};
  for (int d = 0; d < x->rank; ++d) {
    dims[d >= first] *= x->dims[d];
  }
  return hr__as_dims(f, x, 2, dims);
}

hr_status hr__emit_scatter_nd(const hr__function_call *c) {
  enum { BATCH, MODE, BOUNDS };
  tuples t;
  int mode;
  bool drops;
  HR_RETURN_IF_ERROR(read_tuples(c, &t));
  HR_RETURN_IF_ERROR(hr__read_update_mode(c, MODE, &mode));
  HR_RETURN_IF_ERROR(hr__read_bounds(c, BOUNDS, &drops));
  hr__formula f;
  hr__formula_begin(&f, c);
  int first = t.batch + t.indexed, others = t.x->rank - first;
  int64_t dims[HR_RANK_MAX];
  hr__copy_dims(t.rank, t.indices->dims, dims);
  for (int d = 0; d < others; ++d) {
    dims[t.rank + d] = t.x->dims[first + d];
  }
  const hr_tensor *x = as_slices(&f, t.x, first);
  const hr_tensor *values = as_slices(&f, hr__spread(&f, c->inputs[2], t.rank + others, dims), t.rank);
  const hr_tensor *places = joined_places(&f, &t, drops);
  if (hr__formula_failed(&f)) {
    return hr__formula_end(&f, x);
  }
  int64_t lines[2] = {values->dims[0], 1};
  places = hr__spread(&f, hr__as_dims(&f, places, 2, lines), 2, values->dims);
  hr__update update = hr__update_begin(&f, mode, x, values);
  return hr__formula_end(&f, hr__as_dims(&f, hr__scattered(&f, &update, 0, places, drops), t.x->rank, t.x->dims));
}
