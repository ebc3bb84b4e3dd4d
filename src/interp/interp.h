/* interp.h: the block interpreter: a kernel form as a host kernel, without a compiler.
 *
 * Every instruction runs over a block of about 1,024 elements that stays in L1, in loops compiled ahead of time from
 * ops.def. The result has the same bits as in every other tier and for any number of threads.
 */
#ifndef HEADRACE_INTERP_INTERP_H_
#define HEADRACE_INTERP_INTERP_H_

#include "base/cpu.h"
#include "base/host_kernel.h"
#include "core/ir/kernel.h"

/* Translates `kernel` (which may be freed afterwards). UNIMPLEMENTED names the instruction that has no loop. `last`:
 * one of a kernel of the same structure, or NULL; the new one has room for the numbers of both. */
HR_MUST_USE hr_status HR_CPU_NAME(hr_interp_create_like)(const hr_kernel *kernel, const hr_host_kernel *last,
                                                         hr_host_kernel **out_host_kernel);
#if !defined(HR_CPU_LEVEL)
HR_MUST_USE static inline hr_status hr_interp_create(const hr_kernel *kernel, hr_host_kernel **out_host_kernel) {
  return hr_interp_create_like(kernel, NULL, out_host_kernel);
}
#endif
/* Gives a plan the numbers of another kernel of the same structure (compiler/numbers.h), while nothing runs it. False:
 * it must be created anew, and is as it was. */
bool HR_CPU_NAME(hr_interp_renumber)(hr_host_kernel *host_kernel, const hr_kernel *kernel);

#endif
