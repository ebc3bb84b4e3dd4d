#include "engine/instantiate.h"

#include "base/log.h"
#include "engine/prepare_steps.h"
#include "engine/profile.h"
#include "engine/replay.h"
#include "engine/run_description.h"
#include "engine/weights.h"

static hr_status no_memory(const char *what) {
  return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no host memory for %s", what);
}

/* The kernels' memory counts as this instance's, or not any more. */
static void hold_kernels(hr_instance *instance, bool is_holder) {
  for (int i = 0; is_holder != instance->is_holder && i < instance->step_count; ++i) {
    if (instance->steps[i].cached != NULL) {
      hr__kernel_hold(instance->steps[i].cached, is_holder ? 1 : -1);
    }
  }
  instance->is_holder = is_holder;
}

static void destroy(hr_instance *instance) {
  hold_kernels(instance, false);
  hr__replay_release(instance->replay); /* before the kernels that its graphs launch */
  hr__run_description_release(instance->description);
  hr__steps_release(instance);
  hr__weights_fini(instance);
  if (instance->plan == NULL || instance->plan->args != instance->args) {
    hr_free(instance->args);
    hr_free(instance->scalars);
  }
  hr_vector_fini(&instance->checks);
  hr_vector_fini(&instance->sources);
  hr__plan_release(instance->plan); /* libraries read its nodes */
  hr_free(instance);
}

/* What a prepared call takes, if its provider does not tell. */
enum { LIBRARY_CALL_BYTES = 1024 };

static size_t footprint_of_call(const hr_exec_step *step) {
  const hr_step_call *call = step->call;
  if (hr__step_like(step) != NULL) {
    return call->moves != NULL ? sizeof *call + (size_t)hr__step_arg_count(step) * sizeof *call->moves : 0;
  }
  const hr_provider *provider = call->ready.algorithm.provider;
  bool is_known = call->ready.prepared != NULL && provider->footprint != NULL;
  const hr_node *node = call->ready.node;
  return sizeof *call + (is_known ? provider->footprint(call->ready.prepared) : LIBRARY_CALL_BYTES) +
         (node != NULL ? sizeof *node + hr_node_copy_bytes(node) : 0) + hr__tuning_footprint(call->tuning);
}

static size_t footprint_of(const hr_instance *instance) {
  size_t bytes = sizeof *instance + instance->plan->footprint +
                 ((size_t)instance->step_count + 1) * sizeof *instance->steps +
                 instance->sources.capacity * sizeof *instance->sources.data;
  bytes += instance->args != NULL ? hr_narrow_bytes(instance->args) + hr_narrow_bytes(instance->scalars) : 0;
  bytes += instance->checks.capacity * sizeof *instance->checks.data;
  for (size_t i = 0; i < instance->weights.count; ++i) {
    bytes += sizeof(hr_weight) + instance->weights.data[i].recipe.capacity * sizeof(uint64_t);
  }
  for (int i = 0; i < instance->step_count; ++i) {
    const hr_exec_step *step = &instance->steps[i];
    bytes += step->cached != NULL ? hr__kernel_footprint(step->cached) : 0;
    bytes += step->call != NULL ? footprint_of_call(step) : 0;
  }
  return bytes;
}

/* Prepares all parts of an instance whose plan is set. */
static hr_status prepare(hr_instance *instance, hr_device *device) {
  if (!instance->plan->schedule.is_refused) {
    HR_RETURN_IF_ERROR(hr__steps_prepare(instance, device));
    HR_RETURN_IF_ERROR(hr__weights_find(instance, NULL) ? HR_OK : no_memory("weights"));
  }
  return HR_OK;
}

static hr_status begin(hr_instance **out_instance) {
  hr_instance *instance = hr_calloc(1, sizeof *instance);
  if (instance == NULL) {
    return no_memory("a program");
  }
  hr_refcount_init(&instance->refcount);
  atomic_init(&instance->submit_ns, INT64_MAX);
  *out_instance = instance;
  return HR_OK;
}

static void settle_compiled(const hr_instance *instance) {
  hr_cached_kernel **kernels = hr_malloc(((size_t)instance->step_count + 1) * sizeof *kernels);
  for (int i = 0; kernels != NULL && i < instance->step_count; ++i) {
    kernels[i] = instance->steps[i].cached;
  }
  if (kernels != NULL) {
    hr__plan_settle_compiled(instance->plan, kernels, instance->args, instance->scalars);
  }
  hr_free(kernels);
}

/* Frees what runs don't read. */
static void settle(hr_instance *instance) {
  if (instance->plan->is_general) {
    hr__plan_settle(instance->plan);
  } else {
    settle_compiled(instance);
  }
  hr_vector_trim(&instance->sources);
  hr_vector_trim(&instance->weights);
  for (int i = 0, number = 0; instance->plan->packed != NULL && i < instance->step_count; ++i) {
    const hr_exec_step *step = &instance->steps[i];
    if (step->call != NULL && hr__step_like(step) == NULL) {
      hr__tuning_settle(step->call->tuning, instance->plan->packed, number);
    }
    number += step->kind != HR_STEP_KERNEL;
  }
}

hr_status hr__instance_create(const hr_key *key, hr_device *device, const hr_scalar *arguments,
                              hr_instance **out_instance) {
  hr_instance *instance = NULL;
  HR_RETURN_IF_ERROR(begin(&instance));
  hr_status status = hr__plan_acquire(key, device, arguments, &instance->plan, &instance->is_compiled);
  status = status == HR_OK ? prepare(instance, device) : status;
  if (status != HR_OK) {
    destroy(instance);
    return status;
  }
  hr__profile_log_schedule(instance);
  instance->replay = instance->plan->schedule.is_refused ? NULL : hr__replay_create(instance, device);
  bool is_host = device->properties.is_host;
  if ((instance->plan->is_general || is_host) && !hr_log_is_on(HR_LOG_KERNEL)) { /* it names kernels with their dims */
    settle(instance);
  }
  hold_kernels(instance, true);
  instance->footprint = footprint_of(instance);
  *out_instance = instance;
  return HR_OK;
}

hr_status hr__instance_create_of(hr_plan *plan, hr_device *device, hr_instance **out_instance) {
  hr_instance *instance = NULL;
  hr_status status = begin(&instance);
  if (status != HR_OK) {
    hr__plan_release(plan);
    return status;
  }
  instance->plan = plan;
  status = prepare(instance, device);
  if (status != HR_OK) {
    destroy(instance);
    return status;
  }
  instance->footprint = footprint_of(instance);
  *out_instance = instance;
  return HR_OK;
}

void hr__instance_release(hr_instance *instance) {
  if (instance != NULL && hr_refcount_release(&instance->refcount)) {
    destroy(instance);
  }
}
