// start.cpp: the first use of the device. Loading this library registers little: the allocator, the guard, the hooks,
// and one fallback, which calls this file. The rest waits for the first use:
//
//   kernels      (registration.h)
//   headrace._start   the Python package's changes to torch, for tensors of the device
//
// Threads: any; a thread with the interpreter's lock releases it while another thread registers.
#include <Python.h>
#include <torch/csrc/Exceptions.h>

#include <atomic>
#include <mutex>
#include <vector>

#include "device.h"
#include "registration.h"

namespace headrace {
namespace {

std::atomic<bool> started{false};

std::vector<LateLibrary> &late_libraries() {
  static auto *libraries = new std::vector<LateLibrary>;
  return *libraries;
}

void register_kernels() {
  static auto *registered = new std::vector<torch::Library>; // until the process ends
  registered->reserve(late_libraries().size());
  for (const LateLibrary &late : late_libraries()) {
    registered->emplace_back(late.kind, late.name, late.key, late.file, late.line);
    late.fill(registered->back());
  }
}

// Importing the module prepares torch, once, in the first thread that gets here.
void prepare_torch() {
  PyGILState_STATE state = PyGILState_Ensure();
  PyObject *module = PyImport_ImportModule("headrace._start");
  if (module == nullptr) {
    python_error error;
    error.persist();
    PyGILState_Release(state);
    throw error;
  }
  Py_DECREF(module);
  PyGILState_Release(state);
}

} // namespace

LateRegistration::LateRegistration(const LateLibrary &library) {
  late_libraries().push_back(library);
}

bool is_started() {
  return started.load(std::memory_order_acquire);
}

void start() {
  if (C10_LIKELY(is_started()))
    return;
  static std::once_flag once;
  std::call_once(once, &register_kernels);
  prepare_torch();
  started.store(true, std::memory_order_release);
}

} // namespace headrace
