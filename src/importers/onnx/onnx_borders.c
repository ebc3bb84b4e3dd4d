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
  } else {
    given = hr__onnx_on_host(node, given, "pads");
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
  hr__onnx_set_like(node, 0, hr__onnx_add(node, functions[word], IN(x), word == 0 ? 3 : 2, with));
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
  hr__onnx_set_like(
      node, 0, ADD(node, PAD, IN(x), WITH(hr__with_ints("before", rank, before), hr__with_ints("after", rank, after))));
}

/* ---- blocks ---- */

static void map_blocks(hr__onnx_node *node, bool is_crd) {
  int64_t block = hr__onnx_int(node, "blocksize", 1), blocks[2] = {block, block};
  hr__onnx_set_like(
      node, 0,
      hr__onnx_add(node, node->function, IN(hr__onnx_input(node, 0)),
                   WITH(hr__with_ints("blocks", 2, blocks), hr__with_text("order", is_crd ? "crd" : "dcr"))));
}

/* The function of the row. */
void hr__onnx_map_blocks(hr__onnx_node *node) {
  static const char *const words[] = {"DCR", "CRD"};
  map_blocks(node, hr__onnx_word(node, "mode", 2, words) == 1);
}
