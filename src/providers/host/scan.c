/* scan.c: running sums, products and sums of exponentials of lines, in double precision or in 64-bit integers.
 *
 * The rows are composites: unsupported cases, and every other device, run their loops, which double distances. Operands
 * have any layout. Dtype, strides and the number of lines select one of three algorithms, each of which hides the
 * latency of an addition:
 *
 *   ahead          4 dense lines from memory to memory, each one element after the other
 *   windows        a dense line by itself: sums of 4 neighbours by doubling the width, then
 *                  result i = window i + result i - 4
 *   side by side   16 lines in a tile that stays in the L1 cache, each one element after the other
 *
 * A window can overflow although the running sum does not, so double precision has no windows.
 */
#include "core/math/convert.h"
#include "providers/host/host.h"

enum { LINES = 16, STEPS = 64, LINE_MIN = 8 };

#define REALS(X) X(F32) X(F64) X(F16) X(BF16)
#define INTEGERS(X) X(BOOL) X(U8) X(I8) X(U16) X(I16) X(U32) X(I32) X(U64) X(I64)
#define CASE(D) case HR_DTYPE_##D:

static bool is_real(hr_dtype dtype) {
  switch (dtype) {
    REALS(CASE)
    return true;
    default:
      return false;
  }
}

static bool is_integer(hr_dtype dtype) {
  switch (dtype) {
    INTEGERS(CASE)
    return true;
    default:
      return false;
  }
}

bool hr__scan_supports(const hr_node *node) {
  const hr_operand *x = &node->inputs[0], *y = &node->outputs[0];
  bool fits = (is_real(x->dtype) && y->dtype == x->dtype) ||
              (is_integer(x->dtype) && y->dtype == HR_DTYPE_I64 && node->op != HR_OP_LOGCUMSUMEXP);
  return fits && x->kind == HR_OPERAND_VALUE && x->rank > 0 && x->rank == y->rank && x->dims[node->ints[0]] >= LINE_MIN;
}

/* Some lines, and the offset of each, in elements. `step` is the distance of a line's neighbouring elements. */
typedef struct bundle {
  void *data;
  hr_dtype dtype;
  int64_t starts[LINES], step;
  int count;
  bool is_adjacent; /* each line begins one element after the previous one */
} bundle;

static bundle bundle_of(const hr_operand *x, void *data, int dim, int64_t first, int count) {
  bundle b = {.data = data, .dtype = x->dtype, .step = x->strides[dim], .count = count, .is_adjacent = true};
  for (int i = 0; i < count; ++i) {
    int64_t rest = first + i, start = 0;
    for (int d = x->rank - 1; d >= 0; --d) {
      if (d != dim) {
        start += rest % x->dims[d] * x->strides[d];
        rest /= x->dims[d];
      }
    }
    b.starts[i] = start;
    b.is_adjacent &= start == b.starts[0] + i;
  }
  return b;
}

/* read_D and write_D: elements [at, at + steps) of all lines from or to tile[step][line]; along the lines, or across
 * them if they are adjacent. One dense line is the case of long vectors. */
#define EACH_ELEMENT(D, EXPRESSION)                                       \
  if (b->count == 1 && b->step == 1) {                                    \
    HR__MEMORY_##D *const x = data + b->starts[0] + at;                   \
    for (int64_t k = 0; k < steps; ++k) {                                 \
      EXPRESSION(D, x[k], tile[k]);                                       \
    }                                                                     \
    return;                                                               \
  }                                                                       \
  if (b->is_adjacent) {                                                   \
    for (int64_t k = 0; k < steps; ++k) {                                 \
      HR__MEMORY_##D *const x = data + b->starts[0] + (at + k) * b->step; \
      for (int64_t i = 0; i < b->count; ++i) {                            \
        EXPRESSION(D, x[i], tile[k * b->count + i]);                      \
      }                                                                   \
    }                                                                     \
    return;                                                               \
  }                                                                       \
  for (int64_t i = 0; i < b->count; ++i) {                                \
    HR__MEMORY_##D *const x = data + b->starts[i] + at * b->step;         \
    for (int64_t k = 0; k < steps; ++k) {                                 \
      EXPRESSION(D, x[k * b->step], tile[k * b->count + i]);              \
    }                                                                     \
  }
#define READ_REAL(D, x, sum) sum = (double)HR__LOAD_##D(x)
#define READ_INTEGER(D, x, sum) sum = (int64_t)HR__LOAD_##D(x)
#define WRITE_REAL(D, x, sum) x = HR__STORE_##D((HR__TYPE_##D)(sum))
#define WRITE_INTEGER(D, x, sum) x = sum
#define MAKE(NAME, D, TYPE, EXPRESSION)                                            \
  static void NAME##_##D(const bundle *b, int64_t at, int64_t steps, TYPE *tile) { \
    HR__MEMORY_##D *const data = b->data;                                          \
    EACH_ELEMENT(D, EXPRESSION)                                                    \
  }
#define MAKE_REAL(D) MAKE(read, D, double, READ_REAL) MAKE(write, D, double, WRITE_REAL)
#define MAKE_INTEGER(D) MAKE(read, D, int64_t, READ_INTEGER)
REALS(MAKE_REAL)
INTEGERS(MAKE_INTEGER)
MAKE(write, I64, int64_t, WRITE_INTEGER)

#define READ_CASE(D)              \
  case HR_DTYPE_##D:              \
    read_##D(x, at, steps, tile); \
    break;
#define WRITE_CASE(D)              \
  case HR_DTYPE_##D:               \
    write_##D(y, at, steps, tile); \
    break;

/* Combines the rows of a tile with the results so far, and updates these. The usual numbers of lines are literals: then
 * results stay in registers. Integers wrap, as unsigned ones do. */
#define COMBINE(NAME, TYPE, SUM, EXPRESSION)                                                   \
  static inline void NAME##_all(SUM *so_far, TYPE *tile, int64_t steps, const int64_t count) { \
    SUM now[LINES];                                                                            \
    for (int64_t i = 0; i < count; ++i) {                                                      \
      now[i] = so_far[i];                                                                      \
    }                                                                                          \
    for (int64_t k = 0; k < steps; ++k) {                                                      \
      for (int64_t i = 0; i < count; ++i) {                                                    \
        const SUM a = now[i], b = (SUM)tile[k * count + i];                                    \
        now[i] = EXPRESSION;                                                                   \
        tile[k * count + i] = (TYPE)now[i];                                                    \
      }                                                                                        \
    }                                                                                          \
    for (int64_t i = 0; i < count; ++i) {                                                      \
      so_far[i] = now[i];                                                                      \
    }                                                                                          \
  }                                                                                            \
  static void NAME(SUM *so_far, TYPE *tile, int64_t steps, int64_t count) {                    \
    if (count == LINES) {                                                                      \
      NAME##_all(so_far, tile, steps, LINES);                                                  \
    } else if (count == 1) {                                                                   \
      NAME##_all(so_far, tile, steps, 1);                                                      \
    } else {                                                                                   \
      NAME##_all(so_far, tile, steps, count);                                                  \
    }                                                                                          \
  }
COMBINE(add_reals, double, double, a + b)
COMBINE(multiply_reals, double, double, a *b)
COMBINE(add_exponentials, double, double, hr__d_logaddexp(a, b))
COMBINE(add_exponentials_exactly, double, double, hr_f64_logaddexp(a, b))
COMBINE(add_integers, int64_t, uint64_t, a + b)
COMBINE(multiply_integers, int64_t, uint64_t, a *b)

typedef void (*combine_reals)(double *so_far, double *tile, int64_t steps, int64_t count);

static void scan_reals(hr_op op, const bundle *x, const bundle *y, int64_t length) {
  const combine_reals combine = op == HR_OP_CUMSUM         ? add_reals
                                : op == HR_OP_CUMPROD      ? multiply_reals
                                : x->dtype == HR_DTYPE_F64 ? add_exponentials_exactly
                                                           : add_exponentials;
  double tile[STEPS * LINES], so_far[LINES];
  for (int i = 0; i < LINES; ++i) {
    so_far[i] = op == HR_OP_CUMSUM ? 0 : op == HR_OP_CUMPROD ? 1 : -HR__F64_INFINITY;
  }
  for (int64_t at = 0; at < length; at += STEPS) {
    int64_t steps = length - at < STEPS ? length - at : STEPS;
    switch (x->dtype) {
      REALS(READ_CASE)
      default:
        return;
    }
    combine(so_far, tile, steps, x->count);
    switch (y->dtype) {
      REALS(WRITE_CASE)
      default:
        return;
    }
  }
}

/* A tile of a dense line by itself: `from` holds its numbers, with WINDOW free ones before and after; so does `to`.
 * Returns the one that has the results. `so_far` is the line's running result. Numbers are below 2^128: no window
 * overflows. */
enum { WINDOW = 4, TILE = 1024 };
typedef double window_tile[WINDOW + TILE + WINDOW];
#define WINDOWS(NAME, NONE, EXPRESSION)                                          \
  static double *NAME(double *so_far, double *from, double *to, int64_t steps) { \
    const int64_t whole = (steps + WINDOW - 1) / WINDOW * WINDOW;                \
    double before[WINDOW];                                                       \
    for (int64_t i = 0; i < WINDOW; ++i) {                                       \
      from[i - WINDOW] = to[i - WINDOW] = from[steps + i] = NONE;                \
      before[i] = *so_far;                                                       \
    }                                                                            \
    for (int64_t by = 1; by < WINDOW; by *= 2) {                                 \
      const double *restrict x = from;                                           \
      double *restrict y = to;                                                   \
      for (int64_t i = 0; i < whole; ++i) {                                      \
        const double a = x[i - by], b = x[i];                                    \
        y[i] = EXPRESSION;                                                       \
      }                                                                          \
      to = from;                                                                 \
      from = y;                                                                  \
    }                                                                            \
    for (int64_t i = 0; i < whole; i += WINDOW) {                                \
      for (int64_t j = 0; j < WINDOW; ++j) {                                     \
        const double a = before[j], b = from[i + j];                             \
        from[i + j] = before[j] = EXPRESSION;                                    \
      }                                                                          \
    }                                                                            \
    *so_far = from[steps - 1];                                                   \
    return from;                                                                 \
  }
WINDOWS(add_windows, 0, a + b)
WINDOWS(multiply_windows, 1, a *b)

static void scan_windows(hr_op op, const bundle *x, const bundle *y, int64_t length) {
  window_tile tiles[2];
  double so_far = op == HR_OP_CUMPROD;
  for (int64_t at = 0; at < length; at += TILE) {
    const int64_t steps = length - at < TILE ? length - at : TILE;
    double *tile = tiles[0] + WINDOW;
    switch (x->dtype) {
      REALS(READ_CASE)
      default:
        return;
    }
    tile = (op == HR_OP_CUMPROD ? multiply_windows : add_windows)(&so_far, tile, tiles[1] + WINDOW, steps);
    switch (y->dtype) {
      REALS(WRITE_CASE)
      default:
        return;
    }
  }
}

static void scan_integers(hr_op op, const bundle *x, const bundle *y, int64_t length) {
  int64_t tile[STEPS * LINES];
  uint64_t so_far[LINES];
  for (int i = 0; i < LINES; ++i) {
    so_far[i] = op == HR_OP_CUMPROD;
  }
  for (int64_t at = 0; at < length; at += STEPS) {
    int64_t steps = length - at < STEPS ? length - at : STEPS;
    switch (x->dtype) {
      INTEGERS(READ_CASE)
      default:
        return;
    }
    (op == HR_OP_CUMPROD ? multiply_integers : add_integers)(so_far, tile, steps, x->count);
    write_I64(y, at, steps, tile);
  }
}

/* Dense lines, AHEAD of them at once, from memory to memory: each depends only on its own additions. The order is that
 * of one element after the other, so a line that runs alone gives the same result. */
enum { AHEAD = 4 };
#define RUN_AHEAD(D, TYPE, SUM, count, EXPRESSION)                   \
  for (int64_t k = 0; k < length; ++k) {                             \
    for (int i = 0; i < (count); ++i) {                              \
      const SUM a = now[i], b = (SUM)(TYPE)HR__LOAD_##D(from[i][k]); \
      now[i] = EXPRESSION;                                           \
      WRITE_AHEAD_##TYPE(D, to[i][k], now[i]);                       \
    }                                                                \
  }
#define MAKE_AHEAD(D, TYPE, SUM, OUT)                                                 \
  static void ahead_##D(hr_op op, const bundle *x, const bundle *y, int64_t length) { \
    const HR__MEMORY_##D *from[AHEAD];                                                \
    HR__MEMORY_##OUT *to[AHEAD];                                                      \
    SUM now[AHEAD];                                                                   \
    for (int i = 0; i < AHEAD; ++i) {                                                 \
      from[i] = (const HR__MEMORY_##D *)x->data + x->starts[i < x->count ? i : 0];    \
      to[i] = (HR__MEMORY_##OUT *)y->data + y->starts[i < x->count ? i : 0];          \
      now[i] = op == HR_OP_CUMPROD;                                                   \
    }                                                                                 \
    if (x->count == AHEAD && op == HR_OP_CUMSUM) {                                    \
      RUN_AHEAD(D, TYPE, SUM, AHEAD, a + b)                                           \
    } else if (x->count == AHEAD) {                                                   \
      RUN_AHEAD(D, TYPE, SUM, AHEAD, a *b)                                            \
    } else if (op == HR_OP_CUMSUM) {                                                  \
      RUN_AHEAD(D, TYPE, SUM, x->count, a + b)                                        \
    } else {                                                                          \
      RUN_AHEAD(D, TYPE, SUM, x->count, a *b)                                         \
    }                                                                                 \
  }
#define WRITE_AHEAD_double(D, x, sum) WRITE_REAL(D, x, sum)
#define WRITE_AHEAD_int64_t(D, x, sum) x = (int64_t)(sum)
#define MAKE_AHEAD_INTEGER(D) MAKE_AHEAD(D, int64_t, uint64_t, I64)
MAKE_AHEAD(F32, double, double, F32)
MAKE_AHEAD(F64, double, double, F64)
INTEGERS(MAKE_AHEAD_INTEGER)

static void scan_ahead(hr_op op, const bundle *x, const bundle *y, int64_t length) {
#define AHEAD_CASE(D)            \
  case HR_DTYPE_##D:             \
    ahead_##D(op, x, y, length); \
    return;
  switch (x->dtype) {
    AHEAD_CASE(F32)
    AHEAD_CASE(F64)
    INTEGERS(AHEAD_CASE)
    default:
      return;
  }
}

/* True if dense lines of a dtype run by `ahead`: dtypes with an expensive conversion use windows. */
static bool goes_ahead(hr_op op, hr_dtype dtype) {
  return op != HR_OP_LOGCUMSUMEXP && dtype != HR_DTYPE_F16 && dtype != HR_DTYPE_BF16;
}

/* Numbers narrower than double, whose windows overflow only if the running sum does. */
static bool is_narrow(hr_dtype dtype) {
  return is_real(dtype) && dtype != HR_DTYPE_F64;
}

static hr_status scan_lines(const hr__library_call *call, int64_t begin, int64_t end, void *scratch) {
  (void)scratch;
  const hr_operand *x = &call->node->inputs[0], *y = &call->node->outputs[0];
  const int dim = (int)call->node->ints[0];
  const hr_op op = call->node->op;
  const int64_t length = x->dims[dim];
  const bool is_dense = x->strides[dim] == 1 && y->strides[dim] == 1;
  const bool is_ahead =
      is_dense && goes_ahead(op, x->dtype) && (call->inputs[0].count >= AHEAD * length || !is_narrow(x->dtype));
  const bool is_alone = is_dense && !is_ahead && is_narrow(x->dtype) && op != HR_OP_LOGCUMSUMEXP;
  const int64_t most = is_ahead ? AHEAD : is_alone ? 1 : LINES;
  for (int64_t line = begin, count; line < end; line += count) {
    count = end - line < most ? end - line : most;
    bundle from = bundle_of(x, call->inputs[0].data, dim, line, (int)count);
    bundle to = bundle_of(y, call->outputs[0].data, dim, line, (int)count);
    if (is_ahead) {
      scan_ahead(op, &from, &to, length);
    } else if (is_alone) {
      scan_windows(op, &from, &to, length);
    } else if (is_real(x->dtype)) {
      scan_reals(op, &from, &to, length);
    } else {
      scan_integers(op, &from, &to, length);
    }
  }
  return HR_OK;
}

hr_status hr__scan_run(const hr__library_call *call) {
  int64_t length = call->inputs[0].dims[call->node->ints[0]];
  return hr__library_spread(call, call->inputs[0].count / length, length, scan_lines);
}
