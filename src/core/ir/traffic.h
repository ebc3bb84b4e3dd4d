/* traffic.h: the bytes and operations of a kernel or a contraction, for statistics, profiles and the decision what to
 * compile.
 *
 * Bytes are those of distinct elements. An element that is broadcast, read in two phases or covered by several windows
 * counts once; one out of bounds does not count. Exact for maps that nest (slices, transposes, strides, windows,
 * padding). For access through indices every element of the walk counts, up to the size of the buffer.
 */
#ifndef HEADRACE_CORE_TRAFFIC_H_
#define HEADRACE_CORE_TRAFFIC_H_

#include "core/ir/kernel.h"

/* The number of distinct elements that an affine map reaches inside its bounds. */
int64_t hr_distinct_elements(int rank, const int64_t *dims, const int64_t *strides, int bound_count,
                             const hr_bound *bounds);

/* Bytes of an operand of a contraction; 0 for numbers and absent ones. */
int64_t hr_operand_bytes(const hr_operand *operand);

/* Multiplications and additions of a contraction without its epilogues; 0 for other nodes. */
int64_t hr_node_flops(const hr_node *node);

/* Sets bytes_read and bytes_written of the arguments, and the kernel's bytes and flops (one for each arithmetic
 * instruction on an element or a row). `args` are the kernel's. */
void hr_kernel_count_traffic(const hr_program *program, hr_kernel *kernel, hr_kernel_arg *args);

#endif
