#include "engine/run_scratch.h"

hr_status hr__run_scratch_reserve(hr_run_scratch *scratch, const hr_instance *instance) {
  const hr_program *program = &instance->plan->schedule.program;
  const hr_bindings *bindings = instance->plan->bindings;
  int buffers = bindings != NULL ? bindings->buffer_count : program->buffer_count;
  int scalars = bindings != NULL ? bindings->scalar_count : program->scalar_count;
  bool ok = hr_vector_reserve(&scratch->addresses, (size_t)buffers + 1) &&
            hr_vector_reserve(&scratch->args, instance->args->count + 1) &&
            hr_vector_reserve(&scratch->values, (size_t)scalars + 1) &&
            hr_vector_reserve(&scratch->scalars, instance->scalars->count + 1) &&
            hr_vector_reserve(&scratch->launches, (size_t)instance->batch_most + 1) &&
            hr_vector_reserve(&scratch->weights, instance->weights.count);
  return ok ? HR_OK : hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no host memory for the arguments of a run");
}

void hr__run_scratch_fini(hr_run_scratch *scratch) {
  hr_vector_fini(&scratch->addresses);
  hr_vector_fini(&scratch->args);
  hr_vector_fini(&scratch->values);
  hr_vector_fini(&scratch->scalars);
  hr_vector_fini(&scratch->launches);
  hr_vector_fini(&scratch->weights);
}
