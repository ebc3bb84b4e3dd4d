/* onnx_indices.c: elements at indices, and in order. */
#include "importers/onnx/onnx_integer.h"

static int axis_of(hr__onnx_node *node, hr_value x, int64_t otherwise) {
  return hr__onnx_axis(node, hr__onnx_int(node, "axis", otherwise), hr__onnx_rank(node, x));
}

void hr__onnx_map_gather(hr__onnx_node *node) {
  hr_value x = hr__onnx_input(node, 0);
  hr__onnx_set(node, 0,
               ADD(node, TAKE, IN(x, hr__onnx_input(node, 1)), WITH(hr__with_int("axis", axis_of(node, x, 0)))));
}

void hr__onnx_map_gather_elements(hr__onnx_node *node) {
  hr_value x = hr__onnx_input(node, 0), indices = hr__onnx_cast(node, hr__onnx_input(node, 1), HR_DTYPE_I64);
  hr__onnx_set(node, 0, ADD(node, TAKE_ALONG_AXIS, IN(x, indices), WITH(hr__with_int("axis", axis_of(node, x, 0)))));
}

static const char *const reductions[] = {"none", "add", "mul", "max", "min"};
static const char *const modes[] = {"set", "add", "multiply", "max", "min"};

static hr_graph_attribute mode_of(hr__onnx_node *node) {
  int word = hr__onnx_word(node, "reduction", 5, reductions);
  return hr__with_text("mode", modes[word > 0 ? word : 0]);
}

void hr__onnx_map_scatter_elements(hr__onnx_node *node) {
  hr_value x = hr__onnx_input(node, 0), indices = hr__onnx_cast(node, hr__onnx_input(node, 1), HR_DTYPE_I64);
  hr__onnx_set(node, 0,
               ADD(node, PUT_ALONG_AXIS, IN(x, indices, hr__onnx_input(node, 2)),
                   WITH(hr__with_int("axis", axis_of(node, x, 0)), mode_of(node))));
}

/* ---- indices of several axes, in the last dim of one tensor ---- */

typedef struct nd_places {
  int count; /* of axes */
  int64_t axes[HR_RANK_MAX];
  hr_value values[HR_RANK_MAX + 2]; /* from number 2 on the indices */
} nd_places;

/* The first `batch` axes have their own places as indices. */
static bool find_places(hr__onnx_node *node, hr_value x, hr_value indices, int batch, nd_places *p) {
  int rank = hr__onnx_rank(node, indices), last = rank - 1;
  int64_t depth = hr__onnx_known_dim(node, indices, last);
  if (hr__onnx_failed(node) || depth < 0 || batch < 0 || batch + depth > hr__onnx_rank(node, x) || batch > last) {
    HR__ONNX_WRONG(node, "indices of %lld axes behind %d do not suit the input", (long long)depth, batch);
    return false;
  }
  for (int d = 0; d < batch; ++d) {
    hr__integer size = hr__integer_dim(node, x, d);
    hr_graph_attribute with[2] = {hr__with_real("stop", (double)size.number), hr__with_dtype("dtype", HR_DTYPE_I64)};
    with[0].values = size.value != 0 ? &size.value : NULL;
    p->values[2 + p->count] = hr__onnx_along(node, ADD(node, ARANGE, 0, NULL, 2, with), d, last);
    p->axes[p->count++] = d;
  }
  for (int64_t k = 0; k < depth; ++k) {
    hr_value part = hr__onnx_narrow(node, indices, last, k, 1);
    p->values[2 + p->count] = hr__onnx_squeeze_dim(node, part, last);
    p->axes[p->count++] = batch + k;
  }
  return true;
}

void hr__onnx_map_gather_nd(hr__onnx_node *node) {
  hr_value x = hr__onnx_input(node, 0), indices = hr__onnx_cast(node, hr__onnx_input(node, 1), HR_DTYPE_I64);
  nd_places p = {0};
  if (find_places(node, x, indices, (int)hr__onnx_int(node, "batch_dims", 0), &p)) {
    p.values[1] = x;
    hr__onnx_set(node, 0, ADD(node, INDEX, p.count + 1, p.values + 1, WITH(hr__with_ints("axes", p.count, p.axes))));
  }
}

void hr__onnx_map_scatter_nd(hr__onnx_node *node) {
  hr_value x = hr__onnx_input(node, 0), indices = hr__onnx_cast(node, hr__onnx_input(node, 1), HR_DTYPE_I64);
  nd_places p = {0};
  if (find_places(node, x, indices, 0, &p)) {
    p.values[0] = x, p.values[1] = hr__onnx_input(node, 2);
    hr__onnx_set(
        node, 0,
        ADD(node, INDEX_PUT, p.count + 2, p.values, WITH(hr__with_ints("axes", p.count, p.axes), mode_of(node))));
  }
}

/* ---- in order ---- */

void hr__onnx_map_top_k(hr__onnx_node *node) {
  hr_value x = hr__onnx_input(node, 0), k = hr__onnx_input(node, 1);
  hr_graph_attribute with[3] = {hr__with_int("k", hr__onnx_int(node, "k", 1)),
                                hr__with_int("axis", axis_of(node, x, -1)),
                                hr__with_flag("largest", hr__onnx_int(node, "largest", 1) != 0)};
  hr_value one = k != 0 && hr__onnx_rank(node, k) == 1 ? hr__onnx_squeeze_dim(node, k, 0) : k;
  if (one != 0 && !hr__onnx_needs_host(node, one, "k")) {
    return;
  }
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
  hr__onnx_set(node, 0, ADD(node, TAKE_ALONG_AXIS, IN(x, all), WITH(hr__with_int("axis", time))));
}

/* ---- parts that constants select ---- */

enum { SELECTED_MAX = 1 << 16 };

/* The places of elements that are not 0 in a constant; -1 after a failure. */
static int find_nonzero(hr__onnx_node *node, hr_value x, const char *what, int64_t **out_places, int *out_count) {
  double *numbers = HR_ARENA_ARRAY(node->arena, double, SELECTED_MAX);
  *out_places = HR_ARENA_ARRAY(node->arena, int64_t, SELECTED_MAX);
  int count = numbers != NULL && *out_places != NULL ? hr__onnx_numbers(node, x, what, SELECTED_MAX, numbers) : -1;
  *out_count = 0;
  for (int i = 0; i < count; ++i) {
    if (numbers[i] != 0) {
      (*out_places)[(*out_count)++] = i;
    }
  }
  return count;
}

/* Slices along an axis, or elements, where the condition is true. */
void hr__onnx_map_compress(hr__onnx_node *node) {
  hr_value x = hr__onnx_input(node, 0);
  const hr__onnx_attribute *axis = hr__onnx_find_attribute(node, "axis");
  int64_t *places = NULL, all = -1;
  int count = 0;
  if (find_nonzero(node, hr__onnx_input(node, 1), "condition", &places, &count) < 0) {
    return;
  }
  x = axis == NULL ? hr__onnx_reshape(node, x, 1, &all) : x;
  int64_t at = axis == NULL ? 0 : hr__onnx_axis(node, axis->i, hr__onnx_rank(node, x));
  hr__onnx_set(node, 0, ADD(node, TAKE, IN(x, hr__onnx_vector(node, count, places)), WITH(hr__with_int("axis", at))));
}

/* The coordinates [rank, count] of elements that are not 0. */
void hr__onnx_map_nonzero(hr__onnx_node *node) {
  hr_value x = hr__onnx_input(node, 0);
  int rank = hr__onnx_rank(node, x), count = 0;
  int64_t *places = NULL;
  if (find_nonzero(node, x, "input", &places, &count) < 0) {
    return;
  }
  int64_t *all = HR_ARENA_ARRAY(node->arena, int64_t, (size_t)count * (size_t)rank + 1), dims[2] = {rank, count};
  for (int i = 0; all != NULL && i < count; ++i) {
    for (int d = rank - 1; d >= 0; --d) {
      int64_t size = hr__onnx_known_dim(node, x, d);
      all[d * count + i] = places[i] % size;
      places[i] /= size;
    }
  }
  if (all != NULL) {
    hr__onnx_set(node, 0, hr__onnx_reshape(node, hr__onnx_vector(node, rank * count, all), 2, dims));
  }
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
  hr__onnx_set(node, 0, ADD(node, PUT_ALONG_AXIS, IN(cache, all, update), WITH(hr__with_int("axis", axis))));
}

/* ---- operators of ai.onnx.ml ---- */

/* Elements of the last dim. */
void hr__onnx_map_array_features(hr__onnx_node *node) {
  hr_value x = hr__onnx_input(node, 0);
  int64_t all = -1;
  hr_value places = hr__onnx_reshape(node, hr__onnx_input(node, 1), 1, &all);
  x = hr__onnx_rank(node, x) == 1 ? hr__onnx_expand_dim(node, x, 0) : x;
  hr__onnx_set(node, 0, ADD(node, TAKE, IN(x, places), WITH(hr__with_int("axis", hr__onnx_rank(node, x) - 1))));
}

void hr__onnx_map_binarizer(hr__onnx_node *node) {
  hr_value x = hr__onnx_input(node, 0);
  hr_value is_above = CALL(node, GREATER, x, hr__onnx_number(node, hr__onnx_real(node, "threshold", 0)));
  hr__onnx_set(node, 0, hr__onnx_cast(node, is_above, hr__onnx_dtype_of(node, x)));
}
