/* hlo_windows.c: reductions of windows by any region, and the updates of elements that windows select.
 *
 * Windows of a known region are a row, or, if they reach back to the first element of a dim, running sums and the like.
 * All others are folds along one dim after the other (hlo_fold.c). Elements outside of x have the value to begin with.
 * The largest elements of windows on planes, and the updates of these, are those of pools (hlo_pools.c).
 */
#include "importers/stablehlo/hlo_windows.h"

typedef hr__hlo_windows windows;

static bool is_between(int64_t number, int64_t least) {
  return number >= least && number <= INT32_MAX;
}

static bool check_windows(hr__hlo *hlo, const windows *w) {
  for (int d = 0; d < w->rank; ++d) {
    if (!is_between(w->size[d], 1) || !is_between(w->stride[d], 1) || !is_between(w->dilation[d], 1) ||
        !is_between(w->distance[d], 1) || !is_between(w->before[d], -INT32_MAX) ||
        !is_between(w->after[d], -INT32_MAX)) {
      HR__HLO_WRONG(hlo,
                    "dim %d: windows of %lld elements, stride %lld, dilation %lld, padding %lld and %lld, and %lld of "
                    "the operand, expected 1 to %d, padding also below",
                    d, (long long)w->size[d], (long long)w->stride[d], (long long)w->dilation[d],
                    (long long)w->before[d], (long long)w->after[d], (long long)w->distance[d], INT32_MAX);
      return false;
    }
  }
  return true;
}

static bool read_windows(hr__hlo *hlo, int count, windows *w) {
  hr__vhlo_type x = hr__hlo_input_type(hlo, 0);
  int64_t sides[HR__VHLO_PLACES_MAX];
  *w = (windows){.count = count, .rank = x.rank};
  memcpy(w->dims, x.dims, sizeof x.dims);
  if (!hr__hlo_int_list(hlo, "window_dimensions", w->rank, 1, w->size) ||
      !hr__hlo_int_list(hlo, "window_strides", w->rank, 1, w->stride) ||
      !hr__hlo_int_list(hlo, "window_dilations", w->rank, 1, w->dilation) ||
      !hr__hlo_int_list(hlo, "base_dilations", w->rank, 1, w->distance) ||
      !hr__hlo_int_list(hlo, "padding", 2 * w->rank, 0, sides)) {
    return false;
  }
  for (int d = 0; d < w->rank; ++d) {
    w->before[d] = sides[2 * d], w->after[d] = sides[2 * d + 1];
  }
  return check_windows(hlo, w);
}

static bool is_empty(int rank, const int64_t *dims) {
  for (int d = 0; d < rank; ++d) {
    if (dims[d] == 0) {
      return true;
    }
  }
  return false;
}

/* ---- rows ---- */

/* The dim along which windows reach back to the first element, or, reversed, on to the last one; -1: there is none. */
static int running_axis(const windows *w, bool *out_reversed) {
  int axis = -1;
  for (int d = 0; d < w->rank; ++d) {
    bool is_plain = w->stride[d] == 1 && w->dilation[d] == 1 && w->distance[d] == 1;
    bool is_one = w->size[d] == 1 && w->before[d] == 0 && w->after[d] == 0;
    if (!is_plain || (!is_one && (axis >= 0 || w->size[d] != w->dims[d]))) {
      return -1;
    }
    axis = is_one ? axis : d;
  }
  if (axis < 0) {
    return -1;
  }
  *out_reversed = w->before[axis] == 0;
  return w->before[axis] + w->after[axis] == w->size[axis] - 1 && (*out_reversed || w->after[axis] == 0) ? axis : -1;
}

static hr_value flipped(hr__hlo *hlo, hr_value x, int64_t axis, bool is_needed) {
  return is_needed ? ADD(hlo, FLIP, IN(x), WITH(hr__with_ints("axis", 1, &axis))) : x;
}

static hr_value running(hr__hlo *hlo, hr__hlo_combiner combiner, hr_value x, hr_dtype dtype, int axis,
                        bool is_reversed) {
  hr_graph_attribute along = hr__with_int("axis", axis), as = hr__with_dtype("dtype", dtype);
  bool is_flag = dtype == HR_DTYPE_BOOL;
  hr_value in = flipped(hlo, is_flag ? hr__hlo_cast(hlo, x, HR_DTYPE_U8) : x, axis, is_reversed), out = 0;
  if (combiner == HR__HLO_ADD) {
    out = ADD(hlo, CUMULATIVE_SUM, IN(in), WITH(along, as));
  } else if (combiner == HR__HLO_MULTIPLY) {
    out = ADD(hlo, CUMULATIVE_PROD, IN(in), WITH(along, as));
  } else if (combiner == HR__HLO_MAX || combiner == HR__HLO_OR) {
    out = ADD(hlo, CUMULATIVE_MAX, IN(in), WITH(along));
  } else {
    out = ADD(hlo, CUMULATIVE_MIN, IN(in), WITH(along));
  }
  out = flipped(hlo, out, axis, is_reversed);
  return is_flag ? hr__hlo_cast(hlo, out, HR_DTYPE_BOOL) : out;
}

bool hr__hlo_windows_have_row(const windows *w) {
  enum { READS_MAX = 64 };
  int64_t reads = 1;
  for (int d = 0; d < w->rank && reads <= READS_MAX; ++d) {
    int64_t along = w->size[d] / w->stride[d];
    reads *= along > 1 ? along : 1;
  }
  return reads <= READS_MAX && 2 * w->rank <= HR_RANK_MAX;
}

static hr_value by_row(hr__hlo *hlo, const windows *w, hr__hlo_combiner combiner, hr_value x) {
  static const char *const modes[HR__HLO_COMBINERS] = {
      [HR__HLO_ADD] = "sum", [HR__HLO_MULTIPLY] = "prod", [HR__HLO_MAX] = "max",
      [HR__HLO_MIN] = "min", [HR__HLO_AND] = "all",       [HR__HLO_OR] = "any"};
  hr_value pooled = combiner == HR__HLO_MAX ? hr__hlo_max_pool(hlo, w, x) : 0;
  if (pooled != 0 || hr__hlo_failed(hlo)) {
    return pooled;
  }
  return ADD(hlo, REDUCE_WINDOW, IN(x),
             WITH(hr__with_ints("window", w->rank, w->size), hr__with_ints("stride", w->rank, w->stride),
                  hr__with_ints("before", w->rank, w->before), hr__with_ints("after", w->rank, w->after),
                  hr__with_ints("dilation", w->rank, w->dilation),
                  hr__with_ints("input_dilation", w->rank, w->distance), hr__with_text("mode", modes[combiner])));
}

/* False: regions or windows are none of those with a row. */
static bool reduce_by_rows(hr__hlo *hlo, const windows *w) {
  hr__hlo_combiner combiners[HR__HLO_OPERANDS_MAX];
  bool is_reversed = false;
  int axis = running_axis(w, &is_reversed);
  for (int i = 0; i < w->count; ++i) {
    hr_dtype from = hr__hlo_input_type(hlo, i).dtype;
    combiners[i] = hr__hlo_combiner_of(hlo, &hlo->op->regions[0], i);
    if (combiners[i] == HR__HLO_OTHER || combiners[i] == HR__HLO_SECOND || from != hr__hlo_result_type(hlo, i).dtype) {
      return false;
    }
  }
  if (axis < 0 && !hr__hlo_windows_have_row(w)) {
    return false;
  }
  for (int i = 0; i < w->count; ++i) {
    hr_dtype dtype = hr__hlo_input_type(hlo, i).dtype;
    hr_value x = hr__hlo_input(hlo, i);
    x = axis >= 0 ? running(hlo, combiners[i], x, dtype, axis, is_reversed) : by_row(hlo, w, combiners[i], x);
    hr__hlo_set(hlo, i, hr__hlo_begin_with(hlo, combiners[i], w->count + i, dtype, x));
  }
  return true;
}

/* ---- folds ---- */

/* Values with those to begin with around them and between neighbours (0: with zeros). Dims become those of all. */
static void surround(hr__hlo *hlo, const windows *w, int count, hr_value *values, const hr_value *starts,
                     int64_t *dims) {
  int64_t interior[HR_RANK_MAX], any = 0;
  for (int d = 0; d < w->rank; ++d) {
    interior[d] = w->distance[d] - 1;
    any |= w->before[d] | w->after[d] | interior[d];
  }
  for (int i = 0; i < count && any != 0 && w->rank > 0; ++i) {
    values[i] = hr__hlo_pad(hlo, values[i], w->rank, w->dims, w->before, w->after, interior, starts[i]);
  }
  for (int d = 0; d < w->rank; ++d) {
    int64_t spaced = w->dims[d] > 0 ? (w->dims[d] - 1) * w->distance[d] + 1 : 0;
    dims[d] = spaced + w->before[d] + w->after[d];
  }
}

static void fold_all(hr__hlo *hlo, const windows *w, const hr__hlo_folder *folder, hr_value *values, int64_t *dims) {
  for (int d = w->rank - 1; d >= 0; --d) {
    if (w->size[d] > 1 || w->stride[d] > 1) {
      hr__hlo_fold_windows(hlo, folder, values, w->rank, dims, d, w->size[d], w->stride[d], w->dilation[d]);
    }
  }
}

static void reduce_by_folds(hr__hlo *hlo, const windows *w) {
  hr_value values[HR__HLO_OPERANDS_MAX], starts[HR__HLO_OPERANDS_MAX];
  int64_t dims[HR_RANK_MAX];
  hr__hlo_folder folder = hr__hlo_folder_of(&hlo->op->regions[0], w->count);
  for (int i = 0; i < w->count; ++i) {
    hr_dtype from = hr__hlo_input_type(hlo, i).dtype, to = hr__hlo_result_type(hlo, i).dtype;
    values[i] = from == to ? hr__hlo_input(hlo, i) : hr__hlo_convert(hlo, hr__hlo_input(hlo, i), from, to);
    starts[i] = hr__hlo_input(hlo, w->count + i);
  }
  surround(hlo, w, w->count, values, starts, dims);
  fold_all(hlo, w, &folder, values, dims);
  bool is_done = !hr__hlo_failed(hlo) && folder.combine(hlo, &folder, starts, values, values);
  for (int i = 0; i < w->count && is_done; ++i) {
    hr__hlo_set(hlo, i, values[i]);
  }
}

void hr__hlo_lower_reduce_window(hr__hlo *hlo) {
  int count = hlo->op->result_count;
  hr__vhlo_type result = hr__hlo_result_type(hlo, 0);
  windows w;
  if (!hr__hlo_expect(hlo, 2 * count, -1, 1)) {
    return;
  }
  if (count < 1 || count > HR__HLO_OPERANDS_MAX) {
    HR__HLO_REFUSE(hlo, "%d operands, expected 1 to %d", count, HR__HLO_OPERANDS_MAX);
    return;
  }
  if (!read_windows(hlo, count, &w)) {
    return;
  }
  if (is_empty(result.rank, result.dims) || is_empty(w.rank, w.dims)) {
    for (int i = 0; i < count; ++i) {
      hr__hlo_set(hlo, i, hr__hlo_broadcast(hlo, hr__hlo_input(hlo, count + i), result.rank, result.dims));
    }
  } else if (!reduce_by_rows(hlo, &w)) {
    reduce_by_folds(hlo, &w);
  }
}

/* ---- select and scatter ---- */

/* Pairs of an element and its place; negative places are outside of x, and any other one is better. */
static bool select_better(hr__hlo *hlo, const hr__hlo_folder *folder, const hr_value *x, const hr_value *y,
                          hr_value *out) {
  const hr_value pair[2] = {x[0], y[0]};
  hr_value flag = 0, zero = hr__hlo_whole(hlo, 0);
  int found = hr__hlo_inline(hlo, folder->region, 2, pair, 1, &flag, false);
  if (found >= 0 && found != 1) {
    HR__HLO_WRONG(hlo, "its select region has %d results, expected 1", found);
  }
  hr_value is_first = CALL(hlo, LOGICAL_AND, CALL(hlo, GREATER_EQUAL, x[1], zero), flag);
  is_first = CALL(hlo, LOGICAL_OR, CALL(hlo, LESS, y[1], zero), is_first);
  hr_value element = CALL(hlo, WHERE, is_first, x[0], y[0]), place = CALL(hlo, WHERE, is_first, x[1], y[1]);
  out[0] = element, out[1] = place;
  return !hr__hlo_failed(hlo);
}

static int64_t product(int rank, const int64_t *dims) {
  int64_t count = 1;
  for (int d = 0; d < rank; ++d) {
    count *= dims[d];
  }
  return count;
}

/* Numbers of x's elements. */
static hr_value numbers_of(hr__hlo *hlo, int64_t size) {
  hr_dtype dtype = size <= INT32_MAX ? HR_DTYPE_I32 : HR_DTYPE_I64;
  return ADD(hlo, ARANGE, 0, NULL, WITH(hr__with_real("stop", (double)size), hr__with_dtype("dtype", dtype)));
}

/* The numbers that windows select; dims become those of windows. */
static hr_value selected(hr__hlo *hlo, const windows *w, int64_t size, int64_t *dims) {
  hr__hlo_folder folder = {.combine = select_better, .region = &hlo->op->regions[0], .count = 2};
  hr_dtype dtype = size <= INT32_MAX ? HR_DTYPE_I32 : HR_DTYPE_I64;
  hr_value outside = hr__hlo_full(hlo, hr_scalar_i64(-1), dtype, 0, NULL);
  hr_value values[2] = {hr__hlo_input(hlo, 0), hr__hlo_reshape(hlo, numbers_of(hlo, size), w->rank, w->dims)};
  surround(hlo, w, 2, values, (hr_value[]){0, outside}, dims);
  fold_all(hlo, w, &folder, values, dims);
  return values[1];
}

/* Windows that are side by side and cover x: each element is in one window. */
static bool are_tiles(const windows *w) {
  int rank = w->rank;
  for (int d = 0; d < w->rank; ++d) {
    rank += w->size[d] > 1;
    if (w->before[d] != 0 || w->after[d] != 0 || w->stride[d] != w->size[d] || w->dims[d] % w->size[d] != 0) {
      return false;
    }
  }
  return rank <= HR_RANK_MAX;
}

/* Without a scatter: the result where an element's number is that of its window, else the value to begin with. */
static hr_value update_tiles(hr__hlo *hlo, const windows *w, int64_t size, hr_value places) {
  int64_t inside[HR_RANK_MAX], across[HR_RANK_MAX]; /* of elements, of windows */
  int rank = 0;
  for (int d = 0; d < w->rank; ++d) {
    inside[rank] = across[rank] = w->dims[d] / w->size[d], ++rank;
    if (w->size[d] > 1) {
      inside[rank] = w->size[d], across[rank++] = 1;
    }
  }
  hr__hlo_folder folder = hr__hlo_folder_of(&hlo->op->regions[1], 1);
  hr_value start = hr__hlo_input(hlo, 2), updated = 0;
  if (!folder.combine(hlo, &folder, &start, &(hr_value){hr__hlo_input(hlo, 1)}, &updated)) {
    return 0;
  }
  hr_value numbers = hr__hlo_reshape(hlo, numbers_of(hlo, size), rank, inside);
  hr_value is_selected = CALL(hlo, EQUAL, numbers, hr__hlo_reshape(hlo, places, rank, across));
  hr_value all = CALL(hlo, WHERE, is_selected, hr__hlo_reshape(hlo, updated, rank, across), start);
  return hr__hlo_reshape(hlo, all, w->rank, w->dims);
}

void hr__hlo_lower_select_and_scatter(hr__hlo *hlo) {
  hr__vhlo_type source = hr__hlo_input_type(hlo, 1);
  int64_t dims[HR_RANK_MAX];
  windows w;
  if (!hr__hlo_expect(hlo, 3, 1, 2) || !read_windows(hlo, 1, &w)) {
    return;
  }
  int64_t size = product(w.rank, w.dims), count = product(source.rank, source.dims);
  if (size == 0 || count == 0) {
    hr__hlo_set(hlo, 0, hr__hlo_broadcast(hlo, hr__hlo_input(hlo, 2), w.rank, w.dims));
    return;
  }
  hr_value gradient = hr__hlo_max_pool_gradient(hlo, &w);
  if (gradient != 0 || hr__hlo_failed(hlo)) {
    hr__hlo_set(hlo, 0, gradient);
    return;
  }
  hr_value places = selected(hlo, &w, size, dims);
  if (source.rank != w.rank || memcmp(dims, source.dims, (size_t)w.rank * sizeof *dims) != 0) {
    HR__HLO_WRONG(hlo, "the source has other dims than the windows of its operand");
    return;
  }
  if (are_tiles(&w)) {
    hr__hlo_set(hlo, 0, update_tiles(hlo, &w, size, places));
    return;
  }
  hr_value all = hr__hlo_broadcast(hlo, hr__hlo_input(hlo, 2), 1, &size);
  hr_value values = hr__hlo_reshape(hlo, hr__hlo_input(hlo, 1), 1, &count);
  places = hr__hlo_cast(hlo, hr__hlo_reshape(hlo, places, 1, &count), HR_DTYPE_I64);
  hr__hlo_update(hlo, &hlo->op->regions[1], 1, &all, size, places, count, &values);
  hr__hlo_set(hlo, 0, hr__hlo_reshape(hlo, all, w.rank, w.dims));
}
