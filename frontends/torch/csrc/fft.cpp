// fft.cpp: Fourier transforms along any dims, one after the other.
//
// Complex transforms keep the order of dims in memory. The result of a real one has the transformed dim innermost in
// memory, as the core's rows require: only inputs are copied.
#include <ATen/WrapDimUtils.h>

#include <algorithm>
#include <numeric>

#include "kernels.h"

namespace headrace {
namespace {

// A tensor's view with dim `dim` at the end.
struct Moved {
  Dims sizes, strides;
  Moved(const Tensor &tensor, int64_t dim) {
    for (int64_t i = 0; i < tensor.dim(); ++i) {
      if (i != dim)
        sizes.push_back(tensor.size(i)), strides.push_back(tensor.stride(i));
    }
    sizes.push_back(tensor.size(dim)), strides.push_back(tensor.stride(dim));
  }
};

Tensor new_innermost(IntArrayRef sizes, int64_t dim, ScalarType type) {
  Dims strides(sizes.size(), 0);
  int64_t stride = sizes[dim];
  for (int64_t i = static_cast<int64_t>(sizes.size()) - 1; i >= 0; --i) {
    strides[i] = i == dim ? 1 : stride;
    stride *= i == dim ? 1 : std::max<int64_t>(sizes[i], 1);
  }
  return new_tensor(sizes, strides, type);
}

// torch's normalization: by 1, by the root of the number of elements, or by that number.
double factor_of(int64_t normalization, IntArrayRef sizes, IntArrayRef dims) {
  double count = 1;
  for (int64_t dim : dims)
    count *= static_cast<double>(sizes[dim]);
  return normalization == 0 ? 1.0 : normalization == 1 ? 1.0 / std::sqrt(count) : 1.0 / count;
}

Tensor transform(hr_op op, const Tensor &self, int64_t dim, int64_t size, ScalarType type, double factor) {
  Dims sizes(self.sizes().begin(), self.sizes().end());
  sizes[dim] = size;
  Tensor out = new_innermost(sizes, dim, type);
  if (out.numel() == 0)
    return out;
  TORCH_CHECK(self.numel() > 0, "Invalid number of data points (", self.size(dim), ") specified");
  Moved from(self, dim), to(out, dim);
  Record record(op);
  record.in(self, from.sizes, from.strides).num(factor).out(out, to.sizes, to.strides).run();
  return out;
}

// Transforms complex numbers over the dims in memory order, the outermost first.
Tensor transform_complex(const Tensor &self, int64_t dim, double factor, bool inverse) {
  int64_t rank = self.dim(), after = 0, stride = 1;
  Dims order(rank, 0), sizes(rank, 0), from(rank, 0), to(rank, 0), strides(rank, 0);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return self.stride(a) > self.stride(b); });
  for (int64_t i = rank - 1; i >= 0; --i) {
    int64_t d = order[i];
    sizes[i] = self.size(d), from[i] = self.stride(d), to[i] = strides[d] = stride;
    stride *= std::max<int64_t>(sizes[i], 1);
    after = d == dim ? rank - 1 - i : after;
  }
  Tensor out = new_tensor(self.sizes(), strides, self.scalar_type());
  if (out.numel() == 0)
    return out;
  Record record(HR_OP_FFT);
  record.in(self, sizes, from).ints({inverse, after}).num(factor).out(out, sizes, to).run();
  return out;
}

Dims wrapped(const Tensor &self, IntArrayRef dims) {
  Dims result;
  for (int64_t dim : dims)
    result.push_back(at::maybe_wrap_dim(dim, self.dim()));
  return result;
}

void check_type(const Tensor &self, bool is_complex) {
  if (!is_on_device(self))
    fail_device(self);
  ScalarType type = c10::toRealValueType(self.scalar_type());
  TORCH_CHECK(self.is_complex() == is_complex && (type == ScalarType::Float || type == ScalarType::Double),
              "Unsupported dtype ", self.scalar_type());
}

Tensor finish(Result result, const Tensor &made) {
  if (result.is_fresh())
    return made;
  Tensor out = result.begin(made.sizes(), made.scalar_type());
  copy_on_device(made, out);
  return result.end(out);
}

Tensor all_complex(Tensor x, IntArrayRef dims, double factor, bool forward) {
  for (size_t i = 0; i < dims.size(); ++i)
    x = transform_complex(x, dims[i], i + 1 == dims.size() ? factor : 1.0, !forward);
  return x;
}

} // namespace

Tensor fft_c2c(Result result, const Tensor &given, IntArrayRef dim, int64_t normalization, bool forward) {
  check_type(given, true);
  Tensor self = given.resolve_conj();
  Dims dims = wrapped(self, dim);
  if (dims.empty())
    return finish(result, self.clone());
  return finish(result, all_complex(self, dims, factor_of(normalization, self.sizes(), dims), forward));
}

Tensor fft_r2c(Result result, const Tensor &given, IntArrayRef dim, int64_t normalization, bool onesided) {
  check_type(given, false);
  Tensor self = given.resolve_neg();
  Dims dims = wrapped(self, dim);
  TORCH_CHECK(!dims.empty(), "_fft_r2c: expected at least one dim");
  double factor = factor_of(normalization, self.sizes(), dims);
  int64_t last = dims.back(), size = onesided ? self.size(last) / 2 + 1 : self.size(last);
  dims.pop_back();
  ScalarType type = c10::toComplexType(self.scalar_type());
  Tensor first = transform(HR_OP_FFT_REAL, self, last, size, type, dims.empty() ? factor : 1.0);
  return finish(result, all_complex(first, dims, factor, true));
}

Tensor fft_c2r(Result result, const Tensor &given, IntArrayRef dim, int64_t normalization, int64_t last_size) {
  check_type(given, true);
  Tensor self = given.resolve_conj();
  Dims dims = wrapped(self, dim);
  TORCH_CHECK(!dims.empty(), "_fft_c2r: expected at least one dim");
  int64_t last = dims.back(), half = last_size / 2 + 1;
  TORCH_CHECK(last_size >= 1, "Invalid number of data points (", last_size, ") specified");
  TORCH_CHECK(self.size(last) >= half, "_fft_c2r: expected at least ", half, " values along dim ", last, ", got ",
              self.size(last));
  Dims sizes(self.sizes().begin(), self.sizes().end());
  sizes[last] = last_size;
  double factor = factor_of(normalization, sizes, dims);
  if (self.size(last) > half)
    self = self.narrow(last, 0, half);
  dims.pop_back();
  Tensor values = all_complex(self, dims, 1.0, false);
  return finish(result,
                transform(HR_OP_FFT_HALF, values, last, last_size, c10::toRealValueType(self.scalar_type()), factor));
}

} // namespace headrace
