/* onnx_grids.c: elements at places that a tensor has. */
#include "importers/onnx/onnx_importer.h"

enum { PLANES_MAX = 3 };

void hr__onnx_map_grid_sample(hr__onnx_node *node) {
  static const char *const first_modes[] = {"bilinear", "nearest", "bicubic"};
  static const char *const modes[] = {"linear", "nearest", "cubic"};
  static const char *const paddings[] = {"zeros", "border", "reflection"};
  int mode = hr__onnx_word(node, "mode", 3, node->since < 20 ? first_modes : modes);
  int padding = hr__onnx_word(node, "padding_mode", 3, paddings);
  if (mode >= 0 && padding >= 0) {
    hr__onnx_set(node, 0,
                 ADD(node, GRID_SAMPLE, IN(hr__onnx_input(node, 0), hr__onnx_input(node, 1)),
                     WITH(hr__with_text("mode", modes[mode]), hr__with_text("padding", paddings[padding]),
                          hr__with_flag("align_corners", hr__onnx_int(node, "align_corners", 0) != 0))));
  }
}

static hr_value times(hr__onnx_node *node, hr_value x, double factor, double more) {
  hr_value product = CALL(node, MULTIPLY, x, hr__onnx_number(node, factor));
  return more != 0 ? CALL(node, ADD, product, hr__onnx_number(node, more)) : product;
}

/* Coordinates of the output's elements, between -1 and 1, times a matrix for each example. */
void hr__onnx_map_affine_grid(hr__onnx_node *node) {
  hr_value theta = hr__onnx_input(node, 0), parts[PLANES_MAX + 1] = {0};
  hr_dtype dtype = hr__onnx_dtype_of(node, theta);
  int64_t sizes[HR_RANK_MAX];
  int count = hr__onnx_integers(node, hr__onnx_input(node, 1), "size", HR_RANK_MAX, sizes), n = count - 2;
  bool aligns = hr__onnx_int(node, "align_corners", 0) != 0;
  if (count < 0 || n < 1 || n > PLANES_MAX) {
    HR__ONNX_WRONG(node, "a size of %d dims, expected 3 to 5", count);
    return;
  }
  for (int d = 0; d < n; ++d) {
    double size = (double)sizes[d + 2], step = aligns ? (size > 1 ? 2 / (size - 1) : 0) : 2 / size;
    hr_value place = ADD(node, ARANGE, 0, NULL, WITH(hr__with_real("stop", size), hr__with_dtype("dtype", dtype)));
    hr_value at = times(node, place, step, aligns ? -1 : step / 2 - 1);
    parts[n - 1 - d] =
        ADD(node, BROADCAST_TO, IN(hr__onnx_along(node, at, d, n)), WITH(hr__with_ints("shape", n, sizes + 2)));
  }
  parts[n] = times(node, parts[0], 0, 1);
  hr_value places = ADD(node, STACK, n + 1, parts, WITH(hr__with_int("axis", -1)));
  hr_value matrix = ADD(node, SWAPAXES, IN(theta), PLAIN);
  for (int d = 0; d < n - 1; ++d) {
    matrix = hr__onnx_expand_dim(node, matrix, 1);
  }
  hr__onnx_set(node, 0, CALL(node, MATMUL, places, matrix));
}
