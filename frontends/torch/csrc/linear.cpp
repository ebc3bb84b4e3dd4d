// linear.cpp: aten::linear without gradients, in one step.
//
// torch makes it of a transposed view and a product, each with a dispatch and a tensor of its own: most of what a small
// layer costs. What needs gradients, what a mode, a transform or a subclass wants to see, and whatever is unusual still
// goes through torch's own linear.
#include <ATen/ops/linear_native.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/library.h>

#include "kernels.h"
#include "record.h"

namespace headrace {
namespace {

bool is_differentiable(const Tensor &input, const Tensor &weight, const OptionalTensor &bias) {
  return (at::GradMode::is_enabled() && torch::autograd::compute_requires_grad(input, weight, bias)) ||
         torch::autograd::isFwGradDefined(input) || torch::autograd::isFwGradDefined(weight) ||
         torch::autograd::isFwGradDefined(bias);
}

bool is_plain(const Tensor &input, const Tensor &weight, const OptionalTensor &bias) {
  bool has_bias = bias.has_value() && bias->defined();
  ScalarType type = input.scalar_type();
  return is_on_device(input) && is_on_device(weight) && weight.dim() == 2 && weight.scalar_type() == type &&
         type != ScalarType::Bool && !c10::isFloat8Type(type) && input.dim() >= 2 &&
         (input.dim() == 2 || input.is_contiguous()) && input.size(-1) == weight.size(1) && input.numel() > 0 &&
         weight.numel() > 0 &&
         (!has_bias ||
          (is_on_device(*bias) && bias->dim() == 1 && bias->size(0) == weight.size(0) && bias->scalar_type() == type));
}

// [.., K] times [N, K] transposed, plus [N].
Tensor product(const Tensor &input, const Tensor &weight, const OptionalTensor &bias) {
  int64_t inner = weight.size(1), columns = weight.size(0), rows = input.numel() / inner;
  bool is_matrix = input.dim() == 2;
  OnDevice on(input);
  Dims sizes(input.sizes().begin(), input.sizes().end());
  sizes.back() = columns;
  Tensor out = new_tensor(sizes, input.scalar_type());
  Record record(HR_OP_MATMUL);
  record.in(input, {rows, inner}, {is_matrix ? input.stride(0) : inner, is_matrix ? input.stride(1) : 1});
  record.in(weight, {inner, columns}, {weight.stride(1), weight.stride(0)});
  if (bias.has_value() && bias->defined())
    record.in(*bias, {rows, columns}, {0, bias->stride(0)});
  record.out(out, {rows, columns}, {columns, 1}).run();
  return out;
}

Tensor linear(c10::DispatchKeySet keys, const Tensor &input, const Tensor &weight, const OptionalTensor &bias) {
  c10::DispatchKey next = (keys & c10::after_ADInplaceOrView_keyset).highestPriorityTypeId();
  if (next != c10::DispatchKey::PrivateUse1 || !is_plain(input, weight, bias) || is_differentiable(input, weight, bias))
    return at::native::linear(input, weight, bias);
  return product(input, weight, bias);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("linear", TORCH_FN(linear));
}
TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, m) {
  m.impl("linear", TORCH_FN(linear));
}

} // namespace
} // namespace headrace
