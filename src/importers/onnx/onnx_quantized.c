/* onnx_quantized.c: quantisation, and products of quantised numbers, which are exact in i32. */
#include <math.h>

#include "core/ir/dtype.h"
#include "importers/onnx/onnx_integer.h"

/* ---- scales ---- */

/* A scale or zero point with dims that suit x: one number, one for each element of an axis, or one for each block. */
static hr_value spread(hr__onnx_node *node, hr_value scale, hr_value x) {
  int rank = hr__onnx_rank(node, x), own = hr__onnx_rank(node, scale);
  int64_t block = hr__onnx_int(node, "block_size", 0);
  if (scale == 0 || own == 0 || hr__onnx_failed(node)) {
    return scale;
  }
  if (own == 1 && hr__onnx_dim(node, scale, 0) == 1 && block == 0) {
    return hr__onnx_reshape(node, scale, 0, NULL);
  }
  int axis = hr__onnx_axis(node, hr__onnx_int(node, "axis", 1), rank);
  if (block == 0) {
    return own == 1 ? hr__onnx_along(node, scale, axis, rank) : scale;
  }
  hr_value all = ADD(node, REPEAT, IN(scale), WITH(hr__with_int("repeats", block), hr__with_int("axis", axis)));
  return hr__integer_slice(node, all, axis, hr__integer_of(0), hr__integer_dim(node, x, axis), 1);
}

static void range_of(int data_type, hr_dtype dtype, double *out_low, double *out_high) {
  int bits = hr__onnx_narrow_bits(data_type) > 0 ? hr__onnx_narrow_bits(data_type) : 8 * (int)hr_dtype_size(dtype);
  bool is_signed = dtype == HR_DTYPE_I8 || dtype == HR_DTYPE_I16 || dtype == HR_DTYPE_I32;
  *out_low = is_signed ? -ldexp(1, bits - 1) : 0;
  *out_high = (is_signed ? ldexp(1, bits - 1) : ldexp(1, bits)) - 1;
}

/* Numbers, already whole, as a dtype that they may exceed. */
static hr_value saturate(hr__onnx_node *node, hr_value x, int data_type, hr_dtype dtype) {
  double low = 0, high = 0;
  range_of(data_type, dtype, &low, &high);
  hr_value bounded =
      CALL(node, MINIMUM, CALL(node, MAXIMUM, x, hr__onnx_number(node, low)), hr__onnx_number(node, high));
  return hr__onnx_cast(node, bounded, dtype);
}

/* ---- quantising ---- */

/* The data type of the result: the attribute, that of the zero point, or UINT8. */
static int64_t target_of(hr__onnx_node *node) {
  enum { UINT8 = 2 };
  hr_value zero = hr__onnx_input(node, 2);
  int64_t wanted = hr__onnx_int(node, "output_dtype", 0);
  return wanted != 0 ? wanted : zero == 0 ? UINT8 : hr__onnx_data_type_of(node->graph, &node->inputs[2]);
}

void hr__onnx_map_quantize(hr__onnx_node *node) {
  hr_value x = hr__onnx_input(node, 0), scale = spread(node, hr__onnx_input(node, 1), x);
  hr_value zero = spread(node, hr__onnx_input(node, 2), x);
  int64_t data_type = target_of(node);
  hr_dtype dtype = hr__onnx_dtype(data_type);
  if (hr__onnx_failed(node)) {
    return;
  }
  bool is_whole = hr_dtype_is_integer(hr__onnx_dtype_of(node, x));
  hr_value from = is_whole ? hr__onnx_cast(node, x, HR_DTYPE_F32) : x;
  hr_value wide = hr__onnx_cast(node, CALL(node, DIVIDE, from, scale), HR_DTYPE_F32);
  if (!hr_dtype_is_integer(dtype)) {
    const hr__onnx_value value = {.value = wide};
    node->outputs[0] = hr__onnx_convert(node, &value, data_type);
    return;
  }
  hr_value rounded = CALL(node, ROUND, wide);
  rounded = zero != 0 ? CALL(node, ADD, rounded, hr__onnx_cast(node, zero, HR_DTYPE_F32)) : rounded;
  bool is_narrow = hr__onnx_narrow_bits(data_type) > 0;
  node->outputs[0] = (hr__onnx_value){.value = saturate(node, rounded, (int)data_type, dtype),
                                      .data_type = is_narrow ? (int)data_type : 0};
}

void hr__onnx_map_dequantize(hr__onnx_node *node) {
  hr_value x = hr__onnx_input(node, 0), scale = hr__onnx_input(node, 1),
           zero = spread(node, hr__onnx_input(node, 2), x);
  hr_dtype own = hr__onnx_dtype_of(node, x), wanted = hr__onnx_dtype(hr__onnx_int(node, "output_dtype", 0));
  hr_dtype dtype = wanted != HR_DTYPE_NONE ? wanted : hr__onnx_dtype_of(node, scale);
  hr_dtype wide = own == HR_DTYPE_I32 ? HR_DTYPE_F64 : HR_DTYPE_F32;
  hr_value whole = hr__onnx_cast(node, x, wide);
  whole = zero != 0 ? CALL(node, SUBTRACT, whole, hr__onnx_cast(node, zero, wide)) : whole;
  hr_value factor = hr__onnx_cast(node, spread(node, scale, x), wide);
  hr__onnx_set(node, 0, hr__onnx_cast(node, CALL(node, MULTIPLY, whole, factor), dtype));
}

/* Scale and zero point of u8 from the smallest and the largest element and 0. */
void hr__onnx_map_dynamic_quantize(hr__onnx_node *node) {
  hr_value x = hr__onnx_input(node, 0), none = hr__onnx_number(node, 0), levels = hr__onnx_number(node, 255);
  hr_value low = CALL(node, MINIMUM, CALL(node, MIN, x), none), high = CALL(node, MAXIMUM, CALL(node, MAX, x), none);
  hr_value scale = CALL(node, DIVIDE, CALL(node, SUBTRACT, high, low), levels);
  hr_value place = CALL(node, NEGATIVE, CALL(node, DIVIDE, low, scale));
  hr_value zero = saturate(node, CALL(node, ROUND, place), 0, HR_DTYPE_U8);
  hr_value whole = CALL(node, ROUND, CALL(node, DIVIDE, x, scale));
  hr_value moved = CALL(node, ADD, whole, hr__onnx_cast(node, zero, HR_DTYPE_F32));
  hr__onnx_set(node, 0, saturate(node, moved, 0, HR_DTYPE_U8));
  hr__onnx_set(node, 1, scale);
  hr__onnx_set(node, 2, zero);
}

/* ---- products ---- */

/* x less its zero point, in i32. axis: of a zero point that is a vector. */
static hr_value centre(hr__onnx_node *node, hr_value x, hr_value zero, int axis) {
  int rank = hr__onnx_rank(node, x);
  hr_value wide = hr__onnx_cast(node, x, HR_DTYPE_I32);
  if (zero == 0 || hr__onnx_failed(node)) {
    return wide;
  }
  hr_value own = hr__onnx_cast(node, zero, HR_DTYPE_I32);
  bool is_vector = hr__onnx_rank(node, zero) == 1;
  if (is_vector && hr__onnx_dim(node, zero, 0) == 1) {
    own = hr__onnx_reshape(node, own, 0, NULL);
  } else if (is_vector && rank > 1) {
    own = hr__onnx_along(node, own, axis, rank);
  }
  return CALL(node, SUBTRACT, wide, own);
}

void hr__onnx_map_matmul_integer(hr__onnx_node *node) {
  hr_value x = hr__onnx_input(node, 0), y = hr__onnx_input(node, 1);
  hr_value left = centre(node, x, hr__onnx_input(node, 2), hr__onnx_rank(node, x) - 2);
  hr_value right = centre(node, y, hr__onnx_input(node, 3), hr__onnx_rank(node, y) - 1);
  hr__onnx_set(node, 0, CALL(node, MATMUL, left, right));
}

/* A vector of scales along an axis. */
static hr_value scale_along(hr__onnx_node *node, hr_value scale, int axis, int rank) {
  hr_value wide = hr__onnx_cast(node, scale, HR_DTYPE_F32);
  if (hr__onnx_rank(node, scale) != 1) {
    return wide;
  }
  return hr__onnx_dim(node, scale, 0) == 1 ? hr__onnx_reshape(node, wide, 0, NULL)
                                           : hr__onnx_along(node, wide, axis, rank);
}

/* saturate(round(sums * factor) + zero) */
static hr_value requantize(hr__onnx_node *node, hr_value sums, hr_value factor, hr_value zero) {
  hr_value wide = CALL(node, MULTIPLY, hr__onnx_cast(node, sums, HR_DTYPE_F32), factor);
  hr_dtype dtype = hr__onnx_dtype_of(node, zero);
  hr_value whole = CALL(node, ADD, CALL(node, ROUND, wide), hr__onnx_cast(node, zero, HR_DTYPE_F32));
  return saturate(node, whole, 0, dtype);
}

void hr__onnx_map_qlinear_matmul(hr__onnx_node *node) {
  hr_value x = hr__onnx_input(node, 0), y = hr__onnx_input(node, 3), zero = hr__onnx_input(node, 7);
  int left_rank = hr__onnx_rank(node, x), right_rank = hr__onnx_rank(node, y);
  if (!hr_dtype_is_integer(hr__onnx_dtype_of(node, x)) || !hr_dtype_is_integer(hr__onnx_dtype_of(node, zero))) {
    HR__ONNX_REFUSE(node, "products of float8");
    return;
  }
  hr_value left = centre(node, x, hr__onnx_input(node, 2), left_rank - 2);
  hr_value right = centre(node, y, hr__onnx_input(node, 5), right_rank - 1), sums = CALL(node, MATMUL, left, right);
  int rank = hr__onnx_rank(node, sums);
  hr_value scales[2] = {scale_along(node, hr__onnx_input(node, 1), rank - 2, rank),
                        scale_along(node, hr__onnx_input(node, 4), rank - 1, rank)};
  hr_value out = hr__onnx_cast(node, hr__onnx_input(node, 6), HR_DTYPE_F32);
  hr_value factor = CALL(node, DIVIDE, CALL(node, MULTIPLY, scales[0], scales[1]), out);
  hr__onnx_set(node, 0, requantize(node, sums, factor, zero));
}

void hr__onnx_map_conv_integer(hr__onnx_node *node) {
  hr_value x = centre(node, hr__onnx_input(node, 0), hr__onnx_input(node, 2), 1);
  hr_value weight = centre(node, hr__onnx_input(node, 1), hr__onnx_input(node, 3), 0);
  hr__onnx_set(node, 0, hr__onnx_convolve(node, x, weight));
}

void hr__onnx_map_qlinear_conv(hr__onnx_node *node) {
  hr_value x = centre(node, hr__onnx_input(node, 0), hr__onnx_input(node, 2), 1), bias = hr__onnx_input(node, 8);
  hr_value weight = centre(node, hr__onnx_input(node, 3), hr__onnx_input(node, 5), 0);
  hr_value sums = hr__onnx_convolve(node, x, weight);
  int rank = hr__onnx_rank(node, sums);
  sums = bias != 0 ? CALL(node, ADD, sums, hr__onnx_along(node, bias, 1, rank)) : sums;
  hr_value own = scale_along(node, hr__onnx_input(node, 1), 1, rank);
  hr_value other = scale_along(node, hr__onnx_input(node, 4), 1, rank);
  hr_value out = scale_along(node, hr__onnx_input(node, 6), 1, rank);
  hr_value factor = CALL(node, DIVIDE, CALL(node, MULTIPLY, own, other), out);
  hr__onnx_set(node, 0, requantize(node, sums, factor, hr__onnx_input(node, 7)));
}
