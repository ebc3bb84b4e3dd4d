/* Late calls: where they run, in which order. */
#include "hr_test.h"

#include "compiler/passes.h"

#define ALL "f32[8]{1}+0"
#define BUFFERS                                                                                                        \
  "buffer %0 32 live\nbuffer %1 32 live\nbuffer %2 32 live\nbuffer %3 32 live\nbuffer %4 24 dead\nbuffer %5 24 dead\n" \
  "scalar $0 f64\n"
#define CALL(x, closure, effects) \
  "%" #x ":" ALL " = call(%" #x ":" ALL ", %" #closure ":u8[24]{1}+0) ints(-1,1," #effects ",0,0,0,0,0,0)\n"
#define NEG(to, from) "%" #to ":" ALL " = neg(%" #from ":" ALL ")\n"

/* The nodes after the pass, a character each: the number of the buffer that a call updates, n for neg, c for a check.
 */
static void expect(const char *text, const char *order) {
  static const hr_op ops[] = {HR_OP_NEG, HR_OP_CHECK_INDEX, HR_OP_COPY};
  hr_program program;
  char found[32] = {0};
  HR_ASSERT_OK(hr_program_parse(text, &program));
  HR_ASSERT_OK(hr_late_calls(&program));
  HR_ASSERT(program.node_count < (int)sizeof found);
  for (int n = 0; n < program.node_count; ++n) {
    const hr_node *node = &program.nodes[n];
    found[n] = (char)('0' + (node->output_count > 0 ? node->outputs[0].index : 0));
    for (int i = 0; i < 3; ++i) {
      found[n] = node->op == ops[i] ? "ncx"[i] : found[n];
    }
  }
  HR_ASSERT_STR_EQ(found, order);
  hr_program_fini(&program);
}

HR_TEST(late_calls_run_together_in_front_of_a_reader) {
  expect(BUFFERS CALL(0, 4, 2) NEG(3, 2) CALL(1, 5, 2) NEG(2, 3) NEG(3, 0) NEG(2, 1), "nn01nn");
}

HR_TEST(late_calls_run_in_front_of_a_writer) {
  expect(BUFFERS CALL(0, 4, 2) NEG(3, 2) NEG(0, 2) NEG(3, 2), "n0nn");
}

HR_TEST(late_calls_run_at_the_end_at_last) {
  expect(BUFFERS CALL(0, 4, 2) CALL(1, 5, 2) NEG(3, 2) NEG(2, 3), "nn01");
}

HR_TEST(late_calls_of_one_buffer_keep_their_order) {
  expect(BUFFERS CALL(1, 4, 2) CALL(0, 4, 2) NEG(3, 2) CALL(1, 5, 2) NEG(3, 1) NEG(3, 0), "n101nn");
}

HR_TEST(other_calls_and_checks_come_after_late_ones) {
  expect(BUFFERS CALL(0, 4, 2) NEG(3, 2) CALL(1, 5, 1) NEG(3, 2), "n01n");
  expect(BUFFERS CALL(0, 4, 1) NEG(3, 2), "0n");
  expect(BUFFERS "scalar $1 i64 = -9223372036854775808\nbuffer %6 8 dead\n%6:i64[]{}+0 = copy($1)\n" CALL(0, 4, 2)
             NEG(3, 2) "check_index(%6:i64[]{}+0) ints(0,5,0)\n" NEG(3, 2),
         "xn0cn");
}

/* A call without effects is like any other node. */
HR_TEST(kernels_do_not_end_the_wait) {
  expect(BUFFERS CALL(0, 4, 2) CALL(1, 5, 0) NEG(3, 2), "1n0");
}
