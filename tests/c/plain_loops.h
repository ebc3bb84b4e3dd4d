/* plain_loops.h: products and convolutions of tensors in plain loops, in double precision: what providers are compared
 * with. The loops are in a file of their own because sanitizers would make them as slow as everything else together.
 */
#ifndef HEADRACE_TESTS_PLAIN_LOOPS_H_
#define HEADRACE_TESTS_PLAIN_LOOPS_H_

#include <stdbool.h>
#include <stdint.h>

#include "core/ir/dtype.h"
#include "core/ops/op.h"

enum { RANK = 6 };

typedef struct tensor {
  bool is_present;
  hr_dtype dtype;
  int rank;
  int64_t dims[RANK], strides[RANK];
  int64_t offset, length; /* elements of the buffer, guards included */
  unsigned char *bytes;
} tensor;

/* Integers are of 64 bits, of 32, of 16 with a sign, or bytes without. */
static inline double read_integer(const tensor *t, int64_t at) {
  const void *memory = t->bytes;
  return t->dtype == HR_DTYPE_I64   ? (double)((const int64_t *)memory)[at]
         : t->dtype == HR_DTYPE_I32 ? ((const int32_t *)memory)[at]
         : t->dtype == HR_DTYPE_I16 ? ((const int16_t *)memory)[at]
                                    : t->bytes[at];
}

static inline double read_element(const tensor *t, int64_t at) {
  if (hr_dtype_is_integer(t->dtype)) {
    return read_integer(t, at);
  }
  const uint16_t *half = (const uint16_t *)(const void *)t->bytes + at;
  return t->dtype == HR_DTYPE_F32    ? ((const float *)(const void *)t->bytes)[at]
         : t->dtype == HR_DTYPE_F64  ? ((const double *)(const void *)t->bytes)[at]
         : t->dtype == HR_DTYPE_BF16 ? hr_bf16_to_f32(*half)
                                     : hr_f16_to_f32(*half);
}

static inline int64_t tensor_count(const tensor *t) {
  int64_t count = 1;
  for (int d = 0; d < t->rank; ++d) {
    count *= t->dims[d];
  }
  return count;
}

/* The offset of element number i, row-major, in the buffer. */
static inline int64_t tensor_at(const tensor *t, int64_t i) {
  int64_t at = t->offset;
  for (int d = t->rank - 1; d >= 0; --d) {
    at += i % t->dims[d] * t->strides[d];
    i /= t->dims[d];
  }
  return at;
}

typedef struct expected {
  double *values, *sizes; /* the result and the sum of its terms' magnitudes */
} expected;

typedef struct conv_operands {
  int x, w, y; /* numbers of the node's tensors */
} conv_operands;

static inline conv_operands hr__conv_operands(hr_op op, int out) {
  return op == HR_OP_CONV                 ? (conv_operands){0, 1, out}
         : op == HR_OP_CONV_BACKWARD_DATA ? (conv_operands){out, 1, 0}
                                          : (conv_operands){0, out, 1};
}

/* Adds the result of a MATMUL or a convolution to `e`, by row-major number of its elements. tensors[input_count] is the
 * output, of which only the view is read; `ints` are the node's. */
void hr__plain_loops(hr_op op, const tensor *tensors, int input_count, const int64_t *ints, expected *e);

#endif
