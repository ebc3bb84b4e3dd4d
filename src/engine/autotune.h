/* autotune.h: times the ways in which a library step could run, while its program repeats.
 *
 * From its third run on, a step may run twice: first in a way that is to be timed, on its own operands as the steps
 * before left them in the caches, then in its own way, whose results count. Each other way is timed a few times, some
 * milliseconds apart; clearly slower ones sooner no more. The own way is timed in all runs between, so that whatever
 * disturbs times speaks for it. The fastest goes to tuning_cache.h if it is faster than the step's own by more than
 * times are off; it is for later processes. Steps that read what they write are not timed.
 *
 * Where programs are replayed as a whole instead, which is on devices, a step's ways are timed in turn before its first
 * run, and the fastest is taken from then on. That may take a second of a process; what is not timed by then is left to
 * later ones.
 *
 * Trials, with making what is tried, take a twentieth of the time that programs with open trials run, and a second of a
 * process at most, where they run beside the steps. Threads: those of the runs of one executable, one at a time.
 */
#ifndef HEADRACE_ENGINE_AUTOTUNE_H_
#define HEADRACE_ENGINE_AUTOTUNE_H_

#include "engine/algorithms.h"

typedef struct hr_tuning hr_tuning;

/* NULL: nothing is to be tried, or memory is out. program, node and choice stay valid as long as the trial. */
hr_tuning *hr__tuning_create(hr_device *device, const hr_provider *const *providers, const hr_program *program,
                             const hr_node *node, const hr_algorithm *own, hr_tuning_entry *tuning_entry);
/* What a run of the step is given (provider.h), and how long the workspace is. */
typedef struct hr_tuning_call {
  void *const *args;
  const uint64_t *stamps;
  void *workspace;
  size_t workspace_bytes;
  void *queue;
} hr_tuning_call;

/* Runs the step, prepared as `own`, and perhaps another way before it. */
HR_MUST_USE hr_status hr__tuning_run(hr_tuning *tuning, const hr_ready *own, const hr_tuning_call *call);
/* Runs the step in the way that was found before its first run, in which all are timed. Ways that need more workspace
 * than the call has are left out. */
HR_MUST_USE hr_status hr__tuning_run_settled(hr_tuning *tuning, const hr_ready *own, const hr_tuning_call *call);
enum { HR_TUNING_WORKSPACE = 64 << 20 }; /* bytes of workspace that a step should have for it */
/* Whether nothing but the step's own way runs any more. */
bool hr__tuning_is_over(const hr_tuning *tuning);
void hr__tuning_release(hr_tuning *tuning); /* NULL: nothing */

/* A program with trials has run for so long. */
void hr__tuning_allow(int64_t ns);

#endif
