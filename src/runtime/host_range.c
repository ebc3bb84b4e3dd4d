/* host_range.c: one pass over the values that the host writes. */
#include "runtime/host_range.h"

#define RANGE_OF(type)                   \
  do {                                   \
    const type *v = values;              \
    type min = v[0], max = v[0];         \
    for (size_t i = 1; i < count; ++i) { \
      min = v[i] < min ? v[i] : min;     \
      max = v[i] > max ? v[i] : max;     \
    }                                    \
    range->min = (int64_t)min;           \
    range->max = (int64_t)max;           \
  } while (0)

void hr__host_range_note(hr_host_range *range, uint64_t stamp, hr_dtype dtype, const void *values, size_t bytes) {
  size_t count = bytes / (dtype == HR_DTYPE_I64 ? sizeof(int64_t) : sizeof(int32_t));
  range->stamp = 0;
  if (!hr__host_range_covers(dtype) || count == 0) {
    return;
  }
  if (dtype == HR_DTYPE_I64) {
    RANGE_OF(int64_t);
  } else {
    RANGE_OF(int32_t);
  }
  range->dtype = dtype;
  range->stamp = stamp;
}

bool hr__host_range_find(const hr_host_range *range, uint64_t stamp, hr_dtype dtype, int64_t *out_min,
                         int64_t *out_max) {
  if (stamp == 0 || range->stamp != stamp || range->dtype != dtype) {
    return false;
  }
  *out_min = range->min;
  *out_max = range->max;
  return true;
}
