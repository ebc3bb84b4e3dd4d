/* Renaming: which contents get a temporary, and that visible results stay the same. */
#include "value_pair.h"

/* Returns the number of temporaries that the pass adds. */
static int check(const char *text) {
  value_pair pair = open_value_pair(text);
  int before = pair.programs[1].buffer_count;
  HR_ASSERT_OK(hr_rename(&pair.programs[1]));
  hr_versions(&pair.programs[1]);
  HR_ASSERT_OK(hr_program_verify(&pair.programs[1]));
  int added = pair.programs[1].buffer_count - before;
  close_value_pair(&pair);
  return added;
}

#define ALL "[8]{1}+0"
#define THREE "buffer %0 32 live\nbuffer %1 32 live\nbuffer %2 32 live\nscalar $0 f64\n"

HR_TEST(contents_that_are_replaced) {
  HR_ASSERT_EQ(check(THREE "%0:f32" ALL " = neg(%1:f32" ALL ")\n%2:f32" ALL " = mul(%0:f32" ALL ", $0)\n"
                           "%0:f32" ALL " = square(%2:f32" ALL ")\n"),
               1);
}

HR_TEST(earlier_contents_and_updates_of_both) {
  /* reads what was there before; updates the first contents in a part, and the last */
  HR_ASSERT_EQ(check(THREE "%2:f32" ALL " = add(%0:f32" ALL ", %2:f32" ALL ")\n%0:f32" ALL " = neg(%1:f32" ALL ")\n"
                           "%0:f32[2]{1}+3 = mul(%0:f32[2]{1}+3, $0)\n%2:f32" ALL " = add(%0:f32" ALL ", %2:f32" ALL
                           ")\n%0:f32" ALL " = square(%2:f32" ALL ")\n%0:f32[4]{2}+1 = abs(%0:f32[4]{2}+0)\n"),
               1);
}

HR_TEST(three_contents) {
  HR_ASSERT_EQ(check(THREE "%0:f32" ALL " = neg(%1:f32" ALL ")\n%2:f32" ALL " = mul(%0:f32" ALL ", $0)\n"
                           "%0:f32" ALL " = square(%2:f32" ALL ")\n%1:f32" ALL " = add(%0:f32" ALL ", %1:f32" ALL ")\n"
                           "%0:f32" ALL " = abs(%1:f32" ALL ")\n"),
               2);
}

HR_TEST(contents_of_a_dead_buffer) {
  HR_ASSERT_EQ(check("buffer %0 32 dead fresh\nbuffer %1 32 live\nbuffer %2 32 live\nscalar $0 f64\n%0:f32" ALL
                     " = neg(%1:f32" ALL ")\n%2:f32" ALL " = mul(%0:f32" ALL ", $0)\n%0:f32" ALL " = square(%2:f32" ALL
                     ")\n%1:f32" ALL " = neg(%0:f32" ALL ")\n"),
               1);
}

HR_TEST(contents_that_stay) {
  /* a part is replaced; the new contents come from the old ones; the buffer is dead, and had contents */
  HR_ASSERT_EQ(check(THREE "%0:f32" ALL " = neg(%1:f32" ALL ")\n%2:f32" ALL " = mul(%0:f32" ALL ", $0)\n"
                           "%0:f32[7]{1}+0 = square(%2:f32[7]{1}+0)\n"),
               0);
  HR_ASSERT_EQ(check(THREE "%0:f32" ALL " = neg(%1:f32" ALL ")\n%0:f32" ALL " = mul(%0:f32" ALL ", $0)\n"), 0);
  HR_ASSERT_EQ(check("buffer %0 32 dead\nbuffer %1 32 live\nbuffer %2 32 live\nscalar $0 f64\n%0:f32" ALL
                     " = neg(%1:f32" ALL ")\n%2:f32" ALL " = mul(%0:f32" ALL ", $0)\n%0:f32" ALL " = square(%2:f32" ALL
                     ")\n%1:f32" ALL " = neg(%0:f32" ALL ")\n"),
               0);
}

HR_TEST(contents_before_a_check_stay) {
  HR_ASSERT_EQ(check(THREE "scalar $1 i64 = -9223372036854775808\nbuffer %3 8 dead\n%0:f32" ALL " = neg(%1:f32" ALL
                           ")\n%2:f32" ALL " = mul(%0:f32" ALL
                           ", $0)\n%3:i64[]{}+0 = copy($1)\ncheck_index(%3:i64[]{}+0) ints(0,5,0)\n%0:f32" ALL
                           " = square(%2:f32" ALL ")\n"),
               0);
}
