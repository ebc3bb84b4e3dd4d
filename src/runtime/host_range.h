/* host_range.h: the smallest and the largest of the integers that the host wrote to a buffer, or read from it.
 *
 *   x = tensor of labels from the host   -> {stamp of x, i64, 0, 9}
 *
 * The engine decides checks of indices with it (engine/index_source.h). A buffer holds one note; only this module reads
 * and writes it. A note is valid while the buffer's contents have the note's stamp (buffer.h).
 *
 * Threads: the caller's lock (engine/index_source.c).
 */
#ifndef HEADRACE_RUNTIME_HOST_RANGE_H_
#define HEADRACE_RUNTIME_HOST_RANGE_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "headrace/dtype.h"

/* All zero: nothing is known. */
typedef struct hr_host_range {
  uint64_t stamp; /* of the contents that it describes; 0: of none */
  hr_dtype dtype;
  int64_t min, max;
} hr_host_range;

/* True of the dtypes whose ranges are noted. */
static inline bool hr__host_range_covers(hr_dtype dtype) {
  return dtype == HR_DTYPE_I64 || dtype == HR_DTYPE_I32;
}

/* Notes `bytes` of `values` as the contents `stamp`. The range is unknown afterwards if the dtype has no ranges or
 * there are no values. */
void hr__host_range_note(hr_host_range *range, uint64_t stamp, hr_dtype dtype, const void *values, size_t bytes);

/* The range of the contents `stamp`, seen as `dtype`; false if unknown. */
bool hr__host_range_find(const hr_host_range *range, uint64_t stamp, hr_dtype dtype, int64_t *out_min,
                         int64_t *out_max);

#endif
