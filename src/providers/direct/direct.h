/* direct.h: declarations shared by the files of direct convolutions (direct.c), their gradients (weights.c), and
 * batched products (batched_products.c). */
#ifndef HEADRACE_PROVIDERS_DIRECT_DIRECT_H_
#define HEADRACE_PROVIDERS_DIRECT_DIRECT_H_

#include "core/ir/program.h"
#include "providers/wide_images.h"
#include "providers/wide_product.h"
#include "providers/wide_vectors.h"

enum { HR__DIRECT_DIMS = 2 };

/* ---- shapes ---- */

/* A convolution's numbers; x and y: input and output of the convolution. One spatial dim is the columns. */
typedef struct hr__direct_shape {
  hr__images x, y;
  int64_t images, kernel[HR__DIRECT_DIMS], stride[HR__DIRECT_DIMS], padding[HR__DIRECT_DIMS], dilation[HR__DIRECT_DIMS];
  int64_t w_offset, w_out, w_in, w_tap[HR__DIRECT_DIMS];
} hr__direct_shape;

/* True if a convolution or a gradient of one has one or two spatial dims, one group, and operands that are float32 and
 * not empty. A bias is not checked. */
bool hr__direct_has_shape(const hr_node *node);
hr__direct_shape hr__direct_shape_of(const hr_node *node);
int64_t hr__direct_flops(const hr__direct_shape *shape);
/* True if pixels at one place of many images are summed together: rows of an image are short. */
bool hr__direct_is_across(const hr__direct_shape *shape, bool is_gradient);
/* True if it is as fast as a primitive: large ones, and those with many weights, should be blocked for caches. */
bool hr__direct_is_small(const hr__direct_shape *shape);
/* The same of the gradient of the weights: with windows of one row a primitive is up to a quarter faster. */
bool hr__direct_has_small_weights(const hr__direct_shape *shape);
/* The same if pixels of many images are summed together. */
bool hr__direct_is_small_across(const hr__direct_shape *shape, bool is_gradient);
/* True if a primitive is not worth its code: 6 MB for the first one of a process. */
bool hr__direct_is_light(const hr__direct_shape *shape);

/* Numbers i of a sum's results along one dim, which are at first + i * step of the output: sums over taps t of the
 * input at `at` + i * stride + t * dilation and the weights at tap + t * tap_step. */
typedef struct hr__direct_axis {
  int64_t first, step, count; /* of the output */
  int64_t taps, tap, tap_step;
  int64_t at, stride, dilation;
  int64_t size;    /* of the input */
  int64_t earlier; /* taps of earlier phases */
} hr__direct_axis;

/* Of a convolution, along dim d. */
hr__direct_axis hr__direct_axis_of(const hr__direct_shape *shape, int d);
/* Of its gradient of data: of each `stride` results, number `phase`. */
hr__direct_axis hr__direct_phase_of(const hr__direct_shape *shape, int d, int64_t phase);

typedef struct hr__direct_range {
  int64_t begin, end;
} hr__direct_range;

/* Of taps [begin, end), those of result number i that are inside of the input. */
hr__direct_range hr__direct_taps(const hr__direct_axis *axis, int64_t i, int64_t begin, int64_t end);
/* The numbers in [first, last), which are neighbours, that have all taps of [begin, end). */
hr__direct_range hr__direct_whole(const hr__direct_axis *axis, int64_t first, int64_t last, int64_t begin, int64_t end);

/* ---- the end of a sum ---- */

enum { HR__DIRECT_EPILOGUES = HR_EPILOGUES_MAX + 1, HR__DIRECT_OPERANDS = 2 };

/* An operand of a row, beside the value so far: a number, a vector along the channels, or a tensor like the output. */
typedef struct hr__direct_operand {
  int arg;
  bool is_number, is_vector;
  int64_t offset, channels; /* of a vector */
  int64_t image, channel, row, column;
} hr__direct_operand;

typedef struct hr__direct_epilogue {
  hr_op op;
  int count;
  hr__direct_operand operands[HR__DIRECT_OPERANDS];
} hr__direct_epilogue;

typedef struct hr__direct_epilogues {
  int count;
  hr__direct_epilogue of[HR__DIRECT_EPILOGUES]; /* the bias is the first one */
} hr__direct_epilogues;

/* False: a row or an operand is not supported. */
bool hr__direct_epilogues_init(const hr_node *node, hr__direct_epilogues *out_epilogues);

/* A run's operands: numbers and vectors are repeated or copied for all channels. */
typedef struct hr__direct_numbers {
  const float *of[HR__DIRECT_EPILOGUES][HR__DIRECT_OPERANDS];
} hr__direct_numbers;

/* For `channels` channels, a multiple of 16. */
int64_t hr__direct_epilogues_floats(const hr__direct_epilogues *epilogues, int64_t channels);
void hr__direct_epilogues_bind(const hr__direct_epilogues *epilogues, void *const *args, int64_t channels,
                               float *memory, hr__direct_numbers *out_numbers);

/* Evenly spaced pixels of an image, or of images: where their results belong, and which ones they are. */
typedef struct hr__direct_pixels {
  float *y; /* the first channel of the panel */
  int64_t y_step, count;
  int64_t image, row, column; /* the first one's */
  int64_t image_step, row_step, column_step;
  int64_t channel, channels; /* of the panel */
} hr__direct_pixels;

/* The addend of the product: the first row, if it adds a number or a vector; NULL: there is none. */
const float *hr__direct_addend(const hr__direct_epilogues *epilogues, const hr__direct_numbers *numbers);
/* Applies the rows from number `first` on, at least one, to sums m[pixel][`width`], which change, and stores the
 * results. */
void hr__direct_finish(const hr__direct_epilogues *epilogues, const hr__direct_numbers *numbers, int first, float *m,
                       int64_t width, const hr__direct_pixels *pixels);

#endif
