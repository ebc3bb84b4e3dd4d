/* registry.h: device names and the devices that are open.
 *
 * A name is a driver's, with an optional ordinal: "cpu", "null", "cuda:1". A device that was opened once keeps its struct for the
 * life of the process, because buffers may be released by anybody at any time, even while the process ends; when its last
 * reference goes, its thread stops and its cached memory is returned, and opening it again finds it as it was.
 */
#ifndef HEADRACE_RUNTIME_REGISTRY_H_
#define HEADRACE_RUNTIME_REGISTRY_H_

#include "runtime/device.h"

enum { HR_REGISTRY_DEVICES_MAX = 64 };

/* Finds the driver and ordinal that a name means; NOT_FOUND lists what there is. */
HR_MUST_USE hr_status hr__registry_find(const char *name, const hr_driver **out_driver, int *out_ordinal);

/* When the process exits, work in flight shall end before whatever exists now is torn down: a library that runs it must not lose its
 * memory in the middle. Handlers of exit run in reverse order, and libraries make parts of themselves at first use: call this
 * again after such a use. In a forked child the handlers do nothing, because its queues have no threads. */
void hr__devices_close_at_exit(void);

#endif
