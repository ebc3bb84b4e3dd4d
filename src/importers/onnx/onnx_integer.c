#include "importers/onnx/onnx_integer.h"

/* An element of a value of one dim. */
static hr_value element(hr__onnx_node *node, hr_value vector, int64_t index) {
  const hr_type place = {.dtype = HR_DTYPE_I64};
  return CALL(node, TAKE, vector, hr_graph_constant(node->graph, &place, &index));
}

hr__integer hr__integer_dim(hr__onnx_node *node, hr_value x, int dim) {
  hr_type type;
  if (dim < 0 || dim >= hr__onnx_rank(node, x)) {
    HR__ONNX_WRONG(node, "an input has %d dims, dim %d is needed", hr__onnx_rank(node, x), dim);
    return hr__integer_of(-1);
  }
  int64_t size = hr__onnx_dim(node, x, dim);
  if (size >= 0 || hr__onnx_failed(node)) {
    return hr__integer_of(size);
  }
  hr_status_ignore(hr_graph_type(node->graph, x, &type));
  return (hr__integer){0, hr__is_word(type.symbols[dim]) ? hr_graph_symbol(node->graph, type.symbols[dim])
                                                         : element(node, hr_graph_shape(node->graph, x), dim)};
}

/* The number of a value that is the same for all symbols. */
static bool find_number(const hr__onnx_node *node, hr_value value, int index, int64_t *out_number) {
  const hr__graph_value *v = hr__graph_value_of(node->graph, value);
  if (v->varies || v->facts->numbers == NULL) {
    return false;
  }
  *out_number = v->facts->numbers[index];
  return true;
}

/* False after a failure: a value of more dims, or with fewer elements. */
static bool has_element(hr__onnx_node *node, hr_value value, int index) {
  int rank = hr__onnx_rank(node, value);
  int64_t count = rank == 1 ? hr__onnx_dim(node, value, 0) : 1; /* -1: a run checks it */
  if (rank > 1) {
    HR__ONNX_WRONG(node, "integers with %d dims, expected 1", rank);
  } else if (count >= 0 && index >= count) {
    HR__ONNX_WRONG(node, "%lld integers, element %d is needed", (long long)count, index);
  }
  return !hr__onnx_failed(node);
}

hr__integer hr__integer_element(hr__onnx_node *node, hr_value value, int index) {
  hr__integer result = {0};
  if (hr__onnx_failed(node) || value == 0 || !has_element(node, value, index) ||
      find_number(node, value, index, &result.number)) {
    return result;
  }
  hr_value wide = hr__onnx_cast(node, value, HR_DTYPE_I64);
  result.value = hr__onnx_rank(node, value) == 0 ? wide : element(node, wide, index);
  return result;
}

static int64_t apply(hr_functional function, int64_t a, int64_t b) {
  switch (function) {
    case HR_FUNCTIONAL_ADD:
      return (int64_t)((uint64_t)a + (uint64_t)b);
    case HR_FUNCTIONAL_SUBTRACT:
      return (int64_t)((uint64_t)a - (uint64_t)b);
    case HR_FUNCTIONAL_MULTIPLY:
      return (int64_t)((uint64_t)a * (uint64_t)b);
    case HR_FUNCTIONAL_MINIMUM:
      return a < b ? a : b;
    case HR_FUNCTIONAL_MAXIMUM:
      return a > b ? a : b;
    default: /* FLOOR_DIVIDE */
      return b == 0 ? 0 : b == -1 ? (int64_t)(0 - (uint64_t)a) : a / b - (a % b != 0 && (a < 0) != (b < 0));
  }
}

static hr_value as_value(hr__onnx_node *node, hr__integer x) {
  return x.value != 0 ? x.value : hr__onnx_whole(node, x.number);
}

hr__integer hr__integer_apply(hr__onnx_node *node, hr_functional function, hr__integer a, hr__integer b) {
  if (a.value == 0 && b.value == 0) {
    return hr__integer_of(apply(function, a.number, b.number));
  }
  return (hr__integer){0, hr__onnx_add(node, function, IN(as_value(node, a), as_value(node, b)), PLAIN)};
}

hr__integer hr__integer_if_negative(hr__onnx_node *node, hr__integer x, hr__integer a, hr__integer b) {
  if (x.value == 0) {
    return x.number < 0 ? a : b;
  }
  hr_value is_negative = CALL(node, LESS, x.value, hr__onnx_whole(node, 0));
  return (hr__integer){0, CALL(node, WHERE, is_negative, as_value(node, a), as_value(node, b))};
}

hr_graph_attribute hr__with_integers(const char *name, int count, const hr__integer *integers, int64_t *numbers,
                                     hr_value *values) {
  bool any = false;
  for (int i = 0; i < count; ++i) {
    numbers[i] = integers[i].number, values[i] = integers[i].value;
    any |= values[i] != 0;
  }
  hr_graph_attribute attribute = hr__with_ints(name, count, numbers);
  attribute.values = any ? values : NULL;
  return attribute;
}

hr_value hr__integer_steps(hr__onnx_node *node, hr__integer count, hr_dtype dtype, int axis, int rank) {
  hr_graph_attribute with[2] = {hr__with_real("stop", (double)count.number), hr__with_dtype("dtype", dtype)};
  with[0].values = count.value != 0 ? &count.value : NULL;
  return hr__onnx_along(node, ADD(node, ARANGE, 0, NULL, 2, with), axis, rank);
}

hr_value hr__integer_reshape(hr__onnx_node *node, hr_value x, int rank, const hr__integer *dims) {
  int64_t numbers[HR_RANK_MAX];
  hr_value values[HR_RANK_MAX];
  if (rank > HR_RANK_MAX) {
    return HR__ONNX_REFUSE(node, "%d dims, expected at most %d", rank, HR_RANK_MAX);
  }
  return ADD(node, RESHAPE, IN(x), WITH(hr__with_integers("shape", rank, dims, numbers, values)));
}

hr_value hr__integer_slice(hr__onnx_node *node, hr_value x, int axis, hr__integer begin, hr__integer count,
                           int64_t step) {
  int rank = hr__onnx_rank(node, x);
  hr__integer begins[HR_RANK_MAX] = {{0}}, counts[HR_RANK_MAX];
  int64_t numbers[3][HR_RANK_MAX];
  hr_value values[2][HR_RANK_MAX];
  if (rank <= 0) {
    return 0;
  }
  for (int d = 0; d < rank; ++d) {
    counts[d] = d == axis ? count : hr__integer_dim(node, x, d);
    numbers[2][d] = d == axis ? step : 1;
  }
  begins[axis] = begin;
  return ADD(node, SLICE, IN(x),
             WITH(hr__with_integers("begin", rank, begins, numbers[0], values[0]),
                  hr__with_integers("count", rank, counts, numbers[1], values[1]),
                  hr__with_ints("step", rank, numbers[2])));
}
