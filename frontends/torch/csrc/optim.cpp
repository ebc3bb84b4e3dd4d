// optim.cpp: steps of torch.optim's Adam and AdamW, and the release of gradients, as Python functions in C++.
//
// torch's step (_multi_tensor_adam in torch/optim/adam.py) is a dozen calls over lists, between which Python computes
// numbers for each parameter. Here the same operations are recorded with the same numbers, so all bits are equal.
// `adam` has the lists as arguments; `step_adam` collects them from an optimizer's groups and state.
//
// The functions return False without doing anything in unusual cases: tensor subclasses, modes that intercept torch's
// calls, tensors elsewhere or of several dtypes, numbers that are tensors, parameters without a state, profilers. Then
// torch's own functions run.
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
#include <memory>
#include <vector>

#include "composite.h"
#include "extension.h"
#include "kernels.h"

namespace headrace {
namespace {

// A list of tensors that Python's objects keep. A reference of its own to a tensor that Python has would take the
// interpreter's lock twice.
class Tensors {
public:
  Tensors() = default;
  Tensors(const Tensors &) = delete;
  ~Tensors() {
    for (Tensor &tensor : tensors_)
      c10::MaybeOwnedTraits<Tensor>::destroyBorrow(tensor);
    for (PyObject *owner : owners_)
      Py_DECREF(owner);
  }
  // False: it is no tensor, or one of a subclass.
  bool add(PyObject *object) {
    if (object == nullptr || !THPVariable_CheckExact(object))
      return false;
    tensors_.push_back(c10::MaybeOwnedTraits<Tensor>::createBorrow(THPVariable_Unpack(object)));
    owners_.push_back(Py_NewRef(object));
    return true;
  }
  size_t size() const {
    return tensors_.size();
  }
  bool empty() const {
    return tensors_.empty();
  }
  const Tensor &operator[](size_t i) const {
    return tensors_[i];
  }
  const Tensor *begin() const {
    return tensors_.begin();
  }
  const Tensor *end() const {
    return tensors_.end();
  }
  operator TensorList() const {
    return tensors_;
  }

private:
  c10::SmallVector<Tensor, 32> tensors_;
  c10::SmallVector<PyObject *, 32> owners_;
};

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
  for (Py_ssize_t i = 0; i < count; ++i)
    if (!tensors.add(PyList_GET_ITEM(list, i)))
      return false;
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

// ---- an optimizer's groups

// Texts that Python keeps for the process, so that lookups compare addresses.
PyObject *interned(const char *text) {
  return checked(PyUnicode_InternFromString(text));
}

// The value of a dict's key, borrowed; nullptr: it is no dict, or has no such key.
PyObject *value_of(PyObject *dict, PyObject *key) {
  if (dict == nullptr || !PyDict_Check(dict))
    return nullptr;
  PyObject *value = PyDict_GetItemWithError(dict, key);
  if (value == nullptr)
    PyErr_Clear();
  return value;
}

// The keys of Adam's groups and states.
struct Keys {
  PyObject *params = interned("params"), *betas = interned("betas");
  std::array<PyObject *, kNumbers - 2> numbers = {interned("lr"), interned("weight_decay"), interned("eps")};
  std::array<PyObject *, kFlags> flags = {interned("amsgrad"), interned("maximize"),
                                          interned("decoupled_weight_decay")};
  std::array<PyObject *, 3> refused = {interned("capturable"), interned("differentiable"), interned("fused")};
  PyObject *foreach = interned("foreach");
  std::array<PyObject *, kLists - Means> states = {interned("exp_avg"), interned("exp_avg_sq"),
                                                   interned("max_exp_avg_sq"), interned("step")};
};

bool is_off(PyObject *flag) {
  return flag == Py_False || flag == Py_None;
}

bool read_options(PyObject *group, const Keys &keys, Adam &adam) {
  PyObject *betas = value_of(group, keys.betas), *foreach = value_of(group, keys.foreach);
  if (betas == nullptr || !PyTuple_CheckExact(betas) || PyTuple_GET_SIZE(betas) != 2 ||
      (foreach != Py_None && foreach != Py_True))
    return false;
  std::array<PyObject *, kNumbers> numbers = {PyTuple_GET_ITEM(betas, 0), PyTuple_GET_ITEM(betas, 1)};
  for (int i = Rate; i < kNumbers; ++i)
    numbers[i] = value_of(group, keys.numbers[i - Rate]);
  for (int i = 0; i < kNumbers; ++i)
    if (numbers[i] == nullptr || !read_number(numbers[i], adam.numbers[i]))
      return false;
  for (int i = 0; i < kFlags; ++i) {
    PyObject *flag = value_of(group, keys.flags[i]);
    if (flag == nullptr || !PyBool_Check(flag))
      return false;
    adam.flags[i] = flag == Py_True;
  }
  return std::all_of(keys.refused.begin(), keys.refused.end(),
                     [&](PyObject *key) { return is_off(value_of(group, key)); });
}

// A parameter with a gradient, and its state, which torch's own step makes.
bool read_parameter(PyObject *param, PyObject *state, const Keys &keys, Adam &adam) {
  const Tensor &grad = THPVariable_Unpack(param).grad();
  if (!grad.defined())
    return true;
  PyObject *own = value_of(state, param), *known = checked(THPVariable_Wrap(grad));
  bool is_read = adam.lists[Params].add(param) && adam.lists[Grads].add(known);
  Py_DECREF(known);
  for (int i = Means; is_read && i < kLists; ++i)
    is_read = (i == MaxSquares && !adam.flags[Amsgrad]) || adam.lists[i].add(value_of(own, keys.states[i - Means]));
  return is_read;
}

// The parameters of a group, nullptr: it is not as expected.
PyObject *params_of(PyObject *group, PyObject *key) {
  PyObject *params = value_of(group, key);
  return params != nullptr && PyList_CheckExact(params) ? params : nullptr;
}

bool read_group(PyObject *group, PyObject *state, const Keys &keys, Adam &adam) {
  PyObject *params = params_of(group, keys.params);
  if (params == nullptr || !read_options(group, keys, adam))
    return false;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(params); ++i) {
    PyObject *param = PyList_GET_ITEM(params, i);
    if (!THPVariable_CheckExact(param) || !read_parameter(param, state, keys, adam))
      return false;
  }
  return true;
}

const Keys &own_keys() {
  static const Keys keys;
  return keys;
}

// ---- ordinary arguments

// True if calls on the tensor reach only the device's own kernels.
bool is_plain(const Tensor &tensor) {
  return tensor.defined() && tensor.layout() == c10::kStrided && !tensor.is_inference() && is_unwrapped(tensor) &&
         !tensor.is_conj() && !tensor.is_neg();
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
    step.unsafeGetTensorImpl()->bump_version();
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

// Without the interpreter's lock.
void step(const Adam &adam) {
  Unlocked unlocked;
  at::AutoDispatchBelowADInplaceOrView below;
  RECORD_FUNCTION("headrace::adam", c10::ArrayRef<const c10::IValue>{});
  run(adam);
}

PyObject *call(PyObject *, PyObject *const *args, Py_ssize_t count) {
  HANDLE_TH_ERRORS
  Adam adam;
  constexpr int kArguments = int{kLists} + int{kNumbers} + int{kFlags};
  TORCH_CHECK(count == kArguments, "adam takes ", kArguments, " arguments, not ", count);
  if (!read_arguments(args, adam) || !is_ordinary(adam))
    Py_RETURN_FALSE;
  step(adam);
  Py_RETURN_TRUE;
  END_HANDLE_TH_ERRORS
}

// All groups are read before the first step.
bool step_groups(PyObject *groups, PyObject *state) {
  std::vector<std::unique_ptr<Adam>> all;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(groups); ++i) {
    auto adam = std::make_unique<Adam>();
    if (!read_group(PyList_GET_ITEM(groups, i), state, own_keys(), *adam))
      return false;
    if (adam->lists[Params].empty())
      continue;
    if (!is_ordinary(*adam))
      return false;
    all.push_back(std::move(adam));
  }
  for (const auto &adam : all)
    step(*adam);
  return true;
}

// A profiler's names of steps are those of torch's own functions.
PyObject *call_groups(PyObject *, PyObject *const *args, Py_ssize_t count) {
  HANDLE_TH_ERRORS
  TORCH_CHECK(count == 2, "step_adam takes 2 arguments, not ", count);
  c10::AutoGradMode without(false);
  if (PyList_CheckExact(args[0]) && !at::hasCallbacks() && step_groups(args[0], args[1]))
    Py_RETURN_TRUE;
  Py_RETURN_FALSE;
  END_HANDLE_TH_ERRORS
}

// ---- gradients

// True if the gradients may be forgotten without torch's functions.
bool are_ours(PyObject *params) {
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(params); ++i) {
    PyObject *param = PyList_GET_ITEM(params, i);
    if (!THPVariable_CheckExact(param) || !is_on_device(THPVariable_Unpack(param)))
      return false;
  }
  return true;
}

bool forget_gradients(PyObject *groups) {
  c10::SmallVector<PyObject *, 4> all;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(groups); ++i) {
    all.push_back(params_of(PyList_GET_ITEM(groups, i), own_keys().params));
    if (all.back() == nullptr || !are_ours(all.back()))
      return false;
  }
  for (PyObject *params : all)
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(params); ++i) {
      const Tensor &param = THPVariable_Unpack(PyList_GET_ITEM(params, i));
      if (param.grad().defined())
        param.mutable_grad().reset();
    }
  return true;
}

PyObject *call_forget(PyObject *, PyObject *groups) {
  HANDLE_TH_ERRORS
  bool is_watched = at::impl::torch_function_mode_enabled() || at::hasCallbacks();
  if (PyList_CheckExact(groups) && !is_watched && forget_gradients(groups))
    Py_RETURN_TRUE;
  Py_RETURN_FALSE;
  END_HANDLE_TH_ERRORS
}

} // namespace

PyMethodDef optimizer_functions[] = {
    {"adam", fast_function(&call), METH_FASTCALL,
     "A step of Adam over lists: parameters, gradients, averages, averages of "
     "squares, their maxima, steps; beta1, beta2, rate, "
     "decay, eps; amsgrad, maximize, decoupled. False: torch has to do it."},
    {"step_adam", fast_function(&call_groups), METH_FASTCALL,
     "A step of Adam of an optimizer's groups and state. False: torch has to do it."},
    {"forget_gradients", &call_forget, METH_O,
     "Sets the gradients of an optimizer's groups to None. False: torch has to do it."},
    {nullptr, nullptr, 0, nullptr}};

} // namespace headrace
