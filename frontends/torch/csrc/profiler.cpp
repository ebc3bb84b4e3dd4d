// profiler.cpp: the core's profiles (headrace/profile.h) for torch.headrace.profiler. One at a time is started from
// Python; it stays until the next start, so that it can be exported after its stop.
#include <headrace/profile.h>

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

} // namespace

PyMethodDef profiler_functions[] = {
    {"profiler_start", profiler_start, METH_VARARGS, "Starts recording what runs; True adds each operation."},
    {"profiler_stop", profiler_stop, METH_NOARGS, "Waits for all devices and stops recording."},
    {"profiler_export", profiler_export, METH_VARARGS, "Writes a timeline of what was recorded."},
    {"profiler_tables", profiler_tables, METH_NOARGS, "Sums of what was recorded, as text."},
    {"profile_report", profile_report, METH_NOARGS, "Writes what HEADRACE_PROFILE and HEADRACE_TRACE request."},
    {nullptr, nullptr, 0, nullptr}};

} // namespace headrace
