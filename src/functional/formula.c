/* formula.c: expressions of records with one owner of their intermediate tensors. */
#include "functional/formula.h"

static const hr_tensor nothing; /* the result of a step after a failure */

void hr__formula_fail(hr__formula *f, hr_status status) {
  if (f->status == HR_OK) {
    f->status = status;
  } else {
    hr_status_free(status);
  }
}

/* A free place for a value; NULL after a failure. */
static hr_tensor *place(hr__formula *f) {
  if (f->status == HR_OK && f->count == HR__FORMULA_STEPS) {
    f->status = hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "%s: more than %d steps", f->call->row->name, f->count);
  }
  return f->status == HR_OK ? &f->values[f->count] : NULL;
}

/* Counts the value in the free place unless it was not set. */
static const hr_tensor *keep(hr__formula *f, hr_status status) {
  if (status != HR_OK) {
    hr__formula_fail(f, status);
    return &nothing;
  }
  return &f->values[f->count++];
}

hr_status hr__formula_finish(hr__formula *f, int count, const hr_tensor *const *results) {
  for (int i = 0; f->status == HR_OK && i < count && i < f->call->output_count; ++i) {
    hr__view_like(results[i], &f->call->output[i]);
  }
  for (int i = 0; i < f->count; ++i) {
    hr_buffer_release(f->values[i].buffer);
  }
  return f->status;
}

const hr_tensor *hr__number(hr__formula *f, hr_scalar number) {
  hr_tensor *out = place(f);
  if (out == NULL) {
    return &nothing;
  }
  *out = hr_tensor_number(number);
  return keep(f, HR_OK);
}

/* ---- records ---- */

const hr_tensor *hr__step(hr__formula *f, hr_op op, const hr_attrs *attrs, int count, const hr_tensor *const *inputs,
                          hr_dtype dtype) {
  hr_tensor *out = place(f);
  return out == NULL ? &nothing : keep(f, hr__record_one(f->call, op, attrs, count, inputs, dtype, out));
}

hr_tensor *hr__output(hr__formula *f, hr_dtype dtype, int rank, const int64_t *dims) {
  hr_tensor *out = place(f);
  if (out == NULL) {
    return (hr_tensor *)&nothing; /* hr__record_to does not write it */
  }
  out->buffer = NULL, out->number = (hr_scalar){0}, out->dtype = dtype, out->rank = rank, out->offset = 0;
  if (rank > 0) {
    memcpy(out->dims, dims, (size_t)rank * sizeof *dims); /* the caller's array has no room for more */
  }
  ++f->count;
  return out;
}

void hr__record_to(hr__formula *f, hr_op op, const hr_attrs *attrs, int count, const hr_tensor *const *inputs,
                   int output_count, hr_tensor *const *outputs) {
  if (f->status == HR_OK) {
    hr__formula_fail(f, hr__record_row(f->call, op, attrs, count, inputs, output_count, outputs));
  }
}

const hr_tensor *hr__unary(hr__formula *f, hr_op op, const hr_tensor *x) {
  return hr__step(f, op, NULL, 1, &x, HR_DTYPE_NONE);
}

const hr_tensor *hr__binary(hr__formula *f, hr_op op, const hr_tensor *x, const hr_tensor *y) {
  const hr_tensor *inputs[2] = {x, y};
  return hr__step(f, op, NULL, 2, inputs, HR_DTYPE_NONE);
}

const hr_tensor *hr__ternary(hr__formula *f, hr_op op, const hr_tensor *x, const hr_tensor *y, const hr_tensor *z) {
  const hr_tensor *inputs[3] = {x, y, z};
  return hr__step(f, op, NULL, 3, inputs, HR_DTYPE_NONE);
}

const hr_tensor *hr__along_as(hr__formula *f, hr_op op, const hr_tensor *x, int64_t which, hr_dtype dtype) {
  hr_attrs attrs = {.int_count = 1, .ints = &which};
  return hr__step(f, op, &attrs, 1, &x, dtype);
}

const hr_tensor *hr__along(hr__formula *f, hr_op op, const hr_tensor *x, int64_t which) {
  return hr__along_as(f, op, x, which, HR_DTYPE_NONE);
}

const hr_tensor *hr__along_pair(hr__formula *f, hr_op op, const hr_tensor *const pair[2], int64_t which) {
  hr_attrs attrs = {.int_count = 1, .ints = &which};
  return hr__step(f, op, &attrs, 2, pair, HR_DTYPE_NONE);
}

const hr_tensor *hr__reduced(hr__formula *f, hr_op op, const hr_tensor *x, uint32_t mask) {
  return hr__without(f, hr__along(f, op, x, mask), mask);
}

const hr_tensor *hr__function(hr__formula *f, hr_functional function, int count, const hr_tensor *const *inputs,
                              int attribute_count, const hr_attribute *attributes) {
  hr_tensor *out = place(f);
  return out == NULL ? &nothing
                     : keep(f, hr_functional_apply(f->call->stream, function, count, inputs, attribute_count,
                                                   attributes, 1, out));
}

const hr_tensor *hr__counted(hr__formula *f, int64_t count, int rank, int d) {
  const hr_attribute until[4] = {{.kind = HR_ATTRIBUTE_NONE},
                                 {.kind = HR_ATTRIBUTE_REAL, .value = {.number = hr_scalar_i64(count)}},
                                 {.kind = HR_ATTRIBUTE_NONE},
                                 {.kind = HR_ATTRIBUTE_DTYPE, .value = {.dtype = HR_DTYPE_I64}}};
  const hr_tensor *line = hr__function(f, HR_FUNCTIONAL_ARANGE, 0, NULL, 4, until);
  int64_t dims[HR_RANK_MAX];
  for (int e = 0; e < rank; ++e) {
    dims[e] = e == d ? count : 1;
  }
  return rank == 1 || hr__formula_failed(f) ? line : hr__as_dims(f, line, rank, dims);
}

/* ---- views and copies ---- */

const hr_tensor *hr__as_dtype(hr__formula *f, const hr_tensor *x, hr_dtype dtype) {
  hr_tensor *out = place(f);
  return out == NULL ? &nothing : keep(f, hr__convert(f->call, x, dtype, out));
}

const hr_tensor *hr__as_dims(hr__formula *f, const hr_tensor *x, int rank, const int64_t *dims) {
  hr_tensor *out = place(f);
  return out == NULL ? &nothing : keep(f, hr__reshape(f->call, x, rank, dims, out));
}

const hr_tensor *hr__spread(hr__formula *f, const hr_tensor *x, int rank, const int64_t *dims) {
  hr_tensor *out = place(f);
  return out == NULL ? &nothing : keep(f, hr__broadcast(f->call, x, rank, dims, out));
}

const hr_tensor *hr__dense(hr__formula *f, const hr_tensor *x) {
  hr_tensor *out = place(f);
  return out == NULL ? &nothing : keep(f, hr__make_dense(f->call, x, out));
}

const hr_tensor *hr__extended(hr__formula *f, const hr_tensor *x, int dim, int64_t size) {
  if (hr__formula_failed(f)) {
    return x;
  }
  int64_t ints[2 * HR_RANK_MAX] = {0};
  ints[x->rank + dim] = size - x->dims[dim];
  hr_scalar zero = hr_scalar_i64(0);
  hr_attrs attrs = {.int_count = 2 * x->rank, .scalar_count = 1, .ints = ints, .scalars = &zero};
  return hr__step(f, HR_OP_PAD, &attrs, 1, &x, HR_DTYPE_NONE);
}

const hr_tensor *hr__copied(hr__formula *f, const hr_tensor *x, hr_dtype dtype, int rank, const int64_t *dims) {
  hr_tensor *out = place(f);
  return out == NULL ? &nothing : keep(f, hr__record_new(f->call, HR_OP_COPY, NULL, 1, &x, dtype, rank, dims, out));
}

const hr_tensor *hr__spaced(hr__formula *f, const hr_tensor *x, const int64_t *distances, hr_scalar value) {
  int64_t dims[HR_RANK_MAX];
  bool is_spaced = false;
  for (int d = 0; f->status == HR_OK && d < x->rank; ++d) {
    is_spaced |= distances[d] != 1;
    dims[d] = x->dims[d] > 0 ? (x->dims[d] - 1) * distances[d] + 1 : 0;
  }
  if (!is_spaced) {
    return x;
  }
  const hr_tensor *all = hr__copied(f, hr__number(f, value), x->dtype, x->rank, dims);
  hr_tensor *places = hr__view(f, all);
  if (places != NULL) {
    hr__copy_dims(x->rank, x->dims, places->dims);
    for (int d = 0; d < x->rank; ++d) {
      places->strides[d] *= distances[d];
    }
    hr__formula_fail(f, hr__write_row(f->call, HR_OP_COPY, NULL, 1, &x, places));
  }
  return all;
}

hr_tensor *hr__view(hr__formula *f, const hr_tensor *x) {
  hr_tensor *out = place(f);
  if (out != NULL) {
    hr__view_like(x, out);
    ++f->count;
  }
  return out;
}

const hr_tensor *hr__without(hr__formula *f, const hr_tensor *x, uint32_t mask) {
  hr_tensor *out = hr__view(f, x);
  if (out == NULL) {
    return &nothing;
  }
  hr__drop_dims(out, mask);
  return out;
}

const hr_tensor *hr__moved(hr__formula *f, const hr_tensor *x, int from, int to) {
  hr_tensor *out = hr__view(f, x);
  if (out == NULL) {
    return &nothing;
  }
  hr__move_dim(out, from, to);
  return out;
}

const hr_tensor *hr__with_dim(hr__formula *f, const hr_tensor *x, int at) {
  hr_tensor *out = hr__view(f, x);
  if (out == NULL) {
    return &nothing;
  }
  if (x->rank == HR_RANK_MAX) {
    hr__formula_fail(f, HR__CALL_FAIL(f->call, "more than %d dims", HR_RANK_MAX));
    return &nothing;
  }
  out->dims[out->rank] = 1, out->strides[out->rank] = 1;
  hr__move_dim(out, out->rank++, at);
  return out;
}

const hr_tensor *hr__part(hr__formula *f, const hr_tensor *x, int dim, int64_t first, int64_t count) {
  hr_tensor *out = hr__view(f, x);
  if (out == NULL) {
    return &nothing;
  }
  out->offset += count > 0 ? first * out->strides[dim] : 0;
  out->dims[dim] = count;
  return out;
}

/* Tensors first: numbers only raise the category. */
hr_dtype hr__promoted(hr__formula *f, int count, const hr_tensor *const *inputs) {
  hr_dtype dtype = HR_DTYPE_NONE;
  for (int i = 0; i < count && f->status == HR_OK; ++i) {
    if (inputs[i]->number.dtype == HR_DTYPE_NONE) {
      dtype = dtype == HR_DTYPE_NONE ? inputs[i]->dtype : hr_dtype_promote(dtype, inputs[i]->dtype);
    }
  }
  for (int i = 0; i < count && f->status == HR_OK; ++i) {
    hr_dtype number = inputs[i]->number.dtype;
    if (number != HR_DTYPE_NONE) {
      dtype = hr_dtype_promote_scalar(dtype != HR_DTYPE_NONE ? dtype : HR_DTYPE_BOOL, number);
    }
  }
  return dtype;
}
