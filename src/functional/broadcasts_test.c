/* Functions with as many results as inputs or slices; members of a set. */
#include "functional/functional_test.h"

#define TEXT_OF(word)                                     \
  {                                                       \
    .kind = HR_ATTRIBUTE_TEXT, .value = {.text = (word) } \
  }

HR_TEST(results_are_as_many_as_inputs) {
  hr_tensor x = counted(DIMS(2)), y = counted(DIMS(3)), z = counted(DIMS(2, 1)), results[8];
  apply_all(HR_FUNCTIONAL_MESHGRID, ON(&x, &y), PLAIN, 2, results);
  expect_type(&results[0], HR_DTYPE_F32, DIMS(3, 2));
  HR_ASSERT(results[0].buffer == x.buffer);
  EXPECT(&results[0], 0, 1, 0, 1, 0, 1);
  EXPECT(&results[1], 0, 0, 1, 1, 2, 2);
  RELEASE(&results[0], &results[1]);
  apply_all(HR_FUNCTIONAL_MESHGRID, ON(&x, &y), WITH(TEXT_OF("ij")), 1, results);
  EXPECT(&results[0], 0, 0, 0, 1, 1, 1);
  hr_tensor_release(&results[0]);
  apply_all(HR_FUNCTIONAL_BROADCAST_ARRAYS, ON(&y, &z), PLAIN, 2, results);
  EXPECT(&results[0], 0, 1, 2, 0, 1, 2);
  EXPECT(&results[1], 0, 0, 0, 1, 1, 1);
  RELEASE(&results[0], &results[1]);
  expect_failure("can't be broadcast", HR_FUNCTIONAL_BROADCAST_ARRAYS, ON(&x, &y), PLAIN);
  expect_failure("input 1 has 2 dims, expected at most 1", HR_FUNCTIONAL_MESHGRID, ON(&x, &z), PLAIN);
  HR_ASSERT_ERROR(hr_functional_apply(stream, HR_FUNCTIONAL_MESHGRID, ON(&x, &y), PLAIN, 3, results),
                  HR_STATUS_INVALID_ARGUMENT, "3 results, expected 1 to 2");
  RELEASE(&x, &y, &z);
}

HR_TEST(results_are_as_many_as_slices) {
  hr_tensor x = counted(DIMS(2, 8)), none = new_tensor(HR_DTYPE_F32, DIMS(0, 3)), results[8];
  const hr_tensor *given = &x, *empty = &none;
  const hr_attribute last = INT_OF(-1);
  int count;
  HR_ASSERT_OK(hr_functional_result_count(HR_FUNCTIONAL_UNSTACK, 1, &given, 1, &last, &count));
  HR_ASSERT_EQ(count, 8);
  HR_ASSERT_OK(hr_functional_apply(stream, HR_FUNCTIONAL_UNSTACK, 1, &given, 1, &last, 8, results));
  for (int i = 0; i < 8; ++i) {
    expect_type(&results[i], HR_DTYPE_F32, DIMS(2));
    EXPECT(&results[i], (float)i, (float)(8 + i));
    hr_tensor_release(&results[i]);
  }
  HR_ASSERT_OK(hr_functional_result_count(HR_FUNCTIONAL_UNSTACK, 1, &empty, 0, NULL, &count));
  HR_ASSERT_EQ(count, 0);
  HR_ASSERT_OK(hr_functional_apply(stream, HR_FUNCTIONAL_UNSTACK, 1, &empty, 0, NULL, 0, results));
  HR_ASSERT_OK(hr_functional_result_count(HR_FUNCTIONAL_SORT, 1, &given, 0, NULL, &count));
  HR_ASSERT_EQ(count, 2);
  HR_ASSERT_ERROR(hr_functional_result_count(HR_FUNCTIONAL_COUNT, 1, &given, 0, NULL, &count),
                  HR_STATUS_INVALID_ARGUMENT, "no function number");
  HR_ASSERT_ERROR(hr_functional_apply(stream, HR_FUNCTIONAL_UNSTACK, 1, &given, 0, NULL, 3, results),
                  HR_STATUS_INVALID_ARGUMENT, "3 results, expected 1 to 2");
  RELEASE(&x, &none);
}

HR_TEST(members) {
  hr_tensor x = tensor_of(HR_DTYPE_F32, DIMS(4), F32(1, NAN, 3, 9)),
            values = tensor_of(HR_DTYPE_F32, DIMS(2, 2), F32(9, NAN, 2, 1)), none = new_tensor(HR_DTYPE_F32, DIMS(0));
  GIVES(apply(HR_FUNCTIONAL_ISIN, ON(&x, &values), PLAIN), 1, 0, 0, 1);
  GIVES(apply(HR_FUNCTIONAL_ISIN, ON(&x, &values), WITH(FLAG_OF(1))), 0, 1, 1, 0);
  GIVES(apply(HR_FUNCTIONAL_ISIN, ON(&x, &none), PLAIN), 0, 0, 0, 0);
  RELEASE(&x, &values, &none);
}
