/* special.h: the special functions of ops.def, F(special_...), one version for each real class.
 *
 * All of them compute in f64 and round once for f32. They are loops of plain C and of the host's libm (exp, log, erfc,
 * lgamma, ...), the same text in every tier, so that their bits agree. None is meant to be vectorised; special_f32.h
 * has vectorisable versions for f32. Limits, signs at the ends and NaN results follow PyTorch's CPU functions. Errors
 * are some units of 1e-15 relative to the larger of the value and the function's own scale (special_test.c compares
 * with 50 digits of mpmath).
 *
 * Sources: Abramowitz and Stegun, and the DLMF, by number below; Temme 1975 for K; Miller's backward recurrence for J.
 * The text is part of an emitted kernel only if a row needs it (emit_expr.c).
 */
#ifndef HEADRACE_CORE_SPECIAL_H_
#define HEADRACE_CORE_SPECIAL_H_

#include "core/math/special_f32.h"
#include "core/math/vmath_complex.h"

#ifndef HR_SPECIAL_FN /* they are long: called, not inlined */
#define HR_SPECIAL_FN static __attribute__((unused))
#endif

#define HR__PI 3.14159265358979323846264338327950288
#define HR__EULER 0.57721566490153286060651209008240243
#define HR__F64_EPSILON 0x1p-52

/* ---- gamma and its relatives ---- */

HR_SPECIAL_FN double hr_f64_special_lgamma(double x) {
  return lgamma(x);
}

/* DLMF 5.11.2 above 10, recurrence below, reflection (5.5.4) for negative numbers. */
HR_SPECIAL_FN double hr_f64_special_digamma(double x) {
  double result = 0;
  if (x == 0) {
    return -1 / x;
  }
  if (x < 0) {
    double whole = __builtin_trunc(x);
    if (x == whole) {
      return HR__F64_NAN;
    }
    result = -HR__PI / tan(HR__PI * (x - whole));
    x = 1 - x;
  }
  for (; x < 10; x += 1) {
    result -= 1 / x;
  }
  double z = 1 / (x * x);
  double series =
      z * (1.0 / 12 - z * (1.0 / 120 -
                           z * (1.0 / 252 - z * (1.0 / 240 - z * (1.0 / 132 - z * (691.0 / 32760 - z * (1.0 / 12)))))));
  return result + log(x) - 0.5 / x - series;
}

/* DLMF 5.15.8 above 10. */
HR_SPECIAL_FN double hr_f64_special_trigamma(double x) {
  double result = 0, sign = 1;
  if (x < 0.5) {
    double sine = sin(HR__PI * x);
    result = -(HR__PI * HR__PI) / (sine * sine);
    sign = -1;
    x = 1 - x;
  }
  for (; x < 10; x += 1) {
    result += 1 / (x * x);
  }
  double z = 1 / (x * x);
  double series =
      (1 + 0.5 / x +
       z * (1.0 / 6 -
            z * (1.0 / 30 - z * (1.0 / 42 - z * (1.0 / 30 - z * (5.0 / 66 - z * (691.0 / 2730 - z * (7.0 / 6)))))))) /
      x;
  return sign * (result + series);
}

/* a to the power -x for a > 0: products if x is a small integer, as in derivatives of digamma. */
HR_SPECIAL_FN double hr__f64_inverse_power(double a, double x) {
  if (!(x <= 16) || x != __builtin_floor(x)) {
    return pow(a, -x);
  }
  double power = a;
  for (double k = 1; k < x; k += 1) {
    power *= a;
  }
  return 1 / power;
}

/* Hurwitz's zeta function: a sum to a + n > 9, then Euler and Maclaurin (DLMF 25.11.28). */
HR_SPECIAL_FN double hr__f64_zeta(double x, double q) {
  const double terms[12] = {12.0,
                            -720.0,
                            30240.0,
                            -1209600.0,
                            47900160.0,
                            -1.8924375803183791606e9,
                            7.47242496e10,
                            -2.950130727918164224e12,
                            1.1646782814350067249e14,
                            -4.5979787224074726105e15,
                            1.8152105401943546773e17,
                            -7.1661652561756670113e18};
  double sum = hr__f64_inverse_power(q, x), a = q, b = 0;
  for (int i = 0; i < 9 || a <= 9; ++i) {
    a += 1;
    b = hr__f64_inverse_power(a, x);
    sum += b;
    if (hr_f64_abs(b) < HR__F64_EPSILON * hr_f64_abs(sum)) {
      return sum;
    }
  }
  sum += b * a / (x - 1) - 0.5 * b;
  double factor = 1, k = 0;
  for (int i = 0; i < 12; ++i, k += 2) {
    factor *= x + k;
    b /= a;
    double term = factor * b / terms[i];
    sum += term;
    if (hr_f64_abs(term) < HR__F64_EPSILON * hr_f64_abs(sum)) {
      break;
    }
    factor *= x + k + 1;
    b /= a;
  }
  return sum;
}

/* Below zero the terms of each sign are summed separately: q = f - m with 0 < f < 1. */
HR_SPECIAL_FN double hr_f64_special_zeta(double x, double q) {
  if (x == 1) {
    return HR__F64_INFINITY;
  }
  if (!(x > 1) || q != q) {
    return HR__F64_NAN;
  }
  if (q > 0) {
    return hr__f64_zeta(x, q);
  }
  double whole = __builtin_floor(q), f = q - whole, sign = fmod(x, 2) == 0 ? 1 : -1;
  if (f == 0) {
    return HR__F64_INFINITY;
  }
  if (x != __builtin_floor(x)) {
    return HR__F64_NAN;
  }
  return hr__f64_zeta(x, f) + sign * (hr__f64_zeta(x, 1 - f) - hr__f64_zeta(x, 1 - f - whole));
}

/* The n-th derivative of digamma (DLMF 25.11.12). */
HR_SPECIAL_FN double hr_f64_special_polygamma(double n, double x) {
  if (n == 0) {
    return hr_f64_special_digamma(x);
  }
  if (n == 1) {
    return hr_f64_special_trigamma(x);
  }
  double sign = fmod(n, 2) == 0 ? -1 : 1, factorial = 1;
  if (n <= 170 && n == __builtin_floor(n)) {
    for (double k = 2; k <= n; k += 1) {
      factorial *= k;
    }
  } else {
    factorial = exp(lgamma(n + 1));
  }
  return sign * factorial * hr_f64_special_zeta(n + 1, x);
}

#define HR__GAMMA_F64 1e-17
#define HR__GAMMA_F32 1e-11 /* if terms decrease slowly the remainder is hundreds of them */

/* The regularised incomplete gamma functions: a series (DLMF 8.11.4) up to x = a + 1, a continued fraction (8.9.2)
 * above. Both end when a term is below `least` of the sum; 1 minus a series needs all digits. */
HR_SPECIAL_FN double hr__f64_gamma_part(double a, double x, int upper, double least) {
  if (a > 1e7) { /* DLMF 8.12.3, two terms */
    double away = x / a - 1, square = 2 * (away - log1p(away)), eta = __builtin_sqrt(square < 0 ? 0 : square);
    eta = away < 0 ? -eta : eta;
    double rest = hr_f64_abs(away) < 1e-5 ? -1.0 / 3 : 1 / away - 1 / eta;
    double tail = exp(-0.5 * a * eta * eta) / __builtin_sqrt(2 * HR__PI * a) * rest;
    double root = eta * __builtin_sqrt(0.5 * a);
    return upper ? 0.5 * erfc(root) + tail : 0.5 * erfc(-root) - tail;
  }
  double scale = exp(a * log(x) - x - lgamma(a));
  if (x <= 1 || x <= a) {
    double term = 1 / a, sum = term, end = upper && a < 1 ? HR__GAMMA_F64 : least;
    for (double n = a + 1; hr_f64_abs(term) > hr_f64_abs(sum) * end; n += 1) {
      term *= x / n;
      sum += term;
    }
    return upper ? 1 - sum * scale : sum * scale;
  }
  /* Numerators and denominators by their recurrence: no division waits for the one before. */
  double b = x + 1 - a, p_before = 0, q_before = 1, p = 1, q = b, h = p / q;
  for (int i = 1; i < 100000; ++i) {
    double an = -i * (i - a);
    b += 2;
    double p_next = b * p + an * p_before, q_next = b * q + an * q_before;
    p_before = p, q_before = q, p = p_next, q = q_next;
    if (hr_f64_abs(q) > 0x1p500) {
      p_before *= 0x1p-500, q_before *= 0x1p-500, p *= 0x1p-500, q *= 0x1p-500;
    }
    double before = h;
    h = p / q;
    if (hr_f64_abs(h - before) < hr_f64_abs(h) * (least + 2 * HR__F64_EPSILON)) {
      break;
    }
  }
  return upper ? scale * h : 1 - scale * h;
}
HR_SPECIAL_FN double hr__f64_gamma_side(double a, double x, int upper, double least) {
  int a_infinite = a == HR__F64_INFINITY, x_infinite = x == HR__F64_INFINITY;
  if (!(a >= 0) || !(x >= 0) || (a_infinite && x_infinite) || (a == 0 && x == 0)) {
    return HR__F64_NAN;
  }
  if (a == 0 || x_infinite) {
    return upper ? 0 : 1;
  }
  if (x == 0 || a_infinite) {
    return upper ? 1 : 0;
  }
  return hr__f64_gamma_part(a, x, upper, least);
}
HR_SPECIAL_FN double hr_f64_special_igamma(double a, double x) {
  return hr__f64_gamma_side(a, x, 0, HR__GAMMA_F64);
}
HR_SPECIAL_FN double hr_f64_special_igammac(double a, double x) {
  return hr__f64_gamma_side(a, x, 1, HR__GAMMA_F64);
}

/* ---- the error function's relatives ---- */

/* exp(x * x) * erfc(x); above 10 asymptotically (DLMF 7.12.1). */
HR_SPECIAL_FN double hr_f64_special_erfcx(double x) {
  if (x < -26.7) {
    return HR__F64_INFINITY;
  }
  if (!(x > 10)) {
    double high = hr__u64_to_f64(hr__f64_to_u64(x) & 0xfffffffff8000000u); /* x * x in two parts */
    return exp(high * high) * exp((x - high) * (x + high)) * erfc(x);
  }
  double z = 0.5 / x / x, term = 1, sum = 1;
  for (int k = 1; k < 24 && hr_f64_abs(term) > 1e-17; k += 2) {
    term *= -k * z;
    sum += term;
  }
  return sum / (x * 1.77245385090551602729816748334114518);
}

/* y with erfc(y) = q for 0 < q <= 1: a start (Abramowitz and Stegun 26.2.23) and Halley's steps. */
HR_SPECIAL_FN double hr__f64_erfc_inverse(double q) {
  double t = __builtin_sqrt(-2 * log(q * 0.5));
  double y = t - (2.515517 + t * (0.802853 + t * 0.010328)) / (1 + t * (1.432788 + t * (0.189269 + t * 0.001308)));
  y *= 0.70710678118654752440;
  for (int i = 0; i < 3; ++i) {
    double error = erfc(y) - q;
    double slope = 1.12837916709551257390 * exp(-y * y);
    double step = error / (slope - y * error);
    y += slope > 0 ? step : 0;
  }
  return y;
}
HR_SPECIAL_FN double hr_f64_special_erfinv(double x) {
  double size = hr_f64_abs(x), y;
  if (!(size <= 1)) {
    return HR__F64_NAN;
  }
  if (size == 1) {
    return x * HR__F64_INFINITY;
  }
  if (size > 0.5) {
    y = hr__f64_erfc_inverse(1 - size);
  } else {
    y = size * (0.88622692545275801365 + size * size * 0.23201366653465449);
    for (int i = 0; i < 4; ++i) {
      double error = erf(y) - size;
      y -= error / (1.12837916709551257390 * exp(-y * y) + y * error);
    }
  }
  return hr_f64_signbit(x) ? -y : y;
}
HR_SPECIAL_FN double hr_f64_special_ndtri(double p) {
  if (!(p >= 0) || p > 1) {
    return HR__F64_NAN;
  }
  if (p == 0 || p == 1) {
    return p == 0 ? -HR__F64_INFINITY : HR__F64_INFINITY;
  }
  if (p > 0.25 && p < 0.75) {
    return 1.41421356237309504880 * hr_f64_special_erfinv(2 * p - 1);
  }
  return p < 0.5 ? -1.41421356237309504880 * hr__f64_erfc_inverse(2 * p)
                 : 1.41421356237309504880 * hr__f64_erfc_inverse(2 - 2 * p);
}
HR_SPECIAL_FN double hr_f64_special_log_ndtr(double x) {
  double t = x * 0.70710678118654752440;
  return x < -1 ? log(hr_f64_special_erfcx(-t) * 0.5) - t * t : log1p(-0.5 * erfc(t));
}
/* ---- Bessel functions ---- */

/* exp(-scaled * |x|) * I_n(x) for n = 0, 1: the series (DLMF 10.25.2), above 30 the expansion (10.40.1). */
HR_SPECIAL_FN double hr__f64_bessel_i(int n, double x, int scaled) {
  double size = hr_f64_abs(x), result;
  if (!(size <= 30)) {
    double term = 1, sum = 1;
    for (int k = 1; k < 40 && hr_f64_abs(term) > 1e-17; ++k) {
      term *= -(4.0 * n * n - (2.0 * k - 1) * (2.0 * k - 1)) / (8.0 * k * size);
      sum += term;
    }
    double root = __builtin_sqrt(2 * HR__PI * size);
    double half = exp(0.5 * size); /* exp(x) overflows earlier than the quotient */
    result = size == HR__F64_INFINITY ? (scaled ? 0 : size) : scaled ? sum / root : half * (sum / root) * half;
  } else {
    double z = 0.25 * size * size, term = n == 0 ? 1 : 0.5 * size, sum = term;
    for (int k = 1; term > sum * 1e-17; ++k) {
      term *= z / ((double)k * (k + n));
      sum += term;
    }
    result = scaled ? sum * exp(-size) : sum;
  }
  return n == 1 && hr_f64_signbit(x) ? -result : result;
}
HR_SPECIAL_FN double hr_f64_special_i0(double x) {
  return hr__f64_bessel_i(0, x, 0);
}
HR_SPECIAL_FN double hr_f64_special_i0e(double x) {
  return hr__f64_bessel_i(0, x, 1);
}
HR_SPECIAL_FN double hr_f64_special_i1(double x) {
  return hr__f64_bessel_i(1, x, 0);
}
HR_SPECIAL_FN double hr_f64_special_i1e(double x) {
  return hr__f64_bessel_i(1, x, 1);
}

/* exp(x) * K_mu(x) for x > 2, |mu| <= 1/2, by Temme's continued fraction; *next is that of mu + 1. */
HR_SPECIAL_FN double hr__f64_bessel_k_scaled(double mu, double x, double *next) {
  double b = 2 * (1 + x), d = 1 / b, h = d, change = d, q1 = 0, q2 = 1, a1 = 0.25 - mu * mu, q = a1, c = a1, a = -a1;
  double s = 1 + q * change;
  for (int i = 2; i < 1000; ++i) {
    a -= 2 * (i - 1);
    c = -a * c / i;
    double qnew = (q1 - b * q2) / a;
    q1 = q2;
    q2 = qnew;
    q += c * qnew;
    b += 2;
    d = 1 / (b + a * d);
    change = (b * d - 1) * change;
    h += change;
    double more = q * change;
    s += more;
    if (hr_f64_abs(more) < hr_f64_abs(s) * 1e-17) {
      break;
    }
  }
  double k = __builtin_sqrt(HR__PI / (2 * x)) / s;
  *next = k * (mu + x + 0.5 - a1 * h) / x;
  return k;
}
/* K_0 and K_1, times exp(x) where scaled: series (DLMF 10.31) up to 2, expansion (10.40.2) from 1e6 on. */
HR_SPECIAL_FN double hr__f64_bessel_k(int n, double x, int scaled) {
  if (x == 0) {
    return HR__F64_INFINITY;
  }
  if (!(x > 0)) {
    return HR__F64_NAN;
  }
  if (x == HR__F64_INFINITY) {
    return 0;
  }
  if (x > 1e6) {
    double m = 4 * n * n - 1, z = 1 / (8 * x);
    return scaled ? __builtin_sqrt(HR__PI / (2 * x)) * (1 + z * m * (1 + 0.5 * z * (m - 8))) : 0;
  }
  if (x > 2) {
    double k1, k0 = hr__f64_bessel_k_scaled(0, x, &k1);
    return (n == 0 ? k0 : k1) * (scaled ? 1 : exp(-x));
  }
  double z = 0.25 * x * x, term = 1, half_log = log(0.5 * x) + HR__EULER, harmonic = 0, sum = 0;
  for (int k = 0; k < 30 && term > 1e-20; ++k) {
    if (k > 0) {
      term *= z / ((double)k * (k + n));
      harmonic += 1.0 / k;
    }
    sum += n == 0 ? term * (harmonic - half_log) : term * (half_log - harmonic - 0.5 / (k + 1));
  }
  double result = n == 0 ? sum : 1 / x + 0.5 * x * sum;
  return scaled ? result * exp(x) : result;
}
HR_SPECIAL_FN double hr_f64_special_modified_bessel_k0(double x) {
  return hr__f64_bessel_k(0, x, 0);
}
HR_SPECIAL_FN double hr_f64_special_modified_bessel_k1(double x) {
  return hr__f64_bessel_k(1, x, 0);
}
HR_SPECIAL_FN double hr_f64_special_scaled_modified_bessel_k0(double x) {
  return hr__f64_bessel_k(0, x, 1);
}
HR_SPECIAL_FN double hr_f64_special_scaled_modified_bessel_k1(double x) {
  return hr__f64_bessel_k(1, x, 1);
}

/* J_0, J_1, Y_0, Y_1 at x >= 0 into out[0..3]: Hankel's expansion (DLMF 10.17.3) above 25; below, Miller's recurrence
 * downwards, Neumann's series (Abramowitz and Stegun 9.1.88) for Y_0, and its derivative for Y_1. */
HR_SPECIAL_FN void hr__f64_bessel_jy(double x, double *out) {
  if (!(x < 25)) {
    double scale = __builtin_sqrt(1 / (HR__PI * x)), plus = cos(x) + sin(x), minus = sin(x) - cos(x);
    for (int n = 0; n < 2; ++n) {
      double p = 1, q = 0, term = 1;
      for (int k = 1; k < 50 && hr_f64_abs(term) > 1e-17; ++k) {
        term *= (4.0 * n * n - (2.0 * k - 1) * (2.0 * k - 1)) / (8.0 * k * x);
        double signed_term = (k & 2) != 0 ? -term : term;
        p += (k & 1) != 0 ? 0 : signed_term;
        q += (k & 1) != 0 ? signed_term : 0;
      }
      double cosine = n == 0 ? plus : minus, sine = n == 0 ? minus : -plus;
      out[n] = scale * (p * cosine - q * sine);
      out[2 + n] = scale * (p * sine + q * cosine);
    }
    return;
  }
  double half_log = log(0.5 * x) + HR__EULER, over_pi = 2 / HR__PI;
  if (x < 1e-3) {
    double z = 0.25 * x * x;
    out[0] = 1 - z + 0.25 * z * z;
    out[1] = 0.5 * x * (1 - 0.5 * z + z * z / 12);
    out[2] = over_pi * (half_log * out[0] + z);
    out[3] = over_pi * (-1 / x + half_log * out[1] - 0.25 * x * (1 - 1.25 * z));
    return;
  }
  double above = 0, here = 1e-300, sum = 0, sum0 = 0, sum1 = 0;
  for (int n = 2 * ((int)x + 14); n > 0; --n) { /* here is J_n, up to a common factor */
    double sign = (n / 2) % 2 == 0 ? 1 : -1, k = n / 2;
    if (n % 2 == 0) {
      sum += here;
      sum0 += sign * here / k;
    } else if (n > 1) {
      sum1 += sign * here * n / (k * (k + 1));
    }
    double below = 2 * n / x * here - above;
    above = here;
    here = below;
  }
  double factor = 1 / (here + 2 * sum);
  out[0] = here * factor;
  out[1] = above * factor;
  out[2] = over_pi * (half_log * out[0] - 2 * sum0 * factor);
  out[3] = over_pi * (-out[0] / x + (half_log - 1) * out[1] - sum1 * factor);
}
HR_SPECIAL_FN double hr_f64_special_bessel_j0(double x) {
  double all[4];
  hr__f64_bessel_jy(hr_f64_abs(x), all);
  return all[0];
}
HR_SPECIAL_FN double hr_f64_special_bessel_j1(double x) {
  double all[4];
  hr__f64_bessel_jy(hr_f64_abs(x), all);
  return x < 0 ? -all[1] : all[1];
}
HR_SPECIAL_FN double hr_f64_special_bessel_y0(double x) {
  double all[4];
  hr__f64_bessel_jy(x > 0 ? x : 1, all);
  return x == 0 ? -HR__F64_INFINITY : (x > 0 ? all[2] : HR__F64_NAN);
}
HR_SPECIAL_FN double hr_f64_special_bessel_y1(double x) {
  double all[4];
  hr__f64_bessel_jy(x > 0 ? x : 1, all);
  return x == 0 ? -HR__F64_INFINITY : (x > 0 ? all[3] : HR__F64_NAN);
}
HR_SPECIAL_FN double hr_f64_special_spherical_bessel_j0(double x) {
  double z = x * x;
  if (z < 0.25) {
    return 1 - z / 6 * (1 - z / 20 * (1 - z / 42 * (1 - z / 72 * (1 - z / 110 * (1 - z / 156)))));
  }
  return hr_f64_abs(x) == HR__F64_INFINITY ? 0 : sin(x) / x;
}

/* Above 2 by K_1/3 (DLMF 9.6.2), below -10 asymptotically (9.7.9), between by Taylor's series of y'' = x y in steps of
 * at most 1. */
HR_SPECIAL_FN double hr_f64_special_airy_ai(double x) {
  if (x > 2.1) {
    double zeta = 2.0 / 3 * x * __builtin_sqrt(x), next;
    return x > 110 ? 0 : __builtin_sqrt(x / 3) / HR__PI * hr__f64_bessel_k_scaled(1.0 / 3, zeta, &next) * exp(-zeta);
  }
  if (x < -10) {
    double z = -x, root = __builtin_sqrt(z), zeta = 2.0 / 3 * z * root, term = 1, p = 1, q = 0;
    for (int k = 1; k < 40 && hr_f64_abs(term) > 1e-17; ++k) {
      term *= (6.0 * k - 5) * (6.0 * k - 3) * (6.0 * k - 1) / (216.0 * k * (2.0 * k - 1)) / zeta;
      double signed_term = (k & 2) != 0 ? -term : term;
      p += (k & 1) != 0 ? 0 : signed_term;
      q += (k & 1) != 0 ? signed_term : 0;
    }
    if (zeta > 0x1p50) {  /* the angle's last digit is a large part of a turn: returns the mean, as in f64 */
      return zeta - zeta; /* NaN of infinity */
    }
    double angle = zeta + 0.25 * HR__PI;
    return (sin(angle) * p - cos(angle) * q) / __builtin_sqrt(HR__PI * root);
  }
  double y = 0.35502805388781723926, slope = -0.25881940379280679840, at = 0;
  for (int step = 0; step < 12 && at != x; ++step) {
    double h = x - at, c0 = y, c1 = slope, c2 = 0.5 * at * y, power = h * h;
    h = h < -1 ? -1 : h > 1 ? 1 : h;
    power = h * h;
    double value = c0 + c1 * h + c2 * power, rise = c1 + 2 * c2 * h;
    for (int k = 1; k < 40; ++k) { /* (k + 2) (k + 1) c[k + 2] = at c[k] + c[k - 1] */
      double c3 = (at * c1 + c0) / ((k + 2.0) * (k + 1.0));
      rise += (k + 2) * c3 * power;
      power *= h;
      value += c3 * power;
      c0 = c1;
      c1 = c2;
      c2 = c3;
    }
    y = value;
    slope = rise;
    at = h == x - at ? x : at + h;
  }
  return x != x ? x : y;
}

/* ---- orthogonal polynomials; n is rounded towards zero, and negative ones give 0. From
 * HR__MANY steps of a recurrence on: closed and asymptotic forms ---- */

#define HR__MANY 100000

HR_SPECIAL_FN int64_t hr__f64_degree(double n) {
  return n > -9e18 && n < 9e18 ? (int64_t)n : -1;
}
/* Of Chebyshev, kinds 1 to 4 (t, u, v, w): p_0 = 1, p_1 = x, 2 x, 2 x - 1, 2 x + 1, p_k+1 = 2 x p_k - p_k-1. */
HR_SPECIAL_FN double hr__f64_chebyshev(double x, double degree, int kind) {
  int64_t n = hr__f64_degree(degree);
  double sign = n % 2 == 0 ? 1 : -1, count = (double)n;
  if (n < 0) {
    return 0;
  }
  if (hr_f64_abs(x) == 1) {
    double large = kind == 1 ? 1 : kind == 2 ? count + 1 : 2 * count + 1;
    int is_large = kind <= 2 || (kind == 4) == (x > 0);
    return (x > 0 ? 1 : sign) * (is_large ? large : 1);
  }
  if (n > 8 && hr_f64_abs(x) < 1) {
    double angle = acos(x);
    return kind == 1   ? cos(count * angle)
           : kind == 2 ? sin((count + 1) * angle) / sin(angle)
           : kind == 3 ? cos((count + 0.5) * angle) / cos(0.5 * angle)
                       : sin((count + 0.5) * angle) / sin(0.5 * angle);
  }
  if (n > HR__MANY && x == x) { /* x = +-cosh(angle); for x < 0 the third and the fourth kind are exchanged */
    double angle = acosh(hr_f64_abs(x)), turn = x > 0 ? 1 : sign;
    int same = x > 0 || kind < 3 ? kind : 7 - kind;
    return turn * (same == 1   ? cosh(count * angle)
                   : same == 2 ? sinh((count + 1) * angle) / sinh(angle)
                   : same == 3 ? cosh((count + 0.5) * angle) / cosh(0.5 * angle)
                               : sinh((count + 0.5) * angle) / sinh(0.5 * angle));
  }
  double p = 1, q = kind == 1 ? x : kind == 2 ? x + x : kind == 3 ? x + x - 1 : x + x + 1;
  for (int64_t k = 2; k <= n && q == q; ++k) {
    double r = (x + x) * q - p;
    p = q;
    q = r;
  }
  return n == 0 ? 1 : q;
}
HR_SPECIAL_FN double hr_f64_special_chebyshev_polynomial_t(double x, double n) {
  return hr__f64_chebyshev(x, n, 1);
}
HR_SPECIAL_FN double hr_f64_special_chebyshev_polynomial_u(double x, double n) {
  return hr__f64_chebyshev(x, n, 2);
}
HR_SPECIAL_FN double hr_f64_special_chebyshev_polynomial_v(double x, double n) {
  return hr__f64_chebyshev(x, n, 3);
}
HR_SPECIAL_FN double hr_f64_special_chebyshev_polynomial_w(double x, double n) {
  return hr__f64_chebyshev(x, n, 4);
}
HR_SPECIAL_FN double hr_f64_special_shifted_chebyshev_polynomial_t(double x, double n) {
  return hr__f64_chebyshev(x + x - 1, n, 1);
}
HR_SPECIAL_FN double hr_f64_special_shifted_chebyshev_polynomial_u(double x, double n) {
  return hr__f64_chebyshev(x + x - 1, n, 2);
}
HR_SPECIAL_FN double hr_f64_special_shifted_chebyshev_polynomial_v(double x, double n) {
  return hr__f64_chebyshev(x + x - 1, n, 3);
}
HR_SPECIAL_FN double hr_f64_special_shifted_chebyshev_polynomial_w(double x, double n) {
  return hr__f64_chebyshev(x + x - 1, n, 4);
}
/* Of Hermite: p_1 = scale x, p_k+1 = scale (x p_k - k p_k-1); beyond `most` torch gives up. */
HR_SPECIAL_FN double hr__f64_hermite(double x, double degree, double scale, int64_t most) {
  int64_t n = hr__f64_degree(degree);
  double p = 1, q = scale * x;
  if (n > most) {
    return HR__F64_NAN;
  }
  for (int64_t k = 1; k < n; ++k) {
    double r = scale * (x * q - (double)k * p);
    p = q;
    q = r;
  }
  return n < 0 ? 0 : (n == 0 ? 1 : q);
}
HR_SPECIAL_FN double hr_f64_special_hermite_polynomial_h(double x, double n) {
  return hr__f64_hermite(x, n, 2, 512);
}
HR_SPECIAL_FN double hr_f64_special_hermite_polynomial_he(double x, double n) {
  return hr__f64_hermite(x, n, 1, 512);
}
HR_SPECIAL_FN double hr_f64_special_laguerre_polynomial_l(double x, double degree) {
  int64_t n = hr__f64_degree(degree);
  double p = 1, q = 1 - x;
  if (n > HR__MANY && x != 0 && x == x) { /* DLMF 18.15.14 */
    double root = 2 * __builtin_sqrt(((double)n + 0.5) * hr_f64_abs(x));
    return exp(0.5 * x) * (x > 0 ? hr_f64_special_bessel_j0(root) : hr_f64_special_i0(root));
  }
  for (int64_t k = 1; k < n && q == q && x != 0; ++k) {
    double r = ((2.0 * (double)k + (1 - x)) * q - (double)k * p) / (double)(k + 1);
    p = q;
    q = r;
  }
  return n < 0 ? 0 : (n == 0 || x == 0 ? 1 : q);
}
HR_SPECIAL_FN double hr_f64_special_legendre_polynomial_p(double x, double degree) {
  int64_t n = hr__f64_degree(degree);
  double p = 1, q = x;
  if (hr_f64_abs(x) == 1 && n >= 0) {
    return x > 0 || n % 2 == 0 ? 1 : -1;
  }
  if (n > HR__MANY && hr_f64_abs(x) < 1) { /* DLMF 18.15.12, first term */
    double angle = acos(x);
    return __builtin_sqrt(2 / (HR__PI * (double)n * sin(angle))) * cos(((double)n + 0.5) * angle - 0.25 * HR__PI);
  }
  if (n > HR__MANY && x == x) {
    double angle = acosh(hr_f64_abs(x)),
           size = exp(((double)n + 0.5) * angle) / __builtin_sqrt(2 * HR__PI * (double)n * sinh(angle));
    return x > 0 || n % 2 == 0 ? size : -size;
  }
  for (int64_t k = 1; k < n && q == q; ++k) {
    double r = ((2.0 * (double)k + 1) * x * q - (double)k * p) / (double)(k + 1);
    p = q;
    q = r;
  }
  return n < 0 ? 0 : (n == 0 ? 1 : q);
}

/* ---- samplers that reject: the key in [0, 1) chooses a sequence of Philox numbers, of which `at` is the next ---- */

HR_SPECIAL_FN int64_t hr__f64_sequence(double key) {
  return (int64_t)((key >= 0 && key < 1 ? key : 0) * 0x1p53);
}
HR_SPECIAL_FN double hr__f64_next_uniform(double key, int64_t *at) {
  return hr_f64_philox_uniform(0, hr__f64_sequence(key), (*at)++);
}
HR_SPECIAL_FN double hr__f64_next_normal(double key, int64_t *at) {
  return hr_f64_philox_normal(0, hr__f64_sequence(key), (*at)++);
}
/* Marsaglia and Tsang 2000. */
HR_SPECIAL_FN double hr_f64_special_sample_gamma(double alpha, double key) {
  int64_t at = 0;
  double scale = 1;
  if (!(alpha >= 0)) {
    return HR__F64_NAN;
  }
  if (alpha < 1) {
    scale = pow(1 - hr__f64_next_uniform(key, &at), 1 / alpha);
    alpha += 1;
  }
  double d = alpha - 1.0 / 3, c = 1 / __builtin_sqrt(9 * d);
  for (;;) {
    double x = hr__f64_next_normal(key, &at), y = 1 + c * x;
    if (y <= 0) {
      continue;
    }
    double v = y * y * y, u = 1 - hr__f64_next_uniform(key, &at);
    if (u < 1 - 0.0331 * x * x * x * x || log(u) < 0.5 * x * x + d * (1 - v + log(v))) {
      return scale * d * v;
    }
  }
}
/* Products of uniform numbers below 10, Hoermann's transformed rejection (PTRS, 1993) above. */
HR_SPECIAL_FN double hr_f64_special_sample_poisson(double rate, double key) {
  int64_t at = 0;
  if (!(rate >= 0) || rate == HR__F64_INFINITY) {
    return HR__F64_NAN;
  }
  if (rate < 10) {
    double least = exp(-rate), product = 1, count = -1;
    do {
      product *= hr__f64_next_uniform(key, &at);
      count += 1;
    } while (product > least);
    return count;
  }
  double root = __builtin_sqrt(rate), b = 0.931 + 2.53 * root, a = -0.059 + 0.02483 * b;
  double inverse = 1.1239 + 1.1328 / (b - 3.4), right = 0.9277 - 3.6224 / (b - 2);
  for (;;) {
    double u = hr__f64_next_uniform(key, &at) - 0.5, v = hr__f64_next_uniform(key, &at);
    double us = 0.5 - hr_f64_abs(u), k = __builtin_floor((2 * a / us + b) * u + rate + 0.43);
    if (us >= 0.07 && v <= right) {
      return k;
    }
    if (k >= 0 && (us >= 0.013 || v <= us) &&
        log(v) + log(inverse) - log(a / (us * us) + b) <= k * log(rate) - rate - lgamma(k + 1)) {
      return k;
    }
  }
}
/* Waiting times if few are expected, else Hoermann's transformed rejection (BTRS, 1993). */
HR_SPECIAL_FN double hr_f64_special_sample_binomial(double count, double p, double key) {
  int64_t at = 0;
  if (!(count >= 0) || count == HR__F64_INFINITY || !(p >= 0)) {
    return p != p ? HR__F64_NAN : count > 0 ? HR__F64_NAN : 0;
  }
  if (count == 0 || p == 0 || p >= 1) {
    return p >= 1 ? count : 0;
  }
  double q = p > 0.5 ? 1 - p : p, k;
  if (count * q < 10) {
    double waited = 0;
    for (k = -1; waited <= count; k += 1) {
      waited += __builtin_ceil(log(1 - hr__f64_next_uniform(key, &at)) / log1p(-q));
    }
    return p > 0.5 ? count - k : k;
  }
  double root = __builtin_sqrt(count * q * (1 - q)), b = 1.15 + 2.53 * root, a = -0.0873 + 0.0248 * b + 0.01 * q;
  double centre = count * q + 0.5, right = 0.92 - 4.2 / b, odds = q / (1 - q), alpha = (2.83 + 5.1 / b) * root;
  double mode = __builtin_floor((count + 1) * q);
  for (;;) {
    double u = hr__f64_next_uniform(key, &at) - 0.5, v = hr__f64_next_uniform(key, &at);
    double us = 0.5 - hr_f64_abs(u);
    k = __builtin_floor((2 * a / us + b) * u + centre);
    if (k < 0 || k > count) {
      continue;
    }
    double bound =
        lgamma(mode + 1) + lgamma(count - mode + 1) - lgamma(k + 1) - lgamma(count - k + 1) + (k - mode) * log(odds);
    if ((us >= 0.07 && v <= right) || log(v * alpha / (a / (us * us) + b)) <= bound) {
      return p > 0.5 ? count - k : k;
    }
  }
}

/* ---- f32: the same, rounded once ---- */

#define HR_SPECIAL_UNARY(X) /* in f32: special_f32.h */ \
  X(lgamma)                                             \
  X(digamma)                                            \
  X(trigamma)                                           \
  X(erfinv)                                             \
  X(ndtri)                                              \
  X(i0)                                                 \
  X(i0e)                                                \
  X(i1)                                                 \
  X(i1e)                                                \
  X(modified_bessel_k0)                                 \
  X(modified_bessel_k1)                                 \
  X(scaled_modified_bessel_k0)                          \
  X(scaled_modified_bessel_k1)                          \
  X(bessel_j0)                                          \
  X(bessel_j1)                                          \
  X(bessel_y0)                                          \
  X(bessel_y1)                                          \
  X(spherical_bessel_j0)                                \
  X(erfcx)                                              \
  X(log_ndtr)                                           \
  X(airy_ai)
#define HR_SPECIAL_SHORTER(X) /* in f32: fewer terms */ \
  X(igamma)                                             \
  X(igammac)
#define HR_SPECIAL_WHOLE(X)         \
  X(polygamma)                      \
  X(zeta)                           \
  X(chebyshev_polynomial_t)         \
  X(chebyshev_polynomial_u)         \
  X(chebyshev_polynomial_v)         \
  X(chebyshev_polynomial_w)         \
  X(shifted_chebyshev_polynomial_t) \
  X(shifted_chebyshev_polynomial_u) \
  X(shifted_chebyshev_polynomial_v) \
  X(shifted_chebyshev_polynomial_w) \
  X(laguerre_polynomial_l)          \
  X(legendre_polynomial_p)          \
  X(sample_poisson)                 \
  X(sample_gamma)
#define HR_SPECIAL_BINARY(X) HR_SPECIAL_SHORTER(X) HR_SPECIAL_WHOLE(X)

#define HR__SPECIAL_F32(name)                                   \
  HR_SPECIAL_FN float hr_f32_special_##name(float a, float b) { \
    return (float)hr_f64_special_##name((double)a, (double)b);  \
  }
HR_SPECIAL_WHOLE(HR__SPECIAL_F32)
HR_SPECIAL_FN float hr_f32_special_igamma(float a, float x) {
  return (float)hr__f64_gamma_side((double)a, (double)x, 0, HR__GAMMA_F32);
}
HR_SPECIAL_FN float hr_f32_special_igammac(float a, float x) {
  return (float)hr__f64_gamma_side((double)a, (double)x, 1, HR__GAMMA_F32);
}
HR_SPECIAL_FN float hr_f32_special_sample_binomial(float count, float p, float key) {
  return (float)hr_f64_special_sample_binomial((double)count, (double)p, (double)key);
}
HR_SPECIAL_FN float hr_f32_special_hermite_polynomial_h(float x, float n) {
  return (float)hr__f64_hermite(x, n, 2, 128);
}
HR_SPECIAL_FN float hr_f32_special_hermite_polynomial_he(float x, float n) {
  return (float)hr__f64_hermite(x, n, 1, 128);
}

/* ---- complex ---- */

HR_SPECIAL_FN hr_c128 hr_c128_special_logaddexp(hr_c128 a, hr_c128 b) {
  int a_is_less = (a.re != a.re) | (a.im != a.im) | (a.re <= b.re);
  hr_c128 least = a_is_less ? a : b, most = a_is_less ? b : a;
  if (least.re != least.re || least.im != least.im) {
    return hr_c128_make(HR__F64_NAN, HR__F64_NAN);
  }
  if (least.re == most.re && hr_f64_abs(least.re) == HR__F64_INFINITY) {
    return least.re < 0 ? least : hr_c128_log(hr_c128_add(hr_c128_exp(least), hr_c128_exp(most)));
  }
  return hr_c128_add(hr_c128_log1p(hr_c128_exp(hr_c128_sub(least, most))), most);
}
HR_SPECIAL_FN hr_c128 hr_c128_special_sinc(hr_c128 a) {
  hr_c128 angle = hr_c128_make(HR__PI * a.re, HR__PI * a.im);
  return (a.re == 0) & (a.im == 0) ? hr_c128_make(1, 0) : hr_c128_div(hr_c128_sin(angle), angle);
}
HR_SPECIAL_FN hr_c64 hr_c64_special_logaddexp(hr_c64 a, hr_c64 b) {
  return hr__c64_narrow(hr_c128_special_logaddexp(hr__c64_widen(a), hr__c64_widen(b)));
}
HR_SPECIAL_FN hr_c64 hr_c64_special_sinc(hr_c64 a) {
  return hr__c64_narrow(hr_c128_special_sinc(hr__c64_widen(a)));
}

#endif
