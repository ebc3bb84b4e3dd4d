/* run_steps.h: runs steps of an instance, one after the other. */
#ifndef HEADRACE_ENGINE_RUN_STEPS_H_
#define HEADRACE_ENGINE_RUN_STEPS_H_

#include "engine/run_scratch.h"

/* Runs the steps [first, end), neither of them inside a batch; the scratch is bound. `queue` is for
 * libraries; NULL: the device's own. */
HR_MUST_USE hr_status hr__run_steps(const hr_instance *instance, int first, int end, hr_run *run,
                                    hr_run_scratch *scratch, void *queue);
/* The launch of a kernel's step. */
hr_host_launch hr__step_launch(const hr_instance *instance, const hr_exec_step *step, const hr_run *run,
                               const hr_run_scratch *scratch);
/* True if argument `i` of a library's step is a scalar of the program; *out_scalar is its number. */
bool hr__step_scalar(const hr_instance *instance, const hr_exec_step *step, int i, uint32_t *out_scalar);

#endif
