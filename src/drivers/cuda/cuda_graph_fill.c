/* cuda_graph_fill.c: memsets of a graph become kernels.
 *
 *   before   kernel -> memset -> kernel of a product        after   kernel -> fill -> kernel of a product
 *
 * Libraries clear counters in their workspace before kernels that share sums between blocks. In a stream that costs about what a
 * kernel costs; in a graph it cuts a chain of kernels, which the device would run through by itself, in two. The kernel's text is
 * compiled when the first graph has a memset; without NVRTC memsets stay what they are.
 */
#include <string.h>

#include "base/log.h"
#include "base/vector.h"
#include "drivers/cuda/cuda_internal.h"
#include "drivers/cuda/nvrtc.h"

enum { THREADS = 256, BLOCKS_MOST = 1024 };

static const char text[] = "struct fill { unsigned char *to; unsigned long long pitch, value, size, width, height; };\n"
                           "extern \"C\" __global__ void hr_fill(fill f) {\n"
                           "  unsigned long long i = blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x;\n"
                           "  for (; i < f.width * f.height; i += gridDim.x * (unsigned long long)blockDim.x) {\n"
                           "    unsigned char *to = f.to + i / f.width * f.pitch + i % f.width * f.size;\n"
                           "    if (f.size == 4) *(unsigned *)to = (unsigned)f.value;\n"
                           "    else if (f.size == 2) *(unsigned short *)to = (unsigned short)f.value;\n"
                           "    else *to = (unsigned char)f.value;\n"
                           "  }\n"
                           "}\n";

/* The kernel's one parameter. */
typedef struct fill {
  void *to;
  uint64_t pitch, value, size, width, height;
} fill;

static hr_status load_kernel(hr__cuda_device *device) {
  hr_text image = {0};
  hr_status status = hr__nvrtc_compile(device->architecture, text, sizeof text - 1, &image);
  if (status == NULL) {
    status =
        hr__cuda_status(hr__cuda.cuModuleLoadData(&device->fill_module, hr_text_chars(&image)), "a kernel to fill");
  }
  if (status == NULL) {
    int code = hr__cuda.cuModuleGetFunction(&device->fill_function, device->fill_module, "hr_fill");
    status = hr__cuda_status(code, "a kernel to fill");
  }
  hr_text_fini(&image);
  return status;
}

typedef int list_fn(CUgraphNode node, CUgraphNode *nodes, size_t *count);

/* The neighbours of a node; hr_free ends the list. */
static hr_status list_neighbours(list_fn *list, CUgraphNode node, CUgraphNode **out_nodes, size_t *out_count) {
  size_t count = 0;
  HR_RETURN_IF_ERROR(hr__cuda_status(list(node, NULL, &count), "a graph's edges"));
  CUgraphNode *nodes = hr_calloc(count + 1, sizeof(CUgraphNode));
  if (nodes == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "cuda: no host memory for a graph");
  }
  hr_status status = count > 0 ? hr__cuda_status(list(node, nodes, &count), "a graph's edges") : HR_OK;
  if (status != NULL) {
    hr_free(nodes);
    return status;
  }
  *out_nodes = nodes;
  *out_count = count;
  return HR_OK;
}

/* Puts a kernel between the same neighbours, and takes the memset away. */
static hr_status replace(const hr__cuda_device *device, CUgraph graph, CUgraphNode memset_node,
                         const hr__cuda_memset_node *set, const CUgraphNode *before, size_t before_count,
                         const CUgraphNode *behind, size_t behind_count) {
  fill f = {set->to, set->pitch, set->value, set->size, set->width, set->height};
  uint64_t blocks = ((uint64_t)set->width * set->height + THREADS - 1) / THREADS;
  void *parameters[] = {&f};
  const hr__cuda_kernel_node kernel = {.function = device->fill_function,
                                       .grid = {blocks < BLOCKS_MOST ? (unsigned)blocks : BLOCKS_MOST, 1, 1},
                                       .block = {THREADS, 1, 1},
                                       .parameters = parameters};
  CUgraphNode made = NULL;
  int code = hr__cuda.cuGraphAddKernelNode(&made, graph, before, before_count, &kernel);
  for (size_t i = 0; code == CUDA_SUCCESS && i < behind_count; i++) {
    code = hr__cuda.cuGraphAddDependencies(graph, &made, &behind[i], 1);
  }
  if (code == CUDA_SUCCESS) {
    code = hr__cuda.cuGraphDestroyNode(memset_node);
  }
  return hr__cuda_status(code, "a kernel for a memset");
}

static hr_status replace_memset(hr__cuda_device *device, CUgraph graph, CUgraphNode node) {
  hr__cuda_memset_node set;
  CUgraphNode *before = NULL, *behind = NULL;
  size_t before_count = 0, behind_count = 0;
  HR_RETURN_IF_ERROR(hr__cuda_status(hr__cuda.cuGraphMemsetNodeGetParams(node, &set), "a graph's memset"));
  hr_status status = list_neighbours(hr__cuda.cuGraphNodeGetDependencies, node, &before, &before_count);
  if (status == NULL) {
    status = list_neighbours(hr__cuda.cuGraphNodeGetDependentNodes, node, &behind, &behind_count);
  }
  if (status == NULL) {
    status = replace(device, graph, node, &set, before, before_count, behind, behind_count);
  }
  hr_free(before);
  hr_free(behind);
  return status;
}

/* Whether there is a kernel to take their place; tries once. */
static bool has_kernel(hr__cuda_device *device) {
  if (device->fill_function == NULL && !device->cannot_fill) {
    hr_status status = load_kernel(device);
    device->cannot_fill = status != NULL;
    hr_log(HR_LOG_DEVICE, "a kernel in place of memsets: %s", hr_status_message(status));
    hr_status_ignore(status);
  }
  return !device->cannot_fill;
}

static hr_status replace_all(hr__cuda_device *device, CUgraph graph, size_t count, CUgraphNode *nodes) {
  size_t replaced = 0, others = 0;
  for (size_t i = 0; i < count; i++) {
    int type = -1;
    HR_RETURN_IF_ERROR(hr__cuda_status(hr__cuda.cuGraphNodeGetType(nodes[i], &type), "a graph's nodes"));
    if (type == CU_GRAPH_NODE_TYPE_MEMSET && has_kernel(device)) {
      HR_RETURN_IF_ERROR(replace_memset(device, graph, nodes[i]));
      replaced++;
    } else {
      others += type != CU_GRAPH_NODE_TYPE_KERNEL;
    }
  }
  hr_log(HR_LOG_DEVICE, "a graph of %zu nodes: %zu memsets became kernels, %zu others are none", count, replaced,
         others);
  return HR_OK;
}

hr_status hr__cuda_graph_fill(hr__cuda_device *device, CUgraph graph) {
  size_t count = 0;
  HR_RETURN_IF_ERROR(hr__cuda_status(hr__cuda.cuGraphGetNodes(graph, NULL, &count), "a graph's nodes"));
  CUgraphNode *nodes = hr_calloc(count + 1, sizeof(CUgraphNode));
  if (nodes == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "cuda: no host memory for a graph");
  }
  hr_status status =
      count > 0 ? hr__cuda_status(hr__cuda.cuGraphGetNodes(graph, nodes, &count), "a graph's nodes") : HR_OK;
  if (status == NULL) {
    status = replace_all(device, graph, count, nodes);
  }
  hr_free(nodes);
  return status;
}
