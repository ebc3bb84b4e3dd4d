/* stream_wait.c: commits by the policy's decision, and waits. */
#include "engine/stream_wait.h"

#include "engine/default_layout.h"
#include "engine/record_note.h"
#include "headrace/mark.h"

static const int64_t NS_PER_MS = 1000 * 1000;

/* ---- when to commit: policy.h decides ---- */

/* Recorded so far. */
static int64_t operations_of(const hr_stream *stream) {
  return stream->forgotten + stream->stats.operations;
}

hr_event hr__stream_event(const hr_stream *stream, hr_event_kind kind) {
  return (hr_event){.kind = kind,
                    .mode = hr_stream_mode(stream),
                    .records = stream->pending.records.count,
                    .bytes = stream->pending.pending_bytes,
                    .operations = operations_of(stream)};
}

hr_status hr__stream_notify(hr_stream *stream, const hr_event *event) {
  const hr_decision decision = hr__policy_decide(&stream->policy, event);
  if (decision.action == HR_BEGIN) {
    hr__stream_begin(stream);
  }
  if (decision.action != HR_COMMIT) {
    return HR_OK;
  }
  size_t count = decision.count == HR_CUT ? hr__trace_cut(&stream->pending) : decision.count;
  stream->defers_copies = decision.defers_copies;
  hr_status status = hr__stream_commit(stream, count, decision.reason, decision.runs_here);
  stream->defers_copies = false;
  if (decision.is_early) {
    hr__policy_committed_early(&stream->policy);
  }
  return status;
}

/* Failures belong to earlier operations: the next wait reports them. */
void hr__stream_notify_of(hr_stream *stream, hr_event_kind kind) {
  const hr_event event = hr__stream_event(stream, kind);
  hr__stream_set_error(stream, hr__stream_notify(stream, &event));
}

void hr_stream_hint(hr_stream *stream, hr_hint hint) {
  if (stream->is_capture) {
    return;
  }
  hr_mutex_lock(&stream->mutex);
  switch (hint) {
    case HR_HINT_PASS_BEGINS:
      hr__stream_notify_of(stream, HR_EVENT_PASS_BEGINS);
      break;
    case HR_HINT_AWAITED:
      hr__policy_awaits(&stream->policy, operations_of(stream));
      break;
    case HR_HINT_DUE:
      hr__stream_notify_of(stream, HR_EVENT_DUE);
      break;
    case HR_HINT_PAUSED:
      hr__stream_notify_of(stream, HR_EVENT_PAUSED);
      hr__policy_paused(&stream->policy, operations_of(stream));
      break;
    case HR_HINT_CALL_BEGINS:
      hr__policy_call_begins(&stream->policy, stream->pending.records.count, stream->pending.pending_bytes);
      break;
    case HR_HINT_CALL_ENDS:
      hr__policy_call_ends(&stream->policy);
      hr__stream_notify_of(stream, HR_EVENT_CALL_ENDS);
      break;
  }
  hr_mutex_unlock(&stream->mutex);
}

void hr_stream_set_mode(hr_stream *stream, hr_mode mode) {
  if (stream->is_capture) {
    return;
  }
  hr_mutex_lock(&stream->mutex);
  if (mode != HR_MODE_FUSE) {
    hr__stream_notify_of(stream, HR_EVENT_MODE);
  }
  atomic_store(&stream->mode, (int)mode);
  hr_mutex_unlock(&stream->mutex);
}

/* ---- waiting ---- */

hr_status hr__stream_take_error(hr_stream *stream) {
  if (__builtin_expect(hr__stream_error(stream) == HR_OK, 1)) {
    return HR_OK;
  }
  hr_mutex_lock(&stream->job_mutex); /* nobody copies it now */
  hr_status status = atomic_exchange_explicit(&stream->error, NULL, memory_order_acq_rel);
  hr_mutex_unlock(&stream->job_mutex);
  return status;
}

void hr_stream_fail(hr_stream *stream, hr_status status) {
  hr__stream_set_error(stream, status);
}

void hr_stream_keep_failures_apart(hr_stream *stream) {
  hr_mutex_lock(&stream->mutex);
  stream->keeps_failures_apart = true;
  hr_mutex_unlock(&stream->mutex);
}

void hr_stream_interrupt(hr_stream *stream) {
  atomic_store(&stream->interrupted, atomic_load(&stream->handed));
}

void hr_stream_set_interrupt_check(hr_stream *stream, bool (*wants_interrupt)(void *arg), void *arg) {
  hr_mutex_lock(&stream->mutex);
  stream->wants_interrupt = wants_interrupt;
  stream->wants_interrupt_arg = arg;
  hr_mutex_unlock(&stream->mutex);
}

hr_status hr_stream_check_interrupt(hr_stream *stream) {
  bool is_interrupted = stream->wants_interrupt != NULL && stream->wants_interrupt(stream->wants_interrupt_arg);
  return is_interrupted ? hr_status_make(HR_STATUS_CANCELLED, "interrupted") : HR_OK;
}

/* Waits for all work that the lane was given; true if an interrupt was requested meanwhile. The stream is not locked.
 */
static bool wait_for_lane(hr_stream *stream) {
  hr_queue *queue = &stream->lane->queue;
  bool is_interrupted = false;
  if (stream->wants_interrupt == NULL) {
    hr_queue_drain(queue);
    return false;
  }
  uint64_t last = atomic_load_explicit(&queue->pushed, memory_order_relaxed);
  while (!hr_queue_wait_until(queue, last, hr_clock_ns() + HR_INTERRUPT_CHECK_MS * NS_PER_MS)) {
    if (stream->wants_interrupt(stream->wants_interrupt_arg)) {
      hr_stream_interrupt(stream);
      is_interrupted = true;
    }
  }
  return is_interrupted;
}

static hr_tickets tickets_of(const hr_buffer *buffer, bool writes) {
  hr_device *device = buffer->device;
  hr_tickets tickets = {{0}};
  hr_mutex_lock(&device->order_mutex);
  hr_mutex_lock(&device->bind_mutex);
  if (buffer->block != NULL) {
    hr__lane_use(NULL, 0, writes, &buffer->block->uses, &tickets);
  }
  hr_mutex_unlock(&device->bind_mutex);
  hr_mutex_unlock(&device->order_mutex);
  return tickets;
}

hr_status hr__stream_wait_for_buffer(hr_stream *stream, const hr_buffer *buffer, bool writes) {
  hr_device *device = stream->device;
  if (!atomic_load_explicit(&device->has_several_lanes, memory_order_relaxed)) {
    return HR_OK;
  }
  const hr_tickets tickets = tickets_of(buffer, writes);
  while (!hr__tickets_wait_until(device, &tickets, hr_clock_ns() + HR_INTERRUPT_CHECK_MS * NS_PER_MS)) {
    if (stream->wants_interrupt != NULL && stream->wants_interrupt(stream->wants_interrupt_arg)) {
      return hr_status_make(HR_STATUS_CANCELLED, "interrupted");
    }
  }
  return hr__tickets_finish(device, &tickets);
}

static hr_status refuse_capture(void) {
  return hr_status_make(HR_STATUS_FAILED_PRECONDITION,
                        "capture: a value is needed, but nothing runs before the graph does");
}

/* Deferred copies of a failed program belong to the work that the failure ended. */
static void drop_deferred(hr_stream *stream, hr_status status) {
  hr_mutex_lock(&stream->mutex);
  hr__stream_abandon(stream, 0, status);
  hr_mutex_unlock(&stream->mutex);
}

/* The failure that a wait returns: `own`, of the buffer that is waited for, or the stream's first one. */
static hr_status take_failure(hr_stream *stream, bool is_own, hr_status own) {
  if (is_own) {
    return own;
  }
  hr__stream_set_error(stream, own);
  return hr__stream_take_error(stream);
}

/* Commits everything; for HR_EVENT_READ, what `seen` needs. Returns `seen` to its default layout unless it is NULL.
 * Then unlocks the stream, waits, and returns the first error. With `seen`, a stream that keeps failures apart keeps
 * those of its work, too: the caller looks at the buffer's. */
hr_status hr__stream_finish(hr_stream *stream, hr_event_kind kind, hr_buffer *seen) {
  if (stream->is_capture) {
    hr_mutex_unlock(&stream->mutex);
    return refuse_capture();
  }
  if (__builtin_expect(stream->device->is_lost, 0)) {
    hr_mutex_unlock(&stream->mutex);
    return hr__device_check(stream->device, "a value");
  }
  hr__stream_notify_of(stream, kind);
  hr__policy_waited(&stream->policy);
  if (seen != NULL && hr__trace_find(&stream->pending, seen) != UINT32_MAX) {
    hr__stream_notify_of(stream, HR_EVENT_WAIT);
  }
  bool has_deferred = stream->pending.records.count > 0;
  bool has_layout = seen != NULL && hr__buffer_layout(seen) != 0;
  hr_status own = has_layout ? hr__stream_restore_default_layout(stream, seen, true) : HR_OK;
  hr_mutex_unlock(&stream->mutex);
  bool is_interrupted = wait_for_lane(stream);
  hr__stream_set_error(stream, hr__lane_flush(stream->lane));
  hr_status status = take_failure(stream, stream->keeps_failures_apart && seen != NULL && !is_interrupted, own);
  if (status != HR_OK && has_deferred && !stream->keeps_failures_apart) {
    drop_deferred(stream, status);
  }
  return status == HR_OK && is_interrupted ? hr_status_make(HR_STATUS_CANCELLED, "interrupted") : status;
}

hr_status hr__stream_wait_for_room(hr_stream *stream) {
  hr_queue *queue = &stream->lane->queue;
  bool is_interrupted = false;
  while (stream->wants_interrupt != NULL && !is_interrupted &&
         !hr_queue_wait_for_room(queue, hr_clock_ns() + HR_INTERRUPT_CHECK_MS * NS_PER_MS)) {
    is_interrupted = stream->wants_interrupt(stream->wants_interrupt_arg);
  }
  if (!is_interrupted) {
    return HR_OK;
  }
  hr_stream_interrupt(stream);
  hr_queue_drain(queue);
  hr_status status = hr__stream_take_error(stream);
  status = status != HR_OK ? status : hr_status_make(HR_STATUS_CANCELLED, "interrupted");
  drop_deferred(stream, status);
  return status;
}

bool hr_stream_finish_short(hr_stream *stream) {
  hr_queue *queue = &stream->lane->queue;
  bool is_plain = !stream->is_capture && !stream->device->is_lost && stream->device->properties.is_host &&
                  hr__recorded(stream->device) == 0;
  if (!is_plain || !hr_mutex_try_lock(&stream->mutex)) {
    return false;
  }
  bool has_run = hr_queue_is_drained(queue) && hr__stream_error(stream) == HR_OK &&
                 (stream->pending.records.count == 0 || hr__stream_run_short(stream));
  if (has_run) {
    hr__policy_waited(&stream->policy);
  }
  hr_mutex_unlock(&stream->mutex);
  return has_run && hr_queue_is_drained(queue) && hr__stream_error(stream) == HR_OK;
}

bool hr_stream_finish_soon(hr_stream *stream) {
  if (stream->is_capture || !stream->device->properties.is_host || !hr_mutex_try_lock(&stream->mutex)) {
    return false;
  }
  stream->goes_ahead = stream->returns_soon = true;
  hr__stream_notify_of(stream, HR_EVENT_WAIT);
  stream->goes_ahead = stream->returns_soon = false;
  hr_queue_settle(&stream->lane->queue);
  bool has_run = hr_queue_is_drained(&stream->lane->queue) && hr__stream_error(stream) == HR_OK;
  if (has_run) {
    hr__policy_waited(&stream->policy);
  }
  hr_mutex_unlock(&stream->mutex);
  return has_run;
}

hr_status hr_stream_synchronize(hr_stream *stream) {
  hr_mutex_lock(&stream->mutex);
  return hr__stream_finish(stream, HR_EVENT_WAIT, NULL);
}

/* The stream is locked. */
static hr_status commit(hr_stream *stream) {
  const hr_event event = hr__stream_event(stream, HR_EVENT_REQUEST);
  return hr__stream_notify(stream, &event);
}

hr_status hr_stream_commit(hr_stream *stream) {
  if (stream->is_capture) {
    return refuse_capture();
  }
  hr_mutex_lock(&stream->mutex);
  hr_status status = commit(stream);
  hr_mutex_unlock(&stream->mutex);
  return status;
}

/* Commits what was recorded for the number of threads until now. */
static hr_status set_threads(hr_stream *stream, int count) {
  hr_mutex_lock(&stream->mutex);
  hr_status status = commit(stream);
  stream->pending.threads = stream->rest.threads = stream->move.threads = count;
  hr_mutex_unlock(&stream->mutex);
  return status;
}

hr_status hr_stream_begin_threads(hr_stream *stream, int count) {
  if (stream->is_capture) {
    return refuse_capture();
  }
  if (count < 1 || count > HR_THREADS_MAX) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "threads is %d, expected 1 to %d", count, HR_THREADS_MAX);
  }
  hr_mutex_lock(&stream->threads_mutex);
  hr_status status = set_threads(stream, count);
  if (status != HR_OK) {
    hr_status_ignore(set_threads(stream, 0));
    hr_mutex_unlock(&stream->threads_mutex);
  }
  return status;
}

hr_status hr_stream_end_threads(hr_stream *stream) {
  hr_status status = set_threads(stream, 0);
  hr_mutex_unlock(&stream->threads_mutex);
  return status;
}

hr_status hr__stream_commit_ahead(hr_stream *stream) {
  stream->goes_ahead = true;
  hr_status status = commit(stream);
  stream->goes_ahead = false;
  return status;
}

hr_status hr__stream_check_submits(const hr_stream *stream, const char *what) {
  if (stream->is_capture) {
    return hr_status_make(HR_STATUS_FAILED_PRECONDITION, "%s: a capture runs nothing", what);
  }
  return hr__device_check(stream->device, what);
}
