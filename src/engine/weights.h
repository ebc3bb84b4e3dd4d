/* weights.h: what a program makes of its weights before it works with them: made once, and again when they change.
 *
 *   step 0   copy, 256x256x3x3            %4 = %1 with channels last      both run while %1, or %2 and %3,
 *   step 1   add_rsqrt_mul, 256           %5 = rsqrt(%2 + eps) * %3       change from run to run
 *   step 2   conv(%0, %4)
 *   step 3   add_scaled, 14x14x256        .. %5 ..
 *
 * Such a step is a kernel that reads nothing but buffers which the program doesn't write, and what other such steps
 * make, and makes temporaries: what contractions read as their weights (a cast, another order of dims, a batch norm's
 * factor in each of them), or of a few small buffers something small (the factors of a batch norm). What it made is
 * kept by the contents of the buffers, the kernels and their scalars (runtime/cached_weights.h), so that all programs
 * with these weights share it, and the step is left out where it is there.
 *
 * Threads: whoever runs the device's jobs, one at a time.
 */
#ifndef HEADRACE_ENGINE_WEIGHTS_H_
#define HEADRACE_ENGINE_WEIGHTS_H_

#include "engine/run_scratch.h"

/* Finds such steps, and notes them in the instance; false when memory is out. */
HR_MUST_USE bool hr__weights_find(hr_instance *instance);
void hr__weights_fini(hr_instance *instance);

/* Puts what is kept of the run's weights where their temporaries are looked for; gives whether something has to be made
 * first, so that another run will do with fewer steps. */
bool hr__weights_bind(const hr_instance *instance, const hr_run *run, hr_run_scratch *scratch);
/* Behind the run: lets others find what it made, if it succeeded. */
void hr__weights_unbind(const hr_instance *instance, hr_run_scratch *scratch, bool succeeded);

/* Whether the step's result is there; those of so many steps. */
static inline bool hr__weights_has(const hr_exec_step *step, const hr_run_scratch *scratch) {
  return step->weight >= 0 && scratch->weights.data[step->weight].cached_weights != NULL &&
         !scratch->weights.data[step->weight].is_new;
}
static inline bool hr__weights_has_all(const hr_exec_step *first, int count, const hr_run_scratch *scratch) {
  bool has = true;
  for (int i = 0; has && i < count; ++i) {
    has = hr__weights_has(&first[i], scratch);
  }
  return has;
}

#endif
