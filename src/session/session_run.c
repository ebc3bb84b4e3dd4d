/* session_run.c: runs of sessions: of a part, or live: evaluated on the stream. Hooks of the stream (gradients, vmap)
 * see records alone: then a run is live, and its inner graphs are evaluated, too. */
#include "headrace/hook.h"
#include "session/graph_instance.h"

static hr_status no_memory(void) {
  return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "session: no host memory for a run");
}

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
    return no_memory();
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
  hr_status status = *out_is_done ? hr__graph_instance_run(session->stream, found, inputs, out_results) : HR_OK;
  hr__graph_instance_release(found);
  return status;
}

/* ---- results of live runs ---- */

typedef enum owner { OTHER = 1, VARIABLE } owner;

static bool note_owner(hr_table *owners, const hr_tensor *x, owner is) {
  return hr_table_put(owners, hr_buffer_serial(x->buffer), (void *)(uintptr_t)is);
}

/* Who has the buffers of inputs and variables: a buffer that is both is a variable's. */
static bool note_params(const hr_session *session, const hr_tensor *const *params, hr_table *owners) {
  size_t inputs = session->graph->inputs.count, all = inputs + session->graph->variables.count;
  bool has_room = true;
  for (size_t i = 0; i < all; ++i) {
    has_room = has_room && note_owner(owners, params[i], i < inputs ? OTHER : VARIABLE);
  }
  return has_room;
}

/* Copies a result whose memory is not its own. The new value of a variable may be an old one. */
static hr_status own_result(hr_session *session, hr_table *owners, bool is_output, hr_tensor *x) {
  uint64_t serial = hr_buffer_serial(x->buffer);
  owner of = (owner)(uintptr_t)hr_table_get(owners, serial);
  const hr_tensor *from = x;
  hr_tensor copy = {0};
  if (of == VARIABLE && !is_output) {
    return HR_OK;
  }
  if (of != 0 || hr_table_get(&session->constant_table, serial) != NULL) {
    HR_RETURN_IF_ERROR(hr_functional_apply(session->stream, HR_FUNCTIONAL_ASTYPE, 1, &from, 0, NULL, 1, &copy));
    hr_tensor_release(x);
    *x = copy;
  }
  return note_owner(owners, x, OTHER) ? HR_OK : no_memory();
}

/* Callers may write to outputs and inputs. */
static hr_status own_results(hr_session *session, const hr_tensor *const *params, hr_tensor *results) {
  size_t outputs = session->graph->outputs.count, all = outputs + session->graph->variables.count;
  hr_table owners = {0};
  hr_status status = note_params(session, params, &owners) ? HR_OK : no_memory();
  for (size_t i = 0; status == HR_OK && i < all; ++i) {
    status = own_result(session, &owners, i < outputs, &results[i]);
  }
  hr_table_fini(&owners);
  return status;
}

static void release_results(const hr_session *session, hr_tensor *results) {
  for (size_t i = 0; i < session->graph->outputs.count + session->graph->variables.count; ++i) {
    hr_tensor_release(&results[i]);
  }
}

static hr_status run_live(hr_session *session, const hr_tensor *const *params, hr_tensor *results) {
  hr__runner runner = {.arg = session,
                       .constants = hr__session_constants,
                       .run = run_inner,
                       .operations_left = INT64_MAX,
                       .transforms = hr_hook_is_open(session->stream)};
  HR_RETURN_IF_ERROR(hr__graph_evaluate(session->graph, session->stream, params, NULL,
                                        params + session->graph->inputs.count, &runner, results));
  hr_mutex_lock(&session->instances.mutex);
  session->stats.waits += runner.waits;
  hr_mutex_unlock(&session->instances.mutex);
  hr_status status = own_results(session, params, results);
  if (status != HR_OK) {
    release_results(session, results);
  }
  return status;
}

/* All results: outputs, then values of variables. */
static hr_status run(hr_session *session, const hr_tensor *const *params, hr_tensor *results) {
  hr__graph_instance *found = NULL;
  if (hr_hook_is_open(session->stream)) {
    return run_live(session, params, results);
  }
  HR_RETURN_IF_ERROR(hr__session_instance(session, session->graph, params, NULL, &found));
  hr_status status = found->part != NULL ? hr__graph_instance_run(session->stream, found, params, results)
                                         : run_live(session, params, results);
  hr__graph_instance_release(found);
  return status;
}

static void keep_results(hr_session *session, const hr_tensor *results, hr_tensor *out_results) {
  size_t outputs = session->graph->outputs.count;
  for (size_t i = 0; i < outputs; ++i) {
    out_results[i] = results[i];
  }
  hr_mutex_lock(&session->instances.mutex);
  for (size_t i = 0; i < session->graph->variables.count; ++i) {
    hr_tensor_release(&session->variables[i]);
    session->variables[i] = results[outputs + i];
  }
  ++session->stats.runs;
  hr_mutex_unlock(&session->instances.mutex);
}

/* ---- runs ---- */

/* A graph with variables: a run has their values from before, and other runs wait. */
static hr_status run_with_variables(hr_session *session, const hr_tensor *const *inputs, hr_tensor *out_results) {
  size_t count = session->graph->outputs.count + session->graph->variables.count;
  const hr_tensor **params = NULL;
  HR_RETURN_IF_ERROR(list_params(session, inputs, &params));
  hr_tensor *results = hr_calloc(count + 1, sizeof *results);
  hr_status status = results != NULL ? run(session, params, results) : no_memory();
  if (status == HR_OK) {
    keep_results(session, results, out_results);
  }
  hr_free(results);
  hr_free(params);
  return status;
}

static hr_status run_without_variables(hr_session *session, const hr_tensor *const *inputs, hr_tensor *out_results) {
  HR_RETURN_IF_ERROR(run(session, inputs, out_results));
  hr_mutex_lock(&session->instances.mutex);
  ++session->stats.runs;
  hr_mutex_unlock(&session->instances.mutex);
  return HR_OK;
}

static hr_status run_any(hr_session *session, const hr_tensor *const *inputs, hr_tensor *out_results) {
  if (session->graph->variables.count == 0) {
    return run_without_variables(session, inputs, out_results);
  }
  hr_mutex_lock(&session->running);
  hr_status status = run_with_variables(session, inputs, out_results);
  hr_mutex_unlock(&session->running);
  return status;
}

static hr_status begin_threads(const hr_session *session) {
  return session->threads > 0 ? hr_stream_begin_threads(session->stream, session->threads) : HR_OK;
}

/* After work that ended with `status`; returns it, or else the failure of its commit. */
static hr_status end_threads(const hr_session *session, hr_status status) {
  hr_status ended = session->threads > 0 ? hr_stream_end_threads(session->stream) : HR_OK;
  if (status != HR_OK) {
    hr_status_ignore(ended);
  }
  return status != HR_OK ? status : ended;
}

static void release_all(hr_tensor *tensors, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    hr_tensor_release(&tensors[i]);
  }
}

hr_status hr_session_run(hr_session *session, int input_count, const hr_tensor *const *inputs, int result_count,
                         hr_tensor *out_results) {
  HR_RETURN_IF_ERROR(check_counts(session, input_count, result_count));
  HR_RETURN_IF_ERROR(begin_threads(session));
  hr_status status = session->bucket_count > 0 ? hr__session_run_padded(session, inputs, run_any, out_results)
                                               : run_any(session, inputs, out_results);
  hr_status ended = end_threads(session, status);
  if (status == HR_OK && ended != HR_OK) {
    release_all(out_results, (size_t)result_count);
  }
  return ended;
}

/* ---- warm ---- */

/* Zeros in the types of inputs, with references; variables are the session's. */
static hr_status make_zeros(hr_session *session, const hr_tensor *const *params, hr_tensor *zeros) {
  const hr_tensor number = hr_tensor_number(hr_scalar_i64(0)), *value = &number;
  for (size_t i = 0; i < session->graph->inputs.count; ++i) {
    const hr_attribute like[2] = {
        {.kind = HR_ATTRIBUTE_INTS, .count = params[i]->rank, .value = {.ints = params[i]->dims}},
        {.kind = HR_ATTRIBUTE_DTYPE, .value = {.dtype = params[i]->dtype}}};
    HR_RETURN_IF_ERROR(hr_functional_apply(session->stream, HR_FUNCTIONAL_FULL, 1, &value, 2, like, 1, &zeros[i]));
  }
  for (size_t i = 0; i < session->graph->variables.count; ++i) {
    hr__tensor_share(&session->variables[i], &zeros[session->graph->inputs.count + i]);
  }
  return hr_stream_synchronize(session->stream);
}

/* Runs the part, so that its programs are compiled, and drops the results. Inputs that the caller keeps make another
 * program than those that die with the run, so it runs twice. */
static hr_status run_on_zeros(hr_session *session, const hr__graph_instance *of, const hr_tensor **params) {
  const hr_graph *graph = session->graph;
  size_t count = graph->inputs.count + graph->variables.count, results = graph->outputs.count + graph->variables.count;
  hr_tensor *zeros = hr_calloc(count + results + 1, sizeof *zeros);
  if (zeros == NULL) {
    return no_memory();
  }
  hr_status status = make_zeros(session, params, zeros);
  for (size_t i = 0; i < count; ++i) {
    params[i] = &zeros[i];
  }
  for (int kept = 1; status == HR_OK && kept >= 0; --kept) {
    status = hr__graph_instance_run(session->stream, of, params, zeros + count);
    release_all(zeros, kept == 1 ? 0 : graph->inputs.count);
    status = status == HR_OK ? hr_stream_synchronize(session->stream) : status;
    release_all(zeros + count, results);
  }
  release_all(zeros, count);
  hr_free(zeros);
  return status;
}

static hr_status warm_instance(hr_session *session, const hr_tensor *const *inputs) {
  hr__graph_instance *found = NULL;
  const hr_tensor **params = NULL;
  HR_RETURN_IF_ERROR(list_params(session, inputs, &params));
  hr_status status = hr__session_instance(session, session->graph, params, NULL, &found);
  bool can_run = status == HR_OK && found->part != NULL && !found->may_not_end;
  status = can_run ? run_on_zeros(session, found, params) : status;
  hr__graph_instance_release(found);
  hr_free(params);
  return status;
}

/* Within a tape or a vmap, too: neither sees the runs on zeros. */
static hr_status warm(hr_session *session, const hr_tensor *const *inputs) {
  hr_hook *hook = hr_hook_set_top(session->stream, NULL);
  hr_status status = begin_threads(session); /* first, as in a run */
  if (status == HR_OK) {
    hr_mutex_lock(&session->running);
    status = warm_instance(session, inputs);
    hr_mutex_unlock(&session->running);
    status = end_threads(session, status);
  }
  (void)hr_hook_set_top(session->stream, hook);
  return status;
}

hr_status hr_session_warm(hr_session *session, int input_count, const hr_tensor *const *inputs) {
  HR_RETURN_IF_ERROR(check_counts(session, input_count, hr_graph_output_count(session->graph)));
  hr_tensor *types = hr_calloc((size_t)input_count + 1, sizeof *types);
  const hr_tensor **places = hr_calloc((size_t)input_count + 1, sizeof(hr_tensor *));
  hr_status status = types != NULL && places != NULL ? hr__session_round(session, inputs, types) : no_memory();
  for (int i = 0; status == HR_OK && i < input_count; ++i) {
    places[i] = &types[i];
  }
  status = status == HR_OK ? warm(session, places) : status;
  hr_free(types);
  hr_free(places);
  return status;
}
