/* vmath_reference.h: the functions that expressions of ops.def call, for the reference evaluator: the C library in
 * double precision, rounded once for f32, and integer arithmetic in 128 bits, wrapped once. Independent of vmath.h
 * (apart from Philox words), so that the oracle does not share its mistakes. The C library lacks the special functions:
 * those come from special.h, which special_test.c compares with mpmath's numbers.
 */
#ifndef HEADRACE_CORE_VMATH_REFERENCE_H_
#define HEADRACE_CORE_VMATH_REFERENCE_H_

#include <complex.h>
#include <math.h>
#include <stdint.h>
#undef I

#include "core/ir/dtype.h"
#include "core/math/philox.h"
#include "core/math/special.h"

#define REF_FN static inline __attribute__((unused))

/* ---- real numbers ---- */

REF_FN double ref_sigmoid(double x) {
  return x >= 0 ? 1 / (1 + exp(-x)) : exp(x) / (1 + exp(x));
}
/* The kernel in double overflows from 710 on, as torch's; the one in float does not. */
REF_FN double ref_log1p_exp(double x, size_t size) {
  return x > 700 && size < sizeof(double) ? x : log1p(exp(x));
}
REF_FN double ref_log_clamped(double x) {
  return log(x) < -100 ? -100 : log(x);
}
#define REF_REAL_1(cls, T, name, expression) \
  REF_FN T ref_##cls##_##name(T value) {     \
    double x = (double)value;                \
    return (T)(expression);                  \
  }
#define REF_REAL_2(cls, T, name, expression)     \
  REF_FN T ref_##cls##_##name(T left, T right) { \
    double x = (double)left, y = (double)right;  \
    return (T)(expression);                      \
  }
#define REF_REAL_3(cls, T, name, expression)                         \
  REF_FN T ref_##cls##_##name(T first, T second, T third) {          \
    double x = (double)first, y = (double)second, z = (double)third; \
    return (T)(expression);                                          \
  }
#define REF_REAL(cls, T)                                                                         \
  REF_REAL_1(cls, T, abs, fabs(x))                                                               \
  REF_REAL_1(cls, T, sqrt, sqrt(x))                                                              \
  REF_REAL_1(cls, T, floor, floor(x))                                                            \
  REF_REAL_1(cls, T, ceil, ceil(x))                                                              \
  REF_REAL_1(cls, T, trunc, trunc(x))                                                            \
  REF_REAL_1(cls, T, round, nearbyint(x))                                                        \
  REF_REAL_1(cls, T, exp, exp(x))                                                                \
  REF_REAL_1(cls, T, exp2, exp2(x))                                                              \
  REF_REAL_1(cls, T, expm1, expm1(x))                                                            \
  REF_REAL_1(cls, T, log, log(x))                                                                \
  REF_REAL_1(cls, T, log2, log2(x))                                                              \
  REF_REAL_1(cls, T, log10, log10(x))                                                            \
  REF_REAL_1(cls, T, log1p, log1p(x))                                                            \
  REF_REAL_1(cls, T, sin, sin(x))                                                                \
  REF_REAL_1(cls, T, cos, cos(x))                                                                \
  REF_REAL_1(cls, T, tan, tan(x))                                                                \
  REF_REAL_1(cls, T, asin, asin(x))                                                              \
  REF_REAL_1(cls, T, acos, acos(x))                                                              \
  REF_REAL_1(cls, T, atan, atan(x))                                                              \
  REF_REAL_1(cls, T, sinh, sinh(x))                                                              \
  REF_REAL_1(cls, T, cosh, cosh(x))                                                              \
  REF_REAL_1(cls, T, tanh, tanh(x))                                                              \
  REF_REAL_1(cls, T, asinh, asinh(x))                                                            \
  REF_REAL_1(cls, T, acosh, acosh(x))                                                            \
  REF_REAL_1(cls, T, atanh, atanh(x))                                                            \
  REF_REAL_1(cls, T, erf, erf(x))                                                                \
  REF_REAL_1(cls, T, erfc, erfc(x))                                                              \
  REF_REAL_1(cls, T, sigmoid, ref_sigmoid(x))                                                    \
  REF_REAL_1(cls, T, entr, hr_f64_entr(x))                                                       \
  REF_REAL_1(cls, T, log1p_exp, ref_log1p_exp(x, sizeof(T)))                                     \
  REF_REAL_3(cls, T, softplus, x *y > z ? x : ref_log1p_exp(x * y, sizeof(T)) / y)               \
  REF_REAL_1(cls, T, sinc, hr_f64_sinc(x))                                                       \
  REF_REAL_2(cls, T, xlogy, hr_f64_xlogy(x, y))                                                  \
  REF_REAL_2(cls, T, xlog1py, hr_f64_xlog1py(x, y))                                              \
  REF_REAL_2(cls, T, logaddexp, hr_f64_logaddexp(x, y))                                          \
  REF_REAL_2(cls, T, logaddexp2, hr_f64_logaddexp2(x, y))                                        \
  REF_REAL_1(cls, T, log_clamped, ref_log_clamped(x))                                            \
  REF_REAL_1(cls, T, normal_cdf, 0.5 * erfc(x * -0.70710678118654752440))                        \
  /* (1 + tanh(k (x + a x^3))) / 2 */                                                            \
  REF_FN T ref_##cls##_gelu_tanh_part(T x) {                                                     \
    double d = (double)x;                                                                        \
    return (T)(0.5 + 0.5 * tanh(0.79788456080286535588 * (d + 0.044715 * d * d * d)));           \
  }                                                                                              \
  /* d/dx of x/2 (1 + tanh(k (x + a x^3))), as torch: NaN where x^2 overflows */                 \
  REF_FN T ref_##cls##_gelu_tanh_slope(T x) {                                                    \
    const T k = (T)0.79788456080286535588, a = (T)0.044715;                                      \
    T square = x * x, t = (T)tanh((double)(k * (x + a * (square * x))));                         \
    return (T)0.5 * (1 + t) + (T)0.5 * x * (1 - t * t) * (k * (1 + 3 * a * square));             \
  }                                                                                              \
  REF_REAL_2(cls, T, atan2, atan2(x, y))                                                         \
  REF_REAL_2(cls, T, hypot, hypot(x, y))                                                         \
  REF_REAL_2(cls, T, pow, pow(x, y))                                                             \
  REF_REAL_2(cls, T, at_least, x < y ? y : x)                                                    \
  REF_FN uint8_t ref_##cls##_signbit(T x) {                                                      \
    return signbit(x) != 0;                                                                      \
  }                                                                                              \
  REF_FN T ref_##cls##_fmod(T x, T y) {                                                          \
    return (T)fmod((double)x, (double)y);                                                        \
  }                                                                                              \
  REF_FN T ref_##cls##_remainder(T x, T y) {                                                     \
    T r = ref_##cls##_fmod(x, y);                                                                \
    return r != 0 && (r < 0) != (y < 0) ? r + y : r;                                             \
  }                                                                                              \
  /* PyTorch: (x - x mod y) / y, one less if the signs differ, rounded to the nearest integer */ \
  REF_FN T ref_##cls##_div_floor(T x, T y) {                                                     \
    T r = ref_##cls##_fmod(x, y), q = (x - r) / y, whole;                                        \
    if (y == 0) {                                                                                \
      return x / y;                                                                              \
    }                                                                                            \
    q = r != 0 && (r < 0) != (y < 0) ? q - 1 : q;                                                \
    if (q == 0) {                                                                                \
      return (T)copysign(0.0, (double)(x / y));                                                  \
    }                                                                                            \
    whole = (T)floor((double)q);                                                                 \
    return q - whole > (T)0.5 ? whole + 1 : whole;                                               \
  }

REF_REAL(f32, float)
REF_REAL(f64, double)

REF_FN float ref_f32_copysign(float x, float y) {
  return copysignf(x, y);
}
REF_FN double ref_f64_copysign(double x, double y) {
  return copysign(x, y);
}
REF_FN float ref_f32_nextafter(float x, float y) {
  return nextafterf(x, y);
}
REF_FN double ref_f64_nextafter(double x, double y) {
  return nextafter(x, y);
}
REF_FN double ref_frexp_exponent(double x) {
  int exponent = 0;
  (void)frexp(x, &exponent);
  return isfinite(x) ? exponent : 0;
}
REF_FN double ref_frexp_mantissa(double x) {
  int exponent;
  return isfinite(x) ? frexp(x, &exponent) : x;
}
REF_REAL_1(f32, float, frexp_exponent, ref_frexp_exponent(x))
REF_REAL_1(f64, double, frexp_exponent, ref_frexp_exponent(x))
REF_REAL_1(f32, float, frexp_mantissa, ref_frexp_mantissa(x))
REF_REAL_1(f64, double, frexp_mantissa, ref_frexp_mantissa(x))
#define REF_NAN_TO_NUM(cls, T)                                       \
  REF_FN T ref_##cls##_nan_to_num(T x, T nan, T most, T least) {     \
    return isnan(x) ? nan : (isinf(x) ? (x > 0 ? most : least) : x); \
  }
REF_NAN_TO_NUM(f32, float)
REF_NAN_TO_NUM(f64, double)

#define REF_SPECIAL_1(name)                        \
  REF_FN float ref_f32_special_##name(float x) {   \
    return hr_f32_special_##name(x);               \
  }                                                \
  REF_FN double ref_f64_special_##name(double x) { \
    return hr_f64_special_##name(x);               \
  }
#define REF_SPECIAL_2(name)                                  \
  REF_FN float ref_f32_special_##name(float x, float y) {    \
    return hr_f32_special_##name(x, y);                      \
  }                                                          \
  REF_FN double ref_f64_special_##name(double x, double y) { \
    return hr_f64_special_##name(x, y);                      \
  }
HR_SPECIAL_UNARY(REF_SPECIAL_1)
HR_SPECIAL_BINARY(REF_SPECIAL_2)
REF_SPECIAL_2(hermite_polynomial_h)
REF_SPECIAL_2(hermite_polynomial_he)
REF_FN float ref_f32_special_sample_binomial(float count, float p, float key) {
  return hr_f32_special_sample_binomial(count, p, key);
}
REF_FN double ref_f64_special_sample_binomial(double count, double p, double key) {
  return hr_f64_special_sample_binomial(count, p, key);
}

/* ---- random numbers; philox.h defines the words of an element ---- */

REF_FN float ref_f32_philox_uniform(int64_t element, int64_t seed, int64_t offset) {
  return ldexpf((float)(hr_philox_word((uint64_t)element, (uint64_t)seed, (uint64_t)offset) >> 8), -24);
}
REF_FN double ref_f64_philox_uniform(int64_t element, int64_t seed, int64_t offset) {
  return ldexp((double)(hr_philox_pair((uint64_t)element, (uint64_t)seed, (uint64_t)offset) >> 11), -53);
}
REF_FN float ref_f32_philox_normal(int64_t element, int64_t seed, int64_t offset) {
  uint64_t radius = (uint64_t)element & ~(uint64_t)1, e = (uint64_t)seed, f = (uint64_t)offset;
  double u = ldexp((double)hr_philox_word(radius, e, f) + 1, -32),
         v = ldexp((double)hr_philox_word(radius + 1, e, f), -32);
  double angle = 6.283185307179586476925 * v;
  return (float)(sqrt(-2 * log(u)) * (element % 2 != 0 ? sin(angle) : cos(angle)));
}
REF_FN double ref_f64_philox_normal(int64_t element, int64_t seed, int64_t offset) {
  hr_philox_block block = hr_philox((uint64_t)element, (uint64_t)offset, (uint64_t)seed);
  uint64_t first = (uint64_t)block.word[0] << 32 | block.word[1],
           second = (uint64_t)block.word[2] << 32 | block.word[3];
  double u = ldexp((double)(first >> 11) + 1, -53), v = ldexp((double)(second >> 11), -53);
  return sqrt(-2 * log(u)) * cos(6.283185307179586476925 * v);
}

/* ---- integers ---- */

typedef __int128 ref_wide;

REF_FN ref_wide ref_wide_floor_div(ref_wide a, ref_wide b) {
  return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

/* Threefry 2x32-20 as a loop over its rounds. */
REF_FN void ref_threefry(const uint32_t key[2], uint32_t block[2]) {
  static const int places[2][4] = {{13, 15, 26, 6}, {17, 29, 16, 24}};
  const uint32_t keys[3] = {key[0], key[1], key[0] ^ key[1] ^ 0x1BD11BDA};
  for (uint32_t round = 0; round <= 20; ++round) {
    if (round % 4 == 0) {
      block[0] += keys[round / 4 % 3];
      block[1] += keys[(round / 4 + 1) % 3] + round / 4;
    }
    if (round < 20) {
      int up = places[round / 4 % 2][round % 4];
      block[0] += block[1];
      block[1] = (block[1] << up | block[1] >> (32 - up)) ^ block[0];
    }
  }
}

/* Word `number` of Philox behind a counter: the carry goes through all four of its words. */
REF_FN uint64_t ref_philox_word(uint64_t number, uint64_t key, uint64_t low, uint64_t high) {
  uint64_t words[4] = {(uint32_t)low, low >> 32, (uint32_t)high, high >> 32}, carry = number / 4;
  for (int i = 0; i < 4; ++i) {
    words[i] += (uint32_t)carry;
    carry = (carry >> 32) + (words[i] >> 32);
    words[i] = (uint32_t)words[i];
  }
  return hr_philox(words[1] << 32 | words[0], words[3] << 32 | words[2], key).word[number % 4];
}

#define REF_INTEGER(cls, T, U, BITS, LOWEST, HIGHEST, RANDOM)                                                     \
  REF_FN T ref_##cls##_lowest(void) {                                                                             \
    return LOWEST;                                                                                                \
  }                                                                                                               \
  REF_FN T ref_##cls##_highest(void) {                                                                            \
    return HIGHEST;                                                                                               \
  }                                                                                                               \
  REF_FN T ref_##cls##_div_trunc(T a, T b) {                                                                      \
    return b == 0 ? 0 : (T)((ref_wide)a / b);                                                                     \
  }                                                                                                               \
  REF_FN T ref_##cls##_fmod(T a, T b) {                                                                           \
    return b == 0 ? 0 : (T)((ref_wide)a % b);                                                                     \
  }                                                                                                               \
  REF_FN T ref_##cls##_div_floor(T a, T b) {                                                                      \
    return b == 0 ? 0 : (T)ref_wide_floor_div(a, b);                                                              \
  }                                                                                                               \
  REF_FN T ref_##cls##_remainder(T a, T b) {                                                                      \
    return b == 0 ? 0 : (T)((ref_wide)a - ref_wide_floor_div(a, b) * b);                                          \
  }                                                                                                               \
  REF_FN T ref_##cls##_pow(T a, T b) {                                                                            \
    U power = 1;                                                                                                  \
    if ((ref_wide)b < 0) {                                                                                        \
      return a == 1 ? 1 : (ref_wide)a == -1 ? (b % 2 != 0 ? (T)-1 : 1) : 0;                                       \
    }                                                                                                             \
    for (int bit = BITS - 1; bit >= 0; --bit) {                                                                   \
      power = (U)((unsigned __int128)power * power);                                                              \
      power = ((U)b >> bit & 1) != 0 ? (U)((unsigned __int128)power * (U)a) : power;                              \
    }                                                                                                             \
    return (T)power;                                                                                              \
  }                                                                                                               \
  REF_FN T ref_##cls##_gcd(T a, T b) {                                                                            \
    ref_wide x = a < 0 ? -(ref_wide)a : a, y = b < 0 ? -(ref_wide)b : b;                                          \
    for (ref_wide r; y != 0; x = y, y = r) {                                                                      \
      r = x % y;                                                                                                  \
    }                                                                                                             \
    return (T)x;                                                                                                  \
  }                                                                                                               \
  REF_FN T ref_##cls##_lcm(T a, T b) {                                                                            \
    T g = ref_##cls##_gcd(a, b);                                                                                  \
    T whole = g == 0 ? 0 : (T)((U)(a / g) * (U)b);                                                                \
    return (ref_wide)whole < 0 ? (T)(0 - (U)whole) : whole;                                                       \
  }                                                                                                               \
  REF_FN T ref_##cls##_shift_left(T a, T b) {                                                                     \
    return (U)b < BITS ? (T)((U)a << (U)b) : 0;                                                                   \
  }                                                                                                               \
  REF_FN T ref_##cls##_shift_right(T a, T b) {                                                                    \
    return (T)((ref_wide)a >> ((U)b < BITS ? (int)b : BITS));                                                     \
  }                                                                                                               \
  REF_FN T ref_##cls##_philox_bits(int64_t element, int64_t seed, int64_t offset) {                               \
    return (T)(RANDOM((uint64_t)element, (uint64_t)seed, (uint64_t)offset) >> 1);                                 \
  }                                                                                                               \
  REF_FN T ref_##cls##_philox_words(int64_t element, int64_t key, int64_t low, int64_t high) {                    \
    uint64_t number = (uint64_t)element * (BITS / 32), b = (uint64_t)key, c = (uint64_t)low, d = (uint64_t)high;  \
    return (T)(ref_philox_word(number, b, c, d) | (BITS == 64 ? ref_philox_word(number + 1, b, c, d) << 32 : 0)); \
  }                                                                                                               \
  REF_FN T ref_##cls##_threefry_first(T a, T b, T c, T d) {                                                       \
    uint32_t block[2] = {(uint32_t)c, (uint32_t)d};                                                               \
    ref_threefry((const uint32_t[2]){(uint32_t)a, (uint32_t)b}, block);                                           \
    return (T)block[0];                                                                                           \
  }                                                                                                               \
  REF_FN T ref_##cls##_threefry_second(T a, T b, T c, T d) {                                                      \
    uint32_t block[2] = {(uint32_t)c, (uint32_t)d};                                                               \
    ref_threefry((const uint32_t[2]){(uint32_t)a, (uint32_t)b}, block);                                           \
    return (T)block[1];                                                                                           \
  }

REF_INTEGER(i32, int32_t, uint32_t, 32, INT32_MIN, INT32_MAX, hr_philox_word)
REF_INTEGER(u32, uint32_t, uint32_t, 32, 0, UINT32_MAX, hr_philox_word)
REF_INTEGER(i64, int64_t, uint64_t, 64, INT64_MIN, INT64_MAX, hr_philox_pair)
REF_INTEGER(u64, uint64_t, uint64_t, 64, 0, UINT64_MAX, hr_philox_pair)

/* ---- complex numbers: in double, rounded once for c64 ---- */

#define REF_COMPLEX(cls, Z, T)                                                  \
  REF_FN double complex ref_##cls##_wide(Z a) {                                 \
    return __builtin_complex((double)a.re, (double)a.im);                       \
  }                                                                             \
  REF_FN Z ref_##cls##_make(T re, T im) {                                       \
    return (Z){re, im};                                                         \
  }                                                                             \
  REF_FN Z ref_##cls##_narrow(double complex a) {                               \
    return (Z){(T)creal(a), (T)cimag(a)};                                       \
  }                                                                             \
  REF_FN T ref_##cls##_real(Z a) {                                              \
    return a.re;                                                                \
  }                                                                             \
  REF_FN T ref_##cls##_imag(Z a) {                                              \
    return a.im;                                                                \
  }                                                                             \
  REF_FN Z ref_##cls##_conj(Z a) {                                              \
    return (Z){a.re, -a.im};                                                    \
  }                                                                             \
  REF_FN Z ref_##cls##_neg(Z a) {                                               \
    return (Z){-a.re, -a.im};                                                   \
  }                                                                             \
  REF_FN Z ref_##cls##_add(Z a, Z b) {                                          \
    return (Z){a.re + b.re, a.im + b.im};                                       \
  }                                                                             \
  REF_FN Z ref_##cls##_sub(Z a, Z b) {                                          \
    return (Z){a.re - b.re, a.im - b.im};                                       \
  }                                                                             \
  REF_FN Z ref_##cls##_mul(Z a, Z b) {                                          \
    return (Z){(T)(a.re * b.re - a.im * b.im), (T)(a.re * b.im + a.im * b.re)}; \
  }                                                                             \
  REF_FN Z ref_##cls##_div(Z a, Z b) {                                          \
    if (b.re == 0 && b.im == 0) {                                               \
      return (Z){a.re / (T)fabs((double)b.re), a.im / (T)fabs((double)b.im)};   \
    }                                                                           \
    return ref_##cls##_narrow(ref_##cls##_wide(a) / ref_##cls##_wide(b));       \
  }                                                                             \
  REF_FN Z ref_##cls##_reciprocal(Z a) {                                        \
    return ref_##cls##_div((Z){1, 0}, a);                                       \
  }                                                                             \
  REF_FN uint8_t ref_##cls##_eq(Z a, Z b) {                                     \
    return a.re == b.re && a.im == b.im;                                        \
  }                                                                             \
  REF_FN T ref_##cls##_abs(Z a) {                                               \
    return (T)cabs(ref_##cls##_wide(a));                                        \
  }                                                                             \
  REF_FN T ref_##cls##_angle(Z a) {                                             \
    return (T)carg(ref_##cls##_wide(a));                                        \
  }                                                                             \
  REF_FN Z ref_##cls##_exp(Z a) {                                               \
    return ref_##cls##_narrow(cexp(ref_##cls##_wide(a)));                       \
  }                                                                             \
  REF_FN Z ref_##cls##_log(Z a) {                                               \
    return ref_##cls##_narrow(clog(ref_##cls##_wide(a)));                       \
  }                                                                             \
  REF_FN Z ref_##cls##_sqrt(Z a) {                                              \
    return ref_##cls##_narrow(csqrt(ref_##cls##_wide(a)));                      \
  }                                                                             \
  REF_FN Z ref_##cls##_pow(Z a, Z b) {                                          \
    if (b.re == 0 && b.im == 0) {                                               \
      return (Z){1, 0};                                                         \
    }                                                                           \
    if (a.re == 0 && a.im == 0 && b.re > 0) {                                   \
      return (Z){0, 0};                                                         \
    }                                                                           \
    return ref_##cls##_narrow(cpow(ref_##cls##_wide(a), ref_##cls##_wide(b)));  \
  }

REF_FN hr_c64 ref_c64_nan_to_num(hr_c64 a, hr_c64 b, hr_c64 c, hr_c64 d) {
  return (hr_c64){ref_f32_nan_to_num(a.re, b.re, c.re, d.re), ref_f32_nan_to_num(a.im, b.re, c.re, d.re)};
}
REF_FN hr_c128 ref_c128_nan_to_num(hr_c128 a, hr_c128 b, hr_c128 c, hr_c128 d) {
  return (hr_c128){ref_f64_nan_to_num(a.re, b.re, c.re, d.re), ref_f64_nan_to_num(a.im, b.re, c.re, d.re)};
}

#define REF_COMPLEX_1(cls, Z, name, expression) \
  REF_FN Z ref_##cls##_##name(Z a) {            \
    double complex z = ref_##cls##_wide(a);     \
    return ref_##cls##_narrow(expression);      \
  }
REF_FN double complex ref_complex_expm1(double complex z) {
  double re = expm1(creal(z)) * cos(cimag(z)) - 2 * pow(sin(cimag(z) / 2), 2);
  return isinf(creal(z)) && isfinite(cimag(z)) ? cexp(z) - 1 : __builtin_complex(re, exp(creal(z)) * sin(cimag(z)));
}
#define REF_COMPLEX_MORE(cls, Z)                                                                               \
  REF_COMPLEX_1(cls, Z, sin, csin(z))                                                                          \
  REF_COMPLEX_1(cls, Z, cos, ccos(z))                                                                          \
  REF_COMPLEX_1(cls, Z, tan, ctan(z))                                                                          \
  REF_COMPLEX_1(cls, Z, asin, casin(z))                                                                        \
  REF_COMPLEX_1(cls, Z, acos, cacos(z))                                                                        \
  REF_COMPLEX_1(cls, Z, atan, catan(z))                                                                        \
  REF_COMPLEX_1(cls, Z, sinh, csinh(z))                                                                        \
  REF_COMPLEX_1(cls, Z, cosh, ccosh(z))                                                                        \
  REF_COMPLEX_1(cls, Z, tanh, ctanh(z))                                                                        \
  REF_COMPLEX_1(cls, Z, asinh, casinh(z))                                                                      \
  REF_COMPLEX_1(cls, Z, acosh, cacosh(z))                                                                      \
  REF_COMPLEX_1(cls, Z, atanh, catanh(z))                                                                      \
  REF_COMPLEX_1(cls, Z, sigmoid, 1 / (1 + cexp(-z)))                                                           \
  REF_COMPLEX_1(cls, Z, expm1, ref_complex_expm1(z))                                                           \
  REF_COMPLEX_1(cls, Z, log1p,                                                                                 \
                __builtin_complex(cabs(z) < 0.5 ? 0.5 * log1p(creal(z) * (2 + creal(z)) + cimag(z) * cimag(z)) \
                                                : creal(clog(1 + z)),                                          \
                                  atan2(cimag(z), 1 + creal(z))))                                              \
  REF_FN Z ref_##cls##_polar(Z a, Z b) {                                                                       \
    double size = (double)a.re, angle = (double)b.re;                                                          \
    return ref_##cls##_narrow(__builtin_complex(size * cos(angle), size * sin(angle)));                        \
  }                                                                                                            \
  REF_FN Z ref_##cls##_log_scaled(Z a, double factor) {                                                        \
    return ref_##cls##_narrow(clog(ref_##cls##_wide(a)) * factor);                                             \
  }                                                                                                            \
  REF_FN Z ref_##cls##_exp_scaled(Z a, double factor) {                                                        \
    return ref_##cls##_narrow(cexp(ref_##cls##_wide(a) * factor));                                             \
  }                                                                                                            \
  REF_FN Z ref_##cls##_special_sinc(Z a) {                                                                     \
    return hr_##cls##_special_sinc(a);                                                                         \
  }                                                                                                            \
  REF_FN Z ref_##cls##_special_logaddexp(Z a, Z b) {                                                           \
    return hr_##cls##_special_logaddexp(a, b);                                                                 \
  }

REF_COMPLEX(c64, hr_c64, float)
REF_COMPLEX(c128, hr_c128, double)
REF_COMPLEX_MORE(c64, hr_c64)
REF_COMPLEX_MORE(c128, hr_c128)

#endif
