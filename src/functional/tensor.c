/* tensor.c: tensors as views of buffers, and records that create them. */
#include <string.h>

#include "base/allocator.h"
#include "functional/functions.h"

void hr_tensor_release(hr_tensor *tensor) {
  if (tensor != NULL) {
    hr_buffer_release(tensor->buffer);
    *tensor = (hr_tensor){0};
  }
}

/* ---- views ---- */

void hr__view_like(const hr_tensor *x, hr_tensor *out) {
  hr__copy_tensor(x, out);
  hr_buffer_retain(out->buffer);
}

void hr__drop_dims(hr_tensor *x, uint32_t mask) {
  int rank = 0;
  for (int d = 0; d < x->rank; ++d) {
    if ((mask >> d & 1u) == 0) {
      x->dims[rank] = x->dims[d], x->strides[rank] = x->strides[d];
      ++rank;
    }
  }
  x->rank = rank;
}

hr_status hr__broadcast(const hr__function_call *c, const hr_tensor *x, int rank, const int64_t *dims, hr_tensor *out) {
  int first = rank - x->rank;
  bool fits = first >= 0 && rank <= HR_RANK_MAX;
  for (int d = 0; fits && d < x->rank; ++d) {
    fits = x->dims[d] == dims[first + d] || x->dims[d] == 1;
  }
  for (int d = 0; fits && d < rank; ++d) {
    fits = dims[d] >= 0;
  }
  if (!fits) {
    char from[HR__SHAPE_TEXT], to[HR__SHAPE_TEXT];
    return HR__CALL_FAIL(c, "dims %s can't be broadcast to %s", hr__shape_text(x->rank, x->dims, from),
                         hr__shape_text(rank, dims, to));
  }
  hr__view_like(x, out);
  out->rank = rank;
  for (int d = 0; d < rank; ++d) {
    bool is_kept = d >= first && x->dims[d - first] == dims[d];
    out->dims[d] = dims[d];
    out->strides[d] = is_kept ? x->strides[d - first] : 0;
  }
  return HR_OK;
}

/* ---- new tensors ---- */

/* Gives the tensor a buffer for its dims, which are dense. */
static hr_status create_buffer(const hr__function_call *c, hr_tensor *x) {
  size_t bytes = hr_dtype_size(x->dtype);
  for (int d = 0; d < x->rank; ++d) {
    if (__builtin_mul_overflow(bytes, (size_t)x->dims[d], &bytes) || bytes > INT64_MAX) {
      char text[HR__SHAPE_TEXT];
      return HR__CALL_FAIL(c, "a result of dims %s is too large", hr__shape_text(x->rank, x->dims, text));
    }
  }
  return c->stream == NULL ? HR_OK : hr_buffer_create(hr_stream_device(c->stream), bytes, &x->buffer);
}

static void set_dims(hr_tensor *x, int rank, const int64_t *dims) {
  int64_t stride = 1;
  x->rank = rank;
  for (int d = rank - 1; d >= 0; --d) {
    x->dims[d] = dims[d], x->strides[d] = stride;
    stride *= dims[d] > 1 ? dims[d] : 1;
  }
}

hr_status hr__create_tensor(const hr__function_call *c, hr_dtype dtype, int rank, const int64_t *dims, hr_tensor *out) {
  for (int d = 0; d < rank; ++d) {
    if (dims[d] < 0) {
      char text[HR__SHAPE_TEXT];
      return HR__CALL_FAIL(c, "dims %s: dim %d is negative", hr__shape_text(rank, dims, text), d);
    }
  }
  hr_tensor tensor = {.dtype = dtype};
  set_dims(&tensor, rank, dims);
  HR_RETURN_IF_ERROR(create_buffer(c, &tensor));
  *out = tensor;
  return HR_OK;
}

/* ---- records ---- */

enum { FEW = 8 };

static void view_of(const hr_tensor *x, hr_view *view) {
  bool is_number = x->number.dtype != HR_DTYPE_NONE;
  *view = (hr_view){.buffer = x->buffer,
                    .scalar = is_number ? &x->number : NULL,
                    .dtype = x->dtype,
                    .rank = x->rank,
                    .offset = x->offset,
                    .dims = x->dims,
                    .strides = x->strides};
}

static void type_of(const hr_tensor *x, hr_tensor_type *type) {
  size_t bytes = (size_t)x->rank * sizeof *x->dims;
  type->dtype = x->dtype, type->is_number = x->number.dtype != HR_DTYPE_NONE, type->rank = x->rank;
  memcpy(type->dims, x->dims, bytes);
  memcpy(type->strides, x->strides, bytes);
}

hr_status hr__record_into(const hr__function_call *c, hr_op op, const hr_attrs *attrs, int count,
                          const hr_tensor *const *inputs, const hr_tensor *out) {
  if (c->stream == NULL) {
    return HR_OK;
  }
  hr_view few[FEW], *views = count <= FEW ? few : hr_malloc((size_t)count * sizeof *views), output;
  if (views == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "%s: no memory for %d inputs", c->row->name, count);
  }
  for (int i = 0; i < count; ++i) {
    view_of(inputs[i], &views[i]);
  }
  view_of(out, &output);
  hr_status status = hr_stream_record(c->stream, op, attrs, count, views, 1, &output);
  if (views != few) {
    hr_free(views);
  }
  return status;
}

/* The type of the row's only output. */
static hr_status infer(const hr__function_call *c, hr_op op, const hr_attrs *attrs, int count,
                       const hr_tensor *const *inputs, hr_tensor_type *type) {
  hr_tensor_type few[FEW], *types = count <= FEW ? few : hr_malloc((size_t)count * sizeof *types);
  few[0].dtype = HR_DTYPE_NONE; /* not all compilers see that the first `count` are set */
  if (types == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "%s: no memory for %d inputs", c->row->name, count);
  }
  for (int i = 0; i < count; ++i) {
    type_of(inputs[i], &types[i]);
  }
  hr_status status = hr_op_infer(op, attrs, count, types, 1, type);
  if (types != few) {
    hr_free(types);
  }
  return status;
}

hr_status hr__record_row(const hr__function_call *c, hr_op op, const hr_attrs *attrs, int count,
                         const hr_tensor *const *inputs, hr_dtype dtype, hr_tensor *out) {
  hr_tensor_type type;
  type.dtype = dtype, type.is_number = false, type.rank = 0;
  HR_RETURN_IF_ERROR(infer(c, op, attrs, count, inputs, &type));
  hr_tensor tensor;
  size_t bytes = (size_t)type.rank * sizeof *type.dims;
  memset(&tensor, 0, offsetof(hr_tensor, dims));
  tensor.dtype = type.dtype, tensor.rank = type.rank;
  memcpy(tensor.dims, type.dims, bytes);
  memcpy(tensor.strides, type.strides, bytes);
  HR_RETURN_IF_ERROR(create_buffer(c, &tensor));
  hr_status status = hr__record_into(c, op, attrs, count, inputs, &tensor);
  if (status != HR_OK) {
    hr_tensor_release(&tensor);
    return status;
  }
  hr__copy_tensor(&tensor, out);
  return HR_OK;
}

hr_status hr__convert(const hr__function_call *c, const hr_tensor *x, hr_dtype dtype, hr_tensor *out) {
  if (x->dtype == dtype && x->number.dtype == HR_DTYPE_NONE) {
    hr__view_like(x, out);
    return HR_OK;
  }
  return hr__record_row(c, HR_OP_COPY, NULL, 1, &x, dtype, out);
}

/* ---- reshaping ---- */

/* Strides of a view of x with other dims, which have as many elements, at least one: runs of x's dims whose elements
 * are evenly spaced are divided anew. False: there is no such view. */
static bool find_strides(const hr_tensor *x, int rank, const int64_t *dims, int64_t *strides) {
  int64_t x_dims[HR_RANK_MAX], x_strides[HR_RANK_MAX];
  int count = 0, to = 0;
  for (int d = 0; d < x->rank; ++d) {
    if (x->dims[d] != 1) {
      x_dims[count] = x->dims[d], x_strides[count++] = x->strides[d];
    }
  }
  for (int from = 0; from < count; ++from) {
    int64_t have = x_dims[from], want = 1;
    int end = to;
    while (have != want) {
      if (want < have) {
        want *= dims[end++];
        continue;
      }
      if (x_strides[from] != x_dims[from + 1] * x_strides[from + 1]) {
        return false;
      }
      have *= x_dims[++from];
    }
    int64_t stride = x_strides[from];
    for (int d = end - 1; d >= to; --d) {
      strides[d] = stride;
      stride *= dims[d];
    }
    to = end;
  }
  for (; to < rank; ++to) {
    strides[to] = 1;
  }
  return true;
}

hr_status hr__reshape(const hr__function_call *c, const hr_tensor *x, int rank, const int64_t *dims, hr_tensor *out) {
  bool is_empty = false;
  for (int d = 0; d < rank; ++d) {
    is_empty |= dims[d] == 0;
  }
  int64_t strides[HR_RANK_MAX];
  bool has_strides = !is_empty && find_strides(x, rank, dims, strides);
  hr_tensor result;
  if (is_empty || has_strides) {
    hr__view_like(x, &result);
  } else {
    HR_RETURN_IF_ERROR(hr__create_tensor(c, x->dtype, x->rank, x->dims, &result));
    hr_status status = hr__record_into(c, HR_OP_COPY, NULL, 1, &x, &result);
    if (status != HR_OK) {
      hr_tensor_release(&result);
      return status;
    }
  }
  set_dims(&result, rank, dims);
  if (has_strides) {
    memcpy(result.strides, strides, (size_t)rank * sizeof *strides);
  }
  *out = result;
  return HR_OK;
}
