/* cluster.h: a function's operations as one operation of TensorFlow, HeadraceCluster.
 *
 * The optimizer (clusters.c) puts nodes of a graph into a body (body.h). The kernel records the body on a capture when
 * it sees dims of its operands for the first time, and makes a part of it (headrace/part.h). Each call appends the
 * records of the part to the stream. They are those of the kernels that the nodes would have, so the bits are the same.
 *
 * Variables that the body updates are operands, in the host's memory as TensorFlow has their handles. They are locked
 * during a call. Others are read by TensorFlow's own kernel, and their tensors are inputs.
 */
#ifndef HEADRACE_TENSORFLOW_CLUSTER_H_
#define HEADRACE_TENSORFLOW_CLUSTER_H_

#include <stdatomic.h>

#include "graphdef.h"
#include "tf.h"

#define HTF_CLUSTER "HeadraceCluster"

typedef struct htf_cluster_counts {
  atomic_llong clusters, nodes; /* of graphs, and the nodes in them */
  atomic_llong captures, runs;
} htf_cluster_counts;
extern htf_cluster_counts htf_clusters;

/* Registers the operation and its kernel. */
void htf_register_cluster(void);
/* Registers an operation with x: Tin, variables: n * resource, and y: Tout. */
void htf_register_operation(tf_op_builder *op, const char *name);
/* Prints a failure of a registration. */
void htf_report(const char *name, const char *what, tf_status *status);

struct htf_cluster;
/* A call with the operands of a kernel's context. */
void htf_cluster_compute(struct htf_cluster *self, tf_context *context);
void htf_cluster_release(struct htf_cluster *self);

/* Appends a copy of a graph with clusters. Nodes with these names, of `count`, stay. */
HR_MUST_USE hr_status htf_make_clusters(const tf_buffer *graph, int count, const hr__span *preserved, hr_text *text);

#endif
