// runtime.cpp: what makes streams devices of torch: the devices and their streams (opened on first use, never closed:
// tensors may die after every static object), statuses as exceptions, allocator, device guard, hooks, generator,
// pinned memory; and a plain C interface for the Python module, which loads this library with ctypes.
//
// Each device has one stream, which runs in order. torch.Stream objects are names: work on any of a device's goes
// there.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/GeneratorForPrivateuseone.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/DispatchStub.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/ops/empty.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/GeneratorImpl.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <pthread.h>
#include <torch/csrc/Exceptions.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "interrupt.h"
#include "kernels.h"
#include "runtime.h"

namespace headrace {

// ---- statuses

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

// ---- the devices

std::atomic<bool> has_several_devices{false}; // true before any but the first can be chosen

namespace {

constexpr int kDevicesMax = 64;

struct Opened {
  std::atomic<hr_device *> device{nullptr};
  std::atomic<hr_stream *> stream{nullptr};
};

std::array<Opened, kDevicesMax> opened;
std::atomic<bool> forked{false};  // this process is a child of one that had opened a device
std::atomic<int> known_count{-1}; // of devices
std::atomic<int> chosen_mode{-1}; // of all streams, when somebody has chosen one
std::string device_name = "cpu";  // a driver, and then all of its devices are ours, or one device of it
thread_local c10::DeviceIndex chosen_device = 0;

std::mutex &open_mutex() {
  static std::mutex *mutex = new std::mutex;
  return *mutex;
}

// How many devices there are; 0 where opening one will say why.
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

// The streams' threads do not exist in a forked child: there, nothing may be recorded and buffers are left alone.
void mark_forked() {
  if (is_open())
    forked.store(true);
  for (Opened &one : opened)
    one.stream.store(nullptr);
}

void open_once(c10::DeviceIndex index) {
  TORCH_CHECK(
      !forked.load(),
      "Cannot re-initialize headrace in forked subprocess. To use headrace with multiprocessing, you must use the "
      "'spawn' start method");
  count_devices();
  std::lock_guard<std::mutex> lock(open_mutex());
  if (opened[index].stream.load() != nullptr)
    return;
  std::string name = index == 0 ? device_name : device_name + ":" + std::to_string(index);
  hr_device *device = nullptr;
  hr_stream *stream = nullptr;
  check(hr_device_open(name.c_str(), &device));
  hr_status status = hr_stream_create(device, &stream);
  if (status != nullptr) {
    hr_device_release(device);
    fail(status);
  }
  watch_signals(stream);
  if (int mode = chosen_mode.load(); mode >= 0)
    hr_stream_set_mode(stream, static_cast<hr_mode>(mode));
  if (!is_open())
    pthread_atfork(nullptr, nullptr, mark_forked);
  hr_device_info info;
  hr_device_describe(device, &info);
  if (!info.is_host)
    device_runs_beside.store(true);
  opened[index].device.store(device);
  opened[index].stream.store(stream);
}

} // namespace
std::atomic<bool> device_runs_beside{false};
namespace {

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

// The device that an argument means, checked.
c10::DeviceIndex index_of(c10::DeviceIndex index) {
  check_index(index);
  return index < 0 ? here_index() : index;
}

c10::DeviceIndex exchange_index(c10::DeviceIndex index) {
  c10::DeviceIndex before = here_index();
  chosen_device = index_of(index);
  return before;
}

// Whose buffer this is.
c10::Device owner_of(const hr_buffer *buffer) {
  hr_device *device = hr_buffer_device(buffer);
  for (int i = 0; i < kDevicesMax; ++i)
    if (opened[i].device.load() == device)
      return {c10::DeviceType::PrivateUse1, static_cast<c10::DeviceIndex>(i)};
  TORCH_CHECK(false, "headrace: a buffer of a device that is not open");
}

void synchronize_all() {
  for (Opened &one : opened)
    if (hr_stream *stream = one.stream.load())
      check(hr_stream_synchronize(stream));
}

} // namespace

c10::DeviceIndex chosen_index() {
  return chosen_device;
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
  return stream_of(here_index());
}

hr_device *device() {
  return device_of(here_index());
}

void check_index(c10::DeviceIndex index) {
  if (C10_LIKELY(index <= 0))
    return; // the first one, when it is opened, says why it can't be
  int count = count_devices();
  if (count == 0)
    device_of(0); // throws the reason
  TORCH_CHECK(index < count, "headrace:", static_cast<int>(index), " was asked for, but there ",
              count == 1 ? "is 1 device" : "are " + std::to_string(count) + " devices",
              count == 1 ? ", headrace:0" : "");
}

// ---- the allocator

void release_buffer(void *buffer) {
  if (C10_LIKELY(!forked.load(std::memory_order_relaxed)))
    hr_buffer_release(static_cast<hr_buffer *>(buffer));
}

c10::DataPtr allocate(size_t bytes) {
  hr_buffer *buffer = nullptr;
  check(hr_buffer_create(device(), bytes > 0 ? bytes : 1, &buffer));
  return {hr_buffer_handle(buffer), buffer, &release_buffer, here()};
}

namespace {

c10::CachingAllocator::Stat stat(int64_t current, int64_t peak) {
  c10::CachingAllocator::Stat stat;
  stat.current = current, stat.peak = peak, stat.allocated = peak, stat.freed = peak - current;
  return stat;
}

class Allocator final : public c10::DeviceAllocator {
public:
  c10::DataPtr allocate(size_t bytes) override {
    return headrace::allocate(bytes);
  }
  c10::DeleterFnPtr raw_deleter() const override {
    return nullptr;
  }

  void copy_data(void *to, const void *from, size_t count) const override {
    if (count == 0)
      return;
    size_t to_offset = 0, from_offset = 0;
    hr_buffer *target = hr_buffer_from_handle(to, &to_offset), *source = hr_buffer_from_handle(from, &from_offset);
    hr_status status = nullptr;
    if (target != nullptr && source != nullptr) {
      OnDevice on(owner_of(target));
      int64_t size = static_cast<int64_t>(count), one = 1;
      hr_view in{source, nullptr, HR_DTYPE_U8, 1, static_cast<int64_t>(from_offset), &size, &one};
      hr_view out{target, nullptr, HR_DTYPE_U8, 1, static_cast<int64_t>(to_offset), &size, &one};
      hr_attrs attrs{};
      status = hr_stream_record(stream(), HR_OP_COPY, &attrs, 1, &in, 1, &out);
    }
    bool found = target != nullptr && source != nullptr;
    hr_buffer_release(target);
    hr_buffer_release(source);
    check(status);
    TORCH_CHECK(found, "headrace: copy of an address that is no buffer of the device");
  }

  bool initialized() override {
    return is_open();
  }
  void emptyCache(c10::MempoolId_t) override {
    for (Opened &one : opened)
      if (hr_device *device = one.device.load())
        hr_device_memory_trim(device);
  }
  void recordStream(const c10::DataPtr &, c10::Stream) override {}

  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex index) override {
    hr_memory_stats memory;
    hr_device_memory_stats(device_of(index_of(index)), &memory);
    c10::CachingDeviceAllocator::DeviceStats stats;
    stats.allocated_bytes[0] = stat(memory.allocated_bytes, memory.allocated_bytes_peak);
    stats.active_bytes[0] = stats.requested_bytes[0] = stats.allocated_bytes[0];
    stats.reserved_bytes[0] = stat(memory.reserved_bytes, memory.reserved_bytes_peak);
    stats.allocation[0].allocated = memory.allocation_count;
    stats.num_device_alloc = memory.driver_allocation_count;
    return stats;
  }

  void resetAccumulatedStats(c10::DeviceIndex index) override {
    hr_stream_reset_stats(stream_of(index_of(index)));
  }
  void resetPeakStats(c10::DeviceIndex index) override {
    hr_device_memory_reset_peak(device_of(index_of(index)));
  }

  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex index) override {
    hr_memory_stats memory;
    hr_device_memory_stats(device_of(index_of(index)), &memory);
    return {static_cast<size_t>(memory.device_free_bytes), static_cast<size_t>(memory.device_total_bytes)};
  }
};

// ---- pinned memory: plain host memory that is remembered, since copies take their snapshot at once anyway

class PinnedAllocator final : public c10::Allocator {
public:
  c10::DataPtr allocate(size_t bytes) override {
    void *memory = nullptr;
    TORCH_CHECK(posix_memalign(&memory, 64, bytes > 0 ? bytes : 1) == 0, "headrace: out of host memory: ", bytes,
                " bytes");
    std::lock_guard<std::mutex> lock(mutex());
    ranges()[reinterpret_cast<uintptr_t>(memory)] = bytes > 0 ? bytes : 1;
    return {memory, memory, &release, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override {
    return &release;
  }
  void copy_data(void *to, const void *from, size_t count) const override {
    default_copy_data(to, from, count);
  }

  static bool holds(const void *pointer) {
    std::lock_guard<std::mutex> lock(mutex());
    uintptr_t address = reinterpret_cast<uintptr_t>(pointer);
    auto after = ranges().upper_bound(address);
    if (after == ranges().begin())
      return false;
    --after;
    return address - after->first < after->second;
  }

private:
  static void release(void *memory) {
    {
      std::lock_guard<std::mutex> lock(mutex());
      ranges().erase(reinterpret_cast<uintptr_t>(memory));
    }
    std::free(memory);
  }
  static std::mutex &mutex() {
    static std::mutex *mutex = new std::mutex;
    return *mutex;
  }
  static std::map<uintptr_t, size_t> &ranges() {
    static auto *ranges = new std::map<uintptr_t, size_t>;
    return *ranges;
  }
};

Allocator *the_allocator() {
  static Allocator *allocator = new Allocator;
  return allocator;
}

PinnedAllocator *pinned_allocator() {
  static PinnedAllocator *allocator = new PinnedAllocator;
  return allocator;
}

// ---- the generator: a seed and how many random operations have drawn from it

class Generator final : public c10::GeneratorImpl {
public:
  explicit Generator(c10::DeviceIndex index)
      : c10::GeneratorImpl({c10::DeviceType::PrivateUse1, index}, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)) {}

  void set_current_seed(uint64_t seed) override {
    seed_ = seed, offset_ = 0;
  }
  void set_offset(uint64_t offset) override {
    offset_ = offset;
  }
  uint64_t get_offset() const override {
    return offset_;
  }
  uint64_t current_seed() const override {
    return seed_;
  }
  uint64_t seed() override {
    set_current_seed(c10::detail::getNonDeterministicRandom());
    return seed_;
  }

  void set_state(const c10::TensorImpl &state) override {
    at::detail::check_rng_state(state);
    TORCH_CHECK(state.numel() == 16, "RNG state is wrong size: ", state.numel(), " bytes, expected 16");
    const uint64_t *words = static_cast<const uint64_t *>(state.data());
    seed_ = words[0], offset_ = words[1];
  }

  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    Tensor state = at::empty({16}, at::TensorOptions(at::kCPU).dtype(at::kByte));
    uint64_t *words = reinterpret_cast<uint64_t *>(state.mutable_data_ptr<uint8_t>());
    words[0] = seed_, words[1] = offset_;
    return state.getIntrusivePtr();
  }

  Philox next(int64_t count) {
    Philox first{static_cast<int64_t>(seed_), static_cast<int64_t>(offset_)};
    offset_ += static_cast<uint64_t>(count);
    return first;
  }

private:
  Generator *clone_impl() const override {
    Generator *copy = new Generator(device().index());
    copy->seed_ = seed_, copy->offset_ = offset_;
    return copy;
  }
  uint64_t seed_ = c10::default_rng_seed_val, offset_ = 0;
};

// Each device has one of its own.
const at::Generator &default_generator(c10::DeviceIndex index) {
  static std::mutex *mutex = new std::mutex;
  static auto *generators = new std::array<at::Generator, kDevicesMax>;
  std::lock_guard<std::mutex> lock(*mutex);
  at::Generator &generator = (*generators)[index];
  if (C10_UNLIKELY(!generator.defined())) {
    generator = at::make_generator<Generator>(index);
    generator.seed();
  }
  return generator;
}

} // namespace

c10::Allocator *allocator() {
  return the_allocator();
}

Philox next_philox(const std::optional<at::Generator> &generator, int64_t count) {
  const at::Generator &used =
      generator.has_value() && generator->defined() ? *generator : default_generator(here_index());
  TORCH_CHECK(used.device().type() == c10::DeviceType::PrivateUse1, "Expected a '", here().str(),
              "' device type for generator but found '", used.device().str(), "'");
  if (Capture *capturing = capture(); C10_UNLIKELY(capturing != nullptr)) {
    TORCH_CHECK(used == default_generator(here_index()),
                "headrace: a graph that draws from a generator of its own can't be captured");
    capturing->ticket_count += count;
    return {0, capturing->ticket_count - count};
  }
  std::lock_guard<std::mutex> lock(used.unsafeGetGeneratorImpl()->mutex_);
  return static_cast<Generator *>(used.unsafeGetGeneratorImpl())->next(count);
}

namespace {

// ---- guard, streams, events

using Clock = std::chrono::steady_clock;

struct Event {
  Clock::time_point when;
  c10::DeviceIndex device;
};

thread_local std::array<c10::StreamId, kDevicesMax> current_stream{};
std::atomic<c10::StreamId> next_stream{1};

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override {
    return c10::DeviceType::PrivateUse1;
  }
  c10::Device exchangeDevice(c10::Device wanted) const override {
    return {c10::DeviceType::PrivateUse1, exchange_index(wanted.index())};
  }
  c10::Device getDevice() const override {
    return here();
  }
  void setDevice(c10::Device wanted) const override {
    exchange_index(wanted.index());
  }
  void uncheckedSetDevice(c10::Device wanted) const noexcept override {
    if (wanted.index() >= 0 && wanted.index() < kDevicesMax)
      chosen_device = wanted.index();
  }
  c10::Stream getStream(c10::Device device) const override {
    c10::DeviceIndex index = index_of(device.index());
    return make_stream(index, current_stream[index]);
  }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return make_stream(index_of(device.index()), 0);
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override {
    return make_stream(index_of(device.index()), next_stream++);
  }
  c10::Stream getNewStream(c10::Device device, int) const override {
    return make_stream(index_of(device.index()), next_stream++);
  }
  c10::Stream exchangeStream(c10::Stream wanted) const override {
    c10::DeviceIndex index = index_of(wanted.device_index());
    return make_stream(index, std::exchange(current_stream[index], wanted.id()));
  }
  void *getStreamNativeHandle(const c10::Stream stream) const {
    return stream_of(index_of(stream.device_index()));
  }
  c10::DeviceIndex deviceCount() const noexcept override {
    return static_cast<c10::DeviceIndex>(count_devices());
  }

  // A timed event is placed after all work before it, so that the time between two is the time of the work.
  void record(void **event, const c10::Stream &stream, const c10::DeviceIndex,
              const c10::EventFlag flag) const override {
    c10::DeviceIndex index = index_of(stream.device_index());
    if (*event == nullptr)
      *event = new Event;
    if (flag == c10::EventFlag::BACKEND_DEFAULT)
      check(hr_stream_synchronize(stream_of(index)));
    *static_cast<Event *>(*event) = {Clock::now(), index};
  }
  void destroyEvent(void *event, const c10::DeviceIndex) const noexcept override {
    delete static_cast<Event *>(event);
  }
  void block(void *, const c10::Stream &) const override {} // one queue in order
  bool queryEvent(void *event) const override {
    if (event != nullptr)
      check(hr_stream_synchronize(stream_of(static_cast<Event *>(event)->device)));
    return true;
  }
  void synchronizeEvent(void *event) const override {
    if (event != nullptr)
      check(hr_stream_synchronize(stream_of(static_cast<Event *>(event)->device)));
  }
  double elapsedTime(void *from, void *to, const c10::DeviceIndex) const override {
    TORCH_CHECK(from != nullptr && to != nullptr, "Both events must be recorded before calculating elapsed time.");
    std::chrono::duration<double, std::milli> elapsed =
        static_cast<Event *>(to)->when - static_cast<Event *>(from)->when;
    return elapsed.count();
  }
  bool queryStream(const c10::Stream &stream) const override {
    synchronizeStream(stream);
    return true;
  }
  void synchronizeStream(const c10::Stream &stream) const override {
    synchronizeDevice(stream.device_index());
  }
  void synchronizeDevice(const c10::DeviceIndex index) const override {
    check(hr_stream_synchronize(stream_of(index_of(index))));
  }
  void recordDataPtrOnStream(const c10::DataPtr &, const c10::Stream &) const override {}

private:
  static c10::Stream make_stream(c10::DeviceIndex index, c10::StreamId id) {
    return c10::Stream(c10::Stream::UNSAFE, {c10::DeviceType::PrivateUse1, index}, id);
  }
};

// ---- hooks

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override {
    return true;
  }
  bool isAvailable() const override {
    return !forked.load() && count_devices() > 0;
  }
  bool hasPrimaryContext(c10::DeviceIndex) const override {
    return true;
  }
  void init() const override {
    stream();
  }
  c10::DeviceIndex deviceCount() const override {
    return static_cast<c10::DeviceIndex>(count_devices());
  }
  void setCurrentDevice(c10::DeviceIndex index) const override {
    exchange_index(index);
  }
  c10::DeviceIndex getCurrentDevice() const override {
    return here_index();
  }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex index) const override {
    return exchange_index(index);
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex index) const override {
    return exchangeDevice(index);
  }
  bool isPinnedPtr(const void *pointer) const override {
    return PinnedAllocator::holds(pointer);
  }
  c10::Allocator *getPinnedMemoryAllocator() const override {
    return pinned_allocator();
  }
  c10::Device getDeviceFromPtr(void *pointer) const override {
    size_t offset = 0;
    hr_buffer *buffer = hr_buffer_from_handle(pointer, &offset);
    TORCH_CHECK(buffer != nullptr, "headrace: no buffer of the device at this address");
    c10::Device owner = owner_of(buffer);
    hr_buffer_release(buffer);
    return owner;
  }
  const at::Generator &getDefaultGenerator(c10::DeviceIndex index) const override {
    return default_generator(index_of(index));
  }
  at::Generator getNewGenerator(c10::DeviceIndex index) const override {
    return at::make_generator<Generator>(index_of(index));
  }
  void resizePrivateUse1Bytes(const c10::Storage &storage, size_t bytes) const override {
    resize_storage(storage.unsafeGetStorageImpl(), bytes);
  }
};

// Which attention torch takes: ours (4, "overrideable") where a row serves it, else the composite: as on torch's CPU
// device also for the gradient of a narrow mask, which the composite computes in float32.
int64_t choose_attention(const Tensor &query, const Tensor &key, const Tensor &value, const std::optional<Tensor> &mask,
                         double, bool causal, std::optional<double>, bool) {
  bool fits = query.dim() == 4 && key.dim() == 4 && value.dim() == 4 && at::isFloatingType(query.scalar_type()) &&
              query.scalar_type() == key.scalar_type() && query.scalar_type() == value.scalar_type() &&
              query.size(0) == key.size(0) && query.size(1) == key.size(1) && key.size(1) == value.size(1) &&
              key.size(0) == value.size(0) && key.size(2) == value.size(2) && query.size(3) == key.size(3) &&
              query.numel() > 0 && key.numel() > 0 && value.numel() > 0;
  bool has_mask = mask.has_value() && mask->defined();
  bool is_narrow = query.scalar_type() == ScalarType::Half || query.scalar_type() == ScalarType::BFloat16;
  bool learns_mask = has_mask && mask->requires_grad() && at::GradMode::is_enabled();
  return fits && !(has_mask && causal) && !(is_narrow && learns_mask) ? 4 : 0;
}

struct Registration {
  Registration() {
    c10::SetAllocator(c10::DeviceType::PrivateUse1, the_allocator());
    at::RegisterPrivateUse1HooksInterface(new Hooks);
  }
} registration;

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard)

} // namespace
} // namespace headrace

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &headrace::choose_attention)
}

namespace headrace {

static thread_local std::string last_error;

int guarded(const std::function<void()> &body) {
  try {
    body();
    return 0;
  } catch (python_error &error) {
    keep_raised(std::move(error));
    return HR_STATUS_CANCELLED;
  } catch (const c10::OutOfMemoryError &error) {
    last_error = error.what_without_backtrace();
    return HR_STATUS_RESOURCE_EXHAUSTED;
  } catch (const c10::IndexError &error) {
    last_error = error.what_without_backtrace();
    return HR_STATUS_OUT_OF_RANGE;
  } catch (const c10::Error &error) {
    last_error = error.what_without_backtrace();
  } catch (const std::exception &error) {
    last_error = error.what();
  }
  return HR_STATUS_UNKNOWN;
}

namespace {

// The copy itself looks at the bits that say conjugated and negated; torch's fallback for them would copy first, for
// ever.
TORCH_LIBRARY_IMPL(aten, Conjugate, m) {
  m.impl("_copy_from", torch::CppFunction::makeFallthrough());
}
TORCH_LIBRARY_IMPL(aten, Negative, m) {
  m.impl("_copy_from", torch::CppFunction::makeFallthrough());
}

// Whether `param.data = moved` may turn a tensor of one device into one of another. torch knows the answer for the
// devices of its own alone, and nn.Module.to() asks: without a yes it makes new parameters, tied weights come apart,
// and an optimizer that was made before goes on with the old ones. (An operator with a kernel for all backends, so no
// row of map.def.)
bool can_take_data(const at::Tensor &self, const at::Tensor &from) {
  auto is_plain = [](const at::Tensor &tensor) {
    return tensor.layout() == c10::kStrided && (tensor.is_cpu() || tensor.is_privateuseone());
  };
  return self.key_set() == from.key_set() || (is_plain(self) && is_plain(from));
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_has_compatible_shallow_copy_type", &can_take_data);
}

// ---- the C interface of the Python module

c10::DeviceIndex narrow(int index) {
  return static_cast<c10::DeviceIndex>(std::clamp(index, -1, 127));
}

// The default generator of a device, locked.
struct LockedGenerator {
  explicit LockedGenerator(int index)
      : impl(static_cast<Generator *>(default_generator(index_of(narrow(index))).unsafeGetGeneratorImpl())),
        lock(impl->mutex_) {}
  Generator *impl;
  std::lock_guard<std::mutex> lock;
};

hr_stream *stream_at(int index) {
  return stream_of(index_of(narrow(index)));
}
hr_device *device_at(int index) {
  return device_of(index_of(narrow(index)));
}

} // namespace
} // namespace headrace

using namespace headrace;

// An `index` below 0 is the current device.
extern "C" {

HR_API const char *headrace_torch_error(void) {
  return last_error.c_str();
}

HR_API int headrace_torch_set_device_name(const char *name) {
  return guarded([&] {
    std::lock_guard<std::mutex> lock(open_mutex());
    TORCH_CHECK(!is_open() || device_name == name, "the device is open already");
    device_name = name;
    known_count.store(-1);
  });
}

HR_API int headrace_torch_in_bad_fork(void) {
  return forked.load();
}
HR_API int headrace_torch_is_open(void) {
  return is_open();
}
HR_API int headrace_torch_open(void) {
  return guarded([] { stream(); });
}
HR_API int headrace_torch_device_count(void) {
  return count_devices();
}
HR_API int headrace_torch_current_device(void) {
  return here_index();
}
HR_API int headrace_torch_set_device(int index) {
  return guarded([&] { exchange_index(narrow(index)); });
}
HR_API int headrace_torch_stream(int index, int64_t *out_stream) {
  return guarded([&] { *out_stream = current_stream[index_of(narrow(index))]; });
}
HR_API int headrace_torch_set_stream(int index, int64_t stream) {
  return guarded([&] { current_stream[index_of(narrow(index))] = stream; });
}
HR_API int headrace_torch_describe(int index, hr_device_info *out_info) {
  return guarded([&] { hr_device_describe(device_at(index), out_info); });
}
HR_API int headrace_torch_commit(void) {
  return guarded([] { check(hr_stream_commit(stream())); });
}
HR_API int headrace_torch_synchronize(int index) {
  return guarded([&] {
    if (is_open())
      check(hr_stream_synchronize(stream_at(index)));
  });
}
HR_API int headrace_torch_synchronize_all(void) {
  return guarded(synchronize_all);
}

HR_API int headrace_torch_stats(int index, hr_stats *out_stats) {
  return guarded([&] { hr_stream_stats(stream_at(index), out_stats); });
}
HR_API int headrace_torch_reset_stats(int index) {
  return guarded([&] { hr_stream_reset_stats(stream_at(index)); });
}
HR_API int headrace_torch_memory_stats(int index, hr_memory_stats *out_stats) {
  return guarded([&] { hr_device_memory_stats(device_at(index), out_stats); });
}
HR_API int headrace_torch_memory_reset_peak(int index) {
  return guarded([&] { hr_device_memory_reset_peak(device_at(index)); });
}
HR_API int headrace_torch_memory_limit(int index, int64_t bytes) {
  return guarded([&] { hr_device_memory_limit(device_at(index), bytes); });
}
HR_API int headrace_torch_memory_trim(void) {
  return guarded([] { the_allocator()->emptyCache({0, 0}); });
}

// Of all devices, those that are opened later as well.
HR_API int headrace_torch_set_mode(int mode) {
  return guarded([&] {
    stream();
    std::lock_guard<std::mutex> lock(open_mutex());
    chosen_mode.store(mode);
    for (Opened &one : opened)
      if (hr_stream *stream = one.stream.load())
        hr_stream_set_mode(stream, static_cast<hr_mode>(mode));
  });
}
HR_API int headrace_torch_mode(int *out_mode) {
  return guarded([&] { *out_mode = hr_stream_mode(stream()); });
}

HR_API int headrace_torch_seed(int index, uint64_t seed) {
  return guarded([&] { LockedGenerator(index).impl->set_current_seed(seed); });
}
HR_API int headrace_torch_rng_state(int index, uint64_t *out_seed, uint64_t *out_offset) {
  return guarded([&] {
    LockedGenerator generator(index);
    *out_seed = generator.impl->current_seed();
    *out_offset = generator.impl->get_offset();
  });
}
HR_API int headrace_torch_set_rng_state(int index, uint64_t seed, uint64_t offset) {
  return guarded([&] {
    LockedGenerator generator(index);
    generator.impl->set_current_seed(seed);
    generator.impl->set_offset(offset);
  });
}

HR_API int headrace_torch_set_fallback(int mode) {
  return guarded([&] { set_fallback_mode(static_cast<FallbackMode>(mode)); });
}
HR_API int headrace_torch_fallback(void) {
  return static_cast<int>(fallback_mode());
}
// Lines of "name count"; valid until the next call of this thread.
HR_API const char *headrace_torch_fallbacks(void) {
  static thread_local std::string text;
  text = fallback_counts();
  return text.c_str();
}
HR_API void headrace_torch_reset_fallbacks(void) {
  reset_fallback_counts();
}

} // extern "C"
