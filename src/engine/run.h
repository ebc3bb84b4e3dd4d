/* run.h: runs an instance: binds its operands, and runs or replays all steps. */
#ifndef HEADRACE_ENGINE_RUN_H_
#define HEADRACE_ENGINE_RUN_H_

#include "engine/run_scratch.h"

/* Runs all steps in order on the calling thread and the device's team. The first failure ends the run: OUT_OF_RANGE
 * from a check, or a provider's status. */
HR_MUST_USE hr_status hr__instance_run(const hr_instance *instance, hr_run *run, hr_run_scratch *scratch);

/* Fills the lists of a reserved scratch for the steps of run_steps.h, without cached weights. */
void hr__instance_bind(const hr_instance *instance, const hr_run *run, hr_run_scratch *scratch);

/* True if a thread of the team may begin the run: the run is long enough, and calls no library with threads of its
 * own. */
bool hr__instance_can_submit_early(const hr_instance *instance);

#endif
