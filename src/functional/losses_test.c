/* Losses against numbers computed by hand, their reductions and errors. */
#include "headrace/part.h"

#include "functional/functional_test.h"

#define TEXT_OF(word)                                     \
  {                                                       \
    .kind = HR_ATTRIBUTE_TEXT, .value = {.text = (word) } \
  }

HR_TEST(losses_of_classes) {
  hr_tensor x = tensor_of(HR_DTYPE_F32, DIMS(2, 3), F32(0, 0, 0, 1, 2, 3));
  hr_tensor at = tensor_of(HR_DTYPE_I64, DIMS(2), (const int64_t[]){1, 2});
  hr_tensor some = tensor_of(HR_DTYPE_I64, DIMS(2), (const int64_t[]){-100, 2});
  hr_tensor p = tensor_of(HR_DTYPE_F32, DIMS(2, 3), F32(0, 1, 0, 0, 0, 1)),
            w = tensor_of(HR_DTYPE_F32, DIMS(2), F32(2, 3));
  GIVES(apply(HR_FUNCTIONAL_CROSS_ENTROPY, ON(&x, &at, NULL), PLAIN), 1.09861229F, 0.40760596F);
  GIVES(apply(HR_FUNCTIONAL_CROSS_ENTROPY, ON(&x, &p, NULL), PLAIN), 1.09861229F, 0.40760596F);
  GIVES(apply(HR_FUNCTIONAL_CROSS_ENTROPY, ON(&x, &at, &w), WITH(DEFAULT, DEFAULT, TEXT_OF("sum"))), 3.42004246F);
  GIVES(apply(HR_FUNCTIONAL_CROSS_ENTROPY, ON(&x, &some, NULL), PLAIN), 0, 0.40760596F);
  GIVES(apply(HR_FUNCTIONAL_CROSS_ENTROPY, ON(&x, &some, NULL), WITH(DEFAULT, DEFAULT, TEXT_OF("mean"))), 0.40760596F);
  GIVES(apply(HR_FUNCTIONAL_CROSS_ENTROPY, ON(&x, &at, NULL), WITH(DEFAULT, REAL_OF(hr_scalar_f64(0.5)))), 1.09861229F,
        0.90760596F);
  hr_tensor turned = apply(HR_FUNCTIONAL_SWAPAXES, ON(&x), PLAIN);
  GIVES(apply(HR_FUNCTIONAL_CROSS_ENTROPY, ON(&turned, &at, NULL), WITH(INT_OF(0))), 1.09861229F, 0.40760596F);
  GIVES(apply(HR_FUNCTIONAL_NLL_LOSS, ON(&x, &at), PLAIN), 0, -3);
  expect_failure("label_smoothing is 2, expected 0 to 1", HR_FUNCTIONAL_CROSS_ENTROPY, ON(&x, &at, NULL),
                 WITH(DEFAULT, REAL_OF(hr_scalar_i64(2))));
  expect_failure("targets of f32, expected integers", HR_FUNCTIONAL_NLL_LOSS, ON(&x, &w), PLAIN);
  expect_failure("targets of dims [2] for [3,2] with classes along axis 1", HR_FUNCTIONAL_NLL_LOSS, ON(&turned, &at),
                 PLAIN);
  expect_failure("attribute reduction is \"avg\", expected one of none, mean, sum", HR_FUNCTIONAL_NLL_LOSS, ON(&x, &at),
                 WITH(DEFAULT, TEXT_OF("avg")));
  RELEASE(&x, &at, &some, &p, &w, &turned);
}

HR_TEST(losses_do_not_broadcast) {
  hr_tensor x = counted(DIMS(2, 3)), y = counted(DIMS(2, 1)), none = counted(DIMS(0));
  expect_failure("mse_loss: targets have dims [2,1], predictions [2,3]", HR_FUNCTIONAL_MSE_LOSS, ON(&x, &y), PLAIN);
  expect_failure("beta is -1, expected at least 0", HR_FUNCTIONAL_SMOOTH_L1_LOSS, ON(&x, &x),
                 WITH(REAL_OF(hr_scalar_i64(-1))));
  GIVES(apply(HR_FUNCTIONAL_MSE_LOSS, ON(&none, &none), PLAIN), NAN);
  GIVES(apply(HR_FUNCTIONAL_MSE_LOSS, ON(&none, &none), WITH(TEXT_OF("sum"))), 0);
  RELEASE(&x, &y, &none);
}
