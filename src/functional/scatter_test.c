/* Tuples of indices, modes of updates, bits, blocks, columns, stencils, pools: small results by hand, and types of
 * inferences. The tests in Python have the definitions, gradients and dtypes. */
#include "functional/functional_test.h"

#define TEXT_OF(word)                                     \
  {                                                       \
    .kind = HR_ATTRIBUTE_TEXT, .value = {.text = (word) } \
  }
#define I64(...)      \
  (const int64_t[]) { \
    __VA_ARGS__       \
  }

HR_TEST(tuples_are_read_and_written) {
  hr_tensor x = counted(DIMS(2, 3)), at = tensor_of(HR_DTYPE_I64, DIMS(2, 2), I64(0, 2, 1, -1)),
            v = tensor_of(HR_DTYPE_F32, DIMS(2), F32(10, 20)), rows = tensor_of(HR_DTYPE_I64, DIMS(2, 1), I64(1, 1)),
            far = tensor_of(HR_DTYPE_I64, DIMS(2, 2), I64(0, 3, 1, 0));
  GIVES(apply(HR_FUNCTIONAL_GATHER_ND, ON(&x, &at), PLAIN), 2, 5);
  GIVES(apply(HR_FUNCTIONAL_GATHER_ND, ON(&x, &rows), PLAIN), 3, 4, 5, 3, 4, 5);
  GIVES(apply(HR_FUNCTIONAL_GATHER_ND, ON(&x, &rows), WITH(INT_OF(1))), 1, 4);
  GIVES(apply(HR_FUNCTIONAL_GATHER_ND, ON(&x, &far), WITH(INT_OF(0), TEXT_OF("drop"))), 0, 3);
  GIVES(apply(HR_FUNCTIONAL_SCATTER_ND, ON(&x, &at, &v), PLAIN), 0, 1, 10, 3, 4, 20);
  GIVES(apply(HR_FUNCTIONAL_SCATTER_ND, ON(&x, &at, &v), WITH(INT_OF(0), TEXT_OF("subtract"))), 0, 1, -8, 3, 4, -15);
  GIVES(apply(HR_FUNCTIONAL_SCATTER_ND, ON(&x, &at, &v), WITH(INT_OF(0), TEXT_OF("divide"))), 0, 1, 0.2F, 3, 4, 0.25F);
  GIVES(apply(HR_FUNCTIONAL_SCATTER_ND, ON(&x, &far, &v), WITH(INT_OF(0), TEXT_OF("add"), TEXT_OF("drop"))), 0, 1, 2,
        23, 4, 5);
  expect_failure("expected a last dim of 1 to 1", HR_FUNCTIONAL_GATHER_ND, ON(&x, &at), WITH(INT_OF(1)));
  RELEASE(&x, &at, &v, &rows, &far);
}

HR_TEST(bits_are_counted) {
  hr_tensor x = tensor_of(HR_DTYPE_I8, DIMS(4), (const int8_t[]){0, 1, -1, 100}),
            y = tensor_of(HR_DTYPE_I8, DIMS(4), (const int8_t[]){0, 0, 1, 101});
  GIVES(apply(HR_FUNCTIONAL_POPCOUNT, ON(&x), PLAIN), 0, 1, 8, 3);
  GIVES(apply(HR_FUNCTIONAL_LEADING_ZEROS, ON(&x), PLAIN), 8, 7, 0, 1);
  GIVES(apply(HR_FUNCTIONAL_HAMMING_DISTANCE, ON(&x, &y), PLAIN), 9);
  RELEASE(&x, &y);
}

HR_TEST(blocks_and_columns_are_moved) {
  hr_tensor x = counted(DIMS(1, 1, 2, 4)), deep;
  deep = apply(HR_FUNCTIONAL_SPACE_TO_DEPTH, ON(&x), WITH(INTS_OF(2, 2)));
  expect_type(&deep, HR_DTYPE_F32, DIMS(1, 4, 1, 2));
  EXPECT(&deep, 0, 2, 1, 3, 4, 6, 5, 7);
  GIVES(apply(HR_FUNCTIONAL_DEPTH_TO_SPACE, ON(&deep), WITH(INTS_OF(2, 2))), 0, 1, 2, 3, 4, 5, 6, 7);
  hr_tensor columns = apply(HR_FUNCTIONAL_IM2COL, ON(&x), WITH(INTS_OF(2, 3)));
  EXPECT(&columns, 0, 1, 1, 2, 2, 3, 4, 5, 5, 6, 6, 7);
  GIVES(apply(HR_FUNCTIONAL_COL2IM, ON(&columns), WITH(INTS_OF(2, 4), INTS_OF(2, 3))), 0, 2, 4, 3, 4, 10, 12, 7);
  hr_tensor square = counted(DIMS(2, 2)), weights = tensor_of(HR_DTYPE_F32, DIMS(1, 2), F32(1, 10));
  GIVES(apply(HR_FUNCTIONAL_BAND_PART, ON(&square), WITH(INT_OF(0), INT_OF(-1))), 0, 1, 0, 3);
  GIVES(apply(HR_FUNCTIONAL_STENCIL, ON(&square, &weights), PLAIN), 10, 32);
  RELEASE(&x, &deep, &columns, &square, &weights);
}

HR_TEST(pools_of_any_dims) {
  hr_tensor x = counted(DIMS(2, 2, 1, 2)), y[2];
  const int64_t ones[4] = {1, 1, 1, 1}, none[4] = {0};
  hr_attribute windows[3] = {INTS_OF(2, 1, 1, 2),
                             {.kind = HR_ATTRIBUTE_INTS, .count = 4, .value = {.ints = ones}},
                             {.kind = HR_ATTRIBUTE_INTS, .count = 4, .value = {.ints = none}}};
  GIVES(apply(HR_FUNCTIONAL_MAX_POOL, ON(&x), 3, windows), 5, 7);
  GIVES(apply(HR_FUNCTIONAL_AVG_POOL, ON(&x), 3, windows), 2.5F, 4.5F);
  GIVES(apply(HR_FUNCTIONAL_LP_POOL, ON(&x), 3, windows), sqrtf(42), sqrtf(4 + 9 + 36 + 49));
  apply_all(HR_FUNCTIONAL_MAX_POOL_PLACES, ON(&x), 3, windows, 2, y);
  EXPECT(&y[1], 5, 7);
  GIVES(apply(HR_FUNCTIONAL_MAX_UNPOOL, ON(&y[0], &y[1]), WITH(INTS_OF(2, 2, 1, 2))), 0, 0, 0, 0, 0, 5, 0, 7);
  RELEASE(&x, &y[0], &y[1]);
}

HR_TEST(gradients_of_pools_are_at_their_places) {
  hr_tensor x = counted(DIMS(1, 2, 4)), y[2];
  apply_all(HR_FUNCTIONAL_MAX_POOL_PLACES, ON(&x), WITH(INTS_OF(2, 2), INTS_OF(1, 1), INTS_OF(0, 0)), 2, y);
  GIVES(apply(HR_FUNCTIONAL_MAX_POOL_GRADIENT, ON(&y[0], &y[1]),
              WITH(INTS_OF(2, 4), INTS_OF(2, 2), INTS_OF(1, 1), INTS_OF(0, 0))),
        0, 0, 0, 0, 0, 5, 6, 7);
  expect_failure("take 3 to 2, not 3", HR_FUNCTIONAL_MAX_POOL_GRADIENT, ON(&y[0], &y[1]),
                 WITH(INTS_OF(2, 3), INTS_OF(2, 2), INTS_OF(1, 1), INTS_OF(0, 0)));
  RELEASE(&x, &y[0], &y[1]);
}

HR_TEST(integers_have_scales) {
  hr_tensor x = tensor_of(HR_DTYPE_F32, DIMS(4), F32(-1, 0.25F, 1.25F, 200)),
            scale = hr_tensor_number(hr_scalar_f64(0.5)),
            step = apply(HR_FUNCTIONAL_FULL, ON(&scale), WITH({.kind = HR_ATTRIBUTE_INTS}, DTYPE_OF(HR_DTYPE_F32))),
            zero = tensor_of(HR_DTYPE_U8, 0, NULL, (const uint8_t[]){10}), q;
  q = apply(HR_FUNCTIONAL_QUANTIZE_LINEAR, ON(&x, &step, &zero), PLAIN);
  expect_type(&q, HR_DTYPE_U8, DIMS(4));
  EXPECT(&q, 8, 10, 12, 255);
  GIVES(apply(HR_FUNCTIONAL_DEQUANTIZE_LINEAR, ON(&q, &step, &zero), PLAIN), -1, 0, 1, 122.5F);
  GIVES(apply(HR_FUNCTIONAL_MATMUL_INTEGER, ON(&q, &q, &zero, NULL), PLAIN), -2 * 8 + 2 * 12 + 245 * 255);
  RELEASE(&x, &step, &zero, &q);
}
