/* null_driver.h: a device that counts all calls and computes nothing. */
#ifndef HEADRACE_DRIVERS_NULL_DRIVER_H_
#define HEADRACE_DRIVERS_NULL_DRIVER_H_

#include "runtime/device.h"

/* Number of calls and objects of a null device. */
typedef struct hr_null_counters {
  int64_t allocations, frees, bytes_allocated;
  int64_t copies, bytes_copied, fills;
  int64_t launches, kernels, passes,
      calls; /* a launch may have many kernels; those that are captured count when they are */
  int64_t captures, graph_updates, graph_launches, graphs; /* the last: that live now */
} hr_null_counters;

extern const hr_driver hr_null_driver;

/* The counters since the device was opened. */
void hr_null_counters_get(void *impl, hr_null_counters *out_counters);

#endif
