/* A copy into new memory, which then becomes the buffer's own. The copy is an ordinary program with two exceptions: its
 * records see memory in its physical layout (`is_plain`), and it also runs after a failure, since the failed work did
 * not write the buffer. If there is no memory for both, the host permutes the bytes.
 */
#include "engine/default_layout.h"

#include <string.h>

#include "base/allocator.h"
#include "core/ir/program.h"

static hr_dtype integer_of(size_t bytes) {
  return bytes == 1 ? HR_DTYPE_U8 : bytes == 2 ? HR_DTYPE_I16 : bytes == 4 ? HR_DTYPE_I32 : HR_DTYPE_I64;
}

/* Element [outer, channel, inner] comes from [outer, inner, channel]. */
static hr_status record_copy(hr_trace *trace, const hr_buffer_layout *layout, hr_buffer *from, hr_buffer *to) {
  int64_t image = layout->channels * layout->inner;
  int64_t dims[3] = {(int64_t)(from->bytes / layout->element_bytes) / image, layout->channels, layout->inner};
  int64_t lies[3] = {image, 1, layout->channels}, plain[3] = {image, layout->inner, 1};
  hr_dtype dtype = integer_of(layout->element_bytes);
  hr_view input = {.buffer = from, .dtype = dtype, .rank = 3, .dims = dims, .strides = lies};
  hr_view output = {.buffer = to, .dtype = dtype, .rank = 3, .dims = dims, .strides = plain};
  return hr__trace_record(trace, HR_OP_COPY, NULL, 1, &input, 1, &output);
}

static hr_status run_copy(hr_stream *stream, uint64_t layout, hr_buffer *from, hr_buffer *to, bool will_wait) {
  hr_buffer_layout unpacked = hr_layout_unpack(layout);
  hr_status status = record_copy(&stream->move, &unpacked, from, to);
  if (status == HR_OK) {
    status = hr__stream_run_move(stream, &stream->move, layout, will_wait);
  }
  hr__trace_clear(&stream->move);
  return status;
}

static void permute(const hr_buffer_layout *layout, size_t bytes, const char *from, char *to) {
  size_t size = layout->element_bytes, channels = (size_t)layout->channels, inner = (size_t)layout->inner;
  for (size_t image = 0; image < bytes; image += size * channels * inner) {
    for (size_t c = 0; c < channels; ++c) {
      for (size_t i = 0; i < inner; ++i) {
        memcpy(to + image + (c * inner + i) * size, from + image + (i * channels + c) * size, size);
      }
    }
  }
}

static hr_status permute_through_host(hr_device *device, hr_buffer *buffer) {
  hr_buffer_layout layout = hr_layout_unpack(hr__buffer_layout(buffer));
  char *bytes = hr_malloc(2 * buffer->bytes);
  if (bytes == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no host memory for %zu bytes", 2 * buffer->bytes);
  }
  hr_status status = device->driver->copy_out(device->impl, bytes, hr__buffer_address(buffer), buffer->bytes);
  if (status == HR_OK) {
    permute(&layout, buffer->bytes, bytes, bytes + buffer->bytes);
    status = device->driver->copy_in(device->impl, hr__buffer_address(buffer), bytes + buffer->bytes, buffer->bytes);
  }
  if (status == HR_OK) {
    atomic_store_explicit(&buffer->layout, 0, memory_order_release);
    hr__buffer_restamp(buffer);
  }
  hr_free(bytes);
  return status;
}

/* Work in flight still expects the old layout: it ends first, and nothing is submitted meanwhile. */
static hr_status restore_default_layout_in_place(hr_stream *stream, hr_buffer *buffer) {
  hr_device *device = stream->device;
  hr_mutex_lock(&device->shared_mutex);
  hr_queue_drain(&device->queue);
  hr_status status = hr__buffer_layout(buffer) != 0 ? permute_through_host(device, buffer) : HR_OK;
  hr_mutex_unlock(&device->shared_mutex);
  return status;
}

hr_status hr__stream_restore_default_layout(hr_stream *stream, hr_buffer *buffer, bool will_wait) {
  uint64_t layout = hr__buffer_layout(buffer);
  hr_buffer *made;
  hr_status status = HR_OK;
  if (layout != 0) {
    ++stream->stats.layouts_undone;
  }
  while (status == HR_OK && layout != 0) { /* another stream may be quicker, and then there is nothing left to do */
    HR_RETURN_IF_ERROR(hr_buffer_create(stream->device, buffer->bytes, &made));
    status = run_copy(stream, layout, buffer, made, will_wait);
    hr_buffer_release(made);
    layout = hr__buffer_layout(buffer);
  }
  if (hr_status_code_of(status) == HR_STATUS_RESOURCE_EXHAUSTED) {
    hr_status_free(status);
    status = restore_default_layout_in_place(stream, buffer);
  }
  return status;
}
