/* convolve.c: convolutions of f64 and their gradients, as products of rows of pixels.
 *
 * A tap of the kernel meets a run of a row's pixels: those that have an element, so padding and the holes of a strided
 * gradient are left out. Each tap adds one product to the sums of a row or of a weight:
 *
 *   conv                  y[o, row]  += w[tap] x[c, row]       items: rows of y
 *   conv_backward_data    dx[c, row] += w[tap]^T dy[o, row]    items: rows of dx
 *   conv_backward_weight  dw[tap]    += dy[o, row] x[c, row]^T items: taps
 *
 * Rows are copied with channels last, so operands may have any strides. An item is summed by one worker in one order:
 * the number of threads does not change bits. Depthwise convolutions are left to the compiler.
 */
#include <limits.h>

#include "base/integer.h"
#include "core/ops/op.h"
#include "providers/lapack/lapack.h"

enum { PLANES = 3, RANK = PLANES + 2, DOUBLE = 1, CHANNELS_MIN = 16 };

/* Dims and strides of x, w and y, with planes of size 1 in front if there are fewer than three. Channels are those of a
 * group. */
typedef struct conv {
  int64_t batch, groups, in_channels, out_channels, taps;
  int64_t in[PLANES], kernel[PLANES], out[PLANES], stride[PLANES], padding[PLANES], dilation[PLANES];
  int64_t x[RANK], w[RANK], y[RANK];
} conv;

static void read_operand(const hr_operand *operand, int64_t *dims, int64_t *strides) {
  int planes = operand->rank - 2;
  for (int d = 0; d < RANK; ++d) {
    int from = d < 2 ? d : d - PLANES + planes;
    bool is_there = d < 2 || from >= 2;
    strides[d] = is_there ? operand->strides[from] : 0;
    if (d >= 2) {
      dims[d - 2] = is_there ? operand->dims[from] : 1;
    }
  }
}

static conv read_conv(const hr_node *node) {
  const hr_operand *out = &node->outputs[0], *first = &node->inputs[0], *second = &node->inputs[1];
  const hr_operand *x = node->op == HR_OP_CONV_BACKWARD_DATA ? out : first;
  const hr_operand *w = node->op == HR_OP_CONV_BACKWARD_WEIGHT ? out : second;
  const hr_operand *y = node->op == HR_OP_CONV ? out : node->op == HR_OP_CONV_BACKWARD_DATA ? first : second;
  int n = (int)node->ints[0];
  conv c = {.batch = x->dims[0], .groups = node->ints[3 * n + 1], .in_channels = w->dims[1], .taps = 1};
  c.out_channels = w->dims[0] / c.groups;
  read_operand(x, c.in, c.x), read_operand(w, c.kernel, c.w), read_operand(y, c.out, c.y);
  for (int d = 0; d < PLANES; ++d) {
    int from = d - PLANES + n;
    c.stride[d] = from >= 0 ? node->ints[1 + from] : 1;
    c.padding[d] = from >= 0 ? node->ints[1 + n + from] : 0;
    c.dilation[d] = from >= 0 ? node->ints[1 + 2 * n + from] : 1;
    c.taps *= c.kernel[d];
  }
  return c;
}

bool hr__lapack_conv_supports(const hr_node *node) {
  bool is = node->epilogue_count == 0 && node->ints[0] >= 1 && node->ints[0] <= PLANES;
  for (int i = 0; is && i < node->input_count + node->output_count; ++i) {
    const hr_operand *x = hr_node_operand(node, i);
    bool is_absent = i == 2 && i < node->input_count && x->kind == HR_OPERAND_NONE;
    is = is_absent || (x->kind == HR_OPERAND_VALUE && hr__lapack_kind(x->dtype) == DOUBLE);
    for (int d = 0; is && d < x->rank && !is_absent; ++d) {
      is = x->dims[d] > 0 && x->dims[d] < 1 << 24;
    }
  }
  if (!is) {
    return false;
  }
  conv c = read_conv(node);
  int64_t most = c.in_channels > c.out_channels ? c.in_channels : c.out_channels;
  return c.in_channels * c.out_channels >= CHANNELS_MIN && c.stride[PLANES - 1] <= INT_MAX / most; /* BLAS has ints */
}

size_t hr__lapack_conv_scratch(const hr_node *node, int workers) {
  (void)workers;
  conv c = read_conv(node);
  int64_t both = c.in_channels + c.out_channels, pixels = c.in[PLANES - 1] + c.out[PLANES - 1];
  return (size_t)hr_align_up((size_t)(c.in_channels * c.out_channels + pixels * both) * sizeof(double), 64);
}

/* ---- copies ---- */

/* Of a row's pixels, `step` apart: to[pixel][channel]. */
static void pack(const double *from, int64_t step, int64_t channel_step, int64_t pixels, int64_t channels, double *to) {
  for (int64_t i = 0; i < pixels; ++i) {
    for (int64_t c = 0; c < channels; ++c) {
      to[i * channels + c] = from[i * step + c * channel_step];
    }
  }
}

/* The other way round, + the bias of each channel. */
static void unpack(const double *from, const double *bias, int64_t bias_step, int64_t pixels, int64_t channels,
                   double *to, int64_t step, int64_t channel_step) {
  for (int64_t c = 0; c < channels; ++c) {
    double more = bias != NULL ? bias[c * bias_step] : 0;
    for (int64_t i = 0; i < pixels; ++i) {
      double sum = from[i * channels + c];
      to[i * step + c * channel_step] = bias != NULL ? sum + more : sum;
    }
  }
}

/* All weights as [group][tap][in][out], or [group][tap][out][in]. */
static void pack_weights(const conv *c, const double *w, bool out_first, double *to) {
  for (int64_t g = 0; g < c->groups; ++g) {
    for (int64_t tap = 0; tap < c->taps; ++tap) {
      int64_t k2 = tap % c->kernel[2], k1 = tap / c->kernel[2] % c->kernel[1], k0 = tap / c->kernel[2] / c->kernel[1];
      const double *from = w + g * c->out_channels * c->w[0] + k0 * c->w[2] + k1 * c->w[3] + k2 * c->w[4];
      int64_t outer = out_first ? c->out_channels : c->in_channels,
              inner = out_first ? c->in_channels : c->out_channels;
      pack(from, c->w[out_first ? 0 : 1], c->w[out_first ? 1 : 0], outer, inner, to);
      to += c->in_channels * c->out_channels;
    }
  }
}

/* ---- taps ---- */

/* The pixels [begin, end) of a row of y that have an element of x under a tap; the first one's is at `first`, others a
 * stride behind. */
typedef struct run {
  int64_t begin, end, first;
} run;

static run run_of(const conv *c, int64_t tap) {
  enum { LAST = PLANES - 1 };
  int64_t base = tap * c->dilation[LAST] - c->padding[LAST], stride = c->stride[LAST], left = c->in[LAST] - 1 - base;
  run r = {.begin = base < 0 ? hr_divide_up(-base, stride) : 0, .end = left < 0 ? 0 : left / stride + 1};
  r.end = r.end < c->out[LAST] ? r.end : c->out[LAST];
  r.first = r.begin * stride + base;
  return r;
}

/* The place in x of one in y, and the other way round; -1: there is none. */
static int64_t place_in(const conv *c, int d, int64_t out, int64_t tap) {
  int64_t place = out * c->stride[d] - c->padding[d] + tap * c->dilation[d];
  return place < c->in[d] ? place : -1;
}
static int64_t place_out(const conv *c, int d, int64_t in, int64_t tap) {
  int64_t place = in + c->padding[d] - tap * c->dilation[d];
  bool is_there = place >= 0 && place % c->stride[d] == 0 && place / c->stride[d] < c->out[d];
  return is_there ? place / c->stride[d] : -1;
}

/* sums += a b^T, or a b: matrices of BLAS, with columns of `rows` and of b's length behind each other. */
static void add_product(const char *b_form, int64_t rows, int64_t columns, int64_t inner, const double *a,
                        const double *b, double *sums, int64_t step) {
  int m = (int)rows, n = (int)columns, k = (int)inner, ldb = b_form[0] == 'N' ? k : n, ldc = (int)step;
  hr__lapack()->ALL_gemm[DOUBLE]("N", b_form, &m, &n, &k, hr__lapack_one(DOUBLE), a, &m, b, &ldb,
                                 hr__lapack_one(DOUBLE), sums, &ldc, 1, 1);
}

/* ---- rows of y and of dx ---- */

/* One item: a row of the result, of the planes' places p0 and p1. */
static void sum_row(const hr__library_call *call, const conv *c, int64_t n, int64_t g, int64_t p0, int64_t p1,
                    double *scratch) {
  bool is_forward = call->node->op == HR_OP_CONV;
  int64_t from_channels = is_forward ? c->in_channels : c->out_channels, pixels = is_forward ? c->out[2] : c->in[2];
  int64_t channels = is_forward ? c->out_channels : c->in_channels, each = c->in_channels * c->out_channels;
  const int64_t *strides = is_forward ? c->x : c->y, *to_strides = is_forward ? c->y : c->x;
  const double *from = (const double *)call->inputs[0].data + n * strides[0] + g * from_channels * strides[1];
  const double *weights = (const double *)call->plan + g * c->taps * each;
  double *sums = scratch, *row = scratch + pixels * channels;
  memset(sums, 0, (size_t)(pixels * channels) * sizeof *sums);
  for (int64_t tap = 0; tap < c->taps; ++tap, weights += each) {
    int64_t k1 = tap / c->kernel[2] % c->kernel[1], k0 = tap / c->kernel[2] / c->kernel[1];
    int64_t q0 = is_forward ? place_in(c, 0, p0, k0) : place_out(c, 0, p0, k0);
    int64_t q1 = is_forward ? place_in(c, 1, p1, k1) : place_out(c, 1, p1, k1);
    run r = run_of(c, tap % c->kernel[2]);
    if (q0 < 0 || q1 < 0 || r.begin >= r.end) {
      continue;
    }
    int64_t step = strides[4] * (is_forward ? c->stride[2] : 1), at = is_forward ? r.first : r.begin;
    int64_t to = is_forward ? r.begin : r.first, to_step = is_forward ? 1 : c->stride[2];
    pack(from + q0 * strides[2] + q1 * strides[3] + at * strides[4], step, strides[1], r.end - r.begin, from_channels,
         row);
    add_product("N", channels, r.end - r.begin, from_channels, weights, row, sums + to * channels, to_step * channels);
  }
  const hr_operand *bias = call->node->input_count > 2 ? &call->node->inputs[2] : NULL;
  bool has_bias = bias != NULL && bias->kind == HR_OPERAND_VALUE;
  double *out = (double *)call->outputs[0].data + n * to_strides[0] + g * channels * to_strides[1];
  int64_t bias_step = has_bias ? bias->strides[0] : 0;
  unpack(sums, has_bias ? (const double *)call->inputs[2].data + g * channels * bias_step : NULL, bias_step, pixels,
         channels, out + p0 * to_strides[2] + p1 * to_strides[3], to_strides[4], to_strides[1]);
}

static hr_status sum_rows(const hr__library_call *call, int64_t begin, int64_t end, void *scratch) {
  conv c = read_conv(call->node);
  const int64_t *planes = call->node->op == HR_OP_CONV ? c.out : c.in;
  for (int64_t item = begin; item < end; ++item) {
    int64_t p1 = item % planes[1], p0 = item / planes[1] % planes[0], image = item / planes[1] / planes[0];
    sum_row(call, &c, image / c.groups, image % c.groups, p0, p1, scratch);
  }
  return HR_OK;
}

/* ---- weights ---- */

/* Adds the products of one image under a tap. */
static void add_image(const conv *c, const double *x, const double *y, const int64_t tap[PLANES], double *sums,
                      double *rows) {
  run r = run_of(c, tap[2]);
  int64_t pixels = r.end - r.begin;
  double *left = rows, *right = rows + (pixels > 0 ? pixels : 0) * c->out_channels;
  for (int64_t p = 0; pixels > 0 && p < c->out[0] * c->out[1]; ++p) {
    int64_t o0 = p / c->out[1], o1 = p % c->out[1];
    int64_t q0 = place_in(c, 0, o0, tap[0]), q1 = place_in(c, 1, o1, tap[1]);
    if (q0 >= 0 && q1 >= 0) {
      pack(y + o0 * c->y[2] + o1 * c->y[3] + r.begin * c->y[4], c->y[4], c->y[1], pixels, c->out_channels, left);
      pack(x + q0 * c->x[2] + q1 * c->x[3] + r.first * c->x[4], c->x[4] * c->stride[2], c->x[1], pixels, c->in_channels,
           right);
      add_product("T", c->out_channels, c->in_channels, pixels, left, right, sums, c->out_channels);
    }
  }
}

static hr_status sum_weights(const hr__library_call *call, int64_t begin, int64_t end, void *scratch) {
  conv c = read_conv(call->node);
  double *sums = scratch, *rows = sums + c.in_channels * c.out_channels;
  for (int64_t item = begin; item < end; ++item) {
    int64_t g = item / c.taps, k = item % c.taps;
    const int64_t tap[PLANES] = {k / c.kernel[2] / c.kernel[1], k / c.kernel[2] % c.kernel[1], k % c.kernel[2]};
    const double *x = (const double *)call->inputs[0].data + g * c.in_channels * c.x[1];
    const double *y = (const double *)call->inputs[1].data + g * c.out_channels * c.y[1];
    double *w = (double *)call->outputs[0].data + g * c.out_channels * c.w[0];
    memset(sums, 0, (size_t)(c.in_channels * c.out_channels) * sizeof *sums);
    for (int64_t n = 0; n < c.batch; ++n) {
      add_image(&c, x + n * c.x[0], y + n * c.y[0], tap, sums, rows);
    }
    unpack(sums, NULL, 0, c.in_channels, c.out_channels, w + tap[0] * c.w[2] + tap[1] * c.w[3] + tap[2] * c.w[4],
           c.w[1], c.w[0]);
  }
  return HR_OK;
}

/* ---- the rows ---- */

hr_status hr__lapack_conv(const hr__library_call *call) {
  conv c = read_conv(call->node);
  bool is_weight = call->node->op == HR_OP_CONV_BACKWARD_WEIGHT;
  int64_t each = c.in_channels * c.out_channels, line = c.out[2] * each;
  if (is_weight) {
    return hr__library_spread(call, c.groups * c.taps, c.batch * c.out[0] * c.out[1] * line / 16 + 100, sum_weights);
  }
  const int64_t *planes = call->node->op == HR_OP_CONV ? c.out : c.in;
  hr__work work;
  HR_RETURN_IF_ERROR(hr__work_begin(&work, (size_t)(c.groups * c.taps * each) * sizeof(double)));
  double *weights = hr__work_take(&work, (size_t)(c.groups * c.taps * each) * sizeof(double));
  pack_weights(&c, call->inputs[1].data, call->node->op != HR_OP_CONV, weights);
  hr__library_call with_weights = *call;
  with_weights.plan = weights;
  hr_status status =
      hr__library_spread(&with_weights, c.batch * c.groups * planes[0] * planes[1], c.taps * line / 16 + 100, sum_rows);
  hr__work_end(&work);
  return status;
}
