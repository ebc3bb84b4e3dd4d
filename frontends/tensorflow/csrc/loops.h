/* loops.h: loops of a graph whose iterations a cluster records one behind another.
 *
 * TensorFlow lowers `while` to a frame: Enter, Merge and NextIteration of each variable of the loop, one LoopCond,
 * Switch to the body or to Exit. Such a frame can be in a cluster as a whole, if its condition is known on the host
 * when the cluster is recorded. Frames with another frame or other branches in them stay TensorFlow's.
 */
#ifndef HEADRACE_TENSORFLOW_LOOPS_H_
#define HEADRACE_TENSORFLOW_LOOPS_H_

#include "graphdef.h"

typedef struct htf_loop {
  hr__span name;
  int parent;      /* the loop around it; -1: none */
  bool is_outside; /* it stays TensorFlow's */
  int condition;   /* its LoopCond; -1: none yet */
} htf_loop;

typedef struct htf_loops {
  htf_loop *loops;
  int count;
  int *of; /* the loop of each node; -1: none */
  /* Reads of variables that were moved out of loops, with the inputs that they had. */
  struct htf_moved *moved;
  int moved_count;
} htf_loops;

/* Finds the loops of a graph. `order` lists its nodes, inputs first. */
HR_MUST_USE hr_status htf_loops_find(const htf_graph *graph, const int *order, htf_loops *out_loops);
void htf_loops_fini(htf_graph *graph, htf_loops *loops);

/* The loop of a node that is in a cluster as a whole; -1: none. */
static inline int htf_loop_of(const htf_loops *loops, int node) {
  int loop = loops->of[node];
  return loop >= 0 && !loops->loops[loop].is_outside ? loop : -1;
}
/* True if any loop is in a cluster. */
bool htf_has_loops(const htf_loops *loops);
/* Moves reads of variables out of loops that are in clusters, and back into others. They read what they would in the
 * first iteration, and no iteration assigns. */
HR_MUST_USE hr_status htf_loops_move_reads(htf_graph *graph, htf_loops *loops);
/* Orders nodes, with those of each loop one behind another. The old order is overwritten. False: a cycle. */
HR_MUST_USE hr_status htf_loops_order(const htf_graph *graph, const htf_loops *loops, int *order, bool *out_is_ordered);

#endif
