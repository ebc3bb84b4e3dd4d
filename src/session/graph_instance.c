/* graph_instance.c: makes and runs instances. See graph_instance.h. */
#include "session/graph_instance.h"

#include "base/env.h"
#include "base/log.h"
#include "core/ops/infer.h"

enum { PART_OPERATIONS_MAX = 1 << 16 }; /* evaluated for one part */

static hr_status no_memory(const char *what) {
  return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "session: no host memory for %s", what);
}

void hr__graph_instance_release(hr__graph_instance *i) {
  if (i == NULL || !hr_refcount_release(&i->refcount)) {
    return;
  }
  hr_part_release(i->part);
  hr_free(i->key);
  hr_free(i->results);
  hr_free(i->bytes);
  hr_free(i->params);
  hr_free(i->uses);
  hr_free(i);
}

/* ---- making an instance ---- */

typedef struct making {
  hr_session *session;
  const hr_graph *graph;
  hr_stream *capture;
  int param_count, output_count, result_count;
  hr_tensor *params, *results;  /* in the capture, with references */
  const hr_tensor **places;     /* of the parameters */
  hr_buffer **buffers;          /* those of the parameters, then those of the results that are none */
  int own_count;                /* results that are none */
  const hr__fact *const *facts; /* of the inputs, or NULL */
  hr__graph_instance *made;
} making;

/* Row-major parameters of the same types. */
static hr_status create_params(making *m, const hr_tensor *const *like) {
  for (int i = 0; i < m->param_count; ++i) {
    hr_tensor *x = &m->params[i];
    x->dtype = like[i]->dtype, x->rank = like[i]->rank;
    memcpy(x->dims, like[i]->dims, (size_t)x->rank * sizeof *x->dims);
    hr_tensor_set_row_major(x);
    HR_RETURN_IF_ERROR(hr_buffer_create(hr_stream_device(m->capture), hr__tensor_bytes(x), &x->buffer));
    m->places[i] = x, m->buffers[i] = x->buffer;
  }
  return HR_OK;
}

static bool has_layout_of(const hr_tensor *x, const hr_tensor *y) {
  bool is_same = x->dtype == y->dtype && x->rank == y->rank && x->offset == y->offset;
  for (int d = 0; is_same && d < x->rank; ++d) {
    is_same = x->dims[d] == y->dims[d] && (x->dims[d] < 2 || x->strides[d] == y->strides[d]);
  }
  return is_same;
}

/* The parameter that a result is, or -1. Outputs of the session's graph are none; values of its variables may be those
 * of variables, but no inputs, which are the caller's. */
static int find_param(const making *m, int result) {
  const hr_tensor *x = &m->results[result];
  bool is_whole = m->graph == m->session->graph;
  int first = !is_whole ? 0 : result >= m->output_count ? (int)m->graph->inputs.count : m->param_count;
  for (int i = first; i < m->param_count; ++i) {
    if (x->buffer == m->params[i].buffer && has_layout_of(x, &m->params[i])) {
      return i;
    }
  }
  return -1;
}

/* A result in a buffer of its own, behind those of earlier ones. */
static hr_status own_result(making *m, hr_tensor *x) {
  bool is_own = !hr_buffer_has_memory(x->buffer);
  for (int b = 0; b < m->param_count + m->own_count; ++b) {
    is_own &= m->buffers[b] != x->buffer;
  }
  if (!is_own) {
    const hr_tensor *from = x;
    hr_tensor copy = {0};
    HR_RETURN_IF_ERROR(hr_functional_apply(m->capture, HR_FUNCTIONAL_ASTYPE, 1, &from, 0, NULL, 1, &copy));
    hr_tensor_release(x);
    *x = copy;
  }
  m->buffers[m->param_count + m->own_count++] = x->buffer;
  return HR_OK;
}

static hr_status keep_results(making *m) {
  for (int i = 0; i < m->result_count; ++i) {
    m->made->params[i] = find_param(m, i);
    HR_RETURN_IF_ERROR(m->made->params[i] < 0 ? own_result(m, &m->results[i]) : HR_OK);
    m->made->results[i] = m->results[i];
    m->made->results[i].buffer = NULL;
    m->made->bytes[i] = hr_buffer_bytes(m->results[i].buffer);
  }
  return HR_OK;
}

static hr_status record(making *m, const hr_tensor *const *like, hr__runner *runner) {
  bool is_whole = m->graph == m->session->graph;
  const hr_tensor *const *variables = is_whole ? m->places + m->graph->inputs.count : NULL;
  HR_RETURN_IF_ERROR(create_params(m, like));
  HR_RETURN_IF_ERROR(hr__graph_evaluate(m->graph, m->capture, m->places, m->facts, variables, runner, m->results));
  HR_RETURN_IF_ERROR(keep_results(m));
  const hr_part_spec spec = {.param_count = m->param_count,
                             .result_count = m->own_count,
                             .params = m->buffers,
                             .results = m->buffers + m->param_count};
  return hr_part_create(m->capture, &spec, &m->made->part);
}

static bool allocate(making *m) {
  size_t params = (size_t)m->param_count, results = (size_t)m->result_count;
  m->params = hr_calloc(params + 1, sizeof *m->params);
  m->results = hr_calloc(results + 1, sizeof *m->results);
  m->places = hr_calloc(params + 1, sizeof(hr_tensor *));
  m->buffers = hr_calloc(params + results + 1, sizeof *m->buffers);
  m->made->results = hr_calloc(results + 1, sizeof *m->made->results);
  m->made->bytes = hr_calloc(results + 1, sizeof *m->made->bytes);
  m->made->params = hr_calloc(results + 1, sizeof *m->made->params);
  m->made->uses = hr_calloc(params + 1, sizeof *m->made->uses);
  return m->params != NULL && m->results != NULL && m->places != NULL && m->buffers != NULL &&
         m->made->results != NULL && m->made->bytes != NULL && m->made->params != NULL && m->made->uses != NULL;
}

static void free_making(making *m) {
  for (int i = 0; m->params != NULL && i < m->param_count; ++i) {
    hr_tensor_release(&m->params[i]);
  }
  for (int i = 0; m->results != NULL && i < m->result_count; ++i) {
    hr_tensor_release(&m->results[i]);
  }
  hr_free(m->params);
  hr_free(m->results);
  hr_free(m->places);
  hr_free(m->buffers);
  hr_stream_release(m->capture);
}

/* Prints what an instance was made of: its inputs, records and memory. */
static void log_instance(const making *m, int64_t ns) {
  hr_text text = {0};
  if (!hr_log_is_on(HR_LOG_SCHEDULE)) {
    return;
  }
  for (int i = 0; i < m->param_count; ++i) {
    char dims[HR__DIMS_TEXT];
    const hr_view view = hr_tensor_view(&m->params[i]);
    hr_text_printf(&text, "%s%s%s", i > 0 ? ", " : "", hr_dtype_name(view.dtype), hr__view_dims(&view, dims));
  }
  hr_log(HR_LOG_SCHEDULE, "instance of %d operations for %s: %lld records, %zu bytes, %.2f ms%s",
         hr_graph_operation_count(m->graph), hr_text_chars(&text),
         m->made->part != NULL ? (long long)hr_part_record_count(m->made->part) : 0, m->made->host_bytes,
         (double)ns * 1e-6, m->made->part != NULL ? "" : "; it reads what the device computes");
  hr_text_fini(&text);
}

/* Records a part, or finds that the instance is live. */
static hr_status make_part(making *m, const hr_tensor *const *params) {
  hr__runner runner = {.arg = m->session,
                       .constants = hr__session_constants,
                       .operations_left = PART_OPERATIONS_MAX,
                       .compiles_loops = hr_env_choice(HR_ENV_LOOPS) == HR_ENV_LOOPS_ON};
  HR_RETURN_IF_ERROR(hr_capture_create(hr_stream_device(m->session->stream), &m->capture));
  hr_status status = record(m, params, &runner);
  m->made->may_not_end = runner.endless_loops > 0;
  if (runner.needs_stream && hr_status_code_of(status) != HR_STATUS_RESOURCE_EXHAUSTED) {
    hr_status_free(status);
    return HR_OK;
  }
  return status;
}

/* Facts of the part that a run needs. */
static void describe_part(const making *m) {
  hr__graph_instance *made = m->made;
  made->host_bytes = sizeof *made + (size_t)m->result_count * (sizeof *made->results + sizeof *made->bytes);
  for (int i = 0; made->part != NULL && i < m->param_count; ++i) {
    made->uses[i] = hr_part_param_use(made->part, i) != 0;
  }
  made->host_bytes += made->part != NULL ? (size_t)hr_part_host_bytes(made->part) : 0;
}

hr_status hr__graph_instance_make(hr_session *session, const hr_graph *graph, const hr_tensor *const *params,
                                  const hr__fact *const *facts, hr__graph_instance **out_instance) {
  int variables = (int)graph->variables.count;
  making m = {.session = session,
              .graph = graph,
              .param_count = (int)graph->inputs.count + variables,
              .output_count = (int)graph->outputs.count,
              .result_count = (int)graph->outputs.count + variables,
              .facts = facts,
              .made = hr_calloc(1, sizeof *m.made)};
  if (m.made == NULL) {
    return no_memory("an instance");
  }
  int64_t begin = hr_clock_ns();
  hr_refcount_init(&m.made->refcount);
  m.made->graph = graph;
  hr_status status = allocate(&m) ? make_part(&m, params) : no_memory("an instance");
  if (status == HR_OK) {
    describe_part(&m);
    log_instance(&m, hr_clock_ns() - begin);
    *out_instance = m.made;
  } else {
    hr__graph_instance_release(m.made);
  }
  free_making(&m);
  return status;
}

/* ---- running ---- */

typedef struct running {
  int param_count, result_count, own_count;
  hr_buffer **buffers; /* of the parameters, then of the results that are none; the latter with references */
  hr_buffer **copies;  /* of parameters, with references; NULL: none */
} running;

/* The buffer of a copy without gaps, whatever the order of x's strides. */
static hr_status copy_row_major(hr_stream *stream, const hr_tensor *x, hr_buffer **out_buffer) {
  hr_tensor out = *x;
  out.offset = 0;
  hr_tensor_set_row_major(&out);
  HR_RETURN_IF_ERROR(hr_buffer_create(hr_stream_device(stream), hr__tensor_bytes(x), &out.buffer));
  const hr_view from = hr_tensor_view(x), to = hr_tensor_view(&out);
  hr_status status = hr_stream_record(stream, HR_OP_COPY, NULL, 1, &from, 1, &to);
  if (status != HR_OK) {
    hr_tensor_release(&out);
  }
  *out_buffer = out.buffer;
  return status;
}

/* The buffer of a parameter, or of a row-major copy. */
static hr_status find_buffer(hr_stream *stream, running *r, const hr__graph_instance *of, int i, const hr_tensor *x) {
  if (x->buffer == NULL) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "input \"%s\" has no buffer",
                          hr_graph_value_name(of->graph, hr_graph_input_value(of->graph, i)));
  }
  r->buffers[i] = x->buffer;
  if (of->uses[i] &&
      (x->offset != 0 || !hr_tensor_is_row_major(x) || hr_buffer_bytes(x->buffer) < hr__tensor_bytes(x))) {
    HR_RETURN_IF_ERROR(copy_row_major(stream, x, &r->copies[i]));
    r->buffers[i] = r->copies[i];
  }
  return HR_OK;
}

static hr_status append(hr_stream *stream, running *r, const hr__graph_instance *of, const hr_tensor *const *params) {
  for (int i = 0; i < r->param_count; ++i) {
    HR_RETURN_IF_ERROR(find_buffer(stream, r, of, i, params[i]));
  }
  for (int i = 0; i < r->result_count; ++i) {
    if (of->params[i] < 0) {
      HR_RETURN_IF_ERROR(
          hr_buffer_create(hr_stream_device(stream), of->bytes[i], &r->buffers[r->param_count + r->own_count]));
      ++r->own_count;
    }
  }
  return hr_part_run(stream, of->part, r->buffers, r->buffers + r->param_count, NULL);
}

static void give_results(const running *r, const hr__graph_instance *of, const hr_tensor *const *params,
                         hr_tensor *out_results) {
  for (int i = 0, own = 0; i < r->result_count; ++i) {
    if (of->params[i] >= 0) {
      hr__tensor_share(params[of->params[i]], &out_results[i]);
    } else {
      out_results[i] = of->results[i];
      out_results[i].buffer = r->buffers[r->param_count + own++];
    }
  }
}

hr_status hr__graph_instance_run(hr_stream *stream, const hr__graph_instance *of, const hr_tensor *const *params,
                                 hr_tensor *out_results) {
  int variables = (int)of->graph->variables.count;
  running r = {.param_count = (int)of->graph->inputs.count + variables,
               .result_count = (int)of->graph->outputs.count + variables};
  size_t count = (size_t)(r.param_count + r.result_count);
  r.buffers = hr_calloc(count + (size_t)r.param_count + 1, sizeof *r.buffers);
  if (r.buffers == NULL) {
    return no_memory("a run");
  }
  r.copies = r.buffers + count;
  hr_status status = append(stream, &r, of, params);
  if (status == HR_OK) {
    give_results(&r, of, params, out_results);
  }
  for (int i = 0; status != HR_OK && i < r.own_count; ++i) {
    hr_buffer_release(r.buffers[r.param_count + i]);
  }
  for (int i = 0; i < r.param_count; ++i) {
    hr_buffer_release(r.copies[i]);
  }
  hr_free(r.buffers);
  return status;
}
