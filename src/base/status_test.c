#include "headrace/status.h"

#include "hr_test.h"

HR_TEST(make_formats_and_keeps_the_code) {
  hr_status status = hr_status_make(HR_STATUS_INVALID_ARGUMENT, "matmul: inner sizes differ: %d != %d", 4, 5);
  HR_ASSERT_EQ(hr_status_code_of(status), 3);
  HR_ASSERT_STR_EQ(hr_status_message(status), "matmul: inner sizes differ: 4 != 5");
  hr_status_free(status);
}

HR_TEST(ok_is_null) {
  HR_ASSERT_NULL(hr_status_make(HR_STATUS_OK, "%s", "nothing"));
  HR_ASSERT_EQ(hr_status_code_of(HR_OK), HR_STATUS_OK);
  HR_ASSERT_STR_EQ(hr_status_message(HR_OK), "OK");
  HR_ASSERT_NULL(hr_status_annotate(HR_OK, "%s", "context"));
  HR_ASSERT_NULL(hr_status_clone(HR_OK));
  hr_status_free(HR_OK);
}

HR_TEST(codes_follow_absl) {
  HR_ASSERT_EQ(HR_STATUS_RESOURCE_EXHAUSTED, 8);
  HR_ASSERT_EQ(HR_STATUS_OUT_OF_RANGE, 11);
  HR_ASSERT_EQ(HR_STATUS_UNIMPLEMENTED, 12);
  HR_ASSERT_EQ(HR_STATUS_INTERNAL, 13);
  HR_ASSERT_EQ(HR_STATUS_UNAUTHENTICATED, 16);
  HR_ASSERT_STR_EQ(hr_status_code_name(HR_STATUS_DATA_LOSS), "DATA_LOSS");
  HR_ASSERT_STR_EQ(hr_status_code_name((hr_status_code)99), "UNKNOWN");
  HR_ASSERT_STATUS(hr_status_make((hr_status_code)-1, "%s", "foreign"), HR_STATUS_UNKNOWN);
}

HR_TEST(annotate_puts_context_in_front) {
  hr_status status = hr_status_make(HR_STATUS_NOT_FOUND, "no symbol");
  status = hr_status_annotate(status, "library %d", 7);
  status = hr_status_annotate(status, "open");
  HR_ASSERT_ERROR(status, HR_STATUS_NOT_FOUND, "open: library 7: no symbol");
}

HR_TEST(clone_has_its_own_life) {
  hr_status status = hr_status_make(HR_STATUS_ABORTED, "gone");
  hr_status clone = hr_status_clone(status);
  hr_status_free(status);
  HR_ASSERT_ERROR(clone, HR_STATUS_ABORTED, "gone");
}

HR_TEST(without_memory_the_code_survives) {
  int64_t live = hr__allocator_live();
  hr_status full = hr_status_make(HR_STATUS_NOT_FOUND, "first");
  hr__allocator_fail_after(0);
  hr_status bare = hr_status_make(HR_STATUS_DATA_LOSS, "lost");
  full = hr_status_annotate(full, "context");
  hr_status clone = hr_status_clone(full);
  bare = hr_status_annotate(bare, "context");
  hr__allocator_fail_after(-1);
  HR_ASSERT_EQ(hr_status_code_of(bare), HR_STATUS_DATA_LOSS);
  HR_ASSERT(strlen(hr_status_message(bare)) > 0);
  HR_ASSERT_STR_EQ(hr_status_message(full), "first");
  HR_ASSERT_EQ(hr_status_code_of(clone), HR_STATUS_NOT_FOUND);
  hr_status_free(bare);
  hr_status_free(clone);
  hr_status_free(full);
  HR_ASSERT_EQ(hr__allocator_live(), live);
}

static hr_status fail_if(bool fails) {
  return fails ? hr_status_make(HR_STATUS_ABORTED, "asked to") : HR_OK;
}

static hr_status calls_fail_if(bool fails, int *out_passed) {
  HR_RETURN_IF_ERROR(fail_if(fails));
  *out_passed = 1;
  return HR_OK;
}

HR_TEST(return_if_error_leaves_the_function) {
  int passed = 0;
  HR_ASSERT_STATUS(calls_fail_if(true, &passed), HR_STATUS_ABORTED);
  HR_ASSERT_EQ(passed, 0);
  HR_ASSERT_OK(calls_fail_if(false, &passed));
  HR_ASSERT_EQ(passed, 1);
}
