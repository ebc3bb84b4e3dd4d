/* windows.h: windows along dims of a tensor, as views whose elements overlap; padding is a copy. */
#ifndef HEADRACE_FUNCTIONAL_WINDOWS_H_
#define HEADRACE_FUNCTIONAL_WINDOWS_H_

#include "functional/formula.h"

/* Windows along `count` dims of a tensor, which begin at dim `first`. */
typedef struct hr__windows {
  int first, count;
  int64_t size[HR_RANK_MAX], stride[HR_RANK_MAX], before[HR_RANK_MAX], after[HR_RANK_MAX];
  int64_t dilation[HR_RANK_MAX], input_dilation[HR_RANK_MAX];
} hr__windows;

/* The attribute's integers, one for each of `count` dims, or `value` for each without it. */
hr_status hr__window_list(const hr__function_call *c, int index, int count, int64_t value, int64_t least, int64_t *out);
/* x with `value` on both sides of the windows' dims; negative numbers remove elements. */
const hr_tensor *hr__window_sides(hr__formula *f, const hr_tensor *x, const hr__windows *w, hr_scalar value);
/* The places behind the first at which a window of a dim of this size, with its padding, may begin; -1 or less: none.
 */
int64_t hr__window_room(const hr__windows *w, int d, int64_t size);
/* The number of windows of a dim of this size, with its padding. */
int64_t hr__window_count(const hr__windows *w, int d, int64_t size);
/* x's windows as a view: the dims of windows, then those inside of them, which are behind all others. */
const hr_tensor *hr__window_view(hr__formula *f, const hr_tensor *x, const hr__windows *w);
/* True if the padding of each dim is the same on both sides. */
bool hr__windows_are_even(const hr__windows *w);
/* The lowest or highest number of a dtype. */
hr_scalar hr__extreme(hr_dtype dtype, bool is_highest);

#endif
