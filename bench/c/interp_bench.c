/* Speed of typical kernels in the block interpreter and as compiled code, in turn: milliseconds, and GB/s of the memory
 * that must move. Each kernel is compiled by itself, with the compiler in HEADRACE_CC.
 *
 *   interp_bench [threads [name]]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/allocator.h"
#include "base/thread.h"
#include "engine/compiled_kernel.h"
#include "engine/host_compiler.h"
#include "interp/interp.h"
#include "interp/interp_testing.h"

static int threads;
static const char *filter = "";

typedef struct job {
  const hr_host_kernel *kernel;
  int pass;
  hr_host_call call;
  void *scratch[64];
} job;

static void run_range(void *arg, int64_t begin, int64_t end, int worker) {
  job *j = arg;
  hr_host_call call = j->call;
  call.scratch = j->scratch[worker];
  j->kernel->run(j->kernel, j->pass, &call, begin, end);
}

static void run_once(job *j) {
  for (j->pass = 0; j->pass < j->kernel->pass_count; ++j->pass) {
    const hr_host_pass *pass = &j->kernel->passes[j->pass];
    hr_parallel_for(pass->units, pass->grain, run_range, j);
  }
}

static void *halves(int64_t count, hr_dtype dtype) {
  uint16_t *x = hr_aligned_malloc((size_t)count * 2 + 64, 64);
  for (int64_t i = 0; i < count; ++i) {
    float value = (float)(i * 2654435761u % 1000) * 0.002f - 1;
    x[i] = dtype == HR_DTYPE_F16 ? hr_f32_to_f16(value) : hr_f32_to_bf16(value);
  }
  return x;
}

static void *memory(int64_t bytes) {
  float *x = hr_aligned_malloc((size_t)bytes + 64, 64);
  for (int64_t i = 0; i < bytes / 4; ++i) {
    x[i] = (float)(i * 2654435761u % 1000) * 0.002f - 1;
  }
  return x;
}

/* The kernel as compiled code; if there is none, prints the reason and returns NULL. */
static hr_host_kernel *compile(const char *name, const hr_kernel *kernel, int64_t *out_ns) {
  hr_text text = {0}, path = {0};
  hr_emission emission;
  hr_host_kernel *compiled = NULL;
  hr_library *library = NULL;
  int64_t begin = hr_clock_ns();
  hr_status status = hr_emit_prelude(&text);
  status = status != HR_OK ? status : hr_emit_kernel(kernel, NULL, "bench", &text, &emission);
  status = status != HR_OK ? status : hr__host_compile(NULL, text.data, text.length, NULL, &path);
  if (status == HR_OK) {
    status = hr__library_open(hr_text_chars(&path), &library);
    status = status != HR_OK ? status : hr__compiled_kernel_create(library, "bench", &emission, name, 0, &compiled);
    hr__host_compiler_remove(hr_text_chars(&path));
  }
  if (status != HR_OK) {
    printf("%-34s %s\n", name, hr_status_message(status));
    hr_status_free(status);
  }
  hr__library_release(library);
  hr_text_fini(&text);
  hr_text_fini(&path);
  *out_ns = hr_clock_ns() - begin;
  return compiled;
}

static job make_job(const hr_host_kernel *kernel, void **args, const hr_scalar *scalars) {
  job j = {kernel, 0, {args, scalars, hr_aligned_malloc(kernel->workspace_bytes + 64, 64), NULL}, {NULL}};
  for (int t = 0; t < threads; ++t) {
    j.scratch[t] = hr_aligned_malloc(kernel->scratch_bytes + 64, 64);
  }
  return j;
}

static void end_job(job *j) {
  for (int t = 0; t < threads; ++t) {
    hr_aligned_free(j->scratch[t]);
  }
  hr_aligned_free(j->call.workspace);
}

static int compare_times(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

enum { RUNS_MOST = 400 };

static void bench(const char *name, kernel_maker *m, void **args, const hr_scalar *scalars, double bytes,
                  double elements) {
  static int64_t times[2][RUNS_MOST];
  if (strstr(name, filter) == NULL) {
    return;
  }
  hr_host_kernel *kernels[2];
  int64_t compile_ns;
  hr_status status = hr_interp_create(make_end(m), &kernels[0]);
  if (status != HR_OK) {
    printf("%-34s %s\n", name, hr_status_message(status));
    hr_status_ignore(status);
    return;
  }
  kernels[1] = compile(name, make_end(m), &compile_ns);
  int sides = kernels[1] != NULL ? 2 : 1, runs = 0;
  job jobs[2] = {make_job(kernels[0], args, scalars)};
  if (sides == 2) {
    jobs[1] = make_job(kernels[1], args, scalars);
  }
  for (int64_t total = 0; runs < RUNS_MOST && total < 300000000; ++runs) {
    for (int side = 0; side < sides; ++side) {
      int64_t start = hr_clock_ns();
      run_once(&jobs[side]);
      times[side][runs] = hr_clock_ns() - start;
      total += times[side][runs];
    }
  }
  double median[2] = {0};
  for (int side = 0; side < sides; ++side) {
    qsort(times[side], (size_t)runs, sizeof **times, compare_times);
    median[side] = (double)times[side][runs / 2];
    end_job(&jobs[side]);
    kernels[side]->destroy(kernels[side]);
  }
  printf("%-34s interpreted %8.3f ms (best %8.3f, %5.1f GB/s)", name, median[0] * 1e-6, (double)times[0][0] * 1e-6,
         bytes / median[0]);
  if (sides == 2) {
    printf("  compiled %8.3f ms (best %8.3f, %5.1f GB/s, %6.3f ns/element)  %5.2f x  in %4.0f ms", median[1] * 1e-6,
           (double)times[1][0] * 1e-6, bytes / median[1], median[1] / elements, median[0] / median[1],
           (double)compile_ns * 1e-6);
  }
  printf("\n");
}

static const int64_t one[] = {1};

static void bench_add(int64_t n) {
  kernel_maker m;
  make_begin(&m, 1, &n, 0, 0);
  int x = make_arg(&m), y = make_arg(&m), z = make_arg(&m);
  int a = make_load(&m, 0, x, HR_DTYPE_F32, 0, one), b = make_load(&m, 0, y, HR_DTYPE_F32, 0, one);
  make_store(&m, 0, z, HR_DTYPE_F32, 0, one, make_op2(&m, 0, HR_OP_ADD, HR_CLASS_F32, a, b));
  void *args[] = {memory(4 * n), memory(4 * n), memory(4 * n)};
  char name[64];
  snprintf(name, sizeof name, "add %lld", (long long)n);
  bench(name, &m, args, NULL, 12.0 * (double)n, (double)n);
  for (int i = 0; i < 3; ++i) {
    hr_aligned_free(args[i]);
  }
}

static void bench_chain(int64_t n, hr_dtype dtype) {
  kernel_maker m;
  make_begin(&m, 1, &n, 0, 0);
  int x = make_arg(&m), y = make_arg(&m), z = make_arg(&m), half = make_scalar(&m), unit = make_scalar(&m);
  hr_class f = HR_CLASS_F32;
  int a = make_load(&m, 0, x, dtype, 0, one), b = make_load(&m, 0, y, dtype, 0, one);
#define R(v) (dtype == HR_DTYPE_F32 ? (v) : make_convert(&m, 0, (v), dtype))
  int r = R(make_op2(&m, 0, HR_OP_ADD, f, a, b));
  r = R(make_op2(&m, 0, HR_OP_MUL, f, r, half));
  r = R(make_op1(&m, 0, HR_OP_TANH, f, r));
  r = R(make_op2(&m, 0, HR_OP_SUB, f, r, b));
  r = R(make_op1(&m, 0, HR_OP_ABS, f, r));
  r = R(make_op2(&m, 0, HR_OP_MUL, f, r, a));
  r = R(make_op2(&m, 0, HR_OP_ADD, f, r, unit));
  r = R(make_op1(&m, 0, HR_OP_SQRT, f, r));
  r = R(make_op1(&m, 0, HR_OP_SIGMOID, f, r));
  make_store(&m, 0, z, dtype, 0, one, r);
  bool is_half = dtype != HR_DTYPE_F32;
  void *args[] = {is_half ? halves(n, dtype) : memory(4 * n), is_half ? halves(n, dtype) : memory(4 * n),
                  memory(4 * n)};
  hr_scalar scalars[] = {hr_scalar_f64(0.5), hr_scalar_f64(1)};
  char name[64];
  snprintf(name, sizeof name, "chain of 9 %s %lld", hr_dtype_name(dtype), (long long)n);
  bench(name, &m, args, scalars, 3.0 * (double)hr_dtype_size(dtype) * (double)n, (double)n);
  for (int i = 0; i < 3; ++i) {
    hr_aligned_free(args[i]);
  }
}

static void bench_softmax(int64_t rows, int64_t count) {
  kernel_maker m;
  int64_t dims[] = {rows, count}, strides[] = {count, 1};
  make_begin(&m, 2, dims, 2, 0);
  int x = make_arg(&m), y = make_arg(&m);
  int largest = make_reduce(&m, 0, HR_OP_AMAX, HR_CLASS_F32, make_load(&m, 0, x, HR_DTYPE_F32, 0, strides));
  int e = make_op2(&m, 1, HR_OP_SUB, HR_CLASS_F32, make_load(&m, 1, x, HR_DTYPE_F32, 0, strides), largest);
  e = make_op1(&m, 1, HR_OP_EXP, HR_CLASS_F32, e);
  int sum = make_reduce(&m, 1, HR_OP_SUM, HR_CLASS_F32, e);
  make_store(&m, 2, y, HR_DTYPE_F32, 0, strides, make_op2(&m, 2, HR_OP_DIV, HR_CLASS_F32, e, sum));
  void *args[] = {memory(4 * rows * count), memory(4 * rows * count)};
  char name[64];
  snprintf(name, sizeof name, "softmax %lld x %lld", (long long)rows, (long long)count);
  bench(name, &m, args, NULL, 8.0 * (double)(rows * count), (double)(rows * count));
  hr_aligned_free(args[0]);
  hr_aligned_free(args[1]);
}

static void bench_layer_norm(int64_t rows, int64_t count) {
  kernel_maker m;
  int64_t dims[] = {rows, count}, strides[] = {count, 1}, along[] = {0, 1};
  hr_class f = HR_CLASS_F32;
  make_begin(&m, 2, dims, 2, 0);
  int x = make_arg(&m), w = make_arg(&m), b = make_arg(&m), y = make_arg(&m), scale = make_scalar(&m),
      eps = make_scalar(&m);
  int mean = make_reduce(&m, 0, HR_OP_SUM, f, make_load(&m, 0, x, HR_DTYPE_F32, 0, strides));
  mean = make_op2(&m, 1, HR_OP_MUL, f, mean, scale);
  int c = make_op2(&m, 1, HR_OP_SUB, f, make_load(&m, 1, x, HR_DTYPE_F32, 0, strides), mean);
  int var = make_reduce(&m, 1, HR_OP_SUM, f, make_op1(&m, 1, HR_OP_SQUARE, f, c));
  var = make_op2(&m, 2, HR_OP_ADD, f, make_op2(&m, 2, HR_OP_MUL, f, var, scale), eps);
  int rstd = make_op1(&m, 2, HR_OP_RSQRT, f, var);
  int r = make_op2(&m, 2, HR_OP_SUB, f, make_load(&m, 2, x, HR_DTYPE_F32, 0, strides), mean);
  r = make_op2(&m, 2, HR_OP_MUL, f, r, rstd);
  r = make_op2(&m, 2, HR_OP_MUL, f, r, make_load(&m, 2, w, HR_DTYPE_F32, 0, along));
  r = make_op2(&m, 2, HR_OP_ADD, f, r, make_load(&m, 2, b, HR_DTYPE_F32, 0, along));
  make_store(&m, 2, y, HR_DTYPE_F32, 0, strides, r);
  void *args[] = {memory(4 * rows * count), memory(4 * count), memory(4 * count), memory(4 * rows * count)};
  hr_scalar scalars[] = {hr_scalar_f64(1.0 / (double)count), hr_scalar_f64(1e-5)};
  char name[64];
  snprintf(name, sizeof name, "layer norm %lld x %lld", (long long)rows, (long long)count);
  bench(name, &m, args, scalars, 8.0 * (double)(rows * count), (double)(rows * count));
  for (int i = 0; i < 4; ++i) {
    hr_aligned_free(args[i]);
  }
}

static void bench_sum(const char *what, int64_t rows, int64_t count, uint32_t mask) {
  kernel_maker m;
  int64_t dims[] = {rows, count}, strides[] = {count, 1}, out[] = {mask == 2, mask == 1};
  make_begin(&m, 2, dims, mask, 0);
  int x = make_arg(&m), y = make_arg(&m);
  int sum = make_reduce(&m, 0, HR_OP_SUM, HR_CLASS_F32, make_load(&m, 0, x, HR_DTYPE_F32, 0, strides));
  make_store(&m, 1, y, HR_DTYPE_F32, 0, out, sum);
  void *args[] = {memory(4 * rows * count), memory(4 * (rows + count))};
  char name[64];
  snprintf(name, sizeof name, "%s %lld x %lld", what, (long long)rows, (long long)count);
  bench(name, &m, args, NULL, 4.0 * (double)(rows * count), (double)(rows * count));
  hr_aligned_free(args[0]);
  hr_aligned_free(args[1]);
}

static void bench_stats(int64_t n, int64_t c, int64_t w) { /* sum and sum of squares over n and w: batch norm */
  kernel_maker m;
  int64_t dims[] = {n, c, w}, strides[] = {c * w, w, 1}, out[] = {0, 1, 0};
  make_begin(&m, 3, dims, 5, 0);
  int x = make_arg(&m), y = make_arg(&m), z = make_arg(&m);
  int v = make_load(&m, 0, x, HR_DTYPE_F32, 0, strides);
  int s = make_reduce(&m, 0, HR_OP_SUM, HR_CLASS_F32, v);
  int q = make_reduce(&m, 0, HR_OP_SUM, HR_CLASS_F32, make_op1(&m, 0, HR_OP_SQUARE, HR_CLASS_F32, v));
  make_store(&m, 1, y, HR_DTYPE_F32, 0, out, s);
  make_store(&m, 1, z, HR_DTYPE_F32, 0, out, q);
  void *args[] = {memory(4 * n * c * w), memory(4 * c), memory(4 * c)};
  char name[64];
  snprintf(name, sizeof name, "channel stats %lld x %lld x %lld", (long long)n, (long long)c, (long long)w);
  bench(name, &m, args, NULL, 4.0 * (double)(n * c * w), (double)(n * c * w));
  for (int i = 0; i < 3; ++i) {
    hr_aligned_free(args[i]);
  }
}

static void bench_bias(int64_t n, int64_t c, int64_t w) { /* relu(x * scale[c] + bias[c]) */
  kernel_maker m;
  int64_t dims[] = {n, c, w}, strides[] = {c * w, w, 1}, along[] = {0, 1, 0};
  make_begin(&m, 3, dims, 0, 0);
  int x = make_arg(&m), s = make_arg(&m), b = make_arg(&m), y = make_arg(&m);
  int r = make_load(&m, 0, x, HR_DTYPE_F32, 0, strides);
  r = make_op2(&m, 0, HR_OP_MUL, HR_CLASS_F32, r, make_load(&m, 0, s, HR_DTYPE_F32, 0, along));
  r = make_op2(&m, 0, HR_OP_ADD, HR_CLASS_F32, r, make_load(&m, 0, b, HR_DTYPE_F32, 0, along));
  make_store(&m, 0, y, HR_DTYPE_F32, 0, strides, make_op1(&m, 0, HR_OP_RELU, HR_CLASS_F32, r));
  void *args[] = {memory(4 * n * c * w), memory(4 * c), memory(4 * c), memory(4 * n * c * w)};
  char name[64];
  snprintf(name, sizeof name, "scale, bias, relu %lld x %lld x %lld", (long long)n, (long long)c, (long long)w);
  bench(name, &m, args, NULL, 8.0 * (double)(n * c * w), (double)(n * c * w));
  for (int i = 0; i < 4; ++i) {
    hr_aligned_free(args[i]);
  }
}

static void bench_max_pool(int64_t planes, int64_t h, int64_t k, int64_t stride, int64_t pad, bool with_index) {
  kernel_maker m;
  int64_t o = (h + 2 * pad - k) / stride + 1, dims[] = {planes, o, o, k, k}, out[] = {o * o, o, 1, 0, 0};
  int64_t in[] = {h * h, stride * h, stride, h, 1};
  make_begin(&m, 5, dims, 3u << 3, 0);
  int x = make_arg(&m), y = make_arg(&m), z = with_index ? make_arg(&m) : 0, low = make_scalar(&m);
  int v = make_load(&m, 0, x, HR_DTYPE_F32, -pad * h - pad, in);
  if (pad > 0) {
    make_bound(&m, -pad, (int64_t[]){0, stride, 0, 1, 0}, h);
    make_bound(&m, -pad, (int64_t[]){0, 0, stride, 0, 1}, h);
    m.accesses[m.kernel.access_count - 1].fill = -1 - low;
  }
  make_store(&m, 1, y, HR_DTYPE_F32, 0, out, make_reduce(&m, 0, HR_OP_AMAX, HR_CLASS_F32, v));
  if (with_index) {
    int at = make_index(&m, 0, -pad * h - pad, (int64_t[]){0, stride * h, stride, h, 1});
    make_store(&m, 1, z, HR_DTYPE_I64, 0, out, make_argreduce(&m, 0, HR_OP_ARGMAX, HR_CLASS_F32, v, at));
  }
  void *args[] = {memory(4 * planes * h * h), memory(4 * planes * o * o), memory(8 * planes * o * o)};
  hr_scalar scalars[] = {hr_scalar_f64(-1e30)};
  char name[64];
  snprintf(name, sizeof name, "max pool%s %lld x %lld^2 k%lld s%lld p%lld", with_index ? " + index" : "",
           (long long)planes, (long long)h, (long long)k, (long long)stride, (long long)pad);
  bench(name, &m, args, scalars, 4.0 * (double)(planes * (h * h + o * o)), (double)(planes * h * h));
  for (int i = 0; i < 3; ++i) {
    hr_aligned_free(args[i]);
  }
}

static void bench_adam(int64_t n) {
  kernel_maker m;
  hr_class f = HR_CLASS_F32;
  make_begin(&m, 1, &n, 0, 0);
  int p = make_arg(&m), g = make_arg(&m), a = make_arg(&m), v = make_arg(&m);
  int b1 = make_scalar(&m), b2 = make_scalar(&m), rest = make_scalar(&m), lr = make_scalar(&m), c2 = make_scalar(&m),
      eps = make_scalar(&m);
  int grad = make_load(&m, 0, g, HR_DTYPE_F32, 0, one), mean = make_load(&m, 0, a, HR_DTYPE_F32, 0, one);
  int square = make_load(&m, 0, v, HR_DTYPE_F32, 0, one), param = make_load(&m, 0, p, HR_DTYPE_F32, 0, one);
  mean = make_op(&m, 0, HR_OP_LERP, f, 3, (int[]){mean, grad, b1});
  square = make_op2(&m, 0, HR_OP_MUL, f, square, b2);
  square = make_op(&m, 0, HR_OP_ADDCMUL, f, 4, (int[]){square, grad, grad, rest});
  int d = make_op1(&m, 0, HR_OP_SQRT, f, square);
  d = make_op2(&m, 0, HR_OP_DIV, f, d, c2);
  d = make_op2(&m, 0, HR_OP_ADD, f, d, eps);
  param = make_op(&m, 0, HR_OP_ADDCDIV, f, 4, (int[]){param, mean, d, lr});
  make_store(&m, 0, a, HR_DTYPE_F32, 0, one, mean);
  make_store(&m, 0, v, HR_DTYPE_F32, 0, one, square);
  make_store(&m, 0, p, HR_DTYPE_F32, 0, one, param);
  void *args[] = {memory(4 * n), memory(4 * n), memory(4 * n), memory(4 * n)};
  memset(args[3], 0, (size_t)(4 * n));
  hr_scalar scalars[] = {hr_scalar_f64(0.1),   hr_scalar_f64(0.999), hr_scalar_f64(0.001),
                         hr_scalar_f64(-1e-9), hr_scalar_f64(0.9),   hr_scalar_f64(1e-8)};
  char name[64];
  snprintf(name, sizeof name, "adam %lld", (long long)n);
  bench(name, &m, args, scalars, 28.0 * (double)n, (double)n);
  for (int i = 0; i < 4; ++i) {
    hr_aligned_free(args[i]);
  }
}

static void bench_transpose(int64_t rows, int64_t cols) {
  kernel_maker m;
  int64_t dims[] = {rows, cols};
  make_begin(&m, 2, dims, 0, 0);
  int x = make_arg(&m), y = make_arg(&m);
  make_store(&m, 0, y, HR_DTYPE_F32, 0, (int64_t[]){cols, 1},
             make_load(&m, 0, x, HR_DTYPE_F32, 0, (int64_t[]){1, rows}));
  void *args[] = {memory(4 * rows * cols), memory(4 * rows * cols)};
  char name[64];
  snprintf(name, sizeof name, "transpose %lld x %lld", (long long)rows, (long long)cols);
  bench(name, &m, args, NULL, 8.0 * (double)(rows * cols), (double)(rows * cols));
  hr_aligned_free(args[0]);
  hr_aligned_free(args[1]);
}

static void bench_embedding_backward(int64_t vocabulary, int64_t tokens, int64_t width) {
  kernel_maker m;
  int64_t dims[] = {tokens, width};
  make_begin(&m, 2, dims, 0, 1);
  int dy = make_arg(&m), idx = make_arg(&m), dw = make_arg(&m);
  int id = make_load(&m, 0, idx, HR_DTYPE_I64, 0, (int64_t[]){1, 0});
  int v = make_load(&m, 0, dy, HR_DTYPE_F32, 0, (int64_t[]){width, 1});
  make_store(&m, 0, dw, HR_DTYPE_F32, 0, (int64_t[]){0, 1}, v)->mode = HR_STORE_ADD;
  make_term(&m, id, width, vocabulary);
  void *args[] = {memory(4 * tokens * width), memory(8 * tokens), memory(4 * vocabulary * width)};
  for (int64_t t = 0; t < tokens; ++t) {
    ((int64_t *)args[1])[t] = t * 7919 % vocabulary;
  }
  char name[64];
  snprintf(name, sizeof name, "embedding backward %lld x %lld", (long long)tokens, (long long)width);
  bench(name, &m, args, NULL, 12.0 * (double)(tokens * width), (double)(tokens * width));
  for (int i = 0; i < 3; ++i) {
    hr_aligned_free(args[i]);
  }
}

static void bench_pool_backward(int64_t planes, int64_t inputs, int64_t outputs) {
  kernel_maker m;
  int64_t dims[] = {planes, outputs}, strides[] = {outputs, 1};
  make_begin(&m, 2, dims, 0, 2);
  int dy = make_arg(&m), idx = make_arg(&m), dx = make_arg(&m);
  int id = make_load(&m, 0, idx, HR_DTYPE_I64, 0, strides), v = make_load(&m, 0, dy, HR_DTYPE_F32, 0, strides);
  make_store(&m, 0, dx, HR_DTYPE_F32, 0, (int64_t[]){inputs, 0}, v)->mode = HR_STORE_ADD;
  make_term(&m, id, 1, inputs);
  void *args[] = {memory(4 * planes * outputs), memory(8 * planes * outputs), memory(4 * planes * inputs)};
  for (int64_t i = 0; i < planes * outputs; ++i) {
    ((int64_t *)args[1])[i] = i % outputs * inputs / outputs;
  }
  char name[64];
  snprintf(name, sizeof name, "max pool backward %lld x %lld", (long long)planes, (long long)outputs);
  bench(name, &m, args, NULL, 4.0 * (double)(planes * (2 * inputs + 3 * outputs)), (double)(planes * outputs));
  for (int i = 0; i < 3; ++i) {
    hr_aligned_free(args[i]);
  }
}

int main(int argc, char **argv) {
  threads = argc > 1 ? atoi(argv[1]) : hr_thread_count();
  threads = threads < 1 ? 1 : threads > 64 ? 64 : threads;
  filter = argc > 2 ? argv[2] : "";
  hr_thread_count_set(threads);
  bench_add(1 << 22);
  bench_add(64);
  bench_add(10000);
  bench_chain(1 << 22, HR_DTYPE_F32);
  bench_chain(1 << 18, HR_DTYPE_F32);
  bench_chain(1 << 22, HR_DTYPE_BF16);
  bench_chain(1 << 22, HR_DTYPE_F16);
  bench_softmax(512, 1000);
  bench_softmax(4096, 100);
  bench_softmax(100000, 10);
  bench_softmax(128, 50257);
  bench_layer_norm(2048, 768);
  bench_sum("row sum", 4096, 1000, 2);
  bench_sum("row sum", 40000, 100, 2);
  bench_sum("full sum", 1, 1 << 22, 3);
  bench_sum("column sum", 4096, 1000, 1);
  bench_sum("column sum", 100000, 3, 1);
  bench_sum("column sum", 400000, 32, 1);
  bench_stats(64, 32, 784);
  bench_stats(64, 256, 49);
  bench_bias(64, 64, 784);
  bench_bias(64, 512, 49);
  bench_bias(4096, 10, 1);
  bench_max_pool(512 * 20, 28, 2, 2, 0, false);
  bench_max_pool(512 * 20, 28, 2, 2, 0, true);
  bench_max_pool(64 * 64, 56, 3, 2, 1, false);
  bench_max_pool(64 * 64, 56, 3, 2, 1, true);
  bench_pool_backward(512 * 20, 784, 196);
  bench_adam(1 << 21);
  bench_transpose(2048, 2048);
  bench_embedding_backward(50257, 1024, 768);
  return 0;
}
