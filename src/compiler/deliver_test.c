/* Delivering: which results a composite writes to a copy's destination, and that visible results stay the same. */
#include "hr_test.h"

#include "compiler/passes.h"
#include "program_runner.h"

enum { BUFFERS = 16 };

static bool keep_all(void *ctx, const hr_program *program, const hr_node *node) {
  (void)ctx, (void)program, (void)node;
  return true;
}

/* A provider whose rows have to be neighbours. */
static bool keep_rows(void *ctx, const hr_program *program, const hr_node *node) {
  (void)ctx, (void)program;
  return node->outputs[0].strides[node->outputs[0].rank - 1] == 1;
}

/* Runs a program in value form on contents that follow from the buffers' numbers. */
static void evaluate(const hr_program *value, float *memory[BUFFERS]) {
  const hr_scalar scalars[2] = {hr_scalar_f64(0.5), hr_scalar_f64(-1.5)};
  hr_program loops;
  hr_program_buffer *buffers = value->buffers;
  for (int n = 0; n < value->node_count; ++n) {
    value->nodes[n].is_loop = false; /* copies are recorded as they are */
  }
  HR_ASSERT_OK(hr_expand(value, NULL, NULL, &loops));
  for (int b = 0; b < value->bound_count; ++b) {
    int count = (int)(buffers[b].bytes / sizeof(float));
    memory[b] = hr_calloc((size_t)count + 2, sizeof(float));
    for (int i = 0; i < count && !buffers[b].is_fresh; ++i) {
      memory[b][i] = (float)((i * 37 + b * 11) % 101 - 50) / 32;
    }
  }
  memory[0][1] = NAN, memory[0][100] = INFINITY;
  HR_ASSERT_OK(hr_program_evaluate(&loops, (void *const *)memory, scalars));
  hr_program_fini(&loops);
}

/* Returns the number of copies left. Visible results have the same bits with all of them. */
static int check(const char *text, hr_keep_fn keeps) {
  hr_program stream, programs[2];
  float *memory[2][BUFFERS];
  int left = 0;
  HR_ASSERT_OK(hr_program_parse(text, &stream));
  HR_ASSERT_OK(hr_program_verify(&stream));
  for (int k = 0; k < 2; ++k) {
    HR_ASSERT_OK(hr_expand(&stream, keep_all, NULL, &programs[k]));
    hr_versions(&programs[k]);
  }
  HR_ASSERT_OK(hr_deliver(&programs[1], &(hr_target){.keeps = keeps}));
  hr_versions(&programs[1]);
  HR_ASSERT_OK(hr_program_verify(&programs[1]));
  for (int n = 0; n < programs[1].node_count; ++n) {
    left += programs[1].nodes[n].op == HR_OP_COPY;
  }
  for (int k = 0; k < 2; ++k) {
    hr__to_stream_form(&programs[k]);
    evaluate(&programs[k], memory[k]);
  }
  for (int b = 0; b < stream.bound_count; ++b) {
    HR_ASSERT(stream.buffers[b].is_dead || memcmp(memory[0][b], memory[1][b], stream.buffers[b].bytes) == 0);
  }
  for (int k = 0; k < 2; ++k) {
    for (int b = 0; b < programs[k].bound_count; ++b) {
      hr_free(memory[k][b]);
    }
    hr_program_fini(&programs[k]);
  }
  hr_program_fini(&stream);
  return left;
}

/* ---- attention of 2 x 3 heads of 4 x 5: q, k, v are %0, %1, %2, y is %3 and the log-sum-exp %4 ---- */

#define HEAD "[2,3,4,5]{60,20,5,1}+0"
#define INPUTS "buffer %0 480 live\nbuffer %1 480 live\nbuffer %2 480 live\n"
#define NUMBERS "scalar $0 f64\nscalar $1 f64\n"
#define Y "buffer %3 480 dead fresh\nbuffer %4 96 live fresh\n"
#define ATTENTION                                                                                                   \
  "%3:f32" HEAD ", %4:f32[2,3,4]{12,4,1}+0 = attention(%0:f32" HEAD ", %1:f32" HEAD ", %2:f32" HEAD ", _) ints(0) " \
  "scalars($0)\n"
/* Rows of all heads, in the layout that the projection after attention needs. */
#define ROWS(to) to ":f32[2,4,3,5]{60,15,5,1}+0 = copy(%3:f32[2,4,3,5]{60,5,20,1}+0)\n"

HR_TEST(a_permuted_copy) {
  const char *text = INPUTS Y "buffer %5 480 live fresh\n" NUMBERS ATTENTION ROWS("%5");
  HR_ASSERT_EQ(check(text, keep_all), 0);
  HR_ASSERT_EQ(check(text, keep_rows), 0);
}

HR_TEST(the_target_decides) {
  const char *text =
      INPUTS Y "buffer %5 480 live fresh\n" NUMBERS ATTENTION "%5:f32[2,3,4,5]{60,20,1,4}+0 = copy(%3:f32" HEAD ")\n";
  HR_ASSERT_EQ(check(text, keep_all), 0);
  HR_ASSERT_EQ(check(text, keep_rows), 1);
}

HR_TEST(merged_and_split_dims) {
  /* rows of 15 beside 9 others, through %5; then every second number */
  const char *chain = INPUTS Y "buffer %5 480 dead fresh\nbuffer %6 960 live\n" NUMBERS ATTENTION ROWS(
      "%5") "%6:f32[8,15]{24,1}+7 = copy(%5:f32[8,15]{15,1}+0)\n";
  HR_ASSERT_EQ(check(chain, keep_all), 0);
  const char *flat = INPUTS Y "buffer %5 1200 live\n" NUMBERS ATTENTION "%5:f32[120]{2}+3 = copy(%3:f32[120]{1}+0)\n";
  HR_ASSERT_EQ(check(flat, keep_all), 0);
}

HR_TEST(parts_stay_copies) {
  /* half of the batches; all of them twice; the second half elsewhere */
  HR_ASSERT_EQ(check(INPUTS Y "buffer %5 480 live\n" NUMBERS ATTENTION
                              "%5:f32[1,3,4,5]{60,20,5,1}+0 = copy(%3:f32[1,3,4,5]{60,20,5,1}+60)\n",
                     keep_all),
               1);
  HR_ASSERT_EQ(check(INPUTS Y "buffer %5 960 live\n" NUMBERS ATTENTION
                              "%5:f32[2,2,3,4,5]{120,60,20,5,1}+0 = copy(%3:f32[2,2,3,4,5]{60,0,20,5,1}+0)\n",
                     keep_all),
               1);
  HR_ASSERT_EQ(check(INPUTS Y "buffer %5 480 live\n" NUMBERS ATTENTION
                              "%5:f32[60]{1}+0 = copy(%3:f32[60]{1}+0)\n%5:f32[60]{1}+60 = copy(%3:f32[60]{1}+60)\n",
                     keep_all),
               2);
}

HR_TEST(seen_results_stay) {
  /* alive; read twice; changed first; narrowed on the way */
  HR_ASSERT_EQ(check(INPUTS
                     "buffer %3 480 live\nbuffer %4 96 live fresh\nbuffer %5 480 live\n" NUMBERS ATTENTION ROWS("%5"),
                     keep_all),
               1);
  HR_ASSERT_EQ(
      check(INPUTS Y "buffer %5 480 live\nbuffer %6 480 live\n" NUMBERS ATTENTION ROWS("%5") ROWS("%6"), keep_all), 2);
  HR_ASSERT_EQ(check(INPUTS Y "buffer %5 480 live\n" NUMBERS ATTENTION
                              "%3:f32[60]{1}+0 = copy(%2:f32[60]{1}+0)\n" ROWS("%5"),
                     keep_all),
               2);
  HR_ASSERT_EQ(
      check(INPUTS Y "buffer %5 480 live\n" NUMBERS ATTENTION "%5:f16" HEAD " = copy(%3:f32" HEAD ")\n", keep_all), 1);
}

HR_TEST(destinations_in_use) {
  /* read by attention itself; read, or written, in between; written before and after */
  HR_ASSERT_EQ(check(INPUTS Y NUMBERS ATTENTION ROWS("%0"), keep_all), 1);
  HR_ASSERT_EQ(check(INPUTS Y "buffer %5 480 live\nbuffer %6 480 live\n" NUMBERS ATTENTION
                              "%6:f32[120]{1}+0 = copy(%5:f32[120]{1}+0)\n" ROWS("%5"),
                     keep_all),
               2);
  HR_ASSERT_EQ(check(INPUTS Y "buffer %5 480 live\n" NUMBERS ATTENTION
                              "%5:f32[120]{1}+0 = copy(%2:f32[120]{1}+0)\n" ROWS("%5"),
                     keep_all),
               2);
  HR_ASSERT_EQ(check(INPUTS Y "buffer %5 480 live\n" NUMBERS
                              "%5:f32[120]{1}+0 = copy(%2:f32[120]{1}+0)\n" ATTENTION ROWS(
                                  "%5") "%5:f32[5]{1}+10 = copy(%2:f32[5]{1}+0)\n",
                     keep_all),
               2);
}

HR_TEST(checks_in_between) {
#define CHECK(buffer)                                                                       \
  INPUTS Y "buffer %5 480 " buffer "\nbuffer %6 8 dead fresh\nbuffer %7 480 live\n" NUMBERS \
           "scalar $2 i64 = -9223372036854775808\n" ATTENTION                               \
           "%6:i64[]{}+0 = copy($2)\ncheck_index(%6:i64[]{}+0) ints(0,5,0)\n" ROWS(         \
               "%5") "%7:f32[120]{1}+0 = copy(%5:f32[120]{1}+0)\n"
  HR_ASSERT_EQ(check(CHECK("live"), keep_all), 3);
  HR_ASSERT_EQ(check(CHECK("dead fresh"), keep_all), 2); /* up to the buffer that dies */
}

/* The gradients of query, key and value, side by side in the gradient of one projection. */
HR_TEST(several_results_in_one_buffer) {
#define GRADIENT(b) "%" #b ":f32" HEAD
#define COPY(from, to) "%8:f32[2,4,3,5]{180,45,5,1}+" #to " = copy(%" #from ":f32[2,4,3,5]{60,5,20,1}+0)\n"
  const char *before =
      INPUTS "buffer %3 480 live\nbuffer %4 96 live\nbuffer %5 480 dead fresh\nbuffer %6 480 dead fresh\n"
             "buffer %7 480 dead fresh\nbuffer %8 1440 live fresh\n" NUMBERS;
  const char *backward =
      GRADIENT(5) ", " GRADIENT(6) ", " GRADIENT(7) ", _ = attention_backward(%2:f32" HEAD ", %0:f32" HEAD
                                                    ", %1:f32" HEAD ", %2:f32" HEAD ", _, %3:f32" HEAD
                                                    ", %4:f32[2,3,4]{12,4,1}+0) ints(1) scalars($0)\n";
  char text[4096];
  snprintf(text, sizeof text, "%s%s%s", before, backward, COPY(5, 0) COPY(6, 15) COPY(7, 30));
  HR_ASSERT_EQ(check(text, keep_all), 0);
  snprintf(text, sizeof text, "%s%s%s", before, backward, COPY(7, 0) COPY(5, 30) COPY(6, 15));
  HR_ASSERT_EQ(check(text, keep_all), 0);
  snprintf(text, sizeof text, "%s%s%s", before, backward, COPY(5, 0) COPY(6, 0) COPY(7, 15)); /* the last one counts */
  HR_ASSERT(check(text, keep_all) >= 1);
}
