/* The version: the library's is the headers', and the text says the same as the number. */
#include "headrace/version.h"

#include <stdio.h>

#include "hr_test.h"

HR_TEST(the_library_has_the_version_of_its_headers) {
  HR_ASSERT_EQ(hr_version_number(), HR_VERSION);
  char text[64];
  snprintf(text, sizeof text, "%d.%d.%d", HR_VERSION_MAJOR, HR_VERSION_MINOR, HR_VERSION_PATCH);
  HR_ASSERT_STR_EQ(hr_version(), text);
}

HR_TEST(numbers_order_versions) {
  HR_ASSERT(HR_VERSION_NUMBER(0, 1, 9) < HR_VERSION_NUMBER(0, 2, 0));
  HR_ASSERT(HR_VERSION_NUMBER(0, 99, 99) < HR_VERSION_NUMBER(1, 0, 0));
}
