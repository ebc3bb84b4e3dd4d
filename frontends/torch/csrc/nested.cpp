// nested.cpp: nested tensors of the strided layout: the functions that torch implements for each backend. For the
// others generate_sparse.py registers torch's own.
//
// A nested tensor consists of one tensor of the device, and of sizes and strides on the host. torch's functions for the
// host that are registered here call operators on its parts, one after the other.
#include <ATen/native/nested/NestedTensorUtils.h>
#include <ATen/ops/_nested_from_padded_native.h>
#include <ATen/ops/_nested_tensor_from_mask_native.h>
#include <ATen/ops/_nested_tensor_from_tensor_list.h>
#include <ATen/ops/_nested_view_from_buffer_native.h>
#include <ATen/ops/bmm_native.h>
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/native_layer_norm_backward.h>
#include <ATen/ops/to_padded_tensor_native.h>

#include "kernels.h"
#include "registration.h"

namespace headrace {
namespace {

void refuse_nested(const c10::OperatorHandle &op, c10::DispatchKeySet, torch::jit::Stack *stack) {
  if (!is_started()) { // the functions below are not registered yet
    start();
    return op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::NestedTensorPrivateUse1), stack);
  }
  TORCH_CHECK_NOT_IMPLEMENTED(false, "headrace: ", op.schema().operator_name().name,
                              " is not implemented for nested tensors of the strided layout. Use layout=torch.jagged, "
                              "torch.nested.to_padded_tensor, or the parts: x.unbind().");
}

// ---- layer norm: all parts as rows of one tensor

Tensor rows_of(const Tensor &x, IntArrayRef shape) {
  const auto *nested = at::native::get_nested_tensor_impl(x);
  int64_t first = x.dim() - static_cast<int64_t>(shape.size());
  TORCH_CHECK(first >= 1, "layer_norm: ", shape.size(), " dims of a nested tensor with ", x.dim());
  Dims sizes{-1};
  for (size_t i = 0; i < shape.size(); ++i) {
    std::optional<int64_t> size = nested->opt_size(first + static_cast<int64_t>(i));
    TORCH_CHECK(size.has_value() && *size == shape[i], "layer_norm: dim ", first + static_cast<int64_t>(i),
                " of each part must have size ", shape[i]);
    sizes.push_back(shape[i]);
  }
  return at::native::get_buffer(x.contiguous()).reshape(sizes);
}

Tensor parts_of(const Tensor &rows, const Tensor &x) {
  return at::native::wrap_buffer(rows.reshape({-1}), at::native::get_nested_tensor_impl(x)->get_nested_sizes());
}

Tensor3 layer_norm_nested(const Tensor &x, IntArrayRef shape, const OptionalTensor &weight, const OptionalTensor &bias,
                          double eps) {
  auto [y, mean, rstd] = at::native_layer_norm(rows_of(x, shape), shape, weight, bias, eps);
  return {parts_of(y, x), mean, rstd};
}

Tensor3 layer_norm_nested_backward(const Tensor &grad, const Tensor &x, IntArrayRef shape, const Tensor &mean,
                                   const Tensor &rstd, const OptionalTensor &weight, const OptionalTensor &bias,
                                   std::array<bool, 3> wanted) {
  auto [dx, by_weight, by_bias] =
      at::native_layer_norm_backward(rows_of(grad, shape), rows_of(x, shape), shape, mean, rstd, weight, bias, wanted);
  return {wanted[0] ? parts_of(dx, x) : dx, by_weight, by_bias};
}

// ---- sums: of each part

Tensor sum_nested(const Tensor &x, at::OptionalIntArrayRef dims, bool keepdim, std::optional<ScalarType> dtype) {
  TORCH_CHECK(dims.has_value() && !dims->empty() && keepdim,
              "sum of a nested tensor: expected dims and keepdim=True; torch.sum(x.values()) has the sum of all");
  Dims of_part;
  for (int64_t dim : *dims) {
    of_part.push_back(c10::maybe_wrap_dim(dim, x.dim()) - 1);
    TORCH_CHECK(of_part.back() >= 0, "sum of a nested tensor: dim 0 holds the parts");
  }
  std::vector<Tensor> sums;
  for (const Tensor &part : x.unbind())
    sums.push_back(part.sum(of_part, keepdim, dtype));
  return at::_nested_tensor_from_tensor_list(sums);
}

Tensor sum_nested_backward(const Tensor &grad, const Tensor &x, at::OptionalIntArrayRef, bool) {
  std::vector<Tensor> grads, parts = x.unbind();
  for (const Tensor &part : grad.unbind())
    grads.push_back(part.expand_as(parts[grads.size()]));
  return at::_nested_tensor_from_tensor_list(grads);
}

} // namespace

TORCH_LIBRARY_IMPL(_, NestedTensorPrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&refuse_nested>());
}

HEADRACE_KERNELS(aten, NestedTensorPrivateUse1, m) {
  m.impl("bmm", &at::native::bmm_nested);
  m.impl("to_padded_tensor", &at::native::NestedTensor_to_padded_tensor_generic);
  m.impl("native_layer_norm", &layer_norm_nested);
  m.impl("native_layer_norm_backward", &layer_norm_nested_backward);
  m.impl("sum.dim_IntList", &sum_nested);
  m.impl("_nested_sum_backward", &sum_nested_backward);
}

HEADRACE_KERNELS(aten, PrivateUse1, m) {
  m.impl("_nested_from_padded", &at::native::nested_from_padded_generic);
  m.impl("_nested_tensor_from_mask", &at::native::NestedTensor_nested_tensor_from_mask);
  m.impl("_nested_view_from_buffer", &at::native::_nested_view_from_buffer);
}

} // namespace headrace
