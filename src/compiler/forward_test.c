/* Forwarded copies: which ones lose their readers, and that visible results stay the same. */
#include "hr_test.h"

#include "compiler/passes.h"
#include "program_runner.h"

enum { BUFFERS = 6, BYTES = 32 };

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

/* Returns the number of nodes that the pass makes useless. Visible results have the same bits with and without it. */
static int check(const char *text) {
  hr_program stream, programs[2];
  float memory[2][BUFFERS][BYTES / sizeof(float)];
  HR_ASSERT_OK(hr_program_parse(text, &stream));
  HR_ASSERT_OK(hr_program_verify(&stream));
  for (int k = 0; k < 2; ++k) {
    HR_ASSERT_OK(hr_expand(&stream, NULL, NULL, &programs[k]));
    hr_versions(&programs[k]);
    if (k == 1) {
      HR_ASSERT_OK(hr_forward(&programs[k]));
    }
    HR_ASSERT_OK(hr_simplify(&programs[k]));
    hr_versions(&programs[k]);
    HR_ASSERT_OK(hr_program_verify(&programs[k]));
  }
  int removed = programs[0].node_count - programs[1].node_count;
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
  return removed;
}

#define ALL "[8]{1}+0"
#define FIVE                                                                                                    \
  "buffer %0 32 live\nbuffer %1 32 live\nbuffer %2 32 live\nbuffer %3 32 dead fresh\nbuffer %4 32 dead fresh\n" \
  "scalar $0 f64\n"
#define COPY(to, from) "%" to ":f32" ALL " = copy(%" from ":f32" ALL ")\n"
#define NEG(to, from) "%" to ":f32" ALL " = neg(%" from ":f32" ALL ")\n"

HR_TEST(copies_of_whole_buffers) {
  HR_ASSERT_EQ(check(FIVE COPY("3", "0") NEG("1", "3")), 1);
  HR_ASSERT_EQ(check(FIVE COPY("3", "0") COPY("4", "3") NEG("1", "4") NEG("2", "3")), 2);
  HR_ASSERT_EQ(check(FIVE NEG("0", "1") COPY("3", "0") NEG("1", "3")), 1);              /* written before */
  HR_ASSERT_EQ(check(FIVE COPY("3", "0") "%1:f32[4]{1}+0 = neg(%3:f32[4]{2}+1)\n"), 1); /* a view of it */
}

HR_TEST(copies_that_are_needed) {
  HR_ASSERT_EQ(check(FIVE COPY("3", "0") NEG("0", "1") NEG("1", "3")), 0); /* the copied buffer changes */
  HR_ASSERT_EQ(check(FIVE COPY("3", "0") COPY("4", "3") NEG("0", "1") NEG("1", "4")), 0 + 1); /* one of the two */
  HR_ASSERT_EQ(check(FIVE COPY("3", "0") "%3:f32[1]{1}+2 = neg(%1:f32[1]{1}+0)\n" NEG("1", "3")),
               0);                                                                      /* the copy does */
  HR_ASSERT_EQ(check(FIVE COPY("2", "0") NEG("1", "2")), 0);                            /* it is visible */
  HR_ASSERT_EQ(check(FIVE "%3:f32" ALL " = copy(%0:f32[8]{-1}+7)\n" NEG("1", "3")), 0); /* in another order */
  HR_ASSERT_EQ(check(FIVE "%3:f32" ALL " = copy(%0:f32[8]{0}+3)\n" NEG("1", "3")), 0);
  HR_ASSERT_EQ(check(FIVE "%3:i32" ALL " = copy(%0:f32" ALL ")\n%1:f32" ALL " = copy(%3:i32" ALL ")\n"), 0);
}
