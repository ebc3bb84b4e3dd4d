/* diagonals.c: diagonals, moved and repeated dims, evenly spaced numbers. */
#include "functional/formula.h"

/* Diagonal `offset` of two dims as the last dim: a view. */
static hr_status take_diagonal(const hr__function_call *c, int64_t offset, int64_t axis1, int64_t axis2,
                               hr_tensor *out) {
  const hr_tensor *x = c->inputs[0];
  int rows, columns;
  HR_RETURN_IF_ERROR(hr__check_axis(c, axis1, x->rank, &rows));
  HR_RETURN_IF_ERROR(hr__check_axis(c, axis2, x->rank, &columns));
  if (rows == columns) {
    return HR__CALL_FAIL(c, "axis %d is given twice", rows);
  }
  int64_t height = x->dims[rows] + (offset < 0 ? offset : 0), width = x->dims[columns] - (offset > 0 ? offset : 0);
  int64_t count = height < width ? height : width;
  count = count > 0 ? count : 0;
  hr__view_like(x, out);
  if (count > 0) {
    out->offset += offset < 0 ? -offset * x->strides[rows] : offset * x->strides[columns];
  }
  hr__drop_dims(out, 1u << rows | 1u << columns);
  out->dims[out->rank] = count, out->strides[out->rank] = x->strides[rows] + x->strides[columns];
  ++out->rank;
  return HR_OK;
}

hr_status hr__emit_diagonal(const hr__function_call *c) {
  return take_diagonal(c, hr__int_attribute(c, 0), hr__int_attribute(c, 1), hr__int_attribute(c, 2), c->output);
}

hr_status hr__emit_trace(const hr__function_call *c) {
  hr_tensor diagonal;
  HR_RETURN_IF_ERROR(take_diagonal(c, hr__int_attribute(c, 0), -2, -1, &diagonal));
  hr__formula f;
  hr__formula_begin(&f, c);
  uint32_t mask = 1u << (diagonal.rank - 1);
  hr_status status =
      hr__formula_end(&f, hr__without(&f, hr__along_as(&f, HR_OP_SUM, &diagonal, mask, hr__sum_dtype(c, 1)), mask));
  hr_tensor_release(&diagonal);
  return status;
}

/* The matrix with a vector on diagonal k. */
hr_status hr__emit_diag(const hr__function_call *c) {
  const hr_tensor *x = c->inputs[0];
  int64_t k = hr__int_attribute(c, 0);
  if (x->rank != 1) {
    return HR__CALL_FAIL(c, "%d dims, expected 1", x->rank);
  }
  hr__formula f;
  hr__formula_begin(&f, c);
  const int64_t n = x->dims[0];
  const hr_attribute sizes[3] = {{.kind = HR_ATTRIBUTE_INT, .value = {.integer = n}},
                                 {.kind = HR_ATTRIBUTE_NONE},
                                 {.kind = HR_ATTRIBUTE_DTYPE, .value = {.dtype = HR_DTYPE_BOOL}}};
  const hr_tensor *mask = hr__function(&f, HR_FUNCTIONAL_EYE, 0, NULL, 3, sizes);
  const hr_tensor *zero = hr__integer(&f, 0), *y = hr__ternary(&f, HR_OP_WHERE, mask, x, zero);
  if (k != 0) {
    int64_t right = k > 0 ? k : 0, down = k < 0 ? -k : 0;
    const int64_t ints[4] = {down, right, right, down};
    hr_scalar number = hr_scalar_i64(0);
    hr_attrs attrs = {.int_count = 4, .scalar_count = 1, .ints = ints, .scalars = &number};
    y = hr__step(&f, HR_OP_PAD, &attrs, 1, &y, HR_DTYPE_NONE);
  }
  return hr__formula_end(&f, y);
}

/* ---- moved dims ---- */

hr_status hr__emit_moveaxis(const hr__function_call *c) {
  int from, to;
  HR_RETURN_IF_ERROR(hr__check_axis(c, hr__int_attribute(c, 0), c->inputs[0]->rank, &from));
  HR_RETURN_IF_ERROR(hr__check_axis(c, hr__int_attribute(c, 1), c->inputs[0]->rank, &to));
  hr__view_like(c->inputs[0], c->output);
  hr__move_dim(c->output, from, to);
  return HR_OK;
}

hr_status hr__emit_swapaxes(const hr__function_call *c) {
  const hr_tensor *x = c->inputs[0];
  int a, b;
  HR_RETURN_IF_ERROR(hr__check_axis(c, hr__int_attribute(c, 0), x->rank, &a));
  HR_RETURN_IF_ERROR(hr__check_axis(c, hr__int_attribute(c, 1), x->rank, &b));
  hr__view_like(x, c->output);
  c->output->dims[a] = x->dims[b], c->output->strides[a] = x->strides[b];
  c->output->dims[b] = x->dims[a], c->output->strides[b] = x->strides[a];
  return HR_OK;
}

/* Each element `count` times: one more dim, which is joined with the axis. */
hr_status hr__emit_repeat(const hr__function_call *c) {
  const hr_tensor *x = c->inputs[0];
  int64_t count = hr__int_attribute(c, 0), dims[HR_RANK_MAX + 1];
  int axis;
  HR_RETURN_IF_ERROR(hr__check_axis(c, hr__int_attribute(c, 1), x->rank, &axis));
  if (count < 0 || x->rank == HR_RANK_MAX) {
    return HR__CALL_FAIL(c, "%lld repetitions of %d dims", (long long)count, x->rank);
  }
  hr__formula f;
  hr__formula_begin(&f, c);
  const hr_tensor *wide = hr__with_dim(&f, x, axis + 1);
  hr__copy_dims(x->rank, x->dims, dims);
  memmove(dims + axis + 2, dims + axis + 1, (size_t)(x->rank - axis - 1) * sizeof *dims);
  dims[axis + 1] = count;
  wide = hr__spread(&f, wide, x->rank + 1, dims);
  hr__copy_dims(x->rank, x->dims, dims);
  if (__builtin_mul_overflow(dims[axis], count, &dims[axis])) {
    hr__formula_fail(&f, HR__CALL_FAIL(c, "%lld repetitions are too many", (long long)count));
  }
  return hr__formula_end(&f, hr__as_dims(&f, wide, x->rank, dims));
}

/* ---- evenly spaced numbers ---- */

/* The first half from the start, the second half from the end, which is exact so. */
hr_status hr__emit_linspace(const hr__function_call *c) {
  enum { START, STOP, COUNT, HAS_END, DTYPE };
  hr_scalar ends[2] = {hr__real_attribute(c, START), hr__real_attribute(c, STOP)};
  double start = hr_scalar_as_f64(&ends[0]), stop = hr_scalar_as_f64(&ends[1]);
  int64_t count = hr__int_attribute(c, COUNT), gaps = count - (hr__int_attribute(c, HAS_END) != 0);
  hr_dtype dtype = hr__dtype_attribute(c, DTYPE);
  if (count < 0) {
    return HR__CALL_FAIL(c, "num is %lld, expected at least 0", (long long)count);
  }
  hr__formula f;
  hr__formula_begin(&f, c);
  double step = gaps > 0 ? (stop - start) / (double)gaps : 0;
  hr_dtype computed = dtype == HR_DTYPE_F64 || hr_dtype_is_integer(dtype) ? HR_DTYPE_F64 : HR_DTYPE_F32;
  const hr_attribute sizes[4] = {{.kind = HR_ATTRIBUTE_NONE},
                                 {.kind = HR_ATTRIBUTE_REAL, .value = {.number = hr_scalar_i64(count)}},
                                 {.kind = HR_ATTRIBUTE_NONE},
                                 {.kind = HR_ATTRIBUTE_DTYPE, .value = {.dtype = computed}}};
  const hr_tensor *i = hr__function(&f, HR_FUNCTIONAL_ARANGE, 0, NULL, 4, sizes);
  const hr_tensor *left = hr__binary(&f, HR_OP_MUL, i, hr__real(&f, step));
  left = hr__binary(&f, HR_OP_ADD, left, hr__real(&f, start));
  const hr_tensor *right = hr__binary(&f, HR_OP_SUB, i, hr__real(&f, (double)(gaps > 0 ? gaps : 0)));
  right = hr__binary(&f, HR_OP_ADD, hr__binary(&f, HR_OP_MUL, right, hr__real(&f, step)),
                     hr__real(&f, gaps > 0 ? stop : start));
  const hr_tensor *is_left = hr__binary(&f, HR_OP_LT, i, hr__real(&f, (double)gaps / 2));
  const hr_tensor *y = hr__ternary(&f, HR_OP_WHERE, is_left, left, right);
  return hr__formula_end(&f, dtype != HR_DTYPE_NONE ? hr__as_dtype(&f, y, dtype) : y);
}
