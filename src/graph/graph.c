/* graph.c: building and reading graphs. See headrace/graph.h. */
#include "headrace/graph.h"

#include <stdio.h>

#include "base/hash.h"
#include "functional/functions.h"
#include "graph/graph_node.h"

hr_value hr__graph_fail(hr_graph *graph, hr_status failure) {
  if (graph->failure == HR_OK) {
    graph->failure = failure;
  } else {
    hr_status_free(failure);
  }
  return 0;
}

static hr_value no_memory(hr_graph *graph, const char *what) {
  return hr__graph_fail(graph, hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "graph: no host memory for %s", what));
}

#define REFUSE(graph, ...) hr__graph_fail(graph, hr_status_make(HR_STATUS_INVALID_ARGUMENT, __VA_ARGS__))

/* ---- the graph ---- */

hr_status hr_graph_create(hr_graph **out_graph) {
  hr_graph *graph = hr_calloc(1, sizeof *graph);
  if (graph == NULL || !hr_vector_push(&graph->values, (hr__graph_value){.node = -1})) {
    hr_free(graph);
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "graph: no host memory for the head");
  }
  hr_refcount_init(&graph->refcount);
  *out_graph = graph;
  return HR_OK;
}

static void release_blob(hr__blob *blob) {
  if (blob != NULL && hr_refcount_release(&blob->refcount)) {
    if (blob->release != NULL) {
      blob->release(blob->arg);
    }
    hr_free(blob);
  }
}

void hr_graph_retain(hr_graph *graph) {
  if (graph != NULL) {
    hr_refcount_retain(&graph->refcount);
  }
}

void hr_graph_release(hr_graph *graph) {
  if (graph == NULL || !hr_refcount_release(&graph->refcount)) {
    return;
  }
  for (size_t i = 0; i < graph->nodes.count; ++i) {
    release_blob(graph->nodes.data[i].blob);
  }
  hr_status_free(graph->failure);
  hr_vector_fini(&graph->nodes);
  hr_vector_fini(&graph->values);
  hr_vector_fini(&graph->symbols);
  hr_vector_fini(&graph->inputs);
  hr_vector_fini(&graph->outputs);
  hr_vector_fini(&graph->data);
  hr_table_fini(&graph->names);
  hr_arena_fini(&graph->arena);
  hr_arena_fini(&graph->scratch);
  hr_free(graph);
}

hr_status hr_graph_status(const hr_graph *graph) {
  return hr_status_clone(graph->failure);
}

hr_status hr_graph_take_failure(hr_graph *graph) {
  hr_status failure = graph->failure;
  graph->failure = HR_OK;
  return failure;
}

/* ---- names ---- */

/* The key under which a name is, or would be, in the table. */
static uint64_t find_key(const hr_graph *graph, const char *name, hr_value *out_value) {
  uint64_t key = hr_hash_bytes(HR_HASH_SEED, name, strlen(name));
  for (;; key = hr_hash_mix(key, 1)) {
    *out_value = (hr_value)(intptr_t)hr_table_get(&graph->names, key);
    if (*out_value == 0 || strcmp(hr__graph_value_of(graph, *out_value)->name, name) == 0) {
      return key;
    }
  }
}

hr_value hr_graph_find(const hr_graph *graph, const char *name) {
  hr_value value = 0;
  (void)find_key(graph, name, &value);
  return value;
}

static bool is_name(const char *name) {
  size_t length = name != NULL ? strlen(name) : 0;
  for (size_t i = 0; i < length; ++i) {
    if ((unsigned char)name[i] < ' ' || name[i] == 127) {
      return false;
    }
  }
  return length > 0 && length <= HR_GRAPH_NAME_MAX;
}

/* True for an attribute that text can hold: short, without control characters. */
static bool is_text(const char *text) {
  return text != NULL && (text[0] == '\0' || is_name(text));
}

bool hr__is_word(const char *name) {
  for (const char *c = name; *c != '\0'; ++c) {
    bool is_letter = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || *c == '_';
    if (!is_letter && (c == name || *c < '0' || *c > '9')) {
      return false;
    }
  }
  return *name != '\0';
}

/* Words that stand for numbers and absent inputs in text are none. */
static bool is_symbol_name(const char *name) {
  static const char *const reserved[] = {"true", "false", "inf", "nan", "_"};
  for (int i = 0; i < 5; ++i) {
    if (name == NULL || strcmp(name, reserved[i]) == 0) {
      return false;
    }
  }
  return hr__is_word(name) && is_name(name);
}

/* True if a value may get the name. */
static bool check_name(hr_graph *graph, const char *name) {
  hr_value other = 0;
  if (!is_name(name)) {
    REFUSE(graph, "graph: a name of 1 to %d characters, none of them a control character, expected for a value",
           HR_GRAPH_NAME_MAX);
    return false;
  }
  (void)find_key(graph, name, &other);
  if (other != 0) {
    hr__graph_fail(graph, hr_status_make(HR_STATUS_ALREADY_EXISTS, "graph: two values have the name \"%s\"", name));
  }
  return other == 0;
}

void hr_graph_name(hr_graph *graph, hr_value value, const char *name) {
  hr_value other = 0;
  if (graph->failure != HR_OK || !check_name(graph, name)) {
    return;
  }
  if (value <= 0 || (size_t)value >= graph->values.count || graph->values.data[value].name != NULL) {
    const char *own = hr_graph_value_name(graph, value);
    REFUSE(graph, "graph: name \"%s\" for value %d of %zu%s%s", name, (int)value, graph->values.count - 1,
           own != NULL ? ", which has the name " : "", own != NULL ? own : "");
    return;
  }
  uint64_t key = find_key(graph, name, &other);
  const char *copy = hr_arena_strdup(&graph->arena, name);
  if (copy == NULL || !hr_table_put(&graph->names, key, (void *)(intptr_t)value)) {
    no_memory(graph, "a name");
    return;
  }
  graph->values.data[value].name = copy;
}

const char *hr_graph_value_name(const hr_graph *graph, hr_value value) {
  return value > 0 && (size_t)value < graph->values.count ? graph->values.data[value].name : NULL;
}

const char *hr__graph_label(const hr_graph *graph, hr_value value, char *text) {
  const char *name = hr_graph_value_name(graph, value);
  if (name == NULL) {
    snprintf(text, HR__GRAPH_NAME_TEXT, "%%%d", (int)value);
  }
  return name != NULL ? name : text;
}

int hr__graph_add_symbol(hr_graph *graph, const char *name) {
  for (size_t i = 0; name != NULL && i < graph->symbols.count; ++i) {
    if (strcmp(graph->symbols.data[i], name) == 0) {
      return (int)i;
    }
  }
  if (!is_symbol_name(name) || graph->symbols.count == HR_GRAPH_SYMBOLS_MAX) {
    REFUSE(graph, "graph: symbol \"%.64s\": at most %d names of letters and digits expected", name != NULL ? name : "",
           HR_GRAPH_SYMBOLS_MAX);
    return -1;
  }
  const char *copy = hr_arena_strdup(&graph->arena, name);
  if (copy == NULL || !hr_vector_push(&graph->symbols, copy)) {
    no_memory(graph, "a symbol");
    return -1;
  }
  return (int)graph->symbols.count - 1;
}

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
  static const char *const names[] = {"input", "constant", "number", "symbol", "shape", "", "gradient"};
  return node->kind == HR__NODE_CALL ? hr_functional_name(node->function) : names[node->kind];
}

static bool has_room(hr_graph *graph, const hr__node *node) {
  if (node->result_count < 1) {
    REFUSE(graph, "graph: %s: it has no results", node_name(node));
    return false;
  }
  if (graph->nodes.count < HR_GRAPH_NODES_MAX && node->result_count <= HR__GRAPH_OPERANDS_MAX &&
      graph->values.count + (size_t)node->result_count <= INT32_MAX / 2) {
    return true;
  }
  REFUSE(graph, "graph: %s: more than %d operations, or %d results expected at most %d", node_name(node),
         HR_GRAPH_NODES_MAX, node->result_count, HR__GRAPH_OPERANDS_MAX);
  return false;
}

/* Adds a node whose parts are in the arena; its results are inferred. */
static hr_value add_node(hr_graph *graph, hr__node *node) {
  check c = {graph->values.count, 0};
  hr__node_each_input(node, check_value, &c);
  if (c.bad != 0) {
    return REFUSE(graph, "graph: %s: there is no value %d", node_name(node), (int)c.bad);
  }
  if (!has_room(graph, node)) {
    return 0;
  }
  size_t count = (size_t)node->result_count;
  node->first = (hr_value)graph->values.count;
  if (!hr_vector_reserve(&graph->nodes, graph->nodes.count + 1) ||
      !hr_vector_reserve(&graph->values, graph->values.count + count)) {
    return no_memory(graph, "an operation");
  }
  hr__graph_value *results = &graph->values.data[node->first];
  memset(results, 0, count * sizeof *results);
  hr_status status = hr__graph_infer(graph, node, results);
  hr_arena_reset(&graph->scratch);
  if (status != HR_OK) {
    return hr__graph_fail(graph, status);
  }
  for (int i = 0; i < node->result_count; ++i) {
    results[i].node = (int)graph->nodes.count, results[i].result = i;
  }
  graph->nodes.data[graph->nodes.count++] = *node;
  graph->values.count += count;
  graph->operation_count += node->kind >= HR__NODE_SHAPE;
  return node->first;
}

static const hr_value *copy_values(hr_graph *graph, int count, const hr_value *values) {
  return hr_arena_dup(&graph->arena, values, (size_t)count * sizeof *values);
}

/* ---- inputs and constants ---- */

static bool check_type(hr_graph *graph, const char *what, const hr_type *type) {
  if (hr_dtype_size(type->dtype) == 0 || type->rank < 0 || type->rank > HR_RANK_MAX) {
    REFUSE(graph, "graph: %s: dtype %s and %d dims, expected a dtype and at most %d dims", what,
           hr_dtype_name(type->dtype), type->rank, HR_RANK_MAX);
    return false;
  }
  return true;
}

static bool copy_dims(hr_graph *graph, const char *what, const hr_type *type, bool has_symbols, hr__node *node) {
  int64_t *dims = HR_ARENA_ARRAY(&graph->arena, int64_t, (size_t)type->rank + 1);
  if (dims == NULL) {
    no_memory(graph, "dims");
    return false;
  }
  for (int d = 0; d < type->rank; ++d) {
    dims[d] = type->dims[d];
    if (dims[d] >= 0) {
      continue;
    }
    if (!has_symbols || type->symbols[d] == NULL || dims[d] != -1) {
      REFUSE(graph, "graph: %s: dim %d is %lld, expected a size%s", what, d, (long long)dims[d],
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
  if (graph->failure != HR_OK || !check_name(graph, name) || !check_type(graph, "input", type)) {
    return 0;
  }
  if (!copy_dims(graph, "input", type, true, &node)) {
    graph->symbols.count = symbols;
    return 0;
  }
  if (!hr_vector_reserve(&graph->inputs, graph->inputs.count + 1)) {
    return no_memory(graph, "an input");
  }
  hr_value value = add_node(graph, &node);
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
    REFUSE(graph, "graph: constant: its elements exceed the address space");
    return false;
  }
  return true;
}

static hr_value add_constant(hr_graph *graph, const hr_type *type, hr__blob *blob) {
  hr__node node = {.kind = HR__NODE_CONSTANT, .result_count = 1, .blob = blob};
  if (!copy_dims(graph, "constant", type, false, &node)) {
    return 0;
  }
  if (!hr_vector_reserve(&graph->data, graph->data.count + 1)) {
    return no_memory(graph, "a constant");
  }
  hr_value value = add_node(graph, &node);
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

hr_value hr__graph_share_constant(hr_graph *graph, const hr__node *constant) {
  hr_type type = {.dtype = constant->dtype, .rank = constant->rank};
  memcpy(type.dims, constant->dims, (size_t)constant->rank * sizeof *type.dims);
  return graph->failure == HR_OK ? add_constant(graph, &type, constant->blob) : 0;
}

/* A block for the elements of the type, or for none; NULL after a failure. */
static hr__blob *create_blob(hr_graph *graph, const hr_type *type, bool has_room_for_bytes, size_t *out_bytes) {
  hr__node ignored;
  if (graph->failure != HR_OK || !check_type(graph, "constant", type) ||
      !copy_dims(graph, "constant", type, false, &ignored) || !count_bytes(graph, type, out_bytes)) {
    return NULL;
  }
  enum { ALIGNMENT = 64 };
  size_t bytes = has_room_for_bytes ? *out_bytes : 0;
  hr__blob *blob = bytes < SIZE_MAX - sizeof *blob - ALIGNMENT ? hr_malloc(sizeof *blob + ALIGNMENT + bytes) : NULL;
  if (blob == NULL) {
    no_memory(graph, "a constant");
    return NULL;
  }
  char *end = (char *)(blob + 1);
  *blob = (hr__blob){.bytes = end + (-(uintptr_t)end & (ALIGNMENT - 1))};
  hr_refcount_init(&blob->refcount);
  return blob;
}

hr_value hr_graph_constant(hr_graph *graph, const hr_type *type, const void *elements) {
  size_t bytes = 0;
  hr__blob *blob = create_blob(graph, type, true, &bytes);
  if (blob == NULL) {
    return 0;
  }
  if (bytes > 0) {
    memcpy((void *)(uintptr_t)blob->bytes, elements, bytes);
  }
  hr_value value = add_constant(graph, type, blob);
  release_blob(blob);
  return value;
}

hr_value hr_graph_constant_adopt(hr_graph *graph, const hr_type *type, const void *elements, void (*release)(void *arg),
                                 void *arg) {
  size_t bytes = 0;
  hr__blob *blob = create_blob(graph, type, false, &bytes);
  if (blob == NULL) {
    release(arg);
    return 0;
  }
  blob->bytes = elements, blob->release = release, blob->arg = arg;
  hr_value value = add_constant(graph, type, blob);
  release_blob(blob);
  return value;
}

hr_value hr_graph_number(hr_graph *graph, hr_scalar number) {
  hr__node node = {.kind = HR__NODE_NUMBER, .result_count = 1, .number = number};
  if (graph->failure != HR_OK) {
    return 0;
  }
  bool is_number = number.dtype == HR_DTYPE_BOOL || number.dtype == HR_DTYPE_I64 || number.dtype == HR_DTYPE_U64 ||
                   number.dtype == HR_DTYPE_F64 || number.dtype == HR_DTYPE_C128;
  return is_number ? add_node(graph, &node) : REFUSE(graph, "graph: a number of dtype %s", hr_dtype_name(number.dtype));
}

hr_value hr_graph_symbol(hr_graph *graph, const char *name) {
  if (graph->failure != HR_OK) {
    return 0;
  }
  hr__node node = {.kind = HR__NODE_SYMBOL, .result_count = 1, .symbol = hr__graph_add_symbol(graph, name)};
  return node.symbol >= 0 ? add_node(graph, &node) : 0;
}

hr_value hr_graph_shape(hr_graph *graph, hr_value x) {
  if (graph->failure != HR_OK) {
    return 0;
  }
  hr__node node = {.kind = HR__NODE_SHAPE, .result_count = 1, .input_count = 1};
  node.inputs = copy_values(graph, 1, &x);
  if (node.inputs == NULL) {
    return no_memory(graph, "a shape");
  }
  return x != 0 ? add_node(graph, &node) : REFUSE(graph, "graph: shape: its input is absent");
}

/* ---- calls ---- */

static int find_attribute(const hr__function_row *row, const char *name) {
  for (int i = 0; row->attributes[i].name != NULL; ++i) {
    if (name != NULL && strcmp(row->attributes[i].name, name) == 0) {
      return i;
    }
  }
  return -1;
}

/* Copies what the value points to. */
static bool copy_payload(hr_graph *graph, hr_attribute *value) {
  size_t count = (size_t)value->count;
  switch (value->kind) {
    case HR_ATTRIBUTE_INTS:
      value->value.ints = hr_arena_dup(&graph->arena, value->value.ints, count * sizeof *value->value.ints);
      return value->value.ints != NULL;
    case HR_ATTRIBUTE_REALS:
      value->value.reals = hr_arena_dup(&graph->arena, value->value.reals, count * sizeof *value->value.reals);
      return value->value.reals != NULL;
    case HR_ATTRIBUTE_TEXT:
      value->value.text = hr_arena_strdup(&graph->arena, value->value.text);
      return value->value.text != NULL;
    default:
      return true;
  }
}

static bool check_attribute(hr_graph *graph, const char *function, const hr_graph_attribute *from) {
  const hr_attribute *value = &from->value;
  bool is_list = value->kind == HR_ATTRIBUTE_INTS || value->kind == HR_ATTRIBUTE_REALS;
  bool is_right = !is_list || from->list != 0 || (value->count >= 0 && value->count <= HR_RANK_MAX);
  is_right &= value->kind != HR_ATTRIBUTE_TEXT || is_text(value->value.text);
  is_right &= from->list == 0 || (value->kind == HR_ATTRIBUTE_INTS && from->values == NULL);
  is_right &= from->values == NULL || value->kind == HR_ATTRIBUTE_INTS || value->kind == HR_ATTRIBUTE_INT ||
              value->kind == HR_ATTRIBUTE_REAL;
  if (!is_right) {
    REFUSE(graph,
           "%s: attribute %s has no text of at most %d characters without control characters, more than %d elements, "
           "or elements that can't be computed",
           function, from->name, HR_GRAPH_NAME_MAX, HR_RANK_MAX);
  }
  return is_right;
}

static bool copy_attribute(hr_graph *graph, const hr_graph_attribute *from, hr__node_attribute *to) {
  *to = (hr__node_attribute){.value = from->value, .list = from->list};
  if (from->list != 0) {
    to->value = (hr_attribute){.kind = HR_ATTRIBUTE_INTS};
    return true;
  }
  if (from->values != NULL) {
    int count = from->value.kind == HR_ATTRIBUTE_INTS ? from->value.count : 1;
    to->values = (hr_value *)(uintptr_t)copy_values(graph, count, from->values);
  }
  return copy_payload(graph, &to->value) && (from->values == NULL || to->values != NULL);
}

/* Sets the attributes of a call in the function's order; false after a failure. */
static bool set_attributes(hr_graph *graph, const hr__function_row *row, int count, const hr_graph_attribute *given,
                           hr__node *node) {
  hr__node_attribute *all = HR_ARENA_ARRAY(&graph->arena, hr__node_attribute, HR__GRAPH_ATTRIBUTES_MAX);
  if (all == NULL) {
    no_memory(graph, "attributes");
    return false;
  }
  for (int i = 0; i < count; ++i) {
    int at = find_attribute(row, given[i].name);
    if (at < 0 || at >= HR__GRAPH_ATTRIBUTES_MAX || all[at].value.kind != HR_ATTRIBUTE_NONE) {
      REFUSE(graph, "%s: attribute \"%.64s\" is %s", row->name, given[i].name != NULL ? given[i].name : "",
             at < 0 ? "not known" : "given twice");
      return false;
    }
    if (!check_attribute(graph, row->name, &given[i])) {
      return false;
    }
    if (!copy_attribute(graph, &given[i], &all[at])) {
      no_memory(graph, "an attribute");
      return false;
    }
    node->attribute_count =
        all[at].value.kind != HR_ATTRIBUTE_NONE && at >= node->attribute_count ? at + 1 : node->attribute_count;
  }
  node->attributes = all;
  return true;
}

hr_value hr_graph_add(hr_graph *graph, hr_functional function, int input_count, const hr_value *inputs,
                      int attribute_count, const hr_graph_attribute *attributes) {
  const hr__function_row *row = hr__function_row_of(function);
  hr__node node = {.kind = HR__NODE_CALL, .function = function, .input_count = input_count};
  if (graph->failure != HR_OK) {
    return 0;
  }
  if (row->emit == NULL || input_count < 0 || input_count > HR__GRAPH_OPERANDS_MAX) {
    return REFUSE(graph, "graph: function number %d of %d inputs, expected a function and at most %d inputs",
                  (int)function, input_count, HR__GRAPH_OPERANDS_MAX);
  }
  node.inputs = copy_values(graph, input_count, inputs);
  if (node.inputs == NULL) {
    return no_memory(graph, "inputs");
  }
  if (!set_attributes(graph, row, attribute_count, attributes, &node)) {
    return 0;
  }
  check c = {graph->values.count, 0};
  hr__node_each_input(&node, check_value, &c);
  hr_status status = c.bad == 0 ? hr__graph_count_results(graph, &node, &node.result_count) : HR_OK;
  return status == HR_OK ? add_node(graph, &node) : hr__graph_fail(graph, status);
}

int hr_graph_result_count(const hr_graph *graph, hr_value first) {
  bool is_first = first > 0 && (size_t)first < graph->values.count && graph->values.data[first].result == 0;
  return is_first ? hr__graph_node_of(graph, first)->result_count : 1;
}

static bool is_floating(const hr_graph *graph, hr_value value) {
  if (value <= 0 || (size_t)value >= graph->values.count) {
    return false;
  }
  const hr__graph_value *v = hr__graph_value_of(graph, value);
  for (int p = 0; p < (v->varies ? HR__GRAPH_POINTS : 1); ++p) {
    hr_dtype dtype = v->facts[p * v->stride].dtype;
    if (v->facts[p * v->stride].is_set) {
      return (dtype >= HR_DTYPE_F16 && dtype <= HR_DTYPE_C32);
    }
  }
  return false;
}

static bool check_gradient(hr_graph *graph, hr_value of, int count, const hr_value *values) {
  for (int i = -1; i < count; ++i) {
    hr_value value = i < 0 ? of : values[i];
    bool is_number =
        value > 0 && (size_t)value < graph->values.count && hr__graph_node_of(graph, value)->kind == HR__NODE_NUMBER;
    if (is_number || !is_floating(graph, value)) {
      char text[HR__GRAPH_NAME_TEXT];
      REFUSE(graph, "gradient: value \"%s\" is not floating", hr__graph_label(graph, value, text));
      return false;
    }
  }
  return true;
}

hr_value hr_graph_gradient(hr_graph *graph, hr_value of, hr_value seed, int count, const hr_value *values) {
  hr__node node = {.kind = HR__NODE_GRADIENT, .result_count = count};
  if (graph->failure != HR_OK) {
    return 0;
  }
  if (count < 1 || count > HR__GRAPH_OPERANDS_MAX - 2) {
    return REFUSE(graph, "gradient: by %d values, expected 1 to %d", count, HR__GRAPH_OPERANDS_MAX - 2);
  }
  if (!check_gradient(graph, of, count, values)) {
    return 0;
  }
  hr_value *inputs = HR_ARENA_ARRAY(&graph->arena, hr_value, (size_t)count + 2);
  if (inputs == NULL) {
    return no_memory(graph, "a gradient");
  }
  inputs[0] = of, inputs[1] = seed;
  memcpy(inputs + 2, values, (size_t)count * sizeof *inputs);
  node.inputs = inputs, node.input_count = count + 2;
  hr_value first = add_node(graph, &node);
  for (int i = 0; first != 0 && i < count; ++i) {
    graph->values.data[values[i]].is_watched = true;
  }
  return first;
}

void hr_graph_output(hr_graph *graph, const char *name, hr_value value) {
  if (graph->failure != HR_OK) {
    return;
  }
  const char *own = hr_graph_value_name(graph, value);
  name = name != NULL ? name : own;
  if (value <= 0 || (size_t)value >= graph->values.count || !is_name(name)) {
    REFUSE(graph, "graph: output \"%.64s\": value %d of %zu, expected a value and a name", name != NULL ? name : "",
           (int)value, graph->values.count - 1);
    return;
  }
  if (graph->outputs.count == HR_GRAPH_OUTPUTS_MAX) {
    REFUSE(graph, "graph: output \"%.64s\": expected at most %d outputs", name, HR_GRAPH_OUTPUTS_MAX);
    return;
  }
  for (size_t i = 0; i < graph->outputs.count; ++i) {
    if (strcmp(graph->outputs.data[i].name, name) == 0) {
      hr__graph_fail(graph, hr_status_make(HR_STATUS_ALREADY_EXISTS, "graph: two outputs have the name \"%s\"", name));
      return;
    }
  }
  const char *copy = hr_arena_strdup(&graph->arena, name);
  if (copy == NULL || !hr_vector_push(&graph->outputs, (hr__graph_output){copy, value})) {
    no_memory(graph, "an output");
  }
}

/* ---- reading ---- */

hr_status hr_graph_type(const hr_graph *graph, hr_value value, hr_type *out_type) {
  if (value <= 0 || (size_t)value >= graph->values.count) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "graph: there is no value %d", (int)value);
  }
  const hr__graph_value *v = hr__graph_value_of(graph, value);
  const hr__fact *fact = v->facts;
  for (int p = 0; v->varies && p < HR__GRAPH_POINTS && !fact->is_set; ++p) {
    fact = &v->facts[p * v->stride];
  }
  *out_type = (hr_type){.dtype = fact->dtype, .rank = fact->rank};
  for (int d = 0; d < fact->rank; ++d) {
    out_type->symbols[d] = v->texts != NULL ? v->texts[d] : NULL;
    out_type->dims[d] = out_type->symbols[d] != NULL ? -1 : fact->dims[d];
  }
  return HR_OK;
}

int hr_graph_input_count(const hr_graph *graph) {
  return (int)graph->inputs.count;
}
hr_value hr_graph_input_value(const hr_graph *graph, int index) {
  return index >= 0 && (size_t)index < graph->inputs.count ? graph->inputs.data[index] : 0;
}
int hr_graph_output_count(const hr_graph *graph) {
  return (int)graph->outputs.count;
}
hr_value hr_graph_output_value(const hr_graph *graph, int index) {
  return index >= 0 && (size_t)index < graph->outputs.count ? graph->outputs.data[index].value : 0;
}
const char *hr_graph_output_name(const hr_graph *graph, int index) {
  return index >= 0 && (size_t)index < graph->outputs.count ? graph->outputs.data[index].name : NULL;
}
int hr_graph_operation_count(const hr_graph *graph) {
  return graph->operation_count;
}
int hr_graph_constant_count(const hr_graph *graph) {
  return graph->constant_count;
}
int64_t hr_graph_constant_bytes(const hr_graph *graph) {
  return graph->constant_bytes;
}
int hr_graph_symbol_count(const hr_graph *graph) {
  return (int)graph->symbols.count;
}
const char *hr_graph_symbol_name(const hr_graph *graph, int index) {
  return index >= 0 && (size_t)index < graph->symbols.count ? graph->symbols.data[index] : NULL;
}
