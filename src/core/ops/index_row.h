/* index_row.h: integers of rows with indices: which indices are not checked. */
#ifndef HEADRACE_CORE_INDEX_ROW_H_
#define HEADRACE_CORE_INDEX_ROW_H_

#include <stdbool.h>
#include <stdint.h>

/* Indices were bounded by who recorded the row: none is checked. A flag of the first integer of INDEX and INDEX_PUT,
 * beside a mask of dims; the third integer of SCATTER. */
#define HR_INDEX_BOUNDED (INT64_C(1) << 32)
#define HR_SCATTER_BOUNDED 2

static inline int64_t hr__index_mask(int64_t word) {
  return word & ~HR_INDEX_BOUNDED;
}
static inline bool hr__index_is_bounded(int64_t word) {
  return (word & HR_INDEX_BOUNDED) != 0;
}

#endif
