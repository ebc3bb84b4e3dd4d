/* stream_order.h: the order between the pending records of the streams of one device.
 *
 * Each stream has pending records of its own, and commits push jobs to its lane's queue. Jobs of two lanes that use the
 * same memory run in the order of the commits (runtime/lane.h). So only pending records need care here: a record that
 * touches a buffer first commits the streams whose pending records it must follow.
 *
 *   this record    commits each other stream with a pending
 *   reads          write of the buffer
 *   writes         read or write of the buffer
 *
 * So at most one stream has a pending write of a buffer, and then no other stream has a pending use. Streams that read
 * the same buffers, such as weights, commit nothing of each other.
 *
 * A device with one stream pays one comparison a record. The creation of a second stream commits the first one, whose
 * pending writes are not noted.
 *
 * Threads: any. The lock of the device's list of streams comes before the locks of the streams, and is held while they
 * commit. Functions that need it are called with no lock held.
 */
#ifndef HEADRACE_ENGINE_STREAM_ORDER_H_
#define HEADRACE_ENGINE_STREAM_ORDER_H_

#include "engine/stream.h"

/* True if other streams of the device may have pending records, and for this one work can be submitted. */
static inline bool hr__stream_has_others(const hr_stream *stream) {
  return __builtin_expect(atomic_load_explicit(&stream->device->stream_count, memory_order_relaxed) > 1, 0) &&
         !stream->is_capture;
}

/* Commits the other streams that a read of this buffer must follow. No lock is held. */
void hr__stream_follow_writes(hr_stream *stream, hr_buffer *buffer);
/* The same for a write. */
void hr__stream_follow_uses(hr_stream *stream, hr_buffer *buffer);
/* Both, for the views of an operation; views of numbers and absent ones are fine. */
void hr__stream_follow(hr_stream *stream, int input_count, const hr_view *inputs, int output_count,
                       const hr_view *outputs);
/* Notes that the stream has a pending write of the buffer. The stream is locked since the record was appended. */
void hr__stream_note_write(hr_stream *stream, hr_buffer *buffer);
/* True if the pending records of some stream of the device use the buffer. No lock is held. */
bool hr__streams_use(hr_stream *stream, const hr_buffer *buffer);

#endif
