/* live.c: determines which buffers need memory, and when.
 *
 * A dead, fresh buffer is elided if one group alone touches it, and writes it before it reads it: it is kept in the
 * registers of that group's kernel. Every other buffer is live from the first group that touches it to the last.
 */
#include "compiler/passes.h"

static bool is_plain(const hr_operand *operand) {
  return operand->term_count == 0 && operand->bound_count == 0;
}

/* True if an earlier write of the same group made exactly the elements that the input reads. */
static bool reads_own_write(const hr_program *program, const hr_fusion *fusion, int n, const hr_operand *input) {
  const hr_group *group = &fusion->groups[fusion->node_group[n]];
  for (int k = 0; k < group->node_count && group->nodes[k] < n; ++k) {
    const hr_node *node = &program->nodes[group->nodes[k]];
    for (int i = 0; i < node->output_count; ++i) {
      const hr_operand *output = &node->outputs[i];
      if (output->index == input->index && hr_group_same_map(&group->domain, &program->nodes[n], input, node, output)) {
        return true;
      }
    }
  }
  return false;
}

/* True if an access of loop node n needs no memory. */
static bool keeps_in_registers(const hr_program *program, const hr_fusion *fusion, int n, const hr_touch *touch) {
  const hr_operand *operand = hr_node_operand(&program->nodes[n], (int)touch->operand);
  return is_plain(operand) && (touch->is_write || reads_own_write(program, fusion, n, operand));
}

hr_status hr_live(hr_program *program, const hr_fusion *fusion, hr_liveness *out_liveness) {
  size_t count = (size_t)program->buffer_count + 1;
  int *first = HR_ARENA_ARRAY(&program->arena, int, count), *last = HR_ARENA_ARRAY(&program->arena, int, count);
  bool *elided = HR_ARENA_ARRAY(&program->arena, bool, count);
  if (first == NULL || last == NULL || elided == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "live: no memory for %d buffers", program->buffer_count);
  }
  for (int b = 0; b < program->buffer_count; ++b) {
    first[b] = last[b] = -1;
    elided[b] = program->buffers[b].is_dead;
  }
  for (int n = 0; n < program->node_count; ++n) {
    const hr_node *node = &program->nodes[n];
    int g = fusion->node_group[n];
    for (const hr_touch *t = hr_touches_begin(&fusion->touches, n); t < hr_touches_end(&fusion->touches, n); ++t) {
      uint32_t b = t->buffer;
      bool is_alone = first[b] < 0 || (first[b] == g && last[b] == g);
      elided[b] = elided[b] && is_alone && node->is_loop && keeps_in_registers(program, fusion, n, t);
      first[b] = first[b] < 0 || g < first[b] ? g : first[b];
      last[b] = g > last[b] ? g : last[b];
    }
  }
  out_liveness->group_first = first;
  out_liveness->group_last = last;
  out_liveness->is_elided = elided;
  return HR_OK;
}
