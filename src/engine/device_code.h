/* device_code.h: kernels of devices that take texts: from the kernel form to functions on the device.
 *
 *   kernel form --> text --> driver's compiler --> image --> functions
 *
 * A kernel is made with its text, so that its workspace and its grids are known, and loaded later with the others of a
 * program: compiling takes 10 to 75 ms a text, and several are compiled at once. Threads: any.
 */
#ifndef HEADRACE_ENGINE_DEVICE_CODE_H_
#define HEADRACE_ENGINE_DEVICE_CODE_H_

#include "core/ir/kernel.h"
#include "runtime/device.h"

/* A kernel with its text, the first member of an hr_device_kernel. The text knows the shapes, and `hash` names its
 * functions; but where it would be the third that differs from others in shapes alone, in a third program, it does not:
 * kernels of all shapes share it. */
HR_MUST_USE hr_status hr__device_kernel_create(const hr_kernel *kernel, hr_device *device, uint64_t hash,
                                               hr_host_kernel **out_kernel);
/* One that a provider has written; what it was made of is no longer needed afterwards. Kernels of the same text share
 * its functions. */
HR_MUST_USE hr_status hr__device_kernel_create_written(const hr_device_source *source, hr_device *device,
                                                       const char *title, int arg_count, int scalar_count,
                                                       hr_host_kernel **out_kernel);
/* Compiles and loads those of the kernels that are not loaded yet. */
HR_MUST_USE hr_status hr__device_kernels_load(hr_device *device, int count, const hr_host_kernel *const *kernels);

#endif
