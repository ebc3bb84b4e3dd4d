/* plain_loops.c: see plain_loops.h. */
#include "plain_loops.h"

#include <math.h>

/* A node; tensors[input_count] is the output. */
typedef struct call {
  hr_op op;
  const tensor *tensors;
  int input_count;
  const int64_t *ints;
} call;

static void add_term(expected *e, int64_t i, double term) {
  e->values[i] += term;
  e->sizes[i] += fabs(term);
}

/* The element of x, of batch dims that may be 1, at the batch of element `batch` (row-major) of out. */
static int64_t batch_at(const tensor *x, const tensor *out, int64_t batch) {
  int64_t at = x->offset;
  for (int d = out->rank - 3; d >= 0; --d) {
    int64_t i = batch % out->dims[d];
    batch /= out->dims[d];
    at += x->dims[d] != 1 ? i * x->strides[d] : 0;
  }
  return at;
}

/* bias, broadcast to out, at element number i. */
static double bias_at(const tensor *bias, const tensor *out, int64_t i) {
  int64_t at = bias->offset;
  for (int d = out->rank - 1, b = bias->rank - 1; b >= 0; --d, --b) {
    at += bias->dims[b] != 1 ? i % out->dims[d] * bias->strides[b] : 0;
    i /= out->dims[d];
  }
  return read_element(bias, at);
}

static void evaluate_matmul(const call *t, expected *e) {
  const tensor *a = &t->tensors[0], *b = &t->tensors[1], *bias = &t->tensors[2], *out = &t->tensors[t->input_count];
  int rank = out->rank;
  int64_t rows = out->dims[rank - 2], columns = out->dims[rank - 1], inner = a->dims[rank - 1];
  int64_t count = tensor_count(out);
  for (int64_t i = 0; i < count; ++i) {
    int64_t column = i % columns, row = i / columns % rows, batch = i / columns / rows;
    int64_t at_a = batch_at(a, out, batch) + row * a->strides[rank - 2];
    int64_t at_b = batch_at(b, out, batch) + column * b->strides[rank - 1];
    for (int64_t k = 0; k < inner; ++k) {
      add_term(e, i,
               read_element(a, at_a + k * a->strides[rank - 1]) * read_element(b, at_b + k * b->strides[rank - 2]));
    }
    if (t->input_count > 2 && bias->is_present) {
      add_term(e, i, bias_at(bias, out, i));
    }
  }
}

/* A pair in a convolution: elements of x, w and y, as row-major numbers. */
typedef void (*pair_fn)(const call *t, expected *e, int64_t x, int64_t w, int64_t y);

static void pair_forward(const call *t, expected *e, int64_t x, int64_t w, int64_t y) {
  const tensor *s = t->tensors;
  add_term(e, y, read_element(&s[0], tensor_at(&s[0], x)) * read_element(&s[1], tensor_at(&s[1], w)));
}
static void pair_data(const call *t, expected *e, int64_t x, int64_t w, int64_t y) {
  const tensor *s = t->tensors;
  add_term(e, x, read_element(&s[0], tensor_at(&s[0], y)) * read_element(&s[1], tensor_at(&s[1], w)));
}
static void pair_weight(const call *t, expected *e, int64_t x, int64_t w, int64_t y) {
  const tensor *s = t->tensors;
  add_term(e, w, read_element(&s[0], tensor_at(&s[0], x)) * read_element(&s[1], tensor_at(&s[1], y)));
}

/* All taps of one output position `at` of channel `o`, image `n`. */
static void evaluate_window(const call *t, expected *e, pair_fn pair, int64_t n, int64_t o, int64_t position) {
  conv_operands at = hr__conv_operands(t->op, t->input_count);
  const tensor *x = &t->tensors[at.x], *w = &t->tensors[at.w], *y = &t->tensors[at.y];
  int spatial = x->rank - 2;
  const int64_t *stride = t->ints + 1, *padding = stride + spatial, *dilation = padding + spatial;
  int64_t taps = 1, plane = 1, image = 1, group = o / (w->dims[0] / dilation[spatial]);
  for (int d = 2; d < x->rank; ++d) {
    taps *= w->dims[d], plane *= y->dims[d], image *= x->dims[d];
  }
  for (int64_t tap = 0; tap < taps; ++tap) {
    int64_t rest_tap = tap, rest = position, pixel = 0, scale = 1;
    bool is_inside = true;
    for (int d = spatial - 1; d >= 0; --d) {
      int64_t i = rest % y->dims[2 + d] * stride[d] - padding[d] + rest_tap % w->dims[2 + d] * dilation[d];
      rest /= y->dims[2 + d], rest_tap /= w->dims[2 + d];
      is_inside = is_inside && i >= 0 && i < x->dims[2 + d];
      pixel += i * scale;
      scale *= x->dims[2 + d];
    }
    for (int64_t c = 0; is_inside && c < w->dims[1]; ++c) {
      pair(t, e, (n * x->dims[1] + group * w->dims[1] + c) * image + pixel, (o * w->dims[1] + c) * taps + tap,
           (n * y->dims[1] + o) * plane + position);
    }
  }
}

static void evaluate_conv(const call *t, expected *e) {
  const tensor *y = &t->tensors[hr__conv_operands(t->op, t->input_count).y], *out = &t->tensors[t->input_count];
  pair_fn pair = t->op == HR_OP_CONV ? pair_forward : t->op == HR_OP_CONV_BACKWARD_DATA ? pair_data : pair_weight;
  int64_t plane = tensor_count(y) / y->dims[0] / y->dims[1];
  for (int64_t i = 0; i < tensor_count(y); ++i) {
    evaluate_window(t, e, pair, i / plane / y->dims[1], i / plane % y->dims[1], i % plane);
  }
  if (t->input_count > 2 && t->tensors[2].is_present) {
    int64_t pixels = tensor_count(out) / out->dims[0] / out->dims[1];
    for (int64_t i = 0; i < tensor_count(out); ++i) {
      add_term(e, i, read_element(&t->tensors[2], tensor_at(&t->tensors[2], i / pixels % out->dims[1])));
    }
  }
}

void hr__plain_loops(hr_op op, const tensor *tensors, int input_count, const int64_t *ints, expected *e) {
  const call t = {op, tensors, input_count, ints};
  (op == HR_OP_MATMUL ? evaluate_matmul : evaluate_conv)(&t, e);
}
