// guard.cpp: the device guard: current devices and streams of threads, and events.
//
// The core orders the streams of a device wherever they use the same buffers, and keeps buffers while work uses them.
// So waiting for another stream matters only for functions and events, and recording a tensor's use on a stream does
// nothing.
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

// An event is a mark in its stream. A timed event places it when recorded. Others place it at the first query,
// so that recording an event does not split a program; the mark may then also cover later work.
struct Event {
  c10::DeviceIndex device = 0;
  c10::StreamId stream = 0;
  hr_mark *mark = nullptr;
  std::atomic<bool> is_done{false}; // a wait for it has returned
  ~Event() {
    hr_mark_release(mark);
  }
};

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
    return make_stream(index, current_stream_id(index));
  }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return make_stream(index_of(device.index()), 0);
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override {
    c10::DeviceIndex index = index_of(device.index());
    return make_stream(index, next_stream_id(index));
  }
  c10::Stream getNewStream(c10::Device device, int) const override {
    return getStreamFromGlobalPool(device, false);
  }
  c10::Stream exchangeStream(c10::Stream wanted) const override {
    c10::DeviceIndex index = index_of(wanted.device_index());
    return make_stream(index, exchange_stream_id(index, wanted.id()));
  }
  void *getStreamNativeHandle(const c10::Stream stream) const {
    return stream_of(index_of(stream.device_index()), stream.id());
  }
  c10::DeviceIndex deviceCount() const noexcept override {
    return static_cast<c10::DeviceIndex>(count_devices());
  }
  c10::DeviceCapability getDeviceCapability(c10::Device device) const override {
    index_of(device.index());
    c10::DeviceCapability capability;
    auto &has = capability.capability_data.supported_scalar_types;
#define X(_, type) has.has_##type = has_dtype(c10::ScalarType::type);
    AT_FORALL_SCALAR_TYPES_WITH_COMPLEX_AND_QINTS(X)
#undef X
    return capability;
  }

  void record(void **event, const c10::Stream &stream, const c10::DeviceIndex,
              const c10::EventFlag flag) const override {
    auto made = std::make_unique<Event>();
    made->device = index_of_stream(stream);
    made->stream = stream.id();
    if (flag == c10::EventFlag::BACKEND_DEFAULT) {
      TORCH_CHECK(capture() == nullptr, "headrace: a timed event can't be recorded in a graph");
      check(hr_mark_create(stream_of(made->device, made->stream), &made->mark));
    }
    delete static_cast<Event *>(std::exchange(*event, made.release()));
  }
  void destroyEvent(void *event, const c10::DeviceIndex) const noexcept override {
    delete static_cast<Event *>(event);
  }
  // On another device the stream waits for nothing: copies between devices do.
  void block(void *opaque, const c10::Stream &stream) const override {
    auto *event = static_cast<Event *>(opaque);
    if (event == nullptr || capture() != nullptr)
      return;
    c10::DeviceIndex index = index_of_stream(stream);
    hr_stream *other = open_stream_of(event->device, event->stream);
    if (other == nullptr || (event->device == index && event->stream == stream.id()))
      return;
    check(event->device == index ? hr_stream_wait_for(stream_of(index, stream.id()), other) : hr_stream_commit(other));
  }
  bool queryEvent(void *opaque) const override {
    auto *event = static_cast<Event *>(opaque);
    if (event == nullptr || event->is_done)
      return true;
    return is_reached(stream_of(event->device, event->stream), event->mark);
  }
  void synchronizeEvent(void *opaque) const override {
    auto *event = static_cast<Event *>(opaque);
    if (event == nullptr)
      return;
    wait_for_stream(event->device, event->stream);
    event->is_done = true;
  }
  double elapsedTime(void *from, void *to, const c10::DeviceIndex) const override {
    auto *begin = static_cast<Event *>(from), *end = static_cast<Event *>(to);
    TORCH_CHECK_VALUE(begin->device == end->device,
                      "headrace: the events are of headrace:", static_cast<int>(begin->device),
                      " and headrace:", static_cast<int>(end->device), ", expected one device");
    return static_cast<double>(hr_mark_ns(end->mark) - hr_mark_ns(begin->mark)) * 1e-6;
  }
  // Tests the mark of the last query, unless the stream has received work since.
  bool queryStream(const c10::Stream &stream) const override {
    static std::mutex *mutex = new std::mutex;
    static auto *marks = new std::array<std::array<hr_mark *, kStreamsMax>, kDevicesMax>{};
    c10::DeviceIndex index = index_of(stream.device_index());
    hr_stream *queried = open_stream_of(index, stream.id());
    if (queried == nullptr)
      return true;
    std::lock_guard<std::mutex> lock(*mutex);
    hr_mark *&mark = (*marks)[index][stream.id()];
    if (mark != nullptr && !hr_mark_is_last(mark, queried))
      hr_mark_release(std::exchange(mark, nullptr));
    return is_reached(queried, mark);
  }
  void synchronizeStream(const c10::Stream &stream) const override {
    wait_for_stream(index_of(stream.device_index()), stream.id());
  }
  void synchronizeDevice(const c10::DeviceIndex index) const override {
    c10::DeviceIndex checked = index_of(index);
    stream_of(checked); // opens the device
    wait_for_device(checked);
  }
  void recordDataPtrOnStream(const c10::DataPtr &, const c10::Stream &) const override {}

private:
  // The index of its device; throws if there is no such device or stream.
  static c10::DeviceIndex index_of_stream(const c10::Stream &stream) {
    c10::DeviceIndex index = index_of(stream.device_index());
    open_stream_of(index, stream.id());
    return index;
  }
  // Places the mark if there is none yet and the queue has room for one.
  static bool is_reached(hr_stream *stream, hr_mark *&mark) {
    if (mark == nullptr)
      check(hr_mark_try_create(stream, &mark));
    return mark != nullptr && hr_mark_is_reached(mark);
  }
  static void wait_for_stream(c10::DeviceIndex index, c10::StreamId id) {
    if (hr_stream *stream = id == 0 ? stream_of(index) : open_stream_of(index, id))
      check(hr_stream_synchronize(stream));
  }
  static c10::Stream make_stream(c10::DeviceIndex index, c10::StreamId id) {
    return c10::Stream(c10::Stream::UNSAFE, {c10::DeviceType::PrivateUse1, index}, id);
  }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard)

} // namespace
} // namespace headrace
