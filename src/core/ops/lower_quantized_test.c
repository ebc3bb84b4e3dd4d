/* Products with packed numbers against plain loops in double. */
#include "lower_testing.h"

enum { MATRICES = 2, ROWS = 2, COLUMNS = 3, GROUP = 32, INNER = 64, GROUPS = INNER / GROUP };

/* Columns count on from one matrix to the next. */
static uint32_t number_of(int column, int k, int bits) {
  return (uint32_t)(column * 7 + k * 5 + k / 3) & ((1u << bits) - 1);
}

typedef struct product {
  float x[MATRICES * ROWS * INNER], scales[MATRICES * COLUMNS * GROUPS], biases[MATRICES * COLUMNS * GROUPS];
  float y[MATRICES * ROWS * COLUMNS];
  uint32_t words[MATRICES * COLUMNS * INNER];
} product;

static void fill(product *p, int bits) {
  int row_words = INNER * bits / 32;
  memset(p->words, 0, sizeof p->words);
  for (int i = 0; i < MATRICES * ROWS * INNER; ++i) {
    p->x[i] = (float)(i * 7 % 23 - 11) / 8;
  }
  for (int i = 0; i < MATRICES * COLUMNS * GROUPS; ++i) {
    p->scales[i] = (float)(i + 1) / 16, p->biases[i] = (float)(3 - i) / 4;
  }
  for (int i = 0; i < MATRICES * COLUMNS * INNER; ++i) {
    int column = i / INNER, k = i % INNER;
    p->words[column * row_words + k * bits / 32] |= number_of(column, k, bits) << (k * bits % 32);
  }
}

static void expect_product(const product *p, int bits, int matrices) {
  for (int i = 0; i < matrices * ROWS * COLUMNS; ++i) {
    int row = i / COLUMNS, column = row / ROWS * COLUMNS + i % COLUMNS;
    double sum = 0;
    for (int k = 0; k < INNER; ++k) {
      int group = column * GROUPS + k / GROUP;
      sum += p->x[row * INNER + k] * ((double)number_of(column, k, bits) * p->scales[group] + p->biases[group]);
    }
    HR_ASSERT_NEAR(p->y[i], sum, 1e-3);
  }
}

HR_TEST(products_with_packed_numbers) {
  static product p;
  for (int bits = 2; bits <= 8; bits *= 2) {
    fill(&p, bits);
    bench t = bench_begin();
    bench_record(&t, HR_OP_QUANTIZED_MATMUL,
                 INPUTS(TENSOR(&t, F32, p.x, ROWS, INNER), TENSOR(&t, U32, p.words, COLUMNS, INNER * bits / 32),
                        TENSOR(&t, F32, p.scales, COLUMNS, GROUPS), TENSOR(&t, F32, p.biases, COLUMNS, GROUPS)),
                 OUTPUTS(TENSOR(&t, F32, p.y, ROWS, COLUMNS)), INTS(bits, GROUP), NO_SCALARS);
    HR_ASSERT_OK(bench_run(&t));
    expect_product(&p, bits, 1);
  }
}

HR_TEST(products_of_a_batch) {
  enum { BITS = 4 };
  static product p;
  fill(&p, BITS);
  bench t = bench_begin();
  bench_record(&t, HR_OP_QUANTIZED_MATMUL,
               INPUTS(TENSOR(&t, F32, p.x, MATRICES, ROWS, INNER),
                      TENSOR(&t, U32, p.words, MATRICES, COLUMNS, INNER * BITS / 32),
                      TENSOR(&t, F32, p.scales, MATRICES, COLUMNS, GROUPS),
                      TENSOR(&t, F32, p.biases, MATRICES, COLUMNS, GROUPS)),
               OUTPUTS(TENSOR(&t, F32, p.y, MATRICES, ROWS, COLUMNS)), INTS(BITS, GROUP), NO_SCALARS);
  HR_ASSERT_OK(bench_run(&t));
  expect_product(&p, BITS, MATRICES);
}
