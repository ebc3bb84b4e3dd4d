/* Lowerings of random fills and dropout.
 *
 * Each element's number comes from Philox with the element's row-major index as counter. So it does not depend on
 * layout, mode or thread count:
 *
 *   u = philox_uniform(index, seed, offset)      in [0, 1)
 *
 * Numbers are computed in f32 (f64 for f64 outputs) and rounded once to the output's dtype.
 */
#include "core/ir/build.h"
#include "core/ir/dtype.h"

/* The row-major number of each element of x. */
static hr_operand element_number(hr_builder *b, hr_operand x) {
  int64_t strides[HR_RANK_MAX], stride = 1;
  for (int d = x.rank - 1; d >= 0; --d) {
    strides[d] = stride;
    stride *= x.dims[d];
  }
  return hr_build_index(b, x.rank, x.dims, 0, strides);
}

/* A temporary like x with `op`'s numbers; seed and offset are attribute scalars `at` and `at` + 1. */
static hr_operand make_random(hr_builder *b, const hr_node *node, int at, hr_op op, hr_operand x, hr_dtype dtype) {
  hr_operand random = hr_build_temp_like(b, x, dtype);
  hr_emit3(b, op, random, element_number(b, x), hr_build_attr(b, node, at), hr_build_attr(b, node, at + 1));
  return random;
}

static hr_dtype arithmetic(hr_dtype dtype) {
  return dtype == HR_DTYPE_F64 ? HR_DTYPE_F64 : HR_DTYPE_F32;
}

/* y = x / (1 - p) where u < 1 - p, else 0. A NaN or infinity that is dropped is 0, also for p = 1. */
hr_status hr__lower_dropout(hr_builder *b, const hr_node *node) {
  hr_operand x = hr_node_input(node, 0), y = hr_node_output(node, 0), mask = hr_node_output(node, 1);
  if (hr_operand_count(y) == 0) {
    return HR_OK;
  }
  hr_dtype dtype = arithmetic(y.dtype);
  hr_operand keep = hr_build_temp_like(b, y, dtype), scale = hr_build_temp_like(b, y, dtype);
  hr_operand scaled = hr_build_temp_like(b, y, dtype);
  mask = hr_is_present(mask) ? mask : hr_build_temp_like(b, y, HR_DTYPE_BOOL);
  hr_emit2(b, HR_OP_SUB, keep, hr_build_f64(b, 1), hr_build_attr(b, node, 0));
  hr_emit1(b, HR_OP_RECIPROCAL, scale, keep);
  hr_emit2(b, HR_OP_LT, mask, make_random(b, node, 1, HR_OP_PHILOX_UNIFORM, y, dtype), keep);
  hr_emit2(b, HR_OP_MUL, scaled, x, scale);
  hr_emit3(b, HR_OP_WHERE, y, mask, scaled, hr_build_f64(b, 0));
  return HR_OK;
}

/* Bits of precision of a dtype narrower than f32; 0 for the others. */
static int narrow_digits(hr_dtype dtype) {
  return dtype == HR_DTYPE_F16 ? 11 : dtype == HR_DTYPE_BF16 ? 8 : 0;
}

/* [from, to): a number that rounds up to `to` becomes `from`. Narrow dtypes get no more random bits than they can hold,
 * so that this is rare. */
static void lower_uniform(hr_builder *b, const hr_node *node, hr_operand y) {
  hr_operand from = hr_build_attr(b, node, 0), to = hr_build_attr(b, node, 1);
  hr_dtype dtype = arithmetic(y.dtype);
  hr_operand u = make_random(b, node, 2, HR_OP_PHILOX_UNIFORM, y, dtype);
  hr_operand value = hr_build_temp_like(b, y, y.dtype), below = hr_build_temp_like(b, y, HR_DTYPE_BOOL), limit = to;
  int digits = narrow_digits(y.dtype);
  if (digits > 0) {
    u = hr_make2(b, HR_OP_MUL, dtype, u, hr_build_f64(b, (double)(1 << digits)));
    u = hr_make1(b, HR_OP_FLOOR, dtype, u);
    u = hr_make2(b, HR_OP_MUL, dtype, u, hr_build_f64(b, 1.0 / (double)(1 << digits)));
    limit = hr_build_temp_like(b, y, y.dtype);
    hr_emit1(b, HR_OP_COPY, limit, to);
  }
  hr_emit3(b, HR_OP_LERP, value, from, to, u);
  hr_emit2(b, HR_OP_LT, below, value, limit);
  hr_emit3(b, HR_OP_WHERE, y, below, value, from);
}

static void lower_normal(hr_builder *b, const hr_node *node, hr_operand y) {
  hr_operand mean = hr_node_input(node, 0), std = hr_node_input(node, 1);
  mean = hr_is_present(mean) ? mean : hr_build_attr(b, node, 0);
  std = hr_is_present(std) ? std : hr_build_attr(b, node, 1);
  hr_emit3(b, HR_OP_ADD_SCALED, y, mean, make_random(b, node, 2, HR_OP_PHILOX_NORMAL, y, arithmetic(y.dtype)), std);
}

static void lower_bernoulli(hr_builder *b, const hr_node *node, hr_operand y) {
  hr_operand p = hr_node_input(node, 0);
  p = hr_is_present(p) ? p : hr_build_attr(b, node, 0);
  hr_operand u = make_random(b, node, 1, HR_OP_PHILOX_UNIFORM, y, arithmetic(p.dtype));
  hr_operand hit = y.dtype == HR_DTYPE_BOOL ? y : hr_build_temp_like(b, y, HR_DTYPE_BOOL);
  hr_emit2(b, HR_OP_LT, hit, u, p);
  if (y.dtype != HR_DTYPE_BOOL) {
    hr_emit1(b, HR_OP_COPY, y, hit);
  }
}

/* from + bits mod (to - from), unsigned, because to - from may need all 64 bits. */
static void lower_random_int(hr_builder *b, const hr_node *node, hr_operand y) {
  hr_operand from = hr_build_attr(b, node, 0), to = hr_build_attr(b, node, 1);
  hr_operand range = hr_build_temp_like(b, y, HR_DTYPE_U64), part = hr_build_temp_like(b, y, HR_DTYPE_U64);
  hr_operand bits = make_random(b, node, 2, HR_OP_PHILOX_BITS, y, HR_DTYPE_U64);
  hr_emit2(b, HR_OP_SUB, range, to, from);
  hr_emit2(b, HR_OP_REMAINDER, part, bits, range);
  hr_operand value = hr_dtype_is_integer(y.dtype) ? y : hr_build_temp_like(b, y, HR_DTYPE_I64);
  hr_emit2(b, HR_OP_ADD, value, part, from);
  if (!hr_dtype_is_integer(y.dtype)) {
    hr_emit1(b, HR_OP_COPY, y, value);
  }
}

/* -log(1 - u) / lambda; log(1) counts as the largest logarithm below it, so that the result is positive. */
static void lower_exponential(hr_builder *b, const hr_node *node, hr_operand y) {
  hr_dtype dtype = arithmetic(y.dtype);
  double largest = dtype == HR_DTYPE_F64 ? -0x1p-53 : -0x1p-24;
  double least = y.dtype == HR_DTYPE_F16 ? 0x1p-24 : dtype == HR_DTYPE_F64 ? 0x1p-1022 : 0x1p-126;
  hr_operand u = make_random(b, node, 1, HR_OP_PHILOX_UNIFORM, y, dtype);
  hr_operand v = hr_make2(b, HR_OP_SUB, dtype, hr_build_f64(b, 1), u);
  hr_operand l = hr_make2(b, HR_OP_MINIMUM, dtype, hr_make1(b, HR_OP_LOG, dtype, v), hr_build_f64(b, largest));
  hr_operand x = hr_make2(b, HR_OP_DIV, dtype, hr_make1(b, HR_OP_NEG, dtype, l), hr_build_attr(b, node, 0));
  hr_emit2(b, HR_OP_MAXIMUM, y, x, hr_build_f64(b, least));
}

hr_status hr__lower_random_fill(hr_builder *b, const hr_node *node) {
  hr_operand y = hr_node_output(node, 0);
  if (hr_dtype_is_complex(y.dtype)) {
    return hr_status_make(HR_STATUS_UNIMPLEMENTED, "%s: dtype %s; fill the real and imaginary parts as real numbers",
                          hr_op_table(node->op)->name, hr_dtype_name(y.dtype));
  }
  if (hr_operand_count(y) == 0) {
    return HR_OK;
  }
  switch (node->op) {
    case HR_OP_UNIFORM:
      lower_uniform(b, node, y);
      break;
    case HR_OP_NORMAL:
      lower_normal(b, node, y);
      break;
    case HR_OP_BERNOULLI:
      lower_bernoulli(b, node, y);
      break;
    case HR_OP_RANDOM_INT:
      lower_random_int(b, node, y);
      break;
    case HR_OP_EXPONENTIAL:
      lower_exponential(b, node, y);
      break;
    default:
      return hr_status_make(HR_STATUS_INTERNAL, "random fill: unexpected operation %d", (int)node->op);
  }
  return HR_OK;
}
