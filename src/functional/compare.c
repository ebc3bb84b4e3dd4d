/* compare.c: tensors that are equal, or nearly so. */
#include <math.h>

#include "functional/formula.h"

/* Both in the dtype in which differences are computed: f64 for integers. */
static void prepare(hr__formula *f, const hr_tensor *both[2]) {
  hr_dtype dtype = hr__promoted(f, 2, f->call->inputs);
  for (int i = 0; i < 2; ++i) {
    both[i] = f->call->inputs[i];
    if (hr_dtype_is_integer(dtype)) {
      both[i] = hr__as_dtype(f, both[i], HR_DTYPE_F64);
    }
  }
}

static const hr_tensor *size_of(hr__formula *f, const hr_tensor *x) {
  return hr__unary(f, hr_dtype_is_complex(x->dtype) ? HR_OP_ABS_COMPLEX : HR_OP_ABS, x);
}

/* x != x */
static const hr_tensor *are_both_nan(hr__formula *f, const hr_tensor *x, const hr_tensor *y) {
  return hr__binary(f, HR_OP_LOGICAL_AND, hr__binary(f, HR_OP_NE, x, x), hr__binary(f, HR_OP_NE, y, y));
}

static const hr_tensor *are_close(hr__formula *f) {
  enum { RTOL, ATOL, EQUAL_NAN };
  const hr__function_call *c = f->call;
  const hr_tensor *both[2];
  prepare(f, both);
  const hr_tensor *size = size_of(f, both[1]);
  const hr_tensor *bound = hr__binary(f, HR_OP_MUL, size, hr__number(f, hr__real_attribute(c, RTOL)));
  bound = hr__binary(f, HR_OP_ADD, bound, hr__number(f, hr__real_attribute(c, ATOL)));
  const hr_tensor *distance = size_of(f, hr__binary(f, HR_OP_SUB, both[0], both[1]));
  const hr_tensor *is_finite = hr__binary(f, HR_OP_LT, size, hr__real(f, HUGE_VAL));
  const hr_tensor *is_near = hr__binary(f, HR_OP_LOGICAL_AND, hr__binary(f, HR_OP_LE, distance, bound), is_finite);
  is_near = hr__binary(f, HR_OP_LOGICAL_OR, is_near, hr__binary(f, HR_OP_EQ, both[0], both[1]));
  return hr__int_attribute(c, EQUAL_NAN) != 0
             ? hr__binary(f, HR_OP_LOGICAL_OR, is_near, are_both_nan(f, both[0], both[1]))
             : is_near;
}

/* Over all dims. */
static const hr_tensor *are_all(hr__formula *f, const hr_tensor *x) {
  uint32_t mask = (1u << x->rank) - 1;
  return hr__reduced(f, HR_OP_ALL, x, mask);
}

hr_status hr__emit_isclose(const hr__function_call *c) {
  hr__formula f;
  hr__formula_begin(&f, c);
  return hr__formula_end(&f, are_close(&f));
}

hr_status hr__emit_allclose(const hr__function_call *c) {
  hr__formula f;
  hr__formula_begin(&f, c);
  return hr__formula_end(&f, are_all(&f, are_close(&f)));
}

hr_status hr__emit_array_equal(const hr__function_call *c) {
  hr__formula f;
  hr__formula_begin(&f, c);
  const hr_tensor *x = c->inputs[0], *y = c->inputs[1], *is_equal;
  if (x->rank != y->rank || memcmp(x->dims, y->dims, (size_t)x->rank * sizeof *x->dims) != 0) {
    return hr__formula_end(&f, hr__copied(&f, hr__number(&f, hr_scalar_bool(0)), HR_DTYPE_BOOL, 0, NULL));
  }
  is_equal = hr__binary(&f, HR_OP_EQ, x, y);
  if (hr__int_attribute(c, 0) != 0) {
    is_equal = hr__binary(&f, HR_OP_LOGICAL_OR, is_equal, are_both_nan(&f, x, y));
  }
  return hr__formula_end(&f, are_all(&f, is_equal));
}
