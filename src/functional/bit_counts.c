/* bit_counts.c: numbers of bits in integers, and elements as bits of another dtype. Integers are computed as unsigned
 * ones of 32 or 64 bits, of which the upper bits are 0. The sums of bits in fields of 2, 4 and 8 bits are those of
 * "Hacker's Delight", H. S. Warren, chapter 5. */
#include "functional/formula.h"

/* An integer as an unsigned one of 32 or 64 bits; a failure for other dtypes. */
static const hr_tensor *as_bits(hr__formula *f, const hr_tensor *x, int *out_width) {
  *out_width = 8 * (int)hr_dtype_size(x->dtype);
  if (!hr_dtype_is_integer(x->dtype) || x->dtype == HR_DTYPE_BOOL) {
    hr__formula_fail(f, HR__CALL_FAIL(f->call, "%s, expected integers", hr_dtype_name(x->dtype)));
    return x;
  }
  if (x->number.dtype != HR_DTYPE_NONE) {
    x = hr__copied(f, x, x->dtype, 0, NULL);
  }
  bool is_wide = *out_width == 64;
  const hr_tensor *bits = hr__as_dtype(f, x, is_wide ? HR_DTYPE_U64 : HR_DTYPE_U32);
  bool is_narrow = *out_width < 32;
  return is_narrow ? hr__binary(f, HR_OP_BIT_AND, bits, hr__integer(f, (INT64_C(1) << *out_width) - 1)) : bits;
}

static const hr_tensor *constant(hr__formula *f, uint64_t byte, bool is_wide) {
  uint64_t bytes = byte * UINT64_C(0x0101010101010101);
  return hr__number(f, hr_scalar_u64(is_wide ? bytes : bytes >> 32));
}

static const hr_tensor *shifted(hr__formula *f, const hr_tensor *bits, int places) {
  return hr__binary(f, HR_OP_SHIFT_RIGHT, bits, hr__integer(f, places));
}

/* The number of ones of each element, in its dtype: u32 or u64. */
static const hr_tensor *ones_of(hr__formula *f, const hr_tensor *bits, bool is_wide) {
  const hr_tensor *pairs = constant(f, 0x55, is_wide), *fours = constant(f, 0x33, is_wide);
  const hr_tensor *n = hr__binary(f, HR_OP_SUB, bits, hr__binary(f, HR_OP_BIT_AND, shifted(f, bits, 1), pairs));
  const hr_tensor *high = hr__binary(f, HR_OP_BIT_AND, shifted(f, n, 2), fours);
  n = hr__plus(f, hr__binary(f, HR_OP_BIT_AND, n, fours), high);
  n = hr__binary(f, HR_OP_BIT_AND, hr__plus(f, n, shifted(f, n, 4)), constant(f, 0x0f, is_wide));
  return shifted(f, hr__times(f, n, constant(f, 0x01, is_wide)), is_wide ? 56 : 24);
}

hr_status hr__emit_popcount(const hr__function_call *c) {
  hr__formula f;
  hr__formula_begin(&f, c);
  int width;
  const hr_tensor *bits = as_bits(&f, c->inputs[0], &width);
  return hr__formula_end(&f, hr__as_dtype(&f, ones_of(&f, bits, width == 64), c->inputs[0]->dtype));
}

/* All bits below the highest one are set; then the zeros that are left are the leading ones. */
hr_status hr__emit_leading_zeros(const hr__function_call *c) {
  hr__formula f;
  hr__formula_begin(&f, c);
  int width;
  const hr_tensor *bits = as_bits(&f, c->inputs[0], &width);
  for (int places = 1; places < width; places *= 2) {
    bits = hr__binary(&f, HR_OP_BIT_OR, bits, shifted(&f, bits, places));
  }
  const hr_tensor *zeros = hr__binary(&f, HR_OP_SUB, hr__integer(&f, width), ones_of(&f, bits, width == 64));
  return hr__formula_end(&f, hr__as_dtype(&f, zeros, c->inputs[0]->dtype));
}

hr_status hr__emit_hamming_distance(const hr__function_call *c) {
  const hr_tensor *x = c->inputs[0], *y = c->inputs[1];
  hr_dtype dtype = hr__dtype_attribute(c, 0);
  if (x->rank < 1 || y->rank < 1) {
    return HR__CALL_FAIL(c, "%d and %d dims, expected vectors", x->rank, y->rank);
  }
  hr__formula f;
  hr__formula_begin(&f, c);
  int width;
  const hr_tensor *bits = as_bits(&f, hr__binary(&f, HR_OP_BIT_XOR, x, y), &width);
  const hr_tensor *counts = ones_of(&f, bits, width == 64);
  if (hr__formula_failed(&f)) {
    return hr__formula_end(&f, counts);
  }
  uint32_t last = 1u << (counts->rank - 1);
  dtype = dtype != HR_DTYPE_NONE ? dtype : HR_DTYPE_U32;
  return hr__formula_end(&f, hr__without(&f, hr__along_as(&f, HR_OP_SUM, counts, last, dtype), last));
}

/* ---- bits as another dtype ---- */

/* The dims of x's bytes as elements of this size; the last one changes. */
static hr_status resized_dims(const hr__function_call *c, size_t size, int64_t *dims) {
  const hr_tensor *x = c->inputs[0];
  int64_t from = (int64_t)hr_dtype_size(x->dtype), to = (int64_t)size, bytes;
  hr__copy_dims(x->rank, x->dims, dims);
  if (from == to) {
    return HR_OK;
  }
  if (x->rank == 0 || __builtin_mul_overflow(x->dims[x->rank - 1], from, &bytes) || bytes % to != 0) {
    char text[HR__SHAPE_TEXT];
    return HR__CALL_FAIL(c, "%s %s, expected a last dim that is a multiple of %lld bytes", hr_dtype_name(x->dtype),
                         hr__shape_text(x->rank, x->dims, text), (long long)to);
  }
  dims[x->rank - 1] = bytes / to;
  return HR_OK;
}

/* x's buffer, row-major from its offset on, as elements of this dtype. */
static const hr_tensor *as_elements(hr__formula *f, const hr_tensor *x, hr_dtype dtype, const int64_t *dims) {
  hr_tensor *view = hr__view(f, x);
  if (view == NULL) {
    return x;
  }
  view->offset = view->offset * (int64_t)hr_dtype_size(x->dtype) / (int64_t)hr_dtype_size(dtype);
  view->dtype = dtype;
  int64_t stride = 1;
  for (int d = view->rank - 1; d >= 0; --d) {
    view->dims[d] = dims[d], view->strides[d] = stride;
    stride *= dims[d] > 0 ? dims[d] : 1;
  }
  return view;
}

/* A copy of integers, so that no gradient passes; of the size of the smaller elements, which every place suits. */
hr_status hr__emit_bitcast(const hr__function_call *c) {
  static const hr_dtype integers[] = {[1] = HR_DTYPE_U8, [2] = HR_DTYPE_U16, [4] = HR_DTYPE_U32, [8] = HR_DTYPE_U64};
  const hr_tensor *x = c->inputs[0];
  hr_dtype dtype = hr__dtype_attribute(c, 0);
  if (dtype == HR_DTYPE_NONE || (dtype == HR_DTYPE_BOOL && x->dtype != dtype) || x->number.dtype != HR_DTYPE_NONE) {
    return HR__CALL_FAIL(c, "%s as %s, expected a tensor and a dtype other than bool", hr_dtype_name(x->dtype),
                         hr_dtype_name(dtype));
  }
  size_t from = hr_dtype_size(x->dtype), to = hr_dtype_size(dtype), least = from < to ? from : to;
  least = least < 8 ? least : 8;
  int64_t dims[HR_RANK_MAX], parts[HR_RANK_MAX + 1];
  HR_RETURN_IF_ERROR(resized_dims(c, to, dims));
  hr__formula f;
  hr__formula_begin(&f, c);
  const hr_tensor *whole = hr__dense(&f, x);
  hr__copy_dims(x->rank, x->dims, parts);
  if (x->rank > 0) {
    parts[x->rank - 1] *= (int64_t)(from / least);
  } else if (from > least) { /* two halves of a complex number */
    whole = hr__with_dim(&f, whole, 0), parts[0] = (int64_t)(from / least);
  }
  const hr_tensor *bits = as_elements(&f, whole, integers[least], parts);
  bits = hr__formula_failed(&f) ? bits : hr__copied(&f, bits, bits->dtype, bits->rank, bits->dims);
  const hr_tensor *y = as_elements(&f, x->rank == bits->rank ? bits : hr__without(&f, bits, 1), dtype, dims);
  return hr__formula_end(&f, y);
}
