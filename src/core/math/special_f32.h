/* special_f32.h: special functions of f32 without branches and calls, so that loops of them are vectorised; the others
 * are called (special.h). They compute in f64 to some parts in 1e10 and round once. Limits, signs at the ends and NaN
 * results are those of special.h.
 *
 * Oscillating functions have an error of 1e-10 of their amplitude.
 *
 * Sources: for the inverse of erf the variable is Giles' (2012), w = -log((1 - x)(1 + x)), and its root; recurrences,
 * reflections and expansions are those of the DLMF (5.5, 5.11, 7.12, 9.7, 10.17, 10.31, 10.40). The polynomials are our
 * own fits.
 */
#ifndef HEADRACE_CORE_SPECIAL_F32_H_
#define HEADRACE_CORE_SPECIAL_F32_H_

#include "core/math/vmath.h"

/* ---- the inverse of erf ---- */

/* erfinv(x) / x for w in [0, 6.25], u = w / 3.125 - 1. */
HR_VMATH_FN double hr__d_erfinv_centre(double u) {
  double p = 0x1.ded8de94c428dp-21;
  p = hr__f64_fma(p, u, 0x1.d7d87b5ab38f6p-19);
  p = hr__f64_fma(p, u, -0x1.d120aa05cb655p-17);
  p = hr__f64_fma(p, u, -0x1.4c26b437d87a1p-17);
  p = hr__f64_fma(p, u, 0x1.920b95a5af435p-14);
  p = hr__f64_fma(p, u, -0x1.fa10bf85901e6p-14);
  p = hr__f64_fma(p, u, -0x1.16ac24ce85f8fp-12);
  p = hr__f64_fma(p, u, 0x1.437ac92465815p-10);
  p = hr__f64_fma(p, u, -0x1.4d41e10043be9p-10);
  p = hr__f64_fma(p, u, -0x1.0f29b611687fcp-8);
  p = hr__f64_fma(p, u, 0x1.23c56b6d05c37p-6);
  p = hr__f64_fma(p, u, -0x1.7259cf6b4eb31p-6);
  p = hr__f64_fma(p, u, -0x1.e2b1926198c2dp-5);
  p = hr__f64_fma(p, u, 0x1.8040ca9b200d8p-1);
  return hr__f64_fma(p, u, 0x1.a755e7c974599p0);
}
/* The same for the root of w in [2.5, 4.15], u = sqrt(w) - 3.3. */
HR_VMATH_FN double hr__d_erfinv_tail(double u) {
  double p = 0x1.cf0cf220ff80ap-18;
  p = hr__f64_fma(p, u, -0x1.2b6e856aaf545p-15);
  p = hr__f64_fma(p, u, 0x1.b49b9718fbe8fp-15);
  p = hr__f64_fma(p, u, 0x1.7f565188ae6bcp-15);
  p = hr__f64_fma(p, u, -0x1.66f8fbdd79b39p-12);
  p = hr__f64_fma(p, u, 0x1.b4a7bbcd84e58p-11);
  p = hr__f64_fma(p, u, -0x1.744c292e3d778p-10);
  p = hr__f64_fma(p, u, 0x1.13b06d33060cfp-9);
  p = hr__f64_fma(p, u, -0x1.af9a5d2f552bep-9);
  p = hr__f64_fma(p, u, 0x1.3d6e0bd324daap-8);
  p = hr__f64_fma(p, u, 0x1.017a15cad4757p0);
  return hr__f64_fma(p, u, 0x1.912c348094cfdp1);
}
/* The same for the root of w in [4.05, 10.3], u = sqrt(w) - 7.2. */
HR_VMATH_FN double hr__d_erfinv_far(double u) {
  double p = -0x1.9bd48b191ce8p-39;
  p = hr__f64_fma(p, u, 0x1.fb452e053fa4ep-38);
  p = hr__f64_fma(p, u, 0x1.9fdf8e73fbb83p-35);
  p = hr__f64_fma(p, u, 0x1.2ea8c4f5906acp-34);
  p = hr__f64_fma(p, u, -0x1.da95a36a7e42ap-30);
  p = hr__f64_fma(p, u, 0x1.ea7dcf237e84ep-28);
  p = hr__f64_fma(p, u, -0x1.4576397c39c3p-25);
  p = hr__f64_fma(p, u, 0x1.07ca432b5b0c5p-22);
  p = hr__f64_fma(p, u, -0x1.5b66cd9075ed5p-20);
  p = hr__f64_fma(p, u, 0x1.358e8d72218b8p-18);
  p = hr__f64_fma(p, u, 0x1.61a61b0c52928p-17);
  p = hr__f64_fma(p, u, -0x1.0a1ad7cb42a36p-11);
  p = hr__f64_fma(p, u, 0x1.0225f1dbe0aabp0);
  return hr__f64_fma(p, u, 0x1.c486a62c1dd82p2);
}
HR_VMATH_FN float hr_f32_special_erfinv(float x) {
  double d = (double)x, w = -hr__d_log((1.0 - d) * (1.0 + d));
  double centre = hr__d_erfinv_centre(hr__f64_fma(w, 0.32, -1.0)), tail = hr__d_erfinv_tail(__builtin_sqrt(w) - 3.3);
  float y = (float)(d * (w <= 6.25 ? centre : tail));
  return hr_f32_abs(x) == 1.0f ? hr__f32_copysign(HR__F32_INFINITY, x) : y;
}
/* sqrt(2) * erfinv(2 p - 1), where (1 - x)(1 + x) is 4 p (1 - p). */
HR_VMATH_FN float hr_f32_special_ndtri(float p) {
  double d = (double)p, w = -hr__d_log(4.0 * d * (1.0 - d)), root = __builtin_sqrt(w);
  double centre = hr__d_erfinv_centre(hr__f64_fma(w, 0.32, -1.0));
  double tail = hr__d_erfinv_tail(root - 3.3), far = hr__d_erfinv_far(root - 7.2);
  double quotient = w <= 6.25 ? centre : (w <= 16.8 ? tail : far);
  float y = (float)(0x1.6a09e667f3bcdp0 * hr__f64_fma(2.0, d, -1.0) * quotient);
  return p == 0.0f ? -HR__F32_INFINITY : (p == 1.0f ? HR__F32_INFINITY : y);
}

/* ---- the complement of erf, scaled ---- */

/* exp(a^2) erfc(a) for a >= 0; DLMF 7.12.1 above 10. */
HR_VMATH_FN double hr__d_erfcx(double a) {
  double near = hr__d_erfc_kernel(a > 10.0 ? 10.0 : a), inverse = 1.0 / a, z = 0.5 * inverse * inverse;
  double series = 10395.0;
  series = hr__f64_fma(series, z, -945.0);
  series = hr__f64_fma(series, z, 105.0);
  series = hr__f64_fma(series, z, -15.0);
  series = hr__f64_fma(series, z, 3.0);
  series = hr__f64_fma(series, z, -1.0);
  series = hr__f64_fma(series, z, 1.0);
  return a > 10.0 ? 0x1.20dd750429b6dp-1 * inverse * series : near;
}
HR_VMATH_FN float hr_f32_special_erfcx(float x) {
  double d = (double)x, right = hr__d_erfcx(hr_f64_abs(d)), square = d * d;
  double left = hr__f64_fma(2.0, hr__d_exp(square > 700.0 ? 700.0 : square), -right);
  return (float)(d < 0.0 ? left : right);
}
/* log(erfcx(-t) / 2) - t^2 for t = x / sqrt(2) < 0, log1p(-erfc(t) / 2) above. */
HR_VMATH_FN float hr_f32_special_log_ndtr(float x) {
  double d = (double)x, square = 0.5 * d * d, half = 0.5 * hr__d_erfcx(0x1.6a09e667f3bcdp-1 * hr_f64_abs(d));
  double above = half * hr__d_exp_negative(-square); /* the chance of more than |x| */
  double logarithm = hr__d_log(d < 0.0 ? half : 1.0 - above);
  double small = -above * hr__f64_fma(above, hr__f64_fma(above, 1.0 / 3, 0.5), 1.0);
  return (float)(d < 0.0 ? logarithm - square : (above < 0x1p-12 ? small : logarithm));
}

/* ---- the gamma function ---- */

/* Sine and cosine of pi * t for |t| <= 1/2. */
HR_VMATH_FN double hr__d_sin_pi(double t) {
  double size = hr_f64_abs(t), rest = 0.5 - size;
  double y = size <= 0.25 ? hr__d_sin_kernel(0x1.921fb54442d18p1 * size) : hr__d_cos_kernel(0x1.921fb54442d18p1 * rest);
  return t < 0.0 ? -y : y;
}
HR_VMATH_FN double hr__d_cos_pi(double t) {
  double size = hr_f64_abs(t), rest = 0.5 - size;
  return size <= 0.25 ? hr__d_cos_kernel(0x1.921fb54442d18p1 * size) : hr__d_sin_kernel(0x1.921fb54442d18p1 * rest);
}

/* lgamma(y) / ((y - 1)(y - 2)) for y in [1, 2.5], u = y - 1.75. */
HR_VMATH_FN double hr__d_lgamma_kernel(double u) {
  double p = 0x1.02f0a5b6b10c2p-14;
  p = hr__f64_fma(p, u, 0x1.f5357bb7f0e77p-17);
  p = hr__f64_fma(p, u, -0x1.6341812ba54b4p-13);
  p = hr__f64_fma(p, u, 0x1.8f4a1a139e234p-15);
  p = hr__f64_fma(p, u, 0x1.7307d34c156a8p-15);
  p = hr__f64_fma(p, u, 0x1.259e9aaf9ebe7p-13);
  p = hr__f64_fma(p, u, -0x1.5ec29487c96fep-12);
  p = hr__f64_fma(p, u, 0x1.1ff494e9ba1cep-11);
  p = hr__f64_fma(p, u, -0x1.130c111ce98e6p-10);
  p = hr__f64_fma(p, u, 0x1.1286b4c1fa68cp-9);
  p = hr__f64_fma(p, u, -0x1.150d13d9a215bp-8);
  p = hr__f64_fma(p, u, 0x1.1f969815fa4d1p-7);
  p = hr__f64_fma(p, u, -0x1.382dd4421ca65p-6);
  p = hr__f64_fma(p, u, 0x1.6cb621d8eddf8p-5);
  p = hr__f64_fma(p, u, -0x1.e96586761f21bp-4);
  return hr__f64_fma(p, u, 0x1.ccf151e14c4fdp-2);
}
/* lgamma of a >= 0: one step up below 1.5, up to six down below 8.5, Stirling's series above. */
HR_VMATH_FN double hr__d_lgamma(double a) {
  int is_small = a < 1.5, is_large = a >= 8.5;
  double y = is_small ? a + 1.0 : a, product = 1.0;
  for (int step = 0; step < 6; ++step) {
    double below = y - 1.0;
    product *= y > 2.5 ? below : 1.0;
    y = y > 2.5 ? below : y;
  }
  double logarithm = hr__d_log(is_small | is_large ? a : product);
  double rest = (y - 1.0) * (y - 2.0) * hr__d_lgamma_kernel(y - 1.75);
  double inverse = 1.0 / a, z = inverse * inverse, series = -691.0 / 360360;
  series = hr__f64_fma(series, z, 1.0 / 1188);
  series = hr__f64_fma(series, z, -1.0 / 1680);
  series = hr__f64_fma(series, z, 1.0 / 1260);
  series = hr__f64_fma(series, z, -1.0 / 360);
  series = hr__f64_fma(series, z, 1.0 / 12);
  double large = (a - 0.5) * logarithm - a + hr__f64_fma(series, inverse, 0x1.d67f1c864beb5p-1);
  return is_large ? large : rest + (is_small ? -logarithm : logarithm);
}
HR_VMATH_FN float hr_f32_special_lgamma(float x) {
  double d = (double)x, above = hr__d_lgamma(d < 0.0 ? 1.0 - d : d);
  double sine = hr_f64_abs(hr__d_sin_pi(d - __builtin_rint(d)));
  double reflected = 0x1.250d048e7a1bdp0 - hr__d_log(sine) - above; /* log(pi) */
  float y = (float)(d < 0.0 ? reflected : above);
  return hr_f32_abs(x) == HR__F32_INFINITY ? HR__F32_INFINITY : y;
}
/* Up to eight steps up, whose reciprocals add up to one quotient. */
HR_VMATH_FN float hr_f32_special_digamma(float x) {
  double d = (double)x, y = d < 0.0 ? 1.0 - d : d, sum = 0.0, product = 1.0;
  for (int step = 0; step < 8; ++step) {
    double more = hr__f64_fma(sum, y, product);
    sum = y < 8.0 ? more : sum;
    product *= y < 8.0 ? y : 1.0;
    y = y < 8.0 ? y + 1.0 : y;
  }
  double inverse = 1.0 / y, z = inverse * inverse, series = -691.0 / 32760;
  series = hr__f64_fma(series, z, 1.0 / 132);
  series = hr__f64_fma(series, z, -1.0 / 240);
  series = hr__f64_fma(series, z, 1.0 / 252);
  series = hr__f64_fma(series, z, -1.0 / 120);
  series = hr__f64_fma(series, z, 1.0 / 12);
  double above = hr__d_log(y) - sum / product - hr__f64_fma(series, z, 0.5 * inverse);
  double t = d - __builtin_rint(d), reflected = above - 0x1.921fb54442d18p1 * hr__d_cos_pi(t) / hr__d_sin_pi(t);
  return (float)(d < 0.0 ? (t == 0.0 ? HR__F64_NAN : reflected) : above);
}
/* Steps as of digamma, of reciprocals of squares. Next to its poles the reflection uses the sine of the rounded pi * x,
 * as in special.h: there the rounding error is multiplied by a cosine of 1 or -1. */
HR_VMATH_FN float hr_f32_special_trigamma(float x) {
  double d = (double)x, y = d < 0.0 ? 1.0 - d : d, sum = 0.0, product = 1.0;
  for (int step = 0; step < 8; ++step) {
    double square = y * y, more = hr__f64_fma(sum, square, product);
    sum = y < 8.0 ? more : sum;
    product *= y < 8.0 ? square : 1.0;
    y = y < 8.0 ? y + 1.0 : y;
  }
  double inverse = 1.0 / y, z = inverse * inverse, series = 7.0 / 6;
  series = hr__f64_fma(series, z, -691.0 / 2730);
  series = hr__f64_fma(series, z, 5.0 / 66);
  series = hr__f64_fma(series, z, -1.0 / 30);
  series = hr__f64_fma(series, z, 1.0 / 42);
  series = hr__f64_fma(series, z, -1.0 / 30);
  series = hr__f64_fma(series, z, 1.0 / 6);
  double above = sum / product + inverse * hr__f64_fma(series, z, hr__f64_fma(0.5, inverse, 1.0));
  double angle = 0x1.921fb54442d18p1 * d, lost = hr__f64_fma(0x1.921fb54442d18p1, d, -angle);
  double rest = -hr__f64_fma(0x1.1a62633145c07p-53, d, lost);
  double sine = hr__d_sin_pi(d - __builtin_rint(d));
  sine = hr_f64_abs(sine) < 0x1p-20 ? hr_f64_abs(sine + rest) : sine;
  sine = sine > 1.0 ? 1.0 : sine;
  double reflected = 0x1.3bd3cc9be45dep3 / (sine * sine) - above; /* pi squared */
  return (float)(d < 0.0 ? reflected : above);
}

/* ---- modified Bessel functions ---- */

/* i0(x) for |x| <= 8, u = x^2 / 32 - 1. */
HR_VMATH_FN double hr__d_i0_low(double u) {
  double p = 0x1.440a830a02885p-17;
  p = hr__f64_fma(p, u, 0x1.5d2326bd09c99p-13);
  p = hr__f64_fma(p, u, 0x1.21b45d9571f4cp-9);
  p = hr__f64_fma(p, u, 0x1.8cd15176c5abdp-6);
  p = hr__f64_fma(p, u, 0x1.b5885262cbbedp-3);
  p = hr__f64_fma(p, u, 0x1.7a643e07d8a04p0);
  p = hr__f64_fma(p, u, 0x1.f179494f1d52bp2);
  p = hr__f64_fma(p, u, 0x1.dd563de3c326p4);
  p = hr__f64_fma(p, u, 0x1.3c6611ef8b1a5p6);
  p = hr__f64_fma(p, u, 0x1.0b7995af7a514p7);
  p = hr__f64_fma(p, u, 0x1.f8c6232806a57p6);
  return hr__f64_fma(p, u, 0x1.89ab1e7a07f0ap5);
}
/* exp(-x) * sqrt(x) * i0(x) for x >= 8, u = 16 / x - 1. */
HR_VMATH_FN double hr__d_i0_high(double u) {
  double p = 0x1.c0ffc56e9825ap-36;
  p = hr__f64_fma(p, u, 0x1.113ccb6d6e15bp-25);
  p = hr__f64_fma(p, u, 0x1.d2a9107781bb9p-24);
  p = hr__f64_fma(p, u, 0x1.49a00b06d55cfp-22);
  p = hr__f64_fma(p, u, 0x1.8c3df999e9571p-20);
  p = hr__f64_fma(p, u, 0x1.75cbd54d50a01p-17);
  p = hr__f64_fma(p, u, 0x1.1dab08e9b08p-13);
  p = hr__f64_fma(p, u, 0x1.b8796bbf42b5ap-9);
  return hr__f64_fma(p, u, 0x1.9bd428acb2385p-2);
}
/* The same for i1(x) / x and i1. */
HR_VMATH_FN double hr__d_i1_low(double u) {
  double p = 0x1.a3f18e9d596bep-22;
  p = hr__f64_fma(p, u, 0x1.e0105840ad0b6p-18);
  p = hr__f64_fma(p, u, 0x1.b194740a1fc7fp-14);
  p = hr__f64_fma(p, u, 0x1.45a43f53c29c7p-10);
  p = hr__f64_fma(p, u, 0x1.8cd3dd72b4efp-7);
  p = hr__f64_fma(p, u, 0x1.7ed809dde6667p-4);
  p = hr__f64_fma(p, u, 0x1.1bcb2f110e1afp-1);
  p = hr__f64_fma(p, u, 0x1.36ebcc3c48b83p1);
  p = hr__f64_fma(p, u, 0x1.dd563dc812f2fp2);
  p = hr__f64_fma(p, u, 0x1.da991aef8d996p3);
  p = hr__f64_fma(p, u, 0x1.0b7995b00e97p4);
  return hr__f64_fma(p, u, 0x1.f8c62327dbe8ap2);
}
HR_VMATH_FN double hr__d_i1_high(double u) {
  double p = -0x1.b6b7287775fa1p-31;
  p = hr__f64_fma(p, u, -0x1.3488a65c70328p-25);
  p = hr__f64_fma(p, u, -0x1.04495e517909ap-23);
  p = hr__f64_fma(p, u, -0x1.808cb5ff32759p-22);
  p = hr__f64_fma(p, u, -0x1.ea5327f7a1c21p-20);
  p = hr__f64_fma(p, u, -0x1.f881633c5161ep-17);
  p = hr__f64_fma(p, u, -0x1.cbc5f1266a3abp-13);
  p = hr__f64_fma(p, u, -0x1.3f79621d6aafbp-7);
  return hr__f64_fma(p, u, 0x1.8ebe783b01c1cp-2);
}
/* exp(-scaled * size) * i0(size); i0 overflows f32 before 92. */
HR_VMATH_FN double hr__d_i0(double size, int scaled) {
  double near = size > 8.0 ? 8.0 : size, most = size > 200.0 ? 200.0 : size, a = scaled ? size : most;
  double low = hr__d_i0_low(hr__f64_fma(near, near * 0x1p-5, -1.0)),
         high = hr__d_i0_high(16.0 / a - 1.0) / __builtin_sqrt(a);
  double e = hr__d_exp(scaled ? -near : most);
  return size > 8.0 ? (scaled ? high : high * e) : (scaled ? low * e : low);
}
HR_VMATH_FN double hr__d_i1(double size, int scaled) {
  double near = size > 8.0 ? 8.0 : size, most = size > 200.0 ? 200.0 : size, a = scaled ? size : most;
  double low = near * hr__d_i1_low(hr__f64_fma(near, near * 0x1p-5, -1.0));
  double high = hr__d_i1_high(16.0 / a - 1.0) / __builtin_sqrt(a);
  double e = hr__d_exp(scaled ? -near : most);
  return size > 8.0 ? (scaled ? high : high * e) : (scaled ? low * e : low);
}
HR_VMATH_FN float hr_f32_special_i0(float x) {
  return (float)hr__d_i0((double)hr_f32_abs(x), 0);
}
HR_VMATH_FN float hr_f32_special_i0e(float x) {
  return (float)hr__d_i0((double)hr_f32_abs(x), 1);
}
HR_VMATH_FN float hr_f32_special_i1(float x) {
  return hr__f32_copysign((float)hr__d_i1((double)hr_f32_abs(x), 0), x);
}
HR_VMATH_FN float hr_f32_special_i1e(float x) {
  return hr__f32_copysign((float)hr__d_i1((double)hr_f32_abs(x), 1), x);
}
/* k0(x) + log(x / 2) i0(x) for x in [0, 2], u = x^2 / 2 - 1. */
HR_VMATH_FN double hr__d_k0_low(double u) {
  double p = 0x1.6c248786f3a05p-31;
  p = hr__f64_fma(p, u, 0x1.05c1367d85d75p-24);
  p = hr__f64_fma(p, u, 0x1.1017e4802c8d9p-18);
  p = hr__f64_fma(p, u, 0x1.7f5efbae9840ep-13);
  p = hr__f64_fma(p, u, 0x1.4b2ddc22ebe58p-8);
  p = hr__f64_fma(p, u, 0x1.25ffa6807f8adp-4);
  p = hr__f64_fma(p, u, 0x1.5cab54688327fp-2);
  return hr__f64_fma(p, u, -0x1.36e85d283d069p-2);
}
/* (k1(x) - log(x / 2) i1(x)) x for the same. */
HR_VMATH_FN double hr__d_k1_low(double u) {
  double p = -0x1.774f2aba8a308p-34;
  p = hr__f64_fma(p, u, -0x1.3663bb83c62d7p-27);
  p = hr__f64_fma(p, u, -0x1.7c2a5c531773cp-21);
  p = hr__f64_fma(p, u, -0x1.46793fdfb079fp-15);
  p = hr__f64_fma(p, u, -0x1.6a96e3d821b0fp-10);
  p = hr__f64_fma(p, u, -0x1.c85d2154d119fp-6);
  p = hr__f64_fma(p, u, -0x1.f3619d57ef05dp-3);
  p = hr__f64_fma(p, u, -0x1.5436f914986c5p-2);
  return hr__f64_fma(p, u, 0x1.c52a4ac3be112p-1);
}
/* exp(x) sqrt(x) k0(x) for x >= 2, u = 4 / x - 1. */
HR_VMATH_FN double hr__d_k0_high(double u) {
  double p = -0x1.28b74cce61838p-26;
  p = hr__f64_fma(p, u, 0x1.4516bf8922d95p-25);
  p = hr__f64_fma(p, u, -0x1.b32d69a0499f9p-26);
  p = hr__f64_fma(p, u, 0x1.2b07df32c12e2p-24);
  p = hr__f64_fma(p, u, -0x1.2d6996472f246p-22);
  p = hr__f64_fma(p, u, 0x1.9bf1aacb31c85p-21);
  p = hr__f64_fma(p, u, -0x1.2583d0e477d21p-19);
  p = hr__f64_fma(p, u, 0x1.d54fb09405bbcp-18);
  p = hr__f64_fma(p, u, -0x1.9f0011b509f36p-16);
  p = hr__f64_fma(p, u, 0x1.a197f7d3737f4p-14);
  p = hr__f64_fma(p, u, -0x1.f71303519c3f4p-12);
  p = hr__f64_fma(p, u, 0x1.8d86f5713ec54p-9);
  p = hr__f64_fma(p, u, -0x1.fd1328183f658p-6);
  return hr__f64_fma(p, u, 0x1.37f5dd35fa31ap+0);
}
/* The same of k1. */
HR_VMATH_FN double hr__d_k1_high(double u) {
  double p = 0x1.521b8a67fb2f8p-26;
  p = hr__f64_fma(p, u, -0x1.7520f2e2d08aap-25);
  p = hr__f64_fma(p, u, 0x1.05357858dbc26p-25);
  p = hr__f64_fma(p, u, -0x1.69c2a06e3a4fcp-24);
  p = hr__f64_fma(p, u, 0x1.69159b0a6454ap-22);
  p = hr__f64_fma(p, u, -0x1.f5b54080fb97ap-21);
  p = hr__f64_fma(p, u, 0x1.6dc43d57cb8ccp-19);
  p = hr__f64_fma(p, u, -0x1.2c58f8e05cd31p-17);
  p = hr__f64_fma(p, u, 0x1.138573b1d669fp-15);
  p = hr__f64_fma(p, u, -0x1.24bedc0dfc394p-13);
  p = hr__f64_fma(p, u, 0x1.81bb37a9a2622p-11);
  p = hr__f64_fma(p, u, -0x1.6cd23a4f292c4p-8);
  p = hr__f64_fma(p, u, 0x1.a7520dfb49164p-4);
  return hr__f64_fma(p, u, 0x1.5cf785b49ee43p+0);
}
/* exp(scaled * x) * k_n(x): k overflows f32 or is 0 before exp(-700) matters. */
HR_VMATH_FN float hr__f32_bessel_k(int n, float x, int scaled) {
  double d = (double)x, near = d > 2.0 ? 2.0 : d, far = d > 2.0 ? d : 2.0;
  double z = hr__f64_fma(near, 0.5 * near, -1.0), square = hr__f64_fma(near, near * 0x1p-5, -1.0);
  double logarithm = hr__d_log(0.5 * near);
  double low = n == 0 ? hr__d_k0_low(z) - logarithm * hr__d_i0_low(square)
                      : hr__d_k1_low(z) / near + logarithm * near * hr__d_i1_low(square);
  double u = 4.0 / far - 1.0, high = (n == 0 ? hr__d_k0_high(u) : hr__d_k1_high(u)) / __builtin_sqrt(far);
  double e = hr__d_exp(scaled ? near : -(far > 700.0 ? 700.0 : far));
  double y = d > 2.0 ? (scaled ? high : high * e) : (scaled ? low * e : low);
  return x == 0.0f ? HR__F32_INFINITY : (float)y;
}
HR_VMATH_FN float hr_f32_special_modified_bessel_k0(float x) {
  return hr__f32_bessel_k(0, x, 0);
}
HR_VMATH_FN float hr_f32_special_modified_bessel_k1(float x) {
  return hr__f32_bessel_k(1, x, 0);
}
HR_VMATH_FN float hr_f32_special_scaled_modified_bessel_k0(float x) {
  return hr__f32_bessel_k(0, x, 1);
}
HR_VMATH_FN float hr_f32_special_scaled_modified_bessel_k1(float x) {
  return hr__f32_bessel_k(1, x, 1);
}

/* ---- Bessel functions ---- */

/* j0(x) for x in [0, 8], u = x^2 / 32 - 1. */
HR_VMATH_FN double hr__d_j0_low(double u) {
  double p = -0x1.1176af549f2fcp-27;
  p = hr__f64_fma(p, u, 0x1.593073637392fp-23);
  p = hr__f64_fma(p, u, -0x1.6cc318ad1f6c0p-19);
  p = hr__f64_fma(p, u, 0x1.42b91359003e9p-15);
  p = hr__f64_fma(p, u, -0x1.d117768058df5p-12);
  p = hr__f64_fma(p, u, 0x1.09f3494cffdbbp-8);
  p = hr__f64_fma(p, u, -0x1.d27f3cccd6f96p-6);
  p = hr__f64_fma(p, u, 0x1.2afc33841a6cep-3);
  p = hr__f64_fma(p, u, -0x1.03d2da0960890p-1);
  p = hr__f64_fma(p, u, 0x1.09d33c82ba5f8p+0);
  p = hr__f64_fma(p, u, -0x1.9dbdd0f2689a3p-1);
  p = hr__f64_fma(p, u, -0x1.4c042a76acbc2p-1);
  p = hr__f64_fma(p, u, 0x1.dc5071f1209e6p-1);
  return hr__f64_fma(p, u, 0x1.776fc5f84f9b6p-5);
}
/* j1(x) / x for the same. */
HR_VMATH_FN double hr__d_j1_low(double u) {
  double p = 0x1.bc8d4a8d7859ep-28;
  p = hr__f64_fma(p, u, -0x1.030cfd4e6d86fp-23);
  p = hr__f64_fma(p, u, 0x1.f58bd491f0e32p-20);
  p = hr__f64_fma(p, u, -0x1.93668cef2ff19p-16);
  p = hr__f64_fma(p, u, 0x1.059d33084f65fp-12);
  p = hr__f64_fma(p, u, -0x1.09f34abad5b30p-9);
  p = hr__f64_fma(p, u, 0x1.982f55321d0bcp-7);
  p = hr__f64_fma(p, u, -0x1.c07a4d3d43726p-5);
  p = hr__f64_fma(p, u, 0x1.44c7908bbb3d1p-3);
  p = hr__f64_fma(p, u, -0x1.09d33c82e6d3bp-2);
  p = hr__f64_fma(p, u, 0x1.364e5cb5ce5f2p-3);
  p = hr__f64_fma(p, u, 0x1.4c042a76b45aep-4);
  return hr__f64_fma(p, u, -0x1.dc5071f1209f4p-5);
}
/* y0(x) - 2 / pi log(x / 2) j0(x) for the same. */
HR_VMATH_FN double hr__d_y0_low(double u) {
  double p = -0x1.37dd7a8007b6ap-31;
  p = hr__f64_fma(p, u, 0x1.bdefd8967e836p-27);
  p = hr__f64_fma(p, u, -0x1.0dfa805e9c2b5p-22);
  p = hr__f64_fma(p, u, 0x1.149e485823a09p-18);
  p = hr__f64_fma(p, u, -0x1.d43ce72937c9ep-15);
  p = hr__f64_fma(p, u, 0x1.400b271692ed0p-11);
  p = hr__f64_fma(p, u, -0x1.571530a267cd6p-8);
  p = hr__f64_fma(p, u, 0x1.14e9baa050dd7p-5);
  p = hr__f64_fma(p, u, -0x1.3c7dc9b8c5902p-3);
  p = hr__f64_fma(p, u, 0x1.cb0102d938b62p-2);
  p = hr__f64_fma(p, u, -0x1.3d1a3c2cf3d4dp-1);
  p = hr__f64_fma(p, u, -0x1.b31e39bdfc5bbp-3);
  p = hr__f64_fma(p, u, 0x1.5c66ef4d2f662p+0);
  p = hr__f64_fma(p, u, -0x1.abf36a425970fp-2);
  return hr__f64_fma(p, u, -0x1.72b74bbdd8607p-2);
}
/* (y1(x) - 2 / pi log(x / 2) j1(x)) x for the same. */
HR_VMATH_FN double hr__d_y1_low(double u) {
  double p = -0x1.50ea4135d2be8p-31;
  p = hr__f64_fma(p, u, 0x1.026977a17aefap-26);
  p = hr__f64_fma(p, u, -0x1.51b148b7ce64cp-22);
  p = hr__f64_fma(p, u, 0x1.77a482930916ap-18);
  p = hr__f64_fma(p, u, -0x1.5bcb246402749p-14);
  p = hr__f64_fma(p, u, 0x1.06749aa966195p-10);
  p = hr__f64_fma(p, u, -0x1.3a37154d4babep-7);
  p = hr__f64_fma(p, u, 0x1.1f7ead1a2221ep-4);
  p = hr__f64_fma(p, u, -0x1.7c44075cc7176p-2);
  p = hr__f64_fma(p, u, 0x1.49cb8cbecb2b5p+0);
  p = hr__f64_fma(p, u, -0x1.2708c16792ccbp+1);
  p = hr__f64_fma(p, u, -0x1.82a2cd27988b7p-3);
  p = hr__f64_fma(p, u, 0x1.af9c930913434p+2);
  p = hr__f64_fma(p, u, -0x1.e0caf99abe020p+1);
  p = hr__f64_fma(p, u, -0x1.4ccfe6e15e4afp+2);
  return hr__f64_fma(p, u, 0x1.9d033fc66f154p-1);
}
/* The factor of the cosine in j0(x) sqrt(pi x / 2) for x >= 8, u = 128 / x^2 - 1. */
HR_VMATH_FN double hr__d_jy0_cosine(double u) {
  double p = -0x1.57f9251e0d324p-30;
  p = hr__f64_fma(p, u, 0x1.c0377fcfabc44p-27);
  p = hr__f64_fma(p, u, -0x1.b8caa1d32d3f2p-23);
  p = hr__f64_fma(p, u, 0x1.9bde6fb2285e9p-18);
  p = hr__f64_fma(p, u, -0x1.193600c92efcdp-11);
  return hr__f64_fma(p, u, 0x1.ffb8dd3290315p-1);
}
/* The factor of the sine in the same, times x. */
HR_VMATH_FN double hr__d_jy0_sine(double u) {
  double p = 0x1.4dabbfb8919eep-33;
  p = hr__f64_fma(p, u, -0x1.c339464cabc5dp-31);
  p = hr__f64_fma(p, u, 0x1.60f5164bf0476p-28);
  p = hr__f64_fma(p, u, -0x1.8533c612f2017p-25);
  p = hr__f64_fma(p, u, 0x1.3135f0219683cp-21);
  p = hr__f64_fma(p, u, -0x1.8c84473b61061p-17);
  p = hr__f64_fma(p, u, 0x1.1e9a61386f7e2p-11);
  return hr__f64_fma(p, u, -0x1.fdb5c0b2ef4e7p-4);
}
/* The factor of the cosine in j1(x) sqrt(pi x / 2) for x >= 8, u = 128 / x^2 - 1. */
HR_VMATH_FN double hr__d_jy1_cosine(double u) {
  double p = 0x1.81b45f14b0044p-30;
  p = hr__f64_fma(p, u, -0x1.0143a70aef469p-26);
  p = hr__f64_fma(p, u, 0x1.0771aac0be83ap-22);
  p = hr__f64_fma(p, u, -0x1.0b1463fa23f68p-17);
  p = hr__f64_fma(p, u, 0x1.d73b8eabbe1bep-11);
  return hr__f64_fma(p, u, 0x1.003b71602d475p+0);
}
/* The factor of the sine in the same, times x. */
HR_VMATH_FN double hr__d_jy1_sine(double u) {
  double p = 0x1.e9a93aa67de65p-31;
  p = hr__f64_fma(p, u, -0x1.9c2d41fd4286cp-28);
  p = hr__f64_fma(p, u, 0x1.b8ed8ac7a99f3p-25);
  p = hr__f64_fma(p, u, -0x1.640fa6a5d161fp-21);
  p = hr__f64_fma(p, u, 0x1.e8e0123088965p-17);
  p = hr__f64_fma(p, u, -0x1.938da13d0c9ffp-11);
  return hr__f64_fma(p, u, 0x1.7f323705062fbp-2);
}
/* Sine and cosine of r plus some quarter turns. */
HR_VMATH_FN double hr__d_turn(double r, uint64_t quarter, double *out_cosine) {
  double s = hr__d_sin_kernel(r), c = hr__d_cos_kernel(r);
  double sine = (quarter & 1) ? c : s, cosine = (quarter & 1) ? s : c;
  *out_cosine = ((quarter + 1) & 2) ? -cosine : cosine;
  return (quarter & 2) ? -sine : sine;
}
/* Sine and cosine of any angle. */
HR_VMATH_FN double hr__d_sin_cos(float angle, double *out_cosine) {
  uint64_t quarter;
  double r = hr__d_reduce_angle(angle, &quarter);
  return hr__d_turn(r, quarter, out_cosine);
}
/* j_n(x), or y_n(x), for x >= 8. */
HR_VMATH_FN double hr__d_bessel_high(int n, float x, int second) {
  double c, s = hr__d_sin_cos(x, &c), plus = c + s, minus = s - c;
  double inverse = 1.0 / (double)x, u = hr__f64_fma(128.0 * inverse, inverse, -1.0);
  double p = n == 0 ? hr__d_jy0_cosine(u) : hr__d_jy1_cosine(u);
  double q = (n == 0 ? hr__d_jy0_sine(u) : hr__d_jy1_sine(u)) * inverse;
  double cosine = n == 0 ? plus : minus, sine = n == 0 ? minus : -plus;
  double wave = second ? hr__f64_fma(p, sine, q * cosine) : hr__f64_fma(p, cosine, -(q * sine));
  return wave / __builtin_sqrt(0x1.921fb54442d18p1 * (double)x);
}
HR_VMATH_FN float hr_f32_special_bessel_j0(float x) {
  float a = hr_f32_abs(x);
  double near = a > 8.0f ? 8.0 : (double)a, low = hr__d_j0_low(hr__f64_fma(near, near * 0x1p-5, -1.0));
  double high = hr__d_bessel_high(0, a > 8.0f ? a : 8.0f, 0);
  return (float)(a > 8.0f ? high : low);
}
HR_VMATH_FN float hr_f32_special_bessel_j1(float x) {
  float a = hr_f32_abs(x);
  double near = a > 8.0f ? 8.0 : (double)a, low = near * hr__d_j1_low(hr__f64_fma(near, near * 0x1p-5, -1.0));
  double high = hr__d_bessel_high(1, a > 8.0f ? a : 8.0f, 0);
  float y = (float)(a > 8.0f ? high : low);
  return x < 0.0f ? -y : y;
}
HR_VMATH_FN float hr_f32_special_bessel_y0(float x) {
  double near = x > 8.0f ? 8.0 : (double)x, u = hr__f64_fma(near, near * 0x1p-5, -1.0);
  double low = hr__f64_fma(0x1.45f306dc9c883p-1 * hr__d_log(0.5 * near), hr__d_j0_low(u), hr__d_y0_low(u));
  double high = hr__d_bessel_high(0, x > 8.0f ? x : 8.0f, 1);
  return (float)(x > 8.0f ? high : low);
}
HR_VMATH_FN float hr_f32_special_bessel_y1(float x) {
  double near = x > 8.0f ? 8.0 : (double)x, u = hr__f64_fma(near, near * 0x1p-5, -1.0);
  double low = hr__d_y1_low(u) / near + 0x1.45f306dc9c883p-1 * hr__d_log(0.5 * near) * near * hr__d_j1_low(u);
  double high = hr__d_bessel_high(1, x > 8.0f ? x : 8.0f, 1);
  return x == 0.0f ? -HR__F32_INFINITY : (float)(x > 8.0f ? high : low);
}
HR_VMATH_FN float hr_f32_special_spherical_bessel_j0(float x) {
  double d = (double)x, z = d * d, c, quotient = hr__d_sin_cos(x, &c) / d;
  double series = 1.0 - z / 6.0 * (1.0 - z / 20.0 * (1.0 - z / 42.0 * (1.0 - z / 72.0)));
  float y = (float)(hr_f32_abs(x) < 0.25f ? series : quotient);
  return hr_f32_abs(x) == HR__F32_INFINITY ? 0.0f : y;
}

/* ---- Airy's function ---- */

/* Ai(x) for x in [-4, 2], u = (x + 1) / 3. */
HR_VMATH_FN double hr__d_airy_middle(double u) {
  double p = 0x1.46abc319e5d08p-14;
  p = hr__f64_fma(p, u, -0x1.93d55388f011bp-13);
  p = hr__f64_fma(p, u, -0x1.dd3f42905b731p-12);
  p = hr__f64_fma(p, u, 0x1.24a4b6ce0543bp-9);
  p = hr__f64_fma(p, u, -0x1.70167d0934ab7p-10);
  p = hr__f64_fma(p, u, -0x1.281bae304d8bep-7);
  p = hr__f64_fma(p, u, 0x1.8cfd891c10b4dp-6);
  p = hr__f64_fma(p, u, -0x1.5eed8ffe2e4e4p-8);
  p = hr__f64_fma(p, u, -0x1.78f0925e9c2a1p-4);
  p = hr__f64_fma(p, u, 0x1.76b59583b84e3p-3);
  p = hr__f64_fma(p, u, 0x1.3670d9a676a79p-6);
  p = hr__f64_fma(p, u, -0x1.39fa6c905219ep-1);
  p = hr__f64_fma(p, u, 0x1.b4a6ed0e363dep-1);
  p = hr__f64_fma(p, u, 0x1.81bd4563aa6eep-2);
  p = hr__f64_fma(p, u, -0x1.2fb936bfb22b5p+1);
  p = hr__f64_fma(p, u, 0x1.06a3dfb336260p+1);
  p = hr__f64_fma(p, u, 0x1.b040fa7ba4859p+0);
  p = hr__f64_fma(p, u, -0x1.16f39a3a4b4c3p+2);
  p = hr__f64_fma(p, u, 0x1.bd2ac9fbc86dap+0);
  p = hr__f64_fma(p, u, 0x1.3a55e6f6ca392p+1);
  p = hr__f64_fma(p, u, -0x1.347baa6554f65p+1);
  p = hr__f64_fma(p, u, -0x1.f369859c35d64p-6);
  return hr__f64_fma(p, u, 0x1.1235093d83da5p-1);
}
/* 2 sqrt(pi sqrt(x)) exp(zeta) Ai(x) for x >= 2 and zeta = 2/3 x^(3/2), u = 2 zeta(2) / zeta - 1. */
HR_VMATH_FN double hr__d_airy_right(double u) {
  double p = 0x1.75189936bdf1bp-26;
  p = hr__f64_fma(p, u, -0x1.9ef86dc847d38p-25);
  p = hr__f64_fma(p, u, 0x1.6087c1e0968cdp-25);
  p = hr__f64_fma(p, u, -0x1.e327de89e31d8p-24);
  p = hr__f64_fma(p, u, 0x1.b8f43397c717dp-22);
  p = hr__f64_fma(p, u, -0x1.3b242077ba292p-20);
  p = hr__f64_fma(p, u, 0x1.e11a98071d6f1p-19);
  p = hr__f64_fma(p, u, -0x1.9e4f91cf12d1fp-17);
  p = hr__f64_fma(p, u, 0x1.968b2522e3ad0p-15);
  p = hr__f64_fma(p, u, -0x1.ddd7b407379aep-13);
  p = hr__f64_fma(p, u, 0x1.72765826af523p-10);
  p = hr__f64_fma(p, u, -0x1.deda9394ef360p-7);
  return hr__f64_fma(p, u, 0x1.f7a4cf9aff946p-1);
}
/* The factor of the sine of zeta + pi / 4 in sqrt(pi sqrt(z)) Ai(-z) for z >= 4, u = 128 / z^3 - 1. */
HR_VMATH_FN double hr__d_airy_sine(double u) {
  double p = 0x1.fc3c2eaf89a98p-29;
  p = hr__f64_fma(p, u, -0x1.2c91334d0633ap-26);
  p = hr__f64_fma(p, u, 0x1.ae4821a5bd6b2p-24);
  p = hr__f64_fma(p, u, -0x1.e5ac992e52820p-21);
  p = hr__f64_fma(p, u, 0x1.de71a06b22604p-17);
  p = hr__f64_fma(p, u, -0x1.45946fc7c56b7p-11);
  return hr__f64_fma(p, u, 0x1.ffac9a04d8880p-1);
}
/* The factor of minus the cosine in the same, times zeta. */
HR_VMATH_FN double hr__d_airy_cosine(double u) {
  double p = 0x1.b4ea8acca1610p-30;
  p = hr__f64_fma(p, u, -0x1.50ee34ccf566dp-28);
  p = hr__f64_fma(p, u, 0x1.d209617eec2afp-27);
  p = hr__f64_fma(p, u, -0x1.fe196b3003bddp-25);
  p = hr__f64_fma(p, u, 0x1.5ae6815cbe8e3p-22);
  p = hr__f64_fma(p, u, -0x1.380d2af5baf10p-19);
  p = hr__f64_fma(p, u, 0x1.b464e81fe2513p-16);
  p = hr__f64_fma(p, u, -0x1.3e4fd528edff5p-11);
  return hr__f64_fma(p, u, 0x1.19d704fc5eb3ep-4);
}
/* Sine and cosine of any angle below 2^50. */
HR_VMATH_FN double hr__d_sin_cos_of_f64(double angle, double *out_cosine) {
  double t = hr__f64_fma(angle, 0x1.45f306dc9c883p-1, HR__F64_ROUNDER), n = t - HR__F64_ROUNDER;
  double r = hr__f64_fma(n, -0x1.1a62633145c07p-54, hr__f64_fma(n, -0x1.921fb54442d18p0, angle));
  return hr__d_turn(r, hr__f64_to_u64(t), out_cosine);
}
/* 0 if zeta is more than 2^50, as in f64; NaN for infinity. */
HR_VMATH_FN float hr_f32_special_airy_ai(float x) {
  double d = (double)x, below = d < -4.0 ? -d : 4.0, above = d < 2.0 ? 2.0 : (d > 40.0 ? 40.0 : d);
  double middle = d < -4.0 ? -4.0 : (d > 2.0 ? 2.0 : d), z = d < -4.0 ? below : above;
  double root = __builtin_sqrt(z), zeta = 2.0 / 3 * z * root, inverse = 1.0 / zeta;
  double size = 1.0 / __builtin_sqrt(0x1.921fb54442d18p1 * root);
  double right =
      0.5 * size * hr__d_airy_right(hr__f64_fma(0x1.e2b7dddfefa66p+1, inverse, -1.0)) * hr__d_exp_negative(-zeta);
  double cube = hr__f64_fma(128.0 * (4.0 / 9), inverse * inverse, -1.0), cosine;
  double sine = hr__d_sin_cos_of_f64(zeta + 0.25 * 0x1.921fb54442d18p1, &cosine);
  double left = size * (sine * hr__d_airy_sine(cube) - cosine * inverse * hr__d_airy_cosine(cube));
  double inner = hr__d_airy_middle((middle + 1.0) * (1.0 / 3));
  return (float)(d > 2.0 ? right : (d < -4.0 ? (zeta > 0x1p50 ? zeta - zeta : left) : inner));
}

#endif
