/* graph_slices.c: which values of a vmap's function differ between slices, and what slices may not decide.
 *
 * A vmap records its function once for all slices. Conditions of branches and loops, counts, reads and dims that depend
 * on data would differ between them. They are refused when the vmap is built; a run refuses what is not found here: a
 * value that differs after one of two branches alone, and loops beyond a limit of work.
 */
#include "functional/functions.h"
#include "graph/graph_node.h"

enum { VISITS_MAX = 1 << 20 }; /* of nodes; each loop visits its body until nothing changes */

typedef struct progress {
  int64_t visits;
} progress;

/* A graph with flags by value: it differs between slices. */
typedef struct slices {
  progress *progress;
  const hr_graph *graph;
  bool *differs;
} slices;

static hr_status no_memory(void) {
  return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "graph: no host memory for a vmap");
}

static hr_status refuse(const slices *s, const hr__node *node, const char *what) {
  static const char *const names[] = {"read", "call", "if", "while", "for", "scan"};
  char text[HR__GRAPH_NAME_TEXT];
  return hr_status_make(HR_STATUS_INVALID_ARGUMENT,
                        "vmap: the %s of %s \"%s\" differs between slices, expected one that is the same in all", what,
                        node->kind == HR__NODE_CALL ? hr_functional_name(node->function)
                                                    : names[node->kind - HR__NODE_READ],
                        hr__graph_label(s->graph, node->first, text));
}

static void note_live(void *arg, const hr_value *value) {
  const slices *s = arg;
  s->differs[*value] = true;
}

/* The nodes that outputs need, in the flags of their first results. */
static void find_live(const slices *s) {
  const hr_graph *graph = s->graph;
  for (size_t i = 0; i < graph->outputs.count; ++i) {
    s->differs[graph->outputs.data[i].value] = true;
  }
  for (size_t n = graph->nodes.count; n-- > 0;) {
    const hr__node *node = &graph->nodes.data[n];
    bool is_live = false;
    for (int i = 0; i < node->result_count; ++i) {
      is_live |= s->differs[node->first + i];
    }
    s->differs[node->first] = is_live;
    if (is_live) {
      hr__node_each_input(node, note_live, (void *)(uintptr_t)s);
    }
  }
}

static bool any_differs(const slices *s, const hr__node *node, int first) {
  bool any = false;
  for (int i = first; i < node->input_count; ++i) {
    any |= node->inputs[i] != 0 && s->differs[node->inputs[i]];
  }
  return any;
}

static hr_status visit_graph(progress *made, const hr_graph *graph, const bool *inputs, bool *outputs);

/* ---- control flow ---- */

typedef struct body {
  bool *inputs, *outputs, *others; /* others: of a second graph */
} body;

static bool begin_body(const slices *s, const hr__node *node, body *b) {
  size_t inputs = node->inner[0]->inputs.count, outputs = node->inner[0]->outputs.count;
  int first = hr__node_first_argument(node), own = node->kind == HR__NODE_FOR; /* the number of the iteration */
  b->inputs = hr_calloc(inputs + 2 * outputs + 1, sizeof *b->inputs);
  if (b->inputs == NULL) {
    return false;
  }
  b->outputs = b->inputs + inputs, b->others = b->outputs + outputs;
  for (int i = first; i < node->input_count; ++i) {
    b->inputs[own + i - first] = s->differs[node->inputs[i]];
  }
  return true;
}

/* Visits the body until what it carries stays the same. */
static hr_status visit_loop(const slices *s, const hr__node *node, const body *b) {
  int own = node->kind == HR__NODE_FOR;
  for (bool is_changed = true; is_changed && s->progress->visits < VISITS_MAX;) {
    is_changed = false;
    HR_RETURN_IF_ERROR(visit_graph(s->progress, node->inner[0], b->inputs, b->outputs));
    for (int i = 0; i < node->carried_count; ++i) {
      is_changed |= b->outputs[i] && !b->inputs[own + i];
      b->inputs[own + i] |= b->outputs[i];
    }
  }
  memcpy(b->outputs, b->inputs + own, (size_t)node->carried_count * sizeof *b->outputs);
  bool decides = false;
  if (node->kind == HR__NODE_WHILE) {
    HR_RETURN_IF_ERROR(visit_graph(s->progress, node->inner[1], b->inputs, &decides));
  }
  return decides ? refuse(s, node, "condition") : HR_OK;
}

static hr_status visit_branches(const slices *s, const hr__node *node, const body *b) {
  HR_RETURN_IF_ERROR(visit_graph(s->progress, node->inner[0], b->inputs, b->outputs));
  HR_RETURN_IF_ERROR(visit_graph(s->progress, node->inner[1], b->inputs, b->others));
  for (int i = 0; i < node->result_count; ++i) {
    b->outputs[i] &= b->others[i];
  }
  return HR_OK;
}

static hr_status visit_control(const slices *s, const hr__node *node) {
  body b;
  if (hr__node_first_argument(node) > 0 && s->differs[node->inputs[0]]) {
    return refuse(s, node, node->kind == HR__NODE_IF ? "condition" : "count");
  }
  if (!begin_body(s, node, &b)) {
    return no_memory();
  }
  hr_status status = hr__node_is_loop(node)      ? visit_loop(s, node, &b)
                     : node->kind == HR__NODE_IF ? visit_branches(s, node, &b)
                                                 : visit_graph(s->progress, node->inner[0], b.inputs, b.outputs);
  memcpy(&s->differs[node->first], b.outputs, (size_t)node->result_count * sizeof *b.outputs);
  hr_free(b.inputs);
  return status;
}

/* ---- graphs ---- */

static hr_status visit_node(const slices *s, const hr__node *node) {
  if (hr__node_is_control(node)) {
    return visit_control(s, node);
  }
  bool differs = node->kind != HR__NODE_SHAPE && any_differs(s, node, 0);
  if (differs && (node->kind == HR__NODE_READ || hr__node_is_unknown(node))) {
    return refuse(s, node, node->kind == HR__NODE_READ ? "value" : "size");
  }
  for (int i = 0; i < node->result_count; ++i) {
    s->differs[node->first + i] = differs;
  }
  return HR_OK;
}

static hr_status visit_nodes(const slices *s, const bool *inputs) {
  const hr_graph *graph = s->graph;
  hr_status status = HR_OK;
  find_live(s);
  for (size_t n = 0, input = 0; n < graph->nodes.count && status == HR_OK; ++n) {
    const hr__node *node = &graph->nodes.data[n];
    if (node->kind == HR__NODE_INPUT) {
      s->differs[node->first] = inputs[input++];
    } else if (s->differs[node->first] && ++s->progress->visits < VISITS_MAX) {
      status = visit_node(s, node);
    }
  }
  return status;
}

/* Sets which outputs differ, if these inputs do. */
static hr_status visit_graph(progress *made, const hr_graph *graph, const bool *inputs, bool *outputs) {
  const slices s = {made, graph, hr_calloc(graph->values.count, sizeof(bool))};
  if (s.differs == NULL) {
    return no_memory();
  }
  hr_status status = visit_nodes(&s, inputs);
  for (size_t i = 0; i < graph->outputs.count && made->visits < VISITS_MAX; ++i) {
    outputs[i] = s.differs[graph->outputs.data[i].value];
  }
  hr_free(s.differs);
  return status;
}

hr_status hr__graph_check_slices(const hr_graph *callee, const int *in_axes, const int *out_axes) {
  progress made = {0};
  size_t inputs = callee->inputs.count, outputs = callee->outputs.count;
  bool *differs = hr_calloc(inputs + outputs + 1, sizeof *differs);
  if (differs == NULL) {
    return no_memory();
  }
  for (size_t i = 0; i < inputs; ++i) {
    differs[i] = in_axes[i] >= 0;
  }
  hr_status status = visit_graph(&made, callee, differs, differs + inputs);
  for (size_t i = 0; i < outputs && status == HR_OK; ++i) {
    if (differs[inputs + i] && out_axes[i] < 0) {
      status = hr_status_make(HR_STATUS_INVALID_ARGUMENT,
                              "vmap: result %zu differs between slices, but has no axis for them", i);
    }
  }
  hr_free(differs);
  return status;
}
