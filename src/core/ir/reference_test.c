/* The reference evaluator and the expansion that it uses, against numbers computed by hand, NumPy and PyTorch. */
#include "core/ir/build.h"
#include "core/ir/program.h"
#include "core/ops/op.h"
#include "hr_test.h"

enum { BUFFERS_MAX = 8 };

static hr_status evaluate(const char *text, void *const *memory, const hr_scalar *arguments) {
  hr_program program;
  HR_RETURN_IF_ERROR(hr_program_parse(text, &program));
  hr_status status = hr_program_evaluate(&program, memory, arguments);
  hr_program_fini(&program);
  return status;
}

/* The number of nodes that a recorded program expands to. */
static int count_nodes(const char *text) {
  hr_program program, expanded;
  HR_ASSERT_OK(hr_program_parse(text, &program));
  HR_ASSERT_OK(hr_expand(&program, NULL, NULL, &expanded));
  HR_ASSERT_OK(hr_program_verify(&expanded));
  int count = expanded.node_count;
  hr_program_fini(&program);
  hr_program_fini(&expanded);
  return count;
}

#define ASSERT_ALL_EQ(actual, ...)                                         \
  do {                                                                     \
    __typeof__((actual)[0]) expected_[] = {__VA_ARGS__};                   \
    for (size_t i_ = 0; i_ < sizeof expected_ / sizeof *expected_; ++i_) { \
      HR_ASSERT_NEAR((double)(actual)[i_], (double)expected_[i_], 0);      \
    }                                                                      \
  } while (0)

#define RUN(text, ...) HR_ASSERT_OK(evaluate((text), (void *[BUFFERS_MAX]){__VA_ARGS__}, NULL))

/* ---- expansion ---- */

HR_TEST(an_operation_in_place_is_one_loop) {
  const char *text = "buffer %0 16 live\n%0:f32[4]{1}+0 = add(%0:f32[4]{1}+0, %0:f32[4]{1}+0)";
  float x[4] = {1, 2, 3, 4};
  HR_ASSERT_EQ(count_nodes(text), 1);
  RUN(text, x);
  ASSERT_ALL_EQ(x, 2, 4, 6, 8);
}

HR_TEST(a_shifted_view_is_read_before_it_is_written) {
  const char *text = "buffer %0 20 live\n%0:f32[4]{1}+1 = add(%0:f32[4]{1}+0, %0:f32[4]{1}+1)";
  float x[5] = {1, 10, 100, 1000, 10000};
  HR_ASSERT_EQ(count_nodes(text), 2);
  RUN(text, x);
  ASSERT_ALL_EQ(x, 1, 11, 110, 1100, 11000);
}

HR_TEST(a_transposed_view_is_read_before_it_is_written) {
  int32_t x[9] = {0, 1, 2, 3, 4, 5, 6, 7, 8};
  RUN("buffer %0 36 live\n%0:i32[3,3]{3,1}+0 = copy(%0:i32[3,3]{1,3}+0)", x);
  ASSERT_ALL_EQ(x, 0, 3, 6, 1, 4, 7, 2, 5, 8);
}

HR_TEST(a_broadcast_row_of_the_output_is_read_before_it_is_written) {
  float x[6] = {1, 2, 3, 4, 5, 6};
  RUN("buffer %0 24 live\n%0:f32[3,2]{2,1}+0 = sub(%0:f32[3,2]{2,1}+0, %0:f32[2]{1}+0)", x);
  ASSERT_ALL_EQ(x, 0, 0, 2, 2, 4, 4);
}

HR_TEST(other_columns_of_the_same_matrix_are_no_hazard) {
  const char *text = "buffer %0 48 live\n%0:f32[2,3]{6,1}+0 = neg(%0:f32[2,3]{6,1}+3)";
  float x[12] = {0, 0, 0, 1, 2, 3, 0, 0, 0, 4, 5, 6};
  HR_ASSERT_EQ(count_nodes(text), 1);
  RUN(text, x);
  ASSERT_ALL_EQ(x, -1, -2, -3, 1, 2, 3, -4, -5, -6, 4, 5, 6);
}

HR_TEST(a_sum_may_be_stored_into_its_input) {
  float x[6] = {1, 2, 3, 4, 5, 6};
  RUN("buffer %0 24 live\n%0:f32[1,3]{3,1}+0 = sum(%0:f32[2,3]{3,1}+0) ints(1)", x);
  ASSERT_ALL_EQ(x, 5, 7, 9, 4, 5, 6);
  float y[4] = {1, 2, 3, 4};
  RUN("buffer %0 16 live\n%0:f32[2,1]{1,1}+0 = sum(%0:f32[2,2]{2,1}+0) ints(2)", y);
  ASSERT_ALL_EQ(y, 3, 7, 3, 4);
}

HR_TEST(a_composite_may_be_stored_into_its_input) {
  float x[4] = {1, 2, 3, 4};
  RUN("buffer %0 16 live\n%0:f32[2,2]{1,2}+0 = cumsum(%0:f32[2,2]{2,1}+0) ints(1)", x);
  ASSERT_ALL_EQ(x, 1, 3, 3, 7); /* sums [[1,3],[3,7]], transposed */
}

HR_TEST(lists_are_element_after_element) {
  float a[2] = {1, 2}, b[3] = {3, 4, 5}, x[2], y[3];
  hr_scalar two = hr_scalar_f64(2);
  HR_ASSERT_OK(evaluate("buffer %0 8 live\nbuffer %1 12 live\nbuffer %2 8 live\nbuffer %3 12 live\nscalar $0 f64\n"
                        "%2:f32[2]{1}+0, %3:f32[3]{1}+0 = mul(%0:f32[2]{1}+0, %1:f32[3]{1}+0, $0, $0)",
                        (void *[]){a, b, x, y}, &two));
  ASSERT_ALL_EQ(x, 2, 4);
  ASSERT_ALL_EQ(y, 6, 8, 10);
}

HR_TEST(reductions_of_nothing_store_their_identity) {
  float sum[2] = {7, 7}, product[2] = {7, 7};
  uint8_t any = 7, all = 7;
  RUN("buffer %0 8 live\nbuffer %1 8 live\nbuffer %2 1 live\nbuffer %3 1 live\nbuffer %4 0 live\n"
      "%0:f32[2,1]{1,1}+0 = sum(%4:f32[2,0]{0,1}+0) ints(2)\n"
      "%1:f32[2,1]{1,1}+0 = prod(%4:f32[2,0]{0,1}+0) ints(2)\n"
      "%2:bool[1]{1}+0 = any(%4:f32[0]{1}+0) ints(1)\n"
      "%3:bool[1]{1}+0 = all(%4:f32[0]{1}+0) ints(1)\n"
      "%4:f32[0]{1}+0 = neg(%4:f32[0]{1}+0)\n",
      sum, product, &any, &all, NULL);
  ASSERT_ALL_EQ(sum, 0, 0);
  HR_ASSERT(!signbit(sum[0]));
  ASSERT_ALL_EQ(product, 1, 1);
  HR_ASSERT_EQ(any, 0);
  HR_ASSERT_EQ(all, 1);
  float x = 0;
  HR_ASSERT_ERROR(evaluate("buffer %0 4 live\nbuffer %1 0 live\n%0:f32[1]{1}+0 = amax(%1:f32[0]{1}+0) ints(1)",
                           (void *[]){&x, NULL}, NULL),
                  HR_STATUS_INVALID_ARGUMENT, "amax: no elements to reduce");
}

HR_TEST(numbers_without_dims_are_loops_of_one_element) {
  double x = 3, y = 0;
  RUN("buffer %0 8 live\nbuffer %1 8 live\n%1:f64[]{}+0 = square(%0:f64[]{}+0)\n%1:f64[]{}+0 = sum(%1:f64[]{}+0) "
      "ints(0)",
      &x, &y);
  HR_ASSERT_NEAR(y, 9, 0);
}

static const hr_program *oom_stream;
static hr_status expand_once(void) {
  hr_program expanded;
  hr_status status = hr_expand(oom_stream, NULL, NULL, &expanded);
  if (status == HR_OK) {
    hr_program_fini(&expanded);
  }
  return status;
}

HR_TEST(expansion_survives_missing_memory) {
  hr_program program;
  HR_ASSERT_OK(hr_program_parse("buffer %0 64 live\nbuffer %1 64 live\nscalar $0 f64\n"
                                "%1:f32[4,4]{4,1}+0 = softmax(%0:f32[4,4]{4,1}+0) ints(1)\n"
                                "%1:f32[4,4]{1,4}+0 = add(%1:f32[4,4]{4,1}+0, $0)\n",
                                &program));
  oom_stream = &program;
  HR_TEST_OOM(expand_once);
  hr_program_fini(&program);
}

static bool keep_all(void *ctx, const hr_program *program, const hr_node *node) {
  (void)program;
  ++*(int *)ctx;
  return node->op == HR_OP_MATMUL;
}

HR_TEST(providers_keep_products_that_have_work) {
  const char *text = "buffer %0 64 live\nbuffer %1 64 live\nbuffer %2 64 live\n"
                     "%2:f32[2,2]{2,1}+0 = matmul(%0:f32[2,3]{3,1}+0, %1:f32[3,2]{2,1}+0)\n"
                     "%2:f32[2,2]{2,1}+0 = matmul(%0:f32[2,0]{3,1}+0, %1:f32[0,2]{2,1}+0)\n"
                     "%2:f32[2,2]{2,1}+0 = matmul(%2:f32[2,2]{2,1}+0, %1:f32[2,2]{2,1}+0)\n";
  hr_program program, expanded;
  int asked = 0, kept = 0;
  HR_ASSERT_OK(hr_program_parse(text, &program));
  HR_ASSERT_OK(hr_expand(&program, keep_all, &asked, &expanded));
  HR_ASSERT_OK(hr_program_verify(&expanded));
  for (int i = 0; i < expanded.node_count; ++i) {
    const hr_node *node = &expanded.nodes[i];
    if (node->op == HR_OP_MATMUL) {
      ++kept;
      HR_ASSERT(!hr_operands_may_overlap(&node->outputs[0], &node->inputs[0])); /* the third reads a copy */
    }
  }
  HR_ASSERT_EQ(asked, 2);
  HR_ASSERT_EQ(kept, 2);
  hr_program_fini(&program);
  hr_program_fini(&expanded);
}

/* ---- loops ---- */

HR_TEST(bounds_give_the_fill_or_zero) {
  float x[3] = {1, 2, 3}, y[5], z[5];
  RUN("buffer %0 12 live\nbuffer %1 20 live\nbuffer %2 20 live\nscalar $0 f64 = 9\n"
      "loop %1:f32[5]{1}+0 = copy(%0:f32[5]{1}+-1?{1}+-1<3)\n"
      "loop %2:f32[5]{1}+0 = copy(%0:f32[5]{1}+-1?{1}+-1<3!$0)\n",
      x, y, z);
  ASSERT_ALL_EQ(y, 0, 1, 2, 3, 0);
  ASSERT_ALL_EQ(z, 9, 1, 2, 3, 9);
}

HR_TEST(stores_out_of_bounds_are_skipped) {
  float x[5] = {1, 2, 3, 4, 5}, y[3] = {0};
  RUN("buffer %0 20 live\nbuffer %1 12 live\nloop %1:f32[5]{1}+-1?{1}+-1<3 = copy(%0:f32[5]{1}+0)", x, y);
  ASSERT_ALL_EQ(y, 2, 3, 4);
}

HR_TEST(terms_gather_and_scatter) {
  float x[4] = {10, 20, 30, 40}, y[3], z[4] = {1, 1, 1, 1};
  int32_t index[3] = {3, -4, 3};
  const char *text = "buffer %0 16 live\nbuffer %1 12 live\nbuffer %2 12 live\nbuffer %3 16 live\n"
                     "loop %2:f32[3]{1}+0 = copy(%0:f32[3]{0}+0@1*1<4, %1:i32[3]{1}+0)\n"
                     "loop %3:f32[3]{0}+0@1*1<4 = copy(%2:f32[3]{1}+0, %1:i32[3]{1}+0) ordered(1) store(add)\n";
  RUN(text, x, index, y, z);
  ASSERT_ALL_EQ(y, 40, 10, 40);
  ASSERT_ALL_EQ(z, 11, 1, 1, 81);
  index[1] = 4;
  HR_ASSERT_ERROR(evaluate(text, (void *[]){x, index, y, z}, NULL), HR_STATUS_OUT_OF_RANGE,
                  "index 4 of an extent of 4");
}

HR_TEST(store_modes_combine) {
  int64_t add = 2, mul = 3, max = 4, min = 5, x[3] = {7, -2, 5};
  RUN("buffer %0 8 live\nbuffer %1 8 live\nbuffer %2 8 live\nbuffer %3 8 live\nbuffer %4 24 live\n"
      "loop %0:i64[3]{0}+0 = copy(%4:i64[3]{1}+0) ordered(1) store(add)\n"
      "loop %1:i64[3]{0}+0 = copy(%4:i64[3]{1}+0) ordered(1) store(mul)\n"
      "loop %2:i64[3]{0}+0 = copy(%4:i64[3]{1}+0) ordered(1) store(max)\n"
      "loop %3:i64[3]{0}+0 = copy(%4:i64[3]{1}+0) ordered(1) store(min)\n",
      &add, &mul, &max, &min, x);
  HR_ASSERT_EQ(add, 12);
  HR_ASSERT_EQ(mul, -210);
  HR_ASSERT_EQ(max, 7);
  HR_ASSERT_EQ(min, -2);
}

HR_TEST(checks_of_indices_name_the_offender) {
  int64_t good = INT64_MIN, bad = 17;
  RUN("buffer %0 8 live\ncheck_index(%0:i64[]{}+0) ints(0,5,0)", &good);
  HR_ASSERT_ERROR(evaluate("buffer %0 8 live\ncheck_index(%0:i64[]{}+0) ints(-5,5,1)", (void *[]){&bad}, NULL),
                  HR_STATUS_OUT_OF_RANGE, "class label 17 is out of range [-5, 5)");
}

/* ---- arithmetic ---- */

/* out[i] = op(a[i], b[i]) on arrays of n elements. */
static void binary(const char *op, const char *dtype, int n, void *a, void *b, const char *out_dtype, void *out) {
  char text[512];
  snprintf(text, sizeof text,
           "buffer %%0 256 live\nbuffer %%1 256 live\nbuffer %%2 256 live\n"
           "%%2:%s[%d]{1}+0 = %s(%%0:%s[%d]{1}+0, %%1:%s[%d]{1}+0)",
           out_dtype, n, op, dtype, n, dtype, n);
  HR_ASSERT_OK(evaluate(text, (void *[]){a, b, out}, NULL));
}

static void unary(const char *op, const char *dtype, int n, void *a, const char *out_dtype, void *out) {
  char text[512];
  snprintf(text, sizeof text, "buffer %%0 256 live\nbuffer %%1 256 live\n%%1:%s[%d]{1}+0 = %s(%%0:%s[%d]{1}+0)",
           out_dtype, n, op, dtype, n);
  HR_ASSERT_OK(evaluate(text, (void *[]){a, out}, NULL));
}

HR_TEST(integer_division_is_pythons) {
  int32_t a[8] = {7, -7, 7, -7, 5, INT32_MIN, 6, 0}, b[8] = {2, 2, -2, -2, 0, -1, 3, 5}, c[8];
  binary("div_floor", "i32", 8, a, b, "i32", c);
  ASSERT_ALL_EQ(c, 3, -4, -4, 3, 0, INT32_MIN, 2, 0);
  binary("div_trunc", "i32", 8, a, b, "i32", c);
  ASSERT_ALL_EQ(c, 3, -3, -3, 3, 0, INT32_MIN, 2, 0);
  binary("remainder", "i32", 8, a, b, "i32", c);
  ASSERT_ALL_EQ(c, 1, 1, -1, -1, 0, 0, 0, 0);
  binary("fmod", "i32", 8, a, b, "i32", c);
  ASSERT_ALL_EQ(c, 1, -1, 1, -1, 0, 0, 0, 0);
  uint8_t d[4] = {200, 7, 9, 255}, e[4] = {3, 0, 10, 16}, f[4];
  binary("div_floor", "u8", 4, d, e, "u8", f);
  ASSERT_ALL_EQ(f, 66, 0, 0, 15);
}

HR_TEST(integers_wrap) {
  uint8_t a[3] = {200, 255, 0}, b[3] = {100, 1, 1}, c[3];
  binary("add", "u8", 3, a, b, "u8", c);
  ASSERT_ALL_EQ(c, 44, 0, 1);
  binary("sub", "u8", 3, a, b, "u8", c);
  ASSERT_ALL_EQ(c, 100, 254, 255);
  int64_t d[2] = {INT64_MAX, INT64_MIN}, e[2] = {1, -1}, f[2];
  binary("add", "i64", 2, d, e, "i64", f);
  HR_ASSERT_EQ(f[0], INT64_MIN);
  HR_ASSERT_EQ(f[1], INT64_MAX);
  int16_t g[1] = {INT16_MIN}, h[1];
  unary("abs", "i16", 1, g, "i16", h);
  HR_ASSERT_EQ(h[0], INT16_MIN);
}

HR_TEST(integer_powers_and_shifts) {
  int32_t a[6] = {3, -2, 2, -1, 0, 10}, b[6] = {4, 3, -1, -3, 0, 10}, c[6];
  binary("pow", "i32", 6, a, b, "i32", c);
  ASSERT_ALL_EQ(c, 81, -8, 0, -1, 1, 1410065408); /* 10^10 mod 2^32 */
  int32_t d[4] = {-8, 1, 1, -1}, e[4] = {1, 31, 32, 40};
  binary("shift_right", "i32", 4, d, e, "i32", c);
  ASSERT_ALL_EQ(c, -4, 0, 0, -1);
  binary("shift_left", "i32", 4, d, e, "i32", c);
  ASSERT_ALL_EQ(c, -16, INT32_MIN, 0, 0);
}

HR_TEST(bool_arithmetic_is_whether_the_result_is_not_zero) {
  uint8_t a[4] = {0, 0, 1, 1}, b[4] = {0, 1, 0, 1}, c[4];
  binary("add", "bool", 4, a, b, "bool", c);
  ASSERT_ALL_EQ(c, 0, 1, 1, 1);
  binary("mul", "bool", 4, a, b, "bool", c);
  ASSERT_ALL_EQ(c, 0, 0, 0, 1);
  binary("logical_xor", "bool", 4, a, b, "bool", c);
  ASSERT_ALL_EQ(c, 0, 1, 1, 0);
}

HR_TEST(real_division_follows_pytorch) {
  float a[6] = {7, -7, 1, -1, 0.5f, -0.0f}, b[6] = {2, 2, 0, 0, 0.1f, 3}, c[6];
  binary("div_floor", "f32", 6, a, b, "f32", c);
  ASSERT_ALL_EQ(c, 3, -4, INFINITY, -INFINITY, 4, -0.0f); /* 0.5 // 0.1f: 0.1f is above 0.1 */
  HR_ASSERT(signbit(c[5]));
  binary("remainder", "f32", 2, a, b, "f32", c);
  ASSERT_ALL_EQ(c, 1, 1);
  binary("fmod", "f32", 2, a, b, "f32", c);
  ASSERT_ALL_EQ(c, 1, -1);
}

HR_TEST(nan_wins_or_loses_as_the_row_says) {
  float a[3] = {NAN, 1, 2}, b[3] = {1, NAN, 3}, c[3];
  binary("maximum", "f32", 3, a, b, "f32", c);
  HR_ASSERT(isnan(c[0]) && isnan(c[1]) && c[2] == 3);
  binary("fmin", "f32", 3, a, b, "f32", c);
  ASSERT_ALL_EQ(c, 1, 1, 2);
  unary("relu", "f32", 2, a, "f32", c);
  HR_ASSERT(isnan(c[0]) && c[1] == 1);
}

HR_TEST(conversions_truncate_wrap_and_compare_with_zero) {
  float a[6] = {300.7f, -1.5f, NAN, 1e20f, 0.5f, -0.0f};
  uint8_t u8[6], as_bool[6];
  int32_t i32[6];
  int64_t i64[6];
  uint64_t u64[6];
  unary("copy", "f32", 6, a, "u8", u8);
  ASSERT_ALL_EQ(u8, 44, 255, 0, 0, 0, 0);
  unary("copy", "f32", 6, a, "bool", as_bool);
  ASSERT_ALL_EQ(as_bool, 1, 1, 1, 1, 1, 0);
  unary("copy", "f32", 6, a, "i32", i32);
  ASSERT_ALL_EQ(i32, 300, -1, 0, 0, 0, 0);
  unary("copy", "f32", 6, a, "i64", i64);
  HR_ASSERT_EQ(i64[2], INT64_MIN);
  HR_ASSERT_EQ(i64[3], INT64_MIN);
  double large[2] = {0x1p63, -1};
  unary("copy", "f64", 2, large, "u64", u64);
  HR_ASSERT(u64[0] == UINT64_C(1) << 63 && u64[1] == UINT64_MAX);
  int64_t wide[3] = {2049, 65520, -1};
  uint16_t f16[3];
  unary("copy", "i64", 3, wide, "f16", f16);
  HR_ASSERT(f16[0] == 0x6800 && f16[1] == 0x7c00 && f16[2] == 0xbc00); /* 2048 (tie), infinity, -1 */
  float z[4] = {0, 2, 0, 0};
  unary("copy", "c64", 2, z, "bool", as_bool);
  ASSERT_ALL_EQ(as_bool, 1, 0);
}

HR_TEST(numbers_are_weak_in_comparisons) {
  int32_t x[3] = {0, 1, 2};
  uint8_t out[3];
  HR_ASSERT_OK(evaluate("buffer %0 12 live\nbuffer %1 3 live\nscalar $0 f64\n%1:bool[3]{1}+0 = lt(%0:i32[3]{1}+0, $0)",
                        (void *[]){x, out}, (hr_scalar[]){hr_scalar_f64(0.5)}));
  ASSERT_ALL_EQ(out, 1, 0, 0);
  float y[1] = {0.1f};
  HR_ASSERT_OK(evaluate("buffer %0 12 live\nbuffer %1 3 live\nscalar $0 f64\n%1:bool[1]{1}+0 = eq(%0:f32[1]{1}+0, $0)",
                        (void *[]){y, out}, (hr_scalar[]){hr_scalar_f64(0.1)}));
  ASSERT_ALL_EQ(out, 1); /* compared in f32 */
  uint8_t u[1] = {200};
  int8_t s[1] = {-56};
  HR_ASSERT_OK(evaluate("buffer %0 1 live\nbuffer %1 1 live\nbuffer %2 1 live\n"
                        "%2:bool[1]{1}+0 = eq(%0:u8[1]{1}+0, %1:i8[1]{1}+0)",
                        (void *[]){u, s, out}, NULL));
  ASSERT_ALL_EQ(out, 0);
}

HR_TEST(halves_round_after_each_operation) {
  uint16_t a[1] = {hr_f32_to_f16(2048)}, b[1] = {hr_f32_to_f16(1)}, c[1];
  binary("add", "f16", 1, a, b, "f16", c);
  HR_ASSERT_NEAR(hr_f16_to_f32(c[0]), 2048, 0);
  uint16_t many[100], sum[1];
  for (int i = 0; i < 100; ++i) {
    many[i] = hr_f32_to_f16(i == 0 ? 2048 : 1);
  }
  RUN("buffer %0 200 live\nbuffer %1 2 live\n%1:f16[1]{1}+0 = sum(%0:f16[100]{1}+0) ints(1)", many, sum);
  HR_ASSERT_NEAR(hr_f16_to_f32(sum[0]), 2148, 0); /* accumulated in f32, rounded once: 2147 is a tie */
}

HR_TEST(complex_rows_match_c99) {
  double a[4] = {3, -4, 0.5, 2}, b[4] = {1, 2, -1, 0.25}, c[4], real[2];
  binary("mul", "c128", 2, a, b, "c128", c);
  ASSERT_ALL_EQ(c, 11, 2, -1, -1.875);
  binary("div", "c128", 1, a, b, "c128", c);
  HR_ASSERT_NEAR(c[0], -1, 1e-15);
  HR_ASSERT_NEAR(c[1], -2, 1e-15);
  unary("abs_complex", "c128", 1, a, "f64", real);
  HR_ASSERT_NEAR(real[0], 5, 1e-15);
  unary("imag", "c128", 2, a, "f64", real);
  ASSERT_ALL_EQ(real, -4, 2);
  unary("conj", "c128", 1, a, "c128", c);
  ASSERT_ALL_EQ(c, 3, 4);
}

/* ---- reductions ---- */

HR_TEST(reductions_convert_to_the_class_of_the_output) {
  uint8_t x[4] = {200, 100, 0, 3};
  int64_t sum = 0, product = 0;
  uint8_t any = 9, max = 9;
  RUN("buffer %0 4 live\nbuffer %1 8 live\nbuffer %2 8 live\nbuffer %3 1 live\nbuffer %4 1 live\n"
      "%1:i64[1,1]{1,1}+0 = sum(%0:u8[2,2]{2,1}+0) ints(3)\n"
      "%2:i64[1]{1}+0 = prod(%0:u8[2]{1}+0) ints(1)\n"
      "%3:u8[1]{1}+0 = any(%0:u8[4]{1}+0) ints(1)\n"
      "%4:u8[1]{1}+0 = amax(%0:u8[4]{1}+0) ints(1)\n",
      x, &sum, &product, &any, &max);
  HR_ASSERT_EQ(sum, 303);
  HR_ASSERT_EQ(product, 20000);
  HR_ASSERT_EQ(any, 1);
  HR_ASSERT_EQ(max, 200);
}

HR_TEST(indices_of_extremes) {
  float x[8] = {1, 5, 5, 2, 1, NAN, 9, NAN};
  int64_t best[2], least[1], rows[4];
  RUN("buffer %0 32 live\nbuffer %1 16 live\nbuffer %2 8 live\nbuffer %3 32 live\n"
      "%1:i64[2,1]{1,1}+0 = argmax(%0:f32[2,4]{4,1}+0) ints(2)\n"
      "%2:i64[1]{1}+0 = argmin(%0:f32[4]{1}+0) ints(1)\n"
      "%3:i64[1,4]{4,1}+0 = argmax(%0:f32[2,4]{4,1}+0) ints(1)\n",
      x, best, least, rows);
  ASSERT_ALL_EQ(best, 1, 1); /* the first of equals; the first NaN */
  ASSERT_ALL_EQ(least, 0);
  ASSERT_ALL_EQ(rows, 0, 1, 1, 1);
}

HR_TEST(nan_spreads_through_extremes) {
  float x[3] = {1, NAN, 3}, max = 0, sum = 0;
  RUN("buffer %0 12 live\nbuffer %1 4 live\nbuffer %2 4 live\n%1:f32[1]{1}+0 = amax(%0:f32[3]{1}+0) ints(1)\n"
      "%2:f32[1]{1}+0 = sum(%0:f32[3]{1}+0) ints(1)",
      x, &max, &sum);
  HR_ASSERT(isnan(max) && isnan(sum));
}

/* ---- every row ---- */

/* Each real row in f32 and f64 on the same numbers: the table, both classes and the conversions agree. */
HR_TEST(f32_and_f64_agree_in_every_row) {
  for (int op = HR_OP_NONE + 1; op < HR_OP_COUNT; ++op) {
    const hr_op_row *row = hr_op_table((hr_op)op);
    if (row->family != HR_FAMILY_POINTWISE || !row->has_real || row->rule == HR_RULE_SEEDED) {
      continue;
    }
    char text[2048];
    float single[4] = {0.375f, 0.75f, 0.25f, 0.625f}, from_single[1];
    double twice[4] = {0.375, 0.75, 0.25, 0.625}, from_twice[1];
    const char *dtypes[2] = {"f32", "f64"};
    for (int pass = 0; pass < 2; ++pass) {
      int at = snprintf(text, sizeof text, "buffer %%0 32 live\nbuffer %%1 8 live\n%%1:%s[1]{1}+0 = %s(", dtypes[pass],
                        row->name);
      for (int i = 0; i < row->arity; ++i) {
        at += snprintf(text + at, sizeof text - (size_t)at, "%s%%0:%s[1]{1}+%d", i > 0 ? ", " : "", dtypes[pass], i);
      }
      snprintf(text + at, sizeof text - (size_t)at, ")\n");
      HR_ASSERT_OK(evaluate(
          text,
          (void *[]){pass == 0 ? (void *)single : (void *)twice, pass == 0 ? (void *)from_single : (void *)from_twice},
          NULL));
    }
    bool both_nan = isnan(from_single[0]) && isnan(from_twice[0]); /* acosh(0.375) */
    if (!both_nan && fabs((double)from_single[0] - from_twice[0]) > 4e-7 * (1 + fabs(from_twice[0]))) {
      HR_FAIL("%s: %.9g in f32, %.17g in f64", row->name, (double)from_single[0], from_twice[0]);
    }
  }
}

/* Random123's known answer for the counter and key of zeros. */
HR_TEST(random_numbers_are_philox) {
  static const uint32_t words[4] = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
  hr_scalar zeros[2] = {hr_scalar_i64(0), hr_scalar_i64(0)};
  int64_t element[4] = {0, 1, 2, 3}, bits[2];
  float uniform[4];
  HR_ASSERT_OK(evaluate("buffer %0 32 live\nbuffer %1 16 live\nbuffer %2 16 live\nscalar $0 i64\nscalar $1 i64\n"
                        "%1:f32[4]{1}+0 = philox_uniform(%0:i64[4]{1}+0, $0, $1)\n"
                        "%2:i64[2]{1}+0 = philox_bits(%0:i64[2]{1}+0, $0, $1)",
                        (void *[]){element, uniform, bits}, zeros));
  for (int i = 0; i < 4; ++i) {
    HR_ASSERT_NEAR(uniform[i], (double)(words[i] >> 8) / 16777216, 0);
  }
  HR_ASSERT_EQ(bits[0], (int64_t)(((uint64_t)words[0] << 32 | words[1]) >> 1));
  HR_ASSERT_EQ(bits[1], (int64_t)(((uint64_t)words[2] << 32 | words[3]) >> 1));
  uint32_t all[4];
  HR_ASSERT_OK(evaluate("buffer %0 32 live\nbuffer %1 16 live\nscalar $0 i64\nscalar $1 i64\n"
                        "%1:u32[4]{1}+0 = philox_words(%0:i64[4]{1}+0, $0, $0, $1)",
                        (void *[]){element, all}, zeros));
  HR_ASSERT_BYTES_EQ(all, words, sizeof words);
}
