/* weights.c: gradients of a convolution's weights as direct sums, with nothing to prepare for a shape (direct.c).
 *
 *   dw[row][column, in][out] = sum over pixels of x[under the window: row][column, in] * dy[pixel][out]
 *
 * On channels-last activations the elements of x under a row of a window are contiguous. A unit of work is 6 to 16 of
 * them, its lines, and up to 64 output channels:
 *
 *   for each image, each block of rows of dy:
 *     for each unit:
 *       sums of the unit += sum over the block's pixels whose windows are inside of the image
 *       for each of the other columns: the same for the lines that are inside, down the rows
 *   store the sums in the weights' layout
 *
 * Elements outside of the image are skipped: an infinite gradient does no harm at the border. The order of additions
 * depends on the shape alone. Activations that are not channels-last, or of which a row is not contiguous, are packed.
 *
 * Supports f32, one or two spatial dims, one group, any stride and dilation, on processors with vectors of 16 floats.
 */
#include <string.h>

#include "base/allocator.h"
#include "base/integer.h"
#include "base/thread.h"
#include "providers/direct/direct.h"
#include "providers/provider.h"

static hr_status open_provider(void) {
  return hr__wide_vectors_check("direct-weights");
}

#if defined(HR_WIDE_VECTORS)

enum { VECTOR = HR__WIDE, VECTORS = HR__PANEL_VECTORS, BLOCK = 1024 /* pixels */ };
static const int64_t SERIAL_FLOPS = 1000000;

typedef hr__direct_range range;

struct hr_prepared {
  hr__direct_shape shape;
  hr__images x, y; /* in place, or packed */
  hr__direct_axis rows, columns;
  int64_t vectors, panels, width; /* of output channels; the most floats of a panel */
  int64_t run, runs;              /* taps of a window's row that are contiguous, and how often */
  int64_t lines, groups;          /* of a unit, at most; units of a run */
  int64_t units, grain, block_rows;
  int64_t x_floats, y_floats;
  bool packs_x, packs_y;
  int w_arg;
};

typedef struct call {
  const hr_prepared *p;
  const float *x, *y;
  float *w, *sums; /* sums: [unit][line][out of the panel] */
} call;

/* ---- units ---- */

typedef struct unit {
  int64_t row, tap;             /* of the window; the run's first tap */
  int64_t begin, end;           /* lines of the run */
  int64_t first, outs, vectors; /* output channels */
  float *sums;
} unit;

static unit unit_of(const call *c, int64_t number) {
  const hr_prepared *p = c->p;
  int64_t lines = p->run * p->x.channels, rest = number, group = rest % p->groups;
  rest /= p->groups;
  int64_t run = rest % p->runs;
  rest /= p->runs;
  int64_t panel = rest % p->panels, vector = p->vectors * panel / p->panels;
  unit u = {.row = rest / p->panels, .tap = run * p->run, .sums = c->sums + number * p->lines * p->width};
  u.begin = lines * group / p->groups, u.end = lines * (group + 1) / p->groups;
  u.vectors = p->vectors * (panel + 1) / p->panels - vector;
  u.first = vector * VECTOR, u.outs = hr_min(u.vectors * VECTOR, p->y.channels - u.first);
  return u;
}

/* The products of some pixels, from (row, column) of dy on, with the unit's lines [begin, end). */
static hr__wide_product product_of(const call *c, const unit *u, int64_t image, int64_t row, int64_t column,
                                   range lines) {
  const hr_prepared *p = c->p;
  int64_t x_row = p->rows.at + row * p->rows.stride + u->row * p->rows.dilation;
  int64_t x_column = p->columns.at + column * p->columns.stride + u->tap * p->columns.dilation;
  return (hr__wide_product){
      .v = c->x + image * p->x.image_stride + x_row * p->x.row_stride + x_column * p->x.column_stride + lines.begin,
      .u = c->y + image * p->y.image_stride + row * p->y.row_stride + column * p->y.column_stride + u->first,
      .m = u->sums + (lines.begin - u->begin) * u->vectors * VECTOR,
      .lines = lines.end - lines.begin,
      .v_step = 1,
      .m_step = u->vectors * VECTOR,
      .rows = 1,
      .v_row = p->rows.stride * p->x.row_stride,
      .u_row = p->y.row_stride,
      .columns = 1,
      .vectors = (int)u->vectors,
      .outs = u->outs,
      .adds = true,
  };
}

/* Columns without all the taps [begin, end): the lines that are inside of the image, down the rows. */
static void add_column(const call *c, const unit *u, int64_t image, range rows, int64_t column, range taps) {
  const hr_prepared *p = c->p;
  taps = hr__direct_taps(&p->columns, column, taps.begin, taps.end);
  range lines = {hr_max(u->begin, (taps.begin - u->tap) * p->x.channels),
                 hr_min(u->end, (taps.end - u->tap) * p->x.channels)};
  if (taps.begin == taps.end || lines.begin >= lines.end) {
    return;
  }
  hr__wide_product product = product_of(c, u, image, rows.begin, column, lines);
  product.depth = rows.end - rows.begin, product.v_next = product.v_row, product.u_next = product.u_row;
  hr__wide_multiply(&product);
}

/* Adds the products of rows [begin, end) of an image to the unit's sums. */
static void add_rows(const call *c, const unit *u, int64_t image, int64_t begin, int64_t end) {
  const hr_prepared *p = c->p;
  range rows = hr__direct_whole(&p->rows, begin, end, u->row, u->row + 1);
  range taps = {u->tap + u->begin / p->x.channels, u->tap + (u->end - 1) / p->x.channels + 1};
  range columns = hr__direct_whole(&p->columns, 0, p->columns.count, taps.begin, taps.end);
  if (rows.begin == rows.end) {
    return;
  }
  if (columns.begin < columns.end) {
    hr__wide_product product = product_of(c, u, image, rows.begin, columns.begin, (range){u->begin, u->end});
    product.rows = rows.end - rows.begin, product.depth = columns.end - columns.begin;
    product.v_next = p->columns.stride * p->x.column_stride, product.u_next = p->y.column_stride;
    hr__wide_multiply(&product);
  }
  for (int64_t column = 0; column < p->columns.count; ++column) {
    if (column < columns.begin || column >= columns.end) {
      add_column(c, u, image, rows, column, taps);
    }
  }
}

/* Stores the unit's sums in the weights' layout. */
static void give_sums(const call *c, const unit *u) {
  const hr_prepared *p = c->p;
  const hr__direct_shape *s = &p->shape;
  for (int64_t line = u->begin; line < u->end; ++line) {
    const float *from = u->sums + (line - u->begin) * u->vectors * VECTOR;
    int64_t tap = u->tap + line / p->x.channels, in = line % p->x.channels;
    float *to = c->w + u->first * s->w_out + in * s->w_in + u->row * s->w_tap[0] + tap * s->w_tap[1];
    for (int64_t out = 0; out < u->outs; ++out) {
      to[out * s->w_out] = from[out];
    }
  }
}

static void run_units(void *arg, int64_t begin, int64_t end, int worker) {
  (void)worker;
  const call *c = arg;
  const hr_prepared *p = c->p;
  int64_t floats = p->lines * p->width;
  memset(c->sums + begin * floats, 0, (size_t)((end - begin) * floats) * sizeof(float));
  for (int64_t image = 0; image < p->shape.images; ++image) {
    for (int64_t row = 0; row < p->rows.count; row += p->block_rows) {
      for (int64_t number = begin; number < end; ++number) {
        unit u = unit_of(c, number);
        add_rows(c, &u, image, row, hr_min(p->rows.count, row + p->block_rows));
      }
    }
  }
  for (int64_t number = begin; number < end; ++number) {
    unit u = unit_of(c, number);
    give_sums(c, &u);
  }
}

static hr_status run(hr_prepared *p, void *const *args, void *workspace, void *queue) {
  (void)queue;
  const hr__direct_shape *s = &p->shape;
  call c = {.p = p, .x = (const float *)args[0] + s->x.offset, .y = (const float *)args[1] + s->y.offset};
  c.w = (float *)args[p->w_arg] + s->w_offset, c.sums = workspace;
  float *x_packed = c.sums + p->units * p->lines * p->width, *y_packed = x_packed + p->x_floats;
  if (p->packs_x) {
    hr__images_pack(&s->x, s->images, c.x, x_packed);
    c.x = x_packed;
  }
  if (p->packs_y) {
    hr__images_pack(&s->y, s->images, c.y, y_packed);
    c.y = y_packed;
  }
  hr_parallel_for(p->units, p->grain, run_units, &c);
  return HR_OK;
}

/* ---- preparing ---- */

/* True if the pixels of a row are contiguous. */
static bool has_runs(const hr__images *x) {
  return hr__images_are_channels_last(x) && (x->column_stride == x->channels || x->width == 1);
}

static void describe(const hr_node *node, hr_prepared *p) {
  hr__direct_shape s = hr__direct_shape_of(node);
  *p = (hr_prepared){.shape = s, .w_arg = node->input_count};
  p->rows = hr__direct_axis_of(&s, 0), p->columns = hr__direct_axis_of(&s, 1);
  p->packs_x = !has_runs(&s.x), p->packs_y = !hr__images_are_channels_last(&s.y);
  p->x = p->packs_x ? hr__images_packed(&s.x) : s.x, p->y = p->packs_y ? hr__images_packed(&s.y) : s.y;
  p->x.column_stride = p->x.channels; /* also of a single column */
  p->x_floats = p->packs_x ? hr_round_up(s.images * s.x.height * s.x.width * s.x.channels, VECTOR) : 0;
  p->y_floats = hr__images_packed_floats(&s.y, s.images);
}

static void divide(hr_prepared *p) {
  int64_t kernel = p->shape.kernel[1];
  bool is_run = p->shape.dilation[1] == 1;
  p->vectors = hr_divide_up(p->y.channels, VECTOR), p->panels = hr_divide_up(p->vectors, VECTORS);
  int64_t vectors = hr_divide_up(p->vectors, p->panels);
  p->width = vectors * VECTOR;
  p->run = is_run ? kernel : 1, p->runs = is_run ? 1 : kernel;
  p->groups = hr_divide_up(p->run * p->x.channels, hr__wide_lines[vectors - 1]);
  p->lines = hr_divide_up(p->run * p->x.channels, p->groups);
  p->units = p->shape.kernel[0] * p->panels * p->runs * p->groups;
  p->grain = hr__direct_flops(&p->shape) < SERIAL_FLOPS || hr_thread_count() == 1 ? p->units : 1;
  p->block_rows = hr_max(1, BLOCK / p->columns.count);
}

/* Returns the bytes of workspace. */
static size_t plan(const hr_node *node, hr_prepared *p) {
  describe(node, p);
  divide(p);
  return (size_t)(p->units * p->lines * p->width + p->x_floats + p->y_floats) * sizeof(float);
}

static hr_status prepare(const hr_program *program, const hr_node *node, int algorithm, void *queue,
                         hr_prepared **out_prepared, size_t *out_workspace_bytes) {
  (void)program, (void)algorithm, (void)queue;
  hr_prepared *p = hr_calloc(1, sizeof *p);
  if (p == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "conv: no memory for a prepared gradient");
  }
  *out_workspace_bytes = plan(node, p);
  *out_prepared = p;
  return HR_OK;
}

static bool supports(const hr_program *program, const hr_node *node) {
  (void)program;
  if (node->op != HR_OP_CONV_BACKWARD_WEIGHT || node->epilogue_count > 0 || !hr__direct_has_shape(node)) {
    return false;
  }
  hr__direct_shape shape = hr__direct_shape_of(node);
  return hr__direct_has_small_weights(&shape);
}

static bool renumber(hr_prepared *p, const hr_program *program, const hr_node *node, size_t *out_workspace_bytes) {
  bool is_supported = supports(program, node);
  if (is_supported) {
    *out_workspace_bytes = plan(node, p);
  }
  return is_supported;
}

static bool needs_team(const hr_prepared *p) {
  return p->grain < p->units;
}

static size_t footprint(const hr_prepared *p) {
  return sizeof *p;
}

const hr_provider HR_CPU_NAME(hr__direct_weights_provider) = {
    .name = "direct-weights",
    .is_apart = true,
    .channels_last = true,
    .open = open_provider,
    .runs = hr__provider_runs_weight_gradients,
    .supports = supports,
    .prepare = prepare,
    .renumber = renumber,
    .needs_team = needs_team,
    .run = run,
    .footprint = footprint,
    .release = hr__provider_release,
};

#else

const hr_provider HR_CPU_NAME(hr__direct_weights_provider) = {.name = "direct-weights", .open = open_provider};

#endif
