/* ops_elementwise.c: rules of element-wise operations, activations and their gradients. */
#include <stdlib.h>
#include <string.h>

#include "node.h"

void htf_unary(htf_node *node) {
  htf_output(node, 0, htf_call1(node, node->function, htf_input(node, 0)));
}

static bool do_broadcast(htf_value x, htf_value y) {
  bool fit = true;
  for (int d = 1; d <= x->rank && d <= y->rank; ++d) {
    int64_t a = x->dims[x->rank - d], b = y->dims[y->rank - d];
    fit = fit && (a == b || a == 1 || b == 1);
  }
  return fit;
}

/* Reads both inputs, of which the dims must fit. */
static void read_operands(htf_node *node, htf_value *out_x, htf_value *out_y) {
  htf_value x = *out_x = htf_input(node, 0), y = *out_y = htf_input(node, 1);
  if (!htf_has_failed(node) && !do_broadcast(x, y)) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "Incompatible shapes: %s vs. %s",
             htf_text_of_dims(x->rank, x->dims).text, htf_text_of_dims(y->rank, y->dims).text);
  }
}

void htf_binary(htf_node *node) {
  htf_value x, y;
  read_operands(node, &x, &y);
  htf_output(node, 0, htf_call2(node, node->function, x, y));
}

static htf_value greater(htf_node *node, htf_value x, double bound) {
  return htf_call2(node, HR_FUNCTIONAL_GREATER, x, htf_number(node, bound));
}

static htf_value less(htf_node *node, htf_value x, double bound) {
  return htf_call2(node, HR_FUNCTIONAL_LESS, x, htf_number(node, bound));
}

/* The zero of integers must not make floats of them. */
static htf_value zero(htf_node *node) {
  return htf_number_of(node, hr_scalar_i64(0));
}

static htf_value conjugate(htf_node *node, htf_value x) {
  bool is_complex = x->dtype == HR_DTYPE_C64 || x->dtype == HR_DTYPE_C128;
  return is_complex ? htf_call1(node, HR_FUNCTIONAL_CONJ, x) : x;
}

/* ---- arithmetic ---- */

/* 0 if y is 0, else x / y, or x * y. */
void htf_no_nan(htf_node *node) {
  htf_value x, y;
  read_operands(node, &x, &y);
  htf_value is_zero = htf_call2(node, HR_FUNCTIONAL_EQUAL, y, zero(node));
  htf_output(node, 0, htf_where(node, is_zero, zero(node), htf_call2(node, node->function, x, y)));
}

/* 0 if x is 0, whatever y is, NaN included. */
void htf_zero_first(htf_node *node) {
  htf_value x, y;
  read_operands(node, &x, &y);
  htf_value is_zero = htf_call2(node, HR_FUNCTIONAL_EQUAL, x, zero(node));
  htf_output(node, 0, htf_where(node, is_zero, zero(node), htf_call2(node, node->function, x, y)));
}

void htf_squared_difference(htf_node *node) {
  htf_value x, y;
  read_operands(node, &x, &y);
  htf_value difference = htf_subtract(node, x, y);
  htf_output(node, 0, htf_multiply(node, conjugate(node, difference), difference));
}

static bool is_float(htf_value x) {
  return x->dtype == HR_DTYPE_F16 || x->dtype == HR_DTYPE_BF16 || x->dtype == HR_DTYPE_F32 || x->dtype == HR_DTYPE_F64;
}

/* Integers: the quotient of what is left without the remainder, whose sign is x's. */
htf_value htf_divide_truncated(htf_node *node, htf_value x, htf_value y) {
  htf_value whole = htf_subtract(node, x, htf_call2(node, HR_FUNCTIONAL_FMOD, x, y));
  return htf_call2(node, HR_FUNCTIONAL_FLOOR_DIVIDE, whole, y);
}

void htf_truncate_divide(htf_node *node) {
  htf_value x = htf_input(node, 0), y = htf_input(node, 1);
  htf_output(node, 0,
             is_float(x) ? htf_call1(node, HR_FUNCTIONAL_TRUNC, htf_divide(node, x, y))
                         : htf_divide_truncated(node, x, y));
}

/* As in C: true division of floats and complex numbers. */
void htf_divide_as_c(htf_node *node) {
  htf_value x = htf_input(node, 0), y = htf_input(node, 1);
  bool is_inexact = is_float(x) || x->dtype == HR_DTYPE_C64 || x->dtype == HR_DTYPE_C128;
  htf_output(node, 0, is_inexact ? htf_divide(node, x, y) : htf_divide_truncated(node, x, y));
}

/* By 0 to the width less 1; other distances are bounded. */
void htf_shift(htf_node *node) {
  htf_value x = htf_input(node, 0), y = htf_input(node, 1);
  int64_t most = (int64_t)hr_dtype_size(htf_has_failed(node) ? HR_DTYPE_I8 : x->dtype) * 8 - 1;
  htf_value low = htf_call2(node, HR_FUNCTIONAL_MAXIMUM, y, zero(node));
  htf_value by = htf_call2(node, HR_FUNCTIONAL_MINIMUM, low, htf_number_of(node, hr_scalar_i64(most)));
  htf_output(node, 0, htf_call2(node, node->function, x, by));
}

void htf_approximately_equal(htf_node *node) {
  htf_value distance = htf_call1(node, HR_FUNCTIONAL_ABS, htf_subtract(node, htf_input(node, 0), htf_input(node, 1)));
  htf_output(node, 0, less(node, distance, htf_real(node, "tolerance")));
}

/* ---- checks of numbers ---- */

/* Inputs: whether there is a NaN, or an infinity. The argument is the message. */
static hr_status report_numbers(const hr_function_call *call) {
  bool has_nan = *(const bool *)call->inputs[0], has_infinity = *(const bool *)call->inputs[1];
  const char *found = has_nan && has_infinity ? "Inf and NaN" : has_nan ? "NaN" : "Inf";
  return has_nan || has_infinity
             ? hr_status_make(HR_STATUS_INVALID_ARGUMENT, "%s : Tensor had %s values", (const char *)call->arg, found)
             : HR_OK;
}

static htf_value any_of(htf_node *node, hr_functional function, htf_value x) {
  return htf_call(node, HR_FUNCTIONAL_ANY, INPUTS(htf_call1(node, function, x)), NO_ATTRIBUTES);
}

/* A number that is not finite is an error of the work. A kernel waits for it, as on TensorFlow's GPUs, so that the
 * error is that of the operation; a cluster's comes with its next wait. */
void htf_check_numerics(htf_node *node) {
  htf_value x = htf_input(node, 0);
  htf_value found[2] = {any_of(node, HR_FUNCTIONAL_ISNAN, x), any_of(node, HR_FUNCTIONAL_ISINF, x)};
  const char *message = htf_text(node, "message");
  char *copy = htf_new_argument(node, strlen(message) + 1);
  if (copy != NULL) {
    strcpy(copy, message);
    htf_record_function(node, report_numbers, copy, 2, found, 0, 0, NULL);
  }
  if (node->scope == NULL && !htf_has_failed(node)) {
    (void)htf_keep(node, hr_stream_synchronize(node->stream));
  }
  htf_output(node, 0, x);
}

static bool has_same_dims(htf_value x, htf_value y) {
  bool is_same = x->rank == y->rank;
  for (int d = 0; is_same && d < x->rank; ++d) {
    is_same = x->dims[d] == y->dims[d];
  }
  return is_same;
}

void htf_add_tensors(htf_node *node) {
  htf_value sum = htf_input(node, 0);
  int count = htf_input_count(node);
  for (int i = 1; i < count; ++i) {
    htf_value term = htf_input(node, i);
    if (!htf_has_failed(node) && !has_same_dims(sum, term)) {
      htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "AddN: input %d has other dims than input 0", i);
    }
    sum = htf_add(node, sum, term);
  }
  htf_output(node, 0, sum);
}

/* NCHW has the channels as dim 1, otherwise they are the last one. */
static int channel_of(htf_node *node, htf_value x) {
  const char *format = htf_text_or(node, "data_format", "NHWC");
  return format[0] == 'N' && format[1] == 'C' ? 1 : x->rank - 1;
}

void htf_bias_add(htf_node *node) {
  htf_value x = htf_input(node, 0), bias = htf_input(node, 1);
  int channel = channel_of(node, x);
  if (htf_has_failed(node)) {
    return;
  }
  if (x->rank < 2 || bias->rank != 1 || bias->dims[0] != x->dims[channel]) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT,
             "BiasAdd: the bias must have one dim of %lld elements, the channels of a value of at least 2 dims; it has "
             "%d dims",
             (long long)(x->rank > 0 ? x->dims[channel] : 0), bias->rank);
    return;
  }
  int64_t dims[HR_RANK_MAX];
  for (int d = channel; d < x->rank; ++d) {
    dims[d - channel] = d == channel ? bias->dims[0] : 1;
  }
  htf_output(node, 0, htf_add(node, x, htf_reshape(node, bias, x->rank - channel, dims)));
}

void htf_bias_add_grad(htf_node *node) {
  htf_value gradient = htf_input(node, 0);
  int channel = channel_of(node, gradient);
  int64_t axes[HR_RANK_MAX];
  int count = 0;
  for (int d = 0; d < gradient->rank; ++d) {
    if (d != channel) {
      axes[count++] = d;
    }
  }
  if (!htf_has_failed(node) && gradient->rank < 2) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "BiasAddGrad: the gradient must have at least 2 dims, it has %d",
             gradient->rank);
  }
  htf_output(node, 0,
             htf_call(node, HR_FUNCTIONAL_SUM, INPUTS(gradient),
                      ATTRIBUTES(htf_attr_ints(axes, count), htf_attr_flag(false), htf_attr_dtype(gradient->dtype))));
}

/* ---- comparison ---- */

/* Values of dims that do not broadcast are unequal, if the node wants no error. */
void htf_equality(htf_node *node) {
  if (htf_flag(node, "incompatible_shape_error") || do_broadcast(htf_input(node, 0), htf_input(node, 1))) {
    htf_binary(node);
    return;
  }
  htf_value answer = htf_number_of(node, hr_scalar_bool(node->function == HR_FUNCTIONAL_NOT_EQUAL));
  htf_output(node, 0,
             htf_call(node, HR_FUNCTIONAL_FULL, INPUTS(answer),
                      ATTRIBUTES(htf_attr_ints(NULL, 0), htf_attr_dtype(HR_DTYPE_BOOL))));
}

/* The bounds are numbers, or tensors of x's dims. */
void htf_clip_by_value(htf_node *node) {
  htf_value x = htf_input(node, 0), low = htf_input(node, 1), high = htf_input(node, 2);
  bool fits = (low->rank == 0 || has_same_dims(low, x)) && (high->rank == 0 || has_same_dims(high, x));
  if (!htf_has_failed(node) && !fits) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT,
             "clip_value_min and clip_value_max must be either of the same shape as input, or a scalar.");
  }
  htf_output(node, 0, htf_call2(node, HR_FUNCTIONAL_MAXIMUM, htf_call2(node, HR_FUNCTIONAL_MINIMUM, x, high), low));
}

void htf_select_v2(htf_node *node) {
  htf_output(node, 0, htf_where(node, htf_input(node, 0), htf_input(node, 1), htf_input(node, 2)));
}

/* The condition is a number, of x's dims, or a vector that selects x's first dim. */
void htf_select(htf_node *node) {
  htf_value condition = htf_input(node, 0), x = htf_input(node, 1), y = htf_input(node, 2);
  if (htf_has_failed(node)) {
    return;
  }
  bool is_vector = condition->rank == 1 && x->rank > 1 && condition->dims[0] == x->dims[0];
  if (!has_same_dims(x, y) || (condition->rank != 0 && !is_vector && !has_same_dims(condition, x))) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT,
             "Select: 't' and 'e' must have the same dims, and the condition these, one or none");
    return;
  }
  if (is_vector) {
    int64_t dims[HR_RANK_MAX] = {condition->dims[0]};
    for (int d = 1; d < x->rank; ++d) {
      dims[d] = 1;
    }
    condition = htf_reshape(node, condition, x->rank, dims);
  }
  htf_output(node, 0, htf_where(node, condition, x, y));
}

/* ---- activations ---- */

void htf_relu_grad(htf_node *node) {
  htf_value gradient = htf_input(node, 0), x = htf_input(node, 1);
  htf_output(node, 0, htf_where(node, htf_call2(node, HR_FUNCTIONAL_GREATER, x, zero(node)), gradient, zero(node)));
}

void htf_relu6_grad(htf_node *node) {
  htf_value gradient = htf_input(node, 0), x = htf_input(node, 1);
  htf_value is_above = htf_call2(node, HR_FUNCTIONAL_GREATER, x, zero(node));
  htf_value is_below = htf_call2(node, HR_FUNCTIONAL_LESS, x, htf_number_of(node, hr_scalar_i64(6)));
  htf_value is_inside = htf_call2(node, HR_FUNCTIONAL_LOGICAL_AND, is_above, is_below);
  htf_output(node, 0, htf_where(node, is_inside, gradient, zero(node)));
}

void htf_leaky_relu(htf_node *node) {
  htf_value x = htf_input(node, 0);
  htf_value scaled = htf_multiply(node, x, htf_number(node, htf_real(node, "alpha")));
  htf_output(node, 0, htf_where(node, greater(node, x, 0), x, scaled));
}

void htf_leaky_relu_grad(htf_node *node) {
  htf_value gradient = htf_input(node, 0), x = htf_input(node, 1);
  htf_value scaled = htf_multiply(node, gradient, htf_number(node, htf_real(node, "alpha")));
  htf_output(node, 0, htf_where(node, greater(node, x, 0), gradient, scaled));
}

void htf_elu_grad(htf_node *node) {
  htf_value gradient = htf_input(node, 0), y = htf_input(node, 1);
  htf_value below = htf_multiply(node, htf_add(node, y, htf_number(node, 1)), gradient);
  htf_output(node, 0, htf_where(node, less(node, y, 0), below, gradient));
}

void htf_selu_grad(htf_node *node) {
  static const double scale = 1.0507009873554804934193349852946, alpha = 1.6732632423543772848170429916717;
  htf_value gradient = htf_input(node, 0), y = htf_input(node, 1);
  htf_value below = htf_multiply(node, gradient, htf_add(node, y, htf_number(node, scale * alpha)));
  htf_value above = htf_multiply(node, gradient, htf_number(node, scale));
  htf_output(node, 0, htf_where(node, less(node, y, 0), below, above));
}

/* TensorFlow's bound is -log(epsilon) - 2 of the dtype. Above 34 log1p adds nothing, even in f64. */
void htf_softplus(htf_node *node) {
  htf_output(node, 0,
             htf_call(node, HR_FUNCTIONAL_SOFTPLUS, INPUTS(htf_input(node, 0)),
                      ATTRIBUTES(htf_attr_real(1), htf_attr_real(34))));
}

void htf_softplus_grad(htf_node *node) {
  htf_value gradient = htf_input(node, 0), x = htf_input(node, 1);
  htf_output(node, 0, htf_multiply(node, gradient, htf_call1(node, HR_FUNCTIONAL_SIGMOID, x)));
}

void htf_softsign_grad(htf_node *node) {
  htf_value gradient = htf_input(node, 0), x = htf_input(node, 1);
  htf_value size = htf_add(node, htf_call1(node, HR_FUNCTIONAL_ABS, x), htf_number(node, 1));
  htf_output(node, 0, htf_divide(node, gradient, htf_call1(node, HR_FUNCTIONAL_SQUARE, size)));
}

/* ---- gradients from results: inputs y and the gradient ---- */

/* TensorFlow conjugates y before these two. */
void htf_tanh_grad(htf_node *node) {
  htf_value y = htf_input(node, 0), gradient = htf_input(node, 1);
  htf_value factor = htf_subtract(node, htf_number(node, 1), htf_call1(node, HR_FUNCTIONAL_SQUARE, y));
  htf_output(node, 0, htf_multiply(node, gradient, factor));
}

void htf_sigmoid_grad(htf_node *node) {
  htf_value y = htf_input(node, 0), gradient = htf_input(node, 1);
  htf_value factor = htf_subtract(node, htf_number(node, 1), y);
  htf_output(node, 0, htf_multiply(node, htf_multiply(node, gradient, y), factor));
}

/* A gradient of 0 stays 0, also if the factor is infinite: sqrt has an infinite slope at 0. */
static void output_gradient(htf_node *node, htf_value gradient, htf_value result) {
  htf_value is_zero = htf_call2(node, HR_FUNCTIONAL_EQUAL, gradient, zero(node));
  htf_output(node, 0, htf_where(node, is_zero, zero(node), result));
}

void htf_sqrt_grad(htf_node *node) {
  htf_value y = conjugate(node, htf_input(node, 0)), gradient = htf_input(node, 1);
  htf_value half = htf_multiply(node, gradient, htf_number(node, 0.5));
  output_gradient(node, gradient, htf_divide(node, half, y));
}

void htf_rsqrt_grad(htf_node *node) {
  htf_value y = conjugate(node, htf_input(node, 0)), gradient = htf_input(node, 1);
  htf_value half = htf_multiply(node, htf_multiply(node, gradient, htf_number(node, -0.5)), y);
  output_gradient(node, gradient, htf_multiply(node, half, htf_call1(node, HR_FUNCTIONAL_SQUARE, y)));
}

void htf_reciprocal_grad(htf_node *node) {
  htf_value y = conjugate(node, htf_input(node, 0)), gradient = htf_input(node, 1);
  htf_value negative = htf_call1(node, HR_FUNCTIONAL_NEGATIVE, gradient);
  output_gradient(node, gradient, htf_multiply(node, negative, htf_call1(node, HR_FUNCTIONAL_SQUARE, y)));
}

/* ---- conversion and creation ---- */

void htf_copy(htf_node *node) {
  htf_output(node, 0, htf_input(node, 0));
}

void htf_fill_like(htf_node *node, int64_t number) {
  htf_value x = htf_input(node, 0);
  htf_output(node, 0,
             htf_call(node, HR_FUNCTIONAL_FULL, INPUTS(htf_number_of(node, hr_scalar_i64(number))),
                      ATTRIBUTES(htf_attr_ints(x->dims, x->rank), htf_attr_dtype(x->dtype))));
}

void htf_ones_like(htf_node *node) {
  htf_fill_like(node, 1);
}
