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
   * those of the inputs, with the numbers that decide what is recorded. Results have references of the caller's. */
  hr_status (*run)(void *arg, const hr_graph *inner, const hr_tensor *const *inputs, const hr__fact *const *facts,
                   hr_tensor *out_results, bool *out_is_done);
  int64_t operations_left; /* after so many operations the evaluation fails */
  int64_t waits;
  int64_t checked_ns;  /* when a loop looked for an interrupt */
  bool compiles_loops; /* the stream is a capture: a loop may be one record (graph_evaluate_loop.c) */
  bool is_in_loop;     /* in the body of one, whose branches are records, too */
  int endless_loops;   /* so many of these have conditions */
  int transforms;      /* tapes and vmaps that see the records now: inner graphs have no instances */
  bool needs_stream;   /* set: a failure that a stream in place of a capture would not have */
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

/* ---- inner graphs ---- */

/* An input or an output of an inner graph: a tensor with a reference, or numbers of the host without a buffer. */
typedef struct hr__item {
  hr_tensor tensor;
  hr__fact fact; /* in the evaluation's arena */
} hr__item;

void hr__items_release(int count, hr__item *items);
/* Sets the fact of a tensor. */
HR_MUST_USE hr_status hr__item_note_type(hr__evaluation *e, hr__item *x);
/* The numbers of an item in memory of the device, which is what an instance reads. */
HR_MUST_USE hr_status hr__item_write(hr__evaluation *e, hr__item *x);
/* The arguments of a node, behind `before` zeroed items; in the evaluation's scratch. */
HR_MUST_USE hr_status hr__evaluate_arguments(hr__evaluation *e, const hr__node *node, int before, hr__item **out_items);
/* outputs: zeroed; released by the caller after a failure, too. stream: the evaluation's, or NULL. */
HR_MUST_USE hr_status hr__evaluate_inner(hr__evaluation *e, hr_stream *stream, const hr__node *node,
                                         const hr_graph *inner, hr__item *inputs, hr__item *outputs);
/* The same without instances. */
HR_MUST_USE hr_status hr__evaluate_nodes(hr__evaluation *e, hr_stream *stream, const hr_graph *inner,
                                         const hr_tensor *const *inputs, const hr__fact *const *facts,
                                         hr__item *outputs);
/* A loop whose arguments are there. */
typedef struct hr__loop_arguments {
  const hr__node *node;
  int before, input_count; /* before: 1 for a number of the iteration among the inputs */
  hr__item *inputs;        /* of the body; those of slices are empty */
  hr__item *sequences;
  int64_t count; /* of iterations; INT64_MAX: a condition ends them */
} hr__loop_arguments;
/* Records the loop as one operation, if that is possible. results: zeroed; released by the caller after a failure. */
HR_MUST_USE hr_status hr__evaluate_loop_at_once(hr__evaluation *e, const hr__loop_arguments *arguments,
                                                hr__item *results, bool *out_is_done);
/* The same for a branch in the body of such a loop. */
HR_MUST_USE hr_status hr__evaluate_choice_at_once(hr__evaluation *e, const hr__node *node, const hr__item *condition,
                                                  hr__item *arguments, hr__item *results, bool *out_is_done);
/* results: zeroed; released by the caller after a failure. */
HR_MUST_USE hr_status hr__evaluate_vmap(hr__evaluation *e, const hr__node *node, hr__item *results);

/* Nodes of control flow, and reads. */
HR_MUST_USE hr_status hr__evaluate_control(hr__evaluation *e, const hr__node *node);
HR_MUST_USE hr_status hr__evaluate_read(hr__evaluation *e, const hr__node *node);

#endif
