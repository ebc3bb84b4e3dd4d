/* ops_shape.c: rules of conversion, filling, the order of elements, and joins. */
#include <math.h>
#include <string.h>

#include "node.h"
#include "ops_windows.h"

/* ---- conversion and filling ---- */

void htf_convert(htf_node *node) {
  hr_dtype dtype = htf_output_dtype(node, 0);
  htf_value x = htf_input(node, 0);
  if (dtype == HR_DTYPE_F8E4M3FN && x->dtype != dtype) { /* too large numbers are NaN, the core's are the largest one */
    x = htf_cast(node, x, x->dtype == HR_DTYPE_F64 ? HR_DTYPE_F64 : HR_DTYPE_F32);
    htf_value is_small =
        htf_call2(node, HR_FUNCTIONAL_LESS_EQUAL, htf_call1(node, HR_FUNCTIONAL_ABS, x), htf_number(node, 464));
    x = htf_where(node, is_small, x, htf_number(node, NAN));
  }
  htf_output(node, 0, htf_cast(node, x, dtype));
}

/* TensorFlow has the elements of a smaller dtype as a last dim. */
void htf_bitcast(htf_node *node) {
  htf_value x = htf_input(node, 0);
  hr_dtype dtype = htf_output_dtype(node, 0);
  if (htf_has_failed(node)) {
    return;
  }
  size_t from = hr_dtype_size(x->dtype), to = hr_dtype_size(dtype);
  int64_t dims[HR_RANK_MAX + 1];
  memcpy(dims, x->dims, sizeof x->dims);
  int rank = x->rank;
  if (from > to) {
    dims[rank++] = (int64_t)(from / to);
  } else if (from < to && (rank == 0 || dims[--rank] != (int64_t)(to / from))) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "Cannot bitcast from %d to %d, %s to %s: the last dim must be %zu",
             htf_dtype_from(x->dtype), htf_dtype_from(dtype), hr_dtype_name(x->dtype), hr_dtype_name(dtype), to / from);
    return;
  }
  int64_t flat[2] = {hr_tensor_count(x), 1};
  htf_value vector = htf_reshape(node, x, 1, flat);
  htf_value y = htf_call(node, HR_FUNCTIONAL_BITCAST, INPUTS(vector), ATTRIBUTES(htf_attr_dtype(dtype)));
  htf_output(node, 0, htf_reshape(node, y, rank, dims));
}

void htf_fill(htf_node *node) {
  int64_t dims[HR_RANK_MAX];
  int rank = htf_read_dims(node, 0, dims);
  htf_value value = htf_input(node, 1);
  if (!htf_has_failed(node) && value->rank != 0) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "Fill: the value must be a scalar, it has %d dims", value->rank);
  }
  htf_output(node, 0, htf_broadcast(node, value, rank, dims));
}

void htf_broadcast_to(htf_node *node) {
  int64_t dims[HR_RANK_MAX];
  htf_value x = htf_input(node, 0);
  int rank = htf_read_dims(node, 1, dims);
  bool fits = htf_has_failed(node) || x->rank <= rank, are_compatible = true;
  for (int d = 1; !htf_has_failed(node) && d <= x->rank && d <= rank; ++d) {
    int64_t from = x->dims[x->rank - d], to = dims[rank - d];
    fits = fits && (from == to || from == 1);
    are_compatible = are_compatible && (from == to || from == 1 || to == 1);
  }
  if (!fits) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT,
             are_compatible ? "Unable to broadcast tensor of shape %s to tensor of shape %s"
                            : "Incompatible shapes: %s vs. %s",
             htf_text_of_dims(x->rank, x->dims).text, htf_text_of_dims(rank, dims).text);
  }
  htf_output(node, 0, htf_broadcast(node, x, rank, dims));
}

static void output_range(htf_node *node, double start, double stop, double step) {
  htf_output(node, 0,
             htf_call(node, HR_FUNCTIONAL_ARANGE, 0, NULL,
                      ATTRIBUTES(htf_attr_real(start), htf_attr_real(stop), htf_attr_real(step),
                                 htf_attr_dtype(htf_output_dtype(node, 0)))));
}

/* Of numbers that are not subnormal. */
static double rounded(hr_dtype dtype, double number) {
  int bits = dtype == HR_DTYPE_F16 ? 11 : dtype == HR_DTYPE_BF16 ? 8 : dtype == HR_DTYPE_F32 ? 24 : 53, exponent;
  double fraction = frexp(number, &exponent);
  return ldexp(nearbyint(ldexp(fraction, bits)), exponent - bits);
}

/* The quotient that counts elements is rounded to the dtype, as TensorFlow's is. */
static void range_of_reals(htf_node *node) {
  double start = htf_host_real(node, 0), limit = htf_host_real(node, 1), step = htf_host_real(node, 2);
  bool is_range = step != 0 && (step > 0 ? start <= limit : start >= limit);
  const hr_dtype dtype = htf_output_dtype(node, 0);
  double count = is_range ? rounded(dtype, rounded(dtype, limit - start) / step) : 0;
  if (!htf_has_failed(node) && !(is_range && count < (double)INT64_MAX)) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "Range: start %g, limit %g and delta %g make no range", start, limit,
             step);
  }
  if (!htf_has_failed(node)) {
    /* Half a step less, so that a sum's rounding gives no further element. */
    output_range(node, start, count > 0 ? start + (ceil(count) - 0.5) * step : start, step);
  }
}

/* Inputs: start, limit and step, numbers of the host. */
void htf_range(htf_node *node) {
  if (htf_output_dtype(node, 0) != HR_DTYPE_I64) {
    range_of_reals(node);
    return;
  }
  int64_t start = htf_host_int(node, 0), limit = htf_host_int(node, 1), step = htf_host_int(node, 2);
  if (!htf_has_failed(node) && (step == 0 || (step > 0 ? start > limit : start < limit))) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "Range: start %lld, limit %lld and delta %lld make no range",
             (long long)start, (long long)limit, (long long)step);
  }
  if (htf_has_failed(node)) {
    return;
  }
  int64_t span = step > 0 ? limit - start : start - limit, by = step > 0 ? step : -step;
  double count = (double)(span / by + (span % by != 0));
  output_range(node, (double)start, (double)start + count * (double)step, (double)step);
}

void htf_empty(htf_node *node) {
  int64_t dims[HR_RANK_MAX];
  int rank = htf_read_dims(node, 0, dims);
  hr_dtype dtype = htf_output_dtype(node, 0);
  htf_output(node, 0,
             htf_call(node, HR_FUNCTIONAL_FULL, INPUTS(htf_number_of(node, hr_scalar_i64(0))),
                      ATTRIBUTES(htf_attr_ints(dims, rank), htf_attr_dtype(dtype))));
}

/* ---- order ---- */

/* The first number below rank that none of the axes is, or -1. */
static int find_missing(const int64_t *order, int rank) {
  for (int d = 0; d < rank; ++d) {
    int i = 0;
    while (i < rank && order[i] != d && order[i] + rank != d) {
      ++i;
    }
    if (i == rank) {
      return d;
    }
  }
  return -1;
}

/* x with its dims in the order of input 1. The errors have TensorFlow's words. */
static htf_value transpose_by_host(htf_node *node) {
  int64_t order[HR_RANK_MAX], dims[HR_RANK_MAX];
  htf_value x = htf_input(node, 0);
  int rank = htf_host_dims(node, 1, dims), count = htf_host_ints(node, 1, order, HR_RANK_MAX);
  if (!htf_has_failed(node) && rank != 1) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "perm must be rank 1, got %d dims", rank);
  } else if (!htf_has_failed(node) && count != x->rank) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT,
             "transpose expects a vector of size %d. But input(1) is a vector of size %d", x->rank, count);
  }
  for (int i = 0; i < count && !htf_has_failed(node); ++i) {
    if (order[i] < -count || order[i] >= count) {
      htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "%lld is out of range [0 .. %d)", (long long)order[i], count);
    }
  }
  if (!htf_has_failed(node) && find_missing(order, count) >= 0) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "%d is missing from perm, which has an axis twice",
             find_missing(order, count));
  }
  return htf_call(node, HR_FUNCTIONAL_PERMUTE_DIMS, INPUTS(x), ATTRIBUTES(htf_attr_ints(order, count)));
}

void htf_transpose_dims(htf_node *node) {
  htf_output(node, 0, transpose_by_host(node));
}

void htf_conjugate_transpose(htf_node *node) {
  htf_value y = transpose_by_host(node);
  bool is_complex = y->dtype == HR_DTYPE_C64 || y->dtype == HR_DTYPE_C128;
  htf_output(node, 0, is_complex ? htf_call1(node, HR_FUNCTIONAL_CONJ, y) : y);
}

/* Inputs: x, how far, and the axes, of which one may occur several times. */
void htf_roll(htf_node *node) {
  int64_t shifts[HTF_LIST_MAX], axes[HTF_LIST_MAX];
  htf_value x = htf_input(node, 0);
  int count = htf_host_ints(node, 1, shifts, HTF_LIST_MAX), axis_count = htf_host_ints(node, 2, axes, HTF_LIST_MAX);
  int64_t dims[HR_RANK_MAX];
  const char *wrong = x->rank < 1                        ? "input must be 1-D or higher"
                      : htf_host_dims(node, 1, dims) > 1 ? "shift must be a scalar or a 1-D vector"
                      : htf_host_dims(node, 2, dims) > 1 ? "axis must be a scalar or a 1-D vector"
                      : count != axis_count              ? "shift and axis must have the same size"
                                                         : NULL;
  if (!htf_has_failed(node) && wrong != NULL) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "%s: the input has %d dims, shift %d numbers, axis %d", wrong, x->rank,
             count, axis_count);
  }
  for (int i = 0; i < count && !htf_has_failed(node); ++i) {
    int64_t axis = axes[i] + (axes[i] < 0 ? x->rank : 0);
    if (axis < 0 || axis >= x->rank) {
      htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "axis %lld is out of range", (long long)axes[i]);
    } else if (hr_tensor_count(x) > 0) {
      x = htf_call(node, HR_FUNCTIONAL_ROLL, INPUTS(x),
                   ATTRIBUTES(htf_attr_int(shifts[i] % x->dims[axis]), htf_attr_int(axis)));
    }
  }
  htf_output(node, 0, x);
}

static void check_reversed(htf_node *node, htf_value x, htf_value lengths, int64_t axis, int64_t batch) {
  if (htf_has_failed(node)) {
    return;
  }
  if (lengths->rank != 1) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "ReverseSequence: seq_lengths must be 1-dim, not %d", lengths->rank);
  } else if (axis == batch) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "ReverseSequence: batch_dim == seq_dim == %lld", (long long)axis);
  } else if (axis < 0 || axis >= x->rank || batch < 0 || batch >= x->rank) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "ReverseSequence: %s must be < input rank: %lld and %lld for %d dims",
             axis < 0 || axis >= x->rank ? "seq_dim" : "batch_dim", (long long)axis, (long long)batch, x->rank);
  } else if (lengths->dims[0] != x->dims[batch]) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT,
             "ReverseSequence: Length of seq_lengths != input.dims(%lld): it must be a vector of %lld",
             (long long)batch, (long long)x->dims[batch]);
  }
}

/* The first elements of an axis, as many as a length for each element of another axis, in the other direction. */
void htf_reverse_sequence(htf_node *node) {
  htf_value x = htf_input(node, 0), lengths = htf_input(node, 1);
  int64_t axis = htf_integer(node, "seq_dim"), batch = htf_integer(node, "batch_dim");
  check_reversed(node, x, lengths, axis, batch);
  if (htf_has_failed(node) || hr_tensor_count(x) == 0) {
    htf_output(node, 0, x);
    return;
  }
  int64_t steps[HR_RANK_MAX], rows[HR_RANK_MAX];
  for (int d = 0; d < x->rank; ++d) {
    steps[d] = d == axis ? x->dims[d] : 1, rows[d] = d == batch ? x->dims[d] : 1;
  }
  htf_value place = htf_call(node, HR_FUNCTIONAL_ARANGE, 0, NULL,
                             ATTRIBUTES(htf_attr_real(0), htf_attr_real((double)x->dims[axis]), htf_attr_real(1),
                                        htf_attr_dtype(HR_DTYPE_I64)));
  place = htf_reshape(node, place, x->rank, steps);
  htf_value length = htf_reshape(node, htf_cast(node, lengths, HR_DTYPE_I64), x->rank, rows);
  htf_value last = htf_subtract(node, length, htf_number_of(node, hr_scalar_i64(1)));
  htf_value source =
      htf_where(node, htf_call2(node, HR_FUNCTIONAL_LESS, place, length), htf_subtract(node, last, place), place);
  htf_output(node, 0,
             htf_call(node, HR_FUNCTIONAL_TAKE_ALONG_AXIS, INPUTS(x, htf_broadcast(node, source, x->rank, x->dims)),
                      ATTRIBUTES(htf_attr_int(axis), htf_attr_text("drop"))));
}

void htf_reverse(htf_node *node) {
  int64_t axes[HR_RANK_MAX];
  htf_value x = htf_input(node, 0);
  int count = htf_host_ints(node, 1, axes, HR_RANK_MAX);
  bool is_reversed[HR_RANK_MAX] = {false};
  for (int i = 0; i < count && !htf_has_failed(node); ++i) {
    int axis = htf_resolve_axis(node, x, axes[i]);
    if (!htf_has_failed(node) && is_reversed[axis]) {
      htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "ReverseV2: axis %d specified more than once", axis);
    } else if (!htf_has_failed(node)) {
      is_reversed[axis] = true;
    }
  }
  htf_output(node, 0,
             count == 0 ? x : htf_call(node, HR_FUNCTIONAL_FLIP, INPUTS(x), ATTRIBUTES(htf_attr_ints(axes, count))));
}

/* Input 1: of each dim, if it is reversed. */
void htf_reverse_flagged(htf_node *node) {
  int64_t flags[HR_RANK_MAX], axes[HR_RANK_MAX];
  htf_value x = htf_input(node, 0);
  int count = htf_host_ints(node, 1, flags, HR_RANK_MAX), reversed = 0;
  if (!htf_has_failed(node) && count != x->rank) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT,
             "'dims' must have the same number of values as 'input' has dimensions: %d, %d", count, x->rank);
  }
  for (int d = 0; d < count; ++d) {
    axes[reversed] = d, reversed += flags[d] != 0;
  }
  htf_output(node, 0,
             reversed == 0 ? x
                           : htf_call(node, HR_FUNCTIONAL_FLIP, INPUTS(x), ATTRIBUTES(htf_attr_ints(axes, reversed))));
}

/* ---- joins ---- */

enum { PIECES_INLINE = 64 };

/* Joins inputs 0 to count - 1. */
static void join(htf_node *node, int count, int64_t axis) {
  htf_value pieces[PIECES_INLINE], joined = NULL;
  int filled = 0;
  for (int i = 0; i < count; ++i) {
    pieces[filled++] = htf_input(node, i);
    bool is_full = filled == PIECES_INLINE || i + 1 == count;
    if (is_full) { /* the first of the next pieces is what was joined until here */
      joined = htf_call(node, HR_FUNCTIONAL_CONCAT, filled, pieces, ATTRIBUTES(htf_attr_int(axis)));
      pieces[0] = joined, filled = 1;
    }
  }
  htf_output(node, 0, joined);
}

void htf_concat_v2(htf_node *node) {
  int count = htf_input_count(node) - 1;
  join(node, count, htf_host_int(node, count));
}

void htf_concat_first(htf_node *node) {
  enum { INPUTS_MAX = 64 };
  htf_value pieces[INPUTS_MAX];
  int count = htf_input_count(node) - 1;
  int64_t axis = htf_host_int(node, 0);
  if (count > INPUTS_MAX) {
    htf_fail(node, HR_STATUS_UNIMPLEMENTED, "Concat: at most %d values are supported, not %d", INPUTS_MAX, count);
    return;
  }
  for (int i = 0; i < count; ++i) {
    pieces[i] = htf_input(node, i + 1);
  }
  htf_output(node, 0, htf_call(node, HR_FUNCTIONAL_CONCAT, count, pieces, ATTRIBUTES(htf_attr_int(axis))));
}

void htf_pack(htf_node *node) {
  int64_t axis = htf_integer(node, "axis");
  htf_value pieces[PIECES_INLINE], first = NULL, joined = NULL;
  int count = htf_input_count(node), filled = 0;
  for (int i = 0; i < count; ++i) {
    htf_value x = htf_input(node, i);
    first = i == 0 ? x : first;
    if (!htf_has_failed(node) && !htf_has_dims(x, first->rank, first->dims)) {
      htf_fail(node, HR_STATUS_INVALID_ARGUMENT,
               "Pack: Shapes of all inputs must match: values[0] and values[%d] differ", i);
    }
    pieces[filled++] = htf_expand(node, x, axis);
    if (filled == PIECES_INLINE || i + 1 == count) {
      joined = htf_call(node, HR_FUNCTIONAL_CONCAT, filled, pieces,
                        ATTRIBUTES(htf_attr_int(axis < 0 ? axis + pieces[0]->rank : axis)));
      pieces[0] = joined, filled = 1;
    }
  }
  htf_output(node, 0, joined);
}
