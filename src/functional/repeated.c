/* repeated.c: borders, repetitions and triangles. */
#include <string.h>

#include "functional/functions.h"

/* Two lists of integers, one for each dim of x, after `first` free places. */
static hr_status sides_of(const hr__function_call *c, int first, int64_t *out_ints) {
  const hr_attribute *before = &c->attributes[0], *after = &c->attributes[1];
  int rank = c->inputs[0]->rank;
  if (before->count != rank || after->count != rank) {
    return HR__CALL_FAIL(c, "%d and %d integers for %d dims", before->count, after->count, rank);
  }
  memcpy(out_ints + first, before->value.ints, (size_t)rank * sizeof *out_ints);
  memcpy(out_ints + first + rank, after->value.ints, (size_t)rank * sizeof *out_ints);
  return HR_OK;
}

hr_status hr__emit_pad(const hr__function_call *c) {
  int64_t ints[2 * HR_RANK_MAX];
  HR_RETURN_IF_ERROR(sides_of(c, 0, ints));
  hr_scalar value = hr__real_attribute(c, 2);
  hr_attrs attrs = {.int_count = 2 * c->inputs[0]->rank, .scalar_count = 1, .ints = ints, .scalars = &value};
  return hr__record_one(c, c->row->op, &attrs, 1, c->inputs, HR_DTYPE_NONE, c->output);
}

static hr_status pad_border(const hr__function_call *c, bool is_edge) {
  int64_t ints[2 * HR_RANK_MAX + 1] = {is_edge};
  HR_RETURN_IF_ERROR(sides_of(c, 1, ints));
  hr_attrs attrs = {.int_count = 1 + 2 * c->inputs[0]->rank, .ints = ints};
  return hr__record_one(c, c->row->op, &attrs, 1, c->inputs, HR_DTYPE_NONE, c->output);
}

hr_status hr__emit_pad_reflect(const hr__function_call *c) {
  return pad_border(c, false);
}

hr_status hr__emit_pad_edge(const hr__function_call *c) {
  return pad_border(c, true);
}

/* Each dim as two: the repetitions, and the dim; then both as one. */
hr_status hr__emit_tile(const hr__function_call *c) {
  const hr_tensor *x = c->inputs[0];
  const hr_attribute *times = &c->attributes[0];
  int rank = x->rank > times->count ? x->rank : times->count;
  if (2 * rank > HR_RANK_MAX) {
    return HR__CALL_FAIL(c, "%d dims, expected at most %d", rank, HR_RANK_MAX / 2);
  }
  hr_tensor pairs;
  int64_t dims[HR_RANK_MAX];
  hr__view_like(x, &pairs);
  pairs.rank = 2 * rank;
  for (int d = 0; d < rank; ++d) {
    int from = d - (rank - x->rank), at = d - (rank - times->count);
    int64_t size = from >= 0 ? x->dims[from] : 1, count = at >= 0 ? times->value.ints[at] : 1;
    if (count < 0 || __builtin_mul_overflow(size, count, &dims[d])) {
      hr_tensor_release(&pairs);
      return HR__CALL_FAIL(c, "%lld repetitions of %lld elements", (long long)count, (long long)size);
    }
    pairs.dims[2 * d] = count, pairs.strides[2 * d] = 0;
    pairs.dims[2 * d + 1] = size, pairs.strides[2 * d + 1] = from >= 0 ? x->strides[from] : 1;
  }
  hr_status status = hr__reshape(c, &pairs, rank, dims, c->output);
  hr_tensor_release(&pairs);
  return status;
}

hr_status hr__emit_roll(const hr__function_call *c) {
  const hr_tensor *x = c->inputs[0];
  int axis = 0;
  HR_RETURN_IF_ERROR(hr__check_axis(c, hr__int_attribute(c, 1), x->rank, &axis));
  int64_t size = x->dims[axis], shift = size > 0 ? hr__int_attribute(c, 0) % size : 0;
  shift += shift < 0 ? size : 0;
  hr_tensor parts[2]; /* borrowed views: the last `shift` elements, the ones before */
  const hr_tensor *both[2] = {&parts[0], &parts[1]};
  hr__copy_tensor(x, &parts[0]);
  hr__copy_tensor(x, &parts[1]);
  parts[0].offset += (size - shift) * x->strides[axis];
  parts[0].dims[axis] = shift, parts[1].dims[axis] = size - shift;
  const int64_t ints[1] = {axis};
  hr_attrs attrs = {.int_count = 1, .ints = ints};
  return hr__record_one(c, c->row->op, &attrs, 2, both, HR_DTYPE_NONE, c->output);
}

static hr_status emit_triangle(const hr__function_call *c, bool is_upper) {
  const int64_t ints[1] = {is_upper};
  hr_scalar diagonal = hr_scalar_i64(hr__int_attribute(c, 0));
  hr_attrs attrs = {.int_count = 1, .scalar_count = 1, .ints = ints, .scalars = &diagonal};
  return hr__record_one(c, c->row->op, &attrs, 1, c->inputs, HR_DTYPE_NONE, c->output);
}

hr_status hr__emit_lower_triangle(const hr__function_call *c) {
  return emit_triangle(c, false);
}

hr_status hr__emit_upper_triangle(const hr__function_call *c) {
  return emit_triangle(c, true);
}
