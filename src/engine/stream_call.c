/* stream_call.c: functions of the host that take part in a stream's work.
 *
 * A call is a job of its lane's queue between two programs: what is pending is committed first. Functions that need
 * no whole buffers are nodes of a program instead (headrace/function.h).
 *
 * Its buffers are bound, and returned to the default layout, by the thread that records, as those of a program are.
 */
#include <string.h>

#include "base/allocator.h"
#include "engine/default_layout.h"
#include "engine/stream_order.h"
#include "engine/stream_record.h"
#include "engine/stream_wait.h"
#include "headrace/mark.h"

_Static_assert((int)HR_CALLS_AHEAD == (int)HR_QUEUE_AHEAD, "the public limit is the queue's");

typedef struct call {
  hr_queue_job entry; /* first */
  hr_stream *stream;
  uint64_t number; /* in its stream */
  uint64_t ticket; /* in its lane */
  hr_call_function function;
  void (*release)(void *arg);
  void *arg;
  int input_count, output_count;
  hr_buffer **buffers; /* inputs, then outputs; a reference of each */
  void **addresses;
  bool *is_new; /* of each output: it had no memory before */
} call;

static size_t buffer_count(const call *c) {
  return (size_t)c->input_count + (size_t)c->output_count;
}

/* ---- running, on the executor ---- */

static hr_status run_function(call *c) {
  hr_device *device = c->stream->device;
  HR_RETURN_IF_ERROR(hr__lane_flush(c->stream->lane));
  HR_RETURN_IF_ERROR(hr__device_enter(device));
  hr_status status = c->function(c->arg, c->input_count, c->addresses, c->output_count, c->addresses + c->input_count);
  hr__device_leave(device);
  hr__lane_follow_queue(c->stream->lane); /* the function may have submitted work there */
  return status;
}

/* A function that fails may have written anything; one that was dropped has written nothing. */
static void invalidate_outputs(const call *c, bool was_called, hr_status status) {
  for (int i = 0; i < c->output_count; ++i) {
    hr_buffer *buffer = c->buffers[c->input_count + i];
    if (was_called || c->is_new[i] || hr__buffer_is_undefined(buffer)) {
      hr__buffer_invalidate(buffer, status);
    }
  }
}

static void run_call(hr_queue_job *entry) {
  call *c = (call *)entry;
  hr_status status = hr__stream_find_failure(c->stream, c->number, (size_t)c->input_count, c->buffers);
  bool is_called = status == HR_OK;
  if (is_called) {
    status = run_function(c);
    hr__stream_set_error(c->stream, hr_status_clone(status));
  }
  if (status != HR_OK) {
    invalidate_outputs(c, is_called, status);
    hr_status_free(status);
  } else {
    for (int i = 0; i < c->output_count; ++i) {
      hr__stream_finish_write(c->buffers[c->input_count + i]);
    }
  }
  hr_lane *lane = c->stream->lane;
  hr__buffers_arrive(buffer_count(c), c->buffers);
  if (c->release != NULL) {
    c->release(c->arg);
  }
  hr__lane_reach(lane, c->ticket);
  hr_free(c);
}

/* ---- recording ---- */

static hr_status check_buffers(const hr_stream *stream, const char *what, int count, hr_buffer *const *buffers) {
  if (count < 0 || (count > 0 && buffers == NULL)) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "call: %d %ss%s", count, what, count < 0 ? "" : " at NULL");
  }
  for (int i = 0; i < count; ++i) {
    if (buffers[i] == NULL || buffers[i]->device != stream->device) {
      return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "call: %s %d is %s%s%s, but the stream is of device \"%s\"",
                            what, i, buffers[i] == NULL ? "NULL" : "a buffer of device \"",
                            buffers[i] == NULL ? "" : buffers[i]->device->name, buffers[i] == NULL ? "" : "\"",
                            stream->device->name);
    }
  }
  return HR_OK;
}

/* Returns the failure of an input, or makes the outputs valid again. */
static hr_status check_contents(hr_stream *stream, const call *c) {
  for (int i = 0; i < c->input_count; ++i) {
    if (hr__buffer_is_invalid(c->buffers[i])) {
      return hr__stream_report(stream, hr__buffer_failure(c->buffers[i]));
    }
  }
  for (int i = 0; i < c->output_count; ++i) {
    if (hr__buffer_is_invalid(c->buffers[c->input_count + i])) {
      hr__buffer_heal(c->buffers[c->input_count + i]);
    }
  }
  return HR_OK;
}

/* The call with everything but references and addresses; NULL without memory. */
static call *create_call(hr_stream *stream, int input_count, hr_buffer *const *inputs, int output_count,
                         hr_buffer *const *outputs) {
  size_t count = (size_t)input_count + (size_t)output_count;
  call *c = hr_calloc(1, sizeof *c + count * (2 * sizeof(void *) + sizeof(bool)));
  if (c == NULL) {
    return NULL;
  }
  *c = (call){.entry.run = run_call,
              .stream = stream,
              .input_count = input_count,
              .output_count = output_count,
              .buffers = (hr_buffer **)(c + 1),
              .addresses = (void **)(c + 1) + count,
              .is_new = (bool *)((void **)(c + 1) + 2 * count)};
  if (input_count > 0) {
    memcpy(c->buffers, inputs, (size_t)input_count * sizeof *inputs);
  }
  if (output_count > 0) {
    memcpy(c->buffers + input_count, outputs, (size_t)output_count * sizeof *outputs);
  }
  return c;
}

/* Gives all buffers memory in the default layout. */
static hr_status bind_buffers(hr_stream *stream, const call *c) {
  for (size_t i = 0; i < buffer_count(c); ++i) {
    hr_buffer *buffer = c->buffers[i];
    HR_RETURN_IF_ERROR(hr__stream_restore_default_layout(stream, buffer, false));
    HR_RETURN_IF_ERROR(hr__stream_bind(stream, buffer));
    c->addresses[i] = hr__buffer_address(buffer);
  }
  return HR_OK;
}

/* False if another stream's work has changed a layout since. */
static bool is_current(const call *c) {
  bool is = true;
  for (size_t i = 0; is && i < buffer_count(c); ++i) {
    is = hr__buffer_layout(c->buffers[i]) == 0 && hr__buffer_address(c->buffers[i]) == c->addresses[i];
  }
  return is;
}

/* Gives the call its place in the order of the device's jobs: behind the last uses of its memory, and behind the call
 * before, in other lanes. */
static void order_call(hr_lane *lane, call *c) {
  hr_device *device = lane->device;
  hr_tickets before = {{0}};
  c->ticket = hr__lane_hand(lane);
  for (size_t i = 0; i < buffer_count(c); ++i) {
    hr__lane_use(lane, c->ticket, i >= (size_t)c->input_count, &c->buffers[i]->block->uses, &before);
  }
  hr__lane_use(lane, c->ticket, true, &device->calls, &before);
  hr__lane_follow(lane, &before);
}

/* The lane's mutex and the device's order_mutex are held. */
static void hand_over(hr_stream *stream, call *c) {
  c->number = hr__stream_number_job(stream);
  order_call(stream->lane, c);
  for (size_t i = 0; i < buffer_count(c); ++i) {
    hr_buffer_retain(c->buffers[i]);
    if (i >= (size_t)c->input_count) {
      hr__buffer_restamp(c->buffers[i]);
    }
  }
  hr__buffers_send(buffer_count(c), c->buffers);
}

static hr_status bind_and_hand_over(hr_stream *stream, call *c) {
  hr_device *device = stream->device;
  hr_lane *lane = stream->lane;
  for (bool is_sent = false; !is_sent;) {
    HR_RETURN_IF_ERROR(bind_buffers(stream, c));
    hr_mutex_lock(&lane->mutex);
    hr_mutex_lock(&device->order_mutex);
    is_sent = is_current(c);
    if (is_sent) {
      hand_over(stream, c);
    }
    hr_mutex_unlock(&device->order_mutex);
    if (is_sent) {
      hr_queue_push_within(&lane->queue, &c->entry, HR_QUEUE_AHEAD);
    }
    hr_mutex_unlock(&lane->mutex);
  }
  return HR_OK;
}

/* The stream is locked. */
static hr_status submit(hr_stream *stream, call *c) {
  hr_context *before = hr__context_enter(stream->device->context);
  hr__stream_set_error(stream, hr__stream_commit_ahead(stream));
  for (int i = 0; i < c->output_count; ++i) {
    c->is_new[i] = hr__buffer_address(c->buffers[c->input_count + i]) == NULL;
  }
  stream->goes_ahead = true; /* moves to the default layout, too */
  hr_status status = bind_and_hand_over(stream, c);
  stream->goes_ahead = false;
  (void)hr__context_enter(before);
  return status;
}

static void follow_others(hr_stream *stream, const call *c) {
  for (size_t i = 0; i < buffer_count(c); ++i) {
    hr__stream_follow_writes(stream, c->buffers[i]);
    if (i >= (size_t)c->input_count) {
      hr__stream_follow_uses(stream, c->buffers[i]);
    }
  }
}

hr_status hr_stream_call(hr_stream *stream, hr_call_function function, void *arg, void (*release)(void *arg),
                         int input_count, hr_buffer *const *inputs, int output_count, hr_buffer *const *outputs) {
  if (stream == NULL || function == NULL) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "hr_stream_call: NULL argument");
  }
  HR_RETURN_IF_ERROR(hr__stream_check_submits(stream, "call"));
  HR_RETURN_IF_ERROR(output_count > 0 ? hr__stream_refuse_hooks(stream, "call") : HR_OK);
  HR_RETURN_IF_ERROR(check_buffers(stream, "input", input_count, inputs));
  HR_RETURN_IF_ERROR(check_buffers(stream, "output", output_count, outputs));
  call *c = create_call(stream, input_count, inputs, output_count, outputs);
  if (c == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "call: out of host memory");
  }
  c->function = function;
  c->arg = arg;
  c->release = release;
  if (hr__stream_has_others(stream)) {
    follow_others(stream, c);
  }
  hr_status status = check_contents(stream, c);
  if (status != HR_OK) {
    hr_free(c);
    return status;
  }
  hr_mutex_lock(&stream->mutex);
  status = submit(stream, c);
  if (status == HR_OK && hr_stream_mode(stream) == HR_MODE_STRICT) {
    return hr__stream_finish(stream, HR_EVENT_WAIT, NULL);
  }
  hr_mutex_unlock(&stream->mutex);
  if (status != HR_OK) {
    hr_free(c);
  }
  return status;
}
