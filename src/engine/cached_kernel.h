/* cached_kernel.h: a kernel of the cache (kernel_cache.c), as its users and the compile queue see it. */
#ifndef HEADRACE_ENGINE_CACHED_KERNEL_H_
#define HEADRACE_ENGINE_CACHED_KERNEL_H_

#include "base/host_kernel.h"
#include "core/ir/kernel.h"

typedef struct hr_cached_kernel hr_cached_kernel;

void hr__kernel_retain(hr_cached_kernel *cached);
/* Retains kernels of the current context. */
void hr__kernels_retain(int count, hr_cached_kernel *const *kernels);
/* Releases a reference; NULL is fine. */
void hr__kernel_release(hr_cached_kernel *cached);

/* The kernel as it was made (interpreted, on the host). Its workspace suffices for the compiled one. */
const hr_host_kernel *hr__kernel_host(const hr_cached_kernel *cached);
/* The kernel to launch now; counts as a use. Valid as long as the caller's reference. */
const hr_host_kernel *hr__kernel_use(hr_cached_kernel *cached);
/* Adds to the number of holders: steps of cached programs. A general plan's instance holds nothing
 * (general_instance.h), since it leaves a kernel with its next key. */
void hr__kernel_hold(hr_cached_kernel *cached, int change);
/* Its host memory, divided by its holders, about. */
size_t hr__kernel_footprint(hr_cached_kernel *cached);
/* True if interpreted launches should be timed: the kernel is large, and not in the compile queue yet. */
bool hr__kernel_is_timed(const hr_cached_kernel *cached);
/* Adds the time of an interpreted launch: kernels that take long for their bytes are compiled sooner. */
void hr__kernel_spend(hr_cached_kernel *cached, int64_t ns);

/* ---- for the compile queue ---- */

/* The kernel form, from its key (hr_kernel_from_key). Not of private ones. */
hr_kernel *hr__kernel_form(const hr_cached_kernel *cached, hr_arena *arena);
/* From now on launches run this compiled code; takes it over. Once for a kernel. */
void hr__kernel_publish(hr_cached_kernel *cached, hr_host_kernel *compiled);
bool hr__kernel_has_code(const hr_cached_kernel *cached);
/* True if there are references other than the caller's. */
bool hr__kernel_is_wanted(const hr_cached_kernel *cached);
/* Lets the kernel be interpreted on, until it has been so many times as much as before; then it is pushed to the
 * compile queue again. Once: false if it has been already, or if executables wait for code. */
bool hr__kernel_postpone(hr_cached_kernel *cached, int times);

#endif
