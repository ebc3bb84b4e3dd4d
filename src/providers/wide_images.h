/* wide_images.h: what convolutions that are written for wide vectors share: images of float32 and the windows over
 * them, as operands lie. */
#ifndef HEADRACE_PROVIDERS_WIDE_IMAGES_H_
#define HEADRACE_PROVIDERS_WIDE_IMAGES_H_

#include "core/ir/program.h"

/* [images, channels, height, width]; offset and strides in elements. */
typedef struct hr__images {
  int64_t offset, image_stride, channel_stride, row_stride, column_stride;
  int64_t channels, height, width;
} hr__images;

hr__images hr__images_of(const hr_operand *x);

/* Weights of a convolution, as its sums read them. Its gradient of data is a convolution of dy with the weights turned
 * by half a circle, their channels exchanged: they are read backwards, from their last row and column. */
typedef struct hr__windows {
  int64_t offset; /* of the first element read, in elements, as the strides */
  int64_t out_stride, in_stride, row_stride, column_stride;
  int64_t kernel[2], padding[2];
} hr__windows;

/* Of a CONV or CONV_BACKWARD_DATA of two spatial dims, with steps and dilations of one. */
hr__windows hr__windows_of(const hr_node *node);

/* Whether a convolution, or a gradient of one, has two spatial dims, dilations of one and one group, and all it works
 * on is float32, of some elements. A bias is not looked at. */
bool hr__images_are_taken(const hr_node *node);
/* Whether it is a convolution or a gradient of data, the above holds, and its steps are one. */
bool hr__windows_are_taken(const hr_node *node);

#endif
