// allocator.cpp: torch's allocator of the device: a storage's pointer is the handle of a buffer without memory.
#include <ATen/Context.h>

#include "device.h"

namespace headrace {

void release_buffer(void *buffer) {
  if (C10_LIKELY(!is_forked()))
    hr_buffer_release(static_cast<hr_buffer *>(buffer));
}

c10::DataPtr allocate(size_t bytes) {
  if (bool wanted = at::globalContext().deterministicAlgorithms(); C10_UNLIKELY(wanted != is_deterministic()))
    set_deterministic(wanted);
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

// Records a copy of `count` bytes between two buffers; consumes no reference.
void record_copy(hr_buffer *target, size_t target_offset, hr_buffer *source, size_t source_offset, size_t count) {
  OnDevice on(owner_of(target));
  int64_t size = static_cast<int64_t>(count), one = 1;
  hr_view in{source, nullptr, HR_DTYPE_U8, 1, static_cast<int64_t>(source_offset), &size, &one};
  hr_view out{target, nullptr, HR_DTYPE_U8, 1, static_cast<int64_t>(target_offset), &size, &one};
  hr_attrs attrs{};
  check(hr_stream_record(stream(), HR_OP_COPY, &attrs, 1, &in, 1, &out));
}

struct Found { // the buffer at an address
  explicit Found(const void *address) : buffer(hr_buffer_from_handle(address, &offset)) {
    TORCH_CHECK(buffer != nullptr, "headrace: copy of an address that is no buffer of the device");
  }
  Found(const Found &) = delete;
  ~Found() {
    hr_buffer_release(buffer);
  }
  size_t offset = 0;
  hr_buffer *buffer;
};

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
    Found target(to), source(from);
    record_copy(target.buffer, target.offset, source.buffer, source.offset, count);
  }

  bool initialized() override {
    return is_open();
  }
  void emptyCache(c10::MempoolId_t) override {
    for (int index = 0; index < kDevicesMax; ++index)
      if (is_open(static_cast<c10::DeviceIndex>(index))) {
        hr_stream_trim(stream_of(static_cast<c10::DeviceIndex>(index)));
        hr_device_memory_trim(device_of(static_cast<c10::DeviceIndex>(index)));
      }
  }
  void recordStream(const c10::DataPtr &, c10::Stream) override {}

  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex index) override {
    hr_memory_stats memory = stats_of(index);
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
    hr_memory_stats memory = stats_of(index);
    return {static_cast<size_t>(memory.device_free_bytes), static_cast<size_t>(memory.device_total_bytes)};
  }

private:
  static hr_memory_stats stats_of(c10::DeviceIndex index) {
    hr_memory_stats memory;
    hr_device_memory_stats(device_of(index_of(index)), &memory);
    return memory;
  }
};

struct AllocatorRegistration {
  AllocatorRegistration() {
    c10::SetAllocator(c10::DeviceType::PrivateUse1, device_allocator());
  }
} allocator_registration;

} // namespace

c10::DeviceAllocator *device_allocator() {
  static Allocator *allocator = new Allocator;
  return allocator;
}

c10::Allocator *allocator() {
  return device_allocator();
}

} // namespace headrace
