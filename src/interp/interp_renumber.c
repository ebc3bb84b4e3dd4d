/* interp_renumber.c: gives a plan the numbers of a kernel of the same structure.
 *
 * Registers, steps and slots depend on decisions: how the domain is cut, along which sides an access varies, which
 * accesses are dense. If other dims lead to the same decisions, and to blocks that are no larger, only counts and maps
 * change; they are replaced in place. Otherwise the caller makes a new plan.
 */
#include <string.h>

#include "interp/interp_plan.h"

static bool has_tiles(const hr__plan *plan) {
  for (int r = 0; r < plan->register_count; ++r) {
    if (plan->registers[r].is_tile) {
      return true;
    }
  }
  return false;
}

static bool has_room(const hr__room *room, int64_t outer, int64_t inner) {
  return outer <= room->outer && inner <= room->inner && outer * inner <= room->area;
}

/* True if what registers and reductions hold of the new blocks and tiles fits into their slots. */
static bool is_roomy(const hr__plan *plan, const hr__plan *made) {
  bool has_width = plan->walk != HR__WALK_OUTER || made->tile_inner <= plan->tile_room.inner;
  bool has_tile = !has_tiles(plan) || has_room(&plan->tile_room, made->tile_outer, made->tile_inner);
  return has_width && has_tile && has_room(&plan->block_room, made->block_outer, made->block_inner);
}

/* A plan that walks a tile's blocks can also walk a single one: a row, or columns within one chunk, which it adds in
 * the same order whatever the blocks are. */
static bool is_walked_alike(const hr__plan *plan, const hr__plan *made) {
  bool has_one = plan->walk == HR__WALK_INNER ? made->tile_outer == 1 : made->chunk_count <= 1;
  return plan->is_walked == made->is_walked || (plan->is_walked && has_one);
}

/* A single block of columns may be walked in the plan's smaller ones. */
static void fit_block(const hr__plan *plan, hr__plan *made) {
  if (plan->is_walked && !made->is_walked && made->walk == HR__WALK_OUTER && made->block_inner > 0) {
    int64_t most = hr_min(plan->block_room.outer, plan->block_room.area / made->block_inner);
    made->block_outer = hr_max(1, hr_min(made->block_outer, most));
  }
}

/* True if the domain is cut alike, so that registers keep their slots. */
static bool is_cut_alike(const hr__plan *plan, const hr__plan *made) {
  return plan->walk == made->walk && is_walked_alike(plan, made) && !plan->is_split && !made->is_split &&
         plan->batch_rank == made->batch_rank && plan->chunk == made->chunk &&
         (plan->batch_count > 1) == (made->batch_count > 1) && (plan->outer_count != 1) == (made->outer_count != 1) &&
         (plan->inner_count != 1) == (made->inner_count != 1) && is_roomy(plan, made);
}

static bool are_axes_alike(const hr__axes *a, const hr__axes *b) {
  return a->rank == b->rank && (a->strides[0] == 1) == (b->strides[0] == 1);
}

static bool are_maps_alike(const hr__map *a, const hr__map *b) {
  return a->vary == b->vary && a->coords == b->coords && a->term_count == b->term_count && a->base == b->base &&
         are_axes_alike(&a->outer, &b->outer) && are_axes_alike(&a->inner, &b->inner);
}

/* The maps of the kernel, in the order of the plan's; NULL: one differs in more than numbers, or memory is out. */
static const hr__map *make_maps(const hr__plan *plan, hr__plan *made, const hr_kernel *kernel) {
  hr__map *maps = HR_ARENA_ARRAY(made->arena, hr__map, (size_t)plan->map_count + 1);
  for (int m = 0; maps != NULL && m < plan->map_count; ++m) {
    if (!hr__plan_map(made, &kernel->accesses[plan->maps[m].access], &maps[m]) ||
        !are_maps_alike(&plan->maps[m], &maps[m])) {
      return NULL;
    }
  }
  return maps;
}

/* The plan's lists are constant for its users. */
static void replace(const int64_t *list, const int64_t *numbers, int count) {
  memcpy((int64_t *)list, numbers, (size_t)count * sizeof *numbers);
}

static void replace_map(const hr__map *map, const hr__map *made, int batch_rank) {
  replace(map->offset, made->offset, map->coords * (2 + batch_rank)); /* extent and batch follow */
  replace(map->outer.dims, made->outer.dims, map->outer.rank * (1 + map->coords));
  replace(map->inner.dims, made->inner.dims, map->inner.rank * (1 + map->coords));
  for (int t = 0; t < map->term_count; ++t) {
    hr__term *term = (hr__term *)&map->terms[t];
    term->stride = made->terms[t].stride;
    term->extent = made->terms[t].extent;
  }
}

static void replace_counts(hr__plan *plan, const hr__plan *made) {
  plan->batch_count = made->batch_count, plan->outer_count = made->outer_count, plan->inner_count = made->inner_count;
  plan->tile_outer = made->tile_outer, plan->tile_inner = made->tile_inner;
  plan->block_outer = made->block_outer, plan->block_inner = made->block_inner;
  plan->tiles_outer = made->tiles_outer, plan->tiles_inner = made->tiles_inner;
  plan->row_elements = made->row_elements, plan->chunk_count = made->chunk_count;
  replace(plan->batch_dims, made->batch_dims, plan->batch_rank);
}

bool HR_CPU_NAME(hr_interp_renumber)(hr_host_kernel *host_kernel, const hr_kernel *kernel) {
  if (host_kernel->run != hr__plan_run || hr__gather_fits(kernel) || hr__scatter_fits(kernel)) {
    return false;
  }
  hr_arena arena;
  hr_arena_init(&arena, HR_ARENA_CHUNK_MIN);
  hr__plan *plan = (hr__plan *)host_kernel;
  hr__cut cut = {0};
  hr__plan made = {.arena = &arena, .cut = &cut};
  hr_status status = hr__plan_geometry(&made, kernel);
  fit_block(plan, &made);
  bool is = status == HR_OK && is_cut_alike(plan, &made);
  const hr__map *maps = is ? make_maps(plan, &made, kernel) : NULL;
  if (maps != NULL) {
    for (int m = 0; m < plan->map_count; ++m) {
      replace_map(&plan->maps[m], &maps[m], plan->batch_rank);
    }
    replace_counts(plan, &made);
    hr__plan_set_units(plan, kernel);
  }
  hr_status_ignore(status);
  hr_arena_fini(&arena);
  return maps != NULL;
}
