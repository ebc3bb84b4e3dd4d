/* ops_segments.c: rules of segments: rows with the same number, combined.
 *
 * Numbers of the unsorted ones stay on the device, and negative ones are dropped. The others have as many results as
 * the last number says, so a kernel waits and reads the numbers, which it checks as TensorFlow's CPU device does. These
 * operations stay kernels (plan.c).
 */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "scope.h"

/* ---- rows ---- */

/* The largest or least finite number of a dtype. */
static hr_scalar extreme(hr_dtype dtype, bool is_least) {
  int bits = (int)hr_dtype_size(dtype) * 8;
  switch (dtype) {
    case HR_DTYPE_F16:
      return hr_scalar_f64(is_least ? -65504 : 65504);
    case HR_DTYPE_BF16:
      return hr_scalar_f64(is_least ? -0x1.fep127 : 0x1.fep127);
    case HR_DTYPE_F32:
      return hr_scalar_f64(is_least ? -(double)FLT_MAX : (double)FLT_MAX);
    case HR_DTYPE_F64:
      return hr_scalar_f64(is_least ? -DBL_MAX : DBL_MAX);
    case HR_DTYPE_U8:
    case HR_DTYPE_U16:
    case HR_DTYPE_U32:
    case HR_DTYPE_U64:
      return hr_scalar_u64(is_least ? 0 : UINT64_MAX >> (64 - bits));
    default:
      return hr_scalar_i64(is_least ? INT64_MIN >> (64 - bits) : INT64_MAX >> (64 - bits));
  }
}

/* The rows of `values`, combined by a mode of scatter_nd at `places`, one for each; other rows have the number. */
static htf_value combine(htf_node *node, htf_value values, htf_value places, int64_t rows, const char *mode,
                         hr_scalar number) {
  if (htf_has_failed(node)) {
    return values;
  }
  int64_t dims[HR_RANK_MAX];
  const int64_t tuples[2] = {values->dims[0], 1};
  memcpy(dims, values->dims, sizeof dims);
  dims[0] = rows;
  htf_value start = htf_call(node, HR_FUNCTIONAL_FULL, INPUTS(htf_number_of(node, number)),
                             ATTRIBUTES(htf_attr_ints(dims, values->rank), htf_attr_dtype(values->dtype)));
  if (htf_has_failed(node) || hr_tensor_count(values) == 0 || hr_tensor_count(start) == 0) {
    return start;
  }
  return htf_call(node, HR_FUNCTIONAL_SCATTER_ND, INPUTS(start, htf_reshape(node, places, 2, tuples), values),
                  ATTRIBUTES(htf_attr_int(0), htf_attr_text(mode), htf_attr_text("drop")));
}

static htf_value taken(htf_node *node, htf_value x, htf_value places) {
  int64_t dims[HR_RANK_MAX];
  if (htf_has_failed(node) || hr_tensor_count(places) > 0) {
    return htf_call(node, HR_FUNCTIONAL_TAKE, INPUTS(x, places), ATTRIBUTES(htf_attr_int(0), htf_attr_text("drop")));
  }
  memcpy(dims, x->dims, sizeof dims);
  dims[0] = 0;
  return htf_view(node, x, x->rank, dims, x->strides, x->offset);
}

/* A number for each row of x, as a tensor that is broadcast to x. */
static htf_value for_rows(htf_node *node, htf_value x, hr_dtype dtype, const void *numbers) {
  int64_t dims[HR_RANK_MAX];
  if (htf_has_failed(node)) {
    return x;
  }
  for (int d = 0; d < x->rank; ++d) {
    dims[d] = d == 0 ? x->dims[0] : 1;
  }
  return htf_reshape(node, htf_constant(node, dtype, dims[0], numbers), x->rank, dims);
}

/* ---- unsorted segments ---- */

static void combine_unsorted(htf_node *node, const char *mode, hr_scalar number) {
  htf_value data = htf_input(node, 0), segments = htf_input(node, 1);
  htf_expect_rank(node, 2, 0, "num_segments should be a scalar");
  int64_t count = htf_host_int(node, 2), dims[HR_RANK_MAX], rows = 1;
  bool is_prefix = segments->rank <= data->rank;
  for (int d = 0; d < segments->rank && is_prefix; ++d) {
    is_prefix = segments->dims[d] == data->dims[d];
    rows *= segments->dims[d];
  }
  if (!htf_has_failed(node) && (!is_prefix || count < 0)) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT,
             "%s: the dims of segment_ids must be the first ones of data, and num_segments positive",
             node->kernel->row->op);
  }
  if (htf_has_failed(node)) {
    return;
  }
  int rank = 1 + data->rank - segments->rank;
  for (int d = 1; d < rank; ++d) {
    dims[d] = data->dims[segments->rank + d - 1];
  }
  dims[0] = rows;
  htf_output(node, 0, combine(node, htf_reshape(node, data, rank, dims), segments, count, mode, number));
}

void htf_unsorted_segment_sum(htf_node *node) {
  combine_unsorted(node, "add", hr_scalar_i64(0));
}

void htf_unsorted_segment_prod(htf_node *node) {
  combine_unsorted(node, "multiply", hr_scalar_i64(1));
}

void htf_unsorted_segment_max(htf_node *node) {
  combine_unsorted(node, "max", extreme(htf_output_dtype(node, 0), true));
}

void htf_unsorted_segment_min(htf_node *node) {
  combine_unsorted(node, "min", extreme(htf_output_dtype(node, 0), false));
}

/* ---- numbers that are read ---- */

/* Numbers of rows on the host, and in i64 on the device. */
typedef struct numbers {
  int64_t *list, count;
  htf_value value;
} numbers;

static void read_numbers(htf_node *node, int index, const char *name, numbers *out) {
  htf_value x = htf_input(node, index);
  if (!htf_has_failed(node) && x->rank != 1) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "%s should be a vector, not of %d dims", name, x->rank);
  }
  *out = (numbers){.count = htf_has_failed(node) ? 0 : x->dims[0]};
  out->list = htf_new_argument(node, (size_t)(out->count + 1) * sizeof *out->list);
  out->value = htf_settle(node, x, HR_DTYPE_I64);
  if (!htf_has_failed(node) && out->count > 0) {
    const hr_view view = hr_tensor_view(out->value);
    (void)htf_keep(node, hr_stream_read(node->stream, &view, out->list));
  }
}

/* Numbers have to be less than `limit`. */
static void check_numbers(htf_node *node, const numbers *x, const char *name, int64_t limit) {
  for (int64_t i = 0; i < x->count && !htf_has_failed(node); ++i) {
    if (x->list[i] < 0 || x->list[i] >= limit) {
      htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "%s[%lld] = %lld is out of range [0, %lld)", name, (long long)i,
               (long long)x->list[i], (long long)limit);
    }
  }
}

/* The number of results: `wanted`, or the last number if that is negative. */
static int64_t count_results(htf_node *node, const numbers *segments, int64_t wanted) {
  for (int64_t i = 0; i < segments->count && !htf_has_failed(node); ++i) {
    if (segments->list[i] < 0) {
      htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "segment ids must be >= 0, segment_ids[%lld] is %lld", (long long)i,
               (long long)segments->list[i]);
    } else if (i > 0 && segments->list[i] < segments->list[i - 1]) {
      htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "segment ids are not increasing: %lld behind %lld",
               (long long)segments->list[i], (long long)segments->list[i - 1]);
    }
  }
  int64_t found = segments->count > 0 && !htf_has_failed(node) ? segments->list[segments->count - 1] + 1 : 0;
  if (!htf_has_failed(node) && wanted >= 0 && found > wanted) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "segment ids must be < num_segments: %lld, of %lld",
             (long long)found - 1, (long long)wanted);
  }
  return wanted >= 0 ? wanted : found;
}

static bool has_rows(htf_node *node, htf_value data, int64_t count) {
  if (!htf_has_failed(node) && (data->rank < 1 || data->dims[0] != count)) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "segment_ids should be the same size as dimension 0 of input: %lld",
             (long long)count);
  }
  return !htf_has_failed(node);
}

typedef enum weighting { WEIGHT_NONE, WEIGHT_MEAN, WEIGHT_SQRT } weighting;

/* The share of a row in each of `rows` segments, on the host; the caller frees it. */
static double *share_of(htf_node *node, const numbers *segments, int64_t rows, weighting by) {
  double *shares = htf_new_argument(node, (size_t)(rows + 1) * sizeof *shares);
  for (int64_t i = 0; i < rows && shares != NULL; ++i) {
    shares[i] = 0;
  }
  for (int64_t i = 0; i < segments->count && shares != NULL; ++i) {
    shares[segments->list[i]] += 1;
  }
  for (int64_t i = 0; i < rows && shares != NULL; ++i) {
    double count = shares[i] > 0 && by != WEIGHT_NONE ? shares[i] : 1;
    shares[i] = by == WEIGHT_SQRT ? sqrt(count) : count;
  }
  return shares;
}

/* Sums of rows by segments, over the number of rows, or its root. */
static htf_value sum_of(htf_node *node, htf_value data, const numbers *segments, int64_t rows, weighting by) {
  htf_value sums = combine(node, data, segments->value, rows, "add", hr_scalar_i64(0));
  if (by == WEIGHT_NONE || htf_has_failed(node) || hr_tensor_count(sums) == 0) {
    return sums;
  }
  double *shares = share_of(node, segments, rows, by);
  htf_value divisors = htf_cast(node, for_rows(node, sums, HR_DTYPE_F64, shares), sums->dtype);
  free(shares);
  return htf_call2(node, HR_FUNCTIONAL_DIVIDE, sums, divisors);
}

/* ---- sorted segments ---- */

static void sum_sorted(htf_node *node, weighting by) {
  numbers segments;
  read_numbers(node, 1, "segment_ids", &segments);
  int64_t rows = count_results(node, &segments, -1);
  htf_value data = htf_input(node, 0);
  if (has_rows(node, data, segments.count)) {
    htf_output(node, 0, sum_of(node, data, &segments, rows, by));
  }
  free(segments.list);
}

/* Results without rows have the number `empty`. */
static void combine_sorted(htf_node *node, const char *mode, hr_scalar start, int empty) {
  numbers segments;
  read_numbers(node, 1, "segment_ids", &segments);
  int64_t rows = count_results(node, &segments, -1);
  htf_value data = htf_input(node, 0);
  bool *has_some = htf_new_argument(node, (size_t)rows + 1);
  if (has_rows(node, data, segments.count)) {
    memset(has_some, 0, (size_t)rows);
    for (int64_t i = 0; i < segments.count; ++i) {
      has_some[segments.list[i]] = true;
    }
    htf_value found = combine(node, data, segments.value, rows, mode, start);
    bool is_full = memchr(has_some, false, (size_t)rows) == NULL || htf_has_failed(node) || hr_tensor_count(found) == 0;
    htf_output(node, 0,
               is_full ? found
                       : htf_where(node, for_rows(node, found, HR_DTYPE_BOOL, has_some), found,
                                   htf_number_of(node, hr_scalar_i64(empty))));
  }
  free(has_some);
  free(segments.list);
}

void htf_segment_sum(htf_node *node) {
  sum_sorted(node, WEIGHT_NONE);
}

void htf_segment_mean(htf_node *node) {
  sum_sorted(node, WEIGHT_MEAN);
}

void htf_segment_prod(htf_node *node) {
  combine_sorted(node, "multiply", hr_scalar_i64(1), 1);
}

void htf_segment_max(htf_node *node) {
  combine_sorted(node, "max", extreme(htf_output_dtype(node, 0), true), 0);
}

void htf_segment_min(htf_node *node) {
  combine_sorted(node, "min", extreme(htf_output_dtype(node, 0), false), 0);
}

/* ---- segments of chosen rows ---- */

/* Rows that are chosen, and the segment of each. */
typedef struct chosen {
  numbers indices, segments;
} chosen;

/* Inputs 1 and 2, as many segments as rows of `data`; is_valid: of what else the operation asks. */
static chosen read_chosen(htf_node *node, htf_value data, bool is_valid) {
  chosen c;
  read_numbers(node, 1, "indices", &c.indices);
  read_numbers(node, 2, "segment_ids", &c.segments);
  if (!htf_has_failed(node) && (data->rank < 1 || c.indices.count != c.segments.count || !is_valid)) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "segment_ids and indices should have same size: %lld and %lld",
             (long long)c.segments.count, (long long)c.indices.count);
  }
  return c;
}

static void free_chosen(chosen *c) {
  free(c->indices.list);
  free(c->segments.list);
}

/* Inputs: data, indices of rows, their segments, and maybe how many segments there are. */
static void sum_chosen(htf_node *node, weighting by) {
  htf_value data = htf_input(node, 0);
  int64_t wanted = htf_input_count(node) > 3 ? htf_host_int(node, 3) : -1;
  chosen c = read_chosen(node, data, true);
  check_numbers(node, &c.indices, "indices", htf_has_failed(node) ? 0 : data->dims[0]);
  int64_t rows = count_results(node, &c.segments, wanted);
  if (!htf_has_failed(node)) {
    htf_output(node, 0, sum_of(node, taken(node, data, c.indices.value), &c.segments, rows, by));
  }
  free_chosen(&c);
}

void htf_sparse_segment_sum(htf_node *node) {
  sum_chosen(node, WEIGHT_NONE);
}

void htf_sparse_segment_mean(htf_node *node) {
  sum_chosen(node, WEIGHT_MEAN);
}

void htf_sparse_segment_sqrt_n(htf_node *node) {
  sum_chosen(node, WEIGHT_SQRT);
}

static int order_of(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

/* Replaces numbers by their places among the sorted different ones, which become output 1. Returns how many these are.
 */
static int64_t output_different(htf_node *node, numbers *x) {
  int64_t *sorted = htf_new_argument(node, (size_t)(x->count + 1) * sizeof *sorted), count = 0;
  if (htf_has_failed(node)) {
    free(sorted);
    return 0;
  }
  memcpy(sorted, x->list, (size_t)x->count * sizeof *sorted);
  qsort(sorted, (size_t)x->count, sizeof *sorted, order_of);
  for (int64_t i = 0; i < x->count; ++i) {
    if (count == 0 || sorted[i] != sorted[count - 1]) {
      sorted[count++] = sorted[i];
    }
  }
  for (int64_t i = 0; i < x->count; ++i) {
    int64_t *found = bsearch(&x->list[i], sorted, (size_t)count, sizeof *sorted, order_of);
    x->list[i] = found - sorted;
  }
  x->value = htf_constant(node, HR_DTYPE_I64, x->count, x->list);
  htf_output(node, 1, htf_constant(node, HR_DTYPE_I64, count, sorted));
  free(sorted);
  return count;
}

/* Inputs: the gradient of the results, indices of rows, their segments, and the number of rows. With two outputs the
 * gradient has only the rows of some index, and output 1 has their indices. */
static void spread_chosen(htf_node *node, weighting by) {
  htf_value gradient = htf_input(node, 0);
  int64_t rows = htf_host_int(node, 3);
  chosen c = read_chosen(node, gradient, rows >= 0);
  check_numbers(node, &c.indices, "indices", rows);
  check_numbers(node, &c.segments, "segment_ids", htf_has_failed(node) ? 0 : gradient->dims[0]);
  rows = htf_output_count(node) > 1 ? output_different(node, &c.indices) : rows;
  if (!htf_has_failed(node)) {
    if (by != WEIGHT_NONE && hr_tensor_count(gradient) > 0) {
      double *shares = share_of(node, &c.segments, gradient->dims[0], by);
      htf_value divisors = htf_cast(node, for_rows(node, gradient, HR_DTYPE_F64, shares), gradient->dtype);
      free(shares);
      gradient = htf_call2(node, HR_FUNCTIONAL_DIVIDE, gradient, divisors);
    }
    htf_output(node, 0,
               combine(node, taken(node, gradient, c.segments.value), c.indices.value, rows, "add", hr_scalar_i64(0)));
  }
  free_chosen(&c);
}

void htf_sparse_segment_sum_gradient(htf_node *node) {
  spread_chosen(node, WEIGHT_NONE);
}

void htf_sparse_segment_mean_gradient(htf_node *node) {
  spread_chosen(node, WEIGHT_MEAN);
}

void htf_sparse_segment_sqrt_n_gradient(htf_node *node) {
  spread_chosen(node, WEIGHT_SQRT);
}
