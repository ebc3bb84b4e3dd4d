/* compiled_kernel.h: emitted kernels in a loaded library, as host kernels.
 *
 * A library is counted: each of its kernels holds a reference, so its code stays as long as one of them does. Threads:
 * any.
 */
#ifndef HEADRACE_ENGINE_COMPILED_KERNEL_H_
#define HEADRACE_ENGINE_COMPILED_KERNEL_H_

#include "base/host_kernel.h"
#include "compiler/emit.h"

typedef struct hr_library hr_library;

/* Loads the shared library behind a descriptor, which stays the caller's; +1. */
HR_MUST_USE hr_status hr__library_open_file(int file, hr_library **out_library);
/* The same by its path. */
HR_MUST_USE hr_status hr__library_open(const char *path, hr_library **out_library);
void hr__library_release(hr_library *library); /* NULL is fine */

/* The kernel that was emitted under `name`. `title` is for people; it is copied. */
HR_MUST_USE hr_status hr__compiled_kernel_create(hr_library *library, const char *name, const hr_emission *emission,
                                                 const char *title, int64_t bytes, hr_host_kernel **out_kernel);

/* Whether a host kernel is one of these. */
bool hr__kernel_is_compiled(const hr_host_kernel *kernel);

#endif
