/* profiler.h: TensorFlow's profiler (tf.profiler.experimental): kernels with the nodes that they compute (profiler.c).
 */
#ifndef HEADRACE_TENSORFLOW_PROFILER_H_
#define HEADRACE_TENSORFLOW_PROFILER_H_

#include <stdatomic.h>

#include "body.h"
#include "tf.h"

/* True if a profile is started. */
extern atomic_bool htf_profiler_is_on;
/* Around the records of a node of the type `op`, or of a cluster with a body, whose records have their node's place in
 * it, from 1 on, as origin. `profiled` is of the kernel's object, 0 at first. */
void htf_profile_begin(atomic_ullong *profiled, tf_context *context, const char *op, const htf_body *body);
void htf_profile_end(void);

#endif
