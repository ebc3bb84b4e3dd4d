/* few_pixels.c: convolutions of few pixels with many weights, which are read as they are stored.
 *
 * Other convolutions read weights in forms of their own, which are cached: the memory of weights once more, and 16
 * numbers for 9 of a 3 x 3 window. With few pixels the time is that of reading weights, so a form gains little. If
 * output channels are neighbours, as in [rows, columns, in, out], each tap of a window is the right factor of a
 * product:
 *
 *   for each share of output channels (a thread's), each group of up to 192 of them:
 *     for each tap of the window, each slab of up to 128 input channels:
 *       for each panel of up to 48 output channels of the group:
 *         for each row of each image, the pixels whose tap is inside of the image:
 *           sums[pixel][out] += sum over the slab of x * w
 *     bias, epilogues, store
 *
 * A panel's part of a slab is read from the second cache, for some pixels at a time. Meanwhile the next part is
 * requested from memory. Parts of a slab are neighbours in memory, so a row of weights is read as a whole.
 *
 * Elements outside of the image are skipped: an infinite weight does no harm at the border. Every element has one order
 * of additions, independent of threads, epilogues and the layout of activations. Those that are not channels-last are
 * packed, and results unpacked.
 *
 * Supports f32, one or two spatial dims, one group, any stride and dilation, on processors with vectors of 16 floats.
 */
#include <string.h>

#include "base/integer.h"
#include "base/thread.h"
#include "providers/direct/direct.h"
#include "providers/provider.h"

static hr_status open_provider(void) {
  return hr__wide_vectors_check("few_pixels");
}

#if defined(HR_WIDE_VECTORS)

enum {
  VECTOR = HR__WIDE,
  VECTORS = HR__AHEAD_VECTORS,
  PANEL = VECTOR * VECTORS,
  PANELS = 4,      /* of a group */
  DEPTH_MAX = 128, /* input channels of a slab */
  PIXELS_MIN = 24, /* fewer wait for memory, which is read faster in a form's order */
  PIXELS_MAX = 256,
  PIXELS_SPREAD = 48,     /* that take twice as many products as a row of weights has lines */
  COLUMNS_MIN = 5,        /* of windows: pixels of a row are multiplied together */
  PIXELS_TRANSFORMED = 64 /* from which on transformed 3 x 3 windows (winograd) take less time */
};
static const int64_t SERIAL_FLOPS = 1000000, WEIGHTS_MAX_OF_FORMS = 160 << 10 /* that are worth their memory */;

struct hr_prepared {
  hr__direct_shape shape;
  int64_t pixels, vectors, shares; /* vectors: of output channels */
  int64_t slabs;                   /* of a tap */
  bool is_flat;                    /* inputs of all pixels are evenly spaced */
  bool packs_x, packs_y;
  int64_t number_floats, x_floats, y_floats;
  int y_arg;
  hr__direct_epilogues epilogues; /* a prepared convolution has memory for its own count */
};

typedef struct call {
  const hr_prepared *p;
  hr__images x, y; /* in place, or packed */
  const float *from, *w;
  float *to, *sums; /* sums: of each share */
  hr__direct_numbers numbers;
} call;

typedef struct panel {
  const call *c;
  int64_t first, vectors; /* of output channels */
  float *sums;            /* [pixel][channel of the panel] */
} panel;

static int64_t width_of(const panel *n) {
  return n->vectors * VECTOR;
}

static int64_t channels_of(const panel *n) {
  return hr_min(width_of(n), n->c->p->shape.y.channels - n->first * VECTOR);
}

static int64_t sums_floats(const hr_prepared *p) {
  return p->pixels * PANELS * PANEL;
}

/* ---- a slab ---- */

/* Results [begin, end) along a dim, those whose tap is inside of the image, and the input of the first one. */
typedef struct results {
  int64_t begin, end, at;
} results;

/* A panel's part of slab `number`. */
typedef struct part {
  int64_t tap[2], begin, end; /* input channels */
  const float *w, *next;      /* next: the part that follows; NULL: none */
  int64_t turn;               /* of the products that request it */
} part;

static part part_of(const panel *n, int64_t number) {
  const hr_prepared *p = n->c->p;
  const hr__direct_shape *s = &p->shape;
  int64_t tap = number / p->slabs, slab = number % p->slabs;
  part x = {.tap = {tap / s->kernel[1], tap % s->kernel[1]},
            .begin = s->x.channels * slab / p->slabs,
            .end = s->x.channels * (slab + 1) / p->slabs};
  x.w = n->c->w + n->first * VECTOR + x.tap[0] * s->w_tap[0] + x.tap[1] * s->w_tap[1] + x.begin * s->w_in;
  return x;
}

static results results_of(const hr__direct_shape *s, int d, int64_t tap) {
  hr__direct_axis a = hr__direct_axis_of(s, d);
  int64_t at = a.at + tap * a.dilation, begin = at < 0 ? hr_divide_up(-at, a.stride) : 0;
  int64_t end = at < a.size ? hr_min(a.count, hr_divide_up(a.size - at, a.stride)) : 0;
  return (results){begin, hr_max(begin, end), at + begin * a.stride};
}

/* The line of each row that the next product requests, in every second turn if there are enough; false: it requests
 * nothing. */
static bool requests(const panel *n, part *w, hr__wide_ahead *out) {
  int64_t step = n->c->p->pixels >= PIXELS_SPREAD ? 2 : 1, turn = w->turn++, depth = w->end - w->begin;
  bool is = w->next != NULL && channels_of(n) == width_of(n) && turn % step == 0 && turn / step < n->vectors;
  if (is) {
    hr__wide_rows rows = hr__wide_rows_of(w->next + turn / step * VECTOR, depth, VECTOR, n->c->p->shape.w_in);
    *out = hr__wide_ahead_of(rows, 1, depth);
  }
  return is;
}

/* Adds the part's products to `count` sums, in lines that stay in registers. */
static void add_pixels(const panel *n, part *w, const float *x, int64_t x_step, float *sums, int64_t count) {
  int64_t w_in = n->c->p->shape.w_in, groups = hr_divide_up(count, hr__wide_lines[n->vectors - 1]);
  hr__wide_product product = {.u = w->w,
                              .v_step = x_step,
                              .m_step = width_of(n),
                              .rows = 1,
                              .columns = 1,
                              .depth = w->end - w->begin,
                              .v_next = 1,
                              .u_next = w_in,
                              .vectors = (int)n->vectors,
                              .outs = channels_of(n),
                              .adds = true};
  for (int64_t g = 0; g < groups; ++g) {
    int64_t first = count * g / groups;
    product.lines = count * (g + 1) / groups - first;
    product.v = x + first * x_step, product.m = sums + first * product.m_step;
    hr__wide_ahead ahead;
    product.ahead = requests(n, w, &ahead) ? &ahead : NULL;
    hr__wide_multiply(&product);
  }
}

static void add_part(const panel *n, int64_t number, const float *next) {
  const hr_prepared *p = n->c->p;
  const hr__direct_shape *s = &p->shape;
  const hr__images *x = &n->c->x;
  part w = part_of(n, number);
  w.next = next;
  if (p->is_flat) {
    add_pixels(n, &w, n->c->from + w.begin, x->column_stride, n->sums, p->pixels);
    return;
  }
  results rows = results_of(s, 0, w.tap[0]), columns = results_of(s, 1, w.tap[1]);
  for (int64_t image = 0; image < s->images; ++image) {
    for (int64_t row = rows.begin; row < rows.end; ++row) {
      int64_t pixel = (image * s->y.height + row) * s->y.width + columns.begin;
      int64_t at = image * x->image_stride + (rows.at + (row - rows.begin) * s->stride[0]) * x->row_stride +
                   columns.at * x->column_stride + w.begin;
      add_pixels(n, &w, n->c->from + at, s->stride[1] * x->column_stride, n->sums + pixel * width_of(n),
                 columns.end - columns.begin);
    }
  }
}

/* ---- groups of panels ---- */

static void finish_panel(const panel *n) {
  const call *c = n->c;
  const hr__images *y = &c->y;
  for (int64_t i = 0; i < c->p->shape.images * y->height; ++i) {
    hr__direct_pixels pixels = {.image = i / y->height,
                                .row = i % y->height,
                                .y_step = y->column_stride,
                                .count = y->width,
                                .column_step = 1,
                                .channel = n->first * VECTOR,
                                .channels = channels_of(n)};
    float *sums = n->sums + i * y->width * width_of(n);
    pixels.y = c->to + pixels.image * y->image_stride + pixels.row * y->row_stride + pixels.channel;
    for (int64_t k = 0; c->p->epilogues.count == 0 && k < y->width; ++k) {
      memcpy(pixels.y + k * pixels.y_step, sums + k * width_of(n), (size_t)pixels.channels * sizeof *sums);
    }
    hr__direct_finish(&c->p->epilogues, &c->numbers, 0, sums, width_of(n), &pixels);
  }
}

/* Vectors [first, last) of output channels. `next`: the first part of the next group; NULL: there is none. */
static void run_group(const call *c, int64_t first, int64_t last, const float *next, float *sums) {
  const hr_prepared *p = c->p;
  panel panels[PANELS];
  int64_t count = hr_divide_up(last - first, VECTORS),
          parts = p->shape.kernel[0] * p->shape.kernel[1] * p->slabs * count;
  for (int64_t k = 0; k < count; ++k) {
    int64_t begin = first + k * VECTORS;
    panels[k] = (panel){c, begin, hr_min(VECTORS, last - begin), sums + k * p->pixels * PANEL};
  }
  memset(sums, 0, (size_t)sums_floats(p) * sizeof *sums);
  for (int64_t i = 0; i < parts; ++i) {
    bool is_last = i + 1 == parts;
    add_part(&panels[i % count], i / count, is_last ? next : part_of(&panels[(i + 1) % count], (i + 1) / count).w);
  }
  for (int64_t k = 0; k < count; ++k) {
    finish_panel(&panels[k]);
  }
}

static void run_shares(void *arg, int64_t begin, int64_t end, int worker) {
  (void)worker;
  const call *c = arg;
  const hr_prepared *p = c->p;
  for (int64_t share = begin; share < end; ++share) {
    int64_t last = p->vectors * (share + 1) / p->shares;
    for (int64_t first = p->vectors * share / p->shares; first < last; first += PANELS * VECTORS) {
      int64_t next = first + PANELS * VECTORS;
      run_group(c, first, hr_min(next, last), next < last ? c->w + next * VECTOR : NULL,
                c->sums + share * sums_floats(p));
    }
  }
}

static hr_status run(hr_prepared *p, void *const *args, void *workspace, void *queue) {
  (void)queue;
  call c = {.p = p, .x = p->shape.x, .y = p->shape.y, .from = (const float *)args[0] + p->shape.x.offset};
  float *out = (float *)args[p->y_arg] + p->shape.y.offset, *numbers = workspace;
  float *x_packed = numbers + p->number_floats, *y_packed = x_packed + p->x_floats;
  c.to = out, c.w = (const float *)args[1] + p->shape.w_offset, c.sums = y_packed + p->y_floats;
  hr__direct_epilogues_bind(&p->epilogues, args, p->vectors * VECTOR, numbers, &c.numbers);
  if (p->packs_x) {
    hr__images_pack(&p->shape.x, p->shape.images, c.from, x_packed);
    c.from = x_packed, c.x = hr__images_packed(&p->shape.x);
  }
  if (p->packs_y) {
    c.to = y_packed, c.y = hr__images_packed(&p->shape.y);
  }
  hr_parallel_for(p->shares, 1, run_shares, &c);
  if (p->packs_y) {
    hr__images_unpack(&p->shape.y, p->shape.images, c.to, out);
  }
  return HR_OK;
}

/* ---- preparing ---- */

static int64_t pixels_of(const hr__direct_shape *s) {
  return s->images * s->y.height * s->y.width;
}

/* Windows of one element, without steps. */
static bool is_pointwise(const hr__direct_shape *s) {
  bool is = s->x.height == s->y.height && s->x.width == s->y.width;
  for (int d = 0; d < HR__DIRECT_DIMS; ++d) {
    is = is && s->kernel[d] == 1 && s->stride[d] == 1 && s->padding[d] == 0;
  }
  return is;
}

static bool is_flat(const hr__direct_shape *s) {
  hr__images x = hr__images_are_channels_last(&s->x) ? s->x : hr__images_packed(&s->x);
  int64_t row = x.width * x.column_stride; /* a single row's own stride may be any */
  return is_pointwise(s) && (x.height == 1 || x.row_stride == row) &&
         (s->images == 1 || x.image_stride == x.height * row);
}

/* Returns the bytes of workspace. */
static size_t plan(const hr_node *node, hr_prepared *p) {
  *p = (hr_prepared){.shape = hr__direct_shape_of(node), .y_arg = node->input_count};
  const hr__direct_shape *s = &p->shape;
  (void)hr__direct_epilogues_init(node, &p->epilogues);
  p->pixels = pixels_of(s);
  p->vectors = hr_divide_up(s->y.channels, VECTOR);
  p->shares = hr__direct_flops(s) < SERIAL_FLOPS ? 1 : hr_min(hr_thread_count(), p->vectors);
  p->slabs = hr_divide_up(s->x.channels, DEPTH_MAX);
  p->is_flat = is_flat(s);
  p->packs_x = !hr__images_are_channels_last(&s->x), p->packs_y = !hr__images_are_channels_last(&s->y);
  p->number_floats = hr__direct_epilogues_floats(&p->epilogues, p->vectors * VECTOR);
  p->x_floats = hr__images_packed_floats(&s->x, s->images);
  p->y_floats = hr__images_packed_floats(&s->y, s->images);
  return (size_t)(p->number_floats + p->x_floats + p->y_floats + p->shares * sums_floats(p)) * sizeof(float);
}

static size_t footprint(const hr_prepared *p) {
  return offsetof(hr_prepared, epilogues.of) + (size_t)p->epilogues.count * sizeof *p->epilogues.of;
}

static hr_status prepare(const hr_program *program, const hr_node *node, int algorithm, void *queue,
                         hr_prepared **out_prepared, size_t *out_workspace_bytes) {
  (void)program, (void)algorithm, (void)queue;
  hr_prepared p;
  *out_workspace_bytes = plan(node, &p);
  return hr__provider_keep(&p, footprint(&p), "conv: no memory for a prepared convolution", out_prepared);
}

static bool is_transformed(const hr_node *node, const hr__direct_shape *s) {
  return hr__windows_are_supported(node) && s->kernel[0] == 3 && s->kernel[1] == 3 && pixels_of(s) > PIXELS_TRANSFORMED;
}

/* Weights are worth a form if there are few, or each is used for many pixels. */
static bool is_worth(const hr_node *node, const hr__direct_shape *s) {
  int64_t weights = s->kernel[0] * s->kernel[1] * s->x.channels * s->y.channels;
  return weights > WEIGHTS_MAX_OF_FORMS && pixels_of(s) >= PIXELS_MIN && pixels_of(s) <= PIXELS_MAX &&
         (s->y.width >= COLUMNS_MIN || is_pointwise(s)) && !is_transformed(node, s);
}

static bool supports(const hr_program *program, const hr_node *node) {
  (void)program;
  if (node->op != HR_OP_CONV || !hr__direct_has_shape(node)) {
    return false;
  }
  hr__direct_shape s = hr__direct_shape_of(node);
  hr__direct_epilogues epilogues;
  return s.w_out == 1 && is_worth(node, &s) && hr__direct_epilogues_init(node, &epilogues);
}

/* Others would cache a form. */
static bool is_settled(const hr_prepared *p) {
  (void)p;
  return true;
}

static bool needs_team(const hr_prepared *p) {
  return p->shares > 1;
}

const hr_provider HR_CPU_NAME(hr__few_pixels_provider) = {
    .name = "few_pixels",
    .is_apart = true,
    .channels_last = true,
    .open = open_provider,
    .runs = hr__provider_runs_windows,
    .supports = supports,
    .prepare = prepare,
    .is_settled = is_settled,
    .needs_team = needs_team,
    .run = run,
    .footprint = footprint,
    .release = hr__provider_release,
};

#else

const hr_provider HR_CPU_NAME(hr__few_pixels_provider) = {.name = "few_pixels", .open = open_provider};

#endif
