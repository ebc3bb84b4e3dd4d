/* run.h: a run of an instance: binds what it works on, and runs all steps, or replays them. */
#ifndef HEADRACE_ENGINE_RUN_H_
#define HEADRACE_ENGINE_RUN_H_

#include "engine/run_scratch.h"

/* Runs all steps in order on the calling thread and the device's team. The first failure ends the run: OUT_OF_RANGE
 * from a check, or whatever a provider says. */
HR_MUST_USE hr_status hr__instance_run(const hr_instance *instance, hr_run *run, hr_run_scratch *scratch);

/* Whether a run is worth being begun by a thread of the team, and calls nothing that has threads of its own. */
bool hr__instance_can_submit_early(const hr_instance *instance);

#endif
