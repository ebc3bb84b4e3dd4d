/* Products with packed numbers against plain loops in double. */
#include "lower_testing.h"

enum { ROWS = 2, COLUMNS = 3, GROUP = 32, INNER = 64, GROUPS = INNER / GROUP };

static uint32_t number_of(int column, int k, int bits) {
  return (uint32_t)(column * 7 + k * 5 + k / 3) & ((1u << bits) - 1);
}

static void check_product(int bits) {
  float x[ROWS * INNER], scales[COLUMNS * GROUPS], biases[COLUMNS * GROUPS], y[ROWS * COLUMNS];
  uint32_t words[COLUMNS * INNER] = {0};
  int row_words = INNER * bits / 32;
  for (int i = 0; i < ROWS * INNER; ++i) {
    x[i] = (float)(i * 7 % 23 - 11) / 8;
  }
  for (int i = 0; i < COLUMNS * GROUPS; ++i) {
    scales[i] = (float)(i + 1) / 16, biases[i] = (float)(3 - i) / 4;
  }
  for (int i = 0; i < COLUMNS * INNER; ++i) {
    int column = i / INNER, k = i % INNER;
    words[column * row_words + k * bits / 32] |= number_of(column, k, bits) << (k * bits % 32);
  }
  bench t = bench_begin();
  bench_record(&t, HR_OP_QUANTIZED_MATMUL,
               INPUTS(TENSOR(&t, F32, x, ROWS, INNER), TENSOR(&t, U32, words, COLUMNS, row_words),
                      TENSOR(&t, F32, scales, COLUMNS, GROUPS), TENSOR(&t, F32, biases, COLUMNS, GROUPS)),
               OUTPUTS(TENSOR(&t, F32, y, ROWS, COLUMNS)), INTS(bits, GROUP), NO_SCALARS);
  HR_ASSERT_OK(bench_run(&t));
  for (int i = 0; i < ROWS * COLUMNS; ++i) {
    int row = i / COLUMNS, column = i % COLUMNS;
    double sum = 0;
    for (int k = 0; k < INNER; ++k) {
      int group = column * GROUPS + k / GROUP;
      sum += x[row * INNER + k] * ((double)number_of(column, k, bits) * scales[group] + biases[group]);
    }
    HR_ASSERT_NEAR(y[i], sum, 1e-3);
  }
}

HR_TEST(products_with_packed_numbers) {
  check_product(2);
  check_product(4);
  check_product(8);
}
