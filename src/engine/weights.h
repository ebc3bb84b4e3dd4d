/* weights.h: what a program makes of its weights before it works with them: made once, and again when they change.
 *
 *   step 0   copy, 256x256x3x3    %4 = %1 with channels last      runs while %1 changes from run to run
 *   step 7   conv(%0, %4)
 *
 * Such a step is a kernel that reads nothing but one buffer, which the program doesn't write, and makes a temporary that contractions
 * read as their weights: a cast, another order of dims. What it made is kept by the contents of the buffer and by the kernel
 * (runtime/derived.h), so that all programs with this weight share it, and the step is left out where it is there.
 *
 * Threads: whoever runs the device's jobs, one at a time.
 */
#ifndef HEADRACE_ENGINE_WEIGHTS_H_
#define HEADRACE_ENGINE_WEIGHTS_H_

#include "engine/executable.h"

/* Finds such steps, and notes them in the executable; false when memory is out. */
HR_MUST_USE bool hr__weights_find(hr_executable *executable);
void hr__weights_fini(hr_executable *executable);

/* Puts what is kept of the run's weights where their temporaries are looked for; gives whether something has to be made first, so that
 * another run will do with fewer steps. */
bool hr__weights_bind(const hr_executable *executable, const hr_run *run, hr_run_scratch *scratch);
/* Behind the run: lets others find what it made, if it succeeded. */
void hr__weights_unbind(const hr_executable *executable, hr_run_scratch *scratch, bool succeeded);

/* Whether the step's result is there. */
static inline bool hr__weights_has(const hr_exec_step *step, const hr_run_scratch *scratch) {
  return step->weight >= 0 && scratch->weights.data[step->weight].derived != NULL &&
         !scratch->weights.data[step->weight].is_new;
}

#endif
