/* lower_reduce.c: means, variances, norms, log-sum-exp and softmax as loops over rows.
 *
 * Every lowering here consists of reductions over one mask with their dims kept, and element-wise nodes between them.
 * So the fuser makes one kernel of it, whose rows stay resident. Variances take two passes. Values computed from f16
 * and bf16 stay f32 until they are stored.
 */
#include <math.h>

#include "core/ops/lower.h"

/* x and the mask of a reduction. A reduction over no dims becomes one over a new dim of one element. */
typedef struct reduction {
  hr_operand x;
  uint32_t mask;
  bool is_grown;
  double count; /* elements of a row */
} reduction;

static reduction reduction_of(hr_builder *b, hr_operand x, uint32_t mask) {
  reduction r = {x, mask, mask == 0, (double)hr__mask_count(x, mask)};
  if (r.is_grown) {
    r.x = hr_view_insert(b, x, 0, 1);
    r.mask = 1;
  }
  return r;
}

static hr_operand output_of(hr_builder *b, const reduction *r, const hr_node *node, int i) {
  hr_operand out = hr_node_output(node, i);
  return r->is_grown ? hr__ones_before(b, out, 1) : out;
}

hr_status hr__lower_mean(hr_builder *b, const hr_node *node) {
  reduction r = reduction_of(b, hr_node_input(node, 0), (uint32_t)node->ints[0]);
  hr_operand out = output_of(b, &r, node, 0);
  hr_operand sum = hr_make_reduce(b, HR_OP_SUM, hr__wide(out.dtype), r.x, r.mask);
  hr_emit2(b, HR_OP_DIV, out, sum, hr_build_f64(b, r.count));
  return HR_OK;
}

/* |x|^2, real. */
static hr_operand make_square(hr_builder *b, hr_operand x, hr_dtype dtype) {
  if (!hr_dtype_is_complex(x.dtype)) {
    return hr_make1(b, HR_OP_SQUARE, dtype, x);
  }
  hr_operand im = hr_make1(b, HR_OP_IMAG, dtype, x);
  hr_operand re = hr_make1(b, HR_OP_REAL, dtype, x);
  return hr_make3(b, HR_OP_ADD_SCALED, dtype, hr_make1(b, HR_OP_SQUARE, dtype, re), im, im);
}

hr_status hr__lower_var_mean(hr_builder *b, const hr_node *node) {
  hr_operand x = hr_node_input(node, 0);
  reduction r = reduction_of(b, x, (uint32_t)node->ints[0]);
  hr_operand out = output_of(b, &r, node, 0), mean_out = output_of(b, &r, node, 1);
  hr_dtype dtype = hr__wide(x.dtype), real = hr__real_part(dtype);
  hr_operand sum = hr_make_reduce(b, HR_OP_SUM, dtype, r.x, r.mask);
  hr_operand mean = hr__result(b, mean_out, dtype, sum);
  hr_emit2(b, HR_OP_DIV, mean, sum, hr_build_f64(b, r.count));
  hr_operand centred = hr_make2(b, HR_OP_SUB, dtype, r.x, mean);
  hr_operand squares = hr_make_reduce(b, HR_OP_SUM, real, make_square(b, centred, real), r.mask);
  hr_operand freedom = hr_build_temp_like(b, squares, real); /* a row value, so that it fuses */
  hr_emit2(b, HR_OP_SUB, freedom, hr_build_f64(b, r.count), hr_build_attr(b, node, 0));
  hr_operand divisor = hr_make2(b, HR_OP_MAXIMUM, real, freedom, hr_build_f64(b, 0));
  if (node->ints[1] != 0) {
    hr_emit1(b, HR_OP_SQRT, out, hr_make2(b, HR_OP_DIV, real, squares, divisor));
  } else {
    hr_emit2(b, HR_OP_DIV, out, squares, divisor);
  }
  hr__deliver(b, mean_out, dtype, mean);
  return HR_OK;
}

enum { NORM_ANY = 0, NORM_COUNT, NORM_ONE, NORM_TWO, NORM_MAX, NORM_MIN }; /* ints[1] of NORM */

/* sum(|x|^p)^(1/p) for a p that is an argument of the run. 0 counts the non-zero elements, infinities give the largest
 * or smallest. */
static void emit_any_norm(hr_builder *b, hr_operand out, hr_operand size, hr_operand p, uint32_t mask, hr_dtype dtype) {
  hr_operand largest = hr_make_reduce(b, HR_OP_AMAX, dtype, size, mask);
  hr_operand smallest = hr_make_reduce(b, HR_OP_AMIN, dtype, size, mask);
  hr_operand zero = hr_build_f64(b, 0), one = hr_build_f64(b, 1);
  hr_operand is_count = hr_build_temp_like(b, largest, HR_DTYPE_BOOL);
  hr_emit2(b, HR_OP_EQ, is_count, p, zero);
  hr_operand power = hr_make2(b, HR_OP_POW, dtype, size, p);
  hr_operand counts = hr_make2(b, HR_OP_NE, HR_DTYPE_BOOL, size, zero);
  hr_operand sum = hr_make_reduce(b, HR_OP_SUM, dtype, hr_make3(b, HR_OP_WHERE, dtype, is_count, counts, power), mask);
  hr_operand inverse = hr_build_temp_like(b, largest, dtype);
  hr_emit2(b, HR_OP_DIV, inverse, one, p);
  hr_operand exponent = hr_make3(b, HR_OP_WHERE, dtype, is_count, one, inverse);
  hr_operand root = hr_make2(b, HR_OP_POW, dtype, sum, exponent);
  hr_operand is_max = hr_build_temp_like(b, largest, HR_DTYPE_BOOL);
  hr_operand is_min = hr_build_temp_like(b, largest, HR_DTYPE_BOOL);
  hr_emit2(b, HR_OP_EQ, is_max, p, hr_build_f64(b, INFINITY));
  hr_emit2(b, HR_OP_EQ, is_min, p, hr_build_f64(b, -INFINITY));
  hr_emit3(b, HR_OP_WHERE, out, is_max, largest, hr_make3(b, HR_OP_WHERE, dtype, is_min, smallest, root));
}

hr_status hr__lower_norm(hr_builder *b, const hr_node *node) {
  hr_operand x = hr_node_input(node, 0);
  reduction r = reduction_of(b, x, (uint32_t)node->ints[0]);
  hr_operand out = output_of(b, &r, node, 0);
  hr_dtype dtype = hr__wide(out.dtype);
  int64_t kind = node->int_count > 1 ? node->ints[1] : NORM_ANY;
  if (kind == NORM_TWO) {
    hr_emit1(b, HR_OP_SQRT, out, hr_make_reduce(b, HR_OP_SUM, dtype, make_square(b, r.x, dtype), r.mask));
    return HR_OK;
  }
  if (kind == NORM_COUNT) {
    hr_emit_reduce(b, HR_OP_SUM, out, hr_make2(b, HR_OP_NE, HR_DTYPE_BOOL, r.x, hr_build_f64(b, 0)), r.mask);
    return HR_OK;
  }
  hr_operand size = hr_make1(b, hr_dtype_is_complex(x.dtype) ? HR_OP_ABS_COMPLEX : HR_OP_ABS, dtype, r.x);
  if (kind == NORM_ANY && r.count == 0) {
    hr_emit1(b, HR_OP_COPY, out, hr_build_f64(b, 0));
  } else if (kind == NORM_ANY) {
    emit_any_norm(b, out, size, hr_build_attr(b, node, 0), r.mask, dtype);
  } else {
    hr_op op = kind == NORM_ONE ? HR_OP_SUM : kind == NORM_MAX ? HR_OP_AMAX : HR_OP_AMIN;
    hr_emit_reduce(b, op, out, size, r.mask);
  }
  return HR_OK;
}

/* log(sum(exp(x))) = m + log(sum(exp(x - m))), m = max(x), or 0 if that is infinite. */
hr_status hr__lower_logsumexp(hr_builder *b, const hr_node *node) {
  reduction r = reduction_of(b, hr_node_input(node, 0), (uint32_t)node->ints[0]);
  hr_operand out = output_of(b, &r, node, 0);
  hr_dtype dtype = hr__wide(out.dtype);
  if (r.count == 0) {
    hr_emit1(b, HR_OP_COPY, out, hr_build_f64(b, -INFINITY));
    return HR_OK;
  }
  hr_operand largest = hr_make_reduce(b, HR_OP_AMAX, dtype, r.x, r.mask);
  hr_operand infinite = hr_make1(b, HR_OP_IS_INF, HR_DTYPE_BOOL, largest);
  hr_operand shift = hr_make3(b, HR_OP_WHERE, dtype, infinite, hr_build_f64(b, 0), largest);
  hr_operand moved = hr_make2(b, HR_OP_SUB, dtype, r.x, shift);
  hr_operand sum = hr_make_reduce(b, HR_OP_SUM, dtype, hr_make1(b, HR_OP_EXP, dtype, moved), r.mask);
  hr_emit2(b, HR_OP_ADD, out, hr_make1(b, HR_OP_LOG, dtype, sum), shift);
  return HR_OK;
}

/* A tensor of rank 0 becomes a row of one element. */
static hr_operand at_least_one_dim(hr_builder *b, hr_operand x) {
  return x.rank == 0 ? hr_view_insert(b, x, 0, 1) : x;
}

hr_status hr__lower_softmax(hr_builder *b, const hr_node *node) {
  hr_operand x = at_least_one_dim(b, hr_node_input(node, 0)), y = at_least_one_dim(b, hr_node_output(node, 0));
  hr_dtype dtype = hr__wide(y.dtype);
  uint32_t mask = UINT32_C(1) << node->ints[0];
  if (hr_operand_count(y) == 0) {
    return HR_OK;
  }
  hr_operand largest = hr_make_reduce(b, HR_OP_AMAX, dtype, x, mask);
  hr_operand moved = hr_make2(b, HR_OP_SUB, dtype, x, largest);
  hr_operand power = hr_make1(b, HR_OP_EXP, dtype, moved);
  hr_operand sum = hr_make_reduce(b, HR_OP_SUM, dtype, power, mask);
  if (node->op == HR_OP_SOFTMAX) {
    hr_emit2(b, HR_OP_DIV, y, power, sum);
  } else {
    hr_emit2(b, HR_OP_SUB, y, moved, hr_make1(b, HR_OP_LOG, dtype, sum));
  }
  return HR_OK;
}

/* softmax: dx = (dy - sum(dy * y)) * y; log softmax: dx = dy - exp(y) * sum(dy). */
hr_status hr__lower_softmax_backward(hr_builder *b, const hr_node *node) {
  hr_operand dy = at_least_one_dim(b, hr_node_input(node, 0)), y = at_least_one_dim(b, hr_node_input(node, 1));
  hr_operand dx = at_least_one_dim(b, hr_node_output(node, 0));
  hr_dtype dtype = hr__wide(y.dtype);
  uint32_t mask = UINT32_C(1) << node->ints[0];
  if (hr_operand_count(y) == 0) {
    return HR_OK;
  }
  if (node->op == HR_OP_SOFTMAX_BACKWARD) {
    hr_operand sum = hr_make_reduce(b, HR_OP_SUM, dtype, hr_make2(b, HR_OP_MUL, dtype, dy, y), mask);
    hr_emit2(b, HR_OP_MUL, dx, hr_make2(b, HR_OP_SUB, dtype, dy, sum), y);
  } else {
    hr_operand sum = hr_make_reduce(b, HR_OP_SUM, dtype, dy, mask);
    hr_emit3(b, HR_OP_SUB_SCALED, dx, dy, hr_make1(b, HR_OP_EXP, dtype, y), sum);
  }
  return HR_OK;
}
