/* The host providers against plain loops in double precision (provider_cases.h). */
#include "base/thread.h"
#include "provider_cases.h"
#include "providers/lapack/lapack_api.h"
#include "providers/onednn/dnnl_api.h"
#include "runtime/cached_weights.h"

static void check_rows_in_every_layout(hr_dtype dtype) {
  cases_begin(&hr__gemv_provider);
  int taken = 0;
  for (int p = 0; p < PRODUCTS; ++p) {
    const product *q = &products[p];
    for (int a = 0; a < MATRIX_LAYOUTS; ++a) {
      for (int b = 0; b < MATRIX_LAYOUTS; ++b) {
        op_case t = product_case(&hr__gemv_provider, q, dtype, (matrix_layout)a, (matrix_layout)b,
                                 (matrix_layout)random_below(MATRIX_OUTPUTS), (bias_layout)random_below(BIAS_LAYOUTS));
        bool is_taken = op_case_check(&t);
        HR_ASSERT(!is_taken || q->rows == 1 || q->columns == 1);
        taken += is_taken;
      }
    }
  }
  HR_ASSERT(taken > 400);
}

HR_TEST(rows_multiplies_single_rows_in_every_layout) {
  check_rows_in_every_layout(HR_DTYPE_F32);
}

HR_TEST(rows_multiplies_single_rows_of_bf16) {
  check_rows_in_every_layout(HR_DTYPE_BF16);
}

/* The last one has rows in whole vectors, which are read in pairs, and one more. */
HR_TEST(rows_takes_what_models_multiply) {
  cases_begin(&hr__gemv_provider);
  static const product products_of_models[] = {{1, {2}, 1, 70, 530}, {1, {1}, 1, 263, 301}, {1, {1}, 1, 131, 1040}};
  for (int i = 0; i < 3; ++i) {
    for (int b = MATRIX_DENSE; b <= MATRIX_TRANSPOSED_ROOM; ++b) {
      for (int bias = 0; bias <= BIAS_EXPANDED; ++bias) {
        op_case t = product_case(&hr__gemv_provider, &products_of_models[i], HR_DTYPE_F32, MATRIX_ROOM,
                                 (matrix_layout)b, MATRIX_STEPS, (bias_layout)bias);
        op_case_must_pass(&t);
      }
    }
  }
}

/* Short columns, below and above the size from which weights are asked for ahead. */
HR_TEST(rows_multiplies_short_columns) {
  static const product short_columns[] = {
      {0, {0}, 1, 32, 2047}, {0, {0}, 1, 32, 2050}, {0, {0}, 1, 64, 1023}, {0, {0}, 1, 64, 1030}, {0, {0}, 1, 65, 2051},
  };
  cases_begin(&hr__gemv_provider);
  for (size_t i = 0; i < sizeof short_columns / sizeof *short_columns; ++i) {
    for (int b = MATRIX_TRANSPOSED; b <= MATRIX_TRANSPOSED_ROOM; ++b) {
      op_case f32 = product_case(&hr__gemv_provider, &short_columns[i], HR_DTYPE_F32, MATRIX_DENSE, (matrix_layout)b,
                                 MATRIX_DENSE, BIAS_VECTOR);
      op_case bf16 = product_case(&hr__gemv_provider, &short_columns[i], HR_DTYPE_BF16, MATRIX_DENSE, (matrix_layout)b,
                                  MATRIX_DENSE, BIAS_VECTOR);
      op_case_must_pass(&f32);
      op_case_must_pass(&bf16);
    }
  }
}

/* Narrow rows, whose sums are held in registers: whole vectors, four of them at a time, and the columns behind. */
HR_TEST(rows_multiplies_narrow_matrices) {
  static const int columns[] = {16, 63, 64, 100, 128, 200, 255, 256, 257, 320};
  cases_begin(&hr__gemv_provider);
  for (size_t i = 0; i < sizeof columns / sizeof *columns; ++i) {
    for (int b = MATRIX_DENSE; b <= MATRIX_ROOM; ++b) {
      const product q = {0, {0}, 1, 37, columns[i]};
      op_case t =
          product_case(&hr__gemv_provider, &q, HR_DTYPE_F32, MATRIX_DENSE, (matrix_layout)b, MATRIX_DENSE, BIAS_VECTOR);
      op_case_must_pass(&t);
    }
  }
}

HR_TEST(rows_multiplies_single_columns_of_large_matrices) {
  static const product columns[] = {
      {0, {0}, 530, 70, 1}, {1, {2}, 530, 70, 1}, {0, {0}, 65, 4100, 1}, {1, {3}, 16, 40000, 1}};
  cases_begin(&hr__gemv_provider);
  for (int i = 0; i < 4; ++i) {
    for (int a = MATRIX_DENSE; a <= MATRIX_TRANSPOSED_ROOM; ++a) {
      for (int bias = 0; bias < BIAS_LAYOUTS; ++bias) {
        if (!hr_test_takes(i + a + bias)) {
          continue;
        }
        op_case t = product_case(&hr__gemv_provider, &columns[i], HR_DTYPE_F32, (matrix_layout)a, MATRIX_DENSE,
                                 MATRIX_STEPS, (bias_layout)bias);
        HR_ASSERT(op_case_check(&t) || (bias > BIAS_NONE && bias != BIAS_COLUMN));
      }
    }
  }
}

HR_TEST(rows_broadcasts_dims_of_one) {
  cases_begin(&hr__gemv_provider);
  for (int one = 0; one < 2; ++one) {
    const product q = {2, {1, 3}, 1, 35, 20};
    op_case t =
        product_case(&hr__gemv_provider, &q, HR_DTYPE_F32, MATRIX_DENSE, MATRIX_TRANSPOSED, MATRIX_DENSE, BIAS_VECTOR);
    t.tensors[one].dims[1] = 1;
    t.tensors[one].strides[1] = 1000; /* must not matter */
    op_case_must_pass(&t);
  }
}

HR_TEST(rows_leaves_other_products_to_others) {
  cases_begin(&hr__gemv_provider);
  const product row = {0, {0}, 1, 8, 8}, rows = {0, {0}, 2, 8, 8}, batches = {2, {2, 2}, 1, 8, 8};
  op_case refused[] = {
      product_case(&hr__gemv_provider, &rows, HR_DTYPE_F32, MATRIX_DENSE, MATRIX_DENSE, MATRIX_DENSE, BIAS_ABSENT),
      product_case(&hr__gemv_provider, &batches, HR_DTYPE_F32, MATRIX_DENSE, MATRIX_ROOM, MATRIX_DENSE, BIAS_ABSENT),
      product_case(&hr__gemv_provider, &row, HR_DTYPE_F16, MATRIX_DENSE, MATRIX_DENSE, MATRIX_DENSE, BIAS_ABSENT),
      product_case(&hr__gemv_provider, &row, HR_DTYPE_F32, MATRIX_DENSE, MATRIX_STEPS, MATRIX_DENSE, BIAS_ABSENT),
      product_case(&hr__gemv_provider, &row, HR_DTYPE_F32, MATRIX_DENSE, MATRIX_DENSE, MATRIX_DENSE, BIAS_NUMBER),
  };
  for (size_t i = 0; i < sizeof refused / sizeof *refused; ++i) {
    HR_ASSERT(!op_case_check(&refused[i]));
  }
}

HR_TEST(rows_takes_beams_and_heads_as_one_batch) {
  cases_begin(&hr__gemv_provider);
  const product q = {2, {3, 2}, 1, 32, 44};
  for (int b = MATRIX_DENSE; b <= MATRIX_TRANSPOSED; ++b) {
    for (int out = MATRIX_DENSE; out <= MATRIX_TRANSPOSED; ++out) {
      op_case t = product_case(&hr__gemv_provider, &q, HR_DTYPE_F32, MATRIX_DENSE, (matrix_layout)b, (matrix_layout)out,
                               BIAS_VECTOR);
      op_case_must_pass(&t);
    }
  }
  op_case split =
      product_case(&hr__gemv_provider, &q, HR_DTYPE_F32, MATRIX_ROOM, MATRIX_TRANSPOSED, MATRIX_DENSE, BIAS_ABSENT);
  op_case_must_pass(&split);          /* rows of a third of wider ones, as those of queries beside keys and values */
  for (int one = 0; one < 2; ++one) { /* of all beams, or of all heads of a beam: the latter walks no dims as one */
    op_case t =
        product_case(&hr__gemv_provider, &q, HR_DTYPE_F32, MATRIX_DENSE, MATRIX_TRANSPOSED, MATRIX_DENSE, BIAS_ABSENT);
    t.tensors[1].dims[0] = t.tensors[1].dims[one] = 1;
    HR_ASSERT_EQ(op_case_check(&t), one == 1);
  }
}

/* Large enough for the team. */
static void check_bits_of(const hr_provider *provider, matrix_layout b, const product *q, hr_dtype dtype) {
  op_case t = product_case(provider, q, dtype, MATRIX_DENSE, b, MATRIX_DENSE, BIAS_VECTOR);
  tensor *out = op_case_output(&t);
  hr_thread_count_set(2); /* some prepare for the number */
  op_case_node(&t);
  HR_ASSERT(op_case_is_supported(&t));
  op_case_prepare(&t);
  HR_ASSERT(t.provider->needs_team(t.prepared));
  op_case_allocate(&t);
  size_t bytes = (size_t)out->length * hr_dtype_size(dtype);
  unsigned char *alone = malloc(bytes);
  HR_ASSERT_NOT_NULL(alone);
  for (int threads = 1; threads <= 9; threads += threads < 3 ? 1 : 6) { /* 1, 2, 3, and more than some have blocks */
    hr_thread_count_set(threads);
    op_case_run(&t);
    check_canaries(&t, out);
    if (threads == 1) {
      memcpy(alone, out->bytes, bytes);
      check_result(&t);
    }
    HR_ASSERT_BYTES_EQ(out->bytes, alone, bytes);
  }
  hr_thread_count_set(0);
  free(alone);
  op_case_free(&t);
  op_case_end(&t);
}

static void check_bits_across_threads(matrix_layout b, const product *q, hr_dtype dtype) {
  check_bits_of(&hr__gemv_provider, b, q, dtype);
}

HR_TEST(rows_gives_the_same_bits_whatever_the_number_of_threads) {
  cases_begin(&hr__gemv_provider);
  const product wide = {0, {0}, 1, 333, 1531}, batch = {1, {5}, 1, 129, 517}, heads = {2, {3, 2}, 1, 129, 517};
  const product kept = {0, {0}, 1, 251, 517}, kept_batch = {1, {3}, 1, 200, 100}; /* by the cores' own caches */
  const product streamed = {0, {0}, 1, 61, 4507}; /* rows that are longer than the sums of a streamed block */
  for (int b = MATRIX_DENSE; b <= MATRIX_TRANSPOSED_ROOM; ++b) {
    check_bits_across_threads((matrix_layout)b, &streamed, HR_DTYPE_BF16);
    check_bits_across_threads((matrix_layout)b, &wide, HR_DTYPE_BF16);
    check_bits_across_threads((matrix_layout)b, &wide, b % 2 ? HR_DTYPE_BF16 : HR_DTYPE_F32);
    check_bits_across_threads((matrix_layout)b, &batch, b % 2 ? HR_DTYPE_BF16 : HR_DTYPE_F32);
    if (b <= MATRIX_TRANSPOSED) { /* dims with room between them are not one */
      check_bits_across_threads((matrix_layout)b, &heads, b % 2 ? HR_DTYPE_BF16 : HR_DTYPE_F32);
    }
    check_bits_across_threads((matrix_layout)b, &kept, b % 2 ? HR_DTYPE_BF16 : HR_DTYPE_F32);
    check_bits_across_threads((matrix_layout)b, &kept_batch, b % 2 ? HR_DTYPE_BF16 : HR_DTYPE_F32);
  }
}

/* Sums so long that they are cut into parts: a dot product, one of several columns, several of a batch. */
HR_TEST(rows_cuts_long_sums_of_few_columns) {
  cases_begin(&hr__gemv_provider);
  const product sums[] = {{0, {0}, 1, 70007, 1}, {0, {0}, 1, 50001, 5}, {0, {0}, 1, 40013, 19}, {1, {3}, 1, 33333, 2}};
  for (int b = MATRIX_DENSE; b <= MATRIX_TRANSPOSED_ROOM; ++b) {
    for (size_t i = 0; i < sizeof sums / sizeof *sums; ++i) {
      check_bits_across_threads((matrix_layout)b, &sums[i], HR_DTYPE_F32);
      check_bits_across_threads((matrix_layout)b, &sums[i], HR_DTYPE_BF16);
    }
    op_case t = product_case(&hr__gemv_provider, &sums[1], HR_DTYPE_F32, MATRIX_STEPS, (matrix_layout)b, MATRIX_STEPS,
                             BIAS_EXPANDED);
    op_case_must_pass(&t);
  }
}

HR_TEST(onednn_multiplies_in_every_layout) {
  cases_begin(&hr__onednn_provider);
  for (int p = 0; p < PRODUCTS; ++p) {
    const product *q = &products[p];
    for (int a = 0; a < MATRIX_LAYOUTS; ++a) {
      for (int b = 0; b < MATRIX_LAYOUTS; ++b) {
        bias_layout bias = (bias_layout)random_below(BIAS_LAYOUTS);
        op_case t = product_case(&hr__onednn_provider, q, HR_DTYPE_F32, (matrix_layout)a, (matrix_layout)b,
                                 (matrix_layout)random_below(MATRIX_OUTPUTS), bias);
        if (is_row_bias(bias, q->columns)) {
          op_case_must_pass(&t);
        } else {
          (void)op_case_check(&t);
        }
      }
    }
  }
}

HR_TEST(sgemm_multiplies_in_every_layout) {
  cases_begin(&hr__sgemm_provider);
  int taken = 0;
  for (int p = 0; p < PRODUCTS; ++p) {
    for (int a = 0; a < MATRIX_LAYOUTS; ++a) {
      for (int b = 0; b < MATRIX_LAYOUTS; ++b) {
        for (int bias = 0; bias < BIAS_LAYOUTS; ++bias) {
          op_case t = product_case(&hr__sgemm_provider, &products[p], HR_DTYPE_F32, (matrix_layout)a, (matrix_layout)b,
                                   (matrix_layout)random_below(MATRIX_OUTPUTS), (bias_layout)bias);
          taken += op_case_check(&t);
        }
      }
    }
  }
  HR_ASSERT(taken > 20);
}

/* One and two batch dims, tails of rows and of panels, several panels and strips, and sums longer than a vector. */
static const product batches[] = {
    {1, {3}, 5, 7, 4},       {2, {2, 3}, 21, 32, 21}, {2, {3, 2}, 50, 17, 66}, {1, {4}, 100, 3, 33},
    {2, {1, 3}, 4, 40, 200}, {2, {3, 1}, 16, 16, 16}, {1, {2}, 9, 300, 130},   {2, {2, 2}, 6, 1, 20},
    {2, {8, 4}, 16, 16, 2},  {1, {3}, 70, 40, 3},
};
enum { BATCHES = sizeof batches / sizeof *batches };

HR_TEST(batched_products_multiplies_in_every_layout) {
  const hr_provider *provider = &hr__batched_products_provider;
  cases_begin(provider);
  for (int p = 0; p < BATCHES; ++p) {
    for (int a = 0; a < MATRIX_LAYOUTS; ++a) {
      for (int b = 0; b < MATRIX_LAYOUTS; ++b) {
        if (!hr_test_takes(p + a + b)) {
          continue;
        }
        bias_layout bias = (bias_layout)random_below(BIAS_LAYOUTS);
        op_case t = product_case(provider, &batches[p], HR_DTYPE_F32, (matrix_layout)a, (matrix_layout)b,
                                 (matrix_layout)random_below(MATRIX_OUTPUTS), bias);
        (void)op_case_check(&t);
      }
      op_case t = product_case(provider, &batches[p], HR_DTYPE_F32, (matrix_layout)a,
                               a % 2 == 0 ? MATRIX_BATCH_INSIDE : MATRIX_TRANSPOSED_ROOM,
                               a % 3 == 0 ? MATRIX_BATCH_INSIDE : MATRIX_ROOM, a % 3 == 0 ? BIAS_VECTOR : BIAS_ABSENT);
      op_case_must_pass(&t);
    }
  }
}

HR_TEST(batched_products_leaves_other_products_to_others) {
  static const product other[] = {{0, {0}, 8, 8, 8},   {1, {1}, 8, 8, 8},     {2, {1, 1}, 8, 8, 8}, {1, {3}, 1, 8, 8},
                                  {1, {3}, 8, 8, 1},   {1, {64}, 256, 16, 3}, {1, {3}, 8, 0, 8},    {1, {0}, 8, 8, 8},
                                  {1, {2}, 2, 513, 8}, {1, {2}, 2, 4, 1025}};
  const hr_provider *provider = &hr__batched_products_provider;
  cases_begin(provider);
  for (size_t i = 0; i < sizeof other / sizeof *other; ++i) {
    op_case t = product_case(provider, &other[i], HR_DTYPE_F32, MATRIX_DENSE, MATRIX_DENSE, MATRIX_DENSE, BIAS_ABSENT);
    op_case_node(&t);
    HR_ASSERT(!op_case_is_supported(&t));
    hr_program_fini(&t.program);
  }
  op_case wide =
              product_case(provider, &batches[1], HR_DTYPE_F64, MATRIX_DENSE, MATRIX_DENSE, MATRIX_DENSE, BIAS_ABSENT),
          shared = product_case(provider, &batches[0], HR_DTYPE_F32, MATRIX_DENSE, MATRIX_BROADCAST_BATCH, MATRIX_DENSE,
                                BIAS_ABSENT);
  HR_ASSERT(!op_case_check(&wide) && !op_case_check(&shared));
}

/* Its code takes longer to generate than a first answer may. */
HR_TEST(sgemm_multiplies_few_rows_with_large_matrices) {
  cases_begin(&hr__sgemm_provider);
  for (int rows = 2; rows <= 5; ++rows) {
    for (int wide = 0; wide < 2; ++wide) {
      const product q = {0, {0}, rows, wide ? 67 : 263, wide ? 1057 : 261};
      for (int a = MATRIX_DENSE; a <= MATRIX_TRANSPOSED_ROOM; ++a) {
        for (int b = MATRIX_DENSE; b <= MATRIX_TRANSPOSED_ROOM; ++b) {
          op_case t = product_case(&hr__sgemm_provider, &q, HR_DTYPE_F32, (matrix_layout)a, (matrix_layout)b,
                                   MATRIX_ROOM, BIAS_VECTOR);
          op_case_must_pass(&t);
        }
      }
    }
  }
}

/* Sums of one part and of several, and ends of vectors, panels and strips. */
HR_TEST(sgemm_multiplies_in_panels) {
  static const product all[] = {{0, {0}, 17, 16, 65},  {0, {0}, 2, 33, 129},   {0, {0}, 49, 384, 33},
                                {0, {0}, 50, 385, 70}, {0, {0}, 16, 769, 130}, {0, {0}, 97, 64, 512}};
  cases_begin(&hr__sgemm_provider);
  for (size_t i = 0; i < sizeof all / sizeof *all; ++i) {
    for (int a = MATRIX_DENSE; a <= MATRIX_TRANSPOSED_ROOM; ++a) {
      for (int b = MATRIX_DENSE; b <= MATRIX_TRANSPOSED_ROOM; ++b) {
        op_case t = product_case(&hr__sgemm_provider, &all[i], HR_DTYPE_F32, (matrix_layout)a, (matrix_layout)b,
                                 MATRIX_ROOM, (a + b) % 3 == 0 ? BIAS_ABSENT : BIAS_VECTOR);
        op_case_must_pass(&t);
      }
    }
  }
  const product batch = {1, {3}, 20, 40, 100};
  op_case shared = product_case(&hr__sgemm_provider, &batch, HR_DTYPE_F32, MATRIX_DENSE, MATRIX_BROADCAST_BATCH,
                                MATRIX_DENSE, BIAS_VECTOR);
  op_case_must_pass(&shared);
}

/* 33 columns: none is left to a thread alone. */
HR_TEST(sgemm_gives_the_same_bits_whatever_the_number_of_threads) {
  cases_begin(&hr__sgemm_provider);
  const product all[] = {{0, {0}, 100, 283, 33}, {0, {0}, 1025, 79, 17}, {0, {0}, 33, 160, 200}, {0, {0}, 49, 300, 47},
                         {0, {0}, 200, 500, 66}, {0, {0}, 300, 64, 270}, {0, {0}, 40, 800, 333}};
  for (int b = MATRIX_DENSE; b <= MATRIX_TRANSPOSED; ++b) {
    for (size_t i = 0; i < sizeof all / sizeof *all; ++i) {
      check_bits_of(&hr__sgemm_provider, (matrix_layout)b, &all[i], HR_DTYPE_F32);
    }
  }
}

HR_TEST(sgemm_leaves_products_of_one_row) {
  static const product rows[] = {{0, {0}, 1, 70, 530}, {1, {1}, 1, 70, 530}, {0, {0}, 2, 70, 530}};
  cases_begin(&hr__sgemm_provider);
  for (int i = 0; i < 3; ++i) {
    op_case t = product_case(&hr__sgemm_provider, &rows[i], HR_DTYPE_F32, MATRIX_DENSE, MATRIX_TRANSPOSED, MATRIX_DENSE,
                             BIAS_VECTOR);
    HR_ASSERT_EQ(op_case_check(&t), rows[i].rows > 1);
  }
}

HR_TEST(onednn_writes_products_into_every_layout) {
  cases_begin(&hr__onednn_provider);
  for (int p = 0; p < PRODUCTS; ++p) {
    for (int out = 0; out < MATRIX_OUTPUTS; ++out) {
      op_case t = product_case(&hr__onednn_provider, &products[p], HR_DTYPE_F32, MATRIX_DENSE, MATRIX_DENSE,
                               (matrix_layout)out, out % 2 == 0 ? BIAS_VECTOR : BIAS_ABSENT);
      op_case_must_pass(&t);
    }
  }
}

HR_TEST(onednn_broadcasts_dims_of_one) {
  cases_begin(&hr__onednn_provider);
  for (int turn = 0; turn < 32; ++turn) { /* bits: dims of a, dims of b, stride 0 in b's other dims */
    const product q = {2, {2, 3}, 4, 9, 6};
    op_case t = product_case(&hr__onednn_provider, &q, HR_DTYPE_F32, MATRIX_DENSE,
                             turn < 16 ? MATRIX_TRANSPOSED : MATRIX_BROADCAST_BATCH, MATRIX_DENSE, BIAS_VECTOR);
    for (int i = 0; i < 4; ++i) {
      bool is_of_both = i >= 2 && (turn >> (i - 2) & 1) != 0;
      if ((turn >> i & 1) != 0 && !is_of_both) {
        t.tensors[i / 2].dims[i % 2] = 1;
        t.tensors[i / 2].strides[i % 2] = 1000 * (i % 3); /* must not matter */
      }
    }
    op_case_must_pass(&t);
  }
}

HR_TEST(onednn_multiplies_narrow_numbers) {
  cases_begin(&hr__onednn_provider);
  for (int dtype = HR_DTYPE_F16; dtype <= HR_DTYPE_BF16; ++dtype) {
    for (int p = 0; p < PRODUCTS; ++p) {
      for (int a = 0; a < MATRIX_LAYOUTS; ++a) {
        op_case t = product_case(&hr__onednn_provider, &products[p], (hr_dtype)dtype, (matrix_layout)a,
                                 (matrix_layout)random_below(MATRIX_LAYOUTS),
                                 (matrix_layout)random_below(MATRIX_OUTPUTS), (bias_layout)random_below(BIAS_STEPS));
        (void)op_case_check(&t); /* not every processor has them */
      }
    }
  }
}

/* ---- convolutions ---- */

/* Every window with every layout of each operand in turn, the others random. */
static void check_windows_of(const hr_provider *provider, hr_op op, hr_dtype dtype) {
  int taken = 0;
  cases_begin(provider);
  for (int i = 0; i < WINDOWS + UNEVEN_WINDOWS; ++i) {
    const window *q = i < WINDOWS ? &windows[i] : &uneven_windows[i - WINDOWS];
    for (int turn = 0; turn < 3 * IMAGE_LAYOUTS; ++turn) {
      image_layout layouts[3];
      for (int operand = 0; operand < 3; ++operand) {
        layouts[operand] =
            (image_layout)(turn / IMAGE_LAYOUTS == operand ? turn % IMAGE_LAYOUTS : random_below(IMAGE_LAYOUTS));
      }
      bool has_bias = op != HR_OP_CONV_BACKWARD_WEIGHT && turn % 2 == 0;
      op_case t = window_case(op, q, dtype, layouts[0], layouts[1], layouts[2], has_bias);
      t.provider = provider;
      if (dtype == HR_DTYPE_F32) {
        op_case_must_pass(&t);
      } else {
        taken += op_case_check(&t);
      }
    }
  }
  HR_ASSERT(dtype != HR_DTYPE_F64 || taken > 200);
}

static void check_windows(hr_op op, hr_dtype dtype) {
  check_windows_of(&hr__onednn_provider, op, dtype);
}

HR_TEST(onednn_convolves) {
  check_windows(HR_OP_CONV, HR_DTYPE_F32);
}
HR_TEST(onednn_gives_the_gradient_of_data) {
  check_windows(HR_OP_CONV_BACKWARD_DATA, HR_DTYPE_F32);
}
HR_TEST(onednn_gives_the_gradient_of_weights) {
  check_windows(HR_OP_CONV_BACKWARD_WEIGHT, HR_DTYPE_F32);
}
HR_TEST(onednn_convolves_bf16) {
  check_windows(HR_OP_CONV, HR_DTYPE_BF16);
}
HR_TEST(onednn_gives_the_gradient_of_bf16_data) {
  check_windows(HR_OP_CONV_BACKWARD_DATA, HR_DTYPE_BF16);
}
HR_TEST(onednn_gives_the_gradient_of_bf16_weights) {
  check_windows(HR_OP_CONV_BACKWARD_WEIGHT, HR_DTYPE_BF16);
}

/* The provider opens without its library, which is opened when something needs it. */
static void check_lapack_windows(hr_op op) {
  hr_status status = hr__lapack_open();
  bool is_open = status == HR_OK;
  hr_status_ignore(status);
  if (!is_open) {
    HR_SKIP("no LAPACK");
  }
  check_windows_of(&hr__lapack_provider, op, HR_DTYPE_F64);
}

HR_TEST(lapack_convolves) {
  check_lapack_windows(HR_OP_CONV);
}
HR_TEST(lapack_gives_the_gradient_of_data) {
  check_lapack_windows(HR_OP_CONV_BACKWARD_DATA);
}
HR_TEST(lapack_gives_the_gradient_of_weights) {
  check_lapack_windows(HR_OP_CONV_BACKWARD_WEIGHT);
}

HR_TEST(onednn_convolves_one_image_for_all) {
  cases_begin(&hr__onednn_provider);
  for (int i = 0; i < WINDOWS; ++i) {
    op_case forward =
        window_case(HR_OP_CONV, &windows[i], HR_DTYPE_F32, IMAGE_BROADCAST, IMAGE_DENSE, IMAGE_DENSE, true);
    op_case weight = window_case(HR_OP_CONV_BACKWARD_WEIGHT, &windows[i], HR_DTYPE_F32, IMAGE_DENSE, IMAGE_DENSE,
                                 IMAGE_BROADCAST, false);
    op_case_must_pass(&forward);
    op_case_must_pass(&weight);
  }
}

/* Windows of one element on unpacked matrices, with weights that the program changes. */
HR_TEST(onednn_multiplies_pixels) {
  static const window pixels[] = {
      {1, 2, 33, 20, 1, {17}, {1}, {1}, {0}, {1}},
      {2, 2, 50, 64, 1, {6, 5}, {1, 1}, {1, 1}, {0, 0}, {1, 1}},
      {2, 1, 1, 7, 1, {4, 5}, {1, 1}, {1, 1}, {0, 0}, {3, 2}},
      {2, 3, 16, 1, 1, {1, 1}, {1, 1}, {1, 1}, {0, 0}, {1, 1}},
      {2, 1, 5, 6, 1, {40, 40}, {1, 1}, {1, 1}, {0, 0}, {1, 1}},
      {2, 2, 16, 16, 1, {8, 7}, {1, 1}, {2, 2}, {0, 0}, {1, 1}},
      {2, 2, 300, 40, 1, {20, 21}, {1, 1}, {3, 2}, {0, 0}, {1, 1}},
      {1, 2, 9, 12, 1, {7}, {1}, {4}, {0}, {1}},
      {3, 2, 9, 1, 1, {5, 3, 4}, {1, 1, 1}, {1, 2, 3}, {0, 0, 0}, {1, 1, 1}},
      {2, 2, 16, 16, 1, {4, 4}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
      {2, 2, 16, 32, 2, {4, 4}, {1, 1}, {1, 1}, {0, 0}, {1, 1}},
      {3, 2, 9, 20, 1, {2, 3, 4}, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}, {1, 1, 1}},
  };
  cases_begin(&hr__onednn_provider);
  for (size_t i = 0; i < sizeof pixels / sizeof *pixels; ++i) {
    for (int op = HR_OP_CONV; op <= HR_OP_CONV_BACKWARD_WEIGHT; ++op) {
      for (int turn = 0; turn < 4; ++turn) {
        bool has_bias = turn % 2 != 0 && op != HR_OP_CONV_BACKWARD_WEIGHT;
        image_layout x = turn < 2 ? IMAGE_CHANNELS_LAST : IMAGE_CHANNELS_LAST_SLICED;
        op_case t = window_case((hr_op)op, &pixels[i], HR_DTYPE_F32, x, IMAGE_DENSE, IMAGE_CHANNELS_LAST, has_bias);
        t.writes_weights = op != HR_OP_CONV_BACKWARD_WEIGHT;
        op_case_must_pass(&t);
      }
    }
  }
}

/* ---- convolutions whose lanes are images ---- */

#define LANES_WINDOW(batch, in, out, h, w, kh, kw, ph, pw)      \
  {                                                             \
    2, batch, in, out, 1, {h, w}, {kh, kw}, {1, 1}, {ph, pw}, { \
      1, 1                                                      \
    }                                                           \
  }

static const window lane_windows[] = {
    LANES_WINDOW(64, 20, 50, 4, 3, 5, 5, 2, 2),  LANES_WINDOW(80, 1, 20, 9, 8, 5, 5, 2, 2),
    LANES_WINDOW(16, 3, 17, 6, 7, 3, 3, 0, 1),   LANES_WINDOW(48, 17, 3, 5, 9, 1, 1, 0, 0),
    LANES_WINDOW(16, 50, 100, 2, 3, 5, 5, 2, 2), LANES_WINDOW(1, 1, 1, 1, 1, 1, 1, 0, 0),
    LANES_WINDOW(65, 4, 1, 5, 4, 3, 2, 1, 0),    LANES_WINDOW(130, 2, 6, 4, 5, 2, 3, 1, 2),
    LANES_WINDOW(20, 7, 11, 9, 8, 7, 7, 6, 3),   LANES_WINDOW(64, 5, 4, 8, 3, 7, 1, 0, 0),
    LANES_WINDOW(17, 3, 5, 2, 19, 1, 7, 0, 5),   LANES_WINDOW(63, 6, 13, 2, 2, 3, 3, 4, 3),
    LANES_WINDOW(512, 3, 20, 3, 3, 3, 3, 1, 1),  LANES_WINDOW(70, 20, 23, 12, 13, 5, 5, 2, 2),
    LANES_WINDOW(33, 9, 40, 15, 14, 5, 5, 0, 4), LANES_WINDOW(8, 30, 11, 13, 15, 5, 5, 1, 0),
};

/* Also small ones, which the provider normally rejects because they don't pay. */
static void check_lanes(hr_op op) {
  cases_begin(&hr__batch_lanes_provider);
  for (size_t i = 0; i < sizeof lane_windows / sizeof *lane_windows; ++i) {
    for (int turn = 0; turn < IMAGE_LAYOUTS; ++turn) {
      if (!hr_test_takes((int64_t)i + turn)) {
        continue;
      }
      image_layout x = (image_layout)turn, y = (image_layout)random_below(IMAGE_LAYOUTS);
      op_case t = window_case(op, &lane_windows[i], HR_DTYPE_F32, turn % 2 == 0 ? x : y,
                              (image_layout)random_below(IMAGE_LAYOUTS), turn % 2 == 0 ? y : x, random_below(2) == 0);
      t.provider = &hr__batch_lanes_provider;
      op_case_node(&t);
      op_case_check_node(&t);
    }
  }
}

HR_TEST(lanes_convolves) {
  check_lanes(HR_OP_CONV);
}

HR_TEST(lanes_gives_the_gradient_of_data) {
  check_lanes(HR_OP_CONV_BACKWARD_DATA);
}

/* The result, with this layout and number of threads; `infinite`: of an infinite weight and a NaN. */
static float *lane_bits(hr_op op, const window *q, image_layout layout, int threads, bool infinite) {
  hr_thread_count_set(threads);
  op_case t = window_case(op, q, HR_DTYPE_F32, layout, IMAGE_DENSE, layout, true);
  t.provider = &hr__batch_lanes_provider;
  random_state = 11;
  op_case_begin(&t);
  conv_operands at = conv_operands_of(&t);
  if (infinite) { /* the first row and column of the first kernel, which are outside of the image at the border */
    tensor *w = &t.tensors[at.w], *x = &t.tensors[0];
    write_element(w, tensor_at(w, 0), INFINITY);
    write_element(x, tensor_at(x, tensor_count(x) - 1), NAN);
  }
  float *bits = op_case_run_once(&t);
  hr_thread_count_set(0);
  return bits;
}

static void check_lane_bits(const window *q) {
  for (hr_op op = HR_OP_CONV; op <= HR_OP_CONV_BACKWARD_DATA; ++op) {
    op_case t = window_case(op, q, HR_DTYPE_F32, IMAGE_DENSE, IMAGE_DENSE, IMAGE_DENSE, true);
    size_t bytes = (size_t)tensor_count(&t.tensors[t.input_count]) * sizeof(float);
    float *one = lane_bits(op, q, IMAGE_CHANNELS_LAST, 1, false);
    for (int threads = 1; threads <= 7; threads += 2) {
      for (int layout = 0; layout < IMAGE_LAYOUTS; ++layout) {
        if (!hr_test_takes(threads / 2 + layout)) {
          continue;
        }
        float *other = lane_bits(op, q, (image_layout)layout, threads, false);
        HR_ASSERT(memcmp(one, other, bytes) == 0);
        free(other);
      }
    }
    free(one);
  }
}

HR_TEST(lanes_gives_the_same_bits_with_any_threads_and_layout) {
  cases_begin(&hr__batch_lanes_provider);
  const window direct = LANES_WINDOW(150, 20, 23, 6, 5, 5, 3, 2, 1),
               tiles = LANES_WINDOW(70, 20, 23, 12, 13, 5, 5, 2, 2);
  check_lane_bits(&direct);
  check_lane_bits(&tiles);
}

/* An infinite weight affects only its products, NaN only the windows that contain it. */
static void check_lane_borders(const window *q) {
  float *y = lane_bits(HR_OP_CONV, q, IMAGE_CHANNELS_LAST, 2, true);
  int64_t height = q->dims[0], width = q->dims[1], reach = q->padding[0];
  for (int64_t i = 0; i < q->batch * q->out * height * width; ++i) {
    int64_t column = i % width, row = i / width % height, channel = i / width / height % q->out;
    bool is_last = i / width / height / q->out == q->batch - 1;
    bool sees_nan = is_last && row >= height - 1 - reach && column >= width - 1 - reach;
    bool is_infinite = channel == 0 && row >= reach && column >= reach;
    HR_ASSERT_EQ(isnan(y[i]) != 0, sees_nan);
    HR_ASSERT(sees_nan || (isinf(y[i]) != 0) == is_infinite);
  }
  free(y);
}

HR_TEST(batch_lanes_skips_elements_outside_of_the_image) {
  cases_begin(&hr__batch_lanes_provider);
  const window direct = LANES_WINDOW(70, 2, 3, 4, 5, 3, 3, 1, 1), tiles = LANES_WINDOW(70, 8, 16, 14, 13, 5, 5, 2, 2);
  check_lane_borders(&direct);
  check_lane_borders(&tiles);
}

HR_TEST(lanes_takes_channels_that_fill_no_vectors) {
  cases_begin(&hr__batch_lanes_provider);
  static const window taken[] = {LANES_WINDOW(512, 20, 50, 14, 14, 5, 5, 2, 2),
                                 LANES_WINDOW(512, 50, 100, 7, 7, 5, 5, 2, 2),
                                 {2, 512, 50, 100, 1, {7, 7}, {5, 5}, {1, 1}, {2, 2}, {1, 1}, {1, 1}},
                                 LANES_WINDOW(64, 20, 20, 14, 14, 3, 3, 1, 1)};
  static const window left[] = {LANES_WINDOW(64, 64, 64, 56, 56, 3, 3, 1, 1),
                                LANES_WINDOW(64, 128, 128, 28, 28, 3, 3, 1, 1),
                                LANES_WINDOW(16, 20, 50, 14, 14, 5, 5, 2, 2),
                                LANES_WINDOW(512, 3, 32, 28, 28, 3, 3, 1, 1),
                                LANES_WINDOW(64, 20, 50, 14, 14, 1, 1, 0, 0),
                                {2, 64, 20, 20, 1, {14, 14}, {3, 3}, {2, 2}, {1, 1}, {1, 1}},
                                {2, 64, 20, 20, 1, {14, 14}, {3, 3}, {1, 1}, {1, 1}, {1, 2}},
                                {2, 64, 40, 40, 2, {14, 14}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
                                {1, 64, 20, 20, 1, {14}, {3}, {1}, {1}, {1}}};
  for (hr_op op = HR_OP_CONV; op <= HR_OP_CONV_BACKWARD_WEIGHT; ++op) { /* the 3 to 32 channels pay backwards */
    for (size_t i = 0; i < sizeof taken / sizeof *taken + sizeof left / sizeof *left; ++i) {
      bool is_taken = i < sizeof taken / sizeof *taken && op != HR_OP_CONV_BACKWARD_WEIGHT;
      const window *q = i < sizeof taken / sizeof *taken ? &taken[i] : &left[i - sizeof taken / sizeof *taken];
      op_case t = window_case(op, q, HR_DTYPE_F32, IMAGE_CHANNELS_LAST, IMAGE_DENSE, IMAGE_CHANNELS_LAST, false);
      t.provider = &hr__batch_lanes_provider;
      bool may_be = op == HR_OP_CONV_BACKWARD_DATA && q->in == 3;
      HR_ASSERT(may_be || op_case_is_taken(&t) == is_taken);
    }
  }
  op_case t = window_case(HR_OP_CONV, &taken[3], HR_DTYPE_BF16, IMAGE_DENSE, IMAGE_DENSE, IMAGE_DENSE, false);
  t.provider = &hr__batch_lanes_provider;
  HR_ASSERT(!op_case_is_taken(&t));
}

/* Weights have the same stamp exactly while they have the same bytes; 0: unknown. Other cases have other stamps. */
static void check_stamps(op_case t) {
  static const uint64_t weight_stamps[] = {1, 1, 1, 1, 2, 2, 2, 0, 1, 1, 3, 4};
  static uint64_t base;
  base += 10;
  op_case_node(&t);
  HR_ASSERT(op_case_is_supported(&t));
  op_case_prepare(&t);
  uint64_t start = random_state;
  for (size_t run = 0; run < sizeof weight_stamps / sizeof *weight_stamps; ++run) {
    uint64_t stamp = weight_stamps[run];
    uint64_t stamps[OPERANDS] = {100 + run, stamp != 0 ? base + stamp : 0, 200 + run, 300 + run};
    op_case_allocate(&t);
    random_state = start + (stamp != 0 ? stamp : 1000);
    tensor_fill_input(&t.tensors[1]);
    random_state += 77 * run;
    t.provider->stamp(t.prepared, stamps);
    op_case_run(&t);
    check_result(&t);
    op_case_free(&t);
  }
  op_case_end(&t);
}

HR_TEST(onednn_follows_weights_that_change) {
  cases_begin(&hr__onednn_provider);
  const window q = {2, 2, 20, 50, 1, {7, 6}, {3, 2}, {1, 1}, {1, 0}, {1, 1}};
  for (hr_op op = HR_OP_CONV; op <= HR_OP_CONV_BACKWARD_DATA; ++op) {
    check_stamps(window_case(op, &q, HR_DTYPE_F32, IMAGE_DENSE, IMAGE_DENSE, IMAGE_DENSE, true));
  }
  const product p = {1, {3}, 18, 75, 81}, wide = {0, {0}, 5, 1030, 1030};
  check_stamps(product_case(&hr__onednn_provider, &p, HR_DTYPE_F32, MATRIX_DENSE, MATRIX_BROADCAST_BATCH, MATRIX_DENSE,
                            BIAS_VECTOR));
  check_stamps(product_case(&hr__onednn_provider, &wide, HR_DTYPE_F32, MATRIX_STEPS, MATRIX_TRANSPOSED, MATRIX_STEPS,
                            BIAS_VECTOR));
  check_stamps(
      product_case(&hr__onednn_provider, &wide, HR_DTYPE_F32, MATRIX_DENSE, MATRIX_DENSE, MATRIX_DENSE, BIAS_ABSENT));
  hr__cached_weights_forget_all();
}

/* Runs a product of these dims once for each stamp, always of the same numbers: every run gives the same bits. */
static void run_product(const hr_provider *provider, const product *q, int count, const uint64_t *stamps,
                        size_t kept_bytes_after) {
  op_case t = product_case(provider, q, HR_DTYPE_F32, MATRIX_DENSE, MATRIX_TRANSPOSED, MATRIX_DENSE, BIAS_ABSENT);
  op_case_node(&t);
  HR_ASSERT(op_case_is_supported(&t));
  op_case_prepare(&t);
  HR_ASSERT_EQ(t.provider->keeps(t.prepared), 1);
  unsigned char *first = NULL;
  for (int run = 0; run < count; ++run) {
    uint64_t all[OPERANDS] = {0, stamps[run], 0, 0};
    op_case_allocate(&t);
    random_state = 99;
    tensor_fill_input(&t.tensors[1]);
    random_state = 5;
    tensor_fill_input(&t.tensors[0]);
    t.provider->stamp(t.prepared, all);
    op_case_run(&t);
    check_result(&t);
    tensor *out = op_case_output(&t);
    size_t bytes = (size_t)out->length * hr_dtype_size(out->dtype);
    first = first != NULL ? first : memcpy(malloc(bytes), out->bytes, bytes);
    HR_ASSERT(memcmp(first, out->bytes, bytes) == 0);
    op_case_free(&t);
  }
  free(first);
  HR_ASSERT_EQ((size_t)hr__cached_weights_bytes() / 1000, kept_bytes_after / 1000);
  op_case_end(&t);
}

/* Of these heights: with more threads oneDNN divides some among them in another layout. */
HR_TEST(onednn_keeps_one_packed_weight_for_products_of_all_heights) {
  cases_begin(&hr__onednn_provider);
  hr_thread_count_set(2);
  hr__cached_weights_forget_all();
  const product q[3] = {{0, {0}, 3, 256, 512}, {0, {0}, 40, 256, 512}, {0, {0}, 200, 256, 512}};
  const uint64_t first[] = {900001, 900001, 900001}, changing[] = {900002, 900003, 900004, 0, 0, 0};
  run_product(&hr__onednn_provider, &q[0], 6, changing, 0);
  run_product(&hr__onednn_provider, &q[0], 1, first, 0);
  run_product(&hr__onednn_provider, &q[0], 3, first, 256 * 512 * 4);
  run_product(&hr__onednn_provider, &q[1], 3, first, 256 * 512 * 4);
  run_product(&hr__onednn_provider, &q[2], 3, first, 256 * 512 * 4);
  hr__cached_weights_forget(hr__context(), 900001);
  HR_ASSERT_EQ(hr__cached_weights_bytes(), 0);
  hr_thread_count_set(0);
}

static int executed;
static int (*execute)(dnnl_primitive, dnnl_stream, int, const dnnl_exec_arg *);

static int count_executions(dnnl_primitive primitive, dnnl_stream s, int arg_count, const dnnl_exec_arg *args) {
  ++executed;
  return execute(primitive, s, arg_count, args);
}

/* A product runs twice when its packed weight is new or found: products of the same dims prove the bits twice. */
HR_TEST(onednn_compares_packed_weights_for_two_products_of_the_same_dims) {
  cases_begin(&hr__onednn_provider);
  hr__cached_weights_forget_all();
  hr__dnnl_table *table = &hr__dnnl_opened()->table;
  execute = table->primitive_execute;
  table->primitive_execute = count_executions;
  const product q = {0, {0}, 41, 256, 512};
  int counts[4];
  for (int i = 0; i < 4; ++i) {
    const uint64_t stamp[] = {920001 + (uint64_t)i, 920001 + (uint64_t)i, 920001 + (uint64_t)i};
    executed = 0;
    run_product(&hr__onednn_provider, &q, 3, stamp, (size_t)(i + 1) * 256 * 512 * 4);
    counts[i] = executed;
  }
  table->primitive_execute = execute;
  HR_ASSERT(counts[0] == counts[1] && counts[2] == counts[3]);
  HR_ASSERT_EQ(counts[1] - counts[2], 1);
  hr__cached_weights_forget_all();
}

/* A weight that another product cached is compared in a second run: dims that occur once run their product once. */
HR_TEST(onednn_compares_a_cached_weight_in_the_second_run_of_a_product) {
  cases_begin(&hr__onednn_provider);
  hr__cached_weights_forget_all();
  hr__dnnl_table *table = &hr__dnnl_opened()->table;
  execute = table->primitive_execute;
  table->primitive_execute = count_executions;
  const product first = {0, {0}, 43, 256, 512}, second = {0, {0}, 53, 256, 512};
  const uint64_t stamps[] = {930001, 930001, 930001};
  size_t bytes = (size_t)256 * 512 * 4;
  int counts[3];
  run_product(&hr__onednn_provider, &first, 3, stamps, bytes);
  for (int runs = 1; runs <= 3; ++runs) {
    executed = 0;
    run_product(&hr__onednn_provider, &second, runs, stamps, bytes);
    counts[runs - 1] = executed;
  }
  table->primitive_execute = execute;
  HR_ASSERT_EQ(counts[0], 1);
  HR_ASSERT_EQ(counts[1], 3);
  hr__cached_weights_forget_all();
}

HR_TEST(sgemm_keeps_one_weight_for_products_of_all_heights) {
  cases_begin(&hr__sgemm_provider);
  hr__cached_weights_forget_all();
  const product q[4] = {
      {0, {0}, 16, 256, 512}, {0, {0}, 40, 256, 512}, {0, {0}, 200, 256, 512}, {0, {0}, 33, 1000, 80}};
  const uint64_t first[] = {910001, 910001, 910001}, changing[] = {910002, 910003, 910004, 0, 0, 0};
  run_product(&hr__sgemm_provider, &q[0], 6, changing, 0);
  run_product(&hr__sgemm_provider, &q[0], 1, first, 0);
  run_product(&hr__sgemm_provider, &q[0], 3, first, 256 * 512 * 4);
  run_product(&hr__sgemm_provider, &q[1], 3, first, 256 * 512 * 4);
  run_product(&hr__sgemm_provider, &q[2], 3, first, 256 * 512 * 4);
  hr__cached_weights_forget(hr__context(), 910001);
  run_product(&hr__sgemm_provider, &q[3], 3, first, 1000 * 80 * 4);
  hr__cached_weights_forget(hr__context(), 910001);
  HR_ASSERT_EQ(hr__cached_weights_bytes(), 0);
}

/* The first two runs read the stored weight, others may read a cached one: all have the same bits. */
static void check_cached_weight(const product *q, matrix_layout a, matrix_layout b, bias_layout bias) {
  static uint64_t weight = 940000;
  const uint64_t stamps[OPERANDS] = {0, ++weight, 0, 0};
  op_case t = product_case(&hr__sgemm_provider, q, HR_DTYPE_F32, a, b, MATRIX_ROOM, bias);
  tensor *out = op_case_output(&t);
  op_case_node(&t);
  HR_ASSERT(op_case_is_supported(&t));
  op_case_prepare(&t);
  op_case_allocate(&t);
  size_t bytes = (size_t)out->length * sizeof(float);
  unsigned char *first = malloc(bytes);
  for (int run = 0; run < 5; ++run) {
    hr_thread_count_set(1 + run % 3);
    t.provider->stamp(t.prepared, stamps);
    op_case_run(&t);
    check_canaries(&t, out);
    if (run == 0) {
      memcpy(first, out->bytes, bytes);
      check_result(&t);
    }
    HR_ASSERT_BYTES_EQ(out->bytes, first, bytes);
  }
  bool is_cached = t.provider->keeps(t.prepared) == 1;
  HR_ASSERT_EQ(hr__cached_weights_bytes() > 0, is_cached);
  hr__cached_weights_forget(hr__context(), weight);
  hr_thread_count_set(0);
  free(first);
  op_case_free(&t);
  op_case_end(&t);
}

/* Ends of panels, vectors and strips, sums of one to eleven parts, and rows whose distance is a power of two, for which
 * sgemm cuts sums in another way. */
HR_TEST(sgemm_gives_the_same_bits_with_cached_weights) {
  static const product all[] = {{0, {0}, 16, 128, 1040}, {0, {0}, 17, 300, 565},  {0, {0}, 50, 384, 350},
                                {0, {0}, 33, 770, 181},  {0, {0}, 130, 768, 200}, {0, {0}, 19, 1152, 129},
                                {0, {0}, 64, 1024, 256}, {0, {0}, 23, 2048, 67},  {0, {0}, 18, 4000, 49},
                                {0, {0}, 400, 1024, 48}, {0, {0}, 16, 200, 16},   {0, {0}, 40, 1024, 10}};
  cases_begin(&hr__sgemm_provider);
  hr__cached_weights_forget_all();
  for (size_t i = 0; i < sizeof all / sizeof *all; ++i) {
    for (int b = MATRIX_DENSE; b <= MATRIX_TRANSPOSED_ROOM; ++b) {
      matrix_layout a = (matrix_layout)random_below(MATRIX_TRANSPOSED_ROOM + 1);
      check_cached_weight(&all[i], a, (matrix_layout)b, (i + (size_t)b) % 3 == 0 ? BIAS_ABSENT : BIAS_VECTOR);
    }
  }
  for (int64_t i = 0; i < hr_test_count(40); ++i) {
    const product q = {0, {0}, 16 + random_below(90), 1 + random_below(i % 8 == 0 ? 4000 : 800), 2 + random_below(400)};
    check_cached_weight(&q, (matrix_layout)random_below(MATRIX_TRANSPOSED_ROOM + 1),
                        (matrix_layout)random_below(MATRIX_TRANSPOSED_ROOM + 1), BIAS_VECTOR);
  }
}

/* Nothing is timed beside packed panels: another library would pack the weight once more. */
HR_TEST(sgemm_settles_products_with_packed_weights) {
  cases_begin(&hr__sgemm_provider);
  const product q = {0, {0}, 32, 256, 600};
  op_case t =
      product_case(&hr__sgemm_provider, &q, HR_DTYPE_F32, MATRIX_DENSE, MATRIX_DENSE, MATRIX_DENSE, BIAS_ABSENT);
  op_case_node(&t);
  op_case_prepare(&t);
  HR_ASSERT_EQ(t.provider->is_settled(t.prepared), hr_cpu_has(HR_CPU_AVX512F));
  op_case_end(&t);
}

static bool supports_product(const product *q, bool writes) {
  op_case t = product_case(&hr__sgemm_provider, q, HR_DTYPE_F32, MATRIX_DENSE, MATRIX_DENSE, MATRIX_DENSE, BIAS_ABSENT);
  t.writes_weights = writes;
  op_case_node(&t);
  bool is = op_case_is_supported(&t);
  hr_program_fini(&t.program);
  return is;
}

/* A primitive packs other weights once. */
HR_TEST(sgemm_takes_large_products_but_those_of_weights_that_it_does_not_pack) {
  cases_begin(&hr__sgemm_provider);
  const product few = {0, {0}, 128, 768, 50257}, many = {0, {0}, 500, 768, 1000};
  HR_ASSERT(supports_product(&few, true) && supports_product(&many, true));
  HR_ASSERT_EQ(supports_product(&few, false), hr_cpu_has(HR_CPU_AVX512F));
  HR_ASSERT(!supports_product(&many, false));
}

/* Right factors that nothing keeps: parts of the depth, ends of panels and vectors, strips, more and fewer requests
 * than additions. Loops of our own multiply those with dense columns. */
HR_TEST(sgemm_multiplies_right_factors_that_the_program_writes) {
  static const product all[] = {{0, {0}, 50, 400, 350},   {0, {0}, 16, 129, 1100}, {0, {0}, 133, 1000, 200},
                                {0, {0}, 384, 130, 1090}, {0, {0}, 17, 1153, 177}, {0, {0}, 385, 130, 1090}};
  cases_begin(&hr__sgemm_provider);
  for (size_t i = 0; i < sizeof all / sizeof *all; ++i) {
    for (int a = MATRIX_DENSE; a <= MATRIX_TRANSPOSED; ++a) {
      for (int b = MATRIX_DENSE; b <= MATRIX_TRANSPOSED_ROOM; ++b) {
        op_case t = product_case(&hr__sgemm_provider, &all[i], HR_DTYPE_F32, (matrix_layout)a, (matrix_layout)b,
                                 MATRIX_ROOM, (a + b) % 3 == 0 ? BIAS_ABSENT : BIAS_VECTOR);
        t.writes_weights = true;
        op_case_must_pass(&t);
      }
    }
    op_case t = product_case(&hr__sgemm_provider, &all[i], HR_DTYPE_F32, MATRIX_DENSE, MATRIX_TRANSPOSED, MATRIX_DENSE,
                             BIAS_ABSENT);
    t.writes_weights = true;
    op_case_node(&t);
    op_case_prepare(&t);
    HR_ASSERT_EQ(t.provider->is_settled(t.prepared), hr_cpu_has(HR_CPU_AVX512F) && all[i].rows <= 384);
    op_case_end(&t);
  }
}

HR_TEST(onednn_keeps_nothing_of_what_the_program_writes) {
  cases_begin(&hr__onednn_provider);
  const product q = {0, {0}, 3, 256, 512};
  op_case t =
      product_case(&hr__onednn_provider, &q, HR_DTYPE_F32, MATRIX_DENSE, MATRIX_TRANSPOSED, MATRIX_DENSE, BIAS_ABSENT);
  t.writes_weights = true;
  op_case_node(&t);
  op_case_prepare(&t);
  HR_ASSERT_EQ(t.provider->keeps(t.prepared), -1);
  op_case_end(&t);
}

/* ---- new numbers ---- */

/* Prepares one product, gives it the numbers of the other, and expects the bits of a call that is prepared for it. */
static void check_renumbered(const hr_provider *provider, const product *from, const product *to, matrix_layout b,
                             bias_layout bias) {
  op_case before = product_case(provider, from, HR_DTYPE_F32, MATRIX_DENSE, b, MATRIX_DENSE, bias);
  op_case t = product_case(provider, to, HR_DTYPE_F32, MATRIX_DENSE, b, MATRIX_DENSE, bias);
  op_case_node(&before);
  op_case_prepare(&before);
  op_case_node(&t);
  HR_ASSERT(provider->renumber(before.prepared, &t.program, &t.program.nodes[0], &t.workspace_bytes));
  hr_program_fini(&before.program);
  size_t workspace_bytes = t.workspace_bytes;
  op_case_prepare(&t);
  HR_ASSERT_EQ(t.workspace_bytes, workspace_bytes);
  tensor *out = op_case_output(&t);
  size_t bytes = (size_t)out->length * sizeof(float);
  op_case_allocate(&t);
  op_case_run(&t);
  unsigned char *prepared = memcpy(malloc(bytes), out->bytes, bytes);
  provider->release(t.prepared);
  t.prepared = before.prepared;
  memset(out->bytes, CANARY, bytes);
  op_case_run(&t);
  check_result(&t);
  HR_ASSERT_BYTES_EQ(out->bytes, prepared, bytes);
  free(prepared);
  op_case_free(&t);
  op_case_end(&t);
}

static void check_renumbering(const hr_provider *provider, int count, const product *q) {
  for (int i = 0; i < count * count; ++i) {
    for (int b = MATRIX_DENSE; b <= MATRIX_TRANSPOSED_ROOM; ++b) {
      check_renumbered(provider, &q[i / count], &q[i % count], (matrix_layout)b, BIAS_VECTOR);
      check_renumbered(provider, &q[i / count], &q[i % count], (matrix_layout)b, BIAS_ABSENT);
    }
  }
}

HR_TEST(rows_gets_new_numbers_in_place) {
  static const product q[] = {{0, {0}, 1, 70, 530}, {0, {0}, 1, 3, 5}, {1, {3}, 1, 333, 70}, {0, {0}, 1, 50001, 5}};
  cases_begin(&hr__gemv_provider);
  check_renumbering(&hr__gemv_provider, 4, q);
}

HR_TEST(sgemm_gets_new_numbers_in_place) {
  static const product q[] = {{0, {0}, 2, 3, 5}, {0, {0}, 40, 256, 128}, {0, {0}, 130, 33, 70}, {0, {0}, 5, 300, 2}};
  cases_begin(&hr__sgemm_provider);
  check_renumbering(&hr__sgemm_provider, 4, q);
}

HR_TEST(batched_products_gets_new_numbers_in_place) {
  static const product q[] = {
      {1, {2}, 4, 3, 5}, {2, {3, 2}, 40, 33, 70}, {1, {5}, 130, 70, 16}, {2, {1, 2}, 60, 2, 200}};
  cases_begin(&hr__batched_products_provider);
  check_renumbering(&hr__batched_products_provider, 4, q);
}

HR_TEST(calls_refuse_numbers_of_products_that_others_run) {
  static const product row = {0, {0}, 1, 70, 530}, rows = {0, {0}, 2, 70, 530};
  cases_begin(&hr__gemv_provider);
  op_case before =
      product_case(&hr__gemv_provider, &row, HR_DTYPE_F32, MATRIX_DENSE, MATRIX_DENSE, MATRIX_DENSE, BIAS_ABSENT);
  op_case t =
      product_case(&hr__gemv_provider, &rows, HR_DTYPE_F32, MATRIX_DENSE, MATRIX_DENSE, MATRIX_DENSE, BIAS_ABSENT);
  op_case_node(&before);
  op_case_prepare(&before);
  op_case_node(&t);
  HR_ASSERT(!hr__gemv_provider.renumber(before.prepared, &t.program, &t.program.nodes[0], &t.workspace_bytes));
  hr_program_fini(&t.program);
  op_case_end(&before);
}

/* ---- threads and memory ---- */

HR_TEST(onednn_prepares_for_any_number_of_threads) {
  cases_begin(&hr__onednn_provider);
  const product q = {1, {3}, 70, 65, 81};
  const window conv = {2, 4, 20, 50, 1, {14, 14}, {3, 3}, {1, 1}, {1, 1}, {1, 1}};
  for (int threads = 1; threads <= 2; ++threads) {
    hr_thread_count_set(threads);
    op_case t = product_case(&hr__onednn_provider, &q, HR_DTYPE_F32, MATRIX_DENSE, MATRIX_TRANSPOSED, MATRIX_DENSE,
                             BIAS_VECTOR);
    op_case_must_pass(&t);
    for (int op = HR_OP_CONV; op <= HR_OP_CONV_BACKWARD_WEIGHT; ++op) {
      t = window_case((hr_op)op, &conv, HR_DTYPE_F32, IMAGE_DENSE, IMAGE_DENSE, IMAGE_CHANNELS_LAST, false);
      op_case_must_pass(&t);
    }
  }
  hr_thread_count_set(0);
}

HR_TEST(onednn_leaves_the_callers_thread_count_alone) {
  cases_begin(&hr__onednn_provider);
  const product q = {0, {0}, 4, 4, 4};
  op_case t =
      product_case(&hr__onednn_provider, &q, HR_DTYPE_F32, MATRIX_DENSE, MATRIX_DENSE, MATRIX_DENSE, BIAS_ABSENT);
  int before = hr_library_threads_set(3);
  op_case_must_pass(&t);
  int after = hr_library_threads_set(before);
  HR_ASSERT(after == 3 || after == before); /* `before` in builds without OpenMP, which have none to set */
}

static void check_memory(op_case t) {
  HR_ASSERT(op_case_is_taken(&t));
  op_case_check_memory(&t);
}

static const product small = {0, {0}, 1, 6, 8};

HR_TEST(rows_reports_memory_that_is_out) {
  cases_begin(&hr__gemv_provider);
  check_memory(
      product_case(&hr__gemv_provider, &small, HR_DTYPE_F32, MATRIX_DENSE, MATRIX_DENSE, MATRIX_DENSE, BIAS_VECTOR));
}

HR_TEST(lanes_reports_memory_that_is_out) {
  static const window q = LANES_WINDOW(64, 20, 20, 14, 14, 3, 3, 1, 1);
  cases_begin(&hr__batch_lanes_provider);
  op_case t = window_case(HR_OP_CONV, &q, HR_DTYPE_F32, IMAGE_CHANNELS_LAST, IMAGE_DENSE, IMAGE_DENSE, true);
  t.provider = &hr__batch_lanes_provider;
  check_memory(t);
}

HR_TEST(onednn_reports_memory_that_is_out) {
  cases_begin(&hr__onednn_provider);
  check_memory(
      product_case(&hr__onednn_provider, &small, HR_DTYPE_F32, MATRIX_STEPS, MATRIX_DENSE, MATRIX_STEPS, BIAS_VECTOR));
  check_memory(
      window_case(HR_OP_CONV_BACKWARD_DATA, &windows[5], HR_DTYPE_F32, IMAGE_SLICED, IMAGE_SLICED, IMAGE_SLICED, true));
}
