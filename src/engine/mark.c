/* A mark is a note in the queue of its stream's lane, and so is a call of hr_stream_mark. On a device that works beside
 * the host it waits for the device, on the executor's thread: only users of times or progress pay for that.
 */
#include "headrace/mark.h"

#include <stdatomic.h>

#include "base/allocator.h"
#include "base/refcount.h"
#include "base/thread.h"
#include "base/vector.h"
#include "engine/stream_order.h"
#include "engine/stream_wait.h"

struct hr_mark {
  hr_queue_job job; /* first */
  hr_refcount refcount;
  hr_lane *lane;           /* valid while the job is in its queue */
  uint64_t number;         /* of the job */
  atomic_int_least64_t ns; /* 0: not reached */
};

static void reach(hr_queue_job *job) {
  hr_mark *mark = (hr_mark *)job;
  hr_status_ignore(hr__lane_flush(mark->lane)); /* waiting threads get the error */
  atomic_store_explicit(&mark->ns, hr_clock_ns(), memory_order_release);
  hr_mark_release(mark);
}

/* True if all work that the lane was given has run. */
static bool is_idle(hr_stream *stream, uint64_t *out_number) {
  *out_number = atomic_load(&stream->lane->queue.pushed);
  return atomic_load(&stream->lane->queue.completed) >= *out_number;
}

hr_status hr_mark_create(hr_stream *stream, hr_mark **out_mark) {
  HR_RETURN_IF_ERROR(hr__stream_check_submits(stream, "mark"));
  hr_mutex_lock(&stream->mutex);
  hr_status status = hr__stream_commit_ahead(stream);
  hr_mutex_unlock(&stream->mutex);
  HR_RETURN_IF_ERROR(status);
  hr_mark *mark = hr_calloc(1, sizeof *mark);
  if (mark == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "a mark: out of host memory");
  }
  mark->job.run = reach;
  mark->lane = stream->lane;
  hr_refcount_init(&mark->refcount);
  *out_mark = mark;
  if (stream->device->driver->flush == NULL && is_idle(stream, &mark->number)) {
    atomic_store_explicit(&mark->ns, hr_clock_ns(), memory_order_release);
    return HR_OK;
  }
  hr_refcount_retain(&mark->refcount); /* the queue's */
  mark->number = hr_queue_push_note(&stream->lane->queue, &mark->job);
  return HR_OK;
}

/* A commit pushes one job, or two if the trace is cut; then comes the mark. */
hr_status hr_mark_try_create(hr_stream *stream, hr_mark **out_mark) {
  *out_mark = NULL;
  return hr_queue_has_room(&stream->lane->queue, 3) ? hr_mark_create(stream, out_mark) : HR_OK;
}

void hr_mark_release(hr_mark *mark) {
  if (mark != NULL && hr_refcount_release(&mark->refcount)) {
    hr_free(mark);
  }
}

bool hr_mark_is_reached(const hr_mark *mark) {
  return hr_mark_ns(mark) != 0;
}

bool hr_mark_is_last(const hr_mark *mark, hr_stream *stream) {
  hr_mutex_lock(&stream->mutex);
  bool is_last = stream->pending.records.count == 0 && atomic_load(&stream->lane->queue.pushed) == mark->number;
  hr_mutex_unlock(&stream->mutex);
  return is_last;
}

int64_t hr_mark_ns(const hr_mark *mark) {
  return atomic_load_explicit(&((hr_mark *)mark)->ns, memory_order_acquire);
}

/* ---- functions that are called at a mark ---- */

typedef struct callback {
  void (*function)(void *arg, hr_status status);
  void *arg;
} callback;

/* The note of all calls for the same place of the stream: each note of its own would wait for the device again. The
 * queue and the call that pushes it have a reference each. */
struct hr_callbacks {
  hr_queue_job job; /* first */
  hr_refcount refcount;
  hr_stream *stream;
  uint64_t number; /* of the job */
  bool is_reached; /* guarded by the stream's job_mutex, like the list until then */
  HR_VECTOR(callback) list;
};

static void release_callbacks(hr_callbacks *callbacks) {
  if (hr_refcount_release(&callbacks->refcount)) {
    hr_vector_fini(&callbacks->list);
    hr_free(callbacks);
  }
}

static void close_callbacks(hr_callbacks *callbacks) {
  hr_stream *stream = callbacks->stream;
  hr_mutex_lock(&stream->job_mutex);
  callbacks->is_reached = true;
  if (stream->callbacks == callbacks) {
    stream->callbacks = NULL;
  }
  hr_mutex_unlock(&stream->job_mutex);
}

static void call_back(hr_queue_job *job) {
  hr_callbacks *callbacks = (hr_callbacks *)job;
  hr__stream_set_error(callbacks->stream, hr__lane_flush(callbacks->stream->lane));
  close_callbacks(callbacks);
  hr_status status = hr__stream_unreported(callbacks->stream);
  for (size_t i = 0; i < callbacks->list.count; ++i) {
    callbacks->list.data[i].function(callbacks->list.data[i].arg, status);
  }
  hr_status_free(status);
  release_callbacks(callbacks);
}

/* Adds a call to the stream's last note if no work came since. The stream is locked. */
static bool join_callbacks(hr_stream *stream, callback c) {
  hr_mutex_lock(&stream->job_mutex);
  hr_callbacks *last = stream->callbacks;
  bool has_joined =
      last != NULL && atomic_load(&stream->lane->queue.pushed) == last->number && hr_vector_push(&last->list, c);
  hr_mutex_unlock(&stream->job_mutex);
  return has_joined;
}

/* The stream is locked. */
static hr_status push_callbacks(hr_stream *stream, callback c) {
  hr_callbacks *callbacks = hr_calloc(1, sizeof *callbacks);
  if (callbacks == NULL || !hr_vector_push(&callbacks->list, c)) {
    hr_free(callbacks);
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "a mark: out of host memory");
  }
  callbacks->job.run = call_back;
  callbacks->stream = stream;
  hr_refcount_init(&callbacks->refcount);
  hr_refcount_retain(&callbacks->refcount);
  uint64_t number = hr_queue_push_note(&stream->lane->queue, &callbacks->job);
  hr_mutex_lock(&stream->job_mutex);
  if (!callbacks->is_reached) {
    callbacks->number = number;
    stream->callbacks = callbacks;
  }
  hr_mutex_unlock(&stream->job_mutex);
  release_callbacks(callbacks);
  return HR_OK;
}

/* The stream lives on until its last work has ended: see hr_stream_release. */
hr_status hr_stream_mark(hr_stream *stream, void (*function)(void *arg, hr_status status), void *arg) {
  if (stream == NULL || function == NULL) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "hr_stream_mark: NULL argument");
  }
  HR_RETURN_IF_ERROR(hr__stream_check_submits(stream, "mark"));
  const callback c = {function, arg};
  hr_mutex_lock(&stream->mutex);
  hr__stream_set_error(stream, hr__stream_commit_ahead(stream));
  hr_status status = join_callbacks(stream, c) ? HR_OK : push_callbacks(stream, c);
  hr_mutex_unlock(&stream->mutex);
  return status;
}

/* ---- the state of a buffer ---- */

static int64_t references_of(const hr_buffer *buffer) {
  return atomic_load_explicit(&((hr_buffer *)buffer)->count, memory_order_acquire);
}

/* Pending records have a reference of their buffers, and so has work: some that was begun early is ended here, as it is
 * no reference of in-flight work (hr_queue_submit_early). Of which buffers the work is that a device beside the host
 * has not ended is not known. */
static bool is_pending(hr_stream *stream, const hr_buffer *buffer) {
  if (references_of(buffer) > 1) {
    hr__device_settle(stream->device);
    if (hr__streams_use(stream, buffer) || references_of(buffer) >= HR__BUFFER_ON_ITS_WAY) {
      return true;
    }
  }
  return hr__lane_may_run(stream->lane);
}

hr_buffer_state hr_buffer_status(hr_stream *stream, const hr_buffer *buffer, hr_status *out_failure) {
  hr_status failure = HR_OK;
  hr_buffer_state state = is_pending(stream, buffer) ? HR_BUFFER_PENDING : HR_BUFFER_DONE;
  if (state == HR_BUFFER_DONE && hr__buffer_is_invalid(buffer)) {
    failure = hr__buffer_failure(buffer);
    state = failure != HR_OK ? HR_BUFFER_FAILED : state;
  }
  if (out_failure != NULL) {
    *out_failure = failure;
  } else {
    hr_status_free(failure);
  }
  return state;
}

/* The stream's own references are those of its pending work, and of work on its way. */
bool hr_buffer_is_unique(hr_stream *stream, const hr_buffer *buffer) {
  hr_mutex_lock(&stream->mutex);
  bool is_pending_here = hr__trace_find(&stream->pending, buffer) != UINT32_MAX;
  int64_t others = hr__buffer_holders((hr_buffer *)buffer) - is_pending_here;
  hr_mutex_unlock(&stream->mutex);
  return others <= 1 && !buffer->is_constant &&
         atomic_load_explicit(&((hr_buffer *)buffer)->stamp, memory_order_relaxed) != 0;
}
