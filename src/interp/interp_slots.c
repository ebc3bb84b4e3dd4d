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

/* Of a register: positions of steps, or -1. */
typedef struct life {
  int def, last;
  uint8_t def_section, last_section;
} life;

typedef struct layout {
  hr__draft *draft;
  int64_t bytes; /* of scratch so far */
  life *lives;   /* of each register */
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

/* Beyond the limit of scratch the plan is refused. */
static void set_place(layout *l, int reg, int64_t place) {
  l->draft->places[reg] = (int)hr_min(place, INT32_MAX);
}

/* ---- lifetimes ---- */

static void use(life *lives, int reg, int position, int section) {
  if (position > lives[reg].last) {
    lives[reg].last = position;
    lives[reg].last_section = (uint8_t)section;
  }
}

/* The map of a step that has one, else NULL. */
static const hr__map *map_of(const hr__draft *draft, const hr__step *step) {
  bool has = step->kind == HR__STEP_LOAD || step->kind == HR__STEP_POINT || step->kind == HR__STEP_INDEX ||
             step->kind == HR__STEP_STORE;
  return has ? &draft->maps[step->map] : NULL;
}

static void find_lifetimes(const hr__draft *draft, life *lives) {
  for (int r = 0; r < draft->register_count; ++r) {
    lives[r] = (life){.def = -1, .last = -1};
  }
  for (int k = 0; k < draft->step_count; ++k) {
    const hr__step *step = &draft->steps[k];
    if (step->dst >= 0) {
      lives[step->dst].def = k;
      lives[step->dst].def_section = step->section;
      use(lives, step->dst, k, step->section);
    }
    for (int s = 0; s < step->arity; ++s) {
      use(lives, step->src[s], k, step->section);
    }
    const hr__map *map = map_of(draft, step);
    for (int t = 0; map != NULL && t < map->term_count; ++t) {
      use(lives, draft->terms[map->term_first + t], k, step->section);
    }
  }
}

/* ---- registers in memory ---- */

static bool is_block_section(int section) {
  return section > 0 && section % 2 == 0;
}

/* True if the instruction that defines a register can write to this store's target. */
static bool can_write_through(const layout *l, const hr__step *store) {
  const hr__draft *draft = l->draft;
  const hr__register *reg = &draft->registers[store->src[0]];
  const life *own = &l->lives[store->src[0]];
  const hr__map *map = &draft->maps[store->map];
  if (store->mode != HR_STORE_SET || reg->place != HR__PLACE_SLOT || own->def < 0 ||
      own->def_section != store->section || !is_block_section(store->section) || store->space == 0 ||
      (reg->vary & HR__PLANE) != store->space || draft->steps[own->def].kind != HR__STEP_LOOP || map->term_count != 0 ||
      map->coords != 1 || (hr_dtype_is_narrow(map->dtype) && map->dtype != HR_DTYPE_BOOL)) {
    return false;
  }
  hr__axes o = hr__outer_axes(map, draft->numbers), i = hr__inner_axes(map, draft->numbers);
  bool inner = i.rank == 1 && i.strides[0] == 1, outer = o.rank == 1;
  return store->space == HR__INNER ? inner : store->space == HR__OUTER ? outer && o.strides[0] == 1 : inner && outer;
}

static bool add_conflict(layout *l, int reg, int arg_a, int arg_b) {
  hr__draft *draft = l->draft;
  if (draft->conflict_count == l->conflict_capacity) {
    int capacity = 2 * l->conflict_capacity + 16;
    hr__conflict *grown = hr_arena_alloc(draft->arena, (size_t)capacity * sizeof *grown);
    if (grown == NULL) {
      return false;
    }
    if (draft->conflict_count > 0) {
      memcpy(grown, draft->conflicts, (size_t)draft->conflict_count * sizeof *grown);
    }
    draft->conflicts = grown;
    l->conflict_capacity = capacity;
  }
  draft->conflicts[draft->conflict_count++] = (hr__conflict){(int16_t)reg, (int16_t)arg_a, (int16_t)arg_b};
  return true;
}

/* The earliest step at which a store's memory changes. */
static int write_position(const layout *l, int store) {
  const hr__step *step = &l->draft->steps[store];
  const hr__register *reg = &l->draft->registers[step->src[0]];
  bool through = reg->place == HR__PLACE_MEMORY && reg->map == step->map;
  return through ? l->lives[step->src[0]].def : store;
}

static bool find_write_throughs(layout *l) {
  hr__draft *draft = l->draft;
  for (int k = 0; k < draft->step_count; ++k) {
    if (draft->steps[k].kind == HR__STEP_STORE && can_write_through(l, &draft->steps[k])) {
      hr__register *reg = &draft->registers[draft->steps[k].src[0]];
      reg->place = HR__PLACE_MEMORY;
      reg->map = draft->steps[k].map;
    }
  }
  for (int k = 0; k < draft->step_count; ++k) {
    const hr__step *store = &draft->steps[k];
    if (store->kind != HR__STEP_STORE) {
      continue;
    }
    int arg = draft->maps[store->map].arg, position = write_position(l, k);
    int reg = store->src[0];
    for (int j = 0; position < k && j < draft->step_count;
         ++j) { /* steps between the early write and the store, and later reads */
      const hr__step *other = &draft->steps[j];
      bool reads = j > position && j < k && (other->kind == HR__STEP_LOAD || other->kind == HR__STEP_POINT);
      bool writes =
          other->kind == HR__STEP_STORE && j != k && write_position(l, j) <= l->lives[reg].last && j >= position;
      if ((reads || writes) && !add_conflict(l, reg, arg, draft->maps[other->map].arg)) {
        return false;
      }
    }
    for (int j = 0; j < k; ++j) { /* pointers that are read after the write */
      const hr__step *other = &draft->steps[j];
      if (other->kind == HR__STEP_POINT && l->lives[other->dst].last > position &&
          !add_conflict(l, other->dst, draft->maps[other->map].arg, arg)) {
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

static int64_t elements(const hr__draft *draft, unsigned vary, bool whole_tile) {
  const hr__room *room = whole_tile ? &draft->slots.tile_room : &draft->slots.block_room;
  unsigned sides = vary & HR__PLANE;
  return sides == HR__PLANE ? room->area : sides == HR__OUTER ? room->outer : sides == HR__INNER ? room->inner : 1;
}

static bool crosses(const life *own) {
  return own->last_section != own->def_section;
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

static bool has_conflict(const hr__draft *draft, int reg) {
  for (int k = 0; k < draft->conflict_count; ++k) {
    if (draft->conflicts[k].reg == reg) {
      return true;
    }
  }
  return false;
}

static void place_register(layout *l, int index) {
  hr__draft *draft = l->draft;
  hr__register *reg = &draft->registers[index];
  const life *own = &l->lives[index];
  if (draft->places[index] >= 0 || reg->place == HR__PLACE_SCALAR ||
      (reg->place == HR__PLACE_MEMORY && !has_conflict(draft, index))) {
    return;
  }
  bool whole_tile =
      draft->is_walked && is_block_section(own->def_section) && reg->often == HR__EACH_BLOCK && crosses(own);
  int64_t bytes = hr_round_up(elements(draft, reg->vary, whole_tile) * hr__register_size(reg), ALIGNMENT);
  reg->is_tile = whole_tile;
  set_place(l, index, whole_tile ? reserve(l, bytes) : take_slot(l, bytes));
}

/* Frees the slot if the register's last step has run. */
static void drop_register(layout *l, int index, int position) {
  const hr__draft *draft = l->draft;
  const hr__register *reg = &draft->registers[index];
  life *own = &l->lives[index];
  if (draft->places[index] < 0 || own->last != position || own->def_section == 0 || reg->place != HR__PLACE_SLOT ||
      crosses(own)) {
    return;
  }
  own->last = -1; /* once */
  int64_t bytes = hr_round_up(elements(draft, reg->vary, false) * hr__register_size(reg), ALIGNMENT);
  l->free[l->free_count++] = (slot){draft->places[index], bytes};
}

static void place_registers(layout *l) {
  hr__draft *draft = l->draft;
  for (int k = 0; k < draft->step_count; ++k) {
    const hr__step *step = &draft->steps[k];
    /* A loop may overwrite a matrix at its last read. */
    for (int s = 0; step->kind == HR__STEP_LOOP && s < step->arity; ++s) {
      const hr__register *src = &draft->registers[step->src[s]];
      if (hr__step_see(step, s) == HR__SEE_MATRIX && src->size_shift == draft->registers[step->dst].size_shift) {
        drop_register(l, step->src[s], k);
      }
    }
    if (step->dst >= 0) {
      place_register(l, step->dst);
    }
    for (int s = 0; s < step->arity; ++s) {
      drop_register(l, step->src[s], k);
    }
    const hr__map *map = map_of(draft, step);
    for (int t = 0; map != NULL && t < map->term_count; ++t) {
      drop_register(l, draft->terms[map->term_first + t], k);
    }
    if (step->dst >= 0) {
      drop_register(l, step->dst, k);
    }
  }
}

/* Registers whose address depends on the block. */
static bool find_points(layout *l) {
  hr__draft *draft = l->draft;
  draft->points = HR_ARENA_ARRAY(draft->arena, int16_t, (size_t)draft->register_count);
  if (draft->points == NULL) {
    return false;
  }
  for (int r = 0; r < draft->register_count; ++r) {
    const hr__register *reg = &draft->registers[r];
    if ((reg->place == HR__PLACE_MEMORY && is_block_section(l->lives[r].def_section)) || reg->is_tile) {
      draft->points[draft->point_count++] = (int16_t)r;
    }
  }
  return true;
}

/* Pointers need no step for each block, unless they may have to copy. */
static void drop_point_steps(hr__draft *draft) {
  int n = 0, section = 0;
  int16_t *begin = draft->section_begin;
  for (int k = 0; k < draft->step_count; ++k) {
    while (section < draft->section_count && begin[section] <= k) {
      begin[section++] = (int16_t)n;
    }
    const hr__step *step = &draft->steps[k];
    bool idle = step->kind == HR__STEP_POINT && is_block_section(step->section) && !has_conflict(draft, step->dst);
    if (!idle) {
      draft->steps[n++] = *step;
    }
  }
  while (section <= draft->section_count) {
    begin[section++] = (int16_t)n;
  }
  draft->step_count = n;
}

int64_t hr__plan_partials(const hr__draft *draft) {
  int64_t tiles = draft->batch_count * draft->plane.tiles_outer * draft->plane.tiles_inner;
  int64_t width = draft->walk == HR__WALK_INNER ? 1 : draft->plane.tile_inner;
  return draft->is_split ? tiles * draft->chunk_count * width : 0;
}

static void place_reductions(layout *l, int64_t *out_workspace) {
  const hr__draft *draft = l->draft;
  int64_t width = draft->walk == HR__WALK_INNER ? HR_REDUCE_LANES : draft->slots.tile_room.inner;
  int64_t partial = draft->slots.partial_room;
  for (int k = 0; k < draft->reduction_count; ++k) {
    const hr__reduction *reduction = &draft->reductions[k];
    hr__state *state = &draft->states[k];
    if (!draft->is_walked && draft->walk == HR__WALK_OUTER && reduction->arity == 1) {
      continue;
    }
    bool is_arg = reduction->arity == 2;
    state->levels = reserve(l, (is_arg ? 1 : HR__LEVELS) * width * reduction->key_size);
    state->indices = is_arg ? reserve(l, width * (int64_t)sizeof(int64_t)) : 0;
    if (draft->is_split) {
      state->partials = *out_workspace;
      *out_workspace += hr_round_up(partial * reduction->key_size, ALIGNMENT);
      state->partial_indices = *out_workspace;
      *out_workspace += is_arg ? hr_round_up(partial * (int64_t)sizeof(int64_t), ALIGNMENT) : 0;
    }
  }
}

/* A frame's lists, and scalars. */
static void place_lists(layout *l) {
  hr__draft *draft = l->draft;
  hr__slots *slots = &draft->slots;
  int64_t registers = draft->register_count;
  slots->pointers_at = (int)reserve(l, registers * (int64_t)sizeof(char *));
  slots->pitches_at = (int)reserve(l, registers * (int64_t)sizeof(int64_t));
  slots->slotted_at = (int)reserve(l, registers);
  slots->bases_at = (int)reserve(l, draft->coord_count * (int64_t)sizeof(int64_t));
  for (int r = 0; r < draft->register_count; ++r) {
    draft->places[r] = -1;
    if (draft->registers[r].place == HR__PLACE_SCALAR) {
      set_place(l, r, l->bytes);
      l->bytes += (int64_t)sizeof(hr_c128);
    }
  }
  l->bytes = hr_round_up(l->bytes, ALIGNMENT);
}

/* Room for positions, if some are indexed. */
static void place_offsets(layout *l) {
  const hr__draft *draft = l->draft;
  hr__slots *slots = &l->draft->slots;
  bool has_terms = false;
  for (int m = 0; m < draft->map_count; ++m) {
    has_terms |= draft->maps[m].term_count > 0;
  }
  for (int k = 0; k < draft->step_count; ++k) {
    has_terms |= draft->steps[k].kind == HR__STEP_STORE && draft->steps[k].mode != HR_STORE_SET;
  }
  if (has_terms) {
    slots->offsets_at = (int)reserve(l, slots->block_room.area * (int64_t)sizeof(int64_t));
    slots->row_offsets_at = (int)reserve(l, slots->block_room.outer * (int64_t)sizeof(int64_t));
    slots->temp_at = (int)reserve(l, slots->block_room.inner * (int64_t)sizeof(hr_c128));
  }
}

static bool make_lists(layout *l) {
  hr__draft *draft = l->draft;
  size_t registers = (size_t)draft->register_count;
  l->free = HR_ARENA_ARRAY(draft->arena, slot, registers + 1);
  l->lives = HR_ARENA_ARRAY(draft->arena, life, registers + 1);
  draft->places = HR_ARENA_ARRAY(draft->arena, int, registers + 1);
  draft->states = HR_ARENA_ARRAY(draft->arena, hr__state, (size_t)draft->reduction_count + 1);
  return l->free != NULL && l->lives != NULL && draft->places != NULL && draft->states != NULL;
}

static void find_rooms(hr__draft *draft, const hr__slots *like) {
  const hr__slots none = {.block_room = {0}};
  const hr__plane *plane = &draft->plane;
  like = like != NULL ? like : &none;
  draft->slots = (hr__slots){.state_count = draft->reduction_count};
  draft->slots.block_room = find_room(plane->block_outer, plane->block_inner, &like->block_room);
  draft->slots.tile_room = find_room(plane->tile_outer, plane->tile_inner, &like->tile_room);
  draft->slots.partial_room = draft->is_split ? hr_max(hr__plan_partials(draft), like->partial_room) : 0;
}

hr_status hr__plan_slots(hr__draft *draft, const hr__slots *like, const hr_kernel *kernel) {
  layout l = {.draft = draft};
  int64_t workspace = 0;
  find_rooms(draft, like);
  bool ok = make_lists(&l);
  if (ok) {
    find_lifetimes(draft, l.lives);
    ok = find_write_throughs(&l);
  }
  if (ok) {
    place_lists(&l);
    place_offsets(&l);
    place_reductions(&l, &workspace);
    place_registers(&l);
    ok = find_points(&l);
  }
  if (!ok) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "interp: no memory for %d registers", draft->register_count);
  }
  drop_point_steps(draft);
  int64_t limit = (int64_t)1 << 28;
  if (l.bytes > limit) {
    return hr_status_make(HR_STATUS_UNIMPLEMENTED,
                          "interp: kernel %s keeps %lld bytes between phases for each thread, at most %lld",
                          kernel->name != NULL ? kernel->name : "", (long long)l.bytes, (long long)limit);
  }
  draft->scratch_bytes = (size_t)l.bytes;
  draft->workspace_bytes = (size_t)workspace;
  return HR_OK;
}
