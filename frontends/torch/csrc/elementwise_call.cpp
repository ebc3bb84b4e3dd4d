// elementwise_call.cpp: element-wise kernels for the Python package: a builtin function for each, so that a call costs
// little more than one of torch's. See elementwise.h.
#include <ATen/record_function.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/python_arg_parser.h>

#include "elementwise.h"
#include "extension.h"

namespace headrace {
namespace {

const char *const kKernelCapsule = "headrace.elementwise";

struct KernelFunction {
  std::shared_ptr<Kernel> kernel;
  PyObject *others; // called with the operands if not all tensors are plain ones of a device
  ~KernelFunction() {
    Py_DECREF(others);
  }
};

void destroy_kernel(PyObject *capsule) {
  delete static_cast<KernelFunction *>(PyCapsule_GetPointer(capsule, kKernelCapsule));
}

hr_status run_kernel_unlocked(hr_stream *stream, const hr_expression_instance *instance, hr_buffer *const *inputs,
                              hr_buffer *const *outputs, const hr_scalar *numbers) {
  Unlocked unlocked;
  return hr_expression_instance_run(stream, instance, inputs, outputs, numbers);
}

hr_status record_kernel_unlocked(hr_stream *stream, const hr_expression *expression, hr_dtype t, const hr_view *inputs,
                                 const hr_view *outputs) {
  Unlocked unlocked;
  return hr_expression_record(stream, expression, t, inputs, outputs);
}

constexpr KernelCore kUnlockedCore{&run_kernel_unlocked, &record_kernel_unlocked};

std::string list_inputs(const Kernel &kernel) {
  std::string names;
  for (const Kernel::Variable &input : kernel.inputs)
    names += (names.empty() ? "" : ", ") + std::string(input.name);
  return names;
}

// Positional and named arguments in the order of the signature.
void collect_arguments(const Kernel &kernel, PyObject *const *args, Py_ssize_t count, PyObject *names,
                       c10::SmallVector<PyObject *, 8> &arguments) {
  Py_ssize_t named = names != nullptr ? PyTuple_Size(names) : 0;
  size_t wanted = kernel.inputs.size();
  TORCH_CHECK_TYPE(static_cast<size_t>(count + named) == wanted, "elementwise: expected ", wanted,
                   wanted == 1 ? " operand" : " operands", " (", list_inputs(kernel), ") as in the signature \"",
                   kernel.signature, "\", found ", count + named);
  arguments.assign(args, args + count);
  arguments.resize(wanted, nullptr);
  for (Py_ssize_t n = 0; n < named; ++n) {
    PyObject *name = PyTuple_GetItem(names, n);
    size_t i = 0;
    while (i < wanted && PyUnicode_CompareWithASCIIString(name, kernel.inputs[i].name) != 0)
      ++i;
    TORCH_CHECK_TYPE(i < wanted && arguments[i] == nullptr, "elementwise: expected the operands (", list_inputs(kernel),
                     "), found ", THPUtils_unpackString(name), i < wanted ? " twice" : "");
    arguments[i] = args[count + n];
  }
}

// A number, or false for an object that is none.
bool number_operand(PyObject *object, KernelOperand &operand) {
  if (PyFloat_Check(object)) {
    operand.number = hr_scalar_f64(PyFloat_AsDouble(object));
    operand.number_type = ScalarType::Double;
  } else if (PyBool_Check(object)) {
    operand.number = hr_scalar_bool(object == Py_True);
    operand.number_type = ScalarType::Bool;
  } else if (PyLong_Check(object)) {
    operand = KernelOperand(THPUtils_unpackLong(object));
  } else if (PyComplex_Check(object)) {
    operand =
        KernelOperand(Scalar(c10::complex<double>(PyComplex_RealAsDouble(object), PyComplex_ImagAsDouble(object))));
  } else {
    return false;
  }
  return true;
}

// The operands of a plain call; false if torch or the composition on other devices has to see it.
bool plain_operands(const Kernel &kernel, const c10::SmallVector<PyObject *, 8> &arguments, KernelOperands &operands) {
  bool has_tensor = false;
  for (size_t i = 0; i < arguments.size(); ++i) {
    PyObject *object = arguments[i];
    KernelOperand operand;
    if (THPVariable_Check(object)) {
      if (!THPVariable_CheckExact(object))
        return false;
      const Tensor &tensor = THPVariable_Unpack(object);
      if (is_on_device(tensor)) {
        operand.tensor = tensor;
        has_tensor = true;
      } else if (!is_cpu_scalar(tensor) || tensor.requires_grad() || tensor.is_neg()) {
        return false;
      } else {
        operand.number = number_of(tensor);
        operand.number_type = tensor.scalar_type();
        operand.is_wrapped = tensor.unsafeGetTensorImpl()->is_wrapped_number();
      }
    } else if (!number_operand(object, operand)) {
      return false;
    }
    operands.push_back(std::move(operand));
  }
  return has_tensor && kernel_is_plain(operands);
}

PyObject *wrap_results(KernelResults &results) {
  if (C10_LIKELY(results.size() == 1))
    return THPVariable_Wrap(std::move(results[0]));
  PyObject *tuple = checked(PyTuple_New(static_cast<Py_ssize_t>(results.size())));
  for (size_t i = 0; i < results.size(); ++i) {
    PyObject *result = THPVariable_Wrap(std::move(results[i]));
    if (result == nullptr) {
      Py_DECREF(tuple);
      return nullptr;
    }
    PyTuple_SetItem(tuple, static_cast<Py_ssize_t>(i), result);
  }
  return tuple;
}

PyObject *call_others(PyObject *others, const c10::SmallVector<PyObject *, 8> &arguments) {
  PyObject *tuple = checked(PyTuple_New(static_cast<Py_ssize_t>(arguments.size())));
  for (size_t i = 0; i < arguments.size(); ++i) {
    Py_INCREF(arguments[i]);
    PyTuple_SetItem(tuple, static_cast<Py_ssize_t>(i), arguments[i]);
  }
  PyObject *result = PyObject_CallObject(others, tuple);
  Py_DECREF(tuple);
  return result;
}

PyObject *call_kernel(PyObject *capsule, PyObject *const *args, Py_ssize_t count, PyObject *names) {
  HANDLE_TH_ERRORS
  auto *function = static_cast<KernelFunction *>(PyCapsule_GetPointer(capsule, kKernelCapsule));
  c10::SmallVector<PyObject *, 8> arguments;
  collect_arguments(*function->kernel, args, count, names, arguments);
  KernelOperands operands;
  if (C10_UNLIKELY(!plain_operands(*function->kernel, arguments, operands)))
    return call_others(function->others, arguments);
  RECORD_FUNCTION("headrace::elementwise", c10::ArrayRef<const c10::IValue>{});
  KernelResults results = kernel_call(function->kernel, operands, function->kernel->given_outputs, kUnlockedCore);
  return wrap_results(results);
  END_HANDLE_TH_ERRORS
}

PyMethodDef kernel_definition = {
    "elementwise_kernel", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(&call_kernel)),
    METH_FASTCALL | METH_KEYWORDS, "An element-wise kernel: tensors and numbers in, a tensor or a tuple of them out."};

std::shared_ptr<Kernel> kernel_of(const char *text, const char *signature, const char *backward, long long order) {
  std::optional<std::string> own;
  if (backward != nullptr)
    own = backward;
  return find_kernel(text, signature, own, order);
}

PyObject *make_kernel_function(PyObject *, PyObject *arguments) {
  return answer([&] {
    const char *text = nullptr, *signature = nullptr, *backward = nullptr;
    PyObject *others = nullptr;
    parse(arguments, "sszO", &text, &signature, &backward, &others);
    std::shared_ptr<Kernel> kernel = kernel_of(text, signature, backward, 0);
    Py_INCREF(others);
    auto function = std::unique_ptr<KernelFunction>(new KernelFunction{kernel, others});
    PyObject *capsule = checked(PyCapsule_New(function.get(), kKernelCapsule, &destroy_kernel));
    function.release();
    PyObject *made = PyCFunction_New(&kernel_definition, capsule);
    Py_DECREF(capsule);
    return made;
  });
}

PyObject *list_variables(const std::vector<Kernel::Variable> &variables) {
  PyObject *list = checked(PyList_New(static_cast<Py_ssize_t>(variables.size())));
  for (size_t i = 0; i < variables.size(); ++i) {
    bool is_t = variables[i].type == ScalarType::Undefined;
    PyObject *variable =
        checked(Py_BuildValue("(szO)", variables[i].name, is_t ? nullptr : hr_dtype_name(variables[i].dtype),
                              variables[i].is_used ? Py_True : Py_False));
    PyList_SetItem(list, static_cast<Py_ssize_t>(i), variable);
  }
  return list;
}

PyObject *describe_kernel_function(PyObject *, PyObject *arguments) {
  return answer([&] {
    const char *text = nullptr, *signature = nullptr, *backward = nullptr;
    long long order = 0;
    parse(arguments, "sszL", &text, &signature, &backward, &order);
    std::shared_ptr<Kernel> kernel = kernel_of(text, signature, backward, order);
    return Py_BuildValue("(NNO)", list_variables(kernel->inputs), list_variables(kernel->outputs),
                         hr_expression_has_index(kernel->expression) ? Py_True : Py_False);
  });
}

PyObject *print_kernel(PyObject *, PyObject *arguments) {
  return answer([&] {
    const char *text = nullptr, *signature = nullptr, *backward = nullptr, *t = nullptr;
    long long order = 0, numbers = 0;
    PyObject *sizes = nullptr;
    parse(arguments, "sszLzLO", &text, &signature, &backward, &order, &t, &numbers, &sizes);
    std::shared_ptr<Kernel> kernel = kernel_of(text, signature, backward, order);
    std::vector<int64_t> dims;
    for (Py_ssize_t d = 0; d < PyTuple_Size(sizes); ++d)
      dims.push_back(THPUtils_unpackLong(PyTuple_GetItem(sizes, d)));
    hr_dtype dtype = t != nullptr ? hr_dtype_parse(t) : HR_DTYPE_NONE;
    int64_t none = 0;
    size_t length = 0;
    std::string rows;
    do {
      rows.resize(length + 1);
      check(hr_expression_print(kernel->expression, dtype, static_cast<uint64_t>(numbers),
                                static_cast<int>(dims.size()), dims.empty() ? &none : dims.data(), rows.data(),
                                rows.size(), &length));
    } while (length >= rows.size());
    return PyUnicode_FromStringAndSize(rows.data(), static_cast<Py_ssize_t>(length));
  });
}

} // namespace

PyMethodDef elementwise_functions[] = {
    {"describe_elementwise", describe_kernel_function, METH_VARARGS,
     "describe_elementwise(text, signature, backward, order): inputs, outputs (name, dtype or None, used), and whether "
     "it depends on indices."},
    {"print_elementwise", print_kernel, METH_VARARGS,
     "print_elementwise(text, signature, backward, order, t, numbers, sizes): its rows."},
    {"make_elementwise", make_kernel_function, METH_VARARGS,
     "make_elementwise(text, signature, backward, others): the function of an element-wise kernel."},
    {nullptr, nullptr, 0, nullptr}};

} // namespace headrace
