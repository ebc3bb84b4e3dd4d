// guard.cpp: the device guard: current devices and streams of threads, and events.
//
// torch.Stream objects are only names: work on any of them goes to the device's single stream.
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <utility>

#include "device.h"
#include "headrace/mark.h"

namespace headrace {
namespace {

// An event is a mark in its device's stream. A timed event places it when recorded. Others place it at the first query,
// so that recording an event does not split a program; the mark may then also cover later work.
struct Event {
  c10::DeviceIndex device = 0;
  hr_mark *mark = nullptr;
  std::atomic<bool> is_done{false}; // a wait for it has returned
  ~Event() {
    hr_mark_release(mark);
  }
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

  void record(void **event, const c10::Stream &stream, const c10::DeviceIndex,
              const c10::EventFlag flag) const override {
    auto made = std::make_unique<Event>();
    made->device = index_of(stream.device_index());
    if (flag == c10::EventFlag::BACKEND_DEFAULT) {
      TORCH_CHECK(capture() == nullptr, "headrace: a timed event can't be recorded in a graph");
      check(hr_mark_create(stream_of(made->device), &made->mark));
    }
    delete static_cast<Event *>(std::exchange(*event, made.release()));
  }
  void destroyEvent(void *event, const c10::DeviceIndex) const noexcept override {
    delete static_cast<Event *>(event);
  }
  void block(void *, const c10::Stream &) const override {} // one queue in order
  bool queryEvent(void *opaque) const override {
    auto *event = static_cast<Event *>(opaque);
    return event == nullptr || event->is_done || is_reached(stream_of(event->device), event->mark);
  }
  void synchronizeEvent(void *opaque) const override {
    auto *event = static_cast<Event *>(opaque);
    if (event == nullptr)
      return;
    synchronizeDevice(event->device);
    event->is_done = true;
  }
  double elapsedTime(void *from, void *to, const c10::DeviceIndex) const override {
    int64_t begin = hr_mark_ns(static_cast<Event *>(from)->mark), end = hr_mark_ns(static_cast<Event *>(to)->mark);
    return static_cast<double>(end - begin) * 1e-6;
  }
  // Tests the mark of the last query, unless the stream has received work since.
  bool queryStream(const c10::Stream &stream) const override {
    static std::mutex *mutex = new std::mutex;
    static auto *marks = new std::array<hr_mark *, kDevicesMax>{};
    c10::DeviceIndex index = index_of(stream.device_index());
    hr_stream *queried = stream_of(index);
    std::lock_guard<std::mutex> lock(*mutex);
    hr_mark *&mark = (*marks)[index];
    if (mark != nullptr && !hr_mark_is_last(mark, queried))
      hr_mark_release(std::exchange(mark, nullptr));
    return is_reached(queried, mark);
  }
  void synchronizeStream(const c10::Stream &stream) const override {
    synchronizeDevice(stream.device_index());
  }
  void synchronizeDevice(const c10::DeviceIndex index) const override {
    check(hr_stream_synchronize(stream_of(index_of(index))));
  }
  void recordDataPtrOnStream(const c10::DataPtr &, const c10::Stream &) const override {}

private:
  // Places the mark if there is none yet and the queue has room for one.
  static bool is_reached(hr_stream *stream, hr_mark *&mark) {
    if (mark == nullptr)
      check(hr_mark_try_create(stream, &mark));
    return mark != nullptr && hr_mark_is_reached(mark);
  }
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
