/* vmath_complex.h: vmath.h for complex numbers. c64 computes transcendentals in c128, and c128 calls the host's C99
 * functions. Devices have none: their versions are built from real functions (HR_VMATH_DEVICE), with C's results at
 * infinity, NaN and zeros.
 */
#ifndef HEADRACE_CORE_VMATH_COMPLEX_H_
#define HEADRACE_CORE_VMATH_COMPLEX_H_

#include "core/math/vmath.h"

/* Division scales by the larger part of the divisor (Smith 1962). */
#define HR__COMPLEX_FUNCTIONS(cls, real_cls, Z, T)                                                                \
  HR_VMATH_FN Z hr_##cls##_make(T re, T im) {                                                                     \
    Z z;                                                                                                          \
    z.re = re, z.im = im;                                                                                         \
    return z;                                                                                                     \
  }                                                                                                               \
  HR_VMATH_FN T hr_##cls##_real(Z a) {                                                                            \
    return a.re;                                                                                                  \
  }                                                                                                               \
  HR_VMATH_FN T hr_##cls##_imag(Z a) {                                                                            \
    return a.im;                                                                                                  \
  }                                                                                                               \
  HR_VMATH_FN Z hr_##cls##_conj(Z a) {                                                                            \
    return hr_##cls##_make(a.re, -a.im);                                                                          \
  }                                                                                                               \
  HR_VMATH_FN Z hr_##cls##_neg(Z a) {                                                                             \
    return hr_##cls##_make(-a.re, -a.im);                                                                         \
  }                                                                                                               \
  HR_VMATH_FN Z hr_##cls##_add(Z a, Z b) {                                                                        \
    return hr_##cls##_make(a.re + b.re, a.im + b.im);                                                             \
  }                                                                                                               \
  HR_VMATH_FN Z hr_##cls##_sub(Z a, Z b) {                                                                        \
    return hr_##cls##_make(a.re - b.re, a.im - b.im);                                                             \
  }                                                                                                               \
  HR_VMATH_FN Z hr_##cls##_mul(Z a, Z b) {                                                                        \
    T first = HR__ROUNDED(a.re * b.re), second = HR__ROUNDED(a.im * b.im);                                        \
    T third = HR__ROUNDED(a.re * b.im), fourth = HR__ROUNDED(a.im * b.re);                                        \
    return hr_##cls##_make(first - second, third + fourth);                                                       \
  }                                                                                                               \
  HR_VMATH_FN Z hr_##cls##_div(Z a, Z b) {                                                                        \
    T re = hr_##real_cls##_abs(b.re), im = hr_##real_cls##_abs(b.im);                                             \
    uint8_t swap = (uint8_t)(re < im);                                                                            \
    T large = swap ? b.im : b.re, small = swap ? b.re : b.im;                                                     \
    T ratio = small / large, scale = 1 / (large + HR__ROUNDED(small * ratio));                                    \
    T re_part = HR__ROUNDED(a.re * ratio), im_part = HR__ROUNDED(a.im * ratio);                                   \
    T x = swap ? re_part + a.im : a.re + im_part;                                                                 \
    T y = swap ? im_part - a.re : a.im - re_part;                                                                 \
    return (re == 0) & (im == 0) ? hr_##cls##_make(a.re / re, a.im / im) : hr_##cls##_make(x * scale, y * scale); \
  }                                                                                                               \
  HR_VMATH_FN Z hr_##cls##_reciprocal(Z a) {                                                                      \
    return hr_##cls##_div(hr_##cls##_make(1, 0), a);                                                              \
  }                                                                                                               \
  HR_VMATH_FN uint8_t hr_##cls##_eq(Z a, Z b) {                                                                   \
    return (uint8_t)((a.re == b.re) & (a.im == b.im));                                                            \
  }                                                                                                               \
  HR_VMATH_FN T hr_##cls##_abs(Z a) {                                                                             \
    return hr_##real_cls##_hypot(a.re, a.im);                                                                     \
  }                                                                                                               \
  HR_VMATH_FN T hr_##cls##_angle(Z a) {                                                                           \
    return hr_##real_cls##_atan2(a.im, a.re);                                                                     \
  }

HR__COMPLEX_FUNCTIONS(c64, f32, hr_c64, float)
HR__COMPLEX_FUNCTIONS(c128, f64, hr_c128, double)
#undef HR__COMPLEX_FUNCTIONS

#ifdef HR_VMATH_DEVICE /* defined if the device has no complex functions: from the real ones */
HR_VMATH_FN int hr__f64_is_infinite(double x) {
  return hr_f64_abs(x) == HR__F64_INFINITY;
}
HR_VMATH_FN int hr__f64_is_finite(double x) {
  return hr_f64_abs(x) < HR__F64_INFINITY;
}
HR_VMATH_FN hr_c128 hr_c128_exp(hr_c128 a) {
  int has_angle = hr__f64_is_finite(a.im); /* without one, 0 and infinity stay unchanged */
  double over = (a.re > 709) & (a.re < HR__F64_INFINITY) ? a.re - 709 : 0; /* a small cosine may keep it in range */
  double size = exp(a.re - over), re = size * cos(a.im), im = size * sin(a.im);
  re = over > 0 ? re * exp(over) : re;
  im = over > 0 ? im * exp(over) : im;
  im = a.im == 0 ? a.im : im;
  re = a.im == 0 ? exp(a.re) : re;
  re = (a.re == HR__F64_INFINITY) & !has_angle ? a.re : re;
  return (a.re == -HR__F64_INFINITY) & !has_angle ? hr_c128_make(0, hr_f64_copysign(0, a.im)) : hr_c128_make(re, im);
}
HR_VMATH_FN hr_c128 hr_c128_log(hr_c128 a) { /* near the unit circle from the size's square, less 1 */
  double size = hypot(a.re, a.im), re = hr_f64_abs(a.re), im = hr_f64_abs(a.im);
  double large = re < im ? im : re, small = re < im ? re : im;
  double square = HR__ROUNDED((large - 1) * (large + 1)) + HR__ROUNDED(small * small);
  return hr_c128_make((size > 0.5) & (size < 2) ? 0.5 * log1p(square) : log(size), atan2(a.im, a.re));
}
HR_VMATH_FN hr_c128 hr_c128_sqrt(hr_c128 a) {
  double size = hypot(a.re, a.im), large = __builtin_sqrt((hr_f64_abs(a.re) + size) * 0.5);
  double small = hr_f64_abs(a.im) / (2 * large), sign = hr_f64_signbit(a.im) ? -1 : 1;
  if ((a.re == 0) & (a.im == 0)) {
    return hr_c128_make(0, a.im);
  }
  if (hr__f64_is_infinite(a.im)) {
    return hr_c128_make(HR__F64_INFINITY, a.im);
  }
  return a.re >= 0 ? hr_c128_make(large, sign * small) : hr_c128_make(small, sign * large);
}
HR_VMATH_FN hr_c128 hr__c128_pow(hr_c128 a, hr_c128 b) {
  return hr_c128_exp(hr_c128_mul(b, hr_c128_log(a)));
}
HR_VMATH_FN hr_c128 hr__c128_turn(hr_c128 a) { /* i a */
  return hr_c128_make(-a.im, a.re);
}
HR_VMATH_FN hr_c128 hr__c128_turn_back(hr_c128 a) { /* -i a */
  return hr_c128_make(a.im, -a.re);
}
/* If the angle is not finite, a real part of 0 or infinity stays. */
HR_VMATH_FN hr_c128 hr_c128_sinh(hr_c128 a) {
  double re = sinh(a.re) * cos(a.im);
  if (!hr__f64_is_finite(a.im)) {
    re = hr__f64_is_infinite(a.re) ? HR__F64_INFINITY : a.re == 0 ? a.re : re;
  }
  return hr_c128_make(re, a.im == 0 ? a.im : cosh(a.re) * sin(a.im));
}
HR_VMATH_FN hr_c128 hr_c128_cosh(hr_c128 a) {
  int has_angle = hr__f64_is_finite(a.im);
  double re = hr__f64_is_infinite(a.re) & !has_angle ? HR__F64_INFINITY : cosh(a.re) * cos(a.im);
  double im = a.im != 0 ? sinh(a.re) * sin(a.im) : a.re < 0 ? -a.im : a.re > 0 ? a.im : a.re * a.im;
  im = (a.re != a.re) & (a.im == 0) ? a.im : im;
  return hr_c128_make(re, (a.re == 0) & !has_angle ? 0 : im);
}
HR_VMATH_FN hr_c128 hr_c128_tanh(hr_c128 a) {
  double t = tan(a.im), s = sinh(a.re), root = __builtin_sqrt(1 + s * s), beta = 1 + t * t;
  double denominator = 1 + beta * s * s;
  int is_large = hr_f64_abs(a.re) > 22;
  double re = is_large ? (a.re < 0 ? -1 : 1) : beta * root * s / denominator;
  double im = is_large ? 4 * sin(a.im) * cos(a.im) * exp(-2 * hr_f64_abs(a.re)) : t / denominator;
  if (!hr__f64_is_finite(a.im)) {
    double nan = a.im - a.im;
    return hr__f64_is_infinite(a.re) ? hr_c128_make(re, hr_f64_copysign(0, a.im))
                                     : hr_c128_make(a.re == 0 ? a.re : nan, nan);
  }
  return hr_c128_make(re, a.im == 0 ? a.im : im);
}
HR_VMATH_FN hr_c128 hr_c128_sin(hr_c128 a) {
  hr_c128 result = hr__c128_turn_back(hr_c128_sinh(hr__c128_turn(a)));
  return hr_c128_make(result.re, hr__f64_is_finite(a.re) | hr__f64_is_finite(a.im) ? result.im : hr_f64_abs(result.im));
}
HR_VMATH_FN hr_c128 hr_c128_cos(hr_c128 a) {
  return hr_c128_cosh(hr__c128_turn(a));
}
HR_VMATH_FN hr_c128 hr_c128_tan(hr_c128 a) {
  return hr__c128_turn_back(hr_c128_tanh(hr__c128_turn(a)));
}
#define HR__F64_PI 3.14159265358979323846
/* Infinite or NaN: as in C99's annex G. */
HR_VMATH_FN hr_c128 hr__c128_asinh_far(hr_c128 a) {
  double nan = a.re - a.re + (a.im - a.im); /* one of them is not finite */
  if (hr__f64_is_infinite(a.im)) {
    double angle = hr__f64_is_infinite(a.re) ? HR__F64_PI / 4 : HR__F64_PI / 2;
    return hr_c128_make(hr_f64_copysign(HR__F64_INFINITY, a.re), a.re == a.re ? hr_f64_copysign(angle, a.im) : nan);
  }
  int is_flat = hr__f64_is_infinite(a.re) ? a.im == a.im : a.im == 0;
  return hr_c128_make(hr__f64_is_finite(a.re) ? nan : a.re, is_flat ? hr_f64_copysign(0, a.im) : nan);
}
HR_VMATH_FN hr_c128 hr__c128_asin_far(hr_c128 a) {
  if ((a.re == 0) & (a.im != a.im)) {
    return a;
  }
  return hr__c128_turn_back(hr__c128_asinh_far(hr__c128_turn(a)));
}
HR_VMATH_FN int hr__c128_is_finite(hr_c128 a) {
  return hr__f64_is_finite(a.re) & hr__f64_is_finite(a.im);
}
/* Kahan, "Branch cuts for complex elementary functions". */
HR_VMATH_FN hr_c128 hr_c128_acos(hr_c128 a) {
  hr_c128 plus = hr_c128_sqrt(hr_c128_make(1 + a.re, a.im)), minus = hr_c128_sqrt(hr_c128_make(1 - a.re, -a.im));
  if (!hr__c128_is_finite(a)) {
    hr_c128 arc = hr__c128_asin_far(a);
    double re = HR__F64_PI / 2 - arc.re;
    return hr_c128_make(re == 0 ? 0 : re, -arc.im);
  }
  return hr_c128_make(2 * atan2(minus.re, plus.re), asinh(plus.re * minus.im - plus.im * minus.re));
}
HR_VMATH_FN hr_c128 hr_c128_asin(hr_c128 a) {
  hr_c128 plus = hr_c128_sqrt(hr_c128_make(1 + a.re, a.im)), minus = hr_c128_sqrt(hr_c128_make(1 - a.re, -a.im));
  if (!hr__c128_is_finite(a)) {
    return hr__c128_asin_far(a);
  }
  return hr_c128_make(atan2(a.re, plus.re * minus.re - plus.im * minus.im),
                      asinh(plus.im * minus.re - plus.re * minus.im));
}
HR_VMATH_FN hr_c128 hr_c128_acosh(hr_c128 a) {
  hr_c128 plus = hr_c128_sqrt(hr_c128_make(a.re + 1, a.im)), minus = hr_c128_sqrt(hr_c128_make(a.re - 1, a.im));
  if (!hr__c128_is_finite(a)) { /* i acos(a), with the sign that keeps the real part positive */
    hr_c128 arc = hr_c128_acos(a);
    return hr_c128_make(hr_f64_abs(arc.im), hr_f64_copysign(arc.re, a.im));
  }
  return hr_c128_make(asinh(plus.re * minus.re + plus.im * minus.im), 2 * atan2(minus.im, plus.re));
}
HR_VMATH_FN hr_c128 hr_c128_asinh(hr_c128 a) {
  return hr__c128_is_finite(a) ? hr__c128_turn_back(hr_c128_asin(hr__c128_turn(a))) : hr__c128_asinh_far(a);
}
HR_VMATH_FN hr_c128 hr_c128_atanh(hr_c128 a) {
  double x = hr_f64_abs(a.re), h = hypot(1 - x, a.im), angle = atan2(2 * a.im, (1 - x) * (1 + x) - a.im * a.im);
  double re = h > 1e150 ? x / h / h : h < 1e-150 ? 0.5 * (log(2.0) - log(h)) : 0.25 * log1p(4 * x / (h * h));
  if (hr__f64_is_infinite(a.im) | ((a.im == a.im) & hr__f64_is_infinite(a.re))) {
    return hr_c128_make(hr_f64_copysign(0, a.re), hr_f64_copysign(HR__F64_PI / 2, a.im));
  }
  return hr_c128_make(hr_f64_copysign(hr__f64_is_infinite(a.re) | (a.re == 0) ? 0 : re, a.re), 0.5 * angle);
}
HR_VMATH_FN hr_c128 hr_c128_atan(hr_c128 a) {
  return hr__c128_turn_back(hr_c128_atanh(hr__c128_turn(a)));
}
#undef HR__F64_PI
#else
/* The host's C99 functions, without <complex.h> and its macro `I`. */
HR_VMATH_FN _Complex double hr__c128_to_host(hr_c128 a) {
  return __builtin_complex(a.re, a.im);
}
HR_VMATH_FN hr_c128 hr__c128_from_host(_Complex double z) {
  return hr_c128_make(__real__ z, __imag__ z);
}
HR_VMATH_FN hr_c128 hr__c128_pow(hr_c128 a, hr_c128 b) {
  return hr__c128_from_host(__builtin_cpow(hr__c128_to_host(a), hr__c128_to_host(b)));
}
#define HR__C128_HOST(name)                                            \
  HR_VMATH_FN hr_c128 hr_c128_##name(hr_c128 a) {                      \
    return hr__c128_from_host(__builtin_c##name(hr__c128_to_host(a))); \
  }
HR__C128_HOST(exp)
HR__C128_HOST(log)
HR__C128_HOST(sqrt)
HR__C128_HOST(sin)
HR__C128_HOST(cos)
HR__C128_HOST(tan)
HR__C128_HOST(asin)
HR__C128_HOST(acos)
HR__C128_HOST(atan)
HR__C128_HOST(sinh)
HR__C128_HOST(cosh)
HR__C128_HOST(tanh)
HR__C128_HOST(asinh)
HR__C128_HOST(acosh)
HR__C128_HOST(atanh)
#undef HR__C128_HOST
#endif
/* exp(a) - 1 and log(1 + a) without cancellation near 0. */
HR_VMATH_FN hr_c128 hr_c128_expm1(hr_c128 a) {
  if ((hr_f64_abs(a.re) == HR__F64_INFINITY) & (hr_f64_abs(a.im) < HR__F64_INFINITY)) { /* not inf * 0 */
    return hr_c128_sub(hr_c128_exp(a), hr_c128_make(1, 0));
  }
  double half = sin(0.5 * a.im), re = expm1(a.re) * cos(a.im) - HR__ROUNDED(2 * half * half);
  return hr_c128_make(re, a.im == 0 ? a.im : exp(a.re) * sin(a.im));
}
HR_VMATH_FN hr_c128 hr_c128_log1p(hr_c128 a) {
  double size = hypot(1 + a.re, a.im), square = HR__ROUNDED(a.re * (2 + a.re)) + HR__ROUNDED(a.im * a.im);
  return hr_c128_make((size > 0.5) & (size < 2) ? 0.5 * log1p(square) : log(size), atan2(a.im, 1 + a.re));
}
HR_VMATH_FN hr_c128 hr_c128_sigmoid(hr_c128 a) {
  return hr_c128_reciprocal(hr_c128_add(hr_c128_make(1, 0), hr_c128_exp(hr_c128_neg(a))));
}
HR_VMATH_FN hr_c128 hr_c128_scaled(hr_c128 a, double factor) {
  return hr_c128_make(a.re * factor, a.im * factor);
}
HR_VMATH_FN hr_c128 hr_c128_polar(hr_c128 size, hr_c128 angle) {
  return hr_c128_make(size.re * cos(angle.re), size.re * sin(angle.re));
}
/* x^0 is 1 for every x; 0^y is 0 if the real part of y is positive. */
HR_VMATH_FN hr_c128 hr_c128_pow(hr_c128 a, hr_c128 b) {
  if ((b.re == 0) & (b.im == 0)) {
    return hr_c128_make(1, 0);
  }
  if ((a.re == 0) & (a.im == 0) & (b.re > 0)) {
    return hr_c128_make(0, 0);
  }
  return hr__c128_pow(a, b);
}

HR_VMATH_FN hr_c128 hr__c64_widen(hr_c64 a) {
  return hr_c128_make(a.re, a.im);
}
HR_VMATH_FN hr_c64 hr__c64_narrow(hr_c128 a) {
  return hr_c64_make((float)a.re, (float)a.im);
}
HR_VMATH_FN hr_c64 hr_c64_pow(hr_c64 a, hr_c64 b) {
  return hr__c64_narrow(hr_c128_pow(hr__c64_widen(a), hr__c64_widen(b)));
}
HR_VMATH_FN hr_c64 hr_c64_nan_to_num(hr_c64 a, hr_c64 b, hr_c64 c, hr_c64 d) {
  return hr_c64_make(hr_f32_nan_to_num(a.re, b.re, c.re, d.re), hr_f32_nan_to_num(a.im, b.re, c.re, d.re));
}
HR_VMATH_FN hr_c128 hr_c128_nan_to_num(hr_c128 a, hr_c128 b, hr_c128 c, hr_c128 d) {
  return hr_c128_make(hr_f64_nan_to_num(a.re, b.re, c.re, d.re), hr_f64_nan_to_num(a.im, b.re, c.re, d.re));
}
HR_VMATH_FN hr_c64 hr_c64_polar(hr_c64 size, hr_c64 angle) {
  return hr__c64_narrow(hr_c128_polar(hr__c64_widen(size), hr__c64_widen(angle)));
}
HR_VMATH_FN hr_c64 hr_c64_scaled(hr_c64 a, double factor) {
  return hr__c64_narrow(hr_c128_scaled(hr__c64_widen(a), factor));
}
HR_VMATH_FN hr_c64 hr_c64_log_scaled(hr_c64 a, double factor) {
  return hr__c64_narrow(hr_c128_scaled(hr_c128_log(hr__c64_widen(a)), factor));
}
HR_VMATH_FN hr_c128 hr_c128_log_scaled(hr_c128 a, double factor) {
  return hr_c128_scaled(hr_c128_log(a), factor);
}
HR_VMATH_FN hr_c64 hr_c64_exp_scaled(hr_c64 a, double factor) {
  return hr__c64_narrow(hr_c128_exp(hr_c128_scaled(hr__c64_widen(a), factor)));
}
HR_VMATH_FN hr_c128 hr_c128_exp_scaled(hr_c128 a, double factor) {
  return hr_c128_exp(hr_c128_scaled(a, factor));
}
#define HR__C64_NARROWED(name)                               \
  HR_VMATH_FN hr_c64 hr_c64_##name(hr_c64 a) {               \
    return hr__c64_narrow(hr_c128_##name(hr__c64_widen(a))); \
  }
HR__C64_NARROWED(exp)
HR__C64_NARROWED(log)
HR__C64_NARROWED(sqrt)
HR__C64_NARROWED(sin)
HR__C64_NARROWED(cos)
HR__C64_NARROWED(tan)
HR__C64_NARROWED(asin)
HR__C64_NARROWED(acos)
HR__C64_NARROWED(atan)
HR__C64_NARROWED(sinh)
HR__C64_NARROWED(cosh)
HR__C64_NARROWED(tanh)
HR__C64_NARROWED(asinh)
HR__C64_NARROWED(acosh)
HR__C64_NARROWED(atanh)
HR__C64_NARROWED(expm1)
HR__C64_NARROWED(log1p)
HR__C64_NARROWED(sigmoid)
#undef HR__C64_NARROWED

#endif
