/* Products that are handed over: their bits, and the units that the taker runs. */
#include "providers/onednn/handed.h"

#include <math.h>
#include <stdlib.h>

#include "base/allocator.h"
#include "base/cpu.h"
#include "base/integer.h"
#include "hr_test.h"
#include "providers/onednn/panels.h"

enum { ROWS_MAX = 40, COLUMNS_MAX = 1024, DEPTH_MAX = 128 };

typedef struct taken {
  hr_host_kernel kernel;
  float *copy; /* of the elements of each unit, when it ran */
  int runs[ROWS_MAX * COLUMNS_MAX];
} taken;

static void take(const hr_host_kernel *kernel, int pass, const hr_host_call *call, int64_t begin, int64_t end) {
  taken *t = (taken *)kernel;
  const float *from = call->args[0];
  HR_ASSERT_EQ(pass, 0);
  for (int64_t unit = begin; unit < end; ++unit) {
    ++t->runs[unit];
    for (int64_t i = unit * kernel->piece; i < hr_min((unit + 1) * kernel->piece, t->kernel.bytes); ++i) {
      t->copy[i] = from[i];
    }
  }
}

static float *numbers(int64_t count, uint32_t seed) {
  float *to = malloc((size_t)count * sizeof *to);
  for (int64_t i = 0; i < count; ++i) {
    seed = seed * 1664525 + 1013904223;
    to[i] = (float)(seed >> 8) / (1 << 23) - 1;
  }
  return to;
}

/* A product of rows x depth x columns; lines of the factors are `gap` longer than they need to be. */
static void check(int64_t rows, int64_t depth, int64_t columns, int64_t piece, int64_t gap, int arrays) {
  static taken t;
  int64_t count = rows * columns, panels = hr__packed_panels_floats(depth, columns);
  float *a = numbers(depth * (rows + gap), 1), *b = numbers(depth * (columns + gap), 2), *c = numbers(count, 3);
  float *to = hr_aligned_malloc((size_t)panels * sizeof *to, 64);
  a[depth / 2 * (rows + gap)] = INFINITY;
  b[columns - 1] = NAN;
  t = (taken){.kernel = {.piece = piece, .bytes = count, .run = take}, .copy = numbers(count, 4)};
  void *args[1] = {c};
  hr_host_taker taker = {.launch = {&t.kernel, {.args = args}}, .ahead_count = arrays, .ahead = {c, c, c, c}};
  HR_ASSERT(hr__handed_multiply(&(hr__handed){rows, depth, columns, a, b, rows + gap, columns + gap, c, to, &taker}));
  for (int64_t unit = 0; unit < hr_divide_up(count, piece); ++unit) {
    HR_ASSERT_EQ(t.runs[unit], 1);
  }
  for (int64_t i = 0; i < count; ++i) {
    float sum = 0;
    for (int64_t k = 0; k < depth; ++k) {
      sum = fmaf(a[k * (rows + gap) + i / columns], b[k * (columns + gap) + i % columns], sum);
    }
    HR_ASSERT(sum == c[i] || (isnan(sum) && isnan(c[i])));
    HR_ASSERT(c[i] == t.copy[i] || (isnan(c[i]) && isnan(t.copy[i])));
  }
  free(a), free(b), free(c), free(t.copy);
  hr_aligned_free(to);
}

HR_TEST(each_element_is_taken_once_when_it_is_final) {
  if (!hr_cpu_has(HR_CPU_AVX512F)) {
    return;
  }
  check(8, 64, 384, 1024, 0, 3);
  check(40, 128, 768, 1024, 0, 3);
  check(37, 128, 1024, 1024, 5, 4); /* a short group, and a panel of one vector */
  check(17, 100, 263, 263, 3, 0);   /* a short vector, nothing to request */
  check(3, 64, 256, 512, 0, 1);     /* a short unit */
}

HR_TEST(units_across_groups_are_refused) {
  hr_host_kernel kernel = {.piece = 1024, .run = take};
  hr_host_taker taker = {.launch = {&kernel, {0}}};
  HR_ASSERT(!hr__handed_multiply(&(hr__handed){.rows = 64, .depth = 64, .columns = 320, .taker = &taker}));
}

HR_TEST(sizes_that_are_worth_it) {
  if (!hr_cpu_has(HR_CPU_AVX512F)) {
    return;
  }
  HR_ASSERT(hr__handed_is_worth(3072, 128, 768));
  HR_ASSERT(!hr__handed_is_worth(768, 128, 3072)); /* panels that leave the second cache */
  HR_ASSERT(!hr__handed_is_worth(3072, 512, 768)); /* sums that sgemm cuts */
  HR_ASSERT(!hr__handed_is_worth(3072, 8, 768));
  HR_ASSERT(!hr__handed_is_worth(128, 128, 768));
}
