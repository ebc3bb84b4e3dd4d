/* ops_norm.c: rules of batch normalisation, in f32 for images of 16 bits. */
#include <string.h>

#include "node.h"

/* The image's dims but the channels, and the dims by which vectors of channels broadcast. */
typedef struct channels {
  int64_t axes[HR_RANK_MAX], dims[HR_RANK_MAX], count; /* elements of a channel */
  int rank, axis;
} channels;

static channels read_channels(htf_node *node, htf_value x, htf_value scale) {
  const char *format = htf_text(node, "data_format");
  channels c = {.axis = format[1] == 'C' ? 1 : x->rank - 1, .count = 1};
  if (!htf_has_failed(node) && (x->rank < 4 || x->rank > 5 || scale->rank != 1 || scale->dims[0] != x->dims[c.axis])) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "%s: the image must have 4 or 5 dims, and a scale for each channel",
             node->kernel->row->op);
    return c;
  }
  for (int d = 0; d < x->rank; ++d) {
    c.dims[d] = d == c.axis ? x->dims[d] : 1;
    if (d != c.axis) {
      c.axes[c.rank++] = d, c.count *= x->dims[d];
    }
  }
  return c;
}

/* InvalidArgumentError unless there is a number for each channel. */
static void check_vector(htf_node *node, const channels *c, int input, htf_value vector) {
  if (!htf_has_failed(node) && (vector->rank != 1 || vector->dims[0] != c->dims[c->axis])) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "%s: input %d must have a number for each of %lld channels",
             node->kernel->row->op, input, (long long)c->dims[c->axis]);
  }
}

static htf_value broadcast(htf_node *node, const channels *c, htf_value vector) {
  return htf_reshape(node, vector, c->rank + 1, c->dims);
}

static htf_value sum(htf_node *node, const channels *c, htf_value x) {
  return htf_call(node, HR_FUNCTIONAL_SUM, INPUTS(x),
                  ATTRIBUTES(htf_attr_ints(c->axes, c->rank), htf_attr_flag(false), htf_attr_dtype(x->dtype)));
}

static htf_value mean_of(htf_node *node, const channels *c, htf_value x) {
  return htf_call(node, HR_FUNCTIONAL_MEAN, INPUTS(x), ATTRIBUTES(htf_attr_ints(c->axes, c->rank)));
}

static htf_value inverse_root(htf_node *node, htf_value variance) {
  return htf_call1(node, HR_FUNCTIONAL_RSQRT, htf_add(node, variance, htf_number(node, htf_real(node, "epsilon"))));
}

/* An output that nothing reads: without elements, or a zero without dims. */
static void output_empty(htf_node *node, int index, int rank) {
  static const int64_t none = 0;
  htf_output(node, index,
             htf_call(node, HR_FUNCTIONAL_FULL, INPUTS(htf_number_of(node, hr_scalar_i64(0))),
                      ATTRIBUTES(htf_attr_ints(&none, rank), htf_attr_dtype(HR_DTYPE_F32))));
}

/* The running value that a batch moves by the node's factor. */
static htf_value moved(htf_node *node, htf_value old, htf_value batch) {
  double factor = htf_real(node, "exponential_avg_factor");
  if (factor == 1) {
    return batch;
  }
  return htf_add(node, htf_multiply(node, old, htf_number(node, 1 - factor)),
                 htf_multiply(node, batch, htf_number(node, factor)));
}

/* Inputs: x, scale, offset, mean, variance. Outputs: y, running mean and variance, and for the gradient mean and
 * variance of the batch, and nothing. */
void htf_batch_norm(htf_node *node) {
  htf_value x = htf_input(node, 0), scale = htf_input(node, 1), offset = htf_input(node, 2);
  htf_value old_mean = htf_input(node, 3), old_variance = htf_input(node, 4);
  channels c = read_channels(node, x, scale);
  bool is_training = htf_flag(node, "is_training");
  check_vector(node, &c, 2, offset);
  if (!is_training || c.count == 0 || htf_real(node, "exponential_avg_factor") != 1) {
    check_vector(node, &c, 3, old_mean), check_vector(node, &c, 4, old_variance);
  }
  if (htf_has_failed(node)) {
    return;
  }
  htf_value wide = htf_cast(node, x, HR_DTYPE_F32), mean = old_mean, variance = old_variance;
  if (is_training && c.count > 0) {
    mean = mean_of(node, &c, wide);
    htf_value centred = htf_subtract(node, wide, broadcast(node, &c, mean));
    variance = mean_of(node, &c, htf_call1(node, HR_FUNCTIONAL_SQUARE, centred));
  }
  htf_value factor = htf_multiply(node, inverse_root(node, variance), scale);
  htf_value y = htf_multiply(node, htf_subtract(node, wide, broadcast(node, &c, mean)), broadcast(node, &c, factor));
  y = htf_add(node, y, broadcast(node, &c, offset));
  htf_output(node, 0, htf_cast(node, y, x->dtype));
  if (is_training && c.count > 0) {
    double correction = (double)c.count / (double)(c.count > 1 ? c.count - 1 : 1);
    htf_value unbiased = htf_multiply(node, variance, htf_number(node, correction));
    htf_output(node, 1, moved(node, old_mean, mean));
    htf_output(node, 2, moved(node, old_variance, unbiased));
  } else {
    htf_output(node, 1, mean);
    htf_output(node, 2, variance);
  }
  htf_output(node, 3, mean);
  htf_output(node, 4, variance);
  if (htf_output_count(node) > 5) { /* from version 3 on */
    output_empty(node, 5, 1);
  }
}

/* Inputs: the gradient of y, x, scale, mean, variance. Outputs: the gradients of x, scale and offset, and nothing
 * twice. */
void htf_batch_norm_gradient(htf_node *node) {
  htf_value gradient = htf_input(node, 0), x = htf_input(node, 1), scale = htf_input(node, 2);
  htf_value mean = htf_input(node, 3), variance = htf_input(node, 4);
  channels c = read_channels(node, x, scale);
  check_vector(node, &c, 3, mean), check_vector(node, &c, 4, variance);
  if (htf_has_failed(node)) {
    return;
  }
  htf_value wide = htf_cast(node, gradient, HR_DTYPE_F32);
  htf_value root = inverse_root(node, variance);
  htf_value centred = htf_subtract(node, htf_cast(node, x, HR_DTYPE_F32), broadcast(node, &c, mean));
  htf_value normal = htf_multiply(node, centred, broadcast(node, &c, root));
  htf_value of_offset = sum(node, &c, wide), of_scale = sum(node, &c, htf_multiply(node, wide, normal));
  htf_value inner = wide;
  if (htf_flag(node, "is_training") && c.count > 0) {
    htf_value share = htf_number(node, 1 / (double)c.count);
    inner = htf_subtract(node, inner, broadcast(node, &c, htf_multiply(node, of_offset, share)));
    inner =
        htf_subtract(node, inner, htf_multiply(node, normal, broadcast(node, &c, htf_multiply(node, of_scale, share))));
  }
  htf_value of_x = htf_multiply(node, inner, broadcast(node, &c, htf_multiply(node, scale, root)));
  htf_output(node, 0, htf_cast(node, of_x, x->dtype));
  htf_output(node, 1, of_scale);
  htf_output(node, 2, of_offset);
  output_empty(node, 3, 0);
  output_empty(node, 4, 0);
}

/* ---- local response ---- */

/* bias + alpha times the sum of squares of depth_radius channels on both sides. */
static htf_value sum_neighbours(htf_node *node, htf_value x) {
  int64_t radius = htf_integer(node, "depth_radius");
  const int64_t size[4] = {1, 1, 1, 2 * radius + 1}, stride[4] = {1, 1, 1, 1}, side[4] = {0, 0, 0, radius};
  return htf_call(
      node, HR_FUNCTIONAL_REDUCE_WINDOW, INPUTS(x),
      ATTRIBUTES(htf_attr_ints(size, 4), htf_attr_ints(stride, 4), htf_attr_ints(side, 4), htf_attr_ints(side, 4)));
}

static htf_value local_size(htf_node *node, htf_value x) {
  htf_value sum = sum_neighbours(node, htf_call1(node, HR_FUNCTIONAL_SQUARE, x));
  htf_value scaled = htf_multiply(node, sum, htf_number(node, htf_real(node, "alpha")));
  return htf_add(node, scaled, htf_number(node, htf_real(node, "bias")));
}

/* Input 0 of 4 dims, with its elements in f32; fails unless the radius is one. */
static htf_value read_local(htf_node *node, int input) {
  htf_value x = htf_input(node, input);
  int64_t radius = htf_integer(node, "depth_radius");
  if (!htf_has_failed(node) && (x->rank != 4 || radius < 0 || radius > INT32_MAX)) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "%s: inputs must be 4-dimensional, and the radius positive: %d, %lld",
             node->kernel->row->op, x->rank, (long long)radius);
  }
  return htf_cast(node, x, HR_DTYPE_F32);
}

static htf_value scale_of(htf_node *node, htf_value size) {
  return htf_call2(node, HR_FUNCTIONAL_POW, size, htf_number(node, -htf_real(node, "beta")));
}

void htf_local_response(htf_node *node) {
  htf_value x = read_local(node, 0);
  if (htf_has_failed(node) || hr_tensor_count(x) == 0) {
    htf_output(node, 0, x);
    return;
  }
  htf_output(node, 0, htf_multiply(node, x, scale_of(node, local_size(node, x))));
}

/* Inputs: the gradient, the image and the result. Each result depends on its neighbours by its size. */
void htf_local_response_gradient(htf_node *node) {
  htf_value gradient = read_local(node, 0), x = read_local(node, 1), y = read_local(node, 2);
  for (int d = 0; d < 4 && !htf_has_failed(node); ++d) {
    if (gradient->dims[d] != x->dims[d] || y->dims[d] != x->dims[d]) {
      htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "LRNGrad: dim %d of the inputs is %lld, %lld and %lld", d,
               (long long)gradient->dims[d], (long long)x->dims[d], (long long)y->dims[d]);
    }
  }
  if (htf_has_failed(node) || hr_tensor_count(x) == 0) {
    htf_output(node, 0, x);
    return;
  }
  htf_value size = local_size(node, x);
  htf_value share = htf_divide(node, htf_multiply(node, gradient, y), size);
  htf_value factor = htf_number(node, 2 * htf_real(node, "alpha") * htf_real(node, "beta"));
  htf_value loss = htf_multiply(node, htf_multiply(node, x, factor), sum_neighbours(node, share));
  htf_value direct = htf_multiply(node, gradient, scale_of(node, size));
  htf_output(node, 0, htf_subtract(node, direct, loss));
}
