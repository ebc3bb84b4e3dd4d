/* Fourier transforms and linear algebra: results with known values, types, failures at the call and at the wait. */
#include "functional/functional_test.h"

#define TEXT_OF(word)                                     \
  {                                                       \
    .kind = HR_ATTRIBUTE_TEXT, .value = {.text = (word) } \
  }

HR_TEST(transforms_pad_trim_and_scale) {
  hr_tensor x = tensor_of(HR_DTYPE_F32, DIMS(2, 2), F32(1, 2, 3, 4)), y, z;
  y = apply(HR_FUNCTIONAL_FFT, ON(&x), PLAIN);
  expect_type(&y, HR_DTYPE_C64, DIMS(2, 2));
  EXPECT(&y, 3, -1, 7, -1);
  GIVES(apply(HR_FUNCTIONAL_IFFT, ON(&y), PLAIN), 1, 2, 3, 4);
  GIVES(apply(HR_FUNCTIONAL_FFT, ON(&x), WITH(DEFAULT, INT_OF(0), TEXT_OF("forward"))), 2, 3, -1, -1);
  GIVES(apply(HR_FUNCTIONAL_FFT, ON(&x), WITH(INTS_OF(1))), 1, 3);
  GIVES(apply(HR_FUNCTIONAL_RFFT, ON(&x), WITH(INTS_OF(4))), 3, 1, -1, 7, 3, -1);
  GIVES(apply(HR_FUNCTIONAL_FFTN, ON(&x), PLAIN), 10, -2, -4, 0);
  z = apply(HR_FUNCTIONAL_RFFTN, ON(&x), PLAIN);
  GIVES(apply(HR_FUNCTIONAL_IRFFTN, ON(&z), PLAIN), 1, 2, 3, 4);
  expect_failure("fft: 0 points along axis 1", HR_FUNCTIONAL_FFT, ON(&x), WITH(INTS_OF(0)));
  expect_failure("rfft: x has dtype c64", HR_FUNCTIONAL_RFFT, ON(&y), PLAIN);
  RELEASE(&x, &y, &z);
}

HR_TEST(systems_have_batches_and_vectors) {
  hr_tensor a = tensor_of(HR_DTYPE_F32, DIMS(2, 2), F32(4, 2, 2, 3)), v = tensor_of(HR_DTYPE_F32, DIMS(2), F32(8, 8)),
            z;
  hr_tensor many = tensor_of(HR_DTYPE_F64, DIMS(2, 2, 1), (const double[]){8, 8, 4, 2});
  hr_tensor three = counted(DIMS(3));
  z = apply(HR_FUNCTIONAL_SOLVE, ON(&a, &v), PLAIN);
  expect_type(&z, HR_DTYPE_F32, DIMS(2));
  EXPECT(&z, 1, 2);
  hr_tensor_release(&z);
  z = apply(HR_FUNCTIONAL_SOLVE, ON(&a, &many), PLAIN);
  expect_type(&z, HR_DTYPE_F64, DIMS(2, 2, 1));
  EXPECT(&z, 1, 2, 1, 0);
  GIVES(apply(HR_FUNCTIONAL_SOLVE_TRIANGULAR, ON(&a, &v), PLAIN), 2, 4.0F / 3);
  GIVES(apply(HR_FUNCTIONAL_INV, ON(&a), PLAIN), 0.375F, -0.25F, -0.25F, 0.5F);
  GIVES(apply(HR_FUNCTIONAL_DET, ON(&a), PLAIN), 8);
  GIVES(apply(HR_FUNCTIONAL_CHOLESKY, ON(&a), PLAIN), 2, 0, 1, 1.41421356F);
  GIVES(apply(HR_FUNCTIONAL_CHOLESKY, ON(&a), WITH(FLAG_OF(1))), 2, 1, 0, 1.41421356F);
  expect_failure("solve: right sides of dims [3] don't fit matrices of dims [2,2]", HR_FUNCTIONAL_SOLVE, ON(&a, &three),
                 PLAIN);
  expect_failure("inv: input 0 has dims [2,2,1], expected square", HR_FUNCTIONAL_INV, ON(&many), PLAIN);
  RELEASE(&a, &v, &many, &z, &three);
}

HR_TEST(several_results_have_their_types) {
  hr_tensor a = tensor_of(HR_DTYPE_F32, DIMS(3, 2), F32(3, 0, 0, 2, 0, 0)), all[3];
  apply_all(HR_FUNCTIONAL_SVD, ON(&a), PLAIN, 3, all);
  expect_type(&all[0], HR_DTYPE_F32, DIMS(3, 3));
  expect_type(&all[2], HR_DTYPE_F32, DIMS(2, 2));
  EXPECT(&all[1], 3, 2);
  RELEASE(&all[0], &all[1], &all[2]);
  apply_all(HR_FUNCTIONAL_QR, ON(&a), WITH(TEXT_OF("complete")), 2, all);
  expect_type(&all[0], HR_DTYPE_F32, DIMS(3, 3));
  expect_type(&all[1], HR_DTYPE_F32, DIMS(3, 2));
  hr_tensor product = apply(HR_FUNCTIONAL_MATMUL, ON(&all[0], &all[1]), PLAIN);
  EXPECT(&product, 3, 0, 0, 2, 0, 0);
  RELEASE(&all[0], &all[1], &product);
  apply_all(HR_FUNCTIONAL_LU, ON(&a), PLAIN, 3, all);
  expect_type(&all[0], HR_DTYPE_I64, DIMS(3));
  expect_type(&all[1], HR_DTYPE_F32, DIMS(3, 2));
  expect_type(&all[2], HR_DTYPE_F32, DIMS(2, 2));
  RELEASE(&a, &all[0], &all[1], &all[2]);
}

HR_TEST(singular_matrices_fail_at_the_wait) {
  hr_tensor a = tensor_of(HR_DTYPE_F32, DIMS(2, 2), F32(1, 2, 2, 4)), inverse;
  const hr_tensor *inputs[1] = {&a};
  HR_ASSERT_OK(hr_functional_apply(stream, HR_FUNCTIONAL_INV, 1, inputs, 0, NULL, 1, &inverse));
  float values[4];
  hr_view view = hr_tensor_view(&inverse);
  hr_status status = hr_stream_read(stream, &view, values);
  HR_ASSERT_NOT_NULL(status);
  HR_ASSERT(strstr(hr_status_message(status), "inv: matrix 0 of 1 is singular") != NULL);
  hr_status_free(status);
  hr_tensor more = apply(HR_FUNCTIONAL_DET, ON(&a), PLAIN);
  EXPECT(&more, 0);
  RELEASE(&a, &inverse, &more);
}
