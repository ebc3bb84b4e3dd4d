/* activations.c: activations whose parameters are numbers, which are arguments of each run. */
#include "functional/formula.h"

enum { MOST = 8 };

/* The row on the inputs, and numbers behind them. */
static hr_status with_numbers(const hr__function_call *c, hr_op op, int count, const hr_scalar *numbers) {
  hr_tensor values[MOST];
  const hr_tensor *operands[2 * MOST];
  int all = c->input_count;
  for (int i = 0; i < all; ++i) {
    operands[i] = c->inputs[i];
  }
  for (int i = 0; i < count; ++i) {
    values[i] = hr_tensor_number(numbers[i]);
    operands[all++] = &values[i];
  }
  return hr__record_one(c, op, NULL, all, operands, HR_DTYPE_NONE, c->output);
}

/* All attributes are operands of the row, behind the inputs. */
hr_status hr__emit_parametric(const hr__function_call *c) {
  hr_scalar numbers[MOST];
  int count = 0;
  for (; c->row->attributes[count].name != NULL; ++count) {
    numbers[count] = hr__real_attribute(c, count);
  }
  return with_numbers(c, c->row->op, count, numbers);
}

static const char *const approximations[] = {"none", "tanh", "sigmoid"};

hr_status hr__emit_gelu(const hr__function_call *c) {
  int which;
  HR_RETURN_IF_ERROR(hr__word_attribute(c, 0, 3, approximations, &which));
  if (which < 2) {
    return with_numbers(c, which == 0 ? HR_OP_GELU : HR_OP_GELU_TANH, 0, NULL);
  }
  hr__formula f;
  hr__formula_begin(&f, c);
  const hr_tensor *x = c->inputs[0], *scaled = hr__binary(&f, HR_OP_MUL, x, hr__real(&f, 1.702));
  return hr__formula_end(&f, hr__binary(&f, HR_OP_MUL, x, hr__unary(&f, HR_OP_SIGMOID, scaled)));
}

/* ---- exponential units: the row's operands are x, alpha, scale, input scale ---- */

hr_status hr__emit_elu(const hr__function_call *c) {
  const hr_scalar numbers[3] = {hr__real_attribute(c, 0), hr_scalar_f64(1), hr_scalar_f64(1)};
  return with_numbers(c, HR_OP_ELU, 3, numbers);
}

hr_status hr__emit_celu(const hr__function_call *c) {
  hr_scalar alpha = hr__real_attribute(c, 0);
  const hr_scalar numbers[3] = {alpha, hr_scalar_f64(1), hr_scalar_f64(1 / hr_scalar_as_f64(&alpha))};
  return with_numbers(c, HR_OP_ELU, 3, numbers);
}

hr_status hr__emit_selu(const hr__function_call *c) {
  const hr_scalar numbers[3] = {hr__real_attribute(c, 0), hr__real_attribute(c, 1), hr_scalar_f64(1)};
  return with_numbers(c, HR_OP_ELU, 3, numbers);
}

/* ---- of several records ---- */

hr_status hr__emit_hard_sigmoid(const hr__function_call *c) {
  if (hr__given_attribute(c, 0) == NULL && hr__given_attribute(c, 1) == NULL) {
    return with_numbers(c, HR_OP_HARDSIGMOID, 0, NULL);
  }
  hr__formula f;
  hr__formula_begin(&f, c);
  const hr_tensor *x = hr__binary(&f, HR_OP_MUL, c->inputs[0], hr__number(&f, hr__real_attribute(c, 0)));
  x = hr__binary(&f, HR_OP_ADD, x, hr__number(&f, hr__real_attribute(c, 1)));
  return hr__formula_end(&f, hr__ternary(&f, HR_OP_CLAMP, x, hr__integer(&f, 0), hr__integer(&f, 1)));
}

hr_status hr__emit_step(const hr__function_call *c) {
  hr__formula f;
  hr__formula_begin(&f, c);
  const hr_tensor *x = c->inputs[0], *above;
  above = hr__binary(&f, HR_OP_GT, x, hr__number(&f, hr__real_attribute(c, 0)));
  return hr__formula_end(&f, hr__as_dtype(&f, above, hr__promoted(&f, 1, &x)));
}

hr_status hr__emit_relu2(const hr__function_call *c) {
  hr__formula f;
  hr__formula_begin(&f, c);
  return hr__formula_end(&f, hr__unary(&f, HR_OP_SQUARE, hr__unary(&f, HR_OP_RELU, c->inputs[0])));
}

hr_status hr__emit_softsign(const hr__function_call *c) {
  hr__formula f;
  hr__formula_begin(&f, c);
  const hr_tensor *x = c->inputs[0], *size = hr__unary(&f, HR_OP_ABS, x);
  return hr__formula_end(&f, hr__binary(&f, HR_OP_DIV, x, hr__binary(&f, HR_OP_ADD, size, hr__integer(&f, 1))));
}

/* -softplus(-x) */
hr_status hr__emit_log_sigmoid(const hr__function_call *c) {
  const double linear_from = 80; /* e^80 is still an f32 */
  hr__formula f;
  hr__formula_begin(&f, c);
  const hr_tensor *x = hr__unary(&f, HR_OP_NEG, c->inputs[0]);
  x = hr__ternary(&f, HR_OP_SOFTPLUS, x, hr__integer(&f, 1), hr__real(&f, linear_from));
  return hr__formula_end(&f, hr__unary(&f, HR_OP_NEG, x));
}

hr_status hr__emit_softmin(const hr__function_call *c) {
  int axis;
  HR_RETURN_IF_ERROR(hr__check_axis(c, hr__int_attribute(c, 0), c->inputs[0]->rank, &axis));
  hr__formula f;
  hr__formula_begin(&f, c);
  return hr__formula_end(&f, hr__along(&f, HR_OP_SOFTMAX, hr__unary(&f, HR_OP_NEG, c->inputs[0]), axis));
}

hr_status hr__emit_glu(const hr__function_call *c) {
  const hr_tensor *x = c->inputs[0];
  int axis;
  HR_RETURN_IF_ERROR(hr__check_axis(c, hr__int_attribute(c, 0), x->rank, &axis));
  int64_t half = x->dims[axis] / 2;
  if (2 * half != x->dims[axis]) {
    return HR__CALL_FAIL(c, "axis %d has size %lld, expected an even one", axis, (long long)x->dims[axis]);
  }
  hr__formula f;
  hr__formula_begin(&f, c);
  const hr_tensor *first = hr__part(&f, x, axis, 0, half), *second = hr__part(&f, x, axis, half, half);
  return hr__formula_end(&f, hr__binary(&f, HR_OP_GLU, first, second));
}
