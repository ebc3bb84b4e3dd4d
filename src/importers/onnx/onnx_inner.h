/* onnx_inner.h: branches and bodies of a model as inner graphs (graph.h).
 *
 * While an inner graph is built, the importer adds to it. A value of the graph around it that the subgraph names is
 * *captured* at its first use: constants and what the host computes are there again, and other values are arguments.
 */
#ifndef HEADRACE_IMPORTERS_ONNX_ONNX_INNER_H_
#define HEADRACE_IMPORTERS_ONNX_ONNX_INNER_H_

#include "importers/onnx/onnx_importer.h"

/* Dims of the graph around it that are the same at all points have one symbol. */
typedef struct hr__onnx_inner_dim {
  const char *symbol;
  bool is_set[HR__GRAPH_POINTS];
  int64_t sizes[HR__GRAPH_POINTS];
} hr__onnx_inner_dim;

struct hr__onnx_inner {
  hr__onnx_importer *importer;
  hr_graph *graph, *outer; /* a reference of `graph` */
  hr__onnx_inner *around;  /* which `outer` is the graph of; NULL: outer is the model's */
  uint64_t outer_number;
  int given_count; /* inputs in front of those for captured values */
  int fresh_count; /* symbols with names of their own */
  hr_arena arena;
  HR_VECTOR(hr_value) map;      /* by value of `outer`; 0: not there */
  HR_VECTOR(hr_value) captured; /* of `outer`: the arguments behind the given ones */
  HR_VECTOR(hr__onnx_inner_dim) dims;
};

/* From here to `end` the importer adds to a new graph. Both are paired; fini releases it, also after a failure. */
HR_MUST_USE hr_status hr__onnx_inner_begin(hr__onnx_importer *importer, hr__onnx_inner *inner);
void hr__onnx_inner_end(hr__onnx_inner *inner);
void hr__onnx_inner_fini(hr__onnx_inner *inner);

/* Adds a given input for values like one of the graph around it, or for slices of it without its first `skipped` dims.
 * Bit d of free_dims: dim d of the input has a symbol of its own. If the graph has the name, it gets another one. */
hr_value hr__onnx_inner_input(hr__onnx_inner *inner, const char *name, hr_value like, int skipped, unsigned free_dims);
/* Adds an argument for a value that is not captured yet. */
hr_value hr__onnx_inner_argument(hr__onnx_inner *inner, hr_value outer);
/* The value that stands for one of the graph around it. Failures are the inner graph's. */
hr__onnx_value hr__onnx_inner_capture(hr__onnx_inner *inner, const hr__onnx_value *outer);
/* Adds the next output, which has to be a tensor. */
HR_MUST_USE hr_status hr__onnx_inner_output(hr__onnx_inner *inner, const hr__onnx_value *value);
/* Maps a subgraph in the inner graph: results are those of its outputs, `wanted` of them. */
HR_MUST_USE hr_status hr__onnx_inner_run(hr__onnx_inner *inner, hr__onnx_node *node, hr__span graph, int input_count,
                                         const hr__onnx_value *inputs, int wanted, hr__onnx_value *out_results);

#endif
