/* simplify.c: removes what nobody reads.
 *
 *   before   %2 = sub(%0, %1)     (%2 dead, no reader)      after   (nothing)
 *            %3 = mul(%0, %0)     (%3 live)                         %3 = mul(%0, %0)
 *
 * One walk from the last node to the first. A buffer is wanted while something behind reads it or, if it is live, from the
 * program's end on; a store that covers a whole buffer ends the want of what was there before. A CHECK_INDEX is an end, too:
 * when it fails, live buffers hold what the operations before it have stored.
 */
#include "compiler/passes.h"

/* Whether a store through this view writes every byte of its buffer. */
static bool covers_buffer(const hr_program *program, const hr_operand *output, uint32_t reduce_mask) {
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
  if (node->output_count == 0 || node->op == HR_OP_CHECK_INDEX) {
    return true; /* it is there for its effect */
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

hr_status hr_simplify(hr_program *program) {
  bool *wanted = HR_ARENA_ARRAY(&program->arena, bool, (size_t)program->buffer_count);
  bool *keep = HR_ARENA_ARRAY(&program->arena, bool, (size_t)program->node_count);
  if (wanted == NULL || keep == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "simplify: no memory for %d nodes", program->node_count);
  }
  want_live(program, wanted);
  for (int n = program->node_count - 1; n >= 0; --n) {
    const hr_node *node = &program->nodes[n];
    keep[n] = is_wanted(node, wanted);
    if (!keep[n]) {
      continue;
    }
    if (node->op == HR_OP_CHECK_INDEX) {
      want_live(program, wanted);
    }
    for (int i = 0; i < node->output_count; ++i) {
      const hr_operand *output = &node->outputs[i];
      bool replaces = output->kind == HR_OPERAND_VALUE && node->store_mode == HR_STORE_SET;
      if (replaces && covers_buffer(program, output, node->is_loop ? node->reduce_mask : 0)) {
        wanted[output->index] = false;
      }
    }
    for (int i = 0; i < node->input_count; ++i) {
      if (node->inputs[i].kind == HR_OPERAND_VALUE) {
        wanted[node->inputs[i].index] = true;
      }
    }
  }
  int count = 0;
  for (int n = 0; n < program->node_count; ++n) {
    if (keep[n]) {
      program->nodes[count++] = program->nodes[n];
    }
  }
  program->node_count = count;
  return hr_versions(program);
}
