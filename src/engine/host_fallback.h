/* host_fallback.h: runs library rows on the host for a device that has no library for them.
 *
 * The operands are copied to the host before the run, and the results back after it. Earlier work must have ended, and
 * the host waits, so such a step is not part of a graph. Threads: those of the runs of one executable, one at a time.
 */
#ifndef HEADRACE_ENGINE_HOST_FALLBACK_H_
#define HEADRACE_ENGINE_HOST_FALLBACK_H_

#include "providers/provider.h"
#include "runtime/device.h"

typedef struct hr_host_fallback hr_host_fallback;

/* For a node that a provider of host memory has prepared, with this much workspace. */
HR_MUST_USE hr_status hr__host_fallback_create(const hr_node *node, size_t workspace_bytes,
                                               hr_host_fallback **out_fallback);
/* args: as run's (provider.h), with addresses of the device. */
HR_MUST_USE hr_status hr__host_fallback_run(const hr_host_fallback *fallback, const hr_driver *driver, void *impl,
                                            const hr_provider *provider, hr_prepared *prepared, void *const *args);
void hr__host_fallback_destroy(hr_host_fallback *fallback); /* NULL: nothing */

#endif
