/* random.c: random numbers of a key, as functions: the same key gives the same numbers on every device.
 *
 * A key is a tensor u32[2]: the low and the high half of Philox's 64-bit seed. Element i of a result, in row-major
 * order, is number i of the generator with this seed (rows PHILOX_*: counter (i / 4, offset)). The offset separates
 * uses of one key:
 *   0  samples
 *   1  split(key, n): key j consists of the upper 32 bits of numbers 2j and 2j + 1
 *   2  fold_in(key, data): the same of number data
 *   3  second numbers, of functions that need two an element
 * So a key gives samples, or is split; who does both gets numbers that are independent.
 */
#include <float.h>
#include <math.h>

#include "functional/formula.h"

enum { SAMPLES, SPLIT, FOLD, SECOND };

/* The key as the seed, an i64 of no dims. */
static const hr_tensor *seed_of(hr__formula *f) {
  const hr_tensor *key = f->call->inputs[0];
  if (key->dtype != HR_DTYPE_U32 || key->rank != 1 || key->dims[0] != 2) {
    char dims[HR__SHAPE_TEXT];
    hr__formula_fail(f, HR__CALL_FAIL(f->call, "the key is %s %s, expected u32 [2]", hr_dtype_name(key->dtype),
                                      hr__shape_text(key->rank, key->dims, dims)));
    return key;
  }
  const hr_tensor *halves = hr__as_dtype(f, key, HR_DTYPE_I64);
  const hr_tensor *low = hr__without(f, hr__part(f, halves, 0, 0, 1), 1);
  const hr_tensor *high = hr__without(f, hr__part(f, halves, 0, 1, 1), 1);
  return hr__binary(f, HR_OP_BIT_OR, low, hr__binary(f, HR_OP_SHIFT_LEFT, high, hr__integer(f, 32)));
}

/* 0, 1, ... in i64, of these dims. */
static const hr_tensor *numbered(hr__formula *f, int rank, const int64_t *dims) {
  int64_t count = 0;
  for (int d = 0; d < rank; ++d) {
    if (dims[d] < 0) {
      hr__formula_fail(f, HR__CALL_FAIL(f->call, "dim %d is %lld, expected at least 0", d, (long long)dims[d]));
    }
  }
  if (!hr__count_elements(rank, dims, &count)) {
    hr__formula_fail(f, HR__CALL_FAIL(f->call, "the result is too large"));
  }
  const hr_tensor *line = hr__counted(f, count, 1, 0);
  return hr__formula_failed(f) ? line : hr__as_dims(f, line, rank, dims);
}

/* One number of the generator for each index. */
static const hr_tensor *draw(hr__formula *f, hr_op op, const hr_tensor *index, int64_t offset, hr_dtype dtype) {
  const hr_tensor *inputs[3] = {index, seed_of(f), hr__integer(f, offset)};
  return hr__step(f, op, NULL, 3, inputs, dtype);
}

static const hr_tensor *draw_dims(hr__formula *f, hr_op op, int rank, const int64_t *dims, hr_dtype dtype) {
  return draw(f, op, numbered(f, rank, dims), SAMPLES, dtype);
}

/* Of the dims of attribute 0. */
static const hr_tensor *draw_shape(hr__formula *f, hr_op op, hr_dtype dtype) {
  const hr_attribute *shape = &f->call->attributes[0];
  return draw_dims(f, op, shape->count, shape->value.ints, dtype);
}

static hr_dtype real_dtype(const hr__function_call *c, int attribute) {
  hr_dtype dtype = hr__dtype_attribute(c, attribute);
  return dtype != HR_DTYPE_NONE ? dtype : HR_DTYPE_F32;
}

/* The upper `width` of the 63 bits. */
static const hr_tensor *upper_bits(hr__formula *f, const hr_tensor *bits, int width, hr_dtype dtype) {
  return hr__as_dtype(f, hr__binary(f, HR_OP_SHIFT_RIGHT, bits, hr__integer(f, 63 - width)), dtype);
}

/* ---- keys ---- */

hr_status hr__emit_key(const hr__function_call *c) {
  hr__formula f;
  hr__formula_begin(&f, c);
  uint64_t seed = (uint64_t)hr__int_attribute(c, 0);
  const int64_t two = 2;
  const hr_tensor *is_high = numbered(&f, 1, &two), *low = hr__integer(&f, (int64_t)(seed & UINT32_MAX));
  is_high = hr__binary(&f, HR_OP_GT, is_high, hr__integer(&f, 0));
  const hr_tensor *key = hr__ternary(&f, HR_OP_WHERE, is_high, hr__integer(&f, (int64_t)(seed >> 32)), low);
  return hr__formula_end(&f, hr__as_dtype(&f, key, HR_DTYPE_U32));
}

hr_status hr__emit_split(const hr__function_call *c) {
  const int64_t dims[2] = {hr__int_attribute(c, 0), 2};
  hr__formula f;
  hr__formula_begin(&f, c);
  const hr_tensor *bits = draw(&f, HR_OP_PHILOX_BITS, numbered(&f, 2, dims), SPLIT, HR_DTYPE_I64);
  return hr__formula_end(&f, upper_bits(&f, bits, 32, HR_DTYPE_U32));
}

hr_status hr__emit_fold_in(const hr__function_call *c) {
  const int64_t two = 2;
  hr__formula f;
  hr__formula_begin(&f, c);
  const hr_tensor *index =
      hr__binary(&f, HR_OP_ADD, numbered(&f, 1, &two), hr__integer(&f, 2 * hr__int_attribute(c, 0)));
  return hr__formula_end(&f, upper_bits(&f, draw(&f, HR_OP_PHILOX_BITS, index, FOLD, HR_DTYPE_I64), 32, HR_DTYPE_U32));
}

/* ---- samples ---- */

hr_status hr__emit_random_bits(const hr__function_call *c) {
  hr_dtype dtype = hr__dtype_attribute(c, 1);
  dtype = dtype != HR_DTYPE_NONE ? dtype : HR_DTYPE_U32;
  int width = 8 * (int)hr_dtype_size(dtype);
  if (!hr_dtype_is_integer(dtype) || dtype == HR_DTYPE_BOOL || width > 32) {
    return HR__CALL_FAIL(c, "dtype %s, expected an integer of 8, 16 or 32 bits", hr_dtype_name(dtype));
  }
  hr__formula f;
  hr__formula_begin(&f, c);
  return hr__formula_end(&f, upper_bits(&f, draw_shape(&f, HR_OP_PHILOX_BITS, HR_DTYPE_I64), width, dtype));
}

/* x * scale + shift; attributes. */
static const hr_tensor *scaled(hr__formula *f, const hr_tensor *x, hr_scalar shift, hr_scalar scale) {
  return hr__binary(f, HR_OP_ADD, hr__binary(f, HR_OP_MUL, x, hr__number(f, scale)), hr__number(f, shift));
}

hr_status hr__emit_uniform_samples(const hr__function_call *c) {
  enum { SHAPE, LOW, HIGH, DTYPE };
  hr__formula f;
  hr__formula_begin(&f, c);
  hr_scalar low = hr__real_attribute(c, LOW), high = hr__real_attribute(c, HIGH);
  double first = hr_scalar_as_f64(&low), width = hr_scalar_as_f64(&high) - first;
  const hr_tensor *x = draw_shape(&f, HR_OP_PHILOX_UNIFORM, real_dtype(c, DTYPE));
  bool is_unit = first == 0 && width == 1;
  return hr__formula_end(&f, is_unit ? x : scaled(&f, x, hr_scalar_f64(first), hr_scalar_f64(width)));
}

hr_status hr__emit_normal(const hr__function_call *c) {
  enum { SHAPE, LOC, SCALE, DTYPE };
  hr__formula f;
  hr__formula_begin(&f, c);
  const hr_tensor *x = draw_shape(&f, HR_OP_PHILOX_NORMAL, real_dtype(c, DTYPE));
  return hr__formula_end(&f, scaled(&f, x, hr__real_attribute(c, LOC), hr__real_attribute(c, SCALE)));
}

hr_status hr__emit_bernoulli(const hr__function_call *c) {
  hr__formula f;
  hr__formula_begin(&f, c);
  const hr_tensor *x = draw_shape(&f, HR_OP_PHILOX_UNIFORM, HR_DTYPE_F32);
  return hr__formula_end(&f, hr__binary(&f, HR_OP_LT, x, c->inputs[1]));
}

/* The remainder of 63 bits: uneven by 2^-31 at most for ranges below 2^32. */
hr_status hr__emit_randint(const hr__function_call *c) {
  enum { SHAPE, LOW, HIGH, DTYPE };
  int64_t low = hr__int_attribute(c, LOW), high = hr__int_attribute(c, HIGH), range;
  hr_dtype dtype = hr__dtype_attribute(c, DTYPE);
  if (__builtin_sub_overflow(high, low, &range) || range < 1) {
    return HR__CALL_FAIL(c, "low %lld and high %lld, expected a smaller low", (long long)low, (long long)high);
  }
  hr__formula f;
  hr__formula_begin(&f, c);
  const hr_tensor *x = draw_shape(&f, HR_OP_PHILOX_BITS, HR_DTYPE_I64);
  x = hr__binary(&f, HR_OP_ADD, hr__binary(&f, HR_OP_REMAINDER, x, hr__integer(&f, range)), hr__integer(&f, low));
  return hr__formula_end(&f, hr__as_dtype(&f, x, dtype != HR_DTYPE_NONE ? dtype : HR_DTYPE_I32));
}

/* -log(-log(u)) of a uniform u that is not 0. */
static const hr_tensor *gumbel(hr__formula *f, int rank, const int64_t *dims, hr_dtype dtype) {
  const hr_tensor *u = draw_dims(f, HR_OP_PHILOX_UNIFORM, rank, dims, dtype);
  u = hr__binary(f, HR_OP_MAXIMUM, u, hr__real(f, 0x1p-25));
  const hr_tensor *e = hr__unary(f, HR_OP_NEG, hr__unary(f, HR_OP_LOG, u));
  return hr__unary(f, HR_OP_NEG, hr__unary(f, HR_OP_LOG, e));
}

hr_status hr__emit_gumbel(const hr__function_call *c) {
  hr__formula f;
  hr__formula_begin(&f, c);
  const hr_attribute *shape = &c->attributes[0];
  return hr__formula_end(&f, gumbel(&f, shape->count, shape->value.ints, real_dtype(c, 1)));
}

hr_status hr__emit_exponential(const hr__function_call *c) {
  hr__formula f;
  hr__formula_begin(&f, c);
  const hr_tensor *u = hr__unary(&f, HR_OP_NEG, draw_shape(&f, HR_OP_PHILOX_UNIFORM, real_dtype(c, 1)));
  return hr__formula_end(&f, hr__unary(&f, HR_OP_NEG, hr__unary(&f, HR_OP_LOG1P, u)));
}

/* -sign(v) log(1 - |v|), v in (-1, 1). */
hr_status hr__emit_laplace(const hr__function_call *c) {
  enum { SHAPE, LOC, SCALE, DTYPE };
  hr__formula f;
  hr__formula_begin(&f, c);
  const hr_tensor *v = draw_shape(&f, HR_OP_PHILOX_UNIFORM, real_dtype(c, DTYPE));
  v = scaled(&f, v, hr_scalar_f64(-1 + 0x1p-24), hr_scalar_i64(2));
  const hr_tensor *size = hr__unary(&f, HR_OP_LOG1P, hr__unary(&f, HR_OP_NEG, hr__unary(&f, HR_OP_ABS, v)));
  const hr_tensor *x = hr__unary(&f, HR_OP_NEG, hr__binary(&f, HR_OP_MUL, hr__unary(&f, HR_OP_SIGN, v), size));
  return hr__formula_end(&f, scaled(&f, x, hr__real_attribute(c, LOC), hr__real_attribute(c, SCALE)));
}

/* sqrt(2) erfinv(u), u uniform between erf of the bounds. */
hr_status hr__emit_truncated_normal(const hr__function_call *c) {
  enum { SHAPE, LOW, HIGH, DTYPE };
  hr_scalar bounds[2] = {hr__real_attribute(c, LOW), hr__real_attribute(c, HIGH)};
  double root = sqrt(2), low = hr_scalar_as_f64(&bounds[0]), high = hr_scalar_as_f64(&bounds[1]);
  double first = erf(low / root), width = erf(high / root) - first;
  hr__formula f;
  hr__formula_begin(&f, c);
  const hr_tensor *u = draw_shape(&f, HR_OP_PHILOX_UNIFORM, real_dtype(c, DTYPE));
  u = hr__unary(&f, HR_OP_ERFINV, scaled(&f, u, hr_scalar_f64(first), hr_scalar_f64(width)));
  const hr_tensor *x = hr__binary(&f, HR_OP_MUL, u, hr__real(&f, root));
  return hr__formula_end(&f, hr__ternary(&f, HR_OP_CLAMP, x, hr__real(&f, low), hr__real(&f, high)));
}

/* The place of the largest sum of a logit and a number of Gumbel's distribution. */
hr_status hr__emit_categorical(const hr__function_call *c) {
  const hr_tensor *logits = c->inputs[1];
  int axis;
  HR_RETURN_IF_ERROR(hr__check_axis(c, hr__int_attribute(c, 0), logits->rank, &axis));
  hr__formula f;
  hr__formula_begin(&f, c);
  hr_dtype dtype = logits->dtype == HR_DTYPE_F64 ? HR_DTYPE_F64 : HR_DTYPE_F32;
  const hr_tensor *x = hr__binary(&f, HR_OP_ADD, gumbel(&f, logits->rank, logits->dims, dtype), logits);
  return hr__formula_end(&f, hr__reduced(&f, HR_OP_ARGMAX, x, 1u << axis));
}

/* x's slices along an axis in the order of random bits. */
hr_status hr__emit_permutation(const hr__function_call *c) {
  const hr_tensor *x = c->inputs[1];
  int axis;
  HR_RETURN_IF_ERROR(hr__check_axis(c, hr__int_attribute(c, 0), x->rank, &axis));
  hr__formula f;
  hr__formula_begin(&f, c);
  const hr_tensor *bits = draw_dims(&f, HR_OP_PHILOX_BITS, 1, &x->dims[axis], HR_DTYPE_I64);
  const hr_tensor *pair[2] = {x, hr__function(&f, HR_FUNCTIONAL_ARGSORT, 1, &bits, 0, NULL)};
  return hr__formula_end(&f, hr__along_pair(&f, HR_OP_INDEX_SELECT, pair, axis));
}
