/* device_kernel.h: a kernel as functions on a device, made from a text (compiler/emit_device.h).
 *
 * Each pass is one function over a grid. Its parameter is a struct by value, made of words of 8 bytes, in this order:
 *
 *   void *workspace; void *args[arg_count]; hr_scalar scalars[scalar_count];
 */
#ifndef HEADRACE_BASE_DEVICE_KERNEL_H_
#define HEADRACE_BASE_DEVICE_KERNEL_H_

#include "base/host_kernel.h"

typedef struct hr_device_kernel {
  hr_host_kernel base; /* what launches point to; run is NULL, units and grain say how much work there is */
  void *functions[HR_HOST_KERNEL_PASS_MAX]; /* the driver's */
  int64_t blocks[HR_HOST_KERNEL_PASS_MAX];  /* of the grid; 0: nothing to do */
  int threads[HR_HOST_KERNEL_PASS_MAX];     /* of a block */
  int arg_count, scalar_count;
} hr_device_kernel;

#endif
