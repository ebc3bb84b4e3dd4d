/* The nodes that touch each buffer. */
#include "compiler/passes.h"
#include "hr_test.h"

/* %1 is written twice, and read by the node that replaces it; nobody touches %3. */
HR_TEST(nodes_are_listed_in_order_once_for_each_operand) {
  const char *text = "buffer %0 16 live\nbuffer %1 16 live\nbuffer %2 16 live\nbuffer %3 16 live\n"
                     "scalar $0 f64\n"
                     "%1:f32[4]{1}+0 = mul(%0:f32[4]{1}+0, $0)\n"
                     "%2:f32[4]{1}+0 = mul(%0:f32[4]{1}+0, %0:f32[4]{1}+0)\n"
                     "%1:f32[4]{1}+0 = add(%1:f32[4]{1}+0, %2:f32[4]{1}+0)\n";
  const int expected[] = {0, 1, 1, 0, 2, 2, 1, 2};
  hr_program program;
  hr_uses uses;
  HR_ASSERT_OK(hr_program_parse(text, &program));
  HR_ASSERT(hr_uses_find(&program, &uses));
  HR_ASSERT(uses.first[0] == 0 && uses.first[1] == 3 && uses.first[2] == 6 && uses.first[3] == 8 && uses.first[4] == 8);
  HR_ASSERT_BYTES_EQ(uses.nodes, expected, sizeof expected);
  HR_ASSERT_EQ(hr_uses_after(&uses, 0, -1), 0);
  HR_ASSERT_EQ(hr_uses_after(&uses, 0, 0), 1);
  HR_ASSERT_EQ(hr_uses_after(&uses, 0, 1), 3);
  HR_ASSERT_EQ(hr_uses_after(&uses, 1, 0), 4);
  HR_ASSERT_EQ(hr_uses_after(&uses, 2, 2), 8);
  HR_ASSERT_EQ(hr_uses_after(&uses, 3, 0), 8);
  hr_program_fini(&program);
}

HR_TEST(a_program_without_nodes_uses_nothing) {
  hr_program program;
  hr_uses uses;
  HR_ASSERT_OK(hr_program_parse("buffer %0 16 live\n", &program));
  HR_ASSERT(hr_uses_find(&program, &uses));
  HR_ASSERT(uses.first[0] == 0 && uses.first[1] == 0 && hr_uses_after(&uses, 0, -1) == 0);
  hr_program_fini(&program);
}
