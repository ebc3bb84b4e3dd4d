/* onnx_reductions.c: operators over axes. */
#include <math.h>

#include "importers/onnx/onnx_integer.h"

typedef struct reduction {
  hr_value x;
  int axis_count;
  int64_t axes[HR_RANK_MAX];
  bool keeps, is_noop;
} reduction;

/* Axes are an input since version 18, of ReduceSum since 13. */
static reduction begin_reduction(hr__onnx_node *node) {
  reduction r = {.x = hr__onnx_input(node, 0), .keeps = hr__onnx_int(node, "keepdims", 1) != 0};
  int rank = hr__onnx_rank(node, r.x);
  r.axis_count = hr__onnx_ints_of(node, 1, "axes", r.axes);
  if (r.axis_count <= 0) {
    r.is_noop = hr__onnx_int(node, "noop_with_empty_axes", 0) != 0;
    for (r.axis_count = 0; r.axis_count < rank; ++r.axis_count) {
      r.axes[r.axis_count] = r.axis_count;
    }
  }
  return r;
}

static hr_value lowest_of(hr__onnx_node *node, hr_dtype dtype, bool is_max) {
  int bits = 8 * (int)hr_dtype_size(dtype);
  if (hr__onnx_is_float(dtype)) {
    return hr__onnx_number(node, is_max ? -(double)INFINITY : (double)INFINITY);
  }
  bool is_unsigned = dtype == HR_DTYPE_U8 || dtype == HR_DTYPE_U16 || dtype == HR_DTYPE_U32 || dtype == HR_DTYPE_U64;
  if (dtype == HR_DTYPE_BOOL || is_unsigned) {
    uint64_t most = dtype == HR_DTYPE_BOOL ? 1 : UINT64_MAX >> (64 - bits);
    return is_max ? hr__onnx_whole(node, 0) : hr_graph_number(node->graph, hr_scalar_u64(most));
  }
  int64_t least = INT64_MIN >> (64 - bits);
  return hr__onnx_whole(node, is_max ? least : -(least + 1));
}

/* The largest element, also of none: the lowest number of the dtype. A number in front stands for that. */
static hr_value extreme(hr__onnx_node *node, const reduction *r, bool is_max) {
  hr_dtype dtype = hr__onnx_dtype_of(node, r->x);
  bool is_empty = false;
  for (int i = 0; i < r->axis_count; ++i) {
    int axis = hr__onnx_axis(node, r->axes[i], hr__onnx_rank(node, r->x));
    is_empty |= hr__onnx_dim(node, r->x, axis) == 0;
  }
  hr_functional function = is_max ? HR_FUNCTIONAL_MAX : HR_FUNCTIONAL_MIN;
  if (is_empty) {
    hr_value shape =
        hr_graph_shape(node->graph, hr__onnx_reduce(node, HR_FUNCTIONAL_SUM, r->x, r->axis_count, r->axes, r->keeps));
    return ADD(node, FULL, IN(lowest_of(node, dtype, is_max)),
               WITH(hr__with_list("shape", shape), hr__with_dtype("dtype", dtype)));
  }
  if (dtype == HR_DTYPE_BOOL) {
    function = is_max ? HR_FUNCTIONAL_ANY : HR_FUNCTIONAL_ALL;
  }
  return hr__onnx_reduce(node, function, r->x, r->axis_count, r->axes, r->keeps);
}

void hr__onnx_map_reduce(hr__onnx_node *node) {
  reduction r = begin_reduction(node);
  if (r.is_noop || (r.axis_count == 0 && node->function != HR_FUNCTIONAL_LOGSUMEXP)) {
    hr__onnx_set(node, 0, CALL(node, POSITIVE, r.x));
  } else if (node->function == HR_FUNCTIONAL_MAX || node->function == HR_FUNCTIONAL_MIN) {
    hr__onnx_set(node, 0, extreme(node, &r, node->function == HR_FUNCTIONAL_MAX));
  } else {
    hr_value result = hr__onnx_reduce(node, node->function, r.x, r.axis_count, r.axes, r.keeps);
    hr__onnx_set(node, 0, hr__onnx_cast(node, result, hr__onnx_dtype_of(node, r.x)));
  }
}

/* The sum of x over the axes, or x. */
static hr_value sum_of(hr__onnx_node *node, const reduction *r, hr_value x) {
  return r->is_noop || r->axis_count == 0
             ? x
             : hr__onnx_reduce(node, HR_FUNCTIONAL_SUM, x, r->axis_count, r->axes, r->keeps);
}

void hr__onnx_map_reduce_l1(hr__onnx_node *node) {
  reduction r = begin_reduction(node);
  hr__onnx_set(node, 0, sum_of(node, &r, CALL(node, ABS, r.x)));
}

void hr__onnx_map_reduce_l2(hr__onnx_node *node) {
  reduction r = begin_reduction(node);
  hr_value root = CALL(node, SQRT, sum_of(node, &r, CALL(node, SQUARE, r.x)));
  hr__onnx_set(node, 0, hr__onnx_cast(node, root, hr__onnx_dtype_of(node, r.x)));
}

void hr__onnx_map_reduce_sum_square(hr__onnx_node *node) {
  reduction r = begin_reduction(node);
  hr__onnx_set(node, 0, sum_of(node, &r, CALL(node, SQUARE, r.x)));
}

void hr__onnx_map_reduce_log_sum(hr__onnx_node *node) {
  reduction r = begin_reduction(node);
  hr_value logarithm = CALL(node, LOG, sum_of(node, &r, r.x));
  hr__onnx_set(node, 0, hr__onnx_cast(node, logarithm, hr__onnx_dtype_of(node, r.x)));
}

void hr__onnx_map_best(hr__onnx_node *node) {
  hr_value x = hr__onnx_input(node, 0);
  int64_t axis[1] = {hr__onnx_axis(node, hr__onnx_int(node, "axis", 0), hr__onnx_rank(node, x))};
  bool is_last = hr__onnx_int(node, "select_last_index", 0) != 0;
  hr_value from = is_last ? ADD(node, FLIP, IN(x), WITH(hr__with_ints("axis", 1, axis))) : x;
  hr_value place = hr__onnx_add(
      node, node->function, IN(from),
      WITH(hr__with_ints("axis", 1, axis), hr__with_flag("keepdims", hr__onnx_int(node, "keepdims", 1) != 0)));
  if (is_last) {
    hr__integer last = INTEGER(node, SUBTRACT, hr__integer_dim(node, x, (int)axis[0]), hr__integer_of(1));
    place = CALL(node, SUBTRACT, last.value != 0 ? last.value : hr__onnx_whole(node, last.number), place);
  }
  hr__onnx_set(node, 0, hr__onnx_cast(node, place, HR_DTYPE_I64));
}
