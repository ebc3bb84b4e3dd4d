/* onnx_products.c: matrix products. */
#include "importers/onnx/onnx_integer.h"

/* alpha x y + beta z, with x or y transposed. */
void hr__onnx_map_gemm(hr__onnx_node *node) {
  hr_value x = hr__onnx_input(node, 0), y = hr__onnx_input(node, 1), z = hr__onnx_input(node, 2);
  double alpha = hr__onnx_real(node, "alpha", 1), beta = hr__onnx_real(node, "beta", 1);
  x = hr__onnx_int(node, "transA", 0) != 0 ? CALL(node, PERMUTE_DIMS, x) : x;
  y = hr__onnx_int(node, "transB", 0) != 0 ? CALL(node, PERMUTE_DIMS, y) : y;
  hr_dtype dtype = hr__onnx_dtype_of(node, x);
  hr_value product = CALL(node, MATMUL, x, y);
  product = alpha != 1 ? CALL(node, MULTIPLY, product, hr__onnx_number(node, alpha)) : product;
  if (z != 0) {
    z = beta != 1 ? CALL(node, MULTIPLY, z, hr__onnx_number(node, beta)) : z;
    product = CALL(node, ADD, product, z);
  }
  hr__onnx_set(node, 0, hr__onnx_cast(node, product, dtype));
}

void hr__onnx_map_einsum(hr__onnx_node *node) {
  const hr__onnx_attribute *attribute = hr__onnx_find_attribute(node, "equation");
  hr_value inputs[HR_RANK_MAX] = {0};
  if (attribute == NULL || node->input_count > HR_RANK_MAX) {
    HR__ONNX_WRONG(node, "an equation and at most %d inputs expected", HR_RANK_MAX);
    return;
  }
  for (int i = 0; i < node->input_count; ++i) {
    inputs[i] = hr__onnx_input(node, i);
  }
  const char *equation = hr__onnx_string(node, attribute->bytes);
  hr__onnx_set(node, 0, ADD(node, EINSUM, node->input_count, inputs, WITH(hr__with_text("equation", equation))));
}
