/* lower_window.c: pooling over windows of the last one, two or three dims, the plane.
 *
 * A pool is a reduction over [.., OH, OW, KH, KW] (one, two or three of each). The input is read through a view whose
 * window dims step inside the plane, with bounds where windows leave it. The gradient has four forms:
 * - windows that don't overlap and are inside the plane: element-wise over the same domain in the plane's own order,
 *   [.., OH, KH, OW, KW], so that it fuses with its neighbours;
 * - other max pools, if the strides divide the plane: a sum over the windows that reach an element;
 * - other average pools: a sum of runs of windows, dim by dim;
 * - the rest: a scatter that runs in order inside a plane, and in parallel over planes.
 */
#include <math.h>

#include "base/integer.h"
#include "core/ops/lower_neighbours.h"

enum { PLANE_MAX = 3 };

typedef struct window {
  int plane, lead; /* dims of the plane, and in front of it */
  int64_t kernel[PLANE_MAX], stride[PLANE_MAX], padding[PLANE_MAX], dilation[PLANE_MAX];
  int64_t in[PLANE_MAX], out[PLANE_MAX];
} window;

/* The window of a node whose ints begin with four for each dim of the plane. */
static window window_of(const hr_node *node, hr_operand plane, hr_operand result) {
  int n = node->int_count / 4;
  window w = {.plane = n, .lead = plane.rank - n};
  for (int i = 0; i < n; ++i) {
    w.kernel[i] = node->ints[i], w.stride[i] = node->ints[n + i];
    w.padding[i] = node->ints[2 * n + i], w.dilation[i] = node->ints[3 * n + i];
    w.in[i] = plane.dims[w.lead + i], w.out[i] = result.dims[w.lead + i];
  }
  return w;
}

/* True if some window exceeds the plane at the high end of dim i. */
static bool leaves_plane(const window *w, int i) {
  return (w->out[i] - 1) * w->stride[i] - w->padding[i] + (w->kernel[i] - 1) * w->dilation[i] >= w->in[i];
}

static bool windows_overlap(const window *w) {
  bool overlap = false;
  for (int i = 0; i < w->plane; ++i) {
    overlap |= (w->kernel[i] - 1) * w->dilation[i] >= w->stride[i];
  }
  return overlap;
}

/* True if windows are whole tiles inside the plane that share no element. */
static bool windows_are_tiles(const window *w) {
  for (int i = 0; i < w->plane; ++i) {
    if (w->padding[i] != 0 || w->dilation[i] != 1 || w->kernel[i] > w->stride[i] || leaves_plane(w, i)) {
      return false;
    }
  }
  return true;
}

/* Converts strides over the plane to strides over [.., OH, OW, KH, KW]. */
static void window_strides(const window *w, const int64_t *plane, int64_t *strides) {
  for (int i = 0; i < w->plane; ++i) {
    strides[w->lead + i] = w->stride[i] * plane[i];
    strides[w->lead + w->plane + i] = w->dilation[i] * plane[i];
  }
}

/* Strides of a plane whose elements are numbered in order. */
static void number_strides(const window *w, int64_t *strides) {
  int64_t step = 1;
  for (int i = w->plane - 1; i >= 0; --i) {
    strides[i] = step;
    step *= w->in[i];
  }
}

static void window_dims(const window *w, hr_operand plane, int64_t *dims) {
  for (int d = 0; d < w->lead; ++d) {
    dims[d] = plane.dims[d];
  }
  for (int i = 0; i < w->plane; ++i) {
    dims[w->lead + i] = w->out[i], dims[w->lead + w->plane + i] = w->kernel[i];
  }
}

/* The start of the first window; negative if the plane is padded. */
static int64_t offset_of_first(const window *w, hr_operand x) {
  int64_t offset = x.offset;
  for (int i = 0; i < w->plane; ++i) {
    offset -= w->padding[i] * x.strides[w->lead + i];
  }
  return offset;
}

/* x as [.., OH, OW, KH, KW], bounded where windows leave the plane. */
static hr_operand view_windows(hr_builder *b, hr_operand x, const window *w) {
  int64_t dims[HR_RANK_MAX], strides[HR_RANK_MAX] = {0};
  if (!hr_is_present(x) || x.rank + w->plane > HR_RANK_MAX) {
    return x;
  }
  window_dims(w, x, dims);
  for (int d = 0; d < w->lead; ++d) {
    strides[d] = x.strides[d];
  }
  window_strides(w, x.strides + w->lead, strides);
  hr_operand view = hr_view_strided(b, x, x.rank + w->plane, dims, strides, offset_of_first(w, x));
  for (int i = 0; i < w->plane; ++i) {
    if (w->padding[i] > 0 || leaves_plane(w, i)) {
      int64_t bound[HR_RANK_MAX] = {0}, axis[PLANE_MAX] = {0};
      axis[i] = 1;
      window_strides(w, axis, bound);
      view = hr_view_bound(b, view, -w->padding[i], bound, w->in[i]);
    }
  }
  return view;
}

/* x as [.., OH, KH, OW, KW]: tiles in the plane's own order. */
static hr_operand view_tiles(hr_builder *b, hr_operand x, const window *w) {
  int64_t dims[HR_RANK_MAX], strides[HR_RANK_MAX];
  if (!hr_is_present(x) || x.rank + w->plane > HR_RANK_MAX) {
    return x;
  }
  for (int d = 0; d < w->lead; ++d) {
    dims[d] = x.dims[d], strides[d] = x.strides[d];
  }
  for (int i = 0; i < w->plane; ++i) {
    int64_t stride = x.strides[w->lead + i];
    dims[w->lead + 2 * i] = w->out[i], strides[w->lead + 2 * i] = stride * w->stride[i];
    dims[w->lead + 2 * i + 1] = w->kernel[i], strides[w->lead + 2 * i + 1] = stride;
  }
  return hr_view_strided(b, x, x.rank + w->plane, dims, strides, x.offset);
}

/* [.., OH, OW] as [.., OH, 1, OW, 1] */
static hr_operand view_beside_tiles(hr_builder *b, hr_operand x, int plane) {
  int rank = x.rank;
  for (int i = 0; i < plane && hr_is_present(x); ++i) {
    x = hr_view_insert(b, x, rank - i, 1);
  }
  return x;
}

/* The dims of KH and KW over tiles, and over windows. */
static uint32_t tile_mask(const window *w) {
  uint32_t mask = 0;
  for (int i = 0; i < w->plane; ++i) {
    mask |= 2u << (w->lead + 2 * i);
  }
  return mask;
}

static uint32_t window_mask(const window *w) {
  return hr__mask_range(w->lead + w->plane, w->plane);
}

static void emit_zero(hr_builder *b, hr_operand out) {
  hr_emit1(b, HR_OP_COPY, out, hr_build_f64(b, 0));
}

static bool tiles_cover_plane(const window *w) {
  bool cover = true;
  for (int i = 0; i < w->plane; ++i) {
    cover = cover && w->out[i] * w->stride[i] == w->in[i] && w->kernel[i] == w->stride[i];
  }
  return cover;
}

static bool is_padded(const window *w) {
  bool padded = false;
  for (int i = 0; i < w->plane; ++i) {
    padded |= w->padding[i] > 0;
  }
  return padded;
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

/* The position in the plane of each element of each window. If windows are padded the numbers come from a table, in
 * which padding has the largest of all: it never wins, not even in a plane of -infinity. */
static hr_operand make_positions(hr_builder *b, const window *w, hr_operand x) {
  int64_t dims[HR_RANK_MAX], strides[HR_RANK_MAX] = {0}, number[PLANE_MAX];
  number_strides(w, number);
  if (!is_padded(w)) {
    window_dims(w, x, dims);
    window_strides(w, number, strides);
    return hr_build_index(b, x.rank + w->plane, dims, 0, strides);
  }
  window plane = *w;
  plane.lead = 0;
  hr_operand table = hr_build_temp(b, HR_DTYPE_I64, w->plane, w->in);
  hr_emit1(b, HR_OP_COPY, table, hr_build_index(b, w->plane, w->in, 0, number));
  return hr_view_fill(b, view_windows(b, table, &plane), hr_build_i64(b, INT64_MAX));
}

/* Permutes a loop's operands, which have as many dims, so that operands[0] is walked in memory order along its first
 * `kept` dims. The channels of channels-last planes become the innermost ones. */
static void walk_in_memory_order(hr_builder *b, int kept, int count, hr_operand *operands) {
  const hr_operand first = operands[0];
  int order[HR_RANK_MAX];
  if (!hr_is_present(first) || !hr_view_memory_order(&first, hr__mask_range(0, kept), order)) {
    return;
  }
  for (int i = 0; i < count; ++i) {
    if (hr_is_present(operands[i])) {
      operands[i] = hr_view_permute(b, operands[i], order);
    }
  }
}

/* The largest over the last dims of `key`, and its element of `positions`. */
static void emit_best(hr_builder *b, const window *w, hr_operand y, hr_operand index, hr_operand key,
                      hr_operand positions) {
  enum { Y, INDEX, KEY, POSITIONS, COUNT };
  hr_operand all[COUNT] = {hr__ones_after(b, y, w->plane), hr__ones_after(b, index, w->plane), key, positions};
  if (hr_is_present(positions) && hr_is_present(key)) {
    all[POSITIONS] = hr_view_broadcast(b, positions, key.rank, key.dims);
  }
  walk_in_memory_order(b, w->lead + w->plane, COUNT, all);
  hr_emit_reduce(b, HR_OP_AMAX, all[Y], all[KEY], window_mask(w));
  if (hr_is_present(index)) {
    hr_emit_argreduce(b, HR_OP_ARGMAX, all[INDEX], all[KEY], all[POSITIONS], window_mask(w));
  }
}

hr_status hr__lower_max_pool(hr_builder *b, const hr_node *node) {
  hr_operand x = hr_node_input(node, 0), y = hr_node_output(node, 0), index = hr_node_output(node, 1);
  window w = window_of(node, x, y);
  if (hr_operand_count(y) == 0) {
    return HR_OK;
  }
  hr_operand key = hr_view_fill(b, view_windows(b, x, &w), lowest(b, x.dtype));
  hr_operand positions =
      hr_is_present(index) ? make_positions(b, &w, x) : index; /* its table comes first, so that the rest fuses */
  emit_best(b, &w, y, index, key, positions);
  return HR_OK;
}

/* True if a position in the plane is one number times a stride. */
static bool is_flat(hr_operand x, int lead, int64_t *out_stride) {
  int64_t count = 1;
  *out_stride = 1;
  for (int d = x.rank - 1; d >= lead; --d) {
    if (x.dims[d] == 1) {
      continue;
    }
    *out_stride = count == 1 ? x.strides[d] : *out_stride;
    if (x.strides[d] != *out_stride * count) {
      return false;
    }
    count *= x.dims[d];
  }
  return true;
}

static void emit_max_scatter(hr_builder *b, const window *w, hr_operand dy, hr_operand index, hr_operand dx) {
  hr_dtype dtype = hr__wide(dx.dtype);
  int64_t stride = 1;
  bool is_direct = is_flat(dx, w->lead, &stride) && dx.dtype == dtype;
  hr_operand sum = is_direct ? dx : hr_build_temp_like(b, dx, dtype);
  if (!hr_is_present(sum)) {
    return;
  }
  if (!is_direct) {
    stride = 1;
  }
  emit_zero(b, sum);
  int64_t strides[HR_RANK_MAX] = {0};
  for (int d = 0; d < w->lead; ++d) {
    strides[d] = sum.strides[d];
  }
  hr_operand view = hr_view_strided(b, sum, dy.rank, dy.dims, strides, sum.offset);
  view = hr_view_term(b, view, 1, stride, hr__mask_count(sum, hr__mask_range(w->lead, w->plane)));
  uint32_t ordered = windows_overlap(w) ? hr__mask_range(w->lead, w->plane) : 0;
  hr_emit_scatter(b, HR_STORE_ADD, view, 2, (hr_operand[]){dy, index}, ordered);
  if (sum.index != dx.index) {
    hr_emit1(b, HR_OP_COPY, dx, sum);
  }
}

/* The plane as tiles of the size of the stride, and the windows that can reach a tile's elements: those that begin in
 * the tiles from `first` on, relative to its own. */
typedef struct reach {
  window tiles;
  int64_t first[PLANE_MAX], count[PLANE_MAX];
} reach;

/* False if the plane is not a whole number of tiles. */
static bool reach_of(const window *w, reach *out_reach) {
  reach r = {.tiles = *w};
  for (int i = 0; i < w->plane; ++i) {
    int64_t stride = w->stride[i], before = w->padding[i] - w->kernel[i]; /* < 0: padding is at most half a window */
    if (w->dilation[i] != 1 || w->in[i] % stride != 0 || before >= 0) {
      return false;
    }
    r.tiles.out[i] = w->in[i] / stride, r.tiles.kernel[i] = stride;
    r.first[i] = -hr_divide_up(-before, stride) + 1;
    r.count[i] = (stride - 1 + w->padding[i]) / stride - r.first[i] + 1;
  }
  *out_reach = r;
  return true;
}

/* The windows' values over [.., H/S, S, W/S, S, windows that reach the element]; 0 for a missing window. */
static hr_operand view_reaching(hr_builder *b, hr_operand x, const window *w, const reach *r) {
  int64_t dims[HR_RANK_MAX], strides[HR_RANK_MAX], offset = x.offset;
  int lead = w->lead, last = lead + 2 * w->plane;
  for (int d = 0; d < lead; ++d) {
    dims[d] = x.dims[d], strides[d] = x.strides[d];
  }
  for (int i = 0; i < w->plane; ++i) {
    int tile = lead + 2 * i;
    dims[tile] = r->tiles.out[i], dims[tile + 1] = r->tiles.kernel[i], dims[last + i] = r->count[i];
    strides[tile] = strides[last + i] = x.strides[lead + i], strides[tile + 1] = 0;
    offset += r->first[i] * x.strides[lead + i];
  }
  hr_operand view = hr_view_strided(b, x, last + w->plane, dims, strides, offset);
  for (int i = 0; i < w->plane; ++i) {
    int64_t bound[HR_RANK_MAX] = {0};
    bound[lead + 2 * i] = bound[last + i] = 1;
    view = hr_view_bound(b, view, r->first[i], bound, w->out[i]);
  }
  return view;
}

/* The number of each element of the plane's tiles. */
static hr_operand number_tiles(hr_builder *b, const window *w, hr_operand tiles) {
  int64_t strides[HR_RANK_MAX] = {0}, steps[PLANE_MAX];
  number_strides(w, steps);
  for (int i = 0; i < w->plane; ++i) {
    strides[w->lead + 2 * i] = w->stride[i] * steps[i], strides[w->lead + 2 * i + 1] = steps[i];
  }
  return hr_build_index(b, tiles.rank, tiles.dims, 0, strides);
}

/* For each element, adds the gradients of the windows that it won, in their order: the sums of the scatter, for all
 * elements at once. */
static bool emit_max_gather(hr_builder *b, const window *w, hr_operand dy, hr_operand index, hr_operand dx) {
  reach r;
  if (!hr_is_present(dx) || !hr_is_present(dy) || w->lead + 3 * w->plane > HR_RANK_MAX || !reach_of(w, &r)) {
    return false;
  }
  enum { TILES, GRADIENT, NUMBER, INDEX, COUNT };
  hr_operand tiles = hr__ones_after(b, view_tiles(b, dx, &r.tiles), w->plane);
  hr_operand all[COUNT] = {tiles, view_reaching(b, dy, w, &r), number_tiles(b, w, tiles),
                           view_reaching(b, index, w, &r)};
  walk_in_memory_order(b, w->lead + 2 * w->plane, COUNT, all);
  hr_operand is_best = hr_make2(b, HR_OP_EQ, HR_DTYPE_BOOL, all[NUMBER], all[INDEX]);
  hr_operand share = hr_make3(b, HR_OP_WHERE, dy.dtype, is_best, all[GRADIENT], hr_build_f64(b, 0));
  hr_emit_reduce(b, HR_OP_SUM, all[TILES], share, hr__mask_range(w->lead + 2 * w->plane, w->plane));
  return true;
}

hr_status hr__lower_max_pool_backward(hr_builder *b, const hr_node *node) {
  hr_operand dy = hr_node_input(node, 0), index = hr_node_input(node, 1), dx = hr_node_output(node, 0);
  window w = window_of(node, dx, dy);
  if (hr_operand_count(dy) == 0) {
    emit_zero(b, dx);
    return HR_OK;
  }
  if (!windows_are_tiles(&w)) {
    if (!emit_max_gather(b, &w, dy, index, dx)) {
      emit_max_scatter(b, &w, dy, index, dx);
    }
    return HR_OK;
  }
  if (!tiles_cover_plane(&w)) {
    emit_zero(b, dx);
  }
  enum { TILES, GRADIENT, NUMBER, INDEX, COUNT };
  hr_operand tiles = view_tiles(b, dx, &w);
  hr_operand all[COUNT] = {tiles, view_beside_tiles(b, dy, w.plane), number_tiles(b, &w, tiles),
                           view_beside_tiles(b, index, w.plane)};
  walk_in_memory_order(b, tiles.rank, COUNT, all);
  hr_operand is_best = hr_make2(b, HR_OP_EQ, HR_DTYPE_BOOL, all[NUMBER], all[INDEX]);
  hr_emit3(b, HR_OP_WHERE, all[TILES], is_best, all[GRADIENT], hr_build_f64(b, 0));
  return HR_OK;
}

/* ---- average pool ---- */

/* (distance to `place` from the first element of each window, rounded up to steps) / step: the elements before it. */
static hr_operand make_elements_before(hr_builder *b, const window *w, int i, int64_t place) {
  int64_t strides[PLANE_MAX] = {0}, step = w->dilation[i];
  strides[i] = -w->stride[i];
  hr_operand distance = hr_build_index(b, w->plane, w->out, place + w->padding[i] + step - 1, strides);
  return hr_make2(b, HR_OP_DIV_FLOOR, HR_DTYPE_I64, distance, hr_build_i64(b, step));
}

/* make_window_sizes of windows whose elements are apart. */
static hr_operand make_spaced_sizes(hr_builder *b, const window *w, int i, bool counts_padding) {
  int64_t limit = counts_padding ? w->in[i] + w->padding[i] : w->in[i];
  hr_operand stop = make_elements_before(b, w, i, limit), all = hr_build_i64(b, w->kernel[i]);
  stop = hr_make2(b, HR_OP_MINIMUM, HR_DTYPE_I64, stop, all);
  if (counts_padding) {
    return stop;
  }
  hr_operand outside = hr_make2(b, HR_OP_MAXIMUM, HR_DTYPE_I64, make_elements_before(b, w, i, 0), hr_build_i64(b, 0));
  return hr_make2(b, HR_OP_SUB, HR_DTYPE_I64, stop, outside);
}

/* The number of elements that the windows of dim i divide by, as i64 over the plane of windows. If padding counts, a
 * window ends at the padding's end. */
static hr_operand make_window_sizes(hr_builder *b, const window *w, int i, bool counts_padding) {
  if (w->dilation[i] != 1) {
    return make_spaced_sizes(b, w, i, counts_padding);
  }
  int64_t strides[PLANE_MAX] = {0};
  strides[i] = w->stride[i];
  hr_operand start = hr_build_index(b, w->plane, w->out, -w->padding[i], strides);
  hr_operand end = hr_build_index(b, w->plane, w->out, w->kernel[i] - w->padding[i], strides);
  hr_operand limit = hr_build_i64(b, counts_padding ? w->in[i] + w->padding[i] : w->in[i]);
  hr_operand stop = hr_make2(b, HR_OP_MINIMUM, HR_DTYPE_I64, end, limit);
  hr_operand size = hr_make2(b, HR_OP_SUB, HR_DTYPE_I64, stop, start);
  return counts_padding ? size : hr_make2(b, HR_OP_MINIMUM, HR_DTYPE_I64, size, stop); /* stop - max(start, 0) */
}

/* The divisor of a window's sum: a number, or a table over the plane of windows. */
static hr_operand make_divisor(hr_builder *b, const window *w, bool counts_padding, int64_t divisor, hr_dtype dtype) {
  bool leaves = false, is_uniform = counts_padding;
  int64_t whole = 1;
  for (int i = 0; i < w->plane; ++i) {
    leaves |= leaves_plane(w, i);
    int64_t last = (w->out[i] - 1) * w->stride[i] + (w->kernel[i] - 1) * w->dilation[i];
    is_uniform = is_uniform && last < w->in[i] + 2 * w->padding[i];
    whole *= w->kernel[i];
  }
  if (divisor != 0) {
    return hr_build_f64(b, (double)divisor);
  }
  if (is_uniform || (!leaves && !is_padded(w))) {
    return hr_build_f64(b, (double)whole);
  }
  hr_operand size = make_window_sizes(b, w, 0, counts_padding);
  for (int i = 1; i < w->plane; ++i) {
    size = hr_make2(b, HR_OP_MUL, HR_DTYPE_I64, size, make_window_sizes(b, w, i, counts_padding));
  }
  return hr_make2(b, HR_OP_MAXIMUM, hr_dtype_is_complex(dtype) ? HR_DTYPE_I64 : dtype, size, hr_build_i64(b, 1));
}

hr_status hr__lower_avg_pool(hr_builder *b, const hr_node *node) {
  hr_operand x = hr_node_input(node, 0), y = hr_node_output(node, 0);
  window w = window_of(node, x, y);
  if (hr_operand_count(y) == 0) {
    return HR_OK;
  }
  hr_dtype dtype = hr__wide(y.dtype);
  hr_operand divisor = make_divisor(b, &w, node->ints[4 * w.plane] != 0, node->ints[4 * w.plane + 1], dtype);
  if (divisor.rank > 0) {
    divisor = hr__ones_after(b, divisor, w.plane);
  }
  hr_operand sum = hr_make_reduce(b, HR_OP_SUM, dtype, view_windows(b, x, &w), window_mask(&w));
  hr_emit2(b, hr_dtype_is_integer(dtype) ? HR_OP_DIV_TRUNC : HR_OP_DIV, hr__ones_after(b, y, w.plane), sum, divisor);
  return HR_OK;
}

static bool are_ones(const int64_t *values, int count) {
  bool are = true;
  for (int i = 0; i < count; ++i) {
    are = are && values[i] == 1;
  }
  return are;
}

/* dx[h] = sum of g[h + padding - k] over the window: for a stride of 1. */
static void emit_gathered_sum(hr_builder *b, const window *w, hr_operand g, hr_operand dx) {
  int lead = w->lead, n = w->plane;
  if (!hr_is_present(g) || dx.rank + n > HR_RANK_MAX) {
    return;
  }
  int64_t offset = g.offset, dims[HR_RANK_MAX], strides[HR_RANK_MAX];
  for (int d = 0; d < lead; ++d) {
    dims[d] = dx.dims[d], strides[d] = g.strides[d];
  }
  for (int i = 0; i < n; ++i) {
    dims[lead + i] = w->in[i], dims[lead + n + i] = w->kernel[i];
    strides[lead + i] = g.strides[lead + i], strides[lead + n + i] = -g.strides[lead + i];
    offset += w->padding[i] * g.strides[lead + i];
  }
  hr_operand view = hr_view_strided(b, g, dx.rank + n, dims, strides, offset);
  for (int i = 0; i < n; ++i) {
    int64_t bound[HR_RANK_MAX] = {0};
    bound[lead + i] = 1, bound[lead + n + i] = -1;
    view = hr_view_bound(b, view, w->padding[i], bound, w->out[i]);
  }
  hr_emit_reduce(b, HR_OP_SUM, hr__ones_after(b, dx, n), view, window_mask(w));
}

/* The gradient of an average: an element gets the sum over the windows that contain it, which are neighbours in each
 * dim. The last dim is expanded first, element by element; then whole rows are. */

/* floor((element + offset) / divisor) */
static hr_operand make_quotient(hr_builder *b, int64_t in, int64_t offset, int64_t divisor) {
  hr_operand number = hr_build_index(b, 1, &in, offset, (int64_t[]){1});
  return hr_make2(b, HR_OP_DIV_FLOOR, HR_DTYPE_I64, number, hr_build_i64(b, divisor));
}

/* Window o starts at element o * stride - padding. */
static hr__runs runs_of_windows(hr_builder *b, const window *w, int i) {
  int64_t in = w->in[i], stride = w->stride[i], kernel = w->kernel[i], end = w->out[i] * stride - w->padding[i];
  hr__runs r = {.width = hr_min(hr_divide_up(kernel, stride), w->out[i])};
  r.has_gaps = kernel < stride || end - stride + kernel < in;
  hr_operand first = make_quotient(b, in, w->padding[i] - kernel + stride, stride);
  hr_operand last = make_quotient(b, in, w->padding[i] + stride, stride);
  r.start = hr_make2(b, HR_OP_MAXIMUM, HR_DTYPE_I64, first, hr_build_i64(b, 0));
  last = hr_make2(b, HR_OP_MINIMUM, HR_DTYPE_I64, last, hr_build_i64(b, w->out[i]));
  r.size = hr_make2(b, HR_OP_SUB, HR_DTYPE_I64, last, r.start);
  r.size = hr_make2(b, HR_OP_MAXIMUM, HR_DTYPE_I64, r.size, hr_build_i64(b, 0));
  return r;
}

hr_status hr__lower_avg_pool_backward(hr_builder *b, const hr_node *node) {
  hr_operand dy = hr_node_input(node, 0), dx = hr_node_output(node, 0);
  window w = window_of(node, dx, dy);
  if (hr_operand_count(dy) == 0) {
    emit_zero(b, dx);
    return HR_OK;
  }
  hr_dtype dtype = hr__wide(dx.dtype);
  hr_operand divisor = make_divisor(b, &w, node->ints[4 * w.plane] != 0, node->ints[4 * w.plane + 1], dtype);
  if (windows_are_tiles(&w)) {
    if (!tiles_cover_plane(&w)) {
      emit_zero(b, dx);
    }
    hr_emit2(b, HR_OP_DIV, view_tiles(b, dx, &w), view_beside_tiles(b, dy, w.plane), divisor);
    return HR_OK;
  }
  hr_operand g = hr_make2(b, HR_OP_DIV, dtype, dy, divisor);
  if (are_ones(w.stride, w.plane)) {
    emit_gathered_sum(b, &w, g, dx);
    return HR_OK;
  }
  if (are_ones(w.dilation, w.plane)) {
    for (int i = w.plane - 1; i >= 0; --i) {
      hr__runs r = runs_of_windows(b, &w, i);
      g = hr__make_sum_of_runs(b, g, w.lead + i, &r, dtype);
    }
    hr_emit1(b, HR_OP_COPY, dx, g);
    return HR_OK;
  }
  hr_operand sum = dx.dtype == dtype ? dx : hr_build_temp_like(b, dx, dtype);
  emit_zero(b, sum);
  g = hr__ones_after(b, g, w.plane);
  hr_emit_scatter(b, HR_STORE_ADD, view_windows(b, sum, &w), 1, &g, hr__mask_range(w.lead, 2 * w.plane));
  hr__deliver(b, dx, dtype, sum);
  return HR_OK;
}

/* ---- adaptive pools: window i of dim n -> m is [floor(i * n / m), ceil((i + 1) * n / m)) ----
 *
 * Windows of unequal widths are pooled dim by dim, starting with the first: whole rows are combined while there are
 * many elements. The last dim, in which elements are gathered one by one, is small by then. */

typedef struct span { /* the windows of a dim; all are read with the widest one's width */
  int64_t width;
  hr_operand start, size;         /* [windows, 1] */
  hr_operand first;               /* [windows, 1]; a read that would end outside begins earlier */
  hr_operand position, is_inside; /* [windows, width] */
} span;

static int64_t widest_window(int64_t in, int64_t out) {
  int64_t widest = 1;
  for (int64_t i = 0; i < out; ++i) {
    int64_t width = hr_divide_up((i + 1) * in, out) - i * in / out;
    widest = width > widest ? width : widest;
  }
  return widest;
}

static span make_span(hr_builder *b, int64_t in, int64_t out) {
  int64_t width = widest_window(in, out), dims[2] = {out, width}, starts[2] = {out, 1};
  int64_t steps[2] = {in, 0}, one[2] = {0, 1};
  hr_operand divisor = hr_build_i64(b, out);
  hr_operand start = hr_make2(b, HR_OP_DIV_FLOOR, HR_DTYPE_I64, hr_build_index(b, 2, starts, 0, steps), divisor);
  hr_operand end =
      hr_make2(b, HR_OP_DIV_FLOOR, HR_DTYPE_I64, hr_build_index(b, 2, starts, in + out - 1, steps), divisor);
  span s = {.width = width, .start = start};
  s.size = hr_make2(b, HR_OP_SUB, HR_DTYPE_I64, end, start);
  s.first = hr_make2(b, HR_OP_MINIMUM, HR_DTYPE_I64, start, hr_build_i64(b, in - width));
  s.position = hr_make2(b, HR_OP_ADD, HR_DTYPE_I64, s.first, hr_build_index(b, 2, dims, 0, one));
  s.is_inside = hr_make2(b, HR_OP_LOGICAL_AND, HR_DTYPE_BOOL, hr_make2(b, HR_OP_GE, HR_DTYPE_BOOL, s.position, start),
                         hr_make2(b, HR_OP_LT, HR_DTYPE_BOOL, s.position, end));
  return s;
}

static hr__runs runs_of_span(hr_builder *b, int64_t in, int64_t out) {
  span s = make_span(b, in, out);
  hr__runs r = {.width = s.width, .has_gaps = false, .start = s.start, .size = s.size};
  if (hr_is_present(r.start) && hr_is_present(r.size)) {
    r.start = hr_view_remove(b, r.start, 1), r.size = hr_view_remove(b, r.size, 1);
  }
  return r;
}

/* True if every window has the same size: tiles of equal size. */
static bool even_windows(hr_operand plane, hr_operand result, int n, window *out_window) {
  window w = {.plane = n, .lead = plane.rank - n, .dilation = {1, 1, 1}};
  for (int i = 0; i < n; ++i) {
    w.in[i] = plane.dims[w.lead + i], w.out[i] = result.dims[w.lead + i];
    if (w.out[i] == 0 || w.in[i] % w.out[i] != 0) {
      return false;
    }
    w.kernel[i] = w.stride[i] = w.in[i] / w.out[i];
  }
  *out_window = w;
  return true;
}

static hr_operand build_kernel_size(hr_builder *b, const window *w) {
  int64_t size = 1;
  for (int i = 0; i < w->plane; ++i) {
    size *= w->kernel[i];
  }
  return hr_build_f64(b, (double)size);
}

/* The dims whose size the pool changes, in order; there are some if windows are uneven. */
static int changing_dims(hr_operand x, hr_operand y, int *out_dims) {
  int count = 0;
  for (int d = 0; d < x.rank; ++d) {
    if (x.dims[d] != y.dims[d]) {
      out_dims[count++] = d;
    }
  }
  return count;
}

/* Dim `at` of x as its windows: [.., OX, KX, ..]. */
static hr_operand make_picked(hr_builder *b, hr_operand x, int at, const span *s) {
  hr_operand view = hr_is_present(s->first) ? hr__view_neighbours(b, x, at, s->first.dims[0], s->width) : s->first;
  return hr__make_picked(b, view, hr__ones_after(b, s->first, x.rank - 1 - at));
}

/* The elements inside their window, and `outside` for the rest of the widest one. */
static hr_operand make_inside(hr_builder *b, hr_dtype dtype, const span *s, int at, hr_operand picked,
                              hr_operand rest) {
  hr_operand is_inside = hr__ones_after(b, s->is_inside, picked.rank - 2 - at);
  return hr_make3(b, HR_OP_WHERE, dtype, is_inside, picked, rest);
}

hr_status hr__lower_adaptive_avg_pool(hr_builder *b, const hr_node *node) {
  hr_operand x = hr_node_input(node, 0), y = hr_node_output(node, 0);
  hr_dtype dtype = hr__wide(y.dtype);
  int n = (int)node->ints[0];
  window w;
  if (hr_operand_count(y) == 0) {
    return HR_OK;
  }
  if (even_windows(x, y, n, &w)) {
    hr_operand sum = hr_make_reduce(b, HR_OP_SUM, dtype, view_tiles(b, x, &w), tile_mask(&w));
    hr_emit2(b, HR_OP_DIV, view_beside_tiles(b, y, n), sum, build_kernel_size(b, &w));
    return HR_OK;
  }
  int at[PLANE_MAX], count = changing_dims(x, y, at);
  hr_operand sum = x, size[PLANE_MAX];
  for (int i = 0; i < count; ++i) {
    span s = make_span(b, x.dims[at[i]], y.dims[at[i]]);
    hr_operand inside = make_inside(b, dtype, &s, at[i], make_picked(b, sum, at[i], &s), hr_build_f64(b, 0));
    sum = hr_view_remove(b, hr_make_reduce(b, HR_OP_SUM, dtype, inside, 2u << at[i]), at[i] + 1);
    size[i] = hr__ones_after(b, hr_view_remove(b, s.size, 1), x.rank - 1 - at[i]);
  }
  for (int i = 0; i < count; ++i) {
    sum = hr_make2(b, HR_OP_DIV, dtype, sum, size[i]);
  }
  hr_emit1(b, HR_OP_COPY, y, sum);
  return HR_OK;
}

/* Element i of n is in windows floor(i * m / n) to ceil((i + 1) * m / n) of m: the pool's own rule with the sizes
 * exchanged. */
hr_status hr__lower_adaptive_avg_pool_backward(hr_builder *b, const hr_node *node) {
  hr_operand dy = hr_node_input(node, 0), dx = hr_node_output(node, 0);
  hr_dtype dtype = hr__wide(dx.dtype);
  int n = (int)node->ints[0];
  window w;
  if (hr_operand_count(dx) == 0) {
    return HR_OK;
  }
  if (hr_operand_count(dy) == 0) {
    emit_zero(b, dx);
    return HR_OK;
  }
  if (even_windows(dx, dy, n, &w)) {
    hr_emit2(b, HR_OP_DIV, view_tiles(b, dx, &w), view_beside_tiles(b, dy, n), build_kernel_size(b, &w));
    return HR_OK;
  }
  int at[PLANE_MAX], count = changing_dims(dx, dy, at);
  hr_operand sum = dy;
  for (int i = 0; i < count; ++i) {
    span s = make_span(b, dx.dims[at[i]], dy.dims[at[i]]);
    hr_operand size = hr_is_present(s.size) ? hr_view_remove(b, s.size, 1) : s.size;
    sum = hr_make2(b, HR_OP_DIV, dtype, sum, hr__along(b, size, dx.rank, at[i]));
  }
  for (int i = count - 1; i >= 0; --i) {
    hr__runs r = runs_of_span(b, dy.dims[at[i]], dx.dims[at[i]]);
    sum = hr__make_sum_of_runs(b, sum, at[i], &r, dtype);
  }
  hr_emit1(b, HR_OP_COPY, dx, sum);
  return HR_OK;
}

/* The difference between the numbers of neighbours along dim `at` of the plane of x. */
static int64_t number_step(hr_operand x, int at) {
  int64_t step = 1;
  for (int d = at + 1; d < x.rank; ++d) {
    step *= x.dims[d];
  }
  return step;
}

/* The amounts that the windows of dim `at` add to the numbers of their elements. Outside a window it exceeds all
 * numbers, so that it never wins, not even in a window of -infinity. */
static hr_operand number_windows(hr_builder *b, hr_operand x, int at, const span *s) {
  hr_operand own = hr_make2(b, HR_OP_MUL, HR_DTYPE_I64, s->position, hr_build_i64(b, number_step(x, at)));
  return hr_make3(b, HR_OP_WHERE, HR_DTYPE_I64, s->is_inside, own, hr_build_i64(b, INT64_MAX / 2));
}

/* The number in the plane of each element picked by the windows of dim `at`: [.., OX, KX, ..]. */
static hr_operand number_picked(hr_builder *b, hr_operand x, int n, int at, hr_operand picked, hr_operand own) {
  int64_t strides[HR_RANK_MAX] = {0};
  for (int d = x.rank - n; d < x.rank; ++d) {
    if (d != at) {
      strides[d < at ? d : d + 1] = number_step(x, d);
    }
  }
  hr_operand others = hr_build_index(b, picked.rank, picked.dims, 0, strides);
  return hr_make2(b, HR_OP_ADD, HR_DTYPE_I64, others, hr__ones_after(b, own, x.rank - 1 - at));
}

static hr_operand make_reduced_temp(hr_builder *b, hr_operand x, hr_dtype dtype, int at) {
  int64_t dims[HR_RANK_MAX];
  for (int d = 0; d < x.rank; ++d) {
    dims[d] = d == at ? 1 : x.dims[d];
  }
  return hr_build_temp(b, dtype, x.rank, dims);
}

hr_status hr__lower_adaptive_max_pool(hr_builder *b, const hr_node *node) {
  hr_operand x = hr_node_input(node, 0), y = hr_node_output(node, 0), index = hr_node_output(node, 1);
  int n = (int)node->ints[0];
  window w;
  if (hr_operand_count(y) == 0) {
    return HR_OK;
  }
  if (even_windows(x, y, n, &w)) {
    emit_best(b, &w, y, index, view_windows(b, x, &w), hr_is_present(index) ? make_positions(b, &w, x) : index);
    return HR_OK;
  }
  int at[PLANE_MAX], count = changing_dims(x, y, at);
  hr_operand key = x, place = {0};
  for (int i = 0; i < count; ++i) {
    bool is_last = i == count - 1;
    int across = at[i] + 1; /* the dim of a window's elements */
    span s = make_span(b, x.dims[at[i]], y.dims[at[i]]);
    hr_operand own =
        i == 0 && hr_is_present(index) ? number_windows(b, x, at[i], &s) : index; /* first: the rest fuses */
    key = make_inside(b, x.dtype, &s, at[i], make_picked(b, key, at[i], &s), lowest(b, x.dtype));
    hr_operand best = is_last ? hr_view_insert(b, y, across, 1) : make_reduced_temp(b, key, x.dtype, across);
    hr_emit_reduce(b, HR_OP_AMAX, best, key, 1u << across);
    if (hr_is_present(index)) {
      if (i == 0) {
        place = number_picked(b, x, n, at[i], key, own);
      } else {
        place = make_picked(b, place, at[i], &s);
        place = make_inside(b, HR_DTYPE_I64, &s, at[i], place, hr_build_i64(b, INT64_MAX));
      }
      hr_operand which =
          is_last ? hr_view_insert(b, index, across, 1) : make_reduced_temp(b, key, HR_DTYPE_I64, across);
      hr_emit_argreduce(b, HR_OP_ARGMAX, which, key, place, 1u << across);
      place = hr_view_remove(b, which, across);
    }
    key = hr_view_remove(b, best, across);
  }
  return HR_OK;
}

/* ---- windows as columns: [.., KH, KW, OH, OW] ---- */

static window column_window(const hr_node *node, hr_operand plane, hr_operand columns) {
  window w = window_of(node, plane, columns);
  for (int i = 0; i < w.plane; ++i) {
    w.out[i] = columns.dims[columns.rank - w.plane + i];
  }
  return w;
}

/* [.., OH, OW, KH, KW] as [.., KH, KW, OH, OW] */
static hr_operand kernel_first(hr_builder *b, hr_operand x, const window *w) {
  int order[HR_RANK_MAX], n = w->plane;
  for (int d = 0; d < x.rank; ++d) {
    order[d] = d < w->lead ? d : d < w->lead + n ? d + n : d - n;
  }
  return hr_is_present(x) ? hr_view_permute(b, x, order) : x;
}

hr_status hr__lower_im2col(hr_builder *b, const hr_node *node) {
  hr_operand x = hr_node_input(node, 0), y = hr_node_output(node, 0);
  window w = column_window(node, x, y);
  if (hr_operand_count(y) > 0) {
    hr_operand windows = hr_view_fill(b, view_windows(b, x, &w), hr_build_f64(b, 0));
    hr_emit1(b, HR_OP_COPY, y, kernel_first(b, windows, &w));
  }
  return HR_OK;
}

/* One element of each window at a time: those share no position of the plane, so each step adds a whole slice. */
hr_status hr__lower_col2im(hr_builder *b, const hr_node *node) {
  hr_operand y = hr_node_input(node, 0), x = hr_node_output(node, 0);
  window w = column_window(node, x, y);
  if (hr_operand_count(x) == 0) {
    return HR_OK;
  }
  hr_dtype dtype = hr__wide(x.dtype);
  hr_operand sum = x.dtype == dtype ? x : hr_build_temp_like(b, x, dtype);
  emit_zero(b, sum);
  hr_operand places = kernel_first(b, view_windows(b, sum, &w), &w);
  int64_t count = hr__mask_count(y, hr__mask_range(w.lead, w.plane));
  for (int64_t k = 0; k < count && hr_operand_count(y) > 0; ++k) {
    hr_operand place = places, part = y;
    int64_t rest = k;
    for (int i = w.plane - 1; i >= 0 && hr_is_present(place) && hr_is_present(part); --i) {
      place = hr_view_slice(b, place, w.lead + i, rest % w.kernel[i], 1, 1);
      part = hr_view_slice(b, part, w.lead + i, rest % w.kernel[i], 1, 1);
      rest /= w.kernel[i];
    }
    hr_emit_scatter(b, HR_STORE_ADD, place, 1, &part, 0);
  }
  hr__deliver(b, x, dtype, sum);
  return HR_OK;
}
