/* lower_resample.c: interpolation of one dim; several dims take one operation each.
 *
 * An element of the result is a weighted sum of K elements along the dim, its taps. The taps and their weights depend
 * on the element's number alone, so small tables of [out, K] are computed first:
 *
 *   nearest      K = 1
 *   linear       K = 2: w, 1 - w
 *   cubic        K = 4: Keys' polynomials, A = -3/4
 *   antialiased  K as wide as the filter, which is scaled to the distance of the result's elements; weights sum to 1
 *
 * Scales are arguments of the run and are computed in f32 (f64 for f64), as PyTorch does, since their rounding decides
 * which element is nearest. Bytes are rounded after each dim. Their weights are integers of as many bits as fit into
 * 16, as in PyTorch (and Pillow).
 *
 * The gradient is a weighted sum as well: the result's elements that use one input element are neighbours. Small
 * scatters along the dim invert the tables to [elements, in]. If the largest number of such elements is not known, the
 * gradient is a scatter.
 */
#include <math.h>

#include "core/ir/kernel.h"
#include "core/ops/lower_neighbours.h"

enum { KIND_NEAREST = 0, KIND_NEAREST_EXACT, KIND_LINEAR, KIND_CUBIC, KIND_LINEAR_AA, KIND_CUBIC_AA, KIND_LANCZOS_AA };

enum { FEW_TAPS = 4 };

/* The tables [out, K], in `dtype`. */
typedef struct taps {
  int kind;
  bool aligns_corners;
  int64_t in, out, count;
  hr_dtype dtype;
  hr_operand scale; /* 0: from the sizes */
  hr_operand position, weight;
  hr_operand first; /* [out, 1], antialiased: the first of the taps, which are neighbours */
  hr_operand one;   /* of integer weights: the number that represents 1 */
} taps;

/* ---- tables ---- */

/* offset + step * element + tap_step * tap */
static hr_operand build_numbers(hr_builder *b, const taps *t, int64_t offset, int64_t step, int64_t tap_step) {
  return hr_build_index(b, 2, (int64_t[]){t->out, t->count}, offset, (int64_t[]){step, tap_step});
}

/* Half of the input elements for each element of the result. */
static hr_operand make_half_ratio(hr_builder *b, const taps *t) {
  double in = (double)(t->in - t->aligns_corners), out = (double)(t->out - t->aligns_corners);
  double quotient = out == 0 ? 0 : t->dtype == HR_DTYPE_F64 ? in / out : (double)((float)in / (float)out);
  if (t->aligns_corners) {
    return hr_build_f64(b, quotient / 2);
  }
  hr_operand inverse = hr_build_temp(b, HR_DTYPE_F64, 2, (int64_t[]){t->out, t->count});
  hr_emit1(b, HR_OP_RECIPROCAL, inverse, t->scale); /* infinite if no scale is given */
  hr_operand is_given = hr_make2(b, HR_OP_LT, HR_DTYPE_BOOL, inverse, hr_build_f64(b, INFINITY));
  hr_operand ratio = hr_make3(b, HR_OP_WHERE, t->dtype, is_given, inverse, hr_build_f64(b, quotient));
  return hr_make2(b, HR_OP_MUL, t->dtype, ratio, hr_build_f64(b, 0.5));
}

static hr_operand clamp_position(hr_builder *b, const taps *t, hr_operand position) {
  return hr_make3(b, HR_OP_CLAMP, HR_DTYPE_I64, position, hr_build_i64(b, 0), hr_build_i64(b, t->in - 1));
}

/* 2 e is the element's number, 2 e + 1 its centre: half the ratio times it is rounded once. */
static void make_nearest(hr_builder *b, taps *t) {
  bool is_exact = t->kind == KIND_NEAREST_EXACT;
  if (!is_exact && t->out == t->in) {
    t->position = hr_make1(b, HR_OP_COPY, HR_DTYPE_I64, build_numbers(b, t, 0, 1, 0));
    return;
  }
  hr_operand source = hr_make2(b, HR_OP_MUL, t->dtype, make_half_ratio(b, t), build_numbers(b, t, is_exact, 2, 0));
  t->position = clamp_position(b, t, hr_make1(b, HR_OP_COPY, HR_DTYPE_I64, source));
}

/* The positions of the result's elements among those of the input. */
static hr_operand make_source(hr_builder *b, const taps *t) {
  hr_operand half = make_half_ratio(b, t);
  if (t->aligns_corners) {
    return hr_make2(b, HR_OP_MUL, t->dtype, half, build_numbers(b, t, 0, 2, 0));
  }
  hr_operand centre = hr_make2(b, HR_OP_MUL, t->dtype, half, build_numbers(b, t, 1, 2, 0));
  return hr_make2(b, HR_OP_SUB, t->dtype, centre, hr_build_f64(b, 0.5));
}

/* The weights are |1 - tap - w|, w in [0, 1]. */
static void make_linear(hr_builder *b, taps *t) {
  hr_operand source = hr_make2(b, HR_OP_MAXIMUM, t->dtype, make_source(b, t), hr_build_f64(b, 0));
  hr_operand first = clamp_position(b, t, hr_make1(b, HR_OP_COPY, HR_DTYPE_I64, source));
  hr_operand rest = hr_make3(b, HR_OP_CLAMP, t->dtype, hr_make2(b, HR_OP_SUB, t->dtype, source, first),
                             hr_build_f64(b, 0), hr_build_f64(b, 1));
  t->position = clamp_position(b, t, hr_make2(b, HR_OP_ADD, HR_DTYPE_I64, first, build_numbers(b, t, 0, 0, 1)));
  t->weight = hr_make1(b, HR_OP_ABS, t->dtype, hr_make2(b, HR_OP_SUB, t->dtype, build_numbers(b, t, 1, 0, -1), rest));
}

/* ((c3 x + c2) x + c1) x + c0 */
static hr_operand make_polynomial(hr_builder *b, hr_dtype dtype, hr_operand x, double c3, double c2, double c1,
                                  double c0) {
  hr_operand sum = hr_make3(b, HR_OP_ADD_SCALED, dtype, hr_build_f64(b, c2), x, hr_build_f64(b, c3));
  sum = hr_make3(b, HR_OP_ADD_SCALED, dtype, hr_build_f64(b, c1), x, sum);
  return hr_make3(b, HR_OP_ADD_SCALED, dtype, hr_build_f64(b, c0), x, sum);
}

hr_operand hr__make_cubic(hr_builder *b, hr_dtype dtype, hr_operand x, double a, bool is_outer) {
  return is_outer ? make_polynomial(b, dtype, x, a, -5 * a, 8 * a, -4 * a)
                  : make_polynomial(b, dtype, x, a + 2, -(a + 3), 0, 1);
}

/* The cubic filter at |x|: 0 from 2 on. */
static hr_operand make_cubic_filter(hr_builder *b, hr_dtype dtype, hr_operand x, double a) {
  hr_operand is_inner = hr_make2(b, HR_OP_LT, HR_DTYPE_BOOL, x, hr_build_f64(b, 1));
  hr_operand is_outer = hr_make2(b, HR_OP_LT, HR_DTYPE_BOOL, x, hr_build_f64(b, 2));
  hr_operand outer =
      hr_make3(b, HR_OP_WHERE, dtype, is_outer, hr__make_cubic(b, dtype, x, a, true), hr_build_f64(b, 0));
  return hr_make3(b, HR_OP_WHERE, dtype, is_inner, hr__make_cubic(b, dtype, x, a, false), outer);
}

/* Taps -1 to 2 around the element before the source; their distances are t + 1, t, 1 - t, 2 - t. */
static void make_cubic(hr_builder *b, taps *t) {
  hr_operand source = make_source(b, t), before = hr_make1(b, HR_OP_FLOOR, t->dtype, source);
  hr_operand number = hr_make1(b, HR_OP_COPY, HR_DTYPE_I64, before);
  number = hr_make2(b, HR_OP_MINIMUM, HR_DTYPE_I64, number, hr_build_i64(b, t->in - 1));
  hr_operand rest = hr_make3(b, HR_OP_CLAMP, t->dtype, hr_make2(b, HR_OP_SUB, t->dtype, source, number),
                             hr_build_f64(b, 0), hr_build_f64(b, 1));
  t->position = clamp_position(b, t, hr_make2(b, HR_OP_ADD, HR_DTYPE_I64, number, build_numbers(b, t, -1, 0, 1)));
  hr_operand distance =
      hr_make1(b, HR_OP_ABS, t->dtype, hr_make2(b, HR_OP_SUB, t->dtype, build_numbers(b, t, -1, 0, 1), rest));
  hr_operand is_outer = hr_make2(b, HR_OP_GE, HR_DTYPE_BOOL, build_numbers(b, t, -3, 0, 2), hr_build_i64(b, 3));
  is_outer = hr_make2(b, HR_OP_LOGICAL_OR, HR_DTYPE_BOOL, is_outer,
                      hr_make2(b, HR_OP_EQ, HR_DTYPE_BOOL, build_numbers(b, t, 0, 0, 1), hr_build_i64(b, 0)));
  t->weight = hr_make3(b, HR_OP_WHERE, t->dtype, is_outer, hr__make_cubic(b, t->dtype, distance, -0.75, true),
                       hr__make_cubic(b, t->dtype, distance, -0.75, false));
}

/* sin(pi x) / (pi x), 1 at 0 */
static hr_operand make_sinc(hr_builder *b, hr_dtype dtype, hr_operand x) {
  hr_operand angle = hr_make2(b, HR_OP_MUL, dtype, x, hr_build_f64(b, 3.14159265358979323846));
  hr_operand value = hr_make2(b, HR_OP_DIV, dtype, hr_make1(b, HR_OP_SIN, dtype, angle), angle);
  hr_operand is_zero = hr_make2(b, HR_OP_EQ, HR_DTYPE_BOOL, x, hr_build_f64(b, 0));
  return hr_make3(b, HR_OP_WHERE, dtype, is_zero, hr_build_f64(b, 1), value);
}

static hr_operand make_filter(hr_builder *b, const taps *t, hr_operand x) {
  if (t->kind == KIND_CUBIC_AA) {
    return make_cubic_filter(b, t->dtype, x, -0.5);
  }
  if (t->kind == KIND_LINEAR_AA) {
    hr_operand fall = hr_make2(b, HR_OP_SUB, t->dtype, hr_build_f64(b, 1), x);
    return hr_make2(b, HR_OP_MAXIMUM, t->dtype, fall, hr_build_f64(b, 0));
  }
  hr_operand third = hr_make2(b, HR_OP_DIV, t->dtype, x, hr_build_f64(b, 3));
  hr_operand value = hr_make2(b, HR_OP_MUL, t->dtype, make_sinc(b, t->dtype, x), make_sinc(b, t->dtype, third));
  hr_operand is_inside = hr_make2(b, HR_OP_LT, HR_DTYPE_BOOL, x, hr_build_f64(b, 3));
  return hr_make3(b, HR_OP_WHERE, t->dtype, is_inside, value, hr_build_f64(b, 0));
}

static hr_operand make_end(hr_builder *b, const taps *t, hr_op op, hr_operand centre, hr_operand support) {
  hr_operand edge = hr_make2(b, op, t->dtype, centre, support);
  edge = hr_make2(b, HR_OP_ADD, t->dtype, edge, hr_build_f64(b, 0.5));
  return hr_make1(b, HR_OP_COPY, HR_DTYPE_I64, edge);
}

static void make_antialiased(hr_builder *b, taps *t) {
  double radius = t->kind == KIND_LINEAR_AA ? 1 : t->kind == KIND_CUBIC_AA ? 2 : 3;
  hr_operand half = make_half_ratio(b, t), one = hr_build_f64(b, 1);
  hr_operand ratio = hr_make2(b, HR_OP_MUL, t->dtype, half, hr_build_f64(b, 2));
  hr_operand trace = hr_make2(b, HR_OP_MAXIMUM, t->dtype, ratio, one);
  hr_operand support = hr_make2(b, HR_OP_MUL, t->dtype, trace, hr_build_f64(b, radius));
  hr_operand centre = hr_make2(b, HR_OP_MUL, t->dtype, half, build_numbers(b, t, 1, 2, 0));
  hr_operand start =
      hr_make2(b, HR_OP_MAXIMUM, HR_DTYPE_I64, make_end(b, t, HR_OP_SUB, centre, support), hr_build_i64(b, 0));
  hr_operand end =
      hr_make2(b, HR_OP_MINIMUM, HR_DTYPE_I64, make_end(b, t, HR_OP_ADD, centre, support), hr_build_i64(b, t->in));
  /* At the high end taps begin earlier, so that all are inside. */
  hr_operand first = hr_make2(b, HR_OP_MINIMUM, HR_DTYPE_I64, start, hr_build_i64(b, t->in - t->count));
  hr_operand position = hr_make2(b, HR_OP_ADD, HR_DTYPE_I64, first, build_numbers(b, t, 0, 0, 1));
  hr_operand distance = hr_make2(b, HR_OP_SUB, t->dtype, position, centre);
  distance = hr_make2(b, HR_OP_ADD, t->dtype, distance, hr_build_f64(b, 0.5));
  distance = hr_make2(b, HR_OP_DIV, t->dtype, hr_make1(b, HR_OP_ABS, t->dtype, distance), trace);
  hr_operand is_inside =
      hr_make2(b, HR_OP_LOGICAL_AND, HR_DTYPE_BOOL, hr_make2(b, HR_OP_GE, HR_DTYPE_BOOL, position, start),
               hr_make2(b, HR_OP_LT, HR_DTYPE_BOOL, position, end));
  hr_operand weight = hr_make3(b, HR_OP_WHERE, t->dtype, is_inside, make_filter(b, t, distance), hr_build_f64(b, 0));
  hr_operand total = hr_make_reduce(b, HR_OP_SUM, t->dtype, weight, 2);
  t->position = position;
  t->first = hr_is_present(first) ? hr_view_slice(b, first, 1, 0, 1, 1) : first;
  t->weight = hr_make2(b, HR_OP_DIV, t->dtype, weight, total);
}

/* If several taps are clamped to one element at an end, the first of them gets all their weights. */
static hr_operand make_merged_weight(hr_builder *b, const taps *t) {
  hr_operand mine = hr__ones_after(b, t->position, 1), weights = hr__ones_after(b, t->weight, 1);
  if (!hr_is_present(mine) || !hr_is_present(weights)) {
    return t->weight;
  }
  hr_operand all = hr_view_permute(b, mine, (int[]){0, 2, 1}), zero = hr_build_f64(b, 0);
  weights = hr_view_permute(b, weights, (int[]){0, 2, 1});
  hr_operand is_same = hr_make2(b, HR_OP_EQ, HR_DTYPE_BOOL, mine, all);
  hr_operand sum =
      hr_make_reduce(b, HR_OP_SUM, t->dtype, hr_make3(b, HR_OP_WHERE, t->dtype, is_same, weights, zero), 4);
  const int64_t cube[] = {t->out, t->count, t->count};
  hr_operand later_by = hr_build_index(b, 3, cube, 0, (int64_t[]){0, 1, -1});
  hr_operand is_before = hr_make2(b, HR_OP_GT, HR_DTYPE_BOOL, later_by, hr_build_i64(b, 0));
  is_before = hr_make2(b, HR_OP_LOGICAL_AND, HR_DTYPE_BOOL, is_same, is_before);
  hr_operand is_taken = hr_make_reduce(b, HR_OP_ANY, HR_DTYPE_BOOL, is_before, 4);
  hr_operand merged = hr_make3(b, HR_OP_WHERE, t->dtype, is_taken, zero, sum);
  return hr_is_present(merged) ? hr_view_remove(b, merged, 2) : merged;
}

/* Weights of bytes as integers: 2^p represents 1. p <= 22 is the first for which the largest weight, doubled, would
 * reach 2^15. */
static void make_whole(hr_builder *b, taps *t) {
  if (t->kind <= KIND_CUBIC) {
    t->weight = make_merged_weight(b, t);
  }
  hr_operand most = hr_make_reduce(b, HR_OP_AMAX, t->dtype, t->weight, 3), half = hr_build_f64(b, 0.5);
  hr_operand room = hr_make2(b, HR_OP_DIV, t->dtype, hr_build_f64(b, 32767.5), most);
  hr_operand twice = hr_make2(b, HR_OP_DIV, t->dtype, room, hr_make1(b, HR_OP_FREXP_MANTISSA, t->dtype, room));
  t->one = hr_make2(b, HR_OP_MUL, t->dtype, twice, half);
  t->one = hr_make2(b, HR_OP_MINIMUM, t->dtype, t->one, hr_build_f64(b, 1 << 22));
  hr_operand size = hr_make2(b, HR_OP_MUL, t->dtype, hr_make1(b, HR_OP_ABS, t->dtype, t->weight), t->one);
  size = hr_make1(b, HR_OP_FLOOR, t->dtype, hr_make2(b, HR_OP_ADD, t->dtype, size, half));
  hr_operand is_negative = hr_make2(b, HR_OP_LT, HR_DTYPE_BOOL, t->weight, hr_build_f64(b, 0));
  t->weight = hr_make3(b, HR_OP_WHERE, t->dtype, is_negative, hr_make1(b, HR_OP_NEG, t->dtype, size), size);
}

static taps make_taps(hr_builder *b, const hr_node *node, hr_operand small, hr_operand large, hr_dtype dtype) {
  int dim = (int)node->ints[0];
  taps t = {.kind = (int)node->ints[1],
            .aligns_corners = node->ints[2] != 0,
            .in = small.dims[dim],
            .out = large.dims[dim],
            .dtype = dtype == HR_DTYPE_F64 ? dtype : HR_DTYPE_F32,
            .one = {.kind = HR_OPERAND_NONE},
            .scale = hr_build_attr(b, node, 0)};
  int64_t wide = node->ints[3] < t.in ? node->ints[3] : t.in;
  t.count = t.kind <= KIND_NEAREST_EXACT ? 1 : t.kind == KIND_LINEAR ? 2 : t.kind == KIND_CUBIC ? 4 : wide;
  if (t.kind <= KIND_NEAREST_EXACT) {
    t.dtype = HR_DTYPE_F32;
    make_nearest(b, &t);
  } else if (t.kind == KIND_LINEAR) {
    make_linear(b, &t);
  } else if (t.kind == KIND_CUBIC) {
    make_cubic(b, &t);
  } else {
    make_antialiased(b, &t);
  }
  return t;
}

/* ---- through the tables ---- */

/* x over the dims of the result; the term of input 1 gives its position along `dim`. `count` taps are a dim after
 * `dim`, if any. */
static hr_operand view_through(hr_builder *b, hr_operand x, int dim, int64_t out, int64_t count) {
  int64_t dims[HR_RANK_MAX], strides[HR_RANK_MAX];
  int rank = x.rank + (count > 0);
  if (!hr_is_present(x) || rank > HR_RANK_MAX) {
    return x;
  }
  for (int d = 0; d < rank; ++d) {
    int from = d > dim && count > 0 ? d - 1 : d;
    dims[d] = d == dim ? out : d == dim + 1 && count > 0 ? count : x.dims[from];
    strides[d] = d == dim || (d == dim + 1 && count > 0) ? 0 : x.strides[from];
  }
  return hr_view_term(b, hr_view_strided(b, x, rank, dims, strides, x.offset), 1, x.strides[dim], x.dims[dim]);
}

/* A table of [out, K] over dims `dim` and `dim` + 1 of `rank`; one tap of it over `dim`. */
static hr_operand spread_table(hr_builder *b, hr_operand table, int rank, int dim) {
  return hr__ones_before(b, hr__ones_after(b, table, rank - dim - 2), dim);
}
static hr_operand spread_tap(hr_builder *b, hr_operand table, int tap, int rank, int dim) {
  return hr_is_present(table) ? hr__along(b, hr_view_remove(b, hr_view_slice(b, table, 1, tap, 1, 1), 1), rank, dim)
                              : table;
}

static hr_operand make_tap(hr_builder *b, hr_operand x, const taps *t, int tap, int dim) {
  return hr__make_picked(b, view_through(b, x, dim, t->out, 0), spread_tap(b, t->position, tap, x.rank, dim));
}

/* A copy of a table of [out, K] stored tap by tap: a loop over the dim reads one line for each tap. */
static hr_operand lay_by_taps(hr_builder *b, hr_operand table) {
  if (!hr_is_present(table)) {
    return table;
  }
  hr_operand lines = hr_build_temp(b, table.dtype, 2, (int64_t[]){table.dims[1], table.dims[0]});
  lines = hr_is_present(lines) ? hr_view_permute(b, lines, (int[]){1, 0}) : lines;
  hr_emit1(b, HR_OP_COPY, lines, table);
  return lines;
}

/* Few taps: an element-wise sum of gathers. */
static hr_operand make_sum_of_taps(hr_builder *b, hr_operand x, const taps *tables, int dim, hr_dtype dtype) {
  hr_operand sum = {.kind = HR_OPERAND_NONE};
  taps t = *tables;
  t.position = lay_by_taps(b, t.position), t.weight = lay_by_taps(b, t.weight);
  for (int k = 0; k + 1 < t.count; k += 2) {
    hr_operand pair = hr_make4(b, HR_OP_SCALE_ADD, dtype, make_tap(b, x, &t, k, dim), make_tap(b, x, &t, k + 1, dim),
                               spread_tap(b, t.weight, k, x.rank, dim), spread_tap(b, t.weight, k + 1, x.rank, dim));
    sum = k == 0 ? pair : hr_make2(b, HR_OP_ADD, dtype, sum, pair);
  }
  return sum;
}

/* Taps that are neighbours. */
static hr_operand make_reduced_taps(hr_builder *b, hr_operand x, const taps *t, int dim, hr_dtype dtype) {
  hr_operand view = hr__view_neighbours(b, x, dim, t->out, t->count);
  if (!hr_is_present(view)) {
    return view;
  }
  hr_operand picked = hr__make_picked(b, view, spread_table(b, t->first, x.rank + 1, dim));
  hr_operand weight = t->count <= HR_REDUCE_SEQUENTIAL_MAX ? lay_by_taps(b, t->weight) : t->weight;
  hr_operand product = hr_make2(b, HR_OP_MUL, dtype, picked, spread_table(b, weight, x.rank + 1, dim));
  hr_operand sum = hr_make_reduce(b, HR_OP_SUM, dtype, product, 1u << (dim + 1));
  return hr_is_present(sum) ? hr_view_remove(b, sum, dim + 1) : sum;
}

hr_status hr__lower_resample(hr_builder *b, const hr_node *node) {
  hr_operand x = hr_node_input(node, 0), y = hr_node_output(node, 0);
  int dim = (int)node->ints[0];
  if (hr_operand_count(y) == 0) {
    return HR_OK;
  }
  bool is_integer = hr_dtype_is_integer(y.dtype);
  hr_dtype dtype = is_integer ? HR_DTYPE_F64 : hr__wide(y.dtype);
  taps t = make_taps(b, node, x, y, dtype);
  if (t.count == 1) {
    hr_emit_gather(b, y, 2,
                   (hr_operand[]){view_through(b, x, dim, t.out, 0), spread_tap(b, t.position, 0, x.rank, dim)});
    return HR_OK;
  }
  if (is_integer) {
    make_whole(b, &t);
  }
  hr_operand sum = t.count <= FEW_TAPS && t.kind <= KIND_CUBIC ? make_sum_of_taps(b, x, &t, dim, dtype)
                                                               : make_reduced_taps(b, x, &t, dim, dtype);
  if (is_integer) {
    hr_operand one = spread_tap(b, t.one, 0, x.rank, dim);
    sum = hr_make2(b, HR_OP_ADD, dtype, hr_make2(b, HR_OP_DIV, dtype, sum, one), hr_build_f64(b, 0.5));
    sum =
        hr_make3(b, HR_OP_CLAMP, dtype, hr_make1(b, HR_OP_FLOOR, dtype, sum), hr_build_f64(b, 0), hr_build_f64(b, 255));
  }
  hr_emit1(b, HR_OP_COPY, y, sum);
  return HR_OK;
}

/* ---- the gradient as a sum ---- */

/* A vector over the tables' dims, read at each tap's `index`. */
static hr_operand view_at_taps(hr_builder *b, hr_operand x, const taps *t) {
  if (!hr_is_present(x)) {
    return x;
  }
  hr_operand view = hr_view_strided(b, x, 2, (int64_t[]){t->out, t->count}, (int64_t[]){0, 0}, x.offset);
  return hr_view_term(b, view, 1, x.strides[0], x.dims[0]);
}

/* `value` for each tap, else `other`: antialiased, a weight of 0 is not a tap. */
static hr_operand where_tapped(hr_builder *b, const taps *t, hr_operand value, int64_t other) {
  if (t->kind <= KIND_CUBIC) {
    return value;
  }
  hr_operand is_tap = hr_make2(b, HR_OP_NE, HR_DTYPE_BOOL, t->weight, hr_build_f64(b, 0));
  return hr_make3(b, HR_OP_WHERE, HR_DTYPE_I64, is_tap, value, hr_build_i64(b, other));
}

/* For each element of the input the smallest or largest number of the result's elements that use it. */
static hr_operand make_extreme(hr_builder *b, const taps *t, hr_store_mode mode, int64_t of_none) {
  hr_operand number = where_tapped(b, t, build_numbers(b, t, 0, 1, 0), of_none);
  number = hr_make1(b, HR_OP_COPY, HR_DTYPE_I64, number);
  hr_operand extreme = hr_build_temp(b, HR_DTYPE_I64, 1, &t->in);
  hr_emit1(b, HR_OP_COPY, extreme, hr_build_i64(b, of_none));
  hr_emit_scatter(b, mode, view_at_taps(b, extreme, t), 2, (hr_operand[]){number, t->position}, 3);
  return extreme;
}

/* The taps' weights, inverted: those of taps clamped to one element are added, and elements that are not taps are
 * stored past the table. */
static hr_operand make_turned_weight(hr_builder *b, const taps *t, const hr__neighbours *s) {
  int64_t size = s->count * t->in, room = size + 1;
  hr_operand first = hr__make_picked(b, view_at_taps(b, s->first, t), t->position);
  hr_operand row = hr_make2(b, HR_OP_SUB, HR_DTYPE_I64, build_numbers(b, t, 0, 1, 0), first);
  hr_operand place = hr_make3(b, HR_OP_ADD_SCALED, HR_DTYPE_I64, t->position, row, hr_build_i64(b, t->in));
  place = hr_make2(b, HR_OP_MINIMUM, HR_DTYPE_I64, where_tapped(b, t, place, size), hr_build_i64(b, size));
  hr_operand table = hr_build_temp(b, t->dtype, 1, &room);
  hr_emit1(b, HR_OP_COPY, table, hr_build_f64(b, 0));
  hr_emit_scatter(b, HR_STORE_ADD, view_at_taps(b, table, t), 2, (hr_operand[]){t->weight, place}, 3);
  return hr_is_present(table)
             ? hr_view_strided(b, table, 2, (int64_t[]){s->count, t->in}, (int64_t[]){t->in, 1}, table.offset)
             : table;
}

/* The elements of the result that use one of the input: `count` neighbours at most. */
static hr__neighbours make_shares(hr_builder *b, const taps *t, int64_t count) {
  hr__neighbours s = {.count = count};
  hr_operand least = make_extreme(b, t, HR_STORE_MIN, t->out), most = make_extreme(b, t, HR_STORE_MAX, -1);
  s.first = hr_make2(b, HR_OP_MINIMUM, HR_DTYPE_I64, least, hr_build_i64(b, t->out - count));
  hr_operand row = hr_build_index(b, 2, (int64_t[]){count, t->in}, 0, (int64_t[]){1, 0});
  hr_operand number = hr_make2(b, HR_OP_ADD, HR_DTYPE_I64, row, s.first);
  s.is_there = hr_make2(b, HR_OP_LOGICAL_AND, HR_DTYPE_BOOL, hr_make2(b, HR_OP_GE, HR_DTYPE_BOOL, number, least),
                        hr_make2(b, HR_OP_LE, HR_DTYPE_BOOL, number, most));
  if (hr_is_present(t->weight)) {
    s.weight = make_turned_weight(b, t, &s);
  }
  return s;
}

/* ---- the gradient as a scatter ---- */

static void emit_scattered_taps(hr_builder *b, hr_operand dy, const taps *t, int dim, hr_dtype dtype, hr_operand dx) {
  hr_operand sum = dx.dtype == dtype ? dx : hr_build_temp_like(b, dx, dtype);
  hr_emit1(b, HR_OP_COPY, sum, hr_build_f64(b, 0));
  hr_operand source = dy, map = spread_tap(b, t->position, 0, dx.rank, dim);
  hr_operand view = view_through(b, sum, dim, t->out, 0);
  uint32_t ordered = 1u << dim;
  if (t->count > 1) {
    source =
        hr_make2(b, HR_OP_MUL, dtype, hr_view_insert(b, dy, dim + 1, 1), spread_table(b, t->weight, dx.rank + 1, dim));
    map = spread_table(b, t->position, dx.rank + 1, dim), view = view_through(b, sum, dim, t->out, t->count);
    ordered = 3u << dim;
  }
  hr_emit_scatter(b, HR_STORE_ADD, view, 2, (hr_operand[]){source, map}, ordered);
  hr__deliver(b, dx, dtype, sum);
}

hr_status hr__lower_resample_backward(hr_builder *b, const hr_node *node) {
  hr_operand dy = hr_node_input(node, 0), dx = hr_node_output(node, 0);
  int dim = (int)node->ints[0];
  if (hr_operand_count(dx) == 0) {
    return HR_OK;
  }
  hr_dtype dtype = hr__wide(dx.dtype);
  taps t = make_taps(b, node, dx, dy, dtype);
  if (node->ints[4] == 0 || hr_operand_count(dy) == 0) {
    emit_scattered_taps(b, dy, &t, dim, dtype, dx);
    return HR_OK;
  }
  hr__neighbours s = make_shares(b, &t, node->ints[4]);
  hr_emit1(b, HR_OP_COPY, dx, hr__make_sum_of_neighbours(b, dy, &s, dim, dtype));
  return HR_OK;
}
