/* onnx_inner.c: builds inner graphs, and captures values of the graphs around them. */
#include "importers/onnx/onnx_inner.h"

#include <stdio.h>

enum { HOST_DEPTH_MAX = 64 }; /* operations of the host in a row that are repeated in an inner graph */

static hr_status no_memory(void) {
  return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no host memory for an inner graph");
}

/* ---- begin and end ---- */

hr_status hr__onnx_inner_begin(hr__onnx_importer *importer, hr__onnx_inner *inner) {
  *inner = (hr__onnx_inner){.importer = importer,
                            .outer = importer->graph,
                            .around = importer->inner,
                            .outer_number = importer->graph_number};
  HR_RETURN_IF_ERROR(hr_graph_create(&inner->graph));
  importer->graph = inner->graph, importer->inner = inner;
  importer->graph_number = ++importer->graph_count;
  return HR_OK;
}

void hr__onnx_inner_end(hr__onnx_inner *inner) {
  if (inner->graph != NULL) {
    inner->importer->graph = inner->outer, inner->importer->inner = inner->around;
    inner->importer->graph_number = inner->outer_number;
  }
}

void hr__onnx_inner_fini(hr__onnx_inner *inner) {
  hr_graph_release(inner->graph);
  hr_vector_fini(&inner->map);
  hr_vector_fini(&inner->captured);
  hr_vector_fini(&inner->dims);
  hr_arena_fini(&inner->arena);
  inner->graph = NULL;
}

/* ---- types ---- */

static bool has_symbol(const hr_graph *graph, const char *name) {
  for (size_t i = 0; i < graph->symbols.count; ++i) {
    if (strcmp(graph->symbols.data[i], name) == 0) {
      return true;
    }
  }
  return false;
}

/* A name that the symbols of neither graph have; NULL after a failure. */
static const char *fresh_symbol(hr__onnx_inner *inner) {
  char name[24];
  do {
    snprintf(name, sizeof name, "dim_%d", inner->fresh_count++);
  } while (has_symbol(inner->outer, name) || has_symbol(inner->graph, name));
  return hr_arena_strdup(&inner->arena, name);
}

/* Sets the sizes of a dim at the points; false if they do not tell it from others. */
static bool sample(const hr__graph_value *value, int dim, hr__onnx_inner_dim *out) {
  bool differs = false;
  int64_t first = -1;
  *out = (hr__onnx_inner_dim){.symbol = NULL};
  for (int p = 0; p < HR__GRAPH_POINTS; ++p) {
    const hr__fact *fact = &value->facts[p * value->stride];
    out->is_set[p] = fact->is_set && dim < fact->rank;
    out->sizes[p] = out->is_set[p] ? fact->dims[dim] : 0;
    if (p != HR__GRAPH_SMALL && out->is_set[p]) {
      differs |= first >= 0 && out->sizes[p] != first;
      first = out->sizes[p];
    }
  }
  return differs;
}

/* The symbol of a dim of `like`, whose description is `text`; NULL: no memory. */
static const char *symbol_of(hr__onnx_inner *inner, hr_value like, int dim, const char *text) {
  hr__onnx_inner_dim wanted;
  bool is_word = hr__is_word(text), is_shared = sample(hr__graph_value_of(inner->outer, like), dim, &wanted);
  for (size_t i = 0; is_shared && !is_word && i < inner->dims.count; ++i) {
    const hr__onnx_inner_dim *known = &inner->dims.data[i];
    if (memcmp(known->is_set, wanted.is_set, sizeof known->is_set) == 0 &&
        memcmp(known->sizes, wanted.sizes, sizeof known->sizes) == 0) {
      return known->symbol;
    }
  }
  if (is_word) {
    return text;
  }
  wanted.symbol = fresh_symbol(inner);
  bool is_kept = wanted.symbol != NULL && (!is_shared || hr_vector_push(&inner->dims, wanted));
  return is_kept ? wanted.symbol : NULL;
}

enum { NUMBERED = 24 };

/* The name, or another one if the graph has it. */
static const char *unique_name(const hr__onnx_inner *inner, const char *name, char *text) {
  for (size_t i = inner->graph->inputs.count; hr_graph_find(inner->graph, name) != 0; ++i) {
    (void)snprintf(text, NUMBERED, "input_%zu", i);
    name = text;
  }
  return name;
}

hr_value hr__onnx_inner_input(hr__onnx_inner *inner, const char *name, hr_value like, int skipped, unsigned free_dims) {
  char text[NUMBERED];
  hr_type type, own;
  hr_status status = hr_graph_type(inner->outer, like, &type);
  if (status != HR_OK) {
    return hr__graph_fail(inner->graph, status);
  }
  own = (hr_type){.dtype = type.dtype, .rank = type.rank - skipped};
  for (int d = 0; d < own.rank; ++d) {
    const char *symbol = type.symbols[d + skipped];
    bool is_free = (free_dims >> d & 1) != 0, has_number = !is_free && symbol == NULL;
    own.dims[d] = has_number ? type.dims[d + skipped] : -1;
    own.symbols[d] = has_number ? NULL : is_free ? fresh_symbol(inner) : symbol_of(inner, like, d + skipped, symbol);
    if (!has_number && own.symbols[d] == NULL) {
      return hr__graph_fail(inner->graph, no_memory());
    }
  }
  return hr_graph_input(inner->graph, unique_name(inner, name, text), &own);
}

/* ---- captured values ---- */

static bool grow_map(hr__onnx_inner *inner) {
  while (inner->map.count < inner->outer->values.count) {
    if (!hr_vector_push(&inner->map, 0)) {
      hr__graph_fail(inner->graph, no_memory());
      return false;
    }
  }
  return true;
}

hr_value hr__onnx_inner_argument(hr__onnx_inner *inner, hr_value outer) {
  char number[NUMBERED];
  const char *name = hr_graph_value_name(inner->outer, outer);
  (void)snprintf(number, sizeof number, "value_%d", (int)outer);
  hr_value input = hr__onnx_inner_input(inner, name != NULL ? name : number, outer, 0, 0);
  if (input == 0 || !grow_map(inner) || !hr_vector_push(&inner->captured, outer)) {
    return hr__graph_fail(inner->graph, no_memory());
  }
  bool is_read = hr__graph_node_of(inner->outer, outer)->kind == HR__NODE_READ;
  return inner->map.data[outer] = is_read ? hr_graph_read(inner->graph, input) : input;
}

/* Integers that are the same for all symbols. */
static hr_value repeat_numbers(hr__onnx_inner *inner, const hr__fact *fact) {
  hr_type type = {.dtype = fact->dtype, .rank = fact->rank};
  int64_t count = 1;
  for (int d = 0; d < fact->rank; ++d) {
    type.dims[d] = fact->dims[d];
    count *= fact->dims[d];
  }
  void *elements = hr_arena_alloc(&inner->arena, (size_t)count * sizeof(int64_t) + 1);
  if (elements == NULL) {
    return hr__graph_fail(inner->graph, no_memory());
  }
  hr__integers_store(fact->dtype, count, fact->numbers, elements);
  return hr_graph_constant(inner->graph, &type, elements);
}

static hr_value capture(hr__onnx_inner *inner, hr_value outer, int depth);

typedef struct visit {
  hr__onnx_inner *inner;
  int depth;
} visit;

static void capture_input(void *arg, const hr_value *value) {
  const visit *v = arg;
  (void)capture(v->inner, *value, v->depth + 1);
}

/* The same operation on captured values. */
static hr_value repeat_node(hr__onnx_inner *inner, const hr__node *node, int depth) {
  hr_value first = 0;
  visit v = {inner, depth};
  hr__node_each_input(node, capture_input, &v);
  if (inner->graph->failure == HR_OK) {
    hr_status status = hr__node_copy(inner->outer, inner->graph, inner->map.data, &inner->arena, node, &first);
    return status == HR_OK ? first : hr__graph_fail(inner->graph, status);
  }
  return 0;
}

static hr_value capture_node(hr__onnx_inner *inner, hr_value outer, int depth) {
  const hr__node *node = hr__graph_node_of(inner->outer, outer);
  const hr__graph_value *value = hr__graph_value_of(inner->outer, outer);
  bool is_call = node->kind == HR__NODE_SHAPE || (node->kind == HR__NODE_CALL && node->result_count == 1);
  if (node->kind == HR__NODE_CONSTANT) {
    return hr__graph_share_constant(inner->graph, node);
  }
  if (node->kind == HR__NODE_NUMBER) {
    return hr_graph_number(inner->graph, node->number);
  }
  if (!value->varies && value->facts->numbers != NULL && node->kind != HR__NODE_VARIABLE) {
    return repeat_numbers(inner, value->facts);
  }
  if (is_call && depth < HOST_DEPTH_MAX && hr__onnx_host_knows(inner->outer, outer)) {
    return repeat_node(inner, node, depth);
  }
  return hr__onnx_inner_argument(inner, outer);
}

static hr_value capture(hr__onnx_inner *inner, hr_value outer, int depth) {
  if (outer == 0 || !grow_map(inner) || inner->graph->failure != HR_OK) {
    return 0;
  }
  if (inner->map.data[outer] == 0) {
    hr_value value = capture_node(inner, outer, depth);
    inner->map.data[outer] = value;
  }
  return inner->map.data[outer];
}

static const hr__onnx_list *capture_list(hr__onnx_inner *inner, const hr__onnx_list *from) {
  hr_arena *arena = &inner->importer->arena;
  hr_status status = hr__onnx_charge(inner->importer, from->count + 1);
  hr__onnx_list *list = status == HR_OK ? HR_ARENA_NEW(arena, hr__onnx_list) : NULL;
  hr__onnx_value *values = list != NULL ? HR_ARENA_ARRAY(arena, hr__onnx_value, (size_t)from->count + 1) : NULL;
  if (values == NULL) {
    hr__graph_fail(inner->graph, status != HR_OK ? status : no_memory());
    return NULL;
  }
  for (int i = 0; i < from->count; ++i) {
    values[i] = hr__onnx_inner_capture(inner, &from->values[i]);
  }
  *list = (hr__onnx_list){.count = from->count, .dtype = from->dtype, .values = values};
  return list;
}

hr__onnx_value hr__onnx_inner_capture(hr__onnx_inner *inner, const hr__onnx_value *outer) {
  hr__onnx_value value = *outer;
  value.value = capture(inner, outer->value, 0);
  value.list = outer->list != NULL ? capture_list(inner, outer->list) : NULL;
  return value;
}

/* ---- the subgraph ---- */

hr_status hr__onnx_inner_output(hr__onnx_inner *inner, const hr__onnx_value *value) {
  char name[24];
  if (value->value == 0 || value->list != NULL) {
    return hr_status_make(HR_STATUS_UNIMPLEMENTED, "output %d of a subgraph is no tensor",
                          (int)inner->graph->outputs.count);
  }
  (void)snprintf(name, sizeof name, "output_%zu", inner->graph->outputs.count);
  hr_graph_output(inner->graph, name, value->value);
  return hr_graph_status(inner->graph);
}

hr_status hr__onnx_inner_run(hr__onnx_inner *inner, hr__onnx_node *node, hr__span graph, int input_count,
                             const hr__onnx_value *inputs, int wanted, hr__onnx_value *out_results) {
  int count = 0;
  HR_RETURN_IF_ERROR(hr__onnx_run_subgraph(node, graph, inner, input_count, inputs, wanted, out_results, &count));
  if (count != wanted) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "a subgraph has %d outputs, expected %d", count, wanted);
  }
  return hr_graph_status(inner->graph);
}
