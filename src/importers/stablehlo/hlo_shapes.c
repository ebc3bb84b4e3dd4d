/* hlo_shapes.c: operations that move elements. */
#include "importers/stablehlo/hlo.h"

/* True for one element that stays one, as in regions, which are lowered over whole tensors. */
static bool is_one_element(const hr__hlo *hlo) {
  return hlo->op->operand_count == 1 && hr__hlo_input_type(hlo, 0).rank == 0 && hr__hlo_result_type(hlo, 0).rank == 0;
}

void hr__hlo_lower_reshape(hr__hlo *hlo) {
  hr__vhlo_type result = hr__hlo_result_type(hlo, 0);
  if (is_one_element(hlo)) {
    hr__hlo_lower_pass(hlo);
  } else if (hr__hlo_expect(hlo, 1, 1, 0)) {
    hr__hlo_set(hlo, 0, hr__hlo_reshape(hlo, hr__hlo_input(hlo, 0), result.rank, result.dims));
  }
}

/* The dims that a second operand has are those of the file. */
void hr__hlo_lower_dynamic_reshape(hr__hlo *hlo) {
  hr__vhlo_type result = hr__hlo_result_type(hlo, 0);
  if (hr__hlo_expect(hlo, 2, 1, 0) && hr__hlo_has_sizes(hlo)) {
    hr__hlo_set(hlo, 0, hr__hlo_reshape(hlo, hr__hlo_input(hlo, 0), result.rank, result.dims));
  }
}

void hr__hlo_lower_dimension_size(hr__hlo *hlo) {
  hr__vhlo_type x = hr__hlo_input_type(hlo, 0);
  int64_t axis = hr__hlo_int(hlo, "dimension", 0);
  if (!hr__hlo_expect(hlo, 1, 1, 0)) {
    return;
  }
  if (axis < 0 || axis >= x.rank || x.dims[axis] < 0) {
    HR__HLO_REFUSE(hlo, "dim %lld of %d, or one without a size", (long long)axis, x.rank);
    return;
  }
  hr__hlo_set(hlo, 0, hr__hlo_full(hlo, hr_scalar_i64(x.dims[axis]), HR_DTYPE_I32, 0, NULL));
}

/* To the size that the dim has. */
void hr__hlo_lower_set_dimension_size(hr__hlo *hlo) {
  hr__vhlo_type x = hr__hlo_input_type(hlo, 0);
  int64_t axis = hr__hlo_int(hlo, "dimension", 0), size;
  if (!hr__hlo_expect(hlo, 2, 1, 0) || !hr__hlo_constant_ints(hlo, 1, 1, &size)) {
    return;
  }
  if (axis < 0 || axis >= x.rank || x.dims[axis] != size) {
    HR__HLO_REFUSE(hlo, "dim %lld of %d gets %lld elements", (long long)axis, x.rank, (long long)size);
    return;
  }
  hr__hlo_set(hlo, 0, hr__hlo_input(hlo, 0));
}

void hr__hlo_lower_transpose(hr__hlo *hlo) {
  int64_t axes[HR_RANK_MAX];
  int rank = hr__hlo_input_type(hlo, 0).rank;
  if (!hr__hlo_expect(hlo, 1, 1, 0)) {
    return;
  }
  int count = hr__hlo_axes(hlo, "permutation", rank, axes);
  if (count == rank) {
    hr_value swapped = hr__hlo_swapped_product(hlo, rank, axes);
    hr__hlo_set(hlo, 0, swapped != 0 ? swapped : hr__hlo_permute(hlo, hr__hlo_input(hlo, 0), rank, axes));
  } else if (count >= 0) {
    HR__HLO_WRONG(hlo, "%d dims, expected %d", count, rank);
  }
}

/* Dims in front. */
void hr__hlo_lower_broadcast(hr__hlo *hlo) {
  hr__vhlo_type result = hr__hlo_result_type(hlo, 0);
  if (hr__hlo_expect(hlo, 1, 1, 0)) {
    hr__hlo_set(hlo, 0, hr__hlo_broadcast(hlo, hr__hlo_input(hlo, 0), result.rank, result.dims));
  }
}

/* Operand dims in the order of the result's, then with dims of size 1 between them. dynamic_broadcast_in_dim has one
 * more operand, the result's dims. */
void hr__hlo_lower_broadcast_in_dim(hr__hlo *hlo) {
  hr__vhlo_type x = hr__hlo_input_type(hlo, 0), result = hr__hlo_result_type(hlo, 0);
  int64_t places[HR_RANK_MAX], axes[HR_RANK_MAX], dims[HR_RANK_MAX];
  bool is_dynamic = hlo->op->operand_count == 2;
  if (is_one_element(hlo)) {
    hr__hlo_lower_pass(hlo);
    return;
  }
  if (!hr__hlo_expect(hlo, 1 + is_dynamic, 1, 0) || !hr__hlo_has_sizes(hlo)) {
    return;
  }
  int count = hr__hlo_axes(hlo, "broadcast_dimensions", result.rank, places);
  if (count != x.rank) {
    HR__HLO_WRONG(hlo, "%d dims, expected %d", count, x.rank);
    return;
  }
  int next = 0;
  for (int d = 0; d < result.rank; ++d) {
    dims[d] = 1;
    for (int i = 0; i < count; ++i) {
      if (places[i] == d) {
        axes[next++] = i, dims[d] = x.dims[i];
      }
    }
  }
  hr_value moved = hr__hlo_permute(hlo, hr__hlo_input(hlo, 0), x.rank, axes);
  moved = hr__hlo_reshape(hlo, moved, result.rank, dims);
  hr__hlo_set(hlo, 0, hr__hlo_broadcast(hlo, moved, result.rank, result.dims));
}

void hr__hlo_lower_iota(hr__hlo *hlo) {
  hr__vhlo_type result = hr__hlo_result_type(hlo, 0);
  int64_t axis = hr__hlo_int(hlo, "iota_dimension", 0), dims[HR_RANK_MAX];
  bool is_dynamic = hlo->op->operand_count == 1; /* of dynamic_iota: the result's dims */
  if (!hr__hlo_expect(hlo, is_dynamic, 1, 0) || !hr__hlo_has_sizes(hlo)) {
    return;
  }
  if (axis < 0 || axis >= result.rank) {
    HR__HLO_WRONG(hlo, "dim %lld of %d", (long long)axis, result.rank);
    return;
  }
  for (int d = 0; d < result.rank; ++d) {
    dims[d] = d == axis ? result.dims[d] : 1;
  }
  bool is_narrow = hr_dtype_size(result.dtype) == 1 || result.dtype >= HR_DTYPE_F16;
  hr_dtype dtype = !is_narrow ? result.dtype : result.dtype == HR_DTYPE_F64 ? HR_DTYPE_F64 : HR_DTYPE_F32;
  hr_value numbers = ADD(hlo, ARANGE, 0, NULL,
                         WITH(hr__with_real("start", 0), hr__with_real("stop", (double)result.dims[axis]),
                              hr__with_real("step", 1), hr__with_dtype("dtype", dtype)));
  numbers = hr__hlo_reshape(hlo, hr__hlo_cast(hlo, numbers, result.dtype), result.rank, dims);
  hr__hlo_set(hlo, 0, hr__hlo_broadcast(hlo, numbers, result.rank, result.dims));
}

void hr__hlo_lower_slice(hr__hlo *hlo) {
  hr__vhlo_type x = hr__hlo_input_type(hlo, 0), result = hr__hlo_result_type(hlo, 0);
  int64_t begin[HR_RANK_MAX], step[HR_RANK_MAX];
  if (!hr__hlo_expect(hlo, 1, 1, 0) || !hr__hlo_int_list(hlo, "start_indices", x.rank, 0, begin) ||
      !hr__hlo_int_list(hlo, "strides", x.rank, 1, step)) {
    return;
  }
  hr__hlo_set(hlo, 0,
              ADD(hlo, SLICE, IN(hr__hlo_input(hlo, 0)),
                  WITH(hr__with_ints("begin", x.rank, begin), hr__with_ints("count", x.rank, result.dims),
                       hr__with_ints("step", x.rank, step))));
}

static bool is_one(int count, const int64_t *numbers) {
  for (int i = 0; i < count; ++i) {
    if (numbers[i] != 1) {
      return false;
    }
  }
  return true;
}

/* From a start that need not be a constant if the elements are neighbours. */
void hr__hlo_lower_real_dynamic_slice(hr__hlo *hlo) {
  enum { X, START, LIMIT, STRIDES, OPERANDS };
  hr__vhlo_type x = hr__hlo_input_type(hlo, X), result = hr__hlo_result_type(hlo, 0);
  int64_t begin[HR_RANK_MAX], step[HR_RANK_MAX];
  if (!hr__hlo_expect(hlo, OPERANDS, 1, 0) || !hr__hlo_has_sizes(hlo) ||
      !hr__hlo_constant_ints(hlo, STRIDES, x.rank, step)) {
    return;
  }
  if (is_one(x.rank, step)) {
    hr_value start = hr__hlo_input(hlo, START);
    hr__hlo_set(hlo, 0,
                x.rank == 0 ? hr__hlo_input(hlo, X)
                            : ADD(hlo, DYNAMIC_SLICE, IN(hr__hlo_input(hlo, X), start),
                                  WITH(hr__with_ints("sizes", x.rank, result.dims))));
  } else if (hr__hlo_constant_ints(hlo, START, x.rank, begin)) {
    hr__hlo_set(hlo, 0,
                ADD(hlo, SLICE, IN(hr__hlo_input(hlo, X)),
                    WITH(hr__with_ints("begin", x.rank, begin), hr__with_ints("count", x.rank, result.dims),
                         hr__with_ints("step", x.rank, step))));
  }
}

void hr__hlo_lower_reverse(hr__hlo *hlo) {
  int64_t axes[HR_RANK_MAX];
  hr_value x = hr__hlo_input(hlo, 0);
  int count = hr__hlo_axes(hlo, "dimensions", hr__hlo_input_type(hlo, 0).rank, axes);
  if (hr__hlo_expect(hlo, 1, 1, 0)) {
    hr__hlo_set(hlo, 0, count == 0 ? x : ADD(hlo, FLIP, IN(x), WITH(hr__with_ints("axis", count, axes))));
  }
}

void hr__hlo_lower_concatenate(hr__hlo *hlo) {
  enum { INPUTS_MAX = 4096 };
  hr_value inputs[INPUTS_MAX];
  int count = hlo->op->operand_count;
  if (!hr__hlo_expect(hlo, -1, 1, 0) || count < 1 || count > INPUTS_MAX) {
    HR__HLO_REFUSE(hlo, "%d operands, expected 1 to %d", count, INPUTS_MAX);
    return;
  }
  for (int i = 0; i < count; ++i) {
    inputs[i] = hr__hlo_input(hlo, i);
  }
  hr_value all = hr_graph_add(hlo->graph, HR_FUNCTIONAL_CONCAT, count, inputs,
                              WITH(hr__with_int("axis", hr__hlo_int(hlo, "dimension", 0))));
  hr__hlo_set(hlo, 0, all);
}

static hr_value padded(hr__hlo *hlo, hr_value x, int rank, const int64_t *before, const int64_t *after,
                       const int64_t *interior) {
  return ADD(hlo, PAD, IN(x),
             WITH(hr__with_ints("before", rank, before), hr__with_ints("after", rank, after),
                  hr__with_ints("interior", rank, interior)));
}

hr_value hr__hlo_pad(hr__hlo *hlo, hr_value x, int rank, const int64_t *dims, const int64_t *before,
                     const int64_t *after, const int64_t *interior, hr_value value) {
  hr_value wide = padded(hlo, x, rank, before, after, interior);
  if (value == 0) {
    return wide;
  }
  hr_value mask = hr__hlo_full(hlo, hr_scalar_bool(true), HR_DTYPE_BOOL, rank, dims);
  return CALL(hlo, WHERE, padded(hlo, mask, rank, before, after, interior), wide, value);
}

/* Before, after and between neighbours: attributes, or constant operands of dynamic_pad. */
static bool read_sides(hr__hlo *hlo, int rank, int64_t sides[3][HR_RANK_MAX]) {
  static const char *const names[] = {"edge_padding_low", "edge_padding_high", "interior_padding"};
  bool is_dynamic = hlo->op->operand_count == 5, is_read = hr__hlo_expect(hlo, is_dynamic ? 5 : 2, 1, 0);
  for (int i = 0; i < 3 && is_read; ++i) {
    is_read = is_dynamic ? hr__hlo_constant_ints(hlo, 2 + i, rank, sides[i])
                         : hr__hlo_int_list(hlo, names[i], rank, 0, sides[i]);
  }
  return is_read;
}

void hr__hlo_lower_pad(hr__hlo *hlo) {
  hr__vhlo_type x = hr__hlo_input_type(hlo, 0);
  int64_t sides[3][HR_RANK_MAX];
  if (!read_sides(hlo, x.rank, sides)) {
    return;
  }
  hr_value value = hr__hlo_is_zero(hlo, 1) ? 0 : hr__hlo_input(hlo, 1), in = hr__hlo_input(hlo, 0);
  hr__hlo_set(hlo, 0, x.rank == 0 ? in : hr__hlo_pad(hlo, in, x.rank, x.dims, sides[0], sides[1], sides[2], value));
}
