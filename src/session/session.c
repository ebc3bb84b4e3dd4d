/* session.c: sessions, their constants and variables, and runs. See headrace/session.h; graph_instance.h has the
 * instances.
 */
#include "headrace/session.h"

#include "core/ops/infer.h"
#include "headrace/array.h"
#include "session/graph_instance.h"

enum { ADOPTED_ALIGNMENT = 64 };

static hr_status no_memory(const char *what) {
  return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "session: no host memory for %s", what);
}

/* ---- constants ---- */

static void release_graph(void *arg) {
  hr_graph_release(arg);
}

/* The constant on the session's device: in the graph's memory if that is the device's. */
static hr_status share_constant(hr_session *session, const hr__node *node, bool is_host, hr_tensor *out) {
  const void *bytes = node->blob->bytes;
  size_t count = hr__graph_bytes(node);
  if (is_host && count > 0 && (uintptr_t)bytes % ADOPTED_ALIGNMENT == 0) {
    hr_graph_retain(session->graph);
    hr_status status = hr_array_adopt(session->stream, node->dtype, node->rank, node->dims, NULL,
                                      (void *)(uintptr_t)bytes, release_graph, session->graph, out);
    if (status != HR_OK) {
      hr_graph_release(session->graph);
    }
    return status;
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
    if (hr__node_has_elements(node)) {
      HR_RETURN_IF_ERROR(share_constant(session, node, is_host, &(*out_constants)[node->first]));
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
  size_t i = 0;
  while (graph != session->graph && session->graph->inner.data[i] != graph) {
    ++i;
  }
  return session->constants[graph == session->graph ? 0 : i + 1];
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

hr_status hr_session_variable(const hr_session *session, const char *name, hr_tensor *out_value) {
  int index = 0;
  HR_RETURN_IF_ERROR(find_variable(session, name, &index));
  hr__tensor_share(&session->variables[index], out_value);
  return HR_OK;
}

hr_status hr_session_set_variable(hr_session *session, const char *name, const hr_tensor *value) {
  int index = 0;
  HR_RETURN_IF_ERROR(find_variable(session, name, &index));
  hr_tensor *x = &session->variables[index];
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
  hr_tensor copy;
  hr__tensor_share(value, &copy);
  hr_tensor_release(x);
  *x = copy;
  return HR_OK;
}

/* ---- sessions ---- */

void hr_session_release(hr_session *session) {
  if (session == NULL) {
    return;
  }
  while (session->first != NULL) {
    hr__graph_instance *next = session->first->next;
    hr__graph_instance_free(session->first);
    session->first = next;
  }
  for (size_t i = 0; session->variables != NULL && i < session->graph->variables.count; ++i) {
    hr_tensor_release(&session->variables[i]);
  }
  for (size_t i = 0; session->constants != NULL && i <= session->graph->inner.count; ++i) {
    release_constants(session, i, i == 0 ? session->graph : session->graph->inner.data[i - 1]);
  }
  hr_free(session->variables);
  hr_free(session->constants);
  hr_graph_release(session->graph);
  hr_stream_release(session->stream);
  hr_free(session);
}

/* A copy of the graph that nobody changes, with functions between what waits. */
static hr_status own_graph(hr_session *session, const hr_graph *graph, const hr_session_options *options) {
  bool is_copy = options != NULL && options->keeps_operations;
  hr_graph *own = NULL;
  HR_RETURN_IF_ERROR(is_copy ? hr__graph_copy(graph, &own) : hr_graph_simplify(graph, session->stream, &own));
  hr_status status = is_copy ? HR_OK : hr__graph_cut(own, &session->graph);
  if (hr_status_code_of(status) == HR_STATUS_RESOURCE_EXHAUSTED) {
    hr_graph_release(own);
    return status;
  }
  if (is_copy || status != HR_OK) { /* as it is, it can't be cut: for example, functions would be too many */
    hr_status_free(status);
    session->graph = own;
  } else {
    hr_graph_release(own);
  }
  return HR_OK;
}

hr_status hr_session_create(hr_stream *stream, const hr_graph *graph, const hr_session_options *options,
                            hr_session **out_session) {
  hr_session *session = hr_calloc(1, sizeof *session);
  if (session == NULL) {
    return no_memory("the head");
  }
  hr_stream_retain(stream);
  session->stream = stream;
  session->instances_max =
      options != NULL && options->instances_max > 0 ? options->instances_max : HR_SESSION_INSTANCES;
  hr_status status = own_graph(session, graph, options);
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

void hr_session_stats_read(const hr_session *session, size_t bytes, hr_session_stats *out_stats) {
  memset(out_stats, 0, bytes);
  memcpy(out_stats, &session->stats, bytes < sizeof session->stats ? bytes : sizeof session->stats);
}

/* ---- running ---- */

static hr_status check_counts(const hr_session *session, int input_count, int result_count) {
  if (input_count != hr_graph_input_count(session->graph)) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "graph: %d inputs, expected %d", input_count,
                          hr_graph_input_count(session->graph));
  }
  if (result_count != hr_graph_output_count(session->graph)) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "session: %d results, expected %d", result_count,
                          hr_graph_output_count(session->graph));
  }
  return HR_OK;
}

/* The inputs, then the variables. The caller frees them. */
static hr_status list_params(const hr_session *session, const hr_tensor *const *inputs, const hr_tensor ***out_params) {
  size_t count = session->graph->inputs.count, variables = session->graph->variables.count;
  const hr_tensor **params = hr_calloc(count + variables + 1, sizeof(hr_tensor *));
  if (params == NULL) {
    return no_memory("a run");
  }
  for (size_t i = 0; i < count + variables; ++i) {
    params[i] = i < count ? inputs[i] : &session->variables[i - count];
  }
  *out_params = params;
  return HR_OK;
}

/* Runs an inner graph of a live instance. */
static hr_status run_inner(void *arg, const hr_graph *inner, const hr_tensor *const *inputs,
                           const hr__fact *const *facts, hr_tensor *out_results, bool *out_is_done) {
  hr_session *session = arg;
  hr__graph_instance *found = NULL;
  HR_RETURN_IF_ERROR(hr__session_instance(session, inner, inputs, facts, &found));
  *out_is_done = found != NULL && found->part != NULL;
  return *out_is_done ? hr__graph_instance_run(session, found, inputs, out_results) : HR_OK;
}

static bool has_buffer(size_t count, const hr_tensor *const *tensors, const hr_buffer *buffer) {
  for (size_t i = 0; i < count; ++i) {
    if (tensors[i]->buffer == buffer) {
      return true;
    }
  }
  return false;
}

static bool is_constant(const hr_session *session, const hr_buffer *buffer) {
  const hr_graph *graph = session->graph;
  for (size_t g = 0; g <= graph->inner.count; ++g) {
    const hr_graph *of = g == 0 ? graph : graph->inner.data[g - 1];
    for (size_t v = 0; v < of->values.count; ++v) {
      if (session->constants[g][v].buffer == buffer) {
        return true;
      }
    }
  }
  return false;
}

/* True if a result of a live run has memory that is not its own. The new value of a variable may be an old one. */
static bool shares_memory(const hr_session *session, const hr_tensor *const *params, const hr_tensor *results,
                          size_t at) {
  const hr_graph *graph = session->graph;
  const hr_buffer *buffer = results[at].buffer;
  if (has_buffer(graph->variables.count, params + graph->inputs.count, buffer)) {
    return at < graph->outputs.count;
  }
  for (size_t i = 0; i < at; ++i) {
    if (results[i].buffer == buffer) {
      return true;
    }
  }
  return has_buffer(graph->inputs.count, params, buffer) || is_constant(session, buffer);
}

/* Copies results that share memory: callers may write to outputs and inputs. */
static hr_status own_results(hr_session *session, const hr_tensor *const *params, hr_tensor *results) {
  for (size_t i = 0; i < session->graph->outputs.count + session->graph->variables.count; ++i) {
    const hr_tensor *from = &results[i];
    hr_tensor copy = {0};
    if (shares_memory(session, params, results, i)) {
      HR_RETURN_IF_ERROR(hr_functional_apply(session->stream, HR_FUNCTIONAL_ASTYPE, 1, &from, 0, NULL, 1, &copy));
      hr_tensor_release(&results[i]);
      results[i] = copy;
    }
  }
  return HR_OK;
}

static void release_results(const hr_session *session, hr_tensor *results) {
  for (size_t i = 0; i < session->graph->outputs.count + session->graph->variables.count; ++i) {
    hr_tensor_release(&results[i]);
  }
}

static hr_status run_live(hr_session *session, const hr_tensor *const *params, hr_tensor *results) {
  hr__runner runner = {
      .arg = session, .constants = hr__session_constants, .run = run_inner, .operations_left = INT64_MAX};
  HR_RETURN_IF_ERROR(hr__graph_evaluate(session->graph, session->stream, params, NULL,
                                        params + session->graph->inputs.count, &runner, results));
  session->stats.waits += runner.waits;
  hr_status status = own_results(session, params, results);
  if (status != HR_OK) {
    release_results(session, results);
  }
  return status;
}

/* All results: outputs, then values of variables. */
static hr_status run(hr_session *session, const hr_tensor *const *params, hr_tensor *results) {
  hr__graph_instance *found = NULL;
  HR_RETURN_IF_ERROR(hr__session_instance(session, session->graph, params, NULL, &found));
  return found->part != NULL ? hr__graph_instance_run(session, found, params, results)
                             : run_live(session, params, results);
}

static void keep_results(hr_session *session, const hr_tensor *results, hr_tensor *out_results) {
  size_t outputs = session->graph->outputs.count;
  for (size_t i = 0; i < outputs; ++i) {
    out_results[i] = results[i];
  }
  for (size_t i = 0; i < session->graph->variables.count; ++i) {
    hr_tensor_release(&session->variables[i]);
    session->variables[i] = results[outputs + i];
  }
  ++session->stats.runs;
}

hr_status hr_session_warm(hr_session *session, int input_count, const hr_tensor *const *inputs) {
  hr__graph_instance *found = NULL;
  const hr_tensor **params = NULL;
  HR_RETURN_IF_ERROR(check_counts(session, input_count, hr_graph_output_count(session->graph)));
  HR_RETURN_IF_ERROR(list_params(session, inputs, &params));
  hr_status status = hr__session_instance(session, session->graph, params, NULL, &found);
  hr_free(params);
  return status;
}

/* A graph without variables, mostly: nothing is listed. Sets false, and does nothing, if the instance is live. */
static hr_status run_part(hr_session *session, const hr_tensor *const *inputs, hr_tensor *out_results,
                          bool *out_is_done) {
  hr__graph_instance *found = NULL;
  HR_RETURN_IF_ERROR(hr__session_instance(session, session->graph, inputs, NULL, &found));
  *out_is_done = found->part != NULL;
  if (*out_is_done) {
    HR_RETURN_IF_ERROR(hr__graph_instance_run(session, found, inputs, out_results));
    ++session->stats.runs;
  }
  return HR_OK;
}

hr_status hr_session_run(hr_session *session, int input_count, const hr_tensor *const *inputs, int result_count,
                         hr_tensor *out_results) {
  const hr_tensor **params = NULL;
  bool is_done = false;
  HR_RETURN_IF_ERROR(check_counts(session, input_count, result_count));
  if (session->graph->variables.count == 0) {
    HR_RETURN_IF_ERROR(run_part(session, inputs, out_results, &is_done));
  }
  if (is_done) {
    return HR_OK;
  }
  HR_RETURN_IF_ERROR(list_params(session, inputs, &params));
  hr_tensor *results = hr_calloc((size_t)result_count + session->graph->variables.count + 1, sizeof *results);
  hr_status status = results != NULL ? run(session, params, results) : no_memory("a run");
  if (status == HR_OK) {
    keep_results(session, results, out_results);
  }
  hr_free(results);
  hr_free(params);
  return status;
}
