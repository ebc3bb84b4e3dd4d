/* graph_print.c: graphs as text; docs/graphs.md and graph_parse.c have the grammar. */
#include <math.h>
#include <stdio.h>

#include "base/text.h"
#include "functional/functions.h"
#include "graph/graph_node.h"

typedef struct printer {
  const hr_graph *graph;
  hr_text text;
  int64_t *labels; /* by value: the number of one without a name; -1: not printed yet; NULL: its own */
  int64_t label_count, data_count;
  const hr_graph *whole; /* whose inner graphs have numbers */
} printer;

/* ---- words and numbers ---- */

static void print_quoted(hr_text *text, const char *name) {
  hr_text_char(text, '"');
  for (; *name != '\0'; ++name) {
    if (*name == '"' || *name == '\\') {
      hr_text_char(text, '\\');
    }
    hr_text_char(text, *name);
  }
  hr_text_char(text, '"');
}

static void print_name(hr_text *text, const char *name) {
  if (hr__is_word(name)) {
    hr_text_append(text, name);
  } else {
    print_quoted(text, name);
  }
}

/* The shortest form that reads back to the same bits, and that no integer has. NaN: any NaN. */
static void print_f64(hr_text *text, double value) {
  size_t start = text->length;
  if (isnan(value) || isinf(value)) {
    hr_text_append(text, isnan(value) ? "nan" : value < 0 ? "-inf" : "inf");
    return;
  }
  for (int precision = 6; precision <= 17; ++precision) {
    hr_text_cut(text, start);
    if (!hr_text_printf(text, "%.*g", precision, value) || hr_text_number(text->data + start, NULL) == value) {
      break;
    }
  }
  if (!text->failed && strpbrk(text->data + start, ".e") == NULL) {
    hr_text_append(text, ".0");
  }
}

static void print_scalar(hr_text *text, hr_scalar number) {
  switch (number.dtype) {
    case HR_DTYPE_BOOL:
      hr_text_append(text, number.value.i != 0 ? "true" : "false");
      return;
    case HR_DTYPE_I64:
      hr_text_int(text, number.value.i);
      return;
    case HR_DTYPE_U64:
      hr_text_printf(text, "%lluu", (unsigned long long)number.value.u);
      return;
    case HR_DTYPE_C128:
      hr_text_char(text, '(');
      print_f64(text, number.value.f[0]);
      hr_text_append(text, ", ");
      print_f64(text, number.value.f[1]);
      hr_text_char(text, ')');
      return;
    default:
      print_f64(text, number.value.f[0]);
  }
}

static void print_label(printer *p, hr_value value) {
  const char *name = hr_graph_value_name(p->graph, value);
  hr_text_char(&p->text, '%');
  if (name != NULL) {
    print_name(&p->text, name);
    return;
  }
  if (p->labels == NULL) {
    hr_text_int(&p->text, value);
    return;
  }
  if (p->labels[value] < 0) {
    p->labels[value] = p->label_count++;
  }
  hr_text_int(&p->text, p->labels[value]);
}

/* Numbers and symbols without names stand where they are used. */
static bool is_inline_node(const printer *p, const hr__node *node) {
  return (node->kind == HR__NODE_NUMBER || node->kind == HR__NODE_SYMBOL) &&
         hr_graph_value_name(p->graph, node->first) == NULL;
}

static void print_operand(printer *p, hr_value value) {
  if (value == 0) {
    hr_text_char(&p->text, '_');
    return;
  }
  const hr__node *node = hr__graph_node_of(p->graph, value);
  if (!is_inline_node(p, node)) {
    print_label(p, value);
  } else if (node->kind == HR__NODE_NUMBER) {
    print_scalar(&p->text, node->number);
  } else {
    hr_text_append(&p->text, p->graph->symbols.data[node->symbol]);
  }
}

void hr__graph_print_type(const hr_graph *graph, hr_value value, hr_text *out) {
  hr_type type;
  hr_status_ignore(hr_graph_type(graph, value, &type));
  hr_text_printf(out, "%s[", hr_dtype_name(type.dtype));
  for (int d = 0; d < type.rank; ++d) {
    hr_text_append(out, d > 0 ? ", " : "");
    type.symbols[d] != NULL ? hr_text_append(out, type.symbols[d]) : hr_text_int(out, type.dims[d]);
  }
  hr_text_char(out, ']');
}

static void print_type(printer *p, hr_value value) {
  hr__graph_print_type(p->graph, value, &p->text);
}

/* ---- attributes ---- */

static void print_ints(printer *p, const hr__node_attribute *attribute) {
  hr_text_char(&p->text, '[');
  for (int i = 0; i < attribute->value.count; ++i) {
    hr_text_append(&p->text, i > 0 ? ", " : "");
    if (attribute->values != NULL && attribute->values[i] != 0) {
      print_operand(p, attribute->values[i]);
    } else {
      hr_text_int(&p->text, attribute->value.value.ints[i]);
    }
  }
  hr_text_char(&p->text, ']');
}

static void print_reals(printer *p, const hr_attribute *value) {
  hr_text_char(&p->text, '[');
  for (int i = 0; i < value->count; ++i) {
    hr_text_append(&p->text, i > 0 ? ", " : "");
    print_f64(&p->text, value->value.reals[i]);
  }
  hr_text_char(&p->text, ']');
}

static void print_attribute(printer *p, const hr__node_attribute *attribute) {
  const hr_attribute *value = &attribute->value;
  if (attribute->list != 0 ||
      (value->kind != HR_ATTRIBUTE_INTS && attribute->values != NULL && attribute->values[0] != 0)) {
    print_operand(p, attribute->list != 0 ? attribute->list : attribute->values[0]);
    return;
  }
  switch (value->kind) {
    case HR_ATTRIBUTE_INT:
      hr_text_int(&p->text, value->value.integer);
      return;
    case HR_ATTRIBUTE_FLAG:
      hr_text_append(&p->text, value->value.integer != 0 ? "true" : "false");
      return;
    case HR_ATTRIBUTE_REAL:
      print_scalar(&p->text, value->value.number);
      return;
    case HR_ATTRIBUTE_INTS:
      print_ints(p, attribute);
      return;
    case HR_ATTRIBUTE_REALS:
      print_reals(p, value);
      return;
    case HR_ATTRIBUTE_DTYPE:
      hr_text_append(&p->text, hr_dtype_name(value->value.dtype));
      return;
    default:
      print_quoted(&p->text, value->value.text);
  }
}

/* Those that are given; after other operands if `is_first` is false. */
static void print_attributes(printer *p, const hr__node *node, bool is_first) {
  const hr__function_row *row = hr__function_row_of(node->function);
  for (int i = 0; i < node->attribute_count; ++i) {
    if (node->attributes[i].value.kind != HR_ATTRIBUTE_NONE) {
      hr_text_printf(&p->text, "%s%s=", is_first ? "" : ", ", row->attributes[i].name);
      print_attribute(p, &node->attributes[i]);
      is_first = false;
    }
  }
}

bool hr__graph_print_attributes(const hr_graph *graph, const hr__node *node, hr_text *out) {
  printer p = {.graph = graph, .text = *out};
  print_attributes(&p, node, true);
  *out = p.text;
  return !out->failed;
}

static void print_call(printer *p, const hr__node *node) {
  const hr__function_row *row = hr__function_row_of(node->function);
  hr_text_printf(&p->text, "%s(", row->name);
  for (int i = 0; i < node->input_count; ++i) {
    hr_text_append(&p->text, i > 0 ? ", " : "");
    print_operand(p, node->inputs[i]);
  }
  print_attributes(p, node, node->input_count == 0);
  hr_text_char(&p->text, ')');
}

static void print_gradient(printer *p, const hr__node *node) {
  hr_text_append(&p->text, "gradient(");
  print_operand(p, node->inputs[0]);
  for (int i = 2; i < node->input_count; ++i) {
    hr_text_append(&p->text, ", ");
    print_operand(p, node->inputs[i]);
  }
  if (node->inputs[1] != 0) {
    hr_text_append(&p->text, ", seed=");
    print_operand(p, node->inputs[1]);
  }
  hr_text_char(&p->text, ')');
}

/* ---- control flow ---- */

/* The function that an inner graph is in text. */
static void print_inner(printer *p, const hr_graph *inner) {
  size_t i = 0;
  while (p->whole->inner.data[i] != inner) {
    ++i;
  }
  hr_text_printf(&p->text, "@%zu, ", i);
}

/* ", in=[0, _]" */
static void print_axes(printer *p, const char *start, int count, const int *axes) {
  hr_text_append(&p->text, start);
  for (int i = 0; i < count; ++i) {
    hr_text_append(&p->text, i > 0 ? ", " : "");
    if (axes[i] < 0) {
      hr_text_char(&p->text, '_');
    } else {
      hr_text_int(&p->text, axes[i]);
    }
  }
  hr_text_char(&p->text, ']');
}

/* "name(@0, @1, operands, carried=1, sequences=1)" */
static void print_control(printer *p, const hr__node *node) {
  static const char *const names[] = {"call", "if", "while", "for", "scan", "vmap"};
  hr_text_printf(&p->text, "%s(", names[node->kind - HR__NODE_INNER]);
  for (int i = 0; i < 2 && node->inner[i] != NULL; ++i) {
    print_inner(p, node->inner[i]);
  }
  for (int i = 0; i < node->input_count; ++i) {
    print_operand(p, node->inputs[i]);
    hr_text_append(&p->text, ", ");
  }
  hr_text_cut(&p->text, p->text.length - 2);
  if (hr__node_is_loop(node)) {
    hr_text_printf(&p->text, ", carried=%d", node->carried_count);
  }
  if (node->kind == HR__NODE_SCAN) {
    hr_text_printf(&p->text, ", sequences=%d", node->sequence_count);
  } else if (node->kind == HR__NODE_VMAP) {
    print_axes(p, ", in=[", node->input_count, node->axes);
    print_axes(p, ", out=[", node->result_count, node->axes + node->input_count);
  }
  hr_text_char(&p->text, ')');
}

/* ---- lines ---- */

bool hr__graph_is_inline(const hr__node *constant) {
  enum { INTEGERS = 64, REALS = 8 };
  size_t count = hr__graph_bytes(constant) / hr_dtype_size(constant->dtype);
  if (hr__is_host_dtype(constant->dtype)) {
    return count <= INTEGERS;
  }
  bool is_inline = (constant->dtype == HR_DTYPE_F32 || constant->dtype == HR_DTYPE_F64) && count <= REALS;
  for (size_t i = 0; is_inline && i < count; ++i) {
    float single;
    double number;
    if (constant->dtype == HR_DTYPE_F32) {
      memcpy(&single, (const char *)constant->blob->bytes + i * sizeof single, sizeof single);
      number = (double)single;
    } else {
      memcpy(&number, (const char *)constant->blob->bytes + i * sizeof number, sizeof number);
    }
    is_inline = isfinite(number);
  }
  return is_inline;
}

static void print_elements(printer *p, const hr__node *node) {
  size_t size = hr_dtype_size(node->dtype), count = hr__graph_bytes(node) / size;
  hr_text_char(&p->text, '[');
  for (size_t i = 0; i < count; ++i) {
    const char *element = (const char *)node->blob->bytes + i * size;
    hr_text_append(&p->text, i > 0 ? ", " : "");
    if (hr__is_host_dtype(node->dtype)) {
      int64_t number;
      hr__integers_load(node->dtype, 1, element, &number);
      hr_text_int(&p->text, number);
    } else {
      float single = 0;
      double number = 0;
      memcpy(node->dtype == HR_DTYPE_F32 ? (void *)&single : (void *)&number, element, size);
      print_f64(&p->text, node->dtype == HR_DTYPE_F32 ? (double)single : number);
    }
  }
  hr_text_char(&p->text, ']');
}

static void print_source(printer *p, const hr__node *node) {
  hr_text_append(&p->text, node->kind == HR__NODE_INPUT      ? "input "
                           : node->kind == HR__NODE_CONSTANT ? "constant "
                                                             : "variable ");
  print_label(p, node->first);
  hr_text_char(&p->text, ' ');
  print_type(p, node->first);
  if (hr__node_has_elements(node)) {
    hr_text_append(&p->text, " = ");
    if (hr__graph_is_inline(node)) {
      print_elements(p, node);
    } else {
      hr_text_printf(&p->text, "#%lld", (long long)p->data_count++);
    }
  }
  hr_text_char(&p->text, '\n');
}

/* host(name, x, y): text that is not read back. */
static void print_host(printer *p, const hr__node *node) {
  hr_text_printf(&p->text, "host(%s", node->host->spec.name != NULL ? node->host->spec.name : "call");
  for (int i = 0; i < node->input_count; ++i) {
    hr_text_append(&p->text, ", ");
    print_operand(p, node->inputs[i]);
  }
  hr_text_char(&p->text, ')');
}

static void print_operation(printer *p, const hr__node *node) {
  for (int i = 0; i < node->result_count; ++i) {
    hr_text_append(&p->text, i > 0 ? ", " : "");
    print_label(p, node->first + i);
  }
  hr_text_append(&p->text, " = ");
  if (node->kind == HR__NODE_CALL) {
    print_call(p, node);
  } else if (node->kind == HR__NODE_GRADIENT) {
    print_gradient(p, node);
  } else if (hr__node_is_control(node)) {
    print_control(p, node);
  } else if (node->kind == HR__NODE_SHAPE || node->kind == HR__NODE_READ) {
    hr_text_append(&p->text, node->kind == HR__NODE_SHAPE ? "shape(" : "read(");
    print_operand(p, node->inputs[0]);
    hr_text_char(&p->text, ')');
  } else if (node->kind == HR__NODE_HOST) {
    print_host(p, node);
  } else if (node->kind == HR__NODE_SYMBOL) {
    hr_text_printf(&p->text, "symbol(%s)", p->graph->symbols.data[node->symbol]);
  } else {
    hr_text_append(&p->text, "number(");
    print_scalar(&p->text, node->number);
    hr_text_char(&p->text, ')');
  }
  hr_text_append(&p->text, "  ; ");
  for (int i = 0; i < node->result_count; ++i) {
    hr_text_append(&p->text, i > 0 ? ", " : "");
    print_type(p, node->first + i);
  }
  hr_text_char(&p->text, '\n');
}

/* The lines of a graph. */
static void print_lines(printer *p, const hr_graph *graph) {
  p->graph = graph, p->label_count = 0;
  for (size_t v = 0; v < graph->values.count; ++v) {
    p->labels[v] = -1;
  }
  for (size_t n = 0; n < graph->nodes.count && !p->text.failed; ++n) {
    const hr__node *node = &graph->nodes.data[n];
    if (node->kind == HR__NODE_INPUT || hr__node_has_elements(node)) {
      print_source(p, node);
    } else if (!is_inline_node(p, node)) {
      print_operation(p, node);
    }
  }
  for (size_t i = 0; i < graph->variables.count; ++i) {
    if (graph->assigned.data[i] != 0) {
      hr_text_append(&p->text, "assign ");
      print_label(p, graph->variables.data[i]);
      hr_text_append(&p->text, " = ");
      print_operand(p, graph->assigned.data[i]);
      hr_text_char(&p->text, '\n');
    }
  }
  for (size_t i = 0; i < graph->outputs.count; ++i) {
    hr_text_append(&p->text, "output ");
    print_name(&p->text, graph->outputs.data[i].name);
    hr_text_append(&p->text, " = ");
    print_operand(p, graph->outputs.data[i].value);
    hr_text_char(&p->text, '\n');
  }
}

/* True for text that readers of the first version refuse. */
static bool is_version_2(const hr_graph *graph) {
  bool has_read = graph->inner.count > 0 || graph->variables.count > 0;
  for (size_t n = 0; n < graph->nodes.count; ++n) {
    has_read |= graph->nodes.data[n].kind == HR__NODE_READ || hr__node_is_unknown(&graph->nodes.data[n]);
  }
  return has_read;
}

static void print_graph(printer *p) {
  const hr_graph *whole = p->whole;
  hr_text_append(&p->text, is_version_2(whole) ? "graph 2\n" : "graph 1\n");
  for (size_t i = 0; i < whole->inner.count; ++i) {
    hr_text_printf(&p->text, "function @%zu {\n", i);
    print_lines(p, whole->inner.data[i]);
    hr_text_append(&p->text, "}\n");
  }
  print_lines(p, whole);
}

hr_status hr_graph_print(const hr_graph *graph, hr_status (*write)(void *arg, const void *bytes, size_t count),
                         void *arg) {
  HR_RETURN_IF_ERROR(hr_graph_status(graph));
  size_t values = graph->values.count;
  for (size_t i = 0; i < graph->inner.count; ++i) {
    values = graph->inner.data[i]->values.count > values ? graph->inner.data[i]->values.count : values;
  }
  printer p = {.whole = graph, .labels = hr_malloc(values * sizeof *p.labels)};
  if (p.labels == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "graph: no host memory to print it");
  }
  print_graph(&p);
  hr_status status = hr_text_status(&p.text);
  status = status == HR_OK ? write(arg, hr_text_chars(&p.text), p.text.length) : status;
  hr_text_fini(&p.text);
  hr_free(p.labels);
  return status;
}

/* ---- constants beside the text ---- */

int hr_graph_data_count(const hr_graph *graph) {
  size_t count = graph->data.count;
  for (size_t i = 0; i < graph->inner.count; ++i) {
    count += graph->inner.data[i]->data.count;
  }
  return (int)count;
}

/* The node of a constant: those of inner graphs stand first, as their text does. */
static const hr__node *find_data(const hr_graph *graph, int index) {
  size_t rest = (size_t)index;
  for (size_t i = 0; i < graph->inner.count && index >= 0; ++i) {
    const hr_graph *inner = graph->inner.data[i];
    if (rest < inner->data.count) {
      return &inner->nodes.data[inner->data.data[rest]];
    }
    rest -= inner->data.count;
  }
  return index >= 0 && rest < graph->data.count ? &graph->nodes.data[graph->data.data[rest]] : NULL;
}

hr_graph_elements hr_graph_data(const hr_graph *graph, int index) {
  const hr__node *node = find_data(graph, index);
  if (node == NULL) {
    return (hr_graph_elements){0};
  }
  hr_graph_elements elements = {.dtype = node->dtype, .rank = node->rank, .address = node->blob->bytes};
  memcpy(elements.dims, node->dims, (size_t)node->rank * sizeof *node->dims);
  return elements;
}
