/* graph_add_control.c: control flow, reads and variables as nodes of a graph.
 *
 * Inner graphs are shared: a graph has each once, also those inside of them, in an order in which none stands before
 * one that it uses. An inner graph never changes, so that its types are those of its own nodes for ever.
 */
#include "base/hash.h"
#include "functional/functions.h"
#include "graph/graph_node.h"

/* ---- inner graphs ---- */

static uint64_t inner_key(const hr_graph *inner) {
  return hr_hash_mix(HR_HASH_SEED, (uint64_t)(uintptr_t)inner);
}

size_t hr__graph_inner_place(const hr_graph *graph, const hr_graph *inner) {
  return (size_t)(uintptr_t)hr_table_get(&graph->inner_table, inner_key(inner));
}

static bool add_inner(hr_graph *graph, hr_graph *inner) {
  if (hr__graph_inner_place(graph, inner) > 0) {
    return true;
  }
  if (!hr_vector_push(&graph->inner, inner)) {
    hr__graph_no_memory(graph, "an inner graph");
    return false;
  }
  hr_graph_retain(inner);
  if (!hr_table_put(&graph->inner_table, inner_key(inner), (void *)(uintptr_t)graph->inner.count)) {
    hr__graph_no_memory(graph, "an inner graph");
    return false;
  }
  return true;
}

/* Forgets the inner graphs behind the first `count`, which nothing uses. */
static void drop_inner(hr_graph *graph, size_t count) {
  while (graph->inner.count > count) {
    hr_graph *inner = hr_vector_pop(&graph->inner);
    (void)hr_table_remove(&graph->inner_table, inner_key(inner));
    hr_graph_release(inner);
  }
}

static bool check_inner(hr_graph *graph, const hr_graph *inner) {
  if (inner == graph) {
    HR__GRAPH_REFUSE(graph, "graph: it is its own inner graph");
    return false;
  }
  hr_status failure = hr_graph_status(inner);
  if (failure != HR_OK) {
    hr__graph_fail(graph, hr_status_annotate(failure, "graph: an inner graph"));
    return false;
  }
  if (inner->variables.count > 0 || inner->outputs.count == 0 || inner->depth >= HR_GRAPH_DEPTH_MAX) {
    HR__GRAPH_REFUSE(graph,
                     "graph: an inner graph of %zu variables, %zu outputs and depth %d, expected no variables, an "
                     "output, and depth at most %d",
                     inner->variables.count, inner->outputs.count, inner->depth, HR_GRAPH_DEPTH_MAX - 1);
    return false;
  }
  return true;
}

/* Makes `inner` a part of the graph, with all that it contains. */
static bool use_inner(hr_graph *graph, hr_graph *inner) {
  if (!check_inner(graph, inner)) {
    return false;
  }
  atomic_store_explicit(&inner->is_inner, true, memory_order_relaxed); /* other threads may use it, too */
  for (size_t i = 0; i < inner->inner.count; ++i) {
    if (!add_inner(graph, inner->inner.data[i])) {
      return false;
    }
  }
  return add_inner(graph, inner);
}

/* The cost of the node's types, and of a run: each value of the inner graphs is inferred, each output is copied. */
static int64_t count_values(const hr__node *node) {
  enum { ROUNDS = 4 };
  int64_t count = 0;
  for (int i = 0; i < 2 && node->inner[i] != NULL; ++i) {
    const hr_graph *inner = node->inner[i];
    count += (int64_t)inner->values.count - 1 + (int64_t)inner->outputs.count + inner->inner_values;
  }
  return count * (hr__node_is_loop(node) ? ROUNDS : 1);
}

/* ---- control flow ---- */

static const char *control_name(const hr__node *node) {
  static const char *const names[] = {"call", "if", "while", "for", "scan", "vmap"};
  return names[node->kind - HR__NODE_INNER];
}

/* Compares the numbers of inputs and outputs. */
static bool check_interface(hr_graph *graph, const hr__node *node, int arguments) {
  const hr_graph *body = node->inner[0], *other = node->inner[1];
  const char *name = control_name(node);
  size_t wanted = (size_t)arguments + (node->kind == HR__NODE_FOR);
  for (int i = 0; i < 2 && node->inner[i] != NULL; ++i) {
    if (node->inner[i]->inputs.count != wanted) {
      HR__GRAPH_REFUSE(graph, "%s: an inner graph has %zu inputs, expected %zu", name, node->inner[i]->inputs.count,
                       wanted);
      return false;
    }
  }
  if (node->kind == HR__NODE_IF && body->outputs.count != other->outputs.count) {
    HR__GRAPH_REFUSE(graph, "if: %zu and %zu outputs, expected as many", body->outputs.count, other->outputs.count);
    return false;
  }
  if (node->kind == HR__NODE_WHILE && other->outputs.count != 1) {
    HR__GRAPH_REFUSE(graph, "while: a condition of %zu outputs, expected one", other->outputs.count);
    return false;
  }
  bool is_right = node->carried_count >= 0 && node->sequence_count >= (node->kind == HR__NODE_SCAN) &&
                  node->sequence_count <= arguments - node->carried_count &&
                  (size_t)node->carried_count <= body->outputs.count;
  if (!is_right) {
    HR__GRAPH_REFUSE(graph, "%s: %d carried values and %d sequences of %d arguments and %zu outputs", name,
                     node->carried_count, node->sequence_count, arguments, body->outputs.count);
  }
  return is_right;
}

/* Adds a node with its inner graphs, or none of them. */
static hr_value add_with_inner(hr_graph *graph, hr__node *node) {
  size_t before = graph->inner.count;
  bool is_right = hr__graph_can_change(graph);
  for (int i = 0; is_right && i < 2 && node->inner[i] != NULL; ++i) {
    is_right = use_inner(graph, node->inner[i]);
  }
  int64_t values = is_right ? count_values(node) : 0;
  if (graph->inner_values + values > HR_GRAPH_INNER_MAX) {
    HR__GRAPH_REFUSE(graph, "graph: more than %d values of inner graphs", HR_GRAPH_INNER_MAX);
  }
  hr_value first = graph->failure == HR_OK ? hr__graph_add_node(graph, node) : 0;
  if (first == 0) {
    drop_inner(graph, before);
    return 0;
  }
  for (int i = 0; i < 2 && node->inner[i] != NULL; ++i) {
    graph->depth = graph->depth > node->inner[i]->depth + 1 ? graph->depth : node->inner[i]->depth + 1;
  }
  graph->inner_values += values;
  return first;
}

/* Adds a node whose inner graphs and counts are set. first: NULL, or the condition or count. */
static hr_value add_control(hr_graph *graph, hr__node *node, const hr_value *first, int count,
                            const hr_value *arguments) {
  if (graph->failure != HR_OK) {
    return 0;
  }
  int own = first != NULL;
  if (count < 0 || count > HR__GRAPH_OPERANDS_MAX - 1 || !check_interface(graph, node, count)) {
    return HR__GRAPH_REFUSE(graph, "%s: %d arguments, expected at most %d", control_name(node), count,
                            HR__GRAPH_OPERANDS_MAX - 1);
  }
  hr_value *inputs = HR_ARENA_ARRAY(&graph->arena, hr_value, (size_t)(own + count) + 1);
  if (inputs == NULL) {
    return hr__graph_no_memory(graph, control_name(node));
  }
  for (int i = 0; i < own + count; ++i) {
    inputs[i] = i < own ? *first : arguments[i - own];
    if (inputs[i] == 0) {
      return HR__GRAPH_REFUSE(graph, "%s: argument %d is absent", control_name(node), i - own);
    }
  }
  node->inputs = inputs, node->input_count = own + count;
  node->result_count = (int)node->inner[0]->outputs.count;
  return add_with_inner(graph, node);
}

hr_value hr_graph_call(hr_graph *graph, hr_graph *callee, int count, const hr_value *arguments) {
  hr__node node = {.kind = HR__NODE_INNER, .inner = {callee}};
  return add_control(graph, &node, NULL, count, arguments);
}

hr_value hr_graph_if(hr_graph *graph, hr_value condition, hr_graph *then, hr_graph *otherwise, int count,
                     const hr_value *arguments) {
  hr__node node = {.kind = HR__NODE_IF, .inner = {then, otherwise}};
  return add_control(graph, &node, &condition, count, arguments);
}

hr_value hr_graph_while(hr_graph *graph, hr_graph *condition, hr_graph *body, int carried_count, int count,
                        const hr_value *arguments) {
  hr__node node = {.kind = HR__NODE_WHILE, .inner = {body, condition}, .carried_count = carried_count};
  return add_control(graph, &node, NULL, count, arguments);
}

hr_value hr_graph_for(hr_graph *graph, hr_value iterations, hr_graph *body, int carried_count, int count,
                      const hr_value *arguments) {
  hr__node node = {.kind = HR__NODE_FOR, .inner = {body}, .carried_count = carried_count};
  return add_control(graph, &node, &iterations, count, arguments);
}

hr_value hr_graph_scan(hr_graph *graph, hr_graph *body, int carried_count, int sequence_count, int count,
                       const hr_value *arguments) {
  hr__node node = {
      .kind = HR__NODE_SCAN, .inner = {body}, .carried_count = carried_count, .sequence_count = sequence_count};
  return add_control(graph, &node, NULL, count, arguments);
}

hr_value hr_graph_vmap(hr_graph *graph, hr_graph *callee, int count, const hr_value *arguments, const int *in_axes,
                       const int *out_axes) {
  hr__node node = {.kind = HR__NODE_VMAP, .inner = {callee}};
  size_t results = callee->outputs.count;
  if (graph->failure != HR_OK) {
    return 0;
  }
  if (count < 1 || count > HR__GRAPH_OPERANDS_MAX - 1) {
    return HR__GRAPH_REFUSE(graph, "vmap: %d arguments, expected 1 to %d", count, HR__GRAPH_OPERANDS_MAX - 1);
  }
  int *axes = HR_ARENA_ARRAY(&graph->arena, int, (size_t)count + results + 1);
  if (axes == NULL) {
    return hr__graph_no_memory(graph, "a vmap");
  }
  memcpy(axes, in_axes, (size_t)count * sizeof *axes);
  memcpy(axes + count, out_axes, results * sizeof *axes);
  node.axes = axes;
  bool is_right = callee->failure == HR_OK && callee->inputs.count == (size_t)count; /* else refused below */
  hr_status status = is_right ? hr__graph_check_slices(callee, in_axes, out_axes) : HR_OK;
  return status == HR_OK ? add_control(graph, &node, NULL, count, arguments) : hr__graph_fail(graph, status);
}

hr_value hr__graph_add_control(hr_graph *graph, const hr__node *like, hr_graph *const *inner, const hr_value *inputs) {
  if (like->kind == HR__NODE_VMAP) {
    return hr_graph_vmap(graph, inner[0], like->input_count, inputs, like->axes, like->axes + like->input_count);
  }
  hr__node node = {.kind = like->kind,
                   .inner = {inner[0], inner[1]},
                   .carried_count = like->carried_count,
                   .sequence_count = like->sequence_count};
  int own = hr__node_first_argument(like);
  return add_control(graph, &node, own > 0 ? inputs : NULL, like->input_count - own, inputs + own);
}

hr_value hr_graph_read(hr_graph *graph, hr_value x) {
  if (graph->failure != HR_OK) {
    return 0;
  }
  const hr__node *last = graph->nodes.count > 0 ? &hr_vector_last(&graph->nodes) : NULL;
  bool is_second = last != NULL && last->kind == HR__NODE_READ && last->symbol == 0;
  hr__node node = {.kind = HR__NODE_READ, .result_count = 1, .input_count = 1, .symbol = is_second};
  node.inputs = hr__graph_copy_values(graph, 1, &x);
  if (node.inputs == NULL) {
    return hr__graph_no_memory(graph, "a read");
  }
  return x != 0 ? hr__graph_add_node(graph, &node) : HR__GRAPH_REFUSE(graph, "graph: read: its input is absent");
}

int hr_graph_inner_count(const hr_graph *graph) {
  return (int)graph->inner.count;
}
const hr_graph *hr_graph_inner(const hr_graph *graph, int index) {
  return index >= 0 && (size_t)index < graph->inner.count ? graph->inner.data[index] : NULL;
}

/* ---- variables ---- */

static int find_variable(const hr_graph *graph, hr_value variable) {
  for (size_t i = 0; i < graph->variables.count; ++i) {
    if (graph->variables.data[i] == variable) {
      return (int)i;
    }
  }
  return -1;
}

/* The value must have the variable's type for all symbols. */
static bool has_type_of(const hr_graph *graph, hr_value variable, hr_value value) {
  hr_type wanted, type;
  hr_status_ignore(hr_graph_type(graph, variable, &wanted));
  hr_status_ignore(hr_graph_type(graph, value, &type));
  bool is_same = wanted.dtype == type.dtype && wanted.rank == type.rank &&
                 hr__graph_node_of(graph, value)->kind != HR__NODE_NUMBER;
  for (int d = 0; is_same && d < type.rank; ++d) {
    is_same = type.dims[d] == wanted.dims[d] || type.dims[d] < 0;
  }
  return is_same;
}

void hr_graph_assign(hr_graph *graph, hr_value variable, hr_value value) {
  char text[HR__GRAPH_NAME_TEXT];
  if (graph->failure != HR_OK) {
    return;
  }
  int index = find_variable(graph, variable);
  if (index < 0 || value <= 0 || (size_t)value >= graph->values.count) {
    HR__GRAPH_REFUSE(graph, "graph: assign: values %d and %d, expected a variable and a value", (int)variable,
                     (int)value);
    return;
  }
  if (graph->assigned.data[index] != 0 || !has_type_of(graph, variable, value)) {
    HR__GRAPH_REFUSE(graph, "graph: assign: variable \"%s\" %s", hr__graph_label(graph, variable, text),
                     graph->assigned.data[index] != 0 ? "is assigned twice" : "and the value have different types");
    return;
  }
  graph->assigned.data[index] = value;
}

int hr_graph_variable_count(const hr_graph *graph) {
  return (int)graph->variables.count;
}
hr_value hr_graph_variable_value(const hr_graph *graph, int index) {
  return index >= 0 && (size_t)index < graph->variables.count ? graph->variables.data[index] : 0;
}
hr_value hr_graph_assigned_value(const hr_graph *graph, int index) {
  return index >= 0 && (size_t)index < graph->assigned.count ? graph->assigned.data[index] : 0;
}
