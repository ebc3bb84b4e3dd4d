// module.cpp: the extension module headrace._C: devices, streams, memory and random numbers for the Python package. A
// device argument is a torch.device, its name, a number, or None for the current one.
#include <torch/csrc/Device.h>
#include <torch/csrc/Generator.h>
#include <torch/csrc/utils/python_strings.h>

#include <algorithm>

#include "device.h"
#include "extension.h"

namespace headrace {

// ---- arguments

static c10::DeviceIndex index_of_device(const c10::Device &device) {
  TORCH_CHECK_VALUE(device.type() == c10::DeviceType::PrivateUse1,
                    "Expected a headrace device, but got: ", device.str());
  return index_of(device.index());
}

c10::DeviceIndex device_argument(PyObject *argument) {
  if (argument == nullptr || argument == Py_None)
    return here_index();
  if (THPDevice_Check(argument))
    return index_of_device(reinterpret_cast<THPDevice *>(argument)->device);
  if (THPUtils_checkString(argument))
    return index_of_device(c10::Device(THPUtils_unpackString(argument)));
  long long number = PyLong_AsLongLong(argument);
  if (number == -1 && PyErr_Occurred() != nullptr)
    throw python_error();
  return index_of(static_cast<c10::DeviceIndex>(std::clamp<long long>(number, -1, 127)));
}

c10::DeviceIndex only_device_argument(PyObject *arguments) {
  PyObject *device = nullptr;
  parse(arguments, "|O", &device);
  return device_argument(device);
}

namespace {

// ---- devices

PyObject *name_devices(PyObject *, PyObject *arguments) {
  return answer([&] {
    const char *name = nullptr;
    parse(arguments, "s", &name);
    set_device_name(name);
    Py_RETURN_NONE;
  });
}

PyObject *open(PyObject *, PyObject *) {
  return perform([] { stream(); });
}

// Any of them without an argument.
PyObject *is_open_somewhere(PyObject *, PyObject *arguments) {
  return answer([&] {
    int index = -1;
    parse(arguments, "|i", &index);
    bool is = index < 0 ? is_open() : index < kDevicesMax && is_open(static_cast<c10::DeviceIndex>(index));
    return PyBool_FromLong(is);
  });
}

PyObject *is_in_bad_fork(PyObject *, PyObject *) {
  return PyBool_FromLong(is_forked());
}

PyObject *device_count(PyObject *, PyObject *) {
  return answer([] { return PyLong_FromLong(count_devices()); });
}

PyObject *current_device(PyObject *, PyObject *) {
  return PyLong_FromLong(here_index());
}

// Like exchange_device, but for any form of a device. Returns its number.
PyObject *device_index(PyObject *, PyObject *arguments) {
  return answer([&] { return PyLong_FromLong(only_device_argument(arguments)); });
}

// Returns the number of the previous device; a negative number changes nothing.
PyObject *exchange_device(PyObject *, PyObject *arguments) {
  return answer([&] {
    c10::DeviceIndex wanted = only_device_argument(arguments);
    return PyLong_FromLong(exchange_index(wanted));
  });
}

PyObject *describe_device(PyObject *, PyObject *arguments) {
  return answer([&] {
    hr_device_info info;
    hr_device_describe(device_of(only_device_argument(arguments)), &info);
    return Py_BuildValue("{s:s,s:s,s:i,s:i,s:L,s:O}", "kind", info.driver, "name", info.description, "ordinal",
                         info.ordinal, "multi_processor_count", info.workers, "total_memory",
                         static_cast<long long>(info.total_bytes), "is_host", info.is_host ? Py_True : Py_False);
  });
}

// ---- streams

PyObject *current_stream(PyObject *, PyObject *arguments) {
  return answer([&] { return PyLong_FromLongLong(current_stream_id(only_device_argument(arguments))); });
}

PyObject *set_current_stream(PyObject *, PyObject *arguments) {
  return answer([&] {
    PyObject *device = nullptr;
    long long id = 0;
    parse(arguments, "OL", &device, &id);
    exchange_stream_id(device_argument(device), id);
    Py_RETURN_NONE;
  });
}

PyObject *commit(PyObject *, PyObject *) {
  return perform([] { check(hr_stream_commit(stream())); });
}

// Small steps wait after each call, so this one parses its argument without a Python function in front of it.
PyObject *synchronize(PyObject *, PyObject *const *arguments, Py_ssize_t count, PyObject *names) {
  return answer([&]() -> PyObject * {
    Py_ssize_t named = names != nullptr ? PyTuple_Size(names) : 0;
    bool fits = count + named <= 1;
    if (fits && named == 1)
      fits = PyUnicode_CompareWithASCIIString(PyTuple_GetItem(names, 0), "device") == 0;
    if (!fits) {
      PyErr_SetString(PyExc_TypeError, "synchronize() takes at most one argument: device");
      return nullptr;
    }
    c10::DeviceIndex index = device_argument(count + named == 1 ? arguments[0] : nullptr);
    if (is_open()) {
      Unlocked unlocked;
      stream_of(index); // opens the device
      wait_for_device(index);
    }
    Py_RETURN_NONE;
  });
}

PyObject *synchronize_all(PyObject *, PyObject *) {
  return perform([] { wait_for_all(); });
}

PyObject *set_stream_mode(PyObject *, PyObject *arguments) {
  return answer([&] {
    int mode = 0;
    parse(arguments, "i", &mode);
    {
      Unlocked unlocked;
      set_mode(static_cast<hr_mode>(mode));
    }
    Py_RETURN_NONE;
  });
}

PyObject *stream_mode(PyObject *, PyObject *) {
  return answer([] { return PyLong_FromLong(hr_stream_mode(stream())); });
}

// ---- memory

PyObject *reset_peak_memory(PyObject *, PyObject *arguments) {
  return answer([&] {
    hr_device_memory_reset_peak(device_of(only_device_argument(arguments)));
    Py_RETURN_NONE;
  });
}

PyObject *limit_memory(PyObject *, PyObject *arguments) {
  return answer([&] {
    PyObject *device = nullptr;
    long long bytes = 0;
    parse(arguments, "OL", &device, &bytes);
    hr_device_memory_limit(device_of(device_argument(device)), bytes);
    Py_RETURN_NONE;
  });
}

PyObject *trim_memory(PyObject *, PyObject *) {
  return perform([] { device_allocator()->emptyCache({0, 0}); });
}

// ---- random numbers

PyObject *seed(PyObject *, PyObject *arguments) {
  return answer([&] {
    PyObject *device = nullptr;
    unsigned long long seed = 0;
    parse(arguments, "OK", &device, &seed);
    at::Generator generator = default_generator(device_argument(device));
    std::lock_guard<std::mutex> lock(generator.mutex());
    generator.unsafeGetGeneratorImpl()->set_current_seed(seed);
    Py_RETURN_NONE;
  });
}

// Seed and offset.
PyObject *random_state(PyObject *, PyObject *arguments) {
  return answer([&] {
    at::Generator generator = default_generator(only_device_argument(arguments));
    std::lock_guard<std::mutex> lock(generator.mutex());
    return Py_BuildValue("KK", static_cast<unsigned long long>(generator.current_seed()),
                         static_cast<unsigned long long>(generator.get_offset()));
  });
}

PyObject *set_random_state(PyObject *, PyObject *arguments) {
  return answer([&] {
    PyObject *device = nullptr;
    unsigned long long seed = 0, offset = 0;
    parse(arguments, "OKK", &device, &seed, &offset);
    at::Generator generator = default_generator(device_argument(device));
    std::lock_guard<std::mutex> lock(generator.mutex());
    generator.unsafeGetGeneratorImpl()->set_current_seed(seed);
    generator.unsafeGetGeneratorImpl()->set_offset(offset);
    Py_RETURN_NONE;
  });
}

PyObject *get_default_generator(PyObject *, PyObject *arguments) {
  return answer([&] { return THPGenerator_Wrap(default_generator(only_device_argument(arguments))); });
}

PyMethodDef functions[] = {
    {"name_devices", name_devices, METH_VARARGS, "The driver, or the one device of it, that the device stands for."},
    {"open", open, METH_NOARGS, "Opens the current device."},
    {"is_open", is_open_somewhere, METH_VARARGS, "True if a device is open, or the one of this number."},
    {"is_in_bad_fork", is_in_bad_fork, METH_NOARGS, "True in a child of a process that had opened a device."},
    {"device_count", device_count, METH_NOARGS, "How many devices there are."},
    {"current_device", current_device, METH_NOARGS, "The number of this thread's current device."},
    {"device_index", device_index, METH_VARARGS, "The number of a device."},
    {"exchange_device", exchange_device, METH_VARARGS,
     "Changes the current device; gives the number of the one before."},
    {"describe_device", describe_device, METH_VARARGS, "A device's properties by name."},
    {"current_stream", current_stream, METH_VARARGS, "The number of a device's current stream."},
    {"set_current_stream", set_current_stream, METH_VARARGS, "Changes it."},
    {"commit", commit, METH_NOARGS, "Hands everything recorded to the device, without waiting."},
    {"synchronize", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(&synchronize)),
     METH_FASTCALL | METH_KEYWORDS,
     "synchronize(device=None)\n--\n\nWaits until everything recorded has run; raises the first error of that work."},
    {"synchronize_all", synchronize_all, METH_NOARGS, "The same for all devices."},
    {"set_mode", set_stream_mode, METH_VARARGS, "The mode of all streams, by its number."},
    {"mode", stream_mode, METH_NOARGS, "The number of the current stream's mode."},
    {"reset_peak_memory", reset_peak_memory, METH_VARARGS, "Lets the peaks of memory start from what is in use."},
    {"limit_memory", limit_memory, METH_VARARGS, "Limits what a device reserves, in bytes; 0: no limit."},
    {"trim_memory", trim_memory, METH_NOARGS, "Returns what is reserved and not used."},
    {"seed", seed, METH_VARARGS, "Seeds a device's default generator."},
    {"default_generator", get_default_generator, METH_VARARGS, "A device's default generator."},
    {"random_state", random_state, METH_VARARGS, "Seed and offset of a device's default generator."},
    {"set_random_state", set_random_state, METH_VARARGS, "Changes them."},
    {nullptr, nullptr, 0, nullptr}};

PyModuleDef definition = {PyModuleDef_HEAD_INIT,
                          "headrace._C",
                          "The device for the Python package; torch.headrace is the interface for programs.",
                          -1,
                          functions,
                          nullptr,
                          nullptr,
                          nullptr,
                          nullptr};

} // namespace
} // namespace headrace

PyMODINIT_FUNC PyInit__C() {
  PyObject *module = PyModule_Create(&headrace::definition);
  (void)Py_AtExit(hr_libraries_wait);
  for (PyMethodDef *more :
       {headrace::counter_functions, headrace::custom_kernel_functions, headrace::distributed_functions,
        headrace::dlpack_functions, headrace::elementwise_functions, headrace::exchange_functions,
        headrace::graph_functions, headrace::memory_history_functions, headrace::optimizer_functions,
        headrace::profiler_functions, headrace::stream_graph_functions})
    if (module != nullptr && PyModule_AddFunctions(module, more) != 0) {
      Py_DECREF(module);
      return nullptr;
    }
  return module;
}
