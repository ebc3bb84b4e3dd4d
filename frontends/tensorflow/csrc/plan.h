/* plan.h: which nodes of a graph become clusters.
 *
 * A node is one of three kinds. A *member* has a row of map.def or inside.def. A *pure* one is known on the host when a
 * cluster is recorded, such as a constant: each cluster that uses it has it, and it stays outside where others use it.
 * *Other* nodes stay kernels.
 *
 * Members of one level and context (contexts.h) are a cluster. The level of a node is the highest of its inputs, and
 * one more for another node behind a member. So no path leaves a cluster and comes back.
 *
 * A loop of which all nodes can be members is one thing in this: its nodes have one level, and the context around it
 * (loops.h). Lists of tensors are in clusters only as a whole. If one is used elsewhere, too, no loop is in a cluster.
 */
#ifndef HEADRACE_TENSORFLOW_PLAN_H_
#define HEADRACE_TENSORFLOW_PLAN_H_

#include "body.h"
#include "contexts.h"
#include "graphdef.h"
#include "loops.h"

typedef enum htf_node_kind { HTF_OTHER = 0, HTF_PURE, HTF_MEMBER } htf_node_kind;

enum { HTF_HOST_MEMORY = 1 << 8, HTF_TYPE_MASK = HTF_HOST_MEMORY - 1 };

typedef struct htf_plan_node {
  htf_node_kind kind;
  bool is_preserved;
  bool follows_member; /* of its level */
  bool is_kept;        /* pure, and used outside */
  bool is_visited;
  bool is_host;                  /* a member whose results are known on the host when the cluster is recorded */
  bool has_host_rule;            /* its rule is one of host.def */
  bool is_silent;                /* a member that only passes a value on, and is in no body */
  bool is_varying;               /* Merge: the value that comes back is not known on the host */
  int level, cluster;            /* -1: none */
  int inner;                     /* the cluster that has a copy of a pure node last */
  int first_value;               /* the number of its first result in that cluster, or its own */
  int input_types, output_types; /* places in `types` */
  int output_count;
} htf_plan_node;

static inline bool htf_stays_outside(const htf_plan_node *node) {
  return node->kind == HTF_OTHER || (node->kind == HTF_PURE && (node->is_kept || node->is_preserved));
}

typedef struct htf_plan_cluster {
  htf_edge *inputs, *variables;
  int input_count, variable_count;
  int *controls; /* nodes, or clusters as -1 - cluster */
  int control_count;
  htf_edge *results;
  int result_count;
  int work_count;
  bool is_made;
  hr__span device;
  int level, context, frame;
  char name[48];
} htf_plan_cluster;

typedef struct htf_plan {
  htf_graph *graph;
  tf_library *library;
  htf_plan_node *nodes;
  int *order; /* inputs first */
  int *types; /* of TensorFlow, with HTF_HOST_MEMORY */
  int type_count, type_capacity;
  struct htf_op_def *definitions;
  htf_context *contexts;
  htf_loops loops;
  htf_edge *reads; /* nodes of variables that members read, and the contexts of these */
  int read_count;
  hr__span device; /* of all members */
  bool has_feeds;  /* a graph of no function: preserved nodes may get their values from the program that runs it */
  htf_plan_cluster *clusters;
  int cluster_count;
} htf_plan;

/* Plans the clusters of a graph, in which inputs are others until the end of the plan. A failure leaves nothing to
 * free. */
HR_MUST_USE hr_status htf_plan_create(htf_graph *graph, tf_library *library, int preserved_count,
                                      const hr__span *preserved, htf_plan *out_plan);
void htf_plan_fini(htf_plan *plan);

static inline bool htf_is_op(const htf_plan *plan, int node, const char *op) {
  return hr__span_is(plan->graph->nodes[node].op, op);
}
/* True if the node's results are known on the host when a cluster is recorded. */
static inline bool htf_is_known(const htf_plan *plan, int node) {
  return plan->nodes[node].kind == HTF_PURE || plan->nodes[node].is_host;
}
/* True if a cluster has the node, or a copy of it. */
static inline bool htf_is_inside(const htf_plan *plan, int node, int cluster) {
  const htf_plan_node *n = &plan->nodes[node];
  return n->kind == HTF_MEMBER ? n->cluster == cluster : n->kind == HTF_PURE && n->inner == cluster;
}
/* Marks the copies of pure nodes that a cluster has: `inner` is the cluster. */
void htf_plan_enter(htf_plan *plan, int cluster);
/* The place of a result of a member among those of its cluster; -1: it is none. */
int htf_plan_result(const htf_plan *plan, htf_edge edge);
/* The edge of a loop's value in its body: of Merge instead of Switch or Exit. */
htf_edge htf_plan_source(const htf_plan *plan, htf_edge edge);
/* The variable behind a handle. */
htf_edge htf_plan_variable(const htf_plan *plan, htf_edge edge);
/* The place of an edge; -1: it is none of them. */
int htf_plan_find(const htf_edge *edges, int count, htf_edge edge);

/* ---- steps of a plan; false: no memory ---- */

/* Appends an edge that is none of them yet. */
bool htf_plan_add_edge(htf_edge **edges, int *count, htf_edge edge);
/* The kind of the node at this place of the order, with its dtypes in the plan. */
htf_node_kind htf_plan_kind(htf_plan *plan, int place);
/* Frees the definitions of operations that kinds needed. */
void htf_plan_forget_definitions(htf_plan *plan);
/* Finds the inputs, variables and controls of a cluster, and the results of others that it uses. */
bool htf_plan_add_needs(htf_plan *plan, int cluster);
/* Keeps the pure nodes that others use, and gives others the results that they use. */
bool htf_plan_add_outside(htf_plan *plan);

#endif
