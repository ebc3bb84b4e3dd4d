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

bool hr__count_elements(int rank, const int64_t *dims, int64_t *out_count) {
  *out_count = 1;
  for (int d = 0; d < rank; ++d) {
    if (dims[d] == 0) {
      *out_count = 0;
      return true;
    }
  }
  for (int d = 0; d < rank; ++d) {
    if (__builtin_mul_overflow(*out_count, dims[d], out_count)) {
      return false;
    }
  }
  return true;
}

void hr__view_like(const hr_tensor *x, hr_tensor *out) {
  hr__copy_tensor(x, out);
  hr_buffer_retain(out->buffer);
}

void hr__move_dim(hr_tensor *x, int from, int to) {
  int64_t size = x->dims[from], stride = x->strides[from];
  for (int step = from < to ? 1 : -1; from != to; from += step) {
    x->dims[from] = x->dims[from + step], x->strides[from] = x->strides[from + step];
  }
  x->dims[to] = size, x->strides[to] = stride;
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

static hr_status create_tensor(const hr__function_call *c, hr_dtype dtype, int rank, const int64_t *dims,
                               hr_tensor *out) {
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

/* NULL: absent. */
static void view_of(const hr_tensor *x, hr_view *view) {
  if (x == NULL) {
    *view = (hr_view){0};
    return;
  }
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
  if (x == NULL) {
    type->dtype = HR_DTYPE_NONE, type->is_number = false, type->rank = 0;
    return;
  }
  size_t bytes = (size_t)x->rank * sizeof *x->dims;
  type->dtype = x->dtype, type->is_number = x->number.dtype != HR_DTYPE_NONE, type->rank = x->rank;
  memcpy(type->dims, x->dims, bytes);
  memcpy(type->strides, x->strides, bytes);
}

static hr_status no_memory(const hr__function_call *c, int count) {
  return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "%s: no memory for %d operands", c->row->name, count);
}

static hr_status record(const hr__function_call *c, hr_op op, const hr_attrs *attrs, int count,
                        const hr_tensor *const *inputs, int output_count, hr_tensor *const *outputs) {
  if (c->stream == NULL) {
    return HR_OK;
  }
  int all = count + output_count;
  hr_view few[FEW], *views = all <= FEW ? few : hr_malloc((size_t)all * sizeof *views);
  few[0].dtype = HR_DTYPE_NONE; /* not all compilers see that all that are passed are set */
  if (views == NULL) {
    return no_memory(c, all);
  }
  for (int i = 0; i < all; ++i) {
    view_of(i < count ? inputs[i] : outputs[i - count], &views[i]);
  }
  hr_status status = hr_stream_record(c->stream, op, attrs, count, views, output_count, views + count);
  if (views != few) {
    hr_free(views);
  }
  return status;
}

/* types: of the inputs, then the outputs, which are inferred. */
static hr_status infer(const hr__function_call *c, hr_op op, const hr_attrs *attrs, int count,
                       const hr_tensor *const *inputs, int output_count, hr_tensor *const *outputs) {
  int all = count + output_count;
  hr_tensor_type few[FEW], *types = all <= FEW ? few : hr_malloc((size_t)all * sizeof *types);
  few[0].dtype = HR_DTYPE_NONE;
  if (types == NULL) {
    return no_memory(c, all);
  }
  for (int i = 0; i < all; ++i) {
    type_of(i < count ? inputs[i] : outputs[i - count], &types[i]);
  }
  hr_status status = hr_op_infer(op, attrs, count, types, output_count, types + count);
  for (int i = 0; status == HR_OK && i < output_count; ++i) {
    const hr_tensor_type *type = &types[count + i];
    if (outputs[i] != NULL) {
      size_t bytes = (size_t)type->rank * sizeof *type->dims;
      outputs[i]->dtype = type->dtype, outputs[i]->rank = type->rank;
      memcpy(outputs[i]->dims, type->dims, bytes);
      memcpy(outputs[i]->strides, type->strides, bytes);
    }
  }
  if (types != few) {
    hr_free(types);
  }
  return status;
}

hr_status hr__record_row(const hr__function_call *c, hr_op op, const hr_attrs *attrs, int count,
                         const hr_tensor *const *inputs, int output_count, hr_tensor *const *outputs) {
  HR_RETURN_IF_ERROR(infer(c, op, attrs, count, inputs, output_count, outputs));
  hr_status status = HR_OK;
  for (int i = 0; i < output_count; ++i) {
    if (outputs[i] != NULL) {
      outputs[i]->buffer = NULL, outputs[i]->number = (hr_scalar){0}, outputs[i]->offset = 0;
      status = status == HR_OK ? create_buffer(c, outputs[i]) : status;
    }
  }
  status = status == HR_OK ? record(c, op, attrs, count, inputs, output_count, outputs) : status;
  for (int i = 0; status != HR_OK && i < output_count; ++i) {
    hr_tensor_release(outputs[i]);
  }
  return status;
}

hr_status hr__record_one(const hr__function_call *c, hr_op op, const hr_attrs *attrs, int count,
                         const hr_tensor *const *inputs, hr_dtype dtype, hr_tensor *out) {
  out->dtype = dtype, out->rank = 0, out->number.dtype = HR_DTYPE_NONE;
  return hr__record_row(c, op, attrs, count, inputs, 1, &out);
}

static bool is_dense(const hr_tensor *x) {
  int64_t stride = 1;
  for (int d = x->rank - 1; d >= 0; --d) {
    if (x->dims[d] != 1 && x->strides[d] != stride) {
      return false;
    }
    stride *= x->dims[d];
  }
  return true;
}

hr_status hr__record_new(const hr__function_call *c, hr_op op, const hr_attrs *attrs, int count,
                         const hr_tensor *const *inputs, hr_dtype dtype, int rank, const int64_t *dims,
                         hr_tensor *out) {
  hr_tensor result, *outputs[1] = {&result};
  HR_RETURN_IF_ERROR(create_tensor(c, dtype, rank, dims, &result));
  hr_status status = record(c, op, attrs, count, inputs, 1, outputs);
  if (status != HR_OK) {
    hr_tensor_release(&result);
    return status;
  }
  hr__copy_tensor(&result, out);
  return HR_OK;
}

static hr_status copy(const hr__function_call *c, const hr_tensor *x, hr_tensor *out) {
  return hr__record_new(c, HR_OP_COPY, NULL, 1, &x, x->dtype, x->rank, x->dims, out);
}

hr_status hr__make_dense(const hr__function_call *c, const hr_tensor *x, hr_tensor *out) {
  if (!is_dense(x)) {
    return copy(c, x, out);
  }
  hr__view_like(x, out);
  return HR_OK;
}

hr_status hr__convert(const hr__function_call *c, const hr_tensor *x, hr_dtype dtype, hr_tensor *out) {
  if (x->dtype == dtype && x->number.dtype == HR_DTYPE_NONE) {
    hr__view_like(x, out);
    return HR_OK;
  }
  return hr__record_one(c, HR_OP_COPY, NULL, 1, &x, dtype, out);
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
    HR_RETURN_IF_ERROR(copy(c, x, &result));
  }
  set_dims(&result, rank, dims);
  if (has_strides) {
    memcpy(result.strides, strides, (size_t)rank * sizeof *strides);
  }
  *out = result;
  return HR_OK;
}
