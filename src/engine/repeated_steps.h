/* repeated_steps.h: kernels of a loop that run all iterations of an element before those of the next one.
 *
 *   iteration    %2 = mul_add(%0, %1)      %0 the value before, %2 the next one, %1 stays
 *   repeated     %2 = mul_add(%2, %1)      as often as a scalar says
 *
 * A loop has this form if no element of a carried value depends on another element of a carried value. So its kernels
 * are element-wise, and each value before has the elements of the next one. One call of a kernel then replaces
 * thousands; carried values stay in the first cache, single numbers in registers. The bits are those of iterations.
 *
 * Threads: one at a time for each object.
 */
#ifndef HEADRACE_ENGINE_REPEATED_STEPS_H_
#define HEADRACE_ENGINE_REPEATED_STEPS_H_

#include "base/thread.h"
#include "engine/run_scratch.h"

enum { HR_REPEATED_STAYS = -1, HR_REPEATED_OTHER = -2 };

typedef struct hr_repeated_steps hr_repeated_steps;

/* The repeated form of an instance's steps; UNIMPLEMENTED if there is none. `next_of`: for each of the key's buffers,
 * the buffer with the next value of the carried value that it is; STAYS for next values, and for what the iterations
 * read alone; OTHER: a kernel with it can't be repeated. */
HR_MUST_USE hr_status hr__repeated_steps_create(const hr_instance *instance, hr_device *device, int buffer_count,
                                                const int *next_of, hr_repeated_steps **out_steps);
void hr__repeated_steps_destroy(hr_repeated_steps *steps); /* NULL is fine */
/* The scratch that a thread needs now: that of code that comes later may be more. */
size_t hr__repeated_steps_scratch(const hr_repeated_steps *steps);

/* True unless its kernels are interpreted and those of the iterations are compiled. */
bool hr__repeated_steps_are_better(const hr_repeated_steps *steps, const hr_instance *instance);
/* Runs iterations behind the first one, on the addresses of that one; `scratch`: of kernels, for each thread,
 * `scratch_bytes` apart. CANCELLED after an interrupt. */
HR_MUST_USE hr_status hr__repeated_steps_run(hr_repeated_steps *steps, const hr_instance *instance, int64_t times,
                                             const hr_run_scratch *run, char *scratch, size_t scratch_bytes,
                                             const hr_thread_interrupt *interrupt);

#endif
