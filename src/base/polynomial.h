/* polynomial.h: integers as polynomials of one or two other integers.
 *
 * The dims, strides, offsets and sizes of a program are polynomials of the few dims that differ from call to call:
 * 256 * n, n * n, h * w / 4 + 1. They are found from samples, and a polynomial counts as found only if it also gives
 * samples that it was not made from.
 *
 * Threads: any; no state.
 */
#ifndef HEADRACE_BASE_POLYNOMIAL_H_
#define HEADRACE_BASE_POLYNOMIAL_H_

#include <stdbool.h>
#include <stdint.h>

enum { HR_MONOMIALS = 8 };

/* (c[0] + c[1] x + c[2] y + c[3] x^2 + c[4] xy + c[5] y^2 + c[6] x^2 y + c[7] xy^2) / denominator */
typedef struct hr_polynomial {
  int64_t coefficients[HR_MONOMIALS];
  int64_t denominator;
} hr_polynomial;

/* Finds the polynomial with the fewest terms that gives values[i] at (x[i], y[i]) for all i, from fewer samples than it
 * is checked on. False: there is none with these terms and a small denominator, or there are too few samples. `y`: NULL
 * for polynomials of x alone. */
bool hr_polynomial_fit(int count, const int64_t *x, const int64_t *y, const int64_t *values, hr_polynomial *out);
/* Its value; false if that is no integer, or larger than 2^60. */
bool hr_polynomial_at(const hr_polynomial *p, int64_t x, int64_t y, int64_t *out_value);

#endif
