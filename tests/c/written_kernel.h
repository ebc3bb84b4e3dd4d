/* written_kernel.h: kernels that providers write as texts (`write` in provider.h): run on the host by the emulator
 * (device_emulator.h), and compiled for CUDA devices. */
#ifndef HEADRACE_TESTS_WRITTEN_KERNEL_H_
#define HEADRACE_TESTS_WRITTEN_KERNEL_H_

#include "base/host_kernel.h"
#include "providers/provider.h"

/* The node's text, written by its provider. A text is compiled once per process, and needs a compiler
 * (hr__has_compiler). */
HR_MUST_USE hr_status hr__written_create(const hr_provider *provider, const hr_program *program, const hr_node *node,
                                         hr_host_kernel **out_kernel);
/* Runs all passes of such a kernel. Their workspace is NaN at first; INTERNAL if bytes after its end are written. */
HR_MUST_USE hr_status hr__written_run(const hr_host_kernel *kernel, void *const *args, const hr_scalar *scalars);

/* True if CUDA's compiler accepts the provider's text of the program's first node; *out_is_there: there is NVRTC. */
HR_MUST_USE hr_status hr__written_compile(const hr_provider *provider, const hr_program *program, int architecture,
                                          bool *out_is_there);

#endif
