/* Small attention on CUDA devices (src/providers/small/small_attention.c) against the lowering (attention_cases.h):
 * its text runs on the host (written_kernel.h). Skipped without a compiler.
 */
#pragma GCC diagnostic ignored "-Wunused-function" /* operands of gradients */
#include "attention_cases.h"
#include "program_runner.h"
#include "written_kernel.h"

static void run_call(call *c) {
  const hr_node *node = &c->program.nodes[0];
  hr_host_kernel *kernel = NULL;
  HR_ASSERT(hr__small_attention_provider.supports(&c->program, node));
  HR_ASSERT_OK(hr__written_create(&hr__small_attention_provider, &c->program, node, &kernel));
  HR_ASSERT_OK(hr__written_run(kernel, c->args, c->scalars));
  kernel->destroy(kernel);
  hr_program_fini(&c->program);
}

static bool begin(void) {
  guard = 24;
  return hr__has_emulator();
}

/* The forward node alone, in this dtype. */
static void check_forward(problem p, hr_dtype dtype, hr_dtype reference, double bound) {
  op_case t = make_case(&p, dtype);
  call c;
  evaluate(&t, reference);
  make_call(&t, false, &c);
  run_call(&c);
  check_result(&t, Y, bound);
  check_result(&t, LSE, 1e-5);
  free_case(&t);
}

static void check_all(problem p) {
  check_forward(p, HR_DTYPE_F32, HR_DTYPE_F64, 1e-5);
}

HR_TEST(small_attention_at_some_keys) {
  static const int64_t sizes[][4] = {{1, 1, 64, 64},   {3, 7, 5, 3},      {2, 128, 64, 32}, {31, 33, 16, 16},
                                     {1, 100, 8, 200}, {1, 40, 256, 256}, {1, 300, 32, 32}, {1, 512, 5, 40}};
  for (size_t i = 0; begin() && i < sizeof sizes / sizeof *sizes; ++i) {
    const int64_t *s = sizes[i];
    check_all((problem){2, 2, s[0], s[1], s[2], s[3], i % 2 == 1, NO_MASK, DENSE, 0, 0.3});
  }
}

HR_TEST(small_attention_in_narrow_dtypes) {
  for (hr_dtype dtype = HR_DTYPE_F16; begin() && dtype <= HR_DTYPE_BF16; ++dtype) {
    check_forward((problem){1, 3, 2, 70, 64, 64, 1, NO_MASK, HEADS_INSIDE, 0, 0.125}, dtype, HR_DTYPE_F64, 1e-2);
    check_forward((problem){1, 2, 3, 20, 20, 12, 0, ADDED, DENSE, 0, 0.2}, dtype, HR_DTYPE_F64, 1e-2);
  }
}

HR_TEST(small_attention_with_every_mask) {
  for (int mask = FLAGS; begin() && mask <= ADDED_OF_ALL; ++mask) {
    check_all((problem){3, 2, 20, 70, 16, 16, mask % 2, (mask_kind)mask, HEADS_INSIDE, 0, 0.5});
  }
}

HR_TEST(small_attention_at_views) {
  for (int layout = DENSE; begin() && layout <= TRANSPOSED; ++layout) {
    for (guard = 19; guard <= 24; guard += 5) {
      check_all((problem){2, 2, 3, 33, 16, 8, 1, NO_MASK, (layout_kind)layout, 0, 0.3});
    }
  }
}

/* A spoiled forward node. */
static void check_with(spoil_fn spoil, mask_kind mask) {
  problem p = {1, 1, 20, 100, 16, 16, 0, mask, DENSE, 0, 0.5};
  op_case t = make_case(&p, HR_DTYPE_F32);
  call c;
  spoil(&t);
  evaluate(&t, HR_DTYPE_F32);
  make_call(&t, false, &c);
  run_call(&c);
  check_result(&t, Y, 1e-5);
  check_result(&t, LSE, 1e-5);
  free_case(&t);
}

HR_TEST(small_attention_at_nan_and_infinities) {
  static const spoil_fn spoils[] = {spoil_query, spoil_key, spoil_value, spoil_with_infinity, spoil_whole_row};
  for (size_t i = 0; begin() && i < sizeof spoils / sizeof *spoils; ++i) {
    check_with(spoils[i], NO_MASK);
    check_with(spoils[i], i % 2 == 0 ? FLAGS_OF_KEYS : ADDED);
  }
}

HR_TEST(small_attention_that_is_left_to_others) {
  static const struct {
    int64_t queries, keys, width;
    double dropout;
    hr_dtype dtype;
    bool is_taken;
  } cases[] = {{31, 128, 256, 0, HR_DTYPE_F32, true}, {32, 128, 64, 0, HR_DTYPE_F32, false},
               {2, 129, 64, 0, HR_DTYPE_F32, false},  {1, 512, 64, 0, HR_DTYPE_F32, true},
               {1, 513, 64, 0, HR_DTYPE_F32, false},  {1, 10, 257, 0, HR_DTYPE_F32, false},
               {1, 10, 64, 0.5, HR_DTYPE_F32, false}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
    for (int is_backward = 0; is_backward < 2; ++is_backward) {
      op_case t = make_case(
          &(problem){1, 1, cases[i].queries, cases[i].keys, cases[i].width, 64, 0, NO_MASK, DENSE, cases[i].dropout, 1},
          cases[i].dtype);
      call c;
      make_call(&t, is_backward != 0, &c);
      HR_ASSERT_EQ(hr__small_attention_provider.supports(&c.program, &c.program.nodes[0]),
                   !is_backward && cases[i].is_taken);
      hr_program_fini(&c.program);
      free_case(&t);
    }
  }
}

HR_TEST(small_attention_compiles_for_gpus) {
  for (int i = 0; i < 2; ++i) {
    op_case t = make_case(&(problem){1, 12, 1, 100, 64, 64, 1, i == 0 ? NO_MASK : FLAGS, DENSE, 0, 1},
                          i == 0 ? HR_DTYPE_F32 : HR_DTYPE_BF16);
    call c;
    bool is_there = false;
    make_call(&t, false, &c);
    HR_ASSERT_OK(hr__written_compile(&hr__small_attention_provider, &c.program, i == 0 ? 90 : 80, &is_there));
    hr_program_fini(&c.program);
    free_case(&t);
    if (!is_there) {
      HR_SKIP("no NVRTC");
    }
  }
}
