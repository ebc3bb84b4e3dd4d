// profiler.cpp: the core's profiles (headrace/profile.h) for torch.headrace.profiler. One at a time is started from
// Python; it stays until the next start, so that it can be exported after its stop.
#include <headrace/profile.h>

#include <torch/csrc/profiler/stubs/base.h>

#include <atomic>
#include <mutex>
#include <string>

#include "device.h"
#include "extension.h"

namespace headrace {
namespace {

struct Profiler {
  std::mutex mutex;
  hr_profile *profile = nullptr; // NULL: none was started yet
  bool is_started = false;
};

// Never destroyed: a program may exit while it profiles.
Profiler &profiler() {
  static Profiler *profiler = new Profiler;
  return *profiler;
}

void check_not_forked() {
  TORCH_CHECK(!is_forked(), "headrace: a forked process can't profile a device that its parent had opened");
}

void start_profile(unsigned flags) {
  check_not_forked();
  std::lock_guard<std::mutex> lock(profiler().mutex);
  TORCH_CHECK(!profiler().is_started, "headrace: the profiler was started already; stop it first");
  wait_for_all(); // what was issued before doesn't belong to it
  hr_profile *profile = nullptr;
  check(hr_profile_create(nullptr, 0, flags, &profile));
  if (hr_status status = hr_profile_start(profile)) {
    hr_profile_release(profile);
    check(status);
  }
  hr_profile_release(profiler().profile);
  profiler().profile = profile;
  profiler().is_started = true;
}

void stop_profile() {
  check_not_forked();
  std::lock_guard<std::mutex> lock(profiler().mutex);
  TORCH_CHECK(profiler().is_started, "headrace: the profiler is not started, so it can't stop");
  profiler().is_started = false;
  try {
    wait_for_all();
  } catch (...) { // an error of the profiled work is raised, and the profile has stopped
    hr_status_ignore(hr_profile_stop(profiler().profile));
    throw;
  }
  check(hr_profile_stop(profiler().profile));
}

// The profile, locked; an error if none was started.
template <class Body> void with_profile(Body &&body) {
  std::lock_guard<std::mutex> lock(profiler().mutex);
  TORCH_CHECK(profiler().profile != nullptr, "headrace: nothing was profiled yet; start the profiler first");
  if (profiler().is_started)
    wait_for_all();
  body(profiler().profile);
}

PyObject *profiler_start(PyObject *, PyObject *arguments) {
  return answer([&] {
    int has_points = 0;
    parse(arguments, "p", &has_points);
    {
      Unlocked unlocked;
      start_profile(has_points != 0 ? HR_PROFILE_OPERATIONS : 0);
    }
    Py_RETURN_NONE;
  });
}

PyObject *profiler_stop(PyObject *, PyObject *) {
  return perform([] { stop_profile(); });
}

PyObject *profiler_export(PyObject *, PyObject *arguments) {
  return answer([&] {
    const char *path = nullptr;
    parse(arguments, "s", &path);
    {
      Unlocked unlocked;
      with_profile([&](hr_profile *profile) { check(hr_profile_write_trace(profile, path)); });
    }
    Py_RETURN_NONE;
  });
}

PyObject *profiler_tables(PyObject *, PyObject *) {
  return answer([] {
    std::string text;
    {
      Unlocked unlocked;
      with_profile([&](hr_profile *profile) {
        check(hr_profile_tables(
            profile, HR_TABLES_ALL, [](void *to, const char *part) { *static_cast<std::string *>(to) += part; },
            &text));
      });
    }
    return checked(PyUnicode_FromStringAndSize(text.data(), static_cast<Py_ssize_t>(text.size())));
  });
}

PyObject *profile_report(PyObject *, PyObject *) {
  return perform([] { hr_profile_report(); });
}

// ---- torch.autograd.profiler.emit_nvtx

// torch's ranges of operators go to what CUDA's part of torch has registered. A torch without it has nothing there, and
// gets the core's ranges.
struct Ranges final : torch::profiler::impl::ProfilerStubs {
  void record(c10::DeviceIndex *, torch::profiler::impl::ProfilerVoidEventStub *, int64_t *) const override {
    TORCH_CHECK(false, "events of CUDA: this torch is built without CUDA");
  }
  float elapsed(const torch::profiler::impl::ProfilerVoidEventStub *,
                const torch::profiler::impl::ProfilerVoidEventStub *) const override {
    TORCH_CHECK(false, "events of CUDA: this torch is built without CUDA");
  }
  void mark(const char *name) const override {
    rangePush(name);
    rangePop();
  }
  void rangePush(const char *name) const override {
    hr_range_push(name);
  }
  void rangePop() const override {
    hr_range_pop();
  }
  bool enabled() const override {
    return is_on;
  }
  void onEachDevice(std::function<void(int)>) const override {}
  void synchronize() const override {}

  std::atomic<bool> is_on{false}; // only within emit_nvtx: else torch takes it for a sign of CUDA
};

// True if a profiler takes ranges. They are on until they are turned off.
PyObject *ranges_turn(PyObject *, PyObject *arguments) {
  return answer([&] {
    static Ranges ranges;
    int is_on = 0;
    parse(arguments, "p", &is_on);
    const auto *registered = torch::profiler::impl::cudaStubs();
    if (is_on != 0 && registered != &ranges && !registered->enabled())
      torch::profiler::impl::registerCUDAMethods(&ranges);
    ranges.is_on = is_on != 0;
    return PyBool_FromLong(hr_range_is_on());
  });
}

} // namespace

PyMethodDef profiler_functions[] = {
    {"profiler_start", profiler_start, METH_VARARGS, "Starts recording what runs; True adds each operation."},
    {"profiler_stop", profiler_stop, METH_NOARGS, "Waits for all devices and stops recording."},
    {"profiler_export", profiler_export, METH_VARARGS, "Writes a timeline of what was recorded."},
    {"profiler_tables", profiler_tables, METH_NOARGS, "Sums of what was recorded, as text."},
    {"ranges_turn", ranges_turn, METH_VARARGS, "Passes torch's ranges for NVTX on, or ends that; True if one listens."},
    {"profile_report", profile_report, METH_NOARGS, "Writes what HEADRACE_PROFILE and HEADRACE_TRACE request."},
    {nullptr, nullptr, 0, nullptr}};

} // namespace headrace
