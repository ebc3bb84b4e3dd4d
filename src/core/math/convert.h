/* convert.h (core): conversions between classes and dtypes, as straight-line expressions that a compiler vectorises.
 *
 *   float -> integer   through int64 (toward zero; NaN and out-of-range numbers give its lowest number), then wrapped
 *   integer -> integer wrapped
 *   anything -> bool   != 0
 *   complex -> real    the real part
 *   double -> f16, f8  through float, as PyTorch does
 *
 * Like vmath.h this text is also part of emitted kernels.
 */
#ifndef HEADRACE_CORE_CONVERT_H_
#define HEADRACE_CORE_CONVERT_H_

#include "core/math/vmath_complex.h"

/* X(D) for each dtype, and for each but F16 and pairs of it. */
#define HR__EACH_FLOAT8(X) X(F8E4M3FN) X(F8E5M2) X(F8E4M3FNUZ) X(F8E5M2FNUZ) X(F8E8M0FNU) HR__EACH_OTHER_FLOAT8(X)
#define HR__EACH_OTHER_FLOAT8(X) X(F8E4M3) X(F8E3M4) X(F8E4M3B11FNUZ) X(F4E2M1FN)
#define HR__EACH_INTEGER(X) X(BOOL) X(U8) X(I8) X(U16) X(I16) X(U32) X(I32) X(U64) X(I64)
#define HR__EACH_DTYPE_BUT_HALVES(X) HR__EACH_INTEGER(X) X(BF16) X(F32) X(F64) X(C64) X(C128) HR__EACH_FLOAT8(X)
#define HR__EACH_DTYPE(X) X(F16) X(C32) HR__EACH_DTYPE_BUT_HALVES(X)

/* C types of the class of a dtype, and of the dtype in memory. */
#define HR__TYPE_BOOL uint8_t
#define HR__TYPE_U8 int32_t
#define HR__TYPE_I8 int32_t
#define HR__TYPE_U16 int32_t
#define HR__TYPE_I16 int32_t
#define HR__TYPE_U32 uint32_t
#define HR__TYPE_I32 int32_t
#define HR__TYPE_U64 uint64_t
#define HR__TYPE_I64 int64_t
#define HR__TYPE_F16 float
#define HR__TYPE_BF16 float
#define HR__TYPE_F32 float
#define HR__TYPE_F64 double
#define HR__TYPE_C64 hr_c64
#define HR__TYPE_C128 hr_c128
#define HR__TYPE_C32 hr_c64
#define HR__TYPE_F8E4M3FN float
#define HR__TYPE_F8E5M2 float
#define HR__TYPE_F8E4M3FNUZ float
#define HR__TYPE_F8E5M2FNUZ float
#define HR__TYPE_F8E8M0FNU float
#define HR__TYPE_F8E4M3 float
#define HR__TYPE_F8E3M4 float
#define HR__TYPE_F8E4M3B11FNUZ float
#define HR__TYPE_F4E2M1FN float
#define HR__MEMORY_BOOL uint8_t
#define HR__MEMORY_U8 uint8_t
#define HR__MEMORY_I8 int8_t
#define HR__MEMORY_U16 uint16_t
#define HR__MEMORY_I16 int16_t
#define HR__MEMORY_U32 uint32_t
#define HR__MEMORY_I32 int32_t
#define HR__MEMORY_U64 uint64_t
#define HR__MEMORY_I64 int64_t
#define HR__MEMORY_F16 uint16_t
#define HR__MEMORY_BF16 uint16_t
#define HR__MEMORY_F32 float
#define HR__MEMORY_F64 double
#define HR__MEMORY_C64 hr_c64
#define HR__MEMORY_C128 hr_c128
#define HR__MEMORY_C32 uint32_t /* the real part in the low half */
#define HR__MEMORY_F8E4M3FN uint8_t
#define HR__MEMORY_F8E5M2 uint8_t
#define HR__MEMORY_F8E4M3FNUZ uint8_t
#define HR__MEMORY_F8E5M2FNUZ uint8_t
#define HR__MEMORY_F8E8M0FNU uint8_t
#define HR__MEMORY_F8E4M3 uint8_t
#define HR__MEMORY_F8E3M4 uint8_t
#define HR__MEMORY_F8E4M3B11FNUZ uint8_t
#define HR__MEMORY_F4E2M1FN uint8_t

/* ---- f16 and bf16: the same bits as hr_f32_to_f16 and its family ---- */

#ifndef HR_NARROW_DEVICE /* defined if the hardware has these conversions, except for payloads of NaN */
HR_VMATH_FN uint16_t hr__half_from_f32(float x) {
  uint32_t bits = hr__f32_to_u32(x), sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
  /* Below the smallest normal, the low bits of the sum with 0.5 are units of 2^-24, rounded to even. */
  uint32_t small = hr__f32_to_u32(hr__u32_to_f32(magnitude) + 0.5f) - 0x3f000000u;
  uint32_t normal = (magnitude + 0xfffu + (magnitude >> 13 & 1u) - 0x38000000u) >> 13;
  uint32_t half = magnitude < 0x38800000u ? small : normal;
  half = magnitude >= 0x477ff000u ? 0x7c00u : half;
  half = magnitude > 0x7f800000u ? 0x7e00u | (magnitude >> 13 & 0x3ffu) : half;
  return (uint16_t)(sign | half);
}

HR_VMATH_FN float hr__f32_from_half(uint16_t half) {
  uint32_t sign = (uint32_t)(half & 0x8000u) << 16, magnitude = half & 0x7fffu;
  float small = (float)(int32_t)magnitude * 0x1p-24f; /* exact for subnormals */
  uint32_t normal = (magnitude << 13) + 0x38000000u;
  normal = magnitude >= 0x7c00u ? (magnitude << 13) | 0x7f800000u : normal;
  uint32_t bits = magnitude < 0x0400u ? hr__f32_to_u32(small) : normal;
  return hr__u32_to_f32(sign | bits);
}

/* Selects between 32-bit words and narrows once: otherwise compilers narrow both, and with AVX2 the mask too. */
HR_VMATH_FN uint16_t hr__bfloat_from_f32(float x) {
  uint32_t bits = hr__f32_to_u32(x), rounded = bits + 0x7fffu + (bits >> 16 & 1u);
  rounded = x != x ? bits | 0x400000u : rounded;
  return (uint16_t)(rounded >> 16);
}
#endif

HR_VMATH_FN float hr__f32_from_bfloat(uint16_t x) {
  return hr__u32_to_f32((uint32_t)x << 16);
}
HR_VMATH_FN float hr__f32_round_half(float x) {
  return hr__f32_from_half(hr__half_from_f32(x));
}
HR_VMATH_FN float hr__f32_round_bfloat(float x) {
  return hr__f32_from_bfloat(hr__bfloat_from_f32(x));
}

HR_VMATH_FN hr_c64 hr__c64_from_halves(uint32_t x) {
  return hr_c64_make(hr__f32_from_half((uint16_t)(x & 0xffffu)), hr__f32_from_half((uint16_t)(x >> 16)));
}
HR_VMATH_FN uint32_t hr__halves_from_c64(hr_c64 x) {
  return hr__half_from_f32(x.re) | (uint32_t)hr__half_from_f32(x.im) << 16;
}

/* ---- the formats of one byte: the same bits as hr_f8_to_f32 and hr_f32_to_f8 ---- */

/* A byte without its sign, of a format with this mantissa width and exponent bias; not infinity or NaN. */
HR_VMATH_FN uint32_t hr__f32_from_f8_bits(uint32_t magnitude, int mantissa, int bias) {
  uint32_t small = hr__f32_to_u32((float)(int32_t)magnitude * hr__u32_to_f32((uint32_t)(128 - bias - mantissa) << 23));
  uint32_t normal = (magnitude << (23 - mantissa)) + ((uint32_t)(127 - bias) << 23);
  return magnitude >> mantissa == 0 ? small : normal;
}

/* The inverse, rounded to nearest, ties to even; numbers beyond the largest give codes beyond its code. */
HR_VMATH_FN uint32_t hr__f8_bits_from_f32(uint32_t magnitude, int mantissa, int bias) {
  /* Below the smallest normal, the low bits of the sum with this number are units of the format's smallest number. */
  uint32_t unit = (uint32_t)(151 - bias - mantissa) << 23;
  uint32_t small = hr__f32_to_u32(hr__u32_to_f32(magnitude) + hr__u32_to_f32(unit)) - unit;
  uint32_t half = ((uint32_t)1 << (22 - mantissa)) - 1, is_odd = magnitude >> (23 - mantissa) & 1u;
  uint32_t normal = (magnitude + half + is_odd - ((uint32_t)(127 - bias) << 23)) >> (23 - mantissa);
  return magnitude < (uint32_t)(128 - bias) << 23 ? small : normal;
}

HR_VMATH_FN float hr__f32_from_f8e4m3fn(uint8_t x) {
  uint32_t magnitude = x & 0x7fu, bits = hr__f32_from_f8_bits(magnitude, 3, 7);
  return hr__u32_to_f32((uint32_t)(x & 0x80u) << 24 | (magnitude == 0x7fu ? 0x7fc00000u : bits));
}
HR_VMATH_FN uint8_t hr__f8e4m3fn_from_f32(float x) {
  uint32_t bits = hr__f32_to_u32(x), magnitude = bits & 0x7fffffffu, byte = hr__f8_bits_from_f32(magnitude, 3, 7);
  byte = byte > 0x7eu ? 0x7eu : byte;
  return (uint8_t)(bits >> 24 & 0x80u) | (uint8_t)(magnitude > 0x7f800000u ? 0x7fu : byte);
}
HR_VMATH_FN float hr__f32_from_f8e5m2(uint8_t x) {
  uint32_t magnitude = x & 0x7fu, bits = hr__f32_from_f8_bits(magnitude, 2, 15);
  bits = magnitude == 0x7cu ? 0x7f800000u : bits;
  return hr__u32_to_f32((uint32_t)(x & 0x80u) << 24 | (magnitude > 0x7cu ? 0x7fc00000u : bits));
}
HR_VMATH_FN uint8_t hr__f8e5m2_from_f32(float x) {
  uint32_t bits = hr__f32_to_u32(x), magnitude = bits & 0x7fffffffu, byte = hr__f8_bits_from_f32(magnitude, 2, 15);
  byte = byte > 0x7cu ? 0x7cu : byte;
  return (uint8_t)(bits >> 24 & 0x80u) | (uint8_t)(magnitude > 0x7f800000u ? 0x7fu : byte);
}
HR_VMATH_FN float hr__f32_from_f8_fnuz(uint8_t x, int mantissa, int bias) {
  uint32_t bits = hr__f32_from_f8_bits(x & 0x7fu, mantissa, bias) | (uint32_t)(x & 0x80u) << 24;
  return hr__u32_to_f32(x == 0x80u ? 0x7fc00000u : bits);
}
HR_VMATH_FN uint8_t hr__f8_fnuz_from_f32(float x, int mantissa, int bias) {
  uint32_t bits = hr__f32_to_u32(x), byte = hr__f8_bits_from_f32(bits & 0x7fffffffu, mantissa, bias);
  byte = byte > 0x7fu ? 0x80u : byte; /* NaN is treated as too large */
  return (uint8_t)(byte == 0 ? 0 : byte | (bits >> 24 & 0x80u));
}
HR_VMATH_FN float hr__f32_from_f8e4m3fnuz(uint8_t x) {
  return hr__f32_from_f8_fnuz(x, 3, 8);
}
HR_VMATH_FN uint8_t hr__f8e4m3fnuz_from_f32(float x) {
  return hr__f8_fnuz_from_f32(x, 3, 8);
}
HR_VMATH_FN float hr__f32_from_f8e5m2fnuz(uint8_t x) {
  return hr__f32_from_f8_fnuz(x, 2, 16);
}
HR_VMATH_FN uint8_t hr__f8e5m2fnuz_from_f32(float x) {
  return hr__f8_fnuz_from_f32(x, 2, 16);
}
HR_VMATH_FN float hr__f32_from_f8e8m0fnu(uint8_t x) {
  uint32_t bits = x == 0 ? 0x00400000u : (uint32_t)x << 23;
  return hr__u32_to_f32(x == 0xffu ? 0x7fc00000u : bits);
}
HR_VMATH_FN uint8_t hr__f8e8m0fnu_from_f32(float x) {
  uint32_t magnitude = hr__f32_to_u32(x) & 0x7fffffffu, exponent = magnitude >> 23;
  /* A mantissa of one half is a tie: it rounds up to the next power, but 2^-127 (subnormal) stays. */
  uint32_t rounded = (magnitude + (exponent > 0 ? 0x400000u : 0x3fffffu)) >> 23;
  return (uint8_t)(exponent == 0xffu ? 0xffu : rounded);
}
HR_VMATH_FN float hr__f32_from_f8_ieee(uint8_t x, int mantissa, int bias) {
  uint32_t magnitude = x & 0x7fu, infinity = 0x80u - ((uint32_t)1 << mantissa);
  uint32_t bits = hr__f32_from_f8_bits(magnitude, mantissa, bias);
  bits = magnitude == infinity ? 0x7f800000u : bits;
  return hr__u32_to_f32((uint32_t)(x & 0x80u) << 24 | (magnitude > infinity ? 0x7fc00000u : bits));
}
HR_VMATH_FN uint8_t hr__f8_ieee_from_f32(float x, int mantissa, int bias) {
  uint32_t bits = hr__f32_to_u32(x), magnitude = bits & 0x7fffffffu, infinity = 0x80u - ((uint32_t)1 << mantissa);
  uint32_t byte = hr__f8_bits_from_f32(magnitude, mantissa, bias), quiet = (uint32_t)1 << (mantissa - 1);
  byte = byte > infinity ? infinity : byte;
  return (uint8_t)((bits >> 24 & 0x80u) | (magnitude > 0x7f800000u ? infinity | quiet : byte));
}
HR_VMATH_FN float hr__f32_from_f8e4m3(uint8_t x) {
  return hr__f32_from_f8_ieee(x, 3, 7);
}
HR_VMATH_FN uint8_t hr__f8e4m3_from_f32(float x) {
  return hr__f8_ieee_from_f32(x, 3, 7);
}
HR_VMATH_FN float hr__f32_from_f8e3m4(uint8_t x) {
  return hr__f32_from_f8_ieee(x, 4, 3);
}
HR_VMATH_FN uint8_t hr__f8e3m4_from_f32(float x) {
  return hr__f8_ieee_from_f32(x, 4, 3);
}
HR_VMATH_FN float hr__f32_from_f8e4m3b11fnuz(uint8_t x) {
  return hr__f32_from_f8_fnuz(x, 3, 11);
}
HR_VMATH_FN uint8_t hr__f8e4m3b11fnuz_from_f32(float x) {
  return hr__f8_fnuz_from_f32(x, 3, 11);
}
HR_VMATH_FN float hr__f32_from_f4e2m1fn(uint8_t x) {
  return hr__u32_to_f32((uint32_t)(x & 8u) << 28 | hr__f32_from_f8_bits(x & 7u, 1, 1));
}
HR_VMATH_FN uint8_t hr__f4e2m1fn_from_f32(float x) {
  uint32_t bits = hr__f32_to_u32(x), magnitude = bits & 0x7fffffffu, number = hr__f8_bits_from_f32(magnitude, 1, 1);
  number = number > 7u ? 7u : number;
  return (uint8_t)(magnitude > 0x7f800000u ? 8u : (bits >> 28 & 8u) | number);
}

HR_VMATH_FN float hr__f32_round_f8e4m3fn(float x) {
  return hr__f32_from_f8e4m3fn(hr__f8e4m3fn_from_f32(x));
}
HR_VMATH_FN float hr__f32_round_f8e5m2(float x) {
  return hr__f32_from_f8e5m2(hr__f8e5m2_from_f32(x));
}
HR_VMATH_FN float hr__f32_round_f8e4m3fnuz(float x) {
  return hr__f32_from_f8e4m3fnuz(hr__f8e4m3fnuz_from_f32(x));
}
HR_VMATH_FN float hr__f32_round_f8e5m2fnuz(float x) {
  return hr__f32_from_f8e5m2fnuz(hr__f8e5m2fnuz_from_f32(x));
}
HR_VMATH_FN float hr__f32_round_f8e8m0fnu(float x) {
  return hr__f32_from_f8e8m0fnu(hr__f8e8m0fnu_from_f32(x));
}
HR_VMATH_FN float hr__f32_round_f8e4m3(float x) {
  return hr__f32_from_f8e4m3(hr__f8e4m3_from_f32(x));
}
HR_VMATH_FN float hr__f32_round_f8e3m4(float x) {
  return hr__f32_from_f8e3m4(hr__f8e3m4_from_f32(x));
}
HR_VMATH_FN float hr__f32_round_f8e4m3b11fnuz(float x) {
  return hr__f32_from_f8e4m3b11fnuz(hr__f8e4m3b11fnuz_from_f32(x));
}
HR_VMATH_FN float hr__f32_round_f4e2m1fn(float x) {
  return hr__f32_from_f4e2m1fn(hr__f4e2m1fn_from_f32(x));
}

/* ---- floating point to integers ---- */

HR_VMATH_FN int64_t hr__i64_from_f32(float x) {
  int inside = (x >= -0x1p63f) & (x < 0x1p63f);
  int64_t value = (int64_t)(inside ? x : 0.0f);
  return inside ? value : INT64_MIN;
}
HR_VMATH_FN int64_t hr__i64_from_f64(double x) {
  int inside = (x >= -0x1p63) & (x < 0x1p63);
  int64_t value = (int64_t)(inside ? x : 0.0);
  return inside ? value : INT64_MIN;
}
HR_VMATH_FN uint64_t hr__u64_from_f64(double x) {
  int large = (x >= 0x1p63) & (x < 0x1p64);
  uint64_t value = (uint64_t)hr__i64_from_f64(large ? x - 0x1p63 : x);
  return large ? value + ((uint64_t)1 << 63) : value;
}

/* gcc turns a conversion to an integer and back into truncation, which makes -0 of -0.3; here that becomes 0. Uses bits
 * instead of a select: gcc would propagate an integer's 0 through the following code and emit branches instead of
 * vectors. */
HR_VMATH_FN float hr__f32_without_zeros_sign(float x) {
  uint32_t bits = hr__f32_to_u32(x);
  return hr__u32_to_f32(bits & (0u - (uint32_t)(bits != 0x80000000u)));
}
HR_VMATH_FN double hr__f64_without_zeros_sign(double x) {
  uint64_t bits = hr__f64_to_u64(x);
  return hr__u64_to_f64(bits & ((uint64_t)0 - (uint64_t)(bits != 0x8000000000000000u)));
}
#define HR__FLOATS_FROM(cls, T)                   \
  HR_VMATH_FN float hr__f32_from_##cls(T x) {     \
    return hr__f32_without_zeros_sign((float)x);  \
  }                                               \
  HR_VMATH_FN double hr__f64_from_##cls(T x) {    \
    return hr__f64_without_zeros_sign((double)x); \
  }
HR__FLOATS_FROM(i32, int32_t)
HR__FLOATS_FROM(u32, uint32_t)
HR__FLOATS_FROM(i64, int64_t)
HR__FLOATS_FROM(u64, uint64_t)
/* 1 or 0, from bits: gcc does not vectorise a comparison's result that is converted as a number. */
HR_VMATH_FN float hr__f32_from_b8(uint8_t x) {
  return hr__u32_to_f32((0u - (uint32_t)(x != 0)) & 0x3f800000u);
}
HR_VMATH_FN double hr__f64_from_b8(uint8_t x) {
  return hr__u64_to_f64(((uint64_t)0 - (uint64_t)(x != 0)) & 0x3ff0000000000000u);
}

/* ---- from each class to each dtype, as an element of the dtype's class ---- */

#define HR__INT_TO_BOOL(cls, a) (uint8_t)((a) != 0)
#define HR__INT_TO_U8(cls, a) (int32_t)(uint8_t)(a)
#define HR__INT_TO_I8(cls, a) (int32_t)(int8_t)(a)
#define HR__INT_TO_U16(cls, a) (int32_t)(uint16_t)(a)
#define HR__INT_TO_I16(cls, a) (int32_t)(int16_t)(a)
#define HR__INT_TO_U32(cls, a) (uint32_t)(a)
#define HR__INT_TO_I32(cls, a) (int32_t)(a)
#define HR__INT_TO_U64(cls, a) (uint64_t)(a)
#define HR__INT_TO_I64(cls, a) (int64_t)(a)
#define HR__INT_TO_F16(cls, a) hr__f32_round_half(hr__f32_from_##cls(a))
#define HR__INT_TO_BF16(cls, a) hr__f32_round_bfloat(hr__f32_from_##cls(a))
#define HR__INT_TO_F32(cls, a) hr__f32_from_##cls(a)
#define HR__INT_TO_F64(cls, a) hr__f64_from_##cls(a)
#define HR__INT_TO_C64(cls, a) hr_c64_make(hr__f32_from_##cls(a), 0)
#define HR__INT_TO_C128(cls, a) hr_c128_make(hr__f64_from_##cls(a), 0)
#define HR__INT_TO_C32(cls, a) hr_c64_make(hr__f32_round_half(hr__f32_from_##cls(a)), 0)
#define HR__INT_TO_F8E4M3FN(cls, a) hr__f32_round_f8e4m3fn(hr__f32_from_##cls(a))
#define HR__INT_TO_F8E5M2(cls, a) hr__f32_round_f8e5m2(hr__f32_from_##cls(a))
#define HR__INT_TO_F8E4M3FNUZ(cls, a) hr__f32_round_f8e4m3fnuz(hr__f32_from_##cls(a))
#define HR__INT_TO_F8E5M2FNUZ(cls, a) hr__f32_round_f8e5m2fnuz(hr__f32_from_##cls(a))
#define HR__INT_TO_F8E8M0FNU(cls, a) hr__f32_round_f8e8m0fnu(hr__f32_from_##cls(a))
#define HR__INT_TO_F8E4M3(cls, a) hr__f32_round_f8e4m3(hr__f32_from_##cls(a))
#define HR__INT_TO_F8E3M4(cls, a) hr__f32_round_f8e3m4(hr__f32_from_##cls(a))
#define HR__INT_TO_F8E4M3B11FNUZ(cls, a) hr__f32_round_f8e4m3b11fnuz(hr__f32_from_##cls(a))
#define HR__INT_TO_F4E2M1FN(cls, a) hr__f32_round_f4e2m1fn(hr__f32_from_##cls(a))

#define HR__REAL_TO_BOOL(cls, a) (uint8_t)((a) != 0)
#define HR__REAL_TO_U8(cls, a) (int32_t)(uint8_t) hr__i64_from_##cls(a)
#define HR__REAL_TO_I8(cls, a) (int32_t)(int8_t) hr__i64_from_##cls(a)
#define HR__REAL_TO_U16(cls, a) (int32_t)(uint16_t) hr__i64_from_##cls(a)
#define HR__REAL_TO_I16(cls, a) (int32_t)(int16_t) hr__i64_from_##cls(a)
#define HR__REAL_TO_U32(cls, a) (uint32_t) hr__i64_from_##cls(a)
#define HR__REAL_TO_I32(cls, a) (int32_t) hr__i64_from_##cls(a)
#define HR__REAL_TO_U64(cls, a) hr__u64_from_f64(a)
#define HR__REAL_TO_I64(cls, a) hr__i64_from_##cls(a)
#define HR__REAL_TO_F16(cls, a) hr__f32_round_half((float)(a))
#define HR__REAL_TO_BF16(cls, a) hr__f32_round_bfloat((float)(a))
#define HR__REAL_TO_F32(cls, a) (float)(a)
#define HR__REAL_TO_F64(cls, a) (double)(a)
#define HR__REAL_TO_C64(cls, a) hr_c64_make((float)(a), 0)
#define HR__REAL_TO_C128(cls, a) hr_c128_make((double)(a), 0)
#define HR__REAL_TO_C32(cls, a) hr_c64_make(hr__f32_round_half((float)(a)), 0)
#define HR__REAL_TO_F8E4M3FN(cls, a) hr__f32_round_f8e4m3fn((float)(a))
#define HR__REAL_TO_F8E5M2(cls, a) hr__f32_round_f8e5m2((float)(a))
#define HR__REAL_TO_F8E4M3FNUZ(cls, a) hr__f32_round_f8e4m3fnuz((float)(a))
#define HR__REAL_TO_F8E5M2FNUZ(cls, a) hr__f32_round_f8e5m2fnuz((float)(a))
#define HR__REAL_TO_F8E8M0FNU(cls, a) hr__f32_round_f8e8m0fnu((float)(a))
#define HR__REAL_TO_F8E4M3(cls, a) hr__f32_round_f8e4m3((float)(a))
#define HR__REAL_TO_F8E3M4(cls, a) hr__f32_round_f8e3m4((float)(a))
#define HR__REAL_TO_F8E4M3B11FNUZ(cls, a) hr__f32_round_f8e4m3b11fnuz((float)(a))
#define HR__REAL_TO_F4E2M1FN(cls, a) hr__f32_round_f4e2m1fn((float)(a))

#define HR__COMPLEX_TO_BOOL(cls, a) (uint8_t)(((a).re != 0) | ((a).im != 0))
#define HR__COMPLEX_TO_U8(cls, a) HR__REAL_TO_U8(cls, (a).re)
#define HR__COMPLEX_TO_I8(cls, a) HR__REAL_TO_I8(cls, (a).re)
#define HR__COMPLEX_TO_U16(cls, a) HR__REAL_TO_U16(cls, (a).re)
#define HR__COMPLEX_TO_I16(cls, a) HR__REAL_TO_I16(cls, (a).re)
#define HR__COMPLEX_TO_U32(cls, a) HR__REAL_TO_U32(cls, (a).re)
#define HR__COMPLEX_TO_I32(cls, a) HR__REAL_TO_I32(cls, (a).re)
#define HR__COMPLEX_TO_U64(cls, a) HR__REAL_TO_U64(cls, (a).re)
#define HR__COMPLEX_TO_I64(cls, a) HR__REAL_TO_I64(cls, (a).re)
#define HR__COMPLEX_TO_F16(cls, a) HR__REAL_TO_F16(cls, (a).re)
#define HR__COMPLEX_TO_BF16(cls, a) HR__REAL_TO_BF16(cls, (a).re)
#define HR__COMPLEX_TO_F32(cls, a) (float)(a).re
#define HR__COMPLEX_TO_F64(cls, a) (double)(a).re
#define HR__COMPLEX_TO_C64(cls, a) hr_c64_make((float)(a).re, (float)(a).im)
#define HR__COMPLEX_TO_C128(cls, a) hr_c128_make((double)(a).re, (double)(a).im)
#define HR__COMPLEX_TO_C32(cls, a) hr_c64_make(hr__f32_round_half((float)(a).re), hr__f32_round_half((float)(a).im))
#define HR__COMPLEX_TO_F8E4M3FN(cls, a) HR__REAL_TO_F8E4M3FN(cls, (a).re)
#define HR__COMPLEX_TO_F8E5M2(cls, a) HR__REAL_TO_F8E5M2(cls, (a).re)
#define HR__COMPLEX_TO_F8E4M3FNUZ(cls, a) HR__REAL_TO_F8E4M3FNUZ(cls, (a).re)
#define HR__COMPLEX_TO_F8E5M2FNUZ(cls, a) HR__REAL_TO_F8E5M2FNUZ(cls, (a).re)
#define HR__COMPLEX_TO_F8E8M0FNU(cls, a) HR__REAL_TO_F8E8M0FNU(cls, (a).re)
#define HR__COMPLEX_TO_F8E4M3(cls, a) HR__REAL_TO_F8E4M3(cls, (a).re)
#define HR__COMPLEX_TO_F8E3M4(cls, a) HR__REAL_TO_F8E3M4(cls, (a).re)
#define HR__COMPLEX_TO_F8E4M3B11FNUZ(cls, a) HR__REAL_TO_F8E4M3B11FNUZ(cls, (a).re)
#define HR__COMPLEX_TO_F4E2M1FN(cls, a) HR__REAL_TO_F4E2M1FN(cls, (a).re)

#define HR__FROM_b8_TO(D, a) HR__INT_TO_##D(b8, a)
#define HR__FROM_i32_TO(D, a) HR__INT_TO_##D(i32, a)
#define HR__FROM_u32_TO(D, a) HR__INT_TO_##D(u32, a)
#define HR__FROM_i64_TO(D, a) HR__INT_TO_##D(i64, a)
#define HR__FROM_u64_TO(D, a) HR__INT_TO_##D(u64, a)
#define HR__FROM_f32_TO(D, a) HR__REAL_TO_##D(f32, a)
#define HR__FROM_f64_TO(D, a) HR__REAL_TO_##D(f64, a)
#define HR__FROM_c64_TO(D, a) HR__COMPLEX_TO_##D(f32, a)
#define HR__FROM_c128_TO(D, a) HR__COMPLEX_TO_##D(f64, a)

/* ---- between memory and registers: widens or narrows one element; types of equal size are only moved ---- */

#define HR__LOAD_BOOL(x) (x)
#define HR__LOAD_U8(x) (int32_t)(x)
#define HR__LOAD_I8(x) (int32_t)(x)
#define HR__LOAD_U16(x) (int32_t)(x)
#define HR__LOAD_I16(x) (int32_t)(x)
#define HR__LOAD_F16(x) hr__f32_from_half(x)
#define HR__LOAD_BF16(x) hr__f32_from_bfloat(x)
#define HR__LOAD_F32(x) (x)
#define HR__LOAD_F64(x) (x)
#define HR__LOAD_C128(x) (x)
#define HR__LOAD_C32(x) hr__c64_from_halves(x)
#define HR__LOAD_F8E4M3FN(x) hr__f32_from_f8e4m3fn(x)
#define HR__LOAD_F8E5M2(x) hr__f32_from_f8e5m2(x)
#define HR__LOAD_F8E4M3FNUZ(x) hr__f32_from_f8e4m3fnuz(x)
#define HR__LOAD_F8E5M2FNUZ(x) hr__f32_from_f8e5m2fnuz(x)
#define HR__LOAD_F8E8M0FNU(x) hr__f32_from_f8e8m0fnu(x)
#define HR__LOAD_F8E4M3(x) hr__f32_from_f8e4m3(x)
#define HR__LOAD_F8E3M4(x) hr__f32_from_f8e3m4(x)
#define HR__LOAD_F8E4M3B11FNUZ(x) hr__f32_from_f8e4m3b11fnuz(x)
#define HR__LOAD_F4E2M1FN(x) hr__f32_from_f4e2m1fn(x)
#define HR__STORE_U8(x) (uint8_t)(x)
#define HR__STORE_I8(x) (int8_t)(x)
#define HR__STORE_U16(x) (uint16_t)(x)
#define HR__STORE_I16(x) (int16_t)(x)
#define HR__STORE_F16(x) hr__half_from_f32(x)
#define HR__STORE_BF16(x) hr__bfloat_from_f32(x)
#define HR__LOAD_U32(x) (x)
#define HR__LOAD_I32(x) (x)
#define HR__LOAD_U64(x) (x)
#define HR__LOAD_I64(x) (x)
#define HR__LOAD_C64(x) (x)
#define HR__STORE_BOOL(x) (x)
#define HR__STORE_U32(x) (x)
#define HR__STORE_I32(x) (x)
#define HR__STORE_U64(x) (x)
#define HR__STORE_I64(x) (x)
#define HR__STORE_F32(x) (x)
#define HR__STORE_F64(x) (x)
#define HR__STORE_C64(x) (x)
#define HR__STORE_C128(x) (x)
#define HR__STORE_C32(x) hr__halves_from_c64(x)
#define HR__STORE_F8E4M3FN(x) hr__f8e4m3fn_from_f32(x)
#define HR__STORE_F8E5M2(x) hr__f8e5m2_from_f32(x)
#define HR__STORE_F8E4M3FNUZ(x) hr__f8e4m3fnuz_from_f32(x)
#define HR__STORE_F8E5M2FNUZ(x) hr__f8e5m2fnuz_from_f32(x)
#define HR__STORE_F8E8M0FNU(x) hr__f8e8m0fnu_from_f32(x)
#define HR__STORE_F8E4M3(x) hr__f8e4m3_from_f32(x)
#define HR__STORE_F8E3M4(x) hr__f8e3m4_from_f32(x)
#define HR__STORE_F8E4M3B11FNUZ(x) hr__f8e4m3b11fnuz_from_f32(x)
#define HR__STORE_F4E2M1FN(x) hr__f4e2m1fn_from_f32(x)

/* ---- bounds ---- */

/* The part [*low, *high) of a run of `count` elements with start + i * step in [0, extent). */
HR_VMATH_FN void hr__clip(int64_t start, int64_t step, int64_t extent, int64_t *low, int64_t *high) {
  int64_t last = start + (*high - 1) * step;
  if (*high <= *low || (start >= 0 && start < extent && last >= 0 && last < extent)) {
    return; /* common case: all inside; affine, so testing the ends suffices (*low is 0 or an earlier clip) */
  }
  if (step == 0) {
    *high = *low;
    return;
  }
  int64_t first = 0, end = *high;
  if (step > 0) {
    first = start < 0 ? (-start + step - 1) / step : 0;
    end = start >= extent ? 0 : (extent - start + step - 1) / step;
  } else {
    first = start >= extent ? (start - extent) / -step + 1 : 0;
    end = start < 0 ? 0 : start / -step + 1;
  }
  first = first < *high ? first : *high; /* all outside: the part below ends with the run */
  *low = first > *low ? first : *low;
  *high = end < *high ? end : *high;
  *high = *high < *low ? *low : *high;
}

/* ---- host numbers as elements of a class ---- */

HR_VMATH_FN int hr__scalar_is_integer(const hr_scalar *scalar) {
  return (scalar->dtype == HR_DTYPE_I64) | (scalar->dtype == HR_DTYPE_BOOL) | (scalar->dtype == HR_DTYPE_U64);
}
HR_VMATH_FN int64_t hr__scalar_as_i64(const hr_scalar *scalar) {
  return hr__scalar_is_integer(scalar) ? scalar->value.i : hr__i64_from_f64(scalar->value.f[0]);
}
HR_VMATH_FN double hr__scalar_as_f64(const hr_scalar *scalar) {
  return scalar->dtype == HR_DTYPE_U64   ? (double)(uint64_t)scalar->value.i
         : hr__scalar_is_integer(scalar) ? (double)scalar->value.i
                                         : scalar->value.f[0];
}
HR_VMATH_FN double hr__scalar_imaginary(const hr_scalar *scalar) {
  return scalar->dtype == HR_DTYPE_C128 ? scalar->value.f[1] : 0;
}
HR_VMATH_FN uint8_t hr__scalar_as_b8(const hr_scalar *scalar) {
  return hr__scalar_is_integer(scalar) ? scalar->value.i != 0
                                       : (scalar->value.f[0] != 0) | (hr__scalar_imaginary(scalar) != 0);
}
HR_VMATH_FN int32_t hr__scalar_as_i32(const hr_scalar *scalar) {
  return (int32_t)hr__scalar_as_i64(scalar);
}
HR_VMATH_FN uint32_t hr__scalar_as_u32(const hr_scalar *scalar) {
  return (uint32_t)hr__scalar_as_i64(scalar);
}
HR_VMATH_FN uint64_t hr__scalar_as_u64(const hr_scalar *scalar) {
  return hr__scalar_is_integer(scalar) ? (uint64_t)scalar->value.i : hr__u64_from_f64(scalar->value.f[0]);
}
HR_VMATH_FN float hr__scalar_as_f32(const hr_scalar *scalar) {
  return scalar->dtype == HR_DTYPE_U64   ? (float)(uint64_t)scalar->value.i
         : hr__scalar_is_integer(scalar) ? (float)scalar->value.i
                                         : (float)scalar->value.f[0];
}
HR_VMATH_FN hr_c64 hr__scalar_as_c64(const hr_scalar *scalar) {
  return hr_c64_make(hr__scalar_as_f32(scalar), (float)hr__scalar_imaginary(scalar));
}
HR_VMATH_FN hr_c128 hr__scalar_as_c128(const hr_scalar *scalar) {
  return hr_c128_make(hr__scalar_as_f64(scalar), hr__scalar_imaginary(scalar));
}

#endif
