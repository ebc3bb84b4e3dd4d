/* elementwise.c: functions of one row or a few, element by element. */
#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "functional/formula.h"

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
  enum { DTYPE, COPY };
  hr_dtype dtype = hr__dtype_attribute(c, DTYPE);
  if (hr__int_attribute(c, COPY) == 0 && (dtype == HR_DTYPE_NONE || dtype == c->inputs[0]->dtype)) {
    return hr__emit_positive(c);
  }
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

/* ---- of one or two records ---- */

/* Complex numbers with a NaN are unequal to themselves. */
hr_status hr__emit_isnan(const hr__function_call *c) {
  const hr_tensor *both[2] = {c->inputs[0], c->inputs[0]};
  return hr_dtype_is_complex(both[0]->dtype) ? hr__record_one(c, HR_OP_NE, NULL, 2, both, HR_DTYPE_NONE, c->output)
                                             : hr__emit_pointwise(c);
}

/* The absolute value is infinite if a part is, even beside NaN. */
hr_status hr__emit_isinf(const hr__function_call *c) {
  if (!hr_dtype_is_complex(c->inputs[0]->dtype)) {
    return hr__emit_pointwise(c);
  }
  hr__formula f;
  hr__formula_begin(&f, c);
  return hr__formula_end(&f, hr__unary(&f, HR_OP_IS_INF, hr__unary(&f, HR_OP_ABS_COMPLEX, c->inputs[0])));
}

hr_status hr__emit_clip(const hr__function_call *c) {
  const hr_tensor *x = c->inputs[0], *low = c->inputs[1], *high = c->inputs[2];
  if (low != NULL && high != NULL) {
    return hr__emit_pointwise(c);
  }
  hr__formula f;
  hr__formula_begin(&f, c);
  x = low != NULL ? hr__binary(&f, HR_OP_MAXIMUM, x, low) : x;
  x = high != NULL ? hr__binary(&f, HR_OP_MINIMUM, x, high) : x;
  return hr__formula_end(&f, x);
}

/* NaN stays NaN. */
hr_status hr__emit_sign(const hr__function_call *c) {
  const hr_tensor *x = c->inputs[0];
  if (hr_dtype_is_integer(x->dtype) || x->dtype == HR_DTYPE_BOOL) {
    return hr__emit_pointwise(c);
  }
  hr__formula f;
  hr__formula_begin(&f, c);
  if (hr_dtype_is_complex(x->dtype)) {
    const hr_tensor *size = hr__unary(&f, HR_OP_ABS_COMPLEX, x), *zero = hr__integer(&f, 0);
    const hr_tensor *is_zero = hr__binary(&f, HR_OP_EQ, size, zero);
    return hr__formula_end(&f, hr__ternary(&f, HR_OP_WHERE, is_zero, zero, hr__binary(&f, HR_OP_DIV, x, size)));
  }
  const hr_tensor *is_nan = hr__binary(&f, HR_OP_NE, x, x);
  return hr__formula_end(&f, hr__ternary(&f, HR_OP_WHERE, is_nan, x, hr__unary(&f, HR_OP_SIGN, x)));
}

static bool is_floating(const hr__formula *f, hr_dtype dtype) {
  return !hr__formula_failed(f) && !hr_dtype_is_integer(dtype) && dtype != HR_DTYPE_BOOL;
}

/* Whether x is infinite; NULL for a finite number of the host. */
static const hr_tensor *is_infinite(hr__formula *f, const hr_tensor *x) {
  if (x->number.dtype != HR_DTYPE_NONE) {
    if (!isinf(hr_scalar_as_f64(&x->number))) {
      return NULL;
    }
    x = hr__copied(f, x, HR_DTYPE_F64, 0, NULL);
  }
  return hr__binary(f, HR_OP_EQ, hr__unary(f, HR_OP_ABS, x), hr__real(f, (double)INFINITY));
}

/* The row is a quotient less its remainder, which is NaN for infinite x, and -1 for small x and an infinite y of the
 * other sign; the quotient rounded down is neither. */
hr_status hr__emit_floor_divide(const hr__function_call *c) {
  const hr_tensor *x = c->inputs[0], *y = c->inputs[1];
  hr__formula f;
  hr__formula_begin(&f, c);
  const hr_tensor *quotient = hr__binary(&f, HR_OP_DIV_FLOOR, x, y);
  if (is_floating(&f, quotient->dtype)) {
    const hr_tensor *is_x = is_infinite(&f, x), *is_y = is_infinite(&f, y);
    const hr_tensor *is_any = is_x == NULL ? is_y : is_y == NULL ? is_x : hr__binary(&f, HR_OP_LOGICAL_OR, is_x, is_y);
    const hr_tensor *rounded = hr__unary(&f, HR_OP_FLOOR, hr__binary(&f, HR_OP_DIV, x, y));
    quotient = is_any != NULL ? hr__ternary(&f, HR_OP_WHERE, is_any, rounded, quotient) : quotient;
  }
  return hr__formula_end(&f, quotient);
}

/* The row gives a 0 the sign of x. */
hr_status hr__emit_remainder(const hr__function_call *c) {
  hr__formula f;
  hr__formula_begin(&f, c);
  const hr_tensor *rest = hr__binary(&f, HR_OP_REMAINDER, c->inputs[0], c->inputs[1]);
  bool is_real = is_floating(&f, rest->dtype);
  return hr__formula_end(&f, is_real ? hr__binary(&f, HR_OP_COPYSIGN, rest, c->inputs[1]) : rest);
}

hr_status hr__emit_positive(const hr__function_call *c) {
  hr__view_like(c->inputs[0], c->output);
  return HR_OK;
}

/* ---- rounding to decimals ---- */

enum { EVEN, AWAY, TIES };
static const char *const ties_words[TIES] = {"even", "away"};

/* To the nearest integer. The fraction is exact, while x + 0.5 may round up; NaN and infinities stay. */
static const hr_tensor *nearest(hr__formula *f, const hr_tensor *x, int ties) {
  if (ties == EVEN) {
    return hr__unary(f, HR_OP_ROUND, x);
  }
  const hr_tensor *whole = hr__unary(f, HR_OP_TRUNC, x),
                  *rest = hr__unary(f, HR_OP_ABS, hr__binary(f, HR_OP_SUB, x, whole));
  const hr_tensor *one = hr__binary(f, HR_OP_COPYSIGN, hr__real(f, 1), x);
  return hr__ternary(f, HR_OP_WHERE, hr__binary(f, HR_OP_GE, rest, hr__real(f, 0.5)), hr__plus(f, whole, one), whole);
}

/* Multiples of `unit`, in i64: the quotient is one more behind the middle, and in the middle if it is odd, or if x is
 * not negative and ties go away from 0. */
static const hr_tensor *rounded_integers(hr__formula *f, const hr_tensor *x, int64_t unit, int ties) {
  const hr_tensor *wide = hr__as_dtype(f, x, HR_DTYPE_I64), *size = hr__integer(f, unit);
  const hr_tensor *down = hr__binary(f, HR_OP_DIV_FLOOR, wide, size), *half = hr__integer(f, unit / 2);
  const hr_tensor *rest = hr__binary(f, HR_OP_SUB, wide, hr__binary(f, HR_OP_MUL, down, size));
  const hr_tensor *is_odd = hr__binary(f, HR_OP_BIT_AND, down, hr__integer(f, 1));
  const hr_tensor *is_up = hr__as_dtype(f, hr__binary(f, HR_OP_GE, wide, hr__integer(f, 0)), HR_DTYPE_I64);
  const hr_tensor *limit = hr__binary(f, HR_OP_SUB, half, ties == AWAY ? is_up : is_odd);
  const hr_tensor *up = hr__as_dtype(f, hr__binary(f, HR_OP_GT, rest, limit), HR_DTYPE_I64);
  return hr__as_dtype(f, hr__binary(f, HR_OP_MUL, hr__binary(f, HR_OP_ADD, down, up), size), x->dtype);
}

/* In f64, which is exact enough for narrower dtypes; numbers that are too large to have decimals stay. */
static const hr_tensor *rounded_reals(hr__formula *f, const hr_tensor *x, int decimals, int ties) {
  const double exact_integers = 4503599627370496.0; /* 2^52 */
  const hr_tensor *wide = hr__as_dtype(f, x, HR_DTYPE_F64), *unit = hr__real(f, pow(10, abs(decimals)));
  const hr_tensor *scaled = hr__binary(f, decimals > 0 ? HR_OP_MUL : HR_OP_DIV, wide, unit);
  const hr_tensor *y = hr__binary(f, decimals > 0 ? HR_OP_DIV : HR_OP_MUL, nearest(f, scaled, ties), unit);
  const hr_tensor *is_small = hr__binary(f, HR_OP_LT, hr__unary(f, HR_OP_ABS, scaled), hr__real(f, exact_integers));
  return hr__as_dtype(f, hr__ternary(f, HR_OP_WHERE, is_small, y, wide), x->dtype);
}

/* Both parts, each rounded. */
static hr_status rounded_complex(const hr__function_call *c) {
  hr__formula f;
  hr__formula_begin(&f, c);
  const hr_tensor *parts[2] = {hr__unary(&f, HR_OP_REAL, c->inputs[0]), hr__unary(&f, HR_OP_IMAG, c->inputs[0])};
  for (int i = 0; i < 2; ++i) {
    parts[i] = hr__function(&f, HR_FUNCTIONAL_ROUND, 1, &parts[i], c->attribute_count, c->attributes);
  }
  return hr__formula_end(&f, hr__binary(&f, HR_OP_COMPLEX, parts[0], parts[1]));
}

static hr_status rounded_away(const hr__function_call *c) {
  hr__formula f;
  hr__formula_begin(&f, c);
  return hr__formula_end(&f, nearest(&f, c->inputs[0], AWAY));
}

hr_status hr__emit_rounded(const hr__function_call *c) {
  enum { MOST_TENS = 18, MOST_DECIMALS = 22 }; /* 10^18 is an i64, 10^22 an exact f64 */
  const hr_tensor *x = c->inputs[0];
  int64_t decimals = hr__int_attribute(c, 0);
  int ties;
  HR_RETURN_IF_ERROR(hr__word_attribute(c, 1, TIES, ties_words, &ties));
  bool is_integer = hr_dtype_is_integer(x->dtype);
  if (hr_dtype_is_complex(x->dtype) && x->number.dtype == HR_DTYPE_NONE) {
    return rounded_complex(c);
  }
  if (decimals == 0 || (decimals > 0 && is_integer) || hr_dtype_is_complex(x->dtype)) {
    return ties == EVEN || is_integer ? hr__emit_pointwise(c) : rounded_away(c);
  }
  if (decimals < -MOST_TENS || decimals > MOST_DECIMALS) {
    return HR__CALL_FAIL(c, "%lld decimals, expected %d to %d", (long long)decimals, -MOST_TENS, MOST_DECIMALS);
  }
  if (x->number.dtype != HR_DTYPE_NONE || x->dtype == HR_DTYPE_BOOL || x->dtype == HR_DTYPE_U64) {
    return HR__CALL_FAIL(c, "decimals of %s, expected a tensor of another dtype",
                         x->number.dtype != HR_DTYPE_NONE ? "a number" : hr_dtype_name(x->dtype));
  }
  hr__formula f;
  hr__formula_begin(&f, c);
  int64_t unit = 1;
  for (int64_t i = decimals; i < 0; ++i) {
    unit *= 10;
  }
  return hr__formula_end(&f,
                         is_integer ? rounded_integers(&f, x, unit, ties) : rounded_reals(&f, x, (int)decimals, ties));
}

/* x * factor; integers become f32. */
hr_status hr__emit_scaled(const hr__function_call *c) {
  hr__formula f;
  hr__formula_begin(&f, c);
  hr_scalar factor = hr__real_attribute(c, 0);
  return hr__formula_end(&f, hr__binary(&f, HR_OP_MUL, c->inputs[0], hr__real(&f, hr_scalar_as_f64(&factor))));
}

/* A power with the exponent 1 / 3, which is not exact, and a step of Newton's method unless x is 0, infinite or NaN. */
hr_status hr__emit_cbrt(const hr__function_call *c) {
  hr__formula f;
  hr__formula_begin(&f, c);
  const hr_tensor *x = c->inputs[0], *size = hr__unary(&f, HR_OP_ABS, x);
  const hr_tensor *y = hr__binary(&f, HR_OP_POW, size, hr__real(&f, 1.0 / 3)), *square = hr__unary(&f, HR_OP_SQUARE, y);
  const hr_tensor *rest = hr__binary(&f, HR_OP_SUB, y, hr__binary(&f, HR_OP_DIV, size, square));
  const hr_tensor *step = hr__binary(&f, HR_OP_DIV, rest, hr__integer(&f, 3));
  const hr_tensor *is_finite = hr__binary(&f, HR_OP_LT, hr__unary(&f, HR_OP_ABS, step), y);
  step = hr__ternary(&f, HR_OP_WHERE, is_finite, step, hr__integer(&f, 0));
  return hr__formula_end(&f, hr__binary(&f, HR_OP_COPYSIGN, hr__binary(&f, HR_OP_SUB, y, step), x));
}

/* In two steps: 2^y alone may be infinite or 0. */
hr_status hr__emit_ldexp(const hr__function_call *c) {
  hr__formula f;
  hr__formula_begin(&f, c);
  const hr_tensor *y = c->inputs[1],
                  *half = hr__unary(&f, HR_OP_TRUNC, hr__binary(&f, HR_OP_DIV, y, hr__integer(&f, 2)));
  const hr_tensor *rest = hr__binary(&f, HR_OP_SUB, y, half);
  const hr_tensor *x = hr__binary(&f, HR_OP_MUL, c->inputs[0], hr__unary(&f, HR_OP_EXP2, half));
  return hr__formula_end(&f, hr__binary(&f, HR_OP_MUL, x, hr__unary(&f, HR_OP_EXP2, rest)));
}

/* erfc(-x / sqrt(2)) / 2 */
hr_status hr__emit_ndtr(const hr__function_call *c) {
  hr__formula f;
  hr__formula_begin(&f, c);
  const hr_tensor *x = hr__binary(&f, HR_OP_MUL, c->inputs[0], hr__real(&f, -0.70710678118654752440));
  return hr__formula_end(&f, hr__binary(&f, HR_OP_MUL, hr__unary(&f, HR_OP_ERFC, x), hr__real(&f, 0.5)));
}

hr_status hr__emit_angle(const hr__function_call *c) {
  hr_op op = hr_dtype_is_complex(c->inputs[0]->dtype) ? HR_OP_ANGLE_COMPLEX : HR_OP_ANGLE;
  return hr__record_one(c, op, NULL, 1, c->inputs, HR_DTYPE_NONE, c->output);
}

/* The largest finite number. */
static double largest_of(hr_dtype dtype) {
  switch (dtype) {
    case HR_DTYPE_F16:
    case HR_DTYPE_C32:
      return 65504;
    case HR_DTYPE_BF16:
      return 0x1.fep127;
    case HR_DTYPE_F64:
    case HR_DTYPE_C128:
      return DBL_MAX;
    default:
      return FLT_MAX;
  }
}

hr_status hr__emit_nan_to_num(const hr__function_call *c) {
  enum { NAN_VALUE, POSINF, NEGINF };
  hr_dtype dtype = c->inputs[0]->dtype;
  if (hr_dtype_is_integer(dtype)) {
    return hr__emit_positive(c);
  }
  hr__formula f;
  hr__formula_begin(&f, c);
  bool has_most = hr__given_attribute(c, POSINF) != NULL, has_least = hr__given_attribute(c, NEGINF) != NULL;
  const hr_tensor *inputs[4] = {
      c->inputs[0], hr__number(&f, hr__real_attribute(c, NAN_VALUE)),
      hr__number(&f, has_most ? hr__real_attribute(c, POSINF) : hr_scalar_f64(largest_of(dtype))),
      hr__number(&f, has_least ? hr__real_attribute(c, NEGINF) : hr_scalar_f64(-largest_of(dtype)))};
  return hr__formula_end(&f, hr__step(&f, HR_OP_NAN_TO_NUM, NULL, 4, inputs, HR_DTYPE_NONE));
}

hr_status hr__emit_logit(const hr__function_call *c) {
  hr__formula f;
  hr__formula_begin(&f, c);
  const hr_tensor *x = c->inputs[0];
  if (hr__given_attribute(c, 0) != NULL) {
    hr_scalar eps = hr__real_attribute(c, 0);
    double low = hr_scalar_as_f64(&eps);
    x = hr__ternary(&f, HR_OP_CLAMP, x, hr__real(&f, low), hr__real(&f, 1 - low));
  }
  return hr__formula_end(&f, hr__unary(&f, HR_OP_LOGIT, x));
}

/* ---- two results ---- */

hr_status hr__emit_divmod(const hr__function_call *c) {
  hr__formula f;
  hr__formula_begin(&f, c);
  const hr_tensor *results[2] = {hr__binary(&f, HR_OP_DIV_FLOOR, c->inputs[0], c->inputs[1]),
                                 hr__binary(&f, HR_OP_REMAINDER, c->inputs[0], c->inputs[1])};
  return hr__formula_finish(&f, 2, results);
}

/* The fraction of an infinity, of which FRAC is NaN, is 0 with its sign. */
hr_status hr__emit_modf(const hr__function_call *c) {
  hr__formula f;
  hr__formula_begin(&f, c);
  const hr_tensor *x = c->inputs[0], *whole = hr__unary(&f, HR_OP_TRUNC, x);
  const hr_tensor *fraction = hr__unary(&f, HR_OP_FRAC, x), *is_infinite = hr__unary(&f, HR_OP_IS_INF, x);
  fraction = hr__ternary(&f, HR_OP_WHERE, is_infinite, hr__real(&f, 0), fraction);
  const hr_tensor *results[2] = {hr__binary(&f, HR_OP_COPYSIGN, fraction, x), whole};
  return hr__formula_finish(&f, 2, results);
}

hr_status hr__emit_frexp(const hr__function_call *c) {
  hr__formula f;
  hr__formula_begin(&f, c);
  const hr_tensor *exponent = hr__unary(&f, HR_OP_FREXP_EXPONENT, c->inputs[0]);
  const hr_tensor *results[2] = {hr__unary(&f, HR_OP_FREXP_MANTISSA, c->inputs[0]),
                                 hr__as_dtype(&f, exponent, HR_DTYPE_I32)};
  return hr__formula_finish(&f, 2, results);
}
