/* onnx_import.c: a model as a graph: its functions, inputs, initializers, nodes and outputs, in this order. */
#include <stdio.h>

#include "base/hash.h"
#include "base/text.h"
#include "importers/onnx/onnx_importer.h"

#define DAMAGED(...) hr_status_make(HR_STATUS_DATA_LOSS, __VA_ARGS__)
#define REFUSED(...) hr_status_make(HR_STATUS_UNIMPLEMENTED, __VA_ARGS__)

enum { OPSET_MIN = 1, OPSET_MAX = 27 };
enum { MODEL_FUNCTIONS = 25 };
enum { GRAPH_NODES = 1, GRAPH_INITIALIZERS = 5, GRAPH_INPUTS = 11, GRAPH_OUTPUTS = 12, GRAPH_SPARSE = 15 };

static hr_status no_memory(void) {
  return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no host memory for the model");
}

/* ---- functions and operator sets ---- */

static hr_status add_function(hr__onnx_importer *importer, hr__span message) {
  hr__onnx_function function = {.message = message};
  hr__wire wire = hr__wire_of(message);
  for (hr__field f; hr__wire_next(&wire, &f);) {
    if (f.type != HR__WIRE_BYTES) {
      continue;
    }
    if (f.number == 1) {
      function.op.name = f.bytes;
    } else if (f.number == 10) {
      function.op.domain = f.bytes;
    } else if (f.number == 13) {
      function.op.overload = f.bytes;
    }
  }
  HR_RETURN_IF_ERROR(hr__wire_status(&wire));
  enum { FUNCTIONS_MAX = 4096 };
  if (importer->functions.count == FUNCTIONS_MAX) {
    return DAMAGED("more than %d functions", FUNCTIONS_MAX);
  }
  return hr_vector_push(&importer->functions, function) ? HR_OK : no_memory();
}

static hr_status read_functions(hr__onnx_importer *importer) {
  hr__wire wire = hr__wire_of(importer->model.message);
  for (hr__field f; hr__wire_next(&wire, &f);) {
    if (f.number == MODEL_FUNCTIONS && f.type == HR__WIRE_BYTES) {
      HR_RETURN_IF_ERROR(add_function(importer, f.bytes));
    }
  }
  return hr__wire_status(&wire);
}

static hr_status check_opsets(const hr__onnx_importer *importer) {
  int64_t opset = hr__onnx_opset_of(&importer->model.opsets, (hr__span){0});
  if (opset != 0 && (opset < OPSET_MIN || opset > OPSET_MAX)) {
    return REFUSED("operator set %lld, expected %d to %d", (long long)opset, OPSET_MIN, OPSET_MAX);
  }
  return HR_OK;
}

/* ---- inputs ---- */

/* A symbol's name: letters, digits and underscores, of which the first is no digit. */
static void symbol_name(const hr__onnx_value_info *info, int dim, char *out, size_t room) {
  hr__span symbol = info->symbols[dim], from = symbol.size > 0 ? symbol : info->name;
  size_t length = 0;
  if (from.size > 0 && from.data[0] >= '0' && from.data[0] <= '9') {
    out[length++] = '_';
  }
  for (size_t i = 0; i < from.size && length + 16 < room; ++i) {
    uint8_t c = from.data[i];
    bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
    out[length++] = is_letter ? (char)c : '_';
  }
  out[length] = '\0';
  if (symbol.size == 0) {
    snprintf(out + length, room - length, "_%d", dim);
  }
}

/* The name of a symbol that no other one has: a number is appended. */
static hr_status name_symbol(hr__onnx_importer *importer, const hr__onnx_value_info *info, int dim, char *out,
                             size_t room) {
  enum { ALIKE_MAX = 1000 };
  bool is_named = info->symbols[dim].size > 0;
  hr__onnx_symbol symbol = {is_named ? info->symbols[dim] : info->name, is_named ? -1 : dim};
  symbol_name(info, dim, out, room);
  size_t length = strlen(out);
  for (int i = 2; i < ALIKE_MAX; ++i) {
    uint64_t key = hr_hash_bytes(HR_HASH_SEED, out, strlen(out));
    const hr__onnx_symbol *holder = hr_table_get(&importer->symbols, key);
    if (holder == NULL) {
      hr__onnx_symbol *kept = HR_ARENA_NEW(&importer->arena, hr__onnx_symbol);
      if (kept == NULL || !hr_table_put(&importer->symbols, key, kept)) {
        return no_memory();
      }
      *kept = symbol;
      return HR_OK;
    }
    if (holder->dim == symbol.dim && hr__span_equal(holder->raw, symbol.raw)) {
      return HR_OK;
    }
    snprintf(out + length, room - length, "_%d", i);
  }
  return REFUSED("%d symbols have the letters of \"%.*s\"", ALIKE_MAX, (int)length, out);
}

static int64_t dim_of(const hr__onnx_importer *importer, const char *symbol) {
  const hr_onnx_options *options = importer->options;
  for (int i = 0; options != NULL && i < options->dim_count; ++i) {
    if (strcmp(options->dims[i].name, symbol) == 0) {
      return options->dims[i].size;
    }
  }
  return -1;
}

enum { SYMBOL_ROOM = 256 };

static hr_status input_type(hr__onnx_importer *importer, const hr__onnx_value_info *info, hr_type *out,
                            char symbols[][SYMBOL_ROOM]) {
  *out = (hr_type){.dtype = hr__onnx_dtype(info->data_type), .rank = info->rank};
  if (!info->is_tensor) {
    return REFUSED("it is no tensor, but a %s", info->is_sequence   ? "sequence"
                                                : info->is_optional ? "optional"
                                                                    : "map");
  }
  if (out->dtype == HR_DTYPE_NONE) {
    return REFUSED("it has data type %lld (%s)", (long long)info->data_type, hr__onnx_data_type_name(info->data_type));
  }
  if (!info->has_shape) {
    return REFUSED("the model does not tell the number of its dims");
  }
  for (int d = 0; d < info->rank; ++d) {
    out->dims[d] = info->dims[d];
    if (info->dims[d] < 0) {
      HR_RETURN_IF_ERROR(name_symbol(importer, info, d, symbols[d], SYMBOL_ROOM));
      out->dims[d] = dim_of(importer, symbols[d]);
      out->symbols[d] = out->dims[d] < 0 ? symbols[d] : NULL;
      out->dims[d] = out->dims[d] < 0 ? -1 : out->dims[d];
    }
  }
  return HR_OK;
}

static const char *text_of(hr__span name, char *out) {
  if (name.size > 0) {
    memcpy(out, name.data, name.size);
  }
  out[name.size] = '\0';
  return out;
}

static const hr_onnx_constant *find_constant(const hr__onnx_importer *importer, const char *name, bool *out_is_fixed) {
  const hr_onnx_options *options = importer->options;
  for (int i = 0; options != NULL && i < options->constant_count; ++i) {
    if (strcmp(options->constants[i].name, name) == 0) {
      *out_is_fixed = importer->is_fixed[i];
      return &options->constants[i];
    }
  }
  return NULL;
}

/* A constant, or an input with its type. */
static hr_value add_given(hr__onnx_importer *importer, const hr_onnx_constant *given, bool is_fixed) {
  const hr_graph_elements *from = &given->elements;
  hr_type type = {.dtype = from->dtype, .rank = from->rank};
  memcpy(type.dims, from->dims, sizeof type.dims);
  return is_fixed ? hr_graph_constant(importer->graph, &type, from->address)
                  : hr_graph_input(importer->graph, given->name, &type);
}

/* ---- sequences and optionals: their elements are inputs name.0, name.1, ... ---- */

static hr_status add_list(hr__onnx_importer *importer, const char *name, hr__onnx_value *out) {
  hr_text text = {0};
  hr__onnx_list *list = HR_ARENA_NEW(&importer->arena, hr__onnx_list);
  int room = importer->options->constant_count;
  hr__onnx_value *values = HR_ARENA_ARRAY(&importer->arena, hr__onnx_value, (size_t)room + 1);
  bool is_fixed = false, is_found = list != NULL && values != NULL;
  int count = 0;
  for (; is_found && count < room; count += is_found) {
    hr_text_clear(&text);
    hr_text_printf(&text, "%s.%d", name, count);
    const hr_onnx_constant *given = find_constant(importer, hr_text_chars(&text), &is_fixed);
    is_found = given != NULL;
    values[count].value = is_found ? add_given(importer, given, is_fixed) : 0;
  }
  hr_text_fini(&text);
  if (list == NULL || values == NULL) {
    return no_memory();
  }
  *list = (hr__onnx_list){.count = count, .values = values};
  out->list = list;
  return hr_graph_status(importer->graph);
}

static hr_status add_nested(hr__onnx_importer *importer, const hr__onnx_value_info *info, const char *name,
                            hr__onnx_value *out) {
  bool is_fixed = false;
  if (importer->options == NULL || (!info->is_sequence && !info->is_optional)) {
    return REFUSED("it is no tensor: the elements of a sequence have to be given as constants \"%s.0\", ...", name);
  }
  const hr_onnx_constant *given = find_constant(importer, name, &is_fixed);
  if (given != NULL) {
    out->value = add_given(importer, given, is_fixed);
    return hr_graph_status(importer->graph);
  }
  HR_RETURN_IF_ERROR(add_list(importer, name, out));
  if (info->is_optional && out->list->count == 0) {
    *out = (hr__onnx_value){.is_empty = true};
  }
  return HR_OK;
}

static hr_status add_input(hr__onnx_importer *importer, const hr__onnx_value_info *info, hr__onnx_value *out) {
  hr_type type;
  char symbols[HR_RANK_MAX][SYMBOL_ROOM], name[HR_GRAPH_NAME_MAX + 1];
  bool is_fixed = false;
  (void)text_of(info->name, name);
  if (!info->is_tensor) {
    return add_nested(importer, info, name, out);
  }
  out->data_type = hr__onnx_narrow_bits(info->data_type) > 0 ? (int)info->data_type : 0;
  const hr_onnx_constant *given = find_constant(importer, name, &is_fixed);
  if (given != NULL && is_fixed) {
    out->value = add_given(importer, given, true);
  } else {
    HR_RETURN_IF_ERROR(input_type(importer, info, &type, symbols));
    out->value = hr_graph_input(importer->graph, name, &type);
  }
  return hr_graph_status(importer->graph);
}

static hr_status read_input(hr__onnx_importer *importer, hr__onnx_scope *scope, hr__span message) {
  hr__onnx_value_info info;
  hr__onnx_value value = {0};
  HR_RETURN_IF_ERROR(hr__onnx_read_value_info(message, &info));
  if (hr__onnx_scope_find(importer, scope, info.name, &value)) {
    return HR_OK; /* an initializer */
  }
  if (info.name.size > HR_GRAPH_NAME_MAX || !hr__span_is_text(info.name)) {
    return DAMAGED("an input has no name of at most %d bytes of UTF-8", HR_GRAPH_NAME_MAX);
  }
  HR_RETURN_IF_ERROR(hr_status_annotate(add_input(importer, &info, &value), "input \"%.*s\"", (int)info.name.size,
                                        (const char *)info.name.data));
  return hr__onnx_scope_bind(importer, scope, info.name, value);
}

/* A variable with the elements of a constant, which nothing reads then. */
static hr_status add_variable(hr__onnx_importer *importer, hr__span text, hr_value *value) {
  char name[HR_GRAPH_NAME_MAX + 1];
  const hr__node *constant = hr__graph_node_of(importer->graph, *value);
  bool is_floating = constant->kind == HR__NODE_CONSTANT && hr__onnx_is_float(constant->dtype);
  if (is_floating && text.size <= HR_GRAPH_NAME_MAX) {
    *value = hr__graph_share_variable(importer->graph, text_of(text, name), constant);
  }
  return hr_graph_status(importer->graph);
}

static hr_status read_initializer(hr__onnx_importer *importer, hr__onnx_scope *scope, hr__span message) {
  hr__onnx_tensor tensor;
  hr__onnx_value value;
  hr_status status = hr__onnx_initializer(importer, message, &tensor, &value);
  if (status == HR_OK && value.value != 0 && importer->options != NULL && importer->options->has_variables) {
    status = add_variable(importer, tensor.name, &value.value);
  }
  HR_RETURN_IF_ERROR(status);
  return hr__onnx_scope_bind(importer, scope, tensor.name, value);
}

/* Initializers first: those that are inputs, too, are constants. */
static hr_status read_values(hr__onnx_importer *importer, hr__onnx_scope *scope, uint32_t field) {
  hr__wire wire = hr__wire_of(importer->model.graph);
  for (hr__field f; hr__wire_next(&wire, &f);) {
    if (f.type != HR__WIRE_BYTES) {
      continue;
    }
    if (f.number == GRAPH_SPARSE) {
      return REFUSED("sparse initializers");
    }
    if (f.number == field) {
      HR_RETURN_IF_ERROR(field == GRAPH_INPUTS ? read_input(importer, scope, f.bytes)
                                               : read_initializer(importer, scope, f.bytes));
    }
  }
  return hr__wire_status(&wire);
}

/* ---- outputs ---- */

/* The elements of a sequence are outputs name.0, name.1, ... */
static hr_status add_outputs(hr_graph *graph, const hr__onnx_list *list, const char *name) {
  hr_text text = {0};
  for (int i = 0; i < list->count; ++i) {
    hr_text_clear(&text);
    if (list->values[i].list == NULL && hr_text_printf(&text, "%s.%d", name, i)) {
      hr_graph_output(graph, text.data, list->values[i].value);
    }
  }
  hr_status status = hr_text_status(&text);
  hr_text_fini(&text);
  return status != HR_OK ? status : hr_graph_status(graph);
}

static hr_status add_output(hr_graph *graph, const hr__onnx_value *value, const char *name) {
  if (value->list != NULL) {
    return add_outputs(graph, value->list, name);
  }
  hr_graph_output(graph, name, value->value);
  return hr_graph_status(graph);
}

static hr_status read_outputs(hr__onnx_importer *importer, const hr__onnx_scope *scope) {
  hr__wire wire = hr__wire_of(importer->model.graph);
  int index = 0;
  for (hr__field f; hr__wire_next(&wire, &f);) {
    hr__onnx_value_info info;
    char name[HR_GRAPH_NAME_MAX + 1];
    if (f.number != GRAPH_OUTPUTS || f.type != HR__WIRE_BYTES) {
      continue;
    }
    HR_RETURN_IF_ERROR(hr__onnx_read_value_info(f.bytes, &info));
    hr__onnx_value value;
    if (!hr__onnx_scope_find(importer, scope, info.name, &value) || info.name.size > HR_GRAPH_NAME_MAX) {
      return DAMAGED("output %d is no value of the graph", index);
    }
    if (!value.is_empty) {
      HR_RETURN_IF_ERROR(add_output(importer->graph, &value, text_of(info.name, name)));
    }
    ++index;
  }
  return hr__wire_status(&wire);
}

/* ---- the import ---- */

static hr_status import_graph(hr__onnx_importer *importer) {
  hr__onnx_scope scope = {.opsets = &importer->model.opsets};
  HR_RETURN_IF_ERROR(hr_graph_create(&importer->graph));
  hr_status status = read_values(importer, &scope, GRAPH_INITIALIZERS);
  status = status == HR_OK ? read_values(importer, &scope, GRAPH_INPUTS) : status;
  status = status == HR_OK ? hr__onnx_run_nodes(importer, &scope, importer->model.graph, GRAPH_NODES) : status;
  status = status == HR_OK ? read_outputs(importer, &scope) : status;
  hr__onnx_scope_fini(&scope);
  return status;
}

static void discard_graph(hr__onnx_importer *importer) {
  hr_graph_release(importer->graph);
  hr_table_clear(&importer->constants);
  hr_table_clear(&importer->symbols);
  hr_arena_reset(&importer->arena);
  importer->graph = NULL, importer->node_count = 0, importer->work = 0;
}

/* Imports until all inputs that have to be constants are. */
static hr_status import_model(hr__onnx_importer *importer) {
  HR_RETURN_IF_ERROR(hr__onnx_read_model(importer->file->bytes, &importer->model));
  HR_RETURN_IF_ERROR(read_functions(importer));
  HR_RETURN_IF_ERROR(check_opsets(importer));
  for (;;) {
    importer->wants_fixed = false;
    hr_status status = import_graph(importer);
    if (status == HR_OK || !importer->wants_fixed) {
      return status;
    }
    hr_status_free(status);
    discard_graph(importer);
  }
}

static void fini_importer(hr__onnx_importer *importer) {
  for (hr__onnx_file *file = importer->file; file != NULL;) {
    hr__onnx_file *next = file->next;
    hr__onnx_file_release(file);
    file = next;
  }
  hr_vector_fini(&importer->functions);
  hr_table_fini(&importer->constants);
  hr_table_fini(&importer->symbols);
  hr_arena_fini(&importer->arena);
  hr_free(importer->is_fixed);
}

static hr_status import_file(const char *name, hr__onnx_importer *importer, hr_graph **out_graph) {
  int constants = importer->options != NULL ? importer->options->constant_count : 0;
  importer->is_fixed = hr_calloc((size_t)constants + 1, sizeof *importer->is_fixed);
  hr_status status = importer->is_fixed != NULL ? import_model(importer) : no_memory();
  if (status == HR_OK) {
    *out_graph = importer->graph;
  } else {
    hr_graph_release(importer->graph);
  }
  fini_importer(importer);
  return hr_status_annotate(status, "%s", name);
}

hr_status hr_onnx_open(const char *path, const hr_onnx_options *options, hr_graph **out_graph) {
  hr__onnx_importer importer = {.path = path, .options = options};
  HR_RETURN_IF_ERROR(hr_status_annotate(hr__onnx_file_open(path, &importer.file), "%s", path));
  return import_file(path, &importer, out_graph);
}

hr_status hr_onnx_open_bytes(const char *name, const void *bytes, size_t size, const hr_onnx_options *options,
                             hr_graph **out_graph) {
  hr__onnx_importer importer = {.options = options};
  HR_RETURN_IF_ERROR(hr_status_annotate(hr__onnx_file_copy(bytes, size, &importer.file), "%s", name));
  return import_file(name, &importer, out_graph);
}
