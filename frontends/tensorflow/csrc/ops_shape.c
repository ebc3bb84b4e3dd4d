/* ops_shape.c: rules that move elements: conversion, filling, slices, joins, gathers. */
#include <math.h>
#include <string.h>

#include "slots.h"

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
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "Cannot bitcast from %s to %s: the last dim must be %zu",
             hr_dtype_name(x->dtype), hr_dtype_name(dtype), to / from);
    return;
  }
  int64_t flat[2] = {hr_tensor_count(x), 1};
  htf_value vector = htf_reshape(node, x, 1, flat);
  htf_value y = htf_call(node, HR_FUNCTIONAL_BITCAST, INPUTS(vector), ATTRIBUTES(htf_attr_dtype(dtype)));
  htf_output(node, 0, htf_reshape(node, y, rank, dims));
}

static htf_value broadcast(htf_node *node, htf_value x, int rank, const int64_t *dims) {
  return htf_call(node, HR_FUNCTIONAL_BROADCAST_TO, INPUTS(x), ATTRIBUTES(htf_attr_ints(dims, rank)));
}

/* Dims of a host argument; a negative one is InvalidArgumentError. */
static int read_dims(htf_node *node, int input, int64_t *out_dims) {
  int rank = htf_host_ints(node, input, out_dims, HR_RANK_MAX);
  for (int d = 0; d < rank; ++d) {
    if (out_dims[d] < 0) {
      htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "%s: dim %d is %lld, it must not be negative", node->kernel->row->op,
               d, (long long)out_dims[d]);
    }
  }
  return rank;
}

void htf_fill(htf_node *node) {
  int64_t dims[HR_RANK_MAX];
  int rank = read_dims(node, 0, dims);
  htf_value value = htf_input(node, 1);
  if (!htf_has_failed(node) && value->rank != 0) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "Fill: the value must be a scalar, it has %d dims", value->rank);
  }
  htf_output(node, 0, broadcast(node, value, rank, dims));
}

void htf_broadcast_to(htf_node *node) {
  int64_t dims[HR_RANK_MAX];
  htf_value x = htf_input(node, 0);
  int rank = read_dims(node, 1, dims);
  htf_output(node, 0, broadcast(node, x, rank, dims));
}

/* ---- order ---- */

void htf_transpose_dims(htf_node *node) {
  int64_t order[HR_RANK_MAX];
  htf_value x = htf_input(node, 0);
  int count = htf_host_ints(node, 1, order, HR_RANK_MAX);
  htf_output(node, 0, htf_call(node, HR_FUNCTIONAL_PERMUTE_DIMS, INPUTS(x), ATTRIBUTES(htf_attr_ints(order, count))));
}

void htf_conjugate_transpose(htf_node *node) {
  int64_t order[HR_RANK_MAX];
  htf_value x = htf_input(node, 0);
  int count = htf_host_ints(node, 1, order, HR_RANK_MAX);
  htf_value y = htf_call(node, HR_FUNCTIONAL_PERMUTE_DIMS, INPUTS(x), ATTRIBUTES(htf_attr_ints(order, count)));
  bool is_complex = x->dtype == HR_DTYPE_C64 || x->dtype == HR_DTYPE_C128;
  htf_output(node, 0, is_complex ? htf_call1(node, HR_FUNCTIONAL_CONJ, y) : y);
}

/* Inputs: x, how far, and the axes, of which one may occur several times. */
void htf_roll(htf_node *node) {
  int64_t shifts[HTF_LIST_MAX], axes[HTF_LIST_MAX];
  htf_value x = htf_input(node, 0);
  int count = htf_host_ints(node, 1, shifts, HTF_LIST_MAX), axis_count = htf_host_ints(node, 2, axes, HTF_LIST_MAX);
  if (!htf_has_failed(node) && (x->rank < 1 || count != axis_count)) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT,
             "shift and axis must have the same size, and the input a dim: %d, %d, %d", count, axis_count, x->rank);
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

/* The first elements of an axis, as many as a length for each element of another axis, in the other direction. */
void htf_reverse_sequence(htf_node *node) {
  htf_value x = htf_input(node, 0), lengths = htf_input(node, 1);
  int64_t axis = htf_integer(node, "seq_dim"), batch = htf_integer(node, "batch_dim");
  bool fits = !htf_has_failed(node) && axis >= 0 && axis < x->rank && batch >= 0 && batch < x->rank && axis != batch &&
              lengths->rank == 1 && lengths->dims[0] == x->dims[batch];
  if (!fits) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT,
             "ReverseSequence: seq_dim %lld and batch_dim %lld must be two dims of the input, with a length for each "
             "element of the second one",
             (long long)axis, (long long)batch);
  }
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
             htf_call(node, HR_FUNCTIONAL_TAKE_ALONG_AXIS, INPUTS(x, broadcast(node, source, x->rank, x->dims)),
                      ATTRIBUTES(htf_attr_int(axis), htf_attr_text("drop"))));
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
  int rank = read_dims(node, 0, dims);
  hr_dtype dtype = htf_output_dtype(node, 0);
  htf_output(node, 0,
             htf_call(node, HR_FUNCTIONAL_FULL, INPUTS(htf_number_of(node, hr_scalar_i64(0))),
                      ATTRIBUTES(htf_attr_ints(dims, rank), htf_attr_dtype(dtype))));
}

void htf_cross(htf_node *node) {
  htf_value x = htf_input(node, 0), y = htf_input(node, 1);
  bool fits = htf_has_failed(node) || (x->rank >= 1 && x->rank == y->rank && x->dims[x->rank - 1] == 3 &&
                                       memcmp(x->dims, y->dims, sizeof *x->dims * (size_t)x->rank) == 0);
  if (!fits) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT,
             "Cross-products are only defined for 3-element vectors of the same dims.");
  }
  htf_output(node, 0,
             hr_tensor_count(x) == 0 ? x
                                     : htf_call(node, HR_FUNCTIONAL_CROSS, INPUTS(x, y), ATTRIBUTES(htf_attr_int(-1))));
}

void htf_reverse(htf_node *node) {
  int64_t axes[HR_RANK_MAX];
  htf_value x = htf_input(node, 0);
  int count = htf_host_ints(node, 1, axes, HR_RANK_MAX);
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

static htf_value expand(htf_node *node, htf_value x, int64_t axis) {
  return htf_call(node, HR_FUNCTIONAL_EXPAND_DIMS, INPUTS(x), ATTRIBUTES(htf_attr_ints(&axis, 1)));
}

void htf_pack(htf_node *node) {
  int64_t axis = htf_integer(node, "axis");
  htf_value pieces[PIECES_INLINE], joined = NULL;
  int count = htf_input_count(node), filled = 0;
  for (int i = 0; i < count; ++i) {
    pieces[filled++] = expand(node, htf_input(node, i), axis);
    if (filled == PIECES_INLINE || i + 1 == count) {
      joined = htf_call(node, HR_FUNCTIONAL_CONCAT, filled, pieces,
                        ATTRIBUTES(htf_attr_int(axis < 0 ? axis + pieces[0]->rank : axis)));
      pieces[0] = joined, filled = 1;
    }
  }
  htf_output(node, 0, joined);
}

/* ---- slices ---- */

/* An axis from 0 on; InvalidArgumentError if it is none. */
static int resolve_axis(htf_node *node, htf_value x, int64_t axis) {
  if (!htf_has_failed(node) && (axis < -x->rank || axis >= x->rank)) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "%s: axis %lld is out of range for %d dims", node->kernel->row->op,
             (long long)axis, x->rank);
  }
  return (int)(axis < 0 ? axis + x->rank : axis);
}

/* `count` elements of an axis from `begin` on. */
static htf_value part_of(htf_node *node, htf_value x, int axis, int64_t begin, int64_t count) {
  int64_t dims[HR_RANK_MAX];
  memcpy(dims, x->dims, sizeof dims);
  dims[axis] = count;
  int64_t offset = x->offset + (count > 0 ? begin * x->strides[axis] : 0);
  return htf_view(node, x, x->rank, dims, x->strides, offset);
}

void htf_unpack(htf_node *node) {
  htf_value x = htf_input(node, 0);
  int axis = resolve_axis(node, x, htf_integer(node, "axis")), count = htf_output_count(node);
  int64_t dims[HR_RANK_MAX], strides[HR_RANK_MAX];
  if (!htf_has_failed(node) && x->dims[axis] != count) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "Unpack: dim %d has %lld elements, not %d", axis,
             (long long)x->dims[axis], count);
  }
  for (int d = 0, to = 0; d < x->rank; ++d) {
    if (d != axis) {
      dims[to] = x->dims[d], strides[to++] = x->strides[d];
    }
  }
  for (int i = 0; i < count && !htf_has_failed(node); ++i) {
    htf_output(node, i, htf_view(node, x, x->rank - 1, dims, strides, x->offset + i * x->strides[axis]));
  }
}

void htf_split(htf_node *node) {
  htf_value x = htf_input(node, 1);
  int axis = resolve_axis(node, x, htf_host_int(node, 0)), count = htf_output_count(node);
  if (!htf_has_failed(node) && x->dims[axis] % count != 0) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "Split: dim %d of %lld elements can't be split in %d", axis,
             (long long)x->dims[axis], count);
  }
  for (int i = 0; i < count && !htf_has_failed(node); ++i) {
    int64_t size = x->dims[axis] / count;
    htf_output(node, i, part_of(node, x, axis, i * size, size));
  }
}

enum { PARTS_MAX = 1024 };

/* The sizes of an axis' parts; one may be -1, which is the rest. */
static void check_parts(htf_node *node, int64_t *sizes, int count, int axis, int64_t size) {
  int64_t sum = 0;
  int open = -1, bad = -1;
  for (int i = 0; i < count; ++i) {
    bool is_open = sizes[i] == -1 && open < 0;
    open = is_open ? i : open;
    bad = !is_open && (sizes[i] < 0 || sizes[i] > size - sum) ? i : bad;
    sum += is_open || bad >= 0 ? 0 : sizes[i];
  }
  if (open >= 0 && bad < 0) {
    sizes[open] = size - sum, sum = size;
  }
  if (bad >= 0 || sum != size || count != htf_output_count(node)) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT,
             "SplitV: %d sizes (the first is %lld) for %d parts of dim %d, which has %lld", count,
             (long long)(count > 0 ? sizes[0] : 0), htf_output_count(node), axis, (long long)size);
  }
}

void htf_split_v(htf_node *node) {
  htf_value x = htf_input(node, 0);
  int64_t sizes[PARTS_MAX], begin = 0;
  int count = htf_host_ints(node, 1, sizes, PARTS_MAX);
  int axis = resolve_axis(node, x, htf_host_int(node, 2));
  if (!htf_has_failed(node)) {
    check_parts(node, sizes, count, axis, x->dims[axis]);
  }
  for (int i = 0; i < count && !htf_has_failed(node); ++i) {
    htf_output(node, i, part_of(node, x, axis, begin, sizes[i]));
    begin += sizes[i];
  }
}

void htf_slice(htf_node *node) {
  htf_value x = htf_input(node, 0);
  int64_t begin[HR_RANK_MAX], size[HR_RANK_MAX], offset = x->offset;
  int count = htf_host_ints(node, 1, begin, HR_RANK_MAX), sizes = htf_host_ints(node, 2, size, HR_RANK_MAX);
  if (!htf_has_failed(node) && (count != x->rank || sizes != x->rank)) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "Slice: begin and size must have %d numbers, they have %d and %d",
             x->rank, count, sizes);
  }
  for (int d = 0; d < x->rank && !htf_has_failed(node); ++d) {
    size[d] = size[d] == -1 ? x->dims[d] - begin[d] : size[d];
    if (begin[d] < 0 || size[d] < 0 || size[d] > x->dims[d] - begin[d]) {
      htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "Slice: begin %lld and size %lld leave dim %d of %lld elements",
               (long long)begin[d], (long long)size[d], d, (long long)x->dims[d]);
    }
    offset += begin[d] * x->strides[d];
  }
  if (!htf_has_failed(node)) {
    htf_value y = htf_view(node, x, x->rank, size, x->strides, x->offset);
    htf_output(node, 0, hr_tensor_count(y) > 0 ? htf_view(node, x, x->rank, size, x->strides, offset) : y);
  }
}

/* ---- strided slices ---- */

/* A slice of a tensor: begin, count and step of each of its dims, and the dims of the result, whose source is -1 for a
 * new one. */
typedef struct strided {
  int64_t begin[HR_RANK_MAX], count[HR_RANK_MAX], step[HR_RANK_MAX];
  bool is_dropped[HR_RANK_MAX];
  int rank, source[HR_RANK_MAX];
} strided;

typedef struct slice_spec {
  int64_t begin[HR_RANK_MAX], end[HR_RANK_MAX], step[HR_RANK_MAX];
  int count;
  int64_t begin_mask, end_mask, ellipsis, new_axis, shrink;
} slice_spec;

static slice_spec read_spec(htf_node *node, int first) {
  slice_spec spec = {.begin_mask = htf_integer(node, "begin_mask"),
                     .end_mask = htf_integer(node, "end_mask"),
                     .ellipsis = htf_integer(node, "ellipsis_mask"),
                     .new_axis = htf_integer(node, "new_axis_mask"),
                     .shrink = htf_integer(node, "shrink_axis_mask")};
  spec.count = htf_host_ints(node, first, spec.begin, HR_RANK_MAX);
  int ends = htf_host_ints(node, first + 1, spec.end, HR_RANK_MAX);
  int steps = htf_host_ints(node, first + 2, spec.step, HR_RANK_MAX);
  if (!htf_has_failed(node) && (ends != spec.count || steps != spec.count)) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "%s: begin, end and strides have %d, %d and %d numbers",
             node->kernel->row->op, spec.count, ends, steps);
  }
  return spec;
}

static int64_t clamp(int64_t x, int64_t low, int64_t high) {
  return x < low ? low : x > high ? high : x;
}

/* Entry i of the spec, for dim d of `size` elements. */
static void slice_dim(htf_node *node, const slice_spec *spec, int i, int64_t size, int d, strided *slice) {
  int64_t step = spec->step[i], begin = spec->begin[i], end = spec->end[i];
  begin += begin < 0 ? size : 0, end += end < 0 ? size : 0;
  if (step == 0) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "%s: strides[%d] must be non-zero", node->kernel->row->op, i);
    return;
  }
  if ((spec->shrink >> i & 1) != 0) {
    if (begin < 0 || begin >= size) {
      htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "slice index %lld of dimension %d out of bounds.",
               (long long)spec->begin[i], d);
    }
    slice->begin[d] = begin, slice->count[d] = 1, slice->step[d] = 1;
    return;
  }
  int64_t low = step > 0 ? 0 : -1, high = step > 0 ? size : size - 1;
  begin = (spec->begin_mask >> i & 1) != 0 ? (step > 0 ? low : high) : clamp(begin, low, high);
  end = (spec->end_mask >> i & 1) != 0 ? (step > 0 ? high : low) : clamp(end, low, high);
  int64_t span = step > 0 ? end - begin : begin - end, by = step > 0 ? step : -step;
  slice->begin[d] = begin, slice->step[d] = step, slice->count[d] = span > 0 ? (span - 1) / by + 1 : 0;
}

static void whole_dim(strided *slice, int d, int64_t size) {
  slice->begin[d] = 0, slice->count[d] = size, slice->step[d] = 1;
  slice->source[slice->rank++] = d;
}

static strided resolve_slice(htf_node *node, const slice_spec *spec, int rank, const int64_t *dims) {
  strided slice = {.rank = 0};
  int d = 0, used = 0;
  bool had_ellipsis = false;
  for (int i = 0; i < spec->count; ++i) {
    used += (spec->new_axis >> i & 1) == 0 && (spec->ellipsis >> i & 1) == 0;
  }
  if ((spec->ellipsis & (spec->ellipsis - 1)) != 0) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "Multiple ellipses in slice spec not allowed");
  }
  if (used > rank && rank == 0) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "Attempting to slice scalar input.");
  } else if (used > rank || rank + spec->count > HR_RANK_MAX) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "Index out of range using input dim %d; input has only %d dims", rank,
             rank);
  }
  for (int i = 0; i < spec->count && !htf_has_failed(node); ++i) {
    if ((spec->ellipsis >> i & 1) != 0) {
      for (int n = rank - used; n > 0; --n, ++d) {
        whole_dim(&slice, d, dims[d]);
      }
      had_ellipsis = true;
    } else if ((spec->new_axis >> i & 1) != 0) {
      slice.source[slice.rank++] = -1;
    } else {
      slice_dim(node, spec, i, dims[d], d, &slice);
      if ((spec->shrink >> i & 1) == 0) {
        slice.source[slice.rank++] = d;
      }
      ++d;
    }
  }
  for (; d < rank && !had_ellipsis && !htf_has_failed(node); ++d) {
    whole_dim(&slice, d, dims[d]);
  }
  return slice;
}

void htf_strided_slice(htf_node *node) {
  htf_value x = htf_input(node, 0);
  slice_spec spec = read_spec(node, 1);
  strided slice = resolve_slice(node, &spec, x->rank, x->dims);
  int64_t dims[HR_RANK_MAX], strides[HR_RANK_MAX], offset = x->offset, count = 1;
  for (int d = 0; d < slice.rank; ++d) {
    int from = slice.source[d];
    dims[d] = from < 0 ? 1 : slice.count[from], strides[d] = from < 0 ? 1 : x->strides[from] * slice.step[from];
    count *= dims[d];
  }
  for (int d = 0; d < x->rank && count > 0 && !htf_has_failed(node); ++d) {
    offset += slice.begin[d] * x->strides[d];
  }
  htf_output(node, 0, htf_view(node, x, slice.rank, dims, strides, offset));
}

static htf_value zeros(htf_node *node, int rank, const int64_t *dims, hr_dtype dtype) {
  return htf_call(node, HR_FUNCTIONAL_FULL, INPUTS(htf_number_of(node, hr_scalar_i64(0))),
                  ATTRIBUTES(htf_attr_ints(dims, rank), htf_attr_dtype(dtype)));
}

/* Inputs: the dims of x, the slice, and the gradient of its result. */
void htf_strided_slice_grad(htf_node *node) {
  int64_t dims[HR_RANK_MAX];
  int rank = read_dims(node, 0, dims);
  slice_spec spec = read_spec(node, 1);
  htf_value gradient = htf_input(node, 4);
  strided slice = resolve_slice(node, &spec, rank, dims);
  if (htf_has_failed(node)) {
    return;
  }
  htf_value x = zeros(node, rank, dims, gradient->dtype);
  if (hr_tensor_count(gradient) == 0) {
    htf_output(node, 0, x);
    return;
  }
  htf_value values = htf_reshape(node, gradient, rank, slice.count);
  if (!htf_has_failed(node) && hr_tensor_count(values) != hr_tensor_count(gradient)) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "StridedSliceGrad: the slice has %lld elements, the gradient %lld",
             (long long)hr_tensor_count(values), (long long)hr_tensor_count(gradient));
  }
  htf_output(node, 0,
             htf_call(node, HR_FUNCTIONAL_SLICE_UPDATE, INPUTS(x, values),
                      ATTRIBUTES(htf_attr_ints(slice.begin, rank), htf_attr_ints(slice.count, rank),
                                 htf_attr_ints(slice.step, rank))));
}

/* x with values, of the slice's dims or broadcast to them, in the slice that inputs 1 to 3 say. */
static htf_value update_slice(htf_node *node, htf_value x, htf_value values) {
  slice_spec spec = read_spec(node, 1);
  strided slice = resolve_slice(node, &spec, x->rank, x->dims);
  int64_t dims[HR_RANK_MAX], elements = 1;
  for (int d = 0; d < slice.rank; ++d) {
    dims[d] = slice.source[d] < 0 ? 1 : slice.count[slice.source[d]];
    elements *= dims[d];
  }
  if (htf_has_failed(node) || elements == 0) {
    return x;
  }
  htf_value all = htf_reshape(node, broadcast(node, values, slice.rank, dims), x->rank, slice.count);
  return x->rank == 0 ? all
                      : htf_call(node, HR_FUNCTIONAL_SLICE_UPDATE, INPUTS(x, all),
                                 ATTRIBUTES(htf_attr_ints(slice.begin, x->rank), htf_attr_ints(slice.count, x->rank),
                                            htf_attr_ints(slice.step, x->rank)));
}

void htf_tensor_slice_update(htf_node *node) {
  htf_value x = htf_input(node, 0), values = htf_input(node, 4);
  htf_output(node, 0, update_slice(node, x, values));
}

void htf_variable_slice_update(htf_node *node) {
  htf_slots opened = htf_open_slots(node, 1, true, false);
  htf_value values = htf_input(node, 4);
  if (!htf_has_failed(node)) {
    htf_set_slot(node, &opened, 0, update_slice(node, opened.values[0], values));
  }
  htf_close_slots(&opened);
}

/* ---- repetition and padding ---- */

void htf_tile(htf_node *node) {
  htf_value x = htf_input(node, 0);
  int64_t times[HR_RANK_MAX], dims[HR_RANK_MAX];
  int count = read_dims(node, 1, times);
  if (!htf_has_failed(node) && count != x->rank) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "Tile: there are %d multiples for %d dims", count, x->rank);
  }
  if (htf_has_failed(node)) {
    return;
  }
  int64_t elements = 1;
  for (int d = 0; d < count; ++d) {
    elements *= dims[d] = x->dims[d] * times[d];
  }
  if (count == 0) {
    htf_output(node, 0, x);
  } else if (elements == 0) {
    htf_output(node, 0, zeros(node, count, dims, x->dtype));
  } else {
    htf_output(node, 0, htf_call(node, HR_FUNCTIONAL_TILE, INPUTS(x), ATTRIBUTES(htf_attr_ints(times, count))));
  }
}

typedef struct padding {
  int64_t before[HR_RANK_MAX], after[HR_RANK_MAX];
} padding;

static padding read_padding(htf_node *node, htf_value x) {
  padding sides = {{0}, {0}};
  int64_t pairs[2 * HR_RANK_MAX];
  int count = htf_host_ints(node, 1, pairs, 2 * HR_RANK_MAX);
  int64_t dims[HR_RANK_MAX];
  if (htf_host_dims(node, 1, dims) != 2 || dims[1] != 2) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "%s: paddings must be a matrix with 2 columns", node->kernel->row->op);
  }
  if (!htf_has_failed(node) && count != 2 * x->rank) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT,
             "%s: the first dimension of paddings must be the rank of inputs: %d paddings for %d dims",
             node->kernel->row->op, count / 2, x->rank);
  }
  for (int i = 0; i < count && !htf_has_failed(node); ++i) {
    if (pairs[i] < 0) {
      htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "Paddings must be non-negative: %lld", (long long)pairs[i]);
    }
    *(i % 2 == 0 ? &sides.before[i / 2] : &sides.after[i / 2]) = pairs[i];
  }
  return sides;
}

static htf_value pad_by(htf_node *node, hr_functional function, htf_value x, const padding *sides) {
  return htf_call(node, function, INPUTS(x),
                  ATTRIBUTES(htf_attr_ints(sides->before, x->rank), htf_attr_ints(sides->after, x->rank)));
}

void htf_pad(htf_node *node) {
  htf_value x = htf_input(node, 0);
  padding sides = read_padding(node, x);
  htf_output(node, 0, x->rank == 0 ? x : pad_by(node, HR_FUNCTIONAL_PAD, x, &sides));
}

/* The value is a tensor, so x is written into a tensor full of it. */
void htf_pad_v2(htf_node *node) {
  htf_value x = htf_input(node, 0);
  padding sides = read_padding(node, x);
  htf_value value = htf_input(node, 2);
  if (htf_has_failed(node)) {
    return;
  }
  int64_t dims[HR_RANK_MAX], step[HR_RANK_MAX];
  for (int d = 0; d < x->rank; ++d) {
    dims[d] = sides.before[d] + x->dims[d] + sides.after[d], step[d] = 1;
  }
  htf_value full = broadcast(node, value, x->rank, dims);
  if (hr_tensor_count(x) == 0 || x->rank == 0) {
    htf_output(node, 0, x->rank == 0 ? x : full);
    return;
  }
  htf_output(node, 0,
             htf_call(node, HR_FUNCTIONAL_SLICE_UPDATE, INPUTS(full, x),
                      ATTRIBUTES(htf_attr_ints(sides.before, x->rank), htf_attr_ints(x->dims, x->rank),
                                 htf_attr_ints(step, x->rank))));
}

void htf_mirror_pad(htf_node *node) {
  htf_value x = htf_input(node, 0);
  padding sides = read_padding(node, x);
  bool reflects = strcmp(htf_text(node, "mode"), "REFLECT") == 0;
  for (int d = 0; d < x->rank && !htf_has_failed(node); ++d) {
    int64_t most = x->dims[d] - reflects;
    if (sides.before[d] > most || sides.after[d] > most) {
      htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "paddings must be no greater than %lld: %lld, %lld", (long long)most,
               (long long)sides.before[d], (long long)sides.after[d]);
    }
  }
  hr_functional function = reflects ? HR_FUNCTIONAL_PAD_REFLECT : HR_FUNCTIONAL_PAD_SYMMETRIC;
  htf_output(node, 0, x->rank == 0 ? x : pad_by(node, function, x, &sides));
}

/* Elements of the border that were read twice get both gradients. Inputs: the gradient, the paddings. */
void htf_mirror_pad_gradient(htf_node *node) {
  htf_value gradient = htf_input(node, 0);
  padding sides = read_padding(node, gradient);
  int64_t dims[HR_RANK_MAX], ints[1 + 2 * HR_RANK_MAX] = {strcmp(htf_text(node, "mode"), "REFLECT") == 0 ? 0 : 2};
  int rank = gradient->rank;
  for (int d = 0; d < rank && !htf_has_failed(node); ++d) {
    dims[d] = gradient->dims[d] - sides.before[d] - sides.after[d];
    ints[1 + d] = sides.before[d], ints[1 + rank + d] = sides.after[d];
    int64_t most = dims[d] - (ints[0] == 0);
    if (most < sides.before[d] || most < sides.after[d]) {
      htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "MirrorPadGrad: paddings must be no greater than %lld: %lld, %lld",
               (long long)most, (long long)sides.before[d], (long long)sides.after[d]);
    }
  }
  if (htf_has_failed(node) || rank == 0 || hr_tensor_count(gradient) == 0) {
    htf_output(node, 0, rank == 0 || htf_has_failed(node) ? gradient : zeros(node, rank, dims, gradient->dtype));
    return;
  }
  htf_value out = htf_new(node, gradient->dtype, rank, dims);
  htf_record(node, HR_OP_PAD_BORDER_BACKWARD, 1 + 2 * rank, ints, INPUTS(gradient), out);
  htf_output(node, 0, out);
}

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

/* An index out of range gives 0, as on TensorFlow's GPU. */
void htf_gather_v2(htf_node *node) {
  htf_value x = htf_input(node, 0), indices = htf_input(node, 1);
  int axis = resolve_axis(node, x, htf_host_int(node, 2));
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
    htf_output(node, 0, zeros(node, values->rank, values->dims, HR_DTYPE_I64));
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
    htf_output(node, 0, zeros(node, x->rank, x->dims, HR_DTYPE_I32));
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
  htf_value is_on = htf_call2(node, HR_FUNCTIONAL_EQUAL, expand(node, indices, axis),
                              htf_reshape(node, places, indices->rank + 1, dims));
  htf_output(node, 0, htf_where(node, is_on, on, off));
}

/* ---- counts of numbers ---- */

/* Inputs: numbers, of rows or not, how many bins, and weights, or none. Numbers from `size` on do not count. */
static void count_numbers(htf_node *node, bool is_binary, bool has_rows) {
  htf_value x = htf_input(node, 0), weights = htf_input(node, 2);
  int64_t size = htf_host_int(node, 1), rows = has_rows ? x->dims[0] : 1;
  hr_dtype dtype = weights->dtype;
  bool is_weighted = hr_tensor_count(weights) > 0;
  if (!htf_has_failed(node) && (size < 0 || (is_weighted && hr_tensor_count(weights) != hr_tensor_count(x)))) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT,
             "%s: size must be non-negative, and weights have the input's dims or none", node->kernel->row->op);
  }
  if (htf_has_failed(node)) {
    return;
  }
  int64_t elements = hr_tensor_count(x), bins = rows * size;
  const int64_t dims[2] = {rows, size}, tuples[2] = {elements, 1};
  htf_value counts = zeros(node, 1, &bins, dtype);
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
  htf_value counts = zeros(node, 1, &bins, dtype);
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
