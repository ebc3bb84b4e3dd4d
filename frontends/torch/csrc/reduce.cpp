// reduce.cpp: reductions, norms, softmax and matrix products.
//
// The core's reductions have outputs with the rank of the input and 1 in the reduced dims. This is a view of the tensor
// that torch expects, which lacks the reduced dims unless keepdim is set.
#include <ATen/ExpandUtils.h>
#include <ATen/WrapDimUtilsMulti.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/real.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/DefaultDtype.h>

#include "kernels.h"
#include "versions.h"

namespace headrace {
namespace {

struct Reduction {
  int64_t mask = 0;
  bool all, keepdim;
  Dims kept;         // the input's sizes with 1 in the reduced dims
  Dims sizes;        // the result's
  int64_t count = 1; // elements reduced to one

  Reduction(const Tensor &self, OptionalIntArrayRef dims, bool keep)
      : all(!dims.has_value() || dims->empty()), keepdim(keep) {
    int64_t rank = self.dim();
    if (all) {
      mask = (int64_t{1} << rank) - 1;
    } else {
      for (int64_t dim : *dims) {
        int64_t wrapped = at::maybe_wrap_dim(dim, rank);
        TORCH_CHECK(rank == 0 || (mask >> wrapped & 1) == 0, "dim ", wrapped,
                    " appears multiple times in the list of dims");
        if (rank > 0)
          mask |= int64_t{1} << wrapped;
      }
    }
    for (int64_t i = 0; i < rank; ++i) {
      bool reduced = mask >> i & 1;
      kept.push_back(reduced ? 1 : self.size(i));
      if (reduced)
        count *= self.size(i);
      if (!reduced || keepdim)
        sizes.push_back(reduced ? 1 : self.size(i));
    }
  }

  // Strides of the result in the core's form.
  Dims strides(const Tensor &out) const {
    Dims result;
    for (size_t i = 0, j = 0; i < kept.size(); ++i) {
      bool gone = !keepdim && (mask >> i & 1) != 0;
      result.push_back(gone ? 0 : out.stride(static_cast<int64_t>(j++)));
    }
    return result;
  }
};

// For reductions without a result for no elements.
void check_not_empty(const Tensor &self, const Reduction &reduction, const char *name) {
  TORCH_CHECK(!reduction.all || self.numel() > 0, name, "(): Expected reduction dim to be specified for input.numel() ",
              "== 0. Specify the reduction dim with the 'dim' argument.");
  for (int64_t i = 0; i < self.dim(); ++i) {
    TORCH_CHECK_INDEX((reduction.mask >> i & 1) == 0 || self.size(i) > 0, name, "(): Expected reduction dim ", i,
                      " to have non-zero size.");
  }
}

// One reduction into `result`; the record's own ints and numbers come from `attributes`.
template <class Attributes>
Tensor reduce(Result result, hr_op op, const Tensor &self, const Reduction &reduction, ScalarType type,
              std::optional<double> empty, Attributes attributes) {
  Tensor out = result.begin(reduction.sizes, type, {self});
  if (out.numel() == 0)
    return result.end(out);
  if (self.numel() == 0) {
    TORCH_CHECK(empty.has_value(), "headrace: reduction of no elements");
    fill_with(out, *empty);
    return result.end(out);
  }
  Record record(op);
  record.in(self).ints({reduction.mask});
  attributes(record);
  record.out(out, reduction.kept, reduction.strides(out)).run();
  return result.end(out);
}

Tensor reduce(Result result, hr_op op, const Tensor &self, const Reduction &reduction, ScalarType type,
              std::optional<double> empty) {
  return reduce(result, op, self, reduction, type, empty, [](Record &) {});
}

// Sums and products of integers are int64 unless the caller passes a dtype.
ScalarType accumulated_type(const Result &result, const Tensor &self, std::optional<ScalarType> dtype) {
  if (dtype.has_value())
    return *dtype;
  if (!result.is_fresh() && !result.is_inplace())
    return result.tensor().scalar_type();
  return c10::isIntegralType(self.scalar_type(), true) ? ScalarType::Long : self.scalar_type();
}

} // namespace

ScalarType scan_type(const Result &result, const Tensor &self, std::optional<ScalarType> dtype) {
  return result.is_inplace() && !dtype.has_value() ? self.scalar_type() : accumulated_type(result, self, dtype);
}

// One reduction of the values, or of their real parts if the result is real.
static Tensor reduce_as_real(Result result, hr_op op, const Tensor &self, OptionalIntArrayRef dims, bool keepdim,
                             ScalarType type, double empty) {
  if (self.is_complex() && !c10::isComplexType(type))
    return reduce(result, op, to_type(self, c10::toRealValueType(self.scalar_type())), Reduction(self, dims, keepdim),
                  type, empty);
  return reduce(result, op, self, Reduction(self, dims, keepdim), type, empty);
}

Tensor sum(Result result, const Tensor &self, OptionalIntArrayRef dims, bool keepdim, std::optional<ScalarType> dtype) {
  ScalarType type = accumulated_type(result, self, dtype);
  if (type == ScalarType::Bool && self.scalar_type() != type) // numbers become bools before they are combined
    return headrace::sum(result, to_type(self, type), dims, keepdim, dtype);
  return reduce_as_real(result, HR_OP_SUM, self, dims, keepdim, type, 0);
}

Tensor prod(Result result, const Tensor &self, OptionalIntArrayRef dims, bool keepdim,
            std::optional<ScalarType> dtype) {
  ScalarType type = accumulated_type(result, self, dtype);
  if (type == ScalarType::Bool && self.scalar_type() != type)
    return headrace::prod(result, to_type(self, type), dims, keepdim, dtype);
  return reduce_as_real(result, HR_OP_PROD, self, dims, keepdim, type, 1);
}

// Exclusive or of the elements, widened to 64 bits.
Tensor hash_tensor(Result result, const Tensor &self, IntArrayRef dims, bool keepdim, int64_t mode) {
  TORCH_CHECK(mode == 0, "Unknown hash_tensor mode: ", mode);
  TORCH_CHECK(!self.is_complex(), "hash_tensor does not support complex inputs");
  ScalarType type = self.scalar_type();
  Tensor bits = c10::isFloatingType(type)    ? to_type(self, ScalarType::Double).view(ScalarType::Long)
                : type == ScalarType::UInt64 ? self.view(ScalarType::Long)
                                             : to_type(self, ScalarType::Long);
  Tensor hash = reduce(Result::fresh(), HR_OP_XOR, bits, Reduction(bits, dims, keepdim), ScalarType::Long, 0);
  return result.give(hash.view(ScalarType::UInt64), self);
}

Tensor mean(Result result, const Tensor &self, OptionalIntArrayRef dims, bool keepdim,
            std::optional<ScalarType> dtype) {
  bool has_out = !result.is_fresh() && !result.is_inplace();
  ScalarType type = dtype.value_or(has_out ? result.tensor().scalar_type() : self.scalar_type());
  TORCH_CHECK(
      c10::isFloatingType(type) || c10::isComplexType(type),
      "mean(): could not infer output dtype. Input dtype must be either a floating point or complex dtype. Got: ",
      type);
  return reduce(result, HR_OP_MEAN, self, Reduction(self, dims, keepdim), type, std::nan(""));
}

Tensor extreme(Result result, hr_op op, const Tensor &self, OptionalIntArrayRef dims, bool keepdim) {
  Reduction reduction(self, dims, keepdim);
  bool is_max = op == HR_OP_AMAX;
  check_not_empty(self, reduction, dims.has_value() ? (is_max ? "amax" : "amin") : (is_max ? "max" : "min"));
  return reduce(result, op, self, reduction, self.scalar_type(), std::nullopt);
}

// The core finds the best key's index: the second operand counts the elements of a row.
static Tensor record_arg_extreme(Result result, hr_op op, const Tensor &self, const Reduction &reduction) {
  Tensor out = result.begin(reduction.sizes, ScalarType::Long, {self});
  if (out.numel() == 0)
    return result.end(out);
  Tensor numbers = new_tensor({reduction.count}, ScalarType::Long);
  Record count(HR_OP_ARANGE);
  count.num(int64_t{0}).num(int64_t{1}).out(numbers).run();
  Dims strides(self.dim(), 0);
  int64_t stride = 1;
  for (int64_t i = self.dim(); i-- > 0;) {
    if ((reduction.mask >> i & 1) == 0)
      continue;
    strides[i] = stride;
    stride *= self.size(i);
  }
  Record record(op);
  record.in(self).in(numbers, self.sizes(), strides).ints({reduction.mask});
  record.out(out, reduction.kept, reduction.strides(out)).run();
  return result.end(out);
}

Tensor arg_extreme(Result result, hr_op op, const Tensor &self, std::optional<int64_t> dim, bool keepdim) {
  int64_t one = dim.value_or(0);
  const char *name = op == HR_OP_ARGMAX ? "argmax" : "argmin";
  HEADRACE_CHECK_SERVED(self.scalar_type() != ScalarType::Bool, name, "(): does not support bool input");
  HEADRACE_CHECK_ORDERED(!self.is_complex(), name, "(): does not support complex input");
  TORCH_CHECK_INDEX(dim.has_value() || self.numel() > 0, name,
                    "(): Expected reduction dim to be specified for input.numel() == 0.");
  Reduction reduction(self, dim.has_value() ? OptionalIntArrayRef(IntArrayRef(one)) : OptionalIntArrayRef(), keepdim);
  check_not_empty(self, reduction, name);
  return record_arg_extreme(result, op, self, reduction);
}

Tensor2 extreme_dim(Result values, Result indices, hr_op op, hr_op arg_op, const Tensor &self, int64_t dim,
                    bool keepdim) {
  const char *name = op == HR_OP_AMAX ? "max" : "min";
  Reduction reduction(self, OptionalIntArrayRef(IntArrayRef(dim)), keepdim);
  check_not_empty(self, reduction, name);
  HEADRACE_CHECK_ORDERED(!self.is_complex(), name, "(): does not support complex input");
  Tensor value = reduce(values, op, self, reduction, self.scalar_type(), std::nullopt);
  return {value, record_arg_extreme(indices, arg_op, self, reduction)};
}

Tensor2 aminmax(Result min, Result max, const Tensor &self, std::optional<int64_t> dim, bool keepdim) {
  TORCH_CHECK_TYPE(!kSince215 || !self.is_complex(), "aminmax not implemented for ", self.scalar_type());
  int64_t one = dim.value_or(0);
  Reduction reduction(self, dim.has_value() ? OptionalIntArrayRef(IntArrayRef(one)) : OptionalIntArrayRef(), keepdim);
  check_not_empty(self, reduction, "aminmax");
  Tensor least = reduce(min, HR_OP_AMIN, self, reduction, self.scalar_type(), std::nullopt);
  return {least, reduce(max, HR_OP_AMAX, self, reduction, self.scalar_type(), std::nullopt)};
}

Tensor truth(Result result, hr_op op, const Tensor &self, OptionalIntArrayRef dims, bool keepdim) {
  bool some = dims.has_value() && dims->empty(); // any.dims with an empty list reduces nothing
  ScalarType wanted = result.is_fresh() ? ScalarType::Bool : result.tensor().scalar_type();
  TORCH_CHECK(wanted == ScalarType::Bool || wanted == ScalarType::Byte, op == HR_OP_ALL ? "all" : "any",
              " only supports bool tensor for result, got: ", wanted);
  Reduction reduction(self, dims, keepdim);
  if (some && self.dim() > 0) {
    Tensor values = pointwise(Result::fresh(), HR_OP_NE, Rule::Compare, self, Scalar(0));
    return result.is_fresh() ? values : result.end(values);
  }
  bool is_byte = result.is_fresh() ? self.scalar_type() == ScalarType::Byte : wanted == ScalarType::Byte;
  ScalarType type = is_byte ? ScalarType::Byte : ScalarType::Bool;
  return reduce(result, op, self, reduction, type, op == HR_OP_ALL);
}

Tensor variance(Result result, const Tensor &self, OptionalIntArrayRef dims, const std::optional<Scalar> &correction,
                bool keepdim, bool root) {
  TORCH_CHECK(c10::isFloatingType(self.scalar_type()) || self.is_complex(), root ? "std" : "var",
              ": only support floating point and complex dtypes");
  ScalarType type = c10::toRealValueType(self.scalar_type());
  Reduction reduction(self, dims, keepdim);
  ScalarType wanted = result.is_fresh() ? type : result.tensor().scalar_type();
  if (c10::isFloatingType(wanted) && c10::promoteTypes(type, wanted) != type && !self.is_complex()) { // as wide as out=
    TORCH_CHECK(!is_half(type) || reduction.mask + 1 != int64_t{1} << self.dim(), "std_var_all: Unsupported dtype ",
                type);
    return variance(result, to_type(self, wanted), dims, correction, keepdim, root);
  }
  return reduce(result, HR_OP_VAR_MEAN, self, reduction, type, std::nan(""), [&](Record &record) {
    record.ints({root}).num(correction.has_value() ? correction->toDouble() : 1.0);
  });
}

Tensor2 variance_mean(const Tensor &self, OptionalIntArrayRef dims, const std::optional<Scalar> &correction,
                      bool keepdim, bool root) {
  TORCH_CHECK(c10::isFloatingType(self.scalar_type()) || self.is_complex(), root ? "std_mean" : "var_mean",
              " only support floating point and complex dtypes");
  Reduction reduction(self, dims, keepdim);
  Tensor spread = new_tensor(reduction.sizes, c10::toRealValueType(self.scalar_type()));
  Tensor centre = new_tensor(reduction.sizes, self.scalar_type());
  if (spread.numel() == 0)
    return {spread, centre};
  if (self.numel() == 0)
    return {fill_with(spread, std::nan("")), fill_with(centre, std::nan(""))};
  Record record(HR_OP_VAR_MEAN);
  record.in(self).ints({reduction.mask, root}).num(correction.has_value() ? correction->toDouble() : 1.0);
  record.out(spread, reduction.kept, reduction.strides(spread))
      .out(centre, reduction.kept, reduction.strides(centre))
      .run();
  return {spread, centre};
}

// The orders that are constants for the core's compiler.
static int64_t norm_kind(double order) {
  if (std::isinf(order))
    return order > 0 ? 4 : 5;
  return order == 0 ? 1 : order == 1 ? 2 : order == 2 ? 3 : 0;
}

Tensor norm(Result result, const Tensor &self, const std::optional<Scalar> &p, OptionalIntArrayRef dims, bool keepdim,
            std::optional<ScalarType> dtype) {
  double order = p.has_value() ? p->toDouble() : 2.0;
  TORCH_CHECK(c10::isFloatingType(self.scalar_type()) || self.is_complex(),
              "linalg.vector_norm: Expected a floating point or complex tensor as input. Got ", self.scalar_type());
  ScalarType type = c10::toRealValueType(dtype.value_or(self.scalar_type()));
  Reduction reduction(self, dims, keepdim);
  TORCH_CHECK(self.numel() > 0 || !(order < 0 || std::isinf(order)) || reduction.count > 0,
              "linalg.vector_norm cannot compute the ", order,
              " norm on an empty tensor because the operation does not have an identity");
  return reduce(result, HR_OP_NORM, self, reduction, type, 0,
                [&](Record &record) { record.ints({norm_kind(order)}).num(order); });
}

// Relative to the largest real part, which keeps exp from overflowing.
static Tensor logsumexp_complex(Result result, const Tensor &self, IntArrayRef dims, bool keepdim) {
  ScalarType type = result.is_fresh() ? self.scalar_type() : result.tensor().scalar_type();
  TORCH_CHECK(c10::isFloatingType(type) || c10::isComplexType(type),
              "logsumexp(): Expected floating point type for result tensor, but got: ", type);
  Tensor sums;
  if (self.numel() == 0) {
    sums = headrace::sum(Result::fresh(), self, dims, keepdim, type).log();
  } else {
    Tensor largest = at::real(self).amax(dims, true);
    largest = largest.masked_fill(largest.isinf(), 0);
    sums = headrace::sum(Result::fresh(), self.sub(largest).exp(), dims, true, type).log().add(largest);
    sums = keepdim ? sums : sums.reshape(Reduction(self, dims, false).sizes);
  }
  return result.give(sums);
}

Tensor logsumexp(Result result, const Tensor &self, IntArrayRef dims, bool keepdim) {
  if (self.is_complex())
    return logsumexp_complex(result, self, dims, keepdim);
  ScalarType type =
      c10::isIntegralType(self.scalar_type(), true) ? c10::get_default_dtype_as_scalartype() : self.scalar_type();
  return reduce(result, HR_OP_LOGSUMEXP, self, Reduction(self, dims, keepdim), type,
                -std::numeric_limits<double>::infinity());
}

Tensor cumsum(Result result, const Tensor &self, int64_t dim, std::optional<ScalarType> dtype) {
  int64_t along = at::maybe_wrap_dim(dim, self.dim());
  ScalarType type = scan_type(result, self, dtype);
  if (result.is_inplace() && self.numel() == 0)
    return self;
  TORCH_CHECK_NOT_IMPLEMENTED(type != ScalarType::Bool, "\"cumsum\" not implemented for 'Bool'");
  Tensor out = result.exact_if(true).begin(self.sizes(), type, {self});
  if (out.numel() > 0) {
    Record record(HR_OP_CUMSUM);
    record.in(self).ints({along}).out(out).run();
  }
  return result.end(out);
}

bool equal(const Tensor &self, const Tensor &other) {
  if (!is_on_device(self))
    fail_device(self);
  if (!is_on_device(other))
    fail_device(other);
  if (!self.sizes().equals(other.sizes()))
    return false;
  if (self.numel() == 0)
    return true;
  Tensor same = pointwise(Result::fresh(), HR_OP_EQ, Rule::Compare, self, other);
  return local_scalar(truth(Result::fresh(), HR_OP_ALL, same, std::nullopt, false)).toBool();
}

// ---- softmax

Tensor softmax(Result result, hr_op op, const Tensor &self, int64_t dim, bool half_to_float) {
  int64_t along = at::maybe_wrap_dim(dim, self.dim());
  TORCH_CHECK_NOT_IMPLEMENTED(c10::isFloatingType(self.scalar_type()), "\"softmax\" not implemented for '",
                              self.scalar_type(), "'");
  Tensor out = result.begin(self.sizes(), half_to_float ? ScalarType::Float : self.scalar_type(), {self});
  if (out.numel() > 0) {
    Record record(op);
    record.in(self).ints({along}).out(out).run();
  }
  return result.end(out);
}

Tensor softmax_backward(Result result, hr_op op, const Tensor &grad, const Tensor &output, int64_t dim,
                        ScalarType input_type) {
  int64_t along = at::maybe_wrap_dim(dim, grad.dim());
  Tensor out = result.begin(grad.sizes(), input_type, {grad, output});
  if (out.numel() > 0) {
    Record record(op);
    record.in(grad).in(output).ints({along}).out(out).run();
  }
  return result.end(out);
}

// ---- products

// Rank 2: matrices; 3: batches of them. `name` is the operation's in messages since torch 2.15.
static void check_product(const char *name, int64_t rank, const Tensor &a, const Tensor &b) {
  TORCH_CHECK(a.dim() == rank && b.dim() == rank,
              rank == 2 ? "mat1 and mat2 must be matrices" : "batch1 and batch2 must be 3D tensors", ", not ", a.dim(),
              "D and ", b.dim(), "D");
  TORCH_CHECK(a.scalar_type() == b.scalar_type(),
              "expected m1 and m2 to have the same dtype, but got: ", a.scalar_type(), " != ", b.scalar_type());
  TORCH_CHECK(a.size(-1) == b.size(-2), kSince215 && rank == 2 ? name : "",
              rank == 2 ? "mat1 and mat2 shapes cannot be multiplied ("
                        : "Expected size for first two dimensions of batch2 tensor to match: (",
              a.size(-2), "x", a.size(-1), " and ", b.size(-2), "x", b.size(-1), ")");
  TORCH_CHECK_NOT_IMPLEMENTED(a.scalar_type() != ScalarType::Bool, "matrix products are not implemented for 'Bool'");
  TORCH_CHECK(a.dim() < 3 || a.size(0) == b.size(0), "batch1 and batch2 must have same number of batches, got ",
              a.size(0), " and ", b.size(0));
}

static void check_product_out(const Result &result, const Tensor &a) {
  TORCH_CHECK(result.is_fresh() || result.tensor().scalar_type() == a.scalar_type(),
              "Expected out tensor to have dtype ", a.scalar_type(), ", but got ",
              result.is_fresh() ? a.scalar_type() : result.tensor().scalar_type(), " instead");
}

static Dims product_sizes(const Tensor &a, const Tensor &b) {
  Dims sizes(a.sizes().begin(), a.sizes().end());
  sizes.back() = b.size(-1);
  return sizes;
}

static void record_matmul(const Tensor &a, const Tensor &b, const OptionalTensor &bias, const Tensor &out) {
  Record record(HR_OP_MATMUL);
  record.in(a).in(b);
  if (bias.has_value())
    record.in(*bias, out.sizes());
  record.out(out).run();
}

// torch multiplies matrices of 8-bit floats, not batches of them; sums are of float32, rounded once.
static bool is_stored_product(int64_t rank, const Tensor &a) {
  return rank == 2 && c10::isFloat8Type(a.scalar_type()) && a.scalar_type() != ScalarType::Float8_e8m0fnu;
}

Tensor matmul(Result result, int64_t rank, const Tensor &a, const Tensor &b) {
  if (C10_UNLIKELY(a.is_conj() || b.is_conj())) // torch leaves conjugation to its products
    return matmul(result, rank, a.resolve_conj(), b.resolve_conj());
  check_product("mm: ", rank, a, b);
  check_product_out(result, a);
  Dims sizes = product_sizes(a, b);
  Tensor out = result.begin(sizes, a.scalar_type(), {a, b});
  if (out.numel() == 0)
    return result.end(out);
  if (a.size(-1) == 0)
    fill_with(out, 0);
  else if (is_stored_product(rank, a))
    copy_on_device(matmul(Result::fresh(), rank, to_type(a, ScalarType::Float), to_type(b, ScalarType::Float)), out);
  else
    record_matmul(a, b, std::nullopt, out);
  return result.end(out);
}

Tensor addmm(Result result, int64_t rank, const Tensor &self, const Tensor &a, const Tensor &b, const Scalar &beta,
             const Scalar &alpha) {
  if (C10_UNLIKELY(a.is_conj() || b.is_conj() || (self.is_conj() && !result.is_inplace())))
    return addmm(result, rank, result.is_inplace() ? self : self.resolve_conj(), a.resolve_conj(), b.resolve_conj(),
                 beta, alpha);
  check_product("addmm: ", rank, a, b);
  TORCH_CHECK(self.scalar_type() == a.scalar_type(), "self and mat2 must have the same dtype, but got ",
              self.scalar_type(), " and ", a.scalar_type());
  if (!is_on_device(self))
    fail_device(self);
  check_product_out(result, a);
  Dims sizes = product_sizes(a, b);
  TORCH_CHECK(at::is_expandable_to(self.sizes(), sizes), "The expanded size of the tensor must match the existing ",
              "size. Target sizes: ", IntArrayRef(sizes), ". Tensor sizes: ", self.sizes());
  bool plain = beta.equal(1) && alpha.equal(1);
  bool is_self = !result.is_fresh() && result.tensor().is_alias_of(self);
  Tensor out = is_self && !result.is_inplace() ? result.begin(sizes, a.scalar_type(), {a, b, self})
                                               : result.begin(sizes, a.scalar_type(), {a, b});
  if (out.numel() == 0)
    return result.end(out);
  bool is_row = self.dim() == 1 && self.size(0) == sizes.back(); // libraries add it before they round
  bool is_rounded_late = is_half(a.scalar_type()) && !beta.equal(0) && !(plain && is_row); // terms may cancel out
  if (is_stored_product(rank, a)) {
    ScalarType wide = ScalarType::Float;
    Tensor sum = addmm(Result::fresh(), rank, to_type(self, wide), to_type(a, wide), to_type(b, wide), beta, alpha);
    copy_on_device(sum, out);
    return result.end(out);
  }
  bool is_bare = beta.equal(0) && alpha.equal(1);
  if ((is_bare || (plain && !is_rounded_late)) && a.size(-1) > 0) {
    record_matmul(a, b, is_bare ? OptionalTensor() : OptionalTensor(self), out);
    return result.end(out);
  }
  bool is_narrow = out.scalar_type() == ScalarType::Half || out.scalar_type() == ScalarType::BFloat16;
  Tensor product =
      new_tensor(sizes, is_narrow ? ScalarType::Float : out.scalar_type()); // rounded once, after the factors
  if (a.size(-1) == 0)
    fill_with(product, 0);
  else
    record_matmul(a, b, std::nullopt, product);
  if (beta.equal(0)) {
    pointwise(Result::out(out), HR_OP_MUL, Rule::Same, product, alpha);
  } else {
    Record record(HR_OP_SCALE_ADD);
    record.in(self, sizes).in(product).in(number_of(beta)).in(number_of(alpha)).out(out).run();
  }
  return result.end(out);
}

Tensor addmv(Result result, const Tensor &self, const Tensor &matrix, const Tensor &vector, const Scalar &beta,
             const Scalar &alpha) {
  if (C10_UNLIKELY(matrix.is_conj() || vector.is_conj() || (self.is_conj() && !result.is_inplace())))
    return addmv(result, result.is_inplace() ? self : self.resolve_conj(), matrix.resolve_conj(), vector.resolve_conj(),
                 beta, alpha);
  TORCH_CHECK(matrix.dim() == 2 && vector.dim() == 1 && self.dim() <= 1, "vector + matrix @ vector expected, got ",
              self.dim(), ", ", matrix.dim(), ", ", vector.dim());
  bool fits = self.numel() == 1 || self.numel() == matrix.size(0);
  TORCH_CHECK(fits && matrix.size(1) == vector.size(0), "size mismatch, got input (", self.numel(), "), mat (",
              matrix.size(0), "x", matrix.size(1), "), vec (", vector.size(0), ")");
  TORCH_CHECK_NOT_IMPLEMENTED(!c10::isFloat8Type(matrix.scalar_type()), "addmv is not implemented for ",
                              matrix.scalar_type());
  Tensor column = headrace::as_strided(
      self, {matrix.size(0), 1}, {self.dim() == 0 || self.size(0) == 1 ? 0 : self.stride(0), 1}, self.storage_offset());
  Tensor operand = headrace::as_strided(vector, {vector.size(0), 1}, {vector.stride(0), 1}, vector.storage_offset());
  Tensor product = addmm(Result::fresh(), 2, column, matrix, operand, beta, alpha);
  Tensor flat = headrace::as_strided(product, {matrix.size(0)}, {1}, 0);
  if (result.is_fresh())
    return flat;
  Tensor out = result.begin(flat.sizes(), flat.scalar_type());
  copy_on_device(flat, out);
  return result.end(out);
}

Tensor dot(const Tensor &a, const Tensor &b) {
  if (C10_UNLIKELY(a.is_conj() || b.is_conj()))
    return headrace::dot(a.resolve_conj(), b.resolve_conj());
  TORCH_CHECK(a.dim() == 1 && b.dim() == 1, "1D tensors expected, but got ", a.dim(), "D and ", b.dim(), "D tensors");
  TORCH_CHECK(a.scalar_type() == b.scalar_type(), "dot : expected both vectors to have same dtype, but found ",
              a.scalar_type(), " and ", b.scalar_type());
  TORCH_CHECK_NOT_IMPLEMENTED(a.scalar_type() != ScalarType::Bool, "\"dot\" not implemented for 'Bool'");
  TORCH_CHECK(a.numel() == b.numel(), "inconsistent tensor size, expected tensor [", a.numel(), "] and src [",
              b.numel(), "] to have the same number of elements, but got ", a.numel(), " and ", b.numel(),
              " elements respectively");
  if (is_half(a.scalar_type()) && a.numel() > 0) { // libraries lack an algorithm for one long f16 sum
    ScalarType wide = ScalarType::Float;
    return to_type(at::sum(at::mul(to_type(a, wide), to_type(b, wide)), IntArrayRef{0}), a.scalar_type());
  }
  Tensor out = new_tensor({}, a.scalar_type());
  if (a.numel() == 0)
    return fill_with(out, 0);
  int64_t n = a.numel();
  Record record(HR_OP_MATMUL);
  record.in(a, {1, n}, {0, a.stride(0)}).in(b, {n, 1}, {b.stride(0), 0}).out(out, {1, 1}, {0, 0}).run();
  return out;
}

} // namespace headrace
