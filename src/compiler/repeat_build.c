/* repeat_build.c: the schedule of all periods.
 *
 * The steps of a run are copied once for each repetition, with the numbers that follow from the slots. They share all
 * lists that have no such number. Steps in no run stay, with the numbers of the whole program. Buffers of dropped
 * periods are as those of the period before; all temporaries are placed anew.
 */
#include <string.h>

#include "compiler/repeat.h"

typedef struct builder {
  const hr_program *stream;
  const hr_repeats *repeats;
  const hr_runs *runs;
  const hr_target *target;
  hr_schedule *schedule;
  const hr_step *from; /* the short schedule's */
  hr_step *steps;
  int step_count, node_count;
  int *numbers; /* of each short step in no run, or in the first repetition: its number in the whole schedule */
  hr_place *places;
  hr_origin_writer origins;
  uint32_t short_bound, short_arguments;
  const hr_run_slot *slot; /* the next one */
  int64_t repetition;
  bool is_refused, failed;
} builder;

static inline uint32_t value_of(const builder *b, const hr_run_slot *slot) {
  int64_t at = slot->first + slot->step * b->repetition;
  if (slot->table < 0) {
    return (uint32_t)at;
  }
  const hr_run_table *table = &b->runs->tables.data[slot->table];
  return table->whole[at - table->low];
}

/* ---- buffers and scalars ---- */

/* Copies the elements of the short program's bound buffers to the whole program's: a dropped period's are as those of
 * the period before it. Returns the number of elements. */
static size_t spread(const hr_repeats *repeats, size_t short_count, const void *from, size_t size, void *to) {
  const char *source = from;
  char *target = to;
  size_t at = 0;
  for (int r = 0; r < repeats->count; ++r) {
    const hr_repeat_span *span = &repeats->all[r].spans[HR_AXIS_BUFFERS];
    size_t begin = span->first + (size_t)span->size * (size_t)repeats->head; /* in the whole program */
    size_t before = begin - (size_t)(target - (char *)to) / size, period = span->size * size;
    memcpy(target, source + at * size, before * size);
    at += before;
    target += before * size;
    for (int p = 0; p < repeats->dropped; ++p, target += period) {
      memcpy(target, source + at * size - period, period);
    }
  }
  memcpy(target, source + at * size, (short_count - at) * size);
  return (size_t)(target - (char *)to) / size + short_count - at;
}

/* The elements of buffers that were added for tables are as those of the table's last member that stays in front. */
static void spread_tables(const builder *b, const void *from, size_t size, void *to) {
  for (size_t t = 0; t < b->runs->tables.count; ++t) {
    const hr_run_table *table = &b->runs->tables.data[t];
    const char *source = (const char *)from + table->members[HR_TABLE_HEAD + HR_TABLE_MARGIN] * size;
    for (int i = HR_TABLE_HEAD + 1; i <= HR_TABLE_HEAD + b->repeats->dropped; ++i) {
      memcpy((char *)to + table->whole[i - table->low] * size, source, size);
    }
  }
}

static bool make_tables(builder *b) {
  hr_runs *runs = (hr_runs *)b->runs;
  uint32_t added = hr_repeat_lengthen(b->repeats, HR_AXIS_BUFFERS, (uint32_t)b->schedule->program.buffer_count);
  for (size_t t = 0; t < runs->tables.count; ++t) {
    hr_run_table *table = &runs->tables.data[t];
    int count = table->high - table->low + 1 + b->repeats->dropped;
    table->whole = hr_arena_alloc(&runs->arena, (size_t)count * sizeof *table->whole);
    if (table->whole == NULL) {
      return false;
    }
    for (int i = table->low; i <= table->high; ++i) {
      int place = i <= HR_TABLE_HEAD ? i : i + b->repeats->dropped;
      table->whole[place - table->low] =
          hr_repeat_lengthen(b->repeats, HR_AXIS_BUFFERS, table->members[i + HR_TABLE_MARGIN]);
    }
    for (int i = 0; i < b->repeats->dropped; ++i) {
      table->whole[HR_TABLE_HEAD + 1 + i - table->low] = added++;
    }
  }
  return true;
}

static bool make_buffers(builder *b) {
  hr_program *program = &b->schedule->program;
  size_t temps = (size_t)program->buffer_count - b->short_bound;
  size_t count = (size_t)b->stream->buffer_count + temps + b->runs->tables.count * (size_t)b->repeats->dropped;
  hr_program_buffer *buffers = hr_arena_alloc(&program->arena, count * sizeof *buffers);
  b->places = hr_arena_alloc(&program->arena, count * sizeof *b->places);
  if (buffers == NULL || b->places == NULL || !make_tables(b)) {
    return false;
  }
  (void)spread(b->repeats, (size_t)program->buffer_count, program->buffers, sizeof *buffers, buffers);
  (void)spread(b->repeats, (size_t)program->buffer_count, b->schedule->places, sizeof *b->places, b->places);
  spread_tables(b, program->buffers, sizeof *buffers, buffers);
  spread_tables(b, b->schedule->places, sizeof *b->places, b->places);
  for (size_t i = 0; i < count; ++i) {
    b->places[i].first = b->places[i].last = -1;
  }
  program->buffers = buffers;
  program->buffer_count = program->buffer_capacity = (int)count;
  program->bound_count = b->stream->buffer_count;
  return true;
}

static bool make_scalars(builder *b) {
  hr_program *program = &b->schedule->program;
  size_t arguments = (size_t)b->stream->scalar_count, constants = (size_t)program->scalar_count - b->short_arguments;
  hr_program_scalar *scalars = hr_arena_alloc(&program->arena, (arguments + constants) * sizeof *scalars);
  if (scalars == NULL) {
    return false;
  }
  if (arguments > 0) {
    memcpy(scalars, b->stream->scalars, arguments * sizeof *scalars);
  }
  if (constants > 0) {
    memcpy(scalars + arguments, program->scalars + b->short_arguments, constants * sizeof *scalars);
  }
  program->scalars = scalars;
  program->scalar_count = program->scalar_capacity = (int)(arguments + constants);
  program->argument_count = (int)arguments;
  return true;
}

/* ---- steps in no run ---- */

static void lengthen_slot(void *ctx, hr_slot_kind kind, void *place) {
  const builder *b = ctx;
  if (kind != HR_SLOT_OFFSET) {
    uint32_t *number = place;
    hr_axis axis = kind == HR_SLOT_BUFFER   ? HR_AXIS_BUFFERS
                   : kind == HR_SLOT_SCALAR ? HR_AXIS_SCALARS
                                            : HR_AXIS_RECORDS;
    *number = hr_repeat_lengthen(b->repeats, axis, *number);
  }
}

static inline void touch(const builder *b, uint32_t buffer) {
  hr_place *place = &b->places[buffer];
  place->first = place->first < 0 ? b->step_count : place->first;
  place->last = b->step_count;
}

static void touch_slot(void *ctx, hr_slot_kind kind, void *place) {
  if (kind == HR_SLOT_BUFFER) {
    touch(ctx, *(uint32_t *)place);
  }
}

/* A node of the step's own among the program's. */
static void own_node(builder *b, hr_step *step, const hr_node *node) {
  hr_node *own = &b->schedule->program.nodes[b->node_count++];
  *own = *node;
  step->node = own;
}

static void add_outside(builder *b, int number) {
  hr_step *step = &b->steps[b->step_count];
  *step = b->from[number];
  if (step->kind != HR_STEP_KERNEL) {
    own_node(b, step, step->node);
  }
  hr_step_each_slot(step, lengthen_slot, b);
  hr_step_each_slot(step, touch_slot, b);
  step->like = step->like > 0 ? b->numbers[step->like - 1] + 1 : 0;
  int first = b->runs->origin_first[number], end = b->runs->origin_first[number + 1];
  hr_origins_put_count(&b->origins, (uint32_t)(end - first));
  for (int i = first; i < end; ++i) {
    hr_origins_put(&b->origins, hr_repeat_lengthen(b->repeats, HR_AXIS_RECORDS, b->runs->origins.data[i]));
  }
  b->numbers[number] = b->step_count++;
}

/* ---- steps of runs ---- */

static bool has_moves(const hr_run_slot *slots, int count) {
  bool has = false;
  for (int i = 0; !has && i < count; ++i) {
    has = slots[i].step != 0;
  }
  return has;
}

static void add_kernel(builder *b, const hr_kernel *from, hr_step *step) {
  size_t args = (size_t)from->arg_count * sizeof *from->args,
         scalars = hr_part_bytes((size_t)from->scalar_count * sizeof *from->scalars);
  bool moves = has_moves(b->slot + from->arg_count + from->scalar_count, from->access_count);
  size_t accesses = moves ? (size_t)from->access_count * sizeof *from->accesses : 0;
  char *at = hr_arena_alloc(&b->schedule->forms, sizeof *from + args + scalars + accesses);
  if (at == NULL) {
    b->failed = true;
    return;
  }
  hr_kernel *kernel = hr_part_put(&at, from, sizeof *from);
  hr_kernel_arg *own_args = hr_part_put(&at, from->args, args);
  uint32_t *own_scalars = (uint32_t *)(void *)at;
  for (int i = 0; i < from->arg_count; ++i) {
    own_args[i].buffer = value_of(b, b->slot++);
    touch(b, own_args[i].buffer);
  }
  for (int i = 0; i < from->scalar_count; ++i) {
    own_scalars[i] = value_of(b, b->slot++);
  }
  kernel->args = own_args, kernel->scalars = own_scalars;
  if (moves) {
    hr_access *own = (hr_access *)(void *)(at + scalars);
    memcpy(own, from->accesses, accesses);
    for (int i = 0; i < from->access_count; ++i) {
      own[i].offset = b->slot[i].first + b->slot[i].step * b->repetition;
    }
    kernel->accesses = own;
  }
  b->slot += from->access_count;
  step->kernel = kernel;
}

/* True if a library may decline the node for the alignment of its operands: it was asked about other ones. */
static bool is_other(const builder *b, const hr_operand *x, const hr_run_slot *slot) {
  enum { ALIGNMENT = 64 };
  return slot->step * (int64_t)hr_dtype_size(x->dtype) % ALIGNMENT != 0 && b->repetition < ALIGNMENT;
}

static void add_node(builder *b, const hr_node *from, hr_step *step) {
  int operands = from->input_count + from->output_count;
  hr_operand *all = hr_arena_alloc(&b->schedule->program.arena, (size_t)operands * sizeof *all);
  if (all == NULL) {
    b->failed = true;
    return;
  }
  own_node(b, step, from);
  hr_node *node = (hr_node *)step->node;
  bool is_asked = false;
  memcpy(all, from->outputs, (size_t)from->output_count * sizeof *all);
  memcpy(all + from->output_count, from->inputs, (size_t)from->input_count * sizeof *all);
  node->outputs = all, node->inputs = all + from->output_count;
  for (int i = 0; i < operands; ++i) {
    hr_operand *x = hr_node_operand(node, i);
    if (x->kind == HR_OPERAND_VALUE) {
      x->index = value_of(b, b->slot++);
      touch(b, x->index);
      is_asked |= is_other(b, x, b->slot);
      x->offset = b->slot->first + b->slot->step * b->repetition;
      ++b->slot;
    } else if (x->kind == HR_OPERAND_SCALAR) {
      x->index = value_of(b, b->slot++);
    }
  }
  node->scalar_base = from->scalar_count > 0 ? value_of(b, b->slot++) : node->scalar_base;
  node->origin = value_of(b, b->slot++);
  b->is_refused |=
      is_asked && b->target->keeps != NULL && !b->target->keeps(b->target->keeps_ctx, &b->schedule->program, node);
}

static void add_origins(builder *b, int count) {
  hr_origins_put_count(&b->origins, (uint32_t)count);
  for (int i = 0; i < count; ++i) {
    hr_origins_put(&b->origins, value_of(b, b->slot++));
  }
}

/* The step of a run's repetition that short step `number` is in the first one. */
static void add_repeated(builder *b, int number) {
  const hr_step *from = &b->from[number];
  hr_step *step = &b->steps[b->step_count];
  *step = *from;
  const hr_run_slot *first = b->slot;
  if (step->kind == HR_STEP_KERNEL) {
    add_kernel(b, from->kernel, step);
    bool moves = has_moves(first + from->kernel->arg_count + from->kernel->scalar_count, from->kernel->access_count);
    step->like = moves               ? 0
                 : from->like > 0    ? b->numbers[from->like - 1] + 1
                 : b->repetition > 0 ? b->numbers[number] + 1
                                     : 0;
  } else {
    add_node(b, from->node, step);
  }
  if (b->failed) {
    return;
  }
  add_origins(b, b->runs->origin_first[number + 1] - b->runs->origin_first[number]);
  if (b->repetition == 0) {
    b->numbers[number] = b->step_count;
  }
  ++b->step_count;
}

static void add_run(builder *b, const hr_run *run) {
  for (b->repetition = 0; b->repetition < run->count + b->repeats->dropped; ++b->repetition) {
    b->slot = b->runs->slots.data + run->first_slot;
    for (int i = 0; i < run->length && !b->failed; ++i) {
      add_repeated(b, run->first + i);
    }
  }
}

static void add_steps(builder *b) {
  int at = 0;
  for (size_t r = 0; r <= b->runs->all.count && !b->failed; ++r) {
    const hr_run *run = r < b->runs->all.count ? &b->runs->all.data[r] : NULL;
    for (int end = run != NULL ? run->first : b->schedule->step_count; at < end; ++at) {
      add_outside(b, at);
    }
    if (run != NULL) {
      add_run(b, run);
      at = run->first + run->length * run->count;
    }
  }
}

/* ---- */

/* Room for all steps, and for the nodes of those that are no kernels. */
static bool make_lists(builder *b) {
  hr_schedule *schedule = b->schedule;
  size_t steps = (size_t)schedule->step_count, nodes = (size_t)schedule->program.node_count;
  for (size_t r = 0; r < b->runs->all.count; ++r) {
    const hr_run *run = &b->runs->all.data[r];
    steps += (size_t)run->length * (size_t)b->repeats->dropped;
    for (int i = 0; i < run->length; ++i) {
      nodes += b->from[run->first + i].kind != HR_STEP_KERNEL ? (size_t)b->repeats->dropped : 0;
    }
  }
  b->steps = hr_arena_alloc(&schedule->program.arena, (steps + 1) * sizeof *b->steps);
  schedule->program.nodes = hr_arena_alloc(&schedule->program.arena, (nodes + 1) * sizeof *schedule->program.nodes);
  b->numbers = hr_arena_alloc(&((hr_runs *)b->runs)->arena, ((size_t)schedule->step_count + 1) * sizeof *b->numbers);
  if (b->steps == NULL || schedule->program.nodes == NULL || b->numbers == NULL) {
    return false;
  }
  for (int i = 0; i < schedule->step_count; ++i) {
    b->numbers[i] = -1; /* like = 0 */
  }
  schedule->program.node_count = schedule->program.node_capacity = (int)nodes;
  return true;
}

static void lengthen_declined(builder *b) {
  for (int i = 0; i < b->schedule->declined_count; ++i) {
    hr_step step = {.kind = HR_STEP_LIBRARY, .node = &b->schedule->declined[i]};
    hr_step_each_slot(&step, lengthen_slot, b);
  }
}

/* No step touches it: any time will do. */
static void finish_places(builder *b) {
  for (int i = 0; i < b->schedule->program.buffer_count; ++i) {
    hr_place *place = &b->places[i];
    if (place->kind == HR_PLACE_ARENA && place->first < 0) {
      place->first = place->last = 0;
    }
  }
}

static bool finish(builder *b) {
  hr_schedule *schedule = b->schedule;
  finish_places(b);
  lengthen_declined(b);
  schedule->origins = hr_arena_dup(&schedule->program.arena, b->origins.bytes.data, b->origins.bytes.count);
  schedule->origin_bytes = b->origins.bytes.count;
  schedule->steps = b->steps;
  schedule->places = b->places;
  schedule->step_count = schedule->group_count = b->step_count;
  return schedule->origins != NULL;
}

hr_status hr_runs_build(const hr_program *stream, const hr_target *target, const hr_repeats *repeats, hr_runs *runs,
                        hr_schedule *schedule, bool *out_is) {
  builder b = {.stream = stream,
               .repeats = repeats,
               .runs = runs,
               .target = target,
               .schedule = schedule,
               .from = schedule->steps,
               .short_bound = (uint32_t)schedule->program.bound_count,
               .short_arguments = (uint32_t)schedule->program.argument_count};
  bool ok = make_buffers(&b) && make_scalars(&b) && make_lists(&b);
  if (ok) {
    add_steps(&b);
    ok = !b.failed && !b.origins.failed && (b.is_refused || finish(&b));
  }
  hr_vector_fini(&b.origins.bytes);
  *out_is = ok && !b.is_refused;
  if (!ok) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no host memory for a schedule of %d records",
                          stream->node_count);
  }
  return *out_is ? hr_place_buffers(schedule) : HR_OK;
}
