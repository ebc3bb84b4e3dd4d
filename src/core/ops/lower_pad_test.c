/* Borders of each kind, against their definition; gradients by <dy, pad(x)> = <dx, x>. */
#include "lower_testing.h"

enum { IN = 4 * 3, OUT = 9 * 6 };

/* The element of n at position i, with `before` border elements in front. */
static int shown(int i, int before, int n, int kind) {
  int at = i - before;
  switch (kind) {
    case 1:
      return at < 0 ? 0 : at >= n ? n - 1 : at;
    case 2:
      return at < 0 ? -1 - at : at >= n ? 2 * n - 1 - at : at;
    case 3:
      return (at + n) % n;
    default:
      return at < 0 ? -at : at >= n ? 2 * (n - 1) - at : at;
  }
}

HR_TEST(borders_and_their_gradients) {
  for (int kind = 0; kind < 4; ++kind) {
    double x[IN], y[OUT], y_expected[OUT], dy[OUT], dx[IN], left = 0, right = 0;
    for (int i = 0; i < IN; ++i) {
      x[i] = i * 5 % 11 - 4;
    }
    for (int o = 0; o < OUT; ++o) {
      dy[o] = o * 7 % 13 - 5;
      y_expected[o] = x[shown(o / 6, 3, 4, kind) * 3 + shown(o % 6, 1, 3, kind)];
    }
    bench t = bench_begin();
    bench_record(&t, HR_OP_PAD_BORDER, INPUTS(TENSOR(&t, F64, x, 4, 3)), OUTPUTS(TENSOR(&t, F64, y, 9, 6)),
                 INTS(kind, 3, 1, 2, 2), NO_SCALARS);
    bench_record(&t, HR_OP_PAD_BORDER_BACKWARD, INPUTS(TENSOR(&t, F64, dy, 9, 6)), OUTPUTS(TENSOR(&t, F64, dx, 4, 3)),
                 INTS(kind, 3, 1, 2, 2), NO_SCALARS);
    HR_ASSERT_OK(bench_run(&t));
    ASSERT_ALL_NEAR(y, y_expected, OUT, 0);
    for (int o = 0; o < OUT; ++o) {
      left += dy[o] * y_expected[o];
    }
    for (int i = 0; i < IN; ++i) {
      right += dx[i] * x[i];
    }
    HR_ASSERT_NEAR(left, right, 1e-9);
  }
}
