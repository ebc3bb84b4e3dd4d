/* gemm.c: matrix products of f64, c64 and c128, without packing matrices that have a dense dim.
 *
 * The product of row-major matrices is C^T = B^T A^T of column-major ones. If batches are few, the rows of C are
 * divided among the workers.
 */
#include "base/integer.h"
#include "core/ops/op.h"
#include "providers/lapack/lapack.h"

/* A matrix in BLAS's form: transposed or not, and the distance of its columns. */
typedef struct side {
  char trans;
  int ld;
} side;

/* Reads x [.., R, C] as the column-major matrix C x R, that is, x transposed. */
static bool read_side(const hr_operand *x, side *out_side) {
  int64_t rows = x->dims[x->rank - 2], columns = x->dims[x->rank - 1];
  int64_t down = x->strides[x->rank - 2], across = x->strides[x->rank - 1];
  down = rows == 1 ? columns : down;
  if ((across == 1 || columns == 1) && down >= columns && down < INT32_MAX) {
    *out_side = (side){'N', (int)down};
    return true;
  }
  across = columns == 1 ? rows : across;
  if ((down == 1 || rows == 1) && across >= rows && across < INT32_MAX) {
    *out_side = (side){'T', (int)across};
    return true;
  }
  return false;
}

bool hr__lapack_gemm_supports(const hr_node *node) {
  const hr_operand *a = &node->inputs[0], *b = &node->inputs[1], *out = &node->outputs[0];
  bool is_plain = a->kind == HR_OPERAND_VALUE && b->kind == HR_OPERAND_VALUE && out->kind == HR_OPERAND_VALUE;
  bool has_bias = node->input_count > 2 && node->inputs[2].kind != HR_OPERAND_NONE;
  side s, to;
  if (!is_plain || has_bias || node->epilogue_count > 0 || hr__lapack_kind(out->dtype) < 1 || a->dtype != out->dtype ||
      b->dtype != out->dtype || out->rank < 2 || a->rank != out->rank || b->rank != out->rank) {
    return false;
  }
  for (int d = out->rank - 2; d < out->rank; ++d) {
    if (a->dims[d] >= INT32_MAX || b->dims[d] >= INT32_MAX) {
      return false;
    }
  }
  return read_side(a, &s) && read_side(b, &s) && read_side(out, &to) && to.trans == 'N';
}

/* The address of matrix number `item` of the batch. */
static char *matrix_at(const hr_operand *x, const hr_operand *out, void *data, int64_t item) {
  int64_t at = 0;
  for (int d = out->rank - 3; d >= 0; --d) {
    at += x->dims[d] == 1 ? 0 : item % out->dims[d] * x->strides[d];
    item /= out->dims[d];
  }
  return (char *)data + at * (int64_t)hr_dtype_size(x->dtype);
}

typedef struct product {
  int kind, blocks; /* of rows, of each matrix of the batch */
  side a, b, out;
} product;

static product read_product(const hr__library_call *call, int64_t batch) {
  const hr_node *node = call->node;
  int64_t rows = hr__dim(&call->outputs[0], 1), blocks = hr_divide_up(call->workers, batch);
  product p = {.kind = hr__lapack_kind(call->outputs[0].dtype)};
  (void)read_side(&node->inputs[0], &p.a);
  (void)read_side(&node->inputs[1], &p.b);
  (void)read_side(&node->outputs[0], &p.out);
  p.blocks = (int)(blocks < rows / 8 ? blocks : rows / 8);
  p.blocks = p.blocks > 1 && batch < call->workers ? p.blocks : 1;
  return p;
}

static int64_t batch_of(const hr__library_call *call) {
  return hr__items(&call->outputs[0], 2);
}

static hr_status multiply(const hr__library_call *call, int64_t begin, int64_t end, void *scratch) {
  (void)scratch;
  const hr_node *node = call->node;
  const hr_operand *a = &node->inputs[0], *b = &node->inputs[1], *out = &node->outputs[0];
  product p = read_product(call, batch_of(call));
  int columns = (int)hr__dim(&call->outputs[0], 0), inner = (int)hr__dim(&call->inputs[0], 0);
  int64_t rows = hr__dim(&call->outputs[0], 1), size = (int64_t)hr_dtype_size(out->dtype);
  for (int64_t unit = begin; unit < end; ++unit) {
    int64_t item = unit / p.blocks, block = unit % p.blocks;
    int64_t first = rows * block / p.blocks, last = rows * (block + 1) / p.blocks;
    int count = (int)(last - first);
    const char *left = matrix_at(a, out, call->inputs[0].data, item) + first * size * (p.a.trans == 'N' ? p.a.ld : 1);
    const char *right = matrix_at(b, out, call->inputs[1].data, item);
    char *to = matrix_at(out, out, call->outputs[0].data, item) + first * size * p.out.ld;
    hr__lapack()->ALL_gemm[p.kind](&p.b.trans, &p.a.trans, &columns, &count, &inner, hr__lapack_one(p.kind), right,
                                   &p.b.ld, left, &p.a.ld, hr__lapack_zero(p.kind), to, &p.out.ld, 1, 1);
  }
  return HR_OK;
}

hr_status hr__lapack_gemm(const hr__library_call *call) {
  int64_t batch = batch_of(call);
  product p = read_product(call, batch);
  double flops = 2.0 * (double)hr__dim(&call->outputs[0], 0) * (double)hr__dim(&call->outputs[0], 1) *
                 (double)hr__dim(&call->inputs[0], 0) * (p.kind >= 2 ? 4 : 1);
  return hr__library_spread(call, batch * p.blocks, (int64_t)(flops / p.blocks / 16) + 100, multiply);
}
