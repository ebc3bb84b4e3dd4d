/* program_runner.h: runs a generated program with the interpreter, in several modes. */
#ifndef HEADRACE_TESTS_PROGRAM_RUNNER_H_
#define HEADRACE_TESTS_PROGRAM_RUNNER_H_

#include "base/host_kernel.h"
#include "compiler/compile.h"
#include "program_generator.h"

/* Aligned memory of exactly `bytes` bytes: sanitizers detect accesses behind it. */
void *hr__exact_alloc(size_t bytes);
void hr__exact_free(void *memory, size_t bytes);

/* Copies of a program's buffers, to run on. */
void **hr__memory_copy(const hr_program *program, void *const *memory);
void hr__memory_free(const hr_program *program, void **memory);

typedef struct hr__run_options {               /* none of this changes a bit */
  int64_t cut;                                 /* units of a kernel run in ranges of this size; 0: all at once */
  bool is_reversed;                            /* the last range first */
  int64_t resident_row_bytes, recompute_bytes; /* as in hr_target; 0: the compiler's choice */
  size_t row_alignment; /* as in hr_target; not 0: products are separate steps, as if a library ran them */
  int64_t depth_work;   /* as in hr_target */
  int64_t split_terms;  /* as in hr_target; not 0: products of f32 become products of parts */
  int64_t split_bytes;  /* as in hr_target; 0: any number */
  int64_t *grown;       /* (optional) counts buffers that it has made larger */
  int *repeated;        /* (optional) compiles cells that repeat once, and counts the programs that have such */
  /* Replaces the interpreter (NULL): borrows a host kernel, or returns NULL if it has none. */
  const hr_host_kernel *(*host)(void *ctx, const hr_kernel *kernel);
  void *host_ctx;
} hr__run_options;

/* Compiles `program` and runs it on `memory`. OUT_OF_RANGE if a CHECK_INDEX fails: nothing behind it has run. */
HR_MUST_USE hr_status hr__run_interpreted(const hr_program *program, void **memory, const hr_scalar *arguments,
                                          hr__run_options options);

/* True if a program gives the same bits (NaN is NaN) interpreted and with the kernels of `options`; prints the first
 * difference on standard error. */
bool hr__runs_alike(const generated *g, uint64_t seed, const char *what, hr__run_options options);

/* True if there is a compiler for texts; otherwise prints the reason. */
bool hr__has_compiler(void);
/* The same for texts of devices: emulated threads leave by longjmp, which breaks the thread sanitizer's call stacks. */
bool hr__has_emulator(void);
/* A whole number from the environment, or `value`. */
long hr__setting(const char *name, long value);

/* Value form back to stream form, which the reference evaluates if contractions are left. */
void hr__to_stream_form(hr_program *program);

/* The node `n` alone, every buffer live and full of contents: the programs of strict mode. */
HR_MUST_USE hr_status hr__single_node(const hr_program *program, int n, hr_program *out_program);
/* The same, but inputs read from copies of all buffers, numbered after the buffers: this defines reading before
 * writing. */
HR_MUST_USE hr_status hr__detached_node(const hr_program *program, int n, hr_program *out_program);

#endif
