/* Attention's kernels for CUDA devices against the lowering (attention_cases.h): their texts run on the host
 * (written_kernel.h), with plain code for tensor cores and asynchronous copies. Skipped without a compiler.
 */
#include "attention_cases.h"
#include "program_runner.h"
#include "providers/cuda_limits.h"
#include "written_kernel.h"

static void run_call(call *c) {
  const hr_node *node = &c->program.nodes[0];
  hr_host_kernel *kernel = NULL;
  HR_ASSERT(hr__flash_provider.supports(&c->program, node));
  HR_ASSERT_OK(hr__written_create(&hr__flash_provider, &c->program, node, &kernel));
  HR_ASSERT_OK(hr__written_run(kernel, c->args, c->scalars));
  kernel->destroy(kernel);
  hr_program_fini(&c->program);
}

/* True if there is a compiler; rows of tensors begin at multiples of 16 bytes if possible. */
static bool begin(void) {
  *hr__cuda_limits_known() = (hr__cuda_limits){.architecture = 9, .shared_bytes = 227 << 10, .processors = 0};
  guard = 24;
  return hr__has_emulator();
}

/* ---- tests ---- */

static const int64_t edges[][2] = {{32, 1}, {65, 63}, {64, 128}, {130, 20}, {129, 129}};
enum { EDGES = sizeof edges / sizeof *edges };

HR_TEST(flash_attention_at_the_edges_of_tiles) {
  for (int i = 0; begin() && i < EDGES; ++i) {
    for (int causal = 0; causal < 2; ++causal) {
      if (hr_test_takes(i + causal)) {
        check((problem){1, 2, edges[i][0], edges[i][1], 16, 16, causal, NO_MASK, DENSE, 0, 0});
      }
    }
  }
}

HR_TEST(flash_attention_in_narrow_dtypes) {
  for (hr_dtype dtype = HR_DTYPE_F16; begin() && dtype <= HR_DTYPE_BF16; ++dtype) {
    for (int i = 0; i < EDGES; ++i) {
      problem p = {1, 2, edges[i][0], edges[i][1], 16, 16, dtype == HR_DTYPE_F16, NO_MASK, HEADS_INSIDE, 0, 0.4};
      if (hr_test_takes(i + (dtype == HR_DTYPE_BF16))) {
        check_in(&p, dtype, HR_DTYPE_F64);
      }
    }
  }
}

/* Without enough work for all processors blocks have half of the rows. */
HR_TEST(flash_attention_of_few_heads) {
  problem p = {1, 2, 129, 70, 16, 16, 1, NO_MASK, DENSE, 0.2, 0.4};
  if (begin()) {
    hr__cuda_limits_known()->processors = 4;
    check(p);
    check_in(&p, HR_DTYPE_BF16, HR_DTYPE_F32);
  }
}

HR_TEST(flash_attention_of_every_width) {
  static const int64_t widths[][2] = {{8, 24}, {5, 3}, {64, 64}, {128, 96}};
  for (size_t i = 0; begin() && i < sizeof widths / sizeof *widths; ++i) {
    problem p = {1, 1, 40, 70, widths[i][0], widths[i][1], 1, NO_MASK, DENSE, 0, 0.2};
    if (!hr_test_takes((int64_t)i)) {
      continue;
    }
    check(p);
    check_in(&p, HR_DTYPE_BF16, HR_DTYPE_F64);
  }
}

HR_TEST(flash_attention_with_every_mask) {
  for (int mask = FLAGS; begin() && mask <= ADDED_OF_ALL; ++mask) {
    if (!hr_test_takes(mask - FLAGS)) {
      continue;
    }
    check((problem){2, 2, 40, 70, 16, 16, 0, (mask_kind)mask, DENSE, 0, 0});
    check((problem){3, 1, 40, 20, 8, 8, 1, (mask_kind)mask, HEADS_INSIDE, 0, 0});
  }
  problem p = {1, 2, 70, 70, 16, 16, 0, ADDED, DENSE, 0, 0.3};
  for (hr_dtype dtype = HR_DTYPE_F16; begin() && dtype <= HR_DTYPE_BF16; ++dtype) {
    check_in(&p, dtype, HR_DTYPE_F64);
  }
}

HR_TEST(flash_attention_on_views) {
  for (int layout = DENSE; begin() && layout <= TRANSPOSED; ++layout) {
    for (guard = 19; guard <= 24; guard += 5) {
      problem p = {2, 2, 65, 33, 16, 8, 1, NO_MASK, (layout_kind)layout, 0, 0.3};
      if (hr_test_takes(layout + (guard > 19))) {
        check(p);
        check_in(&p, HR_DTYPE_BF16, HR_DTYPE_F64);
      }
    }
  }
}

/* Element i of the probabilities has the random number that the lowering's has. */
HR_TEST(flash_attention_drops_what_its_lowering_drops) {
  for (int64_t keys = 64; begin() && keys < 68; ++keys) {
    problem p = {1, 2, 40, keys, 16, 16, 0, NO_MASK, DENSE, 0.3, 0.3};
    if (!hr_test_takes(keys - 64)) {
      continue;
    }
    check(p);
    check_in(&p, HR_DTYPE_BF16, HR_DTYPE_F32);
    check((problem){2, 2, 36, keys + 60, 16, 16, 1, FLAGS, DENSE, 0.75, 0});
  }
}

HR_TEST(flash_attention_drops_everything) {
  if (begin()) {
    check((problem){1, 2, 32, 30, 16, 16, 0, NO_MASK, DENSE, 1, 0});
  }
}

HR_TEST(flash_attention_scales_by_any_number) {
  static const double scales[] = {-0.5, 8, 1e-30};
  for (int i = 0; begin() && i < 3; ++i) {
    check((problem){1, 1, 40, 100, 16, 16, 0, NO_MASK, DENSE, 0, scales[i]});
  }
}

/* Scores are whole numbers times a power of two: the largest of a row gets the whole weight. */
HR_TEST(flash_attention_of_large_scores) {
  const problem p = {1, 2, 40, 100, 16, 16, 1, NO_MASK, DENSE, 0, 1 << 20};
  static const hr_dtype dtypes[] = {HR_DTYPE_F32, HR_DTYPE_BF16};
  for (int d = 0; begin() && d < 2; ++d) {
    op_case t = make_case(&p, dtypes[d]);
    call c;
    for (role r = Q; r <= K; ++r) {
      tensor *x = &t.tensors[r];
      for (int64_t i = 0; i < count_of(x); ++i) {
        x->values[i] = rint(4 * x->values[i]);
      }
      write_input(x);
    }
    evaluate(&t, HR_DTYPE_F64);
    make_call(&t, false, &c);
    run_call(&c);
    check_result(&t, Y, tolerance_of(dtypes[d]));
    check_result(&t, LSE, tolerance_of(HR_DTYPE_F32));
    free_case(&t);
  }
}

HR_TEST(flash_attention_of_nan_and_infinities) {
  for (int mask = NO_MASK; begin() && mask <= ADDED; mask += FLAGS_OF_KEYS) {
    check_spoiled((problem){1, 1, 40, 100, 16, 16, 0, (mask_kind)mask, DENSE, 0, 0.5});
  }
}

/* If a block has little shared memory, wide rows are left to the lowering. */
HR_TEST(flash_attention_takes_what_fits) {
  static const struct {
    int shared_bytes;
    int64_t queries, width;
    bool is_taken;
  } cases[] = {{227 << 10, 64, 128, true},
               {227 << 10, 64, 129, false},
               {227 << 10, 31, 64, false},
               {99 << 10, 64, 64, true},
               {98 << 10, 64, 128, false}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
    op_case t = make_case(
        &(problem){1, 1, cases[i].queries, 64, cases[i].width, cases[i].width, 0, NO_MASK, DENSE, 0, 1}, HR_DTYPE_F32);
    call c;
    make_call(&t, false, &c);
    hr__cuda_limits_known()->shared_bytes = cases[i].shared_bytes;
    HR_ASSERT_EQ(hr__flash_provider.supports(&c.program, &c.program.nodes[0]), cases[i].is_taken);
    hr_program_fini(&c.program);
    free_case(&t);
  }
}

HR_TEST(flash_attention_computes_the_requested_outputs) {
  static const role optional[] = {LSE, DQ, DK, DV};
  const problem p = {1, 2, 70, 70, 16, 16, 0, NO_MASK, DENSE, 0, 0.5};
  for (int i = 0; begin() && i < 4; ++i) {
    op_case t = make_case(&p, HR_DTYPE_F32);
    call c;
    evaluate(&t, HR_DTYPE_F64);
    bool is_backward = optional[i] != LSE;
    if (is_backward) {
      write_input(&t.tensors[Y]), write_input(&t.tensors[LSE]);
    }
    unsigned char *hidden = t.tensors[optional[i]].bytes;
    t.tensors[optional[i]].bytes = NULL;
    make_call(&t, is_backward, &c);
    run_call(&c);
    for (int k = is_backward ? DQ : Y; k < (is_backward ? ROLES : LSE); ++k) {
      if (k != (int)optional[i]) {
        check_result(&t, (role)k, 1e-5);
      }
    }
    t.tensors[optional[i]].bytes = hidden;
    free_case(&t);
  }
}

/* ---- CUDA's compiler ---- */

/* False without NVRTC. */
static bool compiles(const problem *p, hr_dtype dtype, bool is_backward, int architecture) {
  op_case t = make_case(p, dtype);
  call c;
  bool is_there = false;
  make_call(&t, is_backward, &c);
  HR_ASSERT_OK(hr__written_compile(&hr__flash_provider, &c.program, architecture, &is_there));
  hr_program_fini(&c.program);
  free_case(&t);
  return is_there;
}

HR_TEST(flash_attention_compiles_for_gpus) {
  const problem plain = {1, 2, 64, 64, 64, 64, 1, NO_MASK, DENSE, 0.1, 1},
                odd = {1, 2, 64, 64, 20, 33, 0, ADDED, TRANSPOSED, 0, 1};
  (void)begin();
  for (int is_backward = 0; is_backward < 2; ++is_backward) {
    if (!compiles(&plain, HR_DTYPE_F32, is_backward, 90)) {
      HR_SKIP("no NVRTC");
    }
    compiles(&plain, HR_DTYPE_BF16, is_backward, 80);
    compiles(&odd, HR_DTYPE_F16, is_backward, 90);
  }
}
