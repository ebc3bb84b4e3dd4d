/* ops_slices.c: rules of slices: parts of one axis, boxes, strided slices with their gradients and updates.
 *
 * Slices are views of the input's buffer.
 */
#include <string.h>

#include "slots.h"

/* ---- slices ---- */

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
  int axis = htf_resolve_axis(node, x, htf_integer(node, "axis")), count = htf_output_count(node);
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
  int axis = htf_resolve_axis(node, x, htf_host_int(node, 0)), count = htf_output_count(node);
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
    bad = bad < 0 && !is_open && (sizes[i] < 0 || sizes[i] > size - sum) ? i : bad;
    sum += is_open || bad >= 0 ? 0 : sizes[i];
  }
  if (open >= 0 && bad < 0) {
    sizes[open] = size - sum, sum = size;
  }
  if (bad >= 0 && sizes[bad] < 0) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "SplitV: Split size at index %d must be >= 0. Got: %lld", bad,
             (long long)sizes[bad]);
  } else if (bad >= 0 || sum != size || count != htf_output_count(node)) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT,
             "SplitV: %d sizes (the first is %lld) for %d parts: Determined shape must either match input shape along "
             "dim %d, which has %lld, or have a -1",
             count, (long long)(count > 0 ? sizes[0] : 0), htf_output_count(node), axis, (long long)size);
  }
}

void htf_split_v(htf_node *node) {
  htf_value x = htf_input(node, 0);
  int64_t sizes[PARTS_MAX], begin = 0;
  int count = htf_host_ints(node, 1, sizes, PARTS_MAX);
  int axis = htf_resolve_axis(node, x, htf_host_int(node, 2));
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
  for (int i = 1; i <= 2; ++i) {
    htf_expect_rank(node, i, 1, "Expected begin and size arguments to be 1-D tensors");
  }
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

/* Inputs: the dims of x, the slice, and the gradient of its result. */
void htf_strided_slice_grad(htf_node *node) {
  int64_t dims[HR_RANK_MAX];
  int rank = htf_read_dims(node, 0, dims);
  slice_spec spec = read_spec(node, 1);
  htf_value gradient = htf_input(node, 4);
  strided slice = resolve_slice(node, &spec, rank, dims);
  if (htf_has_failed(node)) {
    return;
  }
  htf_value x = htf_zeros(node, rank, dims, gradient->dtype);
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
  htf_value all = htf_reshape(node, htf_broadcast(node, values, slice.rank, dims), x->rank, slice.count);
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

/* ---- slices of which every element is there: XLA's ---- */

/* Reads where a slice begins in x, moved so that it fits. */
static void read_begin(htf_node *node, int input, htf_value x, const int64_t *size, int64_t *out_begin) {
  int count = htf_host_ints(node, input, out_begin, HR_RANK_MAX);
  if (!htf_has_failed(node) && count != x->rank) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "%s: there must be an index for each of %d dims, there are %d",
             node->kernel->row->op, x->rank, count);
  }
  for (int d = 0; d < x->rank && !htf_has_failed(node); ++d) {
    if (size[d] < 0 || size[d] > x->dims[d]) {
      htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "%s: a slice of %lld elements in dim %d, which has %lld",
               node->kernel->row->op, (long long)size[d], d, (long long)x->dims[d]);
    }
    out_begin[d] = clamp(out_begin[d], 0, x->dims[d] - size[d]);
  }
}

/* Inputs: x, begin, size. */
void htf_xla_slice(htf_node *node) {
  htf_value x = htf_input(node, 0);
  int64_t begin[HR_RANK_MAX], size[HR_RANK_MAX] = {0}, offset = x->offset, elements = 1;
  int count = htf_host_ints(node, 2, size, HR_RANK_MAX);
  if (!htf_has_failed(node) && count != x->rank) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "XlaDynamicSlice: there must be %d sizes, there are %d", x->rank, count);
  }
  read_begin(node, 1, x, size, begin);
  for (int d = 0; d < x->rank && !htf_has_failed(node); ++d) {
    offset += begin[d] * x->strides[d], elements *= size[d];
  }
  if (!htf_has_failed(node)) {
    htf_output(node, 0, htf_view(node, x, x->rank, size, x->strides, elements > 0 ? offset : x->offset));
  }
}

/* Inputs: x, the new elements, begin. */
void htf_xla_update_slice(htf_node *node) {
  htf_value x = htf_input(node, 0), values = htf_input(node, 1);
  int64_t begin[HR_RANK_MAX], steps[HR_RANK_MAX];
  if (!htf_has_failed(node) && values->rank != x->rank) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "XlaDynamicUpdateSlice: update has %d dims, input %d", values->rank,
             x->rank);
  }
  read_begin(node, 2, x, values->dims, begin);
  for (int d = 0; d < x->rank; ++d) {
    steps[d] = 1;
  }
  if (htf_has_failed(node) || hr_tensor_count(values) == 0 || x->rank == 0) {
    htf_output(node, 0, x->rank == 0 ? values : x);
    return;
  }
  htf_output(node, 0,
             htf_call(node, HR_FUNCTIONAL_SLICE_UPDATE, INPUTS(x, values),
                      ATTRIBUTES(htf_attr_ints(begin, x->rank), htf_attr_ints(values->dims, x->rank),
                                 htf_attr_ints(steps, x->rank))));
}
