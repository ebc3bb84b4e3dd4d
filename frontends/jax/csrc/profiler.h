/* profiler.h: profiles of JAX (jax.profiler): kernels with their places in the programs (profiler.c). */
#ifndef HEADRACE_JAX_PROFILER_H_
#define HEADRACE_JAX_PROFILER_H_

#include "executable.h"

/* True if a profile is started. */
extern atomic_bool hrj_profiler_is_on;
/* Around a call of a program, of whose operations the records are. */
void hrj_profiler_begin_call(pjrt_executable *executable);
void hrj_profiler_end_call(void);

/* The list of functions that JAX's profiler calls; it is an extension of the table. */
void *hrj_profiler_extension(void *next);

#endif
