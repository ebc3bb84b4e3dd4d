/* ordered.c: sorting along an axis. The rows sort the last dim of row-major tensors.
 *
 * Complex numbers have NumPy's order: by the real part, then by the imaginary one. Behind these are numbers with a NaN
 * in the imaginary part, in the real part, and in both. The stable sorts of the parts give it, the last key first.
 */
#include "core/ir/dtype.h"
#include "functional/formula.h"

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

/* ---- complex numbers ---- */

static hr_attribute attribute_of(const hr__formula *f, hr_attribute_kind kind, int index) {
  return (hr_attribute){.kind = kind, .value = {.integer = hr__int_attribute(f->call, index)}};
}

static const hr_tensor *along_axis(hr__formula *f, const hr_tensor *x, const hr_tensor *indices) {
  const hr_tensor *both[2] = {x, indices};
  const hr_attribute axis = attribute_of(f, HR_ATTRIBUTE_INT, 0);
  return hr__function(f, HR_FUNCTIONAL_TAKE_ALONG_AXIS, 2, both, 1, &axis);
}

/* 1 for a NaN in the imaginary part, 2 in the real part, 3 in both, else 0. */
static const hr_tensor *nan_class(hr__formula *f, const hr_tensor *real, const hr_tensor *imaginary) {
  const hr_tensor *major = hr__as_dtype(f, hr__binary(f, HR_OP_NE, real, real), HR_DTYPE_U8);
  const hr_tensor *minor = hr__as_dtype(f, hr__binary(f, HR_OP_NE, imaginary, imaginary), HR_DTYPE_U8);
  return hr__binary(f, HR_OP_ADD, hr__binary(f, HR_OP_MUL, major, hr__integer(f, 2)), minor);
}

static const hr_tensor *complex_order(hr__formula *f, const hr_tensor *x) {
  const hr_tensor *real = hr__unary(f, HR_OP_REAL, x), *imaginary = hr__unary(f, HR_OP_IMAG, x), *order = NULL;
  const hr_tensor *keys[3] = {imaginary, real, nan_class(f, real, imaginary)};
  const hr_attribute attributes[2] = {attribute_of(f, HR_ATTRIBUTE_INT, 0), attribute_of(f, HR_ATTRIBUTE_FLAG, 1)};
  for (int i = 0; i < 3; ++i) {
    const hr_tensor *key = order == NULL ? keys[i] : along_axis(f, keys[i], order);
    const hr_tensor *next = hr__function(f, HR_FUNCTIONAL_ARGSORT, 1, &key, 2, attributes);
    order = order == NULL ? next : along_axis(f, order, next);
  }
  return order;
}

static hr_status sort_complex(const hr__function_call *c) {
  hr__formula f;
  hr__formula_begin(&f, c);
  const hr_tensor *order = complex_order(&f, c->inputs[0]);
  if (c->row->result_count == 0) {
    return hr__formula_end(&f, order);
  }
  return hr__formula_finish(&f, 2, (const hr_tensor *[]){along_axis(&f, c->inputs[0], order), order});
}

/* ---- functions ---- */

/* Both results, or the indices alone. */
hr_status hr__emit_sort(const hr__function_call *c) {
  enum { AXIS, DESCENDING };
  if (hr_dtype_is_complex(c->inputs[0]->dtype)) {
    return sort_complex(c);
  }
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
  if (hr_dtype_is_complex(c->inputs[0]->dtype)) {
    return HR__CALL_FAIL(c, "x has dtype %s, expected a real one", hr_dtype_name(c->inputs[0]->dtype));
  }
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
