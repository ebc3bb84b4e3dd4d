/* autotune.h: times the algorithms of a library step while its program repeats.
 *
 * From its third run on, a step may run twice. First it runs a candidate algorithm, on its own operands as the steps
 * before left them in the caches; then it runs its own algorithm, whose results count. Each candidate is timed a few
 * times, some milliseconds apart; a clearly slower one is dropped sooner. While more than 64 other programs run between
 * two runs of a step, it is left alone, so that programs of many sizes keep no candidates. The step's own algorithm is
 * timed in all runs in between, at least one after each trial, so that disturbances count in its favour: its first runs
 * share the cores with compilers of kernels. The fastest is written to tuning_cache.h for later processes if it beats
 * the step's own by more than the timing error. Steps that read their outputs are not timed.
 *
 * On devices, programs are replayed as a whole instead. A step's algorithms are then timed in turn before its first
 * run, and the fastest runs from then on. This takes up to a second of a process; the rest is left to later processes.
 *
 * Times are those of the device's clock, if it has one (hr_driver). Autotuning beside the steps takes a twentieth of
 * the time of programs that still tune, and at most a second of a process. Both include the preparation of candidates.
 * Threads: those of the runs of one executable, one at a time.
 */
#ifndef HEADRACE_ENGINE_AUTOTUNE_H_
#define HEADRACE_ENGINE_AUTOTUNE_H_

#include "core/ir/packed_program.h"
#include "engine/algorithms.h"

typedef struct hr_tuning hr_tuning;

/* NULL: there is nothing to try, or memory is out. program, node and tuning_entry must stay valid as long as the
 * tuning, or until hr__tuning_settle. */
hr_tuning *hr__tuning_create(hr_device *device, const hr_provider *const *providers, const hr_program *program,
                             const hr_node *node, const hr_ready *own, hr_tuning_entry *tuning_entry);
/* From now on the node is that of this number in the packed program, which must stay valid. NULL: nothing. */
void hr__tuning_settle(hr_tuning *tuning, const hr_packed_program *packed, int number);
/* The arguments of a run of the step (provider.h), and the length of the workspace. */
typedef struct hr_tuning_call {
  void *const *args;
  const uint64_t *stamps;
  void *workspace;
  size_t workspace_bytes;
  void *impl, *queue; /* the driver's, of the lane */
} hr_tuning_call;

/* Runs the step, prepared as `own`, and possibly a candidate algorithm before it. */
HR_MUST_USE hr_status hr__tuning_run(hr_tuning *tuning, const hr_ready *own, const hr_tuning_call *call);
/* Runs the step with the algorithm found before its first run, in which all are timed. Algorithms that need more
 * workspace than the call has are left out. */
HR_MUST_USE hr_status hr__tuning_run_settled(hr_tuning *tuning, const hr_ready *own, const hr_tuning_call *call);
enum { HR_TUNING_WORKSPACE = 64 << 20 }; /* bytes of workspace that a step needs for autotuning */
/* True if only the step's own algorithm runs from now on. */
bool hr__tuning_is_over(const hr_tuning *tuning);
void hr__tuning_release(hr_tuning *tuning);           /* NULL: nothing */
size_t hr__tuning_footprint(const hr_tuning *tuning); /* bytes of host memory, without candidates; NULL: 0 */

/* Adds the run time of a program with open tunings to the budget. */
void hr__tuning_allow(int64_t ns);

#endif
