/* matrices.c: products of matrices of a few hundred rows and columns on CUDA devices, by our own kernel
 * (matrices.text).
 *
 * A library's tiles for f32 have 128 rows or columns: a layer of 512 rows by 450 columns is 16 of them, which leaves
 * most of a large GPU's processors idle. Ours have 32 columns, and several warps share the sums of a tile.
 *
 * f32, with or without a bias for each column; any strides. Rejects batches, more tiles than the device has processors,
 * and long sums, which a library divides among blocks: for those its kernel is as fast or faster.
 */
#include <string.h>

#include "base/env.h"
#include "core/ir/dtype.h"
#include "providers/device_text.h"
#include "providers/small/small.h"

enum { TM_MOST = 8, TILE_COLUMNS = 32, PROCESSORS = 132 };
/* Products of more elements, or of more multiplications, are left to a library. */
static const int64_t ELEMENTS_MOST = 1 << 19, SIDE_MOST = 1 << 14, INNER_MOST = 1 << 10, PRODUCTS_MOST = 1 << 28;

typedef struct matrices {
  const hr_operand *a, *b, *y, *bias; /* bias: NULL, or one number for each column */
  int64_t rows, columns, inner, across, blocks;
  int tm, groups; /* of 64 threads in a block */
} matrices;

static bool is_small(const matrices *p) {
  return p->rows > 1 && p->columns > 0 && p->inner > 0 && p->rows <= SIDE_MOST && p->columns <= SIDE_MOST &&
         p->inner <= INNER_MOST && p->rows * p->columns <= ELEMENTS_MOST &&
         p->rows * p->columns * p->inner <= PRODUCTS_MOST;
}

/* Rows of a thread: more rows reuse loaded data more often, fewer rows keep more processors busy. */
static void divide(matrices *p) {
  enum { READ = 4, STARTED = 4000 }; /* cycles: for each element of the inner dim, and for a block */
  int64_t best = INT64_MAX;
  p->across = (p->columns + TILE_COLUMNS - 1) / TILE_COLUMNS;
  for (int tm = TM_MOST; tm > 1; tm /= 2) {
    int64_t blocks = (p->rows + 8 * tm - 1) / (8 * tm) * p->across;
    int64_t cycles = (blocks + PROCESSORS - 1) / PROCESSORS * (p->inner * (2 * tm + READ) + STARTED);
    if (cycles < best) {
      best = cycles, p->tm = tm, p->blocks = blocks;
    }
  }
}

static bool is_matrices(const hr_node *node, matrices *out_matrices) {
  if (node->op != HR_OP_MATMUL || node->epilogue_count > 0 || node->scalar_count > 0 || node->input_count < 2 ||
      !hr__small_has_dtypes(node) || node->outputs[0].dtype != HR_DTYPE_F32 ||
      hr_env_choice(HR_ENV_TF32) == HR_ENV_TF32_ALL) {
    return false;
  }
  matrices p = {.a = &node->inputs[0], .b = &node->inputs[1], .y = &node->outputs[0]};
  p.bias = node->input_count > 2 && node->inputs[2].kind != HR_OPERAND_NONE ? &node->inputs[2] : NULL;
  if (p.a->rank != 2 || p.b->rank != 2 || p.y->rank != 2) {
    return false;
  }
  p.rows = p.y->dims[0], p.columns = p.y->dims[1], p.inner = p.a->dims[1];
  if (!is_small(&p) || (p.bias != NULL && !hr__small_is_row(p.bias, p.columns))) {
    return false;
  }
  divide(&p);
  p.groups = p.tm > 4 ? 4 : 8; /* their sums must fit into 48 KB of shared memory */
  *out_matrices = p;
  return p.blocks <= PROCESSORS;
}

static bool supports(const hr_program *program, const hr_node *node) {
  (void)program;
  matrices p;
  return is_matrices(node, &p);
}

/* ---- the text ---- */

static const char *const texts[] = {
#include "providers/small/matrices_text.inc"
};

static void write_text(const hr_program *program, const hr_node *node, const matrices *p, hr_text *text) {
  hr__small_write_definitions(program, node, text);
  hr_text_printf(text, "#define TM %d\n#define GROUPS %d\n#define A_RUNS %d\n#define B_RUNS %d\n#define HAS_BIAS %d\n",
                 p->tm, p->groups, p->a->strides[1] == 1, p->b->strides[0] == 1, p->bias != NULL);
  for (size_t i = 0; i < sizeof texts / sizeof *texts; ++i) {
    hr_text_append(text, texts[i]);
  }
}

static int64_t *write_place(int64_t *words, const hr_operand *x) {
  *words++ = x->offset;
  *words++ = x->strides[0];
  *words++ = x->strides[1];
  return words;
}

static hr_status write(const hr_program *program, const hr_node *node, hr_device_source *out_source) {
  matrices p;
  hr_device_source source = {.name = "hr_matrices", .pass_count = 1, .begins_early = true};
  if (!is_matrices(node, &p)) {
    return hr_status_make(HR_STATUS_INTERNAL, "matrices: a product that it does not support");
  }
  write_text(program, node, &p, &source.text);
  int64_t *words = source.words;
  *words++ = p.rows, *words++ = p.columns, *words++ = p.inner, *words++ = p.across;
  words = write_place(write_place(write_place(words, p.a), p.b), p.y);
  *words++ = p.bias != NULL ? p.bias->offset : 0;
  *words++ = p.bias != NULL ? p.bias->strides[p.bias->rank - 1] : 0;
  source.word_count = (int)(words - source.words);
  source.blocks[0] = p.blocks;
  source.threads[0] = 64 * p.groups;
  return hr__device_text_finish(&source, out_source);
}

const hr_provider hr__matrices_provider = {
    .name = "matrices",
    .dialect = HR_DIALECT_CUDA,
    .supports = supports,
    .write = write,
};
