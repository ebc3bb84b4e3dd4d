/* flash.c: attention and its gradient on CUDA devices, without storing the scores (Dao et al., "FlashAttention", 2022,
 * and Dao, "FlashAttention-2", 2023).
 *
 * Supports f32, bf16 and f16, with sums in f32, any strides, broadcast masks of flags or numbers, causal or not,
 * dropout, rows of up to 128 elements. Rejects:
 *
 * - f64, and gradients of a mask,
 * - few queries, for which products and loops are as good,
 * - shapes that do not fit into a block's shared memory.
 *
 * For tensor cores each f32 factor is split into two TF32 numbers. A product becomes three of them (Ootomo and Yokota,
 * "Recovering single precision accuracy from Tensor Cores", 2022). Blocks with NaN in the result are computed again
 * without tensor cores.
 *
 * The kernels are texts (*.text in this folder) after definitions of everything that changes the code: dtypes, widths,
 * the operands present. Lengths, strides and offsets are words at run time, so a text is compiled once for all
 * sequences.
 *
 * Numbers: the error is within that of a product by another library, and the bits are the same every time. Rows without
 * a visible key, NaN and infinities give the results of the loops in lower_attention.c, with one exception: keys that a
 * causal mask hides from a whole block of queries are not read for it. Dropout uses the same random numbers as those
 * loops.
 */
#include <string.h>

#include "base/integer.h"
#include "core/ir/dtype.h"
#include "providers/cuda_limits.h"
#include "providers/device_text.h"

enum { WIDTH_MAX = 128, QUERIES_MIN = 32, THREADS = 128, TILED = 128, SUM_ROWS = 16 };
enum { ARCHITECTURE_MIN = 8 }; /* asynchronous copies, and bf16 in tensor cores */

typedef enum role { DY, Q, K, V, MASK, Y, LSE, DQ, DK, DV, ROLES } role;

typedef struct attention {
  const hr_node *node;
  const hr_operand *x[ROLES]; /* NULL: absent */
  int args[ROLES];
  bool is_backward, is_narrow, is_vector;
  hr_dtype dtype;
  int64_t heads, inner_heads, queries, keys;
  int width, v_width;
  int rows_each; /* rows of scores of a thread */
  int columns;   /* of a tile of scores */
} attention;

/* ---- supported nodes ---- */

static void find_operands(const hr_node *node, attention *a) {
  static const role forward[] = {Q, K, V, MASK, Y, LSE}, backward[] = {DY, Q, K, V, MASK, Y, LSE, DQ, DK, DV};
  a->node = node;
  a->is_backward = node->op == HR_OP_ATTENTION_BACKWARD;
  const role *roles = a->is_backward ? backward : forward;
  int inputs = a->is_backward ? 7 : 4, outputs = a->is_backward ? 3 : 2;
  for (int i = 0; i < inputs && i < node->input_count; ++i) {
    a->x[roles[i]] = hr__present(&node->inputs[i]), a->args[roles[i]] = i;
  }
  for (int i = 0; i < outputs && i < node->output_count; ++i) {
    a->x[roles[inputs + i]] = hr__present(&node->outputs[i]), a->args[roles[inputs + i]] = node->input_count + i;
  }
}

static bool has_dtypes(const attention *a) {
  hr_dtype dtype = a->x[Q]->dtype;
  if (!hr__device_text_has_dtype(dtype)) {
    return false;
  }
  for (role r = 0; r < ROLES; ++r) {
    const hr_operand *x = a->x[r];
    bool is_mask = r == MASK && x != NULL && (x->dtype == HR_DTYPE_BOOL || hr__device_text_has_dtype(x->dtype));
    if (x != NULL && (x->kind != HR_OPERAND_VALUE || (x->dtype != (r == LSE ? HR_DTYPE_F32 : dtype) && !is_mask))) {
      return false;
    }
  }
  return true;
}

static void find_sizes(attention *a) {
  const hr_operand *q = a->x[Q];
  int rank = q->rank;
  a->dtype = q->dtype, a->is_narrow = q->dtype != HR_DTYPE_F32;
  a->inner_heads = rank > 2 ? q->dims[rank - 3] : 1;
  a->heads = rank > 3 ? a->inner_heads * q->dims[0] : a->inner_heads;
  a->queries = q->dims[rank - 2], a->keys = a->x[K]->dims[rank - 2];
  a->width = (int)q->dims[rank - 1], a->v_width = (int)a->x[V]->dims[rank - 1];
  a->is_vector = true;
  for (role r = 0; r < ROLES; ++r) {
    bool moves_rows = r != MASK && r != LSE && (r != Y || !a->is_backward);
    a->is_vector &= a->x[r] == NULL || !moves_rows || hr__device_text_has_vectors(a->x[r]);
  }
  a->rows_each = 2, a->columns = 64;
}

/* Elements of a tile, as in tiles.text. */
static int tile(const attention *a, int rows, int width) {
  int unit = a->is_narrow ? 16 : 32;
  return rows * ((int)hr_round_up(width, unit) + (a->is_narrow ? 8 : 4));
}

static int rows_of(const attention *a) {
  return THREADS / 32 * 8 * a->rows_each;
}

static int stages_of(const attention *a) {
  return a->is_narrow ? 2 : 1;
}

static int shared_of(const attention *a) {
  int rows = rows_of(a), size = (int)hr_dtype_size(a->dtype);
  int of_columns = tile(a, a->columns, a->width) + tile(a, a->columns, a->v_width) +
                   (a->is_backward ? 2 * a->columns * 4 / size : 0);
  int resident = tile(a, rows, a->width) + (a->is_backward ? tile(a, rows, a->v_width) : 0);
  return (resident + (a->is_backward ? stages_of(a) : 1) * of_columns) * size;
}

/* Twice the rows, so that data read from shared memory is used twice. Conditions:
 *
 * - the registers suffice, with half of the columns if need be,
 * - the shared memory suffices,
 * - there is work for all of the device's processors,
 * - tensor cores of narrow dtypes don't wait for random numbers. */
static void choose_rows(attention *a) {
  attention twice = *a;
  twice.rows_each *= 2;
  twice.columns /= a->is_backward ? 2 : 1;
  int widest = a->width > a->v_width ? a->width : a->v_width;
  bool fits = a->is_backward ? a->is_narrow && widest <= 64 : a->v_width <= (a->is_narrow ? 128 : 64);
  bool waits = a->is_narrow && a->node->scalar_count > 3; /* for random numbers */
  int64_t least_rows = a->is_backward && a->keys < a->queries ? a->keys : a->queries;
  if (fits && !waits && shared_of(&twice) <= hr__cuda_limits_known()->shared_bytes &&
      a->heads * least_rows / rows_of(&twice) >= 2 * hr__cuda_limits_known()->processors) {
    *a = twice;
  }
}

static bool is_attention(const hr_node *node, attention *a) {
  *a = (attention){.node = NULL};
  bool has_hidden = node->scalar_count == 2;
  if ((node->op != HR_OP_ATTENTION && node->op != HR_OP_ATTENTION_BACKWARD) || node->epilogue_count > 0 || has_hidden) {
    return false;
  }
  find_operands(node, a);
  bool has_all = a->x[Q] != NULL && a->x[K] != NULL && a->x[V] != NULL && a->x[Y] != NULL &&
                 (!a->is_backward || (a->x[DY] != NULL && a->x[LSE] != NULL));
  bool wants_mask_gradient = a->is_backward && node->output_count > 3 && hr__present(&node->outputs[3]) != NULL;
  int rank = has_all ? a->x[Q]->rank : 0;
  if (!has_all || wants_mask_gradient || rank > 4 || !has_dtypes(a) || a->x[Q]->dims[rank - 1] > WIDTH_MAX ||
      a->x[V]->dims[rank - 1] > WIDTH_MAX) {
    return false;
  }
  find_sizes(a);
  choose_rows(a);
  const int64_t limit = INT32_MAX;
  return a->queries >= QUERIES_MIN && a->queries <= limit && a->keys <= limit &&
         a->heads * (a->queries + a->keys) / SUM_ROWS < limit && shared_of(a) <= hr__cuda_limits_known()->shared_bytes;
}

static bool supports(const hr_program *program, const hr_node *node) {
  (void)program;
  attention a;
  return is_attention(node, &a);
}

/* ---- the text ---- */

static const char *const flash_texts[] = {
#include "providers/flash/flash_text.inc"
};
static const char *const forward_texts[] = {
#include "providers/flash/forward_text.inc"
};
static const char *const backward_texts[] = {
#include "providers/flash/backward_text.inc"
};
#define APPEND_ALL(text, strings) hr_text_append_all(text, sizeof strings / sizeof *strings, strings)

static void write_definitions(const attention *a, hr_text *text) {
  static const char *const names[] = {"DY", "Q", "K", "V", "MASK", "Y", "LSE", "DQ", "DK", "DV"};
  const hr_node *node = a->node;
  const hr_operand *mask = a->x[MASK];
  int mask_kind = mask == NULL ? 0 : mask->dtype == HR_DTYPE_BOOL ? 1 : 2 + hr__device_text_dtype(mask->dtype);
  hr_text_printf(text,
                 "#define DTYPE %d\n#define WIDTH %d\n#define V_WIDTH %d\n#define ROWS_EACH %d\n#define COLUMNS %d\n",
                 hr__device_text_dtype(a->dtype), a->width, a->v_width, a->rows_each, a->columns);
  hr_text_printf(text, "#define IS_VECTOR %d\n#define IS_CAUSAL %d\n#define HAS_DROPOUT %d\n#define KEYS_IN_FOURS %d\n",
                 a->is_vector, node->ints[0] != 0, node->scalar_count > 3, a->keys % 4 == 0);
  hr_text_printf(text, "#define STAGES %d\n#define MASK_KIND %d\n#define MASK_BYTES %d\n#define POOL_BYTES %d\n",
                 stages_of(a), mask_kind, mask == NULL ? 0 : (int)hr_dtype_size(mask->dtype), shared_of(a));
  hr_text_printf(text, "#define ARGS %d\n#define SCALARS %d\n", node->input_count + node->output_count,
                 node->scalar_count);
  for (role r = 0; r < ROLES; ++r) {
    hr_text_printf(text, "#define HAS_%s %d\n#define ARG_%s %d\n", names[r], a->x[r] != NULL, names[r], a->args[r]);
  }
}

/* ---- the words ---- */

/* Offset, and strides of batches, heads, rows and columns; missing dims, and dims of 1, are broadcast. `inner` dims are
 * a head's. */
static void write_operand(const attention *a, const hr_operand *x, int inner, int64_t *words) {
  memset(words, 0, 5 * sizeof *words);
  if (x == NULL) {
    return;
  }
  const int places[] = {4, 3, 2, 1};
  words[0] = x->offset;
  int lacking = 2 - inner; /* the log-sum-exp has no columns */
  for (int i = 0; i < x->rank && i + lacking < 4; ++i) {
    int d = x->rank - 1 - i;
    words[places[i + lacking]] = x->dims[d] != 1 ? x->strides[d] : 0;
  }
  (void)a;
}

static void write_words(const attention *a, hr_device_source *source) {
  int64_t *words = source->words;
  words[0] = a->queries, words[1] = a->keys, words[2] = a->inner_heads, words[3] = a->heads;
  for (role r = 0; r < ROLES; ++r) {
    write_operand(a, a->x[r], r == LSE ? 1 : 2, words + 4 + 5 * r);
  }
  source->word_count = 4 + 5 * ROLES;
}

static void write_grids(const attention *a, hr_device_source *source) {
  int64_t rows = rows_of(a), of_queries = a->heads * hr_divide_up(a->queries, rows);
  int64_t tiled = hr_round_up(a->queries, TILED);
  source->pass_count = a->is_backward ? 3 : 1;
  for (int pass = 0; pass < source->pass_count; ++pass) {
    source->threads[pass] = THREADS;
    source->shared[pass] = a->is_backward && pass == 0 ? 0 : shared_of(a);
  }
  source->blocks[0] = a->is_backward ? a->heads * tiled / SUM_ROWS : of_queries;
  source->blocks[1] = a->x[DK] != NULL || a->x[DV] != NULL ? a->heads * hr_divide_up(a->keys, rows) : 0;
  source->blocks[2] = a->x[DQ] != NULL ? of_queries : 0;
  source->workspace_bytes = a->is_backward ? (size_t)(2 * a->heads * tiled) * sizeof(float) : 0;
}

static hr_status write(const hr_program *program, const hr_node *node, hr_device_source *out_source) {
  (void)program;
  attention a;
  hr_device_source source = {.name = "hr_flash"};
  if (!is_attention(node, &a)) {
    return hr_status_make(HR_STATUS_INTERNAL, "flash: an attention that it does not support");
  }
  write_definitions(&a, &source.text);
  APPEND_ALL(&source.text, flash_texts);
  if (a.is_backward) {
    APPEND_ALL(&source.text, backward_texts);
  } else {
    APPEND_ALL(&source.text, forward_texts);
  }
  write_words(&a, &source);
  write_grids(&a, &source);
  return hr__device_text_finish(&source, out_source);
}

static hr_status open_provider(void) {
  return hr__cuda_limits_find("flash", ARCHITECTURE_MIN);
}

const hr_provider hr__flash_provider = {
    .name = "flash",
    .dialect = HR_DIALECT_CUDA,
    .open = open_provider,
    .supports = supports,
    .write = write,
};
