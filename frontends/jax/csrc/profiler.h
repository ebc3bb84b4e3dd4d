/* profiler.h: profiles of JAX (jax.profiler): kernels with their places in the programs (profiler.c). */
#ifndef HEADRACE_JAX_PROFILER_H_
#define HEADRACE_JAX_PROFILER_H_

#include "executable.h"

/* True if a profile is started, or places are wanted. */
extern atomic_bool hrj_profiler_is_on;
/* True if dumps and lines of kernels have names of places. */
extern atomic_bool hrj_places_are_wanted;
/* Around a call of a program, of whose operations the records are. */
void hrj_profiler_begin_call(pjrt_executable *executable);
void hrj_profiler_end_call(void);

/* Gives the core the names of places if it wants them; for each client (places.c). */
void hrj_places_begin(void);
/* The program's places can be named from now on, also after its end. */
void hrj_places_keep(const pjrt_executable *executable);

/* The list of functions that JAX's profiler calls; it is an extension of the table. */
void *hrj_profiler_extension(void *next);

#endif
