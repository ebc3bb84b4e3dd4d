/* check_windows.c: shapes of windows over planes, and of planes in other sizes (check_shape.h). */
#include <string.h>

#include "base/integer.h"
#include "core/ops/check_shape.h"

typedef hr__checked checked;

/* ---- windows and interpolation ---- */

/* Planes of n dims, as many in both. */
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

/* y's size is that of the windows over x, the last one cut at the border or not. */
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

static hr_status check_pool(const checked *c) {
  HR_RETURN_IF_ERROR(hr__want_like(c, "the index", hr__checked_output(c, 1), hr__checked_output(c, 0)));
  HR_RETURN_IF_ERROR(hr__want_integer(c, "the index", hr__checked_output(c, 1)));
  return check_windows(c, hr__checked_input(c, 0), hr__checked_output(c, 0));
}

static hr_status check_pool_backward(const checked *c) {
  HR_RETURN_IF_ERROR(hr__want_like(c, "the index", hr__checked_input(c, 1), hr__checked_input(c, 0)));
  HR_RETURN_IF_ERROR(hr__want_integer(c, "the index", hr__checked_input(c, 1)));
  return check_windows(c, hr__checked_output(c, 0), hr__checked_input(c, 0));
}

static hr_status check_average(const checked *c) {
  return c->int_count % 4 == 2 ? check_windows(c, hr__checked_input(c, 0), hr__checked_output(c, 0))
                               : FAIL(c, "%d ints", c->int_count);
}

static hr_status check_average_backward(const checked *c) {
  return c->int_count % 4 == 2 ? check_windows(c, hr__checked_output(c, 0), hr__checked_input(c, 0))
                               : FAIL(c, "%d ints", c->int_count);
}

static hr_status check_adaptive(const checked *c) {
  const hr_view *x = hr__checked_input(c, 0), *y = hr__checked_output(c, 0);
  HR_RETURN_IF_ERROR(hr__want_small(c, 1, c->ints));
  int n = (int)c->ints[0];
  HR_RETURN_IF_ERROR(check_planes(c, x, y, n));
  for (int d = x->rank - n; d < x->rank; ++d) {
    if (x->dims[d] < 1) {
      return FAIL(c, "dim %d takes 0 to %lld: expected elements", d, (long long)y->dims[d]);
    }
  }
  HR_RETURN_IF_ERROR(hr__want_integer(c, "the index", hr__checked_output(c, 1)));
  return hr__want_like(c, "the index", hr__checked_output(c, 1), y);
}

static hr_status check_resize(const checked *c) {
  const hr_view *x = hr__checked_input(c, 0), *y = hr__checked_output(c, 0);
  HR_RETURN_IF_ERROR(check_planes(c, x, y, 2));
  for (int d = x->rank - 2; d < x->rank; ++d) {
    if (x->dims[d] < 1 || y->dims[d] < 1) {
      return FAIL(c, "planes of %lld x %lld and %lld x %lld: expected elements", (long long)x->dims[x->rank - 2],
                  (long long)x->dims[x->rank - 1], (long long)y->dims[x->rank - 2], (long long)y->dims[x->rank - 1]);
    }
  }
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

static hr_status check_im2col(const checked *c) {
  return check_columns(c, hr__checked_input(c, 0), hr__checked_output(c, 0));
}

static hr_status check_col2im(const checked *c) {
  return check_columns(c, hr__checked_output(c, 0), hr__checked_input(c, 0));
}

/* Both have the same dims but for one, which has elements. */
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

static hr_status check_resample(const checked *c) {
  return check_resampled(c, hr__checked_input(c, 0), hr__checked_output(c, 0));
}

static hr_status check_resample_backward(const checked *c) {
  const hr_view *y = hr__checked_input(c, 0);
  HR_RETURN_IF_ERROR(hr__want_dim(c, c->ints[0], y));
  if (c->ints[4] < 0 || c->ints[4] > y->dims[c->ints[0]]) {
    return FAIL(c, "%lld of %lld elements tap one", (long long)c->ints[4], (long long)y->dims[c->ints[0]]);
  }
  return check_resampled(c, hr__checked_output(c, 0), hr__checked_input(c, 0));
}

/* x [N, C, plane of n], grid [N, out.., n], y [N, C, out..] */
static hr_status check_samples(const checked *c, const hr_view *x, const hr_view *grid, const hr_view *y) {
  HR_RETURN_IF_ERROR(hr__want_rank(c, "x", x, 4, 5));
  HR_RETURN_IF_ERROR(hr__want_rank(c, "the grid", grid, x->rank, x->rank));
  HR_RETURN_IF_ERROR(hr__want_rank(c, "y", y, x->rank, x->rank));
  int n = x->rank - 2;
  int64_t dims[HR_RANK_MAX] = {x->dims[0]}, places[HR_RANK_MAX] = {x->dims[0], x->dims[1]};
  for (int d = 0; d < n; ++d) {
    dims[1 + d] = y->dims[2 + d], places[2 + d] = y->dims[2 + d];
    if (x->dims[2 + d] < 1 && hr__view_count(y) > 0) {
      return FAIL(c, "samples of planes without elements");
    }
  }
  dims[1 + n] = n;
  if (c->ints[0] < 0 || c->ints[0] > 2 || c->ints[1] < 0 || c->ints[1] > 2) {
    return FAIL(c, "mode %lld, outside %lld", (long long)c->ints[0], (long long)c->ints[1]);
  }
  HR_RETURN_IF_ERROR(hr__want_dims(c, "y", y, x->rank, places));
  return hr__want_dims(c, "the grid", grid, x->rank, dims);
}

static hr_status check_grid_sample(const checked *c) {
  return check_samples(c, hr__checked_input(c, 0), hr__checked_input(c, 1), hr__checked_output(c, 0));
}

static hr_status check_grid_sample_backward(const checked *c) {
  HR_RETURN_IF_ERROR(hr__want_like(c, "dx", hr__checked_output(c, 0), hr__checked_input(c, 1)));
  HR_RETURN_IF_ERROR(hr__want_like(c, "dgrid", hr__checked_output(c, 1), hr__checked_input(c, 2)));
  return check_samples(c, hr__checked_input(c, 1), hr__checked_input(c, 2), hr__checked_input(c, 0));
}

/* ---- the table ---- */

const hr__shape_row hr__window_shapes[HR_OP_COUNT] = {
    [HR_OP_MAX_POOL] = {1, 1, 2, 1, 4, 0, check_pool},
    [HR_OP_MAX_POOL_BACKWARD] = {2, 3, 1, 1, 4, 0, check_pool_backward},
    [HR_OP_AVG_POOL] = {1, 1, 1, 1, 6, 0, check_average},
    [HR_OP_AVG_POOL_BACKWARD] = {1, 1, 1, 1, 6, 0, check_average_backward},
    [HR_OP_ADAPTIVE_AVG_POOL] = {1, 1, 1, 1, 1, 0, check_adaptive},
    [HR_OP_ADAPTIVE_AVG_POOL_BACKWARD] = {1, 1, 1, 1, 1, 0, check_adaptive},
    [HR_OP_ADAPTIVE_MAX_POOL] = {1, 1, 2, 1, 1, 0, check_adaptive},
    [HR_OP_UPSAMPLE_NEAREST2D] = {1, 1, 1, 1, 1, 2, check_resize},
    [HR_OP_UPSAMPLE_NEAREST2D_BACKWARD] = {1, 1, 1, 1, 1, 2, check_resize},
    [HR_OP_UPSAMPLE_BILINEAR2D] = {1, 1, 1, 1, 1, 2, check_resize},
    [HR_OP_UPSAMPLE_BILINEAR2D_BACKWARD] = {1, 1, 1, 1, 1, 2, check_resize},
    [HR_OP_RESAMPLE] = {1, 1, 1, 1, 4, 1, check_resample},
    [HR_OP_RESAMPLE_BACKWARD] = {1, 1, 1, 1, 5, 1, check_resample_backward},
    [HR_OP_GRID_SAMPLE] = {2, 3, 1, 1, 3, 0, check_grid_sample},
    [HR_OP_GRID_SAMPLE_BACKWARD] = {3, 7, 2, 0, 3, 0, check_grid_sample_backward},
    [HR_OP_IM2COL] = {1, 1, 1, 1, 4, 0, check_im2col},
    [HR_OP_COL2IM] = {1, 1, 1, 1, 4, 0, check_col2im},
};
