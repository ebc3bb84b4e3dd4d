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

#include "base/host_kernel.h"
#include "core/ir/kernel.h"
#include "runtime/device.h"

typedef struct hr_cached_kernel hr_cached_kernel;

/* A reference to the prepared kernel of a form. Of a device with a language of its own it can run after
 * hr__device_kernels_load. */
HR_MUST_USE hr_status hr__kernel_acquire(const hr_kernel *kernel, hr_device *device, hr_cached_kernel **out_cached);
/* Gives a reference back; NULL is fine. */
void hr__kernel_release(hr_cached_kernel *cached);

/* The kernel as it was made, on the host interpreted: its workspace is enough for the compiled one. */
const hr_host_kernel *hr__kernel_host(const hr_cached_kernel *cached);
/* What to launch now; counts as a use. Valid as long as the caller's reference. */
const hr_host_kernel *hr__kernel_use(hr_cached_kernel *cached);
/* Whether it is worth a look at the clock how long the kernel is interpreted: it is large, and is not yet to be
 * compiled. */
bool hr__kernel_is_timed(const hr_cached_kernel *cached);
/* How long an interpreted launch took: what takes long for its bytes is compiled sooner. */
void hr__kernel_spend(hr_cached_kernel *cached, int64_t ns);

/* Kernel forms in use. */
size_t hr__kernel_cache_count(void);

/* ---- for the compile queue ---- */

const hr_kernel_key *hr__kernel_key(const hr_cached_kernel *cached);
/* Makes compiled code what is launched from now on; takes it over. Once for a kernel. */
void hr__kernel_publish(hr_cached_kernel *cached, hr_host_kernel *compiled);
/* Whether anybody but the caller has a reference. */
bool hr__kernel_is_wanted(const hr_cached_kernel *cached);

#endif
