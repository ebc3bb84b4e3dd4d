/* stencils.c: windows of planes as columns and back, and stencils: windows times weights, reduced. */
#include "functional/windows.h"

/* stride, before, after and dilation from `index` on. */
static hr_status read_windows(const hr__function_call *c, int index, hr__windows *w) {
  HR_RETURN_IF_ERROR(hr__window_list(c, index, w->count, 1, 1, w->stride));
  HR_RETURN_IF_ERROR(hr__window_list(c, index + 1, w->count, 0, 0, w->before));
  HR_RETURN_IF_ERROR(hr__window_list(c, index + 2, w->count, 0, 0, w->after));
  return hr__window_list(c, index + 3, w->count, 1, 1, w->dilation);
}

hr_status hr__emit_im2col(const hr__function_call *c) {
  enum { WINDOW, STRIDE };
  const hr_tensor *x = c->inputs[0];
  hr__windows w = {.first = 2, .count = c->attributes[WINDOW].count};
  if (w.count < 1 || x->rank != w.count + 2) {
    return HR__CALL_FAIL(c, "%d dims with a window of %d, expected two more", x->rank, w.count);
  }
  HR_RETURN_IF_ERROR(hr__window_list(c, WINDOW, w.count, 1, 1, w.size));
  HR_RETURN_IF_ERROR(read_windows(c, STRIDE, &w));
  hr__formula f;
  hr__formula_begin(&f, c);
  hr_tensor *view = hr__view(&f, hr__window_view(&f, hr__window_sides(&f, x, &w, hr_scalar_i64(0)), &w));
  int64_t dims[3] = {x->dims[0], x->dims[1], 1};
  for (int d = 0; view != NULL && d < w.count; ++d) {
    dims[1] *= w.size[d], dims[2] *= view->dims[2 + d];
  }
  for (int d = 0; view != NULL && d < w.count; ++d) {
    hr__move_dim(view, view->rank - 1, 2);
  }
  return hr__formula_end(&f, view != NULL ? hr__as_dims(&f, view, 3, dims) : x);
}

/* The dims of the columns [N, C, window, windows], and of the planes with padding. */
static hr_status columns_of(const hr__function_call *c, const hr__windows *w, const int64_t *shape, int64_t *columns,
                            int64_t *planes) {
  const hr_tensor *x = c->inputs[0];
  int64_t elements = 1, windows = 1;
  for (int d = 0; d < w->count; ++d) {
    int64_t size = shape[d] + w->before[d] + w->after[d], count = hr__window_count(w, d, size);
    columns[2 + d] = w->size[d], columns[2 + w->count + d] = count, planes[2 + d] = size;
    if (shape[d] < 0 || __builtin_mul_overflow(elements, w->size[d], &elements) ||
        __builtin_mul_overflow(windows, count, &windows)) {
      return HR__CALL_FAIL(c, "dim %d of the shape is %lld", d, (long long)shape[d]);
    }
  }
  if (x->dims[1] % elements != 0 || x->dims[2] != windows) {
    char dims[HR__SHAPE_TEXT];
    return HR__CALL_FAIL(c, "columns %s, expected a multiple of %lld, and %lld windows",
                         hr__shape_text(x->rank, x->dims, dims), (long long)elements, (long long)windows);
  }
  columns[0] = planes[0] = x->dims[0], columns[1] = planes[1] = x->dims[1] / elements;
  return HR_OK;
}

hr_status hr__emit_col2im(const hr__function_call *c) {
  enum { SHAPE, WINDOW, STRIDE };
  const hr_tensor *x = c->inputs[0];
  hr__windows w = {.first = 2, .count = c->attributes[SHAPE].count};
  int n = w.count;
  int64_t columns[HR_RANK_MAX], planes[HR_RANK_MAX], ints[4 * HR_RANK_MAX];
  if (x->rank != 3 || n < 1 || n > 3) {
    return HR__CALL_FAIL(c, "%d dims of columns and %d of planes, expected 3, and 1 to 3", x->rank, n);
  }
  HR_RETURN_IF_ERROR(hr__window_list(c, WINDOW, n, 1, 1, w.size));
  HR_RETURN_IF_ERROR(read_windows(c, STRIDE, &w));
  HR_RETURN_IF_ERROR(columns_of(c, &w, c->attributes[SHAPE].value.ints, columns, planes));
  for (int d = 0; d < n; ++d) {
    ints[d] = w.size[d], ints[n + d] = w.stride[d], ints[2 * n + d] = 0, ints[3 * n + d] = w.dilation[d];
  }
  hr__formula f;
  hr__formula_begin(&f, c);
  const hr_tensor *from = hr__as_dims(&f, x, 2 + 2 * n, columns);
  hr_tensor *out = hr__output(&f, HR_DTYPE_NONE, 2 + n, planes);
  hr_attrs attrs = {.int_count = 4 * n, .ints = ints};
  hr__record_to(&f, c->row->op, &attrs, 1, &from, 1, &out);
  const hr_tensor *y = out;
  for (int d = 0; d < n && !hr__formula_failed(&f); ++d) {
    y = hr__part(&f, y, 2 + d, w.before[d], planes[2 + d] - w.before[d] - w.after[d]);
  }
  return hr__formula_end(&f, y);
}

/* ---- stencils ---- */

enum { SUM, MAX, MIN, ARGMAX, ARGMIN, MODES };

/* x over its last dims, of which there are n. */
static const hr_tensor *reduced(hr__formula *f, const hr_tensor *x, int n, int mode) {
  static const hr_op rows[MODES] = {HR_OP_SUM, HR_OP_AMAX, HR_OP_AMIN, HR_OP_ARGMAX, HR_OP_ARGMIN};
  if (hr__formula_failed(f)) {
    return x;
  }
  int first = x->rank - n;
  if (mode < ARGMAX) {
    uint32_t mask = ((1u << n) - 1) << first;
    return hr__without(f, hr__along_as(f, rows[mode], x, mask, x->dtype), mask);
  }
  int64_t dims[HR_RANK_MAX];
  hr__copy_dims(first, x->dims, dims);
  dims[first] = 1;
  for (int d = first; d < x->rank; ++d) {
    dims[first] *= x->dims[d];
  }
  return hr__reduced(f, rows[mode], hr__as_dims(f, x, first + 1, dims), 1u << first);
}

hr_status hr__emit_stencil(const hr__function_call *c) {
  enum { STRIDE, MODE = STRIDE + 4, VALUE };
  static const char *const modes[MODES] = {"sum", "max", "min", "argmax", "argmin"};
  const hr_tensor *x = c->inputs[0], *weights = c->inputs[1];
  hr__windows w = {.first = x->rank - weights->rank, .count = weights->rank};
  int mode;
  if (w.count < 1 || w.first < 0) {
    return HR__CALL_FAIL(c, "%d dims of weights for %d of x", w.count, x->rank);
  }
  hr__copy_dims(w.count, weights->dims, w.size);
  HR_RETURN_IF_ERROR(read_windows(c, STRIDE, &w));
  HR_RETURN_IF_ERROR(hr__word_attribute(c, MODE, MODES, modes, &mode));
  hr__formula f;
  hr__formula_begin(&f, c);
  x = hr__window_view(&f, hr__window_sides(&f, x, &w, hr__real_attribute(c, VALUE)), &w);
  return hr__formula_end(&f, reduced(&f, hr__times(&f, x, weights), w.count, mode));
}
