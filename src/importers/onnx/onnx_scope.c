/* onnx_scope.c: names of a graph, constants, and the nodes that are mapped under these names. */
#include "base/hash.h"
#include "importers/onnx/onnx_inner.h"

#define DAMAGED(...) hr_status_make(HR_STATUS_DATA_LOSS, __VA_ARGS__)

static hr_status no_memory(void) {
  return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no host memory for a node");
}

/* ---- names ---- */

/* The key under which a name is, or would be. */
static uint64_t find_key(const hr__onnx_scope *scope, hr__span name, hr__onnx_binding **out_binding) {
  uint64_t key = hr_hash_bytes(HR_HASH_SEED, name.data, name.size);
  for (;; key = hr_hash_mix(key, 1)) {
    *out_binding = hr_table_get(&scope->names, key);
    if (*out_binding == NULL || hr__span_equal((*out_binding)->name, name)) {
      return key;
    }
  }
}

/* Scopes are at most HR__ONNX_DEPTH_MAX deep. */
bool hr__onnx_scope_find(hr__onnx_importer *importer, const hr__onnx_scope *scope, hr__span name,
                         hr__onnx_value *out_value) {
  hr__onnx_binding *binding = NULL;
  hr__onnx_value outer;
  (void)find_key(scope, name, &binding);
  if (binding != NULL) {
    *out_value = binding->value;
    return true;
  }
  if (scope->outer == NULL || !hr__onnx_scope_find(importer, scope->outer, name, &outer)) {
    return false;
  }
  *out_value = scope->inner != NULL ? hr__onnx_inner_capture(scope->inner, &outer) : outer;
  return true;
}

hr_status hr__onnx_scope_bind(hr__onnx_importer *importer, hr__onnx_scope *scope, hr__span name, hr__onnx_value value) {
  if (name.size == 0 || name.size > HR_GRAPH_NAME_MAX || !hr__span_is_text(name)) {
    return DAMAGED("a value has no name of 1 to %d bytes of UTF-8 without control characters", HR_GRAPH_NAME_MAX);
  }
  hr__onnx_binding *binding = NULL;
  uint64_t key = find_key(scope, name, &binding);
  if (binding != NULL) {
    return DAMAGED("two values have the name \"%.*s\"", (int)name.size, (const char *)name.data);
  }
  HR_RETURN_IF_ERROR(hr__onnx_charge(importer, 1));
  binding = HR_ARENA_NEW(&scope->arena, hr__onnx_binding);
  if (binding == NULL || !hr_table_put(&scope->names, key, binding)) {
    return no_memory();
  }
  *binding = (hr__onnx_binding){name, value};
  return HR_OK;
}

void hr__onnx_scope_fini(hr__onnx_scope *scope) {
  hr_table_fini(&scope->names);
  hr_arena_fini(&scope->arena);
}

hr_status hr__onnx_charge(hr__onnx_importer *importer, int64_t work) {
  importer->work += work;
  return importer->work <= HR__ONNX_WORK_MAX
             ? HR_OK
             : hr_status_make(HR_STATUS_INVALID_ARGUMENT,
                              "more than %d names, elements of sequences and attributes, with those of functions and "
                              "loops",
                              HR__ONNX_WORK_MAX);
}

/* ---- constants ---- */

static hr_status find_bytes(hr__onnx_importer *importer, const hr__onnx_tensor *t, hr__onnx_file **out_file,
                            hr__span *out_bytes) {
  *out_file = importer->file, *out_bytes = t->raw;
  if (!t->is_external) {
    return HR_OK;
  }
  hr__span location;
  int64_t offset = 0, length = 0;
  HR_RETURN_IF_ERROR(hr__onnx_read_external(t, &location, &offset, &length));
  HR_RETURN_IF_ERROR(hr__onnx_file_beside(importer->file, importer->path, location, out_file));
  hr__span all = (*out_file)->bytes;
  int64_t wanted = length >= 0 ? length : hr__onnx_tensor_bytes(t);
  if ((uint64_t)offset > all.size || (uint64_t)wanted > all.size - (uint64_t)offset) {
    return DAMAGED("external data of %lld bytes at byte %lld do not fit a file of %zu bytes", (long long)wanted,
                   (long long)offset, all.size);
  }
  *out_bytes = (hr__span){all.data + offset, (size_t)wanted};
  return HR_OK;
}

/* True if the file has the elements as a graph has them. */
static bool is_plain(const hr__onnx_tensor *t) {
  bool has_bytes = (t->has_raw || t->is_external) && hr__onnx_narrow_bits(t->data_type) == 0;
  return has_bytes && t->dtype != HR_DTYPE_BOOL;
}

static hr_status copy_elements(hr__onnx_importer *importer, const hr__onnx_tensor *t, const hr_type *type,
                               hr__span bytes, hr_value *out_value) {
  if (is_plain(t)) {
    *out_value = hr_graph_constant(importer->graph, type, bytes.data);
    return hr_graph_status(importer->graph);
  }
  void *elements = hr_malloc((size_t)t->count * hr_dtype_size(t->dtype) + 8);
  if (elements == NULL) {
    return no_memory();
  }
  hr_status status = hr__onnx_decode_tensor(t, bytes, elements);
  *out_value = status == HR_OK ? hr_graph_constant(importer->graph, type, elements) : 0;
  hr_free(elements);
  return status != HR_OK ? status : hr_graph_status(importer->graph);
}

/* Large elements stay where they are, at any address: a session copies them if its device has to. Small ones are
 * copied, so that they do not keep the file. */
static hr_status place_constant(hr__onnx_importer *importer, const hr__onnx_tensor *t, hr__onnx_file *file,
                                hr__span bytes, hr_value *out_value) {
  enum { LARGE = 1 << 16 };
  hr_type type = {.dtype = t->dtype, .rank = t->rank};
  memcpy(type.dims, t->dims, sizeof type.dims);
  if (!is_plain(t) || bytes.size < LARGE) {
    return copy_elements(importer, t, &type, bytes, out_value);
  }
  hr__onnx_file_retain(file);
  *out_value = hr_graph_constant_adopt(importer->graph, &type, bytes.data, hr__onnx_file_release, file);
  return hr_graph_status(importer->graph);
}

/* Tensors whose ranges of a file overlap in part take no more memory than a multiple of the file. */
static hr_status charge_range(hr__onnx_file *file, hr__span bytes) {
  enum { SLACK = 4 << 20 };
  file->taken += bytes.size;
  return file->taken <= 2 * (uint64_t)file->bytes.size + SLACK
             ? HR_OK
             : DAMAGED("external data \"%s\" of %zu bytes: tensors that overlap have %llu bytes in all, expected at "
                       "most twice the file and %d",
                       file->location, file->bytes.size, (unsigned long long)file->taken, SLACK);
}

static bool is_of_type(const hr__onnx_importer *importer, hr_value value, const hr__onnx_tensor *t) {
  hr_type type;
  hr_status status = value != 0 ? hr_graph_type(importer->graph, value, &type) : HR_OK;
  bool is_same = value != 0 && status == HR_OK && type.dtype == t->dtype && type.rank == t->rank;
  hr_status_ignore(status);
  return is_same && memcmp(type.dims, t->dims, (size_t)t->rank * sizeof *t->dims) == 0;
}

/* Tensors of one type at one range, as tied weights, are one constant. */
static hr_status add_external(hr__onnx_importer *importer, const hr__onnx_tensor *t, hr__onnx_file *file,
                              hr__span bytes, hr_value *out_value) {
  uint64_t key = hr_hash_mix(importer->graph_number, (uint64_t)(uintptr_t)bytes.data);
  key = hr_hash_mix(hr_hash_mix(key, bytes.size), (uint64_t)t->data_type);
  hr_value shared = (hr_value)(intptr_t)hr_table_get(&importer->constants, key);
  if (is_of_type(importer, shared, t)) {
    *out_value = shared;
    return HR_OK;
  }
  HR_RETURN_IF_ERROR(charge_range(file, bytes));
  HR_RETURN_IF_ERROR(place_constant(importer, t, file, bytes, out_value));
  return hr_table_put(&importer->constants, key, (void *)(intptr_t)*out_value) ? HR_OK : no_memory();
}

static hr_status add_constant(hr__onnx_importer *importer, const hr__onnx_tensor *t, hr_value *out_value) {
  hr__onnx_file *file = NULL;
  hr__span bytes = {0};
  HR_RETURN_IF_ERROR(find_bytes(importer, t, &file, &bytes));
  HR_RETURN_IF_ERROR(hr__onnx_check_tensor(t, bytes));
  return t->is_external && bytes.size > 0 ? add_external(importer, t, file, bytes, out_value)
                                          : place_constant(importer, t, file, bytes, out_value);
}

hr_status hr__onnx_constant(hr__onnx_importer *importer, hr__span message, hr__onnx_value *out_value) {
  hr__onnx_tensor tensor;
  uint64_t key = hr_hash_mix(importer->graph_number, (uint64_t)(uintptr_t)message.data);
  HR_RETURN_IF_ERROR(hr__onnx_read_tensor(message, &tensor));
  hr_value value = (hr_value)(intptr_t)hr_table_get(&importer->constants, key);
  if (value == 0) {
    HR_RETURN_IF_ERROR(add_constant(importer, &tensor, &value));
    if (!hr_table_put(&importer->constants, key, (void *)(intptr_t)value)) {
      return no_memory();
    }
  }
  bool is_narrow = hr__onnx_narrow_bits(tensor.data_type) > 0;
  *out_value = (hr__onnx_value){.value = value, .data_type = is_narrow ? (int)tensor.data_type : 0};
  return HR_OK;
}

hr_status hr__onnx_initializer(hr__onnx_importer *importer, hr__span message, hr__onnx_tensor *out_tensor,
                               hr__onnx_value *out_value) {
  hr_status status = hr__onnx_read_tensor(message, out_tensor);
  status = status == HR_OK ? hr__onnx_constant(importer, message, out_value) : status;
  hr__span name = hr__span_is_text(out_tensor->name) ? out_tensor->name : (hr__span){0};
  return hr_status_annotate(status, "initializer \"%.*s\"", (int)name.size,
                            name.size > 0 ? (const char *)name.data : "");
}

/* ---- nodes ---- */

/* Attributes of the call of a function take the place of references to them. */
static hr_status resolve_references(hr__onnx_importer *importer, const hr__onnx_scope *scope, hr__onnx_call *call) {
  int kept = 0;
  for (int i = 0; i < call->attribute_count; ++i) {
    hr__onnx_attribute *attribute = &call->attributes[i];
    bool exists = attribute->reference.size == 0;
    HR_RETURN_IF_ERROR(hr__onnx_charge(importer, exists ? 1 : scope->attribute_count));
    for (int k = 0; !exists && k < scope->attribute_count; ++k) {
      if (hr__span_equal(scope->attributes[k].name, attribute->reference)) {
        hr__span name = attribute->name;
        *attribute = scope->attributes[k];
        attribute->name = name;
        exists = true;
      }
    }
    if (exists) {
      call->attributes[kept++] = *attribute;
    }
  }
  call->attribute_count = kept;
  return HR_OK;
}

static hr_status find_inputs(hr__onnx_node *node) {
  for (int i = 0; i < node->input_count; ++i) {
    hr__span name = node->call->inputs[i];
    if (name.size == 0) {
      continue;
    }
    if (!hr__onnx_scope_find(node->importer, node->scope, name, &node->inputs[i])) {
      return DAMAGED("input %d \"%.*s\" is no value before it", i, (int)(name.size < 64 ? name.size : 64),
                     hr__span_is_text(name) ? (const char *)name.data : "");
    }
  }
  while (node->input_count > 0 && node->call->inputs[node->input_count - 1].size == 0) {
    --node->input_count;
  }
  return hr_graph_status(node->graph);
}

static void name_value(hr_graph *graph, hr_value value, hr__span name) {
  char text[HR_GRAPH_NAME_MAX + 1];
  memcpy(text, name.data, name.size);
  text[name.size] = '\0';
  if (hr_graph_value_name(graph, value) == NULL && hr_graph_find(graph, text) == 0) {
    hr_graph_name(graph, value, text);
  }
}

static hr_status bind_outputs(hr__onnx_node *node) {
  for (int i = 0; i < node->output_count; ++i) {
    hr__span name = node->call->outputs[i];
    if (name.size == 0) {
      continue;
    }
    const hr__onnx_value *value = &node->outputs[i];
    if (value->value == 0 && value->list == NULL && !value->is_empty) {
      return hr_status_make(HR_STATUS_UNIMPLEMENTED, "output %d is not supported", i);
    }
    HR_RETURN_IF_ERROR(hr__onnx_scope_bind(node->importer, node->scope, name, *value));
    if (value->value != 0) {
      name_value(node->graph, value->value, name);
    }
  }
  return hr_graph_status(node->graph);
}

static hr__onnx_function *find_function(hr__onnx_importer *importer, hr__onnx_operator op) {
  for (size_t i = 0; i < importer->functions.count; ++i) {
    hr__onnx_function *f = &importer->functions.data[i];
    if (hr__span_equal(f->op.name, op.name) && hr__span_equal(f->op.domain, op.domain) &&
        hr__span_equal(f->op.overload, op.overload)) {
      return f;
    }
  }
  return NULL;
}

/* ---- functions of the model ---- */

typedef struct function_body {
  hr__onnx_opsets opsets;
  int64_t attribute_count, input_count, output_count;
  hr__onnx_attribute *attributes;
  hr__span *inputs, *outputs;
} function_body;

/* Attributes of the call, and defaults of those that it lacks. */
static hr_status read_attributes(hr__onnx_node *node, hr__span message, function_body *out) {
  int64_t defaults = 0;
  HR_RETURN_IF_ERROR(hr__onnx_read_spans(message, 11, 0, NULL, &defaults));
  size_t room = (size_t)defaults + (size_t)node->attribute_count + 1;
  hr__span *spans = HR_ARENA_ARRAY(node->arena, hr__span, room);
  out->attributes = HR_ARENA_ARRAY(node->arena, hr__onnx_attribute, room);
  if (spans == NULL || out->attributes == NULL) {
    return no_memory();
  }
  HR_RETURN_IF_ERROR(hr__onnx_read_spans(message, 11, defaults, spans, &defaults));
  for (int i = 0; i < node->attribute_count; ++i) {
    out->attributes[out->attribute_count++] = node->attributes[i];
  }
  for (int64_t i = 0; i < defaults; ++i) {
    HR_RETURN_IF_ERROR(hr__onnx_read_attribute(spans[i], &out->attributes[out->attribute_count++]));
  }
  return HR_OK; /* the first of a name is found, which is the call's */
}

static hr_status read_names(hr__onnx_node *node, hr__span message, uint32_t field, hr__span **out_names,
                            int64_t *out_count) {
  int64_t ignored = 0;
  HR_RETURN_IF_ERROR(hr__onnx_read_spans(message, field, 0, NULL, out_count));
  *out_names =
      *out_count <= HR__ONNX_OPERANDS_MAX ? HR_ARENA_ARRAY(node->arena, hr__span, (size_t)*out_count + 1) : NULL;
  return *out_names != NULL ? hr__onnx_read_spans(message, field, *out_count, *out_names, &ignored) : no_memory();
}

static hr_status read_opsets(hr__span message, hr__onnx_opsets *out) {
  hr__wire wire = hr__wire_of(message);
  for (hr__field f; hr__wire_next(&wire, &f);) {
    if (f.number == 9 && f.type == HR__WIRE_BYTES) {
      HR_RETURN_IF_ERROR(hr__onnx_read_opset(f.bytes, out));
    }
  }
  return hr__wire_status(&wire);
}

static hr_status bind_parameters(hr__onnx_node *node, const function_body *body, hr__onnx_scope *scope) {
  if (node->input_count > body->input_count) {
    return DAMAGED("the function has %lld inputs, the node %d", (long long)body->input_count, node->input_count);
  }
  for (int64_t i = 0; i < body->input_count; ++i) {
    hr__onnx_value absent = {0};
    HR_RETURN_IF_ERROR(
        hr__onnx_scope_bind(node->importer, scope, body->inputs[i], i < node->input_count ? node->inputs[i] : absent));
  }
  return HR_OK;
}

static hr_status run_function(hr__onnx_node *node, const hr__onnx_function *function) {
  function_body body = {.opsets = {0}};
  HR_RETURN_IF_ERROR(read_attributes(node, function->message, &body));
  HR_RETURN_IF_ERROR(read_names(node, function->message, 4, &body.inputs, &body.input_count));
  HR_RETURN_IF_ERROR(read_names(node, function->message, 5, &body.outputs, &body.output_count));
  HR_RETURN_IF_ERROR(read_opsets(function->message, &body.opsets));
  hr__onnx_scope scope = {.opsets = &body.opsets,
                          .attribute_count = (int)body.attribute_count,
                          .attributes = body.attributes,
                          .depth = node->scope->depth + 1};
  hr_status status = bind_parameters(node, &body, &scope);
  status = status == HR_OK ? hr__onnx_run_nodes(node->importer, &scope, function->message, 7) : status;
  for (int i = 0; status == HR_OK && i < node->output_count; ++i) {
    if (i < body.output_count) {
      (void)hr__onnx_scope_find(node->importer, &scope, body.outputs[i], &node->outputs[i]);
    }
  }
  hr__onnx_scope_fini(&scope);
  return status;
}

/* ---- mapping ---- */

static hr_status refuse_operator(const hr__onnx_node *node, const hr__onnx_operator_row *row, int64_t opset) {
  hr__span domain = node->call->op.domain;
  if (row == NULL && !hr__onnx_is_standard(domain)) {
    return hr_status_make(HR_STATUS_UNIMPLEMENTED,
                          "the operator of domain \"%.*s\" is not known; docs/onnx.md lists those that are",
                          domain.size < 64 ? (int)domain.size : 64, (const char *)domain.data);
  }
  if (row == NULL) {
    return hr_status_make(HR_STATUS_UNIMPLEMENTED, "the operator is not known; docs/onnx.md lists those that are");
  }
  if (row->map == NULL) {
    return hr_status_make(HR_STATUS_UNIMPLEMENTED, "the operator is not supported: %s", row->reason);
  }
  (void)node;
  return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "operator set %lld does not have the operator", (long long)opset);
}

static hr_status map_operator(hr__onnx_node *node) {
  const hr__onnx_operator_row *row = hr__onnx_operator_find(node->call->op);
  int64_t opset = hr__onnx_opset_of(node->scope->opsets, node->call->op.domain);
  node->since = row != NULL ? hr__onnx_operator_since(row, opset) : 0;
  if (row == NULL || row->map == NULL || node->since == 0) {
    return refuse_operator(node, row, opset);
  }
  node->function = row->function;
  row->map(node);
  return hr_graph_status(node->graph);
}

static hr_status map_node(hr__onnx_node *node) {
  enum { ABSENT = 8 }; /* inputs and outputs that a map function may look at without a check */
  size_t inputs = (size_t)node->call->input_count + ABSENT, outputs = (size_t)node->call->output_count + ABSENT;
  node->input_count = node->call->input_count, node->output_count = node->call->output_count;
  node->attribute_count = node->call->attribute_count, node->attributes = node->call->attributes;
  node->inputs = HR_ARENA_ARRAY(node->arena, hr__onnx_value, inputs);
  node->outputs = HR_ARENA_ARRAY(node->arena, hr__onnx_value, outputs);
  if (node->inputs == NULL || node->outputs == NULL) {
    return no_memory();
  }
  HR_RETURN_IF_ERROR(find_inputs(node));
  const hr__onnx_function *function = find_function(node->importer, node->call->op);
  HR_RETURN_IF_ERROR(function != NULL ? run_function(node, function) : map_operator(node));
  return bind_outputs(node);
}

/* `node 17 "conv_3" (Conv)` in front of a failure; texts of the file without what a terminal may react to. */
static hr_status annotate(hr_status status, int index, const hr__onnx_call *call) {
  if (status == HR_OK) {
    return HR_OK;
  }
  hr__span name = hr__span_is_text(call->name) ? call->name : (hr__span){0};
  hr__span op = hr__span_is_text(call->op.name) ? call->op.name : (hr__span){0};
  if (name.size == 0) {
    return hr_status_annotate(status, "node %d (%.*s)", index, (int)op.size, (const char *)op.data);
  }
  return hr_status_annotate(status, "node %d \"%.*s\" (%.*s)", index, (int)(name.size < 256 ? name.size : 256),
                            (const char *)name.data, (int)(op.size < 64 ? op.size : 64), (const char *)op.data);
}

static hr_status run_node(hr__onnx_importer *importer, hr__onnx_scope *scope, hr__span message, int index) {
  if (++importer->node_count > HR__ONNX_NODES_MAX) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "more than %d nodes, with those of functions and loops",
                          HR__ONNX_NODES_MAX);
  }
  hr_arena arena = {0};
  hr__onnx_call call = {.name = {0}};
  hr_status status = hr__onnx_read_call(message, &arena, &call);
  status = status == HR_OK ? resolve_references(importer, scope, &call) : status;
  hr__onnx_node node = {.importer = importer, .graph = importer->graph, .scope = scope, .arena = &arena, .call = &call};
  status = status == HR_OK ? map_node(&node) : status;
  status = annotate(status, index, &call);
  hr_arena_fini(&arena);
  return status;
}

hr_status hr__onnx_run_nodes(hr__onnx_importer *importer, hr__onnx_scope *scope, hr__span message, uint32_t field) {
  if (scope->depth > HR__ONNX_DEPTH_MAX) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "subgraphs or functions are more than %d deep in each other",
                          HR__ONNX_DEPTH_MAX);
  }
  ++importer->node_count; /* a body may have no nodes */
  hr__wire wire = hr__wire_of(message);
  int index = 0;
  for (hr__field f; hr__wire_next(&wire, &f);) {
    if (f.number == field && f.type == HR__WIRE_BYTES) {
      HR_RETURN_IF_ERROR(run_node(importer, scope, f.bytes, index++));
    }
  }
  return hr__wire_status(&wire);
}

/* ---- subgraphs ---- */

enum { GRAPH_NODES = 1, GRAPH_INITIALIZERS = 5, GRAPH_INPUTS = 11, GRAPH_OUTPUTS = 12 };

static hr_status bind_subgraph(hr__onnx_node *node, hr__onnx_scope *scope, hr__span graph, int input_count,
                               const hr__onnx_value *inputs) {
  hr__wire wire = hr__wire_of(graph);
  int input = 0;
  for (hr__field f; hr__wire_next(&wire, &f);) {
    if (f.type != HR__WIRE_BYTES || (f.number != GRAPH_INITIALIZERS && f.number != GRAPH_INPUTS)) {
      continue;
    }
    if (f.number == GRAPH_INPUTS) {
      hr__onnx_value_info info;
      HR_RETURN_IF_ERROR(hr__onnx_read_value_info(f.bytes, &info));
      if (input == input_count) {
        return DAMAGED("a subgraph has more than %d inputs", input_count);
      }
      HR_RETURN_IF_ERROR(hr__onnx_scope_bind(node->importer, scope, info.name, inputs[input++]));
    } else {
      hr__onnx_tensor tensor;
      hr__onnx_value value;
      HR_RETURN_IF_ERROR(hr__onnx_initializer(node->importer, f.bytes, &tensor, &value));
      HR_RETURN_IF_ERROR(hr__onnx_scope_bind(node->importer, scope, tensor.name, value));
    }
  }
  return hr__wire_status(&wire);
}

static hr_status read_results(hr__onnx_importer *importer, const hr__onnx_scope *scope, hr__span graph, int room,
                              hr__onnx_value *out_values, int *out_count) {
  hr__wire wire = hr__wire_of(graph);
  *out_count = 0;
  for (hr__field f; hr__wire_next(&wire, &f);) {
    if (f.number != GRAPH_OUTPUTS || f.type != HR__WIRE_BYTES) {
      continue;
    }
    hr__onnx_value_info info;
    HR_RETURN_IF_ERROR(hr__onnx_read_value_info(f.bytes, &info));
    hr__onnx_value value;
    bool is_found = hr__onnx_scope_find(importer, scope, info.name, &value);
    if (!is_found || *out_count == room) {
      return DAMAGED(!is_found ? "output %d of a subgraph is no value" : "a subgraph has more than %d outputs",
                     *out_count);
    }
    out_values[(*out_count)++] = value;
  }
  HR_RETURN_IF_ERROR(hr__wire_status(&wire));
  return hr_graph_status(importer->graph);
}

hr_status hr__onnx_run_subgraph(hr__onnx_node *node, hr__span graph, hr__onnx_inner *inner, int input_count,
                                const hr__onnx_value *inputs, int room, hr__onnx_value *out_values, int *out_count) {
  hr__onnx_scope scope = {.outer = node->scope,
                          .inner = inner,
                          .opsets = node->scope->opsets,
                          .attribute_count = node->scope->attribute_count,
                          .attributes = node->scope->attributes,
                          .depth = node->scope->depth + 1};
  hr_status status = bind_subgraph(node, &scope, graph, input_count, inputs);
  status = status == HR_OK ? hr__onnx_run_nodes(node->importer, &scope, graph, GRAPH_NODES) : status;
  status = status == HR_OK ? read_results(node->importer, &scope, graph, room, out_values, out_count) : status;
  hr__onnx_scope_fini(&scope);
  return status;
}
