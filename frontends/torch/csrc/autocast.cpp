// autocast.cpp: the dtypes of operators under torch.autocast("headrace"): torch's own lists, and the operators that its
// CUDA device rejects. Everything else falls through.
#include <ATen/autocast_mode.h>

#include "registration.h"

namespace at::autocast {
namespace {

#define HEADRACE_LOWER(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
#define HEADRACE_F32(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
#define HEADRACE_F32_RESULT(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32_set_opt_dtype)
#define HEADRACE_PROMOTE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)

// As on CUDA: the gradient of a logarithm near zero exceeds half precision.
Tensor refuse_binary_cross_entropy(const Tensor &, const Tensor &, const std::optional<Tensor> &, int64_t) {
  TORCH_CHECK(false, "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast.\n"
                     "torch.nn.functional.binary_cross_entropy_with_logits and torch.nn.BCEWithLogitsLoss are safe.");
}

TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFallthrough());
}

HEADRACE_KERNELS(aten, AutocastPrivateUse1, m) {
  AT_FORALL_LOWER_PRECISION_FP(HEADRACE_LOWER)
  AT_FORALL_FP32(HEADRACE_F32)
  AT_FORALL_FP32_SET_OPT_DTYPE(HEADRACE_F32_RESULT)
  AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(KERNEL_DIFFERENT_REDISPATCH_SIGNATURE_PRIVATEUSEONE)
  AT_FORALL_PROMOTE(HEADRACE_PROMOTE)
  m.impl("binary_cross_entropy", &refuse_binary_cross_entropy);
}

} // namespace
} // namespace at::autocast
