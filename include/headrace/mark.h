/* mark.h: positions in a stream's work: their times, functions that are called there, and functions that take part in
 * the work. Frontends implement events, callbacks and communication with them.
 *
 * Nothing here waits for the work. A stream and its device must be ready for what comes before a position, though: a
 * program is compiled first, and memory that is short is waited for.
 *
 * Threads: any. Functions are called on the thread that runs the stream's work. Those of hr_stream_call are called one
 * at a time, in the order of their recording in all streams of the device. They must not use a stream of the device,
 * except for hr_stream_interrupt, and must not need a lock that a recording thread may hold. They may retain and
 * release buffers.
 */
#ifndef HEADRACE_MARK_H_
#define HEADRACE_MARK_H_

#include "headrace/stream.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct hr_mark hr_mark;

/* Commits everything pending and places a mark after it, without waiting for the work. The caller owns one reference.
 */
HR_API HR_MUST_USE hr_status hr_mark_create(hr_stream *stream, hr_mark **out_mark);
/* The same, but never waits: *out_mark is NULL while the queue has no place, so that earlier work is not done either.
 */
HR_API HR_MUST_USE hr_status hr_mark_try_create(hr_stream *stream, hr_mark **out_mark);
/* Drops a reference; NULL is fine. */
HR_API void hr_mark_release(hr_mark *mark);
/* True once all work before the mark is done, or was dropped because of a failure. Never waits. */
HR_API bool hr_mark_is_reached(const hr_mark *mark);
/* True if nothing was recorded on the stream since the mark was put there, and no other work given to the stream's
 * queue. */
HR_API bool hr_mark_is_last(const hr_mark *mark, hr_stream *stream);
/* When the mark was reached, in nanoseconds of a clock that starts anywhere; 0 before that. */
HR_API int64_t hr_mark_ns(const hr_mark *mark);

/* Commits everything pending. When all work recorded so far has ended, function(arg, status) is called, exactly once
 * unless this call fails. The status is borrowed for the call. It is the stream's first failure that no wait or record
 * has reported yet, or OK; it stays to be reported. FAILED_PRECONDITION for a capture, and in a forked child which
 * cannot use the device. */
HR_API HR_MUST_USE hr_status hr_stream_mark(hr_stream *stream, void (*function)(void *arg, hr_status status),
                                            void *arg);

/* Tells the stream that work which it was given has failed in a way that the device does not notice. That is a failure
 * like others: the next wait reports it, and later work is dropped until then. Takes the status, which is no OK. What
 * the failed work writes has undefined contents. */
HR_API void hr_stream_fail(hr_stream *stream, hr_status status);

/* A function of the host that takes part in a stream's work. It gets the addresses of its input and output buffers on
 * the device, valid until it returns; the device is current on the thread, for libraries. Its status is that of the
 * work. */
typedef hr_status (*hr_call_function)(void *arg, int input_count, void *const *inputs, int output_count,
                                      void *const *outputs);
/* Commits everything pending and appends a call. The function runs after the work recorded before and ahead of the work
 * recorded later, while the caller goes on. It waits only if HR_CALLS_AHEAD calls and programs have not run yet.
 *
 * Buffers have their default layout. A buffer may be an input and an output at once; an output that is no input has
 * undefined contents before the call, if all of it was not written before.
 *
 * Failures are those of a kernel: the next wait reports them, later work is dropped until then, and the outputs of a
 * call that failed are invalid. A call is dropped, as a program is, after a failure that was not reported yet, after an
 * interrupt, or if an input is invalid by then; outputs with older contents keep them. A call that has begun is not
 * interrupted.
 *
 * release(arg), if not NULL, is called once after the function has returned or was dropped, on any thread; never if
 * this call fails. FAILED_PRECONDITION as for hr_stream_mark; INVALID_ARGUMENT for a buffer of another device; the
 * failure of an input that is invalid. In the mode strict this also waits. */
HR_API HR_MUST_USE hr_status hr_stream_call(hr_stream *stream, hr_call_function function, void *arg,
                                            void (*release)(void *arg), int input_count, hr_buffer *const *inputs,
                                            int output_count, hr_buffer *const *outputs);
enum { HR_CALLS_AHEAD = 64 };

typedef enum hr_buffer_state {
  HR_BUFFER_PENDING = 0, /* the stream has recorded work with it, or the device was given some, that has not ended */
  HR_BUFFER_DONE,
  HR_BUFFER_FAILED /* the work that should have written it failed */
} hr_buffer_state;
/* The state of a buffer of the stream's device; waits for no work. On a device beside the host all buffers count as
 * pending while the device may run work of this stream: until a wait for it, or a mark behind it. *out_failure, if not
 * NULL, is the failure or OK, and the caller's. */
HR_API hr_buffer_state hr_buffer_status(hr_stream *stream, const hr_buffer *buffer, hr_status *out_failure);

#ifdef __cplusplus
}
#endif

#endif
