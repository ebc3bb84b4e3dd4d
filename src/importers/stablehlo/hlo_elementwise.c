/* hlo_elementwise.c: element-wise operations, with XLA's results for all numbers. */
#include <math.h>

#include "core/ir/dtype.h"
#include "headrace/dtype.h"
#include "importers/stablehlo/hlo.h"

static bool is_signed(hr_dtype dtype) {
  return dtype == HR_DTYPE_I8 || dtype == HR_DTYPE_I16 || dtype == HR_DTYPE_I32 || dtype == HR_DTYPE_I64;
}
static bool is_integer(hr_dtype dtype) {
  return dtype >= HR_DTYPE_U8 && dtype <= HR_DTYPE_I64;
}
static int bits_of(hr_dtype dtype) {
  return (int)hr_dtype_size(dtype) * 8;
}
static uint64_t ones(int bits) {
  return bits >= 64 ? UINT64_MAX : ((uint64_t)1 << bits) - 1;
}

static uint64_t least_of(hr_dtype dtype) {
  return is_signed(dtype) ? (uint64_t)(-1 - (int64_t)ones(bits_of(dtype) - 1)) : 0;
}
static uint64_t most_of(hr_dtype dtype) {
  return ones(bits_of(dtype) - is_signed(dtype));
}

void hr__hlo_lower_unary(hr__hlo *hlo) {
  if (hr__hlo_expect(hlo, 1, 1, 0)) {
    hr__hlo_set(hlo, 0, hr_graph_add(hlo->graph, hlo->function, IN(hr__hlo_input(hlo, 0)), PLAIN));
  }
}

void hr__hlo_lower_binary(hr__hlo *hlo) {
  if (hr__hlo_expect(hlo, 2, 1, 0)) {
    hr_value x = hr__hlo_input(hlo, 0), y = hr__hlo_input(hlo, 1);
    hr__hlo_set(hlo, 0, hr_graph_add(hlo->graph, hlo->function, IN(x, y), PLAIN));
  }
}

/* The larger or smaller one by the real, then by the imaginary part. */
static hr_value best_complex(hr__hlo *hlo, hr_value x, hr_value y) {
  hr_value re[2] = {CALL(hlo, REAL, x), CALL(hlo, REAL, y)}, im[2] = {CALL(hlo, IMAG, x), CALL(hlo, IMAG, y)};
  bool is_max = hlo->function == HR_FUNCTIONAL_MAXIMUM;
  hr_functional better = is_max ? HR_FUNCTIONAL_GREATER : HR_FUNCTIONAL_LESS;
  hr_value is_better = hr_graph_add(hlo->graph, better, IN(re[0], re[1]), PLAIN);
  hr_value is_second = hr_graph_add(hlo->graph, better, IN(im[0], im[1]), PLAIN);
  is_second = CALL(hlo, LOGICAL_AND, CALL(hlo, EQUAL, re[0], re[1]), is_second);
  return CALL(hlo, WHERE, CALL(hlo, LOGICAL_OR, is_better, is_second), x, y);
}

/* True if an operand is known to be the same number everywhere. If that is a zero, out_wins tells if it is the extreme
 * of itself and another zero: -0 is less than +0. */
static bool is_number(const hr__hlo *hlo, int index, bool *out_wins) {
  hr_scalar number;
  if (!hr__hlo_number_of(hlo, hlo->op->operands[index], &number) || number.dtype != HR_DTYPE_F64) {
    return false;
  }
  *out_wins = (hlo->function == HR_FUNCTIONAL_MINIMUM) == (signbit(number.value.f[0]) != 0);
  return true;
}

/* The larger or smaller one of floats. Of equal ones the function has the second: that is the right zero if one of them
 * is known. Of two other zeros it is the second one, too, as selects of signs would double the time. */
static hr_value best_float(hr__hlo *hlo, hr_value x, hr_value y) {
  bool wins = true, is_second = is_number(hlo, 1, &wins);
  bool is_turned = is_second ? !wins : is_number(hlo, 0, &wins) && wins;
  return hr_graph_add(hlo->graph, hlo->function, IN(is_turned ? y : x, is_turned ? x : y), PLAIN);
}

/* Of flags the function is another one. */
void hr__hlo_lower_arithmetic(hr__hlo *hlo) {
  bool is_extreme = hlo->function == HR_FUNCTIONAL_MAXIMUM || hlo->function == HR_FUNCTIONAL_MINIMUM;
  if (is_extreme && hr_dtype_is_complex(hr__hlo_result_type(hlo, 0).dtype) && hr__hlo_expect(hlo, 2, 1, 0)) {
    hr__hlo_set(hlo, 0, best_complex(hlo, hr__hlo_input(hlo, 0), hr__hlo_input(hlo, 1)));
    return;
  }
  if (is_extreme && hr_dtype_is_real(hr__hlo_result_type(hlo, 0).dtype) && hr__hlo_expect(hlo, 2, 1, 0)) {
    hr__hlo_set(hlo, 0, best_float(hlo, hr__hlo_input(hlo, 0), hr__hlo_input(hlo, 1)));
    return;
  }
  if (hr__hlo_result_type(hlo, 0).dtype == HR_DTYPE_BOOL) {
    bool is_and = hlo->function == HR_FUNCTIONAL_MULTIPLY || hlo->function == HR_FUNCTIONAL_MINIMUM;
    hlo->function = is_and ? HR_FUNCTIONAL_LOGICAL_AND : HR_FUNCTIONAL_LOGICAL_OR;
  }
  hr__hlo_lower_binary(hlo);
}

void hr__hlo_lower_cbrt(hr__hlo *hlo) {
  if (hr__hlo_expect(hlo, 1, 1, 0)) {
    hr_value x = hr__hlo_input(hlo, 0);
    hr__hlo_set(hlo, 0,
                hr_dtype_is_complex(hr__hlo_result_type(hlo, 0).dtype) ? CALL(hlo, POW, x, hr__hlo_number(hlo, 1.0 / 3))
                                                                       : CALL(hlo, CBRT, x));
  }
}

/* -i log((x + i y) / sqrt(x x + y y)), as XLA has it. */
static hr_value complex_angle(hr__hlo *hlo, hr_value y, hr_value x) {
  hr_value turned = CALL(hlo, COMPLEX, CALL(hlo, NEGATIVE, CALL(hlo, IMAG, y)), CALL(hlo, REAL, y));
  hr_value squares = CALL(hlo, ADD, CALL(hlo, MULTIPLY, x, x), CALL(hlo, MULTIPLY, y, y));
  hr_value log = CALL(hlo, LOG, CALL(hlo, DIVIDE, CALL(hlo, ADD, x, turned), CALL(hlo, SQRT, squares)));
  return CALL(hlo, COMPLEX, CALL(hlo, IMAG, log), CALL(hlo, NEGATIVE, CALL(hlo, REAL, log)));
}

void hr__hlo_lower_atan2(hr__hlo *hlo) {
  if (!hr_dtype_is_complex(hr__hlo_result_type(hlo, 0).dtype)) {
    hr__hlo_lower_binary(hlo);
  } else if (hr__hlo_expect(hlo, 2, 1, 0)) {
    hr__hlo_set(hlo, 0, complex_angle(hlo, hr__hlo_input(hlo, 0), hr__hlo_input(hlo, 1)));
  }
}

/* Zeros and NaN stay as they are. */
void hr__hlo_lower_sign(hr__hlo *hlo) {
  if (hr__hlo_expect(hlo, 1, 1, 0)) {
    hr_value x = hr__hlo_input(hlo, 0), sign = CALL(hlo, SIGN, x);
    if (hr_dtype_is_real(hr__hlo_result_type(hlo, 0).dtype)) {
      sign = CALL(hlo, WHERE, CALL(hlo, GREATER, CALL(hlo, ABS, x), hr__hlo_number(hlo, 0)), sign, x);
    }
    hr__hlo_set(hlo, 0, sign);
  }
}

void hr__hlo_lower_round_away(hr__hlo *hlo) {
  if (hr__hlo_expect(hlo, 1, 1, 0)) {
    hr__hlo_set(hlo, 0, ADD(hlo, ROUND, IN(hr__hlo_input(hlo, 0)), WITH(hr__with_text("ties", "away"))));
  }
}

/* ---- division: x / 0 is -1, or all ones, and x % 0 is x ---- */

void hr__hlo_lower_divide(hr__hlo *hlo) {
  hr_dtype dtype = hr__hlo_result_type(hlo, 0).dtype;
  hr_value x = hr__hlo_input(hlo, 0), y = hr__hlo_input(hlo, 1);
  if (!is_integer(dtype)) {
    hlo->function = HR_FUNCTIONAL_DIVIDE;
    hr__hlo_lower_binary(hlo);
  } else if (hr__hlo_expect(hlo, 2, 1, 0)) {
    hr_value whole_part = CALL(hlo, SUBTRACT, x, CALL(hlo, FMOD, x, y)); /* what y divides */
    hr_value quotient = CALL(hlo, FLOOR_DIVIDE, whole_part, y);
    hr_value otherwise =
        is_signed(dtype) ? hr__hlo_bits(hlo, dtype, UINT64_MAX) : hr__hlo_bits(hlo, dtype, most_of(dtype));
    hr__hlo_set(hlo, 0, CALL(hlo, WHERE, CALL(hlo, EQUAL, y, hr__hlo_whole(hlo, 0)), otherwise, quotient));
  }
}

void hr__hlo_lower_remainder(hr__hlo *hlo) {
  hr_dtype dtype = hr__hlo_result_type(hlo, 0).dtype;
  hr_value x = hr__hlo_input(hlo, 0), y = hr__hlo_input(hlo, 1);
  if (hr__hlo_expect(hlo, 2, 1, 0)) {
    hr_value rest = CALL(hlo, FMOD, x, y);
    bool has_zero = is_integer(dtype);
    hr__hlo_set(hlo, 0, has_zero ? CALL(hlo, WHERE, CALL(hlo, EQUAL, y, hr__hlo_whole(hlo, 0)), x, rest) : rest);
  }
}

/* ---- shifts: the function's own dtype decides which bits enter ---- */

static hr_dtype as_signed(hr_dtype dtype, bool wanted) {
  static const hr_dtype pairs[][2] = {{HR_DTYPE_U8, HR_DTYPE_I8},
                                      {HR_DTYPE_U16, HR_DTYPE_I16},
                                      {HR_DTYPE_U32, HR_DTYPE_I32},
                                      {HR_DTYPE_U64, HR_DTYPE_I64}};
  for (size_t i = 0; i < sizeof pairs / sizeof *pairs; ++i) {
    if (pairs[i][0] == dtype || pairs[i][1] == dtype) {
      return pairs[i][wanted];
    }
  }
  return dtype;
}

static void lower_shift(hr__hlo *hlo, hr_functional function, bool is_arithmetic) {
  hr_dtype dtype = hr__hlo_result_type(hlo, 0).dtype, other = as_signed(dtype, is_arithmetic);
  if (!hr__hlo_expect(hlo, 2, 1, 0)) {
    return;
  }
  bool turns = function == HR_FUNCTIONAL_BITWISE_RIGHT_SHIFT && other != dtype;
  hr_value x = hr__hlo_input(hlo, 0), y = hr__hlo_input(hlo, 1);
  hr__vhlo_type type = hr__hlo_input_type(hlo, 0);
  int narrow = hr__hlo_narrow(&type);
  if (narrow > 0 && function == HR_FUNCTIONAL_BITWISE_RIGHT_SHIFT && !is_arithmetic) {
    x = hr__hlo_low_bits(hlo, x, dtype, narrow);
  } else if (narrow > 0 && is_arithmetic) { /* of unsigned ones the highest bit is the sign's */
    type.dtype = HR_DTYPE_I8;
    x = hr__hlo_bitcast(hlo, hr__hlo_wrapped(hlo, hr__hlo_bitcast(hlo, x, HR_DTYPE_I8), &type), dtype);
  }
  if (turns) {
    x = hr__hlo_bitcast(hlo, x, other), y = hr__hlo_bitcast(hlo, y, other);
  }
  hr_value shifted = hr_graph_add(hlo->graph, function, IN(x, y), PLAIN);
  hr__hlo_set(hlo, 0, turns ? hr__hlo_bitcast(hlo, shifted, dtype) : shifted);
}

void hr__hlo_lower_shift_left(hr__hlo *hlo) {
  lower_shift(hlo, HR_FUNCTIONAL_BITWISE_LEFT_SHIFT, false);
}

void hr__hlo_lower_shift_arithmetic(hr__hlo *hlo) {
  lower_shift(hlo, HR_FUNCTIONAL_BITWISE_RIGHT_SHIFT, true);
}

void hr__hlo_lower_shift_logical(hr__hlo *hlo) {
  lower_shift(hlo, HR_FUNCTIONAL_BITWISE_RIGHT_SHIFT, false);
}

/* ---- comparison ---- */

/* Integers in the total order of floats: -NaN < -inf < ... < -0 < 0 < ... < inf < NaN. */
hr_value hr__hlo_order_of(hr__hlo *hlo, hr_value x, hr_dtype dtype) {
  static const hr_dtype integers[] = {[1] = HR_DTYPE_I8, [2] = HR_DTYPE_I16, [4] = HR_DTYPE_I32, [8] = HR_DTYPE_I64};
  if (hr_dtype_is_float8(dtype)) { /* of which one has no sign */
    x = hr__hlo_cast(hlo, x, HR_DTYPE_F32), dtype = HR_DTYPE_F32;
  }
  hr_dtype integer = integers[hr_dtype_size(dtype)];
  int bits = bits_of(dtype);
  hr_value number = hr__hlo_bitcast(hlo, x, integer);
  hr_value sign = CALL(hlo, BITWISE_RIGHT_SHIFT, number, hr__hlo_bits(hlo, integer, (uint64_t)bits - 1));
  hr_value mask = CALL(hlo, BITWISE_AND, sign, hr__hlo_bits(hlo, integer, ones(bits - 1)));
  return CALL(hlo, BITWISE_XOR, number, mask);
}

void hr__hlo_lower_compare(hr__hlo *hlo) {
  static const hr_functional functions[] = {HR_FUNCTIONAL_EQUAL,         HR_FUNCTIONAL_NOT_EQUAL,
                                            HR_FUNCTIONAL_GREATER_EQUAL, HR_FUNCTIONAL_GREATER,
                                            HR_FUNCTIONAL_LESS_EQUAL,    HR_FUNCTIONAL_LESS};
  enum { TOTAL_ORDER = 2 };
  int64_t direction = hr__hlo_int(hlo, "comparison_direction", 0);
  hr_dtype dtype = hr__hlo_input_type(hlo, 0).dtype;
  if (direction < 0 || direction >= (int64_t)(sizeof functions / sizeof *functions)) {
    HR__HLO_WRONG(hlo, "direction %lld", (long long)direction);
    return;
  }
  hr_value x = hr__hlo_input(hlo, 0), y = hr__hlo_input(hlo, 1);
  if (!hr__hlo_expect(hlo, 2, 1, 0)) {
    return;
  }
  if (hr_dtype_is_real(dtype) && hr__hlo_int(hlo, "compare_type", 0) == TOTAL_ORDER) {
    x = hr__hlo_order_of(hlo, x, dtype), y = hr__hlo_order_of(hlo, y, dtype);
  } else if (dtype == HR_DTYPE_BOOL) {
    x = hr__hlo_cast(hlo, x, HR_DTYPE_U8), y = hr__hlo_cast(hlo, y, HR_DTYPE_U8);
  }
  hr__hlo_set(hlo, 0, hr_graph_add(hlo->graph, functions[direction], IN(x, y), PLAIN));
}

void hr__hlo_lower_select(hr__hlo *hlo) {
  if (hr__hlo_expect(hlo, 3, 1, 0)) {
    hr_value flag = hr__hlo_input(hlo, 0), x = hr__hlo_input(hlo, 1), y = hr__hlo_input(hlo, 2);
    hr__hlo_set(hlo, 0, CALL(hlo, WHERE, flag, x, y));
  }
}

/* x if the comparison of its real part with that of y is true, else y. */
static hr_value by_real_parts(hr__hlo *hlo, hr_functional compare, hr_value x, hr_value y) {
  hr_value is_better = hr_graph_add(hlo->graph, compare, IN(CALL(hlo, REAL, x), CALL(hlo, REAL, y)), PLAIN);
  return CALL(hlo, WHERE, is_better, x, y);
}

/* The smaller one of `most` and the larger one of `least` and x: NaN of any of them stays. The bound of a complex
 * number depends on the real parts, as in XLA. */
void hr__hlo_lower_clamp(hr__hlo *hlo) {
  if (hr__hlo_expect(hlo, 3, 1, 0)) {
    hr_value least = hr__hlo_input(hlo, 0), x = hr__hlo_input(hlo, 1), most = hr__hlo_input(hlo, 2);
    if (hr_dtype_is_complex(hr__hlo_result_type(hlo, 0).dtype)) {
      x = by_real_parts(hlo, HR_FUNCTIONAL_GREATER_EQUAL, least, x);
      hr__hlo_set(hlo, 0, by_real_parts(hlo, HR_FUNCTIONAL_LESS_EQUAL, x, most));
    } else {
      hr__hlo_set(hlo, 0, CALL(hlo, MINIMUM, CALL(hlo, MAXIMUM, x, least), most));
    }
  }
}

/* ---- conversion ---- */

/* Floats that are too large become the last integer, and NaN 0. */
static hr_value to_integer(hr__hlo *hlo, hr_value x, hr_dtype from, hr_dtype to) {
  double end = (double)((uint64_t)1 << (bits_of(to) - 1 - is_signed(to))) * 2;
  if (from != HR_DTYPE_F64 && from != HR_DTYPE_F32) {
    x = hr__hlo_cast(hlo, x, HR_DTYPE_F32);
  }
  hr_value first = hr__hlo_number(hlo, is_signed(to) ? -end : 0), behind = hr__hlo_number(hlo, end);
  hr_value is_less = CALL(hlo, LESS, x, first), is_more = CALL(hlo, GREATER_EQUAL, x, behind);
  hr_value is_inside = CALL(hlo, LOGICAL_AND, CALL(hlo, GREATER_EQUAL, x, first), CALL(hlo, LESS, x, behind));
  hr_value inside = hr__hlo_cast(hlo, CALL(hlo, WHERE, is_inside, x, hr__hlo_number(hlo, 0)), to);
  inside = CALL(hlo, WHERE, is_more, hr__hlo_bits(hlo, to, most_of(to)), inside);
  return CALL(hlo, WHERE, is_less, hr__hlo_bits(hlo, to, least_of(to)), inside);
}

/* A cast, but for numbers that the format lacks: NaN in XLA, where the cast has the nearest one. */
hr_value hr__hlo_to_float8(hr__hlo *hlo, hr_value x, hr_dtype from, hr_dtype to) {
  const double behind = 464; /* of f8e4m3fn: larger numbers round to more than 448 */
  hr_value is_outside = 0;
  if (from == HR_DTYPE_F16 || from == HR_DTYPE_BF16 || !hr_dtype_is_real(from)) {
    x = hr__hlo_cast(hlo, x, HR_DTYPE_F32);
  }
  if (to == HR_DTYPE_F8E4M3FN) {
    is_outside = CALL(hlo, GREATER, CALL(hlo, ABS, x), hr__hlo_number(hlo, behind));
  } else if (to == HR_DTYPE_F8E8M0FNU) {
    is_outside = CALL(hlo, LESS_EQUAL, x, hr__hlo_number(hlo, 0));
  }
  x = is_outside != 0 ? CALL(hlo, WHERE, is_outside, hr__hlo_number(hlo, NAN), x) : x;
  return hr__hlo_cast(hlo, x, to);
}

hr_value hr__hlo_convert(hr__hlo *hlo, hr_value x, hr_dtype from, hr_dtype to) {
  if (hr_dtype_is_complex(from) && !hr_dtype_is_complex(to)) {
    x = CALL(hlo, REAL, x);
    from = from == HR_DTYPE_C128 ? HR_DTYPE_F64 : HR_DTYPE_F32;
  }
  if (hr_dtype_is_float8(from) && from == to) {
    return x;
  }
  if (hr_dtype_is_float8(from)) {
    x = hr__hlo_cast(hlo, x, HR_DTYPE_F32);
    from = HR_DTYPE_F32;
  }
  return hr_dtype_is_float8(to)                     ? hr__hlo_to_float8(hlo, x, from, to)
         : hr_dtype_is_real(from) && is_integer(to) ? to_integer(hlo, x, from, to)
                                                    : hr__hlo_cast(hlo, x, to);
}

void hr__hlo_lower_convert(hr__hlo *hlo) {
  hr__vhlo_type from = hr__hlo_input_type(hlo, 0), to = hr__hlo_result_type(hlo, 0);
  if (!hr__hlo_expect(hlo, 1, 1, 0)) {
    return;
  }
  hr_value y = hr__hlo_convert(hlo, hr__hlo_input(hlo, 0), from.dtype, to.dtype);
  int narrow = hr__hlo_narrow(&to);
  if (narrow > 0 &&
      (hr_dtype_is_real(from.dtype) || hr_dtype_is_complex(from.dtype))) { /* the nearest one, not the lower bits */
    int64_t most = ((int64_t)1 << (narrow - is_signed(to.dtype))) - 1;
    y = CALL(hlo, MINIMUM, y, hr__hlo_whole(hlo, most));
    y = CALL(hlo, MAXIMUM, y, hr__hlo_whole(hlo, is_signed(to.dtype) ? -most - 1 : 0));
  }
  hr__hlo_set(hlo, 0, y);
}
