/* onnx_indices.c: elements at indices, and in order. */
#include "importers/onnx/onnx_integer.h"

static int axis_of(hr__onnx_node *node, hr_value x, int64_t otherwise) {
  return hr__onnx_axis(node, hr__onnx_int(node, "axis", otherwise), hr__onnx_rank(node, x));
}

void hr__onnx_map_gather(hr__onnx_node *node) {
  hr_value x = hr__onnx_input(node, 0);
  hr__onnx_set_like(node, 0,
                    ADD(node, TAKE, IN(x, hr__onnx_input(node, 1)), WITH(hr__with_int("axis", axis_of(node, x, 0)))));
}

void hr__onnx_map_gather_elements(hr__onnx_node *node) {
  hr_value x = hr__onnx_input(node, 0), indices = hr__onnx_cast(node, hr__onnx_input(node, 1), HR_DTYPE_I64);
  hr__onnx_set_like(node, 0,
                    ADD(node, TAKE_ALONG_AXIS, IN(x, indices), WITH(hr__with_int("axis", axis_of(node, x, 0)))));
}

static const char *const reductions[] = {"none", "add", "mul", "max", "min"};
static const char *const modes[] = {"set", "add", "multiply", "max", "min"};

static hr_graph_attribute mode_of(hr__onnx_node *node) {
  int word = hr__onnx_word(node, "reduction", 5, reductions);
  return hr__with_text("mode", modes[word > 0 ? word : 0]);
}

void hr__onnx_map_scatter_elements(hr__onnx_node *node) {
  hr_value x = hr__onnx_input(node, 0), indices = hr__onnx_cast(node, hr__onnx_input(node, 1), HR_DTYPE_I64);
  hr__onnx_set_like(node, 0,
                    ADD(node, PUT_ALONG_AXIS, IN(x, indices, hr__onnx_input(node, 2)),
                        WITH(hr__with_int("axis", axis_of(node, x, 0)), mode_of(node))));
}

void hr__onnx_map_gather_nd(hr__onnx_node *node) {
  hr_value indices = hr__onnx_cast(node, hr__onnx_input(node, 1), HR_DTYPE_I64);
  hr__onnx_set_like(node, 0,
                    ADD(node, GATHER_ND, IN(hr__onnx_input(node, 0), indices),
                        WITH(hr__with_int("batch_dims", hr__onnx_int(node, "batch_dims", 0)))));
}

void hr__onnx_map_scatter_nd(hr__onnx_node *node) {
  hr_value indices = hr__onnx_cast(node, hr__onnx_input(node, 1), HR_DTYPE_I64);
  hr__onnx_set_like(
      node, 0,
      ADD(node, SCATTER_ND, IN(hr__onnx_input(node, 0), indices, hr__onnx_input(node, 2)), WITH(mode_of(node))));
}

/* ---- in order ---- */

void hr__onnx_map_top_k(hr__onnx_node *node) {
  hr_value x = hr__onnx_input(node, 0), k = hr__onnx_input(node, 1);
  hr_graph_attribute with[3] = {hr__with_int("k", hr__onnx_int(node, "k", 1)),
                                hr__with_int("axis", axis_of(node, x, -1)),
                                hr__with_flag("largest", hr__onnx_int(node, "largest", 1) != 0)};
  hr_value one = k != 0 && hr__onnx_rank(node, k) == 1 ? hr__onnx_squeeze_dim(node, k, 0) : k;
  one = hr__onnx_on_host(node, one, "k");
  with[0].values = one != 0 ? &one : NULL;
  hr_value values = ADD(node, TOPK, IN(x), 3, with);
  if (values != 0) {
    hr__onnx_set(node, 0, values);
    hr__onnx_set(node, 1, hr__onnx_cast(node, values + 1, HR_DTYPE_I64));
  }
}

/* The function of the row; exclusive: without the element itself. */
void hr__onnx_map_cumulative(hr__onnx_node *node) {
  hr_value x = hr__onnx_input(node, 0);
  int64_t axis = 0;
  if (hr__onnx_integers(node, hr__onnx_input(node, 1), "axis", 1, &axis) < 0) {
    return;
  }
  axis = hr__onnx_axis(node, axis, hr__onnx_rank(node, x));
  bool is_reverse = hr__onnx_int(node, "reverse", 0) != 0, is_exclusive = hr__onnx_int(node, "exclusive", 0) != 0;
  hr_value from = is_reverse ? ADD(node, FLIP, IN(x), WITH(hr__with_ints("axis", 1, &axis))) : x;
  hr_value sums = hr__onnx_add(node, node->function, IN(from),
                               WITH(hr__with_int("axis", axis), hr__with_flag("include_initial", is_exclusive),
                                    hr__with_dtype("dtype", hr__onnx_dtype_of(node, x))));
  if (is_exclusive) {
    sums = hr__integer_slice(node, sums, (int)axis, hr__integer_of(0), hr__integer_dim(node, x, (int)axis), 1);
  }
  hr__onnx_set(node, 0, is_reverse ? ADD(node, FLIP, IN(sums), WITH(hr__with_ints("axis", 1, &axis))) : sums);
}

/* on where an index equals its place along a new axis, else off. */
void hr__onnx_map_one_hot(hr__onnx_node *node) {
  hr_value indices = hr__onnx_input(node, 0), values = hr__onnx_input(node, 2);
  double depth = 0;
  int64_t zero[1] = {0};
  if (hr__onnx_numbers(node, hr__onnx_input(node, 1), "depth", 1, &depth) < 0) {
    return;
  }
  int rank = hr__onnx_rank(node, indices), axis = hr__onnx_axis(node, hr__onnx_int(node, "axis", -1), rank + 1);
  hr_value whole = hr__onnx_cast(node, indices, HR_DTYPE_I64);
  hr_value is_negative = CALL(node, LESS, whole, hr__onnx_whole(node, 0));
  hr_value wrapped = CALL(node, ADD, whole, hr__onnx_whole(node, (int64_t)depth));
  hr_value places = hr__onnx_expand_dim(node, CALL(node, WHERE, is_negative, wrapped, whole), axis);
  hr_value count =
      ADD(node, ARANGE, 0, NULL, WITH(hr__with_real("stop", depth), hr__with_dtype("dtype", HR_DTYPE_I64)));
  hr_value is_on = CALL(node, EQUAL, places, hr__onnx_along(node, count, axis, rank + 1));
  hr_value off = hr__onnx_reshape(node, hr__onnx_narrow(node, values, 0, 0, 1), 0, zero);
  hr_value on = hr__onnx_reshape(node, hr__onnx_narrow(node, values, 0, 1, 1), 0, zero);
  hr__onnx_set(node, 0, CALL(node, WHERE, is_on, on, off));
}

/* The first lengths[b] steps of example b in reverse order. */
void hr__onnx_map_reverse_sequence(hr__onnx_node *node) {
  hr_value x = hr__onnx_input(node, 0), lengths = hr__onnx_cast(node, hr__onnx_input(node, 1), HR_DTYPE_I64);
  int time = (int)hr__onnx_int(node, "time_axis", 0), batch = (int)hr__onnx_int(node, "batch_axis", 1);
  int rank = hr__onnx_rank(node, x);
  int64_t steps = hr__onnx_known_dim(node, x, time);
  hr_value count =
      ADD(node, ARANGE, 0, NULL, WITH(hr__with_real("stop", (double)steps), hr__with_dtype("dtype", HR_DTYPE_I64)));
  hr_value step = hr__onnx_along(node, count, time, rank), length = hr__onnx_along(node, lengths, batch, rank);
  hr_value last = CALL(node, SUBTRACT, length, hr__onnx_whole(node, 1));
  hr_value place = CALL(node, WHERE, CALL(node, LESS, step, length), CALL(node, SUBTRACT, last, step), step);
  hr_value all = ADD(node, BROADCAST_TO, IN(place), WITH(hr__with_list("shape", hr_graph_shape(node->graph, x))));
  hr__onnx_set_like(node, 0, ADD(node, TAKE_ALONG_AXIS, IN(x, all), WITH(hr__with_int("axis", time))));
}

/* ---- results whose dims depend on data ---- */

/* Slices along an axis, or elements, where the condition is true. */
void hr__onnx_map_compress(hr__onnx_node *node) {
  hr_value x = hr__onnx_input(node, 0), condition = hr__onnx_input(node, 1);
  const hr__onnx_attribute *axis = hr__onnx_find_attribute(node, "axis");
  int64_t all = -1, at = axis == NULL ? 0 : hr__onnx_axis(node, axis->i, hr__onnx_rank(node, x));
  x = axis == NULL ? hr__onnx_reshape(node, x, 1, &all) : x;
  hr__integer count = hr__integer_dim(node, condition, 0), size = hr__integer_dim(node, x, (int)at);
  x = hr__integer_slice(node, x, (int)at, hr__integer_of(0), INTEGER(node, MINIMUM, count, size), 1);
  hr__onnx_set_like(node, 0, ADD(node, COMPRESS, IN(condition, x), WITH(hr__with_int("axis", at))));
}

/* x's slices along an axis as the rows of a matrix. */
static hr_value slices_of(hr__onnx_node *node, hr_value x, int axis) {
  hr__integer dims[2] = {hr__integer_dim(node, x, axis), hr__integer_of(1)};
  for (int d = 0; d < hr__onnx_rank(node, x); ++d) {
    dims[1] = d != axis ? INTEGER(node, MULTIPLY, dims[1], hr__integer_dim(node, x, d)) : dims[1];
  }
  hr_value first = ADD(node, MOVEAXIS, IN(x), WITH(hr__with_int("source", axis), hr__with_int("destination", 0)));
  return hr__integer_reshape(node, first, 2, dims);
}

/* For each row of a matrix a number, the same for equal rows: of how many other rows are in front of it in order, or,
 * unsorted, of the first equal row. All pairs of rows are compared. */
static hr_value number_rows(hr__onnx_node *node, hr_value rows, bool is_sorted) {
  const int64_t second = 1, last = 2;
  hr_value differs = CALL(node, NOT_EQUAL, hr__onnx_expand_dim(node, rows, 1), hr__onnx_expand_dim(node, rows, 0));
  hr_value is_other = hr__onnx_reduce(node, HR_FUNCTIONAL_ANY, differs, 1, &last, false);
  hr_value is_same = hr__onnx_cast(node, CALL(node, LOGICAL_NOT, is_other), HR_DTYPE_I32);
  hr_value leader = hr__onnx_reduce(node, HR_FUNCTIONAL_ARGMAX, is_same, 1, &second, false);
  if (!is_sorted) {
    return leader;
  }
  hr_value place =
      hr__onnx_reduce(node, HR_FUNCTIONAL_ARGMAX, hr__onnx_cast(node, differs, HR_DTYPE_I32), 1, &last, false);
  hr_value mine = ADD(node, TAKE_ALONG_AXIS, IN(rows, place), WITH(hr__with_int("axis", 1)));
  hr_value is_behind = CALL(node, GREATER, mine, CALL(node, SWAPAXES, mine));
  hr_value number = hr__integer_steps(node, hr__integer_dim(node, rows, 0), HR_DTYPE_I64, 0, 1);
  hr_value counts = CALL(node, LOGICAL_AND, is_behind, CALL(node, EQUAL, leader, number));
  return hr__onnx_reduce(node, HR_FUNCTIONAL_COUNT_NONZERO, counts, 1, &second, false);
}

/* The distinct slices along an axis. */
static void map_unique_slices(hr__onnx_node *node, hr_value x, int axis) {
  hr_value number = number_rows(node, slices_of(node, x, axis), hr__onnx_int(node, "sorted", 1) != 0);
  hr_value values = CALL(node, UNIQUE, number);
  if (values != 0) {
    hr__onnx_set(node, 0, ADD(node, TAKE, IN(x, values + 1), WITH(hr__with_int("axis", axis))));
  }
  for (int i = 1; values != 0 && i < 4; ++i) {
    hr__onnx_set(node, i, hr__onnx_cast(node, values + (hr_value)i, HR_DTYPE_I64));
  }
}

/* The distinct elements; unsorted: in the order of their first places. */
void hr__onnx_map_unique(hr__onnx_node *node) {
  hr_value x = hr__onnx_input(node, 0);
  int64_t all = -1;
  if (hr__onnx_find_attribute(node, "axis") != NULL && hr__onnx_rank(node, x) != 1) {
    map_unique_slices(node, x, axis_of(node, x, 0));
    return;
  }
  hr_value values = CALL(node, UNIQUE, hr__onnx_reshape(node, x, 1, &all));
  hr_value results[4] = {values, values + 1, values + 2, values + 3};
  if (values != 0 && hr__onnx_int(node, "sorted", 1) == 0) {
    hr_value order = ADD(node, ARGSORT, IN(results[1]), WITH(hr__with_int("axis", 0)));
    hr_value place = ADD(node, ARGSORT, IN(order), WITH(hr__with_int("axis", 0)));
    results[2] = CALL(node, TAKE, place, results[2]);
    for (int i = 0; i < 4; i += i == 1 ? 2 : 1) {
      results[i] = CALL(node, TAKE, results[i], order);
    }
  }
  for (int i = 0; values != 0 && i < 4; ++i) {
    hr__onnx_set(node, i, i == 0 ? results[0] : hr__onnx_cast(node, results[i], HR_DTYPE_I64));
  }
}

void hr__onnx_map_non_max_suppression(hr__onnx_node *node) {
  hr_value most = hr__onnx_on_host(node, hr__onnx_input(node, 2), "max_output_boxes_per_class");
  hr_value least = hr__onnx_input(node, 4), overlap = hr__onnx_input(node, 3);
  double numbers[2] = {0};
  hr_graph_attribute with[4] = {hr__with_int("most", 0),
                                hr__with_flag("center", hr__onnx_int(node, "center_point_box", 0) != 0)};
  if ((overlap != 0 && hr__onnx_numbers(node, overlap, "iou_threshold", 1, &numbers[0]) < 0) ||
      (least != 0 && hr__onnx_numbers(node, least, "score_threshold", 1, &numbers[1]) < 0)) {
    return;
  }
  with[0].values = most != 0 ? &most : NULL;
  with[2] = hr__with_real("overlap", numbers[0]), with[3] = hr__with_real("least", numbers[1]);
  hr__onnx_set(
      node, 0,
      ADD(node, NON_MAX_SUPPRESSION, IN(hr__onnx_input(node, 0), hr__onnx_input(node, 1)), least != 0 ? 4 : 3, with));
}

/* A cache with new elements along an axis, from an index of each example on; circular: modulo the axis. */
void hr__onnx_map_tensor_scatter(hr__onnx_node *node) {
  static const char *const words[] = {"linear", "circular"};
  hr_value cache = hr__onnx_input(node, 0), update = hr__onnx_input(node, 1), begin = hr__onnx_input(node, 2);
  int rank = hr__onnx_rank(node, cache), axis = axis_of(node, cache, -2);
  hr__integer size = hr__integer_dim(node, cache, axis), steps = hr__integer_dim(node, update, axis);
  hr_graph_attribute with[2] = {hr__with_real("stop", (double)steps.number), hr__with_dtype("dtype", HR_DTYPE_I64)};
  with[0].values = steps.value != 0 ? &steps.value : NULL;
  hr_value place = hr__onnx_along(node, ADD(node, ARANGE, 0, NULL, 2, with), axis, rank);
  if (begin != 0) {
    place = CALL(node, ADD, place, hr__onnx_along(node, hr__onnx_cast(node, begin, HR_DTYPE_I64), 0, rank));
  }
  if (hr__onnx_word(node, "mode", 2, words) == 1) {
    place = CALL(node, REMAINDER, place, size.value != 0 ? size.value : hr__onnx_whole(node, size.number));
  }
  hr_value all = ADD(node, BROADCAST_TO, IN(place), WITH(hr__with_list("shape", hr_graph_shape(node->graph, update))));
  hr__onnx_set_like(node, 0, ADD(node, PUT_ALONG_AXIS, IN(cache, all, update), WITH(hr__with_int("axis", axis))));
}

/* ---- operators of ai.onnx.ml ---- */

/* Elements of the last dim. */
void hr__onnx_map_array_features(hr__onnx_node *node) {
  hr_value x = hr__onnx_input(node, 0);
  int64_t all = -1;
  hr_value places = hr__onnx_reshape(node, hr__onnx_input(node, 1), 1, &all);
  x = hr__onnx_rank(node, x) == 1 ? hr__onnx_expand_dim(node, x, 0) : x;
  hr__onnx_set_like(node, 0, ADD(node, TAKE, IN(x, places), WITH(hr__with_int("axis", hr__onnx_rank(node, x) - 1))));
}

void hr__onnx_map_binarizer(hr__onnx_node *node) {
  hr_value x = hr__onnx_input(node, 0);
  hr_value is_above = CALL(node, GREATER, x, hr__onnx_number(node, hr__onnx_real(node, "threshold", 0)));
  hr__onnx_set(node, 0, hr__onnx_cast(node, is_above, hr__onnx_dtype_of(node, x)));
}
