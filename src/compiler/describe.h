/* describe.h: describes a step of a schedule for people: its traffic, its arithmetic and its line in a profile.
 *
 *   relu_sub_square_sum_div, [64]x[16]                          a kernel and its domain; dims in brackets are reduced
 *   conv 1x64x56x56 * 64x64x3x3 by onednn, + bias + relu        a contraction, its factors and its epilogues
 *
 * A kernel's name ends at the comma, so that a script can add up its lines.
 */
#ifndef HEADRACE_COMPILER_DESCRIBE_H_
#define HEADRACE_COMPILER_DESCRIBE_H_

#include "compiler/compile.h"

typedef struct hr_step_cost {
  int64_t bytes_read, bytes_written; /* of distinct elements: core/ir/traffic.h */
  int64_t flops;                     /* a kernel's arithmetic, or a contraction's multiplications and additions */
} hr_step_cost;

void hr_step_count_cost(const hr_step *step, hr_step_cost *out_cost);

/* `name`: of the function that a call runs, else NULL. `provider`: that of a library step; NULL for others. */
void hr_step_describe(const hr_step *step, const char *name, const char *provider, hr_text *text);

/* "64x16": dims without those of 1; those in the mask in brackets. "1" if none is left. */
void hr_dims_describe(int rank, const int64_t *dims, uint32_t bracket_mask, hr_text *text);

#endif
