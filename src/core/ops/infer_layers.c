/* infer_layers.c: rules of contractions, reductions and normalisations, losses, random numbers, attention and
 * optimizers (infer.h). */
#include <string.h>

#include "core/ops/infer.h"
#include "core/ops/packing.h"

typedef hr__checked checked;

/* ---- contractions ---- */

hr_status hr__infer_matmul(const checked *c) {
  const hr_view *a = hr__checked_input(c, 0), *b = hr__checked_input(c, 1);
  HR_RETURN_IF_ERROR(hr__want_rank(c, "a", a, 2, HR_RANK_MAX));
  HR_RETURN_IF_ERROR(hr__want_rank(c, "b", b, 2, HR_RANK_MAX));
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
  HR_RETURN_IF_ERROR(hr__give(c, 0, "the output", hr_dtype_promote(a->dtype, b->dtype), rank, dims));
  return hr__want_spread(c, "the bias", hr__checked_input(c, 2), rank, dims);
}

static hr_status read_packing(const checked *c, hr_packing *p) {
  *p = hr_packing_of(c->ints, c->int_count);
  if (p->bits < 2 || p->bits > 8 || p->bits == 7) {
    return FAIL(c, "%lld bits, expected 2 to 6 or 8", (long long)p->bits);
  }
  if (p->is_float && p->bits != 4 && p->bits != 8) {
    return FAIL(c, "%lld bits of floats, expected 4 or 8", (long long)p->bits);
  }
  HR_RETURN_IF_ERROR(hr__want_small(c, 2, c->ints)); /* bits * group must not wrap */
  int64_t least = 32 % p->bits == 0 ? 16 : 32;
  return p->group > 0 && p->group % least == 0
             ? HR_OK
             : FAIL(c, "groups of %lld, expected a multiple of %lld", (long long)p->group, (long long)least);
}

/* The dtype of the product; scales of one byte do not change x's. */
static hr_status give_product_dtype(const checked *c, hr_dtype *out) {
  const hr_view *x = hr__checked_input(c, 0), *scales = hr__checked_input(c, 2), *biases = hr__checked_input(c, 3);
  hr_dtype other = hr_dtype_is_float8(scales->dtype) ? x->dtype : scales->dtype;
  other = biases != NULL ? hr_dtype_promote(other, biases->dtype) : other;
  *out = hr_dtype_promote(x->dtype, other);
  bool is_small = hr_dtype_is_float8(x->dtype) || (biases != NULL && hr_dtype_is_float8(biases->dtype));
  bool is_float = hr_dtype_is_real(*out) && !hr_dtype_is_integer(x->dtype) && !is_small;
  return is_float ? HR_OK
                  : FAIL(c, "x has dtype %s and the scales %s, expected floating ones", hr_dtype_name(x->dtype),
                         hr_dtype_name(scales->dtype));
}

/* x [B?, M, K], numbers [B?, N, K * bits / 32], scales and biases [B?, N, K / group], or with K and N exchanged in the
 * last three */
hr_status hr__infer_quantized_matmul(const checked *c) {
  const hr_view *x = hr__checked_input(c, 0), *w = hr__checked_input(c, 1);
  hr_packing p;
  HR_RETURN_IF_ERROR(read_packing(c, &p));
  HR_RETURN_IF_ERROR(hr__want_rank(c, "x", x, 2, 3));
  HR_RETURN_IF_ERROR(hr__want_rank(c, "the numbers", w, x->rank, x->rank));
  int rank = x->rank;
  if (rank == 3 && x->dims[0] != w->dims[0]) {
    return FAIL(c, "%lld matrices of x and %lld of numbers", (long long)x->dims[0], (long long)w->dims[0]);
  }
  if (w->dtype != HR_DTYPE_U32) {
    return FAIL(c, "the numbers have dtype %s, expected u32", hr_dtype_name(w->dtype));
  }
  int64_t words = w->dims[rank - 1], numbers = words * 32 / p.bits, rows = w->dims[rank - 2];
  int64_t inner = p.has_columns ? rows : numbers;
  if (words * 32 % (p.bits * p.group) != 0 || x->dims[rank - 1] != inner) {
    return FAIL(c, "%lld numbers in each of %lld rows and groups of %lld for x with rows of %lld", (long long)numbers,
                (long long)rows, (long long)p.group, (long long)x->dims[rank - 1]);
  }
  int64_t groups[3] = {w->dims[0], rows}, dims[3] = {x->dims[0], x->dims[rank - 2]};
  groups[rank - 2] = rows, groups[rank - 1] = numbers / p.group;
  dims[rank - 2] = x->dims[rank - 2], dims[rank - 1] = p.has_columns ? numbers : rows;
  HR_RETURN_IF_ERROR(hr__want_dims(c, "the scales", hr__checked_input(c, 2), rank, groups));
  if (hr__checked_input(c, 3) != NULL) {
    HR_RETURN_IF_ERROR(hr__want_dims(c, "the biases", hr__checked_input(c, 3), rank, groups));
  }
  hr_dtype dtype;
  HR_RETURN_IF_ERROR(give_product_dtype(c, &dtype));
  return hr__give(c, 0, "the output", dtype, rank, dims);
}

/* True from 1 to the largest number of 32 bits. */
static inline bool is_positive(int64_t value) {
  return (uint64_t)value - 1 < INT32_MAX;
}

static hr_status check_conv_ints(const checked *c) {
  int64_t n = c->ints[0];
  return n >= 1 && n <= 3 && (c->int_count == 3 * n + 2 || c->int_count == 4 * n + 2)
             ? HR_OK
             : FAIL(c, "%lld spatial dims and %d ints: expected 1 to 3, and 3 or 4 for each and two more", (long long)n,
                    c->int_count);
}

/* The padding behind x: that in front, unless it is given. */
static const int64_t *conv_behind(const checked *c) {
  int64_t n = c->ints[0];
  return c->ints + (c->int_count == 4 * n + 2 ? 3 * n + 2 : 1 + n);
}

/* x [N, C, ..], w [O, C/g, ..], y [N, O, ..] */
static hr_status check_conv_shapes(const checked *c, const hr_view *x, const hr_view *w, const hr_view *y) {
  HR_RETURN_IF_ERROR(check_conv_ints(c));
  int64_t n = c->ints[0];
  const int64_t *stride = c->ints + 1, *padding = stride + n, *dilation = padding + n, *behind = conv_behind(c);
  int64_t groups = dilation[n];
  int rank = (int)n + 2;
  HR_RETURN_IF_ERROR(hr__want_rank(c, "x", x, rank, rank));
  HR_RETURN_IF_ERROR(hr__want_rank(c, "the weight", w, rank, rank));
  HR_RETURN_IF_ERROR(hr__want_rank(c, "y", y, rank, rank));
  if (groups != 1 && (!is_positive(groups) || w->dims[0] % groups != 0)) {
    HR_RETURN_IF_ERROR(hr__want_small(c, c->int_count, c->ints));
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
    if (!is_positive(stride[i]) || !is_positive(dilation[i]) || (uint64_t)padding[i] > INT32_MAX ||
        (uint64_t)behind[i] > INT32_MAX) {
      HR_RETURN_IF_ERROR(hr__want_small(c, c->int_count, c->ints));
      return FAIL(c, "stride %lld, padding %lld and %lld, dilation %lld", (long long)stride[i], (long long)padding[i],
                  (long long)behind[i], (long long)dilation[i]);
    }
    int64_t room = x->dims[2 + i] + padding[i] + behind[i] - dilation[i] * (w->dims[2 + i] - 1) - 1;
    int64_t expected = room < 0 ? 0 : stride[i] == 1 ? room + 1 : room / stride[i] + 1; /* avoid the slow division */
    /* a transposed convolution may leave elements of x that no window reaches */
    if (w->dims[2 + i] < 1 || y->dims[2 + i] != expected) {
      return FAIL(c,
                  "spatial dim %d: x %lld, kernel %lld, stride %lld, padding %lld and %lld, dilation %lld give %lld, "
                  "y has %lld",
                  i, (long long)x->dims[2 + i], (long long)w->dims[2 + i], (long long)stride[i], (long long)padding[i],
                  (long long)behind[i], (long long)dilation[i], (long long)expected, (long long)y->dims[2 + i]);
    }
  }
  return HR_OK;
}

/* One of x, w and y of a convolution, computed from the others: dim 0, dim 1 and the spatial dims. y does not determine
 * x and w uniquely: gives the smallest x and the largest w. */
typedef enum side { SIDE_X, SIDE_W, SIDE_Y } side;

/* padding: of both sides together. */
static int64_t spatial_dim(side of, int64_t x, int64_t w, int64_t y, int64_t stride, int64_t padding,
                           int64_t dilation) {
  int64_t room = of == SIDE_W   ? x + padding - 1 - (y - 1) * stride
                 : of == SIDE_X ? (y - 1) * stride - padding + dilation * (w - 1) + 1
                                : x + padding - dilation * (w - 1) - 1;
  return of == SIDE_X ? room : room < 0 ? 0 : of == SIDE_W ? room / dilation + 1 : room / stride + 1;
}

/* Constructs the output of an inference whose dims were not given; the operand of its side is not read. */
static hr_status make_conv_operand(const checked *c, side of, const hr_view *x, const hr_view *w, const hr_view *y,
                                   hr__made *out_made) {
  HR_RETURN_IF_ERROR(check_conv_ints(c));
  HR_RETURN_IF_ERROR(hr__want_small(c, c->int_count, c->ints));
  int n = (int)c->ints[0], rank = n + 2;
  const int64_t *stride = c->ints + 1, *padding = stride + n, *dilation = padding + n, groups = dilation[n];
  const int64_t *behind = conv_behind(c);
  HR_RETURN_IF_ERROR(hr__want_rank(c, "x", of == SIDE_X ? NULL : x, rank, rank));
  HR_RETURN_IF_ERROR(hr__want_rank(c, "the weight", of == SIDE_W ? NULL : w, rank, rank));
  HR_RETURN_IF_ERROR(hr__want_rank(c, "y", of == SIDE_Y ? NULL : y, rank, rank));
  int64_t *dims = out_made->dims;
  out_made->view = (hr_view){.dtype = of == SIDE_X ? y->dtype : x->dtype, .rank = rank, .dims = dims};
  dims[0] = of == SIDE_W ? y->dims[1] : of == SIDE_X ? y->dims[0] : x->dims[0];
  dims[1] = of == SIDE_W ? (groups > 0 ? x->dims[1] / groups : 0) : of == SIDE_X ? w->dims[1] * groups : w->dims[0];
  for (int i = 0; i < n; ++i) {
    if (stride[i] < 1 || dilation[i] < 1 || padding[i] < 0 || behind[i] < 0) {
      return FAIL(c, "stride %lld, padding %lld and %lld, dilation %lld", (long long)stride[i], (long long)padding[i],
                  (long long)behind[i], (long long)dilation[i]);
    }
    dims[2 + i] = spatial_dim(of, of == SIDE_X ? 0 : x->dims[2 + i], of == SIDE_W ? 0 : w->dims[2 + i],
                              of == SIDE_Y ? 0 : y->dims[2 + i], stride[i], padding[i] + behind[i], dilation[i]);
  }
  return HR_OK;
}

/* In an inference: the given output, or the one constructed from the other operands. */
__attribute__((noinline)) static hr_status infer_conv(const checked *c, side of, const hr_view *x, const hr_view *w,
                                                      const hr_view *y) {
  const hr_view **output = of == SIDE_X ? &x : of == SIDE_W ? &w : &y;
  hr__made made;
  if (*output == NULL) {
    HR_RETURN_IF_ERROR(make_conv_operand(c, of, x, w, y, &made));
    *output = &made.view;
  }
  HR_RETURN_IF_ERROR(check_conv_shapes(c, x, w, y));
  hr__keep(c, 0, of == SIDE_X ? hr_dtype_promote(y->dtype, w->dtype) : x->dtype, *output);
  return of == SIDE_W ? HR_OK : hr__want_vector(c, "the bias", hr__checked_input(c, 2), (*output)->dims[1]);
}

hr_status hr__infer_conv(const checked *c) {
  const hr_view *x = hr__checked_input(c, 0), *w = hr__checked_input(c, 1), *y = hr__checked_output(c, 0);
  if (c->types != NULL) {
    return infer_conv(c, SIDE_Y, x, w, NULL);
  }
  HR_RETURN_IF_ERROR(check_conv_shapes(c, x, w, y));
  return hr__want_vector(c, "the bias", hr__checked_input(c, 2), y->dims[1]);
}

hr_status hr__infer_conv_backward_data(const checked *c) {
  const hr_view *dx = hr__given_output(c, 0), *w = hr__checked_input(c, 1), *dy = hr__checked_input(c, 0);
  if (c->types != NULL) {
    return infer_conv(c, SIDE_X, dx, w, dy);
  }
  HR_RETURN_IF_ERROR(check_conv_shapes(c, dx, w, dy));
  return hr__want_vector(c, "the bias", hr__checked_input(c, 2), dx->dims[1]);
}

hr_status hr__infer_conv_backward_weight(const checked *c) {
  const hr_view *x = hr__checked_input(c, 0), *dw = hr__given_output(c, 0), *dy = hr__checked_input(c, 1);
  return c->types != NULL ? infer_conv(c, SIDE_W, x, dw, dy) : check_conv_shapes(c, x, dw, dy);
}

/* ---- reductions and normalisations ---- */

hr_status hr__infer_reduce(const checked *c) {
  const hr_view *x = hr__checked_input(c, 0);
  HR_RETURN_IF_ERROR(c->op == HR_OP_LOGSUMEXP ? hr__want_real(c, "x", x) : HR_OK);
  return hr__give_reduced(c, 0, hr__dtype_floating(hr__dtype_of(x)), x, c->ints[0]);
}

hr_status hr__infer_moments(const checked *c) {
  const hr_view *x = hr__checked_input(c, 0);
  hr_dtype dtype = hr__dtype_floating(hr__dtype_of(x));
  HR_RETURN_IF_ERROR(hr__give_reduced(c, 0, hr__dtype_real(dtype), x, c->ints[0]));
  return hr__give_reduced(c, 1, dtype, x, c->ints[0]);
}

/* The largest magnitude of no elements is undefined. */
hr_status hr__infer_norm(const checked *c) {
  const hr_view *x = hr__checked_input(c, 0);
  HR_RETURN_IF_ERROR(hr__give_reduced(c, 0, hr__dtype_real(hr__dtype_floating(hr__dtype_of(x))), x, c->ints[0]));
  bool has_identity = c->int_count < 2 || (c->ints[1] != 4 && c->ints[1] != 5), is_empty = hr__view_count(x) == 0;
  for (int d = 0; !has_identity && is_empty && d < x->rank; ++d) { /* empty in a kept dim: the output is empty too */
    is_empty = x->dims[d] != 0 || (c->ints[0] >> d & 1) != 0;
  }
  return has_identity || !is_empty ? HR_OK : FAIL(c, "no elements in the reduced dims, and an infinite order");
}

static hr_status infer_along_dim(const checked *c, hr_dtype dtype) {
  const hr_view *x = hr__checked_input(c, 0);
  for (int i = 1; i < c->input_count; ++i) {
    HR_RETURN_IF_ERROR(hr__want_like(c, "an input", hr__checked_input(c, i), x));
  }
  HR_RETURN_IF_ERROR(hr__give_like(c, 0, "the output", dtype, x));
  return hr__want_dim(c, c->ints[0], x);
}

hr_status hr__infer_along_dim(const checked *c) {
  bool is_softmax = c->op == HR_OP_SOFTMAX || c->op == HR_OP_LOG_SOFTMAX;
  HR_RETURN_IF_ERROR(is_softmax ? hr__want_real(c, "x", hr__checked_input(c, 0)) : HR_OK);
  return infer_along_dim(c, hr__dtype_floating(hr__dtype_of(hr__checked_input(c, 0))));
}

hr_status hr__infer_scan(const checked *c) {
  return infer_along_dim(c, hr__dtype_accumulated(hr__dtype_of(hr__checked_input(c, 0))));
}

static hr_status trailing_dims(const checked *c, const hr_view *x, int64_t *dims) {
  int64_t n = c->ints[0];
  if (n < 0 || n > x->rank) {
    return FAIL(c, "%lld trailing dims of %d", (long long)n, x->rank);
  }
  for (int d = 0; d < x->rank; ++d) {
    dims[d] = d < x->rank - n ? x->dims[d] : 1;
  }
  return HR_OK;
}

hr_status hr__infer_layer_norm(const checked *c) {
  const hr_view *x = hr__checked_input(c, 0);
  hr_dtype statistics = hr__dtype_statistics(x->dtype);
  int64_t dims[HR_RANK_MAX];
  HR_RETURN_IF_ERROR(hr__want_real(c, "x", x));
  HR_RETURN_IF_ERROR(hr__give_like(c, 0, "y", x->dtype, x));
  HR_RETURN_IF_ERROR(trailing_dims(c, x, dims));
  HR_RETURN_IF_ERROR(hr__give(c, 1, "the mean", statistics, x->rank, dims));
  HR_RETURN_IF_ERROR(hr__give(c, 2, "rstd", statistics, x->rank, dims));
  int n = (int)c->ints[0];
  HR_RETURN_IF_ERROR(hr__want_dims(c, "the weight", hr__checked_input(c, 1), n, x->dims + x->rank - n));
  return hr__want_dims(c, "the bias", hr__checked_input(c, 2), n, x->dims + x->rank - n);
}

/* The dtype of a parameter's gradient. */
static hr_dtype parameter_dtype(const checked *c, int input, const hr_view *x) {
  const hr_view *parameter = hr__checked_input(c, input);
  return parameter != NULL ? parameter->dtype : x->dtype;
}

hr_status hr__infer_layer_norm_backward(const checked *c) {
  const hr_view *x = hr__checked_input(c, 1);
  int64_t statistics[HR_RANK_MAX];
  HR_RETURN_IF_ERROR(hr__want_like(c, "dy", hr__checked_input(c, 0), x));
  HR_RETURN_IF_ERROR(hr__give_like(c, 0, "dx", x->dtype, x));
  HR_RETURN_IF_ERROR(trailing_dims(c, x, statistics));
  HR_RETURN_IF_ERROR(hr__want_dims(c, "the mean", hr__checked_input(c, 2), x->rank, statistics));
  HR_RETURN_IF_ERROR(hr__want_dims(c, "rstd", hr__checked_input(c, 3), x->rank, statistics));
  int n = (int)c->ints[0];
  const int64_t *dims = x->dims + x->rank - n;
  hr_dtype dtype = parameter_dtype(c, 4, x);
  HR_RETURN_IF_ERROR(hr__want_dims(c, "the weight", hr__checked_input(c, 4), n, dims));
  HR_RETURN_IF_ERROR(hr__give(c, 1, "dweight", dtype, n, dims));
  return hr__give(c, 2, "dbias", dtype, n, dims);
}

/* x must be [N, C, ..] with C a multiple of the groups. */
static hr_status want_groups(const checked *c, const hr_view *x) {
  int64_t groups = c->ints[0];
  HR_RETURN_IF_ERROR(hr__want_rank(c, "x", x, 2, HR_RANK_MAX));
  return groups >= 1 && x->dims[1] % groups == 0
             ? HR_OK
             : FAIL(c, "%lld channels don't divide into %lld groups", (long long)x->dims[1], (long long)groups);
}

hr_status hr__infer_group_norm(const checked *c) {
  const hr_view *x = hr__checked_input(c, 0);
  HR_RETURN_IF_ERROR(hr__want_real(c, "x", x));
  HR_RETURN_IF_ERROR(want_groups(c, x));
  int64_t dims[2] = {x->dims[0], c->ints[0]};
  HR_RETURN_IF_ERROR(hr__give(c, 1, "the mean", hr__dtype_statistics(x->dtype), 2, dims));
  HR_RETURN_IF_ERROR(hr__give(c, 2, "rstd", hr__dtype_statistics(x->dtype), 2, dims));
  HR_RETURN_IF_ERROR(hr__give_like(c, 0, "y", x->dtype, x));
  HR_RETURN_IF_ERROR(hr__want_vector(c, "the weight", hr__checked_input(c, 1), x->dims[1]));
  return hr__want_vector(c, "the bias", hr__checked_input(c, 2), x->dims[1]);
}

hr_status hr__infer_group_norm_backward(const checked *c) {
  const hr_view *x = hr__checked_input(c, 1);
  HR_RETURN_IF_ERROR(want_groups(c, x));
  int64_t dims[2] = {x->dims[0], c->ints[0]};
  hr_dtype dtype = parameter_dtype(c, 4, x);
  HR_RETURN_IF_ERROR(hr__want_dims(c, "the mean", hr__checked_input(c, 2), 2, dims));
  HR_RETURN_IF_ERROR(hr__want_dims(c, "rstd", hr__checked_input(c, 3), 2, dims));
  HR_RETURN_IF_ERROR(hr__want_like(c, "dy", hr__checked_input(c, 0), x));
  HR_RETURN_IF_ERROR(hr__give_like(c, 0, "dx", x->dtype, x));
  HR_RETURN_IF_ERROR(hr__want_vector(c, "the weight", hr__checked_input(c, 4), x->dims[1]));
  HR_RETURN_IF_ERROR(hr__give_vector(c, 1, "dweight", dtype, x->dims[1]));
  return hr__give_vector(c, 2, "dbias", dtype, x->dims[1]);
}

/* Inputs from the given number on must be vectors of x's channels, and so are outputs from number 1 on. */
static hr_status infer_channels(const checked *c, const hr_view *x, int first_input, hr_dtype dtype) {
  HR_RETURN_IF_ERROR(hr__want_rank(c, "x", x, 2, HR_RANK_MAX));
  for (int i = first_input; i < c->input_count; ++i) {
    HR_RETURN_IF_ERROR(hr__want_vector(c, "a parameter or statistic", hr__checked_input(c, i), x->dims[1]));
  }
  for (int i = 1; i < c->output_count; ++i) {
    HR_RETURN_IF_ERROR(hr__give_vector(c, i, "an output for each channel", dtype, x->dims[1]));
  }
  return HR_OK;
}

hr_status hr__infer_batch_norm(const checked *c) {
  const hr_view *x = hr__checked_input(c, 0);
  HR_RETURN_IF_ERROR(infer_channels(c, x, 1, hr__dtype_statistics(x->dtype)));
  if (c->ints[0] == 0 && (hr__checked_input(c, 3) == NULL || hr__checked_input(c, 4) == NULL)) {
    return FAIL(c, "running statistics are needed outside training");
  }
  return hr__give_like(c, 0, "y", x->dtype, x);
}

hr_status hr__infer_batch_norm_backward(const checked *c) {
  const hr_view *x = hr__checked_input(c, 1);
  HR_RETURN_IF_ERROR(infer_channels(c, x, 2, parameter_dtype(c, 2, x)));
  HR_RETURN_IF_ERROR(hr__want_like(c, "dy", hr__checked_input(c, 0), x));
  return hr__give_like(c, 0, "dx", x->dtype, x);
}

/* ---- losses ---- */

/* x [N, C, ..] or [C], target [N, ..] or []. Gives the dims of one element for each target. */
static hr_status check_classes(const checked *c, const hr_view *x, const hr_view *target, const hr_view *weight,
                               int *out_rank, int64_t *dims) {
  HR_RETURN_IF_ERROR(hr__want_rank(c, "x", x, 1, HR_RANK_MAX));
  HR_RETURN_IF_ERROR(hr__want_integer(c, "the target", target));
  int at = 0, class_dim = x->rank == 1 ? 0 : 1;
  for (int d = 0; d < x->rank; ++d) {
    if (d != class_dim) {
      dims[at++] = x->dims[d];
    }
  }
  if (x->rank == 1) {
    HR_RETURN_IF_ERROR(hr__want_one(c, "the target", target));
    HR_RETURN_IF_ERROR(hr__want_rank(c, "the target", target, 0, 1));
  } else {
    HR_RETURN_IF_ERROR(hr__want_dims(c, "the target", target, at, dims));
  }
  if (x->dims[class_dim] == 0 && hr__view_count(target) > 0) {
    return FAIL(c, "no classes for %lld targets", (long long)hr__view_count(target));
  }
  *out_rank = at;
  return hr__want_vector(c, "the weight", weight, x->dims[class_dim]);
}

hr_status hr__infer_nll_loss(const checked *c) {
  const hr_view *x = hr__checked_input(c, 0);
  int64_t dims[HR_RANK_MAX];
  int rank;
  HR_RETURN_IF_ERROR(hr__give_one(c, 1, "the total weight", x->dtype));
  HR_RETURN_IF_ERROR(check_classes(c, x, hr__checked_input(c, 1), hr__checked_input(c, 2), &rank, dims));
  return c->ints[0] == 0 && x->rank > 1 ? hr__give(c, 0, "the loss", x->dtype, rank, dims)
                                        : hr__give_one(c, 0, "the loss", x->dtype);
}

hr_status hr__infer_nll_loss_backward(const checked *c) {
  const hr_view *dx = hr__given_output(c, 0), *loss = hr__checked_input(c, 0);
  int64_t dims[HR_RANK_MAX];
  int rank;
  if (dx == NULL) {
    return hr__refuse_choice(c, 0);
  }
  HR_RETURN_IF_ERROR(hr__want_one(c, "the total weight", hr__checked_input(c, 3)));
  HR_RETURN_IF_ERROR(check_classes(c, dx, hr__checked_input(c, 1), hr__checked_input(c, 2), &rank, dims));
  hr__keep(c, 0, hr__dtype_of(loss), dx);
  return c->ints[0] == 0 && dx->rank > 1 ? hr__want_dims(c, "the loss", loss, rank, dims)
                                         : hr__want_one(c, "the loss", loss);
}

hr_status hr__infer_loss(const checked *c) {
  const hr_view *x = hr__checked_input(c, 0);
  HR_RETURN_IF_ERROR(hr__want_spread(c, "the target", hr__checked_input(c, 1), x->rank, x->dims));
  HR_RETURN_IF_ERROR(hr__want_spread(c, "the weight", hr__checked_input(c, 2), x->rank, x->dims));
  return c->ints[0] == 0 ? hr__give_like(c, 0, "the loss", x->dtype, x) : hr__give_one(c, 0, "the loss", x->dtype);
}

hr_status hr__infer_loss_backward(const checked *c) {
  const hr_view *x = hr__checked_input(c, 1);
  HR_RETURN_IF_ERROR(hr__give_like(c, 0, "dx", x->dtype, x));
  for (int i = 0; i < c->input_count; ++i) {
    HR_RETURN_IF_ERROR(hr__want_spread(c, i == 0 ? "dloss" : "an input", hr__checked_input(c, i), x->rank, x->dims));
  }
  return HR_OK;
}

/* ---- random numbers ---- */

hr_status hr__infer_dropout(const checked *c) {
  const hr_view *x = hr__checked_input(c, 0);
  HR_RETURN_IF_ERROR(hr__give_like(c, 0, "the output", x->dtype, x));
  return hr__give_like(c, 1, "the mask", HR_DTYPE_BOOL, x);
}

hr_status hr__infer_fill(const checked *c) {
  const hr_view *y = hr__given_output(c, 0), *first = hr__checked_input(c, 0);
  hr_dtype dtype = first != NULL ? hr__dtype_floating(hr__dtype_of(first)) : HR_DTYPE_F32;
  dtype = c->op == HR_OP_RANDOM_INT ? HR_DTYPE_I64 : dtype;
  if (y == NULL) {
    int64_t dims[HR_RANK_MAX];
    int rank;
    HR_RETURN_IF_ERROR(hr__broadcast_inputs(c, 0, 1, &rank, dims));
    return hr__give(c, 0, "the output", dtype, rank, dims);
  }
  for (int i = 0; i < c->input_count; ++i) {
    HR_RETURN_IF_ERROR(hr__want_spread(c, "a parameter", hr__checked_input(c, i), y->rank, y->dims));
  }
  hr__keep(c, 0, dtype, y);
  return HR_OK;
}

/* ---- attention ---- */

/* Checks q [.., L, E], k [.., S, E], v [.., S, V] and the mask over [.., L, S]. Returns the dims of y [.., L, V]; the
 * first of them are those of the log-sum-exp [.., L]. */
static hr_status check_heads(const checked *c, const hr_view *q, const hr_view *k, const hr_view *v,
                             const hr_view *mask, int64_t *dims) {
  HR_RETURN_IF_ERROR(hr__want_rank(c, "q", q, 2, HR_RANK_MAX));
  int rank = q->rank;
  HR_RETURN_IF_ERROR(hr__want_rank(c, "k", k, rank, rank));
  HR_RETURN_IF_ERROR(hr__want_rank(c, "v", v, rank, rank));
  memcpy(dims, q->dims, (size_t)rank * sizeof *dims);
  dims[rank - 2] = k->dims[rank - 2];
  HR_RETURN_IF_ERROR(hr__want_dims(c, "k", k, rank, dims));
  dims[rank - 1] = v->dims[rank - 1];
  HR_RETURN_IF_ERROR(hr__want_dims(c, "v", v, rank, dims));
  dims[rank - 2] = q->dims[rank - 2], dims[rank - 1] = k->dims[rank - 2];
  HR_RETURN_IF_ERROR(hr__want_spread(c, "the mask", mask, rank, dims));
  dims[rank - 1] = v->dims[rank - 1];
  bool is_right = c->scalar_count == 1 || c->scalar_count == 2 || c->scalar_count == 4;
  return is_right ? HR_OK : FAIL(c, "%d scalars, expected 1, 2 or 4", c->scalar_count);
}

hr_status hr__infer_attention(const checked *c) {
  const hr_view *q = hr__checked_input(c, 0);
  int64_t dims[HR_RANK_MAX];
  HR_RETURN_IF_ERROR(
      check_heads(c, q, hr__checked_input(c, 1), hr__checked_input(c, 2), hr__checked_input(c, 3), dims));
  HR_RETURN_IF_ERROR(hr__give(c, 0, "y", q->dtype, q->rank, dims));
  return hr__give(c, 1, "the log-sum-exp", hr__dtype_statistics(q->dtype), q->rank - 1, dims);
}

hr_status hr__infer_attention_backward(const checked *c) {
  const hr_view *q = hr__checked_input(c, 1), *k = hr__checked_input(c, 2), *v = hr__checked_input(c, 3);
  const hr_view *mask = hr__checked_input(c, 4);
  int64_t dims[HR_RANK_MAX];
  HR_RETURN_IF_ERROR(check_heads(c, q, k, v, mask, dims));
  HR_RETURN_IF_ERROR(hr__want_dims(c, "dy", hr__checked_input(c, 0), q->rank, dims));
  HR_RETURN_IF_ERROR(hr__want_dims(c, "y", hr__checked_input(c, 5), q->rank, dims));
  HR_RETURN_IF_ERROR(hr__want_dims(c, "the log-sum-exp", hr__checked_input(c, 6), q->rank - 1, dims));
  HR_RETURN_IF_ERROR(hr__give_like(c, 0, "dq", q->dtype, q));
  HR_RETURN_IF_ERROR(hr__give_like(c, 1, "dk", k->dtype, k));
  HR_RETURN_IF_ERROR(hr__give_like(c, 2, "dv", v->dtype, v));
  if (mask == NULL) {
    return hr__give_none(c, 3, "dmask without a mask");
  }
  if (c->types != NULL) { /* in a check: dims of the mask, or those to which it is broadcast */
    hr__set_type(c, 3, mask->dtype, mask->rank, mask->dims);
  }
  return HR_OK;
}

/* ---- optimizers ---- */

/* The outputs are lists of n, first the parameters; the inputs begin with n gradients. */
static hr_status infer_states(const checked *c, int k, int n, int lists) {
  const hr_view *gradient = hr__checked_input(c, k);
  if (gradient == NULL) {
    return FAIL(c, "gradient %d is absent", k);
  }
  for (int list = 0; list < lists; ++list) {
    if (hr__checked_output(c, list * n + k) == NULL) {
      return FAIL(c, "output %d is absent", list * n + k);
    }
    HR_RETURN_IF_ERROR(
        hr__give_like(c, list * n + k, list == 0 ? "a parameter" : "a state", gradient->dtype, gradient));
  }
  return HR_OK;
}

/* The outputs are lists of n, first the parameters; the inputs begin with n gradients. All have the gradients' dims. */
static hr_status infer_parameters(const checked *c, int lists, int input_lists) {
  int n = c->output_count / lists;
  if (n * lists != c->output_count || c->input_count < n * input_lists || c->input_count > n * input_lists + 3) {
    return FAIL(c, "%d inputs and %d outputs: expected %d lists of outputs and %d of inputs, and up to 3 more",
                c->input_count, c->output_count, lists, input_lists);
  }
  for (int k = 0; k < n; ++k) {
    HR_RETURN_IF_ERROR(infer_states(c, k, n, lists));
    if (input_lists > 1 && hr__checked_input(c, n + k) == NULL) {
      return FAIL(c, "step %d is absent", k);
    }
    HR_RETURN_IF_ERROR(hr__want_one(c, "a step", input_lists > 1 ? hr__checked_input(c, n + k) : NULL));
  }
  for (int i = n * input_lists; i < c->input_count; ++i) {
    HR_RETURN_IF_ERROR(hr__want_one(c, "a number", hr__checked_input(c, i)));
  }
  return HR_OK;
}

hr_status hr__infer_adam(const checked *c) {
  return infer_parameters(c, c->ints[2] != 0 ? 4 : 3, 2);
}

hr_status hr__infer_sgd(const checked *c) {
  return infer_parameters(c, c->ints[3] != 0 ? 2 : 1, 1);
}
