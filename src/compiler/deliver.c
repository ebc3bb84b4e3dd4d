/* deliver.c: writes a library operation's result directly to the place that its only consumer, a copy, would fill.
 *
 *   before   %4:f32[2,12,64,32], .., .. = attention_backward(..)                                  (%4, %5 dead)
 *            loop %5:f32[2,64,12,32] = copy(%4:f32[2,64,12,32]{24576,32,2048,1})                  (rows of all heads)
 *            loop %6:f32[2,64,384]{73728,1152,1}+384 = copy(%5:f32[2,64,384]{24576,384,1})        (beside two others)
 *   after    %6:f32[2,12,64,32]{73728,32,1152,1}+384, .., .. = attention_backward(..)
 *
 * The pass covers only composites that the target keeps whole, such as attention; layout.c places the results of
 * contractions. A result is delivered if
 *   - its buffer is dead,
 *   - its only consumer is one copy, which reads all of it,
 *   - no other node touches the copy's destination in between,
 *   - the target keeps the node with the new output.
 */
#include "compiler/passes.h"
#include "core/ops/op.h"

typedef struct delivery {
  hr_program *program;
  const hr_target *target;
  bool *is_gone; /* of each node */
  hr_uses uses;
} delivery;

static bool touches(const hr_node *node, uint32_t buffer) {
  for (int i = 0; i < node->input_count + node->output_count; ++i) {
    const hr_operand *x = hr_node_operand(node, i);
    if (x->kind == HR_OPERAND_VALUE && x->index == buffer) {
      return true;
    }
  }
  return false;
}

/* The next node from number n on that touches the buffer; node_count when there is none. */
static int next_touch(const delivery *d, int n, uint32_t buffer) {
  int k = hr_uses_after(&d->uses, buffer, n - 1), end = d->uses.first[buffer + 1];
  while (k < end && (d->is_gone[d->uses.nodes[k]] || !touches(&d->program->nodes[d->uses.nodes[k]], buffer))) {
    ++k;
  }
  return k < end ? d->uses.nodes[k] : d->program->node_count;
}

/* True if operand `at` of the node is the only one in its buffer. */
static bool is_alone(const hr_node *node, int at) {
  for (int i = 0; i < node->input_count + node->output_count; ++i) {
    const hr_operand *x = hr_node_operand(node, i);
    if (i != at && x->kind == HR_OPERAND_VALUE && x->index == hr_node_operand(node, at)->index) {
      return false;
    }
  }
  return true;
}

static bool is_plain(const hr_operand *x, hr_dtype dtype) {
  return x->kind == HR_OPERAND_VALUE && x->dtype == dtype && x->term_count == 0 && x->bound_count == 0;
}

static bool is_copy(const hr_node *node, hr_dtype dtype) {
  return node->is_loop && node->op == HR_OP_COPY && node->input_count == 1 && node->reduce_mask == 0 &&
         node->ordered_mask == 0 && node->store_mode == HR_STORE_SET && is_plain(&node->inputs[0], dtype) &&
         is_plain(&node->outputs[0], dtype);
}

/* The copy that is the only consumer of output `o` of node n; -1: there is none. */
static int find_copy(const delivery *d, int n, int o) {
  const hr_program *program = d->program;
  const hr_node *node = &program->nodes[n];
  const hr_operand *out = &node->outputs[o];
  if (!is_plain(out, out->dtype) || !program->buffers[out->index].is_dead || !is_alone(node, node->input_count + o)) {
    return -1;
  }
  int at = next_touch(d, n + 1, out->index);
  bool is_all = at < program->node_count && is_copy(&program->nodes[at], out->dtype) &&
                program->nodes[at].outputs[0].index != out->index && program->nodes[at].inputs[0].index == out->index &&
                next_touch(d, 0, out->index) == n && next_touch(d, at + 1, out->index) == program->node_count;
  return is_all ? at : -1;
}

/* True if node n may already write the copy's destination. */
static bool can_write_early(const delivery *d, int n, int copy) {
  const hr_program *program = d->program;
  uint32_t buffer = program->nodes[copy].outputs[0].index;
  const hr_node *node = &program->nodes[n];
  for (int k = n + 1; k < copy; ++k) { /* no visible store moves before a failure */
    if (!d->is_gone[k] && hr_may_fail(&program->nodes[k]) && !program->buffers[buffer].is_dead) {
      return false;
    }
  }
  for (int i = 0; i < node->input_count; ++i) {
    if (node->inputs[i].kind == HR_OPERAND_VALUE && node->inputs[i].index == buffer) {
      return false;
    }
  }
  return next_touch(d, n + 1, buffer) == copy;
}

/* Strides in the copy's destination over the dims of `out`. Each dim of `out` must be digits of one of the copy's dims,
 * in any order: all digits of a dim together then count through it. */
static bool map_strides(const hr_operand *out, const hr_node *copy, int64_t *out_strides) {
  const hr_operand *from = &copy->inputs[0], *to = &copy->outputs[0];
  int64_t counts[HR_RANK_MAX], last[HR_RANK_MAX] = {0};
  for (int k = 0; k < from->rank; ++k) {
    counts[k] = 1;
  }
  for (int d = 0; d < out->rank; ++d) {
    int64_t n = out->dims[d], s = out->strides[d];
    bool is_found = n == 1;
    out_strides[d] = 0;
    for (int k = 0; !is_found && k < from->rank; ++k) {
      int64_t step = from->strides[k];
      is_found = step > 0 && s % step == 0 && (n - 1) * s <= (from->dims[k] - 1) * step;
      if (is_found) {
        out_strides[d] = s / step * to->strides[k];
        counts[k] *= n, last[k] += (n - 1) * (s / step);
      }
    }
    if (!is_found) {
      return false;
    }
  }
  for (int k = 0; k < from->rank; ++k) {
    if (counts[k] != from->dims[k] || last[k] != from->dims[k] - 1) {
      return false;
    }
  }
  return from->offset == out->offset;
}

/* The node with its output `o` at the copy's destination. */
static bool make_delivered(const delivery *d, int n, int o, int copy, hr_node *out_node) {
  const hr_node *node = &d->program->nodes[n];
  hr_arena *arena = &d->program->arena;
  int64_t strides[HR_RANK_MAX];
  if (!map_strides(&node->outputs[o], &d->program->nodes[copy], strides)) {
    return false;
  }
  *out_node = *node;
  out_node->outputs = hr_arena_dup(arena, node->outputs, (size_t)node->output_count * sizeof *node->outputs);
  if (out_node->outputs == NULL) {
    return false;
  }
  hr_operand *out = (hr_operand *)&out_node->outputs[o];
  const hr_operand *to = &d->program->nodes[copy].outputs[0];
  out->index = to->index, out->version = to->version, out->offset = to->offset;
  out->strides = hr_arena_dup(arena, strides, (size_t)out->rank * sizeof *strides);
  for (int i = 0; i < node->output_count; ++i) {
    if (i != o && hr_operands_may_overlap(out, &node->outputs[i])) {
      return false;
    }
  }
  return out->strides != NULL;
}

/* Delivers output `o` of node n by one copy. */
static bool deliver(delivery *d, int n, int o) {
  int copy = find_copy(d, n, o);
  hr_node delivered;
  if (copy < 0 || !can_write_early(d, n, copy) || !make_delivered(d, n, o, copy, &delivered) ||
      !d->target->keeps(d->target->keeps_ctx, d->program, &delivered)) {
    return false;
  }
  d->program->nodes[n] = delivered;
  d->is_gone[copy] = true;
  d->uses.nodes[hr_uses_after(&d->uses, delivered.outputs[o].index, copy - 1)] = n; /* nobody is between them */
  return true;
}

static bool may_deliver(const hr_node *node) {
  return !node->is_loop && hr_op_table(node->op)->family == HR_FAMILY_COMPOSITE;
}

static bool has_work(const hr_program *program) {
  bool has = false;
  for (int n = 0; !has && n < program->node_count; ++n) {
    has = may_deliver(&program->nodes[n]);
  }
  return has;
}

hr_status hr_deliver(hr_program *program, const hr_target *target) {
  delivery d = {.program = program, .target = target};
  if (target->keeps == NULL || !has_work(program)) {
    return HR_OK;
  }
  d.is_gone = HR_ARENA_ARRAY(&program->arena, bool, (size_t)program->node_count + 1);
  if (d.is_gone == NULL || !hr_uses_find(program, &d.uses)) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "deliver: no memory for %d nodes", program->node_count);
  }
  bool is_changed = false;
  for (int n = 0; n < program->node_count; ++n) {
    const hr_node *node = &program->nodes[n];
    bool may_more = may_deliver(node);
    while (may_more) { /* a removed copy may have blocked another delivery */
      may_more = false;
      for (int o = 0; o < node->output_count; ++o) {
        may_more |= deliver(&d, n, o);
      }
      is_changed |= may_more;
    }
  }
  if (!is_changed) {
    return HR_OK;
  }
  int count = 0;
  for (int n = 0; n < program->node_count; ++n) {
    if (!d.is_gone[n]) {
      program->nodes[count++] = program->nodes[n];
    }
  }
  program->node_count = count;
  return HR_OK;
}
