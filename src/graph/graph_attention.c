/* graph_attention.c: finds attention that is composed of products and a softmax.
 *
 *   before   %0 = multiply(%q, 0.35355339)      f32[batch, 12, length, 64]
 *            %1 = multiply(%keys, 0.35355339)   f32[batch, 12, 64, length]
 *            %2 = matmul(%0, %1)
 *            %3 = add(%2, %mask)
 *            %4 = softmax(%3)
 *            %5 = matmul(%4, %v)
 *   after    %0 = swapaxes(%keys)
 *            %5 = attention(%q, %0, %v, %mask, scale=0.125, hidden=-inf)
 *
 * The softmax may be composed, and there may be views between the operations that keep the rows (graph_softmax.c). The
 * last product may be that of the transposed factors, [.., V, S] and [.., S, L].
 *
 * Scales are numbers: of q, of the keys or of their product, one or several, multiplied or divided. A mask is added, or
 * selects between a score and a number (`where`, `masked_fill`): this number is then what `hidden` is. A mask of 0, and
 * -infinity above the diagonal, becomes `causal`.
 *
 * Refused: other dtypes than f32 and f64, whose scores the row does not round as the operations do; factors that are
 * broadcast; scores or probabilities that another operation reads, as gradients of JAX do; a mask that gives the scores
 * more elements; q of no columns, or of a number of columns that depends on symbols; one score of each head.
 *
 * Numbers: products and sums have another order, so results differ in their last bits. Rows without a visible key give
 * NaN, or the mean of v with a finite number in `hidden`, as before. With `causal` a NaN or an infinity of a later key
 * need not reach a query, which the sum with -infinity passed on.
 */
#include "graph/graph_attention.h"

#include <math.h>

static bool is_call(const hr__node *node, hr_functional function) {
  return node->kind == HR__NODE_CALL && node->function == function;
}

static hr_dtype dtype_of(const hr_graph *graph, hr_value value) {
  return hr__graph_value_of(graph, value)->facts->dtype;
}

/* ---- scales ---- */

/* Goes from a value to one of which it is a multiple by a number, and multiplies the scale. reads: NULL, or nothing
 * else may read what lies behind the value. */
static hr_value without_scale(hr__known *known, const int *reads, hr_value x, double *scale) {
  const hr_graph *graph = known->graph;
  for (;;) {
    hr_value same = reads != NULL ? hr__graph_same_rows(graph, reads, x, false) : x;
    x = same != 0 ? same : x;
    const hr__node *node = hr__graph_node_of(graph, x);
    bool is_quotient = is_call(node, HR_FUNCTIONAL_DIVIDE);
    double number = 0;
    if (!is_quotient && !is_call(node, HR_FUNCTIONAL_MULTIPLY)) {
      return x;
    }
    bool is_second = hr__graph_known_number(known, node->inputs[1], &number);
    bool is_first = !is_second && !is_quotient && hr__graph_known_number(known, node->inputs[0], &number);
    hr_value next = node->inputs[is_second ? 0 : 1];
    int rank = hr__graph_rank(graph, x);
    if ((!is_first && !is_second) || (reads != NULL && reads[next] != 1) ||
        dtype_of(graph, next) != dtype_of(graph, x) || hr__graph_rank(graph, next) != rank ||
        !hr__graph_same_dims(graph, next, 0, x, 0, rank)) {
      return x;
    }
    *scale = is_quotient ? *scale / number : *scale * number;
    x = next;
  }
}

/* ---- the parts ---- */

typedef struct search {
  hr__known *known;
  const hr_graph *graph;
  const int *reads;
  int rank;
  hr_value product; /* of q and the keys */
  hr__attention found;
} search;

/* True for a product of matrices in batches of the same dims, without broadcasting. */
static bool is_plain_product(const search *s, const hr__node *node) {
  if (!is_call(node, HR_FUNCTIONAL_MATMUL)) {
    return false;
  }
  const hr_graph *g = s->graph;
  hr_value x = node->inputs[0], y = node->inputs[1];
  return hr__graph_rank(g, x) == s->rank && hr__graph_rank(g, y) == s->rank && s->rank >= 2 &&
         hr__graph_same_dims(g, x, 0, y, 0, s->rank - 2) && hr__graph_same_dims(g, x, s->rank - 1, y, s->rank - 2, 1) &&
         dtype_of(g, x) == dtype_of(g, y) && (dtype_of(g, x) == HR_DTYPE_F32 || dtype_of(g, x) == HR_DTYPE_F64);
}

/* The row computes nothing of q without columns. */
static bool has_columns(const search *s, hr_value q) {
  const hr__graph_value *value = hr__graph_value_of(s->graph, q);
  return value->facts->is_set && (!value->varies || value->texts[s->rank - 1] == NULL) &&
         value->facts->dims[s->rank - 1] > 0;
}

/* Finds q and keys behind scores without a mask. */
static bool find_product(search *s, hr_value scores) {
  const hr_graph *g = s->graph;
  double scale = 1;
  hr_value product = without_scale(s->known, s->reads, scores, &scale);
  const hr__node *node = hr__graph_node_of(g, product);
  if (!is_plain_product(s, node)) {
    return false;
  }
  s->product = product;
  s->found.q = without_scale(s->known, NULL, node->inputs[0], &scale);
  s->found.keys = without_scale(s->known, NULL, node->inputs[1], &scale);
  s->found.scale = scale;
  return isfinite(scale) && has_columns(s, s->found.q);
}

/* True if a masked score has the dims of the score. */
static bool keeps_dims(const search *s, hr_value scores, hr_value masked) {
  int rank = hr__graph_rank(s->graph, masked);
  return hr__graph_rank(s->graph, scores) == rank && hr__graph_same_dims(s->graph, scores, 0, masked, 0, rank) &&
         dtype_of(s->graph, scores) == dtype_of(s->graph, masked);
}

/* Finds dims of the mask beside the product, if the scores have dims of 1 at other places. */
static bool fit_mask(search *s, hr_value masked, hr_value mask) {
  const hr_graph *g = s->graph;
  int rank = hr__graph_rank(g, masked), own = hr__graph_rank(g, mask), at = 0;
  if (rank == s->rank && hr__graph_same_dims(g, masked, 0, s->product, 0, rank)) {
    return true;
  }
  if (hr__graph_value_of(g, masked)->varies || hr__graph_value_of(g, mask)->varies) {
    return false;
  }
  const int64_t *scores = hr__graph_value_of(g, masked)->facts->dims, *dims = hr__graph_value_of(g, mask)->facts->dims;
  for (int d = 0; d < s->rank; ++d) {
    bool is_one = hr__graph_value_of(g, s->product)->facts->dims[d] == 1;
    while (!is_one && at < rank && scores[at] == 1) {
      ++at;
    }
    int place = own - rank + at;
    s->found.mask_dims[d] = is_one || place < 0 ? 1 : dims[place];
    at += !is_one;
  }
  s->found.mask_rank = s->rank;
  return true;
}

/* True for a mask over all scores of a head that hides what is above the diagonal, and nothing else. */
static bool is_causal(const search *s, hr_value mask, double at, double above) {
  int rank = hr__graph_rank(s->graph, mask);
  hr__triangle triangle;
  return rank >= 2 && hr__graph_same_dims(s->graph, mask, rank - 2, s->product, s->rank - 2, 2) &&
         hr__graph_known_triangle(s->known, mask, &triangle) && triangle.at == at && triangle.above == above;
}

static bool find_added(search *s, hr_value masked, hr_value scores, hr_value mask) {
  if (!keeps_dims(s, scores, masked) || dtype_of(s->graph, mask) != dtype_of(s->graph, scores) ||
      s->reads[scores] != 1 || !find_product(s, scores) || !fit_mask(s, masked, mask)) {
    return false;
  }
  s->found.hidden = -(double)INFINITY;
  s->found.is_causal = is_causal(s, mask, 0, -(double)INFINITY);
  s->found.mask = s->found.is_causal ? 0 : mask;
  return true;
}

/* masked: the scores, or `number` where the mask is false (inverted: true). */
static bool find_selected(search *s, hr_value masked, hr_value mask, hr_value scores, hr_value number,
                          bool is_inverted) {
  double hidden = 0;
  if (dtype_of(s->graph, mask) != HR_DTYPE_BOOL || !hr__graph_known_number(s->known, number, &hidden) ||
      !keeps_dims(s, scores, masked) || s->reads[scores] != 1 || !find_product(s, scores) ||
      !fit_mask(s, masked, mask)) {
    return false;
  }
  s->found.hidden = hidden;
  s->found.is_causal = hidden == -(double)INFINITY && is_causal(s, mask, !is_inverted, is_inverted);
  s->found.mask = s->found.is_causal ? 0 : mask;
  s->found.is_inverted = is_inverted;
  return true;
}

static bool find_scores(search *s, hr_value masked) {
  masked = hr__graph_same_rows(s->graph, s->reads, masked, false);
  if (masked == 0) {
    return false;
  }
  const hr__node *node = hr__graph_node_of(s->graph, masked);
  const hr_value *in = node->inputs;
  if (is_call(node, HR_FUNCTIONAL_ADD)) {
    return find_added(s, masked, in[0], in[1]) || find_added(s, masked, in[1], in[0]);
  }
  if (is_call(node, HR_FUNCTIONAL_WHERE)) {
    return find_selected(s, masked, in[0], in[1], in[2], false) || find_selected(s, masked, in[0], in[2], in[1], true);
  }
  if (is_call(node, HR_FUNCTIONAL_MASKED_FILL)) {
    return find_selected(s, masked, in[1], in[0], in[2], true);
  }
  return find_product(s, masked);
}

/* Finds the rest behind the product of v and the probabilities, or of these and v. */
static bool find_shares(search *s, const hr__node *node, bool is_turned) {
  const hr_graph *g = s->graph;
  hr_value factor = node->inputs[is_turned];
  hr_value shares = s->reads[factor] == 1 ? hr__graph_same_rows(g, s->reads, factor, is_turned) : 0;
  hr_value masked = shares != 0 ? hr__graph_softmax_operand(s->known, s->reads, shares) : 0;
  if (masked == 0 || dtype_of(g, masked) != dtype_of(g, factor)) {
    return false;
  }
  s->found = (hr__attention){.v = node->inputs[!is_turned], .is_turned = is_turned};
  return find_scores(s, masked) && hr__graph_same_dims(g, s->product, 0, factor, 0, s->rank - 2) &&
         hr__graph_same_dims(g, s->product, s->rank - 2, factor, s->rank - 1 - !is_turned, 1);
}

/* True for one score of each head: single operations take less time than the row. */
static bool has_one_score(const search *s) {
  const hr__graph_value *product = hr__graph_value_of(s->graph, s->product);
  const int64_t *dims = product->facts->dims;
  return !product->varies && dims[s->rank - 2] == 1 && dims[s->rank - 1] == 1;
}

bool hr__graph_find_attention(hr__known *known, const int *reads, const hr__node *node, hr__attention *out_attention) {
  const hr_graph *graph = known->graph;
  if (!is_call(node, HR_FUNCTIONAL_MATMUL)) {
    return false;
  }
  search s = {.known = known, .graph = graph, .reads = reads, .rank = hr__graph_rank(graph, node->inputs[0])};
  bool is_found = is_plain_product(&s, node) && (find_shares(&s, node, false) || find_shares(&s, node, true));
  *out_attention = s.found;
  return is_found && !has_one_score(&s);
}

/* ---- the operation ---- */

static hr_graph_attribute real(const char *name, double number) {
  return (hr_graph_attribute){.name = name,
                              .value = {.kind = HR_ATTRIBUTE_REAL, .value = {.number = hr_scalar_f64(number)}}};
}

static hr_value turned(hr_graph *graph, hr_value x) {
  return hr_graph_add(graph, HR_FUNCTIONAL_SWAPAXES, 1, &x, 0, NULL);
}

static hr_value reshaped(hr_graph *graph, hr_value x, int rank, const int64_t *dims) {
  const hr_graph_attribute shape = {.name = "shape",
                                    .value = {.kind = HR_ATTRIBUTE_INTS, .count = rank, .value = {.ints = dims}}};
  return hr_graph_add(graph, HR_FUNCTIONAL_RESHAPE, 1, &x, 1, &shape);
}

hr_value hr__graph_add_attention(hr_graph *graph, const hr__attention *a) {
  hr_graph_attribute with[3] = {real("scale", a->scale), real("hidden", a->hidden)};
  int count = a->mask != 0 ? 2 : 1;
  if (a->is_causal) {
    with[count++] =
        (hr_graph_attribute){.name = "causal", .value = {.kind = HR_ATTRIBUTE_FLAG, .value = {.integer = 1}}};
  }
  hr_value mask = a->mask;
  if (mask != 0 && a->is_inverted) {
    mask = hr_graph_add(graph, HR_FUNCTIONAL_LOGICAL_NOT, 1, &mask, 0, NULL);
  }
  if (mask != 0 && a->mask_rank > 0) {
    mask = reshaped(graph, mask, a->mask_rank, a->mask_dims);
  }
  hr_value v = a->is_turned ? turned(graph, a->v) : a->v;
  const hr_value inputs[4] = {a->q, turned(graph, a->keys), v, mask};
  hr_value y = hr_graph_add(graph, HR_FUNCTIONAL_ATTENTION, 4, inputs, count, with);
  return a->is_turned ? turned(graph, y) : y;
}
