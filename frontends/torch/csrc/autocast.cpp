// autocast.cpp: which types operators take under torch.autocast("headrace"): torch's own lists. Everything else falls
// through.
#include <ATen/autocast_mode.h>
#include <torch/library.h>

namespace at::autocast {
namespace {

#define HEADRACE_LOWER(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
#define HEADRACE_F32(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
#define HEADRACE_F32_RESULT(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32_set_opt_dtype)
#define HEADRACE_PROMOTE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)

TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFallthrough());
}

TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
  AT_FORALL_LOWER_PRECISION_FP(HEADRACE_LOWER)
  AT_FORALL_FP32(HEADRACE_F32)
  AT_FORALL_FP32_SET_OPT_DTYPE(HEADRACE_F32_RESULT)
  AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(KERNEL_DIFFERENT_REDISPATCH_SIGNATURE_PRIVATEUSEONE)
  AT_FORALL_PROMOTE(HEADRACE_PROMOTE)
}

} // namespace
} // namespace at::autocast
