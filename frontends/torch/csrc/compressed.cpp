// compressed.cpp: compressed sparse matrices (CSR and its kin): the functions that torch implements for each backend.
// Most of them convert to coordinates, which sparse.cpp handles.
#include <ATen/TensorOperators.h>
#include <ATen/ops/_sparse_compressed_tensor_unsafe.h>
#include <ATen/ops/_sparse_sparse_matmul.h>
#include <ATen/ops/_to_sparse_bsc_native.h>
#include <ATen/ops/_to_sparse_bsr_native.h>
#include <ATen/ops/_to_sparse_csc_native.h>
#include <ATen/ops/_to_sparse_csr_native.h>
#include <ATen/ops/_validate_compressed_sparse_indices.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/nonzero.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/repeat_interleave.h>
#include <ATen/ops/result_type.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/sparse_csr_tensor.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include "registration.h"
#include "sparse.h"

namespace headrace {

// ---- starts of rows, and the row of each element

Tensor coo_to_csr(Result result, const Tensor &rows, int64_t count, bool out_int32) {
  Tensor starts = at::searchsorted(rows.contiguous(), at::arange(count + 1, rows.options()));
  return result.give(to_type(starts, out_int32 ? ScalarType::Int : ScalarType::Long));
}

Tensor csr_to_coo(Result result, const Tensor &starts, const Tensor &columns, bool out_int32, bool transpose) {
  int64_t batch_dims = starts.dim() - 1, rows = starts.size(-1) - 1, elements = columns.size(-1);
  Tensor counts = (starts.narrow(-1, 1, rows) - starts.narrow(-1, 0, rows)).to(ScalarType::Long);
  Tensor numbers = at::arange(rows, counts.options()).expand(counts.sizes()).reshape({-1});
  Tensor row_of = at::repeat_interleave(numbers, counts.reshape({-1})),
         column_of = columns.reshape({-1}).to(ScalarType::Long);
  std::vector<Tensor> parts;
  if (batch_dims > 0) {
    Tensor batch = at::nonzero(at::ones(starts.sizes().slice(0, batch_dims), counts.options())).t();
    for (const Tensor &part : at::repeat_interleave(batch, elements, 1).unbind())
      parts.push_back(part);
  }
  parts.push_back(transpose ? column_of : row_of);
  parts.push_back(transpose ? row_of : column_of);
  return result.give(to_type(at::stack(parts), out_int32 ? ScalarType::Int : ScalarType::Long));
}

// The host reads them, so errors are raised at once.
void validate_compressed(bool is_rows, const Tensor &starts, const Tensor &columns, int64_t compressed_dim, int64_t dim,
                         int64_t count) {
  at::_validate_compressed_sparse_indices(is_rows, starts.cpu(), columns.cpu(), compressed_dim, dim, count);
}

namespace {

struct Elements {
  Tensor rows, columns, values;
  explicit Elements(const Tensor &matrix) {
    TORCH_CHECK_NOT_IMPLEMENTED(matrix.layout() == at::kSparseCsr && matrix.dim() == 2 && matrix.values().dim() == 1,
                                "headrace: only sparse matrices compressed by rows (CSR) are computed with, not ",
                                matrix.layout(), " of ", matrix.dim(), " dimensions");
    Tensor both = csr_to_coo(Result::fresh(), matrix.crow_indices(), matrix.col_indices(), false, false);
    rows = both[0], columns = both[1], values = matrix.values();
  }
};

Tensor csr_like(const Tensor &matrix, const Tensor &values) {
  return at::sparse_csr_tensor(matrix.crow_indices(), matrix.col_indices(), values, matrix.sizes(),
                               matrix.options().dtype(values.scalar_type()));
}

// Replaces `out` by the result.
Tensor &give(Tensor &out, const Tensor &made) {
  if (out.layout() == at::kStrided)
    Result::out(out).give(made);
  else
    out.resize_as_sparse_(made).copy_(made);
  return out;
}

Tensor &add_out(const Tensor &self, const Tensor &other, const Scalar &alpha, Tensor &out) {
  if (self.layout() == at::kStrided)
    return give(out, self.add(other.to_sparse(), alpha));
  TORCH_CHECK(other.layout() == self.layout(), "add: expected two tensors of layout ", self.layout(), ", got ",
              other.layout());
  return give(out, self.to_sparse().add(other.to_sparse(), alpha).coalesce().to_sparse(self.layout()));
}

Tensor with_coordinates(const Tensor &matrix) {
  return matrix.layout() == at::kStrided ? matrix : matrix.to_sparse();
}

// A product of two matrices, at least one of them sparse; sparse if both are.
Tensor product_of(const Tensor &left, const Tensor &right) {
  TORCH_CHECK(left.dim() == 2 && right.dim() == 2 && left.size(1) == right.size(0),
              "mat1 and mat2 shapes cannot be multiplied (", left.sizes(), " and ", right.sizes(), ")");
  Tensor a = with_coordinates(left), b = with_coordinates(right);
  if (a.is_sparse() && b.is_sparse())
    return at::_sparse_sparse_matmul(a, b);
  TORCH_CHECK(a.is_sparse() || b.is_sparse(), "addmm: expected a sparse matrix");
  const Tensor &sparse = a.is_sparse() ? a : b;
  Tensor rows = sparse._indices()[0], columns = sparse._indices()[1];
  if (a.is_sparse())
    return rows_times(rows, columns, sparse._values(), b, a.size(0));
  return rows_times(columns, rows, sparse._values(), a.t(), b.size(1)).t();
}

Tensor &addmm_out(const Tensor &self, const Tensor &matrix, const Tensor &other, const Scalar &beta,
                  const Scalar &alpha, Tensor &out) {
  Tensor product = product_of(matrix, other);
  if (out.layout() == at::kStrided)
    return give(out, scaled_sum(self.to_dense(), product.to_dense(), beta, alpha));
  TORCH_CHECK(product.is_sparse(), "addmm: the product of a sparse and a strided matrix is strided, not ",
              out.layout());
  Tensor sum = product * alpha;
  if (!beta.equal(0))
    sum = (with_coordinates(self) * beta + sum).coalesce();
  return give(out, sum.to_sparse(out.layout()));
}

Tensor &addmv_out(const Tensor &self, const Tensor &matrix, const Tensor &vector, const Scalar &beta,
                  const Scalar &alpha, Tensor &out) {
  TORCH_CHECK(vector.dim() == 1 && matrix.size(1) == vector.size(0), "size mismatch, got mat (", matrix.size(0), "x",
              matrix.size(1), "), vec (", vector.sizes(), ")");
  Elements e(matrix);
  Tensor product = rows_times(e.rows, e.columns, e.values, vector.unsqueeze(1), matrix.size(0)).squeeze(1);
  return give(out, scaled_sum(self, product, beta, alpha));
}

// beta self + alpha (a b) at the elements of self.
Tensor sampled_addmm(const Tensor &self, const Tensor &a, const Tensor &b, const Scalar &beta, const Scalar &alpha) {
  TORCH_CHECK(a.dim() == 2 && b.dim() == 2, "sampled_addmm: Expected mat1 and mat2 to be matrices, got ", a.dim(),
              "-D and ", b.dim(), "-D tensors");
  TORCH_CHECK(a.size(1) == b.size(0) && self.size(0) == a.size(0) && self.size(1) == b.size(1),
              "sampled_addmm: mat1 and mat2 shapes cannot be multiplied (", a.size(0), "x", a.size(1), " and ",
              b.size(0), "x", b.size(1), ") into ", self.sizes());
  Elements e(self);
  Tensor products = (a.index_select(0, e.rows) * b.t().index_select(0, e.columns)).sum(1);
  return csr_like(self, scaled_sum(e.values, products, beta, alpha));
}

Tensor &sampled_addmm_out(const Tensor &self, const Tensor &a, const Tensor &b, const Scalar &beta, const Scalar &alpha,
                          Tensor &out) {
  TORCH_CHECK(out.layout() == at::kSparseCsr, "sampled_addmm: Expected result to have sparse csr layout, but got ",
              out.layout());
  return give(out, sampled_addmm(self, a, b, beta, alpha));
}

// ---- rows to columns, and back

// The same matrix, or batches of matrices, compressed along the other dim: elements (blocks for BSR and BSC) stably
// sorted by the former plain index.
Tensor flipped(const Tensor &self) {
  bool is_rows = self.layout() == at::kSparseCsr || self.layout() == at::kSparseBsr;
  bool is_plain = self.layout() == at::kSparseCsr || self.layout() == at::kSparseCsc; // no blocks
  Tensor starts = is_rows ? self.crow_indices() : self.ccol_indices();
  Tensor numbers = is_rows ? self.col_indices() : self.row_indices(), values = self.values();
  int64_t batch_dims = starts.dim() - 1, dim = batch_dims + (is_rows ? 1 : 0);
  int64_t count = self.size(dim) / (is_plain ? 1 : values.size(batch_dims + 1 + (is_rows ? 1 : 0)));
  Dims each(starts.sizes().begin(), starts.sizes().end());
  auto rows_of = [&](int64_t size) {
    each[batch_dims] = size;
    return at::arange(size, numbers.options()).expand(each).contiguous();
  };
  auto [sorted, order] = numbers.sort(true, -1, false);
  Tensor owner = at::searchsorted(starts.contiguous(), rows_of(numbers.size(-1)), false, true) - 1;
  Tensor owners = owner.gather(-1, order).to(numbers.scalar_type());
  Tensor new_starts = at::searchsorted(sorted.contiguous(), rows_of(count + 1)).to(starts.scalar_type());
  Tensor from = order;
  while (from.dim() < values.dim())
    from = from.unsqueeze(-1);
  at::Layout layout = is_plain  ? (is_rows ? at::kSparseCsc : at::kSparseCsr)
                      : is_rows ? at::kSparseBsc
                                : at::kSparseBsr;
  return at::_sparse_compressed_tensor_unsafe(new_starts, owners,
                                              values.gather(batch_dims, from.expand(values.sizes())), self.sizes(),
                                              values.options().layout(layout));
}

void check_dense_dim(const Tensor &self, std::optional<int64_t> dense_dim) {
  TORCH_CHECK(!dense_dim.has_value() || *dense_dim == self.dense_dim(), "dense_dim is ", self.dense_dim(),
              " in a matrix compressed along the other dim, and stays so; got ", *dense_dim);
}

Tensor to_csr(const Tensor &self, std::optional<int64_t> dense_dim) {
  if (self.layout() != at::kSparseCsc)
    return at::native::sparse_compressed_to_sparse_csr(self, dense_dim);
  check_dense_dim(self, dense_dim);
  return flipped(self);
}

Tensor to_csc(const Tensor &self, std::optional<int64_t> dense_dim) {
  if (self.layout() != at::kSparseCsr)
    return at::native::sparse_compressed_to_sparse_csc(self, dense_dim);
  check_dense_dim(self, dense_dim);
  return flipped(self);
}

void check_blocks(const Tensor &self, IntArrayRef block, std::optional<int64_t> dense_dim) {
  IntArrayRef sizes = self.values().sizes().slice(self.dim() - self.dense_dim() - 1, 2);
  TORCH_CHECK(sizes.equals(block), "blocks of a matrix compressed along the other dim stay ", sizes, "; got ", block);
  check_dense_dim(self, dense_dim);
}

Tensor to_bsr(const Tensor &self, IntArrayRef block, std::optional<int64_t> dense_dim) {
  if (self.layout() != at::kSparseBsc)
    return at::native::sparse_compressed_to_sparse_bsr(self, block, dense_dim);
  check_blocks(self, block, dense_dim);
  return flipped(self);
}

Tensor to_bsc(const Tensor &self, IntArrayRef block, std::optional<int64_t> dense_dim) {
  if (self.layout() != at::kSparseBsr)
    return at::native::sparse_compressed_to_sparse_bsc(self, block, dense_dim);
  check_blocks(self, block, dense_dim);
  return flipped(self);
}

// ---- products whose sums are other reductions

Tensor counts_of(const Elements &e, int64_t rows, const Tensor &like) {
  Tensor counts = at::zeros({rows}, like.options()).index_add(0, e.rows, at::ones(e.rows.sizes(), like.options()));
  return counts.clamp_min(1).unsqueeze(1);
}

// The results, and for amax and amin the index of the winning element (one past the last: none). Half precision is
// computed in f32 and rounded once.
Tensor2 product_reduce(const Tensor &self, const Tensor &dense, std::string_view reduce) {
  Elements e(self);
  ScalarType type = dense.scalar_type();
  int64_t rows = self.size(0), count = e.values.numel();
  Tensor terms = wide(e.values).unsqueeze(1) * wide(dense).index_select(0, e.columns);
  Tensor nothing = at::zeros({rows, dense.size(1)}, terms.options());
  if (reduce == "sum" || reduce == "mean") {
    Tensor sums = add_at(nothing, e.rows, terms);
    sums = reduce == "sum" ? sums : sums / counts_of(e, rows, sums);
    return {sums.to(type), at::zeros({0}, e.rows.options())};
  }
  Tensor places = e.rows.unsqueeze(1).expand_as(terms);
  Tensor best = nothing.scatter_reduce(0, places, terms, reduce, false);
  Tensor is_best = terms.eq(best.index_select(0, e.rows)), last = at::zeros(best.sizes(), e.rows.options()) + count;
  Tensor numbers = at::where(is_best, at::arange(count, e.rows.options()).unsqueeze(1), Scalar(count));
  return {best.to(type), last.scatter_reduce(0, places, numbers, "amin", true)};
}

Tensor2 product_reduce_backward(const Tensor &self, const Tensor &grad, const Tensor &dense, std::string_view reduce,
                                const Tensor &from, std::array<bool, 2> wanted) {
  Elements e(self);
  int64_t count = e.values.numel();
  Tensor reached = wide(grad); // by element: the gradient of its terms
  if (reduce == "mean")
    reached = reached / counts_of(e, self.size(0), reached);
  reached = reached.index_select(0, e.rows);
  if (reduce == "amax" || reduce == "amin")
    reached =
        reached *
        from.index_select(0, e.rows).eq(at::arange(count, e.rows.options()).unsqueeze(1)).to(reached.scalar_type());
  Tensor by_values, by_dense;
  if (wanted[0])
    by_values = csr_like(self, (reached * wide(dense).index_select(0, e.columns)).sum(1).to(self.scalar_type()));
  if (wanted[1]) {
    Tensor terms = reached * wide(e.values).unsqueeze(1);
    by_dense = add_at(at::zeros(dense.sizes(), terms.options()), e.columns, terms).to(dense.scalar_type());
  }
  return {by_values, by_dense};
}

HEADRACE_KERNELS(aten, SparseCsrPrivateUse1, m) {
  m.impl("_to_sparse_csr", &to_csr);
  m.impl("_to_sparse_csc", &to_csc);
  m.impl("_to_sparse_bsr", &to_bsr);
  m.impl("_to_sparse_bsc", &to_bsc);
  m.impl("add.out", &add_out);
  m.impl("addmm.out", &addmm_out);
  m.impl("addmv.out", &addmv_out);
  m.impl("sparse_sampled_addmm", &sampled_addmm);
  m.impl("sparse_sampled_addmm.out", &sampled_addmm_out);
  m.impl("_sparse_mm_reduce_impl", &product_reduce);
  m.impl("_sparse_mm_reduce_impl_backward", &product_reduce_backward);
}

} // namespace
} // namespace headrace
