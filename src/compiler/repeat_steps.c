/* repeat_steps.c: the numbers of a step, and steps that have the same structure: they differ in numbers of buffers,
 * scalars and records and in offsets alone.
 */
#include <string.h>

#include "compiler/repeat.h"

/* ---- the numbers of a step ---- */

void hr_step_each_slot(const hr_step *step, hr_slot_fn fn, void *ctx) {
  const hr_kernel *kernel = step->kernel;
  if (step->kind == HR_STEP_KERNEL) {
    for (int i = 0; i < kernel->arg_count; ++i) {
      fn(ctx, HR_SLOT_BUFFER, (uint32_t *)&kernel->args[i].buffer);
    }
    for (int i = 0; i < kernel->scalar_count; ++i) {
      fn(ctx, HR_SLOT_SCALAR, (uint32_t *)&kernel->scalars[i]);
    }
    for (int i = 0; i < kernel->access_count; ++i) {
      fn(ctx, HR_SLOT_OFFSET, (int64_t *)&kernel->accesses[i].offset);
    }
    return;
  }
  hr_node *node = (hr_node *)step->node;
  for (int i = 0; i < node->input_count + node->output_count; ++i) {
    hr_operand *x = hr_node_operand(node, i);
    if (x->kind == HR_OPERAND_VALUE) {
      fn(ctx, HR_SLOT_BUFFER, &x->index);
      fn(ctx, HR_SLOT_OFFSET, &x->offset);
    } else if (x->kind == HR_OPERAND_SCALAR) {
      fn(ctx, HR_SLOT_SCALAR, &x->index);
    }
  }
  if (node->scalar_count > 0) {
    fn(ctx, HR_SLOT_SCALAR, &node->scalar_base);
  }
  fn(ctx, HR_SLOT_RECORD, &node->origin);
}

/* ---- structure ---- */

static bool are_equal(const int64_t *a, const int64_t *b, int count) {
  return a == b || count == 0 || memcmp(a, b, (size_t)count * sizeof *a) == 0;
}

static bool match_accesses(const hr_access *a, const hr_access *b, int rank) {
  bool do_match = a->arg == b->arg && a->dtype == b->dtype && a->fill == b->fill && a->term_count == b->term_count &&
                  a->bound_count == b->bound_count && are_equal(a->strides, b->strides, rank);
  for (int i = 0; do_match && i < a->term_count; ++i) {
    const hr_kernel_term *s = &a->terms[i], *t = &b->terms[i];
    do_match = s->reg == t->reg && s->stride == t->stride && s->extent == t->extent;
  }
  for (int i = 0; do_match && i < a->bound_count; ++i) {
    const hr_bound *s = &a->bounds[i], *t = &b->bounds[i];
    do_match = s->offset == t->offset && s->extent == t->extent && are_equal(s->strides, t->strides, rank);
  }
  return do_match;
}

static bool match_instrs(const hr_instr *a, const hr_instr *b) {
  bool do_match = a->kind == b->kind && a->level == b->level && a->phase == b->phase && a->op == b->op &&
                  a->cls == b->cls && a->to == b->to && a->dst == b->dst && a->source_count == b->source_count &&
                  a->access == b->access && a->mode == b->mode;
  for (int i = 0; do_match && i < a->source_count; ++i) {
    do_match = a->sources[i].kind == b->sources[i].kind && a->sources[i].index == b->sources[i].index;
  }
  return do_match;
}

static bool match_code(const hr_kernel *a, const hr_kernel *b) {
  bool do_match = true;
  for (int i = 0; do_match && a->instrs != b->instrs && i < a->instr_count; ++i) {
    do_match = match_instrs(&a->instrs[i], &b->instrs[i]);
  }
  for (int i = 0; do_match && a->registers != b->registers && i < a->register_count; ++i) {
    const hr_register *r = &a->registers[i], *s = &b->registers[i];
    do_match = r->cls == s->cls && r->level == s->level && r->phase == s->phase && r->last_phase == s->last_phase;
  }
  return do_match;
}

static bool match_kernels(const hr_kernel *a, const hr_kernel *b) {
  bool do_match = a->rank == b->rank && a->reduce_mask == b->reduce_mask && a->ordered_mask == b->ordered_mask &&
                  a->order == b->order && a->phase_count == b->phase_count && a->arg_count == b->arg_count &&
                  a->scalar_count == b->scalar_count && a->access_count == b->access_count &&
                  a->instr_count == b->instr_count && a->register_count == b->register_count &&
                  are_equal(a->dims, b->dims, a->rank) && match_code(a, b);
  for (int i = 0; do_match && i < a->arg_count; ++i) {
    const hr_kernel_arg *s = &a->args[i], *t = &b->args[i];
    do_match = s->is_read == t->is_read && s->is_written == t->is_written && s->bytes_read == t->bytes_read &&
               s->bytes_written == t->bytes_written;
  }
  for (int i = 0; do_match && i < a->access_count; ++i) {
    do_match = match_accesses(&a->accesses[i], &b->accesses[i], a->rank);
  }
  return do_match;
}

static bool match_operands(const hr_operand *a, const hr_operand *b) {
  bool is_plain = (a->term_count | b->term_count | a->bound_count | b->bound_count) == 0 && a->kind != HR_OPERAND_INDEX;
  return is_plain && a->kind == b->kind && a->dtype == b->dtype && a->rank == b->rank && a->fill == HR_NO_SCALAR &&
         b->fill == HR_NO_SCALAR &&
         (a->kind != HR_OPERAND_VALUE ||
          (are_equal(a->dims, b->dims, a->rank) && are_equal(a->strides, b->strides, a->rank)));
}

static bool match_epilogues(const hr_node *a, const hr_node *b) {
  bool do_match = true;
  for (int i = 0; do_match && i < a->epilogue_count; ++i) {
    const hr_epilogue *s = &a->epilogues[i], *t = &b->epilogues[i];
    do_match = s->op == t->op && s->output == t->output && memcmp(s->inputs, t->inputs, sizeof s->inputs) == 0;
  }
  return do_match;
}

static bool match_nodes(const hr_node *a, const hr_node *b) {
  bool do_match = a->op == b->op && a->is_loop == b->is_loop && a->is_relaid == b->is_relaid &&
                  a->input_count == b->input_count && a->output_count == b->output_count &&
                  a->int_count == b->int_count && a->scalar_count == b->scalar_count &&
                  a->epilogue_count == b->epilogue_count && a->reduce_mask == b->reduce_mask &&
                  a->ordered_mask == b->ordered_mask && a->store_mode == b->store_mode &&
                  are_equal(a->ints, b->ints, a->int_count) && match_epilogues(a, b);
  for (int i = 0; do_match && i < a->input_count + a->output_count; ++i) {
    do_match = match_operands(hr_node_operand(a, i), hr_node_operand(b, i));
  }
  return do_match;
}

bool hr_steps_match(const hr_step *a, const hr_step *b) {
  return a->kind == b->kind && a->kind != HR_STEP_CHECK &&
         (a->kind == HR_STEP_KERNEL ? match_kernels(a->kernel, b->kernel) : match_nodes(a->node, b->node));
}
