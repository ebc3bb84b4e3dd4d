/* wide_epilogues.h: rows on results of convolutions, for vectors of 16 floats. */
#ifndef HEADRACE_PROVIDERS_WIDE_EPILOGUES_H_
#define HEADRACE_PROVIDERS_WIDE_EPILOGUES_H_

#include "headrace/op.h"
#include "providers/wide_vectors.h"

#if defined(HR_WIDE_VECTORS)
/* A row of ops.def, with its bits; b and c: unused by rows of fewer operands. */
WIDE_INLINE __m512 hr__wide_apply(hr_op op, __m512 a, __m512 b, __m512 c) {
  switch (op) {
    case HR_OP_ADD:
      return _mm512_add_ps(a, b);
    case HR_OP_SUB:
      return _mm512_sub_ps(a, b);
    case HR_OP_MUL:
      return _mm512_mul_ps(a, b);
    case HR_OP_DIV:
      return _mm512_div_ps(a, b);
    case HR_OP_ADD_SCALED:
      return _mm512_add_ps(a, _mm512_mul_ps(c, b));
    case HR_OP_RELU:
      return _mm512_mask_mov_ps(a, _mm512_cmp_ps_mask(a, _mm512_setzero_ps(), _CMP_LE_OQ), _mm512_setzero_ps());
    default: /* leaky_relu */
      return _mm512_mask_mov_ps(_mm512_mul_ps(a, b), _mm512_cmp_ps_mask(a, _mm512_setzero_ps(), _CMP_GT_OQ), a);
  }
}
#endif

#endif
