// jagged.cpp: rows of several lengths, one after the other, to and from a dense tensor with padding.
//
// values: [rows of all items, ...]; offsets: where each item begins, and the end; dense: [items, longest, ...].
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/where.h>

#include "kernels.h"

namespace headrace {
namespace {

const Tensor &only_offsets(TensorList offsets) {
  TORCH_CHECK(offsets.size() == 1, "headrace: expected one tensor of offsets, got ", offsets.size());
  TORCH_CHECK(offsets[0].dim() == 1 && offsets[0].numel() > 0,
              "headrace: offsets: expected a vector with the begin of "
              "each item and the end, got sizes ",
              offsets[0].sizes());
  return offsets[0];
}

// With ones for the other dims of x.
Tensor before_dims(const Tensor &mask, int64_t dims) {
  Dims sizes(mask.sizes().begin(), mask.sizes().end());
  sizes.resize(sizes.size() + static_cast<size_t>(dims), 1);
  return mask.reshape(sizes);
}

Dims with_rest(IntArrayRef first, const Tensor &x, int64_t skipped) {
  Dims sizes(first.begin(), first.end());
  sizes.append(x.sizes().begin() + skipped, x.sizes().end());
  return sizes;
}

// The rows of x at the places that are valid, elsewhere the padding.
Tensor pick_rows(const Tensor &x, const Tensor &places, const Tensor &valid, double padding) {
  Dims sizes = with_rest(valid.sizes(), x, 1);
  if (x.size(0) == 0)
    return fill_with(new_tensor(sizes, x.scalar_type()), padding);
  Tensor rows = x.index_select(0, places.clamp(0, x.size(0) - 1).reshape({-1})).reshape(sizes);
  return to_type(at::where(before_dims(valid, x.dim() - 1), rows, Scalar(padding)), x.scalar_type());
}

} // namespace

Tensor jagged_to_padded(const Tensor &values, TensorList offsets, IntArrayRef max_lengths, double padding) {
  Tensor limits = to_type(only_offsets(offsets), ScalarType::Long);
  TORCH_CHECK(max_lengths.size() == 1, "headrace: expected one longest length, got ", max_lengths.size());
  int64_t count = limits.size(0) - 1;
  Tensor begin = limits.narrow(0, 0, count).unsqueeze(1), end = limits.narrow(0, 1, count).unsqueeze(1);
  Tensor places = begin + at::arange(max_lengths[0], limits.options());
  return pick_rows(values, places, places.lt(end), padding);
}

Tensor padded_to_jagged(const Tensor &dense, TensorList offsets, std::optional<int64_t> total) {
  Tensor limits = to_type(only_offsets(offsets), ScalarType::Long);
  int64_t count = limits.size(0) - 1, longest = dense.size(1);
  TORCH_CHECK(dense.size(0) == count, "headrace: the offsets are of ", count, " items, the tensor has ", dense.size(0));
  int64_t rows = total.has_value() ? *total : limits[count].item<int64_t>();
  if (count == 0 || longest == 0)
    return fill_with(new_tensor(with_rest({rows}, dense, 2), dense.scalar_type()), 0);
  Tensor row = at::arange(rows, limits.options());
  Tensor item = at::searchsorted(limits.narrow(0, 1, count).contiguous(), row, false, true).clamp(0, count - 1);
  Tensor place = row - limits.index_select(0, item);
  Tensor lines = dense.reshape(with_rest({count * longest}, dense, 2));
  return pick_rows(lines, item * longest + place, place.lt(longest).logical_and(row.lt(limits[count])), 0);
}

} // namespace headrace
