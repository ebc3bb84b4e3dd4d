// composite.h: when a composite of torch's can be one step of the device: no mode, transform or subclass sees the call,
// and no gradient is recorded.
#pragma once

#include <torch/csrc/autograd/functions/utils.h>

#include "record.h"

namespace headrace {

inline bool is_plain_call(c10::DispatchKeySet keys) {
  return (keys & c10::after_ADInplaceOrView_keyset).highestPriorityTypeId() == c10::DispatchKey::PrivateUse1;
}

// True if the tensor has a forward gradient. torch's own check is a few calls for each tensor; a view may have that of
// its base.
inline bool has_tangent(const Tensor &tensor) {
  if (!tensor.defined())
    return false;
  const auto *meta = torch::autograd::impl::get_autograd_meta(tensor);
  return meta != nullptr && (meta->is_view_ || meta->fw_grad_ != nullptr) && torch::autograd::isFwGradDefined(tensor);
}
inline bool has_tangent(const OptionalTensor &tensor) {
  return tensor.has_value() && has_tangent(*tensor);
}

template <class... T> bool have_tangents(const T &...tensors) {
  return (has_tangent(tensors) || ...);
}

template <class... T> bool need_gradients(const T &...tensors) {
  return at::GradMode::is_enabled() && torch::autograd::compute_requires_grad(tensors...);
}

} // namespace headrace
