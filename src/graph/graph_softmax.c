/* graph_softmax.c: a softmax of the last dim, as one operation or composed as JAX writes it, and views with the same
 * rows.
 *
 *   %1 = max(%x, axis=[3])                  maximum with -infinity: the same
 *   %2 = broadcast(%1)                      reshape, broadcast_to
 *   %3 = subtract(%x, %2)
 *   %4 = exp(%3)
 *   %5 = sum(%4, axis=[3])                  0 added: the same
 *   %6 = broadcast(%5)
 *   %7 = divide(%4, %6)                     softmax(%x)
 *
 * Refused: values in between that another operation reads, as gradients do, and a softmax that subtracts no maximum.
 */
#include <math.h>

#include "graph/graph_attention.h"

static bool is_call(const hr__node *node, hr_functional function) {
  return node->kind == HR__NODE_CALL && node->function == function;
}

static hr_dtype dtype_of(const hr_graph *graph, hr_value value) {
  return hr__graph_value_of(graph, value)->facts->dtype;
}

/* True if two values have the same dims but for `fewer` at the end. */
static bool same_dims_but(const hr_graph *graph, hr_value x, hr_value y, int fewer) {
  int rank = hr__graph_rank(graph, x);
  return rank >= fewer && hr__graph_rank(graph, y) == rank && hr__graph_same_dims(graph, x, 0, y, 0, rank - fewer);
}

/* True for operations of one operand that keep the elements in their order. */
static bool is_view(const hr_graph *graph, const hr__node *node) {
  return (is_call(node, HR_FUNCTIONAL_RESHAPE) || is_call(node, HR_FUNCTIONAL_SQUEEZE) ||
          is_call(node, HR_FUNCTIONAL_EXPAND_DIMS) || is_call(node, HR_FUNCTIONAL_ASTYPE) ||
          is_call(node, HR_FUNCTIONAL_BROADCAST_TO)) &&
         dtype_of(graph, node->inputs[0]) == dtype_of(graph, node->first);
}

/* True if the call's attribute is the last dim of its operand, alone. */
static bool is_last_dim(const hr_graph *graph, const hr__node *node) {
  const hr__node_attribute *a = node->attribute_count > 0 ? &node->attributes[0] : NULL;
  int last = hr__graph_rank(graph, node->inputs[0]) - 1;
  if (a == NULL || a->values != NULL || a->list != 0 || last < 0) {
    return false;
  }
  bool is_list = a->value.kind == HR_ATTRIBUTE_INTS;
  if (a->value.kind != HR_ATTRIBUTE_INT && (!is_list || a->value.count != 1)) {
    return false;
  }
  int64_t axis = is_list ? a->value.value.ints[0] : a->value.value.integer;
  return axis == -1 || axis == last;
}

/* ---- the softmax ---- */

/* True for a value [..], [.., 1] or [.., S] beside x [.., S]. */
static bool is_beside(const hr_graph *graph, hr_value x, hr_value y) {
  int rank = hr__graph_rank(graph, x), own = hr__graph_rank(graph, y);
  return (own == rank || own == rank - 1) && hr__graph_same_dims(graph, x, 0, y, 0, rank - 1);
}

/* The operand of a function of a value and a number; 0: none. */
static hr_value beside_number(hr__known *known, const hr__node *node, double number) {
  for (int i = 0; i < 2; ++i) {
    double other;
    if (hr__graph_known_number(known, node->inputs[i], &other) && other == number &&
        same_dims_but(known->graph, node->inputs[1 - i], node->first, 0)) {
      return node->inputs[1 - i];
    }
  }
  return 0;
}

/* Goes from y [.., S], an element of which belongs to a row of x, to the reduction of x whose results these are.
 * neutral: a function with a number that changes no result of it. */
static const hr__node *reduction_of(hr__known *known, const int *reads, hr_value x, hr_value y, hr_functional neutral,
                                    double number) {
  const hr_graph *graph = known->graph;
  if (hr__graph_rank(graph, y) != hr__graph_rank(graph, x)) {
    return NULL;
  }
  for (;;) {
    const hr__node *node = hr__graph_node_of(graph, y);
    if (reads[y] != 1 || !is_beside(graph, x, y)) {
      return NULL;
    }
    if (is_call(node, neutral)) {
      y = beside_number(known, node, number);
    } else if (is_view(graph, node)) {
      bool repeats = node->function == HR_FUNCTIONAL_BROADCAST_TO;
      y = repeats && hr__graph_rank(graph, y) != hr__graph_rank(graph, node->inputs[0]) ? 0 : node->inputs[0];
    } else {
      return node;
    }
    if (y == 0) {
      return NULL;
    }
  }
}

static bool is_reduction(const hr_graph *graph, const hr__node *node, hr_functional function, hr_value of) {
  return node != NULL && is_call(node, function) && node->inputs[0] == of && is_last_dim(graph, node) &&
         dtype_of(graph, node->first) == dtype_of(graph, of);
}

static hr_value composed_operand(hr__known *known, const int *reads, const hr__node *quotient) {
  const hr_graph *graph = known->graph;
  hr_value powers = quotient->inputs[0];
  const hr__node *power = hr__graph_node_of(graph, powers);
  if (!is_call(power, HR_FUNCTIONAL_EXP) || reads[powers] != 2 || reads[power->inputs[0]] != 1) {
    return 0;
  }
  const hr__node *difference = hr__graph_node_of(graph, power->inputs[0]);
  if (!is_call(difference, HR_FUNCTIONAL_SUBTRACT)) {
    return 0;
  }
  hr_value x = difference->inputs[0];
  if (reads[x] != 2 || !same_dims_but(graph, x, powers, 0) || !same_dims_but(graph, x, quotient->first, 0)) {
    return 0;
  }
  const hr__node *sum = reduction_of(known, reads, powers, quotient->inputs[1], HR_FUNCTIONAL_ADD, 0);
  const hr__node *best = reduction_of(known, reads, x, difference->inputs[1], HR_FUNCTIONAL_MAXIMUM, -(double)INFINITY);
  bool is_right =
      is_reduction(graph, sum, HR_FUNCTIONAL_SUM, powers) && is_reduction(graph, best, HR_FUNCTIONAL_MAX, x);
  return is_right ? x : 0;
}

hr_value hr__graph_softmax_operand(hr__known *known, const int *reads, hr_value shares) {
  const hr_graph *graph = known->graph;
  const hr__node *node = hr__graph_node_of(graph, shares);
  if (is_call(node, HR_FUNCTIONAL_DIVIDE)) {
    return composed_operand(known, reads, node);
  }
  bool is_default = node->attribute_count == 0 || node->attributes[0].value.kind == HR_ATTRIBUTE_NONE;
  return is_call(node, HR_FUNCTIONAL_SOFTMAX) && (is_default || is_last_dim(graph, node)) && reads[node->inputs[0]] == 1
             ? node->inputs[0]
             : 0;
}

/* ---- views ---- */

/* The places of a value's elements in one with another order of dims. */
typedef struct order {
  int rank;
  int64_t dims[HR_RANK_MAX], strides[HR_RANK_MAX];
} order;

/* Row-major; turned: of matrices whose last two dims are the other way round. False: dims depend on symbols. */
static bool start_order(const hr_graph *graph, hr_value x, bool is_turned, order *out) {
  const hr__graph_value *value = hr__graph_value_of(graph, x);
  int64_t stride = 1;
  if (value->varies || !value->facts->is_set || value->facts->rank < 2) {
    return false;
  }
  *out = (order){.rank = value->facts->rank};
  for (int d = out->rank - 1; d >= 0; --d) {
    int at = is_turned && d >= out->rank - 2 ? 2 * out->rank - 3 - d : d;
    out->dims[at] = value->facts->dims[at], out->strides[at] = stride;
    stride *= out->dims[at];
  }
  return true;
}

/* Dims of 1 come or go. False: other dims change. */
static bool regroup(order *o, const hr__fact *to) {
  order next = {.rank = to->rank};
  int from = 0;
  for (int d = 0; d < to->rank; ++d) {
    next.dims[d] = to->dims[d];
    if (to->dims[d] == 1) {
      continue;
    }
    while (from < o->rank && o->dims[from] == 1) {
      ++from;
    }
    if (from == o->rank || o->dims[from] != to->dims[d]) {
      return false;
    }
    next.strides[d] = o->strides[from++];
  }
  while (from < o->rank && o->dims[from] == 1) {
    ++from;
  }
  bool is_whole = from == o->rank;
  *o = next;
  return is_whole;
}

/* From the result of permute_dims to its operand. */
static bool permute_back(order *o, const hr__node *node) {
  const hr__node_attribute *axes = node->attribute_count > 0 ? &node->attributes[0] : NULL;
  order next = {.rank = o->rank};
  if (axes == NULL || axes->value.kind != HR_ATTRIBUTE_INTS || axes->values != NULL || axes->list != 0 ||
      axes->value.count != o->rank) {
    return false;
  }
  for (int d = 0; d < o->rank; ++d) {
    int64_t axis = axes->value.value.ints[d];
    axis = axis < 0 ? axis + o->rank : axis;
    next.dims[axis] = o->dims[d], next.strides[axis] = o->strides[d];
  }
  *o = next;
  return true;
}

/* True for rows of `columns` elements, each row behind the one before. */
static bool is_row_major(const order *o, int64_t columns) {
  int64_t stride = 1;
  for (int d = o->rank - 1; d >= 0; --d) {
    if (o->dims[d] != 1 && o->strides[d] != stride) {
      return false;
    }
    stride *= o->dims[d];
  }
  return o->rank >= 1 && o->dims[o->rank - 1] == columns;
}

hr_value hr__graph_same_rows(const hr_graph *graph, const int *reads, hr_value x, bool is_turned) {
  order o = {0};
  bool is_known = start_order(graph, x, is_turned, &o);
  int64_t columns = is_known ? o.dims[o.rank - 1 - is_turned] : 0;
  for (;;) {
    const hr__node *node = hr__graph_node_of(graph, x);
    bool is_permuted = is_call(node, HR_FUNCTIONAL_PERMUTE_DIMS);
    if (!is_permuted && !is_view(graph, node)) {
      return (is_known ? is_row_major(&o, columns) : !is_turned) ? x : 0;
    }
    bool is_same = !is_permuted && same_dims_but(graph, node->inputs[0], x, 0);
    if (!is_same &&
        (!is_known || hr__graph_value_of(graph, node->inputs[0])->varies ||
         !(is_permuted ? permute_back(&o, node) : regroup(&o, hr__graph_value_of(graph, node->inputs[0])->facts)))) {
      return 0;
    }
    x = node->inputs[0];
    if (reads[x] != 1) {
      return 0;
    }
  }
}
