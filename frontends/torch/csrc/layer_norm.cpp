// layer_norm.cpp: aten::layer_norm in one step if no gradient is recorded. torch's composite makes the statistics as
// tensors, and drops them.
#include <ATen/ops/layer_norm_native.h>

#include "composite.h"
#include "kernels.h"
#include "registration.h"

namespace headrace {
namespace {

Tensor layer_norm_composite(c10::DispatchKeySet keys, const Tensor &input, c10::SymIntArrayRef shape,
                            const OptionalTensor &weight, const OptionalTensor &bias, double eps, bool cudnn) {
  std::optional<IntArrayRef> dims = c10::asIntArrayRefSlowOpt(shape);
  if (!is_plain_call(keys) || !dims.has_value() || !is_on_device(input) || have_tangents(input, weight, bias) ||
      need_gradients(input, weight, bias))
    return at::native::layer_norm_symint(input, shape, weight, bias, eps, cudnn);
  OnDevice on(input);
  return layer_norm_alone(input, *dims, weight, bias, eps);
}

HEADRACE_KERNELS(aten, PrivateUse1, m) {
  m.impl("layer_norm", TORCH_FN(layer_norm_composite));
}
HEADRACE_KERNELS(aten, AutogradPrivateUse1, m) {
  m.impl("layer_norm", TORCH_FN(layer_norm_composite));
}

} // namespace
} // namespace headrace
