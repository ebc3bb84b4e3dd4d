/* repeated.c: borders, repetitions and triangles. */
#include <string.h>

#include "functional/formula.h"

/* Two lists of integers, one for each dim of x, after `first` free places. */
static hr_status sides_of(const hr__function_call *c, int first, int64_t *out_ints) {
  const hr_attribute *before = &c->attributes[0], *after = &c->attributes[1];
  int rank = c->inputs[0]->rank;
  if (before->count != rank || after->count != rank) {
    return HR__CALL_FAIL(c, "%d and %d integers for %d dims", before->count, after->count, rank);
  }
  memcpy(out_ints + first, before->value.ints, (size_t)rank * sizeof *out_ints);
  memcpy(out_ints + first + rank, after->value.ints, (size_t)rank * sizeof *out_ints);
  return HR_OK;
}

/* The distances of elements of the attribute `interior`, by default 1. */
static hr_status distances_of(const hr__function_call *c, int index, int64_t *out) {
  const hr_attribute *given = hr__given_attribute(c, index);
  int rank = c->inputs[0]->rank;
  if (given != NULL && given->count != rank) {
    return HR__CALL_FAIL(c, "%d integers of interior for %d dims", given->count, rank);
  }
  for (int d = 0; d < rank; ++d) {
    int64_t interior = given != NULL ? given->value.ints[d] : 0;
    if (interior < 0 || interior >= INT32_MAX) {
      return HR__CALL_FAIL(c, "%lld elements of interior in dim %d, expected 0 to %d", (long long)interior, d,
                           INT32_MAX - 1);
    }
    out[d] = 1 + interior;
  }
  return HR_OK;
}

hr_status hr__emit_pad(const hr__function_call *c) {
  enum { BEFORE, AFTER, VALUE, INTERIOR };
  int64_t ints[2 * HR_RANK_MAX], distances[HR_RANK_MAX];
  HR_RETURN_IF_ERROR(sides_of(c, 0, ints));
  HR_RETURN_IF_ERROR(distances_of(c, INTERIOR, distances));
  hr_scalar value = hr__real_attribute(c, VALUE);
  hr_attrs attrs = {.int_count = 2 * c->inputs[0]->rank, .scalar_count = 1, .ints = ints, .scalars = &value};
  hr__formula f;
  hr__formula_begin(&f, c);
  const hr_tensor *x = hr__spaced(&f, c->inputs[0], distances, value);
  return hr__formula_end(&f, hr__step(&f, HR_OP_PAD, &attrs, 1, &x, HR_DTYPE_NONE));
}

/* ---- borders of x's elements ---- */

/* Kinds of the row. */
enum { REFLECT, REPLICATE, SYMMETRIC, WRAP };

typedef struct border {
  int kind, rank;
  int64_t before[HR_RANK_MAX], after[HR_RANK_MAX]; /* elements that are missing */
  int64_t period[HR_RANK_MAX];                     /* x's elements that a mirrored or shifted copy has */
} border;

/* x without the elements that negative numbers crop. */
static const hr_tensor *cropped(hr__formula *f, border *b, const hr_tensor *x) {
  for (int d = 0; d < b->rank && !hr__formula_failed(f); ++d) {
    int64_t first = b->before[d] < 0 ? -b->before[d] : 0, last = b->after[d] < 0 ? -b->after[d] : 0;
    int64_t rest = x->dims[d] - first - last;
    if (first + last > 0 && rest < 0) {
      hr__formula_fail(f, HR__CALL_FAIL(f->call, "%lld before and %lld after of dim %d with %lld elements",
                                        (long long)b->before[d], (long long)b->after[d], d, (long long)x->dims[d]));
      break;
    }
    x = first + last > 0 ? hr__part(f, x, d, first, rest) : x;
    b->before[d] += first, b->after[d] += last;
  }
  return x;
}

/* The sides of dim d that the next record adds: at most x's elements. A side that is wider gets whole periods; if x is
 * wrapped, both do. */
static bool next_sides(border *b, const hr_tensor *x, int d, int64_t *ints) {
  int64_t *left[2] = {&b->before[d], &b->after[d]};
  int64_t most = b->kind == REPLICATE ? INT32_MAX : x->dims[d] - (b->kind == REFLECT);
  bool is_wide = b->before[d] > most || b->after[d] > most;
  for (int side = 0; side < 2; ++side) {
    int64_t count = *left[side] < most ? *left[side] : most;
    bool is_whole = b->kind == WRAP ? is_wide : *left[side] > most;
    count -= is_whole ? count % b->period[d] : 0;
    ints[1 + side * b->rank + d] = count, *left[side] -= count;
  }
  return ints[1 + d] + ints[1 + b->rank + d] > 0;
}

/* x with the borders of the mask's dims: one record, or more if they are wider than x. */
static const hr_tensor *bordered(hr__formula *f, border *b, const hr_tensor *x, uint32_t mask) {
  for (bool goes_on = true; goes_on && !hr__formula_failed(f);) {
    int64_t ints[2 * HR_RANK_MAX + 1] = {b->kind};
    goes_on = false;
    for (int d = 0; d < b->rank; ++d) {
      goes_on |= (mask >> d & 1u) != 0 && next_sides(b, x, d, ints);
    }
    hr_attrs attrs = {.int_count = 1 + 2 * b->rank, .ints = ints};
    x = goes_on ? hr__step(f, HR_OP_PAD_BORDER, &attrs, 1, &x, HR_DTYPE_NONE) : x;
  }
  return x;
}

/* The dims that get a border; those with one element in `out_single`. */
static uint32_t border_dims(hr__formula *f, border *b, const hr_tensor *x, uint32_t *out_single) {
  uint32_t all = 0;
  *out_single = 0;
  for (int d = 0; d < b->rank && !hr__formula_failed(f); ++d) {
    if (b->before[d] == 0 && b->after[d] == 0) {
      continue;
    }
    if (x->dims[d] == 0) {
      hr__formula_fail(f, HR__CALL_FAIL(f->call, "dim %d without elements gets %lld before and %lld after", d,
                                        (long long)b->before[d], (long long)b->after[d]));
    }
    b->period[d] = x->dims[d] - (b->kind == REFLECT && x->dims[d] > 1);
    all |= 1u << d, *out_single |= x->dims[d] == 1 ? 1u << d : 0;
  }
  return all;
}

static bool is_out_of_range(int64_t side) {
  return side < -INT32_MAX || side > INT32_MAX;
}

static hr_status read_border(const hr__function_call *c, border *b) {
  int64_t ints[2 * HR_RANK_MAX];
  HR_RETURN_IF_ERROR(sides_of(c, 0, ints));
  for (int d = 0; d < b->rank; ++d) {
    b->before[d] = ints[d], b->after[d] = ints[b->rank + d];
    if (is_out_of_range(ints[d]) || is_out_of_range(ints[b->rank + d])) {
      return HR__CALL_FAIL(c, "%lld before and %lld after of dim %d, expected at most %d", (long long)b->before[d],
                           (long long)b->after[d], d, INT32_MAX);
    }
  }
  return HR_OK;
}

/* Every second repetition of x, whose dims are `sizes`, negated. */
static const hr_tensor *alternated(hr__formula *f, const border *b, const int64_t *sizes, const hr_tensor *x) {
  const hr_tensor *is_odd = NULL;
  for (int d = 0; d < b->rank && !hr__formula_failed(f); ++d) {
    if (b->before[d] > 0 || b->after[d] > 0) {
      const hr_tensor *at =
          hr__binary(f, HR_OP_SUB, hr__counted(f, x->dims[d], b->rank, d), hr__integer(f, b->before[d]));
      const hr_tensor *number = hr__binary(f, HR_OP_DIV_FLOOR, at, hr__integer(f, sizes[d]));
      const hr_tensor *bit = hr__binary(f, HR_OP_BIT_AND, number, hr__integer(f, 1));
      is_odd = is_odd == NULL ? bit : hr__binary(f, HR_OP_BIT_XOR, is_odd, bit);
    }
  }
  if (is_odd == NULL) {
    return x;
  }
  is_odd = hr__binary(f, HR_OP_NE, is_odd, hr__integer(f, 0));
  return hr__ternary(f, HR_OP_WHERE, is_odd, hr__unary(f, HR_OP_NEG, x), x);
}

static hr_status pad_border(const hr__function_call *c, int kind, bool alternates) {
  border b = {.kind = kind, .rank = c->inputs[0]->rank};
  HR_RETURN_IF_ERROR(read_border(c, &b));
  hr__formula f;
  hr__formula_begin(&f, c);
  const hr_tensor *x = cropped(&f, &b, c->inputs[0]);
  uint32_t single, all = border_dims(&f, &b, x, &single);
  border whole = b;
  int64_t sizes[HR_RANK_MAX];
  hr__copy_dims(b.rank, x->dims, sizes);
  b.kind = REPLICATE; /* of one element all kinds are the same */
  x = bordered(&f, &b, x, single);
  b.kind = kind;
  x = bordered(&f, &b, x, all & ~single);
  x = alternates ? alternated(&f, &whole, sizes, x) : x;
  if (x == c->inputs[0] && !hr__formula_failed(&f)) {
    x = hr__copied(&f, x, x->dtype, x->rank, x->dims);
  }
  return hr__formula_end(&f, x);
}

hr_status hr__emit_pad_reflect(const hr__function_call *c) {
  return pad_border(c, REFLECT, false);
}

hr_status hr__emit_pad_edge(const hr__function_call *c) {
  return pad_border(c, REPLICATE, false);
}

hr_status hr__emit_pad_symmetric(const hr__function_call *c) {
  return pad_border(c, SYMMETRIC, false);
}

hr_status hr__emit_pad_wrap(const hr__function_call *c) {
  enum { ALTERNATE = 2 };
  return pad_border(c, WRAP, hr__int_attribute(c, ALTERNATE) != 0);
}

/* ---- repetitions ---- */

/* x with its last dims repeated: each as two, the repetitions and the dim, then both as one. `counts` are 1 of those
 * that are done: all of them, if there are as many more dims. */
static hr_status tile_last(const hr__function_call *c, const hr_tensor *x, int64_t *counts, hr_tensor *out) {
  int room = HR_RANK_MAX - x->rank, at = HR_RANK_MAX;
  bool has_room = room >= x->rank;
  int64_t dims[HR_RANK_MAX], sizes[HR_RANK_MAX], strides[HR_RANK_MAX];
  for (int d = x->rank - 1; d >= 0; --d) {
    sizes[--at] = dims[d] = x->dims[d], strides[at] = x->strides[d];
    if (has_room || (room > 0 && counts[d] != 1)) {
      sizes[--at] = counts[d], strides[at] = 0;
      dims[d] *= counts[d], counts[d] = 1, --room;
    }
  }
  hr_tensor pairs;
  hr__view_like(x, &pairs);
  pairs.rank = HR_RANK_MAX - at;
  memcpy(pairs.dims, sizes + at, (size_t)pairs.rank * sizeof *sizes);
  memcpy(pairs.strides, strides + at, (size_t)pairs.rank * sizeof *strides);
  hr_status status = hr__reshape(c, &pairs, x->rank, dims, out);
  hr_tensor_release(&pairs);
  return status;
}

static bool is_repeated(int rank, const int64_t *counts) {
  for (int d = 0; d < rank; ++d) {
    if (counts[d] != 1) {
      return true;
    }
  }
  return false;
}

/* x with dims of 1 in front, and how often each dim is repeated. */
static hr_status read_tile(const hr__function_call *c, hr_tensor *x, int64_t *counts) {
  const hr_tensor *given = c->inputs[0];
  const hr_attribute *times = &c->attributes[0];
  int64_t dims[HR_RANK_MAX], all;
  for (int d = 0; d < x->rank; ++d) {
    int from = d - (x->rank - given->rank), at = d - (x->rank - times->count);
    x->dims[d] = from >= 0 ? given->dims[from] : 1, x->strides[d] = from >= 0 ? given->strides[from] : 1;
    counts[d] = at >= 0 ? times->value.ints[at] : 1;
    if (counts[d] < 0 || __builtin_mul_overflow(x->dims[d], counts[d], &dims[d])) {
      return HR__CALL_FAIL(c, "%lld repetitions of %lld elements", (long long)counts[d], (long long)x->dims[d]);
    }
  }
  return hr__check_count(c, x->rank, dims, &all);
}

hr_status hr__emit_tile(const hr__function_call *c) {
  int rank = c->inputs[0]->rank > c->attributes[0].count ? c->inputs[0]->rank : c->attributes[0].count;
  if (rank > HR_RANK_MAX) {
    return HR__CALL_FAIL(c, "%d dims, expected at most %d", rank, HR_RANK_MAX);
  }
  int64_t counts[HR_RANK_MAX];
  hr_tensor x, next;
  hr__view_like(c->inputs[0], &x);
  x.rank = rank;
  hr_status status = read_tile(c, &x, counts);
  if (status == HR_OK && rank == HR_RANK_MAX && is_repeated(rank, counts)) {
    status = HR__CALL_FAIL(c, "repetitions of %d dims, expected at most %d", rank, HR_RANK_MAX - 1);
  }
  do {
    status = status == HR_OK ? tile_last(c, &x, counts, &next) : status;
    if (status == HR_OK) {
      hr_tensor_release(&x);
      x = next;
    }
  } while (status == HR_OK && is_repeated(rank, counts));
  if (status == HR_OK) {
    *c->output = x;
  } else {
    hr_tensor_release(&x);
  }
  return status;
}

hr_status hr__emit_roll(const hr__function_call *c) {
  const hr_tensor *x = c->inputs[0];
  int axis = 0;
  HR_RETURN_IF_ERROR(hr__check_axis(c, hr__int_attribute(c, 1), x->rank, &axis));
  int64_t size = x->dims[axis], shift = size > 0 ? hr__int_attribute(c, 0) % size : 0;
  shift += shift < 0 ? size : 0;
  hr_tensor parts[2]; /* borrowed views: the last `shift` elements, the ones before */
  const hr_tensor *both[2] = {&parts[0], &parts[1]};
  hr__copy_tensor(x, &parts[0]);
  hr__copy_tensor(x, &parts[1]);
  parts[0].offset += (size - shift) * x->strides[axis];
  parts[0].dims[axis] = shift, parts[1].dims[axis] = size - shift;
  const int64_t ints[1] = {axis};
  hr_attrs attrs = {.int_count = 1, .ints = ints};
  return hr__record_one(c, c->row->op, &attrs, 2, both, HR_DTYPE_NONE, c->output);
}

static hr_status emit_triangle(const hr__function_call *c, bool is_upper) {
  const int64_t ints[1] = {is_upper};
  hr_scalar diagonal = hr_scalar_i64(hr__int_attribute(c, 0));
  hr_attrs attrs = {.int_count = 1, .scalar_count = 1, .ints = ints, .scalars = &diagonal};
  return hr__record_one(c, c->row->op, &attrs, 1, c->inputs, HR_DTYPE_NONE, c->output);
}

hr_status hr__emit_lower_triangle(const hr__function_call *c) {
  return emit_triangle(c, false);
}

hr_status hr__emit_upper_triangle(const hr__function_call *c) {
  return emit_triangle(c, true);
}
