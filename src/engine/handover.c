#include "engine/handover.h"

enum { ARRAYS_MAX = 8 }; /* bits of a step's taken_beside */

/* True if it visits one element. */
static bool is_constant(const hr_kernel *kernel, const hr_access *access) {
  bool is = access->term_count == 0 && access->bound_count == 0;
  for (int d = 0; is && d < kernel->rank; ++d) {
    is = access->strides[d] == 0 || kernel->dims[d] == 1;
  }
  return is;
}

/* Bits of the arguments that are arrays, all dense and of f32; all others are numbers. 0 if the kernel is another. */
static uint8_t find_arrays(const hr_kernel *kernel) {
  uint8_t arrays = 0, numbers = 0;
  bool can = kernel->order == HR_ORDER_NONE && kernel->ordered_mask == 0 && !kernel->is_repeated;
  for (int i = 0; can && i < kernel->access_count; ++i) {
    const hr_access *access = &kernel->accesses[i];
    uint8_t bit = access->arg >= 0 && access->arg < ARRAYS_MAX ? (uint8_t)(1 << access->arg) : 0;
    bool is_array = access->offset == 0 && hr_kernel_is_dense(kernel, access);
    can = access->arg >= 0 && (is_array ? bit != 0 && access->dtype == HR_DTYPE_F32
                                        : is_constant(kernel, access) && !kernel->args[access->arg].is_written);
    arrays |= is_array ? bit : 0;
    numbers |= is_array ? 0 : bit;
  }
  return can && (arrays & numbers) == 0 ? arrays : 0;
}

static size_t bytes_of(const hr_kernel *kernel) {
  size_t bytes = sizeof(float);
  for (int d = 0; d < kernel->rank; ++d) {
    bytes *= (size_t)kernel->dims[d];
  }
  return bytes;
}

/* True if an argument of the kernel may be changed while the call runs, or change what the call reads. */
static bool disturbs(const hr_instance *instance, const hr_exec_step *step, const hr_kernel_arg *arg, uint32_t result) {
  const hr_place *places = instance->plan->schedule.places;
  for (int i = 0; i < hr__step_arg_count(step); ++i) {
    uint32_t other = hr_narrow_at(instance->args, step->arg_first + (size_t)i), buffer = hr__arg_buffer(other);
    bool changes = hr__arg_is_buffer(other) && (arg->is_written || buffer == result);
    if (changes && (arg->buffer == buffer || hr__places_overlap(&places[arg->buffer], &places[buffer]))) {
      return true;
    }
  }
  return false;
}

static bool hands_over(const hr_exec_step *step) {
  const hr_ready *ready = step->call != NULL ? &step->call->ready : NULL;
  const hr_provider *provider = ready != NULL && !hr__step_has_kernel(step) ? ready->algorithm.provider : NULL;
  return provider != NULL && provider->hands_over != NULL && ready->prepared != NULL && ready->fallback == NULL &&
         step->call->tuning == NULL && provider->hands_over(ready->prepared);
}

uint8_t hr__find_taker(const hr_instance *instance, int first) {
  const hr_exec_step *step = &instance->steps[first], *next = step + 1;
  if (first + 1 >= instance->step_count || next->cached == NULL || !hands_over(step)) {
    return 0;
  }
  const hr_kernel *kernel = instance->plan->schedule.steps[first + 1].kernel;
  uint32_t last = hr_narrow_at(instance->args, next->arg_first - 1), result = hr__arg_buffer(last);
  uint8_t arrays = find_arrays(kernel), beside = arrays;
  bool takes = hr__arg_is_buffer(last) && instance->plan->schedule.places[result].bytes == bytes_of(kernel);
  for (int i = 0; takes && i < kernel->arg_count; ++i) {
    const hr_kernel_arg *arg = &kernel->args[i];
    if (arg->buffer != result) {
      takes = !disturbs(instance, step, arg, result);
    } else {
      takes = i < ARRAYS_MAX && (arrays >> i & 1) != 0 && !arg->is_written;
      beside &= (uint8_t) ~(1 << i);
    }
  }
  return takes && beside != arrays ? beside : 0;
}

bool hr__make_taker(const hr_exec_step *step, const hr_device *device, const hr_host_launch *launch,
                    hr_host_taker *out_taker) {
  const hr_host_kernel *kernel = launch->kernel;
  *out_taker = (hr_host_taker){.launch = *launch};
  for (int i = 0; i < ARRAYS_MAX && out_taker->ahead_count < HR_HOST_AHEAD_MAX; ++i) {
    if ((step->taken_beside >> i & 1) != 0) {
      out_taker->ahead[out_taker->ahead_count++] = launch->call.args[i];
    }
  }
  return device->properties.is_host && device->properties.has_contents && kernel->piece > 0 &&
         kernel->scratch_bytes == 0 && kernel->workspace_bytes == 0;
}
