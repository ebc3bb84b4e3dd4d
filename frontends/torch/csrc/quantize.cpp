// quantize.cpp: products of 8-bit integers, and fake quantisation with its mask for the backward pass.
//
// The order of operations and their types are those of torch's CPU kernels, so that the numbers are equal. Zero points
// in tensors are not read, so they are not compared with the bounds.
//
// Tensors of torch's quantised dtypes are refused, with the alternatives.
#include <ATen/TensorOperators.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_fused_moving_avg_obs_fq_helper.h>
#include <ATen/ops/choose_qparams_optimized.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>

#include "kernels.h"
#include "registration.h"

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

// Torch's forward pass rounds a learned zero point to even, as does its backward pass of channels. With one zero point,
// torch's backward pass rounds halves up, and then towards zero.
enum class Halves { ToEven, Up };

Tensor rounded(const Tensor &zero, Halves halves, int64_t low, int64_t high) {
  return halves == Halves::Up ? (zero + 0.5).clamp(low, high).trunc() : zero.round().clamp(low, high);
}

// The gradients of x, and those of each element for scale and zero point, which broadcast against it.
Tensor3 learned_gradients(const Tensor &grad, const Tensor &self, const Tensor &scale, const Tensor &zero, int64_t low,
                          int64_t high, double factor) {
  Tensor inverse = scale.reciprocal(), q = (self * inverse).round() + zero;
  Tensor is_low = q.ge(low).logical_not(), is_high = q.gt(high), is_inside = is_low.logical_or(is_high).logical_not();
  Tensor rounding = grad * ((q - zero) * scale - self) * inverse;
  Tensor beyond = grad * at::where(is_low, low - zero, high - zero);
  return {grad * is_inside, at::where(is_inside, rounding, beyond) * factor,
          at::where(is_inside, Scalar(0.0), grad * -1 * scale * factor)};
}

void check_learned_gradients(const Tensor &grad, const Tensor &self, const Tensor &scale, const Tensor &zero,
                             int64_t low, int64_t high) {
  for (const Tensor *x : {&grad, &self, &scale, &zero})
    TORCH_CHECK(x->scalar_type() == ScalarType::Float, "gradients of a learned fake quantisation are float32, not ",
                x->scalar_type());
  TORCH_CHECK(grad.sizes() == self.sizes(), "`X` and `dY` are not the same size");
  TORCH_CHECK(low <= 0 && high >= 0, "Expecting `quant_min` <= 0 and `quant_max` >= 0");
}

// One number for each index along the axis, as a factor of x.
Tensor along(const Tensor &values, const Tensor &x, int64_t axis) {
  TORCH_CHECK(axis >= 0 && axis < x.dim(), "`axis` must be between 0 and number of dimensions of input");
  TORCH_CHECK(values.numel() == x.size(axis),
              "dimensions of scale and zero-point are not consistent with input tensor");
  Dims sizes(x.dim(), 1);
  sizes[axis] = values.numel();
  return values.reshape(sizes);
}

// The smallest and the largest numbers, on the host: of all, or of each row along the axis.
Tensor ends_of(const Tensor &self, bool by_rows, int64_t axis) {
  if (!by_rows)
    return at::stack({self.min(), self.max()}).cpu();
  Tensor rows = self.movedim(axis, 0).reshape({self.size(axis), -1});
  return at::stack({rows.amin(1), rows.amax(1)}, 1).cpu();
}

void refuse_quantized(const c10::OperatorHandle &op, c10::DispatchKeySet, torch::jit::Stack *) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      false, "headrace: ", op.schema().operator_name().name,
      ": the device has no tensors of quantised dtypes (torch.quint8, qint8, qint32). Use fake quantisation "
      "(torch.fake_quantize_per_tensor_affine), integers with scales of their own (torch.ops.quantized_decomposed, "
      "torchao), or quantise on the host: x.cpu().");
}

std::tuple<Tensor, Tensor> best_scale(const Tensor &input, int64_t count, int64_t bins, double ratio, int64_t bits) {
  auto [high, low] = at::choose_qparams_optimized(input.cpu(), count, bins, ratio, bits);
  return {high.to(input.device()), low.to(input.device())};
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
  return quantize(self, along(scale, self, axis), along(zero_point, self, axis), true, {}, low, high);
}

Tensor learned_quantize(const Tensor &self, const Tensor &scale, const Tensor &zero_point, int64_t low, int64_t high) {
  return std::get<0>(fake_quantize(self, scale, rounded(zero_point, Halves::ToEven, low, high), {}, low, high));
}

Tensor3 learned_quantize_backward(const Tensor &grad, const Tensor &self, const Tensor &scale, const Tensor &zero_point,
                                  int64_t low, int64_t high, double factor) {
  check_learned_gradients(grad, self, scale, zero_point, low, high);
  Tensor zero = rounded(zero_point.reshape({-1})[0], Halves::Up, low, high);
  auto [dx, by_scale, by_zero] = learned_gradients(grad, self, scale.reshape({-1})[0], zero, low, high, factor);
  return {dx, by_scale.sum().unsqueeze(0), by_zero.sum().unsqueeze(0)};
}

Tensor learned_quantize_channels(const Tensor &self, const Tensor &scale, const Tensor &zero_point, int64_t axis,
                                 int64_t low, int64_t high) {
  Tensor zero = rounded(zero_point, Halves::ToEven, low, high);
  if (c10::isIntegralType(zero.scalar_type(), false))
    zero = to_type(zero, ScalarType::Int);
  return std::get<0>(fake_quantize_channels(self, scale, zero, axis, low, high));
}

Tensor3 learned_quantize_channels_backward(const Tensor &grad, const Tensor &self, const Tensor &scale,
                                           const Tensor &zero_point, int64_t axis, int64_t low, int64_t high,
                                           double factor) {
  check_learned_gradients(grad, self, scale, zero_point, low, high);
  Tensor zero = along(rounded(zero_point, Halves::ToEven, low, high), self, axis);
  auto [dx, by_scale, by_zero] = learned_gradients(grad, self, along(scale, self, axis), zero, low, high, factor);
  Dims others;
  for (int64_t d = 0; d < self.dim(); ++d)
    if (d != axis)
      others.push_back(d);
  auto sums = [&](const Tensor &x) { return others.empty() ? x : x.sum(others); };
  return {dx, sums(by_scale), sums(by_zero)};
}

// The observer of torch's CPU device computes statistics, scale and zero point, from the smallest and the largest
// number. It needs no others of x.
Tensor2 observe_and_fake_quantize(const Tensor &self, const Tensor &observer_on, const Tensor &fake_quant_on,
                                  TensorList state, double averaging, int64_t low, int64_t high, int64_t axis,
                                  bool by_rows, bool is_symmetric) {
  TORCH_CHECK(!by_rows || (axis >= 0 && axis < self.dim()), "headrace: ch_axis ", axis, " is none of ", self.dim(),
              " dimensions");
  Tensor is_on = fake_quant_on.cpu(), host[4];
  for (int i = 0; i < 4; ++i)
    host[i] = state[i].cpu();
  at::_fused_moving_avg_obs_fq_helper(ends_of(self, by_rows, axis), observer_on.cpu(), is_on, host[0], host[1], host[2],
                                      host[3], averaging, low, high, 0, by_rows, is_symmetric);
  for (int i = 0; i < 4; ++i)
    state[i].resize_(host[i].sizes()).copy_(host[i]);
  if (is_on.item<int64_t>() == 0)
    return {self.clone(), at::ones_like(self, self.options().dtype(ScalarType::Bool))};
  return by_rows ? fake_quantize_channels(self, state[2], state[3], axis, low, high)
                 : fake_quantize(self, state[2], state[3], {}, low, high);
}

// Before the device is first used, too: this is how a quantised tensor of the host comes here.
TORCH_LIBRARY_IMPL(_, QuantizedPrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&refuse_quantized>());
}

HEADRACE_KERNELS(aten, PrivateUse1, m) {
  for (const char *name : {"quantize_per_tensor", "quantize_per_tensor.tensor_qparams", "quantize_per_tensor.tensors",
                           "quantize_per_tensor_dynamic", "quantize_per_channel"})
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&refuse_quantized>());
  m.impl("choose_qparams_optimized", &best_scale);
}

} // namespace headrace
