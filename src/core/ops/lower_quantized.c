/* lower_quantized.c: products with packed numbers, as loops that unpack them and a product.
 *
 *   q = numbers >> shift & mask    w = scale * q + bias    y = x w^T
 */
#include "core/ir/build.h"

/* [B?, N, K], in this dtype. */
static hr_operand unpacked(hr_builder *b, const hr_node *node, hr_dtype dtype) {
  int64_t bits = node->ints[0], group = node->ints[1], count = 32 / bits;
  int rank = node->inputs[1].rank;
  hr_operand words = hr_view_split(b, hr_node_input(node, 1), rank - 1, group / count); /* [B?, N, groups, words] */
  hr_operand scales = hr_view_insert(b, hr_view_insert(b, hr_node_input(node, 2), rank, 1), rank + 1, 1);
  hr_operand biases = hr_view_insert(b, hr_view_insert(b, hr_node_input(node, 3), rank, 1), rank + 1, 1);
  int64_t strides[5] = {0};
  strides[rank + 1] = bits;
  words = hr_view_insert(b, words, rank + 1, count);
  hr_operand shifts = hr_build_index(b, rank + 2, words.dims, 0, strides);
  hr_operand numbers = hr_make2(b, HR_OP_SHIFT_RIGHT, HR_DTYPE_U32, words, shifts);
  numbers = hr_make2(b, HR_OP_BIT_AND, HR_DTYPE_U32, numbers, hr_build_i64(b, (INT64_C(1) << bits) - 1));
  numbers = hr_make1(b, HR_OP_COPY, dtype, numbers);
  hr_operand w = hr_make2(b, HR_OP_ADD, dtype, hr_make2(b, HR_OP_MUL, dtype, numbers, scales), biases);
  return hr_view_merge(b, w, rank - 1, 3);
}

hr_status hr__lower_quantized_matmul(hr_builder *b, const hr_node *node) {
  hr_operand x = hr_node_input(node, 0), y = hr_node_output(node, 0);
  if (hr_operand_count(y) == 0) {
    return HR_OK;
  }
  static const int turned[2][3] = {{1, 0}, {0, 2, 1}};
  hr_operand w = hr_view_permute(b, unpacked(b, node, y.dtype), turned[y.rank - 2]);
  x = x.dtype == y.dtype ? x : hr_make1(b, HR_OP_COPY, y.dtype, x);
  hr_emit_node(b, HR_OP_MATMUL, 2, (hr_operand[]){x, w}, 1, &y, 0, NULL);
  return HR_OK;
}
