/* Longer rows for products of 16-bit numbers: the same bits in buffers that have grown, and growth only if allowed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hr_test.h"

#include "base/allocator.h"
#include "compiler/passes.h"
#include "program_runner.h"

enum { BUFFERS_MAX = 16 };

static void fill(void *memory, size_t bytes, unsigned state) {
  for (size_t i = 0; i + 1 < bytes;
       i += 2) { /* bf16 between 0.5 and 2, of both signs; tiny numbers in f32 and i64 alike */
    state = state * 1664525u + 1013904223u;
    uint16_t bits = (uint16_t)((state >> 16 & 0x80ff) | 0x3f00);
    memcpy((char *)memory + i, &bits, sizeof bits);
  }
}

static void **memory_of(const hr_program *program) {
  void **memory = calloc(BUFFERS_MAX, sizeof *memory);
  HR_ASSERT(program->buffer_count <= BUFFERS_MAX);
  for (int b = 0; b < program->buffer_count; ++b) {
    memory[b] = hr__exact_alloc(program->buffers[b].bytes);
    fill(memory[b], program->buffers[b].bytes, (unsigned)b + 1);
  }
  return memory;
}

/* Runs a program as it is and with rows at multiples of 16 bytes. All live buffers agree to the bit; returns the number
 * of buffers that have grown. `index` >= 0: a buffer of i64 that holds 1, 0, 1, 0, .. */
static int64_t grows_by_index(const char *text, int index) {
  hr_program program;
  HR_ASSERT_OK(hr_program_parse(text, &program));
  int64_t grown = 0;
  const hr__run_options options[2] = {{.cut = 0}, {.row_alignment = 16, .depth_work = 1, .grown = &grown}};
  void **memory[2] = {memory_of(&program), memory_of(&program)};
  for (int k = 0; k < 2; ++k) {
    for (size_t i = 0; index >= 0 && i < program.buffers[index].bytes / sizeof(int64_t); ++i) {
      ((int64_t *)memory[k][index])[i] = i % 2 == 0;
    }
    HR_ASSERT_OK(hr__run_interpreted(&program, memory[k], NULL, options[k]));
  }
  for (int b = 0; b < program.buffer_count; ++b) {
    HR_ASSERT(program.buffers[b].is_dead || memcmp(memory[0][b], memory[1][b], program.buffers[b].bytes) == 0);
  }
  for (int k = 0; k < 2; ++k) {
    hr__memory_free(&program, memory[k]);
  }
  hr_program_fini(&program);
  return grown;
}

static int64_t grows(const char *text) {
  return grows_by_index(text, -1);
}

/* x[6, 8] w[33, 8] -> y[6, 33], dead */
#define FACTORS "buffer %0 96 live\nbuffer %1 528 live\nbuffer %2 396 dead fresh\n"
#define X "%0:bf16[6,8]{8,1}+0"
#define W "%1:bf16[8,33]{1,8}+0"
#define Y "%2:bf16[6,33]{33,1}+0"
#define PRODUCT Y " = matmul(" X ", " W ", _)\n"

HR_TEST(logits_and_their_gradient) {
  HR_ASSERT_EQ(grows(FACTORS "buffer %3 792 live fresh\nbuffer %4 396 dead fresh\nbuffer %5 96 live fresh\n"
                             "buffer %6 528 live fresh\n" PRODUCT "%3:f32[6,33]{33,1}+0 = log_softmax(" Y ") ints(1)\n"
                             "%4:bf16[6,33]{33,1}+0 = exp(%3:f32[6,33]{33,1}+0)\n"
                             "%5:bf16[6,8]{8,1}+0 = matmul(%4:bf16[6,33]{33,1}+0, %1:bf16[33,8]{8,1}+0, _)\n"
                             "%6:bf16[33,8]{8,1}+0 = matmul(%4:bf16[33,6]{1,33}+0, " X ", _)\n"),
               2);
}

static bool keep_products(void *ctx, const hr_program *program, const hr_node *node) {
  (void)ctx;
  (void)program;
  return node->op == HR_OP_MATMUL && node->epilogue_count == 0;
}

static bool is_wide, is_tall; /* all products of the last program made whole rows; one made 40 of them */

/* The number of products that sum over `depth`; if it is negative, of those that make rows of -depth elements. */
static int count_deep(const char *text, int64_t depth, int64_t depth_work) {
  hr_program program;
  hr_schedule schedule;
  int count = 0;
  is_wide = true, is_tall = false;
  HR_ASSERT_OK(hr_program_parse(text, &program));
  const hr_target target = {.keeps = keep_products, .row_alignment = 16, .depth_work = depth_work, .verify = true};
  HR_ASSERT_OK(hr_compile(&program, &target, &schedule));
  for (int i = 0; i < schedule.step_count; ++i) {
    const hr_node *node = schedule.steps[i].node;
    if (schedule.steps[i].kind == HR_STEP_LIBRARY) {
      const hr_operand *a = &node->inputs[0], *b = &node->inputs[1];
      HR_ASSERT_EQ(a->dims[a->rank - 1], b->dims[b->rank - 2]);
      HR_ASSERT_EQ(node->outputs[0].dims[a->rank - 1], b->dims[b->rank - 1]);
      HR_ASSERT_EQ(node->outputs[0].dims[a->rank - 2], a->dims[a->rank - 2]);
      is_wide = is_wide && b->dims[b->rank - 1] % 8 == 0;
      is_tall = is_tall || a->dims[a->rank - 2] == 40;
      count +=
          depth > 0 ? a->dims[a->rank - 1] == depth : node->outputs[0].strides[node->outputs[0].rank - 2] == -depth;
    }
  }
  hr_schedule_fini(&schedule);
  hr_program_fini(&program);
  return count;
}

/* The gradient of logits times weights, in either order: the gradient's rows end in zeros, and the weights are copied
 * to the same length. */
HR_TEST(large_products_sum_zeros_at_the_end) {
  /* The last two: weights that would be copied for each batch, and a part of the rows. */
  static const char *const products[] = {
      "%4:bf16[600,8]{8,1}+0 = matmul(%3:bf16[600,33]{33,1}+0, %1:bf16[33,8]{8,1}+0, _)\n",
      "%4:bf16[8,600]{600,1}+0 = matmul(%1:bf16[8,33]{1,8}+0, %3:bf16[33,600]{1,33}+0, _)\n",
      "%4:bf16[600,8]{8,1}+0 = matmul(%3:bf16[600,33]{33,1}+0, %1:bf16[33,8]{1,33}+0, _)\n",
      "%4:bf16[3,200,8]{1600,8,1}+0 = matmul(%3:bf16[3,200,33]{6600,33,1}+0, %1:bf16[3,33,8]{0,8,1}+0, _)\n",
      "%4:bf16[600,8]{8,1}+0 = matmul(%3:bf16[600,32]{33,1}+1, %1:bf16[32,8]{8,1}+0, _)\n",
  };
  for (int i = 0; i < 5; ++i) {
    char text[1024];
    snprintf(text, sizeof text,
             "buffer %%0 9600 live\nbuffer %%1 528 live\nbuffer %%2 39600 dead fresh\nbuffer %%3 39600 dead fresh\n"
             "buffer %%4 9600 live fresh\n%%2:bf16[600,33]{33,1}+0 = matmul(%%0:bf16[600,8]{8,1}+0, %s, _)\n"
             "%%3:bf16[600,33]{33,1}+0 = exp(%%2:bf16[600,33]{33,1}+0)\n%s",
             W, products[i]);
    HR_ASSERT_EQ(grows(text), i < 4 ? 2 : 1);
    HR_ASSERT_EQ(count_deep(text, 40, 1), i < 3);
    HR_ASSERT_EQ(count_deep(text, 40, 0), 0);
  }
}

/* Live logits, whole and as every other matrix of a buffer; then a product that is not worth it, and rows that are
 * even. */
HR_TEST(large_products_of_odd_rows_go_through_even_ones) {
  static const char *const products[] = {
      "%2:bf16[6,33]{33,1}+0 = matmul(%0:bf16[6,600]{600,1}+0, %1:bf16[600,33]{1,600}+0, _)\n",
      "%2:bf16[2,3,33]{198,33,1}+0 = matmul(%0:bf16[2,3,600]{1800,600,1}+0, %1:bf16[2,600,33]{0,1,600}+0, _)\n",
      "%2:bf16[6,33]{33,1}+0 = matmul(%0:bf16[6,500]{600,1}+0, %1:bf16[500,33]{1,600}+0, _)\n",
      "%2:bf16[6,33]{40,1}+0 = matmul(%0:bf16[6,600]{600,1}+0, %1:bf16[600,33]{1,600}+0, _)\n",
  };
  for (int i = 0; i < 4; ++i) {
    char text[512];
    snprintf(text, sizeof text,
             "buffer %%0 7200 live\nbuffer %%1 39600 live\nbuffer %%2 792 live\nbuffer %%3 792 live fresh\n%s"
             "%%3:f32[198]{1}+0 = exp(%%2:bf16[198]{1}+0)\n",
             products[i]);
    HR_ASSERT_EQ(grows(text), 0);
    HR_ASSERT_EQ(count_deep(text, -40, 1), i != 2);
    HR_ASSERT_EQ(count_deep(text, -40, 0), i == 3);
  }
}

/* Logits that die: of 600 rows, of 6, which are not worth a copy of the weights, with a bias; logits that live on:
 * worth a copy, or not. */
HR_TEST(large_products_make_whole_rows) {
  static const struct {
    int rows, depth;
    const char *bias, *life;
  } cases[] = {{600, 8, "_", "dead fresh"},
               {6, 8, "_", "dead fresh"},
               {600, 8, "%4:bf16[600,33]{0,1}+0", "dead fresh"},
               {600, 600, "_", "live"},
               {600, 8, "_", "live"}};
  for (int i = 0; i < 5; ++i) {
    char text[768];
    int m = cases[i].rows, k = cases[i].depth;
    snprintf(text, sizeof text,
             "buffer %%0 %d live\nbuffer %%1 %d live\nbuffer %%2 %d %s\nbuffer %%3 %d live fresh\n"
             "buffer %%4 66 live\n"
             "%%2:bf16[%d,33]{33,1}+0 = matmul(%%0:bf16[%d,%d]{%d,1}+0, %%1:bf16[%d,33]{1,%d}+0, %s)\n"
             "%%3:f32[%d,33]{33,1}+0 = log_softmax(%%2:bf16[%d,33]{33,1}+0) ints(1)\n",
             2 * m * k, 66 * k, 66 * m, cases[i].life, 132 * m, m, m, k, k, k, k, cases[i].bias, m, m);
    HR_ASSERT_EQ(grows(text), i < 3);
    (void)count_deep(text, 1, 1);
    HR_ASSERT_EQ(is_wide, i == 0 || i == 3);
    (void)count_deep(text, 1, 0);
    HR_ASSERT(!is_wide);
  }
}

/* The gradient of the weights: of 600 rows, of 6, and with a bias. */
HR_TEST(large_products_have_all_rows_of_columns_that_have_grown) {
  for (int i = 0; i < 3; ++i) {
    char text[768];
    int m = i == 1 ? 6 : 600;
    const char *bias = i == 2 ? "%1:bf16[33,8]{0,1}+0" : "_";
    snprintf(text, sizeof text,
             "buffer %%0 %d live\nbuffer %%1 528 live\nbuffer %%2 %d dead fresh\nbuffer %%3 %d dead fresh\n"
             "buffer %%4 528 live fresh\n"
             "%%2:bf16[%d,33]{33,1}+0 = matmul(%%0:bf16[%d,8]{8,1}+0, %s, _)\n"
             "%%3:bf16[%d,33]{33,1}+0 = exp(%%2:bf16[%d,33]{33,1}+0)\n"
             "%%4:bf16[33,8]{8,1}+0 = matmul(%%3:bf16[33,%d]{1,33}+0, %%0:bf16[%d,8]{8,1}+0, %s)\n",
             16 * m, 66 * m, 66 * m, m, m, W, m, m, m, m, bias);
    HR_ASSERT_EQ(grows(text), 2);
    (void)count_deep(text, 1, 1);
    HR_ASSERT_EQ(is_tall, i == 0);
  }
}

HR_TEST(sums_over_rows_and_over_columns) {
  HR_ASSERT_EQ(grows(FACTORS "buffer %3 12 live fresh\nbuffer %4 66 live fresh\nbuffer %5 24 live fresh\n" PRODUCT
                             "%3:bf16[6,1]{1,1}+0 = sum(" Y ") ints(2)\n"
                             "%4:bf16[1,33]{33,1}+0 = sum(" Y ") ints(1)\n"
                             "%5:f32[6,1]{1,1}+0 = amax(" Y ") ints(2)\n"),
               1);
}

HR_TEST(views_of_columns_and_of_rows_follow) {
  HR_ASSERT_EQ(grows(FACTORS "buffer %3 120 live fresh\nbuffer %4 66 live fresh\nbuffer %5 396 live fresh\n"
                             "buffer %6 396 live fresh\n" PRODUCT "%3:bf16[6,10]{10,1}+0 = exp(%2:bf16[6,10]{33,2}+5)\n"
                             "%4:bf16[33]{1}+0 = tanh(%2:bf16[33]{-1}+131)\n"
                             "%2:bf16[2,33]{33,1}+66 = neg(%2:bf16[2,33]{33,1}+66)\n"
                             "%5:bf16[33,6]{6,1}+0 = neg(%2:bf16[33,6]{1,33}+0)\n"
                             "%6:bf16[2,3,33]{99,33,1}+0 = exp(%2:bf16[2,3,33]{99,33,1}+0)\n"),
               1);
}

HR_TEST(batches_are_rows) {
  HR_ASSERT_EQ(grows("buffer %0 96 live\nbuffer %1 528 live\nbuffer %2 396 dead fresh\nbuffer %3 396 live fresh\n"
                     "%2:bf16[2,3,33]{99,33,1}+0 = matmul(%0:bf16[2,3,8]{24,8,1}+0, %1:bf16[8,33]{1,8}+0, _)\n"
                     "%3:bf16[6,33]{33,1}+0 = relu(" Y ")\n"),
               1);
  HR_ASSERT_EQ(grows("buffer %0 96 live\nbuffer %1 528 live\nbuffer %2 396 dead fresh\nbuffer %3 396 live fresh\n"
                     "%2:bf16[3,2,33]{33,99,1}+0 = matmul(%0:bf16[3,2,8]{8,24,1}+0, %1:bf16[8,33]{1,8}+0, _)\n"
                     "%3:bf16[6,33]{33,1}+0 = relu(" Y ")\n"),
               1);
}

HR_TEST(rows_that_are_looked_up_follow) {
  HR_ASSERT_EQ(grows_by_index(FACTORS "buffer %3 264 live fresh\nbuffer %4 32 live\n" PRODUCT
                                      "%3:bf16[4,33]{33,1}+0 = index_select(" Y ", %4:i64[4]{1}+0) ints(0)\n",
                              4),
               1);
  HR_ASSERT_EQ(grows_by_index(FACTORS "buffer %3 12 live fresh\nbuffer %4 48 live\n" PRODUCT
                                      "%3:bf16[6,1]{1,1}+0 = gather(" Y ", %4:i64[6,1]{1,1}+0) ints(1)\n",
                              4),
               1);
}

HR_TEST(rows_that_cannot_or_need_not_grow_stay) {
  /* alive; not fresh; seen as one row; written as one row; read across the ends of rows */
  HR_ASSERT_EQ(grows("buffer %0 96 live\nbuffer %1 528 live\nbuffer %2 396 live fresh\n" PRODUCT), 0);
  HR_ASSERT_EQ(grows("buffer %0 96 live\nbuffer %1 528 live\nbuffer %2 396 dead\nbuffer %3 396 live fresh\n" PRODUCT
                     "%3:bf16[6,33]{33,1}+0 = relu(" Y ")\n"),
               0);
  HR_ASSERT_EQ(grows(FACTORS "buffer %3 396 live fresh\n" PRODUCT "%3:bf16[198]{1}+0 = relu(%2:bf16[198]{1}+0)\n"), 0);
  HR_ASSERT_EQ(grows(FACTORS "buffer %3 96 live fresh\n"
                             "%2:bf16[198]{1}+0 = relu(%1:bf16[198]{1}+0)\n"
                             "%3:bf16[6,8]{8,1}+0 = matmul(" Y ", %1:bf16[33,8]{8,1}+0, _)\n"),
               0);
  HR_ASSERT_EQ(
      grows(FACTORS "buffer %3 396 live fresh\n" PRODUCT "%3:bf16[4,34]{34,1}+0 = relu(%2:bf16[4,34]{34,1}+0)\n"), 0);
  /* even; so short that a quarter would be waste; a part of its buffer; a single row; 32 bits */
  HR_ASSERT_EQ(grows("buffer %0 96 live\nbuffer %1 512 live\nbuffer %2 384 dead fresh\nbuffer %3 384 live fresh\n"
                     "%2:bf16[6,32]{32,1}+0 = matmul(" X ", %1:bf16[8,32]{1,8}+0, _)\n"
                     "%3:bf16[6,32]{32,1}+0 = relu(%2:bf16[6,32]{32,1}+0)\n"),
               0);
  HR_ASSERT_EQ(grows("buffer %0 96 live\nbuffer %1 48 live\nbuffer %2 36 dead fresh\nbuffer %3 36 live fresh\n"
                     "%2:bf16[6,3]{3,1}+0 = matmul(" X ", %1:bf16[8,3]{1,8}+0, _)\n"
                     "%3:bf16[6,3]{3,1}+0 = relu(%2:bf16[6,3]{3,1}+0)\n"),
               0);
  HR_ASSERT_EQ(
      grows("buffer %0 96 live\nbuffer %1 528 live\nbuffer %2 398 dead fresh\nbuffer %3 396 live fresh\n" PRODUCT
            "%3:bf16[6,33]{33,1}+0 = relu(" Y ")\n"),
      0);
  HR_ASSERT_EQ(grows(FACTORS "buffer %3 66 live fresh\nbuffer %4 66 dead fresh\n"
                             "%4:bf16[1,33]{33,1}+0 = matmul(%0:bf16[1,8]{8,1}+0, " W ", _)\n"
                             "%3:bf16[1,33]{33,1}+0 = relu(%4:bf16[1,33]{33,1}+0)\n"),
               0);
  HR_ASSERT_EQ(grows("buffer %0 192 live\nbuffer %1 1056 live\nbuffer %2 792 dead fresh\nbuffer %3 792 live fresh\n"
                     "%2:f32[6,33]{33,1}+0 = matmul(%0:f32[6,8]{8,1}+0, %1:f32[8,33]{1,8}+0, _)\n"
                     "%3:f32[6,33]{33,1}+0 = relu(%2:f32[6,33]{33,1}+0)\n"),
               0);
}

HR_TEST(every_failing_allocation_is_an_error) {
  bool is_done = false;
  for (int n = 0; !is_done; ++n) {
    hr_program program;
    HR_ASSERT_OK(hr_program_parse(
        FACTORS "buffer %3 396 live fresh\n" PRODUCT "loop %3:bf16[6,33]{33,1}+0 = relu(" Y ")\n", &program));
    hr_versions(&program);
    hr__allocator_fail_after(n);
    hr_status status = hr_layout(&program, &(hr_target){.row_alignment = 16, .depth_work = 1}, &(bool){false});
    hr__allocator_fail_after(-1);
    is_done = status == HR_OK;
    HR_ASSERT_EQ(hr_status_code_of(status), is_done ? HR_STATUS_OK : HR_STATUS_RESOURCE_EXHAUSTED);
    HR_ASSERT(!is_done || program.buffers[2].bytes == 6 * 40 * 2);
    hr_status_free(status);
    hr_program_fini(&program);
  }
}
