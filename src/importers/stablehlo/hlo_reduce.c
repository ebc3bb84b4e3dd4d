/* hlo_reduce.c: reductions of one or several operands by any region.
 *
 * Regions of one known operation are a row, and so is the region with which JAX finds the largest or smallest element's
 * index. All others are folds (hlo_fold.c).
 */
#include "core/ir/dtype.h"
#include "functional/windows.h"
#include "importers/stablehlo/hlo.h"

typedef struct reduction {
  int count, rank, axis_count;
  int64_t dims[HR_RANK_MAX], axes[HR_RANK_MAX];
  bool is_empty; /* no elements are reduced */
} reduction;

static bool read_reduction(hr__hlo *hlo, reduction *r) {
  hr__vhlo_type x = hr__hlo_input_type(hlo, 0);
  *r = (reduction){.count = hlo->op->result_count, .rank = x.rank};
  if (!hr__hlo_expect(hlo, 2 * r->count, -1, 1)) {
    return false;
  }
  if (r->count < 1 || r->count > HR__HLO_OPERANDS_MAX) {
    HR__HLO_REFUSE(hlo, "%d operands, expected 1 to %d", r->count, HR__HLO_OPERANDS_MAX);
    return false;
  }
  memcpy(r->dims, x.dims, sizeof x.dims);
  for (int i = 1; i < r->count; ++i) {
    hr__vhlo_type other = hr__hlo_input_type(hlo, i);
    if (other.rank != x.rank || memcmp(other.dims, x.dims, (size_t)x.rank * sizeof *x.dims) != 0) {
      HR__HLO_WRONG(hlo, "operand %d has other dims than operand 0", i);
      return false;
    }
  }
  r->axis_count = hr__hlo_axes(hlo, "dimensions", r->rank, r->axes);
  for (int i = 0; i < r->axis_count; ++i) {
    r->is_empty = r->is_empty || r->dims[r->axes[i]] == 0;
  }
  return r->axis_count >= 0;
}

/* Operands may have fewer bits than results. */
static hr_value operand_of(hr__hlo *hlo, int index) {
  hr_dtype from = hr__hlo_input_type(hlo, index).dtype, to = hr__hlo_result_type(hlo, index).dtype;
  hr_value x = hr__hlo_input(hlo, index);
  return from == to ? x : hr__hlo_convert(hlo, x, from, to);
}

/* ---- rows ---- */

static hr_value add_row(hr__hlo *hlo, const reduction *r, hr__hlo_combiner combiner, hr_value x, hr_dtype dtype) {
  hr_graph_attribute axes = hr__with_ints("axis", r->axis_count, r->axes);
  switch (combiner) {
    case HR__HLO_ADD:
      return ADD(hlo, SUM, IN(x), WITH(axes, hr__with_dtype("dtype", dtype)));
    case HR__HLO_MULTIPLY:
      return ADD(hlo, PROD, IN(x), WITH(axes, hr__with_dtype("dtype", dtype)));
    case HR__HLO_MAX:
      return ADD(hlo, MAX, IN(x), WITH(axes));
    case HR__HLO_MIN:
      return ADD(hlo, MIN, IN(x), WITH(axes));
    case HR__HLO_AND:
      return ADD(hlo, ALL, IN(x), WITH(axes));
    default:
      return ADD(hlo, ANY, IN(x), WITH(axes));
  }
}

/* False: a region is none of those with a row. */
static bool reduce_by_rows(hr__hlo *hlo, const reduction *r) {
  hr__hlo_combiner combiners[HR__HLO_OPERANDS_MAX];
  for (int i = 0; i < r->count; ++i) {
    combiners[i] = hr__hlo_combiner_of(hlo, &hlo->op->regions[0], i);
    if (combiners[i] == HR__HLO_OTHER || combiners[i] == HR__HLO_SECOND) {
      return false;
    }
  }
  for (int i = 0; i < r->count; ++i) {
    hr_dtype dtype = hr__hlo_result_type(hlo, i).dtype;
    hr_value x = operand_of(hlo, i);
    hr__hlo_set(hlo, i,
                hr__hlo_begin_with(hlo, combiners[i], r->count + i, dtype, add_row(hlo, r, combiners[i], x, dtype)));
  }
  return true;
}

/* ---- the index of the largest or smallest element ---- */

static bool is_spelled(const hr__hlo *hlo, const hr__vhlo_region *region, int index, const char *text) {
  const hr__vhlo_op *end = hr__hlo_return_op(region);
  hr_text spelled = {0};
  unsigned sides;
  bool is_same = end != NULL && index < end->operand_count &&
                 hr__hlo_spell(hlo, region, end->operands[index], 1, &spelled, &sides) &&
                 strcmp(hr_text_chars(&spelled), text) == 0;
  hr_text_fini(&spelled);
  return is_same;
}

static bool is_iota_along(const hr__hlo *hlo, const hr__vhlo_value *value, int64_t axis) {
  const hr__vhlo_module *module = &hlo->import->module;
  int64_t dim;
  return value->op != NULL && strcmp(value->op->name->name, "iota_v1") == 0 &&
         hr__vhlo_int(module, hr__vhlo_find(module, value->op, "iota_dimension"), &dim) && dim == axis;
}

/* Pairs of an element and its index: the better element, NaN before all others, and the lower index of equal ones. */
static bool is_argument_region(const hr__hlo *hlo, bool is_max) {
  const hr__vhlo_region *region = &hlo->op->regions[0];
  return is_max ? is_spelled(hlo, region, 0, "select(or(gt(a0,a2),ne(a0,a0)),a0,a2)") &&
                      is_spelled(hlo, region, 1, "select(or(or(gt(a0,a2),ne(a0,a0)),and(eq(a0,a2),lt(a1,a3))),a1,a3)")
                : is_spelled(hlo, region, 0, "select(or(lt(a0,a2),ne(a0,a0)),a0,a2)") &&
                      is_spelled(hlo, region, 1, "select(or(or(lt(a0,a2),ne(a0,a0)),and(eq(a0,a2),lt(a1,a3))),a1,a3)");
}

/* The pair to begin with changes nothing: the worst element, and index 0, which the first of worst elements has. */
static bool begins_with_worst(hr__hlo *hlo, bool is_max) {
  hr_scalar worst;
  hr__hlo_combiner combiner = is_max ? HR__HLO_MAX : HR__HLO_MIN;
  return hr__hlo_is_zero(hlo, 3) && hr__hlo_number_of(hlo, hlo->op->operands[2], &worst) &&
         hr__hlo_is_identity(combiner, hr__hlo_input_type(hlo, 0).dtype, &worst);
}

static bool reduce_to_index(hr__hlo *hlo, const reduction *r) {
  hr_dtype dtype = hr__hlo_input_type(hlo, 0).dtype, index = hr__hlo_result_type(hlo, 1).dtype;
  bool is_max = r->count == 2 && is_argument_region(hlo, true);
  if (r->count != 2 || r->axis_count != 1 || (!is_max && !is_argument_region(hlo, false)) ||
      !is_iota_along(hlo, hlo->op->operands[1], r->axes[0]) || dtype == HR_DTYPE_BOOL ||
      !begins_with_worst(hlo, is_max)) {
    return false;
  }
  hr_graph_attribute axes = hr__with_ints("axis", 1, r->axes);
  hr_value x = hr__hlo_input(hlo, 0);
  hr__hlo_set(hlo, 0, is_max ? ADD(hlo, MAX, IN(x), WITH(axes)) : ADD(hlo, MIN, IN(x), WITH(axes)));
  hr_value at = is_max ? ADD(hlo, ARGMAX, IN(x), WITH(axes)) : ADD(hlo, ARGMIN, IN(x), WITH(axes));
  hr__hlo_set(hlo, 1, hr__hlo_cast(hlo, at, index));
  return true;
}

/* ---- any region ---- */

/* The last dim first, so that elements keep their order. */
static void reduce_by_folds(hr__hlo *hlo, const reduction *r) {
  hr_value values[HR__HLO_OPERANDS_MAX], starts[HR__HLO_OPERANDS_MAX];
  int64_t dims[HR_RANK_MAX];
  uint32_t mask = 0;
  hr__hlo_folder folder = hr__hlo_folder_of(&hlo->op->regions[0], r->count);
  memcpy(dims, r->dims, sizeof dims);
  for (int i = 0; i < r->count; ++i) {
    values[i] = operand_of(hlo, i), starts[i] = hr__hlo_input(hlo, r->count + i);
  }
  for (int i = 0; i < r->axis_count; ++i) {
    mask |= 1u << r->axes[i];
  }
  for (int d = r->rank - 1; d >= 0; --d) {
    if ((mask >> d & 1) != 0) {
      hr__hlo_fold(hlo, &folder, values, r->rank, dims, d);
    }
  }
  for (int i = 0; i < r->count; ++i) {
    hr__vhlo_type result = hr__hlo_result_type(hlo, i);
    values[i] = hr__hlo_reshape(hlo, values[i], result.rank, result.dims);
  }
  bool is_done = !hr__hlo_failed(hlo) && folder.combine(hlo, &folder, starts, values, values);
  for (int i = 0; i < r->count && is_done; ++i) {
    hr__hlo_set(hlo, i, values[i]);
  }
}

/* Without dims XLA gives the operands as they are. */
void hr__hlo_lower_reduce(hr__hlo *hlo) {
  reduction r;
  if (!read_reduction(hlo, &r)) {
    return;
  }
  if (r.axis_count == 0) {
    for (int i = 0; i < r.count; ++i) {
      hr__hlo_set(hlo, i, operand_of(hlo, i));
    }
  } else if (r.is_empty) {
    for (int i = 0; i < r.count; ++i) {
      hr__vhlo_type result = hr__hlo_result_type(hlo, i);
      hr__hlo_set(hlo, i, hr__hlo_broadcast(hlo, hr__hlo_input(hlo, r.count + i), result.rank, result.dims));
    }
  } else if (!reduce_by_rows(hlo, &r) && !reduce_to_index(hlo, &r)) {
    reduce_by_folds(hlo, &r);
  }
}

/* A region over whole tensors. */
void hr__hlo_lower_map(hr__hlo *hlo) {
  hr__vhlo_type result = hr__hlo_result_type(hlo, 0);
  hr_value operands[HR__HLO_OPERANDS_MAX], value = 0;
  int count = hlo->op->operand_count;
  if (!hr__hlo_expect(hlo, -1, 1, 1) || count < 1 || count > HR__HLO_OPERANDS_MAX) {
    HR__HLO_REFUSE(hlo, "%d operands, expected 1 to %d", count, HR__HLO_OPERANDS_MAX);
    return;
  }
  for (int i = 0; i < count; ++i) {
    operands[i] = hr__hlo_input(hlo, i);
  }
  if (hr__hlo_inline(hlo, &hlo->op->regions[0], count, operands, 1, &value, false) == 1) {
    hr__hlo_set(hlo, 0, hr__hlo_broadcast(hlo, value, result.rank, result.dims));
  }
}
