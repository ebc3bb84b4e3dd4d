/* repeat_match.c: the steps that repeat.
 *
 * A run is the longest list of steps around the middle periods that match the steps one repetition later. Each of its
 * numbers must grow evenly in the short schedule, and on to the whole one: the last repetition has the number that
 * follows from the first one over all periods.
 */
#include <string.h>

#include "compiler/repeat.h"

enum { RUN_MIN = 4, TRIM_MAX = 3 }; /* repetitions: of a run, and how many it may leave out at each end */

typedef struct matcher {
  const hr_schedule *schedule;
  const hr_repeats *repeats;
  hr_runs *runs;
  uint32_t bound, arguments; /* of the short program */
  int repeat;                /* of the step whose slots are searched for; -1: none */
  bool failed;
} matcher;

static int count_origins(const matcher *m, int step) {
  return m->runs->origin_first[step + 1] - m->runs->origin_first[step];
}

static bool match_steps(const matcher *m, int i, int k) {
  return count_origins(m, i) == count_origins(m, k) && hr_steps_match(&m->schedule->steps[i], &m->schedule->steps[k]);
}

/* ---- numbers that grow evenly ---- */

/* The numbers of a slot in all repetitions of the short schedule. */
typedef struct series {
  hr_slot_kind kind;
  int count;
  int64_t values[HR_TABLE_MAX];
} series;

static bool is_even(const series *v, int64_t *out_step) {
  int64_t step = v->values[1] - v->values[0];
  bool is = true;
  for (int u = 1; is && u < v->count; ++u) {
    is = v->values[u] - v->values[u - 1] == step;
  }
  *out_step = step;
  return is;
}

/* On an axis: if it grows, the last number follows from the first one in the whole program, too. If it doesn't, it is
 * of no period. */
static bool find_axis_slot(const matcher *m, hr_axis axis, const series *v, hr_run_slot *out_slot) {
  int64_t step;
  if (!is_even(v, &step)) {
    return false;
  }
  int64_t first = hr_repeat_lengthen(m->repeats, axis, (uint32_t)v->values[0]),
          last = hr_repeat_lengthen(m->repeats, axis, (uint32_t)v->values[v->count - 1]);
  *out_slot = (hr_run_slot){first, step, -1};
  return step != 0 ? last == first + step * (v->count - 1 + m->repeats->dropped)
                   : hr_repeat_find_member(m->repeats, axis, (uint32_t)v->values[0]).repeat < 0;
}

static bool is_same_constant(const hr_program *program, int64_t a, int64_t b) {
  const hr_program_scalar *x = &program->scalars[a], *y = &program->scalars[b];
  return x->is_constant && y->is_constant && x->dtype == y->dtype && x->value.dtype == y->value.dtype &&
         memcmp(&x->value.value, &y->value.value, sizeof x->value.value) == 0;
}

/* Constants follow the arguments. */
static bool find_scalar_slot(const matcher *m, const series *v, hr_run_slot *out_slot) {
  if (v->values[0] < m->arguments) {
    bool are_arguments = true;
    for (int u = 0; u < v->count; ++u) {
      are_arguments = are_arguments && v->values[u] < m->arguments;
    }
    return are_arguments && find_axis_slot(m, HR_AXIS_SCALARS, v, out_slot);
  }
  bool are_same = true;
  for (int u = 1; are_same && u < v->count; ++u) {
    are_same = is_same_constant(&m->schedule->program, v->values[0], v->values[u]);
  }
  *out_slot = (hr_run_slot){hr_repeat_lengthen(m->repeats, HR_AXIS_SCALARS, (uint32_t)v->values[0]), 0, -1};
  return are_same;
}

/* Offsets of the last periods are already those of the whole program. */
static bool find_offset_slot(const matcher *m, const series *v, hr_run_slot *out_slot) {
  int64_t all = v->count - 1 + m->repeats->dropped, range = v->values[v->count - 1] - v->values[0];
  int64_t step = range / all, jump = 0;
  bool is = range % all == 0;
  for (int u = 1; is && u < v->count; ++u) {
    int64_t own = v->values[u] - v->values[0];
    jump = own == step * u + jump ? jump : step * m->repeats->dropped;
    is = own == step * u + jump;
  }
  *out_slot = (hr_run_slot){v->values[0], step, -1};
  return is;
}

/* ---- temporaries ---- */

static bool put_member(matcher *m, int table, int place, uint32_t buffer) {
  hr_run_table *t = &m->runs->tables.data[table];
  if (place < -HR_TABLE_MARGIN || place + HR_TABLE_MARGIN >= HR_TABLE_MAX || m->runs->tables_of[buffer] >= 0) {
    return false;
  }
  t->members[place + HR_TABLE_MARGIN] = buffer;
  m->runs->tables_of[buffer] = table, m->runs->members_of[buffer] = place;
  return true;
}

/* A table of the temporaries of a slot, none of which has one. */
static bool add_table(matcher *m, const series *v, hr_run_slot *out_slot) {
  int table = (int)m->runs->tables.count;
  m->failed |= !hr_vector_push(&m->runs->tables, (hr_run_table){.repeat = m->repeat, .low = 0, .high = v->count - 1});
  bool ok = !m->failed;
  for (int u = 0; ok && u < v->count; ++u) {
    ok = put_member(m, table, u, (uint32_t)v->values[u]);
  }
  *out_slot = (hr_run_slot){0, 1, table};
  return ok;
}

/* The slot has members of a table, in its order or backwards; those of its first or last repetitions may be new. */
static bool follow_table(matcher *m, const series *v, int known, hr_run_slot *out_slot) {
  const int *members = m->runs->members_of;
  int table = m->runs->tables_of[v->values[known]];
  if (known + 1 >= v->count || m->runs->tables_of[v->values[known + 1]] != table) {
    return false;
  }
  int step = members[v->values[known + 1]] - members[v->values[known]],
      first = members[v->values[known]] - step * known;
  hr_run_table *t = &m->runs->tables.data[table];
  bool ok = step == 1 || step == -1;
  for (int u = 0; ok && u < v->count; ++u) {
    uint32_t buffer = (uint32_t)v->values[u];
    int place = first + step * u;
    if (place >= t->low && place <= t->high) {
      ok = m->runs->tables_of[buffer] == table && members[buffer] == place;
    } else {
      ok = (place == t->low - 1 || place == t->high + 1) && put_member(m, table, place, buffer);
      t->low = place < t->low ? place : t->low;
      t->high = place > t->high ? place : t->high;
    }
  }
  *out_slot = (hr_run_slot){step > 0 ? first : first + m->repeats->dropped, step, table};
  return ok;
}

static bool find_temp_slot(matcher *m, const series *v, hr_run_slot *out_slot) {
  int64_t step;
  int known = 0;
  if (is_even(v, &step) && step == 0) {
    *out_slot = (hr_run_slot){hr_repeat_lengthen(m->repeats, HR_AXIS_BUFFERS, (uint32_t)v->values[0]), 0, -1};
    return true; /* of no table: see check_shared */
  }
  while (known < v->count && m->runs->tables_of[v->values[known]] < 0) {
    ++known;
  }
  return known == v->count ? add_table(m, v, out_slot) : follow_table(m, v, known, out_slot);
}

static bool find_buffer_slot(matcher *m, const series *v, hr_run_slot *out_slot) {
  int bound = 0;
  for (int u = 0; u < v->count; ++u) {
    bound += v->values[u] < m->bound;
  }
  return bound == v->count ? find_axis_slot(m, HR_AXIS_BUFFERS, v, out_slot)
                           : bound == 0 && find_temp_slot(m, v, out_slot);
}

static bool find_slot(matcher *m, const series *v, hr_run_slot *out_slot) {
  switch (v->kind) {
    case HR_SLOT_BUFFER:
      return find_buffer_slot(m, v, out_slot);
    case HR_SLOT_SCALAR:
      return find_scalar_slot(m, v, out_slot);
    case HR_SLOT_RECORD:
      return find_axis_slot(m, HR_AXIS_RECORDS, v, out_slot);
    default:
      return find_offset_slot(m, v, out_slot);
  }
}

/* ---- the slots of a run ---- */

typedef struct series_reader {
  HR_VECTOR(series) all;
  size_t at;
  int repetition;
  bool failed;
} series_reader;

static void read_slot(void *ctx, hr_slot_kind kind, void *place) {
  series_reader *r = ctx;
  if (r->repetition == 0) {
    r->failed |= !hr_vector_push(&r->all, (series){.kind = kind});
  }
  if (!r->failed) {
    series *v = &r->all.data[r->at++];
    v->values[v->count++] = kind == HR_SLOT_OFFSET ? *(int64_t *)place : (int64_t) * (uint32_t *)place;
  }
}

static void read_step(const matcher *m, int step, series_reader *r) {
  hr_step_each_slot(&m->schedule->steps[step], read_slot, r);
  for (int i = m->runs->origin_first[step]; i < m->runs->origin_first[step + 1]; ++i) {
    read_slot(r, HR_SLOT_RECORD, &m->runs->origins.data[i]);
  }
}

/* The repeat that a step computes; -1: none. */
static int find_repeat(const matcher *m, int step) {
  int repeat = -1;
  for (int i = m->runs->origin_first[step]; repeat < 0 && i < m->runs->origin_first[step + 1]; ++i) {
    repeat = hr_repeat_find_member(m->repeats, HR_AXIS_RECORDS, m->runs->origins.data[i]).repeat;
  }
  return repeat;
}

/* The numbers of each step of the run, in all repetitions; then their slots. */
static bool find_run_slots(matcher *m, const hr_run *run) {
  series_reader r = {.at = 0};
  bool ok = true;
  for (int i = 0; ok && i < run->length; ++i) {
    hr_vector_clear(&r.all);
    m->repeat = find_repeat(m, run->first + i);
    for (r.repetition = 0; r.repetition < run->count; ++r.repetition) {
      r.at = 0;
      read_step(m, run->first + r.repetition * run->length + i, &r);
    }
    m->failed |= r.failed;
    for (size_t k = 0; ok && !m->failed && k < r.all.count; ++k) {
      hr_run_slot slot;
      ok = find_slot(m, &r.all.data[k], &slot);
      m->failed |= !hr_vector_push(&m->runs->slots, slot);
    }
  }
  hr_vector_fini(&r.all);
  return ok && !m->failed;
}

/* Undoes what find_run_slots did. */
static void forget(matcher *m, size_t slots, size_t tables, const hr_run_table *before) {
  hr_runs *runs = m->runs;
  runs->slots.count = slots;
  runs->tables.count = tables;
  if (tables > 0) {
    memcpy(runs->tables.data, before, tables * sizeof *before);
  }
  for (int b = 0; b < m->schedule->program.buffer_count; ++b) {
    int table = runs->tables_of[b], place = runs->members_of[b];
    bool is = table >= 0 && table < (int)tables && place >= runs->tables.data[table].low &&
              place <= runs->tables.data[table].high;
    runs->tables_of[b] = is ? table : -1;
  }
}

/* Steps [begin, end) match those `length` later: a run, perhaps without its first or last repetitions, which may be
 * unlike the others. */
static bool add_run(matcher *m, int begin, int end, int length) {
  size_t slots = m->runs->slots.count, tables = m->runs->tables.count;
  hr_run_table *before = hr_arena_dup(&m->runs->arena, m->runs->tables.data, tables * sizeof *m->runs->tables.data);
  m->failed |= before == NULL;
  for (int cut = 0; !m->failed && cut <= 2 * TRIM_MAX; ++cut) {
    for (int front = 0; !m->failed && front <= cut; ++front) {
      hr_run run = {begin + front * length, length, (end - begin) / length - cut, slots};
      if (front > TRIM_MAX || cut - front > TRIM_MAX || run.count < RUN_MIN) {
        continue;
      }
      if (run.count + 2 * HR_TABLE_MARGIN <= HR_TABLE_MAX && find_run_slots(m, &run)) {
        m->failed |= !hr_vector_push(&m->runs->all, run);
        return !m->failed;
      }
      forget(m, slots, tables, before);
    }
  }
  return false;
}

/* ---- runs ---- */

/* The first of the step's records in a period; NULL: none. */
static const uint32_t *find_origin(const matcher *m, int step, int period) {
  for (int i = m->runs->origin_first[step]; i < m->runs->origin_first[step + 1]; ++i) {
    hr_member member = hr_repeat_find_member(m->repeats, HR_AXIS_RECORDS, m->runs->origins.data[i]);
    if (member.repeat >= 0 && member.period == period) {
      return &m->runs->origins.data[i];
    }
  }
  return NULL;
}

static bool has_origin(const matcher *m, int step, uint32_t record) {
  bool has = false;
  for (int i = m->runs->origin_first[step]; !has && i < m->runs->origin_first[step + 1]; ++i) {
    has = m->runs->origins.data[i] == record;
  }
  return has;
}

/* The step after `step` that has the same of the next period; -1: none. */
static int find_next(const matcher *m, int step, uint32_t record) {
  hr_member member = hr_repeat_find_member(m->repeats, HR_AXIS_RECORDS, record);
  uint32_t later = record + m->repeats->all[member.repeat].spans[HR_AXIS_RECORDS].size;
  for (int i = step + 1; i < m->schedule->step_count; ++i) {
    if (has_origin(m, i, later) && match_steps(m, step, i)) {
      return i;
    }
  }
  return -1;
}

/* The run that a step of the middle period is in; false: it is in none. *end: of the run before, then of this one. */
static bool find_run(matcher *m, int step, uint32_t record, int *end) {
  int next = find_next(m, step, record), length = next - step, begin = step, last = step;
  if (next < 0) {
    return false;
  }
  while (begin > *end && match_steps(m, begin - 1, begin - 1 + length)) {
    --begin;
  }
  while (last + length < m->schedule->step_count && match_steps(m, last, last + length)) {
    ++last;
  }
  if (!add_run(m, begin, last + length, length)) {
    return false;
  }
  const hr_run *run = &hr_vector_last(&m->runs->all);
  *end = run->first + run->length * run->count;
  return step >= run->first && step < *end;
}

static bool find_runs(matcher *m) {
  int end = 0;
  bool ok = true;
  for (int i = 0; ok && i < m->schedule->step_count; ++i) {
    const uint32_t *record = i >= end ? find_origin(m, i, m->repeats->head - 1) : NULL;
    ok = record == NULL || find_run(m, i, *record, &end);
  }
  return ok && m->runs->all.count > 0;
}

/* ---- all periods are in it ---- */

/* A record that a run repeats: in the middle periods it is there each time, so that the dropped ones are added once. */
static bool covers_middle(const matcher *m, const hr_run *run, int step) {
  for (int i = m->runs->origin_first[step]; i < m->runs->origin_first[step + 1]; ++i) {
    hr_member own = hr_repeat_find_member(m->repeats, HR_AXIS_RECORDS, m->runs->origins.data[i]);
    if (own.repeat >= 0 && (own.period > HR_REPEAT_OUTER + 1 ||
                            own.period + run->count < hr_repeat_kept(m->repeats, own.repeat) - HR_REPEAT_OUTER - 1)) {
      return false;
    }
  }
  return true;
}

static bool is_outer(const matcher *m, hr_member member) {
  return member.period <= HR_REPEAT_OUTER ||
         member.period >= hr_repeat_kept(m->repeats, member.repeat) - 1 - HR_REPEAT_OUTER;
}

typedef struct buffer_check {
  const matcher *m;
  int step;
  bool is_of_repeat, ok;
} buffer_check;

/* True if the buffers of a repeat that a step in no run uses have to be those of the periods before the dropped ones,
 * or after them, as `is_late` is. */
static bool is_on_side(const buffer_check *c, int repeat, bool is_late) {
  const matcher *m = c->m;
  bool is = true;
  for (int i = m->runs->origin_first[c->step]; is && i < m->runs->origin_first[c->step + 1]; ++i) {
    hr_member own = hr_repeat_find_member(m->repeats, HR_AXIS_RECORDS, m->runs->origins.data[i]);
    if (own.repeat >= 0) {
      int known = repeat >= 0 ? m->repeats->directions[own.repeat][repeat] : 0;
      int direction = known == 0 && own.repeat == repeat ? 1 : known;
      is = direction != 0 && is_late == ((own.period >= m->repeats->head) == (direction > 0));
    }
  }
  return is;
}

static void check_buffer(void *ctx, hr_slot_kind kind, void *place) {
  buffer_check *c = ctx;
  const hr_runs *runs = c->m->runs;
  if (kind != HR_SLOT_BUFFER) {
    return;
  }
  uint32_t buffer = *(uint32_t *)place;
  if (buffer < c->m->bound) {
    hr_member own = hr_repeat_find_member(c->m->repeats, HR_AXIS_BUFFERS, buffer);
    c->ok &= own.repeat < 0 || is_on_side(c, own.repeat, own.period >= c->m->repeats->head);
  } else if (runs->tables_of[buffer] >= 0) {
    const hr_run_table *table = &runs->tables.data[runs->tables_of[buffer]];
    int member = runs->members_of[buffer];
    bool is_end = member <= HR_TABLE_HEAD || member >= table->high - 1;
    c->ok &= (c->is_of_repeat || is_end) && is_on_side(c, table->repeat, member > HR_TABLE_HEAD);
  }
}

/* A step in no run computes nothing of the middle periods. */
static bool check_outside(const matcher *m, int step) {
  int first = m->runs->origin_first[step], end = m->runs->origin_first[step + 1];
  buffer_check c = {m, step, false, first < end};
  for (int i = first; c.ok && i < end; ++i) {
    hr_member own = hr_repeat_find_member(m->repeats, HR_AXIS_RECORDS, m->runs->origins.data[i]);
    c.is_of_repeat |= own.repeat >= 0;
    c.ok = own.repeat < 0 || is_outer(m, own);
  }
  hr_step_each_slot(&m->schedule->steps[step], check_buffer, &c);
  return c.ok;
}

static bool check_all(const matcher *m) {
  int at = 0;
  bool ok = true;
  for (size_t r = 0; ok && r <= m->runs->all.count; ++r) {
    const hr_run *run = r < m->runs->all.count ? &m->runs->all.data[r] : NULL;
    for (int end = run != NULL ? run->first : m->schedule->step_count; ok && at < end; ++at) {
      ok = check_outside(m, at);
    }
    for (int i = 0; ok && run != NULL && i < run->length; ++i) {
      ok = covers_middle(m, run, run->first + i);
    }
    at = run != NULL ? run->first + run->length * run->count : at;
  }
  return ok;
}

typedef struct shared_check {
  const matcher *m;
  size_t slot;
  bool ok;
} shared_check;

/* A temporary that all repetitions share is of no table. */
static void check_shared_slot(void *ctx, hr_slot_kind kind, void *place) {
  shared_check *c = ctx;
  const hr_run_slot *slot = &c->m->runs->slots.data[c->slot++];
  c->ok &= kind != HR_SLOT_BUFFER || slot->table >= 0 || c->m->runs->tables_of[*(uint32_t *)place] < 0;
}

static bool check_shared(const matcher *m) {
  shared_check c = {m, 0, true};
  for (size_t r = 0; r < m->runs->all.count; ++r) {
    const hr_run *run = &m->runs->all.data[r];
    for (int i = run->first; i < run->first + run->length; ++i) {
      hr_step_each_slot(&m->schedule->steps[i], check_shared_slot, &c);
      c.slot += (size_t)count_origins(m, i);
    }
  }
  return c.ok;
}

/* The buffers of middle periods, and of a table, are alike. */
static bool are_alike(const hr_schedule *schedule, uint32_t a, uint32_t b) {
  const hr_program_buffer *all = schedule->program.buffers;
  return hr_repeat_buffers_match(&all[a], &all[b]) && schedule->places[a].kind == schedule->places[b].kind;
}

static bool check_members(const matcher *m) {
  bool ok = true;
  uint32_t removed = 0;
  for (int r = 0; r < m->repeats->count; ++r) {
    const hr_repeat_span *span = &m->repeats->all[r].spans[HR_AXIS_BUFFERS];
    uint32_t head = (uint32_t)m->repeats->head, first = span->first - removed;
    for (uint32_t b = first + span->size * (head - 1); ok && b < first + span->size * (head + 1); ++b) {
      ok = are_alike(m->schedule, b, b - span->size);
    }
    removed += span->size * (uint32_t)m->repeats->dropped;
  }
  for (size_t t = 0; ok && t < m->runs->tables.count; ++t) {
    const hr_run_table *table = &m->runs->tables.data[t];
    for (int i = HR_TABLE_HEAD + 1; ok && i < table->high; ++i) {
      ok = are_alike(m->schedule, table->members[i + HR_TABLE_MARGIN], table->members[i - 1 + HR_TABLE_MARGIN]);
    }
  }
  return ok;
}

/* ---- */

static bool read_origins(matcher *m) {
  const hr_schedule *schedule = m->schedule;
  hr_runs *runs = m->runs;
  hr_origin_reader reader = {.at = schedule->origins};
  bool ok = true;
  for (int i = 0; ok && i < schedule->step_count; ++i) {
    runs->origin_first[i] = (int)runs->origins.count;
    for (uint32_t left = hr_origins_begin(&reader); ok && left > 0; --left) {
      ok = hr_vector_push(&runs->origins, hr_origins_next(&reader));
    }
  }
  runs->origin_first[schedule->step_count] = (int)runs->origins.count;
  return ok;
}

static bool begin(matcher *m) {
  size_t buffers = (size_t)m->schedule->program.buffer_count + 1, steps = (size_t)m->schedule->step_count + 1;
  hr_runs *runs = m->runs;
  runs->tables_of = hr_arena_alloc(&runs->arena, buffers * sizeof *runs->tables_of);
  runs->members_of = hr_arena_alloc(&runs->arena, buffers * sizeof *runs->members_of);
  runs->origin_first = hr_arena_alloc(&runs->arena, steps * sizeof *runs->origin_first);
  if (runs->tables_of == NULL || runs->members_of == NULL || runs->origin_first == NULL) {
    return false;
  }
  memset(runs->tables_of, 0xff, buffers * sizeof *runs->tables_of);
  return read_origins(m);
}

static bool has_checks(const hr_schedule *schedule) {
  bool has = false;
  for (int i = 0; !has && i < schedule->step_count; ++i) {
    has = schedule->steps[i].kind == HR_STEP_CHECK;
  }
  return has;
}

hr_status hr_runs_find(const hr_schedule *schedule, const hr_repeats *repeats, hr_runs *out_runs, bool *out_is) {
  matcher m = {.schedule = schedule,
               .repeats = repeats,
               .runs = out_runs,
               .bound = (uint32_t)schedule->program.bound_count,
               .arguments = (uint32_t)schedule->program.argument_count};
  *out_runs = (hr_runs){.tables_of = NULL};
  m.failed = !begin(&m);
  *out_is =
      !m.failed && !has_checks(schedule) && find_runs(&m) && check_shared(&m) && check_members(&m) && check_all(&m);
  return !m.failed ? HR_OK : hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no host memory for the runs of a schedule");
}

void hr_runs_fini(hr_runs *runs) {
  hr_arena_fini(&runs->arena);
  hr_vector_fini(&runs->all);
  hr_vector_fini(&runs->slots);
  hr_vector_fini(&runs->tables);
  hr_vector_fini(&runs->origins);
}
