/* stream.c: the public face of a stream: record, commit, read, write. */
#include "engine/stream.h"

#include <string.h>

#include "base/env.h"
#include "core/ops/op.h"
#include "engine/compile_queue.h"
#include "engine/default_layout.h"
#include "engine/host_view.h"
#include "engine/index_source.h"
#include "engine/instance.h"
#include "runtime/cached_weights.h"

#define CACHE_BYTES_MAX ((size_t)256 << 20)

enum { FIRST_OPS_BESIDE_HOST = 32, LARGE_BYTES = 16 << 20 };
/* What takes some tenths of a second on a small machine. */
static const int64_t LONG_BYTES = INT64_C(2) << 30, LONG_FLOPS = INT64_C(40) * 1000 * 1000 * 1000;
static const int64_t NS_PER_MS = 1000 * 1000;

/* A context's. */
typedef struct stream_numbers {
  atomic_uint_least32_t last;
} stream_numbers;

/* Two numbers of the context's, this one and the next. */
static uint32_t take_numbers(hr_context *context) {
  static const hr_context_part kind = {.bytes = sizeof(stream_numbers)};
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

/* The device's context is current: the settings are its own. */
static hr_status create_stream(hr_device *device, hr_stream **out_stream) {
  hr_stream *stream = hr_calloc(1, sizeof *stream);
  if (stream == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no host memory for a stream");
  }
  uint32_t number = take_numbers(device->context);
  hr_refcount_init(&stream->refcount);
  hr_mutex_init(&stream->mutex);
  hr_mutex_init(&stream->job_mutex);
  hr_device_retain(device);
  stream->device = device;
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
  hr__trace_init(&stream->plain, number + 1);
  stream->plain.is_plain = true;
  stream->pending.single_max = stream->rest.single_max = stream->policy.bytes_max;
  stream->frees_live = hr_env_choice(HR_ENV_LAYOUTS) == HR_ENV_LAYOUTS_ALL;
  hr__cache_init(&stream->cache, (size_t)hr_env_int(HR_ENV_CACHE_ENTRIES), CACHE_BYTES_MAX);
  *out_stream = stream;
  return HR_OK;
}

hr_status hr_stream_create(hr_device *device, hr_stream **out_stream) {
  if (device == NULL || out_stream == NULL) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "hr_stream_create: NULL argument");
  }
  hr_context *before = hr__context_enter(device->context);
  hr_status status = create_stream(device, out_stream);
  (void)hr__context_enter(before);
  return status;
}

void hr_stream_retain(hr_stream *stream) {
  if (stream != NULL) {
    hr_refcount_retain(&stream->refcount);
  }
}

/* What is pending is run, because its results may be seen through buffers that live on. */
void hr_stream_release(hr_stream *stream) {
  if (stream == NULL || !hr_refcount_release(&stream->refcount)) {
    return;
  }
  if (!stream->is_capture) {
    hr_status_ignore(hr_stream_synchronize(stream));
  }
  hr_vector_fini(&stream->part_buffers);
  hr_vector_fini(&stream->part_bytes);
  hr__trace_fini(&stream->pending);
  hr__trace_fini(&stream->rest);
  hr__trace_fini(&stream->plain);
  hr__cache_fini(&stream->cache);
  hr__stream_free_jobs(stream);
  hr_mutex_fini(&stream->job_mutex);
  hr_mutex_fini(&stream->mutex);
  hr_device_release(stream->device);
  hr_free(stream);
}

hr_mode hr_stream_mode(const hr_stream *stream) {
  return (hr_mode)atomic_load_explicit(&((hr_stream *)stream)->mode, memory_order_relaxed);
}

/* ---- when to commit: policy.h decides ---- */

hr_event hr__stream_event(const hr_stream *stream, hr_event_kind kind) {
  return (hr_event){.kind = kind,
                    .mode = hr_stream_mode(stream),
                    .records = stream->pending.records.count,
                    .bytes = stream->pending.pending_bytes};
}

hr_status hr__stream_notify(hr_stream *stream, const hr_event *event) {
  const hr_decision decision = hr__policy_decide(&stream->policy, event);
  if (decision.action == HR_BEGIN) {
    hr__stream_begin(stream);
  }
  if (decision.action != HR_COMMIT) {
    return HR_OK;
  }
  size_t count = decision.count == HR_CUT ? hr__trace_cut(&stream->pending) : decision.count;
  hr_status status = hr__stream_commit(stream, count, decision.reason, decision.runs_here);
  if (decision.is_early) {
    hr__policy_committed_early(&stream->policy);
  }
  return status;
}

/* Failures belong to earlier lines: they wait for a wait. */
static void notify(hr_stream *stream, hr_event_kind kind) {
  const hr_event event = hr__stream_event(stream, kind);
  hr__stream_set_error(stream, hr__stream_notify(stream, &event));
}

void hr_stream_hint(hr_stream *stream, hr_hint hint) {
  if (stream->is_capture || hint != HR_HINT_PASS_BEGINS) {
    return;
  }
  hr_mutex_lock(&stream->mutex);
  notify(stream, HR_EVENT_PASS_BEGINS);
  hr_mutex_unlock(&stream->mutex);
}

void hr_stream_set_mode(hr_stream *stream, hr_mode mode) {
  if (stream->is_capture) {
    return;
  }
  hr_mutex_lock(&stream->mutex);
  if (mode != HR_MODE_FUSE) {
    notify(stream, HR_EVENT_MODE);
  }
  atomic_store(&stream->mode, (int)mode);
  hr_mutex_unlock(&stream->mutex);
}

/* ---- waiting ---- */

static hr_status take_error(hr_stream *stream) {
  hr_mutex_lock(&stream->job_mutex);
  hr_status status = stream->error;
  stream->error = NULL;
  hr_mutex_unlock(&stream->job_mutex);
  return status;
}

void hr_stream_interrupt(hr_stream *stream) {
  atomic_store(&stream->interrupted, atomic_load(&stream->handed));
}

void hr_stream_set_interrupt_check(hr_stream *stream, bool (*wants_interrupt)(void *arg), void *arg) {
  hr_mutex_lock(&stream->mutex);
  stream->wants_interrupt = wants_interrupt;
  stream->wants_interrupt_arg = arg;
  hr_mutex_unlock(&stream->mutex);
}

/* Waits for everything that was handed over; true if somebody wanted an interrupt meanwhile. The stream is not locked.
 */
static bool wait_for_device(hr_stream *stream) {
  hr_queue *queue = &stream->device->queue;
  bool is_interrupted = false;
  if (stream->wants_interrupt == NULL) {
    hr_queue_drain(queue);
    return false;
  }
  uint64_t last = atomic_load_explicit(&queue->pushed, memory_order_relaxed);
  while (!hr_queue_wait_until(queue, last, hr_clock_ns() + HR_INTERRUPT_CHECK_MS * NS_PER_MS)) {
    if (stream->wants_interrupt(stream->wants_interrupt_arg)) {
      hr_stream_interrupt(stream);
      is_interrupted = true;
    }
  }
  return is_interrupted;
}

static hr_status refuse_capture(void) {
  return hr_status_make(HR_STATUS_FAILED_PRECONDITION,
                        "capture: a value is needed, but nothing runs before the graph does");
}

/* Commits everything, has `seen` lie plain unless it is NULL, unlocks the stream, waits, and takes the first error. */
static hr_status finish(hr_stream *stream, hr_event_kind kind, hr_buffer *seen) {
  if (stream->is_capture) {
    hr_mutex_unlock(&stream->mutex);
    return refuse_capture();
  }
  notify(stream, kind);
  hr__policy_waited(&stream->policy);
  if (seen != NULL && hr__buffer_layout(seen) != 0) {
    hr__stream_set_error(stream, hr__stream_restore_default_layout(stream, seen, true));
  }
  hr_mutex_unlock(&stream->mutex);
  bool is_interrupted = wait_for_device(stream);
  if (stream->device->driver->flush != NULL) {
    hr__stream_set_error(stream, stream->device->driver->flush(stream->device->impl));
  }
  hr_status status = take_error(stream);
  return status == NULL && is_interrupted ? hr_status_make(HR_STATUS_CANCELLED, "interrupted") : status;
}

hr_status hr_stream_synchronize(hr_stream *stream) {
  hr_mutex_lock(&stream->mutex);
  return finish(stream, HR_EVENT_WAIT, NULL);
}

hr_status hr_stream_commit(hr_stream *stream) {
  if (stream->is_capture) {
    return refuse_capture();
  }
  hr_mutex_lock(&stream->mutex);
  const hr_event event = hr__stream_event(stream, HR_EVENT_REQUEST);
  hr_status status = hr__stream_notify(stream, &event);
  hr_mutex_unlock(&stream->mutex);
  return status;
}

/* ---- recording ---- */

/* Rows that change part of an output whose view is whole, and do not name it as an input. */
static bool updates_in_place(hr_op op) {
  return (hr_op_table(op)->traits & HR_TRAIT_UPDATES) != 0;
}

static hr_status check_device(const hr_stream *stream, hr_op op, const hr_buffer *buffer) {
  if (__builtin_expect(buffer->device == stream->device, 1)) {
    return HR_OK;
  }
  return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "%s: a buffer of device \"%s\" on a stream of device \"%s\"",
                        hr_op_table(op)->name, buffer->device->name, stream->device->name);
}

/* Whether a view of a buffer is of another device, or of contents that were never made. */
static inline bool is_suspect(const hr_stream *stream, const hr_view *view) {
  return view->buffer != NULL && (view->buffer->device != stream->device || hr__buffer_is_invalid(view->buffer));
}

static inline bool has_suspect(const hr_stream *stream, int count, const hr_view *views) {
  for (int i = 0; i < count; i++) {
    if (__builtin_expect(is_suspect(stream, &views[i]), 0)) {
      return true;
    }
  }
  return false;
}

static hr_status check_devices(const hr_stream *stream, hr_op op, int count, const hr_view *views) {
  for (int i = 0; i < count; i++) {
    if (views[i].buffer != NULL) {
      HR_RETURN_IF_ERROR(check_device(stream, op, views[i].buffer));
    }
  }
  return HR_OK;
}

/* Refuses contents that were never made. What is written from end to end is good again. */
static hr_status check_contents(hr_op op, int input_count, const hr_view *inputs, int output_count,
                                const hr_view *outputs) {
  for (int i = 0; i < input_count; i++) {
    if (inputs[i].buffer != NULL && hr__buffer_is_invalid(inputs[i].buffer)) {
      return hr__buffer_failure(inputs[i].buffer);
    }
  }
  for (int i = 0; i < output_count; i++) {
    if (outputs[i].buffer != NULL && hr__buffer_is_invalid(outputs[i].buffer)) {
      if (updates_in_place(op) || !hr__view_is_whole(&outputs[i])) {
        return hr__buffer_failure(outputs[i].buffer);
      }
      hr__buffer_heal(outputs[i].buffer);
    }
  }
  return HR_OK;
}

hr_status hr__stream_report(hr_stream *stream, hr_status status) {
  hr_mutex_lock(&stream->mutex);
  hr_queue_drain(&stream->device->queue);
  hr_status error = take_error(stream);
  if (error != NULL) {
    hr__stream_abandon(stream, 0, error);
    hr_status_free(status);
    status = error;
  }
  hr_mutex_unlock(&stream->mutex);
  return status;
}

/* Whether the operation is a large one that reads and writes memory whatever comes before it. The products of an
 * attention that is written out are not: it may become one operation. */
static bool stands_alone(hr_op op, const hr_view *inputs) {
  return (hr_op_table(op)->traits & HR_TRAIT_LARGE) != 0 && (op != HR_OP_MATMUL || inputs[1].rank <= 2);
}

static void before_large(hr_stream *stream) {
  hr_event event = hr__stream_event(stream, HR_EVENT_RECORD);
  event.stands_alone = true;
  hr__stream_set_error(stream, hr__stream_notify(stream, &event));
}

static bool keeps(const hr_stream *stream) {
  return hr__policy_keeps(&stream->policy, hr_stream_mode(stream), stream->pending.records.count,
                          stream->pending.pending_bytes);
}

/* Of hr__stream_settle: not all that is pending may stay. */
static hr_status settle_what_is_due(hr_stream *stream) {
  if (hr_stream_mode(stream) == HR_MODE_STRICT) {
    return finish(stream, HR_EVENT_RECORDED, NULL);
  }
  while (stream->pending.records.count > 0 && !keeps(stream)) {
    notify(stream, HR_EVENT_RECORDED);
  }
  hr_mutex_unlock(&stream->mutex);
  return HR_OK;
}

hr_status hr__stream_settle(hr_stream *stream, int64_t count) {
  stream->stats.operations += count;
  if (__builtin_expect(!keeps(stream), 0)) {
    return settle_what_is_due(stream);
  }
  hr_mutex_unlock(&stream->mutex);
  return HR_OK;
}

hr_status hr_stream_record(hr_stream *stream, hr_op op, const hr_attrs *attrs, int input_count, const hr_view *inputs,
                           int output_count, const hr_view *outputs) {
  HR_RETURN_IF_ERROR(hr_op_check(op, attrs, input_count, inputs, output_count, outputs));
  if (__builtin_expect(hr_op_table(op)->family == HR_FAMILY_LIBRARY, 0)) {
    HR_RETURN_IF_ERROR(hr__library_check(stream->device, op));
  }
  hr_status status = HR_OK;
  if (has_suspect(stream, input_count, inputs) || has_suspect(stream, output_count, outputs)) {
    HR_RETURN_IF_ERROR(check_devices(stream, op, input_count, inputs));
    HR_RETURN_IF_ERROR(check_devices(stream, op, output_count, outputs));
    status = check_contents(op, input_count, inputs, output_count, outputs);
    if (status != NULL) {
      return hr__stream_report(stream, status);
    }
  }
  hr_mutex_lock(&stream->mutex);
  if (__builtin_expect(!hr__policy_keeps_before(&stream->policy, stream->pending.records.count), 0) &&
      stands_alone(op, inputs)) {
    before_large(stream);
  }
  status = hr__trace_record(&stream->pending, op, attrs, input_count, inputs, output_count, outputs);
  if (__builtin_expect(status == NULL, 1)) {
    return hr__stream_settle(stream, 1);
  }
  hr_mutex_unlock(&stream->mutex);
  return status;
}

/* ---- reading ---- */

/* Copies a view of a buffer with memory to the host. Strided views of memory that the host can't read are gathered from
 * a copy of the whole buffer. */
static hr_status copy_view_out(const hr_device *device, const hr_view *view, void *out_bytes) {
  const char *address = hr__buffer_address(view->buffer);
  size_t size = hr_dtype_size(view->dtype), bytes = (size_t)hr__view_count(view) * size;
  if (hr__view_is_contiguous(view)) {
    return device->driver->copy_out(device->impl, out_bytes, address + view->offset * (int64_t)size, bytes);
  }
  if (device->properties.is_host) {
    hr__view_gather(view, address, out_bytes);
    return HR_OK;
  }
  void *copy = hr_malloc(view->buffer->bytes);
  if (copy == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no host memory for %zu bytes", view->buffer->bytes);
  }
  hr_status status = device->driver->copy_out(device->impl, copy, address, view->buffer->bytes);
  if (status == NULL) {
    hr__view_gather(view, copy, out_bytes);
  }
  hr_free(copy);
  return status;
}

hr_status hr_stream_read(hr_stream *stream, const hr_view *view, void *out_bytes) {
  HR_RETURN_IF_ERROR(hr__view_check("read", view));
  HR_RETURN_IF_ERROR(check_device(stream, HR_OP_COPY, view->buffer));
  size_t bytes = (size_t)hr__view_count(view) * hr_dtype_size(view->dtype);
  hr_mutex_lock(&stream->mutex);
  stream->stats.bytes_copied_out += (int64_t)bytes;
  HR_RETURN_IF_ERROR(finish(stream, HR_EVENT_WAIT, view->buffer));
  HR_RETURN_IF_ERROR(hr__buffer_failure(view->buffer));
  if (bytes == 0) {
    return HR_OK;
  }
  if (hr__buffer_address(view->buffer) == NULL) { /* never written: any value would do */
    memset(out_bytes, 0, bytes);
    return HR_OK;
  }
  return copy_view_out(stream->device, view, out_bytes);
}

hr_status hr_stream_address(hr_stream *stream, hr_buffer *buffer, void **out_address) {
  HR_RETURN_IF_ERROR(check_device(stream, HR_OP_COPY, buffer));
  hr_mutex_lock(&stream->mutex);
  HR_RETURN_IF_ERROR(finish(stream, HR_EVENT_WAIT, buffer));
  HR_RETURN_IF_ERROR(hr__buffer_failure(buffer));
  HR_RETURN_IF_ERROR(hr__stream_bind(stream, buffer));
  /* Whoever has the address may write through it. */
  atomic_store_explicit(&buffer->stamp, 0, memory_order_relaxed);
  *out_address = hr__buffer_address(buffer);
  return HR_OK;
}

/* ---- writing ---- */

/* Gives a buffer memory; where there is none, runs what is pending, so that its temporaries go, and tries again. */
static hr_status bind_for_write(hr_stream *stream, hr_buffer *buffer) {
  hr_status status = hr__stream_bind(stream, buffer);
  if (hr_status_code_of(status) == HR_STATUS_RESOURCE_EXHAUSTED && stream->pending.records.count > 0) {
    hr_status_free(status);
    notify(stream, HR_EVENT_MEMORY);
    status = hr__stream_bind(stream, buffer);
  }
  return status;
}

/* Bytes of the host, or of another device of the stream's driver. */
typedef struct incoming {
  hr_dtype dtype;
  const void *bytes;
  const hr_device *device; /* NULL: the host */
} incoming;

static hr_status copy_in(const hr_device *device, void *to, const incoming *in, size_t count) {
  return in->device == NULL ? device->driver->copy_in(device->impl, to, in->bytes, count)
                            : device->driver->copy_peer(device->impl, to, in->device->impl, in->bytes, count);
}

static hr_status fill_buffer(hr_stream *stream, hr_buffer *buffer, const incoming *in, size_t count) {
  HR_RETURN_IF_ERROR(bind_for_write(stream, buffer));
  stream->stats.bytes_copied_in += in->device == NULL ? (int64_t)count : 0;
  HR_RETURN_IF_ERROR(copy_in(stream->device, hr__buffer_address(buffer), in, count));
  hr__buffer_written(buffer);
  if (stream->notes_indices && in->device == NULL) {
    hr__index_source_note(buffer, in->dtype, in->bytes, count);
  }
  return HR_OK;
}

/* Copies the bytes to a buffer of their own and records its copy to the view. */
static hr_status record_staged(hr_stream *stream, const hr_view *view, const incoming *in, size_t count) {
  hr_buffer *staging;
  int64_t strides[HR_RANK_MAX], stride = 1;
  for (int d = view->rank - 1; d >= 0; d--) {
    strides[d] = stride;
    stride *= view->dims[d];
  }
  HR_RETURN_IF_ERROR(hr_buffer_create(stream->device, count, &staging));
  hr_status status = fill_buffer(stream, staging, in, count);
  if (status == NULL) {
    hr_view source = {
        .buffer = staging, .dtype = view->dtype, .rank = view->rank, .dims = view->dims, .strides = strides};
    status = hr__trace_record(&stream->pending, HR_OP_COPY, NULL, 1, &source, 1, view);
    stream->pending.pending_bytes += (int64_t)count;
  }
  hr_buffer_release(staging);
  return status;
}

static size_t view_bytes(const hr_view *view) {
  return (size_t)hr__view_count(view) * hr_dtype_size(view->dtype);
}

/* The view is one of the stream's, and has elements. */
static hr_status write_view(hr_stream *stream, const hr_view *view, const incoming *in) {
  size_t count = view_bytes(view);
  hr_status status = check_contents(HR_OP_COPY, 0, NULL, 1, view);
  if (status != NULL) {
    return hr__stream_report(stream, status);
  }
  hr_mutex_lock(&stream->mutex);
  bool is_direct = hr__buffer_address(view->buffer) == NULL && hr__view_is_whole(view) &&
                   hr__trace_find(&stream->pending, view->buffer) == UINT32_MAX;
  status = is_direct ? fill_buffer(stream, view->buffer, in, count) : record_staged(stream, view, in, count);
  if (!is_direct && status == NULL) {
    return hr__stream_settle(stream, 1);
  }
  hr_mutex_unlock(&stream->mutex);
  return status;
}

hr_status hr_stream_write(hr_stream *stream, const hr_view *view, const void *bytes) {
  HR_RETURN_IF_ERROR(hr__view_check("write", view));
  if (view_bytes(view) == 0) {
    return HR_OK;
  }
  HR_RETURN_IF_ERROR(check_device(stream, HR_OP_COPY, view->buffer));
  return write_view(stream, view, &(const incoming){.dtype = view->dtype, .bytes = bytes});
}

/* Runs what the source waits for. *out_address: NULL when it was never written. */
static hr_status settle_source(hr_stream *stream, const hr_view *source, const void **out_address) {
  hr_mutex_lock(&stream->mutex);
  HR_RETURN_IF_ERROR(finish(stream, HR_EVENT_WAIT, source->buffer));
  HR_RETURN_IF_ERROR(hr__buffer_failure(source->buffer));
  const char *address = hr__buffer_address(source->buffer);
  int64_t offset = source->offset * (int64_t)hr_dtype_size(source->dtype);
  *out_address = address != NULL ? address + offset : NULL;
  return HR_OK;
}

static hr_status write_through_host(hr_stream *stream, const hr_view *view, hr_stream *source_stream,
                                    const hr_view *source) {
  void *bytes = hr_malloc(view_bytes(view));
  if (bytes == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no host memory for %zu bytes", view_bytes(view));
  }
  hr_status status = hr_stream_read(source_stream, source, bytes);
  if (status == NULL) {
    status = hr_stream_write(stream, view, bytes);
  }
  hr_free(bytes);
  return status;
}

hr_status hr_stream_write_from(hr_stream *stream, const hr_view *view, hr_stream *source_stream,
                               const hr_view *source) {
  HR_RETURN_IF_ERROR(hr__view_check("write", view));
  HR_RETURN_IF_ERROR(hr__view_check("read", source));
  if (view->dtype != source->dtype || hr__view_count(view) != hr__view_count(source)) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "write: %lld elements of %s from %lld of %s",
                          (long long)hr__view_count(view), hr_dtype_name(view->dtype),
                          (long long)hr__view_count(source), hr_dtype_name(source->dtype));
  }
  if (view_bytes(view) == 0) {
    return HR_OK;
  }
  HR_RETURN_IF_ERROR(check_device(stream, HR_OP_COPY, view->buffer));
  HR_RETURN_IF_ERROR(check_device(source_stream, HR_OP_COPY, source->buffer));
  const hr_device *from = source_stream->device, *to = stream->device;
  if (from->driver != to->driver || to->driver->copy_peer == NULL || !hr__view_is_contiguous(source)) {
    return write_through_host(stream, view, source_stream, source);
  }
  incoming in = {.dtype = view->dtype, .device = from};
  HR_RETURN_IF_ERROR(settle_source(source_stream, source, &in.bytes));
  return in.bytes != NULL ? write_view(stream, view, &in) : HR_OK; /* never written: any value would do */
}

/* ---- statistics ---- */

void hr_stream_stats(hr_stream *stream, hr_stats *out_stats) {
  hr_mutex_lock(&stream->mutex);
  *out_stats = stream->stats;
  out_stats->cache_entries = (int64_t)stream->cache.count;
  out_stats->kernels_interpreted = out_stats->kernels - atomic_load(&stream->compiled_launches);
  out_stats->graph_launches = atomic_load(&stream->graph_launches);
  out_stats->graph_builds = atomic_load(&stream->graph_builds);
  out_stats->graph_updates = atomic_load(&stream->graph_updates);
  hr_jit_counts counts;
  hr_context *before = hr__context_enter(stream->device->context);
  hr__jit_counts(&counts);
  out_stats->jit_compiled = counts.compiled;
  out_stats->jit_loaded = counts.loaded;
  out_stats->cached_weights_bytes = hr__cached_weights_bytes();
  (void)hr__context_enter(before);
  out_stats->jit_unable = counts.unable;
  out_stats->jit_ns = counts.compile_ns;
  out_stats->jit_waiting = counts.waiting;
  hr_mutex_unlock(&stream->mutex);
}

void hr_stream_reset_stats(hr_stream *stream) {
  hr_mutex_lock(&stream->mutex);
  stream->stats = (hr_stats){0};
  atomic_store(&stream->compiled_launches, 0);
  atomic_store(&stream->graph_launches, 0);
  atomic_store(&stream->graph_builds, 0);
  atomic_store(&stream->graph_updates, 0);
  hr_mutex_unlock(&stream->mutex);
}
