/* prepare_steps.h: prepares the steps of a plan for a device: kernels, library calls, checks. */
#ifndef HEADRACE_ENGINE_PREPARE_STEPS_H_
#define HEADRACE_ENGINE_PREPARE_STEPS_H_

#include "engine/instance.h"

/* Makes the steps of an instance whose plan is set, with their flat lists of arguments. After a failure the instance
 * owns those that were made. */
HR_MUST_USE hr_status hr__steps_prepare(hr_instance *instance, hr_device *device);

/* The new numbers of a plan. */
typedef struct hr_step_numbers {
  bool *is_changed;           /* of each step */
  bool *is_done;              /* of each step: scratch */
  const bool *varies;         /* each step: its numbers are not the same for all dims */
  const int *like;            /* of each step: an earlier one whose kernel form had the same structure; -1: none */
  const int *same;            /* of each step: the first one whose numbers are the same for all dims */
  bool may_all_differ;        /* summaries are not known, or temporaries have other places */
  hr_step_summary *summaries; /* of each step; updated */
} hr_step_numbers;

/* Finds steps that share a kernel, for hr_step_numbers; false when memory is out. */
HR_MUST_USE bool hr__steps_find_like(const hr_instance *instance, int *out_like);
/* Prepares the changed steps again, after the numbers of the plan were replaced. Also sets `is_changed` for those that
 * share a changed step's library call. After a failure the instance can only be released. */
HR_MUST_USE hr_status hr__steps_prepare_changed(hr_instance *instance, hr_device *device,
                                                const hr_step_numbers *numbers);
/* Begins to load what new numbers of the steps that vary read and write: the cache misses of one overlap others. After
 * those of the steps, `varies` has whether numbers of declined nodes vary. */
void hr__steps_fetch(const hr_instance *instance, const bool *varies);
void hr__steps_release(hr_instance *instance);

#endif
