/* graph_attention.h: attention that is composed of products and a softmax, as one operation. */
#ifndef HEADRACE_GRAPH_GRAPH_ATTENTION_H_
#define HEADRACE_GRAPH_GRAPH_ATTENTION_H_

#include "graph/graph_node.h"

/* softmax(scale q keys + mask) v, as values of the graph that was searched. */
typedef struct hr__attention {
  hr_value q, keys, v; /* keys: [.., E, S] */
  hr_value mask;       /* 0: none; bools select */
  int mask_rank;       /* 0: it keeps its dims */
  int64_t mask_dims[HR_RANK_MAX];
  bool is_inverted; /* bools select what is hidden */
  bool is_causal;   /* without a mask */
  bool is_turned;   /* v [.., V, S] times the transposed probabilities: the result is [.., V, L] */
  double scale, hidden;
} hr__attention;

/* A search for known values, whose length is bounded: one that runs out finds nothing more. */
enum { HR__KNOWN_STEPS = 1 << 25 };
typedef struct hr__known {
  const hr_graph *graph;
  int64_t steps; /* that are left: nodes and elements of constants, of all values */
  int visits;    /* of nodes, for the current value */
} hr__known;

/* True if the node is the last product of an attention whose other results nobody else reads.
 * reads: for each value of the graph, how often live nodes and outputs read it. */
bool hr__graph_find_attention(hr__known *known, const int *reads, const hr__node *node, hr__attention *out_attention);
/* Adds the operation to a graph, of values of this graph. */
hr_value hr__graph_add_attention(hr_graph *graph, const hr__attention *attention);

/* ---- parts (graph_softmax.c) ---- */

/* The operand of which a value is the softmax of the last dim, if nothing else reads the values in between; 0: none. */
hr_value hr__graph_softmax_operand(hr__known *known, const int *reads, hr_value shares);
/* Goes back over views that nothing else reads, to a value with the same rows in the same order. Dims of 1 may come and
 * go. is_turned: x is the transposed matrices of these rows, whose dims are no symbols. 0: there is none. */
hr_value hr__graph_same_rows(const hr_graph *graph, const int *reads, hr_value x, bool is_turned);

/* ---- numbers of values (graph_constants.c) ---- */

/* True if the value is one number for all numbers of the symbols: a constant of one element, or computed from such and
 * from dims of shapes. */
bool hr__graph_known_number(hr__known *known, hr_value value, double *out_number);

/* Element [.., l, s] of a matrix: `at` for s <= l, `above` for s > l. */
typedef struct hr__triangle {
  double at, above;
} hr__triangle;
/* True if the value is such a matrix, whatever its dims. */
bool hr__graph_known_triangle(hr__known *known, hr_value value, hr__triangle *out_triangle);

/* True if `count` dims of two values, from these places on, are equal for all numbers of the symbols. */
bool hr__graph_same_dims(const hr_graph *graph, hr_value x, int x_first, hr_value y, int y_first, int count);
int hr__graph_rank(const hr_graph *graph, hr_value value);

#endif
