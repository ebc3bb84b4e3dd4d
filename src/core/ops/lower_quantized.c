/* lower_quantized.c: products with packed numbers, as loops that unpack them and a product.
 *
 *   q = numbers >> shift & mask    w = scale * q + bias    y = x w^T, or x w
 *
 * Numbers whose bits do not divide a word are read as units of eight: as many bytes as a number has bits. Floats of
 * four bits are decoded, those of eight are bytes of a dtype.
 */
#include "core/ir/build.h"
#include "core/ops/packing.h"

/* Words [.., W] as their bytes [.., 4 W], of this dtype of one byte. */
static hr_operand bytes_of(hr_builder *b, hr_operand words, hr_dtype dtype) {
  int64_t dims[3], strides[3];
  int last = words.rank - 1;
  if (words.kind == HR_OPERAND_NONE) {
    return words;
  }
  if (words.strides[last] != 1 && words.dims[last] > 1) {
    words = hr_make1(b, HR_OP_COPY, HR_DTYPE_U32, words);
  }
  for (int d = 0; d <= last; ++d) {
    dims[d] = d == last ? 4 * words.dims[d] : words.dims[d], strides[d] = d == last ? 1 : 4 * words.strides[d];
  }
  hr_operand bytes = hr_view_strided(b, words, words.rank, dims, strides, 4 * words.offset);
  bytes.dtype = dtype;
  return bytes;
}

/* Eight numbers each as one integer: [.., units, 1]. */
static hr_operand read_units(hr_builder *b, hr_operand words, int64_t bits) {
  hr_operand bytes = hr_view_split(b, bytes_of(b, words, HR_DTYPE_U8), words.rank - 1, bits), units = {0};
  for (int64_t i = 0; i < bits; ++i) {
    hr_operand byte = hr_make1(b, HR_OP_COPY, HR_DTYPE_I64, hr_view_slice(b, bytes, words.rank, i, 1, 1));
    byte = i > 0 ? hr_make2(b, HR_OP_SHIFT_LEFT, HR_DTYPE_I64, byte, hr_build_i64(b, 8 * i)) : byte;
    units = i > 0 ? hr_make2(b, HR_OP_BIT_OR, HR_DTYPE_I64, units, byte) : byte;
  }
  return units;
}

/* Words [.., W] as integers [.., numbers]. */
static hr_operand integers_of(hr_builder *b, hr_operand words, int64_t bits) {
  bool is_whole = 32 % bits == 0;
  hr_dtype dtype = is_whole ? HR_DTYPE_U32 : HR_DTYPE_I64;
  int rank = words.rank;
  hr_operand units = is_whole ? hr_view_insert(b, words, rank, 1) : read_units(b, words, bits);
  int64_t dims[4] = {0}, strides[4] = {0};
  for (int d = 0; d < rank; ++d) {
    dims[d] = hr_is_present(units) ? units.dims[d] : 0;
  }
  dims[rank] = is_whole ? 32 / bits : 8, strides[rank] = bits;
  hr_operand numbers = hr_make2(b, HR_OP_SHIFT_RIGHT, dtype, hr_view_broadcast(b, units, rank + 1, dims),
                                hr_build_index(b, rank + 1, dims, 0, strides));
  numbers = hr_make2(b, HR_OP_BIT_AND, dtype, numbers, hr_build_i64(b, (INT64_C(1) << bits) - 1));
  return hr_view_merge(b, numbers, rank - 1, 2);
}

/* Numbers of a sign, two bits of exponent and one of mantissa. Twice the magnitude is the low three bits below 2, and
 * then their lowest one behind a 1, shifted by the exponent. */
static hr_operand decode_e2m1(hr_builder *b, hr_operand codes, hr_dtype dtype) {
  hr_dtype integer = HR_DTYPE_I32;
  hr_operand code = hr_make1(b, HR_OP_COPY, integer, codes), one = hr_build_i64(b, 1);
  hr_operand low = hr_make2(b, HR_OP_BIT_AND, integer, code, hr_build_i64(b, 7));
  hr_operand shift = hr_make2(b, HR_OP_SUB, integer, hr_make2(b, HR_OP_SHIFT_RIGHT, integer, low, one), one);
  shift = hr_make2(b, HR_OP_MAXIMUM, integer, shift, hr_build_i64(b, 0));
  hr_operand mantissa = hr_make2(b, HR_OP_BIT_AND, integer, low, one);
  mantissa = hr_make2(b, HR_OP_ADD, integer, mantissa, hr_build_i64(b, 2));
  hr_operand large = hr_make2(b, HR_OP_SHIFT_LEFT, integer, mantissa, shift);
  hr_operand is_small = hr_make2(b, HR_OP_LT, HR_DTYPE_BOOL, low, hr_build_i64(b, 2));
  hr_operand twice = hr_make3(b, HR_OP_WHERE, integer, is_small, low, large);
  hr_operand size = hr_make2(b, HR_OP_MUL, dtype, hr_make1(b, HR_OP_COPY, dtype, twice), hr_build_f64(b, 0.5));
  hr_operand is_signed = hr_make2(b, HR_OP_GT, HR_DTYPE_BOOL, code, hr_build_i64(b, 7));
  return hr_make3(b, HR_OP_WHERE, dtype, is_signed, hr_make1(b, HR_OP_NEG, dtype, size), size);
}

static hr_operand numbers_of(hr_builder *b, hr_operand words, const hr_packing *p, hr_dtype dtype) {
  if (p->is_float && p->bits == 8) {
    return hr_make1(b, HR_OP_COPY, dtype, bytes_of(b, words, HR_DTYPE_F8E4M3FN));
  }
  hr_operand integers = integers_of(b, words, p->bits);
  return p->is_float ? decode_e2m1(b, integers, dtype) : hr_make1(b, HR_OP_COPY, dtype, integers);
}

/* One for each group as a dim of size 1 behind them, in this dtype. */
static hr_operand of_groups(hr_builder *b, hr_operand x, hr_dtype dtype) {
  x = hr_dtype_is_float8(x.dtype) ? hr_make1(b, HR_OP_COPY, dtype, x) : x;
  return hr_view_insert(b, x, x.rank, 1);
}

/* The matrices, with the rows of the words, in this dtype. Scales of one byte reach beyond f16: products with them are
 * rounded once. */
static hr_operand unpacked(hr_builder *b, const hr_node *node, const hr_packing *p, hr_dtype dtype) {
  hr_operand words = hr_node_input(node, 1), scales = hr_node_input(node, 2), biases = hr_node_input(node, 3);
  hr_dtype wide = hr_dtype_is_float8(scales.dtype) && dtype == HR_DTYPE_F16 ? HR_DTYPE_F32 : dtype;
  int last = words.rank - 1;
  hr_operand w = hr_view_split(b, numbers_of(b, words, p, wide), last, p->group);
  w = hr_make2(b, HR_OP_MUL, wide, w, of_groups(b, scales, wide));
  w = wide == dtype ? w : hr_make1(b, HR_OP_COPY, dtype, w);
  w = hr_is_present(biases) ? hr_make2(b, HR_OP_ADD, dtype, w, of_groups(b, biases, dtype)) : w;
  return hr_view_merge(b, w, last, 2);
}

hr_status hr__lower_quantized_matmul(hr_builder *b, const hr_node *node) {
  hr_operand x = hr_node_input(node, 0), y = hr_node_output(node, 0);
  if (hr_operand_count(y) == 0) {
    return HR_OK;
  }
  static const int turned[2][3] = {{1, 0}, {0, 2, 1}};
  hr_packing p = hr_packing_of(node->ints, node->int_count);
  hr_operand w = unpacked(b, node, &p, y.dtype);
  w = p.has_columns ? w : hr_view_permute(b, w, turned[y.rank - 2]);
  x = x.dtype == y.dtype ? x : hr_make1(b, HR_OP_COPY, y.dtype, x);
  hr_emit_node(b, HR_OP_MATMUL, 2, (hr_operand[]){x, w}, 1, &y, 0, NULL);
  return HR_OK;
}
