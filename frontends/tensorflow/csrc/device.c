/* device.c: the platform, its devices, and their streams, events and copies. plugin.h tells how they map. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plugin.h"

static char refusal[256];

bool htf_is_ready(void) {
  static atomic_int state; /* 0: unknown, 1: ready, 2: refused */
  if (atomic_load(&state) == 0) {
    bool is_ready = tf_resolve(sizeof refusal, refusal);
    atomic_store(&state, is_ready ? 1 : 2);
    if (!is_ready) {
      fprintf(stderr, "headrace: no device HEADRACE: %s\n", refusal);
    }
  }
  return atomic_load(&state) == 1;
}

/* ---- forks ---- */

static atomic_bool is_forked, has_said;

static void note_fork(void) {
  atomic_store(&is_forked, true);
}

static void register_fork(void) {
  (void)pthread_atfork(NULL, NULL, note_fork);
}

static void watch_forks(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, register_fork);
}

hr_status htf_check_process(void) {
  static const char why[] =
      "headrace: this process was forked from one that uses the device HEADRACE, and TensorFlow's "
      "threads did not come along. Start it by spawn instead, or fork before the first use";
  if (!atomic_load_explicit(&is_forked, memory_order_relaxed)) {
    return HR_OK;
  }
  if (!atomic_exchange(&has_said, true)) {
    fprintf(stderr, "%s\n", why);
  }
  return hr_status_make(HR_STATUS_FAILED_PRECONDITION, "%s", why);
}

/* HEADRACE_DEVICE names the driver, which TensorFlow's devices are those of. */
static const char *driver_name(void) {
  const char *name = getenv("HEADRACE_DEVICE");
  return name != NULL && *name != '\0' ? name : "cpu";
}

/* ---- streams and events ---- */

static void create_stream(const tf_device *device, tf_stream **out_stream, tf_status *status) {
  tf_stream *stream = malloc(sizeof *stream);
  if (stream == NULL) {
    tf.SetStatus(status, HR_STATUS_RESOURCE_EXHAUSTED, "headrace: no memory for a stream");
    return;
  }
  stream->device = device->handle;
  *out_stream = stream;
}

static void destroy_stream(const tf_device *device, tf_stream *stream) {
  (void)device;
  free(stream);
}

static void stream_waits_for(const tf_device *device, tf_stream *dependent, tf_stream *other, tf_status *status) {
  (void)device, (void)dependent, (void)other, (void)status;
}

static void stream_status(const tf_device *device, tf_stream *stream, tf_status *status) {
  (void)device, (void)stream, (void)status;
}

/* All events are one object, which is complete. */
static void create_event(const tf_device *device, tf_event **out_event, tf_status *status) {
  static char event;
  (void)device, (void)status;
  *out_event = (tf_event *)&event;
}

static void destroy_event(const tf_device *device, tf_event *event) {
  (void)device, (void)event;
}

static tf_event_status event_status(const tf_device *device, tf_event *event) {
  (void)device, (void)event;
  return TF_EVENT_COMPLETE;
}

static void record_event(const tf_device *device, tf_stream *stream, tf_event *event, tf_status *status) {
  (void)device, (void)stream, (void)event, (void)status;
}

void htf_synchronize(htf_device *device) {
  if (!hr_stream_finish_short(device->stream)) {
    hr_status failure = hr_stream_synchronize(device->stream);
    if (failure != HR_OK) {
      hr_status_free(atomic_exchange(&device->failure, failure));
    }
  }
}

/* TensorFlow synchronizes before each copy to the host, and reports a failure without its code and message. So it is
 * kept for the copy. */
static void synchronize(const tf_device *device, tf_status *status) {
  (void)status;
  htf_synchronize(device->handle);
}

/* True if work has failed, which is reported. */
static bool has_failed(htf_device *device, tf_status *status) {
  bool may_fail = atomic_load_explicit(&device->failure, memory_order_relaxed) != HR_OK;
  return may_fail && htf_fails(atomic_exchange(&device->failure, HR_OK), status);
}

static void wait_event(const tf_device *device, tf_event *event, tf_status *status) {
  (void)event;
  synchronize(device, status);
}

static void wait_stream(const tf_device *device, tf_stream *stream, tf_status *status) {
  (void)stream;
  synchronize(device, status);
}

static tf_bool call_host(const tf_device *device, tf_stream *stream, void (*function)(void *, tf_status *), void *arg) {
  (void)stream;
  tf_status *status = tf.NewStatus();
  synchronize(device, status);
  function(arg, status);
  tf.DeleteStatus(status);
  return 1;
}

/* Timers measure nothing; the profiler (profiler.c) has the times of kernels. */
static void create_timer(const tf_device *device, tf_timer **out_timer, tf_status *status) {
  static char timer;
  (void)device, (void)status;
  *out_timer = (tf_timer *)&timer;
}

static void destroy_timer(const tf_device *device, tf_timer *timer) {
  (void)device, (void)timer;
}

static void use_timer(const tf_device *device, tf_stream *stream, tf_timer *timer, tf_status *status) {
  (void)device, (void)stream, (void)timer, (void)status;
}

static uint64_t timer_ns(tf_timer *timer) {
  (void)timer;
  return 0;
}

/* ---- copies ---- */

/* The bytes of a tensor's memory, as a view with a reference to its buffer. */
static hr_status view_bytes(const tf_memory *memory, const int64_t *bytes, hr_view *out_view) {
  static const int64_t stride = 1;
  size_t offset = 0;
  hr_buffer *buffer = hr_buffer_from_handle(memory->address, &offset);
  if (buffer == NULL) {
    return hr_status_make(HR_STATUS_INTERNAL, "headrace: %p is no memory of the device", memory->address);
  }
  *out_view = (hr_view){
      .buffer = buffer, .dtype = HR_DTYPE_U8, .rank = 1, .offset = (int64_t)offset, .dims = bytes, .strides = &stride};
  return HR_OK;
}

static void copy_out_now(const tf_device *device, void *target, const tf_memory *source, uint64_t bytes,
                         tf_status *status) {
  htf_device *self = device->handle;
  int64_t count = (int64_t)bytes;
  hr_view view;
  if (htf_fails(htf_check_process(), status)) {
    return;
  }
  if (bytes == 0 || has_failed(self, status) || htf_fails(view_bytes(source, &count, &view), status)) {
    return;
  }
  (void)htf_fails(hr_stream_read(self->stream, &view, target), status);
  hr_buffer_release(view.buffer);
}

static void copy_in_now(const tf_device *device, tf_memory *target, const void *source, uint64_t bytes,
                        tf_status *status) {
  htf_device *self = device->handle;
  int64_t count = (int64_t)bytes;
  hr_view view;
  if (htf_fails(htf_check_process(), status)) {
    return;
  }
  if (bytes == 0 || htf_fails(view_bytes(target, &count, &view), status)) {
    return;
  }
  (void)htf_fails(hr_stream_write(self->stream, &view, source), status);
  hr_buffer_release(view.buffer);
}

/* Between two devices it waits for the source's work. */
static hr_status copy_bytes(const hr_view *from, const hr_view *to) {
  const htf_device *source = htf_device_of(from->buffer), *target = htf_device_of(to->buffer);
  if (source == NULL || target == NULL) {
    return hr_status_make(HR_STATUS_INTERNAL, "headrace: a copy from or to a device that is gone");
  }
  return source == target ? hr_stream_record(target->stream, HR_OP_COPY, NULL, 1, from, 1, to)
                          : hr_stream_write_from(target->stream, to, source->stream, from);
}

static void copy_now(const tf_device *device, tf_memory *target, const tf_memory *source, uint64_t bytes,
                     tf_status *status) {
  (void)device;
  int64_t count = (int64_t)bytes;
  hr_view from, to;
  if (bytes == 0 || htf_fails(view_bytes(source, &count, &from), status)) {
    return;
  }
  if (!htf_fails(view_bytes(target, &count, &to), status)) {
    (void)htf_fails(copy_bytes(&from, &to), status);
    hr_buffer_release(to.buffer);
  }
  hr_buffer_release(from.buffer);
}

static void copy_out(const tf_device *device, tf_stream *stream, void *target, const tf_memory *source, uint64_t bytes,
                     tf_status *status) {
  (void)stream;
  copy_out_now(device, target, source, bytes, status);
}

static void copy_in(const tf_device *device, tf_stream *stream, tf_memory *target, const void *source, uint64_t bytes,
                    tf_status *status) {
  (void)stream;
  copy_in_now(device, target, source, bytes, status);
}

static void copy(const tf_device *device, tf_stream *stream, tf_memory *target, const tf_memory *source, uint64_t bytes,
                 tf_status *status) {
  (void)stream;
  copy_now(device, target, source, bytes, status);
}

/* Fills bytes with a pattern of one or four of them. */
static void fill_with(const tf_device *device, tf_memory *memory, hr_dtype dtype, uint32_t pattern, uint64_t bytes,
                      tf_status *status) {
  htf_device *self = device->handle;
  int64_t count = (int64_t)(bytes / hr_dtype_size(dtype));
  hr_scalar number = hr_scalar_i64((int64_t)pattern);
  hr_view view;
  if (count == 0 || htf_fails(view_bytes(memory, &count, &view), status)) {
    return;
  }
  view.dtype = dtype, view.offset /= (int64_t)hr_dtype_size(dtype);
  hr_view value = {.scalar = &number, .dtype = number.dtype};
  (void)htf_fails(hr_stream_record(self->stream, HR_OP_COPY, NULL, 1, &value, 1, &view), status);
  hr_buffer_release(view.buffer);
}

static void fill(const tf_device *device, tf_stream *stream, tf_memory *memory, uint8_t pattern, uint64_t bytes,
                 tf_status *status) {
  (void)stream;
  fill_with(device, memory, HR_DTYPE_U8, pattern, bytes, status);
}

static void fill32(const tf_device *device, tf_stream *stream, tf_memory *memory, uint32_t pattern, uint64_t bytes,
                   tf_status *status) {
  (void)stream;
  fill_with(device, memory, HR_DTYPE_U32, pattern, bytes, status);
}

static void zero(const tf_device *device, tf_stream *stream, tf_memory *memory, uint64_t bytes, tf_status *status) {
  fill(device, stream, memory, 0, bytes, status);
}

/* ---- memory of the host, and statistics ---- */

static void *allocate_host(const tf_device *device, uint64_t bytes) {
  (void)device;
  void *memory = NULL;
  return posix_memalign(&memory, 64, bytes > 0 ? bytes : 1) == 0 ? memory : NULL;
}

static void deallocate_host(const tf_device *device, void *memory) {
  (void)device;
  free(memory);
}

static tf_bool allocator_stats(const tf_device *device, tf_allocator_stats *out_stats) {
  htf_device *self = device->handle;
  hr_memory_stats stats;
  hr_device_memory_stats(self->device, &stats);
  out_stats->size_of = TF_STRUCT_SIZE(tf_allocator_stats, largest_free);
  out_stats->allocations = stats.allocation_count;
  out_stats->bytes = stats.allocated_bytes, out_stats->bytes_peak = stats.allocated_bytes_peak;
  out_stats->reserved = stats.reserved_bytes, out_stats->reserved_peak = stats.reserved_bytes_peak;
  out_stats->has_limit = stats.limit_bytes > 0, out_stats->limit = stats.limit_bytes;
  return 1;
}

static tf_bool memory_usage(const tf_device *device, int64_t *out_free, int64_t *out_total) {
  htf_device *self = device->handle;
  hr_memory_stats stats;
  hr_device_memory_stats(self->device, &stats);
  *out_free = stats.device_free_bytes, *out_total = stats.device_total_bytes;
  return 1;
}

/* ---- the platform ---- */

static void device_count(const tf_platform *platform, int *out_count, tf_status *status) {
  (void)platform;
  *out_count = 0;
  if (htf_is_ready()) {
    (void)htf_fails(hr_device_count(driver_name(), out_count), status);
  }
}

/* oneDNN's initialisers touch 12 MB for a moment. Here nothing of the program is in memory yet. A process may exit at
 * any time, so no other thread may generate code later. */
static void open_libraries(hr_stream *stream) {
  hr_stream_open_libraries(stream);
  hr_libraries_wait();
}

static hr_status open_device(htf_device *self, int ordinal) {
  char name[64];
  bool has_number = strchr(driver_name(), ':') != NULL;
  snprintf(name, sizeof name, has_number || ordinal == 0 ? "%s" : "%s:%d", driver_name(), ordinal);
  HR_RETURN_IF_ERROR(hr_device_open(name, &self->device));
  HR_RETURN_IF_ERROR(hr_stream_create(self->device, &self->stream));
  HR_RETURN_IF_ERROR(hr_buffer_create(self->device, 0, &self->empty));
  open_libraries(self->stream);
  hr_device_info info;
  hr_device_describe(self->device, &info);
  snprintf(self->name, sizeof self->name, "Headrace %s: %s", name, info.description);
  snprintf(self->bus_id, sizeof self->bus_id, "headrace:%d", ordinal);
  atomic_init(&self->step, -1);
  return HR_OK;
}

static void close_device(htf_device *self) {
  hr_status_free(atomic_load(&self->failure));
  hr_buffer_release(self->empty);
  hr_stream_release(self->stream);
  hr_device_release(self->device);
  free(self);
}

static void create_device(const tf_platform *platform, tf_create_device *arguments, tf_status *status) {
  (void)platform;
  htf_device *self = calloc(1, sizeof *self);
  if (self == NULL) {
    tf.SetStatus(status, HR_STATUS_RESOURCE_EXHAUSTED, "headrace: no memory for a device");
    return;
  }
  watch_forks();
  if (htf_fails(open_device(self, arguments->ordinal), status)) {
    close_device(self);
    return;
  }
  tf_device *device = arguments->device;
  device->size_of = TF_STRUCT_SIZE(tf_device, bus_id);
  device->handle = self;
  htf_device_list(arguments->ordinal, self);
  htf_change_python();
  device->hardware_name = self->name, device->vendor = "Headrace", device->bus_id = self->bus_id;
}

static void destroy_device(const tf_platform *platform, tf_device *device) {
  (void)platform;
  if (device->handle != NULL) {
    htf_device_list(device->ordinal, NULL);
    close_device(device->handle);
    device->handle = NULL;
  }
}

static void create_device_functions(const tf_platform *platform, tf_create_device_functions *arguments,
                                    tf_status *status) {
  (void)platform, (void)status;
  arguments->functions->size_of = TF_STRUCT_SIZE(tf_device_functions, gflops);
}

static void destroy_device_functions(const tf_platform *platform, tf_device_functions *functions) {
  (void)platform, (void)functions;
}

static void create_executor(const tf_platform *platform, tf_create_executor *arguments, tf_status *status) {
  (void)platform, (void)status;
  *arguments->executor = (tf_executor){.size_of = TF_STRUCT_SIZE(tf_executor, call_host),
                                       .allocate = htf_allocate,
                                       .deallocate = htf_deallocate,
                                       .allocate_host = allocate_host,
                                       .deallocate_host = deallocate_host,
                                       .allocator_stats = allocator_stats,
                                       .memory_usage = memory_usage,
                                       .create_stream = create_stream,
                                       .destroy_stream = destroy_stream,
                                       .stream_waits_for = stream_waits_for,
                                       .stream_status = stream_status,
                                       .create_event = create_event,
                                       .destroy_event = destroy_event,
                                       .event_status = event_status,
                                       .record_event = record_event,
                                       .wait_for_event = record_event,
                                       .create_timer = create_timer,
                                       .destroy_timer = destroy_timer,
                                       .start_timer = use_timer,
                                       .stop_timer = use_timer,
                                       .copy_out = copy_out,
                                       .copy_in = copy_in,
                                       .copy = copy,
                                       .copy_out_now = copy_out_now,
                                       .copy_in_now = copy_in_now,
                                       .copy_now = copy_now,
                                       .wait_event = wait_event,
                                       .wait_stream = wait_stream,
                                       .synchronize = synchronize,
                                       .zero = zero,
                                       .fill = fill,
                                       .fill32 = fill32,
                                       .call_host = call_host};
}

static void destroy_executor(const tf_platform *platform, tf_executor *executor) {
  (void)platform, (void)executor;
}

static void create_timer_functions(const tf_platform *platform, tf_timer_functions *functions, tf_status *status) {
  (void)platform, (void)status;
  functions->size_of = TF_STRUCT_SIZE(tf_timer_functions, nanoseconds);
  functions->nanoseconds = timer_ns;
}

static void destroy_timer_functions(const tf_platform *platform, tf_timer_functions *functions) {
  (void)platform, (void)functions;
}

static void destroy_platform(tf_platform *platform) {
  (void)platform;
}

static void destroy_functions(tf_platform_functions *functions) {
  (void)functions;
}

/* TensorFlow calls this when it loads the plug-in. For another version the platform has no devices: a failure would end
 * the import of tensorflow. */
HTF_EXPORT void SE_InitPlugin(tf_registration *registration, tf_status *status) {
  (void)status;
  (void)htf_is_ready();
  tf_platform *platform = registration->platform;
  platform->size_of = TF_STRUCT_SIZE(tf_platform, grows_memory);
  platform->name = HTF_TYPE, platform->type = HTF_TYPE;
  platform->has_unified_memory = 0, platform->uses_bfc_allocator = 0, platform->grows_memory = 1;
  *registration->functions =
      (tf_platform_functions){.size_of = TF_STRUCT_SIZE(tf_platform_functions, destroy_timer_functions),
                              .device_count = device_count,
                              .create_device = create_device,
                              .destroy_device = destroy_device,
                              .create_device_functions = create_device_functions,
                              .destroy_device_functions = destroy_device_functions,
                              .create_executor = create_executor,
                              .destroy_executor = destroy_executor,
                              .create_timer_functions = create_timer_functions,
                              .destroy_timer_functions = destroy_timer_functions};
  registration->destroy_platform = destroy_platform;
  registration->destroy_functions = destroy_functions;
}
