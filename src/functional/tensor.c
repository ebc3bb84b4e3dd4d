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

hr_status hr__check_count(const hr__function_call *c, int rank, const int64_t *dims, int64_t *out_count) {
  char text[HR__SHAPE_TEXT];
  return hr__count_elements(rank, dims, out_count)
             ? HR_OK
             : HR__CALL_FAIL(c, "dims %s are too large", hr__shape_text(rank, dims, text));
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
  int64_t count;
  HR_RETURN_IF_ERROR(hr__check_count(c, rank, dims, &count));
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
  x->rank = rank;
  if (rank > 0) { /* else dims may be NULL */
    memmove(x->dims, dims, (size_t)rank * sizeof *x->dims);
  }
  hr_tensor_set_row_major(x);
}

static hr_status check_rank(const hr__function_call *c, int rank) {
  return rank <= HR_RANK_MAX ? HR_OK : HR__CALL_FAIL(c, "%d dims, expected at most %d", rank, HR_RANK_MAX);
}

static hr_status set_new_dims(const hr__function_call *c, int rank, const int64_t *dims, hr_tensor *x) {
  HR_RETURN_IF_ERROR(check_rank(c, rank));
  for (int d = 0; d < rank; ++d) {
    if (dims[d] < 0) {
      char text[HR__SHAPE_TEXT];
      return HR__CALL_FAIL(c, "dims %s: dim %d is negative", hr__shape_text(rank, dims, text), d);
    }
  }
  set_dims(x, rank, dims);
  return HR_OK;
}

/* ---- records ---- */

enum { FEW = 8 };

/* NULL: absent. */
static inline void view_of(const hr__function_call *c, const hr_tensor *x, hr_view *view) {
  if (x == NULL) {
    *view = (hr_view){0};
    return;
  }
  *view = hr_tensor_view(x);
  if (c->stream == NULL && view->scalar == NULL) {
    view->buffer = hr__present_buffer();
  }
}

static hr_status no_memory(const hr__function_call *c, int count) {
  return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "%s: no memory for %d operands", c->row->name, count);
}

/* views: of the inputs; room for the outputs' behind them. */
static hr_status record(const hr__function_call *c, hr_op op, const hr_attrs *attrs, int count, hr_view *views,
                        int output_count, hr_tensor *const *outputs) {
  if (c->stream == NULL) {
    return HR_OK;
  }
  for (int i = 0; i < output_count; ++i) {
    view_of(c, outputs[i], &views[count + i]);
  }
  return hr_stream_record(c->stream, op, attrs, count, views, output_count, views + count);
}

/* A tensor of this type without a buffer. */
static inline void set_type(hr_tensor *x, const hr_tensor_type *type) {
  x->buffer = NULL, x->number = (hr_scalar){0}, x->offset = 0;
  x->dtype = type->dtype, x->rank = type->rank;
  hr__copy_dims(type->rank, type->dims, x->dims);
  hr__copy_dims(type->rank, type->strides, x->strides);
}

/* Infers the outputs, which get no buffers. */
static hr_status infer(const hr__function_call *c, hr_op op, const hr_attrs *attrs, int count, const hr_view *views,
                       int output_count, hr_tensor *const *outputs) {
  hr_tensor_type few[FEW], *types = output_count <= FEW ? few : hr_malloc((size_t)output_count * sizeof *types);
  if (types == NULL) {
    return no_memory(c, output_count);
  }
  for (int i = 0; i < output_count; ++i) {
    types[i].dtype = outputs[i] != NULL ? outputs[i]->dtype : HR_DTYPE_NONE;
    types[i].is_number = false, types[i].rank = outputs[i] != NULL ? outputs[i]->rank : 0;
    if (types[i].rank > 0) {
      memcpy(types[i].dims, outputs[i]->dims, (size_t)types[i].rank * sizeof *types[i].dims);
    }
  }
  hr_status status = hr__infer_views(op, attrs, count, views, output_count, types);
  for (int i = 0; status == HR_OK && i < output_count; ++i) {
    if (outputs[i] != NULL) {
      set_type(outputs[i], &types[i]);
    }
  }
  if (types != few) {
    hr_free(types);
  }
  return status;
}

/* Infers the outputs unless they are set, creates and records them. */
static hr_status record_row(const hr__function_call *c, hr_op op, const hr_attrs *attrs, int count,
                            const hr_tensor *const *inputs, int output_count, hr_tensor *const *outputs,
                            bool are_inferred) {
  int all = count + output_count;
  hr_view few[FEW], *views = all <= FEW ? few : hr_malloc((size_t)all * sizeof *views);
  if (views == NULL) {
    return no_memory(c, all);
  }
  for (int i = 0; i < count; ++i) {
    view_of(c, inputs[i], &views[i]);
  }
  hr_status status = are_inferred ? infer(c, op, attrs, count, views, output_count, outputs) : HR_OK;
  bool are_set = status == HR_OK;
  for (int i = 0; i < output_count && status == HR_OK; ++i) {
    status = outputs[i] != NULL ? create_buffer(c, outputs[i]) : HR_OK;
  }
  status = status == HR_OK ? record(c, op, attrs, count, views, output_count, outputs) : status;
  for (int i = 0; status != HR_OK && are_set && i < output_count; ++i) {
    hr_tensor_release(outputs[i]);
  }
  if (views != few) {
    hr_free(views);
  }
  return status;
}

hr_status hr__write_row(const hr__function_call *c, hr_op op, const hr_attrs *attrs, int count,
                        const hr_tensor *const *inputs, const hr_tensor *output) {
  hr_view views[HR_RANK_MAX + FEW];
  if (count >= HR_RANK_MAX + FEW) {
    return no_memory(c, count + 1);
  }
  for (int i = 0; i < count; ++i) {
    view_of(c, inputs[i], &views[i]);
  }
  if (c->stream == NULL) { /* an inference checks the output's type as a record does */
    hr_tensor type, *types[1] = {&type};
    hr__copy_tensor(output, &type);
    return infer(c, op, attrs, count, views, 1, types);
  }
  view_of(c, output, &views[count]);
  return hr_stream_record(c->stream, op, attrs, count, views, 1, &views[count]);
}

hr_status hr__record_row(const hr__function_call *c, hr_op op, const hr_attrs *attrs, int count,
                         const hr_tensor *const *inputs, int output_count, hr_tensor *const *outputs) {
  return record_row(c, op, attrs, count, inputs, output_count, outputs, true);
}

/* A new tensor that a record has made; its dims and strides may be x's. */
static inline void set_view(hr_tensor *x, const hr_view *view) {
  x->buffer = view->buffer, x->number = (hr_scalar){0}, x->offset = 0;
  x->dtype = view->dtype, x->rank = view->rank;
  hr__copy_dims(view->rank, view->dims, x->dims);
  hr__copy_dims(view->rank, view->strides, x->strides);
}

bool hr__record_alike(hr_stream *stream, hr_op op, int input_count, const hr_tensor *const *inputs, hr_tensor *out,
                      hr_status *out_status) {
  hr_view views[FEW], *made = &views[input_count];
  if (input_count >= FEW) {
    return false;
  }
  for (int i = 0; i < input_count; ++i) {
    if (inputs[i] == NULL) {
      return false;
    }
    views[i] = hr_tensor_view(inputs[i]);
  }
  *out_status = hr_stream_record_alike(stream, op, input_count, views, made);
  if (*out_status == HR_OK && made->buffer != NULL) {
    set_view(out, made);
  }
  return *out_status != HR_OK || made->buffer != NULL;
}

/* hr__record_one for few inputs: most records of small arrays, whose time is the host's. */
static hr_status record_few(const hr__function_call *c, hr_op op, const hr_attrs *attrs, int count,
                            const hr_tensor *const *inputs, hr_dtype dtype, hr_tensor *out) {
  hr_view views[FEW];
  hr_tensor_type type;
  type.dtype = dtype, type.is_number = false, type.rank = 0;
  for (int i = 0; i < count; ++i) {
    view_of(c, inputs[i], &views[i]);
  }
  HR_RETURN_IF_ERROR(hr__infer_views(op, attrs, count, views, 1, &type));
  set_type(out, &type);
  HR_RETURN_IF_ERROR(create_buffer(c, out));
  views[count] = hr_tensor_view(out);
  hr_status status = hr_stream_record_new(c->stream, op, attrs, count, views, &views[count]);
  if (status != HR_OK) {
    hr_tensor_release(out);
  }
  return status;
}

hr_status hr__record_one(const hr__function_call *c, hr_op op, const hr_attrs *attrs, int count,
                         const hr_tensor *const *inputs, hr_dtype dtype, hr_tensor *out) {
  if (c->stream != NULL && count < FEW) {
    hr_status status;
    if (attrs == NULL && dtype == HR_DTYPE_NONE && hr__record_alike(c->stream, op, count, inputs, out, &status)) {
      return status;
    }
    return record_few(c, op, attrs, count, inputs, dtype, out);
  }
  out->dtype = dtype, out->rank = 0, out->number.dtype = HR_DTYPE_NONE;
  return hr__record_row(c, op, attrs, count, inputs, 1, &out);
}

hr_status hr__record_new(const hr__function_call *c, hr_op op, const hr_attrs *attrs, int count,
                         const hr_tensor *const *inputs, hr_dtype dtype, int rank, const int64_t *dims,
                         hr_tensor *out) {
  hr_tensor result = {.dtype = dtype}, *outputs[1] = {&result};
  HR_RETURN_IF_ERROR(set_new_dims(c, rank, dims, &result));
  HR_RETURN_IF_ERROR(record_row(c, op, attrs, count, inputs, 1, outputs, false));
  hr__copy_tensor(&result, out);
  return HR_OK;
}

static hr_status copy(const hr__function_call *c, const hr_tensor *x, hr_tensor *out) {
  return hr__record_new(c, HR_OP_COPY, NULL, 1, &x, x->dtype, x->rank, x->dims, out);
}

hr_status hr__make_dense(const hr__function_call *c, const hr_tensor *x, hr_tensor *out) {
  if (!hr_tensor_is_row_major(x)) {
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
  HR_RETURN_IF_ERROR(check_rank(c, rank));
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
