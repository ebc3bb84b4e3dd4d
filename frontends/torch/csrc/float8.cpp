// float8.cpp: products of matrices of 8-bit floating point numbers with separate scales.
//
// The formats are storage formats: factors are widened exactly and multiplied in float32. Scales, bias and one rounding
// to the result's type follow for each element.
#include <ATen/native/Resize.h>

#include "kernels.h"
#include "record.h"

namespace headrace {
namespace {

// torch's numbers for kinds of scaling.
enum Recipe : int64_t { kTensorWise = 0, kRowWise = 1 };

void check_factors(const Tensor &a, const Tensor &b) {
  TORCH_CHECK(a.dim() == 2, "mat1 must be a matrix");
  TORCH_CHECK(b.dim() == 2, "mat2 must be a matrix");
  TORCH_CHECK(a.size(1) == b.size(0), "mat_a and mat_b shapes cannot be multiplied (", a.size(0), "x", a.size(1),
              " and ", b.size(0), "x", b.size(1), ")");
}

bool has_float8(const Tensor &a, const Tensor &b) {
  return c10::isFloat8Type(a.scalar_type()) && c10::isFloat8Type(b.scalar_type());
}

bool is_one_scale(const Tensor &scale) {
  return scale.scalar_type() == ScalarType::Float && scale.numel() == 1;
}

// A number for each row, as a column, or for each column, as a row.
bool is_scale_of(const Tensor &scale, int64_t rows, int64_t columns) {
  return scale.scalar_type() == ScalarType::Float && scale.is_contiguous() && scale.sizes().equals({rows, columns});
}

// The product, after the scales have been checked.
Tensor scaled_product(const Result &result, const Tensor &a, const Tensor &b, const Tensor &scale_a,
                      const Tensor &scale_b, const OptionalTensor &bias, std::optional<ScalarType> type) {
  int64_t columns = b.size(1);
  bool has_bias = bias.has_value() && bias->defined();
  TORCH_CHECK(!has_bias || bias->numel() == columns, "Bias must be size ", columns, " but got ",
              has_bias ? bias->numel() : 0);
  ScalarType own = result.is_fresh() ? a.scalar_type() : result.tensor().scalar_type();
  TORCH_CHECK_VALUE(result.is_fresh() || type.value_or(own) == own, "out_dtype must match output matrix type");
  Tensor product = matmul(Result::fresh(), 2, to_type(a, ScalarType::Float), to_type(b, ScalarType::Float));
  for (const Tensor *scale : {&scale_a, &scale_b})
    product =
        pointwise(Result::fresh(), HR_OP_MUL, Rule::Same, product, scale->numel() == 1 ? scale->reshape({}) : *scale);
  if (has_bias)
    pointwise(Result::inplace(product), HR_OP_ADD, Rule::Same, product, *bias);
  if (result.is_fresh())
    return to_type(product, type.value_or(own));
  at::native::resize_output(result.tensor(), product.sizes());
  copy_on_device(product, result.tensor());
  return result.tensor();
}

} // namespace

Tensor scaled_mm(Result result, const Tensor &a, const Tensor &b, const Tensor &scale_a, const Tensor &scale_b,
                 const OptionalTensor &bias, std::optional<ScalarType> type) {
  check_factors(a, b);
  bool is_tensor_wise = is_one_scale(scale_a) && is_one_scale(scale_b);
  bool is_row_wise = is_scale_of(scale_a, a.size(0), 1) && is_scale_of(scale_b, 1, b.size(1));
  TORCH_CHECK_VALUE(has_float8(a, b) && (is_tensor_wise || is_row_wise), "Invalid scaling configuration.");
  return scaled_product(result, a, b, scale_a, scale_b, bias, type);
}

Tensor scaled_mm(Result result, const Tensor &a, const Tensor &b, const at::ITensorListRef &scales_a,
                 IntArrayRef recipe_a, IntArrayRef swizzle_a, const at::ITensorListRef &scales_b, IntArrayRef recipe_b,
                 IntArrayRef swizzle_b, const OptionalTensor &bias, std::optional<ScalarType> type) {
  check_factors(a, b);
  bool has_one_each = scales_a.size() == 1 && scales_b.size() == 1 && recipe_a.size() == 1 && recipe_a.equals(recipe_b);
  bool is_row_wise = has_one_each && recipe_a[0] == kRowWise;
  TORCH_CHECK_VALUE(has_float8(a, b) && has_one_each && (is_row_wise || recipe_a[0] == kTensorWise),
                    "Invalid scaling configuration.");
  for (IntArrayRef swizzle : {swizzle_a, swizzle_b})
    TORCH_CHECK_VALUE(swizzle.empty() || swizzle[0] == 0, "headrace: scales in another order are not supported");
  const Tensor &scale_a = scales_a.front(), &scale_b = scales_b.front();
  TORCH_CHECK_VALUE(is_row_wise ? is_scale_of(scale_a, a.size(0), 1) : is_one_scale(scale_a), "scale_a must be of ",
                    is_row_wise ? a.size(0) : 1, " Float elements");
  TORCH_CHECK_VALUE(is_row_wise ? is_scale_of(scale_b, 1, b.size(1)) : is_one_scale(scale_b), "scale_b must be of ",
                    is_row_wise ? b.size(1) : 1, " Float elements");
  return scaled_product(result, a, b, scale_a, scale_b, bias, type);
}

} // namespace headrace
