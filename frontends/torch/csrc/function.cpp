// function.cpp: Python functions in C++, for what small steps call each time: the function that the backend of
// torch.compile returns, which runs an FX graph's program, and torch.headrace.synchronize.
//
// headrace_torch_make_function(program, fallback, attributes) gives a builtin function of tensors. It takes a call's
// tensors, and behind them the tensors of `attributes`, to graph_run, and gives a list of results. What it can't do
// goes to `fallback` with the arguments as they came: a geometry that no variant fits, a program whose results are not
// all tensors of the device, and arguments that are no tensors.
//
// headrace_torch_make_synchronize(general, raise_error) gives a builtin function that waits for the device at hand.
// Called with arguments it calls general(...) with them, and behind a failure raise_error(code).
//
// Threads: called with the interpreter's lock, which is given up while the stream takes the records.
#include <ATen/record_function.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>

#include <memory>
#include <vector>

#include "record.h"
#include "runtime.h"

extern "C" HR_API int headrace_torch_synchronize(int index); // runtime.cpp

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

// The stream may wait for its lock, compile and run what is pending: other threads go on meanwhile.
hr_status run_unlocked(hr_stream *stream, const hr_part *graph, hr_buffer *const *params, hr_buffer *const *results,
                       const hr_scalar *arguments) {
  PyThreadState *state = PyEval_SaveThread();
  hr_status status = run_and_submit_early(stream, graph, params, results, arguments);
  PyEval_RestoreThread(state);
  return status;
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
  return PyObject_Vectorcall(function->fallback, args, static_cast<size_t>(count), nullptr);
  END_HANDLE_TH_ERRORS
}

PyMethodDef definition = {"headrace_graph", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(&call)),
                          METH_FASTCALL, "A compiled graph: tensors in, a list of tensors out."};

// `self` is the pair of functions.
PyObject *synchronize(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names) {
  if (C10_UNLIKELY(count > 0 || names != nullptr))
    return PyObject_Vectorcall(PyTuple_GET_ITEM(self, 0), args, static_cast<size_t>(count), names);
  PyThreadState *state = PyEval_SaveThread();
  int code = headrace_torch_synchronize(-1);
  PyEval_RestoreThread(state);
  if (C10_LIKELY(code == 0))
    Py_RETURN_NONE;
  return PyObject_CallFunction(PyTuple_GET_ITEM(self, 1), "i", code);
}

PyMethodDef synchronize_definition = {"synchronize",
                                      reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(&synchronize)),
                                      METH_FASTCALL | METH_KEYWORDS,
                                      "synchronize(device=None)\n--\n\n"
                                      "Waits until everything recorded has run; raises the first error of that work."};

} // namespace
} // namespace headrace

using namespace headrace;

// Called with the interpreter's lock (ctypes.PyDLL); NULL with a Python exception set.
extern "C" HR_API PyObject *headrace_torch_make_function(int64_t program, PyObject *fallback, PyObject *attributes) {
  HANDLE_TH_ERRORS
  Py_INCREF(fallback);
  auto function = std::unique_ptr<Function>(new Function{program, fallback, {}});
  for (Py_ssize_t i = 0; i < PyList_Size(attributes); ++i)
    function->attributes.push_back(THPVariable_Unpack(PyList_GetItem(attributes, i)));
  PyObject *capsule = PyCapsule_New(function.get(), kCapsule, &destroy);
  if (capsule == nullptr)
    return nullptr;
  function.release();
  PyObject *made = PyCFunction_New(&definition, capsule);
  Py_DECREF(capsule);
  return made;
  END_HANDLE_TH_ERRORS
}

// Likewise.
extern "C" HR_API PyObject *headrace_torch_make_synchronize(PyObject *general, PyObject *raise_error) {
  PyObject *self = PyTuple_Pack(2, general, raise_error), *name = PyUnicode_FromString("headrace.torch");
  PyObject *made =
      self != nullptr && name != nullptr ? PyCFunction_NewEx(&synchronize_definition, self, name) : nullptr;
  Py_XDECREF(self);
  Py_XDECREF(name);
  return made;
}
