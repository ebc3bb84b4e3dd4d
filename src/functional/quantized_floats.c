/* quantized_floats.c: floats of four and eight bits with a scale for each group (quantized.h).
 *
 * Encoding follows MLX: a group's scale makes its largest magnitude that of the format; a group that has NaN or
 * infinity has numbers without a meaning.
 */
#include <math.h>

#include "functional/quantized.h"

enum { E8M0_BIAS = 127 };
static const double e2m1_largest = 6, e4m3_largest = 448;

/* ---- numbers of four bits: a sign, two bits of exponent, one of mantissa: 0 0.5 1 1.5 2 3 4 6 ---- */

static const hr_tensor *compared(hr__formula *f, hr_op op, const hr_tensor *x, double number) {
  return hr__binary(f, op, x, hr__real(f, number));
}

/* To nearest; between two the smaller one. NaN and infinities become 0. */
static const hr_tensor *encode_e2m1(hr__formula *f, const hr_tensor *x) {
  static const double bounds[] = {0.75, 1.25, 1.75, 2.5, 3.5, 5};
  const hr_tensor *size = hr__unary(f, HR_OP_ABS, x);
  const hr_tensor *code = hr__as_dtype(f, compared(f, HR_OP_GT, size, 0.25), HR_DTYPE_I32);
  for (size_t i = 0; i < sizeof bounds / sizeof *bounds; ++i) {
    code = hr__binary(f, HR_OP_ADD, code, compared(f, HR_OP_GT, size, bounds[i]));
  }
  const hr_tensor *is_signed =
      hr__binary(f, HR_OP_LOGICAL_AND, compared(f, HR_OP_LT, x, 0), hr__binary(f, HR_OP_GT, code, hr__integer(f, 0)));
  const hr_tensor *sign = hr__ternary(f, HR_OP_WHERE, is_signed, hr__integer(f, 8), hr__integer(f, 0));
  code = hr__binary(f, HR_OP_BIT_OR, code, hr__as_dtype(f, sign, HR_DTYPE_I32));
  return hr__ternary(f, HR_OP_WHERE, compared(f, HR_OP_EQ, size, INFINITY), hr__integer(f, 0), code);
}

/* Twice the magnitude is the low three bits below 4, and then their lowest one behind a 1, shifted by the exponent. */
static const hr_tensor *decode_e2m1(hr__formula *f, const hr_tensor *codes, hr_dtype dtype) {
  const hr_tensor *code = hr__as_dtype(f, codes, HR_DTYPE_I32), *one = hr__integer(f, 1);
  const hr_tensor *low = hr__binary(f, HR_OP_BIT_AND, code, hr__integer(f, 7));
  const hr_tensor *shift = hr__binary(f, HR_OP_SUB, hr__binary(f, HR_OP_SHIFT_RIGHT, low, one), one);
  const hr_tensor *mantissa = hr__binary(f, HR_OP_ADD, hr__binary(f, HR_OP_BIT_AND, low, one), hr__integer(f, 2));
  shift = hr__binary(f, HR_OP_MAXIMUM, shift, hr__integer(f, 0));
  const hr_tensor *large = hr__binary(f, HR_OP_SHIFT_LEFT, mantissa, shift);
  const hr_tensor *twice = hr__ternary(f, HR_OP_WHERE, hr__binary(f, HR_OP_LT, low, hr__integer(f, 4)), low, large);
  const hr_tensor *size = hr__binary(f, HR_OP_MUL, hr__as_dtype(f, twice, dtype), hr__real(f, 0.5));
  const hr_tensor *is_signed = hr__binary(f, HR_OP_GT, code, hr__integer(f, 7));
  return hr__ternary(f, HR_OP_WHERE, is_signed, hr__unary(f, HR_OP_NEG, size), size);
}

/* ---- bytes that are floats ---- */

static const hr_tensor *bytes_of(hr__formula *f, const hr_tensor *x, hr_dtype dtype) {
  return hr__reinterpreted(f, hr__dense(f, hr__as_dtype(f, x, dtype)), HR_DTYPE_U8);
}

static const hr_tensor *floats_of(hr__formula *f, const hr_tensor *bytes, hr_dtype format, hr_dtype dtype) {
  hr_tensor *view = hr__view(f, bytes);
  if (view == NULL) {
    return bytes;
  }
  view->dtype = format;
  return hr__as_dtype(f, view, dtype);
}

/* ---- scales ---- */

/* The least power of two that is not below x, 1 for 0; as bytes. NaN for NaN and infinity. */
static const hr_tensor *encode_e8m0(hr__formula *f, const hr_tensor *x) {
  const hr_tensor *is_power = compared(f, HR_OP_EQ, hr__unary(f, HR_OP_FREXP_MANTISSA, x), 0.5);
  const hr_tensor *byte = hr__binary(f, HR_OP_SUB, hr__unary(f, HR_OP_FREXP_EXPONENT, x), is_power);
  byte = hr__binary(f, HR_OP_ADD, byte, hr__integer(f, E8M0_BIAS));
  byte = hr__ternary(f, HR_OP_CLAMP, byte, hr__integer(f, 0), hr__integer(f, 2 * E8M0_BIAS));
  const hr_tensor *is_finite = compared(f, HR_OP_LT, x, INFINITY);
  byte = hr__ternary(f, HR_OP_WHERE, is_finite, byte, hr__integer(f, 2 * E8M0_BIAS + 1));
  return hr__as_dtype(f, byte, HR_DTYPE_U8);
}

/* One number as a tensor of dims: it takes part in promotion. */
static const hr_tensor *spread_number(hr__formula *f, const hr_tensor *number, const hr_tensor *like) {
  static const int64_t ones[HR_RANK_MAX] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
  return hr__as_dims(f, number, like->rank, ones);
}

static const hr_tensor *encoded_scales(hr__formula *f, hr__packing p, const hr_tensor *values,
                                       const hr_tensor *factor) {
  int64_t mask = values->rank > 0 ? INT64_C(1) << (values->rank - 1) : 0;
  const hr_tensor *largest = hr__along(f, HR_OP_AMAX, hr__unary(f, HR_OP_ABS, values), mask);
  const hr_tensor *scale =
      hr__binary(f, HR_OP_DIV, largest, hr__real(f, p.mode == HR__MODE_MXFP8 ? e4m3_largest : e2m1_largest));
  if (p.mode != HR__MODE_NVFP4) {
    return encode_e8m0(f, scale);
  }
  if (factor != NULL) { /* infinite if all is 0 */
    scale =
        hr__ternary(f, HR_OP_WHERE, compared(f, HR_OP_EQ, largest, 0), scale, hr__binary(f, HR_OP_MUL, scale, factor));
  }
  return bytes_of(f, scale, HR_DTYPE_F8E4M3FN);
}

void hr__quantize_floats(hr__formula *f, hr__packing p, const hr_tensor *values, const hr_tensor *global,
                         const hr_tensor **out_words, const hr_tensor **out_scales) {
  hr_dtype format = p.mode == HR__MODE_NVFP4 ? HR_DTYPE_F8E4M3FN : HR_DTYPE_F8E8M0FNU;
  const hr_tensor *factor = NULL;
  if (global != NULL) {
    factor = hr__binary(f, HR_OP_DIV, hr__real(f, e4m3_largest * e2m1_largest), spread_number(f, global, values));
  }
  const hr_tensor *bytes = encoded_scales(f, p, values, factor);
  const hr_tensor *x = hr__binary(f, HR_OP_DIV, values, floats_of(f, bytes, format, values->dtype));
  x = factor != NULL ? hr__binary(f, HR_OP_MUL, x, factor) : x;
  *out_words = p.bits == 4
                   ? hr__pack(f, hr__without_groups(f, encode_e2m1(f, x)), 4)
                   : hr__reinterpreted(f, bytes_of(f, hr__without_groups(f, x), HR_DTYPE_F8E4M3FN), HR_DTYPE_U32);
  *out_scales = hr__without_groups(f, bytes);
}

/* In f32 for f16, beyond which scales reach. */
static const hr_tensor *dequantize_floats(hr__formula *f, const hr__packed *w, hr_dtype dtype) {
  bool is_nv = w->packing.mode == HR__MODE_NVFP4;
  const hr_tensor *scale = floats_of(f, w->scales, is_nv ? HR_DTYPE_F8E4M3FN : HR_DTYPE_F8E8M0FNU, dtype);
  if (w->global != NULL) {
    const hr_tensor *factor =
        hr__binary(f, HR_OP_DIV, spread_number(f, w->global, scale), hr__real(f, e4m3_largest * e2m1_largest));
    scale = hr__binary(f, HR_OP_MUL, scale, factor);
  }
  const hr_tensor *x = w->packing.bits == 4 ? decode_e2m1(f, hr__unpack(f, w->words, 4), dtype)
                                            : floats_of(f, hr__reinterpreted(f, hr__dense(f, w->words), HR_DTYPE_U8),
                                                        HR_DTYPE_F8E4M3FN, dtype);
  return hr__binary(f, HR_OP_MUL, hr__in_groups(f, x, w->packing.group), hr__with_dim(f, scale, scale->rank));
}

const hr_tensor *hr__dequantize_floats(hr__formula *f, const hr__packed *w, hr_dtype dtype) {
  const hr_tensor *x = dequantize_floats(f, w, dtype == HR_DTYPE_F16 ? HR_DTYPE_F32 : dtype);
  return dtype == HR_DTYPE_F16 ? hr__as_dtype(f, x, dtype) : x;
}
