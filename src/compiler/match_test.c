/* Matching: which loops become epilogues of a contraction, which must not, and that the numbers stay. */
#include "hr_test.h"

#include "base/text.h"
#include "compiler/passes.h"
#include "program_runner.h"

/* ---- running ---- */

static bool keep_all(void *ctx, const hr_program *program, const hr_node *node) {
  (void)ctx, (void)program, (void)node;
  return true;
}

static bool keep_plain(void *ctx, const hr_program *program, const hr_node *node) {
  (void)ctx, (void)program;
  return node->epilogue_count == 0;
}

static void value_form(const char *text, hr_program *out_program) {
  hr_program stream;
  HR_ASSERT_OK(hr_program_parse(text, &stream));
  HR_ASSERT_OK(hr_program_verify(&stream));
  HR_ASSERT_OK(hr_expand(&stream, keep_plain, NULL, out_program));
  hr_versions(out_program);
  hr_program_fini(&stream);
}

static int count_epilogues(const hr_program *program) {
  int count = 0;
  for (int n = 0; n < program->node_count; ++n) {
    count += program->nodes[n].epilogue_count;
  }
  return count;
}

/* Printed programs parse back to the same program. */
static void check_text(const hr_program *program) {
  hr_text first = {0}, second = {0};
  hr_program again;
  HR_ASSERT_OK(hr_program_print(program, &first));
  HR_ASSERT_OK(hr_program_parse(hr_text_chars(&first), &again));
  HR_ASSERT_OK(hr_program_verify(&again));
  HR_ASSERT_OK(hr_program_print(&again, &second));
  HR_ASSERT_STR_EQ(hr_text_chars(&first), hr_text_chars(&second));
  hr_program_fini(&again);
  hr_text_fini(&first);
  hr_text_fini(&second);
}

static float same_bits_or_nan(float a) {
  return a != a ? 0 : a;
}

/* Evaluates the program with and without matching on the same contents: live buffers must agree to the bit, since the
 * reference computes epilogues as the loops that they were. Returns the number of epilogues. */
static int check_match_for(const char *text, const hr_target *target) {
  hr_program programs[2];
  float *memory[2][16];
  const hr_scalar scalars[2] = {hr_scalar_f64(0.25), hr_scalar_f64(-1.5)};
  for (int k = 0; k < 2; ++k) {
    value_form(text, &programs[k]);
    unsigned state = 1;
    for (int b = 0; b < programs[k].bound_count; ++b) {
      size_t count = programs[k].buffers[b].bytes / sizeof(float);
      memory[k][b] = hr_calloc(count + 2, sizeof(float));
      for (size_t i = 0; i < count && !programs[k].buffers[b].is_fresh; ++i) {
        state = state * 1664525u + 1013904223u;
        memory[k][b][i] = (float)(int)(state >> 8) / (float)(1 << 23) - 1;
      }
    }
    memory[k][0][1] = NAN; /* activations and weights of each test are buffers 0 and 1 */
  }
  HR_ASSERT_OK(hr_match(&programs[1], target, false));
  hr_versions(&programs[1]);
  HR_ASSERT_OK(hr_program_verify(&programs[1]));
  check_text(&programs[1]);
  for (int k = 0; k < 2; ++k) {
    hr__to_stream_form(&programs[k]);
    HR_ASSERT_OK(hr_program_evaluate(&programs[k], (void *const *)memory[k], scalars));
  }
  for (int b = 0; b < programs[0].bound_count; ++b) {
    for (size_t i = 0; !programs[0].buffers[b].is_dead && i < programs[0].buffers[b].bytes / sizeof(float); ++i) {
      float expected = same_bits_or_nan(memory[0][b][i]), actual = same_bits_or_nan(memory[1][b][i]);
      HR_ASSERT(target->folds_scales ? fabsf(actual - expected) <= 1e-6F : actual == expected);
      HR_ASSERT(isnan(memory[1][b][i]) == isnan(memory[0][b][i]));
    }
  }
  int epilogues = count_epilogues(&programs[1]);
  for (int k = 0; k < 2; ++k) {
    for (int b = 0; b < programs[k].bound_count; ++b) {
      hr_free(memory[k][b]);
    }
    hr_program_fini(&programs[k]);
  }
  return epilogues;
}

static int check_match(const char *text, hr_keep_fn keeps) {
  return check_match_for(text, &(const hr_target){.keeps = keeps});
}

/* ---- programs: x [2,3,4,4], w [3,3,1,1], y and its kin [2,3,4,4] ---- */

#define INPUTS "buffer %0 384 live\nbuffer %1 36 live\n"
#define DENSE "[2,3,4,4]{48,16,4,1}+0"
#define X "%0:f32" DENSE
#define W "%1:f32[3,3,1,1]{3,1,1,1}+0"
#define CONV " = conv(" X ", " W ") ints(2,1,1,0,0,1,1,1)\n"
#define T(b) "%" #b ":f32" DENSE
#define VECTOR(b) "%" #b ":f32[2,3,4,4]{0,1,0,0}+0"
#define DEAD(b) "buffer %" #b " 384 dead fresh\n"
#define LIVE(b) "buffer %" #b " 384 live\n"

HR_TEST(takes_one_row) {
  HR_ASSERT_EQ(check_match(INPUTS DEAD(2) LIVE(3) T(2) CONV T(3) " = relu(" T(2) ")\n", keep_all), 1);
  HR_ASSERT_EQ(check_match(INPUTS DEAD(2) LIVE(3) T(2) CONV T(3) " = mul(" T(2) ", " T(2) ")\n", keep_all), 1);
}

/* The second time, only pairs of which one's layout has changed are tried. */
HR_TEST(tries_changed_pairs_again) {
  const hr_target target = {.keeps = keep_all};
  hr_program program;
  value_form(INPUTS DEAD(2) LIVE(3) T(2) CONV T(3) " = relu(" T(2) ")\n", &program);
  HR_ASSERT_OK(hr_match(&program, &target, true));
  HR_ASSERT_EQ(program.node_count, 2);
  program.nodes[1].is_relaid = true;
  HR_ASSERT_OK(hr_match(&program, &target, true));
  HR_ASSERT_EQ(program.node_count, 1);
  HR_ASSERT_EQ(program.nodes[0].epilogue_count, 1);
  hr_program_fini(&program);
}

HR_TEST(asks_the_target) {
  HR_ASSERT_EQ(check_match(INPUTS DEAD(2) LIVE(3) T(2) CONV T(3) " = relu(" T(2) ")\n", keep_plain), 0);
}

HR_TEST(chains_collapse) {
  const char *text = INPUTS "buffer %2 12 live\nbuffer %3 12 live\n" LIVE(4) DEAD(5) DEAD(6) DEAD(7) LIVE(8) T(5)
      CONV T(6) " = add_scaled(" VECTOR(2) ", " T(5) ", " VECTOR(3) ")\n" T(7) " = add(" T(6) ", " T(4) ")\n" T(
          8) " = relu(" T(7) ")\n";
  HR_ASSERT_EQ(check_match(text, keep_all), 3);
}

/* Each later product takes its own addition: else all of them would have to stay until the last one. */
HR_TEST(terms_of_a_sum_take_those_before_them) {
  const char *text = INPUTS DEAD(2) DEAD(3) DEAD(4) DEAD(5) DEAD(6) DEAD(7) LIVE(8) T(2) CONV T(3)
      CONV T(4) " = add(" T(2) ", " T(3) ")\n" T(5) CONV T(6) " = add(" T(4) ", " T(5) ")\n" T(7)
          CONV T(8) " = add(" T(7) ", " T(6) ")\n";
  HR_ASSERT_EQ(check_match(text, keep_all), 3);
  hr_program program;
  value_form(text, &program);
  HR_ASSERT_OK(hr_match(&program, &(const hr_target){.keeps = keep_all}, false));
  HR_ASSERT_EQ(program.node_count, 4);
  for (int n = 0; n < program.node_count; ++n) {
    HR_ASSERT_EQ(program.nodes[n].epilogue_count, n > 0);
  }
  hr_program_fini(&program);
}

/* A contraction that may not take the sum leaves it to the one before it. */
static bool keep_first(void *ctx, const hr_program *program, const hr_node *node) {
  (void)ctx, (void)program;
  return node->epilogue_count == 0 || node->inputs[0].index == 0;
}

HR_TEST(a_term_that_takes_no_sum_is_added_by_those_before_it) {
  const char *text = INPUTS DEAD(2) LIVE(3) DEAD(4) DEAD(5) LIVE(6) T(2) CONV T(4) " = add(" T(2) ", " T(3) ")\n" T(
      5) " = conv(" T(3) ", " W ") ints(2,1,1,0,0,1,1,1)\n" T(6) " = add(" T(4) ", " T(5) ")\n";
  HR_ASSERT_EQ(check_match(text, keep_all), 2);
  HR_ASSERT_EQ(check_match(text, keep_first), 2);
}

/* Nothing but sums, and ReLU after one. */
static bool keep_sums(void *ctx, const hr_program *program, const hr_node *node) {
  (void)ctx, (void)program;
  bool is_kept = node->epilogue_count == 0 || node->epilogues[0].op == HR_OP_ADD;
  for (int i = 1; is_kept && i < node->epilogue_count; ++i) {
    is_kept = node->epilogues[i].op == HR_OP_ADD || node->epilogues[i].op == HR_OP_RELU;
  }
  return is_kept;
}

#define FACTORS "buffer %2 12 live\nbuffer %3 12 live\n"
#define ADD_SCALED(from, to, scale) T(to) " = add_scaled(" VECTOR(2) ", " T(from) ", " scale ")\n"

HR_TEST(scales_are_folded_into_weights_if_the_target_allows) {
  const hr_target folds = {.keeps = keep_sums, .folds_scales = true};
  const char *text = INPUTS FACTORS LIVE(4) DEAD(5) DEAD(6) DEAD(7) LIVE(8) T(5) CONV ADD_SCALED(5, 6, VECTOR(3))
      T(7) " = add(" T(6) ", " T(4) ")\n" T(8) " = relu(" T(7) ")\n";
  HR_ASSERT_EQ(check_match_for(text, &folds), 3);
  HR_ASSERT_EQ(check_match(text, keep_sums), 0);
  /* two in a row, each with its own weights; the first one's result is seen */
  text = INPUTS FACTORS DEAD(4) LIVE(5) DEAD(6) LIVE(7) T(4) CONV ADD_SCALED(4, 5, VECTOR(3))
      T(6) " = conv(" T(5) ", " W ") ints(2,1,1,0,0,1,1,1)\n" ADD_SCALED(6, 7, VECTOR(3));
  HR_ASSERT_EQ(check_match_for(text, &folds), 2);
  /* the scale is of each element, or the value scales itself */
  text = INPUTS FACTORS LIVE(4) DEAD(5) LIVE(6) T(5) CONV ADD_SCALED(5, 6, T(4));
  HR_ASSERT_EQ(check_match_for(text, &folds), 0);
  text = INPUTS FACTORS DEAD(4) LIVE(5) T(4) CONV ADD_SCALED(4, 5, T(4));
  HR_ASSERT_EQ(check_match_for(text, &folds), 0);
  /* the weights change in between */
  text = INPUTS FACTORS DEAD(4) LIVE(5) T(4) CONV "%1:f32[9]{1}+0 = neg(%1:f32[9]{1}+0)\n" ADD_SCALED(4, 5, VECTOR(3));
  HR_ASSERT_EQ(check_match_for(text, &folds), 0);
}

HR_TEST(numbers_stay_arguments) {
  const char *text = INPUTS DEAD(2) DEAD(3) LIVE(4) "scalar $0 f64\nscalar $1 f64\n" T(2)
      CONV T(3) " = leaky_relu(" T(2) ", $0)\n" T(4) " = mul(" T(3) ", $1)\n";
  HR_ASSERT_EQ(check_match(text, keep_all), 2);
}

HR_TEST(in_place) {
  /* on a visible buffer: only its final contents count */
  HR_ASSERT_EQ(check_match(INPUTS LIVE(2) T(2) CONV T(2) " = relu(" T(2) ")\n", keep_all), 1);
  /* the residual is written over */
  HR_ASSERT_EQ(check_match(INPUTS LIVE(2) DEAD(3) T(3) CONV T(2) " = add(" T(2) ", " T(3) ")\n", keep_all), 1);
  /* in place, but only on half of it */
  HR_ASSERT_EQ(check_match(INPUTS LIVE(2) T(2) CONV
                           "%2:f32[1,3,4,4]{48,16,4,1}+0 = relu(%2:f32[1,3,4,4]{48,16,4,1}+0)\n",
                           keep_all),
               0);
}

HR_TEST(others_see_the_result) {
  HR_ASSERT_EQ(check_match(INPUTS LIVE(2) LIVE(3) T(2) CONV T(3) " = relu(" T(2) ")\n", keep_all), 0);
  HR_ASSERT_EQ(check_match(INPUTS DEAD(2) LIVE(3) LIVE(4) T(2)
                               CONV T(3) " = relu(" T(2) ")\n" T(4) " = exp(" T(2) ")\n",
                           keep_all),
               0);
  HR_ASSERT_EQ(check_match(INPUTS DEAD(2) LIVE(3) "buffer %4 64 live\n" T(2) CONV
                           "%4:f32[4,4]{4,1}+0 = exp(%2:f32[4,4]{4,1}+16)\n" T(3) " = relu(" T(2) ")\n",
                           keep_all),
               0);
  /* a later node reads the row's result: it is kept */
  HR_ASSERT_EQ(check_match(INPUTS DEAD(2) LIVE(3) LIVE(4) T(2)
                               CONV T(3) " = relu(" T(2) ")\n" T(4) " = exp(" T(3) ")\n",
                           keep_all),
               1);
}

HR_TEST(inputs_change_in_between) {
  HR_ASSERT_EQ(check_match(INPUTS DEAD(2) LIVE(3) T(2) CONV X " = exp(" X ")\n" T(3) " = relu(" T(2) ")\n", keep_all),
               0);
  HR_ASSERT_EQ(
      check_match(INPUTS DEAD(2) LIVE(3) LIVE(4) T(2) CONV T(4) " = exp(" X ")\n" T(3) " = relu(" T(2) ")\n", keep_all),
      1);
}

HR_TEST(output_is_inside_an_input) {
  HR_ASSERT_EQ(check_match(INPUTS DEAD(2) T(2) CONV X " = relu(" T(2) ")\n", keep_all), 0);
}

HR_TEST(other_maps) {
  /* transposed, and all dims in another order */
  HR_ASSERT_EQ(check_match(INPUTS DEAD(2) LIVE(3) T(2) CONV T(3) " = relu(%2:f32[2,3,4,4]{48,16,1,4}+0)\n", keep_all),
               1);
  HR_ASSERT_EQ(check_match(INPUTS DEAD(2) LIVE(3) T(2) CONV "%3:f32[16,2,3]{3,48,1}+0"
                                                            " = relu(%2:f32[16,2,3]{1,48,16}+0)\n",
                           keep_all),
               1);
  /* a diagonal of each image, over itself */
  HR_ASSERT_EQ(
      check_match(INPUTS LIVE(2) T(2) CONV "%2:f32[2,3,4]{48,16,5}+0 = relu(%2:f32[2,3,4]{48,16,5}+0)\n", keep_all), 0);
  /* one image only */
  HR_ASSERT_EQ(check_match(INPUTS DEAD(2) "buffer %3 192 live\n" T(2) CONV "%3:f32[1,3,4,4]{48,16,4,1}+0"
                                                                           " = relu(%2:f32[1,3,4,4]{48,16,4,1}+48)\n",
                           keep_all),
               0);
  /* the same elements in other dims, beside a vector along the last one */
  HR_ASSERT_EQ(check_match(INPUTS DEAD(2) LIVE(3) "buffer %4 64 live\n" T(2) CONV
                           "%3:f32[6,16]{16,1}+0"
                           " = add(%2:f32[6,16]{16,1}+0, %4:f32[16]{1}+0)\n",
                           keep_all),
               1);
  /* a transposed result */
  HR_ASSERT_EQ(check_match(INPUTS DEAD(2) LIVE(3) T(2) CONV "%3:f32[2,3,4,4]{1,2,6,24}+0"
                                                            " = relu(" T(2) ")\n",
                           keep_all),
               1);
  /* dims that can't be joined: rows of [6,16] in a matrix of 20 columns, as [2,3,4,4] they can */
  HR_ASSERT_EQ(check_match(INPUTS DEAD(2) "buffer %3 480 live\n" T(2) CONV "%3:f32[6,16]{20,1}+0"
                                                                           " = relu(%2:f32[6,16]{16,1}+0)\n",
                           keep_all),
               1);
  /* rows of 12 in a matrix of 13 columns: no stride of an image */
  HR_ASSERT_EQ(check_match(INPUTS DEAD(2) "buffer %3 416 live\n" T(2) CONV "%3:f32[8,12]{13,1}+0"
                                                                           " = relu(%2:f32[8,12]{12,1}+0)\n",
                           keep_all),
               0);
}

HR_TEST(broadcast_operands) {
  HR_ASSERT_EQ(check_match(INPUTS DEAD(2) LIVE(3) "buffer %4 128 live\n" T(2)
                               CONV T(3) " = add(" T(2) ", %4:f32[2,1,4,4]{16,16,4,1}+0)\n",
                           keep_all),
               1);
}

HR_TEST(other_dtypes) {
  HR_ASSERT_EQ(
      check_match(INPUTS DEAD(2) "buffer %3 768 live\n" T(2) CONV "%3:f64" DENSE " = copy(" T(2) ")\n", keep_all), 0);
  HR_ASSERT_EQ(
      check_match(INPUTS DEAD(2) "buffer %3 96 live\n" T(2) CONV "%3:bool" DENSE " = gt(" T(2) ", " X ")\n", keep_all),
      0);
}

HR_TEST(reductions_stay) {
  HR_ASSERT_EQ(check_match(INPUTS DEAD(2) "buffer %3 12 live\n" T(2) CONV
                           "%3:f32[1,3,1,1]{3,1,1,1}+0 = sum(" T(2) ") ints(13)\n",
                           keep_all),
               0);
}

HR_TEST(checks_in_between) {
  /* when the check fails, the convolution's result must be there */
  HR_ASSERT_EQ(
      check_match(INPUTS LIVE(2) "buffer %3 8 dead fresh\nscalar $0 i64 = -9223372036854775808\n" T(2) CONV
                  "%3:i64[]{}+0 = copy($0)\ncheck_index(%3:i64[]{}+0) ints(0,5,0)\n" T(2) " = relu(" T(2) ")\n",
                  keep_all),
      0);
}

HR_TEST(two_contractions_share_a_sum) {
  /* the first takes it and moves after the second */
  const char *text = INPUTS DEAD(2) DEAD(3) LIVE(4) T(2) CONV T(3) CONV T(4) " = add(" T(2) ", " T(3) ")\n";
  HR_ASSERT_EQ(check_match(text, keep_all), 1);
}

HR_TEST(products) {
  const char *inputs = "buffer %0 96 live\nbuffer %1 80 live\nbuffer %2 120 dead fresh\nbuffer %3 120 live\n"
                       "buffer %4 20 live\n%2:f32[6,5]{5,1}+0 = matmul(%0:f32[6,4]{4,1}+0, %1:f32[4,5]{5,1}+0)\n";
  hr_text text = {0};
  HR_ASSERT(hr_text_printf(&text,
                           "%s%%3:f32[1,6,5]{30,5,1}+0 = add(%%2:f32[1,6,5]{30,5,1}+0, %%4:f32[5]{1}+0)\n"
                           "%%3:f32[2,3,5]{15,5,1}+0 = tanh(%%3:f32[2,3,5]{15,5,1}+0)\n",
                           inputs));
  HR_ASSERT_EQ(check_match(hr_text_chars(&text), keep_all), 2);
  hr_text_fini(&text);
}

HR_TEST(gradients_of_weights_and_inputs) {
  const char *text = INPUTS LIVE(2) "buffer %3 36 dead fresh\nbuffer %4 36 live\nscalar $0 f64\n"
                                    "%3:f32[3,3,1,1]{3,1,1,1}+0 = conv_backward_weight(" X
                                    ", " T(2) ") ints(2,1,1,0,0,1,1,1)\n"
                                              "%4:f32[3,3,1,1]{3,1,1,1}+0 = mul(%3:f32[3,3,1,1]{3,1,1,1}+0, $0)\n";
  HR_ASSERT_EQ(check_match(text, keep_all), 1);
}

/* At most HR_EPILOGUES_MAX rows are matched; the rest stays a loop. */
HR_TEST(long_chains) {
  hr_text text = {0};
  HR_ASSERT(hr_text_append(&text, INPUTS LIVE(2) T(2) CONV));
  for (int i = 0; i < HR_EPILOGUES_MAX + 3; ++i) {
    HR_ASSERT(hr_text_append(&text, T(2) " = tanh(" T(2) ")\n"));
  }
  HR_ASSERT_EQ(check_match(hr_text_chars(&text), keep_all), HR_EPILOGUES_MAX);
  hr_text_fini(&text);
}

/* ---- random programs ---- */

static unsigned random_state;

static int below(int count) {
  random_state = random_state * 1664525u + 1013904223u;
  return (int)((random_state >> 16) % (unsigned)count);
}

/* Rows on random buffers, in place or not, between convolutions: the bits are the same for any matching. */
HR_TEST(random_programs) {
  static const char *const flags[] = {"live", "dead fresh"};
  static const char *const rows[] = {"relu", "exp", "tanh"}, *const pairs[] = {"add", "mul", "sub"};
  int total = 0;
  for (unsigned seed = 1; seed <= 300; ++seed) {
    random_state = seed * 2654435761u;
    hr_text text = {0};
    HR_ASSERT(hr_text_append(&text, INPUTS));
    for (int b = 2; b < 7; ++b) {
      HR_ASSERT(hr_text_printf(&text, "buffer %%%d 384 %s\n", b, flags[b == 6 ? 0 : below(2)]));
    }
    for (int b = 2; b < 7; ++b) { /* nothing is read before it is written */
      HR_ASSERT(hr_text_printf(&text, "%%%d:f32%s = relu(%s)\n", b, DENSE, X));
    }
    for (int n = 0; n < 12; ++n) {
      int a = 2 + below(5), c = 2 + below(5), to = below(2) == 0 ? a : 2 + below(5);
      HR_ASSERT(hr_text_printf(&text, "%%%d:f32" DENSE " = ", to));
      switch (below(3)) {
        case 0:
          HR_ASSERT(hr_text_printf(&text, "conv(%%%d:f32%s, %s) ints(2,1,1,0,0,1,1,1)\n", a, DENSE, W));
          break;
        case 1:
          HR_ASSERT(hr_text_printf(&text, "%s(%%%d:f32" DENSE ")\n", rows[below(3)], a));
          break;
        default:
          HR_ASSERT(hr_text_printf(&text, "%s(%%%d:f32" DENSE ", %%%d:f32" DENSE ")\n", pairs[below(3)], a, c));
          break;
      }
    }
    total += check_match(hr_text_chars(&text), keep_all);
    hr_text_fini(&text);
  }
  HR_ASSERT(total > 100);
}

/* ---- programs that the verifier rejects ---- */

static void expect_broken(const char *node) {
  hr_text text = {0};
  hr_program program;
  HR_ASSERT(hr_text_printf(&text, "%s%s", INPUTS LIVE(2) LIVE(3), node));
  HR_ASSERT_OK(hr_program_parse(hr_text_chars(&text), &program));
  hr_status status = hr_program_verify(&program);
  HR_ASSERT(status != HR_OK);
  hr_status_free(status);
  hr_program_fini(&program);
  hr_text_fini(&text);
}

#define CONV_WITH(inputs, epilogues) T(3) " = conv(" X ", " W ", _" inputs ") ints(2,1,1,0,0,1,1,1) " epilogues "\n"

HR_TEST(verifier) {
  expect_broken(CONV_WITH("", "then(sum,^)"));
  expect_broken(CONV_WITH("", "then(gt,^,^)"));
  expect_broken(CONV_WITH("", "then(add,^,3)"));
  expect_broken(CONV_WITH("", "then(add,^,0)"));
  expect_broken(CONV_WITH(", " T(2), "then(add,3,3)"));
  expect_broken(CONV_WITH(", %2:f32[3]{1}+0", "then(add,^,3)"));
  expect_broken(CONV_WITH("", "then(bit_and,^,^)"));
  expect_broken(T(3) " = relu(" T(2) ") then(relu,^)\n");
}
