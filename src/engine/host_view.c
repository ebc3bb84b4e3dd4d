#include "engine/host_view.h"

#include <string.h>

hr_status hr__view_check(const char *what, const hr_view *view) {
  size_t size = hr_dtype_size(view->dtype);
  if (view->buffer == NULL || size == 0) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "%s: a view needs a buffer and a dtype", what);
  }
  if (view->rank < 0 || view->rank > HR_RANK_MAX) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "%s: rank %d is not in [0, %d]", what, view->rank, HR_RANK_MAX);
  }
  int64_t low = view->offset, high = view->offset;
  for (int d = 0; d < view->rank; ++d) {
    if (view->dims[d] < 0) {
      return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "%s: dim %d is %lld", what, d, (long long)view->dims[d]);
    }
    int64_t reach = 0;
    int64_t *end = view->strides[d] < 0 ? &low : &high;
    if (__builtin_mul_overflow(view->dims[d] - 1, view->strides[d], &reach) ||
        __builtin_add_overflow(*end, reach, end)) {
      return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "%s: dim %d reaches out of all memory", what, d);
    }
  }
  int64_t elements = (int64_t)(hr_buffer_bytes(view->buffer) / size);
  if (hr__view_count(view) > 0 && (low < 0 || high >= elements)) {
    return hr_status_make(HR_STATUS_OUT_OF_RANGE, "%s: elements %lld to %lld of a buffer that holds %lld", what,
                          (long long)low, (long long)high, (long long)elements);
  }
  return HR_OK;
}

bool hr__view_is_contiguous(const hr_view *view) {
  int64_t stride = 1;
  for (int d = view->rank - 1; d >= 0; --d) {
    if (view->dims[d] != 1 && view->strides[d] != stride) {
      return false;
    }
    stride *= view->dims[d];
  }
  return true;
}

bool hr__view_is_whole(const hr_view *view) {
  return view->offset == 0 && hr__view_is_contiguous(view) &&
         (size_t)hr__view_count(view) * hr_dtype_size(view->dtype) == hr_buffer_bytes(view->buffer);
}

/* A row of `count` elements, `stride` bytes apart. */
static char *gather_row(const char *from, int64_t count, int64_t stride, size_t size, char *to) {
  if (stride == (int64_t)size) {
    memcpy(to, from, (size_t)count * size);
    return to + (size_t)count * size;
  }
#define GATHER(bytes)                                  \
  for (int64_t i = 0; i < count; ++i, to += (bytes)) { \
    memcpy(to, from + i * stride, (bytes));            \
  }                                                    \
  break
  switch (size) {
    case 1:
      GATHER(1);
    case 2:
      GATHER(2);
    case 4:
      GATHER(4);
    case 8:
      GATHER(8);
    default:
      GATHER(16);
  }
#undef GATHER
  return to;
}

void hr__view_gather(const hr_view *view, const void *base, void *out_bytes) {
  size_t size = hr_dtype_size(view->dtype);
  const char *from = (const char *)base + view->offset * (int64_t)size;
  char *to = out_bytes;
  int64_t index[HR_RANK_MAX] = {0};
  int last = view->rank - 1;
  int64_t rows = hr__view_count(view);
  if (view->rank == 0 || rows == 0) {
    memcpy(to, from, rows > 0 ? size : 0);
    return;
  }
  rows /= view->dims[last];
  for (int64_t row = 0; row < rows; ++row) {
    to = gather_row(from, view->dims[last], view->strides[last] * (int64_t)size, size, to);
    for (int d = last - 1; d >= 0; --d) {
      from += view->strides[d] * (int64_t)size;
      if (++index[d] < view->dims[d]) {
        break;
      }
      from -= view->dims[d] * view->strides[d] * (int64_t)size;
      index[d] = 0;
    }
  }
}
