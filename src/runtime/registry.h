/* registry.h: device names and open devices.
 *
 * A name consists of a driver's name and an optional ordinal: "cpu", "null", "cuda:1". A device that was opened once
 * keeps its struct for the life of its context: any thread may release buffers at any time, even while the process
 * ends. With its last reference its thread stops and its cached memory is returned; opening it again revives the same
 * struct. Each context has its own devices (base/context.h): hr_device_open opens one of the current context's.
 */
#ifndef HEADRACE_RUNTIME_REGISTRY_H_
#define HEADRACE_RUNTIME_REGISTRY_H_

#include "runtime/device.h"

enum { HR_REGISTRY_DEVICES_MAX = 64 };

/* Finds the driver and ordinal of a name; NOT_FOUND lists the available names. */
HR_MUST_USE hr_status hr__registry_find(const char *name, const hr_driver **out_driver, int *out_ordinal);

/* The device with this index of those that the current context has opened; NULL: there are no more. */
hr_device *hr__registry_device(int index);

#endif
