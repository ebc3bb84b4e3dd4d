/* contexts.h: when the nodes of a graph with loops and conditions run.
 *
 * TensorFlow lowers these to nodes: Switch passes a value to one of two outputs, and what depends on the other one does
 * not run; Merge passes the one that comes. Enter passes a value into the frame of a loop, NextIteration to its next
 * iteration, Exit out of it. The context of a node is the set of branches and frames that it depends on: nodes of one
 * context run together, or not.
 */
#ifndef HEADRACE_TENSORFLOW_CONTEXTS_H_
#define HEADRACE_TENSORFLOW_CONTEXTS_H_

#include "loops.h"

typedef struct htf_context {
  int context; /* 0: always runs */
  int frame;   /* of the innermost loop: its first Enter plus 1; 0: none */
} htf_context;

/* The contexts of nodes that `order` lists, inputs first. Loops in clusters are as
 * other nodes. UNIMPLEMENTED for graphs with other nodes of this kind, and for very deep ones. */
HR_MUST_USE hr_status htf_find_contexts(const htf_graph *graph, const int *order, const htf_loops *loops,
                                        htf_context *out_contexts);

#endif
