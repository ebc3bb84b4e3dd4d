// order.cpp: sorting and selection. The core's rows work along the last dim: operands are given with theirs moved there.
#include <ATen/WrapDimUtils.h>

#include "kernels.h"

namespace headrace {
namespace {

void check_sortable(const char *name, const Tensor &self) {
  if (!is_on_device(self))
    fail_device(self);
  TORCH_CHECK(!self.is_complex(), name, " does not support complex dtypes on the device");
}

// A tensor's view with dim `dim` at the end; a number is a line of one.
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
  check_sortable("sort", self);
  int64_t along = at::maybe_wrap_dim(dim, self.dim());
  Tensor sorted = values.is_fresh() ? new_like(self) : values.begin(self.sizes(), self.scalar_type(), {self});
  Tensor places =
      indices.is_fresh() ? new_like(self, ScalarType::Long) : indices.begin(self.sizes(), ScalarType::Long, {self});
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
  check_sortable("topk", self);
  TORCH_CHECK(self.scalar_type() != ScalarType::Bool, "topk does not support bool dtypes on the device");
  int64_t along = at::maybe_wrap_dim(dim, self.dim());
  TORCH_CHECK(k >= 0 && k <= (self.dim() > 0 ? self.size(along) : 1), "selected index k out of range");
  Dims sizes(self.sizes().begin(), self.sizes().end());
  if (self.dim() > 0)
    sizes[along] = k;
  Tensor best = values.begin(sizes, self.scalar_type(), {self}),
         places = indices.begin(sizes, ScalarType::Long, {self});
  if (best.numel() > 0 && k > 0) {
    Record record(HR_OP_TOPK);
    in_lines(record, self, along);
    out_lines(record.ints({largest}), best, along);
    out_lines(record, places, along);
    record.run();
  }
  return {values.end(best), indices.end(places)};
}

} // namespace headrace
