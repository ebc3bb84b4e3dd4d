/* several.c: matrix products, and tensors one after the other. */

#include "base/allocator.h"
#include "functional/functions.h"

/* ---- matrix products ---- */

/* A matrix for a vector: a row on the left, a column on the right. */
static void as_matrix(const hr_tensor *x, bool is_left, hr_tensor *out) {
  hr__view_like(x, out);
  if (x->rank == 1) {
    int line = is_left ? 1 : 0;
    out->rank = 2;
    out->dims[line] = x->dims[0], out->strides[line] = x->strides[0];
    out->dims[1 - line] = 1, out->strides[1 - line] = 1;
  }
}

/* Both in the promoted dtype. */
static hr_status convert_both(const hr__function_call *c, hr_tensor both[2]) {
  hr_tensor_type types[2], sum = {0};
  memset(types, 0, sizeof types);
  types[0].dtype = both[0].dtype, types[1].dtype = both[1].dtype;
  HR_RETURN_IF_ERROR(hr_op_infer(HR_OP_ADD, NULL, 2, types, 1, &sum));
  for (int i = 0; i < 2; ++i) {
    hr_tensor converted;
    HR_RETURN_IF_ERROR(hr__convert(c, &both[i], sum.dtype, &converted));
    hr_tensor_release(&both[i]);
    both[i] = converted;
  }
  return HR_OK;
}

/* A batch of matrices times one matrix, as one product of all their rows. */
static hr_status multiply_rows(const hr__function_call *c, const hr_tensor *left, const hr_tensor *right) {
  int rank = left->rank;
  int64_t dims[HR_RANK_MAX], rows[2] = {1, left->dims[rank - 1]};
  for (int d = 0; d < rank - 1; ++d) {
    dims[d] = left->dims[d];
    rows[0] *= dims[d];
  }
  dims[rank - 1] = right->dims[1];
  hr_tensor flat, product;
  HR_RETURN_IF_ERROR(hr__reshape(c, left, 2, rows, &flat));
  hr_status status =
      hr__record_one(c, HR_OP_MATMUL, NULL, 2, (const hr_tensor *[]){&flat, right}, HR_DTYPE_NONE, &product);
  if (status == HR_OK) {
    status = hr__reshape(c, &product, rank, dims, c->output);
    hr_tensor_release(&product);
  }
  hr_tensor_release(&flat);
  return status;
}

static hr_status multiply(const hr__function_call *c, const hr_tensor *left, const hr_tensor *right) {
  if (left->rank > 2 && c->inputs[1]->rank == 2) {
    return multiply_rows(c, left, right);
  }
  return hr__record_one(c, HR_OP_MATMUL, NULL, 2, (const hr_tensor *[]){left, right}, HR_DTYPE_NONE, c->output);
}

hr_status hr__emit_matmul(const hr__function_call *c) {
  const hr_tensor *x = c->inputs[0], *y = c->inputs[1];
  if (x->rank == 0 || y->rank == 0) {
    return HR__CALL_FAIL(c, "an input has no dims, expected at least one");
  }
  hr_tensor both[2];
  as_matrix(x, true, &both[0]);
  as_matrix(y, false, &both[1]);
  hr_status status = convert_both(c, both);
  if (status == HR_OK) {
    status = multiply(c, &both[0], &both[1]);
  }
  if (status == HR_OK) {
    int rank = c->output->rank;
    hr__drop_dims(c->output, (x->rank == 1 ? 1u << (rank - 2) : 0) | (y->rank == 1 ? 1u << (rank - 1) : 0));
  }
  hr_tensor_release(&both[0]);
  hr_tensor_release(&both[1]);
  return status;
}

/* ---- one after the other ---- */

static hr_status concat_along(const hr__function_call *c, const hr_tensor *const *inputs, int axis) {
  const int64_t ints[1] = {axis};
  hr_attrs attrs = {.int_count = 1, .ints = ints};
  return hr__record_one(c, HR_OP_CAT, &attrs, c->input_count, inputs, HR_DTYPE_NONE, c->output);
}

hr_status hr__emit_concat(const hr__function_call *c) {
  int axis;
  HR_RETURN_IF_ERROR(hr__check_axis(c, hr__int_attribute(c, 0), c->inputs[0]->rank, &axis));
  return concat_along(c, c->inputs, axis);
}

/* x with a new dim of size 1; borrowed. */
static void with_axis(const hr_tensor *x, int axis, hr_tensor *out) {
  *out = *x;
  ++out->rank;
  for (int d = x->rank; d > axis; --d) {
    out->dims[d] = x->dims[d - 1], out->strides[d] = x->strides[d - 1];
  }
  out->dims[axis] = 1, out->strides[axis] = 1;
}

hr_status hr__emit_stack(const hr__function_call *c) {
  int rank = c->inputs[0]->rank + 1, axis;
  HR_RETURN_IF_ERROR(hr__check_axis(c, hr__int_attribute(c, 0), rank, &axis));
  for (int i = 0; i < c->input_count; ++i) {
    const hr_tensor *x = c->inputs[i], *first = c->inputs[0];
    if (x->rank != first->rank || memcmp(x->dims, first->dims, (size_t)x->rank * sizeof *x->dims) != 0 ||
        rank > HR_RANK_MAX) {
      char dims[HR__SHAPE_TEXT], expected[HR__SHAPE_TEXT];
      return HR__CALL_FAIL(c, "input %d has dims %s, the first one %s", i, hr__shape_text(x->rank, x->dims, dims),
                           hr__shape_text(first->rank, first->dims, expected));
    }
  }
  hr_tensor *views = hr_malloc((size_t)c->input_count * sizeof *views);
  const hr_tensor **inputs = hr_malloc((size_t)c->input_count * sizeof *inputs);
  hr_status status = views == NULL || inputs == NULL
                         ? hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "stack: no memory for %d views", c->input_count)
                         : HR_OK;
  for (int i = 0; status == HR_OK && i < c->input_count; ++i) {
    with_axis(c->inputs[i], axis, &views[i]);
    inputs[i] = &views[i];
  }
  if (status == HR_OK) {
    status = concat_along(c, inputs, axis);
  }
  hr_free(views);
  hr_free(inputs);
  return status;
}
