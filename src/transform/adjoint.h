/* adjoint.h: the gradients of buffers.
 *
 * A buffer's adjoint has the layout of the buffer: the gradient of a view is the same view of the adjoint. A buffer
 * without one has the gradient 0.
 */
#ifndef HEADRACE_TRANSFORM_ADJOINT_H_
#define HEADRACE_TRANSFORM_ADJOINT_H_

#include "transform/tape.h"

typedef struct hr__adjoint {
  hr_buffer *buffer;
  bool is_shared; /* others may read it: it is not written in place */
} hr__adjoint;

typedef struct hr__adjoints {
  hr_table table; /* by the serial number of the buffer */
} hr__adjoints;

bool hr__adjoint_exists(const hr__adjoints *adjoints, const hr__operand *at);
/* adjoint[at] += d, which has the dims of the view or dims that it is broadcast to: then it is summed. */
hr_status hr__adjoint_add(hr__adjoints *adjoints, const hr__function_call *call, const hr__operand *at,
                          const hr_tensor *d);
/* out = adjoint[at], with a reference; without a buffer if it is 0. */
hr_status hr__adjoint_read(hr__adjoints *adjoints, const hr__function_call *call, const hr__operand *at,
                           hr_tensor *out);
/* The same, and adjoint[at] = 0. */
hr_status hr__adjoint_take(hr__adjoints *adjoints, const hr__function_call *call, const hr__operand *at,
                           hr_tensor *out);
void hr__adjoints_fini(hr__adjoints *adjoints);

#endif
