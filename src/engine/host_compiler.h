/* host_compiler.h: the C compiler for the compiled tier.
 *
 * Which one: HEADRACE_CC, or else the system's gcc, cc or clang, or else the one that the wheel `ziglang` brings
 * (base/places.h). It runs in a private folder, without a shell, with a time limit. Kernels need no header and no
 * library but libm, so it may lack both. Threads: one at a time (the compile queue's).
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

/* The compiler of this rank among those that are there, from 0. NOT_FOUND when there are no more, with what mends it.
 */
HR_MUST_USE hr_status hr__host_compiler_find(int rank, hr_host_compiler *out_compiler);
/* All that decides what a text becomes, besides the text: compiler, its version, flags, the CPU; and whether it is gcc.
 * Appends to `out_version` (or NULL) the first line that the compiler prints about itself. */
HR_MUST_USE hr_status hr__host_compiler_identity(const hr_host_compiler *compiler, uint64_t *out_hash, bool *out_is_gcc,
                                                 hr_text *out_version);
/* Compiles a text to a shared library in a new private folder; the caller ends both with hr__host_compiler_remove. On
 * failure the message has the compiler's first words. `compiler`: NULL for the first. `more` (or NULL): flags in
 * addition, ended by NULL, for tests. */
HR_MUST_USE hr_status hr__host_compile(const hr_host_compiler *compiler, const char *text, size_t length,
                                       const char *const *more, hr_text *out_path);
/* Compiles a text that every compiler takes. */
HR_MUST_USE hr_status hr__host_compiler_try(const hr_host_compiler *compiler);
/* Removes a library that was compiled, and its folder. */
void hr__host_compiler_remove(const char *path);
/* While true, the compilers of the current context are killed: it ends, or the process does. */
atomic_bool *hr__host_compiler_cancel(void);

#endif
