/* Windows, resized dims, views by strides: small results by hand, types of inferences, errors. */
#include "functional/functional_test.h"

#define TEXT_OF(word)                                     \
  {                                                       \
    .kind = HR_ATTRIBUTE_TEXT, .value = {.text = (word) } \
  }
#define REALS_OF(...)                                                                                 \
  {                                                                                                   \
    .kind = HR_ATTRIBUTE_REALS, .count = sizeof((double[]){__VA_ARGS__}) / sizeof(double), .value = { \
      .reals = (const double[]){__VA_ARGS__}                                                          \
    }                                                                                                 \
  }

HR_TEST(windows_are_reduced) {
  hr_tensor x = counted(DIMS(2, 4));
  GIVES(apply(HR_FUNCTIONAL_REDUCE_WINDOW, ON(&x), WITH(INTS_OF(2, 2))), 10, 14, 18);
  GIVES(apply(HR_FUNCTIONAL_REDUCE_WINDOW, ON(&x),
              WITH(INTS_OF(1, 2), INTS_OF(1, 2), INTS_OF(0, 1), INTS_OF(0, 1), DEFAULT, DEFAULT, TEXT_OF("max"))),
        0, 2, 3, 4, 6, 7);
  GIVES(apply(HR_FUNCTIONAL_REDUCE_WINDOW, ON(&x),
              WITH(INTS_OF(2, 3), DEFAULT, DEFAULT, DEFAULT, DEFAULT, DEFAULT, TEXT_OF("mean"), TEXT_OF("same"))),
        2.5F, 3, 4, 4.5F, 4.5F, 5, 6, 6.5F);
  expect_failure("1 integers of window for 2 dims", HR_FUNCTIONAL_REDUCE_WINDOW, ON(&x), WITH(INTS_OF(1)));
  hr_tensor_release(&x);
}

HR_TEST(pools_have_other_sides) {
  hr_tensor x = counted(DIMS(1, 4)), y[2];
  GIVES(apply(HR_FUNCTIONAL_MAX_POOL, ON(&x), WITH(INTS_OF(2), INTS_OF(2), INTS_OF(0), INTS_OF(1))), 1, 3);
  GIVES(apply(HR_FUNCTIONAL_AVG_POOL, ON(&x), WITH(INTS_OF(2), INTS_OF(1), INTS_OF(0), FLAG_OF(0), INTS_OF(1))), 0.5F,
        1.5F, 2.5F, 3);
  apply_all(HR_FUNCTIONAL_MAX_POOL_PLACES, ON(&x), WITH(INTS_OF(2), INTS_OF(1), INTS_OF(1), INTS_OF(0)), 2, y);
  EXPECT(&y[0], 0, 1, 2, 3);
  EXPECT(&y[1], 0, 1, 2, 3);
  hr_tensor_release(&x);
  RELEASE(&y[0], &y[1]);
}

HR_TEST(convolutions_have_layouts) {
  hr_tensor x = counted(DIMS(1, 3, 1)), w = tensor_of(HR_DTYPE_F32, DIMS(2, 1, 1), F32(1, 10));
  const hr_attribute attributes[] = {
      DEFAULT, DEFAULT, DEFAULT, DEFAULT, INTS_OF(2), DEFAULT, DEFAULT, TEXT_OF("same"), TEXT_OF("b0f,0io->b0f")};
  GIVES(apply(HR_FUNCTIONAL_CONV_GENERAL, ON(&x, &w, NULL), 9, attributes), 0, 10, 1, 20, 2);
  hr_attribute flipped[10];
  memcpy(flipped, attributes, sizeof attributes);
  flipped[9] = (hr_attribute)FLAG_OF(1);
  GIVES(apply(HR_FUNCTIONAL_CONV_GENERAL, ON(&x, &w, NULL), 10, flipped), 0, 1, 10, 2, 20);
  RELEASE(&x, &w);
}

/* A kernel that is larger than the result is computed as the gradient of a weight, unless there is a bias: the sums of
 * small integers are the same. */
HR_TEST(convolutions_with_large_kernels) {
  hr_tensor w = counted(DIMS(5, 4, 3, 2)), zeros = tensor_of(HR_DTYPE_F32, DIMS(2), F32(0, 0)), y[2];
  int count = 0;
  for (int i = 0; i < 2 * 2 * 2 * 3 * 3; ++i) {
    int stride = 1 + i % 2, dilation = 1 + i / 2 % 2, longer = i / 4 % 2, before = i / 8 % 3 - 1,
        after = i / 24 % 3 - 1;
    hr_tensor x = counted(DIMS(2, 8 + longer, 3, 8));
    const hr_attribute attributes[] = {INTS_OF(stride, 1),
                                       INTS_OF(before, 0),
                                       INTS_OF(after, 1),
                                       INTS_OF(dilation, 2),
                                       DEFAULT,
                                       DEFAULT,
                                       DEFAULT,
                                       DEFAULT,
                                       TEXT_OF("b0f1,01io->0fb1")};
    const int64_t room = 8 + longer + before + after - 4 * dilation - 1;
    for (int k = 0; k < 2 && room >= 0; ++k) {
      y[k] = apply(HR_FUNCTIONAL_CONV_GENERAL, ON(&x, &w, k == 0 ? NULL : &zeros), 9, attributes);
    }
    if (room >= 0) {
      float expected[MOST];
      read(&y[1], expected);
      expect_values(&y[0], hr_tensor_count(&y[1]), expected);
      RELEASE(&y[0], &y[1]);
      ++count;
    }
    hr_tensor_release(&x);
  }
  HR_ASSERT(count > 40);
  RELEASE(&w, &zeros);
}

/* Spaces between elements and uneven padding are no factors: an infinite weight meets elements alone. */
HR_TEST(convolutions_skip_spaces_and_padding) {
  hr_tensor x = tensor_of(HR_DTYPE_F32, DIMS(1, 1, 3), F32(1, 2, 3));
  hr_tensor w = tensor_of(HR_DTYPE_F32, DIMS(1, 1, 3), F32(1, INFINITY, 4)),
            bias = tensor_of(HR_DTYPE_F32, DIMS(1), F32(8));
  GIVES(apply(HR_FUNCTIONAL_CONV_GENERAL, ON(&x, &w, NULL),
              WITH(INTS_OF(2), INTS_OF(2), INTS_OF(0), DEFAULT, INTS_OF(2))),
        4, 9, 14);
  GIVES(apply(HR_FUNCTIONAL_CONV_GENERAL, ON(&x, &w, &bias),
              WITH(INTS_OF(2), INTS_OF(2), INTS_OF(0), DEFAULT, INTS_OF(2))),
        12, 17, 22);
  GIVES(apply(HR_FUNCTIONAL_CONV_GENERAL, ON(&x, &w, NULL), WITH(INTS_OF(4), INTS_OF(2), INTS_OF(3))), 4, 3);
  GIVES(apply(HR_FUNCTIONAL_CONV_GENERAL, ON(&x, &w, NULL), WITH(DEFAULT, INTS_OF(-2), INTS_OF(2))), 3);
  RELEASE(&x, &w, &bias);
}

HR_TEST(dims_are_resized) {
  hr_tensor x = counted(DIMS(3));
  GIVES(apply(HR_FUNCTIONAL_INTERPOLATE, ON(&x), WITH(DEFAULT, INTS_OF(6))), 0, 0, 1, 1, 2, 2);
  GIVES(apply(HR_FUNCTIONAL_INTERPOLATE, ON(&x), WITH(DEFAULT, DEFAULT, REALS_OF(0.5))), 0);
  GIVES(apply(HR_FUNCTIONAL_INTERPOLATE, ON(&x),
              WITH(INTS_OF(-1), INTS_OF(5), DEFAULT, TEXT_OF("linear"), TEXT_OF("align_corners"))),
        0, 0.5F, 1, 1.5F, 2);
  GIVES(apply(HR_FUNCTIONAL_INTERPOLATE, ON(&x),
              WITH(INTS_OF(0), INTS_OF(6), DEFAULT, TEXT_OF("linear"), TEXT_OF("asymmetric"))),
        0, 0.5F, 1, 1.5F, 2, 2);
  expect_failure("neither sizes nor scales", HR_FUNCTIONAL_INTERPOLATE, ON(&x), PLAIN);
  expect_failure("taps of axis 0, expected at most", HR_FUNCTIONAL_INTERPOLATE, ON(&x),
                 WITH(DEFAULT, INTS_OF(2), REALS_OF(1e-9), TEXT_OF("linear"), DEFAULT, DEFAULT, FLAG_OF(1)));
  hr_tensor_release(&x);
}

HR_TEST(views_by_strides) {
  hr_tensor x = counted(DIMS(2, 3)), turned = apply(HR_FUNCTIONAL_SWAPAXES, ON(&x), PLAIN);
  GIVES(apply(HR_FUNCTIONAL_AS_STRIDED, ON(&x), WITH(INTS_OF(2, 2), INTS_OF(-1, 3), INT_OF(2))), 2, 5, 1, 4);
  GIVES(apply(HR_FUNCTIONAL_AS_STRIDED, ON(&turned), WITH(INTS_OF(3), INTS_OF(2))), 0, 1, 2);
  expect_failure("elements 0 to 6 of 6 ones", HR_FUNCTIONAL_AS_STRIDED, ON(&x), WITH(INTS_OF(3), INTS_OF(3)));
  RELEASE(&x, &turned);
}
