/* repeat_short.c: the program with fewer periods.
 *
 * It is the program of a loop that runs fewer times. The first `head` periods keep their numbers; of the last ones an
 * operand that is as many periods back, or as many from the other end of another repeat, stays so. Views whose offset
 * grows with the periods keep their offsets: the short program leaves out the middle of their buffers.
 *
 * Refused are programs in which a dropped period matters to more than its neighbours:
 *   - a record outside of the repeats uses a buffer of a dropped period;
 *   - a period reaches further than REACH_MAX periods, or uses the buffer of one fixed period;
 *   - the buffers of dropped periods differ in size, life or layout from those of their neighbours;
 *   - a repeat writes through views that move, and others read or write parts of that buffer.
 */
#include <string.h>

#include "base/integer.h"
#include "compiler/repeat_find.h"
#include "core/ir/dtype.h"
#include "core/ops/op.h"

enum { REACH_MAX = 6, MOVING_MAX = 32, WORTH = 4 }; /* a fourth of the records has to be dropped */

/* ---- choosing ---- */

typedef struct shortener {
  const hr_program *program;
  const hr_found *found;
  hr_repeats *repeats;
  const hr_found_repeat *chosen[HR_REPEATS_MAX]; /* those of `repeats` */
  int reach;                                     /* periods; see REACH_MAX */
  bool has_libraries;                            /* of the target */
} shortener;

/* A family is the buffers of a repeat. A number that moves by its size belongs to it, or lies just before or after. */
typedef struct family {
  int repeat;        /* of `repeats`; -1: none */
  int64_t direction; /* 1: up with the periods; -1: down */
} family;

static int64_t period_of(const hr_repeat_span *span, int64_t number) {
  return hr_divide_down(number - (int64_t)span->first, (int64_t)span->size);
}

/* The family of a slot whose number is `middle` in the middle period. */
static family find_family(const shortener *s, int64_t middle, int64_t step) {
  for (int r = 0; r < s->repeats->count; ++r) {
    const hr_repeat_span *span = &s->repeats->all[r].spans[HR_AXIS_BUFFERS];
    if (middle >= span->first && middle < (int64_t)span->first + (int64_t)span->size * s->repeats->all[r].count) {
      bool is = step == (int64_t)span->size || step == -(int64_t)span->size;
      return (family){is ? r : -1, step > 0 ? 1 : -1};
    }
  }
  return (family){-1, 1};
}

/* True if the buffer is first used in some period. */
static bool is_of_period(const shortener *s, uint32_t buffer) {
  bool is = false;
  for (int r = 0; !is && r < s->repeats->count; ++r) {
    const hr_repeat_span *span = &s->repeats->all[r].spans[HR_AXIS_BUFFERS];
    is = buffer >= span->first && buffer - span->first < span->size * (uint32_t)s->repeats->all[r].count;
  }
  return is;
}

static int64_t absolute(int64_t x) {
  return x < 0 ? -x : x;
}

/* By how many periods an operand reaches out of its own, at most; INT64_MAX: it may not move so. */
static int64_t reach_of(const shortener *s, int repeat, int64_t first, int64_t step) {
  int64_t last_period = s->repeats->all[repeat].count - 1;
  family f = find_family(s, first + step * (last_period / 2), step);
  if (f.repeat < 0) {
    return INT64_MAX;
  }
  const hr_repeat_span *span = &s->repeats->all[f.repeat].spans[HR_AXIS_BUFFERS];
  int64_t end = s->repeats->all[f.repeat].count - 1, a = period_of(span, first),
          b = period_of(span, first + step * last_period);
  int64_t at_first = absolute(a - (f.direction > 0 ? 0 : end)), at_last = absolute(b - (f.direction > 0 ? end : 0));
  int8_t *known = &s->repeats->directions[repeat][f.repeat];
  if (*known == -f.direction) {
    return INT64_MAX;
  }
  *known = (int8_t)f.direction;
  return at_first > at_last ? at_first : at_last;
}

typedef bool (*slot_fn)(void *ctx, int repeat, const hr_node *node, int operand, const hr_found_slot *slot);

/* Visits the operands of a repeat's first period, until `fn` returns false. */
static bool each_slot(const shortener *s, int repeat, slot_fn fn, void *ctx) {
  const hr_found_repeat *r = s->chosen[repeat];
  const hr_found_slot *slot = r->slots;
  for (int k = 0; k < r->length; ++k, ++slot) {
    const hr_node *node = &s->program->nodes[r->first + k];
    for (int i = 0; i < node->input_count + node->output_count; ++i, ++slot) {
      if (!fn(ctx, repeat, node, i, slot)) {
        return false;
      }
    }
  }
  return true;
}

/* Readers of copies may read their sources instead: all of a period count together. */
typedef struct reach {
  const shortener *s;
  int64_t most, of_copies;
} reach;

static bool note_reach(void *ctx, int repeat, const hr_node *node, int operand, const hr_found_slot *slot) {
  reach *all = ctx;
  const hr_operand *x = hr_node_operand(node, operand);
  const hr_repeat_span *scalars = &all->s->repeats->all[repeat].spans[HR_AXIS_SCALARS];
  if (x->kind == HR_OPERAND_SCALAR) {
    return slot->step == (int64_t)scalars->size;
  }
  if (x->kind != HR_OPERAND_VALUE) {
    return true;
  }
  if (slot->step != 0) {
    int64_t own = slot->move == 0 ? reach_of(all->s, repeat, x->index, slot->step) : INT64_MAX;
    all->most = own > all->most ? own : all->most;
    all->of_copies += node->op == HR_OP_COPY && own <= REACH_MAX ? own : 0;
    return own <= REACH_MAX;
  }
  return !is_of_period(all->s, x->index);
}

static bool has_even_scalars(const shortener *s, int repeat) {
  const hr_found_repeat *r = s->chosen[repeat];
  const hr_found_slot *slot = r->slots;
  bool has = true;
  for (int k = 0; has && k < r->length; ++k) {
    const hr_node *node = &s->program->nodes[r->first + k];
    slot += node->input_count + node->output_count;
    has = node->scalar_count == 0 || slot->step == (int64_t)r->scalars.size;
    ++slot;
  }
  return has;
}

static bool writes(const hr_node *node, uint32_t buffer) {
  bool does = false;
  for (int i = 0; !does && i < node->output_count; ++i) {
    does = node->outputs[i].kind == HR_OPERAND_VALUE && node->outputs[i].index == buffer;
  }
  return does;
}

/* True if record `end` of the first period reads a product of that period. */
static bool reads_product(const hr_program *program, int first, int end) {
  const hr_node *node = &program->nodes[end];
  bool does = false;
  for (int i = 0; i < node->input_count; ++i) {
    for (int n = first; !does && node->inputs[i].kind == HR_OPERAND_VALUE && n < end; ++n) {
      does = hr_op_table(program->nodes[n].op)->family == HR_FAMILY_CONTRACTION &&
             writes(&program->nodes[n], node->inputs[i].index);
    }
  }
  return does;
}

/* True if each period adds a product to one buffer. Libraries run several of these as one call (match.c), so that the
 * steps don't repeat with the records. */
static bool adds_products(const shortener *s, int repeat) {
  const hr_found_repeat *r = s->chosen[repeat];
  bool does = false;
  for (int k = 0; !does && k < r->length; ++k) {
    const hr_node *node = &s->program->nodes[r->first + k];
    const hr_node *later = node + r->length;
    bool is_shared = node->output_count == 1 && hr_op_table(node->op)->family == HR_FAMILY_POINTWISE &&
                     node->outputs[0].kind == HR_OPERAND_VALUE && writes(later, node->outputs[0].index);
    does = is_shared && reads_product(s->program, r->first, r->first + k);
  }
  return does;
}

/* The found repeats of which enough periods are left if `dropped` ones are not there. */
static void take(shortener *s, int dropped, int kept) {
  s->repeats->count = 0;
  s->repeats->dropped = dropped;
  s->repeats->head = kept / 2;
  for (int i = 0; i < s->found->count; ++i) {
    const hr_found_repeat *r = &s->found->all[i];
    if (r->count - dropped >= kept) {
      s->chosen[s->repeats->count] = r;
      s->repeats->all[s->repeats->count++] =
          (hr_repeat){.count = r->count, .spans = {{(uint32_t)r->first, (uint32_t)r->length}, r->buffers, r->scalars}};
    }
  }
}

static int count_dropped(const hr_found *found, int kept) {
  const hr_found_repeat *largest = NULL;
  int least = 0;
  for (int i = 0; i < found->count; ++i) {
    const hr_found_repeat *r = &found->all[i];
    largest = largest == NULL || r->count * r->length > largest->count * largest->length ? r : largest;
  }
  for (int i = 0; i < found->count; ++i) {
    int count = found->all[i].count;
    least = 2 * count >= largest->count && (least == 0 || count < least) ? count : least;
  }
  return least - kept;
}

static bool is_worth(const shortener *s) {
  int64_t dropped = 0;
  for (int r = 0; r < s->repeats->count; ++r) {
    dropped += (int64_t)s->chosen[r]->length * s->repeats->dropped;
  }
  return dropped * WORTH >= s->program->node_count;
}

/* Chooses how many periods are left: the more, the further they reach. */
static bool choose(shortener *s) {
  for (int most = 1; most <= REACH_MAX; ++most) {
    int kept = 2 * (HR_REPEAT_OUTER + (most > 1 ? 2 * most : 3)), dropped = count_dropped(s->found, kept);
    if (dropped <= 0) {
      return false;
    }
    take(s, dropped, kept);
    reach all = {s, 0, 0};
    memset(s->repeats->directions, 0, sizeof s->repeats->directions);
    bool ok = is_worth(s);
    for (int r = 0; ok && r < s->repeats->count; ++r) {
      ok = !(s->has_libraries && adds_products(s, r)) && has_even_scalars(s, r) && each_slot(s, r, note_reach, &all);
    }
    if (!ok) {
      return false;
    }
    if (all.most + all.of_copies <= most) {
      s->reach = most;
      return true;
    }
  }
  return false;
}

/* ---- views that move ---- */

/* Bytes of a buffer; none if end <= begin. */
typedef struct bytes {
  int64_t begin, end;
} bytes;

typedef struct moving {
  uint32_t buffer;
  int repeat;
  int64_t move; /* bytes a period */
  bytes first;  /* of the first period */
  bool is_written;
} moving;

typedef struct mover {
  const shortener *s;
  uint8_t *marks; /* of each buffer */
  int count;
  moving all[MOVING_MAX];
} mover;

enum { IS_MOVING = 1, IS_FIXED_READ = 2, IS_FIXED_WRITTEN = 4 };

static bytes bytes_of(const hr_operand *x) {
  int64_t min, max, size = (int64_t)hr_dtype_size(x->dtype);
  return hr_operand_range(x, &min, &max) ? (bytes){min * size, (max + 1) * size} : (bytes){0, 0};
}

/* True if the view has each element of its range once. */
static bool is_dense(const hr_operand *x) {
  bytes range = bytes_of(x);
  int64_t count = 1;
  for (int d = 0; d < x->rank; ++d) {
    count *= x->dims[d];
  }
  return count * (int64_t)hr_dtype_size(x->dtype) == range.end - range.begin;
}

static bytes join(bytes a, bytes b) {
  if (a.end <= a.begin || b.end <= b.begin) {
    return a.end <= a.begin ? b : a;
  }
  return (bytes){a.begin < b.begin ? a.begin : b.begin, a.end > b.end ? a.end : b.end};
}

static bool add_moving(mover *m, int repeat, const hr_operand *x, int64_t move, bool is_output) {
  moving own = {x->index, repeat, move * (int64_t)hr_dtype_size(x->dtype), bytes_of(x), is_output};
  m->marks[x->index] |= IS_MOVING;
  for (int i = 0; i < m->count; ++i) {
    moving *known = &m->all[i];
    if (known->buffer == own.buffer && known->repeat == own.repeat) {
      known->first = join(known->first, own.first);
      known->is_written |= is_output;
      return known->move == own.move;
    }
  }
  if (m->count == MOVING_MAX) {
    return false;
  }
  m->all[m->count++] = own;
  return true;
}

static bool note_move(void *ctx, int repeat, const hr_node *node, int operand, const hr_found_slot *slot) {
  mover *m = ctx;
  const hr_operand *x = hr_node_operand(node, operand);
  bool is_output = operand >= node->input_count;
  if (x->kind != HR_OPERAND_VALUE || slot->step != 0) {
    return true;
  }
  if (slot->move != 0) {
    return add_moving(m, repeat, x, slot->move, is_output);
  }
  m->marks[x->index] |= is_output ? IS_FIXED_WRITTEN : IS_FIXED_READ;
  return true;
}

/* The bytes that all periods reach. */
static bytes whole_of(const mover *m, const moving *v) {
  int64_t last = v->move * (m->s->repeats->all[v->repeat].count - 1);
  return join(v->first, (bytes){v->first.begin + last, v->first.end + last});
}

/* Within a repeat: a written view reaches two periods at most, and nothing else sees its buffer. */
static bool is_alone(const mover *m, const moving *v) {
  uint8_t marks = m->marks[v->buffer];
  bool is = v->is_written ? (marks & (IS_FIXED_READ | IS_FIXED_WRITTEN)) == 0 &&
                                v->first.end - v->first.begin <= 2 * absolute(v->move)
                          : (marks & IS_FIXED_WRITTEN) == 0;
  for (int i = 0; is && i < m->count; ++i) {
    const moving *other = &m->all[i];
    is = other == v || other->buffer != v->buffer || (!other->is_written && !v->is_written);
  }
  return is;
}

/* Outside: an access that is ordered with some period is ordered with all, or with none. */
static bool may_see(const mover *m, const hr_operand *x, bool is_output) {
  bool may = true;
  for (int i = 0; may && i < m->count; ++i) {
    const moving *v = &m->all[i];
    if (v->buffer == x->index && (is_output || v->is_written)) {
      bytes own = bytes_of(x), all = whole_of(m, v);
      bool is_apart = own.end <= all.begin || all.end <= own.begin;
      may = is_apart || (is_dense(x) && own.begin <= all.begin && own.end >= all.end);
    }
  }
  return may;
}

static bool may_see_all(const mover *m, int first, int end) {
  for (int n = first; n < end; ++n) {
    const hr_node *node = &m->s->program->nodes[n];
    for (int i = 0; i < node->input_count + node->output_count; ++i) {
      const hr_operand *x = hr_node_operand(node, i);
      if (x->kind == HR_OPERAND_VALUE && (m->marks[x->index] & IS_MOVING) != 0 &&
          !may_see(m, x, i >= node->input_count)) {
        return false;
      }
    }
  }
  return true;
}

static bool check_moves(const shortener *s, uint8_t *marks) {
  mover m = {.s = s, .marks = marks};
  bool ok = true;
  for (int r = 0; ok && r < s->repeats->count; ++r) {
    ok = each_slot(s, r, note_move, &m);
  }
  for (int i = 0; ok && i < m.count; ++i) {
    ok = is_alone(&m, &m.all[i]);
  }
  int at = 0;
  for (int r = 0; ok && m.count > 0 && r < s->repeats->count; ++r) {
    ok = may_see_all(&m, at, s->chosen[r]->first);
    at = s->chosen[r]->first + s->chosen[r]->length * s->chosen[r]->count;
  }
  return ok && (m.count == 0 || may_see_all(&m, at, s->program->node_count));
}

/* ---- buffers ---- */

/* The buffers of dropped periods, and those of the first period after them, are as those of the period before. */
static bool check_buffers(const shortener *s) {
  for (int r = 0; r < s->repeats->count; ++r) {
    const hr_repeat_span *span = &s->repeats->all[r].spans[HR_AXIS_BUFFERS];
    uint32_t begin = span->first + span->size * (uint32_t)s->repeats->head,
             end = begin + span->size * (uint32_t)(s->repeats->dropped + 1);
    for (uint32_t b = begin; b < end; ++b) {
      if (!hr_repeat_buffers_match(&s->program->buffers[b], &s->program->buffers[b - span->size])) {
        return false;
      }
    }
  }
  return true;
}

/* ---- the short program ---- */

/* The number in the short program of a buffer that a repeat's kept period uses. */
static uint32_t shorten_moved(const shortener *s, int repeat, int period, uint32_t number, int64_t step) {
  const hr_repeats *repeats = s->repeats;
  int64_t middle = number + step * ((repeats->all[repeat].count - 1) / 2 - period);
  family f = find_family(s, middle, step);
  const hr_repeat_span *span = &repeats->all[f.repeat].spans[HR_AXIS_BUFFERS];
  int64_t whole = period_of(span, number), own = whole;
  if ((period >= repeats->head) == (f.direction > 0)) {
    own -= repeats->dropped;
  }
  int64_t place = own < repeats->head ? own : own + repeats->dropped;
  return hr_repeat_shorten(repeats, HR_AXIS_BUFFERS, (uint32_t)(number + (place - whole) * (int64_t)span->size));
}

static bool shorten_operand(const shortener *s, int repeat, int period, int64_t step, hr_operand *x) {
  if (x->kind == HR_OPERAND_SCALAR) {
    x->index = hr_repeat_shorten(s->repeats, HR_AXIS_SCALARS, x->index);
  } else if (x->kind == HR_OPERAND_VALUE) {
    x->index = step != 0 ? shorten_moved(s, repeat, period, x->index, step)
                         : hr_repeat_shorten(s->repeats, HR_AXIS_BUFFERS, x->index);
  }
  return x->index != HR_REMOVED;
}

/* Outside of repeats: buffers of periods are those of the first or last ones. */
static bool is_far(const shortener *s, const hr_operand *x) {
  hr_member own =
      x->kind == HR_OPERAND_VALUE ? hr_repeat_find_member(s->repeats, HR_AXIS_BUFFERS, x->index) : (hr_member){-1, 0};
  int outer = HR_REPEAT_OUTER + s->reach;
  return own.repeat < 0 || own.period < outer || own.period >= hr_repeat_kept(s->repeats, own.repeat) - outer;
}

/* Appends a record; `slots`: of its operands, or NULL outside of repeats. False: refused, or *failed. */
static bool append(const shortener *s, int repeat, int period, const hr_node *from, const hr_found_slot *slots,
                   hr_program *out, bool *failed) {
  const int operands = from->input_count + from->output_count;
  hr_node node = *from;
  hr_operand *all = hr_arena_alloc(&out->arena, (size_t)operands * sizeof *all);
  if (all == NULL) {
    *failed = true;
    return false;
  }
  node.inputs = all, node.outputs = all + from->input_count;
  for (int i = 0; i < operands; ++i) {
    all[i] = *hr_node_operand(from, i);
    if (!shorten_operand(s, repeat, period, slots != NULL ? slots[i].step : 0, &all[i]) ||
        (slots == NULL && !is_far(s, &all[i]))) {
      return false;
    }
  }
  node.scalar_base = from->scalar_count > 0 ? hr_repeat_shorten(s->repeats, HR_AXIS_SCALARS, from->scalar_base) : 0;
  node.origin = (uint32_t)out->node_count;
  *failed = !hr_program_append_own(out, &node);
  return node.scalar_base != HR_REMOVED && !*failed;
}

static bool append_outside(const shortener *s, int first, int end, hr_program *out, bool *failed) {
  bool ok = true;
  for (int n = first; ok && n < end; ++n) {
    ok = append(s, -1, 0, &s->program->nodes[n], NULL, out, failed);
  }
  return ok;
}

static bool append_period(const shortener *s, int repeat, int period, hr_program *out, bool *failed) {
  const hr_found_repeat *r = s->chosen[repeat];
  const hr_found_slot *slots = r->slots;
  bool ok = true;
  for (int k = 0; ok && k < r->length; ++k) {
    const hr_node *node = &s->program->nodes[r->first + period * r->length + k];
    ok = append(s, repeat, period, node, slots, out, failed);
    slots += node->input_count + node->output_count + 1;
  }
  return ok;
}

static bool append_records(const shortener *s, hr_program *out, bool *failed) {
  int at = 0;
  bool ok = true;
  for (int r = 0; ok && r < s->repeats->count; ++r) {
    const hr_found_repeat *found = s->chosen[r];
    ok = append_outside(s, at, found->first, out, failed);
    for (int p = 0; ok && p < hr_repeat_kept(s->repeats, r); ++p) {
      ok = append_period(s, r, hr_repeat_whole_period(s->repeats, p), out, failed);
    }
    at = found->first + found->length * found->count;
  }
  return ok && append_outside(s, at, s->program->node_count, out, failed);
}

static bool append_buffers(const shortener *s, hr_program *out) {
  bool ok = true;
  for (uint32_t b = 0; ok && b < (uint32_t)s->program->buffer_count; ++b) {
    const hr_program_buffer *from = &s->program->buffers[b];
    if (hr_repeat_shorten(s->repeats, HR_AXIS_BUFFERS, b) != HR_REMOVED) {
      uint32_t own = hr_program_add_buffer(out, from->bytes, from->is_dead, from->is_fresh);
      ok = own != UINT32_MAX;
      if (ok) {
        out->buffers[own] = *from;
      }
    }
  }
  out->bound_count = out->buffer_count;
  return ok;
}

static bool append_scalars(const shortener *s, hr_program *out) {
  bool ok = true;
  for (uint32_t i = 0; ok && i < (uint32_t)s->program->scalar_count; ++i) {
    ok = hr_repeat_shorten(s->repeats, HR_AXIS_SCALARS, i) == HR_REMOVED ||
         hr_program_add_argument(out, s->program->scalars[i].dtype) != UINT32_MAX;
  }
  return ok;
}

/* Programs that no check above understands. */
static bool is_plain(const hr_program *program) {
  bool is = program->scalar_count == program->argument_count && program->buffer_count == program->bound_count &&
            !program->is_value_form && !program->has_origins;
  for (int b = 0; is && b < program->buffer_count; ++b) {
    is = program->buffers[b].takes == 0 && !program->buffers[b].is_refused;
  }
  for (int n = 0; is && n < program->node_count; ++n) {
    is = program->nodes[n].op != HR_OP_CALL && program->nodes[n].op != HR_OP_CHECK_INDEX;
  }
  return is;
}

static hr_status no_memory(void) {
  return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no host memory for the periods of a program");
}

static hr_status shorten(const shortener *s, hr_program *out_short, bool *out_is) {
  bool failed = false;
  hr_program_init(out_short);
  uint8_t *marks = HR_ARENA_ARRAY(&out_short->arena, uint8_t, (size_t)s->program->buffer_count + 1);
  *out_is = marks != NULL && check_moves(s, marks) && check_buffers(s);
  if (*out_is) {
    failed = !append_buffers(s, out_short) || !append_scalars(s, out_short);
    *out_is = !failed && append_records(s, out_short, &failed);
  }
  if (!*out_is) {
    hr_program_fini(out_short);
  }
  return marks == NULL || failed ? no_memory() : HR_OK;
}

hr_status hr_repeats_find(const hr_program *stream, bool has_libraries, hr_repeats *out_repeats, hr_program *out_short,
                          bool *out_is) {
  hr_found found;
  shortener s = {.program = stream, .found = &found, .repeats = out_repeats, .has_libraries = has_libraries};
  *out_is = false;
  if (!is_plain(stream)) {
    return HR_OK;
  }
  hr_status status = hr__repeats_search(stream, &found) ? HR_OK : no_memory();
  if (status == HR_OK && found.count > 0 && choose(&s)) {
    status = shorten(&s, out_short, out_is);
  }
  hr_arena_fini(&found.arena);
  return status;
}
