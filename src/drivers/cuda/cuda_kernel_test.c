/* Compilation by NVRTC, which needs no GPU, and the kernels on a GPU; skipped if either is missing. The last test
 * leaves CUDA unusable for the process, as any kernel with an illegal address does.
 */
#include "base/thread.h"
#include "cuda_stand_in.h"
#include "drivers/cuda/nvrtc.h"

/* ---- NVRTC, which needs no GPU ---- */

static const char kernel_text[] =
    "struct parameters { void *workspace; void *args[2]; struct { long long dtype; double f[2]; } scalars[2]; };\n"
    "extern \"C\" __global__ void scale(parameters p) {\n"
    "  long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;\n"
    "  long long n = *(const long long *)&p.scalars[1].f[0];\n"
    "  if (i < n) ((float *)p.args[1])[i] = ((const float *)p.args[0])[i] * (float)p.scalars[0].f[0] + 1.0f;\n"
    "}\n"
    "extern \"C\" __global__ void add_workspace(parameters p) {\n"
    "  long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;\n"
    "  if (i < *(const long long *)&p.scalars[1].f[0]) ((float *)p.args[1])[i] += *(const float *)p.workspace;\n"
    "}\n"
    "extern \"C\" __global__ void stray(parameters p) {\n"
    "  ((volatile float *)p.args[0])[threadIdx.x] = 1.0f;\n"
    "}\n";

static const char wrong_text[] = "extern \"C\" __global__ void wrong(float *x) {\n  x[0] = undeclared_name;\n}\n";

/* Compiles the text; skips the test with the reason if NVRTC is missing. */
static void compile_or_skip(const char *text, hr_text *image) {
  hr_status status = hr__nvrtc_compile(90, text, strlen(text), image);
  if (hr_status_code_of(status) == HR_STATUS_NOT_FOUND) {
    HR_ASSERT(strstr(hr_status_message(status), "HEADRACE_CUDA_LIBS") != NULL);
    hr_status_free(status);
    HR_SKIP("no NVRTC");
  }
  HR_ASSERT_OK(status);
}

HR_TEST(texts_compile_and_mistakes_are_shown) {
  hr_text image = {0}, wrong = {0};
  compile_or_skip(kernel_text, &image);
  HR_ASSERT(image.length > 64 && memcmp(image.data, "\177ELF", 4) == 0);
  HR_ASSERT_ERROR(hr__nvrtc_compile(90, wrong_text, strlen(wrong_text), &wrong), HR_STATUS_INTERNAL, "undeclared_name");
  HR_ASSERT_ERROR(hr__nvrtc_compile(7, kernel_text, strlen(kernel_text), &wrong), HR_STATUS_INTERNAL, "NVRTC: ");
  HR_ASSERT_EQ(wrong.length, 0);
  hr_text_fini(&image);
  hr_text_fini(&wrong);
}

typedef struct compilation {
  hr_status status;
  hr_text image;
  bool is_wrong;
} compilation;

static void compile_one(void *arg) {
  compilation *c = arg;
  const char *text = c->is_wrong ? wrong_text : kernel_text;
  c->status = hr__nvrtc_compile(90, text, strlen(text), &c->image);
}

HR_TEST(several_threads_compile_at_once) {
  enum { THREADS = 6 };
  compilation compilations[THREADS] = {0};
  hr_thread threads[THREADS];
  hr_text first = {0};
  compile_or_skip(kernel_text, &first);
  for (int i = 0; i < THREADS; ++i) {
    compilations[i].is_wrong = i % 3 == 2;
    HR_ASSERT_OK(hr_thread_start("compile", compile_one, &compilations[i], &threads[i]));
  }
  for (int i = 0; i < THREADS; ++i) {
    hr_thread_join(&threads[i]);
  }
  for (int i = 0; i < THREADS; ++i) {
    compilation *c = &compilations[i];
    if (c->is_wrong) {
      HR_ASSERT_ERROR(c->status, HR_STATUS_INTERNAL, "undeclared_name");
    } else {
      HR_ASSERT_OK(c->status);
      HR_ASSERT_EQ(c->image.length, first.length);
    }
    hr_text_fini(&c->image);
  }
  hr_text_fini(&first);
}

HR_TEST(a_text_without_memory_is_refused) {
  hr_text image = {0};
  compile_or_skip(kernel_text, &image);
  hr_text_clear(&image);
  hr__allocator_fail_after(0);
  hr_status status = hr__nvrtc_compile(90, kernel_text, strlen(kernel_text), &image);
  hr__allocator_fail_after(-1);
  HR_ASSERT_STATUS(status, HR_STATUS_RESOURCE_EXHAUSTED);
  hr_text_fini(&image);
}

/* ---- on a GPU ---- */

/* Compiles the text for the device and loads it. */
static void *load_kernels(void *impl, int count, const char *const *names, void **out_functions) {
  hr_text image = {0};
  void *module;
  HR_ASSERT_OK(DRIVER->compile(impl, kernel_text, strlen(kernel_text), &image));
  HR_ASSERT_OK(DRIVER->load(impl, image.data, image.length, count, names, &module, out_functions));
  hr_text_fini(&image);
  return module;
}

HR_TEST(a_gpu_runs_kernels_pass_by_pass) {
  enum { COUNT = 100003, THREADS = 256 };
  static float x[COUNT], y[COUNT];
  static const char *const names[] = {"scale", "add_workspace"};
  void *impl = open_gpu(), *functions[2], *args[2], *workspace, *events[2];
  void *module = load_kernels(impl, 2, names, functions);
  int64_t blocks = (COUNT + THREADS - 1) / THREADS, ns = -1;
  float extra = 0.25f;
  for (int i = 0; i < COUNT; ++i) {
    x[i] = (float)i / 3;
  }
  HR_ASSERT_OK(DRIVER->allocate(impl, sizeof x, &args[0]));
  HR_ASSERT_OK(DRIVER->allocate(impl, sizeof y, &args[1]));
  HR_ASSERT_OK(DRIVER->allocate(impl, 64, &workspace));
  HR_ASSERT_OK(DRIVER->event_create(impl, &events[0]));
  HR_ASSERT_OK(DRIVER->event_create(impl, &events[1]));
  HR_ASSERT_OK(DRIVER->copy_in(impl, args[0], x, sizeof x));
  HR_ASSERT_OK(DRIVER->copy_in(impl, workspace, &extra, sizeof extra));
  hr_device_kernel kernel = {.base = {.name = "scale and add", .pass_count = 2},
                             .functions = {functions[0], functions[1]},
                             .blocks = {blocks, blocks},
                             .threads = {THREADS, THREADS},
                             .arg_count = 2,
                             .scalar_count = 2};
  hr_scalar scalars[2] = {hr_scalar_f64(1.1), hr_scalar_i64(COUNT)};
  hr_host_call call = {.args = args, .scalars = scalars, .workspace = workspace};
  HR_ASSERT_OK(DRIVER->event_record(impl, events[0]));
  HR_ASSERT_OK(DRIVER->launch(impl, 1, &(hr_host_launch){&kernel.base, call}));
  HR_ASSERT_OK(DRIVER->event_record(impl, events[1]));
  HR_ASSERT_OK(DRIVER->copy_out(impl, y, args[1], sizeof y));
  HR_ASSERT_OK(DRIVER->flush(impl));
  for (int i = 0; i < COUNT; ++i) { /* to the bit: nothing is contracted */
    volatile float product = x[i] * (float)1.1, sum = product + 1.0f, expected = sum + extra;
    HR_ASSERT(y[i] == expected);
  }
  HR_ASSERT_OK(DRIVER->event_elapsed(impl, events[0], events[1], &ns));
  HR_ASSERT(ns > 0 && ns < 1000000000);
  for (int i = 0; i < 2; ++i) {
    DRIVER->event_destroy(impl, events[i]);
    DRIVER->free(impl, args[i], sizeof x);
  }
  DRIVER->free(impl, workspace, 64);
  DRIVER->unload(impl, module);
  DRIVER->close(impl);
}

/* Twenty kernels at once, each on its own tensor. All of them read the result of a kernel before them; a kernel after
 * them reads the last one's result. */
static void check_lanes(void *impl, const hr_device_kernel *kernel, void *workspace) {
  enum { COUNT = 1000, BYTES = COUNT * sizeof(float), MANY = 20 };
  static float x[COUNT], y[COUNT];
  void *tensors[MANY + 3], *args[MANY + 2][2], *queue, *graph;
  hr_host_launch launches[MANY + 2];
  hr_scalar scalars[2] = {hr_scalar_f64(2), hr_scalar_i64(COUNT)};
  float none = 0;
  for (int i = 0; i < MANY + 3; ++i) {
    HR_ASSERT_OK(DRIVER->allocate(impl, BYTES, &tensors[i]));
  }
  for (int i = 0; i < MANY + 2; ++i) {
    args[i][0] = tensors[i == 0 ? 0 : i <= MANY ? 1 : MANY + 1], args[i][1] = tensors[i + 1];
    launches[i] = (hr_host_launch){&kernel->base, {.args = args[i], .scalars = scalars, .workspace = workspace}};
  }
  HR_ASSERT_OK(DRIVER->copy_in(impl, workspace, &none, sizeof none));
  HR_ASSERT_OK(DRIVER->capture_begin(impl, &queue));
  HR_ASSERT_OK(DRIVER->launch(impl, 1, &launches[0]));
  HR_ASSERT_OK(DRIVER->launch(impl, MANY, &launches[1]));
  HR_ASSERT_OK(DRIVER->launch(impl, 1, &launches[MANY + 1]));
  HR_ASSERT_OK(DRIVER->capture_end(impl, &graph));
  for (int run = 0; run < 3; ++run) {
    for (int i = 0; i < COUNT; ++i) {
      x[i] = (float)(i + run);
    }
    HR_ASSERT_OK(DRIVER->copy_in(impl, tensors[0], x, BYTES));
    HR_ASSERT_OK(DRIVER->graph_launch(impl, graph));
    for (int t = 1; t < MANY + 3; ++t) {
      HR_ASSERT_OK(DRIVER->copy_out(impl, y, tensors[t], BYTES));
      for (int i = 0; i < COUNT; ++i) {
        float once = x[i] * 2 + 1, twice = once * 2 + 1;
        HR_ASSERT(y[i] == (t == 1 ? once : t < MANY + 2 ? twice : twice * 2 + 1));
      }
    }
  }
  DRIVER->graph_destroy(impl, graph);
  for (int i = 0; i < MANY + 3; ++i) {
    DRIVER->free(impl, tensors[i], BYTES);
  }
}

/* y = x * a + 1, then y += workspace, captured; replayed with another a, another y, and other contents of the
 * workspace.
 */
HR_TEST(a_gpu_replays_graphs) {
  enum { COUNT = 1000, BYTES = COUNT * sizeof(float) };
  static const char *const names[] = {"scale", "add_workspace"};
  static float x[COUNT], y[COUNT];
  void *impl = open_gpu(), *functions[2], *args[3], *workspace, *queue, *graph;
  void *module = load_kernels(impl, 2, names, functions);
  hr_device_kernel kernel = {.base = {.name = "scale and add", .pass_count = 3},
                             .functions = {functions[0], NULL, functions[1]},
                             .blocks = {4, 0, 4},
                             .threads = {256, 0, 256},
                             .arg_count = 2,
                             .scalar_count = 2};
  for (int i = 0; i < COUNT; ++i) {
    x[i] = (float)i;
  }
  for (int i = 0; i < 3; ++i) {
    HR_ASSERT_OK(DRIVER->allocate(impl, BYTES, &args[i]));
    HR_ASSERT_OK(DRIVER->copy_in(impl, args[i], x, BYTES));
  }
  HR_ASSERT_OK(DRIVER->allocate(impl, 64, &workspace));
  hr_scalar scalars[2] = {hr_scalar_f64(2), hr_scalar_i64(COUNT)};
  hr_host_launch launch = {&kernel.base, {.args = args, .scalars = scalars, .workspace = workspace}};
  HR_ASSERT_OK(DRIVER->capture_begin(impl, &queue));
  HR_ASSERT_OK(DRIVER->launch(impl, 1, &launch));
  HR_ASSERT_OK(DRIVER->launch(impl, 1, &launch));
  HR_ASSERT_OK(DRIVER->capture_end(impl, &graph));
  HR_ASSERT_OK(DRIVER->copy_out(impl, y, args[1], BYTES));
  HR_ASSERT(memcmp(x, y, BYTES) == 0); /* nothing has run */
  for (int run = 0; run < 4; ++run) {
    float extra = (float)run, factor = run < 2 ? 2 : 3;
    HR_ASSERT_OK(DRIVER->copy_in(impl, workspace, &extra, sizeof extra));
    if (run == 2) {
      void *others[2] = {args[0], args[2]};
      scalars[0] = hr_scalar_f64(3);
      launch.call.args = others;
      HR_ASSERT_OK(DRIVER->graph_update(impl, graph, 1, &launch));
    }
    HR_ASSERT_OK(DRIVER->graph_launch(impl, graph));
    HR_ASSERT_OK(DRIVER->copy_out(impl, y, args[run < 2 ? 1 : 2], BYTES));
    for (int i = 0; i < COUNT; ++i) {
      HR_ASSERT(y[i] == (float)i * factor + 1 + extra);
    }
  }
  HR_ASSERT_OK(DRIVER->graph_launch(impl, graph));
  DRIVER->graph_destroy(impl, graph); /* while it may be in flight */
  check_lanes(impl, &kernel, workspace);
  for (int i = 0; i < 3; ++i) {
    DRIVER->free(impl, args[i], BYTES);
  }
  DRIVER->free(impl, workspace, 64);
  DRIVER->unload(impl, module);
  DRIVER->close(impl);
}

/* Runs last: CUDA returns only this error to the process afterwards. */
HR_TEST(a_stray_kernel_is_an_error_and_nothing_hangs) {
  static const char *const names[] = {"stray"};
  void *impl = open_gpu(), *function, *args[2] = {(void *)64, NULL}, *block;
  void *module = load_kernels(impl, 1, names, &function);
  hr_scalar scalars[2] = {hr_scalar_f64(0), hr_scalar_i64(0)};
  hr_device_kernel kernel = {.base = {.name = "stray", .pass_count = 1},
                             .functions = {function},
                             .blocks = {1},
                             .threads = {32},
                             .arg_count = 2,
                             .scalar_count = 2};
  char bytes[64] = {0};
  HR_ASSERT_OK(DRIVER->allocate(impl, 64, &block));
  HR_ASSERT_OK(
      DRIVER->launch(impl, 1, &(hr_host_launch){&kernel.base, {.args = args, .scalars = scalars, .workspace = block}}));
  HR_ASSERT_ERROR(DRIVER->flush(impl), HR_STATUS_INTERNAL, "CUDA_ERROR_ILLEGAL_ADDRESS");
  HR_ASSERT_ERROR(DRIVER->flush(impl), HR_STATUS_INTERNAL, "CUDA_ERROR_ILLEGAL_ADDRESS");
  HR_ASSERT_ERROR(DRIVER->copy_in(impl, block, bytes, 64), HR_STATUS_INTERNAL, "CUDA_ERROR_ILLEGAL_ADDRESS");
  HR_ASSERT_ERROR(DRIVER->copy_out(impl, bytes, block, 64), HR_STATUS_INTERNAL, "CUDA_ERROR_ILLEGAL_ADDRESS");
  DRIVER->free(impl, block, 64);
  DRIVER->unload(impl, module);
  DRIVER->close(impl);
}
