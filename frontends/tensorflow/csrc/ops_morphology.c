/* ops_morphology.c: rules of dilation by a filter: the largest sum of a window's elements and the filter's, with
 * gradients, which the first largest sum of a window has.
 *
 * A window is walked element by element of the filter: each is a view of the padded image with the dims of the result.
 */
#include "ops_windows.h"

typedef struct windows {
  htf_geometry g;
  htf_value padded, filter;
  htf_value is_image; /* of the padded image's elements; NULL: all are */
  int64_t dims[4];    /* of the result */
} windows;

static windows open_windows(htf_node *node) {
  windows w = {.g = htf_geometry_of(node), .padded = htf_input(node, 0), .filter = htf_input(node, 1)};
  htf_value image = w.padded;
  if (!htf_has_failed(node) && (image->rank != 4 || w.filter->rank != 3 || image->dims[3] != w.filter->dims[2])) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT,
             "%s: input must be 4-dimensional and the filter 3-dimensional, with the same depth: they have %d and %d "
             "dims",
             node->kernel->row->op, image->rank, w.filter->rank);
  }
  htf_read_pair(node, &w.g, "strides", w.g.stride);
  htf_read_pair(node, &w.g, "rates", w.g.dilation);
  if (htf_has_failed(node)) {
    return w;
  }
  w.g.size[0] = w.filter->dims[0], w.g.size[1] = w.filter->dims[1];
  htf_read_padding(node, &w.g, image->dims);
  htf_result_dims(&w.g, image->dims, image->dims[3], w.dims);
  const int64_t before[4] = {0, w.g.before[0], w.g.before[1], 0}, after[4] = {0, w.g.after[0], w.g.after[1], 0};
  bool is_padded = before[1] + before[2] + after[1] + after[2] > 0;
  if (is_padded) {
    const hr_attribute sides[3] = {htf_attr_ints(before, 4), htf_attr_ints(after, 4), htf_attr_real(0)};
    htf_value inside = htf_call(node, HR_FUNCTIONAL_FULL, INPUTS(htf_number_of(node, hr_scalar_i64(1))),
                                ATTRIBUTES(htf_attr_ints(image->dims, 4), htf_attr_dtype(HR_DTYPE_BOOL)));
    w.padded = htf_call(node, HR_FUNCTIONAL_PAD, INPUTS(image), 3, sides);
    w.is_image = htf_call(node, HR_FUNCTIONAL_PAD, INPUTS(inside), 3, sides);
  }
  return w;
}

/* The first place of an element of the filter in the padded image. */
static int64_t begin_of(const windows *w, int64_t place, int plane) {
  int64_t at = plane == 0 ? place / w->g.size[1] : place % w->g.size[1];
  return at * w->g.dilation[plane];
}

/* The elements of x, which has the dims of the padded image, under one of the filter in all windows. */
static htf_value part_at(htf_node *node, const windows *w, htf_value x, int64_t place) {
  const int64_t *s = x->strides;
  const int64_t strides[4] = {s[0], s[1] * w->g.stride[0], s[2] * w->g.stride[1], s[3]};
  int64_t offset = begin_of(w, place, 0) * s[1] + begin_of(w, place, 1) * s[2];
  return htf_view(node, x, 4, w->dims, strides, x->offset + offset);
}

/* An element of the filter, [C]. */
static htf_value filter_at(htf_node *node, const windows *w, int64_t place) {
  const int64_t *s = w->filter->strides;
  int64_t offset = place / w->g.size[1] * s[0] + place % w->g.size[1] * s[1];
  return htf_view(node, w->filter, 1, &w->filter->dims[2], &s[2], w->filter->offset + offset);
}

static int64_t filter_count(const windows *w) {
  return w->g.size[0] * w->g.size[1];
}

/* The sums of the windows at a place, the least number where the image has no element. */
static htf_value sum_at(htf_node *node, const windows *w, int64_t place) {
  htf_value sum = htf_add(node, part_at(node, w, w->padded, place), filter_at(node, w, place));
  if (w->is_image == NULL || htf_has_failed(node)) {
    return sum;
  }
  double least = htf_least_number(sum->dtype);
  htf_value low = sum->dtype == HR_DTYPE_I64 ? htf_number_of(node, hr_scalar_i64(INT64_MIN)) : htf_number(node, least);
  return htf_where(node, part_at(node, w, w->is_image, place), sum, htf_cast(node, low, sum->dtype));
}

/* The largest sums; `out_place`: the first place of each in the filter, in i32, or NULL. */
static htf_value largest_sums(htf_node *node, const windows *w, htf_value *out_place) {
  htf_value best = NULL, place = NULL;
  for (int64_t i = 0; i < filter_count(w) && !htf_has_failed(node); ++i) {
    htf_value sum = sum_at(node, w, i);
    if (out_place != NULL && best == NULL) {
      place = htf_zeros(node, 4, w->dims, HR_DTYPE_I32);
    } else if (out_place != NULL) {
      htf_value is_more = htf_call2(node, HR_FUNCTIONAL_GREATER, sum, best);
      place = htf_where(node, is_more, htf_number_of(node, hr_scalar_i64(i)), place);
    }
    best = best == NULL ? sum : htf_call2(node, HR_FUNCTIONAL_MAXIMUM, best, sum);
  }
  if (out_place != NULL) {
    *out_place = place;
  }
  return best;
}

static bool is_empty(htf_node *node, const windows *w) {
  return !htf_has_failed(node) && (htf_image_count(&w->g, w->dims) == 0 || filter_count(w) == 0);
}

void htf_dilation(htf_node *node) {
  windows w = open_windows(node);
  if (is_empty(node, &w)) {
    htf_output(node, 0, htf_zeros(node, 4, w.dims, w.padded->dtype));
  } else if (!htf_has_failed(node)) {
    htf_output(node, 0, largest_sums(node, &w, NULL));
  }
}

/* The gradient (input 2) of the windows whose largest sum is at a place, 0 of others. */
static htf_value gradient_at(htf_node *node, htf_value gradient, htf_value places, int64_t place) {
  htf_value is_here = htf_call2(node, HR_FUNCTIONAL_EQUAL, places, htf_number_of(node, hr_scalar_i64(place)));
  return htf_where(node, is_here, gradient, htf_number_of(node, hr_scalar_i64(0)));
}

void htf_dilation_image_gradient(htf_node *node) {
  windows w = open_windows(node);
  htf_value image = htf_input(node, 0), gradient = htf_input(node, 2), places = NULL;
  htf_check_gradient(node, &w.g, gradient, w.dims);
  if (htf_has_failed(node) || is_empty(node, &w)) {
    htf_output(node, 0, htf_zeros(node, image->rank, image->dims, image->dtype));
    return;
  }
  (void)largest_sums(node, &w, &places);
  htf_value sums = htf_zeros(node, 4, w.padded->dims, image->dtype);
  const int64_t steps[4] = {1, w.g.stride[0], w.g.stride[1], 1};
  for (int64_t i = 0; i < filter_count(&w); ++i) {
    const int64_t begin[4] = {0, begin_of(&w, i, 0), begin_of(&w, i, 1), 0};
    htf_value here = gradient_at(node, gradient, places, i);
    if (htf_has_failed(node)) {
      return;
    }
    htf_value sum = htf_add(node, part_at(node, &w, sums, i), here);
    sums = htf_call(node, HR_FUNCTIONAL_SLICE_UPDATE, INPUTS(sums, sum),
                    ATTRIBUTES(htf_attr_ints(begin, 4), htf_attr_ints(w.dims, 4), htf_attr_ints(steps, 4)));
  }
  if (!htf_has_failed(node)) {
    int64_t offset = sums->offset + w.g.before[0] * sums->strides[1] + w.g.before[1] * sums->strides[2];
    htf_output(node, 0, htf_view(node, sums, 4, image->dims, sums->strides, offset));
  }
}

void htf_dilation_filter_gradient(htf_node *node) {
  static const int64_t axes[3] = {0, 1, 2};
  windows w = open_windows(node);
  htf_value gradient = htf_input(node, 2), places = NULL, sums = NULL;
  htf_check_gradient(node, &w.g, gradient, w.dims);
  if (htf_has_failed(node) || is_empty(node, &w)) {
    htf_output(node, 0, htf_zeros(node, w.filter->rank, w.filter->dims, w.filter->dtype));
    return;
  }
  (void)largest_sums(node, &w, &places);
  const int64_t row[2] = {1, w.filter->dims[2]};
  for (int64_t i = 0; i < filter_count(&w) && !htf_has_failed(node); ++i) {
    htf_value sum = htf_call(node, HR_FUNCTIONAL_SUM, INPUTS(gradient_at(node, gradient, places, i)),
                             ATTRIBUTES(htf_attr_ints(axes, 3), htf_attr_flag(false), htf_attr_dtype(gradient->dtype)));
    sum = htf_reshape(node, sum, 2, row);
    sums = sums == NULL ? sum : htf_call(node, HR_FUNCTIONAL_CONCAT, INPUTS(sums, sum), ATTRIBUTES(htf_attr_int(0)));
  }
  if (!htf_has_failed(node)) {
    htf_output(node, 0, htf_reshape(node, sums, 3, w.filter->dims));
  }
}
