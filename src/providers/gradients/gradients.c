/* gradients.c: gradients of the weights of convolutions, on channels-last activations without packing them as a whole.
 * Activations in another layout are packed before.
 *
 *   dw[o][row][column * C + c] = sum over pixels of dy[pixel][o] * x[pixel's window, row][column * C + c]
 *
 * The elements of a row of x under a window are contiguous, for any number of channels. Vectors run along them, so 20
 * channels and 5 columns fill 100 lanes of 112. (If channels are many times 64, 64 at a time.) A tile has 4 to 6 output
 * channels and up to 4 vectors. It is summed in registers over a block of pixels, and added to the sums of earlier
 * blocks. Threads share output channels, then vectors:
 *
 *   for each block of pixels:
 *     pack dy: the channels of a tile side by side
 *     for each part of the channels: pack the rows of x under the windows, with zeros at their ends
 *       for each row of the window, each 4 vectors, each tile: sums += dy * x over the block
 *   reorder the result to the layout of the weights
 *
 * The zeros change no sum if dy is finite. In a block with an infinite or NaN dy, lanes outside of the image are
 * masked, so an infinite gradient at the border does no harm. The order of sums depends on the shape alone. Float32,
 * two spatial dims, dilations of one, one group, on processors with vectors of 16 floats.
 */
#include <string.h>

#include "base/allocator.h"
#include "base/integer.h"
#include "base/thread.h"
#include "providers/provider.h"
#include "providers/wide_images.h"
#include "providers/wide_vectors.h"

static hr_status open_provider(void) {
  return hr__wide_vectors_check("gradients");
}

#if defined(HR_WIDE_VECTORS)
enum { VECTOR = HR__WIDE, VECTORS = 4, TILE = VECTOR * VECTORS, OUTS_MIN = 4, OUTS_MAX = 6 };
enum { BLOCK = 200, SPARE = 8 }; /* pixels; floats after each tile of packed dy, for whole stores */
enum { ALIGNMENT = 64 };

struct hr_prepared {
  hr__images x_given, y_given, x, y; /* the operands; in place, or packed to channels-last */
  int64_t x_floats, y_floats;        /* of packed ones; 0: in place */
  int64_t images, kernel[2], stride[2], padding[2];
  int64_t w_offset, w_out, w_in, w_row, w_column; /* strides of the result */
  int64_t part, parts;                            /* channels packed at a time */
  int64_t run;                                    /* elements of a window's row in one part */
  int64_t vector_count, vector_tiles;             /* of them */
  int64_t column_count, column_step;              /* of a packed row; the distance of neighbouring windows */
  int64_t block_images, block_rows;               /* of y: rows of one image, or whole images */
  int64_t out_groups, vector_groups;              /* a slot has one of each */
  int64_t rows_most, x_bytes, y_bytes, slot_bytes;
  int64_t sum_pitch;
  bool is_direct; /* sums are written to the result directly: windows of one element, input channels side by side */
  int w_arg, scale_arg;
};

typedef struct call {
  const hr_prepared *p;
  const float *x, *y;
  float *w;
  float scale;
  float *sums; /* [kernel row][output channel][sum_pitch] */
  char *slots;
} call;

/* Pixels whose windows and gradients are packed consecutively. */
typedef struct trace {
  const float *x, *y;
  int64_t count;
} trace;

/* The state of a slot. */
typedef struct slot {
  int64_t out, out_count, tile_count, outs, wide_count; /* output channels */
  int64_t image, image_end, row, row_end;
  int64_t x_row, x_row_end; /* of each image, under the block's windows */
  bool is_finite;           /* dy of the block */
  float *x, *y;             /* [image][x row][column][part]; [tile][pixel][its channels] */
  trace *traces;
  int64_t trace_count;
  __mmask16 *masks; /* by column of y: the vectors' lanes inside of the image */
} slot;

/* ---- packing ---- */

static inline __mmask16 lanes_between(int64_t begin, int64_t end) {
  unsigned high = end >= VECTOR ? 0xffffu : end <= 0 ? 0 : (1u << end) - 1;
  unsigned low = begin >= VECTOR ? 0xffffu : begin <= 0 ? 0 : (1u << begin) - 1;
  return (__mmask16)(high & ~low);
}

/* Tiles have `outs` channels each, the first `wide_count` one more. */
static int64_t tile_begin(const slot *s, int64_t tile) {
  return tile * s->outs + hr_min(tile, s->wide_count);
}

static float *tile_gradients(const slot *s, int64_t tile, int64_t pixels) {
  return s->y + tile_begin(s, tile) * pixels + tile * SPARE;
}

/* Packs tiles [begin, end) of a row's pixels, all of `outs` channels; true if these are finite. Few tiles at a time:
 * more would be too many write streams. */
WIDE_INLINE bool pack_tiles(const slot *s, const float *row, int64_t count, int64_t stride, int64_t begin, int64_t end,
                            int64_t outs, int64_t pixel, int64_t pixels) {
  enum { STREAMS = 8 };
  __mmask16 mask = lanes_between(0, outs), odd = 0;
  for (int64_t first = begin; first < end; first += STREAMS) {
    const float *from = row + tile_begin(s, first);
    float *to = tile_gradients(s, first, pixels) + pixel * outs;
    int64_t tiles = hr_min(STREAMS, end - first), step = outs * pixels + SPARE;
    for (int64_t i = 0; i < count; ++i, from += stride, to += outs) {
      for (int64_t tile = 0; tile < tiles; ++tile) {
        __m512 x = _mm512_maskz_loadu_ps(mask, from + tile * outs), zero = _mm512_sub_ps(x, x);
        odd = _mm512_kor(odd, _mm512_cmp_ps_mask(zero, zero, _CMP_UNORD_Q));
        _mm256_storeu_ps(to + tile * step, _mm512_castps512_ps256(x)); /* the next pixel's values follow later */
      }
    }
  }
  return odd == 0;
}

WIDE static void pack_y(const call *c, slot *s, int64_t pixels) {
  const hr__images *y = &c->p->y;
  int64_t pixel = 0;
  s->is_finite = true;
  for (int64_t image = s->image; image < s->image_end; ++image) {
    for (int64_t row = s->row; row < s->row_end; ++row, pixel += y->width) {
      const float *from = c->y + image * y->image_stride + row * y->row_stride + s->out;
      s->is_finite &= pack_tiles(s, from, y->width, y->column_stride, 0, s->wide_count, s->outs + 1, pixel, pixels);
      s->is_finite &=
          pack_tiles(s, from, y->width, y->column_stride, s->wide_count, s->tile_count, s->outs, pixel, pixels);
    }
  }
}

/* Copies `count` columns of `width` floats, `stride` apart, to dense ones. */
WIDE static void pack_columns(const float *from, int64_t count, int64_t stride, int64_t width, float *to) {
  if (stride == width) {
    memcpy(to, from, (size_t)(count * width) * sizeof *to);
    return;
  }
  for (int64_t column = 0; column < count; ++column, from += stride, to += width) {
    for (int64_t i = 0; i < width; i += VECTOR) {
      __mmask16 mask = lanes_between(0, width - i);
      _mm512_mask_storeu_ps(to + i, mask, _mm512_maskz_loadu_ps(mask, from + i));
    }
  }
}

/* A row of x: the columns under windows, zeros for those outside of the image. For windows of one column, only those
 * columns. */
static void pack_row(const hr_prepared *p, const float *row, int64_t part, float *to) {
  int64_t every = p->kernel[1] == 1 ? p->stride[1] : 1, left = p->padding[1], channels = p->x.channels;
  int64_t begin = hr_min(hr_divide_up(left, every), p->column_count);
  int64_t end = hr_max(begin, hr_min(p->column_count, hr_divide_up(p->x.width + left, every)));
  memset(to, 0, (size_t)(begin * p->part) * sizeof *to);
  pack_columns(row + (begin * every - left) * channels + part * p->part, end - begin, every * channels, p->part,
               to + begin * p->part);
  memset(to + end * p->part, 0, (size_t)((p->column_count - end) * p->part) * sizeof *to);
}

/* True if a row of y has x_row in its window. */
static bool is_seen(const hr_prepared *p, int64_t x_row) {
  return (x_row + p->padding[0]) % p->stride[0] < p->kernel[0];
}

static void pack_x(const call *c, const slot *s, int64_t part) {
  const hr_prepared *p = c->p;
  float *to = s->x;
  for (int64_t image = s->image; image < s->image_end; ++image) {
    for (int64_t row = s->x_row; row < s->x_row_end; ++row, to += p->column_count * p->part) {
      if (is_seen(p, row)) {
        pack_row(p, c->x + image * p->x.image_stride + row * p->x.row_stride, part, to);
      }
    }
  }
}

/* Lanes of each column's window inside of the image. */
static void find_masks(const hr_prepared *p, int64_t first, int vectors, __mmask16 *masks) {
  for (int64_t column = 0; column < p->y.width; ++column) {
    int64_t left = column * p->stride[1] - p->padding[1];
    int64_t begin = hr_max(0, -left) * p->part, end = hr_min(p->kernel[1], p->x.width - left) * p->part;
    for (int v = 0; v < vectors; ++v) {
      int64_t at = (first + v) * VECTOR;
      masks[column * VECTORS + v] = lanes_between(begin - at, end - at);
    }
  }
}

/* The packed pixels whose windows' row `kernel_row` is inside of the image, as few traces as possible; y is that of the
 * first tile, in pixels. */
static void find_traces(const hr_prepared *p, slot *s, int64_t kernel_row) {
  int64_t width = p->y.width, pixel = 0;
  s->trace_count = 0;
  for (int64_t image = s->image; image < s->image_end; ++image) {
    const float *rows = s->x + (image - s->image) * (s->x_row_end - s->x_row) * p->column_count * p->part;
    for (int64_t row = s->row; row < s->row_end; ++row, pixel += width) {
      int64_t x_row = row * p->stride[0] - p->padding[0] + kernel_row;
      if (x_row < 0 || x_row >= p->x.height) {
        continue;
      }
      const float *x = rows + (x_row - s->x_row) * p->column_count * p->part, *y = s->y + pixel;
      trace *last = s->trace_count > 0 ? &s->traces[s->trace_count - 1] : NULL;
      if (last != NULL && last->x + last->count * p->column_step == x && last->y + last->count == y) {
        last->count += width;
      } else {
        s->traces[s->trace_count++] = (trace){x, y, width};
      }
    }
  }
}

/* ---- sums ---- */

/* The operands of a tile of sums. */
typedef struct tile {
  const slot *s;
  int64_t y_offset; /* of its packed dy */
  int64_t width;    /* of y */
  int64_t x_offset, x_step;
  float *sums;
  int64_t pitch;
  __mmask16 last; /* lanes of the last vector */
  bool is_first;  /* no earlier sums */
} tile;

WIDE_INLINE void sum_tile_of(const tile *t, int outs, int vectors, bool is_masked) {
  __m512 acc[OUTS_MAX][VECTORS];
#pragma GCC unroll 6
  for (int o = 0; o < outs; ++o) {
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) {
      acc[o][v] = _mm512_setzero_ps();
    }
  }
  for (int64_t k = 0; k < t->s->trace_count; ++k) {
    const trace *at = &t->s->traces[k];
    const float *x = at->x + t->x_offset, *y = t->s->y + t->y_offset + (at->y - t->s->y) * outs;
    for (int64_t i = 0; i < at->count; ++i, x += t->x_step, y += outs) {
      const __mmask16 *masks = is_masked ? t->s->masks + i % t->width * VECTORS : NULL;
      __m512 xs[VECTORS];
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) {
        xs[v] = _mm512_loadu_ps(x + v * VECTOR);
      }
#pragma GCC unroll 6
      for (int o = 0; o < outs; ++o) {
        __m512 factor = _mm512_set1_ps(y[o]);
#pragma GCC unroll 4
        for (int v = 0; v < vectors; ++v) {
          acc[o][v] = is_masked ? _mm512_mask3_fmadd_ps(factor, xs[v], acc[o][v], masks[v])
                                : _mm512_fmadd_ps(factor, xs[v], acc[o][v]);
        }
      }
    }
  }
  float *sums = t->sums;
#pragma GCC unroll 6
  for (int o = 0; o < outs; ++o, sums += t->pitch) {
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) {
      __mmask16 mask = v == vectors - 1 ? t->last : 0xffff;
      __m512 before = _mm512_maskz_loadu_ps(t->is_first ? 0 : mask, sums + v * VECTOR);
      _mm512_mask_storeu_ps(sums + v * VECTOR, mask, _mm512_add_ps(before, acc[o][v]));
    }
  }
}

#define SUM_TILE(outs, vectors)                                 \
  WIDE static void sum_tile_##outs##_##vectors(const tile *t) { \
    if (t->s->is_finite) {                                      \
      sum_tile_of(t, outs, vectors, false);                     \
    } else {                                                    \
      sum_tile_of(t, outs, vectors, true);                      \
    }                                                           \
  }
#define SUM_TILES(outs) SUM_TILE(outs, 1) SUM_TILE(outs, 2) SUM_TILE(outs, 3) SUM_TILE(outs, 4)
SUM_TILES(4)
SUM_TILES(5)
SUM_TILES(6)

typedef void (*sum_tile_fn)(const tile *);
#define TILES_OF(outs) \
  { sum_tile_##outs##_1, sum_tile_##outs##_2, sum_tile_##outs##_3, sum_tile_##outs##_4 }
static const sum_tile_fn sum_tiles[OUTS_MAX - OUTS_MIN + 1][VECTORS] = {TILES_OF(4), TILES_OF(5), TILES_OF(6)};

/* Adds the block's products: one row of the window, some vectors of a part. */
static void sum_block(const call *c, const slot *s, int64_t kernel_row, int64_t part, int64_t vector_tile) {
  const hr_prepared *p = c->p;
  int64_t first = p->vector_count * vector_tile / p->vector_tiles;
  int vectors = (int)(p->vector_count * (vector_tile + 1) / p->vector_tiles - first);
  int64_t pixels = (s->image_end - s->image) * (s->row_end - s->row) * p->y.width;
  tile t = {.s = s, .width = p->y.width, .x_offset = first * VECTOR, .x_step = p->column_step, .pitch = p->sum_pitch};
  t.last = lanes_between(0, p->run - (first + vectors - 1) * VECTOR);
  t.is_first = s->image == 0 && s->row == 0;
  if (!s->is_finite) {
    find_masks(p, first, vectors, s->masks);
  }
  for (int64_t i = 0; i < s->tile_count; ++i) {
    int64_t out = tile_begin(s, i), outs = tile_begin(s, i + 1) - out;
    t.y_offset = tile_gradients(s, i, pixels) - s->y;
    t.sums = c->sums + (kernel_row * p->y.channels + s->out + out) * p->sum_pitch +
             (part * p->vector_count + first) * VECTOR;
    sum_tiles[outs - OUTS_MIN][vectors - 1](&t);
  }
}

/* The vectors [begin, end) of all parts, numbered consecutively. */
static void sum_vectors(const call *c, slot *s, int64_t begin, int64_t end) {
  const hr_prepared *p = c->p;
  for (int64_t part = begin / p->vector_tiles; part * p->vector_tiles < end; ++part) {
    pack_x(c, s, part);
    for (int64_t row = 0; row < p->kernel[0]; ++row) {
      find_traces(p, s, row);
      for (int64_t v = hr_max(begin, part * p->vector_tiles); v < hr_min(end, (part + 1) * p->vector_tiles); ++v) {
        sum_block(c, s, row, part, v % p->vector_tiles);
      }
    }
  }
}

static void run_slot(const call *c, int64_t number) {
  const hr_prepared *p = c->p;
  int64_t group = number % p->out_groups, part = number / p->out_groups, vectors = p->parts * p->vector_tiles;
  char *memory = c->slots + number * p->slot_bytes;
  slot s = {.x = (float *)(void *)memory, .y = (float *)(void *)(memory + p->x_bytes)};
  s.traces = (trace *)(void *)(memory + p->x_bytes + p->y_bytes);
  s.masks = (__mmask16 *)(void *)(s.traces + p->rows_most);
  s.out = p->y.channels * group / p->out_groups;
  s.out_count = p->y.channels * (group + 1) / p->out_groups - s.out;
  s.tile_count = hr_divide_up(s.out_count, OUTS_MAX);
  s.outs = s.out_count / s.tile_count, s.wide_count = s.out_count % s.tile_count;
  for (s.image = 0; s.image < p->images; s.image = s.image_end) {
    s.image_end = hr_min(p->images, s.image + p->block_images);
    for (s.row = 0; s.row < p->y.height; s.row = s.row_end) {
      s.row_end = hr_min(p->y.height, s.row + p->block_rows);
      s.x_row = hr_max(0, s.row * p->stride[0] - p->padding[0]);
      s.x_row_end = hr_min(p->x.height, (s.row_end - 1) * p->stride[0] - p->padding[0] + p->kernel[0]);
      pack_y(c, &s, (s.image_end - s.image) * (s.row_end - s.row) * p->y.width);
      sum_vectors(c, &s, vectors * part / p->vector_groups, vectors * (part + 1) / p->vector_groups);
    }
  }
}

static void run_slots(void *arg, int64_t begin, int64_t end, int worker) {
  (void)worker;
  for (int64_t number = begin; number < end; ++number) {
    run_slot(arg, number);
  }
}

/* ---- reordering to the layout of the weights ---- */

/* The windows of a part's input channels; `row_step`: the distance of a window's rows among the sums. */
WIDE_INLINE void turn_windows(const call *c, const float *from, int64_t row_step, float *to, int64_t rows,
                              int64_t columns) {
  const hr_prepared *p = c->p;
  for (int64_t in = 0; in < p->part; ++in, ++from, to += p->w_in) {
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t column = 0; column < columns; ++column) {
        to[row * p->w_row + column * p->w_column] = from[row * row_step + column * p->part] * c->scale;
      }
    }
  }
}

/* Output channels [begin, end): from [kernel row][part][column][input channel] to the weights' layout. */
WIDE static void turn_outs(void *arg, int64_t begin, int64_t end, int worker) {
  (void)worker;
  const call *c = arg;
  const hr_prepared *p = c->p;
  for (int64_t out = begin; out < end; ++out) {
    for (int64_t part = 0; part < p->parts; ++part) {
      const float *from = c->sums + out * p->sum_pitch + part * p->vector_count * VECTOR;
      float *to = c->w + out * p->w_out + part * p->part * p->w_in;
      int64_t row_step = p->y.channels * p->sum_pitch;
      if (p->kernel[0] == 3 && p->kernel[1] == 3) {
        turn_windows(c, from, row_step, to, 3, 3);
      } else {
        turn_windows(c, from, row_step, to, p->kernel[0], p->kernel[1]);
      }
    }
  }
}

/* The operand's own memory, or its packed form in *memory, which then begins after it. */
static const float *bring(const hr__images *given, int64_t images, int64_t floats, const float *from, char **memory) {
  from += given->offset;
  if (floats == 0) {
    return from;
  }
  float *packed = (float *)(void *)*memory;
  hr__images_pack(given, images, from, packed);
  *memory += hr_round_up(floats * (int64_t)sizeof *packed, ALIGNMENT);
  return packed;
}

static hr_status run(hr_prepared *p, void *const *args, void *workspace, void *queue) {
  (void)queue;
  call c = {.p = p,
            .w = (float *)args[p->w_arg] + p->w_offset,
            .scale = hr__scale_of(args, p->scale_arg),
            .slots = workspace};
  c.x = bring(&p->x_given, p->images, p->x_floats, args[0], &c.slots);
  c.y = bring(&p->y_given, p->images, p->y_floats, args[1], &c.slots);
  int64_t slots = p->out_groups * p->vector_groups;
  c.sums = p->is_direct ? c.w : (float *)(void *)(c.slots + slots * p->slot_bytes);
  hr_parallel_for(slots, 1, run_slots, &c);
  if (!p->is_direct) {
    hr_parallel_for(p->y.channels, 1, turn_outs, &c);
  }
  return HR_OK;
}

/* ---- preparing ---- */

/* True if channels are contiguous, and pixels of x, too. */
static bool has_layout(const hr_operand *x, bool is_dense) {
  return (x->dims[1] == 1 || x->strides[1] == 1) && (!is_dense || x->dims[3] == 1 || x->strides[3] == x->dims[1]);
}

/* Returns the floats of the packed operand; 0: it is used in place. */
static int64_t choose_place(const hr_operand *x, bool is_dense, const hr__images *given, hr__images *out_used) {
  bool packs = !has_layout(x, is_dense);
  *out_used = packs ? hr__images_packed(given) : *given;
  return packs ? x->dims[0] * x->dims[1] * x->dims[2] * x->dims[3] : 0;
}

static void describe(const hr_node *node, hr_prepared *p) {
  const hr_operand *w = &node->outputs[0];
  p->x_given = hr__images_of(&node->inputs[0]), p->y_given = hr__images_of(&node->inputs[1]);
  p->x_floats = choose_place(&node->inputs[0], true, &p->x_given, &p->x);
  p->y_floats = choose_place(&node->inputs[1], false, &p->y_given, &p->y);
  p->images = node->inputs[0].dims[0];
  for (int d = 0; d < 2; ++d) {
    p->kernel[d] = w->dims[2 + d], p->stride[d] = node->ints[1 + d], p->padding[d] = node->ints[3 + d];
  }
  p->w_offset = w->offset;
  p->w_out = w->strides[0], p->w_in = w->strides[1], p->w_row = w->strides[2], p->w_column = w->strides[3];
  p->w_arg = node->input_count;
  (void)hr__scale_find(node, &p->scale_arg);
  p->part = p->x.channels % TILE == 0 ? TILE : p->x.channels;
  p->parts = p->x.channels / p->part;
  p->run = p->kernel[1] * p->part;
  p->vector_count = hr_divide_up(p->run, VECTOR), p->vector_tiles = hr_divide_up(p->vector_count, VECTORS);
  p->column_count = p->kernel[1] == 1 ? p->y.width : (p->y.width - 1) * p->stride[1] + p->kernel[1];
  p->column_step = p->kernel[1] == 1 ? p->part : p->stride[1] * p->part;
  p->block_rows = hr_min(p->y.height, hr_max(1, BLOCK / p->y.width));
  p->block_images = p->block_rows < p->y.height ? 1 : hr_max(1, BLOCK / (p->y.height * p->y.width));
  p->is_direct = p->kernel[0] == 1 && p->kernel[1] == 1 && (p->w_in == 1 || p->x.channels == 1);
  p->sum_pitch = p->is_direct ? p->w_out : p->parts * p->vector_count * VECTOR;
}

/* Divides the work; each slot packs x for itself. */
static void divide(hr_prepared *p) {
  p->out_groups = hr_min(hr_thread_count(), p->y.channels / (2 * OUTS_MIN));
  p->vector_groups = hr_min(hr_thread_count() / p->out_groups, p->parts * p->vector_tiles);
  int64_t rows = p->block_images * p->block_rows, pixels = rows * p->y.width;
  int64_t outs = hr_divide_up(p->y.channels, p->out_groups);
  int64_t x_rows = p->block_images * hr_min(p->x.height, (p->block_rows - 1) * p->stride[0] + p->kernel[0]);
  p->rows_most = rows;
  p->x_bytes = hr_round_up((x_rows * p->column_count * p->part + TILE) * (int64_t)sizeof(float), ALIGNMENT);
  p->y_bytes = hr_round_up((pixels * outs + hr_divide_up(outs, OUTS_MAX) * SPARE) * (int64_t)sizeof(float), ALIGNMENT);
  p->slot_bytes = hr_round_up(p->x_bytes + p->y_bytes + rows * (int64_t)sizeof(trace) +
                                  p->y.width * VECTORS * (int64_t)sizeof(__mmask16),
                              ALIGNMENT);
}

static bool can_take(const hr_node *node) {
  const hr_operand *y = &node->inputs[1];
  const int64_t *w = node->outputs[0].dims;
  int scale_arg;
  bool is_scaled_last = node->epilogue_count == 0 || w[2] * w[3] > 1; /* sums of one element are stored directly */
  return node->op == HR_OP_CONV_BACKWARD_WEIGHT && hr__images_are_supported(node) && hr__scale_find(node, &scale_arg) &&
         is_scaled_last && y->dims[1] >= 2 * OUTS_MIN;
}

/* oneDNN's kernels are good for a stride of 1. For larger strides these are about 1.5 times as fast; close cases are
 * decided by autotuning. */
static bool supports(const hr_program *program, const hr_node *node) {
  (void)program;
  if (!can_take(node)) {
    return false;
  }
  const int64_t *w = node->outputs[0].dims;
  return w[2] > 1 && w[3] > 1 && w[1] % TILE == 0 && node->ints[1] > 1 && node->ints[2] > 1;
}

static const char *const algorithms[] = {"tiles", NULL};

/* Returns the bytes of workspace. */
static size_t plan(const hr_node *node, hr_prepared *p) {
  *p = (hr_prepared){0};
  describe(node, p);
  divide(p);
  size_t sums = p->is_direct ? 0 : (size_t)(p->kernel[0] * p->y.channels * p->sum_pitch) * sizeof(float);
  int64_t packed = hr_round_up(p->x_floats * (int64_t)sizeof(float), ALIGNMENT) +
                   hr_round_up(p->y_floats * (int64_t)sizeof(float), ALIGNMENT);
  return (size_t)(packed + p->out_groups * p->vector_groups * p->slot_bytes) + sums;
}

static hr_status prepare(const hr_program *program, const hr_node *node, int algorithm, void *queue,
                         hr_prepared **out_prepared, size_t *out_workspace_bytes) {
  (void)queue;
  if (algorithm != HR_ALGORITHM_OWN && (!can_take(node) || supports(program, node))) {
    return hr_status_make(HR_STATUS_UNIMPLEMENTED, "gradients: no algorithm for this operation");
  }
  hr_prepared *p = hr_malloc(sizeof *p);
  if (p == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "conv: no memory for a prepared gradient");
  }
  *out_workspace_bytes = plan(node, p);
  *out_prepared = p;
  return HR_OK;
}

static bool renumber(hr_prepared *p, const hr_program *program, const hr_node *node, size_t *out_workspace_bytes) {
  bool is_supported = supports(program, node);
  if (is_supported) {
    *out_workspace_bytes = plan(node, p);
  }
  return is_supported;
}

static bool needs_team(const hr_prepared *p) {
  return p->out_groups * p->vector_groups > 1;
}

static size_t footprint(const hr_prepared *p) {
  return sizeof *p;
}

const hr_provider HR_CPU_NAME(hr__gradients_provider) = {
    .name = "gradients",
    .is_apart = true,
    .open = open_provider,
    .runs = hr__provider_runs_weight_gradients,
    .supports = supports,
    .prepare = prepare,
    .renumber = renumber,
    .algorithms = algorithms,
    .needs_team = needs_team,
    .run = run,
    .footprint = footprint,
    .release = hr__provider_release,
};

#else

const hr_provider HR_CPU_NAME(hr__gradients_provider) = {.name = "gradients", .open = open_provider};

#endif
