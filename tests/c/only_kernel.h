/* only_kernel.h: the kernel of a program that becomes a single one. */
#ifndef HEADRACE_TESTS_ONLY_KERNEL_H_
#define HEADRACE_TESTS_ONLY_KERNEL_H_

#include "hr_test.h"

#include "compiler/compile.h"

/* Compiles the text, verified; the kernel lives as long as the schedule, which the caller ends. */
static const hr_kernel *hr__only_kernel(const char *text, hr_schedule *out_schedule) {
  hr_program program;
  HR_ASSERT_OK(hr_program_parse(text, &program));
  HR_ASSERT_OK(hr_compile(&program, &(hr_target){.verify = true}, out_schedule));
  HR_ASSERT_EQ(out_schedule->step_count, 1);
  hr_program_fini(&program);
  return out_schedule->steps[0].kernel;
}

#endif
