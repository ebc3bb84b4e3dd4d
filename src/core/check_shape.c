/* Checks of contractions, composites and special nodes: which operands must be there, how many attributes, and how the
 * shapes of operands relate, as the rows' documentation says. What the checks accept, the lowerings can lower.
 */
#include <stdio.h>
#include <string.h>

#include "base/integer.h"
#include "core/check_internal.h"

typedef hr__checked checked;

/* ---- messages and relations ---- */

#define FAIL(c, format, ...) \
  hr_status_make(HR_STATUS_INVALID_ARGUMENT, "%s: " format, (c)->name __VA_OPT__(, ) __VA_ARGS__)

static const hr_view *input(const checked *c, int i) {
  return i < c->input_count && hr__view_is_present(&c->inputs[i]) ? &c->inputs[i] : NULL;
}

static const hr_view *output(const checked *c, int i) {
  return i < c->output_count && hr__view_is_present(&c->outputs[i]) ? &c->outputs[i] : NULL;
}

/* `view` (absent is fine) has exactly these dims. */
static hr_status want_dims(const checked *c, const char *what, const hr_view *view, int rank, const int64_t *dims) {
  if (view == NULL ||
      (view->rank == rank && (rank == 0 || memcmp(view->dims, dims, (size_t)rank * sizeof *dims) == 0))) {
    return HR_OK;
  }
  char found[HR__DIMS_TEXT], wanted[HR__DIMS_TEXT];
  hr_view expected = {.rank = rank, .dims = dims};
  return FAIL(c, "%s has dims %s, expected %s", what, hr__view_dims(view, found), hr__view_dims(&expected, wanted));
}

static hr_status want_like(const checked *c, const char *what, const hr_view *view, const hr_view *other) {
  return want_dims(c, what, view, other->rank, other->dims);
}

static hr_status want_vector(const checked *c, const char *what, const hr_view *view, int64_t count) {
  return want_dims(c, what, view, 1, &count);
}

static hr_status want_one(const checked *c, const char *what, const hr_view *view) {
  char found[HR__DIMS_TEXT];
  return view == NULL || hr__view_count(view) == 1
             ? HR_OK
             : FAIL(c, "%s has dims %s, expected one element", what, hr__view_dims(view, found));
}

static hr_status want_rank(const checked *c, const char *what, const hr_view *view, int min, int max) {
  char found[HR__DIMS_TEXT];
  if (view == NULL || (view->rank >= min && view->rank <= max)) {
    return HR_OK;
  }
  return min == max ? FAIL(c, "%s has dims %s, expected %d of them", what, hr__view_dims(view, found), min)
                    : FAIL(c, "%s has dims %s, expected %d to %d of them", what, hr__view_dims(view, found), min, max);
}

static hr_status want_spread(const checked *c, const char *what, const hr_view *view, int rank, const int64_t *dims) {
  if (view == NULL) {
    return HR_OK;
  }
  bool is_fit = view->rank <= rank;
  for (int d = 0; is_fit && d < view->rank; ++d) {
    is_fit = view->dims[d] == 1 || view->dims[d] == dims[rank - view->rank + d];
  }
  if (is_fit) {
    return HR_OK;
  }
  char found[HR__DIMS_TEXT], wanted[HR__DIMS_TEXT];
  hr_view expected = {.rank = rank, .dims = dims};
  return FAIL(c, "%s of dims %s can't be broadcast to %s", what, hr__view_dims(view, found),
              hr__view_dims(&expected, wanted));
}

static hr_status want_integer(const checked *c, const char *what, const hr_view *view) {
  hr_dtype dtype = view == NULL                                   ? HR_DTYPE_I64
                   : view->scalar != NULL && view->buffer == NULL ? view->scalar->dtype
                                                                  : view->dtype;
  return hr_dtype_is_integer(dtype) ? HR_OK : FAIL(c, "%s is %s, expected integers", what, hr_dtype_name(dtype));
}

/* Sizes, strides and paddings that sums and products of 64 bits can take. */
static hr_status want_small(const checked *c, int count, const int64_t *ints) {
  for (int i = 0; i < count; ++i) {
    if (ints[i] < INT32_MIN || ints[i] > INT32_MAX) {
      return FAIL(c, "int %d is %lld, expected 32 bits", i, (long long)ints[i]);
    }
  }
  return HR_OK;
}

static hr_status want_dim(const checked *c, int64_t dim, const hr_view *view) {
  int rank = view->rank > 0 ? view->rank : 1;
  return dim >= 0 && dim < rank ? HR_OK : FAIL(c, "dim %lld of %d", (long long)dim, view->rank);
}

/* ---- contractions ---- */

static hr_status check_matmul(const checked *c) {
  const hr_view *a = input(c, 0), *b = input(c, 1), *out = output(c, 0);
  HR_RETURN_IF_ERROR(want_rank(c, "a", a, 2, HR_RANK_MAX));
  HR_RETURN_IF_ERROR(want_rank(c, "b", b, 2, HR_RANK_MAX));
  int64_t inner_a = a->dims[a->rank - 1], inner_b = b->dims[b->rank - 2];
  if (inner_a != inner_b) {
    return FAIL(c, "inner sizes differ: %lld != %lld", (long long)inner_a, (long long)inner_b);
  }
  int rank = a->rank > b->rank ? a->rank : b->rank, batch = rank - 2;
  int64_t dims[HR_RANK_MAX];
  for (int d = 0; d < batch; ++d) {
    int at_a = d - (rank - a->rank), at_b = d - (rank - b->rank);
    int64_t in_a = at_a < 0 ? 1 : a->dims[at_a], in_b = at_b < 0 ? 1 : b->dims[at_b];
    if (in_a != in_b && in_a != 1 && in_b != 1) {
      return FAIL(c, "batch sizes differ in dim %d: %lld != %lld", d, (long long)in_a, (long long)in_b);
    }
    dims[d] = in_a != 1 ? in_a : in_b;
  }
  dims[batch] = a->dims[a->rank - 2], dims[batch + 1] = b->dims[b->rank - 1];
  HR_RETURN_IF_ERROR(want_dims(c, "the output", out, rank, dims));
  return want_spread(c, "the bias", input(c, 2), rank, dims);
}

/* x [N, C, ..], w [O, C/g, ..], y [N, O, ..] */
static hr_status check_conv_shapes(const checked *c, const hr_view *x, const hr_view *w, const hr_view *y) {
  int64_t n = c->ints[0];
  if (n < 1 || n > 3 || c->int_count != 3 * n + 2) {
    return FAIL(c, "%lld spatial dims and %d ints: expected 1 to 3, and 3 for each and two more", (long long)n,
                c->int_count);
  }
  HR_RETURN_IF_ERROR(want_small(c, c->int_count, c->ints));
  const int64_t *stride = c->ints + 1, *padding = stride + n, *dilation = padding + n;
  int64_t groups = dilation[n];
  int rank = (int)n + 2;
  HR_RETURN_IF_ERROR(want_rank(c, "x", x, rank, rank));
  HR_RETURN_IF_ERROR(want_rank(c, "the weight", w, rank, rank));
  HR_RETURN_IF_ERROR(want_rank(c, "y", y, rank, rank));
  if (groups < 1 || w->dims[0] % groups != 0) {
    return FAIL(c, "%lld output channels don't divide into %lld groups", (long long)w->dims[0], (long long)groups);
  }
  if (x->dims[1] != w->dims[1] * groups) {
    return FAIL(c, "x has %lld channels, the weight expects %lld x %lld groups", (long long)x->dims[1],
                (long long)w->dims[1], (long long)groups);
  }
  if (y->dims[0] != x->dims[0] || y->dims[1] != w->dims[0]) {
    return FAIL(c, "y is [%lld,%lld,..], expected [%lld,%lld,..]", (long long)y->dims[0], (long long)y->dims[1],
                (long long)x->dims[0], (long long)w->dims[0]);
  }
  for (int i = 0; i < n; ++i) {
    if (stride[i] < 1 || dilation[i] < 1 || padding[i] < 0) {
      return FAIL(c, "stride %lld, padding %lld, dilation %lld", (long long)stride[i], (long long)padding[i],
                  (long long)dilation[i]);
    }
    int64_t room = x->dims[2 + i] + 2 * padding[i] - dilation[i] * (w->dims[2 + i] - 1) - 1;
    int64_t expected = room < 0 ? 0 : room / stride[i] + 1;
    /* a transposed convolution may leave elements of x that no window reaches */
    if (w->dims[2 + i] < 1 || y->dims[2 + i] != expected) {
      return FAIL(c,
                  "spatial dim %d: x %lld, kernel %lld, stride %lld, padding %lld, dilation %lld give %lld, y has %lld",
                  i, (long long)x->dims[2 + i], (long long)w->dims[2 + i], (long long)stride[i], (long long)padding[i],
                  (long long)dilation[i], (long long)expected, (long long)y->dims[2 + i]);
    }
  }
  return HR_OK;
}

static hr_status check_conv(const checked *c) {
  HR_RETURN_IF_ERROR(check_conv_shapes(c, input(c, 0), input(c, 1), output(c, 0)));
  return want_vector(c, "the bias", input(c, 2), output(c, 0)->dims[1]);
}

static hr_status check_conv_backward_data(const checked *c) {
  HR_RETURN_IF_ERROR(check_conv_shapes(c, output(c, 0), input(c, 1), input(c, 0)));
  return want_vector(c, "the bias", input(c, 2), output(c, 0)->dims[1]);
}

static hr_status check_conv_backward_weight(const checked *c) {
  return check_conv_shapes(c, input(c, 0), output(c, 0), input(c, 1));
}

/* ---- reductions and normalisations ---- */

static hr_status check_reduction(const checked *c) {
  for (int i = 0; i < c->output_count; ++i) {
    if (output(c, i) != NULL) {
      HR_RETURN_IF_ERROR(hr__check_reduced(c, input(c, 0), output(c, i), c->ints[0]));
    }
  }
  return HR_OK;
}

/* The largest magnitude of nothing is not a number that one could give. */
static hr_status check_norm(const checked *c) {
  HR_RETURN_IF_ERROR(check_reduction(c));
  bool has_identity = c->int_count < 2 || (c->ints[1] != 4 && c->ints[1] != 5);
  if (!has_identity && hr__view_count(input(c, 0)) == 0 && hr__view_count(output(c, 0)) != 0) {
    return FAIL(c, "no elements in the reduced dims, and an infinite order");
  }
  return HR_OK;
}

static hr_status check_along_dim(const checked *c) {
  const hr_view *out = output(c, 0);
  for (int i = 0; i < c->input_count; ++i) {
    HR_RETURN_IF_ERROR(want_like(c, "an input", input(c, i), out));
  }
  return want_dim(c, c->ints[0], out);
}

static hr_status check_trailing(const checked *c, const hr_view *x, const hr_view *mean, const hr_view *rstd) {
  int64_t n = c->ints[0], dims[HR_RANK_MAX];
  if (n < 0 || n > x->rank) {
    return FAIL(c, "%lld trailing dims of %d", (long long)n, x->rank);
  }
  for (int d = 0; d < x->rank; ++d) {
    dims[d] = d < x->rank - n ? x->dims[d] : 1;
  }
  HR_RETURN_IF_ERROR(want_dims(c, "the mean", mean, x->rank, dims));
  return want_dims(c, "rstd", rstd, x->rank, dims);
}

static hr_status check_layer_norm(const checked *c) {
  const hr_view *x = input(c, 0);
  HR_RETURN_IF_ERROR(want_like(c, "y", output(c, 0), x));
  HR_RETURN_IF_ERROR(check_trailing(c, x, output(c, 1), output(c, 2)));
  int n = (int)c->ints[0];
  HR_RETURN_IF_ERROR(want_dims(c, "the weight", input(c, 1), n, x->dims + x->rank - n));
  return want_dims(c, "the bias", input(c, 2), n, x->dims + x->rank - n);
}

static hr_status check_layer_norm_backward(const checked *c) {
  const hr_view *x = input(c, 1);
  HR_RETURN_IF_ERROR(want_like(c, "dy", input(c, 0), x));
  HR_RETURN_IF_ERROR(want_like(c, "dx", output(c, 0), x));
  HR_RETURN_IF_ERROR(check_trailing(c, x, input(c, 2), input(c, 3)));
  int n = (int)c->ints[0];
  const int64_t *dims = x->dims + x->rank - n;
  HR_RETURN_IF_ERROR(want_dims(c, "the weight", input(c, 4), n, dims));
  HR_RETURN_IF_ERROR(want_dims(c, "dweight", output(c, 1), n, dims));
  return want_dims(c, "dbias", output(c, 2), n, dims);
}

/* Whether x is [N, C, ..] with C in whole groups; the statistics are [N, G]. */
static hr_status check_groups(const checked *c, const hr_view *x, const hr_view *mean, const hr_view *rstd) {
  int64_t groups = c->ints[0];
  HR_RETURN_IF_ERROR(want_rank(c, "x", x, 2, HR_RANK_MAX));
  if (groups < 1 || x->dims[1] % groups != 0) {
    return FAIL(c, "%lld channels don't divide into %lld groups", (long long)x->dims[1], (long long)groups);
  }
  int64_t dims[2] = {x->dims[0], groups};
  HR_RETURN_IF_ERROR(want_dims(c, "the mean", mean, 2, dims));
  return want_dims(c, "rstd", rstd, 2, dims);
}

static hr_status check_group_norm(const checked *c) {
  const hr_view *x = input(c, 0);
  HR_RETURN_IF_ERROR(check_groups(c, x, output(c, 1), output(c, 2)));
  HR_RETURN_IF_ERROR(want_like(c, "y", output(c, 0), x));
  HR_RETURN_IF_ERROR(want_vector(c, "the weight", input(c, 1), x->dims[1]));
  return want_vector(c, "the bias", input(c, 2), x->dims[1]);
}

static hr_status check_group_norm_backward(const checked *c) {
  const hr_view *x = input(c, 1);
  HR_RETURN_IF_ERROR(check_groups(c, x, input(c, 2), input(c, 3)));
  HR_RETURN_IF_ERROR(want_like(c, "dy", input(c, 0), x));
  HR_RETURN_IF_ERROR(want_like(c, "dx", output(c, 0), x));
  HR_RETURN_IF_ERROR(want_vector(c, "the weight", input(c, 4), x->dims[1]));
  HR_RETURN_IF_ERROR(want_vector(c, "dweight", output(c, 1), x->dims[1]));
  return want_vector(c, "dbias", output(c, 2), x->dims[1]);
}

/* Vectors of x's channels: inputs and outputs from the given numbers on. */
static hr_status check_channels(const checked *c, const hr_view *x, int first_input, int first_output) {
  HR_RETURN_IF_ERROR(want_rank(c, "x", x, 2, HR_RANK_MAX));
  for (int i = first_input; i < c->input_count; ++i) {
    HR_RETURN_IF_ERROR(want_vector(c, "a parameter or statistic", input(c, i), x->dims[1]));
  }
  for (int i = first_output; i < c->output_count; ++i) {
    HR_RETURN_IF_ERROR(want_vector(c, "an output for each channel", output(c, i), x->dims[1]));
  }
  return HR_OK;
}

static hr_status check_batch_norm(const checked *c) {
  const hr_view *x = input(c, 0);
  HR_RETURN_IF_ERROR(check_channels(c, x, 1, 1));
  if (c->ints[0] == 0 && (input(c, 3) == NULL || input(c, 4) == NULL)) {
    return FAIL(c, "running statistics are needed outside training");
  }
  return want_like(c, "y", output(c, 0), x);
}

static hr_status check_batch_norm_backward(const checked *c) {
  const hr_view *x = input(c, 1);
  HR_RETURN_IF_ERROR(check_channels(c, x, 2, 1));
  HR_RETURN_IF_ERROR(want_like(c, "dy", input(c, 0), x));
  return want_like(c, "dx", output(c, 0), x);
}

/* ---- losses ---- */

/* x [N, C, ..] or [C], target [N, ..] or []; gives one element for each target, or one in all. */
static hr_status check_classes(const checked *c, const hr_view *x, const hr_view *target, const hr_view *weight,
                               const hr_view *loss) {
  int64_t dims[HR_RANK_MAX];
  HR_RETURN_IF_ERROR(want_rank(c, "x", x, 1, HR_RANK_MAX));
  HR_RETURN_IF_ERROR(want_integer(c, "the target", target));
  int at = 0, class_dim = x->rank == 1 ? 0 : 1;
  for (int d = 0; d < x->rank; ++d) {
    if (d != class_dim) {
      dims[at++] = x->dims[d];
    }
  }
  if (x->rank == 1) {
    HR_RETURN_IF_ERROR(want_one(c, "the target", target));
    HR_RETURN_IF_ERROR(want_rank(c, "the target", target, 0, 1));
  } else {
    HR_RETURN_IF_ERROR(want_dims(c, "the target", target, at, dims));
  }
  if (x->dims[class_dim] == 0 && hr__view_count(target) > 0) {
    return FAIL(c, "no classes for %lld targets", (long long)hr__view_count(target));
  }
  HR_RETURN_IF_ERROR(want_vector(c, "the weight", weight, x->dims[class_dim]));
  return c->ints[0] == 0 && x->rank > 1 ? want_dims(c, "the loss", loss, at, dims) : want_one(c, "the loss", loss);
}

static hr_status check_nll_loss(const checked *c) {
  HR_RETURN_IF_ERROR(want_one(c, "the total weight", output(c, 1)));
  return check_classes(c, input(c, 0), input(c, 1), input(c, 2), output(c, 0));
}

static hr_status check_nll_loss_backward(const checked *c) {
  HR_RETURN_IF_ERROR(want_one(c, "the total weight", input(c, 3)));
  return check_classes(c, output(c, 0), input(c, 1), input(c, 2), input(c, 0));
}

static hr_status check_loss(const checked *c) {
  const hr_view *x = input(c, 0), *loss = output(c, 0);
  HR_RETURN_IF_ERROR(want_spread(c, "the target", input(c, 1), x->rank, x->dims));
  HR_RETURN_IF_ERROR(want_spread(c, "the weight", input(c, 2), x->rank, x->dims));
  return c->ints[0] == 0 ? want_like(c, "the loss", loss, x) : want_one(c, "the loss", loss);
}

static hr_status check_loss_backward(const checked *c) {
  const hr_view *dx = output(c, 0);
  HR_RETURN_IF_ERROR(want_like(c, "x", input(c, 1), dx));
  for (int i = 0; i < c->input_count; ++i) {
    HR_RETURN_IF_ERROR(want_spread(c, i == 0 ? "dloss" : "an input", input(c, i), dx->rank, dx->dims));
  }
  return HR_OK;
}

/* ---- windows and interpolation ---- */

/* Planes of n dims, as many in both. */
static hr_status check_planes(const checked *c, const hr_view *x, const hr_view *y, int n) {
  if (n < 1 || n > 3) {
    return FAIL(c, "planes of %d dims, expected 1 to 3", n);
  }
  HR_RETURN_IF_ERROR(want_rank(c, "x", x, n + 1, n + 2));
  HR_RETURN_IF_ERROR(want_rank(c, "y", y, x->rank, x->rank));
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
  HR_RETURN_IF_ERROR(want_small(c, c->int_count, c->ints));
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
  HR_RETURN_IF_ERROR(want_like(c, "the index", output(c, 1), output(c, 0)));
  HR_RETURN_IF_ERROR(want_integer(c, "the index", output(c, 1)));
  return check_windows(c, input(c, 0), output(c, 0));
}

static hr_status check_pool_backward(const checked *c) {
  HR_RETURN_IF_ERROR(want_like(c, "the index", input(c, 1), input(c, 0)));
  HR_RETURN_IF_ERROR(want_integer(c, "the index", input(c, 1)));
  return check_windows(c, output(c, 0), input(c, 0));
}

static hr_status check_average(const checked *c) {
  return c->int_count % 4 == 2 ? check_windows(c, input(c, 0), output(c, 0)) : FAIL(c, "%d ints", c->int_count);
}

static hr_status check_average_backward(const checked *c) {
  return c->int_count % 4 == 2 ? check_windows(c, output(c, 0), input(c, 0)) : FAIL(c, "%d ints", c->int_count);
}

static hr_status check_adaptive(const checked *c) {
  const hr_view *x = input(c, 0), *y = output(c, 0);
  HR_RETURN_IF_ERROR(want_small(c, 1, c->ints));
  int n = (int)c->ints[0];
  HR_RETURN_IF_ERROR(check_planes(c, x, y, n));
  for (int d = x->rank - n; d < x->rank; ++d) {
    if (x->dims[d] < 1) {
      return FAIL(c, "dim %d takes 0 to %lld: expected elements", d, (long long)y->dims[d]);
    }
  }
  HR_RETURN_IF_ERROR(want_integer(c, "the index", output(c, 1)));
  return want_like(c, "the index", output(c, 1), y);
}

static hr_status check_resize(const checked *c) {
  const hr_view *x = input(c, 0), *y = output(c, 0);
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
  return check_columns(c, input(c, 0), output(c, 0));
}

static hr_status check_col2im(const checked *c) {
  return check_columns(c, output(c, 0), input(c, 0));
}

/* Both have the same dims but for one, which has elements. */
static hr_status check_resampled(const checked *c, const hr_view *x, const hr_view *y) {
  HR_RETURN_IF_ERROR(want_dim(c, c->ints[0], x));
  int dim = (int)c->ints[0];
  int64_t dims[HR_RANK_MAX];
  HR_RETURN_IF_ERROR(want_rank(c, "x", x, 1, HR_RANK_MAX - 1));
  HR_RETURN_IF_ERROR(want_rank(c, "y", y, x->rank, x->rank));
  memcpy(dims, x->dims, (size_t)x->rank * sizeof *dims);
  dims[dim] = y->dims[dim];
  if (x->dims[dim] < 1 || y->dims[dim] < 1) {
    return FAIL(c, "dim %d goes from %lld to %lld: expected elements", dim, (long long)x->dims[dim],
                (long long)y->dims[dim]);
  }
  if (c->ints[1] < 0 || c->ints[1] > 6 || (c->ints[1] > 3 && (c->ints[3] < 1 || c->ints[3] > INT32_MAX))) {
    return FAIL(c, "kind %lld with %lld taps", (long long)c->ints[1], (long long)c->ints[3]);
  }
  return want_dims(c, "y", y, x->rank, dims);
}

static hr_status check_resample(const checked *c) {
  return check_resampled(c, input(c, 0), output(c, 0));
}

static hr_status check_resample_backward(const checked *c) {
  return check_resampled(c, output(c, 0), input(c, 0));
}

/* x [N, C, plane of n], grid [N, out.., n], y [N, C, out..] */
static hr_status check_samples(const checked *c, const hr_view *x, const hr_view *grid, const hr_view *y) {
  HR_RETURN_IF_ERROR(want_rank(c, "x", x, 4, 5));
  HR_RETURN_IF_ERROR(want_rank(c, "the grid", grid, x->rank, x->rank));
  HR_RETURN_IF_ERROR(want_rank(c, "y", y, x->rank, x->rank));
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
  HR_RETURN_IF_ERROR(want_dims(c, "y", y, x->rank, places));
  return want_dims(c, "the grid", grid, x->rank, dims);
}

static hr_status check_grid_sample(const checked *c) {
  return check_samples(c, input(c, 0), input(c, 1), output(c, 0));
}

static hr_status check_grid_sample_backward(const checked *c) {
  HR_RETURN_IF_ERROR(want_like(c, "dx", output(c, 0), input(c, 1)));
  HR_RETURN_IF_ERROR(want_like(c, "dgrid", output(c, 1), input(c, 2)));
  return check_samples(c, input(c, 1), input(c, 2), input(c, 0));
}

/* ---- index maps ---- */

static hr_status check_cat(const checked *c) {
  const hr_view *y = output(c, 0);
  HR_RETURN_IF_ERROR(want_dim(c, c->ints[0], y));
  int dim = (int)c->ints[0];
  int64_t sum = 0;
  for (int i = 0; i < c->input_count; ++i) {
    const hr_view *x = input(c, i);
    if (x == NULL || x->rank != y->rank || x->rank == 0) {
      return FAIL(c, "input %d has %d dims, the output %d", i, x == NULL ? 0 : x->rank, y->rank);
    }
    for (int d = 0; d < y->rank; ++d) {
      if (d != dim && x->dims[d] != y->dims[d]) {
        return FAIL(c, "dim %d of input %d is %lld, of the output %lld", d, i, (long long)x->dims[d],
                    (long long)y->dims[d]);
      }
    }
    sum += x->dims[dim];
  }
  return sum == y->dims[dim] ? HR_OK
                             : FAIL(c, "dim %d of the inputs is %lld in all, of the output %lld", dim, (long long)sum,
                                    (long long)y->dims[dim]);
}

static hr_status check_pad(const checked *c) {
  const hr_view *x = input(c, 0), *y = output(c, 0);
  if (c->int_count != 2 * x->rank || y->rank != x->rank) {
    return FAIL(c, "%d ints and an output of %d dims for an input of %d", c->int_count, y->rank, x->rank);
  }
  HR_RETURN_IF_ERROR(want_small(c, c->int_count, c->ints));
  for (int d = 0; d < x->rank; ++d) {
    int64_t before = c->ints[d], after = c->ints[x->rank + d];
    if (y->dims[d] != x->dims[d] + before + after) {
      return FAIL(c, "dim %d: %lld + %lld before + %lld after != %lld", d, (long long)x->dims[d], (long long)before,
                  (long long)after, (long long)y->dims[d]);
    }
  }
  return HR_OK;
}

/* `large` is `small` with borders that `small` has the elements for. */
static hr_status check_borders(const checked *c, const hr_view *small, const hr_view *large) {
  if (c->int_count != 2 * small->rank + 1 || large->rank != small->rank) {
    return FAIL(c, "%d ints for operands of %d and %d dims", c->int_count, small->rank, large->rank);
  }
  HR_RETURN_IF_ERROR(want_small(c, c->int_count, c->ints));
  bool repeats = c->ints[0] != 0;
  for (int d = 0; d < small->rank; ++d) {
    int64_t before = c->ints[1 + d], after = c->ints[1 + small->rank + d], in = small->dims[d];
    int64_t most = repeats ? (in > 0 ? INT32_MAX : 0) : in > 0 ? in - 1 : 0;
    if (before < 0 || after < 0 || before > most || after > most) {
      return FAIL(c, "dim %d of %lld elements gets %lld before and %lld after", d, (long long)in, (long long)before,
                  (long long)after);
    }
    if (large->dims[d] != in + before + after) {
      return FAIL(c, "dim %d: %lld + %lld before + %lld after != %lld", d, (long long)in, (long long)before,
                  (long long)after, (long long)large->dims[d]);
    }
  }
  return HR_OK;
}

static hr_status check_pad_border(const checked *c) {
  return check_borders(c, input(c, 0), output(c, 0));
}

static hr_status check_pad_border_backward(const checked *c) {
  return check_borders(c, output(c, 0), input(c, 0));
}

static hr_status check_index_select(const checked *c) {
  const hr_view *x = input(c, 0), *index = input(c, 1);
  HR_RETURN_IF_ERROR(want_integer(c, "the index", index));
  HR_RETURN_IF_ERROR(want_dim(c, c->ints[0], x));
  int64_t dims[2 * HR_RANK_MAX];
  int rank = 0;
  for (int d = 0; d < c->ints[0] && d < x->rank; ++d) {
    dims[rank++] = x->dims[d];
  }
  for (int d = 0; d < index->rank; ++d) {
    dims[rank++] = index->dims[d];
  }
  for (int d = (int)c->ints[0] + 1; d < x->rank; ++d) {
    dims[rank++] = x->dims[d];
  }
  HR_RETURN_IF_ERROR(want_rank(c, "the output", output(c, 0), rank, rank));
  return want_dims(c, "the output", output(c, 0), rank, dims);
}

/* index is no larger than `other`, `dim` aside where it may be anything. */
static hr_status want_within(const checked *c, const hr_view *index, const char *what, const hr_view *other,
                             int64_t dim) {
  char found[HR__DIMS_TEXT], limit[HR__DIMS_TEXT];
  int rank = index->rank;
  bool is_fit = rank == other->rank || (rank <= 1 && other->rank <= 1);
  for (int d = 0; is_fit && d < rank && d < other->rank; ++d) {
    is_fit = d == dim || index->dims[d] <= other->dims[d];
  }
  return is_fit ? HR_OK
                : FAIL(c, "the index's dims %s don't fit into %s of %s", hr__view_dims(index, found), what,
                       hr__view_dims(other, limit));
}

static hr_status check_gather(const checked *c) {
  const hr_view *x = input(c, 0), *index = input(c, 1);
  HR_RETURN_IF_ERROR(want_integer(c, "the index", index));
  HR_RETURN_IF_ERROR(want_dim(c, c->ints[0], x));
  HR_RETURN_IF_ERROR(want_within(c, index, "an input", x, c->ints[0]));
  return want_like(c, "the output", output(c, 0), index);
}

static hr_status check_scatter(const checked *c) {
  const hr_view *index = input(c, 0), *source = input(c, 1), *y = output(c, 0);
  HR_RETURN_IF_ERROR(want_integer(c, "the index", index));
  HR_RETURN_IF_ERROR(want_dim(c, c->ints[0], y));
  if (c->ints[1] < HR_STORE_SET || c->ints[1] > HR_STORE_MIN) {
    return FAIL(c, "mode %lld, expected 0 to 4", (long long)c->ints[1]);
  }
  HR_RETURN_IF_ERROR(want_within(c, index, "an output", y, c->ints[0]));
  return source->buffer == NULL ? HR_OK : want_within(c, index, "a source", source, -1);
}

/* The dims that indices select from x. */
static hr_status selected_dims(const checked *c, const hr_view *x, int *out_rank, int64_t *dims) {
  int64_t mask = c->ints[0], position = c->ints[1];
  int count = c->input_count - 1, index_rank = count > 0 ? c->inputs[1].rank : 0;
  if (count < 1 || mask < 0 || mask >> x->rank != 0 || __builtin_popcountll((unsigned long long)mask) != count) {
    return FAIL(c, "mask 0x%llx of %d dims for %d indices", (unsigned long long)mask, x->rank, count);
  }
  if (position < 0 || position > x->rank - count || x->rank - count + index_rank > HR_RANK_MAX) {
    return FAIL(c, "the index's %d dims at %lld of %d", index_rank, (long long)position, x->rank - count);
  }
  int64_t common[HR_RANK_MAX];
  for (int d = 0; d < index_rank; ++d) {
    common[d] = 1;
  }
  for (int i = 1; i <= count; ++i) {
    HR_RETURN_IF_ERROR(want_integer(c, "an index", &c->inputs[i]));
    HR_RETURN_IF_ERROR(want_rank(c, "an index", &c->inputs[i], index_rank, index_rank));
    for (int d = 0; d < index_rank; ++d) {
      int64_t dim = c->inputs[i].dims[d];
      if (dim != 1 && common[d] != 1 && dim != common[d]) {
        return FAIL(c, "dim %d of the indices differs: %lld != %lld", d, (long long)common[d], (long long)dim);
      }
      common[d] = dim != 1 ? dim : common[d];
    }
  }
  int kept = 0;
  for (int d = 0; d < x->rank; ++d) {
    if ((mask >> d & 1) == 0) {
      dims[kept < position ? kept : kept + index_rank] = x->dims[d];
      ++kept;
    }
  }
  memcpy(dims + position, common, (size_t)index_rank * sizeof *common);
  *out_rank = kept + index_rank;
  return HR_OK;
}

static hr_status check_index(const checked *c) {
  int rank = 0;
  int64_t dims[2 * HR_RANK_MAX];
  HR_RETURN_IF_ERROR(selected_dims(c, input(c, 0), &rank, dims));
  return want_dims(c, "the output", output(c, 0), rank, dims);
}

static hr_status check_index_put(const checked *c) {
  int rank = 0;
  int64_t dims[2 * HR_RANK_MAX];
  HR_RETURN_IF_ERROR(selected_dims(c, output(c, 0), &rank, dims));
  return want_spread(c, "the values", input(c, 0), rank, dims);
}

static hr_status check_index_add(const checked *c) {
  const hr_view *index = input(c, 0), *source = input(c, 1), *y = output(c, 0);
  HR_RETURN_IF_ERROR(want_integer(c, "the index", index));
  HR_RETURN_IF_ERROR(want_rank(c, "the index", index, 0, 1));
  HR_RETURN_IF_ERROR(want_dim(c, c->ints[0], y));
  int64_t dims[HR_RANK_MAX];
  for (int d = 0; d < y->rank; ++d) {
    dims[d] = d == c->ints[0] ? hr__view_count(index) : y->dims[d];
  }
  return y->rank == 0 || source->rank == 0 ? want_one(c, "the source", source)
                                           : want_dims(c, "the source", source, y->rank, dims);
}

static hr_status check_embedding_backward(const checked *c) {
  const hr_view *dy = input(c, 0), *index = input(c, 1), *dweight = output(c, 0);
  HR_RETURN_IF_ERROR(want_integer(c, "the index", index));
  HR_RETURN_IF_ERROR(want_rank(c, "dweight", dweight, 2, 2));
  HR_RETURN_IF_ERROR(want_rank(c, "the index", index, 0, HR_RANK_MAX - 1));
  int64_t dims[HR_RANK_MAX];
  if (index->rank > 0) {
    memcpy(dims, index->dims, (size_t)index->rank * sizeof *dims);
  }
  dims[index->rank] = dweight->dims[1];
  return want_dims(c, "dy", dy, index->rank + 1, dims);
}

static hr_status check_tri(const checked *c) {
  HR_RETURN_IF_ERROR(want_rank(c, "x", input(c, 0), 2, HR_RANK_MAX));
  return want_like(c, "the output", output(c, 0), input(c, 0));
}

static hr_status check_vector(const checked *c) {
  return want_rank(c, "the output", output(c, 0), 1, 1);
}

static hr_status check_matrix(const checked *c) {
  return want_rank(c, "the output", output(c, 0), 2, 2);
}

/* ---- random numbers ---- */

static hr_status check_dropout(const checked *c) {
  HR_RETURN_IF_ERROR(want_like(c, "the output", output(c, 0), input(c, 0)));
  return want_like(c, "the mask", output(c, 1), input(c, 0));
}

static hr_status check_fill(const checked *c) {
  const hr_view *y = output(c, 0);
  for (int i = 0; i < c->input_count; ++i) {
    HR_RETURN_IF_ERROR(want_spread(c, "a parameter", input(c, i), y->rank, y->dims));
  }
  return HR_OK;
}

/* ---- cells ---- */

/* `view` is [N, count * H] for like = [N, H]. */
static hr_status want_gates(const checked *c, const char *what, const hr_view *view, const hr_view *like,
                            int64_t count) {
  int64_t dims[2] = {like->dims[0], count * like->dims[1]};
  return want_dims(c, what, view, 2, dims);
}

static hr_status check_lstm_cell(const checked *c) {
  const hr_view *before = input(c, 2);
  HR_RETURN_IF_ERROR(want_rank(c, "c", before, 2, 2));
  HR_RETURN_IF_ERROR(want_gates(c, "the input gates", input(c, 0), before, 4));
  HR_RETURN_IF_ERROR(want_gates(c, "the hidden gates", input(c, 1), before, 4));
  HR_RETURN_IF_ERROR(want_vector(c, "the input bias", input(c, 3), 4 * before->dims[1]));
  HR_RETURN_IF_ERROR(want_vector(c, "the hidden bias", input(c, 4), 4 * before->dims[1]));
  HR_RETURN_IF_ERROR(want_like(c, "h", output(c, 0), before));
  HR_RETURN_IF_ERROR(want_like(c, "the new c", output(c, 1), before));
  return want_gates(c, "the workspace", output(c, 2), before, 4);
}

static hr_status check_lstm_cell_backward(const checked *c) {
  const hr_view *before = input(c, 2);
  HR_RETURN_IF_ERROR(want_rank(c, "c", before, 2, 2));
  HR_RETURN_IF_ERROR(want_like(c, "dh", input(c, 0), before));
  HR_RETURN_IF_ERROR(want_like(c, "dc", input(c, 1), before));
  HR_RETURN_IF_ERROR(want_like(c, "the new c", input(c, 3), before));
  HR_RETURN_IF_ERROR(want_gates(c, "the workspace", input(c, 4), before, 4));
  HR_RETURN_IF_ERROR(want_gates(c, "dgates", output(c, 0), before, 4));
  return want_like(c, "the gradient of c", output(c, 1), before);
}

static hr_status check_gru_cell(const checked *c) {
  const hr_view *before = input(c, 2);
  HR_RETURN_IF_ERROR(want_rank(c, "h", before, 2, 2));
  HR_RETURN_IF_ERROR(want_gates(c, "the input gates", input(c, 0), before, 3));
  HR_RETURN_IF_ERROR(want_gates(c, "the hidden gates", input(c, 1), before, 3));
  HR_RETURN_IF_ERROR(want_vector(c, "the input bias", input(c, 3), 3 * before->dims[1]));
  HR_RETURN_IF_ERROR(want_vector(c, "the hidden bias", input(c, 4), 3 * before->dims[1]));
  HR_RETURN_IF_ERROR(want_like(c, "the new h", output(c, 0), before));
  return want_gates(c, "the workspace", output(c, 1), before, 5);
}

static hr_status check_gru_cell_backward(const checked *c) {
  const hr_view *dh = input(c, 0);
  HR_RETURN_IF_ERROR(want_rank(c, "dh", dh, 2, 2));
  HR_RETURN_IF_ERROR(want_gates(c, "the workspace", input(c, 1), dh, 5));
  HR_RETURN_IF_ERROR(want_gates(c, "the gradient of the input gates", output(c, 0), dh, 3));
  HR_RETURN_IF_ERROR(want_gates(c, "the gradient of the hidden gates", output(c, 1), dh, 3));
  return want_like(c, "the gradient of h", output(c, 2), dh);
}

/* ---- attention ---- */

/* q [.., L, E], k [.., S, E], v [.., S, V], y [.., L, V], mask over [.., L, S], log-sum-exp [.., L] */
static hr_status check_heads(const checked *c, const hr_view *q, const hr_view *k, const hr_view *v, const hr_view *y,
                             const hr_view *mask, const hr_view *lse) {
  int64_t dims[HR_RANK_MAX];
  HR_RETURN_IF_ERROR(want_rank(c, "q", q, 2, HR_RANK_MAX));
  int rank = q->rank;
  HR_RETURN_IF_ERROR(want_rank(c, "k", k, rank, rank));
  HR_RETURN_IF_ERROR(want_rank(c, "v", v, rank, rank));
  memcpy(dims, q->dims, (size_t)rank * sizeof *dims);
  dims[rank - 2] = k->dims[rank - 2];
  HR_RETURN_IF_ERROR(want_dims(c, "k", k, rank, dims));
  dims[rank - 1] = v->dims[rank - 1];
  HR_RETURN_IF_ERROR(want_dims(c, "v", v, rank, dims));
  dims[rank - 2] = q->dims[rank - 2];
  HR_RETURN_IF_ERROR(want_dims(c, "y", y, rank, dims));
  HR_RETURN_IF_ERROR(want_dims(c, "the log-sum-exp", lse, rank - 1, dims));
  dims[rank - 1] = k->dims[rank - 2];
  HR_RETURN_IF_ERROR(want_spread(c, "the mask", mask, rank, dims));
  return c->scalar_count == 1 || c->scalar_count == 4 ? HR_OK : FAIL(c, "%d scalars, expected 1 or 4", c->scalar_count);
}

static hr_status check_attention(const checked *c) {
  return check_heads(c, input(c, 0), input(c, 1), input(c, 2), output(c, 0), input(c, 3), output(c, 1));
}

static hr_status check_attention_backward(const checked *c) {
  const hr_view *q = input(c, 1), *k = input(c, 2), *v = input(c, 3);
  HR_RETURN_IF_ERROR(check_heads(c, q, k, v, input(c, 0), input(c, 4), input(c, 6)));
  HR_RETURN_IF_ERROR(want_like(c, "y", input(c, 5), input(c, 0)));
  HR_RETURN_IF_ERROR(want_like(c, "dq", output(c, 0), q));
  HR_RETURN_IF_ERROR(want_like(c, "dk", output(c, 1), k));
  HR_RETURN_IF_ERROR(want_like(c, "dv", output(c, 2), v));
  return output(c, 3) == NULL || input(c, 4) != NULL ? HR_OK : FAIL(c, "dmask without a mask");
}

/* ---- optimizers ---- */

/* Lists of n outputs each that begin with the parameters; inputs begin with n gradients. */
static hr_status check_parameters(const checked *c, int lists, int input_lists) {
  int n = c->output_count / lists;
  if (n * lists != c->output_count || c->input_count < n * input_lists || c->input_count > n * input_lists + 3) {
    return FAIL(c, "%d inputs and %d outputs: expected %d lists of outputs and %d of inputs, and up to 3 more",
                c->input_count, c->output_count, lists, input_lists);
  }
  for (int k = 0; k < n; ++k) {
    for (int list = 0; list < lists; ++list) {
      if (output(c, list * n + k) == NULL) {
        return FAIL(c, "output %d is absent", list * n + k);
      }
      HR_RETURN_IF_ERROR(want_like(c, "a state", output(c, list * n + k), &c->outputs[k]));
    }
    if (input(c, k) == NULL) {
      return FAIL(c, "gradient %d is absent", k);
    }
    HR_RETURN_IF_ERROR(want_like(c, "a gradient", input(c, k), &c->outputs[k]));
    if (input_lists > 1) {
      if (input(c, n + k) == NULL) {
        return FAIL(c, "step %d is absent", k);
      }
      HR_RETURN_IF_ERROR(want_one(c, "a step", input(c, n + k)));
    }
  }
  for (int i = n * input_lists; i < c->input_count; ++i) {
    HR_RETURN_IF_ERROR(want_one(c, "a number", input(c, i)));
  }
  return HR_OK;
}

static hr_status check_adam(const checked *c) {
  return check_parameters(c, c->ints[2] != 0 ? 4 : 3, 2);
}

static hr_status check_sgd(const checked *c) {
  return check_parameters(c, c->ints[3] != 0 ? 2 : 1, 1);
}

static hr_status check_check_index(const checked *c) {
  const hr_view *x = input(c, 0);
  return x->buffer == NULL || x->dtype != HR_DTYPE_I64 ? FAIL(c, "expected an i64 tensor") : want_one(c, "x", x);
}

/* ---- the table ---- */

enum { ANY = -1 };

/* Inputs and outputs at most (ANY: no limit), bits of those that must be there, ints and scalars at least. */
typedef struct shape_row {
  int inputs_max;
  uint32_t inputs_needed;
  int outputs_max;
  uint32_t outputs_needed;
  int ints_min, scalars_min;
  hr_status (*check)(const checked *c);
} shape_row;

static const shape_row rows[HR_OP_COUNT] = {
    [HR_OP_MATMUL] = {3, 3, 1, 1, 0, 0, check_matmul},
    [HR_OP_CONV] = {3, 3, 1, 1, 5, 0, check_conv},
    [HR_OP_CONV_BACKWARD_DATA] = {3, 3, 1, 1, 5, 0, check_conv_backward_data},
    [HR_OP_CONV_BACKWARD_WEIGHT] = {2, 3, 1, 1, 5, 0, check_conv_backward_weight},
    [HR_OP_MEAN] = {1, 1, 1, 1, 1, 0, check_reduction},
    [HR_OP_VAR_MEAN] = {1, 1, 2, 1, 2, 1, check_reduction},
    [HR_OP_NORM] = {1, 1, 1, 1, 1, 1, check_norm},
    [HR_OP_LOGSUMEXP] = {1, 1, 1, 1, 1, 0, check_reduction},
    [HR_OP_SOFTMAX] = {1, 1, 1, 1, 1, 0, check_along_dim},
    [HR_OP_LOG_SOFTMAX] = {1, 1, 1, 1, 1, 0, check_along_dim},
    [HR_OP_SOFTMAX_BACKWARD] = {2, 3, 1, 1, 1, 0, check_along_dim},
    [HR_OP_LOG_SOFTMAX_BACKWARD] = {2, 3, 1, 1, 1, 0, check_along_dim},
    [HR_OP_LAYER_NORM] = {3, 1, 3, 1, 1, 1, check_layer_norm},
    [HR_OP_LAYER_NORM_BACKWARD] = {5, 15, 3, 0, 1, 0, check_layer_norm_backward},
    [HR_OP_GROUP_NORM] = {3, 1, 3, 1, 1, 1, check_group_norm},
    [HR_OP_GROUP_NORM_BACKWARD] = {5, 15, 3, 0, 1, 0, check_group_norm_backward},
    [HR_OP_BATCH_NORM] = {5, 1, 5, 1, 1, 2, check_batch_norm},
    [HR_OP_BATCH_NORM_BACKWARD] = {7, 3, 3, 0, 1, 1, check_batch_norm_backward},
    [HR_OP_NLL_LOSS] = {3, 3, 2, 1, 1, 1, check_nll_loss},
    [HR_OP_NLL_LOSS_BACKWARD] = {4, 3, 1, 1, 1, 1, check_nll_loss_backward},
    [HR_OP_BCE_LOSS] = {3, 3, 1, 1, 1, 0, check_loss},
    [HR_OP_BCE_LOSS_BACKWARD] = {4, 7, 1, 1, 1, 0, check_loss_backward},
    [HR_OP_MSE_LOSS] = {2, 3, 1, 1, 1, 0, check_loss},
    [HR_OP_MSE_LOSS_BACKWARD] = {3, 7, 1, 1, 1, 0, check_loss_backward},
    [HR_OP_SMOOTH_L1_LOSS] = {2, 3, 1, 1, 1, 1, check_loss},
    [HR_OP_SMOOTH_L1_LOSS_BACKWARD] = {3, 7, 1, 1, 1, 1, check_loss_backward},
    [HR_OP_HUBER_LOSS] = {2, 3, 1, 1, 1, 1, check_loss},
    [HR_OP_HUBER_LOSS_BACKWARD] = {3, 7, 1, 1, 1, 1, check_loss_backward},
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
    [HR_OP_CAT] = {ANY, 0, 1, 1, 1, 0, check_cat},
    [HR_OP_PAD] = {1, 1, 1, 1, 0, 1, check_pad},
    [HR_OP_PAD_BORDER] = {1, 1, 1, 1, 1, 0, check_pad_border},
    [HR_OP_PAD_BORDER_BACKWARD] = {1, 1, 1, 1, 1, 0, check_pad_border_backward},
    [HR_OP_INDEX_SELECT] = {2, 3, 1, 1, 1, 0, check_index_select},
    [HR_OP_GATHER] = {2, 3, 1, 1, 1, 0, check_gather},
    [HR_OP_SCATTER] = {2, 3, 1, 1, 2, 0, check_scatter},
    [HR_OP_INDEX] = {HR_RANK_MAX + 1, 3, 1, 1, 2, 0, check_index},
    [HR_OP_INDEX_PUT] = {HR_RANK_MAX + 1, 3, 1, 1, 3, 0, check_index_put},
    [HR_OP_INDEX_ADD] = {2, 3, 1, 1, 1, 1, check_index_add},
    [HR_OP_EMBEDDING_BACKWARD] = {2, 3, 1, 1, 2, 0, check_embedding_backward},
    [HR_OP_TRI] = {1, 1, 1, 1, 1, 1, check_tri},
    [HR_OP_ARANGE] = {0, 0, 1, 1, 0, 2, check_vector},
    [HR_OP_EYE] = {0, 0, 1, 1, 0, 0, check_matrix},
    [HR_OP_CUMSUM] = {1, 1, 1, 1, 1, 0, check_along_dim},
    [HR_OP_CUMPROD] = {1, 1, 1, 1, 1, 0, check_along_dim},
    [HR_OP_LOGCUMSUMEXP] = {1, 1, 1, 1, 1, 0, check_along_dim},
    [HR_OP_DROPOUT] = {1, 1, 2, 1, 0, 3, check_dropout},
    [HR_OP_UNIFORM] = {0, 0, 1, 1, 0, 4, check_fill},
    [HR_OP_NORMAL] = {2, 0, 1, 1, 0, 4, check_fill},
    [HR_OP_BERNOULLI] = {1, 0, 1, 1, 0, 3, check_fill},
    [HR_OP_RANDOM_INT] = {0, 0, 1, 1, 0, 4, check_fill},
    [HR_OP_EXPONENTIAL] = {0, 0, 1, 1, 0, 3, check_fill},
    [HR_OP_LSTM_CELL] = {5, 7, 3, 3, 0, 0, check_lstm_cell},
    [HR_OP_LSTM_CELL_BACKWARD] = {5, 28, 2, 1, 0, 0, check_lstm_cell_backward},
    [HR_OP_GRU_CELL] = {5, 7, 2, 1, 0, 0, check_gru_cell},
    [HR_OP_GRU_CELL_BACKWARD] = {2, 3, 3, 3, 0, 0, check_gru_cell_backward},
    [HR_OP_ATTENTION] = {4, 7, 2, 1, 1, 1, check_attention},
    [HR_OP_ATTENTION_BACKWARD] = {7, 0x6f, 4, 0, 1, 1, check_attention_backward},
    [HR_OP_ADAM] = {ANY, 0, ANY, 0, 3, 5, check_adam},
    [HR_OP_SGD] = {ANY, 0, ANY, 0, 4, 4, check_sgd},
    [HR_OP_RESAMPLE] = {1, 1, 1, 1, 4, 1, check_resample},
    [HR_OP_RESAMPLE_BACKWARD] = {1, 1, 1, 1, 4, 1, check_resample_backward},
    [HR_OP_GRID_SAMPLE] = {2, 3, 1, 1, 3, 0, check_grid_sample},
    [HR_OP_GRID_SAMPLE_BACKWARD] = {3, 7, 2, 0, 3, 0, check_grid_sample_backward},
    [HR_OP_IM2COL] = {1, 1, 1, 1, 4, 0, check_im2col},
    [HR_OP_COL2IM] = {1, 1, 1, 1, 4, 0, check_col2im},
    [HR_OP_CHECK_INDEX] = {1, 1, 0, 0, 3, 0, check_check_index},
};

static hr_status check_present(const checked *c, const char *side, int count, const hr_view *views, int max,
                               uint32_t needed) {
  if (max != ANY && count > max) {
    return FAIL(c, "%d %ss, expected at most %d", count, side, max);
  }
  for (int i = 0; needed >> i != 0; ++i) {
    if ((needed >> i & 1u) != 0 && (i >= count || !hr__view_is_present(&views[i]))) {
      return FAIL(c, "%s %d is absent", side, i);
    }
  }
  return HR_OK;
}

hr_status hr__check_shapes(const hr__checked *c) {
  const shape_row *row = &rows[c->op];
  if (row->check == NULL) {
    return hr_status_make(HR_STATUS_INTERNAL, "%s has no shape rule", c->name);
  }
  HR_RETURN_IF_ERROR(check_present(c, "input", c->input_count, c->inputs, row->inputs_max, row->inputs_needed));
  HR_RETURN_IF_ERROR(check_present(c, "output", c->output_count, c->outputs, row->outputs_max, row->outputs_needed));
  if (c->int_count < row->ints_min || c->scalar_count < row->scalars_min) {
    return FAIL(c, "%d ints and %d scalars, expected %d and %d", c->int_count, c->scalar_count, row->ints_min,
                row->scalars_min);
  }
  return row->check(c);
}
