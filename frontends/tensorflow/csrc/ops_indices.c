/* ops_indices.c: rules of elements at indices: tuples of indices, the largest elements, diagonals of matrices.
 *
 * A kernel does not wait to look at indices: those out of range give 0 or write nothing, as on TensorFlow's GPUs.
 */
#include <math.h>
#include <string.h>

#include "scope.h"
#include "slots.h"

static htf_value integer(htf_node *node, int64_t number) {
  return htf_number_of(node, hr_scalar_i64(number));
}

/* ---- tuples of indices, the last dim ---- */

/* The tuples' length; fails unless x has so many dims. */
static int tuple_length(htf_node *node, htf_value indices, int rank) {
  if (htf_has_failed(node)) {
    return 0;
  }
  int64_t length = indices->rank > 0 ? indices->dims[indices->rank - 1] : -1;
  if (length < 0 || length > rank) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT,
             "%s: index innermost dimension length must be <= params rank; saw: %lld vs. %d", node->kernel->row->op,
             (long long)length, rank);
    return 0;
  }
  return (int)length;
}

/* The dims of the indices but the last, then those of x behind a tuple's; how many they are. */
static int tuple_dims(htf_node *node, htf_value indices, int length, int rank, const int64_t *dims, int64_t *out_dims) {
  int count = 0, all = indices->rank - 1 + rank - length;
  if (all > HR_RANK_MAX) {
    htf_fail(node, HR_STATUS_UNIMPLEMENTED, "%s: a result of %d dims, at most %d are supported", node->kernel->row->op,
             all, HR_RANK_MAX);
    return 0;
  }
  for (int d = 0; d + 1 < indices->rank; ++d) {
    out_dims[count++] = indices->dims[d];
  }
  for (int d = length; d < rank; ++d) {
    out_dims[count++] = dims[d];
  }
  return count;
}

static int64_t count_of(int rank, const int64_t *dims) {
  int64_t count = 1;
  for (int d = 0; d < rank; ++d) {
    count *= dims[d];
  }
  return count;
}

static void gather_tuples(htf_node *node, htf_value x) {
  htf_value indices = htf_input(node, 1);
  int length = tuple_length(node, indices, x->rank);
  int64_t dims[HR_RANK_MAX];
  int rank = htf_has_failed(node) ? 0 : tuple_dims(node, indices, length, x->rank, x->dims, dims);
  if (!htf_has_failed(node) && hr_tensor_count(x) == 0 && count_of(indices->rank - 1, indices->dims) > 0) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "%s: Requested more than 0 entries, but params is empty.",
             node->kernel->row->op);
  }
  if (htf_has_failed(node)) {
    return;
  }
  if (count_of(rank, dims) == 0) {
    htf_output(node, 0, htf_zeros(node, rank, dims, x->dtype));
  } else if (length == 0) {
    htf_output(node, 0, htf_call(node, HR_FUNCTIONAL_BROADCAST_TO, INPUTS(x), ATTRIBUTES(htf_attr_ints(dims, rank))));
  } else {
    htf_output(node, 0,
               htf_call(node, HR_FUNCTIONAL_GATHER_ND, INPUTS(x, indices),
                        ATTRIBUTES(htf_attr_int(0), htf_attr_text("drop"))));
  }
}

void htf_gather_nd(htf_node *node) {
  gather_tuples(node, htf_input(node, 0));
}

void htf_resource_gather_nd(htf_node *node) {
  htf_slots opened = htf_open_slots(node, 1, true, true);
  htf_value indices = htf_input(node, 1), x = opened.values[0];
  /* Tuples of no indices give the variable itself, which another node of a cluster may write. */
  if (!htf_has_failed(node) && node->scope != NULL && indices->rank > 0 && indices->dims[indices->rank - 1] == 0) {
    x = htf_copy_value(node, x);
  }
  if (!htf_has_failed(node)) {
    gather_tuples(node, x);
  }
  htf_close_slots(&opened);
}

/* x with updates at tuples of indices; bounds: what happens with indices out of range. */
static htf_value scattered(htf_node *node, htf_value x, htf_value indices, htf_value updates, const char *mode,
                           const char *bounds) {
  int length = tuple_length(node, indices, x->rank);
  int64_t dims[HR_RANK_MAX];
  int rank = htf_has_failed(node) ? 0 : tuple_dims(node, indices, length, x->rank, x->dims, dims);
  if (!htf_has_failed(node) &&
      (updates->rank != rank || memcmp(updates->dims, dims, sizeof *dims * (size_t)rank) != 0)) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT,
             "%s: updates must have the dims of the indices but the last, and those of a slice: %d, not %d dims",
             node->kernel->row->op, rank, updates->rank);
  }
  if (!htf_has_failed(node) && length == 0) {
    htf_fail(node, HR_STATUS_UNIMPLEMENTED, "%s: tuples of 0 indices are not supported", node->kernel->row->op);
  }
  if (htf_has_failed(node) || hr_tensor_count(updates) == 0 || hr_tensor_count(x) == 0) {
    return x;
  }
  return htf_call(node, HR_FUNCTIONAL_SCATTER_ND, INPUTS(x, indices, updates),
                  ATTRIBUTES(htf_attr_int(0), htf_attr_text(mode), htf_attr_text(bounds)));
}

static void scatter_tuples(htf_node *node, htf_value x, htf_value indices, htf_value updates, const char *mode) {
  htf_output(node, 0, scattered(node, x, indices, updates, mode, "drop"));
}

/* An index out of range is an error of the work, which a wait reports. */
static void scatter_variable(htf_node *node, const char *mode) {
  htf_slots opened = htf_open_slots(node, 1, htf_flag(node, "use_locking"), false);
  htf_value indices = htf_input(node, 1), updates = htf_input(node, 2);
  if (!htf_has_failed(node) && opened.values[0]->rank < 1) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "Output must be at least 1-D, got shape: []");
  }
  if (!htf_has_failed(node)) {
    htf_set_slot(node, &opened, 0, scattered(node, opened.values[0], indices, updates, mode, "error"));
  }
  htf_close_slots(&opened);
}

void htf_variable_scatter_set(htf_node *node) {
  scatter_variable(node, "set");
}

void htf_variable_scatter_add(htf_node *node) {
  scatter_variable(node, "add");
}

void htf_variable_scatter_sub(htf_node *node) {
  scatter_variable(node, "subtract");
}

void htf_variable_scatter_max(htf_node *node) {
  scatter_variable(node, "max");
}

void htf_variable_scatter_min(htf_node *node) {
  scatter_variable(node, "min");
}

/* Rows of a variable, divided by updates with their dims or by a number. */
void htf_scatter_div(htf_node *node) {
  htf_slots opened = htf_open_slots(node, 1, true, false);
  htf_value indices = htf_input(node, 1), updates = htf_input(node, 2);
  if (!htf_has_failed(node)) {
    int64_t dims[2 * HR_RANK_MAX], tuples[HR_RANK_MAX + 1];
    int rank = indices->rank;
    memcpy(tuples, indices->dims, sizeof indices->dims);
    memcpy(dims, indices->dims, sizeof indices->dims);
    tuples[rank] = 1;
    for (int d = 1; d < opened.values[0]->rank; ++d) {
      dims[rank++] = opened.values[0]->dims[d];
    }
    if (updates->rank == 0) {
      updates = htf_call(node, HR_FUNCTIONAL_BROADCAST_TO, INPUTS(updates), ATTRIBUTES(htf_attr_ints(dims, rank)));
    }
    indices = htf_reshape(node, indices, indices->rank + 1, tuples);
    htf_set_slot(node, &opened, 0, scattered(node, opened.values[0], indices, updates, "divide", "error"));
  }
  htf_close_slots(&opened);
}

void htf_scatter_nd(htf_node *node) {
  htf_value indices = htf_input(node, 0), updates = htf_input(node, 1);
  int64_t dims[HR_RANK_MAX];
  int rank = htf_host_ints(node, 2, dims, HR_RANK_MAX);
  for (int d = 0; d < rank; ++d) {
    if (dims[d] < 0) {
      htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "ScatterNd: dim %d is %lld, it must not be negative", d,
               (long long)dims[d]);
    }
  }
  if (!htf_has_failed(node)) {
    scatter_tuples(node, htf_zeros(node, rank, dims, updates->dtype), indices, updates, "add");
  }
}

static void scatter_tensor(htf_node *node, const char *mode) {
  htf_value x = htf_input(node, 0), indices = htf_input(node, 1), updates = htf_input(node, 2);
  scatter_tuples(node, x, indices, updates, mode);
}

void htf_tensor_scatter_set(htf_node *node) {
  scatter_tensor(node, "set");
}

void htf_tensor_scatter_add(htf_node *node) {
  scatter_tensor(node, "add");
}

void htf_tensor_scatter_sub(htf_node *node) {
  scatter_tensor(node, "subtract");
}

void htf_tensor_scatter_max(htf_node *node) {
  scatter_tensor(node, "max");
}

void htf_tensor_scatter_min(htf_node *node) {
  scatter_tensor(node, "min");
}

/* Fails unless the indices are a vector with a row of values for each, or one index with a row. */
static bool are_rows(htf_node *node, htf_value x, htf_value indices, htf_value values) {
  if (htf_has_failed(node)) {
    return false;
  }
  int row = indices->rank == 0 ? 0 : 1; /* the dim of values behind the row's number */
  bool has_row = x->rank >= 1 && values->rank == x->rank - 1 + row;
  for (int d = 1; has_row && d < x->rank; ++d) {
    has_row = values->dims[d - 1 + row] == x->dims[d];
  }
  const char *wrong = indices->rank > 1                                 ? "i must be a vector"
                      : !has_row                                        ? "x and v shape doesn't match"
                      : row == 1 && values->dims[0] != indices->dims[0] ? "i and x shape doesn't match"
                                                                        : NULL;
  if (wrong != NULL) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "%s: %s: x %s, i %s, v %s", node->kernel->row->op, wrong,
             htf_text_of_dims(x->rank, x->dims).text, htf_text_of_dims(indices->rank, indices->dims).text,
             htf_text_of_dims(values->rank, values->dims).text);
  }
  return wrong == NULL;
}

/* Rows of x and of values, at the indices of a vector or at one index. Indices count modulo the rows. */
static void scatter_rows(htf_node *node, const char *mode) {
  htf_value x = htf_input(node, 0), indices = htf_input(node, 1), values = htf_input(node, 2);
  if (!are_rows(node, x, indices, values)) {
    return;
  }
  int64_t count = hr_tensor_count(indices), dims[HR_RANK_MAX] = {count};
  const int64_t tuples[2] = {count, 1};
  memcpy(dims + 1, x->dims + 1, sizeof *dims * (HR_RANK_MAX - 1));
  if (x->dims[0] > 0) {
    indices =
        htf_call2(node, HR_FUNCTIONAL_REMAINDER, htf_cast(node, indices, HR_DTYPE_I64), integer(node, x->dims[0]));
  }
  indices = htf_reshape(node, indices, 2, tuples), values = htf_reshape(node, values, x->rank, dims);
  htf_output(node, 0, scattered(node, x, indices, values, mode, "drop"));
}

void htf_rows_set(htf_node *node) {
  scatter_rows(node, "set");
}

void htf_rows_add(htf_node *node) {
  scatter_rows(node, "add");
}

void htf_rows_sub(htf_node *node) {
  scatter_rows(node, "subtract");
}

/* ---- the largest elements ---- */

/* The first `count` of the sorted elements along an axis, and their places; equal ones in the order of their places. */
static void output_sorted(htf_node *node, htf_value x, int axis, int64_t count, bool largest) {
  int64_t dims[HR_RANK_MAX];
  memcpy(dims, x->dims, sizeof dims);
  dims[axis] = count;
  htf_value results[2];
  if (count_of(x->rank, dims) == 0) {
    results[0] = results[1] = htf_zeros(node, x->rank, dims, x->dtype);
  } else {
    htf_call_many(node, HR_FUNCTIONAL_TOPK, INPUTS(x),
                  ATTRIBUTES(htf_attr_int(count), htf_attr_int(axis), htf_attr_flag(largest)), 2, results);
  }
  htf_output(node, 0, results[0]);
  htf_output(node, 1, results[1]);
}

void htf_top_k(htf_node *node) {
  htf_value x = htf_input(node, 0);
  int64_t k = htf_host_int(node, 1);
  if (!htf_has_failed(node) && k < 0) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "Need k >= 0, got %lld", (long long)k);
  }
  if (!htf_has_failed(node) && (x->rank < 1 || x->dims[x->rank - 1] < k)) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "input must have at least k columns: %lld in an input of %d dims",
             (long long)k, x->rank);
  }
  if (!htf_has_failed(node)) {
    output_sorted(node, x, x->rank - 1, k, true);
  }
}

static int log2_of(int64_t number) {
  int log = 0;
  while (number >> (log + 1) > 0) {
    ++log;
  }
  return log;
}

/* The number of candidates that XLA keeps of `size` elements of a larger input, as TensorFlow's shape function has it:
 * so many windows that a share `recall` of the k largest elements are alone in theirs, in whole tiles.
 */
static int64_t candidate_count(int64_t size, int rank, int64_t k, double recall, int64_t input_size) {
  const int64_t tile = rank == 1 ? 1024 : 128;
  if (size <= tile || recall >= 1) {
    return size;
  }
  if (k == 1) {
    return tile;
  }
  double wanted = (double)(1 - k) / log(recall);
  int64_t windows = wanted > -1 && wanted < (double)size ? (int64_t)wanted : size;
  windows = windows < tile ? tile : windows;
  const int64_t per_window = (input_size < 0 ? size : input_size) / windows, tiles = (size + tile - 1) / tile;
  if (per_window < 2) {
    return size;
  }
  const int most = size < 2 * tile ? 0 : log2_of(size / tile - 1) + 1, wished = log2_of(per_window);
  const int64_t joined = (int64_t)1 << (wished < most ? wished : most);
  return (tiles + joined - 1) / joined * tile;
}

/* True if the node has an axis with k elements. */
static bool check_approximate(htf_node *node, htf_value x, int64_t axis, int64_t k, double recall) {
  if (htf_has_failed(node)) {
    return false;
  }
  const int64_t size = axis >= -x->rank && axis < x->rank ? x->dims[axis < 0 ? axis + x->rank : axis] : -1;
  if (x->rank < 1) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "input must be >= 1-D, got shape []");
  } else if (size < 0) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT,
             "Invalid reduction dimension: %lld. Must be within the range of [%d, %d]", (long long)axis, -x->rank,
             x->rank - 1);
  } else if (!(recall > 0 && recall <= 1)) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "Invalid recall target: %g. Valid value range in : (0, 1.0].", recall);
  } else if (k < 0 || k > size) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "input must have at least k elements in dim %lld. Had %lld, needed %lld",
             (long long)axis, (long long)size, (long long)k);
  }
  return !htf_has_failed(node);
}

/* Exact: the candidates of all windows are the largest elements, or the smallest ones. */
void htf_approximate_top_k(htf_node *node) {
  htf_value x = htf_input(node, 0);
  int64_t axis = htf_integer(node, "reduction_dimension"), k = htf_integer(node, "k");
  const int64_t input_size = htf_integer(node, "reduction_input_size_override");
  const double recall = htf_real(node, "recall_target");
  if (!check_approximate(node, x, axis, k, recall)) {
    return;
  }
  axis += axis < 0 ? x->rank : 0;
  const int64_t size = x->dims[axis];
  int64_t count = k;
  if (!htf_flag(node, "aggregate_to_topk")) {
    count = candidate_count(size, x->rank, k, recall, input_size);
    if (count > size || (input_size >= 0 && input_size < size)) {
      htf_fail(node, HR_STATUS_INVALID_ARGUMENT,
               "reduction_input_size_override: %lld makes %lld candidates of the %lld elements of dim %lld",
               (long long)input_size, (long long)count, (long long)size, (long long)axis);
      return;
    }
  }
  output_sorted(node, x, (int)axis, count, htf_flag(node, "is_max_k"));
}

/* True if fewer than k numbers of the row are larger than the target's; false if one of the row is not finite. */
void htf_in_top_k(htf_node *node) {
  htf_value rows = htf_input(node, 0), targets = htf_input(node, 1), k = htf_input(node, 2);
  if (!htf_has_failed(node) && (rows->rank != 2 || targets->rank != 1 || targets->dims[0] != rows->dims[0])) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "InTopKV2: predictions must be a matrix with a row for each target");
  }
  if (htf_has_failed(node)) {
    return;
  }
  static const int64_t last = 1;
  const int64_t column[2] = {rows->dims[0], 1};
  if (rows->dims[0] == 0 || rows->dims[1] == 0) {
    htf_output(node, 0, htf_zeros(node, 1, rows->dims, HR_DTYPE_BOOL));
    return;
  }
  htf_value places = htf_cast(node, htf_reshape(node, targets, 2, column), HR_DTYPE_I64);
  htf_value wanted = htf_call(node, HR_FUNCTIONAL_TAKE_ALONG_AXIS, INPUTS(rows, places),
                              ATTRIBUTES(htf_attr_int(1), htf_attr_text("drop")));
  htf_value is_class =
      htf_call2(node, HR_FUNCTIONAL_LOGICAL_AND, htf_call2(node, HR_FUNCTIONAL_GREATER_EQUAL, places, integer(node, 0)),
                htf_call2(node, HR_FUNCTIONAL_LESS, places, integer(node, rows->dims[1])));
  htf_value is_finite = htf_call(node, HR_FUNCTIONAL_ALL, INPUTS(htf_call1(node, HR_FUNCTIONAL_ISFINITE, rows)),
                                 ATTRIBUTES(htf_attr_ints(&last, 1)));
  htf_value larger = htf_cast(node, htf_call2(node, HR_FUNCTIONAL_GREATER, rows, wanted), HR_DTYPE_I64);
  htf_value before = htf_call(node, HR_FUNCTIONAL_SUM, INPUTS(larger), ATTRIBUTES(htf_attr_ints(&last, 1)));
  htf_value is_in = htf_call2(node, HR_FUNCTIONAL_LESS, before, k);
  is_class = htf_reshape(node, is_class, 1, rows->dims);
  htf_output(node, 0,
             htf_call2(node, HR_FUNCTIONAL_LOGICAL_AND, is_in,
                       htf_call2(node, HR_FUNCTIONAL_LOGICAL_AND, is_class, is_finite)));
}

/* ---- diagonals: those of a band are rows from the highest to the lowest, aligned to the left or right ---- */

typedef struct band {
  int64_t low, high, rows, columns, length; /* length: of the longest diagonal */
  bool aligns_upper_left, aligns_lower_left;
} band;

/* The range of diagonals, a host argument; input 0: the main diagonal. Before version 3 rows are aligned to the left.
 */
static band read_band(htf_node *node, int input) {
  band b = {.length = 0};
  int64_t range[2] = {0, 0};
  int count = input > 0 ? htf_host_ints(node, input, range, 2) : 1;
  b.low = range[0], b.high = count == 2 ? range[1] : range[0];
  const char *align = htf_text_or(node, "align", "LEFT_LEFT");
  b.aligns_upper_left = strncmp(align, "LEFT_", 5) == 0;
  b.aligns_lower_left = strstr(align, "_LEFT") != NULL;
  if (!htf_has_failed(node) && (count == 0 || b.low > b.high)) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT,
             "%s: lower_diag_index must not be larger than upper_diag_index: %lld, %lld", node->kernel->row->op,
             (long long)b.low, (long long)b.high);
  }
  return b;
}

static int64_t least(int64_t x, int64_t y) {
  return x < y ? x : y;
}

/* Sets the matrices' dims. */
static void set_matrix(htf_node *node, band *b, int64_t rows, int64_t columns) {
  b->rows = rows, b->columns = columns;
  b->length = least(rows + least(b->high, 0), columns - (b->low > 0 ? b->low : 0));
  bool has_low = (-rows < b->low && b->low < columns) || b->low == 0;
  bool has_high = (-rows < b->high && b->high < columns) || b->high == 0;
  if (!htf_has_failed(node) && !(has_low && has_high)) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT,
             "%s: a diagonal of %lld to %lld is out of bound of a matrix of %lld x %lld", node->kernel->row->op,
             (long long)b->low, (long long)b->high, (long long)rows, (long long)columns);
  }
}

/* 0 to count - 1 in i64, as a column or a row. */
static htf_value count_up(htf_node *node, int64_t count, bool is_column) {
  const int64_t dims[2] = {is_column ? count : 1, is_column ? 1 : count};
  htf_value numbers = htf_call(
      node, HR_FUNCTIONAL_ARANGE, 0, NULL,
      ATTRIBUTES(htf_attr_real(0), htf_attr_real((double)count), htf_attr_real(1), htf_attr_dtype(HR_DTYPE_I64)));
  return htf_reshape(node, numbers, 2, dims);
}

static htf_value multiply(htf_node *node, htf_value x, int64_t y) {
  return htf_multiply(node, x, integer(node, y));
}

static htf_value is_between(htf_node *node, htf_value x, int64_t low, htf_value high) {
  return htf_call2(node, HR_FUNCTIONAL_LOGICAL_AND, htf_call2(node, HR_FUNCTIONAL_GREATER_EQUAL, x, integer(node, low)),
                   htf_call2(node, HR_FUNCTIONAL_LESS_EQUAL, x, high));
}

/* The elements of diagonals by their number. */
static htf_value lengths_of(htf_node *node, const band *b, htf_value diagonal) {
  htf_value low = htf_call2(node, HR_FUNCTIONAL_MINIMUM, diagonal, integer(node, 0));
  htf_value high = htf_call2(node, HR_FUNCTIONAL_MAXIMUM, diagonal, integer(node, 0));
  return htf_call2(node, HR_FUNCTIONAL_MINIMUM, htf_add(node, low, integer(node, b->rows)),
                   htf_subtract(node, integer(node, b->columns), high));
}

/* The empty places in front of a diagonal in its row. */
static htf_value shifts_of(htf_node *node, const band *b, htf_value diagonal, htf_value lengths) {
  htf_value room = htf_subtract(node, integer(node, b->length), lengths), none = integer(node, 0);
  htf_value is_upper = htf_call2(node, HR_FUNCTIONAL_GREATER, diagonal, none);
  htf_value is_lower = htf_call2(node, HR_FUNCTIONAL_LESS, diagonal, none);
  htf_value upper = b->aligns_upper_left ? none : room, lower = b->aligns_lower_left ? none : room;
  bool is_main_left = b->aligns_upper_left || b->aligns_lower_left;
  return htf_where(node, is_upper, upper, htf_where(node, is_lower, lower, is_main_left ? none : room));
}

/* x's last dims, from one or two, as one; then elements of it at indices [rows, columns]. */
static htf_value take_last(htf_node *node, htf_value x, int batch_dims, htf_value indices) {
  int64_t dims[HR_RANK_MAX];
  memcpy(dims, x->dims, sizeof dims);
  dims[batch_dims] = count_of(x->rank - batch_dims, x->dims + batch_dims);
  htf_value flat = htf_reshape(node, x, batch_dims + 1, dims);
  return htf_call(node, HR_FUNCTIONAL_TAKE, INPUTS(flat, indices),
                  ATTRIBUTES(htf_attr_int(batch_dims), htf_attr_text("drop")));
}

static void output_diagonals(htf_node *node, band b, htf_value padding) {
  htf_value x = htf_input(node, 0);
  if (!htf_has_failed(node) && x->rank < 2) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "input must be at least 2-dim, received %d dims", x->rank);
  }
  if (htf_has_failed(node)) {
    return;
  }
  int batch = x->rank - 2;
  int64_t dims[HR_RANK_MAX];
  set_matrix(node, &b, x->dims[batch], x->dims[batch + 1]);
  memcpy(dims, x->dims, sizeof dims);
  dims[batch] = b.high - b.low + 1, dims[batch + 1] = b.length;
  if (!htf_has_failed(node) && b.low == b.high) {
    dims[batch] = b.length;
    htf_output(node, 0,
               count_of(batch + 1, dims) == 0
                   ? htf_zeros(node, batch + 1, dims, x->dtype)
                   : htf_call(node, HR_FUNCTIONAL_DIAGONAL, INPUTS(x), ATTRIBUTES(htf_attr_int(b.low))));
    return;
  }
  if (htf_has_failed(node) || count_of(batch + 2, dims) == 0) {
    htf_output(node, 0, htf_zeros(node, batch + 2, dims, x->dtype));
    return;
  }
  htf_value diagonal = htf_subtract(node, integer(node, b.high), count_up(node, b.high - b.low + 1, true));
  htf_value lengths = lengths_of(node, &b, diagonal), none = integer(node, 0);
  htf_value place = htf_subtract(node, count_up(node, b.length, false), shifts_of(node, &b, diagonal, lengths));
  htf_value is_inside = is_between(node, place, 0, htf_subtract(node, lengths, integer(node, 1)));
  htf_value column = htf_add(node, place, htf_call2(node, HR_FUNCTIONAL_MAXIMUM, diagonal, none));
  htf_value row = htf_subtract(node, place, htf_call2(node, HR_FUNCTIONAL_MINIMUM, diagonal, none));
  htf_value index = htf_add(node, multiply(node, row, b.columns), column);
  htf_value taken = take_last(node, x, batch, htf_where(node, is_inside, index, integer(node, -1)));
  htf_output(node, 0, htf_where(node, is_inside, taken, padding));
}

/* Inputs: matrices, the range, the padding. */
void htf_diagonal_part(htf_node *node) {
  htf_value padding = htf_input(node, 2);
  output_diagonals(node, read_band(node, 1), padding);
}

void htf_main_diagonal_part(htf_node *node) {
  output_diagonals(node, read_band(node, 0), NULL);
}

/* Matrices with these diagonals, [.., diagonals, length] or [.., length], and others' elements elsewhere. */
static htf_value place_diagonals(htf_node *node, const band *b, htf_value diagonals, int batch_dims, htf_value others) {
  htf_value column = count_up(node, b->columns, false), row = count_up(node, b->rows, true);
  htf_value diagonal = htf_subtract(node, column, row);
  htf_value is_inside = is_between(node, diagonal, b->low, integer(node, b->high));
  htf_value shift = shifts_of(node, b, diagonal, lengths_of(node, b, diagonal));
  htf_value place = htf_add(node, htf_call2(node, HR_FUNCTIONAL_MINIMUM, row, column), shift);
  htf_value index =
      htf_add(node, multiply(node, htf_subtract(node, integer(node, b->high), diagonal), b->length), place);
  htf_value taken = take_last(node, diagonals, batch_dims, htf_where(node, is_inside, index, integer(node, -1)));
  return htf_where(node, is_inside, taken, others);
}

/* The dims of diagonals that are not batches; fails unless they fit. */
static int batches_of(htf_node *node, const band *b, htf_value diagonals) {
  int batch = diagonals->rank - (b->low == b->high ? 1 : 2);
  bool has_dims = batch >= 0 && (b->low == b->high || diagonals->dims[batch] == b->high - b->low + 1);
  if (!htf_has_failed(node) && diagonals->rank == 0) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "diagonal must be at least 1-dim, received shape: []");
  } else if (!htf_has_failed(node) && !has_dims) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "%s: the number of diagonals is not that of %lld to %lld",
             node->kernel->row->op, (long long)b->low, (long long)b->high);
  }
  return batch;
}

/* Rows and columns are -1: as few as there can be. */
static void output_matrices(htf_node *node, htf_value x, band b, int64_t rows, int64_t columns, htf_value padding) {
  int64_t dims[HR_RANK_MAX];
  int batch = htf_has_failed(node) ? 0 : batches_of(node, &b, x);
  if (htf_has_failed(node)) {
    return;
  }
  int64_t length = x->dims[x->rank - 1];
  int64_t rows_min = length - least(b.high, 0), columns_min = length + (b.low > 0 ? b.low : 0);
  bool is_square = rows == -1 && columns == -1;
  rows = is_square ? (rows_min > columns_min ? rows_min : columns_min) : rows == -1 ? rows_min : rows;
  columns = is_square ? rows : columns == -1 ? columns_min : columns;
  if (rows < rows_min || columns < columns_min || (rows != rows_min && columns != columns_min) ||
      batch + 2 > HR_RANK_MAX) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "%s: the number of rows or columns is not consistent: %lld, %lld",
             node->kernel->row->op, (long long)rows, (long long)columns);
    return;
  }
  b.rows = rows, b.columns = columns, b.length = length; /* diagonals outside of the matrix are left out */
  memcpy(dims, x->dims, sizeof dims);
  dims[batch] = rows, dims[batch + 1] = columns;
  bool is_empty = htf_has_failed(node) || count_of(batch + 2, dims) == 0;
  htf_output(node, 0,
             is_empty ? htf_zeros(node, batch + 2, dims, x->dtype) : place_diagonals(node, &b, x, batch, padding));
}

/* Inputs: diagonals, the range, rows, columns, the padding. */
void htf_diagonal_matrix(htf_node *node) {
  htf_value x = htf_input(node, 0), padding = htf_input(node, 4);
  band b = read_band(node, 1);
  int64_t rows = htf_host_int(node, 2), columns = htf_host_int(node, 3);
  output_matrices(node, x, b, rows, columns, padding);
}

void htf_main_diagonal_matrix(htf_node *node) {
  htf_value x = htf_input(node, 0);
  output_matrices(node, x, read_band(node, 0), -1, -1, integer(node, 0));
}

/* The matrix of all elements of a tensor, on its diagonal, with the tensor's dims twice. */
void htf_diagonal_tensor(htf_node *node) {
  htf_value x = htf_input(node, 0);
  int64_t dims[2 * HR_RANK_MAX], count = htf_has_failed(node) ? 0 : hr_tensor_count(x);
  const int64_t square[2] = {count, count};
  for (int d = 0; d < x->rank; ++d) {
    dims[d] = dims[x->rank + d] = x->dims[d];
  }
  band b = {.rows = count, .columns = count, .length = count, .aligns_upper_left = true, .aligns_lower_left = true};
  htf_value flat = htf_reshape(node, x, 1, &count);
  htf_value matrix =
      count == 0 ? htf_zeros(node, 2, square, x->dtype) : place_diagonals(node, &b, flat, 0, integer(node, 0));
  htf_output(node, 0, htf_reshape(node, matrix, 2 * x->rank, dims));
}

/* Its inverse. */
void htf_diagonal_tensor_part(htf_node *node) {
  htf_value x = htf_input(node, 0);
  int rank = x->rank / 2;
  bool fits = x->rank > 0 && x->rank % 2 == 0 && memcmp(x->dims, x->dims + rank, sizeof *x->dims * (size_t)rank) == 0;
  if (!htf_has_failed(node) && !fits) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "DiagPart: the input must have the same dims twice, it has %d", x->rank);
  }
  if (htf_has_failed(node)) {
    return;
  }
  int64_t count = count_of(rank, x->dims);
  const int64_t square[2] = {count, count};
  htf_value matrix = htf_reshape(node, x, 2, square);
  const int64_t strides[1] = {count + 1};
  htf_output(node, 0, htf_reshape(node, htf_view(node, matrix, 1, &count, strides, matrix->offset), rank, x->dims));
}

static void replace_diagonals(htf_node *node, band b) {
  htf_value x = htf_input(node, 0), diagonals = htf_input(node, 1);
  if (!htf_has_failed(node) && x->rank < 2) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "input must be at least 2-dim, received %d dims", x->rank);
  }
  if (htf_has_failed(node)) {
    return;
  }
  set_matrix(node, &b, x->dims[x->rank - 2], x->dims[x->rank - 1]);
  int batch = batches_of(node, &b, diagonals);
  if (!htf_has_failed(node) && (batch != x->rank - 2 || diagonals->dims[diagonals->rank - 1] != b.length ||
                                memcmp(diagonals->dims, x->dims, sizeof *x->dims * (size_t)batch) != 0)) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT,
             "first dimensions of diagonal don't match the first dims of input: %s, input %s",
             htf_text_of_dims(diagonals->rank, diagonals->dims).text, htf_text_of_dims(x->rank, x->dims).text);
  }
  if (!htf_has_failed(node)) {
    htf_output(node, 0, hr_tensor_count(x) == 0 ? x : place_diagonals(node, &b, diagonals, batch, x));
  }
}

/* Inputs: matrices, diagonals, the range. */
void htf_set_diagonals(htf_node *node) {
  replace_diagonals(node, read_band(node, 2));
}

void htf_set_main_diagonal(htf_node *node) {
  replace_diagonals(node, read_band(node, 0));
}

void htf_band_part(htf_node *node) {
  htf_value x = htf_input(node, 0);
  int64_t lower = htf_host_int(node, 1), upper = htf_host_int(node, 2);
  if (!htf_has_failed(node) && (x->rank < 2 || lower > x->dims[x->rank - 2] || upper > x->dims[x->rank - 1])) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT,
             "num_lower and num_upper must be negative or at most the numbers of rows and columns: %lld, %lld",
             (long long)lower, (long long)upper);
  }
  htf_output(node, 0,
             htf_call(node, HR_FUNCTIONAL_BAND_PART, INPUTS(x), ATTRIBUTES(htf_attr_int(lower), htf_attr_int(upper))));
}
