/* program_generator.h: random programs in stream form.
 *
 * A program works on tensors of one base shape and its reduced, reshaped, sliced, permuted, reversed and broadcast
 * relatives, in all real and integer dtypes: element-wise rows (also over lists), reductions, norms, losses, windows,
 * index maps, random fills, contractions, cells, attention and optimizers, often in place and through overlapping
 * views. Some indices are out of range. The same seed always gives the same program and the same contents.
 */
#ifndef HEADRACE_TESTS_PROGRAM_GENERATOR_H_
#define HEADRACE_TESTS_PROGRAM_GENERATOR_H_

#include "core/ir/program.h"

typedef struct generated {
  hr_program program; /* stream form */
  int buffer_count;
  size_t *bytes;
  void **memory;    /* initial contents of each buffer */
  hr_dtype *dtypes; /* of each buffer's elements */
  hr_scalar *arguments;
} generated;

/* An error: the generator made a program that recording rejects. */
HR_MUST_USE hr_status hr__generate_program(uint64_t seed, int node_count, generated *out_generated);
/* With these dims of the base shape. Programs of one seed are the same but for dims, as far as their operations allow
 * it. */
HR_MUST_USE hr_status hr__generate_sized(uint64_t seed, int node_count, const int64_t base[3],
                                         generated *out_generated);
void hr__generated_fini(generated *g);

#endif
