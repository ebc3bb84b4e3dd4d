/* lower_grid.c: samples planes at the positions of a tensor (spatial transformers), in two or three dims.
 *
 * A position has a coordinate for each dim, -1 to 1 over the plane. Along a dim a sample is a weighted sum of K
 * elements, its taps: the nearest (K = 1), two neighbours (linear), or four (cubic, Keys' polynomials with A = -3/4).
 * Indices and weights of taps are element-wise over [N, 1, out..]; the K^n combinations of taps are gathers over [N, C,
 * out..], weighted and added in one loop. Positions outside give zeros, the border, or a reflection.
 *
 * Gradients: the planes' is an ordered scatter for each combination. The coordinates' is, for each combination, the sum
 * over channels of gradient times element, weighted by the slope of one dim's weight and the weights of the others.
 */
#include "core/ops/lower.h"

enum { MODE_LINEAR = 0, MODE_NEAREST, MODE_CUBIC };
enum { OUTSIDE_ZEROS = 0, OUTSIDE_BORDER, OUTSIDE_REFLECTION };
enum { DIMS_MAX = 3, TAPS_MAX = 4 };

typedef struct tap {
  hr_operand position;      /* i64, inside the plane */
  hr_operand is_inside;     /* bool; absent: true */
  hr_operand weight, slope; /* absent: 1; slope by the coordinate in elements */
} tap;

/* One dim of the plane. */
typedef struct axis {
  int64_t in;
  tap taps[TAPS_MAX];
  hr_operand factor; /* elements per unit of the coordinate, 0 where it is clamped to the border */
} axis;

typedef struct sampler {
  int n, mode, outside, taps;
  bool aligns_corners;
  hr_dtype dtype; /* of coordinates and weights */
  axis axes[DIMS_MAX];
  hr_operand planes;         /* the sampled planes, or their gradient */
  int64_t dims[HR_RANK_MAX]; /* [N, C, out..] */
} sampler;

static hr_operand number(hr_builder *b, double value) {
  return hr_build_f64(b, value);
}

/* ---- coordinates ---- */

/* The coordinate along dim d as [N, 1, out..]; the grid names the last dim first. */
static hr_operand coordinate_of(hr_builder *b, hr_operand grid, const sampler *s, int d) {
  hr_operand x = hr_view_slice(b, grid, grid.rank - 1, s->n - 1 - d, 1, 1);
  return hr_is_present(x) ? hr_view_insert(b, hr_view_remove(b, x, x.rank - 1), 1, 1) : x;
}

/* Converts to elements: -1 is the first element's centre (or its outer edge), 1 the last one's. */
static hr_operand make_place(hr_builder *b, const sampler *s, hr_operand coordinate, int64_t in) {
  hr_operand from_zero = hr_make2(b, HR_OP_ADD, s->dtype, coordinate, number(b, 1));
  if (s->aligns_corners) {
    return hr_make2(b, HR_OP_MUL, s->dtype, from_zero, number(b, (double)(in - 1) / 2));
  }
  hr_operand edge = hr_make2(b, HR_OP_MUL, s->dtype, from_zero, number(b, (double)in / 2));
  return hr_make2(b, HR_OP_SUB, s->dtype, edge, number(b, 0.5));
}

/* Clamped between 0 and the last element; NaN becomes 0. */
static hr_operand make_held(hr_builder *b, const sampler *s, hr_operand place, int64_t in) {
  hr_operand low = hr_make2(b, HR_OP_FMAX, s->dtype, place, number(b, 0));
  return hr_make2(b, HR_OP_FMIN, s->dtype, low, number(b, (double)(in - 1)));
}

/* Reflected at the centres of the outer elements, or at their edges; *out_sign (if not NULL): 1, or -1 where the
 * direction is reversed. */
static hr_operand make_reflected(hr_builder *b, const sampler *s, hr_operand place, int64_t in, hr_operand *out_sign) {
  double low = s->aligns_corners ? 0 : -0.5, span = (double)(s->aligns_corners ? in - 1 : in);
  if (span == 0) {
    hr_operand zero = hr_make2(b, HR_OP_MUL, s->dtype, place, number(b, 0));
    if (out_sign != NULL) {
      *out_sign = zero;
    }
    return zero;
  }
  hr_operand shifted = hr_make2(b, HR_OP_SUB, s->dtype, place, number(b, low));
  hr_operand distance = hr_make1(b, HR_OP_ABS, s->dtype, shifted);
  hr_operand rest = hr_make2(b, HR_OP_FMOD, s->dtype, distance, number(b, span));
  hr_operand flips = hr_make1(b, HR_OP_FLOOR, s->dtype, hr_make2(b, HR_OP_DIV, s->dtype, distance, number(b, span)));
  hr_operand odd = hr_make2(b, HR_OP_FMOD, s->dtype, flips, number(b, 2));
  hr_operand is_odd = hr_make2(b, HR_OP_EQ, HR_DTYPE_BOOL, odd, number(b, 1));
  hr_operand back = hr_make2(b, HR_OP_SUB, s->dtype, number(b, span), rest);
  hr_operand inside = hr_make3(b, HR_OP_WHERE, s->dtype, is_odd, back, rest);
  if (out_sign != NULL) {
    hr_operand is_before = hr_make2(b, HR_OP_LT, HR_DTYPE_BOOL, shifted, number(b, 0));
    hr_operand turns = hr_make2(b, HR_OP_LOGICAL_XOR, HR_DTYPE_BOOL, is_before, is_odd);
    *out_sign = hr_make3(b, HR_OP_WHERE, s->dtype, turns, number(b, -1), number(b, 1));
  }
  return hr_make2(b, HR_OP_ADD, s->dtype, inside, number(b, low));
}

/* The sampled position, and its derivative by the coordinate. */
static hr_operand make_bounded(hr_builder *b, const sampler *s, axis *a, hr_operand coordinate) {
  hr_operand place = make_place(b, s, coordinate, a->in);
  double scale = (double)(s->aligns_corners ? a->in - 1 : a->in) / 2;
  a->factor = number(b, scale);
  if (s->outside == OUTSIDE_ZEROS || s->mode == MODE_CUBIC) {
    return place; /* cubic: each tap is bounded separately */
  }
  hr_operand sign = number(b, 1);
  hr_operand free = s->outside == OUTSIDE_REFLECTION ? make_reflected(b, s, place, a->in, &sign) : place;
  hr_operand is_free =
      hr_make2(b, HR_OP_LOGICAL_AND, HR_DTYPE_BOOL, hr_make2(b, HR_OP_GT, HR_DTYPE_BOOL, free, number(b, 0)),
               hr_make2(b, HR_OP_LT, HR_DTYPE_BOOL, free, number(b, (double)(a->in - 1))));
  hr_operand moves = hr_make2(b, HR_OP_MUL, s->dtype, sign, number(b, scale));
  a->factor = hr_make3(b, HR_OP_WHERE, s->dtype, is_free, moves, number(b, 0));
  return make_held(b, s, free, a->in);
}

/* ---- taps ---- */

/* Position and validity of a tap at a whole number of elements. */
static void place_tap(hr_builder *b, const sampler *s, tap *t, hr_operand at, int64_t in) {
  if (s->outside == OUTSIDE_ZEROS) {
    hr_operand starts = hr_make2(b, HR_OP_GE, HR_DTYPE_BOOL, at, number(b, 0));
    hr_operand ends = hr_make2(b, HR_OP_LE, HR_DTYPE_BOOL, at, number(b, (double)(in - 1)));
    t->is_inside = hr_make2(b, HR_OP_LOGICAL_AND, HR_DTYPE_BOOL, starts, ends);
  } else if (s->outside == OUTSIDE_REFLECTION && s->mode == MODE_CUBIC) {
    at = make_reflected(b, s, at, in, NULL);
  }
  t->position = hr_make1(b, HR_OP_COPY, HR_DTYPE_I64, make_held(b, s, at, in));
}

/* d/dx of hr__make_cubic. */
static hr_operand make_cubic_slope(hr_builder *b, hr_dtype dtype, hr_operand x, bool is_outer) {
  const double a = -0.75;
  double c2 = is_outer ? 3 * a : 3 * (a + 2), c1 = is_outer ? -10 * a : -2 * (a + 3), c0 = is_outer ? 8 * a : 0;
  hr_operand sum = hr_make3(b, HR_OP_ADD_SCALED, dtype, number(b, c1), x, number(b, c2));
  return hr_make3(b, HR_OP_ADD_SCALED, dtype, number(b, c0), x, sum);
}

/* Tap k of four is k - 1 elements after the element before the position; `rest` is the distance from that element. */
static void weigh_cubic(hr_builder *b, const sampler *s, tap *t, int k, hr_operand rest, bool with_slope) {
  bool is_outer = k == 0 || k == 3, is_behind = k >= 2;
  hr_operand distance = is_behind ? hr_make2(b, HR_OP_SUB, s->dtype, number(b, k - 1), rest)
                                  : hr_make2(b, HR_OP_ADD, s->dtype, rest, number(b, 1 - k));
  t->weight = hr__make_cubic(b, s->dtype, distance, -0.75, is_outer);
  if (with_slope) {
    hr_operand slope = make_cubic_slope(b, s->dtype, distance, is_outer);
    t->slope = is_behind ? hr_make1(b, HR_OP_NEG, s->dtype, slope) : slope;
  }
}

static void make_axis(hr_builder *b, const sampler *s, axis *a, hr_operand coordinate, bool with_slopes) {
  hr_operand place = make_bounded(b, s, a, coordinate);
  if (s->mode == MODE_NEAREST) {
    place_tap(b, s, &a->taps[0], hr_make1(b, HR_OP_ROUND, s->dtype, place), a->in);
    return;
  }
  hr_operand before = hr_make1(b, HR_OP_FLOOR, s->dtype, place), rest = hr_make2(b, HR_OP_SUB, s->dtype, place, before);
  for (int k = 0; k < s->taps; ++k) {
    tap *t = &a->taps[k];
    int step = s->mode == MODE_CUBIC ? k - 1 : k;
    place_tap(b, s, t, step == 0 ? before : hr_make2(b, HR_OP_ADD, s->dtype, before, number(b, step)), a->in);
    if (s->mode == MODE_CUBIC) {
      weigh_cubic(b, s, t, k, rest, with_slopes);
    } else {
      t->weight = k == 1 ? rest : hr_make2(b, HR_OP_SUB, s->dtype, number(b, 1), rest);
      t->slope = number(b, k == 1 ? 1 : -1);
    }
  }
}

static sampler make_sampler(hr_builder *b, const hr_node *node, hr_operand planes, hr_operand grid, bool with_slopes) {
  sampler s = {.n = planes.rank - 2,
               .mode = (int)node->ints[0],
               .outside = (int)node->ints[1],
               .aligns_corners = node->ints[2] != 0,
               .dtype = hr__wide(grid.dtype),
               .planes = planes};
  s.taps = s.mode == MODE_NEAREST ? 1 : s.mode == MODE_LINEAR ? 2 : 4;
  s.dims[0] = planes.dims[0], s.dims[1] = planes.dims[1];
  for (int d = 0; d < s.n; ++d) {
    s.dims[2 + d] = grid.dims[1 + d];
    s.axes[d].in = planes.dims[2 + d];
    make_axis(b, &s, &s.axes[d], coordinate_of(b, grid, &s, d), with_slopes);
  }
  return s;
}

/* ---- combinations of taps ---- */

static int count_combinations(const sampler *s) {
  int count = 1;
  for (int d = 0; d < s->n; ++d) {
    count *= s->taps;
  }
  return count;
}

static const tap *tap_of(const sampler *s, int combination, int d) {
  for (int i = s->n - 1; i > d; --i) {
    combination /= s->taps;
  }
  return &s->axes[d].taps[combination % s->taps];
}

/* Product of the weights, with the slope in dim `slope_dim` (-1: none); absent: 1. */
static hr_operand make_weight(hr_builder *b, const sampler *s, int combination, int slope_dim) {
  hr_operand product = {.kind = HR_OPERAND_NONE};
  for (int d = 0; d < s->n; ++d) {
    const tap *t = tap_of(s, combination, d);
    hr_operand factor = d == slope_dim ? t->slope : t->weight;
    if (hr_is_present(factor)) {
      product = hr_is_present(product) ? hr_make2(b, HR_OP_MUL, s->dtype, product, factor) : factor;
    }
  }
  return product;
}

/* True if all taps are inside; absent: always true. */
static hr_operand make_is_inside(hr_builder *b, const sampler *s, int combination) {
  hr_operand all = {.kind = HR_OPERAND_NONE};
  for (int d = 0; d < s->n; ++d) {
    hr_operand inside = tap_of(s, combination, d)->is_inside;
    if (hr_is_present(inside)) {
      all = hr_is_present(all) ? hr_make2(b, HR_OP_LOGICAL_AND, HR_DTYPE_BOOL, all, inside) : inside;
    }
  }
  return all;
}

/* `planes` over [N, C, out..] through the terms of inputs 1 to n, which are stored after inputs[0]. */
static hr_operand view_combination(hr_builder *b, const sampler *s, hr_operand planes, int combination,
                                   hr_operand *inputs) {
  int64_t strides[HR_RANK_MAX] = {0};
  if (!hr_is_present(planes)) {
    return planes;
  }
  strides[0] = planes.strides[0], strides[1] = planes.strides[1];
  hr_operand view = hr_view_strided(b, planes, planes.rank, s->dims, strides, planes.offset);
  for (int d = 0; d < s->n; ++d) {
    view = hr_view_term(b, view, d + 1, planes.strides[2 + d], planes.dims[2 + d]);
    inputs[d + 1] = tap_of(s, combination, d)->position;
  }
  return view;
}

/* The elements of a combination, 0 outside. */
static hr_operand make_elements(hr_builder *b, const sampler *s, int combination) {
  hr_operand inputs[DIMS_MAX + 1];
  hr_operand picked = hr_build_temp(b, s->planes.dtype, s->planes.rank, s->dims);
  inputs[0] = view_combination(b, s, s->planes, combination, inputs);
  hr_emit_gather(b, picked, s->n + 1, inputs);
  hr_operand inside = make_is_inside(b, s, combination);
  return hr_is_present(inside) ? hr_make3(b, HR_OP_WHERE, s->planes.dtype, inside, picked, number(b, 0)) : picked;
}

hr_status hr__lower_grid_sample(hr_builder *b, const hr_node *node) {
  hr_operand x = hr_node_input(node, 0), y = hr_node_output(node, 0), sum = {.kind = HR_OPERAND_NONE};
  if (hr_operand_count(y) == 0) {
    return HR_OK;
  }
  sampler s = make_sampler(b, node, x, hr_node_input(node, 1), false);
  hr_dtype dtype = hr__wide(y.dtype);
  for (int c = 0, count = count_combinations(&s); c < count; ++c) {
    hr_operand element = make_elements(b, &s, c), weight = make_weight(b, &s, c, -1);
    if (!hr_is_present(weight)) {
      sum = element;
    } else if (c == 0) {
      sum = hr_make2(b, HR_OP_MUL, dtype, element, weight);
    } else {
      sum = hr_make3(b, HR_OP_ADD_SCALED, dtype, sum, element, weight);
    }
  }
  hr_emit1(b, HR_OP_COPY, y, sum);
  return HR_OK;
}

/* ---- gradients ---- */

static void emit_plane_gradient(hr_builder *b, const sampler *s, hr_operand dy, hr_operand dx) {
  hr_dtype dtype = hr__wide(dx.dtype);
  hr_operand sum = dx.dtype == dtype ? dx : hr_build_temp_like(b, dx, dtype), inputs[DIMS_MAX + 1];
  hr_emit1(b, HR_OP_COPY, sum, number(b, 0));
  for (int c = 0, count = count_combinations(s); c < count; ++c) {
    hr_operand weight = make_weight(b, s, c, -1), inside = make_is_inside(b, s, c);
    hr_operand part = hr_is_present(weight) ? hr_make2(b, HR_OP_MUL, dtype, dy, weight) : dy;
    inputs[0] = hr_is_present(inside) ? hr_make3(b, HR_OP_WHERE, dtype, inside, part, number(b, 0)) : part;
    hr_operand view = view_combination(b, s, sum, c, inputs);
    hr_emit_scatter(b, HR_STORE_ADD, view, s->n + 1, inputs, hr__mask_range(2, s->n));
  }
  hr__deliver(b, dx, dtype, sum);
}

static void emit_grid_gradient(hr_builder *b, const sampler *s, hr_operand dy, hr_operand dgrid) {
  if (s->mode == MODE_NEAREST) {
    hr_emit1(b, HR_OP_COPY, dgrid, number(b, 0));
    return;
  }
  hr_operand sums[DIMS_MAX] = {0};
  for (int c = 0, count = count_combinations(s); c < count; ++c) {
    hr_operand product = hr_make2(b, HR_OP_MUL, s->dtype, dy, make_elements(b, s, c));
    hr_operand share = hr_make_reduce(b, HR_OP_SUM, s->dtype, product, 2); /* over channels */
    for (int d = 0; d < s->n; ++d) {
      hr_operand slope = make_weight(b, s, c, d);
      sums[d] = c == 0 ? hr_make2(b, HR_OP_MUL, s->dtype, share, slope)
                       : hr_make3(b, HR_OP_ADD_SCALED, s->dtype, sums[d], share, slope);
    }
  }
  for (int d = 0; d < s->n; ++d) {
    hr_emit2(b, HR_OP_MUL, coordinate_of(b, dgrid, s, d), sums[d], s->axes[d].factor);
  }
}

hr_status hr__lower_grid_sample_backward(hr_builder *b, const hr_node *node) {
  hr_operand dy = hr_node_input(node, 0), dx = hr_node_output(node, 0), dgrid = hr_node_output(node, 1);
  if (hr_operand_count(dy) == 0) {
    for (int i = 0; i < 2; ++i) {
      if (hr_operand_count(hr_node_output(node, i)) > 0) {
        hr_emit1(b, HR_OP_COPY, hr_node_output(node, i), number(b, 0));
      }
    }
    return HR_OK;
  }
  sampler s = make_sampler(b, node, hr_node_input(node, 1), hr_node_input(node, 2), hr_is_present(dgrid));
  if (hr_is_present(dx)) {
    emit_plane_gradient(b, &s, dy, dx);
  }
  if (hr_is_present(dgrid)) {
    emit_grid_gradient(b, &s, dy, dgrid);
  }
  return HR_OK;
}
