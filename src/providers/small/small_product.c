/* small_product.c: products of one row (gemv), y = x W (+ bias), on CUDA devices, by our own kernel
 * (small_product.text).
 *
 * Such a product reads each weight once; a library's kernel would spend longer on dividing the work. In a graph the
 * kernel begins early (device_kernel.h): it prefetches weights that the program does not write while the kernel in
 * front, which makes x, still runs.
 *
 * f32, bf16 and f16 with sums in f32; W's columns or rows are contiguous; up to two batch dims. A vector at a time if
 * everything begins at multiples of 16 bytes. The rest is left to the next provider.
 */
#include <string.h>

#include "base/integer.h"
#include "core/ir/dtype.h"
#include "providers/device_text.h"
#include "providers/small/small.h"

enum { THREADS = HR_SMALL_THREADS, WARP = 32, VECTOR_BYTES = 16, BATCH_DIMS = 2 };
enum { WARPS_WANTED = 2048, SPLIT_MOST = 4, BLOCKS_WANTED = 128, ACROSS_LEAST = 2 }; /* enough to fill an H200 */

/* Strides of the two batch dims, the inner one last. */
typedef struct matrix {
  const hr_operand *x;
  int64_t batch_strides[BATCH_DIMS], row_stride, column_stride;
} matrix;

typedef struct product {
  matrix x, w, y;
  const hr_operand *bias; /* NULL: none */
  int64_t batches[BATCH_DIMS], inner, columns;
  bool has_runs; /* W's columns are contiguous, else its rows */
  int vector, group, split, across;
  int64_t blocks; /* of a batch */
} product;

/* ---- supported nodes ---- */

static int64_t stride_of(const hr_operand *x, int dim) {
  return x->dims[dim] != 1 ? x->strides[dim] : 0;
}

static matrix matrix_of(const hr_operand *x, const int dims[BATCH_DIMS]) {
  matrix m = {.x = x, .row_stride = x->strides[x->rank - 2], .column_stride = x->strides[x->rank - 1]};
  for (int i = 0; i < BATCH_DIMS; ++i) {
    m.batch_strides[i] = dims[i] >= 0 ? stride_of(x, dims[i]) : 0;
  }
  return m;
}

/* The batch dims of more than one element; false: there are more than two. */
static bool find_batches(const hr_operand *y, int dims[BATCH_DIMS], int64_t counts[BATCH_DIMS]) {
  int at = BATCH_DIMS;
  for (int i = 0; i < BATCH_DIMS; ++i) {
    dims[i] = -1, counts[i] = 1;
  }
  for (int d = y->rank - 3; d >= 0; --d) {
    if (y->dims[d] != 1 && at == 0) {
      return false;
    }
    if (y->dims[d] != 1) {
      dims[--at] = d, counts[at] = y->dims[d];
    }
  }
  return true;
}

bool hr__small_has_dtypes(const hr_node *node) {
  hr_dtype dtype = node->outputs[0].dtype;
  bool is = hr__device_text_has_dtype(dtype);
  for (int i = 0; is && i < node->input_count + node->output_count; ++i) {
    const hr_operand *x = hr_node_operand(node, i);
    is = x->kind == HR_OPERAND_NONE ? i == 2 : x->kind == HR_OPERAND_VALUE && x->dtype == dtype;
  }
  return is;
}

bool hr__small_is_row(const hr_operand *bias, int64_t columns) {
  bool is = bias->rank >= 1 && bias->dims[bias->rank - 1] == columns;
  for (int d = 0; is && d < bias->rank - 1; ++d) {
    is = bias->dims[d] == 1 || bias->strides[d] == 0;
  }
  return is;
}

/* True if vectors of W, and of x if they are contiguous, begin at multiples of their size. */
static bool is_vector(const product *p, int vector) {
  const int64_t steps[] = {p->w.x->offset,
                           p->w.batch_strides[0],
                           p->w.batch_strides[1],
                           p->has_runs ? (p->columns > 1 ? p->w.column_stride : 0) : p->w.row_stride,
                           p->has_runs ? p->inner : p->columns,
                           p->has_runs ? p->x.x->offset : 0,
                           p->has_runs ? p->x.batch_strides[0] : 0,
                           p->has_runs ? p->x.batch_strides[1] : 0};
  bool is = true;
  for (size_t i = 0; i < sizeof steps / sizeof *steps; ++i) {
    is &= steps[i] % vector == 0;
  }
  return is;
}

/* Divides the work: enough warps for the device, and no thread without work. */
static void divide(product *p) {
  int vector = VECTOR_BYTES / (int)hr_dtype_size(p->y.x->dtype);
  int64_t batches = p->batches[0] * p->batches[1];
  p->vector = is_vector(p, vector) ? vector : 1;
  if (p->has_runs) {
    int64_t loads = p->inner / p->vector;
    for (p->group = 1, p->split = 1; p->group < WARP && 2 * p->group <= loads;) {
      p->group *= 2;
    }
    while (p->split < SPLIT_MOST && p->group == WARP && 2 * p->split * WARP <= loads &&
           batches * p->columns * p->split < WARPS_WANTED) {
      p->split *= 2;
    }
    int64_t taken = THREADS / (p->group * p->split);
    p->blocks = hr_divide_up(p->columns, taken);
    return;
  }
  int64_t vectors = p->columns / p->vector;
  for (p->across = WARP; p->across > ACROSS_LEAST && vectors / p->across * batches < BLOCKS_WANTED;) {
    p->across /= 2;
  }
  p->blocks = hr_divide_up(vectors, p->across);
}

static bool is_product(const hr_node *node, product *out_product) {
  int dims[BATCH_DIMS];
  if (node->op != HR_OP_MATMUL || node->epilogue_count > 0 || node->scalar_count > 0 || node->input_count < 2 ||
      !hr__small_has_dtypes(node)) {
    return false;
  }
  const hr_operand *x = &node->inputs[0], *w = &node->inputs[1], *y = &node->outputs[0];
  const hr_operand *bias = node->input_count > 2 && node->inputs[2].kind != HR_OPERAND_NONE ? &node->inputs[2] : NULL;
  product p = {.bias = bias};
  int rank = y->rank;
  if (rank < 2 || x->rank != rank || w->rank != rank || y->dims[rank - 2] != 1 || !find_batches(y, dims, p.batches)) {
    return false;
  }
  p.inner = x->dims[rank - 1], p.columns = y->dims[rank - 1];
  p.x = matrix_of(x, dims), p.w = matrix_of(w, dims), p.y = matrix_of(y, dims);
  p.has_runs = p.w.row_stride == 1 || (p.inner == 1 && p.w.column_stride != 1);
  if (p.inner < 1 || p.columns < 1 || p.inner > INT32_MAX || p.columns > INT32_MAX ||
      (p.inner > 1 && p.x.column_stride != 1) || (!p.has_runs && p.columns > 1 && p.w.column_stride != 1) ||
      (bias != NULL && !hr__small_is_row(bias, p.columns))) {
    return false;
  }
  divide(&p);
  *out_product = p;
  return p.blocks * p.batches[0] * p.batches[1] <= INT32_MAX && p.batches[0] * p.batches[1] > 0;
}

static bool supports(const hr_program *program, const hr_node *node) {
  (void)program;
  product p;
  return is_product(node, &p);
}

/* ---- the text ---- */

static const char *const texts[] = {
#include "providers/small/small_product_text.inc"
};

void hr__small_write_definitions(const hr_program *program, const hr_node *node, hr_text *text) {
  hr_text_printf(text, "#define DTYPE %d\n#define IS_CONSTANT %d\n#define ARGS %d\n#define ARG_Y %d\n",
                 hr__device_text_dtype(node->outputs[0].dtype), hr_program_writes(program, node->inputs[1].index) == 0,
                 node->input_count + node->output_count, node->input_count);
}

static void write_text(const hr_program *program, const hr_node *node, const product *p, hr_text *text) {
  hr__small_write_definitions(program, node, text);
  hr_text_printf(text,
                 "#define VECTOR %d\n#define GROUP %d\n#define SPLIT %d\n#define ACROSS %d\n#define HAS_BIAS %d\n",
                 p->vector, p->group, p->split, p->across, p->bias != NULL);
  hr_text_append_all(text, sizeof texts / sizeof *texts, texts);
}

static int64_t *write_place(int64_t *words, const matrix *m) {
  *words++ = m->x->offset;
  for (int i = 0; i < BATCH_DIMS; ++i) {
    *words++ = m->batch_strides[i];
  }
  return words;
}

static void write_words(const product *p, hr_device_source *source) {
  int64_t *words = source->words;
  *words++ = p->inner;
  *words++ = p->columns;
  *words++ = p->blocks;
  *words++ = p->batches[1];
  *words++ = p->has_runs ? p->w.column_stride : p->w.row_stride;
  *words++ = p->y.column_stride;
  *words++ = p->bias != NULL ? p->bias->strides[p->bias->rank - 1] : 0;
  words = write_place(words, &p->x);
  words = write_place(words, &p->w);
  words = write_place(words, &p->y);
  *words++ = p->bias != NULL ? p->bias->offset : 0;
  source->word_count = (int)(words - source->words);
}

static hr_status write(const hr_program *program, const hr_node *node, hr_device_source *out_source) {
  product p;
  hr_device_source source = {.name = "hr_small_product", .pass_count = 1, .begins_early = true};
  if (!is_product(node, &p)) {
    return hr_status_make(HR_STATUS_INTERNAL, "thin: a product that it does not support");
  }
  write_text(program, node, &p, &source.text);
  write_words(&p, &source);
  source.blocks[0] = p.blocks * p.batches[0] * p.batches[1];
  source.threads[0] = THREADS;
  return hr__device_text_finish(&source, out_source);
}

const hr_provider hr__small_product_provider = {
    .name = "small-product",
    .dialect = HR_DIALECT_CUDA,
    .supports = supports,
    .write = write,
};
