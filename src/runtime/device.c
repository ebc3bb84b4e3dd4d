#include "runtime/device.h"

#include "runtime/counters.h"

const char *hr_device_name(const hr_device *device) {
  return device->name;
}

void *hr_device_queue(const hr_device *device) {
  return device->driver->native != NULL ? device->driver->native(device->impl) : NULL;
}

void hr_device_describe_read(const hr_device *device, size_t bytes, hr_device_info *out_info) {
  int64_t free_bytes, total_bytes;
  device->driver->memory_info(device->impl, &free_bytes, &total_bytes);
  const hr_device_info info = {.driver = device->driver->name,
                               .description = device->properties.description,
                               .ordinal = device->ordinal,
                               .workers = device->properties.workers,
                               .is_host = device->properties.is_host,
                               .total_bytes = total_bytes};
  hr__copy_fields(out_info, bytes, &info, sizeof info);
}

void hr_device_memory_stats_read(hr_device *device, size_t bytes, hr_memory_stats *out_stats) {
  hr_memory_stats stats;
  hr_caching_allocator_stats(&device->allocator, &stats);
  device->driver->memory_info(device->impl, &stats.device_free_bytes, &stats.device_total_bytes);
  stats.program_bytes = atomic_load_explicit(&device->program_bytes, memory_order_relaxed);
  hr__copy_fields(out_stats, bytes, &stats, sizeof stats);
}

void hr_device_memory_reset_peak(hr_device *device) {
  hr_caching_allocator_reset_peak(&device->allocator);
}

void hr_device_memory_gauges_read(hr_device *device, size_t bytes, hr_memory_gauges *out_gauges) {
  hr_memory_gauges gauges;
  hr_caching_allocator_gauges(&device->allocator, &gauges);
  hr__copy_fields(out_gauges, bytes, &gauges, sizeof gauges);
}

void hr_device_memory_reset_totals(hr_device *device) {
  hr_caching_allocator_reset_totals(&device->allocator);
}

void hr_device_memory_observe(hr_device *device, void (*observe)(void *arg, const hr_memory_event *event), void *arg) {
  hr_caching_allocator_observe(&device->allocator, observe, arg);
  atomic_store_explicit(&device->is_observed, observe != NULL, memory_order_relaxed);
}

void hr_device_memory_walk(hr_device *device, void (*visit)(void *arg, const hr_memory_block *block), void *arg) {
  hr_caching_allocator_walk(&device->allocator, visit, arg);
}

void hr_device_memory_limit(hr_device *device, int64_t bytes) {
  hr_caching_allocator_limit(&device->allocator, bytes);
}

void hr_device_memory_trim(hr_device *device) {
  if (device->properties.is_host) { /* graphs of other devices have its addresses */
    hr__device_release_shared(device);
  }
  hr_caching_allocator_trim(&device->allocator);
}

/* Growing lengths need a little more each time. On a host pages that nothing touches cost nothing, so a larger block
 * gets room for later ones. */
static hr_status grow_shared(hr_device *device, size_t bytes) {
  size_t room = device->shared != NULL && device->properties.is_host ? bytes / 4 : 0;
  hr_caching_allocator_give_back(&device->allocator, device->shared);
  device->shared = NULL;
  hr_status status = hr_caching_allocator_alloc(&device->allocator, bytes + room, &device->shared);
  if (room > 0 && hr_status_code_of(status) == HR_STATUS_RESOURCE_EXHAUSTED) {
    hr_status_free(status);
    status = hr_caching_allocator_alloc(&device->allocator, bytes, &device->shared);
  }
  return status;
}

hr_status hr__device_shared(hr_device *device, size_t bytes, void **out_address) {
  if (bytes > 0 && (device->shared == NULL || device->shared->bytes < bytes)) {
    hr_queue_drain(&device->queue);
    HR_RETURN_IF_ERROR(grow_shared(device, bytes));
  }
  *out_address = device->shared != NULL ? device->shared->address : NULL;
  return HR_OK;
}

void hr__device_release_shared(hr_device *device) {
  hr_mutex_lock(&device->shared_mutex);
  hr_queue_drain(&device->queue);
  hr_caching_allocator_free(&device->allocator, device->shared);
  device->shared = NULL;
  hr_mutex_unlock(&device->shared_mutex);
}
