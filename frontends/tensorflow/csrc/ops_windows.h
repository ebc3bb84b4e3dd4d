/* ops_windows.h: windows over the two or three planes' dims of images, for convolutions, pools and patches.
 *
 * Images are NHWC or NCHW, or with a depth NDHWC or NCDHW, kernels HWIO or DHWIO; the layouts are strides to the core.
 * SAME pads so that the result has ceil(size / stride) elements, with an odd element behind.
 */
#ifndef HEADRACE_TENSORFLOW_OPS_WINDOWS_H_
#define HEADRACE_TENSORFLOW_OPS_WINDOWS_H_

#include "node.h"

enum { HTF_PLANES_MAX = 3, HTF_IMAGE_DIMS_MAX = HTF_PLANES_MAX + 2 };

/* A window's geometry, in the order of the planes' dims. */
typedef struct htf_geometry {
  bool has_channels_first;
  int planes;
  int64_t size[HTF_PLANES_MAX], stride[HTF_PLANES_MAX], dilation[HTF_PLANES_MAX], before[HTF_PLANES_MAX],
      after[HTF_PLANES_MAX];
} htf_geometry;

static inline int htf_plane_dim(const htf_geometry *g, int plane) {
  return plane + (g->has_channels_first ? 2 : 1);
}
static inline int htf_channel_dim(const htf_geometry *g) {
  return g->has_channels_first ? 1 : g->planes + 1;
}

/* ---- attributes ---- */

/* The planes of the node's format, and sizes, strides and dilations of 1, which they stay after a failure. */
htf_geometry htf_geometry_of(htf_node *node);
/* Entries of a list of TensorFlow's, which must be 1 for examples and channels. */
void htf_read_pair(htf_node *node, const htf_geometry *g, const char *name, int64_t *out_values);
/* The padding for an image of these dims; `size` and the other lists are set. */
void htf_read_padding(htf_node *node, htf_geometry *g, const int64_t *dims);

/* ---- dims ---- */

/* InvalidArgumentError unless both have the dims of an image. */
void htf_check_ranks(htf_node *node, int rank, int other);
/* The dims of the result, an image of so many features. */
void htf_result_dims(const htf_geometry *g, const int64_t *image, int64_t features, int64_t *out_dims);
/* The number of elements of an image or a kernel. */
int64_t htf_image_count(const htf_geometry *g, const int64_t *dims);
bool htf_has_dims(htf_value x, int rank, const int64_t *dims);
/* InvalidArgumentError unless the gradient has the dims of the result. */
void htf_check_gradient(htf_node *node, const htf_geometry *g, htf_value gradient, const int64_t *dims);

/* No number of the dtype is less. */
double htf_least_number(hr_dtype dtype);

/* ---- rows of the core ---- */

/* True if the padding is the same on both sides, which rows of op.h need. They give results in TensorFlow's layout,
 * without a copy. */
bool htf_has_row(const htf_geometry *g);
/* Appends numbers to those of a row. */
void htf_append_ints(int64_t *ints, int *count, int more, const int64_t *numbers);
/* An image as [N, C, planes..], a view in the core's layout, and the way back. */
htf_value htf_planes_last(htf_node *node, const htf_geometry *g, htf_value image);
htf_value htf_planes_back(htf_node *node, const htf_geometry *g, htf_value image);

#endif
