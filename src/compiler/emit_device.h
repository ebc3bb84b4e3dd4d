/* emit_device.h: emits kernel forms as text for devices of many threads.
 *
 * A text has no includes. It begins with a prelude: types, vector maths and conversions, from the texts of src/core.
 * Functions of the kernel's operations follow. Each kernel and pass then has one function NAME_PASS, which a grid of
 * blocks of threads runs. Its parameter is a struct by value, made of words of 8 bytes:
 *
 *   char *workspace; void *args[arg_count]; hr_scalar scalars[scalar_count]; int64_t words[word_count];
 *
 * Shapes and strides are literals, or words. With words, kernels that differ only in them have the same text if they
 * have the same form. The text is C except for the names of the prelude, so that a host can run it in tests.
 *
 * Every kernel form has a text. Results have the bits of the block interpreter (core/ir/kernel.h): the same
 * expressions, and the same order in reductions; f64 functions are the device's own. The compiler must not contract a *
 * b + c. Threads: any, each call on its own text.
 */
#ifndef HEADRACE_COMPILER_EMIT_DEVICE_H_
#define HEADRACE_COMPILER_EMIT_DEVICE_H_

#include "base/host_kernel.h"
#include "base/text.h"
#include "core/ir/kernel.h"

typedef enum hr_device_text {
  HR_DEVICE_TEXT_CUDA,    /* CUDA C++ for NVRTC: --fmad=false --device-as-default-execution-space */
  HR_DEVICE_TEXT_EMULATED /* C for the host; tests/c/device_emulator.h defines its names */
} hr_device_text;

typedef enum hr_device_shapes {
  HR_DEVICE_SHAPES_LITERAL,  /* fastest */
  HR_DEVICE_SHAPES_WORDS,    /* for changing shapes: small numbers are still literals */
  HR_DEVICE_SHAPES_ALL_WORDS /* every number is a word: for tests */
} hr_device_shapes;

enum { HR_DEVICE_EMISSION_WORDS = 32 };

/* The launch of each pass, and the words of the parameter. */
typedef struct hr_device_emission {
  int pass_count;
  int64_t blocks[HR_HOST_KERNEL_PASS_MAX]; /* 0: nothing to do */
  int threads[HR_HOST_KERNEL_PASS_MAX];    /* of a block */
  int shared[HR_HOST_KERNEL_PASS_MAX];     /* bytes of dynamic shared memory, without the text's static ones */
  size_t workspace_bytes;
  int word_count;
  int64_t words[HR_DEVICE_EMISSION_WORDS];
} hr_device_emission;

/* Writes the prelude of a text. */
HR_MUST_USE hr_status hr_emit_device_prelude(hr_device_text target, hr_text *out_text);
/* Appends the functions that the passes of a kernel call, one for each operation and class. The text of the passes
 * determines those that it needs: kernels with the same passes may have the functions of any of them. */
HR_MUST_USE hr_status hr_emit_device_functions(const hr_kernel *kernel, hr_text *out_text);
/* Appends the passes of one kernel, which need its functions before them. `block_bytes`: the shared memory of a block
 * if it is more than the 48 KB of every device; else 0. */
HR_MUST_USE hr_status hr_emit_device_kernel(const hr_kernel *kernel, const char *name, int block_bytes,
                                            hr_device_shapes shapes, hr_text *out_text,
                                            hr_device_emission *out_emission);

#endif
