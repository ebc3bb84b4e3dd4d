/* Runs of operations over lists become one chain for each element of the lists, or stay as they are. */
#include "hr_test.h"

#include "compiler/passes.h"
#include "core/ir/build.h"

static char *chained(const char *text) {
  hr_program program, out, again;
  hr_text printed = {0}, twice = {0};
  HR_ASSERT_OK(hr_program_parse(text, &program));
  HR_ASSERT_OK(hr_chain(&program, &out));
  HR_ASSERT_OK(hr_program_verify(&out));
  HR_ASSERT_OK(hr_program_print(&out, &printed));
  HR_ASSERT_OK(hr_program_parse(hr_text_chars(&printed), &again));
  HR_ASSERT_OK(hr_program_print(&again, &twice));
  HR_ASSERT(strcmp(hr_text_chars(&printed), hr_text_chars(&twice)) == 0);
  char *result = strdup(hr_text_chars(&printed));
  hr_text_fini(&printed);
  hr_text_fini(&twice);
  hr_program_fini(&again);
  hr_arena_fini(&out.arena);
  hr_program_fini(&program);
  return result;
}

static int count(const char *text, const char *part) {
  int found = 0;
  for (const char *at = strstr(text, part); at != NULL; at = strstr(at + 1, part)) {
    ++found;
  }
  return found;
}

static int count_chains(const char *text) {
  char *result = chained(text);
  int chains = count(result, "loop ");
  free(result);
  return chains;
}

static const char *const BUFFERS =
    "buffer %0 64 live\nbuffer %1 64 live\nbuffer %2 64 live\nbuffer %3 64 live\nbuffer %4 64 dead fresh\n"
    "buffer %5 64 dead fresh\nbuffer %6 64 live\nbuffer %7 64 live\nscalar $0 f64\nscalar $1 f64\n";

/* The buffers above and lines in which "%N" stands for a vector of 16 floats. */
static char *program(const char *lines) {
  hr_text text = {0};
  hr_text_append(&text, BUFFERS);
  for (const char *at = lines; *at != '\0'; ++at) {
    hr_text_char(&text, *at);
    bool is_number = at > lines && at[-1] == '%';
    if (is_number && at[1] != ':') {
      hr_text_append(&text, ":f32[16]{1}+0");
    }
  }
  char *result = strdup(hr_text_chars(&text));
  hr_text_fini(&text);
  return result;
}

static int chains_in(const char *lines) {
  char *text = program(lines);
  int chains = count_chains(text);
  free(text);
  return chains;
}

/* An average, a square root that nothing else reads, and an update of two parameters. */
HR_TEST(an_optimizer_is_a_chain_for_each_parameter) {
  char *text = program("%0, %1 = lerp(%0, %1, %2, %3, $0, $0)\n"
                       "%4, %5 = sqrt(%0, %1)\n"
                       "%6, %7 = addcdiv(%6, %7, %0, %1, %4, %5, $1, $1)\n");
  char *result = chained(text);
  HR_ASSERT_EQ(count(result, "loop "), 2);
  HR_ASSERT_EQ(count(result, " to(0) then(sqrt,^) then(addcdiv,3,^0,^,4) origin(2)"), 2);
  HR_ASSERT_EQ(count(result, "loop %0:f32[16]{1}+0, %6:f32[16]{1}+0 = lerp(%0:"), 1);
  HR_ASSERT_EQ(count(result, "%4:"), 0);
  free(result);
  free(text);
}

HR_TEST(results_that_are_read_later_are_stored) {
  HR_ASSERT_EQ(chains_in("%4, %5 = sqrt(%0, %1)\n%6, %7 = neg(%4, %5)\n%0 = add(%4, %5)\n"), 2);
  char *text = program("%4, %5 = sqrt(%0, %1)\n%6, %7 = neg(%4, %5)\n%0 = add(%4, %5)\n");
  char *result = chained(text);
  HR_ASSERT_EQ(count(result, "loop %4:f32[16]{1}+0, %6:f32[16]{1}+0 = sqrt("), 1);
  HR_ASSERT_EQ(count(result, "%0:f32[16]{1}+0 = add("), 1);
  free(result);
  free(text);
}

HR_TEST(what_a_later_row_replaces_is_stored_once) {
  char *text = program("%0, %1 = neg(%0, %1)\n%0, %1 = mul(%0, %1, %0, %1)\n");
  char *result = chained(text);
  HR_ASSERT_EQ(count(result, "loop %0:f32[16]{1}+0 = neg(%0:f32[16]{1}+0) then(mul,^,^) origin(1)"), 1);
  free(result);
  free(text);
}

HR_TEST(one_number_is_spread_over_an_element) {
  HR_ASSERT_EQ(chains_in("%0, %1 = mul(%0, %1, %2:f32[]{}+3, %2:f32[]{}+3)\n%0, %1 = neg(%0, %1)\n"), 2);
}

HR_TEST(elements_that_use_what_others_write_stay) {
  HR_ASSERT_EQ(chains_in("%0, %1 = neg(%0, %1)\n%2, %3 = add(%1, %0, %2, %3)\n"), 0);
  HR_ASSERT_EQ(chains_in("%0, %1 = neg(%2, %2)\n%0, %1 = add(%0, %1, %2, %2)\n"), 2); /* both read it */
  HR_ASSERT_EQ(chains_in("%0, %1 = neg(%2, %2)\n%2, %3 = add(%0, %1, %0, %1)\n"), 0); /* one writes it later */
}

HR_TEST(other_views_of_what_is_written_stay) {
  const char *reversed = "%0, %1 = neg(%2, %3)\n%0, %1 = add(%0:f32[16]{-1}+15, %1:f32[16]{-1}+15, %2, %3)\n";
  const char *before = "%4, %5 = neg(%0:f32[16]{-1}+15, %1:f32[16]{-1}+15)\n%0, %1 = add(%4, %5, %2, %3)\n";
  const char *bits = "%0, %1 = neg(%0, %1)\n%6, %7 = add(%0:i32[16]{1}+0, %1:i32[16]{1}+0, %2, %3)\n";
  HR_ASSERT_EQ(chains_in(reversed), 0);
  HR_ASSERT_EQ(chains_in(before), 0);
  HR_ASSERT_EQ(chains_in(bits), 0);
}

HR_TEST(other_dims_dtypes_and_lengths_stay) {
  HR_ASSERT_EQ(
      chains_in("%0, %1 = neg(%0, %1)\n%2:f32[4]{1}+0, %3:f32[4]{1}+0 = neg(%0:f32[4]{1}+0, %1:f32[4]{1}+0)\n"), 0);
  HR_ASSERT_EQ(chains_in("%0, %1 = neg(%0, %1)\n%2:f16[16]{1}+0, %3:f16[16]{1}+0 = neg(%0, %1)\n"), 0);
  HR_ASSERT_EQ(chains_in("%0, %1 = neg(%0, %1)\n%0, %1, %2 = neg(%0, %1, %2)\n"), 0);
  HR_ASSERT_EQ(chains_in("%0, %1 = neg(%0, %1)\n%2 = neg(%0)\n%0, %1 = neg(%0, %1)\n"), 0);
  HR_ASSERT_EQ(chains_in("%0:f32[4,4]{4,1}+0, %1 = neg(%0:f32[4,4]{4,1}+0, %1)\n"
                         "%0:f32[4,4]{4,1}+0, %1 = add(%0:f32[4,4]{4,1}+0, %1, %2:f32[4]{1}+0, %3)\n"),
               0);
}

HR_TEST(elements_without_numbers_have_no_chain) {
  HR_ASSERT_EQ(chains_in("%0:f32[0]{1}+0, %1 = neg(%0:f32[0]{1}+0, %1)\n"
                         "%0:f32[0]{1}+0, %1 = neg(%0:f32[0]{1}+0, %1)\n"),
               1);
}

/* 20 operations are a chain of 16 and one of 4, which reads what the first one has stored. */
HR_TEST(long_runs_are_cut) {
  hr_text lines = {0};
  for (int i = 0; i < 10; ++i) {
    hr_text_append(&lines, "%4, %5 = neg(%0, %1)\n%0, %1 = add(%4, %5, %2, %3)\n");
  }
  HR_ASSERT_EQ(chains_in(hr_text_chars(&lines)), 4);
  hr_text_fini(&lines);
}
