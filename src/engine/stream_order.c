/* stream_order.c: see stream_order.h.
 *
 * A buffer has three notes. Its tag names the stream that recorded it last. `writer` names the stream of its last
 * pending write and the number of that stream's trace, its epoch: later epochs mean that the write was committed.
 * `is_shared` is set when a second stream reads it, since the tag then no longer names all users.
 */
#include "engine/stream_order.h"

#include "engine/stream_wait.h"

/* ---- the list of streams ---- */

/* The stream is locked. */
static void commit_pending(hr_stream *stream) {
  if (stream->pending.records.count > 0) {
    hr__stream_notify_of(stream, HR_EVENT_REQUEST);
  }
}

void hr__streams_join(hr_stream *stream) {
  hr_device *device = stream->device;
  hr_mutex_lock(&device->streams_mutex);
  stream->next = device->streams;
  device->streams = stream;
  if (atomic_fetch_add(&device->stream_count, 1) == 1) {
    hr_mutex_lock(&stream->next->mutex);
    commit_pending(stream->next);
    hr_mutex_unlock(&stream->next->mutex);
  }
  hr_mutex_unlock(&device->streams_mutex);
}

void hr__streams_leave(hr_stream *stream) {
  hr_device *device = stream->device;
  hr_mutex_lock(&device->streams_mutex);
  for (hr_stream **at = &device->streams; *at != NULL; at = &(*at)->next) {
    if (*at == stream) {
      *at = stream->next;
      atomic_fetch_sub(&device->stream_count, 1);
      break;
    }
  }
  hr_mutex_unlock(&device->streams_mutex);
}

/* ---- notes of buffers ---- */

static bool is_of(const hr_stream *stream, uint64_t note) {
  return note >> 32 == stream->number;
}

/* True if the note names another stream. */
static bool is_foreign(const hr_stream *stream, uint64_t note) {
  return note != 0 && !is_of(stream, note);
}

static uint64_t writer_note(const hr_stream *stream) {
  return (uint64_t)stream->number << 32 | stream->epoch;
}

void hr__stream_note_write(hr_stream *stream, hr_buffer *buffer) {
  atomic_store_explicit(&buffer->writer, writer_note(stream), memory_order_relaxed);
}

static uint64_t tag_of(const hr_buffer *buffer) {
  return atomic_load_explicit(&((hr_buffer *)buffer)->tag, memory_order_relaxed);
}

static void note_shared(hr_buffer *buffer, bool is_shared) {
  if (atomic_load_explicit(&buffer->is_shared, memory_order_relaxed) != is_shared) {
    atomic_store_explicit(&buffer->is_shared, is_shared, memory_order_relaxed);
  }
}

/* ---- following ---- */

/* Commits the stream of a pending write, and erases the note. */
static void commit_writer(hr_stream *stream, hr_buffer *buffer, uint64_t writer) {
  hr_device *device = stream->device;
  hr_mutex_lock(&device->streams_mutex);
  for (hr_stream *other = device->streams; other != NULL; other = other->next) {
    if (is_of(other, writer)) {
      hr_mutex_lock(&other->mutex);
      if (writer_note(other) == writer) {
        commit_pending(other);
      }
      hr_mutex_unlock(&other->mutex);
    }
  }
  (void)atomic_compare_exchange_strong(&buffer->writer, &writer, 0);
  hr_mutex_unlock(&device->streams_mutex);
}

static void commit_users(hr_stream *stream, hr_buffer *buffer) {
  hr_device *device = stream->device;
  hr_mutex_lock(&device->streams_mutex);
  for (hr_stream *other = device->streams; other != NULL; other = other->next) {
    if (other != stream) {
      hr_mutex_lock(&other->mutex);
      if (hr__trace_find(&other->pending, buffer) != UINT32_MAX) {
        commit_pending(other);
      }
      hr_mutex_unlock(&other->mutex);
    }
  }
  hr_mutex_unlock(&device->streams_mutex);
}

void hr__stream_follow_writes(hr_stream *stream, hr_buffer *buffer) {
  if (is_foreign(stream, tag_of(buffer))) {
    note_shared(buffer, true);
  }
  uint64_t writer = atomic_load_explicit(&buffer->writer, memory_order_relaxed);
  if (is_foreign(stream, writer)) {
    commit_writer(stream, buffer, writer);
  }
}

void hr__stream_follow_uses(hr_stream *stream, hr_buffer *buffer) {
  if (is_foreign(stream, tag_of(buffer)) || atomic_load_explicit(&buffer->is_shared, memory_order_relaxed)) {
    commit_users(stream, buffer);
    note_shared(buffer, false);
  }
}

void hr__stream_follow(hr_stream *stream, int input_count, const hr_view *inputs, int output_count,
                       const hr_view *outputs) {
  for (int i = 0; i < input_count; ++i) {
    if (inputs[i].buffer != NULL) {
      hr__stream_follow_writes(stream, inputs[i].buffer);
    }
  }
  for (int i = 0; i < output_count; ++i) {
    if (outputs[i].buffer != NULL) {
      hr__stream_follow_uses(stream, outputs[i].buffer);
    }
  }
}

bool hr__streams_use(hr_stream *stream, const hr_buffer *buffer) {
  hr_device *device = stream->device;
  bool is_used = false;
  hr_mutex_lock(&device->streams_mutex);
  for (hr_stream *other = device->streams; other != NULL && !is_used; other = other->next) {
    hr_mutex_lock(&other->mutex);
    is_used = hr__trace_find(&other->pending, buffer) != UINT32_MAX;
    hr_mutex_unlock(&other->mutex);
  }
  hr_mutex_unlock(&device->streams_mutex);
  return is_used;
}

/* ---- waiting for another stream ---- */

/* Work that the lane is given from now on follows all work that the other one was given. */
static void follow_lane(hr_lane *lane, const hr_lane *other) {
  hr_device *device = lane->device;
  hr_tickets all = {{0}};
  if (lane != other) {
    hr_mutex_lock(&lane->mutex);
    hr_mutex_lock(&device->order_mutex);
    all.of[other->number] = other->handed;
    hr__lane_follow(lane, &all);
    hr_mutex_unlock(&device->order_mutex);
    hr_mutex_unlock(&lane->mutex);
  }
}

hr_status hr_stream_wait_for(hr_stream *stream, hr_stream *other) {
  if (stream == NULL || other == NULL) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "hr_stream_wait_for: NULL argument");
  }
  if (stream->device != other->device) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT,
                          "hr_stream_wait_for: a stream of device \"%s\" can't wait for one of \"%s\"",
                          stream->device->name, other->device->name);
  }
  HR_RETURN_IF_ERROR(hr__stream_check_submits(stream, "wait"));
  if (stream == other) {
    return HR_OK;
  }
  HR_RETURN_IF_ERROR(hr_stream_commit(other));
  follow_lane(stream->lane, other->lane);
  return HR_OK;
}
