/* cudnn_api.h: cuDNN's C interface as far as we use it, found at run time.
 *
 * The numbers are those of the public headers of cuDNN 9 (cudnn_graph.h, cudnn_ops.h, cudnn_cnn.h). Library: libcudnn.so.9, in the
 * folders of HEADRACE_CUDA_LIBS, else where the loader looks. It needs cuBLASLt, and finds the one that
 * is open already: that provider comes first.
 */
#ifndef HEADRACE_PROVIDERS_CUDNN_CUDNN_API_H_
#define HEADRACE_PROVIDERS_CUDNN_CUDNN_API_H_

#include <stddef.h>
#include <stdint.h>

#include "headrace/status.h"

typedef struct cudnn_handle_struct *cudnn_handle;
typedef struct cudnn_tensor_struct *cudnn_tensor;
typedef struct cudnn_filter_struct *cudnn_filter;
typedef struct cudnn_convolution_struct *cudnn_convolution;

typedef struct cudnn_choice { /* cudnnConvolution{Fwd,BwdData,BwdFilter}AlgoPerf_t: one layout */
  int algorithm;
  int status;
  float time;
  size_t workspace_bytes;
  int is_deterministic;
  int math;
  int reserved[3];
} cudnn_choice;

enum {
  CUDNN_SUCCESS = 0,
  CUDNN_NOT_SUPPORTED = 3000,
  CUDNN_INTERNAL_ERROR = 4000
};                                                                    /* and finer ones up to the next thousand */
enum { CUDNN_F32 = 0, CUDNN_F64 = 1, CUDNN_F16 = 2, CUDNN_BF16 = 9 }; /* cudnnDataType_t */
enum { CUDNN_NCHW = 0, CUDNN_NHWC = 1 };                              /* cudnnTensorFormat_t */
enum { CUDNN_CROSS_CORRELATION = 1 };                                 /* cudnnConvolutionMode_t */
enum { CUDNN_DEFAULT_MATH = 0, CUDNN_TENSOR_OP_MATH = 1, CUDNN_FMA_MATH = 3 }; /* cudnnMathType_t */
enum { /* cudnnConvolution{Fwd,BwdData,BwdFilter}Algo_t */
       CUDNN_FORWARD_IMPLICIT_GEMM = 0,
       CUDNN_FORWARD_PRECOMPUTED_GEMM = 1,
       CUDNN_FORWARD_GEMM = 2,
       CUDNN_BACKWARD_DATA_1 = 1,
       CUDNN_BACKWARD_FILTER_1 = 1,
       CUDNN_BACKWARD_ATOMIC = 0 /* of data and of filter */
};

typedef struct hr__cudnn_table {
#define CUDNN_SYMBOL(type, name, args) type(*name) args;
#include "providers/cudnn/cudnn_symbols.def"
#undef CUDNN_SYMBOL
} hr__cudnn_table;

extern hr__cudnn_table hr__cudnn;
extern int (*hr__cudnn_device)(int *out_device); /* the driver's cuCtxGetDevice */

/* Finds the library; UNAVAILABLE says where it was looked for. */
HR_MUST_USE hr_status hr__cudnn_open(void);

/* The library's context for the device that is current on this thread, set to this queue: made once for each device, and kept to the
 * end. The caller has it alone until hr__cudnn_unlock; after an error there is nothing to unlock. */
HR_MUST_USE hr_status hr__cudnn_lock(void *queue, cudnn_handle *out_handle);
void hr__cudnn_unlock(void);

/* A cudnnStatus_t as a status that says what was being done. */
HR_MUST_USE hr_status hr__cudnn_status(int code, const char *what);

#endif
