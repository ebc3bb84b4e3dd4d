/* gemv.c: products of one row, y = x W (+ bias), on weights in their stored layout. A long product of one column is run
 * as the product of its transposed factors.
 *
 * A product with one row reads every weight once and does two operations with it: it is bound by memory, and packing
 * would double the traffic. Two layouts of W [K, N] cover the frameworks' weights:
 *
 *   K contiguous (a transposed [N, K] weight)   y[n] is a dot product
 *   N contiguous                                y is a sum of rows of W, some blocks of N at a time
 *
 * If columns are few and sums are long, as in a dot product, sums are cut into parts. The order of additions depends on
 * the shape alone, so the number of threads doesn't change bits. A batch may have several dims that strides walk as
 * one, such as beams and heads; rows that need two strides are copied. All operands in f32, or all in bf16 with sums in
 * f32; everything else is left to the next provider. Epilogues: cheap activations with at most one number are applied
 * before the result is stored.
 */
#include <stdatomic.h>
#include <string.h>

#include "base/allocator.h"
#include "base/integer.h"
#include "base/thread.h"
#include "providers/gemv/sums.h"
#include "providers/provider.h"

enum { BLOCK = 256, DOT_BLOCK = 16 }; /* columns that a thread processes at a time */
enum { JOINED_BLOCKS = 8 };           /* 8 KB of each row: in mapped files, a page has only 4 KB */
enum { STREAMED_BLOCKS = 16 };        /* of rows in bf16, whose sums have half of a core's first cache */
enum { JOINED_DOTS = 16 };            /* short columns of one block take hardly longer than its beginning and its end */
static const int64_t SERIAL_WEIGHTS = 1 << 15; /* 128 KB: two cores read more than that faster, each from its own L2 */
static const int64_t KEPT_WEIGHTS = 1 << 18;   /* 1 MB: a core's own cache may hold its share until the next run */
static const int64_t MET_BLOCK =
    1 << 13; /* 32 KB: fetching a block number costs a few hundredths of reading the block */
static const int64_t PART_INNER = 1 << 14; /* 64 KB: the minimum of a column in a part of a sum */
static const int64_t PART_UNITS = 64;      /* more threads than that don't read faster */

struct hr_prepared {
  hr_dtype dtype;                /* of all operands: f32 or bf16 */
  bool copies_x;                 /* into the workspace: x is not dense, or not f32 */
  int64_t batch, inner, columns; /* y [batch, 1, columns] = x [batch, 1, inner] W [batch, inner, columns] */
  int64_t part, parts;           /* of the inner dim: all of it and 1, unless columns are few */
  int64_t x_offset, w_offset, bias_offset, y_offset; /* elements */
  int64_t x_batch, w_batch, y_batch;                 /* strides of the batch */
  int64_t x_group, x_outer;                          /* so many rows have x_batch between them, groups this stride */
  int64_t x_stride, w_inner, w_columns, bias_stride, y_stride;
  bool has_bias;
  int x_arg, w_arg, y_arg;
  int epilogue_count;
  struct {
    hr_op op;
    int arg; /* of its number; -1: none */
  } epilogues[HR_EPILOGUES_MAX];
};

typedef struct call {
  const hr_prepared *p;
  float numbers[HR_EPILOGUES_MAX]; /* of the epilogues */
  const char *x, *w, *bias;        /* the first elements */
  char *y;
  const float *row; /* x in f32: in place, or the copy */
  int64_t row_batch;
  float *partial; /* [parts, batch, columns] sums of parts, if there are several */
  int64_t shares;
  atomic_int_least64_t begun; /* blocks */
} call;

/* The factors as a row and a matrix, and their dims. */
typedef struct roles {
  const hr_operand *x, *w, *y;
  int x_arg, w_arg;
  int x_inner, w_inner, columns; /* `columns`: of w and y */
} roles;

static roles roles_of(const hr_node *node) {
  const hr_operand *y = &node->outputs[0];
  bool is_column = y->dims[y->rank - 2] != 1;
  int last = y->rank - 1, other = y->rank - 2, x = is_column;
  return (roles){.x = &node->inputs[x],
                 .w = &node->inputs[1 - x],
                 .y = y,
                 .x_arg = x,
                 .w_arg = 1 - x,
                 .x_inner = is_column ? other : last,
                 .w_inner = is_column ? last : other,
                 .columns = is_column ? other : last};
}

static bool is_of(const hr_operand *operand, hr_dtype dtype) {
  return operand->kind == HR_OPERAND_VALUE && operand->dtype == dtype;
}

/* An operand's steps through the result's batch: `count` rows or matrices `stride` apart, and groups of these `outer`
 * apart. */
typedef struct batch_walk {
  int64_t count, stride, outer;
} batch_walk;

/* False if two strides are too few. */
static bool find_walk(const hr_operand *out, const hr_operand *operand, batch_walk *walk) {
  int64_t next = 0;
  int groups = 0;
  *walk = (batch_walk){.count = 1};
  for (int d = out->rank - 3; d >= 0; --d) {
    if (out->dims[d] == 1) {
      continue;
    }
    int64_t stride = operand->dims[d] != 1 ? operand->strides[d] : 0;
    if (groups == 0 || stride != next) {
      *(groups == 0 ? &walk->stride : &walk->outer) = stride;
      ++groups;
    }
    walk->count *= groups == 1 ? out->dims[d] : 1;
    next = stride * out->dims[d];
  }
  return groups <= 2;
}

/* The row may be copied; the matrix and the result are walked with one stride. */
static bool find_walks(const roles *r, batch_walk *x, batch_walk *w, batch_walk *y) {
  return find_walk(r->y, r->x, x) && find_walk(r->y, r->w, w) && find_walk(r->y, r->y, y) && w->outer == 0 &&
         y->outer == 0 && w->count == y->count;
}

static bool is_activation(const hr_node *node, const hr_epilogue *epilogue) {
  switch (epilogue->op) {
    case HR_OP_RELU:
      return epilogue->inputs[0] == HR_EPILOGUE_VALUE;
    case HR_OP_LEAKY_RELU:
    case HR_OP_SOFTSHRINK:
      return epilogue->inputs[0] == HR_EPILOGUE_VALUE && epilogue->inputs[1] != HR_EPILOGUE_VALUE &&
             node->inputs[epilogue->inputs[1]].kind == HR_OPERAND_SCALAR;
    default:
      return false;
  }
}

/* True if a bias has one number for each column, along its dim `along` (negative: from the end), and no other dims. */
static bool is_bias(const hr_operand *bias, hr_dtype dtype, int64_t columns, int along) {
  if (!is_of(bias, dtype) || bias->rank + along < 0 || bias->dims[bias->rank + along] != columns) {
    return false;
  }
  for (int d = 0; d < bias->rank; ++d) {
    if (d != bias->rank + along && bias->dims[d] != 1 && bias->strides[d] != 0) {
      return false;
    }
  }
  return true;
}

static bool supports(const hr_program *program, const hr_node *node) {
  (void)program;
  hr_dtype dtype = node->outputs[0].dtype;
  if (node->op != HR_OP_MATMUL || (dtype != HR_DTYPE_F32 && dtype != HR_DTYPE_BF16) ||
      !is_of(&node->inputs[0], dtype) || !is_of(&node->inputs[1], dtype)) {
    return false;
  }
  int rank = node->outputs[0].rank;
  batch_walk x, w, y;
  for (int i = 0; i < node->epilogue_count; ++i) {
    if (!is_activation(node, &node->epilogues[i])) {
      return false;
    }
  }
  if (rank < 2 || node->inputs[0].rank != rank || node->inputs[1].rank != rank) {
    return false;
  }
  roles r = roles_of(node);
  if (r.y->dims[2 * rank - 3 - r.columns] != 1 || r.x->dims[r.x_inner] == 0 || r.y->dims[r.columns] == 0 ||
      !find_walks(&r, &x, &w, &y)) {
    return false;
  }
  if (node->input_count > 2 && node->inputs[2].kind != HR_OPERAND_NONE &&
      !is_bias(&node->inputs[2], dtype, r.y->dims[r.columns], r.columns - rank)) {
    return false;
  }
  int64_t inner = r.x->dims[r.x_inner];
  if (r.x_arg != 0 && (inner < 2 * LANES || inner * r.y->dims[r.columns] <= SERIAL_WEIGHTS)) {
    return false; /* of one column: short sums and small matrices are left to a library */
  }
  return r.w->strides[r.w_inner] == 1 || r.w->strides[r.columns] == 1;
}

static bool uses_dots(const hr_prepared *p) {
  return p->w_inner == 1 || p->w_columns != 1;
}

static int64_t count_blocks(const hr_prepared *p) {
  int64_t block = uses_dots(p) ? DOT_BLOCK : BLOCK;
  return hr_divide_up(p->columns, block);
}

/* Parts begin at whole sets of lanes. */
static void cut_sums(hr_prepared *p) {
  int64_t wanted = hr_divide_up(PART_UNITS, p->batch * count_blocks(p)), most = p->inner / PART_INNER;
  int64_t parts = wanted < most ? wanted : most;
  p->part = parts > 1 ? hr_divide_up(hr_divide_up(p->inner, parts), LANES) * LANES : p->inner;
  p->parts = hr_divide_up(p->inner, p->part);
}

/* Returns the bytes of workspace. */
static size_t plan(const hr_node *node, hr_prepared *p) {
  roles r = roles_of(node);
  const hr_operand *x = r.x, *w = r.w, *y = r.y;
  batch_walk x_walk, w_walk, y_walk;
  (void)find_walks(&r, &x_walk, &w_walk, &y_walk);
  *p = (hr_prepared){.dtype = y->dtype, .batch = y_walk.count, .x_group = x_walk.count, .x_outer = x_walk.outer};
  p->x_batch = x_walk.stride, p->w_batch = w_walk.stride, p->y_batch = y_walk.stride;
  p->inner = x->dims[r.x_inner], p->columns = y->dims[r.columns];
  p->x_offset = x->offset, p->w_offset = w->offset, p->y_offset = y->offset;
  p->x_stride = x->strides[r.x_inner], p->w_inner = w->strides[r.w_inner], p->w_columns = w->strides[r.columns];
  p->y_stride = y->strides[r.columns];
  p->x_arg = r.x_arg, p->w_arg = r.w_arg, p->y_arg = node->input_count;
  p->has_bias = node->input_count > 2 && node->inputs[2].kind != HR_OPERAND_NONE;
  if (p->has_bias) {
    p->bias_offset = node->inputs[2].offset;
    p->bias_stride = node->inputs[2].strides[node->inputs[2].rank + r.columns - y->rank];
  }
  p->epilogue_count = node->epilogue_count;
  for (int i = 0; i < node->epilogue_count; ++i) {
    const hr_epilogue *epilogue = &node->epilogues[i];
    p->epilogues[i].op = epilogue->op;
    p->epilogues[i].arg = epilogue->op == HR_OP_RELU ? -1 : epilogue->inputs[1];
  }
  p->copies_x = p->dtype != HR_DTYPE_F32 || (p->x_stride != 1 && p->inner > 1) || p->x_group != p->batch;
  cut_sums(p);
  int64_t partial = p->parts > 1 ? p->parts * p->batch * p->columns : 0;
  return (size_t)((p->copies_x ? p->batch * p->inner : 0) + partial) * sizeof(float);
}

static hr_status prepare(const hr_program *program, const hr_node *node, int algorithm, void *queue,
                         hr_prepared **out_prepared, size_t *out_workspace_bytes) {
  (void)program, (void)algorithm, (void)queue;
  hr_prepared *p = hr_malloc(sizeof *p);
  if (p == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "matmul: no memory for a prepared product");
  }
  *out_workspace_bytes = plan(node, p);
  *out_prepared = p;
  return HR_OK;
}

static bool renumber(hr_prepared *p, const hr_program *program, const hr_node *node, size_t *out_workspace_bytes) {
  if (!supports(program, node)) {
    return false;
  }
  *out_workspace_bytes = plan(node, p);
  return true;
}

static bool needs_team(const hr_prepared *p) {
  return p->batch * p->inner * p->columns > SERIAL_WEIGHTS;
}

/* ---- results ---- */

static float number_of(const hr_scalar *scalar) {
  return hr_scalar_as_f32(scalar);
}

/* A row of ops.def, with its bits. */
static inline void activate(hr_op op, float b, float *restrict values, int64_t count) {
  switch (op) {
    case HR_OP_RELU:
      for (int64_t i = 0; i < count; ++i) {
        values[i] = values[i] <= 0 ? 0 : values[i];
      }
      break;
    case HR_OP_LEAKY_RELU:
      for (int64_t i = 0; i < count; ++i) {
        values[i] = values[i] > 0 ? values[i] : values[i] * b;
      }
      break;
    default: /* softshrink */
      for (int64_t i = 0; i < count; ++i) {
        float a = values[i], inside = a != a ? a : 0;
        values[i] = a > b ? a - b : (a < -b ? a + b : inside);
      }
  }
}

SUMS_INLINE void round_all(float *restrict values, int64_t count, hr_dtype dtype) {
  for (int64_t i = 0; dtype == HR_DTYPE_BF16 && i < count; ++i) {
    values[i] = hr__f32_round_bfloat(values[i]);
  }
}

/* sums[i] += element i of the bias, whose elements are `step` bytes apart. */
SUMS_INLINE void add_bias(float *restrict sums, const char *restrict bias, int64_t step, int64_t count,
                          hr_dtype dtype) {
  for (int64_t i = 0; i < count; ++i) {
    sums[i] += load_weight(bias + i * step, dtype);
  }
}

/* Rounded numbers, `step` bytes apart. */
SUMS_INLINE void store_numbers(char *y, int64_t step, const float *restrict sums, int64_t count, hr_dtype dtype) {
  for (int64_t i = 0; i < count; ++i) {
    uint16_t half = hr__bfloat_from_f32(sums[i]);
    memcpy(y + i * step, dtype == HR_DTYPE_BF16 ? (const void *)&half : &sums[i], (size_t)weight_bytes(dtype));
  }
}

/* Turns the sums of columns [first, first + count) of a batch into results. Each operation rounds to the dtype. */
SUMS_INLINE void store_block(const call *c, int64_t batch, int64_t first, float *restrict sums, int64_t count,
                             hr_dtype dtype) {
  const hr_prepared *p = c->p;
  int64_t bytes = weight_bytes(dtype);
  if (p->has_bias && p->bias_stride == 1) {
    add_bias(sums, c->bias + first * bytes, bytes, count, dtype);
  } else if (p->has_bias) {
    add_bias(sums, c->bias + first * p->bias_stride * bytes, p->bias_stride * bytes, count, dtype);
  }
  round_all(sums, count, dtype);
  for (int i = 0; i < p->epilogue_count; ++i) {
    activate(p->epilogues[i].op, c->numbers[i], sums, count);
    round_all(sums, count, dtype);
  }
  char *y = c->y + (batch * p->y_batch + first * p->y_stride) * bytes;
  if (p->y_stride == 1) { /* a constant step: in vectors */
    store_numbers(y, bytes, sums, count, dtype);
  } else {
    store_numbers(y, p->y_stride * bytes, sums, count, dtype);
  }
}

static void give(const call *c, int64_t batch, int64_t first, float *sums, int64_t count) {
  if (c->p->dtype == HR_DTYPE_BF16) {
    store_block(c, batch, first, sums, count, HR_DTYPE_BF16);
  } else {
    store_block(c, batch, first, sums, count, HR_DTYPE_F32);
  }
}

/* ---- sums ---- */

/* True for rows in bf16 that come from memory: one after the other at 35 GB/s, eight at a time at 25. In a core's own
 * cache eight at a time, which share the loads of sums, are faster. */
static bool streams_rows(const hr_prepared *p) {
  return p->dtype == HR_DTYPE_BF16 && !uses_dots(p) && p->inner * p->columns > KEPT_WEIGHTS;
}

/* Weights of a batch that a core's own cache may hold: asking ahead would mostly load what lies behind them. */
static bool are_few(const hr_prepared *p) {
  return p->inner * p->columns * weight_bytes(p->dtype) < CACHED_BYTES;
}

/* Sums of a block of columns over `inner` elements of x. */
SUMS_INLINE void sum_block(const hr_prepared *p, const float *x, const char *w, int64_t inner, int64_t count,
                           float *restrict sums, hr_dtype dtype) {
  if (uses_dots(p) && are_few(p)) {
    sum_dots(x, w, p->w_columns, inner, count, sums, 0, dtype);
  } else if (uses_dots(p)) {
    sum_dots(x, w, p->w_columns, inner, count, sums, AHEAD_BYTES, dtype);
  } else if (dtype == HR_DTYPE_BF16 && streams_rows(p)) {
    stream_rows(x, w, p->w_inner, inner, count, sums, dtype);
  } else {
    sum_rows(x, w, p->w_inner, inner, count, sums, dtype);
  }
}

static int64_t joined_most(const hr_prepared *p) {
  if (uses_dots(p)) {
    return JOINED_DOTS;
  }
  return streams_rows(p) ? STREAMED_BLOCKS : p->dtype != HR_DTYPE_F32 ? 1 : JOINED_BLOCKS;
}

/* How many of the next blocks are processed together. Each page that a row begins anew costs a miss of the TLB. */
static int64_t joined_blocks(const hr_prepared *p, int64_t unit, int64_t end) {
  int64_t blocks = count_blocks(p), rest = blocks - unit % blocks, joined = end - unit < rest ? end - unit : rest;
  int64_t most = joined_most(p);
  return joined < most ? joined : most;
}

/* Blocks [begin, end) of the columns of all parts and batches, numbered consecutively. */
static void run_units(void *arg, int64_t begin, int64_t end, int worker) {
  (void)worker;
  const call *c = arg;
  const hr_prepared *p = c->p;
  int64_t blocks = count_blocks(p), block = uses_dots(p) ? DOT_BLOCK : BLOCK;
  for (int64_t unit = begin, joined; unit < end; unit += joined) {
    joined = joined_blocks(p, unit, end);
    int64_t group = unit / blocks, part = group / p->batch, batch = group % p->batch, first = unit % blocks * block;
    int64_t most = joined * block, count = p->columns - first < most ? p->columns - first : most;
    int64_t k = part * p->part, inner = p->inner - k < p->part ? p->inner - k : p->part;
    const float *x = c->row + batch * c->row_batch + k;
    int64_t place = batch * p->w_batch + first * p->w_columns + k * p->w_inner;
    float sums[STREAMED_BLOCKS * BLOCK];
    if (p->dtype == HR_DTYPE_BF16) {
      sum_block(p, x, c->w + 2 * place, inner, count, sums, HR_DTYPE_BF16);
    } else {
      sum_block(p, x, c->w + 4 * place, inner, count, sums, HR_DTYPE_F32);
    }
    if (p->parts > 1) {
      memcpy(c->partial + group * p->columns + first, sums, (size_t)count * sizeof *sums);
    } else {
      give(c, batch, first, sums, count);
    }
  }
}

/* Serial: there are few parts and few columns. */
static void add_parts(const call *c) {
  const hr_prepared *p = c->p;
  float *restrict sums = c->partial;
  int64_t count = p->batch * p->columns;
  for (int64_t part = 1; part < p->parts; ++part) {
    for (int64_t i = 0; i < count; ++i) {
      sums[i] += c->partial[part * count + i];
    }
  }
  for (int64_t batch = 0; batch < p->batch; ++batch) {
    give(c, batch, 0, sums + batch * p->columns, p->columns);
  }
}

/* The first block of one of `shares` shares. The calling thread has run the host's code since the last product and must
 * reload its weights; the other threads still have theirs in cache. It gets three blocks for every four of theirs.
 */
static int64_t share_begin(int64_t blocks, int64_t share, int64_t shares) {
  return share == 0 ? 0
                    : (2 * blocks * (4 * share - 1) + 4 * shares - 1) / (2 * (4 * shares - 1)); /* rounded to nearest */
}

static void run_shares(void *arg, int64_t begin, int64_t end, int worker) {
  const call *c = arg;
  int64_t blocks = c->p->batch * count_blocks(c->p);
  run_units(arg, share_begin(blocks, begin, c->shares), share_begin(blocks, end, c->shares), worker);
}

/* Two threads, one of which may start late: each begins at its end of the blocks, until they meet. A thread reads
 * nearly the same blocks in each run, so they stay in its cache. */
static void run_ends(void *arg, int64_t begin, int64_t end, int worker) {
  call *c = arg;
  int64_t blocks = c->p->batch * count_blocks(c->p);
  for (int64_t share = begin; share < end; ++share) {
    for (int64_t own = 0; atomic_fetch_add_explicit(&c->begun, 1, memory_order_relaxed) < blocks; ++own) {
      int64_t unit = share == 0 ? own : blocks - 1 - own;
      run_units(arg, unit, unit + 1, worker);
    }
  }
}

/* x, dense and in f32, into the workspace. */
static void copy_x(call *c, float *rows) {
  const hr_prepared *p = c->p;
  bool is_one = p->x_batch == 0 && p->x_outer == 0;
  int64_t bytes = weight_bytes(p->dtype), batches = is_one ? 1 : p->batch;
  for (int64_t batch = 0; batch < batches; ++batch) {
    int64_t group = batch / p->x_group, within = batch % p->x_group;
    const char *x = c->x + (group * p->x_outer + within * p->x_batch) * bytes;
    for (int64_t k = 0; k < p->inner; ++k) {
      rows[batch * p->inner + k] = load_weight(x + k * p->x_stride * bytes, p->dtype);
    }
  }
  c->row = rows;
  c->row_batch = is_one ? 0 : p->inner;
}

static call begin_call(const hr_prepared *p, void *const *args, float *workspace) {
  int64_t bytes = weight_bytes(p->dtype);
  call c = {.p = p,
            .x = (const char *)args[p->x_arg] + p->x_offset * bytes,
            .w = (const char *)args[p->w_arg] + p->w_offset * bytes,
            .bias = p->has_bias ? (const char *)args[2] + p->bias_offset * bytes : NULL,
            .y = (char *)args[p->y_arg] + p->y_offset * bytes,
            .row_batch = p->x_batch,
            .partial = workspace + (p->copies_x ? p->batch * p->inner : 0)};
  for (int i = 0; i < p->epilogue_count; ++i) {
    c.numbers[i] = p->epilogues[i].arg >= 0 ? number_of(args[p->epilogues[i].arg]) : 0;
  }
  c.row = (const float *)(const void *)c.x;
  if (p->copies_x) {
    copy_x(&c, workspace);
  }
  return c;
}

static hr_status run(hr_prepared *p, void *const *args, void *workspace, void *queue) {
  (void)queue;
  call c = begin_call(p, args, workspace);
  int64_t units = p->parts * p->batch * count_blocks(p);
  if (needs_team(p) && p->parts == 1 && p->batch * p->inner * p->columns <= KEPT_WEIGHTS) {
    bool is_met = hr_thread_count() == 2 && p->inner * DOT_BLOCK >= MET_BLOCK && uses_dots(p);
    c.shares = hr_thread_count();
    hr_parallel_for(c.shares, 1, is_met ? run_ends : run_shares, &c);
  } else {
    hr_parallel_for(units, needs_team(p) ? 1 : units, run_units, &c);
  }
  if (p->parts > 1) {
    add_parts(&c);
  }
  return HR_OK;
}

/* Each weight is read once: memory is the limit for all. */
static bool is_settled(const hr_prepared *p) {
  (void)p;
  return true;
}

static size_t footprint(const hr_prepared *p) {
  return sizeof *p;
}

const hr_provider HR_CPU_NAME(hr__gemv_provider) = {
    .name = "gemv",
    .is_apart = true,
    .runs = hr__provider_runs_products,
    .supports = supports,
    .prepare = prepare,
    .renumber = renumber,
    .is_settled = is_settled,
    .needs_team = needs_team,
    .run = run,
    .footprint = footprint,
    .release = hr__provider_release,
};
