/* check_layers.c: shapes of contractions, reductions and normalisations, losses, random numbers, cells, attention and
 * optimizers (check_shape.h). */
#include <string.h>

#include "core/ops/check_shape.h"

typedef hr__checked checked;

/* ---- contractions ---- */

static hr_status check_matmul(const checked *c) {
  const hr_view *a = hr__checked_input(c, 0), *b = hr__checked_input(c, 1), *out = hr__checked_output(c, 0);
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
  HR_RETURN_IF_ERROR(hr__want_dims(c, "the output", out, rank, dims));
  return hr__want_spread(c, "the bias", hr__checked_input(c, 2), rank, dims);
}

/* From 1 to what 32 bits hold. */
static inline bool is_positive(int64_t value) {
  return (uint64_t)value - 1 < INT32_MAX;
}

/* x [N, C, ..], w [O, C/g, ..], y [N, O, ..] */
static hr_status check_conv_shapes(const checked *c, const hr_view *x, const hr_view *w, const hr_view *y) {
  int64_t n = c->ints[0];
  if (n < 1 || n > 3 || c->int_count != 3 * n + 2) {
    return FAIL(c, "%lld spatial dims and %d ints: expected 1 to 3, and 3 for each and two more", (long long)n,
                c->int_count);
  }
  const int64_t *stride = c->ints + 1, *padding = stride + n, *dilation = padding + n;
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
    if (!is_positive(stride[i]) || !is_positive(dilation[i]) || (uint64_t)padding[i] > INT32_MAX) {
      HR_RETURN_IF_ERROR(hr__want_small(c, c->int_count, c->ints));
      return FAIL(c, "stride %lld, padding %lld, dilation %lld", (long long)stride[i], (long long)padding[i],
                  (long long)dilation[i]);
    }
    int64_t room = x->dims[2 + i] + 2 * padding[i] - dilation[i] * (w->dims[2 + i] - 1) - 1;
    int64_t expected = room < 0 ? 0 : stride[i] == 1 ? room + 1 : room / stride[i] + 1; /* a division takes long */
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
  HR_RETURN_IF_ERROR(check_conv_shapes(c, hr__checked_input(c, 0), hr__checked_input(c, 1), hr__checked_output(c, 0)));
  return hr__want_vector(c, "the bias", hr__checked_input(c, 2), hr__checked_output(c, 0)->dims[1]);
}

static hr_status check_conv_backward_data(const checked *c) {
  HR_RETURN_IF_ERROR(check_conv_shapes(c, hr__checked_output(c, 0), hr__checked_input(c, 1), hr__checked_input(c, 0)));
  return hr__want_vector(c, "the bias", hr__checked_input(c, 2), hr__checked_output(c, 0)->dims[1]);
}

static hr_status check_conv_backward_weight(const checked *c) {
  return check_conv_shapes(c, hr__checked_input(c, 0), hr__checked_output(c, 0), hr__checked_input(c, 1));
}

/* ---- reductions and normalisations ---- */

static hr_status check_reduction(const checked *c) {
  for (int i = 0; i < c->output_count; ++i) {
    if (hr__checked_output(c, i) != NULL) {
      HR_RETURN_IF_ERROR(hr__check_reduced(c, hr__checked_input(c, 0), hr__checked_output(c, i), c->ints[0]));
    }
  }
  return HR_OK;
}

/* The largest magnitude of nothing is not a number that one could give. */
static hr_status check_norm(const checked *c) {
  HR_RETURN_IF_ERROR(check_reduction(c));
  bool has_identity = c->int_count < 2 || (c->ints[1] != 4 && c->ints[1] != 5);
  if (!has_identity && hr__view_count(hr__checked_input(c, 0)) == 0 && hr__view_count(hr__checked_output(c, 0)) != 0) {
    return FAIL(c, "no elements in the reduced dims, and an infinite order");
  }
  return HR_OK;
}

static hr_status check_along_dim(const checked *c) {
  const hr_view *out = hr__checked_output(c, 0);
  for (int i = 0; i < c->input_count; ++i) {
    HR_RETURN_IF_ERROR(hr__want_like(c, "an input", hr__checked_input(c, i), out));
  }
  return hr__want_dim(c, c->ints[0], out);
}

static hr_status check_trailing(const checked *c, const hr_view *x, const hr_view *mean, const hr_view *rstd) {
  int64_t n = c->ints[0], dims[HR_RANK_MAX];
  if (n < 0 || n > x->rank) {
    return FAIL(c, "%lld trailing dims of %d", (long long)n, x->rank);
  }
  for (int d = 0; d < x->rank; ++d) {
    dims[d] = d < x->rank - n ? x->dims[d] : 1;
  }
  HR_RETURN_IF_ERROR(hr__want_dims(c, "the mean", mean, x->rank, dims));
  return hr__want_dims(c, "rstd", rstd, x->rank, dims);
}

static hr_status check_layer_norm(const checked *c) {
  const hr_view *x = hr__checked_input(c, 0);
  HR_RETURN_IF_ERROR(hr__want_like(c, "y", hr__checked_output(c, 0), x));
  HR_RETURN_IF_ERROR(check_trailing(c, x, hr__checked_output(c, 1), hr__checked_output(c, 2)));
  int n = (int)c->ints[0];
  HR_RETURN_IF_ERROR(hr__want_dims(c, "the weight", hr__checked_input(c, 1), n, x->dims + x->rank - n));
  return hr__want_dims(c, "the bias", hr__checked_input(c, 2), n, x->dims + x->rank - n);
}

static hr_status check_layer_norm_backward(const checked *c) {
  const hr_view *x = hr__checked_input(c, 1);
  HR_RETURN_IF_ERROR(hr__want_like(c, "dy", hr__checked_input(c, 0), x));
  HR_RETURN_IF_ERROR(hr__want_like(c, "dx", hr__checked_output(c, 0), x));
  HR_RETURN_IF_ERROR(check_trailing(c, x, hr__checked_input(c, 2), hr__checked_input(c, 3)));
  int n = (int)c->ints[0];
  const int64_t *dims = x->dims + x->rank - n;
  HR_RETURN_IF_ERROR(hr__want_dims(c, "the weight", hr__checked_input(c, 4), n, dims));
  HR_RETURN_IF_ERROR(hr__want_dims(c, "dweight", hr__checked_output(c, 1), n, dims));
  return hr__want_dims(c, "dbias", hr__checked_output(c, 2), n, dims);
}

/* Whether x is [N, C, ..] with C in whole groups; the statistics are [N, G]. */
static hr_status check_groups(const checked *c, const hr_view *x, const hr_view *mean, const hr_view *rstd) {
  int64_t groups = c->ints[0];
  HR_RETURN_IF_ERROR(hr__want_rank(c, "x", x, 2, HR_RANK_MAX));
  if (groups < 1 || x->dims[1] % groups != 0) {
    return FAIL(c, "%lld channels don't divide into %lld groups", (long long)x->dims[1], (long long)groups);
  }
  int64_t dims[2] = {x->dims[0], groups};
  HR_RETURN_IF_ERROR(hr__want_dims(c, "the mean", mean, 2, dims));
  return hr__want_dims(c, "rstd", rstd, 2, dims);
}

static hr_status check_group_norm(const checked *c) {
  const hr_view *x = hr__checked_input(c, 0);
  HR_RETURN_IF_ERROR(check_groups(c, x, hr__checked_output(c, 1), hr__checked_output(c, 2)));
  HR_RETURN_IF_ERROR(hr__want_like(c, "y", hr__checked_output(c, 0), x));
  HR_RETURN_IF_ERROR(hr__want_vector(c, "the weight", hr__checked_input(c, 1), x->dims[1]));
  return hr__want_vector(c, "the bias", hr__checked_input(c, 2), x->dims[1]);
}

static hr_status check_group_norm_backward(const checked *c) {
  const hr_view *x = hr__checked_input(c, 1);
  HR_RETURN_IF_ERROR(check_groups(c, x, hr__checked_input(c, 2), hr__checked_input(c, 3)));
  HR_RETURN_IF_ERROR(hr__want_like(c, "dy", hr__checked_input(c, 0), x));
  HR_RETURN_IF_ERROR(hr__want_like(c, "dx", hr__checked_output(c, 0), x));
  HR_RETURN_IF_ERROR(hr__want_vector(c, "the weight", hr__checked_input(c, 4), x->dims[1]));
  HR_RETURN_IF_ERROR(hr__want_vector(c, "dweight", hr__checked_output(c, 1), x->dims[1]));
  return hr__want_vector(c, "dbias", hr__checked_output(c, 2), x->dims[1]);
}

/* Vectors of x's channels: inputs and outputs from the given numbers on. */
static hr_status check_channels(const checked *c, const hr_view *x, int first_input, int first_output) {
  HR_RETURN_IF_ERROR(hr__want_rank(c, "x", x, 2, HR_RANK_MAX));
  for (int i = first_input; i < c->input_count; ++i) {
    HR_RETURN_IF_ERROR(hr__want_vector(c, "a parameter or statistic", hr__checked_input(c, i), x->dims[1]));
  }
  for (int i = first_output; i < c->output_count; ++i) {
    HR_RETURN_IF_ERROR(hr__want_vector(c, "an output for each channel", hr__checked_output(c, i), x->dims[1]));
  }
  return HR_OK;
}

static hr_status check_batch_norm(const checked *c) {
  const hr_view *x = hr__checked_input(c, 0);
  HR_RETURN_IF_ERROR(check_channels(c, x, 1, 1));
  if (c->ints[0] == 0 && (hr__checked_input(c, 3) == NULL || hr__checked_input(c, 4) == NULL)) {
    return FAIL(c, "running statistics are needed outside training");
  }
  return hr__want_like(c, "y", hr__checked_output(c, 0), x);
}

static hr_status check_batch_norm_backward(const checked *c) {
  const hr_view *x = hr__checked_input(c, 1);
  HR_RETURN_IF_ERROR(check_channels(c, x, 2, 1));
  HR_RETURN_IF_ERROR(hr__want_like(c, "dy", hr__checked_input(c, 0), x));
  return hr__want_like(c, "dx", hr__checked_output(c, 0), x);
}

/* ---- losses ---- */

/* x [N, C, ..] or [C], target [N, ..] or []; gives one element for each target, or one in all. */
static hr_status check_classes(const checked *c, const hr_view *x, const hr_view *target, const hr_view *weight,
                               const hr_view *loss) {
  int64_t dims[HR_RANK_MAX];
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
  HR_RETURN_IF_ERROR(hr__want_vector(c, "the weight", weight, x->dims[class_dim]));
  return c->ints[0] == 0 && x->rank > 1 ? hr__want_dims(c, "the loss", loss, at, dims)
                                        : hr__want_one(c, "the loss", loss);
}

static hr_status check_nll_loss(const checked *c) {
  HR_RETURN_IF_ERROR(hr__want_one(c, "the total weight", hr__checked_output(c, 1)));
  return check_classes(c, hr__checked_input(c, 0), hr__checked_input(c, 1), hr__checked_input(c, 2),
                       hr__checked_output(c, 0));
}

static hr_status check_nll_loss_backward(const checked *c) {
  HR_RETURN_IF_ERROR(hr__want_one(c, "the total weight", hr__checked_input(c, 3)));
  return check_classes(c, hr__checked_output(c, 0), hr__checked_input(c, 1), hr__checked_input(c, 2),
                       hr__checked_input(c, 0));
}

static hr_status check_loss(const checked *c) {
  const hr_view *x = hr__checked_input(c, 0), *loss = hr__checked_output(c, 0);
  HR_RETURN_IF_ERROR(hr__want_spread(c, "the target", hr__checked_input(c, 1), x->rank, x->dims));
  HR_RETURN_IF_ERROR(hr__want_spread(c, "the weight", hr__checked_input(c, 2), x->rank, x->dims));
  return c->ints[0] == 0 ? hr__want_like(c, "the loss", loss, x) : hr__want_one(c, "the loss", loss);
}

static hr_status check_loss_backward(const checked *c) {
  const hr_view *dx = hr__checked_output(c, 0);
  HR_RETURN_IF_ERROR(hr__want_like(c, "x", hr__checked_input(c, 1), dx));
  for (int i = 0; i < c->input_count; ++i) {
    HR_RETURN_IF_ERROR(hr__want_spread(c, i == 0 ? "dloss" : "an input", hr__checked_input(c, i), dx->rank, dx->dims));
  }
  return HR_OK;
}

/* ---- random numbers ---- */

static hr_status check_dropout(const checked *c) {
  HR_RETURN_IF_ERROR(hr__want_like(c, "the output", hr__checked_output(c, 0), hr__checked_input(c, 0)));
  return hr__want_like(c, "the mask", hr__checked_output(c, 1), hr__checked_input(c, 0));
}

static hr_status check_fill(const checked *c) {
  const hr_view *y = hr__checked_output(c, 0);
  for (int i = 0; i < c->input_count; ++i) {
    HR_RETURN_IF_ERROR(hr__want_spread(c, "a parameter", hr__checked_input(c, i), y->rank, y->dims));
  }
  return HR_OK;
}

/* ---- cells ---- */

/* `view` is [N, count * H] for like = [N, H]. */
static hr_status want_gates(const checked *c, const char *what, const hr_view *view, const hr_view *like,
                            int64_t count) {
  int64_t dims[2] = {like->dims[0], count * like->dims[1]};
  return hr__want_dims(c, what, view, 2, dims);
}

static hr_status check_lstm_cell(const checked *c) {
  const hr_view *before = hr__checked_input(c, 2);
  HR_RETURN_IF_ERROR(hr__want_rank(c, "c", before, 2, 2));
  HR_RETURN_IF_ERROR(want_gates(c, "the input gates", hr__checked_input(c, 0), before, 4));
  HR_RETURN_IF_ERROR(want_gates(c, "the hidden gates", hr__checked_input(c, 1), before, 4));
  HR_RETURN_IF_ERROR(hr__want_vector(c, "the input bias", hr__checked_input(c, 3), 4 * before->dims[1]));
  HR_RETURN_IF_ERROR(hr__want_vector(c, "the hidden bias", hr__checked_input(c, 4), 4 * before->dims[1]));
  HR_RETURN_IF_ERROR(hr__want_like(c, "h", hr__checked_output(c, 0), before));
  HR_RETURN_IF_ERROR(hr__want_like(c, "the new c", hr__checked_output(c, 1), before));
  return want_gates(c, "the workspace", hr__checked_output(c, 2), before, 4);
}

static hr_status check_lstm_cell_backward(const checked *c) {
  const hr_view *before = hr__checked_input(c, 2);
  HR_RETURN_IF_ERROR(hr__want_rank(c, "c", before, 2, 2));
  HR_RETURN_IF_ERROR(hr__want_like(c, "dh", hr__checked_input(c, 0), before));
  HR_RETURN_IF_ERROR(hr__want_like(c, "dc", hr__checked_input(c, 1), before));
  HR_RETURN_IF_ERROR(hr__want_like(c, "the new c", hr__checked_input(c, 3), before));
  HR_RETURN_IF_ERROR(want_gates(c, "the workspace", hr__checked_input(c, 4), before, 4));
  HR_RETURN_IF_ERROR(want_gates(c, "dgates", hr__checked_output(c, 0), before, 4));
  return hr__want_like(c, "the gradient of c", hr__checked_output(c, 1), before);
}

static hr_status check_gru_cell(const checked *c) {
  const hr_view *before = hr__checked_input(c, 2);
  HR_RETURN_IF_ERROR(hr__want_rank(c, "h", before, 2, 2));
  HR_RETURN_IF_ERROR(want_gates(c, "the input gates", hr__checked_input(c, 0), before, 3));
  HR_RETURN_IF_ERROR(want_gates(c, "the hidden gates", hr__checked_input(c, 1), before, 3));
  HR_RETURN_IF_ERROR(hr__want_vector(c, "the input bias", hr__checked_input(c, 3), 3 * before->dims[1]));
  HR_RETURN_IF_ERROR(hr__want_vector(c, "the hidden bias", hr__checked_input(c, 4), 3 * before->dims[1]));
  HR_RETURN_IF_ERROR(hr__want_like(c, "the new h", hr__checked_output(c, 0), before));
  return want_gates(c, "the workspace", hr__checked_output(c, 1), before, 5);
}

static hr_status check_gru_cell_backward(const checked *c) {
  const hr_view *dh = hr__checked_input(c, 0);
  HR_RETURN_IF_ERROR(hr__want_rank(c, "dh", dh, 2, 2));
  HR_RETURN_IF_ERROR(want_gates(c, "the workspace", hr__checked_input(c, 1), dh, 5));
  HR_RETURN_IF_ERROR(want_gates(c, "the gradient of the input gates", hr__checked_output(c, 0), dh, 3));
  HR_RETURN_IF_ERROR(want_gates(c, "the gradient of the hidden gates", hr__checked_output(c, 1), dh, 3));
  return hr__want_like(c, "the gradient of h", hr__checked_output(c, 2), dh);
}

/* ---- attention ---- */

/* q [.., L, E], k [.., S, E], v [.., S, V], y [.., L, V], mask over [.., L, S], log-sum-exp [.., L] */
static hr_status check_heads(const checked *c, const hr_view *q, const hr_view *k, const hr_view *v, const hr_view *y,
                             const hr_view *mask, const hr_view *lse) {
  int64_t dims[HR_RANK_MAX];
  HR_RETURN_IF_ERROR(hr__want_rank(c, "q", q, 2, HR_RANK_MAX));
  int rank = q->rank;
  HR_RETURN_IF_ERROR(hr__want_rank(c, "k", k, rank, rank));
  HR_RETURN_IF_ERROR(hr__want_rank(c, "v", v, rank, rank));
  memcpy(dims, q->dims, (size_t)rank * sizeof *dims);
  dims[rank - 2] = k->dims[rank - 2];
  HR_RETURN_IF_ERROR(hr__want_dims(c, "k", k, rank, dims));
  dims[rank - 1] = v->dims[rank - 1];
  HR_RETURN_IF_ERROR(hr__want_dims(c, "v", v, rank, dims));
  dims[rank - 2] = q->dims[rank - 2];
  HR_RETURN_IF_ERROR(hr__want_dims(c, "y", y, rank, dims));
  HR_RETURN_IF_ERROR(hr__want_dims(c, "the log-sum-exp", lse, rank - 1, dims));
  dims[rank - 1] = k->dims[rank - 2];
  HR_RETURN_IF_ERROR(hr__want_spread(c, "the mask", mask, rank, dims));
  return c->scalar_count == 1 || c->scalar_count == 4 ? HR_OK : FAIL(c, "%d scalars, expected 1 or 4", c->scalar_count);
}

static hr_status check_attention(const checked *c) {
  return check_heads(c, hr__checked_input(c, 0), hr__checked_input(c, 1), hr__checked_input(c, 2),
                     hr__checked_output(c, 0), hr__checked_input(c, 3), hr__checked_output(c, 1));
}

static hr_status check_attention_backward(const checked *c) {
  const hr_view *q = hr__checked_input(c, 1), *k = hr__checked_input(c, 2), *v = hr__checked_input(c, 3);
  HR_RETURN_IF_ERROR(
      check_heads(c, q, k, v, hr__checked_input(c, 0), hr__checked_input(c, 4), hr__checked_input(c, 6)));
  HR_RETURN_IF_ERROR(hr__want_like(c, "y", hr__checked_input(c, 5), hr__checked_input(c, 0)));
  HR_RETURN_IF_ERROR(hr__want_like(c, "dq", hr__checked_output(c, 0), q));
  HR_RETURN_IF_ERROR(hr__want_like(c, "dk", hr__checked_output(c, 1), k));
  HR_RETURN_IF_ERROR(hr__want_like(c, "dv", hr__checked_output(c, 2), v));
  return hr__checked_output(c, 3) == NULL || hr__checked_input(c, 4) != NULL ? HR_OK : FAIL(c, "dmask without a mask");
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
      if (hr__checked_output(c, list * n + k) == NULL) {
        return FAIL(c, "output %d is absent", list * n + k);
      }
      HR_RETURN_IF_ERROR(hr__want_like(c, "a state", hr__checked_output(c, list * n + k), &c->outputs[k]));
    }
    if (hr__checked_input(c, k) == NULL) {
      return FAIL(c, "gradient %d is absent", k);
    }
    HR_RETURN_IF_ERROR(hr__want_like(c, "a gradient", hr__checked_input(c, k), &c->outputs[k]));
    if (input_lists > 1) {
      if (hr__checked_input(c, n + k) == NULL) {
        return FAIL(c, "step %d is absent", k);
      }
      HR_RETURN_IF_ERROR(hr__want_one(c, "a step", hr__checked_input(c, n + k)));
    }
  }
  for (int i = n * input_lists; i < c->input_count; ++i) {
    HR_RETURN_IF_ERROR(hr__want_one(c, "a number", hr__checked_input(c, i)));
  }
  return HR_OK;
}

static hr_status check_adam(const checked *c) {
  return check_parameters(c, c->ints[2] != 0 ? 4 : 3, 2);
}

static hr_status check_sgd(const checked *c) {
  return check_parameters(c, c->ints[3] != 0 ? 2 : 1, 1);
}

/* ---- the table ---- */

const hr__shape_row hr__layer_shapes[HR_OP_COUNT] = {
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
    [HR_OP_ADAM] = {HR__SHAPE_ANY, 0, HR__SHAPE_ANY, 0, 3, 5, check_adam},
    [HR_OP_SGD] = {HR__SHAPE_ANY, 0, HR__SHAPE_ANY, 0, 4, 4, check_sgd},
};
