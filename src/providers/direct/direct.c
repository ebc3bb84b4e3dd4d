/* direct.c: convolutions and their gradients of data as direct sums, with nothing to prepare for a shape.
 *
 * A library's primitive takes 0.1 to 0.6 ms to make for each shape: for images of any size that is as much as the
 * convolution itself. Here only the weights are packed, for all shapes alike, and cached while they stay the same.
 *
 * On channels-last activations a row of a window is contiguous, so a convolution is a product of overlapping rows:
 *
 *   for each image, each block of rows of the output, each panel of up to 64 output channels:
 *     for each row, and the columns whose windows are inside of the image:
 *       sums[column][out] = sum over the window's rows, its columns and input channels of x * w
 *     for each of the other columns: the same, down the rows
 *     bias, epilogues, store
 *
 * Images of a few columns are summed together: for each row and column, the pixels at this place of some images.
 *
 * The gradient of data with a stride of s is s x s convolutions without one, each for every s-th row and column: the
 * phases.
 *
 * Elements outside of the image are skipped: an infinite weight does no harm at the border. Every element has one order
 * of additions, which depends on its place in the shape alone. Activations that are not channels-last are packed, and
 * results unpacked.
 *
 * Supports f32, one or two spatial dims, one group, any stride and dilation (for gradients of data, one of them is 1),
 * on processors with vectors of 16 floats. Large convolutions are left to primitives, which block for caches.
 */
#include "providers/direct/direct.h"

#include <string.h>

#include "base/integer.h"
#include "base/thread.h"
#include "providers/provider.h"
#include "runtime/cached_weights.h"

static hr_status open_provider(void) {
  return hr__wide_vectors_check("direct");
}

#if defined(HR_WIDE_VECTORS)

enum {
  VECTOR = HR__WIDE,
  VECTORS = HR__PANEL_VECTORS,
  PANEL = VECTOR * VECTORS,
  ROWS_MOST = 16, /* of the output in a unit of work; at least so many share a pass over the weights: */
  ROWS_LEAST = 2,
  STRIP = 48, /* pixels whose sums are in the first cache */
  LINES_LEAST = 12,
  RECIPE_WORDS = 13
};
static const int64_t SERIAL_FLOPS = 1000000;

typedef hr__direct_axis axis;
typedef hr__direct_range range;

struct hr_prepared {
  hr__images x, y; /* input and output of the sums; dy and dx for gradients of data */
  bool is_gradient;
  hr__direct_shape shape;
  int64_t out_stride, in_stride; /* of the weights */
  int64_t vectors, panels;       /* of output channels */
  bool is_across;                /* images are narrow: pixels at one place of many are summed together */
  int64_t bands, rows;           /* of images; of the output in a unit of work, of one band */
  int64_t units, grain;
  bool packs_x, packs_y;
  int64_t u_floats, x_floats, y_floats, number_floats;
  int y_arg;
  uint64_t stamp;
  hr__direct_epilogues epilogues; /* a prepared convolution has memory for its own count */
};

_Static_assert(offsetof(hr_prepared, epilogues) <= 512, "cached programs have one for each convolution");

typedef struct call {
  const hr_prepared *p;
  hr__images x, y; /* in place, or packed */
  const float *from, *u, *w;
  float *to;
  hr__direct_numbers numbers;
} call;

/* ---- phases ---- */

static int64_t phases_of(const hr_prepared *p, int d) {
  return p->is_gradient ? p->shape.stride[d] : 1;
}

static axis axis_of(const hr_prepared *p, int d, int64_t phase) {
  return p->is_gradient ? hr__direct_phase_of(&p->shape, d, phase) : hr__direct_axis_of(&p->shape, d);
}

/* ---- weights: [row phase][column phase][panel][row tap][column tap][in][out of the panel] ---- */

static int64_t panel_begin(const hr_prepared *p, int64_t panel) {
  return p->vectors * panel / p->panels;
}

static int64_t phase_offset(const hr_prepared *p, const axis *rows, const axis *columns) {
  int64_t taps = rows->earlier * p->shape.kernel[1] + rows->taps * columns->earlier;
  return taps * p->x.channels * p->vectors * VECTOR;
}

/* 16 output channels of a tap, for all input channels. */
WIDE static void pack_tap(const hr_prepared *p, const float *w, int64_t outs, int64_t width, float *u) {
  __mmask16 mask = hr__wide_mask(outs);
  __m512i lanes = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
  __m512i at = _mm512_mullo_epi32(lanes, _mm512_set1_epi32((int)p->out_stride));
  for (int64_t in = 0; in < p->x.channels; ++in, w += p->in_stride, u += width) {
    __m512 x = p->out_stride == 1 ? _mm512_maskz_loadu_ps(mask, w)
                                  : _mm512_mask_i32gather_ps(_mm512_setzero_ps(), mask, at, w, 4);
    _mm512_storeu_ps(u, x);
  }
}

static void pack_phase(const hr_prepared *p, const float *w, const axis *rows, const axis *columns, float *u) {
  for (int64_t panel = 0; panel < p->panels; ++panel) {
    int64_t first = panel_begin(p, panel), vectors = panel_begin(p, panel + 1) - first, width = vectors * VECTOR;
    for (int64_t i = 0; i < rows->taps * columns->taps; ++i, u += p->x.channels * width) {
      int64_t row = rows->tap + i / columns->taps * rows->tap_step;
      int64_t column = columns->tap + i % columns->taps * columns->tap_step;
      const float *tap = w + row * p->shape.w_tap[0] + column * p->shape.w_tap[1];
      for (int64_t v = first; v < first + vectors; ++v) {
        pack_tap(p, tap + v * VECTOR * p->out_stride, p->y.channels - v * VECTOR, width, u + (v - first) * VECTOR);
      }
    }
  }
}

static const float *pack_weights(const hr_prepared *p, const float *w, float *u) {
  for (int64_t r = 0; r < phases_of(p, 0); ++r) {
    for (int64_t c = 0; c < phases_of(p, 1); ++c) {
      axis rows = axis_of(p, 0, r), columns = axis_of(p, 1, c);
      pack_phase(p, w, &rows, &columns, u + phase_offset(p, &rows, &columns));
    }
  }
  return u;
}

/* Everything that the packed weights depend on. */
static void recipe_of(const hr_prepared *p, uint64_t *out_recipe) {
  const int64_t recipe[RECIPE_WORDS] = {0x64697265 + p->is_gradient,
                                        p->shape.w_offset,
                                        p->x.channels,
                                        p->y.channels,
                                        p->out_stride,
                                        p->in_stride,
                                        p->shape.w_tap[0],
                                        p->shape.w_tap[1],
                                        p->shape.kernel[0],
                                        p->shape.kernel[1],
                                        p->shape.stride[0] << 32 | p->shape.stride[1],
                                        p->shape.padding[0],
                                        p->shape.padding[1]};
  memcpy(out_recipe, recipe, sizeof recipe);
}

/* Packed weights: the cached ones, or new ones. *out_cached has to be released when the run ends. */
static void find_weights(hr_prepared *p, call *c, float *workspace, hr_cached_weights **out_cached) {
  bool is_new = false;
  uint64_t recipe[RECIPE_WORDS];
  recipe_of(p, recipe);
  hr_cached_weights *cached =
      hr__cached_weights_get(p->stamp, recipe, RECIPE_WORDS, (size_t)p->u_floats * sizeof(float), &is_new);
  if (is_new) {
    pack_weights(p, c->w, hr__cached_weights_data(cached));
    hr__cached_weights_publish(cached);
  }
  c->u = cached != NULL ? hr__cached_weights_data(cached) : pack_weights(p, c->w, workspace);
  *out_cached = cached;
}

/* ---- sums ---- */

/* The common part of a panel's strips. */
typedef struct panel {
  const call *c;
  const axis *rows, *columns;
  int64_t image, images;  /* the first one, and how many */
  int64_t first, vectors; /* of output channels */
  const float *u;
} panel;

typedef enum way { ALONG, DOWN, ACROSS } way;

/* Pixels with the same taps: `count` from (row, column) of an image on, along a row of the output or a column, or at
 * the same place of images. */
typedef struct strip {
  int64_t image, row, column, count;
  way way;
  range row_taps, column_taps;
} strip;

static hr__wide_product product_of(const panel *n, const strip *s) {
  const hr__images *x = &n->c->x;
  const axis *rows = n->rows, *columns = n->columns;
  int64_t width = n->vectors * VECTOR, tap = x->channels * width, taps = s->column_taps.end - s->column_taps.begin;
  int64_t row = rows->at + s->row * rows->stride + s->row_taps.begin * rows->dilation;
  int64_t column = columns->at + s->column * columns->stride + s->column_taps.begin * columns->dilation;
  const int64_t steps[] = {columns->stride * x->column_stride, rows->stride * x->row_stride, x->image_stride};
  bool is_run = taps == 1 || (columns->dilation == 1 && x->column_stride == x->channels);
  return (hr__wide_product){
      .v = n->c->from + s->image * x->image_stride + row * x->row_stride + column * x->column_stride,
      .u = n->u + (s->row_taps.begin * columns->taps + s->column_taps.begin) * tap,
      .v_step = steps[s->way],
      .rows = taps > 0 ? s->row_taps.end - s->row_taps.begin : 0,
      .v_row = rows->dilation * x->row_stride,
      .u_row = columns->taps * tap,
      .columns = is_run ? 1 : taps,
      .v_column = columns->dilation * x->column_stride,
      .u_column = tap,
      .depth = (is_run ? taps : 1) * x->channels,
      .v_next = 1,
      .u_next = width,
      .vectors = (int)n->vectors,
      .outs = width,
  };
}

static hr__direct_pixels pixels_of(const panel *n, const strip *s) {
  const hr__images *y = &n->c->y;
  const axis *rows = n->rows, *columns = n->columns;
  hr__direct_pixels pixels = {.image = s->image,
                              .row = rows->first + s->row * rows->step,
                              .column = columns->first + s->column * columns->step,
                              .image_step = s->way == ACROSS,
                              .row_step = s->way == DOWN ? rows->step : 0,
                              .column_step = s->way == ALONG ? columns->step : 0,
                              .channel = n->first * VECTOR,
                              .channels = hr_min(n->vectors * VECTOR, y->channels - n->first * VECTOR)};
  pixels.y_step =
      pixels.image_step * y->image_stride + pixels.row_step * y->row_stride + pixels.column_step * y->column_stride;
  pixels.y = n->c->to + s->image * y->image_stride + pixels.row * y->row_stride + pixels.column * y->column_stride +
             pixels.channel;
  return pixels;
}

static void run_strip(const panel *n, const strip *whole) {
  float m[STRIP * PANEL] __attribute__((aligned(64)));
  const hr_prepared *p = n->c->p;
  for (int64_t first = 0; first < whole->count; first += STRIP) {
    strip s = *whole;
    *(s.way == ALONG ? &s.column : s.way == DOWN ? &s.row : &s.image) += first;
    s.count = hr_min(STRIP, whole->count - first);
    hr__wide_product product = product_of(n, &s);
    hr__direct_pixels pixels = pixels_of(n, &s);
    product.lines = s.count, pixels.count = s.count;
    const float *addend = hr__direct_addend(&p->epilogues, &n->c->numbers);
    int rows_done = addend != NULL;
    product.addend = addend != NULL ? addend + pixels.channel : NULL;
    if (p->epilogues.count == rows_done) {
      product.m = pixels.y, product.m_step = pixels.y_step, product.outs = pixels.channels;
      hr__wide_multiply(&product);
    } else {
      product.m = m, product.m_step = n->vectors * VECTOR;
      hr__wide_multiply(&product);
      hr__direct_finish(&p->epilogues, &n->c->numbers, rows_done, m, n->vectors * VECTOR, &pixels);
    }
  }
}

/* A column whose windows are not inside of the image: rows [begin, end) of the output. */
static void run_column(const panel *n, int64_t column, int64_t begin, int64_t end) {
  range whole = hr__direct_whole(n->rows, begin, end, 0, n->rows->taps),
        taps = hr__direct_taps(n->columns, column, 0, n->columns->taps);
  for (int64_t row = begin; row < end;) {
    bool is_down = row == whole.begin && whole.begin < whole.end;
    strip s = {.image = n->image, .row = row, .column = column, .count = is_down ? whole.end - row : 1, .way = DOWN};
    s.row_taps = hr__direct_taps(n->rows, row, 0, n->rows->taps), s.column_taps = taps;
    run_strip(n, &s);
    row += s.count;
  }
}

static void run_panel_across(const panel *n, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    for (int64_t column = 0; column < n->columns->count; ++column) {
      strip s = {.image = n->image, .row = row, .column = column, .count = n->images, .way = ACROSS};
      s.row_taps = hr__direct_taps(n->rows, row, 0, n->rows->taps);
      s.column_taps = hr__direct_taps(n->columns, column, 0, n->columns->taps);
      run_strip(n, &s);
    }
  }
}

static void run_panel(const panel *n, int64_t begin, int64_t end) {
  range whole = hr__direct_whole(n->columns, 0, n->columns->count, 0, n->columns->taps);
  for (int64_t row = begin; row < end && whole.begin < whole.end; ++row) {
    strip s = {.image = n->image, .row = row, .column = whole.begin, .count = whole.end - whole.begin};
    s.row_taps = hr__direct_taps(n->rows, row, 0, n->rows->taps), s.column_taps = (range){0, n->columns->taps};
    run_strip(n, &s);
  }
  for (int64_t column = 0; column < n->columns->count; ++column) {
    if (column < whole.begin || column >= whole.end) {
      run_column(n, column, begin, end);
    }
  }
}

/* Rows [begin, end) of a row phase, of a band of images. */
static void run_rows(const call *c, range images, const axis *rows, int64_t begin, int64_t end) {
  const hr_prepared *p = c->p;
  for (int64_t phase = 0; phase < phases_of(p, 1); ++phase) {
    axis columns = axis_of(p, 1, phase);
    int64_t offset = phase_offset(p, rows, &columns);
    for (int64_t i = 0; i < p->panels; ++i) {
      panel n = {.c = c, .rows = rows, .columns = &columns, .image = images.begin, .first = panel_begin(p, i)};
      n.images = images.end - images.begin, n.vectors = panel_begin(p, i + 1) - n.first;
      n.u = c->u + offset + rows->taps * columns.taps * p->x.channels * n.first * VECTOR;
      if (p->is_across) {
        run_panel_across(&n, begin, end);
      } else {
        run_panel(&n, begin, end);
      }
    }
  }
}

/* Of a band: blocks of rows of each phase. */
static int64_t blocks_of(const hr_prepared *p) {
  int64_t blocks = 0;
  for (int64_t phase = 0; phase < phases_of(p, 0); ++phase) {
    blocks += hr_divide_up(axis_of(p, 0, phase).count, p->rows);
  }
  return blocks;
}

static void run_unit(const call *c, int64_t band, int64_t block) {
  const hr_prepared *p = c->p;
  range images = {p->shape.images * band / p->bands, p->shape.images * (band + 1) / p->bands};
  axis rows = axis_of(p, 0, 0);
  for (int64_t phase = 0; block >= hr_divide_up(rows.count, p->rows);) {
    block -= hr_divide_up(rows.count, p->rows);
    rows = axis_of(p, 0, ++phase);
  }
  run_rows(c, images, &rows, block * p->rows, hr_min(rows.count, (block + 1) * p->rows));
}

static void run_units(void *arg, int64_t begin, int64_t end, int worker) {
  (void)worker;
  const call *c = arg;
  int64_t blocks = c->p->units / c->p->bands;
  for (int64_t unit = begin; unit < end; ++unit) {
    run_unit(c, unit / blocks, unit % blocks);
  }
}

static hr_status run(hr_prepared *p, void *const *args, void *workspace, void *queue) {
  (void)queue;
  call c = {.p = p, .x = p->x, .y = p->y, .from = (const float *)args[0] + p->x.offset};
  float *out = (float *)args[p->y_arg] + p->y.offset;
  float *numbers = workspace, *x_packed = numbers + p->number_floats, *y_packed = x_packed + p->x_floats;
  c.to = out, c.w = (const float *)args[1] + p->shape.w_offset;
  hr__direct_epilogues_bind(&p->epilogues, args, p->vectors * VECTOR, numbers, &c.numbers);
  hr_cached_weights *cached = NULL;
  find_weights(p, &c, y_packed + p->y_floats, &cached);
  if (p->packs_x) {
    hr__images_pack(&p->x, p->shape.images, c.from, x_packed);
    c.from = x_packed, c.x = hr__images_packed(&p->x);
  }
  if (p->packs_y) {
    c.to = y_packed, c.y = hr__images_packed(&p->y);
  }
  hr_parallel_for(p->units, p->grain, run_units, &c);
  if (p->packs_y) {
    hr__images_unpack(&p->y, p->shape.images, c.to, out);
  }
  hr__cached_weights_release(cached);
  return HR_OK;
}

/* ---- preparing ---- */

static void describe(const hr_node *node, hr_prepared *p) {
  hr__direct_shape s = hr__direct_shape_of(node);
  bool is_gradient = node->op == HR_OP_CONV_BACKWARD_DATA;
  *p = (hr_prepared){.shape = s, .is_gradient = is_gradient, .y_arg = node->input_count};
  p->x = is_gradient ? s.y : s.x, p->y = is_gradient ? s.x : s.y;
  p->out_stride = is_gradient ? s.w_in : s.w_out, p->in_stride = is_gradient ? s.w_out : s.w_in;
  p->vectors = hr_divide_up(p->y.channels, VECTOR), p->panels = hr_divide_up(p->vectors, VECTORS);
  p->u_floats = s.kernel[0] * s.kernel[1] * p->x.channels * p->vectors * VECTOR;
  p->packs_x = !hr__images_are_channels_last(&p->x), p->packs_y = !hr__images_are_channels_last(&p->y);
}

/* Single images; of narrow ones as many for each thread, of which strips have enough. */
static int64_t bands_of(const hr_prepared *p, int64_t threads) {
  int64_t images = p->shape.images;
  return p->is_across ? hr_max(1, hr_min(images / LINES_LEAST, hr_round_up(hr_divide_up(images, STRIP), threads)))
                      : images;
}

/* Few small images: units of fewer rows, so that each thread has one. */
static int64_t rows_of_unit(const hr_prepared *p, int64_t threads) {
  int64_t bands = p->bands * phases_of(p, 0);
  int64_t rows = hr_divide_up(axis_of(p, 0, 0).count, hr_divide_up(threads, bands));
  return hr_max(p->is_across ? 1 : ROWS_LEAST, hr_min(ROWS_MOST, rows));
}

static void divide(hr_prepared *p) {
  bool is_serial = hr__direct_flops(&p->shape) < SERIAL_FLOPS || hr_thread_count() == 1;
  int64_t threads = is_serial ? 1 : hr_thread_count();
  p->is_across = hr__direct_is_across(&p->shape, p->is_gradient);
  p->bands = bands_of(p, threads);
  p->rows = rows_of_unit(p, threads);
  p->units = p->bands * blocks_of(p);
  p->grain = is_serial ? p->units : 1;
}

static size_t footprint(const hr_prepared *p) {
  return offsetof(hr_prepared, epilogues.of) + (size_t)p->epilogues.count * sizeof *p->epilogues.of;
}

/* Returns the bytes of workspace. */
static size_t plan(const hr_node *node, hr_prepared *p) {
  describe(node, p);
  (void)hr__direct_epilogues_init(node, &p->epilogues);
  divide(p);
  p->number_floats = hr__direct_epilogues_floats(&p->epilogues, p->vectors * VECTOR);
  p->x_floats = hr__images_packed_floats(&p->x, p->shape.images);
  p->y_floats = hr__images_packed_floats(&p->y, p->shape.images);
  return (size_t)(p->number_floats + p->x_floats + p->y_floats + p->u_floats) * sizeof(float);
}

static hr_status prepare(const hr_program *program, const hr_node *node, int algorithm, void *queue,
                         hr_prepared **out_prepared, size_t *out_workspace_bytes) {
  (void)program, (void)algorithm, (void)queue;
  hr_prepared p;
  *out_workspace_bytes = plan(node, &p);
  return hr__provider_keep(&p, footprint(&p), "conv: no memory for a prepared convolution", out_prepared);
}

static bool can_take(const hr_node *node) {
  if ((node->op != HR_OP_CONV && node->op != HR_OP_CONV_BACKWARD_DATA) || !hr__direct_has_shape(node)) {
    return false;
  }
  hr__direct_shape s = hr__direct_shape_of(node);
  bool has_steps = false, is_gradient = node->op == HR_OP_CONV_BACKWARD_DATA;
  for (int d = 0; is_gradient && d < HR__DIRECT_DIMS; ++d) {
    has_steps |= s.stride[d] > 1 && s.dilation[d] > 1;
  }
  int64_t reach = (is_gradient ? s.w_in : s.w_out) * (VECTOR - 1);
  hr__direct_epilogues epilogues;
  return !has_steps && reach < INT32_MAX && reach > -INT32_MAX && hr__direct_epilogues_init(node, &epilogues);
}

static bool supports(const hr_program *program, const hr_node *node) {
  (void)program;
  if (!can_take(node)) {
    return false;
  }
  hr__direct_shape shape = hr__direct_shape_of(node);
  bool is_gradient = node->op == HR_OP_CONV_BACKWARD_DATA;
  return hr__direct_is_small(&shape) || hr__direct_is_small_across(&shape, is_gradient) ||
         (!is_gradient && hr__direct_is_light(&shape));
}

static bool renumber(hr_prepared *prepared, const hr_program *program, const hr_node *node,
                     size_t *out_workspace_bytes) {
  hr_prepared p;
  if (!supports(program, node)) {
    return false;
  }
  *out_workspace_bytes = plan(node, &p);
  bool fits = p.epilogues.count == prepared->epilogues.count;
  if (fits) {
    memcpy(prepared, &p, footprint(&p));
  }
  return fits;
}

static bool is_settled(const hr_prepared *p) {
  return !p->is_gradient && hr__direct_is_light(&p->shape);
}

static bool needs_team(const hr_prepared *p) {
  return p->grain < p->units;
}

static void stamp(hr_prepared *p, const uint64_t *stamps) {
  p->stamp = stamps[1];
}

static int keeps(const hr_prepared *p) {
  (void)p;
  return 1;
}

const hr_provider HR_CPU_NAME(hr__direct_provider) = {
    .name = "direct",
    .is_apart = true,
    .channels_last = true,
    .open = open_provider,
    .runs = hr__provider_runs_windows,
    .supports = supports,
    .prepare = prepare,
    .renumber = renumber,
    .is_settled = is_settled,
    .needs_team = needs_team,
    .stamp = stamp,
    .keeps = keeps,
    .run = run,
    .footprint = footprint,
    .release = hr__provider_release,
};

#else

const hr_provider HR_CPU_NAME(hr__direct_provider) = {.name = "direct", .open = open_provider};

#endif
