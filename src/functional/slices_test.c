/* Slices at indices and bits of generators: small results by hand, and types of inferences. The tests in Python have
 * the definitions, gradients and dtypes. */
#include "functional/functional_test.h"

#define I64(...)      \
  (const int64_t[]) { \
    __VA_ARGS__       \
  }
#define TEXT_OF(word)                                     \
  {                                                       \
    .kind = HR_ATTRIBUTE_TEXT, .value = {.text = (word) } \
  }

HR_TEST(slices_are_read) {
  hr_tensor x = counted(DIMS(3, 4)), at = tensor_of(HR_DTYPE_I64, DIMS(2, 2), I64(1, 1, 9, -9)), y;
  y = apply(HR_FUNCTIONAL_GATHER_SLICES, ON(&x, &at), WITH(INTS_OF(2, 3), INTS_OF(0, 1), INTS_OF(1, 2)));
  expect_type(&y, HR_DTYPE_F32, DIMS(2, 2, 3));
  EXPECT(&y, 5, 6, 7, 9, 10, 11, 4, 5, 6, 8, 9, 10);
  hr_tensor column = apply(HR_FUNCTIONAL_GATHER_SLICES, ON(&x, &at),
                           WITH(INTS_OF(1, 1), INTS_OF(1, 0), INTS_OF(0), INTS_OF(1), DEFAULT, DEFAULT, INT_OF(0)));
  expect_type(&column, HR_DTYPE_F32, DIMS(1, 2));
  EXPECT(&column, 9, 1);
  expect_failure("2 components of indices, expected 1", HR_FUNCTIONAL_GATHER_SLICES, ON(&x, &at),
                 WITH(INTS_OF(2, 3), INTS_OF(0), INTS_OF(1, 2)));
  RELEASE(&x, &at, &y, &column);
}

HR_TEST(slices_are_written) {
  hr_tensor x = counted(DIMS(2, 3)), at = tensor_of(HR_DTYPE_I64, DIMS(3, 1), I64(1, 1, 2)),
            values = counted(DIMS(2, 3));
  GIVES(apply(HR_FUNCTIONAL_SCATTER_SLICES, ON(&x, &at, &values),
              WITH(INTS_OF(1), INTS_OF(0), INTS_OF(1), DEFAULT, DEFAULT, DEFAULT, TEXT_OF("add"))),
        0, 2, 4, 3, 11, 10);
  RELEASE(&x, &at, &values);
}

HR_TEST(no_slice_is_written_to_a_tensor_without_elements) {
  hr_tensor x = counted(DIMS(0, 3)), at = tensor_of(HR_DTYPE_I64, DIMS(2, 1), I64(0, 1)), values = counted(DIMS(2, 3));
  hr_tensor y = apply(HR_FUNCTIONAL_SCATTER_SLICES, ON(&x, &at, &values),
                      WITH(INTS_OF(1), INTS_OF(0), INTS_OF(1), DEFAULT, DEFAULT, DEFAULT, TEXT_OF("add")));
  expect_type(&y, HR_DTYPE_F32, DIMS(0, 3));
  RELEASE(&x, &at, &values, &y);
}

HR_TEST(generators_have_known_bits) {
  const uint64_t numbers[2] = {UINT64_C(0x9abcdef012345678), UINT64_C(0xfffffffffffffffe)};
  hr_tensor state = tensor_of(HR_DTYPE_U64, DIMS(2), numbers), results[2];
  apply_all(HR_FUNCTIONAL_GENERATOR_BITS, ON(&state), WITH(INTS_OF(3, 5)), 2, results);
  expect_type(&results[1], HR_DTYPE_U32, DIMS(3, 5));
  double bits[15], next[2];
  read_doubles(&results[1], bits);
  read_doubles(&results[0], next);
  HR_ASSERT(bits[0] == 0x78e50b5c && bits[4] == 0x1f9672e0 && next[1] == 2);
  RELEASE(&state, &results[0], &results[1]);
}
