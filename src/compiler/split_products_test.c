/* Products of f32 by 16-bit parts: the same numbers, where these are exact, in all layouts, and for infinities. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hr_test.h"

#include "base/allocator.h"
#include "compiler/passes.h"
#include "program_runner.h"

enum { BUFFERS = 4, LENGTH = 512 };

static float whole(unsigned *state, int bits) {
  *state = *state * 1664525u + 1013904223u;
  int size = (int)(*state >> (32 - bits));
  return (float)(*state & 256 ? -size : size);
}

/* Whole numbers whose products have 18 bits, and their sums 23; -1: infinities, NaN and numbers that bf16 rounds up to
 * infinity in between. */
static void fill(float *x, int bits, unsigned state) {
  static const float special[] = {INFINITY, -INFINITY, NAN, 0x1.ff8p127f, 1, 0};
  for (int i = 0; i < LENGTH; ++i) {
    float number = whole(&state, bits < 0 ? 3 : bits);
    x[i] = bits < 0 && (state >> 8) % 16 == 0 ? special[(state >> 16) % 6] : number;
  }
}

static void run(const char *text, float memory[BUFFERS][LENGTH], int64_t split_terms, int64_t split_bytes) {
  hr_program program;
  void *buffers[16] = {memory[0], memory[1], memory[2], memory[3]};
  HR_ASSERT_OK(hr_program_parse(text, &program));
  HR_ASSERT_OK(hr__run_interpreted(
      &program, buffers, NULL,
      (hr__run_options){.row_alignment = 16, .split_terms = split_terms, .split_bytes = split_bytes}));
  hr_program_fini(&program);
}

/* %0 and %1 are factors, %2 a bias and %3 the result. */
static void check(const char *node, int left_bits, int right_bits, int64_t split_terms, int64_t split_bytes) {
  char text[512];
  float memory[2][BUFFERS][LENGTH];
  for (int k = 0; k < 2; ++k) {
    fill(memory[k][0], left_bits, 1), fill(memory[k][1], right_bits, 2);
    fill(memory[k][2], 3, 3), fill(memory[k][3], 3, 4);
  }
  snprintf(text, sizeof text,
           "buffer %%0 2048 live\nbuffer %%1 2048 live\nbuffer %%2 2048 live\nbuffer %%3 2048 live\n%s", node);
  run(text, memory[0], 0, 0);
  run(text, memory[1], split_terms, split_bytes);
  for (int i = 0; i < LENGTH; ++i) {
    float a = memory[0][3][i], b = memory[1][3][i];
    if (a != b && !(isnan(a) && isnan(b))) {
      fprintf(stderr, "%s: element %d is %g, expected %g\n", node, i, (double)b, (double)a);
      HR_ASSERT(false);
    }
  }
}

static const char *const products[] = {
    "%3:f32[6,5]{5,1}+0 = matmul(%0:f32[6,20]{20,1}+0, %1:f32[20,5]{5,1}+0, _)\n",
    "%3:f32[6,5]{5,1}+3 = matmul(%0:f32[6,20]{1,7}+1, %1:f32[20,5]{1,23}+2, %2:f32[6,5]{0,1}+4)\n",
    "%3:f32[6,5]{1,8}+0 = matmul(%0:f32[6,20]{24,1}+0, %1:f32[20,5]{5,1}+0, _)\n",
    "%3:f32[6,8]{8,1}+0 = matmul(%0:f32[6,8]{8,1}+0, %1:f32[8,8]{8,1}+0, _)\n",
    "%3:f32[6,8]{8,1}+0 = matmul(%0:f32[6,8]{8,1}+0, %1:f32[8,8]{8,1}+0, %2:f32[6,8]{0,1}+0)\n",
    "%3:f32[2,3,5]{15,5,1}+0 = matmul(%0:f32[2,3,20]{60,20,1}+0, %1:f32[2,20,5]{0,5,1}+0, %2:f32[2,3,5]{0,0,1}+0)\n",
    "%3:f32[1,6,5]{900,5,1}+0 = matmul(%0:f32[1,6,20]{7,20,1}+0, %1:f32[1,20,5]{3,5,1}+0, _)\n",
    "%3:f32[5,8]{8,1}+8 = matmul(%0:f32[5,8]{8,1}+0, %1:f32[8,8]{8,1}+0, _)\n",
    "%3:f32[5,8]{8,1}+8 = matmul(%0:f32[5,8]{1,5}+0, %1:f32[8,8]{1,8}+0, _)\n",
    "%3:f32[1,1]{1,1}+0 = matmul(%0:f32[1,1]{1,1}+0, %1:f32[1,1]{1,1}+0, _)\n",
    "%3:f32[3,2]{6,3}+0 = matmul(%0:f32[3,33]{66,2}+0, %1:f32[33,2]{4,2}+1, _)\n",
};

HR_TEST(exact_products) {
  static const int bits[][2] = {{17, 1}, {1, 17}, {9, 9}, {13, 5}};
  for (size_t i = 0; i < sizeof products / sizeof *products; ++i) {
    for (int k = 0; k < 4; ++k) {
      for (int terms = 8; terms <= 64; terms *= 2) {
        check(products[i], bits[k][0], bits[k][1], terms, 0);
      }
    }
  }
}

HR_TEST(infinities_and_nan) {
  for (size_t i = 0; i < sizeof products / sizeof *products; ++i) {
    check(products[i], -1, 2, 8, 0);
    check(products[i], 2, -1, 16, 0);
    check(products[i], -1, -1, 64, 0);
  }
}

static bool keep_products(void *ctx, const hr_program *program, const hr_node *node) {
  (void)ctx, (void)program;
  return node->op == HR_OP_MATMUL && node->epilogue_count == 0;
}

/* Pieces of 8 rows or columns; the last is shorter. */
HR_TEST(pieces) {
  static const char *const nodes[] = {
      "%3:f32[20,18]{18,1}+0 = matmul(%0:f32[20,20]{20,1}+0, %1:f32[20,18]{18,1}+0, %2:f32[20,18]{0,1}+0)\n",
      "%3:f32[18,20]{20,1}+0 = matmul(%0:f32[18,20]{1,18}+0, %1:f32[20,20]{20,1}+0, %2:f32[18,20]{0,1}+0)\n",
      "%3:f32[20,18]{18,1}+0 = matmul(%0:f32[20,20]{1,20}+0, %1:f32[20,18]{1,20}+0, _)\n",
      "%3:f32[18,20]{1,18}+0 = matmul(%0:f32[18,20]{20,1}+0, %1:f32[20,20]{1,20}+0, _)\n",
      "%3:f32[21,8]{8,1}+0 = matmul(%0:f32[21,8]{8,1}+0, %1:f32[8,8]{8,1}+0, _)\n",
      "%3:f32[8,24]{24,1}+0 = matmul(%0:f32[8,8]{8,1}+0, %1:f32[8,24]{24,1}+0, _)\n",
  };
  for (size_t i = 0; i < sizeof nodes / sizeof *nodes; ++i) {
    for (int64_t bytes = 1000; bytes < 20000; bytes += 500) {
      check(nodes[i], 9, 9, 8, bytes);
      check(nodes[i], -1, 2, 24, bytes);
    }
  }
}

static int part_buffers; /* of the last program below: those with the size of a matrix's parts */

/* The products of parts in a program of matrices [2048, 2048], and the bytes of temporaries. */
static int count_split(const char *nodes, int64_t split_bytes, size_t *out_bytes) {
  char text[1024];
  hr_program program;
  hr_schedule schedule;
  int count = 0;
  snprintf(text, sizeof text,
           "buffer %%0 16777216 live\nbuffer %%1 16777216 live\nbuffer %%2 16777216 live fresh\n"
           "buffer %%3 16777216 live fresh\nbuffer %%4 16777216 dead fresh\n%s",
           nodes);
  HR_ASSERT_OK(hr_program_parse(text, &program));
  const hr_target target = {.keeps = keep_products, .split_bytes = split_bytes, .verify = true};
  HR_ASSERT_OK(hr_compile(&program, &target, &schedule));
  for (int i = 0; i < schedule.step_count; ++i) {
    count += schedule.steps[i].kind == HR_STEP_LIBRARY && schedule.steps[i].node->inputs[0].dtype == HR_DTYPE_BF16;
  }
  part_buffers = 0;
  for (int b = 0; b < schedule.program.buffer_count; ++b) {
    part_buffers += schedule.program.buffers[b].bytes == 2048 * 2048 * 12;
  }
  *out_bytes = schedule.arena_bytes;
  hr_schedule_fini(&schedule);
  hr_program_fini(&program);
  return count;
}

#define LARGE "%2:f32[2048,2048]{2048,1}+0 = matmul(%0:f32[2048,2048]{2048,1}+0, %1:f32[2048,2048]{2048,1}+0, _)\n"

#define SMALL "%2:f32[128,2048]{2048,1}+0 = matmul(%0:f32[128,2048]{2048,1}+0, %1:f32[2048,2048]{2048,1}+0, _)\n"
#define WIDE "%2:f64[1024,1024]{1024,1}+0 = matmul(%0:f64[1024,2048]{2048,1}+0, %1:f64[2048,1024]{1024,1}+0, _)\n"

HR_TEST(only_large_products_of_f32) {
  size_t bytes;
  HR_ASSERT_EQ(count_split(LARGE, INT64_C(1) << 30, &bytes), 1);
  HR_ASSERT_EQ(count_split(LARGE, INT64_C(1) << 25, &bytes), 0);
  HR_ASSERT_EQ(count_split(LARGE, 0, &bytes), 0);
  HR_ASSERT_EQ(count_split(SMALL, INT64_C(1) << 30, &bytes), 0);
  HR_ASSERT_EQ(count_split(WIDE, INT64_C(1) << 30, &bytes), 0);
}

/* A gradient in two products, as rows and as columns: 50 MB for the parts of a factor, 67 MB for the sums. */
HR_TEST(pieces_take_turns_in_memory) {
  static const char *const nodes =
      "%4:f32[2048,2048]{2048,1}+0 = exp(%0:f32[2048,2048]{2048,1}+0)\n"
      "%2:f32[2048,2048]{2048,1}+0 = matmul(%4:f32[2048,2048]{2048,1}+0, %1:f32[2048,2048]{2048,1}+0, _)\n"
      "%3:f32[2048,2048]{2048,1}+0 = matmul(%4:f32[2048,2048]{1,2048}+0, %1:f32[2048,2048]{2048,1}+0, _)\n";
  const size_t matrix = 2048 * 2048 * sizeof(float), limit = 80 << 20;
  size_t bytes;
  HR_ASSERT_EQ(count_split(nodes, INT64_MAX, &bytes), 2);
  HR_ASSERT(bytes > 2 * limit);
  int count = count_split(nodes, (int64_t)limit, &bytes);
  HR_ASSERT(count >= 6);
  HR_ASSERT(bytes <= limit + matrix);
}

/* Of a factor that two products read, unless it has changed in between. */
HR_TEST(parts_are_made_once) {
  static const char *const between[] = {"", "%1:f32[2048,2048]{2048,1}+0 = exp(%1:f32[2048,2048]{2048,1}+0)\n",
                                        "%0:f32[2048,2048]{2048,1}+0 = exp(%0:f32[2048,2048]{2048,1}+0)\n"};
  size_t bytes[3];
  for (int i = 0; i < 3; ++i) {
    char nodes[1024];
    snprintf(nodes, sizeof nodes,
             "%%2:f32[2048,2048]{2048,1}+0 = matmul(%%0:f32[2048,2048]{2048,1}+0, %%1:f32[2048,2048]{2048,1}+0, _)\n"
             "%s%%3:f32[2048,2048]{2048,1}+0 = matmul(%%0:f32[2048,2048]{2048,1}+0, "
             "%%1:f32[2048,2048]{2048,1}+0, _)\n",
             between[i]);
    HR_ASSERT_EQ(count_split(nodes, INT64_MAX, &bytes[i]), 2);
    HR_ASSERT_EQ(part_buffers, i == 0 ? 2 : 3);
  }
}

HR_TEST(every_failing_allocation_is_an_error) {
  bool is_done = false;
  for (int n = 0; !is_done; ++n) {
    hr_program program;
    bool is_changed;
    HR_ASSERT_OK(hr_program_parse("buffer %0 480 live\nbuffer %1 400 live\nbuffer %2 120 live\n"
                                  "%2:f32[6,5]{5,1}+0 = matmul(%0:f32[6,20]{20,1}+0, %1:f32[20,5]{5,1}+0, _)\n",
                                  &program));
    hr__allocator_fail_after(n);
    hr_status status = hr_split_products(&program, &(hr_target){.split_bytes = 1 << 20, .split_terms = 8}, &is_changed);
    hr__allocator_fail_after(-1);
    is_done = status == HR_OK;
    HR_ASSERT_EQ(hr_status_code_of(status), is_done ? HR_STATUS_OK : HR_STATUS_RESOURCE_EXHAUSTED);
    HR_ASSERT(!is_done || is_changed);
    hr_status_free(status);
    hr_program_fini(&program);
  }
}
