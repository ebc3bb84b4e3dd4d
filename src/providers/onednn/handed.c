/* handed.c: a product in groups of rows, and the kernel that takes them. */
#include "providers/onednn/handed.h"

#include <string.h>

#include "base/cpu.h"
#include "base/integer.h"
#include "base/thread.h"
#include "providers/onednn/panels.h"
#include "providers/wide_product.h"
#include "providers/wide_vectors.h"

#if defined(HR_WIDE_VECTORS)

enum {
  GROUP = 8, /* rows whose sums stay in registers, with a panel of three vectors */
  PANEL = HR__WIDE * HR__AHEAD_VECTORS,
  BLOCK = 8 * PANEL, /* columns that are packed together */
  DEPTH_UNIT = 4,
  DEPTH_MIN = 64,  /* for less, there is little time to request anything in */
  DEPTH_MAX = 384, /* of one sum, as sgemm cuts it */
  COLUMNS_MIN = 256,
  COLUMNS_MAX = 1024, /* all panels stay in the second cache */
  ELEMENTS_MIN = 1 << 18
};

bool hr__handed_is_worth(int64_t rows, int64_t depth, int64_t columns) {
  return hr_cpu_has(HR_CPU_AVX512F) && depth % DEPTH_UNIT == 0 && depth >= DEPTH_MIN && depth <= DEPTH_MAX &&
         columns >= COLUMNS_MIN && columns <= COLUMNS_MAX && rows * columns >= ELEMENTS_MIN;
}

/* The sums of a whole group and a whole panel. After every few additions the next lines of the taker's arrays are
 * requested, `lines` of each from byte `byte` on. */
WIDE static void multiply_tile(const hr__handed *p, const float *left, const float *panel, float *to, int64_t byte) {
  enum { VECTORS = HR__AHEAD_VECTORS, STEPS = 4, CACHE_LINE = 64 };
  __m512 sums[GROUP * VECTORS];
  const hr_host_taker *taker = p->taker;
  const int64_t lines = hr_divide_up(GROUP * PANEL * sizeof(float) / CACHE_LINE * STEPS, p->depth);
  const int64_t end = byte + GROUP * PANEL * (int64_t)sizeof(float);
#pragma GCC unroll 24
  for (int i = 0; i < GROUP * VECTORS; ++i) {
    sums[i] = _mm512_setzero_ps();
  }
  for (int64_t k = 0; k < p->depth; k += STEPS) {
#pragma GCC unroll 1
    for (int step = 0; step < STEPS; ++step, left += GROUP, panel += PANEL) {
      __m512 right[VECTORS];
#pragma GCC unroll 3
      for (int j = 0; j < VECTORS; ++j) {
        right[j] = _mm512_loadu_ps(panel + j * HR__WIDE);
      }
#pragma GCC unroll 8
      for (int i = 0; i < GROUP; ++i) {
        __m512 factor = _mm512_set1_ps(left[i]);
#pragma GCC unroll 3
        for (int j = 0; j < VECTORS; ++j) {
          sums[i * VECTORS + j] = _mm512_fmadd_ps(factor, right[j], sums[i * VECTORS + j]);
        }
      }
    }
    for (int64_t line = 0; line < lines && byte < end; ++line, byte += CACHE_LINE) {
      for (int i = 0; i < taker->ahead_count; ++i) {
        __builtin_prefetch((const char *)taker->ahead[i] + byte);
      }
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < GROUP; ++i, to += p->columns) {
#pragma GCC unroll 3
    for (int j = 0; j < VECTORS; ++j) {
      _mm512_storeu_ps(to + j * HR__WIDE, sums[i * VECTORS + j]);
    }
  }
}

/* Up to GROUP rows of a panel, the left factor's as [depth][lines]. */
static void multiply_rows(const hr__handed *p, int64_t row, int64_t lines, const float *left, int64_t column,
                          int64_t byte) {
  const float *panel = p->panels + column * p->depth;
  float *to = p->c + row * p->columns + column;
  int64_t columns = hr_min(PANEL, p->columns - column), width = hr_round_up(columns, HR__WIDE);
  if (lines == GROUP && columns == PANEL) {
    multiply_tile(p, left, panel, to, byte);
    return;
  }
  hr__wide_multiply(&(hr__wide_product){.v = left,
                                        .v_step = 1,
                                        .v_next = lines,
                                        .u = panel,
                                        .u_next = width,
                                        .m = to,
                                        .m_step = p->columns,
                                        .lines = lines,
                                        .rows = 1,
                                        .columns = 1,
                                        .depth = p->depth,
                                        .vectors = (int)(width / HR__WIDE),
                                        .outs = columns});
}

static void take(const hr__handed *p, int64_t row, int64_t row_end) {
  const hr_host_launch *launch = &p->taker->launch;
  int64_t piece = launch->kernel->piece;
  launch->kernel->run(launch->kernel, 0, &launch->call, row * p->columns / piece,
                      hr_divide_up(row_end * p->columns, piece));
}

/* Blocks [begin, end) of whole panels. A row of a block is read at once, since rows may be pages apart. */
WIDE static void pack_blocks(void *arg, int64_t begin, int64_t end, int worker) {
  (void)worker;
  const hr__handed *p = arg;
  for (int64_t first = begin * BLOCK; first < hr_min(end * BLOCK, p->columns / PANEL * PANEL); first += BLOCK) {
    int64_t last = hr_min(first + BLOCK, p->columns / PANEL * PANEL);
    for (int64_t k = 0; k < p->depth; ++k) {
      for (int64_t column = first; column < last; column += PANEL) {
        const float *from = p->b + k * p->b_step + column;
        float *to = p->panels + column * p->depth + k * PANEL;
#pragma GCC unroll 3
        for (int j = 0; j < HR__AHEAD_VECTORS; ++j) {
          _mm512_storeu_ps(to + j * HR__WIDE, _mm512_loadu_ps(from + j * HR__WIDE));
        }
      }
    }
  }
}

static void pack(const hr__handed *p) {
  int64_t whole = p->columns / PANEL * PANEL;
  hr_parallel_for(hr_divide_up(whole, BLOCK), 1, pack_blocks, (void *)p);
  if (whole < p->columns) {
    hr__panels_pack(p->b + whole, p->b_step, 1, p->depth, p->columns - whole, p->panels + whole * p->depth);
  }
}

/* to[k][line] = a[k][row + line] */
static void pack_left(const hr__handed *p, int64_t row, int64_t lines, float *restrict to) {
  const float *from = p->a + row;
  for (int64_t k = 0; k < p->depth; ++k, from += p->a_step, to += lines) {
    if (lines == GROUP) {
      memcpy(to, from, GROUP * sizeof *to);
    } else {
      memcpy(to, from, (size_t)lines * sizeof *to);
    }
  }
}

/* Groups [begin, end) of rows. */
static void run_groups(void *arg, int64_t begin, int64_t end, int worker) {
  (void)worker;
  const hr__handed *p = arg;
  float left[DEPTH_MAX * GROUP];
  for (int64_t row = begin * GROUP; row < hr_min(end * GROUP, p->rows); row += GROUP) {
    int64_t lines = hr_min(GROUP, p->rows - row);
    int64_t byte = row * p->columns * (int64_t)sizeof(float); /* of the requests, which go through the same rows */
    pack_left(p, row, lines, left);
    for (int64_t column = 0; column < p->columns; column += PANEL, byte += GROUP * PANEL * (int64_t)sizeof(float)) {
      multiply_rows(p, row, lines, left, column, byte);
    }
    take(p, row, row + lines);
  }
}

bool hr__handed_multiply(const hr__handed *p) {
  if (GROUP * p->columns % p->taker->launch.kernel->piece != 0) {
    return false;
  }
  int64_t groups = hr_divide_up(p->rows, GROUP);
  pack(p);
  hr_parallel_for(groups, hr_divide_up(groups, hr_thread_count()), run_groups, (void *)p);
  return true;
}

#else

bool hr__handed_is_worth(int64_t rows, int64_t depth, int64_t columns) {
  (void)rows, (void)depth, (void)columns;
  return false;
}

bool hr__handed_multiply(const hr__handed *p) {
  (void)p;
  return false;
}

#endif
