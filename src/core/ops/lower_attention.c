/* lower_attention.c: scaled dot-product attention: matrix products with a softmax between them.
 *
 *   s = matmul(q, k^T)     t = s * scale (+ mask, or -inf where it forbids, or above the diagonal)
 *   p = exp(t - max) / sum(exp(t - max))     y = matmul(dropout(p), v)     lse = max + log(sum)
 *
 * The gradient recomputes the probabilities as exp(t - lse) instead of storing them. Fully masked rows give 0. With a
 * causal mask row l sees columns 0 .. l. Dropout is applied if its scalars (p, seed, offset) follow the scale; element
 * i of the probabilities, in row-major order, has its own random number.
 *
 * If one scalar alone follows the scale, the row is exactly the softmax of masked scores: this number is the score
 * where a mask of bools forbids, and rows of -inf give NaN.
 *
 * This defines attention, and short sequences run in this form; longer ones stay one node if a provider supports them
 * (providers/attention). The products are contraction nodes, for a provider or the loops of lower_contraction.c. Their
 * operands have q's dtype; scores stay f32 for f16 and bf16.
 */
#include <math.h>

#include "core/ops/lower.h"

typedef struct attention {
  const hr_node *node;
  hr_operand q, k, v, mask;
  bool is_causal, has_dropout, has_hidden;
  hr_dtype dtype; /* of scores */
  int rank;
  int64_t dims[HR_RANK_MAX]; /* [.., L, S] of the scores */
} attention;

static attention attention_of(const hr_node *node, int first) {
  attention a = {.node = node};
  a.q = hr_node_input(node, first), a.k = hr_node_input(node, first + 1), a.v = hr_node_input(node, first + 2);
  a.mask = hr_node_input(node, first + 3);
  a.is_causal = node->ints[0] != 0, a.has_dropout = node->scalar_count > 3, a.has_hidden = node->scalar_count == 2;
  a.dtype = hr__wide(a.q.dtype);
  a.rank = a.q.rank;
  for (int d = 0; d < a.rank; ++d) {
    a.dims[d] = a.q.dims[d];
  }
  a.dims[a.rank - 1] = a.k.dims[a.rank - 2];
  return a;
}

static hr_operand transposed(hr_builder *b, hr_operand x) {
  int order[HR_RANK_MAX];
  if (!hr_is_present(x)) {
    return x;
  }
  for (int d = 0; d < x.rank; ++d) {
    order[d] = d < x.rank - 2 ? d : 2 * x.rank - 3 - d;
  }
  return hr_view_permute(b, x, order);
}

static void emit_matmul(hr_builder *b, hr_operand out, hr_operand x, hr_operand w) {
  hr_emit_node(b, HR_OP_MATMUL, 2, (hr_operand[]){x, w}, 1, &out, 0, NULL);
}

static hr_operand build_score(hr_builder *b, const attention *a, hr_dtype dtype) {
  return hr_build_temp(b, dtype, a->rank, a->dims);
}

static bool selects(const attention *a) {
  return hr_is_present(a->mask) && a->mask.dtype == HR_DTYPE_BOOL;
}

/* True if rows without a visible column are 0. */
static bool guards_rows(const attention *a) {
  return hr_is_present(a->mask) && !a->has_hidden;
}

/* Scaled and masked scores. */
static hr_operand make_scores(hr_builder *b, const attention *a) {
  hr_operand product = build_score(b, a, a->dtype), scores = build_score(b, a, a->dtype);
  hr_operand scale = hr_build_attr(b, a->node, 0), minus_infinity = hr_build_f64(b, -INFINITY);
  bool adds_mask = hr_is_present(a->mask) && !selects(a);
  emit_matmul(b, product, a->q, transposed(b, a->k));
  if (adds_mask) {
    hr_emit3(b, HR_OP_ADD_SCALED, scores, a->mask, product, scale);
  } else {
    hr_emit2(b, HR_OP_MUL, scores, product, scale);
  }
  if (selects(a)) {
    hr_operand hidden = a->has_hidden ? hr_build_attr(b, a->node, 1) : minus_infinity;
    scores = hr_make3(b, HR_OP_WHERE, a->dtype, a->mask, scores, hidden);
  }
  if (!a->is_causal) {
    return scores;
  }
  int64_t row_strides[HR_RANK_MAX] = {0}, column_strides[HR_RANK_MAX] = {0};
  row_strides[a->rank - 2] = 1, column_strides[a->rank - 1] = 1;
  hr_operand row = hr_build_index(b, a->rank, a->dims, 0, row_strides);
  hr_operand column = hr_build_index(b, a->rank, a->dims, 0, column_strides);
  hr_operand is_ahead = hr_make2(b, HR_OP_GT, HR_DTYPE_BOOL, column, row);
  return hr_make3(b, HR_OP_WHERE, a->dtype, is_ahead, minus_infinity, scores);
}

typedef struct dropout {
  hr_operand is_kept, scale; /* over the scores: the elements kept, and 1 / (1 - p) */
} dropout;

static dropout make_dropout(hr_builder *b, const attention *a) {
  int64_t strides[HR_RANK_MAX], stride = 1;
  for (int d = a->rank - 1; d >= 0; --d) {
    strides[d] = stride, stride *= a->dims[d];
  }
  hr_operand number = hr_build_index(b, a->rank, a->dims, 0, strides), keep = build_score(b, a, a->dtype);
  dropout drop;
  hr_operand random =
      hr_make3(b, HR_OP_PHILOX_UNIFORM, a->dtype, number, hr_build_attr(b, a->node, 2), hr_build_attr(b, a->node, 3));
  hr_emit2(b, HR_OP_SUB, keep, hr_build_f64(b, 1), hr_build_attr(b, a->node, 1));
  drop.is_kept = hr_make2(b, HR_OP_LT, HR_DTYPE_BOOL, random, keep);
  drop.scale = hr_make1(b, HR_OP_RECIPROCAL, a->dtype, keep);
  return drop;
}

/* out = x / (1 - p) where kept, else 0. */
static void emit_dropout(hr_builder *b, const attention *a, const dropout *drop, hr_operand out, hr_operand x) {
  hr_operand scaled = hr_make2(b, HR_OP_MUL, a->dtype, x, drop->scale);
  hr_emit3(b, HR_OP_WHERE, out, drop->is_kept, scaled, hr_build_f64(b, 0));
}

/* `value` of each row, or `other` where `key` is `special` (fully masked rows). */
static hr_operand make_guard(hr_builder *b, hr_operand key, double special, hr_operand value, double other,
                             hr_dtype dtype) {
  hr_operand is_special = hr_make2(b, HR_OP_EQ, HR_DTYPE_BOOL, key, hr_build_f64(b, special));
  return hr_make3(b, HR_OP_WHERE, dtype, is_special, hr_build_f64(b, other), value);
}

hr_status hr__lower_attention(hr_builder *b, const hr_node *node) {
  attention a = attention_of(node, 0);
  hr_operand y = hr_node_output(node, 0), lse_out = hr__ones_after(b, hr_node_output(node, 1), 1);
  uint32_t mask = UINT32_C(1) << (a.rank - 1);
  if (hr_operand_count(a.q) == 0 || hr_operand_count(a.k) == 0) {
    hr_emit1(b, HR_OP_COPY, y, hr_build_f64(b, 0));
    if (hr_is_present(lse_out)) {
      hr_emit1(b, HR_OP_COPY, lse_out, hr_build_f64(b, -INFINITY));
    }
    return HR_OK;
  }
  hr_operand scores = make_scores(b, &a);
  hr_operand shift = hr_make_reduce(b, HR_OP_AMAX, a.dtype, scores, mask);
  if (guards_rows(&a)) {
    shift = make_guard(b, shift, -INFINITY, shift, 0, a.dtype);
  }
  hr_operand power = hr_make1(b, HR_OP_EXP, a.dtype, hr_make2(b, HR_OP_SUB, a.dtype, scores, shift));
  hr_operand sum = hr_make_reduce(b, HR_OP_SUM, a.dtype, power, mask), divisor = sum;
  if (guards_rows(&a)) {
    divisor = make_guard(b, sum, 0, sum, 1, a.dtype);
  }
  if (hr_is_present(lse_out)) {
    hr_emit2(b, HR_OP_ADD, lse_out, hr_make1(b, HR_OP_LOG, a.dtype, sum), shift);
  }
  hr_operand probability = build_score(b, &a, a.v.dtype);
  if (a.has_dropout) {
    dropout drop = make_dropout(b, &a);
    emit_dropout(b, &a, &drop, probability, hr_make2(b, HR_OP_DIV, a.dtype, power, divisor));
  } else {
    hr_emit2(b, HR_OP_DIV, probability, power, divisor);
  }
  emit_matmul(b, y, probability, a.v);
  return HR_OK;
}

/* The gradient of an added mask: the scores' gradient, summed over the dims in which the mask was broadcast. */
static void emit_mask_gradient(hr_builder *b, hr_operand dmask, hr_operand dscores, const attention *a) {
  dmask = hr__ones_before(b, dmask, a->rank - dmask.rank);
  if (!hr_is_present(dmask)) {
    return;
  }
  uint32_t mask = 0;
  for (int d = 0; d < a->rank; ++d) {
    mask |= dmask.dims[d] == 1 && a->dims[d] != 1 ? UINT32_C(1) << d : 0;
  }
  if (mask != 0) {
    hr_emit_reduce(b, HR_OP_SUM, dmask, dscores, mask);
  } else {
    hr_emit1(b, HR_OP_COPY, dmask, dscores);
  }
}

/* The gradient of the scores: p * (D(dy v^T) - sum(dy * y)). */
static hr_operand make_score_gradient(hr_builder *b, const attention *a, const dropout *drop, hr_operand dy,
                                      hr_operand y, hr_operand probability) {
  hr_operand gradient = build_score(b, a, a->dtype);
  emit_matmul(b, gradient, dy, transposed(b, a->v));
  if (a->has_dropout) {
    hr_operand through = build_score(b, a, a->dtype);
    emit_dropout(b, a, drop, through, gradient);
    gradient = through;
  }
  hr_operand product = hr_make2(b, HR_OP_MUL, a->dtype, dy, y);
  hr_operand row = hr_make_reduce(b, HR_OP_SUM, a->dtype, product, UINT32_C(1) << (a->rank - 1));
  gradient = hr_make2(b, HR_OP_MUL, a->dtype, probability, hr_make2(b, HR_OP_SUB, a->dtype, gradient, row));
  bool is_constant = a->has_hidden && selects(a); /* hidden scores may have a probability */
  return is_constant ? hr_make3(b, HR_OP_WHERE, a->dtype, a->mask, gradient, hr_build_f64(b, 0)) : gradient;
}

/* With P the probabilities after dropout and D(..) dropout's gradient: dv = P^T dy, dt = p * (D(dy v^T) - sum(dy * y)),
 * dq = scale * dt k, dk = scale * dt^T q. */
hr_status hr__lower_attention_backward(hr_builder *b, const hr_node *node) {
  attention a = attention_of(node, 1);
  hr_operand dy = hr_node_input(node, 0), y = hr_node_input(node, 5),
             lse = hr__ones_after(b, hr_node_input(node, 6), 1);
  hr_operand dq = hr_node_output(node, 0), dk = hr_node_output(node, 1), dv = hr_node_output(node, 2);
  hr_operand dmask = hr_node_output(node, 3);
  if (hr_operand_count(a.q) == 0 || hr_operand_count(a.k) == 0) {
    for (int i = 0; i < 4; ++i) {
      hr_operand out = hr_node_output(node, i);
      if (hr_is_present(out)) {
        hr_emit1(b, HR_OP_COPY, out, hr_build_f64(b, 0));
      }
    }
    return HR_OK;
  }
  hr_operand scores = make_scores(b, &a);
  if (guards_rows(&a)) {
    lse = make_guard(b, lse, -INFINITY, lse, 0, a.dtype);
  }
  hr_operand probability = hr_make1(b, HR_OP_EXP, a.dtype, hr_make2(b, HR_OP_SUB, a.dtype, scores, lse));
  dropout drop = {0};
  if (a.has_dropout) {
    drop = make_dropout(b, &a);
  }
  if (hr_is_present(dv)) {
    hr_operand dropped = build_score(b, &a, a.v.dtype);
    if (a.has_dropout) {
      emit_dropout(b, &a, &drop, dropped, probability);
    } else {
      hr_emit1(b, HR_OP_COPY, dropped, probability);
    }
    emit_matmul(b, dv, transposed(b, dropped), dy);
  }
  if (!hr_is_present(dq) && !hr_is_present(dk) && !hr_is_present(dmask)) {
    return HR_OK;
  }
  hr_operand dscores = make_score_gradient(b, &a, &drop, dy, y, probability);
  if (hr_is_present(dmask)) {
    emit_mask_gradient(b, dmask, dscores, &a);
  }
  hr_operand scaled = build_score(b, &a, a.q.dtype);
  hr_emit2(b, HR_OP_MUL, scaled, dscores, hr_build_attr(b, node, 0));
  if (hr_is_present(dq)) {
    emit_matmul(b, dq, scaled, a.k);
  }
  if (hr_is_present(dk)) {
    emit_matmul(b, dk, transposed(b, scaled), a.q);
  }
  return HR_OK;
}
