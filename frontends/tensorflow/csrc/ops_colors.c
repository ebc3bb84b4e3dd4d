/* ops_colors.c: rules of colours, the last dim of images, and of numbers as a quantised model will have them. */
#include <string.h>

#include "node.h"

/* ---- colours ---- */

static htf_value maximum(htf_node *node, htf_value x, htf_value y) {
  return htf_call2(node, HR_FUNCTIONAL_MAXIMUM, x, y);
}

static htf_value minimum(htf_node *node, htf_value x, htf_value y) {
  return htf_call2(node, HR_FUNCTIONAL_MINIMUM, x, y);
}

static htf_value number(htf_node *node, double value) {
  return htf_number(node, value);
}

static htf_value clip(htf_node *node, htf_value x) {
  return minimum(node, maximum(node, x, number(node, 0)), number(node, 1));
}

typedef struct colour {
  htf_value part[3];
} colour;

static colour read_colour(htf_node *node, htf_value image) {
  colour c = {{image, image, image}};
  if (!htf_has_failed(node) && (image->rank < 1 || image->dims[image->rank - 1] != 3)) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "%s: input must have 3 channels in its last dim", node->kernel->row->op);
  }
  for (int i = 0; i < 3 && !htf_has_failed(node); ++i) {
    int64_t offset = hr_tensor_count(image) > 0 ? i * image->strides[image->rank - 1] : 0;
    c.part[i] = htf_view(node, image, image->rank - 1, image->dims, image->strides, image->offset + offset);
  }
  return c;
}

static void output_colour(htf_node *node, htf_value image, colour c) {
  if (!htf_has_failed(node)) {
    htf_value joined = hr_tensor_count(image) == 0
                           ? image
                           : htf_call(node, HR_FUNCTIONAL_STACK, 3, c.part, ATTRIBUTES(htf_attr_int(image->rank - 1)));
    htf_output(node, 0, joined);
  }
}

/* sixth / 6 + (x - y) / (6 range) */
static htf_value hue_from(htf_node *node, htf_value x, htf_value y, htf_value range, int sixth) {
  htf_value norm = htf_divide(node, number(node, 1), htf_multiply(node, range, number(node, 6)));
  return htf_add(node, htf_multiply(node, norm, htf_subtract(node, x, y)), number(node, sixth / 6.0));
}

static colour to_hsv(htf_node *node, colour c) {
  htf_value r = c.part[0], g = c.part[1], b = c.part[2], zero = number(node, 0);
  htf_value value = maximum(node, maximum(node, r, g), b);
  htf_value range = htf_subtract(node, value, minimum(node, minimum(node, r, g), b));
  htf_value saturation =
      htf_where(node, htf_call2(node, HR_FUNCTIONAL_GREATER, value, zero), htf_divide(node, range, value), zero);
  htf_value hue = htf_where(node, htf_call2(node, HR_FUNCTIONAL_EQUAL, r, value), hue_from(node, g, b, range, 0),
                            htf_where(node, htf_call2(node, HR_FUNCTIONAL_EQUAL, g, value),
                                      hue_from(node, b, r, range, 2), hue_from(node, r, g, range, 4)));
  hue = htf_where(node, htf_call2(node, HR_FUNCTIONAL_GREATER, range, zero), hue, zero);
  hue = htf_where(node, htf_call2(node, HR_FUNCTIONAL_LESS, hue, zero), htf_add(node, hue, number(node, 1)), hue);
  return (colour){{hue, saturation, value}};
}

/* The distance of the hue from a place of the circle in sixths, as a share of red, green or blue. */
static htf_value share(htf_node *node, htf_value sixths, double place, double sign, double start) {
  htf_value distance = htf_call1(node, HR_FUNCTIONAL_ABS, htf_subtract(node, sixths, number(node, place)));
  return clip(node, htf_add(node, htf_multiply(node, distance, number(node, sign)), number(node, start)));
}

static colour to_rgb(htf_node *node, colour c) {
  htf_value sixths = htf_multiply(node, c.part[0], number(node, 6)),
            rest = htf_subtract(node, number(node, 1), c.part[1]);
  colour out;
  for (int i = 0; i < 3; ++i) {
    htf_value part = i == 0 ? share(node, sixths, 3, 1, -1) : share(node, sixths, i == 1 ? 2 : 4, -1, 2);
    out.part[i] = htf_multiply(node, htf_add(node, rest, htf_multiply(node, c.part[1], part)), c.part[2]);
  }
  return out;
}

void htf_rgb_to_hsv(htf_node *node) {
  htf_value image = htf_input(node, 0);
  output_colour(node, image, to_hsv(node, read_colour(node, image)));
}

void htf_hsv_to_rgb(htf_node *node) {
  htf_value image = htf_input(node, 0);
  output_colour(node, image, to_rgb(node, read_colour(node, image)));
}

void htf_adjust_saturation(htf_node *node) {
  htf_value image = htf_input(node, 0), scale = htf_input(node, 1);
  colour c = to_hsv(node, read_colour(node, image));
  c.part[1] = clip(node, htf_multiply(node, c.part[1], scale));
  output_colour(node, image, to_rgb(node, c));
}

void htf_adjust_hue(htf_node *node) {
  htf_value image = htf_input(node, 0), delta = htf_input(node, 1);
  colour c = to_hsv(node, read_colour(node, image));
  htf_value moved = htf_add(node, c.part[0], delta);
  c.part[0] = htf_subtract(node, moved, htf_call1(node, HR_FUNCTIONAL_FLOOR, moved));
  output_colour(node, image, to_rgb(node, c));
}

/* (x - mean) * factor + mean, with the mean of each plane [H, W]. */
void htf_adjust_contrast(htf_node *node) {
  htf_value image = htf_input(node, 0), factor = htf_input(node, 1);
  if (!htf_has_failed(node) && image->rank < 3) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "input must be at least 3-D, it has %d dims", image->rank);
  }
  if (htf_has_failed(node) || hr_tensor_count(image) == 0) {
    htf_output(node, 0, image);
    return;
  }
  const int64_t axes[2] = {image->rank - 3, image->rank - 2};
  htf_value mean =
      htf_call(node, HR_FUNCTIONAL_MEAN, INPUTS(image), ATTRIBUTES(htf_attr_ints(axes, 2), htf_attr_flag(true)));
  htf_output(node, 0, htf_add(node, htf_multiply(node, htf_subtract(node, image, mean), factor), mean));
}

/* ---- quantised numbers: the range is moved so that 0 is a level ---- */

typedef struct levels {
  htf_value low, high, scale;
} levels;

static htf_value scalar(htf_node *node, double value) {
  return htf_call(node, HR_FUNCTIONAL_FULL, INPUTS(number(node, value)),
                  ATTRIBUTES(htf_attr_ints(NULL, 0), htf_attr_dtype(HR_DTYPE_F32)));
}

static levels nudge(htf_node *node, htf_value low, htf_value high) {
  double least = htf_flag(node, "narrow_range"), most = (double)((1 << htf_integer(node, "num_bits")) - 1);
  levels l = {.scale = htf_divide(node, htf_subtract(node, high, low), number(node, most - least))};
  htf_value zero = htf_subtract(node, number(node, least), htf_divide(node, low, l.scale));
  zero = htf_call(node, HR_FUNCTIONAL_ROUND, INPUTS(zero), ATTRIBUTES(htf_attr_int(0), htf_attr_text("away")));
  zero = minimum(node, maximum(node, zero, number(node, least)), number(node, most));
  l.low = htf_multiply(node, htf_subtract(node, number(node, least), zero), l.scale);
  l.high = htf_multiply(node, htf_subtract(node, number(node, most), zero), l.scale);
  return l;
}

/* Inputs `first` and the next one, or the attributes. */
static levels read_levels(htf_node *node, int first) {
  int64_t bits = htf_integer(node, "num_bits");
  if (bits < 2 || bits > 16) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "num_bits must be between 2 and 16, inclusive: %lld", (long long)bits);
    return (levels){NULL, NULL, NULL};
  }
  if (first > 0) {
    htf_value low = htf_input(node, first), high = htf_input(node, first + 1);
    return nudge(node, low, high);
  }
  return nudge(node, scalar(node, htf_real(node, "min")), scalar(node, htf_real(node, "max")));
}

static void quantize(htf_node *node, levels l) {
  htf_value x = htf_input(node, 0);
  if (htf_has_failed(node)) {
    return;
  }
  htf_value inside = htf_subtract(node, minimum(node, maximum(node, x, l.low), l.high), l.low);
  htf_value inverse = htf_divide(node, number(node, 1), l.scale);
  htf_value level =
      htf_call1(node, HR_FUNCTIONAL_FLOOR, htf_add(node, htf_multiply(node, inside, inverse), number(node, 0.5)));
  htf_output(node, 0, htf_add(node, htf_multiply(node, level, l.scale), l.low));
}

void htf_quantize_attributes(htf_node *node) {
  quantize(node, read_levels(node, 0));
}

void htf_quantize_range(htf_node *node) {
  quantize(node, read_levels(node, 1));
}

/* The sum over all dims but those of the range. */
static htf_value sum_to(htf_node *node, htf_value x, int kept) {
  int64_t axes[HR_RANK_MAX];
  for (int d = 0; d < x->rank - kept; ++d) {
    axes[d] = d;
  }
  return x->rank == kept ? x
                         : htf_call(node, HR_FUNCTIONAL_SUM, INPUTS(x),
                                    ATTRIBUTES(htf_attr_ints(axes, x->rank - kept), htf_attr_flag(false),
                                               htf_attr_dtype(x->dtype)));
}

static void quantize_back(htf_node *node, levels l, bool has_range) {
  htf_value gradient = htf_input(node, 0), x = htf_input(node, 1), zero = number(node, 0);
  if (htf_has_failed(node)) {
    return;
  }
  htf_value is_low = htf_call2(node, HR_FUNCTIONAL_LESS, x, l.low);
  htf_value is_high = htf_call2(node, HR_FUNCTIONAL_GREATER, x, l.high);
  htf_value is_outside = htf_call2(node, HR_FUNCTIONAL_LOGICAL_OR, is_low, is_high);
  htf_output(node, 0, htf_where(node, is_outside, zero, gradient));
  if (has_range) {
    htf_output(node, 1, sum_to(node, htf_where(node, is_low, gradient, zero), l.low->rank));
    htf_output(node, 2, sum_to(node, htf_where(node, is_high, gradient, zero), l.low->rank));
  }
}

void htf_quantize_attributes_gradient(htf_node *node) {
  quantize_back(node, read_levels(node, 0), false);
}

void htf_quantize_range_gradient(htf_node *node) {
  quantize_back(node, read_levels(node, 2), true);
}
