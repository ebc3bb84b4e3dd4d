// allocator.cpp: torch's allocator of the device: a storage's pointer is the handle of a buffer without memory.
#include <ATen/Context.h>

#include <atomic>

#include "device.h"
#include "headrace/memory.h"
#include "memory_history.h"

namespace headrace {

namespace {

// A profile or a history of memory has noted a buffer, so that it notes releases, too.
std::atomic<bool> has_noted{false};

hr_memory_gauges gauges_of(c10::DeviceIndex index) {
  hr_memory_gauges gauges;
  hr_device_memory_gauges(device_of(index_of(index)), &gauges);
  return gauges;
}

// Buffers get memory when their program is committed, if at all. A profile counts the bytes of tensors for the operator
// that makes them, and beside them what the allocator has at that time.
void report(hr_buffer *buffer, int64_t bytes) {
  c10::Device owner = owner_of(buffer);
  hr_memory_gauges gauges = gauges_of(owner.index());
  c10::reportMemoryUsageToProfiler(hr_buffer_handle(buffer), bytes,
                                   static_cast<size_t>(gauges.bytes[HR_MEMORY_ALL].current),
                                   static_cast<size_t>(gauges.reserved[HR_MEMORY_ALL].current), owner);
}

void note_release(hr_buffer *buffer) {
  if (c10::memoryProfilingEnabled())
    report(buffer, -static_cast<int64_t>(hr_buffer_bytes(buffer)));
  if (history_is_kept.load(std::memory_order_relaxed))
    forget_creation(buffer);
}

bool is_noted() {
  return c10::memoryProfilingEnabled() || history_is_kept.load(std::memory_order_relaxed);
}

void note(hr_buffer *buffer) {
  has_noted.store(true, std::memory_order_relaxed);
  if (c10::memoryProfilingEnabled())
    report(buffer, static_cast<int64_t>(hr_buffer_bytes(buffer)));
  if (history_is_kept.load(std::memory_order_relaxed))
    note_creation(buffer);
}

} // namespace

void release_buffer(void *opaque) {
  auto *buffer = static_cast<hr_buffer *>(opaque);
  if (C10_UNLIKELY(is_forked()))
    return;
  if (C10_UNLIKELY(has_noted.load(std::memory_order_relaxed)))
    note_release(buffer);
  hr_buffer_release(buffer);
}

c10::DataPtr allocate(size_t bytes) {
  if (bool wanted = at::globalContext().deterministicAlgorithms(); C10_UNLIKELY(wanted != is_deterministic()))
    set_deterministic(wanted);
  hr_buffer *buffer = nullptr;
  check(hr_buffer_create(device(), bytes > 0 ? bytes : 1, &buffer));
  if (C10_UNLIKELY(is_noted()))
    note(buffer);
  return {hr_buffer_handle(buffer), buffer, &release_buffer, here()};
}

namespace {

// torch's statistics of one quantity: of all blocks, of small ones, of large ones.
c10::CachingAllocator::StatArray stats_of(const hr_gauge *gauges) {
  c10::CachingAllocator::StatArray stats;
  for (size_t pool = 0; pool < HR_MEMORY_POOLS; ++pool) {
    stats[pool].current = gauges[pool].current, stats[pool].peak = gauges[pool].peak;
    stats[pool].allocated = gauges[pool].increased, stats[pool].freed = gauges[pool].decreased;
  }
  return stats;
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
        for_each_stream(static_cast<c10::DeviceIndex>(index), &hr_stream_trim);
        hr_device_memory_trim(device_of(static_cast<c10::DeviceIndex>(index)));
      }
  }
  void recordStream(const c10::DataPtr &, c10::Stream) override {}

  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex index) override {
    hr_memory_gauges gauges = gauges_of(index);
    c10::CachingDeviceAllocator::DeviceStats stats;
    stats.allocation = stats.active = stats_of(gauges.blocks);
    stats.allocated_bytes = stats.active_bytes = stats_of(gauges.bytes);
    stats.requested_bytes = stats_of(gauges.requested);
    stats.segment = stats_of(gauges.segments);
    stats.reserved_bytes = stats_of(gauges.reserved);
    stats.num_alloc_retries = gauges.retries;
    stats.num_ooms = gauges.failures;
    stats.num_device_alloc = gauges.segments[HR_MEMORY_ALL].increased;
    stats.num_device_free = gauges.segments[HR_MEMORY_ALL].decreased;
    return stats;
  }

  void resetAccumulatedStats(c10::DeviceIndex index) override {
    hr_device_memory_reset_totals(device_of(index_of(index)));
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
