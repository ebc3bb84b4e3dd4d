/* Renaming: which contents get a temporary, and that visible results stay the same. */
#include "hr_test.h"

#include "compiler/passes.h"
#include "program_runner.h"

enum { BUFFERS = 8, BYTES = 32 };

static void evaluate(hr_program *value, float memory[BUFFERS][BYTES / sizeof(float)]) {
  const hr_scalar scalars[1] = {hr_scalar_f64(0.5)};
  void *addresses[BUFFERS];
  hr_program loops;
  hr__to_stream_form(value);
  for (int n = 0; n < value->node_count; ++n) {
    value->nodes[n].is_loop = false; /* rows are recorded as they are */
  }
  HR_ASSERT_OK(hr_expand(value, NULL, NULL, &loops));
  for (int b = 0; b < BUFFERS; ++b) {
    for (int i = 0; i < (int)(BYTES / sizeof(float)); ++i) {
      memory[b][i] = (float)(b * 8 + i);
    }
    addresses[b] = memory[b];
  }
  HR_ASSERT_OK(hr_program_evaluate(&loops, addresses, scalars));
  hr_program_fini(&loops);
}

/* Returns the number of temporaries that the pass adds. Visible results have the same bits with and without them. */
static int check(const char *text) {
  hr_program stream, programs[2];
  float memory[2][BUFFERS][BYTES / sizeof(float)];
  int added = 0;
  HR_ASSERT_OK(hr_program_parse(text, &stream));
  HR_ASSERT_OK(hr_program_verify(&stream));
  for (int k = 0; k < 2; ++k) {
    HR_ASSERT_OK(hr_expand(&stream, NULL, NULL, &programs[k]));
    hr_versions(&programs[k]);
    added -= k == 1 ? programs[k].buffer_count : 0;
  }
  HR_ASSERT_OK(hr_rename(&programs[1]));
  hr_versions(&programs[1]);
  HR_ASSERT_OK(hr_program_verify(&programs[1]));
  added += programs[1].buffer_count;
  for (int k = 0; k < 2; ++k) {
    evaluate(&programs[k], memory[k]);
  }
  for (int b = 0; b < stream.bound_count; ++b) {
    HR_ASSERT(stream.buffers[b].is_dead || memcmp(memory[0][b], memory[1][b], BYTES) == 0);
  }
  for (int k = 0; k < 2; ++k) {
    hr_program_fini(&programs[k]);
  }
  hr_program_fini(&stream);
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
