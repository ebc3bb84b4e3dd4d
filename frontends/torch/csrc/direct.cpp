// direct.cpp: kernels for AutogradPrivateUse1 that leave out torch's own where that would only pass the call on.
//
// If no gradient is recorded, torch's autograd kernel looks for forward gradients, and copies each tensor for that. A
// copy of a tensor that Python holds counts the Python object, too, which takes the interpreter's lock: a fifth of a
// small operation's instructions. All other calls go to torch's kernel, which is registered for all keys of autograd.
// Views are in direct_views.cpp. silu_backward is not in the list, because torch has a composite for it among the other
// keys of autograd.
#include <ATen/ExpandUtils.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/ops/_foreach_add_ops.h>
#include <ATen/ops/_foreach_addcdiv_ops.h>
#include <ATen/ops/_foreach_addcmul_ops.h>
#include <ATen/ops/_foreach_div_ops.h>
#include <ATen/ops/_foreach_lerp_ops.h>
#include <ATen/ops/_foreach_mul_ops.h>
#include <ATen/ops/_foreach_sqrt_ops.h>
#include <ATen/ops/_foreach_sub_ops.h>
#include <ATen/ops/_local_scalar_dense_ops.h>
#include <ATen/ops/_log_softmax_backward_data_ops.h>
#include <ATen/ops/_log_softmax_ops.h>
#include <ATen/ops/_scaled_dot_product_fused_attention_overrideable_ops.h>
#include <ATen/ops/_softmax_backward_data_ops.h>
#include <ATen/ops/_softmax_ops.h>
#include <ATen/ops/_to_copy_ops.h>
#include <ATen/ops/add_ops.h>
#include <ATen/ops/addcdiv_ops.h>
#include <ATen/ops/addcmul_ops.h>
#include <ATen/ops/addmm_ops.h>
#include <ATen/ops/all_ops.h>
#include <ATen/ops/any_ops.h>
#include <ATen/ops/argmax_ops.h>
#include <ATen/ops/bitwise_and_ops.h>
#include <ATen/ops/bitwise_not_ops.h>
#include <ATen/ops/bitwise_or_ops.h>
#include <ATen/ops/bmm_ops.h>
#include <ATen/ops/cat_ops.h>
#include <ATen/ops/clone_ops.h>
#include <ATen/ops/cos_ops.h>
#include <ATen/ops/cumsum_ops.h>
#include <ATen/ops/div_ops.h>
#include <ATen/ops/embedding_ops.h>
#include <ATen/ops/eq_ops.h>
#include <ATen/ops/exp_ops.h>
#include <ATen/ops/gather_ops.h>
#include <ATen/ops/ge_ops.h>
#include <ATen/ops/gelu_backward_ops.h>
#include <ATen/ops/gelu_ops.h>
#include <ATen/ops/gt_ops.h>
#include <ATen/ops/index_copy_ops.h>
#include <ATen/ops/index_select_ops.h>
#include <ATen/ops/isin_ops.h>
#include <ATen/ops/le_ops.h>
#include <ATen/ops/lerp_ops.h>
#include <ATen/ops/log_ops.h>
#include <ATen/ops/logical_and_ops.h>
#include <ATen/ops/logical_not_ops.h>
#include <ATen/ops/logical_or_ops.h>
#include <ATen/ops/lt_ops.h>
#include <ATen/ops/masked_fill_ops.h>
#include <ATen/ops/max_ops.h>
#include <ATen/ops/mean_ops.h>
#include <ATen/ops/min_ops.h>
#include <ATen/ops/mm_ops.h>
#include <ATen/ops/mse_loss_backward_ops.h>
#include <ATen/ops/mul_ops.h>
#include <ATen/ops/native_layer_norm_backward_ops.h>
#include <ATen/ops/native_layer_norm_ops.h>
#include <ATen/ops/ne_ops.h>
#include <ATen/ops/neg_ops.h>
#include <ATen/ops/nll_loss_backward_ops.h>
#include <ATen/ops/pow_ops.h>
#include <ATen/ops/relu_ops.h>
#include <ATen/ops/remainder_ops.h>
#include <ATen/ops/rsqrt_ops.h>
#include <ATen/ops/sigmoid_backward_ops.h>
#include <ATen/ops/sigmoid_ops.h>
#include <ATen/ops/silu_ops.h>
#include <ATen/ops/sin_ops.h>
#include <ATen/ops/sqrt_ops.h>
#include <ATen/ops/sub_ops.h>
#include <ATen/ops/sum_ops.h>
#include <ATen/ops/take_along_dim_native.h>
#include <ATen/ops/tanh_backward_ops.h>
#include <ATen/ops/tanh_ops.h>
#include <ATen/ops/threshold_backward_ops.h>
#include <ATen/ops/topk_ops.h>
#include <ATen/ops/where_ops.h>
#include <torch/csrc/autograd/variable.h>

#include <string>
#include <type_traits>

#include "composite.h"
#include "kernels.h"
#include "registration.h"

namespace headrace {
namespace {

using headrace::is_watched;
bool is_watched(const OptionalTensor &tensor) {
  return tensor.has_value() && is_watched(*tensor);
}
bool is_watched(const at::ITensorListRef &tensors) {
  bool is = false;
  for (const Tensor &tensor : tensors)
    is |= is_watched(tensor);
  return is;
}
bool is_watched(const TensorList &tensors) {
  return is_watched(at::ITensorListRef(tensors));
}
template <class T> bool is_watched(const T &) { // no tensor
  return false;
}

void bump_version(const Tensor &tensor) {
  torch::autograd::impl::bump_version(tensor);
}
void bump_version(TensorList) {} // foreach.cpp

template <class Op, class Schema = typename Op::schema> struct Direct;

// An operator that returns new tensors, or writes to its first argument: then it returns that, or nothing.
template <class Op, class Result, class First, class... Rest> struct Direct<Op, Result(First, Rest...)> {
  static Result call(c10::DispatchKeySet given, First first, Rest... rest) {
    // torch selects a backend for conversions, which name a device. It would be this one again.
    c10::DispatchKeySet keys = given.remove(c10::DispatchKey::BackendSelect);
    if (!is_plain_call(keys) || is_watched(first) || (is_watched(rest) || ...))
      return Op::redispatch(of_autograd(given), first, rest...);
    at::AutoDispatchBelowADInplaceOrView below;
    c10::DispatchKeySet here = keys & c10::after_ADInplaceOrView_keyset;
    if constexpr (std::is_reference_v<Result> || std::is_void_v<Result>) {
      Op::redispatch(here, first, rest...);
      bump_version(first);
      return static_cast<Result>(first);
    } else {
      return Op::redispatch(here, first, rest...);
    }
  }
};

template <class... Op> void implement(torch::Library &m) {
  auto name = [](const char *base, const char *overload) {
    return std::string(base) + (*overload != 0 ? "." : "") + overload;
  };
  (m.impl(name(Op::name, Op::overload_name).c_str(), TORCH_FN(Direct<Op>::call)), ...);
}

// True if a composite of torch's on these tensors can be records of the device.
bool can_take(c10::DispatchKeySet keys, const Tensor &self, const Tensor &indices) {
  return is_plain_call(keys) && !is_watched(self) && is_on_device(self) && indices.device() == self.device() &&
         indices.scalar_type() == ScalarType::Long && self.dim() == indices.dim() && self.numel() > 0 &&
         indices.numel() > 0;
}

// The tensor with the broadcast of its sizes and the other's, but for dim `along`.
Tensor expand_beside(const Tensor &tensor, const Tensor &other, int64_t along) {
  Dims sizes(other.sizes().begin(), other.sizes().end());
  sizes[along] = tensor.size(along);
  at::DimVector wanted = at::infer_size_dimvector(sizes, tensor.sizes());
  return tensor.sizes().equals(wanted) ? tensor : view_expand(tensor, wanted);
}

// torch's composite dispatches five operators: both tensors are expanded, negative places wrapped in two steps. Here
// places are wrapped before they are expanded: one for a row of beams, not one for each of its elements.
Tensor take_along_dim(c10::DispatchKeySet keys, const Tensor &self, const Tensor &indices, std::optional<int64_t> dim) {
  if (!dim.has_value() || !can_take(keys, self, indices))
    return at::native::take_along_dim(self, indices, dim);
  OnDevice chosen(self);
  at::AutoDispatchBelowADInplaceOrView below;
  int64_t along = at::maybe_wrap_dim(*dim, self.dim());
  Tensor places = pointwise(Result::fresh(), HR_OP_REMAINDER, Rule::Number, indices, Scalar(self.size(along)));
  return gather(Result::fresh(), expand_beside(self, indices, along), along, expand_beside(places, self, along));
}

HEADRACE_KERNELS(aten, PrivateUse1, m) {
  m.impl("take_along_dim", TORCH_FN(take_along_dim));
}
HEADRACE_KERNELS(aten, AutogradPrivateUse1, m) {
  namespace ops = at::_ops;
  implement<ops::add_Tensor, ops::sub_Tensor, ops::mul_Tensor, ops::div_Tensor, ops::pow_Tensor_Scalar,
            ops::remainder_Scalar, ops::neg, ops::sqrt, ops::rsqrt, ops::exp, ops::log, ops::sin, ops::cos, ops::tanh,
            ops::sigmoid, ops::relu, ops::gelu, ops::silu>(m);
  implement<ops::eq_Tensor, ops::eq_Scalar, ops::ne_Tensor, ops::ne_Scalar, ops::lt_Tensor, ops::lt_Scalar,
            ops::le_Tensor, ops::le_Scalar, ops::gt_Tensor, ops::gt_Scalar, ops::ge_Tensor, ops::ge_Scalar,
            ops::logical_and, ops::logical_or, ops::logical_not, ops::bitwise_and_Tensor, ops::bitwise_or_Tensor,
            ops::bitwise_not, ops::where_self, ops::masked_fill_Scalar>(m);
  implement<ops::sum_dim_IntList, ops::mean_dim, ops::max, ops::argmax, ops::topk, ops::min_dim, ops::any, ops::all,
            ops::isin_Tensor_Tensor, ops::cumsum, ops::mm, ops::bmm, ops::addmm, ops::_softmax, ops::_log_softmax,
            ops::native_layer_norm, ops::_scaled_dot_product_fused_attention_overrideable>(m);
  implement<ops::cat, ops::index_select, ops::gather, ops::embedding, ops::_to_copy, ops::clone,
            ops::_local_scalar_dense>(m);
  m.impl("take_along_dim", TORCH_FN(take_along_dim));
  implement<ops::threshold_backward, ops::gelu_backward, ops::sigmoid_backward, ops::tanh_backward,
            ops::_softmax_backward_data, ops::_log_softmax_backward_data, ops::nll_loss_backward,
            ops::mse_loss_backward, ops::native_layer_norm_backward>(m);
  implement<ops::add__Tensor, ops::sub__Tensor, ops::mul__Tensor, ops::div__Tensor, ops::addcmul_, ops::addcdiv_,
            ops::lerp__Scalar, ops::index_copy_>(m);
  implement<ops::_foreach_add__Scalar, ops::_foreach_add__List, ops::_foreach_sub__List, ops::_foreach_mul__Scalar,
            ops::_foreach_mul__Tensor, ops::_foreach_div__ScalarList, ops::_foreach_lerp__Scalar,
            ops::_foreach_addcmul__Scalar, ops::_foreach_addcdiv__ScalarList, ops::_foreach_addcdiv__Scalar,
            ops::_foreach_sqrt>(m);
}

} // namespace
} // namespace headrace
