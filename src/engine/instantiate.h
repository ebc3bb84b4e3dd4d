/* instantiate.h: creates and releases instances of plans. */
#ifndef HEADRACE_ENGINE_INSTANTIATE_H_
#define HEADRACE_ENGINE_INSTANTIATE_H_

#include "engine/instance.h"

/* Prepares the plan of a key for a device; compiles it if there is none yet. */
HR_MUST_USE hr_status hr__instance_create(const hr_key *key, hr_device *device, const hr_scalar *arguments,
                                          hr_instance **out_instance);
/* An instance of a plan, without replay. Takes over the reference to the plan, also when it fails. */
HR_MUST_USE hr_status hr__instance_create_of(hr_plan *plan, hr_device *device, hr_instance **out_instance);
void hr__instance_release(hr_instance *instance); /* NULL: nothing */

#endif
