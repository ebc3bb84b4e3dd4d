/* Integer division and rounding, for sizes and shares of work. */
#ifndef HEADRACE_BASE_INTEGER_H_
#define HEADRACE_BASE_INTEGER_H_

#include <stddef.h>
#include <stdint.h>

static inline int64_t hr_min(int64_t a, int64_t b) {
  return a < b ? a : b;
}

static inline int64_t hr_max(int64_t a, int64_t b) {
  return a > b ? a : b;
}

/* a / b, rounded up; a >= 0, b > 0. */
static inline int64_t hr_divide_up(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

/* a / b, rounded down; b is not 0. */
static inline int64_t hr_divide_down(int64_t a, int64_t b) {
  return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

/* The least multiple of b that is not below a; a >= 0, b > 0. */
static inline int64_t hr_round_up(int64_t a, int64_t b) {
  return hr_divide_up(a, b) * b;
}

/* The bytes up to the next multiple of `alignment`, a power of two. */
static inline size_t hr_align_up(size_t bytes, size_t alignment) {
  return (bytes + alignment - 1) & ~(alignment - 1);
}

#endif /* HEADRACE_BASE_INTEGER_H_ */
