/* stream.c: creates and releases streams; statistics. */
#include "engine/stream.h"

#include <string.h>

#include "base/allocator.h"
#include "base/env.h"
#include "base/late.h"
#include "engine/algorithms.h"
#include "engine/compile_queue.h"
#include "engine/record_report.h"
#include "engine/records.h"
#include "runtime/cached_weights.h"
#include "runtime/counters.h"

#define CACHE_BYTES_MAX ((size_t)256 << 20)
#define CACHE_ONCE_BYTES_MAX ((size_t)16 << 20)
#define CACHE_COPY_BYTES_MAX ((size_t)2 << 20)

enum { FIRST_OPS_BESIDE_HOST = 32, LARGE_BYTES = 16 << 20 };
/* Work that takes some tenths of a second on a small machine. */
static const int64_t LONG_BYTES = INT64_C(2) << 30, LONG_FLOPS = INT64_C(40) * 1000 * 1000 * 1000;

/* A context's. */
typedef struct stream_numbers {
  atomic_uint_least32_t last;
} stream_numbers;

/* Reserves two numbers of the context's: this one and the next. */
static uint32_t take_numbers(hr_context *context) {
  static const hr_context_part kind = {
      .bytes = sizeof(stream_numbers), .begin_fork = hr__streams_begin_fork, .end_fork = hr__streams_end_fork};
  stream_numbers *numbers = hr__context_part(context, HR_CONTEXT_STREAMS, &kind);
  return atomic_fetch_add(&numbers->last, 2) + 1;
}

/* ---- life ---- */

static int64_t pending_bytes_max(hr_device *device) {
  int64_t wanted = hr_env_int(HR_ENV_PENDING_BYTES), unused = 0, total = 0;
  if (wanted == 0 && !device->properties.is_host) {
    device->driver->memory_info(device->impl, &unused, &total);
    wanted = total / 4;
  }
  return wanted > 0 ? wanted : INT64_C(2) << 30;
}

static size_t first_ops(const hr_device *device) {
  int64_t wanted = hr_env_int(HR_ENV_FIRST_OPS);
  return wanted > 0 ? (size_t)wanted : device->properties.is_host ? SIZE_MAX : FIRST_OPS_BESIDE_HOST;
}

/* The device's context is current: its settings apply. */
static hr_status create_stream(hr_device *device, bool is_capture, hr_stream **out_stream) {
  hr_stream *stream = hr_calloc(1, sizeof *stream);
  if (stream == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no host memory for a stream");
  }
  uint32_t number = take_numbers(device->context);
  hr_refcount_init(&stream->refcount);
  hr_mutex_init(&stream->threads_mutex);
  hr_mutex_init(&stream->mutex);
  hr_mutex_init(&stream->job_mutex);
  hr_device_retain(device);
  stream->device = device;
  stream->number = number;
  stream->policy = (hr_policy){.records_max = (size_t)hr_env_int(HR_ENV_PENDING_OPS),
                               .bytes_max = pending_bytes_max(device),
                               .first_ops = first_ops(device),
                               .large_bytes = LARGE_BYTES};
  stream->policy.next_ops = stream->policy.first_ops;
  stream->long_bytes = LONG_BYTES;
  stream->long_flops = LONG_FLOPS;
  stream->notes_indices = !device->properties.is_host;
  atomic_init(&stream->mode, hr_env_choice(HR_ENV_MODE));
  hr__trace_init(&stream->pending, number);
  hr__trace_init(&stream->rest, number);
  hr__trace_init(&stream->move, number + 1);
  stream->move.is_plain = true;
  stream->pending.single_max = stream->rest.single_max = stream->policy.bytes_max;
  stream->frees_live = hr_env_choice(HR_ENV_LAYOUTS) == HR_ENV_LAYOUTS_ALL;
  const hr_cache_limits limits = {.count = (size_t)hr_env_int(HR_ENV_CACHE_ENTRIES),
                                  .bytes = CACHE_BYTES_MAX,
                                  .once_bytes = CACHE_ONCE_BYTES_MAX,
                                  .copy_bytes = CACHE_COPY_BYTES_MAX};
  hr__cache_init(&stream->cache, &limits, &device->program_bytes);
  hr__records_join(device);
  hr__report_begin(device);
  stream->is_capture = is_capture;
  stream->lane = &device->lanes[0];
  if (!is_capture) {
    stream->lane = hr__lane_choose(device);
    hr__streams_join(stream);
  }
  *out_stream = stream;
  return HR_OK;
}

hr_status hr_stream_create(hr_device *device, hr_stream **out_stream) {
  return hr__stream_create(device, false, out_stream);
}

hr_status hr__stream_create(hr_device *device, bool is_capture, hr_stream **out_stream) {
  if (device == NULL || out_stream == NULL) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "hr_stream_create: NULL argument");
  }
  hr_context *before = hr__context_enter(device->context);
  hr_status status = create_stream(device, is_capture, out_stream);
  (void)hr__context_enter(before);
  return status;
}

void hr_stream_open_libraries(hr_stream *stream) {
  if (stream == NULL) {
    return;
  }
  hr_context *before = hr__context_enter(stream->device->context);
  hr__algorithms_open_early(stream->device);
  (void)hr__context_enter(before);
}

void hr_libraries_wait(void) {
  hr__algorithms_wait();
}

hr_device *hr_stream_device(const hr_stream *stream) {
  return stream->device;
}

void hr_stream_retain(hr_stream *stream) {
  if (stream != NULL) {
    hr_refcount_retain(&stream->refcount);
  }
}

/* Runs the pending records, because their results may be visible through buffers that live on. */
void hr_stream_release(hr_stream *stream) {
  if (stream == NULL || !hr_refcount_release(&stream->refcount)) {
    return;
  }
  if (!stream->is_capture) {
    hr_status_ignore(hr_stream_synchronize(stream));
    hr__streams_leave(stream);
    hr__lane_leave(stream->lane);
  }
  hr_vector_fini(&stream->part_buffers);
  hr__trace_fini(&stream->pending);
  hr__trace_fini(&stream->rest);
  hr__trace_fini(&stream->move);
  hr__cache_fini(&stream->cache);
  hr__stream_free_jobs(stream);
  hr_mutex_fini(&stream->job_mutex);
  hr_mutex_fini(&stream->mutex);
  hr_mutex_fini(&stream->threads_mutex);
  hr_device_release(stream->device);
  hr_free(stream);
}

hr_mode hr_stream_mode(const hr_stream *stream) {
  return (hr_mode)atomic_load_explicit(&((hr_stream *)stream)->mode, memory_order_relaxed);
}

/* ---- statistics ---- */

void hr_stream_stats_read(hr_stream *stream, size_t bytes, hr_stats *out_stats) {
  hr_mutex_lock(&stream->mutex);
  hr_stats stats = stream->stats;
  stats.cache_entries = (int64_t)stream->cache.count;
  stats.kernels_interpreted = stats.kernels - atomic_load(&stream->compiled_launches);
  stats.graph_launches = atomic_load(&stream->graph_launches);
  stats.graph_builds = atomic_load(&stream->graph_builds);
  stats.graph_updates = atomic_load(&stream->graph_updates);
  hr_jit_counts counts;
  hr_context *before = hr__context_enter(stream->device->context);
  hr__jit_counts(&counts);
  hr_late_counts late;
  hr__late_count(&late);
  stats.library_make_ns = late.made_ns;
  stats.library_wait_ns = late.waited_ns;
  stats.jit_compiled = counts.compiled;
  stats.jit_loaded = counts.loaded;
  stats.cached_weights_bytes = hr__cached_weights_bytes();
  (void)hr__context_enter(before);
  stats.jit_unable = counts.unable;
  stats.jit_ns = counts.compile_ns;
  stats.jit_waiting = counts.waiting;
  hr_mutex_unlock(&stream->mutex);
  hr__copy_fields(out_stats, bytes, &stats, sizeof stats);
}

void hr_stream_trim(hr_stream *stream) {
  hr_context *before = hr__context_enter(stream->device->context);
  hr_mutex_lock(&stream->mutex);
  hr__cache_trim(&stream->cache);
  hr_mutex_unlock(&stream->mutex);
  hr__providers_forget();
  hr_host_memory_trim();
  (void)hr__context_enter(before);
}

void hr_stream_reset_stats(hr_stream *stream) {
  hr_mutex_lock(&stream->mutex);
  stream->forgotten += stream->stats.operations;
  stream->stats = (hr_stats){0};
  atomic_store(&stream->compiled_launches, 0);
  atomic_store(&stream->graph_launches, 0);
  atomic_store(&stream->graph_builds, 0);
  atomic_store(&stream->graph_updates, 0);
  hr_mutex_unlock(&stream->mutex);
}
