/* pixels.c: convolutions of 1 x 1 windows in bfloat16, with a residual and ReLU before results are stored.
 *
 * Such a convolution is a product of matrices, pixels by channels. Libraries round the sums and store them; residuals
 * and ReLU are loops behind, since no post-op of theirs rounds as the rows do. Here six pixels by 64 output channels
 * are in registers until all is done:
 *
 *   for each share of panels and pixels (a thread's):
 *     for some pixels, whose channels stay in the L2 cache:
 *       for each panel of up to 64 output channels:
 *         for each 6 pixels:
 *           sums = sum over pairs of input channels of w * x
 *           y = relu(round(round(sums + bias) + residual))
 *
 * Numbers: the processor adds the products of a pair, without rounding between, and treats numbers below 2^-126 as
 * zeros, as in oneDNN. Each sum has one order, independent of threads, layouts and epilogues; each row of the epilogues
 * rounds to bfloat16 as ops.def does. Weights are packed, and cached while they stay the same.
 *
 * Supports two spatial dims, one group, an even number of input channels, output channels in sixteens, processors with
 * AVX512-BF16. Small convolutions, and those of few channels, are left to the next provider.
 */
#include <string.h>

#include "base/allocator.h"
#include "base/integer.h"
#include "base/thread.h"
#include "providers/provider.h"
#include "providers/wide_images.h"
#include "providers/wide_vectors.h"
#include "runtime/cached_weights.h"

#if defined(HR_WIDE_VECTORS)

#define NARROW __attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16")))
#define NARROW_INLINE static inline __attribute__((always_inline, target("avx512f,avx512bw,avx512vl,avx512bf16")))

enum {
  VECTOR = HR__WIDE,
  VECTORS = 4, /* of output channels of a panel */
  PIXELS = 6,  /* of a tile */
  BLOCK_MOST = 512,
  BLOCK_LEAST = 96,        /* pixels that justify reading all weights again */
  BLOCK_BYTES = 448 << 10, /* of their channels */
  SHARE_PIXELS = 192,      /* that justify reading all weights on one more core */
  RECIPE_WORDS = 6
};

/* Strides of images in elements; channels are contiguous, or the images are packed. */
struct hr_prepared {
  hr__images x, y, residual;
  int64_t stride[2];
  int64_t w_offset, w_out, w_in, bias_offset, bias_stride;
  int64_t pixels, panels, panel_shares, pixel_shares;
  int64_t x_elements, y_elements, w_elements; /* that are packed: 0, or all */
  int residual_arg, bias_arg, y_arg;          /* -1: none */
  bool has_relu;
  uint64_t stamp, recipe[RECIPE_WORDS];
};

typedef struct call {
  const hr_prepared *p;
  hr__images x, y; /* in place, or packed */
  const uint16_t *from, *w, *residual, *weights;
  uint16_t *to, *made;
  const float *bias;
} call;

static hr_status open_provider(void) {
  if (!hr_cpu_has(HR_CPU_AVX512BF16) || !hr_cpu_has(HR_CPU_AVX512BW) || !hr_cpu_has(HR_CPU_AVX512VL)) {
    return hr_status_make(HR_STATUS_UNAVAILABLE, "pixels: this processor has no products of bfloat16 (AVX512-BF16)");
  }
  return hr__wide_vectors_check("pixels");
}

/* ---- weights ---- */

static int64_t panel_begin(const hr_prepared *p, int64_t panel) {
  return p->y.channels / VECTOR * panel / p->panels;
}

/* 16 output channels, whose input channels are contiguous: pairs are transposed as wholes. */
WIDE static void pack_vector(const uint16_t *w, int64_t w_out, int64_t pairs, uint16_t *to, int64_t step) {
  for (int64_t k = 0; k < pairs; k += VECTOR) {
    __m512 r[VECTOR];
    for (int i = 0; i < VECTOR; ++i) {
      r[i] = _mm512_maskz_loadu_ps(hr__wide_mask(pairs - k), (const float *)(const void *)(w + i * w_out + 2 * k));
    }
    hr__wide_transpose(r);
    for (int64_t i = 0; i < hr_min(pairs - k, VECTOR); ++i) {
      _mm512_storeu_ps((float *)(void *)(to + (k + i) * step), r[i]);
    }
  }
}

/* Panels [begin, end): [pair of input channels][output channel][2]. */
static void pack_panels(void *arg, int64_t begin, int64_t end, int worker) {
  (void)worker;
  const call *c = arg;
  const hr_prepared *p = c->p;
  for (int64_t panel = begin; panel < end; ++panel) {
    int64_t first = panel_begin(p, panel) * VECTOR, last = panel_begin(p, panel + 1) * VECTOR;
    int64_t pairs = p->x.channels / 2, step = 2 * (last - first);
    uint16_t *to = c->made + first * p->x.channels;
    for (int64_t out = first; out < last; ++out) {
      const uint16_t *w = c->w + out * p->w_out;
      if (p->w_in == 1 && (out - first) % VECTOR == 0) {
        pack_vector(w, p->w_out, pairs, to + 2 * (out - first), step);
      }
      for (int64_t k = 0; p->w_in != 1 && k < pairs; ++k) {
        uint16_t *pair = to + k * step + 2 * (out - first);
        pair[0] = w[2 * k * p->w_in], pair[1] = w[(2 * k + 1) * p->w_in];
      }
    }
  }
}

static const uint16_t *make_weights(call *c, void *memory) {
  c->made = memory;
  hr_parallel_for(c->p->panels, 1, pack_panels, c);
  return memory;
}

/* Packed weights: the cached ones, or new ones. *out_cached has to be released when the run ends. */
static void find_weights(hr_prepared *p, call *c, void *workspace, hr_cached_weights **out_cached) {
  bool is_new;
  size_t bytes = (size_t)p->w_elements * sizeof(uint16_t);
  hr_cached_weights *cached = hr__cached_weights_get(p->stamp, p->recipe, RECIPE_WORDS, bytes, &is_new);
  if (is_new) {
    make_weights(c, hr__cached_weights_data(cached));
    hr__cached_weights_publish(cached);
  }
  c->weights = cached != NULL ? hr__cached_weights_data(cached) : make_weights(c, workspace);
  *out_cached = cached;
}

/* ---- tiles ---- */

typedef struct tile {
  const uint16_t *const *x, *const *residual; /* of each pixel; residual: NULL, or from the panel's first channel on */
  uint16_t *const *y;
  int64_t channel; /* the panel's first one */
  const uint16_t *w;
  const float *bias; /* of the panel */
  int64_t pairs;
  bool has_relu;
  const char *ahead; /* memory that is needed next: prefetched */
  int64_t ahead_step;
} tile;

NARROW_INLINE __m512 widen(__m256i x) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16));
}

NARROW_INLINE __m512 bounded(__m512 x) {
  return _mm512_mask_mov_ps(x, _mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_LE_OQ), _mm512_setzero_ps());
}

/* To nearest, ties to even; NaN stays NaN, and small numbers are no zeros. */
NARROW_INLINE __m256i rounded(__m512 x) {
  __m512i bits = _mm512_castps_si512(x), odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  __m512i up = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
  __m512i quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x400000));
  up = _mm512_mask_mov_epi32(up, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), quiet);
  return _mm512_cvtepi32_epi16(_mm512_srli_epi32(up, 16));
}

/* ReLU before the first rounding has the bits of ReLU behind it. */
NARROW_INLINE __m256i finished(__m512 sum, const uint16_t *residual, bool has_relu) {
  if (residual == NULL) {
    return (__m256i)_mm512_cvtneps_pbh(has_relu ? bounded(sum) : sum);
  }
  __m512 whole = widen((__m256i)_mm512_cvtneps_pbh(sum));
  whole = _mm512_add_ps(whole, widen(_mm256_loadu_si256((const __m256i *)residual)));
  return rounded(has_relu ? bounded(whole) : whole);
}

NARROW_INLINE void run_tile(const tile *t, int pixels, int vectors) {
  __m512 sums[PIXELS][VECTORS];
  const uint16_t *x[PIXELS], *w = t->w;
  const char *ahead = t->ahead;
  for (int i = 0; i < pixels; ++i) {
    x[i] = t->x[i];
    for (int v = 0; v < vectors; ++v) {
      sums[i][v] = _mm512_setzero_ps();
    }
  }
  for (int64_t k = 0; k < t->pairs; ++k, w += 2 * VECTOR * vectors, ahead += t->ahead_step) {
    __m512bh factors[VECTORS];
    for (int v = 0; v < vectors; ++v) {
      factors[v] = (__m512bh)_mm512_loadu_si512(w + v * 2 * VECTOR);
    }
    for (int i = 0; i < pixels; ++i) {
      int32_t pair;
      memcpy(&pair, x[i] + 2 * k, sizeof pair);
      for (int v = 0; v < vectors; ++v) {
        sums[i][v] = _mm512_dpbf16_ps(sums[i][v], factors[v], (__m512bh)_mm512_set1_epi32(pair));
      }
    }
    _mm_prefetch(ahead, _MM_HINT_T1);
  }
  for (int i = 0; i < pixels; ++i) {
    for (int v = 0; v < vectors; ++v) {
      __m512 sum = _mm512_add_ps(sums[i][v], _mm512_loadu_ps(t->bias + v * VECTOR));
      const uint16_t *residual = t->residual != NULL ? t->residual[i] + t->channel + v * VECTOR : NULL;
      _mm256_storeu_si256((__m256i *)(t->y[i] + t->channel + v * VECTOR), finished(sum, residual, t->has_relu));
    }
  }
}

#define OF_VECTORS(pixels, vectors)                                 \
  NARROW static void run_tile_##pixels##_##vectors(const tile *t) { \
    run_tile(t, pixels, vectors);                                   \
  }
#define OF_PIXELS(pixels) OF_VECTORS(pixels, 1) OF_VECTORS(pixels, 2) OF_VECTORS(pixels, 3) OF_VECTORS(pixels, 4)
OF_PIXELS(1)
OF_PIXELS(2)
OF_PIXELS(3)
OF_PIXELS(4)
OF_PIXELS(5)
OF_PIXELS(6)
#define NAMES(pixels) \
  { run_tile_##pixels##_1, run_tile_##pixels##_2, run_tile_##pixels##_3, run_tile_##pixels##_4 }
static void (*const tiles_of[PIXELS][VECTORS])(const tile *) = {NAMES(1), NAMES(2), NAMES(3),
                                                                NAMES(4), NAMES(5), NAMES(6)};

/* ---- blocks of pixels ---- */

typedef struct block {
  const uint16_t *x[BLOCK_MOST], *residual[BLOCK_MOST];
  uint16_t *y[BLOCK_MOST];
  int64_t count;
} block;

static int64_t offset_of(const hr__images *x, int64_t image, int64_t row, int64_t column) {
  return image * x->image_stride + row * x->row_stride + column * x->column_stride;
}

static void find_pixels(const call *c, int64_t first, int64_t last, block *b) {
  const hr_prepared *p = c->p;
  int64_t column = first % p->y.width, row = first / p->y.width % p->y.height;
  int64_t image = first / p->y.width / p->y.height;
  b->count = last - first;
  for (int64_t i = 0; i < b->count; column = 0) {
    const uint16_t *x = c->from + offset_of(&c->x, image, row * p->stride[0], column * p->stride[1]);
    uint16_t *y = c->to + offset_of(&c->y, image, row, column);
    const uint16_t *residual = c->residual != NULL ? c->residual + offset_of(&p->residual, image, row, column) : NULL;
    for (; i < b->count && column < p->y.width; ++i, ++column) {
      b->x[i] = x, b->y[i] = y, b->residual[i] = residual;
      x += p->stride[1] * c->x.column_stride, y += c->y.column_stride;
      residual = residual != NULL ? residual + p->residual.column_stride : NULL;
    }
    ++row;
    image += row == p->y.height, row = row == p->y.height ? 0 : row;
  }
}

static void run_panel(const call *c, const block *b, int64_t panel) {
  const hr_prepared *p = c->p;
  int64_t first = panel_begin(p, panel), vectors = panel_begin(p, panel + 1) - first;
  int64_t bytes = vectors * VECTOR * p->x.channels * (int64_t)sizeof(uint16_t), tiles = hr_divide_up(b->count, PIXELS);
  tile t = {.channel = first * VECTOR, .w = c->weights + first * VECTOR * p->x.channels};
  t.bias = c->bias + t.channel, t.pairs = p->x.channels / 2, t.has_relu = p->has_relu;
  bool has_next = panel + 1 < p->panels;
  t.ahead_step = has_next ? hr_divide_up(bytes, tiles * t.pairs) : 0;
  for (int64_t i = 0; i < tiles; ++i) {
    int64_t begin = b->count * i / tiles, end = b->count * (i + 1) / tiles;
    t.x = b->x + begin, t.y = b->y + begin, t.residual = c->residual != NULL ? b->residual + begin : NULL;
    t.ahead = (const char *)t.w + (has_next ? bytes + bytes * i / tiles : 0);
    tiles_of[end - begin - 1][vectors - 1](&t);
  }
}

static void run_share(const call *c, int64_t number) {
  const hr_prepared *p = c->p;
  int64_t panel_share = number % p->panel_shares, pixel_share = number / p->panel_shares;
  int64_t begin = p->pixels * pixel_share / p->pixel_shares, end = p->pixels * (pixel_share + 1) / p->pixel_shares;
  int64_t panel = p->panels * panel_share / p->panel_shares;
  int64_t panel_end = p->panels * (panel_share + 1) / p->panel_shares;
  int64_t most = BLOCK_BYTES / (p->x.channels * (int64_t)sizeof(uint16_t));
  most = hr_max(BLOCK_LEAST, hr_min(most, BLOCK_MOST));
  int64_t blocks = hr_divide_up(end - begin, most);
  block b;
  for (int64_t i = 0; i < blocks; ++i) {
    find_pixels(c, begin + (end - begin) * i / blocks, begin + (end - begin) * (i + 1) / blocks, &b);
    for (int64_t k = panel; k < panel_end; ++k) {
      run_panel(c, &b, k);
    }
  }
}

static void run_shares(void *arg, int64_t begin, int64_t end, int worker) {
  (void)worker;
  for (int64_t number = begin; number < end; ++number) {
    run_share(arg, number);
  }
}

/* ---- layouts ---- */

/* Copies images between a layout and the packed one. */
static void copy_images(const hr__images *x, int64_t images, const uint16_t *from, uint16_t *to, bool packs) {
  for (int64_t image = 0; image < images; ++image) {
    for (int64_t row = 0; row < x->height; ++row) {
      for (int64_t column = 0; column < x->width; ++column) {
        int64_t packed = ((image * x->height + row) * x->width + column) * x->channels;
        int64_t given = offset_of(x, image, row, column);
        for (int64_t channel = 0; channel < x->channels; ++channel) {
          if (packs) {
            to[packed + channel] = from[given + channel * x->channel_stride];
          } else {
            to[given + channel * x->channel_stride] = from[packed + channel];
          }
        }
      }
    }
  }
}

static int64_t images_of(const hr_prepared *p) {
  return p->pixels / p->y.width / p->y.height;
}

static float widen_one(uint16_t half) {
  uint32_t bits = (uint32_t)half << 16;
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static void spread_bias(const hr_prepared *p, void *const *args, float *bias) {
  const uint16_t *from = p->bias_arg >= 0 ? (const uint16_t *)args[p->bias_arg] + p->bias_offset : NULL;
  for (int64_t i = 0; i < p->y.channels; ++i) {
    bias[i] = from != NULL ? widen_one(from[i * p->bias_stride]) : 0;
  }
}

static hr_status run(hr_prepared *p, void *const *args, void *workspace, void *queue) {
  (void)queue;
  float *bias = workspace;
  uint16_t *packed_x = (uint16_t *)(bias + p->y.channels), *packed_y = packed_x + p->x_elements;
  call c = {.p = p, .x = p->x, .y = p->y, .bias = bias};
  uint16_t *out = (uint16_t *)args[p->y_arg] + p->y.offset;
  c.from = (const uint16_t *)args[0] + p->x.offset, c.w = (const uint16_t *)args[1] + p->w_offset, c.to = out;
  c.residual = p->residual_arg >= 0 ? (const uint16_t *)args[p->residual_arg] + p->residual.offset : NULL;
  hr_cached_weights *cached = NULL;
  find_weights(p, &c, packed_y + p->y_elements, &cached);
  spread_bias(p, args, bias);
  if (p->x_elements > 0) {
    copy_images(&p->x, images_of(p), c.from, packed_x, true);
    c.from = packed_x, c.x = hr__images_packed(&p->x);
  }
  if (p->y_elements > 0) {
    c.to = packed_y, c.y = hr__images_packed(&p->y);
  }
  hr_parallel_for(p->panel_shares * p->pixel_shares, 1, run_shares, &c);
  if (p->y_elements > 0) {
    copy_images(&p->y, images_of(p), packed_y, out, false);
  }
  hr__cached_weights_release(cached);
  return HR_OK;
}

/* ---- nodes ---- */

static bool is_taken(const hr_operand *x, int rank) {
  bool is = x->kind == HR_OPERAND_VALUE && x->dtype == HR_DTYPE_BF16 && x->rank == rank;
  for (int d = 0; is && d < rank; ++d) {
    is = x->dims[d] > 0;
  }
  return is;
}

static bool has_bias(const hr_node *node) {
  return node->input_count > 2 && node->inputs[2].kind != HR_OPERAND_NONE;
}

/* A residual, whose channels are contiguous as the output's. */
static bool add_residual(const hr_node *node, const hr_epilogue *epilogue, hr_prepared *p) {
  const hr_operand *out = &node->outputs[0];
  int at = epilogue->inputs[0] == HR_EPILOGUE_VALUE ? epilogue->inputs[1] : epilogue->inputs[0];
  if (epilogue->op != HR_OP_ADD || at == HR_EPILOGUE_VALUE || !is_taken(&node->inputs[at], 4) ||
      node->inputs[at].strides[1] != 1 || out->strides[1] != 1) {
    return false;
  }
  const hr_operand *x = &node->inputs[at];
  p->residual = hr__images_of(x), p->residual_arg = at;
  return !hr_operands_may_overlap(x, out) || hr_operands_are_same_map(x, out);
}

/* A residual, or ReLU, or both. */
static bool add_epilogues(const hr_node *node, hr_prepared *p) {
  p->residual_arg = -1;
  for (int i = 0; i < node->epilogue_count; ++i) {
    bool is_relu = node->epilogues[i].op == HR_OP_RELU && !p->has_relu && node->outputs[0].strides[1] == 1;
    bool is_residual = !is_relu && i == 0 && add_residual(node, &node->epilogues[i], p);
    if (!is_relu && !is_residual) {
      return false;
    }
    p->has_relu |= is_relu;
  }
  return true;
}

static bool is_packed(const hr__images *x) {
  return x->channel_stride != 1;
}

/* False if the node is not supported. */
static bool describe(const hr_node *node, hr_prepared *p) {
  const hr_operand *x = &node->inputs[0], *w = &node->inputs[1], *y = &node->outputs[0];
  if (node->op != HR_OP_CONV || node->int_count < 8 || node->ints[0] != 2 || node->ints[3] != 0 || node->ints[4] != 0 ||
      node->ints[7] != 1 || !is_taken(x, 4) || !is_taken(w, 4) || !is_taken(y, 4) || w->dims[2] != 1 ||
      w->dims[3] != 1 || (has_bias(node) && !is_taken(&node->inputs[2], 1))) {
    return false;
  }
  *p = (hr_prepared){.x = hr__images_of(x), .y = hr__images_of(y), .stride = {node->ints[1], node->ints[2]}};
  p->w_offset = w->offset, p->w_out = w->strides[0], p->w_in = w->strides[1];
  p->pixels = x->dims[0] * p->y.height * p->y.width;
  p->y_arg = node->input_count, p->bias_arg = has_bias(node) ? 2 : -1;
  if (has_bias(node)) {
    p->bias_offset = node->inputs[2].offset, p->bias_stride = node->inputs[2].strides[0];
  }
  bool is_inside = (p->y.height - 1) * p->stride[0] < p->x.height && (p->y.width - 1) * p->stride[1] < p->x.width;
  return is_inside && p->x.channels % 2 == 0 && p->y.channels % VECTOR == 0 && add_epilogues(node, p);
}

/* Divides the work: pixels, if there are enough for all threads, and panels, then equally many for each. */
static void divide(hr_prepared *p) {
  int64_t threads = hr_thread_count(), vectors = p->y.channels / VECTOR;
  p->pixel_shares = hr_max(1, hr_min(threads, p->pixels / SHARE_PIXELS));
  p->panel_shares = hr_min(threads / p->pixel_shares, vectors);
  p->panels = hr_min(hr_round_up(hr_divide_up(vectors, VECTORS), p->panel_shares), vectors);
  const uint64_t recipe[RECIPE_WORDS] = {
      0x70697865,         (uint64_t)p->w_offset, (uint64_t)p->x.channels << 32 | (uint64_t)p->y.channels,
      (uint64_t)p->w_out, (uint64_t)p->w_in,     (uint64_t)p->panels};
  memcpy(p->recipe, recipe, sizeof recipe);
  p->x_elements = is_packed(&p->x) ? images_of(p) * p->x.height * p->x.width * p->x.channels : 0;
  p->y_elements = is_packed(&p->y) ? p->pixels * p->y.channels : 0;
  p->w_elements = p->x.channels * p->y.channels;
}

static bool supports(const hr_program *program, const hr_node *node) {
  enum { CHANNELS_LEAST = 64, PIXELS_LEAST = 32 };
  (void)program;
  hr_prepared p;
  return describe(node, &p) && p.x.channels >= CHANNELS_LEAST && p.y.channels >= CHANNELS_LEAST &&
         p.pixels >= PIXELS_LEAST;
}

static hr_status prepare(const hr_program *program, const hr_node *node, int algorithm, void *queue,
                         hr_prepared **out_prepared, size_t *out_workspace_bytes) {
  (void)program, (void)algorithm, (void)queue;
  hr_prepared *p = hr_calloc(1, sizeof *p);
  if (p == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "conv: no memory for a prepared convolution");
  }
  (void)describe(node, p);
  divide(p);
  *out_workspace_bytes = (size_t)p->y.channels * sizeof(float) +
                         (size_t)(p->x_elements + p->y_elements + p->w_elements) * sizeof(uint16_t);
  *out_prepared = p;
  return HR_OK;
}

static bool needs_team(const hr_prepared *p) {
  return p->panel_shares * p->pixel_shares > 1;
}

static void stamp(hr_prepared *p, const uint64_t *stamps) {
  p->stamp = stamps[1];
}

static int keeps(const hr_prepared *p) {
  (void)p;
  return 1;
}

static size_t footprint(const hr_prepared *p) {
  return sizeof *p;
}

const hr_provider HR_CPU_NAME(hr__pixels_provider) = {
    .name = "pixels",
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

static hr_status open_provider(void) {
  return hr__wide_vectors_check("pixels");
}

const hr_provider HR_CPU_NAME(hr__pixels_provider) = {.name = "pixels", .open = open_provider};

#endif
