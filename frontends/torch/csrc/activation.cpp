// activation.cpp: activations of several operands and their gradients, and layers of a few element-wise records: gated
// units, PReLU, RReLU, masked softmax, weight normalisation, renormalisation.
//
// Element-wise operations are rows of the core, mapped in map.def. The functions here slice, broadcast and reduce
// around them; the core fuses the records.
#include <ATen/ExpandUtils.h>
#include <ATen/TensorOperators.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/ops/_softmax.h>
#include <ATen/ops/_softmax_backward_data.h>
#include <ATen/ops/where.h>

#include "kernels.h"

namespace headrace {

// ---- log sigmoid

// log(sigmoid(x)) = -softplus(-x); the second result is scratch of torch's own kernel.
Tensor2 log_sigmoid(Result result, Result buffer, const Tensor &self) {
  constexpr double linear_from = 80; // e^80 is still a float
  Tensor negative = pointwise(Result::fresh(), HR_OP_NEG, Rule::Number, self);
  Tensor positive = pointwise(Result::fresh(), HR_OP_SOFTPLUS, Rule::Same, negative, fixed(1.0), fixed(linear_from));
  Tensor out = result.is_fresh() ? new_tensor(self.sizes(), self.scalar_type()) : result.tensor();
  Tensor y = pointwise(result.is_fresh() ? Result::out(out) : result, HR_OP_NEG, Rule::Number, positive);
  return {y, buffer.end(buffer.begin({0}, self.scalar_type()))};
}

Tensor log_sigmoid_backward(Result result, const Tensor &grad, const Tensor &self) {
  Tensor out = result.is_fresh() ? new_like(grad) : result.tensor();
  return pointwise(result.is_fresh() ? Result::out(out) : result, HR_OP_MUL, Rule::Same, self.neg().sigmoid_(), grad);
}

// ---- gated linear units: half of a dim times the sigmoid of the other half

namespace {

struct Halves {
  Tensor first, second;
  Halves(const Tensor &x, int64_t dim) {
    TORCH_CHECK(x.dim() > 0, "glu does not support 0-dimensional tensors");
    int64_t along = at::maybe_wrap_dim(dim, x.dim()), size = x.size(along);
    TORCH_CHECK(size % 2 == 0, "Halving dimension must be even, but dimension ", along, " is size ", size);
    first = x.narrow(along, 0, size / 2), second = x.narrow(along, size / 2, size / 2);
  }
};

} // namespace

Tensor glu(Result result, const Tensor &self, int64_t dim) {
  Halves x(self, dim);
  return pointwise(result, HR_OP_GLU, Rule::Same, x.first, x.second);
}

Tensor glu_backward(Result result, const Tensor &grad, const Tensor &self, int64_t dim) {
  Tensor out = result.begin(self.sizes(), self.scalar_type(), {grad, self});
  Halves x(self, dim), dx(out, dim);
  pointwise(Result::out(dx.first), HR_OP_GLU, Rule::Same, grad, x.second);
  pointwise(Result::out(dx.second), HR_OP_GLU_BACKWARD, Rule::Same, grad, x.first, x.second);
  return result.end(out);
}

// y = a s, s = sigmoid(b): dy = da s + y (1 - s) db
Tensor glu_jvp(const Tensor &y, const Tensor &x, const Tensor &dx, int64_t dim) {
  Halves at(x, dim), change(dx, dim);
  Tensor s = at.second.sigmoid();
  return change.first * s + y * (1 - s) * change.second;
}

// The gradient's halves are g s and g a s (1 - s).
Tensor glu_backward_jvp(const Tensor &, const Tensor &g, const Tensor &x, const Tensor &dg, const Tensor &dx,
                        int64_t dim) {
  Halves at(x, dim), change(dx, dim);
  Tensor out = new_tensor(x.sizes(), x.scalar_type());
  Halves result(out, dim);
  Tensor s = at.second.sigmoid(), slope = s * (1 - s), ds = slope * change.second;
  result.first.copy_(dg * s + g * ds);
  result.second.copy_(dg * at.first * slope + g * (change.first * slope + at.first * (1 - 2 * s) * ds));
  return out;
}

// ---- PReLU and RReLU

Tensor2 prelu_backward(const Tensor &grad, const Tensor &self, const Tensor &weight) {
  Tensor dself = pointwise(Result::fresh(), HR_OP_LEAKY_RELU_BACKWARD, Rule::Same, grad, self, weight);
  Tensor product = pointwise(Result::fresh(), HR_OP_MUL, Rule::Same, grad, self);
  Tensor positive = pointwise(Result::fresh(), HR_OP_GT, Rule::Compare, self, 0.0);
  return {dself, masked_fill(Result::inplace(product), product, positive, Scalar(0))};
}

Tensor rrelu(Result result, const Tensor &self, const Tensor &noise, const Scalar &lower, const Scalar &upper,
             bool training, const OptionalGenerator &generator) {
  TORCH_CHECK(lower.toDouble() <= upper.toDouble(),
              "rrelu: lower bound should be less than or equal to the upper bound");
  if (!training) {
    double slope = (lower.toDouble() + upper.toDouble()) / 2;
    return pointwise(result, HR_OP_LEAKY_RELU, Rule::Same, self, fixed(slope));
  }
  TORCH_CHECK(noise.sizes().equals(self.sizes()),
              "noise tensor shape must match self tensor shape. Got self.shape = ", self.sizes(),
              " noise.shape = ", noise.sizes());
  headrace::uniform(noise, lower.toDouble(), upper.toDouble(), generator);
  masked_fill(Result::inplace(noise), noise, pointwise(Result::fresh(), HR_OP_GT, Rule::Compare, self, 0.0), Scalar(1));
  return pointwise(result, HR_OP_MUL, Rule::Same, self, noise);
}

// ---- masked softmax; a fully masked row is NaN, as in torch

Tensor masked_softmax(const Tensor &self, const Tensor &mask, std::optional<int64_t> dim,
                      std::optional<int64_t> mask_type) {
  TORCH_CHECK(mask.scalar_type() == ScalarType::Bool, "Mask should be a boolean tensor");
  Tensor spread = mask;
  int64_t type = mask_type.value_or(2);
  if (type == 1 && mask.dim() == 2 && self.dim() == 4)
    spread = mask.unsqueeze(1).unsqueeze(1);
  TORCH_CHECK(at::is_expandable_to(spread.sizes(), self.sizes()), "Mask shape should match input. mask: ", mask.sizes(),
              " input: ", self.sizes());
  Tensor kept = self.masked_fill(spread, -std::numeric_limits<double>::infinity());
  return at::_softmax(kept, dim.value_or(self.dim() - 1), false);
}

Tensor masked_softmax_backward(const Tensor &grad, const Tensor &output, const Tensor &, std::optional<int64_t> dim) {
  return at::_softmax_backward_data(grad, output, dim.value_or(output.dim() - 1), output.scalar_type());
}

// ---- weights of a given norm: w = v g / |v|, the norm over all dims but one

static Dims dims_but(const Tensor &tensor, int64_t dim) {
  Dims dims;
  for (int64_t d = 0; d < tensor.dim(); ++d) {
    if (d != dim)
      dims.push_back(d);
  }
  return dims;
}

Tensor2 weight_norm(const Tensor &v, const Tensor &g, int64_t dim) {
  int64_t along = at::maybe_wrap_dim(dim, v.dim());
  Tensor length =
      norm(Result::fresh(), v, Scalar(2), OptionalIntArrayRef(IntArrayRef(dims_but(v, along))), true, std::nullopt);
  return {v * (g / length), length};
}

Tensor2 weight_norm_backward(const Tensor &grad, const Tensor &v, const Tensor &g, const Tensor &length, int64_t dim) {
  Dims dims = dims_but(v, at::maybe_wrap_dim(dim, v.dim()));
  Tensor along = (grad * v).sum(dims, true); // the gradient's component along the vector, times its length
  return {(g / length) * (grad - v * (along / (length * length))), along / length};
}

// ---- bounds on norms

static Tensor shrink_factor(const Tensor &length, double most) {
  constexpr double epsilon = 1e-7; // torch's own
  return at::where(length > most, most / (length + epsilon), 1.0);
}

Tensor renorm(Result result, const Tensor &self, const Scalar &p, int64_t dim, const Scalar &most) {
  TORCH_CHECK(!p.isComplex() && p.toDouble() > 0, "renorm: non-positive norm degree");
  TORCH_CHECK(!most.isComplex() && most.toDouble() >= 0, "renorm: expected maxnorm to be >= 0 but got ", most);
  TORCH_CHECK(self.dim() > 1, "renorm: input needs at least 2 dimensions, got ", self.dim(), " dimensions");
  int64_t along = at::maybe_wrap_dim(dim, self.dim());
  ScalarType type = self.scalar_type();
  ScalarType wide =
      type == ScalarType::Half || type == ScalarType::BFloat16 ? ScalarType::Float : c10::toRealValueType(type);
  std::optional<ScalarType> widened =
      wide != c10::toRealValueType(type) ? std::optional<ScalarType>(wide) : std::nullopt;
  Tensor length =
      norm(Result::fresh(), self, p, OptionalIntArrayRef(IntArrayRef(dims_but(self, along))), true, widened);
  return pointwise(result, HR_OP_MUL, Rule::Same, self, to_type(shrink_factor(length, most.toDouble()), type));
}

// Rows named several times are read before any is written, and get the same values.
Tensor embedding_renorm(const Tensor &self, const Tensor &indices, double most, double p) {
  TORCH_CHECK(self.dim() == 2, "embedding_renorm_: expected a matrix, but got ", self.dim(), " dimensions");
  Tensor flat = indices.reshape(-1);
  Tensor rows = self.index_select(0, flat);
  Tensor length = norm(Result::fresh(), rows, Scalar(p), OptionalIntArrayRef(IntArrayRef{1}), true, std::nullopt);
  c10::List<std::optional<Tensor>> places;
  places.push_back(flat);
  return headrace::index_put(self, places, rows * shrink_factor(length, most), false);
}

} // namespace headrace
