/* elementwise.c: functions of one row, element by element. */
#include <math.h>

#include "core/ir/dtype.h"
#include "functional/functions.h"

hr_status hr__emit_pointwise(const hr__function_call *c) {
  return hr__record_one(c, c->row->op, NULL, c->input_count, c->inputs, HR_DTYPE_NONE, c->output);
}

hr_status hr__emit_magnitude(const hr__function_call *c) {
  hr_op op = hr_dtype_is_complex(c->inputs[0]->dtype) ? HR_OP_ABS_COMPLEX : c->row->op;
  return hr__record_one(c, op, NULL, 1, c->inputs, HR_DTYPE_NONE, c->output);
}

hr_status hr__emit_invert(const hr__function_call *c) {
  hr_op op = c->inputs[0]->dtype == HR_DTYPE_BOOL ? HR_OP_LOGICAL_NOT : c->row->op;
  return hr__record_one(c, op, NULL, 1, c->inputs, HR_DTYPE_NONE, c->output);
}

hr_status hr__emit_astype(const hr__function_call *c) {
  hr_dtype dtype = hr__dtype_attribute(c, 0);
  return hr__record_one(c, HR_OP_COPY, NULL, 1, c->inputs, dtype, c->output);
}

/* The magnitude is below infinity. */
hr_status hr__emit_isfinite(const hr__function_call *c) {
  hr_op op = hr_dtype_is_complex(c->inputs[0]->dtype) ? HR_OP_ABS_COMPLEX : HR_OP_ABS;
  hr_tensor size, infinity = hr_tensor_number(hr_scalar_f64((double)INFINITY));
  const hr_tensor *both[2] = {&size, &infinity};
  if (c->inputs[0]->dtype == HR_DTYPE_BOOL) {
    hr__view_like(c->inputs[0], &size);
  } else {
    HR_RETURN_IF_ERROR(hr__record_one(c, op, NULL, 1, c->inputs, HR_DTYPE_NONE, &size));
  }
  hr_status status = hr__record_one(c, HR_OP_LT, NULL, 2, both, HR_DTYPE_NONE, c->output);
  hr_tensor_release(&size);
  return status;
}
