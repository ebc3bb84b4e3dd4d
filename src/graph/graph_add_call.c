/* graph_add_call.c: calls of functions and gradients as nodes of a graph. */
#include "functional/functions.h"
#include "graph/graph_node.h"

/* ---- attributes ---- */

/* True for an attribute that text can hold: short, without control characters. */
static bool is_text(const char *text) {
  return text != NULL && (text[0] == '\0' || hr__graph_is_name(text));
}

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
    HR__GRAPH_REFUSE(
        graph,
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
    to->values = (hr_value *)(uintptr_t)hr__graph_copy_values(graph, count, from->values);
  }
  return copy_payload(graph, &to->value) && (from->values == NULL || to->values != NULL);
}

/* Sets the attributes of a call in the function's order; false after a failure. */
static bool set_attributes(hr_graph *graph, const hr__function_row *row, int count, const hr_graph_attribute *given,
                           hr__node *node) {
  hr__node_attribute all[HR__GRAPH_ATTRIBUTES_MAX] = {{.list = 0}};
  for (int i = 0; i < count; ++i) {
    int at = find_attribute(row, given[i].name);
    if (at < 0 || at >= HR__GRAPH_ATTRIBUTES_MAX || all[at].value.kind != HR_ATTRIBUTE_NONE) {
      HR__GRAPH_REFUSE(graph, "%s: attribute \"%.64s\" is %s", row->name, given[i].name != NULL ? given[i].name : "",
                       at < 0 ? "not known" : "given twice");
      return false;
    }
    if (!check_attribute(graph, row->name, &given[i])) {
      return false;
    }
    if (!copy_attribute(graph, &given[i], &all[at])) {
      hr__graph_no_memory(graph, "an attribute");
      return false;
    }
    node->attribute_count =
        all[at].value.kind != HR_ATTRIBUTE_NONE && at >= node->attribute_count ? at + 1 : node->attribute_count;
  }
  node->attributes = hr_arena_dup(&graph->arena, all, (size_t)node->attribute_count * sizeof *all);
  if (node->attributes == NULL) {
    hr__graph_no_memory(graph, "attributes");
  }
  return node->attributes != NULL;
}

/* ---- calls ---- */

hr_value hr_graph_add(hr_graph *graph, hr_functional function, int input_count, const hr_value *inputs,
                      int attribute_count, const hr_graph_attribute *attributes) {
  const hr__function_row *row = hr__function_row_of(function);
  hr__node node = {.kind = HR__NODE_CALL, .function = function, .input_count = input_count};
  if (graph->failure != HR_OK) {
    return 0;
  }
  if (row->emit == NULL || input_count < 0 || input_count > HR__GRAPH_OPERANDS_MAX) {
    return HR__GRAPH_REFUSE(graph, "graph: function number %d of %d inputs, expected a function and at most %d inputs",
                            (int)function, input_count, HR__GRAPH_OPERANDS_MAX);
  }
  node.inputs = hr__graph_copy_values(graph, input_count, inputs);
  if (node.inputs == NULL) {
    return hr__graph_no_memory(graph, "inputs");
  }
  if (!set_attributes(graph, row, attribute_count, attributes, &node)) {
    return 0;
  }
  hr_status status =
      hr__graph_has_inputs(graph, &node) ? hr__graph_count_results(graph, &node, &node.result_count) : HR_OK;
  return status == HR_OK ? hr__graph_add_node(graph, &node) : hr__graph_fail(graph, status);
}

/* ---- gradients ---- */

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
      HR__GRAPH_REFUSE(graph, "gradient: value \"%s\" is not floating", hr__graph_label(graph, value, text));
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
    return HR__GRAPH_REFUSE(graph, "gradient: by %d values, expected 1 to %d", count, HR__GRAPH_OPERANDS_MAX - 2);
  }
  if (!check_gradient(graph, of, count, values)) {
    return 0;
  }
  hr_value *inputs = HR_ARENA_ARRAY(&graph->arena, hr_value, (size_t)count + 2);
  if (inputs == NULL) {
    return hr__graph_no_memory(graph, "a gradient");
  }
  inputs[0] = of, inputs[1] = seed;
  memcpy(inputs + 2, values, (size_t)count * sizeof *inputs);
  node.inputs = inputs, node.input_count = count + 2;
  hr_value first = hr__graph_add_node(graph, &node);
  for (int i = 0; first != 0 && i < count; ++i) {
    graph->values.data[values[i]].is_watched = true;
  }
  return first;
}
