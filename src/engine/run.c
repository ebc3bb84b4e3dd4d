#include "engine/run.h"

#include "base/float_mode.h"
#include "base/log.h"
#include "engine/replay.h"
#include "engine/run_steps.h"
#include "engine/weights.h"

bool hr__instance_can_submit_early(const hr_instance *instance) {
  for (int i = 0; instance->needs_team && i < instance->step_count; ++i) {
    const hr_step_call *call = instance->steps[i].call;
    if (call != NULL && ((call->ready.prepared != NULL && call->ready.algorithm.provider->has_threads) ||
                         (call->tuning != NULL && !hr__tuning_is_over(call->tuning)))) {
      return false;
    }
  }
  return instance->needs_team;
}

/* Fills the lists of all addresses and scalars. */
static void bind_all(const hr_instance *instance, const hr_run *run, hr_run_scratch *scratch) {
  const hr_bindings *bindings = instance->plan->bindings;
  if (bindings != NULL) {
    hr__bindings_addresses(bindings, run->shared, run->bound, scratch->addresses.data);
    hr__bindings_values(bindings, run->arguments, scratch->values.data);
    return;
  }
  const hr_program *program = &instance->plan->schedule.program;
  const hr_place *places = instance->plan->schedule.places;
  for (int i = 0; i < program->buffer_count; ++i) {
    scratch->addresses.data[i] = places[i].kind == HR_PLACE_ARENA   ? (char *)run->shared + places[i].offset
                                 : places[i].kind == HR_PLACE_BOUND ? run->bound[i]
                                                                    : NULL;
  }
  for (int i = 0; i < program->scalar_count; ++i) {
    const hr_program_scalar *scalar = &program->scalars[i];
    scratch->values.data[i] = scalar->is_constant ? scalar->value : run->arguments[scalar->argument];
  }
}

/* Fills the flat lists from those of all addresses and scalars. */
static void fill_lists(const hr_instance *instance, hr_run_scratch *scratch) {
  const hr_narrow *args = instance->args, *numbers = instance->scalars;
  void *const *addresses = scratch->addresses.data;
  void **out = scratch->args.data;
  hr_scalar *values = scratch->values.data, *scalars = scratch->scalars.data;
  for (size_t i = 0; i < args->count; ++i) {
    uint32_t arg = hr_narrow_at(args, i);
    out[i] = hr__arg_is_buffer(arg) ? addresses[hr__arg_buffer(arg)]
             : arg == HR_ABSENT_ARG ? NULL
                                    : (void *)&values[hr__arg_scalar(arg)];
  }
  for (size_t i = 0; i < numbers->count; ++i) {
    scalars[i] = values[hr_narrow_at(numbers, i)];
  }
}

void hr__instance_bind(const hr_instance *instance, const hr_run *run, hr_run_scratch *scratch) {
  bind_all(instance, run, scratch);
  for (size_t i = 0; i < instance->weights.count; ++i) {
    scratch->weights.data[i] = (hr_run_weight){0};
  }
  fill_lists(instance, scratch);
}

/* Binds with cached weights; true if the run makes some. */
static bool bind(const hr_instance *instance, const hr_run *run, hr_run_scratch *scratch) {
  bind_all(instance, run, scratch);
  bool makes_weights = hr__weights_bind(instance, run, scratch);
  fill_lists(instance, scratch);
  return makes_weights;
}

hr_status hr__instance_run(const hr_instance *instance, hr_run *run, hr_run_scratch *scratch) {
  const hr_driver *driver = run->device->driver;
  bool is_timed = run->step_ns != NULL || run->times != NULL || hr_log_is_on(HR_LOG_KERNEL);
  int64_t begin = instance->has_tunings ? hr_clock_ns() : 0;
  bool makes_weights = bind(instance, run, scratch);
  hr_thread_interrupt before = hr_thread_interrupt_set((hr_thread_interrupt){run->interrupted, run->number});
  hr_float_mode mode = hr_float_mode_begin();
  hr_status status = instance->replay != NULL && !is_timed && !makes_weights
                         ? hr__replay_run(instance, run, scratch)
                         : hr__run_steps(instance, 0, instance->step_count, run, scratch, NULL);
  hr_float_mode_end(mode);
  (void)hr_thread_interrupt_set(before);
  hr__weights_unbind(instance, scratch, status == HR_OK);
  HR_RETURN_IF_ERROR(status);
  run->failed_step = instance->step_count;
  if (instance->has_tunings) {
    hr__tuning_allow(hr_clock_ns() - begin);
  }
  return driver->submit != NULL ? driver->submit(run->impl) : HR_OK;
}
