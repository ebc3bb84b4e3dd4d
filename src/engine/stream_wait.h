/* stream_wait.h: committing and waiting, for recording and copies. */
#ifndef HEADRACE_ENGINE_STREAM_WAIT_H_
#define HEADRACE_ENGINE_STREAM_WAIT_H_

#include "engine/stream.h"

/* Sends an event to the policy and carries out its decision; a failure is reported by the next wait. The stream is
 * locked. */
void hr__stream_notify_of(hr_stream *stream, hr_event_kind kind);
/* Commits everything pending without waiting for a place in the queue, up to HR_QUEUE_AHEAD jobs. The stream is locked.
 */
HR_MUST_USE hr_status hr__stream_commit_ahead(hr_stream *stream);
/* FAILED_PRECONDITION if nothing can be submitted: the stream is a capture, or its work stayed in the parent of this
 * forked process. `what` names the call. */
HR_MUST_USE hr_status hr__stream_check_submits(const hr_stream *stream, const char *what);
/* Sends a wait (or records in strict mode) to the policy, and returns `seen` to its default layout unless it is NULL.
 * Then unlocks the stream, waits, and returns the first error. With `seen`, failures of work that are kept apart stay
 * with the stream: look at the buffer's. */
HR_MUST_USE hr_status hr__stream_finish(hr_stream *stream, hr_event_kind kind, hr_buffer *seen);
/* After a commit, without a lock: waits for a place in the queue, which the next commit needs. CANCELLED if an
 * interrupt was requested meanwhile; what was recorded is dropped then. */
HR_MUST_USE hr_status hr__stream_wait_for_room(hr_stream *stream);
/* After hr__stream_finish: waits until work of other lanes allows the host to read the buffer, or to write it as well.
 * CANCELLED if an interrupt was requested meanwhile. */
HR_MUST_USE hr_status hr__stream_wait_for_buffer(hr_stream *stream, const hr_buffer *buffer, bool writes);
/* Returns the first error that was not reported yet, and marks it as reported. */
HR_MUST_USE hr_status hr__stream_take_error(hr_stream *stream);

#endif
