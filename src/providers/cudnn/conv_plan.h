/* conv_plan.h: cuDNN's plans for convolutions and their gradients.
 *
 * A plan is the library's executable object: a graph of operations on tensors of known shapes, and an engine with its
 * settings. Making one takes milliseconds. Equal shapes share a plan, and some unused plans are kept.
 *
 * y = x * w, or with epilogues, f32 alone: y = relu((x * w + z) + b), where relu or z may be missing.
 */
#ifndef HEADRACE_PROVIDERS_CUDNN_CONV_PLAN_H_
#define HEADRACE_PROVIDERS_CUDNN_CONV_PLAN_H_

#include "core/ir/program.h"
#include "core/ops/op.h"
#include "providers/cudnn/cudnn_api.h"

/* z has the layout of y; b has one number for each channel. */
typedef enum hr__conv_role {
  CONV_X,
  CONV_W,
  CONV_Y,
  CONV_OWN_ROLES,
  CONV_Z = CONV_OWN_ROLES,
  CONV_B,
  CONV_ROLES
} hr__conv_role;

enum { CONV_SPATIAL_MOST = 3, CONV_DIMS_MOST = CONV_SPATIAL_MOST + 2, CONV_ALIGNMENT = 16 };

/* A convolution, or a gradient of one, in the library's terms. Compared as bytes: made from zeroed memory. */
typedef struct hr__conv_shape {
  hr_op op;
  hr_dtype dtype;
  bool keeps_f32; /* factors may not be rounded to TF32 */
  bool channels_last;
  bool has_role[CONV_ROLES], has_relu;
  int spatial; /* 2 or 3 */
  int rank;    /* rank among the suitable engines, in the library's order */
  int64_t dims[CONV_ROLES][CONV_DIMS_MOST], strides[CONV_ROLES][CONV_DIMS_MOST];
  int64_t padding[CONV_SPATIAL_MOST], stride[CONV_SPATIAL_MOST], dilation[CONV_SPATIAL_MOST];
} hr__conv_shape;

typedef struct hr__conv_plan hr__conv_plan;

/* The plan for a shape on the device that is current on this thread, with a reference. UNIMPLEMENTED if the library has
 * none; that result is remembered, too. The caller holds the library's lock (hr__cudnn_lock). */
HR_MUST_USE hr_status hr__conv_plan_acquire(cudnn_handle handle, const hr__conv_shape *shape, hr__conv_plan **out_plan);
void hr__conv_plan_release(hr__conv_plan *plan); /* NULL does nothing; on any thread */

/* A run's addresses, for the roles of the shape, as a descriptor that the caller destroys. Returns the library's code;
 * on an error there is no descriptor. */
int hr__conv_pack(const hr__conv_shape *shape, void *const *addresses, void *workspace, cudnn_descriptor *out_pack);

cudnn_descriptor hr__conv_plan_descriptor(const hr__conv_plan *plan);
size_t hr__conv_plan_workspace(const hr__conv_plan *plan);

#endif
