/* graph_add.c: nodes of a graph: inputs, constants, numbers, symbols and shapes. */
#include "functional/functions.h"
#include "graph/graph_node.h"

/* ---- nodes ---- */

void hr__node_each_input(const hr__node *node, void (*visit)(void *arg, const hr_value *value), void *arg) {
  for (int i = 0; i < node->input_count; ++i) {
    if (node->inputs[i] != 0) {
      visit(arg, &node->inputs[i]);
    }
  }
  for (int a = 0; a < node->attribute_count; ++a) {
    const hr__node_attribute *attribute = &node->attributes[a];
    int count = attribute->values == NULL ? 0 : attribute->value.kind == HR_ATTRIBUTE_INTS ? attribute->value.count : 1;
    for (int i = 0; i < count; ++i) {
      if (attribute->values[i] != 0) {
        visit(arg, &attribute->values[i]);
      }
    }
    if (attribute->list != 0) {
      visit(arg, &attribute->list);
    }
  }
}

typedef struct check {
  size_t count;
  hr_value bad;
} check;

static void check_value(void *arg, const hr_value *value) {
  check *c = arg;
  if (*value < 0 || (size_t)*value >= c->count) {
    c->bad = *value;
  }
}

static const char *node_name(const hr__node *node) {
  static const char *const names[] = {"input", "constant", "number", "symbol", "shape", "",     "gradient", "read",
                                      "call",  "if",       "while",  "for",    "scan",  "vmap", "variable", "host"};
  return node->kind == HR__NODE_CALL ? hr_functional_name(node->function) : names[node->kind];
}

static bool has_room(hr_graph *graph, const hr__node *node) {
  if (node->result_count < 1) {
    HR__GRAPH_REFUSE(graph, "graph: %s: it has no results", node_name(node));
    return false;
  }
  if (graph->nodes.count < HR_GRAPH_NODES_MAX && node->result_count <= HR__GRAPH_OPERANDS_MAX) {
    if (hr__graph_extra_results(graph) + node->result_count - 1 <= HR_GRAPH_RESULTS_MAX) {
      return true;
    }
    HR__GRAPH_REFUSE(graph, "graph: %s: operations have more than %d results beyond the first of each", node_name(node),
                     HR_GRAPH_RESULTS_MAX);
    return false;
  }
  HR__GRAPH_REFUSE(graph, "graph: %s: more than %d operations, or %d results expected at most %d", node_name(node),
                   HR_GRAPH_NODES_MAX, node->result_count, HR__GRAPH_OPERANDS_MAX);
  return false;
}

bool hr__graph_has_inputs(const hr_graph *graph, const hr__node *node) {
  check c = {graph->values.count, 0};
  hr__node_each_input(node, check_value, &c);
  return c.bad == 0;
}

typedef struct following {
  const hr_graph *graph;
  bool follows;
} following;

static void note_following(void *arg, const hr_value *value) {
  following *f = arg;
  f->follows |= hr__graph_value_of(f->graph, *value)->has_input_numbers;
}

/* ---- numbers that decide what is recorded ---- */

typedef struct needs {
  hr_graph *graph;
  HR_VECTOR(hr_value) open; /* values whose inputs have not been noted */
  bool has_room;
} needs;

static void need(void *arg, const hr_value *value) {
  needs *n = arg;
  hr__graph_value *v = &n->graph->values.data[*value];
  if (v->has_input_numbers && !v->needs_numbers) {
    v->needs_numbers = true;
    n->has_room &= hr_vector_push(&n->open, *value);
  }
}

/* True if the graph records something else for other numbers of this input. */
static bool input_needs(const hr_graph *inner, int input) {
  return inner != NULL && hr__graph_value_of(inner, inner->inputs.data[input])->needs_numbers;
}

static bool any_input_needs(const hr_graph *inner) {
  bool needs_any = false;
  for (size_t i = 0; inner != NULL && i < inner->inputs.count; ++i) {
    needs_any |= input_needs(inner, (int)i);
  }
  return needs_any;
}

/* Of control flow: a condition or a count, and arguments that decide something inside. In a loop each carried value may
 * become any other one. */
static void need_arguments(needs *n, const hr__node *node) {
  int first = hr__node_first_argument(node);
  bool is_loop = hr__node_is_loop(node);
  bool needs_all = node->kind == HR__NODE_WHILE || (is_loop && any_input_needs(node->inner[0]));
  for (int i = 0; i < node->input_count; ++i) {
    bool is_needed = needs_all || i < first;
    for (int k = 0; k < 2 && !is_loop && i >= first; ++k) {
      is_needed |= input_needs(node->inner[k], i - first);
    }
    if (is_needed) {
      need(n, &node->inputs[i]);
    }
  }
}

/* Notes which numbers decide what this node records, and of which values these are computed. */
static bool note_needs(hr_graph *graph, const hr__node *node) {
  needs n = {.graph = graph, .has_room = true};
  hr__node alone = *node;
  alone.input_count = node->kind == HR__NODE_READ ? node->input_count : 0; /* then those of attributes are left */
  hr__node_each_input(&alone, need, &n);
  if (hr__node_is_control(node)) {
    need_arguments(&n, node);
  }
  while (n.open.count > 0) {
    hr__node_each_input(hr__graph_node_of(graph, hr_vector_pop(&n.open)), need, &n);
  }
  hr_vector_fini(&n.open);
  return n.has_room;
}

/* Notes if results are computed from inputs, whose numbers the host may know. */
static void note_numbers(const hr_graph *graph, const hr__node *node, hr__graph_value *results) {
  following f = {graph, node->kind == HR__NODE_INPUT};
  hr__node_each_input(node, note_following, &f);
  for (int i = 0; i < node->result_count; ++i) {
    results[i].has_input_numbers = f.follows && node->kind != HR__NODE_SHAPE;
  }
}

/* from: NULL, or the graph with `like`, whose results have the same facts. */
static hr_value add_node(hr_graph *graph, hr__node *node, const hr_graph *from, const hr__node *like) {
  if (!hr__graph_can_change(graph)) {
    return 0;
  }
  check c = {graph->values.count, 0};
  hr__node_each_input(node, check_value, &c);
  if (c.bad != 0) {
    return HR__GRAPH_REFUSE(graph, "graph: %s: there is no value %d", node_name(node), (int)c.bad);
  }
  if (!has_room(graph, node)) {
    return 0;
  }
  size_t count = (size_t)node->result_count;
  node->first = (hr_value)graph->values.count;
  if (!hr_vector_reserve(&graph->nodes, graph->nodes.count + 1) ||
      !hr_vector_reserve(&graph->values, graph->values.count + count)) {
    return hr__graph_no_memory(graph, "an operation");
  }
  hr__graph_value *results = &graph->values.data[node->first];
  memset(results, 0, count * sizeof *results);
  hr_status status =
      from != NULL ? hr__graph_copy_facts(graph, from, like, results) : hr__graph_infer(graph, node, results);
  hr_arena_reset(&graph->scratch);
  if (status != HR_OK) {
    return hr__graph_fail(graph, status);
  }
  for (int i = 0; i < node->result_count; ++i) {
    results[i].node = (int)graph->nodes.count, results[i].result = i;
  }
  if (!note_needs(graph, node)) {
    return hr__graph_no_memory(graph, "an operation");
  }
  note_numbers(graph, node, results);
  node->origin = graph->origin;
  graph->nodes.data[graph->nodes.count++] = *node;
  graph->values.count += count;
  graph->operation_count += node->kind >= HR__NODE_SHAPE && node->kind != HR__NODE_VARIABLE;
  return node->first;
}

void hr_graph_origin(hr_graph *graph, uint32_t origin) {
  graph->origin = origin;
  graph->has_origins |= origin != 0;
}

hr_value hr__graph_add_node(hr_graph *graph, hr__node *node) {
  return add_node(graph, node, NULL, NULL);
}

static const hr_value *map_values(hr_graph *graph, int count, const hr_value *values, const hr_value *map) {
  hr_value *mapped = hr_arena_alloc(&graph->arena, (size_t)count * sizeof *mapped);
  for (int i = 0; mapped != NULL && i < count; ++i) {
    mapped[i] = map[values[i]];
  }
  return mapped;
}

/* Copies the memory of another graph's attribute; false: no memory. */
static bool copy_attribute(hr_graph *graph, const hr_value *map, hr__node_attribute *attribute) {
  hr_attribute *value = &attribute->value;
  size_t count = (size_t)value->count;
  bool is_list = value->kind == HR_ATTRIBUTE_INTS, is_copied = true;
  if (is_list && attribute->list == 0) {
    value->value.ints = hr_arena_dup_words(&graph->arena, value->value.ints, value->count);
    is_copied = value->value.ints != NULL;
  } else if (value->kind == HR_ATTRIBUTE_REALS) {
    value->value.reals = hr_arena_dup(&graph->arena, value->value.reals, count * sizeof *value->value.reals);
    is_copied = value->value.reals != NULL;
  } else if (value->kind == HR_ATTRIBUTE_TEXT) {
    value->value.text = hr_arena_strdup(&graph->arena, value->value.text);
    is_copied = value->value.text != NULL;
  }
  if (attribute->values != NULL) {
    attribute->values = (hr_value *)(uintptr_t)map_values(graph, is_list ? value->count : 1, attribute->values, map);
    is_copied &= attribute->values != NULL;
  }
  attribute->list = map[attribute->list];
  return is_copied;
}

hr_value hr__graph_add_copy(hr_graph *graph, const hr_graph *from, const hr__node *node, const hr_value *map) {
  hr__node copy = *node;
  size_t count = (size_t)node->attribute_count;
  if (graph->failure != HR_OK) {
    return 0;
  }
  hr__node_attribute *attributes = hr_arena_dup(&graph->arena, node->attributes, count * sizeof *attributes);
  copy.inputs = map_values(graph, node->input_count, node->inputs, map);
  bool is_copied = copy.inputs != NULL && attributes != NULL;
  for (size_t i = 0; is_copied && i < count; ++i) {
    is_copied = copy_attribute(graph, map, &attributes[i]);
  }
  copy.attributes = attributes;
  return is_copied ? add_node(graph, &copy, from, node) : hr__graph_no_memory(graph, "an operation");
}

const hr_value *hr__graph_copy_values(hr_graph *graph, int count, const hr_value *values) {
  return hr_arena_dup(&graph->arena, values, (size_t)count * sizeof *values);
}

/* ---- inputs and constants ---- */

static bool check_type(hr_graph *graph, const char *what, const hr_type *type) {
  if (hr_dtype_size(type->dtype) == 0 || type->rank < 0 || type->rank > HR_RANK_MAX) {
    HR__GRAPH_REFUSE(graph, "graph: %s: dtype %s and %d dims, expected a dtype and at most %d dims", what,
                     hr_dtype_name(type->dtype), type->rank, HR_RANK_MAX);
    return false;
  }
  return true;
}

static bool copy_dims(hr_graph *graph, const char *what, const hr_type *type, bool has_symbols, hr__node *node) {
  int64_t *dims = HR_ARENA_ARRAY(&graph->arena, int64_t, (size_t)type->rank + 1);
  if (dims == NULL) {
    hr__graph_no_memory(graph, "dims");
    return false;
  }
  for (int d = 0; d < type->rank; ++d) {
    dims[d] = type->dims[d];
    if (dims[d] >= 0) {
      continue;
    }
    if (!has_symbols || type->symbols[d] == NULL || dims[d] != -1) {
      HR__GRAPH_REFUSE(graph, "graph: %s: dim %d is %lld, expected a size%s", what, d, (long long)dims[d],
                       has_symbols ? ", or -1 and a symbol" : "");
      return false;
    }
    int symbol = hr__graph_add_symbol(graph, type->symbols[d]);
    if (symbol < 0) {
      return false;
    }
    dims[d] = -1 - symbol;
  }
  node->dtype = type->dtype, node->rank = type->rank, node->dims = dims;
  return true;
}

hr_value hr_graph_input(hr_graph *graph, const char *name, const hr_type *type) {
  hr__node node = {.kind = HR__NODE_INPUT, .result_count = 1};
  size_t symbols = graph->symbols.count;
  if (!hr__graph_can_change(graph) || !hr__graph_check_name(graph, name) || !check_type(graph, "input", type)) {
    return 0;
  }
  if (!copy_dims(graph, "input", type, true, &node)) {
    graph->symbols.count = symbols;
    return 0;
  }
  if (!hr_vector_reserve(&graph->inputs, graph->inputs.count + 1)) {
    return hr__graph_no_memory(graph, "an input");
  }
  hr_value value = hr__graph_add_node(graph, &node);
  if (value != 0) {
    graph->inputs.data[graph->inputs.count++] = value;
    hr_graph_name(graph, value, name);
  }
  return graph->failure == HR_OK ? value : 0;
}

size_t hr__graph_bytes(const hr__node *constant) {
  size_t bytes = hr_dtype_size(constant->dtype);
  for (int d = 0; d < constant->rank; ++d) {
    bytes *= (size_t)constant->dims[d];
  }
  return bytes;
}

/* The bytes of elements; false after a failure. */
static bool count_bytes(hr_graph *graph, const hr_type *type, size_t *out_bytes) {
  int64_t count = 0;
  if (!hr__count_elements(type->rank, type->dims, &count) ||
      __builtin_mul_overflow((size_t)count, hr_dtype_size(type->dtype), out_bytes) || *out_bytes > INT64_MAX) {
    HR__GRAPH_REFUSE(graph, "graph: constant: its elements exceed the address space");
    return false;
  }
  return true;
}

static hr_value add_elements(hr_graph *graph, hr__node_kind kind, const hr_type *type, hr__blob *blob) {
  hr__node node = {.kind = kind, .result_count = 1, .blob = blob};
  if (!copy_dims(graph, "constant", type, false, &node)) {
    return 0;
  }
  if (!hr_vector_reserve(&graph->data, graph->data.count + 1)) {
    return hr__graph_no_memory(graph, "a constant");
  }
  hr_value value = hr__graph_add_node(graph, &node);
  if (value != 0) {
    hr_refcount_retain(&blob->refcount);
    if (!hr__graph_is_inline(&node)) {
      graph->data.data[graph->data.count++] = (int)graph->nodes.count - 1;
    }
    ++graph->constant_count;
    graph->constant_bytes += (int64_t)hr__graph_bytes(&node);
  }
  return value;
}

static hr_value add_constant(hr_graph *graph, const hr_type *type, hr__blob *blob) {
  return add_elements(graph, HR__NODE_CONSTANT, type, blob);
}

static hr_value add_variable(hr_graph *graph, const char *name, const hr_type *type, hr__blob *blob) {
  if (!hr__graph_can_change(graph) || !hr__graph_check_name(graph, name)) {
    return 0;
  }
  if (!hr_vector_reserve(&graph->variables, graph->variables.count + 1) ||
      !hr_vector_reserve(&graph->assigned, graph->variables.count + 1)) {
    return hr__graph_no_memory(graph, "a variable");
  }
  hr_value value = add_elements(graph, HR__NODE_VARIABLE, type, blob);
  if (value != 0) {
    graph->variables.data[graph->variables.count++] = value;
    graph->assigned.data[graph->assigned.count++] = 0;
    hr_graph_name(graph, value, name);
  }
  return graph->failure == HR_OK ? value : 0;
}

static hr_type type_of_elements(const hr__node *node) {
  hr_type type = {.dtype = node->dtype, .rank = node->rank};
  memcpy(type.dims, node->dims, (size_t)node->rank * sizeof *type.dims);
  return type;
}

hr_value hr__graph_share_variable(hr_graph *graph, const char *name, const hr__node *variable) {
  const hr_type type = type_of_elements(variable);
  return graph->failure == HR_OK ? add_variable(graph, name, &type, variable->blob) : 0;
}

hr_value hr__graph_share_constant(hr_graph *graph, const hr__node *constant) {
  const hr_type type = type_of_elements(constant);
  return graph->failure == HR_OK ? add_constant(graph, &type, constant->blob) : 0;
}

/* A block for the elements of the type, or for none; NULL after a failure. */
static hr__blob *create_blob(hr_graph *graph, const hr_type *type, bool has_room_for_bytes, size_t *out_bytes) {
  hr__node ignored;
  if (graph->failure != HR_OK || !check_type(graph, "constant", type) ||
      !copy_dims(graph, "constant", type, false, &ignored) || !count_bytes(graph, type, out_bytes)) {
    return NULL;
  }
  size_t bytes = has_room_for_bytes ? *out_bytes : 0, alignment = bytes >= HR_HUGE_PAGE ? HR_HUGE_PAGE : 64;
  hr__blob *blob = bytes < SIZE_MAX - sizeof *blob - alignment ? hr_malloc(sizeof *blob + alignment + bytes) : NULL;
  if (blob == NULL) {
    hr__graph_no_memory(graph, "a constant");
    return NULL;
  }
  char *end = (char *)(blob + 1), *first = end + (-(uintptr_t)end & (alignment - 1));
  *blob = (hr__blob){.bytes = first};
  hr_huge_pages_advise(first, bytes);
  hr_refcount_init(&blob->refcount);
  return blob;
}

/* A block with a copy of the elements; NULL after a failure. */
static hr__blob *copy_elements(hr_graph *graph, const hr_type *type, const void *elements) {
  size_t bytes = 0;
  hr__blob *blob = create_blob(graph, type, true, &bytes);
  if (blob != NULL && bytes > 0) {
    memcpy((void *)(uintptr_t)blob->bytes, elements, bytes);
  }
  return blob;
}

hr__blob *hr__graph_create_blob(hr_graph *graph, const hr_type *type) {
  size_t bytes = 0;
  return create_blob(graph, type, true, &bytes);
}

hr_value hr__graph_add_blob(hr_graph *graph, const hr_type *type, hr__blob *blob) {
  return add_constant(graph, type, blob);
}

hr_value hr_graph_constant(hr_graph *graph, const hr_type *type, const void *elements) {
  hr__blob *blob = copy_elements(graph, type, elements);
  hr_value value = blob != NULL ? add_constant(graph, type, blob) : 0;
  hr__blob_release(blob);
  return value;
}

hr_value hr_graph_variable(hr_graph *graph, const char *name, const hr_type *type, const void *elements) {
  hr__blob *blob = copy_elements(graph, type, elements);
  hr_value value = blob != NULL ? add_variable(graph, name, type, blob) : 0;
  hr__blob_release(blob);
  return value;
}

/* A block that adopts the elements; NULL after a failure, and then they are released. */
static hr__blob *adopt_elements(hr_graph *graph, const hr_type *type, const void *elements, void (*release)(void *arg),
                                void *arg) {
  size_t bytes = 0;
  hr__blob *blob = create_blob(graph, type, false, &bytes);
  if (blob == NULL) {
    release(arg);
    return NULL;
  }
  blob->bytes = elements, blob->release = release, blob->arg = arg;
  return blob;
}

hr_value hr_graph_constant_adopt(hr_graph *graph, const hr_type *type, const void *elements, void (*release)(void *arg),
                                 void *arg) {
  hr__blob *blob = adopt_elements(graph, type, elements, release, arg);
  hr_value value = blob != NULL ? add_constant(graph, type, blob) : 0;
  hr__blob_release(blob);
  return value;
}

hr_value hr__graph_adopt_variable(hr_graph *graph, const char *name, const hr_type *type, const void *elements,
                                  void (*release)(void *arg), void *arg) {
  hr__blob *blob = adopt_elements(graph, type, elements, release, arg);
  hr_value value = blob != NULL ? add_variable(graph, name, type, blob) : 0;
  hr__blob_release(blob);
  return value;
}

hr_value hr_graph_number(hr_graph *graph, hr_scalar number) {
  hr__node node = {.kind = HR__NODE_NUMBER, .result_count = 1, .number = number};
  if (graph->failure != HR_OK) {
    return 0;
  }
  bool is_number = number.dtype == HR_DTYPE_BOOL || number.dtype == HR_DTYPE_I64 || number.dtype == HR_DTYPE_U64 ||
                   number.dtype == HR_DTYPE_F64 || number.dtype == HR_DTYPE_C128;
  return is_number ? hr__graph_add_node(graph, &node)
                   : HR__GRAPH_REFUSE(graph, "graph: a number of dtype %s", hr_dtype_name(number.dtype));
}

hr_value hr_graph_symbol(hr_graph *graph, const char *name) {
  if (graph->failure != HR_OK) {
    return 0;
  }
  hr__node node = {.kind = HR__NODE_SYMBOL, .result_count = 1, .symbol = hr__graph_add_symbol(graph, name)};
  return node.symbol >= 0 ? hr__graph_add_node(graph, &node) : 0;
}

hr_value hr_graph_shape(hr_graph *graph, hr_value x) {
  if (graph->failure != HR_OK) {
    return 0;
  }
  hr__node node = {.kind = HR__NODE_SHAPE, .result_count = 1, .input_count = 1};
  node.inputs = hr__graph_copy_values(graph, 1, &x);
  if (node.inputs == NULL) {
    return hr__graph_no_memory(graph, "a shape");
  }
  return x != 0 ? hr__graph_add_node(graph, &node) : HR__GRAPH_REFUSE(graph, "graph: shape: its input is absent");
}
