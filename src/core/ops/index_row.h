/* index_row.h: the first integer of the rows INDEX and INDEX_PUT: a mask of dims, and a flag. */
#ifndef HEADRACE_CORE_INDEX_ROW_H_
#define HEADRACE_CORE_INDEX_ROW_H_

#include <stdbool.h>
#include <stdint.h>

/* The indices were bounded by who recorded the row: none is checked. */
#define HR_INDEX_BOUNDED (INT64_C(1) << 32)

static inline int64_t hr__index_mask(int64_t word) {
  return word & ~HR_INDEX_BOUNDED;
}
static inline bool hr__index_is_bounded(int64_t word) {
  return (word & HR_INDEX_BOUNDED) != 0;
}

#endif
