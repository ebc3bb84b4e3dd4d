/* ordered.c: sorting along an axis. The rows sort the last dim of row-major tensors. */
#include "functional/functions.h"

/* x with the axis last, row-major; the attribute's number. */
static hr_status with_last_axis(const hr__function_call *c, int attribute, int *out_axis, hr_tensor *out) {
  const hr_tensor *x = c->inputs[0];
  HR_RETURN_IF_ERROR(hr__check_axis(c, hr__int_attribute(c, attribute), x->rank, out_axis));
  hr_tensor moved;
  hr__view_like(x, &moved);
  hr__move_dim(&moved, *out_axis, x->rank - 1);
  hr_status status = hr__make_dense(c, &moved, out);
  hr_tensor_release(&moved);
  return status;
}

/* Records the row on `x`, whose results get their axis back. */
static hr_status record_ordered(const hr__function_call *c, const hr_tensor *x, int64_t flag, int axis,
                                hr_tensor *const outputs[2]) {
  const hr_attrs attrs = {.int_count = 1, .ints = &flag};
  HR_RETURN_IF_ERROR(hr__record_row(c, c->row->op, &attrs, 1, &x, 2, outputs));
  for (int i = 0; i < 2; ++i) {
    if (outputs[i] != NULL) {
      hr__move_dim(outputs[i], x->rank - 1, axis);
    }
  }
  return HR_OK;
}

/* Both results, or the indices alone. */
hr_status hr__emit_sort(const hr__function_call *c) {
  enum { AXIS, DESCENDING };
  bool has_values = c->row->result_count > 0;
  hr_tensor x, indices = {.dtype = HR_DTYPE_I64};
  int axis;
  HR_RETURN_IF_ERROR(with_last_axis(c, AXIS, &axis, &x));
  c->output->dtype = has_values ? x.dtype : HR_DTYPE_I64, c->output->rank = 0;
  hr_tensor *outputs[2] = {has_values ? c->output : NULL, has_values ? &indices : c->output};
  hr_status status = record_ordered(c, &x, hr__int_attribute(c, DESCENDING), axis, outputs);
  hr_tensor_release(&x);
  if (status == HR_OK && has_values) {
    if (c->output_count > 1) {
      hr__copy_tensor(&indices, &c->output[1]);
    } else {
      hr_tensor_release(&indices);
    }
  }
  return status;
}

hr_status hr__emit_topk(const hr__function_call *c) {
  enum { K, AXIS, LARGEST };
  hr_tensor x, found[2];
  int axis;
  int64_t k = hr__int_attribute(c, K);
  HR_RETURN_IF_ERROR(with_last_axis(c, AXIS, &axis, &x));
  hr_status status = HR_OK;
  if (k < 0 || k > x.dims[x.rank - 1]) {
    status = HR__CALL_FAIL(c, "k is %lld, expected 0 to %lld", (long long)k, (long long)x.dims[x.rank - 1]);
  }
  for (int i = 0; i < 2; ++i) {
    hr__copy_tensor(&x, &found[i]);
    found[i].dtype = i == 0 ? x.dtype : HR_DTYPE_I64;
    found[i].dims[x.rank - 1] = k;
  }
  hr_tensor *outputs[2] = {&found[0], &found[1]};
  status = status == HR_OK ? record_ordered(c, &x, hr__int_attribute(c, LARGEST), axis, outputs) : status;
  hr_tensor_release(&x);
  for (int i = 0; status == HR_OK && i < 2; ++i) {
    if (i < c->output_count) {
      hr__copy_tensor(&found[i], &c->output[i]);
    } else {
      hr_tensor_release(&found[i]);
    }
  }
  return status;
}
