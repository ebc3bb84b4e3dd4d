/* vmath.h: the functions that expressions of ops.def call, one version for each compute class.
 *
 * An expression contains F(exp)(a) or C(mul)(a, b); the file that includes ops.def binds F and C to a class:
 * hr_f32_exp, hr_c64_mul. The reference evaluator's tests, the interpreter and emitted kernels all use this file, so
 * their bits agree by construction.
 *
 *   f32       Straight-line C: explicit fma, selects, bit casts; no branch, table or library call (fmod, remainder and
 *             div_floor excepted: they are exact in any form). A compiler vectorises it, and every
 *             vector width and optimisation level gives the same bits. Correct for NaN, infinities, signed zeros and
 *             denormals. Most round correctly, the worst is within 2.3 units in the last place (vmath_test.c).
 *             Hot ones (exp, exp2, expm1, log, log1p, logaddexp, tanh, erf, normal_cdf, sigmoid) work in f32; the
 *             others compute in double.
 *   f64       The host's libm if it has the function.
 *   integers  i32 u32 i64 u64: behaviour that C leaves undefined is defined here (wrap, division by 0, shifts).
 *   complex   vmath_complex.h, built on these.
 *
 * Compile without -ffast-math and with -ffp-contract=off. An emitter that embeds this text defines HR_VMATH_FN (the
 * qualifiers of a function), and HEADRACE_CORE_DTYPE_H_ with hr_c64 and hr_c128 of its own.
 *
 * Sources: reductions and kernels are the textbook ones (Cody and Waite; Muller, "Elementary Functions"; Payne and
 * Hanek for large angles); the polynomials are our own minimax fits, with coefficients rounded one after the other.
 */
#ifndef HEADRACE_CORE_VMATH_H_
#define HEADRACE_CORE_VMATH_H_

#include <math.h>
#include <stdint.h>

#include "core/ir/dtype.h"
#include "core/math/philox.h"

/* ---- bits ---- */

typedef union hr__f32_bits {
  float f;
  uint32_t u;
} hr__f32_bits;
typedef union hr__f64_bits {
  double f;
  uint64_t u;
} hr__f64_bits;

HR_VMATH_FN uint32_t hr__f32_to_u32(float x) {
  hr__f32_bits b;
  b.f = x;
  return b.u;
}
HR_VMATH_FN float hr__u32_to_f32(uint32_t x) {
  hr__f32_bits b;
  b.u = x;
  return b.f;
}
HR_VMATH_FN uint64_t hr__f64_to_u64(double x) {
  hr__f64_bits b;
  b.f = x;
  return b.u;
}
HR_VMATH_FN double hr__u64_to_f64(uint64_t x) {
  hr__f64_bits b;
  b.u = x;
  return b.f;
}
HR_VMATH_FN float hr__f32_fma(float a, float b, float c) {
  return __builtin_fmaf(a, b, c);
}
HR_VMATH_FN double hr__f64_fma(double a, double b, double c) {
  return __builtin_fma(a, b, c);
}

/* A product that is rounded by itself: gcc 12 fuses complex products into multiply-adds even with -ffp-contract=off. */
#if defined(__has_builtin)
#if __has_builtin(__builtin_assoc_barrier)
#define HR__ROUNDED(x) __builtin_assoc_barrier(x)
#endif
#endif
#ifndef HR__ROUNDED
#define HR__ROUNDED(x) (x)
#endif

#define HR__F32_INFINITY __builtin_inff()
#define HR__F32_NAN __builtin_nanf("")
#define HR__F64_INFINITY __builtin_inf()
#define HR__F64_NAN __builtin_nan("")
/* Adding and subtracting these rounds to an integer, which is in the low bits of the sum. */
#define HR__F32_ROUNDER 0x1.8p23f
#define HR__F64_ROUNDER 0x1.8p52

/* ---- f32: exact ones ---- */

HR_VMATH_FN float hr_f32_abs(float x) {
  return hr__u32_to_f32(hr__f32_to_u32(x) & 0x7fffffffu);
}
HR_VMATH_FN uint8_t hr_f32_signbit(float x) {
  return (uint8_t)(hr__f32_to_u32(x) >> 31);
}
HR_VMATH_FN float hr__f32_copysign(float x, float sign) {
  return hr__u32_to_f32((hr__f32_to_u32(x) & 0x7fffffffu) | (hr__f32_to_u32(sign) & 0x80000000u));
}
HR_VMATH_FN float hr_f32_copysign(float x, float sign) {
  return hr__f32_copysign(x, sign);
}
HR_VMATH_FN float hr_f32_nextafter(float a, float b) {
  uint32_t bits = hr__f32_to_u32(a);
  float smallest = hr__f32_copysign(hr__u32_to_f32(1), b);
  float next = hr__u32_to_f32((b > a) == (a > 0.0f) ? bits + 1 : bits - 1);
  return a != a || b != b ? a + b : (a == b ? b : (a == 0.0f ? smallest : next));
}
HR_VMATH_FN float hr_f32_nan_to_num(float x, float nan, float most, float least) {
  return x != x ? nan : (x == HR__F32_INFINITY ? most : (x == -HR__F32_INFINITY ? least : x));
}
/* x = mantissa * 2^exponent with 0.5 <= |mantissa| < 1; for 0, infinity and NaN the mantissa is x and the exponent 0.
 */
HR_VMATH_FN float hr_f32_frexp_exponent(float x) {
  uint32_t bits = hr__f32_to_u32(x) & 0x7fffffffu;
  uint32_t normal = bits < 0x00800000u ? hr__f32_to_u32(hr__u32_to_f32(bits) * 0x1p25f) : bits;
  int exponent = (int)(normal >> 23) - (bits < 0x00800000u ? 151 : 126);
  return bits == 0 || bits >= 0x7f800000u ? 0.0f : (float)exponent;
}
HR_VMATH_FN float hr_f32_frexp_mantissa(float x) {
  uint32_t bits = hr__f32_to_u32(x) & 0x7fffffffu;
  uint32_t normal = bits < 0x00800000u ? hr__f32_to_u32(hr__u32_to_f32(bits) * 0x1p25f) : bits;
  float mantissa = hr__u32_to_f32((normal & 0x007fffffu) | 0x3f000000u);
  return bits == 0 || bits >= 0x7f800000u ? x : hr__f32_copysign(mantissa, x);
}
HR_VMATH_FN float hr_f32_sqrt(float x) {
  return __builtin_sqrtf(x);
}
HR_VMATH_FN float hr_f32_floor(float x) {
  return __builtin_floorf(x);
}
HR_VMATH_FN float hr_f32_ceil(float x) {
  return __builtin_ceilf(x);
}
HR_VMATH_FN float hr_f32_trunc(float x) {
  return __builtin_truncf(x);
}
HR_VMATH_FN float hr_f32_round(float x) {
  return __builtin_rintf(x);
} /* ties to even */
HR_VMATH_FN float hr_f32_at_least(float x, float least) {
  return x < least ? least : x;
}
/* 1 if the quotient is below 2^27 and b is not 0; then neither is NaN, and a is finite. */
HR_VMATH_FN int hr__f32_is_near(float a, float b) {
  return hr_f32_abs(a) < 0x1p27f * hr_f32_abs(b);
}
/* Exact for such numbers: the quotient in f64 is never rounded up to the next integer (it is at least 2^-25 away), and
 * its product with b has at most 51 bits. The library's function works bit by bit, ten times as slowly and without
 * vectors. */
HR_VMATH_FN float hr__f32_fmod_near(float a, float b) {
  double whole = __builtin_trunc((double)a / (double)b);
  double rest = whole == 0.0 ? (double)a : (double)a - whole * (double)b; /* b may be infinite */
  return hr__f32_copysign((float)rest, a);
}
HR_VMATH_FN float hr_f32_fmod(float a, float b) {
  return hr__f32_is_near(a, b) ? hr__f32_fmod_near(a, b) : __builtin_fmodf(a, b);
}
/* 1 if a remainder does not have the sign of b. */
HR_VMATH_FN int hr__f32_is_below(float r, float b) {
  return (r != 0.0f) & ((int32_t)(hr__f32_to_u32(r) ^ hr__f32_to_u32(b)) < 0);
}
HR_VMATH_FN float hr__f32_remainder_of(float r, float b) {
  return hr__f32_is_below(r, b) ? r + b : r;
}
/* a - b * floor(a / b) with the sign of b: torch.remainder. */
HR_VMATH_FN float hr_f32_remainder(float a, float b) {
  return hr__f32_remainder_of(hr_f32_fmod(a, b), b);
}
HR_VMATH_FN float hr__f32_remainder_near(float a, float b) {
  return hr__f32_remainder_of(hr__f32_fmod_near(a, b), b);
}
/* Python's // in torch's steps: the exact quotient of a - remainder, rounded down. */
HR_VMATH_FN float hr__f32_div_floor_of(float r, float a, float b) {
  float quotient = (a - r) / b;
  float lower = hr__f32_is_below(r, b) ? quotient - 1.0f : quotient;
  float whole = __builtin_floorf(lower);
  float nearest = lower - whole > 0.5f ? whole + 1.0f : whole;
  return lower != 0.0f ? nearest : hr__f32_copysign(0.0f, a / b);
}
HR_VMATH_FN float hr_f32_div_floor(float a, float b) {
  float result = hr__f32_div_floor_of(hr_f32_fmod(a, b), a, b);
  return b == 0.0f ? a / b : result;
}
HR_VMATH_FN float hr__f32_div_floor_near(float a, float b) {
  return hr__f32_div_floor_of(hr__f32_fmod_near(a, b), a, b);
}

/* ---- f32: exponentials ---- */

#ifndef HR_RECIPROCAL_DEVICE
/* For numbers between 1 and 2^100: a device may compute it without a division's special cases. */
HR_VMATH_FN float hr__f32_reciprocal(float x) {
  return 1.0f / x;
}
#endif

/* (e^r - 1 - r) / r^2 for |r| <= log(2) / 2. */
HR_VMATH_FN float hr__f32_exp_kernel(float r) {
  float p = 0x1.6ac778p-10f;
  p = hr__f32_fma(p, r, 0x1.123de2p-7f);
  p = hr__f32_fma(p, r, 0x1.555858p-5f);
  p = hr__f32_fma(p, r, 0x1.55548cp-3f);
  return hr__f32_fma(p, r, 0x1.fffffcp-2f);
}
/* x * 2^n in two steps, so that the result may be denormal or infinite; n as a two's complement number. */
HR_VMATH_FN float hr__f32_scale(float x, uint32_t n) {
  uint32_t half = (uint32_t)((int32_t)n >> 1);
  return x * hr__u32_to_f32((half + 127u) << 23) * hr__u32_to_f32((n - half + 127u) << 23);
}
HR_VMATH_FN float hr_f32_exp(float x) {
  float c = x > 89.0f ? 89.0f : x;
  c = c < -104.0f ? -104.0f : c;
  float t = hr__f32_fma(c, 0x1.715476p0f, HR__F32_ROUNDER);
  float n = t - HR__F32_ROUNDER;
  float r = hr__f32_fma(n, -0x1.62e43p-1f, c);
  r = hr__f32_fma(n, 0x1.05c61p-29f, r);
  float p = hr__f32_fma(hr__f32_exp_kernel(r), r * r, r) + 1.0f;
  return hr__f32_scale(p, hr__f32_to_u32(t) - 0x4b400000u);
}
/* The same bits for x from -87 to 80, where results are normal. */
HR_VMATH_FN float hr__f32_exp_small(float x) {
  float t = hr__f32_fma(x, 0x1.715476p0f, HR__F32_ROUNDER);
  float n = t - HR__F32_ROUNDER;
  float r = hr__f32_fma(n, -0x1.62e43p-1f, x);
  r = hr__f32_fma(n, 0x1.05c61p-29f, r);
  float p = hr__f32_fma(hr__f32_exp_kernel(r), r * r, r) + 1.0f;
  return p * hr__u32_to_f32((hr__f32_to_u32(t) - 0x4b400000u + 127u) << 23);
}
HR_VMATH_FN float hr_f32_exp2(float x) {
  float c = x > 129.0f ? 129.0f : x;
  c = c < -151.0f ? -151.0f : c;
  float t = c + HR__F32_ROUNDER;
  float f = c - (t - HR__F32_ROUNDER);
  float r = hr__f32_fma(f, 0x1.62e43p-1f, f * -0x1.05c61p-29f);
  float p = hr__f32_fma(hr__f32_exp_kernel(r), r * r, r) + 1.0f;
  return hr__f32_scale(p, hr__f32_to_u32(t) - 0x4b400000u);
}
HR_VMATH_FN float hr_f32_expm1(float x) {
  float c = x > 89.0f ? 89.0f : x;
  c = c < -20.0f ? -20.0f : c;
  float t = hr__f32_fma(c, 0x1.715476p0f, HR__F32_ROUNDER);
  float n = t - HR__F32_ROUNDER;
  float r = hr__f32_fma(n, -0x1.62e43p-1f, c);
  r = hr__f32_fma(n, 0x1.05c61p-29f, r);
  float p = hr__f32_fma(hr__f32_exp_kernel(r), r * r, r);
  /* half of 2^n (1 + p) - 1, so that n = 128 does not overflow too early */
  float s = hr__u32_to_f32((hr__f32_to_u32(t) - 0x4b400000u + 126u) << 23);
  float y = hr__f32_fma(s, p, s - 0.5f) * 2.0f;
  return hr_f32_abs(x) < 0x1p-25f ? x : y;
}
HR_VMATH_FN float hr_f32_sigmoid(float x) {
  float e = hr_f32_exp(-hr_f32_abs(x));
  return (x < 0.0f ? e : 1.0f) / (1.0f + e);
}
HR_VMATH_FN float hr_f32_tanh(float x) {
  float a = hr_f32_abs(x), z = x * x;
  float p = 0x1.160874p-9f;
  p = hr__f32_fma(p, z, -0x1.0b5a78p-7f);
  p = hr__f32_fma(p, z, 0x1.6377fcp-6f);
  p = hr__f32_fma(p, z, -0x1.b9ee4ap-5f);
  p = hr__f32_fma(p, z, 0x1.11107p-3f);
  p = hr__f32_fma(p, z, -0x1.555554p-2f);
  float small = hr__f32_fma(p * z, x, x);
  float e = hr__f32_exp_small(a > 10.0f ? 20.0f : a + a); /* 1 from 9.02 on */
  float large = hr__f32_fma(-2.0f, hr__f32_reciprocal(e + 1.0f), 1.0f);
  return hr__f32_copysign(a < 0.625f ? small : large, x);
}
HR_VMATH_FN float hr_f32_erf(float x) {
  float a = hr_f32_abs(x), z = x * x;
  float s = -0x1.398914p-11f;
  s = hr__f32_fma(s, z, 0x1.4723dep-8f);
  s = hr__f32_fma(s, z, -0x1.b689b6p-6f);
  s = hr__f32_fma(s, z, 0x1.ce1a88p-4f);
  s = hr__f32_fma(s, z, -0x1.8126e8p-2f);
  s = hr__f32_fma(s, z, 0x1.06eba6p-3f);
  float small = hr__f32_fma(s, x, x);
  float t = a > 4.0f ? 4.0f : a; /* log(1 - erf(t)) = t * (l - 1) */
  float l = -0x1.6bcea6p-17f;
  l = hr__f32_fma(l, t, 0x1.4e6832p-12f);
  l = hr__f32_fma(l, t, -0x1.db5b0cp-9f);
  l = hr__f32_fma(l, t, 0x1.84c59ap-6f);
  l = hr__f32_fma(l, t, -0x1.b2fcfep-4f);
  l = hr__f32_fma(l, t, -0x1.45359ap-1f);
  l = hr__f32_fma(l, t, -0x1.0775dep-3f);
  float large = 1.0f - hr_f32_exp(hr__f32_fma(l, t, -t));
  return a < 0.921875f ? small : hr__f32_copysign(large, x);
}
/* The normal distribution function Phi, the factor of x in gelu: Phi(-a) = 2^l(a) by one polynomial for a < 5.9; 0 from
 * there on. The error of x * Phi(x) is below 4e-8 for x < 0, and below 2.5 units in the last place for x > 0.
 * Coefficients: minimax. */
HR_VMATH_FN float hr_f32_normal_cdf(float x) {
  float a = hr_f32_abs(x), l = -0x1.fa445ap-26f;
  l = hr__f32_fma(l, a, 0x1.ce655ep-21f);
  l = hr__f32_fma(l, a, -0x1.6bed6cp-17f);
  l = hr__f32_fma(l, a, 0x1.3a38d4p-14f);
  l = hr__f32_fma(l, a, -0x1.1ce30ap-12f);
  l = hr__f32_fma(l, a, -0x1.66d9bep-16f);
  l = hr__f32_fma(l, a, 0x1.c94b2ep-8f);
  l = hr__f32_fma(l, a, -0x1.adc98p-5f);
  l = hr__f32_fma(l, a, -0x1.d63bf2p-2f);
  l = hr__f32_fma(l, a, -0x1.26aed2p0f);
  l = hr__f32_fma(l, a, -1.0f);
  float t = l + HR__F32_ROUNDER, f = l - (t - HR__F32_ROUNDER);
  float p = 0x1.416b52p-13f; /* 2^f for |f| <= 1/2 */
  p = hr__f32_fma(p, f, 0x1.5f082ep-10f);
  p = hr__f32_fma(p, f, 0x1.3b2dep-7f);
  p = hr__f32_fma(p, f, 0x1.c6af7cp-5f);
  p = hr__f32_fma(p, f, 0x1.ebfbdcp-3f);
  p = hr__f32_fma(p, f, 0x1.62e43p-1f);
  p = hr__f32_fma(p, f, 1.0f);
  float q = p * hr__u32_to_f32((hr__f32_to_u32(t) << 23) + 0x3f800000u);
  q = a > 5.9f ? 0.0f : q;
  return x > 0.0f ? 1.0f - q : q;
}

/* ---- f32: logarithm ---- */

/* log(1 + f) - f + f^2 / 2 for 1 + f from sqrt(1/2) to sqrt(2); z is f^2. */
HR_VMATH_FN float hr__f32_log_kernel(float f, float z) {
  float p = 0x1.59647ap-5f;
  p = hr__f32_fma(p, f, -0x1.a71f12p-4f);
  p = hr__f32_fma(p, f, 0x1.f7d08cp-4f);
  p = hr__f32_fma(p, f, -0x1.03578ap-3f);
  p = hr__f32_fma(p, f, 0x1.22c9aep-3f);
  p = hr__f32_fma(p, f, -0x1.550a8p-3f);
  p = hr__f32_fma(p, f, 0x1.99a6bp-3f);
  p = hr__f32_fma(p, f, -0x1.0000c8p-2f);
  p = hr__f32_fma(p, f, 0x1.555546p-2f);
  return p * z * f;
}
/* x = 2^k (1 + f). */
HR_VMATH_FN float hr__f32_log_part(float x, float *out_k) {
  float scaled = x < 0x1p-126f ? x * 0x1p23f : x;
  uint32_t u = hr__f32_to_u32(scaled) - 0x3f3504f3u; /* exponent counts from sqrt(1/2) */
  *out_k = (float)((int32_t)u >> 23) - (x < 0x1p-126f ? 23.0f : 0.0f);
  return hr__u32_to_f32((u & 0x7fffffu) + 0x3f3504f3u) - 1.0f;
}
/* A logarithm's value if x is not a positive number, or infinite; else y. */
HR_VMATH_FN float hr__f32_log_special(float x, float y) {
  y = x == HR__F32_INFINITY ? x : y;
  return x > 0.0f ? y : (x == 0.0f ? -HR__F32_INFINITY : HR__F32_NAN);
}
HR_VMATH_FN float hr_f32_log(float x) {
  float k, f = hr__f32_log_part(x, &k), z = f * f;
  float y = hr__f32_fma(k, -0x1.bd0106p-13f, hr__f32_log_kernel(f, z)); /* log(2) = 0x1.63p-1 - 0x1.bd0106p-13 */
  y = f + hr__f32_fma(z, -0.5f, y);
  return hr__f32_log_special(x, hr__f32_fma(k, 0x1.63p-1f, y));
}
/* log(x) / log(b), like the logarithm above with its low part: high + low = 1 / log(b). The same for log(2) / log(b),
 * whose high part times an exponent is exact. At most 0.75 ulp; exact at integer powers. */
HR_VMATH_FN float hr__f32_log_of(float x, float high, float low, float two_high, float two_low) {
  float k, f = hr__f32_log_part(x, &k), z = f * f;
  float head = hr__f32_fma(z, -0.5f, f);
  float tail = hr__f32_fma(z, -0.5f, f - head) + hr__f32_log_kernel(f, z) - 0.5f * hr__f32_fma(f, f, -z);
  float product = head * high, whole = k * two_high, y = whole + product;
  float rest = hr__f32_fma(head, high, -product) + hr__f32_fma(head, low, tail * high);
  return hr__f32_log_special(x, y + (rest + hr__f32_fma(k, two_low, (whole - y) + product)));
}
HR_VMATH_FN float hr_f32_log2(float x) {
  return hr__f32_log_of(x, 0x1.715476p+0f, 0x1.4ae0cp-26f, 1.0f, 0.0f);
}
HR_VMATH_FN float hr_f32_log10(float x) {
  return hr__f32_log_of(x, 0x1.bcb7b2p-2f, -0x1.5b235ep-27f, 0x1.344p-2f, 0x1.3509f8p-18f);
}
/* 1 + x = 2^k (1 + f) + the sum's rounding error c 2^k, which adds c / (1 + f). Near 0, f is x itself. */
HR_VMATH_FN float hr_f32_log1p(float x) {
  float sum = 1.0f + x;
  float dropped = x < 1.0f ? x - (sum - 1.0f) : 1.0f - (sum - x);
  uint32_t u = hr__f32_to_u32(sum) - 0x3f3504f3u;
  int32_t exponent = (int32_t)u >> 23;
  float k = (float)exponent;
  float f = hr__u32_to_f32((u & 0x7fffffu) + 0x3f3504f3u) - 1.0f;
  float c = dropped * hr__u32_to_f32((127u - (uint32_t)exponent) << 23);
  c = x < 0x1p26f ? c : 0.0f;
  c = exponent == 0 ? 0.0f : c;
  f = exponent == 0 ? x : f;
  float z = f * f;
  float y = hr__f32_fma(k, -0x1.bd0106p-13f, hr__f32_log_kernel(f, z));
  y = hr__f32_fma(hr__f32_fma(f, f, 1.0f - f), c, y);
  y = f + hr__f32_fma(z, -0.5f, y);
  y = hr__f32_fma(k, 0x1.63p-1f, y);
  y = x == HR__F32_INFINITY || hr_f32_abs(x) < 0x1p-25f ? x : y;
  return x > -1.0f ? y : (x == -1.0f ? -HR__F32_INFINITY : HR__F32_NAN);
}
/* log(1 + y) for y from 0 to 1, or NaN: 1 + y is 2 (1 + (y - 1) / 2) from sqrt(2) on. */
HR_VMATH_FN float hr__f32_log1p_unit(float y) {
  int is_large = y > 0x1.a8279ap-2f;
  float k = is_large ? 1.0f : 0.0f, f = is_large ? (y - 1.0f) * 0.5f : y, z = f * f;
  float p = hr__f32_fma(k, -0x1.bd0106p-13f, hr__f32_log_kernel(f, z));
  return hr__f32_fma(k, 0x1.63p-1f, f + hr__f32_fma(z, -0.5f, p));
}
/* log(1 + e^x) */
HR_VMATH_FN float hr_f32_log1p_exp(float x) {
  return (x < 0.0f ? 0.0f : x) + hr__f32_log1p_unit(hr_f32_exp(-hr_f32_abs(x)));
}
/* x itself is selected by its bits: with a conditional gcc would mask all code before it. */
HR_VMATH_FN float hr_f32_softplus(float x, float beta, float threshold) {
  float y = hr_f32_log1p_exp(x * beta) / beta;
  uint32_t mask = 0u - (uint32_t)(x * beta > threshold), bits = hr__f32_to_u32(y);
  return hr__u32_to_f32(bits ^ ((bits ^ hr__f32_to_u32(x)) & mask));
}
HR_VMATH_FN float hr_f32_log_clamped(float x) {
  float y = hr_f32_log(x);
  return y < -100.0f ? -100.0f : y;
}

/* ---- kernels in double for f32 arguments: straight-line, relative error below 1e-10 ---- */

/* e^x for |x| <= 700. */
HR_VMATH_FN double hr__d_exp(double x) {
  double t = hr__f64_fma(x, 0x1.71547652b82fep0, HR__F64_ROUNDER);
  double n = t - HR__F64_ROUNDER;
  double r = hr__f64_fma(n, -0x1.62e42fefa39efp-1, x);
  r = hr__f64_fma(n, -0x1.abc9e3b39803fp-56, r);
  double p = 1.0 / 39916800;
  p = hr__f64_fma(p, r, 1.0 / 3628800);
  p = hr__f64_fma(p, r, 1.0 / 362880);
  p = hr__f64_fma(p, r, 1.0 / 40320);
  p = hr__f64_fma(p, r, 1.0 / 5040);
  p = hr__f64_fma(p, r, 1.0 / 720);
  p = hr__f64_fma(p, r, 1.0 / 120);
  p = hr__f64_fma(p, r, 1.0 / 24);
  p = hr__f64_fma(p, r, 1.0 / 6);
  p = hr__f64_fma(p, r, 0.5);
  p = hr__f64_fma(p, r, 1.0);
  p = hr__f64_fma(p, r, 1.0);
  return p * hr__u64_to_f64((hr__f64_to_u64(t) + 1023u) << 52); /* the rounding constant's own bits are shifted out */
}
/* log(m) for x = 2^k * m, m in [sqrt(1/2), sqrt(2)); x positive, normal, finite. */
HR_VMATH_FN double hr__d_log_parts(double x, double *out_k) {
  uint64_t u = hr__f64_to_u64(x) + (0x3ff0000000000000u - 0x3fe6a09e667f3bcdu);
  *out_k = hr__u64_to_f64((u >> 52) | 0x4330000000000000u) - (0x1p52 + 1023.0);
  double m = hr__u64_to_f64((u & 0xfffffffffffffu) + 0x3fe6a09e667f3bcdu);
  double s = (m - 1.0) / (m + 1.0), z = s * s;
  double p = 1.0 / 19;
  p = hr__f64_fma(p, z, 1.0 / 17);
  p = hr__f64_fma(p, z, 1.0 / 15);
  p = hr__f64_fma(p, z, 1.0 / 13);
  p = hr__f64_fma(p, z, 1.0 / 11);
  p = hr__f64_fma(p, z, 1.0 / 9);
  p = hr__f64_fma(p, z, 1.0 / 7);
  p = hr__f64_fma(p, z, 1.0 / 5);
  p = hr__f64_fma(p, z, 1.0 / 3);
  return hr__f64_fma(p * z, s + s, s + s);
}
/* A logarithm's value for x <= 0, infinity and NaN; else y. */
HR_VMATH_FN double hr__d_log_special(double x, double y) {
  double finite = x == HR__F64_INFINITY ? x : y;
  return x > 0.0 ? finite : (x == 0.0 ? -HR__F64_INFINITY : HR__F64_NAN);
}
HR_VMATH_FN double hr__d_log(double x) {
  double k, y = hr__d_log_parts(x, &k);
  return hr__d_log_special(x, hr__f64_fma(k, 0x1.62e42fefa39efp-1, y));
}
/* Arc tangent of n / d for n, d >= 0, not both 0 or infinite, with one division. */
HR_VMATH_FN double hr__d_atan_quotient(double n, double d) {
  int is_steep = n > 2.414213562373095 * d, is_middle = n > 0.4142135623730950 * d;
  double numerator = is_steep ? -d : (is_middle ? n - d : n);
  double denominator = is_steep ? n : (is_middle ? n + d : d);
  double base = is_steep ? 0x1.921fb54442d18p0 : (is_middle ? 0x1.921fb54442d18p-1 : 0.0);
  double t = numerator / denominator, z = t * t;
  double p = 0x1.fb978b34f951cp-6;
  p = hr__f64_fma(p, z, -0x1.e319f595c423bp-5);
  p = hr__f64_fma(p, z, 0x1.3614d6ccc15d8p-4);
  p = hr__f64_fma(p, z, -0x1.73e490aa3b54cp-4);
  p = hr__f64_fma(p, z, 0x1.c715c2e99ee49p-4);
  p = hr__f64_fma(p, z, -0x1.24922ee01436fp-3);
  p = hr__f64_fma(p, z, 0x1.99999936827p-3);
  p = hr__f64_fma(p, z, -0x1.555555551707cp-2);
  return base + hr__f64_fma(p * z, t, t);
}
/* Arc sine of s for 0 <= s <= 1/2. */
HR_VMATH_FN double hr__d_asin_kernel(double s) {
  double z = s * s;
  double p = 0x1.1bd271c8c94ap-5;
  p = hr__f64_fma(p, z, 0x1.ec24dae6aedb6p-8);
  p = hr__f64_fma(p, z, 0x1.931f9d3f9fa58p-6);
  p = hr__f64_fma(p, z, 0x1.ed5d151247366p-6);
  p = hr__f64_fma(p, z, 0x1.6ddac02124935p-5);
  p = hr__f64_fma(p, z, 0x1.3332aa0474ea4p-4);
  p = hr__f64_fma(p, z, 0x1.55555605d194cp-3);
  return hr__f64_fma(p * z, s, s);
}
/* Sine and cosine of r for |r| <= pi / 4. */
HR_VMATH_FN double hr__d_sin_kernel(double r) {
  double z = r * r;
  double p = -1.0 / 39916800;
  p = hr__f64_fma(p, z, 1.0 / 362880);
  p = hr__f64_fma(p, z, -1.0 / 5040);
  p = hr__f64_fma(p, z, 1.0 / 120);
  p = hr__f64_fma(p, z, -1.0 / 6);
  return r * hr__f64_fma(p, z, 1.0); /* keeps the sign of 0 */
}
HR_VMATH_FN double hr__d_cos_kernel(double r) {
  double z = r * r;
  double p = 1.0 / 479001600;
  p = hr__f64_fma(p, z, -1.0 / 3628800);
  p = hr__f64_fma(p, z, 1.0 / 40320);
  p = hr__f64_fma(p, z, -1.0 / 720);
  p = hr__f64_fma(p, z, 1.0 / 24);
  p = hr__f64_fma(p, z, -0.5);
  return hr__f64_fma(p, z, 1.0);
}
/* 1 if an angle is so near 0 that pi/2 in two parts reduces it; 0 for NaN. */
HR_VMATH_FN int hr__f32_is_small(float angle) {
  return hr_f32_abs(angle) < 0x1p27f;
}
/* x = quarter * pi/2 + r, |r| <= pi/4 for such angles; the low two bits of *out_quarter count quarter turns. */
HR_VMATH_FN double hr__d_reduce_small(float angle, uint64_t *out_quarter) {
  double x = (double)angle, t = hr__f64_fma(x, 0x1.45f306dc9c883p-1, HR__F64_ROUNDER), n = t - HR__F64_ROUNDER;
  *out_quarter = hr__f64_to_u64(t);
  return hr__f64_fma(n, -0x1.1a62633145c07p-54, hr__f64_fma(n, -0x1.921fb54442d18p0, x));
}
/* The same for any f32 x. A large x is an integer times 2^(24 j): that factor goes into 2/pi, reduced modulo 4, in
 * three parts whose first two give exact products. */
HR_VMATH_FN double hr__d_reduce_angle(float angle, uint64_t *out_quarter) {
  uint64_t small_quarter;
  double small = hr__d_reduce_small(angle, &small_quarter);
  float a = hr_f32_abs(angle);
  double c0 = 0x1.45f3068p-1, c1 = 0x1.727220ap-27, c2 = 0x1.29fc2757d1f53p-56, scale = 1.0;
  c0 = a >= 0x1p48f ? 0x1.b72722p+1 : c0, c1 = a >= 0x1p48f ? 0x1.529fc24p-28 : c1;
  c2 = a >= 0x1p48f ? 0x1.abe8fa9a6ee07p-55 : c2, scale = a >= 0x1p48f ? 0x1p-24 : scale;
  c0 = a >= 0x1p72f ? 0x1.529fcp-4 : c0, c1 = a >= 0x1p72f ? 0x1.3abe8fap-27 : c1;
  c2 = a >= 0x1p72f ? 0x1.34ddc0db6295ap-56 : c2, scale = a >= 0x1p72f ? 0x1p-48 : scale;
  c0 = a >= 0x1p96f ? 0x1.3abe8ep-3 : c0, c1 = a >= 0x1p96f ? 0x1.a9a6eep-27 : c1;
  c2 = a >= 0x1p96f ? 0x1.b6c52b3278872p-57 : c2, scale = a >= 0x1p96f ? 0x1p-72 : scale;
  c0 = a >= 0x1p120f ? 0x1.f534ddcp+0 : c0, c1 = a >= 0x1p120f ? 0x1.b6c528p-33 : c1;
  c2 = a >= 0x1p120f ? 0x1.993c439041fe5p-56 : c2, scale = a >= 0x1p120f ? 0x1p-96 : scale;
  double x = (double)angle * scale;
  double p0 = x * c0, p1 = x * c1, p2 = x * c2;
  p0 -= 4.0 * ((p0 * 0.25 + HR__F64_ROUNDER) - HR__F64_ROUNDER);
  double n0 = (p0 + HR__F64_ROUNDER) - HR__F64_ROUNDER, f0 = p0 - n0;
  double n1 = (p1 + HR__F64_ROUNDER) - HR__F64_ROUNDER, f1 = p1 - n1;
  double n2 = (f0 + f1 + HR__F64_ROUNDER) - HR__F64_ROUNDER;
  *out_quarter = hr__f32_is_small(angle) ? small_quarter : hr__f64_to_u64(n0 + n1 + n2 + HR__F64_ROUNDER);
  return hr__f32_is_small(angle) ? small : ((f0 - n2) + f1 + p2) * 0x1.921fb54442d18p0;
}
/* e^(a^2) * erfc(a) for a in [0, 10.2]. */
HR_VMATH_FN double hr__d_erfc_kernel(double a) {
  double q = (a - 3.0) / (a + 3.0);
  double p = 0x1.15afe8d111824p-16;
  p = hr__f64_fma(p, q, 0x1.09b79706e2576p-14);
  p = hr__f64_fma(p, q, -0x1.09ce38a104512p-14);
  p = hr__f64_fma(p, q, -0x1.9e318d5d21b56p-12);
  p = hr__f64_fma(p, q, 0x1.f093a8f0306ffp-11);
  p = hr__f64_fma(p, q, 0x1.4c13df45692bdp-10);
  p = hr__f64_fma(p, q, -0x1.857708c6241b8p-7);
  p = hr__f64_fma(p, q, 0x1.17c9769b3ae43p-5);
  p = hr__f64_fma(p, q, -0x1.e88b7d6fd9e19p-5);
  p = hr__f64_fma(p, q, 0x1.09836c5e67d1ep-4);
  p = hr__f64_fma(p, q, -0x1.85a15c1ab3f7cp-6);
  p = hr__f64_fma(p, q, -0x1.15c084d662ac9p-4);
  p = hr__f64_fma(p, q, 0x1.40c522d7e0ee2p-1);
  return p / (a + 0.5);
}

/* ---- f32: the others, through double ---- */

HR_VMATH_FN double hr__d_log1p(double d) {
  double a = d < 0.0 ? -d : d;
  double small = d * hr__f64_fma(d, hr__f64_fma(d, 1.0 / 3, -0.5), 1.0); /* 1 + d would drop bits of d */
  return a < 0x1p-12 ? small : hr__d_log(1.0 + d);
}
HR_VMATH_FN float hr_f32_xlogy(float x, float y) {
  float product = (float)((double)x * hr__d_log((double)y));
  return y != y ? y : (x == 0.0f ? 0.0f : product);
}
HR_VMATH_FN float hr_f32_xlog1py(float x, float y) {
  float product = (float)((double)x * hr__d_log1p((double)y));
  return y != y ? y : (x == 0.0f ? 0.0f : product);
}
HR_VMATH_FN float hr_f32_entr(float x) {
  float product = (float)(-(double)x * hr__d_log((double)x)); /* NaN if x is NaN or has no logarithm */
  return x < 0.0f ? -HR__F32_INFINITY : (x == 0.0f ? 0.0f : product);
}
/* e^d for d <= 0, or NaN. */
HR_VMATH_FN double hr__d_exp_negative(double d) {
  return hr__d_exp(d < -700.0 ? -700.0 : d);
}
HR_VMATH_FN double hr__d_logaddexp(double a, double b) {
  double most = a > b ? a : b, least = a > b ? b : a; /* the sum propagates a NaN */
  double sum = most + hr__d_log1p(hr__d_exp_negative(least - most));
  return (a == b) & ((a == HR__F64_INFINITY) | (a == -HR__F64_INFINITY)) ? a : sum;
}
/* The larger one and log(1 + e^(smaller - larger)). */
HR_VMATH_FN float hr_f32_logaddexp(float a, float b) {
  float most = a > b ? a : b, least = a > b ? b : a; /* the sum propagates a NaN */
  float sum = most + hr__f32_log1p_unit(hr_f32_exp(least - most));
  return (a == b) & (hr_f32_abs(a) == HR__F32_INFINITY) ? a : sum;
}
HR_VMATH_FN float hr_f32_logaddexp2(float a, float b) {
  float most = a > b ? a : b, least = a > b ? b : a;
  float sum = hr__f32_fma(hr__f32_log1p_unit(hr_f32_exp2(least - most)), 0x1.715476p0f, most);
  return (a == b) & (hr_f32_abs(a) == HR__F32_INFINITY) ? a : sum;
}
HR_VMATH_FN float hr__f32_sin_of(double r, uint64_t quarter) {
  double s = hr__d_sin_kernel(r), c = hr__d_cos_kernel(r), y = (quarter & 1) ? c : s;
  return (float)((quarter & 2) ? -y : y);
}
HR_VMATH_FN float hr__f32_tan_of(double r, uint64_t quarter) {
  double s = hr__d_sin_kernel(r), c = hr__d_cos_kernel(r);
  return (float)(((quarter & 1) ? -c : s) / ((quarter & 1) ? s : c));
}
/* One for any angle, and the same bits for small ones. */
#define HR__F32_ANGLE(name, of, turns)               \
  HR_VMATH_FN float hr_f32_##name(float x) {         \
    uint64_t quarter;                                \
    double r = hr__d_reduce_angle(x, &quarter);      \
    return hr__f32_##of(r, quarter + turns);         \
  }                                                  \
  HR_VMATH_FN float hr__f32_##name##_near(float x) { \
    uint64_t quarter;                                \
    double r = hr__d_reduce_small(x, &quarter);      \
    return hr__f32_##of(r, quarter + turns);         \
  }
HR__F32_ANGLE(sin, sin_of, 0)
HR__F32_ANGLE(cos, sin_of, 1)
HR__F32_ANGLE(tan, tan_of, 0)
/* The angle is reduced before it is multiplied by pi; from 2^24 on x is even, and its sine is 0. */
HR_VMATH_FN float hr_f32_sinc(float x) {
  double a = (double)hr_f32_abs(x), angle = a * 0x1.921fb54442d18p1, halves = a < 0x1p24 ? a + a : 0.0;
  double t = halves + HR__F64_ROUNDER, r = (halves - (t - HR__F64_ROUNDER)) * 0x1.921fb54442d18p0;
  uint64_t quarter = hr__f64_to_u64(t);
  double s = hr__d_sin_kernel(r), c = hr__d_cos_kernel(r), y = (quarter & 1) ? c : s;
  float quotient = (float)(((quarter & 2) ? -y : y) / angle);
  return x == 0.0f ? 1.0f : (x - x != 0.0f ? HR__F32_NAN : quotient);
}
HR_VMATH_FN float hr_f32_atan(float x) {
  return hr__f32_copysign((float)hr__d_atan_quotient((double)hr_f32_abs(x), 1.0), x);
}
/* The arc sine of the root of (1 - a) / 2 is half of the arc cosine of a. */
HR_VMATH_FN float hr_f32_asin(float x) {
  double a = (double)hr_f32_abs(x), root = __builtin_sqrt(0.5 - 0.5 * a), y = hr__d_asin_kernel(a > 0.5 ? root : a);
  return hr__f32_copysign((float)(a > 0.5 ? hr__f64_fma(-2.0, y, 0x1.921fb54442d18p0) : y), x);
}
HR_VMATH_FN float hr_f32_acos(float x) {
  double d = (double)x, a = (double)hr_f32_abs(x), root = __builtin_sqrt(0.5 - 0.5 * a);
  double y = hr__d_asin_kernel(a > 0.5 ? root : a), upper = a > 0.5 ? y + y : 0x1.921fb54442d18p0 - y;
  return (float)(d < 0.0 ? 0x1.921fb54442d18p1 - upper : upper);
}
HR_VMATH_FN float hr_f32_atan2(float y, float x) {
  double n = (double)hr_f32_abs(y), d = (double)hr_f32_abs(x);
  int are_same = ((n == HR__F64_INFINITY) & (d == HR__F64_INFINITY)) | ((n == 0.0) & (d == 0.0));
  double ends = n == 0.0 ? 0.0 : 1.0; /* both infinite: half of a right angle */
  double angle = hr__d_atan_quotient(are_same ? ends : n, are_same ? 1.0 : d);
  angle = hr_f32_signbit(x) ? 0x1.921fb54442d18p1 - angle : angle;
  float result = hr__f32_copysign((float)angle, y);
  return (x != x || y != y) ? x + y : result;
}
HR_VMATH_FN float hr_f32_sinh(float x) {
  double d = (double)x, c = d > 120.0 ? 120.0 : (d < -120.0 ? -120.0 : d), z = d * d;
  double e = hr__d_exp(c), p = 1.0 / 362880;
  p = hr__f64_fma(p, z, 1.0 / 5040);
  p = hr__f64_fma(p, z, 1.0 / 120);
  p = hr__f64_fma(p, z, 1.0 / 6);
  double small = hr__f64_fma(p * z, d, d), large = 0.5 * (e - 1.0 / e);
  return (float)(((d < 0.25) & (d > -0.25)) ? small : large);
}
HR_VMATH_FN float hr_f32_cosh(float x) {
  double d = (double)x, c = d > 120.0 ? 120.0 : (d < -120.0 ? -120.0 : d);
  double e = hr__d_exp(c);
  return (float)(0.5 * (e + 1.0 / e));
}
HR_VMATH_FN float hr_f32_asinh(float x) {
  double d = (double)hr_f32_abs(x), z = d * d;
  double p = hr__f64_fma(hr__f64_fma(z, -15.0 / 336, 3.0 / 40), z, -1.0 / 6);
  double small = hr__f64_fma(p * z, d, d), large = hr__d_log(d + __builtin_sqrt(z + 1.0));
  return hr__f32_copysign((float)(d < 0.03125 ? small : large), x);
}
HR_VMATH_FN float hr_f32_acosh(float x) {
  double d = (double)x, y = hr__d_log(d + __builtin_sqrt((d - 1.0) * (d + 1.0)));
  return (float)(d >= 1.0 ? y : HR__F64_NAN);
}
HR_VMATH_FN float hr_f32_atanh(float x) {
  double d = (double)x, z = d * d;
  double p = hr__f64_fma(hr__f64_fma(z, 1.0 / 7, 1.0 / 5), z, 1.0 / 3);
  double small = hr__f64_fma(p * z, d, d), large = 0.5 * hr__d_log((1.0 + d) / (1.0 - d));
  return (float)((d < 0.03125) & (d > -0.03125) ? small : large);
}
HR_VMATH_FN float hr_f32_erfc(float x) {
  double d = (double)x, a = d < 0.0 ? -d : d;
  a = a > 10.2 ? 10.2 : a;
  double y = hr__d_exp(-a * a) * hr__d_erfc_kernel(a);
  return (float)(d < 0.0 ? 2.0 - y : y);
}
HR_VMATH_FN float hr_f32_hypot(float a, float b) {
  double x = (double)a, y = (double)b;
  float length = (float)__builtin_sqrt(x * x + y * y);
  return (hr_f32_abs(a) == HR__F32_INFINITY) | (hr_f32_abs(b) == HR__F32_INFINITY) ? HR__F32_INFINITY : length;
}
/* log(x) for x >= 0 and NaN. Uses masks: if x is the same for all elements, compilers don't vectorise conditions on it.
 */
HR_VMATH_FN double hr__d_log_of_size(double x) {
  double k, y = hr__d_log_parts(x, &k);
  uint64_t is_zero = -(uint64_t)(x == 0.0), is_same = -(uint64_t) !(x < HR__F64_INFINITY);
  uint64_t finite = hr__f64_to_u64(hr__f64_fma(k, 0x1.62e42fefa39efp-1, y)) & ~(is_zero | is_same);
  return hr__u64_to_f64(finite | (is_zero & hr__f64_to_u64(-HR__F64_INFINITY)) | (is_same & hr__f64_to_u64(x)));
}
HR_VMATH_FN float hr_f32_pow(float a, float b) {
  double base = (double)hr_f32_abs(a), exponent = (double)b;
  double product = exponent * hr__d_log_of_size(base);
  product = product > 400.0 ? 400.0 : (product < -400.0 ? -400.0 : product);
  float half = b * 0.5f, r = (float)hr__d_exp(product);
  /* Masks: if b is the same for all elements, conditions on it would become jumps. */
  uint32_t whole = __builtin_truncf(b) == b ? UINT32_MAX : 0u, odd = __builtin_truncf(half) != half ? whole : 0u;
  uint32_t negative = (a < 0.0f) & (base < HR__F64_INFINITY) ? UINT32_MAX : 0u;
  r = (negative & ~whole) != 0u ? HR__F32_NAN : r;
  r = hr__u32_to_f32(hr__f32_to_u32(r) | (hr__f32_to_u32(a) & 0x80000000u & odd));
  r = (base == 1.0) & (hr_f32_abs(b) == HR__F32_INFINITY) ? 1.0f : r;
  r = (a != a) | (b != b) ? a + b : r;
  return (b == 0.0f) | (a == 1.0f) ? 1.0f : r;
}
/* (1 + tanh(k (x + a x^3))) / 2, the factor of x in the tanh form of gelu. Computed as the sigmoid of 2 k (x + a x^3),
 * which needs no tanh and has no cancellation. 0 below exp(-64), so that its reciprocal is in range; inputs x and x^2.
 */
HR_VMATH_FN float hr__f32_gelu_tanh_part(float x, float square) {
  float t = x * hr__f32_fma(square, -0.071354816272600248f, -1.5957691216057307f);
  float c = t < 64.0f ? t : 64.0f;
  float s = hr__f32_reciprocal(hr__f32_exp_small(c > -64.0f ? c : -64.0f) + 1.0f);
  return t < 64.0f ? s : 0.0f;
}
HR_VMATH_FN float hr_f32_gelu_tanh_part(float x) {
  return hr__f32_gelu_tanh_part(x, x * x);
}
/* Derivative of the tanh form of gelu; NaN where x^2 overflows, as in torch. */
HR_VMATH_FN float hr_f32_gelu_tanh_slope(float x) {
  float square = x * x, s = hr__f32_gelu_tanh_part(x, square);
  float inner = hr__f32_fma(square, 0.21406444881780074f, 1.5957691216057307f);
  return hr__f32_fma(x * s * (1.0f - s), inner, s);
}
HR_VMATH_FN float hr__f32_uniform_of(uint32_t word) {
  return (float)(int32_t)(word >> 8) * 0x1p-24f;
}
HR_VMATH_FN float hr_f32_philox_uniform(int64_t element, int64_t seed, int64_t offset) {
  return hr__f32_uniform_of(hr_philox_word((uint64_t)element, (uint64_t)seed, (uint64_t)offset));
}
/* Box and Muller: radius from 32 bits in (0, 1], angle in turns from 32 bits; returns the cosine or the sine. */
HR_VMATH_FN float hr__f32_normal_of(uint32_t radius, uint32_t angle, uint64_t is_sine) {
  double u = hr__u64_to_f64(radius | 0x4330000000000000u) - (0x1p52 - 1.0);
  double v = (hr__u64_to_f64(angle | 0x4330000000000000u) - 0x1p52) * 0x1p-30; /* quarter turns */
  double n = (v + HR__F64_ROUNDER) - HR__F64_ROUNDER, r = (v - n) * 0x1.921fb54442d18p0;
  double s = hr__d_sin_kernel(r), c = hr__d_cos_kernel(r);
  uint64_t quarter = hr__f64_to_u64(n + HR__F64_ROUNDER) + 3 * is_sine; /* sine: the cosine a quarter turn earlier */
  double y = (quarter & 1) ? s : c;
  y = ((quarter + 1) & 2) ? -y : y;
  return (float)(__builtin_sqrt(-2.0 * hr__d_log(u * 0x1p-32)) * y);
}
HR_VMATH_FN float hr_f32_philox_normal(int64_t element, int64_t seed, int64_t offset) {
  hr_philox_block block = hr_philox((uint64_t)element >> 2, (uint64_t)offset, (uint64_t)seed);
  uint64_t pair = hr__philox_pair_of(block, (uint64_t)element >> 1);
  return hr__f32_normal_of((uint32_t)(pair >> 32), (uint32_t)pair, (uint64_t)element & 1);
}

/* ---- f64 ---- */

/* clang-format off */
HR_VMATH_FN double hr_f64_abs(double x) { return __builtin_fabs(x); }
HR_VMATH_FN uint8_t hr_f64_signbit(double x) { return (uint8_t)(hr__f64_to_u64(x) >> 63); }
HR_VMATH_FN double hr_f64_sqrt(double x) { return __builtin_sqrt(x); }
HR_VMATH_FN double hr_f64_floor(double x) { return __builtin_floor(x); }
HR_VMATH_FN double hr_f64_ceil(double x) { return __builtin_ceil(x); }
HR_VMATH_FN double hr_f64_trunc(double x) { return __builtin_trunc(x); }
HR_VMATH_FN double hr_f64_round(double x) { return __builtin_rint(x); } /* ties to even */
HR_VMATH_FN double hr_f64_at_least(double x, double least) { return x < least ? least : x; }
/* clang-format on */
HR_VMATH_FN double hr_f64_fmod(double a, double b) {
  return fmod(a, b);
}
HR_VMATH_FN double hr_f64_remainder(double a, double b) {
  double r = fmod(a, b);
  return (r != 0.0 && (r < 0.0) != (b < 0.0)) ? r + b : r;
}
HR_VMATH_FN double hr_f64_div_floor(double a, double b) {
  double r = fmod(a, b);
  double quotient = (a - r) / b;
  double lower = (r != 0.0 && (r < 0.0) != (b < 0.0)) ? quotient - 1.0 : quotient;
  double whole = __builtin_floor(lower);
  double nearest = lower - whole > 0.5 ? whole + 1.0 : whole;
  double result = lower != 0.0 ? nearest : __builtin_copysign(0.0, a / b);
  return b == 0.0 ? a / b : result;
}
/* clang-format off */
HR_VMATH_FN double hr_f64_pow(double a, double b) { return pow(a, b); }
HR_VMATH_FN double hr_f64_atan2(double a, double b) { return atan2(a, b); }
HR_VMATH_FN double hr_f64_hypot(double a, double b) { return hypot(a, b); }
HR_VMATH_FN double hr_f64_exp(double x) { return exp(x); }
HR_VMATH_FN double hr_f64_exp2(double x) { return exp2(x); }
HR_VMATH_FN double hr_f64_expm1(double x) { return expm1(x); }
HR_VMATH_FN double hr_f64_log(double x) { return log(x); }
HR_VMATH_FN double hr_f64_log2(double x) { return log2(x); }
HR_VMATH_FN double hr_f64_log10(double x) { return log10(x); }
HR_VMATH_FN double hr_f64_log1p(double x) { return log1p(x); }
HR_VMATH_FN double hr_f64_sin(double x) { return sin(x); }
HR_VMATH_FN double hr_f64_cos(double x) { return cos(x); }
HR_VMATH_FN double hr_f64_tan(double x) { return tan(x); }
HR_VMATH_FN double hr_f64_asin(double x) { return asin(x); }
HR_VMATH_FN double hr_f64_acos(double x) { return acos(x); }
HR_VMATH_FN double hr_f64_atan(double x) { return atan(x); }
HR_VMATH_FN double hr_f64_sinh(double x) { return sinh(x); }
HR_VMATH_FN double hr_f64_cosh(double x) { return cosh(x); }
HR_VMATH_FN double hr_f64_tanh(double x) { return tanh(x); }
HR_VMATH_FN double hr_f64_asinh(double x) { return asinh(x); }
HR_VMATH_FN double hr_f64_acosh(double x) { return acosh(x); }
HR_VMATH_FN double hr_f64_atanh(double x) { return atanh(x); }
HR_VMATH_FN double hr_f64_erf(double x) { return erf(x); }
HR_VMATH_FN double hr_f64_erfc(double x) { return erfc(x); }
/* clang-format on */
HR_VMATH_FN double hr_f64_sigmoid(double x) {
  double e = exp(-__builtin_fabs(x));
  return (x < 0.0 ? e : 1.0) / (1.0 + e);
}
HR_VMATH_FN double hr_f64_copysign(double x, double sign) {
  return __builtin_copysign(x, sign);
}
HR_VMATH_FN double hr_f64_nextafter(double a, double b) {
  uint64_t bits = hr__f64_to_u64(a);
  double smallest = __builtin_copysign(hr__u64_to_f64(1), b);
  double next = hr__u64_to_f64((b > a) == (a > 0.0) ? bits + 1 : bits - 1);
  return a != a || b != b ? a + b : (a == b ? b : (a == 0.0 ? smallest : next));
}
HR_VMATH_FN double hr_f64_nan_to_num(double x, double nan, double most, double least) {
  return x != x ? nan : (x == HR__F64_INFINITY ? most : (x == -HR__F64_INFINITY ? least : x));
}
HR_VMATH_FN double hr_f64_frexp_exponent(double x) {
  uint64_t bits = hr__f64_to_u64(x) & 0x7fffffffffffffffu, least = 0x0010000000000000u;
  uint64_t normal = bits < least ? hr__f64_to_u64(hr__u64_to_f64(bits) * 0x1p54) : bits;
  int exponent = (int)(normal >> 52) - (bits < least ? 1076 : 1022);
  return bits == 0 || bits >= 0x7ff0000000000000u ? 0.0 : (double)exponent;
}
HR_VMATH_FN double hr_f64_frexp_mantissa(double x) {
  uint64_t bits = hr__f64_to_u64(x) & 0x7fffffffffffffffu, least = 0x0010000000000000u;
  uint64_t normal = bits < least ? hr__f64_to_u64(hr__u64_to_f64(bits) * 0x1p54) : bits;
  double mantissa = hr__u64_to_f64((normal & 0x000fffffffffffffu) | 0x3fe0000000000000u);
  return bits == 0 || bits >= 0x7ff0000000000000u ? x : __builtin_copysign(mantissa, x);
}
HR_VMATH_FN double hr_f64_log_clamped(double x) {
  double y = log(x);
  return y < -100.0 ? -100.0 : y;
}
HR_VMATH_FN double hr_f64_xlogy(double x, double y) {
  return y != y ? y : (x == 0 ? 0 : x * log(y));
}
HR_VMATH_FN double hr_f64_xlog1py(double x, double y) {
  return y != y ? y : (x == 0 ? 0 : x * log1p(y));
}
HR_VMATH_FN double hr_f64_entr(double x) {
  return x != x ? x : (x > 0 ? -x * log(x) : (x == 0 ? 0 : -HR__F64_INFINITY));
}
HR_VMATH_FN double hr_f64_log1p_exp(double x) {
  return log1p(exp(x));
}
HR_VMATH_FN double hr_f64_softplus(double x, double beta, double threshold) {
  return x * beta > threshold ? x : hr_f64_log1p_exp(x * beta) / beta;
}
HR_VMATH_FN double hr_f64_logaddexp(double a, double b) {
  double most = a != a || b != b ? HR__F64_NAN : (a > b ? a : b);
  return a == b && hr_f64_abs(a) == HR__F64_INFINITY ? a : most + log1p(exp(-hr_f64_abs(a - b)));
}
HR_VMATH_FN double hr_f64_logaddexp2(double a, double b) {
  double most = a != a || b != b ? HR__F64_NAN : (a > b ? a : b);
  double more = log1p(exp2(-hr_f64_abs(a - b))) * 1.44269504088896340736;
  return a == b && hr_f64_abs(a) == HR__F64_INFINITY ? a : most + more;
}
HR_VMATH_FN double hr_f64_sinc(double x) {
  double angle = 3.14159265358979323846264338327950288 * x;
  return x == 0 ? 1 : sin(angle) / angle;
}
HR_VMATH_FN double hr_f64_normal_cdf(double x) {
  return 0.5 * (1.0 + hr_f64_erf(x * 0.70710678118654752440));
}
HR_VMATH_FN double hr_f64_gelu_tanh_part(double x) {
  return 1.0 / (1.0 + exp(-1.59576912160573071176 * (x + 0.044715 * x * x * x)));
}
HR_VMATH_FN double hr_f64_gelu_tanh_slope(double x) {
  double s = hr_f64_gelu_tanh_part(x);
  return s + x * s * (1.0 - s) * (1.59576912160573071176 * (1.0 + 3.0 * 0.044715 * x * x));
}
HR_VMATH_FN double hr__f64_uniform_of(uint64_t pair) {
  return (double)(int64_t)(pair >> 11) * 0x1p-53;
}
HR_VMATH_FN double hr_f64_philox_uniform(int64_t element, int64_t seed, int64_t offset) {
  return hr__f64_uniform_of(hr_philox_pair((uint64_t)element, (uint64_t)seed, (uint64_t)offset));
}
HR_VMATH_FN double hr__f64_normal_of(hr_philox_block block) {
  uint64_t first = hr__philox_pair_of(block, 0), second = hr__philox_pair_of(block, 1);
  double u = (double)(int64_t)((first >> 11) + 1) * 0x1p-53, v = (double)(int64_t)(second >> 11) * 0x1p-53;
  return __builtin_sqrt(-2.0 * log(u)) * cos(v * 6.283185307179586476925);
}
HR_VMATH_FN double hr_f64_philox_normal(int64_t element, int64_t seed, int64_t offset) {
  return hr__f64_normal_of(hr_philox((uint64_t)element, (uint64_t)offset, (uint64_t)seed));
}

/* ---- integers ---- */

/* clang-format off */
HR_VMATH_FN int32_t hr_i32_lowest(void) { return INT32_MIN; }
HR_VMATH_FN int32_t hr_i32_highest(void) { return INT32_MAX; }
HR_VMATH_FN uint32_t hr_u32_lowest(void) { return 0; }
HR_VMATH_FN uint32_t hr_u32_highest(void) { return UINT32_MAX; }
HR_VMATH_FN int64_t hr_i64_lowest(void) { return INT64_MIN; }
HR_VMATH_FN int64_t hr_i64_highest(void) { return INT64_MAX; }
HR_VMATH_FN uint64_t hr_u64_lowest(void) { return 0; }
HR_VMATH_FN uint64_t hr_u64_highest(void) { return UINT64_MAX; }
/* clang-format on */

/* Non-negative random numbers: 31 bits in the 32-bit classes, 63 in the others. */
HR_VMATH_FN int32_t hr_i32_philox_bits(int64_t element, int64_t seed, int64_t offset) {
  return (int32_t)(hr_philox_word((uint64_t)element, (uint64_t)seed, (uint64_t)offset) >> 1);
}
HR_VMATH_FN uint32_t hr_u32_philox_bits(int64_t element, int64_t seed, int64_t offset) {
  return hr_philox_word((uint64_t)element, (uint64_t)seed, (uint64_t)offset) >> 1;
}
HR_VMATH_FN int64_t hr_i64_philox_bits(int64_t element, int64_t seed, int64_t offset) {
  return (int64_t)(hr_philox_pair((uint64_t)element, (uint64_t)seed, (uint64_t)offset) >> 1);
}
HR_VMATH_FN uint64_t hr_u64_philox_bits(int64_t element, int64_t seed, int64_t offset) {
  return hr_philox_pair((uint64_t)element, (uint64_t)seed, (uint64_t)offset) >> 1;
}

/* Words of a generator with a key and a counter of 128 bits: one in the 32-bit classes, two in the others, of which the
 * first one is the lower half. */
HR_VMATH_FN uint32_t hr__philox_word_behind(int64_t element, int64_t key, int64_t low, int64_t high) {
  const uint64_t blocks = (uint64_t)element >> 2;
  return hr__philox_word_of(hr__philox_behind(blocks, (uint64_t)key, (uint64_t)low, (uint64_t)high), (uint64_t)element);
}
HR_VMATH_FN uint64_t hr__philox_two_of(hr_philox_block block, uint64_t element) {
  const uint64_t pair = hr__philox_pair_of(block, element);
  return pair << 32 | pair >> 32;
}
HR_VMATH_FN uint64_t hr__philox_two_behind(int64_t element, int64_t key, int64_t low, int64_t high) {
  const uint64_t blocks = (uint64_t)element >> 1;
  return hr__philox_two_of(hr__philox_behind(blocks, (uint64_t)key, (uint64_t)low, (uint64_t)high), (uint64_t)element);
}
#define HR__PHILOX_WORDS(cls, T, NUMBER)                                                           \
  HR_VMATH_FN T hr_##cls##_philox_words(int64_t element, int64_t key, int64_t low, int64_t high) { \
    return (T)NUMBER(element, key, low, high);                                                     \
  }
HR__PHILOX_WORDS(i32, int32_t, hr__philox_word_behind)
HR__PHILOX_WORDS(u32, uint32_t, hr__philox_word_behind)
HR__PHILOX_WORDS(i64, int64_t, hr__philox_two_behind)
HR__PHILOX_WORDS(u64, uint64_t, hr__philox_two_behind)

/* Threefry 2x32 with 20 rounds (Salmon et al., see philox.h) of the lower 32 bits of each number. */
typedef struct hr__threefry_block {
  uint32_t first, second;
} hr__threefry_block;

HR_VMATH_FN hr__threefry_block hr__threefry(uint32_t key, uint32_t more, uint32_t x, uint32_t y) {
  const uint32_t last = key ^ more ^ 0x1BD11BDAu;
#define HR__THREEFRY_ROUND(places) x += y, y = (y << (places) | y >> (32 - (places))) ^ x
#define HR__THREEFRY_ROUNDS(a, b, c, d, key, more, number) \
  HR__THREEFRY_ROUND(a);                                   \
  HR__THREEFRY_ROUND(b);                                   \
  HR__THREEFRY_ROUND(c);                                   \
  HR__THREEFRY_ROUND(d);                                   \
  x += (key), y += (more) + (number)
  x += key, y += more;
  HR__THREEFRY_ROUNDS(13, 15, 26, 6, more, last, 1);
  HR__THREEFRY_ROUNDS(17, 29, 16, 24, last, key, 2);
  HR__THREEFRY_ROUNDS(13, 15, 26, 6, key, more, 3);
  HR__THREEFRY_ROUNDS(17, 29, 16, 24, more, last, 4);
  HR__THREEFRY_ROUNDS(13, 15, 26, 6, last, key, 5);
#undef HR__THREEFRY_ROUNDS
#undef HR__THREEFRY_ROUND
  const hr__threefry_block block = {x, y};
  return block;
}
#define HR__THREEFRY_WORDS(cls, T)                                                     \
  HR_VMATH_FN T hr_##cls##_threefry_first(T a, T b, T c, T d) {                        \
    return (T)hr__threefry((uint32_t)a, (uint32_t)b, (uint32_t)c, (uint32_t)d).first;  \
  }                                                                                    \
  HR_VMATH_FN T hr_##cls##_threefry_second(T a, T b, T c, T d) {                       \
    return (T)hr__threefry((uint32_t)a, (uint32_t)b, (uint32_t)c, (uint32_t)d).second; \
  }
HR__THREEFRY_WORDS(i32, int32_t)
HR__THREEFRY_WORDS(u32, uint32_t)
HR__THREEFRY_WORDS(i64, int64_t)
HR__THREEFRY_WORDS(u64, uint64_t)

/* Division by 0 gives 0; the lowest number divided by -1 wraps. */
#define HR__SIGNED_FUNCTIONS(cls, T, U, WIDTH)                                          \
  HR_VMATH_FN T hr_##cls##_div_trunc(T a, T b) {                                        \
    T d = (b == 0) | (b == -1) ? 1 : b;                                                 \
    T q = a / d;                                                                        \
    return b == 0 ? 0 : (b == -1 ? (T)(0 - (U)a) : q);                                  \
  }                                                                                     \
  HR_VMATH_FN T hr_##cls##_fmod(T a, T b) {                                             \
    T d = (b == 0) | (b == -1) ? 1 : b;                                                 \
    return a % d;                                                                       \
  }                                                                                     \
  HR_VMATH_FN T hr_##cls##_remainder(T a, T b) {                                        \
    T r = hr_##cls##_fmod(a, b);                                                        \
    return (r != 0) & ((r < 0) != (b < 0)) ? r + b : r;                                 \
  }                                                                                     \
  HR_VMATH_FN T hr_##cls##_div_floor(T a, T b) {                                        \
    T q = hr_##cls##_div_trunc(a, b), r = hr_##cls##_fmod(a, b);                        \
    return (r != 0) & ((r < 0) != (b < 0)) ? q - 1 : q;                                 \
  }                                                                                     \
  HR_VMATH_FN T hr_##cls##_pow(T a, T b) {                                              \
    U result = 1, power = (U)a;                                                         \
    for (U e = b < 0 ? 0 : (U)b; e != 0; e >>= 1, power *= power) {                     \
      result *= e & 1 ? power : 1;                                                      \
    }                                                                                   \
    return b >= 0 ? (T)result : (a == 1 ? 1 : (a == -1 ? ((b & 1) != 0 ? -1 : 1) : 0)); \
  }                                                                                     \
  HR_VMATH_FN T hr_##cls##_gcd(T a, T b) {                                              \
    U x = a < 0 ? 0 - (U)a : (U)a, y = b < 0 ? 0 - (U)b : (U)b;                         \
    while (y != 0) {                                                                    \
      U r = x % y;                                                                      \
      x = y, y = r;                                                                     \
    }                                                                                   \
    return (T)x;                                                                        \
  }                                                                                     \
  HR_VMATH_FN T hr_##cls##_lcm(T a, T b) {                                              \
    U g = (U)hr_##cls##_gcd(a, b);                                                      \
    U whole = g == 0 ? 0 : (U)(a / (T)g) * (U)b;                                        \
    return (T)whole < 0 ? (T)(0 - whole) : (T)whole;                                    \
  }                                                                                     \
  HR_VMATH_FN T hr_##cls##_shift_left(T a, T b) {                                       \
    return (U)b < (WIDTH) ? (T)((U)a << ((U)b & ((WIDTH)-1))) : 0;                      \
  }                                                                                     \
  HR_VMATH_FN T hr_##cls##_shift_right(T a, T b) {                                      \
    return a >> ((U)b < (WIDTH) ? b : (WIDTH)-1);                                       \
  }

#define HR__UNSIGNED_FUNCTIONS(cls, T, WIDTH)        \
  HR_VMATH_FN T hr_##cls##_div_trunc(T a, T b) {     \
    return b == 0 ? 0 : a / (b == 0 ? 1 : b);        \
  }                                                  \
  HR_VMATH_FN T hr_##cls##_fmod(T a, T b) {          \
    return b == 0 ? 0 : a % (b == 0 ? 1 : b);        \
  }                                                  \
  HR_VMATH_FN T hr_##cls##_remainder(T a, T b) {     \
    return hr_##cls##_fmod(a, b);                    \
  }                                                  \
  HR_VMATH_FN T hr_##cls##_div_floor(T a, T b) {     \
    return hr_##cls##_div_trunc(a, b);               \
  }                                                  \
  HR_VMATH_FN T hr_##cls##_pow(T a, T b) {           \
    T result = 1;                                    \
    for (; b != 0; b >>= 1, a *= a) {                \
      result *= b & 1 ? a : 1;                       \
    }                                                \
    return result;                                   \
  }                                                  \
  HR_VMATH_FN T hr_##cls##_gcd(T a, T b) {           \
    while (b != 0) {                                 \
      T r = a % b;                                   \
      a = b, b = r;                                  \
    }                                                \
    return a;                                        \
  }                                                  \
  HR_VMATH_FN T hr_##cls##_lcm(T a, T b) {           \
    T g = hr_##cls##_gcd(a, b);                      \
    return g == 0 ? 0 : a / g * b;                   \
  }                                                  \
  HR_VMATH_FN T hr_##cls##_shift_left(T a, T b) {    \
    return b < (WIDTH) ? a << (b & ((WIDTH)-1)) : 0; \
  }                                                  \
  HR_VMATH_FN T hr_##cls##_shift_right(T a, T b) {   \
    return b < (WIDTH) ? a >> (b & ((WIDTH)-1)) : 0; \
  }

HR__SIGNED_FUNCTIONS(i32, int32_t, uint32_t, 32)
HR__SIGNED_FUNCTIONS(i64, int64_t, uint64_t, 64)
HR__UNSIGNED_FUNCTIONS(u32, uint32_t, 32)
HR__UNSIGNED_FUNCTIONS(u64, uint64_t, 64)
#undef HR__SIGNED_FUNCTIONS
#undef HR__UNSIGNED_FUNCTIONS

#endif
