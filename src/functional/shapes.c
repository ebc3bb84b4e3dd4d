/* shapes.c: functions whose result is a view of their input, or of a copy of it. */

#include "functional/functions.h"

static const hr_attribute *ints_of(const hr__function_call *c, int index) {
  return &c->attributes[index]; /* required, so it is there */
}

hr_status hr__emit_broadcast_to(const hr__function_call *c) {
  const hr_attribute *shape = ints_of(c, 0);
  return hr__broadcast(c, c->inputs[0], shape->count, shape->value.ints, c->output);
}

hr_status hr__emit_permute_dims(const hr__function_call *c) {
  const hr_tensor *x = c->inputs[0];
  const hr_attribute *axes = hr__given_attribute(c, 0);
  uint32_t mask; /* finds axes that are out of range or given twice */
  HR_RETURN_IF_ERROR(hr__axes_attribute(c, 0, x->rank, &mask));
  if (axes != NULL && axes->count != x->rank) {
    return HR__CALL_FAIL(c, "%d axes, expected %d", axes->count, x->rank);
  }
  hr__view_like(x, c->output);
  for (int d = 0; d < x->rank; ++d) {
    int64_t from = axes != NULL ? axes->value.ints[d] : x->rank - 1 - d;
    from += from < 0 ? x->rank : 0;
    c->output->dims[d] = x->dims[from], c->output->strides[d] = x->strides[from];
  }
  return HR_OK;
}

hr_status hr__emit_expand_dims(const hr__function_call *c) {
  const hr_tensor *x = c->inputs[0];
  int rank = x->rank + ints_of(c, 0)->count, from = 0;
  if (rank > HR_RANK_MAX) {
    return HR__CALL_FAIL(c, "the result would have %d dims, expected at most %d", rank, HR_RANK_MAX);
  }
  uint32_t mask;
  HR_RETURN_IF_ERROR(hr__axes_attribute(c, 0, rank, &mask));
  hr__view_like(x, c->output);
  c->output->rank = rank;
  for (int d = 0; d < rank; ++d) {
    bool is_new = (mask >> d & 1u) != 0;
    c->output->dims[d] = is_new ? 1 : x->dims[from];
    c->output->strides[d] = is_new ? 1 : x->strides[from];
    from += !is_new;
  }
  return HR_OK;
}

hr_status hr__emit_squeeze(const hr__function_call *c) {
  const hr_tensor *x = c->inputs[0];
  uint32_t mask;
  HR_RETURN_IF_ERROR(hr__axes_attribute(c, 0, x->rank, &mask));
  for (int d = 0; d < x->rank; ++d) {
    if ((mask >> d & 1u) != 0 && x->dims[d] != 1) {
      if (hr__given_attribute(c, 0) != NULL) {
        return HR__CALL_FAIL(c, "axis %d has size %lld, expected 1", d, (long long)x->dims[d]);
      }
      mask &= ~(1u << d);
    }
  }
  hr__view_like(x, c->output);
  hr__drop_dims(c->output, mask);
  return HR_OK;
}

/* Moves the view's first element along dim d. */
static void begin_at(hr_tensor *view, int d, int64_t index) {
  view->offset += index * view->strides[d];
}

hr_status hr__emit_flip(const hr__function_call *c) {
  const hr_tensor *x = c->inputs[0];
  uint32_t mask;
  HR_RETURN_IF_ERROR(hr__axes_attribute(c, 0, x->rank, &mask));
  hr__view_like(x, c->output);
  for (int d = 0; d < x->rank; ++d) {
    if ((mask >> d & 1u) != 0 && x->dims[d] > 0) {
      begin_at(c->output, d, x->dims[d] - 1);
      c->output->strides[d] = -x->strides[d];
    }
  }
  return HR_OK;
}

/* The first and the last element of a dim's slice exist; an empty slice begins anywhere from 0 to the size. */
static bool is_inside(int64_t size, int64_t begin, int64_t count, int64_t step) {
  int64_t last, way;
  if (count <= 0) {
    return count == 0 && begin >= 0 && begin <= size;
  }
  return begin >= 0 && begin < size && !__builtin_mul_overflow(count - 1, step, &way) &&
         !__builtin_add_overflow(begin, way, &last) && last >= 0 && last < size;
}

hr_status hr__emit_slice(const hr__function_call *c) {
  const hr_tensor *x = c->inputs[0];
  for (int i = 0; i < 3; ++i) {
    if (ints_of(c, i)->count != x->rank) {
      return HR__CALL_FAIL(c, "%d integers of %s for %d dims", ints_of(c, i)->count, c->row->attributes[i].name,
                           x->rank);
    }
  }
  const int64_t *begin = ints_of(c, 0)->value.ints, *count = ints_of(c, 1)->value.ints;
  const int64_t *step = ints_of(c, 2)->value.ints;
  for (int d = 0; d < x->rank; ++d) {
    if (!is_inside(x->dims[d], begin[d], count[d], step[d])) {
      return HR__CALL_FAIL(c, "%lld elements from %lld with step %lld are not inside of dim %d of size %lld",
                           (long long)count[d], (long long)begin[d], (long long)step[d], d, (long long)x->dims[d]);
    }
  }
  hr__view_like(x, c->output);
  for (int d = 0; d < x->rank; ++d) {
    begin_at(c->output, d, count[d] > 0 ? begin[d] : 0);
    c->output->dims[d] = count[d];
    c->output->strides[d] = count[d] > 1 ? x->strides[d] * step[d] : x->strides[d];
  }
  return HR_OK;
}

/* The dims with the one that is -1 computed from the number of elements. */
static bool find_dims(int rank, const int64_t *shape, int64_t count, int64_t *dims) {
  int open = -1;
  for (int d = 0; d < rank; ++d) {
    if (shape[d] < -1 || (shape[d] == -1 && open >= 0)) {
      return false;
    }
    open = shape[d] == -1 ? d : open;
    dims[d] = shape[d] == -1 ? 1 : shape[d];
  }
  int64_t given;
  if (!hr__count_elements(rank, dims, &given)) {
    return false;
  }
  if (open >= 0) {
    dims[open] = given > 0 ? count / given : 0;
    return given > 0 && count % given == 0;
  }
  return given == count;
}

/* The output becomes a copy of the view that it is. */
static hr_status copy_output(const hr__function_call *c) {
  hr_tensor view = *c->output;
  const hr_tensor *input = &view;
  hr_status status = hr__record_one(c, HR_OP_COPY, NULL, 1, &input, HR_DTYPE_NONE, c->output);
  hr_tensor_release(&view);
  return status;
}

hr_status hr__emit_reshape(const hr__function_call *c) {
  enum { SHAPE, COPY };
  const hr_tensor *x = c->inputs[0];
  const hr_attribute *shape = ints_of(c, SHAPE);
  int64_t dims[HR_RANK_MAX], count;
  if (!hr__count_elements(x->rank, x->dims, &count) || !find_dims(shape->count, shape->value.ints, count, dims)) {
    char from[HR__SHAPE_TEXT], to[HR__SHAPE_TEXT];
    return HR__CALL_FAIL(c, "dims %s can't become %s", hr__shape_text(x->rank, x->dims, from),
                         hr__shape_text(shape->count, shape->value.ints, to));
  }
  HR_RETURN_IF_ERROR(hr__reshape(c, x, shape->count, dims, c->output));
  return hr__int_attribute(c, COPY) == 0 || c->output->buffer != x->buffer ? HR_OK : copy_output(c);
}

/* The elements that the view reaches, from the first to the last one, are x's. */
static hr_status check_strided(const hr__function_call *c, int64_t count, const hr_attribute *shape,
                               const hr_attribute *strides, int64_t offset) {
  int64_t ends[2] = {offset, offset}, views;
  bool is_empty = false, fits = true;
  for (int d = 0; d < shape->count; ++d) {
    int64_t way, size = shape->value.ints[d], step = strides->value.ints[d];
    if (size < 0) {
      return HR__CALL_FAIL(c, "dim %d has size %lld", d, (long long)size);
    }
    is_empty |= size == 0;
    int64_t *end = &ends[step > 0];
    fits &= !__builtin_mul_overflow(size - 1, step, &way) && !__builtin_add_overflow(*end, way, end);
  }
  return is_empty || (fits && ends[0] >= 0 && ends[1] < count)
             ? hr__check_count(c, shape->count, shape->value.ints, &views)
             : HR__CALL_FAIL(c, "elements %lld to %lld of %lld ones", (long long)ends[0], (long long)ends[1],
                             (long long)count);
}

hr_status hr__emit_as_strided(const hr__function_call *c) {
  enum { SHAPE, STRIDES, OFFSET };
  const hr_attribute *shape = ints_of(c, SHAPE), *strides = ints_of(c, STRIDES);
  int64_t offset = hr__int_attribute(c, OFFSET), count;
  if (shape->count != strides->count || !hr__count_elements(c->inputs[0]->rank, c->inputs[0]->dims, &count)) {
    return HR__CALL_FAIL(c, "%d strides for %d dims", strides->count, shape->count);
  }
  HR_RETURN_IF_ERROR(check_strided(c, count, shape, strides, offset));
  HR_RETURN_IF_ERROR(hr__make_dense(c, c->inputs[0], c->output));
  bool is_empty = false;
  c->output->rank = shape->count;
  for (int d = 0; d < shape->count; ++d) {
    is_empty |= shape->value.ints[d] == 0;
    c->output->dims[d] = shape->value.ints[d], c->output->strides[d] = strides->value.ints[d];
  }
  c->output->offset += is_empty ? 0 : offset;
  return HR_OK;
}
