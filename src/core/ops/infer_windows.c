/* infer_windows.c: rules of windows over planes, and of resized planes (infer.h). */
#include <string.h>

#include "base/integer.h"
#include "core/ops/infer.h"

typedef hr__checked checked;

/* ---- windows and interpolation ---- */

/* Both must have planes of n dims and the same number of planes. */
static hr_status check_planes(const checked *c, const hr_view *x, const hr_view *y, int n) {
  if (n < 1 || n > 3) {
    return FAIL(c, "planes of %d dims, expected 1 to 3", n);
  }
  HR_RETURN_IF_ERROR(hr__want_rank(c, "x", x, n + 1, n + 2));
  HR_RETURN_IF_ERROR(hr__want_rank(c, "y", y, x->rank, x->rank));
  for (int d = 0; d < x->rank - n; ++d) {
    if (x->dims[d] != y->dims[d]) {
      return FAIL(c, "dim %d of the planes differs: %lld != %lld", d, (long long)x->dims[d], (long long)y->dims[d]);
    }
  }
  return HR_OK;
}

/* y must have the size of the windows over x; the last window may be cut at the border or not. */
static hr_status check_windows(const checked *c, const hr_view *x, const hr_view *y) {
  int n = c->int_count / 4;
  HR_RETURN_IF_ERROR(check_planes(c, x, y, n));
  HR_RETURN_IF_ERROR(hr__want_small(c, c->int_count, c->ints));
  for (int i = 0; i < n; ++i) {
    int64_t kernel = c->ints[i], stride = c->ints[n + i], padding = c->ints[2 * n + i], dilation = c->ints[3 * n + i];
    if (kernel < 1 || stride < 1 || padding < 0 || dilation < 1) {
      return FAIL(c, "kernel %lld, stride %lld, padding %lld, dilation %lld", (long long)kernel, (long long)stride,
                  (long long)padding, (long long)dilation);
    }
    int64_t in = x->dims[x->rank - n + i], out = y->dims[y->rank - n + i];
    int64_t room = in + 2 * padding - dilation * (kernel - 1) - 1;
    int64_t low = room < 0 ? 0 : room / stride + 1, high = room < 0 ? 1 : hr_divide_up(room, stride) + 1;
    if (out < low || out > high) {
      return FAIL(c, "kernel %lld, stride %lld, padding %lld, dilation %lld take %lld to %lld, not %lld",
                  (long long)kernel, (long long)stride, (long long)padding, (long long)dilation, (long long)in,
                  (long long)low, (long long)out);
    }
  }
  return HR_OK;
}

/* Constructs y's planes of all whole windows over x; or the smallest x that has the windows y. */
static hr_status make_windows(const checked *c, const hr_view *x, const hr_view *y, hr__made *out_made) {
  const hr_view *from = x != NULL ? x : y;
  int n = c->int_count / 4;
  HR_RETURN_IF_ERROR(hr__want_small(c, c->int_count, c->ints));
  if (n < 1 || n > 3) {
    return FAIL(c, "planes of %d dims, expected 1 to 3", n);
  }
  HR_RETURN_IF_ERROR(hr__want_rank(c, x != NULL ? "x" : "y", from, n + 1, n + 2));
  hr__make_like(out_made, from);
  for (int i = 0; i < n; ++i) {
    int64_t kernel = c->ints[i], stride = c->ints[n + i], padding = c->ints[2 * n + i], dilation = c->ints[3 * n + i];
    int64_t *dim = &out_made->dims[from->rank - n + i], extent = dilation * (kernel - 1) + 1;
    if (stride < 1) {
      return FAIL(c, "stride %lld, expected at least 1", (long long)stride);
    }
    int64_t room = *dim + 2 * padding - extent, least = (*dim - 1) * stride + extent - 2 * padding;
    *dim = x == NULL ? (least > 0 ? least : 0) : room < 0 ? 0 : room / stride + 1;
  }
  return HR_OK;
}

/* Windows over x give y. One of the two is output 0, and is constructed if an inference doesn't have it. */
static hr_status infer_windows(const checked *c, const hr_view *x, const hr_view *y, hr__made *made,
                               const hr_view **out_output) {
  int extra = c->int_count % 4, expected = c->row->int_count % 4;
  if (extra != expected) {
    return FAIL(c, "%d ints, expected four for each dim of the plane and %d more", c->int_count, expected);
  }
  bool is_backward = c->input_count > 0 && y == hr__checked_input(c, 0);
  const hr_view *output = is_backward ? x : y;
  if (output == NULL) {
    HR_RETURN_IF_ERROR(make_windows(c, x, y, made));
    output = &made->view;
  }
  *out_output = output;
  return check_windows(c, is_backward ? output : x, is_backward ? y : output);
}

hr_status hr__infer_window(const checked *c) {
  const hr_view *x = hr__checked_input(c, 0), *y = NULL;
  hr__made made;
  HR_RETURN_IF_ERROR(c->op == HR_OP_MAX_POOL ? hr__want_real(c, "x", x) : HR_OK);
  HR_RETURN_IF_ERROR(infer_windows(c, x, hr__given_output(c, 0), &made, &y));
  hr__keep(c, 0, x->dtype, y);
  HR_RETURN_IF_ERROR(hr__give_like(c, 1, "the index", HR_DTYPE_I64, y));
  return hr__want_integer(c, "the index", c->types == NULL ? hr__checked_output(c, 1) : NULL);
}

hr_status hr__infer_window_backward(const checked *c) {
  const hr_view *dy = hr__checked_input(c, 0), *dx = NULL;
  hr__made made;
  HR_RETURN_IF_ERROR(hr__want_like(c, "the index", hr__checked_input(c, 1), dy));
  HR_RETURN_IF_ERROR(hr__want_integer(c, "the index", hr__checked_input(c, 1)));
  HR_RETURN_IF_ERROR(infer_windows(c, hr__given_output(c, 0), dy, &made, &dx));
  hr__keep(c, 0, dy->dtype, dx);
  return HR_OK;
}

hr_status hr__infer_adaptive(const checked *c) {
  const hr_view *x = hr__checked_input(c, 0), *y = hr__given_output(c, 0);
  if (y == NULL) {
    return hr__refuse_choice(c, 0);
  }
  HR_RETURN_IF_ERROR(hr__want_small(c, 1, c->ints));
  int n = (int)c->ints[0];
  HR_RETURN_IF_ERROR(check_planes(c, x, y, n));
  for (int d = x->rank - n; d < x->rank; ++d) {
    if (x->dims[d] < 1) {
      return FAIL(c, "dim %d takes 0 to %lld: expected elements", d, (long long)y->dims[d]);
    }
  }
  hr__keep(c, 0, x->dtype, y);
  HR_RETURN_IF_ERROR(hr__want_integer(c, "the index", c->types == NULL ? hr__checked_output(c, 1) : NULL));
  return hr__give_like(c, 1, "the index", HR_DTYPE_I64, y);
}

/* x times its scale, rounded down. With a scale of 0 the caller must give the dim. */
static hr_status scaled_dim(const checked *c, int64_t x, int scalar, int64_t *out_dim) {
  double scale = hr_scalar_as_f64(&c->scalars[scalar]), dim = (double)x * scale;
  if (!(dim >= 1 && dim <= INT32_MAX)) {
    return scale == 0 ? hr__refuse_choice(c, 0)
                      : FAIL(c, "%lld elements times a scale of %g, expected at least one", (long long)x, scale);
  }
  *out_dim = (int64_t)dim;
  return HR_OK;
}

hr_status hr__infer_resize(const checked *c) {
  const hr_view *x = hr__checked_input(c, 0), *y = hr__given_output(c, 0);
  hr__made made;
  if (y == NULL) {
    HR_RETURN_IF_ERROR(hr__want_rank(c, "x", x, 3, 4));
    y = hr__make_like(&made, x);
    HR_RETURN_IF_ERROR(scaled_dim(c, x->dims[x->rank - 2], 0, &made.dims[x->rank - 2]));
    HR_RETURN_IF_ERROR(scaled_dim(c, x->dims[x->rank - 1], 1, &made.dims[x->rank - 1]));
  }
  HR_RETURN_IF_ERROR(check_planes(c, x, y, 2));
  for (int d = x->rank - 2; d < x->rank; ++d) {
    if (x->dims[d] < 1 || y->dims[d] < 1) {
      return FAIL(c, "planes of %lld x %lld and %lld x %lld: expected elements", (long long)x->dims[x->rank - 2],
                  (long long)x->dims[x->rank - 1], (long long)y->dims[x->rank - 2], (long long)y->dims[x->rank - 1]);
    }
  }
  hr__keep(c, 0, x->dtype, y);
  return HR_OK;
}

/* `columns` are [.., kernel[n], windows[n]] of the planes x. */
static hr_status check_columns(const checked *c, const hr_view *x, const hr_view *columns) {
  int n = c->int_count / 4, lead = x->rank - n;
  if (n < 1 || n > 3 || lead < 0 || c->int_count != 4 * n || columns->rank != x->rank + n) {
    return FAIL(c, "%d ints, planes of %d dims and columns of %d", c->int_count, x->rank, columns->rank);
  }
  int64_t dims[HR_RANK_MAX];
  memcpy(dims, x->dims, (size_t)lead * sizeof *dims);
  for (int i = 0; i < n; ++i) {
    dims[lead + i] = columns->dims[columns->rank - n + i];
    if (columns->dims[lead + i] != c->ints[i]) {
      return FAIL(c, "dim %d of the columns is %lld, the kernel %lld", lead + i, (long long)columns->dims[lead + i],
                  (long long)c->ints[i]);
    }
  }
  hr_view windows = *columns;
  windows.rank = x->rank, windows.dims = dims;
  return check_windows(c, x, &windows);
}

hr_status hr__infer_im2col(const checked *c) {
  const hr_view *x = hr__checked_input(c, 0), *columns = c->types != NULL ? NULL : hr__checked_output(c, 0);
  hr__made windows, made;
  if (columns == NULL) {
    HR_RETURN_IF_ERROR(make_windows(c, x, NULL, &windows));
    int n = c->int_count / 4, lead = x->rank - n;
    if (x->rank + n > HR_RANK_MAX) {
      return FAIL(c, "%d dims, expected at most %d", x->rank + n, HR_RANK_MAX);
    }
    columns = hr__make_like(&made, x);
    made.view.rank = x->rank + n;
    memcpy(made.dims + lead, c->ints, (size_t)n * sizeof *c->ints);
    memcpy(made.dims + x->rank, windows.dims + lead, (size_t)n * sizeof *made.dims);
  }
  HR_RETURN_IF_ERROR(check_columns(c, x, columns));
  hr__keep(c, 0, x->dtype, columns);
  return HR_OK;
}

hr_status hr__infer_col2im(const checked *c) {
  const hr_view *columns = hr__checked_input(c, 0), *x = hr__given_output(c, 0);
  hr__made made;
  if (x == NULL) {
    int n = c->int_count / 4, lead = columns->rank - 2 * n;
    int64_t dims[HR_RANK_MAX];
    if (n < 1 || n > 3 || lead < 0) {
      return FAIL(c, "%d ints and columns of %d dims", c->int_count, columns->rank);
    }
    memcpy(dims, columns->dims, (size_t)lead * sizeof *dims);
    memcpy(dims + lead, columns->dims + lead + n, (size_t)n * sizeof *dims);
    HR_RETURN_IF_ERROR(make_windows(c, NULL, &(hr_view){.rank = lead + n, .dims = dims}, &made));
    x = &made.view;
  }
  HR_RETURN_IF_ERROR(check_columns(c, x, columns));
  hr__keep(c, 0, columns->dtype, x);
  return HR_OK;
}

/* Both must have the same dims except one, which must have elements. */
static hr_status check_resampled(const checked *c, const hr_view *x, const hr_view *y) {
  HR_RETURN_IF_ERROR(hr__want_dim(c, c->ints[0], x));
  int dim = (int)c->ints[0];
  int64_t dims[HR_RANK_MAX];
  HR_RETURN_IF_ERROR(hr__want_rank(c, "x", x, 1, HR_RANK_MAX - 1));
  HR_RETURN_IF_ERROR(hr__want_rank(c, "y", y, x->rank, x->rank));
  memcpy(dims, x->dims, (size_t)x->rank * sizeof *dims);
  dims[dim] = y->dims[dim];
  if (x->dims[dim] < 1 || y->dims[dim] < 1) {
    return FAIL(c, "dim %d goes from %lld to %lld: expected elements", dim, (long long)x->dims[dim],
                (long long)y->dims[dim]);
  }
  if (c->ints[1] < 0 || c->ints[1] > 6 || (c->ints[1] > 3 && (c->ints[3] < 1 || c->ints[3] > INT32_MAX))) {
    return FAIL(c, "kind %lld with %lld taps", (long long)c->ints[1], (long long)c->ints[3]);
  }
  return hr__want_dims(c, "y", y, x->rank, dims);
}

hr_status hr__infer_resample(const checked *c) {
  const hr_view *x = hr__checked_input(c, 0), *y = hr__given_output(c, 0);
  hr__made made;
  if (y == NULL) {
    HR_RETURN_IF_ERROR(hr__want_rank(c, "x", x, 1, HR_RANK_MAX - 1));
    HR_RETURN_IF_ERROR(hr__want_dim(c, c->ints[0], x));
    y = hr__make_like(&made, x);
    HR_RETURN_IF_ERROR(scaled_dim(c, x->dims[c->ints[0]], 0, &made.dims[c->ints[0]]));
  }
  HR_RETURN_IF_ERROR(check_resampled(c, x, y));
  hr__keep(c, 0, x->dtype, y);
  return HR_OK;
}

hr_status hr__infer_resample_backward(const checked *c) {
  const hr_view *dy = hr__checked_input(c, 0), *dx = hr__given_output(c, 0);
  if (dx == NULL) {
    return hr__refuse_choice(c, 0);
  }
  HR_RETURN_IF_ERROR(hr__want_dim(c, c->ints[0], dy));
  if (c->ints[4] < 0 || (dy->rank > 0 && c->ints[4] > dy->dims[c->ints[0]])) {
    return FAIL(c, "%lld of %lld elements tap one", (long long)c->ints[4],
                dy->rank > 0 ? (long long)dy->dims[c->ints[0]] : 1);
  }
  HR_RETURN_IF_ERROR(check_resampled(c, dx, dy));
  hr__keep(c, 0, dy->dtype, dx);
  return HR_OK;
}

/* x [N, C, plane of n], grid [N, out.., n]: the dims of y [N, C, out..]. */
static hr_status sample_dims(const checked *c, const hr_view *x, const hr_view *grid, int64_t *y_dims) {
  HR_RETURN_IF_ERROR(hr__want_rank(c, "x", x, 4, 5));
  HR_RETURN_IF_ERROR(hr__want_rank(c, "the grid", grid, x->rank, x->rank));
  int n = x->rank - 2;
  int64_t dims[HR_RANK_MAX] = {x->dims[0]}, count = x->dims[0] * x->dims[1];
  y_dims[0] = x->dims[0], y_dims[1] = x->dims[1];
  for (int d = 0; d < n; ++d) {
    dims[1 + d] = y_dims[2 + d] = grid->dims[1 + d];
    count *= grid->dims[1 + d];
  }
  dims[1 + n] = n;
  HR_RETURN_IF_ERROR(hr__want_dims(c, "the grid", grid, x->rank, dims));
  for (int d = 0; d < n; ++d) {
    if (x->dims[2 + d] < 1 && count > 0) {
      return FAIL(c, "samples of planes without elements");
    }
  }
  return c->ints[0] >= 0 && c->ints[0] <= 2 && c->ints[1] >= 0 && c->ints[1] <= 2
             ? HR_OK
             : FAIL(c, "mode %lld, outside %lld", (long long)c->ints[0], (long long)c->ints[1]);
}

hr_status hr__infer_grid_sample(const checked *c) {
  const hr_view *x = hr__checked_input(c, 0);
  int64_t dims[HR_RANK_MAX];
  HR_RETURN_IF_ERROR(hr__want_real(c, "the grid", hr__checked_input(c, 1)));
  HR_RETURN_IF_ERROR(sample_dims(c, x, hr__checked_input(c, 1), dims));
  return hr__give(c, 0, "y", x->dtype, x->rank, dims);
}

hr_status hr__infer_grid_sample_backward(const checked *c) {
  const hr_view *dy = hr__checked_input(c, 0), *x = hr__checked_input(c, 1), *grid = hr__checked_input(c, 2);
  int64_t dims[HR_RANK_MAX];
  HR_RETURN_IF_ERROR(hr__give_like(c, 0, "dx", x->dtype, x));
  HR_RETURN_IF_ERROR(hr__give_like(c, 1, "dgrid", grid->dtype, grid));
  HR_RETURN_IF_ERROR(sample_dims(c, x, grid, dims));
  return hr__want_dims(c, "dy", dy, x->rank, dims);
}
