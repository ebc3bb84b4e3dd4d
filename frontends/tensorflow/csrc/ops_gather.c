/* ops_gather.c: rules of elements along one axis by their indices or values: gathers, searches, counts of numbers.
 *
 * An index out of range gives 0 or counts nothing, as on TensorFlow's GPUs.
 */
#include <string.h>

#include "node.h"

/* ---- indices ---- */

static htf_value take(htf_node *node, htf_value x, htf_value indices, int64_t axis) {
  return htf_call(node, HR_FUNCTIONAL_TAKE, INPUTS(x, indices), ATTRIBUTES(htf_attr_int(axis), htf_attr_text("drop")));
}

/* Flat indices of x's batches, which have `size` elements each; those out of range are -1. */
static htf_value offset_by_batch(htf_node *node, htf_value indices, int64_t batches, int64_t size) {
  int64_t dims[2] = {batches, batches > 0 ? hr_tensor_count(indices) / batches : 0}, column[2] = {batches, 1};
  htf_value flat = htf_cast(node, htf_reshape(node, indices, 2, dims), HR_DTYPE_I64);
  htf_value starts = htf_call(node, HR_FUNCTIONAL_ARANGE, 0, NULL,
                              ATTRIBUTES(htf_attr_real(0), htf_attr_real((double)(batches * size)),
                                         htf_attr_real((double)size), htf_attr_dtype(HR_DTYPE_I64)));
  htf_value moved = htf_add(node, flat, htf_reshape(node, starts, 2, column));
  htf_value is_low = htf_call2(node, HR_FUNCTIONAL_LESS, flat, htf_number_of(node, hr_scalar_i64(0)));
  htf_value is_high = htf_call2(node, HR_FUNCTIONAL_GREATER_EQUAL, flat, htf_number_of(node, hr_scalar_i64(size)));
  htf_value is_outside = htf_call2(node, HR_FUNCTIONAL_LOGICAL_OR, is_low, is_high);
  return htf_where(node, is_outside, htf_number_of(node, hr_scalar_i64(-1)), moved);
}

/* Takes from each batch: x [batch.., size, rest..] at indices [batch.., n..]. */
static htf_value gather_batches(htf_node *node, htf_value x, htf_value indices, int batch_dims) {
  int64_t dims[HR_RANK_MAX], batches = 1, size = x->dims[batch_dims];
  int rank = 0;
  for (int d = 0; d < batch_dims; ++d) {
    batches *= x->dims[d];
  }
  dims[rank++] = batches * size;
  for (int d = batch_dims + 1; d < x->rank; ++d) {
    dims[rank++] = x->dims[d];
  }
  htf_value flat = htf_reshape(node, x, rank, dims);
  htf_value taken = take(node, flat, offset_by_batch(node, indices, batches, size), 0);
  int64_t out[2 * HR_RANK_MAX];
  rank = 0;
  for (int d = 0; d < indices->rank; ++d) {
    out[rank++] = indices->dims[d];
  }
  for (int d = batch_dims + 1; d < x->rank; ++d) {
    out[rank++] = x->dims[d];
  }
  return htf_reshape(node, taken, rank, out);
}

/* The axis is behind the batches, and dims are between: they move behind it, and their results in front of indices'. */
static htf_value gather_behind(htf_node *node, htf_value x, htf_value indices, int batch_dims, int axis) {
  const int between = axis - batch_dims, more = indices->rank - batch_dims;
  int order[2 * HR_RANK_MAX];
  for (int d = 0; d < x->rank; ++d) {
    order[d] = d == batch_dims ? axis : d > batch_dims && d <= axis ? d - 1 : d;
  }
  htf_value found = gather_batches(node, htf_transpose(node, x, order), indices, batch_dims);
  for (int d = 0; d < found->rank && !htf_has_failed(node); ++d) {
    int at = d - batch_dims;
    order[d] = at < 0 || at >= between + more ? d : at < between ? d + more : d - between;
  }
  return htf_has_failed(node) ? found : htf_transpose(node, found, order);
}

/* The error ends with TensorFlow's words. */
static int gather_axis(htf_node *node, htf_value x) {
  int64_t axis = htf_host_int(node, 2);
  if (!htf_has_failed(node) && (axis < -x->rank || axis >= x->rank)) {
    uint64_t least = axis < 0 ? 0 - (uint64_t)axis : (uint64_t)axis + 1;
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT,
             "GatherV2: axis %lld is out of range: Shape must be at least rank %llu but is rank %d", (long long)axis,
             (unsigned long long)least, x->rank);
  }
  return (int)(axis < 0 ? axis + x->rank : axis);
}

/* An index out of range gives 0, as on TensorFlow's GPU. */
void htf_gather_v2(htf_node *node) {
  htf_value x = htf_input(node, 0), indices = htf_input(node, 1);
  int axis = gather_axis(node, x);
  int64_t batch_dims = htf_integer(node, "batch_dims");
  batch_dims += batch_dims < 0 ? indices->rank : 0;
  if (htf_has_failed(node)) {
    return;
  }
  if (batch_dims < 0 || batch_dims > indices->rank || batch_dims > axis || x->rank + indices->rank > HR_RANK_MAX + 1) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "GatherV2: batch_dims %lld must be at most the axis %d and %d dims",
             (long long)batch_dims, axis, indices->rank);
    return;
  }
  for (int d = 0; d < batch_dims; ++d) {
    if (x->dims[d] != indices->dims[d]) {
      htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "GatherV2: dim %d of params and indices are %lld and %lld", d,
               (long long)x->dims[d], (long long)indices->dims[d]);
      return;
    }
  }
  if (batch_dims == 0) {
    htf_output(node, 0, take(node, x, indices, axis));
  } else if (axis == batch_dims) {
    htf_output(node, 0, gather_batches(node, x, indices, axis));
  } else {
    htf_output(node, 0, gather_behind(node, x, indices, (int)batch_dims, axis));
  }
}

void htf_gather_first(htf_node *node) {
  htf_value x = htf_input(node, 0), indices = htf_input(node, 1);
  if (!htf_has_failed(node) && (x->rank < 1 || x->rank + indices->rank > HR_RANK_MAX + 1)) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "params must be at least 1 dimensional");
  }
  htf_output(node, 0, take(node, x, indices, 0));
}

/* Places of values among sorted ones: in front of equal ones or behind them. */
void htf_search(htf_node *node) {
  htf_value x = htf_input(node, 0), values = htf_input(node, 1);
  if (!htf_has_failed(node) && (x->rank != 2 || values->rank != 2 || x->dims[0] != values->dims[0])) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "%s: both inputs must be matrices with the same rows",
             node->kernel->row->op);
  }
  if (htf_has_failed(node) || hr_tensor_count(values) == 0 || x->dims[1] == 0) {
    htf_output(node, 0, htf_zeros(node, values->rank, values->dims, HR_DTYPE_I64));
    return;
  }
  const int64_t is_behind = strcmp(node->kernel->row->op, "UpperBound") == 0;
  htf_value out = htf_new(node, HR_DTYPE_I64, 2, values->dims);
  htf_record(node, HR_OP_SEARCH, 1, &is_behind, INPUTS(x, values), out);
  htf_output(node, 0, out);
}

/* The number of boundaries, f32 in order, that are not above each element. TensorFlow compares integers as f32. */
void htf_bucketize(htf_node *node) {
  htf_value x = htf_input(node, 0);
  const htf_attribute *found = htf_list(node, "boundaries");
  for (int i = 1; i < found->count; ++i) {
    if (found->reals[i] < found->reals[i - 1]) {
      htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "Expected sorted boundaries: %g comes behind %g",
               (double)found->reals[i], (double)found->reals[i - 1]);
    }
  }
  if (htf_has_failed(node) || hr_tensor_count(x) == 0 || found->count == 0) {
    htf_output(node, 0, htf_zeros(node, x->rank, x->dims, HR_DTYPE_I32));
    return;
  }
  hr_dtype dtype = x->dtype == HR_DTYPE_F64 ? HR_DTYPE_F64 : HR_DTYPE_F32;
  htf_value boundaries = htf_cast(node, htf_constant(node, HR_DTYPE_F32, found->count, found->reals), dtype);
  htf_output(node, 0,
             htf_call(node, HR_FUNCTIONAL_SEARCHSORTED, INPUTS(boundaries, htf_cast(node, x, dtype)),
                      ATTRIBUTES(htf_attr_text("right"))));
}

void htf_one_hot(htf_node *node) {
  htf_value indices = htf_input(node, 0), on = htf_input(node, 2), off = htf_input(node, 3);
  int64_t depth = htf_host_int(node, 1), axis = htf_integer(node, "axis"), dims[HR_RANK_MAX];
  if (!htf_has_failed(node) && depth < 0) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "OneHot: depth must be non-negative, it is %lld", (long long)depth);
  }
  axis = axis < 0 ? indices->rank : axis;
  if (!htf_has_failed(node) && (axis > indices->rank || indices->rank == HR_RANK_MAX)) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "OneHot: axis %lld is out of range", (long long)axis);
  }
  if (htf_has_failed(node)) {
    return;
  }
  for (int d = 0; d <= indices->rank; ++d) {
    dims[d] = d == axis ? depth : 1;
  }
  hr_dtype dtype = indices->dtype == HR_DTYPE_U8 ? HR_DTYPE_I32 : HR_DTYPE_I64; /* a depth may exceed the dtype */
  htf_value places =
      htf_call(node, HR_FUNCTIONAL_ARANGE, 0, NULL,
               ATTRIBUTES(htf_attr_real(0), htf_attr_real((double)depth), htf_attr_real(1), htf_attr_dtype(dtype)));
  htf_value is_on = htf_call2(node, HR_FUNCTIONAL_EQUAL, htf_expand(node, indices, axis),
                              htf_reshape(node, places, indices->rank + 1, dims));
  htf_output(node, 0, htf_where(node, is_on, on, off));
}

/* ---- counts of numbers ---- */

/* Inputs: numbers, of rows or not, how many bins, and weights, or none. Numbers from `size` on do not count. */
static void count_numbers(htf_node *node, bool is_binary, bool has_rows) {
  htf_value x = htf_input(node, 0), weights = htf_input(node, 2);
  int64_t size = htf_host_scalar(node, 1), rows = has_rows ? x->dims[0] : 1;
  hr_dtype dtype = weights->dtype;
  bool is_weighted = hr_tensor_count(weights) > 0;
  if (!htf_has_failed(node) && size < 0) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "%s: size (%lld) must be non-negative", node->kernel->row->op,
             (long long)size);
  }
  if (!htf_has_failed(node) && is_weighted && hr_tensor_count(weights) != hr_tensor_count(x)) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "%s: %lld weights for %lld numbers, expected as many or none",
             node->kernel->row->op, (long long)hr_tensor_count(weights), (long long)hr_tensor_count(x));
  }
  if (htf_has_failed(node)) {
    return;
  }
  int64_t elements = hr_tensor_count(x), bins = rows * size;
  const int64_t dims[2] = {rows, size}, tuples[2] = {elements, 1};
  htf_value counts = htf_zeros(node, 1, &bins, dtype);
  if (elements > 0 && bins > 0) {
    htf_value place = htf_reshape(node, offset_by_batch(node, x, rows, size), 2, tuples);
    htf_value one = htf_number_of(node, hr_scalar_i64(1));
    htf_value values = is_weighted && !is_binary
                           ? htf_reshape(node, weights, 1, &elements)
                           : htf_call(node, HR_FUNCTIONAL_FULL, INPUTS(one),
                                      ATTRIBUTES(htf_attr_ints(&elements, 1), htf_attr_dtype(dtype)));
    counts = htf_call(node, HR_FUNCTIONAL_SCATTER_ND, INPUTS(counts, place, values),
                      ATTRIBUTES(htf_attr_int(0), htf_attr_text(is_binary ? "set" : "add"), htf_attr_text("drop")));
  }
  htf_output(node, 0, has_rows ? htf_reshape(node, counts, 2, dims) : counts);
}

/* Inputs: numbers, their range, how many bins of equal width; numbers beyond the range are in the outer ones. */
void htf_histogram(htf_node *node) {
  htf_value x = htf_input(node, 0);
  double range[2];
  htf_host_reals(node, 1, range, 2);
  int64_t bins = htf_host_int(node, 2), count = htf_has_failed(node) ? 0 : hr_tensor_count(x);
  if (!htf_has_failed(node) && !(range[0] < range[1] && bins > 0)) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT,
             "value_range should satisfy value_range[0] < value_range[1], and nbins be "
             "positive: [%g, %g], %lld",
             range[0], range[1], (long long)bins);
  }
  const int64_t tuples[2] = {count, 1};
  hr_dtype dtype = htf_output_dtype(node, 0);
  htf_value counts = htf_zeros(node, 1, &bins, dtype);
  if (!htf_has_failed(node) && count > 0) {
    bool is_real = x->dtype == HR_DTYPE_F32 || x->dtype == HR_DTYPE_F64;
    htf_value low = htf_number_of(node, is_real ? hr_scalar_f64(range[0]) : hr_scalar_i64((int64_t)range[0]));
    htf_value place = htf_subtract(node, htf_call2(node, HR_FUNCTIONAL_MAXIMUM, x, low), low);
    double width =
        is_real && x->dtype == HR_DTYPE_F32 ? (double)((float)range[1] - (float)range[0]) : range[1] - range[0];
    place = htf_divide(node, htf_cast(node, place, HR_DTYPE_F64), htf_number(node, width / (double)bins));
    place = htf_call2(node, HR_FUNCTIONAL_MINIMUM, place, htf_number(node, (double)(bins - 1)));
    place = htf_reshape(node, htf_cast(node, place, HR_DTYPE_I64), 2, tuples);
    htf_value ones = htf_call(node, HR_FUNCTIONAL_FULL, INPUTS(htf_number_of(node, hr_scalar_i64(1))),
                              ATTRIBUTES(htf_attr_ints(&count, 1), htf_attr_dtype(dtype)));
    counts = htf_call(node, HR_FUNCTIONAL_SCATTER_ND, INPUTS(counts, place, ones),
                      ATTRIBUTES(htf_attr_int(0), htf_attr_text("add"), htf_attr_text("drop")));
  }
  htf_output(node, 0, counts);
}

void htf_bincount(htf_node *node) {
  count_numbers(node, false, false);
}

void htf_dense_bincount(htf_node *node) {
  htf_value x = htf_input(node, 0);
  if (!htf_has_failed(node) && (x->rank < 1 || x->rank > 2)) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "Shape must be at most rank 2 but is rank %d", x->rank);
    return;
  }
  count_numbers(node, htf_flag(node, "binary_output"), x->rank == 2);
}
