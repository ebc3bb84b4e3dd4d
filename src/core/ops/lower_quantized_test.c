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
    for (int bit = 0; bit < bits; ++bit) {
      int at = k * bits + bit;
      p->words[column * row_words + at / 32] |= (number_of(column, k, bits) >> bit & 1u) << (at % 32);
    }
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
  static const int all[] = {2, 3, 4, 5, 6, 8};
  for (int i = 0; i < 6; ++i) {
    int bits = all[i];
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

/* Numbers of w [INNER, COLUMNS]; e2m1, e4m3: the value of each code, scales of both dtypes of a byte. */
HR_TEST(floats_and_rows_of_columns) {
  enum { N = 64, K = 3 };
  static const float small[] = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6};
  for (int bits = 4; bits <= 8; bits += 4) {
    float x[2 * K], y[2 * N];
    uint8_t codes[K * N], packed[K * N] = {0}, scales[K * N / 32];
    uint32_t words[K * N / 4];
    for (int i = 0; i < K * N; ++i) {
      codes[i] = (uint8_t)(bits == 4 ? i * 7 % 16 : i % 127 + 128 * (i % 2));
      packed[i * bits / 8] |= (uint8_t)(codes[i] << (bits == 4 ? 4 * (i % 2) : 0));
    }
    memcpy(words, packed, sizeof packed);
    for (int i = 0; i < 2 * K; ++i) {
      x[i] = (float)(i * 5 % 7 - 3) / 2, scales[i] = (uint8_t)(125 + i % 4);
    }
    bench t = bench_begin();
    bench_record(&t, HR_OP_QUANTIZED_MATMUL,
                 INPUTS(TENSOR(&t, F32, x, 2, K), TENSOR(&t, U32, words, K, N * bits / 32),
                        TENSOR(&t, F8E8M0FNU, scales, K, N / 32)),
                 OUTPUTS(TENSOR(&t, F32, y, 2, N)), INTS(bits, 32, 1, 1), NO_SCALARS);
    HR_ASSERT_OK(bench_run(&t));
    for (int i = 0; i < 2 * N; ++i) {
      double sum = 0;
      for (int k = 0; k < K; ++k) {
        int at = k * N + i % N;
        double number = bits == 8 ? (double)hr_f8_to_f32(HR_DTYPE_F8E4M3FN, codes[at])
                                  : (double)(codes[at] > 7 ? -small[codes[at] & 7] : small[codes[at] & 7]);
        sum += (double)x[i / N * K + k] * ldexp(number, scales[at / 32] - 127);
      }
      HR_ASSERT_NEAR(y[i], sum, 1e-3);
    }
  }
}
