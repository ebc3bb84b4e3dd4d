/* captures.h: the captured bodies of a cluster's kernel, one for each set of dims of its operands.
 *
 * The constants of the host that a body places on the device belong to the cluster. They are parameters of each part
 * that was captured since, behind its operands.
 */
#ifndef HEADRACE_TENSORFLOW_CAPTURES_H_
#define HEADRACE_TENSORFLOW_CAPTURES_H_

#include <pthread.h>

#include "headrace/part.h"
#include "scope.h"

typedef struct htf_cluster_constant {
  htf_host host;
  hr_buffer *buffer;
} htf_cluster_constant;

typedef struct htf_cluster_result {
  int64_t bytes;
  int rank;
  int64_t dims[HR_RANK_MAX];
} htf_cluster_result;

/* The captured body for operands of some dims. */
typedef struct htf_variant {
  atomic_int references;
  hr_part *part;       /* NULL: the body has a loop that is too long for a capture, and each call records it */
  hr_tensor *operands; /* without buffers */
  int *first_same;     /* of each variable */
  htf_cluster_result *results;
  int constant_count; /* so many constants of the cluster are parameters */
} htf_variant;

enum { HTF_VARIANTS_MAX = 64 };

typedef struct htf_cluster {
  htf_body body;
  atomic_int references;
  struct htf_direct *direct;               /* NULL: there is more in its function */
  atomic_ullong profiled;                  /* by profiler.c */
  pthread_mutex_t mutex;                   /* of what follows */
  htf_variant *variants[HTF_VARIANTS_MAX]; /* the last used first */
  int variant_count;
  htf_cluster_constant *constants;
  int constant_count;
} htf_cluster;

static inline int htf_operand_count(const htf_cluster *self) {
  return self->body.input_count + self->body.variable_count;
}

/* The kernel of a walk over a body, whose errors name the cluster. */
extern const htf_kernel htf_of_clusters;

/* Buffers of a capture. */
typedef struct htf_capture {
  htf_cluster *cluster;
  htf_node node;
  htf_scope scope;
  hr_buffer **params, **results;
  htf_value *initial; /* of variables */
  int param_count, result_count;
} htf_capture;

/* Begins a walk over the body that records on a stream; the end returns its error. */
void htf_capture_open(htf_capture *c, htf_cluster *self, htf_device *device, hr_stream *stream, const int *first_same);
HR_MUST_USE hr_status htf_capture_close(htf_capture *c);
/* Writes the last values of variables. One that is another variable's old value is copied before that is written. */
void htf_capture_write(htf_capture *c);
/* Captures the body for the operands of a variant. */
HR_MUST_USE hr_status htf_capture_body(htf_cluster *self, htf_device *device, htf_variant *v);

#endif
