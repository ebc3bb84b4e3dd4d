/* ops_windows.c: rules of convolutions and pooling over two planes dims, and of their gradients.
 *
 * Images are NHWC or NCHW, kernels HWIO; the layouts are strides to the core. SAME pads so that the result has
 * ceil(size / stride) elements, with an odd element behind.
 */
#include <stdio.h>
#include <string.h>

#include "node.h"

enum { PLANES = 2 };

/* A window's geometry, in the order of the planes' dims. */
typedef struct geometry {
  bool has_channels_first;
  int64_t size[PLANES], stride[PLANES], dilation[PLANES], before[PLANES], after[PLANES];
} geometry;

static int plane_dim(const geometry *g, int plane) {
  return plane + (g->has_channels_first ? 2 : 1);
}

static int channel_dim(const geometry *g) {
  return g->has_channels_first ? 1 : 3;
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

/* Entries of a list of TensorFlow's, which must be 1 for examples and channels. */
static void read_pair(htf_node *node, const geometry *g, const char *name, int64_t *out_values) {
  const htf_attribute *list = htf_list(node, name);
  if (list->count != 4 || list->list[0] != 1 || list->list[channel_dim(g)] != 1) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "%s: %s must be 4 numbers, those of examples and channels 1",
             node->kernel->row->op, name);
    return;
  }
  for (int p = 0; p < PLANES; ++p) {
    out_values[p] = list->list[plane_dim(g, p)];
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
  if (is_explicit && sides->count != 8) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "%s: explicit_paddings must be 8 numbers, not %d", node->kernel->row->op,
             sides->count);
    return;
  }
  for (int p = 0; p < PLANES && !htf_has_failed(node); ++p) {
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

static bool has_channels_first(htf_node *node) {
  return strcmp(htf_text(node, "data_format"), "NCHW") == 0;
}

/* InvalidArgumentError unless both have 4 dims. */
static void check_ranks(htf_node *node, int rank, int other) {
  if (!htf_has_failed(node) && (rank != 4 || other != 4)) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "%s: images and kernels must have 4 dims, they have %d and %d",
             node->kernel->row->op, rank, other);
  }
}

/* ---- convolutions ---- */

static geometry read_convolution(htf_node *node, const int64_t *image, const int64_t *kernel) {
  geometry g = {.has_channels_first = has_channels_first(node), .size = {kernel[0], kernel[1]}};
  read_pair(node, &g, "strides", g.stride);
  read_pair(node, &g, "dilations", g.dilation);
  read_padding(node, &g, image);
  return g;
}

/* The groups of features, which the kernel's dims imply. */
static int64_t groups_of(htf_node *node, const geometry *g, const int64_t *image, const int64_t *kernel) {
  int64_t channels = image[channel_dim(g)];
  if (!htf_has_failed(node) &&
      (channels < 1 || kernel[2] < 1 || channels % kernel[2] != 0 || kernel[3] % (channels / kernel[2]) != 0)) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT,
             "%s: an image of %lld channels does not fit a kernel of %lld, for %lld results", node->kernel->row->op,
             (long long)channels, (long long)kernel[2], (long long)kernel[3]);
  }
  return htf_has_failed(node) ? 1 : channels / kernel[2];
}

typedef struct convolution {
  const int64_t *stride, *before, *after, *dilation, *spacing;
  int64_t groups, batch_groups;
  bool is_flipped;
  const char *image, *kernel, *result; /* layouts */
} convolution;

static htf_value convolve(htf_node *node, htf_value image, htf_value kernel, const convolution *c) {
  char layout[32];
  snprintf(layout, sizeof layout, "%s,%s->%s", c->image, c->kernel, c->result);
  return htf_call(node, HR_FUNCTIONAL_CONV_GENERAL, INPUTS(image, kernel, NULL),
                  ATTRIBUTES(htf_attr_ints(c->stride, PLANES), htf_attr_ints(c->before, PLANES),
                             htf_attr_ints(c->after, PLANES), htf_attr_ints(c->dilation, PLANES),
                             htf_attr_ints(c->spacing, PLANES), htf_attr_int(c->groups), htf_attr_int(c->batch_groups),
                             htf_attr_text("explicit"), htf_attr_text(layout), htf_attr_flag(c->is_flipped)));
}

static const int64_t ones[PLANES] = {1, 1};

static const char *image_layout(const geometry *g) {
  return g->has_channels_first ? "bf01" : "b01f";
}

static htf_value zeros(htf_node *node, const int64_t *dims, hr_dtype dtype) {
  return htf_call(node, HR_FUNCTIONAL_FULL, INPUTS(htf_number_of(node, hr_scalar_i64(0))),
                  ATTRIBUTES(htf_attr_ints(dims, 4), htf_attr_dtype(dtype)));
}

/* The result's elements along a plane. */
static int64_t results_along(const geometry *g, int plane, int64_t size) {
  int64_t extent = (g->size[plane] - 1) * g->dilation[plane] + 1;
  int64_t room = size + g->before[plane] + g->after[plane] - extent;
  return room < 0 ? 0 : room / g->stride[plane] + 1;
}

static void result_dims(const geometry *g, const int64_t *image, int64_t features, int64_t *out_dims) {
  out_dims[0] = image[0], out_dims[channel_dim(g)] = features;
  for (int p = 0; p < PLANES; ++p) {
    out_dims[plane_dim(g, p)] = results_along(g, p, image[plane_dim(g, p)]);
  }
}

static int64_t product(const int64_t *dims) {
  return dims[0] * dims[1] * dims[2] * dims[3];
}

static htf_value forward(htf_node *node, htf_value image, htf_value kernel) {
  geometry g = read_convolution(node, image->dims, kernel->dims);
  int64_t groups = groups_of(node, &g, image->dims, kernel->dims), dims[4];
  if (htf_has_failed(node)) {
    return image;
  }
  result_dims(&g, image->dims, kernel->dims[3], dims);
  if (product(dims) == 0) {
    return zeros(node, dims, image->dtype);
  }
  const convolution c = {.stride = g.stride,
                         .before = g.before,
                         .after = g.after,
                         .dilation = g.dilation,
                         .spacing = ones,
                         .groups = groups,
                         .batch_groups = 1,
                         .image = image_layout(&g),
                         .kernel = "01io",
                         .result = image_layout(&g)};
  return convolve(node, image, kernel, &c);
}

void htf_conv2d(htf_node *node) {
  htf_value image = htf_input(node, 0), kernel = htf_input(node, 1);
  check_ranks(node, image->rank, kernel->rank);
  if (!htf_has_failed(node)) {
    htf_output(node, 0, forward(node, image, kernel));
  }
}

/* The row of a gradient has one padding for both sides; it gives results in TensorFlow's layout, without a copy. */
static bool has_row(const geometry *g) {
  bool is_even = true;
  for (int p = 0; p < PLANES; ++p) {
    is_even = is_even && g->before[p] == g->after[p];
  }
  return is_even;
}

static void record_row(htf_node *node, hr_op op, const geometry *g, int64_t groups, htf_value x, htf_value y,
                       htf_value out) {
  const int64_t ints[3 * PLANES + 2] = {PLANES,       g->stride[0],   g->stride[1],   g->before[0],
                                        g->before[1], g->dilation[0], g->dilation[1], groups};
  htf_record(node, op, 3 * PLANES + 2, ints, INPUTS(x, y), out);
}

/* Images as [N, C, h, w], kernels as [O, I, h, w]: views of the core's layout. */
static htf_value planes_last(htf_node *node, const geometry *g, htf_value image) {
  static const int order[4] = {0, 3, 1, 2};
  return g->has_channels_first ? image : htf_transpose(node, image, order);
}

static htf_value planes_back(htf_node *node, const geometry *g, htf_value image) {
  static const int order[4] = {0, 2, 3, 1};
  return g->has_channels_first ? image : htf_transpose(node, image, order);
}

static htf_value kernel_view(htf_node *node, htf_value kernel) {
  static const int order[4] = {3, 2, 0, 1};
  return htf_transpose(node, kernel, order);
}

/* The kernel [h, w, I / groups, O] with inputs and outputs of each group in each other's place. */
static htf_value turn_groups(htf_node *node, htf_value kernel, int64_t groups) {
  const int64_t *d = kernel->dims;
  int64_t dims[5] = {d[0], d[1], d[2], groups, d[3] / groups}, turned[4] = {d[0], d[1], d[3] / groups, groups * d[2]};
  static const int order[5] = {0, 1, 4, 3, 2};
  return htf_reshape(node, htf_transpose(node, htf_reshape(node, kernel, 5, dims), order), 4, turned);
}

/* The convolution of the spaced gradient with the flipped kernel. */
static htf_value image_gradient(htf_node *node, const int64_t *image, htf_value kernel, htf_value gradient) {
  geometry g = read_convolution(node, image, kernel->dims);
  int64_t groups = groups_of(node, &g, image, kernel->dims), dims[4];
  if (htf_has_failed(node)) {
    return gradient;
  }
  result_dims(&g, image, kernel->dims[3], dims);
  if (memcmp(dims, gradient->dims, sizeof dims) != 0) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT,
             "%s: the gradient has the dims [%lld,%lld,%lld,%lld], expected [%lld,%lld,%lld,%lld]",
             node->kernel->row->op, (long long)gradient->dims[0], (long long)gradient->dims[1],
             (long long)gradient->dims[2], (long long)gradient->dims[3], (long long)dims[0], (long long)dims[1],
             (long long)dims[2], (long long)dims[3]);
    return gradient;
  }
  if (product(image) == 0 || product(dims) == 0) {
    return zeros(node, image, kernel->dtype);
  }
  if (has_row(&g)) {
    htf_value out = htf_new(node, kernel->dtype, 4, image);
    record_row(node, HR_OP_CONV_BACKWARD_DATA, &g, groups, planes_last(node, &g, gradient), kernel_view(node, kernel),
               planes_last(node, &g, out));
    return out;
  }
  int64_t before[PLANES], after[PLANES];
  for (int p = 0; p < PLANES; ++p) {
    int64_t extent = (g.size[p] - 1) * g.dilation[p];
    int64_t spaced = (dims[plane_dim(&g, p)] - 1) * g.stride[p] + 1;
    before[p] = extent - g.before[p];
    after[p] = image[plane_dim(&g, p)] + extent - spaced - before[p];
  }
  const convolution c = {.stride = ones,
                         .before = before,
                         .after = after,
                         .dilation = g.dilation,
                         .spacing = g.stride,
                         .groups = groups,
                         .batch_groups = 1,
                         .is_flipped = true,
                         .image = image_layout(&g),
                         .kernel = groups > 1 ? "01io" : "01oi",
                         .result = image_layout(&g)};
  return convolve(node, gradient, groups > 1 ? turn_groups(node, kernel, groups) : kernel, &c);
}

void htf_conv2d_image_gradient(htf_node *node) {
  int64_t image[4] = {0};
  int rank = htf_host_ints(node, 0, image, 4);
  htf_value kernel = htf_input(node, 1), gradient = htf_input(node, 2);
  check_ranks(node, kernel->rank, gradient->rank);
  if (!htf_has_failed(node) && rank == 2) { /* the planes alone */
    bool first = has_channels_first(node);
    const int64_t dims[4] = {gradient->dims[0], first ? kernel->dims[2] : image[0], first ? image[0] : image[1],
                             first ? image[1] : kernel->dims[2]};
    memcpy(image, dims, sizeof image);
  }
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
  if (product(kernel) == 0 || hr_tensor_count(gradient) == 0 || hr_tensor_count(image) == 0) {
    return zeros(node, kernel, image->dtype);
  }
  if (has_row(&g)) {
    htf_value out = htf_new(node, image->dtype, 4, kernel);
    record_row(node, HR_OP_CONV_BACKWARD_WEIGHT, &g, groups, planes_last(node, &g, image),
               planes_last(node, &g, gradient), kernel_view(node, out));
    return out;
  }
  int64_t after[PLANES];
  for (int p = 0; p < PLANES; ++p) {
    int64_t spaced = (gradient->dims[plane_dim(&g, p)] - 1) * g.stride[p] + 1;
    after[p] = (g.size[p] - 1) * g.dilation[p] + spaced - image->dims[plane_dim(&g, p)] - g.before[p];
  }
  const convolution c = {.stride = g.dilation,
                         .before = g.before,
                         .after = after,
                         .dilation = g.stride,
                         .spacing = ones,
                         .groups = 1,
                         .batch_groups = groups,
                         .image = g.has_channels_first ? "fb01" : "f01b",
                         .kernel = g.has_channels_first ? "io01" : "i01o",
                         .result = "01bf"};
  return convolve(node, image, gradient, &c);
}

void htf_conv2d_kernel_gradient(htf_node *node) {
  int64_t kernel[4] = {0};
  htf_value image = htf_input(node, 0);
  int rank = htf_host_ints(node, 1, kernel, 4);
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
    int64_t dims[4];
    grouped_dims(kernel->dims, dims);
    htf_output(node, 0, forward(node, image, htf_reshape(node, kernel, 4, dims)));
  }
}

void htf_depthwise_image_gradient(htf_node *node) {
  int64_t image[4] = {0}, dims[4];
  int rank = htf_host_ints(node, 0, image, 4);
  htf_value kernel = htf_input(node, 1), gradient = htf_input(node, 2);
  check_ranks(node, kernel->rank, gradient->rank);
  check_ranks(node, kernel->rank, rank);
  if (!htf_has_failed(node)) {
    grouped_dims(kernel->dims, dims);
    htf_output(node, 0, image_gradient(node, image, htf_reshape(node, kernel, 4, dims), gradient));
  }
}

void htf_depthwise_kernel_gradient(htf_node *node) {
  int64_t kernel[4] = {0}, dims[4];
  htf_value image = htf_input(node, 0);
  int rank = htf_host_ints(node, 1, kernel, 4);
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
  geometry g = {.has_channels_first = has_channels_first(node), .dilation = {1, 1}};
  read_pair(node, &g, "ksize", g.size);
  read_pair(node, &g, "strides", g.stride);
  read_padding(node, &g, image);
  return g;
}

/* Records a row of pools with even padding, from and to images. */
static void record_pool(htf_node *node, hr_op op, const geometry *g, htf_value image, htf_value indices,
                        htf_value out) {
  bool is_mean = op == HR_OP_AVG_POOL || op == HR_OP_AVG_POOL_BACKWARD; /* of the elements that the image has */
  const int64_t ints[4 * PLANES + 2] = {g->size[0],   g->size[1],   g->stride[0],   g->stride[1],
                                        g->before[0], g->before[1], g->dilation[0], g->dilation[1]};
  const htf_value inputs[2] = {planes_last(node, g, image), indices};
  htf_record(node, op, 4 * PLANES + (is_mean ? 2 : 0), ints, indices != NULL ? 2 : 1, inputs,
             planes_last(node, g, out));
}

/* A pool whose padding differs on both sides. */
static htf_value pool(htf_node *node, const geometry *g, htf_value planes) {
  bool is_mean = node->function == HR_FUNCTIONAL_AVG_POOL;
  const hr_attribute before = htf_attr_ints(g->before, PLANES), after = htf_attr_ints(g->after, PLANES);
  const hr_attribute attributes[5] = {htf_attr_ints(g->size, PLANES), htf_attr_ints(g->stride, PLANES), before,
                                      is_mean ? htf_attr_flag(false) : after, after};
  return htf_call(node, node->function, INPUTS(planes), is_mean ? 5 : 4, attributes);
}

void htf_pool(htf_node *node) {
  htf_value image = htf_input(node, 0);
  check_ranks(node, image->rank, 4);
  if (htf_has_failed(node)) {
    return;
  }
  geometry g = read_pool(node, image->dims);
  int64_t dims[4];
  result_dims(&g, image->dims, image->dims[channel_dim(&g)], dims);
  if (!htf_has_failed(node) && product(dims) == 0) {
    htf_output(node, 0, zeros(node, dims, image->dtype));
    return;
  }
  if (has_row(&g)) {
    htf_value out = htf_new(node, image->dtype, 4, dims);
    record_pool(node, node->function == HR_FUNCTIONAL_AVG_POOL ? HR_OP_AVG_POOL : HR_OP_MAX_POOL, &g, image, NULL, out);
    htf_output(node, 0, out);
    return;
  }
  htf_output(node, 0, planes_back(node, &g, pool(node, &g, planes_last(node, &g, image))));
}

static bool has_dims(htf_value x, const int64_t *dims) {
  return x->rank == 4 && memcmp(x->dims, dims, 4 * sizeof *dims) == 0;
}

/* Inputs: the image, the result, which is not needed, and the gradient. */
void htf_max_pool_gradient(htf_node *node) {
  htf_value image = htf_input(node, 0), gradient = htf_input(node, 2);
  check_ranks(node, image->rank, gradient->rank);
  if (htf_has_failed(node)) {
    return;
  }
  geometry g = read_pool(node, image->dims);
  int64_t dims[4];
  result_dims(&g, image->dims, image->dims[channel_dim(&g)], dims);
  if (!htf_has_failed(node) && !has_dims(gradient, dims)) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "%s: the gradient has other dims than the result",
             node->kernel->row->op);
  }
  if (!htf_has_failed(node) && product(dims) == 0) {
    htf_output(node, 0, zeros(node, image->dims, image->dtype));
    return;
  }
  htf_value planes = planes_last(node, &g, image), results[2], out = htf_new(node, image->dtype, 4, image->dims);
  htf_call_many(node, HR_FUNCTIONAL_MAX_POOL_PLACES, INPUTS(planes),
                ATTRIBUTES(htf_attr_ints(g.size, PLANES), htf_attr_ints(g.stride, PLANES),
                           htf_attr_ints(g.before, PLANES), htf_attr_ints(g.after, PLANES)),
                2, results);
  record_pool(node, HR_OP_MAX_POOL_BACKWARD, &g, gradient, results[1], out);
  htf_output(node, 0, out);
}

/* The number of elements of an image that each window has, [1, 1, planes]. */
static htf_value window_sizes(htf_node *node, const geometry *g, htf_value gradient, const int64_t *planes) {
  const int64_t dims[4] = {1, 1, planes[0], planes[1]}, size[4] = {1, 1, g->size[0], g->size[1]},
                stride[4] = {1, 1, g->stride[0], g->stride[1]}, before[4] = {0, 0, g->before[0], g->before[1]},
                after[4] = {0, 0, g->after[0], g->after[1]};
  htf_value full = htf_call(node, HR_FUNCTIONAL_FULL, INPUTS(htf_number_of(node, hr_scalar_i64(1))),
                            ATTRIBUTES(htf_attr_ints(dims, 4), htf_attr_dtype(gradient->dtype)));
  return htf_call(
      node, HR_FUNCTIONAL_REDUCE_WINDOW, INPUTS(full),
      ATTRIBUTES(htf_attr_ints(size, 4), htf_attr_ints(stride, 4), htf_attr_ints(before, 4), htf_attr_ints(after, 4)));
}

/* Each element gets the sum of its windows' gradients, each divided by the elements of the window. */
static htf_value spread_mean(htf_node *node, const geometry *g, htf_value gradient, const int64_t *planes) {
  htf_value shares = htf_call2(node, HR_FUNCTIONAL_DIVIDE, gradient, window_sizes(node, g, gradient, planes));
  const int64_t *d = shares->dims;
  int64_t elements = g->size[0] * g->size[1], windows = d[2] * d[3];
  const int64_t flat[4] = {d[0], d[1], 1, windows}, wide[4] = {d[0], d[1], elements, windows},
                columns[3] = {d[0], d[1] * elements, windows};
  htf_value rows = htf_reshape(node, shares, 4, flat);
  htf_value all = htf_call(node, HR_FUNCTIONAL_BROADCAST_TO, INPUTS(rows), ATTRIBUTES(htf_attr_ints(wide, 4)));
  htf_value matrix = htf_reshape(node, all, 3, columns);
  return htf_call(node, HR_FUNCTIONAL_COL2IM, INPUTS(matrix),
                  ATTRIBUTES(htf_attr_ints(planes, PLANES), htf_attr_ints(g->size, PLANES),
                             htf_attr_ints(g->stride, PLANES), htf_attr_ints(g->before, PLANES),
                             htf_attr_ints(g->after, PLANES)));
}

void htf_avg_pool_gradient(htf_node *node) {
  int64_t image[4] = {0}, dims[4];
  int rank = htf_host_ints(node, 0, image, 4);
  htf_value gradient = htf_input(node, 1);
  check_ranks(node, rank, gradient->rank);
  if (htf_has_failed(node)) {
    return;
  }
  geometry g = read_pool(node, image);
  result_dims(&g, image, image[channel_dim(&g)], dims);
  if (!htf_has_failed(node) && !has_dims(gradient, dims)) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "%s: the gradient has other dims than the result",
             node->kernel->row->op);
  }
  if (!htf_has_failed(node) && product(dims) == 0) {
    htf_output(node, 0, zeros(node, image, gradient->dtype));
    return;
  }
  if (has_row(&g)) {
    htf_value out = htf_new(node, gradient->dtype, 4, image);
    record_pool(node, HR_OP_AVG_POOL_BACKWARD, &g, gradient, NULL, out);
    htf_output(node, 0, out);
    return;
  }
  const int64_t planes[PLANES] = {image[plane_dim(&g, 0)], image[plane_dim(&g, 1)]};
  htf_output(node, 0, planes_back(node, &g, spread_mean(node, &g, planes_last(node, &g, gradient), planes)));
}
