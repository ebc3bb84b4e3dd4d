/* Element-wise kernels: a unit is a tile of at most 1,024 elements, dense in the innermost dims.
 *
 *   domain [64, 28, 28]   tile [1, 28, 28]      domain [5000000]   tile [1024], the last one shorter
 *
 * Where an indirect access would not be a line in such a tile, tiles are pieces of the innermost dim alone: tables of rows and columns
 * become one row and a line of columns.
 *
 *   for (unit ...) { c0 = ...; p0 = args[0] + (c0 * 784); ... one block ... }
 */
#include "compiler/emit_internal.h"

typedef struct tile {
  int first;             /* the dim that is cut: those before it have one element in the tile, those after it all */
  int64_t piece, pieces; /* of that dim */
  int64_t inner;         /* elements of the dims after it */
  hr__emit_extent all;   /* elements of that dim, where it is the outermost and has a shorter last piece */
} tile;

enum { LINE_MIN = 16 }; /* elements of an innermost dim that is worth a tile */

static tile choose_tile(const hr_dims *kept, bool is_line) {
  tile t = {.first = kept->rank, .inner = 1, .piece = 1, .pieces = 1};
  while (!is_line && t.first > 0 && t.inner * kept->dims[t.first - 1] <= HR__EMIT_BLOCK) {
    t.inner *= kept->dims[--t.first];
  }
  if (t.first == 0) { /* everything is one tile: cut the first dim into one piece */
    if (kept->rank > 0) {
      t.piece = kept->dims[0];
      t.inner /= t.piece;
    }
    return t;
  }
  --t.first;
  int64_t dim = kept->dims[t.first];
  t.piece = HR__EMIT_BLOCK / t.inner < dim ? HR__EMIT_BLOCK / t.inner : dim;
  t.pieces = (dim + t.piece - 1) / t.piece;
  return t;
}

static void emit_places(hr__emitter *e, const tile *t) {
  const hr_dims *kept = &e->kept;
  HR__EMIT(e, "int64_t rest = unit;\n");
  if (kept->rank == 0) {
    HR__EMIT(e, "const int64_t n = 1;\n");
    return;
  }
  int64_t dim = kept->dims[t->first];
  if (t->first == 0 && t->pieces > 1) { /* however long it is */
    HR__EMIT(e, "const int64_t c0 = rest * %lld;\n", (long long)t->piece);
    if (dim % t->piece == 0) {
      HR__EMIT(e, "const int64_t n = %lld;\n", (long long)(t->piece * t->inner));
    } else {
      HR__EMIT(e, "const int64_t n = (%s - c0 < %lld ? %s - c0 : %lld) * %lld;\n", t->all.text, (long long)t->piece,
               t->all.text, (long long)t->piece, (long long)t->inner);
    }
  } else if (t->pieces == 1) {
    HR__EMIT(e, "const int64_t c%d = 0, n = %lld;\n", t->first, (long long)(t->piece * t->inner));
  } else {
    HR__EMIT(e, "const int64_t c%d = rest %% %lld * %lld;\nrest /= %lld;\n", t->first, (long long)t->pieces,
             (long long)t->piece, (long long)t->pieces);
    if (dim % t->piece == 0) {
      HR__EMIT(e, "const int64_t n = %lld;\n", (long long)(t->piece * t->inner));
    } else {
      HR__EMIT(e, "const int64_t n = (%lld - c%d < %lld ? %lld - c%d : %lld) * %lld;\n", (long long)dim, t->first,
               (long long)t->piece, (long long)dim, t->first, (long long)t->piece, (long long)t->inner);
    }
  }
  for (int d = t->first - 1; d >= 0; --d) {
    if (d == 0) {
      HR__EMIT(e, "const int64_t c0 = rest;\n");
    } else {
      HR__EMIT(e, "const int64_t c%d = rest %% %lld;\nrest /= %lld;\n", d, (long long)kept->dims[d],
               (long long)kept->dims[d]);
    }
  }
}

/* Transposed reads cost a cache line an element in such tiles: the interpreter's small squares are better. */
static bool is_transposed(const hr__emitter *e, const tile *t) {
  int last = e->kept.rank - 1;
  for (int a = 0; a < e->kernel->access_count && last > 0; ++a) {
    const hr_access *access = &e->kernel->accesses[a];
    int64_t step = access->strides[e->kept.source[last]];
    if (access->arg < 0 || (step > -8 && step < 8)) {
      continue;
    }
    for (int d = 0; d < last; ++d) {
      if (access->strides[e->kept.source[d]] == 1 && e->kept.dims[d] >= 8 && (d < t->first || t->pieces > 1)) {
        return true;
      }
    }
  }
  return false;
}

/* How accesses lie in a tile; whether all indirect ones are lines. */
static bool see_accesses(hr__emitter *e, const tile *t) {
  const hr_kernel *kernel = e->kernel;
  int rank = e->kept.rank == 0 ? 0 : e->kept.rank - t->first;
  bool are_lines = true;
  for (int a = 0; a < kernel->access_count; ++a) {
    hr__emit_see(kernel, &kernel->accesses[a], rank, e->kept.dims + t->first, e->kept.source + t->first, t->pieces > 1,
                 &e->axes[a]);
    are_lines &= kernel->accesses[a].term_count == 0 || e->axes[a].lie != HR__LIE_RAGGED;
  }
  return are_lines;
}

hr_status hr__emit_points(hr__emitter *e, const char *name, hr_emission *out_emission) {
  e->has_blocks = true;
  const hr_kernel *kernel = e->kernel;
  tile t = choose_tile(&e->kept, false);
  if (!see_accesses(e, &t)) {
    t = choose_tile(&e->kept, true);
    int64_t line = e->kept.rank == 0 ? 0 : e->kept.dims[e->kept.rank - 1];
    if ((line < LINE_MIN && e->target != NULL) || !see_accesses(e, &t)) {
      return hr__emit_unable(kernel, "an indirect access that is not a line");
    }
  }
  if (is_transposed(e, &t)) {
    return hr__emit_unable(kernel, "transposed reads");
  }
  int64_t units = t.pieces;
  for (int d = 0; d < t.first && d < e->kept.rank; ++d) {
    units *= e->kept.dims[d];
  }
  for (int d = 0; d < e->kept.rank; ++d) {
    units = e->kept.dims[d] == 0 ? 0 : units;
  }
  int end = e->kept.rank == 0 ? 0 : t.first + 1;
  HR_RETURN_IF_ERROR(hr__emit_worth(e, 0));
  hr__emit_find_uniform(e);
  if (t.first == 0 && t.pieces > 1 && e->kept.dims[0] % t.piece != 0) {
    t.all = hr__emit_runtime(e, e->kept.dims[0]);
  }
  hr__emit_head(e, name, 0);
  HR__EMIT(e, "for (int64_t unit = begin; unit < end; ++unit) {\n");
  emit_places(e, &t);
  for (int a = 0; a < kernel->access_count; ++a) {
    hr__emit_pointer(e, a, &e->kept, 0, end, "c", NULL);
  }
  hr__emit_block block = {.count = "n", .capacity = t.piece * t.inner};
  hr__emit_uniform(e, 0, HR_LEVEL_ELEMENT);
  hr__emit_stages(e, 0, &block);
  HR__EMIT(e, "}\n}\n");
  out_emission->pass_count = 1;
  out_emission->units[0] = units;
  out_emission->grain[0] = hr__emit_grain(kernel, t.piece * t.inner);
  return HR_OK;
}
