// elementwise_gradient.cpp: gradients of element-wise kernels, and the operator headrace::elementwise. See
// elementwise.h.
//
// Plain calls, with and without gradients, do not enter torch's dispatcher. Modes, transforms (vmap, grad) and fake
// tensors see the operator:
//
//   elementwise(text, signature, backward, order, tensors, numbers, places, wanted)
//     tensors, numbers: the operands in order; bit i of places: operand i is a number
//     order: 0, or how often the gradient was derived; bit o of wanted: output o is returned
//
// A call's node saves the tensors that the gradient reads. The gradient is a kernel, so gradients of gradients and
// gradients under a transform are calls like any other.
#include <ATen/ExpandUtils.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/scalar_tensor.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/autograd/variable.h>

#include "elementwise.h"
#include "node.h"
#include "registration.h"

namespace headrace {

namespace {

using torch::autograd::SavedVariable;

// ---- the operator

using ElementwiseOperator = std::vector<Tensor>(std::string_view, std::string_view, std::optional<std::string_view>,
                                                int64_t, TensorList, const std::vector<Scalar> &, int64_t, int64_t);

Scalar scalar_of(const KernelOperand &operand) {
  switch (operand.number.dtype) {
    case HR_DTYPE_BOOL:
      return Scalar(operand.number.value.i != 0);
    case HR_DTYPE_F64:
      return Scalar(operand.number.value.f[0]);
    case HR_DTYPE_C128:
      return Scalar(c10::complex<double>(operand.number.value.f[0], operand.number.value.f[1]));
    case HR_DTYPE_U64:
      return Scalar(operand.number.value.u);
    default:
      return Scalar(operand.number.value.i);
  }
}

KernelResults dispatch_kernel(const Kernel &kernel, const KernelOperands &operands, uint64_t wanted) {
  std::vector<c10::IValue> stack;
  c10::List<Tensor> tensors;
  c10::impl::GenericList numbers(c10::NumberType::get());
  uint64_t places = 0;
  for (size_t i = 0; i < operands.size(); ++i) {
    if (operands[i].is_number() && operands[i].is_wrapped) {
      places |= uint64_t{1} << i;
      numbers.push_back(scalar_of(operands[i]));
    } else if (operands[i].is_number()) { // a tensor of the host
      tensors.push_back(at::scalar_tensor(scalar_of(operands[i]), at::TensorOptions(operands[i].number_type)));
    } else {
      tensors.push_back(operands[i].tensor);
    }
  }
  static const c10::OperatorHandle handle = c10::Dispatcher::singleton().findSchemaOrThrow("headrace::elementwise", "");
  stack = {kernel.text,
           kernel.signature,
           kernel.backward.has_value() ? c10::IValue(*kernel.backward) : c10::IValue(),
           kernel.order,
           std::move(tensors),
           std::move(numbers),
           static_cast<int64_t>(places),
           static_cast<int64_t>(wanted)};
  handle.callBoxed(stack);
  KernelResults results;
  for (const Tensor &result : stack.back().toTensorVector())
    results.push_back(result);
  return results;
}

// The operands of an operator's call.
KernelOperands operands_of(const Kernel &kernel, TensorList tensors, at::ArrayRef<Scalar> numbers, int64_t places) {
  KernelOperands operands;
  size_t tensor = 0, number = 0;
  for (size_t i = 0; i < kernel.inputs.size(); ++i) {
    bool is_number = (static_cast<uint64_t>(places) >> i & 1) != 0;
    TORCH_CHECK_VALUE(is_number ? number < numbers.size() : tensor < tensors.size(), "elementwise: expected ",
                      kernel.inputs.size(), " operands, found ", tensors.size() + numbers.size());
    operands.push_back(is_number ? KernelOperand(numbers[number++]) : KernelOperand(tensors[tensor++]));
  }
  TORCH_CHECK_VALUE(tensor == tensors.size() && number == numbers.size(), "elementwise: expected ",
                    kernel.inputs.size(), " operands, found ", tensors.size() + numbers.size());
  return operands;
}

// ---- gradients

struct ElementwiseBackward final : torch::autograd::Node {
  struct Operand {
    SavedVariable saved; // of tensors that the gradient reads
    KernelOperand number;
    bool is_saved = false;
    int edge = -1; // of floating tensors
    Dims sizes;
    ScalarType type = ScalarType::Undefined;
  };
  std::shared_ptr<Kernel> kernel;
  std::vector<Operand> operands;
  uint64_t wanted = 0;
  bool released = false;

  std::string name() const override {
    return "HeadraceElementwiseBackward";
  }
  void release_variables() override {
    std::lock_guard<std::mutex> lock(mutex_);
    for (Operand &operand : operands)
      operand.saved.reset_data();
    released = true;
  }

  torch::autograd::variable_list apply(torch::autograd::variable_list &&given) override {
    std::lock_guard<std::mutex> lock(mutex_);
    TORCH_CHECK(!released, torch::autograd::ERR_BACKWARD_TWICE);
    torch::autograd::variable_list gradients(num_outputs());
    bool has_any = std::any_of(given.begin(), given.end(), [](const Tensor &tensor) { return tensor.defined(); });
    if (!has_any)
      return gradients;
    std::shared_ptr<Kernel> gradient = gradient_of(*kernel);
    KernelOperands values = operands_of_gradient(given);
    std::vector<size_t> owners; // of the results
    uint64_t outputs = 0;
    size_t output = 0;
    for (size_t i = 0; i < operands.size(); ++i) {
      if (!kernel->inputs[i].is_floating)
        continue;
      bool is_needed = operands[i].edge >= 0 && task_should_compute_output(static_cast<size_t>(operands[i].edge));
      if (is_needed && gradient->outputs[output].is_used) {
        outputs |= uint64_t{1} << output;
        owners.push_back(i);
      }
      ++output;
    }
    KernelResults results = kernel_call(gradient, values, outputs, kKernelCore);
    for (size_t r = 0; r < results.size(); ++r) {
      const Operand &owner = operands[owners[r]];
      Tensor sum = at::sum_to(results[r], owner.sizes);
      gradients[static_cast<size_t>(owner.edge)] = sum.scalar_type() == owner.type ? sum : sum.to(owner.type);
    }
    return gradients;
  }

private:
  KernelOperands operands_of_gradient(const torch::autograd::variable_list &given) {
    KernelOperands values;
    for (size_t i = 0; i < operands.size(); ++i) {
      Operand &operand = operands[i];
      if (operand.is_saved)
        values.push_back(KernelOperand(operand.saved.unpack(getptr())));
      else
        values.push_back(operand.number);
    }
    size_t position = 0; // among the results of the call
    for (size_t o = 0; o < kernel->outputs.size(); ++o) {
      bool is_result = (wanted >> o & 1) != 0;
      if (kernel->outputs[o].is_floating) {
        bool is_given = is_result && given[position].defined();
        values.push_back(is_given ? KernelOperand(given[position]) : KernelOperand(Scalar(0.0)));
      }
      position += is_result;
    }
    return values;
  }
};

bool kernel_needs_gradients(const Kernel &kernel, const KernelOperands &operands) {
  if (!at::GradMode::is_enabled())
    return false;
  for (size_t i = 0; i < operands.size(); ++i)
    if (!operands[i].is_number() && kernel.inputs[i].is_floating && operands[i].tensor.requires_grad())
      return true;
  return false;
}

// The inputs that the gradient reads.
std::vector<bool> reads_of_gradient(Kernel &kernel) {
  std::shared_ptr<Kernel> gradient;
  std::vector<bool> reads(kernel.inputs.size(), true);
  try {
    gradient = gradient_of(kernel);
  } catch (const c10::Error &) {
    return reads; // the backward pass reports it
  }
  for (size_t i = 0; i < kernel.inputs.size(); ++i)
    reads[i] = gradient->inputs[i].is_used;
  return reads;
}

void connect_kernel(const std::shared_ptr<Kernel> &kernel, const KernelOperands &operands, uint64_t wanted,
                    KernelResults &results) {
  NodePointer pointer = make_node<ElementwiseBackward>();
  auto *node = static_cast<ElementwiseBackward *>(pointer.get());
  torch::autograd::edge_list edges;
  std::vector<bool> reads = reads_of_gradient(*kernel);
  node->kernel = kernel;
  node->wanted = wanted;
  node->operands.resize(operands.size());
  for (size_t i = 0; i < operands.size(); ++i) {
    ElementwiseBackward::Operand &own = node->operands[i];
    if (operands[i].is_number()) {
      own.number = operands[i];
      continue;
    }
    const Tensor &tensor = operands[i].tensor;
    own.type = tensor.scalar_type();
    own.sizes.assign(tensor.sizes().begin(), tensor.sizes().end());
    own.is_saved = reads[i];
    if (reads[i])
      own.saved = SavedVariable(tensor, false);
    else
      own.number = KernelOperand(own.type == ScalarType::Bool ? Scalar(false) : Scalar(int64_t{0}));
    if (kernel->inputs[i].is_floating && c10::isFloatingType(own.type)) {
      own.edge = static_cast<int>(edges.size());
      edges.push_back(torch::autograd::impl::gradient_edge(tensor));
    }
  }
  node->set_next_edges(std::move(edges));
  for (Tensor &result : results) {
    if (c10::isFloatingType(result.scalar_type()))
      torch::autograd::set_history(result, pointer);
    else
      node->add_input_metadata(torch::autograd::Node::undefined_input());
  }
}

// ---- forward gradients

bool kernel_has_tangents(const KernelOperands &operands) {
  for (const KernelOperand &operand : operands)
    if (!operand.is_number() && torch::autograd::isFwGradDefined(operand.tensor))
      return true;
  return false;
}

// An element of an output depends on the same element of each input alone. So its tangent is the sum of the inputs'
// tangents times the gradients for gy = 1.
Tensor tangent_of(Kernel &kernel, const KernelOperands &operands, size_t output) {
  std::shared_ptr<Kernel> gradient = gradient_of(kernel);
  KernelOperands values;
  std::vector<Tensor> tangents; // of the gradient's results
  uint64_t wanted = 0;
  size_t position = 0;
  for (size_t i = 0; i < operands.size(); ++i) {
    bool has_tangent = !operands[i].is_number() && kernel.inputs[i].is_floating &&
                       torch::autograd::isFwGradDefined(operands[i].tensor);
    values.push_back(operands[i].is_number() ? operands[i] : KernelOperand(operands[i].tensor._fw_primal(0)));
    if (has_tangent && gradient->outputs[position].is_used) {
      wanted |= uint64_t{1} << position;
      tangents.push_back(operands[i].tensor._fw_grad(0));
    }
    position += kernel.inputs[i].is_floating;
  }
  for (size_t o = 0; o < kernel.outputs.size(); ++o)
    if (kernel.outputs[o].is_floating)
      values.push_back(KernelOperand(Scalar(o == output ? 1.0 : 0.0)));
  KernelResults partials;
  if (wanted != 0)
    partials = kernel_call(gradient, values, wanted, kKernelCore);
  Tensor tangent;
  for (size_t r = 0; r < partials.size(); ++r) {
    Tensor term = partials[r] * tangents[r];
    tangent = tangent.defined() ? tangent + term : term;
  }
  return tangent;
}

void add_tangents(Kernel &kernel, const KernelOperands &operands, uint64_t wanted, KernelResults &results) {
  size_t position = 0;
  for (size_t o = 0; o < kernel.outputs.size(); ++o) {
    if ((wanted >> o & 1) == 0)
      continue;
    const Tensor &result = results[position++];
    Tensor tangent = c10::isFloatingType(result.scalar_type()) ? tangent_of(kernel, operands, o) : Tensor();
    if (tangent.defined())
      result._set_fw_grad(tangent.to(result.scalar_type()), /*level=*/0, /*is_inplace_op=*/false);
  }
}

constexpr c10::DispatchKeySet kPlainKeys({c10::DispatchKey::PrivateUse1, c10::DispatchKey::AutogradPrivateUse1,
                                          c10::DispatchKey::ADInplaceOrView, c10::DispatchKey::AutocastPrivateUse1});
constexpr c10::DispatchKeySet kPlainModes({c10::DispatchKey::BackendSelect, c10::DispatchKey::ADInplaceOrView});

bool is_below_autograd() {
  return c10::impl::tls_local_dispatch_key_set().excluded_.has(c10::DispatchKey::AutogradPrivateUse1);
}

} // namespace

bool kernel_is_plain(const KernelOperands &operands) {
  if ((c10::impl::tls_local_dispatch_key_set().included_.raw_repr() & ~kPlainModes.raw_repr()) != 0)
    return false;
  for (const KernelOperand &operand : operands)
    if (!operand.is_number() &&
        ((operand.tensor.key_set().raw_repr() & ~kPlainKeys.raw_repr()) != 0 || !is_on_device(operand.tensor)))
      return false;
  return true;
}

KernelResults kernel_call(const std::shared_ptr<Kernel> &kernel, KernelOperands &operands, uint64_t wanted,
                          const KernelCore &core) {
  if (C10_UNLIKELY(!kernel_is_plain(operands)))
    return dispatch_kernel(*kernel, operands, wanted);
  const Tensor *first = nullptr;
  for (const KernelOperand &operand : operands) {
    if (operand.is_number())
      continue;
    first = first == nullptr ? &operand.tensor : first;
    TORCH_CHECK(operand.tensor.device() == first->device(),
                "Expected all tensors to be on the same device, but found at least two devices, ", first->device(),
                " and ", operand.tensor.device(), "!");
  }
  TORCH_CHECK_TYPE(first != nullptr, "elementwise: expected a tensor among the operands of \"", kernel->text,
                   "\", found numbers alone");
  OnDevice on(*first);
  bool has_tangents = kernel_has_tangents(operands), needs_gradients = kernel_needs_gradients(*kernel, operands);
  if (C10_LIKELY((!needs_gradients && !has_tangents) || is_below_autograd()))
    return kernel_compute(*kernel, operands, wanted, core);
  KernelOperands originals = operands; // computing replaces unusual ones
  KernelResults results;
  {
    at::AutoDispatchBelowADInplaceOrView below;
    results = kernel_compute(*kernel, operands, wanted, core);
  }
  if (needs_gradients)
    connect_kernel(kernel, originals, wanted, results);
  if (has_tangents)
    add_tangents(*kernel, originals, wanted, results);
  return results;
}

namespace {

std::vector<Tensor> elementwise_on_device(std::string_view text, std::string_view signature,
                                          std::optional<std::string_view> backward, int64_t order, TensorList tensors,
                                          at::ArrayRef<Scalar> numbers, int64_t places, int64_t wanted) {
  std::optional<std::string> own;
  if (backward.has_value())
    own = std::string(*backward);
  std::shared_ptr<Kernel> kernel = find_kernel(std::string(text), std::string(signature), own, order);
  KernelOperands operands = operands_of(*kernel, tensors, numbers, places);
  const Tensor *first = nullptr;
  for (KernelOperand &operand : operands) {
    if (operand.is_number())
      continue;
    if (is_cpu_scalar(operand.tensor)) {
      KernelOperand number;
      number.number = number_of(operand.tensor);
      number.number_type = operand.tensor.scalar_type();
      number.is_wrapped = operand.tensor.unsafeGetTensorImpl()->is_wrapped_number();
      operand = number;
    } else {
      first = first == nullptr ? &operand.tensor : first;
    }
  }
  TORCH_CHECK(first != nullptr, "elementwise: expected a tensor of the device among the operands");
  OnDevice on(*first);
  for (KernelOperand &operand : operands) {
    if (!operand.is_number() && !is_here(operand.tensor))
      fail_device(operand.tensor);
    if (!operand.is_number())
      operand.tensor = operand.tensor.resolve_neg();
  }
  KernelResults results = kernel_compute(*kernel, operands, static_cast<uint64_t>(wanted), kKernelCore);
  return {results.begin(), results.end()};
}

std::vector<Tensor> elementwise_with_gradients(std::string_view text, std::string_view signature,
                                               std::optional<std::string_view> backward, int64_t order,
                                               TensorList tensors, at::ArrayRef<Scalar> numbers, int64_t places,
                                               int64_t wanted) {
  std::optional<std::string> own;
  if (backward.has_value())
    own = std::string(*backward);
  std::shared_ptr<Kernel> kernel = find_kernel(std::string(text), std::string(signature), own, order);
  KernelOperands operands = operands_of(*kernel, tensors, numbers, places);
  KernelResults results;
  {
    at::AutoDispatchBelowADInplaceOrView below;
    results = dispatch_kernel(*kernel, operands, static_cast<uint64_t>(wanted));
  }
  if (kernel_needs_gradients(*kernel, operands))
    connect_kernel(kernel, operands, static_cast<uint64_t>(wanted), results);
  if (kernel_has_tangents(operands))
    add_tangents(*kernel, operands, static_cast<uint64_t>(wanted), results);
  return {results.begin(), results.end()};
}

HEADRACE_OPERATORS(headrace, m) {
  m.def("elementwise(str text, str signature, str? backward, int order, Tensor[] tensors, Scalar[] numbers, "
        "int places, int wanted) -> Tensor[]");
}
HEADRACE_KERNELS(headrace, PrivateUse1, m) {
  m.impl("elementwise", &elementwise_on_device);
}
HEADRACE_KERNELS(headrace, Autograd, m) {
  m.impl("elementwise", &elementwise_with_gradients);
}

} // namespace
} // namespace headrace
