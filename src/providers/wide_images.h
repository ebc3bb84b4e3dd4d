/* wide_images.h: helpers shared by convolutions that are written for wide vectors: images of float32 and the windows
 * over them, in their operands' layouts. */
#ifndef HEADRACE_PROVIDERS_WIDE_IMAGES_H_
#define HEADRACE_PROVIDERS_WIDE_IMAGES_H_

#include "core/ir/program.h"

/* [images, channels, height, width]; offset and strides in elements. */
typedef struct hr__images {
  int64_t offset, image_stride, channel_stride, row_stride, column_stride;
  int64_t channels, height, width;
} hr__images;

hr__images hr__images_of(const hr_operand *x);

/* Weights of a convolution, in the order of its sums. Its gradient of data is a convolution of dy with the weights
 * rotated by 180 degrees and their channels exchanged: they are read backwards, from their last row and column. */
typedef struct hr__windows {
  int64_t offset; /* of the first element read, in elements, as the strides */
  int64_t out_stride, in_stride, row_stride, column_stride;
  int64_t kernel[2], padding[2];
} hr__windows;

/* Of a CONV or CONV_BACKWARD_DATA of two spatial dims, with steps and dilations of one. */
hr__windows hr__windows_of(const hr_node *node);

/* True if a convolution, or a gradient of one, has two spatial dims, dilations of one and one group, and operands that
 * are float32 and not empty. A bias is not checked. */
bool hr__images_are_supported(const hr_node *node);
/* True if it is a convolution or a gradient of data, the above holds, and its strides are one. */
bool hr__windows_are_supported(const hr_node *node);

/* True if the node's only result is stored as it is, or multiplied by a number before. *out_arg: the number's place in
 * the arguments of a run; -1: there is none. */
bool hr__scale_find(const hr_node *node, int *out_arg);
/* The number, or 1. */
float hr__scale_of(void *const *args, int arg);

/* ---- layouts, on processors with vectors of 16 floats (wide_pack.c) ---- */

bool hr__images_are_channels_last(const hr__images *x);
/* The same images, dense and channels-last. */
hr__images hr__images_packed(const hr__images *x);
/* Floats of the packed images, in whole vectors; 0 if they are channels-last. */
int64_t hr__images_packed_floats(const hr__images *x, int64_t images);
/* `x` gives the other layout, from the first element on. */
void hr__images_pack(const hr__images *x, int64_t images, const float *from, float *to);
void hr__images_unpack(const hr__images *x, int64_t images, const float *from, float *to);

#endif
