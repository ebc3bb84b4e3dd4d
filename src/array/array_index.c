/* array_index.c: views of an array's elements at integers, slices and new dims, as NumPy's basic indexing. */
#include "headrace/array.h"

/* The dims that the indices take from x, and the number of those that are left for HR_INDEX_REST. */
static hr_status count_dims(const hr_tensor *x, int count, const hr_index *indices, int *out_left) {
  int taken = 0, created = 0, rests = 0;
  for (int i = 0; i < count; ++i) {
    if (indices[i].kind == HR_INDEX_ARRAY) {
      return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "index %d is an array, expected integers and slices", i);
    }
    taken += indices[i].kind == HR_INDEX_AT || indices[i].kind == HR_INDEX_SLICE;
    created += indices[i].kind == HR_INDEX_NEW;
    rests += indices[i].kind == HR_INDEX_REST;
  }
  if (taken > x->rank || rests > 1) {
    return hr_status_make(HR_STATUS_OUT_OF_RANGE,
                          rests > 1 ? "an index can only have a single ellipsis ('...')"
                                    : "too many indices for array: array is %d-dimensional, but %d were indexed",
                          x->rank, taken);
  }
  if (x->rank + created > HR_RANK_MAX) {
    return hr_status_make(HR_STATUS_OUT_OF_RANGE, "an index to %d dims, expected at most %d", x->rank + created,
                          HR_RANK_MAX);
  }
  *out_left = x->rank - taken;
  return HR_OK;
}

static int64_t clamp(int64_t value, int64_t low, int64_t high) {
  return value < low ? low : value > high ? high : value;
}

/* The first element of a slice of a dim of `size`, and the number of elements. */
static hr_status resolve_slice(const hr_index *slice, int64_t size, int64_t *out_first, int64_t *out_count) {
  int64_t step = slice->step, begin = slice->begin, end = slice->end;
  if (step == 0) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "slice step cannot be zero");
  }
  bool is_back = step < 0;
  int64_t low = is_back ? -1 : 0, high = is_back ? size - 1 : size;
  begin = !slice->has_begin ? (is_back ? high : low) : clamp(begin < 0 ? begin + size : begin, low, high);
  end = !slice->has_end ? (is_back ? low : high) : clamp(end < 0 ? end + size : end, low, high);
  int64_t way = is_back ? begin - end : end - begin;
  uint64_t stride = is_back ? -(uint64_t)step : (uint64_t)step; /* of the smallest integer, too */
  *out_count = way > 0 ? (int64_t)(((uint64_t)way - 1) / stride) + 1 : 0;
  *out_first = *out_count > 0 ? begin : 0;
  return HR_OK;
}

static void add_dim(hr_tensor *to, int64_t size, int64_t stride) {
  to->dims[to->rank] = size, to->strides[to->rank] = stride;
  ++to->rank;
}

/* Applies an index to dim d of x. */
static hr_status take_dim(const hr_tensor *x, int d, const hr_index *index, hr_tensor *to) {
  int64_t size = x->dims[d], stride = x->strides[d], first = 0, count = 0;
  if (index->kind == HR_INDEX_AT) {
    if (index->begin < -size || index->begin >= size) {
      return hr_status_make(HR_STATUS_OUT_OF_RANGE, "index %lld is out of bounds for axis %d with size %lld",
                            (long long)index->begin, d, (long long)size);
    }
    to->offset += (index->begin < 0 ? index->begin + size : index->begin) * stride;
    return HR_OK;
  }
  HR_RETURN_IF_ERROR(resolve_slice(index, size, &first, &count));
  to->offset += first * stride;
  add_dim(to, count, count > 1 ? stride * index->step : stride);
  return HR_OK;
}

static void take_rest(const hr_tensor *x, int *d, int *left, hr_tensor *to) {
  for (; *left > 0; --*left, ++*d) {
    add_dim(to, x->dims[*d], x->strides[*d]);
  }
}

hr_status hr_array_index(const hr_tensor *x, int count, const hr_index *indices, hr_tensor *out) {
  int d = 0, left = 0;
  HR_RETURN_IF_ERROR(count_dims(x, count, indices, &left));
  hr_tensor view = {.buffer = x->buffer, .dtype = x->dtype, .offset = x->offset};
  for (int i = 0; i < count; ++i) {
    switch (indices[i].kind) {
      case HR_INDEX_NEW:
        add_dim(&view, 1, 1);
        break;
      case HR_INDEX_REST:
        take_rest(x, &d, &left, &view);
        break;
      default:
        HR_RETURN_IF_ERROR(take_dim(x, d++, &indices[i], &view));
    }
  }
  take_rest(x, &d, &left, &view);
  hr_buffer *before = out->buffer;
  hr_buffer_retain(view.buffer);
  *out = view;
  hr_buffer_release(before);
  return HR_OK;
}
