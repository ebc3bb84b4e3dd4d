/* vmath.h against libm in double over dense samples of every exponent, and at special values.
 *
 * Errors are in units in the last place of the exact result. Bounds are today's errors, rounded up, so that a
 * regression is seen. Random123's known answers check Philox.
 */
#include "core/math/vmath_complex.h"

#include "core/math/philox_run.h"
#include "hr_test.h"

typedef float (*unary_fn)(float);
typedef double (*unary_reference)(double);

#define UNARY(name)                  \
  static float f32_##name(float x) { \
    return hr_f32_##name(x);         \
  }
UNARY(exp)
UNARY(exp2)
UNARY(expm1)
UNARY(log)
UNARY(log2)
UNARY(log10)
UNARY(log1p)
UNARY(sin)
UNARY(cos)
UNARY(tan)
UNARY(asin)
UNARY(acos)
UNARY(atan)
UNARY(sinh)
UNARY(cosh)
UNARY(tanh)
UNARY(asinh)
UNARY(acosh)
UNARY(atanh)
UNARY(erf)
UNARY(erfc)
UNARY(sigmoid)
UNARY(normal_cdf)
UNARY(sqrt)
UNARY(floor)
UNARY(ceil)
UNARY(trunc)
UNARY(round)
UNARY(abs)
#undef UNARY

static double reference_sigmoid(double x) {
  return 1 / (1 + exp(-x));
}

static const struct unary_case {
  const char *name;
  unary_fn function;
  unary_reference reference;
  double bound;
} unary_cases[] = {
    {"exp", f32_exp, exp, 1.0},        {"exp2", f32_exp2, exp2, 1.0},
    {"expm1", f32_expm1, expm1, 1.5},  {"log", f32_log, log, 0.8},
    {"log2", f32_log2, log2, 0.75},    {"log10", f32_log10, log10, 0.75},
    {"log1p", f32_log1p, log1p, 1.0},  {"sin", f32_sin, sin, 0.51},
    {"cos", f32_cos, cos, 0.51},       {"tan", f32_tan, tan, 0.51},
    {"asin", f32_asin, asin, 0.51},    {"acos", f32_acos, acos, 0.51},
    {"atan", f32_atan, atan, 0.51},    {"sinh", f32_sinh, sinh, 0.51},
    {"cosh", f32_cosh, cosh, 0.51},    {"tanh", f32_tanh, tanh, 1.4},
    {"asinh", f32_asinh, asinh, 0.51}, {"acosh", f32_acosh, acosh, 0.51},
    {"atanh", f32_atanh, atanh, 0.51}, {"erf", f32_erf, erf, 1.0},
    {"erfc", f32_erfc, erfc, 0.51},    {"sigmoid", f32_sigmoid, reference_sigmoid, 2.3},
    {"sqrt", f32_sqrt, sqrt, 0.5},     {"floor", f32_floor, floor, 0},
    {"ceil", f32_ceil, ceil, 0},       {"trunc", f32_trunc, trunc, 0},
    {"round", f32_round, rint, 0},     {"abs", f32_abs, fabs, 0},
};
enum { UNARY_COUNT = sizeof unary_cases / sizeof *unary_cases };

/* |actual - exact| in units in the last place of exact; huge where NaN, infinity or the sign of 0 differ. */
static double ulps(float actual, double exact) {
  const double wrong = 1e30;
  if (isnan(exact) || isnan(actual)) {
    return isnan(exact) && isnan(actual) ? 0 : wrong;
  }
  float nearest = (float)exact;
  if (actual == nearest) {
    return signbit(actual) == signbit(nearest) || actual != 0 ? 0 : wrong;
  }
  if (isinf(actual) || isinf(nearest)) { /* the largest number and infinity are neighbours */
    return fabs(exact) < 0x1.0001p128 && fabsf(actual) >= 0x1.fffffep127f ? 1 : wrong;
  }
  int exponent;
  frexp(exact, &exponent);
  exponent = exponent - 24 < -149 ? -149 : exponent - 24;
  return fabs((double)actual - exact) / ldexp(1, exponent);
}

static const float specials[] = {
    0.0f,    -0.0f,   1.0f,    -1.0f,          2.0f,          -2.0f,          0.5f,     -0.5f,
    1.5f,    2.5f,    -2.5f,   3.0f,           -3.0f,         10.0f,          -10.0f,   100.0f,
    -100.0f, 88.0f,   89.0f,   -87.0f,         -104.0f,       128.0f,         -150.0f,  16777217.0f,
    1e-45f,  -1e-45f, 1e-40f,  1.1754944e-38f, 3.4028235e38f, -3.4028235e38f, INFINITY, -INFINITY,
    NAN,     0x1p30f, 0x1p60f, 0x1.8p100f,     7.25f,         -7.25f};
enum { SPECIAL_COUNT = sizeof specials / sizeof *specials };

static double worst_unary(const struct unary_case *c) {
  double worst = 0;
  float at = 0;
  for (uint64_t u = 0; u < 0x100000000u + SPECIAL_COUNT * 7919u; u += 7919) {
    float x = u < 0x100000000u ? hr__u32_to_f32((uint32_t)u) : specials[(u - 0x100000000u) / 7919];
    double error = ulps(c->function(x), c->reference((double)x));
    if (error > worst) {
      worst = error, at = x;
    }
  }
  fprintf(stderr, "  %-8s %.3f units in the last place, at %a\n", c->name, worst, (double)at);
  return worst;
}

HR_TEST(unary_f32_functions_are_near_libm) {
  for (int i = 0; i < UNARY_COUNT; ++i) {
    double worst = worst_unary(&unary_cases[i]);
    if (!(worst <= unary_cases[i].bound)) {
      HR_FAIL("%s: %g units in the last place, at most %g", unary_cases[i].name, worst, unary_cases[i].bound);
    }
  }
}

/* A loop that the compiler may vectorise gives the same bits as one call after the other. */
HR_TEST(loops_give_the_bits_of_single_calls) {
  enum { N = 1003 };
  static float x[N], y[N];
  for (int i = 0; i < N; ++i) {
    x[i] = hr__u32_to_f32((uint32_t)i * 4281921u);
  }
#define SAME(name)                                                                                 \
  do {                                                                                             \
    for (int i = 0; i < N; ++i) {                                                                  \
      y[i] = hr_f32_##name(x[i]);                                                                  \
    }                                                                                              \
    for (int i = 0; i < N; ++i) {                                                                  \
      volatile float v = x[i];                                                                     \
      float single = f32_##name(v);                                                                \
      HR_ASSERT(hr__f32_to_u32(single) == hr__f32_to_u32(y[i]) || (isnan(single) && isnan(y[i]))); \
    }                                                                                              \
  } while (0)
  SAME(exp);
  SAME(expm1);
  SAME(log);
  SAME(log1p);
  SAME(sin);
  SAME(cos);
  SAME(tan);
  SAME(atan);
  SAME(tanh);
  SAME(erf);
  SAME(erfc);
  SAME(sigmoid);
  SAME(normal_cdf);
#undef SAME
}

HR_TEST(gelu_is_close_everywhere) {
  for (uint64_t u = 0; u < 0x100000000u; u += 7919) {
    float x = hr__u32_to_f32((uint32_t)u), part = hr_f32_normal_cdf(x);
    double exact = 0.5 * erfc((double)x * -0.70710678118654752440);
    if (isnan(x) || isinf(x)) {
      continue;
    }
    HR_ASSERT(x > 0 ? ulps(part, exact) <= 1.5 : fabs((double)x * ((double)part - exact)) <= 4e-8);
    HR_ASSERT(x < -3 || x > 0 || ulps(part, exact) <= 12);
  }
  HR_ASSERT(hr_f32_normal_cdf(INFINITY) == 1 && hr_f32_normal_cdf(-INFINITY) == 0);
  HR_ASSERT(hr_f32_normal_cdf(0) == 0.5f && isnan(hr_f32_normal_cdf(NAN)));
}

/* The tanh form of gelu in double precision, and its derivative. */
static double gelu_tanh_exponent(double x) {
  return 1.59576912160573071176 * (x + 0.044715 * x * x * x);
}
static double exact_gelu_tanh_slope(double x) {
  double t = gelu_tanh_exponent(x), e = exp(-fabs(t)), s = (t < 0 ? e : 1) / (1 + e);
  return s + x * s * (t < 0 ? 1 : e) / (1 + e) * 1.59576912160573071176 * (1 + 3 * 0.044715 * x * x);
}

HR_TEST(the_tanh_form_of_gelu_cancels_nothing) {
  for (uint64_t u = 0; u < 0x100000000u; u += 7919) {
    float x = hr__u32_to_f32((uint32_t)u);
    double t = gelu_tanh_exponent((double)x), exact = 1 / (1 + exp(-t));
    float part = hr_f32_gelu_tanh_part(x), slope = hr_f32_gelu_tanh_slope(x);
    if (isnan(x) || isinf(x)) {
      continue;
    }
    /* An error in the exponent is scaled by the exponent. */
    HR_ASSERT(exact < exp(-63) ? part >= 0 && part < 1e-27f : ulps(part, exact) <= 2.5 + 2 * fabs(t));
    HR_ASSERT(fabsf(x) > 1e18f || fabs((double)slope - exact_gelu_tanh_slope((double)x)) <= 3e-6);
  }
  HR_ASSERT(hr_f32_gelu_tanh_part(INFINITY) == 1 && hr_f32_gelu_tanh_part(-INFINITY) == 0);
  HR_ASSERT(hr_f32_gelu_tanh_part(0) == 0.5f && hr_f32_gelu_tanh_slope(0) == 0.5f);
  HR_ASSERT(isnan(NAN * hr_f32_gelu_tanh_part(NAN)) && isnan(hr_f32_gelu_tanh_slope(NAN)));
  HR_ASSERT(hr_f32_gelu_tanh_slope(1e9f) == 1 && hr_f32_gelu_tanh_slope(-1e9f) == 0);
  HR_ASSERT(isnan(hr_f32_gelu_tanh_slope(INFINITY)) && isnan(hr_f32_gelu_tanh_slope(-INFINITY)));
}

static double exact_remainder(double a, double b) {
  double r = fmod(a, b);
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

HR_TEST(binary_f32_functions_agree_with_libm_at_special_values) {
  for (int i = 0; i < SPECIAL_COUNT; ++i) {
    for (int j = 0; j < SPECIAL_COUNT; ++j) {
      float a = specials[i], b = specials[j];
      const struct {
        const char *name;
        float actual;
        double exact;
      } results[] = {{"pow", hr_f32_pow(a, b), pow(a, b)},
                     {"atan2", hr_f32_atan2(a, b), atan2(a, b)},
                     {"hypot", hr_f32_hypot(a, b), hypot(a, b)},
                     {"fmod", hr_f32_fmod(a, b), fmod(a, b)}};
      for (int k = 0; k < 4; ++k) {
        if (!(ulps(results[k].actual, results[k].exact) <= 0.51)) {
          HR_FAIL("%s(%a, %a) = %a, expected %a", results[k].name, (double)a, (double)b, (double)results[k].actual,
                  results[k].exact);
        }
      }
    }
  }
}

static void check_remainder(float a, float b) {
  float actual = hr_f32_fmod(a, b), expected = (float)fmod((double)a, (double)b);
  if (isnan(actual) && isnan(expected)) {
    return;
  }
  HR_ASSERT(!hr__f32_is_near(a, b) ||
            (hr__f32_to_u32(hr__f32_remainder_near(a, b)) == hr__f32_to_u32(hr_f32_remainder(a, b)) &&
             hr__f32_to_u32(hr__f32_div_floor_near(a, b)) == hr__f32_to_u32(hr_f32_div_floor(a, b))));
  if (hr__f32_to_u32(actual) != hr__f32_to_u32(expected)) { /* the sign of 0, too */
    HR_FAIL("fmod(%a, %a) = %a, expected %a", (double)a, (double)b, (double)actual, (double)expected);
  }
}

/* Arbitrary numbers, and those whose quotients are next to integers, below and above the bound of the fast version. */
HR_TEST(remainders_are_exact) {
  uint32_t state = 1;
  for (int i = 0; i < 1000000; ++i) {
    uint32_t first = state = state * 1664525u + 1013904223u, second = state = state * 1664525u + 1013904223u;
    check_remainder(hr__u32_to_f32(first), hr__u32_to_f32(second));
    float b = hr__u32_to_f32((second & 0x807fffffu) | 0x3f800000u);
    float multiple = (float)ldexp((double)(first >> 9), (int)(first % 40) - 12) * b;
    check_remainder(multiple, b);
    check_remainder(nextafterf(multiple, 0.0f), b);
    check_remainder(nextafterf(multiple, INFINITY), -b);
    check_remainder(ldexpf(multiple, -140), ldexpf(b, -140)); /* denormals */
  }
}

/* Angles of every size below the bound, and multiples of a quarter turn. */
HR_TEST(small_angles_have_the_bits_of_any_angle) {
  int small = 0;
  for (uint64_t u = 0; u < 0x100000000u; u += 3967) {
    float x = hr__u32_to_f32((uint32_t)u);
    x = u % 5 == 0 ? (float)(int32_t)(u >> 12) * 1.57079632679f : x;
    if (hr__f32_is_small(x)) {
      ++small;
      HR_ASSERT(hr__f32_to_u32(hr__f32_sin_near(x)) == hr__f32_to_u32(hr_f32_sin(x)) &&
                hr__f32_to_u32(hr__f32_cos_near(x)) == hr__f32_to_u32(hr_f32_cos(x)) &&
                hr__f32_to_u32(hr__f32_tan_near(x)) == hr__f32_to_u32(hr_f32_tan(x)));
    }
  }
  HR_ASSERT(small > 300000 && !hr__f32_is_small(0x1p27f) && !hr__f32_is_small(NAN) && !hr__f32_is_small(-INFINITY));
}

HR_TEST(small_powers_have_the_bits_of_any_power) {
  for (float x = -87.0f; x <= 80.0f; x += 0x1p-12f) {
    float expected = hr_f32_exp(x), actual = hr__f32_exp_small(x);
    HR_ASSERT_BYTES_EQ(&actual, &expected, sizeof actual);
  }
}

HR_TEST(binary_f32_functions_are_near_libm) {
  double worst_pow = 0, worst_atan2 = 0, worst_hypot = 0;
  uint32_t state = 1;
  for (int i = 0; i < 400000; ++i) {
    uint32_t first = state = state * 1664525u + 1013904223u, second = state = state * 1664525u + 1013904223u;
    float any = hr__u32_to_f32(first), other = hr__u32_to_f32(second);
    float base = hr__u32_to_f32((first & 0x87ffffffu) + 0x38000000u); /* 2^-15 .. 2 and beyond: finite powers */
    float power = hr__u32_to_f32((second & 0x83ffffffu) + 0x3f000000u);
    worst_pow = fmax(worst_pow, ulps(hr_f32_pow(base, power), pow(base, power)));
    worst_pow = fmax(worst_pow, ulps(hr_f32_pow(any, other), pow(any, other)));
    worst_atan2 = fmax(worst_atan2, ulps(hr_f32_atan2(any, other), atan2(any, other)));
    worst_hypot = fmax(worst_hypot, ulps(hr_f32_hypot(any, other), hypot(any, other)));
  }
  fprintf(stderr, "  pow %.3f, atan2 %.3f, hypot %.3f units in the last place\n", worst_pow, worst_atan2, worst_hypot);
  HR_ASSERT(worst_pow <= 0.51 && worst_atan2 <= 0.51 && worst_hypot <= 0.51);
}

static void check_near(const char *name, float a, float b, float actual, double expected) {
  bool same = (isnan(actual) && isnan(expected)) || (double)actual == (double)(float)expected;
  if (!same && !(ulps(actual, expected) <= 0.51) && !(fabs((double)actual - expected) <= 1e-9)) { /* sums may cancel */
    HR_FAIL("%s(%a, %a) = %a, expected %a", name, (double)a, (double)b, (double)actual, expected);
  }
}

/* Within 1.5 units in the last place of the largest term, or of the sum; `log_2` is added if the numbers are equal. */
static void check_sum(const char *name, float a, float b, double log_2, float actual, double expected) {
  double most = fmax(fmax(fabs((double)a), fabs((double)b)), fmax(fabs(expected), log_2));
  bool same = (isnan(actual) && isnan(expected)) || (double)actual == (double)(float)expected;
  if (!same && !(fabs((double)actual - expected) <= 1.5 * ldexp(1, ilogb(most) - 23))) {
    HR_FAIL("%s(%a, %a) = %a, expected %a", name, (double)a, (double)b, (double)actual, expected);
  }
}

HR_TEST(softplus_is_near_libm) {
  double worst = 0, worst_scaled = 0;
  for (float x = -87.0f; x < 88.0f; x += 0.00037f) {
    double product = (double)(x * 3.0f);
    worst = fmax(worst, ulps(hr_f32_log1p_exp(x), log1p(exp((double)x))));
    worst_scaled = fmax(worst_scaled, product < -87 ? 0 : ulps(hr_f32_softplus(x, 3, 1000), log1p(exp(product)) / 3));
  }
  fprintf(stderr, "  log1p_exp %.3f, softplus %.3f units in the last place\n", worst, worst_scaled);
  HR_ASSERT(worst <= 2 && worst_scaled <= 2.5);
  HR_ASSERT(hr_f32_log1p_exp(-INFINITY) == 0 && hr_f32_log1p_exp(INFINITY) == INFINITY);
  HR_ASSERT(isnan(hr_f32_log1p_exp(NAN)) && isnan(hr_f32_softplus(NAN, 1, 20)));
  HR_ASSERT(hr_f32_softplus(-INFINITY, 1, 20) == 0 && hr_f32_softplus(INFINITY, 1, 20) == INFINITY);
  HR_ASSERT(hr_f32_softplus(0.7f, 3, 2) == 0.7f && hr_f32_softplus(1e-3f, 3, 0) == 1e-3f);
}

/* Logarithms of sums and products with logarithms, against the C library; the sine of multiples of pi against whole
 * angles. */
HR_TEST(composed_f32_functions_are_near_libm) {
  static const float limits[] = {0.0f, -0.0f,  1.0f,  -1.0f,  INFINITY, -INFINITY,
                                 NAN,  1e-45f, 3e38f, -3e38f, 1e-7f,    16777216.0f};
  uint32_t state = 1;
  for (int i = 0; i < 300000; ++i) {
    uint32_t first = state = state * 1664525u + 1013904223u, second = state = state * 1664525u + 1013904223u;
    float a = hr__u32_to_f32(first), b = hr__u32_to_f32(second);
    if (i % 3 == 0) { /* of common size, and near each other */
      a = (float)(int32_t)first * 0x1p-27f, b = a + (float)(int32_t)second * 0x1p-26f;
    } else if (i < 300) {
      a = limits[i % 12], b = limits[i / 12 % 12];
    }
    check_sum("logaddexp", a, b, 0.7, hr_f32_logaddexp(a, b), hr_f64_logaddexp((double)a, (double)b));
    check_sum("logaddexp2", a, b, 1, hr_f32_logaddexp2(a, b), hr_f64_logaddexp2((double)a, (double)b));
    check_near("xlogy", a, b, hr_f32_xlogy(a, b), hr_f64_xlogy((double)a, (double)b));
    check_near("xlog1py", a, b, hr_f32_xlog1py(a, b), hr_f64_xlog1py((double)a, (double)b));
    check_near("entr", a, a, hr_f32_entr(a), hr_f64_entr((double)a));
    if (!(fabsf(a) >= 1e4f)) { /* an angle in f64 has an error of its own */
      check_near("sinc", a, a, hr_f32_sinc(a), hr_f64_sinc((double)a));
    }
  }
  HR_ASSERT(isnan(hr_f32_sinc(INFINITY)) && isnan(hr_f32_sinc(-INFINITY)) && isnan(hr_f32_sinc(NAN)));
  HR_ASSERT(hr_f32_sinc(0.0f) == 1 && hr_f32_sinc(1e20f) == 0 && hr_f32_sinc(3.0f) == 0);
}

/* Python's and torch's results. */
HR_TEST(division_rounds_as_torch_does) {
  HR_ASSERT_NEAR(hr_f32_div_floor(7, 2), 3, 0);
  HR_ASSERT_NEAR(hr_f32_div_floor(-7, 2), -4, 0);
  HR_ASSERT_NEAR(hr_f32_div_floor(7, -2), -4, 0);
  HR_ASSERT_NEAR(hr_f32_div_floor(1, 0), INFINITY, 0);
  HR_ASSERT_NEAR(hr_f64_div_floor(-1, 0), -INFINITY, 0);
  HR_ASSERT(signbit(hr_f32_div_floor(-0.0f, 3)));
  HR_ASSERT_NEAR(hr_f64_div_floor(1, 0.1), 9, 0); /* 0.1 is a little more than a tenth */
  HR_ASSERT_NEAR(hr_f32_remainder(-7, 3), 2, 0);
  HR_ASSERT_NEAR(hr_f32_remainder(7, -3), -2, 0);
  HR_ASSERT_NEAR(hr_f64_remainder(-7.5, 2), 0.5, 0);
  HR_ASSERT_NEAR(hr_f32_remainder(5, 0), NAN, 0);
  uint32_t state = 7;
  for (int i = 0; i < 100000; ++i) {
    float a = (float)(int32_t)(state = state * 1664525u + 1013904223u) * 0x1p-20f;
    float b = (float)(int32_t)(state = state * 1664525u + 1013904223u) * 0x1p-26f;
    HR_ASSERT_NEAR(hr_f32_remainder(a, b), (float)exact_remainder(a, b), fabsf(b) * 1e-7f);
  }
}

HR_TEST(integers_define_what_c_does_not) {
  HR_ASSERT_EQ(hr_i32_div_trunc(7, 0), 0);
  HR_ASSERT_EQ(hr_i32_div_trunc(INT32_MIN, -1), INT32_MIN);
  HR_ASSERT_EQ(hr_i64_div_trunc(INT64_MIN, -1), INT64_MIN);
  HR_ASSERT_EQ(hr_i32_div_trunc(-7, 2), -3);
  HR_ASSERT_EQ(hr_i32_div_floor(-7, 2), -4);
  HR_ASSERT_EQ(hr_i64_div_floor(7, -2), -4);
  HR_ASSERT_EQ(hr_i64_div_floor(7, 0), 0);
  HR_ASSERT_EQ(hr_i32_remainder(-7, 3), 2);
  HR_ASSERT_EQ(hr_i32_remainder(7, -3), -2);
  HR_ASSERT_EQ(hr_i32_remainder(7, 0), 0);
  HR_ASSERT_EQ(hr_i32_fmod(-7, 3), -1);
  HR_ASSERT_EQ(hr_i64_fmod(INT64_MIN, -1), 0);
  HR_ASSERT_EQ(hr_u32_div_floor(UINT32_MAX, 2), 0x7fffffff);
  HR_ASSERT_EQ(hr_u64_remainder(7, 0), 0);
  HR_ASSERT_EQ(hr_i32_pow(3, 4), 81);
  HR_ASSERT_EQ(hr_i32_pow(-2, 31), INT32_MIN);
  HR_ASSERT_EQ(hr_i64_pow(2, -1), 0);
  HR_ASSERT_EQ(hr_i64_pow(-1, -3), -1);
  HR_ASSERT_EQ(hr_i64_pow(1, -3), 1);
  HR_ASSERT_EQ(hr_u32_pow(10, 9), 1000000000);
  HR_ASSERT_EQ(hr_i32_shift_left(1, 32), 0);
  HR_ASSERT_EQ(hr_i32_shift_left(1, -1), 0);
  HR_ASSERT_EQ(hr_i64_shift_left(3, 62), (int64_t)((uint64_t)3 << 62));
  HR_ASSERT_EQ(hr_i32_shift_right(-8, 1), -4);
  HR_ASSERT_EQ(hr_i32_shift_right(-8, 40), -1);
  HR_ASSERT_EQ(hr_i64_shift_right(8, -1), 0);
  HR_ASSERT_EQ(hr_u32_shift_right(8, 32), 0);
}

HR_TEST(complex_arithmetic) {
  hr_c64 a = hr_c64_make(1, 2), b = hr_c64_make(3, -4), q = hr_c64_div(a, b);
  HR_ASSERT_NEAR(q.re, -0.2, 1e-7);
  HR_ASSERT_NEAR(q.im, 0.4, 1e-7);
  hr_c64 p = hr_c64_mul(a, b);
  HR_ASSERT(hr_c64_eq(p, hr_c64_make(11, 2)));
  hr_c64 big = hr_c64_div(hr_c64_make(1e38f, 1e38f), hr_c64_make(1e38f, 1e38f)); /* must not overflow inside */
  HR_ASSERT_NEAR(big.re, 1, 1e-6);
  HR_ASSERT_NEAR(hr_c64_abs(hr_c64_make(3e38f, 0)), 3e38f, 0);
  HR_ASSERT_NEAR(hr_c128_angle(hr_c128_make(-1, 0)), 3.14159265358979323846, 1e-15);
  hr_c128 e = hr_c128_exp(hr_c128_make(0, 3.14159265358979323846));
  HR_ASSERT_NEAR(e.re, -1, 1e-15);
  hr_c128 r = hr_c128_sqrt(hr_c128_make(-4, 0));
  HR_ASSERT_NEAR(r.im, 2, 1e-15);
  hr_c64 l = hr_c64_log(hr_c64_make(0, 1));
  HR_ASSERT_NEAR(l.im, 1.57079632679, 1e-7);
  HR_ASSERT(hr_c64_eq(hr_c64_pow(hr_c64_make(0, 0), hr_c64_make(0, 0)), hr_c64_make(1, 0)));
  HR_ASSERT(isinf(hr_c64_div(a, hr_c64_make(0, 0)).re));
}

/* github.com/DEShawResearch/random123, kat_vectors, philox4x32 10. */
HR_TEST(philox_gives_the_published_words) {
  static const struct {
    uint64_t index, offset, seed;
    uint32_t words[4];
  } known[] = {
      {0, 0, 0, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
      {UINT64_MAX, UINT64_MAX, UINT64_MAX, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
      {0x85a308d3243f6a88, 0x0370734413198a2e, 0x299f31d0a4093822, {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
  };
  for (size_t i = 0; i < sizeof known / sizeof *known; ++i) {
    hr_philox_block block = hr_philox(known[i].index, known[i].offset, known[i].seed);
    HR_ASSERT_BYTES_EQ(block.word, known[i].words, sizeof block.word);
    for (uint64_t w = 0; known[i].index == 0 && w < 4; ++w) {
      HR_ASSERT_EQ(hr_philox_word(w, 0, 0), known[i].words[w]);
      HR_ASSERT_EQ(hr_i32_philox_bits((int64_t)w, 0, 0), known[i].words[w] >> 1);
    }
  }
  HR_ASSERT_EQ(hr_philox_pair(0, 0, 0), 0x6627e8d5e169c58d);
  HR_ASSERT_EQ(hr_philox_pair(1, 0, 0), 0xbc57ac4c9b00dbd8);
}

/* Words of the counter low + 2^64 high, whose carry crosses the halves and the end. */
HR_TEST(words_of_philox_continue_a_counter) {
  static const int64_t counters[][2] = {{0, 0}, {-1, 5}, {-3, -1}, {INT64_MAX, 1}};
  for (size_t k = 0; k < sizeof counters / sizeof *counters; ++k) {
    const int64_t low = counters[k][0], high = counters[k][1], key = 0x299f31d0a4093822;
    for (int64_t i = 0; i < 40; ++i) {
      const uint64_t index = (uint64_t)low + (uint64_t)i / 4;
      const bool carries = index < (uint64_t)low;
      const uint32_t word = hr_philox(index, (uint64_t)high + carries, (uint64_t)key).word[i % 4];
      HR_ASSERT_EQ(hr_u32_philox_words(i, key, low, high), word);
      HR_ASSERT_EQ((uint32_t)hr_i32_philox_words(i, key, low, high), word);
      HR_ASSERT_EQ((uint32_t)(hr_u64_philox_words(i / 2, key, low, high) >> (i % 2 * 32)), word);
      HR_ASSERT_EQ((uint32_t)(hr_i64_philox_words(i / 2, key, low, high) >> (i % 2 * 32)), word);
    }
  }
}

/* The same file, threefry2x32 20. */
HR_TEST(threefry_gives_the_published_words) {
  static const uint32_t known[][6] = {/* key, counter, words */
                                      {0, 0, 0, 0, 0x6b200159, 0x99ba4efe},
                                      {~0u, ~0u, ~0u, ~0u, 0x1cb996fc, 0xbb002be7},
                                      {0x13198a2e, 0x03707344, 0x243f6a88, 0x85a308d3, 0xc4923a9c, 0x483df7a0}};
  for (size_t i = 0; i < sizeof known / sizeof *known; ++i) {
    const uint32_t *k = known[i];
    HR_ASSERT_EQ(hr_u32_threefry_first(k[0], k[1], k[2], k[3]), k[4]);
    HR_ASSERT_EQ(hr_u32_threefry_second(k[0], k[1], k[2], k[3]), k[5]);
    HR_ASSERT_EQ(hr_i64_threefry_first(k[0], k[1], k[2], k[3]), k[4]);
    HR_ASSERT_EQ(hr_i32_threefry_second((int32_t)k[0], (int32_t)k[1], (int32_t)k[2], (int32_t)k[3]), (int32_t)k[5]);
  }
}

HR_TEST(random_numbers_have_their_moments) {
  enum { N = 200000 };
  double sum[4] = {0}, squares[4] = {0}, fourth = 0;
  for (int i = 0; i < N; ++i) {
    double x[4] = {hr_f32_philox_uniform(i, 42, 7), hr_f64_philox_uniform(i, 42, 7), hr_f32_philox_normal(i, 42, 7),
                   hr_f64_philox_normal(i, 42, 7)};
    HR_ASSERT(x[0] >= 0 && x[0] < 1 && x[1] >= 0 && x[1] < 1);
    for (int k = 0; k < 4; ++k) {
      sum[k] += x[k], squares[k] += x[k] * x[k];
    }
    fourth += x[2] * x[2] * x[2] * x[2];
  }
  for (int k = 0; k < 4; ++k) {
    HR_ASSERT_NEAR(sum[k] / N, k < 2 ? 0.5 : 0, 0.01);
    HR_ASSERT_NEAR(squares[k] / N, k < 2 ? 1.0 / 3 : 1, 0.02);
  }
  HR_ASSERT_NEAR(fourth / N, 3, 0.1);
}

/* Box and Muller by libm from the same words: two numbers of two words. */
HR_TEST(normal_numbers_match_their_words) {
  for (int i = 0; i < 2000; ++i) {
    uint64_t pair = hr_philox_pair((uint64_t)i / 2, 3, 5);
    double u = ((double)(pair >> 32) + 1) * 0x1p-32, v = (double)(pair & 0xffffffffu) * 0x1p-32;
    double angle = 2 * 3.14159265358979323846 * v, exact = sqrt(-2 * log(u)) * (i % 2 == 0 ? cos(angle) : sin(angle));
    HR_ASSERT_NEAR(hr_f32_philox_normal(i, 3, 5), exact, 1e-7 * fmax(1, fabs(exact)));
  }
}

/* Neighbours share two words but must be statistically independent. */
HR_TEST(normal_neighbours_are_independent) {
  enum { N = 200000 };
  double products[4] = {0}, squares[4] = {0};
  for (int i = 0; i < N; ++i) {
    double x = hr_f32_philox_normal(i, 42, 7);
    for (int k = 0; k < 4; ++k) {
      double y = hr_f32_philox_normal(i + k + 1, 42, 7);
      products[k] += x * y, squares[k] += x * x * y * y;
    }
  }
  for (int k = 0; k < 4; ++k) {
    HR_ASSERT_NEAR(products[k] / N, 0, 0.01);
    HR_ASSERT_NEAR(squares[k] / N, 1, 0.03);
  }
}

/* The seeds come last. */
#define CHECK_RUN(NAME, T, ...)                                    \
  for (int64_t e = 0; e < count; ++e) {                            \
    T expected = NAME(first + e, __VA_ARGS__), *out = (T *)memory; \
    if (e == 0) {                                                  \
      memset(memory, 0x5a, sizeof memory);                         \
      NAME##_run(out, first, count, __VA_ARGS__);                  \
    }                                                              \
    HR_ASSERT_BYTES_EQ(&out[e], &expected, sizeof expected);       \
    HR_ASSERT_EQ(memory[(size_t)count * sizeof expected], 0x5a);   \
  }

/* Runs that begin and end anywhere in a group have the bits of single numbers and write nothing past their end. */
HR_TEST(runs_of_random_numbers_are_the_single_ones) {
  static _Alignas(8) unsigned char memory[8 * 1024];
  for (int i = 0; i < 60; ++i) {
    int64_t first = i < 2 ? ((int64_t)1 << 40) - 70 : i * 7 % 131, count = i < 20 ? 1 + i : 13 * i;
    CHECK_RUN(hr_f32_philox_uniform, float, 42, 7)
    CHECK_RUN(hr_f32_philox_normal, float, 42, 7)
    CHECK_RUN(hr_f64_philox_uniform, double, 42, 7)
    CHECK_RUN(hr_f64_philox_normal, double, 42, 7)
    CHECK_RUN(hr_i32_philox_bits, int32_t, 42, 7)
    CHECK_RUN(hr_u32_philox_bits, uint32_t, 42, 7)
    CHECK_RUN(hr_i64_philox_bits, int64_t, 42, 7)
    CHECK_RUN(hr_u64_philox_bits, uint64_t, 42, 7)
    CHECK_RUN(hr_i32_philox_words, int32_t, 42, -9, 3)
    CHECK_RUN(hr_u32_philox_words, uint32_t, 42, -9, 3)
    CHECK_RUN(hr_i64_philox_words, int64_t, 42, -9, 3)
    CHECK_RUN(hr_u64_philox_words, uint64_t, 42, -9, 3)
  }
}
