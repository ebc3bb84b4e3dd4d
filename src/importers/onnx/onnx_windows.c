/* onnx_windows.c: convolutions and pools. Sizes of planes may depend on symbols. */
#include "importers/onnx/onnx_integer.h"

typedef struct windows {
  int planes; /* dims behind examples and channels */
  int64_t window[HR_RANK_MAX], stride[HR_RANK_MAX], dilation[HR_RANK_MAX];
  hr__integer before[HR_RANK_MAX], after[HR_RANK_MAX];
} windows;

typedef struct window_rooms {
  int64_t numbers[2][HR_RANK_MAX];
  hr_value values[2][HR_RANK_MAX];
} window_rooms;

static void read_list(hr__onnx_node *node, const char *name, int count, int64_t otherwise, int64_t *out) {
  int given = hr__onnx_ints(node, name, out);
  if (given >= 0 && given != count) {
    HR__ONNX_WRONG(node, "attribute %s has %d integers, expected %d", name, given, count);
  }
  for (int i = 0; given < 0 && i < count; ++i) {
    out[i] = otherwise;
  }
}

enum { PAD_EXPLICIT = 0, PAD_SAME_UPPER, PAD_SAME_LOWER, PAD_VALID };
static const char *const pad_words[] = {"NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"};

/* As many padding elements that ceil(size / stride) windows fit; the odd one is behind, or in front for SAME_LOWER. */
static void pad_same(hr__onnx_node *node, hr_value x, int d, bool is_lower, windows *w) {
  hr__integer size = hr__integer_dim(node, x, d + 2), stride = hr__integer_of(w->stride[d]);
  hr__integer less = INTEGER(node, SUBTRACT, size, hr__integer_of(1));
  hr__integer last = INTEGER(node, MULTIPLY, INTEGER(node, FLOOR_DIVIDE, less, stride), stride);
  hr__integer end = INTEGER(node, ADD, last, hr__integer_of((w->window[d] - 1) * w->dilation[d] + 1));
  hr__integer total = INTEGER(node, MAXIMUM, INTEGER(node, SUBTRACT, end, size), hr__integer_of(0));
  hr__integer half = INTEGER(node, FLOOR_DIVIDE, total, hr__integer_of(2));
  hr__integer rest = INTEGER(node, SUBTRACT, total, half);
  w->before[d] = is_lower ? rest : half, w->after[d] = is_lower ? half : rest;
}

static int read_pads(hr__onnx_node *node, hr_value x, windows *w) {
  int word = hr__onnx_word(node, "auto_pad", 4, pad_words);
  int64_t pads[HR_RANK_MAX * 2];
  read_list(node, "pads", 2 * w->planes <= HR_RANK_MAX ? 2 * w->planes : HR_RANK_MAX, 0, pads);
  for (int d = 0; d < w->planes; ++d) {
    bool is_given = word == PAD_EXPLICIT;
    w->before[d] = hr__integer_of(is_given ? pads[d] : 0);
    w->after[d] = hr__integer_of(is_given ? pads[d + w->planes] : 0);
    if (word == PAD_SAME_UPPER || word == PAD_SAME_LOWER) {
      pad_same(node, x, d, word == PAD_SAME_LOWER, w);
    }
  }
  return word;
}

/* weight: the operand of which dims 2 ... are the window; 0: kernel_shape. False after a failure. */
static bool read_windows(hr__onnx_node *node, hr_value x, hr_value weight, windows *w) {
  w->planes = hr__onnx_rank(node, x) - 2;
  if (w->planes < 1 || 2 * w->planes > HR_RANK_MAX) {
    HR__ONNX_WRONG(node, "input 0 has %d dims, expected examples, channels and planes", w->planes + 2);
    return false;
  }
  for (int d = 0; weight != 0 && d < w->planes; ++d) {
    w->window[d] = hr__onnx_known_dim(node, weight, d + 2);
  }
  if (weight == 0) {
    read_list(node, "kernel_shape", w->planes, 1, w->window);
  }
  read_list(node, "strides", w->planes, 1, w->stride);
  read_list(node, "dilations", w->planes, 1, w->dilation);
  for (int d = 0; d < w->planes; ++d) {
    if (w->stride[d] < 1 || w->dilation[d] < 1 || w->window[d] > INT32_MAX || w->dilation[d] > INT32_MAX) {
      HR__ONNX_WRONG(node, "stride %lld, dilation %lld and window %lld of plane %d, expected positive numbers",
                     (long long)w->stride[d], (long long)w->dilation[d], (long long)w->window[d], d);
      return false;
    }
  }
  (void)read_pads(node, x, w);
  return !hr__onnx_failed(node);
}

/* ---- convolutions ---- */

static hr_value convolve(hr__onnx_node *node, hr_value x, hr_value weight, hr_value bias, const windows *w) {
  window_rooms rooms;
  int n = w->planes;
  return ADD(node, CONV, IN(x, weight, bias),
             WITH(hr__with_ints("stride", n, w->stride), hr__with_ints("dilation", n, w->dilation),
                  hr__with_integers("before", n, w->before, rooms.numbers[0], rooms.values[0]),
                  hr__with_integers("after", n, w->after, rooms.numbers[1], rooms.values[1]),
                  hr__with_int("groups", hr__onnx_int(node, "group", 1))));
}

void hr__onnx_map_conv(hr__onnx_node *node) {
  hr_value x = hr__onnx_input(node, 0), weight = hr__onnx_input(node, 1);
  windows w;
  if (read_windows(node, x, weight, &w)) {
    hr__onnx_set(node, 0, convolve(node, x, weight, hr__onnx_input(node, 2), &w));
  }
}

hr_value hr__onnx_convolve(hr__onnx_node *node, hr_value x, hr_value weight) {
  windows w;
  return read_windows(node, x, weight, &w) ? convolve(node, x, weight, 0, &w) : 0;
}

/* Padding by which the result has the size that is given, or size * stride for SAME. */
static void pad_transposed(hr__onnx_node *node, hr_value x, const int64_t *more, windows *w) {
  int64_t shape[HR_RANK_MAX];
  int count = hr__onnx_ints(node, "output_shape", shape), word = hr__onnx_word(node, "auto_pad", 4, pad_words);
  if (count < 0 && word != PAD_SAME_UPPER && word != PAD_SAME_LOWER) {
    return;
  }
  if (count >= 0 && count != w->planes && count != w->planes + 2) {
    HR__ONNX_WRONG(node, "attribute output_shape has %d integers, expected %d or %d", count, w->planes, w->planes + 2);
    return;
  }
  for (int d = 0; d < w->planes; ++d) {
    hr__integer size = hr__integer_dim(node, x, d + 2), stride = hr__integer_of(w->stride[d]);
    hr__integer steps = INTEGER(node, MULTIPLY, INTEGER(node, SUBTRACT, size, hr__integer_of(1)), stride);
    hr__integer full = INTEGER(node, ADD, steps, hr__integer_of((w->window[d] - 1) * w->dilation[d] + 1 + more[d]));
    hr__integer wanted =
        count < 0 ? INTEGER(node, MULTIPLY, size, stride) : hr__integer_of(shape[count - w->planes + d]);
    hr__integer total = INTEGER(node, SUBTRACT, full, wanted);
    hr__integer half = INTEGER(node, FLOOR_DIVIDE, total, hr__integer_of(2));
    hr__integer rest = INTEGER(node, SUBTRACT, total, half);
    bool is_lower = word != PAD_SAME_UPPER;
    w->before[d] = is_lower ? rest : half, w->after[d] = is_lower ? half : rest;
  }
}

void hr__onnx_map_conv_transpose(hr__onnx_node *node) {
  hr_value x = hr__onnx_input(node, 0), weight = hr__onnx_input(node, 1), bias = hr__onnx_input(node, 2);
  windows w;
  window_rooms rooms;
  int64_t more[HR_RANK_MAX];
  if (!read_windows(node, x, weight, &w)) {
    return;
  }
  int n = w.planes;
  read_list(node, "output_padding", n, 0, more);
  pad_transposed(node, x, more, &w);
  for (int d = 0; d < n; ++d) {
    w.after[d] = INTEGER(node, SUBTRACT, w.after[d], hr__integer_of(more[d]));
  }
  hr_value y = ADD(node, CONV_TRANSPOSE, IN(x, weight),
                   WITH(hr__with_ints("stride", n, w.stride), hr__with_ints("dilation", n, w.dilation),
                        hr__with_integers("before", n, w.before, rooms.numbers[0], rooms.values[0]),
                        hr__with_integers("after", n, w.after, rooms.numbers[1], rooms.values[1]),
                        hr__with_int("groups", hr__onnx_int(node, "group", 1))));
  hr__onnx_set(node, 0, bias != 0 ? CALL(node, ADD, y, hr__onnx_along(node, bias, 1, n + 2)) : y);
}

/* ---- pools ---- */

static hr_value pool(hr__onnx_node *node, hr_functional function, hr_value x, const windows *w) {
  window_rooms rooms;
  int n = w->planes, count = 6;
  hr_graph_attribute with[7] = {hr__with_ints("window", n, w->window),
                                hr__with_ints("stride", n, w->stride),
                                hr__with_ints("dilation", n, w->dilation),
                                hr__with_integers("padding", n, w->before, rooms.numbers[0], rooms.values[0]),
                                hr__with_integers("after", n, w->after, rooms.numbers[1], rooms.values[1]),
                                hr__with_flag("ceil", hr__onnx_int(node, "ceil_mode", 0) != 0)};
  if (function == HR_FUNCTIONAL_LP_POOL) {
    with[count++] = hr__with_real("p", (double)hr__onnx_int(node, "p", 2));
  } else if (function == HR_FUNCTIONAL_AVG_POOL) {
    with[count++] = hr__with_flag("count_padding", hr__onnx_int(node, "count_include_pad", 0) != 0);
  } else if (function == HR_FUNCTIONAL_MAX_POOL_PLACES) {
    bool is_column_major = n == 2 && hr__onnx_int(node, "storage_order", 0) != 0;
    with[count++] = hr__with_text("places", is_column_major ? "column_major" : "tensor");
  }
  return hr__onnx_add(node, function, IN(x), count, with);
}

void hr__onnx_map_max_pool(hr__onnx_node *node) {
  hr_value x = hr__onnx_input(node, 0);
  windows w;
  if (!read_windows(node, x, 0, &w)) {
    return;
  }
  if (!hr__onnx_wants(node, 1)) {
    hr__onnx_set(node, 0, pool(node, HR_FUNCTIONAL_MAX_POOL, x, &w));
    return;
  }
  hr_value values = pool(node, HR_FUNCTIONAL_MAX_POOL_PLACES, x, &w);
  hr__onnx_set(node, 0, values);
  hr__onnx_set(node, 1, values != 0 ? hr__onnx_cast(node, values + 1, HR_DTYPE_I64) : 0);
}

/* x with its padding as elements, which are `value`. */
static hr_value pad_planes(hr__onnx_node *node, hr_value x, const windows *w, double value) {
  hr__integer before[HR_RANK_MAX] = {{0}}, after[HR_RANK_MAX] = {{0}};
  window_rooms rooms;
  for (int d = 0; d < w->planes; ++d) {
    before[d + 2] = w->before[d], after[d + 2] = w->after[d];
  }
  return ADD(node, PAD, IN(x),
             WITH(hr__with_integers("before", w->planes + 2, before, rooms.numbers[0], rooms.values[0]),
                  hr__with_integers("after", w->planes + 2, after, rooms.numbers[1], rooms.values[1]),
                  hr__with_real("value", value)));
}

/* The mean of x over that of ones: windows that end behind the padding have fewer elements, dilated ones, too. */
static hr_value cut_average(hr__onnx_node *node, hr_value x, const windows *w) {
  bool counts = hr__onnx_int(node, "count_include_pad", 0) != 0;
  hr_value ones = ADD(node, FULL, IN(hr__onnx_whole(node, 1)),
                      WITH(hr__with_list("shape", hr_graph_shape(node->graph, x)),
                           hr__with_dtype("dtype", hr__onnx_dtype_of(node, x))));
  windows padded = *w;
  for (int d = 0; d < w->planes; ++d) {
    padded.before[d] = padded.after[d] = hr__integer_of(0);
  }
  hr_value sum = pool(node, HR_FUNCTIONAL_AVG_POOL, pad_planes(node, x, w, 0), &padded);
  hr_value count = pool(node, HR_FUNCTIONAL_AVG_POOL, pad_planes(node, ones, w, counts), &padded);
  return CALL(node, DIVIDE, sum, count);
}

void hr__onnx_map_average_pool(hr__onnx_node *node) {
  hr_value x = hr__onnx_input(node, 0);
  windows w;
  if (!read_windows(node, x, 0, &w)) {
    return;
  }
  bool is_dilated = false;
  for (int d = 0; d < w.planes; ++d) {
    is_dilated |= w.dilation[d] > 1;
  }
  bool is_cut = is_dilated && hr__onnx_int(node, "ceil_mode", 0) != 0;
  hr__onnx_set(node, 0, is_cut ? cut_average(node, x, &w) : pool(node, HR_FUNCTIONAL_AVG_POOL, x, &w));
}

void hr__onnx_map_lp_pool(hr__onnx_node *node) {
  hr_value x = hr__onnx_input(node, 0);
  windows w;
  if (read_windows(node, x, 0, &w)) {
    hr__onnx_set(node, 0, pool(node, HR_FUNCTIONAL_LP_POOL, x, &w));
  }
}

/* Over whole planes; the function of the row. */
void hr__onnx_map_global_pool(hr__onnx_node *node) {
  hr_value x = hr__onnx_input(node, 0);
  int64_t axes[HR_RANK_MAX];
  int rank = hr__onnx_rank(node, x);
  for (int d = 2; d < rank; ++d) {
    axes[d - 2] = d;
  }
  hr_graph_attribute with[3] = {hr__with_ints("axis", rank > 2 ? rank - 2 : 0, axes), hr__with_flag("keepdims", true),
                                hr__with_real("ord", (double)hr__onnx_int(node, "p", 2))};
  hr__onnx_set(node, 0,
               hr__onnx_add(node, node->function, IN(x), node->function == HR_FUNCTIONAL_VECTOR_NORM ? 3 : 2, with));
}

/* ---- the inverse of windows ---- */

/* x [N, C * K, L], of K elements of a window at L places, added up in planes: a transposed convolution with ones. */
void hr__onnx_map_col2im(hr__onnx_node *node) {
  hr_value x = hr__onnx_input(node, 0);
  windows w = {0};
  int64_t sizes[HR_RANK_MAX], elements = 1, before[HR_RANK_MAX], after[HR_RANK_MAX], dims[HR_RANK_MAX];
  w.planes = hr__onnx_integers(node, hr__onnx_input(node, 1), "image_shape", HR_RANK_MAX / 2, sizes);
  if (w.planes < 1 || hr__onnx_integers(node, hr__onnx_input(node, 2), "block_shape", w.planes, w.window) != w.planes) {
    return;
  }
  int n = w.planes;
  read_list(node, "strides", n, 1, w.stride);
  read_list(node, "dilations", n, 1, w.dilation);
  (void)read_pads(node, x, &w);
  hr__integer shape[HR_RANK_MAX];
  for (int d = 0; d < n && !hr__onnx_failed(node); ++d) {
    if (w.stride[d] < 1 || w.dilation[d] < 1 || w.window[d] < 1 || w.dilation[d] > INT32_MAX ||
        w.window[d] > INT16_MAX) {
      HR__ONNX_WRONG(node, "stride, dilation and window of plane %d have to be positive", d);
      return;
    }
    int64_t reach = (w.window[d] - 1) * w.dilation[d] + 1, padded = sizes[d] + w.before[d].number + w.after[d].number;
    int64_t count = (padded - reach) / w.stride[d] + 1;
    before[d] = w.before[d].number, after[d] = (count - 1) * w.stride[d] + reach - before[d] - sizes[d];
    elements *= w.window[d], shape[d + 2] = hr__integer_of(count), dims[d + 2] = w.window[d];
  }
  int64_t channels = hr__onnx_known_dim(node, x, 1);
  if (hr__onnx_failed(node) || elements < 1 || channels % elements != 0) {
    HR__ONNX_WRONG(node, "%lld channels of windows of %lld elements", (long long)channels, (long long)elements);
    return;
  }
  shape[0] = hr__integer_dim(node, x, 0), shape[1] = hr__integer_of(channels);
  hr_value unit = ADD(node, EYE, 0, NULL,
                      WITH(hr__with_int("rows", elements), hr__with_dtype("dtype", hr__onnx_dtype_of(node, x))));
  int64_t times[2] = {channels / elements, 1};
  dims[0] = channels, dims[1] = 1;
  hr_value weight =
      hr__onnx_reshape(node, ADD(node, TILE, IN(unit), WITH(hr__with_ints("repetitions", 2, times))), n + 2, dims);
  hr__onnx_set(node, 0,
               ADD(node, CONV_TRANSPOSE, IN(hr__integer_reshape(node, x, n + 2, shape), weight),
                   WITH(hr__with_ints("stride", n, w.stride), hr__with_ints("dilation", n, w.dilation),
                        hr__with_ints("before", n, before), hr__with_ints("after", n, after),
                        hr__with_int("groups", channels / elements))));
}

/* Elements at indices of the whole result, which is 0 elsewhere. */
void hr__onnx_map_max_unpool(hr__onnx_node *node) {
  hr_value x = hr__onnx_input(node, 0), places = hr__onnx_input(node, 1), given = hr__onnx_input(node, 2);
  windows w;
  int64_t dims[HR_RANK_MAX], wanted[HR_RANK_MAX], count = 1, one = -1, none[HR_RANK_MAX] = {0};
  if (!read_windows(node, x, 0, &w)) {
    return;
  }
  for (int d = 0; d < w.planes + 2; ++d) {
    dims[d] = hr__onnx_known_dim(node, x, d);
    if (d > 1) {
      dims[d] = (dims[d] - 1) * w.stride[d - 2] + w.window[d - 2] - w.before[d - 2].number - w.after[d - 2].number;
    }
    count *= dims[d];
  }
  if (given != 0 && hr__onnx_integers(node, given, "output_shape", HR_RANK_MAX, wanted) != w.planes + 2) {
    return;
  }
  hr_value zeros = ADD(node, FULL, IN(hr__onnx_whole(node, 0)),
                       WITH(hr__with_ints("shape", 1, &count), hr__with_dtype("dtype", hr__onnx_dtype_of(node, x))));
  hr_value flat =
      ADD(node, PUT_ALONG_AXIS, IN(zeros, hr__onnx_reshape(node, places, 1, &one), hr__onnx_reshape(node, x, 1, &one)),
          WITH(hr__with_int("axis", 0)));
  hr_value y = hr__onnx_reshape(node, flat, w.planes + 2, dims);
  for (int d = 0; given != 0 && d < w.planes + 2; ++d) {
    wanted[d] -= dims[d];
  }
  hr__onnx_set(node, 0,
               given == 0 ? y
                          : ADD(node, PAD, IN(y),
                                WITH(hr__with_ints("before", w.planes + 2, none),
                                     hr__with_ints("after", w.planes + 2, wanted))));
}
