/* onnx_regions.c: regions of images, resampled to a size, and convolutions whose elements are at offsets.
 *
 * RoiAlign: the places of samples along y and x follow from a region alone. So two lists for each region have the rows
 * and columns between which samples are, with their weights; the elements are read once for each of the four corners.
 */
#include <math.h>

#include "importers/onnx/onnx_integer.h"

/* A size as an input of a function in floating numbers. */
static hr_value real_of(hr__onnx_node *node, hr__integer size, hr_dtype dtype) {
  return size.value != 0 ? hr__onnx_cast(node, size.value, dtype) : hr__onnx_number(node, (double)size.number);
}

/* ---- RoiAlign ---- */

typedef struct region_axis {
  hr__integer size;          /* of the image */
  int64_t bins;              /* of the result */
  hr_value begin, bin;       /* of each region [R, 1, 1]: its begin, and the size of a bin */
  hr_value count;            /* of samples of a bin [R, 1, 1] */
  hr__integer most;          /* samples of any region */
  hr_value low, high;        /* elements [R, bins, most] between which a sample is */
  hr_value near_low, beyond; /* their weights; 0 for both: the sample is outside */
  hr_value is_sample;        /* it is one of the region's */
} region_axis;

typedef struct regions {
  hr_dtype dtype;
  hr_value corners; /* [R, 4] times the scale, in dtype */
  int64_t ratio;    /* samples of a bin along an axis; 0: as many as it has elements */
  bool is_half_pixel, is_max;
} regions;

static hr_value corner_of(hr__onnx_node *node, const regions *r, int index) {
  hr_value corner = hr__onnx_expand_dim(node, hr__onnx_narrow(node, r->corners, 1, index, 1), 2);
  return r->is_half_pixel ? CALL(node, SUBTRACT, corner, hr__onnx_number(node, 0.5)) : corner;
}

/* The largest number of samples is read from the device, unless it is an attribute. */
static void count_samples(hr__onnx_node *node, const regions *r, region_axis *a) {
  if (r->ratio > 0) {
    a->count = hr__onnx_number(node, (double)r->ratio);
    a->most = hr__integer_of(r->ratio);
    return;
  }
  const int64_t all[] = {0}, one = 1;
  hr_value least = hr__onnx_floats(node, 1, &one, (const float[]){1}); /* there may be no regions */
  a->count = CALL(node, MAXIMUM, CALL(node, CEIL, a->bin), hr__onnx_number(node, 0));
  hr_value counts = ADD(node, RESHAPE, IN(a->count), WITH(hr__with_ints("shape", 1, (const int64_t[]){-1})));
  hr_value some = ADD(node, CONCAT, IN(counts, hr__onnx_cast(node, least, r->dtype)), WITH(hr__with_int("axis", 0)));
  hr_value most = hr__onnx_reduce(node, HR_FUNCTIONAL_MAX, some, 1, all, false);
  a->most = (hr__integer){0, hr_graph_read(node->graph, hr__onnx_cast(node, most, HR_DTYPE_I64))};
}

/* first: the number of the axis's coordinates among the corners. */
static void find_bins(hr__onnx_node *node, const regions *r, int first, region_axis *a) {
  a->begin = corner_of(node, r, first);
  hr_value extent = CALL(node, SUBTRACT, corner_of(node, r, first + 2), a->begin);
  if (!r->is_half_pixel) {
    extent = CALL(node, MAXIMUM, extent, hr__onnx_number(node, 1));
  }
  a->bin = CALL(node, DIVIDE, extent, hr__onnx_number(node, (double)a->bins));
  count_samples(node, r, a);
}

/* Places between -1 and the size are in the image, and those beyond its first or last element are there. */
static void find_elements(hr__onnx_node *node, const regions *r, region_axis *a) {
  hr_value bin = hr__integer_steps(node, hr__integer_of(a->bins), r->dtype, 1, 3);
  hr_value step = hr__integer_steps(node, a->most, r->dtype, 2, 3), size = real_of(node, a->size, r->dtype);
  hr_value last = CALL(node, SUBTRACT, size, hr__onnx_number(node, 1)), zero = hr__onnx_number(node, 0);
  hr_value part = CALL(node, MULTIPLY, CALL(node, ADD, step, hr__onnx_number(node, 0.5)), a->bin);
  hr_value place = CALL(node, ADD, a->begin, CALL(node, MULTIPLY, bin, a->bin));
  place = CALL(node, ADD, place, CALL(node, DIVIDE, part, a->count));
  a->is_sample = CALL(node, LESS, step, a->count);
  hr_value is_inside = CALL(node, LOGICAL_AND, CALL(node, GREATER_EQUAL, place, hr__onnx_number(node, -1)),
                            CALL(node, LESS_EQUAL, place, size));
  is_inside = CALL(node, LOGICAL_AND, is_inside, a->is_sample);
  place = CALL(node, WHERE, is_inside, CALL(node, MAXIMUM, place, zero), zero);
  hr_value low = CALL(node, MINIMUM, CALL(node, FLOOR, place), last);
  hr_value high = CALL(node, MINIMUM, CALL(node, ADD, low, hr__onnx_number(node, 1)), last);
  hr_value beyond = CALL(node, MINIMUM, CALL(node, SUBTRACT, place, low), CALL(node, SUBTRACT, high, low));
  hr_value near_low = CALL(node, SUBTRACT, hr__onnx_number(node, 1), beyond);
  a->low = hr__onnx_cast(node, low, HR_DTYPE_I64), a->high = hr__onnx_cast(node, high, HR_DTYPE_I64);
  a->beyond = CALL(node, WHERE, is_inside, beyond, zero);
  a->near_low = CALL(node, WHERE, is_inside, near_low, zero);
}

/* [R, bins, samples] as [R, bins, samples, 1, 1, ...] for y, [R, 1, 1, bins, samples, ...] for x. */
static hr_value spread(hr__onnx_node *node, hr_value x, bool is_y, int more) {
  for (int i = 0; i < 2; ++i) {
    x = hr__onnx_expand_dim(node, x, is_y ? 3 : 1);
  }
  return more != 0 ? hr__onnx_expand_dim(node, x, 5) : x;
}

/* image [N, H, W, C] at the samples' corner, times its weight: [R, bins, samples, bins, samples, C]. */
static hr_value read_corner(hr__onnx_node *node, hr_value image, hr_value batch, const region_axis *y,
                            const region_axis *x, int corner) {
  hr_value row = spread(node, corner & 2 ? y->high : y->low, true, 0);
  hr_value column = spread(node, corner & 1 ? x->high : x->low, false, 0);
  hr_value weight = CALL(node, MULTIPLY, spread(node, corner & 2 ? y->beyond : y->near_low, true, 1),
                         spread(node, corner & 1 ? x->beyond : x->near_low, false, 1));
  const int64_t axes[] = {0, 1, 2};
  hr_value read = ADD(node, INDEX, IN(image, batch, row, column), WITH(hr__with_ints("axes", 3, axes)));
  return CALL(node, MULTIPLY, read, weight);
}

static hr_value pool_samples(hr__onnx_node *node, const regions *r, const region_axis *y, const region_axis *x,
                             hr_value samples) {
  const int64_t axes[] = {2, 4};
  if (!r->is_max) {
    hr_value count = CALL(node, MULTIPLY, y->count, x->count);
    hr_value sum = hr__onnx_reduce(node, HR_FUNCTIONAL_SUM, samples, 2, axes, false);
    count = CALL(node, MAXIMUM, count, hr__onnx_number(node, 1));
    return CALL(node, DIVIDE, sum, r->ratio > 0 ? count : hr__onnx_expand_dim(node, count, 3));
  }
  hr_value is_sample =
      CALL(node, LOGICAL_AND, spread(node, y->is_sample, true, 1), spread(node, x->is_sample, false, 1));
  samples = CALL(node, WHERE, is_sample, samples, hr__onnx_number(node, -INFINITY));
  hr_value most = hr__onnx_reduce(node, HR_FUNCTIONAL_MAX, samples, 2, axes, false);
  hr_value some = hr__onnx_reduce(node, HR_FUNCTIONAL_ANY, is_sample, 2, axes, false);
  return CALL(node, WHERE, some, most, hr__onnx_number(node, 0));
}

static bool read_regions(hr__onnx_node *node, hr_value image, regions *r) {
  static const char *const modes[] = {"avg", "max"}, *const places[] = {"half_pixel", "output_half_pixel"};
  hr_dtype dtype = hr__onnx_dtype_of(node, image);
  r->is_max = hr__onnx_word(node, "mode", 2, modes) == 1;
  r->is_half_pixel = node->since >= 16 && hr__onnx_word(node, "coordinate_transformation_mode", 2, places) == 0;
  r->ratio = hr__onnx_int(node, "sampling_ratio", 0);
  r->dtype = dtype == HR_DTYPE_F64 ? dtype : HR_DTYPE_F32;
  r->corners = CALL(node, MULTIPLY, hr__onnx_cast(node, hr__onnx_input(node, 1), r->dtype),
                    hr__onnx_number(node, hr__onnx_real(node, "spatial_scale", 1)));
  if (r->ratio < 0 || r->ratio > INT16_MAX) {
    HR__ONNX_WRONG(node, "sampling_ratio is %lld, expected 0 to %d", (long long)r->ratio, INT16_MAX);
  }
  if (hr__onnx_rank(node, image) != 4 || hr__onnx_rank(node, r->corners) != 2) {
    HR__ONNX_WRONG(node, "an image of %d dims and regions of %d, expected 4 and 2", hr__onnx_rank(node, image),
                   hr__onnx_rank(node, r->corners));
  }
  return !hr__onnx_failed(node);
}

void hr__onnx_map_roi_align(hr__onnx_node *node) {
  hr_value image = hr__onnx_input(node, 0), batch = hr__onnx_input(node, 2), sum = 0;
  region_axis y = {.bins = hr__onnx_int(node, "output_height", 1), .size = hr__integer_dim(node, image, 2)};
  region_axis x = {.bins = hr__onnx_int(node, "output_width", 1), .size = hr__integer_dim(node, image, 3)};
  regions r;
  if (!read_regions(node, image, &r)) {
    return;
  }
  if (y.bins < 1 || x.bins < 1 || y.bins > INT16_MAX || x.bins > INT16_MAX) {
    HR__ONNX_WRONG(node, "a result of %lld x %lld, expected positive sizes", (long long)y.bins, (long long)x.bins);
    return;
  }
  find_bins(node, &r, 1, &y), find_bins(node, &r, 0, &x);
  find_elements(node, &r, &y), find_elements(node, &r, &x);
  for (int i = 0; i < 4; ++i) {
    batch = hr__onnx_expand_dim(node, batch, 1);
  }
  hr_value last = hr__onnx_permute(node, image, 4, (const int64_t[]){0, 2, 3, 1});
  for (int corner = 0; corner < 4; ++corner) {
    hr_value read = read_corner(node, last, batch, &y, &x, corner);
    sum = corner == 0 ? read : r.is_max ? CALL(node, MAXIMUM, sum, read) : CALL(node, ADD, sum, read);
  }
  hr_value pooled = pool_samples(node, &r, &y, &x, sum);
  pooled = hr__onnx_permute(node, pooled, 4, (const int64_t[]){0, 3, 1, 2});
  hr__onnx_set(node, 0, hr__onnx_cast(node, pooled, hr__onnx_dtype_of(node, image)));
}

/* ---- MaxRoiPool ---- */

/* [R, bins, size]: true for the elements of an axis in each bin of the regions, whose ends are [R]. */
static hr_value in_bins(hr__onnx_node *node, hr_value first, hr_value last, int64_t bins, hr__integer size) {
  hr_value one = hr__onnx_number(node, 1), extent = CALL(node, ADD, CALL(node, SUBTRACT, last, first), one);
  extent = CALL(node, DIVIDE, CALL(node, MAXIMUM, extent, one), hr__onnx_number(node, (double)bins));
  extent = hr__onnx_expand_dim(node, extent, 1), first = hr__onnx_expand_dim(node, first, 1);
  hr_value bin = hr__integer_steps(node, hr__integer_of(bins), HR_DTYPE_F32, 1, 2);
  hr_value begin = CALL(node, ADD, CALL(node, FLOOR, CALL(node, MULTIPLY, bin, extent)), first);
  hr_value behind = CALL(node, MULTIPLY, CALL(node, ADD, bin, one), extent);
  behind = CALL(node, ADD, CALL(node, CEIL, behind), first);
  hr_value place = hr__integer_steps(node, size, HR_DTYPE_F32, 2, 3);
  return CALL(node, LOGICAL_AND, CALL(node, GREATER_EQUAL, place, hr__onnx_expand_dim(node, begin, 2)),
              CALL(node, LESS, place, hr__onnx_expand_dim(node, behind, 2)));
}

/* Column i of boxes [R, 5], rounded as C's round() does, times the scale. */
static hr_value region_end(hr__onnx_node *node, hr_value boxes, int i) {
  hr_value x = hr__onnx_squeeze_dim(node, hr__onnx_narrow(node, boxes, 1, i, 1), 1);
  x = CALL(node, MULTIPLY, x, hr__onnx_number(node, hr__onnx_real(node, "spatial_scale", 1)));
  return ADD(node, ROUND, IN(x), WITH(hr__with_text("ties", "away")));
}

/* x [R, C, H, W] by rows, then by columns; bins without an element are 0. */
static hr_value pool_bins(hr__onnx_node *node, hr_value x, hr_value rows, hr_value columns) {
  const int64_t along_rows = 3, along_columns = 4;
  hr_value none = hr__onnx_number(node, -INFINITY);
  hr_value row_mask = hr__onnx_expand_dim(node, hr__onnx_expand_dim(node, rows, 1), 4);
  hr_value column_mask = hr__onnx_expand_dim(node, hr__onnx_expand_dim(node, columns, 1), 1);
  x = CALL(node, WHERE, row_mask, hr__onnx_expand_dim(node, x, 2), none);
  x = hr__onnx_reduce(node, HR_FUNCTIONAL_MAX, x, 1, &along_rows, false);
  x = CALL(node, WHERE, column_mask, hr__onnx_expand_dim(node, x, 3), none);
  x = hr__onnx_reduce(node, HR_FUNCTIONAL_MAX, x, 1, &along_columns, false);
  const int64_t last = 2;
  hr_value some_row = hr__onnx_reduce(node, HR_FUNCTIONAL_ANY, rows, 1, &last, false);
  hr_value some_column = hr__onnx_reduce(node, HR_FUNCTIONAL_ANY, columns, 1, &last, false);
  hr_value some =
      CALL(node, LOGICAL_AND, hr__onnx_expand_dim(node, some_row, 2), hr__onnx_expand_dim(node, some_column, 1));
  return CALL(node, WHERE, hr__onnx_expand_dim(node, some, 1), x, hr__onnx_number(node, 0));
}

void hr__onnx_map_max_roi_pool(hr__onnx_node *node) {
  hr_value image = hr__onnx_input(node, 0), boxes = hr__onnx_cast(node, hr__onnx_input(node, 1), HR_DTYPE_F32);
  int64_t bins[HR_RANK_MAX];
  if (hr__onnx_ints(node, "pooled_shape", bins) != 2 || hr__onnx_rank(node, image) != 4 ||
      hr__onnx_rank(node, boxes) != 2) {
    HR__ONNX_WRONG(node, "an image of %d dims and regions of %d, expected 4 and 2, and a pooled_shape of 2 integers",
                   hr__onnx_rank(node, image), hr__onnx_rank(node, boxes));
    return;
  }
  if (bins[0] < 1 || bins[1] < 1 || bins[0] > INT16_MAX || bins[1] > INT16_MAX) {
    HR__ONNX_WRONG(node, "a result of %lld x %lld, expected positive sizes", (long long)bins[0], (long long)bins[1]);
    return;
  }
  hr_value batch =
      hr__onnx_cast(node, hr__onnx_squeeze_dim(node, hr__onnx_narrow(node, boxes, 1, 0, 1), 1), HR_DTYPE_I64);
  hr_value x = ADD(node, TAKE, IN(image, batch), WITH(hr__with_int("axis", 0)));
  hr_value ends[4];
  for (int i = 0; i < 4; ++i) {
    ends[i] = region_end(node, boxes, i + 1);
  }
  hr_value rows = in_bins(node, ends[1], ends[3], bins[0], hr__integer_dim(node, image, 2));
  hr_value columns = in_bins(node, ends[0], ends[2], bins[1], hr__integer_dim(node, image, 3));
  hr__onnx_set(node, 0, pool_bins(node, x, rows, columns));
}

/* ---- DeformConv ---- */

enum { PLANES = 2 };

typedef struct deform {
  int64_t window[PLANES], stride[PLANES], dilation[PLANES], pads[2 * PLANES], groups, offset_groups, channels;
  hr__integer batch, out[PLANES], image[PLANES];
} deform;

static void read_plane_list(hr__onnx_node *node, const char *name, int count, int64_t otherwise, int64_t *out) {
  int64_t given[HR_RANK_MAX];
  int found = hr__onnx_ints(node, name, given);
  if (found >= 0 && found != count) {
    HR__ONNX_WRONG(node, "attribute %s has %d integers, expected %d", name, found, count);
  }
  for (int i = 0; i < count; ++i) {
    out[i] = found == count ? given[i] : otherwise;
  }
}

static bool read_deform(hr__onnx_node *node, deform *d) {
  hr_value x = hr__onnx_input(node, 0), weight = hr__onnx_input(node, 1), offset = hr__onnx_input(node, 2);
  if (hr__onnx_rank(node, x) != 4 || hr__onnx_rank(node, weight) != 4 || hr__onnx_rank(node, offset) != 4) {
    HR__ONNX_REFUSE(node, "%d dims, only images (4 dims) are supported", hr__onnx_rank(node, x));
    return false;
  }
  read_plane_list(node, "strides", PLANES, 1, d->stride);
  read_plane_list(node, "dilations", PLANES, 1, d->dilation);
  read_plane_list(node, "pads", 2 * PLANES, 0, d->pads);
  d->groups = hr__onnx_int(node, "group", 1), d->offset_groups = hr__onnx_int(node, "offset_group", 1);
  d->channels = hr__onnx_known_dim(node, x, 1);
  d->batch = hr__integer_dim(node, offset, 0);
  for (int i = 0; i < PLANES; ++i) {
    d->window[i] = hr__onnx_known_dim(node, weight, i + 2);
    d->image[i] = hr__integer_dim(node, x, i + 2), d->out[i] = hr__integer_dim(node, offset, i + 2);
  }
  bool is_right = d->groups > 0 && d->offset_groups > 0 && d->channels % d->groups == 0 &&
                  d->channels % d->offset_groups == 0 &&
                  hr__onnx_known_dim(node, offset, 1) == d->offset_groups * d->window[0] * d->window[1] * PLANES;
  if (!is_right && !hr__onnx_failed(node)) {
    HR__ONNX_WRONG(node, "%lld channels in %lld groups, %lld of offsets with %lld channels", (long long)d->channels,
                   (long long)d->groups, (long long)d->offset_groups, (long long)hr__onnx_dim(node, offset, 1));
  }
  return !hr__onnx_failed(node);
}

/* Places along a plane [N * offset groups, window y, window x, out y, out x]. offset: with 2 dims of planes before the
 * last two. */
static hr_value place_of(hr__onnx_node *node, const deform *d, hr_value offset, int plane, hr_dtype dtype) {
  hr_value moved = hr__onnx_squeeze_dim(node, hr__onnx_narrow(node, offset, 3, plane, 1), 3);
  hr_value window = hr__integer_steps(node, hr__integer_of(d->window[plane]), dtype, 1 + plane, 5);
  hr_value out = hr__integer_steps(node, d->out[plane], dtype, 3 + plane, 5);
  window = CALL(node, MULTIPLY, window, hr__onnx_number(node, (double)d->dilation[plane]));
  out = CALL(node, MULTIPLY, out, hr__onnx_number(node, (double)d->stride[plane]));
  out = CALL(node, SUBTRACT, out, hr__onnx_number(node, (double)d->pads[plane]));
  return CALL(node, ADD, CALL(node, ADD, out, window), moved);
}

/* The elements before and behind places, and their weights, which are 0 outside of the image. */
typedef struct neighbours {
  hr_value index[2], weight[2];
} neighbours;

static neighbours find_neighbours(hr__onnx_node *node, hr_value place, hr_value size) {
  neighbours n;
  hr_value low = CALL(node, FLOOR, place), rest = CALL(node, SUBTRACT, place, low), zero = hr__onnx_number(node, 0);
  for (int i = 0; i < 2; ++i) {
    hr_value at = i == 0 ? low : CALL(node, ADD, low, hr__onnx_number(node, 1));
    hr_value weight = i == 0 ? CALL(node, SUBTRACT, hr__onnx_number(node, 1), rest) : rest;
    hr_value is = CALL(node, LOGICAL_AND, CALL(node, GREATER_EQUAL, at, zero), CALL(node, LESS, at, size));
    n.index[i] = hr__onnx_cast(node, CALL(node, WHERE, is, at, zero), HR_DTYPE_I64);
    n.weight[i] = hr__onnx_expand_dim(node, CALL(node, WHERE, is, weight, zero), 5);
  }
  return n;
}

/* image: [N * offset groups, H, W, C]; the result: [N * offset groups, window y, window x, out y, out x, C]. */
static hr_value read_places(hr__onnx_node *node, const deform *d, hr_value image, hr_value offset, hr_dtype dtype) {
  hr__integer count = INTEGER(node, MULTIPLY, d->batch, hr__integer_of(d->offset_groups));
  hr_value batch = hr__integer_steps(node, count, HR_DTYPE_I64, 0, 5), sum = 0;
  neighbours n[PLANES];
  for (int i = 0; i < PLANES; ++i) {
    n[i] = find_neighbours(node, place_of(node, d, offset, i, dtype), real_of(node, d->image[i], dtype));
  }
  for (int corner = 0; corner < 4; ++corner) {
    hr_value read = ADD(node, INDEX, IN(image, batch, n[0].index[corner / 2], n[1].index[corner % 2]),
                        WITH(hr__with_ints("axes", 3, (const int64_t[]){0, 1, 2})));
    hr_value weight = CALL(node, MULTIPLY, n[0].weight[corner / 2], n[1].weight[corner % 2]);
    read = CALL(node, MULTIPLY, read, hr__onnx_cast(node, weight, hr__onnx_dtype_of(node, image)));
    sum = corner == 0 ? read : CALL(node, ADD, sum, read);
  }
  return sum;
}

/* Elements of the image [N, groups, channels of a group * window, out y * out x]. */
static hr_value sample_image(hr__onnx_node *node, const deform *d, hr_value x) {
  hr_value offset = hr__onnx_input(node, 2), mask = hr__onnx_input(node, 4);
  hr_dtype dtype = hr__onnx_dtype_of(node, x) == HR_DTYPE_F64 ? HR_DTYPE_F64 : HR_DTYPE_F32;
  const hr__integer any = hr__integer_of(-1), channels = hr__integer_of(d->channels / d->offset_groups);
  const hr__integer window[PLANES] = {hr__integer_of(d->window[0]), hr__integer_of(d->window[1])};
  const hr__integer planes = hr__integer_of(PLANES), one = hr__integer_of(1);
  offset = hr__integer_reshape(node, hr__onnx_cast(node, offset, dtype), 6,
                               (const hr__integer[]){any, window[0], window[1], planes, d->out[0], d->out[1]});
  x = hr__integer_reshape(node, x, 4, (const hr__integer[]){any, channels, d->image[0], d->image[1]});
  x = hr__onnx_permute(node, x, 4, (const int64_t[]){0, 2, 3, 1});
  hr_value read = read_places(node, d, x, offset, dtype);
  if (mask != 0) {
    mask =
        hr__integer_reshape(node, mask, 6, (const hr__integer[]){any, window[0], window[1], d->out[0], d->out[1], one});
    read = CALL(node, MULTIPLY, read, mask);
  }
  read = hr__onnx_permute(node, read, 6, (const int64_t[]){0, 5, 1, 2, 3, 4});
  hr__integer depth = hr__integer_of(d->channels / d->groups * d->window[0] * d->window[1]);
  return hr__integer_reshape(
      node, read, 4,
      (const hr__integer[]){d->batch, hr__integer_of(d->groups), depth, INTEGER(node, MULTIPLY, d->out[0], d->out[1])});
}

void hr__onnx_map_deform_conv(hr__onnx_node *node) {
  hr_value weight = hr__onnx_input(node, 1), bias = hr__onnx_input(node, 3);
  deform d = {0};
  if (!read_deform(node, &d)) {
    return;
  }
  int64_t outs = hr__onnx_known_dim(node, weight, 0), depth = d.channels / d.groups * d.window[0] * d.window[1];
  if (outs < 0 || outs % d.groups != 0) {
    HR__ONNX_WRONG(node, "%lld output channels in %lld groups", (long long)outs, (long long)d.groups);
    return;
  }
  hr_value read = sample_image(node, &d, hr__onnx_input(node, 0));
  weight = hr__onnx_reshape(node, weight, 3, (const int64_t[]){d.groups, outs / d.groups, depth});
  hr_value y = CALL(node, MATMUL, weight, read);
  y = hr__integer_reshape(node, y, 4, (const hr__integer[]){d.batch, hr__integer_of(outs), d.out[0], d.out[1]});
  hr__onnx_set(node, 0, bias != 0 ? CALL(node, ADD, y, hr__onnx_along(node, bias, 1, 4)) : y);
}
