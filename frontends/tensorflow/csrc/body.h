/* body.h: the nodes of a cluster, as the optimizer writes them and the cluster's kernel reads them.
 *
 * Values have numbers: first the inputs, then the variables, then the results of the nodes in order. A body is a
 * message of protocol buffers:
 *
 *   1 inputs, 2 variables (numbers), 3 a node, repeated: { 1 NodeDef, 2 values of its inputs, 3 dtypes of its results
 * }, 4 the values that are results, 5 a loop, repeated: { 1 its first node, 2 how many nodes follow one another }
 *
 * Nodes use earlier values, but for Merge, which begins a loop: its second input is the value of the last iteration.
 *
 * Any bytes are safe.
 */
#ifndef HEADRACE_TENSORFLOW_BODY_H_
#define HEADRACE_TENSORFLOW_BODY_H_

#include "node.h"
#include "tensor_proto.h"

enum { HTF_BODY_INPUTS = 1, HTF_BODY_VARIABLES = 2, HTF_BODY_NODE = 3, HTF_BODY_RESULTS = 4, HTF_BODY_LOOP = 5 };
enum { HTF_BODY_LOOP_FIRST = 1, HTF_BODY_LOOP_COUNT = 2 };
enum { HTF_BODY_NODE_DEF = 1, HTF_BODY_NODE_INPUTS = 2, HTF_BODY_NODE_TYPES = 3, HTF_BODY_NODE_IS_HOST = 4 };

typedef struct htf_body_node {
  char *name;
  htf_kernel *kernel;
  htf_host constant; /* of Const */
  const int64_t *inputs, *types;
  int input_count, output_count;
  int first_output; /* the number of its first result */
  bool is_condition, is_merge;
  bool is_invariant; /* in all iterations of its loop the same */
} htf_body_node;

typedef struct htf_body_loop {
  int first, count; /* nodes */
} htf_body_loop;

/* Uses of a variable beside reads. Scatters write its elements in place, others give it another value. */
typedef enum htf_variable_use { HTF_GATHERS = 1, HTF_SCATTERS = 2, HTF_UPDATES = 4 } htf_variable_use;

typedef struct htf_body {
  int input_count, variable_count, node_count, value_count, result_count;
  htf_body_node *nodes;
  htf_body_loop *loops; /* in order */
  int loop_count;
  uint8_t *uses; /* of each variable: a sum of htf_variable_use */
  int64_t *results;
  int64_t *numbers; /* of all nodes */
} htf_body;

/* True if only elements at indices are used: TensorFlow then does not make a copy of a shared variable. */
static inline bool htf_body_is_sparse(const htf_body *body, int variable) {
  return body->uses[variable] != 0 && (body->uses[variable] & HTF_UPDATES) == 0;
}

/* A failure leaves nothing to free. */
HR_MUST_USE hr_status htf_body_read(hr__span bytes, htf_body *out_body);
void htf_body_fini(htf_body *body);

/* The place of a row: map.def, inside.def (views, variables), lists.def, or among the operations of loops. */
typedef enum htf_row_kind { HTF_ROW_MAP = 0, HTF_ROW_VIEW, HTF_ROW_LIST, HTF_ROW_LOOP } htf_row_kind;

/* The row of an operation that a body records; NULL: there is none. */
const htf_row *htf_find_inside(hr__span op, htf_row_kind *out_kind);
/* The row of host.def. */
const htf_row *htf_find_host(hr__span op, bool *out_takes_dims);

#endif
