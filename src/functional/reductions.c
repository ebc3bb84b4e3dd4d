/* reductions.c: functions that combine the elements of some dims. */

#include "functional/functions.h"

enum { AXIS = 0, KEEPDIMS = 1, DTYPE = 2, CORRECTION = 2 };

/* The reduced dims of the output have size 1; without keepdims they go. */
static void finish(const hr__function_call *c, uint32_t mask) {
  if (hr__int_attribute(c, KEEPDIMS) == 0) {
    hr__drop_dims(c->output, mask);
  }
}

hr_dtype hr__sum_dtype(const hr__function_call *c, int attribute) {
  hr_dtype chosen = hr__dtype_attribute(c, attribute), dtype = c->inputs[0]->dtype;
  bool is_sum =
      c->row->op == HR_OP_SUM || c->row->op == HR_OP_PROD || c->row->op == HR_OP_CUMSUM || c->row->op == HR_OP_CUMPROD;
  bool is_unsigned = dtype == HR_DTYPE_U8 || dtype == HR_DTYPE_U16 || dtype == HR_DTYPE_U32 || dtype == HR_DTYPE_U64;
  return chosen == HR_DTYPE_NONE && is_sum && is_unsigned ? HR_DTYPE_U64 : chosen;
}

hr_status hr__emit_reduce(const hr__function_call *c) {
  uint32_t mask;
  HR_RETURN_IF_ERROR(hr__axes_attribute(c, AXIS, c->inputs[0]->rank, &mask));
  const int64_t ints[1] = {mask};
  hr_attrs attrs = {.int_count = 1, .ints = ints};
  HR_RETURN_IF_ERROR(hr__record_one(c, c->row->op, &attrs, 1, c->inputs, hr__sum_dtype(c, DTYPE), c->output));
  finish(c, mask);
  return HR_OK;
}

/* Integers are converted to f32, in which the row computes. */
static hr_status emit_moments(const hr__function_call *c, bool has_root) {
  uint32_t mask;
  HR_RETURN_IF_ERROR(hr__axes_attribute(c, AXIS, c->inputs[0]->rank, &mask));
  const int64_t ints[2] = {mask, has_root};
  hr_scalar correction = hr__real_attribute(c, CORRECTION);
  hr_attrs attrs = {.int_count = 2, .scalar_count = 1, .ints = ints, .scalars = &correction};
  hr_tensor floating = {0};
  const hr_tensor *x = c->inputs[0];
  if (x->dtype < HR_DTYPE_F16) {
    HR_RETURN_IF_ERROR(hr__convert(c, x, HR_DTYPE_F32, &floating));
    x = &floating;
  }
  hr_status status = hr__record_one(c, c->row->op, &attrs, 1, &x, HR_DTYPE_NONE, c->output);
  hr_tensor_release(&floating);
  if (status == HR_OK) {
    finish(c, mask);
  }
  return status;
}

hr_status hr__emit_variance(const hr__function_call *c) {
  return emit_moments(c, false);
}

hr_status hr__emit_deviation(const hr__function_call *c) {
  return emit_moments(c, true);
}

/* The index in the flattened x; with keepdims all dims of the result have size 1. */
static hr_status argreduce_all(const hr__function_call *c) {
  const hr_tensor *x = c->inputs[0];
  int64_t count;
  const int64_t ints[1] = {1}, ones[HR_RANK_MAX] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
  hr_tensor flat, found = {0};
  HR_RETURN_IF_ERROR(hr__check_count(c, x->rank, x->dims, &count));
  HR_RETURN_IF_ERROR(hr__reshape(c, x, 1, &count, &flat));
  const hr_tensor *inputs[1] = {&flat};
  hr_attrs attrs = {.int_count = 1, .ints = ints};
  hr_status status = hr__record_one(c, c->row->op, &attrs, 1, inputs, HR_DTYPE_NONE, &found);
  if (status == HR_OK) {
    int rank = hr__int_attribute(c, KEEPDIMS) != 0 ? x->rank : 0;
    status = hr__reshape(c, &found, rank, ones, c->output);
  }
  hr_tensor_release(&flat);
  hr_tensor_release(&found);
  return status;
}

hr_status hr__emit_argreduce(const hr__function_call *c) {
  const hr_attribute *axes = hr__given_attribute(c, AXIS);
  if (axes == NULL) {
    return argreduce_all(c);
  }
  if (axes->count != 1) {
    return HR__CALL_FAIL(c, "%d axes, expected one or none", axes->count);
  }
  return hr__emit_reduce(c);
}

/* Of one input, or of x at the places that another one gives. */
hr_status hr__emit_along_axis(const hr__function_call *c) {
  int axis;
  HR_RETURN_IF_ERROR(hr__check_axis(c, hr__int_attribute(c, AXIS), c->inputs[0]->rank, &axis));
  const int64_t ints[1] = {axis};
  hr_attrs attrs = {.int_count = 1, .ints = ints};
  return hr__record_one(c, c->row->op, &attrs, c->input_count, c->inputs, HR_DTYPE_NONE, c->output);
}
