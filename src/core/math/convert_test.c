/* Runs cut by bounds (hr__clip): the part inside, and the parts beside it, which must stay within the run. */
#include "core/math/convert.h"

#include "hr_test.h"

static bool is_inside(int64_t start, int64_t step, int64_t extent, int64_t i) {
  int64_t at = start + i * step;
  return at >= 0 && at < extent;
}

/* The callers also write [0, low) and [high, count): a low end past the run would be foreign memory. */
static void check(int64_t count, int64_t start, int64_t step, int64_t extent, int64_t second) {
  int64_t low = 0, high = count;
  hr__clip(start, step, extent, &low, &high);
  hr__clip(second, 1, extent, &low, &high);
  HR_ASSERT(low >= 0 && low <= high && high <= count);
  for (int64_t i = 0; i < count; ++i) {
    bool expected = is_inside(start, step, extent, i) && is_inside(second, 1, extent, i);
    HR_ASSERT_EQ(i >= low && i < high, expected);
  }
}

HR_TEST(clipped_runs_contain_the_inside_and_nothing_past_the_run) {
  for (int64_t count = 0; count < 5; ++count) {
    for (int64_t start = -12; start < 12; ++start) {
      for (int64_t step = -3; step <= 3; ++step) {
        for (int64_t extent = 0; extent < 7; ++extent) {
          for (int64_t second = -9; second < 9; second += 3) {
            check(count, start, step, extent, second);
          }
        }
      }
    }
  }
}
