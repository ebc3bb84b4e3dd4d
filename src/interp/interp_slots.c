/* The places of registers: pointers into memory, lifetimes, and the layout of a thread's scratch.
 *
 * Two decisions depend on addresses known only at run time, because an output may alias an input (in-place use, memory
 * that the planner reuses):
 *   - a pointer load would see a store that is made before its last use: then it copies at its step;
 *   - an instruction that writes to memory for a later store would write before an earlier read: then it writes to a
 *     slot.
 *
 * Both are listed as conflicts, with their slots.
 *
 * Registers that are never alive together share slots. A register defined in another section than its last use stays
 * alive to the end of that section (sections repeat, block by block). A register defined once a run stays alive.
 */
#include <string.h>

#include "base/integer.h"
#include "interp/interp_plan.h"

enum { ALIGNMENT = 64 };

typedef struct slot {
  int64_t offset, bytes;
} slot;

typedef struct layout {
  hr__plan *plan;
  int64_t bytes; /* of scratch so far */
  slot *free;
  int free_count;
  int conflict_capacity;
} layout;

static int64_t reserve(layout *l, int64_t bytes) {
  int64_t offset = l->bytes;
  bytes = hr_round_up(bytes, ALIGNMENT);
  l->bytes += bytes % 4096 == 0 ? bytes + ALIGNMENT : bytes; /* avoids that equal registers share cache sets */
  return offset;
}

/* ---- lifetimes ---- */

static void use(hr__plan *plan, int reg, int position, int section) {
  hr__register *r = &plan->registers[reg];
  if (position > r->last) {
    r->last = position;
    r->last_section = section;
  }
}

static void find_lifetimes(hr__plan *plan) {
  for (int k = 0; k < plan->step_count; ++k) {
    const hr__step *step = &plan->steps[k];
    if (step->dst >= 0) {
      plan->registers[step->dst].def = k;
      plan->registers[step->dst].def_section = step->section;
      use(plan, step->dst, k, step->section);
    }
    for (int s = 0; s < step->arity; ++s) {
      use(plan, step->src[s], k, step->section);
    }
    const hr__map *map = step->map >= 0 ? &plan->maps[step->map] : NULL;
    for (int t = 0; map != NULL && t < map->term_count; ++t) {
      use(plan, map->terms[t].reg, k, step->section);
    }
  }
}

/* ---- registers in memory ---- */

static bool is_block_section(int section) {
  return section > 0 && section % 2 == 0;
}

/* True if the instruction that defines a register can write to this store's target. */
static bool can_write_through(const hr__plan *plan, const hr__step *store) {
  const hr__register *reg = &plan->registers[store->src[0]];
  const hr__map *map = &plan->maps[store->map];
  if (store->mode != HR_STORE_SET || reg->place != HR__PLACE_SLOT || reg->def < 0 ||
      reg->def_section != store->section || !is_block_section(store->section) || store->space == 0 ||
      (reg->vary & HR__PLANE) != store->space || plan->steps[reg->def].kind != HR__STEP_LOOP || map->term_count != 0 ||
      map->coords != 1 || (hr_dtype_is_narrow(map->dtype) && map->dtype != HR_DTYPE_BOOL)) {
    return false;
  }
  bool inner = map->inner.rank == 1 && map->inner.strides[0] == 1, outer = map->outer.rank == 1;
  return store->space == HR__INNER   ? inner
         : store->space == HR__OUTER ? outer && map->outer.strides[0] == 1
                                     : inner && outer;
}

static bool add_conflict(layout *l, int reg, int arg_a, int arg_b) {
  hr__plan *plan = l->plan;
  if (plan->conflict_count == l->conflict_capacity) {
    int capacity = 2 * l->conflict_capacity + 16;
    hr__conflict *grown = hr_arena_alloc(plan->arena, (size_t)capacity * sizeof *grown);
    if (grown == NULL) {
      return false;
    }
    if (plan->conflict_count > 0) {
      memcpy(grown, plan->conflicts, (size_t)plan->conflict_count * sizeof *grown);
    }
    plan->conflicts = grown;
    l->conflict_capacity = capacity;
  }
  plan->conflicts[plan->conflict_count++] = (hr__conflict){reg, arg_a, arg_b};
  return true;
}

/* The earliest step at which a store's memory changes. */
static int write_position(const hr__plan *plan, int store) {
  const hr__register *reg = &plan->registers[plan->steps[store].src[0]];
  bool through = reg->place == HR__PLACE_MEMORY && reg->map == plan->steps[store].map;
  return through ? reg->def : store;
}

static bool find_write_throughs(layout *l) {
  hr__plan *plan = l->plan;
  for (int k = 0; k < plan->step_count; ++k) {
    if (plan->steps[k].kind == HR__STEP_STORE && can_write_through(plan, &plan->steps[k])) {
      hr__register *reg = &plan->registers[plan->steps[k].src[0]];
      reg->place = HR__PLACE_MEMORY;
      reg->map = plan->steps[k].map;
    }
  }
  for (int k = 0; k < plan->step_count; ++k) {
    const hr__step *store = &plan->steps[k];
    if (store->kind != HR__STEP_STORE) {
      continue;
    }
    int arg = plan->maps[store->map].arg, position = write_position(plan, k);
    int reg = store->src[0];
    for (int j = 0; position < k && j < plan->step_count;
         ++j) { /* steps between the early write and the store, and later reads */
      const hr__step *other = &plan->steps[j];
      bool reads = j > position && j < k && (other->kind == HR__STEP_LOAD || other->kind == HR__STEP_POINT);
      bool writes = other->kind == HR__STEP_STORE && j != k && write_position(plan, j) <= plan->registers[reg].last &&
                    j >= position;
      if ((reads || writes) && !add_conflict(l, reg, arg, plan->maps[other->map].arg)) {
        return false;
      }
    }
    for (int j = 0; j < k; ++j) { /* pointers that are read after the write */
      const hr__step *other = &plan->steps[j];
      if (other->kind == HR__STEP_POINT && plan->registers[other->dst].last > position &&
          !add_conflict(l, other->dst, plan->maps[other->map].arg, arg)) {
        return false;
      }
    }
  }
  return true;
}

/* ---- places ---- */

static hr__room find_room(int64_t outer, int64_t inner, const hr__room *other) {
  return (hr__room){hr_max(outer, other->outer), hr_max(inner, other->inner), hr_max(outer * inner, other->area)};
}

static int64_t elements(const hr__plan *plan, unsigned vary, bool whole_tile) {
  const hr__room *room = whole_tile ? &plan->tile_room : &plan->block_room;
  unsigned sides = vary & HR__PLANE;
  return sides == HR__PLANE ? room->area : sides == HR__OUTER ? room->outer : sides == HR__INNER ? room->inner : 1;
}

static bool crosses(const hr__register *reg) {
  return reg->last_section != reg->def_section;
}

static int64_t take_slot(layout *l, int64_t bytes) {
  for (int k = l->free_count - 1; k >= 0; --k) {
    if (l->free[k].bytes == bytes) {
      int64_t offset = l->free[k].offset;
      l->free[k] = l->free[--l->free_count];
      return offset;
    }
  }
  return reserve(l, bytes);
}

static bool has_conflict(const hr__plan *plan, int reg) {
  for (int k = 0; k < plan->conflict_count; ++k) {
    if (plan->conflicts[k].reg == reg) {
      return true;
    }
  }
  return false;
}

static void place_register(layout *l, int index) {
  hr__plan *plan = l->plan;
  hr__register *reg = &plan->registers[index];
  if (reg->offset >= 0 || reg->place == HR__PLACE_SCALAR ||
      (reg->place == HR__PLACE_MEMORY && !has_conflict(plan, index))) {
    return;
  }
  bool whole_tile =
      plan->is_walked && is_block_section(reg->def_section) && reg->often == HR__EACH_BLOCK && crosses(reg);
  int64_t bytes = hr_round_up(elements(plan, reg->vary, whole_tile) * reg->size, ALIGNMENT);
  if (whole_tile) {
    reg->offset = reserve(l, bytes);
    reg->is_tile = true;
  } else {
    reg->offset = take_slot(l, bytes);
  }
}

/* Frees the slot if the register's last step has run. */
static void drop_register(layout *l, int index, int position) {
  hr__plan *plan = l->plan;
  hr__register *reg = &plan->registers[index];
  if (reg->offset < 0 || reg->last != position || reg->def_section == 0 || reg->place != HR__PLACE_SLOT ||
      crosses(reg)) {
    return;
  }
  reg->last = -1; /* once */
  int64_t bytes = hr_round_up(elements(plan, reg->vary, false) * reg->size, ALIGNMENT);
  l->free[l->free_count++] = (slot){reg->offset, bytes};
}

static void place_registers(layout *l) {
  hr__plan *plan = l->plan;
  for (int k = 0; k < plan->step_count; ++k) {
    const hr__step *step = &plan->steps[k];
    /* A loop may overwrite a matrix at its last read. */
    for (int s = 0; step->kind == HR__STEP_LOOP && s < step->arity; ++s) {
      const hr__register *src = &plan->registers[step->src[s]];
      if (step->see[s] == HR__SEE_MATRIX && src->size == plan->registers[step->dst].size) {
        drop_register(l, step->src[s], k);
      }
    }
    if (step->dst >= 0) {
      place_register(l, step->dst);
    }
    for (int s = 0; s < step->arity; ++s) {
      drop_register(l, step->src[s], k);
    }
    const hr__map *map = step->map >= 0 ? &plan->maps[step->map] : NULL;
    for (int t = 0; map != NULL && t < map->term_count; ++t) {
      drop_register(l, map->terms[t].reg, k);
    }
    if (step->dst >= 0) {
      drop_register(l, step->dst, k);
    }
  }
}

/* Registers whose address depends on the block. */
static bool find_points(layout *l) {
  hr__plan *plan = l->plan;
  plan->points = HR_ARENA_ARRAY(plan->arena, int, (size_t)plan->register_count);
  if (plan->points == NULL) {
    return false;
  }
  for (int r = 0; r < plan->register_count; ++r) {
    const hr__register *reg = &plan->registers[r];
    if ((reg->place == HR__PLACE_MEMORY && is_block_section(reg->def_section)) || reg->is_tile) {
      plan->points[plan->point_count++] = r;
    }
  }
  return true;
}

/* Pointers need no step for each block, unless they may have to copy. */
static void drop_point_steps(hr__plan *plan) {
  int n = 0, section = 0;
  int *begin = plan->section_begin;
  for (int k = 0; k < plan->step_count; ++k) {
    while (section < plan->section_count && begin[section] <= k) {
      begin[section++] = n;
    }
    const hr__step *step = &plan->steps[k];
    bool idle = step->kind == HR__STEP_POINT && is_block_section(step->section) && !has_conflict(plan, step->dst);
    if (!idle) {
      plan->steps[n++] = *step;
    }
  }
  while (section <= plan->section_count) {
    begin[section++] = n;
  }
  plan->step_count = n;
}

static void place_reductions(layout *l, int64_t *out_workspace) {
  hr__plan *plan = l->plan;
  int64_t width = plan->walk == HR__WALK_INNER ? HR_REDUCE_LANES : plan->tile_room.inner;
  int64_t tiles = plan->batch_count * plan->tiles_outer * plan->tiles_inner;
  int64_t partial = tiles * plan->chunk_count * (plan->walk == HR__WALK_INNER ? 1 : plan->tile_inner);
  for (int k = 0; k < plan->reduction_count; ++k) {
    hr__reduction *reduction = &plan->reductions[k];
    if (!plan->is_walked && plan->walk == HR__WALK_OUTER && reduction->arity == 1) {
      continue;
    }
    bool is_arg = reduction->arity == 2;
    reduction->state = reserve(l, (is_arg ? 1 : HR__LEVELS) * width * reduction->key_size);
    reduction->state_indices = is_arg ? reserve(l, width * (int64_t)sizeof(int64_t)) : 0;
    if (plan->is_split) {
      reduction->partials = *out_workspace;
      *out_workspace += hr_round_up(partial * reduction->key_size, ALIGNMENT);
      reduction->partial_indices = *out_workspace;
      *out_workspace += is_arg ? hr_round_up(partial * (int64_t)sizeof(int64_t), ALIGNMENT) : 0;
    }
  }
}

hr_status hr__plan_slots(hr__plan *plan, const hr__plan *like, const hr_kernel *kernel) {
  const hr__room none = {0};
  layout l = {.plan = plan};
  plan->block_room = find_room(plan->block_outer, plan->block_inner, like != NULL ? &like->block_room : &none);
  plan->tile_room = find_room(plan->tile_outer, plan->tile_inner, like != NULL ? &like->tile_room : &none);
  int64_t workspace = 0;
  l.free = HR_ARENA_ARRAY(plan->arena, slot, (size_t)plan->register_count + 1);
  find_lifetimes(plan);
  if (l.free == NULL || !find_write_throughs(&l)) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "interp: no memory for %d registers", plan->register_count);
  }
  plan->at_pointers = reserve(&l, plan->register_count * (int64_t)sizeof(char *));
  plan->at_pitches = reserve(&l, plan->register_count * (int64_t)sizeof(int64_t));
  plan->at_slotted = reserve(&l, plan->register_count);
  plan->at_bases = reserve(&l, plan->coord_count * (int64_t)sizeof(int64_t));
  for (int r = 0; r < plan->register_count; ++r) {
    if (plan->registers[r].place == HR__PLACE_SCALAR) {
      plan->registers[r].offset = l.bytes;
      l.bytes += (int64_t)sizeof(hr_c128);
    }
  }
  l.bytes = hr_round_up(l.bytes, ALIGNMENT);
  bool has_terms = false;
  for (int m = 0; m < plan->map_count; ++m) {
    has_terms |= plan->maps[m].term_count > 0;
  }
  for (int k = 0; k < plan->step_count; ++k) {
    has_terms |= plan->steps[k].kind == HR__STEP_STORE && plan->steps[k].mode != HR_STORE_SET;
  }
  if (has_terms) {
    plan->at_offsets = reserve(&l, plan->block_room.area * (int64_t)sizeof(int64_t));
    plan->at_row_offsets = reserve(&l, plan->block_room.outer * (int64_t)sizeof(int64_t));
    plan->at_temp = reserve(&l, plan->block_room.inner * (int64_t)sizeof(hr_c128));
  }
  place_reductions(&l, &workspace);
  place_registers(&l);
  if (!find_points(&l)) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "interp: no memory for %d registers", plan->register_count);
  }
  drop_point_steps(plan);
  int64_t limit = (int64_t)1 << 28;
  if (l.bytes > limit) {
    return hr_status_make(HR_STATUS_UNIMPLEMENTED,
                          "interp: kernel %s keeps %lld bytes between phases for each thread, at most %lld",
                          kernel->name != NULL ? kernel->name : "", (long long)l.bytes, (long long)limit);
  }
  plan->base.scratch_bytes = (size_t)l.bytes;
  plan->base.workspace_bytes = (size_t)workspace;
  return HR_OK;
}
