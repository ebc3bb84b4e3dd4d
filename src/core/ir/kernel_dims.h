/* kernel_dims.h: the dims of a kernel's domain prepared for loops: without dims of 1, in a good order, merged. */
#ifndef HEADRACE_CORE_KERNEL_DIMS_H_
#define HEADRACE_CORE_KERNEL_DIMS_H_

#include "core/ir/kernel.h"

typedef struct hr_dims { /* outermost first */
  int rank;
  int64_t dims[HR_RANK_MAX];
  int source[HR_RANK_MAX]; /* the kernel's dim whose stride is the merged dim's */
} hr_dims;

/* Splits the dims into the kept ones, small strides innermost, and those of `walked_mask` (reduced, ordered) in logical
 * order. Merges adjacent dims if every access allows it. True if the innermost dim of more than one element is in
 * walked_mask.
 */
bool hr_kernel_split_dims(const hr_kernel *kernel, uint32_t walked_mask, hr_dims *out_kept, hr_dims *out_walked);

#endif
