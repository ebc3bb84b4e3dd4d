// views.cpp: the views that programs take most, without torch's way through as_strided (a dispatch, and a check of
// bounds that hold). Arguments that torch would reject, named dims and unusual cases are left to torch.
#include <ATen/ExpandUtils.h>
#include <ATen/InferSize.h>
#include <ATen/TensorUtils.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/ops/expand_native.h>
#include <ATen/ops/select_native.h>
#include <ATen/ops/slice_native.h>
#include <ATen/ops/split_native.h>
#include <ATen/ops/transpose_native.h>
#include <ATen/ops/unsqueeze_native.h>

#include <algorithm>
#include <limits>

#include "kernels.h"

namespace headrace {
namespace {

// A view as torch's kernels make it: autograd shares the version counter afterwards.
Tensor alias(const Tensor &self, IntArrayRef sizes, IntArrayRef strides, int64_t offset) {
  Tensor view = at::detail::make_tensor<c10::TensorImpl>(c10::TensorImpl::VIEW, c10::Storage(self.storage()),
                                                         self.key_set(), self.dtype());
  view.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides, offset);
  return view;
}

// torch 2.13 has no named dims any more.
bool is_named(const Tensor &self) {
#if __has_include(<ATen/NamedTensorUtils.h>)
  return self.has_names();
#else
  (void)self;
  return false;
#endif
}

bool has_dim(const Tensor &self, int64_t dim) {
  return dim < self.dim() && dim >= -self.dim();
}

int64_t wrapped(int64_t dim, int64_t rank) {
  return dim < 0 ? dim + rank : dim;
}

Dims copy_of(IntArrayRef values) {
  return {values.begin(), values.end()};
}

} // namespace

Tensor view_transpose(const Tensor &self, int64_t dim0, int64_t dim1) {
  if (!has_dim(self, dim0) || !has_dim(self, dim1) || is_named(self))
    return at::native::transpose(self, dim0, dim1);
  Dims sizes = copy_of(self.sizes()), strides = copy_of(self.strides());
  int64_t a = wrapped(dim0, self.dim()), b = wrapped(dim1, self.dim());
  std::swap(sizes[a], sizes[b]), std::swap(strides[a], strides[b]);
  return alias(self, sizes, strides, self.storage_offset());
}

Tensor view_select(const Tensor &self, int64_t dim, int64_t index) {
  int64_t size = has_dim(self, dim) ? self.size(dim) : 0;
  if (index >= size || index < -size || is_named(self))
    return at::native::select_symint(self, dim, index);
  Dims sizes = copy_of(self.sizes()), strides = copy_of(self.strides());
  int64_t d = wrapped(dim, self.dim()), offset = self.storage_offset() + wrapped(index, size) * strides[d];
  sizes.erase(sizes.begin() + d), strides.erase(strides.begin() + d);
  return alias(self, sizes, strides, offset);
}

Tensor view_slice(const Tensor &self, int64_t dim, std::optional<int64_t> start, std::optional<int64_t> end,
                  int64_t step) {
  bool is_default = start.has_value() && *start == std::numeric_limits<int64_t>::max(); // an old form of "none"
  if (!has_dim(self, dim) || step <= 0 || is_default || is_named(self))
    return at::native::slice(self, dim, start, end, step);
  Dims sizes = copy_of(self.sizes()), strides = copy_of(self.strides());
  int64_t d = wrapped(dim, self.dim()), size = sizes[d];
  auto place = [size](int64_t at, int64_t lowest) {
    return std::clamp(at < 0 ? at + size : at, lowest, std::max(size, lowest));
  };
  int64_t first = start.has_value() ? place(*start, 0) : 0, last = end.has_value() ? place(*end, first) : size;
  int64_t offset = self.storage_offset() + first * strides[d];
  sizes[d] = (last - first) / step + ((last - first) % step != 0);
  strides[d] *= step;
  return alias(self, sizes, strides, offset);
}

Tensor view_unsqueeze(const Tensor &self, int64_t dim) {
  int64_t rank = self.dim() + 1;
  if (dim >= rank || dim < -rank || is_named(self))
    return at::native::unsqueeze(self, dim);
  Dims sizes = copy_of(self.sizes()), strides = copy_of(self.strides());
  int64_t d = wrapped(dim, rank), stride = d < self.dim() ? sizes[d] * strides[d] : 1;
  sizes.insert(sizes.begin() + d, 1), strides.insert(strides.begin() + d, stride);
  return alias(self, sizes, strides, self.storage_offset());
}

Tensor view_expand(const Tensor &self, IntArrayRef size) {
  if (static_cast<int64_t>(size.size()) < self.dim() || is_named(self))
    return at::native::expand(self, size);
  auto wide = at::inferExpandGeometry_dimvector(self.sizes(), self.strides(), size);
  return alias(self, wide.sizes, wide.strides, self.storage_offset());
}

Tensor view_reshape(const Tensor &self, IntArrayRef size) {
  if (is_named(self))
    return {};
  at::DimVector sizes = at::infer_size_dv(size, self.numel());
  std::optional<at::DimVector> strides = at::detail::computeStride(self.sizes(), self.strides(), sizes);
  return strides.has_value() ? alias(self, sizes, *strides, self.storage_offset()) : Tensor();
}

std::vector<Tensor> view_split(const Tensor &self, int64_t split_size, int64_t dim) {
  int64_t size = has_dim(self, dim) ? self.size(dim) : 0;
  if (split_size <= 0 || size == 0 || is_named(self))
    return at::native::split(self, split_size, dim);
  Dims sizes = copy_of(self.sizes());
  int64_t d = wrapped(dim, self.dim()), offset = self.storage_offset();
  std::vector<Tensor> parts;
  parts.reserve(size / split_size + 1);
  for (int64_t first = 0; first < size; first += sizes[d]) {
    sizes[d] = std::min(split_size, size - first);
    parts.push_back(alias(self, sizes, self.strides(), offset + first * self.stride(d)));
  }
  return parts;
}

} // namespace headrace
