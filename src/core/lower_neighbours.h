/* lower_neighbours.h: weighted sums of neighbours along a dim, where a table says which.
 *
 *   y[i] = sum over k of x[first[i] + k] * weight[k, i], where is_there[k, i]
 *
 * Resampling's gradients and average pools over windows of unequal widths are of this kind. An element that is not there counts
 * nothing, even if it is infinite.
 */
#ifndef HEADRACE_CORE_LOWER_NEIGHBOURS_H_
#define HEADRACE_CORE_LOWER_NEIGHBOURS_H_

#include "core/lower.h"

typedef struct hr__neighbours {
  int64_t count;       /* of each element, at most */
  hr_operand first;    /* i64 [n]; all `count` from there on exist */
  hr_operand is_there; /* bool [count, n] */
  hr_operand weight;   /* [count, n]; absent: 1 */
} hr__neighbours;

/* x with `n` elements along `dim`, in `dtype`. Absent where the dims do not suffice. */
hr_operand hr__make_sum_of_neighbours(hr_builder *b, hr_operand x, const hr__neighbours *s, int dim, hr_dtype dtype);

#endif
