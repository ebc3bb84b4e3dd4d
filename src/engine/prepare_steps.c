#include "engine/prepare_steps.h"

#include "base/integer.h"
#include "base/log.h"
#include "core/ops/op.h"
#include "engine/device_code.h"
#include "engine/shared_calls.h"

/* Operations below a microsecond are not tuned: thresholds for the host, and for other devices. */
static const int64_t CHOICE_FLOPS_MIN = 100000, CHOICE_FLOPS_MIN_DEVICE = 1000000;

static hr_status no_memory(const char *what) {
  return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no host memory for %s", what);
}

static bool worth_team(const hr_host_kernel *kernel) {
  for (int i = 0; i < kernel->pass_count; ++i) {
    int64_t grain = kernel->grain[i] > 0 ? kernel->grain[i] : 1;
    if (kernel->units[i] / grain > 1) {
      return true;
    }
  }
  return false;
}

static hr_status make_kernel(hr_instance *instance, hr_device *device, hr_exec_step *step) {
  const hr_kernel *kernel = step->source->kernel;
  if (hr_log_is_on(HR_LOG_SOURCE)) {
    hr_text text = {0};
    hr_status_ignore(hr_kernel_print(kernel, &text));
    hr_log(HR_LOG_SOURCE, "%s", hr_text_chars(&text));
    hr_text_fini(&text);
  }
  HR_RETURN_IF_ERROR(hr__kernel_acquire(kernel, device, &step->cached));
  step->kernel = hr__kernel_host(step->cached);
  step->arg_count = kernel->arg_count;
  step->scalar_count = kernel->scalar_count;
  for (int i = 0; i < kernel->arg_count; ++i) {
    if (!hr_vector_push(&instance->args, kernel->args[i].buffer)) {
      return no_memory("arguments");
    }
  }
  for (int i = 0; i < kernel->scalar_count; ++i) {
    if (!hr_vector_push(&instance->scalars, kernel->scalars[i])) {
      return no_memory("scalars");
    }
  }
  step->workspace_bytes = step->kernel->workspace_bytes;
  instance->needs_team |= worth_team(step->kernel);
  ++instance->kernel_count;
  return HR_OK;
}

static bool push_operand(hr_instance *instance, const hr_operand *operand) {
  return hr_vector_push(&instance->args, operand->kind == HR_OPERAND_VALUE    ? operand->index
                                         : operand->kind == HR_OPERAND_SCALAR ? operand->index | HR_SCALAR_ARG
                                                                              : HR_ABSENT_ARG);
}

/* The node as a kernel that its provider has written. */
static hr_status make_written(hr_instance *instance, hr_device *device, hr_exec_step *step) {
  const hr_node *node = step->source->node;
  hr_device_source source;
  HR_RETURN_IF_ERROR(step->library.algorithm.provider->write(&instance->plan->schedule.program, node, &source));
  hr_status status =
      hr__device_kernel_create_written(&source, device, hr_op_table(node->op)->name,
                                       node->input_count + node->output_count, node->scalar_count, &step->written);
  hr_text_fini(&source.text);
  HR_RETURN_IF_ERROR(status);
  step->kernel = step->written;
  step->scalar_count = node->scalar_count;
  step->workspace_bytes = step->kernel->workspace_bytes;
  for (uint32_t i = 0; i < (uint32_t)node->scalar_count; ++i) {
    if (!hr_vector_push(&instance->scalars, node->scalar_base + i)) {
      return no_memory("scalars");
    }
  }
  return HR_OK;
}

/* Prepares the node, and starts autotuning if it is worth it and no result is known. */
static hr_status prepare(hr_instance *instance, hr_device *device, hr_exec_step *step) {
  const hr_provider *const *providers = hr__algorithms_providers(device->driver->dialect);
  const hr_program *program = &instance->plan->schedule.program;
  const hr_node *node = step->source->node;
  hr_text key = {0};
  bool is_host = device->properties.is_host;
  hr_tuning_entry *tuning_entry = NULL;
  bool is_fixed = atomic_load_explicit(&device->is_deterministic, memory_order_relaxed);
  if (!is_fixed && device->properties.has_contents &&
      step->cost.flops >= (is_host ? CHOICE_FLOPS_MIN : CHOICE_FLOPS_MIN_DEVICE)) {
    hr__algorithms_key(providers, device, program, node, &key);
    tuning_entry = hr_text_chars(&key)[0] != 0 ? hr__tuning_entry_find(key.data, key.length) : NULL;
  }
  hr_text_fini(&key);
  HR_RETURN_IF_ERROR(hr__algorithms_prepare(device, providers, program, node, tuning_entry, &step->library));
  if (step->library.algorithm.provider->write != NULL) {
    return make_written(instance, device, step);
  }
  step->workspace_bytes = step->library.workspace_bytes;
  if (tuning_entry != NULL && step->library.fallback == NULL) {
    step->tuning = hr__tuning_create(device, providers, program, node, &step->library.algorithm, tuning_entry);
    instance->has_tunings |= step->tuning != NULL && is_host;
    if (step->tuning != NULL && !is_host && step->workspace_bytes < HR_TUNING_WORKSPACE) {
      step->workspace_bytes = HR_TUNING_WORKSPACE;
    }
  }
  return HR_OK;
}

/* Prepares the node, or takes what an earlier step prepared for one like it. */
static hr_status prepare_once(hr_instance *instance, hr_device *device, hr_shared_calls *calls, hr_exec_step *step) {
  const hr_plan *plan = instance->plan;
  size_t like = device->properties.is_host
                    ? hr__shared_calls_find(calls, &plan->schedule.program, step->source->node,
                                            (uint32_t)plan->key.buffer_count, (size_t)instance->step_count)
                    : 0;
  if (like == 0) {
    return prepare(instance, device, step);
  }
  const hr_exec_step *first = &instance->steps[like - 1];
  step->library = first->library;
  step->tuning = first->tuning;
  step->workspace_bytes = first->workspace_bytes;
  step->like = first;
  return HR_OK;
}

static hr_status make_library(hr_instance *instance, hr_device *device, hr_shared_calls *calls, hr_exec_step *step) {
  const hr_node *node = step->source->node;
  HR_RETURN_IF_ERROR(prepare_once(instance, device, calls, step));
  step->arg_count = node->input_count + node->output_count + node->scalar_count;
  bool ok = true;
  for (int i = 0; ok && i < node->input_count; ++i) {
    ok = push_operand(instance, &node->inputs[i]);
  }
  for (int i = 0; ok && i < node->output_count; ++i) {
    ok = push_operand(instance, &node->outputs[i]);
  }
  for (uint32_t i = 0; ok && i < (uint32_t)node->scalar_count; ++i) {
    ok = hr_vector_push(&instance->args, (node->scalar_base + i) | HR_SCALAR_ARG);
  }
  ++instance->library_count;
  if (step->kernel != NULL) {
    return ok ? HR_OK : no_memory("arguments");
  }
  const hr_provider *provider = step->library.algorithm.provider;
  int source = provider->keeps != NULL ? provider->keeps(step->library.prepared) : -1;
  if (ok && source >= 0 && node->inputs[source].index < instance->plan->key.buffer_count) {
    ok = hr_vector_push(&instance->sources, node->inputs[source].index);
  }
  instance->needs_team |= provider->needs_team != NULL && provider->needs_team(step->library.prepared);
  return ok ? HR_OK : no_memory("arguments");
}

static hr_status make_check(hr_instance *instance, hr_exec_step *step) {
  const hr_node *node = step->source->node;
  if (node->input_count != 1 || node->inputs[0].kind != HR_OPERAND_VALUE || node->int_count < 3) {
    return hr_status_make(HR_STATUS_INTERNAL, "check_index: %d inputs, %d ints", node->input_count, node->int_count);
  }
  step->arg_count = 1;
  step->indices = instance->plan->indices[step->source - instance->plan->schedule.steps];
  return hr_vector_push(&instance->args, node->inputs[0].index) ? HR_OK : no_memory("arguments");
}

/* Loads the code of all kernels onto a device that compiles texts. */
static hr_status load_kernels(hr_instance *instance, hr_device *device) {
  const hr_host_kernel **kernels = hr_calloc((size_t)instance->step_count + 1, sizeof *kernels);
  int count = 0;
  if (kernels == NULL) {
    return no_memory("kernels");
  }
  for (int i = 0; i < instance->step_count; ++i) {
    if (instance->steps[i].kernel != NULL) {
      kernels[count++] = instance->steps[i].kernel;
    }
  }
  hr_status status = hr__device_kernels_load(device, count, kernels);
  hr_free((void *)kernels);
  return status;
}

static hr_status make_steps(hr_instance *instance, hr_device *device, hr_shared_calls *calls) {
  const hr_schedule *schedule = &instance->plan->schedule;
  for (int i = 0; i < schedule->step_count; ++i) {
    hr_exec_step *step = &instance->steps[instance->step_count++];
    *step = (hr_exec_step){.kind = schedule->steps[i].kind,
                           .source = &schedule->steps[i],
                           .cost = instance->plan->costs[i],
                           .arg_first = instance->args.count,
                           .scalar_first = instance->scalars.count};
    HR_RETURN_IF_ERROR(step->kind == HR_STEP_KERNEL    ? make_kernel(instance, device, step)
                       : step->kind == HR_STEP_LIBRARY ? make_library(instance, device, calls, step)
                                                       : make_check(instance, step));
  }
  return HR_OK;
}

hr_status hr__steps_prepare(hr_instance *instance, hr_device *device) {
  const hr_schedule *schedule = &instance->plan->schedule;
  hr_shared_calls calls = {0};
  instance->steps = hr_calloc((size_t)schedule->step_count + 1, sizeof *instance->steps);
  if (instance->steps == NULL) {
    return no_memory("steps");
  }
  hr_status status = make_steps(instance, device, &calls);
  hr__shared_calls_fini(&calls);
  HR_RETURN_IF_ERROR(status);
  size_t arena = hr_align_up(schedule->arena_bytes, HR_WORKSPACE_ALIGNMENT);
  instance->shared_bytes = arena + hr__batch_steps(instance);
  return device->driver->dialect != HR_DIALECT_HOST ? load_kernels(instance, device) : HR_OK;
}
