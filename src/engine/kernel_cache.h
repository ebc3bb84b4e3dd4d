/* kernel_cache.h: one prepared kernel for each kernel form in use.
 *
 * The layers of a network, its steps and the common parts of its shapes fuse to the same kernels again and again.
 * Executables share them: the first one that needs a form creates it, the last release frees it. One cache serves a
 * context: a host kernel depends on no device, and kernels of devices with a language of their own belong to one of
 * them. Threads: any.
 *
 * A kernel is interpreted at first. After some uses it goes to the compile queue. When its code is ready,
 * hr__kernel_use returns the compiled kernel: the change happens between two launches, with the same bits
 * (compile_queue.h).
 */
#ifndef HEADRACE_ENGINE_KERNEL_CACHE_H_
#define HEADRACE_ENGINE_KERNEL_CACHE_H_

#include "engine/cached_kernel.h"
#include "runtime/device.h"

/* A reference to the prepared kernel of a form. A kernel of a device with a language of its own can run after
 * hr__device_kernels_load. */
HR_MUST_USE hr_status hr__kernel_acquire(const hr_kernel *kernel, hr_device *device, hr_cached_kernel **out_cached);

/* A kernel that lookups don't find, for dims that come once: it stays interpreted, or has a text for all shapes.
 * `last`: NULL, or one of the same structure, with whose numbers it can be renumbered. */
HR_MUST_USE hr_status hr__kernel_create_private(const hr_kernel *kernel, hr_device *device,
                                                const hr_cached_kernel *last, hr_cached_kernel **out_cached);
/* Gives a private kernel, of which nobody has more references than the caller's, the numbers of another one of its
 * structure. False: it is as it was. */
bool hr__kernel_renumber(hr_cached_kernel *cached, const hr_kernel *kernel, int own_references);
bool hr__kernel_is_private(const hr_cached_kernel *cached);

/* Kernel forms in use, without private ones. */
size_t hr__kernel_cache_count(void);

#endif
