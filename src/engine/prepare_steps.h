/* prepare_steps.h: prepares the steps of a plan for a device: kernels, library calls, checks. */
#ifndef HEADRACE_ENGINE_PREPARE_STEPS_H_
#define HEADRACE_ENGINE_PREPARE_STEPS_H_

#include "engine/instance.h"

/* Makes the steps of an instance whose plan is set, with their flat lists of arguments. After a failure the instance
 * owns those that were made. */
HR_MUST_USE hr_status hr__steps_prepare(hr_instance *instance, hr_device *device);

/* Prepares the changed steps again, after the numbers of the plan were replaced. `is_changed`, of each step: also set
 * for those that share a changed step's library call. After a failure the instance can only be released. */
HR_MUST_USE hr_status hr__steps_prepare_changed(hr_instance *instance, hr_device *device, bool *is_changed);
void hr__steps_release(hr_instance *instance);

#endif
