/* ops_coordinates.c: rules of sparse tensors: places [n, rank] of elements in i64, their values [n], and dims, which a
 * kernel has in the host's memory.
 *
 * A place is also one number, its row-major index. Results with places of their own read how many there are, so these
 * operations stay kernels (plan.c). Places out of range are dropped.
 */
#include <string.h>

#include "scope.h"

typedef struct shape {
  int rank;
  int64_t dims[HR_RANK_MAX];
} shape;

static htf_value integer(htf_node *node, int64_t number) {
  return htf_number_of(node, hr_scalar_i64(number));
}

static htf_value full(htf_node *node, int64_t number, int rank, const int64_t *dims, hr_dtype dtype) {
  return htf_call(node, HR_FUNCTIONAL_FULL, INPUTS(integer(node, number)),
                  ATTRIBUTES(htf_attr_ints(dims, rank), htf_attr_dtype(dtype)));
}

static shape read_shape(htf_node *node, int input) {
  shape found = {.rank = 0};
  found.rank = htf_host_ints(node, input, found.dims, HR_RANK_MAX);
  for (int d = 0; d < found.rank; ++d) {
    if (found.dims[d] < 0) {
      htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "%s: dim %d is %lld, it must not be negative", node->kernel->row->op,
               d, (long long)found.dims[d]);
    }
  }
  return found;
}

static void output_shape(htf_node *node, int index, const shape *s) {
  htf_output(node, index, htf_constant(node, HR_DTYPE_I64, s->rank, s->dims));
}

/* Fails unless places are a matrix with a column for each dim, and values a vector of as many. */
static bool is_sparse(htf_node *node, htf_value places, htf_value values, const shape *s) {
  bool fits = htf_has_failed(node) || (places->rank == 2 && places->dims[1] == s->rank &&
                                       (values == NULL || (values->rank == 1 && values->dims[0] == places->dims[0])));
  if (!fits) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "%s: indices must be a matrix of %d columns, with a value for each row",
             node->kernel->row->op, s->rank);
  }
  return !htf_has_failed(node);
}

static htf_value column(htf_node *node, htf_value places, int64_t which) {
  return htf_view(node, places, 1, places->dims, places->strides, places->offset + which * places->strides[1]);
}

/* Row-major indices in the dims of s for which `uses` is not false (NULL: all). */
static htf_value flatten(htf_node *node, htf_value places, const shape *s, const bool *uses) {
  htf_value sum = full(node, 0, 1, places->dims, HR_DTYPE_I64);
  int64_t stride = 1;
  for (int d = s->rank - 1; d >= 0 && !htf_has_failed(node); --d) {
    if (uses == NULL || uses[d]) {
      sum = htf_add(node, sum, htf_multiply(node, column(node, places, d), integer(node, stride)));
      stride *= s->dims[d];
    }
  }
  return sum;
}

/* Places [n, rank] of row-major indices. */
static htf_value unflatten(htf_node *node, htf_value flat, const shape *s) {
  htf_value lines[HR_RANK_MAX], rest = flat;
  if (htf_has_failed(node)) {
    return &htf_nothing;
  }
  const int64_t none[2] = {flat->dims[0], s->rank};
  if (s->rank == 0 || flat->dims[0] == 0) {
    return full(node, 0, 2, none, HR_DTYPE_I64);
  }
  for (int d = s->rank - 1; d >= 0; --d) {
    htf_value size = integer(node, s->dims[d] > 0 ? s->dims[d] : 1);
    lines[d] = d > 0 ? htf_call2(node, HR_FUNCTIONAL_REMAINDER, rest, size) : rest;
    rest = htf_call2(node, HR_FUNCTIONAL_FLOOR_DIVIDE, rest, size);
  }
  return htf_call(node, HR_FUNCTIONAL_STACK, s->rank, lines, ATTRIBUTES(htf_attr_int(1)));
}

static htf_value scatter(htf_node *node, htf_value start, htf_value places, htf_value values, const char *mode) {
  if (htf_has_failed(node) || hr_tensor_count(values) == 0 || hr_tensor_count(start) == 0) {
    return start;
  }
  const int64_t tuples[2] = {places->dims[0], 1};
  places = places->rank == 1 ? htf_reshape(node, places, 2, tuples) : places;
  return htf_call(node, HR_FUNCTIONAL_SCATTER_ND, INPUTS(start, places, values),
                  ATTRIBUTES(htf_attr_int(0), htf_attr_text(mode), htf_attr_text("drop")));
}

static htf_value joined(htf_node *node, htf_value x, htf_value y) {
  return htf_call(node, HR_FUNCTIONAL_CONCAT, INPUTS(x, y), ATTRIBUTES(htf_attr_int(0)));
}

static htf_value kept(htf_node *node, htf_value is_kept, htf_value x) {
  return htf_call(node, HR_FUNCTIONAL_COMPRESS, INPUTS(is_kept, x), ATTRIBUTES(htf_attr_int(0)));
}

/* ---- dense tensors ---- */

/* Inputs: places (a matrix, a vector, or one of a vector), dims, values or one, the value elsewhere. */
void htf_sparse_to_dense(htf_node *node) {
  htf_value places = htf_input(node, 0), values = htf_input(node, 2), otherwise = htf_input(node, 3);
  htf_expect_rank(node, 1, 1, "output_shape must be rank 1");
  shape s = read_shape(node, 1);
  int64_t tuples[2] = {places->rank > 0 ? places->dims[0] : 1, places->rank == 2 ? places->dims[1] : 1};
  bool fits = htf_has_failed(node) || (places->rank <= 2 && tuples[1] == s.rank && otherwise->rank == 0 &&
                                       (values->rank == 0 || (values->rank == 1 && values->dims[0] == tuples[0])));
  if (!fits) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT,
             "SparseToDense: sparse_indices must have %d columns, sparse_values a number or one for each row, "
             "default_value a number",
             s.rank);
  }
  if (htf_has_failed(node)) {
    return;
  }
  htf_value start =
      htf_call(node, HR_FUNCTIONAL_BROADCAST_TO, INPUTS(otherwise), ATTRIBUTES(htf_attr_ints(s.dims, s.rank)));
  values = htf_call(node, HR_FUNCTIONAL_BROADCAST_TO, INPUTS(values), ATTRIBUTES(htf_attr_ints(tuples, 1)));
  if (s.rank == 0) {
    htf_output(node, 0, tuples[0] > 0 ? htf_view(node, values, 0, NULL, NULL, values->offset) : start);
    return;
  }
  htf_output(node, 0, scatter(node, start, htf_reshape(node, places, 2, tuples), values, "set"));
}

/* Inputs: places, values, dims, a dense tensor. */
void htf_sparse_plus_dense(htf_node *node) {
  htf_value places = htf_input(node, 0), values = htf_input(node, 1), dense = htf_input(node, 3);
  shape s = read_shape(node, 2);
  bool fits = htf_has_failed(node) ||
              (dense->rank == s.rank && memcmp(dense->dims, s.dims, sizeof *s.dims * (size_t)s.rank) == 0);
  if (!fits) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "%s: the dense tensor must have the dims of the sparse one",
             node->kernel->row->op);
  }
  if (is_sparse(node, places, values, &s)) {
    htf_output(node, 0, scatter(node, dense, places, values, "add"));
  }
}

/* Values with those of a dense tensor, which is broadcast, at their places. */
void htf_sparse_with_dense(htf_node *node) {
  htf_value places = htf_input(node, 0), values = htf_input(node, 1), dense = htf_input(node, 3);
  shape s = read_shape(node, 2);
  if (!is_sparse(node, places, values, &s)) {
    return;
  }
  dense = htf_call(node, HR_FUNCTIONAL_BROADCAST_TO, INPUTS(dense), ATTRIBUTES(htf_attr_ints(s.dims, s.rank)));
  if (htf_has_failed(node) || hr_tensor_count(values) == 0) {
    htf_output(node, 0, values);
    return;
  }
  htf_value there = htf_call(node, HR_FUNCTIONAL_GATHER_ND, INPUTS(dense, places),
                             ATTRIBUTES(htf_attr_int(0), htf_attr_text("drop")));
  htf_output(node, 0, htf_call2(node, node->function, values, there));
}

/* ---- other places ---- */

/* Inputs: places, dims, the dims of the result, one of which may be -1. */
void htf_sparse_reshape(htf_node *node) {
  htf_value places = htf_input(node, 0);
  shape s = read_shape(node, 1), other = {.rank = 0};
  int64_t count = 1, known = 1;
  int open = -1;
  other.rank = htf_host_ints(node, 2, other.dims, HR_RANK_MAX);
  for (int d = 0; d < s.rank; ++d) {
    count *= s.dims[d];
  }
  for (int d = 0; d < other.rank; ++d) {
    open = other.dims[d] == -1 ? d : open;
    known *= other.dims[d] == -1 ? 1 : other.dims[d];
  }
  if (open >= 0 && known > 0) {
    other.dims[open] = count / known;
  }
  if (!htf_has_failed(node) && known * (open >= 0 ? other.dims[open] : 1) != count) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT,
             "Input to reshape is a tensor with %lld dense values, but the requested shape has %lld", (long long)count,
             (long long)known);
  }
  if (is_sparse(node, places, NULL, &s)) {
    htf_output(node, 0, unflatten(node, flatten(node, places, &s, NULL), &other));
    output_shape(node, 1, &other);
  }
}

static void output_in_order(htf_node *node, htf_value places, htf_value values, const shape *s) {
  htf_value order = htf_call1(node, HR_FUNCTIONAL_ARGSORT, flatten(node, places, s, NULL));
  htf_output(node, 0, htf_taken_rows(node, places, order));
  htf_output(node, 1, htf_taken_rows(node, values, order));
}

/* Inputs: places, values, dims. */
void htf_sparse_reorder(htf_node *node) {
  htf_value places = htf_input(node, 0), values = htf_input(node, 1);
  shape s = read_shape(node, 2);
  if (is_sparse(node, places, values, &s)) {
    output_in_order(node, places, values, &s);
  }
}

/* Inputs: places, values and dims of n tensors. */
void htf_sparse_concat(htf_node *node) {
  int count = htf_input_count(node) / 3;
  shape s = read_shape(node, 2 * count);
  int64_t axis = htf_integer(node, "concat_dim"), begin = 0;
  axis += axis < 0 ? s.rank : 0;
  if (!htf_has_failed(node) && (axis < 0 || axis >= s.rank)) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "SparseConcat: no dim %lld of %d dims", (long long)axis, s.rank);
  }
  htf_value places = NULL, values = NULL;
  for (int i = 0; i < count && !htf_has_failed(node); ++i) {
    htf_value here = htf_input(node, i), numbers = htf_input(node, count + i);
    shape part = read_shape(node, 2 * count + i);
    if (!is_sparse(node, here, numbers, &s) || part.rank != s.rank) {
      htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "SparseConcat: tensor %d has %d dims, expected %d", i, part.rank,
               s.rank);
      return;
    }
    int64_t shift[HR_RANK_MAX] = {0};
    shift[axis] = begin, begin += part.dims[axis];
    here = htf_add(node, here, htf_constant(node, HR_DTYPE_I64, s.rank, shift));
    places = places == NULL ? here : joined(node, places, here);
    values = values == NULL ? numbers : joined(node, values, numbers);
  }
  if (!htf_has_failed(node)) {
    s.dims[axis] = begin;
    output_in_order(node, places, values, &s);
    output_shape(node, 2, &s);
  }
}

/* Inputs: places, values, dims, where the slice begins, its size. */
void htf_sparse_slice(htf_node *node) {
  htf_value places = htf_input(node, 0), values = htf_input(node, 1);
  shape s = read_shape(node, 2), begin = read_shape(node, 3), size = read_shape(node, 4);
  if (!htf_has_failed(node) && (begin.rank != s.rank || size.rank != s.rank)) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "SparseSlice: start and size must have %d numbers", s.rank);
  }
  if (!is_sparse(node, places, values, &s)) {
    return;
  }
  htf_value is_inside = full(node, 1, 1, places->dims, HR_DTYPE_BOOL);
  for (int d = 0; d < s.rank; ++d) {
    int64_t end = begin.dims[d] + size.dims[d];
    end = end < s.dims[d] ? end : s.dims[d];
    size.dims[d] = end > begin.dims[d] ? end - begin.dims[d] : 0;
    htf_value place = column(node, places, d);
    is_inside = htf_call2(node, HR_FUNCTIONAL_LOGICAL_AND, is_inside,
                          htf_call2(node, HR_FUNCTIONAL_GREATER_EQUAL, place, integer(node, begin.dims[d])));
    is_inside = htf_call2(node, HR_FUNCTIONAL_LOGICAL_AND, is_inside,
                          htf_call2(node, HR_FUNCTIONAL_LESS, place, integer(node, end)));
  }
  htf_value start = htf_constant(node, HR_DTYPE_I64, s.rank, begin.dims);
  htf_output(node, 0, htf_subtract(node, kept(node, is_inside, places), start));
  htf_output(node, 1, kept(node, is_inside, values));
  output_shape(node, 2, &size);
}

/* ---- two sparse tensors ---- */

typedef struct pair {
  htf_value values[2], places[2]; /* places of each among the distinct ones */
  htf_value distinct, counts;     /* row-major indices in order; how many elements each has */
  shape s;
} pair;

/* Inputs: places, values and dims of both. */
static pair read_pair(htf_node *node) {
  pair p = {.values = {htf_input(node, 1), htf_input(node, 4)}, .s = read_shape(node, 2)};
  htf_value places[2] = {htf_input(node, 0), htf_input(node, 3)}, results[4];
  shape other = read_shape(node, 5);
  bool fits = other.rank == p.s.rank && memcmp(other.dims, p.s.dims, sizeof *p.s.dims * (size_t)p.s.rank) == 0;
  if (!htf_has_failed(node) && !fits) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "Operands' shapes do not match: %d and %d dims", p.s.rank, other.rank);
  }
  if (!is_sparse(node, places[0], p.values[0], &p.s) || !is_sparse(node, places[1], p.values[1], &p.s)) {
    return p;
  }
  htf_value all = joined(node, flatten(node, places[0], &p.s, NULL), flatten(node, places[1], &p.s, NULL));
  htf_call_many(node, HR_FUNCTIONAL_UNIQUE, INPUTS(all), NO_ATTRIBUTES, 4, results);
  p.distinct = results[0], p.counts = results[3];
  for (int i = 0; i < 2 && !htf_has_failed(node); ++i) {
    int64_t begin = i == 0 ? 0 : places[0]->dims[0];
    p.places[i] = htf_view(node, results[2], 1, places[i]->dims, results[2]->strides, results[2]->offset + begin);
  }
  return p;
}

/* The sum, without sums of two elements that are less than input 6. */
void htf_sparse_add(htf_node *node) {
  pair p = read_pair(node);
  htf_value least = htf_input(node, 6);
  if (htf_has_failed(node)) {
    return;
  }
  htf_value sum = full(node, 0, 1, p.distinct->dims, p.values[0]->dtype);
  for (int i = 0; i < 2; ++i) {
    sum = scatter(node, sum, p.places[i], p.values[i], "add");
  }
  htf_value is_large = htf_call2(node, HR_FUNCTIONAL_GREATER_EQUAL, htf_call1(node, HR_FUNCTIONAL_ABS, sum), least);
  htf_value is_one = htf_call2(node, HR_FUNCTIONAL_LESS, p.counts, integer(node, 2));
  is_large = htf_call2(node, HR_FUNCTIONAL_LOGICAL_OR, is_large, is_one);
  htf_output(node, 0, kept(node, is_large, unflatten(node, p.distinct, &p.s)));
  htf_output(node, 1, kept(node, is_large, sum));
  output_shape(node, 2, &p.s);
}

/* The larger or the smaller one of each two elements, where a missing one is 0. */
void htf_sparse_choose(htf_node *node) {
  pair p = read_pair(node);
  htf_value found[2];
  for (int i = 0; i < 2 && !htf_has_failed(node); ++i) {
    found[i] = scatter(node, full(node, 0, 1, p.distinct->dims, p.values[i]->dtype), p.places[i], p.values[i], "set");
  }
  if (!htf_has_failed(node)) {
    htf_output(node, 0, unflatten(node, p.distinct, &p.s));
    htf_output(node, 1, htf_call2(node, node->function, found[0], found[1]));
  }
}

/* ---- numbers of equal elements ---- */

static int64_t largest(htf_node *node, htf_value x) {
  int64_t number = 0;
  if (!htf_has_failed(node) && hr_tensor_count(x) > 0) {
    const hr_view view = hr_tensor_view(htf_call(node, HR_FUNCTIONAL_MAX, INPUTS(x), NO_ATTRIBUTES));
    return !htf_has_failed(node) && htf_keep(node, hr_stream_read(node->stream, &view, &number)) ? 0 : number;
  }
  return number;
}

static bool is_negative(htf_node *node, htf_value x) {
  return largest(node, htf_call1(node, HR_FUNCTIONAL_NEGATIVE, x)) > 0;
}

/* Fails unless values are a vector or a matrix, and weights are of these dims or none. */
static bool can_count(htf_node *node, htf_value values, htf_value weights) {
  if (!htf_has_failed(node) && values->rank != 1 && values->rank != 2) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "Input must be a 1 or 2-dimensional tensor. Got: %d dims", values->rank);
  }
  bool fits = htf_has_failed(node) || hr_tensor_count(weights) == 0 ||
              (weights->rank == values->rank &&
               memcmp(weights->dims, values->dims, sizeof *values->dims * (size_t)values->rank) == 0);
  if (!fits) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT,
             "Weights and data must have the same shape. Weight shape: %d dims; data shape: %d dims", weights->rank,
             values->rank);
  }
  return !htf_has_failed(node);
}

/* Each number of a row once, and how often it occurs there, or the sum of its weights. */
static void output_counts(htf_node *node, htf_value keys, htf_value weights, const shape *s) {
  htf_value found[4];
  hr_dtype dtype = htf_output_dtype(node, 1);
  if (!htf_has_failed(node) && hr_tensor_count(keys) == 0) {
    const int64_t none[2] = {0, s->rank};
    htf_output(node, 0, full(node, 0, 2, none, HR_DTYPE_I64));
    htf_output(node, 1, full(node, 0, 1, none, dtype));
    return;
  }
  htf_call_many(node, HR_FUNCTIONAL_UNIQUE, INPUTS(keys), NO_ATTRIBUTES, 4, found);
  if (htf_has_failed(node)) {
    return;
  }
  htf_output(node, 0, unflatten(node, found[0], s));
  if (htf_flag(node, "binary_output")) {
    htf_output(node, 1, full(node, 1, 1, found[0]->dims, dtype));
  } else if (hr_tensor_count(weights) > 0) {
    htf_output(node, 1, scatter(node, full(node, 0, 1, found[0]->dims, dtype), found[2], weights, "add"));
  } else {
    htf_output(node, 1, htf_cast(node, found[3], dtype));
  }
}

/* Counts integers [n] that are less than maxlength, in row `rows` of each; NULL: all are in one. `s` has the rows. */
static void count_values(htf_node *node, htf_value values, htf_value rows, htf_value weights, shape s) {
  const int64_t least = htf_integer(node, "minlength"), most = htf_integer(node, "maxlength");
  if (is_negative(node, values)) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "Input values must all be non-negative");
  }
  const int64_t found = most > 0 ? 0 : largest(node, values) + 1;
  int64_t *width = &s.dims[s.rank - 1];
  *width = most > 0 ? most : found > least ? found : least;
  htf_value keys = rows == NULL || htf_has_failed(node)
                       ? values
                       : htf_add(node, values, htf_multiply(node, rows, integer(node, *width)));
  bool has_weights = !htf_has_failed(node) && hr_tensor_count(weights) > 0;
  if (most > 0 && !htf_has_failed(node) && hr_tensor_count(values) > 0) {
    htf_value is_small = htf_call2(node, HR_FUNCTIONAL_LESS, values, integer(node, most));
    keys = kept(node, is_small, keys);
    weights = has_weights ? kept(node, is_small, weights) : weights;
  }
  output_counts(node, keys, weights, &s);
  output_shape(node, 2, &s);
}

/* Inputs: integers, their weights or none. */
void htf_dense_count(htf_node *node) {
  htf_value values = htf_cast(node, htf_input(node, 0), HR_DTYPE_I64), weights = htf_input(node, 1), rows = NULL;
  if (!can_count(node, values, weights)) {
    return;
  }
  const int64_t count = hr_tensor_count(values), all = hr_tensor_count(weights);
  if (values->rank == 2 && count > 0) {
    const int64_t column[2] = {values->dims[0], 1};
    rows = htf_call(
        node, HR_FUNCTIONAL_ARANGE, 0, NULL,
        ATTRIBUTES(htf_attr_real(0), htf_attr_real((double)column[0]), htf_attr_real(1), htf_attr_dtype(HR_DTYPE_I64)));
    rows = htf_broadcast(node, htf_reshape(node, rows, 2, column), 2, values->dims);
    rows = htf_reshape(node, rows, 1, &count);
  }
  const shape s = {values->rank, {values->dims[0]}};
  count_values(node, htf_reshape(node, values, 1, &count), rows, htf_reshape(node, weights, 1, &all), s);
}

/* Inputs: places, integers, dims, weights or none. */
void htf_sparse_count(htf_node *node) {
  htf_value places = htf_input(node, 0), values = htf_cast(node, htf_input(node, 1), HR_DTYPE_I64);
  htf_value weights = htf_input(node, 3);
  shape s = read_shape(node, 2);
  if (!htf_has_failed(node) && s.rank != 1 && s.rank != 2) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "Input must be a 1 or 2-dimensional tensor. Got: %d dims", s.rank);
  }
  if (is_sparse(node, places, values, &s) && can_count(node, values, weights)) {
    count_values(node, values, s.rank == 2 ? column(node, places, 0) : NULL, weights, s);
  }
}

/* ---- sums and largest elements over dims ---- */

/* The dims of a result, which `uses` has of the operand. */
typedef struct reduction {
  bool uses[HR_RANK_MAX];
  shape out;
} reduction;

/* Input 3: the axes that go. */
static reduction read_reduction(htf_node *node, const shape *s) {
  reduction r = {.out = {.rank = 0}};
  int64_t axes[HR_RANK_MAX];
  int count = htf_host_ints(node, 3, axes, HR_RANK_MAX);
  for (int d = 0; d < s->rank; ++d) {
    r.uses[d] = true;
  }
  for (int i = 0; i < count && !htf_has_failed(node); ++i) {
    int64_t axis = axes[i] + (axes[i] < 0 ? s->rank : 0);
    if (axis < 0 || axis >= s->rank) {
      htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "Invalid reduction dimension %lld, for input with %d dimensions.",
               (long long)axes[i], s->rank);
    } else {
      r.uses[axis] = false;
    }
  }
  bool keeps = htf_flag(node, "keep_dims");
  for (int d = 0; d < s->rank; ++d) {
    if (r.uses[d] || keeps) {
      r.out.dims[r.out.rank++] = r.uses[d] ? s->dims[d] : 1;
    }
  }
  return r;
}

/* Places among those of the result, each once, and their values. False without elements, or after a failure. */
static bool reduce(htf_node *node, const reduction *r, const shape *s, htf_value *out_places, htf_value *out_values) {
  htf_value places = htf_input(node, 0), values = htf_input(node, 1), found[4];
  if (!is_sparse(node, places, values, s) || hr_tensor_count(values) == 0) {
    return false;
  }
  htf_call_many(node, HR_FUNCTIONAL_UNIQUE, INPUTS(flatten(node, places, s, r->uses)), NO_ATTRIBUTES, 4, found);
  if (htf_has_failed(node)) {
    return false;
  }
  bool is_sum = node->function == HR_FUNCTIONAL_SUM;
  htf_value start = is_sum ? full(node, 0, 1, found[0]->dims, values->dtype) : htf_taken_rows(node, values, found[1]);
  *out_places = found[0];
  *out_values = scatter(node, start, found[2], values, is_sum ? "add" : "max");
  return !htf_has_failed(node);
}

/* Inputs: places, values, dims, axes. */
void htf_sparse_reduce(htf_node *node) {
  shape s = read_shape(node, 2);
  reduction r = read_reduction(node, &s);
  htf_value places, values;
  hr_dtype dtype = htf_output_dtype(node, 0);
  int64_t count = 1;
  for (int d = 0; d < r.out.rank; ++d) {
    count *= r.out.dims[d];
  }
  htf_value all = full(node, 0, 1, &count, dtype);
  if (reduce(node, &r, &s, &places, &values)) {
    all = scatter(node, all, places, values, "set");
  }
  htf_output(node, 0, htf_reshape(node, all, r.out.rank, r.out.dims));
}

/* The same with a sparse result. */
void htf_sparse_reduce_sparse(htf_node *node) {
  shape s = read_shape(node, 2);
  reduction r = read_reduction(node, &s);
  const int64_t none = 0;
  htf_value places = full(node, 0, 1, &none, HR_DTYPE_I64), values = full(node, 0, 1, &none, htf_output_dtype(node, 1));
  (void)reduce(node, &r, &s, &places, &values);
  htf_output(node, 0, unflatten(node, places, &r.out));
  htf_output(node, 1, values);
  output_shape(node, 2, &r.out);
}

/* ---- rows without elements ---- */

/* Returns the places of the result; outputs 1 to 3 are its values, the rows without elements, and the places of the
 * given elements among all. Input 3 becomes the first element of rows without any. */
static htf_value fill_rows(htf_node *node, htf_value places, htf_value values, shape s) {
  htf_value number = htf_input(node, 3);
  if (!is_sparse(node, places, values, &s) || s.rank == 0) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "%s: dense_shape must have a dim", node->kernel->row->op);
    return &htf_nothing;
  }
  const int64_t count = places->dims[0];
  htf_value rows = column(node, places, 0), is_filled = full(node, 0, 1, s.dims, HR_DTYPE_BOOL);
  is_filled = scatter(node, is_filled, rows, full(node, 1, 1, &count, HR_DTYPE_BOOL), "set");
  htf_value is_empty = htf_call1(node, HR_FUNCTIONAL_LOGICAL_NOT, is_filled);
  htf_value missing = htf_call1(node, HR_FUNCTIONAL_NONZERO, is_empty);
  if (htf_has_failed(node)) {
    return &htf_nothing;
  }
  const int64_t absent = missing->dims[1];
  missing = htf_reshape(node, missing, 1, &absent);
  htf_value order = htf_call1(node, HR_FUNCTIONAL_ARGSORT, joined(node, rows, missing));
  htf_value back = htf_call1(node, HR_FUNCTIONAL_ARGSORT, order);
  shape first = s;
  for (int d = 1; d < s.rank; ++d) { /* places of the rows' first elements: one column, and zeros */
    first.dims[d] = 1;
  }
  htf_value more = htf_call(node, HR_FUNCTIONAL_BROADCAST_TO, INPUTS(number), ATTRIBUTES(htf_attr_ints(&absent, 1)));
  htf_output(node, 1, htf_taken_rows(node, joined(node, values, more), order));
  htf_output(node, 2, is_empty);
  if (!htf_has_failed(node)) {
    htf_output(node, 3, htf_view(node, back, 1, &count, back->strides, back->offset));
  }
  return htf_taken_rows(node, joined(node, places, unflatten(node, missing, &first)), order);
}

/* Inputs: places, values, dims, and the value of rows without elements. */
void htf_sparse_fill_rows(htf_node *node) {
  htf_output(node, 0, fill_rows(node, htf_input(node, 0), htf_input(node, 1), read_shape(node, 2)));
}

/* Inputs: the row of each value, values, how many rows there are, and the value of rows without others. */
void htf_ragged_fill_rows(htf_node *node) {
  htf_value rows = htf_input(node, 0);
  const int64_t column[2] = {htf_has_failed(node) || rows->rank != 1 ? 0 : rows->dims[0], 1};
  if (!htf_has_failed(node) && rows->rank != 1) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "value_rowids must be a vector, saw %d dims", rows->rank);
  }
  htf_expect_rank(node, 2, 0, "nrows must be a scalar");
  htf_value filled = fill_rows(node, htf_reshape(node, rows, 2, column), htf_input(node, 1), read_shape(node, 2));
  htf_output(node, 0, htf_has_failed(node) ? filled : htf_reshape(node, filled, 1, filled->dims));
}

/* Inputs: the places of the old values among the new ones, gradients of these. */
void htf_sparse_fill_rows_gradient(htf_node *node) {
  htf_value places = htf_input(node, 0), gradients = htf_input(node, 1);
  if (htf_has_failed(node)) {
    return;
  }
  htf_value is_old = full(node, 0, 1, gradients->dims, HR_DTYPE_BOOL);
  is_old = scatter(node, is_old, places, full(node, 1, 1, places->dims, HR_DTYPE_BOOL), "set");
  htf_value rest = htf_where(node, is_old, full(node, 0, 1, gradients->dims, gradients->dtype), gradients);
  htf_output(node, 0, htf_taken_rows(node, gradients, places));
  htf_output(node, 1, htf_call(node, HR_FUNCTIONAL_SUM, INPUTS(rest), NO_ATTRIBUTES));
}
