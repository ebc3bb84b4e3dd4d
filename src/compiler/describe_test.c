/* Traffic counts: distinct elements against a count one by one, and the bytes of kernels and contractions. */
#include "hr_test.h"

#include <string.h>

#include "compiler/describe.h"
#include "core/ir/traffic.h"

/* ---- maps ---- */

typedef struct map {
  const char *name;
  int rank;
  int64_t dims[4], strides[4];
  int bound_count;
  hr_bound bounds[2];
} map;

#define COORDINATE(...) ((const int64_t[4]){__VA_ARGS__})

static const map maps[] = {
    {"one number", 0, {0}, {0}},
    {"nothing", 2, {3, 0}, {1, 1}},
    {"a whole tensor", 3, {2, 3, 4}, {12, 4, 1}},
    {"its transpose", 2, {4, 3}, {1, 4}},
    {"reversed", 2, {4, 3}, {-3, -1}},
    {"spread over rows", 2, {5, 3}, {0, 1}},
    {"every other element", 2, {4, 5}, {20, 2}},
    {"windows of three that overlap by one", 2, {5, 3}, {2, 1}},
    {"windows of two that leave gaps", 2, {4, 2}, {5, 1}},
    {"2 x 2 windows of a picture, channels last", 4, {3, 3, 2, 4}, {32, 8, 4, 1}},
    {"3 x 3 windows at every place", 4, {4, 4, 3, 3}, {6, 1, 6, 1}},
    {"padding by two", 1, {9}, {1}, 1, {{-2, 5, COORDINATE(1)}}},
    {"padding, backwards", 1, {9}, {-1}, 1, {{6, 5, COORDINATE(-1)}}},
    {"nothing inside", 1, {4}, {1}, 1, {{7, 5, COORDINATE(1)}}},
    {"every third of a padded row", 2, {2, 4}, {10, 3}, 1, {{-1, 10, COORDINATE(0, 3)}}},
    {"padded windows of three, stride two", 2, {5, 3}, {2, 1}, 1, {{-1, 9, COORDINATE(2, 1)}}},
    {"padded 3 x 3 windows",
     4,
     {4, 5, 3, 3},
     {5, 1, 5, 1},
     2,
     {{-1, 4, COORDINATE(1, 0, 1, 0)}, {-1, 5, COORDINATE(0, 1, 0, 1)}}},
};

static bool is_inside(const map *m, const int64_t *index) {
  bool inside = true;
  for (int b = 0; b < m->bound_count; ++b) {
    int64_t coordinate = m->bounds[b].offset;
    for (int d = 0; d < m->rank; ++d) {
      coordinate += index[d] * m->bounds[b].strides[d];
    }
    inside &= coordinate >= 0 && coordinate < m->bounds[b].extent;
  }
  return inside;
}

static int64_t count_one_by_one(const map *m) {
  bool seen[512] = {false};
  int64_t count = 0, points = 1;
  for (int d = 0; d < m->rank; ++d) {
    points *= m->dims[d];
  }
  for (int64_t p = 0; p < points; ++p) {
    int64_t index[4] = {0}, rest = p, at = 256;
    for (int d = m->rank - 1; d >= 0; --d) {
      index[d] = rest % m->dims[d];
      rest /= m->dims[d];
      at += index[d] * m->strides[d];
    }
    if (is_inside(m, index) && !seen[at]) {
      seen[at] = true;
      ++count;
    }
  }
  return count;
}

HR_TEST(distinct_elements_are_those_counted_one_by_one) {
  for (size_t i = 0; i < sizeof maps / sizeof *maps; ++i) {
    const map *m = &maps[i];
    int64_t count = hr_distinct_elements(m->rank, m->dims, m->strides, m->bound_count, m->bounds);
    if (count != count_one_by_one(m)) {
      HR_FAIL("%s: %lld elements, expected %lld", m->name, (long long)count, (long long)count_one_by_one(m));
    }
  }
}

/* ---- steps ---- */

static bool keeps_some(void *ctx, const hr_program *program, const hr_node *node) {
  (void)ctx, (void)program;
  bool is_attention = node->op == HR_OP_ATTENTION || node->op == HR_OP_ATTENTION_BACKWARD;
  return node->epilogue_count == 0 && (is_attention || hr_op_table(node->op)->family == HR_FAMILY_CONTRACTION);
}

/* Compiles a program of one step, and checks its traffic and its label. */
static void expect(const char *text, int64_t bytes_read, int64_t bytes_written, int64_t flops, const char *label) {
  hr_program program;
  hr_schedule schedule;
  hr_step_cost cost;
  hr_text described = {0};
  HR_ASSERT_OK(hr_program_parse(text, &program));
  HR_ASSERT_OK(hr_compile(&program, &(hr_target){.keeps = keeps_some, .verify = true}, &schedule));
  HR_ASSERT(schedule.step_count >= 1); /* a check of indices comes after */
  hr_step_count_cost(&schedule.steps[0], &cost);
  HR_ASSERT_EQ(cost.bytes_read, bytes_read);
  HR_ASSERT_EQ(cost.bytes_written, bytes_written);
  HR_ASSERT_EQ(cost.flops, flops);
  hr_step_describe(&schedule.steps[0], NULL, "x", &described);
  HR_ASSERT_STR_EQ(hr_text_chars(&described), label);
  hr_text_fini(&described);
  hr_schedule_fini(&schedule);
  hr_program_fini(&program);
}

HR_TEST(a_sum_and_a_relu_move_two_tensors_in_and_one_out) {
  expect("buffer %0 4096 live\nbuffer %1 4096 live\nbuffer %2 4096 dead fresh\nbuffer %3 4096 live fresh\n"
         "%2:f32[64,16]{16,1}+0 = add(%0:f32[64,16]{16,1}+0, %1:f32[64,16]{16,1}+0)\n"
         "%3:f32[64,16]{16,1}+0 = relu(%2:f32[64,16]{16,1}+0)\n",
         8192, 4096, 2048, "add_relu, 64x16");
}

HR_TEST(broadcast_elements_count_once) {
  expect("buffer %0 4096 live\nbuffer %1 64 live\nbuffer %2 4096 live fresh\n"
         "%2:f32[64,16]{16,1}+0 = add(%0:f32[64,16]{16,1}+0, %1:f32[64,16]{0,1}+0)\n",
         4096 + 64, 4096, 1024, "add, 64x16");
}

HR_TEST(views_that_overlap_count_what_they_reach) {
  expect("buffer %0 40960 live\nbuffer %1 4000 live fresh\n"
         "%1:f32[1000]{1}+0 = add(%0:f32[1000]{1}+0, %0:f32[1000]{1}+10)\n",
         4040, 4000, 1000, "add, 1000");
  expect("buffer %0 40960 live\nbuffer %1 100 live fresh\n"
         "%1:f32[5,5]{5,1}+0 = relu(%0:f32[5,5]{3,2}+0)\n", /* of numbers 0 to 20, some are none of them */
         21 * 4, 100, 25, "relu, 5x5");
}

HR_TEST(elements_loaded_in_three_phases_count_once) {
  expect("buffer %0 32768 live\nbuffer %1 32768 live fresh\n"
         "%1:f32[64,128]{128,1}+0 = softmax(%0:f32[64,128]{128,1}+0) ints(1)\n",
         32768, 32768, 5 * 64 * 128, "amax_sub_exp_sum_div, 64x[128]");
}

HR_TEST(in_place_moves_in_and_out) {
  expect("buffer %0 4096 live\n"
         "%0:f32[1024]{1}+0 = mul(%0:f32[1024]{1}+0, %0:f32[1024]{1}+0)\n",
         4096, 4096, 1024, "mul, 1024");
}

HR_TEST(a_gather_counts_its_elements_and_indices) {
  expect("buffer %0 40000 live\nbuffer %1 800 live\nbuffer %2 400 live fresh\n"
         "%2:f32[4,25]{25,1}+0 = gather(%0:f32[400,25]{25,1}+0, %1:i64[4,25]{25,1}+0) ints(0)\n",
         400 + 800, 400 + 8, 600, "lt_ge_logical_or_maximum_where_amax_copy, [4]x[25]");
}

HR_TEST(a_product_is_counted_by_its_shapes) {
  expect("buffer %0 8192 live\nbuffer %1 2048 live\nbuffer %2 64 live\nbuffer %3 4096 live fresh\n"
         "%3:f32[64,16]{16,1}+0 = matmul(%0:f32[64,32]{32,1}+0, %1:f32[32,16]{16,1}+0, %2:f32[64,16]{0,1}+0)\n",
         8192 + 2048 + 64, 4096, 2 * 64 * 32 * 16, "matmul 64x32 * 32x16 by x, + bias");
}

HR_TEST(convolutions_and_their_gradients_have_equal_flops) {
  enum { X = 2 * 4 * 8 * 8 * 4, W = 6 * 4 * 3 * 3 * 4, Y = 2 * 6 * 4 * 4 * 4, FLOPS = 2 * (Y / 4) * (4 * 3 * 3) };
  expect("buffer %0 2048 live\nbuffer %1 864 live\nbuffer %2 768 live fresh\n"
         "%2:f32[2,6,4,4]{96,16,4,1}+0 = conv(%0:f32[2,4,8,8]{256,64,8,1}+0, %1:f32[6,4,3,3]{36,9,3,1}+0, _) "
         "ints(2,2,2,1,1,1,1,1)\n",
         X + W, Y, FLOPS, "conv 2x4x8x8 * 6x4x3x3 stride 2 by x");
  expect("buffer %0 768 live\nbuffer %1 864 live\nbuffer %2 2048 live fresh\n"
         "%2:f32[2,4,8,8]{256,64,8,1}+0 = conv_backward_data(%0:f32[2,6,4,4]{96,16,4,1}+0, "
         "%1:f32[6,4,3,3]{36,9,3,1}+0, _) ints(2,2,2,1,1,1,1,1)\n",
         Y + W, X, FLOPS, "conv_backward_data 2x6x4x4 * 6x4x3x3 stride 2 by x");
  expect("buffer %0 2048 live\nbuffer %1 768 live\nbuffer %2 864 live fresh\n"
         "%2:f32[6,4,3,3]{36,9,3,1}+0 = conv_backward_weight(%0:f32[2,4,8,8]{256,64,8,1}+0, "
         "%1:f32[2,6,4,4]{96,16,4,1}+0) ints(2,2,2,1,1,1,1,1)\n",
         X + Y, W, FLOPS, "conv_backward_weight 2x4x8x8 * 2x6x4x4 stride 2 by x");
}

HR_TEST(attention_is_counted_by_the_scores_that_it_sees) {
  const int64_t q = 2 * 8 * 4, k = 2 * 6 * 4, v = 2 * 6 * 3, y = 2 * 8 * 3, lse = 2 * 8;
  expect(
      "buffer %0 256 live\nbuffer %1 192 live\nbuffer %2 144 live\nbuffer %3 192 live fresh\nbuffer %4 64 live fresh\n"
      "scalar $0 f64\n%3:f32[1,2,8,3]{48,24,3,1}+0, %4:f32[1,2,8]{16,8,1}+0 = attention(%0:f32[1,2,8,4]{64,32,4,1}+0, "
      "%1:f32[1,2,6,4]{48,24,4,1}+0, %2:f32[1,2,6,3]{36,18,3,1}+0, _) ints(0) scalars($0)\n",
      4 * (q + k + v), 4 * (y + lse), 2 * 2 * 8 * 6 * (4 + 3), "attention 1x2x8x4 1x2x6x4 1x2x6x3 by x");
}
