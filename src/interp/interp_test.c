/* The interpreter against plain loops in double: each schedule, every dtype, the same bits for any number of threads.
 */
#include "hr_test.h"

#include "base/thread.h"
#include "core/math/vmath.h"
#include "interp/interp.h"
#include "interp/interp_loops.h"
#include "interp/interp_testing.h"

enum { GUARD = 64 };

static uint64_t seed = 1;

static double uniform(void) { /* in [-1, 1) */
  seed = seed * 6364136223846793005u + 1442695040888963407u;
  return (double)(int32_t)(seed >> 32) * 0x1p-31;
}

static float *random_floats(int64_t count) {
  float *x = malloc((size_t)count * sizeof *x + 4);
  for (int64_t i = 0; i < count; ++i) {
    x[i] = (float)uniform() * 4;
  }
  return x;
}

/* Memory with guard bytes on both sides; the buffer itself starts as garbage. */
static void *guarded(size_t bytes) {
  unsigned char *block = malloc(bytes + 2 * GUARD);
  memset(block, 0xa5, bytes + 2 * GUARD);
  return block + GUARD;
}

static void check_guards(const void *buffer, size_t bytes) {
  const unsigned char *block = (const unsigned char *)buffer - GUARD;
  for (size_t i = 0; i < GUARD; ++i) {
    HR_ASSERT_EQ(block[i], 0xa5);
    HR_ASSERT_EQ(block[GUARD + bytes + i], 0xa5);
  }
}

static void free_guarded(void *buffer) {
  free((unsigned char *)buffer - GUARD);
}

/* Runs all passes; ranges of `step` units, each with fresh scratch, the odd ones first, as threads might. */
static void run_split(const hr_host_kernel *kernel, void *const *args, const hr_scalar *scalars, int64_t step) {
  char *workspace = hr_aligned_malloc(kernel->workspace_bytes + 1, 64);
  char *scratch = hr_aligned_malloc(kernel->scratch_bytes + 64, 64);
  for (int pass = 0; pass < kernel->pass_count; ++pass) {
    for (int odd = 1; odd >= 0; --odd) {
      for (int64_t begin = odd * step; begin < kernel->passes[pass].units; begin += 2 * step) {
        int64_t end = begin + step < kernel->passes[pass].units ? begin + step : kernel->passes[pass].units;
        memset(scratch, 0xcd, kernel->scratch_bytes + 64);
        hr_host_call call = {args, scalars, workspace, scratch};
        kernel->run(kernel, pass, &call, begin, end);
        for (int i = 0; i < 64; ++i) {
          HR_ASSERT_EQ((unsigned char)scratch[kernel->scratch_bytes + (size_t)i], 0xcd);
        }
      }
    }
  }
  hr_aligned_free(workspace);
  hr_aligned_free(scratch);
}

typedef struct threaded {
  const hr_host_kernel *kernel;
  int pass;
  hr_host_call call;
} threaded;

static void run_range(void *arg, int64_t begin, int64_t end, int worker) {
  threaded *t = arg;
  (void)worker;
  hr_host_call call = t->call;
  call.scratch = hr_aligned_malloc(t->kernel->scratch_bytes + 1, 64);
  t->kernel->run(t->kernel, t->pass, &call, begin, end);
  hr_aligned_free(call.scratch);
}

static void run_threads(const hr_host_kernel *kernel, void *const *args, const hr_scalar *scalars, int threads) {
  hr_thread_count_set(threads);
  char *workspace = hr_aligned_malloc(kernel->workspace_bytes + 1, 64);
  threaded t = {kernel, 0, {args, scalars, workspace, NULL}};
  for (t.pass = 0; t.pass < kernel->pass_count; ++t.pass) {
    hr_parallel_for(kernel->passes[t.pass].units, 1, run_range, &t);
  }
  hr_aligned_free(workspace);
  hr_thread_count_set(0);
}

/* Runs a kernel whose argument `out` is an output of `bytes` bytes: first as a whole, then split in several ways, which
 * must give the same bytes. The kernel must verify. */
static void run_all(kernel_maker *m, void **args, const hr_scalar *scalars, int out, size_t bytes) {
  HR_ASSERT_OK(hr_kernel_verify(make_end(m)));
  hr_host_kernel *kernel;
  HR_ASSERT_OK(hr_interp_create(make_end(m), &kernel));
  void *result = args[out], *before = malloc(bytes + 1);
  memcpy(before, result, bytes);
  run_split(kernel, args, scalars, INT64_MAX / 4);
  for (int mode = 0; mode < 4; ++mode) {
    void *other = guarded(bytes);
    memcpy(other, before, bytes);
    args[out] = other;
    if (mode < 2) {
      run_split(kernel, args, scalars, mode == 0 ? 1 : 3);
    } else {
      run_threads(kernel, args, scalars, mode - 1);
    }
    HR_ASSERT_BYTES_EQ(other, result, bytes);
    check_guards(other, bytes);
    free_guarded(other);
  }
  args[out] = result;
  kernel->destroy(kernel);
  free(before);
}

/* ---- pointwise ---- */

static void check_add(int64_t n) {
  kernel_maker m;
  int64_t one[] = {1};
  make_begin(&m, 1, &n, 0, 0);
  int x = make_arg(&m), y = make_arg(&m), z = make_arg(&m), alpha = make_scalar(&m);
  int a = make_load(&m, 0, x, HR_DTYPE_F32, 0, one), b = make_load(&m, 0, y, HR_DTYPE_F32, 0, one);
  int sum = make_op(&m, 0, HR_OP_ADD_SCALED, HR_CLASS_F32, 3, (int[]){a, b, alpha});
  make_store(&m, 0, z, HR_DTYPE_F32, 0, one, make_op1(&m, 0, HR_OP_TANH, HR_CLASS_F32, sum));
  float *fx = random_floats(n), *fy = random_floats(n), *fz = guarded((size_t)n * 4);
  hr_scalar scalars[] = {hr_scalar_f64(0.5)};
  run_all(&m, (void *[]){fx, fy, fz}, scalars, 2, (size_t)n * 4);
  check_guards(fz, (size_t)n * 4);
  for (int64_t i = 0; i < n; ++i) {
    HR_ASSERT_NEAR(fz[i], tanh((double)fx[i] + 0.5 * (double)fy[i]), 1e-6);
  }
  free(fx), free(fy), free_guarded(fz);
}

HR_TEST(pointwise_sizes) {
  int64_t sizes[] = {0, 1, 2, 15, 16, 17, 1023, 1024, 1025, 5000};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; ++i) {
    check_add(sizes[i]);
  }
}

HR_TEST(pointwise_strides_and_broadcasts) {
  enum { A = 5, B = 70, C = 9 };
  kernel_maker m;
  int64_t dims[] = {A, B, C};
  make_begin(&m, 3, dims, 0, 0);
  int x = make_arg(&m), bias = make_arg(&m), row = make_arg(&m), y = make_arg(&m);
  /* x is reversed along B and stored with C outermost; bias is along C, row along B. */
  int r = make_load(&m, 0, x, HR_DTYPE_F32, B - 1, (int64_t[]){B, -1, A * B});
  r = make_op2(&m, 0, HR_OP_ADD, HR_CLASS_F32, r, make_load(&m, 0, bias, HR_DTYPE_F32, 0, (int64_t[]){0, 0, 1}));
  r = make_op2(&m, 0, HR_OP_MUL, HR_CLASS_F32, r, make_load(&m, 0, row, HR_DTYPE_F32, 1, (int64_t[]){0, 2, 0}));
  make_store(&m, 0, y, HR_DTYPE_F32, 0, (int64_t[]){B * C, C, 1}, r);
  float *fx = random_floats(A * B * C), *fb = random_floats(C), *fr = random_floats(2 * B + 1),
        *fy = guarded(A * B * C * 4);
  run_all(&m, (void *[]){fx, fb, fr, fy}, NULL, 3, A * B * C * 4);
  for (int a = 0; a < A; ++a) {
    for (int b = 0; b < B; ++b) {
      for (int c = 0; c < C; ++c) {
        double expected = ((double)fx[a * B + (B - 1 - b) + c * A * B] + (double)fb[c]) * (double)fr[1 + 2 * b];
        HR_ASSERT_NEAR(fy[(a * B + b) * C + c], expected, 1e-5);
      }
    }
  }
  free(fx), free(fb), free(fr), free_guarded(fy);
}

/* Rows from the last to the first are still pointers into memory: their pitch is negative. */
HR_TEST(pointwise_rows_in_reverse) {
  enum { A = 33, B = 300, PITCH = 311 };
  kernel_maker m;
  make_begin(&m, 2, (int64_t[]){A, B}, 0, 0);
  int x = make_arg(&m), y = make_arg(&m);
  int r = make_load(&m, 0, x, HR_DTYPE_F32, (A - 1) * PITCH, (int64_t[]){-PITCH, 1});
  r = make_op1(&m, 0, HR_OP_NEG, HR_CLASS_F32, r);
  make_store(&m, 0, y, HR_DTYPE_F32, (A - 1) * B, (int64_t[]){-B, 1}, r);
  float *fx = random_floats((A - 1) * PITCH + B), *fy = guarded(A * B * 4);
  run_all(&m, (void *[]){fx, fy}, NULL, 1, A * B * 4);
  for (int a = 0; a < A; ++a) {
    for (int b = 0; b < B; ++b) {
      HR_ASSERT_NEAR(fy[a * B + b], -fx[a * PITCH + b], 0);
    }
  }
  free(fx), free_guarded(fy);
}

HR_TEST(pointwise_bias_over_rows) {
  int64_t shapes[][3] = {{4, 3, 700}, {64, 10, 1}, {3, 200, 49}, {7, 64, 100}, {2, 2, 3000}};
  for (size_t k = 0; k < sizeof shapes / sizeof *shapes; ++k) {
    int64_t n = shapes[k][0], c = shapes[k][1], w = shapes[k][2];
    kernel_maker m;
    make_begin(&m, 3, shapes[k], 0, 0);
    int x = make_arg(&m), bias = make_arg(&m), y = make_arg(&m);
    int r = make_load(&m, 0, x, HR_DTYPE_F32, 0, (int64_t[]){c * w, w, 1});
    r = make_op2(&m, 0, HR_OP_SUB, HR_CLASS_F32, make_load(&m, 0, bias, HR_DTYPE_F32, 0, (int64_t[]){0, 1, 0}), r);
    make_store(&m, 0, y, HR_DTYPE_F32, 0, (int64_t[]){c * w, w, 1}, r);
    float *fx = random_floats(n * c * w), *fb = random_floats(c), *fy = guarded((size_t)(n * c * w) * 4);
    run_all(&m, (void *[]){fx, fb, fy}, NULL, 2, (size_t)(n * c * w) * 4);
    for (int64_t i = 0; i < n * c * w; ++i) {
      HR_ASSERT_NEAR(fy[i], fb[i / w % c] - fx[i], 0);
    }
    free(fx), free(fb), free_guarded(fy);
  }
}

/* Every dtype to every dtype and back through doubles, with values that all can represent. */
HR_TEST(conversions_between_all_dtypes) {
  int64_t n = 1030, one[] = {1};
  for (int from = HR_DTYPE_BOOL; from < HR_DTYPE_COUNT; ++from) {
    for (int to = HR_DTYPE_BOOL; to < HR_DTYPE_COUNT; ++to) {
      kernel_maker m;
      make_begin(&m, 1, &n, 0, 0);
      int x = make_arg(&m), y = make_arg(&m), z = make_arg(&m);
      int r = make_load(&m, 0, x, HR_DTYPE_F64, 0, one);
      r = make_convert(&m, 0, r, (hr_dtype)from);
      r = make_convert(&m, 0, r, (hr_dtype)to);
      make_store(&m, 0, y, (hr_dtype)to, 0, one, r);
      make_store(&m, 0, z, HR_DTYPE_F64, 0, one, make_convert(&m, 0, r, HR_DTYPE_F64));
      double *in = malloc((size_t)n * 8), *out = guarded((size_t)n * 8);
      size_t bytes = (size_t)n * hr_dtype_size((hr_dtype)to);
      void *middle = guarded(bytes);
      bool is_bool = from == HR_DTYPE_BOOL || to == HR_DTYPE_BOOL;
      bool is_byte = hr_dtype_is_float8((hr_dtype)from) || hr_dtype_is_float8((hr_dtype)to);
      for (int64_t i = 0; i < n; ++i) {
        in[i] = is_byte ? ldexp(1, (int)(i % 3)) : (double)(i % 100);
      }
      run_all(&m, (void *[]){in, middle, out}, NULL, 1, bytes);
      check_guards(middle, bytes);
      for (int64_t i = 0; i < n; ++i) {
        HR_ASSERT_EQ(out[i], is_bool ? in[i] != 0 : in[i]);
      }
      /* and back from memory */
      kernel_maker back;
      make_begin(&back, 1, &n, 0, 0);
      x = make_arg(&back), y = make_arg(&back);
      r = make_convert(&back, 0, make_load(&back, 0, x, (hr_dtype)to, 0, one), HR_DTYPE_F64);
      make_store(&back, 0, y, HR_DTYPE_F64, 0, one, r);
      double *again = guarded((size_t)n * 8);
      run_all(&back, (void *[]){middle, again}, NULL, 1, (size_t)n * 8);
      HR_ASSERT_BYTES_EQ(again, out, (size_t)n * 8);
      free(in), free_guarded(out), free_guarded(middle), free_guarded(again);
    }
  }
}

HR_TEST(floats_round_like_the_core) {
  int64_t n = 1 << 16, one[] = {1};
  for (int k = 0; k < 2; ++k) {
    hr_dtype dtype = k == 0 ? HR_DTYPE_F16 : HR_DTYPE_BF16;
    kernel_maker m;
    make_begin(&m, 1, &n, 0, 0);
    int x = make_arg(&m), y = make_arg(&m), z = make_arg(&m);
    int r = make_load(&m, 0, x, HR_DTYPE_F32, 0, one);
    make_store(&m, 0, y, dtype, 0, one, make_convert(&m, 0, r, dtype));
    make_store(&m, 0, z, HR_DTYPE_F32, 0, one, make_convert(&m, 0, r, dtype));
    float *in = random_floats(n), *wide = malloc((size_t)n * 4);
    uint16_t *out = guarded((size_t)n * 2);
    for (int64_t i = 0; i < n; ++i) {
      uint32_t bits = (uint32_t)i << 16 | (uint32_t)(i * 40503u & 0xffffu);
      bits = i % 5 == 0 ? bits & 0xffff8000u : bits; /* ties */
      bits = i % 7 == 0 ? bits & 0xfffff000u : bits;
      memcpy(&in[i], &bits, 4);
    }
    run_all(&m, (void *[]){in, out, wide}, NULL, 1, (size_t)n * 2);
    for (int64_t i = 0; i < n; ++i) {
      uint16_t expected = k == 0 ? hr_f32_to_f16(in[i]) : hr_f32_to_bf16(in[i]);
      HR_ASSERT_EQ(out[i], expected);
      HR_ASSERT_NEAR(wide[i], k == 0 ? hr_f16_to_f32(expected) : hr_bf16_to_f32(expected), 0);
    }
    free(in), free(wide), free_guarded(out);
  }
}

HR_TEST(pairs_of_halves_round_like_the_core) {
  int64_t n = (1 << 14) + 5, one[] = {1}, three[] = {3};
  float *in = random_floats(n), *wide = guarded((size_t)n * 8);
  uint16_t *pairs = guarded((size_t)n * 4), *again = guarded((size_t)n * 4), *apart = guarded((size_t)n * 12);
  kernel_maker m;
  make_begin(&m, 1, &n, 0, 0);
  int x = make_arg(&m), y = make_arg(&m);
  make_store(&m, 0, y, HR_DTYPE_C32, 0, one,
             make_convert(&m, 0, make_load(&m, 0, x, HR_DTYPE_F32, 0, one), HR_DTYPE_C32));
  run_all(&m, (void *[]){in, pairs}, NULL, 1, (size_t)n * 4);
  for (int64_t i = 0; i < n; ++i) { /* imaginary parts as well */
    HR_ASSERT_EQ(pairs[2 * i], hr_f32_to_f16(in[i]));
    HR_ASSERT_EQ(pairs[2 * i + 1], 0);
    pairs[2 * i + 1] = (uint16_t)(i % 0x7c00);
  }
  make_begin(&m, 1, &n, 0, 0);
  x = make_arg(&m), y = make_arg(&m);
  int z = make_arg(&m), w = make_arg(&m), r = make_load(&m, 0, x, HR_DTYPE_C32, 0, one);
  make_store(&m, 0, y, HR_DTYPE_C64, 0, one, r);
  make_store(&m, 0, z, HR_DTYPE_C32, 0, one, r);
  make_store(&m, 0, w, HR_DTYPE_C32, 0, three, r);
  run_all(&m, (void *[]){pairs, wide, again, apart}, NULL, 1, (size_t)n * 8);
  HR_ASSERT_BYTES_EQ(again, pairs, (size_t)n * 4);
  for (int64_t i = 0; i < 2 * n; ++i) {
    HR_ASSERT_NEAR(wide[i], hr_f16_to_f32(pairs[i]), 0);
    HR_ASSERT_EQ(apart[i / 2 * 6 + i % 2], pairs[i]);
  }
  free(in), free_guarded(wide), free_guarded(pairs), free_guarded(again), free_guarded(apart);
}

HR_TEST(every_half_widens_like_the_core) {
  int64_t n = 1 << 16, one[] = {1};
  uint16_t *in = malloc((size_t)n * 2);
  float *out = guarded((size_t)n * 4);
  for (int64_t i = 0; i < n; ++i) {
    in[i] = (uint16_t)i;
  }
  for (int k = 0; k < 2; ++k) {
    kernel_maker m;
    make_begin(&m, 1, &n, 0, 0);
    int x = make_arg(&m), y = make_arg(&m);
    make_store(&m, 0, y, HR_DTYPE_F32, 0, one, make_load(&m, 0, x, k == 0 ? HR_DTYPE_F16 : HR_DTYPE_BF16, 0, one));
    run_all(&m, (void *[]){in, out}, NULL, 1, (size_t)n * 4);
    for (int64_t i = 0; i < n; ++i) {
      HR_ASSERT_NEAR(out[i], k == 0 ? hr_f16_to_f32(in[i]) : hr_bf16_to_f32(in[i]), 0);
    }
  }
  free(in), free_guarded(out);
}

HR_TEST(bytes_widen_and_round_like_the_core) {
  int64_t n = 1 << 16, one[] = {1};
  for (hr_dtype dtype = HR_DTYPE_F8E4M3FN; dtype <= HR_DTYPE_F4E2M1FN; ++dtype) {
    kernel_maker m;
    make_begin(&m, 1, &n, 0, 0);
    int x = make_arg(&m), bytes = make_arg(&m), y = make_arg(&m), z = make_arg(&m), w = make_arg(&m);
    int r = make_convert(&m, 0, make_load(&m, 0, x, HR_DTYPE_F32, 0, one), dtype);
    make_store(&m, 0, y, dtype, 0, one, r);
    make_store(&m, 0, z, HR_DTYPE_F32, 0, one, r);
    make_store(&m, 0, w, HR_DTYPE_F32, 0, one, make_load(&m, 0, bytes, dtype, 0, one));
    float *in = random_floats(n), *round = malloc((size_t)n * 4), *wide = guarded((size_t)n * 4);
    uint8_t *all = malloc((size_t)n), *out = guarded((size_t)n);
    for (int64_t i = 0; i < n; ++i) {
      uint32_t bits = (uint32_t)(i << 16) | (i % 5 == 0 ? 0u : i % 5 == 1 ? 0xffffu : 1u);
      memcpy(&in[i], &bits, 4);
      all[i] = (uint8_t)i;
    }
    run_all(&m, (void *[]){in, all, out, round, wide}, NULL, 2, (size_t)n);
    for (int64_t i = 0; i < n; ++i) {
      uint8_t expected = hr_f32_to_f8(dtype, in[i]);
      float back = hr_f8_to_f32(dtype, expected);
      HR_ASSERT(out[i] == expected || (isnan(back) && isnan(hr_f8_to_f32(dtype, out[i]))));
      HR_ASSERT(isnan(back) ? isnan(round[i]) : memcmp(&round[i], &back, 4) == 0);
      float byte = hr_f8_to_f32(dtype, all[i]);
      HR_ASSERT(isnan(byte) ? isnan(wide[i]) : memcmp(&wide[i], &byte, 4) == 0);
    }
    free(in), free(round), free(all), free_guarded(wide), free_guarded(out);
  }
}

HR_TEST(conversions_of_extremes_do_not_trap) {
  double in[] = {NAN, INFINITY, -INFINITY, 1e300, -1e300, 9.3e18, -9.3e18, 1.8e19, 3e9, -1.5, 255.7, 70000};
  int64_t n = 12, one[] = {1};
  int64_t *out = guarded(sizeof in);
  kernel_maker m;
  make_begin(&m, 1, &n, 0, 0);
  int x = make_arg(&m), y = make_arg(&m);
  make_store(&m, 0, y, HR_DTYPE_I64, 0, one,
             make_convert(&m, 0, make_load(&m, 0, x, HR_DTYPE_F64, 0, one), HR_DTYPE_I64));
  run_all(&m, (void *[]){in, out}, NULL, 1, sizeof in);
  HR_ASSERT_EQ(out[0], INT64_MIN);
  HR_ASSERT_EQ(out[8], 3000000000);
  HR_ASSERT_EQ(out[9], -1);
  HR_ASSERT_EQ(out[10], 255);
  free_guarded(out);
}

/* y = f(x) with y stored over x, which is read again afterwards. */
HR_TEST(in_place_reads_old_values) {
  int64_t n = 3000, one[] = {1};
  kernel_maker m;
  make_begin(&m, 1, &n, 0, 0);
  int x = make_arg(&m), y = make_arg(&m);
  int a = make_load(&m, 0, x, HR_DTYPE_F32, 0, one);
  int twice = make_op2(&m, 0, HR_OP_ADD, HR_CLASS_F32, a, a);
  make_store(&m, 0, x, HR_DTYPE_F32, 0, one, twice);
  make_store(&m, 0, y, HR_DTYPE_F32, 0, one, make_op2(&m, 0, HR_OP_SUB, HR_CLASS_F32, twice, a));
  float *fx = random_floats(n), *old = malloc((size_t)n * 4), *fy = guarded((size_t)n * 4);
  memcpy(old, fx, (size_t)n * 4);
  hr_host_kernel *kernel;
  HR_ASSERT_OK(hr_interp_create(make_end(&m), &kernel));
  run_split(kernel, (void *[]){fx, fy}, NULL, 1);
  for (int64_t i = 0; i < n; ++i) {
    HR_ASSERT_NEAR(fx[i], 2 * old[i], 0);
    HR_ASSERT_NEAR(fy[i], old[i], 1e-6);
  }
  kernel->destroy(kernel);
  free(fx), free(old), free_guarded(fy);
}

/* Two arguments share memory, as when the planner reuses it: a store must not precede a load. */
HR_TEST(arguments_that_share_memory) {
  int64_t n = 3000, one[] = {1};
  kernel_maker m;
  make_begin(&m, 1, &n, 0, 0);
  int x = make_arg(&m), y = make_arg(&m), z = make_arg(&m);
  int a = make_load(&m, 0, x, HR_DTYPE_F32, 0, one);
  int b = make_op1(&m, 0, HR_OP_NEG, HR_CLASS_F32, a);
  int c = make_op2(&m, 0, HR_OP_MUL, HR_CLASS_F32, a, a);
  make_store(&m, 0, y, HR_DTYPE_F32, 0, one, b);
  make_store(&m, 0, z, HR_DTYPE_F32, 0, one, c);
  float *fx = random_floats(n), *old = malloc((size_t)n * 4), *fz = guarded((size_t)n * 4);
  memcpy(old, fx, (size_t)n * 4);
  hr_host_kernel *kernel;
  HR_ASSERT_OK(hr_interp_create(make_end(&m), &kernel));
  run_split(kernel, (void *[]){fx, fx, fz}, NULL, 1);
  for (int64_t i = 0; i < n; ++i) {
    HR_ASSERT_NEAR(fx[i], -old[i], 0);
    HR_ASSERT_NEAR(fz[i], old[i] * old[i], 0);
  }
  kernel->destroy(kernel);
  free(fx), free(old), free_guarded(fz);
}

/* Neighbours share blocks of Philox, for any start of the run. */
HR_TEST(random_numbers_depend_on_the_element_alone) {
  int64_t n = 1500, one[] = {1};
  for (int64_t first = 0; first < 6; ++first) {
    kernel_maker m;
    make_begin(&m, 1, &n, 0, 0);
    int y = make_arg(&m), key = make_scalar(&m), offset = make_scalar(&m);
    int index = make_index(&m, 0, first, (int64_t[]){first == 5 ? 2 : 1});
    int r = make_op(&m, 0, HR_OP_PHILOX_UNIFORM, HR_CLASS_F32, 3, (int[]){index, key, offset});
    make_store(&m, 0, y, HR_DTYPE_F32, 0, one, r);
    float *fy = guarded((size_t)n * 4);
    hr_scalar scalars[] = {hr_scalar_i64(77), hr_scalar_i64(3)};
    run_all(&m, (void *[]){fy}, scalars, 0, (size_t)n * 4);
    for (int64_t i = 0; i < n; ++i) {
      float expected = hr_f32_philox_uniform(first + i * (first == 5 ? 2 : 1), 77, 3);
      HR_ASSERT_BYTES_EQ(&fy[i], &expected, 4);
    }
    free_guarded(fy);
  }
}

/* Seeds from memory: the same for all elements, which are runs, or one for each row. */
HR_TEST(words_of_a_counter_in_memory) {
  int64_t dims[] = {3, 500}, strides[] = {500, 1};
  for (int64_t step = 0; step < 2; ++step) {
    kernel_maker m;
    make_begin(&m, 2, dims, 0, 0);
    int state = make_arg(&m), y = make_arg(&m), sources[4];
    sources[0] = make_index(&m, 0, 0, strides);
    for (int s = 1; s < 4; ++s) {
      sources[s] = make_load(&m, 0, state, HR_DTYPE_I64, s - 1, (int64_t[]){3 * step, 0});
    }
    make_store(&m, 0, y, HR_DTYPE_U32, 0, strides, make_op(&m, 0, HR_OP_PHILOX_WORDS, HR_CLASS_U32, 4, sources));
    int64_t seeds[] = {7, -5, 3, 8, -1, -1, 9, 0, 0};
    uint32_t *words = guarded(sizeof *words * 1500);
    run_all(&m, (void *[]){seeds, words}, NULL, 1, sizeof *words * 1500);
    for (int64_t i = 0; i < 1500; ++i) {
      const int64_t *mine = seeds + i / 500 * 3 * step;
      HR_ASSERT_EQ(words[i], hr_u32_philox_words(i, mine[0], mine[1], mine[2]));
    }
    free_guarded(words);
  }
}

/* ---- rows and columns ---- */

/* softmax over dim 1 of [rows, count, inner]. */
static void check_softmax(int64_t rows, int64_t count, int64_t inner) {
  kernel_maker m;
  int64_t dims[] = {rows, count, inner}, strides[] = {count * inner, inner, 1};
  make_begin(&m, 3, dims, 1u << 1, 0);
  int x = make_arg(&m), y = make_arg(&m);
  int largest = make_reduce(&m, 0, HR_OP_AMAX, HR_CLASS_F32, make_load(&m, 0, x, HR_DTYPE_F32, 0, strides));
  int e = make_op2(&m, 1, HR_OP_SUB, HR_CLASS_F32, make_load(&m, 1, x, HR_DTYPE_F32, 0, strides), largest);
  e = make_op1(&m, 1, HR_OP_EXP, HR_CLASS_F32, e);
  int sum = make_reduce(&m, 1, HR_OP_SUM, HR_CLASS_F32, e);
  make_store(&m, 2, y, HR_DTYPE_F32, 0, strides, make_op2(&m, 2, HR_OP_DIV, HR_CLASS_F32, e, sum));
  int64_t n = rows * count * inner;
  float *fx = random_floats(n), *fy = guarded((size_t)n * 4);
  run_all(&m, (void *[]){fx, fy}, NULL, 1, (size_t)n * 4);
  check_guards(fy, (size_t)n * 4);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t k = 0; k < inner; ++k) {
      double total = 0;
      for (int64_t i = 0; i < count; ++i) {
        total += exp((double)fx[(r * count + i) * inner + k]);
      }
      for (int64_t i = 0; i < count; ++i) {
        int64_t at = (r * count + i) * inner + k;
        HR_ASSERT_NEAR(fy[at], exp((double)fx[at]) / total, 1e-6);
      }
    }
  }
  free(fx), free_guarded(fy);
}

HR_TEST(softmax_of_rows) {
  int64_t sizes[] = {1, 2, 10, 32, 33, 100, 511, 512, 513, 1000, 1024, 1025, 5000, 50257};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; ++i) {
    check_softmax(sizes[i] > 2000 ? 3 : 70, sizes[i], 1);
  }
}

HR_TEST(softmax_of_columns) {
  check_softmax(3, 10, 7);
  check_softmax(2, 33, 5);
  check_softmax(2, 100, 300);
  check_softmax(1, 5000, 3);
  check_softmax(1, 40, 2000);
}

/* sum over `mask` of contiguous dims, f32 against double. */
static void check_sum(int rank, const int64_t *dims, uint32_t mask) {
  kernel_maker m;
  int64_t strides[HR_RANK_MAX], out_strides[HR_RANK_MAX], n = 1, out_n = 1;
  for (int d = rank - 1; d >= 0; --d) {
    bool is_reduced = (mask >> d & 1) != 0;
    strides[d] = n, out_strides[d] = is_reduced ? 0 : out_n;
    n *= dims[d], out_n *= is_reduced ? 1 : dims[d];
  }
  make_begin(&m, rank, dims, mask, 0);
  int x = make_arg(&m), y = make_arg(&m), half = make_scalar(&m);
  int sum = make_reduce(&m, 0, HR_OP_SUM, HR_CLASS_F32, make_load(&m, 0, x, HR_DTYPE_F32, 0, strides));
  make_store(&m, 1, y, HR_DTYPE_F32, 0, out_strides, make_op2(&m, 1, HR_OP_MUL, HR_CLASS_F32, sum, half));
  float *fx = random_floats(n), *fy = guarded((size_t)out_n * 4);
  hr_scalar scalars[] = {hr_scalar_f64(0.5)};
  run_all(&m, (void *[]){fx, fy}, scalars, 1, (size_t)out_n * 4);
  check_guards(fy, (size_t)out_n * 4);
  double *expected = calloc((size_t)out_n + 1, sizeof *expected),
         *magnitude = calloc((size_t)out_n + 1, sizeof *expected);
  for (int64_t i = 0; i < n; ++i) {
    int64_t at = 0;
    for (int d = 0; d < rank; ++d) {
      at += i / strides[d] % dims[d] * out_strides[d];
    }
    expected[at] += 0.5 * (double)fx[i];
    magnitude[at] += fabs((double)fx[i]);
  }
  for (int64_t i = 0; i < out_n; ++i) {
    HR_ASSERT_NEAR(fy[i], expected[i], 1e-5 * magnitude[i] + 1e-30);
    HR_ASSERT(n != 0 || !signbit(fy[i]));
  }
  free(fx), free_guarded(fy), free(expected), free(magnitude);
}

HR_TEST(full_sums) {
  int64_t sizes[] = {0,   1,    31,   32,   33,   63,   64,    65,     511,    512,
                     513, 1000, 1024, 4095, 4096, 4097, 10000, 100000, 262145, 300001};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; ++i) {
    check_sum(1, &sizes[i], 1);
  }
}

HR_TEST(sums_over_some_dims) {
  check_sum(2, (int64_t[]){5, 1000}, 2);
  check_sum(2, (int64_t[]){1000, 5}, 1);
  check_sum(2, (int64_t[]){100000, 3}, 1);
  check_sum(2, (int64_t[]){9000, 300}, 1);
  check_sum(2, (int64_t[]){3, 2000}, 1);
  check_sum(2, (int64_t[]){30, 20000}, 1);
  check_sum(2, (int64_t[]){3, 30000}, 2);
  check_sum(3, (int64_t[]){8, 16, 784}, 5);
  check_sum(3, (int64_t[]){8, 300, 49}, 2);
  check_sum(4, (int64_t[]){4, 3, 5, 6}, 12);
  check_sum(4, (int64_t[]){4, 3, 50, 60}, 5);
  check_sum(4, (int64_t[]){4, 3, 50, 60}, 10);
  check_sum(2, (int64_t[]){0, 7}, 1);
  check_sum(2, (int64_t[]){7, 0}, 1);
  check_sum(3, (int64_t[]){1, 1, 1}, 7);
  check_sum(3, (int64_t[]){1, 50, 1}, 5);
}

/* A few channels of each pixel belong to a group, channels-last: short rows are copied both ways. */
static void check_groups(int64_t pixels, int64_t width, hr_dtype dtype) {
  enum { GROUPS = 3 };
  kernel_maker m;
  int64_t dims[] = {pixels, GROUPS, width}, strides[] = {GROUPS * width, width, 1}, count = pixels * GROUPS * width;
  size_t size = hr_dtype_size(dtype);
  hr_class cls = hr_dtype_class(dtype);
  make_begin(&m, 3, dims, 5, 0);
  int x = make_arg(&m), y = make_arg(&m);
  int most = make_reduce(&m, 0, HR_OP_AMAX, cls, make_load(&m, 0, x, dtype, 0, strides));
  int r = make_op2(&m, 1, HR_OP_SUB, cls, most, make_load(&m, 1, x, dtype, 0, strides));
  make_store(&m, 1, y, dtype, 0, strides, r);
  float *fx = random_floats(count), *fy = guarded((size_t)count * size);
  double *dx = malloc((size_t)count * sizeof *dx);
  for (int64_t i = 0; i < count; ++i) {
    dx[i] = fx[i];
  }
  bool is_double = dtype == HR_DTYPE_F64;
  run_all(&m, (void *[]){is_double ? (void *)dx : (void *)fx, fy}, NULL, 1, (size_t)count * size);
  check_guards(fy, (size_t)count * size);
  for (int64_t i = 0; i < count; ++i) {
    double expected = -INFINITY;
    for (int64_t k = 0; k < count; ++k) {
      expected = k / width % GROUPS == i / width % GROUPS && dx[k] > expected ? dx[k] : expected;
    }
    double found = is_double ? ((const double *)(const void *)fy)[i] : fy[i];
    HR_ASSERT_NEAR(found, expected - dx[i], 1e-6);
  }
  free(fx), free(dx), free_guarded(fy);
}

HR_TEST(groups_of_channels) {
  int64_t widths[] = {1, 2, 3, 4, 5, 8, 16, 17};
  for (size_t i = 0; i < sizeof widths / sizeof *widths; ++i) {
    check_groups(50, widths[i], HR_DTYPE_F32);
    check_groups(700, widths[i], HR_DTYPE_F32);
    check_groups(50, widths[i], HR_DTYPE_F64);
  }
}

/* The order described in kernel.h, implemented independently. */
static float sum_in_order(const float *x, int64_t count, int64_t step, hr_reduce_order order) {
  int64_t chunk = order == HR_ORDER_LANES ? 4096 : 512, chunks = (count + chunk - 1) / chunk;
  float *results = malloc((size_t)chunks * sizeof *results);
  for (int64_t c = 0; c < chunks; ++c) {
    float lanes[HR_REDUCE_LANES];
    for (int l = 0; l < HR_REDUCE_LANES; ++l) {
      lanes[l] = -0.0f;
    }
    for (int64_t i = 0; i < chunk && c * chunk + i < count; ++i) {
      lanes[order == HR_ORDER_LANES ? i % HR_REDUCE_LANES : 0] += x[(c * chunk + i) * step];
    }
    for (int half = HR_REDUCE_LANES / 2; order == HR_ORDER_LANES && half > 0; half /= 2) {
      for (int l = 0; l < half; ++l) {
        lanes[l] += lanes[l + half];
      }
    }
    results[c] = lanes[0];
  }
  float result = chunks == 1 ? results[0] : sum_in_order(results, chunks, 1, order);
  free(results);
  return result;
}

/* The kernel of a column sum over `count` rows of floats. */
static void make_column_sum(kernel_maker *m, int64_t count, int64_t columns) {
  make_begin(m, 2, (int64_t[]){count, columns}, 1, 0);
  int x = make_arg(m), y = make_arg(m);
  int sum = make_reduce(m, 0, HR_OP_SUM, HR_CLASS_F32, make_load(m, 0, x, HR_DTYPE_F32, 0, (int64_t[]){columns, 1}));
  make_store(m, 1, y, HR_DTYPE_F32, 0, (int64_t[]){0, 1}, sum);
}

static void check_order(int64_t count, int64_t columns) {
  kernel_maker m;
  make_column_sum(&m, count, columns);
  float *fx = random_floats(count * columns), *fy = guarded((size_t)columns * 4);
  run_all(&m, (void *[]){fx, fy}, NULL, 1, (size_t)columns * 4);
  for (int64_t k = 0; k < columns; ++k) {
    float expected = sum_in_order(fx + k, count, columns, m.kernel.order);
    HR_ASSERT_BYTES_EQ(&fy[k], &expected, 4);
  }
  free(fx), free_guarded(fy);
}

HR_TEST(reductions_keep_their_order) {
  int64_t sizes[] = {1, 7, 32, 33, 64, 100, 1000, 4096, 4097, 20000, 300000};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; ++i) {
    check_order(sizes[i], 1);
    check_order(sizes[i], 3);
    check_order(sizes[i], 10);
  }
  check_order(17000000, 1); /* three levels */
  check_order(5000, 300);
}

/* The plan of many rows, in several blocks, takes the numbers of a few, which alone would be one block. */
static void check_renumbered_columns(int64_t many, int64_t few, int64_t columns) {
  kernel_maker m;
  make_column_sum(&m, many, columns);
  hr_host_kernel *kernel;
  HR_ASSERT_OK(hr_interp_create(make_end(&m), &kernel));
  make_column_sum(&m, few, columns);
  HR_ASSERT(hr_interp_renumber(kernel, make_end(&m)));
  float *fx = random_floats(few * columns), *fy = guarded((size_t)columns * 4);
  run_split(kernel, (void *[]){fx, fy}, NULL, 1);
  for (int64_t k = 0; k < columns; ++k) {
    float expected = sum_in_order(fx + k, few, columns, m.kernel.order);
    HR_ASSERT_BYTES_EQ(&fy[k], &expected, 4);
  }
  check_guards(fy, (size_t)columns * 4);
  free(fx), free_guarded(fy);
  kernel->destroy(kernel);
}

HR_TEST(a_plan_of_many_rows_takes_a_few) {
  check_renumbered_columns(300, 81, 10);
  check_renumbered_columns(300, 250, 10);
  check_renumbered_columns(300, 29, 128);
  check_renumbered_columns(300, 33, 1);
}

HR_TEST(a_plan_of_many_chunks_takes_fewer) {
  check_renumbered_columns(20000, 19999, 10);
  check_renumbered_columns(20000, 12345, 10);
  check_renumbered_columns(300000, 270001, 1);
  check_renumbered_columns(300000, 299999, 3);
}

/* Argmax over dim 1 of [rows, count, inner], with ties and a NaN. */
static void check_argmax(int64_t rows, int64_t count, int64_t inner) {
  kernel_maker m;
  int64_t dims[] = {rows, count, inner}, strides[] = {count * inner, inner, 1};
  make_begin(&m, 3, dims, 1u << 1, 0);
  int x = make_arg(&m), y = make_arg(&m);
  int key = make_load(&m, 0, x, HR_DTYPE_F32, 0, strides), index = make_index(&m, 0, 0, (int64_t[]){0, 1, 0});
  int best = make_argreduce(&m, 0, HR_OP_ARGMAX, HR_CLASS_F32, key, index);
  make_store(&m, 1, y, HR_DTYPE_I64, 0, (int64_t[]){inner, 0, 1}, best);
  int64_t n = rows * count * inner;
  float *fx = random_floats(n);
  int64_t *fy = guarded((size_t)(rows * inner) * 8);
  for (int64_t i = 0; i < n; ++i) {
    fx[i] = i % 5000 == 4711 ? NAN : roundf(fx[i] * 10);
  }
  run_all(&m, (void *[]){fx, fy}, NULL, 1, (size_t)(rows * inner) * 8);
  for (int64_t r = 0; r < rows * inner; ++r) {
    const float *v = fx + r / inner * count * inner + r % inner;
    int64_t expected = 0;
    for (int64_t i = 1; i < count; ++i) {
      float a = v[i * inner], b = v[expected * inner];
      expected = a > b || (isnan(a) && !isnan(b)) ? i : expected;
    }
    HR_ASSERT_EQ(fy[r], expected);
  }
  free(fx), free_guarded(fy);
}

HR_TEST(argmax_takes_the_first) {
  check_argmax(50, 10, 1);
  check_argmax(50, 100, 1);
  check_argmax(3, 20000, 1);
  check_argmax(1, 100000, 1);
  check_argmax(4, 9, 30);
  check_argmax(1, 30000, 5);
}

/* A row at once and its elements one by one: the same index, with few values, NaNs and zeros of both signs among them.
 */
static void check_rows_of_class(hr_class cls, const void *keys, size_t size) {
  int64_t indices[200];
  for (int i = 0; i < 200; ++i) {
    indices[i] = (i * 37 + 11) % 200;
  }
  for (int op = 0; op < HR__ARGREDUCES; ++op) {
    hr__argreduce_fn better = hr__class_loops_of(cls)->argreduce[op];
    for (int64_t count = 1; count <= 200; ++count) {
      for (int64_t first = 0; first + count <= 200; first += 7) {
        const char *row = (const char *)keys + (size_t)first * size;
        char best[sizeof(hr_c128)], one_best[sizeof(hr_c128)];
        int64_t at = INT64_MAX, one_at = INT64_MAX;
        better(best, &at, row, indices + first, count, 1, 1, 1);
        for (int64_t i = 0; i < count; ++i) {
          better(one_best, &one_at, row + (size_t)i * size, indices + first + i, 1, 1, 0, 0);
        }
        HR_ASSERT_EQ(at, one_at);
      }
    }
  }
}

HR_TEST(a_row_has_the_best_of_its_elements) {
  float f32[200], hardly[200];
  double f64[200];
  int64_t i64[200];
  int32_t i32[200];
  for (int i = 0; i < 200; ++i) {
    double few = uniform();
    i64[i] = (int64_t)(few * 4e18), i32[i] = (int32_t)(few * 20);
    f32[i] = i % 61 == 60 ? NAN : i % 3 == 0 ? -0.0f : (float)(i32[i] / 2);
    f64[i] = i % 5 == 0 ? -INFINITY : few;
    hardly[i] = i % 90 == 77 ? -INFINITY : NAN;
  }
  check_rows_of_class(HR_CLASS_F32, f32, sizeof *f32);
  check_rows_of_class(HR_CLASS_F32, hardly, sizeof *hardly);
  check_rows_of_class(HR_CLASS_F64, f64, sizeof *f64);
  check_rows_of_class(HR_CLASS_I64, i64, sizeof *i64);
  check_rows_of_class(HR_CLASS_I32, i32, sizeof *i32);
}

/* ---- windows, gather, scatter ---- */

static void check_max_pool(int64_t planes, int64_t h, int64_t w, int64_t k, int64_t stride, int64_t pad) {
  int64_t oh = (h + 2 * pad - k) / stride + 1, ow = (w + 2 * pad - k) / stride + 1;
  kernel_maker m;
  int64_t dims[] = {planes, oh, ow, k, k};
  make_begin(&m, 5, dims, 3u << 3, 0);
  int x = make_arg(&m), y = make_arg(&m), z = make_arg(&m), low = make_scalar(&m);
  int v = make_load(&m, 0, x, HR_DTYPE_F32, -pad * w - pad, (int64_t[]){h * w, stride * w, stride, w, 1});
  if (pad > 0) {
    make_bound(&m, -pad, (int64_t[]){0, stride, 0, 1, 0}, h);
    make_bound(&m, -pad, (int64_t[]){0, 0, stride, 0, 1}, w);
    m.accesses[m.kernel.access_count - 1].fill = -1 - low;
  }
  int at = make_index(&m, 0, -pad * w - pad, (int64_t[]){0, stride * w, stride, w, 1});
  int64_t out[] = {oh * ow, ow, 1, 0, 0};
  int best = make_reduce(&m, 0, HR_OP_AMAX, HR_CLASS_F32, v);
  int index = make_argreduce(&m, 0, HR_OP_ARGMAX, HR_CLASS_F32, v, at);
  make_store(&m, 1, y, HR_DTYPE_F32, 0, out, best);
  make_store(&m, 1, z, HR_DTYPE_I64, 0, out, index);
  float *fx = random_floats(planes * h * w), *fy = guarded((size_t)(planes * oh * ow) * 4);
  int64_t *fz = guarded((size_t)(planes * oh * ow) * 8);
  hr_scalar scalars[] = {hr_scalar_f64(-INFINITY)};
  run_all(&m, (void *[]){fx, fy, fz}, scalars, 1, (size_t)(planes * oh * ow) * 4);
  for (int64_t o = 0; o < planes * oh * ow; ++o) {
    int64_t p = o / (oh * ow), i = o / ow % oh, j = o % ow;
    float largest = -INFINITY;
    int64_t where = -1;
    for (int64_t a = i * stride - pad; a < i * stride - pad + k; ++a) {
      for (int64_t b = j * stride - pad; b < j * stride - pad + k; ++b) {
        if (a >= 0 && a < h && b >= 0 && b < w && fx[p * h * w + a * w + b] > largest) {
          largest = fx[p * h * w + a * w + b];
          where = a * w + b;
        }
      }
    }
    HR_ASSERT_NEAR(fy[o], largest, 0);
    HR_ASSERT_EQ(fz[o], where);
  }
  free(fx), free_guarded(fy), free_guarded(fz);
}

HR_TEST(max_pool_windows) {
  check_max_pool(7, 28, 28, 2, 2, 0);
  check_max_pool(3, 9, 11, 3, 2, 1);
  check_max_pool(2, 56, 56, 3, 2, 1);
  check_max_pool(1, 5, 5, 5, 1, 2);
}

HR_TEST(gather_rows_and_elements) {
  enum { V = 50, E = 300, T = 40 };
  int64_t ids[T];
  for (int t = 0; t < T; ++t) {
    ids[t] = t % 3 == 0 ? -1 - t : t;
  }
  for (int transposed = 0; transposed < 2; ++transposed) { /* the index along the outer or the inner dim */
    kernel_maker m;
    int64_t dims[] = {transposed ? E : T, transposed ? T : E};
    make_begin(&m, 2, dims, 0, 0);
    int w = make_arg(&m), idx = make_arg(&m), y = make_arg(&m);
    int64_t along_t[] = {!transposed, transposed}, along_e[] = {transposed, !transposed};
    int id = make_load(&m, 0, idx, HR_DTYPE_I64, 0, along_t);
    int row = make_load(&m, 0, w, HR_DTYPE_F32, 0, along_e);
    make_term(&m, id, E, V);
    make_store(&m, 0, y, HR_DTYPE_F32, 0, (int64_t[]){dims[1], 1}, make_op1(&m, 0, HR_OP_NEG, HR_CLASS_F32, row));
    float *fw = random_floats(V * E), *fy = guarded(T * E * 4);
    run_all(&m, (void *[]){fw, ids, fy}, NULL, 2, T * E * 4);
    for (int t = 0; t < T; ++t) {
      for (int e = 0; e < E; ++e) {
        int64_t id_t = ids[t] < 0 ? ids[t] + V : ids[t];
        HR_ASSERT_NEAR(fy[transposed ? e * T + t : t * E + e], -fw[id_t * E + e], 0);
      }
    }
    free(fw), free_guarded(fy);
  }
}

enum { GATHERED_A = 3, GATHERED_V = 50, GATHERED_T = 41 };

/* y[a, t, .] = w[a, ids[t], .]: runs of memory are only copied, from a table for each a. */
static void make_gathered_runs(kernel_maker *m, int64_t times, int64_t run, hr_dtype dtype, hr_dtype index_dtype) {
  int64_t dims[] = {GATHERED_A, times, 2, run / 2};
  make_begin(m, 4, dims, 0, 0);
  int w = make_arg(m), idx = make_arg(m), y = make_arg(m);
  int id = make_load(m, 0, idx, index_dtype, 0, (int64_t[]){0, 1, 0, 0});
  int row = make_load(m, 0, w, dtype, 0, (int64_t[]){GATHERED_V * run, 0, run / 2, 1});
  make_term(m, id, run, GATHERED_V);
  make_store(m, 0, y, dtype, 0, (int64_t[]){times * run, run, run / 2, 1}, row);
}

/* The same by a kernel that has copied longer runs, of fewer indices. */
static void check_renumbered_runs(int64_t run, hr_dtype dtype, hr_dtype index_dtype, void **args, size_t bytes,
                                  const char *expected) {
  kernel_maker m;
  hr_host_kernel *kernel;
  char *result = guarded(bytes);
  make_gathered_runs(&m, GATHERED_T / 2, 4 * run, dtype, index_dtype);
  HR_ASSERT_OK(hr_interp_create(make_end(&m), &kernel));
  make_gathered_runs(&m, GATHERED_T, run, dtype, index_dtype);
  HR_ASSERT(hr_interp_renumber(kernel, make_end(&m)));
  run_split(kernel, (void *[]){args[0], args[1], result}, NULL, 1);
  HR_ASSERT_BYTES_EQ(result, expected, bytes);
  check_guards(result, bytes);
  free_guarded(result);
  kernel->destroy(kernel);
}

static void check_gathered_runs(int64_t run, hr_dtype dtype, hr_dtype index_dtype) {
  enum { A = GATHERED_A, V = GATHERED_V, T = GATHERED_T, COPIED_MIN = 64 };
  int64_t wide[T];
  int32_t narrow[T];
  kernel_maker m;
  for (int t = 0; t < T; ++t) {
    wide[t] = t % 3 == 0 ? -1 - t : t * 7 % V;
    wide[t] = t == 1 ? V + 5 : t == 2 ? -2 * V : wide[t]; /* as those at the ends */
    narrow[t] = (int32_t)wide[t];
  }
  make_gathered_runs(&m, T, run, dtype, index_dtype);
  size_t size = hr_dtype_size(dtype), bytes = (size_t)run * size;
  char *table = malloc(A * V * bytes), *result = guarded(A * T * bytes);
  for (size_t i = 0; i < A * V * bytes; ++i) {
    table[i] = (char)(i * 7 % 61); /* no NaN in any dtype */
  }
  void *args[] = {table, index_dtype == HR_DTYPE_I64 ? (void *)wide : narrow, result};
  run_all(&m, args, NULL, 2, A * T * bytes);
  for (int64_t i = 0; i < A * T; ++i) {
    int64_t from = wide[i % T] < 0 ? wide[i % T] + V : wide[i % T];
    from = from < 0 ? 0 : from < V ? from : V - 1;
    HR_ASSERT_BYTES_EQ(result + (size_t)i * bytes, table + (size_t)(i / T * V + from) * bytes, bytes);
  }
  if (bytes >= COPIED_MIN) {
    check_renumbered_runs(run, dtype, index_dtype, args, A * T * bytes, result);
  }
  free(table), free_guarded(result);
}

HR_TEST(gathered_runs_are_copied) {
  static const hr_dtype dtypes[] = {HR_DTYPE_F32, HR_DTYPE_BF16, HR_DTYPE_F64, HR_DTYPE_U8, HR_DTYPE_C64};
  static const int64_t runs[] = {2, 14, 16, 64, 130, 1000}; /* short ones go through blocks */
  for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; ++d) {
    for (size_t r = 0; r < sizeof runs / sizeof *runs; ++r) {
      check_gathered_runs(runs[r], dtypes[d], HR_DTYPE_I64);
      check_gathered_runs(runs[r], dtypes[d], HR_DTYPE_I32);
    }
  }
}

/* dw[ids[t], e] += dy[t, e], in order of t. */
static void check_scatter(int64_t vocabulary, int64_t tokens, int64_t width, bool width_inside, hr_dtype dtype) {
  kernel_maker m;
  int64_t dims[] = {width_inside ? tokens : width, width_inside ? width : tokens};
  int64_t along_t[] = {width_inside, !width_inside}, along_e[] = {!width_inside, width_inside};
  make_begin(&m, 2, dims, 0, width_inside ? 1 : 2);
  int dy = make_arg(&m), idx = make_arg(&m), dw = make_arg(&m);
  int id = make_load(&m, 0, idx, HR_DTYPE_I64, 0, along_t);
  int v = make_load(&m, 0, dy, HR_DTYPE_F32, 0, (int64_t[]){dims[1], 1});
  v = dtype == HR_DTYPE_F32 ? v : make_convert(&m, 0, v, dtype);
  hr_instr *store = make_store(&m, 0, dw, dtype, 0, along_e, v);
  store->mode = HR_STORE_ADD;
  make_term(&m, id, width, vocabulary);
  size_t bytes = (size_t)(vocabulary * width) * hr_dtype_size(dtype);
  float *fy = random_floats(tokens * width), *expected = calloc((size_t)(vocabulary * width), 4);
  int64_t *ids = malloc((size_t)tokens * 8);
  void *fw = guarded(bytes);
  memset(fw, 0, bytes);
  for (int64_t t = 0; t < tokens; ++t) {
    ids[t] = (t * 7 + t / 3) % vocabulary;
  }
  run_all(&m, (void *[]){fy, ids, fw}, NULL, 2, bytes);
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t e = 0; e < width; ++e) {
      float *to = &expected[ids[t] * width + e], from = fy[width_inside ? t * width + e : e * tokens + t];
      if (dtype == HR_DTYPE_BF16) {
        *to = hr_bf16_to_f32(hr_f32_to_bf16(*to + hr_bf16_to_f32(hr_f32_to_bf16(from))));
      } else {
        *to += from;
      }
    }
  }
  for (int64_t i = 0; i < vocabulary * width; ++i) {
    float got = dtype == HR_DTYPE_BF16 ? hr_bf16_to_f32(((uint16_t *)fw)[i]) : ((float *)fw)[i];
    HR_ASSERT_BYTES_EQ(&got, &expected[i], 4);
  }
  free(fy), free(ids), free(expected), free_guarded(fw);
}

HR_TEST(scatter_adds_in_order) {
  check_scatter(10, 100, 300, true, HR_DTYPE_F32);
  check_scatter(10, 100, 300, false, HR_DTYPE_F32);
  check_scatter(5, 3000, 1, true, HR_DTYPE_F32);
  check_scatter(5, 3000, 7, false, HR_DTYPE_F32);
  check_scatter(10, 100, 300, true, HR_DTYPE_BF16);
  check_scatter(10, 100, 20, false, HR_DTYPE_BF16);
}

/* ---- contract ---- */

static hr_status create_and_destroy(void) {
  kernel_maker m;
  int64_t dims[] = {4, 1000}, strides[] = {1000, 1};
  make_begin(&m, 2, dims, 2, 0);
  int x = make_arg(&m), y = make_arg(&m);
  int sum = make_reduce(&m, 0, HR_OP_SUM, HR_CLASS_F32, make_load(&m, 0, x, HR_DTYPE_F32, 0, strides));
  make_store(&m, 1, y, HR_DTYPE_F32, 0, (int64_t[]){1, 0}, sum);
  hr_host_kernel *kernel;
  hr_status status = hr_interp_create(make_end(&m), &kernel);
  if (status == HR_OK) {
    kernel->destroy(kernel);
  }
  return status;
}

HR_TEST(create_survives_lack_of_memory) {
  HR_TEST_OOM(create_and_destroy);
}

HR_TEST(create_names_what_it_cannot_run) {
  kernel_maker m;
  int64_t n = 4, one[] = {1};
  make_begin(&m, 1, &n, 0, 0);
  int x = make_arg(&m), y = make_arg(&m);
  int r = make_load(&m, 0, x, HR_DTYPE_I32, 0, one);
  make_store(&m, 0, y, HR_DTYPE_I32, 0, one, make_op1(&m, 0, HR_OP_EXP, HR_CLASS_I32, r));
  hr_host_kernel *kernel;
  HR_ASSERT_ERROR(hr_interp_create(make_end(&m), &kernel), HR_STATUS_UNIMPLEMENTED, "exp");
}

HR_TEST(create_refuses_more_registers_than_forms_can_number) {
  kernel_maker m;
  int64_t n = 4, one[] = {1};
  make_begin(&m, 1, &n, 0, 0);
  int x = make_arg(&m), y = make_arg(&m);
  int r = make_load(&m, 0, x, HR_DTYPE_F32, 0, one);
  make_store(&m, 0, y, HR_DTYPE_F32, 0, one, make_op1(&m, 0, HR_OP_EXP, HR_CLASS_F32, r));
  hr_kernel kernel = *make_end(&m);
  kernel.register_count = INT16_MAX;
  hr_host_kernel *made;
  HR_ASSERT_ERROR(hr_interp_create(&kernel, &made), HR_STATUS_UNIMPLEMENTED, "more than 32767 registers");
}
