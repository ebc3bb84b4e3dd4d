// direct_views.cpp: views in one step if no gradient is recorded.
//
// torch makes a view by three kernels: autograd's, which then only looks for forward gradients and copies the tensor
// for that, the one that notes what the view is of, and the device's. Here one kernel makes the view and notes its base
// as torch does. All other calls go to torch's kernels. See direct.cpp.
#include <ATen/ExpandUtils.h>
#include <ATen/InferSize.h>
#include <ATen/TensorUtils.h>
#include <ATen/TracerMode.h>
#include <ATen/ops/expand_ops.h>
#include <ATen/ops/permute_native.h>
#include <ATen/ops/permute_ops.h>
#include <ATen/ops/reshape_native.h>
#include <ATen/ops/select_ops.h>
#include <ATen/ops/slice_ops.h>
#include <ATen/ops/split_ops.h>
#include <ATen/ops/transpose_ops.h>
#include <ATen/ops/unsqueeze_ops.h>
#include <ATen/ops/view_ops.h>
#include <torch/csrc/autograd/VariableTypeUtils.h>

#include <memory>
#include <optional>
#include <utility>

#include "composite.h"
#include "kernels.h"
#include "registration.h"

namespace headrace {
namespace {

using torch::autograd::CreationMeta;

bool is_direct(c10::DispatchKeySet keys, const Tensor &self) {
  const c10::AutogradState &state = c10::AutogradState::get_tls_state();
  return is_plain_call(keys) && keys.has(c10::DispatchKey::ADInplaceOrView) && !headrace::is_watched(self) &&
         !state.get_inference_mode() && !state.get_view_replay_enabled() &&
         self.unsafeGetTensorImpl()->support_as_strided();
}

// Notes what a new view is of, as torch's as_view, which copies the view and moves what is noted four times.
// `with_gradients`: how the view counts in code that records gradients.
Tensor note(const Tensor &base, Tensor view, CreationMeta with_gradients) {
  namespace autograd = torch::autograd;
  CreationMeta creation = at::GradMode::is_enabled() ? with_gradients : CreationMeta::NO_GRAD_MODE;
  const autograd::DifferentiableViewMeta *of_base = autograd::impl::get_view_autograd_meta(base);
  if (base.is_inference() || (of_base != nullptr && !of_base->shared_view_info()))
    return autograd::as_view(base, view, true, true, nullptr, nullptr, creation);
  std::optional<autograd::ViewInfo> info;
  if (of_base == nullptr) {
    info.emplace(base, nullptr, nullptr);
  } else {
    info.emplace(of_base->get_backward_view().chain(base, view));
    creation = autograd::propagate_creation_meta(of_base->get_creation_meta(), creation);
  }
  c10::TensorImpl *made = view.unsafeGetTensorImpl();
  made->set_autograd_meta(std::make_unique<autograd::DifferentiableViewMeta>(made, std::move(info), std::nullopt,
                                                                             /*shared_view_info=*/true, creation));
  return view;
}
Tensor note(const Tensor &base, Tensor view) {
  return note(base, std::move(view), CreationMeta::DEFAULT);
}

Tensor make_view(const Tensor &self, c10::SymIntArrayRef size) {
  IntArrayRef dims = C10_AS_INTARRAYREF_SLOW(size);
  if (Tensor made = view_reshape(self, dims); made.defined())
    return made;
  return view(self, dims); // for torch's errors
}
Tensor make_expand(const Tensor &self, c10::SymIntArrayRef size, bool) {
  return view_expand(self, C10_AS_INTARRAYREF_SLOW(size));
}
Tensor make_permute(const Tensor &self, IntArrayRef dims) {
  return at::native::permute(self, dims);
}
Tensor make_transpose(const Tensor &self, int64_t dim0, int64_t dim1) {
  return view_transpose(self, dim0, dim1);
}
Tensor make_unsqueeze(const Tensor &self, int64_t dim) {
  return view_unsqueeze(self, dim);
}
Tensor make_select(const Tensor &self, int64_t dim, const c10::SymInt &index) {
  return view_select(self, dim, index.guard_int(__FILE__, __LINE__));
}

std::optional<int64_t> number(const std::optional<c10::SymInt> &value) {
  return value.has_value() ? std::optional<int64_t>(value->guard_int(__FILE__, __LINE__)) : std::nullopt;
}
Tensor make_slice(const Tensor &self, int64_t dim, const std::optional<c10::SymInt> &start,
                  const std::optional<c10::SymInt> &end, const c10::SymInt &step) {
  return view_slice(self, dim, number(start), number(end), step.guard_int(__FILE__, __LINE__));
}

template <class Op, auto make, class Schema = typename Op::schema> struct View;

template <class Op, auto make, class... Rest> struct View<Op, make, Tensor(const Tensor &, Rest...)> {
  static Tensor call(c10::DispatchKeySet keys, const Tensor &self, Rest... rest) {
    if (!is_direct(keys, self))
      return Op::redispatch(of_autograd(keys), self, rest...);
    Tensor made;
    {
      at::AutoDispatchBelowADInplaceOrView below;
      made = make(self, rest...);
    }
    return note(self, std::move(made));
  }
};

std::vector<Tensor> split(c10::DispatchKeySet keys, const Tensor &self, c10::SymInt size, int64_t dim) {
  if (!is_direct(keys, self))
    return at::_ops::split_Tensor::redispatch(of_autograd(keys), self, std::move(size), dim);
  std::vector<Tensor> parts;
  {
    at::AutoDispatchBelowADInplaceOrView below;
    parts = view_split(self, size.guard_int(__FILE__, __LINE__), dim);
  }
  for (Tensor &part : parts)
    part = note(self, std::move(part), CreationMeta::MULTI_OUTPUT_NODE);
  return parts;
}

// torch's composite calls aten::view. A trace has to see that call.
Tensor reshape(c10::DispatchKeySet keys, const Tensor &self, c10::SymIntArrayRef size) {
  std::optional<IntArrayRef> dims = c10::asIntArrayRefSlowOpt(size);
  if (!dims.has_value() || at::tracer::impl::is_dispatch_enabled() || !is_direct(keys, self))
    return at::native::reshape_symint(self, size);
  Tensor made = view_reshape(self, *dims);
  return made.defined() ? note(self, std::move(made)) : at::native::reshape_symint(self, size);
}

HEADRACE_KERNELS(aten, PrivateUse1, m) {
  m.impl("reshape", TORCH_FN(reshape));
}
HEADRACE_KERNELS(aten, AutogradPrivateUse1, m) {
  namespace ops = at::_ops;
  m.impl("view", TORCH_FN((View<ops::view, make_view>::call)));
  m.impl("expand", TORCH_FN((View<ops::expand, make_expand>::call)));
  m.impl("permute", TORCH_FN((View<ops::permute, make_permute>::call)));
  m.impl("transpose.int", TORCH_FN((View<ops::transpose_int, make_transpose>::call)));
  m.impl("unsqueeze", TORCH_FN((View<ops::unsqueeze, make_unsqueeze>::call)));
  m.impl("select.int", TORCH_FN((View<ops::select_int, make_select>::call)));
  m.impl("slice.Tensor", TORCH_FN((View<ops::slice_Tensor, make_slice>::call)));
  m.impl("split.Tensor", TORCH_FN(split));
  m.impl("reshape", TORCH_FN(reshape));
}

} // namespace
} // namespace headrace
