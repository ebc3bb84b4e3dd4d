/* winograd.h: declarations shared by the files of the Winograd provider (winograd.c). */
#ifndef HEADRACE_PROVIDERS_WINOGRAD_WINOGRAD_H_
#define HEADRACE_PROVIDERS_WINOGRAD_WINOGRAD_H_

#include "core/ir/program.h"
#include "providers/wide_images.h"
#include "providers/wide_vectors.h"

enum {
  HR__WINOGRAD_TAPS = 3,    /* of a window, in both dims */
  HR__WINOGRAD_RESULTS = 2, /* of a tile, in both dims */
  HR__WINOGRAD_SIDE = 4,    /* of the input under a tile's results */
  HR__WINOGRAD_POINTS = 16, /* products that replace those of a tile */
  HR__WINOGRAD_VECTORS = 4, /* of output channels that are computed together: a panel */
  HR__WINOGRAD_PANEL = HR__WINOGRAD_VECTORS * 16
};

/* ---- products ---- */

/* m[tile][n] = sum over k of v[tile][k] u[k][n], n of `vectors` vectors. Each sum is in the order of k, from 0 or from
 * m's old value. */
typedef struct hr__winograd_product {
  const float *v, *u;
  float *m;
  int64_t v_step, m_step; /* from tile to tile */
  int64_t v_next;         /* from k to k */
  int64_t depth, tiles;
  int vectors;
  bool adds;         /* m has a value already */
  const char *ahead; /* memory that is needed next: prefetched */
  int64_t ahead_bytes;
} hr__winograd_product;

void hr__winograd_multiply(const hr__winograd_product *product);

/* ---- layouts ---- */

/* The addresses of the pixels of a square in an image, of zeros for those outside of it. */
static inline void hr__winograd_find_pixels(const hr__images *x, const float *image, const float *zeros, int64_t top,
                                            int64_t left, int side, const float **out_pixels) {
  for (int i = 0; i < side * side; ++i) {
    int64_t row = top + i / side, column = left + i % side;
    bool is_inside = row >= 0 && row < x->height && column >= 0 && column < x->width;
    out_pixels[i] = is_inside ? image + row * x->row_stride + column * x->column_stride : zeros;
  }
}

/* ---- transforms ---- */

/* A tile's input, 4 x 4 pixels of channels that are neighbours, to v[point][channel]. */
void hr__winograd_transform_input(const float *const pixels[HR__WINOGRAD_POINTS], int64_t channels, float *v,
                                  int64_t point_step);

/* A weight [out][in][3][3], read with these strides. */
typedef struct hr__winograd_weight {
  const float *w;
  int64_t out_stride, in_stride, row_stride, column_stride;
  int64_t ins;
} hr__winograd_weight;

/* `outs` output channels (padded with zeros to whole vectors) from `out` on, all input channels, to
 * u[point][in][width]. point_step: floats from point to point. */
void hr__winograd_transform(const hr__winograd_weight *weight, int64_t out, int64_t outs, float *u, int64_t width,
                            int64_t point_step);

/* ---- gradients of weights ---- */

/* Transforms a tile's 2 x 2 gradients of contiguous channels to q[point][channel]. */
void hr__winograd_transform_gradients(const float *const pixels[HR__WINOGRAD_RESULTS * HR__WINOGRAD_RESULTS],
                                      int64_t channels, float *q, int64_t point_step);
#if defined(HR_WIDE_VECTORS)
/* Transforms sums over tiles of q v, 16 input channels of one output channel, m[point][channel], to the window's taps;
 * true if `channels` of them are finite. */
bool hr__winograd_give_taps(const float *m, int64_t point_step, int64_t channels,
                            __m512 taps[HR__WINOGRAD_TAPS * HR__WINOGRAD_TAPS]);
#endif

/* ---- the end of a sum ---- */

enum { HR__WINOGRAD_EPILOGUES = HR_EPILOGUES_MAX + 1, HR__WINOGRAD_OPERANDS = 3 };

/* A number, or one for each of `count` channels. */
typedef struct hr__winograd_operand {
  int input; /* of the node; HR_EPILOGUE_VALUE: the value so far, or none */
  bool is_number;
  int64_t offset, stride, count;
} hr__winograd_operand;

/* Rows on results; the bias is the first one. */
typedef struct hr__winograd_epilogues {
  int count;
  struct {
    hr_op op;
    hr__winograd_operand operands[HR__WINOGRAD_OPERANDS];
  } of[HR__WINOGRAD_EPILOGUES];
} hr__winograd_epilogues;

/* False if a row is not supported, or an operand is neither a number nor a vector. */
bool hr__winograd_epilogues_init(const hr_node *node, hr__winograd_epilogues *out_epilogues);

/* A run's numbers, each repeated for all channels. */
typedef struct hr__winograd_numbers {
  const float *of[HR__WINOGRAD_EPILOGUES][HR__WINOGRAD_OPERANDS]; /* NULL: the value so far */
} hr__winograd_numbers;

/* Of `channels` channels, a multiple of 16; `memory`: hr__winograd_epilogues_floats of them. */
int64_t hr__winograd_epilogues_floats(const hr__winograd_epilogues *epilogues, int64_t channels);
void hr__winograd_epilogues_bind(const hr__winograd_epilogues *epilogues, void *const *args, int64_t channels,
                                 float *memory, hr__winograd_numbers *out_numbers);

/* The destination of results: pixels of 2 x 2, NULL outside of the image, and the number of channels. */
typedef struct hr__winograd_place {
  float *y[HR__WINOGRAD_RESULTS * HR__WINOGRAD_RESULTS];
  int64_t channel, channels; /* the first one's number; channels of the panel that there are */
  /* Computes a sum that is not finite again, directly: for pixel `pixel` of the tile. */
  float (*again)(const void *ctx, int pixel, int64_t channel);
  const void *ctx;
} hr__winograd_place;

/* Transforms a tile's m[point][channel] to its results and applies the rows. */
void hr__winograd_give(const float *m, int64_t point_step, const hr__winograd_epilogues *epilogues,
                       const hr__winograd_numbers *numbers, const hr__winograd_place *place);

#endif
