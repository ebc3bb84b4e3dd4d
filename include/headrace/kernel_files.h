/* kernel_files.h: the files of the user's cache of compiled kernels and tuning results, as bytes.
 *
 * A package (package.h) may carry them to another machine of the same kind. They are native code: whoever adds one runs
 * it. Names have the identity of compiler, version, flags and CPU, so that files of another kind of machine are never
 * looked up. Threads: any.
 */
#ifndef HEADRACE_KERNEL_FILES_H_
#define HEADRACE_KERNEL_FILES_H_

#include <stddef.h>
#include <stdint.h>

#include "headrace/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A file's name, its contents, and how many bytes of these, from the begin, are the text that it was made from. */
typedef struct hr_kernel_file {
  const char *name;
  const void *bytes;
  size_t size, text_size;
} hr_kernel_file;

/* Passes each intact file that was used since a time, in nanoseconds of the system's clock (0: each file), to `visit`,
 * whose failure ends the call and is its result. The file is borrowed for the call. FAILED_PRECONDITION if there is no
 * cache. */
HR_API HR_MUST_USE hr_status hr_kernel_files_each(int64_t since_ns,
                                                  hr_status (*visit)(void *arg, const hr_kernel_file *file), void *arg);
/* Adds a file, unless the cache has an intact one of this name. INVALID_ARGUMENT for names that no cache has. */
HR_API HR_MUST_USE hr_status hr_kernel_files_add(const hr_kernel_file *file);

#ifdef __cplusplus
}
#endif

#endif
