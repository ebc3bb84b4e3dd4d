/* winograd.c: convolutions of 3 x 3 windows with 16 multiplications instead of a direct sum's 36 (A. Lavin, S. Gray,
 * Fast algorithms for convolutional neural networks, 2016: F(2x2, 3x3)).
 *
 * 2 x 2 results depend on 4 x 4 inputs. Both transforms are sums and differences; that of weights is cached while they
 * stay the same (runtime/cached_weights.h). Between the transforms, each of the 16 points is a product of matrices,
 * tiles by channels:
 *
 *   for each share of tiles and panels (a thread's):
 *     for some tiles, whose v stays in the L2 cache:
 *       v[point][tile][in] = transform of the tile's input
 *       for each panel of up to 64 output channels:
 *         for each point:
 *           m[point][tile][out] = sum over in of v * u[panel][point][in][out]
 *         for each tile:
 *           results = transform of m, bias, epilogues; stored
 *
 * Numbers: along one dim y0 uses d0, d1, d2 alone, and y1 uses d1, d2, d3, so a result depends only on its own window:
 * neither NaN nor the rounding of large neighbours spreads. The error is about that of a direct sum. Sums that are not
 * finite are computed again, directly (results.c), so that infinities are preserved. Larger tiles (4x4 results) would
 * save more, but with ten times the error, and results that depend on their neighbours' windows.
 *
 * The gradient of data is a convolution of dy with the weights rotated by 180 degrees and their channels exchanged.
 * Activations that are not channels-last are packed, and results unpacked. Every element has one order of additions,
 * independent of threads, layouts and epilogues.
 *
 * Supports f32, strides and dilations of one, one group, processors with vectors of 16 floats. Other nodes, and those
 * for which the direct sum is as fast (pays), are left to the next provider.
 */
#include "providers/winograd/winograd.h"

#include <string.h>

#include "base/allocator.h"
#include "base/integer.h"
#include "base/thread.h"
#include "providers/provider.h"
#include "providers/wide_images.h"
#include "runtime/cached_weights.h"

static hr_status open_provider(void) {
  return hr__wide_vectors_check("winograd");
}

#if defined(HR_WIDE_VECTORS)

enum {
  VECTOR = HR__WIDE,
  VECTORS = HR__WINOGRAD_VECTORS,
  PANEL = HR__WINOGRAD_PANEL,
  POINTS = HR__WINOGRAD_POINTS,
  SIDE = HR__WINOGRAD_SIDE,
  RESULTS = HR__WINOGRAD_RESULTS,
  TAPS = HR__WINOGRAD_TAPS,
  SHARE_TILES = 16,        /* that justify reading all weights on one more core */
  CHUNK_TILES = 40,        /* that justify reading all weights once more */
  CHUNK_BYTES = 640 << 10, /* of v and m */
  SPARE = 16,              /* floats between points, so that they don't map to one set of the cache */
  RECIPE_WORDS = 9
};

struct hr_prepared {
  hr__images x, y; /* input and output of the sums; dy and dx for gradients of data */
  hr__windows w;
  int64_t images;
  int64_t vectors; /* of output channels */
  int64_t panels, panel_shares, tile_shares, chunk_tiles;
  int64_t tiles[2]; /* of an image */
  int64_t depth;    /* input channels, in whole vectors */
  bool packs_x, packs_y;
  int64_t u_floats, x_floats, y_floats, share_floats, number_floats;
  int y_arg;
  uint64_t stamp, recipe[RECIPE_WORDS];
  hr__winograd_epilogues epilogues; /* a prepared convolution has memory for its own count */
};

typedef struct call {
  const hr_prepared *p;
  hr__images x, y; /* in place, or packed */
  const float *from, *u, *zeros;
  float *to, *made_u, *shares, *packed;
  hr__winograd_weight weight;
  hr__winograd_numbers numbers;
} call;

/* ---- weights ---- */

static int64_t panel_begin(const hr_prepared *p, int64_t panel) {
  return p->vectors * panel / p->panels;
}

/* From point to point of a panel's weights. */
static int64_t point_floats(const hr_prepared *p, int64_t panel) {
  return (panel_begin(p, panel + 1) - panel_begin(p, panel)) * VECTOR * p->x.channels + SPARE;
}

static int64_t panel_offset(const hr_prepared *p, int64_t panel) {
  return POINTS * (panel_begin(p, panel) * VECTOR * p->x.channels + panel * SPARE);
}

/* Transforms vectors [begin, end) of output channels and stores them in the panels. */
static void transform_vectors(void *arg, int64_t begin, int64_t end, int worker) {
  (void)worker;
  const call *c = arg;
  const hr_prepared *p = c->p;
  int64_t panel = 0;
  for (int64_t v = begin; v < end; v = hr_min(end, panel_begin(p, panel))) {
    while (panel_begin(p, panel + 1) <= v) {
      ++panel;
    }
    int64_t first = panel_begin(p, panel), last = panel_begin(p, panel + 1);
    float *u = c->made_u + panel_offset(p, panel) + (v - first) * VECTOR;
    hr__winograd_transform(&c->weight, v * VECTOR, hr_min(hr_min(last, end) * VECTOR, p->y.channels) - v * VECTOR, u,
                           (last - first) * VECTOR, point_floats(p, panel));
    ++panel;
  }
}

static const float *make_weights(call *c, float *memory) {
  c->made_u = memory;
  hr_parallel_for(c->p->vectors, 1, transform_vectors, c);
  return memory;
}

/* Transformed weights: the cached ones, or new ones. *out_cached has to be released when the run ends. */
static void find_weights(hr_prepared *p, call *c, float *workspace, hr_cached_weights **out_cached) {
  bool is_new;
  hr_cached_weights *cached =
      hr__cached_weights_get(p->stamp, p->recipe, RECIPE_WORDS, (size_t)p->u_floats * sizeof(float), &is_new);
  if (is_new) {
    make_weights(c, hr__cached_weights_data(cached));
    hr__cached_weights_publish(cached);
  }
  c->u = cached != NULL ? hr__cached_weights_data(cached) : make_weights(c, workspace);
  *out_cached = cached;
}

/* ---- tiles ---- */

/* The offsets of a tile's results and its input. */
typedef struct tile {
  const call *c;
  int64_t image, row, column; /* of the output */
} tile;

static tile find_tile(const call *c, int64_t number) {
  const int64_t *tiles = c->p->tiles;
  return (tile){c, number / tiles[1] / tiles[0], number / tiles[1] % tiles[0] * RESULTS, number % tiles[1] * RESULTS};
}

/* The tile's input; zeros outside of the image. */
static void find_pixels(const tile *t, const float *pixels[POINTS]) {
  const hr__images *x = &t->c->x;
  int64_t top = t->row - t->c->p->w.padding[0], left = t->column - t->c->p->w.padding[1];
  const float *image = t->c->from + t->image * x->image_stride;
  hr__winograd_find_pixels(x, image, t->c->zeros, top, left, SIDE, pixels);
}

/* A result as a direct sum; elements outside of the image are skipped. NaN stays NaN. */
static float sum_again(const void *ctx, int pixel, int64_t channel) {
  const tile *t = ctx;
  const call *c = t->c;
  const hr__images *x = &c->x;
  const float *image = c->from + t->image * x->image_stride;
  float sum = 0;
  for (int i = 0; i < TAPS * TAPS && sum == sum; ++i) {
    int64_t row = t->row + pixel / RESULTS - c->p->w.padding[0] + i / TAPS;
    int64_t column = t->column + pixel % RESULTS - c->p->w.padding[1] + i % TAPS;
    if (row < 0 || row >= x->height || column < 0 || column >= x->width) {
      continue;
    }
    const float *from = image + row * x->row_stride + column * x->column_stride;
    const hr__winograd_weight *weight = &c->weight;
    const float *w =
        weight->w + channel * weight->out_stride + i / TAPS * weight->row_stride + i % TAPS * weight->column_stride;
    for (int64_t in = 0; in < weight->ins && sum == sum; ++in) {
      sum = __builtin_fmaf(from[in], w[in * weight->in_stride], sum);
    }
  }
  return sum;
}

/* ---- shares ---- */

/* A thread's share: tiles [first, last), whose v and m are in the thread's own memory. */
typedef struct share {
  const call *c;
  int64_t first, last;
  float *v, *m;
  int64_t v_point, m_point; /* floats from point to point */
} share;

static void take_tiles(const share *s) {
  const hr_prepared *p = s->c->p;
  for (int64_t i = s->first; i < s->last; ++i) {
    const float *pixels[POINTS];
    tile t = find_tile(s->c, i);
    find_pixels(&t, pixels);
    hr__winograd_transform_input(pixels, p->x.channels, s->v + (i - s->first) * p->depth, s->v_point);
  }
}

static void give_tiles(const share *s, int64_t channel, int64_t channels) {
  const hr_prepared *p = s->c->p;
  const hr__images *y = &s->c->y;
  for (int64_t i = s->first; i < s->last; ++i) {
    tile t = find_tile(s->c, i);
    hr__winograd_place place = {.channel = channel, .channels = channels, .again = sum_again, .ctx = &t};
    float *image = s->c->to + t.image * y->image_stride + channel;
    for (int k = 0; k < RESULTS * RESULTS; ++k) {
      int64_t row = t.row + k / RESULTS, column = t.column + k % RESULTS;
      bool is_inside = row < y->height && column < y->width;
      place.y[k] = is_inside ? image + row * y->row_stride + column * y->column_stride : NULL;
    }
    hr__winograd_give(s->m + (i - s->first) * PANEL, s->m_point, &p->epilogues, &s->c->numbers, &place);
  }
}

static void run_panel(const share *s, int64_t panel) {
  const hr_prepared *p = s->c->p;
  int64_t first = panel_begin(p, panel), vectors = panel_begin(p, panel + 1) - first;
  int64_t step = point_floats(p, panel);
  const float *u = s->c->u + panel_offset(p, panel), *end = s->c->u + p->u_floats;
  hr__winograd_product product = {.v_step = p->depth, .v_next = 1, .m_step = PANEL, .depth = p->x.channels};
  product.tiles = s->last - s->first, product.vectors = (int)vectors;
  for (int64_t point = 0; point < POINTS; ++point, u += step) {
    product.v = s->v + point * s->v_point, product.u = u, product.m = s->m + point * s->m_point;
    product.ahead = (const char *)(u + step);
    product.ahead_bytes = hr_min(step, end - u - step) * (int64_t)sizeof(float);
    hr__winograd_multiply(&product);
  }
  give_tiles(s, first * VECTOR, hr_min(vectors * VECTOR, p->y.channels - first * VECTOR));
}

static int64_t count_tiles(const hr_prepared *p) {
  return p->images * p->tiles[0] * p->tiles[1];
}

static void run_share(const call *c, int64_t number) {
  const hr_prepared *p = c->p;
  int64_t panel_share = number % p->panel_shares, tile_share = number / p->panel_shares;
  int64_t begin = count_tiles(p) * tile_share / p->tile_shares;
  int64_t end = count_tiles(p) * (tile_share + 1) / p->tile_shares;
  int64_t panel = p->panels * panel_share / p->panel_shares;
  int64_t panel_end = p->panels * (panel_share + 1) / p->panel_shares;
  int64_t chunks = hr_divide_up(end - begin, p->chunk_tiles);
  share s = {.c = c, .v = c->shares + number * p->share_floats};
  s.v_point = p->chunk_tiles * p->depth + SPARE, s.m_point = p->chunk_tiles * PANEL + SPARE;
  s.m = s.v + POINTS * s.v_point;
  for (int64_t chunk = 0; chunk < chunks; ++chunk) {
    s.first = begin + (end - begin) * chunk / chunks, s.last = begin + (end - begin) * (chunk + 1) / chunks;
    take_tiles(&s);
    for (int64_t i = panel; i < panel_end; ++i) {
      run_panel(&s, i);
    }
  }
}

static void run_shares(void *arg, int64_t begin, int64_t end, int worker) {
  (void)worker;
  for (int64_t number = begin; number < end; ++number) {
    run_share(arg, number);
  }
}

static hr_status run(hr_prepared *p, void *const *args, void *workspace, void *queue) {
  (void)queue;
  call c = {.p = p, .x = p->x, .y = p->y, .from = (const float *)args[0] + p->x.offset};
  c.weight = (hr__winograd_weight){.w = (const float *)args[1] + p->w.offset,
                                   .out_stride = p->w.out_stride,
                                   .in_stride = p->w.in_stride,
                                   .row_stride = p->w.row_stride,
                                   .column_stride = p->w.column_stride,
                                   .ins = p->x.channels};
  c.to = (float *)args[p->y_arg] + p->y.offset;
  float *zeros = workspace, *numbers = zeros + p->depth, *out = c.to;
  c.zeros = zeros, c.shares = numbers + p->number_floats;
  c.packed = c.shares + p->panel_shares * p->tile_shares * p->share_floats;
  memset(zeros, 0, (size_t)p->depth * sizeof *zeros);
  hr__winograd_epilogues_bind(&p->epilogues, args, p->vectors * VECTOR, numbers, &c.numbers);
  hr_cached_weights *cached = NULL;
  find_weights(p, &c, c.packed + p->x_floats + p->y_floats, &cached);
  if (p->packs_x) {
    hr__images_pack(&p->x, p->images, c.from, c.packed);
    c.from = c.packed, c.x = hr__images_packed(&p->x);
  }
  if (p->packs_y) {
    c.to = c.packed + p->x_floats, c.y = hr__images_packed(&p->y);
  }
  hr_parallel_for(p->panel_shares * p->tile_shares, 1, run_shares, &c);
  if (p->packs_y) {
    hr__images_unpack(&p->y, p->images, c.to, out);
  }
  hr__cached_weights_release(cached);
  return HR_OK;
}

/* ---- preparing ---- */

static void describe(const hr_node *node, hr_prepared *p) {
  p->x = hr__images_of(&node->inputs[0]), p->y = hr__images_of(&node->outputs[0]), p->w = hr__windows_of(node);
  p->images = node->inputs[0].dims[0];
  p->y_arg = node->input_count;
  p->depth = hr_round_up(p->x.channels, VECTOR);
  p->vectors = hr_divide_up(p->y.channels, VECTOR);
  p->tiles[0] = hr_divide_up(p->y.height, RESULTS), p->tiles[1] = hr_divide_up(p->y.width, RESULTS);
  p->packs_x = !hr__images_are_channels_last(&p->x), p->packs_y = !hr__images_are_channels_last(&p->y);
}

/* Divides the work: tiles, if there are enough for all threads, and panels, then equally many for each. */
static void divide(hr_prepared *p) {
  int64_t threads = hr_thread_count(), tiles = count_tiles(p);
  p->tile_shares = hr_max(1, hr_min(threads, tiles / SHARE_TILES));
  p->panel_shares = hr_min(threads / p->tile_shares, p->vectors);
  p->panels = hr_min(hr_round_up(hr_divide_up(p->vectors, VECTORS), p->panel_shares), p->vectors);
  p->u_floats = panel_offset(p, p->panels);
  const int64_t recipe[RECIPE_WORDS] = {0x77696e6f,      p->w.offset,        p->x.channels,
                                        p->y.channels,   p->w.out_stride,    p->w.in_stride,
                                        p->w.row_stride, p->w.column_stride, p->panels};
  memcpy(p->recipe, recipe, sizeof recipe);
  int64_t share_tiles = hr_divide_up(tiles, p->tile_shares);
  int64_t most = hr_max(CHUNK_TILES, CHUNK_BYTES / ((p->depth + PANEL) * POINTS * (int64_t)sizeof(float)));
  p->chunk_tiles = hr_divide_up(share_tiles, hr_divide_up(share_tiles, most));
  p->share_floats = POINTS * (p->chunk_tiles * (p->depth + PANEL) + 2 * SPARE);
}

static size_t footprint(const hr_prepared *p) {
  return offsetof(hr_prepared, epilogues.of) + (size_t)p->epilogues.count * sizeof *p->epilogues.of;
}

static hr_status prepare(const hr_program *program, const hr_node *node, int algorithm, void *queue,
                         hr_prepared **out_prepared, size_t *out_workspace_bytes) {
  (void)program, (void)algorithm, (void)queue;
  hr_prepared p = {0};
  describe(node, &p);
  (void)hr__winograd_epilogues_init(node, &p.epilogues);
  divide(&p);
  p.number_floats = hr__winograd_epilogues_floats(&p.epilogues, p.vectors * VECTOR);
  p.x_floats = hr__images_packed_floats(&p.x, p.images);
  p.y_floats = hr__images_packed_floats(&p.y, p.images);
  int64_t floats = p.depth + p.number_floats + p.panel_shares * p.tile_shares * p.share_floats;
  *out_prepared = hr_malloc(footprint(&p));
  if (*out_prepared == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "conv: no memory for a prepared convolution");
  }
  memcpy(*out_prepared, &p, footprint(&p));
  *out_workspace_bytes = (size_t)(floats + p.x_floats + p.y_floats + p.u_floats) * sizeof(float);
  return HR_OK;
}

static bool can_take(const hr_node *node) {
  if (!hr__windows_are_supported(node)) {
    return false;
  }
  const int64_t *w = node->inputs[1].dims;
  const int64_t reach = node->inputs[1].strides[node->op == HR_OP_CONV ? 0 : 1] * (VECTOR - 1);
  hr__winograd_epilogues epilogues;
  return w[2] == TAPS && w[3] == TAPS && reach < INT32_MAX && reach > -INT32_MAX &&
         hr__winograd_epilogues_init(node, &epilogues);
}

/* True if it takes 15 % fewer cycles than a direct sum in oneDNN, by an estimate for one core: products at 95 and 97 %
 * of the processor's peak (one vector of output channels leaves it waiting), the transforms for each tile and channel,
 * and weights, which come from far caches if each serves few tiles. The constants were fitted to 33 shapes: no accepted
 * one was slower. */
static bool pays(const hr_prepared *p) {
  double outs = (double)(p->vectors * VECTOR), ins = (double)p->x.channels, tiles = (double)count_tiles(p);
  double pixels = (double)(p->images * p->y.height * p->y.width), products = ins * outs / 32;
  double weights = 0.16 * POINTS * ins * outs;
  double wait = p->vectors == 1 ? 1.6 : 1.05;
  double own = tiles * (POINTS * products * wait + 2.5 * (double)p->depth + 4 * outs + 150) + weights;
  return own <= 0.85 * 1.03 * pixels * TAPS * TAPS * products;
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

static bool needs_team(const hr_prepared *p) {
  return p->panel_shares * p->tile_shares > 1;
}

static void stamp(hr_prepared *p, const uint64_t *stamps) {
  p->stamp = stamps[1];
}

static int keeps(const hr_prepared *p) {
  (void)p;
  return 1;
}

const hr_provider HR_CPU_NAME(hr__winograd_provider) = {
    .name = "winograd",
    .channels_last = true,
    .is_apart = true,
    .open = open_provider,
    .runs = hr__provider_runs_windows,
    .supports = supports,
    .prepare = prepare,
    .needs_team = needs_team,
    .stamp = stamp,
    .keeps = keeps,
    .run = run,
    .footprint = footprint,
    .release = hr__provider_release,
};

#else

const hr_provider HR_CPU_NAME(hr__winograd_provider) = {.name = "winograd", .open = open_provider};

#endif
