/* Formats that are computed with in another class are moved as integers if they are only moved. */
#include "hr_test.h"

#include "only_kernel.h"

/* True if the one kernel of a program loads or stores a dtype. */
static bool touches(const char *text, hr_dtype dtype) {
  hr_schedule schedule;
  bool does = false;
  const hr_kernel *kernel = hr__only_kernel(text, &schedule);
  for (int a = 0; a < kernel->access_count; ++a) {
    does |= kernel->accesses[a].dtype == dtype;
  }
  hr_schedule_fini(&schedule);
  return does;
}

#define BUFFERS "buffer %0 512 live\nbuffer %1 512 live fresh\nbuffer %2 512 live fresh\n"

HR_TEST(values_that_are_only_moved_are_moved_as_bits) {
  const char *turned = BUFFERS "loop %1:f16[8,8]{8,1}+0 = copy(%0:f16[8,8]{1,8}+0)\n";
  HR_ASSERT(touches(turned, HR_DTYPE_I16) && !touches(turned, HR_DTYPE_F16));
  const char *both = BUFFERS "loop %1:bf16[64]{1}+0 = copy(%0:bf16[64]{1}+64)\n"
                             "loop %2:bf16[64]{1}+0 = copy(%0:bf16[64]{1}+64)\n";
  HR_ASSERT(touches(both, HR_DTYPE_I16) && !touches(both, HR_DTYPE_BF16));
  HR_ASSERT(touches(BUFFERS "loop %1:c32[64]{1}+0 = copy(%0:c32[64]{1}+0)\n", HR_DTYPE_I32));
  HR_ASSERT(touches(BUFFERS "loop %1:f8e5m2[64]{1}+0 = copy(%0:f8e5m2[64]{1}+0)\n", HR_DTYPE_I8));
}

HR_TEST(values_that_are_used_are_not) {
  HR_ASSERT(!touches(BUFFERS "loop %1:f32[64]{1}+0 = copy(%0:f16[64]{1}+0)\n", HR_DTYPE_I16));
  HR_ASSERT(!touches(BUFFERS "loop %1:bf16[64]{1}+0 = copy(%0:f16[64]{1}+0)\n", HR_DTYPE_I16));
  HR_ASSERT(!touches(BUFFERS "loop %1:f16[64]{1}+0 = neg(%0:f16[64]{1}+0)\n", HR_DTYPE_I16));
  HR_ASSERT(!touches(BUFFERS "loop %1:f16[64]{1}+0 = copy(%0:f16[64]{1}+0)\n"
                             "loop %2:f16[64]{1}+0 = neg(%0:f16[64]{1}+0)\n",
                     HR_DTYPE_I16));
  HR_ASSERT(!touches(BUFFERS "loop %1:f32[64]{1}+0 = copy(%0:f32[64]{1}+0)\n", HR_DTYPE_I32));
}
