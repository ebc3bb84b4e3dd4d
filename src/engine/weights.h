/* weights.h: cached weights: results that a program computes from its weights, made once, and again when the weights
 * change.
 *
 *   step 0   copy, 256x256x3x3            %4 = %1 with channels last      both run while %1, or %2 and %3,
 *   step 1   add_rsqrt_mul, 256           %5 = rsqrt(%2 + eps) * %3       change from run to run
 *   step 2   conv(%0, %4)
 *   step 3   add_scaled, 14x14x256        .. %5 ..
 *
 * Such a step is a kernel that
 *   - reads only buffers which the program doesn't write, and results of other such steps,
 *   - makes temporaries: either the weights of contractions (a cast, another order of dims, a batch norm's factor in
 *     each of them), or something small computed from a few small buffers (the factors of a batch norm).
 * Its results are cached by the contents of the buffers, the kernels and their scalars (runtime/cached_weights.h), so
 * that all programs with these weights share them. The step is left out if its results are cached.
 *
 * Threads: those that run the stream's jobs, one at a time.
 */
#ifndef HEADRACE_ENGINE_WEIGHTS_H_
#define HEADRACE_ENGINE_WEIGHTS_H_

#include "engine/run_scratch.h"

/* Finds such steps, and lists them in the instance; false when memory is out. `may_be`: of each step, from
 * hr__weights_find_candidates; NULL: any may be one. */
HR_MUST_USE bool hr__weights_find(hr_instance *instance, const bool *may_be);
/* Of each step whether it may be one, whatever the dims are; the caller frees it. NULL: memory is out. */
bool *hr__weights_find_candidates(const hr_instance *instance);
void hr__weights_fini(hr_instance *instance);

/* Binds the cached weights of the run in place of their temporaries. Returns true if something has to be computed
 * first, so that another run will do with fewer steps. */
bool hr__weights_bind(const hr_instance *instance, const hr_run *run, hr_run_scratch *scratch);
/* After the run: publishes the weights that it made, if it succeeded. */
void hr__weights_unbind(const hr_instance *instance, hr_run_scratch *scratch, bool succeeded);

/* True if the step's result is cached; below, the same for each of `count` steps. */
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
