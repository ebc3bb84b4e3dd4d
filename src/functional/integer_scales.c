/* integer_scales.c: real numbers as integers with a scale and a zero, and products of such integers, as ONNX defines
 * them. quantized.c has the packed words of weights. */
#include <math.h>

#include "functional/formula.h"

/* ---- scales ---- */

/* The elements of a dim `count` times each; a view of one dim more is joined by a copy. */
static const hr_tensor *repeated(hr__formula *f, const hr_tensor *x, int axis, int64_t count, int64_t size) {
  const hr_attribute by[2] = {{.kind = HR_ATTRIBUTE_INT, .value = {.integer = count}},
                              {.kind = HR_ATTRIBUTE_INT, .value = {.integer = axis}}};
  return hr__part(f, hr__function(f, HR_FUNCTIONAL_REPEAT, 1, &x, 2, by), axis, 0, size);
}

/* A scale or a zero as a tensor that is broadcast to x. */
static const hr_tensor *aligned(hr__formula *f, const hr_tensor *scale) {
  enum { AXIS, BLOCK };
  const hr__function_call *c = f->call;
  const hr_tensor *x = c->inputs[0];
  int64_t block = hr__int_attribute(c, BLOCK), dims[HR_RANK_MAX], count;
  char text[HR__SHAPE_TEXT];
  int axis;
  if (hr__count_elements(scale->rank, scale->dims, &count) && count == 1 && scale->rank <= 1 && block == 0) {
    return hr__as_dims(f, scale, 0, dims);
  }
  hr_status status = hr__check_axis(c, hr__int_attribute(c, AXIS), x->rank, &axis);
  if (status != HR_OK) {
    hr__formula_fail(f, status);
    return scale;
  }
  bool fits = block == 0 ? scale->rank == 1 && scale->dims[0] == x->dims[axis] : block > 0 && scale->rank == x->rank;
  for (int d = 0; d < x->rank; ++d) {
    int64_t blocks = block > 0 ? x->dims[d] / block + (x->dims[d] % block > 0) : x->dims[d];
    dims[d] = d == axis ? x->dims[d] : 1;
    fits = fits && (block == 0 || scale->dims[d] == (d == axis ? blocks : x->dims[d]));
  }
  if (!fits) {
    hr__formula_fail(f, HR__CALL_FAIL(c, "scale or zero %s with block %lld, expected one number, %lld ones, or blocks",
                                      hr__shape_text(scale->rank, scale->dims, text), (long long)block,
                                      (long long)x->dims[axis]));
    return scale;
  }
  return block > 0 ? repeated(f, scale, axis, block, x->dims[axis]) : hr__as_dims(f, scale, x->rank, dims);
}

/* ---- quantised numbers ---- */

static bool is_signed(hr_dtype dtype) {
  return dtype == HR_DTYPE_I8 || dtype == HR_DTYPE_I16 || dtype == HR_DTYPE_I32;
}

static hr_status read_integers(const hr__function_call *c, hr_dtype *out_dtype, int *out_bits) {
  enum { AXIS, BLOCK, BITS, DTYPE };
  const hr_tensor *zero = c->inputs[2];
  hr_dtype given = hr__dtype_attribute(c, DTYPE), dtype = given != HR_DTYPE_NONE ? given : HR_DTYPE_U8;
  dtype = given == HR_DTYPE_NONE && zero != NULL ? zero->dtype : dtype;
  int64_t bits = hr__int_attribute(c, BITS), width = 8 * (int64_t)hr_dtype_size(dtype);
  bool is_known = is_signed(dtype) || dtype == HR_DTYPE_U8 || dtype == HR_DTYPE_U16;
  if (!is_known || bits < 0 || bits > width) {
    return HR__CALL_FAIL(c, "%lld bits of %s, expected up to the width of i8, u8, i16, u16 or i32", (long long)bits,
                         hr_dtype_name(dtype));
  }
  *out_dtype = dtype, *out_bits = (int)(bits > 0 ? bits : width);
  return HR_OK;
}

/* x / scale + zero, rounded and bounded; f32 has all integers of 16 bits. */
static const hr_tensor *quantized(hr__formula *f, const hr_tensor *const in[3], hr_dtype dtype, int bits) {
  const hr_tensor *x = in[0], *scale = in[1], *zero = in[2];
  bool is_wide = dtype == HR_DTYPE_I32 || x->dtype == HR_DTYPE_F64;
  hr_dtype wide = is_wide ? HR_DTYPE_F64 : HR_DTYPE_F32;
  double low = is_signed(dtype) ? -ldexp(1, bits - 1) : 0, high = ldexp(1, is_signed(dtype) ? bits - 1 : bits) - 1;
  const hr_tensor *y = hr__binary(f, HR_OP_DIV, hr__as_dtype(f, x, wide), hr__as_dtype(f, scale, wide));
  y = hr__unary(f, HR_OP_ROUND, y);
  y = zero != NULL ? hr__plus(f, y, hr__as_dtype(f, zero, wide)) : y;
  return hr__as_dtype(f, hr__ternary(f, HR_OP_CLAMP, y, hr__real(f, low), hr__real(f, high)), dtype);
}

hr_status hr__emit_quantize_linear(const hr__function_call *c) {
  hr_dtype dtype = HR_DTYPE_NONE;
  int bits = 0;
  HR_RETURN_IF_ERROR(read_integers(c, &dtype, &bits));
  hr__formula f;
  hr__formula_begin(&f, c);
  const hr_tensor *zero = c->inputs[2];
  const hr_tensor *in[3] = {c->inputs[0], aligned(&f, c->inputs[1]), zero != NULL ? aligned(&f, zero) : NULL};
  return hr__formula_end(&f, quantized(&f, in, dtype, bits));
}

hr_status hr__emit_dequantize_linear(const hr__function_call *c) {
  enum { DTYPE = 2 };
  const hr_tensor *x = c->inputs[0], *scale = c->inputs[1], *zero = c->inputs[2];
  hr_dtype given = hr__dtype_attribute(c, DTYPE), dtype = given != HR_DTYPE_NONE ? given : scale->dtype;
  if (!hr_dtype_is_integer(x->dtype) || (zero != NULL && zero->dtype != x->dtype)) {
    return HR__CALL_FAIL(c, "x of %s and zero of %s, expected integers of one dtype", hr_dtype_name(x->dtype),
                         hr_dtype_name(zero != NULL ? zero->dtype : x->dtype));
  }
  hr__formula f;
  hr__formula_begin(&f, c);
  hr_dtype wide = hr__wide_dtype(scale->dtype), integers = hr_dtype_size(x->dtype) > 2 ? HR_DTYPE_I64 : HR_DTYPE_I32;
  if (zero != NULL) {
    x = hr__binary(&f, HR_OP_SUB, hr__as_dtype(&f, x, integers), hr__as_dtype(&f, aligned(&f, zero), integers));
  }
  const hr_tensor *y = hr__times(&f, hr__as_dtype(&f, x, wide), hr__as_dtype(&f, aligned(&f, scale), wide));
  return hr__formula_end(&f, hr__as_dtype(&f, y, dtype));
}

/* The smallest or largest number of x, and 0. */
static const hr_tensor *end_of(hr__formula *f, const hr_tensor *x, hr_op reduction, hr_op bound) {
  uint32_t mask = x->rank > 0 ? (uint32_t)((UINT64_C(1) << x->rank) - 1) : 0;
  const hr_tensor *best = x->rank > 0 ? hr__reduced(f, reduction, x, mask) : x;
  return hr__binary(f, bound, best, hr__integer(f, 0));
}

hr_status hr__emit_dynamic_quantize_linear(const hr__function_call *c) {
  int64_t count;
  if (!hr__count_elements(c->inputs[0]->rank, c->inputs[0]->dims, &count) || count == 0) {
    return HR__CALL_FAIL(c, "x has no elements");
  }
  hr__formula f;
  hr__formula_begin(&f, c);
  const hr_tensor *x = hr__as_dtype(&f, c->inputs[0], hr__wide_dtype(c->inputs[0]->dtype));
  const hr_tensor *low = end_of(&f, x, HR_OP_AMIN, HR_OP_MINIMUM), *high = end_of(&f, x, HR_OP_AMAX, HR_OP_MAXIMUM);
  const hr_tensor *scale = hr__binary(&f, HR_OP_DIV, hr__binary(&f, HR_OP_SUB, high, low), hr__real(&f, 255));
  const hr_tensor *is_zero = hr__binary(&f, HR_OP_EQ, scale, hr__integer(&f, 0));
  scale = hr__ternary(&f, HR_OP_WHERE, is_zero, hr__real(&f, 1), scale);
  const hr_tensor *at = hr__binary(&f, HR_OP_SUB, hr__integer(&f, 0), hr__binary(&f, HR_OP_DIV, low, scale));
  at = hr__ternary(&f, HR_OP_CLAMP, hr__unary(&f, HR_OP_ROUND, at), hr__integer(&f, 0), hr__integer(&f, 255));
  const hr_tensor *zero = hr__as_dtype(&f, at, HR_DTYPE_U8), *in[3] = {x, scale, zero};
  const hr_tensor *results[3] = {quantized(&f, in, HR_DTYPE_U8, 8), scale, zero};
  return hr__formula_finish(&f, 3, results);
}

/* ---- products ---- */

/* x less its zero, in i32. */
static const hr_tensor *centred(hr__formula *f, const hr_tensor *x, const hr_tensor *zero) {
  bool is_narrow = hr_dtype_is_integer(x->dtype) && hr_dtype_size(x->dtype) == 1 && x->dtype != HR_DTYPE_BOOL;
  if (!is_narrow || (zero != NULL && zero->dtype != x->dtype)) {
    hr__formula_fail(f, HR__CALL_FAIL(f->call, "%s with a zero of %s, expected i8 or u8 of one dtype",
                                      hr_dtype_name(x->dtype), hr_dtype_name(zero != NULL ? zero->dtype : x->dtype)));
    return x;
  }
  x = hr__as_dtype(f, x, HR_DTYPE_I32);
  return zero != NULL ? hr__binary(f, HR_OP_SUB, x, hr__as_dtype(f, zero, HR_DTYPE_I32)) : x;
}

hr_status hr__emit_matmul_integer(const hr__function_call *c) {
  hr__formula f;
  hr__formula_begin(&f, c);
  const hr_tensor *x_zero = c->inputs[2];
  x_zero = x_zero != NULL && x_zero->rank == 1 && x_zero->dims[0] > 1 ? hr__with_dim(&f, x_zero, 1) : x_zero;
  const hr_tensor *both[2] = {centred(&f, c->inputs[0], x_zero), centred(&f, c->inputs[1], c->inputs[3])};
  return hr__formula_end(&f, hr__function(&f, HR_FUNCTIONAL_MATMUL, 2, both, 0, NULL));
}

hr_status hr__emit_conv_integer(const hr__function_call *c) {
  const hr_tensor *weight = c->inputs[1], *zero = c->inputs[3];
  hr__formula f;
  hr__formula_begin(&f, c);
  for (int d = 1; zero != NULL && zero->rank > 0 && zero->dims[0] > 1 && d < weight->rank; ++d) {
    zero = hr__with_dim(&f, zero, zero->rank);
  }
  const hr_tensor *inputs[3] = {centred(&f, c->inputs[0], c->inputs[2]), centred(&f, weight, zero), NULL};
  return hr__formula_end(&f, hr__function(&f, HR_FUNCTIONAL_CONV, 3, inputs, c->attribute_count, c->attributes));
}
