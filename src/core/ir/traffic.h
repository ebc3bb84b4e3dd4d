/* traffic.h: what a kernel or a contraction reads, writes and computes: for statistics, profiles and the choice of what
 * to compile.
 *
 * Bytes are those of distinct elements: what is broadcast, read in two phases or seen by several windows counts once,
 * what lies out of bounds not at all. Exact for maps that nest (slices, transposes, strides, windows, padding); where
 * indices decide, every element of the walk counts, up to the size of the buffer.
 */
#ifndef HEADRACE_CORE_TRAFFIC_H_
#define HEADRACE_CORE_TRAFFIC_H_

#include "core/ir/kernel.h"

/* How many different elements an affine map reaches inside of its bounds. */
int64_t hr_distinct_elements(int rank, const int64_t *dims, const int64_t *strides, int bound_count,
                             const hr_bound *bounds);

/* Bytes of an operand of a contraction; 0 for numbers and absent ones. */
int64_t hr_operand_bytes(const hr_operand *operand);

/* Multiplications and additions of a contraction, epilogues aside; 0 for other nodes. */
int64_t hr_node_flops(const hr_node *node);

/* Fills in bytes_read and bytes_written of the arguments, and the kernel's bytes and flops: its arithmetic, one for
 * each instruction on an element or a row. `args` are the kernel's. */
void hr_kernel_count_traffic(const hr_program *program, hr_kernel *kernel, hr_kernel_arg *args);

#endif
