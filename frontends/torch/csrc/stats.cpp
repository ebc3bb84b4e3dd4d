// stats.cpp: counters of devices and streams for the Python package (headrace._C), as dictionaries by name; and the
// setting for operators without a row.
#include <algorithm>
#include <string>
#include <vector>

#include "device.h"
#include "extension.h"
#include "fallback.h"
#include "headrace/memory.h"

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

// Counters of the process, which each stream repeats.
bool is_of_process(const std::string &name) {
  return name.rfind("jit_", 0) == 0 || name == "library_make_ns" || name == "library_wait_ns" ||
         name == "cached_weights_bytes";
}

// The sum over the device's streams; of the bytes of temporaries, which they share, the maximum.
void read_stats(c10::DeviceIndex index, size_t bytes, hr_stats *out) {
  std::vector<int64_t> one(bytes / sizeof(int64_t), 0);
  auto *sums = reinterpret_cast<int64_t *>(out);
  for_each_stream(index, [&](hr_stream *stream) {
    hr_stream_stats_read(stream, bytes, reinterpret_cast<hr_stats *>(one.data()));
    for (int i = 0; hr_stream_stat_name(i) != nullptr && i < static_cast<int>(one.size()); ++i) {
      std::string name = hr_stream_stat_name(i);
      if (is_of_process(name) || name == "temporary_bytes")
        sums[i] = std::max(sums[i], one[i]);
      else
        sums[i] += one[i];
    }
  });
}

PyObject *stream_stats(PyObject *, PyObject *arguments) {
  return answer([&] {
    c10::DeviceIndex index = only_device_argument(arguments);
    stream_of(index); // opens the device
    PyObject *dictionary =
        counters<hr_stats>(&hr_stream_stat_name, [&](size_t bytes, hr_stats *out) { read_stats(index, bytes, out); });
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

// ---- torch's names of memory statistics

void put_stat(PyObject *dictionary, const std::string &name, const c10::CachingAllocator::Stat &stat) {
  put(dictionary, (name + ".current").c_str(), stat.current);
  put(dictionary, (name + ".peak").c_str(), stat.peak);
  put(dictionary, (name + ".allocated").c_str(), stat.allocated);
  put(dictionary, (name + ".freed").c_str(), stat.freed);
}

void put_pools(PyObject *dictionary, const std::string &name, const c10::CachingAllocator::StatArray &stats) {
  static const char *const pools[] = {".all", ".small_pool", ".large_pool"};
  for (size_t pool = 0; pool < stats.size(); ++pool)
    put_stat(dictionary, name + pools[pool], stats[pool]);
}

PyObject *torch_memory_stats(PyObject *, PyObject *arguments) {
  return answer([&] {
    auto stats = device_allocator()->getDeviceStats(only_device_argument(arguments));
    PyObject *dictionary = checked(PyDict_New());
    put_pools(dictionary, "allocation", stats.allocation);
    put_pools(dictionary, "segment", stats.segment);
    put_pools(dictionary, "active", stats.active);
    put_pools(dictionary, "inactive_split", stats.inactive_split);
    put_pools(dictionary, "allocated_bytes", stats.allocated_bytes);
    put_pools(dictionary, "reserved_bytes", stats.reserved_bytes);
    put_pools(dictionary, "active_bytes", stats.active_bytes);
    put_pools(dictionary, "inactive_split_bytes", stats.inactive_split_bytes);
    put_pools(dictionary, "requested_bytes", stats.requested_bytes);
    put_stat(dictionary, "oversize_allocations", stats.oversize_allocations);
    put_stat(dictionary, "oversize_segments", stats.oversize_segments);
    put(dictionary, "num_alloc_retries", stats.num_alloc_retries);
    put(dictionary, "num_ooms", stats.num_ooms);
    put(dictionary, "num_sync_all_streams", stats.num_sync_all_streams);
    put(dictionary, "num_device_alloc", stats.num_device_alloc);
    put(dictionary, "num_device_free", stats.num_device_free);
    put(dictionary, "max_split_size", stats.max_split_size);
    return dictionary;
  });
}

PyObject *reset_memory_totals(PyObject *, PyObject *arguments) {
  return answer([&] {
    device_allocator()->resetAccumulatedStats(only_device_argument(arguments));
    Py_RETURN_NONE;
  });
}

// ---- the blocks of a device's memory

// A list of (segment, its bytes, address, bytes, requested bytes or 0, is_small).
PyObject *memory_blocks(PyObject *, PyObject *arguments) {
  return answer([&] {
    std::vector<hr_memory_block> blocks;
    hr_device *device = device_of(only_device_argument(arguments));
    hr_device_memory_walk(
        device,
        [](void *arg, const hr_memory_block *block) {
          static_cast<std::vector<hr_memory_block> *>(arg)->push_back(*block);
        },
        &blocks);
    PyObject *list = checked(PyList_New(0));
    for (const hr_memory_block &block : blocks) {
      append_new(list,
                 Py_BuildValue("KKKKKi", reinterpret_cast<unsigned long long>(block.segment),
                               static_cast<unsigned long long>(block.segment_bytes),
                               reinterpret_cast<unsigned long long>(block.address),
                               static_cast<unsigned long long>(block.bytes),
                               static_cast<unsigned long long>(block.requested), static_cast<int>(block.is_small)));
    }
    return list;
  });
}

PyObject *reset_stats(PyObject *, PyObject *arguments) {
  return answer([&] {
    c10::DeviceIndex index = only_device_argument(arguments);
    stream_of(index); // opens the device
    for_each_stream(index, &hr_stream_reset_stats);
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
    {"torch_memory_stats", torch_memory_stats, METH_VARARGS, "A device's memory, by torch's names."},
    {"reset_memory_totals", reset_memory_totals, METH_VARARGS, "Lets the sums of memory start from 0."},
    {"memory_blocks", memory_blocks, METH_VARARGS,
     "The blocks of a device's memory: (segment, its bytes, address, bytes, requested bytes or 0, is_small)."},
    {"fallbacks", fallbacks, METH_NOARGS, "How often each operator ran on the host, by name."},
    {"set_fallback", set_fallback, METH_VARARGS, "What becomes of operators without a row, by its number."},
    {"fallback", fallback, METH_NOARGS, "The number of that."},
    {nullptr, nullptr, 0, nullptr}};

} // namespace headrace
