/* product.h: a matmul node in cuBLASLt's terms, computed before the library is loaded.
 *
 * cuBLASLt multiplies column-major matrices: D = op(A) op(B) + bias, with one bias element for each row of D. Ours are
 * row-major, and a row-major matrix is a column-major one transposed. So D is our output transposed, A our right
 * factor, B our left one, and a bias along our columns is one along D's rows. If the output's columns are dense, D is
 * the output itself and A the left factor.
 *
 * Batch dims with a common step are merged. The largest remaining one is cuBLASLt's batch; the others are loops. Dims
 * over which the right factor stays the same become rows if left factor and output continue with the step of their
 * rows.
 */
#ifndef HEADRACE_PROVIDERS_CUBLASLT_PRODUCT_H_
#define HEADRACE_PROVIDERS_CUBLASLT_PRODUCT_H_

#include "core/ir/program.h"

enum { PRODUCT_A, PRODUCT_B, PRODUCT_D, PRODUCT_MATRICES };

/* Strides and offsets in elements. */
typedef struct product_matrix {
  int arg;            /* of the node */
  hr_dtype dtype;     /* 16-bit factors may have a product of 32 bits */
  int64_t offset;     /* of the first element */
  bool is_transposed; /* A and B: op is T */
  int64_t rows, columns, leading;
  int64_t batch_stride, loop_strides[HR_RANK_MAX];
  uint32_t alignment; /* in bytes, of each address passed to the library */
} product_matrix;

typedef struct cublaslt_product {
  hr_dtype dtype; /* of the output */
  product_matrix matrices[PRODUCT_MATRICES];
  int64_t batch;
  int loop_rank;
  int64_t loop_dims[HR_RANK_MAX];
  bool has_bias;
  int64_t bias_offset;
  uint32_t bias_alignment;
} cublaslt_product;

/* Blocks of memory are aligned to this. */
enum { PRODUCT_ALIGNMENT = 64 };

/* False if cuBLASLt can't express the node. */
bool hr__cublaslt_product(const hr_node *node, cublaslt_product *out_product);

#endif
