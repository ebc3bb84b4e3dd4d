/* shape.c: the numbers of a convolution's node, and its sums along each dim. */
#include "providers/direct/direct.h"

#include "base/integer.h"

enum { DIMS = HR__DIRECT_DIMS };
/* Up to FEW_WEIGHTS for each output row the weights stay in the first cache. */
enum { FEW_WEIGHTS = 10240, WEIGHTS_MAX = 80 << 10, WEIGHTS_OF_ROW = 40 << 10 };
static const int64_t FLOPS_MAX = 250000000, FLOPS_MAX_OF_MANY = 70000000, FLOPS_OF_ROW = 50000000;
/* A primitive would gain some tens of microseconds at most. */
enum { WEIGHTS_OF_LIGHT = 160 << 10, FLOPS_OF_LIGHT = 20000000 };
/* Of narrow images, which read each weight for many of them; with one vector of outputs, eight pixels of a row fill the
 * inner loop as well. Larger ones were not measured. */
enum { COLUMNS_ACROSS = 8, COLUMNS_OF_ONE = 7, IMAGES_ACROSS = 16, WEIGHTS_ACROSS = 640 << 10 };
static const int64_t FLOPS_ACROSS = 2500000000;

static bool is_taken(const hr_operand *x, int rank) {
  bool is = x->kind == HR_OPERAND_VALUE && x->dtype == HR_DTYPE_F32 && x->rank == rank;
  for (int d = 0; is && d < x->rank; ++d) {
    is = x->dims[d] > 0;
  }
  return is;
}

bool hr__direct_has_shape(const hr_node *node) {
  int spatial = node->int_count > 0 ? (int)node->ints[0] : 0, rank = spatial + 2;
  return spatial >= 1 && spatial <= DIMS && node->ints[1 + 3 * spatial] == 1 && is_taken(&node->inputs[0], rank) &&
         is_taken(&node->inputs[1], rank) && is_taken(&node->outputs[0], rank);
}

static hr__images images_of(const hr_operand *x) {
  if (x->rank == 4) {
    return hr__images_of(x);
  }
  return (hr__images){x->offset, x->strides[0], x->strides[1], 0, x->strides[2], x->dims[1], 1, x->dims[2]};
}

/* The node's numbers: spatial dims, then steps, padding and dilations of each, groups. */
hr__direct_shape hr__direct_shape_of(const hr_node *node) {
  const hr_operand *x = &node->inputs[0], *w = &node->inputs[1], *y = &node->outputs[0];
  int spatial = (int)node->ints[0];
  if (node->op == HR_OP_CONV_BACKWARD_DATA) {
    x = &node->outputs[0], y = &node->inputs[0];
  } else if (node->op == HR_OP_CONV_BACKWARD_WEIGHT) {
    w = &node->outputs[0], y = &node->inputs[1];
  }
  hr__direct_shape shape = {.x = images_of(x), .y = images_of(y), .images = x->dims[0]};
  shape.w_offset = w->offset, shape.w_out = w->strides[0], shape.w_in = w->strides[1];
  for (int d = 0; d < DIMS; ++d) {
    int i = d - (DIMS - spatial); /* of the node's dims */
    shape.kernel[d] = i < 0 ? 1 : w->dims[2 + i], shape.w_tap[d] = i < 0 ? 0 : w->strides[2 + i];
    shape.stride[d] = i < 0 ? 1 : node->ints[1 + i];
    shape.padding[d] = i < 0 ? 0 : node->ints[1 + spatial + i];
    shape.dilation[d] = i < 0 ? 1 : node->ints[1 + 2 * spatial + i];
  }
  return shape;
}

int64_t hr__direct_flops(const hr__direct_shape *s) {
  return 2 * s->images * s->y.height * s->y.width * s->x.channels * s->y.channels * s->kernel[0] * s->kernel[1];
}

bool hr__direct_is_across(const hr__direct_shape *s, bool is_gradient) {
  int64_t columns = is_gradient ? hr_divide_up(s->x.width, s->stride[1]) : s->y.width; /* of a phase */
  bool is_one = (is_gradient ? s->x.channels : s->y.channels) <= HR__WIDE;
  return columns <= (is_one ? COLUMNS_OF_ONE : COLUMNS_ACROSS) && s->images >= IMAGES_ACROSS;
}

static int64_t weights_of(const hr__direct_shape *s) {
  return s->x.channels * s->y.channels * s->kernel[0] * s->kernel[1];
}

static bool is_within(const hr__direct_shape *s, int64_t weights_max, int64_t flops_of_many) {
  int64_t weights = weights_of(s);
  return weights <= weights_max && hr__direct_flops(s) <= (weights <= FEW_WEIGHTS ? FLOPS_MAX : flops_of_many);
}

bool hr__direct_is_small(const hr__direct_shape *s) {
  return is_within(s, WEIGHTS_MAX, FLOPS_MAX_OF_MANY);
}

bool hr__direct_has_small_weights(const hr__direct_shape *s) {
  return s->kernel[0] > 1 ? hr__direct_is_small(s) : is_within(s, WEIGHTS_OF_ROW, FLOPS_OF_ROW);
}

bool hr__direct_is_light(const hr__direct_shape *s) {
  return weights_of(s) <= WEIGHTS_OF_LIGHT && hr__direct_flops(s) <= FLOPS_OF_LIGHT;
}

bool hr__direct_is_small_across(const hr__direct_shape *s, bool is_gradient) {
  return s->kernel[0] * s->kernel[1] > 1 && hr__direct_is_across(s, is_gradient) && weights_of(s) <= WEIGHTS_ACROSS &&
         hr__direct_flops(s) <= FLOPS_ACROSS;
}

/* ---- axes ---- */

hr__direct_axis hr__direct_axis_of(const hr__direct_shape *s, int d) {
  return (hr__direct_axis){.step = 1,
                           .count = d == 0 ? s->y.height : s->y.width,
                           .taps = s->kernel[d],
                           .tap_step = 1,
                           .at = -s->padding[d],
                           .stride = s->stride[d],
                           .dilation = s->dilation[d],
                           .size = d == 0 ? s->x.height : s->x.width};
}

/* The first weight that a phase uses, and how many. */
static int64_t first_tap(const hr__direct_shape *s, int d, int64_t phase) {
  return s->stride[d] == 1 ? 0 : (phase + s->padding[d]) % s->stride[d];
}

static int64_t count_taps(const hr__direct_shape *s, int d, int64_t phase) {
  int64_t first = first_tap(s, d, phase);
  return first < s->kernel[d] ? hr_divide_up(s->kernel[d] - first, s->stride[d]) : 0;
}

hr__direct_axis hr__direct_phase_of(const hr__direct_shape *s, int d, int64_t phase) {
  int64_t count = d == 0 ? s->x.height : s->x.width, stride = s->stride[d];
  hr__direct_axis axis = {.first = phase,
                          .step = stride,
                          .count = phase < count ? hr_divide_up(count - phase, stride) : 0,
                          .taps = count_taps(s, d, phase),
                          .tap_step = -stride,
                          .stride = 1,
                          .dilation = s->dilation[d],
                          .size = d == 0 ? s->y.height : s->y.width};
  for (int64_t i = 0; i < phase; ++i) {
    axis.earlier += count_taps(s, d, i);
  }
  axis.tap = first_tap(s, d, phase) + (axis.taps - 1) * stride; /* taps run backwards */
  if (axis.taps > 0) {
    axis.at = (phase + s->padding[d] - axis.tap * s->dilation[d]) / stride; /* exact: stride or dilation is 1 */
  }
  return axis;
}

hr__direct_range hr__direct_taps(const hr__direct_axis *a, int64_t i, int64_t begin, int64_t end) {
  int64_t at = a->at + i * a->stride;
  begin = hr_max(begin, at < 0 ? hr_divide_up(-at, a->dilation) : 0);
  end = hr_min(end, at < a->size ? hr_divide_up(a->size - at, a->dilation) : 0);
  return (hr__direct_range){begin, hr_max(begin, end)};
}

static bool is_whole(const hr__direct_axis *a, int64_t i, int64_t begin, int64_t end) {
  hr__direct_range taps = hr__direct_taps(a, i, begin, end);
  return taps.end - taps.begin == end - begin;
}

hr__direct_range hr__direct_whole(const hr__direct_axis *a, int64_t first, int64_t last, int64_t begin, int64_t end) {
  while (first < last && !is_whole(a, first, begin, end)) {
    ++first;
  }
  while (first < last && !is_whole(a, last - 1, begin, end)) {
    --last;
  }
  return (hr__direct_range){first, last};
}
