/* creations.c: tensors that are made of numbers alone. */
#include <math.h>

#include "core/ir/dtype.h"
#include "functional/formula.h"

hr_status hr__emit_full(const hr__function_call *c) {
  const hr_tensor *value = c->inputs[0];
  const hr_attribute *shape = hr__given_attribute(c, 0);
  hr_dtype dtype = hr__dtype_attribute(c, 1);
  if (dtype == HR_DTYPE_NONE) {
    hr_tensor_type type = {.dtype = value->dtype, .is_number = value->number.dtype != HR_DTYPE_NONE}, result = {0};
    HR_RETURN_IF_ERROR(hr_op_infer(HR_OP_COPY, NULL, 1, &type, 1, &result));
    dtype = result.dtype;
  }
  return hr__record_new(c, HR_OP_COPY, NULL, 1, &value, dtype, shape->count, shape->value.ints, c->output);
}

/* The number of steps from start to stop, rounded up, without the rounding of f64; at most UINT64_MAX. */
static uint64_t count_steps(int64_t start, int64_t stop, int64_t step) {
  bool is_up = step > 0;
  if (is_up ? stop <= start : stop >= start) {
    return 0;
  }
  uint64_t way = is_up ? (uint64_t)stop - (uint64_t)start : (uint64_t)start - (uint64_t)stop;
  uint64_t size = is_up ? (uint64_t)step : 0 - (uint64_t)step;
  return way / size + (way % size != 0);
}

hr_status hr__emit_arange(const hr__function_call *c) {
  const hr_scalar all[3] = {hr__real_attribute(c, 0), hr__real_attribute(c, 1), hr__real_attribute(c, 2)};
  double start = hr_scalar_as_f64(&all[0]), stop = hr_scalar_as_f64(&all[1]), step = hr_scalar_as_f64(&all[2]),
         count = ceil((stop - start) / step);
  bool is_integer = all[0].dtype == HR_DTYPE_I64 && all[1].dtype == HR_DTYPE_I64 && all[2].dtype == HR_DTYPE_I64;
  if (!(fabs(step) > 0) || !(count < 0x1p62)) {
    return HR__CALL_FAIL(c, "%g to %g with step %g has no number of elements", start, stop, step);
  }
  hr_dtype dtype = hr__dtype_attribute(c, 3);
  dtype = dtype != HR_DTYPE_NONE ? dtype : is_integer ? HR_DTYPE_I64 : HR_DTYPE_F32;
  const hr_scalar scalars[2] = {all[0], all[2]};
  hr_attrs attrs = {.scalar_count = 2, .scalars = scalars};
  int64_t dims[1] = {count > 0 ? (int64_t)count : 0};
  if (is_integer) {
    dims[0] = (int64_t)count_steps(all[0].value.i, all[1].value.i, all[2].value.i);
  }
  return hr__record_new(c, c->row->op, &attrs, 0, NULL, dtype, 1, dims, c->output);
}

/* Zeros with ones on a diagonal other than the main one. */
static hr_status other_diagonal(const hr__function_call *c, hr_dtype dtype, const int64_t *dims, int64_t k) {
  hr__formula f;
  hr__formula_begin(&f, c);
  const hr_tensor *y = hr__copied(&f, hr__integer(&f, 0), dtype, 2, dims), *one = hr__integer(&f, 1);
  int64_t row = k < 0 ? -k : 0, column = k > 0 ? k : 0;
  int64_t rows = dims[0] - row, columns = dims[1] - column, count = rows < columns ? rows : columns;
  hr_tensor *line = hr__view(&f, y);
  if (line != NULL && count > 0) {
    line->offset += row * y->strides[0] + column * y->strides[1];
    line->rank = 1, line->dims[0] = count, line->strides[0] = y->strides[0] + y->strides[1];
    hr__formula_fail(&f, hr__write_row(c, HR_OP_COPY, NULL, 1, &one, line));
  }
  return hr__formula_end(&f, y);
}

hr_status hr__emit_eye(const hr__function_call *c) {
  enum { ROWS, COLUMNS, DTYPE, DIAGONAL };
  int64_t rows = hr__int_attribute(c, ROWS), columns = hr__int_attribute(c, COLUMNS);
  int64_t k = hr__int_attribute(c, DIAGONAL);
  hr_dtype chosen = hr__dtype_attribute(c, DTYPE), dtype = chosen != HR_DTYPE_NONE ? chosen : HR_DTYPE_F32;
  const int64_t dims[2] = {rows, columns < 0 ? rows : columns};
  return k != 0 ? other_diagonal(c, dtype, dims, k)
                : hr__record_new(c, c->row->op, NULL, 0, NULL, dtype, 2, dims, c->output);
}
