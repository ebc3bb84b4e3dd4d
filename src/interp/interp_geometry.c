/* Cuts a kernel's domain into batches, planes, tiles and blocks (see interp_plan.h), and maps accesses to it.
 *
 * Nothing here changes results: elements may share a tile in any way, and reduced and ordered dims keep their order.
 */
#include <string.h>

#include "base/integer.h"
#include "interp/interp_plan.h"

enum {
  ROW_RESIDENT = 1024, /* rows up to here share a tile */
  ROW_ELEMENTS = 2048, /* of a tile of short rows */
  INNER_MIN = 32,      /* a pointwise plane has rows of at least this, unless all dims are inner */
  TRANSPOSED_ROWS = 32,
  TRANSPOSED_COLUMNS = 64,
  COLUMN_ELEMENTS = 2048,  /* of a tile of short columns */
  SCATTERED_COLUMNS = 4,   /* columns far apart in memory: their cache lines must all stay in the L2 cache */
  COLUMN_RESIDENT = 65536, /* elements of a tile that crosses phases */
  SPLIT_ELEMENTS = 65536,  /* a kernel below this is not split into chunks */
  SPLIT_TILES = 64         /* nor one that has so many tiles */
};

/* 0 if there is nothing to divide. */
static int64_t ceil_div(int64_t a, int64_t b) {
  return b == 0 ? 0 : hr_divide_up(a, b);
}

static int64_t product(const hr_dims *dims, int begin, int end) {
  int64_t count = 1;
  for (int d = begin; d < end; ++d) {
    count *= dims->dims[d];
  }
  return count;
}

static hr_dims slice(const hr_dims *dims, int begin, int end) {
  hr_dims part = {.rank = end - begin};
  memcpy(part.dims, dims->dims + begin, (size_t)part.rank * sizeof *part.dims);
  memcpy(part.source, dims->source + begin, (size_t)part.rank * sizeof *part.source);
  return part;
}

static void append(hr_dims *dims, int64_t dim, int source) {
  dims->dims[dims->rank] = dim;
  dims->source[dims->rank] = source;
  ++dims->rank;
}

/* A width that does not cut the runs of the innermost dims. */
static int64_t whole_runs(const hr_dims *dims, int64_t width) {
  int64_t run = 1;
  for (int d = dims->rank - 1; d >= 0 && run * dims->dims[d] <= width; --d) {
    run *= dims->dims[d];
  }
  return width - width % run;
}

/* Takes batch dims from the front of the kept dims; `planes` are the rest. */
static void take_batch(hr__plan *plan, int count, hr_dims *out_planes) {
  plan->cut->batch = slice(&plan->cut->kept, 0, count);
  *out_planes = slice(&plan->cut->kept, count, plan->cut->kept.rank);
}

/* A kept dim along which some access is dense while that access strides along the innermost dim; -1 for none. */
static int transposed_dim(const hr__plan *plan, const hr_kernel *kernel) {
  int last = plan->cut->kept.rank - 1;
  for (int k = 0; k < kernel->access_count && last > 0; ++k) {
    const hr_access *access = &kernel->accesses[k];
    int64_t step = access->strides[plan->cut->kept.source[last]];
    if (access->arg < 0 || (step > -8 && step < 8)) {
      continue;
    }
    for (int d = 0; d < last; ++d) {
      if (access->strides[plan->cut->kept.source[d]] == 1 && plan->cut->kept.dims[d] >= 8) {
        return d;
      }
    }
  }
  return -1;
}

/* A plane of the transposed dim by the innermost one, in small tiles, so that cache lines are fully used while cached.
 */
static void cut_transposed(hr__plan *plan, int dim) {
  int rank = plan->cut->kept.rank;
  plan->cut->inner = slice(&plan->cut->kept, rank - 1, rank);
  plan->cut->outer = slice(&plan->cut->kept, dim, dim + 1);
  plan->cut->batch = slice(&plan->cut->kept, 0, dim);
  for (int d = dim + 1; d < rank - 1; ++d) {
    append(&plan->cut->batch, plan->cut->kept.dims[d], plan->cut->kept.source[d]);
  }
  plan->walk = HR__WALK_NONE;
  plan->outer_count = plan->cut->outer.dims[0];
  plan->inner_count = plan->cut->inner.dims[0];
  plan->tile_outer = plan->block_outer = hr_min(plan->outer_count, TRANSPOSED_ROWS);
  plan->tile_inner = plan->block_inner = hr_min(plan->inner_count, TRANSPOSED_COLUMNS);
}

static void cut_pointwise(hr__plan *plan, const hr_kernel *kernel) {
  int transposed = transposed_dim(plan, kernel);
  if (transposed >= 0) {
    cut_transposed(plan, transposed);
    return;
  }
  int rank = plan->cut->kept.rank, inner = rank;
  int64_t rows = 1, count = 1;
  while (inner > 0) {
    count *= plan->cut->kept.dims[--inner];
    rows = inner > 0 ? plan->cut->kept.dims[inner - 1] : 1;
    if (count >= HR__BLOCK / 2 || (count >= INNER_MIN && count * rows >= HR__BLOCK / 2)) {
      break;
    }
  }
  bool has_outer = inner > 0 && count < HR__BLOCK / 2;
  take_batch(plan, has_outer ? inner - 1 : inner, &plan->cut->inner);
  if (has_outer) {
    plan->cut->outer = slice(&plan->cut->inner, 0, 1);
    plan->cut->inner = slice(&plan->cut->inner, 1, plan->cut->inner.rank);
  }
  plan->walk = HR__WALK_NONE;
  plan->outer_count = product(&plan->cut->outer, 0, plan->cut->outer.rank);
  plan->inner_count = product(&plan->cut->inner, 0, plan->cut->inner.rank);
  int64_t pieces = ceil_div(plan->inner_count, HR__BLOCK);
  plan->tile_inner = pieces <= 1 ? plan->inner_count : whole_runs(&plan->cut->inner, HR__BLOCK);
  plan->tile_outer = hr_max(1, hr_min(plan->outer_count, HR__BLOCK / hr_max(1, plan->tile_inner)));
  plan->block_outer = plan->tile_outer;
  plan->block_inner = plan->tile_inner;
}

static void cut_rows(hr__plan *plan) {
  plan->walk = HR__WALK_INNER;
  plan->cut->inner = plan->cut->reduced;
  plan->inner_count = plan->row_elements;
  int rank = plan->cut->kept.rank;
  if (plan->row_elements > ROW_RESIDENT) {
    take_batch(plan, rank, &plan->cut->outer);
  } else if (rank > 0 && plan->cut->kept.dims[rank - 1] >= 8) {
    take_batch(plan, rank - 1, &plan->cut->outer);
  } else {
    take_batch(plan, 0, &plan->cut->outer);
  }
  plan->outer_count = product(&plan->cut->outer, 0, plan->cut->outer.rank);
  plan->tile_outer = hr_max(1, hr_min(plan->outer_count, ROW_ELEMENTS / hr_max(1, plan->row_elements)));
  plan->tile_inner = plan->inner_count;
  plan->block_outer = plan->tile_outer;
  plan->block_inner = hr_min(plan->inner_count, HR__BLOCK);
}

/* True if a store strides along the innermost kept dim: then each of its elements in a tile has its own cache line. */
static bool is_scattered_by_columns(const hr__plan *plan, const hr_kernel *kernel) {
  for (int k = 0; k < kernel->instr_count && plan->cut->kept.rank > 0; ++k) {
    const hr_instr *instr = &kernel->instrs[k];
    int64_t step = instr->kind == HR_INSTR_STORE
                       ? kernel->accesses[instr->access].strides[plan->cut->kept.source[plan->cut->kept.rank - 1]]
                       : 0;
    if (step >= 8 || step <= -8) {
      return true;
    }
  }
  return false;
}

static void cut_columns(hr__plan *plan, const hr_kernel *kernel) {
  plan->walk = HR__WALK_OUTER;
  plan->cut->outer = plan->cut->reduced;
  plan->outer_count = plan->row_elements;
  int begin = plan->cut->kept.rank;
  for (int64_t width = 1; begin > 0 && width < 256;) {
    width *= plan->cut->kept.dims[--begin];
  }
  take_batch(plan, begin, &plan->cut->inner);
  plan->inner_count = product(&plan->cut->inner, 0, plan->cut->inner.rank);
  int64_t width = HR__BLOCK, rows = plan->row_elements;
  if (rows <= HR_REDUCE_SEQUENTIAL_MAX && kernel->ordered_mask == 0) {
    width = hr_min(HR__BLOCK, hr_max(64, COLUMN_ELEMENTS / hr_max(1, rows)));
  } else {
    width = plan->inner_count >= 8 * HR__BLOCK ? HR__BLOCK : 256;
    width = kernel->ordered_mask != 0 ? hr_min(width, 128) : width;
    width = kernel->ordered_mask != 0 && is_scattered_by_columns(plan, kernel) ? SCATTERED_COLUMNS : width;
    bool is_resident = false;
    for (int r = 0; r < kernel->register_count; ++r) {
      is_resident |= kernel->registers[r].level == HR_LEVEL_ELEMENT &&
                     kernel->registers[r].last_phase > kernel->registers[r].phase;
    }
    width = is_resident ? hr_max(16, hr_min(width, COLUMN_RESIDENT / rows)) : width;
  }
  width = plan->inner_count <= width + width / 4 ? plan->inner_count : whole_runs(&plan->cut->inner, width);
  plan->tile_inner = width;
  plan->tile_outer = rows;
  plan->block_inner = width;
  plan->block_outer = rows;
  if (rows > HR_REDUCE_SEQUENTIAL_MAX || kernel->ordered_mask != 0) {
    plan->block_outer = hr_min(hr_min(rows, HR_REDUCE_RUN), hr_max(1, HR__BLOCK / hr_max(1, width)));
  }
}

/* True if chunks of a row should be units: few long rows, with only reductions over their elements. */
static bool shall_split(const hr__plan *plan, const hr_kernel *kernel, int64_t tiles) {
  if (kernel->reduce_mask == 0 || plan->row_elements <= HR_REDUCE_CHUNK || tiles >= SPLIT_TILES ||
      plan->row_elements * tiles * plan->tile_inner < SPLIT_ELEMENTS || !plan->is_walked) {
    return false;
  }
  for (int k = 0; k < kernel->instr_count; ++k) {
    const hr_instr *instr = &kernel->instrs[k];
    bool is_row = instr->level == HR_LEVEL_ROW;
    if ((!is_row && instr->phase > 0) || (is_row && instr->kind == HR_INSTR_STORE && instr->phase == 0) ||
        (!is_row && instr->kind == HR_INSTR_STORE && instr->mode != HR_STORE_SET)) {
      return false;
    }
  }
  return true;
}

hr_status hr__plan_geometry(hr__plan *plan, const hr_kernel *kernel) {
  uint32_t walked_mask = kernel->reduce_mask | kernel->ordered_mask;
  bool is_innermost_walked = hr_kernel_split_dims(kernel, walked_mask, &plan->cut->kept, &plan->cut->reduced);
  plan->row_elements = product(&plan->cut->reduced, 0, plan->cut->reduced.rank);
  bool is_rows = kernel->reduce_mask != 0 ? kernel->order == HR_ORDER_LANES : is_innermost_walked;
  if (walked_mask == 0) {
    plan->row_elements = 0;
    cut_pointwise(plan, kernel);
  } else if (is_rows) {
    cut_rows(plan);
  } else {
    cut_columns(plan, kernel);
  }
  plan->batch_rank = plan->cut->batch.rank;
  plan->batch_dims = plan->cut->batch.dims;
  plan->batch_count = product(&plan->cut->batch, 0, plan->cut->batch.rank);
  plan->tiles_outer = plan->walk == HR__WALK_OUTER ? 1 : ceil_div(plan->outer_count, plan->tile_outer);
  plan->tiles_inner = plan->walk == HR__WALK_INNER ? 1 : ceil_div(plan->inner_count, plan->tile_inner);
  plan->is_walked = plan->block_outer < plan->tile_outer || plan->block_inner < plan->tile_inner;
  plan->chunk = hr_kernel_chunk(kernel->order);
  plan->chunk_count = ceil_div(plan->row_elements, plan->chunk);
  int64_t tiles = plan->batch_count * plan->tiles_outer * plan->tiles_inner;
  plan->is_split = shall_split(plan, kernel, tiles);
  return HR_OK;
}

/* The strides of coordinate c of an access: its address or one of its bounds. */
static const int64_t *strides_of(const hr_access *access, int c) {
  return c == 0 ? access->strides : access->bounds[c - 1].strides;
}

static bool has_stride(const hr_access *access, const hr_dims *dims) {
  for (int c = 0; c <= access->bound_count; ++c) {
    for (int d = 0; d < dims->rank; ++d) {
      if (strides_of(access, c)[dims->source[d]] != 0) {
        return true;
      }
    }
  }
  return false;
}

/* The dims of one side, merged as far as this access allows. */
static bool make_axes(hr__plan *plan, const hr_access *access, const hr_dims *dims, hr__axes *out_axes) {
  int coords = access->bound_count + 1, n = 0;
  int64_t merged[HR_RANK_MAX];
  int source[HR_RANK_MAX];
  for (int d = 0; d < dims->rank; ++d) {
    bool fits = n > 0;
    for (int c = 0; fits && c < coords; ++c) {
      const int64_t *strides = strides_of(access, c);
      fits = strides[source[n - 1]] == strides[dims->source[d]] * dims->dims[d];
    }
    if (fits) {
      merged[n - 1] *= dims->dims[d];
      source[n - 1] = dims->source[d];
    } else {
      merged[n] = dims->dims[d];
      source[n++] = dims->source[d];
    }
  }
  int rank = n == 0 ? 1 : n;
  int64_t *memory = HR_ARENA_ARRAY(plan->arena, int64_t, (size_t)(rank * (coords + 1)));
  if (memory == NULL) {
    return false;
  }
  int64_t *strides = memory + rank;
  memory[0] = 1; /* no dim: one of stride 0 */
  for (int d = 0; d < n; ++d) {
    memory[d] = merged[d];
    for (int c = 0; c < coords; ++c) {
      strides[c * rank + d] = strides_of(access, c)[source[d]];
    }
  }
  *out_axes = (hr__axes){rank, memory, strides};
  return true;
}

bool hr__plan_map(hr__plan *plan, const hr_access *access, hr__map *out_map) {
  int coords = access->bound_count + 1, batch_rank = plan->cut->batch.rank;
  int64_t *numbers = hr_arena_alloc(plan->arena, (size_t)(coords * (2 + batch_rank)) * sizeof *numbers);
  hr__term *terms = hr_arena_alloc(plan->arena, (size_t)access->term_count * sizeof *terms);
  if (numbers == NULL || terms == NULL) {
    return false;
  }
  int64_t *extent = numbers + coords, *batch = extent + coords;
  for (int c = 0; c < coords; ++c) {
    numbers[c] = c == 0 ? access->offset : access->bounds[c - 1].offset;
    extent[c] = c == 0 ? 0 : access->bounds[c - 1].extent;
    for (int d = 0; d < batch_rank; ++d) {
      batch[c * batch_rank + d] = strides_of(access, c)[plan->cut->batch.source[d]];
    }
  }
  for (int t = 0; t < access->term_count; ++t) {
    terms[t] = (hr__term){access->terms[t].reg, access->terms[t].stride, access->terms[t].extent};
  }
  *out_map = (hr__map){.arg = access->arg,
                       .dtype = access->dtype,
                       .size = (int)hr_dtype_size(access->dtype),
                       .coords = coords,
                       .offset = numbers,
                       .extent = extent,
                       .batch = batch,
                       .term_count = access->term_count,
                       .terms = terms,
                       .fill = -1,
                       .base = plan->coord_count};
  plan->coord_count += coords;
  out_map->vary = (has_stride(access, &plan->cut->batch) ? (unsigned)HR__BATCH : 0) |
                  (has_stride(access, &plan->cut->outer) ? (unsigned)HR__OUTER : 0) |
                  (has_stride(access, &plan->cut->inner) ? (unsigned)HR__INNER : 0);
  return make_axes(plan, access, &plan->cut->outer, &out_map->outer) &&
         make_axes(plan, access, &plan->cut->inner, &out_map->inner);
}
