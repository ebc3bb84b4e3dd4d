/* Groups that use up a large temporary run where it has been made. */
#include "compiler/passes.h"
#include "hr_test.h"

#define MATRIX ":f32[4,4]{4,1}+0"
#define BUFFERS                                               \
  "buffer %0 64 live\nbuffer %1 64 live\nbuffer %2 64 live\n" \
  "buffer %3 64 dead fresh\nbuffer %4 64 dead fresh\n"        \
  "buffer %5 64 live fresh\nbuffer %6 8 live\nbuffer %7 16 live fresh\n"
#define PRODUCT(y, a, b) "%" #y MATRIX " = matmul(%" #a MATRIX ", %" #b MATRIX ", _)\n"
#define UPDATE(p, g) "%" #p MATRIX " = sub(%" #p MATRIX ", %" #g MATRIX ")\n"

static bool keeps_products(void *ctx, const hr_program *program, const hr_node *node) {
  (void)ctx, (void)program;
  return node->op == HR_OP_MATMUL && node->epilogue_count == 0;
}

/* The steps in order: the buffer that each writes first, ! for a check of indices. */
static void check(const char *text, int64_t bytes, const char *expected) {
  hr_program program;
  hr_schedule schedule;
  char order[16] = "";
  HR_ASSERT_OK(hr_program_parse(text, &program));
  const hr_target target = {.keeps = keeps_products, .hasten_bytes = bytes, .verify = true};
  HR_ASSERT_OK(hr_compile(&program, &target, &schedule));
  for (int s = 0; s < schedule.step_count && s < 15; ++s) {
    const hr_step *step = &schedule.steps[s];
    order[s] = step->kind == HR_STEP_CHECK ? '!' : (char)('0' + step->node->outputs[0].index);
  }
  HR_ASSERT_STR_EQ(order, expected);
  hr_schedule_fini(&schedule);
  hr_program_fini(&program);
}

HR_TEST(updates_follow_their_gradients) {
  const char *text = BUFFERS PRODUCT(3, 2, 2) PRODUCT(4, 2, 1) PRODUCT(5, 2, 0) UPDATE(0, 3) UPDATE(1, 4);
  check(text, 64, "41530"); /* behind the last reader of the old value, with its gradient */
  check(text, 65, "34501");
  check(text, 0, "34501");
}

HR_TEST(groups_that_depend_on_one_that_moves_keep_behind_it) {
  check(BUFFERS PRODUCT(3, 2, 2) PRODUCT(5, 2, 2) UPDATE(0, 3) PRODUCT(4, 2, 0) UPDATE(1, 4), 64, "30541");
  check(BUFFERS PRODUCT(3, 2, 2) PRODUCT(5, 2, 2) UPDATE(0, 3) UPDATE(1, 0), 64, "305");
}

HR_TEST(temporaries_with_later_uses_stay) {
  check(BUFFERS PRODUCT(3, 2, 2) PRODUCT(5, 2, 2) UPDATE(0, 3) PRODUCT(1, 3, 2), 64, "3501");
  /* %4 would live longer */
  check(BUFFERS PRODUCT(3, 2, 2) PRODUCT(5, 2, 2) "%4" MATRIX " = neg(%3" MATRIX ")\n" PRODUCT(1, 4, 2), 64, "3541");
}

HR_TEST(no_update_passes_a_node_that_may_fail) {
  check(BUFFERS PRODUCT(3, 2, 2) PRODUCT(
            5, 2, 2) "%7:f32[1,4]{4,1}+0 = index_select(%2:f32[4,4]{4,1}+0, %6:i64[1]{1}+0) ints(0)\n" UPDATE(0, 3),
        64, "85!307");
}
