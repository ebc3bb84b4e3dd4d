/* kernel_cache.h: one prepared kernel for each kernel form in use.
 *
 * The layers of a network, its steps and its shapes' common parts fuse to the same kernels again and again. Executables
 * share them: the first one that needs a form makes it, the last one that goes frees it. One cache serves a context: a
 * host kernel knows no device, and those of devices with a language of their own belong to one of them. Threads: any.
 *
 * A kernel is interpreted at first. What has been used some times goes to the compile queue, and when its code is
 * ready, hr__kernel_use gives that: between two launches, with the same bits (compile_queue.h).
 */
#ifndef HEADRACE_ENGINE_KERNEL_CACHE_H_
#define HEADRACE_ENGINE_KERNEL_CACHE_H_

#include "engine/cached_kernel.h"
#include "runtime/device.h"

/* A reference to the prepared kernel of a form. Of a device with a language of its own it can run after
 * hr__device_kernels_load. */
HR_MUST_USE hr_status hr__kernel_acquire(const hr_kernel *kernel, hr_device *device, hr_cached_kernel **out_cached);

/* Kernel forms in use. */
size_t hr__kernel_cache_count(void);

#endif
