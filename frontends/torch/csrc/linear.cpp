// linear.cpp: aten::linear and its gradients in one step each; aten::matmul of batches where no gradient is recorded.
//
// torch composes it from a transposed view and a product, each with a dispatch, a tensor and an autograd node of its
// own: most of a small layer's cost. The gradients here are the same records (two products and a sum) without the views
// in between. Calls under a mode or a transform, on subclasses, and unusual ones (complex numbers, forward gradients)
// go through torch's own linear. With create_graph=True or batches of gradients, the gradient is composed of torch's
// operators.
#include <ATen/TensorUtils.h>
#include <ATen/ops/linear_native.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/matmul_native.h>
#include <ATen/ops/sum.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <mutex>
#include <utility>

#include "composite.h"
#include "kernels.h"
#include "node.h"
#include "record.h"
#include "registration.h"

namespace headrace {
namespace {

bool is_plain(const Tensor &input, const Tensor &weight, const OptionalTensor &bias) {
  bool has_bias = bias.has_value() && bias->defined();
  ScalarType type = input.scalar_type();
  return is_on_device(input) && is_on_device(weight) && weight.dim() == 2 && weight.scalar_type() == type &&
         type != ScalarType::Bool && !c10::isFloat8Type(type) && input.dim() >= 2 &&
         (input.dim() == 2 || input.is_contiguous()) && input.size(-1) == weight.size(1) && input.numel() > 0 &&
         weight.numel() > 0 &&
         (!has_bias ||
          (is_on_device(*bias) && bias->dim() == 1 && bias->size(0) == weight.size(0) && bias->scalar_type() == type));
}

// A tensor as a matrix: its last dim, and all others merged. Their strides allow this without a copy.
struct Matrix {
  const Tensor &tensor;
  int64_t rows, columns, row_stride, column_stride;

  explicit Matrix(const Tensor &tensor) : tensor(tensor) {
    bool is_matrix = tensor.dim() == 2;
    columns = tensor.size(-1), rows = tensor.numel() / columns;
    row_stride = is_matrix ? tensor.stride(0) : columns;
    column_stride = is_matrix ? tensor.stride(1) : 1;
  }
  Matrix turned() const {
    Matrix other = *this;
    std::swap(other.rows, other.columns), std::swap(other.row_stride, other.column_stride);
    return other;
  }
};

void multiply(const Matrix &a, const Matrix &b, const OptionalTensor &bias, const Tensor &out) {
  Record record(HR_OP_MATMUL);
  record.in(a.tensor, {a.rows, a.columns}, {a.row_stride, a.column_stride});
  record.in(b.tensor, {b.rows, b.columns}, {b.row_stride, b.column_stride});
  if (bias.has_value() && bias->defined())
    record.in(*bias, {a.rows, b.columns}, {0, bias->stride(0)});
  record.out(out, {a.rows, b.columns}, {b.columns, 1}).run();
}

// [.., K] times [N, K] transposed, plus [N].
Tensor product(const Tensor &input, const Tensor &weight, const OptionalTensor &bias) {
  OnDevice on(input);
  Dims sizes(input.sizes().begin(), input.sizes().end());
  sizes.back() = weight.size(0);
  Tensor out = new_tensor(sizes, input.scalar_type());
  multiply(Matrix(input), Matrix(weight).turned(), bias, out);
  return out;
}

// ---- gradients

const int64_t kFirst[] = {0}; // dims

struct LinearBackward final : torch::autograd::Node {
  torch::autograd::SavedVariable input, weight;

  std::string name() const override {
    return "HeadraceLinearBackward";
  }
  void release_variables() override {
    std::lock_guard<std::mutex> lock(mutex_);
    input.reset_data(), weight.reset_data();
  }

  // Gradients of the input, the weight and the bias, each if it is wanted.
  torch::autograd::variable_list apply(torch::autograd::variable_list &&given) override {
    std::lock_guard<std::mutex> lock(mutex_);
    torch::autograd::variable_list gradients(3);
    if (!given[0].defined())
      return gradients;
    Tensor x = task_should_compute_output(1) ? input.unpack(getptr()) : Tensor();
    Tensor w = task_should_compute_output(0) ? weight.unpack(getptr()) : Tensor();
    OnDevice on(given[0]);
    if (at::GradMode::is_enabled() || !is_unwrapped(given[0]))
      again(given[0], x, w, gradients);
    else
      once(given[0].dim() == 2 ? given[0] : given[0].contiguous(), x, w, gradients);
    return gradients;
  }

private:
  // With gradients of gradients recorded, or for many gradients at once (vmap).
  void again(const Tensor &given, const Tensor &x, const Tensor &w, torch::autograd::variable_list &gradients) {
    Tensor rows = given.reshape({-1, given.size(-1)});
    if (w.defined())
      gradients[0] = at::matmul(given, w);
    if (x.defined())
      gradients[1] = at::matmul(rows.t(), x.reshape({-1, x.size(-1)}));
    if (task_should_compute_output(2))
      gradients[2] = rows.sum(IntArrayRef(kFirst));
  }

  void once(const Tensor &given, const Tensor &x, const Tensor &w, torch::autograd::variable_list &gradients) {
    Matrix rows(given);
    if (w.defined()) {
      Dims sizes(given.sizes().begin(), given.sizes().end());
      sizes.back() = w.size(1);
      gradients[0] = new_tensor(sizes, given.scalar_type());
      multiply(rows, Matrix(w), std::nullopt, gradients[0]);
    }
    if (x.defined()) {
      gradients[1] = new_tensor({rows.columns, x.size(-1)}, given.scalar_type());
      multiply(rows.turned(), Matrix(x), std::nullopt, gradients[1]);
    }
    if (task_should_compute_output(2))
      gradients[2] = sum(Result::fresh(), given.dim() == 2 ? given : given.view({rows.rows, rows.columns}),
                         IntArrayRef(kFirst), false, std::nullopt);
  }
};

// The product, saving the weight for the input's gradient and the input for the weight's.
Tensor differentiable(const Tensor &input, const Tensor &weight, const OptionalTensor &bias) {
  using torch::autograd::SavedVariable;
  NodePointer pointer = make_node<LinearBackward>();
  auto *node = static_cast<LinearBackward *>(pointer.get());
  node->set_next_edges(torch::autograd::collect_next_edges(input, weight, bias));
  if (node->should_compute_output(0))
    node->weight = SavedVariable(weight, false);
  if (node->should_compute_output(1))
    node->input = SavedVariable(input, false);
  Tensor out;
  {
    at::AutoDispatchBelowADInplaceOrView below;
    out = product(input, weight, bias);
  }
  torch::autograd::set_history(out, pointer);
  return out;
}

Tensor linear(c10::DispatchKeySet keys, const Tensor &input, const Tensor &weight, const OptionalTensor &bias) {
  if (!is_plain_call(keys) || !is_plain(input, weight, bias) || have_tangents(input, weight, bias))
    return at::native::linear(input, weight, bias);
  if (!need_gradients(input, weight, bias))
    return product(input, weight, bias);
  return c10::isFloatingType(input.scalar_type()) && capture() == nullptr ? differentiable(input, weight, bias)
                                                                          : at::native::linear(input, weight, bias);
}

// ---- products of batches

// True for two batches of the same size. torch's composite expands them otherwise, or merges one's batch and rows.
bool are_batches(const Tensor &a, const Tensor &b) {
  int64_t rank = a.dim();
  ScalarType type = a.scalar_type();
  return rank >= 3 && b.dim() == rank && is_on_device(a) && b.device() == a.device() && b.scalar_type() == type &&
         type != ScalarType::Bool && !c10::isFloat8Type(type) && a.size(-1) == b.size(-2) && a.numel() > 0 &&
         b.numel() > 0 && a.sizes().slice(0, rank - 2).equals(b.sizes().slice(0, rank - 2));
}

// A tensor as one batch of matrices, if its strides allow this without a copy.
struct Batch {
  at::DimVector sizes;
  std::optional<at::DimVector> strides;

  explicit Batch(const Tensor &tensor) {
    int64_t rows = tensor.size(-2), columns = tensor.size(-1);
    sizes = {tensor.numel() / (rows * columns), rows, columns};
    strides = at::detail::computeStride(tensor.sizes(), tensor.strides(), sizes);
  }
};

// torch's composite expands both tensors, reshapes them, multiplies and reshapes the result: five operators.
Tensor matmul_of_batches(c10::DispatchKeySet keys, const Tensor &a, const Tensor &b) {
  if (!is_plain_call(keys) || !are_batches(a, b) || have_tangents(a, b) || need_gradients(a, b))
    return at::native::matmul(a, b);
  Batch left(a), right(b);
  if (!left.strides.has_value() || !right.strides.has_value())
    return at::native::matmul(a, b);
  OnDevice on(a);
  Dims sizes(a.sizes().begin(), a.sizes().end());
  sizes.back() = b.size(-1);
  Tensor out = new_tensor(sizes, a.scalar_type());
  Batch joined(out);
  Record record(HR_OP_MATMUL);
  record.in(a, left.sizes, *left.strides).in(b, right.sizes, *right.strides);
  record.out(out, joined.sizes, *joined.strides).run();
  return out;
}

HEADRACE_KERNELS(aten, PrivateUse1, m) {
  m.impl("linear", TORCH_FN(linear));
  m.impl("matmul", TORCH_FN(matmul_of_batches));
}
HEADRACE_KERNELS(aten, AutogradPrivateUse1, m) {
  m.impl("linear", TORCH_FN(linear));
  m.impl("matmul", TORCH_FN(matmul_of_batches));
}

} // namespace
} // namespace headrace
