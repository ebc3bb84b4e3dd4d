/* prepare_steps.h: prepares the steps of a plan for a device: kernels, library calls, checks. */
#ifndef HEADRACE_ENGINE_PREPARE_STEPS_H_
#define HEADRACE_ENGINE_PREPARE_STEPS_H_

#include "engine/instance.h"

/* Makes the steps of an instance whose plan is set, with their flat lists of arguments. After a failure the instance
 * owns those that were made. */
HR_MUST_USE hr_status hr__steps_prepare(hr_instance *instance, hr_device *device);

#endif
