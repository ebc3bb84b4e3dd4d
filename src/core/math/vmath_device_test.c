/* The devices' complex functions, built from real ones, against C99's: exact for infinity, NaN and zeros with their
 * signs, near elsewhere.
 */
#define HR_VMATH_DEVICE
#include <complex.h>
#undef I
#include <math.h>

#include "core/math/vmath_complex.h"
#include "hr_test.h"

typedef hr_c128 (*function)(hr_c128 a);
typedef double complex (*reference)(double complex a);

static const double numbers[] = {0.0,   -0.0, 1,     -1,     0.5,    -2.5,   30,       -30,       400, -400,
                                 709.5, -710, 1e300, -1e300, 1e-300, 1e-310, INFINITY, -INFINITY, NAN};

/* A NaN's sign is arbitrary. */
static bool is_near(double actual, double expected) {
  if (isnan(expected)) {
    return isnan(actual);
  }
  if (isinf(expected) || expected == 0) {
    return actual == expected && !signbit(actual) == !signbit(expected);
  }
  return fabs(actual - expected) <= 1e-12 * fabs(expected) + 1e-300;
}

HR_TEST(complex_functions_of_devices_are_those_of_c) {
#define ROW(name) \
  { #name, hr_c128_##name, c##name }
  static const struct {
    const char *name;
    function own;
    reference c;
  } rows[] = {ROW(exp), ROW(log),  ROW(sqrt), ROW(sinh),  ROW(cosh),  ROW(tanh),  ROW(sin), ROW(cos),
              ROW(tan), ROW(acos), ROW(asin), ROW(acosh), ROW(asinh), ROW(atanh), ROW(atan)};
#undef ROW
  enum { COUNT = sizeof numbers / sizeof *numbers };
  for (size_t r = 0; r < sizeof rows / sizeof *rows; ++r) {
    for (int i = 0; i < COUNT * COUNT; ++i) {
      double re = numbers[i / COUNT], im = numbers[i % COUNT];
      hr_c128 actual = rows[r].own(hr_c128_make(re, im));
      double complex expected = rows[r].c(__builtin_complex(re, im));
      if (!is_near(actual.re, creal(expected)) || !is_near(actual.im, cimag(expected))) {
        HR_FAIL("%s(%g, %g) is (%.17g, %.17g), expected (%.17g, %.17g)", rows[r].name, re, im, actual.re, actual.im,
                creal(expected), cimag(expected));
      }
    }
  }
}

/* The sum of the parts' squares is 1, but for its last bits. */
HR_TEST(logarithms_near_the_unit_circle) {
  static const double points[][2] = {
      {1e-10, 1},   {-1, 1e-12},  {0x1.333334p-1, 0x1.99999ap-1}, {0x1.333332p-1, 0x1.99999ap-1},
      {0x1p-70, 1}, {1, 0x1p-30}, {0x1.fffffep-1, 0x1p-13},       {0x1.000002p0, 0x1p-20}};
  for (size_t i = 0; i < sizeof points / sizeof *points; ++i) {
    double re = points[i][0], im = points[i][1];
    hr_c128 actual = hr_c128_log(hr_c128_make(re, im));
    double complex expected = clog(__builtin_complex(re, im));
    if (!is_near(actual.re, creal(expected)) || !is_near(actual.im, cimag(expected))) {
      HR_FAIL("log(%a, %a) is (%.17g, %.17g), expected (%.17g, %.17g)", re, im, actual.re, actual.im, creal(expected),
              cimag(expected));
    }
  }
}
