/* part.c: parts are traces that were recorded without a stream. See headrace/part.h.
 *
 * The alternative was to compile a part by itself and submit it separately. Appending its records keeps the stream
 * fast: a forward part, a backward part and the optimizer after them are one program, in which activations die.
 */
#include "headrace/part.h"

#include <string.h>

#include "core/ops/op.h"
#include "engine/records.h"
#include "engine/stream_order.h"
#include "engine/stream_record.h"

typedef enum buffer_kind { TEMPORARY = 0, PARAMETER, RESULT, CONSTANT } buffer_kind;

typedef struct part_buffer {
  buffer_kind kind;
  int index; /* of parameters and results */
  bool is_read, is_written;
  hr_buffer *constant; /* a reference */
} part_buffer;

struct hr_part {
  hr_refcount refcount;
  hr_device *device;
  hr_trace part; /* without references of its buffers */
  part_buffer *buffers;
  size_t *bytes; /* of each buffer */
  int buffer_count, argument_count;
  int64_t *arguments;
  size_t last_work;   /* the last record that runs by itself, if it makes a result; else the number of records */
  size_t last_result; /* bytes of that result */
};

static hr_status no_memory(const char *what) {
  return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no host memory for %s of a part", what);
}

/* ---- capturing ---- */

hr_status hr_capture_create(hr_device *device, hr_stream **out_capture) {
  HR_RETURN_IF_ERROR(hr__stream_create(device, true, out_capture));
  (*out_capture)->policy =
      (hr_policy){.records_max = SIZE_MAX, .bytes_max = INT64_MAX, .first_ops = SIZE_MAX, .next_ops = SIZE_MAX};
  atomic_store(&(*out_capture)->mode, (int)HR_MODE_FUSE);
  return HR_OK;
}

int64_t hr_capture_scalar_count(hr_stream *capture) {
  hr_mutex_lock(&capture->mutex);
  int64_t count = (int64_t)capture->pending.scalars.count;
  hr_mutex_unlock(&capture->mutex);
  return count;
}

hr_scalar hr_capture_scalar(hr_stream *capture, int64_t index) {
  hr_mutex_lock(&capture->mutex);
  bool exists = index >= 0 && index < (int64_t)capture->pending.scalars.count;
  hr_scalar scalar = exists ? capture->pending.scalars.data[index] : hr_scalar_bool(0);
  hr_mutex_unlock(&capture->mutex);
  return scalar;
}

void hr_capture_origin(hr_stream *capture, uint32_t origin) {
  if (!capture->is_capture) {
    return;
  }
  hr_mutex_lock(&capture->mutex);
  hr_trace *trace = &capture->pending;
  size_t all = trace->records.count;
  if (hr_vector_reserve(&trace->origins, all)) { /* else later records have none */
    while (trace->origins.count < all) {
      trace->origins.data[trace->origins.count++] = origin;
    }
  }
  hr_mutex_unlock(&capture->mutex);
}

int64_t hr_capture_buffer_count(hr_stream *capture) {
  hr_mutex_lock(&capture->mutex);
  int64_t count = (int64_t)capture->pending.buffers.count;
  hr_mutex_unlock(&capture->mutex);
  return count;
}

hr_buffer *hr_capture_buffer(hr_stream *capture, int64_t index) {
  hr_mutex_lock(&capture->mutex);
  bool exists = index >= 0 && index < (int64_t)capture->pending.buffers.count;
  hr_buffer *buffer = exists ? capture->pending.buffers.data[index] : NULL;
  hr_mutex_unlock(&capture->mutex);
  return buffer;
}

bool hr_capture_holds_alone(hr_stream *capture, int64_t index) {
  hr_buffer *buffer = hr_capture_buffer(capture, index);
  return buffer != NULL && hr__buffer_holders(buffer) == 1;
}

bool hr_capture_uses(hr_stream *capture, const hr_buffer *buffer) {
  hr_mutex_lock(&capture->mutex);
  uint32_t local = hr__trace_find(&capture->pending, buffer);
  hr_mutex_unlock(&capture->mutex);
  return local != UINT32_MAX;
}

bool hr_buffer_has_memory(const hr_buffer *buffer) {
  return hr__buffer_address(buffer) != NULL;
}

/* ---- making ---- */

typedef struct uses {
  part_buffer *buffers;
  const size_t *bytes;
  uint32_t bad; /* the first buffer that is read before it has contents, or written although it is constant */
} uses;

static void note_use(void *arg, uint32_t local, bool is_output) {
  uses *u = arg;
  part_buffer *buffer = &u->buffers[local];
  bool is_empty = u->bytes[local] > 0 && (buffer->kind == TEMPORARY || buffer->kind == RESULT);
  if (u->bad == UINT32_MAX && (is_output ? buffer->kind == CONSTANT : is_empty && !buffer->is_written)) {
    u->bad = local;
  }
  buffer->is_written |= is_output;
  buffer->is_read |= !is_output;
}

/* Parameters and results by their places in the spec, constants by their memory. */
static hr_status classify(hr_part *part, const hr_trace *trace, const hr_part_spec *spec) {
  for (int i = 0; i < spec->param_count + spec->result_count; ++i) {
    bool is_param = i < spec->param_count;
    int index = is_param ? i : i - spec->param_count;
    hr_buffer *buffer = is_param ? spec->params[index] : spec->results[index];
    uint32_t local = buffer != NULL ? hr__trace_find(trace, buffer) : UINT32_MAX;
    if (buffer == NULL || (!is_param && hr__buffer_address(buffer) != NULL) ||
        (local != UINT32_MAX && part->buffers[local].kind != TEMPORARY)) {
      return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "part: %s %d is %s", is_param ? "parameter" : "result", index,
                            buffer == NULL                                    ? "missing"
                            : !is_param && hr__buffer_address(buffer) != NULL ? "not new: it has memory"
                                                                              : "named twice");
    }
    if (local != UINT32_MAX) {
      part->buffers[local].kind = is_param ? PARAMETER : RESULT;
      part->buffers[local].index = index;
    }
  }
  for (int i = 0; i < part->buffer_count; ++i) {
    part_buffer *buffer = &part->buffers[i];
    part->bytes[i] = trace->buffers.data[i]->bytes;
    if (buffer->kind == TEMPORARY && hr__buffer_address(trace->buffers.data[i]) != NULL) {
      buffer->kind = CONSTANT;
    }
  }
  return HR_OK;
}

static hr_status check_uses(hr_part *part, const hr_trace *trace) {
  uses u = {part->buffers, part->bytes, UINT32_MAX};
  hr_key key = {.record_count = trace->records.count, .words = trace->words.data, .locals = trace->locals.data};
  hr__key_each_use(&key, note_use, &u);
  if (u.bad == UINT32_MAX) {
    return HR_OK;
  }
  bool is_constant = part->buffers[u.bad].kind == CONSTANT;
  return hr_status_make(HR_STATUS_FAILED_PRECONDITION, is_constant ? "part: a buffer that is no parameter is written"
                                                                   : "part: a buffer is read that has no contents");
}

/* Finds the last operation that a library runs, if it makes a result: the scores of a network, for example. */
static hr_status find_last_work(hr_part *part, hr_trace *trace) {
  hr_key key;
  hr_program program;
  HR_RETURN_IF_ERROR(hr__trace_key(trace, false, &key));
  HR_RETURN_IF_ERROR(hr__key_decode(&key, &program));
  part->last_work = key.record_count;
  for (int n = program.node_count - 1; n >= 0; --n) {
    hr_op_family family = hr_op_table(program.nodes[n].op)->family;
    const hr_operand *out = &program.nodes[n].outputs[0];
    if (family == HR_FAMILY_CONTRACTION && part->buffers[out->index].kind == RESULT) {
      part->last_work = program.nodes[n].origin;
      part->last_result = part->bytes[out->index];
    }
    if (family == HR_FAMILY_CONTRACTION) {
      break;
    }
  }
  hr_program_fini(&program);
  return HR_OK;
}

static hr_status copy_arguments(hr_part *part, const hr_trace *trace, const hr_part_spec *spec) {
  for (int i = 0; i < spec->argument_count; ++i) {
    if (spec->arguments[i] < 0 || spec->arguments[i] >= (int64_t)trace->scalars.count) {
      return hr_status_make(HR_STATUS_OUT_OF_RANGE, "part: argument %d is scalar %lld of %zu", i,
                            (long long)spec->arguments[i], trace->scalars.count);
    }
    part->arguments[i] = spec->arguments[i];
  }
  part->argument_count = spec->argument_count;
  return HR_OK;
}

/* Records behind the last origin have none. */
static void complete_origins(hr_trace *trace) {
  size_t all = trace->records.count;
  if (trace->origins.count > 0 && hr_vector_reserve(&trace->origins, all)) {
    while (trace->origins.count < all) {
      trace->origins.data[trace->origins.count++] = 0;
    }
  }
}

/* Moves the records into the part. Only the references of constants stay. */
static void take_records(hr_part *part, hr_trace *trace) {
  complete_origins(trace);
  uint32_t stream = trace->stream;
  for (int i = 0; i < part->buffer_count; ++i) {
    if (part->buffers[i].kind == CONSTANT) {
      part->buffers[i].constant = trace->buffers.data[i];
    } else {
      hr_buffer_release(trace->buffers.data[i]);
    }
  }
  part->part = *trace;
  hr__trace_init(trace, stream);
  hr_vector_fini(&part->part.buffers);
  hr_vector_fini(&part->part.temporary_bytes);
  hr_vector_fini(&part->part.renumbered);
  hr_vector_fini(&part->part.shapes);
  hr_vector_fini(&part->part.layouts);
  hr_vector_fini(&part->part.marks);
  hr_vector_trim(&part->part.words);
  hr_vector_trim(&part->part.locals);
  hr_vector_trim(&part->part.scalars);
  hr_vector_trim(&part->part.records);
  hr_vector_trim(&part->part.origins);
}

static void destroy(hr_part *part) {
  for (int i = 0; i < part->buffer_count; ++i) {
    hr_buffer_release(part->buffers[i].constant);
  }
  hr__trace_fini(&part->part);
  hr_device_release(part->device);
  hr_free(part->buffers);
  hr_free(part->bytes);
  hr_free(part->arguments);
  hr_free(part);
}

static hr_status make_part(hr_stream *capture, const hr_part_spec *spec, hr_part *part) {
  hr_trace *trace = &capture->pending;
  part->buffers = hr_calloc(trace->buffers.count + 1, sizeof *part->buffers);
  part->bytes = hr_calloc(trace->buffers.count + 1, sizeof *part->bytes);
  part->arguments = hr_calloc((size_t)spec->argument_count + 1, sizeof *part->arguments);
  if (part->buffers == NULL || part->bytes == NULL || part->arguments == NULL) {
    return no_memory("buffers");
  }
  part->buffer_count = (int)trace->buffers.count;
  HR_RETURN_IF_ERROR(classify(part, trace, spec));
  HR_RETURN_IF_ERROR(check_uses(part, trace));
  HR_RETURN_IF_ERROR(copy_arguments(part, trace, spec));
  HR_RETURN_IF_ERROR(find_last_work(part, trace));
  take_records(part, trace);
  return HR_OK;
}

hr_status hr_part_create(hr_stream *capture, const hr_part_spec *spec, hr_part **out_part) {
  if (capture == NULL || spec == NULL || out_part == NULL || !capture->is_capture) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "hr_part_create: %s",
                          capture != NULL && !capture->is_capture ? "the stream is no capture" : "NULL argument");
  }
  hr_part *part = hr_calloc(1, sizeof *part);
  if (part == NULL) {
    return no_memory("the head");
  }
  hr_refcount_init(&part->refcount);
  hr_device_retain(capture->device);
  part->device = capture->device;
  hr_mutex_lock(&capture->mutex);
  hr_status status = make_part(capture, spec, part);
  hr_mutex_unlock(&capture->mutex);
  if (status != HR_OK) {
    destroy(part);
    return status;
  }
  *out_part = part;
  return HR_OK;
}

void hr_part_retain(hr_part *part) {
  if (part != NULL) {
    hr_refcount_retain(&part->refcount);
  }
}

void hr_part_release(hr_part *part) {
  if (part != NULL && hr_refcount_release(&part->refcount)) {
    destroy(part);
  }
}

int64_t hr_part_record_count(const hr_part *part) {
  return (int64_t)part->part.records.count;
}

int64_t hr_part_host_bytes(const hr_part *part) {
  const hr_trace *trace = &part->part;
  size_t bytes = sizeof *part + (size_t)part->buffer_count * (sizeof *part->buffers + sizeof *part->bytes) +
                 (size_t)part->argument_count * sizeof *part->arguments;
  bytes += trace->words.capacity * sizeof *trace->words.data + trace->locals.capacity * sizeof *trace->locals.data +
           trace->scalars.capacity * sizeof *trace->scalars.data +
           trace->records.capacity * sizeof *trace->records.data +
           trace->origins.capacity * sizeof *trace->origins.data;
  return (int64_t)bytes;
}

int hr_part_param_use(const hr_part *part, int param) {
  for (int i = 0; i < part->buffer_count; ++i) {
    if (part->buffers[i].kind == PARAMETER && part->buffers[i].index == param) {
      return (part->buffers[i].is_read ? HR_PART_READS : 0) | (part->buffers[i].is_written ? HR_PART_WRITES : 0);
    }
  }
  return 0;
}

/* ---- running ---- */

/* OK if the buffers of a run can replace the captured ones, else the reason for the first that can't. */
static hr_status check_buffers(const hr_part *part, hr_buffer *const *params, hr_buffer *const *results) {
  for (int i = 0; i < part->buffer_count; ++i) {
    const part_buffer *own = &part->buffers[i];
    if (own->kind != PARAMETER && own->kind != RESULT) {
      continue;
    }
    const hr_buffer *given = own->kind == PARAMETER ? params[own->index] : results[own->index];
    const char *name = own->kind == PARAMETER ? "parameter" : "result";
    if (given == NULL || given->device != part->device) {
      return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "part: %s %d is %s", name, own->index,
                            given == NULL ? "missing" : "on another device");
    }
    if (given->bytes < part->bytes[i]) {
      return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "part: %s %d has %zu bytes, expected at least %zu", name,
                            own->index, given->bytes, part->bytes[i]);
    }
    if (hr__buffer_is_invalid(given)) {
      return hr__buffer_failure(given);
    }
  }
  return HR_OK;
}

static hr_status check_arguments(const hr_part *part, const hr_scalar *arguments) {
  for (int i = 0; i < part->argument_count; ++i) {
    hr_dtype captured = part->part.scalars.data[part->arguments[i]].dtype;
    if (arguments[i].dtype != captured) {
      return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "part: argument %d is %s, expected %s", i,
                            hr_dtype_name(arguments[i].dtype), hr_dtype_name(captured));
    }
  }
  return HR_OK;
}

/* A buffer that a run uses; NULL: a temporary. */
static hr_buffer *given_buffer(const part_buffer *own, hr_buffer *const *params, hr_buffer *const *results) {
  return own->kind == PARAMETER ? params[own->index] : own->kind == RESULT ? results[own->index] : own->constant;
}

/* Temporaries of a capture are buffers, to which others may refer. The caller releases them, after a failure too. */
static hr_status make_temporaries(hr_stream *stream, const hr_part *part) {
  for (int i = 0; i < part->buffer_count; ++i) {
    if (part->buffers[i].kind == TEMPORARY) {
      HR_RETURN_IF_ERROR(hr_buffer_create(stream->device, part->bytes[i], &stream->part_buffers.data[i]));
    }
  }
  return HR_OK;
}

static void release_temporaries(const hr_stream *stream, const hr_part *part) {
  for (int i = 0; i < part->buffer_count; ++i) {
    if (part->buffers[i].kind == TEMPORARY) {
      hr_buffer_release(stream->part_buffers.data[i]);
    }
  }
}

/* Appends the records with this run's buffers and numbers; the stream is locked. On failure nothing has changed. */
static hr_status append(hr_stream *stream, const hr_part *part, hr_buffer *const *params, hr_buffer *const *results,
                        const hr_scalar *arguments) {
  size_t count = (size_t)part->buffer_count, scalar_first = stream->pending.scalars.count;
  if (!hr_vector_reserve(&stream->part_buffers, count + 1)) {
    return no_memory("a run");
  }
  for (size_t i = 0; i < count; ++i) {
    stream->part_buffers.data[i] = given_buffer(&part->buffers[i], params, results);
  }
  hr_status status = stream->is_capture ? make_temporaries(stream, part) : HR_OK;
  if (status == HR_OK) {
    status = hr__trace_append(&stream->pending, &part->part, count, stream->part_buffers.data, part->bytes);
  }
  if (stream->is_capture) {
    release_temporaries(stream, part);
  }
  for (int i = 0; status == HR_OK && i < part->argument_count; ++i) {
    stream->pending.scalars.data[scalar_first + (size_t)part->arguments[i]] = arguments[i];
  }
  return status;
}

static void follow_others(hr_stream *stream, const hr_part *part, hr_buffer *const *params, hr_buffer *const *results) {
  for (int i = 0; i < part->buffer_count; ++i) {
    hr_buffer *buffer = given_buffer(&part->buffers[i], params, results);
    if (buffer != NULL && part->buffers[i].is_read) {
      hr__stream_follow_writes(stream, buffer);
    }
    if (buffer != NULL && part->buffers[i].is_written) {
      hr__stream_follow_uses(stream, buffer);
    }
  }
}

static void note_writes(hr_stream *stream, const hr_part *part, hr_buffer *const *params, hr_buffer *const *results) {
  for (int i = 0; i < part->buffer_count; ++i) {
    hr_buffer *buffer = given_buffer(&part->buffers[i], params, results);
    if (buffer != NULL && part->buffers[i].is_written) {
      hr__stream_note_write(stream, buffer);
    }
  }
}

hr_status hr_part_run(hr_stream *stream, const hr_part *part, hr_buffer *const *params, hr_buffer *const *results,
                      const hr_scalar *arguments) {
  if (stream->device != part->device) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "part: made for device \"%s\", run on a stream of \"%s\"",
                          hr_device_name(part->device), hr_device_name(stream->device));
  }
  HR_RETURN_IF_ERROR(hr__stream_refuse_hooks(stream, "part"));
  HR_RETURN_IF_ERROR(check_arguments(part, arguments));
  hr_status status = check_buffers(part, params, results);
  if (__builtin_expect(status != HR_OK, 0)) {
    return hr_status_code_of(status) == HR_STATUS_INVALID_ARGUMENT ? status : hr__stream_report(stream, status);
  }
  if (hr__stream_has_others(stream)) {
    follow_others(stream, part, params, results);
  }
  hr_mutex_lock(&stream->mutex);
  hr__policy_call_begins(&stream->policy, stream->pending.records.count, stream->pending.pending_bytes);
  status = append(stream, part, params, results, arguments);
  hr__policy_call_ends(&stream->policy);
  if (status != HR_OK) {
    hr_mutex_unlock(&stream->mutex);
    return status;
  }
  int recorded = hr__recorded(stream->device);
  if (__builtin_expect(recorded != 0, 0) && part->part.origins.count == part->part.records.count) {
    hr__records_mark_part(&stream->pending, part->part.records.count, part->part.origins.data, recorded);
  }
  if (hr__stream_has_others(stream)) {
    note_writes(stream, part, params, results);
  }
  return hr__stream_settle_part(stream, (int64_t)part->part.records.count); /* while the caller returns */
}

void hr_part_submit_early(hr_stream *stream, const hr_part *part) {
  if (stream->policy.first_ops == SIZE_MAX) { /* never changes: nothing is submitted early */
    return;
  }
  hr_mutex_lock(&stream->mutex);
  hr_event event = hr__stream_event(stream, HR_EVENT_PART_LEFT);
  event.tail_records = part->part.records.count - part->last_work;
  event.tail_bytes = part->last_result;
  hr__stream_set_error(stream, hr__stream_notify(stream, &event)); /* while the caller returns */
  hr_mutex_unlock(&stream->mutex);
}
