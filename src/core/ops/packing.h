/* packing.h: the ints of quantized_matmul: how words hold numbers. */
#ifndef HEADRACE_CORE_OPS_PACKING_H
#define HEADRACE_CORE_OPS_PACKING_H

#include <stdbool.h>
#include <stdint.h>

typedef struct hr_packing {
  int64_t bits, group; /* of a number; numbers with one scale */
  bool has_columns;    /* numbers [K, N], else [N, K] */
  bool is_float;       /* numbers of 4 bits are e2m1, of 8 e4m3 */
} hr_packing;

/* ints: at least two; absent ones are 0. */
static inline hr_packing hr_packing_of(const int64_t *ints, int count) {
  return (hr_packing){.bits = ints[0],
                      .group = ints[1],
                      .has_columns = count > 2 && ints[2] != 0,
                      .is_float = count > 3 && ints[3] != 0};
}

#endif
