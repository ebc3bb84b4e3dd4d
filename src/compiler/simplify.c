/* simplify.c: removes nodes without readers, and moves the making of one-element tensors to the front.
 *
 *   before   %2 = sub(%0, %1)     (%2 dead, no reader)      after   (nothing)
 *            %3 = mul(%0, %0)     (%3 live)                         %3 = mul(%0, %0)
 *
 * One walk goes from the last node to the first. A buffer is wanted while a later node reads it or, if it is live, from
 * the program's end on. A store that covers a whole buffer ends the want for its older contents. A node that may
 * fail counts as an end, too: if it fails, live buffers hold the stores of the operations before it.
 *
 *   before   %2 = is_nan(%0)      (all of %0's size)        after   %3 = copy(0.0)
 *            %3 = copy(0.0)       (one element)                     %2 = is_nan(%0)
 *            %4 = where(%2, %3, %0)                                 %4 = where(%2, %3, %0)
 *
 * A loop over one element shares no kernel with its neighbours, and keeps its readers apart from them while it stands
 * between them.
 */
#include <string.h>

#include "compiler/passes.h"
#include "core/ops/op.h"

bool hr_covers_buffer(const hr_program *program, const hr_operand *output, uint32_t reduce_mask) {
  if (output->offset != 0 || output->term_count != 0 || output->bound_count != 0) {
    return false;
  }
  int64_t expected = 1;
  for (int d = output->rank - 1; d >= 0; --d) {
    if (output->dims[d] == 1 || (reduce_mask >> d & 1)) {
      continue;
    }
    if (output->strides[d] != expected) {
      return false;
    }
    expected *= output->dims[d];
  }
  return (uint64_t)expected * hr_dtype_size(output->dtype) >= program->buffers[output->index].bytes;
}

static bool is_wanted(const hr_node *node, const bool *wanted) {
  if (node->output_count == 0 || hr_call_effects_of(node) != HR_CALL_KERNEL) {
    return true; /* it has a side effect */
  }
  for (int i = 0; i < node->output_count; ++i) {
    if (node->outputs[i].kind == HR_OPERAND_VALUE && wanted[node->outputs[i].index]) {
      return true;
    }
  }
  return false;
}

static void want_live(const hr_program *program, bool *wanted) {
  for (int b = 0; b < program->buffer_count; ++b) {
    wanted[b] |= !program->buffers[b].is_dead;
  }
}

/* Ends the want for what a node's stores replace; true if a live buffer is not wanted any more. */
static bool end_wants(const hr_program *program, const hr_node *node, bool *wanted) {
  bool has_live = false;
  for (int i = 0; i < node->output_count && node->store_mode == HR_STORE_SET; ++i) {
    const hr_operand *output = &node->outputs[i];
    if (output->kind == HR_OPERAND_VALUE && hr_covers_buffer(program, output, node->is_loop ? node->reduce_mask : 0)) {
      wanted[output->index] = false;
      has_live |= !program->buffers[output->index].is_dead;
    }
  }
  return has_live;
}

/* True if the operand is there before the program, or a node in front has made it: `in_front`, by buffer. */
static bool is_early(const hr_program *program, const hr_operand *x, const bool *in_front) {
  return x->kind == HR_OPERAND_SCALAR ||
         (x->kind == HR_OPERAND_VALUE && x->term_count == 0 && x->bound_count == 0 && hr_operand_count(*x) == 1 &&
          (program->buffers[x->index].versions == 0 || in_front[x->index]));
}

/* True if the node makes all of a fresh buffer of one element, which nobody has written before, from numbers and such
 * elements: a number, or the factor of an optimizer's step. */
static bool is_number(const hr_program *program, const hr_node *node, const bool *in_front) {
  if (!node->is_loop || node->store_mode != HR_STORE_SET || node->output_count != 1 || node->reduce_mask != 0 ||
      node->ordered_mask != 0 || hr_op_table(node->op)->family != HR_FAMILY_POINTWISE) {
    return false;
  }
  const hr_operand *output = &node->outputs[0];
  const hr_program_buffer *buffer = &program->buffers[output->index];
  bool is = output->kind == HR_OPERAND_VALUE && buffer->versions == 0 && hr_operand_count(*output) == 1 &&
            buffer->is_fresh && buffer->takes == 0 && buffer->room == 0 && hr_covers_buffer(program, output, 0);
  for (int i = 0; i < node->input_count && is; ++i) {
    is = is_early(program, &node->inputs[i], in_front);
  }
  return is;
}

static void count_writes(hr_program *program, const hr_node *node, bool is_first, bool *in_front) {
  for (int i = 0; i < node->output_count; ++i) {
    if (node->outputs[i].kind == HR_OPERAND_VALUE) {
      ++program->buffers[node->outputs[i].index].versions;
      in_front[node->outputs[i].index] = is_first;
    }
  }
}

/* Puts the kept nodes together, numbers first, and counts versions. */
static bool compact(hr_program *program, const bool *keep) {
  size_t count = 0, number_count = 0;
  hr_node *nodes = program->nodes;
  hr_node *numbers = hr_arena_alloc(&program->arena, (size_t)program->node_count * sizeof *numbers);
  bool *in_front = HR_ARENA_ARRAY(&program->arena, bool, (size_t)program->buffer_count);
  if (numbers == NULL || in_front == NULL) {
    return false;
  }
  hr_versions_begin(program);
  for (int n = 0; n < program->node_count; ++n) {
    if (!keep[n]) {
      continue;
    }
    bool is_first = is_number(program, &nodes[n], in_front);
    count_writes(program, &nodes[n], is_first, in_front);
    if (is_first) {
      numbers[number_count++] = nodes[n];
    } else if ((int)count++ != n) {
      nodes[count - 1] = nodes[n];
    }
  }
  if (number_count > 0) {
    memmove(nodes + number_count, nodes, count * sizeof *nodes);
    memcpy(nodes, numbers, number_count * sizeof *nodes);
  }
  program->node_count = (int)(number_count + count);
  return true;
}

static hr_status no_memory(const hr_program *program) {
  return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "simplify: no memory for %d nodes", program->node_count);
}

hr_status hr_simplify(hr_program *program) {
  bool *wanted = HR_ARENA_ARRAY(&program->arena, bool, (size_t)program->buffer_count);
  bool *keep = HR_ARENA_ARRAY(&program->arena, bool, (size_t)program->node_count);
  if (wanted == NULL || keep == NULL) {
    return no_memory(program);
  }
  want_live(program, wanted);
  bool wants_live = true;
  for (int n = program->node_count - 1; n >= 0; --n) {
    const hr_node *node = &program->nodes[n];
    keep[n] = is_wanted(node, wanted);
    if (!keep[n]) {
      continue;
    }
    if (hr_may_fail(node) && !wants_live) {
      want_live(program, wanted);
      wants_live = true;
    }
    wants_live &= !end_wants(program, node, wanted);
    for (int i = 0; i < node->input_count; ++i) {
      if (node->inputs[i].kind == HR_OPERAND_VALUE) {
        wanted[node->inputs[i].index] = true;
      }
    }
  }
  return compact(program, keep) ? HR_OK : no_memory(program);
}
