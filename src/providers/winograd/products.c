/* products.c: the innermost loop of Winograd's convolutions: a product of small matrices.
 *
 * Up to 6 tiles by 4 vectors of output channels: 24 sums stay in registers. For each input channel 4 vectors of weights
 * are loaded, and each tile's number is broadcast to a vector, so that ten loads serve 24 multiply-adds.
 */
#include "base/integer.h"
#include "providers/winograd/winograd.h"

#if defined(HR_WIDE_VECTORS)

enum { TILES = 6, VECTORS = HR__WINOGRAD_VECTORS, LINE = 64 };

WIDE_INLINE void multiply(const hr__winograd_product *p, int64_t first, const char *ahead, int64_t ahead_step,
                          int tiles, int vectors) {
  __m512 sums[TILES][VECTORS];
  const float *v = p->v + first * p->v_step, *u = p->u;
#pragma GCC unroll 6
  for (int i = 0; i < tiles; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < vectors; ++j) {
      const float *m = p->m + (first + i) * p->m_step + j * HR__WIDE;
      sums[i][j] = p->adds ? _mm512_loadu_ps(m) : _mm512_setzero_ps();
    }
  }
  for (int64_t k = 0; k < p->depth; ++k, u += vectors * HR__WIDE, v += p->v_next) {
    __m512 weights[VECTORS];
    _mm_prefetch(ahead, _MM_HINT_T1);
    ahead += ahead_step;
#pragma GCC unroll 4
    for (int j = 0; j < vectors; ++j) {
      weights[j] = _mm512_loadu_ps(u + j * HR__WIDE);
    }
#pragma GCC unroll 6
    for (int i = 0; i < tiles; ++i) {
      __m512 factor = _mm512_set1_ps(v[i * p->v_step]);
#pragma GCC unroll 4
      for (int j = 0; j < vectors; ++j) {
        sums[i][j] = _mm512_fmadd_ps(factor, weights[j], sums[i][j]);
      }
    }
  }
#pragma GCC unroll 6
  for (int i = 0; i < tiles; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < vectors; ++j) {
      _mm512_storeu_ps(p->m + (first + i) * p->m_step + j * HR__WIDE, sums[i][j]);
    }
  }
}

#define MULTIPLY(tiles, vectors)                                                                                 \
  WIDE static void multiply_##tiles##_##vectors(const hr__winograd_product *p, int64_t first, const char *ahead, \
                                                int64_t ahead_step) {                                            \
    multiply(p, first, ahead, ahead_step, tiles, vectors);                                                       \
  }
#define MULTIPLY_TILES(tiles) MULTIPLY(tiles, 1) MULTIPLY(tiles, 2) MULTIPLY(tiles, 3) MULTIPLY(tiles, 4)
MULTIPLY_TILES(1)
MULTIPLY_TILES(2)
MULTIPLY_TILES(3)
MULTIPLY_TILES(4)
MULTIPLY_TILES(5)
MULTIPLY_TILES(6)

#define OF_TILES(tiles) \
  { multiply_##tiles##_1, multiply_##tiles##_2, multiply_##tiles##_3, multiply_##tiles##_4 }

void hr__winograd_multiply(const hr__winograd_product *p) {
  static void (*const of[TILES][VECTORS])(const hr__winograd_product *, int64_t, const char *, int64_t) = {
      OF_TILES(1), OF_TILES(2), OF_TILES(3), OF_TILES(4), OF_TILES(5), OF_TILES(6)};
  int64_t groups = hr_divide_up(p->tiles, TILES);
  for (int64_t g = 0; g < groups; ++g) {
    int64_t first = p->tiles * g / groups, tiles = p->tiles * (g + 1) / groups - first;
    int64_t begin = p->ahead_bytes * g / groups, end = p->ahead_bytes * (g + 1) / groups;
    int64_t step = p->ahead_bytes > 0 ? hr_divide_up(end - begin, p->depth) : 0;
    of[tiles - 1][p->vectors - 1](p, first, p->ahead + begin, step);
  }
}

#endif
