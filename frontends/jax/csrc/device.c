/* device.c: devices as clients see them; a device is its own description. */
#include <string.h>

#include "headrace/memory.h"
#include "plugin.h"

static pjrt_error *give_text(pjrt_args_text *args, const char *text) {
  args->text = text, args->text_size = strlen(text);
  return NULL;
}

pjrt_error *hrj_DeviceDescription_Id(pjrt_args_int *args) {
  args->number = ((pjrt_device *)args->self)->number;
  return NULL;
}

pjrt_error *hrj_DeviceDescription_ProcessIndex(pjrt_args_int *args) {
  args->number = 0;
  return NULL;
}

pjrt_error *hrj_DeviceDescription_Attributes(pjrt_args_description_attributes *args) {
  args->list = NULL, args->count = 0;
  return NULL;
}

pjrt_error *hrj_DeviceDescription_Kind(pjrt_args_text *args) {
  return give_text(args, ((const pjrt_device *)args->self)->kind);
}

pjrt_error *hrj_DeviceDescription_ToString(pjrt_args_text *args) {
  return give_text(args, ((const pjrt_device *)args->self)->name);
}

pjrt_error *hrj_DeviceDescription_DebugString(pjrt_args_text *args) {
  return hrj_DeviceDescription_ToString(args);
}

pjrt_error *hrj_Device_GetDescription(pjrt_args_pointer *args) {
  args->pointer = args->self;
  return NULL;
}

pjrt_error *hrj_Device_IsAddressable(pjrt_args_flag *args) {
  args->flag = true;
  return NULL;
}

pjrt_error *hrj_Device_LocalHardwareId(pjrt_args_int *args) {
  args->number = ((pjrt_device *)args->self)->number;
  return NULL;
}

pjrt_error *hrj_Device_AddressableMemories(pjrt_args_list *args) {
  pjrt_device *device = args->self;
  args->list = device->memory_list, args->count = (size_t)device->memory_count;
  return NULL;
}

pjrt_error *hrj_Device_DefaultMemory(pjrt_args_pointer *args) {
  args->pointer = &((pjrt_device *)args->self)->memories[0];
  return NULL;
}

static void free_nothing(void *owned) {
  (void)owned;
}

pjrt_error *hrj_Device_GetAttributes(pjrt_args_device_attributes *args) {
  args->list = NULL, args->count = 0, args->owned = NULL, args->free = free_nothing;
  return NULL;
}

static pjrt_optional_size given(int64_t size) {
  return (pjrt_optional_size){.size = size, .is_set = true};
}

/* The caller does not clear the struct. The core does not count copies from the host, so that the peak is the sum of
 * two peaks: an upper bound. */
pjrt_error *hrj_Device_MemoryStats(pjrt_args_memory_stats *args) {
  pjrt_device *device = args->device;
  size_t head = offsetof(pjrt_args_memory_stats, bytes_in_use);
  size_t size = args->struct_size < sizeof *args ? args->struct_size : sizeof *args;
  pjrt_args_memory_stats stats = {0};
  hr_memory_stats counted;
  hr_device_memory_stats(device->device, &counted);
  int64_t copies = atomic_load(&device->host_bytes), copies_peak = atomic_load(&device->host_bytes_peak);
  stats.bytes_in_use = counted.allocated_bytes + copies;
  stats.peak_bytes_in_use = given(counted.allocated_bytes_peak + copies_peak);
  stats.allocation_count = given(counted.allocation_count);
  stats.limit = given(counted.limit_bytes > 0 ? counted.limit_bytes : counted.device_total_bytes);
  stats.reservable_limit = stats.limit;
  stats.reserved = given(counted.reserved_bytes);
  stats.peak_reserved = given(counted.reserved_bytes_peak);
  stats.pool_bytes = given(counted.reserved_bytes);
  stats.peak_pool_bytes = given(counted.reserved_bytes_peak);
  if (size > head) {
    memcpy((char *)args + head, (const char *)&stats + head, size - head);
  }
  return NULL;
}

pjrt_error *hrj_Device_ClearMemoryStats(pjrt_args_self *args) {
  pjrt_device *device = args->self;
  hr_device_memory_reset_peak(device->device);
  atomic_store(&device->host_bytes_peak, atomic_load(&device->host_bytes));
  return NULL;
}

/* ---- what has no effect here ---- */

/* An event that is passed to nothing but its destructor. */
pjrt_error *hrj_Device_CreateAsyncTrackingEvent(pjrt_args_tracking *args) {
  args->event = args->device;
  return NULL;
}

pjrt_error *hrj_AsyncTrackingEvent_Destroy(pjrt_args_self *args) {
  (void)args;
  return NULL;
}

/* Each execution has been recorded when its call returns: none waits that could be poisoned. */
pjrt_error *hrj_Device_PoisonExecution(pjrt_args_poison *args) {
  args->is_poisoned = false;
  return NULL;
}

/* Extensions of execute contexts, which are not there, would fill one. */
pjrt_error *hrj_ExecuteContext_Create(pjrt_args_self *args) {
  static char context;
  args->self = &context;
  return NULL;
}

pjrt_error *hrj_ExecuteContext_Destroy(pjrt_args_self *args) {
  (void)args;
  return NULL;
}

/* Devices read memory of the host without a mapping. */
pjrt_error *hrj_Client_DmaMap(pjrt_args_dma *args) {
  (void)args;
  return NULL;
}

pjrt_error *hrj_Client_DmaUnmap(pjrt_args_dma *args) {
  (void)args;
  return NULL;
}

/* A trim comes between calls that are given nothing. It must not wait for the device, whose work may wait for the
 * caller. */
enum { TRIM_BYTES = 64 << 20, TRIM_CALLS = 4 };

void hrj_device_note_given(pjrt_device *device, size_t bytes) {
  atomic_fetch_add(&device->given_bytes, (long long)bytes);
  atomic_store(&device->calls_since, 0);
}

void hrj_device_trim(pjrt_device *device) {
  if (atomic_load_explicit(&device->given_bytes, memory_order_relaxed) >= TRIM_BYTES &&
      atomic_fetch_add(&device->calls_since, 1) == TRIM_CALLS) {
    atomic_store(&device->given_bytes, 0);
    hr_host_memory_trim();
  }
}
