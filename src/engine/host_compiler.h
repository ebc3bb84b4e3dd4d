/* host_compiler.h: the system's C compiler, for the compiled tier.
 *
 * Which one: HEADRACE_CC, or gcc, or cc, or clang: the first that is there. It runs in a private folder, without a
 * shell, with a time limit. Threads: one at a time (the compile queue's).
 */
#ifndef HEADRACE_ENGINE_HOST_COMPILER_H_
#define HEADRACE_ENGINE_HOST_COMPILER_H_

#include <stdatomic.h>
#include <stdint.h>

#include "base/text.h"
#include "headrace/status.h"

/* NOT_FOUND when there is none. The path is kept until the next reload of the environment. */
HR_MUST_USE hr_status hr__host_compiler_find(const char **out_path);
/* All that decides what a text becomes, besides the text: compiler, its version, flags, the CPU;
 * and whether it is gcc. */
HR_MUST_USE hr_status hr__host_compiler_identity(uint64_t *out_hash, bool *out_is_gcc);
/* Compiles a text to a shared library in a new private folder; the caller ends both with hr__host_compiler_remove. On
 * failure the message has the compiler's first words. `more` (or NULL): flags in addition, ended by NULL, for tests. */
HR_MUST_USE hr_status hr__host_compile(const char *text, size_t length, const char *const *more, hr_text *out_path);
void hr__host_compiler_remove(const char *path);
/* While true, compilers are killed: the process ends. */
extern atomic_bool hr__host_compiler_cancel;

#endif
