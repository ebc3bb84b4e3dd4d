/* creations.c: tensors that are made of numbers alone. */
#include <math.h>

#include "core/ir/dtype.h"
#include "functional/functions.h"

hr_status hr__emit_full(const hr__function_call *c) {
  const hr_tensor *value = c->inputs[0];
  const hr_attribute *shape = hr__given_attribute(c, 0);
  hr_dtype dtype = hr__dtype_attribute(c, 1);
  if (dtype == HR_DTYPE_NONE) {
    hr_tensor_type type = {.dtype = value->dtype, .is_number = value->number.dtype != HR_DTYPE_NONE}, result = {0};
    HR_RETURN_IF_ERROR(hr_op_infer(HR_OP_COPY, NULL, 1, &type, 1, &result));
    dtype = result.dtype;
  }
  return hr__record_new(c, HR_OP_COPY, NULL, 1, &value, dtype, shape->count, shape->value.ints, c->output);
}

hr_status hr__emit_arange(const hr__function_call *c) {
  const hr_scalar all[3] = {hr__real_attribute(c, 0), hr__real_attribute(c, 1), hr__real_attribute(c, 2)};
  double start = hr_scalar_as_f64(&all[0]), stop = hr_scalar_as_f64(&all[1]), step = hr_scalar_as_f64(&all[2]),
         count = ceil((stop - start) / step);
  bool is_integer = all[0].dtype == HR_DTYPE_I64 && all[1].dtype == HR_DTYPE_I64 && all[2].dtype == HR_DTYPE_I64;
  if (!(fabs(step) > 0) || !(count < 0x1p62)) {
    return HR__CALL_FAIL(c, "%g to %g with step %g has no number of elements", start, stop, step);
  }
  hr_dtype dtype = hr__dtype_attribute(c, 3);
  dtype = dtype != HR_DTYPE_NONE ? dtype : is_integer ? HR_DTYPE_I64 : HR_DTYPE_F32;
  const hr_scalar scalars[2] = {all[0], all[2]};
  hr_attrs attrs = {.scalar_count = 2, .scalars = scalars};
  const int64_t dims[1] = {count > 0 ? (int64_t)count : 0};
  return hr__record_new(c, c->row->op, &attrs, 0, NULL, dtype, 1, dims, c->output);
}

hr_status hr__emit_eye(const hr__function_call *c) {
  int64_t rows = hr__int_attribute(c, 0), columns = hr__int_attribute(c, 1);
  hr_dtype dtype = hr__dtype_attribute(c, 2);
  const int64_t dims[2] = {rows, columns < 0 ? rows : columns};
  return hr__record_new(c, c->row->op, NULL, 0, NULL, dtype != HR_DTYPE_NONE ? dtype : HR_DTYPE_F32, 2, dims,
                        c->output);
}
