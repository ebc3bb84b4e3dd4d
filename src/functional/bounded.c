/* bounded.c: indices along an axis that may be out of range: clipped or dropped. */
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
