/* stream.h (engine): the inside of a stream.
 *
 * A stream records into `pending`. A commit looks its key up, compiles it on a miss, gives memory to the buffers that
 * need it, and hands a job to the device's queue. `rest` takes what lies behind the cut when the list was at its limit.
 *
 * Locks, in this order: the stream's mutex (recording and committing), the device's shared_mutex, the queue's. The
 * executor takes job_mutex alone.
 */
#ifndef HEADRACE_ENGINE_STREAM_H_
#define HEADRACE_ENGINE_STREAM_H_

#include <stdatomic.h>

#include "engine/cache.h"
#include "engine/instance.h"
#include "engine/policy.h"

typedef struct hr_job hr_job;

struct hr_stream {
  hr_refcount refcount;
  hr_device *device;
  hr_mutex mutex;
  atomic_int mode;
  hr_policy policy;   /* when it commits */
  bool notes_indices; /* what the host writes is looked at, for checks: where looking at it afterwards takes long */
  bool frees_live;    /* what outlives a commit may lie as the compiler likes */
  hr_trace pending, rest;
  hr_trace move; /* scratch of default_layout.c: the copy of a move */
  hr_cache cache;
  hr_stats stats;
  bool is_capture;                     /* runs nothing: graphs are made of what is pending */
  HR_VECTOR(hr_buffer *) part_buffers; /* scratch of hr_part_run */
  HR_VECTOR(size_t) part_bytes;
  /* For tools: NULL, or called after each run, on the thread that ran it. `buffers` are those of the instance's key;
   * the time of each step, 0 where none ran. Set before anything is recorded. */
  void (*watch)(void *ctx, hr_instance *instance, hr_buffer *const *buffers, const int64_t *step_ns);
  void *watch_ctx;
  atomic_int_least64_t compiled_launches; /* of the kernels in stats; counted by who runs them */
  atomic_int_least64_t graph_launches, graph_builds, graph_updates; /* likewise */
  /* Jobs have numbers, in the order in which they are handed over. Those up to `interrupted` end in front of their next
   * step. */
  atomic_uint_least64_t handed, interrupted;
  bool (*wants_interrupt)(void *arg); /* called while a thread waits; NULL: nobody may want it */
  void *wants_interrupt_arg;
  int64_t long_bytes, long_flops; /* a program of this size is not begun on the thread that waits: an interrupt shall
                                     find that waiting */
  hr_mutex job_mutex;             /* guards what follows */
  hr_job *free_jobs;
  hr_status error; /* the first that was not reported yet: until it is, jobs are discarded */
};

/* Commits the first `count` pending records; the stream is locked. A failure drops records, invalidates what they would
 * have made, and is returned. If memory was short, these are the records from the first one on that it was short for
 * (prefix.h), else all of them. All work that was handed over has run then: the failure ends none that was recorded
 * before it. */
HR_MUST_USE hr_status hr__stream_commit(hr_stream *stream, size_t count, hr_commit_reason reason, bool will_wait);
/* Hands over the pending records, which the caller clears. The stream is locked. */
HR_MUST_USE hr_status hr__stream_run_pending(hr_stream *stream, bool will_wait);
/* Hands over a move, a job of its own kind: `trace` has one record, which copies its first buffer to its second. The
 * first one has this layout, and gets the second one's memory. It runs whatever has failed before. Nothing happens, and
 * the status is OK, if the buffer has another layout by now. The stream is locked. */
HR_MUST_USE hr_status hr__stream_run_move(hr_stream *stream, hr_trace *trace, uint64_t layout, bool will_wait);
/* OK if the pending records could be handed over: they can have their memory now. Hands nothing over. The stream is
 * locked. */
HR_MUST_USE hr_status hr__stream_probe_pending(hr_stream *stream);
/* What the policy is told: an event of the stream as it is now. */
hr_event hr__stream_event(const hr_stream *stream, hr_event_kind kind);
/* Does what the policy decides for an event. The stream is locked. */
HR_MUST_USE hr_status hr__stream_notify(hr_stream *stream, const hr_event *event);
/* Has the pending records begin on another thread while the host finds its way to waiting for them, if they are to the
 * key what the host has waited for. What can't be begun so stays pending. The stream is locked. */
void hr__stream_begin(hr_stream *stream);
/* What follows `count` new records: the stream is locked, commits where the mode or a limit wants it, and is unlocked.
 */
HR_MUST_USE hr_status hr__stream_settle(hr_stream *stream, int64_t count);
/* A record met a buffer that is invalid with `status`. If that failure, or another one, was not reported yet, this is
 * the report: everything that was recorded since belongs to the work that the failure ended, and is dropped. Gives what
 * to report. */
HR_MUST_USE hr_status hr__stream_report(hr_stream *stream, hr_status status);
/* Drops the pending records. Those of their buffers from number `first` on that have no contents report `status` from
 * now on; the earlier ones belong to somebody else already. The stream is locked. */
void hr__stream_abandon(hr_stream *stream, size_t first, hr_status status);
/* Keeps the first error until somebody waits; consumes the status. */
void hr__stream_set_error(hr_stream *stream, hr_status status);
void hr__stream_free_jobs(hr_stream *stream);
/* Gives a buffer memory; where memory is short, waits for the device and tries again. */
HR_MUST_USE hr_status hr__stream_bind(hr_stream *stream, hr_buffer *buffer);

#endif
