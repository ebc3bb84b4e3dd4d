// guard.cpp: the device guard: current devices and streams of threads, and events.
//
// torch.Stream objects are names: work on any of a device's goes to its one stream.
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <array>
#include <atomic>
#include <chrono>
#include <utility>

#include "device.h"

namespace headrace {
namespace {

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
    choose_index(wanted.index());
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

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard)

} // namespace

c10::StreamId current_stream_id(c10::DeviceIndex index) {
  return current_stream[index];
}

void set_current_stream_id(c10::DeviceIndex index, c10::StreamId id) {
  current_stream[index] = id;
}

} // namespace headrace
