/* lower_neighbours.h: weighted sums of neighbours along a dim, selected by a table.
 *
 *   y[i] = sum over k of x[first[i] + k] * weight[k, i], where is_there[k, i]
 *
 * Used by the gradients of resampling and of average pools. An element outside the table contributes nothing, even if
 * it is infinite.
 */
#ifndef HEADRACE_CORE_LOWER_NEIGHBOURS_H_
#define HEADRACE_CORE_LOWER_NEIGHBOURS_H_

#include "core/ops/lower.h"

typedef struct hr__neighbours {
  int64_t count;       /* per element, at most */
  hr_operand first;    /* i64 [n]; all `count` elements from there on exist */
  hr_operand is_there; /* bool [count, n] */
  hr_operand weight;   /* [count, n]; absent: 1 */
} hr__neighbours;

/* x with `n` elements along `dim`, in `dtype`. Absent if the rank leaves no room for a dim. */
hr_operand hr__make_sum_of_neighbours(hr_builder *b, hr_operand x, const hr__neighbours *s, int dim, hr_dtype dtype);

/* Neighbours of weight 1: element i is the sum of x from start[i] to start[i] + size[i], `width` at most. */
typedef struct hr__runs {
  int64_t width;
  bool has_gaps;          /* some sizes are 0 */
  hr_operand start, size; /* i64 [n] */
} hr__runs;

hr_operand hr__make_sum_of_runs(hr_builder *b, hr_operand x, int dim, const hr__runs *r, hr_dtype dtype);

#endif
