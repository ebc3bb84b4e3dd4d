/* A copy into new memory, which then becomes the buffer's own. The copy is an ordinary program with two exceptions: its
 * records see memory in its physical layout (`is_plain`), and it also runs after a failure, since the failed work did
 * not write the buffer. If there is no memory for both, the host permutes the bytes.
 */
#include "engine/default_layout.h"

#include <string.h>

#include "base/allocator.h"
#include "core/ir/program.h"
#include "engine/growth.h"

static hr_dtype integer_of(size_t bytes) {
  return bytes == 1 ? HR_DTYPE_U8 : bytes == 2 ? HR_DTYPE_I16 : bytes == 4 ? HR_DTYPE_I32 : HR_DTYPE_I64;
}

/* A buffer as three dims, with their strides in its layout. */
typedef struct form {
  size_t element_bytes;
  int64_t dims[3], strides[3];
} form;

/* Element [outer, channel, inner] is at [outer, inner, channel]. */
static form form_of_images(hr_buffer_layout layout, size_t bytes) {
  int64_t image = layout.channels * layout.inner;
  return (form){layout.element_bytes,
                {(int64_t)(bytes / layout.element_bytes) / image, layout.channels, layout.inner},
                {image, 1, layout.channels}};
}

/* Rows of an outer index are followed by room. */
static form form_of_rows(hr_rows_layout layout, size_t bytes, size_t capacity) {
  int64_t outer = layout.outer * (int64_t)layout.element_bytes;
  return (form){layout.element_bytes,
                {layout.outer, (int64_t)bytes / outer / layout.inner, layout.inner},
                {(int64_t)capacity / outer, layout.inner, 1}};
}

static form form_of(const hr_buffer *buffer, uint64_t layout) {
  return hr_layout_is_rows(layout)
             ? form_of_rows(hr_rows_unpack(layout), buffer->bytes, atomic_load(&((hr_buffer *)buffer)->capacity))
             : form_of_images(hr_layout_unpack(layout), buffer->bytes);
}

static hr_status record_copy(hr_trace *trace, const form *f, hr_buffer *from, hr_buffer *to) {
  int64_t plain[3] = {f->dims[1] * f->dims[2], f->dims[2], 1};
  hr_dtype dtype = integer_of(f->element_bytes);
  hr_view input = {.buffer = from, .dtype = dtype, .rank = 3, .dims = f->dims, .strides = f->strides};
  hr_view output = {.buffer = to, .dtype = dtype, .rank = 3, .dims = f->dims, .strides = plain};
  return hr__trace_record(trace, HR_OP_COPY, NULL, 1, &input, 1, &output);
}

static hr_status run_copy(hr_stream *stream, uint64_t layout, hr_buffer *from, hr_buffer *to, bool will_wait) {
  form f = form_of(from, layout);
  hr_status status = record_copy(&stream->move, &f, from, to);
  if (status == HR_OK) {
    status = hr__stream_run_move(stream, &stream->move, layout, will_wait);
  }
  hr__trace_clear(&stream->move);
  return status;
}

static void permute(const form *f, const char *from, char *to) {
  size_t size = f->element_bytes;
  for (int64_t i = 0; i < f->dims[0]; ++i) {
    for (int64_t j = 0; j < f->dims[1]; ++j) {
      for (int64_t k = 0; k < f->dims[2]; ++k, to += size) {
        memcpy(to, from + (size_t)(i * f->strides[0] + j * f->strides[1] + k * f->strides[2]) * size, size);
      }
    }
  }
}

static hr_status permute_through_host(hr_device *device, hr_buffer *buffer) {
  form f = form_of(buffer, hr__buffer_layout(buffer));
  size_t capacity = atomic_load(&buffer->capacity), all = capacity > buffer->bytes ? capacity : buffer->bytes;
  char *bytes = hr_malloc(all + buffer->bytes);
  if (bytes == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no host memory for %zu bytes", all + buffer->bytes);
  }
  hr_status status = hr__device_flush(device);
  status = status == HR_OK ? device->driver->copy_out(device->impl, bytes, hr__buffer_address(buffer), all) : status;
  if (status == HR_OK) {
    permute(&f, bytes, bytes + all);
    status = device->driver->copy_in(device->impl, hr__buffer_address(buffer), bytes + all, buffer->bytes);
    status = status == HR_OK ? hr__device_flush(device) : status;
  }
  if (status == HR_OK) {
    hr__growth_settle(buffer);
    atomic_store_explicit(&buffer->layout, 0, memory_order_release);
    hr__buffer_restamp(buffer);
  }
  hr_free(bytes);
  return status;
}

/* Work in flight still expects the old layout: it ends first, and nothing is submitted meanwhile. */
static hr_status restore_default_layout_in_place(hr_stream *stream, hr_buffer *buffer) {
  hr_device *device = stream->device;
  hr__device_lock_lanes(device);
  hr__device_drain(device);
  hr_status status = hr__buffer_layout(buffer) != 0 ? permute_through_host(device, buffer) : HR_OK;
  hr__device_unlock_lanes(device);
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
