/* onnx_attention.c: attention, of q [B, H, L, E], k [B, G, S, E] and v [B, G, S, V], or with heads in the last dim. */
#include <math.h>

#include "importers/onnx/onnx_integer.h"

/* [B, L, heads * E] as [B, heads, L, E]. */
static hr_value split_heads(hr__onnx_node *node, hr_value x, int64_t heads) {
  static const int64_t order[4] = {0, 2, 1, 3};
  int64_t width = hr__onnx_known_dim(node, x, 2);
  if (hr__onnx_failed(node) || heads < 1 || width % heads != 0) {
    return HR__ONNX_WRONG(node, "%lld heads in %lld elements", (long long)heads, (long long)width);
  }
  const hr__integer dims[4] = {hr__integer_dim(node, x, 0), hr__integer_dim(node, x, 1), hr__integer_of(heads),
                               hr__integer_of(width / heads)};
  return hr__onnx_permute(node, hr__integer_reshape(node, x, 4, dims), 4, order);
}

/* The inverse. */
static hr_value join_heads(hr__onnx_node *node, hr_value x) {
  static const int64_t order[4] = {0, 2, 1, 3};
  const hr__integer dims[3] = {hr__integer_dim(node, x, 0), hr__integer_dim(node, x, 2),
                               INTEGER(node, MULTIPLY, hr__integer_dim(node, x, 1), hr__integer_dim(node, x, 3))};
  return hr__integer_reshape(node, hr__onnx_permute(node, x, 4, order), 3, dims);
}

/* Heads of k or v as often as q has them. */
static hr_value repeat_heads(hr__onnx_node *node, hr_value x, hr_value q) {
  int64_t heads = hr__onnx_known_dim(node, q, 1), own = hr__onnx_known_dim(node, x, 1);
  bool is_right = own > 0 && heads % own == 0;
  if (!hr__onnx_failed(node) && !is_right) {
    return HR__ONNX_WRONG(node, "%lld heads of q for %lld of k", (long long)heads, (long long)own);
  }
  return hr__onnx_failed(node) || own == heads
             ? x
             : ADD(node, REPEAT, IN(x), WITH(hr__with_int("repeats", heads / own), hr__with_int("axis", 1)));
}

/* 0, 1, ... size - 1 */
static hr_value count_up(hr__onnx_node *node, hr__integer size) {
  hr_graph_attribute with[2] = {hr__with_real("stop", (double)size.number), hr__with_dtype("dtype", HR_DTYPE_I64)};
  with[0].values = size.value != 0 ? &size.value : NULL;
  return ADD(node, ARANGE, 0, NULL, 2, with);
}

typedef struct attention {
  hr_value q, k, v, mask, scores; /* scores: as output 3 shows them */
  hr_dtype dtype;
  double scale, softcap;
  int mode;
} attention;

/* The mask in the dtype of the scores: added, with -infinity for false. It may be shorter than the keys. */
static hr_value bias_of(hr__onnx_node *node, hr_value mask, hr__integer keys, hr_dtype dtype) {
  int rank = hr__onnx_rank(node, mask);
  hr__integer own = hr__integer_dim(node, mask, rank - 1), more = INTEGER(node, SUBTRACT, keys, own);
  bool is_bool = hr__onnx_dtype_of(node, mask) == HR_DTYPE_BOOL;
  if (is_bool) {
    mask = CALL(node, WHERE, mask, hr__onnx_number(node, 0), hr__onnx_number(node, -(double)INFINITY));
  }
  mask = hr__onnx_cast(node, mask, dtype);
  bool can_be_shorter = more.value == 0 && more.number > 0 && own.number != 1;
  if (can_be_shorter) {
    int64_t before[HR_RANK_MAX] = {0}, after[HR_RANK_MAX] = {0};
    after[rank - 1] = more.number;
    mask = ADD(node, PAD, IN(mask),
               WITH(hr__with_ints("before", rank, before), hr__with_ints("after", rank, after),
                    hr__with_real("value", -(double)INFINITY)));
  }
  return mask;
}

static hr_value add_bias(hr__onnx_node *node, hr_value bias, hr_value other) {
  return bias != 0 ? CALL(node, ADD, bias, other) : other;
}

static hr_value as_bias(hr__onnx_node *node, hr_value is_seen, hr_dtype dtype) {
  return hr__onnx_cast(
      node, CALL(node, WHERE, is_seen, hr__onnx_number(node, 0), hr__onnx_number(node, -(double)INFINITY)), dtype);
}

/* The terms of the scores: the mask, the past of each query, the keys that are no padding. */
static hr_value find_bias(hr__onnx_node *node, const attention *a, hr_value past, hr_value used) {
  hr__integer keys = hr__integer_dim(node, a->k, 2);
  hr_value bias = a->mask != 0 ? bias_of(node, a->mask, keys, a->dtype) : 0, place = 0;
  if (hr__onnx_int(node, "is_causal", 0) != 0) {
    hr_value row = hr__onnx_along(node, count_up(node, hr__integer_dim(node, a->q, 2)), 0, 2);
    if (past != 0) {
      hr__integer length = hr__integer_dim(node, past, 2);
      row = CALL(node, ADD, row, length.value != 0 ? length.value : hr__onnx_whole(node, length.number));
    }
    place = count_up(node, keys);
    bias = add_bias(node, bias, as_bias(node, CALL(node, LESS_EQUAL, place, row), a->dtype));
  }
  if (used != 0) {
    place = count_up(node, keys);
    hr_value count = hr__onnx_along(node, hr__onnx_cast(node, used, HR_DTYPE_I64), 0, 4);
    bias = add_bias(node, bias, as_bias(node, CALL(node, LESS, place, count), a->dtype));
  }
  return bias;
}

/* Before version 24 the mask is added before the soft cap. */
static hr_value attend(hr__onnx_node *node, attention *a, hr_value bias) {
  double root = sqrt(a->scale);
  hr_value keys = ADD(node, SWAPAXES, IN(a->k), PLAIN);
  hr_value left = CALL(node, MULTIPLY, a->q, hr__onnx_number(node, root));
  hr_value scores = CALL(node, MATMUL, left, CALL(node, MULTIPLY, keys, hr__onnx_number(node, root)));
  a->scores = scores;
  if (a->softcap > 0) {
    hr_value part = CALL(node, TANH, CALL(node, DIVIDE, scores, hr__onnx_number(node, a->softcap)));
    scores = CALL(node, MULTIPLY, part, hr__onnx_number(node, a->softcap));
  }
  a->scores = a->mode == 1 ? scores : a->scores;
  scores = bias != 0 ? CALL(node, ADD, scores, bias) : scores;
  a->scores = a->mode == 2 ? scores : a->scores;
  hr_dtype precision = hr__onnx_dtype(hr__onnx_int(node, "softmax_precision", 0));
  scores = precision != HR_DTYPE_NONE ? hr__onnx_cast(node, scores, precision) : scores;
  hr_value shares = ADD(node, SOFTMAX, IN(scores), WITH(hr__with_int("axis", -1)));
  a->scores = a->mode == 3 ? hr__onnx_cast(node, shares, a->dtype) : a->scores;
  hr_value values = hr__onnx_cast(node, a->v, hr__onnx_dtype_of(node, shares));
  return hr__onnx_cast(node, CALL(node, MATMUL, shares, values), a->dtype);
}

/* The row of attention, if it has all that is wanted. */
static hr_value attend_at_once(hr__onnx_node *node, const attention *a, hr_value bias) {
  hr_graph_attribute with[1] = {hr__with_real("scale", a->scale)};
  if (bias != 0) {
    for (int rank = hr__onnx_rank(node, bias); rank > 0 && rank < 4; ++rank) {
      bias = hr__onnx_expand_dim(node, bias, 0);
    }
  }
  return ADD(node, ATTENTION, IN(a->q, a->k, a->v, bias), 1, with);
}

static hr_value join_past(hr__onnx_node *node, hr_value past, hr_value x) {
  return past != 0 ? ADD(node, CONCAT, IN(past, x), WITH(hr__with_int("axis", 2))) : x;
}

static bool read_attention(hr__onnx_node *node, attention *a) {
  a->q = hr__onnx_input(node, 0), a->k = hr__onnx_input(node, 1), a->v = hr__onnx_input(node, 2);
  a->mask = hr__onnx_input(node, 3), a->dtype = hr__onnx_dtype_of(node, a->q);
  a->softcap = hr__onnx_real(node, "softcap", 0), a->mode = (int)hr__onnx_int(node, "qk_matmul_output_mode", 0);
  if (hr__onnx_rank(node, a->q) == 3) {
    a->q = split_heads(node, a->q, hr__onnx_int(node, "q_num_heads", 1));
    a->k = split_heads(node, a->k, hr__onnx_int(node, "kv_num_heads", 1));
    a->v = split_heads(node, a->v, hr__onnx_int(node, "kv_num_heads", 1));
  }
  double width = (double)hr__onnx_known_dim(node, a->q, 3);
  a->scale = hr__onnx_real(node, "scale", width > 0 ? 1 / sqrt(width) : 1);
  return !hr__onnx_failed(node);
}

void hr__onnx_map_attention(hr__onnx_node *node) {
  attention a = {0};
  hr_value past = hr__onnx_input(node, 4);
  if (!read_attention(node, &a)) {
    return;
  }
  a.k = join_past(node, past, a.k), a.v = join_past(node, hr__onnx_input(node, 5), a.v);
  hr__onnx_set(node, 1, a.k);
  hr__onnx_set(node, 2, a.v);
  hr_value bias = find_bias(node, &a, past, hr__onnx_input(node, 6));
  a.k = repeat_heads(node, a.k, a.q), a.v = repeat_heads(node, a.v, a.q);
  bool is_plain = !hr__onnx_wants(node, 3) && a.softcap == 0 && a.dtype == HR_DTYPE_F32 && bias == 0 &&
                  hr__onnx_int(node, "softmax_precision", 1) == 1;
  hr_value y = is_plain ? attend_at_once(node, &a, bias) : attend(node, &a, bias);
  hr__onnx_set(node, 0, hr__onnx_rank(node, hr__onnx_input(node, 0)) == 3 ? join_heads(node, y) : y);
  hr__onnx_set(node, 3, a.scores);
}

/* ---- rotary embedding ---- */

/* Pairs of x [B, H, L, E], or [B, L, H * E], turned by angles of their places. */
void hr__onnx_map_rotary(hr__onnx_node *node) {
  hr_value x = hr__onnx_input(node, 0), places = hr__onnx_input(node, 3), angles[2];
  bool is_joined = hr__onnx_rank(node, x) == 3;
  hr_value heads = is_joined ? split_heads(node, x, hr__onnx_int(node, "num_heads", 1)) : x;
  for (int i = 0; i < 2; ++i) {
    hr_value cache = hr__onnx_input(node, 1 + i);
    cache = places != 0 ? ADD(node, TAKE, IN(cache, places), WITH(hr__with_int("axis", 0))) : cache;
    angles[i] = hr__onnx_expand_dim(node, cache, 1);
  }
  const hr_graph_attribute with[2] = {hr__with_flag("interleaved", hr__onnx_int(node, "interleaved", 0) != 0),
                                      hr__with_int("dims", hr__onnx_int(node, "rotary_embedding_dim", 0))};
  int count = with[1].value.value.integer == 0 ? 1 : 2; /* 0: all */
  hr_value y = ADD(node, ROTARY, IN(heads, angles[0], angles[1]), count, with);
  hr__onnx_set(node, 0, is_joined ? join_heads(node, y) : y);
}

/* ---- a depthwise convolution of the past ---- */

void hr__onnx_map_causal_conv(hr__onnx_node *node) {
  static const char *const words[] = {"none", "silu", "swish"};
  hr_value x = hr__onnx_input(node, 0), weight = hr__onnx_input(node, 1), past = hr__onnx_input(node, 3);
  int64_t window = hr__onnx_known_dim(node, weight, 2), groups = hr__onnx_known_dim(node, weight, 0), one = 1, none = 0;
  hr_dtype dtype = hr__onnx_dtype_of(node, x);
  if (hr__onnx_failed(node)) {
    return;
  }
  const int64_t before[3] = {0, 0, window - 1}, after[3] = {0};
  x = past != 0 ? join_past(node, past, x)
                : ADD(node, PAD, IN(x), WITH(hr__with_ints("before", 3, before), hr__with_ints("after", 3, after)));
  hr_value y =
      ADD(node, CONV, IN(x, weight, hr__onnx_input(node, 2)),
          WITH(hr__with_ints("stride", 1, &one), hr__with_ints("dilation", 1, &one), hr__with_ints("before", 1, &none),
               hr__with_ints("after", 1, &none), hr__with_int("groups", groups)));
  bool has_gate = hr__onnx_word(node, "activation", 3, words) > 0;
  hr__onnx_set(node, 0,
               has_gate ? hr__onnx_cast(node, CALL(node, SILU, hr__onnx_cast(node, y, HR_DTYPE_F32)), dtype) : y);
  hr__integer begin = INTEGER(node, SUBTRACT, hr__integer_dim(node, x, 2), hr__integer_of(window - 1));
  hr__onnx_set(node, 1, hr__integer_slice(node, x, 2, begin, hr__integer_of(window - 1), 1));
}

/* ---- linear attention ---- */

typedef struct recurrence {
  hr_value q, k, v, decay, beta, state; /* decay and beta: 0: none */
  double scale;
} recurrence;

static hr_value step_of(hr__onnx_node *node, hr_value x, int64_t step) {
  return x != 0 ? hr__onnx_squeeze_dim(node, hr__onnx_narrow(node, x, 2, step, 1), 2) : 0;
}

/* state [B, G, K, V] = exp(decay) state + k (v - state^T k) beta; the result is q^T state. */
static hr_value run_step(hr__onnx_node *node, recurrence *r, int64_t step) {
  hr_value k = hr__onnx_expand_dim(node, step_of(node, r->k, step), -1), q = step_of(node, r->q, step);
  hr_value v = hr__onnx_expand_dim(node, step_of(node, r->v, step), -2);
  if (r->decay != 0) {
    hr_value factor = CALL(node, EXP, step_of(node, r->decay, step));
    r->state = CALL(node, MULTIPLY, r->state, hr__onnx_expand_dim(node, factor, -1));
  }
  if (r->beta != 0) {
    hr_value known = CALL(node, MATMUL, ADD(node, SWAPAXES, IN(k), PLAIN), r->state);
    hr_value beta = hr__onnx_expand_dim(node, step_of(node, r->beta, step), -1);
    v = CALL(node, MULTIPLY, CALL(node, SUBTRACT, v, known), beta);
  }
  r->state = CALL(node, ADD, r->state, CALL(node, MULTIPLY, k, v));
  hr_value state = repeat_heads(node, r->state, q);
  hr_value y = CALL(node, MATMUL, hr__onnx_expand_dim(node, q, -2), state);
  return CALL(node, MULTIPLY, y, hr__onnx_number(node, r->scale)); /* [B, H, 1, V] */
}

static hr_value read_part(hr__onnx_node *node, int input, int64_t heads) {
  hr_value x = hr__onnx_input(node, input);
  return x != 0 ? split_heads(node, hr__onnx_cast(node, x, HR_DTYPE_F32), heads) : 0;
}

static bool read_recurrence(hr__onnx_node *node, recurrence *r) {
  int64_t heads = hr__onnx_int(node, "q_num_heads", 1), own = hr__onnx_int(node, "kv_num_heads", 1);
  hr_value beta = hr__onnx_input(node, 5), past = hr__onnx_input(node, 3);
  r->q = read_part(node, 0, heads), r->k = read_part(node, 1, own), r->v = read_part(node, 2, own);
  r->decay = read_part(node, 4, own);
  r->beta = beta != 0 ? read_part(node, 5, hr__onnx_known_dim(node, beta, 2)) : 0;
  double width = (double)hr__onnx_known_dim(node, r->q, 3), scale = hr__onnx_real(node, "scale", 0);
  r->scale = scale != 0 ? scale : width > 0 ? 1 / sqrt(width) : 1;
  const hr__integer dims[4] = {hr__integer_dim(node, r->q, 0), hr__integer_of(own), hr__integer_dim(node, r->k, 3),
                               hr__integer_dim(node, r->v, 3)};
  int64_t numbers[4];
  hr_value values[4];
  r->state =
      past != 0
          ? hr__onnx_cast(node, past, HR_DTYPE_F32)
          : ADD(node, FULL, IN(hr__onnx_number(node, 0)),
                WITH(hr__with_integers("shape", 4, dims, numbers, values), hr__with_dtype("dtype", HR_DTYPE_F32)));
  return !hr__onnx_failed(node);
}

void hr__onnx_map_linear_attention(hr__onnx_node *node) {
  enum { STEPS_MAX = 4096 };
  recurrence r = {0};
  hr_dtype dtype = hr__onnx_dtype_of(node, hr__onnx_input(node, 0));
  hr_value past = hr__onnx_input(node, 3);
  int64_t steps = hr__onnx_known_dim(node, hr__onnx_input(node, 0), 1);
  hr_value *all = HR_ARENA_ARRAY(node->arena, hr_value, STEPS_MAX + 1);
  if (steps < 1 || steps > STEPS_MAX || all == NULL || !read_recurrence(node, &r)) {
    HR__ONNX_REFUSE(node, "%lld steps, expected 1 to %d", (long long)steps, STEPS_MAX);
    return;
  }
  for (int64_t i = 0; i < steps; ++i) {
    all[i] = run_step(node, &r, i);
  }
  hr_value y = ADD(node, CONCAT, (int)steps, all, WITH(hr__with_int("axis", 2)));
  hr__onnx_set(node, 0, hr__onnx_cast(node, join_heads(node, y), dtype));
  hr__onnx_set(node, 1, hr__onnx_cast(node, r.state, past != 0 ? hr__onnx_dtype_of(node, past) : dtype));
}

/* ---- attention with subgraphs on scores and shares ---- */

static hr_value modify(hr__onnx_node *node, const char *name, hr_value x) {
  const hr__onnx_attribute *body = hr__onnx_find_attribute(node, name);
  const hr__onnx_value input = {.value = x};
  hr__onnx_value result = input;
  int count = 0;
  if (body != NULL && !hr__onnx_failed(node)) {
    hr_status status = hr__onnx_run_subgraph(node, body->bytes, NULL, 1, &input, 1, &result, &count);
    if (status != HR_OK) {
      hr__graph_fail(node->graph, status);
    }
  }
  return result.value;
}

void hr__onnx_map_flex_attention(hr__onnx_node *node) {
  attention a = {0};
  if (!read_attention(node, &a)) {
    return;
  }
  hr_dtype given = hr__onnx_dtype(hr__onnx_int(node, "softmax_precision", 0));
  hr_dtype wide = given != HR_DTYPE_NONE ? given : a.dtype == HR_DTYPE_F64 ? HR_DTYPE_F64 : HR_DTYPE_F32;
  a.k = repeat_heads(node, a.k, a.q), a.v = repeat_heads(node, a.v, a.q);
  hr_value keys = hr__onnx_cast(node, ADD(node, SWAPAXES, IN(a.k), PLAIN), wide);
  hr_value product = CALL(node, MATMUL, hr__onnx_cast(node, a.q, wide), keys);
  hr_value scores = modify(node, "score_mod", CALL(node, MULTIPLY, product, hr__onnx_number(node, a.scale)));
  hr_value shares = ADD(node, SOFTMAX, IN(scores), WITH(hr__with_int("axis", -1)));
  shares = modify(node, "prob_mod", shares);
  hr_value y = CALL(node, MATMUL, shares, hr__onnx_cast(node, a.v, wide));
  hr__onnx_set(node, 0, hr__onnx_cast(node, y, a.dtype));
}
