/* segments.c: rows combined over segments: bags of embeddings, reductions of runs of neighbours.
 *
 * The row is a composite: unsupported cases, and every other device, run its loops, which compute the segment of each
 * row and scatter. Expansion puts checks of the limits and indices in front of either. Here a segment is an item. Its
 * rows are read in order, a block of columns after the other, which stays in registers; floats of 16 bits are widened.
 * One dense column uses LANES lanes, element i in lane i mod LANES, that are folded by halves: this order depends only
 * on the segment's length.
 */
#include <string.h>

#include "core/ir/build.h"
#include "core/math/convert.h"
#include "providers/host/host.h"

enum { SUM = 1, PRODUCT, LARGEST, LEAST };
enum { COLUMNS = 64, LANES = 16 };

#define REALS(X) X(F32) X(F64) X(F16) X(BF16)
#define CASE(D) case HR_DTYPE_##D:

static bool is_list(const hr_operand *x, bool is_index) {
  return (x->rank == 1 && (x->strides[0] == 1 || x->dims[0] <= 1)) &&
         (!is_index || x->dtype == HR_DTYPE_I64 || x->dtype == HR_DTYPE_I32);
}

/* NULL: absent. */
static const hr_operand *input_of(const hr_node *node, int i) {
  return i < node->input_count && node->inputs[i].kind == HR_OPERAND_VALUE ? &node->inputs[i] : NULL;
}

bool hr__segments_supports(const hr_node *node) {
  const hr_operand *x = input_of(node, 0), *y = &node->outputs[0], *index = input_of(node, 3),
                   *factor = input_of(node, 4);
  if (x == NULL || y->dtype != x->dtype || (x->strides[1] != 1 && x->dims[1] != 1) || !hr_operand_is_contiguous(*y)) {
    return false;
  }
  for (int i = 1; i <= 2; ++i) {
    const hr_operand *limits = input_of(node, i);
    if (limits == NULL || limits->dtype != HR_DTYPE_I64 || !is_list(limits, true)) {
      return false;
    }
  }
  switch (x->dtype) {
    REALS(CASE)
    return (index == NULL || is_list(index, true)) &&
           (factor == NULL || (factor->dtype == x->dtype && is_list(factor, false)));
    default:
      return false;
  }
}

/* The parameters of each segment. */
typedef struct job {
  const hr__library_call *call;
  int64_t columns, step; /* of x; between its rows */
  const int64_t *begin, *end;
  int64_t skipped;
  double start;
  int kind;
  bool is_line; /* one dense column without packing */
} job;

static int64_t row_at(const job *j, int64_t i) {
  const hr__tensor *index = &j->call->inputs[3];
  return index->data == NULL            ? i
         : index->dtype == HR_DTYPE_I64 ? ((const int64_t *)index->data)[i]
                                        : ((const int32_t *)index->data)[i];
}

static inline __attribute__((always_inline)) float fold_float(int kind, float a, float b) {
  return kind == SUM       ? a + b
         : kind == PRODUCT ? a * b
         : kind == LARGEST ? (b > a || b != b ? b : a)
                           : (b < a || b != b ? b : a);
}
static inline __attribute__((always_inline)) double fold_double(int kind, double a, double b) {
  return kind == SUM       ? a + b
         : kind == PRODUCT ? a * b
         : kind == LARGEST ? (b > a || b != b ? b : a)
                           : (b < a || b != b ? b : a);
}

/* Products of 16-bit floats are rounded after each step, as PyTorch's. */
#define ROUND(D, TYPE, value) (kind == PRODUCT ? (TYPE)HR__LOAD_##D(HR__STORE_##D(value)) : (value))

/* reduce_D: columns [c, c + width) of a segment. line_D: one dense column. */
#define DEFINE(D, TYPE, FOLD)                                                                                    \
  static inline __attribute__((always_inline)) void reduce_##D(const job *j, int64_t segment, int64_t c,         \
                                                               const int64_t width, const int kind) {            \
    const HR__MEMORY_##D *const x = j->call->inputs[0].data, *const factors = j->call->inputs[4].data;           \
    HR__MEMORY_##D *const y = (HR__MEMORY_##D *)j->call->outputs[0].data + segment * j->columns + c;             \
    TYPE so_far[COLUMNS];                                                                                        \
    for (int64_t k = 0; k < width; ++k) {                                                                        \
      so_far[k] = (TYPE)j->start;                                                                                \
    }                                                                                                            \
    for (int64_t i = j->begin[segment]; i < j->end[segment]; ++i) {                                              \
      const int64_t at = row_at(j, i);                                                                           \
      if (at == j->skipped) {                                                                                    \
        continue;                                                                                                \
      }                                                                                                          \
      const HR__MEMORY_##D *const row = x + at * j->step + c;                                                    \
      const TYPE factor = factors != NULL ? (TYPE)HR__LOAD_##D(factors[i]) : (TYPE)1;                            \
      for (int64_t k = 0; k < width; ++k) {                                                                      \
        so_far[k] = ROUND(D, TYPE, FOLD(kind, so_far[k], (TYPE)HR__LOAD_##D(row[k]) * factor));                  \
      }                                                                                                          \
    }                                                                                                            \
    for (int64_t k = 0; k < width; ++k) {                                                                        \
      y[k] = HR__STORE_##D(so_far[k]);                                                                           \
    }                                                                                                            \
  }                                                                                                              \
  static inline __attribute__((always_inline)) void line_##D(const job *j, int64_t segment, const int kind) {    \
    const int64_t begin = j->begin[segment], count = j->end[segment] - begin, whole = count - count % LANES;     \
    const HR__MEMORY_##D *const x = (const HR__MEMORY_##D *)j->call->inputs[0].data + begin;                     \
    TYPE lanes[LANES], so_far = (TYPE)j->start;                                                                  \
    if (whole > 0) {                                                                                             \
      for (int64_t k = 0; k < LANES; ++k) {                                                                      \
        lanes[k] = (TYPE)HR__LOAD_##D(x[k]);                                                                     \
      }                                                                                                          \
      for (int64_t i = LANES; i < whole; i += LANES) {                                                           \
        for (int64_t k = 0; k < LANES; ++k) {                                                                    \
          lanes[k] = FOLD(kind, lanes[k], (TYPE)HR__LOAD_##D(x[i + k]));                                         \
        }                                                                                                        \
      }                                                                                                          \
      for (int64_t half = LANES / 2; half > 0; half /= 2) {                                                      \
        for (int64_t k = 0; k < half; ++k) {                                                                     \
          lanes[k] = FOLD(kind, lanes[k], lanes[k + half]);                                                      \
        }                                                                                                        \
      }                                                                                                          \
      so_far = FOLD(kind, so_far, lanes[0]);                                                                     \
    }                                                                                                            \
    for (int64_t i = whole; i < count; ++i) {                                                                    \
      so_far = FOLD(kind, so_far, (TYPE)HR__LOAD_##D(x[i]));                                                     \
    }                                                                                                            \
    ((HR__MEMORY_##D *)j->call->outputs[0].data)[segment] = HR__STORE_##D(so_far);                               \
  }                                                                                                              \
  static inline __attribute__((always_inline)) void segment_##D(const job *j, int64_t segment, const int kind) { \
    if (j->is_line && (kind != PRODUCT || sizeof(HR__MEMORY_##D) >= sizeof(float))) {                            \
      line_##D(j, segment, kind);                                                                                \
      return;                                                                                                    \
    }                                                                                                            \
    int64_t c = 0;                                                                                               \
    for (; c + COLUMNS <= j->columns; c += COLUMNS) {                                                            \
      reduce_##D(j, segment, c, COLUMNS, kind);                                                                  \
    }                                                                                                            \
    for (; c + LANES <= j->columns; c += LANES) {                                                                \
      reduce_##D(j, segment, c, LANES, kind);                                                                    \
    }                                                                                                            \
    if (c < j->columns) {                                                                                        \
      reduce_##D(j, segment, c, j->columns - c, kind);                                                           \
    }                                                                                                            \
  }                                                                                                              \
  static void run_##D(const job *j, int64_t segment) {                                                           \
    switch (j->kind) {                                                                                           \
      case SUM:                                                                                                  \
        segment_##D(j, segment, SUM);                                                                            \
        break;                                                                                                   \
      case PRODUCT:                                                                                              \
        segment_##D(j, segment, PRODUCT);                                                                        \
        break;                                                                                                   \
      case LARGEST:                                                                                              \
        segment_##D(j, segment, LARGEST);                                                                        \
        break;                                                                                                   \
      default:                                                                                                   \
        segment_##D(j, segment, LEAST);                                                                          \
        break;                                                                                                   \
    }                                                                                                            \
  }
DEFINE(F32, float, fold_float)
DEFINE(F16, float, fold_float)
DEFINE(BF16, float, fold_float)
DEFINE(F64, double, fold_double)

static double start_of(const hr_scalar *scalar) {
  return hr_scalar_as_f64(scalar);
}

static hr_status run_segments(const hr__library_call *call, int64_t begin, int64_t end, void *scratch) {
  (void)scratch;
  const hr_operand *x = &call->node->inputs[0];
  job j = {.call = call,
           .columns = x->dims[1],
           .step = x->strides[0],
           .begin = call->inputs[1].data,
           .end = call->inputs[2].data,
           .skipped = call->node->ints[1],
           .start = start_of(&call->scalars[0]),
           .kind = (int)call->node->ints[0],
           .is_line =
               x->dims[1] == 1 && x->strides[0] == 1 && call->inputs[3].data == NULL && call->inputs[4].data == NULL};
#define RUN_CASE(D)       \
  case HR_DTYPE_##D:      \
    run_##D(&j, segment); \
    break;
  for (int64_t segment = begin; segment < end; ++segment) {
    switch (x->dtype) {
      REALS(RUN_CASE)
      default:
        break;
    }
  }
#undef RUN_CASE
  return HR_OK;
}

hr_status hr__segments_run(const hr__library_call *call) {
  int64_t segments = call->outputs[0].dims[0], columns = call->outputs[0].dims[1];
  int64_t listed = call->inputs[3].data != NULL ? call->inputs[3].dims[0] : call->inputs[0].dims[0];
  int64_t elements = (listed / segments + 1) * columns;
  return hr__library_spread(call, segments, 10 + elements / 8, run_segments);
}
