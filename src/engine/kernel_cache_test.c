/* Programs with the same kernels share them, and nothing is left after their release. */
#include "engine/kernel_cache.h"

#include "hr_test.h"

#include "base/allocator.h"
#include "only_kernel.h"

static const hr_driver host_driver = {.name = "host", .dialect = HR_DIALECT_HOST};
static hr_device host_device = {.driver = &host_driver};

static const char *const add = "buffer %0 256 live\nbuffer %1 256 live\nbuffer %2 256 live fresh\n"
                               "%2:f32[64]{1}+0 = add(%0:f32[64]{1}+0, %1:f32[64]{1}+0)\n";
static const char *const add_other_buffers = "buffer %0 256 live fresh\nbuffer %1 512 live\nbuffer %2 256 live\n"
                                             "%0:f32[64]{1}+0 = add(%2:f32[64]{1}+0, %1:f32[64]{1}+0)\n";
static const char *const add_offset = "buffer %0 256 live\nbuffer %1 512 live\nbuffer %2 256 live fresh\n"
                                      "%2:f32[64]{1}+0 = add(%0:f32[64]{1}+0, %1:f32[64]{1}+64)\n";
static const char *const sub = "buffer %0 256 live\nbuffer %1 256 live\nbuffer %2 256 live fresh\n"
                               "%2:f32[64]{1}+0 = sub(%0:f32[64]{1}+0, %1:f32[64]{1}+0)\n";

HR_TEST(equal_forms_share_a_kernel_and_others_do_not) {
  const char *const texts[] = {add, add_other_buffers, add_offset, sub};
  enum { COUNT = sizeof texts / sizeof *texts };
  hr_cached_kernel *cached[COUNT];
  for (int i = 0; i < COUNT; ++i) {
    hr_schedule schedule;
    HR_ASSERT_OK(hr__kernel_acquire(hr__only_kernel(texts[i], &schedule), &host_device, &cached[i]));
    hr_schedule_fini(&schedule); /* a kernel does not depend on the program that it came from */
  }
  HR_ASSERT(cached[0] == cached[1]);
  HR_ASSERT(cached[0] != cached[2]);
  HR_ASSERT(cached[0] != cached[3]);
  HR_ASSERT(cached[2] != cached[3]);
  HR_ASSERT_EQ(hr__kernel_cache_count(), 3);
  hr__kernel_release(cached[0]);
  HR_ASSERT_EQ(hr__kernel_cache_count(), 3);
  for (int i = 1; i < COUNT; ++i) {
    hr__kernel_release(cached[i]);
  }
  HR_ASSERT_EQ(hr__kernel_cache_count(), 0);
}

HR_TEST(every_failing_allocation_is_an_error) {
  hr_schedule schedule;
  const hr_kernel *kernel = hr__only_kernel(add, &schedule);
  bool is_done = false;
  for (int n = 0; !is_done; ++n) {
    hr_cached_kernel *cached = NULL;
    hr__allocator_fail_after(n);
    hr_status status = hr__kernel_acquire(kernel, &host_device, &cached);
    hr__allocator_fail_after(-1);
    is_done = status == HR_OK;
    HR_ASSERT_EQ(hr_status_code_of(status), is_done ? HR_STATUS_OK : HR_STATUS_RESOURCE_EXHAUSTED);
    HR_ASSERT_EQ(hr__kernel_cache_count(), is_done ? 1 : 0);
    hr_status_free(status);
    hr__kernel_release(cached);
  }
  HR_ASSERT_EQ(hr__kernel_cache_count(), 0);
  hr_schedule_fini(&schedule);
}
