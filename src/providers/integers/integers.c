/* integers.c: matrix products, convolutions and their gradients of data, of integers, which no library supports.
 *
 * Each is a product of two matrices, rows x inner times inner x columns, one for each item (of the batch, or group of
 * channels):
 *
 *                  items           rows            columns             inner
 *   matmul         batch dims      M (or N)        N (or M)            K
 *   conv           groups          out channels    images, positions   channels, window
 *   gradient       groups          channels        images, positions   out channels, window
 *
 * A block of each is packed for register tiles, for any strides, with zeros for places of a window outside of the
 * image. Sums wrap around, so the order of additions is free: bits are those of the loops that any other device runs.
 * Integers of 64 bits are multiplied in 64, narrower ones in 32, of which the dtype's lowest bits are right.
 */
#include <string.h>

#include "base/allocator.h"
#include "base/integer.h"
#include "base/thread.h"
#include "core/ir/dtype.h"
#include "providers/provider.h"

enum { SPATIAL = 3, ROWS_MAX = 128, COLUMNS_MAX = 192, INNER_MAX = 128 }; /* of a block, which stays in the L2 cache */
enum { ROWS_MIN = 4, COLUMNS_MIN = 8, WORK_MIN = 1 << 12, WORK_SHARED = 1 << 16 }; /* products of two numbers */

/* A tile: its sums and their factors stay in registers. */
#if defined(__AVX512F__)
enum { TILE_ROWS = 8, TILE_BYTES = 128 };
#else
enum { TILE_ROWS = 4, TILE_BYTES = 64 };
#endif

/* Some dims, and the step along each in memory, in elements. */
typedef struct dims {
  int rank;
  int64_t total, count[HR_RANK_MAX], left[HR_RANK_MAX], right[HR_RANK_MAX], out[HR_RANK_MAX], bias[HR_RANK_MAX];
} dims;

/* A dim of an image: a column and an inner element refer to place (their sum) / every, if that is an integer inside of
 * the image. */
typedef struct image_dim {
  int64_t start, column_step, inner_step, every, extent, stride;
} image_dim;

struct hr_prepared {
  dims items, rows, columns, inner;
  int spatial; /* the last dims of columns and of inner that belong to an image */
  image_dim image[SPATIAL];
  int left_arg, right_arg, out_arg;
  int64_t left_offset, right_offset, bias_offset, out_offset;
  bool has_bias;
  size_t element_bytes;
  int64_t row_block, column_block, row_blocks, column_blocks;
  int64_t slots; /* shares of the work, each with its own scratch */
};

/* The offsets of a row, a column or an inner element. */
typedef struct place {
  int64_t left, right, out, bias, at[SPATIAL];
} place;

typedef struct scratch {
  char sums[ROWS_MAX * COLUMNS_MAX * 8], left[ROWS_MAX * INNER_MAX * 8], right[INNER_MAX * COLUMNS_MAX * 8];
  place rows[ROWS_MAX], columns[COLUMNS_MAX], inner[INNER_MAX];
} scratch;
_Static_assert(sizeof(scratch) % TILE_BYTES == 0, "vectors of the next share are aligned, too");

typedef struct call {
  const hr_prepared *p;
  const void *left, *right, *bias;
  void *out;
  scratch *desks;
} call;

/* ---- places ---- */

static place place_of(const dims *d, int64_t i) {
  place to = {0};
  for (int k = d->rank - 1; k >= 0; --k) {
    int64_t at = i % d->count[k];
    i /= d->count[k];
    to.left += at * d->left[k], to.right += at * d->right[k], to.out += at * d->out[k], to.bias += at * d->bias[k];
  }
  return to;
}

/* The same with places in the image; dims that refer to each element have their addresses at once. */
static place image_place_of(const hr_prepared *p, const dims *d, int64_t i, bool is_column) {
  place to = place_of(d, i);
  for (int s = p->spatial - 1; s >= 0; --s) {
    const image_dim *dim = &p->image[s];
    int64_t count = d->count[d->rank - p->spatial + s], at = i % count;
    i /= count;
    to.at[s] = is_column ? dim->start + at * dim->column_step : at * dim->inner_step;
    to.right += dim->every == 1 ? to.at[s] * dim->stride : 0;
  }
  return to;
}

/* Some columns, and their places. */
typedef struct panel {
  bool is_plain, is_dense; /* one sum gives a right element's offset; they are neighbours */
  int64_t least[SPATIAL], most[SPATIAL];
} panel;

static panel panel_of(const hr_prepared *p, const place *columns, int64_t count, int64_t width) {
  panel all = {.is_plain = count >= width, .is_dense = true};
  for (int s = 0; s < p->spatial; ++s) {
    all.least[s] = all.most[s] = columns[0].at[s];
    all.is_plain &= p->image[s].every == 1;
  }
  for (int64_t i = 1; i < hr_min(count, width); ++i) {
    all.is_dense &= columns[i].right == columns[0].right + i;
    for (int s = 0; s < p->spatial; ++s) {
      all.least[s] = hr_min(all.least[s], columns[i].at[s]), all.most[s] = hr_max(all.most[s], columns[i].at[s]);
    }
  }
  return all;
}

static bool is_inside(const hr_prepared *p, const panel *columns, const place *inner) {
  bool is = columns->is_plain;
  for (int s = 0; s < p->spatial; ++s) {
    is &= columns->least[s] + inner->at[s] >= 0 && columns->most[s] + inner->at[s] < p->image[s].extent;
  }
  return is;
}

/* The right element for a column and an inner element; -1: outside of the image. */
static inline bool find_right(const hr_prepared *p, const place *column, const place *inner, int64_t *out_at) {
  int64_t at = column->right + inner->right;
  for (int s = 0; s < p->spatial; ++s) {
    const image_dim *dim = &p->image[s];
    int64_t spot = column->at[s] + inner->at[s];
    if (dim->every > 1) {
      if (spot < 0 || spot % dim->every != 0) {
        return false;
      }
      spot /= dim->every;
      at += spot * dim->stride;
    }
    if (spot < 0 || spot >= dim->extent) {
      return false;
    }
  }
  *out_at = at;
  return true;
}

/* ---- blocks, for each size of elements ---- */

#define ELEMENT uint8_t
#define WIDE uint32_t
#define NAME(name) name##_8
#include "providers/integers/integers_block.inc"
#define ELEMENT uint16_t
#define WIDE uint32_t
#define NAME(name) name##_16
#include "providers/integers/integers_block.inc"
#define ELEMENT uint32_t
#define WIDE uint32_t
#define NAME(name) name##_32
#include "providers/integers/integers_block.inc"
#define ELEMENT uint64_t
#define WIDE uint64_t
#define NAME(name) name##_64
#include "providers/integers/integers_block.inc"

/* ---- running ---- */

static void run_unit(const call *c, scratch *desk, int64_t unit) {
  const hr_prepared *p = c->p;
  int64_t column = unit % p->column_blocks * p->column_block, row = unit / p->column_blocks % p->row_blocks;
  place item = place_of(&p->items, unit / p->column_blocks / p->row_blocks);
  row *= p->row_block;
  int64_t rows = hr_min(p->row_block, p->rows.total - row);
  int64_t columns = hr_min(p->column_block, p->columns.total - column);
  for (int64_t i = 0; i < rows; ++i) {
    desk->rows[i] = place_of(&p->rows, row + i);
  }
  for (int64_t i = 0; i < columns; ++i) {
    desk->columns[i] = image_place_of(p, &p->columns, column + i, true);
  }
  switch (p->element_bytes) {
    case 1:
      run_block_8(c, desk, &item, rows, columns);
      break;
    case 2:
      run_block_16(c, desk, &item, rows, columns);
      break;
    case 4:
      run_block_32(c, desk, &item, rows, columns);
      break;
    default:
      run_block_64(c, desk, &item, rows, columns);
  }
}

static int64_t units_of(const hr_prepared *p) {
  return p->items.total * p->row_blocks * p->column_blocks;
}

static void run_slots(void *arg, int64_t begin, int64_t end, int worker) {
  (void)worker;
  const call *c = arg;
  int64_t units = units_of(c->p);
  for (int64_t slot = begin; slot < end; ++slot) {
    for (int64_t unit = units * slot / c->p->slots; unit < units * (slot + 1) / c->p->slots; ++unit) {
      run_unit(c, &c->desks[slot], unit);
    }
  }
}

static hr_status run(hr_prepared *p, void *const *args, void *workspace, void *queue) {
  (void)queue;
  int64_t size = (int64_t)p->element_bytes;
  call c = {.p = p,
            .left = (const char *)args[p->left_arg] + p->left_offset * size,
            .right = (const char *)args[p->right_arg] + p->right_offset * size,
            .bias = p->has_bias ? (const char *)args[2] + p->bias_offset * size : NULL,
            .out = (char *)args[p->out_arg] + p->out_offset * size,
            .desks = workspace};
  hr_parallel_for(p->slots, 1, run_slots, &c);
  return HR_OK;
}

/* ---- preparing ---- */

static void add_dim(dims *d, int64_t count, int64_t left, int64_t right, int64_t out, int64_t bias) {
  int k = d->rank++;
  d->total *= count;
  d->count[k] = count, d->left[k] = left, d->right[k] = right, d->out[k] = out, d->bias[k] = bias;
}

/* The step along a dim that is counted from the last one; 0 if there is no such dim, or one element for all. */
static int64_t step(const hr_operand *x, int from_last) {
  int d = x->rank - 1 - from_last;
  return x->kind == HR_OPERAND_NONE || d < 0 || x->dims[d] == 1 ? 0 : x->strides[d];
}

/* True if columns are the longer dim, and neighbours in the result. */
static bool is_turned_product(const hr_operand *out) {
  int row = out->rank - 2, column = out->rank - 1;
  return out->dims[column] < COLUMNS_MIN ||
         (out->dims[row] >= COLUMNS_MIN && out->strides[row] == 1 && out->strides[column] != 1);
}

static void describe_matmul(const hr_node *node, const hr_operand *bias, hr_prepared *p) {
  const hr_operand *out = &node->outputs[0];
  bool is_turned = is_turned_product(out);
  const hr_operand *left = &node->inputs[is_turned], *right = &node->inputs[!is_turned];
  int row = is_turned ? 0 : 1, column = 1 - row;
  for (int d = 0; d < out->rank - 2; ++d) {
    int k = out->rank - 1 - d;
    add_dim(&p->items, out->dims[d], step(left, k), step(right, k), out->strides[d], step(bias, k));
  }
  add_dim(&p->rows, out->dims[out->rank - 1 - row], step(left, row), 0, step(out, row), step(bias, row));
  add_dim(&p->columns, out->dims[out->rank - 1 - column], 0, step(right, column), step(out, column),
          step(bias, column));
  add_dim(&p->inner, left->dims[left->rank - 1 - column], step(left, column), step(right, row), 0, 0);
  p->left_arg = is_turned, p->right_arg = !is_turned;
}

/* For the gradient, too: dy is its x, and the window is reversed. */
static void describe_conv(const hr_node *node, const hr_operand *bias, hr_prepared *p) {
  const hr_operand *x = &node->inputs[0], *w = &node->inputs[1], *y = &node->outputs[0];
  int64_t n = node->ints[0], groups = node->ints[1 + 3 * n];
  const int64_t *steps = node->ints + 1, *padding = steps + n, *dilation = padding + n;
  bool is_gradient = node->op == HR_OP_CONV_BACKWARD_DATA;
  int row = is_gradient, channel = !is_gradient; /* dims of w */
  int64_t outs = y->dims[1] / groups, channels = x->dims[1] / groups, bias_step = step(bias, 0);
  add_dim(&p->items, groups, w->strides[0] * (w->dims[0] / groups), x->strides[1] * channels, y->strides[1] * outs,
          bias_step * outs);
  add_dim(&p->rows, outs, w->strides[row], 0, y->strides[1], bias_step);
  add_dim(&p->columns, y->dims[0], 0, x->strides[0], y->strides[0], 0);
  add_dim(&p->inner, channels, w->strides[channel], x->strides[1], 0, 0);
  p->spatial = (int)n;
  for (int i = 0; i < (int)n; ++i) {
    add_dim(&p->columns, y->dims[2 + i], 0, 0, y->strides[2 + i], 0);
    add_dim(&p->inner, w->dims[2 + i], w->strides[2 + i], 0, 0, 0);
    p->image[i] = (image_dim){.start = is_gradient ? padding[i] : -padding[i],
                              .column_step = is_gradient ? 1 : steps[i],
                              .inner_step = is_gradient ? -dilation[i] : dilation[i],
                              .every = is_gradient ? steps[i] : 1,
                              .extent = x->dims[2 + i],
                              .stride = x->strides[2 + i]};
  }
  p->left_arg = 1, p->right_arg = 0;
}

static bool has_bias(const hr_node *node) {
  return node->input_count > 2 && node->inputs[2].kind != HR_OPERAND_NONE;
}

static void describe(const hr_node *node, hr_prepared *p) {
  static const hr_operand none = {.kind = HR_OPERAND_NONE};
  const hr_operand *bias = has_bias(node) ? &node->inputs[2] : &none;
  p->items.total = p->rows.total = p->columns.total = p->inner.total = 1;
  if (node->op == HR_OP_MATMUL) {
    describe_matmul(node, bias, p);
  } else {
    describe_conv(node, bias, p);
  }
  p->out_arg = node->input_count;
  p->left_offset = node->inputs[p->left_arg].offset, p->right_offset = node->inputs[p->right_arg].offset;
  p->bias_offset = bias->offset, p->out_offset = node->outputs[0].offset;
  p->has_bias = has_bias(node);
  p->element_bytes = hr_dtype_size(node->outputs[0].dtype);
}

static double work_of(const hr_prepared *p) {
  return (double)p->items.total * (double)p->rows.total * (double)p->columns.total * (double)p->inner.total;
}

/* Cuts blocks of about the same size; smaller ones if threads would be idle. */
static void cut(hr_prepared *p) {
  int threads = hr_thread_count();
  p->row_blocks = hr_divide_up(p->rows.total, ROWS_MAX), p->column_blocks = hr_divide_up(p->columns.total, COLUMNS_MAX);
  while (work_of(p) > WORK_SHARED && units_of(p) < threads && p->rows.total / p->row_blocks > 2 * TILE_ROWS) {
    p->row_blocks *= 2;
  }
  p->row_block = hr_round_up(hr_divide_up(p->rows.total, p->row_blocks), TILE_ROWS);
  p->column_block = hr_round_up(hr_divide_up(p->columns.total, p->column_blocks), TILE_BYTES / 4);
  p->row_blocks = hr_divide_up(p->rows.total, p->row_block);
  p->column_blocks = hr_divide_up(p->columns.total, p->column_block);
  p->slots = work_of(p) > WORK_SHARED ? hr_min(units_of(p), threads) : 1;
}

static bool is_taken(const hr_operand *x, hr_dtype dtype) {
  return x->kind == HR_OPERAND_VALUE && x->dtype == dtype;
}

static bool supports(const hr_program *program, const hr_node *node) {
  (void)program;
  if (node->op != HR_OP_MATMUL && node->op != HR_OP_CONV && node->op != HR_OP_CONV_BACKWARD_DATA) {
    return false;
  }
  hr_dtype dtype = node->outputs[0].dtype;
  if (!hr_dtype_is_integer(dtype) || dtype == HR_DTYPE_BOOL || node->epilogue_count > 0 ||
      !is_taken(&node->inputs[0], dtype) || !is_taken(&node->inputs[1], dtype) || !is_taken(&node->outputs[0], dtype) ||
      (has_bias(node) && !is_taken(&node->inputs[2], dtype))) {
    return false;
  }
  hr_prepared p = {0};
  describe(node, &p);
  return p.rows.total >= ROWS_MIN && p.columns.total >= COLUMNS_MIN && work_of(&p) >= WORK_MIN;
}

static hr_status prepare(const hr_program *program, const hr_node *node, int algorithm, void *queue,
                         hr_prepared **out_prepared, size_t *out_workspace_bytes) {
  (void)program, (void)algorithm, (void)queue;
  hr_prepared *p = hr_calloc(1, sizeof *p);
  if (p == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no memory for a prepared product of integers");
  }
  describe(node, p);
  cut(p);
  *out_workspace_bytes = (size_t)p->slots * sizeof(scratch);
  *out_prepared = p;
  return HR_OK;
}

static bool needs_team(const hr_prepared *p) {
  return p->slots > 1;
}

const hr_provider HR_CPU_NAME(hr__integers_provider) = {
    .name = "integers",
    .runs = hr__provider_runs_contractions,
    .supports = supports,
    .prepare = prepare,
    .needs_team = needs_team,
    .run = run,
    .release = hr__provider_release,
};
