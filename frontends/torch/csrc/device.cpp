// device.cpp: the devices and their streams, the current device, and statuses as exceptions.
#include "device.h"

#include <c10/util/Exception.h>
#include <pthread.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <utility>

#include "headrace/tuning.h"
#include "interrupt.h"

namespace headrace {

void fail(hr_status status) {
  std::string message = hr_status_message(status);
  hr_status_code code = hr_status_code_of(status);
  hr_status_free(status);
  rethrow_raised();
  switch (code) {
    case HR_STATUS_OUT_OF_RANGE:
      TORCH_CHECK_INDEX(false, message);
    case HR_STATUS_RESOURCE_EXHAUSTED:
      TORCH_CHECK_WITH(OutOfMemoryError, false, message);
    case HR_STATUS_ABORTED: // an algorithm of linear algebra did not converge
      TORCH_CHECK_LINALG(false, message);
    case HR_STATUS_UNIMPLEMENTED:
      TORCH_CHECK_NOT_IMPLEMENTED(false, message);
    default:
      TORCH_CHECK(false, message);
  }
}

// ---- opening

std::atomic<bool> has_several_devices{false}; // set before any device but the first can be chosen
std::atomic<bool> device_runs_beside{false};

namespace {

struct Opened {
  std::atomic<hr_device *> device{nullptr};
  std::atomic<hr_stream *> stream{nullptr};                     // the default one
  std::array<std::atomic<hr_stream *>, kStreamsMax - 1> pool{}; // by their ids minus 1
  std::atomic<unsigned> taken{0};                               // of the pool, ever
};

std::array<Opened, kDevicesMax> opened;
// Set before a thread's current stream can be another one than the default. Until then nothing is looked up.
std::atomic<bool> has_several_streams{false};
thread_local std::array<c10::StreamId, kDevicesMax> current_streams{};
std::atomic<bool> forked{false};
std::atomic<int> known_count{-1}; // of devices
std::atomic<bool> deterministic{false};
std::atomic<int> chosen_mode{-1}; // of all streams, once set
std::string device_name = "cpu";
thread_local c10::DeviceIndex chosen_device = 0;

std::mutex &open_mutex() {
  static std::mutex *mutex = new std::mutex;
  return *mutex;
}

// A forked child lacks the streams' threads: there nothing may be recorded, and buffers are left alone.
void mark_forked() {
  if (is_open())
    forked.store(true);
  for (Opened &one : opened) {
    one.stream.store(nullptr);
    for (auto &stream : one.pool)
      stream.store(nullptr);
  }
}

// With the settings of all streams. The caller holds the mutex.
hr_stream *make_stream(hr_device *device) {
  hr_stream *stream = nullptr;
  check(hr_stream_create(device, &stream));
  watch_signals(stream);
  if (int mode = chosen_mode.load(); mode >= 0)
    hr_stream_set_mode(stream, static_cast<hr_mode>(mode));
  check(hr_stream_set_deterministic(stream, deterministic.load()));
  return stream;
}

void open_once(c10::DeviceIndex index) {
  TORCH_CHECK(
      !forked.load(),
      "Cannot re-initialize headrace in forked subprocess. To use headrace with multiprocessing, you must use the "
      "'spawn' start method");
  start();
  count_devices();
  std::lock_guard<std::mutex> lock(open_mutex());
  if (opened[index].stream.load() != nullptr)
    return;
  std::string name = index == 0 ? device_name : device_name + ":" + std::to_string(index);
  hr_device *device = nullptr;
  hr_stream *stream = nullptr;
  check(hr_device_open(name.c_str(), &device));
  try {
    stream = make_stream(device);
  } catch (...) {
    hr_device_release(device);
    throw;
  }
  hr_stream_open_libraries(stream);
  if (!is_open()) {
    pthread_atfork(nullptr, nullptr, mark_forked);
    explain_faults();
  }
  hr_device_info info;
  hr_device_describe(device, &info);
  if (!info.is_host)
    device_runs_beside.store(true);
  opened[index].device.store(device);
  opened[index].stream.store(stream);
}

} // namespace

void set_device_name(const std::string &name) {
  std::lock_guard<std::mutex> lock(open_mutex());
  TORCH_CHECK(!is_open() || device_name == name, "the device is open already");
  device_name = name;
  known_count.store(-1);
}

bool are_of(const std::string &driver) {
  std::lock_guard<std::mutex> lock(open_mutex());
  return device_name.substr(0, device_name.find(':')) == driver;
}

int count_devices() {
  int count = known_count.load(std::memory_order_acquire);
  if (C10_LIKELY(count >= 0))
    return count;
  std::lock_guard<std::mutex> lock(open_mutex());
  hr_status status = hr_device_count(device_name.c_str(), &count);
  if (status != nullptr)
    count = 0;
  hr_status_free(status);
  size_t colon = device_name.find(':');
  if (colon != std::string::npos)
    count = std::atoi(device_name.c_str() + colon + 1) < count ? 1 : 0;
  count = std::min(count, kDevicesMax);
  has_several_devices.store(count > 1);
  known_count.store(count);
  return count;
}

bool is_open() {
  return std::any_of(opened.begin(), opened.end(), [](const Opened &one) { return one.stream.load() != nullptr; });
}

bool is_open(c10::DeviceIndex index) {
  return index >= 0 && index < kDevicesMax && opened[index].stream.load() != nullptr;
}

bool is_forked() {
  return forked.load(std::memory_order_relaxed);
}

hr_stream *stream_of(c10::DeviceIndex index) {
  hr_stream *stream = opened[index].stream.load(std::memory_order_acquire);
  if (C10_LIKELY(stream != nullptr))
    return stream;
  open_once(index);
  return opened[index].stream.load();
}

hr_device *device_of(c10::DeviceIndex index) {
  stream_of(index);
  return opened[index].device.load();
}

bool has_host_memory(c10::DeviceIndex index) {
  stream_of(index);
  return !device_runs_beside.load(std::memory_order_relaxed);
}

c10::Device owner_of(const hr_buffer *buffer) {
  hr_device *device = hr_buffer_device(buffer);
  for (int i = 0; i < kDevicesMax; ++i)
    if (opened[i].device.load() == device)
      return {c10::DeviceType::PrivateUse1, static_cast<c10::DeviceIndex>(i)};
  TORCH_CHECK(false, "headrace: a buffer of a device that is not open");
}

void for_each_stream(c10::DeviceIndex index, const std::function<void(hr_stream *)> &body) {
  Opened &one = opened[index];
  if (hr_stream *stream = one.stream.load())
    body(stream);
  if (has_several_streams.load())
    for (auto &other : one.pool)
      if (hr_stream *stream = other.load())
        body(stream);
}

void for_each_stream(const std::function<void(hr_stream *)> &body) {
  for (int i = 0; i < kDevicesMax; ++i)
    for_each_stream(static_cast<c10::DeviceIndex>(i), body);
}

void wait_for_device(c10::DeviceIndex index) {
  for_each_stream(index, [](hr_stream *stream) { check(hr_stream_synchronize(stream)); });
}

void commit_device(c10::DeviceIndex index) {
  for_each_stream(index, [](hr_stream *stream) { check(hr_stream_commit(stream)); });
}

void wait_for_all() {
  for_each_stream([](hr_stream *stream) { check(hr_stream_synchronize(stream)); });
}

bool is_deterministic() {
  return deterministic.load(std::memory_order_relaxed);
}

void set_deterministic(bool is_deterministic) {
  std::lock_guard<std::mutex> lock(open_mutex());
  deterministic.store(is_deterministic);
  for_each_stream([&](hr_stream *stream) { check(hr_stream_set_deterministic(stream, is_deterministic)); });
}

void set_mode(hr_mode mode) {
  stream();
  std::lock_guard<std::mutex> lock(open_mutex());
  chosen_mode.store(mode);
  for_each_stream([&](hr_stream *stream) { hr_stream_set_mode(stream, mode); });
}

// ---- streams beside the default one

static void check_id(c10::StreamId id) {
  TORCH_CHECK(id >= 0 && id < kStreamsMax, "headrace: a device has no stream ", id,
              ": make streams with torch.headrace.Stream() or torch.Stream(\"headrace\")");
}

hr_stream *open_stream_of(c10::DeviceIndex index, c10::StreamId id) {
  check_id(id);
  return (id == 0 ? opened[index].stream : opened[index].pool[id - 1]).load(std::memory_order_acquire);
}

hr_stream *stream_of(c10::DeviceIndex index, c10::StreamId id) {
  hr_stream *stream = open_stream_of(index, id);
  if (C10_LIKELY(stream != nullptr))
    return stream;
  hr_device *device = device_of(index);
  if (id == 0)
    return stream_of(index);
  std::lock_guard<std::mutex> lock(open_mutex());
  std::atomic<hr_stream *> &place = opened[index].pool[id - 1];
  if (place.load() == nullptr) {
    has_several_streams.store(true);
    place.store(make_stream(device));
  }
  return place.load();
}

bool has_other_streams() {
  return has_several_streams.load();
}

c10::StreamId next_stream_id(c10::DeviceIndex index) {
  return 1 + opened[index].taken++ % (kStreamsMax - 1);
}

c10::StreamId current_stream_id(c10::DeviceIndex index) {
  return C10_LIKELY(!has_several_streams.load(std::memory_order_relaxed)) ? 0 : current_streams[index];
}

c10::StreamId exchange_stream_id(c10::DeviceIndex index, c10::StreamId id) {
  check_id(id);
  if (id != 0)
    has_several_streams.store(true);
  return std::exchange(current_streams[index], id);
}

// ---- the current device

void check_index(c10::DeviceIndex index) {
  if (C10_LIKELY(index <= 0))
    return; // opening the first one raises the reason
  int count = count_devices();
  if (count == 0)
    device_of(0); // throws the reason
  TORCH_CHECK(index < count, "The device index is out of range: headrace:", static_cast<int>(index),
              " was asked for, but there ", count == 1 ? "is 1 device" : "are " + std::to_string(count) + " devices",
              count == 1 ? ", headrace:0" : "");
}

c10::DeviceIndex chosen_index() {
  return chosen_device;
}

c10::DeviceIndex index_of(c10::DeviceIndex index) {
  check_index(index);
  return index < 0 ? here_index() : index;
}

c10::DeviceIndex exchange_index(c10::DeviceIndex index) {
  c10::DeviceIndex before = here_index();
  chosen_device = index_of(index);
  return before;
}

void choose_index(c10::DeviceIndex index) noexcept {
  if (index >= 0 && index < kDevicesMax)
    chosen_device = index;
}

bool OnDevice::choose(const c10::Device &device) {
  if (device.type() != c10::DeviceType::PrivateUse1)
    return false;
  before_ = exchange_index(device.index());
  return true;
}

bool OnDevice::choose(const Tensor &tensor) {
  return tensor.defined() && choose(tensor.device());
}

bool OnDevice::choose(const at::ITensorListRef &list) {
  for (const Tensor &tensor : list)
    if (choose(tensor))
      return true;
  return false;
}

bool OnDevice::choose(const c10::List<std::optional<Tensor>> &list) {
  for (std::optional<Tensor> tensor : list)
    if (tensor.has_value() && choose(*tensor))
      return true;
  return false;
}

void OnDevice::leave() {
  chosen_device = before_;
}

hr_stream *stream() {
  if (Capture *capturing = capture(); C10_UNLIKELY(capturing != nullptr))
    return capturing->stream;
  c10::DeviceIndex index = here_index();
  if (C10_UNLIKELY(has_several_streams.load(std::memory_order_relaxed)))
    return stream_of(index, current_streams[index]);
  return stream_of(index);
}

hr_device *device() {
  return device_of(here_index());
}

} // namespace headrace
