/* matmul.c: the cuBLASLt provider: batched matrix products in f32, f64, f16 and bf16 on NVIDIA GPUs.
 *
 * Narrow factors are multiplied exactly and summed in f32; f32 stays f32 unless HEADRACE_TF32=all. On Hopper large
 * products of f32 come as products of parts (compiler/split_products.c) on request. Bias is added by the library's
 * epilogue. Its other epilogues are not used: its GELU differs from ours in the last bits, and the result of its ReLU
 * for NaN is not documented.
 *
 * A prepared product gives the same bits every time. The algorithm is fixed once: the library's first choice, or one of
 * the next that autotuning prefers. If it splits the sums, the parts go to the workspace in the type of the sums, and
 * one kernel adds them in a fixed order. Two reduction schemes are excluded: the one that adds to the output in turns,
 * rounding each time, and the one that rounds the parts.
 */
#include <stdio.h>
#include <string.h>

#include "base/allocator.h"
#include "base/env.h"
#include "providers/cublaslt/cublaslt_api.h"
#include "providers/cublaslt/product.h"
#include "providers/cuda_limits.h"
#include "providers/provider.h"

enum { WORKSPACE_MOST = 32 << 20, WORKSPACE_ALIGNMENT = 256, HEURISTICS = 8 };
/* Our workspace is aligned to 64. */
enum { WORKSPACE_SLACK = WORKSPACE_ALIGNMENT - PRODUCT_ALIGNMENT };

struct hr_prepared {
  cublaslt_product product;
  cublaslt_handle handle;
  cublaslt_matmul_desc desc;
  cublaslt_layout layouts[PRODUCT_MATRICES];
  cublaslt_algo algo;
  size_t workspace_bytes;
};

typedef struct dtype_row {
  int storage, compute, scale;
} dtype_row;

static dtype_row dtype_of(hr_dtype dtype) {
  switch (dtype) {
    case HR_DTYPE_F64:
      return (dtype_row){CUDA_F64, CUBLASLT_COMPUTE_F64, CUDA_F64};
    case HR_DTYPE_F16:
      return (dtype_row){CUDA_F16, CUBLASLT_COMPUTE_F32, CUDA_F32};
    case HR_DTYPE_BF16:
      return (dtype_row){CUDA_BF16, CUBLASLT_COMPUTE_F32, CUDA_F32};
    default: {
      bool is_tf32 = hr_env_choice(HR_ENV_TF32) == HR_ENV_TF32_ALL;
      return (dtype_row){CUDA_F32, is_tf32 ? CUBLASLT_COMPUTE_TF32 : CUBLASLT_COMPUTE_F32, CUDA_F32};
    }
  }
}

static bool supports(const hr_program *program, const hr_node *node) {
  (void)program;
  cublaslt_product p;
  return hr__cublaslt_product(node, &p);
}

static void release(hr_prepared *p) {
  if (p == NULL) {
    return;
  }
  for (int i = 0; i < PRODUCT_MATRICES; ++i) {
    if (p->layouts[i] != NULL) {
      (void)hr__cublaslt()->MatrixLayoutDestroy(p->layouts[i]);
    }
  }
  if (p->desc != NULL) {
    (void)hr__cublaslt()->MatmulDescDestroy(p->desc);
  }
  hr_free(p);
}

/* ---- descriptors ---- */

static hr_status set_bias_pointer(const hr_prepared *p, const void *address) {
  return hr__cublaslt_status(
      hr__cublaslt()->MatmulDescSetAttribute(p->desc, CUBLASLT_DESC_BIAS_POINTER, &address, sizeof address),
      "the address of a bias");
}

static hr_status make_desc(hr_prepared *p, dtype_row dtype) {
  const int32_t ops[2] = {p->product.matrices[PRODUCT_A].is_transposed ? CUBLASLT_OP_T : CUBLASLT_OP_N,
                          p->product.matrices[PRODUCT_B].is_transposed ? CUBLASLT_OP_T : CUBLASLT_OP_N};
  const uint32_t epilogue = CUBLASLT_EPILOGUE_BIAS;
  int code = hr__cublaslt()->MatmulDescCreate(&p->desc, dtype.compute, dtype.scale);
  if (code == CUBLASLT_SUCCESS) {
    code = hr__cublaslt()->MatmulDescSetAttribute(p->desc, CUBLASLT_DESC_TRANSPOSE_A, &ops[0], sizeof ops[0]);
  }
  if (code == CUBLASLT_SUCCESS) {
    code = hr__cublaslt()->MatmulDescSetAttribute(p->desc, CUBLASLT_DESC_TRANSPOSE_B, &ops[1], sizeof ops[1]);
  }
  if (code == CUBLASLT_SUCCESS && p->product.has_bias) {
    code = hr__cublaslt()->MatmulDescSetAttribute(p->desc, CUBLASLT_DESC_EPILOGUE, &epilogue, sizeof epilogue);
  }
  HR_RETURN_IF_ERROR(hr__cublaslt_status(code, "a product's descriptor"));
  /* The algorithm search uses only the alignment of the address. */
  return p->product.has_bias ? set_bias_pointer(p, (const void *)(uintptr_t)p->product.bias_alignment) : HR_OK;
}

static hr_status make_layout(hr_prepared *p, int at) {
  const product_matrix *m = &p->product.matrices[at];
  const dtype_row dtype = dtype_of(m->dtype);
  const int32_t batch = (int32_t)p->product.batch;
  int code = hr__cublaslt()->MatrixLayoutCreate(&p->layouts[at], dtype.storage, (uint64_t)m->rows, (uint64_t)m->columns,
                                                m->leading);
  if (code == CUBLASLT_SUCCESS && batch > 1) {
    code = hr__cublaslt()->MatrixLayoutSetAttribute(p->layouts[at], CUBLASLT_LAYOUT_BATCH_COUNT, &batch, sizeof batch);
  }
  if (code == CUBLASLT_SUCCESS && batch > 1) {
    code = hr__cublaslt()->MatrixLayoutSetAttribute(p->layouts[at], CUBLASLT_LAYOUT_BATCH_STRIDE, &m->batch_stride,
                                                    sizeof m->batch_stride);
  }
  return hr__cublaslt_status(code, "a matrix's layout");
}

/* ---- the algorithm ---- */

static int set_preferences(cublaslt_preference preference, const cublaslt_product *p) {
  static const int attributes[] = {CUBLASLT_PREFER_ALIGNMENT_A, CUBLASLT_PREFER_ALIGNMENT_B,
                                   CUBLASLT_PREFER_ALIGNMENT_D};
  const uint64_t workspace = WORKSPACE_MOST;
  const uint32_t reductions = CUBLASLT_REDUCTION_COMPUTE_TYPE, out = p->matrices[PRODUCT_D].alignment;
  int code = hr__cublaslt()->MatmulPreferenceSetAttribute(preference, CUBLASLT_PREFER_WORKSPACE_BYTES, &workspace,
                                                          sizeof workspace);
  if (code == CUBLASLT_SUCCESS) {
    code = hr__cublaslt()->MatmulPreferenceSetAttribute(preference, CUBLASLT_PREFER_REDUCTIONS, &reductions,
                                                        sizeof reductions);
  }
  for (int i = 0; code == CUBLASLT_SUCCESS && i < PRODUCT_MATRICES; ++i) {
    code = hr__cublaslt()->MatmulPreferenceSetAttribute(preference, attributes[i], &p->matrices[i].alignment,
                                                        sizeof p->matrices[i].alignment);
  }
  if (code == CUBLASLT_SUCCESS) {
    code = hr__cublaslt()->MatmulPreferenceSetAttribute(preference, CUBLASLT_PREFER_ALIGNMENT_C, &out, sizeof out);
  }
  return code;
}

/* Selects the algorithm of this rank among the suitable ones; the first has rank 0. */
static hr_status take(hr_prepared *p, int rank, int count, const cublaslt_heuristic *heuristics) {
  for (int i = 0; i < count; ++i) {
    bool would_do = heuristics[i].status == CUBLASLT_SUCCESS && heuristics[i].workspace_bytes <= WORKSPACE_MOST;
    if (would_do && rank-- == 0) {
      p->algo = heuristics[i].algo;
      p->workspace_bytes = heuristics[i].workspace_bytes;
      return HR_OK;
    }
  }
  const product_matrix *d = &p->product.matrices[PRODUCT_D], *b = &p->product.matrices[PRODUCT_B];
  return hr_status_make(HR_STATUS_UNIMPLEMENTED, "cuBLASLt: no algorithm for %s [%lld, %lld] of %lld, batch %lld%s",
                        hr_dtype_name(p->product.dtype), (long long)d->rows, (long long)d->columns,
                        (long long)(b->is_transposed ? b->columns : b->rows), (long long)p->product.batch,
                        p->product.has_bias ? ", with bias" : "");
}

static hr_status choose(hr_prepared *p, int rank) {
  cublaslt_preference preference = NULL;
  cublaslt_heuristic heuristics[HEURISTICS];
  int count = 0;
  HR_RETURN_IF_ERROR(hr__cublaslt_status(hr__cublaslt()->MatmulPreferenceCreate(&preference), "preferences"));
  int code = set_preferences(preference, &p->product);
  if (code == CUBLASLT_SUCCESS) {
    code = hr__cublaslt()->MatmulAlgoGetHeuristic(p->handle, p->desc, p->layouts[PRODUCT_A], p->layouts[PRODUCT_B],
                                                  p->layouts[PRODUCT_D], p->layouts[PRODUCT_D], preference, HEURISTICS,
                                                  heuristics, &count);
  }
  (void)hr__cublaslt()->MatmulPreferenceDestroy(preference);
  return code == CUBLASLT_NOT_SUPPORTED ? take(p, rank, 0, heuristics)
         : code != CUBLASLT_SUCCESS     ? hr__cublaslt_status(code, "an algorithm")
                                        : take(p, rank, count, heuristics);
}

static hr_status make(hr_prepared *p, int rank) {
  dtype_row dtype = dtype_of(p->product.dtype);
  HR_RETURN_IF_ERROR(hr__cublaslt_handle(&p->handle));
  HR_RETURN_IF_ERROR(make_desc(p, dtype));
  for (int i = 0; i < PRODUCT_MATRICES; ++i) {
    HR_RETURN_IF_ERROR(make_layout(p, i));
  }
  return choose(p, rank);
}

/* The library's next heuristics. */
static const char *const algorithms[] = {"second", "third", "fourth", "fifth", NULL};

static hr_status prepare(const hr_program *program, const hr_node *node, int algorithm, void *queue,
                         hr_prepared **out_prepared, size_t *out_workspace_bytes) {
  (void)program, (void)queue;
  hr_prepared *p = hr_calloc(1, sizeof *p);
  if (p == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "matmul: no memory for a prepared product");
  }
  hr_status status = hr__cublaslt_product(node, &p->product)
                         ? make(p, algorithm - HR_ALGORITHM_OWN)
                         : hr_status_make(HR_STATUS_UNIMPLEMENTED, "cuBLASLt: a product that it does not support");
  if (status != HR_OK) {
    release(p);
    return status;
  }
  *out_prepared = p;
  *out_workspace_bytes = p->workspace_bytes > 0 ? p->workspace_bytes + WORKSPACE_SLACK : 0;
  return HR_OK;
}

static const char *version(void) {
  return hr__cublaslt_opened()->version;
}

/* ---- running ---- */

typedef struct call {
  const hr_prepared *p;
  char *addresses[PRODUCT_MATRICES];
  void *workspace, *queue;
} call;

static hr_status multiply(const call *c) {
  static const float one = 1, zero = 0;
  static const double one_f64 = 1, zero_f64 = 0;
  const hr_prepared *p = c->p;
  bool is_f64 = p->product.dtype == HR_DTYPE_F64;
  char *d = c->addresses[PRODUCT_D];
  return hr__cublaslt_status(
      hr__cublaslt()->Matmul(p->handle, p->desc, is_f64 ? (const void *)&one_f64 : &one, c->addresses[PRODUCT_A],
                             p->layouts[PRODUCT_A], c->addresses[PRODUCT_B], p->layouts[PRODUCT_B],
                             is_f64 ? (const void *)&zero_f64 : &zero, d, p->layouts[PRODUCT_D], d,
                             p->layouts[PRODUCT_D], &p->algo, c->workspace, p->workspace_bytes, c->queue),
      "a product");
}

/* Runs the products of loop `depth` and of the loops inside it. */
static hr_status multiply_all(const call *c, int depth) {
  const cublaslt_product *p = &c->p->product;
  if (depth == p->loop_rank) {
    return multiply(c);
  }
  call inner = *c;
  for (int64_t i = 0; i < p->loop_dims[depth]; ++i) {
    HR_RETURN_IF_ERROR(multiply_all(&inner, depth + 1));
    for (int m = 0; m < PRODUCT_MATRICES; ++m) {
      inner.addresses[m] += p->matrices[m].loop_strides[depth] * (int64_t)hr_dtype_size(p->matrices[m].dtype);
    }
  }
  return HR_OK;
}

static hr_status run(hr_prepared *p, void *const *args, void *workspace, void *queue) {
  call c = {.p = p, .queue = queue};
  if (p->workspace_bytes > 0) {
    c.workspace = (void *)(((uintptr_t)workspace + WORKSPACE_SLACK) & ~(uintptr_t)(WORKSPACE_ALIGNMENT - 1));
  }
  for (int i = 0; i < PRODUCT_MATRICES; ++i) {
    const product_matrix *m = &p->product.matrices[i];
    c.addresses[i] = (char *)args[m->arg] + m->offset * (int64_t)hr_dtype_size(m->dtype);
    if (((uintptr_t)c.addresses[i] & (m->alignment - 1)) != 0) {
      return hr_status_make(HR_STATUS_INTERNAL, "cuBLASLt: operand %d is not aligned to %u bytes", m->arg,
                            m->alignment);
    }
  }
  if (p->product.has_bias) {
    int64_t size = (int64_t)hr_dtype_size(p->product.dtype);
    HR_RETURN_IF_ERROR(set_bias_pointer(p, (const char *)args[2] + p->product.bias_offset * size));
  }
  return multiply_all(&c, 0);
}

/* True on Hopper: 52 TFLOP/s in f32, 115 by parts. */
static bool prefers_parts(void) {
  enum { HOPPER = 9 };
  hr_status status = hr__cuda_limits_known()->architecture == 0 ? hr__cuda_limits_find("cublaslt", 0) : HR_OK;
  bool is_known = status == HR_OK;
  hr_status_ignore(status);
  return is_known && hr__cuda_limits_known()->architecture == HOPPER &&
         hr_env_choice(HR_ENV_SPLIT_PRODUCTS) == HR_ENV_SPLIT_PRODUCTS_ON &&
         hr_env_choice(HR_ENV_TF32) != HR_ENV_TF32_ALL;
}

const hr_provider hr__cublaslt_provider = {
    .name = "cublaslt",
    .dialect = HR_DIALECT_CUDA,
    .row_alignment = 16,
    .prefers_parts = prefers_parts,
    .open = hr__cublaslt_open,
    .supports = supports,
    .prepare = prepare,
    .algorithms = algorithms,
    .version = version,
    .run = run,
    .release = release,
};
