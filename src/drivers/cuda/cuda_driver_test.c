/* What is particular to the CUDA driver. What every driver has to do is in tests/c/driver_conformance_test.c.
 *
 * The first half needs no GPU: a table of functions stands in for libcuda, whose "device" memory is the host's, and which is
 * stricter than CUDA about alignment and about the current context. It is as late as it may be: copies and sets run when
 * somebody waits for them, so that memory that was given back too early shows. The second half runs on a GPU, and is skipped where
 * there is none; its last test leaves CUDA unusable for the process, as a kernel that went astray does.
 */
#include "hr_test.h"

#include "base/thread.h"
#include "base/vector.h"
#include "drivers/cuda/cuda_api.h"
#include "drivers/cuda/cuda_driver.h"
#include "drivers/cuda/nvrtc.h"

#define DRIVER (&hr_cuda_driver)

/* ---- the stand-in ---- */

static _Thread_local int fake_depth; /* contexts on this thread's stack */
static int fake_error;               /* what all functions of the device give, once it is not 0 */
static int fake_live;                /* blocks, pinned blocks, events, streams, contexts, modules */
static int fake_launches;
static unsigned fake_shared, fake_shared_allowed; /* bytes of the last launch; allowed beyond 48 KB */
static unsigned fake_grid, fake_block;
static size_t fake_parameter_bytes;
static unsigned char fake_parameters[4096];

/* A copy, or `height` rows of `width` values of `size` bytes. */
typedef struct fake_work {
  char *to;
  const void *from; /* NULL: values */
  size_t bytes, pitch, size, width, height;
  unsigned char value[4];
} fake_work;

static HR_VECTOR(fake_work) fake_queue;
static size_t fake_done; /* of the queue's work */

static void fake_run(const fake_work *work) {
  if (work->from != NULL) {
    memcpy(work->to, work->from, work->bytes);
  }
  for (size_t row = 0; row < work->height; row++) {
    for (size_t i = 0; i < work->width; i++) {
      memcpy(work->to + row * work->pitch + i * work->size, work->value, work->size);
    }
  }
}

static void fake_run_until(size_t count) {
  for (; fake_done < count; fake_done++) {
    fake_run(&fake_queue.data[fake_done]);
  }
}

/* What a function that needs a context gives at its start. */
static int fake_check(void) {
  return fake_depth == 0 ? CUDA_ERROR_INVALID_CONTEXT : fake_error;
}

static int fake_made(void **out) {
  int code = fake_check();
  if (code == CUDA_SUCCESS) {
    *out = calloc(1, sizeof(size_t)); /* an event: how much was in the queue when it was recorded */
    fake_live++;
  }
  return code;
}

static int fake_gone(void *made) {
  free(made);
  fake_live--;
  return fake_check();
}

static int fake_name(int error, const char **name) {
  *name = error == CUDA_ERROR_ILLEGAL_ADDRESS ? "CUDA_ERROR_ILLEGAL_ADDRESS" : "CUDA_ERROR_OF_THE_STAND_IN";
  return CUDA_SUCCESS;
}

static int fake_text(int error, const char **text) {
  (void)error;
  *text = "an error's text";
  return CUDA_SUCCESS;
}

static int fake_init(unsigned flags) {
  return flags == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static int fake_device_count(int *count) {
  *count = 1;
  return CUDA_SUCCESS;
}

static int fake_device(int *device, int ordinal) {
  *device = ordinal;
  return CUDA_SUCCESS;
}

static int fake_device_name(char *name, int bytes, int device) {
  (void)device;
  snprintf(name, (size_t)bytes, "%s", "Stand-in");
  return CUDA_SUCCESS;
}

static int fake_attribute(int *value, int attribute, int device) {
  (void)device;
  *value = attribute == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT                ? 132
           : attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR          ? 9
           : attribute == CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN ? 232448
                                                                                : 0;
  return CUDA_SUCCESS;
}

static int fake_total(size_t *bytes, int device) {
  (void)device;
  *bytes = (size_t)4 << 30;
  return CUDA_SUCCESS;
}

static int fake_retain(CUcontext *context, int device) {
  (void)device;
  *context = (CUcontext)(uintptr_t)1;
  fake_live++;
  return CUDA_SUCCESS;
}

static int fake_release(int device) {
  (void)device;
  fake_live--;
  return CUDA_SUCCESS;
}

static int fake_push(CUcontext context) {
  fake_depth++;
  return context == (CUcontext)(uintptr_t)1 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

static int fake_pop(CUcontext *context) {
  fake_depth--;
  *context = (CUcontext)(uintptr_t)1;
  return CUDA_SUCCESS;
}

static int fake_set(CUcontext context) {
  (void)context;
  return CUDA_SUCCESS;
}

static int fake_stream_create(CUstream *stream, unsigned flags) {
  return flags == CU_STREAM_NON_BLOCKING ? fake_made((void **)stream) : CUDA_ERROR_INVALID_VALUE;
}

static CUstream fake_captured; /* NULL: none */
static bool fake_is_spoilt;    /* something was done that a capture does not allow */

static int fake_stream_synchronize(CUstream stream) {
  int code = stream != NULL ? fake_check() : CUDA_ERROR_INVALID_VALUE;
  if (stream != NULL && stream == fake_captured) {
    fake_is_spoilt = true;
    return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  }
  if (code == CUDA_SUCCESS) {
    fake_run_until(fake_queue.count);
  }
  return code;
}

static int fake_stream_destroy(CUstream stream) {
  return fake_gone(stream);
}

static int fake_event_create(CUevent *event, unsigned flags) {
  (void)flags;
  return fake_made((void **)event);
}

static int fake_event_record(CUevent event, CUstream stream) {
  int code = event != NULL && stream != NULL ? fake_check() : CUDA_ERROR_INVALID_VALUE;
  if (code == CUDA_SUCCESS) {
    *(size_t *)(void *)event = fake_queue.count;
  }
  return code;
}

static int fake_event_synchronize(CUevent event) {
  int code = event != NULL ? fake_check() : CUDA_ERROR_INVALID_VALUE;
  if (code == CUDA_SUCCESS) {
    fake_run_until(*(size_t *)(void *)event);
  }
  return code;
}

static int fake_elapsed(float *milliseconds, CUevent begin, CUevent end) {
  *milliseconds = begin != end ? 1.5f : 0.0f;
  return fake_check();
}

static int fake_event_destroy(CUevent event) {
  return fake_gone(event);
}

static int fake_memory(size_t *free_bytes, size_t *total_bytes) {
  *free_bytes = (size_t)3 << 30;
  *total_bytes = (size_t)4 << 30;
  return fake_check();
}

static int fake_allocate(void **address, size_t bytes) {
  int code = bytes > (size_t)2 << 30 ? CUDA_ERROR_OUT_OF_MEMORY : fake_check();
  if (code == CUDA_SUCCESS) {
    *address = aligned_alloc(256, (bytes + 255) & ~(size_t)255);
    fake_live++;
  }
  return code;
}

static int fake_host_allocate(void **address, size_t bytes, unsigned flags) {
  (void)flags;
  return fake_allocate(address, bytes);
}

static int fake_append(fake_work work) {
  return hr_vector_push(&fake_queue, work) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static int fake_copy(void *to, const void *from, size_t bytes, CUstream stream) {
  int code = stream == NULL || bytes == 0 ? CUDA_ERROR_INVALID_VALUE : fake_check();
  const char *a = to, *b = from;
  if (code == CUDA_SUCCESS && a < b + bytes && b < a + bytes) {
    code = CUDA_ERROR_INVALID_VALUE; /* ranges overlap */
  }
  return code == CUDA_SUCCESS ? fake_append((fake_work){.to = to, .from = from, .bytes = bytes}) : code;
}

static int fake_copy_peer(void *to, CUcontext to_context, const void *from, CUcontext from_context, size_t bytes,
                          CUstream stream) {
  return to_context == NULL || from_context == NULL ? CUDA_ERROR_INVALID_VALUE : fake_copy(to, from, bytes, stream);
}

static int fake_can_access(int *can, int device, int peer) {
  *can = device != peer;
  return fake_check();
}

static int fake_accesses; /* to other devices' memory, that were asked for */

static int fake_enable_access(CUcontext peer, unsigned flags) {
  fake_accesses++;
  return peer == NULL || flags != 0 ? CUDA_ERROR_INVALID_VALUE : fake_check();
}

static int fake_set_rows(void *to, size_t pitch, const void *value, size_t size, size_t width, size_t height) {
  fake_work work = {.to = to, .pitch = pitch, .size = size, .width = width, .height = height};
  bool is_odd = (uintptr_t)to % size != 0 || pitch % size != 0 || (height > 1 && pitch < width * size) || width == 0;
  int code = is_odd ? CUDA_ERROR_INVALID_VALUE : fake_check();
  memcpy(work.value, value, size);
  return code == CUDA_SUCCESS ? fake_append(work) : code;
}

#define FAKE_MEMSETS(name, type)                                                                                      \
  static int fake_set_##name(void *to, type value, size_t count, CUstream stream) {                                   \
    return stream != NULL ? fake_set_rows(to, 0, &value, sizeof value, count, 1) : CUDA_ERROR_INVALID_VALUE;          \
  }                                                                                                                   \
  static int fake_set_2d_##name(void *to, size_t pitch, type value, size_t width, size_t height, CUstream stream) {   \
    return stream != NULL ? fake_set_rows(to, pitch, &value, sizeof value, width, height) : CUDA_ERROR_INVALID_VALUE; \
  }
FAKE_MEMSETS(8, unsigned char)
FAKE_MEMSETS(16, unsigned short)
FAKE_MEMSETS(32, unsigned)

static int fake_load(CUmodule *module, const void *image) {
  return image != NULL ? fake_made((void **)module) : CUDA_ERROR_INVALID_VALUE;
}

static int fake_function(CUfunction *function, CUmodule module, const char *name) {
  *function = (CUfunction)(uintptr_t)name;
  return module != NULL && strncmp(name, "no_", 3) != 0 ? fake_check() : CUDA_ERROR_NOT_FOUND;
}

static int fake_unload(CUmodule module) {
  return fake_gone(module);
}

typedef struct fake_node {
  CUfunction function;
  unsigned grid, block, shared;
  size_t bytes;
  uint64_t waits_for; /* bits of nodes */
  bool is_early;      /* it may start while they end */
  unsigned char parameters[4096];
} fake_node;

enum { FAKE_NODES = 40 };
/* A graph, or what was made of one: then `of` is the graph. */
typedef struct fake_graph {
  int count;
  const struct fake_graph *of;
  fake_node nodes[FAKE_NODES];
} fake_graph;

static fake_graph fake_capture;
static uint64_t fake_last; /* what the next captured node will wait for */
static bool fake_is_early; /* and whether it may start while that ends */

static int fake_run_node(const fake_node *node) {
  fake_launches++;
  fake_grid = node->grid;
  fake_block = node->block;
  fake_shared = node->shared;
  fake_parameter_bytes = node->bytes;
  memcpy(fake_parameters, node->parameters, node->bytes);
  return fake_check();
}

static int fake_set_attribute(CUfunction function, int attribute, int value) {
  fake_shared_allowed = value - (48 << 10);
  return function != NULL && attribute == 8 ? fake_check() : CUDA_ERROR_INVALID_VALUE;
}

static int fake_launch(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                       unsigned block_y, unsigned block_z, unsigned shared_bytes, CUstream stream, void **parameters,
                       void **extra) {
  if (function == NULL || grid_x == 0 || grid_y != 1 || grid_z != 1 || block_x == 0 || block_x > 1024 || block_y != 1 ||
      block_z != 1 || shared_bytes > (48 << 10) + fake_shared_allowed || stream == NULL || parameters != NULL ||
      extra[0] != CU_LAUNCH_PARAM_BUFFER_POINTER || extra[2] != CU_LAUNCH_PARAM_BUFFER_SIZE ||
      extra[4] != CU_LAUNCH_PARAM_END) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  fake_node node = {.function = function,
                    .grid = grid_x,
                    .block = block_x,
                    .shared = shared_bytes,
                    .bytes = *(const size_t *)extra[3]};
  memcpy(node.parameters, extra[1], node.bytes);
  if (stream != fake_captured) {
    return fake_run_node(&node);
  }
  HR_ASSERT(fake_capture.count < FAKE_NODES);
  node.waits_for = fake_last;
  node.is_early = fake_is_early;
  fake_is_early = false;
  fake_last = UINT64_C(1) << fake_capture.count;
  fake_capture.nodes[fake_capture.count++] = node;
  return fake_check();
}

/* ---- its graphs ---- */

static int fake_begin_capture(CUstream stream, int mode) {
  int code = stream == NULL || fake_captured != NULL || mode != CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
                 ? CUDA_ERROR_INVALID_VALUE
                 : fake_check();
  if (code == CUDA_SUCCESS) {
    fake_captured = stream;
    fake_capture.count = 0;
    fake_last = 0;
    fake_is_early = false;
    fake_is_spoilt = false;
  }
  return code;
}

/* Nodes get their names from the graph that is made at the end. */
static fake_graph *fake_names;

static int fake_capture_info(CUstream stream, int *status, unsigned long long *id, CUgraph *graph,
                             const CUgraphNode **last, size_t *last_count) {
  static CUgraphNode nodes[FAKE_NODES];
  if (stream != fake_captured || id != NULL || graph != NULL || fake_is_early) { /* it would not tell all */
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (fake_names == NULL) {
    fake_names = calloc(1, sizeof *fake_names);
  }
  *status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
  *last = nodes;
  *last_count = 0;
  for (int i = 0; i < FAKE_NODES; i++) {
    if ((fake_last >> i & 1) != 0) {
      nodes[(*last_count)++] = (CUgraphNode)(void *)&fake_names->nodes[i];
    }
  }
  return fake_check();
}

static int fake_set_last(CUstream stream, CUgraphNode *nodes, size_t count, unsigned flags) {
  if (stream != fake_captured || flags != CU_STREAM_SET_CAPTURE_DEPENDENCIES || (count > 0 && fake_names == NULL)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  fake_last = 0;
  fake_is_early = false;
  for (size_t i = 0; i < count; i++) {
    fake_last |= UINT64_C(1) << ((fake_node *)(void *)nodes[i] - fake_names->nodes);
  }
  return fake_check();
}

static int fake_set_last_early(CUstream stream, CUgraphNode *nodes, const hr__cuda_edge *edges, size_t count,
                               unsigned flags) {
  for (size_t i = 0; i < count; i++) {
    const hr__cuda_edge programmatic = {.from_port = 1, .type = 1};
    if (memcmp(&edges[i], &programmatic, sizeof programmatic) != 0) {
      return CUDA_ERROR_INVALID_VALUE;
    }
  }
  int code = fake_set_last(stream, nodes, count, flags);
  fake_is_early = count > 0;
  return code;
}

static int fake_get_nodes(CUgraph graph, CUgraphNode *nodes, size_t *count) {
  fake_graph *g = (fake_graph *)(void *)graph;
  for (int i = 0; nodes != NULL && i < g->count; i++) {
    nodes[i] = (CUgraphNode)(void *)&g->nodes[i];
  }
  *count = (size_t)g->count;
  return fake_check();
}

static int fake_type; /* of nodes */

static int fake_node_type(CUgraphNode node, int *type) {
  *type = fake_type;
  return node != NULL ? fake_check() : CUDA_ERROR_INVALID_VALUE;
}

static int fake_end_capture(CUstream stream, CUgraph *graph) {
  if (stream == NULL || stream != fake_captured || fake_depth == 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  fake_captured = NULL;
  fake_graph *made = fake_names != NULL ? fake_names : calloc(1, sizeof *made);
  fake_names = NULL;
  if (fake_is_spoilt) {
    free(made);
    *graph = NULL;
    return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  }
  *made = fake_capture;
  fake_live++;
  *graph = (CUgraph)(void *)made;
  return fake_check();
}

static int fake_no_room; /* graphs can't be made */

static int fake_instantiate(CUgraphExec *exec, CUgraph graph, unsigned long long flags) {
  int code = fake_no_room != 0 ? CUDA_ERROR_OUT_OF_MEMORY : flags != 0 ? CUDA_ERROR_INVALID_VALUE : fake_check();
  if (code == CUDA_SUCCESS) {
    fake_graph *made = malloc(sizeof *made);
    memcpy(made, graph, sizeof *made);
    made->of = (const fake_graph *)(void *)graph;
    fake_live++;
    *exec = (CUgraphExec)(void *)made;
  }
  return code;
}

static int fake_set_node(CUgraphExec exec, CUgraphNode node, const hr__cuda_kernel_node *kernel) {
  fake_graph *graph = (fake_graph *)(void *)exec;
  ptrdiff_t at = (fake_node *)(void *)node - graph->of->nodes;
  if (at < 0 || at >= graph->count || kernel->function != graph->nodes[at].function || kernel->extra != NULL ||
      kernel->grid[0] != graph->nodes[at].grid || kernel->block[0] != graph->nodes[at].block ||
      kernel->shared_bytes != graph->nodes[at].shared) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  memcpy(graph->nodes[at].parameters, kernel->parameters[0], graph->nodes[at].bytes);
  return fake_check();
}

static int fake_graph_launch(CUgraphExec exec, CUstream stream) {
  const fake_graph *graph = (const fake_graph *)(void *)exec;
  int code = stream == NULL || stream == fake_captured ? CUDA_ERROR_INVALID_VALUE : fake_check();
  for (int i = 0; code == CUDA_SUCCESS && i < graph->count; i++) {
    code = fake_run_node(&graph->nodes[i]);
  }
  return code;
}

static int fake_exec_destroy(CUgraphExec exec) {
  return fake_gone(exec);
}

static int fake_graph_destroy(CUgraph graph) {
  return fake_gone(graph);
}

static const hr__cuda_table fake = {.cuInit = fake_init,
                                    .cuGetErrorName = fake_name,
                                    .cuGetErrorString = fake_text,
                                    .cuDeviceGetCount = fake_device_count,
                                    .cuDeviceGet = fake_device,
                                    .cuDeviceGetName = fake_device_name,
                                    .cuDeviceGetAttribute = fake_attribute,
                                    .cuDeviceTotalMem_v2 = fake_total,
                                    .cuDevicePrimaryCtxRetain = fake_retain,
                                    .cuDevicePrimaryCtxRelease_v2 = fake_release,
                                    .cuCtxPushCurrent_v2 = fake_push,
                                    .cuCtxPopCurrent_v2 = fake_pop,
                                    .cuCtxSetCurrent = fake_set,
                                    .cuStreamCreate = fake_stream_create,
                                    .cuStreamSynchronize = fake_stream_synchronize,
                                    .cuStreamDestroy_v2 = fake_stream_destroy,
                                    .cuEventCreate = fake_event_create,
                                    .cuEventRecord = fake_event_record,
                                    .cuEventSynchronize = fake_event_synchronize,
                                    .cuEventElapsedTime = fake_elapsed,
                                    .cuEventDestroy_v2 = fake_event_destroy,
                                    .cuMemGetInfo_v2 = fake_memory,
                                    .cuMemAlloc_v2 = fake_allocate,
                                    .cuMemFree_v2 = fake_gone,
                                    .cuMemHostAlloc = fake_host_allocate,
                                    .cuMemFreeHost = fake_gone,
                                    .cuMemcpyHtoDAsync_v2 = fake_copy,
                                    .cuMemcpyDtoHAsync_v2 = fake_copy,
                                    .cuMemcpyDtoDAsync_v2 = fake_copy,
                                    .cuMemcpyPeerAsync = fake_copy_peer,
                                    .cuDeviceCanAccessPeer = fake_can_access,
                                    .cuCtxEnablePeerAccess = fake_enable_access,
                                    .cuMemsetD8Async = fake_set_8,
                                    .cuMemsetD16Async = fake_set_16,
                                    .cuMemsetD32Async = fake_set_32,
                                    .cuMemsetD2D8Async = fake_set_2d_8,
                                    .cuMemsetD2D16Async = fake_set_2d_16,
                                    .cuMemsetD2D32Async = fake_set_2d_32,
                                    .cuModuleLoadData = fake_load,
                                    .cuModuleGetFunction = fake_function,
                                    .cuModuleUnload = fake_unload,
                                    .cuFuncSetAttribute = fake_set_attribute,
                                    .cuLaunchKernel = fake_launch,
                                    .cuStreamBeginCapture_v2 = fake_begin_capture,
                                    .cuStreamGetCaptureInfo_v2 = fake_capture_info,
                                    .cuStreamUpdateCaptureDependencies = fake_set_last,
                                    .cuStreamUpdateCaptureDependencies_v2 = fake_set_last_early,
                                    .cuStreamEndCapture = fake_end_capture,
                                    .cuGraphGetNodes = fake_get_nodes,
                                    .cuGraphNodeGetType = fake_node_type,
                                    .cuGraphInstantiateWithFlags = fake_instantiate,
                                    .cuGraphExecKernelNodeSetParams = fake_set_node,
                                    .cuGraphLaunch = fake_graph_launch,
                                    .cuGraphExecDestroy = fake_exec_destroy,
                                    .cuGraphDestroy = fake_graph_destroy};

static void *open_fake(void) {
  void *impl;
  fake_error = fake_live = fake_launches = 0;
  hr__cuda_replace(&fake, 1);
  HR_ASSERT_OK(DRIVER->open(0, &impl));
  HR_ASSERT_EQ(fake_depth, 0);
  return impl;
}

static void close_fake(void *impl) {
  DRIVER->close(impl);
  HR_ASSERT_EQ(fake_depth, 0);
  HR_ASSERT_EQ(fake_live, 0); /* nothing leaks */
  HR_ASSERT(fake_done == fake_queue.count || fake_error != 0);
  hr_vector_fini(&fake_queue);
  fake_done = 0;
  hr__cuda_replace(NULL, 0);
}

/* The first GPU of this machine, or the test is skipped. */
static void *open_gpu(void) {
  void *impl;
  hr__cuda_replace(NULL, 0);
  if (DRIVER->count() == 0) {
    HR_SKIP("no CUDA device");
  }
  HR_ASSERT_OK(DRIVER->open(0, &impl));
  return impl;
}

/* ---- the library and the device ---- */

static const char *const cuda_names[] = {
#define CUDA_SYMBOL(name, args) #name,
#include "drivers/cuda/cuda_edge_symbols.def"
#include "drivers/cuda/cuda_graph_symbols.def"
#include "drivers/cuda/cuda_symbols.def"
#undef CUDA_SYMBOL
};

HR_TEST(each_function_is_listed_once_and_the_stand_in_has_them_all) {
  size_t count = sizeof cuda_names / sizeof *cuda_names;
  void *functions[sizeof cuda_names / sizeof *cuda_names];
  HR_ASSERT_EQ(sizeof fake, sizeof functions);
  memcpy(functions, &fake, sizeof functions);
  for (size_t i = 0; i < count; i++) {
    HR_ASSERT(strncmp(cuda_names[i], "cu", 2) == 0);
    HR_ASSERT_NOT_NULL(functions[i]);
    for (size_t j = 0; j < i; j++) {
      HR_ASSERT(strcmp(cuda_names[i], cuda_names[j]) != 0);
    }
  }
}

HR_TEST(without_a_device_opening_says_why) {
  hr__cuda_replace(NULL, 0);
  if (DRIVER->count() > 0) {
    HR_SKIP("there is a CUDA device");
  }
  hr_device *device;
  void *impl = NULL;
  hr_status why = DRIVER->why_none();
  HR_ASSERT(why != NULL);
  HR_ASSERT(strstr(hr_status_message(why), "libcuda.so.1") != NULL || strstr(hr_status_message(why), "cuda: ") != NULL);
  HR_ASSERT_ERROR(hr_device_open("cuda", &device), HR_STATUS_NOT_FOUND, hr_status_message(why));
  hr_status_free(why);
  hr_status status = DRIVER->open(0, &impl);
  HR_ASSERT(status != NULL && impl == NULL);
  hr_status_free(status);
}

HR_TEST(an_instance_is_described_and_closes_without_a_trace) {
  hr_device_properties properties;
  int64_t free_bytes, total_bytes;
  void *impl = open_fake(), *other;
  HR_ASSERT_OK(DRIVER->open(0, &other));
  HR_ASSERT(impl != other);
  DRIVER->properties(impl, &properties);
  HR_ASSERT_STR_EQ(properties.description, "Stand-in, 4 GiB, compute capability 9.0");
  HR_ASSERT_EQ(properties.workers, 132);
  HR_ASSERT_EQ(properties.block_bytes, 232448);
  HR_ASSERT(!properties.is_host && properties.has_contents);
  DRIVER->memory_info(impl, &free_bytes, &total_bytes);
  HR_ASSERT_EQ(free_bytes, (int64_t)3 << 30);
  HR_ASSERT_EQ(total_bytes, (int64_t)4 << 30);
  HR_ASSERT_NOT_NULL(DRIVER->native(impl));
  DRIVER->close(other);
  close_fake(impl);
}

HR_TEST(devices_reach_each_other_once_and_wait_for_the_copy) {
  enum { BYTES = 4096 };
  unsigned char sent[BYTES], back[BYTES] = {0};
  void *first = open_fake(), *second, *to, *from;
  HR_ASSERT_OK(DRIVER->open(1, &second));
  HR_ASSERT_OK(DRIVER->allocate(first, BYTES, &to));
  HR_ASSERT_OK(DRIVER->allocate(second, BYTES, &from));
  fake_accesses = 0;
  for (int i = 0; i < 3; i++) {
    memset(sent, i + 1, BYTES);
    HR_ASSERT_OK(DRIVER->copy_in(second, from, sent, BYTES));
    HR_ASSERT_OK(DRIVER->flush(second));
    HR_ASSERT_OK(DRIVER->copy_peer(first, to, second, from, BYTES));
    HR_ASSERT_EQ(memcmp(to, sent, BYTES), 0); /* without anybody's waiting */
    HR_ASSERT_OK(DRIVER->copy_out(first, back, to, BYTES));
    HR_ASSERT_EQ(memcmp(back, sent, BYTES), 0);
  }
  HR_ASSERT_EQ(fake_accesses, 1);
  HR_ASSERT_OK(DRIVER->copy_peer(first, to, first, to, 0));
  HR_ASSERT_EQ(fake_depth, 0);
  DRIVER->free(second, from, BYTES);
  DRIVER->free(first, to, BYTES);
  DRIVER->close(second);
  close_fake(first);
}

HR_TEST(an_open_that_fails_leaves_nothing) {
  void *impl = NULL;
  hr__cuda_replace(&fake, 1);
  fake_live = 0;
  fake_error = CUDA_ERROR_OUT_OF_MEMORY;
  HR_ASSERT_ERROR(DRIVER->open(0, &impl), HR_STATUS_RESOURCE_EXHAUSTED, "cuStreamCreate");
  HR_ASSERT_NULL(impl);
  HR_ASSERT_EQ(fake_live, 0);
  HR_ASSERT_EQ(fake_depth, 0);
  fake_error = 0;
  hr__cuda_replace(NULL, 0);
}

/* ---- copies and fills, on both ---- */

enum { FILL_BYTES = 300000 };

static void check_fill(void *impl, const unsigned char *pattern, size_t size, size_t offset, size_t count) {
  static unsigned char expected[FILL_BYTES], back[FILL_BYTES];
  void *block;
  HR_ASSERT(offset + size * count <= FILL_BYTES);
  memset(expected, 0xee, FILL_BYTES);
  HR_ASSERT_OK(DRIVER->allocate(impl, FILL_BYTES, &block));
  HR_ASSERT_OK(DRIVER->copy_in(impl, block, expected, FILL_BYTES));
  for (size_t i = 0; i < size * count; i++) {
    expected[offset + i] = pattern[i % size];
  }
  HR_ASSERT_OK(DRIVER->fill(impl, (char *)block + offset, pattern, size, count));
  HR_ASSERT_OK(DRIVER->copy_out(impl, back, block, FILL_BYTES));
  for (size_t i = 0; i < FILL_BYTES; i++) {
    if (back[i] != expected[i]) {
      HR_FAIL("pattern of %zu bytes, %zu times at %zu: byte %zu is %d, expected %d", size, count, offset, i, back[i],
              expected[i]);
    }
  }
  DRIVER->free(impl, block, FILL_BYTES);
}

static void check_fills(void *impl) {
  static const size_t counts[] = {0, 1, 2, 3, 1001, 4096, 4097, 17001};
  static const size_t offsets[] = {0, 1, 2, 3, 4, 8, 12, 16};
  static const unsigned char patterns[][16] = {
      {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}, /* no repetition */
      {1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 4},
      {0, 0, 0, 0, 0, 0, 0xf0, 0x3f, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f},
      {0}};
  for (size_t p = 0; p < sizeof patterns / sizeof *patterns; p++) {
    for (size_t size = 1; size <= 16; size *= 2) {
      for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
        for (size_t o = 0; o < (counts[c] > 1001 ? 2 : sizeof offsets / sizeof *offsets); o++) {
          check_fill(impl, patterns[p], size, offsets[o], counts[c]);
        }
      }
    }
  }
}

/* Long and short ones, through the ends of the slots; what is around the copy stays. */
static void check_copies(void *impl) {
  static const size_t sizes[] = {1, 63, 64, 65, 1000, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, (4 << 20) + 3, 9999999};
  enum { BYTES = 10 << 20 };
  unsigned char *host = malloc(BYTES), *back = malloc(BYTES);
  void *block;
  HR_ASSERT_OK(DRIVER->allocate(impl, BYTES, &block));
  for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
    for (size_t i = 0; i < sizes[s]; i++) {
      host[i] = (unsigned char)(i * 31 + i / 253 + s);
    }
    HR_ASSERT_OK(DRIVER->copy_in(impl, (char *)block + s, host, sizes[s]));
    memset(back, 0x77, BYTES);
    HR_ASSERT_OK(DRIVER->copy_out(impl, back + 1, (char *)block + s, sizes[s]));
    HR_ASSERT(back[0] == 0x77 && back[sizes[s] + 1] == 0x77 && memcmp(back + 1, host, sizes[s]) == 0);
  }
  for (int i = 0; i < 100000; i++) { /* many small ones: the slots go round, and the host's memory is free at once */
    HR_ASSERT_OK(DRIVER->copy_in(impl, (char *)block + (size_t)i * 4, &i, sizeof i));
  }
  HR_ASSERT_OK(DRIVER->copy_within(impl, (char *)block + (1 << 20), block, 400000));
  HR_ASSERT_OK(DRIVER->copy_out(impl, back, (char *)block + (1 << 20), 400000));
  for (int i = 0, value; i < 100000; i++) {
    memcpy(&value, back + (size_t)i * 4, sizeof value);
    HR_ASSERT_EQ(value, i);
  }
  DRIVER->free(impl, block, BYTES);
  free(host);
  free(back);
}

HR_TEST(fills_of_all_sizes_and_places) {
  void *impl = open_fake();
  check_fills(impl);
  close_fake(impl);
}

HR_TEST(copies_go_through_the_slots) {
  void *impl = open_fake();
  check_copies(impl);
  close_fake(impl);
}

/* ---- kernels, on the stand-in ---- */

HR_TEST(parameters_are_packed_in_the_order_of_the_contract) {
  void *impl = open_fake(), *module, *functions[2];
  const char *names[] = {"first", "second"};
  HR_ASSERT_OK(DRIVER->load(impl, "image", 5, 2, names, &module, functions));
  hr_device_kernel kernel = {.base = {.name = "packed", .pass_count = 3},
                             .functions = {functions[0], NULL, functions[1]},
                             .blocks = {7, 0, 1000000},
                             .threads = {32, 0, 256},
                             .shared = {100, 0, 200 << 10},
                             .arg_count = 3,
                             .scalar_count = 2,
                             .word_count = 2,
                             .words = {11, -12}};
  void *args[3] = {(void *)0x100, (void *)0x200, (void *)0x300};
  hr_scalar scalars[2] = {hr_scalar_f64(1.5), hr_scalar_i64(-7)};
  hr_host_call call = {.args = args, .scalars = scalars, .workspace = (void *)0x40};
  HR_ASSERT_OK(DRIVER->launch(impl, 1, &(hr_host_launch){&kernel.base, call}));
  HR_ASSERT_EQ(fake_launches, 2); /* the pass of no blocks is none */
  HR_ASSERT_EQ(fake_grid, 1000000);
  HR_ASSERT_EQ(fake_block, 256);
  HR_ASSERT_EQ(fake_shared, 200 << 10);
  HR_ASSERT_EQ(fake_parameter_bytes, 8 + 3 * 8 + 2 * 24 + 2 * 8);
  struct {
    void *workspace, *args[3];
    hr_scalar scalars[2];
    int64_t words[2];
  } seen;
  memcpy(&seen, fake_parameters, sizeof seen);
  HR_ASSERT(seen.workspace == call.workspace && memcmp(seen.args, args, sizeof args) == 0);
  HR_ASSERT(seen.scalars[0].dtype == HR_DTYPE_F64 && seen.scalars[0].value.f[0] == 1.5);
  HR_ASSERT(seen.scalars[1].dtype == HR_DTYPE_I64 && seen.scalars[1].value.i == -7);
  HR_ASSERT(seen.words[0] == 11 && seen.words[1] == -12);
  DRIVER->unload(impl, module);
  close_fake(impl);
}

HR_TEST(launches_that_cannot_be_name_their_kernel) {
  void *impl = open_fake(), *args[512] = {0};
  hr_device_kernel kernel = {.base = {.name = "odd one", .pass_count = 1},
                             .functions = {impl},
                             .blocks = {1},
                             .threads = {64},
                             .arg_count = 511};
  hr_host_launch launch = {&kernel.base, {.args = args}};
  HR_ASSERT_OK(DRIVER->launch(impl, 1, &launch));
  HR_ASSERT_EQ(fake_parameter_bytes, 4096);
  kernel.arg_count = 512;
  HR_ASSERT_ERROR(DRIVER->launch(impl, 1, &launch), HR_STATUS_UNIMPLEMENTED, "\"odd one\" has 4104 bytes");
  kernel.arg_count = 1;
  kernel.blocks[0] = (int64_t)1 << 31;
  HR_ASSERT_ERROR(DRIVER->launch(impl, 1, &launch), HR_STATUS_INTERNAL, "\"odd one\", pass 0: 2147483648 blocks");
  kernel.blocks[0] = 1;
  kernel.threads[0] = 2048;
  HR_ASSERT_ERROR(DRIVER->launch(impl, 1, &launch), HR_STATUS_INTERNAL, "kernel \"odd one\", pass 0, 1 blocks of 2048");
  HR_ASSERT_EQ(fake_depth, 0);
  close_fake(impl);
}

HR_TEST(a_missing_function_is_named_and_its_module_goes) {
  void *impl = open_fake(), *module = NULL, *functions[2];
  const char *names[] = {"there", "no_such"};
  int live = fake_live;
  HR_ASSERT_ERROR(DRIVER->load(impl, "image", 5, 2, names, &module, functions), HR_STATUS_INTERNAL, "\"no_such\"");
  HR_ASSERT_NULL(module);
  HR_ASSERT_EQ(fake_live, live);
  close_fake(impl);
}

/* ---- graphs, on the stand-in ---- */

/* Three passes, one of which has nothing to do, on one argument with one scalar. */
static hr_device_kernel graph_kernel(const char *name) {
  return (hr_device_kernel){.base = {.name = name, .pass_count = 3},
                            .functions = {(void *)0x10, NULL, (void *)0x20},
                            .blocks = {3, 0, 5},
                            .threads = {32, 0, 64},
                            .shared = {16, 0, 50 << 10},
                            .arg_count = 1,
                            .scalar_count = 1};
}

static hr_status give(void *impl, const hr_device_kernel *kernel, void *arg, const hr_scalar *scalar) {
  return DRIVER->launch(impl, 1, &(hr_host_launch){&kernel->base, {.args = &arg, .scalars = scalar}});
}

static hr_status update(void *impl, void *graph, int index, const hr_device_kernel *kernel, void *arg,
                        const hr_scalar *scalar) {
  const hr_host_launch launch = {&kernel->base, {.args = &arg, .scalars = scalar}};
  return DRIVER->graph_update(impl, graph, index, &launch);
}

/* The argument and the scalar of the kernel that ran last. */
static void check_last(void *arg, double value) {
  struct {
    void *workspace, *arg;
    hr_scalar scalar;
  } seen;
  HR_ASSERT_EQ(fake_parameter_bytes, sizeof seen);
  memcpy(&seen, fake_parameters, sizeof seen);
  HR_ASSERT(seen.arg == arg && seen.scalar.value.f[0] == value);
}

HR_TEST(a_graph_runs_what_was_captured_with_what_it_was_told_last) {
  void *impl = open_fake(), *queue = NULL, *graph = NULL, *block;
  hr_device_kernel first = graph_kernel("first"), last = graph_kernel("last");
  hr_scalar scalars[3] = {hr_scalar_f64(1), hr_scalar_f64(2), hr_scalar_f64(3)};
  char bytes[8] = "capture", back[8] = "";
  HR_ASSERT_OK(DRIVER->allocate(impl, 8, &block));
  HR_ASSERT_OK(DRIVER->capture_begin(impl, &queue));
  HR_ASSERT(queue != NULL && queue != DRIVER->native(impl));
  HR_ASSERT_OK(give(impl, &first, (void *)0x100, &scalars[0]));
  HR_ASSERT_OK(DRIVER->copy_in(impl, block, bytes, sizeof bytes)); /* no part of it, as flush is none */
  HR_ASSERT_OK(DRIVER->flush(impl));
  HR_ASSERT_OK(give(impl, &last, (void *)0x200, &scalars[1]));
  HR_ASSERT_OK(DRIVER->capture_end(impl, &graph));
  HR_ASSERT_EQ(fake_launches, 0);
  HR_ASSERT_OK(DRIVER->copy_out(impl, back, block, sizeof back));
  HR_ASSERT_STR_EQ(back, "capture");
  for (int i = 1; i <= 2; i++) {
    HR_ASSERT_OK(DRIVER->graph_launch(impl, graph));
    HR_ASSERT_EQ(fake_launches, 4 * i);
    check_last((void *)0x200, 2);
  }
  HR_ASSERT_OK(update(impl, graph, 1, &last, (void *)0x300, &scalars[2]));
  HR_ASSERT_OK(DRIVER->graph_launch(impl, graph));
  check_last((void *)0x300, 3);
  HR_ASSERT_OK(
      update(impl, graph, 0, &first, (void *)0x400, &scalars[0])); /* another kernel's, to be seen by none after it */
  HR_ASSERT_OK(DRIVER->graph_launch(impl, graph));
  check_last((void *)0x300, 3);
  HR_ASSERT_OK(give(impl, &first, (void *)0x500, &scalars[0])); /* runs at once again */
  HR_ASSERT_EQ(fake_launches, 18);
  check_last((void *)0x500, 1);
  DRIVER->graph_destroy(impl, graph);
  DRIVER->graph_destroy(impl, NULL);
  DRIVER->free(impl, block, 8);
  close_fake(impl);
}

/* The nodes that node `at` of what was captured last waits for, and those that these wait for, and so on. */
static uint64_t all_before(int at) {
  uint64_t all = 0;
  for (int i = 0; i < at; i++) {
    all |= (fake_capture.nodes[at].waits_for >> i & 1) != 0 ? all_before(i) | UINT64_C(1) << i : 0;
  }
  return all;
}

HR_TEST(kernels_given_together_do_not_wait_for_each_other) {
  enum { COUNT = 11, FIRST = 2, BEHIND = FIRST + 2 * (COUNT - 1) };
  void *impl = open_fake(), *queue, *graph;
  hr_device_kernel kernel = graph_kernel("kernel"), idle = kernel;
  hr_scalar scalar = hr_scalar_f64(1), other = hr_scalar_f64(2);
  void *arg = (void *)0x100;
  hr_host_launch launches[COUNT];
  idle.blocks[0] = idle.blocks[2] = 0;
  for (int i = 0; i < COUNT; i++) {
    launches[i] = (hr_host_launch){i == 3 ? &idle.base : &kernel.base, {.args = &arg, .scalars = &scalar}};
  }
  HR_ASSERT_OK(DRIVER->capture_begin(impl, &queue));
  HR_ASSERT_OK(DRIVER->launch(impl, 1, launches));
  HR_ASSERT_OK(DRIVER->launch(impl, COUNT, launches));
  HR_ASSERT_OK(DRIVER->launch(impl, 1, launches));
  HR_ASSERT_OK(DRIVER->capture_end(impl, &graph));
  HR_ASSERT_EQ(fake_capture.count, BEHIND + 2);
  int alone = 0;
  for (int i = FIRST; i < BEHIND; i += 2) { /* the passes of a kernel */
    HR_ASSERT_EQ(fake_capture.nodes[i + 1].waits_for, UINT64_C(1) << i);
    HR_ASSERT_EQ(all_before(i) & 3, 3);
    alone += all_before(i) == 3;
  }
  HR_ASSERT_EQ(alone, 7); /* one of eight lanes has the idle one; the others are behind one of them */
  HR_ASSERT_EQ(all_before(BEHIND), (UINT64_C(1) << BEHIND) - 1);
  launches[0].call.scalars = &other;
  HR_ASSERT_OK(DRIVER->graph_update(impl, graph, COUNT + 1, &launches[0]));
  HR_ASSERT_OK(DRIVER->graph_launch(impl, graph));
  check_last(arg, 2);
  DRIVER->graph_destroy(impl, graph);
  HR_ASSERT_OK(DRIVER->capture_begin(impl, &queue)); /* nothing before them, nothing to do, nothing behind */
  HR_ASSERT_OK(DRIVER->launch(impl, 2, (hr_host_launch[]){launches[3], launches[3]}));
  HR_ASSERT_OK(DRIVER->launch(impl, 2, launches));
  HR_ASSERT_OK(DRIVER->capture_end(impl, &graph));
  HR_ASSERT_EQ(fake_capture.count, 4);
  HR_ASSERT_EQ(fake_capture.nodes[2].waits_for, 0);
  DRIVER->graph_destroy(impl, graph);
  close_fake(impl);
}

HR_TEST(kernels_that_wait_by_themselves_start_early) {
  enum { COUNT = 10, BEHIND = 4 + 2 * COUNT };
  void *impl = open_fake(), *queue, *graph, *arg = (void *)0x100;
  hr_device_kernel kernel = graph_kernel("kernel"), early = kernel;
  hr_scalar scalar = hr_scalar_f64(1);
  hr_host_launch launches[COUNT];
  early.begins_early = true;
  for (int i = 0; i < COUNT; i++) {
    launches[i] = (hr_host_launch){&early.base, {.args = &arg, .scalars = &scalar}};
  }
  HR_ASSERT_OK(DRIVER->capture_begin(impl, &queue));
  HR_ASSERT_OK(give(impl, &early, arg, &scalar)); /* nodes 0 and 1: nothing is in front of the first */
  HR_ASSERT_OK(give(impl, &kernel, arg, &scalar));
  HR_ASSERT_OK(DRIVER->launch(impl, COUNT, launches));
  HR_ASSERT_OK(give(impl, &early, arg, &scalar)); /* behind the ends of eight lanes */
  fake_type = CU_GRAPH_NODE_TYPE_MEMSET;
  HR_ASSERT_OK(give(impl, &early, arg, &scalar));
  fake_type = CU_GRAPH_NODE_TYPE_KERNEL;
  HR_ASSERT_OK(DRIVER->capture_end(impl, &graph));
  HR_ASSERT_EQ(fake_capture.count, BEHIND + 4);
  for (int i = 0; i < fake_capture.count; i++) {
    bool is_early = (i >= 4 && i < BEHIND + 2) || i == 1;
    HR_ASSERT_EQ(fake_capture.nodes[i].is_early, is_early);
    HR_ASSERT_EQ(all_before(i) & 15, i < 4 ? (1 << i) - 1 : 15); /* and in the same order */
  }
  HR_ASSERT_EQ(all_before(BEHIND), (UINT64_C(1) << BEHIND) - 1);
  DRIVER->graph_destroy(impl, graph);
  close_fake(impl);
}

HR_TEST(kernels_of_a_driver_without_properties_of_edges_start_one_after_the_other) {
  void *impl = open_fake(), *queue, *graph;
  hr__cuda_table old = fake;
  hr_device_kernel early = graph_kernel("kernel");
  hr_scalar scalar = hr_scalar_f64(1);
  early.begins_early = true;
  old.cuStreamUpdateCaptureDependencies_v2 = NULL;
  hr__cuda_replace(&old, 1);
  HR_ASSERT_OK(DRIVER->capture_begin(impl, &queue));
  HR_ASSERT_OK(give(impl, &early, (void *)0x100, &scalar));
  HR_ASSERT_OK(DRIVER->capture_end(impl, &graph));
  HR_ASSERT(fake_capture.count == 2 && !fake_capture.nodes[0].is_early && !fake_capture.nodes[1].is_early);
  DRIVER->graph_destroy(impl, graph);
  hr__cuda_replace(&fake, 1);
  close_fake(impl);
}

static hr_status wait_for_queue(void *queue) {
  return hr__cuda_status(hr__cuda.cuStreamSynchronize(queue), "waiting");
}

HR_TEST(a_capture_that_fails_leaves_nothing_and_the_next_one_works) {
  void *impl = open_fake(), *queue, *graph = NULL;
  hr_device_kernel kernel = graph_kernel("kernel");
  hr_scalar scalar = hr_scalar_f64(1);
  for (int i = 0; i < 2; i++) {
    HR_ASSERT_OK(DRIVER->capture_begin(impl, &queue));
    HR_ASSERT_OK(give(impl, &kernel, (void *)0x100, &scalar));
    HR_ASSERT_STATUS(DRIVER->call(impl, wait_for_queue, queue), HR_STATUS_INTERNAL);
    HR_ASSERT_STATUS(DRIVER->capture_end(impl, i == 0 ? &graph : NULL), HR_STATUS_INTERNAL);
    HR_ASSERT_OK(DRIVER->capture_begin(impl, &queue));
    fake_no_room = 1;
    HR_ASSERT_STATUS(DRIVER->capture_end(impl, &graph), HR_STATUS_RESOURCE_EXHAUSTED);
    fake_no_room = 0;
    HR_ASSERT_NULL(graph);
    HR_ASSERT_OK(DRIVER->capture_begin(impl, &queue));
    HR_ASSERT_OK(DRIVER->capture_end(impl, NULL)); /* forgotten */
  }
  HR_ASSERT_EQ(fake_launches, 0);
  HR_ASSERT_OK(DRIVER->capture_begin(impl, &queue));
  HR_ASSERT_OK(give(impl, &kernel, (void *)0x100, &scalar));
  HR_ASSERT_OK(DRIVER->capture_end(impl, &graph));
  HR_ASSERT_OK(DRIVER->graph_launch(impl, graph));
  HR_ASSERT_EQ(fake_launches, 2);
  DRIVER->graph_destroy(impl, graph);
  close_fake(impl);
}

HR_TEST(a_driver_without_graphs_says_so) {
  void *impl = open_fake(), *queue = NULL;
  hr__cuda_table old = fake;
  old.cuGraphLaunch = NULL;
  hr__cuda_replace(&old, 1);
  HR_ASSERT_ERROR(DRIVER->capture_begin(impl, &queue), HR_STATUS_UNIMPLEMENTED, "11.4");
  HR_ASSERT_NULL(queue);
  hr__cuda_replace(&fake, 1);
  close_fake(impl);
}

static void *oom_impl;

static hr_status capture_two(void) {
  void *queue, *graph = NULL;
  hr_device_kernel kernel = graph_kernel("kernel");
  hr_scalar scalar = hr_scalar_f64(1);
  HR_RETURN_IF_ERROR(DRIVER->capture_begin(oom_impl, &queue));
  hr_status status = give(oom_impl, &kernel, (void *)0x100, &scalar);
  if (status == NULL) {
    status = give(oom_impl, &kernel, (void *)0x100, &scalar);
  }
  hr_status ended = DRIVER->capture_end(oom_impl, status == NULL ? &graph : NULL);
  DRIVER->graph_destroy(oom_impl, graph);
  hr_status_ignore(status != NULL ? ended : HR_OK);
  return status != NULL ? status : ended;
}

HR_TEST(a_capture_without_host_memory_fails_and_leaks_nothing) {
  oom_impl = open_fake();
  HR_TEST_OOM(capture_two);
  close_fake(oom_impl);
}

/* ---- calls and errors ---- */

static hr_status call_back(void *arg) {
  *(int *)arg = fake_depth; /* the device is current */
  return hr_status_make(HR_STATUS_DATA_LOSS, "the library's own words");
}

HR_TEST(calls_have_the_device_and_report_what_they_say) {
  void *impl = open_fake();
  int depth = 0;
  HR_ASSERT_ERROR(DRIVER->call(impl, call_back, &depth), HR_STATUS_DATA_LOSS, "own words");
  HR_ASSERT_EQ(depth, 1);
  close_fake(impl);
}

HR_TEST(an_error_of_the_device_is_every_later_calls_error) {
  void *impl = open_fake(), *block, *event, *begin;
  char bytes[64] = {0};
  HR_ASSERT_OK(DRIVER->allocate(impl, 64, &block));
  HR_ASSERT_OK(DRIVER->event_create(impl, &begin));
  HR_ASSERT_OK(DRIVER->event_record(impl, begin));
  fake_error = CUDA_ERROR_ILLEGAL_ADDRESS;
  for (int i = 0; i < 2; i++) {
    HR_ASSERT_ERROR(DRIVER->flush(impl), HR_STATUS_INTERNAL, "CUDA_ERROR_ILLEGAL_ADDRESS (700): an error's text");
    HR_ASSERT_ERROR(DRIVER->copy_in(impl, block, bytes, 64), HR_STATUS_INTERNAL, "ILLEGAL_ADDRESS");
    HR_ASSERT_ERROR(DRIVER->copy_out(impl, bytes, block, 64), HR_STATUS_INTERNAL, "ILLEGAL_ADDRESS");
    HR_ASSERT_ERROR(DRIVER->fill(impl, block, bytes, 1, 64), HR_STATUS_INTERNAL, "ILLEGAL_ADDRESS");
    HR_ASSERT_ERROR(DRIVER->event_create(impl, &event), HR_STATUS_INTERNAL, "ILLEGAL_ADDRESS");
    HR_ASSERT_ERROR(DRIVER->event_wait(impl, begin), HR_STATUS_INTERNAL, "ILLEGAL_ADDRESS");
    HR_ASSERT_EQ(fake_depth, 0);
  }
  DRIVER->event_destroy(impl, begin);
  DRIVER->free(impl, block, 64);
  close_fake(impl);
}

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

/* Skips the test where there is no NVRTC, and says what is missing. */
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
  for (int i = 0; i < THREADS; i++) {
    compilations[i].is_wrong = i % 3 == 2;
    HR_ASSERT_OK(hr_thread_start("compile", compile_one, &compilations[i], &threads[i]));
  }
  for (int i = 0; i < THREADS; i++) {
    hr_thread_join(&threads[i]);
  }
  for (int i = 0; i < THREADS; i++) {
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

HR_TEST(a_gpu_fills) {
  void *impl = open_gpu();
  check_fills(impl);
  DRIVER->close(impl);
}

HR_TEST(a_gpu_copies) {
  void *impl = open_gpu();
  check_copies(impl);
  DRIVER->close(impl);
}

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
  for (int i = 0; i < COUNT; i++) {
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
  for (int i = 0; i < COUNT; i++) { /* to the bit: nothing is contracted */
    volatile float product = x[i] * (float)1.1, sum = product + 1.0f, expected = sum + extra;
    HR_ASSERT(y[i] == expected);
  }
  HR_ASSERT_OK(DRIVER->event_elapsed(impl, events[0], events[1], &ns));
  HR_ASSERT(ns > 0 && ns < 1000000000);
  for (int i = 0; i < 2; i++) {
    DRIVER->event_destroy(impl, events[i]);
    DRIVER->free(impl, args[i], sizeof x);
  }
  DRIVER->free(impl, workspace, 64);
  DRIVER->unload(impl, module);
  DRIVER->close(impl);
}

/* Twenty kernels at once, each on a tensor of its own, behind one that makes what all of them read, in front of one that reads what
 * the last of them has made. */
static void check_lanes(void *impl, const hr_device_kernel *kernel, void *workspace) {
  enum { COUNT = 1000, BYTES = COUNT * sizeof(float), MANY = 20 };
  static float x[COUNT], y[COUNT];
  void *tensors[MANY + 3], *args[MANY + 2][2], *queue, *graph;
  hr_host_launch launches[MANY + 2];
  hr_scalar scalars[2] = {hr_scalar_f64(2), hr_scalar_i64(COUNT)};
  float none = 0;
  for (int i = 0; i < MANY + 3; i++) {
    HR_ASSERT_OK(DRIVER->allocate(impl, BYTES, &tensors[i]));
  }
  for (int i = 0; i < MANY + 2; i++) {
    args[i][0] = tensors[i == 0 ? 0 : i <= MANY ? 1 : MANY + 1], args[i][1] = tensors[i + 1];
    launches[i] = (hr_host_launch){&kernel->base, {.args = args[i], .scalars = scalars, .workspace = workspace}};
  }
  HR_ASSERT_OK(DRIVER->copy_in(impl, workspace, &none, sizeof none));
  HR_ASSERT_OK(DRIVER->capture_begin(impl, &queue));
  HR_ASSERT_OK(DRIVER->launch(impl, 1, &launches[0]));
  HR_ASSERT_OK(DRIVER->launch(impl, MANY, &launches[1]));
  HR_ASSERT_OK(DRIVER->launch(impl, 1, &launches[MANY + 1]));
  HR_ASSERT_OK(DRIVER->capture_end(impl, &graph));
  for (int run = 0; run < 3; run++) {
    for (int i = 0; i < COUNT; i++) {
      x[i] = (float)(i + run);
    }
    HR_ASSERT_OK(DRIVER->copy_in(impl, tensors[0], x, BYTES));
    HR_ASSERT_OK(DRIVER->graph_launch(impl, graph));
    for (int t = 1; t < MANY + 3; t++) {
      HR_ASSERT_OK(DRIVER->copy_out(impl, y, tensors[t], BYTES));
      for (int i = 0; i < COUNT; i++) {
        float once = x[i] * 2 + 1, twice = once * 2 + 1;
        HR_ASSERT(y[i] == (t == 1 ? once : t < MANY + 2 ? twice : twice * 2 + 1));
      }
    }
  }
  DRIVER->graph_destroy(impl, graph);
  for (int i = 0; i < MANY + 3; i++) {
    DRIVER->free(impl, tensors[i], BYTES);
  }
}

/* y = x * a + 1, then y += workspace, captured; later with another a, another y, and what the workspace holds by then. */
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
  for (int i = 0; i < COUNT; i++) {
    x[i] = (float)i;
  }
  for (int i = 0; i < 3; i++) {
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
  for (int run = 0; run < 4; run++) {
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
    for (int i = 0; i < COUNT; i++) {
      HR_ASSERT(y[i] == (float)i * factor + 1 + extra);
    }
  }
  HR_ASSERT_OK(DRIVER->graph_launch(impl, graph));
  DRIVER->graph_destroy(impl, graph); /* while it may be on its way */
  check_lanes(impl, &kernel, workspace);
  for (int i = 0; i < 3; i++) {
    DRIVER->free(impl, args[i], BYTES);
  }
  DRIVER->free(impl, workspace, 64);
  DRIVER->unload(impl, module);
  DRIVER->close(impl);
}

/* Last: CUDA gives nothing but this error to the process afterwards. */
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
