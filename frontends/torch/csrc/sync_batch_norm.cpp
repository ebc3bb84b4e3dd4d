// sync_batch_norm.cpp: the steps of a batch norm over the batches of several processes (torch.nn.SyncBatchNorm), which
// exchanges statistics between them.
#include <ATen/TensorOperators.h>

#include "kernels_nn.h"
#include "layers.h"

namespace headrace {
namespace {

Dims dims_of_statistics(const Tensor &input) {
  Dims dims{0};
  for (int64_t d = 2; d < input.dim(); ++d)
    dims.push_back(d);
  return dims;
}

// A value for each channel, as a factor of the input.
Tensor per_channel(const Tensor &values, const Tensor &input) {
  Dims shape(input.dim(), 1);
  shape[1] = input.size(1);
  return to_type(values, statistics_type(input)).view(shape);
}

void check_input(const char *name, const Tensor &input) {
  TORCH_CHECK(input.dim() >= 2, name, ": input must have at least 2 dimensions, not ", input.dim());
}

void average_into(const OptionalTensor &running, const Tensor &value, double momentum) {
  if (present(running))
    running->mul_(1 - momentum).add_(to_type(value, running->scalar_type()), momentum);
}

} // namespace

Tensor2 batch_norm_stats(const Tensor &input, double eps) {
  check_input("batch_norm_stats", input);
  Dims dims = dims_of_statistics(input);
  auto [var, mean] = variance_mean(to_type(input, statistics_type(input)), OptionalIntArrayRef(IntArrayRef(dims)),
                                   Scalar(0), false, false);
  return {mean, var.add(eps).rsqrt()};
}

Tensor batch_norm_elements(Result result, const Tensor &input, const OptionalTensor &weight, const OptionalTensor &bias,
                           const Tensor &mean, const Tensor &invstd) {
  check_input("batch_norm_elemt", input);
  Tensor y = (to_type(input, statistics_type(input)) - per_channel(mean, input)) * per_channel(invstd, input);
  if (present(weight))
    y = y * per_channel(*weight, input);
  if (present(bias))
    y = y + per_channel(*bias, input);
  return give(result, to_type(y, input.scalar_type()).contiguous(format_of(input)));
}

// Rows of mean and invstd are the processes'. The variance of all is that inside of them, and that of their means.
Tensor2 batch_norm_gather(const Tensor &mean, const Tensor &invstd, const OptionalTensor &running_mean,
                          const OptionalTensor &running_var, double momentum, double eps, const Tensor &counts) {
  Tensor n = to_type(counts, mean.scalar_type()).view({-1, 1}), total = n.sum();
  Tensor all = (mean * n).sum(0) / total;
  Tensor squares = ((invstd.pow(-2) - eps) * n + (mean - all).square() * n).sum(0);
  average_into(running_mean, all, momentum);
  average_into(running_var, squares / (total - 1), momentum);
  return {all, (squares / total + eps).rsqrt()};
}

Tensor2 batch_norm_gather_equal(const Tensor &mean, const Tensor &invstd, const OptionalTensor &running_mean,
                                const OptionalTensor &running_var, double momentum, double eps, int64_t count) {
  Tensor counts = mean.new_full({mean.size(0)}, static_cast<double>(count));
  return batch_norm_gather(mean, invstd, running_mean, running_var, momentum, eps, counts);
}

Tensor4 batch_norm_backward_sums(const Tensor &grad, const Tensor &input, const Tensor &mean, const Tensor &invstd,
                                 const OptionalTensor &weight, bool wants_input, bool wants_weight, bool wants_bias) {
  check_input("batch_norm_backward_reduce", input);
  Dims dims = dims_of_statistics(input);
  Tensor dy = to_type(grad, statistics_type(input));
  Tensor sum = dy.sum(dims);
  Tensor moment = (dy * (to_type(input, statistics_type(input)) - per_channel(mean, input))).sum(dims);
  ScalarType type = present(weight) ? weight->scalar_type() : input.scalar_type();
  return {wants_input ? sum : Tensor(), wants_input ? moment : Tensor(),
          wants_weight ? to_type(moment * invstd, type) : Tensor(), wants_bias ? to_type(sum, type) : Tensor()};
}

Tensor batch_norm_backward_elements(const Tensor &grad, const Tensor &input, const Tensor &mean, const Tensor &invstd,
                                    const OptionalTensor &weight, const Tensor &sum, const Tensor &moment,
                                    const Tensor &counts) {
  check_input("batch_norm_backward_elemt", input);
  Tensor total = to_type(counts.sum(), sum.scalar_type());
  Tensor centred = to_type(input, statistics_type(input)) - per_channel(mean, input);
  Tensor slope = per_channel(moment / total * invstd.square(), input);
  Tensor scale = per_channel(present(weight) ? invstd * to_type(*weight, invstd.scalar_type()) : invstd, input);
  Tensor dx = (to_type(grad, statistics_type(input)) - per_channel(sum / total, input) - centred * slope) * scale;
  return to_type(dx, input.scalar_type()).contiguous(format_of(input));
}

} // namespace headrace
