#include "base/polynomial.h"

#include <math.h>
#include <stddef.h>

enum { SAMPLES_MAX = 32, DENOMINATOR_MAX = 64 };
static const __int128 VALUE_MAX = (__int128)1 << 60;
static const int64_t VARIABLE_MAX = INT64_C(1) << 31;

/* Sets of monomials, a bit for each, the simplest first. Those of two variables are at the end. */
static const unsigned sets[] = {
    0x1,  0x2,  0x3,  0x8,  0xa,  0xb,                          /* 1; x; 1 x; x^2; x x^2; 1 x x^2 */
    0x4,  0x5,  0x10, 0x20, 0x7,  0x12, 0x14, 0x11, 0x25, 0x17, /* y; 1 y; xy; y^2; 1 x y; x xy; y xy; 1 xy; .. */
    0x40, 0x80, 0x50, 0x90, 0x54, 0x92, 0x41, 0x81,             /* x^2 y; xy^2; and with xy, with y or x, with 1 */
};
enum { SETS = sizeof sets / sizeof *sets, SETS_OF_ONE = 6 };

static void monomials_at(int64_t x, int64_t y, __int128 m[HR_MONOMIALS]) {
  m[0] = 1, m[1] = x, m[2] = y, m[3] = (__int128)x * x, m[4] = (__int128)x * y, m[5] = (__int128)y * y;
  m[6] = m[3] * y, m[7] = m[5] * x;
}

bool hr_polynomial_at(const hr_polynomial *p, int64_t x, int64_t y, int64_t *out_value) {
  __int128 m[HR_MONOMIALS], sum = 0;
  if (x < 0 || y < 0 || x > VARIABLE_MAX || y > VARIABLE_MAX) {
    return false;
  }
  monomials_at(x, y, m);
  for (int i = 0; i < HR_MONOMIALS; ++i) {
    __int128 term = 0;
    if (__builtin_mul_overflow(m[i], (__int128)p->coefficients[i], &term) || __builtin_add_overflow(sum, term, &sum)) {
      return false;
    }
  }
  __int128 value = sum / p->denominator;
  *out_value = (int64_t)value;
  return value * p->denominator == sum && value < VALUE_MAX && value > -VALUE_MAX;
}

/* ---- fitting ---- */

typedef struct system {
  int size, count;
  long double rows[SAMPLES_MAX][HR_MONOMIALS + 1];
} system;

/* Gaussian elimination with pivots among all samples; false: they don't determine the coefficients. */
static bool solve(system *s, long double *solution) {
  for (int c = 0; c < s->size; ++c) {
    int pivot = c;
    for (int r = c + 1; r < s->count; ++r) {
      pivot = fabsl(s->rows[r][c]) > fabsl(s->rows[pivot][c]) ? r : pivot;
    }
    if (fabsl(s->rows[pivot][c]) < 1e-9L) {
      return false;
    }
    for (int k = 0; k <= s->size; ++k) {
      long double swapped = s->rows[c][k];
      s->rows[c][k] = s->rows[pivot][k];
      s->rows[pivot][k] = swapped;
    }
    for (int r = 0; r < s->count; ++r) {
      long double factor = r != c ? s->rows[r][c] / s->rows[c][c] : 0;
      for (int k = c; factor != 0 && k <= s->size; ++k) {
        s->rows[r][k] -= factor * s->rows[c][k];
      }
    }
  }
  for (int c = 0; c < s->size; ++c) {
    solution[c] = s->rows[c][s->size] / s->rows[c][c];
  }
  return true;
}

/* The coefficients as fractions with one small denominator. */
static bool round_to_fractions(int size, const long double *solution, const int *monomials, hr_polynomial *out) {
  for (int64_t d = 1; d <= DENOMINATOR_MAX; ++d) {
    bool is = true;
    *out = (hr_polynomial){.denominator = d};
    for (int i = 0; is && i < size; ++i) {
      long double c = solution[i] * (long double)d, nearest = roundl(c);
      is = fabsl(nearest) < 1e18L && fabsl(c - nearest) < 1e-6L * (1 + fabsl(nearest) * 1e-6L);
      out->coefficients[monomials[i]] = is ? (int64_t)nearest : 0;
    }
    if (is) {
      return true;
    }
  }
  return false;
}

static bool gives_all(const hr_polynomial *p, int count, const int64_t *x, const int64_t *y, const int64_t *values) {
  bool is = true;
  for (int i = 0; is && i < count; ++i) {
    int64_t value;
    is = hr_polynomial_at(p, x[i], y != NULL ? y[i] : 0, &value) && value == values[i];
  }
  return is;
}

/* Solved on as many samples as there are coefficients, and checked on all. */
static bool fit_set(unsigned set, int count, const int64_t *x, const int64_t *y, const int64_t *values,
                    hr_polynomial *out) {
  int monomials[HR_MONOMIALS], size = 0;
  for (int i = 0; i < HR_MONOMIALS; ++i) {
    if ((set >> i & 1) != 0) {
      monomials[size++] = i;
    }
  }
  system s = {.size = size, .count = count};
  long double solution[HR_MONOMIALS];
  if (count <= size) {
    return false;
  }
  for (int r = 0; r < count; ++r) {
    __int128 m[HR_MONOMIALS];
    monomials_at(x[r], y != NULL ? y[r] : 0, m);
    for (int c = 0; c < size; ++c) {
      s.rows[r][c] = (long double)m[monomials[c]];
    }
    s.rows[r][size] = (long double)values[r];
  }
  return solve(&s, solution) && round_to_fractions(size, solution, monomials, out) &&
         gives_all(out, count, x, y, values);
}

bool hr_polynomial_fit(int count, const int64_t *x, const int64_t *y, const int64_t *values, hr_polynomial *out) {
  int sets_used = y != NULL ? (int)SETS : (int)SETS_OF_ONE;
  for (int i = 0; count <= SAMPLES_MAX && i < sets_used; ++i) {
    if (fit_set(sets[i], count, x, y, values, out)) {
      return true;
    }
  }
  return false;
}
