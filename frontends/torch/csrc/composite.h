// composite.h: when a composite of torch's can be one step of the device: no mode, transform or subclass sees the call,
// and no gradient is recorded.
#pragma once

#include <torch/csrc/autograd/functions/utils.h>

#include "record.h"

namespace headrace {

inline bool is_plain_call(c10::DispatchKeySet keys) {
  return (keys & c10::after_ADInplaceOrView_keyset).highestPriorityTypeId() == c10::DispatchKey::PrivateUse1;
}

// True if the tensor belongs to no subclass and no transform (vmap), whose tensors have no memory of their own.
inline bool is_unwrapped(const Tensor &tensor) {
  constexpr c10::DispatchKeySet wrappers({c10::DispatchKey::Python, c10::DispatchKey::Functionalize,
                                          c10::DispatchKey::Batched, c10::DispatchKey::FuncTorchBatched,
                                          c10::DispatchKey::FuncTorchGradWrapper});
  return !tensor.key_set().has_any(wrappers);
}

// True if the tensor may have a forward gradient: its own, or a view that of its base.
inline bool may_have_tangent(const torch::autograd::AutogradMeta *meta) {
  if (meta == nullptr || meta->fw_grad_ != nullptr || !meta->is_view_)
    return meta != nullptr && meta->fw_grad_ != nullptr;
  const auto *view = static_cast<const torch::autograd::DifferentiableViewMeta *>(meta);
  if (!view->has_fw_view())
    return false;
  const auto *base = torch::autograd::impl::get_autograd_meta(view->get_forward_view().base_);
  return base != nullptr && (base->is_view_ || base->fw_grad_ != nullptr);
}

// True if the tensor has a forward gradient. torch's own check takes a lock, and its isFwGradDefined a copy.
inline bool has_tangent(const Tensor &tensor) {
  return tensor.defined() && may_have_tangent(torch::autograd::impl::get_autograd_meta(tensor)) &&
         tensor._fw_grad(0).defined();
}
inline bool has_tangent(const OptionalTensor &tensor) {
  return tensor.has_value() && has_tangent(*tensor);
}

// True if autograd has something to do for this argument: record its gradient, or compute a forward gradient.
inline bool is_watched(const Tensor &tensor) {
  return tensor.defined() && (has_tangent(tensor) || (at::GradMode::is_enabled() && tensor.requires_grad()));
}

// The keys that lead to torch's autograd kernel, which is registered for all keys of autograd.
inline c10::DispatchKeySet of_autograd(c10::DispatchKeySet keys) {
  return (keys & c10::after_autograd_keyset) | c10::DispatchKeySet(c10::DispatchKey::AutogradOther);
}

template <class... T> bool have_tangents(const T &...tensors) {
  return (has_tangent(tensors) || ...);
}

template <class... T> bool need_gradients(const T &...tensors) {
  return at::GradMode::is_enabled() && torch::autograd::compute_requires_grad(tensors...);
}

} // namespace headrace
