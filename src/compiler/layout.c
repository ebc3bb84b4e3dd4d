/* layout.c: chooses the layouts that libraries run fastest on for the buffers that a program makes.
 *
 *   before   %3:f32[8,64,28,28]{50176,784,28,1} = conv(%0, %1)
 *            loop %4:f32[8,64,28,28]{50176,784,28,1} = relu(%3)
 *            %5 = conv(%4, %2)
 *   after    %3:..{50176,1,1792,64} = conv(%0, %1)
 *            loop %4:f32[8,28,28,64]{50176,1792,64,1} = ..
 *            %5:..{..} = conv(%4:..{50176,1,1792,64}, %2)
 *
 * A dead, fresh buffer can have any order of dims, and grow, if the layout propagates to all nodes that touch it. It is
 * viewed as [outer, channels, inner]; a layout gives the stride of each of these. Two kinds of nodes request layouts:
 *
 *   convolutions (layout_images.c)
 *       They run on activations whose channels are neighbours, and reorder others: a pass over memory for each operand.
 *       So their activations, and those that element-wise or windowed loops derive from them, get the layout
 *       [outer, inner, channels]. Loops on them walk their domain in the new order.
 *   products (layout_rows.c)
 *       Those of 16-bit numbers run on rows that begin at, for example, addresses of 16 bytes: several times as fast on
 *       some devices. Odd widths get longer rows; the domain stays.
 *
 * A buffer that outlives the program may have such a layout if its maker allows it (`is_free`). The layout's word
 * travels with the buffer to later programs, whose accesses use it from the start. If one of them can't, the program is
 * refused and compiled again after the buffer has returned to the default layout.
 *
 * A layout propagates to a buffer if each of its accesses moves along one of the three axes with each dim of its
 * domain, each bounded coordinate and each index term, and never leaves the axis. A flattened view doesn't: there the
 * old order stays. The domain's order is the order of reductions. Sums over channels-last values may therefore differ
 * in their last bits from those over the old order; the same program always gives the same ones.
 */
#include <string.h>

#include "compiler/layout_internal.h"
#include "core/ops/op.h"

/* ---- how an operand moves over a buffer ---- */

/* The effect of one step of an access, before and after. */
typedef struct step {
  int axis;
  int64_t count; /* along that axis */
} step;

typedef struct motion { /* over the three axes */
  int64_t offset[HR__AXES], low[HR__AXES], high[HR__AXES];
} motion;

static int64_t old_stride(const hr__layout *l, int axis) {
  return axis == HR__OUTER ? l->dims[HR__CHANNEL] * l->dims[HR__INNER] : axis == HR__CHANNEL ? l->dims[HR__INNER] : 1;
}

static bool find_step(const hr__layout *l, int64_t stride, step *out_step) {
  int64_t size = stride < 0 ? -stride : stride;
  int axis = HR__OUTER;
  while (axis < HR__INNER && size < old_stride(l, axis)) {
    ++axis;
  }
  int64_t old = old_stride(l, axis);
  *out_step = (step){axis, old == 1 ? stride : stride / old};
  return out_step->count * old == stride;
}

/* A coordinate that takes the values 0 .. extent - 1, times `stride`. */
static bool add_coordinate(const hr__layout *l, int64_t stride, int64_t extent, motion *m) {
  step s;
  if (stride == 0 || extent <= 1) {
    return true;
  }
  if (!find_step(l, stride, &s)) {
    return false;
  }
  int64_t reach = s.count * (extent - 1);
  *(reach < 0 ? &m->low[s.axis] : &m->high[s.axis]) += reach;
  return true;
}

/* The stride of a bounded coordinate in the address; false if it isn't one number. */
static bool bound_stride(const hr_operand *operand, const hr_bound *bound, int64_t *out_stride) {
  bool is_found = false;
  for (int d = 0; d < operand->rank; ++d) {
    if (bound->strides[d] == 0 || operand->dims[d] == 1) {
      continue;
    }
    int64_t stride = operand->strides[d] / bound->strides[d];
    if (stride * bound->strides[d] != operand->strides[d] || (is_found && stride != *out_stride)) {
      return false;
    }
    *out_stride = stride;
    is_found = true;
  }
  return is_found;
}

/* The same, and every dim that it depends on steps along the coordinate's own axis. */
static bool add_bound(const hr__layout *l, const hr_operand *operand, const hr_bound *bound, motion *m) {
  int64_t stride = 0;
  step own, s;
  if (!bound_stride(operand, bound, &stride) || !find_step(l, stride, &own)) {
    return false;
  }
  for (int d = 0; d < operand->rank; ++d) {
    if (bound->strides[d] != 0 && operand->dims[d] > 1 && operand->strides[d] != 0 &&
        (!find_step(l, operand->strides[d], &s) || s.axis != own.axis)) {
      return false;
    }
  }
  return add_coordinate(l, stride, bound->extent, m);
}

/* Bounded coordinates may start in front of the buffer: their share of the offset. */
static int64_t bounds_offset(const hr_operand *operand) {
  int64_t offset = 0;
  for (int k = 0; k < operand->bound_count; ++k) {
    int64_t stride = 0;
    (void)bound_stride(operand, &operand->bounds[k], &stride);
    offset += stride * operand->bounds[k].offset;
  }
  return offset;
}

static int count_bounds(const hr_operand *operand, int d) {
  int count = 0;
  for (int k = 0; k < operand->bound_count; ++k) {
    count += operand->bounds[k].strides[d] != 0;
  }
  return count;
}

/* Maps an access to the layout's axes; false if that is not possible, or it leaves an axis. */
static bool find_motion(const hr__layout *l, const hr_operand *operand, motion *out_motion) {
  motion m = {{0}, {0}, {0}};
  int64_t offset = operand->offset;
  bool ok = hr_dtype_size(operand->dtype) == l->element_bytes;
  for (int k = 0; ok && k < operand->bound_count; ++k) {
    ok = add_bound(l, operand, &operand->bounds[k], &m);
  }
  offset -= bounds_offset(operand);
  for (int d = 0; ok && d < operand->rank; ++d) {
    int bounds = operand->dims[d] == 1 ? 0 : count_bounds(operand, d);
    ok = operand->dims[d] > 0 && bounds <= 1 &&
         (bounds == 1 || add_coordinate(l, operand->strides[d], operand->dims[d], &m));
  }
  for (int t = 0; ok && t < operand->term_count; ++t) {
    ok = add_coordinate(l, operand->terms[t].stride, operand->terms[t].extent, &m);
  }
  ok = ok && offset >= 0;
  for (int axis = HR__OUTER; ok && axis < HR__AXES; ++axis) {
    m.offset[axis] = offset == 0 ? 0 : offset / old_stride(l, axis);
    offset -= m.offset[axis] * old_stride(l, axis);
    ok = m.offset[axis] + m.low[axis] >= 0 && m.offset[axis] + m.high[axis] < l->dims[axis];
  }
  *out_motion = m;
  return ok;
}

uint32_t hr__layout_channels(const hr__layout *l, const hr_operand *operand) {
  uint32_t mask = 0;
  for (int d = 0; d < operand->rank; ++d) {
    step s;
    bool moves = operand->dims[d] > 1 && operand->strides[d] != 0 && find_step(l, operand->strides[d], &s);
    mask |= moves && s.axis == HR__CHANNEL ? 1u << d : 0;
  }
  return mask;
}

/* ---- giving a layout ---- */

bool hr__layout_is_open(const hr__layout_pass *p, const hr_operand *operand) {
  return operand->kind == HR_OPERAND_VALUE && p->candidates[operand->index].is_open && operand->offset == 0 &&
         operand->term_count == 0 && operand->bound_count == 0;
}

int hr__layout_next_dim(const hr_operand *operand, int64_t stride) {
  int d = operand->rank - 1;
  while (d >= 0 && (operand->dims[d] <= 1 || operand->strides[d] != stride)) {
    --d;
  }
  return d;
}

static bool can_propagate(const hr__layout_pass *p, const hr__layout_access *a, const hr__layout *l,
                          hr__accepts_fn takes) {
  const hr_node *node = &p->program->nodes[a->node];
  motion m;
  if (!find_motion(l, a->operand, &m)) {
    return false;
  }
  for (int i = 0; !node->is_loop && i < node->input_count + node->output_count; ++i) {
    if (hr_node_operand(node, i) == a->operand) {
      return takes(l, node, i);
    }
  }
  return node->is_loop;
}

bool hr__layout_can_relay(const hr__layout_pass *p, const hr_operand *operand, const hr__layout *l,
                          hr__accepts_fn takes) {
  bool can = true;
  for (int k = p->first_access[operand->index]; can && k >= 0; k = p->accesses[k].next) {
    can = can_propagate(p, &p->accesses[k], l, takes);
  }
  return can;
}

bool hr__layout_relay(hr__layout_pass *p, const hr_operand *operand, const hr__layout *l, hr__accepts_fn takes) {
  hr__candidate *c = &p->candidates[operand->index];
  c->is_open = false;
  if (!hr__layout_can_relay(p, operand, l, takes)) {
    return true;
  }
  c->is_relaid = true;
  c->layout = *l;
  return hr_vector_push(&p->changed, operand->index);
}

/* ---- rewriting ---- */

static bool follow(hr_program *program, const hr__layout *l, hr_operand *operand) {
  motion m;
  (void)find_motion(l, operand, &m);
  int64_t strides[HR_RANK_MAX];
  step s = {0, 0};
  for (int d = 0; d < operand->rank; ++d) {
    (void)find_step(l, operand->strides[d], &s);
    strides[d] = operand->dims[d] == 1 ? 0 : s.count * l->strides[s.axis];
  }
  hr_index_term *terms = hr_arena_alloc(&program->arena, (size_t)operand->term_count * sizeof *terms);
  operand->strides = hr_arena_dup(&program->arena, strides, (size_t)operand->rank * sizeof *strides);
  if (terms == NULL || operand->strides == NULL) {
    return false;
  }
  for (int t = 0; t < operand->term_count; ++t) {
    (void)find_step(l, operand->terms[t].stride, &s);
    terms[t] = operand->terms[t];
    terms[t].stride = s.count * l->strides[s.axis];
  }
  operand->terms = terms;
  operand->offset = 0;
  for (int axis = HR__OUTER; axis < HR__AXES; ++axis) {
    operand->offset += m.offset[axis] * l->strides[axis];
  }
  return true;
}

/* Makes the channels the innermost dims of the node's domain. The order stays if they are among dims that must run in
 * order, or decide which of several equal elements is first. */
static bool permute_domain(hr_program *program, hr_node *node, uint32_t channels) {
  int rank = node->outputs[0].rank, order[HR_RANK_MAX], count = 0;
  bool is_arg = hr_op_table(node->op)->family == HR_FAMILY_ARGREDUCE;
  if ((channels & node->ordered_mask) != 0 || (is_arg && (channels & node->reduce_mask) != 0)) {
    return true;
  }
  for (uint32_t last = 0; last < 2; ++last) {
    for (int d = 0; d < rank; ++d) {
      if ((channels >> d & 1) == last) {
        order[count++] = d;
      }
    }
  }
  return hr_domain_permute(program, node, order);
}

static bool rewrite_node(hr__layout_pass *p, hr_node *node) {
  uint32_t channels = 0;
  for (int i = node->input_count + node->output_count - 1; i >= 0; --i) {
    hr_operand *operand = hr_node_operand(node, i);
    if (operand->kind != HR_OPERAND_VALUE || !p->candidates[operand->index].is_relaid) {
      continue;
    }
    const hr__layout *l = &p->candidates[operand->index].layout;
    channels = channels != 0 ? channels : hr__layout_channels(l, operand);
    if (!follow(p->program, l, operand)) {
      return false;
    }
    operand->offset += bounds_offset(operand);
    node->is_relaid = true;
  }
  return !node->is_loop || channels == 0 || permute_domain(p->program, node, channels);
}

/* ---- the pass ---- */

/* True if there is a library node that may request a layout, or a buffer that has one. */
static bool has_work(const hr_program *program, const hr_target *target) {
  bool has = false;
  for (int n = 0; !has && n < program->node_count; ++n) {
    const hr_node *node = &program->nodes[n];
    has = target->row_alignment > 0 ? hr_op_table(node->op)->family == HR_FAMILY_CONTRACTION
                                    : hr__layout_has_images(node);
  }
  for (int b = 0; !has && b < program->buffer_count; ++b) {
    has = program->buffers[b].layout != 0;
  }
  return has;
}

/* From the last access to the first, so that each buffer's list is in order. */
static void list_accesses(hr__layout_pass *p) {
  int made = 0;
  for (int n = p->program->node_count - 1; n >= 0; --n) {
    const hr_node *node = &p->program->nodes[n];
    for (int i = node->input_count + node->output_count - 1; i >= 0; --i) {
      hr_operand *operand = hr_node_operand(node, i);
      if (operand->kind == HR_OPERAND_VALUE) {
        p->accesses[made] = (hr__layout_access){n, p->first_access[operand->index], operand};
        p->first_access[operand->index] = made++;
      }
    }
  }
}

static bool find_accesses(hr__layout_pass *p) {
  hr_program *program = p->program;
  size_t buffers = (size_t)program->buffer_count, count = 0;
  p->candidates = hr_arena_alloc(&program->arena, (buffers + 1) * sizeof *p->candidates);
  p->first_access = hr_program_indices(program, program->buffer_count);
  for (int n = 0; n < program->node_count; ++n) {
    count += (size_t)(program->nodes[n].input_count + program->nodes[n].output_count);
  }
  p->accesses = hr_arena_alloc(&program->arena, (count + 1) * sizeof *p->accesses);
  if (p->candidates == NULL || p->first_access == NULL || p->accesses == NULL) {
    return false;
  }
  list_accesses(p);
  for (size_t b = 0; b < buffers; ++b) {
    p->candidates[b].is_open = program->buffers[b].is_free;
    p->candidates[b].is_seen = !program->buffers[b].is_dead;
    p->candidates[b].is_relaid = false;
  }
  return true;
}

static bool has_relaid(const hr__layout_pass *p) {
  bool has = false;
  for (int b = 0; !has && b < p->program->buffer_count; ++b) {
    has = p->candidates[b].is_relaid;
  }
  return has;
}

/* Sets the layouts of the buffers. */
static void note_layouts(const hr__layout_pass *p) {
  for (int b = 0; b < p->program->buffer_count; ++b) {
    const hr__candidate *c = &p->candidates[b];
    hr_program_buffer *buffer = &p->program->buffers[b];
    if (c->is_relaid) {
      buffer->bytes = c->layout.bytes;
      buffer->layout = c->is_seen ? hr__layout_word(&c->layout) : buffer->layout;
    }
  }
}

bool hr_layout_is_refused(const hr_program *program) {
  bool is_refused = false;
  for (int b = 0; !is_refused && b < program->buffer_count; ++b) {
    is_refused = program->buffers[b].is_refused;
  }
  return is_refused;
}

static bool relay_all(hr__layout_pass *p, const hr_target *target, bool *out_changed) {
  bool wants = target->channels_last || p->changed.count > 0;
  bool ok = (!wants || hr__layout_images(p, target->one_format)) &&
            (target->row_alignment == 0 || hr__layout_rows(p, target->row_alignment));
  *out_changed = has_relaid(p);
  for (int n = 0; ok && *out_changed && n < p->program->node_count; ++n) {
    ok = rewrite_node(p, &p->program->nodes[n]);
  }
  return ok;
}

hr_status hr_layout(hr_program *program, const hr_target *target, bool *out_changed) {
  *out_changed = false;
  if (!has_work(program, target)) {
    return HR_OK;
  }
  hr__layout_pass p = {.program = program};
  hr_status status = HR_OK;
  bool ok = find_accesses(&p) && hr__layout_images_adopt(&p);
  if (ok && !hr_layout_is_refused(program)) {
    ok = relay_all(&p, target, out_changed);
    note_layouts(&p);
    *out_changed |= target->row_alignment > 0;
    status = ok && target->row_alignment > 0 ? hr__layout_deepen(&p, target) : HR_OK;
  }
  hr_vector_fini(&p.changed);
  return ok ? status
            : hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "layout: no memory for %d nodes", program->node_count);
}
