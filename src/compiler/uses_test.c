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

/* Numbers are no touches; a node's inputs come before its outputs. */
HR_TEST(touches_are_the_operands_that_are_values) {
  const char *text = "buffer %0 16 live\nbuffer %1 16 live\n"
                     "scalar $0 f64\n"
                     "%1:f32[4]{1}+0 = mul($0, %0:f32[4]{1}+0)\n"
                     "%1:f32[4]{1}+0 = add(%1:f32[4]{1}+0, %0:f32[4]{1}+0)\n";
  const hr_touch expected[] = {{0, 1, 0}, {1, 2, 1}, {1, 0, 0}, {0, 1, 0}, {1, 2, 1}};
  hr_program program;
  hr_touches touches;
  hr_uses reads, writes;
  HR_ASSERT_OK(hr_program_parse(text, &program));
  HR_ASSERT(hr_versions_and_touches(&program, &touches));
  HR_ASSERT(touches.first[0] == 0 && touches.first[1] == 2 && touches.first[2] == 5);
  HR_ASSERT_BYTES_EQ(touches.all, expected, sizeof expected);
  HR_ASSERT(program.nodes[1].inputs[0].version == 1 && program.nodes[1].outputs[0].version == 2);
  HR_ASSERT(hr_uses_find_apart(&program, &touches, &reads, &writes));
  HR_ASSERT(reads.first[1] == 2 && reads.nodes[0] == 0 && reads.nodes[1] == 1);
  HR_ASSERT(reads.first[2] == 3 && reads.nodes[2] == 1);
  HR_ASSERT(writes.first[1] == 0 && writes.first[2] == 2 && writes.nodes[0] == 0 && writes.nodes[1] == 1);
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
