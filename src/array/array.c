/* array.c: arrays from and to the host. */
#include "headrace/array.h"

#include <string.h>

#include "core/ir/dtype.h"

/* `made` becomes *out. */
static void replace(hr_tensor *out, const hr_tensor *made) {
  hr_buffer *before = out->buffer;
  *out = *made;
  hr_buffer_release(before);
}

hr_status hr_array_unary(hr_stream *stream, hr_functional function, const hr_tensor *x, hr_tensor *out) {
  hr_tensor result;
  HR_RETURN_IF_ERROR(hr_functional_apply(stream, function, 1, &x, 0, NULL, 1, &result));
  replace(out, &result);
  return HR_OK;
}

hr_status hr_array_binary(hr_stream *stream, hr_functional function, const hr_tensor *x, const hr_tensor *y,
                          hr_tensor *out) {
  const hr_tensor *inputs[2] = {x, y};
  hr_tensor result;
  HR_RETURN_IF_ERROR(hr_functional_apply(stream, function, 2, inputs, 0, NULL, 1, &result));
  replace(out, &result);
  return HR_OK;
}

/* ---- from and to the host ---- */

/* A row-major type without a buffer, and its number of elements. */
static hr_status describe(hr_dtype dtype, int rank, const int64_t *dims, hr_tensor *x, int64_t *out_count) {
  if (hr_dtype_size(dtype) == 0 || rank < 0 || rank > HR_RANK_MAX) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "array: dtype %d and %d dims, expected a dtype and 0 to %d dims",
                          (int)dtype, rank, HR_RANK_MAX);
  }
  int64_t count = 1, bytes = (int64_t)hr_dtype_size(dtype);
  *x = (hr_tensor){.dtype = dtype, .rank = rank};
  for (int d = rank - 1; d >= 0; --d) {
    int64_t size = dims[d] > 1 ? dims[d] : 1;
    x->dims[d] = dims[d], x->strides[d] = bytes / (int64_t)hr_dtype_size(dtype);
    count *= dims[d] < size ? dims[d] : 1;
    if (dims[d] < 0 || __builtin_mul_overflow(bytes, size, &bytes)) {
      return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "array: dim %d of %d is %lld", d, rank, (long long)dims[d]);
    }
  }
  *out_count = count == 0 ? 0 : bytes / (int64_t)hr_dtype_size(dtype);
  return HR_OK;
}

hr_status hr_array_from_host(hr_stream *stream, hr_dtype dtype, int rank, const int64_t *dims, const void *elements,
                             hr_tensor *out) {
  hr_tensor x;
  int64_t count;
  HR_RETURN_IF_ERROR(describe(dtype, rank, dims, &x, &count));
  HR_RETURN_IF_ERROR(hr_buffer_create(hr_stream_device(stream), (size_t)count * hr_dtype_size(dtype), &x.buffer));
  hr_view view = hr_tensor_view(&x);
  hr_status status = count > 0 ? hr_stream_write(stream, &view, elements) : HR_OK;
  if (status != HR_OK) {
    hr_buffer_release(x.buffer);
    return status;
  }
  replace(out, &x);
  return HR_OK;
}

/* Elements from the lowest address to element (0, 0, ...), and from there to the highest; false if they are too many.
 */
static bool measure(const hr_tensor *x, int64_t *before, int64_t *after) {
  *before = *after = 0;
  bool fits = true;
  for (int d = 0; d < x->rank; ++d) {
    int64_t way;
    fits = fits && !__builtin_mul_overflow(x->dims[d] - 1, x->strides[d], &way) && way > -INT64_MAX;
    if (fits) {
      fits = way < 0 ? !__builtin_sub_overflow(*before, way, before) : !__builtin_add_overflow(*after, way, after);
    }
  }
  int64_t bytes;
  return fits && !__builtin_add_overflow(*before, *after, &bytes) && bytes < INT64_MAX / 16 - 1;
}

hr_status hr_array_adopt(hr_stream *stream, hr_dtype dtype, int rank, const int64_t *dims, const int64_t *strides,
                         void *address, void (*release)(void *arg), void *arg, hr_tensor *out) {
  hr_tensor x;
  int64_t count, before, after, size = (int64_t)hr_dtype_size(dtype);
  HR_RETURN_IF_ERROR(describe(dtype, rank, dims, &x, &count));
  if (count == 0) {
    HR_RETURN_IF_ERROR(hr_array_from_host(stream, dtype, rank, dims, NULL, out));
    release(arg);
    return HR_OK;
  }
  for (int d = 0; strides != NULL && d < rank; ++d) {
    x.strides[d] = dims[d] > 1 ? strides[d] : 1;
  }
  if (!measure(&x, &before, &after)) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "array: dims and strides exceed the address space");
  }
  x.offset = before;
  HR_RETURN_IF_ERROR(hr_buffer_adopt(hr_stream_device(stream), (size_t)((before + after + 1) * size),
                                     (char *)address - before * size, release, arg, &x.buffer));
  replace(out, &x);
  return HR_OK;
}

hr_status hr_array_read(hr_stream *stream, const hr_tensor *x, void *out_elements) {
  hr_view view = hr_tensor_view(x);
  return hr_stream_read(stream, &view, out_elements);
}

hr_status hr_array_item(hr_stream *stream, const hr_tensor *x, hr_scalar *out_value) {
  double element[2]; /* the largest one */
  for (int d = 0; d < x->rank; ++d) {
    if (x->dims[d] != 1) {
      return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "item: dim %d has size %lld, expected one element", d,
                            (long long)x->dims[d]);
    }
  }
  HR_RETURN_IF_ERROR(hr_array_read(stream, x, element));
  *out_value = hr_scalar_of(x->dtype, element);
  return HR_OK;
}

static double real_of(hr_dtype dtype, const void *element) {
  float single;
  double wide;
  uint16_t half;
  switch (dtype) {
    case HR_DTYPE_F64:
      memcpy(&wide, element, sizeof wide);
      return wide;
    case HR_DTYPE_F32:
      memcpy(&single, element, sizeof single);
      return (double)single;
    case HR_DTYPE_F16:
    case HR_DTYPE_BF16:
      memcpy(&half, element, sizeof half);
      return (double)(dtype == HR_DTYPE_F16 ? hr_f16_to_f32(half) : hr_bf16_to_f32(half));
    default:
      return (double)hr_f8_to_f32(dtype, *(const uint8_t *)element);
  }
}

static int64_t integer_of(hr_dtype dtype, const void *element) {
  int64_t value = 0;
  size_t bytes = hr_dtype_size(dtype);
  bool is_signed = dtype == HR_DTYPE_I8 || dtype == HR_DTYPE_I16 || dtype == HR_DTYPE_I32;
  memcpy(&value, element, bytes); /* little-endian, as every target is */
  int unused = (int)(64 - 8 * bytes);
  return is_signed ? (int64_t)((uint64_t)value << unused) >> unused : value;
}

hr_scalar hr_scalar_of(hr_dtype dtype, const void *element) {
  hr_dtype part = dtype == HR_DTYPE_C128  ? HR_DTYPE_F64
                  : dtype == HR_DTYPE_C64 ? HR_DTYPE_F32
                  : dtype == HR_DTYPE_C32 ? HR_DTYPE_F16
                                          : HR_DTYPE_NONE;
  if (part != HR_DTYPE_NONE) {
    return hr_scalar_c128(real_of(part, element), real_of(part, (const char *)element + hr_dtype_size(part)));
  }
  switch (dtype) {
    case HR_DTYPE_BOOL:
      return hr_scalar_bool(*(const uint8_t *)element);
    case HR_DTYPE_U64:
      return hr_scalar_u64((uint64_t)integer_of(dtype, element));
    default:
      return hr_dtype_is_integer(dtype) ? hr_scalar_i64(integer_of(dtype, element))
                                        : hr_scalar_f64(real_of(dtype, element));
  }
}
