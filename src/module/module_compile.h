/* module_compile.h: compiles the texts of modules for the host, and keeps the libraries on disk.
 *
 * The compiler is that of generated kernels (engine/host_compiler.h); a compiler that makes nothing at all is replaced
 * by the next one. Threads: one at a time.
 */
#ifndef HEADRACE_MODULE_COMPILE_H_
#define HEADRACE_MODULE_COMPILE_H_

#include "base/dynlib.h"
#include "engine/disk_cache.h"
#include "engine/host_compiler.h"

/* Zeroed: not opened yet. */
typedef struct hr__module_compiler {
  hr_host_compiler compiler;
  hr_disk_cache disk;
  int rank; /* of the compiler */
  bool is_found, has_disk, has_worked;
} hr__module_compiler;

/* Finds the library of the text on disk, or compiles it. INVALID_ARGUMENT: the text does not compile. */
HR_MUST_USE hr_status hr__module_compile(hr__module_compiler *compiler, const hr_text *text, hr_dynlib *out_library);
void hr__module_compiler_fini(hr__module_compiler *compiler);

#endif
