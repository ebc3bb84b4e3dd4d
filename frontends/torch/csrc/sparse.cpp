// sparse.cpp: sparse tensors of coordinates (COO). Their indices and values are ordinary tensors of the device, and
// torch's own functions for the layout work through them (generate_sparse.py registers those). This file has the
// functions that torch implements for each backend: joining equal positions, sums, products. They consist of gathers,
// scatters and searches in sorted positions, so every device has them. Other functions run on the host if the user
// allows that (fallback.cpp).
#include <ATen/ExpandUtils.h>
#include <ATen/TensorOperators.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/native/SparseTensorUtils.h>
#include <ATen/ops/_sparse_coo_tensor_unsafe.h>
#include <ATen/ops/_unique2.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/repeat_interleave.h>
#include <ATen/ops/result_type.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include "registration.h"
#include "sparse.h"

namespace headrace {

Tensor add_at(const Tensor &self, const Tensor &places, const Tensor &values) {
  if (self.scalar_type() == ScalarType::Bool) // the sum of bools is `any`
    return add_at(self.to(ScalarType::Long), places, values.to(ScalarType::Long)).ne(0);
  return self.index_add(0, places, values);
}

namespace {

// Each element's row-major position in the sparse dims.
Tensor places_of(const Tensor &indices, IntArrayRef sizes) {
  Tensor places = at::zeros({indices.size(1)}, indices.options());
  for (int64_t i = 0; i < indices.size(0); ++i)
    places = i == 0 ? indices[0] : places * sizes[i] + indices[i];
  return places;
}

// Coordinates, a row for each dim, of row-major positions.
Tensor coordinates_of(const Tensor &places, IntArrayRef sizes) {
  std::vector<Tensor> rows(sizes.size());
  Tensor rest = places;
  for (size_t i = sizes.size(); i-- > 0;) {
    int64_t size = std::max<int64_t>(sizes[i], 1);
    rows[i] = rest.remainder(size);
    rest = rest.floor_divide(size);
  }
  return rows.empty() ? at::zeros({0, places.numel()}, places.options()) : at::stack(rows);
}

IntArrayRef sparse_sizes(const Tensor &self) {
  return self.sizes().slice(0, self.sparse_dim());
}

IntArrayRef dense_sizes(const Tensor &self) {
  return self.sizes().slice(self.sparse_dim());
}

Tensor sparse_like(const Tensor &self, const Tensor &indices, const Tensor &values, bool is_coalesced) {
  return at::_sparse_coo_tensor_unsafe(indices, values, self.sizes(), self.options().dtype(values.scalar_type()),
                                       is_coalesced);
}

// Replaces `out` by the result.
Tensor &give_sparse(Tensor &out, const Tensor &made) {
  TORCH_CHECK(c10::canCast(made.scalar_type(), out.scalar_type()), "result type ", made.scalar_type(),
              " can't be cast to the desired output type ", out.scalar_type());
  out.sparse_resize_and_clear_(made.sizes(), made.sparse_dim(), made.dense_dim());
  at::sparse::alias_into_sparse(out, made._indices(), made._values().to(out.scalar_type()));
  return out._coalesced_(made.is_coalesced());
}

void check_sizes(const char *name, const Tensor &a, const Tensor &b) {
  TORCH_CHECK(a.sizes().equals(b.sizes()), name, ": expected sizes of 'self' and 'other' to match, but ", a.sizes(),
              " != ", b.sizes());
}

// ---- equal positions are joined

Tensor coalesce(const Tensor &self) {
  if (self.is_coalesced())
    return self;
  if (self._nnz() < 2) {
    Tensor copy = self.clone();
    return copy._coalesced_(true);
  }
  Tensor places = places_of(self._indices(), self.sizes()), values = self._values();
  auto [kept, which, counts] = at::_unique2(places, true, true, false);
  Dims sizes(values.sizes().begin(), values.sizes().end());
  sizes[0] = kept.numel();
  Tensor sums = add_at(at::zeros(sizes, values.options()), which.reshape({-1}), values);
  return sparse_like(self, coordinates_of(kept, sparse_sizes(self)), sums, true);
}

// ---- sums

Tensor scaled(const Tensor &values, const Scalar &alpha, ScalarType type) {
  Tensor wide = values.to(type);
  return alpha.equal(1) ? wide : wide.mul(alpha);
}

Tensor dense_and_sparse(const Tensor &dense, const Tensor &sparse, const Scalar &alpha, ScalarType type) {
  TORCH_CHECK(at::is_expandable_to(sparse.sizes(), dense.sizes()) || dense.sizes().equals(sparse.sizes()),
              "add: expected 'self' and 'other' to have same size, but self has size ", dense.sizes(),
              " while other has size ", sparse.sizes(),
              " (FYI: dense-sparse addition does not currently support broadcasting)");
  check_sizes("add", dense, sparse);
  Tensor sum = dense.to(type).contiguous();
  if (sparse._nnz() == 0 || dense.numel() == 0)
    return sum;
  Tensor values = scaled(sparse._values(), alpha, type);
  if (sparse.sparse_dim() == 0)
    return sum.add(values.sum(0));
  Dims rows{-1};
  rows.append(dense_sizes(sparse).begin(), dense_sizes(sparse).end());
  Tensor places = places_of(sparse._indices(), sparse.sizes());
  if (dense_sizes(sparse).empty())
    return add_at(sum.reshape(rows), places, values).reshape(dense.sizes());
  int64_t count = 1;
  for (int64_t size : sparse_sizes(sparse))
    count *= size;
  rows[0] = count;
  return add_at(sum.reshape(rows), places, values).reshape(dense.sizes());
}

Tensor two_sparse(const Tensor &a, const Tensor &b, const Scalar &alpha, ScalarType type) {
  check_sizes("add", a, b);
  if (b._nnz() == 0)
    return sparse_like(a, a._indices().clone(), a._values().to(type, false, true), a.is_coalesced());
  TORCH_CHECK(a.sparse_dim() == b.sparse_dim() && a.dense_dim() == b.dense_dim(),
              "add: expected 'self' and 'other' to have same number of sparse dimensions, but ", a.sparse_dim(),
              " != ", b.sparse_dim());
  Tensor sum = sparse_like(a, at::cat({a._indices(), b._indices()}, 1),
                           at::cat({a._values().to(type), scaled(b._values(), alpha, type)}), false);
  return a.is_coalesced() && b.is_coalesced() ? coalesce(sum) : sum;
}

Tensor &add_out(const Tensor &self, const Tensor &other, const Scalar &alpha, Tensor &out) {
  ScalarType type = at::result_type(self, other);
  TORCH_CHECK(self.is_sparse() || other.is_sparse(), "add: expected a sparse tensor of coordinates");
  TORCH_CHECK(!self.is_sparse() || other.is_sparse(),
              "add(sparse, dense) is not supported. Use add(dense, sparse) instead.");
  if (self.is_sparse())
    return give_sparse(out, two_sparse(self, other, alpha, type));
  TORCH_CHECK(!out.is_sparse(), "add: expected a strided out= for a sum of a strided and a sparse tensor");
  Result place = out.is_same(self) ? Result::inplace(out) : Result::out(out);
  place.give(dense_and_sparse(self, other, alpha, type));
  return out;
}

// ---- products by element

// The elements of a broadcast dense tensor at the positions of a sparse one.
Tensor picked(const Tensor &dense, const Tensor &sparse) {
  Tensor wide = dense.expand(sparse.sizes());
  c10::List<std::optional<Tensor>> places;
  for (const Tensor &row : sparse._indices().unbind())
    places.push_back(row);
  return sparse.sparse_dim() == 0 ? wide.unsqueeze(0).expand_as(sparse._values()) : wide.index(places);
}

// The intersection: positions of the first that are found among the second's.
Tensor in_both(const Tensor &self, const Tensor &other, ScalarType type) {
  TORCH_CHECK(self.sparse_dim() == other.sparse_dim() && self.sizes().equals(other.sizes()),
              "mul: expected self and other to have the same sizes and sparse dimensions");
  Tensor a = self.coalesce(), b = other.coalesce();
  if (a._nnz() == 0 || b._nnz() == 0)
    return sparse_like(a, a._indices().narrow(1, 0, 0), a._values().narrow(0, 0, 0).to(type), true);
  Tensor wanted = places_of(a._indices(), a.sizes()), there = places_of(b._indices(), b.sizes());
  Tensor at = at::searchsorted(there, wanted).clamp_max(there.numel() - 1);
  Tensor hits = there.index_select(0, at).eq(wanted).nonzero().squeeze(1);
  Tensor values =
      a._values().index_select(0, hits).to(type) * b._values().index_select(0, at.index_select(0, hits)).to(type);
  return sparse_like(a, a._indices().index_select(1, hits), values, true);
}

Tensor &mul_out(const Tensor &self, const Tensor &other, Tensor &out) {
  ScalarType type = at::result_type(self, other);
  if (self.is_sparse() && other.is_sparse() && other.dim() > 0 && self.dim() > 0)
    return give_sparse(out, in_both(self, other, type));
  if (!self.is_sparse() || (other.is_sparse() && self.dim() == 0))
    return mul_out(other, self, out);
  Tensor factor = other;
  if (other.is_sparse())
    factor = other.coalesce()._values().sum(0);
  if (factor.dim() == 0) {
    Tensor values = self._values().to(type).mul(factor.to(type));
    return give_sparse(out, sparse_like(self, self._indices().clone(), values, self.is_coalesced()));
  }
  TORCH_CHECK(at::is_expandable_to(factor.sizes(), self.sizes()), "mul: a dense tensor of sizes ", factor.sizes(),
              " can't be broadcast to a sparse one of sizes ", self.sizes());
  Tensor values = self._values().to(type).mul(picked(factor, self).to(type));
  return give_sparse(out, sparse_like(self, self._indices().clone(), values, self.is_coalesced()));
}

// ---- pairs of elements that share a number

// All positions of each wanted number among sorted ones: pairs of (position in wanted, position in sorted).
struct Pairs {
  Tensor wanted, found;
  Pairs(const Tensor &sorted, const Tensor &numbers) {
    Tensor begin = at::searchsorted(sorted, numbers), end = at::searchsorted(sorted, numbers, false, true);
    Tensor counts = end - begin, before = counts.cumsum(0) - counts;
    wanted = at::repeat_interleave(counts);
    found = at::arange(wanted.numel(), wanted.options()) + (begin - before).index_select(0, wanted);
  }
};

Tensor index_select(const Tensor &self, int64_t dim, const Tensor &index) {
  int64_t along = at::maybe_wrap_dim(dim, self.dim());
  TORCH_CHECK_INDEX(index.dim() == 1, "index_select() argument index must be 1-D long-tensor.");
  Dims sizes(self.sizes().begin(), self.sizes().end());
  sizes[along] = index.numel();
  if (along >= self.sparse_dim()) {
    Tensor values = self._values().index_select(along - self.sparse_dim() + 1, index);
    return at::_sparse_coo_tensor_unsafe(self._indices(), values, sizes, self.options(), self.is_coalesced());
  }
  Tensor numbers = at::where(index.lt(0), index + self.size(along), index).to(ScalarType::Long);
  auto [sorted, order] = self._indices()[along].sort(true, 0, false);
  Pairs pairs(sorted, numbers);
  Tensor from = order.index_select(0, pairs.found), indices = self._indices().index_select(1, from);
  indices.select(0, along).copy_(pairs.wanted);
  return at::_sparse_coo_tensor_unsafe(indices, self._values().index_select(0, from), sizes, self.options(), false);
}

Tensor two_matrices(const Tensor &a, const Tensor &b) {
  TORCH_CHECK(a.is_sparse() && b.is_sparse() && a.dim() == 2 && b.dim() == 2 && a.dense_dim() == 0 &&
                  b.dense_dim() == 0,
              "sparse_sparse_matmul: expected two sparse matrices");
  TORCH_CHECK(a.size(1) == b.size(0), "mat1 and mat2 shapes cannot be multiplied (", a.size(0), "x", a.size(1), " and ",
              b.size(0), "x", b.size(1), ")");
  TORCH_CHECK(a.scalar_type() == b.scalar_type(), "mat1 dtype ", a.scalar_type(), " does not match mat2 dtype ",
              b.scalar_type());
  Tensor left = a.coalesce(), right = b.coalesce();
  Pairs pairs(right._indices()[0].contiguous(), left._indices()[1].contiguous());
  Tensor values = left._values().index_select(0, pairs.wanted) * right._values().index_select(0, pairs.found);
  Tensor indices =
      at::stack({left._indices()[0].index_select(0, pairs.wanted), right._indices()[1].index_select(0, pairs.found)});
  return at::_sparse_coo_tensor_unsafe(indices, values, {a.size(0), b.size(1)}, a.options(), false).coalesce();
}

// ---- products of matrices

void check_product(const Tensor &matrix, const Tensor &dense) {
  TORCH_CHECK(matrix.is_sparse() && matrix.dense_dim() == 0 && !dense.is_sparse(),
              "addmm: expected 'mat1' to be a sparse matrix without dense dimensions, and 'mat2' to be strided");
  TORCH_CHECK(matrix.dim() == 2, "addmm: Expected 2-D tensor for mat1, got ", matrix.dim(), "-D tensor");
  TORCH_CHECK(dense.dim() == 2, "addmm: Expected 2-D tensor for mat2, got ", dense.dim(), "-D tensor");
  TORCH_CHECK(matrix.size(1) == dense.size(0), "addmm: Argument #3 (dense): Expected dim 0 size ", matrix.size(1),
              ", got ", dense.size(0));
}

Tensor add_product(const Tensor &self, const Tensor &matrix, const Tensor &dense, const Scalar &beta,
                   const Scalar &alpha) {
  check_product(matrix, dense);
  Tensor product = rows_times(matrix._indices()[0], matrix._indices()[1], matrix._values(), dense, matrix.size(0));
  return scaled_sum(self, product, beta, alpha);
}

Tensor &addmm_out(const Tensor &self, const Tensor &matrix, const Tensor &dense, const Scalar &beta,
                  const Scalar &alpha, Tensor &out) {
  Result::out(out).give(add_product(self, matrix, dense, beta, alpha));
  return out;
}

Tensor &addmm_inplace(Tensor &self, const Tensor &matrix, const Tensor &dense, const Scalar &beta,
                      const Scalar &alpha) {
  Result::inplace(self).give(add_product(self, matrix, dense, beta, alpha));
  return self;
}

// Batches of rows, and of columns, stacked.
Tensor products(const Tensor &self, const Tensor &dense) {
  TORCH_CHECK(self.is_sparse() && !dense.is_sparse(), "bmm: expected a sparse and a strided tensor");
  TORCH_CHECK(self.dim() == 3 && dense.dim() == 3 && self.dense_dim() == 0, "bmm: Tensors must have 3 dimensions");
  TORCH_CHECK(self.size(0) == dense.size(0), "bmm: 'self.size(0)' and 'mat2.size(0)' must match");
  TORCH_CHECK(self.size(2) == dense.size(1), "bmm: 'self.size(2)' and 'mat2.size(1)' must match");
  Tensor indices = self._indices(), batch = indices[0];
  int64_t batches = self.size(0), m = self.size(1), k = self.size(2), n = dense.size(2);
  Tensor product = rows_times(batch * m + indices[1], batch * k + indices[2], self._values(),
                              dense.reshape({batches * k, n}), batches * m);
  return product.reshape({batches, m, n});
}

Tensor &bmm_out(const Tensor &self, const Tensor &dense, Tensor &out) {
  Result::out(out).give(products(self, dense));
  return out;
}

HEADRACE_KERNELS(aten, SparsePrivateUse1, m) {
  m.impl("_coalesce", &coalesce);
  m.impl("add.out", &add_out);
  m.impl("mul.out", &mul_out);
  m.impl("addmm", &add_product);
  m.impl("addmm.out", &addmm_out);
  m.impl("addmm_", &addmm_inplace);
  m.impl("_sparse_sparse_matmul", &two_matrices);
  m.impl("index_select", &index_select);
  m.impl("bmm", &products);
  m.impl("bmm.out", &bmm_out);
}

} // namespace

Tensor wide(const Tensor &tensor) {
  return is_half(tensor.scalar_type()) ? tensor.to(ScalarType::Float) : tensor;
}

Tensor rows_times(const Tensor &rows, const Tensor &columns, const Tensor &values, const Tensor &dense, int64_t count) {
  TORCH_CHECK(values.scalar_type() == dense.scalar_type(),
              "expected mat1 and mat2 to have the same dtype, but got: ", values.scalar_type(),
              " != ", dense.scalar_type());
  if (values.numel() == 0 || count == 0 || dense.size(1) == 0)
    return at::zeros({count, dense.size(1)}, dense.options());
  Tensor terms = wide(values).unsqueeze(1) * wide(dense).index_select(0, columns);
  return add_at(at::zeros({count, dense.size(1)}, terms.options()), rows, terms).to(dense.scalar_type());
}

Tensor scaled_sum(const Tensor &self, const Tensor &product, const Scalar &beta, const Scalar &alpha) {
  TORCH_CHECK(at::is_expandable_to(self.sizes(), product.sizes()), "The expanded size of the tensor must match the ",
              "existing size. Target sizes: ", product.sizes(), ". Tensor sizes: ", self.sizes());
  Tensor scaled = alpha.equal(1) ? product : product.mul(alpha);
  if (beta.equal(0))
    return scaled;
  return beta.equal(1) ? scaled.add(self) : scaled.add(self.mul(beta));
}

} // namespace headrace
