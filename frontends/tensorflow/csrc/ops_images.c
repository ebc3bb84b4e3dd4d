/* ops_images.c: rules of images [N, H, W, C]: other sizes, projective transforms, blocks as examples.
 *
 * Resizing is linear in the image: its gradient is a product with the transposed weights, which the resized unit
 * matrix has. Places are exact fractions; TensorFlow rounds them to f32.
 */
#include <string.h>

#include "node.h"

enum { PLANES = 2 };

/* ---- other sizes ---- */

/* The names of the grid and of rounding for one kind of resizing. */
typedef struct grid {
  const char *mode, *places, *rounding;
  double cubic;          /* the parameter of cubic weights */
  bool excludes_outside; /* elements outside have no weight; else they are those of the border */
} grid;

static grid read_grid(htf_node *node, bool is_nearest) {
  bool is_aligned = htf_flag(node, "align_corners"), is_half = htf_flag(node, "half_pixel_centers");
  grid g = {.mode = is_nearest ? "nearest" : "linear", .rounding = is_aligned ? "round_prefer_ceil" : "floor"};
  g.places = is_aligned ? "align_corners"
             : is_half  ? (is_nearest ? "tf_half_pixel_for_nn" : "half_pixel")
                        : "asymmetric";
  if (is_aligned && is_half) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "%s: If half_pixel_centers is True, align_corners must be False.",
             node->kernel->row->op);
  }
  return g;
}

static htf_value resize(htf_node *node, const grid *g, htf_value x, int axis_count, const int64_t *axes,
                        const int64_t *sizes) {
  return htf_call(node, HR_FUNCTIONAL_INTERPOLATE, INPUTS(x),
                  ATTRIBUTES(htf_attr_ints(axes, axis_count), htf_attr_ints(sizes, axis_count),
                             (hr_attribute){.kind = HR_ATTRIBUTE_NONE}, htf_attr_text(g->mode),
                             htf_attr_text(g->places), htf_attr_text(g->rounding), htf_attr_flag(false),
                             htf_attr_real(g->cubic), htf_attr_flag(g->excludes_outside)));
}

/* Two positive numbers of the host. */
static void read_size(htf_node *node, int input, int64_t *out_size) {
  if (htf_host_ints(node, input, out_size, PLANES) != PLANES || out_size[0] < 1 || out_size[1] < 1) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "%s: output dimensions must be two positive numbers",
             node->kernel->row->op);
  }
}

static void check_image(htf_node *node, htf_value image) {
  if (!htf_has_failed(node) && (image->rank != 4 || image->dims[1] < 1 || image->dims[2] < 1)) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "%s: input must be 4-dimensional and of non-zero size, it has %d dims",
             node->kernel->row->op, image->rank);
  }
}

/* Half pixels: Keys' weights, with those outside left out. */
static grid read_cubic_grid(htf_node *node) {
  grid g = read_grid(node, false);
  g.mode = "cubic", g.excludes_outside = htf_flag(node, "half_pixel_centers");
  g.cubic = g.excludes_outside ? -0.5 : -0.75;
  return g;
}

static void resize_image(htf_node *node, bool is_nearest, grid g) {
  static const int64_t axes[PLANES] = {1, 2};
  htf_value image = htf_input(node, 0);
  int64_t size[PLANES] = {1, 1};
  read_size(node, 1, size);
  check_image(node, image);
  if (htf_has_failed(node)) {
    return;
  }
  hr_dtype dtype = is_nearest ? image->dtype : HR_DTYPE_F32;
  const int64_t dims[4] = {image->dims[0], size[0], size[1], image->dims[3]};
  if (hr_tensor_count(image) == 0) {
    htf_output(node, 0, htf_zeros(node, 4, dims, dtype));
  } else {
    htf_output(node, 0, resize(node, &g, htf_cast(node, image, dtype), PLANES, axes, size));
  }
}

void htf_resize_linear(htf_node *node) {
  resize_image(node, false, read_grid(node, false));
}

void htf_resize_cubic(htf_node *node) {
  resize_image(node, false, read_cubic_grid(node));
}

void htf_resize_nearest(htf_node *node) {
  resize_image(node, true, read_grid(node, true));
}

/* The weights [out, in] of one dim. */
static htf_value weights_of(htf_node *node, const grid *g, int64_t in, int64_t out, hr_dtype dtype) {
  static const int64_t axis = 0;
  htf_value unit =
      htf_call(node, HR_FUNCTIONAL_EYE, 0, NULL, ATTRIBUTES(htf_attr_int(in), htf_attr_int(in), htf_attr_dtype(dtype)));
  return resize(node, g, unit, 1, &axis, &out);
}

/* The gradient of an image of this size in the gradient's dtype, computed in `dtype`. */
static void output_gradient(htf_node *node, const grid *g, htf_value gradient, const int64_t *size, hr_dtype dtype) {
  int64_t dims[4] = {gradient->dims[0], size[0], size[1], gradient->dims[3]};
  if (hr_tensor_count(gradient) == 0 || size[0] * size[1] == 0) {
    htf_output(node, 0, htf_zeros(node, 4, dims, gradient->dtype));
    return;
  }
  htf_value rows = weights_of(node, g, size[0], gradient->dims[1], dtype);
  htf_value columns = weights_of(node, g, size[1], gradient->dims[2], dtype);
  htf_value across = htf_call(node, HR_FUNCTIONAL_EINSUM, INPUTS(htf_cast(node, gradient, dtype), columns),
                              ATTRIBUTES(htf_attr_text("nyxc,xw->nywc")));
  htf_output(node, 0,
             htf_call(node, HR_FUNCTIONAL_EINSUM, INPUTS(across, rows), ATTRIBUTES(htf_attr_text("nywc,yh->nhwc"))));
}

/* Inputs: the gradient in f32, and the image, for its dims and dtype. */
static void resize_back(htf_node *node, grid g) {
  htf_value gradient = htf_input(node, 0), image = htf_input(node, 1);
  check_image(node, gradient);
  check_image(node, image);
  if (!htf_has_failed(node)) {
    hr_dtype dtype = image->dtype == HR_DTYPE_F64 ? HR_DTYPE_F64 : HR_DTYPE_F32;
    output_gradient(node, &g, gradient, image->dims + 1, dtype);
  }
}

void htf_resize_linear_gradient(htf_node *node) {
  resize_back(node, read_grid(node, false));
}

void htf_resize_cubic_gradient(htf_node *node) {
  resize_back(node, read_cubic_grid(node));
}

static hr_dtype sum_dtype(hr_dtype dtype) {
  return dtype == HR_DTYPE_F16 || dtype == HR_DTYPE_BF16 ? HR_DTYPE_F32 : dtype;
}

void htf_resize_nearest_gradient(htf_node *node) {
  htf_value gradient = htf_input(node, 0);
  int64_t size[PLANES] = {1, 1};
  read_size(node, 1, size);
  check_image(node, gradient);
  grid g = read_grid(node, true);
  if (!htf_has_failed(node)) {
    output_gradient(node, &g, gradient, size, sum_dtype(gradient->dtype));
  }
}

/* ---- projective transforms ---- */

static htf_value clip(htf_node *node, htf_value x, int64_t size) {
  htf_value low = htf_call2(node, HR_FUNCTIONAL_FMIN, x, htf_number(node, (double)(size - 1)));
  return htf_call2(node, HR_FUNCTIONAL_FMAX, htf_number(node, 0), low);
}

/* The integral part of x / size. */
static htf_value whole_times(htf_node *node, htf_value x, double size) {
  return htf_call1(node, HR_FUNCTIONAL_TRUNC, htf_divide(node, x, htf_number(node, size)));
}

/* Below 0 and above the last element, mirrored at the edges: dcba|abcd|dcba. */
static htf_value reflect(htf_node *node, htf_value x, double size) {
  htf_value period = htf_number(node, 2 * size), one = htf_number(node, 1);
  htf_value negated = htf_call1(node, HR_FUNCTIONAL_NEGATIVE, x);
  htf_value low = htf_add(node, htf_multiply(node, period, whole_times(node, negated, 2 * size)), x);
  htf_value is_far = htf_call2(node, HR_FUNCTIONAL_LESS, low, htf_number(node, -size));
  low = htf_where(node, is_far, htf_add(node, low, period),
                  htf_subtract(node, htf_call1(node, HR_FUNCTIONAL_NEGATIVE, low), one));
  htf_value high = htf_subtract(node, x, htf_multiply(node, period, whole_times(node, x, 2 * size)));
  htf_value is_over = htf_call2(node, HR_FUNCTIONAL_GREATER_EQUAL, high, htf_number(node, size));
  high = htf_where(node, is_over, htf_subtract(node, htf_subtract(node, period, high), one), high);
  return htf_where(node, htf_call2(node, HR_FUNCTIONAL_LESS, x, htf_number(node, 0)), low,
                   htf_where(node, htf_call2(node, HR_FUNCTIONAL_GREATER, x, htf_number(node, size - 1)), high, x));
}

/* The same, repeated: abcd|abcd|abcd. */
static htf_value wrap(htf_node *node, htf_value x, double size) {
  htf_value period = htf_number(node, size), one = htf_number(node, 1);
  htf_value times = htf_add(node, whole_times(node, htf_call1(node, HR_FUNCTIONAL_NEGATIVE, x), size - 1), one);
  htf_value low = htf_add(node, x, htf_multiply(node, period, times));
  htf_value high = htf_subtract(node, x, htf_multiply(node, period, whole_times(node, x, size - 1)));
  return htf_where(node, htf_call2(node, HR_FUNCTIONAL_LESS, x, htf_number(node, 0)), low,
                   htf_where(node, htf_call2(node, HR_FUNCTIONAL_GREATER, x, htf_number(node, size - 1)), high, x));
}

/* Places along a dim as the fill mode moves them. */
static htf_value move_places(htf_node *node, htf_value x, int64_t size) {
  const char *mode = htf_text(node, "fill_mode");
  if (strcmp(mode, "CONSTANT") == 0) {
    return x;
  }
  if (size > 1 && strcmp(mode, "REFLECT") == 0) {
    x = reflect(node, x, (double)size);
  } else if (size > 1 && strcmp(mode, "WRAP") == 0) {
    x = wrap(node, x, (double)size);
  }
  return clip(node, x, size);
}

typedef struct transform {
  htf_value image, fill;
  htf_value rows;    /* of all examples' planes, [N * H * W, C] */
  htf_value example; /* the number of the example's first row, [N, 1, 1] */
} transform;

/* True inside of a dim. */
static htf_value is_inside(htf_node *node, htf_value x, int64_t size) {
  return htf_call2(node, HR_FUNCTIONAL_LOGICAL_AND,
                   htf_call2(node, HR_FUNCTIONAL_GREATER_EQUAL, x, htf_number(node, 0)),
                   htf_call2(node, HR_FUNCTIONAL_LESS, x, htf_number(node, (double)size)));
}

static htf_value last_dim(htf_node *node, htf_value x) {
  static const int64_t last = -1;
  return htf_call(node, HR_FUNCTIONAL_EXPAND_DIMS, INPUTS(x), ATTRIBUTES(htf_attr_ints(&last, 1)));
}

/* The elements [N, h, w, C] at integral places; the fill value outside. */
static htf_value read_places(htf_node *node, const transform *t, htf_value y, htf_value x) {
  const int64_t *dims = t->image->dims;
  htf_value inside =
      htf_call2(node, HR_FUNCTIONAL_LOGICAL_AND, is_inside(node, y, dims[1]), is_inside(node, x, dims[2]));
  htf_value outside = htf_number_of(node, hr_scalar_i64(-1));
  htf_value row = htf_cast(node, htf_where(node, inside, y, htf_number(node, 0)), HR_DTYPE_I64);
  htf_value column = htf_cast(node, htf_where(node, inside, x, htf_number(node, 0)), HR_DTYPE_I64);
  htf_value place = htf_add(node, htf_multiply(node, row, htf_number_of(node, hr_scalar_i64(dims[2]))), column);
  htf_value index = htf_where(node, inside, htf_add(node, place, t->example), outside);
  htf_value taken =
      htf_call(node, HR_FUNCTIONAL_TAKE, INPUTS(t->rows, index), ATTRIBUTES(htf_attr_int(0), htf_attr_text("drop")));
  return htf_where(node, last_dim(node, inside), taken, t->fill);
}

/* Rounded to nearest, ties away from 0. */
static htf_value round_places(htf_node *node, htf_value x) {
  return htf_call(node, HR_FUNCTIONAL_ROUND, INPUTS(x), ATTRIBUTES(htf_attr_int(0), htf_attr_text("away")));
}

static htf_value mix(htf_node *node, htf_value low_weight, htf_value low, htf_value high_weight, htf_value high) {
  return htf_add(node, htf_multiply(node, low_weight, low), htf_multiply(node, high_weight, high));
}

static htf_value read_linear(htf_node *node, const transform *t, htf_value y, htf_value x) {
  htf_value one = htf_number(node, 1);
  htf_value top = htf_call1(node, HR_FUNCTIONAL_FLOOR, y), left = htf_call1(node, HR_FUNCTIONAL_FLOOR, x);
  htf_value bottom = htf_add(node, top, one), right = htf_add(node, left, one), parts[2];
  htf_value to_right = last_dim(node, htf_subtract(node, right, x)),
            to_left = last_dim(node, htf_subtract(node, x, left));
  for (int i = 0; i < 2; ++i) {
    htf_value line = i == 0 ? top : bottom;
    htf_value first = htf_cast(node, read_places(node, t, line, left), HR_DTYPE_F32);
    htf_value second = htf_cast(node, read_places(node, t, line, right), HR_DTYPE_F32);
    parts[i] = mix(node, to_right, first, to_left, second);
  }
  return mix(node, last_dim(node, htf_subtract(node, bottom, y)), parts[0], last_dim(node, htf_subtract(node, y, top)),
             parts[1]);
}

/* 0 to count - 1 in f32, along a dim of three. */
static htf_value count_up(htf_node *node, int64_t count, int dim) {
  int64_t dims[3] = {1, 1, 1};
  dims[dim] = count;
  htf_value numbers = htf_call(
      node, HR_FUNCTIONAL_ARANGE, 0, NULL,
      ATTRIBUTES(htf_attr_real(0), htf_attr_real((double)count), htf_attr_real(1), htf_attr_dtype(HR_DTYPE_F32)));
  return htf_reshape(node, numbers, 3, dims);
}

/* Number i of the transforms, [N, 1, 1]. */
static htf_value parameter(htf_node *node, htf_value transforms, int i) {
  const int64_t dims[3] = {transforms->dims[0], 1, 1}, strides[3] = {transforms->strides[0], 0, 0};
  return htf_view(node, transforms, 3, dims, strides, transforms->offset + i * transforms->strides[1]);
}

/* a x + b y + c, with three parameters of the transforms; a number without a parameter. */
static htf_value plane_of(htf_node *node, htf_value transforms, int first, htf_value x, htf_value y) {
  htf_value sum = htf_add(node, htf_multiply(node, parameter(node, transforms, first), x),
                          htf_multiply(node, parameter(node, transforms, first + 1), y));
  return htf_add(node, sum, first == 6 ? htf_number(node, 1) : parameter(node, transforms, first + 2));
}

static void transform_images(htf_node *node, const transform *t, htf_value transforms, const int64_t *size) {
  htf_value x = count_up(node, size[1], 2), y = count_up(node, size[0], 1);
  htf_value scale = plane_of(node, transforms, 6, x, y);
  htf_value is_none = htf_call2(node, HR_FUNCTIONAL_EQUAL, scale, htf_number(node, 0));
  htf_value across = htf_divide(node, plane_of(node, transforms, 0, x, y), scale);
  htf_value down = htf_divide(node, plane_of(node, transforms, 3, x, y), scale);
  across = move_places(node, across, t->image->dims[2]), down = move_places(node, down, t->image->dims[1]);
  bool is_nearest = strcmp(htf_text(node, "interpolation"), "NEAREST") == 0;
  htf_value values = is_nearest ? read_places(node, t, round_places(node, down), round_places(node, across))
                                : htf_cast(node, read_linear(node, t, down, across), t->image->dtype);
  htf_output(node, 0, htf_where(node, last_dim(node, is_none), t->fill, values));
}

/* The number of each example's first row, [N, 1, 1]. */
static htf_value first_rows(htf_node *node, htf_value image) {
  const int64_t dims[3] = {image->dims[0], 1, 1};
  double rows = (double)(image->dims[1] * image->dims[2]);
  return htf_reshape(node,
                     htf_call(node, HR_FUNCTIONAL_ARANGE, 0, NULL,
                              ATTRIBUTES(htf_attr_real(0), htf_attr_real(rows * (double)dims[0]), htf_attr_real(rows),
                                         htf_attr_dtype(HR_DTYPE_I64))),
                     3, dims);
}

/* Inputs: images, transforms [N or 1, 8], the size, and from version 3 on the value outside. */
void htf_projective_transform(htf_node *node) {
  htf_value image = htf_input(node, 0), transforms = htf_input(node, 1);
  htf_value fill = htf_input_count(node) > 3 ? htf_input(node, 3) : htf_number(node, 0);
  int64_t size[PLANES] = {1, 1};
  read_size(node, 2, size);
  if (!htf_has_failed(node) && image->rank != 4) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "input images must be 4-dim, they have %d dims", image->rank);
  }
  if (!htf_has_failed(node) && (transforms->rank != 2 || transforms->dims[1] != 8 ||
                                (transforms->dims[0] != image->dims[0] && transforms->dims[0] != 1))) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "Input transform should be num_images x 8 or 1 x 8");
  }
  if (htf_has_failed(node)) {
    return;
  }
  const int64_t *dims = image->dims, out[4] = {dims[0], size[0], size[1], dims[3]};
  const int64_t rows[2] = {dims[0] * dims[1] * dims[2], dims[3]};
  fill = fill->buffer != NULL ? htf_cast(node, fill, image->dtype) : fill;
  if (hr_tensor_count(image) == 0) {
    htf_output(node, 0,
               htf_call(node, HR_FUNCTIONAL_FULL, INPUTS(fill),
                        ATTRIBUTES(htf_attr_ints(out, 4), htf_attr_dtype(image->dtype))));
    return;
  }
  const transform t = {image, fill, htf_reshape(node, image, 2, rows), first_rows(node, image)};
  transform_images(node, &t, transforms, size);
}

/* ---- blocks as examples ---- */

typedef struct blocks {
  int count;
  int64_t size[HR_RANK_MAX], axes[HR_RANK_MAX], before[HR_RANK_MAX], after[HR_RANK_MAX];
  int64_t all; /* the elements of a block */
} blocks;

/* Sizes that multiply to more than 63 bits have none, and neither has a block without elements. */
static void check_block(htf_node *node, blocks *b, int i) {
  long long before = b->before[i + 1], after = b->after[i + 1];
  bool is_space = strncmp(node->kernel->row->op, "Space", 5) == 0;
  if (b->size[i] < 1) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "All values in block_shape must be positive, got value %lld at index %d",
             (long long)b->size[i], i);
  } else if (before < 0 || after < 0) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "%s must be non-negative, got %lld and %lld at index %d",
             is_space ? "Paddings" : "Crops", before, after, i);
  } else if (__builtin_mul_overflow(b->all, b->size[i], &b->all)) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "Product of block sizes must be positive, and overflows at index %d", i);
  }
}

/* Inputs 1 and 2: the blocks of the dims behind the first, and what is added or cut on both sides. Of images the
 * block's size is an attribute. */
static blocks read_blocks(htf_node *node, htf_value x) {
  int64_t pairs[2 * HR_RANK_MAX];
  blocks b = {.all = 1};
  if (htf_has_attribute(node, "block_size")) {
    b.count = 2, b.size[0] = b.size[1] = htf_integer(node, "block_size");
  } else {
    b.count = htf_host_ints(node, 1, b.size, HR_RANK_MAX);
  }
  int sides = htf_host_ints(node, htf_input_count(node) - 1, pairs, 2 * HR_RANK_MAX);
  if (!htf_has_failed(node) && (x->rank < 1 + b.count || sides != 2 * b.count)) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "%s: %d blocks and %d pairs for an input of %d dims",
             node->kernel->row->op, b.count, sides / 2, x->rank);
  }
  for (int i = 0; i < b.count && !htf_has_failed(node); ++i) {
    b.axes[i] = i + 1, b.before[i + 1] = pairs[2 * i], b.after[i + 1] = pairs[2 * i + 1];
    check_block(node, &b, i);
  }
  return b;
}

static htf_value pad(htf_node *node, htf_value x, const int64_t *before, const int64_t *after) {
  return htf_call(node, HR_FUNCTIONAL_PAD, INPUTS(x),
                  ATTRIBUTES(htf_attr_ints(before, x->rank), htf_attr_ints(after, x->rank)));
}

static htf_value move_blocks(htf_node *node, htf_value x, const blocks *b) {
  return htf_call(node, node->function, INPUTS(x),
                  ATTRIBUTES(htf_attr_ints(b->size, b->count), htf_attr_ints(b->axes, b->count), htf_attr_int(0),
                             htf_attr_text("dcr")));
}

void htf_space_to_batch(htf_node *node) {
  htf_value x = htf_input(node, 0);
  blocks b = read_blocks(node, x);
  int64_t dims[HR_RANK_MAX];
  memcpy(dims, x->dims, sizeof dims);
  if (!htf_has_failed(node) && __builtin_mul_overflow(x->dims[0], b.all, &dims[0])) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT,
             "Negative output dimension size caused by overflow when multiplying %lld and %lld", (long long)x->dims[0],
             (long long)b.all);
  }
  for (int i = 0; i < b.count && !htf_has_failed(node); ++i) {
    int64_t size = 0;
    if (__builtin_add_overflow(b.before[i + 1], b.after[i + 1], &size) ||
        __builtin_add_overflow(x->dims[i + 1], size, &size)) {
      htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "padded_shape[%d] overflows: %lld and paddings %lld and %lld", i,
               (long long)x->dims[i + 1], (long long)b.before[i + 1], (long long)b.after[i + 1]);
      return;
    }
    dims[i + 1] = size / b.size[i];
    if (size % b.size[i] != 0) {
      htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "padded_shape[%d]=%lld is not divisible by block_shape[%d]=%lld", i,
               (long long)size, i, (long long)b.size[i]);
    }
  }
  if (htf_has_failed(node)) {
    return;
  }
  htf_value padded =
      hr_tensor_count(x) == 0 ? htf_zeros(node, x->rank, dims, x->dtype) : pad(node, x, b.before, b.after);
  htf_output(node, 0, b.count == 0 || hr_tensor_count(x) == 0 ? padded : move_blocks(node, padded, &b));
}

/* A dim behind the first, with a block's elements and without those that are cut. */
static int64_t cropped_dim(htf_node *node, htf_value x, const blocks *b, int d) {
  int64_t size = x->dims[d], cut = 0;
  if (d > b->count) {
    return size;
  }
  if (__builtin_mul_overflow(size, b->size[d - 1], &size) || __builtin_add_overflow(b->before[d], b->after[d], &cut) ||
      size < cut) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT,
             "cropped_shape[%d] must be non-negative: dim %lld, block %lld, crops %lld and %lld", d,
             (long long)x->dims[d], (long long)b->size[d - 1], (long long)b->before[d], (long long)b->after[d]);
    return 0;
  }
  return size - cut;
}

void htf_batch_to_space(htf_node *node) {
  htf_value x = htf_input(node, 0);
  blocks b = read_blocks(node, x);
  int64_t dims[HR_RANK_MAX], one[HR_RANK_MAX], elements = 1;
  memcpy(dims, x->dims, sizeof dims);
  if (!htf_has_failed(node) && dims[0] % b.all != 0) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT,
             "Input batch dimension (%lld) is not divisible by product of block sizes (%lld)", (long long)dims[0],
             (long long)b.all);
  }
  if (htf_has_failed(node)) {
    return;
  }
  dims[0] /= b.all;
  for (int d = 0; d < x->rank && !htf_has_failed(node); ++d) {
    one[d] = 1;
    dims[d] = d > 0 ? cropped_dim(node, x, &b, d) : dims[d];
    elements *= dims[d];
  }
  if (htf_has_failed(node)) {
    return;
  }
  if (elements == 0) {
    htf_output(node, 0, htf_zeros(node, x->rank, dims, x->dtype));
  } else {
    htf_output(node, 0,
               htf_call(node, HR_FUNCTIONAL_SLICE, INPUTS(b.count == 0 ? x : move_blocks(node, x, &b)),
                        ATTRIBUTES(htf_attr_ints(b.before, x->rank), htf_attr_ints(dims, x->rank),
                                   htf_attr_ints(one, x->rank))));
  }
}

/* Blocks of planes as features, or the other way. */
static void move_depth(htf_node *node, bool is_deeper) {
  const char *format = htf_text(node, "data_format");
  bool is_first = strcmp(format, "NCHW") == 0;
  htf_value x = htf_input(node, 0);
  int64_t size = htf_integer(node, "block_size"), dims[HR_RANK_MAX];
  const int64_t axes[2] = {is_first ? 2 : 1, is_first ? 3 : 2}, sizes[2] = {size, size}, depth = is_first ? 1 : 3;
  if (!htf_has_failed(node) && (x->rank != 4 || strlen(format) != 4)) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "%s: images of %d dims in the format %s, expected 4 in NHWC or NCHW",
             node->kernel->row->op, x->rank, format);
  }
  if (htf_has_failed(node)) {
    return;
  }
  bool fits =
      is_deeper ? x->dims[axes[0]] % size == 0 && x->dims[axes[1]] % size == 0 : x->dims[depth] % (size * size) == 0;
  if (!fits) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "%s: the dims are not divisible by block_size %lld",
             node->kernel->row->op, (long long)size);
    return;
  }
  memcpy(dims, x->dims, sizeof dims);
  for (int i = 0; i < 2; ++i) {
    dims[axes[i]] = is_deeper ? x->dims[axes[i]] / size : x->dims[axes[i]] * size;
  }
  dims[depth] = is_deeper ? x->dims[depth] * size * size : x->dims[depth] / (size * size);
  htf_output(node, 0,
             hr_tensor_count(x) == 0 ? htf_zeros(node, 4, dims, x->dtype)
                                     : htf_call(node, node->function, INPUTS(x),
                                                ATTRIBUTES(htf_attr_ints(sizes, 2), htf_attr_ints(axes, 2),
                                                           htf_attr_int(depth), htf_attr_text("dcr"))));
}

void htf_space_to_depth(htf_node *node) {
  move_depth(node, true);
}

void htf_depth_to_space(htf_node *node) {
  move_depth(node, false);
}
