/* random_program_test.c: the same bits whether operations run one by one or fused, and however the work is cut.
 *
 * HEADRACE_TEST_PROGRAMS sets the number of programs (default 300), HEADRACE_TEST_SEED the first seed. A failure prints the seed
 * and the program.
 */
#include "hr_test.h"
#include "program_generator.h"

enum { NODES = 10 };

static long setting(const char *name, long value) {
  const char *text = getenv(name);
  return text != NULL ? atol(text) : value;
}

static void fail_with_program(const generated *g, uint64_t seed, const char *what, hr_status status) {
  hr_text text = {0};
  hr_status printed = hr_program_print(&g->program, &text);
  fprintf(stderr, "seed %llu: %s\n%s%s\n", (unsigned long long)seed, what,
          status != NULL ? hr_status_message(status) : "", printed == NULL ? hr_text_chars(&text) : "");
  hr_status_free(printed);
  hr_status_free(status);
  HR_FAIL("seed %llu: %s", (unsigned long long)seed, what);
}

static void check_status(const generated *g, uint64_t seed, const char *what, hr_status status) {
  if (status != NULL) {
    fail_with_program(g, seed, what, status);
  }
}

/* NaNs are one value: their sign and payload are free. */
static bool same_element(hr_dtype dtype, const char *a, const char *b) {
  switch (dtype) {
    case HR_DTYPE_F32: {
      float x, y;
      memcpy(&x, a, 4), memcpy(&y, b, 4);
      return (x != x && y != y) || memcmp(a, b, 4) == 0;
    }
    case HR_DTYPE_F64: {
      double x, y;
      memcpy(&x, a, 8), memcpy(&y, b, 8);
      return (x != x && y != y) || memcmp(a, b, 8) == 0;
    }
    case HR_DTYPE_F16:
    case HR_DTYPE_BF16: {
      uint16_t x, y;
      memcpy(&x, a, 2), memcpy(&y, b, 2);
      float p = dtype == HR_DTYPE_F16 ? hr_f16_to_f32(x) : hr_bf16_to_f32(x);
      float q = dtype == HR_DTYPE_F16 ? hr_f16_to_f32(y) : hr_bf16_to_f32(y);
      return (p != p && q != q) || x == y;
    }
    default:
      return memcmp(a, b, hr_dtype_size(dtype)) == 0;
  }
}

static void compare(const generated *g, uint64_t seed, const char *what, void **a, void **b) {
  for (int k = 0; k < g->buffer_count; ++k) {
    if (g->program.buffers[k].is_dead) {
      continue;
    }
    size_t size = hr_dtype_size(g->dtypes[k]);
    for (size_t at = 0; at + size <= g->bytes[k]; at += size) {
      if (!same_element(g->dtypes[k], (char *)a[k] + at, (char *)b[k] + at)) {
        fprintf(stderr, "buffer %%%d, element %zu\n", k, at / size);
        fail_with_program(g, seed, what, NULL);
      }
    }
  }
}

static void **run_strict(const generated *g, uint64_t seed) {
  void **memory = hr__memory_copy(g);
  for (int n = 0; n < g->program.node_count; ++n) {
    hr_program single;
    check_status(g, seed, "single node", hr__single_node_program(&g->program, n, &single));
    check_status(g, seed, "strict run", hr__run_interpreted(&single, memory, g->arguments, 0));
    hr_program_fini(&single);
  }
  return memory;
}

static void check_seed(uint64_t seed) {
  generated g;
  HR_ASSERT_NULL(hr__generate_program(seed, NODES, &g));
  void **strict = run_strict(&g, seed);
  static const int64_t cuts[] = {0, 1, 3};
  for (size_t c = 0; c < sizeof cuts / sizeof *cuts; ++c) {
    void **fused = hr__memory_copy(&g);
    check_status(&g, seed, "fused run", hr__run_interpreted(&g.program, fused, g.arguments, cuts[c]));
    compare(&g, seed, c == 0 ? "fused differs from strict" : "the cut of units changes bits", strict, fused);
    hr__memory_free(&g, fused);
  }
  hr__memory_free(&g, strict);
  hr__generated_fini(&g);
}

HR_TEST(fused_programs_give_the_bits_of_strict_ones) {
  long count = setting("HEADRACE_TEST_PROGRAMS", 300), first = setting("HEADRACE_TEST_SEED", 1);
  for (long k = 0; k < count; ++k) {
    check_seed((uint64_t)(first + k));
  }
}
