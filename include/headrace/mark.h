/* mark.h: positions in a stream's work, and the times when the device reached them. Frontends implement events with
 * them.
 *
 * Threads: any.
 */
#ifndef HEADRACE_MARK_H_
#define HEADRACE_MARK_H_

#include "headrace/stream.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct hr_mark hr_mark;

/* Commits everything pending and places a mark after it, without waiting for the work. The caller owns one reference.
 * If the device's queue is full, this waits for a free place, as a commit does. */
HR_API HR_MUST_USE hr_status hr_mark_create(hr_stream *stream, hr_mark **out_mark);
/* The same, but never waits: *out_mark is NULL while the queue has no place, so that earlier work is not done either.
 */
HR_API HR_MUST_USE hr_status hr_mark_try_create(hr_stream *stream, hr_mark **out_mark);
/* Drops a reference; NULL is fine. */
HR_API void hr_mark_release(hr_mark *mark);
/* True once all work before the mark is done, or was dropped because of a failure. Never waits. */
HR_API bool hr_mark_is_reached(const hr_mark *mark);
/* True if nothing was recorded on the stream since the mark was put there, and no other work given to its device. */
HR_API bool hr_mark_is_last(const hr_mark *mark, hr_stream *stream);
/* When the mark was reached, in nanoseconds of a clock that starts anywhere; 0 before that. */
HR_API int64_t hr_mark_ns(const hr_mark *mark);

#ifdef __cplusplus
}
#endif

#endif
