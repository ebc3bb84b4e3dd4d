/* device_code.h: compiles kernel forms for devices whose drivers compile texts.
 *
 *   kernel form --> text --> driver's compiler --> image --> functions
 *
 * A kernel is created with its text, so that its workspace and grids are known. It is loaded later with the others of
 * its program: compiling takes 10 to 75 ms a text, and several are compiled at once. Threads: any.
 */
#ifndef HEADRACE_ENGINE_DEVICE_CODE_H_
#define HEADRACE_ENGINE_DEVICE_CODE_H_

#include "core/ir/kernel.h"
#include "runtime/device.h"

/* A kernel with its text, the first member of an hr_device_kernel. The text has literal shapes, and `hash` names its
 * functions. If it would be the third text that differs from others in shapes alone, in a third program, or the fifth
 * of one program, it has variable shapes instead: kernels of all shapes share it. */
HR_MUST_USE hr_status hr__device_kernel_create(const hr_kernel *kernel, hr_device *device, uint64_t hash,
                                               hr_host_kernel **out_kernel);
/* A kernel whose text has variable shapes, for dims that come once. */
HR_MUST_USE hr_status hr__device_kernel_create_general(const hr_kernel *kernel, hr_device *device,
                                                       hr_host_kernel **out_kernel);
/* Gives a kernel with variable shapes the grids and words of another form. False: that one has another text, and the
 * kernel is as it was. */
bool hr__device_kernel_renumber(hr_host_kernel *kernel, const hr_kernel *form);
/* A kernel that a provider has written; `source` is no longer needed afterwards. Kernels of the same text share its
 * functions. */
HR_MUST_USE hr_status hr__device_kernel_create_written(const hr_device_source *source, hr_device *device,
                                                       const char *title, int arg_count, int scalar_count,
                                                       hr_host_kernel **out_kernel);
/* Compiles and loads the kernels that are not loaded yet. */
HR_MUST_USE hr_status hr__device_kernels_load(hr_device *device, int count, const hr_host_kernel *const *kernels);

#endif
