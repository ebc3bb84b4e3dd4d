/* Element-wise kernels: a unit is a tile of at most 1,024 elements, dense in the innermost dims.
 *
 *   domain [64, 28, 28]   tile [1, 28, 28]      domain [5000000]   tile [1024], the last one shorter
 *                                               domain [7]         tile [1024], shorter: as for any other length
 *
 * If an indirect access would not be a line in such a tile, tiles are pieces of the innermost dim alone: tables of rows
 * and columns become one row and a line of columns.
 *
 *   for (unit ...) { c0 = ...; p0 = args[0] + (c0 * 784); ... one block ... }
 *
 * Kernels of f16 whose accesses are all dense have tiles of 16 elements instead. Compilers find the hardware's
 * conversions in no loop over elements. They do keep a vector of 16 in registers from the first conversion, through
 * loops of at most that length, to the last conversion.
 *
 * If loads are transposed, a unit has as many tiles along the dim in which those loads are dense as fill whole cache
 * lines. It first transposes its loads into scratch:
 *
 *   for (unit ...) {
 *     g0 = ...; q1 = scratch; hr_turn_4(q1, ...);
 *     for (c0 = g0; c0 < stop; ++c0) { p1 = q1 + ...; ... one block ... }
 *   }
 *
 * A repeated kernel runs all its iterations on one tile after another. If the domain is one element, its arguments are
 * variables meanwhile, which compilers keep in registers:
 *
 *   m0 = *(args[0] + ...); p0 = &m0;   for (i < times) { ... one block ... }   *(args[0] + ...) = m0;
 */
#include <stdio.h>

#include "base/integer.h"
#include "compiler/emit_internal.h"

enum { TURNED_BLOCK = 256, TURNED_ROWS = 64, STRIP = 16 };

typedef struct tile {
  int first;             /* the dim that is split: those before it have one element in the tile, those after it all */
  int64_t piece, pieces; /* of that dim */
  int64_t inner;         /* elements of the dims after it */
  hr__emit_extent all;   /* elements of that dim, if it is the outermost and has a shorter last piece */
  int along;             /* the dim along which a unit has several tiles, for transposed loads; -1: none */
  int64_t group;         /* its elements in a unit */
  int64_t columns;       /* elements of a tile for each of them, at most */
  int64_t *turns;        /* by access: the place of its transposed copy in scratch; -1: none */
  int64_t *pitch;        /* ... and the stride of its columns */
} tile;

enum { LINE_MIN = 16 }; /* elements of an innermost dim that is worth a tile */

static tile choose_tile(const hr_dims *kept, int64_t most, bool is_line) {
  tile t = {.first = kept->rank, .inner = 1, .piece = 1, .pieces = 1, .along = -1};
  while (!is_line && t.first > 0 && t.inner * kept->dims[t.first - 1] <= most) {
    t.inner *= kept->dims[--t.first];
  }
  if (t.first == 0) { /* everything is one tile: cut the first dim into one piece */
    if (kept->rank > 0) {
      bool is_any = kept->rank == 1 && kept->dims[0] > 0; /* one text for all lengths */
      t.piece = is_any ? most : kept->dims[0];
      t.inner = is_any ? 1 : t.inner / t.piece;
    }
    return t;
  }
  --t.first;
  int64_t dim = kept->dims[t.first];
  t.piece = most / t.inner < dim ? most / t.inner : dim;
  t.pieces = hr_divide_up(dim, t.piece);
  return t;
}

/* Elements of dim d, which is not after the first, in a unit. */
static int64_t unit_extent(const tile *t, int d) {
  return d == t->along ? t->group : d == t->first ? t->piece : 1;
}

static int64_t unit_count(const tile *t, const hr_dims *kept, int d) {
  int64_t extent = unit_extent(t, d);
  return (kept->dims[d] + extent - 1) / extent;
}

/* The number of elements of a tile whose first dim ends at `end`. */
static void emit_count(hr__emitter *e, const tile *t, const char *end) {
  int64_t dim = e->kept.dims[t->first];
  if (dim == t->piece || dim % t->piece == 0) {
    HR__EMIT(e, "const int64_t n = %lld;\n", (long long)(t->piece * t->inner));
  } else {
    HR__EMIT(e, "const int64_t n = (%s - c%d < %lld ? %s - c%d : %lld) * %lld;\n", end, t->first, (long long)t->piece,
             end, t->first, (long long)t->piece, (long long)t->inner);
  }
}

/* The start of a unit: "c2", or "g2" of the dim along which it has several tiles. */
static void emit_places(hr__emitter *e, const tile *t) {
  const hr_dims *kept = &e->kept;
  HR__EMIT(e, "int64_t rest = unit;\n");
  for (int d = kept->rank == 0 ? -1 : t->first; d >= 0; --d) {
    long long count = (long long)unit_count(t, kept, d), extent = (long long)unit_extent(t, d);
    const char *name = d == t->along ? "g" : "c";
    if (d == 0) { /* for any length */
      HR__EMIT(e, "const int64_t %s0 = rest * %lld;\n", name, extent);
    } else {
      HR__EMIT(e, "const int64_t %s%d = rest %% %lld * %lld;\nrest /= %lld;\n", name, d, count, extent, count);
    }
  }
}

static void emit_pointers(hr__emitter *e, const tile *t) {
  int end = e->kept.rank == 0 ? 0 : t->first + 1;
  for (int a = 0; a < e->kernel->access_count; ++a) {
    if (t->along >= 0 && t->turns[a] >= 0) {
      const char *type = hr__emit_dtype(e->kernel->accesses[a].dtype);
      HR__EMIT(e, "HR__MEMORY_%s *const p%d = q%d + (c%d - g%d) * columns;\n", type, a, a, t->along, t->along);
    } else {
      hr__emit_pointer(e, a, &e->kept, 0, end, "c", NULL);
    }
  }
}

/* ---- transposed loads ---- */

/* The dim along which an access is dense while it strides along the innermost one, if a tile does not have all of it;
 * -1: none. */
static int transposed_dim(const hr__emitter *e, const hr_access *access, const tile *t) {
  int last = e->kept.rank - 1;
  int64_t step = last > 0 ? access->strides[e->kept.source[last]] : 0;
  if (access->arg < 0 || (step > -8 && step < 8)) {
    return -1;
  }
  for (int d = 0; d < last; ++d) {
    bool is_whole = d > t->first || (d == t->first && t->pieces == 1);
    if (access->strides[e->kept.source[d]] == 1 && e->kept.dims[d] >= 8 && !is_whole) {
      return d;
    }
  }
  return -1;
}

/* True if the columns of an access, the dims of a tile after `along`, have one constant stride. */
static bool has_even_columns(const hr__emitter *e, const hr_access *access, const tile *t, int64_t *out_pitch) {
  int from = t->along == t->first || t->piece == 1 ? t->first + 1 : t->first;
  hr__emit_axes axes;
  hr__emit_see(e->kernel, access, e->kept.rank - from, e->kept.dims + from, e->kept.source + from, false, &axes);
  *out_pitch = axes.strides[0][0];
  return axes.rank == 1 && axes.coords == 1 && access->term_count == 0;
}

static bool is_stored(const hr_kernel *kernel, int access) {
  for (int k = 0; k < kernel->instr_count; ++k) {
    if (kernel->instrs[k].kind == HR_INSTR_STORE && kernel->instrs[k].access == access) {
      return true;
    }
  }
  return false;
}

/* Transposed loads along one dim become dense ones of scratch. False with other transposed loads: the interpreter's
 * small squares are better for them. */
static bool find_turns(hr__emitter *e, tile *t) {
  const hr_kernel *kernel = e->kernel;
  for (int a = 0; a < kernel->access_count && t->along < 0; ++a) {
    t->along = transposed_dim(e, &kernel->accesses[a], t);
  }
  if (t->along < 0) {
    return true;
  }
  int along = t->along;
  *t = choose_tile(&e->kept, TURNED_BLOCK, false);
  t->along = along;
  int64_t dim = e->kept.dims[along], step = along == t->first ? t->piece : 1;
  t->group = TURNED_ROWS > step ? TURNED_ROWS / step * step : step;
  t->group = t->group < dim ? t->group : dim;
  t->columns = along == t->first ? t->inner : t->piece * t->inner;
  t->turns = HR_ARENA_ARRAY(&e->arena, int64_t, (size_t)kernel->access_count + 1);
  t->pitch = HR_ARENA_ARRAY(&e->arena, int64_t, (size_t)kernel->access_count + 1);
  if (t->turns == NULL || t->pitch == NULL) {
    e->text->failed = true;
    return true;
  }
  for (int a = 0; a < kernel->access_count; ++a) {
    const hr_access *access = &kernel->accesses[a];
    int dim_of = transposed_dim(e, access, t);
    t->turns[a] = -1;
    if (dim_of < 0) {
      continue;
    }
    if (dim_of != along || !has_even_columns(e, access, t, &t->pitch[a]) || is_stored(kernel, a)) {
      return false;
    }
    t->turns[a] = hr__emit_reserve(e, t->group * t->columns * (int64_t)hr_dtype_size(access->dtype));
  }
  return true;
}

/* Transposes the loads of a unit. */
static void emit_turns(hr__emitter *e, const tile *t) {
  for (int a = 0; a < e->kernel->access_count; ++a) {
    if (t->turns[a] < 0) {
      continue;
    }
    const hr_access *access = &e->kernel->accesses[a];
    const char *type = hr__emit_dtype(access->dtype);
    HR__EMIT(e, "HR__MEMORY_%s *const q%d = (HR__MEMORY_%s *)(scratch + %lld);\n{\n", type, a, type,
             (long long)t->turns[a]);
    HR__EMIT(e, "const int64_t c%d = g%d;\n", t->along, t->along);
    hr__emit_pointer(e, a, &e->kept, 0, t->first + 1, "c", NULL);
    HR__EMIT(e, "hr_turn_%d(q%d, p%d, 0, (stop - g%d) * columns, columns, columns, stop - g%d, 0, %lld);\n}\n",
             (int)hr_dtype_size(access->dtype), a, a, t->along, t->along, (long long)t->pitch[a]);
  }
}

/* Opens the loop over the tiles of a unit. */
static void open_group(hr__emitter *e, const tile *t) {
  long long dim = (long long)e->kept.dims[t->along], group = (long long)t->group;
  HR__EMIT(e, "const int64_t stop = g%d + %lld < %lld ? g%d + %lld : %lld;\n", t->along, group, dim, t->along, group,
           dim);
  if (t->along == t->first) {
    HR__EMIT(e, "const int64_t columns = %lld;\n", (long long)t->columns);
  } else {
    char end[24];
    snprintf(end, sizeof end, "%lld", (long long)e->kept.dims[t->first]);
    emit_count(e, t, end);
    HR__EMIT(e, "const int64_t columns = n;\n");
  }
  emit_turns(e, t);
  HR__EMIT(e, "for (int64_t c%d = g%d; c%d < stop; c%d += %lld) {\n", t->along, t->along, t->along, t->along,
           (long long)(t->along == t->first ? t->piece : 1));
  if (t->along == t->first) {
    emit_count(e, t, "stop");
  }
}

/* ---- the kernel ---- */

/* Finds the layout of accesses in a tile; true if all indirect ones are lines. */
static bool see_accesses(hr__emitter *e, const tile *t) {
  const hr_kernel *kernel = e->kernel;
  int from = t->piece == 1 && t->inner > 1 ? t->first + 1 : t->first; /* one element of a dim is no step along it */
  int rank = e->kept.rank == 0 ? 0 : e->kept.rank - from;
  bool are_lines = true;
  for (int a = 0; a < kernel->access_count; ++a) {
    if (t->along >= 0 && t->turns[a] >= 0) {
      e->axes[a] = (hr__emit_axes){
          .lie = HR__LIE_DIRECT, .rank = 1, .coords = 1, .dims = {t->piece * t->inner}, .strides = {{1}}};
    } else {
      hr__emit_see(kernel, &kernel->accesses[a], rank, e->kept.dims + from, e->kept.source + from,
                   rank > 0 && from == t->first && e->kept.dims[from] != t->piece, &e->axes[a]);
    }
    are_lines &= kernel->accesses[a].term_count == 0 || e->axes[a].lie != HR__LIE_RAGGED;
  }
  return are_lines;
}

/* Tiles of one line, for indirect accesses that are lines there; false: such tiles don't help. */
static bool take_lines(hr__emitter *e, tile *t) {
  int64_t line = e->kept.rank == 0 ? 0 : e->kept.dims[e->kept.rank - 1];
  *t = choose_tile(&e->kept, HR__EMIT_BLOCK, true);
  bool takes = (line >= LINE_MIN || e->target == NULL) && see_accesses(e, t);
  for (int a = 0; takes && a < e->kernel->access_count; ++a) {
    takes = transposed_dim(e, &e->kernel->accesses[a], t) < 0;
  }
  return takes;
}

/* True if a kernel converts halves, of numbers that differ, has neither bounds nor indices, and makes no random
 * numbers, which come in longer runs. */
static bool is_for_strips(const hr_kernel *kernel) {
  bool has_halves = false, is_plain = true, is_filled = true;
  for (int k = 0; k < kernel->instr_count; ++k) {
    const hr_instr *instr = &kernel->instrs[k];
    is_filled &= instr->kind != HR_INSTR_LOAD && instr->kind != HR_INSTR_INDEX;
    has_halves |= instr->kind == HR_INSTR_CONVERT && instr->to == HR_DTYPE_F16;
    is_plain &= instr->kind != HR_INSTR_COMPUTE || hr_op_table(instr->op)->rule != HR_RULE_SEEDED;
  }
  for (int a = 0; a < kernel->access_count; ++a) {
    has_halves |= kernel->accesses[a].dtype == HR_DTYPE_F16;
    is_plain &= kernel->accesses[a].term_count == 0 && kernel->accesses[a].bound_count == 0;
  }
  return has_halves && is_plain && !is_filled;
}

/* Tiles of a strip, if a kernel qualifies and is dense there. */
static bool take_strips(hr__emitter *e, tile *t) {
  tile strip = choose_tile(&e->kept, STRIP, false);
  if (!is_for_strips(e->kernel) || e->kept.rank == 0 || t->along >= 0 || strip.piece * strip.inner != STRIP ||
      e->kept.dims[strip.first] % strip.piece != 0) {
    return false;
  }
  bool takes = see_accesses(e, &strip);
  for (int a = 0; takes && a < e->kernel->access_count; ++a) {
    takes = e->axes[a].lie == HR__LIE_DIRECT || e->axes[a].lie == HR__LIE_UNIFORM;
  }
  if (takes) {
    *t = strip;
  } else {
    (void)see_accesses(e, t);
  }
  return takes;
}

/* ---- repeated kernels ---- */

/* The store of a written argument, which other accesses to it equal; -1: it is not written. */
static int store_of(const hr_kernel *kernel, int arg) {
  for (int a = 0; arg >= 0 && a < kernel->access_count; ++a) {
    if (kernel->accesses[a].arg == arg && is_stored(kernel, a)) {
      return a;
    }
  }
  return -1;
}

/* Pointers to variables with the values of written arguments. */
static void emit_variables(hr__emitter *e) {
  const hr_kernel *kernel = e->kernel;
  for (int a = 0; a < kernel->access_count; ++a) {
    const hr_access *access = &kernel->accesses[a];
    const char *type = hr__emit_dtype(access->dtype);
    if (store_of(kernel, access->arg) == a) {
      HR__EMIT(e, "HR__MEMORY_%s *const w%d = (HR__MEMORY_%s *)args[%d] + (", type, access->arg, type, access->arg);
      hr__emit_base(e, access, 0, &e->kept, 0, 0, "c");
      HR__EMIT(e, ");\nHR__MEMORY_%s m%d = *w%d;\n", type, access->arg, access->arg);
    }
  }
  for (int a = 0; a < kernel->access_count; ++a) {
    const hr_access *access = &kernel->accesses[a];
    if (store_of(kernel, access->arg) >= 0) {
      HR__EMIT(e, "HR__MEMORY_%s *const p%d = &m%d;\n", hr__emit_dtype(access->dtype), a, access->arg);
    } else {
      hr__emit_pointer(e, a, &e->kept, 0, 0, "c", NULL);
    }
  }
}

static void emit_results(hr__emitter *e) {
  for (int arg = 0; arg < e->kernel->arg_count; ++arg) {
    if (store_of(e->kernel, arg) >= 0) {
      HR__EMIT(e, "*w%d = m%d;\n", arg, arg);
    }
  }
}

hr_status hr__emit_points(hr__emitter *e, const char *name, hr_emission *out_emission) {
  e->has_blocks = true;
  const hr_kernel *kernel = e->kernel;
  tile t = choose_tile(&e->kept, HR__EMIT_BLOCK, false);
  if (!find_turns(e, &t) || (kernel->is_repeated && t.along >= 0)) {
    return hr__emit_unable(kernel, "transposed accesses");
  }
  if (!e->text->failed && !see_accesses(e, &t) && (t.along >= 0 || !take_lines(e, &t))) {
    return hr__emit_unable(kernel, "an indirect access that is not a line");
  }
  if (e->text->failed) {
    return HR_OK;
  }
  const bool is_strip = take_strips(e, &t);
  int64_t units = 1, each = t.piece * t.inner;
  for (int d = 0; d < e->kept.rank; ++d) {
    units = d <= t.first ? units * unit_count(&t, &e->kept, d) : units;
    units = e->kept.dims[d] == 0 ? 0 : units;
  }
  hr__emit_find_uniform(e);
  HR_RETURN_IF_ERROR(hr__emit_worth(e, 0));
  snprintf(t.all.text, sizeof t.all.text, "%lld", e->kept.rank == 0 ? 1 : (long long)e->kept.dims[t.first]);
  bool is_cut = t.first == 0 && e->kept.rank > 0 && e->kept.dims[0] != t.piece && e->kept.dims[0] % t.piece != 0;
  if (t.along < 0 && is_cut) {
    t.all = hr__emit_runtime(e, e->kept.dims[0]);
  }
  hr__emit_head(e, name, 0);
  if (kernel->is_repeated) {
    HR__EMIT(e, "const int64_t times = scalars[%d].value.i;\n", kernel->scalar_count - 1);
  }
  HR__EMIT(e, "for (int64_t unit = begin; unit < end; ++unit) {\n");
  emit_places(e, &t);
  if (t.along >= 0) {
    open_group(e, &t);
    each = t.group * t.columns;
  } else if (e->kept.rank == 0) {
    HR__EMIT(e, "const int64_t n = 1;\n");
  } else {
    emit_count(e, &t, t.all.text);
  }
  const bool is_variable = kernel->is_repeated && e->kept.rank == 0;
  if (is_variable) {
    emit_variables(e);
  } else {
    emit_pointers(e, &t);
  }
  if (kernel->is_repeated) {
    HR__EMIT(e, "for (int64_t turn = 0; turn < times; ++turn) {\n");
  }
  hr__emit_block block = {.count = "n", .capacity = t.piece * t.inner, .is_strip = is_strip};
  hr__emit_uniform(e, 0, HR_LEVEL_ELEMENT);
  hr__emit_stages(e, 0, &block);
  if (kernel->is_repeated) {
    HR__EMIT(e, "}\n");
  }
  if (is_variable) {
    emit_results(e);
  }
  HR__EMIT(e, t.along >= 0 ? "}\n}\n}\n" : "}\n}\n");
  out_emission->pass_count = 1;
  out_emission->piece = t.first == 0 && e->kept.rank == 1 && t.along < 0 ? t.piece : 0;
  out_emission->units[0] = units;
  out_emission->grain[0] = hr__emit_grain(kernel, each);
  return HR_OK;
}
