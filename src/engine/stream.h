/* stream.h (engine): the inside of a stream.
 *
 * A stream records into `pending`. A commit looks its key up, compiles it on a miss, binds memory to the buffers that
 * need it, and pushes a job to its lane's queue. `rest` holds the records after the cut while a list at its limit is
 * committed.
 *
 * Locks, in this order: the stream's mutex (recording and committing), those of runtime/lane.h. The
 * executor takes job_mutex alone.
 */
#ifndef HEADRACE_ENGINE_STREAM_H_
#define HEADRACE_ENGINE_STREAM_H_

#include <stdatomic.h>

#include "engine/cache.h"
#include "engine/instance.h"
#include "engine/policy.h"
#include "headrace/hook.h"

typedef struct hr_job hr_job;
typedef struct hr_callbacks hr_callbacks; /* of marks */

struct hr_stream {
  hr_refcount refcount;
  hr_device *device;
  hr_lane *lane;          /* of the device's, that runs its jobs */
  hr_stream *next;        /* of the device's list */
  uint32_t number;        /* its traces', for threads without its lock */
  hr_mutex threads_mutex; /* held from hr_stream_begin_threads to hr_stream_end_threads; before the other one */
  hr_mutex mutex;
  atomic_int mode;
  hr_hook *hook;      /* NULL, or gets each record first (headrace/hook.h) */
  hr_policy policy;   /* when it commits */
  bool notes_indices; /* what the host writes and reads is scanned for ranges of indices, on devices that are slow to
                         read */
  bool frees_live;    /* buffers that outlive a commit may have a layout of the compiler's */
  atomic_bool is_expected; /* no record has to be shown to hr__algorithms_expect any more */
  bool is_tight;           /* memory is short: no result gets room (growth.h) */
  bool defers_copies;      /* of the present commit (deferred_copies.h) */
  bool goes_ahead;         /* a mark or a call follows: its limit is HR_QUEUE_AHEAD */
  bool returns_soon;       /* whoever commits now is to be kept for some tens of milliseconds at most */
  hr_trace pending, rest;
  uint32_t epoch; /* of the pending trace, for stream_order.h: a commit of all of it begins the next one */
  hr_trace move;  /* scratch of default_layout.c: the copy of a move */
  hr_cache cache;
  hr_stats stats;
  bool is_capture;                     /* runs nothing: parts are created from the pending records */
  HR_VECTOR(hr_buffer *) part_buffers; /* scratch of hr_part_run */
  /* For tools: NULL, or called after each run, on the thread that ran it. `buffers` are those of the instance's key;
   * `step_ns` has the time of each step, 0 for steps that did not run. Set before anything is recorded. */
  void (*watch)(void *ctx, hr_instance *instance, hr_buffer *const *buffers, const int64_t *step_ns);
  void *watch_ctx;
  int64_t forgotten;                      /* operations recorded before the last reset of the statistics */
  int64_t first_operation;                /* number of the first one of the trace that is committed */
  atomic_int_least64_t compiled_launches; /* of the kernels in stats; counted by the thread that runs them */
  atomic_int_least64_t graph_launches, graph_builds, graph_updates; /* likewise */
  /* Jobs have numbers, in the order of hand-over. Those up to `interrupted` end in front of their next step. */
  atomic_uint_least64_t handed, interrupted;
  bool keeps_failures_apart;          /* hr_stream_keep_failures_apart */
  bool (*wants_interrupt)(void *arg); /* called while a thread waits; NULL: no interrupts */
  void *wants_interrupt_arg;
  int64_t long_bytes, long_flops; /* a program of this size is not begun on the waiting thread, so that an interrupt can
                                   * end the wait */
  hr_mutex job_mutex;             /* guards the fields below */
  hr_job *free_jobs;
  hr_callbacks *callbacks;     /* of the last mark, until it is reached; NULL: none */
  _Atomic(hr_job *) spare_job; /* a free one that is taken and returned without the lock */
  /* The first failure that was not reported yet; until then, jobs are discarded. Read without the lock, too. */
  _Atomic(hr_status) error;
};

/* The failure that was not reported yet, borrowed: it may end when job_mutex is not held. */
static inline hr_status hr__stream_error(const hr_stream *stream) {
  return atomic_load_explicit(&((hr_stream *)stream)->error, memory_order_acquire);
}
/* hr_stream_create, or hr_capture_create: a capture runs nothing. */
HR_MUST_USE hr_status hr__stream_create(hr_device *device, bool is_capture, hr_stream **out_stream);
/* stream_order.h's: adds a stream, which is no capture, to its device's list. If it is the second one, commits the
 * first one. */
void hr__streams_join(hr_stream *stream);
void hr__streams_leave(hr_stream *stream);
/* stream_fork.c's, for all streams of the current context (hr_context_part). */
void hr__streams_begin_fork(void *part);
void hr__streams_end_fork(void *part, bool is_child);
/* Commits the first `count` pending records; the stream is locked. A failure drops records, invalidates their results,
 * and is returned. If memory was short, only the records from the first one without memory on are dropped (prefix.h),
 * else all of them. All submitted work has run then: the failure ends none of the work recorded before it. */
HR_MUST_USE hr_status hr__stream_commit(hr_stream *stream, size_t count, hr_commit_reason reason, bool will_wait);
/* Submits the pending records, which the caller clears. The stream is locked. */
HR_MUST_USE hr_status hr__stream_run_pending(hr_stream *stream, bool will_wait);
/* Submits a move, a job of its own kind. `trace` has one record, which copies its first buffer to its second. The first
 * buffer has this layout, and gets the second one's memory. The move also runs after failures. If the buffer has
 * another layout by now, nothing happens, and the status is OK. The stream is locked. */
HR_MUST_USE hr_status hr__stream_run_move(hr_stream *stream, hr_trace *trace, uint64_t layout, bool will_wait);
/* OK if the pending records could be submitted: their memory is available now. Submits nothing. The stream is locked.
 */
HR_MUST_USE hr_status hr__stream_probe_pending(hr_stream *stream);
/* The event for the policy: its kind, and the stream's present state. */
hr_event hr__stream_event(const hr_stream *stream, hr_event_kind kind);
/* Carries out the policy's decision for an event. The stream is locked. */
HR_MUST_USE hr_status hr__stream_notify(hr_stream *stream, const hr_event *event);
/* If the pending records match a program that the host has often waited for, begins them on another thread before the
 * host waits. They stay pending if that fails. The stream is locked. */
void hr__stream_begin(hr_stream *stream);
/* Runs the pending records on this thread if they match a program that the stream expects now, whose few kernels are
 * not worth a second thread. False: nothing was submitted. The stream is locked, and its lane's queue is empty. */
bool hr__stream_run_short(hr_stream *stream);
/* Called after `count` new records with the stream locked: commits if the mode or a limit requires it, and unlocks the
 * stream. */
HR_MUST_USE hr_status hr__stream_settle(hr_stream *stream, int64_t count);
/* The same after a part, which may also be a program that the host often waits for. */
HR_MUST_USE hr_status hr__stream_settle_part(hr_stream *stream, int64_t count);
/* Handles a record whose buffer is invalid with `status`. If that failure, or another one, was not reported yet, this
 * is the report: all pending records belong to the work that the failure ended, and are dropped, unless the stream
 * keeps failures apart. Returns the status to report. */
HR_MUST_USE hr_status hr__stream_report(hr_stream *stream, hr_status status);
/* Drops the pending records. Their buffers from number `first` on that have no contents report `status` from now on;
 * the earlier ones belong to other work already. The stream is locked. */
void hr__stream_abandon(hr_stream *stream, size_t first, hr_status status);
/* Keeps the first error until the next wait; consumes the status. */
void hr__stream_set_error(hr_stream *stream, hr_status status);
/* A copy of the failure that was not reported yet, or OK. */
HR_MUST_USE hr_status hr__stream_unreported(hr_stream *stream);
/* The number of the next job. The stream is locked. */
static inline uint64_t hr__stream_number_job(hr_stream *stream) {
  uint64_t number = atomic_load_explicit(&stream->handed, memory_order_relaxed) + 1;
  atomic_store_explicit(&stream->handed, number, memory_order_relaxed);
  return number;
}
/* The failure that prevents the run of a job with these buffers, or OK: an unreported one of a stream that does not
 * keep failures apart, an interrupt, or an invalid buffer. The last two are passed to the stream. */
HR_MUST_USE hr_status hr__stream_find_failure(hr_stream *stream, uint64_t number, size_t count,
                                              hr_buffer *const *buffers);
/* The buffer's contents are new. */
void hr__stream_finish_write(hr_buffer *buffer);
void hr__stream_free_jobs(hr_stream *stream);
/* Binds memory to a buffer; if memory is short, waits for the device and tries again. */
HR_MUST_USE hr_status hr__stream_bind(hr_stream *stream, hr_buffer *buffer);
/* The same with memory of `capacity` bytes, if the buffer has none. */
HR_MUST_USE hr_status hr__stream_bind_room(hr_stream *stream, hr_buffer *buffer, size_t capacity);

#endif
