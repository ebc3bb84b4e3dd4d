/* host.c: rules of host.def: small integers, computed while a cluster is recorded. */
#include "scope.h"

static int64_t at(const htf_host *host, int64_t index) {
  return host->dtype == HR_DTYPE_BOOL ? ((const uint8_t *)host->bytes)[index] != 0
                                      : htf_int_at(host->bytes, host->dtype, index);
}

static void put(htf_host *host, int64_t index, int64_t number) {
  if (host->dtype == HR_DTYPE_I64) {
    ((int64_t *)host->bytes)[index] = number;
  } else if (host->dtype == HR_DTYPE_BOOL) {
    ((uint8_t *)host->bytes)[index] = number != 0;
  } else {
    ((int32_t *)host->bytes)[index] = (int32_t)(uint32_t)(uint64_t)number;
  }
}

/* A result of the dtype that the node has. */
static htf_host *result(htf_node *node, int index, int rank, const int64_t *dims) {
  return htf_scope_new_host(node, index, htf_output_dtype(node, index), rank, dims);
}

static htf_host *vector(htf_node *node, int index, int64_t count) {
  return result(node, index, 1, &count);
}

/* ---- constants and dims ---- */

void htf_host_constant(htf_node *node) {
  htf_scope_set_host(node, 0, &node->scope->current->constant);
}

void htf_host_identity(htf_node *node) {
  const htf_host *x = htf_scope_host(node, 0);
  if (x != NULL) {
    htf_scope_set_host(node, 0, x);
  }
}

void htf_host_shape(htf_node *node) {
  for (int i = 0; i < htf_input_count(node); ++i) {
    const int64_t *dims = NULL;
    int rank = htf_scope_dims(node, i, &dims);
    htf_host *out = rank >= 0 ? vector(node, i, rank) : NULL;
    for (int d = 0; d < rank && out != NULL; ++d) {
      put(out, d, dims[d]);
    }
  }
}

void htf_host_size(htf_node *node) {
  const int64_t *dims = NULL;
  int64_t count = 1;
  int rank = htf_scope_dims(node, 0, &dims);
  for (int d = 0; d < rank; ++d) {
    count *= dims[d];
  }
  htf_host *out = result(node, 0, 0, NULL);
  if (out != NULL) {
    put(out, 0, count);
  }
}

void htf_host_rank(htf_node *node) {
  const int64_t *dims = NULL;
  int rank = htf_scope_dims(node, 0, &dims);
  htf_host *out = result(node, 0, 0, NULL);
  if (out != NULL) {
    put(out, 0, rank);
  }
}

/* ---- arithmetic ---- */

typedef int64_t (*binary)(int64_t x, int64_t y);

static int64_t add(int64_t x, int64_t y) {
  return (int64_t)((uint64_t)x + (uint64_t)y);
}

static int64_t subtract(int64_t x, int64_t y) {
  return (int64_t)((uint64_t)x - (uint64_t)y);
}

static int64_t multiply(int64_t x, int64_t y) {
  return (int64_t)((uint64_t)x * (uint64_t)y);
}

static int64_t floor_divide(int64_t x, int64_t y) {
  int64_t quotient = y == -1 ? subtract(0, x) : x / y;
  return quotient - (y != -1 && x % y != 0 && (x < 0) != (y < 0));
}

static int64_t floor_modulo(int64_t x, int64_t y) {
  int64_t rest = y == -1 ? 0 : x % y;
  return rest != 0 && (rest < 0) != (y < 0) ? rest + y : rest;
}

static int64_t larger(int64_t x, int64_t y) {
  return x > y ? x : y;
}

static int64_t smaller(int64_t x, int64_t y) {
  return x < y ? x : y;
}

/* The place in x of element `index` of a result with dims that x broadcasts to. */
static int64_t place_in(const htf_host *x, const htf_host *out, int64_t index) {
  int64_t place = 0, stride = 1;
  for (int d = 1; d <= out->rank; ++d) {
    int64_t size = out->dims[out->rank - d], own = d <= x->rank ? x->dims[x->rank - d] : 1;
    place += own == 1 ? 0 : index % size * stride;
    stride *= own, index /= size;
  }
  return place;
}

static void apply(htf_node *node, binary function, bool divides) {
  const htf_host *x = htf_scope_host(node, 0), *y = htf_scope_host(node, 1);
  int64_t dims[HR_RANK_MAX];
  if (x == NULL || y == NULL) {
    return;
  }
  int rank = x->rank > y->rank ? x->rank : y->rank;
  for (int d = 1; d <= rank; ++d) {
    int64_t a = d <= x->rank ? x->dims[x->rank - d] : 1, b = d <= y->rank ? y->dims[y->rank - d] : 1;
    if (a != b && a != 1 && b != 1) {
      htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "%s: dims %lld and %lld do not broadcast", node->kernel->row->op,
               (long long)a, (long long)b);
      return;
    }
    dims[rank - d] = a == 1 ? b : a;
  }
  htf_host *out = result(node, 0, rank, dims);
  for (int64_t i = 0; out != NULL && i < out->count; ++i) {
    int64_t a = at(x, place_in(x, out, i)), b = at(y, place_in(y, out, i));
    if (divides && b == 0) {
      htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "%s: integer division by 0", node->kernel->row->op);
      return;
    }
    put(out, i, function(a, b));
  }
}

void htf_host_add(htf_node *node) {
  apply(node, add, false);
}

void htf_host_subtract(htf_node *node) {
  apply(node, subtract, false);
}

void htf_host_multiply(htf_node *node) {
  apply(node, multiply, false);
}

void htf_host_floor_divide(htf_node *node) {
  apply(node, floor_divide, true);
}

void htf_host_floor_modulo(htf_node *node) {
  apply(node, floor_modulo, true);
}

void htf_host_maximum(htf_node *node) {
  apply(node, larger, false);
}

void htf_host_minimum(htf_node *node) {
  apply(node, smaller, false);
}

/* ---- conditions ---- */

static int64_t is_less(int64_t x, int64_t y) {
  return x < y;
}

static int64_t is_less_equal(int64_t x, int64_t y) {
  return x <= y;
}

static int64_t is_greater(int64_t x, int64_t y) {
  return x > y;
}

static int64_t is_greater_equal(int64_t x, int64_t y) {
  return x >= y;
}

void htf_host_less(htf_node *node) {
  apply(node, is_less, false);
}

void htf_host_less_equal(htf_node *node) {
  apply(node, is_less_equal, false);
}

void htf_host_greater(htf_node *node) {
  apply(node, is_greater, false);
}

void htf_host_greater_equal(htf_node *node) {
  apply(node, is_greater_equal, false);
}

/* Of numbers 0 and 1. */
void htf_host_and(htf_node *node) {
  apply(node, smaller, false);
}

void htf_host_or(htf_node *node) {
  apply(node, larger, false);
}

void htf_host_not(htf_node *node) {
  const htf_host *x = htf_scope_host(node, 0);
  htf_host *out = x != NULL ? result(node, 0, x->rank, x->dims) : NULL;
  for (int64_t i = 0; out != NULL && i < out->count; ++i) {
    put(out, i, at(x, i) == 0);
  }
}

/* ---- reductions ---- */

/* Folds the elements along the axes that input 1 lists. */
static void reduce(htf_node *node, binary function, int64_t first) {
  const htf_host *x = htf_scope_host(node, 0), *axes = htf_scope_host(node, 1);
  bool folds[HR_RANK_MAX] = {false};
  int64_t dims[HR_RANK_MAX], places[HR_RANK_MAX] = {0}, stride = 1;
  int rank = 0;
  for (int64_t i = 0; axes != NULL && x != NULL && i < axes->count; ++i) {
    int64_t axis = at(axes, i) < 0 ? at(axes, i) + x->rank : at(axes, i);
    if (axis < 0 || axis >= x->rank) {
      htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "%s: axis %lld of %d dims", node->kernel->row->op,
               (long long)at(axes, i), x->rank);
      return;
    }
    folds[axis] = true;
  }
  if (htf_has_failed(node)) {
    return;
  }
  for (int d = 0; d < x->rank; ++d) {
    if (!folds[d] || htf_flag(node, "keep_dims")) {
      dims[rank++] = folds[d] ? 1 : x->dims[d];
    }
  }
  htf_host *out = result(node, 0, rank, dims);
  for (int d = x->rank - 1; d >= 0; --d) {
    places[d] = folds[d] ? 0 : stride;
    stride *= folds[d] ? 1 : x->dims[d];
  }
  for (int64_t i = 0; out != NULL && i < out->count; ++i) {
    put(out, i, first);
  }
  for (int64_t i = 0; out != NULL && i < x->count; ++i) {
    int64_t place = 0, rest = i;
    for (int d = x->rank - 1; d >= 0; --d) {
      place += rest % x->dims[d] * places[d], rest /= x->dims[d];
    }
    put(out, place, function(at(out, place), at(x, i)));
  }
}

void htf_host_product(htf_node *node) {
  reduce(node, multiply, 1);
}

void htf_host_sum(htf_node *node) {
  reduce(node, add, 0);
}

/* ---- other dims ---- */

static void copy_as(htf_node *node, int rank, const int64_t *dims) {
  const htf_host *x = htf_scope_host(node, 0);
  htf_host *out = x != NULL ? result(node, 0, rank, dims) : NULL;
  for (int64_t i = 0; out != NULL && i < out->count && i < x->count; ++i) {
    put(out, i, at(x, i));
  }
}

void htf_host_cast(htf_node *node) {
  const htf_host *x = htf_scope_host(node, 0);
  if (x != NULL) {
    copy_as(node, x->rank, x->dims);
  }
}

void htf_host_reshape(htf_node *node) {
  const htf_host *x = htf_scope_host(node, 0);
  int64_t dims[HR_RANK_MAX];
  int rank = x != NULL ? htf_reshaped_dims(node, x->rank, x->dims, dims) : 0;
  copy_as(node, rank, dims);
}

void htf_host_squeeze(htf_node *node) {
  const htf_host *x = htf_scope_host(node, 0);
  int64_t dims[HR_RANK_MAX];
  int rank = x != NULL ? htf_squeezed_dims(node, x->rank, x->dims, dims) : 0;
  copy_as(node, rank, dims);
}

void htf_host_expand_dims(htf_node *node) {
  const htf_host *x = htf_scope_host(node, 0);
  int64_t dims[HR_RANK_MAX + 1];
  int rank = x != NULL ? htf_expanded_dims(node, x->rank, x->dims, dims) : 0;
  copy_as(node, rank, dims);
}

/* ---- joins and parts ---- */

/* Joins inputs 0 to count - 1 along an axis; a stack gives each a dim of 1 there first. */
static void join(htf_node *node, int count, int64_t axis, bool is_stack) {
  const htf_host *first = htf_scope_host(node, 0);
  int rank = first != NULL ? first->rank + is_stack : 0;
  int64_t dims[HR_RANK_MAX], total = 0, outer = 1, inner = 1, begin = 0;
  axis = axis < 0 ? axis + rank : axis;
  if (first == NULL || axis < 0 || axis >= rank || rank > HR_RANK_MAX) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "%s: no axis %lld of %d dims", node->kernel->row->op, (long long)axis,
             rank);
    return;
  }
  for (int d = 0; d < rank; ++d) {
    dims[d] = d == axis ? 0 : first->dims[is_stack && d > axis ? d - 1 : d];
    outer *= d < axis ? dims[d] : 1, inner *= d > axis ? dims[d] : 1;
  }
  for (int i = 0; i < count; ++i) {
    const htf_host *x = htf_scope_host(node, i);
    int64_t size = x == NULL ? 0 : is_stack ? 1 : x->rank == rank ? x->dims[axis] : -1;
    if (x != NULL && (size < 0 || x->count != outer * size * inner)) {
      htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "%s: input %d has other dims than input 0", node->kernel->row->op, i);
    }
    total += size;
  }
  dims[axis] = total;
  htf_host *out = result(node, 0, rank, dims);
  for (int i = 0; i < count && out != NULL; ++i) {
    const htf_host *x = htf_scope_host(node, i);
    int64_t run = (is_stack ? 1 : x->dims[axis]) * inner;
    for (int64_t j = 0; j < x->count; ++j) {
      put(out, j / run * total * inner + begin + j % run, at(x, j));
    }
    begin += run;
  }
}

void htf_host_pack(htf_node *node) {
  join(node, htf_input_count(node), htf_integer(node, "axis"), true);
}

void htf_host_concat(htf_node *node) {
  int count = htf_input_count(node) - 1;
  join(node, count, htf_host_int(node, count), false);
}

/* x with a dim of 1 in front, or as it is. */
static void copy_numbers(htf_node *node, const htf_host *x, bool is_new) {
  int64_t dims[HR_RANK_MAX + 1] = {1};
  int rank = x->rank + is_new;
  if (rank > HR_RANK_MAX) {
    htf_fail(node, HR_STATUS_UNIMPLEMENTED, "StridedSlice: a result of %d dims, at most %d are supported", rank,
             HR_RANK_MAX);
    return;
  }
  memcpy(dims + is_new, x->dims, sizeof *dims * (size_t)x->rank);
  htf_host *out = result(node, 0, rank, dims);
  for (int64_t i = 0; out != NULL && i < x->count; ++i) {
    put(out, i, at(x, i));
  }
}

/* A slice of the first dim, a new one, or all of x; the plan lets no others through. */
void htf_host_strided_slice(htf_node *node) {
  const htf_host *x = htf_scope_host(node, 0);
  bool is_all = htf_integer(node, "ellipsis_mask") == 1, is_new = htf_integer(node, "new_axis_mask") == 1;
  if ((is_new || is_all) && x != NULL && !htf_has_failed(node)) {
    copy_numbers(node, x, is_new && !is_all);
    return;
  }
  int64_t begin = htf_host_int(node, 1), end = htf_host_int(node, 2), step = htf_host_int(node, 3);
  if (step == 0 || (x != NULL && x->rank == 0)) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "StridedSlice: the step must not be 0, and one dim is sliced");
  }
  if (htf_has_failed(node)) {
    return;
  }
  const int64_t size = x->dims[0], low = step > 0 ? 0 : -1, high = step > 0 ? size : size - 1;
  bool drops = htf_integer(node, "shrink_axis_mask") != 0;
  begin += begin < 0 ? size : 0, end += end < 0 ? size : 0;
  if (drops && (begin < 0 || begin >= size)) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "StridedSlice: index %lld of a dim of size %lld", (long long)begin,
             (long long)size);
    return;
  }
  begin = htf_integer(node, "begin_mask") != 0 && !drops ? (step > 0 ? low : high) : smaller(larger(begin, low), high);
  end = htf_integer(node, "end_mask") != 0 ? (step > 0 ? high : low) : smaller(larger(end, low), high);
  int64_t count = step > 0 ? (end - begin + step - 1) / step : (begin - end - step - 1) / -step;
  int64_t dims[HR_RANK_MAX], inner = size > 0 ? x->count / size : 0;
  count = drops ? 1 : larger(count, 0);
  int rank = 0;
  for (int d = drops ? 1 : 0; d < x->rank; ++d) {
    dims[rank++] = d == 0 ? count : x->dims[d];
  }
  htf_host *out = result(node, 0, rank, dims);
  for (int64_t i = 0; out != NULL && i < count * inner; ++i) {
    put(out, i, at(x, (begin + i / inner * step) * inner + i % inner));
  }
}

void htf_host_gather(htf_node *node) {
  const htf_host *x = htf_scope_host(node, 0), *indices = htf_scope_host(node, 1);
  int64_t axis = htf_host_int(node, 2), dims[2 * HR_RANK_MAX];
  if (!htf_has_failed(node) && (axis != 0 || x->rank == 0 || htf_integer(node, "batch_dims") != 0)) {
    htf_fail(node, HR_STATUS_UNIMPLEMENTED, "GatherV2: of numbers on the host only the first dim is gathered");
  }
  if (htf_has_failed(node)) {
    return;
  }
  int rank = 0;
  for (int d = 0; d < indices->rank; ++d) {
    dims[rank++] = indices->dims[d];
  }
  for (int d = 1; d < x->rank; ++d) {
    dims[rank++] = x->dims[d];
  }
  int64_t inner = x->dims[0] > 0 ? x->count / x->dims[0] : 0;
  htf_host *out = result(node, 0, rank, dims);
  for (int64_t i = 0; out != NULL && i < out->count; ++i) {
    int64_t index = at(indices, i / inner);
    if (index < 0 || index >= x->dims[0]) {
      htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "GatherV2: index %lld of a dim of size %lld", (long long)index,
               (long long)x->dims[0]);
      return;
    }
    put(out, i, at(x, index * inner + i % inner));
  }
}

/* ---- ranges and fills ---- */

void htf_host_range(htf_node *node) {
  int64_t start = htf_host_int(node, 0), limit = htf_host_int(node, 1), delta = htf_host_int(node, 2);
  if (!htf_has_failed(node) && (delta == 0 || (delta > 0 ? start > limit : start < limit))) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "Range: from %lld to %lld in steps of %lld", (long long)start,
             (long long)limit, (long long)delta);
  }
  if (htf_has_failed(node)) {
    return;
  }
  htf_host *out =
      vector(node, 0, delta > 0 ? (limit - start + delta - 1) / delta : (start - limit - delta - 1) / -delta);
  for (int64_t i = 0; out != NULL && i < out->count; ++i) {
    put(out, i, start + i * delta);
  }
}

void htf_host_fill(htf_node *node) {
  int64_t dims[HR_RANK_MAX], number = htf_host_int(node, 1);
  int rank = htf_host_ints(node, 0, dims, HR_RANK_MAX);
  htf_host *out = result(node, 0, rank, dims);
  for (int64_t i = 0; out != NULL && i < out->count; ++i) {
    put(out, i, number);
  }
}

/* ---- what gradients ask for ---- */

/* Inputs: n tensors of places, n of rows for these. */
void htf_host_stitch(htf_node *node) {
  int count = htf_input_count(node) / 2, rank = 1;
  int64_t rows = 0, dims[HR_RANK_MAX + 1];
  for (int i = 0; i < count && !htf_has_failed(node); ++i) {
    const htf_host *places = htf_scope_host(node, i), *x = htf_scope_host(node, count + i);
    for (int64_t j = 0; x != NULL && j < places->count; ++j) {
      rows = larger(rows, at(places, j) + 1);
      if (at(places, j) < 0 || places->rank > x->rank) {
        htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "DynamicStitch: index %lld", (long long)at(places, j));
        return;
      }
    }
    rank = 1;
    for (int d = x != NULL ? places->rank : 0; x != NULL && d < x->rank; ++d) {
      dims[rank++] = x->dims[d];
    }
  }
  dims[0] = rows;
  htf_host *out = result(node, 0, rank, dims);
  int64_t inner = out != NULL && rows > 0 ? out->count / rows : 0;
  for (int i = 0; i < count && out != NULL; ++i) {
    const htf_host *places = htf_scope_host(node, i), *x = htf_scope_host(node, count + i);
    for (int64_t j = 0; j < x->count && x->count == places->count * inner; ++j) {
      put(out, at(places, j / inner) * inner + j % inner, at(x, j));
    }
  }
}

/* The axes along which each of two operands with these dims may have been broadcast: those of size 1, unless the dims
 * are the same. */
void htf_host_gradient_axes(htf_node *node) {
  int64_t dims[2][HR_RANK_MAX], axes[2][HR_RANK_MAX];
  int ranks[2], counts[2] = {0, 0};
  for (int i = 0; i < 2; ++i) {
    ranks[i] = htf_host_ints(node, i, dims[i], HR_RANK_MAX);
  }
  int rank = ranks[0] > ranks[1] ? ranks[0] : ranks[1];
  bool is_same = ranks[0] == ranks[1] && memcmp(dims[0], dims[1], (size_t)rank * sizeof *dims[0]) == 0;
  for (int d = 0; d < rank; ++d) {
    int64_t sizes[2];
    for (int i = 0; i < 2; ++i) {
      sizes[i] = d + ranks[i] >= rank ? dims[i][d + ranks[i] - rank] : 1;
    }
    if (sizes[0] != sizes[1] && sizes[0] != 1 && sizes[1] != 1) {
      htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "BroadcastGradientArgs: dims %lld and %lld do not broadcast",
               (long long)sizes[0], (long long)sizes[1]);
    }
    for (int i = 0; i < 2 && !is_same; ++i) {
      if (sizes[i] == 1) {
        axes[i][counts[i]++] = d;
      }
    }
  }
  for (int i = 0; i < 2; ++i) {
    htf_host *out = vector(node, i, counts[i]);
    for (int j = 0; j < counts[i] && out != NULL; ++j) {
      put(out, j, axes[i][j]);
    }
  }
}

/* The begin of each operand with these dims in their concatenation. */
void htf_host_concat_offsets(htf_node *node) {
  int64_t axis = htf_host_int(node, 0), begin = 0;
  for (int i = 1; i < htf_input_count(node) && !htf_has_failed(node); ++i) {
    const htf_host *dims = htf_scope_host(node, i);
    htf_host *out = dims != NULL ? vector(node, i - 1, dims->count) : NULL;
    int64_t place = dims != NULL && axis < 0 ? axis + dims->count : axis;
    if (out == NULL || place < 0 || place >= dims->count) {
      htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "ConcatOffset: no axis %lld", (long long)axis);
      return;
    }
    put(out, place, begin);
    begin += at(dims, place);
  }
}
