/* event.c: events: what is ready now or later, with a failure or without.
 *
 * An event of a buffer that is pending becomes ready by a mark of the stream, which is put there when somebody waits:
 * a mark commits, and a program that nobody waits for goes on to be recorded. Work of up to some tens of milliseconds
 * runs in the call that makes the event: with a mark, three threads would wake each other in turn.
 *
 * A mark reports the stream's first failure, which may concern other buffers. Then a thread of its own finds out about
 * this one, since marks must not use the stream, and so do callbacks on the host's devices. It also takes the failure
 * from the stream, so that later marks do not report it again. `device->failures` counts these reports: an event that
 * is older than one of them is looked at in the same way, even if its mark knows of no failure any more.
 */
#include <stdlib.h>

#include "call_thread.h"
#include "plugin.h"

typedef struct waiter {
  pjrt_ready_callback callback;
  void *arg;
  struct waiter *next;
} waiter;

struct pjrt_event {
  atomic_int references;
  pthread_mutex_t lock;
  pthread_cond_t changed;
  bool is_ready, is_marked;
  bool is_call; /* a call of the stream makes it ready, which comes after the buffer's contents */
  hr_status failure;
  waiter *waiters;
  pjrt_device *device; /* of an event of a buffer; the buffer is retained until the event is ready, then NULL */
  hr_buffer *buffer;
  unsigned failures; /* of the device, when the event was made */
};

static pjrt_event done = {.is_ready = true};

pjrt_event *hrj_event_done(void) {
  return &done;
}

pjrt_event *hrj_event_create(void) {
  pjrt_event *event = calloc(1, sizeof *event);
  if (event != NULL) {
    atomic_init(&event->references, 1);
    pthread_mutex_init(&event->lock, NULL);
    pthread_cond_init(&event->changed, NULL);
  }
  return event;
}

void hrj_event_retain(pjrt_event *event) {
  if (event != &done) {
    atomic_fetch_add(&event->references, 1);
  }
}

void hrj_event_release(pjrt_event *event) {
  if (event == NULL || event == &done || atomic_fetch_sub(&event->references, 1) != 1) {
    return;
  }
  while (event->waiters != NULL) { /* an event that nobody has set */
    waiter *next = event->waiters->next;
    free(event->waiters);
    event->waiters = next;
  }
  hr_buffer_release(event->buffer);
  hr_status_free(event->failure);
  pthread_cond_destroy(&event->changed);
  pthread_mutex_destroy(&event->lock);
  free(event);
}

/* The failure of an event that is ready, as a status of the caller's. */
static hr_status failure_of(pjrt_event *event) {
  if (event == &done) {
    return HR_OK;
  }
  pthread_mutex_lock(&event->lock);
  hr_status failure = event->failure != HR_OK ? hr_status_clone(event->failure) : HR_OK;
  pthread_mutex_unlock(&event->lock);
  return failure;
}

/* Makes an event ready; false: it was, or nobody is to be called. */
static bool make_ready(pjrt_event *event, hr_status status) {
  pthread_mutex_lock(&event->lock);
  if (event->is_ready) {
    pthread_mutex_unlock(&event->lock);
    hr_status_free(status);
    return false;
  }
  event->is_ready = true, event->failure = status;
  bool has_waiters = event->waiters != NULL;
  hr_buffer *buffer = event->buffer;
  event->buffer = NULL;
  pthread_cond_broadcast(&event->changed);
  pthread_mutex_unlock(&event->lock);
  hr_buffer_release(buffer); /* arrays keep their events: a donated buffer would stay in use */
  return has_waiters;
}

/* Calls those who wait for an event that is ready: there are no new ones. */
static void call_waiters(pjrt_event *event) {
  waiter *waiters = event->waiters;
  event->waiters = NULL;
  while (waiters != NULL) {
    waiter *next = waiters->next;
    waiters->callback(hrj_error(failure_of(event)), waiters->arg);
    free(waiters);
    waiters = next;
  }
}

void hrj_event_set(pjrt_event *event, hr_status status) {
  if (make_ready(event, status)) {
    call_waiters(event);
  }
}

static void call_and_release(void *arg) {
  call_waiters(arg);
  hrj_event_release(arg);
}

/* Sets an event on the thread of the stream's work, and releases it. Callbacks wait for the stream if they want the
 * address of a buffer, which JAX's arrays on the host do. */
static void set_from_work(pjrt_event *event) {
  if (!make_ready(event, HR_OK)) {
    hrj_event_release(event);
  } else if (event->device->is_host) {
    hrj_call_later(call_and_release, event);
  } else {
    call_and_release(event);
  }
}

static bool is_ready(pjrt_event *event) {
  if (event == &done) {
    return true;
  }
  pthread_mutex_lock(&event->lock);
  bool ready = event->is_ready;
  pthread_mutex_unlock(&event->lock);
  return ready;
}

/* The event's buffer, +1; NULL: it has none, or is ready. */
static hr_buffer *hold_buffer(pjrt_event *event) {
  pthread_mutex_lock(&event->lock);
  hr_buffer *buffer = event->buffer;
  hr_buffer_retain(buffer);
  pthread_mutex_unlock(&event->lock);
  return buffer;
}

/* The state of the event's buffer, and its failure; DONE if the event is ready. */
static hr_buffer_state state_of(pjrt_event *event, hr_status *out_failure) {
  hr_buffer *buffer = hold_buffer(event);
  hr_buffer_state state =
      buffer != NULL ? hr_buffer_status(event->device->stream, buffer, out_failure) : HR_BUFFER_DONE;
  hr_buffer_release(buffer);
  return state;
}

/* Makes an event of a buffer ready if its buffer is. */
static bool settle(pjrt_event *event) {
  hr_status failure = HR_OK;
  if (state_of(event, &failure) == HR_BUFFER_PENDING) {
    hr_status_free(failure);
    return false;
  }
  hrj_event_set(event, failure);
  return true;
}

pjrt_event *hrj_event_of(pjrt_device *device, hr_buffer *buffer) {
  hr_stream *stream = device->stream;
  unsigned failures = atomic_load(&device->failures); /* before the state, which may change meanwhile */
  hr_status failure = HR_OK;
  hr_buffer_state state = hr_buffer_status(stream, buffer, &failure);
  if (state == HR_BUFFER_PENDING && (hr_stream_finish_short(stream) || hr_stream_finish_soon(stream))) {
    hr_status_free(failure);
    state = hr_buffer_status(stream, buffer, &failure);
  }
  if (state == HR_BUFFER_DONE && failure == HR_OK) {
    return &done;
  }
  pjrt_event *event = hrj_event_create();
  if (event == NULL) {
    hr_status_free(failure);
    return NULL;
  }
  event->device = device;
  event->failures = failures;
  event->is_ready = state != HR_BUFFER_PENDING;
  event->failure = failure;
  event->buffer = event->is_ready ? NULL : buffer;
  hr_buffer_retain(event->buffer);
  return event;
}

pjrt_event *hrj_event_of_buffer(pjrt_buffer *buffer) {
  return hrj_event_of(buffer->device, buffer->tensor.buffer);
}

void hrj_device_settle(pjrt_device *device) {
  atomic_fetch_add(&device->failures, 1);
  hr_status_ignore(hr_stream_synchronize(device->stream));
}

/* ---- marks ---- */

static hr_status make_dropped(void) {
  return hr_status_make(HR_STATUS_ABORTED, HRJ_PLATFORM ": a copy was dropped");
}

/* On a thread of its own: the stream may be used. */
static void *look_after_failure(void *arg) {
  pjrt_event *event = arg;
  atomic_fetch_add(&event->device->failures, 1);
  hr_stream *stream = event->device->stream;
  hr_status failure = HR_OK, reported = HR_OK;
  hr_buffer_state state = state_of(event, &failure);
  reported = hr_stream_synchronize(stream);
  if (state == HR_BUFFER_PENDING) {
    hr_status_free(failure);
    (void)state_of(event, &failure);
  }
  if (event->is_call && failure == HR_OK) { /* an interrupt dropped the call, but not the work before it */
    failure = reported != HR_OK ? reported : make_dropped();
  } else {
    hr_status_ignore(reported); /* by events of the buffers that it belongs to */
  }
  hrj_event_set(event, failure);
  hrj_event_release(event);
  return NULL;
}

/* Without a thread the event gets this failure. */
static void look_on_thread(pjrt_event *event, hr_status failure) {
  pthread_t thread;
  if (pthread_create(&thread, NULL, look_after_failure, event) == 0) {
    pthread_detach(thread);
    hr_status_free(failure);
  } else {
    hrj_event_set(event, failure);
    hrj_event_release(event);
  }
}

/* On the thread that runs the stream's work. */
static void reached(void *arg, hr_status status) {
  pjrt_event *event = arg;
  if (status == HR_OK && atomic_load(&event->device->failures) == event->failures) {
    set_from_work(event);
  } else {
    look_on_thread(event, status != HR_OK ? hr_status_clone(status) : HR_OK);
  }
}

/* Puts a mark behind the work of a buffer, once. */
static void request(pjrt_event *event) {
  pthread_mutex_lock(&event->lock);
  bool is_first = event->buffer != NULL && !event->is_ready && !event->is_marked;
  event->is_marked |= is_first;
  pthread_mutex_unlock(&event->lock);
  if (!is_first) {
    return;
  }
  hrj_event_retain(event);
  hr_status status = hr_stream_mark(event->device->stream, reached, event);
  if (status != HR_OK) {
    hrj_event_set(event, status);
    hrj_event_release(event);
  }
}

/* ---- calls of the stream ---- */

pjrt_event *hrj_event_of_call(pjrt_buffer *buffer) {
  pjrt_event *event = hrj_event_create();
  if (event != NULL) {
    event->device = buffer->device, event->buffer = buffer->tensor.buffer;
    hr_buffer_retain(event->buffer);
    event->failures = atomic_load(&buffer->device->failures);
    event->is_call = event->is_marked = true;
  }
  return event;
}

void hrj_event_called(pjrt_event *event, bool has_run) {
  if (has_run) {
    set_from_work(event);
  } else {
    look_on_thread(event, make_dropped());
  }
}

/* ---- the table ---- */

pjrt_error *hrj_Event_Destroy(pjrt_args_self *args) {
  hrj_event_release(args->self);
  return NULL;
}

/* Whoever polls an event wants the work to begin. */
pjrt_error *hrj_Event_IsReady(pjrt_args_flag *args) {
  pjrt_event *event = args->self;
  args->flag = is_ready(event);
  if (!args->flag && event->device != NULL && !event->is_call) {
    args->flag = settle(event);
    if (!args->flag) {
      request(event);
    }
  }
  return NULL;
}

pjrt_error *hrj_Event_Error(pjrt_args_self *args) {
  if (!is_ready(args->self)) {
    return hrj_error_make(HR_STATUS_FAILED_PRECONDITION, HRJ_PLATFORM ": the event is not ready");
  }
  return hrj_error(failure_of(args->self));
}

pjrt_error *hrj_Event_Await(pjrt_args_self *args) {
  pjrt_event *event = args->self;
  if (!is_ready(event)) {
    request(event);
    pthread_mutex_lock(&event->lock);
    while (!event->is_ready) {
      pthread_cond_wait(&event->changed, &event->lock);
    }
    pthread_mutex_unlock(&event->lock);
  }
  return hrj_error(failure_of(event));
}

pjrt_error *hrj_Event_OnReady(pjrt_args_on_ready *args) {
  pjrt_event *event = args->event;
  if (event == &done) {
    args->callback(NULL, args->arg);
    return NULL;
  }
  waiter *added = malloc(sizeof *added);
  if (added == NULL) {
    return hrj_error_make(HR_STATUS_RESOURCE_EXHAUSTED, HRJ_PLATFORM ": no host memory for a callback");
  }
  added->callback = args->callback, added->arg = args->arg;
  pthread_mutex_lock(&event->lock);
  bool ready = event->is_ready;
  if (!ready) {
    added->next = event->waiters, event->waiters = added;
  }
  pthread_mutex_unlock(&event->lock);
  if (ready) {
    free(added);
    args->callback(hrj_error(failure_of(event)), args->arg);
  } else {
    hrj_event_retain(event); /* the callback may destroy the event */
    request(event);
    hrj_event_release(event);
  }
  return NULL;
}

pjrt_error *hrj_Event_Create(pjrt_args_self *args) {
  pjrt_event *event = hrj_event_create();
  if (event == NULL) {
    return hrj_error_make(HR_STATUS_RESOURCE_EXHAUSTED, HRJ_PLATFORM ": no host memory for an event");
  }
  args->self = event;
  return NULL;
}

pjrt_error *hrj_Event_Set(pjrt_args_event_set *args) {
  if (is_ready(args->event)) {
    return hrj_error_make(HR_STATUS_FAILED_PRECONDITION, HRJ_PLATFORM ": the event is set already");
  }
  hrj_event_set(args->event, args->code == HR_STATUS_OK ? HR_OK
                                                        : hr_status_make((hr_status_code)args->code, "%.*s",
                                                                         (int)args->message_size, args->message));
  return NULL;
}
