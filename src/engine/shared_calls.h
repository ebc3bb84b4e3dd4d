/* shared_calls.h: library calls of one program that can run the same prepared object.
 *
 *   %5 = matmul(%1, w)   prepared
 *   %9 = matmul(%4, w)   runs what was prepared for %5: the same dtypes, dims and strides, the same weights
 *
 * A recurrent network repeats one product for each time step. Preparing it takes a library longer than running it.
 * Two calls are alike if a provider can't tell them apart by what it may read (provider.h):
 *
 * - the row, its integers and epilogues,
 * - each operand's dtype, dims, strides and alignment, and which operands of the node are the same buffer,
 * - for a caller's buffer that the program only reads its number and the offset, if prepared objects cache what they
 * derive from its contents (a GPU's libraries cache nothing),
 * - for other buffers whether they are dead afterwards.
 *
 * The offsets of other buffers may differ: the run moves the addresses by the difference.
 * Calls run one after the other on the thread that runs the host's jobs, so they may share state between runs.
 */
#ifndef HEADRACE_ENGINE_SHARED_CALLS_H_
#define HEADRACE_ENGINE_SHARED_CALLS_H_

#include "base/table.h"
#include "base/vector.h"
#include "core/ir/program.h"

enum { HR_SHARED_ARGS_MAX = 16 }; /* calls with more arguments are prepared by themselves */

/* Zeroed: no calls yet. Used while one instance is prepared. */
typedef struct hr_shared_calls {
  hr_table first; /* the first call of each kind, by the hash of its description */
  HR_VECTOR(uint64_t) words;
} hr_shared_calls;

/* The number `call` (from 1) of an earlier node that is like this one; 0: there is none, or no host memory, and `call`
 * stands for the nodes like it from now on. Buffers below `caller_buffers` are the
 * caller's; 0 for libraries that cache nothing. */
size_t hr__shared_calls_find(hr_shared_calls *calls, const hr_program *program, const hr_node *node,
                             uint32_t caller_buffers, size_t call);
void hr__shared_calls_fini(hr_shared_calls *calls);

#endif
