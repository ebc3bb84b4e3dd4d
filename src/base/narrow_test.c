/* narrow_test.c: a list has the numbers that it was made of, in as few bytes as the largest one needs. */
#include "base/narrow.h"

#include <string.h>

#include "hr_test.h"

#include "base/allocator.h"

HR_TEST(each_number_counts_and_comes_back) {
  static const uint32_t largest[] = {0, 255, 256, 65535, 65536, UINT32_MAX};
  static const uint32_t widths[] = {2, 2, 2, 2, 4, 4};
  enum { COUNT = 37 };
  for (size_t k = 0; k < sizeof largest / sizeof *largest; ++k) {
    uint32_t numbers[COUNT], other[COUNT];
    for (uint32_t i = 0; i < COUNT; ++i) {
      numbers[i] = largest[k] / (1 + i % 5) + (i % 5 == 0 ? 0 : i % 2) * (largest[k] > 0);
      numbers[i] = numbers[i] < largest[k] ? numbers[i] : largest[k];
    }
    hr_narrow *list = hr_narrow_make(COUNT, numbers);
    HR_ASSERT_NOT_NULL(list);
    HR_ASSERT_EQ(list->width, widths[k]);
    HR_ASSERT_EQ(hr_narrow_bytes(list), sizeof *list + COUNT * widths[k]);
    HR_ASSERT(hr_narrow_are(list, COUNT, numbers) && !hr_narrow_are(list, COUNT - 1, numbers));
    hr_narrow_copy(list, other);
    HR_ASSERT(memcmp(other, numbers, sizeof numbers) == 0);
    for (uint32_t bit = 0; bit < COUNT * 32; ++bit) {
      other[bit / 32] ^= UINT32_C(1) << bit % 32;
      HR_ASSERT(!hr_narrow_are(list, COUNT, other));
      other[bit / 32] = numbers[bit / 32];
    }
    hr_free(list);
  }
}

HR_TEST(an_empty_list_is_one) {
  hr_narrow *list = hr_narrow_make(0, NULL);
  HR_ASSERT_NOT_NULL(list);
  HR_ASSERT(hr_narrow_are(list, 0, NULL));
  hr_free(list);
}

HR_TEST(without_memory_there_is_none) {
  const uint32_t numbers[] = {1, 2};
  hr__allocator_fail_after(0);
  hr_narrow *list = hr_narrow_make(2, numbers);
  hr__allocator_fail_after(-1);
  HR_ASSERT_NULL(list);
}
