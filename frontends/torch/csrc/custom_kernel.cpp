// custom_kernel.cpp: kernels in C (headrace/module.h) for the Python package.
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/python_arg_parser.h>

#include <cstring>

#include "extension.h"
#include "headrace/module.h"
#include "stored.h"

namespace headrace {
namespace {

const char *const kModuleCapsule = "headrace.module"; // modules live as long as the process

const hr_module *module_of(PyObject *capsule) {
  auto *module = static_cast<const hr_module *>(PyCapsule_GetPointer(capsule, kModuleCapsule));
  if (module == nullptr)
    throw python_error();
  return module;
}

// Throws; an invalid argument is this exception of Python.
void check_as(PyObject *exception, hr_status status) {
  if (hr_status_code_of(status) == HR_STATUS_INVALID_ARGUMENT) {
    PyErr_SetString(exception, hr_status_message(status));
    hr_status_free(status);
    throw python_error();
  }
  check(status);
}

PyObject *make_module(PyObject *, PyObject *arguments) {
  return answer([&] {
    const char *source = nullptr;
    parse(arguments, "s", &source);
    const hr_module *module = nullptr;
    hr_status status = nullptr;
    {
      Unlocked unlocked; // a compiler runs
      status = hr_module_create(device(), source, std::strlen(source), &module);
    }
    check_as(PyExc_SyntaxError, status);
    return PyCapsule_New(const_cast<hr_module *>(module), kModuleCapsule, nullptr);
  });
}

PyObject *list_parameters(const hr_module *module, int kernel) {
  static const char *const kinds[] = {"in", "out", "inout", "number"};
  PyObject *list = checked(PyList_New(0));
  for (int p = 0; p < hr_module_parameter_count(module, kernel); ++p) {
    hr_parameter parameter = hr_module_parameter(module, kernel, p);
    append_new(list, Py_BuildValue("(sss)", parameter.name, kinds[parameter.kind], hr_dtype_name(parameter.dtype)));
  }
  return list;
}

PyObject *describe_module(PyObject *, PyObject *capsule) {
  return answer([&] {
    const hr_module *module = module_of(capsule);
    PyObject *list = checked(PyList_New(0));
    for (int kernel = 0; kernel < hr_module_kernel_count(module); ++kernel)
      append_new(list, Py_BuildValue("(sN)", hr_module_kernel_name(module, kernel), list_parameters(module, kernel)));
    return list;
  });
}

// ---- a run

// What the views of a run refer to.
struct Operands {
  c10::SmallVector<hr_view, 8> views;
  std::array<hr_scalar, HR_MODULE_PARAMETERS_MAX> numbers{};
  std::vector<Tensor> copies;
  c10::SmallVector<Tensor, 4> written;
  c10::SmallVector<hr_buffer *, 2> retained;
  Operands() = default;
  Operands(const Operands &) = delete;
  ~Operands() {
    for (hr_buffer *buffer : retained)
      hr_buffer_release(buffer);
  }
};

hr_scalar number_argument(const char *kernel, const hr_parameter &parameter, PyObject *object) {
  if (PyBool_Check(object))
    return hr_scalar_bool(object == Py_True);
  if (PyLong_Check(object))
    return number_of(Scalar(THPUtils_unpackLong(object)));
  if (PyFloat_Check(object))
    return hr_scalar_f64(PyFloat_AsDouble(object));
  if (THPVariable_Check(object) && is_cpu_scalar(THPVariable_Unpack(object)))
    return number_of(THPVariable_Unpack(object));
  TORCH_CHECK_TYPE(!THPVariable_Check(object), "kernel ", kernel, ", parameter ", parameter.name,
                   ": expected a number, found a tensor of ", THPVariable_Unpack(object).device());
  TORCH_CHECK_TYPE(false, "kernel ", kernel, ", parameter ", parameter.name, ": expected a number, found ",
                   Py_TYPE(object)->tp_name);
}

hr_view tensor_argument(const char *kernel, const hr_parameter &parameter, PyObject *object, Operands &operands) {
  TORCH_CHECK_TYPE(THPVariable_Check(object), "kernel ", kernel, ", parameter ", parameter.name,
                   ": expected a tensor of ", hr_dtype_name(parameter.dtype), ", found ", Py_TYPE(object)->tp_name);
  const Tensor &given = THPVariable_Unpack(object);
  TORCH_CHECK_VALUE(is_here(given), "kernel ", kernel, ", parameter ", parameter.name, ": expected a tensor of ",
                    here(), ", found one of ", given.device());
  TORCH_CHECK_TYPE(given.layout() == at::kStrided, "kernel ", kernel, ", parameter ", parameter.name,
                   ": expected a strided tensor, not ", given.layout());
  Tensor tensor = given;
  if (parameter.kind == HR_PARAMETER_IN) {
    tensor = as_stored(given);
    if (!tensor.is_same(given))
      operands.copies.push_back(tensor);
  } else {
    TORCH_CHECK_VALUE(!given.is_neg(), "kernel ", kernel, ", parameter ", parameter.name,
                      ": can't write a negated view of a tensor");
    TORCH_CHECK(!(at::GradMode::is_enabled() && given.requires_grad()), "kernel ", kernel, " writes ", parameter.name,
                ", which requires a gradient: call it in a torch.autograd.Function or under torch.no_grad()");
    operands.written.push_back(given);
  }
  int64_t offset_bytes = 0;
  bool is_retained = false;
  hr_view view{};
  view.buffer = buffer_of(tensor, &offset_bytes, &is_retained);
  if (is_retained)
    operands.retained.push_back(view.buffer);
  view.dtype = dtype_of(tensor.scalar_type());
  view.rank = static_cast<int>(tensor.dim());
  view.offset = tensor.storage_offset() + offset_bytes / static_cast<int64_t>(tensor.element_size());
  view.dims = tensor.sizes().data(); // alive: the caller's tensor or one of `copies`
  view.strides = tensor.strides().data();
  return view;
}

void collect(const hr_module *module, int kernel, PyObject *arguments, Operands &operands) {
  const char *name = hr_module_kernel_name(module, kernel);
  int wanted = hr_module_parameter_count(module, kernel);
  TORCH_CHECK_TYPE(PyTuple_Size(arguments) == wanted, "kernel ", name, ": expected ", wanted,
                   wanted == 1 ? " argument" : " arguments", ", found ", PyTuple_Size(arguments));
  for (int p = 0; p < wanted; ++p) {
    hr_parameter parameter = hr_module_parameter(module, kernel, p);
    PyObject *object = PyTuple_GetItem(arguments, p);
    if (parameter.kind == HR_PARAMETER_NUMBER) {
      operands.numbers[static_cast<size_t>(p)] = number_argument(name, parameter, object);
      hr_view view{};
      view.scalar = &operands.numbers[static_cast<size_t>(p)];
      view.dtype = view.scalar->dtype;
      operands.views.push_back(view);
    } else {
      operands.views.push_back(tensor_argument(name, parameter, object, operands));
    }
  }
}

// Sizes along three dims from a tuple of up to three, or nothing for None.
const int64_t *sizes_argument(PyObject *sizes, std::array<int64_t, 3> &places, int64_t rest) {
  if (sizes == Py_None)
    return nullptr;
  places.fill(rest);
  for (Py_ssize_t d = 0; d < PyTuple_Size(sizes) && d < 3; ++d)
    places[static_cast<size_t>(d)] = THPUtils_unpackLong(PyTuple_GetItem(sizes, d));
  return places.data();
}

const Tensor *first_tensor(PyObject *arguments) {
  for (Py_ssize_t i = 0; i < PyTuple_Size(arguments); ++i) {
    PyObject *object = PyTuple_GetItem(arguments, i);
    if (THPVariable_Check(object) && is_on_device(THPVariable_Unpack(object)))
      return &THPVariable_Unpack(object);
  }
  return nullptr;
}

PyObject *run_module(PyObject *, PyObject *given) {
  return answer([&] {
    PyObject *capsule = nullptr, *arguments = nullptr, *threads = nullptr, *group = nullptr;
    int kernel = 0;
    parse(given, "OiOOO", &capsule, &kernel, &arguments, &threads, &group);
    const hr_module *module = module_of(capsule);
    const Tensor *first = first_tensor(arguments);
    OnDevice on(first != nullptr ? std::optional<c10::Device>(first->device()) : std::nullopt);
    Operands operands;
    collect(module, kernel, arguments, operands);
    std::array<int64_t, 3> thread_counts{}, group_sizes{};
    const int64_t *grid = sizes_argument(threads, thread_counts, 1), *grouped = sizes_argument(group, group_sizes, 1);
    hr_status status = nullptr;
    {
      Unlocked unlocked;
      status = hr_module_record(stream(), module, kernel, operands.views.data(), grid, grouped);
    }
    check_as(PyExc_ValueError, status);
    for (const Tensor &tensor : operands.written)
      tensor.unsafeGetTensorImpl()->bump_version();
    Py_RETURN_NONE;
  });
}

} // namespace

PyMethodDef custom_kernel_functions[] = {
    {"make_module", make_module, METH_VARARGS, "make_module(source): a capsule of its compiled kernels."},
    {"describe_module", describe_module, METH_O, "The kernels of a module: (name, [(parameter, kind, dtype)])."},
    {"run_module", run_module, METH_VARARGS,
     "run_module(module, kernel, arguments, threads, group): records a run of a kernel by its number."},
    {nullptr, nullptr, 0, nullptr}};

} // namespace headrace
