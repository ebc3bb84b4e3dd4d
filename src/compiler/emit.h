/* emit.h: kernel forms as C text, for the compiled tier.
 *
 * A text has no includes: a prelude (types, vector maths, conversions, in the words of src/core) and then, for each
 * kernel and pass, one range function
 *
 *   void NAME_PASS(void *const *args, const hr_scalar *scalars, const int64_t *extents, char *workspace, char *scratch,
 *                  int64_t begin, int64_t end)
 *
 * in the manner of hr_host_kernel::run. Inner shapes and strides are literals in it; scalars are arguments, and so are
 * `extents`, what a text need not know to be fast: how many rows, how long an array. Kernels that differ in those alone
 * have the same text, and share its code. Results have the bits of the block interpreter: the same expressions, the
 * same order in reductions. A kernel that there is no text for yet gives UNIMPLEMENTED and stays interpreted.
 *
 * The compiler that gets the text must not contract (a * b + c), assume strict aliasing, or let integers overflow
 * undefined: hr_emit_flags. Threads: any, each call on its own text.
 */
#ifndef HEADRACE_COMPILER_EMIT_H_
#define HEADRACE_COMPILER_EMIT_H_

#include <stdbool.h>

#include "base/host_kernel.h"
#include "base/text.h"
#include "core/ir/kernel.h"

enum { HR_EMISSION_EXTENTS = 16 };

/* What the host has to know of an emitted kernel: see hr_host_kernel. `extents` are its text's arguments. */
typedef struct hr_emission {
  int extent_count;
  int64_t extents[HR_EMISSION_EXTENTS];
  int pass_count;
  int64_t units[HR_HOST_KERNEL_PASS_MAX], grain[HR_HOST_KERNEL_PASS_MAX];
  size_t workspace_bytes, scratch_bytes;
} hr_emission;

/* What is known of the compiler; decides which kernels would be slower than interpreted ones. */
typedef struct hr_emit_target {
  bool is_gcc; /* else clang, which does not vectorise steps of 2 in short runs */
} hr_emit_target;

/* What every text begins with. */
HR_MUST_USE hr_status hr_emit_prelude(hr_text *out_text);
/* Appends the functions of one kernel. After UNIMPLEMENTED the text is as it was before. A kernel that the target would
 * run slower than the interpreter is UNIMPLEMENTED, too; NULL: speed does not matter. */
HR_MUST_USE hr_status hr_emit_kernel(const hr_kernel *kernel, const hr_emit_target *target, const char *name,
                                     hr_text *out_text, hr_emission *out_emission);

#endif
