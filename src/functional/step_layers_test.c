/* Recurrent layers, norms and updates: small results by hand, types of inferences, failing allocations. */
#include "functional/functional_test.h"

#define TEXT_OF(word)                                     \
  {                                                       \
    .kind = HR_ATTRIBUTE_TEXT, .value = {.text = (word) } \
  }

HR_TEST(layers_run_steps) {
  hr_tensor x = tensor_of(HR_DTYPE_F32, DIMS(1, 3, 1), F32(1, 2, 3)), one = tensor_of(HR_DTYPE_F32, DIMS(1, 1), F32(1));
  hr_tensor lengths = tensor_of(HR_DTYPE_I64, DIMS(1), (const int64_t[]){2});
  GIVES(apply(HR_FUNCTIONAL_RNN, ON(&x, &one, &one, NULL, NULL, NULL), WITH(TEXT_OF("relu"))), 1, 3, 6);
  GIVES(apply(HR_FUNCTIONAL_RNN, ON(&x, &one, &one, NULL, NULL, NULL), WITH(TEXT_OF("relu"), FLAG_OF(1))), 6, 5, 3);
  GIVES(apply(HR_FUNCTIONAL_RNN, ON(&x, &one, &one, NULL, NULL, &lengths), WITH(TEXT_OF("relu"))), 1, 3, 3);
  hr_tensor cell = tensor_of(HR_DTYPE_F32, DIMS(1, 1), F32(2)), y;
  y = apply(HR_FUNCTIONAL_RNN_CELL, ON(&cell, &one, &one, NULL, &one), WITH(TEXT_OF("linear")));
  expect_type(&y, HR_DTYPE_F32, DIMS(1, 1));
  EXPECT(&y, 3);
  expect_failure("weight has dims [1,3,1], expected [1,1]", HR_FUNCTIONAL_RNN, ON(&x, &x, &one, NULL, NULL, NULL),
                 WITH(DEFAULT));
  RELEASE(&x, &one, &lengths, &cell, &y);
}

HR_TEST(rows_of_layers_agree_with_steps) {
  hr_tensor x = counted(DIMS(2, 3, 2)), w = counted(DIMS(8, 2)), r = counted(DIMS(8, 2)), y[2], z[2];
  hr_tensor lengths = tensor_of(HR_DTYPE_I32, DIMS(2), (const int32_t[]){3, 3});
  apply_all(HR_FUNCTIONAL_LSTM, ON(&x, &w, &r, NULL, NULL, NULL, NULL, NULL), PLAIN, 2, y);
  apply_all(HR_FUNCTIONAL_LSTM, ON(&x, &w, &r, NULL, NULL, NULL, NULL, &lengths), PLAIN, 2, z);
  expect_type(&y[1], HR_DTYPE_F32, DIMS(2, 3, 2));
  float values[12];
  for (int i = 0; i < 2; ++i) {
    read(&z[i], values);
    expect_values(&y[i], 12, values);
  }
  RELEASE(&x, &w, &r, &lengths, &y[0], &y[1], &z[0], &z[1]);
}

HR_TEST(norms_by_channels) {
  hr_tensor x = tensor_of(HR_DTYPE_F32, DIMS(2, 2), F32(1, 2, 3, 4)), m = tensor_of(HR_DTYPE_F32, DIMS(2), F32(1, 2));
  hr_tensor v = tensor_of(HR_DTYPE_F32, DIMS(2), F32(4, 1)), y[3];
  hr_attribute plain[2] = {DEFAULT, REAL_OF(hr_scalar_i64(0))};
  GIVES(apply(HR_FUNCTIONAL_BATCH_NORM, ON(&x, &m, &v, NULL, NULL), 2, plain), 0, 0, 1, 2);
  GIVES(apply(HR_FUNCTIONAL_BATCH_NORM, ON(&x, &m, &v, &m, &v), 2, plain), 4, 1, 5, 5);
  apply_all(HR_FUNCTIONAL_BATCH_NORM_TRAINING, ON(&x, NULL, NULL), 2, plain, 3, y);
  EXPECT(&y[0], -1, -1, 1, 1);
  EXPECT(&y[1], 2, 3);
  EXPECT(&y[2], 1, 1);
  GIVES(apply(HR_FUNCTIONAL_NORMALIZE, ON(&x), WITH(INT_OF(0), REAL_OF(hr_scalar_i64(1)))), 0.25F, 1.0F / 3, 0.75F,
        2.0F / 3);
  GIVES(apply(HR_FUNCTIONAL_LOCAL_RESPONSE_NORM, ON(&x),
              WITH(INT_OF(2), REAL_OF(hr_scalar_i64(2)), REAL_OF(hr_scalar_i64(1)))),
        1.0F / 6, 2.0F / 5, 3.0F / 26, 4.0F / 17);
  hr_tensor zero = tensor_of(HR_DTYPE_F32, DIMS(1), F32(0)), one = tensor_of(HR_DTYPE_F32, DIMS(1), F32(1));
  GIVES(apply(HR_FUNCTIONAL_ROTARY, ON(&x, &zero, &one), PLAIN), -2, 1, -4, 3);
  RELEASE(&zero, &one);
  RELEASE(&x, &m, &v, &y[0], &y[1], &y[2]);
}

HR_TEST(updates_take_numbers_and_tensors) {
  hr_tensor p = tensor_of(HR_DTYPE_F32, DIMS(2), F32(1, 2)), g = tensor_of(HR_DTYPE_F32, DIMS(2), F32(1, -1)), y[3];
  hr_tensor number = hr_tensor_number(hr_scalar_f64(0.5)), rate = tensor_of(HR_DTYPE_F32, 0, NULL, F32(0.5));
  apply_all(HR_FUNCTIONAL_SGD_UPDATE, ON(&p, &g, &p, &number), WITH(REAL_OF(hr_scalar_i64(2))), 2, y);
  EXPECT(&y[0], -0.5F, 0.5F);
  EXPECT(&y[1], 3, 3);
  RELEASE(&y[0], &y[1]);
  apply_all(HR_FUNCTIONAL_ADAGRAD_UPDATE, ON(&p, &g, &p, &rate), PLAIN, 2, y);
  EXPECT(&y[0], 1 - 0.5F / 1.41421356F, 2 + 0.5F / 1.73205081F);
  expect_failure("gradient has dims [], expected [2]", HR_FUNCTIONAL_ADAGRAD_UPDATE, ON(&p, &rate, &p, &rate), PLAIN);
  RELEASE(&p, &g, &rate, &y[0], &y[1]);
}
