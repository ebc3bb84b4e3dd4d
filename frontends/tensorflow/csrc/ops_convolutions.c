/* ops_convolutions.c: rules of convolutions over two or three planes, and of their gradients.
 *
 * A gradient is a row of the core if the padding is the same on both sides, and else a convolution of its own.
 */
#include <stdio.h>
#include <string.h>

#include "ops_windows.h"

static htf_geometry read_convolution(htf_node *node, const int64_t *image, const int64_t *kernel) {
  htf_geometry g = htf_geometry_of(node);
  memcpy(g.size, kernel, sizeof *kernel * (size_t)g.planes);
  htf_read_pair(node, &g, "strides", g.stride);
  htf_read_pair(node, &g, "dilations", g.dilation);
  htf_read_padding(node, &g, image);
  return g;
}

/* The groups of features, which the kernel's dims imply. */
static int64_t groups_of(htf_node *node, const htf_geometry *g, const int64_t *image, const int64_t *kernel) {
  int64_t channels = image[htf_channel_dim(g)], inputs = kernel[g->planes], results = kernel[g->planes + 1];
  if (!htf_has_failed(node) &&
      (channels < 1 || inputs < 1 || channels % inputs != 0 || results % (channels / inputs) != 0)) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT,
             "%s: an image of %lld channels does not fit a kernel of %lld, for %lld results", node->kernel->row->op,
             (long long)channels, (long long)inputs, (long long)results);
  }
  return htf_has_failed(node) ? 1 : channels / inputs;
}

typedef struct convolution {
  int planes;
  const int64_t *stride, *before, *after, *dilation, *spacing;
  int64_t groups, batch_groups;
  bool is_flipped;
  const char *image, *kernel, *result; /* layouts */
} convolution;

static htf_value convolve(htf_node *node, htf_value image, htf_value kernel, const convolution *c) {
  char layout[32];
  snprintf(layout, sizeof layout, "%s,%s->%s", c->image, c->kernel, c->result);
  return htf_call(node, HR_FUNCTIONAL_CONV_GENERAL, INPUTS(image, kernel, NULL),
                  ATTRIBUTES(htf_attr_ints(c->stride, c->planes), htf_attr_ints(c->before, c->planes),
                             htf_attr_ints(c->after, c->planes), htf_attr_ints(c->dilation, c->planes),
                             htf_attr_ints(c->spacing, c->planes), htf_attr_int(c->groups),
                             htf_attr_int(c->batch_groups), htf_attr_text("explicit"), htf_attr_text(layout),
                             htf_attr_flag(c->is_flipped)));
}

static const int64_t ones[HTF_PLANES_MAX] = {1, 1, 1};

/* The layout of two planes, or of three. */
static const char *layout(const htf_geometry *g, const char *two, const char *three) {
  return g->planes == 2 ? two : three;
}

static const char *image_layout(const htf_geometry *g) {
  return g->has_channels_first ? layout(g, "bf01", "bf012") : layout(g, "b01f", "b012f");
}

static htf_value forward(htf_node *node, htf_value image, htf_value kernel) {
  htf_geometry g = read_convolution(node, image->dims, kernel->dims);
  int64_t groups = groups_of(node, &g, image->dims, kernel->dims), dims[HTF_IMAGE_DIMS_MAX];
  if (htf_has_failed(node)) {
    return image;
  }
  htf_result_dims(&g, image->dims, kernel->dims[g.planes + 1], dims);
  if (htf_image_count(&g, dims) == 0) {
    return htf_zeros(node, g.planes + 2, dims, image->dtype);
  }
  const convolution c = {.planes = g.planes,
                         .stride = g.stride,
                         .before = g.before,
                         .after = g.after,
                         .dilation = g.dilation,
                         .spacing = ones,
                         .groups = groups,
                         .batch_groups = 1,
                         .image = image_layout(&g),
                         .kernel = layout(&g, "01io", "012io"),
                         .result = image_layout(&g)};
  return convolve(node, image, kernel, &c);
}

static void check_kernel(htf_node *node, htf_value kernel) {
  for (int d = 0; d < kernel->rank && !htf_has_failed(node); ++d) {
    if (kernel->dims[d] == 0) {
      htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "%s: filter must not have zero elements, and its dim %d is 0",
               node->kernel->row->op, d);
    }
  }
}

void htf_conv(htf_node *node) {
  htf_value image = htf_input(node, 0), kernel = htf_input(node, 1);
  htf_check_ranks(node, image->rank, kernel->rank);
  check_kernel(node, kernel);
  if (!htf_has_failed(node)) {
    htf_output(node, 0, forward(node, image, kernel));
  }
}

static void check_batches(htf_node *node, htf_value image, htf_value kernel, int64_t batch_dims) {
  int planes = kernel->rank - 2;
  if (!htf_has_failed(node) &&
      (planes < 2 || planes > HTF_PLANES_MAX || batch_dims < 0 || image->rank != batch_dims + planes + 1)) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT,
             "Conv: an image of %d dims, %lld of them of examples, and a kernel of %d", image->rank,
             (long long)batch_dims, kernel->rank);
  }
  check_kernel(node, kernel);
}

/* 1 stands for as many groups as the kernel implies. */
static void check_groups(htf_node *node, htf_value image, htf_value kernel) {
  htf_geometry g = htf_geometry_of(node);
  int64_t groups = htf_integer(node, "groups"), channels = image->dims[htf_channel_dim(&g)];
  if (!htf_has_failed(node) && groups != 1 && channels != groups * kernel->dims[g.planes]) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "Conv: %lld groups of %lld channels do not fit an image of %lld",
             (long long)groups, (long long)kernel->dims[g.planes], (long long)channels);
  }
}

/* Any number of dims of examples, which are one to the convolution. */
void htf_conv_batches(htf_node *node) {
  htf_value image = htf_input(node, 0), kernel = htf_input(node, 1);
  int64_t batch_dims = htf_integer(node, "batch_dims"), dims[HR_RANK_MAX + 1] = {1};
  check_batches(node, image, kernel, batch_dims);
  if (htf_has_failed(node)) {
    return;
  }
  for (int d = 0; d < batch_dims; ++d) {
    dims[0] *= image->dims[d];
  }
  memcpy(dims + 1, image->dims + batch_dims, sizeof *dims * (size_t)(kernel->rank - 1));
  htf_value merged = htf_reshape(node, image, kernel->rank, dims);
  check_groups(node, merged, kernel);
  htf_value found = htf_has_failed(node) ? image : forward(node, merged, kernel);
  if (htf_has_failed(node)) {
    return;
  }
  memcpy(dims, image->dims, sizeof *dims * (size_t)batch_dims);
  memcpy(dims + batch_dims, found->dims + 1, sizeof *dims * (size_t)(kernel->rank - 1));
  htf_output(node, 0, htf_reshape(node, found, image->rank, dims));
}

static void record_row(htf_node *node, hr_op op, const htf_geometry *g, int64_t groups, htf_value x, htf_value y,
                       htf_value out) {
  int64_t ints[3 * HTF_PLANES_MAX + 2] = {g->planes};
  int count = 1;
  htf_append_ints(ints, &count, g->planes, g->stride);
  htf_append_ints(ints, &count, g->planes, g->before);
  htf_append_ints(ints, &count, g->planes, g->dilation);
  ints[count++] = groups;
  htf_record(node, op, count, ints, INPUTS(x, y), out);
}

/* A kernel as [O, I, planes..], a view in the core's layout. */
static htf_value kernel_view(htf_node *node, const htf_geometry *g, htf_value kernel) {
  static const int orders[2][HTF_IMAGE_DIMS_MAX] = {{3, 2, 0, 1}, {4, 3, 0, 1, 2}};
  return htf_transpose(node, kernel, orders[g->planes - 2]);
}

/* The kernel [planes.., I / groups, O] with inputs and outputs of each group in each other's place. */
static htf_value turn_groups(htf_node *node, const htf_geometry *g, htf_value kernel, int64_t groups) {
  static const int orders[2][HTF_IMAGE_DIMS_MAX + 1] = {{0, 1, 4, 3, 2}, {0, 1, 2, 5, 4, 3}};
  int64_t dims[HTF_IMAGE_DIMS_MAX + 1], turned[HTF_IMAGE_DIMS_MAX], inputs = kernel->dims[g->planes];
  int64_t results = kernel->dims[g->planes + 1] / groups;
  int n = g->planes;
  memcpy(dims, kernel->dims, sizeof *dims * (size_t)n);
  memcpy(turned, kernel->dims, sizeof *turned * (size_t)n);
  dims[n] = inputs, dims[n + 1] = groups, dims[n + 2] = results;
  turned[n] = results, turned[n + 1] = groups * inputs;
  return htf_reshape(node, htf_transpose(node, htf_reshape(node, kernel, n + 3, dims), orders[n - 2]), n + 2, turned);
}

/* The convolution of the spaced gradient with the flipped kernel. */
static htf_value image_gradient(htf_node *node, const int64_t *image, htf_value kernel, htf_value gradient) {
  htf_geometry g = read_convolution(node, image, kernel->dims);
  int64_t groups = groups_of(node, &g, image, kernel->dims), dims[HTF_IMAGE_DIMS_MAX];
  if (htf_has_failed(node)) {
    return gradient;
  }
  htf_result_dims(&g, image, kernel->dims[g.planes + 1], dims);
  htf_check_gradient(node, &g, gradient, dims);
  if (htf_has_failed(node)) {
    return gradient;
  }
  if (htf_image_count(&g, image) == 0 || htf_image_count(&g, dims) == 0) {
    return htf_zeros(node, g.planes + 2, image, kernel->dtype);
  }
  if (htf_has_row(&g)) {
    htf_value out = htf_new(node, kernel->dtype, g.planes + 2, image);
    record_row(node, HR_OP_CONV_BACKWARD_DATA, &g, groups, htf_planes_last(node, &g, gradient),
               kernel_view(node, &g, kernel), htf_planes_last(node, &g, out));
    return out;
  }
  int64_t before[HTF_PLANES_MAX], after[HTF_PLANES_MAX];
  for (int p = 0; p < g.planes; ++p) {
    int64_t extent = (g.size[p] - 1) * g.dilation[p];
    int64_t spaced = (dims[htf_plane_dim(&g, p)] - 1) * g.stride[p] + 1;
    before[p] = extent - g.before[p];
    after[p] = image[htf_plane_dim(&g, p)] + extent - spaced - before[p];
  }
  const convolution c = {.planes = g.planes,
                         .stride = ones,
                         .before = before,
                         .after = after,
                         .dilation = g.dilation,
                         .spacing = g.stride,
                         .groups = groups,
                         .batch_groups = 1,
                         .is_flipped = true,
                         .image = image_layout(&g),
                         .kernel = groups > 1 ? layout(&g, "01io", "012io") : layout(&g, "01oi", "012oi"),
                         .result = image_layout(&g)};
  return convolve(node, gradient, groups > 1 ? turn_groups(node, &g, kernel, groups) : kernel, &c);
}

void htf_conv_image_gradient(htf_node *node) {
  int64_t image[HTF_IMAGE_DIMS_MAX] = {0}, dims[HTF_IMAGE_DIMS_MAX];
  htf_expect_rank(node, 0, 1, "input_sizes must be rank 1");
  int rank = htf_host_ints(node, 0, image, HTF_IMAGE_DIMS_MAX);
  htf_value kernel = htf_input(node, 1), gradient = htf_input(node, 2);
  htf_check_ranks(node, kernel->rank, gradient->rank);
  htf_geometry g = htf_geometry_of(node);
  if (!htf_has_failed(node) && rank == g.planes) { /* the planes alone */
    dims[0] = gradient->dims[0], dims[htf_channel_dim(&g)] = kernel->dims[g.planes];
    memcpy(dims + htf_plane_dim(&g, 0), image, sizeof *dims * (size_t)rank);
    memcpy(image, dims, sizeof image);
    rank += 2;
  }
  htf_check_ranks(node, rank, kernel->rank);
  if (!htf_has_failed(node)) {
    htf_output(node, 0, image_gradient(node, image, kernel, gradient));
  }
}

/* The convolution of the image with the gradient as a kernel: examples are its features, strides dilate it. */
static htf_value kernel_gradient(htf_node *node, htf_value image, const int64_t *kernel, htf_value gradient) {
  htf_geometry g = read_convolution(node, image->dims, kernel);
  int64_t groups = groups_of(node, &g, image->dims, kernel);
  if (htf_has_failed(node)) {
    return gradient;
  }
  if (htf_image_count(&g, kernel) == 0 || hr_tensor_count(gradient) == 0 || hr_tensor_count(image) == 0) {
    return htf_zeros(node, g.planes + 2, kernel, image->dtype);
  }
  if (htf_has_row(&g)) {
    htf_value out = htf_new(node, image->dtype, g.planes + 2, kernel);
    record_row(node, HR_OP_CONV_BACKWARD_WEIGHT, &g, groups, htf_planes_last(node, &g, image),
               htf_planes_last(node, &g, gradient), kernel_view(node, &g, out));
    return out;
  }
  int64_t after[HTF_PLANES_MAX];
  for (int p = 0; p < g.planes; ++p) {
    int64_t spaced = (gradient->dims[htf_plane_dim(&g, p)] - 1) * g.stride[p] + 1;
    after[p] = (g.size[p] - 1) * g.dilation[p] + spaced - image->dims[htf_plane_dim(&g, p)] - g.before[p];
  }
  const convolution c = {.planes = g.planes,
                         .stride = g.dilation,
                         .before = g.before,
                         .after = after,
                         .dilation = g.stride,
                         .spacing = ones,
                         .groups = 1,
                         .batch_groups = groups,
                         .image = g.has_channels_first ? layout(&g, "fb01", "fb012") : layout(&g, "f01b", "f012b"),
                         .kernel = g.has_channels_first ? layout(&g, "io01", "io012") : layout(&g, "i01o", "i012o"),
                         .result = layout(&g, "01bf", "012bf")};
  return convolve(node, image, gradient, &c);
}

void htf_conv_kernel_gradient(htf_node *node) {
  int64_t kernel[HTF_IMAGE_DIMS_MAX] = {0};
  htf_value image = htf_input(node, 0);
  htf_expect_rank(node, 1, 1, "filter_sizes must be rank 1");
  int rank = htf_host_ints(node, 1, kernel, HTF_IMAGE_DIMS_MAX);
  htf_value gradient = htf_input(node, 2);
  htf_check_ranks(node, image->rank, rank);
  htf_check_ranks(node, image->rank, gradient->rank);
  if (!htf_has_failed(node)) {
    htf_output(node, 0, kernel_gradient(node, image, kernel, gradient));
  }
}

/* ---- convolutions of each channel alone: kernels [h, w, C, M] are those of C groups with M results each ---- */

static void grouped_dims(const int64_t *kernel, int64_t *out_dims) {
  out_dims[0] = kernel[0], out_dims[1] = kernel[1], out_dims[2] = 1, out_dims[3] = kernel[2] * kernel[3];
}

void htf_depthwise(htf_node *node) {
  htf_value image = htf_input(node, 0), kernel = htf_input(node, 1);
  htf_check_ranks(node, image->rank, kernel->rank);
  if (!htf_has_failed(node)) {
    int64_t dims[HTF_IMAGE_DIMS_MAX];
    grouped_dims(kernel->dims, dims);
    htf_output(node, 0, forward(node, image, htf_reshape(node, kernel, 4, dims)));
  }
}

void htf_depthwise_image_gradient(htf_node *node) {
  int64_t image[HTF_IMAGE_DIMS_MAX] = {0}, dims[HTF_IMAGE_DIMS_MAX];
  htf_expect_rank(node, 0, 1, "input_sizes must be rank 1");
  int rank = htf_host_ints(node, 0, image, HTF_IMAGE_DIMS_MAX);
  htf_value kernel = htf_input(node, 1), gradient = htf_input(node, 2);
  htf_check_ranks(node, kernel->rank, gradient->rank);
  htf_check_ranks(node, kernel->rank, rank);
  if (!htf_has_failed(node)) {
    grouped_dims(kernel->dims, dims);
    htf_output(node, 0, image_gradient(node, image, htf_reshape(node, kernel, 4, dims), gradient));
  }
}

void htf_depthwise_kernel_gradient(htf_node *node) {
  int64_t kernel[HTF_IMAGE_DIMS_MAX] = {0}, dims[HTF_IMAGE_DIMS_MAX];
  htf_value image = htf_input(node, 0);
  htf_expect_rank(node, 1, 1, "filter_sizes must be rank 1");
  int rank = htf_host_ints(node, 1, kernel, HTF_IMAGE_DIMS_MAX);
  htf_value gradient = htf_input(node, 2);
  htf_check_ranks(node, image->rank, rank);
  htf_check_ranks(node, image->rank, gradient->rank);
  if (!htf_has_failed(node)) {
    grouped_dims(kernel, dims);
    htf_output(node, 0, htf_reshape(node, kernel_gradient(node, image, dims, gradient), 4, kernel));
  }
}
