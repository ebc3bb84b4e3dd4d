// transformer.cpp: the operators that torch's modules call for whole layers: attention with its projections, an encoder
// layer, batch norm with its statistics, convolutions by other names, Adagrad. Each is composed of operations that have
// rows.
#include <ATen/ExpandUtils.h>
#include <ATen/TensorOperators.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/pixel_shuffle_native.h>
#include <ATen/ops/pixel_unshuffle_native.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/sqrt.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <cmath>

#include "kernels_nn.h"
#include "layers.h"

namespace headrace {

// ---- attention with its projections

// [B, T, 3 D] with its bias as q / sqrt(D / H), k, v of [B, H, T, D / H].
Tensor3 split_heads(const Tensor &qkv, const Tensor &bias, int64_t heads) {
  TORCH_CHECK(qkv.dim() == 3 && qkv.size(2) % 3 == 0 && (qkv.size(2) / 3) % heads == 0,
              "expected qkv of [batch, tokens, 3 * dim] with dim divisible by ", heads, " heads, but got ",
              qkv.sizes());
  int64_t dim = qkv.size(2) / 3, each = dim / heads;
  Tensor parts = (qkv + bias).reshape({qkv.size(0), qkv.size(1), 3, heads, each}).permute({2, 0, 3, 1, 4});
  return {(parts[0] / std::sqrt(static_cast<double>(each))).contiguous(), parts[1].contiguous(), parts[2].contiguous()};
}

static Tensor3 project(const Tensor &query, const Tensor &key, const Tensor &value, int64_t dim, int64_t heads,
                       const Tensor &weight, const Tensor &bias) {
  if (query.is_same(key) && key.is_same(value))
    return split_heads(at::linear(query, weight), bias, heads);
  int64_t each = dim / heads;
  auto part = [&](const Tensor &x, int64_t i) {
    Tensor y = at::linear(x, weight.narrow(0, i * dim, dim), bias.narrow(0, i * dim, dim));
    return y.reshape({x.size(0), x.size(1), heads, each}).transpose(1, 2);
  };
  return {part(query, 0) / std::sqrt(static_cast<double>(each)), part(key, 1), part(value, 2)};
}

Tensor2 multi_head_attention(const Tensor &query, const Tensor &key, const Tensor &value, int64_t dim, int64_t heads,
                             const Tensor &qkv_weight, const Tensor &qkv_bias, const Tensor &out_weight,
                             const Tensor &out_bias, const OptionalTensor &mask, bool want_weights, bool average,
                             std::optional<int64_t> mask_type) {
  TORCH_CHECK(query.dim() == 3 && key.dim() == 3 && value.dim() == 3, "expected 3-D query, key and value, got ",
              query.dim(), "-D, ", key.dim(), "-D and ", value.dim(), "-D tensors");
  TORCH_CHECK(query.size(2) == dim && heads > 0 && dim % heads == 0, "passed-in embed_dim ", dim,
              " didn't match last dim of query ", query.size(2), ", or is not divisible by ", heads, " heads");
  TORCH_CHECK(qkv_weight.dim() == 2 && qkv_weight.size(0) == 3 * dim && qkv_weight.size(1) == dim &&
                  qkv_bias.dim() == 1 && qkv_bias.size(0) == 3 * dim,
              "expected qkv_weight and qkv_bias of 3 x ", dim, " rows, got ", qkv_weight.sizes(), " and ",
              qkv_bias.sizes());
  auto [q, k, v] = project(query, key, value, dim, heads, qkv_weight, qkv_bias);
  Tensor scores = q.matmul(k.transpose(-2, -1));
  Tensor weights = present(mask) ? masked_softmax(scores, mask->to(ScalarType::Bool), scores.dim() - 1, mask_type)
                                 : scores.softmax(-1);
  Tensor joined = weights.matmul(v).transpose(1, 2).reshape({query.size(0), query.size(1), dim});
  Tensor out = at::linear(joined, out_weight, out_bias);
  if (!want_weights)
    return {out, Tensor()};
  return {out, average ? weights.sum(1) / heads : weights};
}

Tensor encoder_layer(const Tensor &src, int64_t dim, int64_t heads, const Tensor &qkv_weight, const Tensor &qkv_bias,
                     const Tensor &out_weight, const Tensor &out_bias, bool use_gelu, bool norm_first, double eps,
                     const Tensor &norm_weight_1, const Tensor &norm_bias_1, const Tensor &norm_weight_2,
                     const Tensor &norm_bias_2, const Tensor &weight_1, const Tensor &bias_1, const Tensor &weight_2,
                     const Tensor &bias_2, const OptionalTensor &mask, std::optional<int64_t> mask_type) {
  auto norm_1 = [&](const Tensor &x) { return at::layer_norm(x, {dim}, norm_weight_1, norm_bias_1, eps); };
  auto norm_2 = [&](const Tensor &x) { return at::layer_norm(x, {dim}, norm_weight_2, norm_bias_2, eps); };
  auto attend = [&](const Tensor &x) {
    return std::get<0>(multi_head_attention(x, x, x, dim, heads, qkv_weight, qkv_bias, out_weight, out_bias, mask,
                                            false, true, mask_type));
  };
  auto feed = [&](const Tensor &x) {
    Tensor hidden = at::linear(x, weight_1, bias_1);
    return at::linear(use_gelu ? at::gelu(hidden) : at::relu(hidden), weight_2, bias_2);
  };
  if (norm_first) {
    Tensor x = src + attend(norm_1(src));
    return x + feed(norm_2(x));
  }
  Tensor x = norm_1(src + attend(src));
  return norm_2(x + feed(x));
}

// ---- batch norm: its statistics alone, and a form with a fourth result, the scratch of another library

Tensor2 batch_norm_statistics(const Tensor &input, const OptionalTensor &running_mean,
                              const OptionalTensor &running_var, double momentum) {
  TORCH_CHECK(input.dim() >= 2, "batch_norm_update_stats: input must have at least 2 dimensions, not ", input.dim());
  Dims dims{0};
  for (int64_t d = 2; d < input.dim(); ++d)
    dims.push_back(d);
  Tensor wide = to_type(input, statistics_type(input));
  auto [var, mean] = variance_mean(wide, OptionalIntArrayRef(IntArrayRef(dims)), Scalar(0), false, false);
  double count = static_cast<double>(input.numel()) / static_cast<double>(std::max<int64_t>(input.size(1), 1));
  if (present(running_mean))
    running_mean->mul_(1 - momentum).add_(mean, momentum);
  if (present(running_var))
    running_var->mul_(1 - momentum).add_(var * (count / (count - 1)), momentum);
  return {mean, var};
}

Tensor4 batch_norm_with_update(Result y, Result mean, Result invstd, Result scratch, const Tensor &input,
                               const OptionalTensor &weight, const OptionalTensor &bias, const Tensor &running_mean,
                               const Tensor &running_var, double momentum, double eps) {
  auto [out, saved_mean, saved_invstd] =
      batch_norm(y, mean, invstd, input, weight, bias, running_mean, running_var, true, momentum, eps);
  return {out, saved_mean, saved_invstd, give(scratch, new_tensor({0}, ScalarType::Byte))};
}

// ---- convolutions by other names; also without a batch

Tensor named_convolution(Result result, const Tensor &input, const Tensor &weight, const OptionalTensor &bias,
                         IntArrayRef stride, IntArrayRef padding, IntArrayRef dilation, bool transposed,
                         IntArrayRef output_padding) {
  bool is_single = input.dim() == weight.dim() - 1;
  Tensor y = headrace::convolution(is_single ? input.unsqueeze(0) : input, weight, bias, stride, padding, dilation,
                                   transposed, output_padding, 1);
  return give(result, is_single ? y.squeeze(0) : y);
}

Tensor3 named_convolution_backward(const Tensor &grad, const Tensor &input, const Tensor &weight, IntArrayRef stride,
                                   IntArrayRef padding, std::array<bool, 3> mask) {
  const int64_t one[] = {1, 1};
  bool is_single = input.dim() == weight.dim() - 1;
  Tensor3 all =
      headrace::convolution_backward(is_single ? grad.unsqueeze(0) : grad, is_single ? input.unsqueeze(0) : input,
                                     weight, stride, padding, one, false, 1, mask);
  if (is_single && std::get<0>(all).defined())
    std::get<0>(all) = std::get<0>(all).squeeze(0);
  return all;
}

// ---- channels and windows

Tensor channel_shuffle(const Tensor &self, int64_t groups) {
  TORCH_CHECK(self.dim() > 2, "channel_shuffle expects input with > 2 dims, but got input with sizes ", self.sizes());
  TORCH_CHECK(groups > 0 && self.size(1) % groups == 0, "Number of channels must be divisible by groups. Got ",
              self.size(1), " channels and ", groups, " groups.");
  Dims split(self.sizes().begin(), self.sizes().end());
  split[1] = groups;
  split.insert(split.begin() + 2, self.size(1) / groups);
  Tensor out = new_like(self);
  if (out.numel() > 0)
    copy_on_device(self.contiguous().view(split).transpose(1, 2).reshape(self.sizes()), out);
  return out;
}

// torch's composites give the default layout for any.
Tensor pixel_shuffle(const Tensor &self, int64_t factor) {
  return at::native::math_pixel_shuffle(self, factor).contiguous(self.suggest_memory_format());
}

Tensor pixel_unshuffle(const Tensor &self, int64_t factor) {
  return at::native::math_pixel_unshuffle(self, factor).contiguous(self.suggest_memory_format());
}

// ---- Adagrad

static Tensor on_device(const Tensor &number) {
  return is_on_device(number) ? number : number.to(here());
}

void fused_adagrad(TensorList params, TensorList grads, TensorList sums, TensorList steps, const Operand &lr,
                   double lr_decay, double weight_decay, double eps, bool maximize, const OptionalTensor &grad_scale,
                   const OptionalTensor &found_inf) {
  for (TensorList list : {grads, sums, steps})
    TORCH_CHECK(list.size() == params.size(), "fused adagrad: lists have ", params.size(), " and ", list.size(),
                " tensors");
  Tensor stays = present(found_inf) ? found_inf->ne(0) : Tensor();
  for (size_t i = 0; i < params.size(); ++i) {
    const Tensor &param = params[i], &sum = sums[i];
    ScalarType wide = statistics_type(param);
    Tensor grad = to_type(grads[i], wide), value = to_type(param, wide);
    if (present(grad_scale))
      grad = grad / *grad_scale;
    if (maximize)
      grad = -grad;
    if (weight_decay != 0)
      grad = grad.add(value, weight_decay);
    Tensor factor = (to_type(on_device(steps[i]), ScalarType::Double) - 1) * lr_decay + 1;
    factor = lr.tensor != nullptr ? on_device(*lr.tensor) / factor : factor.reciprocal_().mul_(lr.number.value.f[0]);
    Tensor next_sum = to_type(sum, wide).addcmul(grad, grad);
    Tensor next = value - to_type(factor, wide).reshape(IntArrayRef{}) * grad / (next_sum.sqrt() + eps);
    if (stays.defined()) {
      next_sum = at::where(stays, sum, next_sum);
      next = at::where(stays, param, next);
    }
    sum.copy_(next_sum);
    param.copy_(next);
  }
}

} // namespace headrace
