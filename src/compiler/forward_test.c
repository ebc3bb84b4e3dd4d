/* Forwarded copies: which ones lose their readers, and that visible results stay the same. */
#include "value_pair.h"

/* Returns the number of nodes that the pass makes useless. */
static int check(const char *text) {
  value_pair pair = open_value_pair(text);
  bool is_changed;
  HR_ASSERT_OK(hr_simplify(&pair.programs[1]));
  HR_ASSERT_OK(hr_forward(&pair.programs[1], &is_changed));
  for (int k = 0; k < 2; ++k) {
    HR_ASSERT_OK(hr_simplify(&pair.programs[k]));
    hr_versions(&pair.programs[k]);
    HR_ASSERT_OK(hr_program_verify(&pair.programs[k]));
  }
  int removed = pair.programs[0].node_count - pair.programs[1].node_count;
  close_value_pair(&pair);
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

#define SLICE(of, from) "%" of ":f32[1]{1}+2 = neg(%" from ":f32[1]{1}+0)\n"

HR_TEST(temporaries_that_end_with_a_copy) {
  HR_ASSERT_EQ(check(FIVE NEG("3", "0") COPY("4", "3") SLICE("4", "1") NEG("2", "4")), 1);
  HR_ASSERT_EQ(check("buffer %0 32 live\nbuffer %1 32 live\nbuffer %2 32 live fresh\nbuffer %3 32 dead fresh\n"
                     "buffer %4 32 dead fresh\nscalar $0 f64\n" NEG("3", "0") COPY("4", "3") SLICE("4", "1")
                         COPY("2", "4") SLICE("2", "0")),
               2); /* one after the other, into a visible one */
  HR_ASSERT_EQ(check(FIVE NEG("3", "0") COPY("4", "3") SLICE("4", "1") NEG("2", "4") NEG("1", "3")),
               0); /* read later */
  HR_ASSERT_EQ(check(FIVE NEG("3", "0") COPY("4", "3") SLICE("4", "3") NEG("2", "4")), 0);
  HR_ASSERT_EQ(check(FIVE NEG("3", "0") COPY("2", "3") SLICE("2", "1")), 0); /* older contents were there */
  HR_ASSERT_EQ(check(FIVE NEG("3", "0") NEG("4", "1") NEG("1", "4") COPY("4", "3") SLICE("4", "0") NEG("2", "4")),
               0); /* it was in use */
}

/* The gradient of a slice of a row of a tensor: zeros, part of which is replaced, and zeros, all of which are. */
HR_TEST(copies_over_what_nobody_reads) {
#define ZEROS(of) "%" of ":f32" ALL " = copy($0)\n"
  HR_ASSERT_EQ(check(FIVE ZEROS("3") SLICE("3", "0") ZEROS("4") COPY("4", "3") NEG("1", "4") NEG("2", "4")), 1);
  HR_ASSERT_EQ(check(FIVE ZEROS("3") SLICE("3", "0") ZEROS("4") NEG("1", "4") COPY("4", "3") NEG("2", "4")), 0);
#undef ZEROS
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
