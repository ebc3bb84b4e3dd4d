/* propagate_order.c: propagates the order of a reduction's dims to the element-wise loops that share data with it.
 *
 *   before   %1[4,6]{1,4} = square(%0[4,6]{1,4})           after   %1[6,4]{4,1} = square(%0[6,4]{4,1})
 *            %2 = sum(%1[6,4]{4,1}) reduce(3)                      %2 = sum(%1[6,4]{4,1}) reduce(3)
 *
 * A reduction walks its input in memory order (core/ir/build.c), not in the order of its dims; the loops around it were
 * recorded in the latter. The order in which an element-wise loop walks is unobservable, so the loop gets the one in
 * which it can be fused: that of a later reduction, else of an earlier one, else of a loop that already got one. A loop
 * that already walks like one of its neighbours stays.
 */
#include "compiler/passes.h"
#include "core/ops/op.h"

typedef struct follower {
  hr_program *program;
  int *leader;     /* of each buffer: the nearest leading node that touches it; -1: none */
  int *is_leading; /* of each node: 1 if its order propagates, else -1 */
} follower;

static bool is_followed(const hr_node *node) {
  int dims = 0;
  for (int d = 0; node->is_loop && node->reduce_mask != 0 && d < node->outputs[0].rank; ++d) {
    dims += node->outputs[0].dims[d] != 1;
  }
  return dims > 1; /* one dim has one order */
}

static bool may_follow(const hr_node *node) {
  return node->is_loop && node->reduce_mask == 0 && node->ordered_mask == 0 && node->home == 0 &&
         hr_op_table(node->op)->rule != HR_RULE_SEEDED; /* random numbers come in runs */
}

typedef enum turn { TURN_NONE, TURN_SAME, TURN_FOUND } turn;

static int list_dims(const hr_operand *x, int *out_dims) {
  int count = 0;
  for (int d = 0; d < x->rank; ++d) {
    if (x->dims[d] != 1) {
      out_dims[count++] = d;
    }
  }
  return count;
}

/* The order of x's dims in which it is walked like `lead`. */
static turn find_turn(const hr_operand *x, const hr_operand *lead, int *out_order) {
  int dims[HR_RANK_MAX], lead_dims[HR_RANK_MAX], count = list_dims(x, dims), at = 0;
  uint32_t used = 0;
  bool is_same = true;
  if (x->kind != HR_OPERAND_VALUE || lead->kind != HR_OPERAND_VALUE || x->index != lead->index ||
      x->offset != lead->offset || x->term_count + lead->term_count + x->bound_count + lead->bound_count > 0 ||
      list_dims(lead, lead_dims) != count) {
    return TURN_NONE;
  }
  for (int d = 0; d < x->rank; ++d) {
    if (x->dims[d] == 1) {
      out_order[at++] = d;
    }
  }
  for (int i = 0; i < count; ++i) {
    int found = -1;
    for (int j = 0; j < count && found < 0; ++j) {
      int k = (i + j) % count; /* among equal dims, the one at the same place */
      bool is_alike =
          x->dims[dims[k]] == lead->dims[lead_dims[i]] && x->strides[dims[k]] == lead->strides[lead_dims[i]];
      found = is_alike && (used >> k & 1) == 0 ? k : -1;
    }
    if (found < 0) {
      return TURN_NONE;
    }
    used |= 1u << found;
    is_same &= found == i;
    out_order[at++] = dims[found];
  }
  return is_same ? TURN_SAME : TURN_FOUND;
}

/* The best order that a node's neighbours propose. */
static turn look_around(const follower *f, const hr_node *node, int *out_order) {
  turn best = TURN_NONE;
  for (int i = node->input_count + node->output_count - 1; i >= 0; --i) {
    const hr_operand *x = hr_node_operand(node, i);
    int leader = x->kind == HR_OPERAND_VALUE ? f->leader[x->index] : -1;
    const hr_node *lead = leader >= 0 ? &f->program->nodes[leader] : NULL;
    for (int k = 0; lead != NULL && k < lead->input_count + lead->output_count; ++k) {
      int order[HR_RANK_MAX];
      turn found = find_turn(x, hr_node_operand(lead, k), order);
      if (found == TURN_SAME) {
        return found;
      }
      if (found == TURN_FOUND && best == TURN_NONE) {
        best = found;
        for (int d = 0; d < x->rank; ++d) {
          out_order[d] = order[d];
        }
      }
    }
  }
  return best;
}

static bool visit(follower *f, int n) {
  hr_node *node = &f->program->nodes[n];
  int order[HR_RANK_MAX];
  if (f->is_leading[n] < 0) {
    turn found = may_follow(node) ? look_around(f, node, order) : TURN_NONE;
    if (found == TURN_NONE) {
      return true;
    }
    if (found == TURN_FOUND && !hr_domain_permute(f->program, node, order)) {
      return false;
    }
    f->is_leading[n] = 1;
  }
  for (int i = 0; i < node->input_count + node->output_count; ++i) {
    const hr_operand *x = hr_node_operand(node, i);
    if (x->kind == HR_OPERAND_VALUE) {
      f->leader[x->index] = n;
    }
  }
  return true;
}

hr_status hr_propagate_order(hr_program *program) {
  bool has_work = false, ok = true;
  for (int n = 0; n < program->node_count; ++n) {
    has_work |= is_followed(&program->nodes[n]);
  }
  if (!has_work) {
    return HR_OK;
  }
  follower f = {.program = program, .is_leading = hr_program_indices(program, program->node_count)};
  ok = f.is_leading != NULL;
  for (int n = 0; ok && n < program->node_count; ++n) {
    f.is_leading[n] = is_followed(&program->nodes[n]) ? 1 : -1;
  }
  for (int is_forward = 0; is_forward < 2 && ok; ++is_forward) {
    f.leader = hr_program_indices(program, program->buffer_count);
    ok = f.leader != NULL;
    for (int i = 0; ok && i < program->node_count; ++i) {
      ok = visit(&f, is_forward ? i : program->node_count - 1 - i);
    }
  }
  return ok ? HR_OK
            : hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "follow: no memory for %d nodes", program->node_count);
}
