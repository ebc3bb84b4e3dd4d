#include "interrupt.h"

#include <Python.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <memory>
#include <utility>

#include "transport.h"

namespace headrace {

namespace {

thread_local std::unique_ptr<python_error> raised;

bool is_main_thread() {
  return syscall(SYS_gettid) == getpid();
}

bool handler_raises(void *) {
  if (!is_main_thread() || !Py_IsInitialized())
    return false;
  pybind11::gil_scoped_acquire locked;
  if (PyErr_Occurred() != nullptr || PyErr_CheckSignals() == 0)
    return false;
  raised = std::make_unique<python_error>();
  raised->persist();
  stop_transports_in_use("a rank was interrupted");
  return true;
}

} // namespace

void watch_signals(hr_stream *stream) {
  hr_stream_set_interrupt_check(stream, &handler_raises, nullptr);
}

void rethrow_raised() {
  if (raised == nullptr)
    return;
  python_error error = std::move(*raised);
  raised.reset();
  throw error;
}

} // namespace headrace
