#include "runtime/registry.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/env.h"
#include "base/log.h"
#include "runtime/buffer.h"

static const int64_t FORK_WAIT_NS = 200000000;

/* A context's devices. */
typedef struct registry {
  hr_mutex mutex;
  int device_count;
  hr_device devices[HR_REGISTRY_DEVICES_MAX];
} registry;

static void init_registry(void *part) {
  registry *open = part;
  (void)hr_log_is_on(HR_LOG_DEVICE); /* the log outlives the devices */
  hr_mutex_init(&open->mutex);
}

/* Waits for the devices' work. */
static void stop_registry(void *part) {
  registry *open = part;
  hr_mutex_lock(&open->mutex);
  for (int i = 0; i < open->device_count; ++i) {
    for (int j = 0; j < HR_LANES_MAX; ++j) {
      hr_queue_close(&open->devices[i].lanes[j].queue);
    }
  }
  hr_mutex_unlock(&open->mutex);
}

static void fini_registry(void *part) {
  registry *open = part;
  for (int i = 0; i < open->device_count; ++i) {
    hr_device *device = &open->devices[i];
    assert(device->count == 0);
    for (int j = 0; j < HR_LANES_MAX; ++j) {
      hr__lane_fini(&device->lanes[j]);
    }
    hr_caching_allocator_trim(&device->allocator);
    hr_mutex_fini(&device->streams_mutex);
    hr_mutex_fini(&device->bind_mutex);
    hr_mutex_fini(&device->order_mutex);
    device->driver->close(device->impl);
  }
  hr_mutex_fini(&open->mutex);
}

/* In FORK_WAIT_NS other threads end their calls. They can't begin new ones, because the streams are locked. */
static void begin_fork(void *part) {
  registry *open = part;
  int64_t deadline_ns = hr_clock_ns() + FORK_WAIT_NS;
  hr_mutex_lock(&open->mutex);
  hr__buffers_begin_fork();
  for (int i = 0; i < open->device_count; ++i) {
    hr_device *device = &open->devices[i];
    bool is_quiet = device->streams == NULL || device->is_quiet;
    device->is_held = is_quiet && hr__device_begin_fork(device, deadline_ns);
  }
}

/* Contexts of drivers beside the host don't survive a fork. */
static void end_fork(void *part, bool is_child) {
  registry *open = part;
  for (int i = 0; i < open->device_count; ++i) {
    hr_device *device = &open->devices[i];
    if (device->is_held) {
      hr__device_end_fork(device, is_child);
    }
    if (is_child && !(device->is_held && device->properties.is_host)) {
      hr__device_lose(device);
    }
  }
  hr__buffers_end_fork();
  hr_mutex_unlock(&open->mutex);
}

static registry *registry_of(hr_context *context) {
  static const hr_context_part kind = {.bytes = sizeof(registry),
                                       .init = init_registry,
                                       .stop = stop_registry,
                                       .fini = fini_registry,
                                       .begin_fork = begin_fork,
                                       .end_fork = end_fork};
  return hr__context_part(context, HR_CONTEXT_DEVICES, &kind);
}

hr_device *hr__registry_device(int index) {
  registry *open = registry_of(hr__context());
  hr_mutex_lock(&open->mutex);
  hr_device *device = index < open->device_count ? &open->devices[index] : NULL;
  hr_mutex_unlock(&open->mutex);
  return device;
}

static hr_status unknown_name(const char *name) {
  char known[256] = "";
  for (int i = 0; hr_drivers[i] != NULL; ++i) {
    size_t used = strlen(known);
    snprintf(known + used, sizeof known - used, "%s%s", i > 0 ? ", " : "", hr_drivers[i]->name);
  }
  return hr_status_make(HR_STATUS_NOT_FOUND, "device \"%.64s\": no such driver; this build has %s", name, known);
}

static hr_status no_such_ordinal(const char *name, const hr_driver *driver, int count) {
  hr_status why = count == 0 && driver->why_none != NULL ? driver->why_none() : HR_OK;
  hr_status status =
      hr_status_make(HR_STATUS_NOT_FOUND, "device \"%.64s\": driver \"%s\" has %d devices%s%s", name, driver->name,
                     count, why != HR_OK ? ": " : "", why != HR_OK ? hr_status_message(why) : "");
  hr_status_ignore(why);
  return status;
}

static const hr_driver *find_driver(const char *name, size_t length) {
  for (int i = 0; hr_drivers[i] != NULL; ++i) {
    if (strlen(hr_drivers[i]->name) == length && memcmp(hr_drivers[i]->name, name, length) == 0) {
      return hr_drivers[i];
    }
  }
  return NULL;
}

hr_status hr_device_count(const char *name, int *out_count) {
  if (name == NULL || out_count == NULL) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "hr_device_count: NULL argument");
  }
  const hr_driver *driver = find_driver(name, strcspn(name, ":"));
  if (driver == NULL) {
    return unknown_name(name);
  }
  *out_count = driver->count();
  return HR_OK;
}

hr_status hr__registry_find(const char *name, const hr_driver **out_driver, int *out_ordinal) {
  size_t length = strcspn(name, ":");
  const hr_driver *driver = find_driver(name, length);
  if (driver == NULL) {
    return unknown_name(name);
  }
  long ordinal = 0;
  if (name[length] == ':') {
    char *end;
    ordinal = strtol(name + length + 1, &end, 10);
    if (end == name + length + 1 || *end != '\0') {
      return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "device \"%.64s\": expected a number behind the colon", name);
    }
  }
  int count = driver->count();
  if (ordinal < 0 || ordinal >= count) {
    return no_such_ordinal(name, driver, count);
  }
  *out_driver = driver;
  *out_ordinal = (int)ordinal;
  return HR_OK;
}

static int lanes_of(const hr_device_properties *properties) {
  int64_t wanted = hr_env_int(HR_ENV_LANES), most = properties->lanes < HR_LANES_MAX ? properties->lanes : HR_LANES_MAX;
  return wanted > 0 && wanted < most ? (int)wanted : (int)most;
}

/* Called with the registry locked. */
static hr_status open_device(registry *open, const hr_driver *driver, int ordinal, hr_device **out_device) {
  for (int i = 0; i < open->device_count; ++i) {
    if (open->devices[i].driver == driver && open->devices[i].ordinal == ordinal) {
      HR_RETURN_IF_ERROR(hr__device_check(&open->devices[i], "hr_device_open"));
      ++open->devices[i].count;
      *out_device = &open->devices[i];
      return HR_OK;
    }
  }
  if (open->device_count == HR_REGISTRY_DEVICES_MAX) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "at most %d devices can be open", HR_REGISTRY_DEVICES_MAX);
  }
  hr_device *device = &open->devices[open->device_count];
  HR_RETURN_IF_ERROR(driver->open(ordinal, &device->impl));
  device->context = hr__context();
  device->driver = driver;
  device->ordinal = ordinal;
  device->count = 1;
  snprintf(device->name, sizeof device->name, ordinal > 0 ? "%s:%d" : "%s", driver->name, ordinal);
  driver->properties(device->impl, &device->properties);
  int64_t free_bytes, total_bytes;
  driver->memory_info(device->impl, &free_bytes, &total_bytes);
  hr_caching_allocator_init(&device->allocator, driver, device->impl, device->name,
                            hr_env_limit(HR_ENV_MEMORY_LIMIT, total_bytes));
  for (int i = 0; i < HR_LANES_MAX; ++i) {
    hr__lane_init(&device->lanes[i], device, i);
  }
  device->lanes[0].impl = device->impl;
  device->lanes_max = lanes_of(&device->properties);
  hr_mutex_init(&device->streams_mutex);
  hr_mutex_init(&device->bind_mutex);
  hr_mutex_init(&device->order_mutex);
  ++open->device_count;
  hr_log(HR_LOG_DEVICE, "device %s: %s, %d workers, %lld MB of %lld free", device->name, device->properties.description,
         device->properties.workers, (long long)(free_bytes >> 20), (long long)(total_bytes >> 20));
  *out_device = device;
  return HR_OK;
}

hr_status hr_device_open(const char *name, hr_device **out_device) {
  if (name == NULL || out_device == NULL) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "hr_device_open: NULL argument");
  }
  const hr_driver *driver;
  int ordinal;
  HR_RETURN_IF_ERROR(hr__registry_find(name, &driver, &ordinal));
  registry *open = registry_of(hr__context());
  hr_mutex_lock(&open->mutex);
  hr_status status = open_device(open, driver, ordinal, out_device);
  hr_mutex_unlock(&open->mutex);
  return hr_status_annotate(status, "device \"%.64s\"", name);
}

void hr_device_retain(hr_device *device) {
  if (device != NULL) {
    registry *open = registry_of(device->context);
    hr_mutex_lock(&open->mutex);
    ++device->count;
    hr_mutex_unlock(&open->mutex);
  }
}

void hr_device_release(hr_device *device) {
  if (device == NULL) {
    return;
  }
  registry *open = registry_of(device->context);
  hr_mutex_lock(&open->mutex);
  if (--device->count == 0) {
    for (int i = 0; i < HR_LANES_MAX; ++i) {
      hr_queue_stop(&device->lanes[i].queue);
    }
    hr__device_release_shared(device);
    hr_caching_allocator_trim(&device->allocator);
  }
  hr_mutex_unlock(&open->mutex);
}
