/* Kernels that are compiled for a model of a GPU (base/gpu_model.h), carried by a package, and found on such a GPU: on
 * the stand-in for libcuda, with a stub in place of NVRTC. */
#include <dlfcn.h>
#include <sys/stat.h>

#include "base/context.h"
#include "base/env.h"
#include "base/gpu_model.h"
#include "cache_folder.h"
#include "cuda_stand_in.h"
#include "headrace/kernel_files.h"
#include "headrace/package.h"
#include "headrace/session.h"

/* An element-wise kernel, a sum of all and a softmax: no library's. */
static const char text[] = "graph 1\n"
                           "input %x f32[n,64]\n"
                           "%s = sum(%x)\n"
                           "%e = exp(%x)\n"
                           "%d = divide(%e, %s)\n"
                           "%p = softmax(%d, axis=1)\n"
                           "output p = %p\n";

static int *compilations;

static void use_stub(void) {
  char path[] = HR_TEST_NVRTC;
  *strrchr(path, '/') = '\0';
  setenv("HEADRACE_CUDA_LIBS", path, 1);
  hr__env_reload();
  void *stub = dlopen(HR_TEST_NVRTC, RTLD_NOW);
  HR_ASSERT_NOT_NULL(stub);
  compilations = dlsym(stub, "nvrtcStubCompilations");
  HR_ASSERT_NOT_NULL(compilations);
}

/* Devices stay open as long as their context: each device of a test has one of its own. */
typedef struct place {
  hr_context *context, *before;
} place;

static place enter(const hr__cuda_table *table) {
  place p;
  use_stub();
  hr__cuda_replace(table, table != NULL);
  HR_ASSERT_OK(hr__context_create(&p.context));
  p.before = hr__context_enter(p.context);
  return p;
}

static void leave(place *p) {
  hr__context_enter(p->before);
  hr__context_destroy(p->context);
  hr__gpu_model_clear();
  hr__cuda_replace(NULL, 0);
}

/* In a model of a GPU. */
static place enter_model(int architecture, int processors) {
  HR_ASSERT_OK(hr__gpu_model_set(architecture, processors));
  return enter(NULL);
}

static hr_graph *parse(void) {
  hr_graph *graph = NULL;
  HR_ASSERT_OK(hr_graph_parse(text, strlen(text), NULL, &graph));
  return graph;
}

/* f32[rows, 64] without values. */
static hr_tensor new_rows(hr_device *device, int64_t rows) {
  hr_tensor x = {.dtype = HR_DTYPE_F32, .rank = 2, .dims = {rows, 64}, .strides = {64, 1}};
  HR_ASSERT_OK(hr_buffer_create(device, (size_t)rows * 64 * sizeof(float), &x.buffer));
  return x;
}

/* Runs the graph twice on "cuda", whatever it is; returns the number of compiled texts. */
static int run_graph(const hr_graph *graph, int64_t rows) {
  hr_device *device = NULL;
  hr_stream *stream = NULL;
  hr_session *session = NULL;
  *compilations = 0;
  HR_ASSERT_OK(hr_device_open("cuda", &device));
  HR_ASSERT_OK(hr_stream_create(device, &stream));
  HR_ASSERT_OK(hr_session_create(stream, graph, NULL, &session));
  for (int i = 0; i < 2; ++i) {
    hr_tensor x = new_rows(device, rows), p;
    const hr_tensor *inputs[1] = {&x};
    HR_ASSERT_OK(hr_session_run(session, 1, inputs, 1, &p));
    HR_ASSERT_OK(hr_stream_synchronize(stream));
    hr_tensor_release(&x);
    hr_tensor_release(&p);
  }
  hr_session_release(session);
  hr_stream_release(stream);
  hr_device_release(device);
  return *compilations;
}

static void check_model(void) {
  hr_device *device = NULL;
  hr_device_info info;
  HR_ASSERT_OK(hr_device_open("cuda", &device));
  hr_device_describe(device, &info);
  HR_ASSERT_STR_EQ(info.description, "model of a GPU, 80 GiB, compute capability 9.0");
  HR_ASSERT_EQ(info.workers, 132);
  hr_device_release(device);
}

/* Writes a package with kernels for a model; returns their number. */
static int write_package(char *path) {
  hr_graph *graph = parse();
  make_root(NULL);
  place p = enter_model(90, 0);
  check_model();
  int compiled = run_graph(graph, 100);
  HR_ASSERT(mkstemp(path) >= 0);
  HR_ASSERT_OK(hr_package_write_with(graph, path, &(hr_package_options){.has_kernels = true}));
  HR_ASSERT_EQ(chmod(path, 0600), 0);
  leave(&p);
  hr_graph_release(graph);
  remove_root();
  return compiled;
}

HR_TEST(a_gpu_finds_the_kernels_that_were_compiled_for_its_model) {
  char path[] = "/tmp/gpu_model.XXXXXX";
  int count = 0, compiled = write_package(path);
  hr_package *package = NULL;
  hr_graph *graph = NULL;
  HR_ASSERT(compiled > 1);
  make_root(NULL);
  place p = enter(&fake);
  HR_ASSERT_OK(hr_package_open(path, &package));
  HR_ASSERT_OK(hr_package_graph(package, &graph));
  HR_ASSERT_OK(hr_package_trust(package, &count));
  HR_ASSERT_EQ(count, compiled);
  HR_ASSERT_EQ(run_graph(graph, 100), 0);
  HR_ASSERT(fake_launches >= 2 * compiled);
  hr_package_close(package);
  hr_graph_release(graph);
  leave(&p);
  remove(path);
  remove_root();
}

static int compile_for(int architecture, int processors) {
  hr_graph *graph = parse();
  place p = enter_model(architecture, processors);
  HR_ASSERT(processors == 0 || hr__gpu_model()->processors == processors);
  int compiled = run_graph(graph, 100);
  leave(&p);
  hr_graph_release(graph);
  return compiled;
}

/* Another architecture has another identity, and looks none of them up. */
HR_TEST(kernels_belong_to_an_architecture) {
  make_root(NULL);
  HR_ASSERT(compile_for(80, 0) > 1);
  HR_ASSERT_EQ(compile_for(80, 0), 0);
  HR_ASSERT_EQ(compile_for(80, 100), 0);
  HR_ASSERT(compile_for(86, 46) > 1);
  remove_root();
}

HR_TEST(a_model_computes_nothing_and_gives_zeros) {
  hr_device *device = NULL;
  hr_stream *stream = NULL;
  float read[64] = {7, 7};
  place p = enter_model(90, 0);
  HR_ASSERT_OK(hr_device_open("cuda", &device));
  HR_ASSERT_OK(hr_stream_create(device, &stream));
  hr_tensor x = new_rows(device, 1);
  hr_view view = hr_tensor_view(&x);
  HR_ASSERT_OK(hr_stream_read(stream, &view, read));
  HR_ASSERT(read[0] == 0 && read[1] == 0);
  hr_tensor_release(&x);
  hr_stream_release(stream);
  hr_device_release(device);
  leave(&p);
}

HR_TEST(unknown_architectures_are_refused) {
  HR_ASSERT_ERROR(hr__gpu_model_set(91, 0), HR_STATUS_INVALID_ARGUMENT, "sm_91: expected sm_70");
  HR_ASSERT_NULL(hr__gpu_model());
}
