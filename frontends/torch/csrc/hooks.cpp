// hooks.cpp: torch's hooks for a device from outside its own code.
#include <ATen/detail/PrivateUse1HooksInterface.h>

#include "device.h"
#include "kernels.h"

namespace headrace {
namespace {

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override {
    return true;
  }
  bool isAvailable() const override {
    return !is_forked() && count_devices() > 0;
  }
  bool hasPrimaryContext(c10::DeviceIndex index) const override {
    return is_open(index);
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
    return exchange_index(index);
  }
  bool isPinnedPtr(const void *pointer) const override {
    return is_pinned(pointer);
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
    return new_generator(index_of(index));
  }
  void resizePrivateUse1Bytes(const c10::Storage &storage, size_t bytes) const override {
    resize_storage(storage.unsafeGetStorageImpl(), bytes);
  }
};

struct HooksRegistration {
  HooksRegistration() {
    at::RegisterPrivateUse1HooksInterface(new Hooks);
  }
} hooks_registration;

} // namespace
} // namespace headrace
