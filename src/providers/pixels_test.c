/* Convolutions of 1 x 1 windows in bfloat16 (providers/pixels) against plain loops in double precision: every layout,
 * tails of panels and tiles, strides; the same bits for any threads and layout; and epilogues, which give the bits of
 * the rows after the convolution alone.
 */
#include "base/thread.h"
#include "core/ir/dtype.h"
#include "node_args.h"
#include "provider_cases.h"

static const window shapes[] = {
    {2, 1, 64, 64, 1, {7, 7}, {1, 1}, {1, 1}, {0, 0}, {1, 1}},
    {2, 2, 66, 80, 1, {5, 9}, {1, 1}, {1, 1}, {0, 0}, {1, 1}},
    {2, 3, 130, 112, 1, {9, 8}, {1, 1}, {2, 2}, {0, 0}, {1, 1}},
    {2, 1, 64, 272, 1, {31, 40}, {1, 1}, {1, 1}, {0, 0}, {1, 1}},
    {2, 4, 320, 64, 1, {16, 11}, {1, 1}, {2, 3}, {0, 0}, {1, 1}},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static op_case pixels_case(const window *q, image_layout x, image_layout w, image_layout y, bool has_bias) {
  op_case t = window_case(HR_OP_CONV, q, HR_DTYPE_BF16, x, w, y, has_bias);
  t.provider = &hr__pixels_provider;
  t.writes_weights = random_below(2) == 0;
  return t;
}

HR_TEST(pixels_convolves) {
  cases_begin(&hr__pixels_provider);
  for (int i = 0; i < SHAPES; ++i) {
    for (int turn = 0; turn < 3 * IMAGE_LAYOUTS; ++turn) {
      image_layout layouts[3];
      for (int operand = 0; operand < 3; ++operand) {
        layouts[operand] =
            (image_layout)(turn / IMAGE_LAYOUTS == operand ? turn % IMAGE_LAYOUTS : random_below(IMAGE_LAYOUTS));
      }
      op_case t = pixels_case(&shapes[i], layouts[0], layouts[1], layouts[2], turn % 2 == 0);
      if (hr_test_takes(i + turn)) {
        op_case_must_pass(&t);
      }
    }
  }
}

HR_TEST(pixels_leaves_others) {
  cases_begin(&hr__pixels_provider);
  static const window left[] = {{2, 1, 64, 64, 1, {9, 9}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
                                {2, 1, 64, 64, 1, {9, 9}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
                                {2, 1, 64, 64, 1, {9, 9}, {1, 1}, {1, 1}, {0, 0}, {1, 1}, {-1, 0}},
                                {2, 1, 128, 128, 2, {9, 9}, {1, 1}, {1, 1}, {0, 0}, {1, 1}},
                                {2, 1, 65, 64, 1, {9, 9}, {1, 1}, {1, 1}, {0, 0}, {1, 1}},
                                {2, 1, 64, 72, 1, {9, 9}, {1, 1}, {1, 1}, {0, 0}, {1, 1}},
                                {2, 1, 64, 64, 1, {5, 5}, {1, 1}, {1, 1}, {0, 0}, {1, 1}},
                                {1, 1, 64, 64, 1, {90}, {1}, {1}, {0}, {1}}};
  for (size_t i = 0; i < sizeof left / sizeof *left; ++i) {
    op_case t = pixels_case(&left[i], IMAGE_CHANNELS_LAST, IMAGE_DENSE, IMAGE_CHANNELS_LAST, false);
    HR_ASSERT(!op_case_is_taken(&t));
  }
  op_case t = window_case(HR_OP_CONV, &shapes[0], HR_DTYPE_F32, IMAGE_DENSE, IMAGE_DENSE, IMAGE_DENSE, false);
  t.provider = &hr__pixels_provider;
  HR_ASSERT(!op_case_is_taken(&t));
}

static float *bits_of(const window *q, image_layout layout, int threads) {
  hr_thread_count_set(threads);
  op_case t = pixels_case(q, layout, IMAGE_DENSE, layout, true);
  random_state = 11;
  op_case_begin(&t);
  float *bits = op_case_run_once(&t);
  hr_thread_count_set(0);
  return bits;
}

HR_TEST(pixels_gives_the_same_bits_with_any_threads_and_layout) {
  cases_begin(&hr__pixels_provider);
  static const window some[] = {{2, 1, 64, 272, 1, {31, 40}, {1, 1}, {1, 1}, {0, 0}, {1, 1}},
                                {2, 1, 66, 208, 1, {7, 7}, {1, 1}, {1, 1}, {0, 0}, {1, 1}}};
  for (int i = 0; i < 2; ++i) {
    op_case t = pixels_case(&some[i], IMAGE_DENSE, IMAGE_DENSE, IMAGE_DENSE, true);
    size_t bytes = (size_t)tensor_count(&t.tensors[t.input_count]) * sizeof(float);
    float *one = bits_of(&some[i], IMAGE_CHANNELS_LAST, 1);
    for (int threads = 1; threads <= 5; threads += 2) {
      for (int layout = 0; layout < IMAGE_LAYOUTS; ++layout) {
        float *other = bits_of(&some[i], (image_layout)layout, threads);
        HR_ASSERT(memcmp(one, other, bytes) == 0);
        free(other);
      }
    }
    free(one);
  }
}

/* ---- epilogues: x [2,64,6,5], w [80,64,1,1], y [2,80,6,5], channels-last, in buffer 2; residual in 4 ---- */

#define LAST "[2,80,6,5]{2400,1,400,80}+0"
#define CONV(inputs, epilogues)                                                                               \
  "buffer %0 7680 live\nbuffer %1 10240 live\nbuffer %2 9600 live\nbuffer %3 160 live\nbuffer %4 9600 live\n" \
  "%2:bf16" LAST " = conv(%0:bf16[2,64,6,5]{1920,1,320,64}+0, %1:bf16[80,64,1,1]{64,1,1,1}+0, "               \
  "%3:bf16[80]{1}+0" inputs ") ints(2,1,1,0,0,1,1,1) " epilogues "\n"

enum { BUFFERS = 5, RESULTS = 4800 };

/* Random numbers, some of which are large, denormal, infinite, NaN or -0. */
static void fill(uint16_t *x, size_t count) {
  static const uint16_t odd[] = {0x7f80, 0xff80, 0x7fc1, 0xffc1, 0x8000, 0x0001, 0x8040, 0x7f7f, 0x0080, 0x8081};
  for (size_t i = 0; i < count; ++i) {
    x[i] = hr_f32_to_bf16((float)((int)random_below(2001) - 1000) / 1000);
    x[i] = random_below(300) == 0 ? odd[random_below(10)] : x[i];
  }
}

static bool run_node(const hr_program *program, const hr_node *node, uint16_t *const *memory) {
  hr_prepared *prepared = NULL;
  size_t bytes = 0;
  void *args[16];
  if (!hr__pixels_provider.supports(program, node)) {
    return false;
  }
  hr__node_args(program, node, (void *const *)memory, NULL, args);
  HR_ASSERT_OK(hr__pixels_provider.prepare(program, node, HR_ALGORITHM_OWN, NULL, &prepared, &bytes));
  void *workspace = hr_aligned_malloc(bytes + 64, 64);
  HR_ASSERT_OK(hr__pixels_provider.run(prepared, args, workspace, NULL));
  hr__pixels_provider.release(prepared);
  hr_aligned_free(workspace);
  return true;
}

/* The residual, if there is one, is added by the reference's rounding, and so is ReLU. */
static void expect_rows(const char *text, bool has_residual, bool has_relu) {
  hr_program program;
  uint16_t *memory[BUFFERS], alone[RESULTS], residual[RESULTS];
  HR_ASSERT_OK(hr_program_parse(text, &program));
  HR_ASSERT_OK(hr_program_verify(&program));
  for (int b = 0; b < BUFFERS; ++b) {
    memory[b] = hr_aligned_malloc(program.buffers[b].bytes, 64);
    fill(memory[b], program.buffers[b].bytes / sizeof(uint16_t));
  }
  for (int i = 0; i < 7; ++i) { /* sums that are tiny or zero: of a pixel that is zero */
    memset(memory[0] + i * 64, 0, 64 * sizeof(uint16_t));
  }
  const hr_node *node = &program.nodes[0];
  bool is_in_place = has_residual && node->inputs[3].index == 2;
  memcpy(residual, memory[is_in_place ? 2 : 4], sizeof residual);
  hr_node plain = *node;
  plain.input_count = 3, plain.epilogue_count = 0;
  HR_ASSERT(run_node(&program, &plain, memory));
  memcpy(alone, memory[2], sizeof alone);
  memcpy(memory[2], residual, sizeof residual);
  HR_ASSERT(run_node(&program, node, memory));
  for (int i = 0; i < RESULTS; ++i) {
    float value = hr_bf16_to_f32(alone[i]);
    value = has_residual ? hr_bf16_to_f32(hr_f32_to_bf16(value + hr_bf16_to_f32(residual[i]))) : value;
    value = has_relu && value <= 0 ? 0 : value;
    uint16_t wanted = hr_f32_to_bf16(value);
    HR_ASSERT(value != value ? hr_bf16_to_f32(memory[2][i]) != hr_bf16_to_f32(memory[2][i]) : memory[2][i] == wanted);
  }
  for (int b = 0; b < BUFFERS; ++b) {
    hr_aligned_free(memory[b]);
  }
  hr_program_fini(&program);
}

static void expect_refused(const char *text) {
  hr_program program;
  HR_ASSERT_OK(hr_program_parse(text, &program));
  HR_ASSERT_OK(hr_program_verify(&program));
  HR_ASSERT(!hr__pixels_provider.supports(&program, &program.nodes[0]));
  hr_program_fini(&program);
}

HR_TEST(pixels_gives_the_bits_of_rows) {
  cases_begin(&hr__pixels_provider);
  for (int turn = 0; turn < 20; ++turn) {
    expect_rows(CONV("", "then(relu,^)"), false, true);
    expect_rows(CONV(", %4:bf16" LAST, "then(add,^,3)"), true, false);
    expect_rows(CONV(", %4:bf16" LAST, "then(add,3,^) then(relu,^)"), true, true);
    expect_rows(CONV(", %2:bf16" LAST, "then(add,^,3) then(relu,^)"), true, true);
  }
}

HR_TEST(pixels_refuses_other_rows) {
  cases_begin(&hr__pixels_provider);
  expect_refused(CONV("", "then(tanh,^)"));
  expect_refused(CONV("", "then(add,^,^)"));
  expect_refused(CONV(", %4:bf16" LAST, "then(mul,^,3)"));
  expect_refused(CONV(", %4:bf16" LAST, "then(relu,^) then(add,^,3)"));
  expect_refused(CONV(", %4:bf16[2,80,6,5]{2400,30,5,1}+0", "then(add,^,3)"));
  expect_refused(CONV(", %3:bf16[2,80,6,5]{0,0,0,0}+0", "then(add,^,3)"));
}

HR_TEST(pixels_reports_memory_that_is_out) {
  cases_begin(&hr__pixels_provider);
  op_case t = pixels_case(&shapes[0], IMAGE_DENSE, IMAGE_DENSE, IMAGE_CHANNELS_LAST, true);
  HR_ASSERT(op_case_is_taken(&t));
  op_case_check_memory(&t);
}
