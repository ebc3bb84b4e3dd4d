/* stream_wait.h: committing and waiting, for those that record and copy. */
#ifndef HEADRACE_ENGINE_STREAM_WAIT_H_
#define HEADRACE_ENGINE_STREAM_WAIT_H_

#include "engine/stream.h"

/* Tells the policy of an event and does what it decides; a failure waits for a wait. The stream is locked. */
void hr__stream_notify_of(hr_stream *stream, hr_event_kind kind);
/* Tells the policy of a wait (or of records in strict mode), has `seen` in its default layout unless it is NULL,
 * unlocks the stream, waits, and takes the first error. */
HR_MUST_USE hr_status hr__stream_finish(hr_stream *stream, hr_event_kind kind, hr_buffer *seen);
/* The first error that nobody has heard of, which is reported with that. */
HR_MUST_USE hr_status hr__stream_take_error(hr_stream *stream);

#endif
