/* small_attention.c: small attention (few queries over few keys) on CUDA devices, by our own kernel
 * (small_attention.text). It replaces two products and a softmax, each too short to fill the device.
 *
 * f32, bf16 and f16, computed in f32; any strides, every mask, causal or not. Rejects: dropout, gradients, many
 * queries, which providers/flash runs, and many keys, for which products divide the work better. One query, as in the
 * generation of words, may have more keys.
 */
#include <string.h>

#include "core/ir/dtype.h"
#include "providers/device_text.h"
#include "providers/small/small.h"

enum { QUERIES_MOST = 31, KEYS_MOST = 128, KEYS_OF_ONE_MOST = 512, WIDTH_MOST = 256, VECTOR_BYTES = 16 };
enum { Q, K, V, MASK, Y, LSE, OPERANDS };

typedef struct small {
  const hr_operand *x[OPERANDS]; /* NULL: absent */
  int64_t batches, heads, queries, keys, width, v_width;
} small;

static bool has_dtypes(const small *g) {
  hr_dtype dtype = g->x[Q]->dtype;
  bool is = hr__device_text_has_dtype(dtype);
  for (int i = 0; is && i < OPERANDS; ++i) {
    const hr_operand *x = g->x[i];
    is = x == NULL ||
         (x->kind == HR_OPERAND_VALUE && (x->dtype == (i == LSE ? HR_DTYPE_F32 : dtype) ||
                                          (i == MASK && (x->dtype == HR_DTYPE_BOOL || x->dtype == HR_DTYPE_F32))));
  }
  return is;
}

static int64_t keys_most(const small *g) {
  return g->queries == 1 ? KEYS_OF_ONE_MOST : KEYS_MOST;
}

static bool is_small(const hr_node *node, small *out_small) {
  small g = {.batches = 1, .heads = 1};
  if (node->op != HR_OP_ATTENTION || node->epilogue_count > 0 || node->scalar_count != 1 || node->input_count < 4 ||
      node->output_count < 1) {
    return false;
  }
  for (int i = 0; i < Y; ++i) {
    g.x[i] = hr__present(&node->inputs[i]);
  }
  g.x[Y] = hr__present(&node->outputs[0]), g.x[LSE] = node->output_count > 1 ? hr__present(&node->outputs[1]) : NULL;
  if (g.x[Q] == NULL || g.x[K] == NULL || g.x[V] == NULL || g.x[Y] == NULL || g.x[Q]->rank > 4 || g.x[Q]->rank < 2 ||
      !has_dtypes(&g)) {
    return false;
  }
  int rank = g.x[Q]->rank;
  g.batches = rank > 3 ? g.x[Q]->dims[0] : 1, g.heads = rank > 2 ? g.x[Q]->dims[rank - 3] : 1;
  g.queries = g.x[Q]->dims[rank - 2], g.keys = g.x[K]->dims[rank - 2];
  g.width = g.x[Q]->dims[rank - 1], g.v_width = g.x[V]->dims[rank - 1];
  *out_small = g;
  return g.queries >= 1 && g.queries <= QUERIES_MOST && g.keys >= 1 && g.keys <= keys_most(&g) && g.width >= 1 &&
         g.width <= WIDTH_MOST && g.v_width >= 1 && g.v_width <= WIDTH_MOST && g.heads >= 1 && g.batches >= 1 &&
         g.heads <= INT32_MAX / g.batches / QUERIES_MOST;
}

static bool supports(const hr_program *program, const hr_node *node) {
  (void)program;
  small g;
  return is_small(node, &g);
}

/* ---- the text ---- */

static const char *const texts[] = {
#include "providers/small/small_attention_text.inc"
};

static void write_text(const hr_program *program, const hr_node *node, const small *g, hr_text *text) {
  const hr_operand *mask = g->x[MASK];
  int vector = VECTOR_BYTES / (int)hr_dtype_size(g->x[Q]->dtype), columns = 1;
  while (columns < g->v_width && columns < HR_SMALL_THREADS) {
    columns *= 2;
  }
  hr__small_write_definitions(program, node, text);
  hr_text_printf(text, "#define WIDTH %d\n#define V_WIDTH %d\n#define KEYS_MOST %d\n#define VECTOR %d\n", (int)g->width,
                 (int)g->v_width, (int)keys_most(g), hr__device_text_has_vectors(g->x[K]) ? vector : 1);
  hr_text_printf(text, "#define COLUMNS %d\n#define IS_CAUSAL %d\n#define MASK_KIND %d\n#define HAS_LSE %d\n", columns,
                 node->ints[0] != 0,
                 mask == NULL                   ? 0
                 : mask->dtype == HR_DTYPE_BOOL ? 1
                 : mask->dtype == HR_DTYPE_F32  ? 2
                                                : 3,
                 g->x[LSE] != NULL);
  hr_text_printf(text, "#define SCALARS %d\n", node->scalar_count);
  hr_text_append_all(text, sizeof texts / sizeof *texts, texts);
}

/* Offset, and strides of batches, heads, rows and columns (the log-sum-exp has none); missing dims, and dims of 1, are
 * broadcast. */
static void write_operand(const hr_operand *x, bool has_columns, int64_t *words) {
  memset(words, 0, 5 * sizeof *words);
  if (x == NULL) {
    return;
  }
  words[0] = x->offset;
  for (int d = x->rank - 1, at = has_columns ? 4 : 3; d >= 0 && at > 0; --d, --at) {
    words[at] = x->dims[d] != 1 ? x->strides[d] : 0;
  }
}

static hr_status write(const hr_program *program, const hr_node *node, hr_device_source *out_source) {
  small g;
  hr_device_source source = {.name = "hr_small_attention", .pass_count = 1, .begins_early = true};
  if (!is_small(node, &g)) {
    return hr_status_make(HR_STATUS_INTERNAL, "small attention: an attention that it does not support");
  }
  write_text(program, node, &g, &source.text);
  source.words[0] = g.queries, source.words[1] = g.keys, source.words[2] = g.heads;
  for (int i = 0; i < OPERANDS; ++i) {
    write_operand(g.x[i], i != LSE, source.words + 3 + 5 * i);
  }
  source.word_count = 3 + 5 * OPERANDS;
  source.blocks[0] = g.batches * g.heads * g.queries;
  source.threads[0] = HR_SMALL_THREADS;
  return hr__device_text_finish(&source, out_source);
}

const hr_provider hr__small_attention_provider = {
    .name = "small-attention",
    .dialect = HR_DIALECT_CUDA,
    .supports = supports,
    .write = write,
};
