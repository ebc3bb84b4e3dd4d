/* grouped_attention.c: attention of heads that share keys, with scores that are bounded, and of queries behind cached
 * keys.
 *
 * Heads of a group, which share keys and values, become another dim of their example: q [B, G * R, L, E] is
 * [B * G, R, L, E], and k [B, G, S, E] is repeated by a stride of 0. So the row needs no copies of keys.
 */
#include <math.h>

#include "functional/formula.h"

enum { Q, K, V, MASK, INPUTS };
enum { CAUSAL, SCALE, OFFSET, SOFT_CAP, HIDDEN };

typedef struct heads {
  int64_t groups, shared; /* heads of k; heads of q for each */
} heads;

static bool fits(const hr__function_call *c) {
  const hr_tensor *q = c->inputs[Q], *k = c->inputs[K], *v = c->inputs[V];
  return q->rank == 4 && k->rank == 4 && v->rank == 4 && q->dims[0] == k->dims[0] && v->dims[0] == k->dims[0] &&
         v->dims[1] == k->dims[1] && v->dims[2] == k->dims[2] && q->dims[3] == k->dims[3] && k->dims[1] > 0 &&
         q->dims[1] % k->dims[1] == 0;
}

static hr_status check_heads(const hr__function_call *c) {
  const hr_tensor *const *in = c->inputs;
  char dims[3][HR__SHAPE_TEXT];
  return fits(c)
             ? HR_OK
             : HR__CALL_FAIL(
                   c, "q %s, k %s, v %s, expected [B, H, L, E], [B, G, S, E], [B, G, S, V], H a multiple of G",
                   hr__shape_text(in[Q]->rank, in[Q]->dims, dims[0]), hr__shape_text(in[K]->rank, in[K]->dims, dims[1]),
                   hr__shape_text(in[V]->rank, in[V]->dims, dims[2]));
}

/* [B, groups * n, ..] as [B * groups, n, ..]. */
static const hr_tensor *folded(hr__formula *f, const hr_tensor *x, int64_t groups) {
  if (hr__formula_failed(f)) {
    return x;
  }
  const int64_t dims[4] = {x->dims[0] * groups, x->dims[1] / groups, x->dims[2], x->dims[3]};
  return hr__as_dims(f, x, 4, dims);
}

static const hr_tensor *repeated(hr__formula *f, const hr_tensor *x, const heads *h) {
  x = folded(f, x, h->groups);
  if (hr__formula_failed(f)) {
    return x;
  }
  const int64_t dims[4] = {x->dims[0], h->shared, x->dims[2], x->dims[3]};
  return hr__spread(f, x, 4, dims);
}

/* The mask for [B, H, L, S] as one for the folded heads: of one head, if all have the same. */
static const hr_tensor *folded_mask(hr__formula *f, const hr_tensor *mask, const heads *h) {
  const hr_tensor *q = f->call->inputs[Q], *k = f->call->inputs[K];
  if (mask->rank > 4) {
    hr__formula_fail(f, HR__CALL_FAIL(f->call, "the mask has %d dims, expected at most 4", mask->rank));
  }
  while (!hr__formula_failed(f) && mask->rank < 4) {
    mask = hr__with_dim(f, mask, 0);
  }
  if (hr__formula_failed(f)) {
    return mask;
  }
  const int64_t dims[4] = {q->dims[0], mask->dims[1] == 1 ? h->groups : q->dims[1], q->dims[2], k->dims[2]};
  return folded(f, hr__spread(f, mask, 4, dims), h->groups);
}

/* [L, S]: true for keys up to the query's place, which is its number plus the offset. */
static const hr_tensor *visible(hr__formula *f, int64_t offset) {
  const hr_tensor *queries = hr__counted(f, f->call->inputs[Q]->dims[2], 2, 0);
  const hr_tensor *keys = hr__counted(f, f->call->inputs[K]->dims[2], 2, 1);
  return hr__binary(f, HR_OP_GE, hr__plus(f, queries, hr__integer(f, offset)), keys);
}

/* The mask and the causal one; NULL for none. */
static const hr_tensor *with_causal(hr__formula *f, const hr_tensor *mask, const hr_tensor *causal) {
  if (mask == NULL || causal == NULL) {
    return mask != NULL ? mask : causal;
  }
  return mask->dtype == HR_DTYPE_BOOL ? hr__binary(f, HR_OP_LOGICAL_AND, mask, causal)
                                      : hr__ternary(f, HR_OP_WHERE, causal, mask, hr__real(f, -(double)INFINITY));
}

/* The softmax of masked scores; 0 for queries without a visible key. */
static const hr_tensor *weights_of(hr__formula *f, const hr_tensor *scores, bool has_mask) {
  if (!has_mask || hr__formula_failed(f)) {
    return hr__along(f, HR_OP_SOFTMAX, scores, 3);
  }
  const hr_tensor *zero = hr__integer(f, 0), *best = hr__along(f, HR_OP_AMAX, scores, 1 << 3);
  const hr_tensor *is_none = hr__binary(f, HR_OP_EQ, best, hr__real(f, -(double)INFINITY));
  const hr_tensor *weights = hr__along(f, HR_OP_SOFTMAX, hr__ternary(f, HR_OP_WHERE, is_none, zero, scores), 3);
  return hr__ternary(f, HR_OP_WHERE, is_none, zero, weights);
}

/* softmax(cap tanh(scale q k^T / cap) + mask) v, in f32 for narrow floats. */
static const hr_tensor *capped(hr__formula *f, const hr_tensor *const inputs[INPUTS], double scale, double cap) {
  if (hr__formula_failed(f)) {
    return inputs[Q];
  }
  hr_dtype dtype = hr__promoted(f, 3, inputs), wide = hr__wide_dtype(dtype);
  const hr_tensor *q = hr__times(f, hr__as_dtype(f, inputs[Q], wide), hr__real(f, scale / cap));
  const hr_tensor *pair[2] = {q, hr__moved(f, hr__as_dtype(f, inputs[K], wide), 3, 2)};
  const hr_tensor *scores = hr__unary(f, HR_OP_TANH, hr__function(f, HR_FUNCTIONAL_MATMUL, 2, pair, 0, NULL));
  scores = hr__times(f, scores, hr__real(f, cap));
  const hr_tensor *mask = inputs[MASK];
  if (mask != NULL) {
    scores = mask->dtype == HR_DTYPE_BOOL ? hr__ternary(f, HR_OP_WHERE, mask, scores, hr__real(f, -(double)INFINITY))
                                          : hr__plus(f, scores, mask);
  }
  const hr_tensor *weighted[2] = {weights_of(f, scores, mask != NULL), hr__as_dtype(f, inputs[V], wide)};
  return hr__as_dtype(f, hr__function(f, HR_FUNCTIONAL_MATMUL, 2, weighted, 0, NULL), dtype);
}

static double scale_of(const hr__function_call *c) {
  const hr_tensor *q = c->inputs[Q];
  hr_scalar given = hr__real_attribute(c, SCALE);
  int64_t width = q->rank > 0 && q->dims[q->rank - 1] > 0 ? q->dims[q->rank - 1] : 1;
  return hr__given_attribute(c, SCALE) != NULL ? hr_scalar_as_f64(&given) : 1 / sqrt((double)width);
}

static bool has_hidden(const hr__function_call *c) {
  return hr__given_attribute(c, HIDDEN) != NULL;
}

static const hr_tensor *by_row(hr__formula *f, const hr_tensor *const inputs[INPUTS], bool is_causal, double scale) {
  const int64_t ints[1] = {is_causal};
  bool is_exact = has_hidden(f->call);
  const hr_scalar numbers[2] = {hr_scalar_f64(scale),
                                is_exact ? hr__real_attribute(f->call, HIDDEN) : hr_scalar_f64(0)};
  hr_attrs attrs = {.int_count = 1, .scalar_count = is_exact ? 2 : 1, .ints = ints, .scalars = numbers};
  return hr__step(f, HR_OP_ATTENTION, &attrs, inputs[MASK] != NULL ? 4 : 3, inputs, HR_DTYPE_NONE);
}

/* The inputs with their heads folded, and the mask with the causal one. */
static void folded_inputs(hr__formula *f, const hr_tensor *mask, const hr_tensor *out[INPUTS]) {
  const hr_tensor *const *in = f->call->inputs;
  heads h = {.groups = in[K]->dims[1], .shared = in[Q]->dims[1] / in[K]->dims[1]};
  bool has_groups = h.shared > 1;
  out[Q] = has_groups ? folded(f, in[Q], h.groups) : in[Q];
  out[K] = has_groups ? repeated(f, in[K], &h) : in[K];
  out[V] = has_groups ? repeated(f, in[V], &h) : in[V];
  out[MASK] = has_groups && mask != NULL ? folded_mask(f, mask, &h) : mask;
}

hr_status hr__emit_attention(const hr__function_call *c) {
  const hr_tensor *const *in = c->inputs, *inputs[INPUTS];
  bool is_causal = hr__int_attribute(c, CAUSAL) != 0, has_groups = fits(c) && in[Q]->dims[1] != in[K]->dims[1];
  int64_t offset = is_causal ? hr__int_attribute(c, OFFSET) : 0;
  hr_scalar given = hr__real_attribute(c, SOFT_CAP);
  double cap = hr_scalar_as_f64(&given), scale = scale_of(c);
  bool is_row = !(cap > 0) && offset == 0 && !has_groups;
  HR_RETURN_IF_ERROR(is_row ? HR_OK : check_heads(c));
  if (has_hidden(c) && (cap > 0 || offset != 0)) {
    return HR__CALL_FAIL(c, "hidden beside %s, expected it alone", cap > 0 ? "soft_cap" : "offset");
  }
  hr__formula f;
  hr__formula_begin(&f, c);
  if (is_row) {
    return hr__formula_end(&f, by_row(&f, in, is_causal, scale));
  }
  bool is_masked = is_causal && (offset != 0 || cap > 0);
  folded_inputs(&f, with_causal(&f, in[MASK], is_masked ? visible(&f, offset) : NULL), inputs);
  const hr_tensor *y = cap > 0 ? capped(&f, inputs, scale, cap) : by_row(&f, inputs, is_causal && !is_masked, scale);
  const int64_t dims[4] = {in[Q]->dims[0], in[Q]->dims[1], in[Q]->dims[2], in[V]->dims[3]};
  return hr__formula_end(&f, hr__formula_failed(&f) ? y : hr__as_dims(&f, y, 4, dims));
}
