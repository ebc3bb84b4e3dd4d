/* Index maps against plain loops, and against values computed by hand from PyTorch's documentation. */
#include "lower_testing.h"

static void count_up(float *out, int count) {
  for (int i = 0; i < count; ++i) {
    out[i] = (float)(i + 1);
  }
}

/* ---- concatenation, padding ---- */

HR_TEST(cat_joins_skips_empty_vectors_and_casts) {
  float a[4] = {1, 2, 3, 4}, y[10];
  int64_t c[6] = {5, 6, 7, 8, 9, 10};
  float nothing[1];
  bench t = bench_begin();
  bench_record(&t, HR_OP_CAT, INPUTS(TENSOR(&t, F32, a, 2, 2), TENSOR(&t, F32, nothing, 0), TENSOR(&t, I64, c, 2, 3)),
               OUTPUTS(TENSOR(&t, F32, y, 2, 5)), INTS(1), NO_SCALARS);
  HR_ASSERT_OK(bench_run(&t));
  ASSERT_ALL_NEAR(y, ((float[]){1, 2, 5, 6, 7, 3, 4, 8, 9, 10}), 10, 0);
}

HR_TEST(cat_along_the_first_dim_with_an_empty_part) {
  float a[2] = {1, 2}, nothing[1], c[2] = {3, 4}, y[4];
  bench t = bench_begin();
  bench_record(&t, HR_OP_CAT,
               INPUTS(TENSOR(&t, F32, a, 1, 2), TENSOR(&t, F32, nothing, 0, 2), TENSOR(&t, F32, c, 1, 2)),
               OUTPUTS(TENSOR(&t, F32, y, 2, 2)), INTS(0), NO_SCALARS);
  HR_ASSERT_OK(bench_run(&t));
  ASSERT_ALL_NEAR(y, ((float[]){1, 2, 3, 4}), 4, 0);
}

HR_TEST(pad_adds_and_crops) {
  float x[6] = {1, 2, 3, 4, 5, 6}, y[12];
  bench t = bench_begin();
  bench_record(&t, HR_OP_PAD, INPUTS(TENSOR(&t, F32, x, 2, 3)), OUTPUTS(TENSOR(&t, F32, y, 4, 3)), INTS(1, -1, 1, 1),
               SCALARS(F64(-7)));
  HR_ASSERT_OK(bench_run(&t));
  ASSERT_ALL_NEAR(y, ((float[]){-7, -7, -7, 2, 3, -7, 5, 6, -7, -7, -7, -7}), 12, 0);
}

HR_TEST(pad_of_nothing_fills) {
  float x[1], y[2];
  bench t = bench_begin();
  bench_record(&t, HR_OP_PAD, INPUTS(TENSOR(&t, F32, x, 0)), OUTPUTS(TENSOR(&t, F32, y, 2)), INTS(1, 1),
               SCALARS(F64(4)));
  HR_ASSERT_OK(bench_run(&t));
  ASSERT_ALL_NEAR(y, ((float[]){4, 4}), 2, 0);
}

/* ---- gathers ---- */

HR_TEST(index_select_takes_an_index_of_any_rank) {
  float x[24], y[2 * 4 * 4];
  int64_t index[4] = {2, 0, 2, 1};
  count_up(x, 24); /* [2, 3, 4] */
  bench t = bench_begin();
  bench_record(&t, HR_OP_INDEX_SELECT, INPUTS(TENSOR(&t, F32, x, 2, 3, 4), TENSOR(&t, I64, index, 2, 2)),
               OUTPUTS(TENSOR(&t, F32, y, 2, 2, 2, 4)), INTS(1), NO_SCALARS);
  HR_ASSERT_OK(bench_run(&t));
  for (int n = 0; n < 2; ++n) {
    for (int i = 0; i < 4; ++i) {
      for (int k = 0; k < 4; ++k) {
        HR_ASSERT_NEAR(y[(n * 4 + i) * 4 + k], x[(n * 3 + index[i]) * 4 + k], 0);
      }
    }
  }
}

HR_TEST(index_select_of_one_element) {
  float x[3] = {1, 2, 3}, y[1], number = 9, z[2];
  int64_t one = 1, zeros[2] = {0, 0};
  bench t = bench_begin();
  bench_record(&t, HR_OP_INDEX_SELECT, INPUTS(TENSOR(&t, F32, x, 3), NUMBER_TENSOR(&t, I64, one)),
               OUTPUTS(TENSOR(&t, F32, y, 1)), INTS(0), NO_SCALARS);
  bench_record(&t, HR_OP_INDEX_SELECT, INPUTS(NUMBER_TENSOR(&t, F32, number), TENSOR(&t, I64, zeros, 2)),
               OUTPUTS(TENSOR(&t, F32, z, 2)), INTS(0), NO_SCALARS);
  HR_ASSERT_OK(bench_run(&t));
  HR_ASSERT_NEAR(y[0], 2, 0);
  HR_ASSERT_NEAR(z[1], 9, 0);
}

static hr_status select_with(int64_t index, int64_t rows) {
  float x[6] = {0}, y[2];
  int64_t indices[1] = {index};
  bench t = bench_begin();
  bench_record(&t, HR_OP_INDEX_SELECT, INPUTS(TENSOR(&t, F32, x, rows, 2), TENSOR(&t, I64, indices, 1)),
               OUTPUTS(TENSOR(&t, F32, y, 1, 2)), INTS(0), NO_SCALARS);
  return bench_run(&t);
}

HR_TEST(index_select_rejects_indices_out_of_range) {
  HR_ASSERT_OK(select_with(2, 3));
  HR_ASSERT_STATUS(select_with(3, 3), HR_STATUS_OUT_OF_RANGE);
  HR_ASSERT_STATUS(select_with(-1, 3), HR_STATUS_OUT_OF_RANGE);
  HR_ASSERT_STATUS(select_with(0, 0), HR_STATUS_OUT_OF_RANGE);
}

HR_TEST(gather_reads_along_a_dim) {
  float x[12], y[6];
  int64_t index[6] = {0, 3, 1, 2, 2, 0}; /* [2, 3] of x [3, 4] along dim 1: fewer rows than x */
  count_up(x, 12);
  bench t = bench_begin();
  bench_record(&t, HR_OP_GATHER, INPUTS(TENSOR(&t, F32, x, 3, 4), TENSOR(&t, I64, index, 2, 3)),
               OUTPUTS(TENSOR(&t, F32, y, 2, 3)), INTS(1), NO_SCALARS);
  HR_ASSERT_OK(bench_run(&t));
  ASSERT_ALL_NEAR(y, ((float[]){1, 4, 2, 7, 7, 5}), 6, 0);
}

HR_TEST(gather_takes_i32_indices_and_checks_them) {
  float x[3] = {1, 2, 3}, y[2];
  int32_t index[2] = {2, 0}, wrong[2] = {0, 3};
  bench t = bench_begin();
  bench_record(&t, HR_OP_GATHER, INPUTS(TENSOR(&t, F32, x, 3), TENSOR(&t, I32, index, 2)),
               OUTPUTS(TENSOR(&t, F32, y, 2)), INTS(0), NO_SCALARS);
  HR_ASSERT_OK(bench_run(&t));
  ASSERT_ALL_NEAR(y, ((float[]){3, 1}), 2, 0);
  t = bench_begin();
  bench_record(&t, HR_OP_GATHER, INPUTS(TENSOR(&t, F32, x, 3), TENSOR(&t, I32, wrong, 2)),
               OUTPUTS(TENSOR(&t, F32, y, 2)), INTS(0), NO_SCALARS);
  HR_ASSERT_STATUS(bench_run(&t), HR_STATUS_OUT_OF_RANGE);
}

/* ---- scatters ---- */

HR_TEST(scatter_combines_in_every_mode) {
  static const float expected[5][4] = {
      {10, 4, 10, 5}, {10, 2 + 3 + 4, 10, 5 + 10}, {10, 2 * 3 * 4, 10, 5 * 10}, {10, 4, 10, 10}, {10, 2, 10, 5}};
  for (int mode = 0; mode < 5; ++mode) {
    float y[4] = {10, 2, 10, 10}, source[3] = {3, 4, 5};
    int64_t index[3] = {1, 1, 3};
    bench t = bench_begin();
    bench_record(&t, HR_OP_SCATTER, INPUTS(TENSOR(&t, I64, index, 3), TENSOR(&t, F32, source, 3)),
                 OUTPUTS(TENSOR(&t, F32, y, 4)), INTS(0, mode, 0), NO_SCALARS);
    HR_ASSERT_OK(bench_run(&t));
    ASSERT_ALL_NEAR(y, expected[mode], 4, 0);
  }
}

HR_TEST(scatter_of_a_number_and_of_a_larger_source) {
  float y[6] = {0}, source[9];
  int64_t index[4] = {2, 0, 1, 1}; /* [2, 2] */
  count_up(source, 9);
  bench t = bench_begin();
  bench_record(&t, HR_OP_SCATTER, INPUTS(TENSOR(&t, I64, index, 2, 2), TENSOR(&t, F32, source, 3, 3)),
               OUTPUTS(TENSOR(&t, F32, y, 3, 2)), INTS(0, 0, 0), NO_SCALARS);
  HR_ASSERT_OK(bench_run(&t));
  ASSERT_ALL_NEAR(y, ((float[]){0, 2, 4, 5, 1, 0}), 6, 0);
  t = bench_begin();
  bench_record(&t, HR_OP_SCATTER, INPUTS(TENSOR(&t, I64, index, 2, 2), bench_number(&t, F64(0.5))),
               OUTPUTS(TENSOR(&t, F32, y, 3, 2)), INTS(0, 1, 0), NO_SCALARS);
  HR_ASSERT_OK(bench_run(&t));
  ASSERT_ALL_NEAR(y, ((float[]){0, 2.5, 4.5, 5.5, 1.5, 0}), 6, 0);
}

/* 256 bytes of 1 add up to 0. */
HR_TEST(sums_of_bools_are_whether_any_is_true) {
  uint8_t y[2] = {0, 1}, source[258];
  int64_t index[258] = {0};
  memset(source, 1, sizeof source);
  index[257] = 1;
  bench t = bench_begin();
  bench_record(&t, HR_OP_SCATTER, INPUTS(TENSOR(&t, I64, index, 258), TENSOR(&t, BOOL, source, 258)),
               OUTPUTS(TENSOR(&t, BOOL, y, 2)), INTS(0, 1, 0), NO_SCALARS);
  bench_record(&t, HR_OP_INDEX_ADD, INPUTS(TENSOR(&t, I64, index, 258), TENSOR(&t, BOOL, source, 258)),
               OUTPUTS(TENSOR(&t, BOOL, y, 2)), INTS(0), SCALARS(I64(1)));
  bench_record(&t, HR_OP_INDEX_PUT, INPUTS(TENSOR(&t, BOOL, source, 258), TENSOR(&t, I64, index, 258)),
               OUTPUTS(TENSOR(&t, BOOL, y, 2)), INTS(1, 0, 1), NO_SCALARS);
  HR_ASSERT_OK(bench_run(&t));
  HR_ASSERT(y[0] == 1 && y[1] == 1);
}

HR_TEST(products_of_bools_are_whether_all_are_true) {
  uint8_t y[3] = {1, 1, 1}, source[3] = {1, 0, 1};
  int64_t index[3] = {0, 1, 1};
  bench t = bench_begin();
  bench_record(&t, HR_OP_SCATTER, INPUTS(TENSOR(&t, I64, index, 3), TENSOR(&t, BOOL, source, 3)),
               OUTPUTS(TENSOR(&t, BOOL, y, 3)), INTS(0, 2, 0), NO_SCALARS);
  HR_ASSERT_OK(bench_run(&t));
  HR_ASSERT(y[0] == 1 && y[1] == 0 && y[2] == 1);
}

/* A number is true if it is not 0, for every integer type in which bools are computed. */
HR_TEST(numbers_become_bools_by_one_rule) {
  static const double numbers[] = {0.5, INFINITY, NAN, 0x1p40, 1e30, -0.25, 256, 0, -0.0};
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; ++i) {
    uint8_t mask[2] = {1, 0}, x[2] = {0, 0}, where[2], sum[2], expected = numbers[i] != 0;
    bench t = bench_begin();
    bench_record(&t, HR_OP_WHERE,
                 INPUTS(TENSOR(&t, BOOL, mask, 2), bench_number(&t, F64(numbers[i])), TENSOR(&t, BOOL, x, 2)),
                 OUTPUTS(TENSOR(&t, BOOL, where, 2)), NO_INTS, NO_SCALARS);
    bench_record(&t, HR_OP_ADD, INPUTS(TENSOR(&t, BOOL, mask, 2), bench_number(&t, F64(numbers[i]))),
                 OUTPUTS(TENSOR(&t, BOOL, sum, 2)), NO_INTS, NO_SCALARS);
    HR_ASSERT_OK(bench_run(&t));
    HR_ASSERT(where[0] == expected && where[1] == 0 && sum[0] == 1 && sum[1] == expected);
  }
}

HR_TEST(a_refused_scatter_leaves_its_target) {
  float y[2] = {1, 2}, source[2] = {8, 9};
  int64_t index[2] = {0, 2};
  bench t = bench_begin();
  bench_record(&t, HR_OP_SCATTER, INPUTS(TENSOR(&t, I64, index, 2), TENSOR(&t, F32, source, 2)),
               OUTPUTS(TENSOR(&t, F32, y, 2)), INTS(0, 0, 0), NO_SCALARS);
  HR_ASSERT_STATUS(bench_run(&t), HR_STATUS_OUT_OF_RANGE);
  ASSERT_ALL_NEAR(y, ((float[]){1, 2}), 2, 0);
}

HR_TEST(index_add_scales_and_adds_repeated_rows) {
  float y[6] = {0}, source[6] = {1, 2, 3, 4, 5, 6};
  int64_t index[3] = {2, 0, 2};
  bench t = bench_begin();
  bench_record(&t, HR_OP_INDEX_ADD, INPUTS(TENSOR(&t, I64, index, 3), TENSOR(&t, F32, source, 3, 2)),
               OUTPUTS(TENSOR(&t, F32, y, 3, 2)), INTS(0), SCALARS(F64(2)));
  HR_ASSERT_OK(bench_run(&t));
  ASSERT_ALL_NEAR(y, ((float[]){6, 8, 0, 0, 12, 16}), 6, 0);
}

/* ---- advanced indexing ---- */

HR_TEST(index_broadcasts_wraps_and_keeps_dims_around) {
  float x[24], y[2 * 3 * 3];
  int64_t first[2] = {1, -2}, second[3] = {0, -1, 2};
  count_up(x, 24); /* x [2, 4, 3]: dims 1 and 2 by [2, 1] and [3] as [1, 3]: y [2, 2, 3] */
  bench t = bench_begin();
  bench_record(&t, HR_OP_INDEX,
               INPUTS(TENSOR(&t, F32, x, 2, 4, 3), TENSOR(&t, I64, first, 2, 1), TENSOR(&t, I64, second, 1, 3)),
               OUTPUTS(TENSOR(&t, F32, y, 2, 2, 3)), INTS(6, 1), NO_SCALARS);
  HR_ASSERT_OK(bench_run(&t));
  for (int n = 0; n < 2; ++n) {
    for (int i = 0; i < 2; ++i) {
      for (int j = 0; j < 3; ++j) {
        int row = (int)(first[i] < 0 ? first[i] + 4 : first[i]),
            column = (int)(second[j] < 0 ? second[j] + 3 : second[j]);
        HR_ASSERT_NEAR(y[(n * 2 + i) * 3 + j], x[(n * 4 + row) * 3 + column], 0);
      }
    }
  }
}

/* x[i, :, j]: the indexed dims are not adjacent, so they come first in the output. */
HR_TEST(index_with_separated_dims_puts_the_index_first) {
  float x[12], y[6];
  int64_t first[2] = {1, 0}, last[2] = {1, 0};
  count_up(x, 12); /* [2, 3, 2] */
  bench t = bench_begin();
  bench_record(&t, HR_OP_INDEX,
               INPUTS(TENSOR(&t, F32, x, 2, 3, 2), TENSOR(&t, I64, first, 2), TENSOR(&t, I64, last, 2)),
               OUTPUTS(TENSOR(&t, F32, y, 2, 3)), INTS(5, 0), NO_SCALARS);
  HR_ASSERT_OK(bench_run(&t));
  ASSERT_ALL_NEAR(y, ((float[]){8, 10, 12, 1, 3, 5}), 6, 0);
}

HR_TEST(index_checks_both_ends) {
  float x[3] = {1, 2, 3}, y[1];
  for (int64_t i = -5; i < 6; ++i) {
    int64_t index[1] = {i};
    bench t = bench_begin();
    bench_record(&t, HR_OP_INDEX, INPUTS(TENSOR(&t, F32, x, 3), TENSOR(&t, I64, index, 1)),
                 OUTPUTS(TENSOR(&t, F32, y, 1)), INTS(1, 0), NO_SCALARS);
    if (i >= -3 && i < 3) {
      HR_ASSERT_OK(bench_run(&t));
      HR_ASSERT_NEAR(y[0], x[i < 0 ? i + 3 : i], 0);
    } else {
      HR_ASSERT_STATUS(bench_run(&t), HR_STATUS_OUT_OF_RANGE);
    }
  }
}

HR_TEST(index_put_accumulates_or_lets_the_last_write_win) {
  for (int accumulate = 0; accumulate < 2; ++accumulate) {
    float y[6] = {1, 1, 1, 1, 1, 1}, values[6] = {1, 2, 3, 4, 5, 6};
    int64_t index[3] = {1, -1, 0}; /* rows 1, 1, 0 of [2, 3] */
    bench t = bench_begin();
    bench_record(&t, HR_OP_INDEX_PUT, INPUTS(TENSOR(&t, F32, values, 3, 2), TENSOR(&t, I64, index, 3)),
                 OUTPUTS(TENSOR(&t, F32, y, 2, 2)), INTS(1, 0, accumulate), NO_SCALARS);
    HR_ASSERT_OK(bench_run(&t));
    static const float expected[2][4] = {{5, 6, 3, 4}, {6, 7, 5, 7}};
    ASSERT_ALL_NEAR(y, expected[accumulate], 4, 0);
  }
}

HR_TEST(index_put_broadcasts_its_values) {
  float y[6] = {0}, value = 3;
  int64_t rows[2] = {0, 1}, columns[2] = {2, 0};
  bench t = bench_begin();
  bench_record(&t, HR_OP_INDEX_PUT,
               INPUTS(NUMBER_TENSOR(&t, F32, value), TENSOR(&t, I64, rows, 2), TENSOR(&t, I64, columns, 2)),
               OUTPUTS(TENSOR(&t, F32, y, 2, 3)), INTS(3, 0, 0), NO_SCALARS);
  HR_ASSERT_OK(bench_run(&t));
  ASSERT_ALL_NEAR(y, ((float[]){0, 0, 3, 3, 0, 0}), 6, 0);
}

/* ---- gradient of an embedding ---- */

HR_TEST(embedding_backward_adds_skips_padding_and_divides_by_frequency) {
  float dy[8] = {1, 2, 3, 4, 5, 6, 7, 8}, dweight[8];
  int64_t index[4] = {2, 0, 2, 3}; /* [2, 2] */
  static const struct {
    int64_t padding, by_frequency;
    float expected[8];
  } cases[] = {{-1, 0, {3, 4, 0, 0, 6, 8, 7, 8}},
               {3, 0, {3, 4, 0, 0, 6, 8, 0, 0}},
               {-1, 1, {3, 4, 0, 0, 3, 4, 7, 8}},
               {2, 1, {3, 4, 0, 0, 0, 0, 7, 8}}};
  for (int i = 0; i < 4; ++i) {
    bench t = bench_begin();
    bench_record(&t, HR_OP_EMBEDDING_BACKWARD, INPUTS(TENSOR(&t, F32, dy, 2, 2, 2), TENSOR(&t, I64, index, 2, 2)),
                 OUTPUTS(TENSOR(&t, F32, dweight, 4, 2)), INTS(cases[i].padding, cases[i].by_frequency), NO_SCALARS);
    HR_ASSERT_OK(bench_run(&t));
    ASSERT_ALL_NEAR(dweight, cases[i].expected, 8, 1e-6);
  }
}

HR_TEST(embedding_backward_accumulates_halves_in_f32) {
  uint16_t dy[64], dweight[1];
  int64_t index[64] = {0};
  for (int i = 0; i < 64; ++i) {
    dy[i] = hr_f32_to_bf16(i == 0 ? 256 : 1); /* 256 + 1 is 256 in bf16 */
  }
  bench t = bench_begin();
  bench_record(&t, HR_OP_EMBEDDING_BACKWARD, INPUTS(TENSOR(&t, BF16, dy, 64, 1), TENSOR(&t, I64, index, 64)),
               OUTPUTS(TENSOR(&t, BF16, dweight, 1, 1)), INTS(-1, 0), NO_SCALARS);
  HR_ASSERT_OK(bench_run(&t));
  HR_ASSERT_NEAR(hr_bf16_to_f32(dweight[0]), 320, 0); /* 319 rounded to 8 bits */
}

/* ---- made from the index alone ---- */

HR_TEST(tri_keeps_one_side_of_a_diagonal) {
  float x[24], y[24];
  count_up(x, 24);
  x[1] = NAN;
  for (int upper = 0; upper < 2; ++upper) {
    for (int64_t diagonal = -4; diagonal < 6; ++diagonal) {
      bench t = bench_begin();
      bench_record(&t, HR_OP_TRI, INPUTS(TENSOR(&t, F32, x, 2, 3, 4)), OUTPUTS(TENSOR(&t, F32, y, 2, 3, 4)),
                   INTS(upper), SCALARS(I64(diagonal)));
      HR_ASSERT_OK(bench_run(&t));
      for (int i = 0; i < 24; ++i) {
        int64_t place = i % 4 - i / 4 % 3;
        HR_ASSERT_NEAR(y[i], (upper ? place >= diagonal : place <= diagonal) ? x[i] : 0, 0);
      }
    }
  }
}

HR_TEST(arange_is_exact_for_integers_and_rounds_once_for_the_others) {
  int64_t whole[3];
  float real[5];
  uint8_t bytes[3];
  bench t = bench_begin();
  bench_record(&t, HR_OP_ARANGE, NO_INPUTS, OUTPUTS(TENSOR(&t, I64, whole, 3)), NO_INTS,
               SCALARS(I64(((int64_t)1 << 60) + 1), I64(-3)));
  bench_record(&t, HR_OP_ARANGE, NO_INPUTS, OUTPUTS(TENSOR(&t, F32, real, 5)), NO_INTS, SCALARS(F64(0.1), F64(0.1)));
  bench_record(&t, HR_OP_ARANGE, NO_INPUTS, OUTPUTS(TENSOR(&t, U8, bytes, 3)), NO_INTS, SCALARS(I64(250), I64(2)));
  HR_ASSERT_OK(bench_run(&t));
  for (int i = 0; i < 3; ++i) {
    HR_ASSERT_EQ(whole[i], ((int64_t)1 << 60) + 1 - 3 * i);
    HR_ASSERT_EQ(bytes[i], 250 + 2 * i);
  }
  for (int i = 0; i < 5; ++i) {
    HR_ASSERT_NEAR(real[i], (float)(0.1 + i * 0.1), 0);
  }
}

HR_TEST(eye_is_one_on_the_diagonal) {
  float y[6];
  uint8_t flags[6];
  bench t = bench_begin();
  bench_record(&t, HR_OP_EYE, NO_INPUTS, OUTPUTS(TENSOR(&t, F32, y, 2, 3)), NO_INTS, NO_SCALARS);
  bench_record(&t, HR_OP_EYE, NO_INPUTS, OUTPUTS(TENSOR(&t, BOOL, flags, 3, 2)), NO_INTS, NO_SCALARS);
  HR_ASSERT_OK(bench_run(&t));
  ASSERT_ALL_NEAR(y, ((float[]){1, 0, 0, 0, 1, 0}), 6, 0);
  ASSERT_ALL_EQ(flags, ((int[]){1, 0, 0, 1, 0, 0}), 6);
}

/* ---- running sums ---- */

static void check_cumsum(int64_t outer, int64_t n, int64_t inner) {
  static float x[400 * 6], y[400 * 6];
  for (int i = 0; i < outer * n * inner; ++i) {
    x[i] = (float)((i * 37) % 101 - 50); /* sums are exact */
  }
  bench t = bench_begin();
  bench_record(&t, HR_OP_CUMSUM, INPUTS(TENSOR(&t, F32, x, outer, n, inner)),
               OUTPUTS(TENSOR(&t, F32, y, outer, n, inner)), INTS(1), NO_SCALARS);
  HR_ASSERT_OK(bench_run(&t));
  for (int64_t o = 0; o < outer; ++o) {
    for (int64_t i = 0; i < inner; ++i) {
      double sum = 0;
      for (int64_t k = 0; k < n; ++k) {
        int64_t at = (o * n + k) * inner + i;
        sum += x[at];
        HR_ASSERT_NEAR(y[at], sum, 0);
      }
    }
  }
}

HR_TEST(cumsum_of_every_length) {
  static const int64_t lengths[] = {0, 1, 2, 3, 31, 33, 64, 65, 127, 128, 129, 400};
  for (int i = 0; i < 12; ++i) {
    check_cumsum(2, lengths[i], 3);
    check_cumsum(1, lengths[i], 1);
  }
}

/* Running products and sums of exponentials, of lengths around powers of two, also in place. */
HR_TEST(running_products_and_sums_of_exponentials) {
  static const int64_t lengths[] = {1, 2, 3, 4, 5, 31, 33, 100};
  for (int i = 0; i < 16; ++i) {
    const int64_t n = lengths[i / 2];
    float x[200], y[200], z[200];
    for (int64_t k = 0; k < 2 * n; ++k) {
      x[k] = k / 2 % 9 == 0 ? 2.0f : k % 3 == 0 ? -1.0f : 1.0f;
      z[k] = y[k] = x[k];
    }
    bench t = bench_begin();
    hr_operand from = TENSOR(&t, F32, x, n, 2), product = TENSOR(&t, F32, y, n, 2), sum = TENSOR(&t, F32, z, n, 2);
    bench_record(&t, HR_OP_CUMPROD, INPUTS(i % 2 == 0 ? from : product), OUTPUTS(product), INTS(0), NO_SCALARS);
    bench_record(&t, HR_OP_LOGCUMSUMEXP, INPUTS(i % 2 == 0 ? from : sum), OUTPUTS(sum), INTS(0), NO_SCALARS);
    HR_ASSERT_OK(bench_run(&t));
    for (int64_t j = 0; j < 2; ++j) {
      double expected = 1, exponentials = 0;
      for (int64_t k = 0; k < n; ++k) {
        expected *= x[2 * k + j], exponentials += exp(x[2 * k + j]);
        HR_ASSERT_NEAR(y[2 * k + j], expected, 0);
        HR_ASSERT_NEAR(z[2 * k + j], log(exponentials), 2e-6);
      }
    }
  }
}

HR_TEST(cumsum_counts_booleans_and_works_in_place) {
  uint8_t flags[100];
  int64_t counts[100], numbers[100];
  for (int i = 0; i < 100; ++i) {
    flags[i] = i % 3 == 0, numbers[i] = i;
  }
  bench t = bench_begin();
  bench_record(&t, HR_OP_CUMSUM, INPUTS(TENSOR(&t, BOOL, flags, 100)), OUTPUTS(TENSOR(&t, I64, counts, 100)), INTS(0),
               NO_SCALARS);
  bench_record(&t, HR_OP_CUMSUM, INPUTS(TENSOR(&t, I64, numbers, 100)), OUTPUTS(TENSOR(&t, I64, numbers, 100)), INTS(0),
               NO_SCALARS);
  HR_ASSERT_OK(bench_run(&t));
  for (int i = 0; i < 100; ++i) {
    HR_ASSERT_EQ(counts[i], i / 3 + 1);
    HR_ASSERT_EQ(numbers[i], (int64_t)i * (i + 1) / 2);
  }
}

/* An index that is broadcast over the elements of a row is checked once for the row. */
HR_TEST(spread_indices_are_checked_once) {
  float x[6 * 8] = {0}, y[9 * 8];
  int64_t index[6] = {0};
  bench t = bench_begin();
  hr_operand spread = TENSOR(&t, I64, index, 6, 8);
  spread.strides = (int64_t[]){1, 0};
  bench_record(&t, HR_OP_SCATTER, INPUTS(spread, TENSOR(&t, F32, x, 6, 8)), OUTPUTS(TENSOR(&t, F32, y, 9, 8)),
               INTS(0, 0, 0), NO_SCALARS);
  hr_program expanded;
  int reductions = 0;
  HR_ASSERT_OK(hr_expand(&t.program, NULL, NULL, &expanded));
  for (int i = 0; i < expanded.node_count; ++i) {
    if (expanded.nodes[i].op == HR_OP_AMAX) {
      HR_ASSERT_EQ(hr_operand_count(expanded.nodes[i].inputs[0]), 6);
      ++reductions;
    }
  }
  HR_ASSERT_EQ(reductions, 1);
  hr_program_fini(&expanded);
  hr_program_fini(&t.program);
}

/* ---- segments ---- */

HR_TEST(segments_of_rows_and_of_listed_rows) {
  /* Rows 0 and 6 belong to no segment, the second segment is empty. */
  float x[7 * 2] = {9, 9, 1, 2, 3, 4, 5, 6, 7, 8, NAN, 1, 9, 9}, y[4 * 2], factors[5] = {1, 2, 3, 4, 5};
  int64_t begin[4] = {1, 3, 3, 5}, end[4] = {3, 3, 5, 6}, list[5] = {2, 2, 0, 4, 1}, first[4] = {0, 2, 2, 4};
  int64_t last[4] = {2, 2, 4, 5};
  const float sums[4 * 2] = {104, 106, 100, 100, 112, 114, NAN, 101}, listed[4 * 2] = {9, 12, 0, 0, 28, 32, 5, 10};
  bench t = bench_begin();
  bench_record(&t, HR_OP_SEGMENTS, INPUTS(TENSOR(&t, F32, x, 7, 2), TENSOR(&t, I64, begin, 4), TENSOR(&t, I64, end, 4)),
               OUTPUTS(TENSOR(&t, F32, y, 4, 2)), INTS(1, -1), SCALARS(F64(100)));
  HR_ASSERT_OK(bench_run(&t));
  for (int i = 0; i < 8; ++i) {
    HR_ASSERT(y[i] == sums[i] || (isnan(y[i]) && isnan(sums[i])));
  }
  t = bench_begin(); /* row 0 of the list is skipped */
  bench_record(&t, HR_OP_SEGMENTS,
               INPUTS(TENSOR(&t, F32, x, 7, 2), TENSOR(&t, I64, first, 4), TENSOR(&t, I64, last, 4),
                      TENSOR(&t, I64, list, 5), TENSOR(&t, F32, factors, 5)),
               OUTPUTS(TENSOR(&t, F32, y, 4, 2)), INTS(1, 0), SCALARS(F64(0)));
  HR_ASSERT_OK(bench_run(&t));
  ASSERT_ALL_EQ(y, listed, 8);
  t = bench_begin();
  bench_record(
      &t, HR_OP_SEGMENTS,
      INPUTS(TENSOR(&t, F32, x, 7, 2), TENSOR(&t, I64, first, 4), TENSOR(&t, I64, last, 4), TENSOR(&t, I64, list, 5)),
      OUTPUTS(TENSOR(&t, F32, y, 4, 2)), INTS(3, -1), SCALARS(F64(-INFINITY)));
  bench_check_oom(&t);
}

HR_TEST(segments_reject_indices_out_of_range) {
  float x[3] = {1, 2, 3}, y[1];
  for (int wrong = 0; wrong < 3; ++wrong) {
    int64_t begin[1] = {wrong == 0 ? -1 : 0}, end[1] = {wrong == 1 ? 4 : 3}, list[3] = {0, wrong == 2 ? 3 : 1, 2};
    bench t = bench_begin();
    bench_record(
        &t, HR_OP_SEGMENTS,
        INPUTS(TENSOR(&t, F32, x, 3, 1), TENSOR(&t, I64, begin, 1), TENSOR(&t, I64, end, 1), TENSOR(&t, I64, list, 3)),
        OUTPUTS(TENSOR(&t, F32, y, 1, 1)), INTS(1, -1), SCALARS(F64(0)));
    HR_ASSERT_ERROR(bench_run(&t), HR_STATUS_OUT_OF_RANGE, "");
  }
}

/* ---- memory ---- */

HR_TEST(lowering_survives_failing_allocations) {
  float x[24], y[48];
  int64_t index[4];
  bench t = bench_begin();
  hr_operand matrix = TENSOR(&t, F32, x, 6, 4), pick = TENSOR(&t, I64, index, 2, 2), out = TENSOR(&t, F32, y, 2, 2, 4);
  hr_operand list = TENSOR(&t, I64, index, 4), vector = TENSOR(&t, F32, x, 24), sums = TENSOR(&t, F32, y, 24);
  bench_record(&t, HR_OP_INDEX_SELECT, INPUTS(matrix, pick), OUTPUTS(out), INTS(0), NO_SCALARS);
  bench_record(&t, HR_OP_INDEX, INPUTS(matrix, pick), OUTPUTS(out), INTS(1, 0), NO_SCALARS);
  bench_record(&t, HR_OP_INDEX_PUT, INPUTS(out, pick), OUTPUTS(matrix), INTS(1, 0, 1), NO_SCALARS);
  bench_record(&t, HR_OP_EMBEDDING_BACKWARD, INPUTS(out, pick), OUTPUTS(matrix), INTS(1, 1), NO_SCALARS);
  bench_record(&t, HR_OP_SCATTER, INPUTS(list, vector), OUTPUTS(sums), INTS(0, 1, 0), NO_SCALARS);
  bench_record(&t, HR_OP_INDEX_ADD, INPUTS(list, TENSOR(&t, F32, y, 4, 4)), OUTPUTS(matrix), INTS(0), SCALARS(F64(1)));
  bench_record(&t, HR_OP_GATHER, INPUTS(vector, list), OUTPUTS(TENSOR(&t, F32, y, 4)), INTS(0), NO_SCALARS);
  bench_record(&t, HR_OP_CUMSUM, INPUTS(vector), OUTPUTS(sums), INTS(0), NO_SCALARS);
  bench_record(&t, HR_OP_CUMSUM, INPUTS(TENSOR(&t, F32, x, 1, 0)), OUTPUTS(TENSOR(&t, F32, y, 1, 0)), INTS(0),
               NO_SCALARS);
  bench_record(&t, HR_OP_CUMPROD, INPUTS(vector), OUTPUTS(sums), INTS(0), NO_SCALARS);
  bench_record(&t, HR_OP_PAD, INPUTS(TENSOR(&t, F32, x, 4)), OUTPUTS(TENSOR(&t, F32, y, 6)), INTS(1, 1),
               SCALARS(F64(1)));
  bench_record(&t, HR_OP_TRI, INPUTS(matrix), OUTPUTS(matrix), INTS(1), SCALARS(I64(0)));
  bench_record(&t, HR_OP_CAT, INPUTS(vector, vector), OUTPUTS(TENSOR(&t, F32, y, 48)), INTS(0), NO_SCALARS);
  bench_check_oom(&t);
}
