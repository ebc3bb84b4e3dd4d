/* graph_evaluate.c: a graph as calls of functions on a stream or a capture.
 *
 * Values that are known on the host are computed there; a function on the device that reads one gets a copy. Each
 * gradient has a tape, which begins before everything else and ends with it: later gradients' tapes see the records of
 * earlier ones.
 */
#include <stdio.h>

#include "functional/functions.h"
#include "graph/graph_node.h"

typedef struct evaluation {
  hr__frame frame;
  hr_arena arena, scratch;
  hr_stream *stream;
  hr_tensor *tensors;         /* by value, with references; without a buffer: not there yet */
  const hr_tensor *constants; /* the caller's, or NULL */
  hr_tape **tapes;            /* by node; NULL: none */
  const hr_tensor *const *inputs;
  int64_t host_bytes;
  int input_count; /* those that have had their turn */
} evaluation;

static hr_status no_memory(void) {
  return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "graph: no host memory to apply it");
}

/* ---- binding ---- */

static hr_status refuse_input(const hr_graph *graph, int index, const hr_tensor *x) {
  hr_type type;
  char text[HR__SHAPE_TEXT], wanted[HR__SHAPE_TEXT];
  int length = 0;
  hr_value value = graph->inputs.data[index];
  HR_RETURN_IF_ERROR(hr_graph_type(graph, value, &type));
  for (int d = 0; d < type.rank && length < (int)sizeof wanted - 32; ++d) {
    length += type.symbols[d] != NULL ? snprintf(wanted + length, sizeof wanted - (size_t)length, "%s%.20s",
                                                 d > 0 ? "," : "", type.symbols[d])
                                      : snprintf(wanted + length, sizeof wanted - (size_t)length, "%s%lld",
                                                 d > 0 ? "," : "", (long long)type.dims[d]);
  }
  return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "input \"%s\" is %s%s, expected %s[%.*s]",
                        hr_graph_value_name(graph, value), hr_dtype_name(x->dtype),
                        hr__shape_text(x->rank, x->dims, text), hr_dtype_name(type.dtype), length, wanted);
}

/* Compares an input's dims, and sets the symbols that it is the first to have. setter: by symbol, the input. */
static hr_status bind_input(const hr_graph *graph, int index, const hr_tensor *x, int64_t *symbols, int *setters) {
  const hr__node *node = hr__graph_node_of(graph, graph->inputs.data[index]);
  if (x->number.dtype != HR_DTYPE_NONE || x->dtype != node->dtype || x->rank != node->rank) {
    return refuse_input(graph, index, x);
  }
  for (int d = 0; d < x->rank; ++d) {
    if (node->dims[d] >= 0) {
      if (x->dims[d] != node->dims[d]) {
        return refuse_input(graph, index, x);
      }
      continue;
    }
    int symbol = (int)(-1 - node->dims[d]);
    if (setters[symbol] >= 0 && symbols[symbol] != x->dims[d]) {
      return hr_status_make(HR_STATUS_INVALID_ARGUMENT,
                            "input \"%s\": dim %d (%s) is %lld, but input \"%s\" has %s = %lld",
                            hr_graph_value_name(graph, graph->inputs.data[index]), d, graph->symbols.data[symbol],
                            (long long)x->dims[d], hr_graph_value_name(graph, graph->inputs.data[setters[symbol]]),
                            graph->symbols.data[symbol], (long long)symbols[symbol]);
    }
    symbols[symbol] = x->dims[d], setters[symbol] = index;
  }
  return HR_OK;
}

hr_status hr__graph_bind(const hr_graph *graph, int input_count, const hr_tensor *const *inputs, int64_t *out_symbols) {
  int setters[HR_GRAPH_SYMBOLS_MAX];
  if (input_count != (int)graph->inputs.count) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "graph: %d inputs, expected %zu", input_count,
                          graph->inputs.count);
  }
  for (size_t s = 0; s < graph->symbols.count; ++s) {
    setters[s] = -1;
  }
  for (int i = 0; i < input_count; ++i) {
    if (inputs[i] == NULL) {
      return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "input \"%s\" is absent",
                            hr_graph_value_name(graph, graph->inputs.data[i]));
    }
    HR_RETURN_IF_ERROR(bind_input(graph, i, inputs[i], out_symbols, setters));
  }
  for (size_t s = 0; s < graph->symbols.count; ++s) {
    if (setters[s] < 0) {
      return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "graph: no input has a dim \"%s\"", graph->symbols.data[s]);
    }
  }
  return HR_OK;
}

/* ---- values ---- */

/* A new tensor with elements of the host. */
static hr_status write_tensor(evaluation *e, hr_value value, hr_dtype dtype, const void *elements) {
  hr_tensor *x = &e->tensors[value];
  hr__frame_type(&e->frame, value, x);
  x->number = (hr_scalar){0}, x->dtype = dtype;
  size_t bytes = (size_t)hr_tensor_count(x) * hr_dtype_size(dtype);
  HR_RETURN_IF_ERROR(hr_buffer_create(hr_stream_device(e->stream), bytes > 0 ? bytes : 1, &x->buffer));
  hr_view view = hr_tensor_view(x);
  return hr_stream_write(e->stream, &view, elements);
}

/* A value that is known on the host, for the device. */
static hr_status write_numbers(evaluation *e, hr_value value) {
  const hr__fact *fact = hr__frame_fact(&e->frame, value);
  int64_t count = 1;
  for (int d = 0; d < fact->rank; ++d) {
    count *= fact->dims[d];
  }
  void *elements = hr_arena_alloc(&e->scratch, (size_t)count * sizeof(int64_t) + 1);
  if (elements == NULL) {
    return no_memory();
  }
  hr__integers_store(fact->dtype, count, fact->numbers, elements);
  return write_tensor(e, value, fact->dtype, elements);
}

/* Makes sure that a value is there as a tensor. Numbers stay numbers, unless they are outputs. */
static hr_status need_tensor(evaluation *e, hr_value value, bool is_output) {
  const hr__node *node = hr__graph_node_of(e->frame.graph, value);
  const hr__fact *fact = hr__frame_fact(&e->frame, value);
  hr_tensor *x = &e->tensors[value];
  if (x->buffer != NULL) {
    return HR_OK;
  }
  if (node->kind == HR__NODE_NUMBER && !is_output) {
    *x = hr_tensor_number(node->number);
    return HR_OK;
  }
  if (e->stream == NULL) {
    hr__frame_type(&e->frame, value, x);
    x->number = (hr_scalar){0}, x->dtype = fact->dtype;
    return HR_OK;
  }
  if (node->kind == HR__NODE_CONSTANT) {
    return write_tensor(e, value, node->dtype, node->blob->bytes);
  }
  if (node->kind == HR__NODE_NUMBER) {
    return write_tensor(e, value, node->number.dtype, &node->number.value);
  }
  return write_numbers(e, value);
}

/* ---- nodes ---- */

/* The facts of tensors that a function made. */
static hr_status note_types(evaluation *e, const hr__node *node) {
  for (int i = 0; i < node->result_count; ++i) {
    const hr_tensor *x = &e->tensors[node->first + i];
    int64_t *dims = hr_arena_dup_words(&e->arena, x->dims, x->rank);
    if (dims == NULL) {
      return no_memory();
    }
    e->frame.facts[node->first + i] = (hr__fact){.is_set = true, .dtype = x->dtype, .rank = x->rank, .dims = dims};
  }
  return HR_OK;
}

typedef struct need {
  evaluation *e;
  bool are_known;
} need;

static void note_known(void *arg, const hr_value *value) {
  need *n = arg;
  n->are_known &= hr__frame_fact(&n->e->frame, *value)->numbers != NULL;
}

/* True if the call has been computed on the host. */
static hr_status compute_on_host(evaluation *e, const hr__node *node, bool *out_is_done) {
  need n = {e, node->kind == HR__NODE_CALL && node->result_count == 1};
  *out_is_done = node->kind != HR__NODE_CALL && node->kind != HR__NODE_GRADIENT;
  hr__node_each_input(node, note_known, &n);
  if (!*out_is_done && !n.are_known && e->stream != NULL) {
    return HR_OK;
  }
  HR_RETURN_IF_ERROR(hr__frame_infer(&e->frame, node, &e->frame.facts[node->first]));
  *out_is_done |= e->stream == NULL || e->frame.facts[node->first].numbers != NULL;
  return HR_OK;
}

static hr_status apply_call(evaluation *e, const hr__node *node) {
  hr_attribute *attributes = NULL;
  const hr_tensor **inputs = HR_ARENA_ARRAY(&e->scratch, const hr_tensor *, (size_t)node->input_count + 1);
  if (inputs == NULL) {
    return no_memory();
  }
  for (int i = 0; i < node->input_count; ++i) {
    if (node->inputs[i] != 0) {
      HR_RETURN_IF_ERROR(need_tensor(e, node->inputs[i], false));
      inputs[i] = &e->tensors[node->inputs[i]];
    }
  }
  HR_RETURN_IF_ERROR(hr__frame_attributes(&e->frame, node, &attributes));
  HR_RETURN_IF_ERROR(hr_functional_apply(e->stream, node->function, node->input_count, inputs, node->attribute_count,
                                         attributes, node->result_count, &e->tensors[node->first]));
  return note_types(e, node);
}

static hr_status apply_gradient(evaluation *e, const hr__node *node) {
  int count = node->result_count;
  const hr_tensor **by = HR_ARENA_ARRAY(&e->scratch, const hr_tensor *, (size_t)count);
  if (by == NULL) {
    return no_memory();
  }
  for (int i = 0; i < 2; ++i) {
    HR_RETURN_IF_ERROR(node->inputs[i] != 0 ? need_tensor(e, node->inputs[i], false) : HR_OK);
  }
  for (int i = 0; i < count; ++i) {
    by[i] = &e->tensors[node->inputs[i + 2]];
  }
  const hr_tensor *of = &e->tensors[node->inputs[0]];
  const hr_tensor *seed = node->inputs[1] != 0 ? &e->tensors[node->inputs[1]] : NULL;
  hr_tape **tape = &e->tapes[node - e->frame.graph->nodes.data];
  HR_RETURN_IF_ERROR(hr_tape_gradient(*tape, 1, &of, seed != NULL ? &seed : NULL, count, by, &e->tensors[node->first]));
  hr_tape_destroy(*tape);
  *tape = NULL;
  return note_types(e, node);
}

/* An input with the caller's buffer, or a constant that the caller has. */
static hr_status bind_tensor(evaluation *e, const hr__node *node) {
  const hr_tensor *from = node->kind == HR__NODE_INPUT                              ? e->inputs[e->input_count++]
                          : node->kind == HR__NODE_CONSTANT && e->constants != NULL ? &e->constants[node->first]
                                                                                    : NULL;
  if (from != NULL && (from->buffer != NULL || node->kind == HR__NODE_INPUT)) {
    hr__view_like(from, &e->tensors[node->first]);
  }
  return HR_OK;
}

static hr_status evaluate_node(evaluation *e, const hr__node *node) {
  bool is_done = false;
  HR_RETURN_IF_ERROR(bind_tensor(e, node));
  HR_RETURN_IF_ERROR(compute_on_host(e, node, &is_done));
  if (is_done) {
    return HR_OK;
  }
  return node->kind == HR__NODE_CALL ? apply_call(e, node) : apply_gradient(e, node);
}

/* ---- gradients ---- */

static hr_status begin_tapes(evaluation *e) {
  const hr_graph *graph = e->frame.graph;
  for (size_t n = graph->nodes.count; n-- > 0 && e->stream != NULL;) {
    if (graph->nodes.data[n].kind == HR__NODE_GRADIENT) {
      HR_RETURN_IF_ERROR(hr_tape_begin(e->stream, &e->tapes[n]));
    }
  }
  return HR_OK;
}

/* True if an input or another value up to this one's node has the same buffer. */
static bool shares_buffer(const evaluation *e, hr_value value) {
  const hr__node *node = hr__graph_node_of(e->frame.graph, value);
  const hr_buffer *buffer = e->tensors[value].buffer;
  int own = node->kind == HR__NODE_INPUT ? e->input_count - 1 : -1;
  for (int i = 0; i < (int)e->frame.graph->inputs.count; ++i) {
    if (i != own && e->inputs[i]->buffer == buffer) {
      return true;
    }
  }
  for (hr_value v = 1; v < node->first + node->result_count; ++v) {
    if (v != value && e->tensors[v].buffer == buffer) {
      return true;
    }
  }
  return false;
}

/* A tape watches a buffer: a value that is a view of another one becomes a copy, or uses of the other would count. */
static hr_status separate(evaluation *e, hr_value value) {
  hr_tensor *x = &e->tensors[value], copy = {0};
  const hr_tensor *from = x;
  HR_RETURN_IF_ERROR(need_tensor(e, value, true));
  if (!shares_buffer(e, value)) {
    return HR_OK;
  }
  HR_RETURN_IF_ERROR(hr_functional_apply(e->stream, HR_FUNCTIONAL_ASTYPE, 1, &from, 0, NULL, 1, &copy));
  hr_tensor_release(x);
  *x = copy;
  return HR_OK;
}

/* Lets the tapes of all gradients by this value watch it. */
static hr_status watch(evaluation *e, hr_value value) {
  const hr_graph *graph = e->frame.graph;
  HR_RETURN_IF_ERROR(separate(e, value));
  for (size_t n = 0; n < graph->nodes.count; ++n) {
    const hr__node *node = &graph->nodes.data[n];
    bool is_by = false;
    for (int i = 2; e->tapes[n] != NULL && i < node->input_count; ++i) {
      is_by |= node->inputs[i] == value;
    }
    if (is_by) {
      const hr_tensor *x = &e->tensors[value];
      HR_RETURN_IF_ERROR(hr_tape_watch(e->tapes[n], 1, &x));
    }
  }
  return HR_OK;
}

static hr_status watch_results(evaluation *e, const hr__node *node) {
  for (int i = 0; i < node->result_count && e->stream != NULL; ++i) {
    if (hr__graph_value_of(e->frame.graph, node->first + i)->is_watched) {
      HR_RETURN_IF_ERROR(watch(e, node->first + i));
    }
  }
  return HR_OK;
}

/* ---- the whole ---- */

static hr_status evaluate(evaluation *e, hr_tensor *out_results) {
  const hr_graph *graph = e->frame.graph;
  for (size_t i = 0; i < graph->inputs.count && e->stream != NULL; ++i) {
    if (e->inputs[i]->buffer == NULL) {
      return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "input \"%s\" has no buffer",
                            hr_graph_value_name(graph, graph->inputs.data[i]));
    }
  }
  HR_RETURN_IF_ERROR(begin_tapes(e));
  for (size_t n = 0; n < graph->nodes.count; ++n) {
    const hr__node *node = &graph->nodes.data[n];
    hr_status status = evaluate_node(e, node);
    status = status == HR_OK ? watch_results(e, node) : status;
    hr_arena_reset(&e->scratch);
    if (status != HR_OK) {
      char text[HR__GRAPH_NAME_TEXT];
      return hr_status_annotate(status, "\"%s\"", hr__graph_label(graph, node->first, text));
    }
  }
  for (size_t i = 0; i < graph->outputs.count; ++i) {
    HR_RETURN_IF_ERROR(need_tensor(e, graph->outputs.data[i].value, true));
  }
  for (size_t i = 0; i < graph->outputs.count; ++i) {
    hr__view_like(&e->tensors[graph->outputs.data[i].value], &out_results[i]);
  }
  return HR_OK;
}

static bool allocate(evaluation *e) {
  const hr_graph *graph = e->frame.graph;
  e->tensors = hr_calloc(graph->values.count, sizeof *e->tensors);
  e->frame.facts = hr_calloc(graph->values.count, sizeof *e->frame.facts);
  e->tapes = hr_calloc(graph->nodes.count + 1, sizeof(hr_tape *));
  e->frame.arena = &e->arena, e->frame.scratch = &e->scratch, e->frame.host_bytes = &e->host_bytes;
  return e->tensors != NULL && e->frame.facts != NULL && e->tapes != NULL;
}

hr_status hr__graph_evaluate(const hr_graph *graph, hr_stream *stream, const hr_tensor *const *inputs,
                             const hr_tensor *constants, hr_tensor *out_results) {
  int64_t symbols[HR_GRAPH_SYMBOLS_MAX];
  evaluation e = {
      .frame = {.graph = graph, .symbols = symbols}, .stream = stream, .constants = constants, .inputs = inputs};
  HR_RETURN_IF_ERROR(hr_graph_status(graph));
  HR_RETURN_IF_ERROR(hr__graph_bind(graph, (int)graph->inputs.count, inputs, symbols));
  hr_status status = allocate(&e) ? evaluate(&e, out_results) : no_memory();
  for (size_t n = 0; e.tapes != NULL && n < graph->nodes.count; ++n) {
    hr_tape_destroy(e.tapes[n]);
  }
  for (size_t v = 0; e.tensors != NULL && v < graph->values.count; ++v) {
    hr_buffer_release(e.tensors[v].buffer);
  }
  hr_free(e.tensors);
  hr_free(e.frame.facts);
  hr_free(e.tapes);
  hr_arena_fini(&e.arena);
  hr_arena_fini(&e.scratch);
  return status;
}

hr_status hr_graph_apply(const hr_graph *graph, hr_stream *stream, int input_count, const hr_tensor *const *inputs,
                         int result_count, hr_tensor *out_results) {
  if (input_count != (int)graph->inputs.count || result_count != (int)graph->outputs.count) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "graph: %d inputs and %d results, expected %zu and %zu",
                          input_count, result_count, graph->inputs.count, graph->outputs.count);
  }
  return hr__graph_evaluate(graph, stream, inputs, NULL, out_results);
}
