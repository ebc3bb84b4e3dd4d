/* array_update.c: writes to arrays: in place if nobody else sees the memory, else to a copy. */
#include <stdlib.h>

#include "array/array_select.h"

/* The dims of more than one element in the order of their strides' sizes; their number. */
static int order_dims(const hr_tensor *x, int *order) {
  int count = 0;
  for (int d = 0; d < x->rank; ++d) {
    if (x->dims[d] > 1) {
      int at = count++;
      for (; at > 0 && llabs(x->strides[order[at - 1]]) > llabs(x->strides[d]); --at) {
        order[at] = order[at - 1];
      }
      order[at] = d;
    }
  }
  return count;
}

/* False if each step of a dim goes beyond all elements of the dims with smaller strides, so that none occurs twice. */
static bool may_repeat_elements(const hr_tensor *x) {
  int order[HR_RANK_MAX], count = order_dims(x, order);
  int64_t reach = 0;
  for (int i = 0; i < count; ++i) {
    int64_t stride = llabs(x->strides[order[i]]);
    if (stride <= reach) {
      return true;
    }
    reach += (x->dims[order[i]] - 1) * stride;
  }
  return false;
}

/* The array that a write goes to: x's own view of memory that nobody else sees, or a copy. */
static hr_status make_own(hr_stream *stream, const hr_tensor *x, hr_tensor *out) {
  if (hr_buffer_is_unique(stream, x->buffer) && !may_repeat_elements(x)) {
    *out = *x;
    hr_buffer_retain(out->buffer);
    return HR_OK;
  }
  return hr_functional_apply(stream, HR_FUNCTIONAL_ASTYPE, 1, &x, 0, NULL, 1, out);
}

/* A value may have more dims than the place, if their size is 1. */
static hr_tensor without_leading_ones(const hr_tensor *value, int rank) {
  hr_tensor x = *value;
  while (x.rank > rank && x.dims[0] == 1) {
    --x.rank;
    for (int d = 0; d < x.rank; ++d) {
      x.dims[d] = x.dims[d + 1], x.strides[d] = x.strides[d + 1];
    }
  }
  return x;
}

/* ---- at integers and slices ---- */

static hr_status write_view(hr_stream *stream, const hr_tensor *place, const hr_tensor *value, hr_update update) {
  static const hr_op ops[] = {HR_OP_COPY, HR_OP_ADD, HR_OP_MUL, HR_OP_MAXIMUM, HR_OP_MINIMUM};
  hr_tensor bare = without_leading_ones(value, place->rank);
  hr_view to = hr_tensor_view(place), inputs[2] = {to, hr_tensor_view(&bare)};
  bool sets = update == HR_UPDATE_SET;
  return hr_stream_record(stream, ops[update], NULL, sets ? 1 : 2, sets ? inputs + 1 : inputs, 1, &to);
}

/* ---- at arrays ---- */

/* The arrays' dims, broadcast to each other. */
static int joint_dims(const hr_selection *s, int64_t *dims) {
  int rank = 0;
  for (int i = 0; i < s->array_count; ++i) {
    rank = s->arrays[i].rank > rank ? s->arrays[i].rank : rank;
  }
  for (int d = 0; d < rank; ++d) {
    dims[d] = 1;
    for (int i = 0; i < s->array_count; ++i) {
      int at = d - (rank - s->arrays[i].rank);
      dims[d] = at >= 0 && s->arrays[i].dims[at] != 1 ? s->arrays[i].dims[at] : dims[d];
    }
  }
  return rank;
}

static hr_status spread_arrays(hr_stream *stream, hr_selection *s, int *out_rank) {
  int64_t dims[HR_RANK_MAX];
  *out_rank = joint_dims(s, dims);
  hr_attribute shape = {.kind = HR_ATTRIBUTE_INTS, .count = *out_rank, .value = {.ints = dims}};
  for (int i = 0; i < s->array_count; ++i) {
    const hr_tensor *array = &s->arrays[i];
    hr_tensor spread;
    HR_RETURN_IF_ERROR(hr_functional_apply(stream, HR_FUNCTIONAL_BROADCAST_TO, 1, &array, 1, &shape, 1, &spread));
    hr_tensor_release(&s->arrays[i]);
    s->arrays[i] = spread;
  }
  return HR_OK;
}

/* Where the arrays' dims stand: in the place of adjacent axes, else first. */
static int64_t place_of_arrays(const hr_selection *s) {
  bool is_adjacent = s->axes[s->array_count - 1] - s->axes[0] == s->array_count - 1;
  return is_adjacent && !s->is_first ? s->axes[0] : 0;
}

/* The row that sets or adds in place. */
static hr_status put(hr_stream *stream, hr_selection *s, const hr_tensor *view, const hr_tensor *value, bool adds) {
  int rank;
  HR_RETURN_IF_ERROR(spread_arrays(stream, s, &rank));
  int64_t ints[3] = {0, place_of_arrays(s), adds};
  hr_tensor bare = without_leading_ones(value, view->rank - s->array_count + rank);
  hr_view inputs[HR_RANK_MAX + 1] = {hr_tensor_view(&bare)}, to = hr_tensor_view(view);
  for (int i = 0; i < s->array_count; ++i) {
    ints[0] |= INT64_C(1) << s->axes[i];
    inputs[1 + i] = hr_tensor_view(&s->arrays[i]);
  }
  hr_attrs attrs = {.int_count = 3, .ints = ints};
  return hr_stream_record(stream, HR_OP_INDEX_PUT, &attrs, 1 + s->array_count, inputs, 1, &to);
}

/* Other updates are made in a copy. */
static hr_status put_combined(hr_stream *stream, const hr_selection *s, const hr_tensor *view, const hr_tensor *value,
                              hr_update update) {
  static const char *const modes[] = {"set", "add", "multiply", "max", "min"};
  const hr_tensor *inputs[HR_RANK_MAX + 2] = {view, value};
  for (int i = 0; i < s->array_count; ++i) {
    inputs[2 + i] = &s->arrays[i];
  }
  hr_attribute attributes[3] = {{.kind = HR_ATTRIBUTE_INTS, .count = s->array_count, .value = {.ints = s->axes}},
                                {.kind = HR_ATTRIBUTE_TEXT, .value = {.text = modes[update]}},
                                {.kind = HR_ATTRIBUTE_FLAG, .value = {.integer = s->is_first}}};
  hr_tensor made;
  HR_RETURN_IF_ERROR(
      hr_functional_apply(stream, HR_FUNCTIONAL_INDEX_PUT, 2 + s->array_count, inputs, 3, attributes, 1, &made));
  hr_status status = write_view(stream, view, &made, HR_UPDATE_SET);
  hr_tensor_release(&made);
  return status;
}

/* The value as a tensor of x's dtype. */
static hr_status convert_value(hr_stream *stream, const hr_tensor *value, hr_dtype dtype, hr_tensor *out) {
  hr_attribute to = {.kind = HR_ATTRIBUTE_DTYPE, .value = {.dtype = dtype}};
  return hr_functional_apply(stream, HR_FUNCTIONAL_ASTYPE, 1, &value, 1, &to, 1, out);
}

static hr_status write_selection(hr_stream *stream, hr_selection *s, const hr_tensor *place, const hr_tensor *value,
                                 hr_update update) {
  hr_tensor view = {0}, converted = {0};
  HR_RETURN_IF_ERROR(hr_array_index(place, s->index_count, s->indices, &view));
  hr_status status = HR_OK;
  if (s->array_count == 0) {
    status = write_view(stream, &view, value, update);
  } else {
    status = convert_value(stream, value, place->dtype, &converted);
    status = status != HR_OK           ? status
             : update <= HR_UPDATE_ADD ? put(stream, s, &view, &converted, update == HR_UPDATE_ADD)
                                       : put_combined(stream, s, &view, &converted, update);
  }
  hr_tensor_release(&converted);
  hr_tensor_release(&view);
  return status;
}

/* ---- at a mask, without its coordinates, so without a wait ---- */

static bool sets_mask(int count, const hr_index *indices, hr_update update) {
  return update == HR_UPDATE_SET && count == 1 && indices[0].kind == HR_INDEX_ARRAY &&
         indices[0].array->dtype == HR_DTYPE_BOOL;
}

/* The same value at each true element. */
static hr_status fill_mask(hr_stream *stream, const hr_tensor *place, const hr_tensor *mask, const hr_tensor *value) {
  hr_tensor spread = *mask, converted;
  for (int d = mask->rank; d < place->rank; ++d) {
    spread.dims[d] = place->dims[d], spread.strides[d] = 0;
  }
  spread.rank = place->rank;
  HR_RETURN_IF_ERROR(convert_value(stream, value, place->dtype, &converted));
  hr_view to = hr_tensor_view(place), inputs[3] = {hr_tensor_view(&spread), hr_tensor_view(&converted), to};
  hr_status status = hr_stream_record(stream, HR_OP_WHERE, NULL, 3, inputs, 1, &to);
  hr_tensor_release(&converted);
  return status;
}

/* The value's slices, in order. */
static hr_status scatter_mask(hr_stream *stream, const hr_tensor *place, const hr_tensor *mask,
                              const hr_tensor *value) {
  const hr_tensor *inputs[3] = {place, mask, value};
  hr_tensor made;
  HR_RETURN_IF_ERROR(hr_functional_apply(stream, HR_FUNCTIONAL_MASKED_SCATTER, 3, inputs, 0, NULL, 1, &made));
  hr_status status = write_view(stream, place, &made, HR_UPDATE_SET);
  hr_tensor_release(&made);
  return status;
}

/* ---- all writes ---- */

static hr_status write_at(hr_stream *stream, const hr_tensor *own, int count, const hr_index *indices,
                          const hr_tensor *value, hr_update update) {
  hr_tensor bare = *value;
  bool is_mask = sets_mask(count, indices, update);
  if (is_mask) {
    const hr_tensor *mask = indices[0].array;
    HR_RETURN_IF_ERROR(hr__check_mask(mask, own, 0));
    bare = without_leading_ones(value, own->rank - mask->rank);
    if (bare.rank <= own->rank - mask->rank) {
      return fill_mask(stream, own, mask, &bare);
    }
  }
  hr_selection s;
  hr_status status = hr__select(stream, own, count, indices, &s);
  if (status != HR_OK && is_mask) { /* a mask that can't be read: an example of vmap, or in a captured function */
    hr_status_free(status);
    status = scatter_mask(stream, own, indices[0].array, &bare);
  } else if (status == HR_OK) {
    status = write_selection(stream, &s, own, value, update);
  }
  hr__selection_end(&s);
  return status;
}

hr_status hr_array_update(hr_stream *stream, hr_tensor *x, int count, const hr_index *indices, const hr_tensor *value,
                          hr_update update) {
  hr_tensor own;
  HR_RETURN_IF_ERROR(make_own(stream, x, &own));
  hr_status status = write_at(stream, &own, count, indices, value, update);
  if (status != HR_OK) {
    hr_tensor_release(&own);
    return status;
  }
  hr_buffer *before = x->buffer;
  *x = own;
  hr_buffer_release(before);
  return HR_OK;
}

hr_status hr_array_assign(hr_stream *stream, hr_tensor *x, int count, const hr_index *indices, const hr_tensor *value) {
  return hr_array_update(stream, x, count, indices, value, HR_UPDATE_SET);
}
