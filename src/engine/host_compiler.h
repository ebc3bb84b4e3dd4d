/* host_compiler.h: the C compiler for the compiled tier.
 *
 * The compiler is HEADRACE_CC, else the system's gcc, cc or clang, else the one of the wheel `ziglang` (base/places.h).
 * It runs in a private folder, without a shell, with a time limit. Kernels need no header and no library but libm, so
 * it may lack both. Threads: any.
 */
#ifndef HEADRACE_ENGINE_HOST_COMPILER_H_
#define HEADRACE_ENGINE_HOST_COMPILER_H_

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/text.h"
#include "headrace/status.h"

typedef struct hr_host_compiler {
  char path[4096];
  bool is_zig; /* `zig cc`: clang that brings its own headers and linker */
} hr_host_compiler;

/* The available compiler of this rank, from 0. NOT_FOUND if there are no more, with the remedy. */
HR_MUST_USE hr_status hr__host_compiler_find(int rank, hr_host_compiler *out_compiler);
/* Hashes all that determines the compiled code besides the text: compiler, its version, flags, the CPU. Also reports
 * gcc. Appends to `out_version` (or NULL) the first line of the compiler's version output. */
HR_MUST_USE hr_status hr__host_compiler_identity(const hr_host_compiler *compiler, uint64_t *out_hash, bool *out_is_gcc,
                                                 hr_text *out_version);
/* Compiles a text to a shared library in a new private folder; the caller removes both with hr__host_compiler_remove.
 * On failure the message has the first lines of the compiler's output. `compiler`: NULL for the first. `more` (or
 * NULL): additional flags, ended by NULL, for tests. */
HR_MUST_USE hr_status hr__host_compile(const hr_host_compiler *compiler, const char *text, size_t length,
                                       const char *const *more, hr_text *out_path);
/* The same for a text with a user's source, for which unknown functions and wrong types are errors. A text that does
 * not compile is INVALID_ARGUMENT, with the compiler's output as it is. `compiler`: not NULL. */
HR_MUST_USE hr_status hr__host_compile_source(const hr_host_compiler *compiler, const char *text, size_t length,
                                              hr_text *out_path);
/* Compiles a text that every compiler accepts. */
HR_MUST_USE hr_status hr__host_compiler_try(const hr_host_compiler *compiler);
/* Removes a compiled library and its folder. */
void hr__host_compiler_remove(const char *path);
/* While true, the compilers of the current context are killed: the context or the process ends. */
atomic_bool *hr__host_compiler_cancel(void);

#endif
