/* onnx_shapes.c: operators that arrange elements: other dims, orders, parts and repetitions. */
#include "importers/onnx/onnx_integer.h"

/* ---- dims ---- */

/* The dims in `shape`, in which 0 stands for x's dim at the same place, and with allowzero for 0. */
static int read_dims(hr__onnx_node *node, hr_value x, hr_value shape, hr__integer *out_dims) {
  bool allows_zero = hr__onnx_int(node, "allowzero", 0) != 0;
  int64_t count = hr__onnx_known_dim(node, shape, 0);
  shape = hr__onnx_on_host(node, shape, "shape");
  if (hr__onnx_failed(node) || count < 0 || count > HR_RANK_MAX) {
    return count > HR_RANK_MAX && !hr__onnx_failed(node)
               ? (int)HR__ONNX_REFUSE(node, "%lld dims, expected at most %d", (long long)count, HR_RANK_MAX)
               : 0;
  }
  for (int d = 0; d < count; ++d) {
    hr__integer dim = hr__integer_element(node, shape, d);
    bool copies = d < hr__onnx_rank(node, x) && !allows_zero;
    if (copies && dim.value != 0) {
      hr_value is_zero = CALL(node, EQUAL, dim.value, hr__onnx_whole(node, 0));
      hr__integer own = hr__integer_dim(node, x, d);
      hr_value same = own.value != 0 ? own.value : hr__onnx_whole(node, own.number);
      dim.value = CALL(node, WHERE, is_zero, same, dim.value);
    }
    out_dims[d] = copies && dim.value == 0 && dim.number == 0 ? hr__integer_dim(node, x, d) : dim;
  }
  return (int)count;
}

void hr__onnx_map_reshape(hr__onnx_node *node) {
  hr_value x = hr__onnx_input(node, 0);
  hr__integer dims[HR_RANK_MAX];
  int64_t numbers[HR_RANK_MAX];
  int rank = 0;
  if (node->since < 5) {
    rank = hr__onnx_ints(node, "shape", numbers);
    for (int d = 0; d < rank; ++d) {
      dims[d] = numbers[d] == 0 ? hr__integer_dim(node, x, d) : hr__integer_of(numbers[d]);
    }
  } else {
    rank = read_dims(node, x, hr__onnx_input(node, 1), dims);
  }
  hr__onnx_set_like(node, 0, hr__integer_reshape(node, x, rank, dims));
}

/* The product of the dims begin ... end - 1. */
static hr__integer product(hr__onnx_node *node, hr_value x, int begin, int end) {
  hr__integer result = begin < end ? hr__integer_dim(node, x, begin) : hr__integer_of(1);
  for (int d = begin + 1; d < end; ++d) {
    result = INTEGER(node, MULTIPLY, result, hr__integer_dim(node, x, d));
  }
  return result;
}

void hr__onnx_map_flatten(hr__onnx_node *node) {
  hr_value x = hr__onnx_input(node, 0);
  int rank = hr__onnx_rank(node, x);
  int64_t axis = hr__onnx_int(node, "axis", 1);
  int at = axis == rank ? rank : hr__onnx_axis(node, axis, rank);
  hr__integer dims[2] = {product(node, x, 0, at), product(node, x, at, rank)};
  hr__onnx_set_like(node, 0, hr__integer_reshape(node, x, 2, dims));
}

void hr__onnx_map_squeeze(hr__onnx_node *node) {
  hr_value x = hr__onnx_input(node, 0);
  int64_t axes[HR_RANK_MAX];
  int count = hr__onnx_ints_of(node, 1, "axes", axes);
  hr__onnx_set_like(node, 0,
                    count < 0 ? CALL(node, SQUEEZE, x)
                              : ADD(node, SQUEEZE, IN(x), WITH(hr__with_ints("axis", count, axes))));
}

void hr__onnx_map_unsqueeze(hr__onnx_node *node) {
  int64_t axes[HR_RANK_MAX];
  int count = hr__onnx_ints_of(node, 1, "axes", axes);
  hr__onnx_set_like(
      node, 0,
      ADD(node, EXPAND_DIMS, IN(hr__onnx_input(node, 0)), WITH(hr__with_ints("axis", count > 0 ? count : 0, axes))));
}

void hr__onnx_map_shape(hr__onnx_node *node) {
  hr_value x = hr__onnx_input(node, 0), shape = hr_graph_shape(node->graph, x);
  int64_t rank = hr__onnx_rank(node, x), begin = hr__onnx_int(node, "start", 0), end = hr__onnx_int(node, "end", rank);
  begin = begin < 0 ? begin + rank : begin, end = end < 0 ? end + rank : end;
  begin = begin < 0 ? 0 : begin > rank ? rank : begin;
  end = end < begin ? begin : end > rank ? rank : end;
  hr__onnx_set(node, 0, begin == 0 && end == rank ? shape : hr__onnx_narrow(node, shape, 0, begin, end - begin));
}

void hr__onnx_map_size(hr__onnx_node *node) {
  hr_value shape = hr_graph_shape(node->graph, hr__onnx_input(node, 0));
  hr__onnx_set(node, 0, CALL(node, PROD, shape));
}

/* x is repeated along dims of size 1 of either. */
void hr__onnx_map_expand(hr__onnx_node *node) {
  hr_value x = hr__onnx_input(node, 0), shape = hr__onnx_on_host(node, hr__onnx_input(node, 1), "shape");
  if (hr__onnx_failed(node)) {
    return;
  }
  int rank = hr__onnx_rank(node, x), count = (int)hr__onnx_known_dim(node, shape, 0), all = rank > count ? rank : count;
  hr__integer dims[HR_RANK_MAX];
  int64_t numbers[HR_RANK_MAX];
  hr_value values[HR_RANK_MAX];
  if (hr__onnx_failed(node) || all > HR_RANK_MAX) {
    HR__ONNX_REFUSE(node, "%d dims, expected at most %d", all, HR_RANK_MAX);
    return;
  }
  for (int d = 0; d < all; ++d) {
    int own = d - (all - rank), other = d - (all - count);
    hr__integer size = own >= 0 ? hr__integer_dim(node, x, own) : hr__integer_of(1);
    hr__integer wanted = other >= 0 ? hr__integer_element(node, shape, other) : hr__integer_of(1);
    bool is_one = size.value == 0 && size.number == 1, wants_one = wanted.value == 0 && wanted.number == 1;
    dims[d] = is_one ? wanted : wants_one ? size : INTEGER(node, MAXIMUM, size, wanted);
    if (!is_one && size.value == 0 && size.number == 0) {
      dims[d] = size;
    }
  }
  hr__onnx_set_like(node, 0,
                    ADD(node, BROADCAST_TO, IN(x), WITH(hr__with_integers("shape", all, dims, numbers, values))));
}

void hr__onnx_map_transpose(hr__onnx_node *node) {
  hr_value x = hr__onnx_input(node, 0);
  int64_t axes[HR_RANK_MAX];
  int count = hr__onnx_ints(node, "perm", axes);
  hr__onnx_set_like(node, 0, count < 0 ? CALL(node, PERMUTE_DIMS, x) : hr__onnx_permute(node, x, count, axes));
}

/* ---- parts ---- */

void hr__onnx_map_concat(hr__onnx_node *node) {
  hr_value *inputs = HR_ARENA_ARRAY(node->arena, hr_value, (size_t)node->input_count + 1);
  for (int i = 0; inputs != NULL && i < node->input_count; ++i) {
    inputs[i] = hr__onnx_input(node, i);
  }
  int rank = hr__onnx_rank(node, hr__onnx_input(node, 0));
  int axis = hr__onnx_axis(node, hr__onnx_int(node, "axis", 1), rank);
  hr__onnx_set_like(node, 0, ADD(node, CONCAT, node->input_count, inputs, WITH(hr__with_int("axis", axis))));
}

/* A begin or end of a slice: from the end if negative, and bounded. */
static hr__integer bound(hr__onnx_node *node, hr__integer at, hr__integer size, int64_t low, int64_t high_less) {
  hr__integer moved = hr__integer_if_negative(node, at, INTEGER(node, ADD, at, size), at);
  moved = INTEGER(node, MAXIMUM, moved, hr__integer_of(low));
  return INTEGER(node, MINIMUM, moved, INTEGER(node, SUBTRACT, size, hr__integer_of(high_less)));
}

/* Elements begin, begin + step, ... before end, as in NumPy. */
static hr_value slice_axis(hr__onnx_node *node, hr_value x, int axis, hr__integer begin, hr__integer end,
                           int64_t step) {
  hr__integer size = hr__integer_dim(node, x, axis);
  int64_t low = step < 0 ? -1 : 0;
  begin = bound(node, begin, size, low, step < 0);
  end = bound(node, end, size, low, step < 0);
  hr__integer distance = step < 0 ? INTEGER(node, SUBTRACT, begin, end) : INTEGER(node, SUBTRACT, end, begin);
  int64_t stride = step < 0 ? (step == INT64_MIN ? INT64_MAX : -step) : step;
  hr__integer more = INTEGER(node, MAXIMUM, distance, hr__integer_of(0));
  hr__integer less = INTEGER(node, SUBTRACT, more, hr__integer_of(1)); /* (d - 1) / s + 1 does not exceed 64 bits */
  hr__integer count = INTEGER(node, ADD, INTEGER(node, FLOOR_DIVIDE, less, hr__integer_of(stride)), hr__integer_of(1));
  count = INTEGER(node, MAXIMUM, count, hr__integer_of(0));
  if (count.value == 0 && count.number <= 1) {
    step = 1;
  }
  if (count.value == 0 && count.number == 0) {
    begin = hr__integer_of(0);
  }
  return hr__integer_slice(node, x, axis, begin, count, step);
}

/* The number of slices; -1 after a failure. Ends, and axes and steps that are given, are as many as begins. */
static int check_slices(hr__onnx_node *node, int rank, int begins, int ends, int axes, int steps) {
  if (begins > rank || ends != begins || (axes >= 0 && axes != begins) || (steps >= 0 && steps != begins)) {
    HR__ONNX_WRONG(node, "%d starts, %d ends, %d axes and %d steps (-1: none) for %d dims", begins, ends, axes, steps,
                   rank);
  }
  return hr__onnx_failed(node) ? -1 : begins;
}

void hr__onnx_map_slice(hr__onnx_node *node) {
  hr_value x = hr__onnx_input(node, 0), begins = hr__onnx_input(node, 1), ends = hr__onnx_input(node, 2);
  int64_t axes[HR_RANK_MAX], steps[HR_RANK_MAX], given[2][HR_RANK_MAX] = {{0}};
  int rank = hr__onnx_rank(node, x), axis_count = hr__onnx_ints_of(node, 3, "axes", axes), count = 0, ends_count = 0,
      step_count = -1;
  if (node->since < 10) {
    count = hr__onnx_ints(node, "starts", given[0]);
    ends_count = hr__onnx_ints(node, "ends", given[1]);
  } else {
    begins = hr__onnx_on_host(node, begins, "starts"), ends = hr__onnx_on_host(node, ends, "ends");
    count = (int)hr__onnx_known_dim(node, begins, 0), ends_count = (int)hr__onnx_known_dim(node, ends, 0);
    step_count = hr__onnx_input(node, 4) != 0
                     ? hr__onnx_integers(node, hr__onnx_input(node, 4), "steps", HR_RANK_MAX, steps)
                     : -1;
  }
  count = check_slices(node, rank, count, ends_count, axis_count, step_count);
  for (int i = 0; i < count; ++i) {
    hr__integer begin = node->since < 10 ? hr__integer_of(given[0][i]) : hr__integer_element(node, begins, i);
    hr__integer end = node->since < 10 ? hr__integer_of(given[1][i]) : hr__integer_element(node, ends, i);
    int axis = axis_count > i ? hr__onnx_axis(node, axes[i], rank) : i;
    int64_t step = step_count > i ? steps[i] : 1;
    if (step == 0) {
      HR__ONNX_WRONG(node, "step %d is 0", i);
      return;
    }
    x = slice_axis(node, x, axis, begin, end, step);
  }
  hr__onnx_set_like(node, 0, count == 0 ? CALL(node, POSITIVE, x) : x);
}

/* The number of sizes that the node gives, of which `room` are read; -1: none, or a failure. */
static int64_t given_sizes(hr__onnx_node *node, int room, int64_t *sizes) {
  enum { INTS = 8 };
  hr_value given = hr__onnx_input(node, 1);
  const hr__onnx_attribute *attribute = hr__onnx_find_attribute(node, "split");
  int64_t count = -1;
  if (given != 0) {
    return hr__onnx_integers(node, given, "split", room, sizes);
  }
  hr_status status = attribute != NULL ? hr__onnx_read_ints(attribute->message, INTS, room, sizes, &count) : HR_OK;
  if (status != HR_OK) {
    hr__graph_fail(node->graph, status);
  }
  return count;
}

/* Sizes of the parts; false after a failure. */
static bool split_sizes(hr__onnx_node *node, hr_value x, int axis, int64_t *sizes) {
  int count = node->output_count;
  int64_t known = given_sizes(node, count, sizes);
  if (count == 0 || (known >= 0 && known != count)) {
    HR__ONNX_WRONG(node, "%lld sizes for %d outputs", (long long)known, count);
  }
  if (hr__onnx_failed(node) || known == count) {
    return !hr__onnx_failed(node);
  }
  int64_t size = hr__onnx_known_dim(node, x, axis), parts = hr__onnx_int(node, "num_outputs", count);
  if (parts != count) {
    HR__ONNX_WRONG(node, "%lld parts for %d outputs", (long long)parts, count);
    return false;
  }
  int64_t each = (size + count - 1) / count;
  for (int i = 0; i < count; ++i) {
    int64_t left = size - i * each;
    sizes[i] = left < 0 ? 0 : left < each ? left : each;
  }
  return !hr__onnx_failed(node);
}

void hr__onnx_map_split(hr__onnx_node *node) {
  hr_value x = hr__onnx_input(node, 0);
  int axis = hr__onnx_axis(node, hr__onnx_int(node, "axis", 0), hr__onnx_rank(node, x));
  int64_t *sizes = HR_ARENA_ARRAY(node->arena, int64_t, (size_t)node->output_count + HR_RANK_MAX), begin = 0;
  if (sizes == NULL || !split_sizes(node, x, axis, sizes)) {
    return;
  }
  for (int i = 0; i < node->output_count; begin += sizes[i++]) {
    hr__onnx_set_like(node, i, hr__onnx_narrow(node, x, axis, begin, sizes[i]));
  }
}

/* ---- repetitions and parts of matrices ---- */

void hr__onnx_map_tile(hr__onnx_node *node) {
  hr_value x = hr__onnx_input(node, 0), times = hr__onnx_input(node, 1);
  if (node->since < 6) {
    int64_t repetitions[HR_RANK_MAX], count = 1, axis = 0;
    for (int d = 0; d < hr__onnx_rank(node, x); ++d) {
      repetitions[d] = 1;
    }
    (void)hr__onnx_integers(node, times, "tiles", 1, &count);
    (void)hr__onnx_integers(node, hr__onnx_input(node, 2), "axis", 1, &axis);
    repetitions[hr__onnx_axis(node, axis, hr__onnx_rank(node, x))] = count;
    hr__onnx_set_like(node, 0,
                      ADD(node, TILE, IN(x), WITH(hr__with_ints("repetitions", hr__onnx_rank(node, x), repetitions))));
  } else {
    times = hr__onnx_on_host(node, times, "repeats");
    hr__onnx_set_like(node, 0, ADD(node, TILE, IN(x), WITH(hr__with_list("repetitions", times))));
  }
}

void hr__onnx_map_trilu(hr__onnx_node *node) {
  hr_value x = hr__onnx_input(node, 0), k = hr__onnx_input(node, 1);
  hr_functional function = hr__onnx_int(node, "upper", 1) != 0 ? HR_FUNCTIONAL_TRIU : HR_FUNCTIONAL_TRIL;
  hr_graph_attribute with = hr__with_int("k", 0);
  k = hr__onnx_on_host(node, k, "k");
  with.values = k != 0 ? &k : NULL;
  hr__onnx_set_like(node, 0, hr__onnx_add(node, function, IN(x), 1, &with));
}

void hr__onnx_map_eye_like(hr__onnx_node *node) {
  hr_value x = hr__onnx_input(node, 0);
  hr_dtype dtype = hr__onnx_dtype(hr__onnx_int(node, "dtype", 0));
  hr__integer sizes[2] = {hr__integer_dim(node, x, 0), hr__integer_dim(node, x, 1)};
  hr_graph_attribute with[4] = {hr__with_int("rows", sizes[0].number), hr__with_int("columns", sizes[1].number),
                                hr__with_int("k", hr__onnx_int(node, "k", 0)),
                                hr__with_dtype("dtype", dtype != HR_DTYPE_NONE ? dtype : hr__onnx_dtype_of(node, x))};
  for (int i = 0; i < 2; ++i) {
    with[i].values = sizes[i].value != 0 ? &sizes[i].value : NULL;
  }
  hr__onnx_set(node, 0, ADD(node, EYE, 0, NULL, 4, with));
}

/* ---- creation ---- */

void hr__onnx_map_range(hr__onnx_node *node) {
  static const char *const names[] = {"start", "stop", "step"};
  hr_dtype dtype = hr__onnx_dtype_of(node, hr__onnx_input(node, 0));
  hr_graph_attribute with[4];
  hr_value values[3];
  for (int i = 0; i < 3; ++i) {
    values[i] = hr__onnx_input(node, i);
    double number = 0;
    if (hr__onnx_is_float(dtype)) {
      (void)hr__onnx_numbers(node, values[i], names[i], 1, &number);
      with[i] = hr__with_real(names[i], number);
    } else {
      values[i] = hr__onnx_on_host(node, values[i], names[i]);
      with[i] = hr__with_real(names[i], 0);
      with[i].values = &values[i];
    }
  }
  with[3] = hr__with_dtype("dtype", dtype);
  hr__onnx_set(node, 0, ADD(node, ARANGE, 0, NULL, 4, with));
}

void hr__onnx_map_constant_of_shape(hr__onnx_node *node) {
  const hr__onnx_attribute *attribute = hr__onnx_find_attribute(node, "value");
  hr_value shape = hr__onnx_input(node, 0), value = hr__onnx_number(node, 0);
  hr_dtype dtype = HR_DTYPE_F32;
  hr__onnx_value constant = {0};
  if (attribute != NULL) {
    hr_status status = hr__onnx_constant(node->importer, attribute->bytes, &constant);
    if (status != HR_OK) {
      hr__graph_fail(node->graph, status);
      return;
    }
    dtype = hr__onnx_dtype_of(node, constant.value);
    value = ADD(node, RESHAPE, IN(constant.value), WITH(hr__with_ints("shape", 0, NULL)));
  }
  shape = hr__onnx_on_host(node, shape, "shape");
  hr_value filled = ADD(node, FULL, IN(value), WITH(hr__with_list("shape", shape), hr__with_dtype("dtype", dtype)));
  node->outputs[0] = (hr__onnx_value){.value = filled, .data_type = constant.data_type};
}

/* ---- constants ---- */

/* A vector of integers or floats, or one number. */
static hr_value list_constant(hr__onnx_node *node, const hr__onnx_attribute *attribute, bool is_float) {
  enum { FLOATS = 7, INTS = 8 };
  int64_t count = 0, ignored = 0;
  hr_status status = is_float ? hr__onnx_read_floats(attribute->message, FLOATS, 0, NULL, &count)
                              : hr__onnx_read_ints(attribute->message, INTS, 0, NULL, &count);
  int64_t *numbers = status == HR_OK ? HR_ARENA_ARRAY(node->arena, int64_t, (size_t)count + 1) : NULL;
  if (numbers == NULL) {
    return status != HR_OK ? hr__graph_fail(node->graph, status) : HR__ONNX_WRONG(node, "no host memory");
  }
  if (!is_float) {
    hr_status_ignore(hr__onnx_read_ints(attribute->message, INTS, count, numbers, &ignored));
    return hr__onnx_vector(node, (int)count, numbers);
  }
  double *reals = (double *)(void *)numbers;
  float *floats = (float *)(void *)numbers;
  hr_status_ignore(hr__onnx_read_floats(attribute->message, FLOATS, count, reals, &ignored));
  for (int64_t i = 0; i < count; ++i) {
    float number = (float)reals[i];
    memcpy(&floats[i], &number, sizeof number);
  }
  return hr__onnx_floats(node, 1, &count, floats);
}

void hr__onnx_map_constant(hr__onnx_node *node) {
  const hr__onnx_attribute *tensor = hr__onnx_find_attribute(node, "value");
  const hr__onnx_attribute *ints = hr__onnx_find_attribute(node, "value_ints");
  const hr__onnx_attribute *floats = hr__onnx_find_attribute(node, "value_floats");
  const hr__onnx_attribute *number = hr__onnx_find_attribute(node, "value_int");
  const hr__onnx_attribute *real = hr__onnx_find_attribute(node, "value_float");
  const hr_type integer_type = {.dtype = HR_DTYPE_I64}, float_type = {.dtype = HR_DTYPE_F32};
  if (tensor != NULL) {
    hr_status status = hr__onnx_constant(node->importer, tensor->bytes, &node->outputs[0]);
    if (status != HR_OK) {
      hr__graph_fail(node->graph, status);
    }
  } else if (ints != NULL || floats != NULL) {
    hr__onnx_set(node, 0, list_constant(node, ints != NULL ? ints : floats, ints == NULL));
  } else if (number != NULL) {
    hr__onnx_set(node, 0, hr_graph_constant(node->graph, &integer_type, &number->i));
  } else if (real != NULL) {
    hr__onnx_set(node, 0, hr_graph_constant(node->graph, &float_type, &real->f));
  } else {
    HR__ONNX_REFUSE(node, "a constant that is no dense tensor of numbers");
  }
}
