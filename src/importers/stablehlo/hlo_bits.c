/* hlo_bits.c: integers of 2 and 4 bits, elements as bits of another type, and floats of fewer bits.
 *
 * Integers of 2 and 4 bits have 8 bits here, of which the upper ones are those of the sign. Results of each operation
 * are wrapped to that; operations that read upper bits clear them first.
 */
#include "core/ir/dtype.h"
#include "importers/stablehlo/hlo.h"

hr_value hr__hlo_bitcast(hr__hlo *hlo, hr_value x, hr_dtype dtype) {
  return ADD(hlo, BITCAST, IN(x), WITH(hr__with_dtype("dtype", dtype)));
}

hr_value hr__hlo_bits(hr__hlo *hlo, hr_dtype dtype, uint64_t bits) {
  bool is_signed = dtype == HR_DTYPE_I8 || dtype == HR_DTYPE_I16 || dtype == HR_DTYPE_I32 || dtype == HR_DTYPE_I64;
  hr_scalar number = is_signed || bits <= INT64_MAX ? hr_scalar_i64((int64_t)bits) : hr_scalar_u64(bits);
  return hr__hlo_full(hlo, number, dtype, 0, NULL);
}

/* ---- integers of 2 and 4 bits ---- */

int hr__hlo_narrow(const hr__vhlo_type *type) {
  return type->code == HR__VHLO_SI4 || type->code == HR__VHLO_UI4   ? 4
         : type->code == HR__VHLO_SI2 || type->code == HR__VHLO_UI2 ? 2
                                                                    : 0;
}

hr_value hr__hlo_low_bits(hr__hlo *hlo, hr_value x, hr_dtype dtype, int bits) {
  return CALL(hlo, BITWISE_AND, x, hr__hlo_bits(hlo, dtype, (1u << bits) - 1));
}

hr_value hr__hlo_wrapped(hr__hlo *hlo, hr_value x, const hr__vhlo_type *type) {
  int bits = hr__hlo_narrow(type);
  if (bits == 0 || x == 0) {
    return x;
  }
  if (type->dtype == HR_DTYPE_U8) {
    return hr__hlo_low_bits(hlo, x, HR_DTYPE_U8, bits);
  }
  hr_value places = hr__hlo_bits(hlo, HR_DTYPE_I8, (uint64_t)(8 - bits));
  return CALL(hlo, BITWISE_RIGHT_SHIFT, CALL(hlo, BITWISE_LEFT_SHIFT, x, places), places);
}

/* The bits that are set, or those above the highest one. */
void hr__hlo_lower_bit_count(hr__hlo *hlo) {
  hr__vhlo_type type = hr__hlo_input_type(hlo, 0);
  int bits = hr__hlo_narrow(&type);
  if (!hr__hlo_expect(hlo, 1, 1, 0)) {
    return;
  }
  hr_value x = hr__hlo_input(hlo, 0);
  x = bits > 0 ? hr__hlo_low_bits(hlo, x, type.dtype, bits) : x;
  hr_value count = hr_graph_add(hlo->graph, hlo->function, IN(x), PLAIN);
  bool has_more = bits > 0 && hlo->function == HR_FUNCTIONAL_LEADING_ZEROS;
  hr__hlo_set(hlo, 0, has_more ? CALL(hlo, SUBTRACT, count, hr__hlo_whole(hlo, 8 - bits)) : count);
}

/* ---- bits of another type ---- */

static int width_of(const hr__vhlo_type *type) {
  int bits = hr__hlo_narrow(type);
  return type->dtype == HR_DTYPE_BOOL ? 1 : bits > 0 ? bits : 8 * (int)hr_dtype_size(type->dtype);
}

/* Elements of less than 8 bits as bytes, the first element in the lowest bits. */
static hr_value packed(hr__hlo *hlo, hr_value x, const hr__vhlo_type *type, int width) {
  int rank = type->rank, count = 8 / width;
  int64_t dims[HR_RANK_MAX], begin[HR_RANK_MAX] = {0}, step[HR_RANK_MAX];
  hr_value bytes = 0;
  if (rank == 0 || type->dims[rank - 1] % count != 0) {
    return HR__HLO_REFUSE(hlo, "elements of %d bits that fill no bytes", width);
  }
  x = hr__hlo_low_bits(hlo, hr__hlo_cast(hlo, x, HR_DTYPE_U8), HR_DTYPE_U8, width);
  for (int d = 0; d < rank; ++d) {
    dims[d] = d == rank - 1 ? type->dims[d] / count : type->dims[d], step[d] = d == rank - 1 ? count : 1;
  }
  for (int i = 0; i < count; ++i) {
    begin[rank - 1] = i;
    hr_value part = ADD(hlo, SLICE, IN(x),
                        WITH(hr__with_ints("begin", rank, begin), hr__with_ints("count", rank, dims),
                             hr__with_ints("step", rank, step)));
    part = CALL(hlo, BITWISE_LEFT_SHIFT, part, hr__hlo_bits(hlo, HR_DTYPE_U8, (uint64_t)(i * width)));
    bytes = i == 0 ? part : CALL(hlo, BITWISE_OR, bytes, part);
  }
  return bytes;
}

/* Bytes, the last dim, as elements of less than 8 bits. */
static hr_value unpacked(hr__hlo *hlo, hr_value bytes, const hr__vhlo_type *type, int width) {
  int rank = type->rank, count = 8 / width;
  int64_t dims[HR_RANK_MAX + 1];
  hr_value parts[8];
  if (rank == 0 || rank == HR_RANK_MAX) {
    return HR__HLO_REFUSE(hlo, "%d dims", rank);
  }
  memcpy(dims, type->dims, (size_t)rank * sizeof *dims);
  dims[rank - 1] /= count, dims[rank] = 1;
  bytes = hr__hlo_reshape(hlo, bytes, rank + 1, dims);
  for (int i = 0; i < count; ++i) {
    hr_value places = hr__hlo_bits(hlo, HR_DTYPE_U8, (uint64_t)(i * width));
    parts[i] = hr__hlo_low_bits(hlo, CALL(hlo, BITWISE_RIGHT_SHIFT, bytes, places), HR_DTYPE_U8, width);
  }
  hr_value all = hr_graph_add(hlo->graph, HR_FUNCTIONAL_CONCAT, count, parts, WITH(hr__with_int("axis", rank)));
  return hr__hlo_cast(hlo, hr__hlo_reshape(hlo, all, rank, type->dims), type->dtype);
}

/* To a dtype of another size, of at least 8 bits both, the dims have one more, or one less, at the end. */
static hr_value recast(hr__hlo *hlo, hr_value x, hr__vhlo_type type, const hr__vhlo_type *result) {
  size_t from = hr_dtype_size(type.dtype), to = hr_dtype_size(result->dtype);
  if (from > to && type.rank < HR_RANK_MAX) {
    type.dims[type.rank] = 1;
    x = hr__hlo_reshape(hlo, x, type.rank + 1, type.dims);
  }
  x = hr__hlo_bitcast(hlo, x, result->dtype);
  return from < to ? hr__hlo_reshape(hlo, x, result->rank, result->dims) : x;
}

void hr__hlo_lower_bitcast_convert(hr__hlo *hlo) {
  hr__vhlo_type x = hr__hlo_input_type(hlo, 0), result = hr__hlo_result_type(hlo, 0), bytes = x;
  int from = width_of(&x), to = width_of(&result);
  if (!hr__hlo_expect(hlo, 1, 1, 0)) {
    return;
  }
  hr_value value = hr__hlo_input(hlo, 0);
  bytes.dtype = HR_DTYPE_U8, bytes.code = HR__VHLO_UI8;
  if (from == 0 || to == 0 || (from < 8 && to >= 8 && x.rank == 0)) { /* tokens, for example */
    HR__HLO_REFUSE(hlo, "%d bits of %d dims as %d bits", from, x.rank, to);
  } else if (from == to) {
    value = from == 1 ? value : hr__hlo_bitcast(hlo, value, result.dtype);
  } else if (from < 8 && to >= 8) {
    value = packed(hlo, value, &x, from);
    bytes.dims[x.rank - 1] = to / 8;
    value = to == 8 ? hr__hlo_bitcast(hlo, hr__hlo_reshape(hlo, value, result.rank, result.dims), result.dtype)
                    : recast(hlo, value, bytes, &result);
  } else if (to < 8 && from >= 8) {
    bytes.rank = result.rank;
    memcpy(bytes.dims, result.dims, sizeof bytes.dims);
    bytes.dims[bytes.rank > 0 ? bytes.rank - 1 : 0] = from / 8;
    value = from == 8 ? hr__hlo_bitcast(hlo, value, HR_DTYPE_U8) : recast(hlo, value, x, &bytes);
    value = unpacked(hlo, value, &result, to);
  } else if (from >= 8) {
    value = recast(hlo, value, x, &result);
  } else {
    HR__HLO_REFUSE(hlo, "%d bits as %d bits", from, to);
  }
  hr__hlo_set(hlo, 0, value);
}

/* ---- floats of fewer bits ---- */

typedef struct format {
  int exponent, mantissa; /* bits */
} format;

static bool format_of(hr_dtype dtype, format *out) {
  static const struct {
    hr_dtype dtype;
    format format;
  } formats[] = {{HR_DTYPE_F16, {5, 10}},
                 {HR_DTYPE_BF16, {8, 7}},
                 {HR_DTYPE_F32, {8, 23}},
                 {HR_DTYPE_F64, {11, 52}},
                 {HR_DTYPE_F8E5M2, {5, 2}}};
  for (size_t i = 0; i < sizeof formats / sizeof *formats; ++i) {
    if (formats[i].dtype == dtype) {
      *out = formats[i].format;
      return true;
    }
  }
  return false;
}

/* Bits of a mantissa rounded to nearest, ties to even; a carry increments the exponent. */
static hr_value rounded(hr__hlo *hlo, hr_value bits, hr_dtype dtype, int dropped) {
  uint64_t last = (uint64_t)1 << dropped;
  hr_value is_odd = CALL(hlo, BITWISE_RIGHT_SHIFT, bits, hr__hlo_bits(hlo, dtype, (uint64_t)dropped));
  is_odd = CALL(hlo, BITWISE_AND, is_odd, hr__hlo_bits(hlo, dtype, 1));
  bits = CALL(hlo, ADD, bits, CALL(hlo, ADD, is_odd, hr__hlo_bits(hlo, dtype, last / 2 - 1)));
  uint64_t all = hr_dtype_size(dtype) == 8 ? UINT64_MAX : ((uint64_t)1 << (8 * hr_dtype_size(dtype))) - 1;
  return CALL(hlo, BITWISE_AND, bits, hr__hlo_bits(hlo, dtype, all & ~(last - 1)));
}

/* Numbers whose exponent does not fit become infinite, or zero: there are no subnormal numbers. */
static hr_value bounded(hr__hlo *hlo, hr_value bits, hr_dtype dtype, const format *own, int exponent) {
  int bias = (1 << (own->exponent - 1)) - 1, less = exponent > 0 ? (1 << (exponent - 1)) - 1 : 0;
  uint64_t mask = (((uint64_t)1 << own->exponent) - 1) << own->mantissa;
  uint64_t sign = (uint64_t)1 << (own->exponent + own->mantissa);
  hr_value part = CALL(hlo, BITWISE_AND, bits, hr__hlo_bits(hlo, dtype, mask));
  hr_value zero = CALL(hlo, BITWISE_AND, bits, hr__hlo_bits(hlo, dtype, sign));
  hr_value infinity = CALL(hlo, BITWISE_OR, zero, hr__hlo_bits(hlo, dtype, mask));
  hr_value is_more = CALL(hlo, GREATER, part, hr__hlo_bits(hlo, dtype, (uint64_t)(bias + less) << own->mantissa));
  hr_value is_less = CALL(hlo, LESS_EQUAL, part, hr__hlo_bits(hlo, dtype, (uint64_t)(bias - less) << own->mantissa));
  return CALL(hlo, WHERE, is_less, zero, CALL(hlo, WHERE, is_more, infinity, bits));
}

/* As XLA's ReducePrecision on the CPU: NaN stays, without a mantissa, too. */
void hr__hlo_lower_reduce_precision(hr__hlo *hlo) {
  static const hr_dtype integers[] = {[1] = HR_DTYPE_U8, [2] = HR_DTYPE_U16, [4] = HR_DTYPE_U32, [8] = HR_DTYPE_U64};
  int64_t exponent = hr__hlo_int(hlo, "exponent_bits", 0), mantissa = hr__hlo_int(hlo, "mantissa_bits", 0);
  hr_dtype dtype = hr__hlo_result_type(hlo, 0).dtype;
  format own;
  if (!hr__hlo_expect(hlo, 1, 1, 0)) {
    return;
  }
  if (!format_of(dtype, &own) || exponent < 1 || mantissa < 0) {
    HR__HLO_REFUSE(hlo, "%lld bits of the exponent and %lld of the mantissa of %s", (long long)exponent,
                   (long long)mantissa, hr_dtype_name(dtype));
    return;
  }
  hr_value x = hr__hlo_input(hlo, 0);
  hr_dtype integer = integers[hr_dtype_size(dtype)];
  hr_value bits = hr__hlo_bitcast(hlo, x, integer);
  bits = mantissa < own.mantissa ? rounded(hlo, bits, integer, own.mantissa - (int)mantissa) : bits;
  bits = exponent < own.exponent ? bounded(hlo, bits, integer, &own, (int)exponent) : bits;
  hr_value y = hr__hlo_bitcast(hlo, bits, dtype);
  hr__hlo_set(hlo, 0, CALL(hlo, WHERE, CALL(hlo, ISNAN, x), x, y));
}
