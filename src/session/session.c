/* session.c: sessions, their constants and variables. See headrace/session.h; session_run.c has the runs, and
 * graph_instance.h the instances.
 */
#include "headrace/session.h"

#include "core/ops/infer.h"
#include "headrace/array.h"
#include "session/graph_instance.h"

enum {
  ADOPTED_ALIGNMENT = 64,
  ADOPTED_BYTES = 1 << 16 /* of constants that stay at other addresses, too: copies of small ones cost nothing */
};

static hr_status no_memory(const char *what) {
  return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "session: no host memory for %s", what);
}

/* ---- constants ---- */

static void release_graph(void *arg) {
  hr_graph_release(arg);
}

/* The constant in the graph's memory; sets false if the device can't read it there. */
static hr_status adopt_constant(hr_session *session, const hr__node *node, hr_tensor *out, bool *out_is_done) {
  hr_tensor x = {.dtype = node->dtype, .rank = node->rank};
  memcpy(x.dims, node->dims, (size_t)node->rank * sizeof *x.dims);
  hr_tensor_set_row_major(&x);
  hr_graph_retain(session->graph);
  hr_status status =
      hr_buffer_adopt_elements(hr_stream_device(session->stream), node->dtype, hr_tensor_count(&x),
                               (void *)(uintptr_t)node->blob->bytes, release_graph, session->graph, &x.buffer);
  *out_is_done = status == HR_OK;
  if (status != HR_OK) {
    hr_graph_release(session->graph);
    bool is_elsewhere = hr_status_code_of(status) == HR_STATUS_FAILED_PRECONDITION;
    if (is_elsewhere) {
      hr_status_free(status);
    }
    return is_elsewhere ? HR_OK : status;
  }
  hr_buffer_set_constant(x.buffer);
  *out = x;
  return HR_OK;
}

/* The constant on the session's device: in the graph's memory if that is the device's. */
static hr_status share_constant(hr_session *session, const hr__node *node, bool is_host, hr_tensor *out) {
  const void *bytes = node->blob->bytes;
  size_t count = hr__graph_bytes(node);
  bool can_stay = count > 0 && ((uintptr_t)bytes % ADOPTED_ALIGNMENT == 0 || count >= ADOPTED_BYTES), is_done = false;
  if (is_host && can_stay) {
    HR_RETURN_IF_ERROR(adopt_constant(session, node, out, &is_done));
  }
  if (is_done) {
    return HR_OK;
  }
  session->stats.constant_bytes_copied += (int64_t)count;
  HR_RETURN_IF_ERROR(hr_array_from_host(session->stream, node->dtype, node->rank, node->dims, bytes, out));
  void *address;
  return hr_buffer_has_memory(out->buffer) ? HR_OK : hr_stream_address(session->stream, out->buffer, &address);
}

/* The constants and variables of a graph of the session, by value. */
static hr_status share_elements(hr_session *session, const hr_graph *graph, bool is_host, hr_tensor **out_constants) {
  *out_constants = hr_calloc(graph->values.count, sizeof(hr_tensor));
  if (*out_constants == NULL) {
    return no_memory("constants");
  }
  for (size_t n = 0; n < graph->nodes.count; ++n) {
    const hr__node *node = &graph->nodes.data[n];
    hr_tensor *to = &(*out_constants)[node->first];
    if (hr__node_has_elements(node)) {
      HR_RETURN_IF_ERROR(share_constant(session, node, is_host, to));
      if (!hr_table_put(&session->constant_table, hr_buffer_serial(to->buffer), to->buffer)) {
        return no_memory("constants");
      }
    }
  }
  return HR_OK;
}

static hr_status share_constants(hr_session *session) {
  hr_device_info info;
  const hr_graph *graph = session->graph;
  hr_device_describe(hr_stream_device(session->stream), &info);
  session->constants = hr_calloc(graph->inner.count + 1, sizeof *session->constants);
  session->variables = hr_calloc(graph->variables.count + 1, sizeof *session->variables);
  if (session->constants == NULL || session->variables == NULL) {
    return no_memory("constants");
  }
  HR_RETURN_IF_ERROR(share_elements(session, graph, info.is_host, &session->constants[0]));
  for (size_t i = 0; i < graph->inner.count; ++i) {
    HR_RETURN_IF_ERROR(share_elements(session, graph->inner.data[i], info.is_host, &session->constants[i + 1]));
  }
  for (size_t i = 0; i < graph->variables.count; ++i) {
    hr__tensor_share(&session->constants[0][graph->variables.data[i]], &session->variables[i]);
  }
  return HR_OK;
}

const hr_tensor *hr__session_constants(void *arg, const hr_graph *graph) {
  const hr_session *session = arg;
  return session->constants[hr__graph_inner_place(session->graph, graph)];
}

static void release_constants(hr_session *session, size_t index, const hr_graph *graph) {
  for (size_t v = 0; session->constants[index] != NULL && v < graph->values.count; ++v) {
    hr_tensor_release(&session->constants[index][v]);
  }
  hr_free(session->constants[index]);
}

/* ---- variables ---- */

static hr_status find_variable(const hr_session *session, const char *name, int *out_index) {
  const hr_graph *graph = session->graph;
  hr_value value = hr_graph_find(graph, name);
  for (size_t i = 0; value != 0 && i < graph->variables.count; ++i) {
    if (graph->variables.data[i] == value) {
      *out_index = (int)i;
      return HR_OK;
    }
  }
  return hr_status_make(HR_STATUS_NOT_FOUND, "session: there is no variable \"%.64s\"", name);
}

hr_status hr_session_variable(hr_session *session, const char *name, hr_tensor *out_value) {
  int index = 0;
  HR_RETURN_IF_ERROR(find_variable(session, name, &index));
  hr_mutex_lock(&session->instances.mutex);
  hr__tensor_share(&session->variables[index], out_value);
  hr_mutex_unlock(&session->instances.mutex);
  return HR_OK;
}

/* Fails if a tensor has another type than a variable, whose dtype and dims never change. */
static hr_status check_value(const char *name, const hr_tensor *x, const hr_tensor *value) {
  bool is_right = value->buffer != NULL && value->dtype == x->dtype && value->rank == x->rank;
  for (int d = 0; is_right && d < x->rank; ++d) {
    is_right = value->dims[d] == x->dims[d];
  }
  if (!is_right) {
    char text[HR__DIMS_TEXT], wanted[HR__DIMS_TEXT];
    const hr_view view = hr_tensor_view(value), old = hr_tensor_view(x);
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "variable \"%s\" is given %s%s%s, expected %s%s", name,
                          hr_dtype_name(value->dtype), hr__view_dims(&view, text),
                          value->buffer == NULL ? " without a buffer" : "", hr_dtype_name(x->dtype),
                          hr__view_dims(&old, wanted));
  }
  return HR_OK;
}

hr_status hr_session_set_variable(hr_session *session, const char *name, const hr_tensor *value) {
  int index = 0;
  hr_tensor copy = {0};
  HR_RETURN_IF_ERROR(find_variable(session, name, &index));
  hr_tensor *x = &session->variables[index];
  const hr_tensor *initial = &session->constants[0][session->graph->variables.data[index]]; /* other threads set x */
  HR_RETURN_IF_ERROR(check_value(name, initial, value));
  HR_RETURN_IF_ERROR(
      hr_functional_apply(session->stream, HR_FUNCTIONAL_ASTYPE, 1, &value, 0, NULL, 1, &copy)); /* a new buffer */
  hr_mutex_lock(&session->running);
  hr_mutex_lock(&session->instances.mutex);
  hr_tensor_release(x);
  *x = copy;
  hr_mutex_unlock(&session->instances.mutex);
  hr_mutex_unlock(&session->running);
  return HR_OK;
}

/* The elements of all variables on the host, one behind the other at multiples of 64 bytes; the caller frees them. */
static hr_status read_variables(hr_session *session, char **out_bytes, const void ***out_places) {
  size_t count = session->graph->variables.count, bytes = 0;
  for (size_t i = 0; i < count; ++i) {
    bytes += hr_align_up(hr__tensor_bytes(&session->variables[i]), ADOPTED_ALIGNMENT);
  }
  *out_bytes = hr_malloc(bytes + 1);
  *out_places = hr_calloc(count + 1, sizeof **out_places);
  if (*out_bytes == NULL || *out_places == NULL) {
    return no_memory("variables");
  }
  char *at = *out_bytes;
  for (size_t i = 0; i < count; ++i) {
    (*out_places)[i] = at;
    HR_RETURN_IF_ERROR(hr_array_read(session->stream, &session->variables[i], at));
    at += hr_align_up(hr__tensor_bytes(&session->variables[i]), ADOPTED_ALIGNMENT);
  }
  return HR_OK;
}

hr_status hr_session_snapshot(hr_session *session, hr_graph **out_graph) {
  char *bytes = NULL;
  const void **places = NULL;
  hr_mutex_lock(&session->running); /* all values are those after one run */
  hr_status status = read_variables(session, &bytes, &places);
  hr_mutex_unlock(&session->running);
  status = status == HR_OK ? hr__graph_copy(session->whole, places, out_graph) : status;
  hr_free(bytes);
  hr_free(places);
  return status;
}

/* ---- sessions ---- */

void hr_session_release(hr_session *session) {
  if (session == NULL) {
    return;
  }
  hr__instance_cache_fini(&session->instances);
  for (size_t i = 0; session->variables != NULL && i < session->graph->variables.count; ++i) {
    hr_tensor_release(&session->variables[i]);
  }
  for (size_t i = 0; session->constants != NULL && i <= session->graph->inner.count; ++i) {
    release_constants(session, i, i == 0 ? session->graph : session->graph->inner.data[i - 1]);
  }
  hr_free(session->variables);
  hr_free(session->constants);
  hr_table_fini(&session->constant_table);
  hr__session_buckets_free(session);
  hr_mutex_fini(&session->running);
  hr_graph_release(session->whole);
  hr_graph_release(session->graph);
  hr_stream_release(session->stream);
  hr_free(session);
}

/* A copy of the graph that nobody changes, and the same with functions between what waits. */
static hr_status own_graph(hr_session *session, const hr_graph *given, const hr_session_options *options) {
  hr_graph *rounded = NULL;
  if (options->products != HR_DTYPE_NONE) {
    HR_RETURN_IF_ERROR(hr_graph_round_products(given, options->products, &rounded));
  }
  const hr_graph *graph = rounded != NULL ? rounded : given;
  hr_status made = options->keeps_operations ? hr__graph_copy(graph, NULL, &session->whole)
                                             : hr_graph_simplify(graph, session->stream, &session->whole);
  hr_graph_release(rounded);
  HR_RETURN_IF_ERROR(made);
  if (rounded != NULL) { /* the stream's copies of weights of another dtype */
    hr_device_memory_trim(hr_stream_device(session->stream));
  }
  hr_status status = options->keeps_operations ? HR_OK : hr__graph_cut(session->whole, &session->graph);
  if (hr_status_code_of(status) == HR_STATUS_RESOURCE_EXHAUSTED) {
    return status;
  }
  if (session->graph == NULL) { /* as it is, or it can't be cut: for example, functions would be too many */
    hr_status_free(status);
    hr_graph_retain(session->whole);
    session->graph = session->whole;
  }
  return HR_OK;
}

static hr_status set_threads(hr_session *session, int threads) {
  if (threads < 0 || threads > HR_THREADS_MAX) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "session: threads is %d, expected 1 to %d, or 0 for all", threads,
                          HR_THREADS_MAX);
  }
  session->threads = threads;
  return HR_OK;
}

hr_status hr_session_create(hr_stream *stream, const hr_graph *graph, const hr_session_options *options,
                            hr_session **out_session) {
  static const hr_session_options defaults = {0};
  hr_session *session = hr_calloc(1, sizeof *session);
  if (session == NULL) {
    return no_memory("the head");
  }
  options = options != NULL ? options : &defaults;
  hr_stream_retain(stream);
  session->stream = stream;
  hr_mutex_init(&session->running);
  hr__instance_cache_init(&session->instances);
  session->instances.count_max = options->instances_max > 0 ? options->instances_max : HR_SESSION_INSTANCES;
  session->instances.bytes_max = options->bytes_max > 0 ? options->bytes_max : HR_SESSION_BYTES;
  hr_status status = set_threads(session, options->threads);
  status = status == HR_OK ? own_graph(session, graph, options) : status;
  status = status == HR_OK ? hr__session_buckets_set(session, options) : status;
  status = status == HR_OK ? share_constants(session) : status;
  if (status != HR_OK) {
    hr_session_release(session);
    return status;
  }
  *out_session = session;
  return HR_OK;
}

const hr_graph *hr_session_graph(const hr_session *session) {
  return session->graph;
}

void hr_session_stats_read(hr_session *session, size_t bytes, hr_session_stats *out_stats) {
  hr_mutex_lock(&session->instances.mutex);
  hr_session_stats stats = session->stats;
  stats.kept = session->instances.count, stats.kept_bytes = session->instances.bytes;
  hr_mutex_unlock(&session->instances.mutex);
  memset(out_stats, 0, bytes);
  memcpy(out_stats, &stats, bytes < sizeof stats ? bytes : sizeof stats);
}
