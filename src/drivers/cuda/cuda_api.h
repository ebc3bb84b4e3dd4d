/* cuda_api.h: the part of the CUDA driver's C interface that we use, found at run time.
 *
 * The library is libcuda.so.1, which comes with the kernel driver and supports older programs: the entry points are
 * those of CUDA 11, which later drivers keep. The numbers are those of CUDA's public header cuda.h.
 */
#ifndef HEADRACE_DRIVERS_CUDA_CUDA_API_H_
#define HEADRACE_DRIVERS_CUDA_CUDA_API_H_

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/context.h"
#include "base/vendor.h"
#include "headrace/status.h"

typedef struct CUctx_st *CUcontext;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphExec_st *CUgraphExec;
typedef struct CUgraphNode_st *CUgraphNode;

enum {
  CUDA_SUCCESS = 0,
  CUDA_ERROR_INVALID_VALUE = 1,
  CUDA_ERROR_OUT_OF_MEMORY = 2,
  CUDA_ERROR_NO_DEVICE = 100,
  CUDA_ERROR_INVALID_CONTEXT = 201,
  CUDA_ERROR_NOT_FOUND = 500,
  CUDA_ERROR_NOT_READY = 600,
  CUDA_ERROR_ILLEGAL_ADDRESS = 700,
  CUDA_ERROR_NOT_SUPPORTED = 801,
  CUDA_ERROR_STREAM_CAPTURE_INVALIDATED = 901
};
enum {
  CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16,
  CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE = 36,       /* kHz */
  CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH = 37, /* bits */
  CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
  CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,
  CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97
};
enum { CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED = 14 };
enum { CU_STREAM_NON_BLOCKING = 1, CU_EVENT_DEFAULT = 0, CU_EVENT_DISABLE_TIMING = 2, CU_MEMHOSTALLOC_PORTABLE = 1 };
enum {
  CU_STREAM_CAPTURE_MODE_THREAD_LOCAL = 1,
  CU_STREAM_CAPTURE_STATUS_ACTIVE = 1,
  CU_STREAM_SET_CAPTURE_DEPENDENCIES = 1
};
enum { CU_GRAPH_NODE_TYPE_KERNEL = 0, CU_GRAPH_NODE_TYPE_MEMSET = 2 };
enum { CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC = 1, CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC = 1 };

enum { CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS = 1 };

/* Keys of cuLaunchKernel's `extra`: each is followed by the address of the parameters, or of their size in bytes. */
#define CU_LAUNCH_PARAM_END ((void *)0)
#define CU_LAUNCH_PARAM_BUFFER_POINTER ((void *)1)
#define CU_LAUNCH_PARAM_BUFFER_SIZE ((void *)2)

/* CUDA_KERNEL_NODE_PARAMS_v1: parameters are passed in one of two forms, as with cuLaunchKernel. */
typedef struct hr__cuda_kernel_node {
  CUfunction function;
  unsigned grid[3], block[3], shared_bytes;
  void **parameters, **extra;
} hr__cuda_kernel_node;

/* CUgraphEdgeData. */
typedef struct hr__cuda_edge {
  unsigned char from_port, to_port, type, reserved[5];
} hr__cuda_edge;

/* CUipcMemHandle. */
typedef struct hr__cuda_shared {
  unsigned char name[64];
} hr__cuda_shared;

typedef struct hr__cuda_table {
#define CUDA_SYMBOL(name, args) int(*name) args;
#include "drivers/cuda/cuda_symbols.def"
  /* NULL if the driver does not have them. */
#include "drivers/cuda/cuda_graph_symbols.def"
  /* after the graph functions */
#include "drivers/cuda/cuda_edge_symbols.def"
#undef CUDA_SYMBOL
} hr__cuda_table;

/* The driver's library, once per process. */
typedef struct hr__cuda_library {
  hr_vendor vendor;
  hr__cuda_table table;
  int device_count;
  hr_mutex openings_mutex;
  struct hr__cuda_device *openings; /* all open devices */
  atomic_uint_least64_t unloads;    /* of modules */
  atomic_size_t model_bytes;        /* allocated by the model of a GPU */
} hr__cuda_library;

extern const hr_context_part hr__cuda_library_kind;

static inline hr__cuda_library *hr__cuda_opened(void) {
  return hr__context_part(&hr__context_first, HR_CONTEXT_CUDA, &hr__cuda_library_kind);
}

static inline const hr__cuda_table *hr__cuda(void) {
  return &hr__cuda_opened()->table;
}

/* Loads and initializes the library; later calls return the first one's result. *out_count devices, at least 1; an
 * error gives the reason why there are none. Threads: any. */
HR_MUST_USE hr_status hr__cuda_open(int *out_count);

/* True if all functions for graphs are present. */
bool hr__cuda_has_graphs(void);

/* The functions of a model of a GPU (base/gpu_model.h). */
extern const hr__cuda_table hr__cuda_model_table;

/* Another table and its number of devices; NULL searches for the library again. No device may be open. */
void hr__cuda_replace(const hr__cuda_table *table, int count);

/* A CUresult as a status that names the failed action and CUDA's name and text of the error; OK for CUDA_SUCCESS. */
HR_MUST_USE hr_status hr__cuda_status(int code, const char *what);

#endif
