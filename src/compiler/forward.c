/* forward.c: readers of a temporary that is a copy read what was copied.
 *
 *   before   loop %3 = copy(%0)       (%3 dead)           after   loop %3 = copy(%0)       (which simplify removes)
 *            %4 = matmul(%1, %3)                                  %4 = matmul(%1, %0)
 *
 * A function whose gradient is wanted gets copies of its arguments (the frontend of arrays does so), so that the tape
 * can tell them from other arrays. The copy is of a whole buffer without another layout or dtype, the only write to it,
 * and nobody writes to the copied buffer afterwards.
 */
#include "compiler/passes.h"
#include "core/ops/op.h"

typedef struct forwarder {
  hr_program *program;
  int *writes;     /* to each buffer: -1 is none, 0 is one */
  int *last_write; /* the node */
  int *source;     /* the buffer that its readers read; -1: itself */
} forwarder;

/* True if the memory of a buffer has nothing to do with that of others, and is in the default layout. */
static bool is_plain(const hr_program_buffer *buffer) {
  return buffer->rows == 0 && buffer->layout == 0 && buffer->room == 0 && buffer->takes == 0 && !buffer->is_refused &&
         buffer->growth == HR_GROWTH_NONE;
}

static bool has_same_strides(const hr_operand *a, const hr_operand *b) {
  bool is_same = a->rank == b->rank;
  for (int d = 0; is_same && d < a->rank; ++d) {
    is_same = a->dims[d] == b->dims[d] && (a->dims[d] == 1 || a->strides[d] == b->strides[d]);
  }
  return is_same;
}

/* True if the node copies all of a buffer into a temporary as it is. */
static bool is_copy(const hr_program *program, const hr_node *node) {
  if (node->op != HR_OP_COPY || node->input_count != 1 || node->output_count != 1 || node->store_mode != HR_STORE_SET ||
      node->reduce_mask != 0 || node->inputs[0].kind != HR_OPERAND_VALUE || node->outputs[0].kind != HR_OPERAND_VALUE) {
    return false;
  }
  const hr_operand *from = &node->inputs[0], *to = &node->outputs[0];
  const hr_program_buffer *source = &program->buffers[from->index], *target = &program->buffers[to->index];
  return from->index != to->index && from->dtype == to->dtype && from->offset == 0 && from->term_count == 0 &&
         from->bound_count == 0 && has_same_strides(from, to) && source->bytes == target->bytes && target->is_dead &&
         target->is_fresh && is_plain(source) && is_plain(target) && hr_covers_buffer(program, to, 0);
}

static void count_writes(const forwarder *f) {
  for (int n = 0; n < f->program->node_count; ++n) {
    const hr_node *node = &f->program->nodes[n];
    for (int i = 0; i < node->output_count; ++i) {
      if (node->outputs[i].kind == HR_OPERAND_VALUE) {
        ++f->writes[node->outputs[i].index];
        f->last_write[node->outputs[i].index] = n;
      }
    }
  }
}

static void forward_node(const forwarder *f, int n) {
  hr_node *node = &f->program->nodes[n];
  for (int i = 0; i < node->input_count; ++i) {
    hr_operand *x = &node->inputs[i];
    if (x->kind == HR_OPERAND_VALUE && f->source[x->index] >= 0) {
      x->index = (uint32_t)f->source[x->index];
    }
  }
  if (is_copy(f->program, node)) {
    uint32_t from = node->inputs[0].index, to = node->outputs[0].index;
    if (f->writes[to] == 0 && f->last_write[from] < n) {
      f->source[to] = (int)from;
    }
  }
}

static bool has_copies(const hr_program *program) {
  for (int n = 0; n < program->node_count; ++n) {
    if (is_copy(program, &program->nodes[n])) {
      return true;
    }
  }
  return false;
}

hr_status hr_forward(hr_program *program) {
  if (!has_copies(program)) {
    return HR_OK;
  }
  forwarder f = {.program = program,
                 .writes = hr_program_indices(program, program->buffer_count),
                 .last_write = hr_program_indices(program, program->buffer_count),
                 .source = hr_program_indices(program, program->buffer_count)};
  if (f.writes == NULL || f.last_write == NULL || f.source == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "forward: no memory for %d buffers", program->buffer_count);
  }
  count_writes(&f);
  for (int n = 0; n < program->node_count; ++n) {
    forward_node(&f, n);
  }
  return HR_OK;
}
