/* hlo_windows.h: windows of reduce_window and select_and_scatter. */
#ifndef HEADRACE_IMPORTERS_STABLEHLO_HLO_WINDOWS_H_
#define HEADRACE_IMPORTERS_STABLEHLO_HLO_WINDOWS_H_

#include "importers/stablehlo/hlo.h"

typedef struct hr__hlo_windows {
  int count, rank; /* operands; their dims */
  int64_t dims[HR_RANK_MAX], size[HR_RANK_MAX], stride[HR_RANK_MAX], before[HR_RANK_MAX], after[HR_RANK_MAX];
  int64_t dilation[HR_RANK_MAX], distance[HR_RANK_MAX]; /* of a window's elements, of x's elements */
} hr__hlo_windows;

/* True if windows have few elements in common: the row reads each window as a whole. */
bool hr__hlo_windows_have_row(const hr__hlo_windows *w);

/* The largest element of each window, and operand 2 with the sums of those of operand 1 at the largest elements of
 * windows. 0: windows are those of no pool, or a failure (hlo_pools.c). */
hr_value hr__hlo_max_pool(hr__hlo *hlo, const hr__hlo_windows *w, hr_value x);
hr_value hr__hlo_max_pool_gradient(hr__hlo *hlo, const hr__hlo_windows *w);

#endif
