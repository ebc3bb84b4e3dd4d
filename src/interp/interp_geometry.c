/* Cuts a kernel's domain into batches, planes, tiles and blocks (see interp_plan.h), and maps accesses to it.
 *
 * Nothing here changes results: elements may share a tile in any way, and reduced and ordered dims keep their order.
 */
#include <stddef.h>
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
static void take_batch(hr__draft *draft, int count, hr_dims *out_planes) {
  draft->cut.batch = slice(&draft->cut.kept, 0, count);
  *out_planes = slice(&draft->cut.kept, count, draft->cut.kept.rank);
}

/* A kept dim along which some access is dense while that access strides along the innermost dim; -1 for none. */
static int transposed_dim(const hr__draft *draft, const hr_kernel *kernel) {
  int last = draft->cut.kept.rank - 1;
  for (int k = 0; k < kernel->access_count && last > 0; ++k) {
    const hr_access *access = &kernel->accesses[k];
    int64_t step = access->strides[draft->cut.kept.source[last]];
    if (access->arg < 0 || (step > -8 && step < 8)) {
      continue;
    }
    for (int d = 0; d < last; ++d) {
      if (access->strides[draft->cut.kept.source[d]] == 1 && draft->cut.kept.dims[d] >= 8) {
        return d;
      }
    }
  }
  return -1;
}

/* A plane of the transposed dim by the innermost one, in small tiles, so that cache lines are fully used while cached.
 */
static void cut_transposed(hr__draft *draft, int dim) {
  int rank = draft->cut.kept.rank;
  draft->cut.inner = slice(&draft->cut.kept, rank - 1, rank);
  draft->cut.outer = slice(&draft->cut.kept, dim, dim + 1);
  draft->cut.batch = slice(&draft->cut.kept, 0, dim);
  for (int d = dim + 1; d < rank - 1; ++d) {
    append(&draft->cut.batch, draft->cut.kept.dims[d], draft->cut.kept.source[d]);
  }
  draft->walk = HR__WALK_NONE;
  draft->plane.outer = draft->cut.outer.dims[0];
  draft->plane.inner = draft->cut.inner.dims[0];
  draft->plane.tile_outer = draft->plane.block_outer = hr_min(draft->plane.outer, TRANSPOSED_ROWS);
  draft->plane.tile_inner = draft->plane.block_inner = hr_min(draft->plane.inner, TRANSPOSED_COLUMNS);
}

static void cut_pointwise(hr__draft *draft, const hr_kernel *kernel) {
  int transposed = transposed_dim(draft, kernel);
  if (transposed >= 0) {
    cut_transposed(draft, transposed);
    return;
  }
  int rank = draft->cut.kept.rank, inner = rank;
  int64_t rows = 1, count = 1;
  while (inner > 0) {
    count *= draft->cut.kept.dims[--inner];
    rows = inner > 0 ? draft->cut.kept.dims[inner - 1] : 1;
    if (count >= HR__BLOCK / 2 || (count >= INNER_MIN && count * rows >= HR__BLOCK / 2)) {
      break;
    }
  }
  bool has_outer = inner > 0 && count < HR__BLOCK / 2;
  take_batch(draft, has_outer ? inner - 1 : inner, &draft->cut.inner);
  if (has_outer) {
    draft->cut.outer = slice(&draft->cut.inner, 0, 1);
    draft->cut.inner = slice(&draft->cut.inner, 1, draft->cut.inner.rank);
  }
  draft->walk = HR__WALK_NONE;
  draft->plane.outer = product(&draft->cut.outer, 0, draft->cut.outer.rank);
  draft->plane.inner = product(&draft->cut.inner, 0, draft->cut.inner.rank);
  int64_t pieces = ceil_div(draft->plane.inner, HR__BLOCK);
  draft->plane.tile_inner = pieces <= 1 ? draft->plane.inner : whole_runs(&draft->cut.inner, HR__BLOCK);
  draft->plane.tile_outer = hr_max(1, hr_min(draft->plane.outer, HR__BLOCK / hr_max(1, draft->plane.tile_inner)));
  draft->plane.block_outer = draft->plane.tile_outer;
  draft->plane.block_inner = draft->plane.tile_inner;
}

static void cut_rows(hr__draft *draft) {
  draft->walk = HR__WALK_INNER;
  draft->cut.inner = draft->cut.reduced;
  draft->plane.inner = draft->row_elements;
  int rank = draft->cut.kept.rank;
  if (draft->row_elements > ROW_RESIDENT) {
    take_batch(draft, rank, &draft->cut.outer);
  } else if (rank > 0 && draft->cut.kept.dims[rank - 1] >= 8) {
    take_batch(draft, rank - 1, &draft->cut.outer);
  } else {
    take_batch(draft, 0, &draft->cut.outer);
  }
  draft->plane.outer = product(&draft->cut.outer, 0, draft->cut.outer.rank);
  draft->plane.tile_outer = hr_max(1, hr_min(draft->plane.outer, ROW_ELEMENTS / hr_max(1, draft->row_elements)));
  draft->plane.tile_inner = draft->plane.inner;
  draft->plane.block_outer = draft->plane.tile_outer;
  draft->plane.block_inner = hr_min(draft->plane.inner, HR__BLOCK);
}

/* True if a store strides along the innermost kept dim: then each of its elements in a tile has its own cache line. */
static bool is_scattered_by_columns(const hr__draft *draft, const hr_kernel *kernel) {
  for (int k = 0; k < kernel->instr_count && draft->cut.kept.rank > 0; ++k) {
    const hr_instr *instr = &kernel->instrs[k];
    int64_t step = instr->kind == HR_INSTR_STORE
                       ? kernel->accesses[instr->access].strides[draft->cut.kept.source[draft->cut.kept.rank - 1]]
                       : 0;
    if (step >= 8 || step <= -8) {
      return true;
    }
  }
  return false;
}

static void cut_columns(hr__draft *draft, const hr_kernel *kernel) {
  draft->walk = HR__WALK_OUTER;
  draft->cut.outer = draft->cut.reduced;
  draft->plane.outer = draft->row_elements;
  int begin = draft->cut.kept.rank;
  for (int64_t width = 1; begin > 0 && width < 256;) {
    width *= draft->cut.kept.dims[--begin];
  }
  take_batch(draft, begin, &draft->cut.inner);
  draft->plane.inner = product(&draft->cut.inner, 0, draft->cut.inner.rank);
  int64_t width = HR__BLOCK, rows = draft->row_elements;
  if (rows <= HR_REDUCE_SEQUENTIAL_MAX && kernel->ordered_mask == 0) {
    width = hr_min(HR__BLOCK, hr_max(64, COLUMN_ELEMENTS / hr_max(1, rows)));
  } else {
    width = draft->plane.inner >= 8 * HR__BLOCK ? HR__BLOCK : 256;
    width = kernel->ordered_mask != 0 ? hr_min(width, 128) : width;
    width = kernel->ordered_mask != 0 && is_scattered_by_columns(draft, kernel) ? SCATTERED_COLUMNS : width;
    bool is_resident = false;
    for (int r = 0; r < kernel->register_count; ++r) {
      is_resident |= kernel->registers[r].level == HR_LEVEL_ELEMENT &&
                     kernel->registers[r].last_phase > kernel->registers[r].phase;
    }
    width = is_resident ? hr_max(16, hr_min(width, COLUMN_RESIDENT / rows)) : width;
  }
  width = draft->plane.inner <= width + width / 4 ? draft->plane.inner : whole_runs(&draft->cut.inner, width);
  draft->plane.tile_inner = width;
  draft->plane.tile_outer = rows;
  draft->plane.block_inner = width;
  draft->plane.block_outer = rows;
  if (rows > HR_REDUCE_SEQUENTIAL_MAX || kernel->ordered_mask != 0) {
    draft->plane.block_outer = hr_min(hr_min(rows, HR_REDUCE_RUN), hr_max(1, HR__BLOCK / hr_max(1, width)));
  }
}

/* True if chunks of a row should be units: few long rows, with only reductions over their elements. */
static bool shall_split(const hr__draft *draft, const hr_kernel *kernel, int64_t tiles) {
  if (kernel->reduce_mask == 0 || draft->row_elements <= HR_REDUCE_CHUNK || tiles >= SPLIT_TILES ||
      draft->row_elements * tiles * draft->plane.tile_inner < SPLIT_ELEMENTS || !draft->is_walked) {
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

void hr__plan_geometry(hr__draft *draft, const hr_kernel *kernel) {
  uint32_t walked_mask = kernel->reduce_mask | kernel->ordered_mask;
  bool is_innermost_walked = hr_kernel_split_dims(kernel, walked_mask, &draft->cut.kept, &draft->cut.reduced);
  draft->row_elements = product(&draft->cut.reduced, 0, draft->cut.reduced.rank);
  bool is_rows = kernel->reduce_mask != 0 ? kernel->order == HR_ORDER_LANES : is_innermost_walked;
  if (walked_mask == 0) {
    draft->row_elements = 0;
    cut_pointwise(draft, kernel);
  } else if (is_rows) {
    cut_rows(draft);
  } else {
    cut_columns(draft, kernel);
  }
  draft->batch_count = product(&draft->cut.batch, 0, draft->cut.batch.rank);
  draft->plane.tiles_outer = draft->walk == HR__WALK_OUTER ? 1 : ceil_div(draft->plane.outer, draft->plane.tile_outer);
  draft->plane.tiles_inner = draft->walk == HR__WALK_INNER ? 1 : ceil_div(draft->plane.inner, draft->plane.tile_inner);
  draft->is_walked =
      draft->plane.block_outer < draft->plane.tile_outer || draft->plane.block_inner < draft->plane.tile_inner;
  draft->chunk = hr_kernel_chunk(kernel->order);
  draft->chunk_count = ceil_div(draft->row_elements, draft->chunk);
  int64_t tiles = draft->batch_count * draft->plane.tiles_outer * draft->plane.tiles_inner;
  draft->is_split = shall_split(draft, kernel, tiles);
}

static void put(hr__draft *draft, int64_t number) {
  draft->numbers[draft->number_count++] = number;
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

/* Appends the dims of one side, merged as far as this access allows; returns their number, at least 1. */
static int put_axes(hr__draft *draft, const hr_access *access, const hr_dims *dims) {
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
  for (int d = 1; d < n; ++d) {
    put(draft, merged[d]);
  }
  for (int c = 0; c < coords; ++c) {
    for (int d = 0; d < n; ++d) {
      put(draft, strides_of(access, c)[source[d]]);
    }
    if (n == 0) { /* no dim: one of stride 0 */
      put(draft, 0);
    }
  }
  return n == 0 ? 1 : n;
}

/* Appends the first coordinates, and their strides along the batch. */
static void put_starts(hr__draft *draft, const hr_access *access) {
  const hr_dims *batch = &draft->cut.batch;
  for (int c = 0; c <= access->bound_count; ++c) {
    put(draft, c == 0 ? access->offset : access->bounds[c - 1].offset);
  }
  for (int c = 0; c <= access->bound_count; ++c) {
    for (int d = 0; d < batch->rank; ++d) {
      put(draft, strides_of(access, c)[batch->source[d]]);
    }
  }
}

static unsigned vary_of(const hr__draft *draft, const hr_access *access) {
  return (has_stride(access, &draft->cut.batch) ? (unsigned)HR__BATCH : 0) |
         (has_stride(access, &draft->cut.outer) ? (unsigned)HR__OUTER : 0) |
         (has_stride(access, &draft->cut.inner) ? (unsigned)HR__INNER : 0);
}

/* Removes the numbers from `begin` on if the ones at `earlier` are equal. */
static bool share(hr__draft *draft, int begin, int earlier) {
  int count = draft->number_count - begin;
  bool is = earlier + count <= begin;
  for (int i = 0; is && i < count; ++i) {
    is = draft->numbers[earlier + i] == draft->numbers[begin + i];
  }
  draft->number_count = is ? begin : draft->number_count;
  return is;
}

/* The position of the numbers from `begin` on, one of a map's lists, whose position is the member at `member` bytes: it
 * may be that of one of the maps before, or it is where `like` has it. */
static int position_of(hr__draft *draft, int begin, const hr__map *like, size_t member) {
  enum { MAPS_BEFORE = 4 };
  int first = draft->map_count > MAPS_BEFORE ? draft->map_count - MAPS_BEFORE : 0, found = begin;
  if (like != NULL) {
    int earlier = *(const int16_t *)(const void *)((const char *)like + member);
    return earlier < begin && share(draft, begin, earlier) ? earlier : begin;
  }
  for (int m = draft->map_count - 1; found == begin && m >= first; --m) {
    int earlier = *(const int16_t *)(const void *)((const char *)&draft->maps[m] + member);
    found = share(draft, begin, earlier) ? earlier : begin;
  }
  return found;
}

void hr__plan_map(hr__draft *draft, const hr_access *access, const hr__map *like, hr__map *out_map) {
  hr__map map = {
      .arg = access->arg, .coords = (uint8_t)(access->bound_count + 1), .fill = -1, .base = draft->coord_count};
  map.dtype = (uint8_t)access->dtype, map.size = (uint8_t)hr_dtype_size(access->dtype);
  map.vary = (uint8_t)vary_of(draft, access);
  map.term_count = access->term_count, map.term_first = draft->term_count;
  int begin = draft->number_count;
  put_starts(draft, access);
  map.offset = (int16_t)position_of(draft, begin, like, offsetof(hr__map, offset));
  begin = draft->number_count;
  map.outer_rank = put_axes(draft, access, &draft->cut.outer);
  map.outer = (int16_t)position_of(draft, begin, like, offsetof(hr__map, outer));
  begin = draft->number_count;
  map.inner_rank = put_axes(draft, access, &draft->cut.inner);
  map.inner = (int16_t)position_of(draft, begin, like, offsetof(hr__map, inner));
  map.extent = draft->number_count;
  for (int b = 0; b < access->bound_count; ++b) {
    put(draft, access->bounds[b].extent);
  }
  map.terms = draft->number_count;
  for (int t = 0; t < access->term_count; ++t) {
    draft->terms[draft->term_count++] = access->terms[t].reg;
    put(draft, access->terms[t].stride);
    put(draft, access->terms[t].extent);
  }
  draft->coord_count += map.coords;
  *out_map = map;
}

/* Counts the numbers, at most, and the terms of maps of all accesses that instructions have. */
static void count_numbers(const hr_kernel *kernel, size_t *out_numbers, size_t *out_terms) {
  size_t rank = (size_t)kernel->rank, numbers = rank, terms = 0;
  for (int k = 0; k < kernel->instr_count; ++k) {
    const hr_access *access = kernel->instrs[k].access >= 0 ? &kernel->accesses[kernel->instrs[k].access] : NULL;
    size_t coords = access != NULL ? (size_t)access->bound_count + 1 : 0;
    size_t own = access != NULL ? (size_t)access->term_count : 0;
    numbers += coords * (1 + rank) + (coords > 0 ? rank : 0) + coords * (rank + 2) + coords + 2 * own;
    terms += own;
  }
  *out_numbers = numbers, *out_terms = terms;
}

bool hr__plan_fits_form(const hr_kernel *kernel) {
  size_t numbers, terms;
  count_numbers(kernel, &numbers, &terms);
  int64_t registers = (int64_t)kernel->instr_count * HR__INSTR_REGISTERS_MAX + kernel->register_count +
                      (int64_t)kernel->scalar_count * HR_CLASS_COUNT;
  return registers <= HR__FORM_MAX && numbers <= HR__FORM_MAX && terms <= HR__FORM_MAX &&
         kernel->access_count <= HR__FORM_MAX && kernel->arg_count <= HR__FORM_MAX;
}

bool hr__plan_reserve(hr__draft *draft, const hr_kernel *kernel) {
  size_t numbers, terms;
  count_numbers(kernel, &numbers, &terms);
  draft->numbers = hr_arena_alloc(draft->arena, (numbers + 1) * sizeof *draft->numbers);
  draft->terms = hr_arena_alloc(draft->arena, (terms + 1) * sizeof *draft->terms);
  if (draft->numbers == NULL || draft->terms == NULL) {
    return false;
  }
  for (int d = 0; d < draft->cut.batch.rank; ++d) {
    put(draft, draft->cut.batch.dims[d]);
  }
  return true;
}
