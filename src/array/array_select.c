/* array_select.c: elements of an array at indices of which some are arrays, as NumPy's advanced indexing. */
#include "array/array_select.h"

#include "core/ir/dtype.h"

/* ---- arrays and masks ---- */

static hr_status add_index(hr_selection *to, hr_index index) {
  if (to->index_count >= HR_INDICES_MAX) {
    return hr_status_make(HR_STATUS_OUT_OF_RANGE, "more than %d indices", HR_INDICES_MAX);
  }
  to->indices[to->index_count++] = index;
  return HR_OK;
}

/* An array for the next axis; the selection takes its reference. */
static hr_status add_array(hr_selection *to, hr_tensor *array) {
  if (to->array_count >= HR_RANK_MAX) {
    hr_tensor_release(array);
    return hr_status_make(HR_STATUS_OUT_OF_RANGE, "more than %d arrays as indices", HR_RANK_MAX);
  }
  to->axes[to->array_count] = to->axis++;
  to->arrays[to->array_count++] = *array;
  return add_index(to, (hr_index){.kind = HR_INDEX_SLICE, .step = 1});
}

hr_status hr__check_mask(const hr_tensor *mask, const hr_tensor *x, int dim) {
  for (int d = 0; d < mask->rank; ++d) {
    if (dim + d >= x->rank || mask->dims[d] != x->dims[dim + d]) {
      return hr_status_make(HR_STATUS_OUT_OF_RANGE,
                            "boolean index did not match indexed array along axis %d; size of axis is %lld but size of "
                            "corresponding boolean axis is %lld",
                            dim + d, dim + d < x->rank ? (long long)x->dims[dim + d] : 0LL, (long long)mask->dims[d]);
    }
  }
  return HR_OK;
}

/* The coordinates of a mask's true elements: one array for each of its dims. A mask without dims keeps a new dim of
 * size 1, or nothing of it. */
static hr_status add_mask(hr_stream *stream, const hr_tensor *mask, hr_selection *to) {
  hr_tensor line = *mask, all;
  const hr_tensor *input = &line;
  if (mask->rank == 0) {
    line.rank = line.dims[0] = line.strides[0] = 1;
  }
  HR_RETURN_IF_ERROR(hr_functional_apply(stream, HR_FUNCTIONAL_NONZERO, 1, &input, 0, NULL, 1, &all));
  hr_status status = HR_OK;
  for (int d = 0; status == HR_OK && d < line.rank; ++d) {
    hr_tensor row = {0};
    status = hr_array_index(&all, 1, &(hr_index){.kind = HR_INDEX_AT, .begin = d}, &row);
    status = status == HR_OK ? add_array(to, &row) : status;
  }
  hr_tensor_release(&all);
  if (status == HR_OK && mask->rank == 0) { /* its axis is new, instead of whole */
    to->indices[to->index_count - 1].kind = HR_INDEX_NEW;
  }
  return status;
}

static hr_status add_integers(const hr_tensor *array, hr_selection *to) {
  if (!hr_dtype_is_integer(array->dtype)) {
    return hr_status_make(HR_STATUS_OUT_OF_RANGE, "an index of dtype %s, expected integers or bool",
                          hr_dtype_name(array->dtype));
  }
  hr_tensor kept = *array;
  hr_buffer_retain(kept.buffer);
  return add_array(to, &kept);
}

/* ---- all indices ---- */

static bool is_mask(const hr_index *index) {
  return index->kind == HR_INDEX_ARRAY && index->array->dtype == HR_DTYPE_BOOL;
}

/* The dims of x that an index takes. */
static int taken_by(const hr_index *index) {
  bool takes_one = index->kind == HR_INDEX_AT || index->kind == HR_INDEX_SLICE || index->kind == HR_INDEX_ARRAY;
  return is_mask(index) ? index->array->rank : takes_one;
}

/* Index i, which begins at dim `dim` of x; `left` dims are those of HR_INDEX_REST. */
static hr_status add(hr_stream *stream, const hr_tensor *x, const hr_index *index, int i, int dim, int left,
                     hr_selection *to) {
  bool is_advanced = index->kind == HR_INDEX_AT || index->kind == HR_INDEX_ARRAY;
  to->is_first = to->is_first || (is_advanced && to->last >= 0 && to->last != i - 1);
  to->last = is_advanced ? i : to->last;
  if (is_mask(index)) {
    HR_RETURN_IF_ERROR(hr__check_mask(index->array, x, dim));
    return add_mask(stream, index->array, to);
  }
  if (index->kind == HR_INDEX_ARRAY) {
    return add_integers(index->array, to);
  }
  to->axis += index->kind == HR_INDEX_REST ? left : index->kind != HR_INDEX_AT;
  return add_index(to, *index);
}

hr_status hr__select(hr_stream *stream, const hr_tensor *x, int count, const hr_index *indices, hr_selection *out) {
  int dim = 0, taken = 0;
  out->index_count = out->array_count = out->axis = 0, out->last = -1, out->is_first = false;
  for (int i = 0; i < count; ++i) {
    taken += taken_by(&indices[i]);
  }
  if (taken > x->rank) {
    return hr_status_make(HR_STATUS_OUT_OF_RANGE,
                          "too many indices for array: array is %d-dimensional, but %d were indexed", x->rank, taken);
  }
  for (int i = 0; i < count; ++i) {
    HR_RETURN_IF_ERROR(add(stream, x, &indices[i], i, dim, x->rank - taken, out));
    dim += indices[i].kind == HR_INDEX_REST ? x->rank - taken : taken_by(&indices[i]);
  }
  return HR_OK;
}

void hr__selection_end(hr_selection *selection) {
  for (int i = 0; i < selection->array_count; ++i) {
    hr_tensor_release(&selection->arrays[i]);
  }
}

/* ---- reading ---- */

static hr_status read_selection(hr_stream *stream, const hr_selection *s, const hr_tensor *view, hr_tensor *out) {
  const hr_tensor *inputs[HR_RANK_MAX + 1] = {view};
  for (int i = 0; i < s->array_count; ++i) {
    inputs[1 + i] = &s->arrays[i];
  }
  if (s->array_count == 1 && !s->is_first) {
    hr_attribute axis = {.kind = HR_ATTRIBUTE_INT, .value = {.integer = s->axes[0]}};
    return hr_functional_apply(stream, HR_FUNCTIONAL_TAKE, 2, inputs, 1, &axis, 1, out);
  }
  hr_attribute attributes[2] = {{.kind = HR_ATTRIBUTE_INTS, .count = s->array_count, .value = {.ints = s->axes}},
                                {.kind = HR_ATTRIBUTE_FLAG, .value = {.integer = s->is_first}}};
  return hr_functional_apply(stream, HR_FUNCTIONAL_INDEX, 1 + s->array_count, inputs, 2, attributes, 1, out);
}

hr_status hr_array_select(hr_stream *stream, const hr_tensor *x, int count, const hr_index *indices, hr_tensor *out) {
  hr_selection s;
  hr_tensor view = {0}, made = {0};
  hr_status status = hr__select(stream, x, count, indices, &s);
  status = status == HR_OK ? hr_array_index(x, s.index_count, s.indices, &view) : status;
  bool is_view = status == HR_OK && s.array_count == 0;
  status = status == HR_OK && !is_view ? read_selection(stream, &s, &view, &made) : status;
  hr__selection_end(&s);
  if (status == HR_OK) {
    hr_buffer *before = out->buffer;
    *out = is_view ? view : made;
    hr_buffer_release(before);
  }
  if (!is_view) {
    hr_tensor_release(&view);
  }
  return status;
}
