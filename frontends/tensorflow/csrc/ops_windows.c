/* ops_windows.c: geometry of windows over an image's planes (ops_windows.h), and the rule of patches. */
#include "ops_windows.h"

#include <math.h>
#include <string.h>

static int64_t at_least_0(int64_t x) {
  return x > 0 ? x : 0;
}

static void pad_same(htf_geometry *g, int plane, int64_t size) {
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

void htf_read_pair(htf_node *node, const htf_geometry *g, const char *name, int64_t *out_values) {
  int64_t list[HTF_LIST_MAX];
  int count = read_list(node, name, list);
  if (count == 0 && strcmp(name, "dilations") == 0) {
    return; /* they stay 1 */
  }
  if (count != g->planes + 2) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "%s: %s must be %d numbers, not %d", node->kernel->row->op, name,
             g->planes + 2, count);
    return;
  }
  if (list[0] != 1 || list[htf_channel_dim(g)] != 1) {
    bool is_gradient = strstr(node->kernel->row->op, "Backprop") != NULL;
    htf_fail(node, is_gradient ? HR_STATUS_INVALID_ARGUMENT : HR_STATUS_UNIMPLEMENTED,
             "%s: no support of %s in the batch and depth dimensions: they are %lld and %lld, expected 1",
             node->kernel->row->op, name, (long long)list[0], (long long)list[htf_channel_dim(g)]);
    return;
  }
  for (int p = 0; p < g->planes; ++p) {
    int64_t value = list[htf_plane_dim(g, p)];
    if (value < 1) {
      htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "%s: %s has %lld, it must be positive", node->kernel->row->op, name,
               (long long)value);
      return;
    }
    out_values[p] = value;
  }
}

void htf_read_padding(htf_node *node, htf_geometry *g, const int64_t *dims) {
  if (htf_has_failed(node)) {
    return;
  }
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
      pad_same(g, p, dims[htf_plane_dim(g, p)]);
    } else if (is_explicit) {
      g->before[p] = sides->list[2 * htf_plane_dim(g, p)], g->after[p] = sides->list[2 * htf_plane_dim(g, p) + 1];
      if (g->before[p] < 0 || g->after[p] < 0) {
        htf_fail(node, HR_STATUS_INVALID_ARGUMENT,
                 "%s: All elements of explicit_paddings must be nonnegative, not %lld and %lld", node->kernel->row->op,
                 (long long)g->before[p], (long long)g->after[p]);
      }
    }
  }
}

static const char *format_name(htf_node *node) {
  return htf_text_or(node, "data_format", "NHWC");
}

static bool has_channels_first(htf_node *node) {
  return strncmp(format_name(node), "NC", 2) == 0 || strcmp(format_name(node), "CHANNELS_FIRST") == 0;
}

/* The dims of an image: the letters of its format, or as many as those of the kernel. */
static int rank_of(htf_node *node) {
  return htf_has_attribute(node, "batch_dims") ? htf_input(node, 1)->rank : (int)strlen(format_name(node));
}

void htf_check_ranks(htf_node *node, int rank, int other) {
  int want = rank_of(node);
  if (!htf_has_failed(node) && (rank != want || other != want)) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "%s: images and kernels must have %d dims, they have %d and %d",
             node->kernel->row->op, want, rank, other);
  }
}

htf_geometry htf_geometry_of(htf_node *node) {
  return (htf_geometry){.has_channels_first = has_channels_first(node),
                        .planes = rank_of(node) - 2,
                        .size = {1, 1, 1},
                        .stride = {1, 1, 1},
                        .dilation = {1, 1, 1}};
}

/* The result's elements along a plane. */
static int64_t results_along(const htf_geometry *g, int plane, int64_t size) {
  int64_t extent = (g->size[plane] - 1) * g->dilation[plane] + 1;
  int64_t room = size + g->before[plane] + g->after[plane] - extent;
  return room < 0 ? 0 : room / g->stride[plane] + 1;
}

void htf_result_dims(const htf_geometry *g, const int64_t *image, int64_t features, int64_t *out_dims) {
  out_dims[0] = image[0], out_dims[htf_channel_dim(g)] = features;
  for (int p = 0; p < g->planes; ++p) {
    out_dims[htf_plane_dim(g, p)] = results_along(g, p, image[htf_plane_dim(g, p)]);
  }
}

int64_t htf_image_count(const htf_geometry *g, const int64_t *dims) {
  int64_t count = 1;
  for (int d = 0; d < g->planes + 2; ++d) {
    count *= dims[d];
  }
  return count;
}

bool htf_has_row(const htf_geometry *g) {
  bool is_even = true;
  for (int p = 0; p < g->planes; ++p) {
    is_even = is_even && g->before[p] == g->after[p];
  }
  return is_even;
}

void htf_append_ints(int64_t *ints, int *count, int more, const int64_t *numbers) {
  memcpy(ints + *count, numbers, sizeof *numbers * (size_t)more);
  *count += more;
}

htf_value htf_planes_last(htf_node *node, const htf_geometry *g, htf_value image) {
  static const int orders[2][HTF_IMAGE_DIMS_MAX] = {{0, 3, 1, 2}, {0, 4, 1, 2, 3}};
  return g->has_channels_first ? image : htf_transpose(node, image, orders[g->planes - 2]);
}

htf_value htf_planes_back(htf_node *node, const htf_geometry *g, htf_value image) {
  static const int orders[2][HTF_IMAGE_DIMS_MAX] = {{0, 2, 3, 1}, {0, 2, 3, 4, 1}};
  return g->has_channels_first ? image : htf_transpose(node, image, orders[g->planes - 2]);
}

bool htf_has_dims(htf_value x, int rank, const int64_t *dims) {
  return x->rank == rank && memcmp(x->dims, dims, sizeof *dims * (size_t)rank) == 0;
}

void htf_check_gradient(htf_node *node, const htf_geometry *g, htf_value gradient, const int64_t *dims) {
  if (!htf_has_failed(node) && !htf_has_dims(gradient, g->planes + 2, dims)) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "Expected grad shape to be %s, but got %s",
             htf_text_of_dims(g->planes + 2, dims).text, htf_text_of_dims(gradient->rank, gradient->dims).text);
  }
}

double htf_least_number(hr_dtype dtype) {
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
    case HR_DTYPE_U32:
    case HR_DTYPE_U64:
      return 0;
    default:
      return -(double)INFINITY;
  }
}

/* ---- patches ---- */

/* The elements of each window as features: [N, windows.., h, w, C]. */
void htf_extract_patches(htf_node *node) {
  htf_value image = htf_input(node, 0);
  htf_check_ranks(node, image->rank, image->rank);
  htf_geometry g = htf_geometry_of(node);
  htf_read_pair(node, &g, "ksizes", g.size);
  htf_read_pair(node, &g, "strides", g.stride);
  htf_read_pair(node, &g, "rates", g.dilation);
  htf_read_padding(node, &g, image->dims);
  if (htf_has_failed(node)) {
    return;
  }
  int64_t dims[HTF_IMAGE_DIMS_MAX], channels = image->dims[3], window = g.size[0] * g.size[1];
  htf_result_dims(&g, image->dims, window * channels, dims);
  if (htf_image_count(&g, dims) == 0) {
    htf_output(node, 0, htf_zeros(node, g.planes + 2, dims, image->dtype));
    return;
  }
  static const int order[5] = {0, 3, 4, 2, 1};
  const int64_t parts[5] = {dims[0], channels, window, dims[1], dims[2]};
  htf_value columns =
      htf_call(node, HR_FUNCTIONAL_IM2COL, INPUTS(htf_planes_last(node, &g, image)),
               ATTRIBUTES(htf_attr_ints(g.size, 2), htf_attr_ints(g.stride, 2), htf_attr_ints(g.before, 2),
                          htf_attr_ints(g.after, 2), htf_attr_ints(g.dilation, 2)));
  htf_output(node, 0, htf_reshape(node, htf_transpose(node, htf_reshape(node, columns, 5, parts), order), 4, dims));
}
