/* graph.c: graphs, their names, symbols and outputs, and reading them. See headrace/graph.h. */
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

hr_value hr__graph_no_memory(hr_graph *graph, const char *what) {
  return hr__graph_fail(graph, hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "graph: no host memory for %s", what));
}

bool hr__graph_can_change(hr_graph *graph) {
  if (graph->failure == HR_OK && atomic_load_explicit(&graph->is_inner, memory_order_relaxed)) {
    hr__graph_fail(graph,
                   hr_status_make(HR_STATUS_FAILED_PRECONDITION, "graph: another graph uses it: it can't change"));
  }
  return graph->failure == HR_OK;
}

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

void hr__blob_release(hr__blob *blob) {
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
    hr__blob_release(graph->nodes.data[i].blob);
    hr__host_release(graph->nodes.data[i].host);
  }
  for (size_t i = graph->inner.count; i-- > 0;) {
    hr_graph_release(graph->inner.data[i]);
  }
  hr_status_free(graph->failure);
  hr_vector_fini(&graph->nodes);
  hr_vector_fini(&graph->values);
  hr_vector_fini(&graph->symbols);
  hr_vector_fini(&graph->inputs);
  hr_vector_fini(&graph->outputs);
  hr_vector_fini(&graph->data);
  hr_vector_fini(&graph->inner);
  hr_vector_fini(&graph->variables);
  hr_vector_fini(&graph->assigned);
  hr_table_fini(&graph->inner_table);
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

bool hr__graph_is_name(const char *name) {
  size_t length = name != NULL ? strlen(name) : 0;
  for (size_t i = 0; i < length; ++i) {
    if ((unsigned char)name[i] < ' ' || name[i] == 127) {
      return false;
    }
  }
  return length > 0 && length <= HR_GRAPH_NAME_MAX;
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
  return hr__is_word(name) && hr__graph_is_name(name);
}

bool hr__graph_check_name(hr_graph *graph, const char *name) {
  hr_value other = 0;
  if (!hr__graph_is_name(name)) {
    HR__GRAPH_REFUSE(graph,
                     "graph: a name of 1 to %d characters, none of them a control character, expected for a value",
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
  if (!hr__graph_can_change(graph) || !hr__graph_check_name(graph, name)) {
    return;
  }
  if (value <= 0 || (size_t)value >= graph->values.count || graph->values.data[value].name != NULL) {
    const char *own = hr_graph_value_name(graph, value);
    HR__GRAPH_REFUSE(graph, "graph: name \"%s\" for value %d of %zu%s%s", name, (int)value, graph->values.count - 1,
                     own != NULL ? ", which has the name " : "", own != NULL ? own : "");
    return;
  }
  uint64_t key = find_key(graph, name, &other);
  const char *copy = hr_arena_strdup(&graph->arena, name);
  if (copy == NULL || !hr_table_put(&graph->names, key, (void *)(intptr_t)value)) {
    hr__graph_no_memory(graph, "a name");
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
    HR__GRAPH_REFUSE(graph, "graph: symbol \"%.64s\": at most %d names of letters and digits expected",
                     name != NULL ? name : "", HR_GRAPH_SYMBOLS_MAX);
    return -1;
  }
  const char *copy = hr_arena_strdup(&graph->arena, name);
  if (copy == NULL || !hr_vector_push(&graph->symbols, copy)) {
    hr__graph_no_memory(graph, "a symbol");
    return -1;
  }
  return (int)graph->symbols.count - 1;
}

void hr_graph_output(hr_graph *graph, const char *name, hr_value value) {
  if (!hr__graph_can_change(graph)) {
    return;
  }
  const char *own = hr_graph_value_name(graph, value);
  name = name != NULL ? name : own;
  if (value <= 0 || (size_t)value >= graph->values.count || !hr__graph_is_name(name)) {
    HR__GRAPH_REFUSE(graph, "graph: output \"%.64s\": value %d of %zu, expected a value and a name",
                     name != NULL ? name : "", (int)value, graph->values.count - 1);
    return;
  }
  if (graph->outputs.count == HR_GRAPH_OUTPUTS_MAX) {
    HR__GRAPH_REFUSE(graph, "graph: output \"%.64s\": expected at most %d outputs", name, HR_GRAPH_OUTPUTS_MAX);
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
    hr__graph_no_memory(graph, "an output");
  }
}

/* ---- reading ---- */

int hr_graph_result_count(const hr_graph *graph, hr_value first) {
  bool is_first = first > 0 && (size_t)first < graph->values.count && graph->values.data[first].result == 0;
  return is_first ? hr__graph_node_of(graph, first)->result_count : 1;
}

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
  int count = graph->constant_count;
  for (size_t i = 0; i < graph->inner.count; ++i) {
    count += graph->inner.data[i]->constant_count;
  }
  return count;
}
int64_t hr_graph_constant_bytes(const hr_graph *graph) {
  int64_t bytes = graph->constant_bytes;
  for (size_t i = 0; i < graph->inner.count; ++i) {
    bytes += graph->inner.data[i]->constant_bytes;
  }
  return bytes;
}
int hr_graph_symbol_count(const hr_graph *graph) {
  return (int)graph->symbols.count;
}
const char *hr_graph_symbol_name(const hr_graph *graph, int index) {
  return index >= 0 && (size_t)index < graph->symbols.count ? graph->symbols.data[index] : NULL;
}
