/* cuda_stand_in.h: a table of functions that stands in for libcuda, for tests of the CUDA driver without a GPU.
 *
 * Its "device" memory is the host's. It is stricter than CUDA about alignment and about the current context. Copies and
 * sets are delayed as long as possible, until a caller waits for them, which reveals memory that was freed too early.
 * Kernels don't run: the last launch's grid and parameters are kept.
 */
#ifndef HEADRACE_TESTS_CUDA_STAND_IN_H_
#define HEADRACE_TESTS_CUDA_STAND_IN_H_

#include <stdatomic.h>

#include "base/vector.h"
#include "drivers/cuda/cuda_api.h"
#include "drivers/cuda/cuda_driver.h"
#include "hr_test.h"

#define DRIVER (&hr_cuda_driver)

/* ---- the stand-in ---- */

static _Thread_local int fake_depth; /* contexts on this thread's stack */
static int fake_error;               /* the result of all functions of the device, once it is not 0 */
static int fake_live;                /* blocks, pinned blocks, events, streams, contexts, modules */
static atomic_bool fake_is_busy;
static ptrdiff_t fake_range_offset; /* of an address in its block, for cuMemGetAddressRange */
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
  for (size_t row = 0; row < work->height; ++row) {
    for (size_t i = 0; i < work->width; ++i) {
      memcpy(work->to + row * work->pitch + i * work->size, work->value, work->size);
    }
  }
}

static void fake_run_until(size_t count) {
  for (; fake_done < count; ++fake_done) {
    fake_run(&fake_queue.data[fake_done]);
  }
}

/* The first check in functions that need a context. */
static int fake_check(void) {
  return fake_depth == 0 ? CUDA_ERROR_INVALID_CONTEXT : fake_error;
}

static int fake_made(void **out) {
  int code = fake_check();
  if (code == CUDA_SUCCESS) {
    *out = calloc(1, sizeof(size_t)); /* an event: the length of the queue when it was recorded */
    ++fake_live;
  }
  return code;
}

/* Events are done unless the test says otherwise. */
static int fake_event_query(CUevent event) {
  (void)event;
  return fake_is_busy ? CUDA_ERROR_NOT_READY : fake_check();
}

static int fake_gone(void *made) {
  free(made);
  --fake_live;
  return fake_check();
}

/* Names of memory are addresses. */
static int fake_range(void **base, size_t *bytes, void *address) {
  *base = (char *)address - fake_range_offset;
  *bytes = 4096;
  return fake_check();
}

static int fake_share(hr__cuda_shared *shared, void *base) {
  memset(shared, 0, sizeof *shared);
  memcpy(shared->name, &base, sizeof base);
  return fake_check();
}

static int fake_open_shared(void **base, hr__cuda_shared shared, unsigned flags) {
  (void)flags;
  memcpy(base, shared.name, sizeof *base);
  ++fake_live;
  return fake_check();
}

static int fake_close_shared(void *base) {
  (void)base;
  --fake_live;
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
           : attribute == CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE                 ? 2619000
           : attribute == CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH           ? 5120
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
  ++fake_live;
  return CUDA_SUCCESS;
}

static int fake_release(int device) {
  (void)device;
  --fake_live;
  return CUDA_SUCCESS;
}

static bool fake_refuses_contexts;

static int fake_push(CUcontext context) {
  if (fake_refuses_contexts) {
    return CUDA_ERROR_INVALID_CONTEXT;
  }
  ++fake_depth;
  return context == (CUcontext)(uintptr_t)1 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

static int fake_pop(CUcontext *context) {
  --fake_depth;
  *context = (CUcontext)(uintptr_t)1;
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

/* The stand-in has one queue, which holds the work of all streams in order. */
static int fake_stream_wait(CUstream stream, CUevent event, unsigned flags) {
  return stream != NULL && event != NULL && flags == 0 ? fake_check() : CUDA_ERROR_INVALID_VALUE;
}

static int fake_event_create(CUevent *event, unsigned flags) {
  (void)flags;
  return fake_made((void **)event);
}

static CUstream fake_recorded; /* the stream of the last event */

static int fake_event_record(CUevent event, CUstream stream) {
  int code = event != NULL && stream != NULL ? fake_check() : CUDA_ERROR_INVALID_VALUE;
  if (code == CUDA_SUCCESS) {
    *(size_t *)(void *)event = fake_queue.count;
    fake_recorded = stream;
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
    ++fake_live;
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

static int fake_accesses; /* requests for access to other devices' memory */

static int fake_enable_access(CUcontext peer, unsigned flags) {
  ++fake_accesses;
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
/* A graph, or an executable made from one: then `of` is the graph. */
typedef struct fake_graph {
  int count;
  const struct fake_graph *of;
  fake_node nodes[FAKE_NODES];
} fake_graph;

static fake_graph fake_capture;
static uint64_t fake_last; /* dependencies of the next captured node */
static bool fake_is_early; /* true if it may start while that ends */

static int fake_run_node(const fake_node *node) {
  ++fake_launches;
  fake_grid = node->grid;
  fake_block = node->block;
  fake_shared = node->shared;
  fake_parameter_bytes = node->bytes;
  memcpy(fake_parameters, node->parameters, node->bytes);
  return fake_check();
}

static int fake_attributes, fake_large_clusters; /* that were set */

static int fake_set_attribute(CUfunction function, int attribute, int value) {
  if (attribute == CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED) {
    ++fake_large_clusters;
    return function != NULL && value == 1 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  }
  ++fake_attributes;
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
  if (stream != fake_captured || id != NULL || graph != NULL || fake_is_early) { /* would be incomplete */
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (fake_names == NULL) {
    fake_names = calloc(1, sizeof *fake_names);
  }
  *status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
  *last = nodes;
  *last_count = 0;
  for (int i = 0; i < FAKE_NODES; ++i) {
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
  for (size_t i = 0; i < count; ++i) {
    fake_last |= UINT64_C(1) << ((fake_node *)(void *)nodes[i] - fake_names->nodes);
  }
  return fake_check();
}

static int fake_set_last_early(CUstream stream, CUgraphNode *nodes, const hr__cuda_edge *edges, size_t count,
                               unsigned flags) {
  for (size_t i = 0; i < count; ++i) {
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
  for (int i = 0; nodes != NULL && i < g->count; ++i) {
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
  ++fake_live;
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
    ++fake_live;
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
  for (int i = 0; code == CUDA_SUCCESS && i < graph->count; ++i) {
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
                                    .cuStreamCreate = fake_stream_create,
                                    .cuStreamSynchronize = fake_stream_synchronize,
                                    .cuStreamDestroy_v2 = fake_stream_destroy,
                                    .cuStreamWaitEvent = fake_stream_wait,
                                    .cuEventCreate = fake_event_create,
                                    .cuEventRecord = fake_event_record,
                                    .cuEventSynchronize = fake_event_synchronize,
                                    .cuEventQuery = fake_event_query,
                                    .cuEventElapsedTime = fake_elapsed,
                                    .cuEventDestroy_v2 = fake_event_destroy,
                                    .cuMemGetInfo_v2 = fake_memory,
                                    .cuMemAlloc_v2 = fake_allocate,
                                    .cuMemFree_v2 = fake_gone,
                                    .cuMemGetAddressRange_v2 = fake_range,
                                    .cuIpcGetMemHandle = fake_share,
                                    .cuIpcOpenMemHandle_v2 = fake_open_shared,
                                    .cuIpcCloseMemHandle = fake_close_shared,
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

static inline void *open_fake(void) {
  void *impl;
  fake_error = fake_live = fake_launches = 0;
  hr__cuda_replace(&fake, 1);
  HR_ASSERT_OK(DRIVER->open(0, &impl));
  HR_ASSERT_EQ(fake_depth, 0);
  return impl;
}

static inline void close_fake(void *impl) {
  DRIVER->close(impl);
  HR_ASSERT_EQ(fake_depth, 0);
  HR_ASSERT_EQ(fake_live, 0); /* nothing leaks */
  HR_ASSERT(fake_done == fake_queue.count || fake_error != 0);
  hr_vector_fini(&fake_queue);
  fake_done = 0;
  hr__cuda_replace(NULL, 0);
}

/* Opens the first GPU of this machine, or skips the test. */
static inline void *open_gpu(void) {
  void *impl;
  hr__cuda_replace(NULL, 0);
  if (DRIVER->count() == 0) {
    HR_SKIP("no CUDA device");
  }
  HR_ASSERT_OK(DRIVER->open(0, &impl));
  return impl;
}

#endif
