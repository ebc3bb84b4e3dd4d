/* The order of a reduction: a function of the shape alone, so that every device and tier agrees (docs/decisions.md,
 * Numbers). */
#include "core/ir/kernel.h"

hr_reduce_order hr_kernel_order(int rank, const int64_t *dims, uint32_t mask) {
  if (mask == 0) {
    return HR_ORDER_NONE;
  }
  int64_t reduced = 1;
  bool is_innermost_kept = false;
  for (int d = 0; d < rank; ++d) {
    bool is_reduced = (mask >> d & 1) != 0;
    if (dims[d] != 1) {
      is_innermost_kept = !is_reduced;
    }
    if (is_reduced && (reduced <= HR_REDUCE_SEQUENTIAL_MAX || dims[d] == 0)) { /* larger products could overflow */
      reduced *= dims[d];
    }
  }
  return is_innermost_kept || reduced <= HR_REDUCE_SEQUENTIAL_MAX ? HR_ORDER_SEQUENTIAL : HR_ORDER_LANES;
}
