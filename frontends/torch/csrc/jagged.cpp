// jagged.cpp: rows of several lengths, one after the other, to and from a dense tensor with padding; products of groups
// of rows, one after the other, each with a matrix of its own.
//
// values: [rows of all items, ...]; offsets: where each item begins, and the end; dense: [items, longest, ...].
#include <ATen/TensorOperators.h>
#include <ATen/ops/_grouped_mm_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/where.h>

#include "kernels.h"
#include "registration.h"

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

namespace {

// torch's products of groups need rows or columns without gaps that begin at multiples of 16 bytes.
bool has_aligned_lines(const Tensor &x) {
  auto is_line = [&x](int64_t inner, int64_t outer) {
    return x.stride(inner) == 1 && x.stride(outer) >= std::max<int64_t>(1, x.size(inner)) &&
           x.stride(outer) * static_cast<int64_t>(x.element_size()) % 16 == 0;
  };
  return is_line(-1, -2) || is_line(-2, -1);
}

// True if the products of all rows with all matrices cost less than waiting for the groups' sizes.
bool are_small_groups(const Tensor &x, const Tensor &matrices) {
  constexpr int64_t kNumbersMax = 1 << 18, kProductsMax = 1 << 23;
  int64_t rows = x.size(0), groups = matrices.size(0), numbers = matrices.numel();
  return rows > 0 && numbers > 0 && rows <= kProductsMax / numbers && (rows >= groups || numbers <= kNumbersMax);
}

bool may_multiply_all(const Tensor &x, const Tensor &matrices, const OptionalTensor &ends, const OptionalTensor &bias,
                      std::optional<ScalarType> dtype) {
  return ends.has_value() && ends->dim() == 1 && ends->scalar_type() == ScalarType::Int && is_on_device(*ends) &&
         is_on_device(x) && is_on_device(matrices) && !bias.has_value() &&
         dtype.value_or(x.scalar_type()) == x.scalar_type() && x.scalar_type() == matrices.scalar_type() &&
         x.is_floating_point() && x.dim() == 2 && matrices.dim() == 3 && ends->size(0) == matrices.size(0) &&
         x.size(1) == matrices.size(1) && matrices.size(2) * static_cast<int64_t>(x.element_size()) % 16 == 0 &&
         has_aligned_lines(x) && has_aligned_lines(matrices) && are_small_groups(x, matrices);
}

// x: [rows of all groups, inner]; matrices: [groups, inner, columns]; ends: where each group's rows end. torch's own
// kernel waits for the ends, and its programs depend on them.
Tensor grouped_product(const Tensor &x, const Tensor &matrices, const OptionalTensor &ends, const OptionalTensor &bias,
                       std::optional<ScalarType> dtype) {
  if (!may_multiply_all(x, matrices, ends, bias, dtype))
    return at::compositeexplicitautograd::_grouped_mm(x, matrices, ends, bias, dtype);
  int64_t rows = x.size(0), groups = matrices.size(0);
  Tensor group = at::arange(rows, ends->options()).unsqueeze(1).ge(*ends).sum(1);
  Tensor own = group.eq(at::arange(groups, ends->options()).unsqueeze(1)).unsqueeze(2);
  Tensor products = at::bmm(x.unsqueeze(0).expand({groups, rows, x.size(1)}), matrices);
  return at::where(own, products, Scalar(0)).sum(0);
}

HEADRACE_KERNELS(aten, PrivateUse1, m) {
  m.impl("_grouped_mm", TORCH_FN(grouped_product));
}

} // namespace
} // namespace headrace
