/* Channels-last layouts (layout.c): which activations convolutions request so, and the loops that they propagate to. */
#include "compiler/layout_internal.h"

enum { COPIED_PART = 16, FULL_CHANNELS = 8 /* channels that a one-format library processes at once */ };

/* True for the operands of a convolution that are activations, inputs before outputs. */
static bool is_activation(const hr_node *node, int operand) {
  switch (node->op) {
    case HR_OP_CONV:
    case HR_OP_CONV_BACKWARD_DATA:
      return operand == 0 || operand == node->input_count ||
             (operand >= 3 && operand < node->input_count); /* x, the output, inputs of epilogues */
    case HR_OP_CONV_BACKWARD_WEIGHT:
      return operand < 2;
    default:
      return false;
  }
}

bool hr__layout_has_images(const hr_node *node) {
  return !node->is_loop && is_activation(node, 0);
}

static bool takes(const hr__layout *l, const hr_node *node, int operand) {
  return is_activation(node, operand) && hr__layout_channels(l, hr_node_operand(node, operand)) == 2u; /* [N, C, ..] */
}

static void put_channels_last(hr__layout *l) {
  l->strides[HR__OUTER] = l->dims[HR__CHANNEL] * l->dims[HR__INNER];
  l->strides[HR__INNER] = l->dims[HR__CHANNEL];
  l->strides[HR__CHANNEL] = 1;
}

uint64_t hr__layout_word(const hr__layout *l) {
  return hr_layout_pack(&(hr_buffer_layout){l->element_bytes, l->dims[HR__CHANNEL], l->dims[HR__INNER]});
}

bool hr__layout_images_adopt(hr__layout_pass *p) {
  for (int b = 0; b < p->program->buffer_count; ++b) {
    hr_program_buffer *buffer = &p->program->buffers[b];
    hr__candidate *c = &p->candidates[b];
    if (buffer->layout == 0) {
      continue;
    }
    hr_buffer_layout given = hr_layout_unpack(buffer->layout);
    int64_t count = (int64_t)(buffer->bytes / given.element_bytes);
    c->layout = (hr__layout){.dims = {count / given.channels / given.inner, given.channels, given.inner},
                             .element_bytes = given.element_bytes,
                             .bytes = buffer->bytes};
    put_channels_last(&c->layout);
    const hr_operand any = {.kind = HR_OPERAND_VALUE, .index = (uint32_t)b};
    c->is_open = false;
    c->is_relaid = hr__layout_can_relay(p, &any, &c->layout, takes);
    buffer->is_refused = !c->is_relaid;
    if (c->is_relaid && !hr_vector_push(&p->changed, (uint32_t)b)) {
      return false;
    }
  }
  return true;
}

/* The layout of a buffer that an operand walks densely, with the dims of `channels` as its channels; false if it
 * doesn't, or if both orders are the same. */
static bool layout_of(const hr__layout_pass *p, const hr_operand *operand, uint32_t channels, hr__layout *out_layout) {
  hr__layout l = {.dims = {1, 1, 1}, .element_bytes = hr_dtype_size(operand->dtype)};
  int64_t expected = 1;
  int axis = HR__INNER;
  for (int d; (d = hr__layout_next_dim(operand, expected)) >= 0; expected *= operand->dims[d]) {
    bool is_channel = channels >> d & 1;
    axis = is_channel ? HR__CHANNEL : axis == HR__CHANNEL ? HR__OUTER : axis;
    if (is_channel && l.dims[HR__OUTER] > 1) {
      return false;
    }
    l.dims[axis] *= operand->dims[d];
  }
  put_channels_last(&l);
  l.bytes = p->program->buffers[operand->index].bytes;
  *out_layout = l;
  return (size_t)expected * l.element_bytes == l.bytes && l.dims[HR__CHANNEL] > 1 && l.dims[HR__INNER] > 1 &&
         (!p->candidates[operand->index].is_seen || hr__layout_word(&l) != 0);
}

static bool relay(hr__layout_pass *p, const hr_operand *operand, uint32_t channels) {
  hr__layout l;
  return !hr__layout_is_open(p, operand) || !layout_of(p, operand, channels, &l) ||
         hr__layout_relay(p, operand, &l, takes);
}

static int64_t count_elements(const hr_operand *operand) {
  int64_t count = 1;
  for (int d = 0; d < operand->rank; ++d) {
    count *= operand->dims[d];
  }
  return count;
}

/* True if an activation of a convolution will be channels-last and gain by it: because its layout can change, or
 * because both layouts are the same. */
static bool is_willing(const hr__layout_pass *p, const hr_operand *operand) {
  hr__layout l;
  if (operand->dims[1] == 1 || count_elements(operand) == operand->dims[0] * operand->dims[1]) {
    return true;
  }
  if (operand->kind == HR_OPERAND_VALUE && p->candidates[operand->index].is_relaid) {
    return true;
  }
  return operand->dims[1] % FULL_CHANNELS == 0 && hr__layout_is_open(p, operand) && layout_of(p, operand, 2u, &l) &&
         hr__layout_can_relay(p, operand, &l, takes);
}

/* A convolution copies operands whose format differs from the others'. True if only a small part of the convolutions'
 * traffic has to keep its layout. */
static bool is_worth_copies(const hr__layout_pass *p) {
  int64_t total = 0, staying = 0;
  for (int n = 0; n < p->program->node_count; ++n) {
    const hr_node *node = &p->program->nodes[n];
    int count = hr__layout_has_images(node) ? node->input_count + node->output_count : 0;
    for (int i = 0; i < count; ++i) {
      const hr_operand *operand = hr_node_operand(node, i);
      if (is_activation(node, i) && operand->kind == HR_OPERAND_VALUE) {
        total += count_elements(operand);
        staying += is_willing(p, operand) ? 0 : count_elements(operand);
      }
    }
  }
  return staying <= total / COPIED_PART;
}

static bool relay_convolutions(hr__layout_pass *p) {
  for (int n = 0; n < p->program->node_count; ++n) {
    const hr_node *node = &p->program->nodes[n];
    int count = hr__layout_has_images(node) ? node->input_count + node->output_count : 0;
    for (int i = 0; i < count; ++i) {
      if (is_activation(node, i) && !relay(p, hr_node_operand(node, i), 2u)) {
        return false;
      }
    }
  }
  return true;
}

/* Propagates layouts to the results and inputs of loops on buffers with new layouts. */
static bool relay_neighbours(hr__layout_pass *p) {
  while (p->changed.count > 0) {
    uint32_t buffer = hr_vector_pop(&p->changed);
    for (int k = p->first_access[buffer]; k >= 0; k = p->accesses[k].next) {
      const hr_node *node = &p->program->nodes[p->accesses[k].node];
      uint32_t channels = hr__layout_channels(&p->candidates[buffer].layout, p->accesses[k].operand);
      for (int i = 0; node->is_loop && channels != 0 && i < node->input_count + node->output_count; ++i) {
        if (!relay(p, hr_node_operand(node, i), channels)) {
          return false;
        }
      }
    }
  }
  return true;
}

bool hr__layout_images(hr__layout_pass *p, bool one_format) {
  return (one_format && !is_worth_copies(p)) || (relay_convolutions(p) && relay_neighbours(p));
}
