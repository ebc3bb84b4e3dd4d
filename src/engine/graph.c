/* graph.c: graphs are stretches that were recorded without a stream behind them. See headrace/graph.h.
 *
 * Alternatives were to compile a graph by itself, with a hand-over of its own. Appending its records keeps what makes the
 * stream fast: a forward and a backward graph and the optimizer behind them are one program, in which activations die.
 */
#include "headrace/graph.h"

#include <string.h>

#include "core/op.h"
#include "engine/stream.h"

typedef enum buffer_kind { TEMPORARY = 0, PARAMETER, RESULT, CONSTANT } buffer_kind;

typedef struct graph_buffer {
  buffer_kind kind;
  int index; /* of parameters and results */
  bool is_read, is_written;
  size_t bytes;
  hr_buffer *constant; /* a reference */
} graph_buffer;

struct hr_graph {
  hr_refcount refcount;
  hr_device *device;
  hr_stretch part; /* without references of its buffers */
  graph_buffer *buffers;
  bool *is_temporary; /* of each buffer */
  int buffer_count, temporary_count, argument_count;
  int64_t *arguments;
  size_t last_work;   /* the number of the last record that runs by itself, where it makes a result; else of records */
  size_t last_result; /* bytes of that result */
};

static hr_status no_memory(const char *what) {
  return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no host memory for %s of a graph", what);
}

/* ---- capturing ---- */

hr_status hr_capture_create(hr_device *device, hr_stream **out_capture) {
  HR_RETURN_IF_ERROR(hr_stream_create(device, out_capture));
  (*out_capture)->is_capture = true;
  (*out_capture)->records_max = (*out_capture)->first_ops = (*out_capture)->next_ops = SIZE_MAX;
  (*out_capture)->bytes_max = INT64_MAX;
  atomic_store(&(*out_capture)->mode, (int)HR_MODE_FUSE);
  return HR_OK;
}

int64_t hr_capture_scalar_count(hr_stream *capture) {
  hr_mutex_lock(&capture->mutex);
  int64_t count = (int64_t)capture->pending.scalars.count;
  hr_mutex_unlock(&capture->mutex);
  return count;
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

bool hr_capture_uses(hr_stream *capture, const hr_buffer *buffer) {
  hr_mutex_lock(&capture->mutex);
  uint32_t local = hr__stretch_find(&capture->pending, buffer);
  hr_mutex_unlock(&capture->mutex);
  return local != UINT32_MAX;
}

bool hr_buffer_has_memory(const hr_buffer *buffer) {
  return hr__buffer_address(buffer) != NULL;
}

/* ---- making ---- */

typedef struct uses {
  graph_buffer *buffers;
  uint32_t bad; /* the first buffer that is read before it has contents, or written although it is constant */
} uses;

static void note_use(void *arg, uint32_t local, bool is_output) {
  uses *u = arg;
  graph_buffer *buffer = &u->buffers[local];
  bool is_empty = buffer->kind == TEMPORARY || buffer->kind == RESULT;
  if (u->bad == UINT32_MAX && (is_output ? buffer->kind == CONSTANT : is_empty && !buffer->is_written)) {
    u->bad = local;
  }
  buffer->is_written |= is_output;
  buffer->is_read |= !is_output;
}

/* Parameters and results by their places in the spec, constants by their memory. */
static hr_status classify(hr_graph *graph, const hr_stretch *stretch, const hr_graph_spec *spec) {
  for (int i = 0; i < spec->param_count + spec->result_count; i++) {
    bool is_param = i < spec->param_count;
    int index = is_param ? i : i - spec->param_count;
    hr_buffer *buffer = is_param ? spec->params[index] : spec->results[index];
    uint32_t local = buffer != NULL ? hr__stretch_find(stretch, buffer) : UINT32_MAX;
    if (buffer == NULL || (!is_param && hr__buffer_address(buffer) != NULL) ||
        (local != UINT32_MAX && graph->buffers[local].kind != TEMPORARY)) {
      return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "graph: %s %d is %s", is_param ? "parameter" : "result", index,
                            buffer == NULL                                    ? "missing"
                            : !is_param && hr__buffer_address(buffer) != NULL ? "not new: it has memory"
                                                                              : "named twice");
    }
    if (local != UINT32_MAX) {
      graph->buffers[local].kind = is_param ? PARAMETER : RESULT;
      graph->buffers[local].index = index;
    }
  }
  for (int i = 0; i < graph->buffer_count; i++) {
    graph_buffer *buffer = &graph->buffers[i];
    buffer->bytes = stretch->buffers.data[i]->bytes;
    if (buffer->kind == TEMPORARY && hr__buffer_address(stretch->buffers.data[i]) != NULL) {
      buffer->kind = CONSTANT;
    }
    graph->is_temporary[i] = buffer->kind == TEMPORARY;
    graph->temporary_count += buffer->kind == TEMPORARY;
  }
  return HR_OK;
}

static hr_status check_uses(hr_graph *graph, const hr_stretch *stretch) {
  uses u = {graph->buffers, UINT32_MAX};
  hr_key key = {.record_count = stretch->records.count, .words = stretch->words.data, .locals = stretch->locals.data};
  hr__key_each_use(&key, note_use, &u);
  if (u.bad == UINT32_MAX) {
    return HR_OK;
  }
  bool is_constant = graph->buffers[u.bad].kind == CONSTANT;
  return hr_status_make(HR_STATUS_FAILED_PRECONDITION, is_constant ? "graph: a buffer that is no parameter is written"
                                                                   : "graph: a buffer is read that has no contents");
}

/* Finds the last operation that a library runs, if what it makes is a result: the scores of a network, say. */
static hr_status find_last_work(hr_graph *graph, hr_stretch *stretch) {
  hr_key key;
  hr_program program;
  HR_RETURN_IF_ERROR(hr__stretch_key(stretch, false, &key));
  HR_RETURN_IF_ERROR(hr__key_decode(&key, &program));
  graph->last_work = key.record_count;
  for (int n = program.node_count - 1; n >= 0; n--) {
    hr_op_family family = hr_op_table(program.nodes[n].op)->family;
    const hr_operand *out = &program.nodes[n].outputs[0];
    if (family == HR_FAMILY_CONTRACTION && graph->buffers[out->index].kind == RESULT) {
      graph->last_work = program.nodes[n].origin;
      graph->last_result = graph->buffers[out->index].bytes;
    }
    if (family == HR_FAMILY_CONTRACTION) {
      break;
    }
  }
  hr_program_fini(&program);
  return HR_OK;
}

static hr_status copy_arguments(hr_graph *graph, const hr_stretch *stretch, const hr_graph_spec *spec) {
  for (int i = 0; i < spec->argument_count; i++) {
    if (spec->arguments[i] < 0 || spec->arguments[i] >= (int64_t)stretch->scalars.count) {
      return hr_status_make(HR_STATUS_OUT_OF_RANGE, "graph: argument %d is scalar %lld of %zu", i,
                            (long long)spec->arguments[i], stretch->scalars.count);
    }
    graph->arguments[i] = spec->arguments[i];
  }
  graph->argument_count = spec->argument_count;
  return HR_OK;
}

/* Moves the records into the graph. Of the references only those of constants stay. */
static void take_records(hr_graph *graph, hr_stretch *stretch) {
  uint32_t stream = stretch->stream;
  for (int i = 0; i < graph->buffer_count; i++) {
    if (graph->buffers[i].kind == CONSTANT) {
      graph->buffers[i].constant = stretch->buffers.data[i];
    } else {
      hr_buffer_release(stretch->buffers.data[i]);
    }
  }
  graph->part = *stretch;
  hr__stretch_init(stretch, stream);
  hr_vector_fini(&graph->part.buffers);
  hr_vector_fini(&graph->part.renumbered);
  hr_vector_fini(&graph->part.shapes);
  hr_vector_fini(&graph->part.layouts);
}

static void destroy(hr_graph *graph) {
  for (int i = 0; i < graph->buffer_count; i++) {
    hr_buffer_release(graph->buffers[i].constant);
  }
  hr__stretch_fini(&graph->part);
  hr_device_release(graph->device);
  hr_free(graph->buffers);
  hr_free(graph->is_temporary);
  hr_free(graph->arguments);
  hr_free(graph);
}

static hr_status make_graph(hr_stream *capture, const hr_graph_spec *spec, hr_graph *graph) {
  hr_stretch *stretch = &capture->pending;
  graph->buffers = hr_calloc(stretch->buffers.count + 1, sizeof *graph->buffers);
  graph->is_temporary = hr_calloc(stretch->buffers.count + 1, sizeof *graph->is_temporary);
  graph->arguments = hr_calloc((size_t)spec->argument_count + 1, sizeof *graph->arguments);
  if (graph->buffers == NULL || graph->is_temporary == NULL || graph->arguments == NULL) {
    return no_memory("buffers");
  }
  graph->buffer_count = (int)stretch->buffers.count;
  HR_RETURN_IF_ERROR(classify(graph, stretch, spec));
  HR_RETURN_IF_ERROR(check_uses(graph, stretch));
  HR_RETURN_IF_ERROR(copy_arguments(graph, stretch, spec));
  HR_RETURN_IF_ERROR(find_last_work(graph, stretch));
  take_records(graph, stretch);
  return HR_OK;
}

hr_status hr_graph_create(hr_stream *capture, const hr_graph_spec *spec, hr_graph **out_graph) {
  if (capture == NULL || spec == NULL || out_graph == NULL || !capture->is_capture) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "hr_graph_create: %s",
                          capture != NULL && !capture->is_capture ? "the stream is no capture" : "NULL argument");
  }
  hr_graph *graph = hr_calloc(1, sizeof *graph);
  if (graph == NULL) {
    return no_memory("the head");
  }
  hr_refcount_init(&graph->refcount);
  hr_device_retain(capture->device);
  graph->device = capture->device;
  hr_mutex_lock(&capture->mutex);
  hr_status status = make_graph(capture, spec, graph);
  hr_mutex_unlock(&capture->mutex);
  if (status != NULL) {
    destroy(graph);
    return status;
  }
  *out_graph = graph;
  return HR_OK;
}

void hr_graph_retain(hr_graph *graph) {
  if (graph != NULL) {
    hr_refcount_retain(&graph->refcount);
  }
}

void hr_graph_release(hr_graph *graph) {
  if (graph != NULL && hr_refcount_release(&graph->refcount)) {
    destroy(graph);
  }
}

int64_t hr_graph_record_count(const hr_graph *graph) {
  return (int64_t)graph->part.records.count;
}

int hr_graph_param_use(const hr_graph *graph, int param) {
  for (int i = 0; i < graph->buffer_count; i++) {
    if (graph->buffers[i].kind == PARAMETER && graph->buffers[i].index == param) {
      return (graph->buffers[i].is_read ? HR_GRAPH_READS : 0) | (graph->buffers[i].is_written ? HR_GRAPH_WRITES : 0);
    }
  }
  return 0;
}

/* ---- running ---- */

/* Whether the buffers of a run can stand in the places of the captured ones; the first that can't says why. */
static hr_status check_buffers(const hr_graph *graph, hr_buffer *const *params, hr_buffer *const *results) {
  for (int i = 0; i < graph->buffer_count; i++) {
    const graph_buffer *own = &graph->buffers[i];
    if (own->kind != PARAMETER && own->kind != RESULT) {
      continue;
    }
    const hr_buffer *given = own->kind == PARAMETER ? params[own->index] : results[own->index];
    const char *name = own->kind == PARAMETER ? "parameter" : "result";
    if (given == NULL || given->device != graph->device) {
      return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "graph: %s %d is %s", name, own->index,
                            given == NULL ? "missing" : "on another device");
    }
    if (given->bytes < own->bytes) {
      return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "graph: %s %d has %zu bytes, expected at least %zu", name,
                            own->index, given->bytes, own->bytes);
    }
    if (hr__buffer_is_poisoned(given)) {
      return hr__buffer_poison_status(given);
    }
  }
  return HR_OK;
}

static hr_status check_arguments(const hr_graph *graph, const hr_scalar *arguments) {
  for (int i = 0; i < graph->argument_count; i++) {
    hr_dtype captured = graph->part.scalars.data[graph->arguments[i]].dtype;
    if (arguments[i].dtype != captured) {
      return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "graph: argument %d is %s, expected %s", i,
                            hr_dtype_name(arguments[i].dtype), hr_dtype_name(captured));
    }
  }
  return HR_OK;
}

/* Every buffer of a run; new temporaries lie behind the others, each with the caller's reference. */
static hr_status collect_buffers(hr_stream *stream, const hr_graph *graph, hr_buffer *const *params,
                                 hr_buffer *const *results) {
  size_t count = (size_t)graph->buffer_count, temporaries = (size_t)graph->temporary_count;
  if (!hr_vector_reserve(&stream->graph_buffers, count + temporaries + 1) ||
      !hr_vector_reserve(&stream->graph_bytes, temporaries + 1)) {
    return no_memory("a run");
  }
  hr_buffer **all = stream->graph_buffers.data, **made = all + count;
  for (size_t i = 0, n = 0; i < count; i++) {
    if (graph->buffers[i].kind == TEMPORARY) {
      stream->graph_bytes.data[n++] = graph->buffers[i].bytes;
    }
  }
  HR_RETURN_IF_ERROR(hr__buffers_create(graph->device, temporaries, stream->graph_bytes.data, made));
  for (size_t i = 0, n = 0; i < count; i++) {
    const graph_buffer *own = &graph->buffers[i];
    all[i] = own->kind == TEMPORARY   ? made[n++]
             : own->kind == PARAMETER ? params[own->index]
             : own->kind == RESULT    ? results[own->index]
                                      : own->constant;
  }
  return HR_OK;
}

/* Appends the records with this run's buffers and numbers; the stream is locked. */
static hr_status append(hr_stream *stream, const hr_graph *graph, hr_buffer *const *params, hr_buffer *const *results,
                        const hr_scalar *arguments) {
  HR_RETURN_IF_ERROR(collect_buffers(stream, graph, params, results));
  size_t scalar_first = stream->pending.scalars.count;
  hr_buffer **all = stream->graph_buffers.data;
  hr_status status =
      hr__stretch_append(&stream->pending, &graph->part, (size_t)graph->buffer_count, all, graph->is_temporary);
  if (status != NULL) {
    hr__buffers_release((size_t)graph->temporary_count, all + graph->buffer_count);
    return status;
  }
  for (int i = 0; i < graph->argument_count; i++) {
    stream->pending.scalars.data[scalar_first + (size_t)graph->arguments[i]] = arguments[i];
  }
  return HR_OK;
}

hr_status hr_graph_run(hr_stream *stream, const hr_graph *graph, hr_buffer *const *params, hr_buffer *const *results,
                       const hr_scalar *arguments) {
  if (stream->device != graph->device) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "graph: made for device \"%s\", run on a stream of \"%s\"",
                          hr_device_name(graph->device), hr_device_name(stream->device));
  }
  HR_RETURN_IF_ERROR(check_arguments(graph, arguments));
  hr_status status = check_buffers(graph, params, results);
  if (__builtin_expect(status != NULL, 0)) {
    return hr_status_code_of(status) == HR_STATUS_INVALID_ARGUMENT ? status : hr__stream_report(stream, status);
  }
  hr_mutex_lock(&stream->mutex);
  status = append(stream, graph, params, results, arguments);
  if (status != NULL) {
    hr_mutex_unlock(&stream->mutex);
    return status;
  }
  if (hr__stream_expects_wait(stream) && hr_stream_mode(stream) == HR_MODE_FUSE) {
    hr__stream_begin(stream); /* while the caller finds its way back */
  }
  return hr__stream_settle(stream, (int64_t)graph->part.records.count);
}

void hr_graph_offer(hr_stream *stream, const hr_graph *graph) {
  hr_mutex_lock(&stream->mutex);
  size_t pending = stream->pending.records.count, tail = graph->part.records.count - graph->last_work;
  tail = graph->last_result >= stream->large_bytes && tail < pending ? tail : 0;
  if (stream->first_ops != SIZE_MAX && pending > 0 &&
      (stream->next_ops == stream->first_ops || pending >= stream->next_ops)) {
    hr__stream_commit_early(stream, pending - tail, true); /* while the caller finds its way back */
  }
  hr_mutex_unlock(&stream->mutex);
}
