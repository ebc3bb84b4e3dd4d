/* cudnn_api.h: the part of cuDNN's C interface that we use, found at run time.
 *
 * The numbers are those of the public headers of cuDNN 9 (cudnn_graph.h). Library: libcudnn.so.9, in the folders of
 * HEADRACE_CUDA_LIBS, else in the loader's path. It needs cuBLASLt, and finds the one that is already open: that
 * provider comes first.
 */
#ifndef HEADRACE_PROVIDERS_CUDNN_CUDNN_API_H_
#define HEADRACE_PROVIDERS_CUDNN_CUDNN_API_H_

#include <stddef.h>
#include <stdint.h>

#include "base/context.h"
#include "base/vendor.h"
#include "headrace/status.h"

typedef struct cudnn_handle_struct *cudnn_handle;
typedef struct cudnn_descriptor_struct *cudnn_descriptor; /* of any kind */

enum {
  CUDNN_SUCCESS = 0,
  CUDNN_NOT_SUPPORTED = 3000,
  CUDNN_INTERNAL_ERROR = 4000
};                                                                    /* and finer ones up to the next thousand */
enum { CUDNN_F32 = 0, CUDNN_F64 = 1, CUDNN_F16 = 2, CUDNN_BF16 = 9 }; /* cudnnDataType_t */
enum { CUDNN_CROSS_CORRELATION = 1 };                                 /* cudnnConvolutionMode_t */
enum { CUDNN_ADD = 0, CUDNN_RELU = 100 };                             /* cudnnPointwiseMode_t */
enum { CUDNN_PROPAGATE_NAN = 1 };                                     /* cudnnNanPropagation_t */
enum { CUDNN_HEURISTIC_INSTANT = 0, CUDNN_HEURISTIC_FALLBACK = 2, CUDNN_HEURISTIC_A = 3 }; /* cudnnBackendHeurMode_t */

enum { /* cudnnBackendDescriptorType_t */
       CUDNN_POINT = 0,
       CUDNN_WINDOW = 1,
       CUDNN_ENGINE = 2,
       CUDNN_ENGINE_CONFIG = 3,
       CUDNN_HEURISTIC = 4,
       CUDNN_PLAN = 5,
       CUDNN_CONV = 10,
       CUDNN_CONV_BACKWARD_WEIGHT = 11,
       CUDNN_CONV_BACKWARD_DATA = 12,
       CUDNN_POINTWISE = 13,
       CUDNN_GRAPH = 15,
       CUDNN_PACK = 16,
       CUDNN_TENSOR = 17
};

enum { /* cudnnBackendAttributeType_t */
       CUDNN_TYPE_HANDLE = 0,
       CUDNN_TYPE_DTYPE = 1,
       CUDNN_TYPE_BOOL = 2,
       CUDNN_TYPE_INT64 = 3,
       CUDNN_TYPE_F32 = 4,
       CUDNN_TYPE_F64 = 5,
       CUDNN_TYPE_POINTER = 6,
       CUDNN_TYPE_CONVOLUTION_MODE = 7,
       CUDNN_TYPE_HEURISTIC_MODE = 8,
       CUDNN_TYPE_NAN_PROPAGATION = 10,
       CUDNN_TYPE_NOTE = 11,
       CUDNN_TYPE_POINT_MODE = 14,
       CUDNN_TYPE_DESCRIPTOR = 15,
       CUDNN_TYPE_BEHAVIOR = 19
};

enum { /* cudnnBackendAttributeName_t */
       CUDNN_POINT_MODE = 0,
       CUDNN_POINT_COMPUTE = 1,
       CUDNN_POINT_NAN_PROPAGATION = 2,
       CUDNN_WINDOW_COMPUTE = 100,
       CUDNN_WINDOW_MODE = 101,
       CUDNN_WINDOW_DILATIONS = 102,
       CUDNN_WINDOW_STRIDES = 103,
       CUDNN_WINDOW_PADDING_AFTER = 104,
       CUDNN_WINDOW_PADDING_BEFORE = 105,
       CUDNN_WINDOW_SPATIAL = 106,
       CUDNN_HEURISTIC_MODE = 200,
       CUDNN_HEURISTIC_GRAPH = 201,
       CUDNN_HEURISTIC_RESULTS = 202,
       CUDNN_ENGINE_CONFIG_ENGINE = 300,
       CUDNN_PLAN_HANDLE = 400,
       CUDNN_PLAN_CONFIG = 401,
       CUDNN_PLAN_WORKSPACE = 402,
       CUDNN_CONV_ATTRIBUTES = 700, /* of a convolution: alpha, beta, window, w, x, y */
       CUDNN_CONV_BACKWARD_DATA_ATTRIBUTES = 706,
       CUDNN_CONV_BACKWARD_WEIGHT_ATTRIBUTES = 712, /* of both gradients: alpha, beta, window, and the operands */
       CUDNN_POINTWISE_POINT = 750, /* of an element-wise operation: its kind, x, the other operand, y */
       CUDNN_POINTWISE_X = 751,
       CUDNN_POINTWISE_OTHER = 752,
       CUDNN_POINTWISE_Y = 753,
       CUDNN_GRAPH_HANDLE = 800,
       CUDNN_GRAPH_OPERATIONS = 801,
       CUDNN_TENSOR_ALIGNMENT = 900,
       CUDNN_TENSOR_DTYPE = 901,
       CUDNN_TENSOR_DIMS = 902,
       CUDNN_TENSOR_STRIDES = 903,
       CUDNN_TENSOR_ID = 906,
       CUDNN_TENSOR_IS_VIRTUAL = 907,
       CUDNN_PACK_IDS = 1000,
       CUDNN_PACK_POINTERS = 1001,
       CUDNN_PACK_WORKSPACE = 1003,
       CUDNN_ENGINE_NOTES = 1303,
       CUDNN_ENGINE_BEHAVIORS = 1305
};

enum { /* cudnnBackendNumericalNote_t */
       CUDNN_NOTE_TENSOR_CORE = 0,
       CUDNN_NOTE_NARROWED_INPUTS = 1,
       CUDNN_NOTE_NARROWED_SUMS = 2,
       CUDNN_NOTE_FOURIER = 3,
       CUDNN_NOTE_NONDETERMINISTIC = 4,
       CUDNN_NOTE_WINOGRAD = 5,
       CUDNN_NOTES_MOST = 32
};

enum { CUDNN_BEHAVIOR_COMPILES = 0 }; /* cudnnBackendBehaviorNote_t */

typedef struct hr__cudnn_table {
#define CUDNN_SYMBOL(type, name, args) type(*name) args;
#include "providers/cudnn/cudnn_symbols.def"
#undef CUDNN_SYMBOL
} hr__cudnn_table;

/* The functions of libcuda used here in addition to the library, for the device that is current on the calling thread.
 */
typedef struct hr__cudnn_driver_table {
  int (*CtxGetDevice)(int *device);
  int (*MemAlloc_v2)(uint64_t *address, size_t bytes);
  int (*MemFree_v2)(uint64_t address);
  int (*MemsetD8_v2)(uint64_t address, unsigned char value, size_t count);
  int (*MemcpyDtoH_v2)(void *host, uint64_t address, size_t bytes);
} hr__cudnn_driver_table;

struct hr__conv_plan;
enum { HR__CUDNN_DEVICES_MAX = 64 };

/* The library, once per process. */
typedef struct hr__cudnn_library {
  hr_vendor vendor;
  hr__cudnn_table table;
  hr__cudnn_driver_table driver;
  hr_mutex handles_mutex, plans_mutex;
  cudnn_handle handles[HR__CUDNN_DEVICES_MAX];
  struct hr__conv_plan *plans; /* conv_plan.c's */
  char version[32];
} hr__cudnn_library;

extern const hr_context_part hr__cudnn_library_kind;

static inline hr__cudnn_library *hr__cudnn_opened(void) {
  return hr__context_part(&hr__context_first, HR_CONTEXT_CUDNN, &hr__cudnn_library_kind);
}

static inline const hr__cudnn_table *hr__cudnn(void) {
  return &hr__cudnn_opened()->table;
}

static inline const hr__cudnn_driver_table *hr__cudnn_driver(void) {
  return &hr__cudnn_opened()->driver;
}

/* Finds the library; UNAVAILABLE lists the places searched. */
HR_MUST_USE hr_status hr__cudnn_open(void);

/* The library's context for the device that is current on this thread, set to this queue: created once for each device
 * and never destroyed. The caller has exclusive use until hr__cudnn_unlock; after an error there is nothing to unlock.
 */
HR_MUST_USE hr_status hr__cudnn_lock(void *queue, cudnn_handle *out_handle);
void hr__cudnn_unlock(void);

/* A cudnnStatus_t as a status that names the failed action. */
HR_MUST_USE hr_status hr__cudnn_status(int code, const char *what);

#endif
