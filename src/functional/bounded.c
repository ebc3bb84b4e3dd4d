/* bounded.c: indices that may be out of range: clipped or dropped; slices that are moved into their tensor. */
#include "functional/formula.h"

enum { ERROR, CLIP, DROP, MODES };
static const char *const modes[MODES] = {"error", "clip", "drop"};

/* Places bounded to 0 .. size - 1. */
static const hr_tensor *clipped(hr__formula *f, const hr_tensor *at, int64_t size) {
  return hr__ternary(f, HR_OP_CLAMP, at, hr__integer(f, 0), hr__integer(f, size - 1));
}

/* ---- reading along an axis ---- */

/* The indices' dims, in place of the axis if they are slices' ones. */
static int result_dims(const hr__function_call *c, int axis, int64_t *dims) {
  const hr_tensor *x = c->inputs[0], *at = c->inputs[1];
  if (c->row->op == HR_OP_GATHER) {
    hr__copy_dims(at->rank, at->dims, dims);
    return at->rank;
  }
  int rank = 0;
  for (int d = 0; d < axis; ++d) {
    dims[rank++] = x->dims[d];
  }
  for (int d = 0; d < at->rank; ++d) {
    dims[rank++] = at->dims[d];
  }
  for (int d = axis + 1; d < x->rank; ++d) {
    dims[rank++] = x->dims[d];
  }
  return rank;
}

/* The mask of indices with dims of size 1 behind, so that it is broadcast to the result. */
static const hr_tensor *aligned(hr__formula *f, const hr_tensor *mask, int axis) {
  const hr__function_call *c = f->call;
  int64_t dims[2 * HR_RANK_MAX];
  int rank = mask->rank;
  if (c->row->op == HR_OP_GATHER || hr__formula_failed(f)) {
    return mask;
  }
  hr__copy_dims(rank, mask->dims, dims);
  for (int d = axis + 1; d < c->inputs[0]->rank; ++d) {
    dims[rank++] = 1;
  }
  return hr__as_dims(f, mask, rank, dims);
}

/* 0 for indices out of range. */
static const hr_tensor *read_or_zero(hr__formula *f, int axis) {
  const hr__function_call *c = f->call;
  const hr_tensor *x = c->inputs[0], *at = hr__places(f, c->inputs[1]), *zero = hr__number(f, hr_scalar_bool(0));
  int64_t size = x->dims[axis], dims[2 * HR_RANK_MAX];
  if (size == 0) {
    int rank = result_dims(c, axis, dims);
    return hr__copied(f, zero, x->dtype, rank, dims);
  }
  const hr_tensor *is_outside = hr__binary(f, HR_OP_LOGICAL_OR, hr__binary(f, HR_OP_LT, at, hr__integer(f, 0)),
                                           hr__binary(f, HR_OP_GE, at, hr__integer(f, size)));
  const hr_tensor *inputs[2] = {x, hr__ternary(f, HR_OP_WHERE, is_outside, hr__integer(f, 0), at)};
  const hr_tensor *y = hr__along_pair(f, c->row->op, inputs, axis);
  return hr__ternary(f, HR_OP_WHERE, aligned(f, is_outside, axis), zero, y);
}

/* Negative indices count from the end; one out of range is an error of the run. */
static hr_status read_checked(const hr__function_call *c, int axis) {
  hr__formula f;
  hr__formula_begin(&f, c);
  if (c->row->op == HR_OP_INDEX_SELECT) {
    const int64_t ints[2] = {INT64_C(1) << axis, axis};
    hr_attrs attrs = {.int_count = 2, .ints = ints};
    return hr__formula_end(&f, hr__step(&f, HR_OP_INDEX, &attrs, 2, c->inputs, HR_DTYPE_NONE));
  }
  const hr_tensor *inputs[2] = {c->inputs[0], hr__from_end(&f, c->inputs[1], c->inputs[0]->dims[axis])};
  return hr__formula_end(&f, hr__along_pair(&f, c->row->op, inputs, axis));
}

hr_status hr__emit_read_along(const hr__function_call *c) {
  enum { AXIS, MODE };
  const hr_tensor *x = c->inputs[0];
  int axis, mode;
  HR_RETURN_IF_ERROR(hr__check_axis(c, hr__int_attribute(c, AXIS), x->rank, &axis));
  HR_RETURN_IF_ERROR(hr__word_attribute(c, MODE, MODES, modes, &mode));
  if (mode == ERROR) {
    return read_checked(c, axis);
  }
  if (mode == CLIP && x->dims[axis] == 0) {
    return HR__CALL_FAIL(c, "axis %d has no elements to which an index can be clipped", axis);
  }
  if (x->rank - 1 + c->inputs[1]->rank > HR_RANK_MAX && c->row->op != HR_OP_GATHER) {
    return HR__CALL_FAIL(c, "more than %d dims", HR_RANK_MAX);
  }
  hr__formula f;
  hr__formula_begin(&f, c);
  if (mode == DROP) {
    return hr__formula_end(&f, read_or_zero(&f, axis));
  }
  const hr_tensor *inputs[2] = {x, clipped(&f, hr__places(&f, c->inputs[1]), x->dims[axis])};
  return hr__formula_end(&f, hr__along_pair(&f, c->row->op, inputs, axis));
}

/* ---- slices whose start is a tensor ---- */

/* Indices of a slice of these dims, one tensor for each dim of x, broadcast to each other by INDEX. */
static void slice_places(hr__formula *f, const hr_tensor *start, const int64_t *sizes, const hr_tensor **out) {
  const hr__function_call *c = f->call;
  const hr_tensor *x = c->inputs[0], *from = hr__places(f, start);
  for (int d = 0; d < x->rank && !hr__formula_failed(f); ++d) {
    const hr_tensor *first = clipped(f, hr__part(f, from, 0, d, 1), x->dims[d] - sizes[d] + 1);
    out[d] = hr__plus(f, hr__counted(f, sizes[d], x->rank, d), first);
  }
}

static hr_status check_slice(const hr__function_call *c, const hr_tensor *start, int count, const int64_t *sizes) {
  const hr_tensor *x = c->inputs[0];
  if (start->rank != 1 || start->dims[0] != x->rank || count != x->rank) {
    char text[HR__SHAPE_TEXT];
    return HR__CALL_FAIL(c, "start of dims %s and %d sizes for %d dims", hr__shape_text(start->rank, start->dims, text),
                         count, x->rank);
  }
  for (int d = 0; d < count; ++d) {
    if (sizes[d] < 0 || sizes[d] > x->dims[d]) {
      return HR__CALL_FAIL(c, "size %lld of dim %d, expected 0 to %lld", (long long)sizes[d], d, (long long)x->dims[d]);
    }
  }
  return HR_OK;
}

hr_status hr__emit_dynamic_slice(const hr__function_call *c) {
  const hr_tensor *x = c->inputs[0], *start = c->inputs[1];
  const hr_attribute *sizes = &c->attributes[0];
  HR_RETURN_IF_ERROR(check_slice(c, start, sizes->count, sizes->value.ints));
  hr__formula f;
  hr__formula_begin(&f, c);
  if (x->rank == 0) {
    return hr__formula_end(&f, x);
  }
  const hr_tensor *inputs[HR_RANK_MAX + 1] = {x};
  slice_places(&f, start, sizes->value.ints, inputs + 1);
  const int64_t ints[2] = {(INT64_C(1) << x->rank) - 1, 0};
  hr_attrs attrs = {.int_count = 2, .ints = ints};
  return hr__formula_end(&f, hr__step(&f, HR_OP_INDEX, &attrs, 1 + x->rank, inputs, HR_DTYPE_NONE));
}

hr_status hr__emit_dynamic_slice_update(const hr__function_call *c) {
  const hr_tensor *x = c->inputs[0], *values = c->inputs[1], *start = c->inputs[2];
  HR_RETURN_IF_ERROR(check_slice(c, start, values->rank, values->dims));
  hr__formula f;
  hr__formula_begin(&f, c);
  const hr_tensor *inputs[HR_RANK_MAX + 1] = {hr__as_dtype(&f, values, x->dtype)};
  if (x->rank == 0) {
    return hr__formula_end(&f, inputs[0]);
  }
  const hr_tensor *y = hr__copied(&f, x, x->dtype, x->rank, x->dims);
  slice_places(&f, start, values->dims, inputs + 1);
  const int64_t ints[3] = {(INT64_C(1) << x->rank) - 1, 0, 0};
  hr_attrs attrs = {.int_count = 3, .ints = ints};
  if (!hr__formula_failed(&f)) {
    hr__formula_fail(&f, hr__write_row(c, HR_OP_INDEX_PUT, &attrs, 1 + x->rank, inputs, y));
  }
  return hr__formula_end(&f, y);
}
