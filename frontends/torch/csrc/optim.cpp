// optim.cpp: the step of torch.optim's Adam and AdamW over lists of tensors, as a Python function in C++.
//
// torch's step (_multi_tensor_adam in torch/optim/adam.py) is a dozen calls over lists, between which Python computes
// numbers for each parameter. Here the same operations are recorded with the same numbers, so all bits are equal.
//
// headrace._C.adam returns False without doing anything in unusual cases: tensor subclasses, modes that intercept
// torch's calls, tensors elsewhere or of several dtypes, numbers that are tensors. Then torch's own step runs.
//
// Threads: called with the interpreter's lock, which is released while records are appended to the stream.
#include <ATen/PythonTorchFunctionTLS.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/record_function.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "extension.h"
#include "kernels.h"

namespace headrace {
namespace {

using Tensors = c10::SmallVector<Tensor, 32>;

enum List { Params, Grads, Means, Squares, MaxSquares, Steps, kLists };
enum Number { Beta1, Beta2, Rate, Decay, Eps, kNumbers };
enum Flag { Amsgrad, Maximize, Decoupled, kFlags };

struct Adam {
  std::array<Tensors, kLists> lists;
  std::array<double, kNumbers> numbers;
  std::array<bool, kFlags> flags;
};

// ---- arguments

bool read_tensors(PyObject *list, Tensors &tensors) {
  if (!PyList_CheckExact(list))
    return false;
  Py_ssize_t count = PyList_GET_SIZE(list);
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject *item = PyList_GET_ITEM(list, i);
    if (!THPVariable_CheckExact(item))
      return false;
    tensors.push_back(THPVariable_Unpack(item));
  }
  return true;
}

bool read_number(PyObject *object, double &number) {
  if (!PyFloat_CheckExact(object) && !PyLong_CheckExact(object))
    return false;
  number = PyFloat_AsDouble(object);
  if (!PyErr_Occurred())
    return true;
  PyErr_Clear();
  return false;
}

bool read_arguments(PyObject *const *args, Adam &adam) {
  for (int i = 0; i < kLists; ++i)
    if (!read_tensors(*args++, adam.lists[i]))
      return false;
  for (int i = 0; i < kNumbers; ++i)
    if (!read_number(*args++, adam.numbers[i]))
      return false;
  for (int i = 0; i < kFlags; ++i) {
    PyObject *flag = *args++;
    if (!PyBool_Check(flag))
      return false;
    adam.flags[i] = flag == Py_True;
  }
  return true;
}

// ---- ordinary arguments

// True if calls on the tensor reach only the device's own kernels.
bool is_plain(const Tensor &tensor) {
  constexpr c10::DispatchKeySet others({c10::DispatchKey::Python, c10::DispatchKey::Functionalize,
                                        c10::DispatchKey::FuncTorchBatched, c10::DispatchKey::FuncTorchGradWrapper,
                                        c10::DispatchKey::Negative, c10::DispatchKey::Conjugate});
  return tensor.defined() && tensor.layout() == c10::kStrided && !tensor.is_inference() &&
         !tensor.key_set().has_any(others);
}

bool are_ordinary(const Tensors &list, const Tensors &params) {
  if (list.size() != params.size())
    return false;
  for (size_t i = 0; i < list.size(); ++i) {
    if (!is_plain(list[i]) || list[i].device() != params[0].device() ||
        list[i].scalar_type() != params[0].scalar_type() || !list[i].sizes().equals(params[i].sizes()))
      return false;
  }
  return true;
}

// A host number that is not differentiated: torch counts steps in those, from 0 on.
bool is_step(const Tensor &step) {
  return is_plain(step) && step.device().is_cpu() && step.dim() == 0 && !step.requires_grad() &&
         step.scalar_type() == ScalarType::Float && *step.const_data_ptr<float>() >= 0;
}

// With other values Python divides by zero or computes complex numbers.
bool is_beta(double beta) {
  return beta >= 0 && beta < 1;
}

bool is_watched() {
  return at::impl::torch_function_mode_enabled() || c10::impl::TorchDispatchModeTLS::any_modes_set() ||
         c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::FuncTorchDynamicLayerFrontMode) ||
         c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::Functionalize) || capture() != nullptr ||
         c10::GradMode::is_enabled();
}

bool is_ordinary(const Adam &adam) {
  const Tensors &params = adam.lists[Params];
  if (is_watched() || !is_beta(adam.numbers[Beta1]) || !is_beta(adam.numbers[Beta2]) || params.empty() ||
      !is_plain(params[0]) || !is_on_device(params[0]) || !c10::isFloatingType(params[0].scalar_type()))
    return false;
  for (int i = Params; i <= Squares; ++i)
    if (!are_ordinary(adam.lists[i], params))
      return false;
  const Tensors &steps = adam.lists[Steps];
  return (!adam.flags[Amsgrad] || are_ordinary(adam.lists[MaxSquares], params)) && steps.size() == params.size() &&
         std::all_of(steps.begin(), steps.end(), is_step);
}

// ---- the step

// The steps of _multi_tensor_adam with its arithmetic: Python's numbers are doubles, and its ** is pow().
void run(const Adam &adam) {
  TensorList params(adam.lists[Params]), grads(adam.lists[Grads]), means(adam.lists[Means]),
      squares(adam.lists[Squares]);
  OnDevice on_device(params);
  auto [beta1, beta2, rate, decay, eps] = adam.numbers;
  std::vector<Tensor> changed; // gradients
  if (adam.flags[Maximize])
    changed = foreach (ListResult::fresh(), HR_OP_NEG, Rule::Number, grads), grads = changed;
  std::vector<Scalar> step_sizes, roots;
  for (const Tensor &step : adam.lists[Steps]) {
    double count = *step.mutable_data_ptr<float>() += 1;
    step_sizes.emplace_back(rate / (1 - std::pow(beta1, count)) * -1);
    roots.emplace_back(std::pow(1 - std::pow(beta2, count), 0.5));
  }
  if (decay != 0 && adam.flags[Decoupled])
    foreach (ListResult::inplace(params), HR_OP_MUL, Rule::Same, params, Scalar(1 - rate * decay))
      ;
  else if (decay != 0 && adam.flags[Maximize])
    foreach_add(ListResult::inplace(grads), grads, params, decay);
  else if (decay != 0)
    changed = foreach_add(ListResult::fresh(), grads, params, decay), grads = changed;
  foreach (ListResult::inplace(means), HR_OP_LERP, Rule::Same, means, grads, Scalar(1 - beta1))
    ;
  foreach (ListResult::inplace(squares), HR_OP_MUL, Rule::Same, squares, Scalar(beta2))
    ;
  foreach (ListResult::inplace(squares), HR_OP_ADDCMUL, Rule::Same, squares, grads, grads, Scalar(1 - beta2))
    ;
  TensorList largest = squares;
  if (adam.flags[Amsgrad]) {
    largest = adam.lists[MaxSquares];
    foreach (ListResult::inplace(largest), HR_OP_MAXIMUM, Rule::Same, largest, squares)
      ;
  }
  std::vector<Tensor> root = foreach (ListResult::fresh(), HR_OP_SQRT, Rule::Float, largest);
  TensorList divisors(root);
  foreach (ListResult::inplace(divisors), HR_OP_DIV, Rule::Float, divisors, roots)
    ;
  foreach (ListResult::inplace(divisors), HR_OP_ADD, Rule::Same, divisors, Scalar(eps))
    ;
  foreach (ListResult::inplace(params), HR_OP_ADDCDIV, Rule::Same, params, means, divisors, step_sizes)
    ;
}

PyObject *call(PyObject *, PyObject *const *args, Py_ssize_t count) {
  HANDLE_TH_ERRORS
  Adam adam;
  constexpr int kArguments = int{kLists} + int{kNumbers} + int{kFlags};
  TORCH_CHECK(count == kArguments, "adam takes ", kArguments, " arguments, not ", count);
  if (!read_arguments(args, adam) || !is_ordinary(adam))
    Py_RETURN_FALSE;
  {
    Unlocked unlocked;
    at::AutoDispatchBelowADInplaceOrView below;
    RECORD_FUNCTION("headrace::adam", c10::ArrayRef<const c10::IValue>{});
    run(adam);
  }
  Py_RETURN_TRUE;
  END_HANDLE_TH_ERRORS
}

} // namespace

PyMethodDef optimizer_functions[] = {{"adam", fast_function(&call), METH_FASTCALL,
                                      "A step of Adam over lists: parameters, gradients, averages, averages of "
                                      "squares, their maxima, steps; beta1, beta2, rate, "
                                      "decay, eps; amsgrad, maximize, decoupled. False: torch has to do it."},
                                     {nullptr, nullptr, 0, nullptr}};

} // namespace headrace
