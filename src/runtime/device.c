#include "runtime/device.h"

#include "base/allocator.h"
#include "runtime/counters.h"

const char *hr_device_name(const hr_device *device) {
  return device->name;
}

void *hr_device_queue(const hr_device *device) {
  return device->driver->native != NULL ? device->driver->native(device->impl) : NULL;
}

/* Read once: on the host it takes 20 us. */
static int64_t total_bytes_of(hr_device *device) {
  int64_t free_bytes, total_bytes = atomic_load_explicit(&device->total_bytes, memory_order_relaxed);
  if (total_bytes == 0) {
    device->driver->memory_info(device->impl, &free_bytes, &total_bytes);
    atomic_store_explicit(&device->total_bytes, total_bytes, memory_order_relaxed);
  }
  return total_bytes;
}

void hr_device_describe_read(const hr_device *device, size_t bytes, hr_device_info *out_info) {
  int64_t total_bytes = total_bytes_of((hr_device *)(uintptr_t)device); /* a cache of the device's */
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
  stats.temporary_bytes = atomic_load_explicit(&device->lane_bytes, memory_order_relaxed);
  stats.heap_bytes = (int64_t)hr_heap_bytes();
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
  if (device->properties.is_host) { /* small blocks are the heap's */
    hr_host_memory_trim();
  }
}

void hr__device_drain(hr_device *device) {
  for (int i = 0; i < HR_LANES_MAX; ++i) {
    hr_queue_drain(&device->lanes[i].queue);
  }
}

hr_status hr__device_flush(hr_device *device) {
  hr_status status = HR_OK;
  for (int i = 0; i < HR_LANES_MAX && status == HR_OK; ++i) {
    status = device->lanes[i].impl != NULL ? hr__lane_flush(&device->lanes[i]) : HR_OK;
  }
  return status;
}

void hr__device_settle(hr_device *device) {
  for (int i = 0; i < HR_LANES_MAX; ++i) {
    hr_queue_settle(&device->lanes[i].queue);
  }
}

/* ---- forks ---- */

hr_status hr__device_check(const hr_device *device, const char *what) {
  return !device->is_lost
             ? HR_OK
             : hr_status_make(HR_STATUS_FAILED_PRECONDITION,
                              "%s: device \"%s\" works in the parent of this forked process%s: start processes with "
                              "\"spawn\" or \"forkserver\" instead",
                              what, device->name, device->properties.is_host ? ", and was busy when it forked" : "");
}

bool hr__device_drain_until(hr_device *device, int64_t deadline_ns) {
  bool is_drained = true;
  for (int i = 0; i < HR_LANES_MAX && is_drained; ++i) {
    is_drained = hr_queue_begin_fork(&device->lanes[i].queue, deadline_ns);
    if (is_drained) {
      hr_queue_end_fork(&device->lanes[i].queue, false);
    }
  }
  return is_drained;
}

enum { FORK_MUTEXES = HR_LANES_MAX + 3 };

/* Those of a device, in the order in which they are locked. */
static hr_mutex *fork_mutex(hr_device *device, int i) {
  hr_mutex *others[] = {&device->order_mutex, &device->bind_mutex, &device->allocator.mutex};
  return i < HR_LANES_MAX ? &device->lanes[i].mutex : others[i - HR_LANES_MAX];
}

static void unlock_fork(hr_device *device, int mutexes, int queues, bool is_child) {
  while (queues-- > 0) {
    hr_queue_end_fork(&device->lanes[queues].queue, is_child);
  }
  while (mutexes-- > 0) {
    hr_mutex_unlock(fork_mutex(device, mutexes));
  }
}

bool hr__device_begin_fork(hr_device *device, int64_t deadline_ns) {
  int mutexes = 0, queues = 0;
  while (mutexes < FORK_MUTEXES && hr__mutex_lock_until(fork_mutex(device, mutexes), deadline_ns)) {
    ++mutexes;
  }
  while (mutexes == FORK_MUTEXES && queues < HR_LANES_MAX &&
         hr_queue_begin_fork(&device->lanes[queues].queue, deadline_ns)) {
    ++queues;
  }
  bool is_locked = queues == HR_LANES_MAX;
  if (!is_locked) {
    unlock_fork(device, mutexes, queues, false);
  }
  return is_locked;
}

void hr__device_end_fork(hr_device *device, bool is_child) {
  unlock_fork(device, FORK_MUTEXES, HR_LANES_MAX, is_child);
}

void hr__device_lose(hr_device *device) {
  device->is_lost = true;
  for (int i = 0; i < FORK_MUTEXES; ++i) {
    hr_mutex_init(fork_mutex(device, i));
  }
  for (int i = 0; i < HR_LANES_MAX; ++i) {
    hr_queue_lose(&device->lanes[i].queue);
    atomic_store(&device->lanes[i].reached, device->lanes[i].handed);
  }
}

void hr__device_lock_lanes(hr_device *device) {
  for (int i = 0; i < HR_LANES_MAX; ++i) {
    hr_mutex_lock(&device->lanes[i].mutex);
  }
  hr_mutex_lock(&device->order_mutex);
}

void hr__device_unlock_lanes(hr_device *device) {
  hr_mutex_unlock(&device->order_mutex);
  for (int i = HR_LANES_MAX; i-- > 0;) {
    hr_mutex_unlock(&device->lanes[i].mutex);
  }
}

void hr__device_release_shared(hr_device *device) {
  for (int i = 0; i < HR_LANES_MAX; ++i) {
    hr_lane *lane = &device->lanes[i];
    hr_mutex_lock(&lane->mutex);
    hr__lane_free_shared(lane);
    hr_mutex_unlock(&lane->mutex);
  }
}
