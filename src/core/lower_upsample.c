/* lower_upsample.c: nearest and bilinear interpolation of the last two dims.
 *
 * Where an output row or column reads from depends on its number alone, so each dim gets a small table, made by nodes over
 * that dim, and the output gathers through both tables:
 *
 *   position[oh] = min(floor(oh * scale), H - 1)          y = copy(x + row_position * stride_h + column_position * stride_w)
 *
 * Scales come at run time. Positions are computed in f32 (f64 for bilinear f64) as PyTorch does, since their rounding decides
 * which element is nearest. Doubling by nearest, which PyTorch does without a scale, is affine. Gradients scatter into zeros,
 * in order inside a plane.
 */
#include "core/lower.h"

static void emit_zero(hr_builder *b, hr_operand out) {
  hr_emit1(b, HR_OP_COPY, out, hr_build_f64(b, 0));
}

/* ---- tables ---- */

/* Input elements for each output element, over [out]: 1 / scale, or the quotient of the sizes where no scale is given. */
static hr_operand make_ratio(hr_builder *b, hr_operand scale, int64_t in, int64_t out, hr_dtype dtype) {
  double quotient = dtype == HR_DTYPE_F64 ? (double)in / (double)out : (double)((float)in / (float)out);
  hr_operand is_given = hr_build_temp(b, HR_DTYPE_BOOL, 1, &out), inverse = hr_build_temp(b, HR_DTYPE_F64, 1, &out);
  hr_emit2(b, HR_OP_GT, is_given, scale, hr_build_f64(b, 0));
  hr_emit1(b, HR_OP_RECIPROCAL, inverse, scale);
  return hr_make3(b, HR_OP_WHERE, dtype, is_given, inverse, hr_build_f64(b, quotient));
}

static hr_operand build_numbers(hr_builder *b, int64_t count) {
  int64_t stride = 1;
  return hr_build_index(b, 1, &count, 0, &stride);
}

/* [out] i64: the nearest element of `in`. */
static hr_operand make_nearest(hr_builder *b, hr_operand scale, int64_t in, int64_t out, bool is_exact) {
  hr_operand number = build_numbers(b, out);
  if (!is_exact && in == out) {
    return hr_make1(b, HR_OP_COPY, HR_DTYPE_I64, number);
  }
  if (!is_exact && out == 2 * in) {
    return hr_make2(b, HR_OP_DIV_FLOOR, HR_DTYPE_I64, number, hr_build_i64(b, 2));
  }
  hr_operand ratio = make_ratio(b, scale, in, out, HR_DTYPE_F32);
  if (is_exact) {
    number = hr_make2(b, HR_OP_ADD, HR_DTYPE_F32, number, hr_build_f64(b, 0.5));
  }
  hr_operand source = hr_make2(b, HR_OP_MUL, HR_DTYPE_F32, number, ratio);
  hr_operand position = hr_make1(b, HR_OP_COPY, HR_DTYPE_I64, source);
  return hr_make2(b, HR_OP_MINIMUM, HR_DTYPE_I64, position, hr_build_i64(b, in - 1));
}

typedef struct lerp {       /* over [out] */
  hr_operand first;         /* i64; the second element is the next one, or the same at the end */
  hr_operand second_weight; /* the first one's is 1 - this */
} lerp;

static lerp make_lerp(hr_builder *b, hr_operand scale, int64_t in, int64_t out, bool aligns_corners, hr_dtype dtype) {
  lerp l;
  hr_operand number = build_numbers(b, out), zero = hr_build_f64(b, 0), one = hr_build_f64(b, 1), source;
  if (in == out) {
    l.first = hr_make1(b, HR_OP_COPY, HR_DTYPE_I64, number);
    l.second_weight = hr_build_temp(b, dtype, 1, &out);
    hr_emit1(b, HR_OP_COPY, l.second_weight, zero);
    return l;
  }
  if (aligns_corners) {
    double ratio = out <= 1                ? 0
                   : dtype == HR_DTYPE_F64 ? (double)(in - 1) / (double)(out - 1)
                                           : (double)((float)(in - 1) / (float)(out - 1));
    source = hr_make2(b, HR_OP_MUL, dtype, number, hr_build_f64(b, ratio));
  } else {
    hr_operand half = hr_build_f64(b, 0.5), ratio = make_ratio(b, scale, in, out, dtype);
    source = hr_make2(b, HR_OP_MUL, dtype, hr_make2(b, HR_OP_ADD, dtype, number, half), ratio);
    source = hr_make2(b, HR_OP_MAXIMUM, dtype, hr_make2(b, HR_OP_SUB, dtype, source, half), zero);
  }
  hr_operand position = hr_make1(b, HR_OP_COPY, HR_DTYPE_I64, source);
  l.first = hr_make2(b, HR_OP_MINIMUM, HR_DTYPE_I64, position, hr_build_i64(b, in - 1));
  l.second_weight = hr_make3(b, HR_OP_CLAMP, dtype, hr_make2(b, HR_OP_SUB, dtype, source, l.first), zero, one);
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
  hr_operand rows = make_nearest(b, hr_build_attr(b, node, 0), x.dims[lead], y.dims[lead], is_exact);
  hr_operand columns = make_nearest(b, hr_build_attr(b, node, 1), x.dims[lead + 1], y.dims[lead + 1], is_exact);
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
  hr_operand rows = make_nearest(b, hr_build_attr(b, node, 0), dx.dims[lead], dy.dims[lead], is_exact);
  hr_operand columns = make_nearest(b, hr_build_attr(b, node, 1), dx.dims[lead + 1], dy.dims[lead + 1], is_exact);
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
  int64_t height = x.dims[lead], width = x.dims[lead + 1];
  hr_dtype dtype = hr__wide(y.dtype);
  if (hr_operand_count(y) == 0) {
    return HR_OK;
  }
  bool aligns = node->ints[0] != 0;
  lerp row = make_lerp(b, hr_build_attr(b, node, 0), height, y.dims[lead], aligns, dtype);
  hr_operand row_next = make_next(b, row.first, height);
  hr_operand bottom = as_rows(b, row.second_weight), top = as_rows(b, make_complement(b, row.second_weight, dtype));
  lerp column = make_lerp(b, hr_build_attr(b, node, 1), width, y.dims[lead + 1], aligns, dtype);
  hr_operand column_next = make_next(b, column.first, width);
  hr_operand right = column.second_weight, left = make_complement(b, right, dtype);
  hr_operand above = hr_make4(b, HR_OP_SCALE_ADD, dtype, make_corner(b, x, y, row.first, column.first),
                              make_corner(b, x, y, row.first, column_next), left, right);
  hr_operand below = hr_make4(b, HR_OP_SCALE_ADD, dtype, make_corner(b, x, y, row_next, column.first),
                              make_corner(b, x, y, row_next, column_next), left, right);
  hr_emit4(b, HR_OP_SCALE_ADD, y, above, below, top, bottom);
  return HR_OK;
}

/* The two elements of a lerp as tables of [out, 2]: positions and weights. */
static void make_pair_tables(hr_builder *b, lerp l, int64_t in, int64_t out, hr_dtype dtype, hr_operand *out_positions,
                             hr_operand *out_weights) {
  int64_t dims[2] = {out, 2}, up[2] = {0, 1}, down[2] = {0, -1};
  hr_operand position = hr_make2(b, HR_OP_ADD, HR_DTYPE_I64, as_rows(b, l.first), hr_build_index(b, 2, dims, 0, up));
  *out_positions = hr_make2(b, HR_OP_MINIMUM, HR_DTYPE_I64, position, hr_build_i64(b, in - 1));
  hr_operand is_first = hr_build_index(b, 2, dims, 1, down); /* 1, 0: |1 - w|, |0 - w| */
  hr_operand difference = hr_make2(b, HR_OP_SUB, dtype, is_first, as_rows(b, l.second_weight));
  *out_weights = hr_make1(b, HR_OP_ABS, dtype, difference);
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
  int64_t height = dx.dims[lead], width = dx.dims[lead + 1], out_height = dy.dims[lead], out_width = dy.dims[lead + 1];
  lerp row = make_lerp(b, hr_build_attr(b, node, 0), height, out_height, aligns, dtype);
  make_pair_tables(b, row, height, out_height, dtype, &rows, &row_weights);
  lerp column = make_lerp(b, hr_build_attr(b, node, 1), width, out_width, aligns, dtype);
  make_pair_tables(b, column, width, out_width, dtype, &columns, &column_weights);
  hr_operand sum = dx.dtype == dtype ? dx : hr_build_temp_like(b, dx, dtype);
  emit_zero(b, sum);
  row_weights = as_rows(b, hr_view_insert(b, row_weights, 1, 1)); /* [OH, 1, 2, 1] */
  rows = as_rows(b, hr_view_insert(b, rows, 1, 1));
  column_weights = hr_view_insert(b, column_weights, 1, 1); /* [OW, 1, 2] */
  columns = hr_view_insert(b, columns, 1, 1);
  hr_operand part = hr_make2(b, HR_OP_MUL, dtype, hr__ones_after(b, dy, 2), row_weights);
  hr_operand source = hr_make2(b, HR_OP_MUL, dtype, part, column_weights);
  if (!hr_is_present(source)) {
    return HR_OK;
  }
  hr_emit_scatter(b, HR_STORE_ADD, view_through_tables(b, sum, rank, source.dims), 3,
                  (hr_operand[]){source, rows, columns}, hr__mask_range(lead, 4));
  hr__deliver(b, dx, dtype, sum);
  return HR_OK;
}
