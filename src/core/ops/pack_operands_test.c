/* Contractions that a provider supports only without bias, or with operands in certain layouts: copies and a loop for
 * bias give the results of the plain lowering.
 */
#include "lower_testing.h"

#include "core/ir/dtype.h"

/* ---- providers with few supported forms ---- */

static bool is_dense(const hr_operand *x, bool channels_last) {
  int64_t expected = 1;
  for (int i = x->rank - 1; i >= 0; --i) {
    int d = !channels_last || i == 0 ? i : i == x->rank - 1 ? 1 : i + 1;
    if (x->strides[d] != expected) {
      return false;
    }
    expected *= x->dims[d];
  }
  return true;
}

/* A bit for each dense operand, inputs and output. */
static unsigned dense_operands(const hr_node *node, bool channels_last) {
  return (unsigned)is_dense(&node->inputs[0], channels_last) |
         (unsigned)is_dense(&node->inputs[1], channels_last) << 1 |
         (unsigned)is_dense(&node->outputs[0], channels_last) << 2;
}

static bool takes_dense(void *ctx, const hr_program *program, const hr_node *node) {
  (void)ctx, (void)program;
  bool has_bias = node->input_count > 2 && node->inputs[2].kind != HR_OPERAND_NONE;
  return !has_bias && (dense_operands(node, false) == 7 || dense_operands(node, true) == 7);
}

static bool takes_channels_last(void *ctx, const hr_program *program, const hr_node *node) {
  (void)ctx, (void)program;
  return node->input_count == 2 && dense_operands(node, true) == 7;
}

static bool takes_nothing(void *ctx, const hr_program *program, const hr_node *node) {
  (void)ctx, (void)program, (void)node;
  return false;
}

/* ---- programs ---- */

enum { BUFFERS = 4, BYTES = 8192 };

typedef struct shown {
  int contractions, copies, adds;
} shown;

static shown count_nodes(const hr_program *program) {
  shown s = {0};
  for (int i = 0; i < program->node_count; ++i) {
    hr_op op = program->nodes[i].op;
    s.contractions += !program->nodes[i].is_loop;
    s.copies += op == HR_OP_COPY;
    s.adds += op == HR_OP_ADD;
  }
  return s;
}

/* Small quarters, exact in all dtypes. */
static void fill(hr_dtype dtype, float *memory, size_t from) {
  for (size_t j = 0; j < BYTES / hr_dtype_size(dtype); ++j) {
    float value = (float)((int)(from + j * 7) % 23 - 11) / 4;
    if (dtype == HR_DTYPE_F32) {
      memory[j] = value;
    } else {
      ((uint16_t *)(void *)memory)[j] = dtype == HR_DTYPE_F16 ? hr_f32_to_f16(value) : hr_f32_to_bf16(value);
    }
  }
}

static void evaluate(const hr_program *program, hr_dtype dtype, float memory[BUFFERS][BYTES / sizeof(float)]) {
  void *addresses[BUFFERS];
  for (int i = 0; i < BUFFERS; ++i) {
    addresses[i] = memory[i];
    fill(dtype, memory[i], (size_t)i * 31);
  }
  HR_ASSERT_OK(hr_program_evaluate(program, addresses, NULL));
  for (int i = 0; i < BUFFERS && dtype == HR_DTYPE_F32; ++i) {
    for (size_t j = 0; j < BYTES / sizeof(float); ++j) {
      memory[i][j] += 0.0f; /* the sign of an empty sum is arbitrary */
    }
  }
}

/* The numbers make every sum exact: results agree to the bit in any order. */
static shown check(const char *node, hr_keep_fn keeps) {
  static float plain[BUFFERS][BYTES / sizeof(float)], packed[BUFFERS][BYTES / sizeof(float)];
  char text[1024];
  snprintf(text, sizeof text, "buffer %%0 %d live\nbuffer %%1 %d live\nbuffer %%2 %d live\nbuffer %%3 %d live\n%s\n",
           BYTES, BYTES, BYTES, BYTES, node);
  hr_program program, expanded;
  HR_ASSERT_OK(hr_program_parse(text, &program));
  HR_ASSERT_OK(hr_expand(&program, keeps, NULL, &expanded));
  HR_ASSERT_OK(hr_program_verify(&expanded));
  hr_dtype dtype = program.nodes[0].outputs[0].dtype;
  evaluate(&program, dtype, plain);
  evaluate(&expanded, dtype, packed);
  HR_ASSERT_BYTES_EQ(packed, plain, sizeof plain);
  shown s = count_nodes(&expanded);
  hr_program_fini(&expanded);
  hr_program_fini(&program);
  return s;
}

static void check_counts(const char *node, hr_keep_fn keeps, shown expected) {
  shown s = check(node, keeps);
  HR_ASSERT_EQ(s.contractions, expected.contractions);
  HR_ASSERT_EQ(s.copies, expected.copies);
  HR_ASSERT_EQ(s.adds, expected.adds);
}

HR_TEST(bias_is_added_afterwards) {
  check_counts("%3:f32[4,6]{6,1}+0 = matmul(%0:f32[4,5]{5,1}+0, %1:f32[5,6]{6,1}+0, %2:f32[6]{1}+3)", takes_dense,
               (shown){1, 0, 1});
  check_counts("%3:f32[2,4,6]{24,6,1}+0 = matmul(%0:f32[2,4,5]{20,5,1}+0, %1:f32[2,5,6]{30,6,1}+0, %2:f32[4,6]{6,1}+3)",
               takes_dense, (shown){1, 0, 1});
  check_counts("%3:f32[2,6,3,4]{72,12,4,1}+0 = conv(%0:f32[2,5,5,5]{125,25,5,1}+0, %1:f32[6,5,3,2]{30,6,2,1}+0, "
               "%2:f32[6]{2}+1) ints(2, 1, 1, 0, 0, 1, 1, 1)",
               takes_dense, (shown){1, 0, 1});
}

HR_TEST(operands_in_other_layouts_are_copied) {
  /* columns of the left factor; an output with room between its rows; both */
  check_counts("%3:f32[4,6]{6,1}+0 = matmul(%0:f32[4,5]{1,4}+0, %1:f32[5,6]{6,1}+0)", takes_dense, (shown){1, 1, 0});
  check_counts("%3:f32[4,6]{9,1}+2 = matmul(%0:f32[4,5]{5,1}+0, %1:f32[5,6]{6,1}+0)", takes_dense, (shown){1, 1, 0});
  check_counts("%3:f32[4,6]{9,1}+2 = matmul(%0:f32[4,5]{-5,1}+30, %1:f32[5,6]{6,1}+0, %2:f32[6]{1}+0)", takes_dense,
               (shown){1, 1, 1});
  check_counts("%3:f32[4,6]{9,1}+2 = matmul(%0:f32[4,5]{0,1}+3, %1:f32[5,6]{1,5}+0)", takes_dense, (shown){1, 3, 0});
}

/* Activations with channels last: the weight, which is smaller, is copied to that layout. */
HR_TEST(the_fewest_elements_are_copied) {
  const char *forward = "%3:f32[4,3,5,4]{60,1,12,3}+0 = conv(%0:f32[4,2,6,5]{60,1,10,2}+0, %1:f32[3,2,2,2]{8,4,2,1}+0, "
                        "%2:f32[3]{1}+0) ints(2, 1, 1, 0, 0, 1, 1, 1)";
  check_counts(forward, takes_dense, (shown){1, 1, 1});
  check_counts(forward, takes_channels_last, (shown){1, 1, 1});
  check_counts("%3:f32[4,2,6,5]{60,1,10,2}+0 = conv_backward_data(%0:f32[4,3,5,4]{60,1,12,3}+0, "
               "%1:f32[3,2,2,2]{8,4,2,1}+0) ints(2, 1, 1, 0, 0, 1, 1, 1)",
               takes_dense, (shown){1, 1, 0});
  check_counts("%3:f32[3,2,2,2]{8,4,2,1}+0 = conv_backward_weight(%0:f32[4,2,6,5]{60,1,10,2}+0, "
               "%1:f32[4,3,5,4]{60,1,12,3}+0) ints(2, 1, 1, 0, 0, 1, 1, 1)",
               takes_channels_last, (shown){1, 1, 0});
  check_counts("%3:f32[4,3,5]{15,1,3}+0 = conv(%0:f32[4,2,6]{12,6,1}+0, %1:f32[3,2,2]{4,2,1}+0) ints(1, 1, 0, 1, 1)",
               takes_channels_last, (shown){1, 2, 0});
}

/* Copies 1,152 elements of an earlier weight, whose copies are cached, rather than 96 of activations. */
HR_TEST(weights_are_copied_rather_than_activations) {
  check_counts("%3:f32[1,16,2,2]{64,1,32,16}+0 = conv(%0:f32[1,8,2,2]{32,1,16,8}+0, %1:f32[16,8,3,3]{72,9,3,1}+0) "
               "ints(2, 1, 1, 1, 1, 1, 1, 1)",
               takes_dense, (shown){1, 1, 0});
}

static bool takes_close(void *ctx, const hr_program *program, const hr_node *node) {
  return takes_dense(ctx, program, node) && node->ints[1] == 1 && node->ints[2] == 1;
}

/* Planes of whole tiles and others, strides that differ. */
HR_TEST(gradients_that_skip_elements_become_those_of_a_stride_of_one) {
  check_counts("%3:f32[2,3,6,4]{72,24,4,1}+0 = conv_backward_data(%0:f32[2,4,3,2]{24,6,2,1}+0, "
               "%1:f32[4,3,1,1]{3,1,1,1}+0) ints(2, 2, 2, 0, 0, 1, 1, 1)",
               takes_close, (shown){1, 0, 0});
  check_counts("%3:f32[2,3,7,4]{84,28,4,1}+0 = conv_backward_data(%0:f32[2,4,3,4]{48,12,4,1}+0, "
               "%1:f32[4,3,1,1]{3,1,1,1}+0) ints(2, 3, 1, 0, 0, 1, 1, 1)",
               takes_close, (shown){1, 2, 0});
  check_counts("%3:f32[4,3,1,1]{3,1,1,1}+0 = conv_backward_weight(%0:f32[2,3,7,4]{84,28,4,1}+0, "
               "%1:f32[2,4,4,2]{32,8,2,1}+0) ints(2, 2, 2, 0, 0, 1, 1, 1)",
               takes_close, (shown){1, 1, 0});
  check_counts("%3:f32[2,3,6,4]{72,24,4,1}+0 = conv_backward_data(%0:f32[2,4,3,2]{1,12,4,2}+0, "
               "%1:f32[4,3,1,1]{3,1,1,1}+0) ints(2, 2, 2, 0, 0, 1, 1, 1)",
               takes_close, (shown){1, 1, 0});
  check_counts("%3:f32[4,3,1,1]{3,1,1,1}+0 = conv_backward_weight(%0:f32[2,3,7,4]{84,28,4,1}+0, "
               "%1:f32[2,4,4,2]{32,8,2,1}+0) ints(2, 2, 2, 0, 0, 1, 1, 1, 1, 0)",
               takes_close, (shown){1, 1, 0});
}

static void check_loops(const char *node) {
  HR_ASSERT_EQ(check(node, takes_close).contractions, 0);
}

HR_TEST(gradients_of_windows_behind_the_image_become_loops) {
  check_loops("%3:f32[2,3,4,4]{48,16,4,1}+0 = conv_backward_data(%0:f32[2,4,3,3]{36,9,3,1}+0, "
              "%1:f32[4,3,1,1]{3,1,1,1}+0) ints(2, 2, 2, 0, 0, 1, 1, 1, 1, 1)");
  check_loops("%3:f32[4,3,1,1]{3,1,1,1}+0 = conv_backward_weight(%0:f32[2,3,4,4]{48,16,4,1}+0, "
              "%1:f32[2,4,3,3]{36,9,3,1}+0) ints(2, 2, 2, 0, 0, 1, 1, 1, 1, 1)");
}

static bool takes_equal_ranks(void *ctx, const hr_program *program, const hr_node *node) {
  (void)ctx, (void)program;
  return node->inputs[0].rank == node->outputs[0].rank && node->inputs[1].rank == node->outputs[0].rank;
}

HR_TEST(factors_get_the_rank_of_their_product) {
  check_counts("%3:f32[3,4,6]{24,6,1}+0 = matmul(%0:f32[4,5]{5,1}+0, %1:f32[3,5,6]{30,6,1}+0)", takes_equal_ranks,
               (shown){1, 0, 0});
  check_counts("%3:f32[3,4,6]{24,6,1}+0 = matmul(%0:f32[3,4,5]{20,1,4}+0, %1:f32[5,6]{6,1}+2, %2:f32[6]{1}+0)",
               takes_equal_ranks, (shown){1, 0, 0});
  check_counts("%3:f32[2,3,4,6]{72,24,6,1}+0 = matmul(%0:f32[2,1,4,5]{20,7,5,1}+0, %1:f32[3,5,6]{30,6,1}+0)",
               takes_equal_ranks, (shown){1, 0, 0});
}

HR_TEST(operands_that_are_written_are_copied_first) {
  check("%3:f32[4,4]{4,1}+0 = matmul(%3:f32[4,4]{4,1}+0, %1:f32[4,4]{1,4}+0, %3:f32[4]{1}+4)", takes_dense);
  check("%3:f32[4,4]{4,1}+2 = matmul(%3:f32[4,4]{4,1}+0, %3:f32[4,4]{1,4}+5)", takes_dense);
}

HR_TEST(unsupported_contractions_become_loops) {
  shown s = check("%3:f32[4,6]{6,1}+0 = matmul(%0:f32[4,5]{5,1}+0, %1:f32[5,6]{6,1}+0, %2:f32[6]{1}+3)", takes_nothing);
  HR_ASSERT_EQ(s.contractions, 0);
}

static bool takes_dense_bias(void *ctx, const hr_program *program, const hr_node *node) {
  (void)ctx, (void)program;
  const hr_operand *bias = node->input_count > 2 ? &node->inputs[2] : NULL;
  return bias != NULL && bias->strides[bias->rank - 1] == 1 && dense_operands(node, false) == 7;
}

HR_TEST(a_vector_bias_is_copied_if_that_suffices) {
  check_counts("%3:f32[4,6]{6,1}+0 = matmul(%0:f32[4,5]{5,1}+0, %1:f32[5,6]{6,1}+0, %2:f32[4,6]{0,2}+3)",
               takes_dense_bias, (shown){1, 1, 0});
  check_counts("%3:f32[4,6]{6,1}+0 = matmul(%0:f32[4,5]{1,4}+0, %1:f32[5,6]{6,1}+0, %2:f32[6]{1}+3)", takes_dense_bias,
               (shown){1, 1, 0});
  check_counts("%3:f32[2,6,3,4]{72,12,4,1}+0 = conv(%0:f32[2,5,5,5]{125,25,5,1}+0, %1:f32[6,5,3,2]{30,6,2,1}+0, "
               "%2:f32[6]{2}+1) ints(2, 1, 1, 0, 0, 1, 1, 1)",
               takes_dense_bias, (shown){1, 1, 0});
}

/* Like a provider that reads vectors of 16 bytes. */
static bool takes_aligned_bias(void *ctx, const hr_program *program, const hr_node *node) {
  return takes_dense_bias(ctx, program, node) && node->inputs[2].offset % 4 == 0;
}

HR_TEST(bias_that_begins_between_vectors_is_copied) {
  check_counts("%3:f32[4,6]{6,1}+0 = matmul(%0:f32[4,5]{1,4}+0, %1:f32[5,6]{6,1}+0, %2:f32[6]{1}+8)",
               takes_aligned_bias, (shown){1, 1, 0});
  check_counts("%3:f32[4,6]{6,1}+0 = matmul(%0:f32[4,5]{5,1}+0, %1:f32[5,6]{6,1}+0, %2:f32[6]{1}+3)",
               takes_aligned_bias, (shown){1, 1, 0});
  check_counts("%3:f32[4,6]{6,1}+0 = matmul(%0:f32[4,5]{1,4}+0, %1:f32[5,6]{6,1}+0, %2:f32[4,6]{0,1}+3)",
               takes_aligned_bias, (shown){1, 2, 0});
}

static int64_t channels_taken; /* of the first operand in the last accepted node */

static bool notes_channels(void *ctx, const hr_program *program, const hr_node *node) {
  bool takes = takes_channels_last(ctx, program, node);
  channels_taken = takes ? node->inputs[0].dims[1] : channels_taken;
  return takes;
}

static void check_channels(int channels, int groups, int64_t expected, shown counts) {
  char node[512];
  const int c = channels * groups;
  snprintf(node, sizeof node,
           "%%3:f32[2,4,3,4]{48,1,16,4}+0 = conv(%%0:f32[2,%d,5,5]{%d,25,5,1}+3, %%1:f32[4,%d,3,2]{%d,6,2,1}+1) "
           "ints(2, 1, 1, 0, 0, 1, 1, %d)",
           c, 25 * c, channels, 6 * channels, groups);
  check_counts(node, notes_channels, counts);
  HR_ASSERT_EQ(channels_taken, expected);
}

HR_TEST(channels_of_copies_are_padded_to_four_if_cheap) {
  check_channels(3, 1, 4, (shown){1, 2, 0});
  check_channels(4, 1, 4, (shown){1, 2, 0});
  check_channels(5, 1, 5, (shown){1, 2, 0});
  check_channels(6, 1, 8, (shown){1, 2, 0});
  check_channels(2, 1, 2, (shown){1, 2, 0});
  check_channels(3, 2, 6, (shown){1, 2, 0}); /* groups are not padded */
  channels_taken = 0;
  check_counts("%3:f16[2,4,3,4]{48,1,16,4}+0 = conv(%0:f16[2,3,5,5]{75,25,5,1}+0, %1:f16[4,3,3,2]{18,6,2,1}+0) "
               "ints(2, 1, 1, 0, 0, 1, 1, 1)",
               notes_channels, (shown){1, 2, 0});
  HR_ASSERT_EQ(channels_taken, 3);
}

static bool takes_one_type(void *ctx, const hr_program *program, const hr_node *node) {
  return takes_dense(ctx, program, node) && node->outputs[0].dtype == node->inputs[0].dtype;
}

/* 2,049 + 1: f16 holds the sum, and not the product. */
static float product_and_bias(hr_keep_fn keeps) {
  hr_program program, expanded;
  HR_ASSERT_OK(hr_program_parse("buffer %0 64 live\nbuffer %1 64 live\nbuffer %2 64 live\nbuffer %3 64 live\n"
                                "%3:f16[1,1]{1,1}+0 = matmul(%0:f16[1,2]{2,1}+0, %1:f16[2,1]{1,1}+0, %2:f16[1]{1}+0)",
                                &program));
  HR_ASSERT_OK(hr_expand(&program, keeps, NULL, &expanded));
  uint16_t memory[4][32] = {
      {hr_f32_to_f16(2048), hr_f32_to_f16(1)}, {hr_f32_to_f16(1), hr_f32_to_f16(1)}, {hr_f32_to_f16(1)}};
  void *addresses[4] = {memory[0], memory[1], memory[2], memory[3]};
  HR_ASSERT_OK(hr_program_evaluate(&expanded, addresses, NULL));
  hr_program_fini(&expanded);
  hr_program_fini(&program);
  return hr_f16_to_f32(memory[3][0]);
}

HR_TEST(f16_is_rounded_once_if_a_provider_has_f32_products) {
  HR_ASSERT_NEAR(product_and_bias(takes_dense), 2050, 0);
  HR_ASSERT_NEAR(product_and_bias(takes_one_type), 2048, 0);
}

static bool takes_dense_f32(void *ctx, const hr_program *program, const hr_node *node) {
  return node->outputs[0].dtype == HR_DTYPE_F32 && node->inputs[0].dtype == HR_DTYPE_F32 &&
         takes_dense(ctx, program, node);
}

/* Quarters small enough for every sum to be exact in f32 and 16 bits. */
HR_TEST(narrow_numbers_are_multiplied_in_f32_if_unsupported) {
  check_counts("%3:f16[4,6]{6,1}+0 = matmul(%0:f16[4,5]{5,1}+0, %1:f16[5,6]{6,1}+0)", takes_dense_f32,
               (shown){1, 3, 0});
  check_counts("%3:bf16[4,6]{6,1}+0 = matmul(%0:bf16[4,5]{5,1}+0, %1:bf16[5,6]{1,5}+0, %2:bf16[6]{1}+3)",
               takes_dense_f32, (shown){1, 4, 1});
  check_counts("%3:f16[2,6,3,4]{72,12,4,1}+0 = conv(%0:f16[2,5,5,5]{125,25,5,1}+0, %1:f16[6,5,3,2]{30,6,2,1}+0, "
               "%2:f16[6]{2}+1) ints(2, 1, 1, 0, 0, 1, 1, 1)",
               takes_dense_f32, (shown){1, 3, 1});
}

/* 2048 + 1 + 1 is 2050 in f16 if the bias is added to the f32 sum, and 2048 if that is rounded first. */
HR_TEST(results_computed_in_f32_are_rounded_once) {
  hr_program program, expanded;
  HR_ASSERT_OK(hr_program_parse("buffer %0 64 live\nbuffer %1 64 live\nbuffer %2 64 live\nbuffer %3 64 live\n"
                                "%3:f16[1,1]{1,1}+0 = matmul(%0:f16[1,2]{2,1}+0, %1:f16[2,1]{1,1}+0, %2:f16[1]{1}+0)",
                                &program));
  HR_ASSERT_OK(hr_expand(&program, takes_dense_f32, NULL, &expanded));
  uint16_t memory[4][32] = {
      {hr_f32_to_f16(2048), hr_f32_to_f16(1)}, {hr_f32_to_f16(1), hr_f32_to_f16(1)}, {hr_f32_to_f16(1)}};
  void *addresses[4] = {memory[0], memory[1], memory[2], memory[3]};
  HR_ASSERT_OK(hr_program_evaluate(&expanded, addresses, NULL));
  HR_ASSERT_NEAR(hr_f16_to_f32(memory[3][0]), 2050, 0);
  hr_program_fini(&expanded);
  hr_program_fini(&program);
}
