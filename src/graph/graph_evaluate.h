/* graph_evaluate.h: a graph applied to a stream or a capture.
 *
 * A runner is what all evaluations of a run share: the constants that a session has on its device, and the instances of
 * inner graphs. A zeroed one with `operations_left` is fine.
 */
#ifndef HEADRACE_GRAPH_GRAPH_EVALUATE_H_
#define HEADRACE_GRAPH_GRAPH_EVALUATE_H_

#include "graph/graph_node.h"

enum { HR__GRAPH_INFERRED_MAX = 1 << 21 }; /* operations of an application that only infers */

typedef struct hr__runner {
  void *arg;
  /* (optional) The graph's constants by value, with a buffer for each that has one; NULL: none. */
  const hr_tensor *(*constants)(void *arg, const hr_graph *graph);
  /* (optional) Runs an inner graph. Sets false, and does nothing, if it can't. The inputs have buffers. facts: NULL, or
   * those of the inputs, whose numbers it needs. Results have references of the caller's. */
  hr_status (*run)(void *arg, const hr_graph *inner, const hr_tensor *const *inputs, const hr__fact *const *facts,
                   hr_tensor *out_results, bool *out_is_done);
  int64_t operations_left; /* after so many operations the evaluation fails */
  int64_t waits;
  int tapes;         /* that record now */
  bool needs_stream; /* set: a failure that a stream in place of a capture would not have */
} hr__runner;

typedef struct hr__evaluation {
  hr__frame frame;
  hr_arena arena, scratch;
  hr_stream *stream;                  /* NULL: infers */
  hr_tensor *tensors;                 /* by value, with references; without a buffer: not there yet */
  const hr_tensor *constants;         /* the runner's, or NULL */
  hr_tape **tapes;                    /* by node; NULL: none */
  const hr_tensor *const *inputs;     /* of an inner graph without a buffer if the host knows the numbers */
  const hr__fact *const *input_facts; /* of an inner graph; else NULL */
  const hr_tensor *const *variables;  /* NULL: initial values */
  hr__runner *runner;
  int64_t host_bytes;
  int input_count, variable_count; /* those that have had their turn */
  int64_t symbols[HR_GRAPH_SYMBOLS_MAX];
} hr__evaluation;

/* hr_graph_apply with a runner. facts: NULL, or of the inputs, for their numbers. variables: NULL, or tensors in their
 * order; then out_results has the assigned values behind the outputs: those of variables that are not assigned are the
 * variables. */
HR_MUST_USE hr_status hr__graph_evaluate(const hr_graph *graph, hr_stream *stream, const hr_tensor *const *inputs,
                                         const hr__fact *const *facts, const hr_tensor *const *variables,
                                         hr__runner *runner, hr_tensor *out_results);
/* Evaluates all nodes of a graph for the inputs of `e`. hr__evaluation_finish frees it in any case. */
HR_MUST_USE hr_status hr__evaluation_run(hr__evaluation *e, const hr_graph *graph);
void hr__evaluation_finish(hr__evaluation *e);

/* Makes sure that a value is there as a tensor. Numbers stay numbers, unless they are outputs. */
HR_MUST_USE hr_status hr__evaluate_tensor(hr__evaluation *e, hr_value value, bool is_output);
/* A new row-major tensor with elements of the host; without a stream its type alone. */
HR_MUST_USE hr_status hr__evaluate_write(hr__evaluation *e, hr_dtype dtype, int rank, const int64_t *dims,
                                         const void *elements, hr_tensor *out);
/* Sets the facts of the tensors of a node's results. */
HR_MUST_USE hr_status hr__evaluate_types(hr__evaluation *e, const hr__node *node);
/* Nodes of control flow, and reads. */
HR_MUST_USE hr_status hr__evaluate_control(hr__evaluation *e, const hr__node *node);
HR_MUST_USE hr_status hr__evaluate_read(hr__evaluation *e, const hr__node *node);

#endif
