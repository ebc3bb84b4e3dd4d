/* session.c: instances of a graph by the dims of its inputs. See headrace/session.h.
 *
 * An instance is made on a capture, whose parameters are the graph's inputs, and whose results are its outputs. An
 * output that is no buffer of its own there, such as a view of an input or of a constant, is copied.
 */
#include "headrace/session.h"

#include "graph/graph_node.h"
#include "headrace/array.h"
#include "headrace/part.h"

enum { ADOPTED_ALIGNMENT = 64 };

typedef struct instance {
  struct instance *next; /* used before this one */
  hr_part *part;
  int64_t *symbols;
  hr_tensor *results; /* types */
  size_t *bytes;      /* of the results' buffers */
} instance;

struct hr_session {
  hr_stream *stream;
  hr_graph *graph;
  hr_tensor *constants; /* by value */
  instance *first;      /* used last */
  int instances_max;
  hr_session_stats stats;
};

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

static hr_status share_constants(hr_session *session) {
  hr_device_info info;
  hr_device_describe(hr_stream_device(session->stream), &info);
  for (size_t n = 0; n < session->graph->nodes.count; ++n) {
    const hr__node *node = &session->graph->nodes.data[n];
    if (node->kind == HR__NODE_CONSTANT) {
      HR_RETURN_IF_ERROR(share_constant(session, node, info.is_host, &session->constants[node->first]));
    }
  }
  return HR_OK;
}

/* ---- sessions ---- */

static void free_instance(instance *i) {
  hr_part_release(i->part);
  hr_free(i->symbols);
  hr_free(i->results);
  hr_free(i->bytes);
  hr_free(i);
}

void hr_session_release(hr_session *session) {
  if (session == NULL) {
    return;
  }
  while (session->first != NULL) {
    instance *next = session->first->next;
    free_instance(session->first);
    session->first = next;
  }
  for (size_t v = 0; session->constants != NULL && v < session->graph->values.count; ++v) {
    hr_tensor_release(&session->constants[v]);
  }
  hr_free(session->constants);
  hr_graph_release(session->graph);
  hr_stream_release(session->stream);
  hr_free(session);
}

/* A copy of the graph that nobody changes. */
static hr_status own_graph(hr_session *session, const hr_graph *graph, const hr_session_options *options) {
  bool is_copy = options != NULL && options->keeps_operations;
  return is_copy ? hr__graph_copy(graph, &session->graph) : hr_graph_simplify(graph, session->stream, &session->graph);
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
  if (status == HR_OK) {
    session->constants = hr_calloc(session->graph->values.count, sizeof *session->constants);
    status = session->constants != NULL ? share_constants(session) : no_memory("constants");
  }
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

/* ---- making an instance ---- */

typedef struct making {
  hr_session *session;
  hr_stream *capture;
  int input_count, result_count;
  hr_tensor *inputs, *results; /* in the capture, with references */
  const hr_tensor **places;    /* of the inputs */
  hr_buffer **buffers;         /* those of the inputs, then those of the results */
} making;

static size_t bytes_of(const hr_tensor *x) {
  return (size_t)hr_tensor_count(x) * hr_dtype_size(x->dtype);
}

/* Row-major inputs of the same types. */
static hr_status create_inputs(making *m, const hr_tensor *const *like) {
  for (int i = 0; i < m->input_count; ++i) {
    hr_tensor *x = &m->inputs[i];
    int64_t stride = 1;
    x->dtype = like[i]->dtype, x->rank = like[i]->rank;
    for (int d = x->rank - 1; d >= 0; --d) {
      x->dims[d] = like[i]->dims[d], x->strides[d] = stride;
      stride *= x->dims[d] > 0 ? x->dims[d] : 1;
    }
    HR_RETURN_IF_ERROR(hr_buffer_create(hr_stream_device(m->capture), bytes_of(x), &x->buffer));
    m->places[i] = x, m->buffers[i] = x->buffer;
  }
  return HR_OK;
}

/* Results in buffers of their own. */
static hr_status own_results(making *m) {
  for (int i = 0; i < m->result_count; ++i) {
    const hr_tensor *x = &m->results[i];
    hr_tensor copy = {0};
    bool is_own = !hr_buffer_has_memory(x->buffer);
    for (int b = 0; b < m->input_count + i; ++b) {
      is_own &= m->buffers[b] != x->buffer;
    }
    if (!is_own) {
      HR_RETURN_IF_ERROR(hr_functional_apply(m->capture, HR_FUNCTIONAL_ASTYPE, 1, &x, 0, NULL, 1, &copy));
      hr_tensor_release(&m->results[i]);
      m->results[i] = copy;
    }
    m->buffers[m->input_count + i] = m->results[i].buffer;
  }
  return HR_OK;
}

static hr_status record(making *m, const hr_tensor *const *like, hr_part **out_part) {
  hr_session *session = m->session;
  HR_RETURN_IF_ERROR(create_inputs(m, like));
  HR_RETURN_IF_ERROR(hr__graph_evaluate(session->graph, m->capture, m->places, session->constants, m->results));
  HR_RETURN_IF_ERROR(own_results(m));
  const hr_part_spec spec = {.param_count = m->input_count,
                             .result_count = m->result_count,
                             .params = m->buffers,
                             .results = m->buffers + m->input_count};
  return hr_part_create(m->capture, &spec, out_part);
}

static void keep_results(const making *m, instance *made) {
  for (int i = 0; i < m->result_count; ++i) {
    made->results[i] = m->results[i];
    made->results[i].buffer = NULL;
    made->bytes[i] = hr_buffer_bytes(m->results[i].buffer);
  }
}

static bool allocate(making *m, instance *made, size_t symbols) {
  size_t inputs = (size_t)m->input_count, results = (size_t)m->result_count;
  m->inputs = hr_calloc(inputs + 1, sizeof *m->inputs);
  m->results = hr_calloc(results + 1, sizeof *m->results);
  m->places = hr_calloc(inputs + 1, sizeof(hr_tensor *));
  m->buffers = hr_calloc(inputs + results + 1, sizeof *m->buffers);
  made->symbols = hr_calloc(symbols + 1, sizeof *made->symbols);
  made->results = hr_calloc(results + 1, sizeof *made->results);
  made->bytes = hr_calloc(results + 1, sizeof *made->bytes);
  return m->inputs != NULL && m->results != NULL && m->places != NULL && m->buffers != NULL && made->symbols != NULL &&
         made->results != NULL && made->bytes != NULL;
}

static void free_making(making *m) {
  for (int i = 0; m->inputs != NULL && i < m->input_count; ++i) {
    hr_tensor_release(&m->inputs[i]);
  }
  for (int i = 0; m->results != NULL && i < m->result_count; ++i) {
    hr_tensor_release(&m->results[i]);
  }
  hr_free(m->inputs);
  hr_free(m->results);
  hr_free(m->places);
  hr_free(m->buffers);
  hr_stream_release(m->capture);
}

static hr_status make_instance(hr_session *session, const int64_t *symbols, const hr_tensor *const *inputs,
                               instance **out_instance) {
  instance *made = hr_calloc(1, sizeof *made);
  making m = {.session = session,
              .input_count = hr_graph_input_count(session->graph),
              .result_count = hr_graph_output_count(session->graph)};
  if (made == NULL) {
    return no_memory("an instance");
  }
  size_t count = session->graph->symbols.count;
  hr_status status = allocate(&m, made, count) ? hr_capture_create(hr_stream_device(session->stream), &m.capture)
                                               : no_memory("an instance");
  status = status == HR_OK ? record(&m, inputs, &made->part) : status;
  if (status == HR_OK) {
    keep_results(&m, made);
  }
  free_making(&m);
  if (status != HR_OK) {
    free_instance(made);
    return status;
  }
  memcpy(made->symbols, symbols, count * sizeof *symbols);
  ++session->stats.instances;
  *out_instance = made;
  return HR_OK;
}

/* ---- instances ---- */

/* The instance for these symbols, moved to the front; NULL: there is none. */
static instance *find_instance(hr_session *session, const int64_t *symbols) {
  size_t bytes = session->graph->symbols.count * sizeof *symbols;
  for (instance **link = &session->first; *link != NULL; link = &(*link)->next) {
    instance *found = *link;
    if (bytes == 0 || memcmp(found->symbols, symbols, bytes) == 0) {
      *link = found->next;
      found->next = session->first;
      session->first = found;
      return found;
    }
  }
  return NULL;
}

static void add_instance(hr_session *session, instance *made) {
  made->next = session->first;
  session->first = made;
  session->stats.kept = 0;
  for (instance **link = &session->first; *link != NULL;) {
    if (session->stats.kept < session->instances_max) {
      ++session->stats.kept;
      link = &(*link)->next;
      continue;
    }
    instance *oldest = *link;
    *link = oldest->next;
    free_instance(oldest);
  }
}

/* The instance for these inputs, which is made if there is none. */
static hr_status need_instance(hr_session *session, int input_count, const hr_tensor *const *inputs,
                               instance **out_instance) {
  int64_t symbols[HR_GRAPH_SYMBOLS_MAX] = {0};
  HR_RETURN_IF_ERROR(hr__graph_bind(session->graph, input_count, inputs, symbols));
  *out_instance = find_instance(session, symbols);
  if (*out_instance == NULL) {
    HR_RETURN_IF_ERROR(make_instance(session, symbols, inputs, out_instance));
    add_instance(session, *out_instance);
  }
  session->stats.records = hr_part_record_count((*out_instance)->part);
  return HR_OK;
}

hr_status hr_session_warm(hr_session *session, int input_count, const hr_tensor *const *inputs) {
  instance *found = NULL;
  return need_instance(session, input_count, inputs, &found);
}

/* ---- running ---- */

typedef struct running {
  int input_count, result_count;
  hr_tensor *copies;   /* of inputs, with references; without a buffer: none */
  hr_buffer **buffers; /* of the inputs, then of the results; the latter with references */
} running;

/* The buffer of an input, or of a row-major copy. */
static hr_status find_buffer(hr_session *session, running *r, const instance *of, int i, const hr_tensor *x) {
  if (x->buffer == NULL) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "input \"%s\" has no buffer",
                          hr_graph_value_name(session->graph, hr_graph_input_value(session->graph, i)));
  }
  r->buffers[i] = x->buffer;
  bool is_used = hr_part_param_use(of->part, i) != 0;
  if (is_used && (x->offset != 0 || !hr_tensor_is_row_major(x) || hr_buffer_bytes(x->buffer) < bytes_of(x))) {
    HR_RETURN_IF_ERROR(hr_functional_apply(session->stream, HR_FUNCTIONAL_ASTYPE, 1, &x, 0, NULL, 1, &r->copies[i]));
    r->buffers[i] = r->copies[i].buffer;
  }
  return HR_OK;
}

static hr_status run(hr_session *session, running *r, const instance *of, const hr_tensor *const *inputs) {
  for (int i = 0; i < r->input_count; ++i) {
    HR_RETURN_IF_ERROR(find_buffer(session, r, of, i, inputs[i]));
  }
  for (int i = 0; i < r->result_count; ++i) {
    HR_RETURN_IF_ERROR(
        hr_buffer_create(hr_stream_device(session->stream), of->bytes[i], &r->buffers[r->input_count + i]));
  }
  return hr_part_run(session->stream, of->part, r->buffers, r->buffers + r->input_count, NULL);
}

static hr_status run_instance(hr_session *session, const instance *of, const hr_tensor *const *inputs,
                              hr_tensor *out_results) {
  running r = {.input_count = hr_graph_input_count(session->graph),
               .result_count = hr_graph_output_count(session->graph)};
  r.copies = hr_calloc((size_t)r.input_count + 1, sizeof *r.copies);
  r.buffers = hr_calloc((size_t)(r.input_count + r.result_count) + 1, sizeof *r.buffers);
  hr_status status = r.copies != NULL && r.buffers != NULL ? run(session, &r, of, inputs) : no_memory("a run");
  for (int i = 0; r.buffers != NULL && i < r.result_count; ++i) {
    hr_buffer *buffer = r.buffers[r.input_count + i];
    if (status == HR_OK) {
      out_results[i] = of->results[i];
      out_results[i].buffer = buffer;
    } else {
      hr_buffer_release(buffer);
    }
  }
  for (int i = 0; r.copies != NULL && i < r.input_count; ++i) {
    hr_tensor_release(&r.copies[i]);
  }
  hr_free(r.copies);
  hr_free(r.buffers);
  return status;
}

hr_status hr_session_run(hr_session *session, int input_count, const hr_tensor *const *inputs, int result_count,
                         hr_tensor *out_results) {
  instance *found = NULL;
  if (result_count != hr_graph_output_count(session->graph)) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "session: %d results, expected %d", result_count,
                          hr_graph_output_count(session->graph));
  }
  HR_RETURN_IF_ERROR(need_instance(session, input_count, inputs, &found));
  HR_RETURN_IF_ERROR(run_instance(session, found, inputs, out_results));
  ++session->stats.runs;
  return HR_OK;
}
