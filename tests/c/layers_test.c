/* Layers' kernels for CUDA devices against the lowering (layer_cases.h): their texts run on the host (written_kernel.h)
 * as long as a cluster has one block. Skipped without a compiler.
 */
#include "layer_cases.h"
#include "program_runner.h"
#include "providers/cuda_limits.h"
#include "written_kernel.h"

/* True if there is a compiler. */
static bool begin(int processors) {
  *hr__cuda_limits_known() = (hr__cuda_limits){.architecture = 9, .shared_bytes = 227 << 10, .processors = processors};
  return hr__has_emulator();
}

static void check(const form *f, const problem *p) {
  layer_case c = make_case(f, p);
  const hr_node *node = &c.bench.program.nodes[0];
  hr_host_kernel *kernel = NULL;
  HR_ASSERT(hr__layers_provider.supports(&c.bench.program, node));
  HR_ASSERT_OK(hr__written_create(&hr__layers_provider, &c.bench.program, node, &kernel));
  HR_ASSERT_OK(hr__written_run(kernel, c.memory[0], NULL));
  kernel->destroy(kernel);
  run_reference(&c);
  compare(&c, p);
  free_case(&c);
}

/* Teams of a thread and of two warps; rows that fill a cluster, and not. */
static const int64_t sizes[][3] = {{1, 1, 1}, {2, 1, 16}, {3, 2, 3}, {2, 3, 17}, {4, 5, 15}, {3, 6, 64}};
enum { SIZES = sizeof sizes / sizeof *sizes };

HR_TEST(layers_of_every_size) {
  for (int f = 0; begin(132) && f < FORMS; ++f) {
    for (int i = 0; i < SIZES; ++i) {
      const int64_t *s = sizes[i];
      if (hr_test_takes(f + i)) {
        check(&forms[f], &(problem){s[0], s[1], s[2], .is_reverse = (f + i) % 2 != 0, .is_spread = i % 2 != 0});
      }
    }
  }
}

/* With few processors a cluster has several rows, and the last one fewer. */
HR_TEST(layers_of_many_rows) {
  static const int processors[] = {1, 2, 3};
  for (int f = 0; begin(1) && f < FORMS; ++f) {
    for (int i = 0; i < 3; ++i) {
      (void)begin(processors[i]);
      check(&forms[f], &(problem){3, 13, 18, .is_reverse = i == 1});
    }
  }
}

HR_TEST(layers_without_optional_operands) {
  for (int f = 0; begin(132) && f < FORMS; ++f) {
    unsigned optional = optional_operands(&forms[f]);
    for (int i = 0; i <= forms[f].count; ++i) {
      problem p = {3, 2, 19, .absent = i == forms[f].count ? optional : optional & 1u << i};
      if (i == forms[f].count || p.absent != 0) {
        check(&forms[f], &p);
        p.steps = 1;
        check(&forms[f], &p);
      }
    }
  }
}

HR_TEST(layers_of_nan_and_infinities) {
  for (int f = 0; begin(132) && f < FORMS; ++f) {
    check(&forms[f], &(problem){3, 4, 18, .is_spoiled = true, .is_reverse = f % 2 != 0});
  }
}

/* A layer is lowered if it does not fit into clusters, or has too many rows for those that run at once. */
HR_TEST(layers_that_are_lowered) {
  static const struct {
    int64_t batch, hidden;
    bool is_taken;
  } cases[] = {{70, 512, true}, {1, 512, true}, {1, 513, false}, {3168, 64, true}, {3169, 64, false}, {85, 512, false}};
  (void)begin(132);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
    for (int f = 0; f < FORMS; ++f) {
      layer_case c = make_case(&forms[f], &(problem){1, cases[i].batch, cases[i].hidden});
      HR_ASSERT_EQ(hr__layers_provider.supports(&c.bench.program, &c.bench.program.nodes[0]), cases[i].is_taken);
      free_case(&c);
    }
  }
}

/* ---- CUDA's compiler ---- */

HR_TEST(layers_compile_for_gpus) {
  (void)begin(132);
  for (int f = 0; f < FORMS; ++f) {
    bool is_there = false;
    layer_case c = make_case(&forms[f], &(problem){1, 64, f % 2 == 0 ? 512 : 128});
    HR_ASSERT_OK(hr__written_compile(&hr__layers_provider, &c.bench.program, 90, &is_there));
    free_case(&c);
    if (!is_there) {
      HR_SKIP("no NVRTC");
    }
  }
}
