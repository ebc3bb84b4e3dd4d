/* batch_lanes.h: declarations shared by the files of batch-lane convolutions (batch_lanes.c, lane_weights.c). */
#ifndef HEADRACE_PROVIDERS_BATCH_LANES_BATCH_LANES_H_
#define HEADRACE_PROVIDERS_BATCH_LANES_BATCH_LANES_H_

#include "providers/wide_images.h"
#include "providers/wide_vectors.h"

#if defined(HR_WIDE_VECTORS)

/* ---- transposing images into lanes and back (rows.c) ---- */

/* A row of an image in memory, as runs of neighbours; *_step: the distance to the next run in the lane layout. */
typedef struct hr__lane_row {
  int64_t outer, outer_stride, outer_step;
  int64_t inner, inner_stride, inner_step;
  int64_t length, step;
} hr__lane_row;

hr__lane_row hr__lane_row_of(const hr__images *x, int64_t lanes);
/* A row of `images` images, up to `lanes`, to [width][channels][lanes], and back; absent images are zeros. `lanes`: a
 * multiple of 16. */
void hr__lane_row_load(const hr__images *x, const hr__lane_row *row, const float *from, int64_t images, int64_t lanes,
                       float *to);
void hr__lane_row_store(const hr__images *y, const hr__lane_row *row, const float *from, int64_t images, float *to);

/* The number of window elements inside of the image, along one dim, summed over all positions. */
int64_t hr__lane_count_inside(int64_t positions, int64_t kernel, int64_t padding, int64_t size);

/* ---- tiles of 2 x 2 results with fewer multiplications (tiles.c) ---- */

enum {
  HR__LANE_TILE = 2,    /* results, in both dims */
  HR__LANE_SIDE = 6,    /* of the input under them */
  HR__LANE_TAPS = 5,    /* of a window, in both dims */
  HR__LANE_LINE = 7,    /* products that replace the 10 of a line */
  HR__LANE_POINTS = 49, /* of a tile */
  HR__LANE_VECTORS = 2,
  HR__LANE_TILE_LANES = HR__LANE_VECTORS * HR__WIDE
};

/* A convolution of 5 x 5 windows, whose images are lanes. */
typedef struct hr__lane_tiles {
  hr__images x, y;
  hr__windows w;
  const float *weights; /* as given */
  int outs;             /* output channels whose products are made together; see hr__lane_tiles_outs */
} hr__lane_tiles;

/* The number of output channels at a time that wastes least. */
int hr__lane_tiles_outs(int64_t channels);
/* Floats of the transformed weights, and of the memory for one row of tiles. */
int64_t hr__lane_tiles_weight_floats(const hr__lane_tiles *t);
int64_t hr__lane_tiles_floats(const hr__lane_tiles *t);
/* Transforms groups [begin, end) of output channels: [group][point][in][outs]. */
void hr__lane_tiles_transform(const hr__lane_tiles *t, int64_t begin, int64_t end, float *u);
/* Two output rows from `row` on, [2][width][channels][lanes].
 * ring: input rows [SIDE][width][channels][lanes], row r at r % SIDE; bias: NULL, or one for each channel. */
void hr__lane_tiles_run(const hr__lane_tiles *t, int64_t row, const float *ring, const float *u, const float *bias,
                        float *memory, float *y);

/* ---- products of two operands in lanes (lane_products.c) ---- */

enum {
  HR__LANE_OUTS_MIN = 4, /* channels of a block */
  HR__LANE_OUTS_MOST = 6,
  HR__LANE_INS_MOST = 5,
  HR__LANE_SUMS_MOST = 25, /* in registers */
  HR__LANE_PITCH = 2 * HR__WIDE
};

/* The positions of a sum: rows of x [columns][channels][16], x_column floats apart, and dense ones of y. */
typedef struct hr__lane_positions {
  const float *x, *y;
  int64_t rows, columns, x_row, y_row, x_column;
} hr__lane_positions;

/* sums[PITCH]: [outs][ins] of y * x, over positions and lanes; at most SUMS_MOST. */
void hr__lane_multiply(const hr__lane_positions *at, int outs, int ins, float *sums);

/* ---- tiles of gradients of weights (lane_weight_tiles.c) ---- */

enum { HR__LANE_GRADIENTS = 4 /* combinations of a tile's two gradients, in one dim */ };

/* Tiles of 2 x 2 gradients over one block of channels, of 16 images in lanes. Operands: [row][column][channels][16]. */
typedef struct hr__weight_tiles {
  int64_t rows, columns;   /* tiles */
  int64_t x_rows, x_width; /* of the operands */
  int64_t y_rows, y_width;
  int64_t top, left;        /* x's row at the first tile's top; columns of padding before x */
  int64_t ins, outs;        /* channels of a block */
  int64_t v_point, q_point; /* floats from one result below to the next */
} hr__weight_tiles;

int64_t hr__weight_tiles_line_floats(const hr__weight_tiles *t);
/* v[7 columns' points][tile][ins][16], of row `point` of the points. line: memory. */
void hr__weight_tiles_inputs(const hr__weight_tiles *t, int point, const float *x, float *line, float *v);
/* The combination of gradients that belongs to a point, in one dim. */
int hr__weight_tiles_gradient(int point);
/* q[4 combinations of columns][tile][outs][16], of a combination of rows. */
void hr__weight_tiles_gradients(const hr__weight_tiles *t, int gradient, const float *y, float *line, float *q);
/* The weights of the sums m[49], `step` apart; false: some are not finite. */
bool hr__weight_tiles_give(const float *m, int64_t step, float weights[HR__LANE_TAPS * HR__LANE_TAPS]);

#endif

#endif
