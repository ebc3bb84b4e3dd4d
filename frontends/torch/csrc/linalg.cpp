// linalg.cpp: factorisations, solvers, eigenvalues.
//
// The core's rows use column-major matrices: a view with the last two dims exchanged is recorded, which is dense for
// column-major memory. torch creates the outputs of structured operators column-major; others are created so here. A
// failed decomposition (a singular pivot) is reported in `info`, which torch's own functions around these read.
#include <ATen/native/LinearAlgebraUtils.h>
#include <ATen/ops/_linalg_check_errors.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/add.h>

#include <ATen/ops/arange.h>
#include <ATen/ops/bitwise_and.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/log.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ne.h>
#include <ATen/ops/prod.h>
#include <ATen/ops/result_type.h>
#include <ATen/ops/sgn.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros_like.h>

#include "kernels.h"

namespace headrace {
namespace {

using at::native::checkFloatingOrComplex;
using at::native::checkUplo;
using at::native::squareCheckInputs;

ScalarType real_type(const Tensor &tensor) {
  return c10::toRealValueType(tensor.scalar_type());
}

// The tensor to record: on the device, without lazy conjugation or negation.
Tensor plain(const Tensor &tensor) {
  if (!is_on_device(tensor))
    fail_device(tensor);
  return tensor.resolve_conj().resolve_neg();
}

Dims exchanged(IntArrayRef values) {
  Dims result(values.begin(), values.end());
  std::swap(result[result.size() - 1], result[result.size() - 2]);
  return result;
}

Record &in_columns(Record &record, const Tensor &tensor) {
  return record.in(tensor, exchanged(tensor.sizes()), exchanged(tensor.strides()));
}

Record &out_columns(Record &record, const Tensor &tensor) {
  return record.out(tensor, exchanged(tensor.sizes()), exchanged(tensor.strides()));
}

Tensor new_columns(IntArrayRef sizes, ScalarType type) {
  return new_tensor(sizes, at::native::batched_matrix_contiguous_strides(sizes, true), type);
}

// The tensor that a result is written to; a new one is column-major.
Tensor begin_columns(const Result &result, IntArrayRef sizes, ScalarType type, const Inputs &inputs) {
  return result.is_fresh() ? new_columns(sizes, type) : result.begin(sizes, type, inputs);
}

Tensor begin_columns_exact(const Result &result, IntArrayRef sizes, ScalarType type, const Inputs &inputs) {
  return result.is_fresh() ? new_columns(sizes, type) : result.begin_exact(sizes, type, inputs);
}

Dims batch_of(const Tensor &tensor, int64_t dims = 2) {
  return Dims(tensor.sizes().begin(), tensor.sizes().end() - dims);
}

Dims with_dims(Dims batch, std::initializer_list<int64_t> dims) {
  batch.append(dims.begin(), dims.end());
  return batch;
}

Tensor expand_batch(const Tensor &tensor, const Dims &batch) {
  return tensor.expand(with_dims(batch, {tensor.size(-2), tensor.size(-1)}));
}

Dims common_batch(const Tensor &a, const Tensor &b) {
  at::DimVector sizes = at::infer_size_dimvector(batch_of(a), batch_of(b));
  return Dims(sizes.begin(), sizes.end());
}

void check_matrices(const Tensor &a, const char *name, bool is_square) {
  if (is_square)
    squareCheckInputs(a, name);
  else
    at::native::checkIsMatrix(a, name);
  checkFloatingOrComplex(a, name, false);
}

// Stores the LU factors of a in tensors of the right sizes.
void record_lu(const Tensor &a, const Tensor &lu, const Tensor &pivots, const Tensor &info) {
  if (a.numel() == 0) {
    fill_with(info, 0);
    return;
  }
  Tensor source = plain(a);
  Record record(HR_OP_LU);
  in_columns(record, source);
  out_columns(record, lu).out(pivots).out(info).run();
}

// The solution of A X = B, or of its transpose or adjoint, by factors; all of the same batch.
void record_lu_solve(const Tensor &lu, const Tensor &pivots, const Tensor &b, int64_t trans, const Tensor &x) {
  if (x.numel() == 0)
    return;
  Tensor factors = plain(lu), right = plain(b);
  Record record(HR_OP_LU_SOLVE);
  in_columns(record, factors).in(pivots);
  out_columns(in_columns(record, right).ints({trans}), x).run();
}

// The sign of the permutation: each pivot that is not its own row exchanges two.
Tensor sign_of(const Tensor &pivots) {
  Tensor own = at::arange(1, pivots.size(-1) + 1, pivots.options());
  Tensor moved = at::sum(at::ne(pivots, own), IntArrayRef{-1}, false, ScalarType::Long);
  return at::sub(at::mul(at::bitwise_and(moved, 1), -2), -1);
}

struct Factors {
  Tensor lu, pivots, info;
};

// The three outputs common to all uses of LU, computed.
Factors factor(Result lu, Result pivots, Result info, const Tensor &a) {
  int64_t rows = a.size(-2), columns = a.size(-1);
  Factors f{begin_columns_exact(lu, a.sizes(), a.scalar_type(), {a}),
            pivots.begin_exact(with_dims(batch_of(a), {std::min(rows, columns)}), ScalarType::Int),
            info.begin_exact(batch_of(a), ScalarType::Int)};
  record_lu(a, f.lu, f.pivots, f.info);
  return f;
}

// For determinants torch factors the transpose of a real matrix with dense rows, and its derivatives rely on it.
bool factors_transpose(const Tensor &a) {
  return a.is_contiguous() && !a.is_complex();
}

} // namespace

// ---- Cholesky

void cholesky_ex(Result factor, Result info, const Tensor &a, bool upper, bool check_errors) {
  check_matrices(a, "linalg.cholesky", true);
  Tensor out = begin_columns_exact(factor, a.sizes(), a.scalar_type(), {a}),
         codes = info.begin_exact(batch_of(a), ScalarType::Int);
  if (a.numel() == 0) {
    fill_with(codes, 0);
  } else {
    Tensor source = plain(a);
    Record record(HR_OP_CHOLESKY);
    out_columns(in_columns(record, source).ints({upper}), out).out(codes).run();
  }
  factor.end(out);
  info.end(codes);
  if (check_errors)
    at::_linalg_check_errors(codes, "linalg.cholesky_ex", a.dim() == 2);
}

Tensor cholesky(Result result, const Tensor &a, bool upper) {
  if (a.numel() == 0)
    return result.end(result.begin(a.sizes(), a.scalar_type()));
  check_matrices(a, "cholesky", true);
  Tensor out = begin_columns(result, a.sizes(), a.scalar_type(), {a}), info = new_tensor(batch_of(a), ScalarType::Int);
  cholesky_ex(Result::out(out), Result::out(info), a, upper, false);
  at::_linalg_check_errors(info, "cholesky", a.dim() == 2);
  return result.end(out);
}

Tensor cholesky_inverse(Result result, const Tensor &factor, bool upper) {
  squareCheckInputs(factor, "cholesky_inverse");
  checkFloatingOrComplex(factor, "cholesky_inverse", false);
  Tensor out = begin_columns(result, factor.sizes(), factor.scalar_type(), {factor});
  if (out.numel() > 0) {
    Tensor source = plain(factor), info = new_tensor(batch_of(factor), ScalarType::Int);
    Record record(HR_OP_CHOLESKY_INVERSE);
    out_columns(in_columns(record, source).ints({upper}), out).out(info).run();
    at::_linalg_check_errors(info, "cholesky_inverse", factor.dim() == 2);
  }
  return result.end(out);
}

Tensor cholesky_solve(const Tensor &b, const Tensor &factor, bool upper) {
  check_matrices(factor, "cholesky_solve", true);
  Tensor out = new_columns(b.sizes(), b.scalar_type());
  if (out.numel() > 0) {
    Tensor right = plain(b), source = plain(factor);
    Record record(HR_OP_CHOLESKY_SOLVE);
    in_columns(record, right);
    out_columns(in_columns(record, source).ints({upper}), out).run();
  }
  return out;
}

// ---- LU

void lu_factor_ex(Result lu, Result pivots, Result info, const Tensor &a, bool pivot, bool check_errors) {
  check_matrices(a, "torch.linalg.lu_factor", false);
  TORCH_CHECK(pivot, "linalg.lu_factor: LU without pivoting is not implemented on the CPU");
  Factors f = factor(lu, pivots, info, a);
  lu.end(f.lu), pivots.end(f.pivots), info.end(f.info);
  if (check_errors)
    at::_linalg_check_errors(f.info, "torch.linalg.lu_factor_ex", a.dim() == 2);
}

void lu(Result p, Result l, Result u, const Tensor &a, bool pivot) {
  check_matrices(a, "linalg.lu", false);
  TORCH_CHECK(pivot, "linalg.lu_factor: LU without pivoting is not implemented on the CPU");
  Factors f = factor(Result::fresh(), Result::fresh(), Result::fresh(), a);
  lu_unpack(p, l, u, f.lu, f.pivots, true, true);
}

void lu_unpack(Result p, Result l, Result u, const Tensor &lu, const Tensor &pivots, bool unpack_data,
               bool unpack_pivots) {
  at::native::checkIsMatrix(lu, "lu_unpack", "LU_data");
  TORCH_CHECK(!unpack_pivots || pivots.scalar_type() == ScalarType::Int,
              "torch.lu_unpack: LU_pivots is expected to be a contiguous tensor of torch.int32 dtype.\n",
              "Note: this function is intended to be used with the output produced by torch.linalg.lu_factor");
  int64_t rows = lu.size(-2), columns = lu.size(-1), least = std::min(rows, columns);
  Dims batch = batch_of(lu);
  Dims p_sizes = unpack_pivots ? with_dims(batch, {rows, rows}) : Dims{0};
  Dims l_sizes = unpack_data ? with_dims(batch, {rows, least}) : Dims{0};
  Dims u_sizes = unpack_data ? with_dims(batch, {least, columns}) : Dims{0};
  ScalarType type = lu.scalar_type();
  Tensor p_out = p.begin_exact(p_sizes, type, {lu}), l_out = l.begin_exact(l_sizes, type, {lu}),
         u_out = u.begin_exact(u_sizes, type, {lu});
  if (unpack_data && l_out.numel() > 0) {
    Tensor below = lu.narrow(-1, 0, least).tril(-1);
    copy_on_device(at::add(below, at::eye(rows, least, lu.options())), l_out);
  }
  if (unpack_data && u_out.numel() > 0)
    copy_on_device(lu.narrow(-2, 0, least).triu(), u_out);
  if (unpack_pivots && p_out.numel() > 0) {
    Tensor order = new_tensor(with_dims(batch, {rows}), ScalarType::Long);
    Tensor own = at::arange(rows, order.options());
    if (least > 0) {
      Record record(HR_OP_LU_PERMUTATION);
      record.in(pivots).out(order).run();
    } else {
      copy_on_device(own.expand(order.sizes()), order);
    }
    copy_on_device(at::eq(order.unsqueeze(-2), own.unsqueeze(-1)), p_out);
  }
  p.end(p_out), l.end(l_out), u.end(u_out);
}

void lu_solve(Result result, const Tensor &lu, const Tensor &pivots, const Tensor &b, bool left, bool adjoint) {
  check_matrices(lu, "torch.linalg.lu_solve", true);
  TORCH_CHECK(lu.scalar_type() == b.scalar_type(),
              "linalg.lu_solve: Expected LU and B to have the same dtype, but found LU ", "of type ", lu.scalar_type(),
              " and B of type ", b.scalar_type(), " instead");
  TORCH_CHECK(pivots.scalar_type() == ScalarType::Int,
              "linalg.lu_solve: pivots should be a Tensor of scalar type torch.int32");
  at::native::checkInputsSolver(lu, b, left, "linalg.lu_solve");
  TORCH_CHECK(lu.size(-1) == pivots.size(-1),
              "linalg.lu_solve: Number of pivots per batch should be same as the dimension of ", "the matrix");
  TORCH_CHECK(batch_of(lu) == batch_of(pivots, 1),
              "linalg.lu_solve: Expected LU.shape[:-1] and pivots.shape to be the same, ", "but got pivots with shape ",
              pivots.sizes(), " instead");
  Dims batch = common_batch(lu, b);
  Tensor right = expand_batch(b, batch), factors = expand_batch(lu, batch);
  Tensor order = pivots.expand(with_dims(batch, {pivots.size(-1)}));
  Tensor out = result.begin_exact(right.sizes(), b.scalar_type(), {lu, b});
  // X A = B is A^T X^T = B^T; with the adjoint, conj(A) X^T = B^T.
  if (left)
    record_lu_solve(factors, order, right, adjoint ? 2 : 0, out);
  else if (!adjoint)
    record_lu_solve(factors, order, right.mT(), 1, out.mT());
  else if (!lu.is_complex())
    record_lu_solve(factors, order, right.mT(), 0, out.mT());
  else {
    Tensor turned = new_tensor(out.sizes(), out.scalar_type());
    record_lu_solve(factors, order, right.mH(), 0, turned.mT());
    copy_on_device(turned.conj().resolve_conj(), out);
  }
  result.end(out);
}

void inv_ex(Result inverse, Result info, const Tensor &a, bool check_errors) {
  check_matrices(a, "linalg.inv", true);
  Tensor out = begin_columns_exact(inverse, a.sizes(), a.scalar_type(), {a});
  Factors f = factor(Result::fresh(), Result::fresh(), info, a);
  if (out.numel() > 0) {
    Tensor one = at::eye(a.size(-1), a.options()).expand(a.sizes());
    record_lu_solve(f.lu, f.pivots, one, 0, out);
  }
  inverse.end(out), info.end(f.info);
  if (check_errors)
    at::_linalg_check_errors(f.info, "linalg.inv_ex", a.dim() == 2);
}

void solve_ex(Result result, Result lu, Result pivots, Result info, const Tensor &a, const Tensor &b, bool left,
              bool check_errors) {
  checkFloatingOrComplex(a, "linalg.solve", false);
  TORCH_CHECK(a.scalar_type() == b.scalar_type(),
              "linalg.solve: Expected A and B to have the same dtype, but found A of type ", a.scalar_type(),
              " and B of type ", b.scalar_type(), " instead");
  bool is_vector = at::native::linalg_solve_is_vector_rhs(a, b);
  Tensor right = is_vector ? b.unsqueeze(-1) : b;
  at::native::checkInputsSolver(a, right, left, "linalg.solve");
  TORCH_CHECK(left || !is_vector,
              "linalg.solve: Vector broadcasting of the left hand side is not supported for left=False. In ",
              "this case linalg.solve is equivalent to B / A.squeeze(-1)");
  Factors f = factor(lu, pivots, info, a);
  Dims batch = common_batch(a, right);
  Tensor wide = expand_batch(right, batch);
  Dims sizes(wide.sizes().begin(), wide.sizes().end());
  if (is_vector)
    sizes.pop_back();
  Tensor out = result.begin_exact(sizes, b.scalar_type(), {a, b}), matrix = is_vector ? out.unsqueeze(-1) : out;
  lu_solve(Result::out(matrix), f.lu, f.pivots, right, left, false);
  result.end(out), lu.end(f.lu), pivots.end(f.pivots), info.end(f.info);
  if (check_errors)
    at::_linalg_check_errors(f.info, "torch.linalg.solve_ex", a.dim() == 2);
}

void det(Result result, Result lu, Result pivots, const Tensor &a) {
  check_matrices(a, "linalg.det", true);
  Factors f = factor(lu, pivots, Result::fresh(), factors_transpose(a) ? a.mT() : a);
  Tensor out = result.begin_exact(batch_of(a), a.scalar_type(), {a});
  copy_on_device(at::mul(sign_of(f.pivots), at::prod(f.lu.diagonal(0, -2, -1), -1)), out);
  result.end(out), lu.end(f.lu), pivots.end(f.pivots);
}

void slogdet(Result sign, Result logarithm, Result lu, Result pivots, const Tensor &a) {
  check_matrices(a, "linalg.slogdet", true);
  Factors f = factor(lu, pivots, Result::fresh(), factors_transpose(a) ? a.mT() : a);
  Tensor sign_out = sign.begin_exact(batch_of(a), a.scalar_type(), {a}),
         out = logarithm.begin_exact(batch_of(a), real_type(a), {a});
  Tensor diagonal = f.lu.diagonal(0, -2, -1);
  copy_on_device(at::mul(sign_of(f.pivots), at::prod(at::sgn(diagonal), -1)), sign_out);
  copy_on_device(at::sum(at::log(at::abs(diagonal)), IntArrayRef{-1}), out);
  sign.end(sign_out), logarithm.end(out), lu.end(f.lu), pivots.end(f.pivots);
}

// ---- QR

Tensor2 geqrf(Result a_out, Result tau, const Tensor &a) {
  TORCH_CHECK(a.dim() >= 2, "torch.geqrf: input must have at least 2 dimensions.");
  checkFloatingOrComplex(a, "torch.geqrf", false);
  Tensor out = begin_columns(a_out, a.sizes(), a.scalar_type(), {a});
  Tensor factors = tau.begin(with_dims(batch_of(a), {std::min(a.size(-2), a.size(-1))}), a.scalar_type(), {a});
  if (a.numel() > 0) {
    Tensor source = plain(a);
    Record record(HR_OP_QR);
    in_columns(record, source);
    out_columns(record, out).out(factors).run();
  }
  return {a_out.end(out), tau.end(factors)};
}

// Stores the first columns of the reflectors' product in out, which has at least as many columns as reflectors.
static void record_reflectors(const Tensor &reflectors, const Tensor &tau, const Tensor &out) {
  Record record(HR_OP_REFLECTORS);
  in_columns(record, reflectors).in(tau);
  out_columns(record, out).run();
}

Tensor householder_product(Result result, const Tensor &a, const Tensor &tau) {
  TORCH_CHECK(a.dim() >= 2, "torch.linalg.householder_product: input must have at least 2 dimensions.");
  TORCH_CHECK(a.size(-2) >= a.size(-1),
              "torch.linalg.householder_product: input.shape[-2] must be greater than or equal to ", "input.shape[-1]");
  TORCH_CHECK(a.size(-1) >= tau.size(-1),
              "torch.linalg.householder_product: input.shape[-1] must be greater than or equal to ", "tau.shape[-1]");
  TORCH_CHECK(a.dim() - tau.dim() == 1,
              "torch.linalg.householder_product: Expected tau to have one dimension less than ",
              "input, but got tau.ndim equal to ", tau.dim(), " and input.ndim is equal to ", a.dim());
  TORCH_CHECK(batch_of(a) == batch_of(tau, 1),
              "torch.linalg.householder_product: Expected batch dimensions of tau to be equal ",
              "to input.shape[:-2], but got ", tau.sizes());
  TORCH_CHECK(tau.scalar_type() == a.scalar_type(), "torch.linalg.householder_product: tau dtype ", tau.scalar_type(),
              " does not match input dtype ", a.scalar_type());
  checkFloatingOrComplex(a, "torch.linalg.householder_product", false);
  Tensor out = begin_columns(result, a.sizes(), a.scalar_type(), {a, tau});
  if (out.numel() > 0 && tau.numel() == 0)
    copy_on_device(at::eye(a.size(-2), a.size(-1), a.options()).expand(a.sizes()), out);
  else if (out.numel() > 0)
    record_reflectors(plain(a), plain(tau), out);
  return result.end(out);
}

void qr(Result q, Result r, const Tensor &a, std::string_view mode) {
  check_matrices(a, "linalg.qr", false);
  auto [wants_q, is_reduced] = at::native::_parse_qr_mode(mode);
  int64_t rows = a.size(-2), columns = a.size(-1), least = std::min(rows, columns);
  int64_t width = wants_q && !is_reduced ? rows : least;
  Dims batch = batch_of(a);
  Tensor q_out = q.begin_exact(wants_q ? with_dims(batch, {rows, width}) : Dims{0}, a.scalar_type(), {a});
  Tensor r_out = r.begin_exact(with_dims(batch, {width, columns}), a.scalar_type(), {a});
  auto [reflectors, tau] = geqrf(Result::fresh(), Result::fresh(), a);
  if (r_out.numel() > 0)
    copy_on_device(reflectors.narrow(-2, 0, width).triu(), r_out);
  if (wants_q && q_out.numel() > 0) {
    if (least == 0) {
      copy_on_device(at::eye(rows, width, a.options()).expand(q_out.sizes()), q_out);
    } else if (width <= columns) {
      record_reflectors(reflectors.narrow(-1, 0, width), tau, q_out);
    } else {
      Tensor wide = new_columns(q_out.sizes(), a.scalar_type());
      fill_with(wide, 0);
      copy_on_device(reflectors, wide.narrow(-1, 0, columns));
      record_reflectors(wide, tau, q_out);
    }
  }
  q.end(q_out), r.end(r_out);
}

Tensor ormqr(Result result, const Tensor &a, const Tensor &tau, const Tensor &c, bool left, bool transpose) {
  checkFloatingOrComplex(a, "ormqr", false);
  TORCH_CHECK(a.dim() >= 2, "torch.ormqr: input must have at least 2 dimensions.");
  TORCH_CHECK(c.dim() >= 2, "torch.ormqr: other must have at least 2 dimensions.");
  int64_t side = left ? -2 : -1;
  TORCH_CHECK(c.size(side) >= tau.size(-1), "torch.ormqr: other.shape[", side,
              "] must be greater than or equal to tau.shape[-1]");
  TORCH_CHECK(c.size(side) == a.size(-2), "torch.ormqr: other.shape[", side, "] must be equal to input.shape[-2]");
  TORCH_CHECK(tau.size(-1) <= a.size(-1), "torch.ormqr: tau.shape[-1] must be less than or equal to input.shape[-1]");
  TORCH_CHECK(a.dim() - tau.dim() == 1,
              "torch.ormqr: Expected tau to have one dimension less than input, but got tau.ndim ", "equal to ",
              tau.dim(), " and input.ndim is equal to ", a.dim());
  TORCH_CHECK(a.dim() == c.dim(),
              "torch.ormqr: Expected other to have the same number of dimensions as input, but got ",
              "other.ndim equal to ", c.dim(), " and input.ndim is equal to ", a.dim());
  TORCH_CHECK(batch_of(a) == batch_of(tau, 1),
              "torch.ormqr: Expected batch dimensions of tau to be equal to input.shape[:-2], ", "but got ",
              tau.sizes());
  TORCH_CHECK(batch_of(a) == batch_of(c),
              "torch.ormqr: Expected batch dimensions of other to be equal to input.shape[:-2], ", "but got ",
              c.sizes());
  TORCH_CHECK(tau.scalar_type() == a.scalar_type(),
              "torch.ormqr: Expected input and tau to have the same dtype, but input has ", "dtype ", a.scalar_type(),
              " and tau has dtype ", tau.scalar_type());
  TORCH_CHECK(c.scalar_type() == a.scalar_type(),
              "torch.ormqr: Expected input and other to have the same dtype, but input has ", "dtype ", a.scalar_type(),
              " and other has dtype ", c.scalar_type());
  Tensor out = begin_columns_exact(result, c.sizes(), c.scalar_type(), {a, tau, c});
  if (out.numel() > 0 && tau.numel() == 0) {
    copy_on_device(plain(c), out);
  } else if (out.numel() > 0) {
    Tensor source = plain(a), factors = plain(tau), right = plain(c);
    Record record(HR_OP_REFLECT);
    in_columns(record, source).in(factors);
    out_columns(in_columns(record, right).ints({left, transpose}), out).run();
  }
  return result.end(out);
}

// ---- singular values and eigenvalues

void svd(Result u, Result s, Result vh, const Tensor &a, bool full, bool has_vectors,
         std::optional<std::string_view> driver) {
  check_matrices(a, "linalg.svd", false);
  TORCH_CHECK(!driver.has_value(),
              "torch.linalg.svd: keyword argument `driver=` is only supported on CUDA inputs with ",
              "cuSOLVER backend.");
  int64_t rows = a.size(-2), columns = a.size(-1), least = std::min(rows, columns);
  Dims batch = batch_of(a);
  Dims u_sizes = has_vectors ? with_dims(batch, {rows, full ? rows : least}) : Dims{0};
  Dims v_sizes = has_vectors ? with_dims(batch, {full ? columns : least, columns}) : Dims{0};
  Tensor u_out = u.begin_exact(u_sizes, a.scalar_type(), {a}),
         s_out = s.begin_exact(with_dims(batch, {least}), real_type(a), {a});
  Tensor v_out = vh.begin_exact(v_sizes, a.scalar_type(), {a});
  if (a.numel() > 0) {
    Tensor source = plain(a);
    Record record(HR_OP_SVD);
    in_columns(record, source).ints({full});
    if (has_vectors)
      out_columns(out_columns(record, u_out).out(s_out), v_out).run();
    else
      record.no_out().out(s_out).run();
  } else if (has_vectors) {
    if (u_out.numel() > 0)
      copy_on_device(at::eye(rows, u_out.size(-1), a.options()).expand(u_out.sizes()), u_out);
    if (v_out.numel() > 0)
      copy_on_device(at::eye(v_out.size(-2), columns, a.options()).expand(v_out.sizes()), v_out);
  }
  u.end(u_out), s.end(s_out), vh.end(v_out);
}

void eigh(Result values, Result vectors, const Tensor &a, std::string_view uplo, bool has_vectors) {
  check_matrices(a, "linalg.eigh", true);
  checkUplo(uplo);
  Tensor w = values.begin_exact(batch_of(a, 1), real_type(a), {a});
  Tensor v = vectors.begin_exact(has_vectors ? a.sizes() : IntArrayRef{0}, a.scalar_type(), {a});
  if (a.numel() > 0) {
    Tensor source = plain(a);
    Record record(HR_OP_EIGH);
    in_columns(record, source).ints({uplo[0] == 'U' || uplo[0] == 'u'}).out(w);
    if (has_vectors)
      out_columns(record, v);
    record.run();
  }
  values.end(w), vectors.end(v);
}

static void record_eig(const Tensor &a, const Tensor &values, const Tensor *vectors) {
  if (a.numel() == 0)
    return;
  Tensor source = plain(a);
  Record record(HR_OP_EIG);
  in_columns(record, source).out(values);
  if (vectors != nullptr)
    out_columns(record, *vectors);
  record.run();
}

Tensor2 eig(Result values, Result vectors, const Tensor &a) {
  check_matrices(a, "linalg.eig", true);
  ScalarType type = c10::toComplexType(a.scalar_type());
  Tensor w = values.begin(batch_of(a, 1), type, {a}), v = begin_columns(vectors, a.sizes(), type, {a});
  record_eig(a, w, &v);
  return {values.end(w), vectors.end(v)};
}

Tensor eigvals(Result values, const Tensor &a) {
  check_matrices(a, "linalg.eigvals", true);
  Tensor w = values.begin(batch_of(a, 1), c10::toComplexType(a.scalar_type()), {a});
  record_eig(a, w, nullptr);
  return values.end(w);
}

// ---- least squares

namespace {

enum Driver { GELS, GELSY, GELSD, GELSS };

Driver driver_of(std::optional<std::string_view> name) {
  std::string_view text = name.value_or("gelsy");
  TORCH_CHECK(text == "gels" || text == "gelsy" || text == "gelsd" || text == "gelss",
              "torch.linalg.lstsq: parameter `driver` should be one of (gels, gelsy, gelsd, gelss)");
  return text == "gels" ? GELS : text == "gelsy" ? GELSY : text == "gelsd" ? GELSD : GELSS;
}

// True if residuals are stored below the solution: all matrices have full rank.
bool has_residuals(const Tensor &a, Driver driver, const Tensor &rank) {
  if (a.size(-2) <= a.size(-1) || driver == GELSY)
    return false;
  return driver == GELS || (rank.numel() > 0 && at::eq(rank, a.size(-1)).all().item<bool>());
}

} // namespace

void lstsq(Result solution, Result residuals, Result rank, Result singular_values, const Tensor &a, const Tensor &b,
           std::optional<double> rcond, std::optional<std::string_view> name) {
  TORCH_CHECK(a.dim() >= 2, "torch.linalg.lstsq: input must have at least 2 dimensions.");
  TORCH_CHECK(b.dim() >= 1, "torch.linalg.lstsq: other must have at least 1 dimension.");
  TORCH_CHECK(a.scalar_type() == b.scalar_type(),
              "torch.linalg.lstsq: Expected input and other to have the same dtype, but got ", "input's dtype ",
              a.scalar_type(), " and other's dtype ", b.scalar_type());
  checkFloatingOrComplex(a, "torch.linalg.lstsq", false);
  int64_t gap = a.dim() - b.dim(), rows = a.size(-2), columns = a.size(-1), least = std::min(rows, columns);
  TORCH_CHECK(
      gap <= 1,
      "torch.linalg.lstsq: input.dim() must be greater or equal to other.dim() and (input.dim() - other.dim()) ",
      "<= 1");
  bool is_vector = gap == 1 || at::native::linalg_solve_is_vector_rhs(a, b);
  Tensor right = is_vector ? b.unsqueeze(-1) : b;
  TORCH_CHECK(rows == right.size(-2), is_vector ? "torch.linalg.lstsq: input.size(-2) should match other.size(-1)"
                                                : "torch.linalg.lstsq: input.size(-2) should match other.size(-2)");
  Driver driver = driver_of(name);
  Dims batch = common_batch(a, right);
  Tensor left = plain(expand_batch(a, batch)), from = plain(expand_batch(right, batch));
  int64_t height = std::max(rows, columns), width = right.size(-1);
  Tensor work = new_columns(with_dims(batch, {height, width}), a.scalar_type());
  Tensor ranks = rank.begin(driver == GELS ? Dims{0} : batch, ScalarType::Long);
  bool has_values = driver == GELSD || driver == GELSS;
  Tensor values = singular_values.begin(has_values ? with_dims(batch, {least}) : Dims{0}, real_type(a));
  if (left.numel() > 0 && from.numel() > 0) {
    double bound = rcond.value_or(at::native::_get_epsilon(real_type(a)) * static_cast<double>(height));
    Record record(HR_OP_LEAST_SQUARES);
    in_columns(record, left);
    out_columns(in_columns(record, from).ints({driver}).num(bound), work);
    (driver == GELS ? record.no_out() : record.out(ranks)).out(has_values ? values : Tensor()).run();
  } else {
    fill_with(work, 0);
    fill_with(ranks, 0);
  }
  Tensor found = work.narrow(-2, 0, columns);
  found = is_vector ? found.squeeze(-1) : found;
  Tensor out = solution.begin(found.sizes(), a.scalar_type());
  copy_on_device(found, out);
  Tensor rest = new_tensor({0}, real_type(a));
  if (left.numel() > 0 && has_residuals(a, driver, ranks)) {
    Tensor sizes = at::abs(work.narrow(-2, columns, rows - columns));
    rest = at::sum(at::mul(sizes, sizes), IntArrayRef{-2});
  }
  Tensor left_over = residuals.begin(rest.sizes(), real_type(a));
  copy_on_device(rest, left_over);
  solution.end(out), residuals.end(left_over), rank.end(ranks), singular_values.end(values);
}

// ---- LDL

void ldl_factor_ex(Result ld, Result pivots, Result info, const Tensor &a, bool hermitian, bool check_errors) {
  check_matrices(a, "torch.linalg.ldl_factor_ex", true);
  Tensor out = begin_columns_exact(ld, a.sizes(), a.scalar_type(), {a});
  Tensor order = pivots.begin_exact(batch_of(a, 1), ScalarType::Int),
         codes = info.begin_exact(batch_of(a), ScalarType::Int);
  if (a.numel() == 0) {
    fill_with(codes, 0);
  } else {
    Tensor source = plain(a);
    Record record(HR_OP_LDL);
    out_columns(in_columns(record, source).ints({hermitian}), out).out(order).out(codes).run();
  }
  ld.end(out), pivots.end(order), info.end(codes);
  if (check_errors)
    at::_linalg_check_errors(codes, "torch.linalg.ldl_factor_ex", a.dim() == 2);
}

void ldl_solve(Result result, const Tensor &ld, const Tensor &pivots, const Tensor &b, bool hermitian) {
  check_matrices(ld, "torch.linalg.ldl_solve", true);
  TORCH_CHECK(b.dim() >= 2, "torch.linalg.ldl_solve: Expected B to have at least 2 dimensions, but it has ", b.dim(),
              " dimensions instead");
  TORCH_CHECK(ld.size(-1) == b.size(-2), "torch.linalg.ldl_solve: Incompatible matrix sizes");
  TORCH_CHECK(
      batch_of(ld, 1) == Dims(pivots.sizes().begin(), pivots.sizes().end()),
      "torch.linalg.ldl_solve: Expected LD.shape[:-1] and pivots.shape to be the same, but got pivots with shape ",
      pivots.sizes(), " instead");
  TORCH_CHECK(at::isIntegralType(pivots.scalar_type(), false),
              "torch.linalg.ldl_solve: Expected pivots to be integers. Got ", pivots.scalar_type());
  TORCH_CHECK(ld.scalar_type() == b.scalar_type(), "torch.linalg.ldl_solve: LD dtype", ld.scalar_type(),
              " does not match b dtype ", b.scalar_type());
  Dims batch = common_batch(ld, b);
  Tensor factors = plain(expand_batch(ld, batch)), right = plain(expand_batch(b, batch));
  Tensor order = to_type(pivots, ScalarType::Int).expand(with_dims(batch, {pivots.size(-1)}));
  Tensor out = result.begin_exact(right.sizes(), b.scalar_type(), {ld, b});
  if (out.numel() > 0) {
    Record record(HR_OP_LDL_SOLVE);
    in_columns(record, factors).in(order);
    out_columns(in_columns(record, right).ints({hermitian}), out).run();
  }
  result.end(out);
}

// ---- triangles

static void record_triangle(const Tensor &a, const Tensor &b, bool upper, int64_t trans, bool unit, bool left,
                            const Tensor &out) {
  if (out.numel() == 0)
    return;
  // Rows of a triangle are columns of the opposite one.
  bool by_rows = trans < 2 && a.stride(-1) == 1 && a.stride(-2) >= a.size(-1);
  Record record(HR_OP_TRIANGULAR_SOLVE);
  in_columns(record, by_rows ? a.mT() : a);
  upper = upper != by_rows, trans = by_rows ? 1 - trans : trans;
  out_columns(in_columns(record, b).ints({upper, trans, unit, left}), out).run();
}

Tensor solve_triangular(Result result, const Tensor &a, const Tensor &b, bool upper, bool left, bool unit) {
  checkFloatingOrComplex(a, "linalg.solve_triangular", false);
  at::native::checkInputsSolver(a, b, left, "linalg.solve_triangular");
  TORCH_CHECK(a.scalar_type() == b.scalar_type(), "Expected both inputs to have the same dtype, got ", a.scalar_type(),
              " and ", b.scalar_type());
  Dims batch = common_batch(a, b);
  Tensor triangle = plain(expand_batch(a, batch)), right = plain(expand_batch(b, batch));
  Tensor out = begin_columns(result, right.sizes(), b.scalar_type(), {a, b});
  record_triangle(triangle, right, upper, 0, unit, left, out);
  return result.end(out);
}

void triangular_solve(Result x, Result a_copy, const Tensor &b, const Tensor &a, bool upper, bool transpose,
                      bool unit) {
  at::native::linearSolveCheckInputs(b, a, "triangular_solve");
  checkFloatingOrComplex(a, "triangular_solve", false);
  TORCH_CHECK(b.dim() >= 2 && a.dim() >= 2, "torch.triangular_solve: Expected b and A to have at least 2 dimensions");
  Dims batch = common_batch(a, b);
  Tensor triangle = plain(expand_batch(a, batch)), right = plain(expand_batch(b, batch));
  Tensor out = x.begin_exact(right.sizes(), b.scalar_type(), {a, b});
  Tensor copy = a_copy.begin_exact(triangle.sizes(), a.scalar_type(), {a});
  record_triangle(triangle, right, upper, transpose ? 1 : 0, unit, true, out);
  if (copy.numel() > 0)
    copy_on_device(triangle, copy);
  x.end(out), a_copy.end(copy);
}

// ---- the rest

Tensor matrix_exp(const Tensor &a) {
  squareCheckInputs(a, "linalg.matrix_exp");
  checkFloatingOrComplex(a, "linalg.matrix_exp");
  ScalarType type = a.scalar_type();
  Tensor source = to_type(plain(a), is_half(type) ? ScalarType::Float : type);
  Tensor out = new_columns(a.sizes(), source.scalar_type());
  if (out.numel() > 0) {
    Record record(HR_OP_MATRIX_EXP);
    in_columns(record, source);
    out_columns(record, out).run();
  }
  return to_type(out, type);
}

void cross(Result result, const Tensor &a, const Tensor &b, int64_t dim) {
  TORCH_CHECK(a.dim() == b.dim(), "linalg.cross: inputs must have the same number of dimensions.");
  int64_t along = at::maybe_wrap_dim(dim, a.dim());
  TORCH_CHECK(a.size(along) == 3 && b.size(along) == 3, "linalg.cross: inputs dimension ", dim,
              " must have length 3. Got ", a.size(along), " and ", b.size(along));
  at::DimVector sizes = at::infer_size_dimvector(a.sizes(), b.sizes());
  ScalarType type = at::result_type(a, b);
  TORCH_CHECK_NOT_IMPLEMENTED(type != ScalarType::Bool, "linalg.cross is not implemented for 'Bool'");
  Tensor x = to_type(a, type).expand(sizes), y = to_type(b, type).expand(sizes);
  Tensor out = result.begin_exact(sizes, type, {a, b});
  auto others = [along](IntArrayRef dims) {
    at::DimVector rest(dims);
    rest.erase(rest.begin() + along);
    return rest;
  };
  at::DimVector rest = others(sizes);
  auto product = [&](int64_t j, int64_t k) {
    Tensor values = new_tensor(rest, type);
    Record(HR_OP_MUL)
        .in(x, rest, others(x.strides()), j * x.stride(along))
        .in(y, rest, others(y.strides()), k * y.stride(along))
        .out(values)
        .run();
    return values;
  };
  for (int64_t i = 0; i < 3 && out.numel() > 0; ++i) {
    int64_t j = (i + 1) % 3, k = (i + 2) % 3;
    Tensor plus = product(j, k), minus = product(k, j);
    Record(HR_OP_SUB).in(plus).in(minus).out(out, rest, others(out.strides()), i * out.stride(along)).run();
  }
  result.end(out);
}

static void check_addr_number(const Scalar &number, const char *name, ScalarType type) {
  TORCH_CHECK(!number.isBoolean() || type == ScalarType::Bool, "Boolean ", name,
              " only supported for Boolean results.");
  TORCH_CHECK(c10::isFloatingType(type) || c10::isComplexType(type) || number.isIntegral(true),
              "For integral input tensors, argument ", name, " must not be a floating point number.");
}

// Bools are combined with "and" and "or".
static Tensor addr_bool(const Tensor &self, const Tensor &products, const Scalar &beta, const Scalar &alpha) {
  Tensor chosen = alpha.toBool() ? products : at::zeros_like(products);
  return beta.toBool() ? self.logical_or(chosen) : chosen;
}

Tensor addr(Result result, const Tensor &self, const Tensor &vec1, const Tensor &vec2, const Scalar &beta,
            const Scalar &alpha) {
  TORCH_CHECK(vec1.dim() == 1 && vec2.dim() == 1, "addr: Expected 1-D argument vec1 and vec2, but got ", vec1.dim(),
              "-D and ", vec2.dim(), "-D");
  ScalarType type = c10::promoteTypes(self.scalar_type(), c10::promoteTypes(vec1.scalar_type(), vec2.scalar_type()));
  check_addr_number(beta, "beta", type);
  check_addr_number(alpha, "alpha", type);
  Dims sizes{vec1.size(0), vec2.size(0)};
  if (result.is_inplace()) {
    TORCH_CHECK(self.dim() == 2, "2D tensor expected, got ", self.dim(), "D tensor for input");
    TORCH_CHECK(self.sizes().equals(sizes), "size mismatch, input: ", self.sizes(), ", v1: ", vec1.sizes(),
                ", v2: ", vec2.sizes());
  }
  TORCH_CHECK(at::is_expandable_to(self.sizes(), sizes), "The expanded size of the tensor (", sizes[1],
              ") must match the existing size. Target sizes: ", IntArrayRef(sizes), ". Tensor sizes: ", self.sizes());
  ScalarType wide = is_half(type) ? ScalarType::Float : type; // rounded once
  Tensor left = to_type(vec1, wide).unsqueeze(1), right = to_type(vec2, wide);
  if (type == ScalarType::Bool)
    return result.give(addr_bool(self, left.logical_and(right), beta, alpha));
  Tensor sum = pointwise(Result::fresh(), HR_OP_MUL, Rule::Same, left, fixed(alpha)).mul(right);
  if (!beta.equal(0))
    sum = pointwise(Result::fresh(), HR_OP_MUL, Rule::Same, to_type(self, wide), fixed(beta)).add(sum);
  return result.give(to_type(sum, type));
}

Tensor addbmm(Result result, const Tensor &self, const Tensor &batch1, const Tensor &batch2, const Scalar &beta,
              const Scalar &alpha) {
  TORCH_CHECK(batch1.dim() == 3, "batch1 must be a 3D tensor");
  TORCH_CHECK(batch2.dim() == 3, "batch2 must be a 3D tensor");
  TORCH_CHECK(batch1.size(0) == batch2.size(0), "batch1 and batch2 must have same number of batches, got ",
              batch1.size(0), " and ", batch2.size(0));
  TORCH_CHECK(batch1.size(2) == batch2.size(1), "Incompatible matrix sizes for bmm (", batch1.size(1), "x",
              batch1.size(2), " and ", batch2.size(1), "x", batch2.size(2), ")");
  int64_t inner = batch1.size(0) * batch1.size(2);
  Tensor left = batch1.permute({1, 0, 2}).reshape({batch1.size(1), inner}),
         right = batch2.reshape({inner, batch2.size(2)});
  Dims sizes{left.size(0), right.size(1)};
  TORCH_CHECK(at::is_expandable_to(self.sizes(), sizes), "The expanded size of the tensor (", left.size(0), ", ",
              right.size(1), ") must match the existing size ", self.sizes());
  if (result.is_inplace() && !self.sizes().equals(sizes)) { // torch resizes it to the sum's sizes
    Tensor wide = self.expand(sizes).clone();
    self.resize_(sizes);
    return addmm(result, 2, wide, left, right, beta, alpha);
  }
  return addmm(result, 2, self, left, right, beta, alpha);
}

Tensor vdot(const Tensor &a, const Tensor &b) {
  return headrace::dot(a.is_complex() ? a.conj().resolve_conj() : a, b);
}

} // namespace headrace
