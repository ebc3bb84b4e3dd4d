/* cublaslt_api.h: the part of cuBLASLt's C interface that we use, found at run time.
 *
 * The numbers are those of the public headers of CUDA 12 and 13 (cublasLt.h, cublas_api.h, library_types.h). Library:
 * libcublasLt.so.13, else .12, in the folders of HEADRACE_CUDA_LIBS, else in the loader's path.
 */
#ifndef HEADRACE_PROVIDERS_CUBLASLT_CUBLASLT_API_H_
#define HEADRACE_PROVIDERS_CUBLASLT_CUBLASLT_API_H_

#include <stddef.h>
#include <stdint.h>

#include "base/context.h"
#include "base/vendor.h"
#include "headrace/status.h"

typedef struct cublaslt_handle_struct *cublaslt_handle;
typedef struct cublaslt_matmul_desc_struct *cublaslt_matmul_desc;
typedef struct cublaslt_layout_struct *cublaslt_layout;
typedef struct cublaslt_preference_struct *cublaslt_preference;

typedef struct cublaslt_algo { /* cublasLtMatmulAlgo_t */
  uint64_t data[8];
} cublaslt_algo;

typedef struct cublaslt_heuristic { /* cublasLtMatmulHeuristicResult_t */
  cublaslt_algo algo;
  size_t workspace_bytes;
  int status; /* the other fields are valid only if this is CUBLASLT_SUCCESS */
  float waves;
  int reserved[4];
} cublaslt_heuristic;

enum { CUBLASLT_SUCCESS = 0, CUBLASLT_ALLOC_FAILED = 3, CUBLASLT_NOT_SUPPORTED = 15 };
enum { CUDA_F32 = 0, CUDA_F64 = 1, CUDA_F16 = 2, CUDA_BF16 = 14 };                         /* cudaDataType_t */
enum { CUBLASLT_COMPUTE_F32 = 68, CUBLASLT_COMPUTE_F64 = 70, CUBLASLT_COMPUTE_TF32 = 77 }; /* cublasComputeType_t */
enum { CUBLASLT_OP_N = 0, CUBLASLT_OP_T = 1 };
enum {                                 /* CUBLASLT_MATMUL_DESC_.. */
       CUBLASLT_DESC_TRANSPOSE_A = 3,  /* int32_t */
       CUBLASLT_DESC_TRANSPOSE_B = 4,  /* int32_t */
       CUBLASLT_DESC_EPILOGUE = 7,     /* uint32_t */
       CUBLASLT_DESC_BIAS_POINTER = 8, /* const void * */
};
enum { CUBLASLT_EPILOGUE_BIAS = 4 };
enum {                                  /* CUBLASLT_MATRIX_LAYOUT_.. */
       CUBLASLT_LAYOUT_BATCH_COUNT = 5, /* int32_t */
       CUBLASLT_LAYOUT_BATCH_STRIDE = 6 /* int64_t, elements */
};
enum {                                      /* CUBLASLT_MATMUL_PREF_.. */
       CUBLASLT_PREFER_WORKSPACE_BYTES = 1, /* uint64_t, at most */
       CUBLASLT_PREFER_REDUCTIONS = 3,      /* uint32_t, a mask */
       CUBLASLT_PREFER_ALIGNMENT_A = 5,     /* uint32_t, bytes */
       CUBLASLT_PREFER_ALIGNMENT_B = 6,
       CUBLASLT_PREFER_ALIGNMENT_C = 7,
       CUBLASLT_PREFER_ALIGNMENT_D = 8
};
enum { CUBLASLT_REDUCTION_COMPUTE_TYPE = 2 };

typedef struct hr__cublaslt_table {
#define CUBLASLT_SYMBOL(type, name, args) type(*name) args;
#include "providers/cublaslt/cublaslt_symbols.def"
#undef CUBLASLT_SYMBOL
} hr__cublaslt_table;

enum { HR__CUBLASLT_DEVICES_MAX = 64 };

/* The library, once per process. */
typedef struct hr__cublaslt_library {
  hr_vendor vendor;
  hr__cublaslt_table table;
  int (*device)(int *out_device); /* the driver's cuCtxGetDevice */
  hr_mutex handles_mutex;
  cublaslt_handle handles[HR__CUBLASLT_DEVICES_MAX];
  char version[32];
} hr__cublaslt_library;

extern const hr_context_part hr__cublaslt_library_kind;

static inline hr__cublaslt_library *hr__cublaslt_opened(void) {
  return hr__context_part(&hr__context_first, HR_CONTEXT_CUBLASLT, &hr__cublaslt_library_kind);
}

static inline const hr__cublaslt_table *hr__cublaslt(void) {
  return &hr__cublaslt_opened()->table;
}

/* Finds the library; UNAVAILABLE lists the places searched. */
HR_MUST_USE hr_status hr__cublaslt_open(void);

/* The library's context for the device that is current on this thread: created once for each device and never
 * destroyed. Any thread. */
HR_MUST_USE hr_status hr__cublaslt_handle(cublaslt_handle *out_handle);

/* A cublasStatus_t as a status that names the failed action. */
HR_MUST_USE hr_status hr__cublaslt_status(int code, const char *what);

#endif
