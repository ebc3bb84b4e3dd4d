/* ops_quantize.c: rules of numbers as integers of a few bits would have them, with 0 as 0: QuantizeAndDequantize*. */
#include <float.h>
#include <string.h>

#include "node.h"

/* The range of one tensor, or of each slice along an axis: it has the operand's rank then, and dims of 1. */
typedef struct range {
  htf_value low, high;
} range;

/* A range as its numbers are scaled, rounded and scaled back. */
typedef struct steps {
  htf_value low, high, scale, inverse;
} steps;

/* The axis of the ranges; -1: one range. */
static int range_axis(htf_node *node, htf_value x) {
  int64_t axis = htf_integer(node, "axis");
  if (!htf_has_failed(node) && (axis < -1 || axis >= x->rank)) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "%s: invalid axis %lld for %d dims, it must be at least -1",
             node->kernel->row->op, (long long)axis, x->rank);
  }
  return (int)axis;
}

/* Inputs `first` and the next one. */
static range read_range(htf_node *node, int first, htf_value x, int axis) {
  range r = {htf_input(node, first), htf_input(node, first + 1)};
  int64_t dims[HR_RANK_MAX];
  int64_t count = axis < 0 || htf_has_failed(node) ? 1 : x->dims[axis];
  for (int d = 0; d < x->rank; ++d) {
    dims[d] = d == axis ? count : 1;
  }
  if (!htf_has_failed(node) && (hr_tensor_count(r.low) != count || hr_tensor_count(r.high) != count)) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "%s: the range must have %lld numbers, it has %lld and %lld",
             node->kernel->row->op, (long long)count, (long long)hr_tensor_count(r.low),
             (long long)hr_tensor_count(r.high));
  }
  return htf_has_failed(node) || axis < 0
             ? r
             : (range){htf_reshape(node, r.low, x->rank, dims), htf_reshape(node, r.high, x->rank, dims)};
}

static htf_value extreme(htf_node *node, hr_functional function, htf_value x, int axis) {
  int64_t axes[HR_RANK_MAX];
  int count = 0;
  for (int d = 0; d < x->rank; ++d) {
    axes[count] = d, count += d != axis;
  }
  return count == 0
             ? x
             : htf_call(node, function, INPUTS(x), ATTRIBUTES(htf_attr_ints(axes, count), htf_attr_flag(axis >= 0)));
}

/* The factor that scales a bound's side to `most`, or the largest number if it does not bound it. */
static htf_value scale_of(htf_node *node, double most, htf_value bound) {
  htf_value product = htf_multiply(node, bound, htf_number(node, most));
  htf_value bounds = htf_call2(node, HR_FUNCTIONAL_GREATER, product, htf_number(node, 0));
  double largest = htf_has_failed(node) || bound->dtype == HR_DTYPE_F64 ? DBL_MAX : (double)FLT_MAX;
  return htf_where(node, bounds, htf_divide(node, htf_number(node, most), bound), htf_number(node, largest));
}

/* The side that bounds the scale keeps its end, the other one moves. */
static steps find_steps(htf_node *node, range r, int64_t bits) {
  bool is_signed = htf_flag(node, "signed_input");
  if (bits < (is_signed ? 2 : 1) || bits > 62) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "num_bits is out of range: %lld with signed_input %d", (long long)bits,
             is_signed);
  }
  if (htf_has_failed(node)) {
    return (steps){NULL, NULL, NULL, NULL};
  }
  double low = !is_signed ? 0 : -(double)(1LL << (bits - 1)) + (double)htf_flag(node, "narrow_range");
  double high = (double)((is_signed ? 1LL << (bits - 1) : 1LL << bits) - 1);
  htf_value low_scale = is_signed ? scale_of(node, low, r.low) : NULL, high_scale = scale_of(node, high, r.high);
  htf_value high_inverse = htf_divide(node, r.high, htf_number(node, high));
  steps s = {htf_multiply(node, high_inverse, htf_number(node, low)), r.high, high_scale, high_inverse};
  if (is_signed) {
    htf_value is_low = htf_call2(node, HR_FUNCTIONAL_LESS, low_scale, high_scale);
    htf_value inverse = htf_divide(node, r.low, htf_number(node, low));
    s.low = htf_where(node, is_low, r.low, s.low);
    s.high = htf_where(node, is_low, htf_multiply(node, inverse, htf_number(node, high)), r.high);
    s.scale = htf_where(node, is_low, low_scale, high_scale);
    s.inverse = htf_where(node, is_low, inverse, high_inverse);
  }
  return s;
}

static void quantize(htf_node *node, int64_t bits) {
  htf_value x = htf_input(node, 0);
  int axis = range_axis(node, x);
  bool is_given = htf_flag(node, "range_given"),
       rounds_up = strcmp(htf_text_or(node, "round_mode", ""), "HALF_UP") == 0;
  range r = read_range(node, 1, x, axis);
  if (htf_has_failed(node) || hr_tensor_count(x) == 0) {
    htf_output(node, 0, x);
    return;
  }
  if (!is_given) {
    r.low = extreme(node, HR_FUNCTIONAL_MIN, x, axis), r.high = extreme(node, HR_FUNCTIONAL_MAX, x, axis);
  }
  steps s = find_steps(node, r, bits);
  if (htf_has_failed(node)) {
    return;
  }
  if (is_given) {
    x = htf_call2(node, HR_FUNCTIONAL_MAXIMUM, htf_call2(node, HR_FUNCTIONAL_MINIMUM, x, s.high), s.low);
  }
  htf_value level = htf_multiply(node, x, s.scale);
  level = rounds_up ? htf_call1(node, HR_FUNCTIONAL_FLOOR, htf_add(node, level, htf_number(node, 0.5)))
                    : htf_call1(node, HR_FUNCTIONAL_ROUND, level);
  htf_output(node, 0, htf_multiply(node, level, s.inverse));
}

/* Inputs: numbers, the least and the largest one. */
void htf_quantize_dequantize(htf_node *node) {
  quantize(node, htf_integer(node, "num_bits"));
}

/* The same with the number of bits as input 3. */
void htf_quantize_dequantize_bits(htf_node *node) {
  quantize(node, htf_host_int(node, 3));
}

/* Inputs: gradients, numbers, the least and the largest one. Numbers outside have no gradient, and so has the range. */
void htf_quantize_dequantize_gradient(htf_node *node) {
  htf_value gradient = htf_input(node, 0), x = htf_input(node, 1);
  range r = read_range(node, 2, x, range_axis(node, x));
  htf_value low = htf_input(node, 2);
  if (htf_has_failed(node)) {
    return;
  }
  htf_value is_inside =
      htf_call2(node, HR_FUNCTIONAL_LOGICAL_AND, htf_call2(node, HR_FUNCTIONAL_GREATER_EQUAL, x, r.low),
                htf_call2(node, HR_FUNCTIONAL_LESS_EQUAL, x, r.high));
  htf_output(node, 0, htf_multiply(node, gradient, htf_cast(node, is_inside, gradient->dtype)));
  htf_output(node, 1, htf_zeros(node, low->rank, low->dims, low->dtype));
  htf_output(node, 2, htf_zeros(node, low->rank, low->dims, low->dtype));
}
