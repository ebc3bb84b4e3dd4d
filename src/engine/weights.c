#include "engine/weights.h"

#include "core/op.h"

static const size_t BYTES_MIN = 1 << 15; /* what is less is made as soon as found */

static bool is_made_of_weights(const hr_node *node, uint32_t buffer) {
  bool is_contraction = node->op == HR_OP_MATMUL || node->op == HR_OP_CONV || node->op == HR_OP_CONV_BACKWARD_DATA;
  for (int i = 0; i < node->input_count; i++) {
    if (i != 1 && node->inputs[i].kind == HR_OPERAND_VALUE && node->inputs[i].index == buffer) {
      return false;
    }
  }
  return is_contraction;
}

static bool touches(const hr_exec_step *step, const hr_executable *executable, uint32_t buffer) {
  bool does = false;
  for (int i = 0; i < step->arg_count; i++) {
    does |= executable->args.data[step->arg_first + (size_t)i] == buffer;
  }
  return does;
}

/* Whether a temporary that step `maker` makes serves contractions as their weights alone. */
static bool is_weight(const hr_executable *executable, int maker, uint32_t buffer) {
  bool is_read = false;
  for (int i = 0; i < executable->step_count; i++) {
    const hr_exec_step *step = &executable->steps[i];
    if (i == maker || !touches(step, executable, buffer)) {
      continue;
    }
    const hr_node *node = step->source->node;
    if (step->kind != HR_STEP_LIBRARY || !is_made_of_weights(node, buffer) || node->outputs[0].index == buffer) {
      return false;
    }
    is_read = true;
  }
  return is_read;
}

/* The only buffer that a kernel reads, and the only one that it writes; false when there are others. */
static bool find_ends(const hr_kernel *kernel, uint32_t *out_source, uint32_t *out_made) {
  bool is = kernel->arg_count == 2 && kernel->scalar_count == 0 && kernel->args[0].is_read != kernel->args[1].is_read &&
            kernel->args[0].is_written != kernel->args[1].is_written &&
            kernel->args[0].is_read != kernel->args[0].is_written;
  if (is) {
    int from = kernel->args[0].is_read ? 0 : 1;
    *out_source = kernel->args[from].buffer;
    *out_made = kernel->args[1 - from].buffer;
  }
  return is;
}

static bool note(hr_executable *executable, int index, uint32_t source, uint32_t made) {
  const hr_exec_step *step = &executable->steps[index];
  hr_weight weight = {.source = source, .made = made, .bytes = executable->schedule.program.buffers[made].bytes};
  bool ok = hr_kernel_make_key(step->source->kernel, &weight.recipe) && hr_vector_push(&executable->weights, weight) &&
            hr_vector_push(&executable->sources, source);
  executable->steps[index].weight = ok ? (int)executable->weights.count - 1 : -1;
  return ok;
}

bool hr__weights_find(hr_executable *executable) {
  const hr_schedule *schedule = &executable->schedule;
  bool ok = true;
  for (int i = 0; ok && i < executable->step_count; i++) {
    uint32_t source, made;
    hr_exec_step *step = &executable->steps[i];
    step->weight = -1;
    if (step->kind == HR_STEP_KERNEL && find_ends(step->source->kernel, &source, &made) &&
        source < executable->key.buffer_count && executable->last_write[source] < 0 &&
        schedule->places[made].kind == HR_PLACE_ARENA && schedule->program.buffers[made].bytes >= BYTES_MIN &&
        is_weight(executable, i, made)) {
      ok = note(executable, i, source, made);
    }
  }
  return ok;
}

void hr__weights_fini(hr_executable *executable) {
  for (size_t i = 0; i < executable->weights.count; i++) {
    hr_vector_fini(&executable->weights.data[i].recipe);
  }
  hr_vector_fini(&executable->weights);
}

bool hr__weights_bind(const hr_executable *executable, const hr_run *run, hr_run_scratch *scratch) {
  bool has_new = false;
  for (size_t i = 0; i < executable->weights.count; i++) {
    hr_weight *weight = &executable->weights.data[i];
    hr_run_weight *found = &scratch->weights.data[i];
    uint64_t stamp = run->stamps != NULL ? run->stamps[weight->source] : 0;
    found->derived = hr__derived_get(run->device, stamp, &weight->seen_stamp, weight->recipe.data, weight->recipe.count,
                                     weight->bytes, &found->is_new);
    if (found->derived != NULL) {
      scratch->addresses.data[weight->made] = hr__derived_data(found->derived);
    }
    has_new |= found->is_new;
  }
  return has_new;
}

void hr__weights_unbind(const hr_executable *executable, hr_run_scratch *scratch, bool succeeded) {
  for (size_t i = 0; i < executable->weights.count; i++) {
    hr_run_weight *found = &scratch->weights.data[i];
    if (found->is_new && succeeded) {
      hr__derived_publish(found->derived);
    }
    hr__derived_release(found->derived);
    *found = (hr_run_weight){0};
  }
}
