/* hlo_slices.c: slices at indices, read and written. */
#include "importers/stablehlo/hlo.h"

/* ---- gather and scatter ---- */

/* Attributes of gather_slices and scatter_slices but for their own ones. */
typedef struct places {
  int counts[5];
  int64_t dims[5][HR_RANK_MAX];
  int64_t vector;
} places;

enum { MAP, WINDOW, COLLAPSED, X_BATCH, INDEX_BATCH, LISTS };

/* Of the names in the file. Dims of windows are those of the slices. */
static bool read_places(hr__hlo *hlo, const char *const names[LISTS], int index, int slice_rank, places *out) {
  int rank = hr__hlo_input_type(hlo, 0).rank, index_rank = hr__hlo_input_type(hlo, index).rank;
  const int ranks[LISTS] = {rank, slice_rank, rank, rank, index_rank};
  for (int i = 0; i < LISTS; ++i) {
    out->counts[i] = hr__hlo_axes(hlo, names[i], ranks[i], out->dims[i]);
    if (out->counts[i] < 0) {
      return false;
    }
  }
  if (out->counts[X_BATCH] != out->counts[INDEX_BATCH]) {
    HR__HLO_WRONG(hlo, "%d dims of examples, but %d of their indices", out->counts[X_BATCH], out->counts[INDEX_BATCH]);
    return false;
  }
  out->vector = hr__hlo_int(hlo, "index_vector_dim", index_rank);
  for (int i = 0; i < out->counts[INDEX_BATCH]; ++i) { /* the functions do not count the dim of components */
    out->dims[INDEX_BATCH][i] -= out->dims[INDEX_BATCH][i] > out->vector;
  }
  return !hr__hlo_failed(hlo);
}

#define PLACES(p)                                                                     \
  hr__with_ints("map", (p)->counts[MAP], (p)->dims[MAP]),                             \
      hr__with_ints("window", (p)->counts[WINDOW], (p)->dims[WINDOW]),                \
      hr__with_ints("collapsed", (p)->counts[COLLAPSED], (p)->dims[COLLAPSED]),       \
      hr__with_ints("x_batch", (p)->counts[X_BATCH], (p)->dims[X_BATCH]),             \
      hr__with_ints("index_batch", (p)->counts[INDEX_BATCH], (p)->dims[INDEX_BATCH]), \
      hr__with_int("vector_dim", (p)->vector)

static hr_value gathered(hr__hlo *hlo, const places *p, hr_value x, hr_value indices, int rank, const int64_t *sizes) {
  return ADD(hlo, GATHER_SLICES, IN(x, indices), WITH(hr__with_ints("sizes", rank, sizes), PLACES(p)));
}

static int64_t count_of(const hr__vhlo_type *type) {
  int64_t count = 1;
  for (int d = 0; d < type->rank; ++d) {
    count *= type->dims[d];
  }
  return count;
}

/* Slices of no elements may have sizes that x does not have. */
void hr__hlo_lower_gather(hr__hlo *hlo) {
  static const char *const names[LISTS] = {"start_index_map", "offset_dims", "collapsed_slice_dims",
                                           "operand_batching_dims", "start_indices_batching_dims"};
  int rank = hr__hlo_input_type(hlo, 0).rank;
  int64_t sizes[HR_RANK_MAX];
  hr__vhlo_type result = hr__hlo_result_type(hlo, 0);
  places p;
  bool is_dynamic = hlo->op->operand_count == 3; /* dynamic_gather, whose sizes are an operand */
  if (count_of(&result) == 0) {
    hr__hlo_set(hlo, 0, hr__hlo_full(hlo, hr_scalar_i64(0), result.dtype, result.rank, result.dims));
  } else if (hr__hlo_expect(hlo, 2 + is_dynamic, 1, 0) &&
             (is_dynamic ? hr__hlo_constant_ints(hlo, 2, rank, sizes)
                         : hr__hlo_int_list(hlo, "slice_sizes", rank, 1, sizes)) &&
             read_places(hlo, names, 1, result.rank, &p)) {
    hr__hlo_set(hlo, 0, gathered(hlo, &p, hr__hlo_input(hlo, 0), hr__hlo_input(hlo, 1), rank, sizes));
  }
}

/* The slices of one dim, of the operand's examples in the first dims that the indices have, too. */
void hr__hlo_lower_index_select(hr__hlo *hlo) {
  hr__vhlo_type x = hr__hlo_input_type(hlo, 0), indices = hr__hlo_input_type(hlo, 1);
  int64_t axis = hr__hlo_int(hlo, "dim", 0), batch = hr__hlo_int(hlo, "batch_dims", 0), sizes[HR_RANK_MAX];
  axis += axis < 0 ? x.rank : 0;
  batch += batch < 0 ? indices.rank : 0;
  places p = {.vector = indices.rank};
  if (!hr__hlo_expect(hlo, 2, 1, 0)) {
    return;
  }
  if (axis < 0 || axis >= x.rank || batch < 0 || batch > axis || batch > indices.rank) {
    HR__HLO_WRONG(hlo, "dim %lld of %d behind %lld of examples", (long long)axis, x.rank, (long long)batch);
    return;
  }
  for (int d = 0; d < x.rank; ++d) {
    sizes[d] = d < batch || d == axis ? 1 : x.dims[d];
    if (d < batch) {
      p.dims[X_BATCH][p.counts[X_BATCH]++] = d, p.dims[INDEX_BATCH][p.counts[INDEX_BATCH]++] = d;
    } else if (d != axis) {
      p.dims[WINDOW][p.counts[WINDOW]++] = d < axis ? d : d - 1 + indices.rank - batch;
    }
  }
  p.dims[MAP][p.counts[MAP]++] = axis, p.dims[COLLAPSED][p.counts[COLLAPSED]++] = axis;
  hr__hlo_set(hlo, 0, gathered(hlo, &p, hr__hlo_input(hlo, 0), hr__hlo_input(hlo, 1), x.rank, sizes));
}

static hr_value scattered(hr__hlo *hlo, const places *p, hr_value x, hr_value indices, hr_value values,
                          const char *mode) {
  return ADD(hlo, SCATTER_SLICES, IN(x, indices, values), WITH(PLACES(p), hr__with_text("mode", mode)));
}

/* The dims of slices in x's order. */
static void slice_sizes(const places *p, int rank, const hr__vhlo_type *values, int64_t *out) {
  uint32_t gone = 0;
  for (int i = 0; i < p->counts[COLLAPSED]; ++i) {
    gone |= 1u << p->dims[COLLAPSED][i];
  }
  for (int i = 0; i < p->counts[X_BATCH]; ++i) {
    gone |= 1u << p->dims[X_BATCH][i];
  }
  for (int d = 0, window = 0; d < rank; ++d) {
    bool is_window = (gone >> d & 1u) == 0 && window < p->counts[WINDOW];
    out[d] = is_window ? values->dims[p->dims[WINDOW][window++]] : 1;
  }
}

/* Any region, if each element gets at most one value. */
static void scatter_at_once(hr__hlo *hlo, const places *p, int count) {
  hr_value old[HR__HLO_OPERANDS_MAX], values[HR__HLO_OPERANDS_MAX], results[HR__HLO_OPERANDS_MAX];
  int64_t sizes[HR_RANK_MAX];
  hr_value indices = hr__hlo_input(hlo, count);
  for (int i = 0; i < count; ++i) {
    hr__vhlo_type x = hr__hlo_input_type(hlo, i), type = hr__hlo_input_type(hlo, count + 1 + i);
    slice_sizes(p, x.rank, &type, sizes);
    old[i] = gathered(hlo, p, hr__hlo_input(hlo, i), indices, x.rank, sizes);
    values[i] = hr__hlo_input(hlo, count + 1 + i);
  }
  bool is_done = hr__hlo_combine_all(hlo, &hlo->op->regions[0], count, old, values, results);
  for (int i = 0; i < count && is_done; ++i) {
    hr__hlo_set(hlo, i, scattered(hlo, p, hr__hlo_input(hlo, i), indices, results[i], "set"));
  }
}

/* True for slices inside of x, in the dims of the values. */
static hr_value inside_of(hr__hlo *hlo, const places *p, int count, const int64_t *sizes) {
  hr__vhlo_type x = hr__hlo_input_type(hlo, 0), type = hr__hlo_input_type(hlo, count);
  hr__vhlo_type values = hr__hlo_input_type(hlo, count + 1);
  int64_t ends[HR_RANK_MAX], dims[HR_RANK_MAX];
  for (int i = 0; i < p->counts[MAP]; ++i) {
    ends[i] = x.dims[p->dims[MAP][i]] - sizes[p->dims[MAP][i]];
  }
  for (int d = 0; d < type.rank; ++d) {
    dims[d] = d == p->vector ? p->counts[MAP] : 1;
  }
  hr_value last =
      hr_graph_constant(hlo->graph, &(hr_type){.dtype = HR_DTYPE_I64, .rank = 1, .dims = {p->counts[MAP]}}, ends);
  hr_value index = hr__hlo_cast(hlo, hr__hlo_input(hlo, count), HR_DTYPE_I64);
  last = hr__hlo_reshape(hlo, last, p->vector < type.rank ? type.rank : 0, dims);
  hr_value flag = CALL(hlo, LOGICAL_AND, CALL(hlo, GREATER_EQUAL, index, hr__hlo_whole(hlo, 0)),
                       CALL(hlo, LESS_EQUAL, index, last));
  if (p->vector < type.rank) {
    flag = ADD(hlo, ALL, IN(flag), WITH(hr__with_ints("axis", 1, &p->vector)));
  }
  for (int i = 0; i < p->counts[WINDOW]; ++i) {
    values.dims[p->dims[WINDOW][i]] = 1;
  }
  return hr__hlo_reshape(hlo, flag, values.rank, values.dims);
}

/* Any region, one element after the other. Operands have the same dims, and so have their values. */
static void scatter_in_order(hr__hlo *hlo, const places *p, int count) {
  hr__vhlo_type x = hr__hlo_input_type(hlo, 0), type = hr__hlo_input_type(hlo, count + 1);
  int64_t sizes[HR_RANK_MAX], size = count_of(&x), updates = count_of(&type);
  hr_value all[HR__HLO_OPERANDS_MAX], values[HR__HLO_OPERANDS_MAX];
  slice_sizes(p, x.rank, &type, sizes);
  for (int i = 0; i < count; ++i) {
    all[i] = hr__hlo_reshape(hlo, hr__hlo_input(hlo, i), 1, &size);
    values[i] = hr__hlo_reshape(hlo, hr__hlo_input(hlo, count + 1 + i), 1, &updates);
  }
  hr_value numbers =
      ADD(hlo, ARANGE, 0, NULL, WITH(hr__with_real("stop", (double)size), hr__with_dtype("dtype", HR_DTYPE_I64)));
  hr_value at =
      gathered(hlo, p, hr__hlo_reshape(hlo, numbers, x.rank, x.dims), hr__hlo_input(hlo, count), x.rank, sizes);
  hr_value none = hr__hlo_full(hlo, hr_scalar_i64(-1), HR_DTYPE_I64, 0, NULL);
  at = CALL(hlo, WHERE, inside_of(hlo, p, count, sizes), at, none);
  hr__hlo_update(hlo, &hlo->op->regions[0], count, all, size, hr__hlo_reshape(hlo, at, 1, &updates), updates, values);
  for (int i = 0; i < count; ++i) {
    hr__hlo_set(hlo, i, hr__hlo_reshape(hlo, all[i], x.rank, x.dims));
  }
}

static bool has_rows(const hr__hlo *hlo, int count) {
  for (int i = 0; i < count; ++i) {
    if (hr__hlo_combiner_of(hlo, &hlo->op->regions[0], i) == HR__HLO_OTHER) {
      return false;
    }
  }
  return true;
}

/* ---- slices in zeros, along one dim ---- */

/* True if a scatter changes zeros alone, at whole slices of one dim. sizes: of slices. */
static bool fills_zeros(hr__hlo *hlo, const places *p, int64_t *sizes) {
  hr__vhlo_type x = hr__hlo_input_type(hlo, 0), values = hr__hlo_input_type(hlo, 2);
  bool is = hlo->op->result_count == 1 && x.dtype != HR_DTYPE_BOOL && p->counts[MAP] == 1 &&
            p->counts[COLLAPSED] == 1 && p->dims[MAP][0] == p->dims[COLLAPSED][0] && hr__hlo_is_zero(hlo, 0);
  slice_sizes(p, x.rank, &values, sizes);
  for (int i = 0; i < p->counts[X_BATCH]; ++i) {
    sizes[p->dims[X_BATCH][i]] = x.dims[p->dims[X_BATCH][i]];
  }
  for (int d = 0; d < x.rank && is; ++d) {
    is = d == p->dims[MAP][0] || sizes[d] == x.dims[d];
  }
  return is;
}

/* The dims of a tensor in the order of x's dims, which have their numbers in `of`, -1: none. The others have one
 * element. */
static hr_value in_order_of(hr__hlo *hlo, hr_value value, int value_rank, const int *of, const hr__vhlo_type *x) {
  int64_t axes[HR_RANK_MAX], dims[HR_RANK_MAX];
  uint32_t used = 0;
  int count = 0;
  for (int d = 0; d < x->rank; ++d) {
    dims[d] = of[d] >= 0 ? x->dims[d] : 1;
    if (of[d] >= value_rank || (of[d] >= 0 && (used >> of[d] & 1u) != 0)) {
      return HR__HLO_WRONG(hlo, "dim %d of a slice or its index, of %d", of[d], value_rank);
    }
    if (of[d] >= 0) {
      axes[count++] = of[d];
      used |= 1u << of[d];
    }
  }
  for (int d = 0; d < value_rank; ++d) {
    if ((used >> d & 1u) == 0) {
      axes[count++] = d;
    }
  }
  return hr__hlo_reshape(hlo, hr__hlo_permute(hlo, value, value_rank, axes), x->rank, dims);
}

/* The number of an index's dim among the dims of values: those that are no windows, in order. */
static int place_of(const places *p, int number) {
  int d = 0;
  for (;; ++d) {
    bool is_window = false;
    for (int i = 0; i < p->counts[WINDOW]; ++i) {
      is_window = is_window || p->dims[WINDOW][i] == d;
    }
    if (!is_window && number-- == 0) {
      return d;
    }
  }
}

/* x's dims among those of the indices without their vector, and among those of the values. */
static void find_dims(const places *p, int rank, int *in_indices, int *in_values) {
  for (int d = 0, window = 0; d < rank; ++d) {
    in_indices[d] = in_values[d] = -1;
    for (int i = 0; i < p->counts[X_BATCH]; ++i) {
      if (p->dims[X_BATCH][i] == d) {
        in_indices[d] = (int)p->dims[INDEX_BATCH][i], in_values[d] = place_of(p, in_indices[d]);
      }
    }
    if (d != p->dims[MAP][0] && in_indices[d] < 0 && window < p->counts[WINDOW]) {
      in_values[d] = (int)p->dims[WINDOW][window++];
    }
  }
}

/* One slice along the dim, as in the gradient of take_along_axis: it is compared with all numbers of the dim. So loops
 * that read the result compute it, and nothing is stored. */
static hr_value only_slice(hr__hlo *hlo, const places *p, bool adds) {
  hr__vhlo_type x = hr__hlo_input_type(hlo, 0), index = hr__hlo_input_type(hlo, 1);
  int in_indices[HR_RANK_MAX], in_values[HR_RANK_MAX], axis = (int)p->dims[MAP][0], rank = 0;
  bool is_short = hr_dtype_size(index.dtype) < 4 || index.dtype == HR_DTYPE_I32;
  hr_dtype dtype = is_short && x.dims[axis] <= INT32_MAX ? HR_DTYPE_I32 : HR_DTYPE_I64;
  hr_type type;
  hr_value values = hr__hlo_input(hlo, 2);
  if (!hr__hlo_type(hlo, values, &type)) {
    return 0;
  }
  for (int d = 0; d < index.rank; ++d) {
    if (d != p->vector) {
      index.dims[rank++] = index.dims[d];
    }
  }
  find_dims(p, x.rank, in_indices, in_values);
  hr_value at = hr__hlo_reshape(hlo, hr__hlo_cast(hlo, hr__hlo_input(hlo, 1), dtype), rank, index.dims);
  hr_value numbers =
      ADD(hlo, ARANGE, 0, NULL, WITH(hr__with_real("stop", (double)x.dims[axis]), hr__with_dtype("dtype", dtype)));
  hr_value zero = hr__hlo_full(hlo, hr_scalar_i64(0), type.dtype, 0, NULL);
  values = in_order_of(hlo, values, type.rank, in_values, &x);
  values = adds ? CALL(hlo, ADD, values, zero) : values;
  at = in_order_of(hlo, at, rank, in_indices, &x);
  int64_t line[HR_RANK_MAX];
  for (int d = 0; d < x.rank; ++d) {
    line[d] = d == axis ? x.dims[d] : 1;
  }
  return CALL(hlo, WHERE, CALL(hlo, EQUAL, hr__hlo_reshape(hlo, numbers, x.rank, line), at), values, zero);
}

/* Rows of x at flat indices. */
static hr_value rows_at(hr__hlo *hlo, hr_value x, hr_value at, int rank, const int64_t *dims) {
  places p = {.counts = {[MAP] = 1, [COLLAPSED] = 1, [WINDOW] = rank - 1}, .vector = 1};
  int64_t sizes[HR_RANK_MAX] = {1};
  for (int d = 1; d < rank; ++d) {
    p.dims[WINDOW][d - 1] = d, sizes[d] = dims[d];
  }
  return gathered(hlo, &p, x, at, rank, sizes);
}

/* Sums of few rows, as in the gradient of an embedding. Only rows that have a value are stored, behind them one of
 * zeros. A table has the number of each of x's rows among them: that of its first value. So loops that read the result
 * read these instead of all of x. */
static hr_value sums_of_rows(hr__hlo *hlo, const places *p, int64_t row_count) {
  hr__vhlo_type x = hr__hlo_input_type(hlo, 0), index = hr__hlo_input_type(hlo, 1);
  hr_type type;
  hr_value values = hr__hlo_input(hlo, 2);
  if (!hr__hlo_type(hlo, values, &type)) {
    return 0;
  }
  hr_value at = hr__hlo_reshape(hlo, hr__hlo_cast(hlo, hr__hlo_input(hlo, 1), HR_DTYPE_I64), 1, &row_count);
  hr_value numbers =
      ADD(hlo, ARANGE, 0, NULL, WITH(hr__with_real("stop", (double)row_count), hr__with_dtype("dtype", HR_DTYPE_I64)));
  hr_value table = hr__hlo_full(hlo, hr_scalar_i64(row_count), HR_DTYPE_I64, 1, x.dims);
  table = ADD(hlo, PUT_ALONG_AXIS, IN(table, at, numbers),
              WITH(hr__with_int("axis", 0), hr__with_text("mode", "min"), hr__with_text("bounds", "drop")));
  hr_value is_inside = CALL(hlo, LOGICAL_AND, CALL(hlo, GREATER_EQUAL, at, hr__hlo_whole(hlo, 0)),
                            CALL(hlo, LESS, at, hr__hlo_whole(hlo, x.dims[0])));
  hr_value row = CALL(hlo, WHERE, is_inside, rows_at(hlo, table, at, 1, x.dims), hr__hlo_whole(hlo, -1));
  x.dims[0] = row_count + 1;
  hr_value rows = hr__hlo_full(hlo, hr_scalar_i64(0), type.dtype, x.rank, x.dims);
  rows = scattered(hlo, p, rows, hr__hlo_reshape(hlo, row, index.rank, index.dims), values, "add");
  return rows_at(hlo, rows, table, x.rank, x.dims);
}

/* False: it is no such scatter. */
static bool scatter_into_zeros(hr__hlo *hlo, const places *p) {
  enum { ELEMENTS_MIN = 64, SHARE = 4 }; /* of a row that is found by the table; x's rows for each value */
  hr__vhlo_type x = hr__hlo_input_type(hlo, 0), values = hr__hlo_input_type(hlo, 2);
  int64_t sizes[HR_RANK_MAX], count = count_of(&values);
  hr__hlo_combiner combiner = hr__hlo_combiner_of(hlo, &hlo->op->regions[0], 0);
  if (!fills_zeros(hlo, p, sizes)) {
    return false;
  }
  int axis = (int)p->dims[MAP][0];
  int64_t elements = count_of(&x) / x.dims[axis];
  bool is_one = count == elements && (combiner == HR__HLO_ADD || combiner == HR__HLO_SECOND);
  bool is_rows = combiner == HR__HLO_ADD && p->counts[X_BATCH] == 0 && axis == 0 && elements >= ELEMENTS_MIN &&
                 x.dims[0] / SHARE > count / elements;
  if (is_one || is_rows) {
    hr__hlo_set(hlo, 0, is_one ? only_slice(hlo, p, combiner == HR__HLO_ADD) : sums_of_rows(hlo, p, count / elements));
  }
  return is_one || is_rows;
}

void hr__hlo_lower_scatter(hr__hlo *hlo) {
  static const char *const names[LISTS] = {"scatter_dims_to_operand_dims", "update_window_dims", "inserted_window_dims",
                                           "input_batching_dims", "scatter_indices_batching_dims"};
  static const char *const modes[HR__HLO_COMBINERS] = {NULL, "set", "add", "multiply", "max", "min", "min", "max"};
  int count = hlo->op->result_count;
  places p;
  if (!hr__hlo_expect(hlo, 2 * count + 1, -1, 1) ||
      !read_places(hlo, names, count, hr__hlo_input_type(hlo, count + 1).rank, &p)) {
    return;
  }
  if (count > HR__HLO_OPERANDS_MAX) {
    HR__HLO_REFUSE(hlo, "%d operands, expected at most %d", count, HR__HLO_OPERANDS_MAX);
    return;
  }
  hr__vhlo_type all = hr__hlo_input_type(hlo, 0), updates = hr__hlo_input_type(hlo, count + 1);
  if (count_of(&all) == 0 || count_of(&updates) == 0) {
    for (int i = 0; i < count; ++i) {
      hr__hlo_set(hlo, i, hr__hlo_input(hlo, i));
    }
    return;
  }
  if (!has_rows(hlo, count)) {
    bool is_unique = hr__hlo_int(hlo, "unique_indices", 0) != 0;
    (is_unique ? scatter_at_once : scatter_in_order)(hlo, &p, count);
    return;
  }
  if (scatter_into_zeros(hlo, &p)) {
    return;
  }
  hr_value indices = hr__hlo_input(hlo, count);
  for (int i = 0; i < count; ++i) {
    hr__hlo_combiner combiner = hr__hlo_combiner_of(hlo, &hlo->op->regions[0], i);
    bool is_flag = hr__hlo_input_type(hlo, i).dtype == HR_DTYPE_BOOL;
    hr_value x = hr__hlo_input(hlo, i), values = hr__hlo_input(hlo, count + 1 + i);
    if (is_flag) {
      x = hr__hlo_cast(hlo, x, HR_DTYPE_U8), values = hr__hlo_cast(hlo, values, HR_DTYPE_U8);
    }
    hr_value y = scattered(hlo, &p, x, indices, values, modes[combiner]);
    hr__hlo_set(hlo, i, is_flag ? hr__hlo_cast(hlo, y, HR_DTYPE_BOOL) : y);
  }
}

/* ---- one slice ---- */

/* The indices from operand `first` on as one tensor. */
static hr_value start_of(hr__hlo *hlo, int first, int rank) {
  hr_value parts[HR_RANK_MAX];
  for (int d = 0; d < rank; ++d) {
    parts[d] = hr__hlo_reshape(hlo, hr__hlo_input(hlo, first + d), 1, (int64_t[]){1});
  }
  return hr_graph_add(hlo->graph, HR_FUNCTIONAL_CONCAT, rank, parts, WITH(hr__with_int("axis", 0)));
}

void hr__hlo_lower_dynamic_slice(hr__hlo *hlo) {
  int rank = hr__hlo_input_type(hlo, 0).rank;
  int64_t sizes[HR_RANK_MAX];
  if (hr__hlo_expect(hlo, 1 + rank, 1, 0) && hr__hlo_int_list(hlo, "slice_sizes", rank, 1, sizes)) {
    hr_value x = hr__hlo_input(hlo, 0);
    hr__hlo_set(
        hlo, 0,
        rank == 0 ? x
                  : ADD(hlo, DYNAMIC_SLICE, IN(x, start_of(hlo, 1, rank)), WITH(hr__with_ints("sizes", rank, sizes))));
  }
}

void hr__hlo_lower_dynamic_update_slice(hr__hlo *hlo) {
  int rank = hr__hlo_input_type(hlo, 0).rank;
  if (hr__hlo_expect(hlo, 2 + rank, 1, 0)) {
    hr_value x = hr__hlo_input(hlo, 0), values = hr__hlo_input(hlo, 1);
    hr__hlo_set(hlo, 0, rank == 0 ? values : CALL(hlo, DYNAMIC_SLICE_UPDATE, x, values, start_of(hlo, 2, rank)));
  }
}
