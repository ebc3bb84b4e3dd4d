/* onnx_elementwise.c: operators that work element by element. */
#include <math.h>

#include "importers/onnx/onnx_integer.h"

/* The function of the row, of all inputs. */
void hr__onnx_map_row(hr__onnx_node *node) {
  hr_value inputs[8] = {0};
  int count = node->input_count < 8 ? node->input_count : 8;
  for (int i = 0; i < count; ++i) {
    inputs[i] = hr__onnx_input(node, i);
  }
  hr__onnx_set(node, 0, hr__onnx_add(node, node->function, count, inputs, PLAIN));
}

/* Input 1 for an operator of two inputs: before version 7, its dims are those of x from `axis` on. */
static hr_value second_operand(hr__onnx_node *node) {
  hr_value x = hr__onnx_input(node, 0), y = hr__onnx_input(node, 1);
  int rank = hr__onnx_rank(node, x), begin = (int)hr__onnx_int(node, "axis", -1), own = hr__onnx_rank(node, y);
  if (node->since < 7 && hr__onnx_int(node, "broadcast", 0) != 0 && begin >= 0 && own >= 0 && begin + own < rank) {
    int64_t axes[HR_RANK_MAX];
    for (int d = begin + own; d < rank; ++d) {
      axes[d - begin - own] = d - begin;
    }
    y = ADD(node, EXPAND_DIMS, IN(y), WITH(hr__with_ints("axis", rank - begin - own, axes)));
  }
  return y;
}

void hr__onnx_map_binary(hr__onnx_node *node) {
  hr__onnx_set(node, 0, hr__onnx_add(node, node->function, IN(hr__onnx_input(node, 0), second_operand(node)), PLAIN));
}

/* The function of the row, of the first two inputs, then of the result and the third ... */
static hr_value fold(hr__onnx_node *node, hr_functional function) {
  hr_value x = hr__onnx_input(node, 0);
  for (int i = 1; i < node->input_count; ++i) {
    x = hr__onnx_add(node, function, IN(x, hr__onnx_input(node, i)), PLAIN);
  }
  return node->input_count > 1 ? x : CALL(node, POSITIVE, x);
}

void hr__onnx_map_fold(hr__onnx_node *node) {
  hr__onnx_set(node, 0, fold(node, node->function));
}

void hr__onnx_map_mean(hr__onnx_node *node) {
  hr_value sum = fold(node, HR_FUNCTIONAL_ADD);
  hr__onnx_set(node, 0, CALL(node, DIVIDE, sum, hr__onnx_number(node, node->input_count)));
}

void hr__onnx_map_identity(hr__onnx_node *node) {
  if (node->input_count > 0 && node->output_count > 0) {
    node->outputs[0] = node->inputs[0];
  }
}

/* ---- arithmetic ---- */

void hr__onnx_map_div(hr__onnx_node *node) {
  node->function = HR_FUNCTIONAL_DIVIDE;
  if (hr__onnx_is_float(hr__onnx_dtype_of(node, hr__onnx_input(node, 0)))) {
    hr__onnx_map_binary(node);
    return;
  }
  hr_value x = hr__onnx_input(node, 0), y = second_operand(node), zero = hr__onnx_whole(node, 0);
  hr_value floor = CALL(node, FLOOR_DIVIDE, x, y), rest = CALL(node, REMAINDER, x, y);
  hr_value is_negative = CALL(node, LESS, floor, zero), has_rest = CALL(node, NOT_EQUAL, rest, zero);
  hr_value is_below = CALL(node, LOGICAL_AND, is_negative, has_rest);
  hr_value one = hr__onnx_cast(node, is_below, hr__onnx_dtype_of(node, floor));
  hr__onnx_set(node, 0, CALL(node, ADD, floor, one)); /* rounded towards 0 */
}

/* The result has x's dtype. An integer to a real power is computed in f64. */
void hr__onnx_map_power(hr__onnx_node *node) {
  hr_value x = hr__onnx_input(node, 0), y = second_operand(node);
  hr_dtype own = hr__onnx_dtype_of(node, x), other = hr__onnx_dtype_of(node, y);
  if (own == other) {
    hr__onnx_set(node, 0, CALL(node, POW, x, y));
    return;
  }
  bool is_integer = !hr__onnx_is_float(own);
  hr_dtype dtype = is_integer && hr__onnx_is_float(other) ? HR_DTYPE_F64 : own;
  hr_value power = CALL(node, POW, hr__onnx_cast(node, x, dtype), hr__onnx_cast(node, y, dtype));
  hr__onnx_set(node, 0, hr__onnx_cast(node, power, own));
}

void hr__onnx_map_mod(hr__onnx_node *node) {
  node->function = hr__onnx_int(node, "fmod", 0) != 0 ? HR_FUNCTIONAL_FMOD : HR_FUNCTIONAL_REMAINDER;
  hr__onnx_map_binary(node);
}

void hr__onnx_map_bit_shift(hr__onnx_node *node) {
  static const char *const words[] = {"LEFT", "RIGHT"};
  bool is_left = hr__onnx_word(node, "direction", 2, words) == 0;
  node->function = is_left ? HR_FUNCTIONAL_BITWISE_LEFT_SHIFT : HR_FUNCTIONAL_BITWISE_RIGHT_SHIFT;
  hr__onnx_map_binary(node);
}

/* ---- activations ---- */

void hr__onnx_map_clip(hr__onnx_node *node) {
  hr_value x = hr__onnx_input(node, 0), low = hr__onnx_input(node, 1), high = hr__onnx_input(node, 2);
  if (node->since < 11) {
    const hr__onnx_attribute *min = hr__onnx_find_attribute(node, "min"), *max = hr__onnx_find_attribute(node, "max");
    low = min != NULL ? hr__onnx_number(node, (double)min->f) : 0;
    high = max != NULL ? hr__onnx_number(node, (double)max->f) : 0;
  }
  x = low != 0 ? CALL(node, MAXIMUM, x, low) : x;
  x = high != 0 ? CALL(node, MINIMUM, x, high) : x;
  hr__onnx_set(node, 0, low != 0 || high != 0 ? x : CALL(node, POSITIVE, x));
}

static void map_activation(hr__onnx_node *node, hr_functional function, int count, const hr_graph_attribute *with) {
  hr__onnx_set(node, 0, hr__onnx_add(node, function, IN(hr__onnx_input(node, 0)), count, with));
}
static hr_graph_attribute real(const hr__onnx_node *node, const char *name, const char *onnx_name, double otherwise) {
  return hr__with_real(name, hr__onnx_real(node, onnx_name, otherwise));
}

void hr__onnx_map_leaky_relu(hr__onnx_node *node) {
  map_activation(node, HR_FUNCTIONAL_LEAKY_RELU, WITH(real(node, "slope", "alpha", 0.01)));
}
void hr__onnx_map_elu(hr__onnx_node *node) {
  map_activation(node, HR_FUNCTIONAL_ELU, WITH(real(node, "alpha", "alpha", 1)));
}
void hr__onnx_map_celu(hr__onnx_node *node) {
  map_activation(node, HR_FUNCTIONAL_CELU, WITH(real(node, "alpha", "alpha", 1)));
}
void hr__onnx_map_selu(hr__onnx_node *node) {
  bool is_first = node->since < 6;
  map_activation(node, HR_FUNCTIONAL_SELU,
                 WITH(real(node, "alpha", "alpha", is_first ? 1.6732 : 1.67326319217681884765625),
                      real(node, "gamma", "gamma", is_first ? 1.0507 : 1.05070102214813232421875)));
}
void hr__onnx_map_hard_sigmoid(hr__onnx_node *node) {
  map_activation(node, HR_FUNCTIONAL_HARD_SIGMOID,
                 WITH(real(node, "alpha", "alpha", 0.2), real(node, "beta", "beta", 0.5)));
}
void hr__onnx_map_thresholded_relu(hr__onnx_node *node) {
  map_activation(node, HR_FUNCTIONAL_THRESHOLD, WITH(real(node, "bound", "alpha", 1), hr__with_real("value", 0)));
}
void hr__onnx_map_gelu(hr__onnx_node *node) {
  static const char *const words[] = {"none", "tanh"};
  int word = hr__onnx_word(node, "approximate", 2, words);
  map_activation(node, HR_FUNCTIONAL_GELU, WITH(hr__with_text("approximate", words[word > 0])));
}

/* Before version 7, a vector of slopes is one for each channel. */
void hr__onnx_map_prelu(hr__onnx_node *node) {
  hr_value x = hr__onnx_input(node, 0), slope = hr__onnx_input(node, 1);
  int rank = hr__onnx_rank(node, x);
  if (node->since < 7 && hr__onnx_rank(node, slope) == 1 && rank > 1 && hr__onnx_dim(node, slope, 0) != 1) {
    slope = hr__onnx_along(node, slope, 1, rank);
  }
  hr_value product = CALL(node, MULTIPLY, x, slope);
  hr_value is_negative = CALL(node, LESS, x, hr__onnx_whole(node, 0));
  hr__onnx_set(node, 0, CALL(node, WHERE, is_negative, product, x));
}

void hr__onnx_map_swish(hr__onnx_node *node) {
  hr_value x = hr__onnx_input(node, 0);
  hr_value scaled = CALL(node, MULTIPLY, x, hr__onnx_number(node, hr__onnx_real(node, "alpha", 1)));
  hr_value gate = CALL(node, SIGMOID, scaled);
  hr__onnx_set(node, 0, CALL(node, MULTIPLY, x, gate));
}

/* x + bias below -lambd, x - bias above lambd, else 0. */
void hr__onnx_map_shrink(hr__onnx_node *node) {
  hr_value x = hr__onnx_input(node, 0);
  double bound = hr__onnx_real(node, "lambd", 0.5), bias = hr__onnx_real(node, "bias", 0);
  hr_dtype dtype = hr__onnx_dtype_of(node, x);
  hr_value is_low = CALL(node, LESS, x, hr__onnx_number(node, -bound));
  hr_value is_high = CALL(node, GREATER, x, hr__onnx_number(node, bound));
  hr_value lower = hr__onnx_cast(node, CALL(node, ADD, x, hr__onnx_number(node, bias)), dtype);
  hr_value upper = hr__onnx_cast(node, CALL(node, SUBTRACT, x, hr__onnx_number(node, bias)), dtype);
  hr_value zero = CALL(node, MULTIPLY, x, hr__onnx_whole(node, 0));
  hr_value above = CALL(node, WHERE, is_high, upper, zero);
  hr__onnx_set(node, 0, CALL(node, WHERE, is_low, lower, above));
}

void hr__onnx_map_is_inf(hr__onnx_node *node) {
  bool positive = hr__onnx_int(node, "detect_positive", 1) != 0,
       negative = hr__onnx_int(node, "detect_negative", 1) != 0;
  hr_value x = hr__onnx_input(node, 0);
  if (!positive && !negative) {
    hr_value is_nan = CALL(node, ISNAN, x);
    hr__onnx_set(node, 0, CALL(node, LOGICAL_XOR, is_nan, is_nan));
    return;
  }
  hr__onnx_set(node, 0,
               positive && negative ? CALL(node, ISINF, x)
               : positive           ? CALL(node, ISPOSINF, x)
                                    : CALL(node, ISNEGINF, x));
}

/* ---- along an axis ---- */

/* Before version 13, all dims from the axis on are one. The last axis is one already. */
static hr_value begin_rows(hr__onnx_node *node, hr_value x, int *out_axis) {
  int rank = hr__onnx_rank(node, x);
  if (node->since >= 13) {
    *out_axis = rank > 0 ? hr__onnx_axis(node, hr__onnx_int(node, "axis", -1), rank) : 0;
    return x;
  }
  int64_t given = hr__onnx_int(node, "axis", 1);
  int axis = given == rank ? rank : hr__onnx_axis(node, given, rank);
  int64_t dims[HR_RANK_MAX + 1] = {0}, size = 1;
  if (axis == rank - 1) {
    *out_axis = axis;
    return x;
  }
  for (int d = axis; d < rank; ++d) {
    size *= hr__onnx_known_dim(node, x, d);
  }
  for (int d = 0; d < axis; ++d) {
    dims[d] = hr__onnx_known_dim(node, x, d);
  }
  dims[axis] = size;
  *out_axis = axis;
  return hr__onnx_reshape(node, x, axis + 1, dims);
}

static void end_rows(hr__onnx_node *node, hr_value x, hr_value rows, hr_value result) {
  if (rows != x) {
    result = ADD(node, RESHAPE, IN(result), WITH(hr__with_list("shape", hr_graph_shape(node->graph, x))));
  }
  hr__onnx_set(node, 0, result);
}

void hr__onnx_map_softmax(hr__onnx_node *node) {
  int axis = 0;
  hr_value x = hr__onnx_input(node, 0), rows = begin_rows(node, x, &axis);
  end_rows(node, x, rows, hr__onnx_add(node, node->function, IN(rows), WITH(hr__with_int("axis", axis))));
}

void hr__onnx_map_hardmax(hr__onnx_node *node) {
  int axis = 0;
  hr_value x = hr__onnx_input(node, 0), rows = begin_rows(node, x, &axis);
  int64_t axes[1] = {axis};
  hr_value best = ADD(node, ARGMAX, IN(rows), WITH(hr__with_ints("axis", 1, axes), hr__with_flag("keepdims", true)));
  hr_value along =
      hr__integer_steps(node, hr__integer_dim(node, rows, axis), HR_DTYPE_I64, axis, hr__onnx_rank(node, rows));
  hr_value is_best = CALL(node, EQUAL, best, along);
  end_rows(node, x, rows, hr__onnx_cast(node, is_best, hr__onnx_dtype_of(node, x)));
}

/* ---- conversion ---- */

/* Numbers of a narrower integer, kept in i8 or u8: the lowest bits. */
static hr_value wrap_narrow(hr__onnx_node *node, hr_value x, int data_type) {
  int bits = hr__onnx_narrow_bits(data_type);
  hr_dtype dtype = hr__onnx_dtype(data_type);
  hr_value whole = hr__onnx_cast(node, x, HR_DTYPE_I32);
  hr_value low = CALL(node, BITWISE_AND, whole, hr__onnx_whole(node, (1 << bits) - 1));
  if (dtype == HR_DTYPE_I8) {
    hr_value sign = CALL(node, BITWISE_XOR, low, hr__onnx_whole(node, 1 << (bits - 1)));
    low = CALL(node, SUBTRACT, sign, hr__onnx_whole(node, 1 << (bits - 1)));
  }
  return hr__onnx_cast(node, low, dtype);
}

/* The nearest of 0, 0.5, 1, 1.5, 2, 3, 4, 6, ties to the even mantissa. The step is 0.5 below 2, 1 below 4, then 2. NaN
 * becomes -0, as in onnx. */
static hr_value round_f4(hr__onnx_node *node, hr_value x) {
  hr_value wide = hr__onnx_cast(node, x, HR_DTYPE_F32);
  hr_value size = CALL(node, MINIMUM, CALL(node, ABS, wide), hr__onnx_number(node, 6));
  hr_value is_small = CALL(node, LESS, size, hr__onnx_number(node, 2));
  hr_value is_large = CALL(node, GREATER_EQUAL, size, hr__onnx_number(node, 4));
  hr_value half = CALL(node, MULTIPLY, size, hr__onnx_number(node, 2));
  hr_value small = CALL(node, MULTIPLY, CALL(node, ROUND, half), hr__onnx_number(node, 0.5));
  hr_value two = CALL(node, MULTIPLY, size, hr__onnx_number(node, 0.5));
  hr_value large = CALL(node, MULTIPLY, CALL(node, ROUND, two), hr__onnx_number(node, 2));
  hr_value middle = CALL(node, WHERE, is_large, large, CALL(node, ROUND, size));
  hr_value rounded = CALL(node, WHERE, is_small, small, middle);
  hr_value is_nan = CALL(node, ISNAN, wide);
  hr_value number = CALL(node, COPYSIGN, rounded, wide);
  return CALL(node, WHERE, is_nan, hr__onnx_number(node, -0.0), number);
}

/* The largest number of formats that saturate if the attribute says so; 0: infinities of other formats are their own.
 */
static double float8_max(hr_dtype dtype) {
  return dtype == HR_DTYPE_F8E4M3FN                                 ? 448
         : dtype == HR_DTYPE_F8E4M3FNUZ                             ? 240
         : dtype == HR_DTYPE_F8E5M2 || dtype == HR_DTYPE_F8E5M2FNUZ ? 57344
                                                                    : 0;
}

/* Saturating: numbers beyond the largest one become it; else NaN, or infinite in E5M2. */
static hr_value cast_float8(hr__onnx_node *node, hr_value x, hr_dtype dtype, bool saturates) {
  double most = float8_max(dtype);
  hr_dtype own = hr__onnx_dtype_of(node, x);
  hr_value wide = own == HR_DTYPE_F64 ? x : hr__onnx_cast(node, x, HR_DTYPE_F32);
  if (saturates) {
    hr_value low = CALL(node, MAXIMUM, wide, hr__onnx_number(node, -most));
    return hr__onnx_cast(node, CALL(node, MINIMUM, low, hr__onnx_number(node, most)), dtype);
  }
  hr_value result = hr__onnx_cast(node, wide, dtype);
  if (dtype == HR_DTYPE_F8E4M3FN) { /* the only one whose conversion saturates */
    double beyond = 464;            /* half a step above the largest one; the tie rounds down */
    hr_value is_beyond = CALL(node, GREATER, CALL(node, ABS, wide), hr__onnx_number(node, beyond));
    hr_value number = CALL(node, WHERE, is_beyond, hr__onnx_number(node, (double)NAN), wide);
    result = hr__onnx_cast(node, number, dtype);
  }
  return result;
}

/* Powers of two: the next one that is not below x, or not above it; the nearest is that of the conversion itself. */
static hr_value round_power(hr__onnx_node *node, hr_value x) {
  static const char *const words[] = {"up", "down", "nearest"};
  int word = hr__onnx_word(node, "round_mode", 3, words);
  hr_value wide = hr__onnx_cast(node, x, HR_DTYPE_F32);
  hr_value mantissa = word == 2 ? 0 : CALL(node, FREXP, wide);
  if (mantissa == 0) {
    return wide;
  }
  hr_value is_power = CALL(node, EQUAL, mantissa, hr__onnx_number(node, 0.5));
  hr_value less = hr__onnx_cast(node, is_power, HR_DTYPE_I32), exponent = mantissa + 1;
  exponent = CALL(node, SUBTRACT, exponent, word == 0 ? less : hr__onnx_whole(node, 1));
  hr_value one = hr__onnx_cast(node, CALL(node, POW, wide, hr__onnx_whole(node, 0)), HR_DTYPE_F32);
  hr_value power = CALL(node, LDEXP, one, exponent), is_zero = CALL(node, EQUAL, wide, hr__onnx_number(node, 0));
  hr_value stays = CALL(node, LOGICAL_OR, is_zero, CALL(node, LOGICAL_NOT, CALL(node, ISFINITE, wide)));
  return CALL(node, WHERE, stays, wide, power);
}

hr__onnx_value hr__onnx_convert(hr__onnx_node *node, const hr__onnx_value *x, int64_t data_type) {
  hr_dtype dtype = hr__onnx_dtype(data_type);
  bool is_narrow = hr__onnx_narrow_bits(data_type) > 0, saturates = hr__onnx_int(node, "saturate", 1) != 0;
  if (dtype == HR_DTYPE_NONE) {
    HR__ONNX_REFUSE(node, "a cast to data type %lld (%s)", (long long)data_type, hr__onnx_data_type_name(data_type));
    return (hr__onnx_value){0};
  }
  hr_value value = x->value;
  if (is_narrow && x->data_type != data_type) {
    value = data_type == HR__ONNX_F4E2M1 ? round_f4(node, value) : wrap_narrow(node, value, (int)data_type);
  } else if (dtype == HR_DTYPE_F8E8M0FNU && hr__onnx_dtype_of(node, value) != dtype) {
    value = round_power(node, value);
  } else if (float8_max(dtype) != 0 && hr__onnx_dtype_of(node, value) != dtype) {
    value = cast_float8(node, value, dtype, saturates);
  }
  value = hr__onnx_cast(node, value, dtype);
  return (hr__onnx_value){.value = value, .data_type = is_narrow ? (int)data_type : 0};
}

/* Before version 6, the data type is a text. */
void hr__onnx_map_cast(hr__onnx_node *node) {
  const hr__onnx_attribute *to = hr__onnx_find_attribute(node, "to");
  bool is_text = to != NULL && node->since < 6;
  int64_t data_type = is_text ? hr__onnx_data_type_named(to->bytes) : hr__onnx_int(node, "to", 0);
  node->outputs[0] = hr__onnx_convert(node, &node->inputs[0], data_type);
}

int64_t hr__onnx_data_type_of(const hr_graph *graph, const hr__onnx_value *x) {
  hr_dtype dtype = hr__onnx_dtype_in(graph, x->value);
  int64_t number = x->data_type != 0 ? x->data_type : 1;
  while (x->data_type == 0 && number < 32 && (hr__onnx_dtype(number) != dtype || hr__onnx_narrow_bits(number) > 0)) {
    ++number;
  }
  return number;
}

void hr__onnx_map_cast_like(hr__onnx_node *node) {
  node->outputs[0] = hr__onnx_convert(node, &node->inputs[0], hr__onnx_data_type_of(node->graph, &node->inputs[1]));
}

/* The bits of x as elements of a data type of the same size. */
void hr__onnx_map_bit_cast(hr__onnx_node *node) {
  hr_value x = hr__onnx_input(node, 0);
  int64_t data_type = hr__onnx_int(node, "to", 0);
  hr_dtype dtype = hr__onnx_dtype(data_type);
  bool is_narrow = hr__onnx_narrow_bits(data_type) > 0 || (node->input_count > 0 && node->inputs[0].data_type != 0);
  if (is_narrow || dtype == HR_DTYPE_NONE || hr_dtype_size(dtype) != hr_dtype_size(hr__onnx_dtype_of(node, x))) {
    HR__ONNX_REFUSE(node, "the bits as data type %lld (%s), which has another size, or less than eight bits",
                    (long long)data_type, hr__onnx_data_type_name(data_type));
    return;
  }
  hr__onnx_set(node, 0, ADD(node, BITCAST, IN(x), WITH(hr__with_dtype("dtype", dtype))));
}
