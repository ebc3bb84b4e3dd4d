/* forward.c: copies of whole buffers that are not needed.
 *
 * Readers of a temporary that is a copy read what was copied.
 *
 *   before   loop %3 = copy(%0)       (%3 dead)           after   loop %3 = copy(%0)       (which simplify removes)
 *            %4 = matmul(%1, %3)                                  %4 = matmul(%1, %0)
 *
 * A function whose gradient is wanted gets copies of its arguments (the frontend of arrays does so), so that the tape
 * can tell them from other arrays. The copy is of a whole buffer without another layout or dtype, the only write to it,
 * and nobody writes to the copied buffer afterwards.
 *
 * A temporary that ends with a copy of it is this copy from the beginning.
 *
 *   before   loop %3 = neg(%0)            (%3 dead)           after   loop %4 = neg(%0)
 *            loop %4 = copy(%3)                                       loop %4[0:1] = copy(%1)
 *            loop %4[0:1] = copy(%1)
 *
 * Each iteration of a loop that writes slices of a tensor copies it: without this pass all of it, in each.
 */
#include <limits.h>

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

/* True if the node copies all of a buffer to another one as it is. */
static bool is_whole_copy(const hr_program *program, const hr_node *node) {
  if (node->op != HR_OP_COPY || node->input_count != 1 || node->output_count != 1 || node->store_mode != HR_STORE_SET ||
      node->reduce_mask != 0 || node->inputs[0].kind != HR_OPERAND_VALUE || node->outputs[0].kind != HR_OPERAND_VALUE) {
    return false;
  }
  const hr_operand *from = &node->inputs[0], *to = &node->outputs[0];
  const hr_program_buffer *source = &program->buffers[from->index], *target = &program->buffers[to->index];
  return from->index != to->index && from->dtype == to->dtype && from->offset == 0 && from->term_count == 0 &&
         from->bound_count == 0 && has_same_strides(from, to) && source->bytes == target->bytes && target->is_fresh &&
         is_plain(source) && is_plain(target) && hr_covers_buffer(program, to, 0);
}

/* True if its target is a temporary. */
static bool is_copy(const hr_program *program, const hr_node *node) {
  return is_whole_copy(program, node) && program->buffers[node->outputs[0].index].is_dead;
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
    if (is_whole_copy(program, &program->nodes[n])) {
      return true;
    }
  }
  return false;
}

/* ---- temporaries that end with a copy ---- */

typedef struct joiner {
  hr_program *program;
  int *first, *last; /* node that touches each buffer; -1: none */
  int *joined;       /* the buffer that it is from the beginning; -1: itself */
} joiner;

static void note_touches(const joiner *j) {
  for (int n = 0; n < j->program->node_count; ++n) {
    const hr_node *node = &j->program->nodes[n];
    for (int i = 0; i < node->input_count + node->output_count; ++i) {
      const hr_operand *x = hr_node_operand((hr_node *)node, i);
      if (x->kind == HR_OPERAND_VALUE) {
        j->first[x->index] = j->first[x->index] < 0 ? n : j->first[x->index];
        j->last[x->index] = n;
      }
    }
  }
  for (int b = 0; b < j->program->buffer_count; ++b) {
    if (j->program->buffers[b].takes != 0) { /* a buffer whose memory another one takes over stays itself */
      j->first[j->program->buffers[b].takes - 1] = j->last[j->program->buffers[b].takes - 1] = INT_MAX;
    }
  }
}

/* True if a temporary is copied for the last time here, and the copy is touched for the first time. */
static bool is_end(const joiner *j, int n) {
  const hr_node *node = &j->program->nodes[n];
  if (!is_whole_copy(j->program, node)) {
    return false;
  }
  uint32_t from = node->inputs[0].index, to = node->outputs[0].index;
  const hr_program_buffer *source = &j->program->buffers[from];
  return source->is_dead && source->is_fresh && j->first[from] < n && j->last[from] == n && j->first[to] == n;
}

static uint32_t joined_to(const joiner *j, uint32_t buffer) {
  while (j->joined[buffer] >= 0) {
    buffer = (uint32_t)j->joined[buffer];
  }
  return buffer;
}

/* From the last one on: what a buffer becomes is found in one step. */
static bool find_ends(const joiner *j) {
  bool has_any = false;
  for (int n = j->program->node_count - 1; n >= 0; --n) {
    if (is_end(j, n)) {
      const hr_node *node = &j->program->nodes[n];
      j->joined[node->inputs[0].index] = (int)joined_to(j, node->outputs[0].index);
      has_any = true;
    }
  }
  return has_any;
}

static void rename_joined(const joiner *j) {
  hr_program *program = j->program;
  int kept = 0;
  for (int n = 0; n < program->node_count; ++n) {
    bool is_gone = is_end(j, n);
    for (int i = 0; !is_gone && i < program->nodes[n].input_count + program->nodes[n].output_count; ++i) {
      hr_operand *x = hr_node_operand(&program->nodes[n], i);
      x->index = x->kind == HR_OPERAND_VALUE ? joined_to(j, x->index) : x->index;
    }
    if (!is_gone) {
      program->nodes[kept++] = program->nodes[n];
    }
  }
  program->node_count = kept;
}

static hr_status join(hr_program *program) {
  joiner j = {.program = program,
              .first = hr_program_indices(program, program->buffer_count),
              .last = hr_program_indices(program, program->buffer_count),
              .joined = hr_program_indices(program, program->buffer_count)};
  if (j.first == NULL || j.last == NULL || j.joined == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "forward: no memory for %d buffers", program->buffer_count);
  }
  note_touches(&j);
  if (find_ends(&j)) {
    rename_joined(&j);
  }
  return HR_OK;
}

hr_status hr_forward(hr_program *program, bool *out_changed) {
  *out_changed = has_copies(program);
  if (!*out_changed) {
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
  return join(program);
}
