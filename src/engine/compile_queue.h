/* compile_queue.h: the background thread that turns kernel forms into code.
 *
 *   kernels that were used --> one text --> disk cache, or the system's compiler --> dlopen --> hr__kernel_publish
 *
 * What is pending when the thread looks goes into one text, up to a limit. A compiler that makes nothing gives its turn
 * to the next that is there. When there is none, or one fails again and again or hangs, the queue closes: kernels stay
 * interpreted, and a process prints one line that names the reason and what mends it. Kernels that there is no text for
 * are left alone.
 *
 * HEADRACE_JIT: auto; off; wait (executables wait for their kernels: for tests and measurements).
 */
#ifndef HEADRACE_ENGINE_COMPILE_QUEUE_H_
#define HEADRACE_ENGINE_COMPILE_QUEUE_H_

#include "engine/cached_kernel.h"

/* Hands a kernel over, with a reference that the queue gives back. Never fails: what can't be compiled is interpreted.
 */
void hr__compile_queue_push(hr_cached_kernel *cached);
/* Waits until all that was pushed has been dealt with. */
void hr__compile_queue_wait(void);
/* Forgets failures, so that compilers are tried again; for tests, while nothing is pending. */
void hr__compile_queue_reset(void);

typedef struct hr_jit_counts { /* since the process began, and now */
  int64_t compiled;            /* kernels that a compiler made */
  int64_t loaded;              /* kernels found on disk */
  int64_t unable;              /* kernels without a text, or that no compiler could make */
  int64_t compile_ns;          /* time that compilers took */
  int64_t waiting;             /* kernels that nothing is known of yet */
} hr_jit_counts;

void hr__jit_counts(hr_jit_counts *out_counts);

#endif
