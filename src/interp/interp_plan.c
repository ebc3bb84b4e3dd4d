/* Turns instructions into steps: the dims along which each register varies, the loop of an instruction, how often it
 * runs.
 *
 *   before   r0 = load x   r1 = load bias   r2 = add r0, r1   r3 = convert r2 to bf16   store y (bf16), r3
 *   after    each run      point r1 at bias
 *            each block    (r0 points at x)  r2 = add<matrix, row>(r0, r1)   store y, r2
 *
 * Copies and conversions that change nothing become aliases of a register, and so does a rounding that the store
 * repeats.
 */
#include <string.h>

#include "base/allocator.h"
#include "base/interned.h"
#include "interp/interp_plan.h"

/* Work of one create. */
typedef struct builder {
  hr__draft *draft;
  hr_arena *scratch; /* holds arrays of the largest possible size */
  const hr_kernel *kernel;
  int *alias;        /* kernel register -> plan register, -1: none yet */
  bool *only_stored; /* kernel registers that only stores of `stored_as` read */
  hr_dtype *stored_as;
  int *scalar_register; /* [scalar][class] */
  int step_capacity, register_capacity;
  bool *is_arg_written;
} builder;

static hr_status out_of_memory(const hr_kernel *kernel) {
  return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "interp: no memory for kernel %s of %d instructions",
                        kernel->name != NULL ? kernel->name : "", kernel->instr_count);
}

static hr_status no_loop(const hr_instr *instr) {
  return hr_status_make(HR_STATUS_UNIMPLEMENTED, "interp: no loop for %s in class %s", hr_op_table(instr->op)->name,
                        hr_class_name(instr->cls));
}

/* ---- registers ---- */

static int new_register(builder *b, hr_class cls, unsigned vary, hr__often often, hr__place place) {
  int index = b->draft->register_count++;
  b->draft->registers[index] = (hr__register){.cls = (uint8_t)cls,
                                              .size_shift = (uint8_t)__builtin_ctzll(hr_class_size(cls)),
                                              .vary = (uint8_t)vary,
                                              .often = (uint8_t)often,
                                              .place = (uint8_t)place,
                                              .map = -1};
  return index;
}

static int scalar_register(builder *b, int scalar, hr_class cls) {
  int *known = &b->scalar_register[scalar * HR_CLASS_COUNT + (int)cls];
  if (*known < 0) {
    *known = new_register(b, cls, 0, HR__EACH_RUN, HR__PLACE_SCALAR);
    b->draft->registers[*known].scalar = scalar;
  }
  return *known;
}

static int source_register(builder *b, hr_source source, hr_class cls) {
  return source.kind == HR_SOURCE_SCALAR ? scalar_register(b, source.index, cls) : b->alias[source.index];
}

/* The frequency of a step with this variation. */
static hr__often often_for(const hr__draft *draft, unsigned vary) {
  unsigned walked = draft->walk == HR__WALK_INNER ? HR__INNER : HR__OUTER;
  if (vary == 0) {
    return HR__EACH_RUN;
  }
  return draft->is_walked && (vary & walked) == 0 ? HR__EACH_TILE : HR__EACH_BLOCK;
}

static hr__often rarer_not(hr__often a, hr__often b) {
  return a > b ? a : b;
}

/* The sides of the plane with more or less than one element. */
static unsigned full_plane(const hr__draft *draft) {
  return (draft->plane.outer != 1 ? (unsigned)HR__OUTER : 0) | (draft->plane.inner != 1 ? (unsigned)HR__INNER : 0);
}

/* ---- steps ---- */

static hr__step *new_step(builder *b, hr__step_kind kind, hr__often often, int phase) {
  hr__step *step = &b->draft->steps[b->draft->step_count++];
  *step = (hr__step){.kind = (uint8_t)kind, .dst = -1};
  step->section = (uint8_t)(often == HR__EACH_RUN ? 0 : 2 * phase + (often == HR__EACH_TILE ? 1 : 2));
  return step;
}

static void set_sources(hr__step *step, int count, const int *registers) {
  for (int s = 0; s < count; ++s) {
    step->src[s] = (int16_t)registers[s];
  }
}

/* A register's form in a loop over `space`. */
static unsigned see(unsigned vary, unsigned space) {
  vary &= space;
  if (space != HR__PLANE) {
    return vary == space ? HR__SEE_MATRIX : HR__SEE_ONE;
  }
  return vary == HR__PLANE   ? HR__SEE_MATRIX
         : vary == HR__INNER ? HR__SEE_ROW
         : vary == HR__OUTER ? HR__SEE_COLUMN
                             : HR__SEE_ONE;
}

static void see_sources(builder *b, hr__step *step) {
  step->can_flatten = true;
  for (int s = 0; s < step->arity; ++s) {
    unsigned seen = see(b->draft->registers[step->src[s]].vary, step->space);
    step->see |= (uint8_t)(seen << 2 * s);
    step->can_flatten &= seen == HR__SEE_MATRIX || seen == HR__SEE_ONE;
  }
}

/* A register that holds `reg`, broadcast to `space`. */
static int spread(builder *b, int reg, unsigned space, hr__often often, int phase) {
  hr__draft *draft = b->draft;
  hr_class cls = draft->registers[reg].cls;
  unsigned vary = draft->registers[reg].vary;
  bool is_constant = draft->registers[reg].often == HR__EACH_RUN; /* a block of one number is filled once */
  hr__often mine = rarer_not(rarer_not(often_for(draft, space), draft->registers[reg].often), often);
  mine = is_constant ? HR__EACH_RUN : mine;
  int dst = new_register(b, cls, vary | space, mine, HR__PLACE_SLOT);
  hr__step *step = new_step(b, HR__STEP_LOOP, mine, phase);
  step->space = (uint8_t)space, step->arity = 1, step->dst = dst, step->src[0] = reg;
  step->loop = hr__loop_number(cls, &hr__class_loops_of(cls)->spread);
  see_sources(b, step);
  step->spread_row = hr__step_see(step, 0) == HR__SEE_ROW;
  return dst;
}

/* Chooses the variant for the operands; broadcasts operands until there is one. */
static const hr__loop_fn *choose_variant(builder *b, const hr__loop_fn *variants, int arity, int *sources,
                                         unsigned space, hr__often often, int phase) {
  for (;;) {
    unsigned mask = 0;
    for (int s = 0; s < arity; ++s) {
      unsigned seen = see(b->draft->registers[sources[s]].vary, space);
      mask |= space != 0 && (seen == HR__SEE_COLUMN || seen == HR__SEE_ONE) ? 1u << s : 0;
    }
    int variant = hr__loop_variant(arity, mask);
    if (variant >= 0 && variants[variant] != NULL) {
      return &variants[variant];
    }
    int first = 0; /* usually the last operands have variants */
    while ((mask >> first & 1) == 0) {
      ++first;
    }
    sources[first] = spread(b, sources[first], space, often, phase);
  }
}

/* `variants`: among the loops of class `cls`. */
static int loop_step(builder *b, hr_class cls, const hr__loop_fn *variants, int arity, int *sources, hr_class result,
                     int phase) {
  hr__draft *draft = b->draft;
  unsigned vary = 0;
  hr__often often = HR__EACH_RUN;
  for (int s = 0; s < arity; ++s) {
    vary |= draft->registers[sources[s]].vary;
    often = rarer_not(often, draft->registers[sources[s]].often);
  }
  often = rarer_not(often, often_for(draft, vary));
  unsigned space = vary & HR__PLANE;
  const hr__loop_fn *loop = choose_variant(b, variants, arity, sources, space, often, phase);
  int dst = new_register(b, result, vary, often, HR__PLACE_SLOT);
  hr__step *step = new_step(b, HR__STEP_LOOP, often, phase);
  step->space = (uint8_t)space, step->arity = (uint8_t)arity, step->dst = dst;
  step->loop = hr__loop_number(cls, loop);
  set_sources(step, arity, sources);
  see_sources(b, step);
  return dst;
}

/* ---- instructions ---- */

static hr_class source_class(const hr_op_row *row, hr_class cls, int source) {
  if (row->rule == HR_RULE_SEEDED) {
    return HR_CLASS_I64;
  }
  return row->rule == HR_RULE_WHERE && source == 0 ? HR_CLASS_B8 : cls;
}

static hr_status plan_compute(builder *b, const hr_instr *instr) {
  const hr_op_row *row = hr_op_table(instr->op);
  const hr__class_loops *loops = hr__class_loops_of(instr->cls);
  int sources[4] = {0};
  for (int s = 0; s < instr->source_count; ++s) {
    sources[s] = source_register(b, instr->sources[s], source_class(row, instr->cls, s));
  }
  if (instr->op == HR_OP_COPY) {
    b->alias[instr->dst] = sources[0];
    return HR_OK;
  }
  if (loops == NULL || row->family != HR_FAMILY_POINTWISE || loops->pointwise[instr->op][0] == NULL ||
      row->arity != instr->source_count) {
    return no_loop(instr);
  }
  b->alias[instr->dst] = loop_step(b, instr->cls, loops->pointwise[instr->op], instr->source_count, sources,
                                   b->kernel->registers[instr->dst].cls, instr->phase);
  return HR_OK;
}

static hr_status plan_convert(builder *b, const hr_instr *instr) {
  hr_class from = instr->sources[0].kind == HR_SOURCE_REGISTER ? b->kernel->registers[instr->sources[0].index].cls
                  : instr->cls != HR_CLASS_NONE                ? instr->cls
                                                               : hr_dtype_class(instr->to);
  hr_class to = hr_dtype_class(instr->to);
  int source = source_register(b, instr->sources[0], from);
  bool rounds = hr_dtype_is_narrow(instr->to) && from != HR_CLASS_B8;
  if (from == to && (!rounds || (b->only_stored[instr->dst] && b->stored_as[instr->dst] == instr->to))) {
    b->alias[instr->dst] = source;
    return HR_OK;
  }
  const hr__class_loops *loops = hr__class_loops_of(from);
  if (loops == NULL || to == HR_CLASS_NONE) {
    return no_loop(instr);
  }
  b->alias[instr->dst] = loop_step(b, from, &loops->convert[instr->to], 1, &source, to, instr->phase);
  return HR_OK;
}

/* True if memory of a dtype has the form of a register of its class. */
static bool is_own_class(hr_dtype dtype) {
  return !hr_dtype_is_narrow(dtype) || dtype == HR_DTYPE_BOOL;
}

/* True if a map's elements are dense in memory over `space`, with at most a pitch between rows. */
static bool is_dense(const hr__draft *draft, const hr__map *map, unsigned space) {
  if (map->term_count != 0 || map->coords != 1 || !is_own_class(map->dtype)) {
    return false;
  }
  hr__axes o = hr__outer_axes(map, draft->numbers), i = hr__inner_axes(map, draft->numbers);
  bool inner = i.rank == 1 && i.strides[0] == 1, outer = o.rank == 1;
  switch (space) {
    case 0:
      return true;
    case HR__INNER:
      return inner;
    case HR__OUTER:
      return outer && o.strides[0] == 1;
    default:
      return inner && outer;
  }
}

static hr_status plan_map(builder *b, const hr_instr *instr, hr_class fill_class, int *out_map, unsigned *out_vary,
                          hr__often *out_often) {
  hr__draft *draft = b->draft;
  hr__map *map = &draft->maps[draft->map_count];
  const hr_access *access = &b->kernel->accesses[instr->access];
  if (access->bound_count > HR__BOUNDS_MAX) {
    return hr_status_make(HR_STATUS_UNIMPLEMENTED, "interp: an access with %d bounds, at most %d", access->bound_count,
                          (int)HR__BOUNDS_MAX);
  }
  hr__plan_map(draft, access, NULL, map);
  if (access->fill >= 0 && access->bound_count > 0) {
    map->fill = scalar_register(b, access->fill, fill_class);
  }
  map->access = instr->access;
  unsigned vary = map->vary;
  hr__often often = HR__EACH_RUN;
  for (int t = 0; t < map->term_count; ++t) {
    int *reg = &draft->terms[map->term_first + t];
    *reg = b->alias[*reg];
    vary |= draft->registers[*reg].vary;
    often = rarer_not(often, draft->registers[*reg].often);
  }
  *out_map = draft->map_count++;
  *out_vary = vary;
  *out_often = rarer_not(often, often_for(draft, vary));
  return HR_OK;
}

static hr_status plan_load(builder *b, const hr_instr *instr) {
  hr__draft *draft = b->draft;
  int map;
  unsigned vary;
  hr__often often;
  hr_class cls = b->kernel->registers[instr->dst].cls;
  HR_RETURN_IF_ERROR(plan_map(b, instr, cls, &map, &vary, &often));
  bool is_index = instr->kind == HR_INSTR_INDEX;
  if (!is_index && b->is_arg_written[draft->maps[map].arg]) { /* ordered with the stores */
    often = instr->level == HR_LEVEL_ROW && draft->is_walked ? rarer_not(often, HR__EACH_TILE) : HR__EACH_BLOCK;
  }
  unsigned space = vary & HR__PLANE;
  bool points = !is_index && is_dense(draft, &draft->maps[map], space);
  int dst = new_register(b, cls, vary, often, points ? HR__PLACE_MEMORY : HR__PLACE_SLOT);
  draft->registers[dst].map = map;
  hr__step *step = new_step(b,
                            is_index ? HR__STEP_INDEX
                            : points ? HR__STEP_POINT
                                     : HR__STEP_LOAD,
                            often, instr->phase);
  step->space = (uint8_t)space, step->dst = dst, step->map = map;
  b->alias[instr->dst] = dst;
  return HR_OK;
}

static hr_status plan_store(builder *b, const hr_instr *instr) {
  hr__draft *draft = b->draft;
  int map;
  unsigned vary;
  hr__often often;
  hr_class cls = hr_dtype_class(b->kernel->accesses[instr->access].dtype);
  HR_RETURN_IF_ERROR(plan_map(b, instr, cls, &map, &vary, &often));
  int source = source_register(b, instr->sources[0], cls);
  bool is_row = instr->level == HR_LEVEL_ROW && draft->walk != HR__WALK_NONE;
  unsigned space = full_plane(draft);
  if (is_row) {
    space &= draft->walk == HR__WALK_INNER ? HR__OUTER : HR__INNER;
  }
  often = is_row && draft->is_walked ? HR__EACH_TILE : HR__EACH_BLOCK;
  hr__step *step = new_step(b, HR__STEP_STORE, often, instr->phase);
  step->space = (uint8_t)space, step->arity = 1, step->src[0] = source, step->map = map,
  step->mode = (uint8_t)instr->mode;
  return HR_OK;
}

#define HR_POINTWISE(...)
#define HR_CONTRACTION(...)
#define HR_COMPOSITE(...)
#define HR_LIBRARY(...)
#define HR_SPECIAL(...)
#define HR_REDUCE(NAME, ...) [HR_OP_##NAME] = 1 + HR__REDUCE_##NAME,
#define HR_ARGREDUCE(NAME, ...) [HR_OP_##NAME] = 1 + HR__ARGREDUCE_##NAME,

/* The row's number among the reductions or argreductions; -1 for other rows. */
static int reduce_row(hr_op op) {
  static const int8_t numbers[HR_OP_COUNT] = {
#include "core/ops/ops.def"
  };
  return numbers[op] - 1;
}

static hr_status plan_reduce(builder *b, const hr_instr *instr) {
  hr__draft *draft = b->draft;
  const hr__class_loops *loops = hr__class_loops_of(instr->cls);
  bool is_arg = instr->kind == HR_INSTR_ARGREDUCE;
  hr__reduction *reduction = &draft->reductions[draft->reduction_count];
  *reduction = (hr__reduction){.phase = instr->phase, .arity = is_arg ? 2 : 1, .is_sum = instr->op == HR_OP_SUM};
  int row = reduce_row(instr->op);
  if (loops != NULL && is_arg && row >= 0) {
    reduction->better = loops->argreduce[row];
  } else if (loops != NULL && !is_arg && row >= 0) {
    reduction->loops = &loops->reduce[row];
  }
  if (reduction->better == NULL && (reduction->loops == NULL || reduction->loops->init == NULL)) {
    return no_loop(instr);
  }
  reduction->key_size = (int)hr_class_size(instr->cls);
  unsigned space = full_plane(draft);
  int sources[2];
  for (int s = 0; s < reduction->arity; ++s) {
    sources[s] = source_register(b, instr->sources[s], s == 0 ? instr->cls : HR_CLASS_I64);
    if ((draft->registers[sources[s]].vary & space) != space) {
      sources[s] = spread(b, sources[s], space, HR__EACH_BLOCK, instr->phase);
    }
  }
  unsigned kept = draft->walk == HR__WALK_INNER ? HR__OUTER : HR__INNER;
  unsigned vary = (draft->batch_count > 1 ? (unsigned)HR__BATCH : 0) | (full_plane(draft) & kept);
  int dst = new_register(b, b->kernel->registers[instr->dst].cls, vary,
                         draft->is_walked ? HR__EACH_TILE : HR__EACH_BLOCK, HR__PLACE_SLOT);
  hr__step *step = new_step(b, is_arg ? HR__STEP_ARGREDUCE : HR__STEP_REDUCE, HR__EACH_BLOCK, instr->phase);
  step->space = (uint8_t)space, step->arity = (uint8_t)reduction->arity, step->dst = dst,
  step->reduce = draft->reduction_count;
  set_sources(step, reduction->arity, sources);
  see_sources(b, step);
  reduction->dst = dst;
  ++draft->reduction_count;
  b->alias[instr->dst] = dst;
  return HR_OK;
}

static hr_status plan_instr(builder *b, const hr_instr *instr) {
  switch (instr->kind) {
    case HR_INSTR_LOAD:
    case HR_INSTR_INDEX:
      return plan_load(b, instr);
    case HR_INSTR_COMPUTE:
      return plan_compute(b, instr);
    case HR_INSTR_CONVERT:
      return plan_convert(b, instr);
    case HR_INSTR_REDUCE:
    case HR_INSTR_ARGREDUCE:
      return plan_reduce(b, instr);
    case HR_INSTR_STORE:
      return plan_store(b, instr);
  }
  return hr_status_make(HR_STATUS_INTERNAL, "interp: instruction of unknown kind %d", (int)instr->kind);
}

/* Steps by section, otherwise in order. */
static bool sort_steps(hr__draft *draft) {
  hr__step *sorted = HR_ARENA_ARRAY(draft->arena, hr__step, (size_t)draft->step_count);
  draft->section_begin = HR_ARENA_ARRAY(draft->arena, int16_t, (size_t)draft->section_count + 2);
  if (sorted == NULL || draft->section_begin == NULL) {
    return false;
  }
  int16_t *next = draft->section_begin + 1; /* becomes the begins while it is filled */
  for (int k = 0; k < draft->step_count; ++k) {
    ++next[draft->steps[k].section];
  }
  for (int s = 0, at = 0; s < draft->section_count; ++s) {
    int count = next[s];
    next[s] = (int16_t)at;
    at += count;
  }
  for (int k = 0; k < draft->step_count; ++k) {
    sorted[next[draft->steps[k].section]++] = draft->steps[k];
  }
  draft->steps = sorted;
  return true;
}

static void note_uses(builder *b) {
  const hr_kernel *kernel = b->kernel;
  for (int r = 0; r < kernel->register_count; ++r) {
    b->alias[r] = -1;
    b->only_stored[r] = true;
  }
  for (int k = 0; k < kernel->scalar_count * HR_CLASS_COUNT; ++k) {
    b->scalar_register[k] = -1;
  }
  for (int k = 0; k < kernel->instr_count; ++k) {
    const hr_instr *instr = &kernel->instrs[k];
    if (instr->kind == HR_INSTR_STORE) {
      b->is_arg_written[kernel->accesses[instr->access].arg] = true;
    }
    for (int s = 0; s < instr->source_count; ++s) {
      int reg = instr->sources[s].index;
      if (instr->sources[s].kind != HR_SOURCE_REGISTER) {
        continue;
      }
      hr_dtype dtype = instr->kind == HR_INSTR_STORE && instr->mode == HR_STORE_SET
                           ? kernel->accesses[instr->access].dtype
                           : HR_DTYPE_NONE;
      b->only_stored[reg] &=
          dtype != HR_DTYPE_NONE && (b->stored_as[reg] == HR_DTYPE_NONE || b->stored_as[reg] == dtype);
      b->stored_as[reg] = dtype;
    }
  }
  for (int k = 0; k < kernel->access_count; ++k) {
    for (int t = 0; t < kernel->accesses[k].term_count; ++t) {
      b->only_stored[kernel->accesses[k].terms[t].reg] = false;
    }
  }
}

static hr_status plan_steps(builder *b) {
  hr__draft *draft = b->draft;
  const hr_kernel *kernel = b->kernel;
  hr_arena *arena = b->scratch;
  size_t instrs = (size_t)kernel->instr_count, registers = (size_t)kernel->register_count;
  size_t own_most = HR__INSTR_REGISTERS_MAX * instrs;
  size_t scalars = (size_t)kernel->scalar_count * HR_CLASS_COUNT;
  draft->steps = hr_arena_alloc(arena, (own_most + 1) * sizeof *draft->steps);
  draft->registers = hr_arena_alloc(arena, (own_most + registers + scalars + 1) * sizeof *draft->registers);
  draft->maps = hr_arena_alloc(arena, (instrs + 1) * sizeof *draft->maps);
  draft->reductions = hr_arena_alloc(arena, (instrs + 1) * sizeof *draft->reductions);
  b->alias = HR_ARENA_ARRAY(arena, int, registers + 1);
  b->only_stored = HR_ARENA_ARRAY(arena, bool, registers + 1);
  b->stored_as = HR_ARENA_ARRAY(arena, hr_dtype, registers + 1);
  b->scalar_register = HR_ARENA_ARRAY(arena, int, scalars + 1);
  b->is_arg_written = HR_ARENA_ARRAY(arena, bool, (size_t)kernel->arg_count + 1);
  if (draft->steps == NULL || draft->registers == NULL || draft->maps == NULL || draft->reductions == NULL ||
      b->alias == NULL || b->only_stored == NULL || b->stored_as == NULL || b->scalar_register == NULL ||
      b->is_arg_written == NULL || !hr__plan_reserve(draft, kernel)) {
    return out_of_memory(kernel);
  }
  note_uses(b);
  for (int phase = 0; phase < draft->phase_count; ++phase) {
    for (int rows = 1; rows >= 0; --rows) {
      for (int k = 0; k < kernel->instr_count; ++k) {
        const hr_instr *instr = &kernel->instrs[k];
        if (instr->phase == phase && (instr->level == HR_LEVEL_ROW) == rows) {
          HR_RETURN_IF_ERROR(plan_instr(b, instr));
        }
      }
    }
  }
  return sort_steps(draft) ? HR_OK : out_of_memory(kernel);
}

/* Estimated nanoseconds per element, from which the cost of a unit follows. */
static double element_cost(const hr_kernel *kernel) {
  double cost = 0.1;
  for (int k = 0; k < kernel->instr_count; ++k) {
    const hr_instr *instr = &kernel->instrs[k];
    if (instr->level == HR_LEVEL_ROW) {
      continue;
    }
    bool is_slow = instr->kind == HR_INSTR_COMPUTE && hr_op_table(instr->op)->accuracy != HR_ACCURACY_EXACT;
    bool is_ragged = instr->access >= 0 && (kernel->accesses[instr->access].term_count > 0 ||
                                            kernel->accesses[instr->access].bound_count > 0);
    cost += is_slow ? 0.4 : is_ragged ? 0.8 : 0.05;
  }
  return cost;
}

void hr__plan_set_passes(const hr__draft *draft, const hr_kernel *kernel, hr_host_pass passes[2], int *out_count) {
  const hr__plane *plane = &draft->plane;
  int64_t tiles = draft->batch_count * plane->tiles_outer * plane->tiles_inner;
  double unit = (double)plane->tile_outer * (double)plane->tile_inner;
  double cost = element_cost(kernel);
  unit = draft->is_split ? unit / (double)draft->chunk_count : unit;
  double grain = 10000.0 / (cost * (unit < 1 ? 1 : unit));
  passes[0].units = draft->is_split ? tiles * draft->chunk_count : tiles;
  passes[0].grain = grain < 1 ? 1 : (int64_t)grain;
  if (draft->is_split) {
    passes[1] = (hr_host_pass){.units = tiles, .grain = 64};
  }
  *out_count = draft->is_split ? 2 : 1;
}

/* ---- few blocks ---- */

/* Appends lists to a block; without one it only counts their bytes. */
typedef struct packer {
  char *block;
  size_t bytes;
} packer;

/* Returns the list's position. */
static int pack(packer *p, const void *list, size_t bytes) {
  size_t at = p->bytes;
  if (p->block != NULL && bytes > 0) {
    memcpy(p->block + at, list, bytes);
  }
  p->bytes += hr_part_bytes(bytes);
  return (int)at;
}

#define PACK(p, list, count) pack((p), (list), (size_t)(count) * sizeof *(list))

static void pack_form(packer *p, const hr__draft *draft, const char *name) {
  hr__form form = {.chunk = (int)draft->chunk,
                   .walk = (uint8_t)draft->walk,
                   .batch_rank = (uint8_t)draft->cut.batch.rank,
                   .has_batches = draft->batch_count > 1,
                   .is_walked = draft->is_walked,
                   .is_split = draft->is_split,
                   .times = draft->times,
                   .phase_count = (uint8_t)draft->phase_count,
                   .section_count = (uint8_t)draft->section_count,
                   .step_count = (int16_t)draft->step_count,
                   .register_count = (int16_t)draft->register_count,
                   .map_count = (int16_t)draft->map_count,
                   .reduction_count = (int16_t)draft->reduction_count,
                   .point_count = (int16_t)draft->point_count,
                   .number_count = (int16_t)draft->number_count,
                   .coord_count = draft->coord_count,
                   .conflict_count = draft->conflict_count};
  (void)PACK(p, &form, 1);
  (void)PACK(p, draft->steps, draft->step_count);
  form.sections_at = PACK(p, draft->section_begin, draft->section_count + 2);
  form.registers_at = PACK(p, draft->registers, draft->register_count);
  form.maps_at = PACK(p, draft->maps, draft->map_count);
  form.terms_at = PACK(p, draft->terms, draft->term_count);
  form.reductions_at = PACK(p, draft->reductions, draft->reduction_count);
  form.conflicts_at = PACK(p, draft->conflicts, draft->conflict_count);
  form.points_at = PACK(p, draft->points, draft->point_count);
  form.name_at = pack(p, name, strlen(name) + 1);
  if (p->block != NULL) {
    memcpy(p->block, &form, sizeof form);
  }
}

static void pack_slots(packer *p, const hr__draft *draft, const char *name) {
  (void)name;
  (void)PACK(p, &draft->slots, 1);
  (void)PACK(p, draft->states, draft->reduction_count);
  (void)PACK(p, draft->places, draft->register_count);
}

typedef void (*pack_fn)(packer *p, const hr__draft *draft, const char *name);

/* An interned block; NULL: there is no memory. */
static const void *intern(const hr__draft *draft, const char *name, pack_fn pack_all) {
  packer p = {.block = NULL};
  pack_all(&p, draft, name);
  p = (packer){.block = hr_arena_calloc(draft->arena, 1, p.bytes)};
  if (p.block == NULL) {
    return NULL;
  }
  pack_all(&p, draft, name);
  return hr_interned_acquire(p.block, p.bytes);
}

static void destroy(hr_host_kernel *kernel) {
  const hr__plan *plan = (const hr__plan *)kernel;
  hr_interned_release(hr__form_of(plan));
  hr_interned_release(hr__slots_of(plan));
  hr_free(kernel);
}

static hr_host_pass *passes_of(hr__plan *plan, int number_count) {
  return (hr_host_pass *)(void *)(plan->numbers + number_count);
}

/* The plan of a draft in a block of its size; NULL: there is no memory. */
static hr__plan *finish(const hr__draft *draft, const hr_kernel *kernel) {
  hr_host_pass passes[2];
  int pass_count = 0;
  hr__plan_set_passes(draft, kernel, passes, &pass_count);
  size_t bytes = sizeof(hr__plan) + (size_t)draft->number_count * sizeof(int64_t) + (size_t)pass_count * sizeof *passes;
  const char *name = kernel->name != NULL ? kernel->name : "kernel";
  const hr__form *form = intern(draft, name, pack_form);
  const hr__slots *slots = form != NULL ? intern(draft, name, pack_slots) : NULL;
  hr__plan *plan = slots != NULL ? hr_malloc(bytes) : NULL;
  if (plan == NULL) {
    hr_interned_release(form);
    hr_interned_release(slots);
    return NULL;
  }
  plan->plane = draft->plane;
  memcpy(plan->numbers, draft->numbers, (size_t)draft->number_count * sizeof *plan->numbers);
  memcpy(passes_of(plan, draft->number_count), passes, (size_t)pass_count * sizeof *passes);
  plan->base = (hr_host_kernel){.name = hr__form_name(form),
                                .pass_count = pass_count,
                                .passes = passes_of(plan, draft->number_count),
                                .workspace_bytes = draft->workspace_bytes,
                                .scratch_bytes = draft->scratch_bytes,
                                .bytes = kernel->bytes,
                                .footprint = bytes,
                                .interned = {[HR__INTERNED_FORM] = form, [HR__INTERNED_SLOTS] = slots},
                                .run = hr__plan_run,
                                .destroy = destroy};
  return plan;
}

static hr_status build(hr__draft *draft, const hr__slots *like, const hr_kernel *kernel) {
  builder b = {.draft = draft, .kernel = kernel, .scratch = draft->arena};
  draft->phase_count = kernel->phase_count < 1 ? 1 : kernel->phase_count;
  draft->times = kernel->is_repeated ? (uint8_t)kernel->scalar_count : 0;
  draft->section_count = 1 + 2 * draft->phase_count;
  if (!hr__plan_fits_form(kernel)) {
    return hr_status_make(HR_STATUS_UNIMPLEMENTED,
                          "interp: a kernel of %d instructions and %d accesses needs more than %d registers or strides",
                          kernel->instr_count, kernel->access_count, (int)HR__FORM_MAX);
  }
  hr__plan_geometry(draft, kernel);
  HR_RETURN_IF_ERROR(plan_steps(&b));
  return hr__plan_slots(draft, like, kernel);
}

enum { LIKE_BYTES_MAX = 1 << 20 };

/* Slots of a large plan would take too much memory for a small one. */
static const hr__slots *slots_like(const hr_host_kernel *like) {
  bool is = like != NULL && like->run == hr__plan_run && like->scratch_bytes <= LIKE_BYTES_MAX;
  return is ? hr__slots_of((const hr__plan *)like) : NULL;
}

hr_status HR_CPU_NAME(hr_interp_create_like)(const hr_kernel *kernel, const hr_host_kernel *last,
                                             hr_host_kernel **out_host_kernel) {
  if (kernel->is_repeated && kernel->scalar_count > UINT8_MAX) {
    return hr_status_make(HR_STATUS_UNIMPLEMENTED, "interp: a repeated kernel of %d scalars, at most %d",
                          kernel->scalar_count, UINT8_MAX);
  }
  if (kernel->rank < 0 || kernel->rank > HR_RANK_MAX || kernel->phase_count > HR__PHASES_MAX) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "interp: kernel of rank %d and %d phases, at most %d and %d",
                          kernel->rank, kernel->phase_count, (int)HR_RANK_MAX, (int)HR__PHASES_MAX);
  }
  if (hr__adam_fits(kernel)) {
    return hr__adam_create(kernel, out_host_kernel);
  }
  if (!kernel->is_repeated && hr__gather_fits(kernel)) {
    return hr__gather_create(kernel, out_host_kernel);
  }
  if (hr__scatter_fits(kernel)) {
    return hr__scatter_create(kernel, out_host_kernel);
  }
  hr_arena arena;
  hr_arena_init(&arena, 4 * HR_ARENA_CHUNK_MIN);
  hr__draft draft = {.arena = &arena};
  hr__plan *plan = NULL;
  hr_status status = build(&draft, slots_like(last), kernel);
  if (status == HR_OK) {
    plan = finish(&draft, kernel);
    status = plan != NULL ? HR_OK : out_of_memory(kernel);
  }
  hr_arena_fini(&arena);
  if (status == HR_OK) {
    *out_host_kernel = &plan->base;
  }
  return status;
}
