#include "engine/run_steps.h"

#include "base/integer.h"
#include "base/log.h"
#include "base/probe.h"
#include "base/ranges.h"
#include "core/ir/dtype.h"
#include "engine/handover.h"
#include "engine/profile.h"
#include "engine/run_clock.h"
#include "engine/run_description.h"
#include "engine/shared_calls.h"
#include "engine/weights.h"

enum { STAMPS_MAX = 8 };

static hr_status index_error(const hr_check *check, int64_t value) {
  long long index = (long long)value, upper = (long long)check->end;
  switch (check->message) {
    case 0:
      return hr_status_make(HR_STATUS_OUT_OF_RANGE, "index %lld is out of bounds for dimension with size %lld", index,
                            upper);
    case 1:
      return hr_status_make(HR_STATUS_OUT_OF_RANGE, "Target %lld is out of bounds.", index);
    case 3:
      return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "ZeroDivisionError");
    default:
      return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "index %lld is out of bounds: it is not in [%lld, %lld)", index,
                            (long long)check->least, upper);
  }
}

/* Checks the offending index that a kernel stored, unless the host can rule it out; a device without contents has
 * none. */
static hr_status run_check(const hr_instance *instance, const hr_exec_step *step, hr_run *run,
                           const hr_run_scratch *scratch, void *const *args) {
  int64_t value = INT64_MIN, least, most;
  const hr_device *device = run->device;
  const hr_check *check = &instance->checks.data[step->check];
  bool is_known =
      hr__index_source_range(&check->source, run->buffers, run->stamps, scratch->values.data, &least, &most);
  if (!device->properties.has_contents || (is_known && least >= check->least && most < check->end)) {
    return HR_OK;
  }
  const char *from = (const char *)args[0] + check->offset;
  run->has_waited = true;
  HR_RETURN_IF_ERROR(device->driver->copy_out(run->impl, &value, from, sizeof value));
  return value == INT64_MIN ? HR_OK : index_error(check, value);
}

/* The workspace, after the arena; NULL if no step needs memory. */
static void *workspace_of(const hr_instance *instance, const hr_run *run) {
  size_t arena = hr_align_up(instance->plan->schedule.arena_bytes, HR_WORKSPACE_ALIGNMENT);
  return run->shared != NULL ? (char *)run->shared + arena : NULL;
}

bool hr__step_scalar(const hr_instance *instance, const hr_exec_step *step, int i, uint32_t *out_scalar) {
  uint32_t arg = hr_narrow_at(instance->args, step->arg_first + (size_t)i);
  *out_scalar = hr__arg_scalar(arg);
  return arg != HR_ABSENT_ARG && !hr__arg_is_buffer(arg);
}

hr_host_launch hr__step_launch(const hr_instance *instance, const hr_exec_step *step, const hr_run *run,
                               const hr_run_scratch *scratch) {
  char *workspace = workspace_of(instance, run);
  bool is_cached = step->cached != NULL && run->device->properties.has_contents;
  return (hr_host_launch){is_cached ? hr__kernel_use(step->cached) : hr__step_kernel(step),
                          {.args = scratch->args.data + step->arg_first,
                           .scalars = scratch->scalars.data + step->scalar_first,
                           .workspace = workspace != NULL ? workspace + step->workspace_offset : NULL}};
}

/* Divides the time of a batch among its interpreted kernels. */
static void spend(const hr_exec_step *first, int steps, const hr_run_scratch *scratch, int64_t ns) {
  const hr_host_launch *launch = scratch->launches.data;
  for (int i = 0; i < steps; ++i) {
    if (hr__weights_has(&first[i], scratch)) {
      continue;
    }
    if (first[i].cached != NULL && launch->kernel == hr__step_kernel(&first[i])) {
      hr__kernel_spend(first[i].cached, ns / steps);
    }
    ++launch;
  }
}

/* Launches the kernels of a batch, except those whose result is cached. */
static hr_status run_kernels(const hr_instance *instance, const hr_exec_step *first, int steps, hr_run *run,
                             hr_run_scratch *scratch) {
  hr_device *device = run->device;
  bool all_compiled = true, is_timed = false;
  int count = 0;
  for (int i = 0; i < steps; ++i) {
    if (hr__weights_has(&first[i], scratch)) {
      continue;
    }
    hr_host_launch *launch = &scratch->launches.data[count++];
    *launch = hr__step_launch(instance, &first[i], run, scratch);
    bool is_compiled = launch->kernel != hr__step_kernel(&first[i]) || device->driver->dialect != HR_DIALECT_HOST;
    all_compiled &= is_compiled;
    is_timed |= !is_compiled && first[i].cached != NULL && hr__kernel_is_timed(first[i].cached);
  }
  run->is_compiled = all_compiled;
  run->compiled_count += all_compiled && first->kind == HR_STEP_KERNEL;
  int64_t begin = is_timed ? hr_clock_ns() : 0;
  HR_RETURN_IF_ERROR(device->driver->launch(run->impl, count, scratch->launches.data));
  if (is_timed) {
    spend(first, steps, scratch, hr_clock_ns() - begin);
  }
  return HR_OK;
}

/* The stamps of a library call's operands, if the library uses them. */
static void find_stamps(const hr_instance *instance, const hr_exec_step *step, const hr_run *run,
                        uint64_t stamps[STAMPS_MAX]) {
  const hr_step_call *call = step->call;
  bool asks = run->stamps != NULL && (call->tuning != NULL || call->ready.algorithm.provider->stamp != NULL);
  for (int i = 0; asks && i < hr__step_arg_count(step) && i < STAMPS_MAX; ++i) {
    uint32_t arg = hr_narrow_at(instance->args, step->arg_first + (size_t)i), buffer = hr__arg_buffer(arg);
    bool is_key = hr__arg_is_buffer(arg) && buffer < instance->plan->key.buffer_count;
    stamps[i] = is_key ? run->stamps[buffer] : 0;
  }
}

/* The arguments of a library's step: `out_moved` if it runs what was prepared for another one elsewhere in memory. */
static void *const *find_args(const hr_exec_step *step, void *const *args, void *out_moved[HR_SHARED_ARGS_MAX]) {
  const int64_t *moves = step->call->moves;
  if (moves == NULL) {
    return args;
  }
  for (int i = 0; i < hr__step_arg_count(step); ++i) {
    out_moved[i] = moves[i] != 0 ? (char *)args[i] + moves[i] : args[i];
  }
  return out_moved;
}

static hr_status run_library(const hr_instance *instance, const hr_exec_step *step, hr_run *run, void *const *args,
                             void *queue) {
  const hr_step_call *own = step->call;
  uint64_t stamps[STAMPS_MAX] = {0};
  void *moved[HR_SHARED_ARGS_MAX];
  args = find_args(step, args, moved);
  find_stamps(instance, step, run, stamps);
  char *workspace = workspace_of(instance, run);
  bool is_profile = run->step_ns != NULL || hr_log_is_on(HR_LOG_KERNEL); /* of the step alone */
  bool is_settled = !run->device->properties.is_host;
  if (own->tuning == NULL || (is_profile && !is_settled)) {
    return hr__ready_run(run->device->driver, run->impl, &own->ready, args, stamps, workspace, queue);
  }
  size_t bytes = workspace != NULL ? instance->shared_bytes - (size_t)(workspace - (char *)run->shared) : 0;
  const hr_tuning_call call = {args, stamps, workspace, bytes, run->impl, queue};
  return is_settled ? hr__tuning_run_settled(own->tuning, &own->ready, &call)
                    : hr__tuning_run(own->tuning, &own->ready, &call);
}

/* A call, and the kernel that takes its result. */
static hr_status run_with_taker(const hr_instance *instance, const hr_exec_step *step, hr_run *run,
                                hr_run_scratch *scratch, void *queue) {
  void *const *args = scratch->args.data + step->arg_first;
  const hr_ready *ready = &step->call->ready;
  const hr_host_launch launch = hr__step_launch(instance, step + 1, run, scratch);
  void *moved[HR_SHARED_ARGS_MAX];
  hr_host_taker taker;
  if (hr__make_taker(step, run->device, &launch, &taker) &&
      ready->algorithm.provider->run_for(ready->prepared, find_args(step, args, moved), workspace_of(instance, run),
                                         &taker)) {
    return HR_OK;
  }
  HR_RETURN_IF_ERROR(run_library(instance, step, run, args, queue));
  int compiled_count = run->compiled_count;
  hr_status status = run_kernels(instance, step + 1, 1, run, scratch);
  run->compiled_count = compiled_count; /* it counts as a part of the call */
  return status;
}

/* A kernel's operations, a function's name, or the provider of a library call. */
static const char *step_name(const hr_instance *instance, const hr_exec_step *step) {
  if (hr__step_has_kernel(step)) {
    return hr__step_kernel(step)->name;
  }
  bool has_nodes = instance->plan->packed == NULL; /* and a plan with calls keeps its nodes */
  const hr_node *node = has_nodes ? hr__step_source(instance, step)->node : NULL;
  return step->kind == HR_STEP_CHECK              ? "check"
         : node != NULL && node->op == HR_OP_CALL ? hr__node_name(node)
                                                  : step->call->ready.algorithm.provider->name;
}

static hr_status run_step(const hr_instance *instance, const hr_exec_step *step, hr_run *run, hr_run_scratch *scratch,
                          void *queue) {
  void *const *args = scratch->args.data + step->arg_first;
  if (hr__step_has_kernel(step)) {
    return run_kernels(instance, step, step->batch, run, scratch);
  }
  if (step->kind == HR_STEP_CHECK) {
    return run_check(instance, step, run, scratch, args);
  }
  if (step->taken_beside != 0) {
    return run_with_taker(instance, step, run, scratch, queue);
  }
  return run_library(instance, step, run, args, queue);
}

/* Notes what the step took. `begin` and `end` are ticks of the run's clock. */
static void note_step(const hr_instance *instance, int step, hr_run *run, int64_t begin, int64_t end) {
  if (run->times != NULL) {
    run->times[step] = (hr_launch_time){begin, end, run->is_compiled};
  }
  if (run->step_ns != NULL) {
    hr__profile_share(instance, step, end - begin, &run->step_ns[step]);
  }
  if (hr_log_is_on(HR_LOG_KERNEL)) {
    hr_text places = {0};
    hr__run_name_places(instance, step, run->mark_count, run->marks, &places);
    hr__profile_log_step(instance, step, end - begin, run->device->properties.has_contents, hr_text_chars(&places));
    hr_text_fini(&places);
  }
}

static hr_status run_each(const hr_instance *instance, int first, int end, hr_run *run, hr_run_scratch *scratch,
                          void *queue, hr_run_clock *clock, int64_t now) {
  for (int i = first; i < end; i += instance->steps[i].batch) {
    const hr_exec_step *step = &instance->steps[i];
    if (hr__run_is_interrupted(run)) {
      run->failed_step = i;
      return hr_status_make(HR_STATUS_CANCELLED, "interrupted after %d of %d steps", i, instance->step_count);
    }
    if (hr__weights_has_all(step, step->batch, scratch)) {
      run->compiled_count += step->kind == HR_STEP_KERNEL;
      continue;
    }
    const char *name = step_name(instance, step);
    HR_PROBE2(kernel__begin, name, step->batch);
    HR_RANGE_BEGIN(name);
    hr_status status = run_step(instance, step, run, scratch, queue);
    HR_RANGE_END();
    HR_PROBE2(kernel__end, name, step->batch);
    if (status != HR_OK) {
      run->failed_step = i;
      return status;
    }
    if (clock->is_on) {
      int64_t begin = now; /* the end of the one before */
      HR_RETURN_IF_ERROR(hr__run_clock_tick(clock, &now));
      note_step(instance, i, run, begin, now);
      now = hr_log_is_on(HR_LOG_KERNEL) ? hr_clock_ns() : now;
    }
  }
  return HR_OK;
}

hr_status hr__run_steps(const hr_instance *instance, int first, int end, hr_run *run, hr_run_scratch *scratch,
                        void *queue) {
  hr_device *device = run->device;
  hr_run_clock clock = {0};
  bool is_at_once = run->step_ns != NULL || hr_log_is_on(HR_LOG_KERNEL); /* each step's time */
  int64_t now = 0;
  if (queue == NULL && first < end && instance->library_count > 0 && device->driver->native != NULL) {
    queue = device->driver->native(run->impl);
  }
  hr_status status = HR_OK;
  if (is_at_once || run->times != NULL) {
    status = hr__run_clock_begin(&clock, run, is_at_once ? 0 : end - first, &now);
  }
  status = status != HR_OK ? status : run_each(instance, first, end, run, scratch, queue, &clock, now);
  hr_status timed = run->times != NULL ? hr__run_clock_resolve(&clock, end, run->times) : HR_OK;
  if (status != HR_OK) {
    hr_status_ignore(timed);
    return status;
  }
  return timed;
}
