/* hlo_elementwise.c: element-wise operations, with XLA's results for all numbers. */
#include "headrace/dtype.h"
#include "importers/stablehlo/hlo.h"

static bool is_float(hr_dtype dtype) {
  return dtype >= HR_DTYPE_F16 && dtype != HR_DTYPE_C64 && dtype != HR_DTYPE_C128 && dtype != HR_DTYPE_C32;
}
static bool is_complex(hr_dtype dtype) {
  return dtype == HR_DTYPE_C64 || dtype == HR_DTYPE_C128 || dtype == HR_DTYPE_C32;
}
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

/* An integer of a dtype, without dims. Its bits: all that the dtype has. */
static hr_value whole(hr__hlo *hlo, hr_dtype dtype, uint64_t bits) {
  hr_scalar number = is_signed(dtype) || bits <= INT64_MAX ? hr_scalar_i64((int64_t)bits) : hr_scalar_u64(bits);
  return hr__hlo_full(hlo, number, dtype, 0, NULL);
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

/* Of flags the function is another one. */
void hr__hlo_lower_arithmetic(hr__hlo *hlo) {
  if (hr__hlo_result_type(hlo, 0).dtype == HR_DTYPE_BOOL) {
    bool is_and = hlo->function == HR_FUNCTIONAL_MULTIPLY || hlo->function == HR_FUNCTIONAL_MINIMUM;
    hlo->function = is_and ? HR_FUNCTIONAL_LOGICAL_AND : HR_FUNCTIONAL_LOGICAL_OR;
  }
  hr__hlo_lower_binary(hlo);
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
    hr_value otherwise = is_signed(dtype) ? whole(hlo, dtype, UINT64_MAX) : whole(hlo, dtype, most_of(dtype));
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

static hr_value bitcast(hr__hlo *hlo, hr_value x, hr_dtype dtype) {
  return ADD(hlo, BITCAST, IN(x), WITH(hr__with_dtype("dtype", dtype)));
}

static void lower_shift(hr__hlo *hlo, hr_functional function, bool is_arithmetic) {
  hr_dtype dtype = hr__hlo_result_type(hlo, 0).dtype, other = as_signed(dtype, is_arithmetic);
  if (!hr__hlo_expect(hlo, 2, 1, 0)) {
    return;
  }
  bool turns = function == HR_FUNCTIONAL_BITWISE_RIGHT_SHIFT && other != dtype;
  hr_value x = hr__hlo_input(hlo, 0), y = hr__hlo_input(hlo, 1);
  if (turns) {
    x = bitcast(hlo, x, other), y = bitcast(hlo, y, other);
  }
  hr_value shifted = hr_graph_add(hlo->graph, function, IN(x, y), PLAIN);
  hr__hlo_set(hlo, 0, turns ? bitcast(hlo, shifted, dtype) : shifted);
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
  hr_dtype integer = integers[hr_dtype_size(dtype)];
  int bits = bits_of(dtype);
  hr_value number = bitcast(hlo, x, integer);
  hr_value sign = CALL(hlo, BITWISE_RIGHT_SHIFT, number, whole(hlo, integer, (uint64_t)bits - 1));
  hr_value mask = CALL(hlo, BITWISE_AND, sign, whole(hlo, integer, ones(bits - 1)));
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
  if (is_float(dtype) && hr__hlo_int(hlo, "compare_type", 0) == TOTAL_ORDER) {
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

/* The smaller one of `most` and the larger one of `least` and x: NaN of any of them stays. */
void hr__hlo_lower_clamp(hr__hlo *hlo) {
  if (hr__hlo_expect(hlo, 3, 1, 0)) {
    hr_value least = hr__hlo_input(hlo, 0), x = hr__hlo_input(hlo, 1), most = hr__hlo_input(hlo, 2);
    hr__hlo_set(hlo, 0, CALL(hlo, MINIMUM, CALL(hlo, MAXIMUM, x, least), most));
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
  inside = CALL(hlo, WHERE, is_more, whole(hlo, to, most_of(to)), inside);
  return CALL(hlo, WHERE, is_less, whole(hlo, to, least_of(to)), inside);
}

hr_value hr__hlo_convert(hr__hlo *hlo, hr_value x, hr_dtype from, hr_dtype to) {
  if (is_complex(from) && !is_complex(to)) {
    x = CALL(hlo, REAL, x);
    from = from == HR_DTYPE_C128 ? HR_DTYPE_F64 : HR_DTYPE_F32;
  }
  return is_float(from) && is_integer(to) ? to_integer(hlo, x, from, to) : hr__hlo_cast(hlo, x, to);
}

void hr__hlo_lower_convert(hr__hlo *hlo) {
  if (hr__hlo_expect(hlo, 1, 1, 0)) {
    hr__hlo_set(hlo, 0,
                hr__hlo_convert(hlo, hr__hlo_input(hlo, 0), hr__hlo_input_type(hlo, 0).dtype,
                                hr__hlo_result_type(hlo, 0).dtype));
  }
}

/* To a dtype of another size the dims have one more, or one less, at the end. */
void hr__hlo_lower_bitcast_convert(hr__hlo *hlo) {
  hr__vhlo_type x = hr__hlo_input_type(hlo, 0), result = hr__hlo_result_type(hlo, 0);
  size_t from = hr_dtype_size(x.dtype), to = hr_dtype_size(result.dtype);
  if (!hr__hlo_expect(hlo, 1, 1, 0)) {
    return;
  }
  hr_value value = hr__hlo_input(hlo, 0);
  if (from > to && x.rank < HR_RANK_MAX) {
    x.dims[x.rank] = 1;
    value = hr__hlo_reshape(hlo, value, x.rank + 1, x.dims);
  }
  value = bitcast(hlo, value, result.dtype);
  hr__hlo_set(hlo, 0, from < to ? hr__hlo_reshape(hlo, value, result.rank, result.dims) : value);
}

/* Formats that a dtype of the core has. */
void hr__hlo_lower_reduce_precision(hr__hlo *hlo) {
  static const struct {
    int exponent, mantissa;
    hr_dtype dtype;
  } formats[] = {{5, 10, HR_DTYPE_F16}, {8, 7, HR_DTYPE_BF16}, {8, 23, HR_DTYPE_F32}, {11, 52, HR_DTYPE_F64}};
  int64_t exponent = hr__hlo_int(hlo, "exponent_bits", 0), mantissa = hr__hlo_int(hlo, "mantissa_bits", 0);
  hr_dtype dtype = hr__hlo_result_type(hlo, 0).dtype;
  if (!hr__hlo_expect(hlo, 1, 1, 0)) {
    return;
  }
  for (size_t i = 0; i < sizeof formats / sizeof *formats; ++i) {
    if (formats[i].exponent == exponent && formats[i].mantissa == mantissa) {
      hr__hlo_set(hlo, 0, hr__hlo_cast(hlo, hr__hlo_cast(hlo, hr__hlo_input(hlo, 0), formats[i].dtype), dtype));
      return;
    }
  }
  HR__HLO_REFUSE(hlo, "%lld bits of the exponent and %lld of the mantissa", (long long)exponent, (long long)mantissa);
}
