// attention.cpp: the choice of torch's attention kernel, attention without gradients in one step, and the gradient of
// attention's gradient.
//
// torch has no formula for the latter. With create_graph=True the gradient is composed of products and a softmax that
// torch can differentiate; else it is one row of the core.
#include <ATen/ExpandUtils.h>
#include <ATen/TensorOperators.h>
#include <ATen/native/DispatchStub.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/ops/_scaled_dot_product_fused_attention_overrideable_backward.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scaled_dot_product_attention_native.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "composite.h"
#include "layers.h"
#include "registration.h"

namespace headrace {
namespace {

bool is_recorded(std::initializer_list<Tensor> tensors) {
  bool any = false;
  for (const Tensor &tensor : tensors)
    any = any || (tensor.defined() && tensor.requires_grad());
  return any && at::GradMode::is_enabled();
}

// The dropout factors of the forward pass. Attention with equal weights on an identity matrix draws them again.
Tensor dropout_mask(const Tensor &query, const Tensor &key, double dropout_p, const Tensor &seed,
                    const Tensor &offset) {
  int64_t b = query.size(0), h = query.size(1), l = query.size(2), s = key.size(2);
  Tensor rows = at::eye(s, query.options()).expand({b, h, s, s}).contiguous(); // the record refers to all of them
  Tensor left = at::zeros_like(query), right = at::zeros_like(key),
         drawn = new_tensor({b, h, l, s}, query.scalar_type());
  Tensor logsumexp = new_tensor({b, h, l}, statistics_type(query));
  Record record(HR_OP_ATTENTION);
  record.in(left).in(right).in(rows).absent().ints({0}).num(1.0).num(dropout_p);
  record.philox({number_of(seed).value.i, number_of(offset).value.i}).out(drawn).out(logsumexp).run();
  return drawn.ne(0).to(query.scalar_type()) * (1 / (1 - dropout_p));
}

// `mask` is undefined without dropout.
Tensor4 of_products(const Tensor &grad, const Tensor &query, const Tensor &key, const Tensor &value, const Tensor &bias,
                    const Tensor &mask, std::array<bool, 4> want, bool causal, double scale) {
  Tensor scores = query.matmul(key.transpose(-2, -1)) * scale;
  if (bias.defined())
    scores = scores + bias;
  if (causal) {
    Tensor allowed =
        at::ones_symint({query.sym_size(2), key.sym_size(2)}, query.options().dtype(ScalarType::Bool)).tril();
    scores = scores.masked_fill(allowed.logical_not(), -std::numeric_limits<double>::infinity());
  }
  Tensor weight = scores.softmax(-1), by_weight = grad.matmul(value.transpose(-2, -1)), kept = weight;
  if (mask.defined()) {
    kept = weight * mask;
    by_weight = by_weight * mask;
  }
  Tensor by_score = weight * (by_weight - (by_weight * weight).sum(-1, true));
  return {want[0] ? by_score.matmul(key) * scale : Tensor(),
          want[1] ? by_score.transpose(-2, -1).matmul(query) * scale : Tensor(),
          want[2] ? kept.transpose(-2, -1).matmul(grad) : Tensor(),
          want[3] && bias.defined() ? at::sum_to(by_score, bias.sizes()) : Tensor()};
}

Tensor4 attention_gradient(const Tensor &grad, const Tensor &query, const Tensor &key, const Tensor &value,
                           const Tensor &bias, std::array<bool, 4> want, const Tensor &out, const Tensor &logsumexp,
                           const Tensor &cum_seq_q, const Tensor &cum_seq_k, c10::SymInt max_q, c10::SymInt max_k,
                           double dropout_p, bool causal, const Tensor &seed, const Tensor &offset,
                           std::optional<double> scale) {
  if (is_recorded({grad, query, key, value, bias})) {
    int64_t width = std::max<int64_t>(query.sym_size(-1).guard_int(__FILE__, __LINE__), 1);
    double by = scale.value_or(1.0 / std::sqrt(static_cast<double>(width)));
    Tensor mask = dropout_p > 0 && dropout_p < 1 ? dropout_mask(query, key, dropout_p, seed, offset) : Tensor();
    mask = dropout_p < 1 ? mask : at::zeros({}, query.options());
    return of_products(grad, query, key, value, bias, mask, want, causal, by);
  }
  at::AutoDispatchBelowADInplaceOrView below;
  return at::_scaled_dot_product_fused_attention_overrideable_backward_symint(
      grad, query, key, value, bias, want, out, logsumexp, cum_seq_q, cum_seq_k, std::move(max_q), std::move(max_k),
      dropout_p, causal, seed, offset, scale);
}

HEADRACE_KERNELS(aten, AutogradPrivateUse1, m) {
  m.impl("_scaled_dot_product_fused_attention_overrideable_backward", TORCH_FN(attention_gradient));
}

// True if two dims are equal. Sizes may be symbols of a trace: if it can't know, the composite is right for any.
bool is_same(const Tensor &a, const Tensor &b, int64_t dim) {
  return TORCH_GUARD_OR_FALSE(c10::sym_eq(a.sym_size(dim), b.sym_size(dim)));
}

bool is_filled(const Tensor &tensor) {
  return TORCH_GUARD_OR_FALSE(tensor.sym_numel().sym_gt(0));
}

// Chooses torch's attention: ours (4, "overrideable") if a row supports it, else the composite. The composite is also
// used for the gradient of a narrow mask, as on torch's CPU device, because it computes that in float32.
int64_t choose_attention(const Tensor &query, const Tensor &key, const Tensor &value, const std::optional<Tensor> &mask,
                         double, bool causal, std::optional<double>, bool) {
  if (query.is_nested() || key.is_nested() || value.is_nested())
    return 0;
  bool fits = query.dim() == 4 && key.dim() == 4 && value.dim() == 4 && at::isFloatingType(query.scalar_type()) &&
              query.scalar_type() == key.scalar_type() && query.scalar_type() == value.scalar_type() &&
              is_same(query, key, 0) && is_same(query, key, 1) && is_same(key, value, 1) && is_same(key, value, 0) &&
              is_same(key, value, 2) && is_same(query, key, 3) && is_filled(query) && is_filled(key) &&
              is_filled(value);
  bool has_mask = mask.has_value() && mask->defined();
  bool is_narrow = query.scalar_type() == ScalarType::Half || query.scalar_type() == ScalarType::BFloat16;
  bool learns_mask = has_mask && mask->requires_grad() && at::GradMode::is_enabled();
  return fits && !(has_mask && causal) && !(is_narrow && learns_mask) ? 4 : 0;
}

// A mask that the row reads as it is. torch turns a bool mask into numbers first.
bool is_direct_mask(const OptionalTensor &mask, const Tensor &query, const Tensor &key) {
  if (!present(mask))
    return true;
  return is_on_device(*mask) &&
         (mask->scalar_type() == ScalarType::Bool || mask->scalar_type() == query.scalar_type()) &&
         at::is_expandable_to(mask->sizes(), {query.size(0), query.size(1), query.size(2), key.size(2)});
}

Tensor scaled_dot_product_attention(c10::DispatchKeySet keys, const Tensor &query, const Tensor &key,
                                    const Tensor &value, const OptionalTensor &mask, double dropout_p, bool causal,
                                    std::optional<double> scale, bool grouped) {
  bool is_direct = is_plain_call(keys) && dropout_p == 0 && !grouped && is_on_device(query) && is_on_device(key) &&
                   is_on_device(value) && choose_attention(query, key, value, mask, 0, causal, scale, false) == 4 &&
                   is_direct_mask(mask, query, key) && !have_tangents(query, key, value, mask) &&
                   !need_gradients(query, key, value, mask);
  if (!is_direct)
    return at::native::scaled_dot_product_attention(query, key, value, mask, dropout_p, causal, scale, grouped);
  OnDevice on(query);
  return attention_alone(query, key, value, mask, causal, scale);
}

HEADRACE_KERNELS(aten, PrivateUse1, m) {
  m.impl("scaled_dot_product_attention", TORCH_FN(scaled_dot_product_attention));
}
HEADRACE_KERNELS(aten, AutogradPrivateUse1, m) {
  m.impl("scaled_dot_product_attention", TORCH_FN(scaled_dot_product_attention));
}

} // namespace
} // namespace headrace

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &headrace::choose_attention)
}
