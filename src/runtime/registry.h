/* registry.h: device names and the devices that are open.
 *
 * A name is a driver's, with an optional ordinal: "cpu", "null", "cuda:1". A device that was opened once keeps its
 * struct for the life of its context, because buffers may be released by anybody at any time, even while the process
 * ends; when its last reference goes, its thread stops and its cached memory is returned, and opening it again finds it
 * as it was. Each context has devices of its own (base/context.h): hr_device_open opens one of the current context's.
 */
#ifndef HEADRACE_RUNTIME_REGISTRY_H_
#define HEADRACE_RUNTIME_REGISTRY_H_

#include "runtime/device.h"

enum { HR_REGISTRY_DEVICES_MAX = 64 };

/* Finds the driver and ordinal that a name means; NOT_FOUND lists what there is. */
HR_MUST_USE hr_status hr__registry_find(const char *name, const hr_driver **out_driver, int *out_ordinal);

#endif
