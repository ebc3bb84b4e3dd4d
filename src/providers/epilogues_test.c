/* Epilogues in providers: a contraction with epilogues gives the bits of the same contraction without them followed by
 * the rows of ops.def. The processor decides if oneDNN keeps its kernel with an epilogue: rejected forms are not
 * compared, but on AVX-512 no form may be rejected.
 */
#include "base/thread.h"
#include "core/ops/op.h"
#include "hr_test.h"
#include "node_args.h"
#include "providers/onednn/dnnl_api.h"
#include "providers/provider.h"
#include "runtime/cached_weights.h"

enum { BUFFERS = 8 };

static const hr_provider *provider = &hr__onednn_provider;
/* Multiplies in the place of the provider's contraction alone; NULL: the provider does. */
static void (*multiply)(const hr_node *node, float *const *memory);

/* Skips the test if the provider isn't available. Each is asked: sgemm and oneDNN need a library, the others don't. */
static void open_provider(void) {
  hr_status status = hr__provider_open(provider);
  char text[64];
  if (status != HR_OK) {
    hr_status_free(status);
    snprintf(text, sizeof text, "%s can't be had", provider->name);
    provider = &hr__onednn_provider;
    HR_SKIP(text);
  }
}

/* Runs again with the contents of an operand that may be cached, now known: the last run reads a cached copy. Outputs
 * may be operands, too, so they get their contents back. */
static void run_cached(const hr_program *program, const hr_node *node, float *const *memory, hr_prepared *prepared,
                       void *const *args, void *workspace, const void *output) {
  static uint64_t stamp = 1 << 20;
  uint32_t out = node->outputs[0].index;
  const uint64_t stamps[16] = {0, ++stamp};
  HR_ASSERT_EQ(provider->keeps(prepared), 1);
  for (int run = 0; run < 3; ++run) {
    memcpy(memory[out], output, program->buffers[out].bytes);
    provider->stamp(prepared, stamps);
    HR_ASSERT_OK(provider->run(prepared, args, workspace, NULL));
  }
  hr__cached_weights_forget(hr__context(), stamp);
}

/* Runs a node on the given buffers. False if the provider rejects it. */
static bool run_provider(const hr_program *program, const hr_node *node, float *const *memory,
                         const hr_scalar *scalars) {
  hr_prepared *prepared = NULL;
  size_t workspace_bytes = 0;
  void *args[16];
  if (!provider->supports(program, node)) {
    return false;
  }
  hr__node_args(program, node, (void *const *)memory, scalars, args);
  HR_ASSERT_OK(provider->prepare(program, node, HR_ALGORITHM_OWN, NULL, &prepared, &workspace_bytes));
  void *workspace = hr_aligned_malloc(workspace_bytes + 64, 64);
  uint32_t out = node->outputs[0].index;
  void *output = memcpy(malloc(program->buffers[out].bytes), memory[out], program->buffers[out].bytes);
  HR_ASSERT_OK(provider->run(prepared, args, workspace, NULL));
  if (provider == &hr__sgemm_provider && provider->keeps(prepared) >= 0) {
    run_cached(program, node, memory, prepared, args, workspace, output);
  }
  free(output);
  HR_ASSERT(provider->footprint == NULL ||
            (provider->footprint(prepared) > 0 && provider->footprint(prepared) < 1 << 20));
  provider->release(prepared);
  hr_aligned_free(workspace);
  return true;
}

/* Runs the provider's contraction alone into the last buffer, then the rows, one after the other, by the reference. */
static void run_apart(const hr_program *program, float *const *memory, const hr_scalar *scalars) {
  const hr_node *node = &program->nodes[0];
  hr_operand value = node->outputs[0];
  value.index = (uint32_t)program->buffer_count - 1;
  hr_node plain = *node;
  plain.input_count = 3, plain.epilogue_count = 0;
  plain.outputs = node->epilogue_count > 0 ? &value : node->outputs;
  if (multiply != NULL) {
    multiply(&plain, memory);
  } else {
    HR_ASSERT(run_provider(program, &plain, memory, scalars));
  }
  hr_program rows = *program;
  hr_node nodes[HR_EPILOGUES_MAX];
  hr_operand inputs[HR_EPILOGUES_MAX][HR_EPILOGUE_ARITY_MAX];
  for (int i = 0; i < node->epilogue_count; ++i) {
    const hr_epilogue *epilogue = &node->epilogues[i];
    int arity = hr_op_table(epilogue->op)->arity;
    nodes[i] = (hr_node){.op = epilogue->op, .input_count = arity, .inputs = inputs[i], .output_count = 1};
    nodes[i].outputs = i + 1 < node->epilogue_count ? &value : node->outputs;
    for (int k = 0; k < arity; ++k) {
      inputs[i][k] = epilogue->inputs[k] == HR_EPILOGUE_VALUE ? value : node->inputs[epilogue->inputs[k]];
    }
  }
  rows.nodes = nodes;
  rows.node_count = node->epilogue_count;
  HR_ASSERT_OK(hr_program_evaluate(&rows, (void *const *)memory, scalars));
}

/* Runs node 0 of the program with its epilogues and separately: the bits must agree. `nan`: activations contain NaN.
 * False if the provider rejects it. */
static bool run_both(const char *text, bool nan) {
  hr_program program;
  float *memory[2][BUFFERS] = {{NULL}};
  const hr_scalar scalars[2] = {hr_scalar_f64(0.25), hr_scalar_f64(-1.5)};
  open_provider();
  HR_ASSERT_OK(hr_program_parse(text, &program));
  HR_ASSERT_OK(hr_program_verify(&program));
  uint32_t out = program.nodes[0].outputs[0].index;
  HR_ASSERT(hr_program_add_buffer(&program, program.buffers[out].bytes, false, true) != UINT32_MAX);
  program.bound_count = program.buffer_count;
  unsigned state = 7;
  for (int b = 0; b < program.buffer_count; ++b) {
    size_t count = program.buffers[b].bytes / sizeof(float);
    memory[0][b] = hr_aligned_malloc(program.buffers[b].bytes + 64, 64);
    memory[1][b] = hr_aligned_malloc(program.buffers[b].bytes + 64, 64);
    for (size_t i = 0; i < count; ++i) {
      state = state * 1664525u + 1013904223u;
      memory[0][b][i] = memory[1][b][i] = (float)(int)(state >> 8) / (float)(1 << 23) - 1;
    }
    if (nan && b == 0) {
      memory[0][b][5] = memory[1][b][5] = NAN;
    }
  }
  bool is_taken = run_provider(&program, &program.nodes[0], memory[1], scalars);
  if (is_taken) {
    run_apart(&program, memory[0], scalars);
  }
  for (size_t i = 0; is_taken && i < program.buffers[out].bytes / sizeof(float); ++i) {
    const float *expected = &memory[0][out][i], *actual = &memory[1][out][i];
    if (isnan(*expected) ? !isnan(*actual) : memcmp(expected, actual, sizeof(float)) != 0) {
      HR_FAIL("element %zu is %a, expected %a\n%s", i, (double)*actual, (double)*expected, text);
    }
  }
  for (int b = 0; b < program.buffer_count; ++b) {
    hr_aligned_free(memory[0][b]);
    hr_aligned_free(memory[1][b]);
  }
  hr_program_fini(&program);
  return is_taken;
}

/* ---- the shapes: x [2,16,5,5], w [32,16,1,1], y [2,32,5,5] channels-last, in buffer 2 ---- */

#define BUFFERS_OF_CONV                                                                                     \
  "buffer %0 3200 live\nbuffer %1 2048 live\nbuffer %2 6400 live\nbuffer %3 128 live\nbuffer %4 128 live\n" \
  "buffer %5 6400 live\nscalar $0 f64\nscalar $1 f64\n"
#define LAST "[2,32,5,5]{800,1,160,32}+0"
#define FIRST "[2,32,5,5]{800,25,5,1}+0"
#define CONV(layout, inputs, epilogues)                                                                              \
  BUFFERS_OF_CONV "%2:f32" layout " = conv(%0:f32[2,16,5,5]{400,1,80,16}+0, %1:f32[32,16,1,1]{16,1,1,1}+0, _" inputs \
                  ") ints(2,1,1,0,0,1,1,1) " epilogues "\n"
#define CHANGING "loop %1:f32[512]{1}+0 = neg(%1:f32[512]{1}+0)\n" /* the weights: a matrix product, then */
#define VECTOR(b) ", %" #b ":f32[2,32,5,5]{0,1,0,0}+0"
#define NUMBER(s) ", $" #s "[2,32,5,5]"
/* a [40,24], b [24,48], out [40,48] in buffer 2 */
#define MATMUL(inputs, epilogues)                                                                           \
  "buffer %0 3840 live\nbuffer %1 4608 live\nbuffer %2 7680 live\nbuffer %3 192 live\nbuffer %4 192 live\n" \
  "buffer %5 7680 live\nscalar $0 f64\nscalar $1 f64\n"                                                     \
  "%2:f32[40,48]{48,1}+0 = matmul(%0:f32[40,24]{24,1}+0, %1:f32[24,48]{48,1}+0, _" inputs ") " epilogues "\n"

static bool has_avx512(void) {
#if defined(__x86_64__)
  return hr_cpu_has(HR_CPU_AVX512F) && hr_cpu_has(HR_CPU_AVX512BW);
#else
  return false;
#endif
}

static void expect_same(const char *text) {
  bool is_taken = run_both(text, false) && run_both(text, true);
  HR_ASSERT(is_taken || !has_avx512());
}

static void expect_refused(const char *text) {
  HR_ASSERT(!run_both(text, false));
}

HR_TEST(channel_vectors) {
  expect_same(CONV(LAST, VECTOR(3) VECTOR(4), "then(add_scaled,3,^,4)"));
  expect_same(CONV(LAST, VECTOR(3) VECTOR(4), "then(mul,^,3) then(sub,^,4)"));
  expect_same(CONV(FIRST, VECTOR(3), "then(add,3,^)"));
}

HR_TEST(products_of_pixels) {
  expect_same(CONV(LAST, VECTOR(3) VECTOR(4), "then(add_scaled,3,^,4)") CHANGING);
  expect_same(CONV(LAST, NUMBER(0) NUMBER(1), "then(mul,^,3) then(add,^,4)") CHANGING);
  expect_same(CONV(LAST, ", %2:f32" LAST, "then(add,^,3)") CHANGING);
  expect_refused(CONV(LAST, ", %5:f32" LAST, "then(add,^,3)") CHANGING);
}

HR_TEST(numbers) {
  expect_same(CONV(LAST, NUMBER(0), "then(leaky_relu,^,3)"));
  expect_same(CONV(LAST, NUMBER(0) NUMBER(1), "then(mul,^,3) then(add,^,4)"));
  expect_same(MATMUL(", $1[40,48]", "then(mul,^,3)"));
}

HR_TEST(sums_in_place) {
  expect_same(CONV(LAST, ", %2:f32" LAST, "then(add,^,3)"));
  expect_same(CONV(FIRST, ", %2:f32" FIRST, "then(add,^,3)"));
  expect_same(MATMUL(", %2:f32[40,48]{48,1}+0", "then(add,^,3)"));
  expect_refused(CONV(LAST, ", %2:f32" LAST NUMBER(0), "then(mul,^,4) then(add,^,3)"));
}

HR_TEST(products) {
  expect_same(MATMUL(", %3:f32[40,48]{0,1}+0", "then(add,^,3)"));
  expect_same(MATMUL(", %5:f32[40,48]{48,1}+0", "then(add,^,3)"));
  expect_same(MATMUL(", %5:f32[40,48]{1,40}+0", "then(add,^,3)"));
}

#define BATCH(strides)                                                                                    \
  "buffer %0 2040 live\nbuffer %1 7344 live\nbuffer %2 1080 live\nbuffer %3 72 live\nbuffer %4 72 live\n" \
  "buffer %5 1080 live\nscalar $0 f64\nscalar $1 f64\n%2:f32[3,5,18]" strides                             \
  "+0 = matmul(%0:f32[3,5,34]{170,34,1}+0, %1:f32[3,34,18]{612,18,1}+0, _, %3:f32[3,5,18]{0,0,1}+0) then(add,^,3)\n"

HR_TEST(products_of_a_batch) {
  expect_same(BATCH("{90,18,1}"));
  expect_refused(BATCH("{18,54,1}")); /* the batch between the rows: the library crashes */
}

HR_TEST(refused) {
  expect_refused(CONV(LAST, "", "then(relu,^)"));                       /* drops NaN, or makes NaN of infinity */
  expect_refused(CONV(LAST, NUMBER(0) NUMBER(1), "then(clamp,^,4,3)")); /* drops NaN */
  expect_refused(CONV(LAST, NUMBER(0), "then(maximum,^,3)"));           /* the same */
  expect_refused(CONV(LAST, ", %3:f32[2,32,5,5]{0,0,5,1}+0", "then(add,^,3)")); /* the wrong axis */
  expect_refused(CONV(LAST, ", %5:f32" LAST, "then(add,^,3)"));                 /* slower than a loop */
  expect_refused(CONV(LAST, NUMBER(0), "then(sub,3,^)"));                       /* number - value */
  expect_refused(CONV(LAST, "", "then(mul,^,^)"));                              /* the square */
  expect_refused(CONV(LAST, "", "then(tanh,^)"));                               /* not our bits */
}

/* ---- convolutions by fewer multiplications: x [2,32,15,16], w [48,32,3,3], y [2,48,15,16] in buffer 2 ---- */

#define WINDOWS(layout, inputs, epilogues)                                                                \
  "buffer %0 61440 live\nbuffer %1 55296 live\nbuffer %2 92160 live\nbuffer %3 192 live\n"                \
  "buffer %4 192 live\nbuffer %5 92160 live\nscalar $0 f64\nscalar $1 f64\n"                              \
  "%2:f32" layout " = conv(%0:f32[2,32,15,16]{7680,1,512,32}+0, %1:f32[48,32,3,3]{288,9,3,1}+0, _" inputs \
  ") ints(2,1,1,1,1,1,1,1) " epilogues "\n"
#define WINDOWS_LAST "[2,48,15,16]{11520,1,768,48}+0"
#define WINDOWS_FIRST "[2,48,15,16]{11520,240,16,1}+0"
#define WINDOWS_VECTOR(b) ", %" #b ":f32[2,48,15,16]{0,1,0,0}+0"
#define WINDOWS_NUMBER(s) ", $" #s "[2,48,15,16]"

static void check_windows(const char *text, bool is_expected) {
  provider = &hr__winograd_provider;
  if (is_expected) {
    expect_same(text);
  } else {
    expect_refused(text);
  }
  provider = &hr__onednn_provider;
}

HR_TEST(windows_with_vectors_and_numbers) {
  check_windows(WINDOWS(WINDOWS_LAST, WINDOWS_VECTOR(3) WINDOWS_VECTOR(4), "then(add_scaled,3,^,4)"), true);
  check_windows(WINDOWS(WINDOWS_FIRST, WINDOWS_VECTOR(3) WINDOWS_VECTOR(4), "then(mul,^,3) then(sub,^,4)"), true);
  check_windows(WINDOWS(WINDOWS_LAST, WINDOWS_VECTOR(3) WINDOWS_NUMBER(0), "then(add,3,^) then(div,^,4)"), true);
  check_windows(WINDOWS(WINDOWS_LAST, WINDOWS_NUMBER(0) WINDOWS_NUMBER(1), "then(leaky_relu,^,3) then(mul,4,^)"), true);
}

HR_TEST(windows_refuse_other_rows) {
  check_windows(WINDOWS(WINDOWS_LAST, "", "then(tanh,^)"), false);
  check_windows(WINDOWS(WINDOWS_LAST, "", "then(mul,^,^)"), false);
  check_windows(WINDOWS(WINDOWS_LAST, WINDOWS_NUMBER(0), "then(sub,3,^)"), false);
  check_windows(WINDOWS(WINDOWS_LAST, ", %5:f32" WINDOWS_LAST, "then(add,^,3)"), false);
  check_windows(WINDOWS(WINDOWS_LAST, ", %3:f32[2,48,15,16]{0,0,0,1}+0", "then(add,^,3)"), false);
  check_windows(WINDOWS(WINDOWS_LAST, WINDOWS_VECTOR(3), "then(leaky_relu,^,3)"), false);
}

/* ---- direct convolutions: the shapes of CONV and WINDOWS ---- */

/* Of narrow images: x [17,16,4,3], out [17,20,2,3]. */
#define NARROW(layout, inputs, epilogues)                                                              \
  "buffer %0 13056 live\nbuffer %1 11520 live\nbuffer %2 8160 live\nbuffer %3 80 live\n"               \
  "buffer %4 80 live\nbuffer %5 8160 live\nscalar $0 f64\nscalar $1 f64\n"                             \
  "%2:f32" layout " = conv(%0:f32[17,16,4,3]{192,1,48,16}+0, %1:f32[20,16,3,3]{144,9,3,1}+0, _" inputs \
  ") ints(2,2,1,1,1,1,1,1) " epilogues "\n"
#define NARROW_LAST "[17,20,2,3]{120,1,60,20}+0"
#define NARROW_FIRST "[17,20,2,3]{120,6,3,1}+0"
#define NARROW_VECTOR(b) ", %" #b ":f32[17,20,2,3]{0,1,0,0}+0"

static void check_direct(const char *text, bool is_expected) {
  provider = &hr__direct_provider;
  if (is_expected) {
    expect_same(text);
  } else {
    expect_refused(text);
  }
  provider = &hr__onednn_provider;
}

HR_TEST(direct_with_epilogues) {
  check_direct(CONV(LAST, VECTOR(3) VECTOR(4), "then(add_scaled,3,^,4) then(relu,^)"), true);
  check_direct(CONV(FIRST, VECTOR(3) NUMBER(1), "then(mul,4,^) then(sub,^,3)"), true);
  check_direct(CONV(LAST, ", %5:f32" LAST, "then(add,^,3)"), true);
  check_direct(CONV(LAST, ", %5:f32" FIRST VECTOR(4), "then(add_scaled,3,^,4)"), true);
  check_direct(CONV(FIRST, ", %5:f32" LAST, "then(div,^,3)"), true);
  check_direct(CONV(LAST, ", %3:f32[2,32,5,5]{0,0,5,1}+0", "then(add,^,3)"), true);
  check_direct(CONV(LAST, ", %2:f32" LAST, "then(add,^,3)"), true);
  check_direct(CONV(FIRST, ", %2:f32" FIRST NUMBER(0), "then(mul,^,4) then(add,3,^) then(leaky_relu,^,4)"), true);
  check_direct(WINDOWS(WINDOWS_LAST, WINDOWS_VECTOR(3) WINDOWS_VECTOR(4), "then(add_scaled,3,^,4)"), true);
  check_direct(NARROW(NARROW_LAST, ", %5:f32" NARROW_LAST, "then(add,^,3)"), true);
  check_direct(NARROW(NARROW_FIRST, ", %5:f32" NARROW_LAST NARROW_VECTOR(4), "then(add_scaled,3,^,4)"), true);
  check_direct(NARROW(NARROW_LAST, NARROW_VECTOR(4) ", %5:f32" NARROW_FIRST, "then(mul,^,3) then(sub,^,4)"), true);
  check_direct(WINDOWS(WINDOWS_FIRST, ", %5:f32" WINDOWS_LAST WINDOWS_NUMBER(0), "then(div,^,4) then(add,^,3)"), true);
}

HR_TEST(direct_refuses_other_epilogues) {
  check_direct(CONV(LAST, "", "then(tanh,^)"), false);
  check_direct(CONV(LAST, "", "then(mul,^,^)"), false);
  check_direct(CONV(LAST, NUMBER(0), "then(sub,3,^)"), false);
  check_direct(CONV(LAST, ", %2:f32" FIRST, "then(add,^,3)"), false); /* another view of the output */
}

/* ---- convolutions of few pixels: x [1,176,6,7], w [111,176,3,3] by output channels, out [1,111,6,7] ---- */

#define FEW(layout, inputs, epilogues)                                                                               \
  "buffer %0 29568 live\nbuffer %1 703296 live\nbuffer %2 18648 live\nbuffer %3 444 live\n"                          \
  "buffer %4 444 live\nbuffer %5 18648 live\nscalar $0 f64\nscalar $1 f64\n"                                         \
  "%2:f32" layout " = conv(%0:f32[1,176,6,7]{7392,1,1232,176}+0, %1:f32[111,176,3,3]{1,111,58608,19536}+0, _" inputs \
  ") ints(2,1,1,1,1,1,1,1) " epilogues "\n"
#define FEW_LAST "[1,111,6,7]{4662,1,777,111}+0"
#define FEW_FIRST "[1,111,6,7]{4662,42,7,1}+0"
#define FEW_VECTOR(b) ", %" #b ":f32[1,111,6,7]{0,1,0,0}+0"
#define FEW_NUMBER(s) ", $" #s "[1,111,6,7]"

static void check_few(const char *text, bool is_expected) {
  provider = &hr__few_pixels_provider;
  if (is_expected) {
    expect_same(text);
  } else {
    expect_refused(text);
  }
  provider = &hr__onednn_provider;
}

HR_TEST(few_pixels_with_epilogues) {
  check_few(FEW(FEW_LAST, FEW_VECTOR(3) FEW_VECTOR(4), "then(add_scaled,3,^,4) then(relu,^)"), true);
  check_few(FEW(FEW_FIRST, FEW_VECTOR(3) FEW_NUMBER(1), "then(mul,4,^) then(sub,^,3)"), true);
  check_few(FEW(FEW_LAST, ", %5:f32" FEW_LAST, "then(add,^,3)"), true);
  check_few(FEW(FEW_LAST, ", %5:f32" FEW_FIRST FEW_VECTOR(4), "then(add_scaled,3,^,4)"), true);
  check_few(FEW(FEW_FIRST, ", %5:f32" FEW_LAST, "then(div,^,3)"), true);
  check_few(FEW(FEW_LAST, ", %2:f32" FEW_LAST, "then(add,^,3)"), true);
  check_few(FEW(FEW_FIRST, ", %2:f32" FEW_FIRST, "then(add,^,3) then(relu,^)"), true);
  check_few(FEW(FEW_LAST, ", %2:f32" FEW_FIRST, "then(add,^,3)"), false);
  check_few(FEW(FEW_LAST, "", "then(tanh,^)"), false);
  check_few(FEW(FEW_LAST, "", "then(mul,^,^)"), false);
}

/* ---- products by sgemm: the shapes of MATMUL ---- */

static void check_sgemm(const char *text, bool is_expected) {
  provider = &hr__sgemm_provider;
  if (is_expected) {
    HR_ASSERT(run_both(text, false) && run_both(text, true));
  } else {
    expect_refused(text);
  }
  provider = &hr__onednn_provider;
}

HR_TEST(sgemm_with_epilogues) {
  check_sgemm(MATMUL(", $0[40,48], $1[40,48]", "then(mul,^,3) then(sub,^,4) then(div,^,3)"), true);
  check_sgemm(MATMUL(", %3:f32[40,48]{0,1}+0, %4:f32[40,48]{1,0}+0", "then(add_scaled,3,^,4) then(relu,^)"), true);
  check_sgemm(MATMUL(", %5:f32[40,48]{1,40}+0, $0[40,48]", "then(add,3,^) then(leaky_relu,^,4)"), true);
  check_sgemm(MATMUL(", %2:f32[40,48]{48,1}+0", "then(add,^,3)"), true);
  check_sgemm(MATMUL(", %2:f32[40,48]{48,1}+0, $0[40,48]", "then(mul,^,4) then(add,^,3) then(relu,^)"), true);
}

/* The library's own product of two matrices, and then the bias. */
static void multiply_by_library(const hr_node *node, float *const *memory) {
  const hr_operand *a = &node->inputs[0], *b = &node->inputs[1], *bias = &node->inputs[2], *c = &node->outputs[0];
  bool flips_a = a->strides[1] != 1, flips_b = b->strides[1] != 1;
  int64_t rows = c->dims[0], columns = c->dims[1];
  float *to = memory[c->index];
  HR_ASSERT_EQ(hr__dnnl()->sgemm(flips_a ? 'T' : 'N', flips_b ? 'T' : 'N', rows, columns, a->dims[1], 1,
                                 memory[a->index], a->strides[flips_a], memory[b->index], b->strides[flips_b], 0, to,
                                 c->strides[0]),
               0);
  for (int64_t i = 0; bias->kind == HR_OPERAND_VALUE && i < rows * columns; ++i) {
    to[i / columns * c->strides[0] + i % columns] += memory[bias->index][i % columns * bias->strides[1]];
  }
}

static int draw(uint32_t *state, int low, int high) {
  *state = *state * 1664525u + 1013904223u;
  return low + (int)((*state >> 8) % (uint32_t)(high - low + 1));
}

typedef struct shape {
  int rows, depth, columns;
} shape;

/* "{1,step}" or "{step,1}", with room between lines; returns the bytes of all lines. */
static int write_strides(uint32_t *state, int rows, int columns, char out[32]) {
  bool flips = draw(state, 0, 1);
  int step = (flips ? rows : columns) + draw(state, 1, 3);
  snprintf(out, 32, flips ? "{1,%d}" : "{%d,1}", step);
  return 4 * step * (flips ? columns : rows);
}

/* The operand of an epilogue: e: one for each element, o: the old output, 0 and 1: numbers. */
static int write_operand(char kind, const shape *s, int step, char *text, size_t size) {
  return kind == 'e'   ? snprintf(text, size, ", %%4:f32[%d,%d]{%d,1}+0", s->rows, s->columns, s->columns)
         : kind == 'o' ? snprintf(text, size, ", %%2:f32[%d,%d]{%d,1}+0", s->rows, s->columns, step)
                       : snprintf(text, size, ", $%c[%d,%d]", kind, s->rows, s->columns);
}

/* %0 [rows,depth] times %1 [depth,columns] into %2. %3: a number for each column. */
static void write_product(uint32_t *state, char *text, size_t size) {
  static const struct {
    const char *operands, *rows;
  } epilogues[] = {{"", ""},
                   {"", "then(relu,^)"},
                   {"e", "then(add,^,3)"},
                   {"e1", "then(add_scaled,3,^,4)"},
                   {"0e1", "then(mul,^,3) then(add,4,^) then(leaky_relu,^,5)"},
                   {"o", "then(add,^,3)"},
                   {"o0", "then(add_scaled,3,^,4) then(relu,^)"}};
  shape s = {draw(state, 2, 70), draw(state, 1, 600), draw(state, 1, 160)};
  s.depth = s.rows < 5 && s.depth > 400 ? 400 : s.depth;
  if (draw(state, 0, 9) == 0) {
    s = (shape){draw(state, 5, 8), draw(state, 1, 600), draw(state, 200, 600)};
  }
  if (draw(state, 0, 9) == 0) { /* weights are packed */
    s = (shape){draw(state, 16, 60), draw(state, 0, 2) == 0 ? 1152 : draw(state, 500, 768), draw(state, 264, 400)};
  }
  int step = s.columns + draw(state, 0, 3), e = draw(state, 0, (int)(sizeof epilogues / sizeof *epilogues) - 1);
  char left[32], right[32], bias[64] = "_", operands[256] = "";
  int left_bytes = write_strides(state, s.rows, s.depth, left);
  int right_bytes = write_strides(state, s.depth, s.columns, right);
  if (draw(state, 0, 1)) {
    snprintf(bias, sizeof bias, "%%3:f32[%d,%d]{0,1}+0", s.rows, s.columns);
  }
  int length = 0;
  for (const char *kind = epilogues[e].operands; *kind != 0; ++kind) {
    length += write_operand(*kind, &s, step, operands + length, sizeof operands - (size_t)length);
  }
  snprintf(text, size,
           "buffer %%0 %d live\nbuffer %%1 %d live\nbuffer %%2 %d live\nbuffer %%3 %d live\nbuffer %%4 %d live\n"
           "scalar $0 f64\nscalar $1 f64\n"
           "%%2:f32[%d,%d]{%d,1}+0 = matmul(%%0:f32[%d,%d]%s+0, %%1:f32[%d,%d]%s+0, %s%s) %s\n",
           left_bytes, right_bytes, 4 * s.rows * step, 4 * s.columns, 4 * s.rows * s.columns, s.rows, s.columns, step,
           s.rows, s.depth, left, s.depth, s.columns, right, bias, operands, epilogues[e].rows);
}

/* Panels have the bits of sgemm, with stored and with cached weights. Few rows with large matrices, which have others,
 * are left out. */
HR_TEST(products_have_the_bits_of_the_library) {
  uint32_t state = 11;
  int taken = 0;
  multiply = multiply_by_library;
  for (int64_t i = 0; i < hr_test_count(300); ++i) {
    char text[1024];
    write_product(&state, text, sizeof text);
    provider = &hr__sgemm_provider;
    taken += run_both(text, false);
    provider = &hr__onednn_provider;
  }
  multiply = NULL;
  HR_ASSERT(taken > hr_test_count(300) / 2);
}

/* a [64,256], b [256,250] in both orders, out [64,250]: a bias and a matrix with room between its rows are added in
 * registers; other rows and orders are not. */
#define SUM(strides, inputs, epilogues)                                                          \
  "buffer %0 65536 live\nbuffer %1 256000 live\nbuffer %2 64000 live\nbuffer %3 1000 live\n"     \
  "buffer %4 76800 live\nscalar $0 f64\nscalar $1 f64\n%2:f32[64,250]{250,1}+0 = matmul(%0:f32[" \
  "64,256]{256,1}+0, %1:f32[256,250]{" strides "}+0, _" inputs ") " epilogues "\n"
#define SUM_BIAS ", %3:f32[64,250]{0,1}+0"
#define SUM_MATRIX ", %4:f32[64,250]{300,1}+17"

HR_TEST(sgemm_adds_matrices) {
  check_sgemm(SUM("250,1", SUM_MATRIX, "then(add,^,3)"), true);
  check_sgemm(SUM("1,256", SUM_MATRIX, "then(add,3,^)"), true);
  check_sgemm(SUM("250,1", SUM_BIAS SUM_MATRIX, "then(add,^,3) then(add,4,^)"), true);
  check_sgemm(SUM("1,256", SUM_MATRIX SUM_BIAS, "then(add,^,3) then(add,^,4) then(relu,^)"), true);
  check_sgemm(SUM("250,1", SUM_MATRIX SUM_MATRIX, "then(add,^,3) then(add,^,4)"), true);
  check_sgemm(SUM("250,1", SUM_BIAS ", %2:f32[64,250]{250,1}+0", "then(add,^,3) then(add,^,4)"), true); /* in place */
  check_sgemm(SUM("250,1", ", %4:f32[64,250]{1,64}+0", "then(add,^,3)"), true);
  check_sgemm(SUM("250,1", SUM_MATRIX, "then(mul,^,3)"), true);
}

HR_TEST(sgemm_refuses_other_epilogues) {
  check_sgemm(MATMUL("", "then(tanh,^)"), false);
  check_sgemm(MATMUL("", "then(mul,^,^)"), false);
  check_sgemm(MATMUL(", $0[40,48]", "then(sub,3,^)"), false);
  check_sgemm(MATMUL(", %2:f32[40,48]{1,40}+0", "then(add,^,3)"), false); /* another view of the output */
}

/* ---- batched products: a [2,3,50,7], b [2,3,7,70], out [2,3,50,70] in buffer 2 ---- */

#define HEADS(strides, inputs, epilogues)                                                                      \
  "buffer %0 8400 live\nbuffer %1 11760 live\nbuffer %2 84000 live\nbuffer %3 280 live\nbuffer %4 1200 live\n" \
  "buffer %5 84000 live\nscalar $0 f64\nscalar $1 f64\n%2:f32[2,3,50,70]" strides                              \
  "+0 = matmul(%0:f32[2,3,50,7]{1050,350,7,1}+0, %1:f32[2,3,7,70]{1470,490,1,7}+0, _" inputs ") " epilogues "\n"
#define HEADS_DENSE "{10500,3500,70,1}"
#define HEADS_INSIDE "{10500,70,210,1}"
#define HEADS_NUMBER(s) ", $" #s "[2,3,50,70]"

static void check_heads(const char *text, bool is_expected) {
  provider = &hr__batched_products_provider;
  if (is_expected) {
    expect_same(text);
  } else {
    expect_refused(text);
  }
  provider = &hr__onednn_provider;
}

HR_TEST(batched_products_with_epilogues) {
  check_heads(HEADS(HEADS_DENSE, HEADS_NUMBER(0), "then(mul,^,3)"), true);
  check_heads(HEADS(HEADS_INSIDE, HEADS_NUMBER(0) ", %3:f32[2,3,50,70]{0,0,0,1}+0", "then(div,^,3) then(add,^,4)"),
              true);
  check_heads(HEADS(HEADS_DENSE, ", %4:f32[2,3,50,70]{150,50,1,0}+0", "then(add,^,3) then(relu,^)"), true);
  check_heads(HEADS(HEADS_DENSE, ", %3:f32[2,3,50,70]{0,0,0,1}+0", "then(add,^,3)"), true);
  check_heads(HEADS(HEADS_INSIDE, ", %5:f32[2,3,50,70]{10500,70,210,1}+0" HEADS_NUMBER(0), "then(add_scaled,3,^,4)"),
              true);
  check_heads(HEADS(HEADS_DENSE, ", %5:f32[2,3,50,70]{10500,3500,1,50}+0", "then(sub,^,3)"), true);
  check_heads(
      HEADS(HEADS_DENSE, ", %2:f32[2,3,50,70]{10500,3500,70,1}+0" HEADS_NUMBER(0), "then(mul,^,4) then(add,3,^)"),
      true);
  check_heads(HEADS(HEADS_DENSE, HEADS_NUMBER(0) HEADS_NUMBER(1), "then(leaky_relu,^,3) then(mul,4,^)"), true);
}

HR_TEST(batched_products_refuse_other_epilogues) {
  check_heads(HEADS(HEADS_DENSE, "", "then(tanh,^)"), false);
  check_heads(HEADS(HEADS_DENSE, "", "then(mul,^,^)"), false);
  check_heads(HEADS(HEADS_DENSE, HEADS_NUMBER(0), "then(sub,3,^)"), false);
  check_heads(HEADS(HEADS_DENSE, ", %2:f32[2,3,50,70]{10500,70,210,1}+0", "then(add,^,3)"), false); /* another view */
}

/* a [64,256], b [256,250], out [64,250]: large enough for several threads. */
#define LARGE(strides)                                                                                   \
  "buffer %0 65536 live\nbuffer %1 256000 live\nbuffer %2 64000 live\nbuffer %3 1000 live\n"             \
  "%2:f32[64,250]{250,1}+0 = matmul(%0:f32[64,256]{256,1}+0, %1:f32[256,250]{" strides "}+0, _, %3:f32[" \
  "64,250]{0,1}+0) then(add,^,3) then(relu,^)\n"

static void check_threads(const char *text) {
  float *memory[5], *alone = NULL;
  hr_program program;
  HR_ASSERT_OK(hr_program_parse(text, &program));
  for (int b = 0; b < program.buffer_count; ++b) {
    memory[b] = hr_aligned_malloc(program.buffers[b].bytes, 64);
    for (size_t i = 0; i < program.buffers[b].bytes / sizeof(float); ++i) {
      memory[b][i] = (float)(i * 7919 % 2003) / 1001.5f - 1;
    }
  }
  size_t bytes = program.buffers[2].bytes;
  alone = hr_aligned_malloc(bytes, 64);
  for (int threads = 1; threads <= 9; threads += threads < 3 ? 1 : 6) {
    hr_thread_count_set(threads);
    memset(memory[2], 0xff, bytes);
    HR_ASSERT(run_provider(&program, &program.nodes[0], memory, NULL));
    if (threads == 1) {
      memcpy(alone, memory[2], bytes);
    }
    HR_ASSERT_BYTES_EQ(memory[2], alone, bytes);
  }
  hr_thread_count_set(0);
  for (int b = 0; b < program.buffer_count; ++b) {
    hr_aligned_free(memory[b]);
  }
  hr_aligned_free(alone);
  hr_program_fini(&program);
}

#define FEW_ROWS                                                                                        \
  "buffer %0 3156 live\nbuffer %1 320860 live\nbuffer %2 3660 live\nbuffer %3 1220 live\n%2:f32[3,305]" \
  "{305,1}+0 = matmul(%0:f32[3,263]{263,1}+0, %1:f32[263,305]{305,1}+0, _, %3:f32[3,305]{0,1}+0) "      \
  "then(add,^,3) then(relu,^)\n"

HR_TEST(sgemm_gives_the_same_bits_with_any_number_of_threads) {
  provider = &hr__sgemm_provider;
  open_provider();
  check_threads(LARGE("250,1"));
  check_threads(LARGE("1,256"));
  check_threads(SUM("1,256", SUM_BIAS SUM_MATRIX, "then(add,^,3) then(add,^,4)"));
  check_threads(FEW_ROWS);
  provider = &hr__onednn_provider;
}

#define BATCHES(strides)                                                                                          \
  "buffer %0 98304 live\nbuffer %1 98304 live\nbuffer %2 270000 live\nbuffer %3 600 live\n%2:f32[3,150,150]"      \
  "{22500,150,1}+0 = matmul(%0:f32[3,150,50]{7500,50,1}+0, %1:f32[3,50,150]{" strides "}+0, _, %3:f32[3,150,150]" \
  "{0,0,1}+0) then(add,^,3) then(relu,^)\n"

HR_TEST(batched_products_give_the_same_bits_with_any_number_of_threads) {
  provider = &hr__batched_products_provider;
  open_provider();
  check_threads(BATCHES("7500,150,1"));
  check_threads(BATCHES("7500,1,50"));
  provider = &hr__onednn_provider;
}

/* ---- products of one row: x [1,40], w [40,50] in both orders of its dims, y [1,50] in buffer 2 ---- */

#define ROW_FORMAT                                                                                       \
  "buffer %%0 160 live\nbuffer %%1 8000 live\nbuffer %%2 400 live\nbuffer %%3 200 live\nscalar $0 f64\n" \
  "scalar $1 f64\n%%2:%s[1,50]{100,2}+0 = matmul(%%0:%s[1,40]{40,1}+0, %%1:%s[40,50]%s+0, "              \
  "%%3:%s[1,50]{0,1}+0%s) %s\n"
#define ROW_NUMBER(s) ", $" #s "[1,50]"

static void check_row_of(const char *dtype, const char *inputs_and_epilogues[2], bool is_expected) {
  static const char *const strides[2] = {"{1,40}", "{50,1}"};
  for (int i = 0; i < 2; ++i) {
    char text[1024];
    snprintf(text, sizeof text, ROW_FORMAT, dtype, dtype, dtype, strides[i], dtype, inputs_and_epilogues[0],
             inputs_and_epilogues[1]);
    if (is_expected) {
      expect_same(text);
    } else {
      expect_refused(text);
    }
  }
}

static void check_row(const char *inputs_and_epilogues[2], bool is_expected) {
  provider = &hr__gemv_provider;
  check_row_of("f32", inputs_and_epilogues, is_expected);
  check_row_of("bf16", inputs_and_epilogues, is_expected);
  provider = &hr__onednn_provider;
}

/* ---- gradients of weights: x [2,64,h,8], dy [2,40,h',w'], dw [40,64,k,k] in buffer 2 ---- */

#define GRADIENT(rows, dy, dy_strides, kernel, w_strides, ints)                                                 \
  "buffer %0 36864 live\nbuffer %1 23040 live\nbuffer %2 92160 live\nscalar $0 f64\nscalar $1 f64\n"            \
  "%2:f32[40,64," kernel "]{" w_strides "}+0 = conv_backward_weight(%0:f32[2,64," rows ",8]{4608,1,512,64}+0, " \
  "%1:f32[2,40," dy "]{" dy_strides "}+0, _, $0[40,64," kernel "]) ints(2," ints ",1,1,1) then(mul,^,3)\n"

static void check_gradients(const hr_provider *tested, const char *text, bool is_expected) {
  provider = tested;
  bool is_taken = run_both(text, false); /* the bits of the rows, or refused */
  provider = &hr__onednn_provider;
  HR_ASSERT(is_taken == is_expected || !has_avx512());
}

HR_TEST(scaled_gradients_of_weights) {
  static const char *const steps = GRADIENT("9", "5,4", "800,1,160,40", "3,3", "576,9,3,1", "2,2,1,1"),
                           *const windows = GRADIENT("9", "9,8", "2880,1,320,40", "3,3", "576,9,3,1", "1,1,1,1"),
                           *const last = GRADIENT("9", "9,8", "2880,1,320,40", "3,3", "576,1,192,64", "1,1,1,1"),
                           *const pixels = GRADIENT("9", "9,8", "2880,1,320,40", "1,1", "64,1,1,1", "1,1,0,0"),
                           *const some_pixels = GRADIENT("9", "5,4", "800,1,160,40", "1,1", "64,1,1,1", "2,2,0,0");
  static const char *const lanes =
      "buffer %0 81920 live\nbuffer %1 40960 live\nbuffer %2 20000 live\nscalar $0 f64\nscalar $1 f64\n"
      "%2:f32[10,20,5,5]{500,25,5,1}+0 = conv_backward_weight(%0:f32[16,20,8,8]{1280,1,160,20}+0, "
      "%1:f32[16,10,8,8]{640,1,80,10}+0, _, $0[10,20,5,5]) ints(2,1,1,2,2,1,1,1) then(mul,^,3)\n";
  check_gradients(&hr__gradients_provider, steps, true);
  check_gradients(&hr__gradients_provider, windows, false);
  check_gradients(&hr__winograd_weights_provider, windows, true);
  check_gradients(&hr__winograd_weights_provider, last, true);
  check_gradients(&hr__winograd_weights_provider, steps, false);
  check_gradients(&hr__batch_lane_weights_provider, lanes, true);
  check_gradients(&hr__batch_lane_weights_provider, windows, false);
  check_gradients(&hr__onednn_provider, pixels, true);
  check_gradients(&hr__onednn_provider, some_pixels, true);
  check_gradients(&hr__onednn_provider, windows, false);
  check_gradients(&hr__direct_weights_provider, windows, false);
}

HR_TEST(rows_with_activations) {
  check_row((const char *[]){"", "then(relu,^)"}, true);
  check_row((const char *[]){ROW_NUMBER(0), "then(softshrink,^,3)"}, true);
  check_row((const char *[]){ROW_NUMBER(1), "then(softshrink,^,3)"}, true);
  check_row((const char *[]){ROW_NUMBER(1), "then(leaky_relu,^,3)"}, true);
  check_row((const char *[]){ROW_NUMBER(0) ROW_NUMBER(1), "then(softshrink,^,3) then(leaky_relu,^,4) then(relu,^)"},
            true);
}

HR_TEST(rows_refuse_other_epilogues) {
  check_row((const char *[]){"", "then(tanh,^)"}, false);
  check_row((const char *[]){ROW_NUMBER(0), "then(softshrink,3,^)"}, false);
  provider = &hr__gemv_provider;
  check_row_of("f32", (const char *[]){", %3:f32[1,50]{0,1}+0", "then(softshrink,^,3)"}, false);
  check_row_of("bf16", (const char *[]){", %3:bf16[1,50]{0,1}+0", "then(softshrink,^,3)"}, false);
  check_row_of("f32", (const char *[]){", %3:f32[1,50]{0,1}+0", "then(add,^,3)"}, false);
  provider = &hr__onednn_provider;
}
