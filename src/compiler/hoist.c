/* hoist.c: moves small groups that wait for nothing to the front, side by side.
 *
 *   before   conv | scale = rsqrt(var + eps) * w | mul, add, relu | conv | scale = .. | ..
 *   after    scale = .. | scale = .. | .. | conv | mul, add, relu | conv | ..
 *
 * Such groups compute values of a network's parameters alone before each layer: factors of a batch norm, packed
 * weights, a step counter. Consecutive kernels that touch no buffer that another of them writes are launched at once
 * (engine/batch.c).
 *
 * A group moves before all others if no group that stays writes its inputs or accesses its outputs. Its results must be
 * small, because they occupy memory for longer. A write to a buffer older than the program doesn't pass a CHECK_INDEX.
 */
#include "compiler/passes.h"

typedef struct hoisting {
  const hr_program *program;
  const hr_group *groups;
  int *writer, *toucher; /* of each buffer: a group that stays and writes, or touches it; -1: none */
  bool has_check;        /* some group that stays is a check */
} hoisting;

static const hr_node *node_of(const hoisting *h, const hr_group *group, int k) {
  return &h->program->nodes[group->nodes[k]];
}

static bool makes_little(const hoisting *h, const hr_group *group, int64_t bytes_most) {
  int64_t bytes = 0;
  for (int k = 0; k < group->node_count; ++k) {
    const hr_node *node = node_of(h, group, k);
    for (int i = 0; i < node->output_count; ++i) {
      bool is_value = node->outputs[i].kind == HR_OPERAND_VALUE;
      bytes += is_value ? (int64_t)h->program->buffers[node->outputs[i].index].bytes : 0;
    }
  }
  return bytes <= bytes_most;
}

/* True if the node can run before all groups that stay. */
static bool is_free(const hoisting *h, const hr_node *node) {
  for (int i = 0; i < node->input_count + node->output_count; ++i) {
    const hr_operand *operand = hr_node_operand(node, i);
    if (operand->kind != HR_OPERAND_VALUE) {
      continue;
    }
    bool is_output = i >= node->input_count;
    const hr_program_buffer *buffer = &h->program->buffers[operand->index];
    if (h->writer[operand->index] >= 0 || (is_output && h->toucher[operand->index] >= 0) ||
        (is_output && h->has_check && !buffer->is_fresh)) {
      return false;
    }
  }
  return true;
}

static bool can_hoist(const hoisting *h, const hr_group *group, int64_t bytes_most) {
  bool can = group->is_loop && makes_little(h, group, bytes_most);
  for (int k = 0; can && k < group->node_count; ++k) {
    can = is_free(h, node_of(h, group, k));
  }
  return can;
}

static void note_staying(hoisting *h, int g) {
  const hr_group *group = &h->groups[g];
  for (int k = 0; k < group->node_count; ++k) {
    const hr_node *node = node_of(h, group, k);
    h->has_check |= node->op == HR_OP_CHECK_INDEX;
    for (int i = 0; i < node->input_count + node->output_count; ++i) {
      const hr_operand *operand = hr_node_operand(node, i);
      if (operand->kind == HR_OPERAND_VALUE) {
        h->toucher[operand->index] = g;
        h->writer[operand->index] = i < node->input_count ? h->writer[operand->index] : g;
      }
    }
  }
}

hr_status hr_hoist(hr_program *program, const hr_target *target, hr_fusion *fusion) {
  hoisting h = {.program = program, .groups = fusion->groups};
  hr_group *groups = hr_arena_alloc(&program->arena, ((size_t)fusion->group_count + 1) * sizeof *groups);
  bool *is_first = HR_ARENA_ARRAY(&program->arena, bool, (size_t)fusion->group_count + 1);
  int *node_group = hr_program_indices(program, program->node_count);
  h.writer = hr_program_indices(program, program->buffer_count);
  h.toucher = hr_program_indices(program, program->buffer_count);
  if (!groups || !is_first || !node_group || !h.writer || !h.toucher) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "hoist: no memory for %d groups", fusion->group_count);
  }
  for (int g = 0; g < fusion->group_count; ++g) {
    is_first[g] = can_hoist(&h, &fusion->groups[g], target->hoist_bytes);
    if (!is_first[g]) {
      note_staying(&h, g);
    }
  }
  int count = 0;
  for (int staying = 0; staying < 2; ++staying) {
    for (int g = 0; g < fusion->group_count; ++g) {
      if (is_first[g] == (staying == 0)) {
        hr_group_copy(&groups[count++], &fusion->groups[g]);
      }
    }
  }
  for (int g = 0; g < count; ++g) {
    for (int k = 0; k < groups[g].node_count; ++k) {
      node_group[groups[g].nodes[k]] = g;
    }
  }
  fusion->groups = groups;
  fusion->node_group = node_group;
  return HR_OK;
}
