/* Loads, stores and index numbers over a rectangle of the plane.
 *
 * A rectangle is walked as rows of one side (A) by runs of the other (B), with an odometer: it divides once for each
 * rectangle. Evenly spaced runs are processed together, as rows x cols with strides, so that short ones (the 14 or 28
 * elements of an image row) cost little. Bounds cut a run into outside, inside, outside.
 */
#include <string.h>

#include "core/math/convert.h"
#include "interp/interp_plan.h"

enum { COORDS_MAX = 1 + HR__BOUNDS_MAX };

static const int64_t unit_strides[COORDS_MAX]; /* zeros: a side that the step does not run along */

/* The operation on each piece. */
typedef struct piece_op {
  hr__copy_fn copy; /* NULL: index numbers, or a combining store */
  bool is_store;
  const hr__reduce_loops *combine; /* stores that combine */
  hr__copy_fn widen;
  void *temp;
  char *reg; /* register side; steps in elements of it */
  int64_t reg_row, reg_col;
  int reg_size;
  char *memory;
  int memory_size;
  const char *fill; /* one element of the register, for loads */
  hr__copy_fn fill_copy;
  const int64_t *row_offsets; /* added to the address of each row of A, in elements; NULL: none */
} piece_op;

/* The side of the plane that a step runs over, as the walk's A and B. */
typedef struct sides {
  hr__axes a, b;
  int64_t a0, an, b0, bn;
} sides;

static sides sides_of(const hr__frame *f, const hr__map *map, unsigned space) {
  sides s = {{1, NULL, unit_strides}, {1, NULL, unit_strides}, 0, 1, 0, 1};
  if (space == HR__OUTER) {
    s.b = hr__outer_axes(map, f->numbers), s.b0 = f->o0, s.bn = f->on;
    return s;
  }
  if ((space & HR__OUTER) != 0) {
    s.a = hr__outer_axes(map, f->numbers), s.a0 = f->o0, s.an = f->on;
  }
  if ((space & HR__INNER) != 0) {
    s.b = hr__inner_axes(map, f->numbers), s.b0 = f->i0, s.bn = f->in;
  }
  return s;
}

static void number_piece(char *reg, int64_t at, int64_t rows, int64_t cols, int64_t mem_row, int64_t mem_col,
                         int64_t reg_row) {
  for (int64_t r = 0; r < rows; ++r) {
    int64_t *to = (int64_t *)(void *)reg + r * reg_row, start = at + r * mem_row;
    for (int64_t i = 0; i < cols; ++i) {
      to[i] = start + i * mem_col;
    }
  }
}

/* memory = combine(memory, register) for runs of different elements. */
static void combine_piece(const piece_op *op, char *reg, char *memory, int64_t rows, int64_t cols, int64_t mem_row,
                          int64_t reg_row) {
  for (int64_t r = 0; r < rows; ++r) {
    char *to = memory + r * mem_row * op->memory_size;
    const char *from = reg + r * reg_row * op->reg_size;
    if (op->widen == NULL) {
      op->combine->columns(to, from, 1, cols, 0);
    } else {
      op->widen(&(hr__copy){op->temp, to, 1, cols, 0, 1, 0, 1});
      op->combine->columns(op->temp, from, 1, cols, 0);
      op->copy(&(hr__copy){to, op->temp, 1, cols, 0, 1, 0, 1});
    }
  }
}

/* rows x cols elements at address `at`, from register element (a, b) on; steps between rows on both sides. */
static void rectangle(const piece_op *op, int64_t at, int64_t a, int64_t b, int64_t rows, int64_t cols, int64_t mem_row,
                      int64_t mem_col, int64_t reg_row) {
  char *reg = op->reg + (a * op->reg_row + b * op->reg_col) * op->reg_size;
  char *memory = op->memory + at * op->memory_size;
  if (op->combine != NULL) {
    combine_piece(op, reg, memory, rows, cols, mem_row, reg_row);
  } else if (op->copy == NULL) {
    number_piece(reg, at, rows, cols, mem_row, mem_col, reg_row);
  } else if (op->is_store) {
    op->copy(&(hr__copy){memory, reg, rows, cols, mem_row, mem_col, reg_row, op->reg_col});
  } else {
    op->copy(&(hr__copy){reg, memory, rows, cols, reg_row, op->reg_col, mem_row, mem_col});
  }
}

/* Writes the fill to `rows` x `cols` elements of the register, `reg_row` apart; stores skip elements outside. */
static void fill_rows(const piece_op *op, int64_t a, int64_t b, int64_t rows, int64_t cols, int64_t reg_row) {
  if (op->fill != NULL && cols > 0 && rows > 0) {
    char *reg = op->reg + (a * op->reg_row + b * op->reg_col) * op->reg_size;
    op->fill_copy(&(hr__copy){reg, op->fill, rows, cols, reg_row, 1, 0, 0});
  }
}

/* The coordinates of a map: the address, and those that must be in [0, extent). */
typedef struct bounds {
  int coords;
  const int64_t *extents; /* [coords - 1] */
} bounds;

static void bounded_piece(const piece_op *op, const bounds *inside, const int64_t *at, const hr__axes *axes, int64_t a,
                          int64_t b, int64_t cols) {
  int last = axes->rank - 1;
  int64_t low = 0, high = cols;
  for (int c = 1; c < inside->coords; ++c) {
    hr__clip(at[c], axes->strides[c * axes->rank + last], inside->extents[c - 1], &low, &high);
  }
  if (high <= low) {
    low = high = cols;
  }
  int64_t step = axes->strides[last];
  fill_rows(op, a, b, 1, low, 0);
  if (high > low) {
    rectangle(op, at[0] + low * step, a, b + low, 1, high - low, 0, step, 0);
  }
  fill_rows(op, a, b + high, 1, cols - high, 0);
}

/* Processes `rows` whole runs of B's innermost dim if every bound depends on the run or on the position in it, but not
 * on both: then the part inside is a rectangle. Else false. */
static bool bounded_rows(const piece_op *op, const bounds *inside, const int64_t *at, const hr__axes *axes, int64_t a,
                         int64_t b, int64_t rows, int64_t cols) {
  int last = axes->rank - 1;
  int64_t left = 0, right = cols, top = 0, bottom = rows;
  for (int c = 1; c < inside->coords; ++c) {
    int64_t along = axes->strides[c * axes->rank + last], across = axes->strides[c * axes->rank + last - 1];
    if (along != 0 && across != 0) {
      return false;
    }
    if (along != 0) {
      hr__clip(at[c], along, inside->extents[c - 1], &left, &right);
    } else {
      hr__clip(at[c], across, inside->extents[c - 1], &top, &bottom);
    }
  }
  if (right <= left || bottom <= top) {
    fill_rows(op, a, b, 1, rows * cols, 0);
    return true;
  }
  fill_rows(op, a, b, 1, top * cols, 0);
  fill_rows(op, a, b + top * cols, bottom - top, left, cols);
  fill_rows(op, a, b + top * cols + right, bottom - top, cols - right, cols);
  fill_rows(op, a, b + bottom * cols, 1, (rows - bottom) * cols, 0);
  int64_t mem_row = axes->strides[last - 1], mem_col = axes->strides[last];
  rectangle(op, at[0] + top * mem_row + left * mem_col, a, b + top * cols + left, bottom - top, right - left, mem_row,
            mem_col, cols * op->reg_col);
  return true;
}

/* The position of element `index` of a side in each dim, and its contribution to the coordinates. */
static void enter(const hr__axes *axes, int coords, int64_t index, int64_t *out_place, int64_t *at) {
  for (int d = axes->rank - 1; d >= 0; --d) {
    int64_t dim = d == 0 ? 0 : axes->later_dims[d - 1];
    out_place[d] = d == 0 ? index : index % dim;
    index = d == 0 ? 0 : index / dim;
    for (int c = 0; c < coords; ++c) {
      at[c] += out_place[d] * axes->strides[c * axes->rank + d];
    }
  }
}

/* Advances by `steps` along dim d and carries into the outer dims. */
static void advance(const hr__axes *axes, int coords, int d, int64_t steps, int64_t *place, int64_t *at) {
  int rank = axes->rank;
  place[d] += steps;
  for (int c = 0; c < coords; ++c) {
    at[c] += steps * axes->strides[c * rank + d];
  }
  while (d > 0 && place[d] == axes->later_dims[d - 1]) {
    for (int c = 0; c < coords; ++c) {
      at[c] += axes->strides[c * rank + d - 1] - place[d] * axes->strides[c * rank + d];
    }
    place[d] = 0;
    ++place[--d];
  }
}

/* Walks one row of A: its runs along B. `at` and `place` describe the first element and are overwritten. */
static void walk_row(const piece_op *op, const bounds *inside, const sides *s, int64_t a, int64_t *place, int64_t *at) {
  int coords = inside->coords, rank = s->b.rank, last = rank - 1;
  int64_t dim = rank > 1 ? s->b.later_dims[last - 1] : 0, step = s->b.strides[last];
  for (int64_t b = 0; b < s->bn;) {
    int64_t left = s->bn - b, run = dim - place[last];
    if (rank > 1 && place[last] == 0 && left >= 2 * dim) {
      int64_t rows = left / dim, room = rank > 2 ? s->b.later_dims[last - 2] - place[last - 1] : rows;
      rows = rows < room ? rows : room;
      bool is_done = coords > 1 && bounded_rows(op, inside, at, &s->b, a, b, rows, dim);
      if (coords == 1) {
        rectangle(op, at[0], a, b, rows, dim, s->b.strides[last - 1], step, dim * op->reg_col);
        is_done = true;
      }
      if (is_done) {
        b += rows * dim;
        advance(&s->b, coords, last - 1, rows, place, at);
        continue;
      }
    }
    run = rank == 1 || run > left ? left : run;
    if (coords == 1) {
      rectangle(op, at[0], a, b, 1, run, 0, step, 0);
    } else {
      bounded_piece(op, inside, at, &s->b, a, b, run);
    }
    b += run;
    advance(&s->b, coords, last, run, place, at);
  }
}

static void walk(const hr__frame *f, const hr__map *map, const sides *s, const piece_op *op) {
  int64_t at[COORDS_MAX], place_a[HR_RANK_MAX], place_b[HR_RANK_MAX], row_at[COORDS_MAX], row_place[HR_RANK_MAX];
  int coords = map->coords;
  const bounds inside = {coords, f->numbers + map->extent};
  if (s->an == 0 || s->bn == 0) {
    return; /* a reduction over nothing */
  }
  memcpy(at, f->base + map->base, (size_t)coords * sizeof *at);
  if (coords == 1 && s->a.rank == 1 && s->b.rank == 1 && op->row_offsets == NULL) {
    int64_t start = at[0] + s->a0 * s->a.strides[0] + s->b0 * s->b.strides[0];
    rectangle(op, start, 0, 0, s->an, s->bn, s->a.strides[0], s->b.strides[0], op->reg_row);
    return;
  }
  enter(&s->a, coords, s->a0, place_a, at);
  enter(&s->b, coords, s->b0, place_b, at);
  for (int64_t a = 0; a < s->an; ++a) {
    memcpy(row_at, at, sizeof *at * (size_t)coords);
    memcpy(row_place, place_b, sizeof *place_b * (size_t)s->b.rank);
    if (op->row_offsets != NULL) {
      if (op->row_offsets[a] == INT64_MIN) {
        advance(&s->a, coords, s->a.rank - 1, 1, place_a, at);
        continue;
      }
      row_at[0] += op->row_offsets[a];
    }
    walk_row(op, &inside, s, a, row_place, row_at);
    advance(&s->a, coords, s->a.rank - 1, 1, place_a, at);
  }
}

/* Sets the layout of the register side of a walk over `space`. */
static void see_register(const hr__frame *f, int index, unsigned space, piece_op *op) {
  const hr__register *reg = &f->registers[index];
  unsigned vary = reg->vary & space;
  op->reg = f->pointer[index];
  op->reg_size = hr__register_size(reg);
  if (space == HR__OUTER) {
    op->reg_row = 0, op->reg_col = vary != 0;
    return;
  }
  int64_t pitch = f->pitch[index] == HR__DENSE ? f->in : f->pitch[index];
  op->reg_row = (vary & HR__OUTER) == 0 ? 0 : (vary & HR__INNER) != 0 ? pitch : 1;
  op->reg_col = (vary & HR__INNER) != 0;
}

/* ---- indices ---- */

static int64_t index_at(const hr__register *reg, const char *memory, int64_t at) {
  return reg->cls == HR_CLASS_I32 ? ((const int32_t *)(const void *)memory)[at]
                                  : ((const int64_t *)(const void *)memory)[at];
}

typedef struct index_term {
  int reg;
  int64_t stride, extent;
} index_term;

static index_term term_at(const hr__frame *f, const hr__map *map, int t) {
  const int64_t *numbers = f->numbers + map->terms + (ptrdiff_t)2 * t;
  return (index_term){hr__form_terms(f->form)[map->term_first + t], numbers[0], numbers[1]};
}

/* offsets[i] += index * stride. An index out of range makes the offset INT64_MIN (stores) or is clamped (loads): a
 * check reports it, and until then it must not touch foreign memory. */
static void add_term(const hr__register *reg, const char *memory, int64_t step, const index_term *term, bool is_store,
                     int64_t *offsets, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    int64_t index = index_at(reg, memory, i * step);
    index = index < 0 ? index + term->extent : index;
    if (term->extent > 0 && (index < 0 || index >= term->extent)) {
      if (is_store) {
        offsets[i] = INT64_MIN;
        continue;
      }
      index = index < 0 ? 0 : term->extent - 1;
    }
    offsets[i] = offsets[i] == INT64_MIN ? INT64_MIN : offsets[i] + index * term->stride;
  }
}

/* True if all indices are constant along a row, so that rows can be walked normally. */
static bool terms_by_row(const hr__frame *f, const hr__map *map, unsigned space) {
  unsigned vary = 0;
  for (int t = 0; t < map->term_count; ++t) {
    vary |= f->registers[term_at(f, map, t).reg].vary & space;
  }
  return space == HR__OUTER ? vary == 0 : (vary & HR__INNER) == 0;
}

static int64_t *row_offsets(const hr__frame *f, const hr__map *map, unsigned space, bool is_store) {
  int64_t *offsets = (int64_t *)(void *)(f->scratch + hr__slots_of(f->plan)->row_offsets_at);
  int64_t rows = space == HR__PLANE ? f->on : 1;
  memset(offsets, 0, (size_t)rows * sizeof *offsets);
  for (int t = 0; t < map->term_count; ++t) {
    const index_term own = term_at(f, map, t);
    const hr__register *reg = &f->registers[own.reg];
    add_term(reg, f->pointer[own.reg], space == HR__PLANE && (reg->vary & HR__OUTER) != 0, &own, is_store, offsets,
             rows);
  }
  return offsets;
}

/* The address of every element of the rectangle, INT64_MIN outside the bounds. */
static int64_t *all_offsets(const hr__frame *f, const hr__map *map, unsigned space, bool is_store, int64_t *out_rows,
                            int64_t *out_cols) {
  static const int64_t outside = INT64_MIN;
  sides s = sides_of(f, map, space);
  int64_t *offsets = (int64_t *)(void *)(f->scratch + hr__slots_of(f->plan)->offsets_at);
  piece_op op = {.reg = (char *)offsets,
                 .reg_row = s.bn,
                 .reg_col = 1,
                 .reg_size = 8,
                 .memory_size = 0,
                 .fill = (const char *)&outside,
                 .fill_copy = hr__loads[HR_DTYPE_I64]};
  walk(f, map, &s, &op);
  for (int t = 0; t < map->term_count; ++t) {
    const index_term own = term_at(f, map, t);
    const hr__register *reg = &f->registers[own.reg];
    piece_op seen;
    see_register(f, own.reg, space, &seen);
    for (int64_t a = 0; a < s.an; ++a) {
      add_term(reg, seen.reg + a * seen.reg_row * seen.reg_size, seen.reg_col, &own, is_store, offsets + a * s.bn,
               s.bn);
    }
  }
  *out_rows = s.an, *out_cols = s.bn;
  return offsets;
}

/* ---- the three kinds of steps ---- */

static char *memory_of(const hr__frame *f, const hr__map *map) {
  return map->arg < 0 ? NULL : f->call->args[map->arg];
}

static void set_fill(const hr__frame *f, const hr__map *map, piece_op *op) {
  static const hr_c128 zero;
  static const hr_dtype dtypes[17] = {
      [1] = HR_DTYPE_BOOL, [4] = HR_DTYPE_F32, [8] = HR_DTYPE_F64, [16] = HR_DTYPE_C128};
  op->fill = map->fill >= 0 ? f->pointer[map->fill] : (const char *)&zero;
  op->fill_copy = hr__loads[dtypes[op->reg_size]];
}

static void gather(const hr__frame *f, const hr__step *step, const hr__map *map, const piece_op *op) {
  int64_t rows, cols;
  const int64_t *offsets = all_offsets(f, map, step->space, false, &rows, &cols);
  for (int64_t a = 0; a < rows; ++a) {
    char *to = op->reg + a * op->reg_row * op->reg_size;
    if (map->coords == 1) {
      hr__gathers[map->dtype](to, op->memory, offsets + a * cols, cols);
      continue;
    }
    for (int64_t i = 0; i < cols; ++i) {
      int64_t at = offsets[a * cols + i];
      if (at == INT64_MIN) {
        memcpy(to + i * op->reg_size, op->fill, (size_t)op->reg_size);
      } else {
        hr__gathers[map->dtype](to + i * op->reg_size, op->memory, &at, 1);
      }
    }
  }
}

void hr__walk_load(hr__frame *f, const hr__step *step) {
  const hr__map *map = &f->maps[step->map];
  piece_op op = {.copy = hr__loads[map->dtype], .memory = memory_of(f, map), .memory_size = map->size};
  see_register(f, step->dst, step->space, &op);
  if (map->coords > 1) {
    set_fill(f, map, &op);
  }
  if (map->term_count > 0) {
    if (!terms_by_row(f, map, step->space)) {
      gather(f, step, map, &op);
      return;
    }
    op.row_offsets = row_offsets(f, map, step->space, false);
  }
  sides s = sides_of(f, map, step->space);
  walk(f, map, &s, &op);
}

void hr__walk_index(hr__frame *f, const hr__step *step) {
  const hr__map *map = &f->maps[step->map];
  piece_op op = {.memory_size = 0};
  see_register(f, step->dst, step->space, &op);
  sides s = sides_of(f, map, step->space);
  walk(f, map, &s, &op);
}

static const hr__reduce_loops *combine_of(hr_store_mode mode, hr_dtype dtype) {
  static const int rows[] = {[HR_STORE_ADD] = HR__REDUCE_SUM,
                             [HR_STORE_MUL] = HR__REDUCE_PROD,
                             [HR_STORE_MAX] = HR__REDUCE_AMAX,
                             [HR_STORE_MIN] = HR__REDUCE_AMIN};
  return mode == HR_STORE_SET ? NULL : &hr__class_loops_of(hr_dtype_class(dtype))->reduce[rows[mode]];
}

/* One element after another, in order: two may have the same target. */
static void scatter(const hr__frame *f, const hr__step *step, const hr__map *map, const piece_op *op) {
  int64_t rows, cols;
  const int64_t *offsets = all_offsets(f, map, step->space, true, &rows, &cols);
  hr__scatter_fn store =
      op->combine == NULL ? hr__scatters[map->dtype] : hr__combining_scatter(op->combine, map->dtype);
  for (int64_t a = 0; a < rows; ++a) {
    const char *from = op->reg + a * op->reg_row * op->reg_size;
    const int64_t *to = offsets + a * cols;
    for (int64_t i = 0; i < cols;) {
      int64_t n = 0; /* a run of valid positions */
      while (i + n < cols && to[i + n] != INT64_MIN) {
        ++n;
      }
      const char *value = from + i * op->reg_col * op->reg_size;
      if (n > 0 && store != NULL) {
        store(op->memory, to + i, value, op->reg_col, n);
      }
      for (int64_t k = 0; k < n && store == NULL; ++k) {
        combine_piece(op, (char *)(uintptr_t)(value + k * op->reg_col * op->reg_size),
                      op->memory + to[i + k] * op->memory_size, 1, 1, 0, 0);
      }
      i += n + (n == 0);
    }
  }
}

void hr__walk_store(hr__frame *f, const hr__step *step) {
  const hr__map *map = &f->maps[step->map];
  piece_op op = {
      .copy = hr__stores[map->dtype], .is_store = true, .memory = memory_of(f, map), .memory_size = map->size};
  see_register(f, step->src[0], step->space, &op);
  op.combine = combine_of(step->mode, map->dtype);
  if (op.combine != NULL) {
    op.temp = f->scratch + hr__slots_of(f->plan)->temp_at;
    op.widen = hr_dtype_is_narrow(map->dtype) && map->dtype != HR_DTYPE_BOOL ? hr__loads[map->dtype] : NULL;
  }
  sides s = sides_of(f, map, step->space);
  bool is_dense = s.b.strides[s.b.rank - 1] == 1 && op.reg_col == 1;
  if ((map->term_count > 0 && !terms_by_row(f, map, step->space)) || (op.combine != NULL && !is_dense)) {
    scatter(f, step, map, &op);
    return;
  }
  if (map->term_count > 0) {
    op.row_offsets = row_offsets(f, map, step->space, true);
  }
  walk(f, map, &s, &op);
}
