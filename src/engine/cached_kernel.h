/* cached_kernel.h: a kernel of the cache (kernel_cache.c), for those that run it and for the compile queue. */
#ifndef HEADRACE_ENGINE_CACHED_KERNEL_H_
#define HEADRACE_ENGINE_CACHED_KERNEL_H_

#include "base/host_kernel.h"
#include "core/ir/kernel.h"

typedef struct hr_cached_kernel hr_cached_kernel;

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

/* ---- for the compile queue ---- */

const hr_kernel_key *hr__kernel_key(const hr_cached_kernel *cached);
/* Makes compiled code what is launched from now on; takes it over. Once for a kernel. */
void hr__kernel_publish(hr_cached_kernel *cached, hr_host_kernel *compiled);
/* Whether anybody but the caller has a reference. */
bool hr__kernel_is_wanted(const hr_cached_kernel *cached);

#endif
