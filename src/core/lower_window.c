/* lower_window.c: pooling over windows of the last two dims.
 *
 * A pool is a reduction over [.., OH, OW, KH, KW]: the input is read through a view whose window dims step inside the
 * plane, with bounds where windows leave it. Gradients of windows that don't overlap and lie inside the plane are
 * element-wise over the same domain in the plane's own order, [.., OH, KH, OW, KW], so that they fuse with their
 * neighbours; the others add up in a scatter that runs in order inside a plane, and in parallel over planes.
 */
#include <math.h>

#include "core/lower.h"

typedef struct window {
  int lead; /* dims in front of the plane */
  int64_t kernel[2], stride[2], padding[2], dilation[2];
  int64_t in[2], out[2];
} window;

static window window_of(const hr_node *node, hr_operand plane, hr_operand result) {
  window w = {.lead = plane.rank - 2};
  for (int i = 0; i < 2; ++i) {
    w.kernel[i] = node->ints[i], w.stride[i] = node->ints[2 + i];
    w.padding[i] = node->ints[4 + i], w.dilation[i] = node->ints[6 + i];
    w.in[i] = plane.dims[w.lead + i], w.out[i] = result.dims[w.lead + i];
  }
  return w;
}

/* Whether some window reaches past the plane on side i's high end. */
static bool leaves_plane(const window *w, int i) {
  return (w->out[i] - 1) * w->stride[i] - w->padding[i] + (w->kernel[i] - 1) * w->dilation[i] >= w->in[i];
}

static bool windows_overlap(const window *w) {
  return (w->kernel[0] - 1) * w->dilation[0] >= w->stride[0] || (w->kernel[1] - 1) * w->dilation[1] >= w->stride[1];
}

/* Windows are whole tiles inside the plane that share no element. */
static bool windows_are_tiles(const window *w) {
  for (int i = 0; i < 2; ++i) {
    if (w->padding[i] != 0 || w->dilation[i] != 1 || w->kernel[i] > w->stride[i] || leaves_plane(w, i)) {
      return false;
    }
  }
  return true;
}

/* Strides over [.., OH, OW, KH, KW] of what has `rows` and `columns` as strides of a plane. */
static void window_strides(const window *w, int64_t rows, int64_t columns, int64_t *strides) {
  strides[w->lead] = w->stride[0] * rows, strides[w->lead + 1] = w->stride[1] * columns;
  strides[w->lead + 2] = w->dilation[0] * rows, strides[w->lead + 3] = w->dilation[1] * columns;
}

static void window_dims(const window *w, hr_operand plane, int64_t *dims) {
  for (int d = 0; d < w->lead; ++d) {
    dims[d] = plane.dims[d];
  }
  for (int i = 0; i < 2; ++i) {
    dims[w->lead + i] = w->out[i], dims[w->lead + 2 + i] = w->kernel[i];
  }
}

/* x as [.., OH, OW, KH, KW], bounded where windows leave the plane. */
static hr_operand view_windows(hr_builder *b, hr_operand x, const window *w) {
  int64_t dims[HR_RANK_MAX], strides[HR_RANK_MAX] = {0};
  if (!hr_is_present(x) || x.rank + 2 > HR_RANK_MAX) {
    return x;
  }
  int64_t rows = x.strides[w->lead], columns = x.strides[w->lead + 1];
  window_dims(w, x, dims);
  for (int d = 0; d < w->lead; ++d) {
    strides[d] = x.strides[d];
  }
  window_strides(w, rows, columns, strides);
  hr_operand view =
      hr_view_strided(b, x, x.rank + 2, dims, strides, x.offset - w->padding[0] * rows - w->padding[1] * columns);
  for (int i = 0; i < 2; ++i) {
    if (w->padding[i] > 0 || leaves_plane(w, i)) {
      int64_t bound[HR_RANK_MAX] = {0};
      window_strides(w, i == 0, i == 1, bound);
      view = hr_view_bound(b, view, -w->padding[i], bound, w->in[i]);
    }
  }
  return view;
}

/* x as [.., OH, KH, OW, KW]: tiles in the plane's own order. */
static hr_operand view_tiles(hr_builder *b, hr_operand x, const window *w) {
  int64_t dims[HR_RANK_MAX], strides[HR_RANK_MAX];
  if (!hr_is_present(x) || x.rank + 2 > HR_RANK_MAX) {
    return x;
  }
  for (int d = 0; d < w->lead; ++d) {
    dims[d] = x.dims[d], strides[d] = x.strides[d];
  }
  for (int i = 0; i < 2; ++i) {
    int64_t stride = x.strides[w->lead + i];
    dims[w->lead + 2 * i] = w->out[i], strides[w->lead + 2 * i] = stride * w->stride[i];
    dims[w->lead + 2 * i + 1] = w->kernel[i], strides[w->lead + 2 * i + 1] = stride;
  }
  return hr_view_strided(b, x, x.rank + 2, dims, strides, x.offset);
}

/* [.., OH, OW] as [.., OH, 1, OW, 1] */
static hr_operand view_beside_tiles(hr_builder *b, hr_operand x) {
  if (!hr_is_present(x)) {
    return x;
  }
  return hr__ones_after(b, hr_view_insert(b, x, x.rank - 1, 1), 1);
}

static void emit_zero(hr_builder *b, hr_operand out) {
  hr_emit1(b, HR_OP_COPY, out, hr_build_f64(b, 0));
}

static bool tiles_cover_plane(const window *w) {
  return w->out[0] * w->stride[0] == w->in[0] && w->out[1] * w->stride[1] == w->in[1] && w->kernel[0] == w->stride[0] &&
         w->kernel[1] == w->stride[1];
}

/* ---- max pool ---- */

static hr_operand lowest(hr_builder *b, hr_dtype dtype) {
  if (!hr_dtype_is_integer(dtype)) {
    return hr_build_f64(b, -INFINITY);
  }
  switch (dtype) {
    case HR_DTYPE_I8:
      return hr_build_i64(b, INT8_MIN);
    case HR_DTYPE_I16:
      return hr_build_i64(b, INT16_MIN);
    case HR_DTYPE_I32:
      return hr_build_i64(b, INT32_MIN);
    case HR_DTYPE_I64:
      return hr_build_i64(b, INT64_MIN);
    default:
      return hr_build_i64(b, 0);
  }
}

/* The position in the plane of each element of each window. Where windows are padded the numbers come from a table, so that
 * padding has the largest of all: it never wins, not even against a plane of -infinity. */
static hr_operand make_positions(hr_builder *b, const window *w, hr_operand x) {
  int64_t dims[HR_RANK_MAX], strides[HR_RANK_MAX] = {0};
  if (w->padding[0] == 0 && w->padding[1] == 0) {
    window_dims(w, x, dims);
    window_strides(w, w->in[1], 1, strides);
    return hr_build_index(b, x.rank + 2, dims, 0, strides);
  }
  window plane = *w;
  plane.lead = 0;
  hr_operand table = hr_build_temp(b, HR_DTYPE_I64, 2, w->in);
  hr_emit1(b, HR_OP_COPY, table, hr_build_index(b, 2, w->in, 0, (int64_t[]){w->in[1], 1}));
  return hr_view_fill(b, view_windows(b, table, &plane), hr_build_i64(b, INT64_MAX));
}

hr_status hr__lower_max_pool2d(hr_builder *b, const hr_node *node) {
  hr_operand x = hr_node_input(node, 0), y = hr_node_output(node, 0), index = hr_node_output(node, 1);
  window w = window_of(node, x, y);
  if (hr_operand_count(y) == 0) {
    return HR_OK;
  }
  uint32_t mask = hr__mask_range(w.lead + 2, 2);
  hr_operand key = hr_view_fill(b, view_windows(b, x, &w), lowest(b, x.dtype));
  hr_operand positions = hr_is_present(index) ? make_positions(b, &w, x) : index; /* its table first: the rest fuses */
  hr_emit_reduce(b, HR_OP_AMAX, hr__ones_after(b, y, 2), key, mask);
  if (hr_is_present(index)) {
    hr_emit_argreduce(b, HR_OP_ARGMAX, hr__ones_after(b, index, 2), key, positions, mask);
  }
  return HR_OK;
}

/* dx where a position inside a plane is one number; else a temporary to copy from. */
static hr_operand flat_planes(hr_builder *b, hr_operand dx, int lead, hr_dtype dtype) {
  bool is_flat =
      dx.dtype == dtype && (dx.dims[lead] <= 1 || dx.strides[lead] == dx.strides[lead + 1] * dx.dims[lead + 1]);
  return is_flat ? dx : hr_build_temp_like(b, dx, dtype);
}

static void emit_max_scatter(hr_builder *b, const window *w, hr_operand dy, hr_operand index, hr_operand dx) {
  hr_operand sum = flat_planes(b, dx, w->lead, hr__wide(dx.dtype));
  if (!hr_is_present(sum)) {
    return;
  }
  emit_zero(b, sum);
  int64_t strides[HR_RANK_MAX] = {0};
  for (int d = 0; d < w->lead; ++d) {
    strides[d] = sum.strides[d];
  }
  hr_operand view = hr_view_strided(b, sum, dy.rank, dy.dims, strides, sum.offset);
  view = hr_view_term(b, view, 1, sum.strides[w->lead + 1], w->in[0] * w->in[1]);
  uint32_t ordered = windows_overlap(w) ? hr__mask_range(w->lead, 2) : 0;
  hr_emit_scatter(b, HR_STORE_ADD, view, 2, (hr_operand[]){dy, index}, ordered);
  if (sum.index != dx.index) {
    hr_emit1(b, HR_OP_COPY, dx, sum);
  }
}

hr_status hr__lower_max_pool2d_backward(hr_builder *b, const hr_node *node) {
  hr_operand dy = hr_node_input(node, 0), index = hr_node_input(node, 1), dx = hr_node_output(node, 0);
  window w = window_of(node, dx, dy);
  if (hr_operand_count(dy) == 0) {
    emit_zero(b, dx);
    return HR_OK;
  }
  if (!windows_are_tiles(&w)) {
    emit_max_scatter(b, &w, dy, index, dx);
    return HR_OK;
  }
  if (!tiles_cover_plane(&w)) {
    emit_zero(b, dx);
  }
  hr_operand tiles = view_tiles(b, dx, &w);
  int64_t strides[HR_RANK_MAX] = {0};
  strides[w.lead] = w.stride[0] * w.in[1], strides[w.lead + 1] = w.in[1];
  strides[w.lead + 2] = w.stride[1], strides[w.lead + 3] = 1;
  hr_operand number = hr_build_index(b, tiles.rank, tiles.dims, 0, strides);
  hr_operand is_best = hr_make2(b, HR_OP_EQ, HR_DTYPE_BOOL, number, view_beside_tiles(b, index));
  hr_emit3(b, HR_OP_WHERE, tiles, is_best, view_beside_tiles(b, dy), hr_build_f64(b, 0));
  return HR_OK;
}

/* ---- average pool ---- */

/* How many elements the windows of dim i divide by, as i64 of [OH, OW]. With padding counted a window ends at the padding's end. */
static hr_operand make_window_sizes(hr_builder *b, const window *w, int i, bool counts_padding) {
  int64_t strides[2] = {0};
  strides[i] = w->stride[i];
  hr_operand start = hr_build_index(b, 2, w->out, -w->padding[i], strides);
  hr_operand end = hr_build_index(b, 2, w->out, w->kernel[i] - w->padding[i], strides);
  hr_operand limit = hr_build_i64(b, counts_padding ? w->in[i] + w->padding[i] : w->in[i]);
  hr_operand stop = hr_make2(b, HR_OP_MINIMUM, HR_DTYPE_I64, end, limit);
  hr_operand size = hr_make2(b, HR_OP_SUB, HR_DTYPE_I64, stop, start);
  return counts_padding ? size : hr_make2(b, HR_OP_MINIMUM, HR_DTYPE_I64, size, stop); /* stop - max(start, 0) */
}

/* What the sum of a window is divided by: a number, or a table of [OH, OW]. */
static hr_operand make_divisor(hr_builder *b, const window *w, bool counts_padding, int64_t divisor, hr_dtype dtype) {
  bool leaves = leaves_plane(w, 0) || leaves_plane(w, 1), pads = w->padding[0] > 0 || w->padding[1] > 0;
  bool is_uniform = counts_padding;
  for (int i = 0; i < 2; ++i) {
    is_uniform = is_uniform && (w->out[i] - 1) * w->stride[i] + w->kernel[i] <= w->in[i] + 2 * w->padding[i];
  }
  if (divisor != 0) {
    return hr_build_f64(b, (double)divisor);
  }
  if (is_uniform || (!leaves && !pads)) {
    return hr_build_f64(b, (double)(w->kernel[0] * w->kernel[1]));
  }
  hr_operand rows = make_window_sizes(b, w, 0, counts_padding), columns = make_window_sizes(b, w, 1, counts_padding);
  hr_operand size = hr_make2(b, HR_OP_MUL, HR_DTYPE_I64, rows, columns);
  return hr_make2(b, HR_OP_MAXIMUM, dtype, size, hr_build_i64(b, 1));
}

hr_status hr__lower_avg_pool2d(hr_builder *b, const hr_node *node) {
  hr_operand x = hr_node_input(node, 0), y = hr_node_output(node, 0);
  window w = window_of(node, x, y);
  if (hr_operand_count(y) == 0) {
    return HR_OK;
  }
  hr_dtype dtype = hr__wide(y.dtype);
  hr_operand divisor = make_divisor(b, &w, node->ints[8] != 0, node->ints[9], dtype);
  if (divisor.rank > 0) {
    divisor = hr__ones_after(b, divisor, 2);
  }
  hr_operand sum = hr_make_reduce(b, HR_OP_SUM, dtype, view_windows(b, x, &w), hr__mask_range(w.lead + 2, 2));
  hr_emit2(b, hr_dtype_is_integer(dtype) ? HR_OP_DIV_TRUNC : HR_OP_DIV, hr__ones_after(b, y, 2), sum, divisor);
  return HR_OK;
}

/* dx[h] = sum of g[h + padding - k] over the window: for a stride of 1. */
static void emit_gathered_sum(hr_builder *b, const window *w, hr_operand g, hr_operand dx) {
  int lead = w->lead;
  if (!hr_is_present(g)) {
    return;
  }
  int64_t rows = g.strides[lead], columns = g.strides[lead + 1], dims[HR_RANK_MAX], strides[HR_RANK_MAX];
  for (int d = 0; d < lead; ++d) {
    dims[d] = dx.dims[d], strides[d] = g.strides[d];
  }
  for (int i = 0; i < 2; ++i) {
    dims[lead + i] = w->in[i], dims[lead + 2 + i] = w->kernel[i];
    strides[lead + i] = g.strides[lead + i], strides[lead + 2 + i] = -g.strides[lead + i];
  }
  hr_operand view =
      hr_view_strided(b, g, dx.rank + 2, dims, strides, g.offset + w->padding[0] * rows + w->padding[1] * columns);
  for (int i = 0; i < 2; ++i) {
    int64_t bound[HR_RANK_MAX] = {0};
    bound[lead + i] = 1, bound[lead + 2 + i] = -1;
    view = hr_view_bound(b, view, w->padding[i], bound, w->out[i]);
  }
  hr_emit_reduce(b, HR_OP_SUM, hr__ones_after(b, dx, 2), view, hr__mask_range(lead + 2, 2));
}

hr_status hr__lower_avg_pool2d_backward(hr_builder *b, const hr_node *node) {
  hr_operand dy = hr_node_input(node, 0), dx = hr_node_output(node, 0);
  window w = window_of(node, dx, dy);
  if (hr_operand_count(dy) == 0) {
    emit_zero(b, dx);
    return HR_OK;
  }
  hr_dtype dtype = hr__wide(dx.dtype);
  hr_operand divisor = make_divisor(b, &w, node->ints[8] != 0, node->ints[9], dtype);
  if (windows_are_tiles(&w)) {
    if (!tiles_cover_plane(&w)) {
      emit_zero(b, dx);
    }
    hr_emit2(b, HR_OP_DIV, view_tiles(b, dx, &w), view_beside_tiles(b, dy), divisor);
    return HR_OK;
  }
  hr_operand g = hr_make2(b, HR_OP_DIV, dtype, dy, divisor);
  if (w.stride[0] == 1 && w.stride[1] == 1) {
    emit_gathered_sum(b, &w, g, dx);
    return HR_OK;
  }
  hr_operand sum = dx.dtype == dtype ? dx : hr_build_temp_like(b, dx, dtype);
  emit_zero(b, sum);
  g = hr__ones_after(b, g, 2);
  hr_emit_scatter(b, HR_STORE_ADD, view_windows(b, sum, &w), 1, &g, hr__mask_range(w.lead, 4));
  hr__deliver(b, dx, dtype, sum);
  return HR_OK;
}

/* ---- adaptive average pool: window i of dim n -> m is [floor(i * n / m), ceil((i + 1) * n / m)) ---- */

typedef struct span { /* tables over [windows of the dim, elements of the widest window] */
  hr_operand position, is_inside;
  hr_operand size; /* [windows, 1] */
} span;

static int64_t widest_window(int64_t in, int64_t out) {
  int64_t widest = 1;
  for (int64_t i = 0; i < out; ++i) {
    int64_t width = ((i + 1) * in + out - 1) / out - i * in / out;
    widest = width > widest ? width : widest;
  }
  return widest;
}

static span make_span(hr_builder *b, int64_t in, int64_t out, int64_t width) {
  int64_t dims[2] = {out, width}, steps[2] = {in, 0}, one[2] = {0, 1};
  hr_operand divisor = hr_build_i64(b, out);
  hr_operand start = hr_make2(b, HR_OP_DIV_FLOOR, HR_DTYPE_I64, hr_build_index(b, 2, dims, 0, steps), divisor);
  hr_operand end = hr_make2(b, HR_OP_DIV_FLOOR, HR_DTYPE_I64, hr_build_index(b, 2, dims, in + out - 1, steps), divisor);
  hr_operand at = hr_make2(b, HR_OP_ADD, HR_DTYPE_I64, start, hr_build_index(b, 2, dims, 0, one));
  span s;
  s.is_inside = hr_make2(b, HR_OP_LT, HR_DTYPE_BOOL, at, end);
  s.position = hr_make2(b, HR_OP_MINIMUM, HR_DTYPE_I64, at, hr_build_i64(b, in - 1));
  s.size = hr_view_slice(b, hr_make2(b, HR_OP_SUB, HR_DTYPE_I64, end, start), 1, 0, 1, 1);
  return s;
}

/* Windows of unequal widths over [.., OH, OW, KH, KW]. */
typedef struct uneven {
  window w; /* kernel: the widest */
  span rows, columns;
  hr_operand row_map, column_map, is_inside; /* over the domain, or broadcast to it */
  hr_operand row_size, column_size;          /* over [OH, OW, 1, 1], broadcast */
  int64_t dims[HR_RANK_MAX];
} uneven;

static uneven make_uneven(hr_builder *b, hr_operand plane, hr_operand result) {
  uneven u = {.w = {.lead = plane.rank - 2}};
  for (int i = 0; i < 2; ++i) {
    u.w.in[i] = plane.dims[u.w.lead + i], u.w.out[i] = result.dims[u.w.lead + i];
    u.w.kernel[i] = widest_window(u.w.in[i], u.w.out[i]);
  }
  if (plane.rank + 2 > HR_RANK_MAX) {
    return u;
  }
  window_dims(&u.w, plane, u.dims);
  u.rows = make_span(b, u.w.in[0], u.w.out[0], u.w.kernel[0]);
  u.columns = make_span(b, u.w.in[1], u.w.out[1], u.w.kernel[1]);
  u.row_map = hr__ones_after(b, hr_view_insert(b, u.rows.position, 1, 1), 1);
  u.column_map = hr_view_insert(b, u.columns.position, 1, 1);
  u.is_inside =
      hr_make2(b, HR_OP_LOGICAL_AND, HR_DTYPE_BOOL, hr__ones_after(b, hr_view_insert(b, u.rows.is_inside, 1, 1), 1),
               hr_view_insert(b, u.columns.is_inside, 1, 1));
  u.row_size = hr__ones_after(b, u.rows.size, 2);
  u.column_size = hr__ones_after(b, u.columns.size, 1);
  return u;
}

/* x over the domain of uneven windows, through index terms of inputs 1 and 2. */
static hr_operand view_uneven(hr_builder *b, hr_operand x, const uneven *u) {
  int64_t strides[HR_RANK_MAX] = {0};
  int lead = u->w.lead;
  if (!hr_is_present(x) || x.rank + 2 > HR_RANK_MAX) {
    return x;
  }
  for (int d = 0; d < lead; ++d) {
    strides[d] = x.strides[d];
  }
  hr_operand view = hr_view_strided(b, x, x.rank + 2, u->dims, strides, x.offset);
  view = hr_view_term(b, view, 1, x.strides[lead], u->w.in[0]);
  return hr_view_term(b, view, 2, x.strides[lead + 1], u->w.in[1]);
}

/* Tiles of equal size when every window has the same; false else. */
static bool even_windows(hr_operand plane, hr_operand result, window *out_window) {
  window w = {.lead = plane.rank - 2, .dilation = {1, 1}};
  for (int i = 0; i < 2; ++i) {
    w.in[i] = plane.dims[w.lead + i], w.out[i] = result.dims[w.lead + i];
    if (w.out[i] == 0 || w.in[i] % w.out[i] != 0) {
      return false;
    }
    w.kernel[i] = w.stride[i] = w.in[i] / w.out[i];
  }
  *out_window = w;
  return true;
}

hr_status hr__lower_adaptive_avg_pool2d(hr_builder *b, const hr_node *node) {
  hr_operand x = hr_node_input(node, 0), y = hr_node_output(node, 0);
  hr_dtype dtype = hr__wide(y.dtype);
  window w;
  if (hr_operand_count(y) == 0) {
    return HR_OK;
  }
  if (even_windows(x, y, &w)) {
    uint32_t mask = 5u << (w.lead + 1);
    hr_operand sum = hr_make_reduce(b, HR_OP_SUM, dtype, view_tiles(b, x, &w), mask);
    hr_emit2(b, HR_OP_DIV, view_beside_tiles(b, y), sum, hr_build_f64(b, (double)(w.kernel[0] * w.kernel[1])));
    return HR_OK;
  }
  uneven u = make_uneven(b, x, y);
  hr_operand picked = hr_build_temp(b, x.dtype, x.rank + 2, u.dims);
  hr_emit_gather(b, picked, 3, (hr_operand[]){view_uneven(b, x, &u), u.row_map, u.column_map});
  hr_operand inside = hr_make3(b, HR_OP_WHERE, dtype, u.is_inside, picked, hr_build_f64(b, 0));
  hr_operand sum = hr_make_reduce(b, HR_OP_SUM, dtype, inside, hr__mask_range(u.w.lead + 2, 2));
  hr_operand part = hr_make2(b, HR_OP_DIV, dtype, sum, u.row_size);
  hr_emit2(b, HR_OP_DIV, hr__ones_after(b, y, 2), part, u.column_size);
  return HR_OK;
}

hr_status hr__lower_adaptive_avg_pool2d_backward(hr_builder *b, const hr_node *node) {
  hr_operand dy = hr_node_input(node, 0), dx = hr_node_output(node, 0);
  hr_dtype dtype = hr__wide(dx.dtype);
  window w;
  if (hr_operand_count(dx) == 0) {
    return HR_OK;
  }
  if (hr_operand_count(dy) == 0) {
    emit_zero(b, dx);
    return HR_OK;
  }
  if (even_windows(dx, dy, &w)) {
    hr_operand size = hr_build_f64(b, (double)(w.kernel[0] * w.kernel[1]));
    hr_emit2(b, HR_OP_DIV, view_tiles(b, dx, &w), view_beside_tiles(b, dy), size);
    return HR_OK;
  }
  uneven u = make_uneven(b, dx, dy);
  hr_operand sum = dx.dtype == dtype ? dx : hr_build_temp_like(b, dx, dtype);
  emit_zero(b, sum); /* ahead of what is added, which then fuses with the scatter */
  hr_operand part = hr_make2(b, HR_OP_DIV, dtype, hr__ones_after(b, dy, 2), u.row_size);
  part = hr_make2(b, HR_OP_DIV, dtype, part, u.column_size);
  hr_operand source = hr_make3(b, HR_OP_WHERE, dtype, u.is_inside, part, hr_build_f64(b, 0));
  hr_emit_scatter(b, HR_STORE_ADD, view_uneven(b, sum, &u), 3, (hr_operand[]){source, u.row_map, u.column_map},
                  hr__mask_range(u.w.lead, 4));
  hr__deliver(b, dx, dtype, sum);
  return HR_OK;
}
