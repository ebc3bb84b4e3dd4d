// function.cpp: compiled graphs for the Python package (headrace._C): programs, captures, and the function that the
// backend of torch.compile returns, which runs an FX graph's program.
//
// make_function(program, fallback, attributes) returns a builtin function of tensors. It passes a call's tensors,
// followed by the tensors of `attributes`, to graph_run, and returns a list of results. Other calls go to `fallback`
// with their original arguments: a geometry that no variant fits, a program whose results are not all tensors of the
// device, and arguments that are not tensors.
//
// Threads: called with the interpreter's lock, which is released while records are appended to the stream.
#include <ATen/record_function.h>
#include <torch/csrc/autograd/python_variable.h>

#include <memory>
#include <vector>

#include "extension.h"

namespace headrace {
namespace {

const char *const kCapsule = "headrace.function";

struct Function {
  int64_t program;
  PyObject *fallback;
  std::vector<Tensor> attributes;
  ~Function() {
    Py_DECREF(fallback);
  }
};

void destroy(PyObject *capsule) {
  delete static_cast<Function *>(PyCapsule_GetPointer(capsule, kCapsule));
}

// The stream may wait for its lock, compile and run pending work. Other threads continue meanwhile.
hr_status run_unlocked(hr_stream *stream, const hr_part *graph, hr_buffer *const *params, hr_buffer *const *results,
                       const hr_scalar *arguments) {
  Unlocked unlocked;
  return run_and_submit_early(stream, graph, params, results, arguments);
}

PyObject *list_of(std::vector<Tensor> &results) {
  PyObject *list = PyList_New(static_cast<Py_ssize_t>(results.size()));
  for (size_t i = 0; list != nullptr && i < results.size(); ++i) {
    PyObject *result = THPVariable_Wrap(std::move(results[i]));
    if (result == nullptr) {
      Py_DECREF(list);
      return nullptr;
    }
    PyList_SET_ITEM(list, static_cast<Py_ssize_t>(i), result);
  }
  return list;
}

PyObject *call_fallback(PyObject *fallback, PyObject *const *args, Py_ssize_t count) {
  PyObject *tuple = checked(PyTuple_New(count));
  for (Py_ssize_t i = 0; i < count; ++i) {
    Py_INCREF(args[i]);
    PyTuple_SetItem(tuple, i, args[i]);
  }
  PyObject *result = PyObject_CallObject(fallback, tuple);
  Py_DECREF(tuple);
  return result;
}

PyObject *call(PyObject *capsule, PyObject *const *args, Py_ssize_t count) {
  HANDLE_TH_ERRORS
  auto *function = static_cast<Function *>(PyCapsule_GetPointer(capsule, kCapsule));
  c10::SmallVector<Tensor, 32> inputs;
  bool is_plain = true;
  for (Py_ssize_t i = 0; is_plain && i < count; ++i) {
    is_plain = THPVariable_Check(args[i]);
    if (is_plain)
      inputs.push_back(THPVariable_Unpack(args[i]));
  }
  if (C10_LIKELY(is_plain)) {
    RECORD_FUNCTION("headrace::graph_run", c10::ArrayRef<const c10::IValue>{});
    inputs.append(function->attributes.begin(), function->attributes.end());
    std::vector<Tensor> results;
    if (C10_LIKELY(graph_run_directly(function->program, inputs, results, &run_unlocked)))
      return list_of(results);
  }
  return call_fallback(function->fallback, args, count);
  END_HANDLE_TH_ERRORS
}

PyMethodDef definition = {"headrace_graph", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(&call)),
                          METH_FASTCALL, "A compiled graph: tensors in, a list of tensors out."};

PyObject *make_function(PyObject *, PyObject *arguments) {
  return answer([&] {
    long long program = 0;
    PyObject *fallback = nullptr, *attributes = nullptr;
    parse(arguments, "LOO", &program, &fallback, &attributes);
    Py_INCREF(fallback);
    auto function = std::unique_ptr<Function>(new Function{program, fallback, {}});
    for (Py_ssize_t i = 0; i < PyList_Size(attributes); ++i)
      function->attributes.push_back(THPVariable_Unpack(PyList_GetItem(attributes, i)));
    PyObject *capsule = checked(PyCapsule_New(function.get(), kCapsule, &destroy));
    function.release();
    PyObject *made = PyCFunction_New(&definition, capsule);
    Py_DECREF(capsule);
    return made;
  });
}

// ---- programs and captures

long long program_argument(PyObject *arguments) {
  long long program = 0;
  parse(arguments, "L", &program);
  return program;
}

PyObject *create_program(PyObject *, PyObject *) {
  return answer([] { return PyLong_FromLongLong(program_create()); });
}

PyObject *release_program(PyObject *, PyObject *arguments) {
  return answer([&] {
    program_release(program_argument(arguments));
    Py_RETURN_NONE;
  });
}

PyObject *mix_program(PyObject *, PyObject *arguments) {
  return answer([&] {
    program_mix(program_argument(arguments));
    Py_RETURN_NONE;
  });
}

PyObject *begin_capture(PyObject *, PyObject *) {
  return perform([] { capture_begin(); });
}

PyObject *begin_backward(PyObject *, PyObject *) {
  return perform([] { capture_backward(); });
}

PyObject *end_capture(PyObject *, PyObject *) {
  return perform([] { capture_end(); });
}

PyObject *object_of(const hr_scalar &scalar) {
  switch (scalar.dtype) {
    case HR_DTYPE_F64:
      return PyFloat_FromDouble(scalar.value.f[0]);
    case HR_DTYPE_C128:
      return PyComplex_FromDoubles(scalar.value.f[0], scalar.value.f[1]);
    case HR_DTYPE_BOOL:
      return PyBool_FromLong(scalar.value.i != 0);
    case HR_DTYPE_U64:
      return PyLong_FromUnsignedLongLong(scalar.value.u);
    default:
      return PyLong_FromLongLong(scalar.value.i);
  }
}

PyObject *list_scalars(PyObject *, PyObject *arguments) {
  return answer([&] {
    int of_forward = 0;
    parse(arguments, "p", &of_forward);
    std::vector<hr_scalar> scalars = captured_scalars(of_forward != 0);
    PyObject *list = checked(PyList_New(static_cast<Py_ssize_t>(scalars.size())));
    for (size_t i = 0; i < scalars.size(); ++i)
      PyList_SetItem(list, static_cast<Py_ssize_t>(i), checked(object_of(scalars[i])));
    return list;
  });
}

PyObject *bind_scalars(PyObject *, PyObject *arguments) {
  return answer([&] {
    int of_forward = 0;
    PyObject *given = nullptr;
    parse(arguments, "pO", &of_forward, &given);
    std::vector<Capture::Number> numbers;
    for (Py_ssize_t i = 0; i < PyList_Size(given); ++i) {
      long long scalar = 0, which = 0;
      int is_negated = 0;
      parse(PyList_GetItem(given, i), "LLp", &scalar, &which, &is_negated);
      numbers.push_back({scalar, static_cast<size_t>(which), is_negated != 0});
    }
    bind_numbers(of_forward != 0, std::move(numbers));
    Py_RETURN_NONE;
  });
}

} // namespace

PyMethodDef graph_functions[] = {
    {"make_function", make_function, METH_VARARGS,
     "make_function(program, fallback, attributes): a function of tensors."},
    {"program_create", create_program, METH_NOARGS, "A new program; gives its handle."},
    {"program_release", release_program, METH_VARARGS, "Frees a program."},
    {"program_mix", mix_program, METH_VARARGS, "The program's results are not all tensors of the device."},
    {"capture_begin", begin_capture, METH_NOARGS, "What this thread records from here on becomes a variant."},
    {"capture_backward", begin_backward, METH_NOARGS, "... and from here on, its backward pass."},
    {"capture_scalars", list_scalars, METH_VARARGS,
     "capture_scalars(of_forward): the numbers of the captured records, of the forward or the last pass."},
    {"capture_bind", bind_scalars, METH_VARARGS,
     "capture_bind(of_forward, [(scalar, number, is_negated)]): the scalars that are numbers of each run."},
    {"capture_end", end_capture, METH_NOARGS, "Drops what no variant took."},
    {nullptr, nullptr, 0, nullptr}};

} // namespace headrace
