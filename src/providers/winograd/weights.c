/* weights.c: gradients of the weights of 3 x 3 windows with 16 multiplications where a direct sum has 36: the algorithm of winograd.c
 * turned around (transforms.c).
 *
 *   for each part of the tiles, whose v and q stay in the last cache:
 *     for each tile:   v[panel][point][tile][in] = transform of its 4 x 4 input
 *                      q[panel][point][tile][out] = transform of its 2 x 2 gradients
 *     for each unit, some output channels by a panel of up to 64 input channels (a thread's at a time):
 *       for some tiles, for each point:   m[point][out][in] += sum over tiles of q * v
 *       dw[out][in] += transform of m
 *
 * Numbers: the error is about that of a direct sum whose terms are as large as the largest tap's of the channels. Where a result is not
 * finite (an infinity goes into a difference, a sum overflows on the way) all are made again, directly, so that infinities stay where
 * they are, and what lies outside of an image does no harm. Each element is made in one order, whatever threads and layouts are.
 *
 * Takes f32, steps and dilations of one, one group, on processors whose vectors have 16 floats, where the direct sum is slower (pays);
 * the rest goes to the next provider. Activations that don't lie channels-last are brought there.
 */
#include <stdatomic.h>
#include <string.h>

#include "base/allocator.h"
#include "base/integer.h"
#include "base/thread.h"
#include "providers/provider.h"
#include "providers/wide_images.h"
#include "providers/winograd/winograd.h"

static hr_status open_provider(void) {
  return hr__wide_vectors_check("winograd-weights");
}

#if defined(__x86_64__)

enum {
  VECTOR = HR__WIDE,
  PANEL = HR__WINOGRAD_PANEL,
  POINTS = HR__WINOGRAD_POINTS,
  SIDE = HR__WINOGRAD_SIDE,
  RESULTS = HR__WINOGRAD_RESULTS,
  TAPS = HR__WINOGRAD_TAPS,
  ALL_TAPS = TAPS * TAPS,
  PART_BYTES = 8 << 20, /* of v and q */
  CHUNK_TILES = 128,    /* whose v of a point stays in the first cache, or nearly */
  ROWS_MIN = 12,        /* output channels that are worth a unit */
  SPARE = 16            /* floats between points, so that they don't meet in one set of the cache */
};

/* Channels of x or dy in panels of a few vectors each. */
typedef struct panels {
  int64_t channels, vectors, count;
} panels;

struct hr_prepared {
  hr__images x_given, y_given, x, y; /* as they lie, and as they are read */
  int64_t images, padding[2];
  int64_t w_offset, w_out, w_in, w_row, w_column; /* of the result */
  int64_t tiles[2];                               /* of an image */
  panels ins, outs;
  int64_t slots;                    /* threads */
  int64_t rows;                     /* output channels of a unit, at most */
  int64_t units_of_panel;           /* of output channels */
  int64_t part_tiles, chunk_tiles;  /* at most */
  int64_t v_floats, q_floats;       /* of a part */
  int64_t slot_floats, zero_floats; /* m; what lies outside of the image */
  int64_t x_floats, y_floats;       /* packed; 0: read as they lie */
  int w_arg;
};

typedef struct call {
  const hr_prepared *p;
  const float *x, *y, *zeros;
  float *w, *v, *q, *slots;
  int64_t begin, end; /* the part's tiles */
  atomic_bool is_odd; /* some result is not finite */
} call;

/* ---- panels ---- */

static panels panels_of(int64_t channels) {
  int64_t vectors = hr_divide_up(channels, VECTOR);
  return (panels){channels, vectors, hr_divide_up(vectors, HR__WINOGRAD_VECTORS)};
}

static int64_t panel_begin(const panels *p, int64_t panel) {
  return p->vectors * panel / p->count * VECTOR;
}

static int64_t panel_width(const panels *p, int64_t panel) {
  return panel_begin(p, panel + 1) - panel_begin(p, panel);
}

static int64_t panel_channels(const panels *p, int64_t panel) {
  return hr_min(panel_begin(p, panel + 1), p->channels) - panel_begin(p, panel);
}

/* From point to point of a panel of `width` channels, in floats. */
static int64_t point_step(const hr_prepared *p, int64_t width) {
  return p->part_tiles * width + SPARE;
}

/* Where a panel begins among the transformed. */
static int64_t panel_offset(const hr_prepared *p, const panels *of, int64_t panel) {
  return POINTS * (p->part_tiles * panel_begin(of, panel) + panel * SPARE);
}

/* ---- tiles ---- */

/* Pixels of a square of `side` by `side`, from a channel on; zeros outside of the image. */
static void find_pixels(const hr__images *x, const float *image, const float *zeros, int64_t top, int64_t left,
                        int side, int64_t channel, const float **pixels) {
  for (int i = 0; i < side * side; ++i) {
    int64_t row = top + i / side, column = left + i % side;
    bool is_inside = row >= 0 && row < x->height && column >= 0 && column < x->width;
    pixels[i] = is_inside ? image + row * x->row_stride + column * x->column_stride + channel : zeros;
  }
}

static void take_tile(const call *c, int64_t number) {
  const hr_prepared *p = c->p;
  int64_t image = number / p->tiles[1] / p->tiles[0], at = number - c->begin;
  int64_t row = number / p->tiles[1] % p->tiles[0] * RESULTS, column = number % p->tiles[1] * RESULTS;
  const float *pixels[POINTS];
  for (int64_t i = 0; i < p->ins.count; ++i) {
    int64_t first = panel_begin(&p->ins, i), width = panel_width(&p->ins, i);
    find_pixels(&p->x, c->x + image * p->x.image_stride, c->zeros, row - p->padding[0], column - p->padding[1], SIDE,
                first, pixels);
    hr__winograd_take(pixels, panel_channels(&p->ins, i), c->v + panel_offset(p, &p->ins, i) + at * width,
                      point_step(p, width));
  }
  for (int64_t i = 0; i < p->outs.count; ++i) {
    int64_t first = panel_begin(&p->outs, i), width = panel_width(&p->outs, i);
    find_pixels(&p->y, c->y + image * p->y.image_stride, c->zeros, row, column, RESULTS, first, pixels);
    hr__winograd_take_gradients(pixels, panel_channels(&p->outs, i), c->q + panel_offset(p, &p->outs, i) + at * width,
                                point_step(p, width));
  }
}

static void take_tiles(void *arg, int64_t begin, int64_t end, int worker) {
  (void)worker;
  const call *c = arg;
  for (int64_t i = begin; i < end; ++i) {
    take_tile(c, c->begin + i);
  }
}

/* ---- results ---- */

/* The taps of up to 16 input channels of an output channel, to their places, or added to what is there. */
WIDE_INLINE void store_taps(const hr_prepared *p, float *w, const __m512 taps[ALL_TAPS], int64_t channels, bool adds) {
  if (p->w_in == 1) {
    __mmask16 mask = hr__wide_mask(channels);
    for (int i = 0; i < ALL_TAPS; ++i) {
      float *to = w + i / TAPS * p->w_row + i % TAPS * p->w_column;
      __m512 before = _mm512_maskz_loadu_ps(adds ? mask : 0, to);
      _mm512_mask_storeu_ps(to, mask, adds ? _mm512_add_ps(before, taps[i]) : taps[i]);
    }
    return;
  }
  __m512 windows[VECTOR];
  for (int i = 0; i < VECTOR; ++i) {
    windows[i] = i < ALL_TAPS ? taps[i] : _mm512_setzero_ps();
  }
  hr__wide_transpose(windows);
  bool is_dense = p->w_column == 1 && p->w_row == TAPS;
  const __mmask16 mask = (1 << ALL_TAPS) - 1;
  for (int64_t in = 0; in < channels; ++in, w += p->w_in) {
    if (is_dense) {
      __m512 before = _mm512_maskz_loadu_ps(adds ? mask : 0, w);
      _mm512_mask_storeu_ps(w, mask, adds ? _mm512_add_ps(before, windows[in]) : windows[in]);
      continue;
    }
    float window[VECTOR];
    _mm512_storeu_ps(window, windows[in]);
    for (int i = 0; i < ALL_TAPS; ++i) {
      float *to = w + i / TAPS * p->w_row + i % TAPS * p->w_column;
      *to = adds ? *to + window[i] : window[i];
    }
  }
}

/* Output channels [out, out + rows) by a panel of input channels; false: some are not finite. */
WIDE static bool give_unit(const call *c, int64_t panel, int64_t out, int64_t rows, const float *m) {
  const hr_prepared *p = c->p;
  int64_t first = panel_begin(&p->ins, panel), channels = panel_channels(&p->ins, panel);
  bool is_finite = true;
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t i = 0; i < channels; i += VECTOR) {
      __m512 taps[ALL_TAPS];
      int64_t count = hr_min(VECTOR, channels - i);
      is_finite &= hr__winograd_give_taps(m + row * PANEL + i, p->rows * PANEL + SPARE, count, taps);
      store_taps(p, c->w + (out + row) * p->w_out + (first + i) * p->w_in, taps, count, c->begin > 0);
    }
  }
  return is_finite;
}

static void run_unit(call *c, int64_t unit, float *m) {
  const hr_prepared *p = c->p;
  int64_t in_panel = unit % p->ins.count, part = unit / p->ins.count;
  int64_t out_panel = part / p->units_of_panel, share = part % p->units_of_panel;
  int64_t outs = panel_channels(&p->outs, out_panel), width = panel_width(&p->ins, in_panel);
  int64_t row = outs * share / p->units_of_panel, rows = outs * (share + 1) / p->units_of_panel - row;
  int64_t out_width = panel_width(&p->outs, out_panel), tiles = c->end - c->begin;
  int64_t chunks = hr_divide_up(tiles, p->chunk_tiles);
  const float *v = c->v + panel_offset(p, &p->ins, in_panel), *q = c->q + panel_offset(p, &p->outs, out_panel) + row;
  hr__winograd_product product = {.v_step = 1, .v_next = out_width, .m_step = PANEL, .tiles = rows};
  product.vectors = (int)(width / VECTOR);
  for (int64_t chunk = 0; chunk < chunks && rows > 0; ++chunk) {
    int64_t first = tiles * chunk / chunks;
    product.depth = tiles * (chunk + 1) / chunks - first, product.adds = chunk > 0;
    for (int64_t point = 0; point < POINTS; ++point) {
      product.u = v + point * point_step(p, width) + first * width;
      product.v = q + point * point_step(p, out_width) + first * out_width;
      product.m = m + point * (p->rows * PANEL + SPARE);
      product.ahead = (const char *)product.u; /* nothing is far */
      hr__winograd_multiply(&product);
    }
  }
  if (!give_unit(c, in_panel, panel_begin(&p->outs, out_panel) + row, rows, m)) {
    atomic_store_explicit(&c->is_odd, true, memory_order_relaxed);
  }
}

static int64_t count_units(const hr_prepared *p) {
  return p->outs.count * p->units_of_panel * p->ins.count;
}

static void run_slots(void *arg, int64_t begin, int64_t end, int worker) {
  (void)worker;
  call *c = arg;
  const hr_prepared *p = c->p;
  for (int64_t slot = begin; slot < end; ++slot) {
    int64_t last = count_units(p) * (slot + 1) / p->slots;
    for (int64_t unit = count_units(p) * slot / p->slots; unit < last; ++unit) {
      run_unit(c, unit, c->slots + slot * p->slot_floats);
    }
  }
}

/* ---- directly ---- */

/* Adds a pixel's products with its window; what lies outside of the image is skipped. */
WIDE_INLINE void add_window(const hr_prepared *p, const float *image, int64_t row, int64_t column, __m512 dy,
                            __mmask16 mask, __m512 taps[ALL_TAPS]) {
  for (int i = 0; i < ALL_TAPS; ++i) {
    int64_t x_row = row - p->padding[0] + i / TAPS, x_column = column - p->padding[1] + i % TAPS;
    if (x_row >= 0 && x_row < p->x.height && x_column >= 0 && x_column < p->x.width) {
      const float *from = image + x_row * p->x.row_stride + x_column * p->x.column_stride;
      taps[i] = _mm512_fmadd_ps(dy, _mm512_maskz_loadu_ps(mask, from), taps[i]);
    }
  }
}

/* Output channels [begin, end) as direct sums. */
WIDE static void sum_directly(void *arg, int64_t begin, int64_t end, int worker) {
  (void)worker;
  const call *c = arg;
  const hr_prepared *p = c->p;
  int64_t plane = p->y.height * p->y.width, pixels = p->images * plane;
  for (int64_t out = begin; out < end; ++out) {
    for (int64_t in = 0; in < p->x.channels; in += VECTOR) {
      int64_t channels = hr_min(VECTOR, p->x.channels - in);
      __m512 taps[ALL_TAPS];
      for (int i = 0; i < ALL_TAPS; ++i) {
        taps[i] = _mm512_setzero_ps();
      }
      for (int64_t i = 0; i < pixels; ++i) {
        int64_t image = i / plane, row = i % plane / p->y.width, column = i % p->y.width;
        float dy = c->y[image * p->y.image_stride + row * p->y.row_stride + column * p->y.column_stride + out];
        add_window(p, c->x + image * p->x.image_stride + in, row, column, _mm512_set1_ps(dy), hr__wide_mask(channels),
                   taps);
      }
      store_taps(p, c->w + out * p->w_out + in * p->w_in, taps, channels, false);
    }
  }
}

/* ---- a run ---- */

static int64_t count_tiles(const hr_prepared *p) {
  return p->images * p->tiles[0] * p->tiles[1];
}

/* Images as they are read. */
static const float *pack(const hr__images *x, int64_t images, const float *from, float *to) {
  if (hr__winograd_lies_well(x)) {
    return from;
  }
  hr__winograd_pack(x, images, from, to);
  return to;
}

static hr_status run(hr_prepared *p, void *const *args, void *workspace, void *queue) {
  (void)queue;
  call c = {.p = p, .x = (const float *)args[0] + p->x_given.offset, .y = (const float *)args[1] + p->y_given.offset};
  float *zeros = workspace;
  c.w = (float *)args[p->w_arg] + p->w_offset;
  c.zeros = zeros, c.v = zeros + p->zero_floats, c.q = c.v + p->v_floats, c.slots = c.q + p->q_floats;
  memset(zeros, 0, (size_t)p->zero_floats * sizeof *zeros);
  float *packed = c.slots + p->slots * p->slot_floats;
  c.x = pack(&p->x_given, p->images, c.x, packed);
  c.y = pack(&p->y_given, p->images, c.y, packed + p->x_floats);
  int64_t tiles = count_tiles(p), parts = hr_divide_up(tiles, p->part_tiles);
  for (int64_t part = 0; part < parts; ++part) {
    c.begin = tiles * part / parts, c.end = tiles * (part + 1) / parts;
    hr_parallel_for(c.end - c.begin, 1, take_tiles, &c);
    hr_parallel_for(p->slots, 1, run_slots, &c);
  }
  if (atomic_load(&c.is_odd)) {
    hr_parallel_for(p->y.channels, 1, sum_directly, &c);
  }
  return NULL;
}

/* ---- preparing ---- */

static void describe(const hr_node *node, hr_prepared *p) {
  const hr_operand *w = &node->outputs[0];
  p->x_given = hr__images_of(&node->inputs[0]), p->y_given = hr__images_of(&node->inputs[1]);
  p->x = hr__winograd_lies_well(&p->x_given) ? p->x_given : hr__winograd_packed(&p->x_given);
  p->y = hr__winograd_lies_well(&p->y_given) ? p->y_given : hr__winograd_packed(&p->y_given);
  p->images = node->inputs[0].dims[0];
  for (int d = 0; d < 2; ++d) {
    p->padding[d] = node->ints[3 + d];
  }
  p->w_offset = w->offset;
  p->w_out = w->strides[0], p->w_in = w->strides[1], p->w_row = w->strides[2], p->w_column = w->strides[3];
  p->w_arg = node->input_count;
  p->tiles[0] = hr_divide_up(p->y.height, RESULTS), p->tiles[1] = hr_divide_up(p->y.width, RESULTS);
  p->ins = panels_of(p->x.channels), p->outs = panels_of(p->y.channels);
}

/* Shares the work out; how depends on threads, what is added to what does not. */
static void divide(hr_prepared *p) {
  int64_t tiles = count_tiles(p), channels = (p->ins.vectors + p->outs.vectors) * VECTOR;
  int64_t most = hr_max(CHUNK_TILES, PART_BYTES / (channels * POINTS * (int64_t)sizeof(float)));
  int64_t widest = hr_min(PANEL, p->y.channels);
  p->part_tiles = hr_divide_up(tiles, hr_divide_up(tiles, most));
  p->chunk_tiles = CHUNK_TILES;
  p->slots = hr_thread_count();
  p->units_of_panel = hr_divide_up(p->slots, p->outs.count * p->ins.count);
  p->units_of_panel = hr_max(1, hr_min(p->units_of_panel, widest / ROWS_MIN));
  p->slots = hr_min(p->slots, count_units(p));
  p->rows = hr_divide_up(widest, p->units_of_panel);
  p->slot_floats = POINTS * (p->rows * PANEL + SPARE);
  p->zero_floats = PANEL;
  p->v_floats = panel_offset(p, &p->ins, p->ins.count), p->q_floats = panel_offset(p, &p->outs, p->outs.count);
}

static bool can_take(const hr_node *node) {
  const int64_t *w = node->outputs[0].dims;
  return node->op == HR_OP_CONV_BACKWARD_WEIGHT && hr__images_are_taken(node) && node->post_count == 0 &&
         node->ints[1] == 1 && node->ints[2] == 1 && w[2] == TAPS && w[3] == TAPS;
}

/* Whether it takes 15 % fewer cycles than a direct sum in oneDNN, by a count for one core: products, both transforms for each tile and
 * channel, and the results. */
static bool pays(const hr_prepared *p) {
  double outs = (double)(p->outs.vectors * VECTOR), ins = (double)(p->ins.vectors * VECTOR);
  double tiles = (double)count_tiles(p), pixels = (double)(p->images * p->y.height * p->y.width);
  double rows = (double)p->y.channels, direct = pixels * ALL_TAPS * (double)p->x.channels * rows / 32;
  double own = tiles * (POINTS * ins * rows / 32 * 1.1 + 2.5 * (ins + outs) + 300) + ins * rows * 2;
  return own <= 0.85 * direct;
}

static bool supports(const hr_program *program, const hr_node *node) {
  (void)program;
  hr_prepared p = {0};
  if (!can_take(node)) {
    return false;
  }
  describe(node, &p);
  return pays(&p);
}

static hr_status prepare(const hr_program *program, const hr_node *node, int way, void *queue,
                         hr_prepared **out_prepared, size_t *out_workspace_bytes) {
  (void)program, (void)way, (void)queue;
  hr_prepared *p = hr_calloc(1, sizeof *p);
  if (p == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "conv: no memory for a prepared gradient");
  }
  describe(node, p);
  divide(p);
  p->x_floats = hr__winograd_packed_floats(&p->x_given, p->images);
  p->y_floats = hr__winograd_packed_floats(&p->y_given, p->images);
  int64_t floats = p->zero_floats + p->v_floats + p->q_floats + p->slots * p->slot_floats + p->x_floats + p->y_floats;
  *out_workspace_bytes = (size_t)floats * sizeof(float);
  *out_prepared = p;
  return NULL;
}

static bool needs_team(const hr_prepared *p) {
  return p->slots > 1;
}

static void release(hr_prepared *prepared) {
  hr_free(prepared);
}

const hr_provider hr__winograd_weights_provider = {
    .name = "winograd-weights",
    .open = open_provider,
    .supports = supports,
    .prepare = prepare,
    .needs_team = needs_team,
    .run = run,
    .release = release,
};

#else

const hr_provider hr__winograd_weights_provider = {.name = "winograd-weights", .open = open_provider};

#endif
