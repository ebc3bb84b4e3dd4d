/* Polynomials are found from samples, and only if they also give the samples that they were not made from. */
#include "hr_test.h"

#include "base/polynomial.h"

enum { COUNT = 8 };
static const int64_t xs[COUNT] = {16, 304, 40, 8, 112, 64, 24, 256}, ys[COUNT] = {5, 7, 100, 3, 64, 12, 31, 2};

typedef int64_t (*number_fn)(int64_t x, int64_t y);

static bool fits(int count, number_fn number, bool has_y, hr_polynomial *out) {
  int64_t values[COUNT];
  for (int i = 0; i < count; ++i) {
    values[i] = number(xs[i], ys[i]);
  }
  return hr_polynomial_fit(count, xs, has_y ? ys : NULL, values, out);
}

/* Found, and right elsewhere. */
static void check(int count, number_fn number, bool has_y) {
  hr_polynomial p;
  int64_t value;
  HR_ASSERT(fits(count, number, has_y, &p));
  for (int64_t x = 0; x < 2000; x += 8) {
    int64_t y = has_y ? 2000 - x : 0;
    HR_ASSERT(hr_polynomial_at(&p, x, y, &value));
    HR_ASSERT_EQ(value, number(x, y));
  }
}

static int64_t constant(int64_t x, int64_t y) {
  return (void)x, (void)y, 42;
}
static int64_t bytes(int64_t x, int64_t y) {
  return (void)y, 256 * x;
}
static int64_t last(int64_t x, int64_t y) {
  return (void)y, 768 * x - 1;
}
static int64_t quarter(int64_t x, int64_t y) {
  return (void)y, x / 8 + 1;
}
static int64_t scores(int64_t x, int64_t y) {
  return (void)y, 12 * x * x - 7 * x + 3;
}
static int64_t pairs(int64_t x, int64_t y) {
  return (void)y, 64 * (x * (x + 1) / 2);
}
static int64_t pixels(int64_t x, int64_t y) {
  return 16 * x * y;
}
static int64_t border(int64_t x, int64_t y) {
  return (x + 2) * (y + 3);
}
static int64_t bytes_of_both(int64_t x, int64_t y) {
  return 3 * x + 5 * y - 8;
}
static int64_t least(int64_t x, int64_t y) {
  return (void)y, x < 100 ? x : 100;
}
static int64_t rounded(int64_t x, int64_t y) {
  return (void)x, (y + 7) / 8 * 8;
}
static int64_t cubes(int64_t x, int64_t y) {
  return (void)y, x * x * x;
}

static int64_t scores_of_both(int64_t x, int64_t y) {
  return 8 * x * x * y;
}
static int64_t scores_and_rows(int64_t x, int64_t y) {
  return 4 * x * y * y + 12 * x * y;
}

HR_TEST(numbers_of_one_dim) {
  const number_fn all[] = {constant, bytes, last, quarter, scores};
  for (size_t i = 0; i < sizeof all / sizeof *all; ++i) {
    check(4, all[i], false);
    check(COUNT, all[i], false);
  }
}

HR_TEST(three_samples_are_enough_for_pairs) {
  check(3, pairs, false);
}

HR_TEST(numbers_of_two_dims) {
  const number_fn all[] = {bytes, pixels, border, bytes_of_both, scores, scores_of_both, scores_and_rows};
  for (size_t i = 0; i < sizeof all / sizeof *all; ++i) {
    check(COUNT, all[i], true);
  }
}

/* The first samples have one x, as when a batch stays and its length changes. */
HR_TEST(samples_in_any_order) {
  static const int64_t x[COUNT] = {4, 4, 4, 4, 4, 8, 3, 2}, y[COUNT] = {60, 59, 58, 57, 56, 56, 55, 54};
  int64_t values[COUNT], value;
  hr_polynomial p;
  for (int i = 0; i < COUNT; ++i) {
    values[i] = border(x[i], y[i]);
  }
  HR_ASSERT(hr_polynomial_fit(COUNT, x, y, values, &p));
  HR_ASSERT(hr_polynomial_at(&p, 100, 7, &value) && value == border(100, 7));
}

HR_TEST(other_numbers_have_none) {
  hr_polynomial p;
  HR_ASSERT(!fits(COUNT, least, false, &p));
  HR_ASSERT(!fits(COUNT, rounded, true, &p));
  HR_ASSERT(!fits(COUNT, cubes, false, &p));
  HR_ASSERT(!fits(3, scores, false, &p)); /* three samples give any square: nothing is left to check it on */
  HR_ASSERT(!fits(2, last, false, &p));
}

HR_TEST(values_are_whole_and_bounded) {
  hr_polynomial p = {.coefficients = {0, 1}, .denominator = 4};
  int64_t value;
  HR_ASSERT(hr_polynomial_at(&p, 12, 0, &value) && value == 3);
  HR_ASSERT(!hr_polynomial_at(&p, 13, 0, &value));
  HR_ASSERT(!hr_polynomial_at(&p, -4, 0, &value));
  p = (hr_polynomial){.coefficients = {[3] = INT64_C(1) << 40}, .denominator = 1};
  HR_ASSERT(!hr_polynomial_at(&p, INT64_C(1) << 30, 0, &value));
  HR_ASSERT(!hr_polynomial_at(&p, INT64_C(1) << 40, 0, &value));
}
