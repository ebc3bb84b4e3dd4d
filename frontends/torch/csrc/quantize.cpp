// quantize.cpp: products of 8-bit integers, and fake quantisation with its mask for the backward pass.
//
// The order of operations and their types are those of torch's CPU kernels, so that the numbers are equal. Zero points
// in tensors are not read, so they are not compared with the bounds.
#include <ATen/TensorOperators.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/where.h>

#include "kernels.h"

namespace headrace {
namespace {

// Sums of this many products of 8-bit integers are at most 2^24: float32 has them exactly, in any order.
constexpr int64_t kExactSum = 1024;

Tensor exact_product(const Tensor &a, const Tensor &b) {
  Tensor wide_a = to_type(a, ScalarType::Float), wide_b = to_type(b, ScalarType::Float), sum;
  for (int64_t begin = 0; begin == 0 || begin < a.size(1); begin += kExactSum) {
    int64_t count = std::min(kExactSum, a.size(1) - begin);
    Tensor part = to_type(matmul(Result::fresh(), 2, wide_a.narrow(1, begin, count), wide_b.narrow(0, begin, count)),
                          ScalarType::Int);
    sum = sum.defined() ? sum + part : part;
  }
  return sum;
}

// Scale and zero point broadcast against x; `enabled` may be absent. With one scale, torch multiplies the difference in
// float32. With one for each channel it converts to int64, so that numbers beyond it become the smallest, and
// multiplies in float64.
Tensor2 quantize(const Tensor &self, const Tensor &scale, const Tensor &zero, bool by_channel, const Tensor &enabled,
                 int64_t low, int64_t high) {
  TORCH_CHECK(low <= high, "`quant_min` should be less than or equal to `quant_max`.");
  bool is_double = self.scalar_type() == ScalarType::Double, is_whole = c10::isIntegralType(zero.scalar_type(), false);
  ScalarType type = is_double ? ScalarType::Double : ScalarType::Float;
  Tensor scaled = to_type(self, type) * to_type(scale.reciprocal(), type), offset = to_type(zero, type);
  Tensor q = is_whole ? scaled.round() + offset : (scaled + offset).round();
  Tensor mask = q.ge(low).logical_and(q.le(high));
  Tensor is_low = by_channel ? q.lt(0x1p63).logical_not() : q.isnan();
  q = at::where(is_low, Scalar(static_cast<double>(low)), q.clamp(low, high));
  bool is_wide = by_channel && (is_double || !is_whole); // else float32 has the same numbers
  ScalarType before = is_wide ? ScalarType::Double : type, last = is_wide ? ScalarType::Double : ScalarType::Float;
  Tensor difference = to_type(to_type(q, before) - to_type(zero, before), last);
  Tensor out = to_type(difference * to_type(scale, last), self.scalar_type());
  if (!enabled.defined())
    return {out, mask};
  Tensor on = enabled.reshape({}).ne(0);
  return {at::where(on, out, self), mask.logical_or(on.logical_not())};
}

} // namespace

Tensor int_mm(Result result, const Tensor &self, const Tensor &mat2) {
  TORCH_CHECK(self.dim() == 2, "Expected self to be of dimension 2 but got ", self.dim());
  TORCH_CHECK(mat2.dim() == 2, "Expected mat2 to be of dimension 2 but got ", mat2.dim());
  TORCH_CHECK(self.size(1) == mat2.size(0), "self.size(1) needs to match mat2.size(0) but got ", self.size(1), " and ",
              mat2.size(0));
  for (const Tensor *factor : {&self, &mat2})
    TORCH_CHECK(factor->scalar_type() == ScalarType::Char, "Expected ", factor == &self ? "self" : "mat2",
                " dtype to be of type int8 but got ", factor->scalar_type());
  if (result.is_fresh())
    return exact_product(self, mat2);
  const Tensor &out = result.tensor();
  TORCH_CHECK(out.scalar_type() == ScalarType::Int, "Expected result dtype to be of type kInt but got ",
              out.scalar_type());
  TORCH_CHECK(out.dim() == 2 && out.size(0) == self.size(0) && out.size(1) == mat2.size(1),
              "Expected result to be of size ", self.size(0), "x", mat2.size(1), " but got ", out.sizes());
  copy_on_device(exact_product(self, mat2), out);
  return out;
}

Tensor2 fake_quantize(const Tensor &self, double scale, int64_t zero_point, int64_t low, int64_t high) {
  TORCH_CHECK(zero_point >= low && zero_point <= high, "`zero_point` must be between `quant_min` and `quant_max`.");
  return quantize(self, fill_with(new_tensor({}, ScalarType::Float), scale),
                  fill_with(new_tensor({}, ScalarType::Long), zero_point), false, {}, low, high);
}

Tensor2 fake_quantize(const Tensor &self, const Tensor &scale, const Tensor &zero_point, const Tensor &enabled,
                      int64_t low, int64_t high) {
  Tensor whole = to_type(zero_point.reshape({-1})[0], ScalarType::Long); // torch reads the first one
  return quantize(self, to_type(scale.reshape({-1})[0], ScalarType::Float), whole, false, enabled, low, high);
}

Tensor2 fake_quantize_channels(const Tensor &self, const Tensor &scale, const Tensor &zero_point, int64_t axis,
                               int64_t low, int64_t high) {
  ScalarType kind = zero_point.scalar_type();
  TORCH_CHECK(scale.scalar_type() == ScalarType::Float, "Scale must be Float, found ", scale.scalar_type());
  TORCH_CHECK(kind == ScalarType::Int || kind == ScalarType::Float || kind == ScalarType::Half,
              "Zero-point must be Int32, Float or Half, found ", kind);
  TORCH_CHECK(scale.dim() == 1, "scale should be a 1-D tensor");
  TORCH_CHECK(zero_point.dim() == 1, "zero point should be a 1-D tensor");
  TORCH_CHECK(scale.numel() == zero_point.numel(), "scale and zero-point need to have the same dimensions");
  TORCH_CHECK(axis >= 0 && axis < self.dim(), "`axis` must be between 0 and number of dimensions of input");
  TORCH_CHECK(scale.numel() == self.size(axis),
              "dimensions of scale and zero-point are not consistent with input tensor");
  Dims sizes(self.dim(), 1);
  sizes[axis] = scale.numel();
  return quantize(self, scale.reshape(sizes), zero_point.reshape(sizes), true, {}, low, high);
}

} // namespace headrace
