/* lane_weights.c: gradients of the weights of batch-lane convolutions: the lanes of vectors are images.
 *
 * Libraries put channels into lanes, and 20 channels cost as much as 32. Here both operands are transposed into lanes
 * of 16 images, [block][row][column][4 to 6 channels][16]. The products of a block of output channels and one of input
 * channels are 20 to 25 sums in registers, whose lanes are added at the end:
 *
 *   for each unit, some output channels, input channels and rows of the window (a thread's):
 *     for each 16 images, for each chunk of rows, both of which stay in the L2 cache:
 *       transpose x, then dy
 *       for each block of outputs, block of inputs, and some rows that stay in the L1 cache:
 *         for each element of the window:
 *           sums[out][in][16] = over positions, dy[out][16] * x[in][16]
 *           dw[out][in] += over lanes, sums
 *
 * With one input channel, a row of the window takes the place of the input channels. 5 x 5 windows are computed in
 * tiles with half of the multiplications (lane_weight_tiles.c), unless the image is so small that much of a window is
 * outside:
 *
 *       for each row of the 7 x 7 points of a tile:
 *         v[column][block][tile][channels][16] = transform of x, q likewise of dy
 *         for each column, block of inputs, block of outputs:
 *           m[point][out][in] += over tiles and lanes, q * v
 *
 * Numbers: the parts of a sum in 16 lanes make its error smaller than that of one sum in order. Elements outside of the
 * image are skipped: an infinite gradient at the border does no harm. If a result of tiles is not finite, all are
 * computed again as direct sums. Every sum has one order of additions, independent of threads and layouts.
 *
 * Supports float32, steps and dilations of one, one group, on processors with vectors of 16 floats. Other convolutions,
 * and those that the next provider runs as fast (pays), are left to it.
 */
#include <stdatomic.h>
#include <string.h>

#include "base/allocator.h"
#include "base/integer.h"
#include "base/thread.h"
#include "providers/batch_lanes/batch_lanes.h"
#include "providers/provider.h"

static hr_status open_provider(void) {
  return hr__wide_vectors_check("batch-lane-weights");
}

#if defined(HR_WIDE_VECTORS)

enum {
  VECTOR = HR__WIDE,
  OUTS_MIN = HR__LANE_OUTS_MIN,
  OUTS_MOST = HR__LANE_OUTS_MOST,
  INS_MOST = HR__LANE_INS_MOST,
  PITCH = HR__LANE_PITCH,
  SPARE = VECTOR /* floats between blocks, so that they don't map to one set of the cache */
};

struct hr_prepared {
  hr__images x, y;
  int64_t kernel[2], padding[2], images;
  int64_t w_offset, w_strides[4]; /* of the result */
  int outs, ins;                  /* channels of a block; ins of a thin one: columns of the window */
  bool is_thin;                   /* one input channel */
  int64_t out_blocks, in_blocks;
  int64_t near_rows;                             /* rows of y whose blocks stay in the L1 cache */
  int64_t chunk_rows;                            /* rows of y that are transposed together */
  int64_t panel;                                 /* blocks of outputs that are transposed together */
  int64_t out_parts, in_parts, row_parts, slots; /* threads */
  int64_t x_block, y_block, line_floats, slot_floats, sum_floats;
  bool has_tiles; /* of fewer multiplications */
  int64_t v_block, q_block;
  int w_arg, scale_arg;
};

typedef struct call {
  const hr_prepared *p;
  const float *x, *y;
  float *w, *sums, *slots; /* sums: [out block][in block][window element or row, or point of a tile][PITCH] */
  float scale;
  bool is_tiled;
  atomic_bool is_odd; /* some result is not finite */
} call;

/* A slot's blocks and rows of the window, and the chunk in its memory. */
typedef struct slot {
  int64_t out, out_end, in, in_end, kernel_row, kernel_row_end; /* rows: or those of the points of tiles */
  int64_t row, row_end, x_row, x_row_end;                       /* of y and x */
  float *x, *y, *line, *v, *q;
} slot;

/* ---- a block ---- */

static int64_t count_rows(const call *c) {
  return c->is_tiled ? HR__LANE_LINE : c->p->kernel[0];
}

static float *sums_of(const call *c, int64_t out_block, int64_t in_block, int64_t row) {
  const hr_prepared *p = c->p;
  int64_t elements = c->is_tiled ? HR__LANE_LINE : p->is_thin ? 1 : p->kernel[1];
  return c->sums + ((out_block * p->in_blocks + in_block) * count_rows(c) + row) * elements * PITCH;
}

/* The columns of y that are under an element of the window's rows. */
static void sum_columns(const hr_prepared *p, hr__lane_positions at, float *sums) {
  const float *x = at.x, *y = at.y;
  for (int64_t k = 0; k < p->kernel[1]; ++k, sums += PITCH) {
    int64_t begin = hr_max(0, p->padding[1] - k), end = hr_min(p->y.width, p->x.width + p->padding[1] - k);
    float more[PITCH] __attribute__((aligned(64)));
    if (begin >= end) {
      continue;
    }
    at.columns = end - begin;
    at.x = x + (begin + k - p->padding[1]) * p->ins * VECTOR, at.y = y + begin * p->outs * VECTOR;
    hr__lane_multiply(&at, p->outs, p->ins, more);
    for (int i = 0; i < p->outs * p->ins; ++i) {
      sums[i] += more[i];
    }
  }
}

/* The same with one input channel: neighbouring columns whose windows have the same columns inside of the image. */
static void sum_thin_columns(const hr_prepared *p, hr__lane_positions at, float *sums) {
  const float *x = at.x, *y = at.y;
  for (int64_t column = 0; column < p->y.width; column += at.columns) {
    int64_t left = column - p->padding[1], begin = hr_max(0, -left), end = hr_min(p->kernel[1], p->x.width - left);
    bool is_whole = begin == 0 && end == p->kernel[1];
    at.columns = is_whole ? hr_min(p->y.width, p->x.width + p->padding[1] - p->kernel[1] + 1) - column : 1;
    float more[PITCH] __attribute__((aligned(64)));
    int64_t ins = end - begin;
    if (ins <= 0) {
      continue;
    }
    at.x = x + (left + begin) * VECTOR, at.y = y + column * p->outs * VECTOR;
    hr__lane_multiply(&at, p->outs, (int)ins, more);
    for (int64_t i = 0; i < p->outs * ins; ++i) {
      sums[i / ins * p->kernel[1] + begin + i % ins] += more[i];
    }
  }
}

/* One block of outputs and one of inputs, both of the chunk. */
static void sum_block(const call *c, const slot *s, const float *x, const float *y, int64_t out_block,
                      int64_t in_block) {
  const hr_prepared *p = c->p;
  hr__lane_positions at = {.x_column = (p->is_thin ? 1 : p->ins) * VECTOR};
  at.x_row = p->x.width * at.x_column, at.y_row = p->y.width * p->outs * VECTOR;
  for (int64_t near = s->row; near < s->row_end; near += p->near_rows) {
    int64_t near_end = hr_min(near + p->near_rows, s->row_end);
    for (int64_t k = s->kernel_row; k < s->kernel_row_end; ++k) {
      int64_t begin = hr_max(near, p->padding[0] - k), end = hr_min(near_end, p->x.height + p->padding[0] - k);
      float *sums = sums_of(c, out_block, in_block, k);
      if (begin >= end) {
        continue;
      }
      at.rows = end - begin;
      at.x = x + (begin + k - p->padding[0] - s->x_row) * at.x_row, at.y = y + (begin - s->row) * at.y_row;
      if (p->is_thin) {
        sum_thin_columns(p, at, sums);
      } else {
        sum_columns(p, at, sums);
      }
    }
  }
}

/* ---- tiles ---- */

/* Of one point. */
static int64_t v_floats(const hr_prepared *p) {
  return p->v_block * hr_divide_up(p->in_blocks, p->in_parts);
}

static hr__weight_tiles tiles_of(const hr_prepared *p, const slot *s) {
  return (hr__weight_tiles){.rows = hr_divide_up(s->row_end - s->row, HR__LANE_TILE),
                            .columns = hr_divide_up(p->y.width, HR__LANE_TILE),
                            .x_rows = s->x_row_end - s->x_row,
                            .x_width = p->x.width,
                            .y_rows = s->row_end - s->row,
                            .y_width = p->y.width,
                            .top = s->row - p->padding[0] - s->x_row,
                            .left = p->padding[1],
                            .ins = p->ins,
                            .outs = p->outs,
                            .v_point = v_floats(p),
                            .q_point = p->q_block * p->panel};
}

/* A row of points: inputs stay in the L1 cache for all outputs. */
static void multiply_points(const call *c, const slot *s, const hr__weight_tiles *t, int row, int64_t first,
                            int64_t last) {
  const hr_prepared *p = c->p;
  hr__lane_positions at = {.rows = 1, .columns = t->rows * t->columns, .x_column = p->ins * VECTOR};
  for (int column = 0; column < HR__LANE_LINE; ++column) {
    const float *q = s->q + hr__weight_tiles_gradient(column) * t->q_point;
    for (int64_t in = s->in; in < s->in_end; ++in) {
      at.x = s->v + column * t->v_point + (in - s->in) * p->v_block;
      for (int64_t out = first; out < last; ++out) {
        float more[PITCH] __attribute__((aligned(64))), *sums = sums_of(c, out, in, row) + column * PITCH;
        at.y = q + (out - first) * p->q_block;
        hr__lane_multiply(&at, p->outs, p->ins, more);
        for (int i = 0; i < p->outs * p->ins; ++i) {
          sums[i] += more[i];
        }
      }
    }
  }
}

/* The order of the rows of points: those of one combination of gradients together. */
static const int sum_rows[HR__LANE_LINE] = {0, 4, 1, 5, 2, 3, 6};

/* Blocks [first, last) of outputs. */
static void sum_tiles(const call *c, const slot *s, int64_t first, int64_t last) {
  const hr_prepared *p = c->p;
  const hr__weight_tiles t = tiles_of(p, s);
  int gradient = -1;
  for (int64_t i = s->kernel_row; i < s->kernel_row_end; ++i) {
    for (int64_t in = s->in; in < s->in_end; ++in) {
      hr__weight_tiles_inputs(&t, sum_rows[i], s->x + (in - s->in) * p->x_block, s->line,
                              s->v + (in - s->in) * p->v_block);
    }
    bool is_other = hr__weight_tiles_gradient(sum_rows[i]) != gradient;
    gradient = hr__weight_tiles_gradient(sum_rows[i]);
    for (int64_t out = first; is_other && out < last; ++out) {
      hr__weight_tiles_gradients(&t, gradient, s->y + (out - first) * p->y_block, s->line,
                                 s->q + (out - first) * p->q_block);
    }
    multiply_points(c, s, &t, sum_rows[i], first, last);
  }
}

/* ---- a slot ---- */

/* Columns of [channels] as blocks of `width` channels, padded with zeros. */
WIDE static void spread(const float *line, int64_t columns, int64_t channels, int64_t width, int64_t block, float *to) {
  for (int64_t first = 0; first < channels; first += width, to += block) {
    float *at = to;
    for (int64_t column = 0; column < columns; ++column) {
      const float *from = line + (column * channels + first) * VECTOR;
      for (int64_t i = 0; i < width; ++i, at += VECTOR) {
        _mm512_store_ps(at, first + i < channels ? _mm512_load_ps(from + i * VECTOR) : _mm512_setzero_ps());
      }
    }
  }
}

/* Rows [begin, end) of `channels` channels: [block][row][column][width][lanes]. */
static void pack_rows(const hr__images *all, int64_t channels, const float *from, int64_t images, int64_t begin,
                      int64_t end, int64_t width, int64_t block, float *line, float *to) {
  hr__images x = *all;
  x.channels = channels;
  hr__lane_row row = hr__lane_row_of(&x, VECTOR);
  for (int64_t i = begin; i < end; ++i) {
    hr__lane_row_load(&x, &row, from + i * x.row_stride, images, VECTOR, line);
    spread(line, x.width, channels, width, block, to + (i - begin) * x.width * width * VECTOR);
  }
}

static void sum_panel(const call *c, const slot *s, int64_t image, int64_t images, int64_t first, int64_t last) {
  const hr_prepared *p = c->p;
  int64_t out = first * p->outs, outs = hr_min(last * p->outs, p->y.channels) - out;
  pack_rows(&p->y, outs, c->y + image * p->y.image_stride + out * p->y.channel_stride, images, s->row, s->row_end,
            p->outs, p->y_block, s->line, s->y);
  if (c->is_tiled) {
    sum_tiles(c, s, first, last);
    return;
  }
  for (int64_t o = first; o < last; ++o) {
    for (int64_t i = s->in; i < s->in_end; ++i) {
      sum_block(c, s, s->x + (i - s->in) * p->x_block, s->y + (o - first) * p->y_block, o, i);
    }
  }
}

static void sum_chunk(const call *c, slot *s, int64_t image) {
  const hr_prepared *p = c->p;
  int64_t images = hr_min(VECTOR, p->images - image), width = p->is_thin ? 1 : p->ins;
  int64_t in = s->in * width, ins = hr_min(s->in_end * width, p->x.channels) - in;
  s->x_row = hr_max(0, s->row - p->padding[0]);
  s->x_row_end = hr_min(p->x.height, s->row_end - 1 - p->padding[0] + p->kernel[0]);
  pack_rows(&p->x, ins, c->x + image * p->x.image_stride + in * p->x.channel_stride, images, s->x_row, s->x_row_end,
            width, p->x_block, s->line, s->x);
  for (int64_t first = s->out; first < s->out_end; first += p->panel) {
    sum_panel(c, s, image, images, first, hr_min(first + p->panel, s->out_end));
  }
}

static void clear_sums(const call *c, const slot *s) {
  int64_t floats = sums_of(c, 0, 0, 1) - c->sums;
  for (int64_t out = s->out; out < s->out_end; ++out) {
    for (int64_t in = s->in; in < s->in_end; ++in) {
      for (int64_t row = s->kernel_row; row < s->kernel_row_end; ++row) {
        memset(sums_of(c, out, in, c->is_tiled ? sum_rows[row] : row), 0, (size_t)floats * sizeof(float));
      }
    }
  }
}

static void run_slots(void *arg, int64_t begin, int64_t end, int worker) {
  (void)worker;
  const call *c = arg;
  const hr_prepared *p = c->p;
  for (int64_t number = begin; number < end; ++number) {
    int64_t out = number % p->out_parts, in = number / p->out_parts % p->in_parts;
    int64_t row = number / p->out_parts / p->in_parts;
    slot s = {.out = p->out_blocks * out / p->out_parts,
              .out_end = p->out_blocks * (out + 1) / p->out_parts,
              .in = p->in_blocks * in / p->in_parts,
              .in_end = p->in_blocks * (in + 1) / p->in_parts,
              .kernel_row = count_rows(c) * row / p->row_parts,
              .kernel_row_end = count_rows(c) * (row + 1) / p->row_parts,
              .line = c->slots + number * p->slot_floats};
    s.x = s.line + p->line_floats, s.y = s.x + hr_divide_up(p->in_blocks, p->in_parts) * p->x_block;
    s.v = s.y + p->panel * p->y_block, s.q = s.v + HR__LANE_LINE * v_floats(p);
    clear_sums(c, &s);
    for (int64_t image = 0; image < p->images; image += VECTOR) {
      for (s.row = 0; s.row < p->y.height; s.row = s.row_end) {
        s.row_end = hr_min(s.row + p->chunk_rows, p->y.height);
        sum_chunk(c, &s, image);
      }
    }
  }
}

/* ---- a run ---- */

/* Stores the weights of output channels [begin, end). */
static void store_outs(void *arg, int64_t begin, int64_t end, int worker) {
  (void)worker;
  const call *c = arg;
  const hr_prepared *p = c->p;
  const int64_t *strides = p->w_strides, width = p->is_thin ? 1 : p->ins;
  int64_t out_step = p->is_thin ? p->kernel[1] : p->ins, step = p->is_thin ? 1 : PITCH;
  for (int64_t out = begin; out < end; ++out) {
    for (int64_t in = 0; in < p->x.channels; ++in) {
      for (int64_t row = 0; row < p->kernel[0]; ++row) {
        const float *from = sums_of(c, out / p->outs, in / width, row) + out % p->outs * out_step + in % width;
        float *to = c->w + out * strides[0] + in * strides[1] + row * strides[2];
        for (int64_t column = 0; column < p->kernel[1]; ++column) {
          to[column * strides[3]] = from[column * step] * c->scale;
        }
      }
    }
  }
}

/* The same from sums of tiles; takes notice of weights that are not finite. */
static void store_tiles(void *arg, int64_t begin, int64_t end, int worker) {
  (void)worker;
  call *c = arg;
  const hr_prepared *p = c->p;
  const int64_t *strides = p->w_strides;
  bool is_finite = true;
  for (int64_t out = begin; out < end; ++out) {
    for (int64_t in = 0; in < p->x.channels; ++in) {
      float all[HR__LANE_TAPS * HR__LANE_TAPS], *to = c->w + out * strides[0] + in * strides[1];
      const float *from = sums_of(c, out / p->outs, in / p->ins, 0) + out % p->outs * p->ins + in % p->ins;
      is_finite &= hr__weight_tiles_give(from, PITCH, all);
      for (int i = 0; i < HR__LANE_TAPS * HR__LANE_TAPS; ++i) {
        to[i / HR__LANE_TAPS * strides[2] + i % HR__LANE_TAPS * strides[3]] = all[i] * c->scale;
      }
    }
  }
  if (!is_finite) {
    atomic_store_explicit(&c->is_odd, true, memory_order_relaxed);
  }
}

static hr_status run(hr_prepared *p, void *const *args, void *workspace, void *queue) {
  (void)queue;
  call c = {.p = p,
            .x = (const float *)args[0] + p->x.offset,
            .y = (const float *)args[1] + p->y.offset,
            .w = (float *)args[p->w_arg] + p->w_offset,
            .sums = workspace,
            .scale = hr__scale_of(args, p->scale_arg)};
  c.slots = c.sums + p->sum_floats;
  c.is_tiled = p->has_tiles;
  if (c.is_tiled) {
    hr_parallel_for(p->slots, 1, run_slots, &c);
    hr_parallel_for(p->y.channels, 8, store_tiles, &c);
    c.is_tiled = false;
  }
  if (!p->has_tiles || atomic_load(&c.is_odd)) {
    hr_parallel_for(p->slots, 1, run_slots, &c);
    hr_parallel_for(p->y.channels, 8, store_outs, &c);
  }
  return HR_OK;
}

/* ---- preparing ---- */

static int64_t step_cycles(int outs, int ins) {
  return hr_max(outs * ins, 8); /* halves; 8: the latency of a sum */
}

/* Half cycles of a position under all channels. */
static int64_t position_cycles(const hr_prepared *p, int outs, int ins) {
  return hr_divide_up(p->y.channels, outs) * hr_divide_up(p->is_thin ? ins : p->x.channels, ins) *
         step_cycles(outs, ins);
}

/* The blocks that take the fewest cycles; of these, the largest. */
static void choose_blocks(hr_prepared *p) {
  p->is_thin = p->x.channels == 1 && p->kernel[1] <= INS_MOST;
  int64_t best = INT64_MAX;
  for (int outs = OUTS_MOST; outs >= OUTS_MIN; --outs) {
    for (int ins = INS_MOST; ins >= 1; --ins) {
      bool can = outs * ins <= HR__LANE_SUMS_MOST && (!p->is_thin || ins == p->kernel[1]);
      int64_t cycles = can ? position_cycles(p, outs, ins) : INT64_MAX;
      bool is_larger = cycles == best && outs * ins > p->outs * p->ins;
      if (cycles < best || (can && is_larger)) {
        best = cycles, p->outs = outs, p->ins = ins;
      }
    }
  }
  p->out_blocks = hr_divide_up(p->y.channels, p->outs);
  p->in_blocks = p->is_thin ? 1 : hr_divide_up(p->x.channels, p->ins);
}

/* The most rows of y, in equal parts, that take up to `bytes` with the rows of x under them. */
static int64_t choose_rows(const hr_prepared *p, int64_t x_channels, int64_t y_channels, int64_t bytes) {
  int64_t x_row = p->x.width * x_channels * VECTOR * (int64_t)sizeof(float);
  int64_t y_row = p->y.width * y_channels * VECTOR * (int64_t)sizeof(float), rows = p->y.height;
  while (rows > 1 && hr_min(rows + p->kernel[0] - 1, p->x.height) * x_row + rows * y_row > bytes) {
    --rows;
  }
  return hr_divide_up(p->y.height, hr_divide_up(p->y.height, rows));
}

static int64_t count_tiles(const hr_prepared *p, int64_t rows) {
  return hr_divide_up(rows, HR__LANE_TILE) * hr_divide_up(p->y.width, HR__LANE_TILE);
}

/* Cycles of 16 images, besides transposition. */
static double direct_cycles(const hr_prepared *p) {
  int64_t rows = hr__lane_count_inside(p->y.height, p->kernel[0], p->padding[0], p->x.height);
  int64_t columns = hr__lane_count_inside(p->y.width, p->kernel[1], p->padding[1], p->x.width);
  return (double)(rows * (p->is_thin ? p->y.width : columns) * position_cycles(p, p->outs, p->ins)) * 0.55;
}

static double tile_cycles(const hr_prepared *p) {
  enum { LANES = 46, TAKE = 138, GIVE = 92 }; /* sums over lanes; of a channel of a tile */
  double tiles = (double)count_tiles(p, p->y.height), blocks = (double)(p->in_blocks * p->out_blocks);
  double chunks = (double)hr_divide_up(p->y.height, p->chunk_rows);
  return HR__LANE_POINTS * (tiles * (double)position_cycles(p, p->outs, p->ins) * 0.6 + blocks * chunks * LANES) +
         tiles * (double)(p->in_blocks * p->ins * TAKE + p->out_blocks * p->outs * GIVE);
}

static bool tiles_pay(const hr_prepared *p) {
  bool can = !p->is_thin && p->kernel[0] == HR__LANE_TAPS && p->kernel[1] == HR__LANE_TAPS && p->padding[0] >= 0 &&
             p->padding[1] >= 0;
  return can && tile_cycles(p) < 0.95 * direct_cycles(p);
}

/* Rows depend on the shape alone, since sums do on them. */
static void choose_chunks(hr_prepared *p) {
  enum { NEAR_BYTES = 64 << 10, FAR_BYTES = 512 << 10, PANEL_BYTES = 1 << 20 };
  int64_t width = p->is_thin ? 1 : p->ins;
  p->near_rows = choose_rows(p, width, p->outs, NEAR_BYTES);
  p->chunk_rows = choose_rows(p, p->in_blocks * width, p->outs, FAR_BYTES);
  p->has_tiles = tiles_pay(p);
  if (p->has_tiles) {
    p->chunk_rows = hr_min(hr_round_up(p->chunk_rows, HR__LANE_TILE), p->y.height);
    int64_t tiles = count_tiles(p, p->chunk_rows);
    p->v_block = tiles * p->ins * VECTOR + SPARE, p->q_block = tiles * p->outs * VECTOR + SPARE;
  }
  p->x_block = hr_min(p->chunk_rows + p->kernel[0] - 1, p->x.height) * p->x.width * width * VECTOR + SPARE;
  p->y_block = p->chunk_rows * p->y.width * p->outs * VECTOR + SPARE;
  p->panel = hr_max(1, PANEL_BYTES / (int64_t)sizeof(float) / p->y_block);
}

static void describe(const hr_node *node, hr_prepared *p) {
  const hr_operand *w = &node->outputs[0];
  p->x = hr__images_of(&node->inputs[0]), p->y = hr__images_of(&node->inputs[1]);
  p->images = node->inputs[0].dims[0];
  for (int d = 0; d < 2; ++d) {
    p->padding[d] = node->ints[3 + d], p->kernel[d] = w->dims[2 + d];
  }
  p->w_offset = w->offset;
  memcpy(p->w_strides, w->strides, sizeof p->w_strides);
  p->w_arg = node->input_count;
  (void)hr__scale_find(node, &p->scale_arg);
  choose_blocks(p);
  choose_chunks(p);
}

/* Divides the work: output channels first, since input channels are transposed in each part. */
static void divide(hr_prepared *p) {
  int64_t threads = hr_thread_count();
  p->out_parts = hr_min(threads, p->out_blocks);
  p->in_parts = hr_min(threads / p->out_parts, p->in_blocks);
  p->row_parts = hr_min(threads / p->out_parts / p->in_parts, p->kernel[0]);
  p->slots = p->out_parts * p->in_parts * p->row_parts;
  int64_t outs = hr_min(p->panel, hr_divide_up(p->out_blocks, p->out_parts));
  p->panel = outs;
  p->line_floats = hr_max(p->x.width * p->x.channels, p->y.width * outs * p->outs) * VECTOR;
  if (p->has_tiles) {
    const slot whole = {.row_end = p->chunk_rows};
    const hr__weight_tiles t = tiles_of(p, &whole);
    p->line_floats = hr_max(p->line_floats, hr__weight_tiles_line_floats(&t));
  }
  p->slot_floats = p->line_floats + hr_divide_up(p->in_blocks, p->in_parts) * p->x_block + outs * p->y_block +
                   HR__LANE_LINE * v_floats(p) + HR__LANE_GRADIENTS * outs * p->q_block;
  int64_t elements = p->has_tiles ? HR__LANE_POINTS : p->kernel[0] * (p->is_thin ? 1 : p->kernel[1]);
  p->sum_floats = p->out_blocks * p->in_blocks * elements * PITCH;
}

static hr_status prepare(const hr_program *program, const hr_node *node, int algorithm, void *queue,
                         hr_prepared **out_prepared, size_t *out_workspace_bytes) {
  (void)program, (void)algorithm, (void)queue;
  hr_prepared *p = hr_calloc(1, sizeof *p);
  if (p == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "conv: no memory for a prepared gradient");
  }
  describe(node, p);
  divide(p);
  *out_workspace_bytes = (size_t)(p->sum_floats + p->slots * p->slot_floats) * sizeof(float);
  *out_prepared = p;
  return HR_OK;
}

/* True if 16 images take 8 % fewer cycles than in oneDNN, which makes output channels in sixteens, faster if there are
 * no others. The constants were fitted to 22 shapes: no accepted one was slower. */
static bool pays(const hr_prepared *p) {
  enum { TURN = 35 }; /* cycles of 16 elements */
  const hr__images *x = &p->x, *y = &p->y;
  if (p->kernel[0] * p->kernel[1] < 9) {
    return false; /* not measured; products of matrices if it is one element */
  }
  int64_t rows = hr__lane_count_inside(y->height, p->kernel[0], p->padding[0], x->height);
  int64_t columns = hr__lane_count_inside(y->width, p->kernel[1], p->padding[1], x->width);
  int64_t elements = x->height * x->width * x->channels + y->height * y->width * y->channels;
  double own = (p->has_tiles ? tile_cycles(p) : direct_cycles(p)) + (double)(elements * TURN);
  double library = (double)(rows * columns * x->channels * hr_round_up(y->channels, VECTOR)) / 2;
  library *= y->channels % VECTOR == 0 ? 1.2 : 1.32;
  return own * (double)hr_round_up(p->images, VECTOR) <= 0.92 * library * (double)p->images;
}

static bool supports(const hr_program *program, const hr_node *node) {
  (void)program;
  int scale_arg;
  bool can = node->op == HR_OP_CONV_BACKWARD_WEIGHT && hr__images_are_supported(node) && node->ints[1] == 1 &&
             node->ints[2] == 1 && hr__scale_find(node, &scale_arg);
  hr_prepared p = {0};
  if (!can) {
    return false;
  }
  describe(node, &p);
  return pays(&p);
}

static bool needs_team(const hr_prepared *p) {
  return p->slots > 1;
}

static size_t footprint(const hr_prepared *p) {
  return sizeof *p;
}

const hr_provider HR_CPU_NAME(hr__batch_lane_weights_provider) = {
    .name = "batch-lane-weights",
    .is_apart = true,
    .open = open_provider,
    .runs = hr__provider_runs_weight_gradients,
    .supports = supports,
    .prepare = prepare,
    .needs_team = needs_team,
    .run = run,
    .footprint = footprint,
    .release = hr__provider_release,
};

#else

const hr_provider HR_CPU_NAME(hr__batch_lane_weights_provider) = {.name = "batch-lane-weights", .open = open_provider};

#endif
