/* product.c: packed weights and the product of a few rows with them.
 *
 *   forward    h [rows, H] * weight^T    a panel is LANES hidden columns of each gate: [H][G][LANES]
 *   backward   dgates [rows, G * H] * weight    a panel is up to 4 * LANES columns: [G * H][vectors][LANES]
 *
 * So a forward panel has all gates of its columns, and the cell follows at once. Columns past the last are zeros.
 */
#include <string.h>

#include "base/integer.h"
#include "providers/recurrent/recurrent.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define INLINE static inline __attribute__((always_inline))

typedef float vector __attribute__((vector_size(HR__LANES * sizeof(float))));

INLINE vector load(const float *p) {
  vector x;
  memcpy(&x, p, sizeof x);
  return x;
}

/* The same, in a register if there are 32 of them: compilers would repeat the load for each row. */
INLINE vector load_once(const float *p) {
  vector x = load(p);
#if defined(__AVX512F__)
  __asm__("" : "+v"(x));
#endif
  return x;
}

INLINE vector multiply_add(float a, vector b, vector sum) {
#if defined(__AVX512F__)
  return _mm512_fmadd_ps(_mm512_set1_ps(a), b, sum);
#elif defined(__AVX2__) && defined(__FMA__)
  return _mm256_fmadd_ps(_mm256_set1_ps(a), b, sum);
#elif defined(__aarch64__)
  for (int l = 0; l < HR__LANES; ++l) {
    sum[l] = __builtin_fmaf(a, b[l], sum[l]);
  }
  return sum;
#else
  return sum + a * b;
#endif
}

/* rows and vectors are compile-time constants, so the sums stay in registers. */
INLINE void multiply(const float *restrict a, int64_t a_row, int64_t inner, const float *restrict panel, int rows,
                     int vectors, float *restrict out, int64_t out_row, int64_t out_vector) {
  vector sums[HR__ROWS][HR__VECTORS];
#pragma GCC unroll 8
  for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) {
      sums[r][v] = (vector){0};
    }
  }
  for (int64_t k = 0; k < inner; ++k, panel += vectors * HR__LANES) {
    vector right[HR__VECTORS];
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) {
      right[v] = load_once(panel + v * HR__LANES);
    }
#pragma GCC unroll 8
    for (int r = 0; r < rows; ++r) {
      float left = a[r * a_row + k];
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) {
        sums[r][v] = multiply_add(left, right[v], sums[r][v]);
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) {
      memcpy(out + r * out_row + v * out_vector, &sums[r][v], sizeof sums[r][v]);
    }
  }
}

INLINE void multiply_rows(const float *a, int64_t a_row, int64_t inner, const float *panel, int rows, int vectors,
                          float *out, int64_t out_row, int64_t out_vector) {
  switch (rows) {
    case 1:
      multiply(a, a_row, inner, panel, 1, vectors, out, out_row, out_vector);
      break;
    case 2:
      multiply(a, a_row, inner, panel, 2, vectors, out, out_row, out_vector);
      break;
    case 3:
      multiply(a, a_row, inner, panel, 3, vectors, out, out_row, out_vector);
      break;
#if !defined(__x86_64__) || defined(__AVX512F__)
    case 4:
      multiply(a, a_row, inner, panel, 4, vectors, out, out_row, out_vector);
      break;
    case 5:
      multiply(a, a_row, inner, panel, 5, vectors, out, out_row, out_vector);
      break;
    default:
      multiply(a, a_row, inner, panel, 6, vectors, out, out_row, out_vector);
#endif
  }
}

void hr__multiply_panel(const float *a, int64_t a_row, int64_t inner, const float *panel, int rows, int vectors,
                        float *out, int64_t out_row, int64_t out_vector) {
  switch (vectors) {
    case 1:
      multiply_rows(a, a_row, inner, panel, rows, 1, out, out_row, out_vector);
      break;
    case 2:
      multiply_rows(a, a_row, inner, panel, rows, 2, out, out_row, out_vector);
      break;
    case 3:
      multiply_rows(a, a_row, inner, panel, rows, 3, out, out_row, out_vector);
      break;
    default:
      multiply_rows(a, a_row, inner, panel, rows, 4, out, out_row, out_vector);
  }
}

/* ---- packing ---- */

/* A forward panel from column `first` on: row `first` + l of each gate becomes lane l. */
static void pack_gates(const hr_prepared *p, const float *weight, int64_t first, float *restrict to) {
  const hr__place *w = &p->places[WEIGHT];
  int64_t count = hr_min(HR__LANES, p->hidden - first), width = p->gates * HR__LANES;
  if (count < HR__LANES) {
    memset(to, 0, (size_t)(p->hidden * width) * sizeof *to);
  }
  for (int g = 0; g < p->gates; ++g) {
    for (int64_t l = 0; l < count; ++l) {
      const float *from = weight + (g * p->hidden + first + l) * w->row;
      float *lane = to + g * HR__LANES + l;
      for (int64_t k = 0; k < p->hidden; ++k) {
        lane[k * width] = from[k * w->column];
      }
    }
  }
}

/* A backward panel: columns from `first` on of all rows. */
static void pack_columns(const hr_prepared *p, const float *weight, int64_t first, float *restrict to) {
  const hr__place *w = &p->places[WEIGHT];
  int64_t count = hr_min(HR__PANEL, p->hidden - first), width = hr_divide_up(count, HR__LANES) * HR__LANES;
  for (int64_t k = 0; k < p->gates * p->hidden; ++k, to += width) {
    const float *from = weight + k * w->row + first * w->column;
    for (int64_t l = 0; l < count; ++l) {
      to[l] = from[l * w->column];
    }
    for (int64_t l = count; l < width; ++l) {
      to[l] = 0;
    }
  }
}

void hr__pack_panels(const hr__run *run, float *packed, int64_t begin, int64_t end) {
  const hr_prepared *p = run->p;
  for (int64_t panel = begin; panel < end; ++panel) {
    if (p->is_backward) {
      pack_columns(p, run->data[WEIGHT], panel * HR__PANEL, packed + panel * p->gates * p->hidden * HR__PANEL);
    } else {
      pack_gates(p, run->data[WEIGHT], panel * HR__LANES, packed + panel * p->hidden * p->gates * HR__LANES);
    }
  }
}
