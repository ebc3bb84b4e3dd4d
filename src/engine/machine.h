/* machine.h: the peak rates of this machine, for comparison in profiles.
 *
 * They are measured once in a process, in some tens of milliseconds, for the first profile: the bandwidth of reading
 * uncached memory, and the rate of float32 multiply-adds in registers, both with the whole thread team. Other load on
 * the machine makes both smaller. Only profiles depend on them.
 */
#ifndef HEADRACE_ENGINE_MACHINE_H_
#define HEADRACE_ENGINE_MACHINE_H_

#include "runtime/device.h"

typedef struct hr_machine {
  double read_gbs, peak_gflops; /* 1e9 bytes, or operations, a second; 0 if it could not be measured */
} hr_machine;

/* Logs the results at level 2 the first time. Threads: any that may run parallel loops. */
const hr_machine *hr__machine(void);
/* The peak of a device's memory, 1e9 bytes a second: the driver's, or on the host the measured one; 0: not known. */
double hr__device_gbs(const hr_device *device);

#endif
