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
 * small, because they occupy memory for longer. No write to memory older than the program passes a node
 * that may fail.
 */
#include "compiler/passes.h"

typedef struct hoisting {
  const hr_program *program;
  const hr_touches *touches;
  const hr_group *groups;
  bool *is_written, *is_touched; /* of each buffer: by a group that stays */
  bool has_failure;              /* some group that stays may fail */
} hoisting;

static bool makes_little(const hoisting *h, const hr_group *group, int64_t bytes_most) {
  int64_t bytes = 0;
  for (int k = 0; k < group->node_count; ++k) {
    const hr_touch *t = hr_touches_begin(h->touches, group->nodes[k]),
                   *end = hr_touches_end(h->touches, group->nodes[k]);
    for (; t < end; ++t) {
      bytes += t->is_write ? (int64_t)h->program->buffers[t->buffer].bytes : 0;
    }
  }
  return bytes <= bytes_most;
}

/* True if node n can run before all groups that stay. */
static bool is_free(const hoisting *h, int n) {
  for (const hr_touch *t = hr_touches_begin(h->touches, n); t < hr_touches_end(h->touches, n); ++t) {
    if (h->is_written[t->buffer] ||
        (t->is_write && (h->is_touched[t->buffer] || (h->has_failure && !h->program->buffers[t->buffer].is_fresh)))) {
      return false;
    }
  }
  return true;
}

static bool can_hoist(const hoisting *h, const hr_group *group, int64_t bytes_most) {
  bool can = group->is_loop && makes_little(h, group, bytes_most);
  for (int k = 0; can && k < group->node_count; ++k) {
    can = is_free(h, group->nodes[k]);
  }
  return can;
}

static void note_staying(hoisting *h, const hr_group *group) {
  for (int k = 0; k < group->node_count; ++k) {
    int n = group->nodes[k];
    h->has_failure |= hr_may_fail(&h->program->nodes[n]);
    for (const hr_touch *t = hr_touches_begin(h->touches, n); t < hr_touches_end(h->touches, n); ++t) {
      h->is_touched[t->buffer] = true;
      h->is_written[t->buffer] |= t->is_write;
    }
  }
}

hr_status hr_hoist(hr_program *program, const hr_target *target, hr_fusion *fusion) {
  hoisting h = {.program = program, .touches = &fusion->touches, .groups = fusion->groups};
  hr_group *groups = hr_arena_alloc(&program->arena, ((size_t)fusion->group_count + 1) * sizeof *groups);
  bool *is_first = HR_ARENA_ARRAY(&program->arena, bool, (size_t)fusion->group_count + 1);
  int *node_group = hr_program_indices(program, program->node_count);
  h.is_written = HR_ARENA_ARRAY(&program->arena, bool, (size_t)program->buffer_count + 1);
  h.is_touched = HR_ARENA_ARRAY(&program->arena, bool, (size_t)program->buffer_count + 1);
  if (!groups || !is_first || !node_group || !h.is_written || !h.is_touched) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "hoist: no memory for %d groups", fusion->group_count);
  }
  for (int g = 0; g < fusion->group_count; ++g) {
    is_first[g] = can_hoist(&h, &fusion->groups[g], target->hoist_bytes);
    if (!is_first[g]) {
      note_staying(&h, &fusion->groups[g]);
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
