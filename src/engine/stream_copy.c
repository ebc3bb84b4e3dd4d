/* stream_copy.c: copies bytes between the host, or another device, and buffers of a stream. */
#include <string.h>

#include "base/allocator.h"
#include "base/probe.h"
#include "engine/host_view.h"
#include "engine/index_source.h"
#include "engine/record_note.h"
#include "engine/stream_order.h"
#include "engine/stream_record.h"
#include "engine/stream_wait.h"
#include "runtime/shared_memory.h"

/* ---- records ---- */

/* The time, if copies of the device are recorded; else 0. */
static int64_t begin_copy(const hr_device *device, hr_profile_kind kind, const hr_view *view) {
  HR_PROBE2(copy, kind, hr__view_count(view) * (int64_t)hr_dtype_size(view->dtype));
  return __builtin_expect(hr__recorded(device) != 0, 0) ? hr_clock_ns() : 0;
}

static void end_copy(const hr_stream *stream, hr_profile_kind kind, int64_t begin, const hr_view *view) {
  if (__builtin_expect(begin != 0, 0)) {
    int64_t count = hr__view_count(view);
    hr__records_add(stream->device, &(const hr_note){.kind = kind,
                                                     .begin = begin,
                                                     .end = hr_clock_ns(),
                                                     .bytes = count * (int64_t)hr_dtype_size(view->dtype),
                                                     .count = count,
                                                     .stream = stream->pending.stream,
                                                     .dtype = view->dtype,
                                                     .rank = view->rank,
                                                     .dims = view->dims});
  }
}

/* ---- reading ---- */

/* Copies a view of a buffer with memory to the host. Strided views of memory that the host can't read are gathered from
 * a copy of the whole buffer. */
static hr_status copy_view_out(const hr_stream *stream, const hr_view *view, void *out_bytes) {
  const hr_device *device = stream->device;
  void *impl = stream->lane->impl;
  const char *address = hr__buffer_address(view->buffer);
  size_t size = hr_dtype_size(view->dtype), bytes = (size_t)hr__view_count(view) * size;
  if (hr__view_is_contiguous(view)) {
    return device->driver->copy_out(impl, out_bytes, address + view->offset * (int64_t)size, bytes);
  }
  if (device->properties.is_host) {
    hr__view_gather(view, address, out_bytes);
    return HR_OK;
  }
  void *copy = hr_malloc(view->buffer->bytes);
  if (copy == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no host memory for %zu bytes", view->buffer->bytes);
  }
  hr_status status = device->driver->copy_out(impl, copy, address, view->buffer->bytes);
  if (status == HR_OK) {
    hr__view_gather(view, copy, out_bytes);
  }
  hr_free(copy);
  return status;
}

hr_status hr_stream_read(hr_stream *stream, const hr_view *view, void *out_bytes) {
  HR_RETURN_IF_ERROR(hr__view_check("read", view));
  HR_RETURN_IF_ERROR(hr__stream_check_device(stream, HR_OP_COPY, view->buffer));
  size_t bytes = (size_t)hr__view_count(view) * hr_dtype_size(view->dtype);
  if (hr__stream_has_others(stream)) {
    hr__stream_follow_writes(stream, view->buffer);
  }
  hr_mutex_lock(&stream->mutex);
  stream->stats.bytes_copied_out += (int64_t)bytes;
  HR_RETURN_IF_ERROR(hr__stream_finish(stream, HR_EVENT_READ, view->buffer));
  HR_RETURN_IF_ERROR(hr__stream_wait_for_buffer(stream, view->buffer, false));
  HR_RETURN_IF_ERROR(hr__buffer_failure(view->buffer));
  if (bytes == 0) {
    return HR_OK;
  }
  if (hr__buffer_address(view->buffer) == NULL) { /* never written: any value would do */
    memset(out_bytes, 0, bytes);
    return HR_OK;
  }
  int64_t begin = begin_copy(stream->device, HR_PROFILE_COPY_OUT, view);
  uint64_t stamp = atomic_load_explicit(&view->buffer->stamp, memory_order_relaxed);
  HR_RETURN_IF_ERROR(copy_view_out(stream, view, out_bytes));
  end_copy(stream, HR_PROFILE_COPY_OUT, begin, view);
  if (stream->notes_indices && hr__view_is_contiguous(view)) {
    hr__index_source_note_seen(view->buffer, stamp, view->dtype, out_bytes, bytes);
  }
  return HR_OK;
}

hr_status hr_stream_address(hr_stream *stream, hr_buffer *buffer, void **out_address) {
  HR_RETURN_IF_ERROR(hr__stream_check_device(stream, HR_OP_COPY, buffer));
  if (hr__stream_has_others(stream)) { /* the address may be written to */
    hr__stream_follow_writes(stream, buffer);
    hr__stream_follow_uses(stream, buffer);
  }
  hr_mutex_lock(&stream->mutex);
  HR_RETURN_IF_ERROR(hr__stream_finish(stream, HR_EVENT_WAIT, buffer));
  HR_RETURN_IF_ERROR(hr__stream_wait_for_buffer(stream, buffer, true));
  HR_RETURN_IF_ERROR(hr__buffer_failure(buffer));
  HR_RETURN_IF_ERROR(hr__stream_bind(stream, buffer));
  HR_RETURN_IF_ERROR(hr__stream_wait_for_buffer(stream, buffer, true)); /* for earlier uses of new memory */
  /* The holder of the address may write through it. */
  atomic_store_explicit(&buffer->stamp, 0, memory_order_relaxed);
  *out_address = hr__buffer_address(buffer);
  return HR_OK;
}

hr_status hr_stream_share(hr_stream *stream, hr_buffer *buffer, hr_shared *out_shared, int *out_file) {
  hr_device *device = buffer->device;
  if (buffer->bytes == 0) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "share: the buffer is empty; expected some bytes");
  }
  if (!device->properties.is_host && device->driver->share == NULL) {
    return hr_status_make(HR_STATUS_UNIMPLEMENTED, "%s can't share memory between processes", device->name);
  }
  bool keeps_former = atomic_load_explicit(&buffer->stamp, memory_order_relaxed) == 0;
  void *address;
  HR_RETURN_IF_ERROR(hr_stream_address(stream, buffer, &address));
  *out_shared = (hr_shared){.bytes = (int64_t)buffer->bytes};
  if (device->properties.is_host) {
    return hr__buffer_move_to_file(buffer, keeps_former, out_file);
  }
  *out_file = -1;
  return device->driver->share(device->impl, address, out_shared->name, &out_shared->offset);
}

/* ---- writing ---- */

/* Binds memory to a buffer; if there is none, runs the pending records, which frees their temporaries, and tries
 * again. */
static hr_status bind_for_write(hr_stream *stream, hr_buffer *buffer) {
  hr_status status = hr__stream_bind(stream, buffer);
  if (hr_status_code_of(status) == HR_STATUS_RESOURCE_EXHAUSTED && stream->pending.records.count > 0) {
    hr_status_free(status);
    hr__stream_notify_of(stream, HR_EVENT_MEMORY);
    status = hr__stream_bind(stream, buffer);
  }
  return status;
}

/* Bytes of the host, or of another device of the stream's driver, for a view. */
typedef struct incoming {
  const hr_view *view;
  const void *bytes;
  const hr_device *device; /* NULL: the host */
} incoming;

static hr_status copy_with(const hr_lane *lane, void *to, const incoming *in, size_t count) {
  const hr_driver *driver = lane->device->driver;
  return in->device == NULL ? driver->copy_in(lane->impl, to, in->bytes, count)
                            : driver->copy_peer(lane->impl, to, in->device->impl, in->bytes, count);
}

/* The buffer's memory is new, and the caller's alone. */
static hr_status copy_in(hr_lane *lane, const hr_buffer *buffer, const incoming *in, size_t count) {
  void *to = hr__buffer_address(buffer);
  bool may_run_later = hr__device_runs_later(lane->device);
  uint64_t ticket = may_run_later ? hr__lane_begin_use(lane, true, buffer->block) : 0;
  hr_status status = copy_with(lane, to, in, count);
  hr__lane_note_submitted(lane);
  if (may_run_later) {
    hr__lane_end_use(lane, ticket);
  }
  return status;
}

static hr_status fill_buffer(hr_stream *stream, hr_buffer *buffer, const incoming *in, size_t count) {
  HR_RETURN_IF_ERROR(bind_for_write(stream, buffer));
  stream->stats.bytes_copied_in += in->device == NULL ? (int64_t)count : 0;
  hr_profile_kind kind = in->device == NULL ? HR_PROFILE_COPY_IN : HR_PROFILE_COPY_BETWEEN;
  int64_t begin = begin_copy(stream->device, kind, in->view);
  HR_RETURN_IF_ERROR(copy_in(stream->lane, buffer, in, count));
  end_copy(stream, kind, begin, in->view);
  hr__buffer_written(buffer);
  if (stream->notes_indices && in->device == NULL) {
    hr__index_source_note(buffer, in->view->dtype, in->bytes, count);
  }
  return HR_OK;
}

static void set_row_major(int rank, const int64_t *dims, int64_t *strides) {
  int64_t stride = 1;
  for (int d = rank - 1; d >= 0; --d) {
    strides[d] = stride;
    stride *= dims[d];
  }
}

/* Stages the bytes in a temporary buffer and records a copy into the view. */
static hr_status record_staged(hr_stream *stream, const hr_view *view, const incoming *in, size_t count) {
  hr_buffer *staging;
  int64_t strides[HR_RANK_MAX];
  set_row_major(view->rank, view->dims, strides);
  HR_RETURN_IF_ERROR(hr_buffer_create(stream->device, count, &staging));
  hr_status status = fill_buffer(stream, staging, in, count);
  if (status == HR_OK) {
    hr_view source = {
        .buffer = staging, .dtype = view->dtype, .rank = view->rank, .dims = view->dims, .strides = strides};
    status = hr__trace_record(&stream->pending, HR_OP_COPY, NULL, 1, &source, 1, view);
    stream->pending.pending_bytes += (int64_t)count;
    if (hr__stream_has_others(stream)) {
      hr__stream_note_write(stream, view->buffer);
    }
  }
  hr_buffer_release(staging);
  return status;
}

static size_t view_bytes(const hr_view *view) {
  return (size_t)hr__view_count(view) * hr_dtype_size(view->dtype);
}

/* The same for a stream with hooks, which see the copy. */
static hr_status write_hooked(hr_stream *stream, const hr_view *view, const incoming *in, size_t count) {
  hr_buffer *staging;
  int64_t strides[HR_RANK_MAX];
  set_row_major(view->rank, view->dims, strides);
  HR_RETURN_IF_ERROR(hr_buffer_create(stream->device, count, &staging));
  hr_mutex_lock(&stream->mutex);
  hr_status status = fill_buffer(stream, staging, in, count);
  hr_mutex_unlock(&stream->mutex);
  if (status == HR_OK) {
    hr_view source = {
        .buffer = staging, .dtype = view->dtype, .rank = view->rank, .dims = view->dims, .strides = strides};
    status = hr_stream_record(stream, HR_OP_COPY, NULL, 1, &source, 1, view);
  }
  hr_buffer_release(staging);
  return status;
}

/* The view is one of the stream's, and has elements. */
static hr_status write_view(hr_stream *stream, const hr_view *view, const incoming *in) {
  size_t count = view_bytes(view);
  if (hr__stream_has_others(stream)) {
    hr__stream_follow_uses(stream, view->buffer);
  }
  if (stream->hook != NULL && hr__buffer_is_invalid(view->buffer)) {
    return write_hooked(stream, view, in, view_bytes(view));
  }
  hr_status status = hr__check_contents(HR_OP_COPY, 0, NULL, 1, view);
  if (status != HR_OK) {
    return hr__stream_report(stream, status);
  }
  hr_mutex_lock(&stream->mutex);
  bool is_direct = hr__buffer_address(view->buffer) == NULL && hr__view_is_whole(view) &&
                   hr__trace_find(&stream->pending, view->buffer) == UINT32_MAX;
  if (!is_direct && stream->hook != NULL) {
    hr_mutex_unlock(&stream->mutex);
    return write_hooked(stream, view, in, count);
  }
  status = is_direct ? fill_buffer(stream, view->buffer, in, count) : record_staged(stream, view, in, count);
  if (!is_direct && status == HR_OK) {
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
  HR_RETURN_IF_ERROR(hr__stream_check_device(stream, HR_OP_COPY, view->buffer));
  return write_view(stream, view, &(const incoming){.view = view, .bytes = bytes});
}

/* Runs the work that the source depends on. *out_address: NULL if it was never written. */
static hr_status settle_source(hr_stream *stream, const hr_view *source, const void **out_address) {
  if (hr__stream_has_others(stream)) {
    hr__stream_follow_writes(stream, source->buffer);
  }
  hr_mutex_lock(&stream->mutex);
  HR_RETURN_IF_ERROR(hr__stream_finish(stream, HR_EVENT_WAIT, source->buffer));
  HR_RETURN_IF_ERROR(hr__stream_wait_for_buffer(stream, source->buffer, false));
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
  if (status == HR_OK) {
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
  HR_RETURN_IF_ERROR(hr__stream_check_device(stream, HR_OP_COPY, view->buffer));
  HR_RETURN_IF_ERROR(hr__stream_check_device(source_stream, HR_OP_COPY, source->buffer));
  const hr_device *from = source_stream->device, *to = stream->device;
  if (from->driver != to->driver || to->driver->copy_peer == NULL || !hr__view_is_contiguous(source)) {
    return write_through_host(stream, view, source_stream, source);
  }
  incoming in = {.view = view, .device = from};
  HR_RETURN_IF_ERROR(settle_source(source_stream, source, &in.bytes));
  return in.bytes != NULL ? write_view(stream, view, &in) : HR_OK; /* never written: any value would do */
}
