#include "engine/growth.h"

/* Rows that a new room has at least beyond twice those in use, if they are small. */
enum { SPARE_ROWS = 64, SPARE_BYTES = 1 << 16 };

typedef struct search {
  hr_trace *trace;
  bool is_tight, has_room;
} search;

/* The result as rows along the cat's dim. */
typedef struct rows {
  int64_t count, of_outer, outer; /* of_outer: bytes of a row of one outer index */
  uint64_t layout;                /* of memory with room */
} rows;

static size_t capacity_of(const hr_buffer *buffer) {
  return atomic_load_explicit(&((hr_buffer *)buffer)->capacity, memory_order_relaxed);
}

static hr_growth_state state_of(const hr_buffer *buffer) {
  return (hr_growth_state)atomic_load_explicit(&((hr_buffer *)buffer)->growth, memory_order_relaxed);
}

static void set_state(hr_buffer *buffer, hr_growth_state state) {
  atomic_store_explicit(&buffer->growth, (unsigned char)state, memory_order_relaxed);
}

static rows rows_of(const hr_cat_record *cat) {
  size_t size = hr_dtype_size(cat->to_dtype);
  hr_rows_layout layout = {size, 1, 1};
  for (int d = 0; d < cat->rank; ++d) {
    *(d < cat->dim ? &layout.outer : &layout.inner) *= d == cat->dim ? 1 : cat->to_dims[d];
  }
  return (rows){cat->to_dims[cat->dim], layout.inner * (int64_t)size, layout.outer,
                layout.outer == 1 ? 0 : hr_rows_pack(&layout)};
}

static bool is_whole(const hr_buffer *buffer, hr_dtype dtype, int rank, const int64_t *dims) {
  int64_t count = 1;
  for (int d = 0; d < rank; ++d) {
    count *= dims[d];
  }
  return count > 0 && (size_t)count * hr_dtype_size(dtype) == buffer->bytes;
}

static bool is_considered(const hr_trace *trace, const hr_cat_record *cat) {
  uint64_t from = trace->shapes.data[cat->buffers.from], to = trace->shapes.data[cat->buffers.to];
  const hr_buffer *piece = trace->buffers.data[cat->buffers.from], *result = trace->buffers.data[cat->buffers.to];
  return piece != NULL && result != NULL && hr_shape_is_dead(from) && !hr_shape_is_fresh(from) &&
         hr_shape_is_free(to) && cat->from_dtype == cat->to_dtype &&
         is_whole(piece, cat->from_dtype, cat->rank, cat->from_dims) &&
         is_whole(result, cat->to_dtype, cat->rank, cat->to_dims) &&
         cat->to_dims[cat->dim] > cat->from_dims[cat->dim] && cat->to_dims[cat->dim] <= 2 * cat->from_dims[cat->dim];
}

/* False if products over rows with a pitch would run otherwise than over dense ones: libraries have other kernels, with
 * other bits, for several queries or several batch dims. */
static bool may_have_pitch(const hr_cat_record *cat) {
  int others = 0;
  for (int d = 0; d < cat->rank - 1; ++d) {
    others += d != cat->dim && cat->to_dims[d] > 1;
  }
  return others <= 1 && cat->to_dims[cat->dim] == cat->from_dims[cat->dim] + 1;
}

/* The bytes of a new room. Its rows are a multiple of the spare ones: caches of many lengths then have the same pitch,
 * and share programs. */
static uint64_t new_room(const rows *r) {
  int64_t of_row = r->of_outer * r->outer, spare = SPARE_BYTES / of_row, count = 2 * r->count;
  spare = spare < SPARE_ROWS ? spare : SPARE_ROWS;
  count = spare > 0 ? (count + 2 * spare - 1) / spare * spare : count;
  return (uint64_t)(count * of_row);
}

/* The permission of a cat, by the state and the room of its first piece, and the bytes of room that it may give. */
static hr_growth permission(const search *s, const hr_cat_record *cat, uint64_t *out_room) {
  const hr_buffer *from = s->trace->buffers.data[cat->buffers.from];
  hr_growth_state state = state_of(from);
  uint64_t layout = hr__buffer_layout(from);
  rows r = rows_of(cat);
  *out_room = 0;
  if (r.outer > 1 && (r.layout == 0 || !may_have_pitch(cat))) {
    return HR_GROWTH_NONE;
  }
  if (state == HR_GROWN && layout == r.layout && (uint64_t)(r.count * r.of_outer * r.outer) <= capacity_of(from)) {
    *out_room = r.outer > 1 ? capacity_of(from) : 0; /* without a pitch the key does not depend on it */
    return HR_GROWTH_IN_PLACE;
  }
  bool may = (state == HR_GROWN || state == HR_GROWN_CANDIDATE) && (layout == 0 || layout == r.layout);
  may = may && !s->is_tight;
  *out_room = may ? new_room(&r) : 0;
  return may ? HR_GROWTH_NEW : HR_GROWTH_NONE;
}

/* Two cats of one buffer get the lesser permission: the program is told of the buffer, not of each cat. */
static void find_cat(void *arg, const hr_cat_record *cat) {
  search *s = arg;
  if (!is_considered(s->trace, cat) || !hr_vector_push(&s->trace->cats, cat->buffers)) {
    return;
  }
  uint64_t *shape = &s->trace->shapes.data[cat->buffers.from];
  uint64_t *room = &s->trace->layouts.data[s->trace->buffers.count + cat->buffers.to];
  uint64_t growth = permission(s, cat, room);
  s->has_room |= *room != 0;
  for (size_t i = 0; i + 1 < s->trace->cats.count; ++i) {
    if (s->trace->cats.data[i].from == cat->buffers.from && hr_shape_growth(*shape) < growth) {
      growth = hr_shape_growth(*shape);
    }
  }
  *shape = (*shape & ~(UINT64_C(3) << HR_SHAPE_GROWTH)) | growth << HR_SHAPE_GROWTH;
}

bool hr__growth_find(hr_trace *trace, bool is_tight) {
  search s = {trace, is_tight, false};
  hr__trace_each_cat(trace, find_cat, &s);
  return s.has_room;
}

/* ---- hand-over ---- */

static hr_buffer *taken_by(const hr_trace *trace, const hr_plan *plan, size_t to) {
  uint32_t takes = hr__plan_buffer(plan, to)->takes;
  return takes != 0 ? trace->buffers.data[takes - 1] : NULL;
}

static bool take(const hr_trace *trace, const hr_plan *plan, size_t to, void **bound) {
  hr_buffer *from = taken_by(trace, plan, to);
  size_t capacity = capacity_of(from), room = capacity != 0 ? capacity : from->bytes;
  bool fits = hr__buffer_address(from) == bound[to] && hr__plan_buffer(plan, to)->bytes <= room;
  return fits && hr__buffer_take(trace->buffers.data[to], from);
}

bool hr__growth_take(const hr_trace *trace, const hr_plan *plan, void **bound) {
  size_t count = 0, all = plan->takes_memory ? trace->buffers.count : 0;
  bool ok = true;
  while (ok && count < all) {
    ok = taken_by(trace, plan, count) == NULL || take(trace, plan, count, bound);
    count += ok;
  }
  while (!ok && count > 0) {
    hr_buffer *from = taken_by(trace, plan, --count);
    if (from != NULL) {
      (void)hr__buffer_take(from, trace->buffers.data[count]);
    }
  }
  return ok;
}

void hr__growth_note(const hr_trace *trace, const hr_plan *plan, hr_stats *stats) {
  for (size_t i = 0; i < trace->cats.count; ++i) {
    hr_buffer *from = trace->buffers.data[trace->cats.data[i].from], *to = trace->buffers.data[trace->cats.data[i].to];
    const hr_program_buffer *result = hr__plan_buffer(plan, trace->cats.data[i].to);
    bool is_grown = result->takes != 0 || result->room != 0;
    stats->caches_extended += result->takes != 0;
    stats->caches_grown += result->takes == 0 && result->room != 0;
    set_state(to, is_grown ? HR_GROWN : state_of(from) == HR_GROWN_SETTLED ? HR_GROWN_SETTLED : HR_GROWN_CANDIDATE);
    if (result->takes != 0) {
      atomic_store_explicit(&from->layout, 0, memory_order_release);
    }
  }
}

void hr__growth_settle(hr_buffer *buffer) {
  if (hr_layout_is_rows(hr__buffer_layout(buffer))) {
    set_state(buffer, HR_GROWN_SETTLED);
  }
}
