/* onnx_resize.c: Resize and Upsample as interpolate, which has ONNX's names. */
#include <math.h>

#include "importers/onnx/onnx_integer.h"

static const char *const modes[] = {"nearest", "linear", "cubic"};
static const char *const coordinates[] = {"half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners",
                                          "asymmetric", "tf_half_pixel_for_nn", "tf_crop_and_resize"};
static const char *const roundings[] = {"round_prefer_floor", "round_prefer_ceil", "floor", "ceil"};
enum { ALIGN_CORNERS = 3, ASYMMETRIC = 4, TF_CROP = 6, FLOOR = 2 };

typedef struct resize {
  hr_value x;
  int rank, axis_count;
  int64_t axes[HR_RANK_MAX], sizes[HR_RANK_MAX];
  double scales[HR_RANK_MAX], region[2 * HR_RANK_MAX];
  hr_value size_list;
  bool has_scales, has_sizes;
} resize;

static void read_axes(hr__onnx_node *node, resize *r) {
  r->rank = hr__onnx_rank(node, r->x);
  r->axis_count = hr__onnx_ints(node, "axes", r->axes);
  for (int i = 0; i < r->axis_count; ++i) {
    r->axes[i] = hr__onnx_axis(node, r->axes[i], r->rank);
  }
  for (int d = 0; r->axis_count < 0 && d < r->rank; ++d) {
    r->axes[d] = d;
  }
  r->axis_count = r->axis_count < 0 ? r->rank : r->axis_count;
}

static bool is_empty(const hr__onnx_node *node, hr_value value) {
  return value == 0 || (hr__onnx_rank(node, value) == 1 && hr__onnx_dim(node, value, 0) == 0);
}

/* The same scale for all axes, of which no size exceeds, or none is below, that which is wanted. */
static void keep_ratio(hr__onnx_node *node, resize *r, bool is_larger) {
  double scale = 0;
  int64_t dims[HR_RANK_MAX];
  for (int i = 0; i < r->axis_count; ++i) {
    dims[i] = hr__onnx_known_dim(node, r->x, (int)r->axes[i]);
    double own = dims[i] > 0 ? (double)r->sizes[i] / (double)dims[i] : 0;
    scale = i == 0 || (is_larger ? own > scale : own < scale) ? own : scale;
  }
  for (int i = 0; i < r->axis_count; ++i) {
    r->sizes[i] = (int64_t)(scale * (double)dims[i] + 0.5), r->scales[i] = scale;
  }
  r->has_scales = true;
}

static void read_sizes(hr__onnx_node *node, hr_value sizes, resize *r) {
  static const char *const words[] = {"stretch", "not_larger", "not_smaller"};
  int policy = hr__onnx_word(node, "keep_aspect_ratio_policy", 3, words);
  r->has_sizes = true;
  if (policy <= 0) {
    r->size_list = hr__onnx_on_host(node, sizes, "sizes");
    return;
  }
  int count = hr__onnx_integers(node, sizes, "sizes", HR_RANK_MAX, r->sizes);
  if (count == r->axis_count) {
    keep_ratio(node, r, policy == 2);
  } else {
    HR__ONNX_WRONG(node, "%d sizes for %d axes", count, r->axis_count);
  }
}

static void read_scales(hr__onnx_node *node, hr_value scales, resize *r) {
  int count = hr__onnx_numbers(node, scales, "scales", HR_RANK_MAX, r->scales);
  if (count >= 0 && count != r->axis_count) {
    HR__ONNX_WRONG(node, "%d scales for %d axes", count, r->axis_count);
  }
  r->has_scales = true;
}

static void interpolate(hr__onnx_node *node, const resize *r, int mode, int place, int rounding) {
  hr_graph_attribute with[12];
  int count = 0;
  with[count++] = hr__with_ints("axes", r->axis_count, r->axes);
  if (r->has_sizes) {
    with[count++] =
        r->size_list != 0 ? hr__with_list("sizes", r->size_list) : hr__with_ints("sizes", r->axis_count, r->sizes);
  }
  if (r->has_scales) { /* with sizes, too: those are rounded */
    with[count++] = hr__with_reals("scales", r->axis_count, r->scales);
  }
  with[count++] = hr__with_text("mode", modes[mode]);
  with[count++] = hr__with_text("coordinates", coordinates[place]);
  with[count++] = hr__with_text("rounding", roundings[rounding]);
  with[count++] = hr__with_flag("antialias", hr__onnx_int(node, "antialias", 0) != 0);
  with[count++] = hr__with_real("cubic", hr__onnx_real(node, "cubic_coeff_a", -0.75));
  with[count++] = hr__with_flag("exclude_outside", hr__onnx_int(node, "exclude_outside", 0) != 0);
  if (place == TF_CROP) {
    with[count++] = hr__with_reals("region", 2 * r->axis_count, r->region);
    with[count++] = hr__with_real("outside", hr__onnx_real(node, "extrapolation_value", 0));
  }
  hr__onnx_set(node, 0, ADD(node, INTERPOLATE, IN(r->x), count, with));
}

/* ONNX's last place for align_corners is scale * size - 1, which may be between two elements. */
static bool align_scales(hr__onnx_node *node, resize *r) {
  bool is_between = false;
  for (int i = 0; i < r->axis_count; ++i) {
    double own = (double)hr__onnx_known_dim(node, r->x, (int)r->axes[i]), last = own * r->scales[i] - 1;
    double count = floor(own * r->scales[i]);
    is_between |= count != own * r->scales[i];
    r->region[i] = 0, r->region[r->axis_count + i] = count > 1 && last > 0 ? (count - 1) / last : 0;
  }
  return is_between;
}

void hr__onnx_map_resize(hr__onnx_node *node) {
  resize r = {.x = hr__onnx_input(node, 0)};
  bool is_first = node->since < 11;
  hr_value scales = hr__onnx_input(node, is_first ? 1 : 2), sizes = is_first ? 0 : hr__onnx_input(node, 3);
  int mode = hr__onnx_word(node, "mode", 3, modes);
  int place = is_first ? ASYMMETRIC : hr__onnx_word(node, "coordinate_transformation_mode", 7, coordinates);
  int rounding = is_first ? FLOOR : hr__onnx_word(node, "nearest_mode", 4, roundings);
  read_axes(node, &r);
  if (!is_empty(node, sizes)) {
    read_sizes(node, sizes, &r);
  } else {
    read_scales(node, scales, &r);
  }
  r.has_scales &= place != ALIGN_CORNERS || !r.has_sizes; /* corners of sizes are where they are */
  if (place == ALIGN_CORNERS && r.has_scales && !hr__onnx_failed(node) && align_scales(node, &r)) {
    place = TF_CROP;
  } else if (place == TF_CROP &&
             hr__onnx_numbers(node, hr__onnx_input(node, 1), "roi", 2 * HR_RANK_MAX, r.region) < 0) {
    return;
  }
  if (!hr__onnx_failed(node)) {
    interpolate(node, &r, mode, place, rounding);
  }
}

void hr__onnx_map_upsample(hr__onnx_node *node) {
  resize r = {.x = hr__onnx_input(node, 0)};
  int mode = hr__onnx_word(node, "mode", 2, modes);
  read_axes(node, &r);
  if (node->since >= 9) {
    read_scales(node, hr__onnx_input(node, 1), &r);
  } else {
    r.has_scales = hr__onnx_reals(node, "scales", HR_RANK_MAX, r.scales) == r.rank;
  }
  if (!hr__onnx_failed(node) && r.has_scales) {
    interpolate(node, &r, mode, ASYMMETRIC, FLOOR);
  }
}
