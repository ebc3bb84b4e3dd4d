/* lower_upsample.c: nearest and bilinear interpolation of the last two dims.
 *
 * The source of an output row or column depends on its number alone. So nodes over each dim compute a small table, and
 * the output gathers through both tables:
 *
 *   position[oh] = min(floor(oh * scale), H - 1)
 *   y            = copy(x + row_position * stride_h + column_position * stride_w)
 *
 * Scales are arguments of the run. Positions are computed in f32 (f64 for bilinear f64) as PyTorch does, since their
 * rounding decides which element is nearest. Doubling by nearest, which PyTorch does without a scale, is affine.
 * Gradients scatter into zeros, in order inside a plane.
 */
#include <math.h>

#include "core/ops/lower.h"

static void emit_zero(hr_builder *b, hr_operand out) {
  hr_emit1(b, HR_OP_COPY, out, hr_build_f64(b, 0));
}

/* ---- tables ---- */

/* One dim of the plane; its tables are [out], or [out, 2] with the same number twice. */
typedef struct axis {
  int64_t in;
  int rank;
  int64_t dims[2];
} axis;

static axis axis_of(hr_operand small, hr_operand large, int dim, int rank) {
  return (axis){.in = small.dims[dim], .rank = rank, .dims = {large.dims[dim], 2}};
}

/* offset + step * output element, + pair * element of the pair. */
static hr_operand build_numbers(hr_builder *b, const axis *a, int64_t offset, int64_t step, int64_t pair) {
  return hr_build_index(b, a->rank, a->dims, offset, (int64_t[]){step, pair});
}

/* Half of the input elements per output element: 1 / scale, or the quotient of the sizes if no scale is given.
 */
static hr_operand make_half_ratio(hr_builder *b, const axis *a, hr_operand scale, hr_dtype dtype) {
  double in = (double)a->in, out = (double)a->dims[0];
  double quotient = dtype == HR_DTYPE_F64 ? in / out : (double)((float)in / (float)out);
  hr_operand inverse = hr_build_temp(b, HR_DTYPE_F64, a->rank, a->dims);
  hr_emit1(b, HR_OP_RECIPROCAL, inverse, scale); /* infinite if no scale is given */
  hr_operand is_given = hr_make2(b, HR_OP_LT, HR_DTYPE_BOOL, inverse, hr_build_f64(b, INFINITY));
  hr_operand ratio = hr_make3(b, HR_OP_WHERE, dtype, is_given, inverse, hr_build_f64(b, quotient));
  return hr_make2(b, HR_OP_MUL, dtype, ratio, hr_build_f64(b, 0.5));
}

/* i64: the nearest element of `in`. Half the ratio times 2 o, or 2 o + 1, is o or o + 1/2 times the ratio, rounded
 * once. */
static hr_operand make_nearest(hr_builder *b, const axis *a, hr_operand scale, bool is_exact) {
  hr_operand number = build_numbers(b, a, 0, 1, 0);
  if (!is_exact && a->dims[0] == a->in) {
    return hr_make1(b, HR_OP_COPY, HR_DTYPE_I64, number);
  }
  if (!is_exact && a->dims[0] == 2 * a->in) {
    return hr_make2(b, HR_OP_DIV_FLOOR, HR_DTYPE_I64, number, hr_build_i64(b, 2));
  }
  hr_operand half_ratio = make_half_ratio(b, a, scale, HR_DTYPE_F32);
  hr_operand source = hr_make2(b, HR_OP_MUL, HR_DTYPE_F32, half_ratio, build_numbers(b, a, is_exact, 2, 0));
  hr_operand position = hr_make1(b, HR_OP_COPY, HR_DTYPE_I64, source);
  return hr_make2(b, HR_OP_MINIMUM, HR_DTYPE_I64, position, hr_build_i64(b, a->in - 1));
}

typedef struct lerp {
  hr_operand first;         /* i64; the second element is the next one, or the same at the end */
  hr_operand second_weight; /* the first one's is 1 - this */
} lerp;

/* The positions of the output's elements among the input's, in `dtype`. */
static hr_operand make_source(hr_builder *b, const axis *a, hr_operand scale, bool aligns_corners, hr_dtype dtype) {
  if (aligns_corners) {
    double in = (double)(a->in - 1), out = (double)(a->dims[0] - 1);
    double ratio = out == 0 ? 0 : dtype == HR_DTYPE_F64 ? in / out : (double)((float)in / (float)out);
    return hr_make2(b, HR_OP_MUL, dtype, build_numbers(b, a, 0, 1, 0), hr_build_f64(b, ratio));
  }
  hr_operand half_ratio = make_half_ratio(b, a, scale, dtype);
  hr_operand centre = hr_make2(b, HR_OP_MUL, dtype, half_ratio, build_numbers(b, a, 1, 2, 0));
  hr_operand source = hr_make2(b, HR_OP_SUB, dtype, centre, hr_build_f64(b, 0.5));
  return hr_make2(b, HR_OP_MAXIMUM, dtype, source, hr_build_f64(b, 0));
}

static lerp make_lerp(hr_builder *b, const axis *a, hr_operand scale, bool aligns_corners, hr_dtype dtype) {
  lerp l;
  if (a->in == a->dims[0]) {
    l.first = hr_make1(b, HR_OP_COPY, HR_DTYPE_I64, build_numbers(b, a, 0, 1, 0));
    l.second_weight = hr_make2(b, HR_OP_SUB, dtype, l.first, l.first);
    return l;
  }
  hr_operand source = make_source(b, a, scale, aligns_corners, dtype);
  hr_operand position = hr_make1(b, HR_OP_COPY, HR_DTYPE_I64, source);
  l.first = hr_make2(b, HR_OP_MINIMUM, HR_DTYPE_I64, position, hr_build_i64(b, a->in - 1));
  hr_operand rest = hr_make2(b, HR_OP_SUB, dtype, source, l.first);
  l.second_weight = hr_make3(b, HR_OP_CLAMP, dtype, rest, hr_build_f64(b, 0), hr_build_f64(b, 1));
  return l;
}

static hr_operand make_next(hr_builder *b, hr_operand first, int64_t in) {
  hr_operand next = hr_make2(b, HR_OP_ADD, HR_DTYPE_I64, first, hr_build_i64(b, 1));
  return hr_make2(b, HR_OP_MINIMUM, HR_DTYPE_I64, next, hr_build_i64(b, in - 1));
}

static hr_operand make_complement(hr_builder *b, hr_operand weight, hr_dtype dtype) {
  return hr_make2(b, HR_OP_SUB, dtype, hr_build_f64(b, 1), weight);
}

/* ---- gathers and scatters through tables of rows and columns ---- */

/* A plane over `rank` dims whose position comes from the terms of inputs 1 and 2. */
static hr_operand view_through_tables(hr_builder *b, hr_operand x, int rank, const int64_t *dims) {
  int64_t strides[HR_RANK_MAX] = {0};
  int lead = x.rank - 2;
  if (!hr_is_present(x) || rank > HR_RANK_MAX) {
    return x;
  }
  for (int d = 0; d < lead; ++d) {
    strides[d] = x.strides[d];
  }
  hr_operand view = hr_view_strided(b, x, rank, dims, strides, x.offset);
  view = hr_view_term(b, view, 1, x.strides[lead], x.dims[lead]);
  return hr_view_term(b, view, 2, x.strides[lead + 1], x.dims[lead + 1]);
}

static hr_operand as_rows(hr_builder *b, hr_operand table) {
  return hr__ones_after(b, table, 1);
}

static void emit_lookup(hr_builder *b, hr_operand out, hr_operand x, hr_operand rows, hr_operand columns) {
  hr_operand view = view_through_tables(b, x, x.rank, out.dims);
  hr_emit_gather(b, out, 3, (hr_operand[]){view, as_rows(b, rows), columns});
}

/* ---- nearest ---- */

static bool is_doubling(hr_operand small, hr_operand large, const hr_node *node) {
  int lead = small.rank - 2;
  return node->ints[0] == 0 && large.dims[lead] == 2 * small.dims[lead] &&
         large.dims[lead + 1] == 2 * small.dims[lead + 1];
}

/* [.., 2H, 2W] as [.., H, 2, W, 2] */
static hr_operand view_pairs(hr_builder *b, hr_operand x) {
  int lead = x.rank - 2;
  return hr_view_split(b, hr_view_split(b, x, lead + 1, 2), lead, 2);
}
/* [.., H, W] as [.., H, 1, W, 1] */
static hr_operand view_beside_pairs(hr_builder *b, hr_operand x) {
  return hr__ones_after(b, hr_view_insert(b, x, x.rank - 1, 1), 1);
}

hr_status hr__lower_upsample_nearest2d(hr_builder *b, const hr_node *node) {
  hr_operand x = hr_node_input(node, 0), y = hr_node_output(node, 0);
  int lead = x.rank - 2;
  if (hr_operand_count(y) == 0) {
    return HR_OK;
  }
  if (is_doubling(x, y, node)) {
    hr_emit1(b, HR_OP_COPY, view_pairs(b, y), view_beside_pairs(b, x));
    return HR_OK;
  }
  bool is_exact = node->ints[0] != 0;
  axis row = axis_of(x, y, lead, 1), column = axis_of(x, y, lead + 1, 1);
  hr_operand rows = make_nearest(b, &row, hr_build_attr(b, node, 0), is_exact);
  hr_operand columns = make_nearest(b, &column, hr_build_attr(b, node, 1), is_exact);
  emit_lookup(b, y, x, rows, columns);
  return HR_OK;
}

hr_status hr__lower_upsample_nearest2d_backward(hr_builder *b, const hr_node *node) {
  hr_operand dy = hr_node_input(node, 0), dx = hr_node_output(node, 0);
  int lead = dx.rank - 2;
  if (hr_operand_count(dx) == 0) {
    return HR_OK;
  }
  if (is_doubling(dx, dy, node)) {
    hr_emit_reduce(b, HR_OP_SUM, view_beside_pairs(b, dx), view_pairs(b, dy), 5u << (lead + 1));
    return HR_OK;
  }
  bool is_exact = node->ints[0] != 0;
  hr_dtype dtype = hr__wide(dx.dtype);
  axis row = axis_of(dx, dy, lead, 1), column = axis_of(dx, dy, lead + 1, 1);
  hr_operand rows = make_nearest(b, &row, hr_build_attr(b, node, 0), is_exact);
  hr_operand columns = make_nearest(b, &column, hr_build_attr(b, node, 1), is_exact);
  hr_operand sum = dx.dtype == dtype ? dx : hr_build_temp_like(b, dx, dtype);
  emit_zero(b, sum);
  hr_emit_scatter(b, HR_STORE_ADD, view_through_tables(b, sum, dy.rank, dy.dims), 3,
                  (hr_operand[]){dy, as_rows(b, rows), columns}, hr__mask_range(lead, 2));
  hr__deliver(b, dx, dtype, sum);
  return HR_OK;
}

/* ---- bilinear ---- */

static hr_operand make_corner(hr_builder *b, hr_operand x, hr_operand y, hr_operand rows, hr_operand columns) {
  hr_operand corner = hr_build_temp_like(b, y, x.dtype);
  if (hr_is_present(corner)) {
    emit_lookup(b, corner, x, rows, columns);
  }
  return corner;
}

hr_status hr__lower_upsample_bilinear2d(hr_builder *b, const hr_node *node) {
  hr_operand x = hr_node_input(node, 0), y = hr_node_output(node, 0);
  int lead = x.rank - 2;
  hr_dtype dtype = hr__wide(y.dtype);
  if (hr_operand_count(y) == 0) {
    return HR_OK;
  }
  bool aligns = node->ints[0] != 0;
  axis vertical = axis_of(x, y, lead, 1), horizontal = axis_of(x, y, lead + 1, 1);
  lerp row = make_lerp(b, &vertical, hr_build_attr(b, node, 0), aligns, dtype);
  hr_operand row_next = make_next(b, row.first, vertical.in);
  hr_operand bottom = as_rows(b, row.second_weight), top = as_rows(b, make_complement(b, row.second_weight, dtype));
  lerp column = make_lerp(b, &horizontal, hr_build_attr(b, node, 1), aligns, dtype);
  hr_operand column_next = make_next(b, column.first, horizontal.in);
  hr_operand right = column.second_weight, left = make_complement(b, right, dtype);
  hr_operand above = hr_make4(b, HR_OP_SCALE_ADD, dtype, make_corner(b, x, y, row.first, column.first),
                              make_corner(b, x, y, row.first, column_next), left, right);
  hr_operand below = hr_make4(b, HR_OP_SCALE_ADD, dtype, make_corner(b, x, y, row_next, column.first),
                              make_corner(b, x, y, row_next, column_next), left, right);
  hr_emit4(b, HR_OP_SCALE_ADD, y, above, below, top, bottom);
  return HR_OK;
}

/* The two elements of a lerp as tables of [out, 2]: positions and weights. */
static void make_pair_tables(hr_builder *b, const axis *a, lerp l, hr_dtype dtype, hr_operand *out_positions,
                             hr_operand *out_weights) {
  hr_operand position = hr_make2(b, HR_OP_ADD, HR_DTYPE_I64, l.first, build_numbers(b, a, 0, 0, 1));
  *out_positions = hr_make2(b, HR_OP_MINIMUM, HR_DTYPE_I64, position, hr_build_i64(b, a->in - 1));
  hr_operand is_first = build_numbers(b, a, 1, 0, -1); /* 1, 0: |1 - w|, |0 - w| */
  *out_weights = hr_make1(b, HR_OP_ABS, dtype, hr_make2(b, HR_OP_SUB, dtype, is_first, l.second_weight));
}

/* [out, 2] as [out, 1, 2]. */
static hr_operand with_gap(hr_builder *b, hr_operand table) {
  return hr_is_present(table) ? hr_view_insert(b, table, 1, 1) : table;
}

/* dx[p] += dy * row weight * column weight over [.., OH, OW, 2, 2]. */
hr_status hr__lower_upsample_bilinear2d_backward(hr_builder *b, const hr_node *node) {
  hr_operand dy = hr_node_input(node, 0), dx = hr_node_output(node, 0);
  int lead = dx.rank - 2, rank = dx.rank + 2;
  hr_dtype dtype = hr__wide(dx.dtype);
  if (hr_operand_count(dx) == 0) {
    return HR_OK;
  }
  bool aligns = node->ints[0] != 0;
  hr_operand rows, row_weights, columns, column_weights;
  axis row = axis_of(dx, dy, lead, 2), column = axis_of(dx, dy, lead + 1, 2);
  make_pair_tables(b, &row, make_lerp(b, &row, hr_build_attr(b, node, 0), aligns, dtype), dtype, &rows, &row_weights);
  make_pair_tables(b, &column, make_lerp(b, &column, hr_build_attr(b, node, 1), aligns, dtype), dtype, &columns,
                   &column_weights);
  rows = as_rows(b, with_gap(b, rows)); /* [OH, 1, 2, 1] */
  columns = with_gap(b, columns);       /* [OW, 1, 2] */
  hr_operand weights = hr_make2(b, HR_OP_MUL, dtype, as_rows(b, with_gap(b, row_weights)), with_gap(b, column_weights));
  hr_operand sum = dx.dtype == dtype ? dx : hr_build_temp_like(b, dx, dtype);
  emit_zero(b, sum);
  hr_operand source = hr_make2(b, HR_OP_MUL, dtype, hr__ones_after(b, dy, 2), weights);
  if (!hr_is_present(source)) {
    return HR_OK;
  }
  hr_emit_scatter(b, HR_STORE_ADD, view_through_tables(b, sum, rank, source.dims), 3,
                  (hr_operand[]){source, rows, columns}, hr__mask_range(lead, 4));
  hr__deliver(b, dx, dtype, sum);
  return HR_OK;
}
