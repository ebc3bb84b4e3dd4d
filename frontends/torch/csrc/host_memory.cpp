// host_memory.cpp: pinned memory. It is plain host memory whose ranges are recorded, because copies read their source
// at once anyway. torch uses its allocator in tensor.pin_memory() and in torch.accelerator's functions.
#include <ATen/core/CachingHostAllocator.h>

#include <cstdlib>
#include <map>
#include <mutex>

#include "device.h"

namespace headrace {
namespace {

struct Pinned { // address and bytes of each range
  std::mutex mutex;
  std::map<uintptr_t, size_t> ranges;
  at::HostStats stats;
};

Pinned &pinned() {
  static Pinned *pinned = new Pinned;
  return *pinned;
}

void release(void *memory) {
  {
    std::lock_guard<std::mutex> lock(pinned().mutex);
    auto range = pinned().ranges.find(reinterpret_cast<uintptr_t>(memory));
    if (range == pinned().ranges.end())
      return;
    pinned().stats.allocated_bytes.decrease(range->second);
    pinned().ranges.erase(range);
  }
  std::free(memory);
}

class PinnedAllocator final : public at::HostAllocator {
public:
  c10::DataPtr allocate(size_t wanted) override {
    size_t bytes = wanted > 0 ? wanted : 1;
    void *memory = nullptr;
    TORCH_CHECK(posix_memalign(&memory, 64, bytes) == 0, "headrace: out of host memory: ", wanted, " bytes");
    std::lock_guard<std::mutex> lock(pinned().mutex);
    pinned().ranges[reinterpret_cast<uintptr_t>(memory)] = bytes;
    pinned().stats.allocated_bytes.increase(bytes);
    return {memory, memory, &release, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override {
    return &release;
  }
  void copy_data(void *to, const void *from, size_t count) const override {
    default_copy_data(to, from, count);
  }

  bool record_event(void *, void *, c10::Stream) override {
    return true; // a copy has read its source when it returns
  }
  void empty_cache() override {} // released memory is freed at once
  at::HostStats get_stats() override {
    std::lock_guard<std::mutex> lock(pinned().mutex);
    return pinned().stats;
  }
  void reset_accumulated_stats() override {
    std::lock_guard<std::mutex> lock(pinned().mutex);
    pinned().stats.allocated_bytes.reset_accumulated();
  }
  void reset_peak_stats() override {
    std::lock_guard<std::mutex> lock(pinned().mutex);
    pinned().stats.allocated_bytes.reset_peak();
  }
};

PinnedAllocator *the_allocator() {
  static PinnedAllocator *allocator = new PinnedAllocator;
  return allocator;
}

struct HostMemoryRegistration {
  HostMemoryRegistration() {
    at::setHostAllocator(c10::DeviceType::PrivateUse1, the_allocator());
  }
} host_memory_registration;

} // namespace

c10::Allocator *pinned_allocator() {
  return the_allocator();
}

bool is_pinned(const void *pointer) {
  std::lock_guard<std::mutex> lock(pinned().mutex);
  uintptr_t address = reinterpret_cast<uintptr_t>(pointer);
  auto after = pinned().ranges.upper_bound(address);
  if (after == pinned().ranges.begin())
    return false;
  --after;
  return address - after->first < after->second;
}

} // namespace headrace
