/* few_rows.h (onednn): products of two to four rows on large matrices whose rows are dense.
 *
 * Such a product is bound by memory, and sgemm reads weights from there at half of the speed of a plain sum. Here four
 * rows of weights at a time ask for the ones 8 KB behind them, over blocks of columns whose sums stay in the first
 * cache. Each sum adds its products in the order of the depth, for any number of threads.
 */
#ifndef HEADRACE_PROVIDERS_ONEDNN_FEW_ROWS_H_
#define HEADRACE_PROVIDERS_ONEDNN_FEW_ROWS_H_

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum { FEW_ROWS_MAX = 4 };

/* out [rows, columns] = x [rows, depth] w [depth, columns]: each row dense, `step` elements behind the one before. */
typedef struct few_rows {
  int64_t rows, depth, columns, x_step, w_step, out_step;
  const float *x, *w;
  float *out;
} few_rows;

#if defined(__FMA__)
#include <immintrin.h>

enum { FEW_DEPTH = 4, FEW_BLOCK = 1024, FEW_AHEAD = 2048, FEW_LINE = 16 };
static const int64_t FEW_WEIGHTS_MIN = 1 << 16; /* 256 KB: a core's own cache may hold fewer */

#define FEW_INLINE static inline __attribute__((always_inline))

#if defined(__AVX512F__)
enum { FEW_WIDTH = 16 };
typedef float few_vector __attribute__((vector_size(64)));

FEW_INLINE few_vector few_add_product(few_vector x, few_vector w, few_vector sum) {
  return _mm512_fmadd_ps(x, w, sum);
}
#else
enum { FEW_WIDTH = 8 };
typedef float few_vector __attribute__((vector_size(32)));

FEW_INLINE few_vector few_add_product(few_vector x, few_vector w, few_vector sum) {
  return _mm256_fmadd_ps(x, w, sum);
}
#endif

static bool few_rows_are_worth(int64_t rows, int64_t depth, int64_t columns) {
  return rows <= FEW_ROWS_MAX && columns >= FEW_LINE && depth * columns >= FEW_WEIGHTS_MIN;
}

/* The columns after the last whole vector. */
FEW_INLINE void few_add_rest(const few_rows *p, int64_t k, int64_t first, int64_t end, int depth) {
  for (int64_t r = 0; r < p->rows; ++r) {
    for (int64_t i = first; i < end; ++i) {
      float sum = p->out[r * p->out_step + i];
      for (int d = 0; d < depth; ++d) {
        sum = __builtin_fmaf(p->x[r * p->x_step + k + d], p->w[(k + d) * p->w_step + i], sum);
      }
      p->out[r * p->out_step + i] = sum;
    }
  }
}

/* Adds the products with `depth` rows of weights from `k` on to the sums of columns [first, end). Asks for the weights
 * `ahead` elements behind these. */
FEW_INLINE void few_add_rows(const few_rows *p, int64_t k, int64_t first, int64_t end, int64_t ahead, int rows,
                             int depth) {
  int64_t i = first;
  for (; i + FEW_WIDTH <= end; i += FEW_WIDTH) {
    few_vector sums[FEW_ROWS_MAX];
    for (int r = 0; r < rows; ++r) {
      memcpy(&sums[r], p->out + r * p->out_step + i, sizeof *sums);
    }
    for (int d = 0; d < depth; ++d) {
      const float *from = p->w + (k + d) * p->w_step + i;
      few_vector w;
      memcpy(&w, from, sizeof w);
      if ((i - first) % FEW_LINE == 0) {
        __builtin_prefetch(from + ahead);
      }
      for (int r = 0; r < rows; ++r) {
        sums[r] = few_add_product((few_vector){0} + p->x[r * p->x_step + k + d], w, sums[r]);
      }
    }
    for (int r = 0; r < rows; ++r) {
      memcpy(p->out + r * p->out_step + i, &sums[r], sizeof *sums);
    }
  }
  few_add_rest(p, k, i, end, depth);
}

FEW_INLINE void few_rows_of(const few_rows *p, int rows) {
  int64_t group = FEW_DEPTH * p->w_step, ahead = (FEW_AHEAD + group - 1) / group * group; /* whole groups */
  for (int64_t first = 0; first < p->columns; first += FEW_BLOCK) {
    int64_t end = first + FEW_BLOCK < p->columns ? first + FEW_BLOCK : p->columns, k = 0;
    for (int r = 0; r < rows; ++r) {
      memset(p->out + r * p->out_step + first, 0, (size_t)(end - first) * sizeof *p->out);
    }
    for (; k + FEW_DEPTH <= p->depth; k += FEW_DEPTH) {
      few_add_rows(p, k, first, end, ahead, rows, FEW_DEPTH);
    }
    for (; k < p->depth; ++k) {
      few_add_rows(p, k, first, end, 0, rows, 1);
    }
  }
}

static void few_rows_run(const few_rows *p) {
  switch (p->rows) {
    case 1:
      few_rows_of(p, 1);
      break;
    case 2:
      few_rows_of(p, 2);
      break;
    case 3:
      few_rows_of(p, 3);
      break;
    default:
      few_rows_of(p, FEW_ROWS_MAX);
  }
}
#else
/* Without fused operations sgemm is faster. */
static bool few_rows_are_worth(int64_t rows, int64_t depth, int64_t columns) {
  (void)rows, (void)depth, (void)columns;
  return false;
}

static void few_rows_run(const few_rows *p) {
  (void)p;
}
#endif

#endif
