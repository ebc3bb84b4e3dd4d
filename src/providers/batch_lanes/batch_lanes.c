/* batch_lanes.c: batch-lane convolutions: the lanes of vectors are images.
 *
 * Libraries put channels into lanes, and 20 channels cost as much as 32. Here a lane is an image: 64 images are four
 * vectors, and the cost grows with each single channel. An input row of 64 images, [W][C], is transposed to [W][C][64]
 * on its way into a ring. The ring has as many rows as the window and stays in the L2 cache; an output row is
 * transposed back. A window at one position computes 4 to 6 output channels: four sums each in registers, to which each
 * element adds its products.
 *
 *   for each 64 images, for each output row:
 *     transpose the new input rows into the ring
 *     make the output row [OW][OC][64] (below), transpose it back
 *
 *   for each 4 to 6 output channels, for each position:
 *     for each row, column and input channel of the window:
 *       sums[o][64] += weights[o] * x[64]
 *
 * 5 x 5 windows are computed in tiles of 2 x 2 results with half of the multiplications (tiles.c), 32 images at a time,
 * unless the image is so small that most of a window is outside of it.
 *
 * Elements outside of the image are skipped, not multiplied by zero: an infinite weight at the border does no harm, as
 * in oneDNN. The gradient of data is a convolution of dy with the weights rotated by 180 degrees and their channels
 * exchanged.
 *
 * Every sum has one order, independent of threads, operand layouts and the other images; a bias is added last. Supports
 * float32, steps and dilations of one, one group, on processors with vectors of 16 floats. Other convolutions, and
 * those that the next provider runs as fast (pays), are left to it.
 */
#include "providers/batch_lanes/batch_lanes.h"

#include "base/allocator.h"
#include "base/integer.h"
#include "base/thread.h"
#include "providers/provider.h"

static hr_status open_provider(void) {
  return hr__wide_vectors_check("batch-lanes");
}

#if defined(HR_WIDE_VECTORS)
enum { VECTOR = HR__WIDE, VECTORS = 4, LANES = VECTOR * VECTORS, OUTS_MIN = 4, OUTS_MAX = 6 };

struct hr_prepared {
  hr__images x, y; /* input and output of the sums; dy and dx for gradients of data */
  hr__lane_row x_row, y_row;
  hr__windows w;
  int64_t images;
  int64_t bias_offset, bias_stride;
  bool has_bias;
  int outs;                            /* output channels made at a time */
  bool has_tiles;                      /* of fewer multiplications */
  int64_t lanes, ring_rows, unit_rows; /* output rows that are made together */
  int64_t slots, slot_floats, weight_floats;
  int y_arg;
};

typedef struct call {
  const hr_prepared *p;
  const float *x, *w, *bias;
  float *y, *weights, *slots;
} call;

/* ---- sums ---- */

/* The part of the window inside of the image. */
typedef struct window {
  int64_t row_begin, row_end, column_begin, column_end; /* of the kernel */
  int64_t top, left;                                    /* of the image, at the kernel's element 0, 0 */
} window;

/* `outs` channels at one position. weights: [kernel rows][columns][input channels][outs]. */
WIDE_INLINE void sum_window(const hr_prepared *p, const window *at, const float *ring, const float *weights,
                            const float *bias, float *y, int64_t y_count, int outs) {
  __m512 sums[OUTS_MAX][VECTORS];
  for (int o = 0; o < outs; ++o) {
    for (int v = 0; v < VECTORS; ++v) {
      sums[o][v] = _mm512_setzero_ps();
    }
  }
  int64_t channels = p->x.channels, steps = (at->column_end - at->column_begin) * channels;
  for (int64_t row = at->row_begin; row < at->row_end; ++row) {
    const float *x =
        ring + ((at->top + row) % p->w.kernel[0] * p->x.width + at->left + at->column_begin) * channels * LANES;
    const float *w = weights + (row * p->w.kernel[1] + at->column_begin) * channels * outs;
    for (int64_t i = 0; i < steps; ++i, x += LANES, w += outs) {
      __m512 xs[VECTORS];
      for (int v = 0; v < VECTORS; ++v) {
        xs[v] = _mm512_load_ps(x + v * VECTOR);
      }
      for (int o = 0; o < outs; ++o) {
        __m512 factor = _mm512_set1_ps(w[o]);
        for (int v = 0; v < VECTORS; ++v) {
          sums[o][v] = _mm512_fmadd_ps(factor, xs[v], sums[o][v]);
        }
      }
    }
  }
  for (int o = 0; o < outs; ++o) {
    __m512 last = _mm512_set1_ps(bias[o]);
    for (int v = 0; o < y_count && v < VECTORS; ++v) {
      _mm512_store_ps(y + o * LANES + v * VECTOR, p->has_bias ? _mm512_add_ps(sums[o][v], last) : sums[o][v]);
    }
  }
}

/* An output row [width][channels][LANES]. The biases follow the packed weights. */
WIDE_INLINE void sum_row_of(const hr_prepared *p, int64_t row, const float *ring, const float *weights, float *y,
                            int outs) {
  window at = {.top = row - p->w.padding[0]};
  at.row_begin = hr_max(0, -at.top), at.row_end = hr_min(p->w.kernel[0], p->x.height - at.top);
  int64_t out_floats = p->w.kernel[0] * p->w.kernel[1] * p->x.channels;
  const float *bias = weights + hr_round_up(p->y.channels, outs) * out_floats;
  for (int64_t o = 0; o < p->y.channels; o += outs) {
    for (int64_t column = 0; column < p->y.width; ++column) {
      at.left = column - p->w.padding[1];
      at.column_begin = hr_max(0, -at.left), at.column_end = hr_min(p->w.kernel[1], p->x.width - at.left);
      sum_window(p, &at, ring, weights + o * out_floats, bias + o, y + (column * p->y.channels + o) * LANES,
                 p->y.channels - o, outs);
    }
  }
}

WIDE static void sum_row(const hr_prepared *p, int64_t row, const float *ring, const float *weights, float *y) {
  if (p->outs == OUTS_MIN) {
    sum_row_of(p, row, ring, weights, y, OUTS_MIN);
  } else if (p->outs == OUTS_MAX) {
    sum_row_of(p, row, ring, weights, y, OUTS_MAX);
  } else {
    sum_row_of(p, row, ring, weights, y, OUTS_MIN + 1);
  }
}

static int64_t row_floats(const hr_prepared *p, const hr__images *x) {
  return x->width * x->channels * p->lanes;
}

static hr__lane_tiles tiles_of(const hr_prepared *p, const float *weights) {
  return (hr__lane_tiles){p->x, p->y, p->w, weights, p->outs};
}

/* The output rows of a unit, from `row` on: row after row [width][channels][lanes]. */
static void make_rows(const call *c, int64_t row, const float *ring, float *y) {
  const hr_prepared *p = c->p;
  if (p->has_tiles) {
    hr__lane_tiles tiles = tiles_of(p, c->w);
    const float *bias = p->has_bias ? c->weights + hr__lane_tiles_weight_floats(&tiles) : NULL;
    hr__lane_tiles_run(&tiles, row, ring, c->weights, bias, y + p->unit_rows * row_floats(p, &p->y), y);
  } else {
    sum_row(p, row, ring, c->weights, y);
  }
}

/* Input rows stay in the ring from one unit of output rows to the next. */
static void run_slots(void *arg, int64_t begin, int64_t end, int worker) {
  (void)worker;
  const call *c = arg;
  const hr_prepared *p = c->p;
  int64_t in_image = hr_divide_up(p->y.height, p->unit_rows), units = hr_divide_up(p->images, p->lanes) * in_image;
  for (int64_t slot = begin; slot < end; ++slot) {
    float *ring = c->slots + slot * p->slot_floats, *y = ring + p->ring_rows * row_floats(p, &p->x);
    int64_t first = units * slot / p->slots, last = units * (slot + 1) / p->slots, next = 0;
    for (int64_t unit = first; unit < last; ++unit) {
      int64_t image = unit / in_image * p->lanes, row = unit % in_image * p->unit_rows;
      int64_t images = hr_min(p->images - image, p->lanes), top = row - p->w.padding[0];
      next = hr_max(unit == first || row == 0 ? 0 : next, top);
      for (; next < hr_min(p->x.height, top + p->ring_rows); ++next) {
        hr__lane_row_load(&p->x, &p->x_row, c->x + image * p->x.image_stride + next * p->x.row_stride, images, p->lanes,
                          ring + next % p->ring_rows * row_floats(p, &p->x));
      }
      make_rows(c, row, ring, y);
      for (int64_t i = 0; i < hr_min(p->unit_rows, p->y.height - row); ++i) {
        hr__lane_row_store(&p->y, &p->y_row, y + i * row_floats(p, &p->y), images,
                           c->y + image * p->y.image_stride + (row + i) * p->y.row_stride);
      }
    }
  }
}

static float bias_of(const call *c, int64_t out) {
  return c->p->has_bias && out < c->p->y.channels ? c->bias[out * c->p->bias_stride] : 0;
}

/* Transformed weights of groups of channels; the biases follow them. */
static void transform_groups(void *arg, int64_t begin, int64_t end, int worker) {
  (void)worker;
  const call *c = arg;
  const hr__lane_tiles tiles = tiles_of(c->p, c->w);
  float *bias = c->weights + hr__lane_tiles_weight_floats(&tiles);
  hr__lane_tiles_transform(&tiles, begin, end, c->weights);
  for (int64_t out = begin * tiles.outs; out < end * tiles.outs; ++out) {
    bias[out] = bias_of(c, out);
  }
}

/* Groups of outs channels: [group][kernel rows][columns][input channels][outs], padded with zeros; biases alike. */
static void pack_groups(void *arg, int64_t begin, int64_t end, int worker) {
  (void)worker;
  const call *c = arg;
  const hr_prepared *p = c->p;
  int64_t group_floats = p->w.kernel[0] * p->w.kernel[1] * p->x.channels * p->outs;
  float *bias = c->weights + hr_divide_up(p->y.channels, p->outs) * group_floats;
  for (int64_t out = begin * p->outs; out < end * p->outs; ++out) {
    float *to = c->weights + out / p->outs * group_floats + out % p->outs;
    bool is_there = out < p->y.channels;
    const float *w = c->w + (is_there ? out * p->w.out_stride : 0);
    bias[out] = bias_of(c, out);
    for (int64_t row = 0; row < p->w.kernel[0]; ++row) {
      for (int64_t column = 0; column < p->w.kernel[1]; ++column) {
        for (int64_t in = 0; in < p->x.channels; ++in, to += p->outs) {
          *to = is_there ? w[in * p->w.in_stride + row * p->w.row_stride + column * p->w.column_stride] : 0;
        }
      }
    }
  }
}

static hr_status run(hr_prepared *p, void *const *args, void *workspace, void *queue) {
  (void)queue;
  call c = {.p = p,
            .x = (const float *)args[0] + p->x.offset,
            .w = (const float *)args[1] + p->w.offset,
            .bias = p->has_bias ? (const float *)args[2] + p->bias_offset : NULL,
            .y = (float *)args[p->y_arg] + p->y.offset,
            .slots = workspace};
  c.weights = c.slots + p->slots * p->slot_floats;
  hr_parallel_for(hr_divide_up(p->y.channels, p->outs), 4, p->has_tiles ? transform_groups : pack_groups, &c);
  hr_parallel_for(p->slots, 1, run_slots, &c);
  return HR_OK;
}

/* ---- preparing ---- */

/* The number of output channels at a time that costs the fewest cycles: two for each channel, and about two more. */
static int choose_outs(int64_t channels) {
  int best = OUTS_MAX;
  for (int outs = OUTS_MAX; outs >= OUTS_MIN; --outs) {
    if (hr_divide_up(channels, outs) * (outs + 1) < hr_divide_up(channels, best) * (best + 1)) {
      best = outs;
    }
  }
  return best;
}

int64_t hr__lane_count_inside(int64_t positions, int64_t kernel, int64_t padding, int64_t size) {
  int64_t count = 0;
  for (int64_t i = 0; i < positions; ++i) {
    count += hr_max(0, hr_min(kernel, size + padding - i) - hr_max(0, padding - i));
  }
  return count;
}

/* Cycles of 64 images, besides transposition. */
static int64_t direct_cycles(const hr_prepared *p, int outs) {
  int64_t rows = hr__lane_count_inside(p->y.height, p->w.kernel[0], p->w.padding[0], p->x.height);
  int64_t columns = hr__lane_count_inside(p->y.width, p->w.kernel[1], p->w.padding[1], p->x.width);
  return rows * columns * p->x.channels * hr_round_up(p->y.channels, outs) * 21 / 10;
}

static int64_t tile_cycles(const hr_prepared *p, int outs) {
  enum { TAKE = 400, GIVE = 280 }; /* of a channel of a tile */
  int64_t tiles = hr_divide_up(p->y.height, HR__LANE_TILE) * hr_divide_up(p->y.width, HR__LANE_TILE);
  int64_t products = HR__LANE_POINTS * p->x.channels * hr_round_up(p->y.channels, outs) * 22 / 10;
  return tiles * (products + TAKE * p->x.channels + GIVE * p->y.channels);
}

/* Sets the sizes of a slot's memory. */
static void set_sizes(hr_prepared *p, bool has_tiles) {
  p->has_tiles = has_tiles;
  p->outs = has_tiles ? hr__lane_tiles_outs(p->y.channels) : choose_outs(p->y.channels);
  p->lanes = has_tiles ? HR__LANE_TILE_LANES : LANES;
  p->ring_rows = has_tiles ? HR__LANE_SIDE : p->w.kernel[0];
  p->unit_rows = has_tiles ? HR__LANE_TILE : 1;
  p->x_row = hr__lane_row_of(&p->x, p->lanes), p->y_row = hr__lane_row_of(&p->y, p->lanes);
  p->slot_floats = p->ring_rows * row_floats(p, &p->x) + p->unit_rows * row_floats(p, &p->y);
  p->weight_floats = hr_round_up(p->y.channels, p->outs) * (p->w.kernel[0] * p->w.kernel[1] * p->x.channels + 1);
  if (has_tiles) {
    const hr__lane_tiles tiles = tiles_of(p, NULL);
    p->slot_floats += hr__lane_tiles_floats(&tiles);
    p->weight_floats = hr__lane_tiles_weight_floats(&tiles) + hr_round_up(p->y.channels, p->outs);
  }
}

/* Tiles, if a slot leaves room in the L2 cache for weights that pass through. */
static void choose_tiles(hr_prepared *p) {
  enum { SLOT_BYTES_MOST = 988 << 10 }; /* fitted to 12 shapes */
  bool can = p->w.kernel[0] == HR__LANE_TAPS && p->w.kernel[1] == HR__LANE_TAPS;
  set_sizes(p, can);
  bool is_small = p->slot_floats * (int64_t)sizeof(float) <= SLOT_BYTES_MOST;
  if (can && (!is_small || tile_cycles(p, p->outs) >= direct_cycles(p, choose_outs(p->y.channels)))) {
    set_sizes(p, false);
  }
}

static bool has_bias(const hr_node *node) {
  return node->input_count > 2 && node->inputs[2].kind != HR_OPERAND_NONE;
}

static void describe(const hr_node *node, hr_prepared *p) {
  p->x = hr__images_of(&node->inputs[0]), p->y = hr__images_of(&node->outputs[0]), p->w = hr__windows_of(node);
  p->images = node->inputs[0].dims[0];
  p->has_bias = has_bias(node);
  if (p->has_bias) {
    p->bias_offset = node->inputs[2].offset, p->bias_stride = node->inputs[2].strides[0];
  }
  p->y_arg = node->input_count;
  choose_tiles(p);
}

static hr_status prepare(const hr_program *program, const hr_node *node, int algorithm, void *queue,
                         hr_prepared **out_prepared, size_t *out_workspace_bytes) {
  (void)program, (void)algorithm, (void)queue;
  hr_prepared *p = hr_calloc(1, sizeof *p);
  if (p == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "conv: no memory for a prepared convolution");
  }
  describe(node, p);
  int64_t units = hr_divide_up(p->images, p->lanes) * hr_divide_up(p->y.height, p->unit_rows);
  p->slots = hr_min(units, hr_thread_count());
  *out_workspace_bytes = (size_t)(p->slots * p->slot_floats + p->weight_floats) * sizeof(float);
  *out_prepared = p;
  return HR_OK;
}

/* True if the ring fits the L2 cache and 64 images take 8 % fewer cycles than with oneDNN's channels-last kernels.
 * Those make output channels in sixteens and spend as much at the left and right border as elsewhere, but need no
 * transposition. The constants were fitted to 40 shapes: no accepted one was slower. */
static bool pays(const hr_prepared *p) {
  enum { TURN = 65, TOUCH = 45, SLOT_BYTES_MAX = 9 << 17 }; /* cycles for 64 elements; 1.1 MB */
  const hr__images *x = &p->x, *y = &p->y;
  if (p->slot_floats * (int64_t)sizeof(float) > SLOT_BYTES_MAX) {
    return false;
  }
  int64_t rows = hr__lane_count_inside(y->height, p->w.kernel[0], p->w.padding[0], x->height);
  int64_t elements = x->height * x->width * x->channels + y->height * y->width * y->channels;
  int64_t channels = hr_round_up(y->channels, VECTOR);
  int64_t own = (p->has_tiles ? tile_cycles(p, p->outs) : direct_cycles(p, p->outs)) + TURN * elements;
  int64_t library = rows * p->w.kernel[1] * y->width * x->channels * channels * 2 + TOUCH * elements;
  int64_t own_images = hr_round_up(p->images, p->lanes);
  return (double)own * (double)own_images <= 0.92 * (double)library * (double)p->images;
}

static bool supports(const hr_program *program, const hr_node *node) {
  (void)program;
  if (!hr__windows_are_supported(node) || node->epilogue_count > 0) {
    return false;
  }
  const hr_operand *bias = has_bias(node) ? &node->inputs[2] : NULL;
  if (bias != NULL && (bias->kind != HR_OPERAND_VALUE || bias->dtype != HR_DTYPE_F32 || bias->rank != 1)) {
    return false;
  }
  hr_prepared p = {0};
  describe(node, &p);
  return pays(&p);
}

static bool needs_team(const hr_prepared *p) {
  return p->slots > 1;
}

static size_t footprint(const hr_prepared *p) {
  return sizeof *p;
}

const hr_provider HR_CPU_NAME(hr__batch_lanes_provider) = {
    .name = "batch-lanes",
    .is_apart = true,
    .open = open_provider,
    .runs = hr__provider_runs_windows,
    .supports = supports,
    .prepare = prepare,
    .needs_team = needs_team,
    .run = run,
    .footprint = footprint,
    .release = hr__provider_release,
};

#else

const hr_provider HR_CPU_NAME(hr__batch_lanes_provider) = {.name = "batch-lanes", .open = open_provider};

#endif
