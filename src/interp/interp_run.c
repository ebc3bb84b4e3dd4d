/* Runs a plan: tiles, phases, blocks, steps, reductions.
 *
 *   run       scalars, conflicts, steps of section 0
 *     tile      coordinates of the batch
 *       phase     steps of the tile; for each block: pointers, steps; then the phase's reductions are finished
 *
 * Reductions keep their order (kernel.h) for any blocks. A row in one block is reduced at once. A row in several is
 * reduced block after block into accumulators that are folded at every multiple of the plan's chunk. Results of chunks
 * are combined level by level. Split kernels stop at chunks in pass 0 and leave their results in the workspace; pass 1
 * combines them in the same levels.
 */
#include <string.h>

#include "base/integer.h"
#include "interp/interp_plan.h"

/* ---- addresses ---- */

/* Coordinates of all maps for the current batch. */
static void enter_batch(hr__frame *f, int64_t batch) {
  int rank = f->form->batch_rank, map_count = f->form->map_count;
  int64_t place[HR_RANK_MAX];
  for (int d = rank - 1; d >= 0; --d) {
    int64_t dim = f->numbers[d];
    place[d] = d == 0 ? batch : batch % dim;
    batch = d == 0 ? 0 : batch / dim;
  }
  for (int m = 0; m < map_count; ++m) {
    const hr__map *map = &f->maps[m];
    const int64_t *offset = f->numbers + map->offset, *strides = offset + map->coords;
    for (int c = 0; c < map->coords; ++c) {
      int64_t at = offset[c];
      for (int d = 0; d < rank; ++d) {
        at += place[d] * strides[c * rank + d];
      }
      f->base[map->base + c] = at;
    }
  }
}

/* Points a MEMORY register at the current rectangle. */
static void point_at_memory(hr__frame *f, int index) {
  const hr__register *reg = &f->registers[index];
  const hr__map *map = &f->maps[reg->map];
  int64_t outer = f->numbers[map->outer + map->outer_rank - 1], inner = f->numbers[map->inner + map->inner_rank - 1];
  int64_t at = f->base[map->base] + ((reg->vary & HR__OUTER) != 0 ? f->o0 * outer : 0) +
               ((reg->vary & HR__INNER) != 0 ? f->i0 * inner : 0);
  f->pointer[index] = (char *)f->call->args[map->arg] + at * map->size;
  f->pitch[index] = outer;
}

/* The current block of a register that holds a whole tile; `tile_o`, `tile_i`: the tile's start. */
static void point_at_tile(hr__frame *f, int index, int64_t tile_o, int64_t tile_i) {
  const hr__register *reg = &f->registers[index];
  int64_t o = f->o0 - tile_o, i = f->i0 - tile_i;
  int64_t at = (reg->vary & HR__PLANE) == HR__PLANE ? o * f->in : 0; /* rows of a tile that is walked along outer */
  at = (reg->vary & HR__PLANE) == HR__OUTER ? o : at;
  at = f->form->walk == HR__WALK_INNER ? i : at;
  f->pointer[index] = f->scratch + hr__slot_places(hr__slots_of(f->plan))[index] + at * hr__register_size(reg);
  f->pitch[index] = HR__DENSE;
}

static void enter_block(hr__frame *f, int64_t tile_o, int64_t tile_i) {
  const int16_t *points = hr__form_points(f->form);
  for (int k = 0; k < f->form->point_count; ++k) {
    int index = points[k];
    const hr__register *reg = &f->registers[index];
    if (reg->place == HR__PLACE_MEMORY && !f->is_slotted[index]) {
      point_at_memory(f, index);
    } else if (reg->is_tile) {
      point_at_tile(f, index, tile_o, tile_i);
    }
  }
}

/* ---- steps ---- */

static void run_loop(hr__frame *f, const hr__step *step) {
  hr__loop loop;
  loop.outer = step->space == HR__PLANE ? f->on : 1;
  loop.inner = (step->space & HR__INNER) != 0 ? f->in : (step->space & HR__OUTER) != 0 ? f->on : 1;
  bool is_plane = step->space == HR__PLANE;
  int64_t pitch = f->pitch[step->dst];
  loop.dst = f->pointer[step->dst];
  loop.dst_pitch = pitch == HR__DENSE ? loop.inner : pitch;
  bool is_flat = is_plane && step->can_flatten && loop.dst_pitch == loop.inner;
  for (int s = 0; s < step->arity; ++s) {
    int src = step->src[s];
    loop.src[s] = f->pointer[src];
    switch (hr__step_see(step, s)) {
      case HR__SEE_MATRIX:
        pitch = f->pitch[src];
        loop.pitch[s] = pitch == HR__DENSE ? loop.inner : pitch;
        is_flat &= loop.pitch[s] == loop.inner;
        break;
      case HR__SEE_COLUMN:
        loop.pitch[s] = 1;
        break;
      default:
        loop.pitch[s] = 0;
        break;
    }
  }
  if (is_flat) {
    loop.inner *= loop.outer;
    loop.outer = 1;
  }
  if (step->arity == 1) {
    loop.src[1] = step->spread_row ? loop.src[0] : NULL;
  }
  hr__loop_at(step->loop)(&loop);
}

static void reduce_block(hr__frame *f, const hr__step *step);
static void argreduce_block(hr__frame *f, const hr__step *step);

static void run_step(hr__frame *f, const hr__step *step) {
  switch (step->kind) {
    case HR__STEP_LOAD:
      hr__walk_load(f, step);
      break;
    case HR__STEP_POINT:
      if (f->is_slotted[step->dst]) {
        hr__walk_load(f, step);
      } else if (step->section == 0 || step->section % 2 == 1) {
        point_at_memory(f, step->dst);
      }
      break;
    case HR__STEP_INDEX:
      hr__walk_index(f, step);
      break;
    case HR__STEP_LOOP:
      run_loop(f, step);
      break;
    case HR__STEP_REDUCE:
      reduce_block(f, step);
      break;
    case HR__STEP_ARGREDUCE:
      argreduce_block(f, step);
      break;
    case HR__STEP_STORE: {
      const hr__register *reg = &f->registers[step->src[0]];
      bool is_there = reg->place == HR__PLACE_MEMORY && reg->map == step->map && !f->is_slotted[step->src[0]];
      if (!is_there) {
        hr__walk_store(f, step);
      }
      break;
    }
  }
}

static void run_section(hr__frame *f, int section) {
  const hr__step *steps = hr__form_steps(f->form);
  const int16_t *begin = hr__form_sections(f->form) + section;
  for (const hr__step *step = steps + begin[0], *end = steps + begin[1]; step < end; ++step) {
    run_step(f, step);
  }
}

/* ---- reductions ---- */

/* The address of a source's elements in the rectangle, and the distance of its rows. */
static const char *source_of(const hr__frame *f, const hr__step *step, int s, int64_t *out_pitch) {
  int src = step->src[s];
  unsigned vary = f->registers[src].vary & HR__PLANE;
  int64_t pitch = f->pitch[src] == HR__DENSE ? f->in : f->pitch[src];
  *out_pitch = vary == HR__PLANE ? pitch : vary == HR__OUTER ? 1 : 0;
  return f->pointer[src];
}

static const hr__state *places_of(const hr__frame *f, const hr__reduction *r) {
  return hr__slot_states(hr__slots_of(f->plan)) + (r - hr__form_reductions(f->form));
}

static char *state_of(const hr__frame *f, const hr__reduction *r, int level) {
  int64_t width = f->form->walk == HR__WALK_INNER ? HR_REDUCE_LANES : f->plan->plane.tile_inner;
  return f->scratch + places_of(f, r)->levels + level * width * r->key_size;
}

/* The number of values of one row or column tile. */
static int64_t state_width(const hr__frame *f) {
  return f->form->walk == HR__WALK_INNER ? HR_REDUCE_LANES : f->in;
}

/* Adds result number `index` of `count` to a level; the last one of a chunk folds the level and moves up. A single
 * result is the row's. */
static void push(hr__frame *f, const hr__reduction *r, int level, int64_t index, int64_t count, const char *value) {
  char *dst = f->pointer[r->dst];
  char folded[sizeof(hr_c128)];
  bool is_rows = f->form->walk == HR__WALK_INNER;
  if (count == 1) {
    memcpy(dst, value, (size_t)(is_rows ? 1 : f->in) * (size_t)r->key_size);
    return;
  }
  char *state = state_of(f, r, level);
  if (index % f->form->chunk == 0) {
    r->loops->init(state, state_width(f));
  }
  if (is_rows) {
    r->loops->columns(state + index % HR_REDUCE_LANES * r->key_size, value, 1, 1, 0);
  } else {
    r->loops->columns(state, value, 1, f->in, 0);
  }
  if ((index + 1) % f->form->chunk == 0 || index + 1 == count) {
    if (is_rows) {
      r->loops->tree(folded, state);
    }
    push(f, r, level + 1, index / f->form->chunk, hr_divide_up(count, f->form->chunk), is_rows ? folded : state);
  }
}

/* The workspace of a chunk's results of the current tile. */
static char *partial_of(const hr__frame *f, const hr__reduction *r, int64_t chunk, int part) {
  const hr__state *places = places_of(f, r);
  int64_t width = f->form->walk == HR__WALK_INNER ? 1 : f->plan->plane.tile_inner;
  int64_t at = (f->tile * f->chunk_count + chunk) * width;
  return (char *)f->call->workspace +
         (part == 0 ? places->partials + at * r->key_size : places->partial_indices + at * (int64_t)sizeof(int64_t));
}

/* Reduces one block of a row or column that has several; blocks come in order and end at chunks. */
static void reduce_walked(hr__frame *f, const hr__step *step, const hr__reduction *r) {
  const hr__form *form = f->form;
  int64_t pitch;
  const char *src = source_of(f, step, 0, &pitch);
  bool is_rows = form->walk == HR__WALK_INNER;
  int64_t begin = is_rows ? f->i0 : f->o0, end = begin + (is_rows ? f->in : f->on);
  char *state = state_of(f, r, 0);
  if (begin % form->chunk == 0) {
    r->loops->init(state, state_width(f));
  }
  if (is_rows) {
    r->loops->lanes(state, src, f->in);
  } else {
    r->loops->columns(state, src, f->on, f->in, pitch);
  }
  if (end % form->chunk != 0 && end != f->row_elements) {
    return;
  }
  char folded[sizeof(hr_c128)];
  if (is_rows) {
    r->loops->tree(folded, state);
  }
  const char *value = is_rows ? folded : state;
  int64_t chunk = (end - 1) / form->chunk;
  if (form->is_split) {
    memcpy(partial_of(f, r, chunk, 0), value, (size_t)(is_rows ? 1 : f->in) * (size_t)r->key_size);
  } else {
    push(f, r, 1, chunk, f->chunk_count, value);
  }
}

static void reduce_block(hr__frame *f, const hr__step *step) {
  const hr__form *form = f->form;
  const hr__reduction *r = &hr__form_reductions(form)[step->reduce];
  if (form->is_walked) {
    reduce_walked(f, step, r);
    return;
  }
  int64_t pitch;
  const char *src = source_of(f, step, 0, &pitch);
  char *dst = f->pointer[r->dst];
  if (form->walk == HR__WALK_INNER) {
    r->loops->rows(dst, src, f->on, f->in, pitch);
  } else {
    r->loops->init(dst, f->in);
    r->loops->columns(dst, src, f->on, f->in, pitch);
  }
}

static void forget_best(int64_t *indices, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    indices[i] = INT64_MAX;
  }
}

static void argreduce_block(hr__frame *f, const hr__step *step) {
  const hr__form *form = f->form;
  const hr__reduction *r = &hr__form_reductions(form)[step->reduce];
  int64_t key_pitch, index_pitch;
  const char *keys = source_of(f, step, 0, &key_pitch);
  const int64_t *indices = (const int64_t *)(const void *)source_of(f, step, 1, &index_pitch);
  char *best = f->scratch + places_of(f, r)->levels;
  int64_t *best_index = (int64_t *)(void *)(f->scratch + places_of(f, r)->indices);
  int64_t *dst = (int64_t *)(void *)f->pointer[r->dst];
  if (form->walk == HR__WALK_INNER && !form->is_walked) {
    for (int64_t row = 0; row < f->on; ++row) {
      dst[row] = INT64_MAX;
      r->better(best, dst + row, keys + row * key_pitch * r->key_size, indices + row * index_pitch, f->in, 1, 1, 1);
    }
    return;
  }
  bool is_rows = form->walk == HR__WALK_INNER;
  int64_t begin = is_rows ? f->i0 : f->o0, end = begin + (is_rows ? f->in : f->on), width = is_rows ? 1 : f->in;
  if (begin == 0 || (form->is_split && begin % form->chunk == 0)) {
    forget_best(best_index, width);
  }
  if (is_rows) {
    r->better(best, best_index, keys, indices, f->in, 1, 1, 1);
  } else {
    r->better(best, best_index, keys, indices, f->on, f->in, key_pitch, index_pitch);
  }
  if (form->is_split && (end % form->chunk == 0 || end == f->row_elements)) {
    int64_t chunk = (end - 1) / form->chunk;
    memcpy(partial_of(f, r, chunk, 0), best, (size_t)(width * r->key_size));
    memcpy(partial_of(f, r, chunk, 1), best_index, (size_t)width * sizeof *best_index);
  } else if (!form->is_split && end == f->row_elements) {
    memcpy(dst, best_index, (size_t)width * sizeof *dst);
  }
}

/* Pass 1 of a split kernel: the chunks of the current tile. */
static void combine_partials(hr__frame *f) {
  const hr__form *form = f->form;
  int64_t width = form->walk == HR__WALK_INNER ? 1 : f->in;
  for (int k = 0; k < form->reduction_count; ++k) {
    const hr__reduction *r = &hr__form_reductions(form)[k];
    int64_t *dst = (int64_t *)(void *)f->pointer[r->dst];
    if (r->arity == 2) {
      forget_best(dst, width);
    }
    for (int64_t chunk = 0; chunk < f->chunk_count; ++chunk) {
      if (r->arity == 2) {
        r->better(f->scratch + places_of(f, r)->levels, dst, partial_of(f, r, chunk, 0),
                  (const int64_t *)(const void *)partial_of(f, r, chunk, 1), 1, width, 0, 0);
      } else {
        push(f, r, 1, chunk, f->chunk_count, partial_of(f, r, chunk, 0));
      }
    }
  }
}

/* Results over no elements: the identity; a sum's is stored as +0. */
static void reduce_nothing(hr__frame *f, int phase) {
  const hr__form *form = f->form;
  int64_t count = form->walk == HR__WALK_INNER ? f->on : f->in;
  for (int k = 0; k < form->reduction_count; ++k) {
    const hr__reduction *r = &hr__form_reductions(form)[k];
    if (r->phase == phase && (r->arity == 2 || r->is_sum)) {
      memset(f->pointer[r->dst], 0, (size_t)count * (size_t)hr__register_size(&f->registers[r->dst]));
    } else if (r->phase == phase) {
      r->loops->init(f->pointer[r->dst], count);
    }
  }
}

/* ---- tiles ---- */

typedef struct range {
  int64_t begin, end;
} range;

/* Runs the blocks of a tile along the walked side: all of it, or a chunk. */
static void run_blocks(hr__frame *f, int phase, range walked) {
  const hr__form *form = f->form;
  const hr__plane *plane = &f->plan->plane;
  int section = 2 * phase + 2;
  const int16_t *begin = hr__form_sections(form) + section;
  if (begin[0] == begin[1]) {
    return;
  }
  if (!form->is_walked) {
    enter_block(f, f->o0, f->i0);
    run_section(f, section);
    return;
  }
  bool is_rows = form->walk == HR__WALK_INNER;
  int64_t tile_o = f->o0, tile_i = f->i0, on = f->on, in = f->in;
  int64_t block = is_rows ? plane->block_inner : plane->block_outer;
  for (int64_t at = walked.begin; at < walked.end;) {
    int64_t chunk_end = (at / form->chunk + 1) * form->chunk;
    int64_t end = at + block < walked.end ? at + block : walked.end;
    end = end < chunk_end ? end : chunk_end;
    if (is_rows) {
      f->i0 = at, f->in = end - at;
    } else {
      f->o0 = at, f->on = end - at;
    }
    enter_block(f, tile_o, tile_i);
    run_section(f, section);
    at = end;
  }
  f->o0 = tile_o, f->i0 = tile_i, f->on = on, f->in = in;
}

static void enter_tile(hr__frame *f, int64_t tile) {
  const hr__plane *plane = &f->plan->plane;
  int64_t per_batch = plane->tiles_outer * plane->tiles_inner, batch = per_batch == 1 ? tile : tile / per_batch;
  int64_t rest = tile - batch * per_batch;
  int64_t to = plane->tiles_inner == 1 ? rest : rest / plane->tiles_inner, ti = rest - to * plane->tiles_inner;
  f->tile = tile;
  f->o0 = to * plane->tile_outer;
  f->i0 = ti * plane->tile_inner;
  f->on = plane->outer - f->o0 < plane->tile_outer ? plane->outer - f->o0 : plane->tile_outer;
  f->in = plane->inner - f->i0 < plane->tile_inner ? plane->inner - f->i0 : plane->tile_inner;
  enter_batch(f, batch);
}

static void run_tile(hr__frame *f) {
  const hr__form *form = f->form;
  bool is_empty = form->walk != HR__WALK_NONE && f->row_elements == 0;
  range all = {0, f->row_elements};
  for (int phase = 0; phase < form->phase_count; ++phase) {
    run_section(f, 2 * phase + 1);
    run_blocks(f, phase, all);
    if (is_empty) {
      reduce_nothing(f, phase);
    }
  }
}

static void run_unit(hr__frame *f, int pass, int64_t unit) {
  const hr__form *form = f->form;
  if (!form->is_split) {
    enter_tile(f, unit);
    run_tile(f);
    return;
  }
  if (pass == 0) {
    int64_t chunk = unit % f->chunk_count;
    range part = {chunk * form->chunk, (chunk + 1) * form->chunk};
    part.end = part.end < f->row_elements ? part.end : f->row_elements;
    enter_tile(f, unit / f->chunk_count);
    run_section(f, 1);
    run_blocks(f, 0, part);
    return;
  }
  enter_tile(f, unit);
  run_section(f, 1);
  combine_partials(f);
  for (int phase = 1; phase < form->phase_count; ++phase) {
    run_section(f, 2 * phase + 1);
  }
}

/* ---- a run ---- */

static void enter_run(hr__frame *f) {
  const hr__form *form = f->form;
  const hr__slots *slots = hr__slots_of(f->plan);
  const hr__conflict *conflicts = hr__form_conflicts(form);
  const int *places = hr__slot_places(slots);
  f->pointer = (char **)(void *)(f->scratch + slots->pointers_at);
  f->pitch = (int64_t *)(void *)(f->scratch + slots->pitches_at);
  f->base = (int64_t *)(void *)(f->scratch + slots->bases_at);
  f->is_slotted = (bool *)(f->scratch + slots->slotted_at);
  memset(f->is_slotted, 0, (size_t)form->register_count);
  for (int k = 0; k < form->conflict_count; ++k) {
    if (f->call->args[conflicts[k].arg_a] == f->call->args[conflicts[k].arg_b]) {
      f->is_slotted[conflicts[k].reg] = true;
    }
  }
  for (int r = 0; r < form->register_count; ++r) {
    const hr__register *reg = &f->registers[r];
    f->pointer[r] = places[r] >= 0 ? f->scratch + places[r] : NULL;
    f->pitch[r] = HR__DENSE;
    if (reg->place == HR__PLACE_SCALAR) {
      hr__scalar_to_class(&f->call->scalars[reg->scalar], reg->cls, f->pointer[r]);
    }
  }
}

static void begin_frame(const hr__plan *plan, const hr_host_call *call, hr__frame *f) {
  const hr__form *form = hr__form_of(plan);
  f->plan = plan, f->form = form, f->numbers = plan->numbers;
  f->registers = hr__form_registers(form), f->maps = hr__form_maps(form);
  f->row_elements = form->walk == HR__WALK_INNER   ? plan->plane.inner
                    : form->walk == HR__WALK_OUTER ? plan->plane.outer
                                                   : 0;
  f->chunk_count = form->is_walked ? hr_divide_up(f->row_elements, form->chunk) : 0;
  f->call = call, f->scratch = call->scratch;
  f->tile = f->o0 = f->i0 = 0;
  f->on = plan->plane.block_outer, f->in = plan->plane.block_inner;
}

void hr__plan_run(const hr_host_kernel *kernel, int pass, const hr_host_call *call, int64_t begin, int64_t end) {
  if (begin >= end) {
    return;
  }
  hr__frame frame;
  begin_frame((const hr__plan *)kernel, call, &frame);
  enter_run(&frame);
  enter_batch(&frame, 0);
  const int times = frame.form->times;
  const int64_t count = times > 0 ? call->scalars[times - 1].value.i : 1;
  for (int64_t i = 0; i < count; ++i) {
    run_section(&frame, 0);
    for (int64_t unit = begin; unit < end; ++unit) {
      run_unit(&frame, pass, unit);
    }
  }
}
