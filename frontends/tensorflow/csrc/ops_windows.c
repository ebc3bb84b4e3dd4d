/* ops_windows.c: rules of convolutions and pooling over two or three planes dims, and of their
 * gradients.
 *
 * Images are NHWC or NCHW, or with a depth NDHWC or NCDHW, kernels HWIO or DHWIO; the layouts are strides to the core.
 * SAME pads so that the result has ceil(size / stride) elements, with an odd element behind.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "node.h"

enum { PLANES_MAX = 3, DIMS_MAX = PLANES_MAX + 2 };

/* A window's geometry, in the order of the planes' dims. */
typedef struct geometry {
  bool has_channels_first;
  int planes;
  int64_t size[PLANES_MAX], stride[PLANES_MAX], dilation[PLANES_MAX], before[PLANES_MAX], after[PLANES_MAX];
} geometry;

static int plane_dim(const geometry *g, int plane) {
  return plane + (g->has_channels_first ? 2 : 1);
}

static int channel_dim(const geometry *g) {
  return g->has_channels_first ? 1 : g->planes + 1;
}

static int64_t at_least_0(int64_t x) {
  return x > 0 ? x : 0;
}

static void pad_same(geometry *g, int plane, int64_t size) {
  int64_t results = (size + g->stride[plane] - 1) / g->stride[plane];
  int64_t extent = (g->size[plane] - 1) * g->dilation[plane] + 1;
  int64_t padding = at_least_0((results - 1) * g->stride[plane] + extent - size);
  g->before[plane] = padding / 2, g->after[plane] = padding - padding / 2;
}

/* A list that is an attribute; of pools from version 2 on the last two inputs are their lists. */
static int read_list(htf_node *node, const char *name, int64_t *out_list) {
  if (!htf_has_attribute(node, name)) {
    int index = htf_input_count(node) - (strcmp(name, "ksize") == 0 ? 2 : 1);
    return htf_host_ints(node, index, out_list, HTF_LIST_MAX);
  }
  const htf_attribute *attribute = htf_list(node, name);
  memcpy(out_list, attribute->list, sizeof *out_list * (size_t)attribute->count);
  return attribute->count;
}

/* Entries of a list of TensorFlow's, which must be 1 for examples and channels. */
static void read_pair(htf_node *node, const geometry *g, const char *name, int64_t *out_values) {
  int64_t list[HTF_LIST_MAX];
  int count = read_list(node, name, list);
  if (count != g->planes + 2 || list[0] != 1 || list[channel_dim(g)] != 1) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "%s: %s must be %d numbers, those of examples and channels 1",
             node->kernel->row->op, name, g->planes + 2);
    return;
  }
  for (int p = 0; p < g->planes; ++p) {
    out_values[p] = list[plane_dim(g, p)];
    if (out_values[p] < 1) {
      htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "%s: %s has %lld, it must be positive", node->kernel->row->op, name,
               (long long)out_values[p]);
    }
  }
}

/* The padding for an image of these dims; `size` and the other lists are set. */
static void read_padding(htf_node *node, geometry *g, const int64_t *dims) {
  const char *padding = htf_text(node, "padding");
  bool is_explicit = strcmp(padding, "EXPLICIT") == 0;
  const htf_attribute *sides = is_explicit ? htf_list(node, "explicit_paddings") : NULL;
  if (is_explicit && sides->count != 2 * g->planes + 4) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "%s: explicit_paddings must be %d numbers, not %d",
             node->kernel->row->op, 2 * g->planes + 4, sides->count);
    return;
  }
  for (int p = 0; p < g->planes && !htf_has_failed(node); ++p) {
    g->before[p] = g->after[p] = 0;
    if (strcmp(padding, "SAME") == 0) {
      pad_same(g, p, dims[plane_dim(g, p)]);
    } else if (is_explicit) {
      g->before[p] = sides->list[2 * plane_dim(g, p)], g->after[p] = sides->list[2 * plane_dim(g, p) + 1];
      if (g->before[p] < 0 || g->after[p] < 0) {
        htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "%s: explicit_paddings %lld and %lld must not be negative",
                 node->kernel->row->op, (long long)g->before[p], (long long)g->after[p]);
      }
    }
  }
}

static const char *format_name(htf_node *node) {
  return htf_text_or(node, "data_format", "NHWC");
}

static bool has_channels_first(htf_node *node) {
  return strncmp(format_name(node), "NC", 2) == 0;
}

/* The dims of an image: the letters of its format. */
static int rank_of(htf_node *node) {
  return (int)strlen(format_name(node));
}

/* InvalidArgumentError unless both have the dims of an image. */
static void check_ranks(htf_node *node, int rank, int other) {
  int want = rank_of(node);
  if (!htf_has_failed(node) && (rank != want || other != want)) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "%s: images and kernels must have %d dims, they have %d and %d",
             node->kernel->row->op, want, rank, other);
  }
}

static geometry format_of(htf_node *node) {
  return (geometry){.has_channels_first = has_channels_first(node), .planes = rank_of(node) - 2, .dilation = {1, 1, 1}};
}

/* ---- convolutions ---- */

static geometry read_convolution(htf_node *node, const int64_t *image, const int64_t *kernel) {
  geometry g = format_of(node);
  memcpy(g.size, kernel, sizeof *kernel * (size_t)g.planes);
  read_pair(node, &g, "strides", g.stride);
  read_pair(node, &g, "dilations", g.dilation);
  read_padding(node, &g, image);
  return g;
}

/* The groups of features, which the kernel's dims imply. */
static int64_t groups_of(htf_node *node, const geometry *g, const int64_t *image, const int64_t *kernel) {
  int64_t channels = image[channel_dim(g)], inputs = kernel[g->planes], results = kernel[g->planes + 1];
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

static const int64_t ones[PLANES_MAX] = {1, 1, 1};

/* The layout of two planes, or of three. */
static const char *layout(const geometry *g, const char *two, const char *three) {
  return g->planes == 2 ? two : three;
}

static const char *image_layout(const geometry *g) {
  return g->has_channels_first ? layout(g, "bf01", "bf012") : layout(g, "b01f", "b012f");
}

/* In the dims of an image or a kernel. */
static htf_value zeros(htf_node *node, const int64_t *dims, hr_dtype dtype) {
  return htf_call(node, HR_FUNCTIONAL_FULL, INPUTS(htf_number_of(node, hr_scalar_i64(0))),
                  ATTRIBUTES(htf_attr_ints(dims, rank_of(node)), htf_attr_dtype(dtype)));
}

/* The result's elements along a plane. */
static int64_t results_along(const geometry *g, int plane, int64_t size) {
  int64_t extent = (g->size[plane] - 1) * g->dilation[plane] + 1;
  int64_t room = size + g->before[plane] + g->after[plane] - extent;
  return room < 0 ? 0 : room / g->stride[plane] + 1;
}

static void result_dims(const geometry *g, const int64_t *image, int64_t features, int64_t *out_dims) {
  out_dims[0] = image[0], out_dims[channel_dim(g)] = features;
  for (int p = 0; p < g->planes; ++p) {
    out_dims[plane_dim(g, p)] = results_along(g, p, image[plane_dim(g, p)]);
  }
}

static int64_t product(const geometry *g, const int64_t *dims) {
  int64_t count = 1;
  for (int d = 0; d < g->planes + 2; ++d) {
    count *= dims[d];
  }
  return count;
}

static htf_value forward(htf_node *node, htf_value image, htf_value kernel) {
  geometry g = read_convolution(node, image->dims, kernel->dims);
  int64_t groups = groups_of(node, &g, image->dims, kernel->dims), dims[DIMS_MAX];
  if (htf_has_failed(node)) {
    return image;
  }
  result_dims(&g, image->dims, kernel->dims[g.planes + 1], dims);
  if (product(&g, dims) == 0) {
    return zeros(node, dims, image->dtype);
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

void htf_conv(htf_node *node) {
  htf_value image = htf_input(node, 0), kernel = htf_input(node, 1);
  check_ranks(node, image->rank, kernel->rank);
  if (!htf_has_failed(node)) {
    htf_output(node, 0, forward(node, image, kernel));
  }
}

/* The row of a gradient has one padding for both sides; it gives results in TensorFlow's layout, without a copy. */
static bool has_row(const geometry *g) {
  bool is_even = true;
  for (int p = 0; p < g->planes; ++p) {
    is_even = is_even && g->before[p] == g->after[p];
  }
  return is_even;
}

static void append(int64_t *ints, int *count, int more, const int64_t *numbers) {
  memcpy(ints + *count, numbers, sizeof *numbers * (size_t)more);
  *count += more;
}

static void record_row(htf_node *node, hr_op op, const geometry *g, int64_t groups, htf_value x, htf_value y,
                       htf_value out) {
  int64_t ints[3 * PLANES_MAX + 2] = {g->planes};
  int count = 1;
  append(ints, &count, g->planes, g->stride);
  append(ints, &count, g->planes, g->before);
  append(ints, &count, g->planes, g->dilation);
  ints[count++] = groups;
  htf_record(node, op, count, ints, INPUTS(x, y), out);
}

/* Images as [N, C, planes..], kernels as [O, I, planes..]: views of the core's layout. */
static htf_value planes_last(htf_node *node, const geometry *g, htf_value image) {
  static const int orders[2][DIMS_MAX] = {{0, 3, 1, 2}, {0, 4, 1, 2, 3}};
  return g->has_channels_first ? image : htf_transpose(node, image, orders[g->planes - 2]);
}

static htf_value planes_back(htf_node *node, const geometry *g, htf_value image) {
  static const int orders[2][DIMS_MAX] = {{0, 2, 3, 1}, {0, 2, 3, 4, 1}};
  return g->has_channels_first ? image : htf_transpose(node, image, orders[g->planes - 2]);
}

static htf_value kernel_view(htf_node *node, const geometry *g, htf_value kernel) {
  static const int orders[2][DIMS_MAX] = {{3, 2, 0, 1}, {4, 3, 0, 1, 2}};
  return htf_transpose(node, kernel, orders[g->planes - 2]);
}

/* The kernel [planes.., I / groups, O] with inputs and outputs of each group in each other's place. */
static htf_value turn_groups(htf_node *node, const geometry *g, htf_value kernel, int64_t groups) {
  static const int orders[2][DIMS_MAX + 1] = {{0, 1, 4, 3, 2}, {0, 1, 2, 5, 4, 3}};
  int64_t dims[DIMS_MAX + 1], turned[DIMS_MAX], inputs = kernel->dims[g->planes];
  int64_t results = kernel->dims[g->planes + 1] / groups;
  int n = g->planes;
  memcpy(dims, kernel->dims, sizeof *dims * (size_t)n);
  memcpy(turned, kernel->dims, sizeof *turned * (size_t)n);
  dims[n] = inputs, dims[n + 1] = groups, dims[n + 2] = results;
  turned[n] = results, turned[n + 1] = groups * inputs;
  return htf_reshape(node, htf_transpose(node, htf_reshape(node, kernel, n + 3, dims), orders[n - 2]), n + 2, turned);
}

static bool has_dims(htf_value x, int rank, const int64_t *dims) {
  return x->rank == rank && memcmp(x->dims, dims, sizeof *dims * (size_t)rank) == 0;
}

/* InvalidArgumentError unless the gradient has the dims of the result. */
static void check_gradient(htf_node *node, const geometry *g, htf_value gradient, const int64_t *dims) {
  if (!htf_has_failed(node) && !has_dims(gradient, g->planes + 2, dims)) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "%s: the gradient has other dims than the result",
             node->kernel->row->op);
  }
}

/* The convolution of the spaced gradient with the flipped kernel. */
static htf_value image_gradient(htf_node *node, const int64_t *image, htf_value kernel, htf_value gradient) {
  geometry g = read_convolution(node, image, kernel->dims);
  int64_t groups = groups_of(node, &g, image, kernel->dims), dims[DIMS_MAX];
  if (htf_has_failed(node)) {
    return gradient;
  }
  result_dims(&g, image, kernel->dims[g.planes + 1], dims);
  check_gradient(node, &g, gradient, dims);
  if (htf_has_failed(node)) {
    return gradient;
  }
  if (product(&g, image) == 0 || product(&g, dims) == 0) {
    return zeros(node, image, kernel->dtype);
  }
  if (has_row(&g)) {
    htf_value out = htf_new(node, kernel->dtype, g.planes + 2, image);
    record_row(node, HR_OP_CONV_BACKWARD_DATA, &g, groups, planes_last(node, &g, gradient),
               kernel_view(node, &g, kernel), planes_last(node, &g, out));
    return out;
  }
  int64_t before[PLANES_MAX], after[PLANES_MAX];
  for (int p = 0; p < g.planes; ++p) {
    int64_t extent = (g.size[p] - 1) * g.dilation[p];
    int64_t spaced = (dims[plane_dim(&g, p)] - 1) * g.stride[p] + 1;
    before[p] = extent - g.before[p];
    after[p] = image[plane_dim(&g, p)] + extent - spaced - before[p];
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
  int64_t image[DIMS_MAX] = {0}, dims[DIMS_MAX];
  int rank = htf_host_ints(node, 0, image, DIMS_MAX);
  htf_value kernel = htf_input(node, 1), gradient = htf_input(node, 2);
  check_ranks(node, kernel->rank, gradient->rank);
  geometry g = format_of(node);
  if (!htf_has_failed(node) && rank == g.planes) { /* the planes alone */
    dims[0] = gradient->dims[0], dims[channel_dim(&g)] = kernel->dims[g.planes];
    memcpy(dims + plane_dim(&g, 0), image, sizeof *dims * (size_t)rank);
    memcpy(image, dims, sizeof image);
    rank += 2;
  }
  check_ranks(node, rank, kernel->rank);
  if (!htf_has_failed(node)) {
    htf_output(node, 0, image_gradient(node, image, kernel, gradient));
  }
}

/* The convolution of the image with the gradient as a kernel: examples are its features, strides dilate it. */
static htf_value kernel_gradient(htf_node *node, htf_value image, const int64_t *kernel, htf_value gradient) {
  geometry g = read_convolution(node, image->dims, kernel);
  int64_t groups = groups_of(node, &g, image->dims, kernel);
  if (htf_has_failed(node)) {
    return gradient;
  }
  if (product(&g, kernel) == 0 || hr_tensor_count(gradient) == 0 || hr_tensor_count(image) == 0) {
    return zeros(node, kernel, image->dtype);
  }
  if (has_row(&g)) {
    htf_value out = htf_new(node, image->dtype, g.planes + 2, kernel);
    record_row(node, HR_OP_CONV_BACKWARD_WEIGHT, &g, groups, planes_last(node, &g, image),
               planes_last(node, &g, gradient), kernel_view(node, &g, out));
    return out;
  }
  int64_t after[PLANES_MAX];
  for (int p = 0; p < g.planes; ++p) {
    int64_t spaced = (gradient->dims[plane_dim(&g, p)] - 1) * g.stride[p] + 1;
    after[p] = (g.size[p] - 1) * g.dilation[p] + spaced - image->dims[plane_dim(&g, p)] - g.before[p];
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
  int64_t kernel[DIMS_MAX] = {0};
  htf_value image = htf_input(node, 0);
  int rank = htf_host_ints(node, 1, kernel, DIMS_MAX);
  htf_value gradient = htf_input(node, 2);
  check_ranks(node, image->rank, rank);
  check_ranks(node, image->rank, gradient->rank);
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
  check_ranks(node, image->rank, kernel->rank);
  if (!htf_has_failed(node)) {
    int64_t dims[DIMS_MAX];
    grouped_dims(kernel->dims, dims);
    htf_output(node, 0, forward(node, image, htf_reshape(node, kernel, 4, dims)));
  }
}

void htf_depthwise_image_gradient(htf_node *node) {
  int64_t image[DIMS_MAX] = {0}, dims[DIMS_MAX];
  int rank = htf_host_ints(node, 0, image, DIMS_MAX);
  htf_value kernel = htf_input(node, 1), gradient = htf_input(node, 2);
  check_ranks(node, kernel->rank, gradient->rank);
  check_ranks(node, kernel->rank, rank);
  if (!htf_has_failed(node)) {
    grouped_dims(kernel->dims, dims);
    htf_output(node, 0, image_gradient(node, image, htf_reshape(node, kernel, 4, dims), gradient));
  }
}

void htf_depthwise_kernel_gradient(htf_node *node) {
  int64_t kernel[DIMS_MAX] = {0}, dims[DIMS_MAX];
  htf_value image = htf_input(node, 0);
  int rank = htf_host_ints(node, 1, kernel, DIMS_MAX);
  htf_value gradient = htf_input(node, 2);
  check_ranks(node, image->rank, rank);
  check_ranks(node, image->rank, gradient->rank);
  if (!htf_has_failed(node)) {
    grouped_dims(kernel, dims);
    htf_output(node, 0, htf_reshape(node, kernel_gradient(node, image, dims, gradient), 4, kernel));
  }
}

/* ---- pooling ---- */

static geometry read_pool(htf_node *node, const int64_t *image) {
  geometry g = format_of(node);
  read_pair(node, &g, "ksize", g.size);
  read_pair(node, &g, "strides", g.stride);
  read_padding(node, &g, image);
  return g;
}

/* Records a row of pools with even padding, from and to images. */
static void record_pool(htf_node *node, hr_op op, const geometry *g, htf_value image, htf_value indices,
                        htf_value out) {
  bool is_mean = op == HR_OP_AVG_POOL || op == HR_OP_AVG_POOL_BACKWARD; /* of the elements that the image has */
  int64_t ints[4 * PLANES_MAX + 2] = {0};
  int count = 0;
  append(ints, &count, g->planes, g->size);
  append(ints, &count, g->planes, g->stride);
  append(ints, &count, g->planes, g->before);
  append(ints, &count, g->planes, g->dilation);
  const htf_value inputs[2] = {planes_last(node, g, image), indices};
  htf_record(node, op, count + (is_mean ? 2 : 0), ints, indices != NULL ? 2 : 1, inputs, planes_last(node, g, out));
}

/* A pool whose padding differs on both sides. */
static htf_value pool(htf_node *node, const geometry *g, htf_value planes) {
  bool is_mean = node->function == HR_FUNCTIONAL_AVG_POOL;
  const hr_attribute before = htf_attr_ints(g->before, g->planes), after = htf_attr_ints(g->after, g->planes);
  const hr_attribute attributes[5] = {htf_attr_ints(g->size, g->planes), htf_attr_ints(g->stride, g->planes), before,
                                      is_mean ? htf_attr_flag(false) : after, after};
  return htf_call(node, node->function, INPUTS(planes), is_mean ? 5 : 4, attributes);
}

void htf_pool(htf_node *node) {
  htf_value image = htf_input(node, 0);
  check_ranks(node, image->rank, image->rank);
  if (htf_has_failed(node)) {
    return;
  }
  geometry g = read_pool(node, image->dims);
  int64_t dims[DIMS_MAX];
  result_dims(&g, image->dims, image->dims[channel_dim(&g)], dims);
  if (!htf_has_failed(node) && product(&g, dims) == 0) {
    htf_output(node, 0, zeros(node, dims, image->dtype));
    return;
  }
  if (has_row(&g)) {
    htf_value out = htf_new(node, image->dtype, image->rank, dims);
    record_pool(node, node->function == HR_FUNCTIONAL_AVG_POOL ? HR_OP_AVG_POOL : HR_OP_MAX_POOL, &g, image, NULL, out);
    htf_output(node, 0, out);
    return;
  }
  htf_output(node, 0, planes_back(node, &g, pool(node, &g, planes_last(node, &g, image))));
}

/* True if as many windows fit with the padding in front on both sides, the last one cut or not. */
static bool fits_rows(const geometry *g, const int64_t *image, const int64_t *result) {
  bool fits = true;
  for (int p = 0; p < g->planes; ++p) {
    int64_t room = image[plane_dim(g, p)] + 2 * g->before[p] - g->size[p], wanted = result[plane_dim(g, p)] - 1;
    fits = fits && (wanted == room / g->stride[p] || wanted == (room + g->stride[p] - 1) / g->stride[p]);
  }
  return fits;
}

static double least_number(hr_dtype dtype) {
  switch (dtype) {
    case HR_DTYPE_I8:
      return INT8_MIN;
    case HR_DTYPE_I16:
      return INT16_MIN;
    case HR_DTYPE_I32:
      return INT32_MIN;
    case HR_DTYPE_I64:
      return (double)INT64_MIN;
    case HR_DTYPE_U8:
    case HR_DTYPE_U16:
      return 0;
    default:
      return -(double)INFINITY;
  }
}

/* By the image with least numbers around it, whose gradient is cut. */
static htf_value padded_pool_gradient(htf_node *node, const geometry *g, htf_value image, htf_value gradient) {
  int64_t before[DIMS_MAX] = {0}, after[DIMS_MAX] = {0}, offset = 0;
  geometry bare = *g;
  for (int p = 0; p < g->planes; ++p) {
    before[plane_dim(g, p)] = g->before[p], after[plane_dim(g, p)] = g->after[p];
    bare.before[p] = bare.after[p] = 0;
  }
  htf_value wide = htf_call(node, HR_FUNCTIONAL_PAD, INPUTS(image),
                            ATTRIBUTES(htf_attr_ints(before, image->rank), htf_attr_ints(after, image->rank),
                                       htf_attr_real(least_number(image->dtype)))),
            results[2], out = htf_new(node, image->dtype, image->rank, wide->dims);
  htf_call_many(node, HR_FUNCTIONAL_MAX_POOL_PLACES, INPUTS(planes_last(node, &bare, wide)),
                ATTRIBUTES(htf_attr_ints(bare.size, g->planes), htf_attr_ints(bare.stride, g->planes),
                           htf_attr_ints(bare.before, g->planes), htf_attr_ints(bare.after, g->planes)),
                2, results);
  record_pool(node, HR_OP_MAX_POOL_BACKWARD, &bare, gradient, results[1], out);
  for (int d = 0; d < image->rank; ++d) {
    offset += before[d] * out->strides[d];
  }
  return htf_view(node, out, image->rank, image->dims, out->strides, offset);
}

/* Inputs: the image, the result, which is not needed, and the gradient. */
void htf_max_pool_gradient(htf_node *node) {
  htf_value image = htf_input(node, 0), gradient = htf_input(node, 2);
  check_ranks(node, image->rank, gradient->rank);
  if (htf_has_failed(node)) {
    return;
  }
  geometry g = read_pool(node, image->dims);
  int64_t dims[DIMS_MAX];
  result_dims(&g, image->dims, image->dims[channel_dim(&g)], dims);
  check_gradient(node, &g, gradient, dims);
  if (!htf_has_failed(node) && product(&g, dims) == 0) {
    htf_output(node, 0, zeros(node, image->dims, image->dtype));
    return;
  }
  if (!fits_rows(&g, image->dims, dims)) {
    htf_output(node, 0, padded_pool_gradient(node, &g, image, gradient));
    return;
  }
  htf_value planes = planes_last(node, &g, image), results[2],
            out = htf_new(node, image->dtype, image->rank, image->dims);
  htf_call_many(node, HR_FUNCTIONAL_MAX_POOL_PLACES, INPUTS(planes),
                ATTRIBUTES(htf_attr_ints(g.size, g.planes), htf_attr_ints(g.stride, g.planes),
                           htf_attr_ints(g.before, g.planes), htf_attr_ints(g.after, g.planes)),
                2, results);
  record_pool(node, HR_OP_MAX_POOL_BACKWARD, &g, gradient, results[1], out);
  htf_output(node, 0, out);
}

/* The number of each example's first element, [N, 1, 1, 1]; 0 if examples count for themselves. */
static htf_value first_elements(htf_node *node, htf_value image) {
  const int64_t dims[4] = {image->dims[0], 1, 1, 1};
  double size = (double)(image->dims[1] * image->dims[2] * image->dims[3]);
  htf_value first = htf_call(node, HR_FUNCTIONAL_ARANGE, 0, NULL,
                             ATTRIBUTES(htf_attr_real(0), htf_attr_real(size * (double)dims[0]), htf_attr_real(size),
                                        htf_attr_dtype(HR_DTYPE_I64)));
  return htf_reshape(node, first, 4, dims);
}

/* The largest elements, and their places (y W + x) C + c in their example, or in the batch. */
void htf_max_pool_places(htf_node *node) {
  htf_value image = htf_input(node, 0), results[2];
  check_ranks(node, image->rank, image->rank);
  if (htf_has_failed(node)) {
    return;
  }
  geometry g = read_pool(node, image->dims);
  int64_t dims[DIMS_MAX];
  result_dims(&g, image->dims, image->dims[3], dims);
  if (!htf_has_failed(node) && product(&g, dims) == 0) {
    htf_output(node, 0, zeros(node, dims, image->dtype));
    htf_output(node, 1, zeros(node, dims, HR_DTYPE_I64));
    return;
  }
  htf_call_many(node, HR_FUNCTIONAL_MAX_POOL_PLACES, INPUTS(planes_last(node, &g, image)),
                ATTRIBUTES(htf_attr_ints(g.size, g.planes), htf_attr_ints(g.stride, g.planes),
                           htf_attr_ints(g.before, g.planes), htf_attr_ints(g.after, g.planes)),
                2, results);
  htf_output(node, 0, planes_back(node, &g, results[0]));
  htf_value channel = htf_call(node, HR_FUNCTIONAL_ARANGE, 0, NULL,
                               ATTRIBUTES(htf_attr_real(0), htf_attr_real((double)image->dims[3]), htf_attr_real(1),
                                          htf_attr_dtype(HR_DTYPE_I64)));
  htf_value channels = htf_number_of(node, hr_scalar_i64(image->dims[3]));
  htf_value place = htf_multiply(node, planes_back(node, &g, results[1]), channels);
  place = htf_add(node, place, channel);
  if (htf_flag(node, "include_batch_in_index")) {
    place = htf_add(node, place, first_elements(node, image));
  }
  htf_output(node, 1, place);
}

/* Inputs: the image, the gradient and the places. */
void htf_max_pool_places_gradient(htf_node *node) {
  htf_value image = htf_input(node, 0), gradient = htf_input(node, 1), places = htf_input(node, 2);
  check_ranks(node, image->rank, gradient->rank);
  if (!htf_has_failed(node) && !has_dims(gradient, places->rank, places->dims)) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "%s: the gradient must have the dims of argmax", node->kernel->row->op);
  }
  if (htf_has_failed(node)) {
    return;
  }
  int64_t count = hr_tensor_count(image), elements = hr_tensor_count(gradient);
  const int64_t tuples[2] = {elements, 1};
  htf_value sums = htf_call(node, HR_FUNCTIONAL_FULL, INPUTS(htf_number_of(node, hr_scalar_i64(0))),
                            ATTRIBUTES(htf_attr_ints(&count, 1), htf_attr_dtype(image->dtype)));
  if (elements > 0 && count > 0) {
    places = htf_cast(node, places, HR_DTYPE_I64);
    places = htf_flag(node, "include_batch_in_index") ? places : htf_add(node, places, first_elements(node, image));
    sums = htf_call(node, HR_FUNCTIONAL_SCATTER_ND,
                    INPUTS(sums, htf_reshape(node, places, 2, tuples), htf_reshape(node, gradient, 1, &elements)),
                    ATTRIBUTES(htf_attr_int(0), htf_attr_text("add"), htf_attr_text("error")));
  }
  htf_output(node, 0, htf_reshape(node, sums, image->rank, image->dims));
}

/* The elements of each window as features: [N, windows.., h, w, C]. */
void htf_extract_patches(htf_node *node) {
  htf_value image = htf_input(node, 0);
  check_ranks(node, image->rank, image->rank);
  geometry g = format_of(node);
  read_pair(node, &g, "ksizes", g.size);
  read_pair(node, &g, "strides", g.stride);
  read_pair(node, &g, "rates", g.dilation);
  read_padding(node, &g, image->dims);
  if (htf_has_failed(node)) {
    return;
  }
  int64_t dims[DIMS_MAX], channels = image->dims[3], window = g.size[0] * g.size[1];
  result_dims(&g, image->dims, window * channels, dims);
  if (product(&g, dims) == 0) {
    htf_output(node, 0, zeros(node, dims, image->dtype));
    return;
  }
  static const int order[5] = {0, 3, 4, 2, 1};
  const int64_t parts[5] = {dims[0], channels, window, dims[1], dims[2]};
  htf_value columns =
      htf_call(node, HR_FUNCTIONAL_IM2COL, INPUTS(planes_last(node, &g, image)),
               ATTRIBUTES(htf_attr_ints(g.size, 2), htf_attr_ints(g.stride, 2), htf_attr_ints(g.before, 2),
                          htf_attr_ints(g.after, 2), htf_attr_ints(g.dilation, 2)));
  htf_output(node, 0, htf_reshape(node, htf_transpose(node, htf_reshape(node, columns, 5, parts), order), 4, dims));
}

/* The number of elements of an image that each window has, [1, 1, planes]. */
static htf_value window_sizes(htf_node *node, const geometry *g, htf_value gradient, const int64_t *planes) {
  int64_t dims[DIMS_MAX] = {1, 1}, size[DIMS_MAX] = {1, 1}, stride[DIMS_MAX] = {1, 1}, before[DIMS_MAX] = {0},
          after[DIMS_MAX] = {0};
  int rank = g->planes + 2;
  for (int p = 0; p < g->planes; ++p) {
    dims[p + 2] = planes[p], size[p + 2] = g->size[p], stride[p + 2] = g->stride[p];
    before[p + 2] = g->before[p], after[p + 2] = g->after[p];
  }
  htf_value full = htf_call(node, HR_FUNCTIONAL_FULL, INPUTS(htf_number_of(node, hr_scalar_i64(1))),
                            ATTRIBUTES(htf_attr_ints(dims, rank), htf_attr_dtype(gradient->dtype)));
  return htf_call(node, HR_FUNCTIONAL_REDUCE_WINDOW, INPUTS(full),
                  ATTRIBUTES(htf_attr_ints(size, rank), htf_attr_ints(stride, rank), htf_attr_ints(before, rank),
                             htf_attr_ints(after, rank)));
}

/* Each element gets the sum of its windows' gradients, each divided by the elements of the window. */
static htf_value spread_mean(htf_node *node, const geometry *g, htf_value gradient, const int64_t *planes) {
  htf_value shares = htf_divide(node, gradient, window_sizes(node, g, gradient, planes));
  const int64_t *d = shares->dims;
  int64_t elements = 1, windows = 1;
  for (int p = 0; p < g->planes; ++p) {
    elements *= g->size[p], windows *= d[p + 2];
  }
  const int64_t flat[4] = {d[0], d[1], 1, windows}, wide[4] = {d[0], d[1], elements, windows},
                columns[3] = {d[0], d[1] * elements, windows};
  htf_value rows = htf_reshape(node, shares, 4, flat);
  htf_value all = htf_call(node, HR_FUNCTIONAL_BROADCAST_TO, INPUTS(rows), ATTRIBUTES(htf_attr_ints(wide, 4)));
  htf_value matrix = htf_reshape(node, all, 3, columns);
  return htf_call(node, HR_FUNCTIONAL_COL2IM, INPUTS(matrix),
                  ATTRIBUTES(htf_attr_ints(planes, g->planes), htf_attr_ints(g->size, g->planes),
                             htf_attr_ints(g->stride, g->planes), htf_attr_ints(g->before, g->planes),
                             htf_attr_ints(g->after, g->planes)));
}

void htf_avg_pool_gradient(htf_node *node) {
  int64_t image[DIMS_MAX] = {0}, dims[DIMS_MAX];
  int rank = htf_host_ints(node, 0, image, DIMS_MAX);
  htf_value gradient = htf_input(node, 1);
  check_ranks(node, rank, gradient->rank);
  if (htf_has_failed(node)) {
    return;
  }
  geometry g = read_pool(node, image);
  result_dims(&g, image, image[channel_dim(&g)], dims);
  check_gradient(node, &g, gradient, dims);
  if (!htf_has_failed(node) && product(&g, dims) == 0) {
    htf_output(node, 0, zeros(node, image, gradient->dtype));
    return;
  }
  if (has_row(&g)) {
    htf_value out = htf_new(node, gradient->dtype, rank, image);
    record_pool(node, HR_OP_AVG_POOL_BACKWARD, &g, gradient, NULL, out);
    htf_output(node, 0, out);
    return;
  }
  const int64_t *planes = image + plane_dim(&g, 0);
  htf_output(node, 0, planes_back(node, &g, spread_mean(node, &g, planes_last(node, &g, gradient), planes)));
}
