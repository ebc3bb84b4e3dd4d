/* lower_contraction.c: matrix products and convolutions as loops, for devices and shapes that no provider supports.
 *
 * Each is one multiplication over [kept dims | summed dims] into a temporary, followed by its sum. The compiler always
 * fuses this pair, so the temporary never exists. Padding is a bound on the loads of both factors. The gradient of a
 * convolution's input is also a gather, of the output's gradient; for strides above 1 that has holes between its
 * elements, which a mask removes from the products: an infinite weight stands in none of them.
 */
#include "core/ops/lower.h"

/* out = sum of a * c over the last `summed` dims of the domain, of those in `kept` if it is present, + bias. out and
 * bias have 1 in those dims. */
static void emit_contraction(hr_builder *b, hr_operand out, hr_operand a, hr_operand c, hr_operand kept,
                             hr_operand bias, int rank, int summed) {
  hr_dtype dtype = hr__wide(out.dtype);
  uint32_t mask = hr__mask_range(rank - summed, summed);
  hr_operand product = hr_make2(b, HR_OP_MUL, dtype, a, c);
  if (hr_is_present(kept)) {
    product = hr_make3(b, HR_OP_WHERE, dtype, kept, product, hr_build_f64(b, 0));
  }
  if (hr_is_present(bias)) {
    hr_emit2(b, HR_OP_ADD, out, hr_make_reduce(b, HR_OP_SUM, dtype, product, mask), bias);
  } else {
    hr_emit_reduce(b, HR_OP_SUM, out, product, mask);
  }
}

/* [.., M, N, K] */
hr_status hr__lower_matmul(hr_builder *b, const hr_node *node) {
  hr_operand x = hr_node_input(node, 0), w = hr_node_input(node, 1), bias = hr_node_input(node, 2);
  hr_operand out = hr_node_output(node, 0);
  int order[HR_RANK_MAX];
  for (int d = 0; d < w.rank; ++d) {
    order[d] = d < w.rank - 2 ? d : 2 * w.rank - 3 - d;
  }
  if (hr_operand_count(out) == 0) {
    return HR_OK;
  }
  hr_operand left = hr_view_insert(b, x, x.rank - 1, 1);                             /* [.., M, 1, K] */
  hr_operand right = hr_view_insert(b, hr_view_permute(b, w, order), w.rank - 2, 1); /* [.., 1, N, K] */
  if (hr_is_present(bias)) {
    bias = hr__ones_after(b, hr_view_broadcast(b, bias, out.rank, out.dims), 1);
  }
  emit_contraction(b, hr__ones_after(b, out, 1), left, right, (hr_operand){0}, bias, out.rank + 1, 1);
  return HR_OK;
}

/* ---- convolutions ---- */

enum { SPATIAL_MAX = 3 };

typedef struct conv {
  int n; /* spatial dims */
  const int64_t *stride, *padding, *dilation;
  int64_t groups;
  int64_t batch, in_channels, out_channels; /* channels of a group */
  const int64_t *in, *kernel, *out;         /* spatial dims */
} conv;

static hr_status conv_of(const hr_node *node, hr_operand x, hr_operand w, hr_operand y, conv *c) {
  *c = (conv){.n = (int)node->ints[0]};
  if (c->n < 1 || c->n > SPATIAL_MAX) {
    return hr_status_make(HR_STATUS_UNIMPLEMENTED, "%s: %d spatial dims, at most %d", hr_op_table(node->op)->name, c->n,
                          SPATIAL_MAX);
  }
  c->stride = node->ints + 1, c->padding = c->stride + c->n, c->dilation = c->padding + c->n;
  c->groups = c->dilation[c->n];
  c->batch = x.dims[0], c->in_channels = w.dims[1], c->out_channels = w.dims[0] / c->groups;
  c->in = x.dims + 2, c->kernel = w.dims + 2, c->out = y.dims + 2;
  return HR_OK;
}

/* One operand over a domain that a lowering defines dim by dim; strides of 0 broadcast. */
typedef struct axes {
  int rank;
  int64_t dims[HR_RANK_MAX], strides[HR_RANK_MAX];
  int64_t offset;
} axes;

static void add_axis(axes *a, int64_t dim, int64_t stride) {
  a->dims[a->rank] = dim;
  a->strides[a->rank++] = stride;
}

static hr_operand view_axes(hr_builder *b, hr_operand x, const axes *a) {
  return hr_view_strided(b, x, a->rank, a->dims, a->strides, x.offset + a->offset);
}

/* Bounds position = offset + i * step[0] (dim at[0]) + k * step[1] (dim at[1]) to a spatial dim of `extent` elements,
 * in both factors: the product of padding and an infinite one would be NaN. */
static void bound_axis(hr_builder *b, hr_operand factors[2], int64_t offset, const int at[2], const int64_t step[2],
                       const int64_t count[2], int64_t extent) {
  int64_t low = offset, high = offset, strides[HR_RANK_MAX] = {0};
  for (int i = 0; i < 2; ++i) {
    int64_t last = (count[i] - 1) * step[i];
    low += last < 0 ? last : 0, high += last > 0 ? last : 0;
    strides[at[i]] = step[i];
  }
  int bounds = hr_dtype_is_integer(factors[0].dtype) ? 1 : 2; /* 0 times an integer is 0 */
  for (int i = 0; i < bounds && (low < 0 || high >= extent); ++i) {
    factors[i] = hr_view_bound(b, factors[i], offset, strides, extent);
  }
}

/* [C] with G groups over [.., G, C/G, ..] at dim 1 of `rank` dims. */
static hr_operand view_channel_bias(hr_builder *b, hr_operand bias, int64_t channels, int rank) {
  return hr_is_present(bias) ? hr__ones_after(b, hr_view_split(b, bias, 0, channels), rank - 3) : bias;
}

/* [N, G, O, out.. | C, kernel..] */
hr_status hr__lower_conv(hr_builder *b, const hr_node *node) {
  hr_operand x = hr_node_input(node, 0), w = hr_node_input(node, 1), bias = hr_node_input(node, 2);
  hr_operand y = hr_node_output(node, 0);
  conv c;
  HR_RETURN_IF_ERROR(conv_of(node, x, w, y, &c));
  if (hr_operand_count(y) == 0) {
    return HR_OK;
  }
  axes xs = {0}, ws = {0}, ys = {0};
  add_axis(&xs, c.batch, x.strides[0]), add_axis(&ws, 1, 0), add_axis(&ys, c.batch, y.strides[0]);
  add_axis(&xs, c.groups, x.strides[1] * c.in_channels), add_axis(&ws, c.groups, w.strides[0] * c.out_channels);
  add_axis(&ys, c.groups, y.strides[1] * c.out_channels);
  add_axis(&xs, 1, 0), add_axis(&ws, c.out_channels, w.strides[0]), add_axis(&ys, c.out_channels, y.strides[1]);
  for (int i = 0; i < c.n; ++i) {
    add_axis(&xs, c.out[i], x.strides[2 + i] * c.stride[i]), add_axis(&ws, c.out[i], 0),
        add_axis(&ys, c.out[i], y.strides[2 + i]);
    xs.offset -= x.strides[2 + i] * c.padding[i];
  }
  add_axis(&xs, c.in_channels, x.strides[1]), add_axis(&ws, c.in_channels, w.strides[1]), add_axis(&ys, 1, 0);
  for (int i = 0; i < c.n; ++i) {
    add_axis(&xs, c.kernel[i], x.strides[2 + i] * c.dilation[i]), add_axis(&ws, c.kernel[i], w.strides[2 + i]);
    add_axis(&ys, 1, 0);
  }
  hr_operand factors[2] = {view_axes(b, x, &xs), view_axes(b, w, &ws)};
  for (int i = 0; i < c.n; ++i) {
    bound_axis(b, factors, -c.padding[i], (int[]){3 + i, 4 + c.n + i}, (int64_t[]){c.stride[i], c.dilation[i]},
               (int64_t[]){c.out[i], c.kernel[i]}, c.in[i]);
  }
  emit_contraction(b, view_axes(b, y, &ys), factors[0], factors[1], (hr_operand){0},
                   view_channel_bias(b, bias, c.out_channels, ys.rank), ys.rank, 1 + c.n);
  return HR_OK;
}

/* x with stride - 1 zeros between its elements: the gradient of the same convolution with a stride of 1. */
static hr_operand spread(hr_builder *b, hr_operand x, const conv *c) {
  int64_t dims[HR_RANK_MAX];
  for (int d = 0; d < x.rank; ++d) {
    dims[d] = d < 2 ? x.dims[d] : (x.dims[d] - 1) * c->stride[d - 2] + 1;
  }
  hr_operand zeros = hr_build_temp(b, x.dtype, x.rank, dims), places = zeros;
  hr_emit1(b, HR_OP_COPY, zeros, hr_build_f64(b, 0));
  for (int i = 0; i < c->n; ++i) {
    places = hr_view_slice(b, places, 2 + i, 0, c->out[i], c->stride[i]);
  }
  hr_emit1(b, HR_OP_COPY, places, x);
  return zeros;
}

/* True if the gradient of the result has holes. */
static bool has_holes(const conv *c) {
  bool has = false;
  for (int i = 0; i < c->n; ++i) {
    has = has || (c->stride[i] != 1 && c->out[i] != 1);
  }
  return has;
}

/* True where the spread gradient has elements: of one example and one channel. */
static hr_operand mask_of(hr_builder *b, const conv *c) {
  int64_t dims[HR_RANK_MAX] = {1, 1};
  memcpy(dims + 2, c->out, (size_t)c->n * sizeof *dims);
  hr_operand ones = hr_build_temp(b, HR_DTYPE_BOOL, 2 + c->n, dims);
  hr_emit1(b, HR_OP_COPY, ones, hr_build_f64(b, 1));
  return spread(b, ones, c);
}

/* The mask over the domain of a gradient's axes: it has other strides in the spatial dims, and one channel. */
static hr_operand view_mask(hr_builder *b, hr_operand mask, const axes *gradient, const conv *c) {
  axes a = *gradient;
  memset(a.strides, 0, sizeof a.strides);
  a.offset = 0;
  for (int i = 0; i < c->n; ++i) {
    int64_t stride = mask.strides[2 + i];
    a.strides[3 + i] = stride, a.strides[4 + c->n + i] = -stride * c->dilation[i];
    a.offset += stride * c->padding[i];
  }
  return view_axes(b, mask, &a);
}

/* [N, G, C, in.. | O, kernel..]: dx[s] = sum of dy[s + padding - k * dilation] * w[k] */
hr_status hr__lower_conv_backward_data(hr_builder *b, const hr_node *node) {
  hr_operand dy = hr_node_input(node, 0), w = hr_node_input(node, 1), bias = hr_node_input(node, 2);
  hr_operand dx = hr_node_output(node, 0);
  conv c;
  HR_RETURN_IF_ERROR(conv_of(node, dx, w, dy, &c));
  if (hr_operand_count(dx) == 0) {
    return HR_OK;
  }
  if (hr_operand_count(dy) == 0) {
    hr_emit1(b, HR_OP_COPY, dx, hr_is_present(bias) ? hr__ones_after(b, bias, c.n) : hr_build_f64(b, 0));
    return HR_OK;
  }
  bool is_spread = has_holes(&c);
  hr_operand g = is_spread ? spread(b, dy, &c) : dy, mask = is_spread ? mask_of(b, &c) : (hr_operand){0};
  if (!hr_is_present(g) || (is_spread && !hr_is_present(mask))) {
    return HR_OK;
  }
  axes gs = {0}, ws = {0}, xs = {0};
  add_axis(&gs, c.batch, g.strides[0]), add_axis(&ws, 1, 0), add_axis(&xs, c.batch, dx.strides[0]);
  add_axis(&gs, c.groups, g.strides[1] * c.out_channels), add_axis(&ws, c.groups, w.strides[0] * c.out_channels);
  add_axis(&xs, c.groups, dx.strides[1] * c.in_channels);
  add_axis(&gs, 1, 0), add_axis(&ws, c.in_channels, w.strides[1]), add_axis(&xs, c.in_channels, dx.strides[1]);
  for (int i = 0; i < c.n; ++i) {
    add_axis(&gs, c.in[i], g.strides[2 + i]), add_axis(&ws, c.in[i], 0), add_axis(&xs, c.in[i], dx.strides[2 + i]);
    gs.offset += g.strides[2 + i] * c.padding[i];
  }
  add_axis(&gs, c.out_channels, g.strides[1]), add_axis(&ws, c.out_channels, w.strides[0]), add_axis(&xs, 1, 0);
  for (int i = 0; i < c.n; ++i) {
    add_axis(&gs, c.kernel[i], -g.strides[2 + i] * c.dilation[i]), add_axis(&ws, c.kernel[i], w.strides[2 + i]);
    add_axis(&xs, 1, 0);
  }
  hr_operand weights = view_axes(b, w, &ws);
  hr_operand factors[2] = {view_axes(b, g, &gs), is_spread ? view_mask(b, mask, &gs, &c) : weights};
  for (int i = 0; i < c.n; ++i) {
    bound_axis(b, factors, c.padding[i], (int[]){3 + i, 4 + c.n + i}, (int64_t[]){1, -c.dilation[i]},
               (int64_t[]){c.in[i], c.kernel[i]}, g.dims[2 + i]);
  }
  hr_operand kept = is_spread ? factors[1] : mask;
  emit_contraction(b, view_axes(b, dx, &xs), factors[0], is_spread ? weights : factors[1], kept,
                   view_channel_bias(b, bias, c.in_channels, xs.rank), xs.rank, 1 + c.n);
  return HR_OK;
}

/* [G, O, C, kernel.. | N, out..] */
hr_status hr__lower_conv_backward_weight(hr_builder *b, const hr_node *node) {
  hr_operand x = hr_node_input(node, 0), dy = hr_node_input(node, 1), dw = hr_node_output(node, 0), none = {0};
  conv c;
  HR_RETURN_IF_ERROR(conv_of(node, x, dw, dy, &c));
  if (hr_operand_count(dw) == 0) {
    return HR_OK;
  }
  axes xs = {0}, gs = {0}, ws = {0};
  add_axis(&xs, c.groups, x.strides[1] * c.in_channels), add_axis(&gs, c.groups, dy.strides[1] * c.out_channels);
  add_axis(&ws, c.groups, dw.strides[0] * c.out_channels);
  add_axis(&xs, 1, 0), add_axis(&gs, c.out_channels, dy.strides[1]), add_axis(&ws, c.out_channels, dw.strides[0]);
  add_axis(&xs, c.in_channels, x.strides[1]), add_axis(&gs, 1, 0), add_axis(&ws, c.in_channels, dw.strides[1]);
  for (int i = 0; i < c.n; ++i) {
    add_axis(&xs, c.kernel[i], x.strides[2 + i] * c.dilation[i]), add_axis(&gs, c.kernel[i], 0);
    add_axis(&ws, c.kernel[i], dw.strides[2 + i]);
    xs.offset -= x.strides[2 + i] * c.padding[i];
  }
  add_axis(&xs, c.batch, x.strides[0]), add_axis(&gs, c.batch, dy.strides[0]), add_axis(&ws, 1, 0);
  for (int i = 0; i < c.n; ++i) {
    add_axis(&xs, c.out[i], x.strides[2 + i] * c.stride[i]), add_axis(&gs, c.out[i], dy.strides[2 + i]);
    add_axis(&ws, 1, 0);
  }
  hr_operand factors[2] = {view_axes(b, x, &xs), view_axes(b, dy, &gs)};
  for (int i = 0; i < c.n; ++i) {
    bound_axis(b, factors, -c.padding[i], (int[]){3 + i, 4 + c.n + i}, (int64_t[]){c.dilation[i], c.stride[i]},
               (int64_t[]){c.kernel[i], c.out[i]}, c.in[i]);
  }
  emit_contraction(b, view_axes(b, dw, &ws), factors[0], factors[1], none, none, ws.rank, 1 + c.n);
  return HR_OK;
}
