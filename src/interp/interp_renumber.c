/* interp_renumber.c: gives a plan the numbers of a kernel of the same structure.
 *
 * Registers, steps and slots depend on decisions: how the domain is cut, along which sides an access varies, which
 * accesses are dense. If other dims lead to the same decisions, and to blocks that are no larger, only counts and maps
 * change; they are replaced in place. Otherwise the caller makes a new plan.
 */
#include <string.h>

#include "interp/interp_plan.h"

static bool has_tiles(const hr__form *form) {
  bool has = false;
  for (int r = 0; !has && r < form->register_count; ++r) {
    has = hr__form_registers(form)[r].is_tile;
  }
  return has;
}

static bool has_room(const hr__room *room, int64_t outer, int64_t inner) {
  return outer <= room->outer && inner <= room->inner && outer * inner <= room->area;
}

/* True if what registers and reductions hold of the new blocks, tiles and chunks fits into their slots. */
static bool is_roomy(const hr__plan *plan, const hr__draft *made) {
  const hr__slots *slots = hr__slots_of(plan);
  const hr__plane *plane = &made->plane;
  bool has_width = made->walk != HR__WALK_OUTER || plane->tile_inner <= slots->tile_room.inner;
  bool has_tile = !has_tiles(hr__form_of(plan)) || has_room(&slots->tile_room, plane->tile_outer, plane->tile_inner);
  bool has_partials = hr__plan_partials(made) <= slots->partial_room;
  return has_width && has_tile && has_partials && has_room(&slots->block_room, plane->block_outer, plane->block_inner);
}

/* A plan that walks a tile's blocks can also walk a single one: a row, or columns within one chunk, which it adds in
 * the same order whatever the blocks are. */
static bool is_walked_alike(const hr__form *form, const hr__draft *made) {
  bool has_one = made->walk == HR__WALK_INNER ? made->plane.tile_outer == 1 : made->chunk_count <= 1;
  return form->is_walked == made->is_walked || (form->is_walked && has_one);
}

/* A single block of columns may be walked in the plan's smaller ones. */
static void fit_block(const hr__plan *plan, hr__draft *made) {
  hr__plane *plane = &made->plane;
  if (hr__form_of(plan)->is_walked && !made->is_walked && made->walk == HR__WALK_OUTER && plane->block_inner > 0) {
    const hr__room *room = &hr__slots_of(plan)->block_room;
    int64_t most = hr_min(room->outer, room->area / plane->block_inner);
    plane->block_outer = hr_max(1, hr_min(plane->block_outer, most));
  }
}

/* True if the domain is cut alike, so that registers keep their slots. */
static bool is_cut_alike(const hr__plan *plan, const hr__draft *made) {
  const hr__form *form = hr__form_of(plan);
  return form->walk == (int)made->walk && is_walked_alike(form, made) && form->is_split == made->is_split &&
         form->batch_rank == made->cut.batch.rank && form->chunk == made->chunk &&
         form->has_batches == (made->batch_count > 1) && (plan->plane.outer != 1) == (made->plane.outer != 1) &&
         (plan->plane.inner != 1) == (made->plane.inner != 1) && is_roomy(plan, made);
}

static bool are_axes_alike(hr__axes a, hr__axes b) {
  return a.rank == b.rank && (a.strides[0] == 1) == (b.strides[0] == 1);
}

/* True if two maps differ in numbers alone, and these have the same positions. */
static bool are_maps_alike(const hr__map *a, const int64_t *a_numbers, const hr__map *b, const int64_t *b_numbers) {
  return a->vary == b->vary && a->coords == b->coords && a->term_count == b->term_count && a->offset == b->offset &&
         a->outer == b->outer && a->inner == b->inner &&
         are_axes_alike(hr__outer_axes(a, a_numbers), hr__outer_axes(b, b_numbers)) &&
         are_axes_alike(hr__inner_axes(a, a_numbers), hr__inner_axes(b, b_numbers));
}

/* Makes the numbers of the kernel's maps, in the order of the plan's; false: one differs in more, or memory is out. */
static bool make_numbers(const hr__plan *plan, hr__draft *made, const hr_kernel *kernel) {
  const hr__map *maps = hr__form_maps(hr__form_of(plan));
  bool are = hr__plan_reserve(made, kernel);
  for (int m = 0; are && m < hr__form_of(plan)->map_count; ++m) {
    hr__map map;
    hr__plan_map(made, &kernel->accesses[maps[m].access], &maps[m], &map);
    are = are_maps_alike(&maps[m], plan->numbers, &map, made->numbers);
  }
  return are && made->number_count == hr__form_of(plan)->number_count;
}

/* The same choice as for a new kernel. */
bool HR_CPU_NAME(hr_interp_renumber)(hr_host_kernel *host_kernel, const hr_kernel *kernel) {
  if (hr__adam_fits(kernel)) {
    return hr__adam_renumber(host_kernel, kernel);
  }
  if (!kernel->is_repeated && hr__gather_fits(kernel)) {
    return hr__gather_renumber(host_kernel, kernel);
  }
  if (hr__scatter_fits(kernel)) {
    return hr__scatter_renumber(host_kernel, kernel);
  }
  if (host_kernel->run != hr__plan_run) {
    return false;
  }
  hr_arena arena;
  hr_arena_init(&arena, HR_ARENA_CHUNK_MIN);
  hr__plan *plan = (hr__plan *)host_kernel;
  hr__draft made = {.arena = &arena};
  hr__plan_geometry(&made, kernel);
  fit_block(plan, &made);
  bool is = is_cut_alike(plan, &made) && make_numbers(plan, &made, kernel);
  if (is) {
    memcpy(plan->numbers, made.numbers, (size_t)made.number_count * sizeof *plan->numbers);
    plan->plane = made.plane;
    hr__plan_set_passes(&made, kernel, (hr_host_pass *)plan->base.passes, &plan->base.pass_count);
    plan->base.bytes = kernel->bytes;
  }
  hr_arena_fini(&arena);
  return is;
}
