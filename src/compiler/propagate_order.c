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
#include <string.h>

#include "compiler/passes.h"
#include "core/ops/op.h"

typedef struct propagation {
  hr_program *program;
  const hr_touches *touches;
  int *source;    /* of each buffer: the nearest leading node that touches it; -1: none */
  int *is_source; /* of each node: 1 if its order propagates, else -1 */
} propagation;

static bool has_order(const hr_node *node) {
  int dims = 0;
  for (int d = 0; node->is_loop && node->reduce_mask != 0 && d < node->outputs[0].rank; ++d) {
    dims += node->outputs[0].dims[d] != 1;
  }
  return dims > 1; /* one dim has one order */
}

static bool may_change(const hr_node *node) {
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

static bool have_equal_strides(const hr_operand *x, const hr_operand *from) {
  bool have = hr_operands_have_equal_dims(x, from);
  for (int d = 0; have && d < x->rank; ++d) {
    have = x->strides[d] == from->strides[d];
  }
  return have;
}

/* The order of x's dims in which it is walked like `from`, of the same buffer. */
static turn find_turn(const hr_operand *x, const hr_operand *from, int *out_order) {
  if (x->offset != from->offset || x->term_count + from->term_count + x->bound_count + from->bound_count > 0) {
    return TURN_NONE;
  }
  if (have_equal_strides(x, from)) {
    return TURN_SAME;
  }
  int dims[HR_RANK_MAX], lead_dims[HR_RANK_MAX], count = list_dims(x, dims), at = 0;
  uint32_t used = 0;
  bool is_same = true;
  if (list_dims(from, lead_dims) != count) {
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
          x->dims[dims[k]] == from->dims[lead_dims[i]] && x->strides[dims[k]] == from->strides[lead_dims[i]];
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

/* Improves *best by what node `source` proposes to the operand x; true if x is walked like one of its operands. */
static bool look_at(const propagation *f, const hr_operand *x, int source, turn *best, int *out_order) {
  const hr_node *from = &f->program->nodes[source];
  for (const hr_touch *t = hr_touches_begin(f->touches, source); t < hr_touches_end(f->touches, source); ++t) {
    int order[HR_RANK_MAX];
    turn found = t->buffer == x->index ? find_turn(x, hr_node_operand(from, (int)t->operand), order) : TURN_NONE;
    if (found == TURN_SAME) {
      return true;
    }
    if (found == TURN_FOUND && *best == TURN_NONE) {
      *best = found;
      memcpy(out_order, order, (size_t)x->rank * sizeof *order);
    }
  }
  return false;
}

/* The best order that node n's neighbours propose. */
static turn look_around(const propagation *f, int n, int *out_order) {
  const hr_touch *begin = hr_touches_begin(f->touches, n);
  turn best = TURN_NONE;
  for (const hr_touch *t = hr_touches_end(f->touches, n); t-- > begin;) {
    int source = f->source[t->buffer];
    if (source >= 0 && look_at(f, hr_node_operand(&f->program->nodes[n], (int)t->operand), source, &best, out_order)) {
      return TURN_SAME;
    }
  }
  return best;
}

static bool visit(propagation *f, int n) {
  hr_node *node = &f->program->nodes[n];
  int order[HR_RANK_MAX];
  if (f->is_source[n] < 0) {
    turn found = may_change(node) ? look_around(f, n, order) : TURN_NONE;
    if (found == TURN_NONE) {
      return true;
    }
    if (found == TURN_FOUND && !hr_domain_permute(f->program, node, order)) {
      return false;
    }
    f->is_source[n] = 1;
  }
  for (const hr_touch *t = hr_touches_begin(f->touches, n); t < hr_touches_end(f->touches, n); ++t) {
    f->source[t->buffer] = n;
  }
  return true;
}

hr_status hr_propagate_order(hr_program *program, const hr_touches *touches) {
  propagation f = {.program = program,
                   .touches = touches,
                   .is_source = hr_arena_alloc(&program->arena, ((size_t)program->node_count + 1) * sizeof(int))};
  bool has_work = false, ok = f.is_source != NULL;
  for (int n = 0; ok && n < program->node_count; ++n) {
    f.is_source[n] = has_order(&program->nodes[n]) ? 1 : -1;
    has_work |= f.is_source[n] > 0;
  }
  if (ok && !has_work) {
    return HR_OK;
  }
  for (int is_forward = 0; is_forward < 2 && ok; ++is_forward) {
    f.source = hr_program_indices(program, program->buffer_count);
    ok = f.source != NULL;
    for (int i = 0; ok && i < program->node_count; ++i) {
      ok = visit(&f, is_forward ? i : program->node_count - 1 - i);
    }
  }
  return ok ? HR_OK
            : hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "follow: no memory for %d nodes", program->node_count);
}
