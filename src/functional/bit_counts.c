/* bit_counts.c: numbers of bits in integers. Integers are computed as unsigned ones of 32 or 64 bits, of which the
 * upper bits are 0. The sums of bits in fields of 2, 4 and 8 bits are those of "Hacker's Delight", H. S. Warren,
 * chapter 5. */
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
