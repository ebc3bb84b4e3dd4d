/* weights.c: gradients of the weights of 3 x 3 windows with 16 multiplications instead of a direct sum's 36: the
 * reverse of winograd.c's algorithm (transforms.c).
 *
 *   for each unit, up to 64 output channels by as many input channels (a thread's):
 *     for some tiles, whose v and q stay in the thread's own cache:
 *       v[point][tile][in] = transform of a tile's 4 x 4 input
 *       q[point][tile][out] = transform of its 2 x 2 gradients
 *       for each point:   m[point][out][in] += sum over tiles of q * v
 *     dw[out][in] = transform of m
 *
 * The elements of a vector are input channels, or output channels if those are neighbours in the result, as in HWIO.
 * Then m is [point][in][out].
 *
 * Each unit computes its own transforms: that costs a tenth of the products, and threads exchange nothing.
 *
 * Numbers: the error is about that of a direct sum whose terms are as large as the largest tap's of the channels. If a
 * result is not finite (an infinity enters a difference, a sum overflows on the way) all are computed again, directly.
 * So infinities stay in place, and elements outside of an image do no harm. Each element has one order of additions,
 * independent of threads and layouts.
 *
 * Supports f32, strides and dilations of one, one group, on processors with vectors of 16 floats, if the direct sum is
 * slower (pays); the rest is left to the next provider. Activations that are not channels-last are packed first.
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

#if defined(HR_WIDE_VECTORS)

enum {
  VECTOR = HR__WIDE,
  PANEL = HR__WINOGRAD_PANEL,
  POINTS = HR__WINOGRAD_POINTS,
  SIDE = HR__WINOGRAD_SIDE,
  RESULTS = HR__WINOGRAD_RESULTS,
  TAPS = HR__WINOGRAD_TAPS,
  ALL_TAPS = TAPS * TAPS,
  CHUNK_TILES = 48, /* at a time */
  SPARE = 16        /* floats between points, so that they don't map to one set of the cache */
};

/* Channels of x or dy in panels of a few vectors each. */
typedef struct panels {
  int64_t channels, vectors, count;
} panels;

struct hr_prepared {
  hr__images x_given, y_given, x, y; /* in the operand's layout, and as read */
  int64_t images, padding[2];
  int64_t w_offset, w_out, w_in, w_row, w_column; /* of the result */
  bool has_out_lanes;
  int64_t tiles[2]; /* of an image */
  panels ins, outs;
  int64_t slots;                    /* threads */
  int64_t point_floats, sum_floats; /* from point to point of v and q, and of m */
  int64_t slot_floats;
  int64_t x_floats, y_floats; /* packed; 0: read in place */
  int w_arg, scale_arg;
};

typedef struct call {
  const hr_prepared *p;
  const float *x, *y, *zeros;
  float *w, *slots;
  float scale;
  atomic_bool is_odd; /* some result is not finite */
} call;

/* Some output channels by some input channels. */
typedef struct unit {
  int64_t in, ins, in_width, out, outs, out_width; /* widths: in whole vectors */
  float *v, *q, *m;
} unit;

/* The transformed channels of a unit that are lanes of vectors, or rows of m. */
typedef struct side {
  int64_t first, count, width, w_stride;
  const float *panel;
} side;

/* ---- panels ---- */

static panels panels_of(int64_t channels, int64_t count) {
  int64_t vectors = hr_divide_up(channels, VECTOR);
  return (panels){channels, vectors, hr_min(vectors, hr_max(count, hr_divide_up(vectors, HR__WINOGRAD_VECTORS)))};
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

/* ---- tiles ---- */

/* Tile `number` as the unit's tile `at`. */
static void take_tile(const call *c, const unit *u, int64_t number, int64_t at) {
  const hr_prepared *p = c->p;
  int64_t image = number / p->tiles[1] / p->tiles[0];
  int64_t row = number / p->tiles[1] % p->tiles[0] * RESULTS, column = number % p->tiles[1] * RESULTS;
  const float *pixels[POINTS];
  hr__winograd_find_pixels(&p->x, c->x + image * p->x.image_stride + u->in, c->zeros, row - p->padding[0],
                           column - p->padding[1], SIDE, pixels);
  hr__winograd_transform_input(pixels, u->ins, u->v + at * u->in_width, p->point_floats);
  hr__winograd_find_pixels(&p->y, c->y + image * p->y.image_stride + u->out, c->zeros, row, column, RESULTS, pixels);
  hr__winograd_transform_gradients(pixels, u->outs, u->q + at * u->out_width, p->point_floats);
}

/* ---- results ---- */

/* Stores the taps of up to 16 windows, `step` floats apart, scaled. */
WIDE_INLINE void store_taps(const call *c, float *w, int64_t step, __m512 taps[ALL_TAPS], int64_t channels) {
  const hr_prepared *p = c->p;
  for (int i = 0; i < ALL_TAPS; ++i) {
    taps[i] = _mm512_mul_ps(taps[i], _mm512_set1_ps(c->scale));
  }
  if (step == 1) {
    for (int i = 0; i < ALL_TAPS; ++i) {
      _mm512_mask_storeu_ps(w + i / TAPS * p->w_row + i % TAPS * p->w_column, hr__wide_mask(channels), taps[i]);
    }
    return;
  }
  __m512 windows[VECTOR];
  for (int i = 0; i < VECTOR; ++i) {
    windows[i] = i < ALL_TAPS ? taps[i] : _mm512_setzero_ps();
  }
  hr__wide_transpose(windows);
  bool is_dense = p->w_column == 1 && p->w_row == TAPS;
  for (int64_t i = 0; i < channels; ++i, w += step) {
    if (is_dense) {
      _mm512_mask_storeu_ps(w, (1 << ALL_TAPS) - 1, windows[i]);
      continue;
    }
    float window[VECTOR];
    _mm512_storeu_ps(window, windows[i]);
    for (int tap = 0; tap < ALL_TAPS; ++tap) {
      w[tap / TAPS * p->w_row + tap % TAPS * p->w_column] = window[tap];
    }
  }
}

static side side_of(const hr_prepared *p, const unit *u, bool is_lanes) {
  return p->has_out_lanes == is_lanes ? (side){u->out, u->outs, u->out_width, p->w_out, u->q}
                                      : (side){u->in, u->ins, u->in_width, p->w_in, u->v};
}

/* False: some are not finite. */
WIDE static bool give_unit(const call *c, const unit *u) {
  const hr_prepared *p = c->p;
  const side lanes = side_of(p, u, true), rows = side_of(p, u, false);
  bool is_finite = true;
  for (int64_t row = 0; row < rows.count; ++row) {
    for (int64_t i = 0; i < lanes.count; i += VECTOR) {
      __m512 taps[ALL_TAPS];
      int64_t count = hr_min(VECTOR, lanes.count - i);
      is_finite &= hr__winograd_give_taps(u->m + row * PANEL + i, p->sum_floats, count, taps);
      float *w = c->w + (rows.first + row) * rows.w_stride + (lanes.first + i) * lanes.w_stride;
      store_taps(c, w, lanes.w_stride, taps, count);
    }
  }
  return is_finite;
}

static int64_t count_tiles(const hr_prepared *p) {
  return p->images * p->tiles[0] * p->tiles[1];
}

static void run_unit(call *c, const unit *u) {
  const hr_prepared *p = c->p;
  int64_t tiles = count_tiles(p), chunks = hr_divide_up(tiles, CHUNK_TILES);
  const side lanes = side_of(p, u, true), rows = side_of(p, u, false);
  hr__winograd_product product = {.v_step = 1, .v_next = rows.width, .m_step = PANEL, .tiles = rows.count};
  product.vectors = (int)(lanes.width / VECTOR);
  for (int64_t chunk = 0; chunk < chunks; ++chunk) {
    int64_t first = tiles * chunk / chunks;
    product.depth = tiles * (chunk + 1) / chunks - first, product.adds = chunk > 0;
    for (int64_t i = 0; i < product.depth; ++i) {
      take_tile(c, u, first + i, i);
    }
    for (int64_t point = 0; point < POINTS; ++point) {
      product.u = lanes.panel + point * p->point_floats, product.v = rows.panel + point * p->point_floats;
      product.m = u->m + point * p->sum_floats;
      product.ahead = (const char *)product.u; /* nothing is far */
      hr__winograd_multiply(&product);
    }
  }
  if (!give_unit(c, u)) {
    atomic_store_explicit(&c->is_odd, true, memory_order_relaxed);
  }
}

static int64_t count_units(const hr_prepared *p) {
  return p->outs.count * p->ins.count;
}

static void run_slots(void *arg, int64_t begin, int64_t end, int worker) {
  (void)worker;
  call *c = arg;
  const hr_prepared *p = c->p;
  for (int64_t slot = begin; slot < end; ++slot) {
    int64_t first = count_units(p) * slot / p->slots, last = count_units(p) * (slot + 1) / p->slots;
    unit u = {.v = c->slots + slot * p->slot_floats};
    u.q = u.v + POINTS * p->point_floats, u.m = u.q + POINTS * p->point_floats;
    for (int64_t i = first; i < last; ++i) {
      int64_t in = i % p->ins.count, out = i / p->ins.count;
      u.in = panel_begin(&p->ins, in), u.ins = panel_channels(&p->ins, in), u.in_width = panel_width(&p->ins, in);
      u.out = panel_begin(&p->outs, out), u.outs = panel_channels(&p->outs, out),
      u.out_width = panel_width(&p->outs, out);
      run_unit(c, &u);
    }
  }
}

/* ---- directly ---- */

/* Adds a pixel's products with its window; elements outside of the image are skipped. */
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
      store_taps(c, c->w + out * p->w_out + in * p->w_in, p->w_in, taps, channels);
    }
  }
}

/* ---- a run ---- */

/* Images as they are read. */
static const float *pack(const hr__images *x, int64_t images, const float *from, float *to) {
  if (hr__images_are_channels_last(x)) {
    return from;
  }
  hr__images_pack(x, images, from, to);
  return to;
}

static hr_status run(hr_prepared *p, void *const *args, void *workspace, void *queue) {
  (void)queue;
  call c = {.p = p, .x = (const float *)args[0] + p->x_given.offset, .y = (const float *)args[1] + p->y_given.offset};
  float *zeros = workspace, *packed = zeros + PANEL;
  memset(zeros, 0, PANEL * sizeof *zeros);
  c.w = (float *)args[p->w_arg] + p->w_offset;
  c.scale = hr__scale_of(args, p->scale_arg);
  c.zeros = zeros, c.slots = packed + p->x_floats + p->y_floats;
  c.x = pack(&p->x_given, p->images, c.x, packed);
  c.y = pack(&p->y_given, p->images, c.y, packed + p->x_floats);
  hr_parallel_for(p->slots, 1, run_slots, &c);
  if (atomic_load(&c.is_odd)) {
    hr_parallel_for(p->y.channels, 1, sum_directly, &c);
  }
  return HR_OK;
}

/* ---- preparing ---- */

static void describe(const hr_node *node, hr_prepared *p) {
  const hr_operand *w = &node->outputs[0];
  p->x_given = hr__images_of(&node->inputs[0]), p->y_given = hr__images_of(&node->inputs[1]);
  p->x = hr__images_are_channels_last(&p->x_given) ? p->x_given : hr__images_packed(&p->x_given);
  p->y = hr__images_are_channels_last(&p->y_given) ? p->y_given : hr__images_packed(&p->y_given);
  p->images = node->inputs[0].dims[0];
  for (int d = 0; d < 2; ++d) {
    p->padding[d] = node->ints[3 + d];
  }
  p->w_offset = w->offset;
  p->w_out = w->strides[0], p->w_in = w->strides[1], p->w_row = w->strides[2], p->w_column = w->strides[3];
  p->has_out_lanes = p->w_out == 1 && p->w_in != 1;
  p->w_arg = node->input_count;
  (void)hr__scale_find(node, &p->scale_arg);
  p->tiles[0] = hr_divide_up(p->y.height, RESULTS), p->tiles[1] = hr_divide_up(p->y.width, RESULTS);
  p->ins = panels_of(p->x.channels, 1), p->outs = panels_of(p->y.channels, 1);
}

/* Divides the work: as many units for each thread, of fewer output channels if there are few. */
static void divide(hr_prepared *p) {
  int64_t threads = hr_thread_count();
  p->outs = panels_of(p->y.channels, hr_divide_up(hr_round_up(count_units(p), threads), p->ins.count));
  p->slots = hr_min(threads, count_units(p));
  p->point_floats = CHUNK_TILES * PANEL + SPARE, p->sum_floats = PANEL * PANEL + SPARE;
  p->slot_floats = POINTS * (2 * p->point_floats + p->sum_floats);
  p->x_floats = hr__images_packed_floats(&p->x_given, p->images);
  p->y_floats = hr__images_packed_floats(&p->y_given, p->images);
}

static bool can_take(const hr_node *node) {
  const int64_t *w = node->outputs[0].dims;
  int scale_arg;
  return node->op == HR_OP_CONV_BACKWARD_WEIGHT && hr__images_are_supported(node) && hr__scale_find(node, &scale_arg) &&
         node->ints[1] == 1 && node->ints[2] == 1 && w[2] == TAPS && w[3] == TAPS;
}

/* True if it takes 15 % fewer cycles than a direct sum in oneDNN, by an estimate for one core: products, both
 * transforms for each tile, channel and unit, and the results. */
static bool pays(const hr_prepared *p) {
  double outs = (double)(p->outs.vectors * VECTOR), ins = (double)(p->ins.vectors * VECTOR);
  double tiles = (double)count_tiles(p), pixels = (double)(p->images * p->y.height * p->y.width);
  double rows = (double)p->y.channels, direct = pixels * ALL_TAPS * (double)p->x.channels * rows / 32;
  double own = tiles * (POINTS * ins * rows / 32 * 1.1 +
                        2.5 * (ins * (double)p->outs.count + outs * (double)p->ins.count) + 300) +
               ins * rows * 2;
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

static hr_status prepare(const hr_program *program, const hr_node *node, int algorithm, void *queue,
                         hr_prepared **out_prepared, size_t *out_workspace_bytes) {
  (void)program, (void)algorithm, (void)queue;
  hr_prepared *p = hr_calloc(1, sizeof *p);
  if (p == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "conv: no memory for a prepared gradient");
  }
  describe(node, p);
  divide(p);
  int64_t floats = PANEL + p->x_floats + p->y_floats + p->slots * p->slot_floats;
  *out_workspace_bytes = (size_t)floats * sizeof(float);
  *out_prepared = p;
  return HR_OK;
}

static bool needs_team(const hr_prepared *p) {
  return p->slots > 1;
}

static size_t footprint(const hr_prepared *p) {
  return sizeof *p;
}

const hr_provider HR_CPU_NAME(hr__winograd_weights_provider) = {
    .name = "winograd-weights",
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

const hr_provider HR_CPU_NAME(hr__winograd_weights_provider) = {.name = "winograd-weights", .open = open_provider};

#endif
