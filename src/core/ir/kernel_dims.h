/* kernel_dims.h: the dims of a kernel's domain as loops want them: without dims of 1, in a good order, merged. */
#ifndef HEADRACE_CORE_KERNEL_DIMS_H_
#define HEADRACE_CORE_KERNEL_DIMS_H_

#include "core/ir/kernel.h"

typedef struct hr_dims { /* outermost first */
  int rank;
  int64_t dims[HR_RANK_MAX];
  int source[HR_RANK_MAX]; /* the kernel's dim whose stride is the merged dim's */
} hr_dims;

/* Kept dims, those with small strides inside, and the dims of `walked_mask` (reduced, ordered) in logical order;
 * adjacent dims that every access can merge are merged. True when the innermost dim of more than one element is walked.
 */
bool hr_kernel_split_dims(const hr_kernel *kernel, uint32_t walked_mask, hr_dims *out_kept, hr_dims *out_walked);

#endif
