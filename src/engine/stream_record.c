/* stream_record.c: checks operations and appends them to the trace. */
#include "engine/stream_record.h"

#include "core/ops/infer.h"
#include "engine/algorithms.h"
#include "engine/host_view.h"
#include "engine/records.h"
#include "engine/stream_order.h"
#include "engine/stream_wait.h"

/* ---- recording ---- */

/* Rows that change part of an output whose view is whole, and do not name it as an input. */
static bool updates_in_place(hr_op op) {
  return (hr_op_table(op)->traits & HR_TRAIT_UPDATES) != 0;
}

hr_status hr__stream_check_device(const hr_stream *stream, hr_op op, const hr_buffer *buffer) {
  if (__builtin_expect(buffer->device == stream->device, 1)) {
    return HR_OK;
  }
  return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "%s: a buffer of device \"%s\" on a stream of device \"%s\"",
                        hr_op_table(op)->name, buffer->device->name, stream->device->name);
}

/* True if a view's buffer is of another device, or its contents were never made. */
static inline bool is_suspect(const hr_stream *stream, const hr_view *view) {
  return view->buffer != NULL && (view->buffer->device != stream->device || hr__buffer_is_invalid(view->buffer));
}

static inline bool has_suspect(const hr_stream *stream, int count, const hr_view *views) {
  for (int i = 0; i < count; ++i) {
    if (__builtin_expect(is_suspect(stream, &views[i]), 0)) {
      return true;
    }
  }
  return false;
}

static hr_status check_devices(const hr_stream *stream, hr_op op, int count, const hr_view *views) {
  for (int i = 0; i < count; ++i) {
    if (views[i].buffer != NULL) {
      HR_RETURN_IF_ERROR(hr__stream_check_device(stream, op, views[i].buffer));
    }
  }
  return HR_OK;
}

/* Rejects inputs whose contents were never made. An output that is written completely becomes valid again. */
hr_status hr__check_contents(hr_op op, int input_count, const hr_view *inputs, int output_count,
                             const hr_view *outputs) {
  for (int i = 0; i < input_count; ++i) {
    if (inputs[i].buffer != NULL && hr__buffer_is_invalid(inputs[i].buffer)) {
      return hr__buffer_failure(inputs[i].buffer);
    }
  }
  for (int i = 0; i < output_count; ++i) {
    if (outputs[i].buffer != NULL && hr__buffer_is_invalid(outputs[i].buffer)) {
      if (updates_in_place(op) || !hr__view_is_whole(&outputs[i])) {
        return hr__buffer_failure(outputs[i].buffer);
      }
      hr__buffer_heal(outputs[i].buffer);
    }
  }
  return HR_OK;
}

hr_status hr__stream_report(hr_stream *stream, hr_status status) {
  if (stream->keeps_failures_apart) {
    return status;
  }
  hr_mutex_lock(&stream->mutex);
  hr_queue_drain(&stream->lane->queue);
  hr_status error = hr__stream_take_error(stream);
  if (error != HR_OK) {
    hr__stream_abandon(stream, 0, error);
    hr_status_free(status);
    status = error;
  }
  hr_mutex_unlock(&stream->mutex);
  return status;
}

/* True if the operation is large and reads and writes memory independently of earlier records. False for the products
 * of a composed attention, which may be matched into one operation. */
static bool stands_alone(hr_op op, const hr_view *inputs) {
  return (hr_op_table(op)->traits & HR_TRAIT_LARGE) != 0 && (op != HR_OP_MATMUL || inputs[1].rank <= 2);
}

static void before_large(hr_stream *stream) {
  hr_event event = hr__stream_event(stream, HR_EVENT_RECORD);
  event.stands_alone = true;
  hr__stream_set_error(stream, hr__stream_notify(stream, &event));
}

static bool keeps(const hr_stream *stream) {
  return hr__policy_keeps(&stream->policy, hr_stream_mode(stream), stream->pending.records.count,
                          stream->pending.pending_bytes);
}

static inline void count_records(hr_stream *stream, int64_t count) {
  stream->stats.operations += count;
  int recorded = hr__recorded(stream->device);
  if (__builtin_expect(recorded != 0, 0)) {
    hr__records_mark(&stream->pending, (size_t)count, recorded);
  }
}

/* Part of hr__stream_settle: a mode or a limit requires a commit. */
static hr_status settle_what_is_due(hr_stream *stream) {
  if (hr_stream_mode(stream) == HR_MODE_STRICT) {
    return hr__stream_finish(stream, HR_EVENT_RECORDED, NULL);
  }
  while (stream->pending.records.count > 0 && !keeps(stream)) {
    hr__stream_notify_of(stream, HR_EVENT_RECORDED);
  }
  hr_mutex_unlock(&stream->mutex);
  return hr__stream_wait_for_room(stream);
}

hr_status hr__stream_settle(hr_stream *stream, int64_t count) {
  count_records(stream, count);
  if (__builtin_expect(!keeps(stream), 0)) {
    return settle_what_is_due(stream);
  }
  hr_mutex_unlock(&stream->mutex);
  return HR_OK;
}

hr_status hr__stream_settle_part(hr_stream *stream, int64_t count) {
  count_records(stream, count);
  const hr_trace *pending = &stream->pending;
  if (__builtin_expect(!hr__policy_keeps_part(&stream->policy, hr_stream_mode(stream), pending->records.count,
                                              pending->pending_bytes),
                       0)) {
    hr__stream_notify_of(stream, HR_EVENT_PART_APPENDED);
    return settle_what_is_due(stream);
  }
  hr_mutex_unlock(&stream->mutex);
  return HR_OK;
}

/* Outside of hr_stream_record, whose common case it would slow down. */
__attribute__((noinline)) static void note_writes(hr_stream *stream, int count, const hr_view *outputs) {
  for (int i = 0; i < count; ++i) {
    if (outputs[i].buffer != NULL) {
      hr__stream_note_write(stream, outputs[i].buffer);
    }
  }
}

/* Returns the failure of an operand that is of another device or invalid. */
__attribute__((noinline)) static hr_status check_suspects(hr_stream *stream, const hr_hook_record *r) {
  HR_RETURN_IF_ERROR(check_devices(stream, r->op, r->input_count, r->inputs));
  HR_RETURN_IF_ERROR(check_devices(stream, r->op, r->output_count, r->outputs));
  hr_status status = hr__check_contents(r->op, r->input_count, r->inputs, r->output_count, r->outputs);
  return status == HR_OK ? HR_OK : hr__stream_report(stream, status);
}

__attribute__((noinline)) static void expect(hr_stream *stream, const hr_hook_record *r) {
  if (hr__algorithms_expect(stream->device, r->op, r->inputs, r->outputs)) {
    atomic_store_explicit(&stream->is_expected, true, memory_order_relaxed);
  }
}

/* is_new: r->is_new, as a constant where it is known. */
static inline hr_status record(hr_stream *stream, const hr_hook_record *r, bool is_new) {
  HR_RETURN_IF_ERROR(is_new ? hr__op_check_inferred(r->op, r->attrs, r->input_count, r->inputs, r->outputs)
                            : hr_op_check(r->op, r->attrs, r->input_count, r->inputs, r->output_count, r->outputs));
  if (__builtin_expect(hr_op_table(r->op)->family == HR_FAMILY_LIBRARY, 0)) {
    HR_RETURN_IF_ERROR(hr__library_check(stream->device, r->op));
  }
  if (__builtin_expect(r->op == HR_OP_MATMUL, 0) && !atomic_load_explicit(&stream->is_expected, memory_order_relaxed)) {
    expect(stream, r);
  }
  if (hr__stream_has_others(stream)) {
    hr__stream_follow(stream, r->input_count, r->inputs, r->output_count, r->outputs);
  }
  if (has_suspect(stream, r->input_count, r->inputs) || (!is_new && has_suspect(stream, r->output_count, r->outputs))) {
    HR_RETURN_IF_ERROR(check_suspects(stream, r));
  }
  hr_mutex_lock(&stream->mutex);
  if (__builtin_expect(!hr__policy_keeps_before(&stream->policy, stream->pending.records.count), 0) &&
      stands_alone(r->op, r->inputs)) {
    before_large(stream);
  }
  hr_status status =
      is_new
          ? hr__trace_record_new(&stream->pending, r->op, r->attrs, r->input_count, r->inputs, r->outputs)
          : hr__trace_record(&stream->pending, r->op, r->attrs, r->input_count, r->inputs, r->output_count, r->outputs);
  if (__builtin_expect(status == HR_OK, 1)) {
    if (hr__stream_has_others(stream)) {
      note_writes(stream, r->output_count, r->outputs);
    }
    return hr__stream_settle(stream, 1);
  }
  hr_mutex_unlock(&stream->mutex);
  return status;
}

hr_status hr_stream_record(hr_stream *stream, hr_op op, const hr_attrs *attrs, int input_count, const hr_view *inputs,
                           int output_count, const hr_view *outputs) {
  const hr_hook_record r = {op, attrs, input_count, output_count, inputs, outputs, false};
  return __builtin_expect(stream->hook == NULL, 1) ? record(stream, &r, false)
                                                   : stream->hook->record(stream->hook, stream, &r);
}

hr_status hr_stream_record_new(hr_stream *stream, hr_op op, const hr_attrs *attrs, int input_count,
                               const hr_view *inputs, const hr_view *output) {
  const hr_hook_record r = {op, attrs, input_count, 1, inputs, output, true};
  return __builtin_expect(stream->hook == NULL, 1) ? record(stream, &r, true)
                                                   : stream->hook->record(stream->hook, stream, &r);
}

/* The record of hr_stream_record_alike, with a new buffer. */
static hr_status record_alike(hr_stream *stream, hr_op op, int input_count, const hr_view *inputs, const hr_view *out) {
  if (__builtin_expect(stream->hook != NULL, 0)) {
    const hr_hook_record r = {op, NULL, input_count, 1, inputs, out, true};
    return stream->hook->record(stream->hook, stream, &r);
  }
  hr_mutex_lock(&stream->mutex);
  hr_status status = hr__trace_record_alike(&stream->pending, op, input_count, inputs, out);
  if (__builtin_expect(status == HR_OK, 1)) {
    return hr__stream_settle(stream, 1);
  }
  hr_mutex_unlock(&stream->mutex);
  return status;
}

hr_status hr_stream_record_alike(hr_stream *stream, hr_op op, int input_count, const hr_view *inputs, hr_view *out) {
  hr__alike result;
  out->buffer = NULL;
  if (hr_hook_of_functions(stream) != NULL || hr__stream_has_others(stream) ||
      has_suspect(stream, input_count, inputs) || !hr__infer_alike(op, input_count, inputs, &result)) {
    return HR_OK;
  }
  const hr_view *like = result.like;
  *out = (hr_view){.dtype = result.dtype, .rank = like->rank, .dims = like->dims, .strides = like->strides};
  size_t bytes = (size_t)result.count * hr_dtype_size(result.dtype);
  HR_RETURN_IF_ERROR(hr_buffer_create(stream->device, bytes, &out->buffer));
  hr_status status = record_alike(stream, op, input_count, inputs, out);
  if (status != HR_OK) {
    hr_buffer_release(out->buffer);
    out->buffer = NULL;
  }
  return status;
}

/* ---- hooks ---- */

void hr_hook_add(hr_stream *stream, hr_hook *hook) {
  hook->below = stream->hook;
  stream->hook = hook;
}

void hr_hook_remove(hr_stream *stream, hr_hook *hook) {
  for (hr_hook **at = &stream->hook; *at != NULL; at = &(*at)->below) {
    if (*at == hook) {
      *at = hook->below;
      return;
    }
  }
}

hr_hook *hr_hook_set_top(hr_stream *stream, hr_hook *hook) {
  hr_hook *before = stream->hook;
  stream->hook = hook;
  return before;
}

bool hr_hook_is_open(const hr_stream *stream) {
  return stream->hook != NULL;
}

hr_hook *hr_hook_of_functions(const hr_stream *stream) {
  hr_hook *hook = stream->hook;
  while (hook != NULL && hook->apply == NULL) {
    hook = hook->below;
  }
  return hook;
}

hr_status hr_hook_pass(const hr_hook *hook, hr_stream *stream, const hr_hook_record *passed) {
  if (hook->below != NULL) {
    return hook->below->record(hook->below, stream, passed);
  }
  return record(stream, passed, passed->is_new);
}

void hr_hook_claim_buffer(hr_buffer *buffer, hr_status failure) {
  hr__buffer_claim(buffer, failure);
}

hr_status hr__stream_refuse_hooks(const hr_stream *stream, const char *what) {
  if (__builtin_expect(stream->hook == NULL, 1)) {
    return HR_OK;
  }
  return hr_status_make(HR_STATUS_UNIMPLEMENTED, "%s: the stream has a tape or another hook, which sees records alone",
                        what);
}
