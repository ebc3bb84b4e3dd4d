/* graph_cost.c: the arithmetic of a graph, counted from the dims of its values. */
#include "functional/functions.h"
#include "graph/graph_node.h"

/* At the point where symbols are 1. */
static const hr__fact *fact_of(const hr_graph *graph, hr_value value) {
  const hr__graph_value *v = hr__graph_value_of(graph, value);
  return &v->facts[(v->varies ? HR__GRAPH_SMALL : 0) * v->stride];
}

static double count_of(const hr_graph *graph, hr_value value) {
  const hr__fact *fact = fact_of(graph, value);
  double count = fact->is_set ? 1 : 0;
  for (int d = 0; fact->is_set && d < fact->rank; ++d) {
    count *= (double)fact->dims[d];
  }
  return count;
}

static bool is_transcendental(hr_functional function) {
  static const hr_functional all[] = {
      HR_FUNCTIONAL_ACOS,    HR_FUNCTIONAL_ACOSH, HR_FUNCTIONAL_ASIN, HR_FUNCTIONAL_ASINH, HR_FUNCTIONAL_ATAN,
      HR_FUNCTIONAL_ATAN2,   HR_FUNCTIONAL_ATANH, HR_FUNCTIONAL_COS,  HR_FUNCTIONAL_COSH,  HR_FUNCTIONAL_ERF,
      HR_FUNCTIONAL_EXP,     HR_FUNCTIONAL_EXPM1, HR_FUNCTIONAL_LOG,  HR_FUNCTIONAL_LOG1P, HR_FUNCTIONAL_POW,
      HR_FUNCTIONAL_SIGMOID, HR_FUNCTIONAL_SIN,   HR_FUNCTIONAL_SINH, HR_FUNCTIONAL_TAN,   HR_FUNCTIONAL_TANH,
      HR_FUNCTIONAL_RSQRT,   HR_FUNCTIONAL_SQRT,  HR_FUNCTIONAL_CBRT};
  for (size_t i = 0; i < sizeof all / sizeof *all; ++i) {
    if (all[i] == function) {
      return true;
    }
  }
  return false;
}

/* The factors of each element of a product's result. */
static double depth_of(const hr_graph *graph, const hr__node *node) {
  const hr__fact *x = fact_of(graph, node->inputs[0]);
  return x->is_set && x->rank > 0 ? (double)x->dims[x->rank - 1] : 1;
}

/* Those of a convolution's, whose weights have the output channels first. */
static double window_of(const hr_graph *graph, const hr__node *node) {
  const hr__fact *weight = fact_of(graph, node->inputs[1]);
  double channels = weight->is_set && weight->rank > 0 ? (double)weight->dims[0] : 1;
  return channels > 0 ? count_of(graph, node->inputs[1]) / channels : 0;
}

static void add_call(const hr_graph *graph, const hr__node *node, hr_graph_cost *cost) {
  double results = 0, most = 0;
  hr_op op = hr__function_row_of(node->function)->op;
  for (int i = 0; i < node->result_count; ++i) {
    results += count_of(graph, node->first + i);
  }
  for (int i = 0; i < node->input_count; ++i) {
    double count = node->inputs[i] != 0 ? count_of(graph, node->inputs[i]) : 0;
    most = count > most ? count : most;
  }
  if (op == HR_OP_MATMUL) {
    cost->operations += 2 * results * depth_of(graph, node);
  } else if (op == HR_OP_CONV) {
    cost->operations += 2 * results * window_of(graph, node);
  } else if (is_transcendental(node->function)) {
    cost->transcendentals += results;
  } else if (op != HR_OP_NONE && op != HR_OP_COPY) {
    cost->operations += most > results ? most : results; /* a reduction reads more than it writes */
  }
}

/* Bodies count once, and of two branches both. */
static void add_graph(const hr_graph *graph, hr_graph_cost *cost) {
  for (size_t n = 0; n < graph->nodes.count; ++n) {
    const hr__node *node = &graph->nodes.data[n];
    if (node->kind == HR__NODE_CALL) {
      add_call(graph, node, cost);
    }
    for (int i = 0; i < 2 && hr__node_is_control(node); ++i) {
      if (node->inner[i] != NULL) {
        add_graph(node->inner[i], cost);
      }
    }
  }
}

void hr_graph_cost_of(const hr_graph *graph, hr_graph_cost *out_cost) {
  *out_cost = (hr_graph_cost){0};
  add_graph(graph, out_cost);
}
