/* kernel_cache.h: one prepared kernel for each kernel form in use.
 *
 * The layers of a network, its steps and its shapes' common parts fuse to the same kernels again and again. Executables share
 * them: the first one that needs a form makes it, the last one that goes frees it. One cache serves the process, because a host
 * kernel knows no device. Threads: any.
 */
#ifndef HEADRACE_ENGINE_KERNEL_CACHE_H_
#define HEADRACE_ENGINE_KERNEL_CACHE_H_

#include "base/host_kernel.h"
#include "core/kernel.h"

typedef struct hr_cached_kernel hr_cached_kernel;

/* A reference to the prepared kernel of a form. */
HR_MUST_USE hr_status hr__kernel_acquire(const hr_kernel *kernel, hr_cached_kernel **out_cached);
/* Gives a reference back; NULL is fine. */
void hr__kernel_release(hr_cached_kernel *cached);

const hr_host_kernel *hr__kernel_host(const hr_cached_kernel *cached);

/* Kernel forms in use. */
size_t hr__kernel_cache_count(void);

#endif
