// extension.h: the extension module headrace._C, which the Python package calls (module.cpp), and helpers of its
// functions.
//
// A function of the module parses its arguments, releases the interpreter's lock if it may wait, and converts
// exceptions to Python's. It uses only functions of CPython's stable ABI of 3.10: one library serves all CPythons of a
// torch version (scripts/check_wheel.py).
#pragma once

#include <Python.h>
#include <torch/csrc/Exceptions.h>

#include <cstdint>
#include <utility>

#include "record.h"

namespace headrace {

// The functions that a file adds to the module; each list ends with an entry of nulls.
extern PyMethodDef counter_functions[];        // counters.cpp
extern PyMethodDef custom_kernel_functions[];  // custom_kernel.cpp
extern PyMethodDef distributed_functions[];    // distributed.cpp
extern PyMethodDef dlpack_functions[];         // dlpack.cpp
extern PyMethodDef elementwise_functions[];    // elementwise_call.cpp
extern PyMethodDef exchange_functions[];       // exchange.cpp
extern PyMethodDef graph_functions[];          // function.cpp
extern PyMethodDef memory_history_functions[]; // memory_history.cpp
extern PyMethodDef optimizer_functions[];      // optim.cpp
extern PyMethodDef profiler_functions[];       // profiler.cpp
extern PyMethodDef stream_graph_functions[];   // stream_graph.cpp

// Releases the interpreter's lock for its lifetime.
class Unlocked {
public:
  Unlocked() : state_(PyEval_SaveThread()) {}
  Unlocked(const Unlocked &) = delete;
  ~Unlocked() {
    PyEval_RestoreThread(state_);
  }

private:
  PyThreadState *state_;
};

// Runs `body`, which returns a new reference; an exception becomes Python's.
template <class Body> PyObject *answer(Body &&body) {
  HANDLE_TH_ERRORS
  return std::forward<Body>(body)();
  END_HANDLE_TH_ERRORS
}

// The same for functions without a result, run without the interpreter's lock.
template <class Body> PyObject *perform(Body &&body) {
  HANDLE_TH_ERRORS {
    Unlocked unlocked;
    std::forward<Body>(body)();
  }
  Py_RETURN_NONE;
  END_HANDLE_TH_ERRORS
}

// Throws if the interpreter has set an exception.
inline PyObject *checked(PyObject *object) {
  if (object == nullptr)
    throw python_error();
  return object;
}
// Appends a new reference, which it takes.
inline void append_new(PyObject *list, PyObject *entry) {
  int failed = PyList_Append(list, checked(entry));
  Py_DECREF(entry);
  if (failed != 0)
    throw python_error();
}
template <class... T> void parse(PyObject *arguments, const char *format, T *...places) {
  if (PyArg_ParseTuple(arguments, format, places...) == 0)
    throw python_error();
}

// The device named by an argument: torch.device, text or number; the current one for None and negative numbers.
c10::DeviceIndex device_argument(PyObject *argument);
// The same for a function's only argument, which may be missing.
c10::DeviceIndex only_device_argument(PyObject *arguments);

inline PyCFunction fast_function(PyObject *(*function)(PyObject *, PyObject *const *, Py_ssize_t)) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
}

} // namespace headrace
