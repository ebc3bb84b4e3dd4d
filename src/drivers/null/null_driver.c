/* The null driver: every member of the table, implemented with counters only.
 *
 * Use this file as the template of a new driver. It also times the stack without a device: all measured cost is
 * Headrace's own. Memory is mapped and never touched, so that addresses are real, reads give zeros and a terabyte costs
 * nothing.
 */
#include "drivers/null/null_driver.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

#include "base/allocator.h"

#ifndef MAP_NORESERVE
#define MAP_NORESERVE 0
#endif

#define MEMORY_BYTES ((int64_t)64 << 30)

typedef struct null_device {
  hr_mutex mutex; /* allocate and free are called from any thread */
  hr_null_counters counters;
  atomic_int_least64_t calls; /* of libraries: many in a step, so they are counted without the lock */
} null_device;

static int null_count(void) {
  return 1;
}

static hr_status null_open(int ordinal, void **out_impl) {
  (void)ordinal;
  null_device *device = hr_calloc(1, sizeof *device);
  if (device == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "null: no host memory");
  }
  hr_mutex_init(&device->mutex);
  *out_impl = device;
  return HR_OK;
}

static void null_close(void *impl) {
  null_device *device = impl;
  hr_mutex_fini(&device->mutex);
  hr_free(device);
}

static void null_properties(void *impl, hr_device_properties *out_properties) {
  (void)impl;
  *out_properties = (hr_device_properties){
      .description = "accounts for everything, computes nothing", .workers = 1, .is_host = true, .has_contents = false};
}

static void null_memory_info(void *impl, int64_t *out_free_bytes, int64_t *out_total_bytes) {
  null_device *device = impl;
  hr_mutex_lock(&device->mutex);
  *out_free_bytes = MEMORY_BYTES - device->counters.bytes_allocated;
  hr_mutex_unlock(&device->mutex);
  *out_total_bytes = MEMORY_BYTES;
}

static hr_status null_allocate(void *impl, size_t bytes, void **out_address) {
  null_device *device = impl;
  hr_status status = HR_OK;
  hr_mutex_lock(&device->mutex);
  if ((int64_t)bytes > MEMORY_BYTES - device->counters.bytes_allocated) {
    status = hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "null: %zu bytes requested, %lld free", bytes,
                            (long long)(MEMORY_BYTES - device->counters.bytes_allocated));
  } else {
    void *address = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (address == MAP_FAILED) {
      status = hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "null: can't map %zu bytes: %s", bytes, strerror(errno));
    } else {
      ++device->counters.allocations;
      device->counters.bytes_allocated += (int64_t)bytes;
      *out_address = address;
    }
  }
  hr_mutex_unlock(&device->mutex);
  return status;
}

static void null_free(void *impl, void *address, size_t bytes) {
  null_device *device = impl;
  munmap(address, bytes);
  hr_mutex_lock(&device->mutex);
  ++device->counters.frees;
  device->counters.bytes_allocated -= (int64_t)bytes;
  hr_mutex_unlock(&device->mutex);
}

static void count_copy(null_device *device, size_t bytes) {
  hr_mutex_lock(&device->mutex);
  ++device->counters.copies;
  device->counters.bytes_copied += (int64_t)bytes;
  hr_mutex_unlock(&device->mutex);
}

static hr_status null_copy_in(void *impl, void *to, const void *host, size_t bytes) {
  (void)to, (void)host;
  count_copy(impl, bytes);
  return HR_OK;
}

static hr_status null_copy_out(void *impl, void *host, const void *from, size_t bytes) {
  (void)from;
  memset(host, 0, bytes);
  count_copy(impl, bytes);
  return HR_OK;
}

static hr_status null_copy_within(void *impl, void *to, const void *from, size_t bytes) {
  (void)to, (void)from;
  count_copy(impl, bytes);
  return HR_OK;
}

static hr_status null_fill(void *impl, void *to, const void *pattern, size_t pattern_bytes, size_t count) {
  null_device *device = impl;
  (void)to, (void)pattern, (void)pattern_bytes, (void)count;
  hr_mutex_lock(&device->mutex);
  ++device->counters.fills;
  hr_mutex_unlock(&device->mutex);
  return HR_OK;
}

static hr_status null_launch(void *impl, int count, const hr_host_launch *launches) {
  null_device *device = impl;
  hr_mutex_lock(&device->mutex);
  ++device->counters.launches;
  device->counters.kernels += count;
  for (int i = 0; i < count; ++i) {
    device->counters.passes += launches[i].kernel->pass_count;
  }
  hr_mutex_unlock(&device->mutex);
  return HR_OK;
}

static hr_status null_call(void *impl, hr_host_fn fn, void *arg) {
  null_device *device = impl;
  (void)fn, (void)arg;
  atomic_fetch_add_explicit(&device->calls, 1, memory_order_relaxed);
  return HR_OK;
}

/* ---- graphs: nothing has run, so nothing has to be kept ---- */

static hr_status null_capture_begin(void *impl, void **out_queue) {
  *out_queue = impl;
  return HR_OK;
}

static hr_status null_capture_end(void *impl, void **out_graph) {
  null_device *device = impl;
  void *graph = out_graph != NULL ? hr_calloc(1, sizeof(int)) : NULL;
  if (out_graph != NULL && graph == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "null: no host memory for a graph");
  }
  hr_mutex_lock(&device->mutex);
  ++device->counters.captures;
  device->counters.graphs += graph != NULL;
  hr_mutex_unlock(&device->mutex);
  if (graph != NULL) {
    *out_graph = graph;
  }
  return HR_OK;
}

static hr_status null_graph_update(void *impl, void *graph, int index, const hr_host_launch *launch) {
  null_device *device = impl;
  (void)graph, (void)index, (void)launch;
  hr_mutex_lock(&device->mutex);
  ++device->counters.graph_updates;
  hr_mutex_unlock(&device->mutex);
  return HR_OK;
}

static hr_status null_graph_launch(void *impl, void *graph) {
  null_device *device = impl;
  (void)graph;
  hr_mutex_lock(&device->mutex);
  ++device->counters.graph_launches;
  hr_mutex_unlock(&device->mutex);
  return HR_OK;
}

static void null_graph_destroy(void *impl, void *graph) {
  null_device *device = impl;
  hr_mutex_lock(&device->mutex);
  device->counters.graphs -= graph != NULL;
  hr_mutex_unlock(&device->mutex);
  hr_free(graph);
}

/* ---- waiting and events ---- */

static hr_status null_submit(void *impl) {
  (void)impl;
  return HR_OK;
}

static hr_status null_flush(void *impl) {
  (void)impl;
  return HR_OK;
}

static hr_status null_event_create(void *impl, void **out_event) {
  (void)impl;
  *out_event = hr_calloc(1, sizeof(int64_t));
  return *out_event != NULL ? HR_OK : hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "null: no host memory for an event");
}

static void null_event_destroy(void *impl, void *event) {
  (void)impl;
  hr_free(event);
}

static hr_status null_event_record(void *impl, void *event) {
  (void)impl;
  *(int64_t *)event = hr_clock_ns();
  return HR_OK;
}

static hr_status null_event_wait(void *impl, void *event) {
  (void)impl, (void)event;
  return HR_OK;
}

static hr_status null_event_elapsed(void *impl, void *begin, void *end, int64_t *out_ns) {
  (void)impl;
  if (*(int64_t *)begin == 0 || *(int64_t *)end == 0) {
    return hr_status_make(HR_STATUS_FAILED_PRECONDITION, "null: elapsed time of an event that was never recorded");
  }
  *out_ns = *(int64_t *)end - *(int64_t *)begin;
  return HR_OK;
}

static int64_t null_timestamp(void *impl) {
  (void)impl;
  return hr_clock_ns();
}

void hr_null_counters_get(void *impl, hr_null_counters *out_counters) {
  null_device *device = impl;
  hr_mutex_lock(&device->mutex);
  *out_counters = device->counters;
  hr_mutex_unlock(&device->mutex);
  out_counters->calls = atomic_load_explicit(&device->calls, memory_order_relaxed);
}

const hr_driver hr_null_driver = {
    .name = "null",
    .count = null_count,
    .open = null_open,
    .close = null_close,
    .properties = null_properties,
    .memory_info = null_memory_info,
    .allocate = null_allocate,
    .free = null_free,
    .copy_in = null_copy_in,
    .copy_out = null_copy_out,
    .copy_within = null_copy_within,
    .fill = null_fill,
    .launch = null_launch,
    .call = null_call,
    .capture_begin = null_capture_begin,
    .capture_end = null_capture_end,
    .graph_update = null_graph_update,
    .graph_launch = null_graph_launch,
    .graph_destroy = null_graph_destroy,
    .submit = null_submit,
    .flush = null_flush,
    .event_create = null_event_create,
    .event_destroy = null_event_destroy,
    .event_record = null_event_record,
    .event_wait = null_event_wait,
    .event_elapsed = null_event_elapsed,
    .timestamp = null_timestamp,
};
