/* layers.c: convolutions and norms. */
#include <math.h>
#include <string.h>

#include "functional/functions.h"

/* ---- windows ---- */

/* Lists of `n` integers each, one after the other, behind `first` free places; returns their end or -1. */
static int gather_ints(const hr__function_call *c, int first, int n, int count, const int *attributes, int64_t *ints) {
  for (int i = 0; i < count; ++i) {
    const hr_attribute *list = &c->attributes[attributes[i]];
    if (list->count != n) {
      return -1;
    }
    memcpy(ints + first, list->value.ints, (size_t)n * sizeof *ints);
    first += n;
  }
  return first;
}

/* x with zeros around its planes. */
static hr_status pad_planes(const hr__function_call *c, const hr_tensor *x, int n, const int64_t *before,
                            const int64_t *after, hr_tensor *out) {
  int64_t ints[2 * HR_RANK_MAX] = {0};
  int first = x->rank - n;
  for (int d = 0; d < n; ++d) {
    ints[first + d] = before[d], ints[x->rank + first + d] = after[d];
  }
  hr_scalar zero = hr_scalar_i64(0);
  hr_attrs attrs = {.int_count = 2 * x->rank, .scalar_count = 1, .ints = ints, .scalars = &zero};
  return hr__record_one(c, HR_OP_PAD, &attrs, 1, &x, HR_DTYPE_NONE, out);
}

bool hr__skips_padding(const hr__function_call *c) {
  hr_device_info device = {.is_host = true};
  if (c->stream != NULL) {
    hr_device_describe(hr_stream_device(c->stream), &device);
  }
  return device.is_host;
}

/* True for zeros on both sides that convolutions of the device skip; others are written before. */
static bool can_skip(const hr__function_call *c, int n, const int64_t *before, const int64_t *after) {
  bool can = hr__skips_padding(c);
  for (int d = 0; d < n; ++d) {
    can &= before[d] >= 0 && after[d] >= 0;
  }
  return can;
}

hr_status hr__emit_conv(const hr__function_call *c) {
  enum { STRIDE, BEFORE, AFTER, DILATION, GROUPS };
  const hr_tensor *inputs[3] = {c->inputs[0], c->inputs[1], c->inputs[2]};
  int n = inputs[0]->rank - 2;
  int64_t ints[4 * HR_RANK_MAX + 2] = {n}, *before = ints + 1 + n, *after = ints + 3 * n + 2;
  static const int lists[] = {STRIDE, BEFORE, DILATION}, last[] = {AFTER};
  if (n < 1 || gather_ints(c, 1, n, 3, lists, ints) < 0 || gather_ints(c, 3 * n + 2, n, 1, last, ints) < 0) {
    return HR__CALL_FAIL(c, "%d dims of x, expected 3 to 5, and lists of as many integers less 2", inputs[0]->rank);
  }
  ints[3 * n + 1] = hr__int_attribute(c, GROUPS);
  hr_tensor padded = {0};
  bool is_even = memcmp(before, after, (size_t)n * sizeof *after) == 0, has_behind = !is_even;
  if (!is_even && !can_skip(c, n, before, after)) {
    HR_RETURN_IF_ERROR(pad_planes(c, inputs[0], n, before, after, &padded));
    inputs[0] = &padded;
    memset(before, 0, (size_t)n * sizeof *before);
    has_behind = false;
  }
  hr_attrs attrs = {.int_count = has_behind ? 4 * n + 2 : 3 * n + 2, .ints = ints};
  int count = inputs[2] != NULL ? 3 : 2;
  hr_status status = hr__record_one(c, c->row->op, &attrs, count, inputs, HR_DTYPE_NONE, c->output);
  hr_tensor_release(&padded);
  return status;
}

/* ---- transposed convolutions ---- */

typedef struct transposed {
  int n;
  int64_t ints[3 * HR_RANK_MAX + 2]; /* of the row */
  int64_t removed[2][HR_RANK_MAX];   /* elements that the result lacks at each end; negative: zeros */
} transposed;

static hr_status read_transposed(const hr__function_call *c, transposed *t) {
  enum { STRIDE, BEFORE, AFTER, DILATION, GROUPS };
  static const int lists[] = {STRIDE, BEFORE, DILATION}, before[] = {BEFORE}, after[] = {AFTER};
  int n = c->inputs[0]->rank - 2;
  *t = (transposed){.n = n, .ints = {n}};
  if (n < 1 || n > 3 || c->inputs[1]->rank != n + 2 || gather_ints(c, 1, n, 3, lists, t->ints) < 0 ||
      gather_ints(c, 0, n, 1, before, t->removed[0]) < 0 || gather_ints(c, 0, n, 1, after, t->removed[1]) < 0) {
    return HR__CALL_FAIL(c, "%d dims of x and %d of the weight, expected 3 to 5, and lists of as many integers less 2",
                         n + 2, c->inputs[1]->rank);
  }
  t->ints[3 * n + 1] = hr__int_attribute(c, GROUPS);
  return HR_OK;
}

/* True if the row can do it: its padding is removed at both ends, and fewer elements than a stride are added behind. */
static bool is_padding(const transposed *t) {
  for (int d = 0; d < t->n; ++d) {
    int64_t before = t->removed[0][d], fewer;
    if (before < 0 || __builtin_sub_overflow(before, t->removed[1][d], &fewer) || fewer < 0 ||
        fewer >= t->ints[1 + d]) {
      return false;
    }
  }
  return true;
}

/* The row infers the smallest result. If the lists differ it has elements behind: its dims are given then. */
static hr_status record_transposed(const hr__function_call *c, const transposed *t, hr_tensor *out) {
  hr_attrs attrs = {.int_count = 3 * t->n + 2, .ints = t->ints};
  hr__function_call inference = *c;
  inference.stream = NULL;
  HR_RETURN_IF_ERROR(hr__record_one(&inference, c->row->op, &attrs, 2, c->inputs, HR_DTYPE_NONE, out));
  for (int d = 0; d < t->n; ++d) {
    out->dims[2 + d] += t->removed[0][d] - t->removed[1][d];
  }
  return hr__record_row(c, c->row->op, &attrs, 2, c->inputs, 1, &out);
}

/* Without the removed elements, which become padding of opposite sign; x, which is released, gets the result. */
static hr_status remove_ends(const hr__function_call *c, const transposed *t, hr_tensor *x) {
  int64_t opposite[2][HR_RANK_MAX];
  hr_tensor result;
  for (int i = 0; i < 2 * t->n; ++i) {
    int end = i / t->n, d = i % t->n;
    if (__builtin_sub_overflow(0, t->removed[end][d], &opposite[end][d])) {
      return HR__CALL_FAIL(c, "%lld elements are removed", (long long)t->removed[end][d]);
    }
  }
  HR_RETURN_IF_ERROR(pad_planes(c, x, t->n, opposite[0], opposite[1], &result));
  hr_tensor_release(x);
  hr__copy_tensor(&result, x);
  return HR_OK;
}

hr_status hr__emit_conv_transpose(const hr__function_call *c) {
  transposed t;
  HR_RETURN_IF_ERROR(read_transposed(c, &t));
  if (is_padding(&t)) {
    return record_transposed(c, &t, c->output);
  }
  memset(t.ints + 1 + t.n, 0, (size_t)t.n * sizeof *t.ints);
  transposed whole = t;
  memset(whole.removed, 0, sizeof whole.removed);
  HR_RETURN_IF_ERROR(record_transposed(c, &whole, c->output));
  hr_status status = remove_ends(c, &t, c->output);
  if (status != HR_OK) {
    hr_tensor_release(c->output);
  }
  return status;
}

/* ---- norms ---- */

hr_status hr__emit_layer_norm(const hr__function_call *c) {
  const int64_t ints[1] = {hr__int_attribute(c, 0)};
  hr_scalar eps = hr__real_attribute(c, 1);
  hr_attrs attrs = {.int_count = 1, .scalar_count = 1, .ints = ints, .scalars = &eps};
  return hr__record_one(c, c->row->op, &attrs, 3, c->inputs, HR_DTYPE_NONE, c->output);
}

/* Element-wise rows of x and another operand; x, which is released, gets the result. */
static hr_status apply_to(const hr__function_call *c, hr_op op, hr_tensor *x, const hr_tensor *other) {
  const hr_tensor *inputs[2] = {x, other};
  hr_tensor result;
  HR_RETURN_IF_ERROR(hr__record_one(c, op, NULL, other != NULL ? 2 : 1, inputs, HR_DTYPE_NONE, &result));
  hr_tensor_release(x);
  hr__copy_tensor(&result, x);
  return HR_OK;
}

/* 1 / sqrt(mean(x * x) + eps) over the last dim. */
static hr_status scales_of(const hr__function_call *c, const hr_tensor *x, hr_tensor *out) {
  const int64_t mask[1] = {INT64_C(1) << (x->rank - 1)};
  hr_attrs attrs = {.int_count = 1, .ints = mask};
  hr_tensor squares, eps = hr_tensor_number(hr__real_attribute(c, 0));
  const hr_tensor *from = &squares;
  HR_RETURN_IF_ERROR(hr__record_one(c, HR_OP_SQUARE, NULL, 1, &x, HR_DTYPE_NONE, &squares));
  hr_status status = hr__record_one(c, HR_OP_MEAN, &attrs, 1, &from, HR_DTYPE_NONE, out);
  hr_tensor_release(&squares);
  HR_RETURN_IF_ERROR(status);
  status = apply_to(c, HR_OP_ADD, out, &eps);
  status = status == HR_OK ? apply_to(c, HR_OP_RSQRT, out, NULL) : status;
  if (status != HR_OK) {
    hr_tensor_release(out);
  }
  return status;
}

static hr_status scale_rows(const hr__function_call *c, const hr_tensor *x, const hr_tensor *weight, hr_tensor *y) {
  HR_RETURN_IF_ERROR(scales_of(c, x, y));
  hr_status status = apply_to(c, HR_OP_MUL, y, x);
  return status == HR_OK && weight != NULL ? apply_to(c, HR_OP_MUL, y, weight) : status;
}

/* Floats of 16 bits are computed in f32, because their squares overflow. */
hr_status hr__emit_rms_norm(const hr__function_call *c) {
  const hr_tensor *x = c->inputs[0], *weight = c->inputs[1];
  if (x->rank < 1) {
    return HR__CALL_FAIL(c, "x has no dims, expected at least one");
  }
  bool is_half = x->dtype == HR_DTYPE_F16 || x->dtype == HR_DTYPE_BF16;
  hr_dtype dtype = weight != NULL ? hr_dtype_promote(x->dtype, weight->dtype) : x->dtype;
  hr_tensor wide = {0}, y = {0}, result;
  HR_RETURN_IF_ERROR(hr__convert(c, x, is_half ? HR_DTYPE_F32 : x->dtype, &wide));
  hr_status status = scale_rows(c, &wide, weight, &y);
  status = status == HR_OK ? hr__convert(c, &y, is_half ? dtype : y.dtype, &result) : status;
  if (status == HR_OK) {
    hr__copy_tensor(&result, c->output);
  }
  hr_tensor_release(&wide);
  hr_tensor_release(&y);
  return status;
}
