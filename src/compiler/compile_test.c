/* Compiling small programs: how many kernels result, of which phases, and that fused results equal those of the
 * operations run one by one.
 */
#include "hr_test.h"

#include "compiler/compile.h"
#include "program_runner.h"

enum { BUFFERS_MAX = 8, KERNELS_MAX = 64 };

typedef struct compiled {
  hr_program program;
  hr_schedule schedule;
  int kernel_count, check_count;
  const hr_kernel *kernels[KERNELS_MAX];
} compiled;

static compiled compile_for(const char *text, hr_target target) {
  compiled c;
  memset(&c, 0, sizeof c);
  target.verify = true;
  HR_ASSERT_OK(hr_program_parse(text, &c.program));
  HR_ASSERT_OK(hr_compile(&c.program, &target, &c.schedule));
  for (int s = 0; s < c.schedule.step_count; ++s) {
    const hr_step *step = &c.schedule.steps[s];
    c.check_count += step->kind == HR_STEP_CHECK;
    if (step->kind == HR_STEP_KERNEL) {
      HR_ASSERT(c.kernel_count < KERNELS_MAX);
      c.kernels[c.kernel_count++] = step->kernel;
    }
  }
  return c;
}

static compiled compile(const char *text) {
  return compile_for(text, (hr_target){0});
}

static void compiled_fini(compiled *c) {
  hr_schedule_fini(&c->schedule);
  hr_program_fini(&c->program);
}

static int count_kernels(const char *text) {
  compiled c = compile(text);
  int count = c.kernel_count;
  compiled_fini(&c);
  return count;
}

/* Bytes of the temporaries of a program that is large from `recompute_bytes` on. */
static size_t arena_bytes(const char *text, int64_t recompute_bytes) {
  compiled c = compile_for(text, (hr_target){.recompute_bytes = recompute_bytes});
  size_t bytes = c.schedule.arena_bytes;
  compiled_fini(&c);
  return bytes;
}

static int count_stores(const hr_kernel *kernel) {
  int count = 0;
  for (int k = 0; k < kernel->instr_count; ++k) {
    count += kernel->instrs[k].kind == HR_INSTR_STORE;
  }
  return count;
}

/* Runs a program on the arrays of the test. */
static hr_status run_in(const char *text, void **memory, const hr_scalar *arguments, hr__run_options options) {
  hr_program program;
  HR_ASSERT_OK(hr_program_parse(text, &program));
  hr_status status = hr__run_interpreted(&program, memory, arguments, options);
  hr_program_fini(&program);
  return status;
}

static hr_status run(const char *text, void **memory, const hr_scalar *arguments) {
  return run_in(text, memory, arguments, (hr__run_options){0});
}

/* With recomputation of every possible value. */
static void run_recomputed(const char *text, void **memory) {
  HR_ASSERT_OK(run_in(text, memory, NULL, (hr__run_options){.recompute_bytes = 1}));
}

/* Conversions in the only kernel of op, on two tensors of a dtype. */
static int count_conversions(const char *op, const char *dtype, int input_count) {
  char text[512];
  snprintf(text, sizeof text,
           "buffer %%0 128 live\nbuffer %%1 128 live\nbuffer %%2 128 live fresh\n"
           "%%2:%s[64]{1}+0 = %s(%%0:%s[64]{1}+0%s%s%s)\n",
           dtype, op, dtype, input_count > 1 ? ", %1:" : "", input_count > 1 ? dtype : "",
           input_count > 1 ? "[64]{1}+0" : "");
  compiled c = compile(text);
  HR_ASSERT_EQ(c.kernel_count, 1);
  int count = 0;
  for (int k = 0; k < c.kernels[0]->instr_count; ++k) {
    count += c.kernels[0]->instrs[k].kind == HR_INSTR_CONVERT;
  }
  compiled_fini(&c);
  return count;
}

HR_TEST(results_that_are_an_input_are_not_rounded) {
  HR_ASSERT_EQ(count_conversions("maximum", "bf16", 2), 0);
  HR_ASSERT_EQ(count_conversions("minimum", "f16", 2), 0);
  HR_ASSERT_EQ(count_conversions("maximum", "i8", 2), 0);
  HR_ASSERT_EQ(count_conversions("abs", "f16", 1), 0);
  HR_ASSERT_EQ(count_conversions("relu", "bf16", 1), 0);
  HR_ASSERT_EQ(count_conversions("neg", "i8", 1), 1);         /* of the lowest is a number more than there are */
  HR_ASSERT_EQ(count_conversions("neg", "f8e4m3fnuz", 1), 1); /* has no -0 */
  HR_ASSERT_EQ(count_conversions("add", "bf16", 2), 1);
}

/* As in where(isnan(x), 0, x): the number is a tensor between the two loops. Not if its buffer had other contents
 * before. */
HR_TEST(a_number_separates_no_two_loops) {
  HR_ASSERT_EQ(count_kernels("buffer %0 4096 live\n"
                             "buffer %1 1024 dead fresh\n"
                             "buffer %2 4 dead fresh\n"
                             "buffer %3 4096 live fresh\n"
                             "scalar $0 f64 = 2\n"
                             "%1:bool[1024]{1}+0 = is_nan(%0:f32[1024]{1}+0)\n"
                             "%2:f32[]{}+0 = copy($0)\n"
                             "%3:f32[1024]{1}+0 = where(%1:bool[1024]{1}+0, %2:f32[1024]{0}+0, %0:f32[1024]{1}+0)\n"),
               2);
  float x[4] = {1, NAN, 3, -1}, two = 5, y[4], old[4];
  HR_ASSERT_OK(run("buffer %0 16 live\n"
                   "buffer %1 4 live\n"
                   "buffer %2 16 live fresh\n"
                   "buffer %3 16 live fresh\n"
                   "buffer %4 4 dead fresh\n"
                   "scalar $0 f64 = 2\n"
                   "%4:f32[]{}+0 = copy(%1:f32[]{}+0)\n"
                   "%2:f32[4]{1}+0 = add(%0:f32[4]{1}+0, %4:f32[4]{0}+0)\n"
                   "%4:f32[]{}+0 = copy($0)\n"
                   "%3:f32[4]{1}+0 = add(%0:f32[4]{1}+0, %4:f32[4]{0}+0)\n",
                   (void *[]){x, &two, old, y, NULL}, NULL));
  HR_ASSERT(old[0] == 6 && old[2] == 8 && old[3] == 4);
  HR_ASSERT(y[0] == 3 && y[2] == 5 && y[3] == 1);
}

/* As in an optimizer's step: the factor of a step depends on its number alone. Not if that is written before. */
HR_TEST(a_factor_separates_no_two_loops) {
  HR_ASSERT_EQ(count_kernels("buffer %0 4096 live\n"
                             "buffer %1 4096 live fresh\n"
                             "buffer %2 4 live\n"
                             "buffer %3 4 dead fresh\n"
                             "buffer %4 4 live fresh\n"
                             "buffer %5 4096 live fresh\n"
                             "%1:f32[1024]{1}+0 = square(%0:f32[1024]{1}+0)\n"
                             "%3:f32[]{}+0 = exp(%2:f32[]{}+0)\n"
                             "%4:f32[]{}+0 = neg(%3:f32[]{}+0)\n"
                             "%5:f32[1024]{1}+0 = mul(%1:f32[1024]{1}+0, %4:f32[1024]{0}+0)\n"),
               2);
  float x[4] = {1, 2, 3, -1}, step = 5, y[4], factor;
  HR_ASSERT_OK(run("buffer %0 16 live\n"
                   "buffer %1 4 live\n"
                   "buffer %2 16 live fresh\n"
                   "buffer %3 4 live fresh\n"
                   "%1:f32[1]{1}+0 = neg(%0:f32[1]{1}+2)\n"
                   "%3:f32[]{}+0 = neg(%1:f32[]{}+0)\n"
                   "%1:f32[]{}+0 = square(%3:f32[]{}+0)\n"
                   "%2:f32[4]{1}+0 = add(%0:f32[4]{1}+0, %3:f32[4]{0}+0)\n",
                   (void *[]){x, &step, y, &factor}, NULL));
  HR_ASSERT(step == 9 && factor == 3 && y[0] == 4 && y[3] == 2);
}

HR_TEST(softmax_is_one_kernel_of_three_phases) {
  compiled c = compile("buffer %0 32768 live\n"
                       "buffer %1 32768 live fresh\n"
                       "%1:f32[64,128]{128,1}+0 = softmax(%0:f32[64,128]{128,1}+0) ints(1)\n");
  HR_ASSERT_EQ(c.kernel_count, 1);
  HR_ASSERT_EQ(c.kernels[0]->phase_count, 3);
  HR_ASSERT_EQ(c.kernels[0]->reduce_mask, 2);
  HR_ASSERT_EQ(count_stores(c.kernels[0]), 1);
  HR_ASSERT_EQ(c.schedule.arena_bytes, 0);
  compiled_fini(&c);
}

/* A table of positions, and then both reductions over the same bounded windows. */
HR_TEST(a_padded_max_pool_reads_its_windows_once) {
  compiled c = compile("buffer %0 1024 live\n"
                       "buffer %1 256 live fresh\n"
                       "buffer %2 512 live fresh\n"
                       "%1:f32[4,4,4]{16,4,1}+0, %2:i64[4,4,4]{16,4,1}+0 = max_pool(%0:f32[4,8,8]{64,8,1}+0) "
                       "ints(3, 3, 2, 2, 1, 1, 1, 1)\n");
  HR_ASSERT_EQ(c.kernel_count, 2);
  HR_ASSERT_EQ(count_stores(c.kernels[1]), 2);
  int loads = 0;
  for (int k = 0; k < c.kernels[1]->instr_count; ++k) {
    loads += c.kernels[1]->instrs[k].kind == HR_INSTR_LOAD;
  }
  HR_ASSERT_EQ(loads, 2); /* elements and positions */
  compiled_fini(&c);
}

HR_TEST(layer_norm_is_one_kernel) {
  compiled c = compile("buffer %0 32768 live\n"
                       "buffer %1 32768 live fresh\n"
                       "buffer %2 512 live\n"
                       "buffer %3 256 live fresh\n"
                       "buffer %4 256 dead fresh\n"
                       "scalar $0 f64\n"
                       "%1:f32[64,128]{128,1}+0, %3:f32[64,1]{1,1}+0, %4:f32[64,1]{1,1}+0 = "
                       "layer_norm(%0:f32[64,128]{128,1}+0, %2:f32[128]{1}+0, _) ints(1) scalars($0)\n");
  HR_ASSERT_EQ(c.kernel_count, 1);
  HR_ASSERT_EQ(count_stores(c.kernels[0]), 2); /* y and the mean; rstd is dead */
  HR_ASSERT_EQ(c.schedule.arena_bytes, 0);
  compiled_fini(&c);
}

/* True if the sums of a kernel run through memory: its loads read one element after the other. */
static bool walks_memory(const hr_kernel *kernel) {
  bool does = true;
  for (int k = 0; k < kernel->instr_count; ++k) {
    int64_t step = 1;
    for (int d = kernel->rank - 1; d >= 0 && kernel->instrs[k].kind == HR_INSTR_LOAD; --d) {
      does &= kernel->accesses[kernel->instrs[k].access].strides[d] == step;
      step *= kernel->dims[d];
    }
  }
  return does;
}

/* The square has the matrix's layout, and the loop that was recorded over the transposed dims gets the order of the
 * sums. */
HR_TEST(sums_over_a_transposed_matrix_walk_its_memory) {
  static const char *const texts[] = {
      "%1:f32[1,1]{1,1}+0 = norm(%0:f32[32,64]{1,32}+0) ints(3, 3)\n",
      "%2:f32[32,64]{1,32}+0 = exp(%0:f32[32,64]{1,32}+0)\n"
      "%3:f32[32,64]{1,32}+0 = neg(%2:f32[32,64]{1,32}+0)\n"
      "%1:f32[1,1]{1,1}+0 = sum(%3:f32[32,64]{1,32}+0) ints(3)\n",
      "%3:f32[1,1]{1,1}+0 = mean(%0:f32[32,64]{1,32}+0) ints(3)\n"
      "%2:f32[32,64]{1,32}+0 = sub(%0:f32[32,64]{1,32}+0, %3:f32[1,1]{1,1}+0)\n"
      "%1:f32[1,1]{1,1}+0 = sum(%2:f32[32,64]{1,32}+0) ints(3)\n",
  };
  for (int i = 0; i < 3; ++i) {
    char text[512];
    snprintf(text, sizeof text,
             "buffer %%0 8192 live\nbuffer %%1 4 live fresh\nbuffer %%2 8192 dead fresh\n"
             "buffer %%3 8192 dead fresh\n%s",
             texts[i]);
    compiled c = compile(text);
    HR_ASSERT_EQ(c.kernel_count, 1);
    HR_ASSERT(walks_memory(c.kernels[0]));
    compiled_fini(&c);
  }
}

/* Two views of one matrix, and their sums in the same order. */
HR_TEST(a_transposed_matrix_has_the_sum_of_the_matrix) {
  float x[64 * 32], sums[2];
  for (int i = 0; i < 64 * 32; ++i) {
    x[i] = (float)(i * 7919 % 1013) * 0.37f;
  }
  HR_ASSERT_OK(run("buffer %0 8192 live\nbuffer %1 8 live fresh\n"
                   "%1:f32[1,1]{1,1}+0 = sum(%0:f32[64,32]{32,1}+0) ints(3)\n"
                   "%1:f32[1,1]{1,1}+1 = sum(%0:f32[32,64]{1,32}+0) ints(3)\n",
                   (void *[]){x, sums}, NULL));
  HR_ASSERT(memcmp(&sums[0], &sums[1], sizeof *sums) == 0);
}

/* Neighbouring channels are rows in any position of their dim; a whole softmax walks them so. */
HR_TEST(dense_rows_are_walked_as_rows) {
  static const char *const texts[] = {
      "%1:f32[4,1,64]{64,64,1}+0 = sum(%0:f32[4,48,64]{3072,1,48}+0) ints(2)\n",
      "%2:f32[4,48,64]{3072,1,48}+0 = neg(%0:f32[4,48,64]{3072,1,48}+0)\n"
      "%3:f32[4,48,64]{3072,1,48}+0 = softmax(%2:f32[4,48,64]{3072,1,48}+0) ints(1)\n"
      "%1:f32[4,1,64]{64,64,1}+0 = amax(%3:f32[4,48,64]{3072,1,48}+0) ints(2)\n",
  };
  for (int i = 0; i < 2; ++i) {
    char text[512];
    snprintf(text, sizeof text,
             "buffer %%0 49152 live\nbuffer %%1 1024 live fresh\nbuffer %%2 49152 dead fresh\n"
             "buffer %%3 49152 dead fresh\n%s",
             texts[i]);
    compiled c = compile(text);
    HR_ASSERT_EQ(c.kernel_count, 1);
    HR_ASSERT(c.kernels[0]->order == HR_ORDER_LANES);
    HR_ASSERT(walks_memory(c.kernels[0]));
    compiled_fini(&c);
  }
}

/* Two sums that want two orders, and a loop that shares data with both. */
HR_TEST(sums_of_two_orders_are_right) {
  float x[6 * 4], y[6 * 4], z[6 * 4], sums[2];
  for (int i = 0; i < 6 * 4; ++i) {
    x[i] = (float)i, y[i] = (float)(i * i);
  }
  HR_ASSERT_OK(run("buffer %0 96 live\nbuffer %1 96 live\nbuffer %2 96 live fresh\nbuffer %3 8 live fresh\n"
                   "%2:f32[6,4]{4,1}+0 = sub(%0:f32[6,4]{1,6}+0, %1:f32[6,4]{4,1}+0)\n"
                   "%3:f32[1,1]{1,1}+0 = sum(%0:f32[6,4]{1,6}+0) ints(3)\n"
                   "%3:f32[1,1]{1,1}+1 = sum(%2:f32[6,4]{4,1}+0) ints(3)\n",
                   (void *[]){x, y, z, sums}, NULL));
  for (int i = 0; i < 6 * 4; ++i) {
    HR_ASSERT(z[i] == x[i / 4 + i % 4 * 6] - y[i]);
  }
  HR_ASSERT(sums[0] == 276 && sums[1] == 276 - 4324);
}

/* The difference shares nothing with the kernel of the exponential; the product that reads both does. */
HR_TEST(a_node_joins_the_kernel_of_its_reader) {
  compiled c = compile("buffer %0 16 live\n"
                       "buffer %1 16 live\n"
                       "buffer %2 16 dead fresh\n"
                       "buffer %3 16 dead fresh\n"
                       "buffer %4 16 live fresh\n"
                       "%2:f32[4]{1}+0 = exp(%0:f32[4]{1}+0)\n"
                       "%3:f32[4]{1}+0 = neg(%1:f32[4]{1}+0)\n"
                       "%4:f32[4]{1}+0 = mul(%3:f32[4]{1}+0, %2:f32[4]{1}+0)\n");
  HR_ASSERT_EQ(c.kernel_count, 1);
  HR_ASSERT_EQ(c.schedule.elided_count, 2);
  compiled_fini(&c);
}

/* The sums over columns of a batch norm's gradient are computed in the kernel that makes their input; their dependents
 * are not. */
HR_TEST(a_gradient_that_sums_columns_takes_two_kernels) {
  compiled c = compile("buffer %0 4096 live\n"
                       "buffer %1 4096 live\n"
                       "buffer %2 4096 dead fresh\n"
                       "buffer %3 64 live\n"
                       "buffer %4 64 live\n"
                       "buffer %5 4096 live fresh\n"
                       "buffer %6 64 live fresh\n"
                       "buffer %7 64 live fresh\n"
                       "buffer %8 4096 live\n"
                       "scalar $0 f64\n"
                       "%2:f32[64,16]{16,1}+0 = threshold_backward(%1:f32[64,16]{16,1}+0, %8:f32[64,16]{16,1}+0, $0)\n"
                       "%5:f32[64,16]{16,1}+0, %6:f32[16]{1}+0, %7:f32[16]{1}+0 = batch_norm_backward("
                       "%2:f32[64,16]{16,1}+0, %0:f32[64,16]{16,1}+0, %3:f32[16]{1}+0, _, _, %3:f32[16]{1}+0, "
                       "%4:f32[16]{1}+0) ints(1) scalars($0)\n");
  HR_ASSERT_EQ(c.kernel_count, 2);
  HR_ASSERT_EQ(count_stores(c.kernels[1]), 1);
  compiled_fini(&c);
}

/* A gradient of ReLU with two readers: a sum, and a node that depends on it. %2 is the ReLU of %1. */
#define GRADIENT_OF_RELU(overwrites)                                                               \
  "buffer %0 4096 live\n"                                                                          \
  "buffer %1 4096 live\n"                                                                          \
  "buffer %2 4096 live fresh\n"                                                                    \
  "buffer %3 4096 dead fresh\n"                                                                    \
  "buffer %4 64 dead fresh\n"                                                                      \
  "buffer %5 4096 dead fresh\n"                                                                    \
  "buffer %6 4096 live fresh\n"                                                                    \
  "scalar $0 f64 = 0\n"                                                                            \
  "%2:f32[64,16]{16,1}+0 = relu(%1:f32[64,16]{16,1}+0)\n"                                          \
  "%3:f32[64,16]{16,1}+0 = threshold_backward(%0:f32[64,16]{16,1}+0, %2:f32[64,16]{16,1}+0, $0)\n" \
  "%4:f32[1,16]{16,1}+0 = sum(%3:f32[64,16]{16,1}+0) ints(1)\n" overwrites                         \
  "%5:f32[64,16]{16,1}+0 = sub(%3:f32[64,16]{16,1}+0, %4:f32[64,16]{0,1}+0)\n"                     \
  "%6:f32[64,16]{16,1}+0 = mul(%5:f32[64,16]{16,1}+0, %1:f32[64,16]{16,1}+0)\n"

static int count_arguments(const hr_kernel *kernel, bool of_writes) {
  int count = 0;
  for (int a = 0; a < kernel->arg_count; ++a) {
    count += of_writes ? kernel->args[a].is_written : kernel->args[a].is_read;
  }
  return count;
}

/* The second kernel reads %1 anyway: with %0 it has all inputs, and %3 needs no memory. */
HR_TEST(a_cheap_value_is_computed_by_both_of_its_readers) {
  compiled c = compile_for(GRADIENT_OF_RELU(""), (hr_target){.recompute_bytes = 1});
  HR_ASSERT_EQ(c.kernel_count, 2);
  HR_ASSERT_EQ(count_arguments(c.kernels[0], true), 2); /* %2 and the sums */
  HR_ASSERT_EQ(count_arguments(c.kernels[1], false), 3);
  HR_ASSERT_EQ(c.schedule.arena_bytes, 64); /* the sums */
  compiled_fini(&c);
  HR_ASSERT_EQ(arena_bytes(GRADIENT_OF_RELU(""), 8192), 64 + 4096);
}

/* One large value is enough. Were the others kept by their own sizes, other dims would more often mean other plans. */
HR_TEST(small_values_beside_a_large_one_are_computed_again) {
  HR_ASSERT_EQ(arena_bytes(GRADIENT_OF_RELU(""), 0), 64 + 4096);
  HR_ASSERT_EQ(arena_bytes(GRADIENT_OF_RELU("buffer %7 65536 live\n"
                                            "%7:f32[16384]{1}+0 = neg(%7:f32[16384]{1}+0)\n"),
                           0),
               64);
}

/* Its inputs no longer exist. */
HR_TEST(a_value_whose_inputs_are_overwritten_is_kept) {
  HR_ASSERT_EQ(arena_bytes(GRADIENT_OF_RELU("%0:f32[64,16]{16,1}+0 = exp(%1:f32[64,16]{16,1}+0)\n"), 1), 64 + 4096);
}

/* A row of channels is added to a picture, [2,4,6,3], and ReLU follows in place; `reader` sees it through a view. */
static const char *seen_through(const char *reader) {
  static char text[1024];
  snprintf(text, sizeof text,
           "buffer %%0 576 live\n"
           "buffer %%1 12 live\n"
           "buffer %%2 576 dead fresh\n"
           "buffer %%3 576 dead fresh\n"
           "buffer %%4 4096 live\n"
           "%%2:f32[2,4,6,3]{72,18,3,1}+0 = add(%%0:f32[2,4,6,3]{72,18,3,1}+0, %%1:f32[2,4,6,3]{0,0,0,1}+0)\n"
           "%%3:f32[2,4,6,3]{72,18,3,1}+0 = neg(%%2:f32[2,4,6,3]{72,18,3,1}+0)\n"
           "%%3:f32[2,4,6,3]{72,18,3,1}+0 = relu(%%3:f32[2,4,6,3]{72,18,3,1}+0)\n"
           "%s",
           reader);
  return text;
}

/* Bits of the last buffer are those of the reference; returns the number of kernels. */
static int check_seen_through(const char *reader) {
  const char *text = seen_through(reader);
  float x[144], y[144], row[3] = {1, -2, 0.5f}, got[1024] = {0}, expected[1024] = {0};
  for (int i = 0; i < 144; ++i) {
    x[i] = y[i] = (float)((i * 37) % 29 - 14) / 8;
  }
  run_recomputed(text, (void *[]){x, row, NULL, NULL, got});
  hr_program program;
  float sums[144], values[144];
  HR_ASSERT_OK(hr_program_parse(text, &program));
  HR_ASSERT_OK(hr_program_evaluate(&program, (void *[]){y, row, sums, values, expected}, NULL));
  HR_ASSERT_BYTES_EQ(got, expected, sizeof got);
  HR_ASSERT_BYTES_EQ(x, y, sizeof x);
  hr_program_fini(&program);
  compiled c = compile_for(text, (hr_target){.recompute_bytes = 1});
  int count = c.kernel_count;
  HR_ASSERT_EQ(c.schedule.arena_bytes == 0, count == 1);
  compiled_fini(&c);
  return count;
}

/* Windows, slices, reversed and permuted views: the reader computes the viewed elements, and nothing is stored in
 * between. */
HR_TEST(a_readers_view_is_computed_by_the_reader) {
  static const char *const readers[] = {
      /* pools of 2 x 2 and of 3 x 3 in steps of one and two */
      "loop %4:f32[2,2,3,2,2,3]{18,9,3,0,0,1}+0 = amax(%3:f32[2,2,3,2,2,3]{72,36,6,18,3,1}+0) reduce(24)\n",
      "loop %4:f32[2,1,2,3,3,3]{6,6,3,0,0,1}+0 = amax(%3:f32[2,1,2,3,3,3]{72,36,6,18,3,1}+0) reduce(24)\n",
      "%4:f32[2,2,5,3]{30,15,3,1}+0 = neg(%3:f32[2,2,5,3]{72,36,3,1}+21)\n",
      "%4:f32[2,4,6,2]{48,12,2,1}+0 = neg(%3:f32[2,4,6,2]{72,18,3,-1}+2)\n",
      "%4:f32[4,6,2,3]{36,6,3,1}+0 = neg(%3:f32[4,6,2,3]{-18,3,72,1}+54)\n",
      "%4:f32[2,4,6,3,2]{144,36,6,2,1}+0 = neg(%3:f32[2,4,6,3,2]{72,18,3,1,0}+0)\n",
      "%4:f32[]{}+0 = neg(%3:f32[]{}+143)\n",
  };
  for (size_t k = 0; k < sizeof readers / sizeof *readers; ++k) {
    HR_ASSERT_EQ(check_seen_through(readers[k]), 1);
  }
}

/* Values are stored if the view does not determine their coordinates, if they would be computed too often, or if their
 * inputs have been overwritten. */
HR_TEST(a_viewed_value_is_stored_if_necessary) {
  static const char *const readers[] = {
      "%4:f32[3,24]{24,1}+0 = neg(%3:f32[3,24]{1,3}+72)\n",                 /* all pixels in one dim */
      "%4:f32[2,20,4]{80,4,1}+0 = neg(%3:f32[2,20,4]{72,3,1}+0)\n",         /* runs from pixel to pixel */
      "%4:f32[2,4,7,3]{84,21,3,1}+0 = neg(%3:f32[2,4,7,3]{54,18,3,1}+0)\n", /* from line to line */
      "%4:f32[5,2,4,6,3]{144,72,18,3,1}+0 = neg(%3:f32[5,2,4,6,3]{0,72,18,3,1}+0)\n",
      "%0:f32[144]{1}+0 = neg(%0:f32[144]{1}+0)\n%4:f32[2,2,6,3]{36,18,3,1}+0 = neg(%3:f32[2,2,6,3]{72,36,3,1}+0)\n",
  };
  for (size_t k = 0; k < sizeof readers / sizeof *readers; ++k) {
    HR_ASSERT(check_seen_through(readers[k]) >= 2);
  }
}

static bool keeps_matmul(void *ctx, const hr_program *program, const hr_node *node) {
  (void)ctx, (void)program;
  return node->op == HR_OP_MATMUL && node->epilogue_count == 0;
}

/* A ReLU in place of a library's product, then a pool, then a gradient: counts kernels that write the product, and
 * ReLUs. */
static void check_in_place(const char *state, const char *gradient, const char *between, int writers, int relus) {
  char text[1024];
  snprintf(text, sizeof text,
           "buffer %%0 192 live\n"
           "buffer %%1 192 live\n"
           "buffer %%2 256 %s fresh\n"
           "buffer %%3 64 live fresh\n"
           "buffer %%4 256 live fresh\n"
           "buffer %%5 256 live\n"
           "scalar $0 f64 = 0\n"
           "%%2:f32[4,4,4]{16,4,1}+0 = matmul(%%0:f32[4,4,3]{12,3,1}+0, %%1:f32[4,3,4]{12,4,1}+0)\n"
           "%%2:f32[4,4,4]{16,4,1}+0 = relu(%%2:f32[4,4,4]{16,4,1}+0)\n"
           "loop %%3:f32[4,2,2,2,2]{4,2,1,0,0}+0 = amax(%%2:f32[4,2,2,2,2]{16,8,2,4,1}+0) reduce(24)\n%s"
           "%s"
           "%%4:f32[4,4,4]{16,4,1}+0 = threshold_backward("
           "%%5:f32[4,4,4]{16,4,1}+0, %%2:f32[4,4,4]{16,4,1}+0, $0)\n",
           state, between, gradient);
  compiled c = compile_for(text, (hr_target){.keeps = keeps_matmul, .recompute_bytes = 1});
  for (int k = 0; k < c.kernel_count; ++k) {
    const hr_kernel *kernel = c.kernels[k];
    for (int a = 0; a < kernel->arg_count; ++a) {
      writers -= kernel->args[a].buffer == 2 && kernel->args[a].is_written;
    }
    for (int i = 0; i < kernel->instr_count; ++i) {
      relus -= kernel->instrs[i].kind == HR_INSTR_COMPUTE && kernel->instrs[i].op == HR_OP_RELU;
    }
  }
  HR_ASSERT_EQ(writers, 0);
  HR_ASSERT_EQ(relus, 0);
  compiled_fini(&c);
}

/* The product still exists for its readers, since its in-place replacement is not needed. */
HR_TEST(a_relu_in_place_is_recomputed_by_its_readers) {
  const char *made = "%5:f32[4,4,4]{16,4,1}+0 = matmul(%0:f32[4,4,3]{12,3,1}+0, %1:f32[4,3,4]{12,4,1}+0)\n";
  check_in_place("dead", made, "", 0, 2);
  check_in_place("dead", made, "%2:f32[4,4,4]{16,4,1}+0 = neg(%2:f32[4,4,4]{16,4,1}+0)\n", 0, 2);
  check_in_place("live", made, "", 1, 1);
  check_in_place("dead", made, "%2:f32[4]{1}+0 = neg(%2:f32[4]{1}+0)\n", 2, 1);
  check_in_place("dead", "", "", 1, 1); /* the kernel of the ReLU makes the gradient, too */
}

/* As in a loss: %2 = %0 - %1 is read as a whole in the kernel that makes it, and another one picks an element of each
 * column. */
#define PICKS_OF_A_DIFFERENCE(overwrites)                                      \
  "buffer %0 4096 live\n"                                                      \
  "buffer %1 64 live\n"                                                        \
  "buffer %2 4096 dead fresh\n"                                                \
  "buffer %3 128 live\n"                                                       \
  "buffer %4 64 live fresh\n"                                                  \
  "buffer %5 4096 live fresh\n"                                                \
  "%2:f32[64,16]{16,1}+0 = sub(%0:f32[64,16]{16,1}+0, %1:f32[64,16]{0,1}+0)\n" \
  "%5:f32[64,16]{16,1}+0 = exp(%2:f32[64,16]{16,1}+0)\n" overwrites            \
  "%4:f32[1,16]{16,1}+0 = gather(%2:f32[64,16]{16,1}+0, %3:i64[1,16]{16,1}+0) ints(0)\n"

HR_TEST(picked_elements_are_computed_from_picked_inputs) {
  const char *text = PICKS_OF_A_DIFFERENCE("");
  HR_ASSERT_EQ(arena_bytes(text, 1), 64); /* for the check of the indices */
  float x[64 * 16], y[16], picked[16], all[64 * 16];
  int64_t index[16];
  for (int i = 0; i < 64 * 16; ++i) {
    x[i] = (float)i;
  }
  for (int j = 0; j < 16; ++j) {
    y[j] = (float)(j * j), index[j] = 63 - 4 * j;
  }
  run_recomputed(text, (void *[]){x, y, NULL, index, picked, all});
  for (int j = 0; j < 16; ++j) {
    HR_ASSERT_EQ(picked[j], (float)((63 - 4 * j) * 16 + j - j * j));
  }
}

HR_TEST(a_gathered_value_is_stored_if_its_inputs_are_overwritten) {
  HR_ASSERT_EQ(arena_bytes(PICKS_OF_A_DIFFERENCE("%0:f32[64,16]{16,1}+0 = exp(%5:f32[64,16]{16,1}+0)\n"), 1),
               64 + 4096);
  HR_ASSERT_EQ(arena_bytes(PICKS_OF_A_DIFFERENCE("%1:f32[16]{1}+0 = neg(%1:f32[16]{1}+0)\n"), 1), 64 + 4096);
}

/* relu moves to its reader. The sum that it reads has been overwritten there, and alone would be too small to move. */
HR_TEST(overwritten_inputs_of_a_copy_are_recomputed) {
  const char *text = "buffer %0 512 live\n"
                     "buffer %1 512 live fresh\n"
                     "buffer %2 1024 dead fresh\n"
                     "buffer %3 64 dead fresh\n"
                     "buffer %4 1024 live fresh\n"
                     "buffer %5 32 dead fresh\n"
                     "buffer %6 512 live fresh\n"
                     "%1:f32[8,16]{16,1}+0 = add(%0:f32[8,16]{16,1}+0, %0:f32[8,16]{16,1}+0)\n"
                     "%2:f64[8,16]{16,1}+0 = relu(%1:f32[8,16]{16,1}+0)\n"
                     "%1:f32[8,16]{16,1}+0 = neg(%1:f32[8,16]{16,1}+0)\n"
                     "%5:f32[8,1]{1,1}+0 = sum(%1:f32[8,16]{16,1}+0) ints(2)\n"
                     "%6:f32[8,16]{16,1}+0 = add(%1:f32[8,16]{16,1}+0, %5:f32[8,16]{1,0}+0)\n"
                     "%3:f32[1,16]{16,1}+0 = sum(%6:f32[8,16]{16,1}+0) ints(1)\n"
                     "%4:f64[8,16]{16,1}+0 = sub(%2:f64[8,16]{16,1}+0, %3:f32[8,16]{0,1}+0)\n";
  HR_ASSERT(arena_bytes(text, 1000) < arena_bytes(text, 2000));
  float x[8 * 16], negative[8 * 16], sums[8 * 16];
  double got[8 * 16];
  for (int i = 0; i < 8 * 16; ++i) {
    x[i] = (float)(i * 7 % 13 - 6);
  }
  HR_ASSERT_OK(run_in(text, (void *[]){x, negative, NULL, NULL, got, NULL, sums}, NULL,
                      (hr__run_options){.recompute_bytes = 1000}));
  for (int i = 0; i < 8 * 16; ++i) {
    double sum = 0;
    for (int k = i % 16; k < 8 * 16; k += 16) {
      sum += sums[k];
    }
    HR_ASSERT(negative[i] == -2 * x[i]);
    HR_ASSERT(got[i] == (x[i] > 0 ? 2 * x[i] : 0) - sum);
  }
}

/* Indices that are elements of the tensor that they gather from stay unchanged. */
HR_TEST(indices_that_pick_of_their_own_tensor) {
  const char *text = "buffer %0 8192 live\n"
                     "buffer %1 128 live\n"
                     "buffer %2 8192 dead fresh\n"
                     "buffer %3 128 live fresh\n"
                     "buffer %4 128 live fresh\n"
                     "%2:i64[64,16]{16,1}+0 = add(%0:i64[64,16]{16,1}+0, %1:i64[64,16]{0,1}+0)\n"
                     "loop %3:i64[16]{1}+0 = copy(%2:i64[16]{1}+0@1*16<64, %2:i64[16]{1}+0)\n"
                     "%4:i64[16]{1}+0 = neg(%2:i64[16]{1}+0)\n";
  int64_t x[64 * 16], y[16], picked[16], indices[16];
  for (int i = 0; i < 64 * 16; ++i) {
    x[i] = (i * 7 + 5) % 47;
  }
  for (int j = 0; j < 16; ++j) {
    y[j] = j;
  }
  run_recomputed(text, (void *[]){x, y, NULL, picked, indices});
  for (int j = 0; j < 16; ++j) {
    HR_ASSERT_EQ(picked[j], x[(x[j] + j) * 16 + j] + j);
    HR_ASSERT_EQ(indices[j], -(x[j] + j));
  }
}

/* The exponential is used when the sum is known: it is computed then, and not kept from the first phase. */
HR_TEST(values_that_depend_on_a_sum_are_computed_after_it) {
  compiled c = compile("buffer %0 32768 live\n"
                       "buffer %1 32768 dead fresh\n"
                       "buffer %2 256 dead fresh\n"
                       "buffer %3 32768 live fresh\n"
                       "%1:f32[64,128]{128,1}+0 = exp(%0:f32[64,128]{128,1}+0)\n"
                       "%2:f32[64,1]{1,1}+0 = sum(%0:f32[64,128]{128,1}+0) ints(2)\n"
                       "%3:f32[64,128]{128,1}+0 = mul(%1:f32[64,128]{128,1}+0, %2:f32[64,128]{1,0}+0)\n");
  HR_ASSERT_EQ(c.kernel_count, 1);
  for (int k = 0; k < c.kernels[0]->register_count; ++k) {
    const hr_register *reg = &c.kernels[0]->registers[k];
    HR_ASSERT(reg->level == HR_LEVEL_ROW || reg->phase == reg->last_phase);
  }
  compiled_fini(&c);
}

/* A write of the same elements waits for the reads before it, in one kernel. */
HR_TEST(writes_in_place_share_the_kernel_of_earlier_reads) {
  const char *text = "buffer %0 16 live\n"
                     "buffer %1 16 live fresh\n"
                     "buffer %2 16 live fresh\n"
                     "%1:f32[4]{1}+0 = mul(%0:f32[4]{1}+0, %0:f32[4]{1}+0)\n"
                     "%0:f32[4]{1}+0 = neg(%0:f32[4]{1}+0)\n"
                     "%2:f32[4]{1}+0 = add(%0:f32[4]{1}+0, %1:f32[4]{1}+0)\n";
  HR_ASSERT_EQ(count_kernels(text), 1);
  float x[4] = {1, 2, 3, -4}, square[4], sum[4];
  HR_ASSERT_OK(run(text, (void *[]){x, square, sum}, NULL));
  const float expected[4] = {0, 2, 6, 20};
  HR_ASSERT_BYTES_EQ(sum, expected, sizeof sum);
  HR_ASSERT_EQ(x[3], 4);
}

/* A write of elements that another one has yet to read doesn't. */
HR_TEST(writes_wait_for_reads_of_other_elements) {
  const char *text = "buffer %0 16 live\n"
                     "buffer %1 16 live fresh\n"
                     "%1:f32[2,2]{2,1}+0 = exp(%0:f32[2,2]{1,2}+0)\n"
                     "%0:f32[2,2]{2,1}+0 = neg(%0:f32[2,2]{2,1}+0)\n";
  HR_ASSERT_EQ(count_kernels(text), 2);
}

/* An operation reads all its inputs before it writes: shifted views of one tensor go through a temporary. */
HR_TEST(shifted_views_go_through_a_temporary) {
  const char *text = "buffer %0 20 live\n"
                     "%0:f32[4]{1}+1 = add(%0:f32[4]{1}+0, %0:f32[4]{1}+1)\n";
  compiled c = compile(text);
  HR_ASSERT_EQ(c.kernel_count, 2);
  HR_ASSERT_EQ(c.schedule.arena_bytes, 64);
  compiled_fini(&c);
  float x[5] = {1, 10, 100, 1000, 10000};
  HR_ASSERT_OK(run(text, (void *[]){x}, NULL));
  const float expected[5] = {1, 11, 110, 1100, 11000};
  HR_ASSERT_BYTES_EQ(x, expected, sizeof x);
}

HR_TEST(halves_of_a_buffer_share_a_kernel) {
  compiled c = compile("buffer %0 32 live\n"
                       "%0:f32[4]{1}+4 = exp(%0:f32[4]{1}+0)\n"
                       "%0:f32[4]{1}+4 = mul(%0:f32[4]{1}+4, %0:f32[4]{1}+0)\n");
  HR_ASSERT_EQ(c.kernel_count, 1);
  HR_ASSERT_EQ(count_stores(c.kernels[0]), 1);
  compiled_fini(&c);
}

/* Two gates of a cell: columns of the same rows, read and written, are one kernel. Columns that overlap wait. */
HR_TEST(columns_of_the_same_rows_share_a_kernel) {
  const char *apart = "buffer %0 48 live\n"
                      "buffer %1 48 live fresh\n"
                      "%1:f32[3,2]{4,1}+0 = neg(%0:f32[3,2]{4,1}+0)\n"
                      "%1:f32[3,2]{4,1}+2 = mul(%0:f32[3,2]{4,1}+2, %0:f32[3,2]{4,1}+2)\n";
  const char *overlapping = "buffer %0 48 live\n"
                            "buffer %1 48 live fresh\n"
                            "%1:f32[3,2]{4,1}+0 = neg(%0:f32[3,2]{4,1}+0)\n"
                            "%1:f32[3,2]{4,1}+1 = mul(%0:f32[3,2]{4,1}+2, %0:f32[3,2]{4,1}+2)\n";
  const char *texts[2] = {apart, overlapping};
  const float expected[2][12] = {{-1, -2, 9, 16, -5, -6, 49, 64, -9, -10, 121, 144},
                                 {-1, 9, 16, 77, -5, 49, 64, 77, -9, 121, 144, 77}};
  for (int i = 0; i < 2; ++i) {
    HR_ASSERT_EQ(count_kernels(texts[i]), 1 + i);
    float x[12], y[12];
    for (int k = 0; k < 12; ++k) {
      x[k] = (float)(k + 1), y[k] = 77;
    }
    HR_ASSERT_OK(run(texts[i], (void *[]){x, y}, NULL));
    HR_ASSERT_BYTES_EQ(y, expected[i], sizeof y);
  }
}

HR_TEST(dead_stores_vanish) {
  compiled c = compile("buffer %0 16 live\n"
                       "buffer %1 16 dead fresh\n"
                       "buffer %2 16 live fresh\n"
                       "buffer %3 16 dead fresh\n"
                       "%1:f32[4]{1}+0 = exp(%0:f32[4]{1}+0)\n"
                       "%2:f32[4]{1}+0 = neg(%0:f32[4]{1}+0)\n" /* replaced below */
                       "%3:f32[4]{1}+0 = neg(%1:f32[4]{1}+0)\n" /* never read */
                       "%2:f32[4]{1}+0 = add(%1:f32[4]{1}+0, %0:f32[4]{1}+0)\n");
  HR_ASSERT_EQ(c.kernel_count, 1);
  HR_ASSERT_EQ(count_stores(c.kernels[0]), 1);
  HR_ASSERT_EQ(c.schedule.elided_count, 1);
  HR_ASSERT_EQ(c.schedule.arena_bytes, 0);
  compiled_fini(&c);
}

/* A store that adds needs the earlier contents, even if it covers the whole buffer. */
HR_TEST(stores_that_add_keep_the_old_values) {
  const char *text = "buffer %0 12 live\n"
                     "buffer %1 12 live fresh\n"
                     "scalar $0 f64 = 10\n"
                     "loop %1:f32[3]{1}+0 = copy($0)\n"
                     "loop %1:f32[3]{1}+0 = copy(%0:f32[3]{1}+0) ordered(1) store(add)\n"
                     "loop %1:f32[3]{1}+0 = mul(%1:f32[3]{1}+0, %1:f32[3]{1}+0)\n";
  float x[3] = {1, 2, 3}, y[3] = {77, 77, 77};
  HR_ASSERT_OK(run(text, (void *[]){x, y}, NULL));
  const float expected[3] = {121, 144, 169};
  HR_ASSERT_BYTES_EQ(y, expected, sizeof y);
}

/* If a check fails, the writes of older operations exist, though a newer one would have replaced them; writes of newer
 * ones into older buffers do not. */
HR_TEST(a_failing_check_leaves_earlier_writes) {
  const char *text = "buffer %0 16 live\n"
                     "buffer %1 16 live\n"
                     "buffer %2 16 live\n"
                     "buffer %3 8 live fresh\n"
                     "%0:f32[4]{1}+0 = neg(%1:f32[4]{1}+0)\n"
                     "%3:f32[2]{1}+0 = index_select(%1:f32[4]{1}+0, %2:i64[2]{1}+0) ints(0)\n"
                     "%0:f32[4]{1}+0 = exp(%1:f32[4]{1}+0)\n"
                     "%1:f32[4]{1}+0 = exp(%1:f32[4]{1}+0)\n";
  compiled c = compile(text);
  HR_ASSERT_EQ(c.check_count, 1);
  compiled_fini(&c);
  float x[4] = {0}, y[4] = {1, 2, 3, 4}, selected[2];
  int64_t index[2] = {3, 4};
  hr_status status = run(text, (void *[]){x, y, index, selected}, NULL);
  HR_ASSERT_EQ(hr_status_code_of(status), HR_STATUS_OUT_OF_RANGE);
  hr_status_free(status);
  HR_ASSERT_EQ(x[3], -4);
  HR_ASSERT_EQ(y[3], 4);
  index[1] = 0;
  HR_ASSERT_OK(run(text, (void *[]){x, y, index, selected}, NULL));
  HR_ASSERT_EQ(selected[0], 4);
  HR_ASSERT_NEAR(x[0], 2.7182817, 1e-6);
}

/* A step of Adam whose gradient no kernel of the chain could make, as those out of a library; `between` the average's
 * update and the chain that uses it. */
static const char *adam(const char *between) {
  static char text[2048];
  snprintf(text, sizeof text,
           "buffer %%0 64 live\n" /* the parameter, and its averages */
           "buffer %%1 64 live\n"
           "buffer %%2 64 live\n"
           "buffer %%3 64 live fresh\n" /* the gradient */
           "buffer %%4 64 live\n"
           "buffer %%5 64 dead fresh\n"
           "buffer %%6 64 live fresh\n"
           "scalar $0 f64 = 0.25\n"
           "%%3:f32[4,4]{1,4}+0 = neg(%%4:f32[4,4]{4,1}+0)\n"
           "%%1:f32[4,4]{4,1}+0 = lerp(%%1:f32[4,4]{4,1}+0, %%3:f32[4,4]{4,1}+0, $0)\n"
           "%s"
           "%%2:f32[4,4]{4,1}+0 = mul(%%2:f32[4,4]{4,1}+0, $0)\n"
           "%%2:f32[4,4]{4,1}+0 = addcmul(%%2:f32[4,4]{4,1}+0, %%3:f32[4,4]{4,1}+0, %%3:f32[4,4]{4,1}+0, $0)\n"
           "%%5:f32[4,4]{4,1}+0 = sqrt(%%2:f32[4,4]{4,1}+0)\n"
           "%%0:f32[4,4]{4,1}+0 = addcdiv(%%0:f32[4,4]{4,1}+0, %%1:f32[4,4]{4,1}+0, %%5:f32[4,4]{4,1}+0, $0)\n",
           between);
  return text;
}

/* The average found no group to join, but runs with the chain that waits for it. */
HR_TEST(an_average_joins_the_chain_that_uses_it) {
  HR_ASSERT_EQ(count_kernels(adam("")), 2);
  float p[16], m[16], v[16], g[16], x[16], copy[16];
  for (int i = 0; i < 16; ++i) {
    p[i] = 1, m[i] = 0, v[i] = 4, x[i] = -4;
  }
  HR_ASSERT_OK(run(adam(""), (void *[]){p, m, v, g, x, NULL, copy}, NULL));
  for (int i = 0; i < 16; ++i) {
    HR_ASSERT_EQ(m[i], 1);
    HR_ASSERT_EQ(v[i], 5);
    HR_ASSERT_NEAR(p[i], 1 + 0.25 / 2.2360679775, 1e-6);
  }
}

HR_TEST(an_average_that_others_wait_for_stays_before_them) {
  /* it is read through another map, so nothing can run with it */
  const char *read = "%6:f32[4,4]{1,4}+0 = exp(%1:f32[4,4]{4,1}+0)\n%1:f32[4,4]{4,1}+0 = exp(%6:f32[4,4]{4,1}+0)\n";
  HR_ASSERT_EQ(count_kernels(adam(read)), 3);
  float p[16] = {0}, m[16] = {0}, v[16] = {0}, g[16], x[16] = {-4}, copy[16];
  HR_ASSERT_OK(run(adam(read), (void *[]){p, m, v, g, x, NULL, copy}, NULL));
  HR_ASSERT_NEAR(copy[0], 2.7182817, 1e-6);
  HR_ASSERT_NEAR(m[0], 15.154262, 1e-5);
}

/* It was issued before the check, so it happens although the check fails. */
HR_TEST(an_average_does_not_move_past_a_check) {
  const char *between = "%6:f32[2]{1}+0 = index_select(%0:f32[4]{1}+0, %4:i64[2]{1}+0) ints(0)\n";
  float p[16] = {1}, m[16] = {0}, v[16] = {4}, g[16], x[16] = {0}, selected[16];
  memcpy(x, (int64_t[]){0, 4}, 16);
  x[5] = -4;
  hr_status status = run(adam(between), (void *[]){p, m, v, g, x, NULL, selected}, NULL);
  HR_ASSERT_EQ(hr_status_code_of(status), HR_STATUS_OUT_OF_RANGE);
  hr_status_free(status);
  HR_ASSERT_EQ(m[5], 1);
  HR_ASSERT_EQ(p[0], 1);
}

enum { PARAMETERS = 12, OF_EACH = 16 };

static void add_adam_line(hr_text *text, int i, const char *result, const char *line) {
  static const char names[OF_EACH + 1] = "pmvxgMVPabcdefhk";
  for (const char *at = result; *at != '\0'; ++at) { /* one letter */
    hr_text_printf(text, "%%%d:f32[4,%d]{%d,1}+0 = ", OF_EACH * i + (int)(strchr(names, *at) - names), 4 + i, 4 + i);
  }
  for (const char *at = line; *at != '\0'; ++at) {
    const char *name = at[0] == '%' ? strchr(names, *++at) : NULL;
    if (name != NULL) {
      hr_text_printf(text, "%%%d:f32[4,%d]{%d,1}+0", OF_EACH * i + (int)(name - names), 4 + i, 4 + i);
    } else {
      hr_text_append_bytes(text, at, 1);
    }
  }
  hr_text_append(text, "\n");
}

/* The averages of all parameters, then those of all squares, then all steps, as JAX maps them over a tree; of different
 * dims, so that they are no chain. The product with a decayed average comes before the square that is added to it. */
HR_TEST(a_step_of_adam_is_one_kernel_of_each_of_many_parameters) {
  static const char *const lines[][2] = {
      {"a", "mul(%m, $0)"}, {"b", "mul(%g, $1)"}, {"M", "add(%a, %b)"}, {NULL, NULL}, {"c", "mul(%v, $0)"},
      {"d", "mul(%g, $1)"}, {"e", "mul(%d, %g)"}, {"V", "add(%c, %e)"}, {NULL, NULL}, {"f", "mul(%M, $1)"},
      {"h", "sqrt(%V)"},    {"k", "div(%f, %h)"}, {"P", "sub(%p, %k)"}, {NULL, NULL}};
  hr_text text = {0};
  for (int k = 0; k < PARAMETERS * OF_EACH; ++k) {
    int of = k % OF_EACH;
    hr_text_printf(&text, "buffer %%%d %d %s\n", k, 16 * (4 + k / OF_EACH),
                   of < 4              ? "live"
                   : of == 4 || of > 7 ? "dead fresh"
                                       : "live fresh");
  }
  hr_text_append(&text, "scalar $0 f64 = 0.9\nscalar $1 f64 = 0.1\n");
  for (int i = 0; i < PARAMETERS; ++i) { /* gradients, which no kernel that reads them can make */
    hr_text_printf(&text, "%%%d:f32[4,%d]{1,4}+0 = neg(%%%d:f32[4,%d]{%d,1}+0)\n", OF_EACH * i + 4, 4 + i,
                   OF_EACH * i + 3, 4 + i, 4 + i);
  }
  for (size_t first = 0, l = 0; l < sizeof lines / sizeof *lines; ++l) {
    for (int i = 0; lines[l][0] == NULL && i < PARAMETERS; ++i) {
      for (size_t k = first; k < l; ++k) {
        add_adam_line(&text, i, lines[k][0], lines[k][1]);
      }
    }
    first = lines[l][0] == NULL ? l + 1 : first;
  }
  HR_ASSERT_EQ(count_kernels(hr_text_chars(&text)), 2 * PARAMETERS);
  hr_text_fini(&text);
}

/* Waiting must not keep memory: the temporary that the average reads would live until the end. */
HR_TEST(an_average_does_not_keep_a_temporary) {
  const char *text = "buffer %0 64 live\n"
                     "buffer %1 64 live\n"
                     "buffer %2 64 dead fresh\n"
                     "buffer %3 64 live\n"
                     "buffer %4 64 live\n"
                     "%2:f32[4,4]{1,4}+0 = neg(%0:f32[4,4]{4,1}+0)\n"
                     "%1:f32[4,4]{4,1}+0 = add(%1:f32[4,4]{4,1}+0, %2:f32[4,4]{4,1}+0)\n"
                     "%4:f32[2,2]{4,1}+0 = neg(%3:f32[2,2]{4,1}+0)\n"
                     "%4:f32[4,4]{4,1}+0 = mul(%4:f32[4,4]{4,1}+0, %1:f32[4,4]{4,1}+0)\n";
  HR_ASSERT_EQ(count_kernels(text), 4);
}

static compiled compile_hoisted(const char *text) {
  return compile_for(text, (hr_target){.hoist_bytes = 32});
}

HR_TEST(small_groups_that_wait_for_nothing_run_first) {
  compiled c = compile_hoisted("buffer %0 64 live\nbuffer %1 64 live fresh\nbuffer %2 8 live\nbuffer %3 8 live fresh\n"
                               "buffer %4 12 live\nbuffer %5 12 live fresh\nbuffer %6 64 live fresh\n"
                               "%1:f32[16]{1}+0 = exp(%0:f32[16]{1}+0)\n"
                               "%3:f32[2]{1}+0 = neg(%2:f32[2]{1}+0)\n"
                               "%6:f32[4,4]{4,1}+0 = neg(%1:f32[4,4]{1,4}+0)\n"
                               "%5:f32[3]{1}+0 = neg(%4:f32[3]{1}+0)\n");
  HR_ASSERT_EQ(c.kernel_count, 4);
  HR_ASSERT_EQ(c.kernels[0]->dims[0], 2);
  HR_ASSERT_EQ(c.kernels[1]->dims[0], 3);
  HR_ASSERT_EQ(c.kernels[2]->dims[0], 16);
  compiled_fini(&c);
}

/* Groups stay if they depend on earlier results, overwrite earlier inputs, or are too large. */
HR_TEST(groups_with_dependencies_stay) {
  compiled c = compile_hoisted("buffer %0 64 live\nbuffer %1 64 live fresh\nbuffer %2 8 live\nbuffer %3 8 live fresh\n"
                               "buffer %4 64 live\nbuffer %5 64 live fresh\n"
                               "%1:f32[4,4]{4,1}+0 = exp(%0:f32[4,4]{4,1}+0)\n"
                               "%3:f32[2]{1}+0 = neg(%1:f32[2]{3}+2)\n"
                               "%5:f32[2,2]{8,3}+0 = exp(%2:f32[2,2]{1,0}+0)\n"
                               "%2:f32[2]{1}+0 = neg(%2:f32[2]{1}+0)\n");
  HR_ASSERT(c.kernel_count >= 3);
  HR_ASSERT(c.kernels[0]->dims[0] > 2);
  compiled_fini(&c);
}

HR_TEST(no_group_runs_before_a_check_that_may_discard_it) {
  compiled c = compile_hoisted("buffer %0 16 live\nbuffer %1 8 live\nbuffer %2 4 live fresh\nbuffer %3 8 live\n"
                               "buffer %4 12 live\nbuffer %5 12 live fresh\n"
                               "%2:f32[1]{1}+0 = index_select(%0:f32[4]{1}+0, %1:i64[1]{1}+0) ints(0)\n"
                               "%3:f32[2]{1}+0 = neg(%3:f32[2]{1}+0)\n"
                               "%5:f32[3]{1}+0 = exp(%4:f32[3]{1}+0)\n");
  HR_ASSERT_EQ(c.check_count, 1);
  bool is_fresh_first = false; /* its result has no earlier contents */
  for (int k = 0; k < c.kernel_count - 1; ++k) {
    is_fresh_first |= c.kernels[k]->rank == 1 && c.kernels[k]->dims[0] == 3;
  }
  HR_ASSERT(is_fresh_first);
  HR_ASSERT_EQ(c.schedule.steps[c.schedule.step_count - 1].kernel->dims[0], 2);
  compiled_fini(&c);
}

/* Padding is an element of the padded tensor: rounded and wrapped as if it had been stored. */
HR_TEST(padding_is_of_the_dtype_that_is_padded) {
  const char *text = "buffer %0 2 live\n"
                     "buffer %1 3 dead fresh\n"
                     "buffer %2 12 live fresh\n"
                     "buffer %3 4 live\n"
                     "buffer %4 6 dead fresh\n"
                     "buffer %5 12 live fresh\n"
                     "scalar $0 f64\n"
                     "%1:u8[3]{1}+0 = pad(%0:u8[2]{1}+0) ints(0,1) scalars($0)\n"
                     "%2:i32[3]{1}+0 = mul(%1:u8[3]{1}+0, %1:u8[3]{1}+0)\n"
                     "%4:bf16[3]{1}+0 = pad(%3:bf16[2]{1}+0) ints(1,0) scalars($0)\n"
                     "%5:f32[3]{1}+0 = copy(%4:bf16[3]{1}+0)\n";
  uint8_t x[2] = {1, 2};
  uint16_t h[2] = {hr_f32_to_bf16(1), hr_f32_to_bf16(2)};
  int32_t square[3];
  float wide[3];
  hr_scalar fill = hr_scalar_f64(-2.01);
  HR_ASSERT_OK(run(text, (void *[]){x, NULL, square, h, NULL, wide}, &fill));
  HR_ASSERT_EQ(square[2], 254 * 254);
  HR_ASSERT_NEAR(wide[0], -2.015625, 0);
  HR_ASSERT_NEAR(wide[2], 2, 0);
}

/* ---- kernels that are alike ---- */

/* Two updates of equal dims share their code; one of other dims has its own. */
HR_TEST(updates_of_equal_dims_are_lowered_once) {
  const char *text = "buffer %0 16 live\nbuffer %1 16 live\nbuffer %2 16 live\nbuffer %3 16 live\n"
                     "buffer %4 12 live\n"
                     "scalar $0 f64\nscalar $1 f64\n"
                     "%0:f32[4]{1}+0 = addcmul(%0:f32[4]{1}+0, %1:f32[4]{1}+0, %1:f32[4]{1}+0, $0)\n"
                     "%2:f32[4]{1}+0 = addcmul(%2:f32[4]{1}+0, %3:f32[4]{1}+0, %3:f32[4]{1}+0, $1)\n"
                     "%4:f32[3]{1}+0 = mul(%4:f32[3]{1}+0, $0)\n";
  compiled c = compile(text);
  HR_ASSERT_EQ(c.kernel_count, 3);
  HR_ASSERT(c.kernels[0]->instrs == c.kernels[1]->instrs && c.kernels[2]->instrs != c.kernels[0]->instrs);
  HR_ASSERT(c.kernels[0]->args[0].buffer != c.kernels[1]->args[0].buffer);
  HR_ASSERT(c.kernels[0]->scalars[0] != c.kernels[1]->scalars[0]);
  HR_ASSERT(c.schedule.steps[0].like == 0 && c.schedule.steps[1].like == 1 && c.schedule.steps[2].like == 0);
  compiled_fini(&c);
  float a[4] = {1, 2, 3, 4}, b[4] = {1, 2, 3, 4}, d[4] = {5, 6, 7, 8}, e[4] = {2, 2, 2, 3}, f[3] = {1, 2, 3};
  hr_scalar arguments[2] = {hr_scalar_f64(2), hr_scalar_f64(-1)};
  HR_ASSERT_OK(run(text, (void *[]){a, b, d, e, f}, arguments));
  HR_ASSERT(a[0] == 3 && a[3] == 36 && d[0] == 1 && d[3] == -1 && f[2] == 6);
}

/* Kernels of equal dims differ if the distance between the operands or the buffers they name twice do. */
HR_TEST(updates_of_other_elements_are_not_alike) {
  const char *text = "buffer %0 32 live\nbuffer %1 32 live\nbuffer %2 16 live\nbuffer %3 16 live\n"
                     "%2:f32[4]{1}+0 = add(%0:f32[4]{1}+0, %0:f32[4]{1}+4)\n"
                     "%3:f32[4]{1}+0 = add(%1:f32[4]{1}+0, %1:f32[4]{1}+3)\n";
  compiled c = compile(text);
  HR_ASSERT_EQ(c.kernel_count, 2);
  HR_ASSERT(c.kernels[0]->accesses != c.kernels[1]->accesses);
  compiled_fini(&c);
  float a[8] = {1, 2, 3, 4, 5, 6, 7, 8}, b[8] = {1, 2, 3, 4, 5, 6, 7, 8}, x[4], y[4];
  HR_ASSERT_OK(run(text, (void *[]){a, b, x, y}, NULL));
  HR_ASSERT(x[0] == 6 && x[3] == 12 && y[0] == 5 && y[3] == 11);
}

/* The second update makes another version of its buffer than the first. Only a target that explains gets to know why
 * kernels are apart. */
HR_TEST(later_updates_of_a_buffer_are_alike) {
  const char *text = "buffer %0 16 live\nbuffer %1 16 live\nbuffer %2 16 live fresh\n"
                     "scalar $0 f64\nscalar $1 f64\n"
                     "%0:f32[4]{1}+0 = addcmul(%0:f32[4]{1}+0, %1:f32[4]{1}+0, %1:f32[4]{1}+0, $0)\n"
                     "%2:f32[4]{1}+0 = copy(%0:f32[4]{-1}+3)\n"
                     "%0:f32[4]{1}+0 = addcmul(%0:f32[4]{1}+0, %1:f32[4]{1}+0, %1:f32[4]{1}+0, $1)\n";
  compiled c = compile(text), explained = compile_for(text, (hr_target){.explains = true});
  HR_ASSERT_EQ(c.kernel_count, 3);
  HR_ASSERT(c.kernels[0]->instrs == c.kernels[2]->instrs && c.schedule.steps[2].like == 1);
  HR_ASSERT(c.schedule.steps[1].why == NULL && explained.schedule.steps[1].why != NULL);
  compiled_fini(&c);
  compiled_fini(&explained);
  float a[4] = {1, 2, 3, 4}, b[4] = {1, 2, 3, 4}, reversed[4];
  hr_scalar arguments[2] = {hr_scalar_f64(2), hr_scalar_f64(-1)};
  HR_ASSERT_OK(run(text, (void *[]){a, b, reversed}, arguments));
  HR_ASSERT(a[0] == 2 && a[3] == 20 && reversed[0] == 36 && reversed[3] == 3);
}

/* ---- compact schedules ---- */

static size_t slack(const hr_arena *arena) {
  return arena->bytes_allocated - hr_arena_bytes_used(arena);
}

/* Two updates of equal code, a sum, bounds and terms, and a buffer that fusion eliminates. */
HR_TEST(a_compact_schedule_takes_just_the_memory_it_needs) {
  const char *text = "buffer %0 64 live\n"
                     "buffer %1 24 live fresh\n"
                     "buffer %2 4 live fresh\n"
                     "buffer %3 128 live\n"
                     "buffer %4 128 live\n"
                     "buffer %5 8 live\n"
                     "buffer %6 64 dead fresh made\n"
                     "scalar $0 f64\n"
                     "%6:f32[16]{1}+0 = exp(%0:f32[16]{1}+0)\n"
                     "%2:f32[1]{1}+0 = sum(%6:f32[16]{1}+0) ints(1)\n"
                     "%3:f32[32]{1}+0 = mul(%3:f32[32]{1}+0, $0)\n"
                     "%4:f32[32]{1}+0 = mul(%4:f32[32]{1}+0, $0)\n"
                     "check_index(%5:i64[1]{1}+0) ints(0,16,0)\n"
                     "%1:f32[6]{1}+0 = pad(%0:f32[4]{1}+0) ints(1,1) scalars($0)\n";
  compiled c = compile(text);
  int kernels = 0, steps = c.schedule.step_count, buffers = c.schedule.program.buffer_count;
  hr_kernel_key before = {0}, after = {0};
  HR_ASSERT(hr_kernel_make_key(c.kernels[0], &before));
  HR_ASSERT_OK(hr_schedule_compact(&c.schedule));
  HR_ASSERT_EQ(c.schedule.step_count, steps);
  HR_ASSERT_EQ(c.schedule.program.buffer_count, buffers - 1);
  HR_ASSERT_EQ(slack(&c.schedule.program.arena), 0);
  HR_ASSERT_EQ(slack(&c.schedule.forms), 0);
  HR_ASSERT_EQ(c.schedule.program.arena.first == c.schedule.program.arena.last, true);
  HR_ASSERT_EQ(c.schedule.forms.first == c.schedule.forms.last, true);
  for (int s = 0; s < steps; ++s) {
    const hr_step *step = &c.schedule.steps[s];
    HR_ASSERT(step->kind != HR_STEP_KERNEL || step->kernel != NULL);
    if (step->kind == HR_STEP_KERNEL && kernels++ == 0) {
      HR_ASSERT(hr_kernel_make_key(step->kernel, &after));
    }
  }
  HR_ASSERT_EQ(kernels, c.kernel_count);
  HR_ASSERT_EQ(after.count, before.count);
  HR_ASSERT_BYTES_EQ(after.data, before.data, before.count);
  hr_vector_fini(&before);
  hr_vector_fini(&after);
  compiled_fini(&c);
}
