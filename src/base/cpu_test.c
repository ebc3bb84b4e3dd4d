#include "base/cpu.h"

#include <stdlib.h>
#include <string.h>

#include "base/env.h"
#include "hr_test.h"

static void set_cap(const char *value) {
  setenv("HEADRACE_CPU", value, 1);
  hr__env_reload();
}

#if defined(__x86_64__)
HR_TEST(the_cap_lowers_the_level_and_hides_features) {
  set_cap("native");
  int level = hr_cpu_level();
  bool has_vectors = hr_cpu_has(HR_CPU_AVX512F);
  set_cap("v4");
  HR_ASSERT_EQ(hr_cpu_level(), level);
  HR_ASSERT_EQ(hr_cpu_has(HR_CPU_AVX512F), has_vectors);
  HR_ASSERT(!hr_cpu_has(HR_CPU_AVX512VNNI));
  set_cap("v3");
  HR_ASSERT_EQ(hr_cpu_level(), level < 3 ? level : 3);
  HR_ASSERT(!hr_cpu_has(HR_CPU_AVX512F));
  set_cap("v2");
  HR_ASSERT_EQ(hr_cpu_level(), 2);
  HR_ASSERT(!hr_cpu_has(HR_CPU_AVX2));
}

HR_TEST(kernels_are_compiled_for_the_cap) {
  set_cap("native");
  HR_ASSERT_STR_EQ(hr_cpu_option(false), "-march=native");
  set_cap("v3");
  HR_ASSERT_STR_EQ(hr_cpu_option(false), "-march=x86-64-v3");
  HR_ASSERT_STR_EQ(hr_cpu_option(true), "-march=x86_64_v3");
}

HR_TEST(the_description_names_the_level_and_features) {
  hr_text text = {0};
  set_cap("v2");
  hr_cpu_describe(&text);
  HR_ASSERT(strncmp(hr_text_chars(&text), "level 2:", 8) == 0);
  HR_ASSERT(strstr(hr_text_chars(&text), "avx2") == NULL);
  hr_text_fini(&text);
}
#endif
