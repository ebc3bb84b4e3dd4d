// memory_history.cpp: what happened to a device's memory, for torch.headrace.memory._record_memory_history.
//
// The core tells of each block that is used or freed (hr_device_memory_observe). Tensors get memory late, at a commit,
// so that the stack of that moment says little: a block has the Python stack that created the tensor.
//
// Threads: any. The observer holds the device's memory locked and takes the lock of this file alone.
#include "memory_history.h"

#include <headrace/memory.h>
#include <headrace/profile.h>
#include <torch/csrc/profiler/combined_traceback.h>

#include <array>
#include <chrono>
#include <deque>
#include <mutex>
#include <unordered_map>

#include "device.h"
#include "extension.h"

namespace headrace {

std::atomic<bool> history_is_kept{false};

namespace {

using Stack = std::shared_ptr<torch::CapturedTraceback>;

struct Event {
  hr_memory_action action;
  uint64_t address;
  size_t bytes;
  int64_t us; // of the time of day
  Stack stack;
};

struct History {
  std::mutex mutex;
  bool has_stacks = true, has_events = true;
  size_t events_max = 0;
  int64_t clock_offset_ns = 0;
  std::array<std::deque<Event>, kDevicesMax> events;
  std::array<std::unordered_map<uint64_t, Stack>, kDevicesMax> blocks; // in use, by address
  std::unordered_map<const void *, Stack> creations;                   // of buffers, by handle
};

History &history() {
  static auto *history = new History;
  return *history;
}

Stack gather() {
  bool wanted = false;
  {
    std::lock_guard<std::mutex> lock(history().mutex);
    wanted = history().has_stacks;
  }
  return wanted ? torch::CapturedTraceback::gather(/*python=*/true, /*script=*/false, /*cpp=*/false) : nullptr;
}

// The block's buffer is known: its stack belongs to the last event of that address.
void note_owner(size_t index, const hr_memory_event &event) {
  History &h = history();
  auto found = h.creations.find(event.handle);
  if (found == h.creations.end())
    return;
  h.blocks[index][reinterpret_cast<uint64_t>(event.address)] = found->second;
  for (auto last = h.events[index].rbegin(); last != h.events[index].rend(); ++last)
    if (last->address == reinterpret_cast<uint64_t>(event.address)) {
      last->stack = found->second;
      return;
    }
}

// The device's memory is locked.
void observe(void *arg, const hr_memory_event *event) {
  size_t index = reinterpret_cast<size_t>(arg);
  History &h = history();
  std::lock_guard<std::mutex> lock(h.mutex);
  if (event->action == HR_MEMORY_OWNED) {
    note_owner(index, *event);
    return;
  }
  auto address = reinterpret_cast<uint64_t>(event->address);
  Stack stack;
  if (event->action == HR_MEMORY_FREED) {
    auto block = h.blocks[index].find(address);
    if (block != h.blocks[index].end()) {
      stack = std::move(block->second);
      h.blocks[index].erase(block);
    }
  }
  if (!h.has_events || h.events_max == 0)
    return;
  if (h.events[index].size() >= h.events_max)
    h.events[index].pop_front();
  h.events[index].push_back(
      {event->action, address, event->bytes, (event->ns + h.clock_offset_ns) / 1000, std::move(stack)});
}

int64_t clock_offset_ns() {
  auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count() - hr_profile_clock_ns();
}

void observe_all(bool wanted) {
  for (size_t index = 0; index < kDevicesMax; ++index)
    if (is_open(static_cast<c10::DeviceIndex>(index)))
      hr_device_memory_observe(device_of(static_cast<c10::DeviceIndex>(index)), wanted ? &observe : nullptr,
                               reinterpret_cast<void *>(index));
}

void clear_history() {
  for (auto &events : history().events)
    events.clear();
  for (auto &blocks : history().blocks)
    blocks.clear();
  history().creations.clear();
}

void configure(bool has_events, bool has_stacks, size_t events_max, bool clear) {
  std::lock_guard<std::mutex> lock(history().mutex);
  if (clear)
    clear_history();
  history().has_events = has_events;
  history().has_stacks = has_stacks;
  history().events_max = events_max;
  history().clock_offset_ns = clock_offset_ns();
}

// keep_memory_history(is_kept, has_events, has_stacks, events_max, clear)
PyObject *keep_history(PyObject *, PyObject *arguments) {
  return answer([&] {
    int is_kept = 0, has_events = 0, has_stacks = 0, clear = 0;
    unsigned long long most = 0;
    parse(arguments, "pppKp", &is_kept, &has_events, &has_stacks, &most, &clear);
    {
      Unlocked unlocked;
      stream(); // opens the current device
      observe_all(false);
      configure(has_events != 0, has_stacks != 0, static_cast<size_t>(most), clear != 0);
      history_is_kept.store(is_kept != 0);
      observe_all(is_kept != 0);
    }
    Py_RETURN_NONE;
  });
}

// Frames of stacks, each different stack once.
class Frames {
public:
  PyObject *place(const Stack &stack) { // a new reference: the stack's number, or None
    if (stack == nullptr)
      Py_RETURN_NONE;
    auto [found, is_new] = numbers_.try_emplace(stack.get(), stacks_.size());
    if (is_new)
      stacks_.push_back(stack);
    return checked(PyLong_FromSize_t(found->second));
  }
  PyObject *list() {
    std::vector<torch::CapturedTraceback *> pointers;
    for (const Stack &stack : stacks_)
      pointers.push_back(stack.get());
    torch::SymbolizedTracebacks symbols = torch::symbolize(pointers);
    PyObject *list = checked(PyList_New(0));
    for (const std::vector<uint64_t> &stack : symbols.tracebacks) {
      PyObject *frames = checked(PyList_New(0));
      for (uint64_t number : stack) {
        const auto &frame = symbols.all_frames.at(number);
        append_new(frames,
                   Py_BuildValue("{s:s,s:K,s:s}", "filename", frame.filename.c_str(), "line",
                                 static_cast<unsigned long long>(frame.lineno), "name", frame.funcname.c_str()));
      }
      append_new(list, frames);
    }
    return list;
  }

private:
  std::unordered_map<torch::CapturedTraceback *, size_t> numbers_;
  std::vector<Stack> stacks_;
};

// ([(action, address, bytes, us, stack or None)], {address: stack}, [frames of each stack])
PyObject *read_history(PyObject *, PyObject *arguments) {
  return answer([&] {
    auto index = static_cast<size_t>(only_device_argument(arguments));
    std::vector<Event> events;
    std::unordered_map<uint64_t, Stack> blocks;
    {
      std::lock_guard<std::mutex> lock(history().mutex);
      events.assign(history().events[index].begin(), history().events[index].end());
      blocks = history().blocks[index];
    }
    Frames frames;
    PyObject *list = checked(PyList_New(0)), *places = checked(PyDict_New());
    for (const Event &event : events)
      append_new(list,
                 Py_BuildValue("iKKLN", static_cast<int>(event.action), static_cast<unsigned long long>(event.address),
                               static_cast<unsigned long long>(event.bytes), static_cast<long long>(event.us),
                               frames.place(event.stack)));
    for (const auto &[address, stack] : blocks) {
      PyObject *key = checked(PyLong_FromUnsignedLongLong(address)), *place = frames.place(stack);
      int failed = PyDict_SetItem(places, key, place);
      Py_DECREF(key);
      Py_DECREF(place);
      if (failed != 0)
        throw python_error();
    }
    return checked(Py_BuildValue("NNN", list, places, frames.list()));
  });
}

} // namespace

void note_creation(hr_buffer *buffer) {
  Stack stack = gather();
  if (stack == nullptr)
    return;
  std::lock_guard<std::mutex> lock(history().mutex);
  history().creations[hr_buffer_handle(buffer)] = std::move(stack);
}

void forget_creation(hr_buffer *buffer) {
  Stack stack; // ends after the lock
  std::lock_guard<std::mutex> lock(history().mutex);
  auto found = history().creations.find(hr_buffer_handle(buffer));
  if (found != history().creations.end()) {
    stack = std::move(found->second);
    history().creations.erase(found);
  }
}

PyMethodDef memory_history_functions[] = {
    {"keep_memory_history", keep_history, METH_VARARGS,
     "keep_memory_history(is_kept, has_events, has_stacks, events_max, clear): of the devices that are open."},
    {"memory_history", read_history, METH_VARARGS,
     "A device's events, the stacks of its blocks by address, and the frames of these stacks."},
    {nullptr, nullptr, 0, nullptr}};

} // namespace headrace
