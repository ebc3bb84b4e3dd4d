// embedding.cpp: bags of embeddings: rows of a matrix, summed, averaged or maximised over segments of a list of
// indices.
//
// Sums are one record (segments). For other modes a running sum of ones at the bags' starts gives each index its bag.
// The rest is gathers, scatters and element-wise records in the order of the list. Wrong offsets give numbers of
// missing bags, which fail like indices out of range.
#include <limits>

#include <ATen/ExpandUtils.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/_embedding_bag_sparse_backward.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include "kernels_nn.h"
#include "layers.h"

namespace headrace {
namespace {

enum Mode { kSum = 0, kMean = 1, kMax = 2 };

ScalarType wide_type(const Tensor &tensor) {
  return statistics_type(tensor);
}

// The bag of each index.
Tensor bags_of(const Tensor &offsets, int64_t count) {
  at::TensorOptions options = offsets.options().dtype(at::kLong);
  Tensor begins = at::zeros({count + 1}, options);
  begins.index_add_(0, offsets.to(at::kLong), at::ones({offsets.size(0)}, options));
  return begins.narrow(0, 0, count).cumsum(0) - 1;
}

// The first bag must begin at the first index.
void check_first(const Tensor &begins) {
  if (begins.numel() > 0) {
    Tensor first = begins.select(0, 0), fits = at::full({}, std::numeric_limits<int64_t>::min(), begins.options());
    Record(HR_OP_CHECK_INDEX).in(at::where(first == 0, fits, first)).ints({0, 1, 0}).run();
  }
}

Tensor is_kept(const Tensor &indices, int64_t padding) {
  return indices != padding;
}

} // namespace

Tensor4 embedding_bag(const Tensor &weight, const Tensor &index_list, const Tensor &offset_list, int64_t mode,
                      const OptionalTensor &factors, bool include_last, int64_t padding) {
  TORCH_CHECK(weight.dim() == 2, "weight has to be a 2D Tensor, but got Tensor of dimension ", weight.dim());
  TORCH_CHECK(index_list.dim() == 1 && offset_list.dim() == 1, "input and offsets have to be 1D Tensors, but got ",
              index_list.dim(), " and ", offset_list.dim(), " dimensions");
  TORCH_CHECK(c10::isIntegralType(index_list.scalar_type(), false) &&
                  c10::isIntegralType(offset_list.scalar_type(), false),
              "indices and offsets have to be integers");
  TORCH_CHECK(
      !present(factors) || mode == kSum, "embedding_bag: per_sample_weights was not None. per_sample_weights is ",
      "only supported for mode='sum' (got mode='", mode == kMean ? "mean" : "max", "'). Please open a feature request");
  TORCH_CHECK(!present(factors) || factors->numel() == index_list.numel(), "expected per_sample_weights of ",
              index_list.numel(), " elements, but got ", present(factors) ? factors->numel() : 0);
  TORCH_CHECK(!include_last || offset_list.size(0) > 0, "include_last_offset: number of offsets should be at least 1");
  int64_t count = index_list.size(0), bag_count = offset_list.size(0) - (include_last ? 1 : 0);
  int64_t skipped = padding >= 0 ? padding : -1;
  Tensor begins = offset_list.narrow(0, 0, bag_count).to(at::kLong);
  check_first(begins);
  Tensor indices = index_list.to(at::kLong), bags = bags_of(begins, count);
  Tensor kept = is_kept(indices, skipped);
  // A bag ends at the start of the next one.
  Tensor ends = at::cat({begins, at::full({1}, count, begins.options())}).narrow(0, 1, bag_count);
  Tensor sizes =
      skipped < 0 ? ends - begins : at::zeros({bag_count}, indices.options()).index_add_(0, bags, kept.to(at::kLong));
  Tensor out, best;
  if (mode == kMax) {
    Tensor rows = weight.index_select(0, indices).to(wide_type(weight));
    Tensor keeps = kept.unsqueeze(1), is_empty = (sizes == 0).unsqueeze(1);
    constexpr double lowest = -std::numeric_limits<double>::infinity();
    Tensor candidates = rows.masked_fill(keeps.logical_not(), lowest);
    Tensor places = bags.unsqueeze(1).expand_as(rows);
    Tensor largest = scatter(Result::fresh(), at::full({bag_count, rows.size(1)}, lowest, rows.options()), 0, places,
                             candidates, scatter_mode("amax", true));
    // The first index of each bag whose row has the largest element.
    Tensor wins = (candidates == largest.index_select(0, bags)).logical_and(keeps);
    Tensor number = at::arange(count, indices.options()).unsqueeze(1);
    Tensor first = scatter(Result::fresh(), at::full(largest.sizes(), count, indices.options()), 0, places,
                           at::where(wins, number, count), scatter_mode("amin", true));
    Tensor chosen = first.clamp_max(std::max<int64_t>(count - 1, 0));
    best = count == 0 ? at::zeros(largest.sizes(), indices.options())
                      : indices.index_select(0, chosen.reshape(-1)).reshape(largest.sizes()).masked_fill(is_empty, -1);
    out = largest.masked_fill(is_empty, 0);
  } else {
    Tensor factor = present(factors) ? to_type(*factors, weight.scalar_type()).contiguous() : Tensor();
    out = combine_segments(weight, begins, ends, 1, 0, indices.contiguous(), factor, skipped);
    if (mode == kMean)
      out = out / sizes.clamp_min(1).unsqueeze(1);
    best = at::zeros({0}, indices.options());
  }
  return {to_type(out, weight.scalar_type()), bags, sizes, best};
}

Tensor embedding_bag_backward(const Tensor &grad, const Tensor &index_list, const Tensor &bags, const Tensor &sizes,
                              const Tensor &best, int64_t rows, bool by_frequency, int64_t mode,
                              const OptionalTensor &factors, int64_t padding) {
  Tensor wide = to_type(grad, wide_type(grad)), indices = index_list.to(at::kLong);
  Tensor dweight = at::zeros({rows, grad.size(1)}, wide.options());
  if (mode == kMax) {
    Tensor is_there = (best >= 0).logical_and((sizes > 0).unsqueeze(1));
    dweight.scatter_add_(0, best.clamp_min(0), wide.masked_fill(is_there.logical_not(), 0));
    return to_type(dweight, grad.scalar_type());
  }
  if (mode == kMean)
    wide = wide / sizes.clamp_min(1).unsqueeze(1);
  Tensor parts = wide.index_select(0, bags);
  if (present(factors))
    parts = parts * factors->to(parts.scalar_type()).unsqueeze(1);
  if (by_frequency) {
    Tensor counts =
        at::zeros({rows}, indices.options()).index_add_(0, indices, at::ones(indices.sizes(), indices.options()));
    parts = parts / counts.index_select(0, indices).unsqueeze(1);
  }
  if (padding >= 0)
    parts = parts.masked_fill(is_kept(indices, padding).logical_not().unsqueeze(1), 0);
  return to_type(dweight.index_add_(0, indices, parts), grad.scalar_type());
}

Tensor embedding_bag_sparse_backward(const Tensor &grad, const Tensor &indices, const Tensor &bags, const Tensor &sizes,
                                     const Tensor &best, int64_t rows, bool by_frequency, int64_t mode, bool sparse,
                                     const OptionalTensor &factors, int64_t padding) {
  if (sparse) // torch's formula, which ignores the offsets
    return at::_embedding_bag_sparse_backward(grad, indices, sizes, bags, sizes, rows, by_frequency, mode, factors,
                                              padding);
  return embedding_bag_backward(grad, indices, bags, sizes, best, rows, by_frequency, mode, factors, padding);
}

Tensor embedding_bag_factors_backward(const Tensor &grad, const Tensor &weight, const Tensor &index_list,
                                      const Tensor &bags, int64_t mode, int64_t padding) {
  TORCH_CHECK(mode == kSum, "embedding_bag_backward: per_sample_weights only supported for mode='sum'");
  Tensor indices = index_list.to(at::kLong);
  Tensor product =
      to_type(grad, wide_type(grad)).index_select(0, bags) * weight.index_select(0, indices).to(wide_type(weight));
  Tensor sums = product.sum(1);
  if (padding >= 0)
    sums = sums.masked_fill(is_kept(indices, padding).logical_not(), 0);
  return to_type(sums, grad.scalar_type());
}

} // namespace headrace
