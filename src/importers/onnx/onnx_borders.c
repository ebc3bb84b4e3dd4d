/* onnx_borders.c: operators that add, remove or move elements of whole dims. */
#include "importers/onnx/onnx_integer.h"

/* ---- padding ---- */

typedef struct borders {
  int rank;
  hr__integer before[HR_RANK_MAX], after[HR_RANK_MAX];
} borders;

/* Pads of the axes that are given, first all begins, then all ends. */
static bool read_borders(hr__onnx_node *node, hr_value x, borders *b) {
  int64_t axes[HR_RANK_MAX], pads[HR_RANK_MAX];
  hr_value given = node->since >= 11 ? hr__onnx_input(node, 1) : 0;
  b->rank = hr__onnx_rank(node, x);
  int count = b->rank, known = -1;
  if (given != 0 && hr__onnx_input(node, 3) != 0) {
    count = hr__onnx_integers(node, hr__onnx_input(node, 3), "axes", HR_RANK_MAX, axes);
  } else {
    for (int d = 0; d < count; ++d) {
      axes[d] = d;
    }
  }
  if (given == 0) {
    known = hr__onnx_ints(node, node->since < 2 ? "paddings" : "pads", pads);
  } else if (hr__onnx_needs_host(node, given, "pads")) {
    known = (int)hr__onnx_known_dim(node, given, 0);
  }
  if (hr__onnx_failed(node) || known != 2 * count) {
    HR__ONNX_WRONG(node, "%d pads for %d axes, expected two each", known, count);
    return false;
  }
  for (int i = 0; i < count; ++i) {
    int d = hr__onnx_axis(node, axes[i], b->rank);
    b->before[d] = given != 0 ? hr__integer_element(node, given, i) : hr__integer_of(pads[i]);
    b->after[d] = given != 0 ? hr__integer_element(node, given, i + count) : hr__integer_of(pads[i + count]);
  }
  return true;
}

/* The number that a pad has by default, or by input 2. */
static hr_graph_attribute pad_value(hr__onnx_node *node, hr_value x) {
  double number = hr__onnx_real(node, "value", 0);
  int64_t whole = 0;
  hr_graph_attribute value = hr__with_real("value", number);
  hr_value given = node->since >= 11 ? hr__onnx_input(node, 2) : 0;
  if (given != 0 && !hr__onnx_is_float(hr__onnx_dtype_of(node, x))) {
    (void)hr__onnx_integers(node, given, "constant_value", 1, &whole);
    value.value.value.number = hr_scalar_i64(whole);
  } else if (given != 0) {
    (void)hr__onnx_numbers(node, given, "constant_value", 1, &number);
    value.value.value.number = hr_scalar_f64(number);
  }
  return value;
}

void hr__onnx_map_pad(hr__onnx_node *node) {
  static const char *const words[] = {"constant", "reflect", "edge", "wrap"};
  static const hr_functional functions[] = {HR_FUNCTIONAL_PAD, HR_FUNCTIONAL_PAD_REFLECT, HR_FUNCTIONAL_PAD_EDGE,
                                            HR_FUNCTIONAL_PAD_WRAP};
  hr_value x = hr__onnx_input(node, 0);
  borders b = {0};
  int64_t numbers[2][HR_RANK_MAX];
  hr_value values[2][HR_RANK_MAX];
  int word = hr__onnx_word(node, "mode", 4, words);
  if (word < 0 || !read_borders(node, x, &b)) {
    return;
  }
  hr_graph_attribute with[3] = {hr__with_integers("before", b.rank, b.before, numbers[0], values[0]),
                                hr__with_integers("after", b.rank, b.after, numbers[1], values[1])};
  if (word == 0) {
    with[2] = pad_value(node, x);
  }
  hr__onnx_set(node, 0, hr__onnx_add(node, functions[word], IN(x), word == 0 ? 3 : 2, with));
}

/* The middle of each axis, or zeros on both sides of it; the odd element is behind. */
void hr__onnx_map_center_crop_pad(hr__onnx_node *node) {
  hr_value x = hr__onnx_input(node, 0), shape = hr__onnx_input(node, 1);
  int64_t axes[HR_RANK_MAX], before[HR_RANK_MAX] = {0}, after[HR_RANK_MAX] = {0}, sizes[HR_RANK_MAX];
  int rank = hr__onnx_rank(node, x), count = hr__onnx_ints(node, "axes", axes);
  int given = hr__onnx_integers(node, shape, "shape", HR_RANK_MAX, sizes);
  if (given < 0 || given != (count < 0 ? rank : count)) {
    HR__ONNX_WRONG(node, "%d sizes for %d axes", given, count < 0 ? rank : count);
    return;
  }
  for (int i = 0; i < given; ++i) {
    int axis = count < 0 ? i : hr__onnx_axis(node, axes[i], rank);
    int64_t more = sizes[i] - hr__onnx_known_dim(node, x, axis);
    before[axis] = more / 2, after[axis] = more - more / 2; /* negative ones crop */
  }
  hr__onnx_set(node, 0,
               ADD(node, PAD, IN(x), WITH(hr__with_ints("before", rank, before), hr__with_ints("after", rank, after))));
}

/* ---- blocks ---- */

void hr__onnx_map_depth_to_space(hr__onnx_node *node) {
  static const char *const words[] = {"DCR", "CRD"};
  static const int64_t orders[2][6] = {{0, 3, 4, 1, 5, 2}, {0, 1, 4, 2, 5, 3}};
  hr_value x = hr__onnx_input(node, 0);
  int64_t block = hr__onnx_int(node, "blocksize", 1), channels = hr__onnx_known_dim(node, x, 1);
  int word = hr__onnx_word(node, "mode", 2, words);
  if (hr__onnx_failed(node) || block < 1 || block > INT32_MAX) {
    return;
  }
  hr__integer b = hr__integer_of(block), c = hr__integer_of(channels / (block * block));
  hr__integer n = hr__integer_dim(node, x, 0), h = hr__integer_dim(node, x, 2), w = hr__integer_dim(node, x, 3);
  const hr__integer first[2][6] = {{n, b, b, c, h, w}, {n, c, b, b, h, w}};
  const hr__integer last[4] = {n, c, INTEGER(node, MULTIPLY, h, b), INTEGER(node, MULTIPLY, w, b)};
  hr_value parts = hr__integer_reshape(node, x, 6, first[word]);
  hr__onnx_set(node, 0, hr__integer_reshape(node, hr__onnx_permute(node, parts, 6, orders[word]), 4, last));
}

void hr__onnx_map_space_to_depth(hr__onnx_node *node) {
  static const int64_t order[6] = {0, 3, 5, 1, 2, 4};
  hr_value x = hr__onnx_input(node, 0);
  int64_t block = hr__onnx_int(node, "blocksize", 1);
  if (block < 1 || block > INT32_MAX) {
    HR__ONNX_WRONG(node, "blocksize is %lld, expected at least 1", (long long)block);
    return;
  }
  hr__integer b = hr__integer_of(block), n = hr__integer_dim(node, x, 0), c = hr__integer_dim(node, x, 1);
  hr__integer h = INTEGER(node, FLOOR_DIVIDE, hr__integer_dim(node, x, 2), b);
  hr__integer w = INTEGER(node, FLOOR_DIVIDE, hr__integer_dim(node, x, 3), b);
  const hr__integer first[6] = {n, c, h, b, w, b};
  const hr__integer last[4] = {n, INTEGER(node, MULTIPLY, c, hr__integer_of(block * block)), h, w};
  hr_value parts = hr__integer_reshape(node, x, 6, first);
  hr__onnx_set(node, 0, hr__integer_reshape(node, hr__onnx_permute(node, parts, 6, order), 4, last));
}
