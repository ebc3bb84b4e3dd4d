/* ops_pools.c: rules of pools over two or three planes, of the places of largest elements, and of their gradients. */
#include "ops_windows.h"

static htf_geometry read_pool(htf_node *node, const int64_t *image) {
  htf_geometry g = htf_geometry_of(node);
  htf_read_pair(node, &g, "ksize", g.size);
  htf_read_pair(node, &g, "strides", g.stride);
  htf_read_padding(node, &g, image);
  for (int p = 0; p < g.planes && !htf_has_failed(node); ++p) {
    bool is_before = g.before[p] >= g.size[p];
    if (is_before || g.after[p] >= g.size[p]) {
      htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "%s padding %lld needs to be smaller than the window size %lld",
               is_before ? "Left" : "Right", (long long)(is_before ? g.before[p] : g.after[p]), (long long)g.size[p]);
    }
  }
  return g;
}

/* Records a row of pools, from and to images. */
static void record_pool_many(htf_node *node, hr_op op, const htf_geometry *g, htf_value image, htf_value indices,
                             int output_count, const htf_value *outputs) {
  bool is_mean = op == HR_OP_AVG_POOL || op == HR_OP_AVG_POOL_BACKWARD; /* of the elements that the image has */
  int64_t ints[4 * HTF_PLANES_MAX + 2] = {0};
  int count = 0;
  htf_append_ints(ints, &count, g->planes, g->size);
  htf_append_ints(ints, &count, g->planes, g->stride);
  htf_append_ints(ints, &count, g->planes, g->before);
  htf_append_ints(ints, &count, g->planes, g->dilation);
  const htf_value inputs[2] = {htf_planes_last(node, g, image), indices};
  htf_record_many(node, op, count + (is_mean ? 2 : 0), ints, indices != NULL ? 2 : 1, inputs, output_count, outputs);
}

static void record_pool(htf_node *node, hr_op op, const htf_geometry *g, htf_value image, htf_value indices,
                        htf_value out) {
  const htf_value planes = htf_planes_last(node, g, out);
  record_pool_many(node, op, g, image, indices, 1, &planes);
}

/* True if as many windows fit with the padding in front on both sides, the last one cut or not. */
static bool fits_rows(const htf_geometry *g, const int64_t *image, const int64_t *result) {
  bool fits = true;
  for (int p = 0; p < g->planes; ++p) {
    int64_t room = image[htf_plane_dim(g, p)] + 2 * g->before[p] - g->size[p], wanted = result[htf_plane_dim(g, p)] - 1;
    fits = fits && (wanted == room / g->stride[p] || wanted == (room + g->stride[p] - 1) / g->stride[p]);
  }
  return fits;
}

/* A pool whose padding differs on both sides. */
static htf_value pool(htf_node *node, const htf_geometry *g, htf_value planes) {
  bool is_mean = node->function == HR_FUNCTIONAL_AVG_POOL;
  const hr_attribute before = htf_attr_ints(g->before, g->planes), after = htf_attr_ints(g->after, g->planes);
  const hr_attribute attributes[5] = {htf_attr_ints(g->size, g->planes), htf_attr_ints(g->stride, g->planes), before,
                                      is_mean ? htf_attr_flag(false) : after, after};
  return htf_call(node, node->function, INPUTS(planes), is_mean ? 5 : 4, attributes);
}

void htf_pool(htf_node *node) {
  htf_value image = htf_input(node, 0);
  htf_check_ranks(node, image->rank, image->rank);
  if (htf_has_failed(node)) {
    return;
  }
  htf_geometry g = read_pool(node, image->dims);
  int64_t dims[HTF_IMAGE_DIMS_MAX];
  htf_result_dims(&g, image->dims, image->dims[htf_channel_dim(&g)], dims);
  if (!htf_has_failed(node) && htf_image_count(&g, dims) == 0) {
    htf_output(node, 0, htf_zeros(node, g.planes + 2, dims, image->dtype));
    return;
  }
  if (fits_rows(&g, image->dims, dims)) {
    htf_value out = htf_new(node, image->dtype, image->rank, dims);
    record_pool(node, node->function == HR_FUNCTIONAL_AVG_POOL ? HR_OP_AVG_POOL : HR_OP_MAX_POOL, &g, image, NULL, out);
    htf_output(node, 0, out);
    return;
  }
  htf_output(node, 0, htf_planes_back(node, &g, pool(node, &g, htf_planes_last(node, &g, image))));
}

/* The largest elements of an image's windows, and their places, as planes. They have the image's order of dims if a row
 * can record them. */
static void find_places(htf_node *node, const htf_geometry *g, htf_value image, const int64_t *dims,
                        htf_value results[2]) {
  if (fits_rows(g, image->dims, dims)) {
    results[0] = htf_planes_last(node, g, htf_new(node, image->dtype, image->rank, dims));
    results[1] = htf_planes_last(node, g, htf_new(node, HR_DTYPE_I64, image->rank, dims));
    record_pool_many(node, HR_OP_MAX_POOL, g, image, NULL, 2, results);
    return;
  }
  htf_call_many(node, HR_FUNCTIONAL_MAX_POOL_PLACES, INPUTS(htf_planes_last(node, g, image)),
                ATTRIBUTES(htf_attr_ints(g->size, g->planes), htf_attr_ints(g->stride, g->planes),
                           htf_attr_ints(g->before, g->planes), htf_attr_ints(g->after, g->planes)),
                2, results);
}

/* By the image with least numbers around it, whose gradient is cut. */
static htf_value padded_pool_gradient(htf_node *node, const htf_geometry *g, htf_value image, htf_value gradient) {
  int64_t before[HTF_IMAGE_DIMS_MAX] = {0}, after[HTF_IMAGE_DIMS_MAX] = {0}, offset = 0;
  htf_geometry bare = *g;
  for (int p = 0; p < g->planes; ++p) {
    before[htf_plane_dim(g, p)] = g->before[p], after[htf_plane_dim(g, p)] = g->after[p];
    bare.before[p] = bare.after[p] = 0;
  }
  htf_value wide = htf_call(node, HR_FUNCTIONAL_PAD, INPUTS(image),
                            ATTRIBUTES(htf_attr_ints(before, image->rank), htf_attr_ints(after, image->rank),
                                       htf_attr_real(htf_least_number(image->dtype)))),
            results[2], out = htf_new(node, image->dtype, image->rank, wide->dims);
  find_places(node, &bare, wide, gradient->dims, results);
  record_pool(node, HR_OP_MAX_POOL_BACKWARD, &bare, gradient, results[1], out);
  for (int d = 0; d < image->rank; ++d) {
    offset += before[d] * out->strides[d];
  }
  return htf_view(node, out, image->rank, image->dims, out->strides, offset);
}

/* InvalidArgumentError unless input 1, which is not needed, has the dims of the result. */
static void check_result(htf_node *node, const htf_geometry *g, const int64_t *dims) {
  htf_value result = htf_input(node, 1);
  if (!htf_has_failed(node) && !htf_has_dims(result, g->planes + 2, dims)) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "Expected orig_output shape to be %s, but got %s",
             htf_text_of_dims(g->planes + 2, dims).text, htf_text_of_dims(result->rank, result->dims).text);
  }
}

/* The pool of an image, a result and a gradient, with the result's dims; false after a failure. */
static bool read_differentiated_pool(htf_node *node, htf_geometry *g, int64_t *dims) {
  htf_value image = htf_input(node, 0);
  htf_check_ranks(node, image->rank, htf_input(node, 2)->rank);
  if (htf_has_failed(node)) {
    return false;
  }
  *g = read_pool(node, image->dims);
  htf_result_dims(g, image->dims, image->dims[htf_channel_dim(g)], dims);
  check_result(node, g, dims);
  return true;
}

/* Inputs: the image, the result, which is not needed, and the gradient. */
void htf_max_pool_gradient(htf_node *node) {
  htf_value image = htf_input(node, 0), gradient = htf_input(node, 2);
  htf_geometry g;
  int64_t dims[HTF_IMAGE_DIMS_MAX];
  if (!read_differentiated_pool(node, &g, dims)) {
    return;
  }
  htf_check_gradient(node, &g, gradient, dims);
  if (!htf_has_failed(node) && htf_image_count(&g, dims) == 0) {
    htf_output(node, 0, htf_zeros(node, g.planes + 2, image->dims, image->dtype));
    return;
  }
  if (!fits_rows(&g, image->dims, dims)) {
    htf_output(node, 0, padded_pool_gradient(node, &g, image, gradient));
    return;
  }
  htf_value results[2], out = htf_new(node, image->dtype, image->rank, image->dims);
  find_places(node, &g, image, dims, results);
  record_pool(node, HR_OP_MAX_POOL_BACKWARD, &g, gradient, results[1], out);
  htf_output(node, 0, out);
}

/* Inputs: the image, the result, which is not needed, and the gradient of the image's gradient: of each window the one
 * at its largest element. */
void htf_max_pool_second_gradient(htf_node *node) {
  htf_value image = htf_input(node, 0), gradient = htf_input(node, 2), results[2];
  htf_geometry g;
  int64_t dims[HTF_IMAGE_DIMS_MAX];
  if (!read_differentiated_pool(node, &g, dims)) {
    return;
  }
  htf_check_gradient(node, &g, gradient, image->dims);
  if (!htf_has_failed(node) && htf_image_count(&g, dims) == 0) {
    htf_output(node, 0, htf_zeros(node, g.planes + 2, dims, image->dtype));
    return;
  }
  find_places(node, &g, image, dims, results);
  if (htf_has_failed(node)) {
    return;
  }
  htf_value places = htf_planes_last(node, &g, gradient), found = results[1];
  const int64_t elements[3] = {found->dims[0], found->dims[1],
                               hr_tensor_count(gradient) / (found->dims[0] * found->dims[1])};
  const int64_t windows[3] = {found->dims[0], found->dims[1],
                              hr_tensor_count(found) / (found->dims[0] * found->dims[1])};
  htf_value taken = htf_call(node, HR_FUNCTIONAL_TAKE_ALONG_AXIS,
                             INPUTS(htf_reshape(node, places, 3, elements), htf_reshape(node, found, 3, windows)),
                             ATTRIBUTES(htf_attr_int(2), htf_attr_text("drop")));
  htf_output(node, 0, htf_planes_back(node, &g, htf_reshape(node, taken, found->rank, found->dims)));
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
  htf_check_ranks(node, image->rank, image->rank);
  if (htf_has_failed(node)) {
    return;
  }
  htf_geometry g = read_pool(node, image->dims);
  int64_t dims[HTF_IMAGE_DIMS_MAX];
  htf_result_dims(&g, image->dims, image->dims[3], dims);
  if (!htf_has_failed(node) && htf_image_count(&g, dims) == 0) {
    htf_output(node, 0, htf_zeros(node, g.planes + 2, dims, image->dtype));
    htf_output(node, 1, htf_zeros(node, g.planes + 2, dims, HR_DTYPE_I64));
    return;
  }
  find_places(node, &g, image, dims, results);
  htf_output(node, 0, htf_planes_back(node, &g, results[0]));
  htf_value channel = htf_call(node, HR_FUNCTIONAL_ARANGE, 0, NULL,
                               ATTRIBUTES(htf_attr_real(0), htf_attr_real((double)image->dims[3]), htf_attr_real(1),
                                          htf_attr_dtype(HR_DTYPE_I64)));
  htf_value channels = htf_number_of(node, hr_scalar_i64(image->dims[3]));
  htf_value place = htf_multiply(node, htf_planes_back(node, &g, results[1]), channels);
  place = htf_add(node, place, channel);
  if (htf_flag(node, "include_batch_in_index")) {
    place = htf_add(node, place, first_elements(node, image));
  }
  htf_output(node, 1, place);
}

/* Inputs: the image, the gradient and the places. */
void htf_max_pool_places_gradient(htf_node *node) {
  htf_value image = htf_input(node, 0), gradient = htf_input(node, 1), places = htf_input(node, 2);
  htf_check_ranks(node, image->rank, gradient->rank);
  if (!htf_has_failed(node) && !htf_has_dims(gradient, places->rank, places->dims)) {
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

/* The number of elements of an image that each window has, [1, 1, planes]. */
static htf_value window_sizes(htf_node *node, const htf_geometry *g, htf_value gradient, const int64_t *planes) {
  int64_t dims[HTF_IMAGE_DIMS_MAX] = {1, 1}, size[HTF_IMAGE_DIMS_MAX] = {1, 1}, stride[HTF_IMAGE_DIMS_MAX] = {1, 1},
          before[HTF_IMAGE_DIMS_MAX] = {0}, after[HTF_IMAGE_DIMS_MAX] = {0};
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
static htf_value spread_mean(htf_node *node, const htf_geometry *g, htf_value gradient, const int64_t *planes) {
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
  int64_t image[HTF_IMAGE_DIMS_MAX] = {0}, dims[HTF_IMAGE_DIMS_MAX];
  int rank = htf_host_ints(node, 0, image, HTF_IMAGE_DIMS_MAX);
  htf_value gradient = htf_input(node, 1);
  htf_check_ranks(node, rank, gradient->rank);
  if (htf_has_failed(node)) {
    return;
  }
  htf_geometry g = read_pool(node, image);
  htf_result_dims(&g, image, image[htf_channel_dim(&g)], dims);
  htf_check_gradient(node, &g, gradient, dims);
  if (!htf_has_failed(node) && htf_image_count(&g, dims) == 0) {
    htf_output(node, 0, htf_zeros(node, g.planes + 2, image, gradient->dtype));
    return;
  }
  if (fits_rows(&g, image, dims)) {
    htf_value out = htf_new(node, gradient->dtype, rank, image);
    record_pool(node, HR_OP_AVG_POOL_BACKWARD, &g, gradient, NULL, out);
    htf_output(node, 0, out);
    return;
  }
  const int64_t *planes = image + htf_plane_dim(&g, 0);
  htf_output(node, 0, htf_planes_back(node, &g, spread_mean(node, &g, htf_planes_last(node, &g, gradient), planes)));
}
