// stats.cpp: counters of devices and streams for the Python package (headrace._C), as dictionaries by name; and the
// setting for operators without a row.
#include <algorithm>
#include <vector>

#include "device.h"
#include "extension.h"
#include "fallback.h"

namespace headrace {
namespace {

void put(PyObject *dictionary, const char *name, int64_t value) {
  PyObject *number = checked(PyLong_FromLongLong(value));
  int failed = PyDict_SetItemString(dictionary, name, number);
  Py_DECREF(number);
  if (failed != 0)
    throw python_error();
}

// The core's counters by their names, including those newer than this header.
template <class Struct, class Read> PyObject *counters(const char *(*name_of)(int), Read &&read) {
  int count = 0;
  while (name_of(count) != nullptr)
    ++count;
  std::vector<int64_t> values(std::max(static_cast<size_t>(count), sizeof(Struct) / sizeof(int64_t)), 0);
  read(values.size() * sizeof(int64_t), reinterpret_cast<Struct *>(values.data()));
  PyObject *dictionary = checked(PyDict_New());
  for (int i = 0; i < count; ++i)
    put(dictionary, name_of(i), values[static_cast<size_t>(i)]);
  return dictionary;
}

PyObject *stream_stats(PyObject *, PyObject *arguments) {
  return answer([&] {
    hr_stream *stream = stream_of(only_device_argument(arguments));
    PyObject *dictionary = counters<hr_stats>(
        &hr_stream_stat_name, [&](size_t bytes, hr_stats *out) { hr_stream_stats_read(stream, bytes, out); });
    GraphCounts graphs = graph_counts();
    put(dictionary, "graph_captures", graphs.captures);
    put(dictionary, "graph_runs", graphs.runs);
    return dictionary;
  });
}

PyObject *memory_stats(PyObject *, PyObject *arguments) {
  return answer([&] {
    hr_device *device = device_of(only_device_argument(arguments));
    return counters<hr_memory_stats>(&hr_memory_stat_name, [&](size_t bytes, hr_memory_stats *out) {
      hr_device_memory_stats_read(device, bytes, out);
    });
  });
}

PyObject *reset_stats(PyObject *, PyObject *arguments) {
  return answer([&] {
    hr_stream_reset_stats(stream_of(only_device_argument(arguments)));
    reset_graph_counts();
    reset_fallback_counts();
    Py_RETURN_NONE;
  });
}

PyObject *fallbacks(PyObject *, PyObject *) {
  return answer([] {
    PyObject *dictionary = checked(PyDict_New());
    for (const auto &[name, count] : fallback_counts())
      put(dictionary, name.c_str(), count);
    return dictionary;
  });
}

PyObject *set_fallback(PyObject *, PyObject *arguments) {
  return answer([&] {
    int mode = 0;
    parse(arguments, "i", &mode);
    set_fallback_mode(static_cast<FallbackMode>(mode));
    Py_RETURN_NONE;
  });
}

PyObject *fallback(PyObject *, PyObject *) {
  return PyLong_FromLong(static_cast<long>(fallback_mode()));
}

} // namespace

PyMethodDef counter_functions[] = {
    {"stats", stream_stats, METH_VARARGS, "What a device's stream counted, by name."},
    {"reset_stats", reset_stats, METH_VARARGS, "Lets these counts start from 0."},
    {"memory_stats", memory_stats, METH_VARARGS, "A device's memory, by name."},
    {"fallbacks", fallbacks, METH_NOARGS, "How often each operator ran on the host, by name."},
    {"set_fallback", set_fallback, METH_VARARGS, "What becomes of operators without a row, by its number."},
    {"fallback", fallback, METH_NOARGS, "The number of that."},
    {nullptr, nullptr, 0, nullptr}};

} // namespace headrace
