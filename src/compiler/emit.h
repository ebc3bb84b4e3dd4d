/* emit.h: emits kernel forms as C text for the compiled tier.
 *
 * A text has no includes. It consists of a prelude (types, vector maths and conversions, from the texts of src/core)
 * and of one range function for each kernel and pass:
 *
 *   void NAME_PASS(void *const *args, const hr_scalar *scalars, const int64_t *extents, char *workspace, char *scratch,
 *                  int64_t begin, int64_t end)
 *
 * The functions follow hr_host_kernel::run. Inner shapes and strides are literals; scalars are arguments. `extents`
 * holds the numbers that need not be literals for speed: the number of rows, the length of an array. Kernels that
 * differ only in scalars and extents have the same text and share its code.
 *
 * Results have the bits of the block interpreter: the same expressions, and the same order in reductions. A kernel
 * without a text yet gives UNIMPLEMENTED and stays interpreted. The text must be compiled with hr_emit_flags: no
 * contraction of a * b + c, no strict aliasing, and defined integer overflow. Threads: any, each call on its own text.
 */
#ifndef HEADRACE_COMPILER_EMIT_H_
#define HEADRACE_COMPILER_EMIT_H_

#include <stdbool.h>

#include "base/host_kernel.h"
#include "base/text.h"
#include "core/ir/kernel.h"

enum { HR_EMISSION_EXTENTS = 16 };

/* The properties of an emitted kernel that the host needs: see hr_host_kernel. `extents` are its text's arguments. */
typedef struct hr_emission {
  int extent_count;
  int64_t extents[HR_EMISSION_EXTENTS];
  int pass_count;
  int64_t units[HR_HOST_KERNEL_PASS_MAX], grain[HR_HOST_KERNEL_PASS_MAX];
  size_t workspace_bytes, scratch_bytes;
  int64_t piece; /* of the kernel (host_kernel.h) */
} hr_emission;

/* Properties of the compiler: they decide which kernels would be slower than interpreted ones. */
typedef struct hr_emit_target {
  bool is_gcc; /* else clang, which does not vectorise steps of 2 in short runs */
} hr_emit_target;

/* Writes the prelude of every text. */
HR_MUST_USE hr_status hr_emit_prelude(hr_text *out_text);
/* Appends the functions of one kernel. UNIMPLEMENTED leaves the text as it was before, and is also returned for a
 * kernel that the target would run slower than the interpreter. `target` NULL: speed does not matter. */
HR_MUST_USE hr_status hr_emit_kernel(const hr_kernel *kernel, const hr_emit_target *target, const char *name,
                                     hr_text *out_text, hr_emission *out_emission);

#endif
