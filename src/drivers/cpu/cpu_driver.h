/* cpu_driver.h: the host as a device. */
#ifndef HEADRACE_DRIVERS_CPU_DRIVER_H_
#define HEADRACE_DRIVERS_CPU_DRIVER_H_

#include "runtime/device.h"

extern const hr_driver hr_cpu_driver;

#endif
