/* program_runner.h: ways to run a generated program with the interpreter. */
#ifndef HEADRACE_TESTS_PROGRAM_RUNNER_H_
#define HEADRACE_TESTS_PROGRAM_RUNNER_H_

#include "base/host_kernel.h"
#include "compiler/compile.h"
#include "program_generator.h"

/* Aligned memory of exactly `bytes` bytes: sanitizers see what lies behind. */
void *hr__exact_alloc(size_t bytes);
void hr__exact_free(void *memory, size_t bytes);

/* Copies of a program's buffers, to run on. */
void **hr__memory_copy(const hr_program *program, void *const *memory);
void hr__memory_free(const hr_program *program, void **memory);

typedef struct hr__algorithm {      /* none of this changes a bit */
  int64_t cut;                /* units of a kernel run in ranges of this many; 0: all at once */
  bool is_reversed;           /* the last range first */
  int64_t resident_row_bytes, recompute_bytes; /* as in hr_target; 0: the compiler's choice */
  size_t row_alignment; /* as in hr_target; not 0: products are steps of their own, as if a library ran them */
  int64_t depth_work;   /* as in hr_target */
  int64_t *grown;       /* (optional) counts buffers that it has made larger */
  /* Instead of the interpreter (NULL): borrows a host kernel, or gives NULL where it has none. */
  const hr_host_kernel *(*host)(void *ctx, const hr_kernel *kernel);
  void *host_ctx;
} hr__algorithm;

/* Compiles `program` and runs it on `memory`. OUT_OF_RANGE when a CHECK_INDEX fails: what follows it has not run. */
HR_MUST_USE hr_status hr__run_interpreted(const hr_program *program, void **memory, const hr_scalar *arguments,
                                          hr__algorithm algorithm);

/* Whether a program gives the same bits (NaN is NaN) interpreted and with the kernels that `way` has for it; tells the first
 * difference on standard error. */
bool hr__runs_alike(const generated *g, uint64_t seed, const char *what, hr__algorithm algorithm);

/* Whether there is a compiler for texts; says why not. */
bool hr__has_compiler(void);
/* The same for texts of devices: emulated threads leave by longjmp, and the thread sanitizer loses count of their calls. */
bool hr__has_emulator(void);
/* A whole number from the environment, or `value`. */
long hr__setting(const char *name, long value);

/* Value form back to stream form, which is what the reference evaluates when contractions are left. */
void hr__to_stream_form(hr_program *program);

/* The node `n` alone, every buffer live and full of contents: what strict mode runs. */
HR_MUST_USE hr_status hr__single_node(const hr_program *program, int n, hr_program *out_program);
/* The same with inputs that lie in copies of all buffers, numbered after the buffers: what it means to read before writing. */
HR_MUST_USE hr_status hr__detached_node(const hr_program *program, int n, hr_program *out_program);

#endif
