// order.cpp: sorting and selection. The core's rows work along the last dim: operands are passed with their dim moved
// there.
#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/native/BucketizationUtils.h>
#include <ATen/native/ReduceOpsUtils.h>
#include <ATen/ops/full.h>
#include <ATen/ops/result_type.h>

#include "kernels.h"
#include "versions.h"

namespace headrace {
namespace {

void check_here(const Tensor &self) {
  if (!is_on_device(self))
    fail_device(self);
}

void check_sortable(const char *name, const Tensor &self) {
  check_here(self);
  TORCH_CHECK_NOT_IMPLEMENTED(!self.is_complex(), name, " does not support complex dtypes on the device");
}

// torch's kernels refuse a dtype after the checks of sizes, by their own names.
void check_ordered(const char *kernel, const Tensor &self, bool serves_bools) {
  TORCH_CHECK_NOT_IMPLEMENTED(!self.is_complex() && (serves_bools || self.scalar_type() != ScalarType::Bool), "\"",
                              kernel, "\" not implemented for '", self.scalar_type(), "'");
}

// A tensor's view with dim `dim` at the end; a number is a line of one element.
struct Lines {
  Dims sizes, strides;
  Lines(const Tensor &tensor, int64_t dim) {
    for (int64_t i = 0; i < tensor.dim(); ++i) {
      if (i != dim)
        sizes.push_back(tensor.size(i)), strides.push_back(tensor.stride(i));
    }
    sizes.push_back(tensor.dim() == 0 ? 1 : tensor.size(dim));
    strides.push_back(tensor.dim() == 0 ? 1 : tensor.stride(dim));
  }
};

void in_lines(Record &record, const Tensor &tensor, int64_t dim) {
  Lines lines(tensor, dim);
  record.in(tensor, lines.sizes, lines.strides);
}

void out_lines(Record &record, const Tensor &tensor, int64_t dim) {
  Lines lines(tensor, dim);
  record.out(tensor, lines.sizes, lines.strides);
}

} // namespace

Tensor2 sort(Result values, Result indices, const Tensor &self, int64_t dim, bool descending) {
  check_here(self);
  int64_t along = at::maybe_wrap_dim(dim, self.dim());
  HEADRACE_CHECK_ORDERED(!self.is_complex(), "sort does not support complex dtypes on the device");
  std::vector<int64_t> strides = at::infer_dense_strides(self.sizes(), self.strides());
  Tensor sorted = values.is_fresh() ? new_tensor(self.sizes(), strides, self.scalar_type())
                                    : values.begin_exact(self.sizes(), self.scalar_type(), {self});
  Tensor places = indices.is_fresh() ? new_tensor(self.sizes(), strides, ScalarType::Long)
                                     : indices.begin_exact(self.sizes(), ScalarType::Long, {self});
  if (self.numel() > 0) {
    Record record(HR_OP_SORT);
    in_lines(record, self, along);
    out_lines(record.ints({descending}), sorted, along);
    out_lines(record, places, along);
    record.run();
  }
  return {values.end(sorted), indices.end(places)};
}

Tensor2 topk(Result values, Result indices, const Tensor &self, int64_t k, int64_t dim, bool largest) {
  check_here(self);
  int64_t along = at::maybe_wrap_dim(dim, self.dim());
  TORCH_CHECK(k >= 0 && k <= (self.dim() > 0 ? self.size(along) : 1), "selected index k out of range");
  HEADRACE_CHECK_ORDERED(!self.is_complex(), "topk does not support complex dtypes on the device");
  HEADRACE_CHECK_SERVED(self.scalar_type() != ScalarType::Bool, "topk does not support bool dtypes on the device");
  Dims sizes(self.sizes().begin(), self.sizes().end());
  if (self.dim() > 0)
    sizes[along] = k;
  Tensor best = values.begin_exact(sizes, self.scalar_type(), {self}),
         places = indices.begin_exact(sizes, ScalarType::Long, {self});
  if (best.numel() > 0 && k > 0) {
    Record record(HR_OP_TOPK);
    in_lines(record, self, along);
    out_lines(record.ints({largest}), best, along);
    out_lines(record, places, along);
    record.run();
  }
  return {values.end(best), indices.end(places)};
}

// ---- one value of a line

namespace {

// The sizes of a result without dim `dim`, or with 1 there.
Dims reduced_sizes(const Tensor &self, int64_t dim, bool keepdim) {
  Dims sizes;
  for (int64_t i = 0; i < self.dim(); ++i) {
    if (i != dim || keepdim)
      sizes.push_back(i == dim ? 1 : self.size(i));
  }
  return sizes;
}

// Adds the output in the rows' form, whose rank is one less than the input's.
void out_reduced(Record &record, const Tensor &out, int64_t dim, bool keepdim) {
  Dims sizes, strides;
  for (int64_t i = 0; i < out.dim(); ++i) {
    if (i != dim || !keepdim)
      sizes.push_back(out.size(i)), strides.push_back(out.stride(i));
  }
  record.out(out, sizes, strides);
}

Tensor2 pick(Result values, Result indices, hr_op op, const Tensor &self, int64_t dim, bool keepdim, IntArrayRef ints) {
  Dims sizes = reduced_sizes(self, dim, keepdim);
  Tensor value = values.begin_exact(sizes, self.scalar_type(), {self}),
         place = indices.begin_exact(sizes, ScalarType::Long, {self});
  if (value.numel() > 0) {
    Record record(op);
    in_lines(record, self, dim);
    out_reduced(record.ints(ints), value, dim, keepdim);
    out_reduced(record, place, dim, keepdim);
    record.run();
  }
  return {values.end(value), indices.end(place)};
}

// A number is its own only value, of any dtype.
Tensor2 pick_number(Result values, Result indices, const Tensor &self) {
  Tensor value = values.begin_exact({}, self.scalar_type(), {self}),
         place = indices.begin_exact({}, ScalarType::Long, {self});
  copy_on_device(self, value);
  return {values.end(value), indices.end(fill_with(place, 0))};
}

} // namespace

Tensor2 kthvalue(Result values, Result indices, const Tensor &self, int64_t k, int64_t dim, bool keepdim) {
  check_here(self);
  int64_t along = at::maybe_wrap_dim(dim, self.dim());
  at::native::zero_numel_check_dims(self, along, "kthvalue()");
  TORCH_CHECK(k >= 1 && k <= (self.dim() > 0 ? self.size(along) : 1),
              "kthvalue(): selected number k out of range for dimension ", along);
  if (!values.is_fresh())
    at::assert_no_overlap(values.tensor(), self);
  if (self.dim() == 0)
    return pick_number(values, indices, self);
  check_ordered("kthvalue_cpu", self, /*serves_bools=*/false);
  return pick(values, indices, HR_OP_KTH, self, along, keepdim, {0, k - 1});
}

Tensor2 median_dim(Result values, Result indices, const Tensor &self, int64_t dim, bool keepdim, bool ignores_nan) {
  check_here(self);
  int64_t along = at::maybe_wrap_dim(dim, self.dim());
  at::native::zero_numel_check_dims(self, along, ignores_nan ? "nanmedian()" : "median()");
  check_ordered("median_out", self, /*serves_bools=*/false);
  return pick(values, indices, HR_OP_KTH, self, along, keepdim, {ignores_nan ? 2 : 1, 0});
}

Tensor median(const Tensor &self, bool ignores_nan) {
  check_here(self);
  ScalarType type = self.scalar_type();
  Tensor out = new_tensor({}, type);
  if (self.numel() == 0) // the result of casting NaN: true, the lowest number for 32 and 64 bits, 0 for fewer
    return fill_with(out, !c10::isIntegralType(type, true) ? Scalar(std::numeric_limits<double>::quiet_NaN())
                          : type == ScalarType::Long       ? Scalar(std::numeric_limits<int64_t>::min())
                          : type == ScalarType::Int        ? Scalar(std::numeric_limits<int32_t>::min())
                                                           : Scalar(type == ScalarType::Bool));
  check_ordered("median_cpu", self, /*serves_bools=*/false);
  Tensor flat = self.reshape({-1});
  Record record(HR_OP_KTH);
  record.in(flat).ints({ignores_nan ? 2 : 1, 0}).out(out).run();
  return out;
}

Tensor2 mode_dim(Result values, Result indices, const Tensor &self, int64_t dim, bool keepdim) {
  check_here(self);
  int64_t along = at::maybe_wrap_dim(dim, self.dim());
  at::native::zero_numel_check_dims(self, along, "mode()");
  if (self.dim() == 0)
    return pick_number(values, indices, self);
  if (self.numel() > 0)
    check_ordered("mode_cpu", self, /*serves_bools=*/true);
  return pick(values, indices, HR_OP_MODE, self, along, keepdim, {});
}

void cumulate(hr_op op, const Tensor &self, const Tensor &values, const Tensor &indices, int64_t dim) {
  check_here(self);
  int64_t along = at::maybe_wrap_dim(dim, self.dim());
  if (self.numel() == 0)
    return;
  check_ordered(op == HR_OP_CUMMAX ? "cummax_cpu" : "cummin_cpu", self, /*serves_bools=*/true);
  Record record(op);
  in_lines(record, self, along);
  out_lines(record, values, along);
  out_lines(record, indices, along);
  record.run();
}

// ---- positions in ordered boundaries

Tensor search_sorted(Result result, const Tensor &boundaries, const Tensor &self, bool out_int32, bool right,
                     std::optional<std::string_view> side, const OptionalTensor &sorter) {
  Tensor order = sorter.value_or(Tensor());
  ScalarType type = out_int32 ? ScalarType::Int : ScalarType::Long;
  at::native::searchsorted_pre_check(boundaries, self, result.is_fresh() ? new_tensor({0}, type) : result.tensor(),
                                     out_int32, right, side, order);
  check_sortable("searchsorted", boundaries);
  ScalarType common =
      boundaries.scalar_type() == self.scalar_type() ? self.scalar_type() : at::result_type(boundaries, self);
  Tensor values = to_type(is_on_device(self) ? self : self.to(here()), common), bounds = to_type(boundaries, common);
  Tensor out = result.begin(self.sizes(), type, {self, boundaries, order});
  if (out.numel() == 0)
    return result.end(out);
  if (bounds.numel() == 0) {
    fill_with(out, 0);
    return result.end(out);
  }
  bool behind = right || (side.has_value() && *side == "right"), is_shared = bounds.dim() == 1;
  Tensor flat = is_shared ? values.reshape({-1}) : values, places = is_shared ? new_tensor({out.numel()}, type) : out;
  if (is_shared && out.is_contiguous())
    places = out.view({-1});
  Record record(HR_OP_SEARCH);
  record.in(bounds).in(flat);
  if (order.defined())
    record.in(order);
  else
    record.absent();
  record.ints({behind}).out(places).run();
  if (is_shared && !out.is_contiguous())
    copy_on_device(places.view(out.sizes()), out);
  return result.end(out);
}

Tensor search_sorted(Result result, const Tensor &boundaries, const Scalar &self, bool out_int32, bool right,
                     std::optional<std::string_view> side, const OptionalTensor &sorter) {
  Tensor number = at::native::searchsorted_scalar_tensor(self, c10::Device(c10::DeviceType::CPU));
  ScalarType type = at::result_type(boundaries, number);
  Tensor value = new_tensor({}, type);
  fill_with(value, self);
  return search_sorted(result, to_type(boundaries, type), value, out_int32, right, side, sorter);
}

// ---- distinct values: their number is read before the results are created

Tensor3 unique_rows(const Tensor &self, int64_t dim, bool consecutive, bool return_inverse, bool return_counts) {
  check_sortable("unique", self);
  int64_t along = at::maybe_wrap_dim(dim, self.dim()), count = self.dim() == 0 ? 1 : self.size(along);
  Tensor none = new_tensor({0}, ScalarType::Long);
  if (count == 0) {
    for (int64_t i = 0; i < self.dim(); ++i)
      TORCH_CHECK(i == along || self.size(i) > 0 || self.dim() == 1,
                  "There are 0 sized dimensions, and they aren't selected, so unique cannot be applied");
    return {new_like(self), none, none};
  }
  TORCH_CHECK(self.numel() > 0, "There are 0 sized dimensions, and they aren't selected, so unique cannot be applied");
  Tensor rows = self.dim() <= 1 ? self.reshape({count, 1}) : self.movedim(along, 0).reshape({count, -1});
  Tensor first = new_tensor({count}, ScalarType::Long), found = new_tensor({1}, ScalarType::Long);
  Tensor inverse = return_inverse ? new_tensor({count}, ScalarType::Long) : Tensor();
  Tensor counts = return_counts ? new_tensor({count}, ScalarType::Long) : Tensor();
  Record record(HR_OP_UNIQUE);
  record.in(rows).ints({consecutive}).out(first).out(inverse).out(counts).out(found).run();
  int64_t different = found.item<int64_t>();
  Tensor places = first.narrow(0, 0, different);
  Tensor result = self.dim() == 0 ? self.reshape({1}) : index_select(Result::fresh(), self, along, places);
  return {result, return_inverse ? inverse : none, return_counts ? counts.narrow(0, 0, different).clone() : none};
}

Tensor3 unique_values(const Tensor &self, bool consecutive, bool return_inverse, bool return_counts) {
  auto [values, inverse, counts] = unique_rows(self.reshape({-1}), 0, consecutive, return_inverse, return_counts);
  return {values, return_inverse ? inverse.view(self.sizes()) : inverse, counts};
}

Tensor2 unique_values(const Tensor &self, bool return_inverse) {
  auto [values, inverse, counts] = unique_values(self, false, return_inverse, false);
  return {values, inverse};
}

Tensor3 unique_consecutive(const Tensor &self, bool return_inverse, bool return_counts, std::optional<int64_t> dim) {
  if (!dim.has_value() || (*dim == 0 && self.dim() == 1))
    return unique_values(self, true, return_inverse, return_counts);
  return unique_rows(self, *dim, true, return_inverse, return_counts);
}

} // namespace headrace
