/* stream_fork.c: streams in a process that forks (base/fork.h).
 *
 * The process waits until the work of each device has ended, and locks its streams. So a child has the values of all
 * work that was handed over, none of it runs twice, and its own work needs nothing of the parent. What was recorded but
 * not handed over is in both processes, which run it when they need it.
 *
 * The wait has a bound, because the work may need what the forking thread holds (Python's lock, for example), or may
 * not end. A child of a device that was still busy gets errors from it. So does each child of a device beside the host,
 * whose driver's state does not survive a fork.
 */
#include "engine/stream.h"
#include "runtime/registry.h"

static const int64_t FORK_WAIT_NS = 1000000000;

/* No other lock is taken while a thread has these. */
static void lock_jobs(const hr_device *device) {
  for (hr_stream *stream = device->streams; stream != NULL; stream = stream->next) {
    hr_mutex_lock(&stream->job_mutex);
  }
}

static void unlock_jobs(const hr_device *device) {
  for (hr_stream *stream = device->streams; stream != NULL; stream = stream->next) {
    hr_mutex_unlock(&stream->job_mutex);
  }
}

/* Unlocks the device's streams up to `end`, and the list. */
static void unlock_streams(hr_device *device, const hr_stream *end) {
  for (hr_stream *stream = device->streams; stream != end; stream = stream->next) {
    hr_mutex_unlock(&stream->mutex);
  }
  hr_mutex_unlock(&device->streams_mutex);
}

static bool lock_streams(hr_device *device, int64_t deadline_ns) {
  if (!hr__mutex_lock_until(&device->streams_mutex, deadline_ns)) {
    return false;
  }
  for (hr_stream *stream = device->streams; stream != NULL; stream = stream->next) {
    if (!hr__mutex_lock_until(&stream->mutex, deadline_ns)) {
      unlock_streams(device, stream);
      return false;
    }
  }
  return true;
}

void hr__streams_begin_fork(void *part) {
  (void)part;
  int64_t deadline_ns = hr_clock_ns() + FORK_WAIT_NS;
  hr_device *device;
  for (int i = 0; (device = hr__registry_device(i)) != NULL; ++i) {
    device->is_quiet = lock_streams(device, deadline_ns);
    if (device->is_quiet && !hr__device_drain_until(device, deadline_ns)) {
      unlock_streams(device, NULL);
      device->is_quiet = false;
    }
    if (device->is_quiet) {
      lock_jobs(device);
    }
  }
}

/* In a child whose device is lost, other threads may have had the streams. */
static void forget(hr_device *device) {
  hr_mutex_init(&device->streams_mutex);
  for (hr_stream *stream = device->streams; stream != NULL; stream = stream->next) {
    hr_mutex_init(&stream->mutex);
    hr_mutex_init(&stream->job_mutex);
  }
}

void hr__streams_end_fork(void *part, bool is_child) {
  (void)part;
  hr_device *device;
  for (int i = 0; (device = hr__registry_device(i)) != NULL; ++i) {
    if (device->is_quiet) {
      unlock_jobs(device);
      unlock_streams(device, NULL);
    }
    if (is_child && device->is_lost) {
      forget(device);
    }
    device->is_quiet = false;
  }
}
