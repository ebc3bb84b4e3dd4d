/* compile_queue.h: the background thread that compiles kernel forms.
 *
 *   kernels that were used --> one text --> disk cache, or the system's compiler --> dlopen --> hr__kernel_publish
 *   large kernels, at once -->    text  --> disk cache                           --> dlopen --> hr__kernel_publish
 *
 * The thread puts all pending kernels, up to a limit, into one text. If a compiler makes nothing, the next available
 * one is tried. If there is none, or one hangs or fails repeatedly, the queue closes: kernels stay interpreted, and the
 * process prints one line with the reason and the remedy. Kernels without a text are left alone.
 *
 * HEADRACE_JIT: auto; off; wait (executables wait for their kernels: for tests and measurements).
 */
#ifndef HEADRACE_ENGINE_COMPILE_QUEUE_H_
#define HEADRACE_ENGINE_COMPILE_QUEUE_H_

#include "engine/cached_kernel.h"

/* Adds a kernel, with a reference that the queue releases. Never fails: a kernel that can't be compiled is
 * interpreted. */
void hr__compile_queue_push(hr_cached_kernel *cached);
/* The same, but the kernel is only loaded if the disk cache has it. */
void hr__compile_queue_push_load(hr_cached_kernel *cached);
/* Waits until the queue is empty and idle. */
void hr__compile_queue_wait(void);
/* Forgets failures, so that compilers are tried again; for tests, while nothing is pending. */
void hr__compile_queue_reset(void);

typedef struct hr_jit_counts { /* since the process began, and now */
  int64_t compiled;            /* kernels that a compiler made */
  int64_t loaded;              /* kernels found on disk */
  int64_t unable;              /* kernels without a text, or that no compiler could make */
  int64_t compile_ns;          /* time spent in compilers */
  int64_t waiting;             /* kernels that are still pending */
} hr_jit_counts;

void hr__jit_counts(hr_jit_counts *out_counts);

#endif
