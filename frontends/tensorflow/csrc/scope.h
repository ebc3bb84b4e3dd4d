/* scope.h: the values of a cluster's body while its nodes are recorded on a capture.
 *
 * A value is a tensor, a list of tensors, or a small tensor of the host (dims, axes, constants), which becomes one of
 * the device where a node needs it there. The nodes of a loop are recorded once for each iteration. Variables have
 * values, too: an assignment gives a variable another value, and the end of the capture writes the last one. So earlier
 * reads stay as they were.
 */
#ifndef HEADRACE_TENSORFLOW_SCOPE_H_
#define HEADRACE_TENSORFLOW_SCOPE_H_

#include "body.h"

typedef struct htf_scope_value {
  htf_value tensor; /* NULL: none yet */
  const htf_host *host;
  struct htf_sequence *list; /* of TensorFlow's lists (lists.h) */
  bool is_joined;            /* the tensor is the list's elements, one behind another */
  struct htf_sequence *of;   /* the tensor is element `index` of this list; NULL: of none */
  int64_t index;
} htf_scope_value;

/* Gives a host value a place in the device's memory, which stays for the cluster. */
typedef htf_value (*htf_place_host)(htf_node *node, void *arg, const htf_host *host);

struct htf_scope {
  const htf_body *body;
  const htf_body_node *current;
  htf_scope_value *values;
  htf_value *variables;  /* their last values */
  const int *first_same; /* of a variable: the first one that is the same */
  htf_place_host place_host;
  void *arg;
  struct htf_owned_host *owned;
  struct htf_sequence *lists;
  const htf_body_loop *loop; /* NULL: the walk is in none */
  int64_t iteration;
  bool goes_on;        /* the loop's condition */
  int64_t passed;      /* nodes of all iterations */
  int64_t passed_most; /* 0: no limit, and what iterations leave is freed */
  bool is_too_long;    /* the walk has ended at the limit, without a failure */
};

/* So many nodes a capture has at most. */
enum { HTF_PASSED_MAX = 1 << 18 };

/* The body's inputs and variables have their values already. Records all nodes; a failure names the node. */
void htf_scope_walk(htf_node *node);
void htf_scope_fini(htf_scope *scope);
/* The tensor of a value. */
htf_value htf_scope_tensor(htf_node *node, int64_t value);

/* ---- what rules call, by node_*.c and variables.c ---- */

int htf_scope_input_count(const htf_scope *scope);
int htf_scope_output_count(const htf_scope *scope);
int htf_scope_output_type(const htf_scope *scope, int index);
htf_value htf_scope_input(htf_node *node, int index);
/* True if an input is the same in all iterations of the loop. */
bool htf_scope_is_invariant(const htf_scope *scope, int index);
/* True for a list of tensors. */
bool htf_scope_is_list(htf_node *node, int index);
/* A value in any form; NULL after a failure. */
const htf_scope_value *htf_scope_value_at(htf_node *node, int index);
void htf_scope_put(htf_node *node, int index, htf_scope_value value);
/* NULL after a failure. */
const htf_host *htf_scope_host(htf_node *node, int index);
/* The dims of an input, wherever it is; -1 after a failure. */
int htf_scope_dims(htf_node *node, int index, const int64_t **out_dims);
void htf_scope_set(htf_node *node, int index, htf_value value);
/* Sets a result to a new tensor of the host, whose bytes the caller writes; NULL after a failure. */
htf_host *htf_scope_new_host(htf_node *node, int index, hr_dtype dtype, int rank, const int64_t *dims);
/* A vector of the host that no result is, as a tensor. */
htf_value htf_scope_constant(htf_node *node, hr_dtype dtype, int64_t count, const void *elements);
void htf_scope_set_host(htf_node *node, int index, const htf_host *host);
/* The uses of the variable that is input `index`, by all nodes: a sum of htf_variable_use. */
unsigned htf_scope_uses(htf_node *node, int index);
/* The last value of the variable, and another one. */
htf_value htf_scope_variable(htf_node *node, int index);
void htf_scope_assign(htf_node *node, int index, htf_value value);

/* ---- node_*.c ---- */

int64_t htf_int_at(const void *data, hr_dtype dtype, int64_t index);
/* The value as a row-major tensor of this dtype: itself or a copy. */
htf_value htf_settle(htf_node *node, htf_value value, hr_dtype dtype);
/* A copy in a buffer of its own. */
htf_value htf_copy_value(htf_node *node, htf_value value);

/* ---- inside.c ---- */

/* The dims of Reshape, Squeeze and ExpandDims; returns how many they are. */
int htf_reshaped_dims(htf_node *node, int old_rank, const int64_t *old, int64_t *dims);
int htf_squeezed_dims(htf_node *node, int rank, const int64_t *old, int64_t *dims);
int htf_expanded_dims(htf_node *node, int rank, const int64_t *old, int64_t *dims);

/* Rules of inside.def, host.def and lists.def. */
#define INSIDE(op, type_name, types, host, attributes, rule) void htf_##rule(htf_node *node);
#include "inside.def"
#undef INSIDE
#define HOST(op, type_name, types, attributes, rule, takes_dims) void htf_##rule(htf_node *node);
#include "host.def"
#undef HOST
#define LIST(op, host, attributes, rule) void htf_##rule(htf_node *node);
#include "lists.def"
#undef LIST

#endif
