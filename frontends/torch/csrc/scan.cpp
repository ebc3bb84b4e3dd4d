// scan.cpp: running products and sums of exponentials, distances, and composed reductions.
#include <ATen/TensorOperators.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "kernels.h"

namespace headrace {

static Tensor scan(Result result, hr_op op, const Tensor &self, int64_t dim, ScalarType type) {
  int64_t along = at::maybe_wrap_dim(dim, self.dim());
  Tensor out = result.begin(self.sizes(), type, {self});
  if (out.numel() > 0) {
    Record record(op);
    record.in(self).ints({along}).out(out).run();
  }
  return result.end(out);
}

Tensor cumprod(Result result, const Tensor &self, int64_t dim, std::optional<ScalarType> dtype) {
  ScalarType type = scan_type(result, self, dtype);
  TORCH_CHECK_NOT_IMPLEMENTED(!result.is_inplace() || self.scalar_type() != ScalarType::Bool || self.numel() == 0,
                              "\"cumprod\" not implemented for 'Bool'");
  return scan(result.exact_if(true), HR_OP_CUMPROD, self, dim, type);
}

Tensor logcumsumexp(Result result, const Tensor &self, int64_t dim) {
  TORCH_CHECK_NOT_IMPLEMENTED(c10::isFloatingType(self.scalar_type()) || self.is_complex(),
                              "\"logcumsumexp_out_cpu\" not implemented for '", self.scalar_type(), "'");
  return scan(result, HR_OP_LOGCUMSUMEXP, self, dim, self.scalar_type());
}

Tensor trace(const Tensor &self) {
  TORCH_CHECK(self.dim() == 2, "trace: expected a matrix");
  return self.diagonal().sum();
}

Tensor nansum(Result result, const Tensor &self, OptionalIntArrayRef dims, bool keepdim,
              std::optional<ScalarType> dtype) {
  bool is_integral = c10::isIntegralType(self.scalar_type(), true);
  TORCH_CHECK_NOT_IMPLEMENTED(is_integral || result.is_fresh() ||
                                  !c10::isIntegralType(result.tensor().scalar_type(), true),
                              "\"nansum_cpu\" not implemented for an integral result");
  Tensor numbers = is_integral ? self : at::where(self.isnan(), Scalar(0), self);
  return headrace::sum(result, numbers, dims, keepdim, dtype);
}

Tensor count_nonzero(const Tensor &self, IntArrayRef dims) {
  return headrace::sum(Result::fresh(), self.ne(0), dims, false, ScalarType::Long);
}

// ---- distances

static Tensor pairs_between(const Tensor &a, const Tensor &b) {
  return a.unsqueeze(-2) - b.unsqueeze(-3);
}

Tensor cdist_forward(const Tensor &a, const Tensor &b, double p) {
  TORCH_CHECK(a.dim() > 1 && b.dim() > 1, "cdist only supports at least 2D tensors, X1 got: ", a.dim(),
              "D, X2 got: ", b.dim(), "D");
  TORCH_CHECK(a.size(-1) == b.size(-1), "X1 and X2 must have the same number of columns. X1: ", a.size(-1),
              " X2: ", b.size(-1));
  TORCH_CHECK(c10::isFloatingType(a.scalar_type()) && c10::isFloatingType(b.scalar_type()),
              "cdist only supports floating-point dtypes, X1 got: ", a.scalar_type());
  TORCH_CHECK(p >= 0, "cdist only supports non-negative p values");
  // Sums of up to 32 elements are computed one in each vector lane: elements read by neighbouring lanes should be
  // neighbours.
  bool is_short = a.size(-1) <= 32 && !device_runs_beside.load(std::memory_order_relaxed);
  Tensor apart = pairs_between(a, is_short ? b.transpose(-1, -2).contiguous().transpose(-1, -2) : b);
  if (apart.size(-1) == 0)
    return fill_with(new_tensor(apart.sizes().slice(0, apart.dim() - 1), a.scalar_type()), 0);
  return at::linalg_vector_norm(apart, p, IntArrayRef{-1});
}

// The derivative of each distance with respect to each of its differences.
static Tensor distance_slope(const Tensor &apart, const Tensor &grad, const Tensor &distance, double p) {
  Tensor g = grad.unsqueeze(-1), size = apart.abs(), d = distance.unsqueeze(-1);
  if (p == 0)
    return at::zeros_like(apart);
  if (p == 1)
    return apart.sign() * g;
  if (std::isinf(p))
    return apart.sign() * size.eq(d).to(apart.scalar_type()) * g;
  Tensor slope = p == 2 ? apart * g / d : apart.sign() * size.pow(p - 1) * g / d.pow(p - 1);
  Tensor is_flat = p < 1 ? d.eq(0).logical_or(apart.eq(0)) : d.eq(0);
  return at::where(is_flat, Scalar(0.0), slope);
}

Tensor cdist_backward(const Tensor &grad, const Tensor &a, const Tensor &b, double p, const Tensor &distance) {
  Tensor apart = pairs_between(a, b);
  if (apart.numel() == 0)
    return at::zeros_like(a);
  Tensor slopes = distance_slope(apart, grad, distance, p).sum(-2);
  Dims sizes(slopes.sizes().begin(), slopes.sizes().end());
  return slopes.sizes().equals(a.sizes()) ? slopes : slopes.sum_to_size(a.sizes());
}

// The positions of the pairs (i, j), i < j < n, in a matrix of n columns, in order. Row i begins with pair s = i (2 n -
// 1 - i) / 2, so i = (2 n - 1 - sqrt((2 n - 1)^2 - 8 s)) / 2. In f64 this is exact at a row's start, and between two
// rows its distance from the next row exceeds the rounding error.
static Tensor places_of_pairs(int64_t n, int64_t count, const Tensor &like) {
  int64_t odd = 2 * n - 1;
  Tensor pair = at::arange(count, like.options().dtype(ScalarType::Long));
  Tensor root = (pair * -8 + odd * odd).to(ScalarType::Double).sqrt();
  Tensor i = ((static_cast<double>(odd) - root) * 0.5).to(ScalarType::Long);
  Tensor before = (i * (odd - i)).bitwise_right_shift(1);
  return i * n + (pair - before + i + 1);
}

Tensor pdist_forward(const Tensor &self, double p) {
  constexpr int64_t kBandRows = 512, kBands = 4;
  int64_t n = self.size(0), count = n <= 1 ? 0 : n * (n - 1) / 2;
  TORCH_CHECK(self.dim() == 2, "pdist only supports 2D tensors, got: ", self.dim(), "D");
  if (count == 0 || self.size(1) == 0)
    return fill_with(new_tensor({count}, self.scalar_type()), 0);
  // No row is gathered, and a loop over columns is vectorised: computes the distances from each band of rows to all
  // rows from its first on. With few bands most of these are needed.
  int64_t bands = n < kBandRows ? 1 : kBands;
  Tensor apart = new_tensor({n, n}, self.scalar_type());
  for (int64_t band = 0; band < bands; ++band) {
    int64_t row = n * band / bands, rows = n * (band + 1) / bands - row, columns = n - row;
    Tensor distances = cdist_forward(self.narrow(0, row, rows), self.narrow(0, row, columns), p);
    apart.narrow(0, row, rows).narrow(1, row, columns).copy_(distances);
  }
  return apart.reshape({-1}).index_select(0, places_of_pairs(n, count, self));
}

// The pairs' numbers as a symmetric matrix with zeros on the diagonal.
static Tensor matrix_of_pairs(const Tensor &numbers, const Tensor &places, int64_t n) {
  Tensor half = at::zeros({n * n}, numbers.options()).index_copy(0, places, numbers).view({n, n});
  return half + half.t();
}

// Works in bands of rows: fused intermediate results are never stored, but count as pending. For p = 2 the factor of a
// difference is one number per pair.
Tensor pdist_backward(const Tensor &grad, const Tensor &self, double p, const Tensor &distance) {
  constexpr int64_t kBandElements = int64_t{1} << 24;
  int64_t n = self.size(0);
  if (grad.numel() == 0 || self.numel() == 0)
    return at::zeros_like(self);
  Tensor places = places_of_pairs(n, grad.numel(), self), far;
  Tensor factor = p == 2 ? at::where(distance.eq(0), Scalar(0.0), grad / distance).to(self.scalar_type()) : grad;
  factor = matrix_of_pairs(factor, places, n);
  if (p != 2)
    far = matrix_of_pairs(distance, places, n);
  std::vector<Tensor> bands;
  int64_t most = std::max<int64_t>(1, kBandElements / (n * self.size(1)));
  for (int64_t row = 0; row < n; row += most) {
    int64_t count = std::min(most, n - row);
    Tensor own = self.narrow(0, row, count), by = factor.narrow(0, row, count);
    bands.push_back(p == 2 ? (pairs_between(own, self) * by.unsqueeze(-1)).sum(-2)
                           : cdist_backward(by, own, self, p, far.narrow(0, row, count)));
  }
  return at::cat(bands);
}

} // namespace headrace
