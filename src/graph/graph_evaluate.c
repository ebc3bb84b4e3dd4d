/* graph_evaluate.c: a graph as calls of functions on a stream or a capture.
 *
 * Values that are known on the host are computed there; a function on the device that reads one gets a copy. Each
 * gradient has a tape, which begins before everything else and ends with it: later gradients' tapes see the records of
 * earlier ones. Control flow evaluates inner graphs (graph_evaluate_control.c).
 */
#include "graph/graph_evaluate.h"
#include "base/log.h"
#include "functional/functions.h"
#include "headrace/part.h"
#include "headrace/profile.h"

static hr_status no_memory(void) {
  return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "graph: no host memory to apply it");
}

/* ---- values ---- */

hr_status hr__evaluate_write(hr__evaluation *e, hr_dtype dtype, int rank, const int64_t *dims, const void *elements,
                             hr_tensor *out) {
  *out = (hr_tensor){.dtype = dtype, .rank = rank};
  for (int d = 0; d < rank; ++d) {
    out->dims[d] = dims[d];
  }
  hr_tensor_set_row_major(out);
  if (e->stream == NULL) {
    return HR_OK;
  }
  size_t bytes = (size_t)hr_tensor_count(out) * hr_dtype_size(dtype);
  HR_RETURN_IF_ERROR(hr_buffer_create(hr_stream_device(e->stream), bytes > 0 ? bytes : 1, &out->buffer));
  const hr_view view = hr_tensor_view(out), byte = {.buffer = out->buffer, .dtype = HR_DTYPE_U8};
  return bytes > 0 ? hr_stream_write(e->stream, &view, elements)
                   : hr_stream_write(e->stream, &byte, ""); /* a part reads no buffer without contents */
}

/* A value with elements of the host as a tensor. */
static hr_status write_tensor(hr__evaluation *e, hr_value value, hr_dtype dtype, const void *elements) {
  const hr__fact *fact = hr__frame_fact(&e->frame, value);
  return hr__evaluate_write(e, dtype, fact->rank, fact->dims, elements, &e->tensors[value]);
}

/* A value that is known on the host, for the device. */
static hr_status write_numbers(hr__evaluation *e, hr_value value) {
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

hr_status hr__evaluate_tensor(hr__evaluation *e, hr_value value, bool is_output) {
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
  if (hr__node_has_elements(node)) {
    return write_tensor(e, value, node->dtype, node->blob->bytes);
  }
  if (node->kind == HR__NODE_NUMBER) {
    return write_tensor(e, value, node->number.dtype, &node->number.value);
  }
  return write_numbers(e, value);
}

/* ---- nodes ---- */

hr_status hr__evaluate_types(hr__evaluation *e, const hr__node *node) {
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
  hr__evaluation *e;
  bool are_known;
} need;

static void note_known(void *arg, const hr_value *value) {
  need *n = arg;
  n->are_known &= hr__frame_fact(&n->e->frame, *value)->numbers != NULL;
}

/* True if the call has been computed on the host. */
static hr_status compute_on_host(hr__evaluation *e, const hr__node *node, bool *out_is_done) {
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

/* A call of a function with these operands. */
typedef struct call {
  hr_functional function;
  int input_count, attribute_count;
  const hr_tensor **inputs;
  hr_attribute *attributes;
} call;

/* The operand of a slice's start whose numbers the host knows; -1: there is none. */
static int known_start(const hr__evaluation *e, const hr__node *node) {
  bool is_slice = node->function == HR_FUNCTIONAL_DYNAMIC_SLICE || node->function == HR_FUNCTIONAL_DYNAMIC_SLICE_UPDATE;
  int last = node->input_count - 1;
  return is_slice && hr__frame_fact(&e->frame, node->inputs[last])->numbers != NULL ? last : -1;
}

/* The begins of a slice of these sizes, bounded so that it is inside of x. False: that is impossible. */
static bool bound_starts(const hr_tensor *x, const hr__fact *start, int count, const int64_t *sizes, int64_t *begin) {
  bool is_right = start->rank == 1 && start->dims[0] == x->rank && count == x->rank;
  for (int d = 0; is_right && d < count; ++d) {
    int64_t last = x->dims[d] - sizes[d], at = start->numbers[d];
    is_right = sizes[d] >= 0 && last >= 0;
    begin[d] = at < 0 ? 0 : at > last ? last : at;
  }
  return is_right;
}

/* A slice at a start that the host knows, as the number of an iteration, is one at constants: no index is read and
 * checked, and the slice itself is a view. */
static hr_status slice_at(hr__evaluation *e, const hr__node *node, int start, call *c) {
  bool is_update = node->function == HR_FUNCTIONAL_DYNAMIC_SLICE_UPDATE;
  int count = is_update ? c->inputs[1]->rank : c->attributes[0].count;
  const int64_t *sizes = is_update ? c->inputs[1]->dims : c->attributes[0].value.ints;
  int64_t *begin = HR_ARENA_ARRAY(&e->scratch, int64_t, 2 * HR_RANK_MAX);
  hr_attribute *attributes = HR_ARENA_ARRAY(&e->scratch, hr_attribute, 4);
  if (begin == NULL || attributes == NULL) {
    return no_memory();
  }
  if (!bound_starts(c->inputs[0], hr__frame_fact(&e->frame, node->inputs[start]), count, sizes, begin)) {
    c->inputs[start] = &e->tensors[node->inputs[start]]; /* which the function refuses */
    return hr__evaluate_tensor(e, node->inputs[start], false);
  }
  const int64_t *lists[3] = {begin, sizes, begin + HR_RANK_MAX};
  for (int i = 0; i < HR_RANK_MAX; ++i) {
    begin[HR_RANK_MAX + i] = 1;
  }
  for (int i = 0; i < 3; ++i) {
    attributes[i] = (hr_attribute){.kind = HR_ATTRIBUTE_INTS, .count = count, .value = {.ints = lists[i]}};
  }
  attributes[3] = (hr_attribute){.kind = HR_ATTRIBUTE_TEXT, .value = {.text = "set"}};
  c->function = is_update ? HR_FUNCTIONAL_SLICE_UPDATE : HR_FUNCTIONAL_SLICE;
  c->input_count = start, c->attribute_count = is_update ? 4 : 3, c->attributes = attributes;
  return HR_OK;
}

static hr_status apply_call(hr__evaluation *e, const hr__node *node) {
  call c = {node->function, node->input_count, node->attribute_count, NULL, NULL};
  c.inputs = HR_ARENA_ARRAY(&e->scratch, const hr_tensor *, (size_t)node->input_count + 1);
  if (c.inputs == NULL) {
    return no_memory();
  }
  int start = known_start(e, node);
  for (int i = 0; i < node->input_count; ++i) {
    if (node->inputs[i] != 0 && i != start) {
      HR_RETURN_IF_ERROR(hr__evaluate_tensor(e, node->inputs[i], false));
      c.inputs[i] = &e->tensors[node->inputs[i]];
    }
  }
  HR_RETURN_IF_ERROR(hr__frame_attributes(&e->frame, node, &c.attributes));
  HR_RETURN_IF_ERROR(start >= 0 ? slice_at(e, node, start, &c) : HR_OK);
  hr_status status = hr_functional_apply(e->stream, c.function, c.input_count, c.inputs, c.attribute_count,
                                         c.attributes, node->result_count, &e->tensors[node->first]);
  if (hr_status_code_of(status) == HR_STATUS_FAILED_PRECONDITION) {
    e->runner->needs_stream = true; /* a capture waits for no number */
  }
  e->runner->waits += status == HR_OK && e->stream != NULL && hr__node_is_unknown(node);
  HR_RETURN_IF_ERROR(status);
  return hr__evaluate_types(e, node);
}

static hr_status apply_gradient(hr__evaluation *e, const hr__node *node) {
  int count = node->result_count;
  const hr_tensor **by = HR_ARENA_ARRAY(&e->scratch, const hr_tensor *, (size_t)count);
  if (by == NULL) {
    return no_memory();
  }
  for (int i = 0; i < 2; ++i) {
    HR_RETURN_IF_ERROR(node->inputs[i] != 0 ? hr__evaluate_tensor(e, node->inputs[i], false) : HR_OK);
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
  --e->runner->transforms;
  return hr__evaluate_types(e, node);
}

/* ---- functions of the host ---- */

static hr_status run_host(const hr_function_call *given) {
  const hr__host *host = given->arg;
  hr_function_call own = *given;
  own.arg = host->spec.arg;
  return host->spec.run(&own);
}

static void release_host(void *arg) {
  hr__host_release(arg);
}

/* A new row-major tensor of the type in the node's facts. */
static hr_status create_result(hr__evaluation *e, hr_value value) {
  hr_tensor *x = &e->tensors[value];
  hr__frame_type(&e->frame, value, x);
  size_t bytes = (size_t)hr_tensor_count(x) * hr_dtype_size(x->dtype);
  return hr_buffer_create(hr_stream_device(e->stream), bytes > 0 ? bytes : 1, &x->buffer);
}

static hr_status apply_host(hr__evaluation *e, const hr__node *node) {
  hr_view *views = HR_ARENA_ARRAY(&e->scratch, hr_view, (size_t)(node->input_count + node->result_count) + 1);
  HR_RETURN_IF_ERROR(hr__frame_infer(&e->frame, node, &e->frame.facts[node->first]));
  if (e->stream == NULL) {
    return HR_OK;
  }
  if (views == NULL) {
    return no_memory();
  }
  for (int i = 0; i < node->input_count; ++i) {
    HR_RETURN_IF_ERROR(hr__evaluate_tensor(e, node->inputs[i], true));
    views[i] = hr_tensor_view(&e->tensors[node->inputs[i]]);
  }
  for (int i = 0; i < node->result_count; ++i) {
    HR_RETURN_IF_ERROR(create_result(e, node->first + i));
    views[node->input_count + i] = hr_tensor_view(&e->tensors[node->first + i]);
  }
  hr_refcount_retain(&node->host->refcount);
  const hr_function_spec spec = {.name = node->host->spec.name,
                                 .run = run_host,
                                 .arg = node->host,
                                 .release = release_host,
                                 .is_on_host = node->host->spec.is_on_host};
  return hr_function_record(e->stream, &spec, node->input_count, views, node->result_count, views + node->input_count);
}

/* An input with the caller's buffer, or a constant or variable that the caller has. */
static void bind_tensor(hr__evaluation *e, const hr__node *node) {
  const hr_tensor *from = NULL;
  if (node->kind == HR__NODE_INPUT) {
    from = e->inputs[e->input_count++];
  } else if (node->kind == HR__NODE_CONSTANT && e->constants != NULL) {
    from = &e->constants[node->first];
  } else if (node->kind == HR__NODE_VARIABLE && e->variables != NULL) {
    from = e->variables[e->variable_count++];
  }
  if (from != NULL && (from->buffer != NULL || node->kind == HR__NODE_INPUT)) {
    hr__view_like(from, &e->tensors[node->first]);
  }
}

/* The fact of an input, which is its tensor's; that of an inner graph may have numbers. */
static hr_status bind_fact(hr__evaluation *e, const hr__node *node) {
  HR_RETURN_IF_ERROR(hr__evaluate_types(e, node));
  if (e->input_facts != NULL) {
    e->frame.facts[node->first].numbers = e->input_facts[e->input_count - 1]->numbers;
  }
  return HR_OK;
}

static hr_status evaluate_node(hr__evaluation *e, const hr__node *node) {
  bool is_done = false;
  if (--e->runner->operations_left < 0) {
    e->runner->needs_stream = true;
    return hr_status_make(HR_STATUS_UNIMPLEMENTED, "graph: loops of too many operations for a part or an inference");
  }
  if (hr__node_is_control(node)) {
    return hr__evaluate_control(e, node);
  }
  if (node->kind == HR__NODE_READ) {
    return hr__evaluate_read(e, node);
  }
  if (node->kind == HR__NODE_HOST) {
    return apply_host(e, node);
  }
  bind_tensor(e, node);
  if (node->kind == HR__NODE_INPUT) {
    return bind_fact(e, node);
  }
  HR_RETURN_IF_ERROR(compute_on_host(e, node, &is_done));
  if (is_done) {
    return HR_OK;
  }
  return node->kind == HR__NODE_CALL ? apply_call(e, node) : apply_gradient(e, node);
}

/* ---- gradients ---- */

static hr_status begin_tapes(hr__evaluation *e) {
  const hr_graph *graph = e->frame.graph;
  for (size_t n = graph->nodes.count; n-- > 0 && e->stream != NULL;) {
    if (graph->nodes.data[n].kind == HR__NODE_GRADIENT) {
      HR_RETURN_IF_ERROR(hr_tape_begin(e->stream, &e->tapes[n]));
      ++e->runner->transforms;
    }
  }
  return HR_OK;
}

/* True for a value whose buffer others may have that this evaluation doesn't know: an argument of an inner graph, or a
 * result that inner graphs, or a tape, passed on. */
static bool is_foreign(const hr__evaluation *e, const hr__node *node) {
  return hr__node_is_control(node) || node->kind == HR__NODE_GRADIENT ||
         (node->kind == HR__NODE_INPUT && e->input_facts != NULL);
}

/* The number of tensors, up to this node, that the evaluation was given. */
static int count_shared(int count, const hr_tensor *const *tensors, const hr_buffer *buffer) {
  int shared = 0;
  for (int i = 0; tensors != NULL && i < count; ++i) {
    shared += tensors[i]->buffer == buffer;
  }
  return shared;
}

/* True if an input, a variable, a constant, or another value up to this one's node may have the same buffer. */
static bool shares_buffer(const hr__evaluation *e, hr_value value) {
  const hr_graph *graph = e->frame.graph;
  const hr__node *node = hr__graph_node_of(graph, value);
  const hr_buffer *buffer = e->tensors[value].buffer;
  int shared = count_shared((int)graph->inputs.count, e->inputs, buffer) +
               count_shared((int)graph->variables.count, e->variables, buffer);
  bool is_own = node->kind == HR__NODE_INPUT || (node->kind == HR__NODE_VARIABLE && e->variables != NULL);
  if (is_foreign(e, node) || shared > is_own) {
    return true;
  }
  for (hr_value v = 1; v < (hr_value)graph->values.count; ++v) {
    bool is_constant = e->constants != NULL && e->constants[v].buffer == buffer;
    bool is_value = v < node->first + node->result_count && e->tensors[v].buffer == buffer;
    if (v != value && (is_constant || is_value)) {
      return true;
    }
  }
  return false;
}

/* A tape watches a buffer: a value that is a view of another one becomes a copy, or uses of the other would count. */
static hr_status separate(hr__evaluation *e, hr_value value) {
  hr_tensor *x = &e->tensors[value], copy = {0};
  const hr_tensor *from = x;
  HR_RETURN_IF_ERROR(hr__evaluate_tensor(e, value, true));
  if (!shares_buffer(e, value)) {
    return HR_OK;
  }
  HR_RETURN_IF_ERROR(hr_functional_apply(e->stream, HR_FUNCTIONAL_ASTYPE, 1, &from, 0, NULL, 1, &copy));
  hr_tensor_release(x);
  *x = copy;
  return HR_OK;
}

/* Lets the tapes of all gradients by this value watch it. */
static hr_status watch(hr__evaluation *e, hr_value value) {
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

static hr_status watch_results(hr__evaluation *e, const hr__node *node) {
  for (int i = 0; i < node->result_count && e->stream != NULL; ++i) {
    if (hr__graph_value_of(e->frame.graph, node->first + i)->is_watched) {
      HR_RETURN_IF_ERROR(watch(e, node->first + i));
    }
  }
  return HR_OK;
}

/* ---- the whole ---- */

static hr_status check_buffers(const hr__evaluation *e) {
  const hr_graph *graph = e->frame.graph;
  for (size_t i = 0; i < graph->inputs.count && e->stream != NULL; ++i) {
    if (e->inputs[i]->buffer == NULL && e->input_facts == NULL) {
      return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "input \"%s\" has no buffer",
                            hr_graph_value_name(graph, graph->inputs.data[i]));
    }
  }
  return HR_OK;
}

/* The number of operations that the stream has recorded; 0 if nobody wants to see it. */
static int64_t count_records(const hr__evaluation *e) {
  hr_stats stats = {0};
  if (e->stream != NULL && hr_log_is_on(HR_LOG_SCHEDULE)) {
    hr_stream_stats(e->stream, &stats);
  }
  return stats.operations;
}

/* Prints the operations that a node has recorded, numbered as in the stream: those of programs refer to them. */
static void log_records(const hr__evaluation *e, const hr__node *node, int64_t before) {
  char text[HR__GRAPH_NAME_TEXT];
  int64_t after = count_records(e);
  if (after > before) {
    hr_log(HR_LOG_SCHEDULE, "graph: \"%s\" (%s): operations %lld to %lld",
           hr__graph_label(e->frame.graph, node->first, text),
           node->kind == HR__NODE_CALL       ? hr_functional_name(node->function)
           : node->kind == HR__NODE_GRADIENT ? "gradient"
           : node->kind == HR__NODE_HOST     ? "host"
                                             : "control flow",
           (long long)before, (long long)after - 1);
  }
}

/* Evaluates a node; what is recorded has its origin. */
static hr_status evaluate_at(hr__evaluation *e, const hr__node *node) {
  bool has_origins = e->frame.graph->has_origins && e->stream != NULL;
  if (has_origins) {
    hr_profile_origin(node->origin);
  }
  hr_status status = evaluate_node(e, node);
  status = status == HR_OK ? watch_results(e, node) : status;
  if (has_origins) {
    hr_capture_origin(e->stream, node->origin);
    hr_profile_origin(0);
  }
  return status;
}

static hr_status evaluate(hr__evaluation *e) {
  const hr_graph *graph = e->frame.graph;
  HR_RETURN_IF_ERROR(check_buffers(e));
  HR_RETURN_IF_ERROR(begin_tapes(e));
  for (size_t n = 0; n < graph->nodes.count; ++n) {
    const hr__node *node = &graph->nodes.data[n];
    int64_t recorded = count_records(e);
    hr_status status = evaluate_at(e, node);
    hr_arena_reset(&e->scratch);
    log_records(e, node, recorded);
    if (status != HR_OK) {
      char text[HR__GRAPH_NAME_TEXT];
      return hr_status_annotate(status, "\"%s\"", hr__graph_label(graph, node->first, text));
    }
  }
  return HR_OK;
}

static bool allocate(hr__evaluation *e) {
  const hr_graph *graph = e->frame.graph;
  e->tensors = hr_calloc(graph->values.count, sizeof *e->tensors);
  e->frame.facts = hr_calloc(graph->values.count, sizeof *e->frame.facts);
  e->tapes = hr_calloc(graph->nodes.count + 1, sizeof(hr_tape *));
  e->frame.arena = &e->arena, e->frame.scratch = &e->scratch, e->frame.host_bytes = &e->host_bytes;
  return e->tensors != NULL && e->frame.facts != NULL && e->tapes != NULL;
}

void hr__evaluation_finish(hr__evaluation *e) {
  const hr_graph *graph = e->frame.graph;
  for (size_t n = 0; e->tapes != NULL && n < graph->nodes.count; ++n) {
    e->runner->transforms -= e->tapes[n] != NULL;
    hr_tape_destroy(e->tapes[n]);
  }
  for (size_t v = 0; e->tensors != NULL && v < graph->values.count; ++v) {
    hr_buffer_release(e->tensors[v].buffer);
  }
  hr_free(e->tensors);
  hr_free(e->frame.facts);
  hr_free(e->tapes);
  hr_arena_fini(&e->arena);
  hr_arena_fini(&e->scratch);
}

hr_status hr__evaluation_run(hr__evaluation *e, const hr_graph *graph) {
  e->frame.graph = graph, e->frame.symbols = e->symbols;
  HR_RETURN_IF_ERROR(hr__graph_bind(graph, (int)graph->inputs.count, e->inputs, e->symbols));
  return allocate(e) ? evaluate(e) : no_memory();
}

/* Outputs, then the values that are assigned to variables. */
static hr_status give_results(hr__evaluation *e, hr_tensor *out_results) {
  const hr_graph *graph = e->frame.graph;
  int count = (int)graph->outputs.count + (e->variables != NULL ? (int)graph->variables.count : 0);
  for (int pass = 0; pass < 2; ++pass) {
    for (int i = 0; i < count; ++i) {
      int variable = i - (int)graph->outputs.count;
      hr_value value = variable < 0 ? graph->outputs.data[i].value : graph->assigned.data[variable];
      value = value != 0 ? value : graph->variables.data[variable];
      if (pass == 0) {
        HR_RETURN_IF_ERROR(hr__evaluate_tensor(e, value, true));
      } else {
        hr__view_like(&e->tensors[value], &out_results[i]);
      }
    }
  }
  return HR_OK;
}

static bool has_type_of(const hr__node *variable, const hr__fact *fact) {
  bool is_same = fact->dtype == variable->dtype && fact->rank == variable->rank;
  for (int d = 0; is_same && d < fact->rank; ++d) {
    is_same = fact->dims[d] == variable->dims[d];
  }
  return is_same;
}

/* Dims that no type foretold may be those of another run. */
static hr_status check_assigned(const hr__evaluation *e) {
  const hr_graph *graph = e->frame.graph;
  for (size_t i = 0; i < graph->variables.count; ++i) {
    const hr__node *variable = hr__graph_node_of(graph, graph->variables.data[i]);
    const hr__fact *fact = graph->assigned.data[i] != 0 ? hr__frame_fact(&e->frame, graph->assigned.data[i]) : NULL;
    if (fact != NULL && !has_type_of(variable, fact)) {
      char text[HR__SHAPE_TEXT], wanted[HR__SHAPE_TEXT];
      return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "variable \"%s\" is assigned %s%s, expected %s%s",
                            hr_graph_value_name(graph, graph->variables.data[i]), hr_dtype_name(fact->dtype),
                            hr__shape_text(fact->rank, fact->dims, text), hr_dtype_name(variable->dtype),
                            hr__shape_text(variable->rank, variable->dims, wanted));
    }
  }
  return HR_OK;
}

hr_status hr__graph_evaluate(const hr_graph *graph, hr_stream *stream, const hr_tensor *const *inputs,
                             const hr__fact *const *facts, const hr_tensor *const *variables, hr__runner *runner,
                             hr_tensor *out_results) {
  hr__evaluation e = {
      .stream = stream, .inputs = inputs, .input_facts = facts, .variables = variables, .runner = runner};
  e.frame.graph = graph;
  HR_RETURN_IF_ERROR(hr_graph_status(graph));
  e.constants = runner->constants != NULL ? runner->constants(runner->arg, graph) : NULL;
  hr_status status = hr__evaluation_run(&e, graph);
  status = status == HR_OK ? check_assigned(&e) : status;
  status = status == HR_OK ? give_results(&e, out_results) : status;
  hr__evaluation_finish(&e);
  return status;
}

hr_status hr_graph_apply(const hr_graph *graph, hr_stream *stream, int input_count, const hr_tensor *const *inputs,
                         int result_count, hr_tensor *out_results) {
  hr__runner runner = {.operations_left = stream != NULL ? INT64_MAX : HR__GRAPH_INFERRED_MAX};
  if (input_count != (int)graph->inputs.count || result_count != (int)graph->outputs.count) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "graph: %d inputs and %d results, expected %zu and %zu",
                          input_count, result_count, graph->inputs.count, graph->outputs.count);
  }
  return hr__graph_evaluate(graph, stream, inputs, NULL, NULL, &runner, out_results);
}
