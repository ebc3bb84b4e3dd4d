// special.cpp: element-wise operators that need more than a row: parts and halves of tensors, several results, numbers
// that depend on the dtype, checks of their own.
#include <ATen/ExpandUtils.h>
#include <ATen/TensorOperators.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/native/TensorFactories.h>
#include <ATen/ops/mvlgamma.h>
#include <ATen/ops/rand_like.h>
#include <ATen/ops/where.h>

#include <limits>

#include "kernels.h"

namespace headrace {

static Result fresh() {
  return Result::fresh();
}

Tensor angle(Result result, const Tensor &self) {
  if (self.is_complex())
    return pointwise_row_major(result, self.sizes(), c10::toRealValueType(self.scalar_type()), HR_OP_ANGLE_COMPLEX,
                               Rule::Part, self);
  return pointwise(result, HR_OP_ANGLE, Rule::Float, self);
}

Tensor complex_of(Result result, hr_op op, const Tensor &a, const Tensor &b) {
  TORCH_CHECK(c10::isFloatingType(a.scalar_type()) && c10::isFloatingType(b.scalar_type()),
              "Expected both inputs to be Half, Float or Double tensors but got ", a.scalar_type(), " and ",
              b.scalar_type());
  TORCH_CHECK(a.scalar_type() == b.scalar_type(), "Expected object of scalar type ", a.scalar_type(),
              " but got scalar type ", b.scalar_type(), " for second argument");
  ScalarType type = c10::toComplexType(a.scalar_type());
  TORCH_CHECK(result.is_fresh() || result.tensor().scalar_type() == type, "Expected object of scalar type ", type,
              " but got scalar type ", result.is_fresh() ? type : result.tensor().scalar_type(), " for argument 'out'");
  at::DimVector sizes = at::infer_size_dimvector(a.sizes(), b.sizes());
  Tensor out = result.begin(sizes, type, {a, b});
  if (out.numel() > 0)
    Record(op).in(a, sizes).in(b, sizes).out(out).run();
  return result.end(out);
}

Tensor round_decimals(Result result, const Tensor &self, int64_t decimals) {
  if (decimals == 0 || c10::isIntegralType(self.scalar_type(), true))
    return pointwise(result, HR_OP_ROUND, Rule::Number, self);
  double ten = std::pow(10.0, static_cast<double>(std::abs(decimals)));
  hr_op before = decimals > 0 ? HR_OP_MUL : HR_OP_DIV, after = decimals > 0 ? HR_OP_DIV : HR_OP_MUL;
  Tensor scaled = pointwise(fresh(), before, Rule::Same, self, fixed(ten));
  return pointwise(result, after, Rule::Same, pointwise(fresh(), HR_OP_ROUND, Rule::Number, scaled), fixed(ten));
}

// The 16-bit patterns as integers in the order of the numbers: negative ones are reversed.
static Tensor place_of(const Tensor &x) {
  Tensor bits = to_type(x.contiguous().view(ScalarType::Short), ScalarType::Int);
  return at::where(bits.lt(0), bits.bitwise_and(0x7fff).neg(), bits);
}

static Tensor next_half(const Tensor &x, const Tensor &y) {
  Tensor from = place_of(x), to = place_of(y), at = from + (to - from).sign();
  Tensor sign = at::where(from.eq(to), y.signbit(), from.lt(0)); // of zero
  Tensor bits = at::where(at.lt(0).logical_or(at.eq(0).logical_and(sign)), at.abs().bitwise_or(0x8000), at);
  Tensor next = to_type(bits, ScalarType::Short).view(x.scalar_type());
  return at::where(x.isnan().logical_or(y.isnan()), x + y, next);
}

Tensor nextafter(Result result, const Tensor &self, const Tensor &other) {
  const Operand both[] = {self, other};
  ScalarType type = promote(both, 2);
  TORCH_CHECK_NOT_IMPLEMENTED(c10::isFloatingType(type), "\"nextafter\" not implemented for '", type, "'");
  if (type != ScalarType::BFloat16 && type != ScalarType::Half)
    return pointwise(result, HR_OP_NEXTAFTER, Rule::Same, self, other);
  at::DimVector sizes = at::infer_size_dimvector(self.sizes(), other.sizes());
  Tensor next = next_half(to_type(self, type).expand(sizes), to_type(other, type));
  if (!result.is_fresh())
    return result.give(next);
  Tensor out = new_pointwise(self, other, type);
  copy_on_device(next, out);
  return out;
}

Tensor heaviside(Result result, const Tensor &self, const Tensor &values) {
  TORCH_CHECK(!self.is_complex() && !values.is_complex() && (result.is_fresh() || !result.tensor().is_complex()),
              "heaviside is not yet implemented for complex tensors.");
  TORCH_CHECK(self.scalar_type() == values.scalar_type() &&
                  (result.is_fresh() || result.tensor().scalar_type() == self.scalar_type()),
              "heaviside is not yet implemented for tensors with different dtypes.");
  return pointwise(result, HR_OP_HEAVISIDE, Rule::Same, self, values);
}

double largest_of(ScalarType type) {
  switch (type) {
    case ScalarType::Half:
    case ScalarType::ComplexHalf:
      return std::numeric_limits<c10::Half>::max();
    case ScalarType::BFloat16:
      return std::numeric_limits<c10::BFloat16>::max();
    case ScalarType::Double:
    case ScalarType::ComplexDouble:
      return std::numeric_limits<double>::max();
    default:
      return std::numeric_limits<float>::max();
  }
}

Tensor nan_to_num(Result result, const Tensor &self, std::optional<double> nan, std::optional<double> most,
                  std::optional<double> least) {
  if (c10::isIntegralType(self.scalar_type(), true))
    return result.give(self);
  double largest = largest_of(self.scalar_type());
  return pointwise(result, HR_OP_NAN_TO_NUM, Rule::Same, self, fixed(nan.value_or(0)), fixed(most.value_or(largest)),
                   fixed(least.value_or(-largest)));
}

Tensor logit(Result result, const Tensor &self, std::optional<double> eps) {
  if (!eps.has_value())
    return pointwise(result, HR_OP_LOGIT, Rule::Float, self);
  Operand low = fixed(*eps), high = fixed(1 - *eps);
  if (*eps <= 0.5)
    return pointwise(result, HR_OP_LOGIT, Rule::Float, pointwise(fresh(), HR_OP_CLAMP, Rule::Float, self, low, high));
  Tensor below = pointwise(fresh(), HR_OP_LT, Rule::Compare, self, low); // the lower bound comes first in torch
  Tensor bounded = pointwise(fresh(), HR_OP_MINIMUM, Rule::Float, self, high);
  return pointwise(result, HR_OP_LOGIT, Rule::Float, pointwise(fresh(), HR_OP_WHERE, Rule::Where, below, low, bounded));
}

Tensor logit_backward(Result result, const Tensor &grad, const Tensor &self, std::optional<double> eps) {
  bool is_bounded = eps.has_value() && *eps >= 0;
  return pointwise(result, HR_OP_LOGIT_BACKWARD, Rule::Same, grad, self, fixed(is_bounded ? *eps : 0.0),
                   fixed(is_bounded ? 0.0 : std::nan("")));
}

Tensor2 frexp(Result mantissa, Result exponent, const Tensor &self) {
  TORCH_CHECK(c10::isFloatingType(self.scalar_type()), "torch.frexp() only supports floating-point dtypes");
  TORCH_CHECK(mantissa.is_fresh() || mantissa.tensor().scalar_type() == self.scalar_type(),
              "torch.frexp() expects mantissa to have dtype ", self.scalar_type(), " but got ",
              mantissa.is_fresh() ? self.scalar_type() : mantissa.tensor().scalar_type());
  TORCH_CHECK(exponent.is_fresh() || exponent.tensor().scalar_type() == ScalarType::Int,
              "torch.frexp() expects exponent to have int dtype but got ",
              exponent.is_fresh() ? ScalarType::Int : exponent.tensor().scalar_type());
  Tensor e = pointwise(fresh(), HR_OP_FREXP_EXPONENT, Rule::Same, self);
  Tensor m = pointwise(fresh(), HR_OP_FREXP_MANTISSA, Rule::Same, self);
  return {mantissa.give(m), exponent.give(to_type(e, ScalarType::Int))};
}

Tensor polygamma(Result result, int64_t n, const Tensor &self) {
  TORCH_CHECK(n >= 0, "polygamma(n, x) does not support negative n.");
  if (n < 2) {
    return pointwise(result, n == 0 ? HR_OP_DIGAMMA : HR_OP_TRIGAMMA, Rule::Float, self);
  }
  return pointwise(result, HR_OP_POLYGAMMA, Rule::Float, fixed(n), self);
}

Tensor mvlgamma(Result result, const Tensor &self, int64_t p) {
  return result.give(at::mvlgamma(self, p));
}

// ---- results of other operators, stored in a user's out=

Tensor narrow_copy(Result result, const Tensor &self, int64_t dim, int64_t start, int64_t length) {
  TORCH_CHECK(dim < self.dim(), "Expected dim < self.dim(), but got ", dim, " and ", self.dim());
  return result.give(self.narrow(dim, start, length).clone(at::MemoryFormat::Contiguous));
}

// Zeros without memory: torch's forward and backward formulas use them for values that don't matter.
Tensor efficient_zeros(IntArrayRef size, std::optional<ScalarType> dtype, std::optional<at::Device> device) {
  at::native::ZeroTensorAllocator allocator(device.value_or(here()));
  c10::DispatchKeySet keys =
      c10::DispatchKeySet(c10::DispatchKey::PrivateUse1) | c10::DispatchKeySet(c10::DispatchKey::ZeroTensor);
  return at::detail::empty_generic(size, &allocator, keys, c10::dtype_or_default(dtype), std::nullopt);
}

} // namespace headrace
