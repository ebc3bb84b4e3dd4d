/* batched_products.c: products of many matrices of f32, with nothing to prepare for a size.
 *
 * A library's primitive takes 0.2 to 0.4 ms to make for each size, more than most batches of small matrices take to
 * multiply. Here each pair of matrices is a product of its own:
 *
 *   for each matrix, each block of its rows, each panel of up to 64 columns:
 *     the panel of the right factor, packed if its columns are dense
 *     sums[row][column] = sum over k of a * b
 *     bias, epilogues, store
 *
 * Every element has one order of additions, that of k, for any number of threads.
 *
 * Supports f32, one or two batch dims, results whose rows are dense, and right factors of up to 512 rows and 1,024
 * columns, on processors with vectors of 16 floats. A right factor that all of the batch share makes one large product,
 * which is left to sgemm.
 */
#include <string.h>

#include "base/integer.h"
#include "base/thread.h"
#include "providers/direct/direct.h"
#include "providers/provider.h"

static hr_status open_provider(void) {
  return hr__wide_vectors_check("batched-products");
}

#if defined(HR_WIDE_VECTORS)

enum {
  VECTOR = HR__WIDE,
  VECTORS = HR__PANEL_VECTORS,
  PANEL = VECTOR * VECTORS,
  STRIP = 48, /* rows whose sums are in the first cache */
  ROWS_MOST = 256,
  ROWS_PACKED_MIN = 4, /* fewer are not worth packing the right factor */
  DEPTH_MAX = 512,
  COLUMNS_MAX = 1024,
  COLUMNS_MIN = 2,
  COLUMNS_NARROW = 3
};
static const int64_t SERIAL_FLOPS = 1000000;
/* With narrow results a library is up to a quarter faster, but products up to here don't save what its primitive takes.
 */
static const int64_t FLOPS_OF_NARROW = 1000000;

/* Matrices in [images][heads]; strides in elements, 0 along dims of 1. */
typedef struct matrices {
  int64_t offset, image, head, row, column;
} matrices;

struct hr_prepared {
  matrices a, b, c;
  int64_t images, heads, rows, depth, columns;
  int64_t vectors, panels; /* of columns */
  bool packs;              /* panels of b */
  int64_t block, blocks;   /* rows of a unit of work; units of a matrix */
  int64_t slots, slot_floats, number_floats;
  int c_arg;
  hr__direct_epilogues epilogues; /* a prepared product has memory for its own count */
};

typedef struct call {
  const hr_prepared *p;
  const float *a, *b;
  float *c, *slots;
  hr__direct_numbers numbers;
} call;

/* ---- what is supported ---- */

static int64_t stride_of(const hr_operand *x, int dim) {
  return x->dims[dim] == 1 ? 0 : x->strides[dim];
}

static matrices matrices_of(const hr_operand *x) {
  int last = x->rank - 1;
  return (matrices){.offset = x->offset,
                    .image = stride_of(x, 0),
                    .head = last > 2 ? stride_of(x, 1) : 0,
                    .row = stride_of(x, last - 1),
                    .column = stride_of(x, last)};
}

static bool is_f32(const hr_operand *x, int rank) {
  return x->kind == HR_OPERAND_VALUE && x->dtype == HR_DTYPE_F32 && x->rank == rank;
}

static bool has_operands(const hr_node *node) {
  const hr_operand *c = &node->outputs[0];
  return node->op == HR_OP_MATMUL && c->kind == HR_OPERAND_VALUE && (c->rank == 3 || c->rank == 4) &&
         is_f32(c, c->rank) && is_f32(&node->inputs[0], c->rank) && is_f32(&node->inputs[1], c->rank);
}

static void describe(const hr_node *node, hr_prepared *p) {
  const hr_operand *a = &node->inputs[0], *c = &node->outputs[0];
  int last = c->rank - 1;
  memset(p, 0, offsetof(hr_prepared, epilogues));
  p->a = matrices_of(a), p->b = matrices_of(&node->inputs[1]), p->c = matrices_of(c);
  p->images = c->dims[0], p->heads = last > 2 ? c->dims[1] : 1;
  p->rows = c->dims[last - 1], p->depth = a->dims[last], p->columns = c->dims[last];
  p->vectors = hr_divide_up(p->columns, VECTOR), p->panels = hr_divide_up(p->vectors, VECTORS);
  p->packs = p->b.column != 1;
  p->c_arg = node->input_count;
}

static bool has_columns(const hr_prepared *p) {
  int64_t flops = 2 * p->images * p->heads * p->rows * p->depth * p->columns;
  return p->columns >= COLUMNS_MIN && p->columns <= COLUMNS_MAX &&
         (p->columns > COLUMNS_NARROW || flops <= FLOPS_OF_NARROW);
}

static bool has_sizes(const hr_prepared *p) {
  bool is_shared = (p->b.image == 0 || p->images == 1) && (p->b.head == 0 || p->heads == 1);
  bool is_dense = !p->packs || ((p->b.row == 1 || p->depth == 1) && p->rows >= ROWS_PACKED_MIN);
  return !is_shared && is_dense && p->images * p->heads > 1 && p->c.column == 1 && p->rows > 1 && p->depth > 0 &&
         p->depth <= DEPTH_MAX && has_columns(p);
}

static bool plan(const hr_node *node, hr_prepared *p) {
  if (!has_operands(node)) {
    return false;
  }
  describe(node, p);
  return has_sizes(p) && hr__direct_epilogues_init(node, &p->epilogues);
}

static bool supports(const hr_program *program, const hr_node *node) {
  (void)program;
  hr_prepared p;
  return plan(node, &p);
}

/* ---- a run ---- */

static int64_t panel_begin(const hr_prepared *p, int64_t panel) {
  return p->vectors * panel / p->panels * VECTOR;
}

/* A block of rows of one matrix. */
typedef struct block {
  const call *call;
  int64_t image, head, first, rows;
  const float *a, *b;
  float *c; /* of the first row */
} block;

/* Columns from `column` on, of the rows from number `row` of the block on. */
static void run_strip(const block *k, hr__wide_product *product, int64_t row, int64_t column) {
  float sums[STRIP * PANEL] __attribute__((aligned(64)));
  const hr_prepared *p = k->call->p;
  hr__direct_pixels pixels = {.y = k->c + row * p->c.row + column,
                              .y_step = p->c.row,
                              .count = product->lines,
                              .image = k->image,
                              .row = k->head,
                              .column = k->first + row,
                              .column_step = 1,
                              .channel = column,
                              .channels = product->outs};
  const float *addend = hr__direct_addend(&p->epilogues, &k->call->numbers);
  int rows_done = addend != NULL;
  bool is_stored = p->epilogues.count == rows_done;
  product->addend = addend != NULL ? addend + column : NULL;
  product->v = k->a + row * p->a.row;
  product->m = is_stored ? pixels.y : sums;
  product->m_step = is_stored ? p->c.row : product->vectors * VECTOR;
  hr__wide_multiply(product);
  if (!is_stored) {
    hr__direct_finish(&p->epilogues, &k->call->numbers, rows_done, sums, product->m_step, &pixels);
  }
}

static void run_block(const block *k, float *packed) {
  const hr_prepared *p = k->call->p;
  for (int64_t panel = 0; panel < p->panels; ++panel) {
    int64_t column = panel_begin(p, panel), width = panel_begin(p, panel + 1) - column;
    hr__wide_product product = {.v_step = p->a.row,
                                .rows = 1,
                                .columns = 1,
                                .depth = p->depth,
                                .u = k->b + column * p->b.column,
                                .u_next = p->b.row,
                                .v_next = p->a.column,
                                .vectors = (int)(width / VECTOR),
                                .outs = hr_min(width, p->columns - column)};
    if (p->packs) {
      hr__wide_pack_panel(product.u, p->b.column, p->depth, product.outs, packed, width);
      product.u = packed, product.u_next = width;
    }
    for (int64_t row = 0; row < k->rows; row += STRIP) {
      product.lines = hr_min(STRIP, k->rows - row);
      run_strip(k, &product, row, column);
    }
  }
}

static void run_unit(const call *c, int64_t unit, float *packed) {
  const hr_prepared *p = c->p;
  int64_t matrix = unit / p->blocks, image = matrix / p->heads, head = matrix % p->heads;
  block k = {.call = c, .image = image, .head = head, .first = unit % p->blocks * p->block};
  k.rows = hr_min(p->block, p->rows - k.first);
  k.a = c->a + image * p->a.image + head * p->a.head + k.first * p->a.row;
  k.b = c->b + image * p->b.image + head * p->b.head;
  k.c = c->c + image * p->c.image + head * p->c.head + k.first * p->c.row;
  run_block(&k, packed);
}

static void run_slots(void *arg, int64_t begin, int64_t end, int worker) {
  (void)worker;
  const call *c = arg;
  const hr_prepared *p = c->p;
  int64_t units = p->images * p->heads * p->blocks;
  for (int64_t slot = begin; slot < end; ++slot) {
    for (int64_t unit = units * slot / p->slots; unit < units * (slot + 1) / p->slots; ++unit) {
      run_unit(c, unit, c->slots + slot * p->slot_floats);
    }
  }
}

static hr_status run(hr_prepared *p, void *const *args, void *workspace, void *queue) {
  (void)queue;
  call c = {.p = p,
            .a = (const float *)args[0] + p->a.offset,
            .b = (const float *)args[1] + p->b.offset,
            .c = (float *)args[p->c_arg] + p->c.offset,
            .slots = (float *)workspace + p->number_floats};
  hr__direct_epilogues_bind(&p->epilogues, args, p->vectors * VECTOR, workspace, &c.numbers);
  hr_parallel_for(p->slots, 1, run_slots, &c);
  return HR_OK;
}

/* ---- preparing ---- */

/* Few matrices: blocks of fewer rows, so that each thread has some. */
static void divide(hr_prepared *p) {
  int64_t count = p->images * p->heads;
  bool is_serial = 2 * count * p->rows * p->depth * p->columns < SERIAL_FLOPS || hr_thread_count() == 1;
  int64_t share = is_serial ? p->rows : hr_divide_up(p->rows, hr_divide_up(hr_thread_count(), count));
  p->block = hr_max(STRIP, hr_min(share, ROWS_MOST));
  p->blocks = hr_divide_up(p->rows, p->block);
  p->slots = is_serial ? 1 : hr_min(hr_thread_count(), count * p->blocks);
  p->slot_floats = p->packs ? p->depth * PANEL : 0;
  p->number_floats = hr__direct_epilogues_floats(&p->epilogues, p->vectors * VECTOR);
}

static size_t footprint(const hr_prepared *p) {
  return offsetof(hr_prepared, epilogues.of) + (size_t)p->epilogues.count * sizeof *p->epilogues.of;
}

static size_t workspace_of(const hr_prepared *p) {
  return (size_t)(p->number_floats + p->slots * p->slot_floats) * sizeof(float);
}

static hr_status prepare(const hr_program *program, const hr_node *node, int algorithm, void *queue,
                         hr_prepared **out_prepared, size_t *out_workspace_bytes) {
  (void)program, (void)algorithm, (void)queue;
  hr_prepared p;
  if (!plan(node, &p)) {
    return hr_status_make(HR_STATUS_INTERNAL, "matmul: batched products do not support what they accepted");
  }
  divide(&p);
  *out_workspace_bytes = workspace_of(&p);
  return hr__provider_keep(&p, footprint(&p), "matmul: no memory for a prepared product", out_prepared);
}

static bool renumber(hr_prepared *prepared, const hr_program *program, const hr_node *node,
                     size_t *out_workspace_bytes) {
  (void)program;
  hr_prepared p;
  if (!plan(node, &p) || p.epilogues.count != prepared->epilogues.count) {
    return false;
  }
  divide(&p);
  *out_workspace_bytes = workspace_of(&p);
  memcpy(prepared, &p, footprint(&p));
  return true;
}

static bool needs_team(const hr_prepared *p) {
  return p->slots > 1;
}

const hr_provider HR_CPU_NAME(hr__batched_products_provider) = {
    .name = "batched-products",
    .is_apart = true,
    .open = open_provider,
    .runs = hr__provider_runs_products,
    .supports = supports,
    .prepare = prepare,
    .renumber = renumber,
    .needs_team = needs_team,
    .run = run,
    .footprint = footprint,
    .release = hr__provider_release,
};

#else

const hr_provider HR_CPU_NAME(hr__batched_products_provider) = {.name = "batched-products", .open = open_provider};

#endif
