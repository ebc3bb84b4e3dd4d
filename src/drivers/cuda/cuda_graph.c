/* cuda_graph.c: CUDA graphs, made by capturing a stream.
 *
 * Capture uses a stream of its own, on which nothing ever runs: other threads may copy through the device's stream
 * meanwhile, and wait for it, and none of that gets into the graph. The mode is "thread local": a call that is
 * forbidden during capture fails, on this thread alone, and the capture with it.
 *
 * Each pass of a kernel is a node. After each launch the stream's last node is that pass's node; updates find it there.
 * Kernels of one launch don't wait for each other: they are dealt to LANES chains, all after the work captured before
 * and before the work captured later.
 *
 * Kernels that wait for their predecessors themselves (HR_BEGIN in the prelude, "programmatic dependent launch") are
 * scheduled on the multiprocessors while their predecessors still run. They begin when all predecessors have ended and
 * their writes are visible. The predecessor may be any kernel, a library's too. Since each such kernel waits, a kernel
 * that waits for one of them has waited for everything before it.
 */
#include <string.h>

#include "base/log.h"
#include "base/vector.h"
#include "drivers/cuda/cuda_internal.h"

enum { LANES = 8, EARLY_ARCHITECTURE = 90 };

typedef struct hr__cuda_graph {
  CUgraph graph; /* nodes are named by it as long as the other lives */
  CUgraphExec exec;
  HR_VECTOR(CUgraphNode) nodes;  /* of all kernels' passes */
  HR_VECTOR(size_t) first_nodes; /* of each kernel */
} hr__cuda_graph;

static hr_status no_memory(void) {
  return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "cuda: no host memory for a graph");
}

/* If the device can't be made current, CUDA's calls fail and the host's memory is freed all the same. */
static void destroy(hr__cuda_graph *graph) {
  if (graph->exec != NULL) {
    (void)hr__cuda()->cuGraphExecDestroy(graph->exec);
  }
  if (graph->graph != NULL) {
    (void)hr__cuda()->cuGraphDestroy(graph->graph);
  }
  hr_vector_fini(&graph->nodes);
  hr_vector_fini(&graph->first_nodes);
  hr_free(graph);
}

/* ---- capture ---- */

static hr_status begin(hr__cuda_device *device) {
  if (device->capture_stream == NULL) {
    HR_RETURN_IF_ERROR(hr__cuda_status(hr__cuda()->cuStreamCreate(&device->capture_stream, CU_STREAM_NON_BLOCKING),
                                       "a stream to capture"));
  }
  return hr__cuda_status(
      hr__cuda()->cuStreamBeginCapture_v2(device->capture_stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
      "beginning a capture");
}

hr_status hr__cuda_capture_begin(void *impl, void **out_queue) {
  hr__cuda_device *device = impl;
  if (!hr__cuda_has_graphs()) {
    return hr_status_make(HR_STATUS_UNIMPLEMENTED, "cuda: graphs need a driver for CUDA 11.4 or later");
  }
  HR_RETURN_IF_ERROR(hr__cuda_enter(device));
  hr__cuda_graph *graph = hr_calloc(1, sizeof *graph);
  hr_status status = graph != NULL ? begin(device) : no_memory();
  hr__cuda_leave();
  if (status != HR_OK) {
    hr_free(graph);
    return status;
  }
  device->capture = graph;
  *out_queue = device->capture_stream;
  return HR_OK;
}

/* The nodes that the next captured work will wait for: CUDA's own list, valid until the next call. */
static hr_status last_nodes(hr__cuda_device *device, const CUgraphNode **out_nodes, size_t *out_count) {
  int state = 0;
  HR_RETURN_IF_ERROR(hr__cuda_status(
      hr__cuda()->cuStreamGetCaptureInfo_v2(device->capture_stream, &state, NULL, NULL, out_nodes, out_count),
      "a capture"));
  return state == CU_STREAM_CAPTURE_STATUS_ACTIVE
             ? HR_OK
             : hr_status_make(HR_STATUS_INTERNAL, "cuda: a capture is in state %d", state);
}

static hr_status wait_for(hr__cuda_device *device, CUgraphNode *nodes, size_t count) {
  return hr__cuda_status(hr__cuda()->cuStreamUpdateCaptureDependencies(device->capture_stream, nodes, count,
                                                                       CU_STREAM_SET_CAPTURE_DEPENDENCIES),
                         "the order of a graph");
}

static bool are_kernels(const CUgraphNode *nodes, size_t count) {
  bool are = true;
  for (size_t i = 0; are && i < count; ++i) {
    int type = -1;
    are = hr__cuda()->cuGraphNodeGetType(nodes[i], &type) == CUDA_SUCCESS && type == CU_GRAPH_NODE_TYPE_KERNEL;
  }
  return are;
}

hr_status hr__cuda_capture_early(hr__cuda_device *device) {
  const CUgraphNode *last = NULL;
  CUgraphNode nodes[LANES];
  hr__cuda_edge edges[LANES];
  size_t count = 0;
  if (device->capture == NULL || device->architecture < EARLY_ARCHITECTURE ||
      hr__cuda()->cuStreamUpdateCaptureDependencies_v2 == NULL) {
    return HR_OK;
  }
  HR_RETURN_IF_ERROR(last_nodes(device, &last, &count));
  if (count == 0 || count > LANES || !are_kernels(last, count)) {
    return HR_OK;
  }
  for (size_t i = 0; i < count; ++i) {
    nodes[i] = last[i];
    edges[i] = (hr__cuda_edge){.from_port = CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC,
                               .type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC};
  }
  return hr__cuda_status(hr__cuda()->cuStreamUpdateCaptureDependencies_v2(device->capture_stream, nodes, edges, count,
                                                                          CU_STREAM_SET_CAPTURE_DEPENDENCIES),
                         "an early start");
}

hr_status hr__cuda_capture_pass(hr__cuda_device *device) {
  hr__cuda_graph *graph = device->capture;
  const CUgraphNode *last = NULL;
  size_t count = 0;
  if (graph == NULL) {
    return HR_OK;
  }
  HR_RETURN_IF_ERROR(last_nodes(device, &last, &count));
  if (count != 1) {
    return hr_status_make(HR_STATUS_INTERNAL, "cuda: a captured kernel is %zu nodes", count);
  }
  return hr_vector_push(&graph->nodes, last[0]) ? HR_OK : no_memory();
}

static hr_status capture_kernel(hr__cuda_device *device, const hr_host_launch *launch) {
  hr__cuda_graph *graph = device->capture;
  return hr_vector_push(&graph->first_nodes, graph->nodes.count) ? hr__cuda_launch_kernel(device, launch) : no_memory();
}

/* Kernel i follows kernel i - LANES, the first ones follow `start`. Returns the ends of the lanes. */
static hr_status deal(hr__cuda_device *device, int count, const hr_host_launch *launches, CUgraphNode *start,
                      size_t start_count, CUgraphNode *out_ends, size_t *out_end_count) {
  const hr__cuda_graph *graph = device->capture;
  for (int i = 0; i < count; ++i) {
    size_t before = graph->nodes.count, lane = (size_t)i % LANES;
    HR_RETURN_IF_ERROR(lane < *out_end_count ? wait_for(device, &out_ends[lane], 1)
                                             : wait_for(device, start, start_count));
    HR_RETURN_IF_ERROR(capture_kernel(device, &launches[i]));
    if (graph->nodes.count > before) { /* else it has nothing to do */
      lane = lane < *out_end_count ? lane : (*out_end_count)++;
      out_ends[lane] = graph->nodes.data[graph->nodes.count - 1];
    }
  }
  return HR_OK;
}

hr_status hr__cuda_capture_launch(hr__cuda_device *device, int count, const hr_host_launch *launches) {
  const CUgraphNode *last = NULL;
  CUgraphNode ends[LANES];
  size_t start_count = 0, end_count = 0;
  if (count == 1) {
    return capture_kernel(device, launches);
  }
  HR_RETURN_IF_ERROR(last_nodes(device, &last, &start_count));
  CUgraphNode *start = hr_calloc(start_count + 1, sizeof(CUgraphNode));
  if (start == NULL) {
    return no_memory();
  }
  if (start_count > 0) {
    memcpy(start, last, start_count * sizeof *start);
  }
  hr_status status = deal(device, count, launches, start, start_count, ends, &end_count);
  if (status == HR_OK) {
    status = end_count > 0 ? wait_for(device, ends, end_count) : wait_for(device, start, start_count);
  }
  hr_free(start);
  return status;
}

/* Logs a graph's nodes, for debugging. */
static void log_nodes(const hr__cuda_graph *graph) {
  size_t count = 0, kernels = 0, memsets = 0;
  int code = hr__cuda()->cuGraphGetNodes(graph->graph, NULL, &count);
  CUgraphNode *nodes = code == CUDA_SUCCESS ? hr_calloc(count + 1, sizeof(CUgraphNode)) : NULL;
  if (nodes != NULL && hr__cuda()->cuGraphGetNodes(graph->graph, nodes, &count) == CUDA_SUCCESS) {
    for (size_t i = 0; i < count; ++i) {
      int type = -1;
      (void)hr__cuda()->cuGraphNodeGetType(nodes[i], &type);
      kernels += type == CU_GRAPH_NODE_TYPE_KERNEL;
      memsets += type == CU_GRAPH_NODE_TYPE_MEMSET;
    }
    hr_log(HR_LOG_DEVICE, "a graph of %zu nodes: %zu kernels, %zu of them ours, %zu memsets", count, kernels,
           graph->nodes.count, memsets);
  }
  hr_free(nodes);
}

hr_status hr__cuda_capture_end(void *impl, void **out_graph) {
  hr__cuda_device *device = impl;
  hr__cuda_graph *graph = device->capture;
  device->capture = NULL;
  hr_status entered = hr__cuda_enter(device);
  if (entered != HR_OK) {
    destroy(graph);
    return entered;
  }
  hr_status status =
      hr__cuda_status(hr__cuda()->cuStreamEndCapture(device->capture_stream, &graph->graph), "ending a capture");
  if (status == HR_OK && out_graph != NULL) {
    status = hr__cuda_status(hr__cuda()->cuGraphInstantiateWithFlags(&graph->exec, graph->graph, 0), "making a graph");
    if (status == HR_OK && hr_log_is_on(HR_LOG_DEVICE)) {
      log_nodes(graph);
    }
  }
  if (status != HR_OK || out_graph == NULL) {
    destroy(graph);
  } else {
    *out_graph = graph;
  }
  hr__cuda_leave();
  return status;
}

/* ---- use ---- */

/* Sets other parameters for a kernel's passes; passes with nothing to do have no node. */
static hr_status update(const hr__cuda_graph *graph, size_t node, const hr_device_kernel *kernel, uint64_t *words) {
  void *parameters[] = {words};
  for (int pass = 0; pass < kernel->base.pass_count; ++pass) {
    if (kernel->blocks[pass] > 0) {
      const hr__cuda_kernel_node params = {.function = kernel->functions[pass],
                                           .grid = {(unsigned)kernel->blocks[pass], 1, 1},
                                           .block = {(unsigned)kernel->threads[pass], 1, 1},
                                           .shared_bytes = (unsigned)kernel->shared[pass],
                                           .parameters = parameters};
      int code = hr__cuda()->cuGraphExecKernelNodeSetParams(graph->exec, graph->nodes.data[node++], &params);
      HR_RETURN_IF_ERROR(hr__cuda_status(code, "other arguments for a graph's kernel"));
    }
  }
  return HR_OK;
}

hr_status hr__cuda_graph_update(void *impl, void *graph, int index, const hr_host_launch *launch) {
  const hr__cuda_graph *self = graph;
  const hr_device_kernel *kernel = (const hr_device_kernel *)launch->kernel;
  uint64_t words[HR_CUDA_WORDS_MAX];
  size_t bytes;
  HR_RETURN_IF_ERROR(hr__cuda_pack(kernel, &launch->call, words, &bytes));
  HR_RETURN_IF_ERROR(hr__cuda_enter(impl));
  hr_status status = update(self, self->first_nodes.data[index], kernel, words);
  hr__cuda_leave();
  return status;
}

hr_status hr__cuda_graph_launch(void *impl, void *graph) {
  hr__cuda_device *device = impl;
  const hr__cuda_graph *self = graph;
  HR_RETURN_IF_ERROR(hr__cuda_enter(device));
  int code = hr__cuda()->cuGraphLaunch(self->exec, device->stream);
  hr__cuda_leave();
  return hr__cuda_status(code, "launching a graph");
}

/* CUDA does not document, for all versions, the destruction of a graph in flight. */
void hr__cuda_graph_destroy(void *impl, void *graph) {
  hr__cuda_device *device = impl;
  if (graph == NULL) {
    return;
  }
  hr_status entered = hr__cuda_enter(device);
  hr__cuda_wait(device);
  destroy(graph);
  if (entered == HR_OK) {
    hr__cuda_leave();
  }
  hr_status_ignore(entered);
}
