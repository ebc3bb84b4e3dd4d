/* rooms.c: lets the result of `cat` grow in place, as a cache of keys and values does with each token.
 *
 *   before   %2:f32[1,8,6,32]{1536,192,32,1} = cat(%0:f32[1,8,5,32]{1280,160,32,1}, %1:f32[1,8,1,32]{..}) ints(2)
 *            %3 = .. (%2:f32[1,8,6,32]{1536,192,32,1})
 *   after    %2:f32[1,8,1,32]{..,2304,32,1}+160 = cat(%1:f32[1,8,1,32]{..}) ints(2)           (%2 takes %0's memory)
 *            %3 = .. (%2:f32[1,8,6,32]{..,2304,32,1})                                         (of 72 rows a head)
 *
 * It runs on the stream form, before anything is expanded. A buffer is seen as [outer, rows, inner], where the rows are
 * those of the cat's dim. Room for more rows is behind the rows of each outer index; so their distance, the *pitch*, is
 * larger than the views say, and all views of the buffer are rewritten. With an outer extent of 1 no view changes.
 *
 * The engine decides which cats may grow (engine/growth.c): the first piece is a whole buffer which dies. Here a result
 *   - gets room (HR_GROWTH_NEW) if nothing has touched it before, and all its views move within rows;
 *   - takes the memory of the first piece (HR_GROWTH_IN_PLACE) if also nothing touches that piece afterwards: two cats
 *     of one buffer can't both extend it. Both become one buffer of the program, so the order of its accesses is kept
 *     by the passes, like that of any write to a part.
 * Otherwise the cat remains. The bits don't depend on it: what is read and written is the same, elsewhere.
 *
 * A buffer may come with rows that have room. If a view of it isn't made of whole strides (a flattened one, another
 * size of elements), it is refused, as in layout.c.
 */
#include "base/allocator.h"
#include "compiler/compile.h"

/* A buffer as [outer, rows, inner], with room for so many rows. */
typedef struct shape {
  int64_t outer, rows, inner, room;
  size_t element_bytes;
} shape;

typedef struct room {
  int first, last;  /* the nodes that touch the buffer; first -1: none */
  bool is_moved;    /* its views are rewritten */
  bool has_outside; /* a view leaves the rows, or steps across */
  int cat;          /* the node that gives it room; -1: none */
  uint32_t takes;   /* 1 + the buffer whose memory it takes over */
  shape shape;
} room;

typedef struct pass {
  hr_program *program;
  room *rooms; /* of each buffer */
} pass;

/* ---- views ---- */

enum { OUTER, ROW, INNER, AXES };

static int64_t old_stride(const shape *s, int axis) {
  return axis == OUTER ? s->rows * s->inner : axis == ROW ? s->inner : 1;
}

static int64_t new_stride(const shape *s, int axis) {
  return axis == OUTER ? s->room * s->inner : axis == ROW ? s->inner : 1;
}

static int64_t extent(const shape *s, int axis) {
  return axis == OUTER ? s->outer : axis == ROW ? s->rows : s->inner;
}

/* The axis whose stride divides this one; INNER also for 0. */
static int axis_of(const shape *s, int64_t stride) {
  int64_t size = stride < 0 ? -stride : stride;
  int axis = OUTER;
  while (axis < INNER && size < old_stride(s, axis)) {
    ++axis;
  }
  return axis;
}

/* The offset and the strides of a view over the memory with room; false if it leaves an axis or steps across. */
static bool move_view(const shape *s, const hr_operand *x, int64_t *out_offset, int64_t *out_strides) {
  int64_t low[AXES] = {0}, high[AXES] = {0}, rest = x->offset;
  bool is = hr_dtype_size(x->dtype) == s->element_bytes && x->offset >= 0;
  for (int d = 0; is && d < x->rank; ++d) {
    int64_t stride = x->dims[d] > 1 ? x->strides[d] : 0;
    int axis = axis_of(s, stride);
    int64_t count = stride / old_stride(s, axis);
    is = x->dims[d] > 0 && stride % old_stride(s, axis) == 0;
    *(count < 0 ? &low[axis] : &high[axis]) += count * (x->dims[d] - 1);
    out_strides[d] = count * new_stride(s, axis);
  }
  *out_offset = 0;
  for (int axis = OUTER; is && axis < AXES; ++axis) {
    int64_t at = rest / old_stride(s, axis);
    rest %= old_stride(s, axis);
    *out_offset += at * new_stride(s, axis);
    is = at + low[axis] >= 0 && at + high[axis] < extent(s, axis);
  }
  return is;
}

/* ---- deciding ---- */

static bool is_value(const hr_operand *x) {
  return x->kind == HR_OPERAND_VALUE;
}

static void find_touches(const pass *p) {
  for (int b = 0; b < p->program->buffer_count; ++b) {
    p->rooms[b] = (room){.first = -1, .last = -1, .cat = -1};
  }
  for (int n = 0; n < p->program->node_count; ++n) {
    const hr_node *node = &p->program->nodes[n];
    for (int i = 0; i < node->input_count + node->output_count; ++i) {
      const hr_operand *x = hr_node_operand(node, i);
      if (is_value(x)) {
        room *r = &p->rooms[x->index];
        r->first = r->first < 0 ? n : r->first;
        r->last = n;
      }
    }
  }
}

/* The shapes of buffers that have come with room. */
static void adopt(const pass *p) {
  for (int b = 0; b < p->program->buffer_count; ++b) {
    const hr_program_buffer *buffer = &p->program->buffers[b];
    if (buffer->rows != 0) {
      hr_rows_layout l = hr_rows_unpack(buffer->rows);
      int64_t of_row = l.outer * l.inner * (int64_t)l.element_bytes;
      p->rooms[b].shape =
          (shape){l.outer, (int64_t)buffer->bytes / of_row, l.inner, (int64_t)buffer->room / of_row, l.element_bytes};
      p->rooms[b].is_moved = true;
      p->rooms[b].has_outside = buffer->room < buffer->bytes; /* another stream has just restored it */
    }
  }
}

static bool is_whole(const hr_program *program, const hr_operand *x) {
  int64_t count = 1;
  for (int d = x->rank - 1; d >= 0; --d) {
    if (x->dims[d] != 1 && x->strides[d] != count) {
      return false;
    }
    count *= x->dims[d];
  }
  return x->offset == 0 && count > 0 && (size_t)count * hr_dtype_size(x->dtype) == program->buffers[x->index].bytes;
}

/* The result of a cat as rows along its dim, with the room that it is offered. */
static shape shape_of(const hr_program *program, const hr_operand *x, int dim) {
  shape s = {.outer = 1, .rows = x->dims[dim], .inner = 1, .element_bytes = hr_dtype_size(x->dtype)};
  for (int d = 0; d < x->rank; ++d) {
    *(d < dim ? &s.outer : &s.inner) *= d == dim ? 1 : x->dims[d];
  }
  s.room = (int64_t)program->buffers[x->index].offered_room / (s.outer * s.inner * (int64_t)s.element_bytes);
  return s;
}

static uint64_t word_of(const shape *s) {
  return s->outer == 1 ? 0 : hr_rows_pack(&(hr_rows_layout){s->element_bytes, s->outer, s->inner});
}

/* True if the first piece's memory can hold the result: it has the same rows, and its room is enough. The engine has
 * checked the latter for an outer extent of 1, whose room is not known here. */
static bool can_extend(const pass *p, int n, const shape *s) {
  const hr_node *node = &p->program->nodes[n];
  const room *from = &p->rooms[node->inputs[0].index];
  uint64_t word = word_of(s);
  return p->program->buffers[node->inputs[0].index].growth == HR_GROWTH_IN_PLACE && from->last == n &&
         p->program->buffers[node->inputs[0].index].rows == word && (word == 0 || s->rows <= from->shape.room);
}

static bool may_grow(const hr_program_buffer *buffer) {
  return buffer->growth == HR_GROWTH_NEW || buffer->growth == HR_GROWTH_IN_PLACE;
}

/* Decides what happens to the cat at node n. */
static void decide(const pass *p, int n) {
  hr_program *program = p->program;
  const hr_node *node = &program->nodes[n];
  const hr_operand *from = &node->inputs[0], *to = &node->outputs[0];
  const hr_program_buffer *piece = &program->buffers[from->index], *result = &program->buffers[to->index];
  if (node->op != HR_OP_CAT || node->input_count < 2 || !is_value(from) || !may_grow(piece) || !piece->is_dead ||
      piece->is_fresh || !result->is_free || p->rooms[to->index].first != n || from->index == to->index ||
      from->rank != to->rank || from->dtype != to->dtype || !is_whole(program, from) || !is_whole(program, to)) {
    return;
  }
  room *r = &p->rooms[to->index];
  shape s = shape_of(program, to, (int)node->ints[0]);
  bool extends = can_extend(p, n, &s), fits = s.outer == 1 || word_of(&s) != 0;
  if (!fits || (!extends && (result->is_dead || s.room < s.rows))) {
    return;
  }
  s.room = extends && s.outer > 1 ? p->rooms[from->index].shape.room : s.room;
  r->shape = s;
  r->cat = n;
  r->takes = extends ? from->index + 1 : 0;
  r->is_moved = s.outer > 1;
}

/* ---- rewriting ---- */

static void find_outside(const pass *p) {
  int64_t offset, strides[HR_RANK_MAX];
  for (int n = 0; n < p->program->node_count; ++n) {
    const hr_node *node = &p->program->nodes[n];
    for (int i = 0; i < node->input_count + node->output_count; ++i) {
      const hr_operand *x = hr_node_operand(node, i);
      room *r = is_value(x) ? &p->rooms[x->index] : NULL;
      if (r != NULL && r->is_moved && !r->has_outside) {
        r->has_outside = !move_view(&r->shape, x, &offset, strides);
      }
    }
  }
}

/* Drops rooms of results whose views don't support them; true if buffers that came with room are refused. */
static bool drop_outside(const pass *p) {
  bool is_refused = false;
  for (int b = 0; b < p->program->buffer_count; ++b) {
    room *r = &p->rooms[b];
    if (r->is_moved && r->has_outside) {
      p->program->buffers[b].is_refused = r->cat < 0;
      is_refused |= r->cat < 0;
      r->is_moved = false;
      r->cat = -1;
    }
  }
  return is_refused;
}

static bool move_operand(const pass *p, hr_operand *x) {
  const room *r = is_value(x) ? &p->rooms[x->index] : NULL;
  if (r == NULL || !r->is_moved) {
    return true;
  }
  int64_t offset = 0, strides[HR_RANK_MAX];
  (void)move_view(&r->shape, x, &offset, strides);
  x->offset = offset;
  x->strides = hr_arena_dup(&p->program->arena, strides, (size_t)x->rank * sizeof *strides);
  return x->strides != NULL;
}

static bool move_operands(const pass *p) {
  bool ok = true;
  for (int n = 0; n < p->program->node_count; ++n) {
    const hr_node *node = &p->program->nodes[n];
    for (int i = 0; ok && i < node->input_count + node->output_count; ++i) {
      ok = move_operand(p, hr_node_operand(node, i));
    }
  }
  return ok;
}

/* The cat without its first piece. */
static bool drop_piece(const pass *p, const room *r) {
  hr_node *node = &p->program->nodes[r->cat];
  int dim = (int)node->ints[0];
  hr_operand *to = &node->outputs[0];
  int64_t rows = node->inputs[0].dims[dim];
  int64_t *dims = hr_arena_dup(&p->program->arena, to->dims, (size_t)to->rank * sizeof *dims);
  if (dims == NULL) {
    return false;
  }
  dims[dim] -= rows;
  to->dims = dims;
  to->offset += rows * r->shape.inner;
  ++node->inputs;
  --node->input_count;
  return true;
}

/* All accesses to buffers whose memory another one takes over become accesses to that one. */
static void rename_operands(const pass *p, const uint32_t *taker) {
  for (int n = 0; n < p->program->node_count; ++n) {
    const hr_node *node = &p->program->nodes[n];
    for (int i = 0; i < node->input_count + node->output_count; ++i) {
      hr_operand *x = hr_node_operand(node, i);
      x->index = is_value(x) && taker[x->index] != 0 ? taker[x->index] - 1 : x->index;
    }
  }
}

/* Writes the decisions into the program's buffers. */
static bool finish(const pass *p, uint32_t *taker) {
  bool ok = true;
  for (int b = 0; ok && b < p->program->buffer_count; ++b) {
    hr_program_buffer *buffer = &p->program->buffers[b];
    const room *r = &p->rooms[b];
    const shape *s = &r->shape;
    size_t bytes = (size_t)(s->outer * s->room * s->inner) * s->element_bytes;
    buffer->bytes = r->is_moved ? bytes : buffer->bytes;
    if (r->cat < 0) {
      continue;
    }
    buffer->rows = word_of(s);
    buffer->is_free = false;
    buffer->takes = r->takes;
    buffer->room = r->takes == 0 ? bytes : 0;
    if (r->takes != 0) {
      buffer->is_fresh = false;
      taker[r->takes - 1] = (uint32_t)b + 1;
      ok = drop_piece(p, r);
    }
  }
  return ok;
}

static bool rewrite(const pass *p) {
  uint32_t *taker = HR_ARENA_ARRAY(&p->program->arena, uint32_t, (size_t)p->program->buffer_count + 1);
  bool ok = taker != NULL && move_operands(p) && finish(p, taker);
  if (ok) {
    rename_operands(p, taker);
  }
  return ok;
}

static bool has_work(const hr_program *program) {
  bool has = false;
  for (int b = 0; !has && b < program->buffer_count; ++b) {
    has = program->buffers[b].rows != 0 || may_grow(&program->buffers[b]);
  }
  return has;
}

hr_status hr_rooms(hr_program *stream) {
  if (!has_work(stream)) {
    return HR_OK;
  }
  pass p = {stream, hr_calloc((size_t)stream->buffer_count + 1, sizeof *p.rooms)};
  bool ok = p.rooms != NULL;
  if (ok) {
    find_touches(&p);
    adopt(&p);
    for (int n = 0; n < stream->node_count; ++n) {
      decide(&p, n);
    }
    find_outside(&p);
    ok = drop_outside(&p) || rewrite(&p);
  }
  hr_free(p.rooms);
  return ok ? HR_OK : hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "rooms: no memory for %d nodes", stream->node_count);
}
