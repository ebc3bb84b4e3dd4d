/* Products and convolutions of integers against plain loops (provider_cases.h): every layout, size of elements and
 * window. */
#include "base/thread.h"
#include "provider_cases.h"

static const hr_dtype dtypes[] = {HR_DTYPE_I64, HR_DTYPE_I32, HR_DTYPE_I16, HR_DTYPE_U8};
enum { DTYPES = sizeof dtypes / sizeof *dtypes };

static void multiply(const product *size, int a, int b) {
  op_case t =
      product_case(&hr__integers_provider, size, dtypes[random_below(DTYPES)], (matrix_layout)a, (matrix_layout)b,
                   (matrix_layout)random_below(MATRIX_OUTPUTS), (bias_layout)random_below(BIAS_LAYOUTS));
  op_case_must_pass(&t);
}

HR_TEST(integers_multiply_matrices_in_every_layout) {
  static const product small[] = {{0, {0}, 17, 33, 20}, {1, {3}, 9, 10, 40}, {2, {2, 3}, 30, 5, 31}};
  cases_begin(&hr__integers_provider);
  for (int i = 0; i < MATRIX_LAYOUTS * MATRIX_LAYOUTS; ++i) {
    multiply(&small[i % 3], i / MATRIX_LAYOUTS, i % MATRIX_LAYOUTS);
  }
}

HR_TEST(integers_multiply_matrices_of_several_blocks) {
  static const product large[] = {
      {0, {0}, 150, 130, 210}, {0, {0}, 210, 3, 230}, {2, {1, 5}, 12, 300, 9}, {0, {0}, 30, 17, 400}};
  cases_begin(&hr__integers_provider);
  for (int i = 0; i < 12; ++i) {
    multiply(&large[i % 4], random_below(MATRIX_LAYOUTS), random_below(MATRIX_LAYOUTS));
  }
}

HR_TEST(integers_broadcast_dims_of_one) {
  cases_begin(&hr__integers_provider);
  for (int one = 0; one < 2; ++one) {
    const product q = {2, {2, 3}, 20, 35, 20};
    op_case t = product_case(&hr__integers_provider, &q, HR_DTYPE_I64, MATRIX_DENSE, MATRIX_TRANSPOSED, MATRIX_DENSE,
                             BIAS_VECTOR);
    t.tensors[one].dims[1] = 1;
    t.tensors[one].strides[1] = 1000; /* must not matter */
    op_case_must_pass(&t);
  }
}

static op_case integer_window(hr_op op, const window *q, hr_dtype dtype, bool has_bias) {
  op_case t =
      window_case(op, q, dtype, (image_layout)random_below(IMAGE_LAYOUTS), (image_layout)random_below(IMAGE_LAYOUTS),
                  (image_layout)random_below(IMAGE_LAYOUTS), has_bias);
  t.provider = &hr__integers_provider;
  return t;
}

HR_TEST(integers_convolve_in_every_layout) {
  static const window larger[] = {{1, 3, 150, 12, 1, {70}, {3}, {1}, {1}, {1}},
                                  {2, 2, 12, 24, 2, {19, 23}, {3, 5}, {2, 3}, {1, 4}, {2, 1}},
                                  {2, 1, 20, 140, 1, {16, 16}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
                                  {3, 2, 8, 8, 1, {6, 7, 9}, {2, 3, 3}, {1, 2, 1}, {1, 0, 1}, {1, 1, 2}}};
  enum { LARGER = sizeof larger / sizeof *larger };
  cases_begin(&hr__integers_provider);
  int taken = 0;
  for (int turn = 0; turn < 4 * (WINDOWS + LARGER); ++turn) {
    int i = turn / 2 % (WINDOWS + LARGER);
    if (!hr_test_takes(turn)) {
      continue;
    }
    op_case t = integer_window(turn % 2 != 0 ? HR_OP_CONV : HR_OP_CONV_BACKWARD_DATA,
                               i < WINDOWS ? &windows[i] : &larger[i - WINDOWS], dtypes[random_below(DTYPES)],
                               random_below(2) != 0);
    bool is_taken = op_case_check(&t);
    HR_ASSERT(is_taken || i < WINDOWS);
    taken += is_taken;
  }
  HR_ASSERT(taken > (HR_TEST_SHARE == 1 ? 30 : 10));
}

HR_TEST(integers_give_the_same_whatever_the_threads) {
  static const product q = {1, {2}, 70, 30, 300};
  cases_begin(&hr__integers_provider);
  for (int threads = 1; threads < 8; threads += 3) {
    hr_thread_count_set(threads);
    op_case t =
        product_case(&hr__integers_provider, &q, HR_DTYPE_I64, MATRIX_DENSE, MATRIX_DENSE, MATRIX_DENSE, BIAS_COLUMN);
    op_case_must_pass(&t);
  }
  hr_thread_count_set(0);
}

HR_TEST(integers_leave_the_rest_to_others) {
  static const product row = {0, {0}, 1, 90, 90}, small = {0, {0}, 8, 8, 8}, empty = {0, {0}, 90, 0, 90};
  static const product large = {0, {0}, 90, 90, 90};
  cases_begin(&hr__integers_provider);
  op_case refused[] = {
      product_case(&hr__integers_provider, &row, HR_DTYPE_I64, MATRIX_DENSE, MATRIX_DENSE, MATRIX_DENSE, BIAS_ABSENT),
      product_case(&hr__integers_provider, &small, HR_DTYPE_I64, MATRIX_DENSE, MATRIX_DENSE, MATRIX_DENSE, BIAS_ABSENT),
      product_case(&hr__integers_provider, &empty, HR_DTYPE_I64, MATRIX_DENSE, MATRIX_DENSE, MATRIX_DENSE, BIAS_ABSENT),
      product_case(&hr__integers_provider, &large, HR_DTYPE_F32, MATRIX_DENSE, MATRIX_DENSE, MATRIX_DENSE, BIAS_ABSENT),
  };
  for (size_t i = 0; i < sizeof refused / sizeof *refused; ++i) {
    HR_ASSERT(!op_case_is_taken(&refused[i]));
  }
}

HR_TEST(integers_clean_up_when_memory_runs_out) {
  static const product q = {0, {0}, 90, 90, 90};
  cases_begin(&hr__integers_provider);
  op_case t =
      product_case(&hr__integers_provider, &q, HR_DTYPE_I64, MATRIX_DENSE, MATRIX_DENSE, MATRIX_DENSE, BIAS_ABSENT);
  op_case_check_memory(&t);
}
