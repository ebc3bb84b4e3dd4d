/* compiled_kernel.h: emitted kernels in a loaded library, as host kernels.
 *
 * A library is reference-counted: each of its kernels holds a reference, which keeps the code loaded. Threads: any.
 */
#ifndef HEADRACE_ENGINE_COMPILED_KERNEL_H_
#define HEADRACE_ENGINE_COMPILED_KERNEL_H_

#include "base/host_kernel.h"
#include "compiler/emit.h"

typedef struct hr_library hr_library;

/* Loads the shared library behind a descriptor, which stays the caller's; +1. */
HR_MUST_USE hr_status hr__library_open_file(int file, hr_library **out_library);
/* Loads the shared library at a path; +1. */
HR_MUST_USE hr_status hr__library_open(const char *path, hr_library **out_library);
void hr__library_release(hr_library *library); /* NULL is fine */

/* The kernel that was emitted under `name`. `title` is for people; it is copied. */
HR_MUST_USE hr_status hr__compiled_kernel_create(hr_library *library, const char *name, const hr_emission *emission,
                                                 const char *title, int64_t bytes, hr_host_kernel **out_kernel);

/* True if a host kernel was made by hr__compiled_kernel_create. */
bool hr__kernel_is_compiled(const hr_host_kernel *kernel);

/* The code of a pass, for callers to which a call through the kernel is too long. */
typedef void (*hr_compiled_pass)(void *const *args, const hr_scalar *scalars, const int64_t *extents, char *workspace,
                                 char *scratch, int64_t begin, int64_t end);
/* NULL for a kernel that is not compiled. *out_extents: its argument. */
hr_compiled_pass hr__compiled_kernel_pass(const hr_host_kernel *kernel, int pass, const int64_t **out_extents);

#endif
