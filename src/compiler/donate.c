/* donate.c: results take over the memory of donated values.
 *
 *   before   %1 = mul(%0, $0)       (%0 donated)           after   %1 = mul(%2, $0)
 *            %2 = add(%1, $1)       (%2 live, fresh)               %2 = add(%1, $1)        (%2 takes %0's memory)
 *
 * A donated value dies with the program, and its memory may be used for results (hr_buffer_donate). A training step
 * then updates parameters in place: nothing is allocated, and its stores hit lines that its loads brought.
 *
 * It runs on the stream form. Both become one buffer of the program, so the passes keep the order of its accesses, like
 * that of any write in place. A result qualifies if an element-wise operation writes all of it first. Its donor has as
 * many bytes, is not written, and is last read before that by element-wise operations, or there with the same view.
 * Among several donors it takes the one that was read last.
 */
#include "compiler/passes.h"
#include "core/ops/op.h"

/* Smaller values stay in the caches. Their updates are often part of the kernel of a sum, which reads them, too. */
enum { BYTES_MIN = 1 << 16 };

typedef struct touches {
  int first, last; /* nodes; first -1: none */
  bool is_written;
} touches;

typedef struct pass {
  hr_program *program;
  touches *all; /* of each buffer */
  int *donors;  /* buffers */
  int donor_count;
  uint32_t *takes, *taker; /* 1 + the buffer whose memory it takes over; 1 + the one that takes its memory */
} pass;

static bool is_value(const hr_operand *x) {
  return x->kind == HR_OPERAND_VALUE;
}

static bool is_element_wise(const hr_node *node) {
  return hr_op_table(node->op)->family == HR_FAMILY_POINTWISE && node->output_count == 1;
}

static bool is_plain(const hr_program_buffer *buffer) {
  return buffer->layout == 0 && buffer->rows == 0 && buffer->room == 0 && buffer->takes == 0 && !buffer->is_refused;
}

static void find_touches(const pass *p) {
  for (int b = 0; b < p->program->buffer_count; ++b) {
    p->all[b] = (touches){.first = -1, .last = -1};
  }
  for (int n = 0; n < p->program->node_count; ++n) {
    const hr_node *node = &p->program->nodes[n];
    for (int i = 0; i < node->input_count + node->output_count; ++i) {
      const hr_operand *x = hr_node_operand(node, i);
      if (is_value(x)) {
        touches *t = &p->all[x->index];
        t->first = t->first < 0 ? n : t->first;
        t->last = n;
        t->is_written |= i >= node->input_count;
      }
    }
  }
}

/* Lists the buffers that give their memory away. */
static void find_donors(pass *p) {
  for (int b = 0; b < p->program->buffer_count; ++b) {
    const hr_program_buffer *buffer = &p->program->buffers[b];
    const touches *t = &p->all[b];
    if (buffer->growth == HR_GROWTH_DONATED && buffer->bytes >= BYTES_MIN && buffer->is_dead && !buffer->is_fresh &&
        is_plain(buffer) && t->first >= 0 && !t->is_written && is_element_wise(&p->program->nodes[t->last])) {
      p->donors[p->donor_count++] = b;
    }
  }
}

/* True if the node reads the donor only as it writes its result, element by element. */
static bool reads_alike(const hr_node *node, int donor) {
  const hr_operand *out = &node->outputs[0];
  bool are = true;
  for (int i = 0; are && i < node->input_count; ++i) {
    hr_operand x = node->inputs[i];
    if (is_value(&x) && (int)x.index == donor) {
      x.index = out->index;
      are = hr_dtype_size(x.dtype) == hr_dtype_size(out->dtype) && hr_operands_have_equal_dims(&x, out) &&
            hr_operands_are_same_map(&x, out);
    }
  }
  return are;
}

/* True if node n makes a result that may be in a donor's memory. */
static bool is_result(const pass *p, int n) {
  const hr_node *node = &p->program->nodes[n];
  if (!is_element_wise(node) || !is_value(&node->outputs[0])) {
    return false;
  }
  const hr_operand *out = &node->outputs[0];
  const hr_program_buffer *buffer = &p->program->buffers[out->index];
  bool is = buffer->is_fresh && !buffer->is_dead && is_plain(buffer) && p->all[out->index].first == n &&
            hr_covers_buffer(p->program, out, 0);
  for (int i = 0; is && i < node->input_count; ++i) {
    is = !is_value(&node->inputs[i]) || node->inputs[i].index != out->index;
  }
  return is;
}

/* Gives the result of node n the memory of the donor that was read last. */
static void choose(const pass *p, int n) {
  const hr_node *node = &p->program->nodes[n];
  uint32_t to = node->outputs[0].index;
  int best = -1;
  for (int i = 0; i < p->donor_count; ++i) {
    int b = p->donors[i], last = p->all[b].last;
    bool fits = last <= n && p->taker[b] == 0 && p->program->buffers[b].bytes == p->program->buffers[to].bytes &&
                (last < n || reads_alike(node, b));
    best = fits && (best < 0 || last > p->all[best].last) ? b : best;
  }
  if (best >= 0) {
    p->takes[to] = (uint32_t)best + 1;
    p->taker[best] = to + 1;
  }
}

/* All accesses to donors become accesses to the results that take their memory over. */
static void rewrite(const pass *p) {
  for (int n = 0; n < p->program->node_count; ++n) {
    const hr_node *node = &p->program->nodes[n];
    for (int i = 0; i < node->input_count + node->output_count; ++i) {
      hr_operand *x = hr_node_operand(node, i);
      x->index = is_value(x) && p->taker[x->index] != 0 ? p->taker[x->index] - 1 : x->index;
    }
  }
  for (int b = 0; b < p->program->buffer_count; ++b) {
    hr_program_buffer *buffer = &p->program->buffers[b];
    buffer->is_fresh &= p->takes[b] == 0;
    buffer->is_free &= p->takes[b] == 0;
  }
}

static bool has_permission(const hr_program *program) {
  bool has = false;
  for (int b = 0; !has && b < program->buffer_count; ++b) {
    has = program->buffers[b].growth == HR_GROWTH_DONATED;
  }
  return has;
}

/* Other passes need not know the permissions. */
static void end_permissions(hr_program *program) {
  for (int b = 0; b < program->buffer_count; ++b) {
    hr_program_buffer *buffer = &program->buffers[b];
    buffer->growth = buffer->growth == HR_GROWTH_DONATED ? HR_GROWTH_NONE : buffer->growth;
  }
}

hr_status hr_donate(hr_program *stream, const uint32_t **out_takes) {
  *out_takes = NULL;
  if (!has_permission(stream)) {
    return HR_OK;
  }
  size_t count = (size_t)stream->buffer_count + 1;
  pass p = {.program = stream,
            .all = HR_ARENA_ARRAY(&stream->arena, touches, count),
            .donors = HR_ARENA_ARRAY(&stream->arena, int, count),
            .takes = HR_ARENA_ARRAY(&stream->arena, uint32_t, count),
            .taker = HR_ARENA_ARRAY(&stream->arena, uint32_t, count)};
  if (p.all == NULL || p.donors == NULL || p.takes == NULL || p.taker == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "donate: no memory for %d buffers", stream->buffer_count);
  }
  find_touches(&p);
  find_donors(&p);
  for (int n = 0; n < stream->node_count && p.donor_count > 0; ++n) {
    if (is_result(&p, n)) {
      choose(&p, n);
    }
  }
  rewrite(&p);
  end_permissions(stream);
  *out_takes = p.takes;
  return HR_OK;
}
