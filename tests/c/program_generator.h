/* program_generator.h: random programs in stream form, and ways to run them.
 *
 * A generated program works on a handful of buffers of one base shape and its reduced and broadcast relatives, through
 * contiguous, transposed, sliced, reversed and overlapping views, with in-place writes, reductions, softmax and normalisation rows,
 * in several dtypes. The same seed always gives the same program and the same contents.
 */
#ifndef HEADRACE_TESTS_PROGRAM_GENERATOR_H_
#define HEADRACE_TESTS_PROGRAM_GENERATOR_H_

#include "compiler/compile.h"

typedef struct generated {
  hr_program program; /* stream form */
  int buffer_count;
  size_t *bytes;
  void **memory;        /* initial contents of each buffer */
  hr_dtype *dtypes;     /* of each buffer's elements */
  hr_scalar *arguments;
} generated;

hr_status hr__generate_program(uint64_t seed, int node_count, generated *out_generated);
void hr__generated_fini(generated *g);

/* Copies of a generated program's memory, to run on. */
void **hr__memory_copy(const generated *g);
void hr__memory_free(const generated *g, void **memory);

/* Compiles `program` and runs it with the interpreter on `memory`; each kernel's units are cut into ranges of `cut` (0: whole). */
hr_status hr__run_interpreted(const hr_program *program, void **memory, const hr_scalar *arguments, int64_t cut);

/* The program's node `n` alone, with every buffer live and full of contents: what strict mode runs. */
hr_status hr__single_node_program(const hr_program *program, int n, hr_program *out_program);

#endif
