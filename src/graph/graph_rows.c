/* graph_rows.c: the rows of a symbol: dims along which a graph computes each slice from the same slices of its inputs.
 *
 * A value *has rows* along an axis if this dim is the symbol, no other dim depends on it, and slice i depends on slice
 * i of the inputs alone, or on those up to i: causal attention. Then more slices behind the last one change no slice
 * before: a batch or a sequence may be padded. Each function has a rule for the axis of its results; functions without
 * a rule have no rows. Sizes that the host computes from the symbol may be attributes, but no operands: a mean that
 * divides by the size of a batch does not keep rows apart. An arange up to the symbol has rows: its first elements are
 * those of a shorter one.
 */
#include "functional/functions.h"
#include "graph/graph_node.h"

enum {
  APART = -1,   /* does not depend on the symbol */
  NUMBERS = -2, /* the host computes it from the symbol */
  MIXED = -3    /* depends on the symbol in another way */
};

typedef struct rows {
  const hr_graph *graph;
  const char *symbol;
  int *axes; /* by value: the axis, or one of those above */
} rows;

/* ---- types ---- */

static hr_type type_of(const rows *r, hr_value value) {
  hr_type type = {.dtype = HR_DTYPE_NONE};
  hr_status_free(hr_graph_type(r->graph, value, &type));
  return type;
}

static int rank_of(const rows *r, hr_value value) {
  return type_of(r, value).rank;
}

static bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/* True for a description of a dim that may depend on the symbol. */
static bool mentions(const char *text, const char *symbol) {
  size_t length = strlen(symbol);
  if (strcmp(text, "?") == 0) {
    return true;
  }
  for (const char *at = strstr(text, symbol); at != NULL; at = strstr(at + 1, symbol)) {
    if ((at == text || !is_letter(at[-1])) && !is_letter(at[length])) {
      return true;
    }
  }
  return false;
}

/* The dim that is the symbol, if no other one depends on it. */
static int find_axis(const rows *r, hr_value value) {
  const hr_type type = type_of(r, value);
  int axis = APART;
  for (int d = 0; d < type.rank; ++d) {
    if (type.symbols[d] != NULL && mentions(type.symbols[d], r->symbol)) {
      axis = axis == APART && strcmp(type.symbols[d], r->symbol) == 0 ? d : MIXED;
    }
  }
  return axis;
}

static bool is_known(const rows *r, hr_value value) {
  const hr__graph_value *v = hr__graph_value_of(r->graph, value);
  for (int p = 0; p < (v->varies ? HR__GRAPH_POINTS : 1); ++p) {
    const hr__fact *fact = &v->facts[p * v->stride];
    if (fact->is_set && fact->numbers == NULL) {
      return false;
    }
  }
  return true;
}

/* True if the value has size 1, or no dim, so many dims before its last one. */
static bool is_broadcast(const rows *r, hr_value value, int from_right) {
  const hr_type type = type_of(r, value);
  return from_right >= type.rank || type.dims[type.rank - 1 - from_right] == 1;
}

/* ---- attributes ---- */

static const hr__node_attribute *find_attribute(const hr__node *node, const char *name) {
  const hr__function_row *row = hr__function_row_of(node->function);
  for (int i = 0; i < node->attribute_count && row->attributes[i].name != NULL; ++i) {
    if (strcmp(row->attributes[i].name, name) == 0 && node->attributes[i].value.kind != HR_ATTRIBUTE_NONE) {
      return &node->attributes[i];
    }
  }
  return NULL;
}

/* An INT or FLAG, or its default; sets false if it is computed. */
static int64_t integer_of(const hr__node *node, const char *name, int64_t otherwise, bool *is_fixed) {
  const hr__node_attribute *a = find_attribute(node, name);
  *is_fixed &= a == NULL || a->values == NULL || a->values[0] == 0;
  return a != NULL ? a->value.value.integer : otherwise;
}

/* Element i of INTS; sets false if it is computed or not there. */
static int64_t element_of(const hr__node_attribute *a, int i, bool *is_fixed) {
  *is_fixed &= a != NULL && a->list == 0 && i < a->value.count && (a->values == NULL || a->values[i] == 0);
  return *is_fixed ? a->value.value.ints[i] : 0;
}

static int count_of(const hr__node_attribute *a) {
  return a != NULL && a->list == 0 ? a->value.count : 0;
}

/* An axis from the begin; MIXED: it is computed. */
static int axis_of(const hr__node *node, const char *name, int64_t otherwise, int rank) {
  bool is_fixed = true;
  int64_t axis = integer_of(node, name, otherwise, &is_fixed);
  return is_fixed ? (int)(axis < 0 ? axis + rank : axis) : MIXED;
}

/* True if the axis is among those of the attribute; without it, all are, and computed ones may be. */
static bool is_among(const hr__node *node, const char *name, int axis, int rank) {
  const hr__node_attribute *a = find_attribute(node, name);
  bool is_fixed = a != NULL && a->list == 0, is_found = false;
  for (int i = 0; i < count_of(a); ++i) {
    int64_t given = element_of(a, i, &is_fixed);
    is_found |= (given < 0 ? given + rank : given) == axis;
  }
  return !is_fixed || is_found;
}

/* The number of axes of the attribute before this one. */
static int count_before(const hr__node *node, const char *name, int axis, int rank) {
  const hr__node_attribute *a = find_attribute(node, name);
  bool is_fixed = true;
  int count = 0;
  for (int i = 0; i < count_of(a); ++i) {
    int64_t given = element_of(a, i, &is_fixed);
    count += (given < 0 ? given + rank : given) < axis;
  }
  return count;
}

/* ---- rules: the axis of the first result ---- */

/* The only axis of the inputs, which other inputs lack; MIXED: another one than the first has it. */
static int first_alone(const rows *r, const hr__node *node) {
  for (int i = 1; i < node->input_count; ++i) {
    if (node->inputs[i] != 0 && r->axes[node->inputs[i]] != APART) {
      return MIXED;
    }
  }
  return r->axes[node->inputs[0]];
}

/* The same axis of all inputs, from the begin. */
static int all_alike(const rows *r, const hr__node *node) {
  int axis = r->axes[node->inputs[0]];
  for (int i = 1; i < node->input_count; ++i) {
    axis = node->inputs[i] == 0 || r->axes[node->inputs[i]] == axis ? axis : MIXED;
  }
  return axis;
}

static int pointwise(const rows *r, const hr__node *node) {
  int right = -1;
  for (int i = 0; i < node->input_count; ++i) {
    int axis = node->inputs[i] != 0 ? r->axes[node->inputs[i]] : APART;
    if (axis >= 0) {
      int from_right = rank_of(r, node->inputs[i]) - 1 - axis;
      if (right >= 0 && right != from_right) {
        return MIXED;
      }
      right = from_right;
    }
  }
  for (int i = 0; i < node->input_count; ++i) {
    if (node->inputs[i] != 0 && r->axes[node->inputs[i]] == APART && !is_broadcast(r, node->inputs[i], right)) {
      return MIXED;
    }
  }
  return rank_of(r, node->first) - 1 - right;
}

/* Elements along `axis` are mixed, those of other axes are not. */
static int along_axis(const rows *r, const hr__node *node) {
  int axis = first_alone(r, node), mixed = axis_of(node, "axis", -1, rank_of(r, node->inputs[0]));
  return mixed >= 0 && mixed != axis ? axis : MIXED;
}

static int reduction(const rows *r, const hr__node *node) {
  bool is_fixed = true;
  int axis = first_alone(r, node), rank = rank_of(r, node->inputs[0]);
  int64_t keeps = integer_of(node, "keepdims", 0, &is_fixed);
  if (axis < 0 || !is_fixed || is_among(node, "axis", axis, rank)) {
    return MIXED;
  }
  return keeps != 0 ? axis : axis - count_before(node, "axis", axis, rank);
}

/* The last `dims` dims are mixed. */
static int leading(const rows *r, const hr__node *node, int64_t dims) {
  int axis = first_alone(r, node);
  return axis >= 0 && axis < rank_of(r, node->inputs[0]) - dims ? axis : MIXED;
}

static int layer_norm(const rows *r, const hr__node *node) {
  bool is_fixed = true;
  int64_t dims = integer_of(node, "dims", 1, &is_fixed);
  return is_fixed ? leading(r, node, dims) : MIXED;
}

/* Images, the first dim. */
static int images(const rows *r, const hr__node *node) {
  return first_alone(r, node) == 0 ? 0 : MIXED;
}

static int batch_norm(const rows *r, const hr__node *node) {
  int axis = first_alone(r, node), channels = axis_of(node, "axis", 1, rank_of(r, node->inputs[0]));
  return channels >= 0 && channels != axis ? axis : MIXED;
}

/* True for q, k and v with the axis of queries and keys, each query of which sees no later key. */
static bool is_causal(const rows *r, const hr__node *node) {
  enum { SEQUENCE = 2 };
  bool is_fixed = true;
  bool is_right = integer_of(node, "causal", 0, &is_fixed) != 0 && integer_of(node, "offset", 0, &is_fixed) <= 0;
  for (int i = 0; i < node->input_count; ++i) {
    hr_value x = node->inputs[i];
    is_right &= i < 3 ? r->axes[x] == SEQUENCE : x == 0;
  }
  return is_right && is_fixed;
}

static int attention(const rows *r, const hr__node *node) {
  int axis = 0;
  if (is_causal(r, node)) {
    return r->axes[node->inputs[0]];
  }
  for (int i = 0; i < node->input_count; ++i) {
    hr_value x = node->inputs[i];
    bool is_right = x == 0 || r->axes[x] == 0 || (i == 3 && r->axes[x] == APART && is_broadcast(r, x, 3));
    axis = is_right && (i < 3 || x == 0 || r->axes[x] == APART || rank_of(r, x) == 4) ? axis : MIXED;
  }
  return axis;
}

/* One factor with the axis among its outer dims or its rows or columns, or both among their outer dims. */
static int matmul(const rows *r, const hr__node *node) {
  hr_value x = node->inputs[0], y = node->inputs[1];
  int a = r->axes[x], b = r->axes[y], rank = rank_of(r, x), other = rank_of(r, y), of = rank_of(r, node->first);
  if (rank < 2 || other < 2 || (a < 0 && b < 0)) {
    return rank >= 2 && other == 1 && b == APART && a < rank - 1 ? a : MIXED;
  }
  int x_right = a >= 0 ? rank - 1 - a : -1, y_right = b >= 0 ? other - 1 - b : -1;
  if (a >= 0 && b >= 0) {
    return x_right == y_right && x_right >= 2 ? of - 1 - x_right : MIXED;
  }
  if (b == APART && x_right >= 1) {
    return x_right == 1 || is_broadcast(r, y, x_right) ? of - 1 - x_right : MIXED;
  }
  if (a == APART && y_right != 1) {
    return y_right == 0 || is_broadcast(r, x, y_right) ? of - 1 - y_right : MIXED;
  }
  return MIXED;
}

static int take(const rows *r, const hr__node *node) {
  hr_value x = node->inputs[0], indices = node->inputs[1];
  int axis = axis_of(node, "axis", 0, rank_of(r, x)), a = r->axes[x];
  if (axis < 0) {
    return MIXED;
  }
  if (a == APART) {
    return r->axes[indices] >= 0 ? axis + r->axes[indices] : MIXED;
  }
  if (r->axes[indices] != APART || a < 0 || a == axis) {
    return MIXED;
  }
  return a < axis ? a : a - 1 + rank_of(r, indices);
}

static int join(const rows *r, const hr__node *node) {
  int axis = all_alike(r, node), joined = axis_of(node, "axis", 0, rank_of(r, node->first));
  if (axis < 0 || joined < 0 || (node->function == HR_FUNCTIONAL_CONCAT && joined == axis)) {
    return MIXED;
  }
  return axis + (node->function == HR_FUNCTIONAL_STACK && joined <= axis);
}

static int64_t dims_before(const hr__fact *fact, int axis) {
  int64_t count = 1;
  for (int d = 0; d < axis; ++d) {
    count *= fact->dims[d];
  }
  return count;
}

/* Elements stay in their order: an axis stays one if as many elements stand before it. */
static int reshape(const rows *r, const hr__node *node) {
  int axis = first_alone(r, node), to = find_axis(r, node->first);
  const hr__graph_value *x = hr__graph_value_of(r->graph, node->inputs[0]);
  const hr__graph_value *y = hr__graph_value_of(r->graph, node->first);
  if (axis < 0 || to < 0) {
    return MIXED;
  }
  for (int p = 0; p < HR__GRAPH_POINTS; ++p) {
    const hr__fact *from = &x->facts[(x->varies ? p : 0) * x->stride], *at = &y->facts[(y->varies ? p : 0) * y->stride];
    if (from->is_set && at->is_set && dims_before(from, axis) != dims_before(at, to)) {
      return MIXED;
    }
  }
  return to;
}

/* The value has the same elements along a new dim, or along one of size 1. */
static int broadcast(const rows *r, const hr__node *node) {
  int axis = r->axes[node->inputs[0]], to = find_axis(r, node->first);
  int right = rank_of(r, node->first) - 1 - to;
  if (axis == APART) {
    return to >= 0 && is_broadcast(r, node->inputs[0], right) ? to : MIXED;
  }
  return axis >= 0 && rank_of(r, node->inputs[0]) - 1 - axis == right ? to : MIXED;
}

static int permute(const rows *r, const hr__node *node) {
  const hr__node_attribute *axes = find_attribute(node, "axes");
  int axis = first_alone(r, node), rank = rank_of(r, node->inputs[0]), to = MIXED;
  bool is_fixed = true;
  if (axes == NULL) {
    return axis >= 0 ? rank - 1 - axis : MIXED;
  }
  for (int i = 0; i < count_of(axes); ++i) {
    int64_t from = element_of(axes, i, &is_fixed);
    to = (from < 0 ? from + rank : from) == axis ? i : to;
  }
  return is_fixed ? to : MIXED;
}

static int swap_axes(const rows *r, const hr__node *node) {
  int axis = first_alone(r, node), rank = rank_of(r, node->inputs[0]);
  int a = axis_of(node, "axis1", -2, rank), b = axis_of(node, "axis2", -1, rank);
  int place = axis == a ? b : axis == b ? a : axis;
  return axis >= 0 && a >= 0 && b >= 0 ? place : MIXED;
}

static int expand(const rows *r, const hr__node *node) {
  int axis = first_alone(r, node), rank = rank_of(r, node->first);
  for (int at = 0; axis >= 0 && at < rank; ++at) {
    if (!is_among(node, "axis", at, rank) && at - count_before(node, "axis", at, rank) == axis) {
      return at;
    }
  }
  return MIXED;
}

static int squeeze(const rows *r, const hr__node *node) {
  int axis = first_alone(r, node), rank = rank_of(r, node->inputs[0]);
  bool is_among_them = find_attribute(node, "axis") == NULL || is_among(node, "axis", axis, rank);
  return axis >= 0 && !is_among_them ? axis - count_before(node, "axis", axis, rank) : MIXED;
}

static int flip(const rows *r, const hr__node *node) {
  int axis = first_alone(r, node);
  return axis >= 0 && !is_among(node, "axis", axis, rank_of(r, node->inputs[0])) ? axis : MIXED;
}

/* All of the dim. */
static int slice(const rows *r, const hr__node *node) {
  int axis = first_alone(r, node);
  bool is_fixed = axis >= 0;
  int64_t begin = element_of(find_attribute(node, "begin"), axis, &is_fixed);
  int64_t step = element_of(find_attribute(node, "step"), axis, &is_fixed);
  return is_fixed && begin == 0 && step == 1 ? axis : MIXED;
}

/* Nothing at both ends of the dim, nor between its slices. */
static int pad(const rows *r, const hr__node *node) {
  int axis = first_alone(r, node);
  const hr__node_attribute *interior = find_attribute(node, "interior");
  bool is_fixed = axis >= 0;
  int64_t sides = element_of(find_attribute(node, "before"), axis, &is_fixed);
  sides |= element_of(find_attribute(node, "after"), axis, &is_fixed);
  sides |= interior != NULL ? element_of(interior, axis, &is_fixed) : 0;
  return is_fixed && sides == 0 ? axis : MIXED;
}

/* Rules by the function that records; HR_FUNCTIONAL_* of one function have its name. */
static const struct {
  hr_status (*emit)(const hr__function_call *call);
  int (*rule)(const rows *r, const hr__node *node);
} rules[] = {
    {hr__emit_pointwise, pointwise},
    {hr__emit_parametric, pointwise},
    {hr__emit_floor_divide, pointwise},
    {hr__emit_remainder, pointwise},
    {hr__emit_magnitude, pointwise},
    {hr__emit_sign, pointwise},
    {hr__emit_clip, pointwise},
    {hr__emit_rounded, pointwise},
    {hr__emit_modf, pointwise},
    {hr__emit_divmod, pointwise},
    {hr__emit_positive, pointwise},
    {hr__emit_cbrt, pointwise},
    {hr__emit_ldexp, pointwise},
    {hr__emit_scaled, pointwise},
    {hr__emit_nan_to_num, pointwise},
    {hr__emit_gelu, pointwise},
    {hr__emit_step, pointwise},
    {hr__emit_relu2, pointwise},
    {hr__emit_elu, pointwise},
    {hr__emit_celu, pointwise},
    {hr__emit_selu, pointwise},
    {hr__emit_hard_sigmoid, pointwise},
    {hr__emit_softsign, pointwise},
    {hr__emit_log_sigmoid, pointwise},
    {hr__emit_isnan, pointwise},
    {hr__emit_isinf, pointwise},
    {hr__emit_isfinite, pointwise},
    {hr__emit_invert, pointwise},
    {hr__emit_astype, pointwise},
    {hr__emit_masked_fill, pointwise},
    {hr__emit_along_axis, along_axis},
    {hr__emit_softmin, along_axis},
    {hr__emit_glu, along_axis},
    {hr__emit_cumulative, along_axis},
    {hr__emit_reduce, reduction},
    {hr__emit_best, reduction},
    {hr__emit_variance, reduction},
    {hr__emit_deviation, reduction},
    {hr__emit_best_place, reduction},
    {hr__emit_layer_norm, layer_norm},
    {hr__emit_batch_norm, batch_norm},
    {hr__emit_group_norm, images},
    {hr__emit_conv, images},
    {hr__emit_conv_transpose, images},
    {hr__emit_pool, images},
    {hr__emit_max_pool_places, images},
    {hr__emit_lp_pool, images},
    {hr__emit_local_response_norm, images},
    {hr__emit_attention, attention},
    {hr__emit_matmul, matmul},
    {hr__emit_concat, join},
    {hr__emit_stack, join},
    {hr__emit_reshape, reshape},
    {hr__emit_broadcast_to, broadcast},
    {hr__emit_full, broadcast},
    {hr__emit_permute_dims, permute},
    {hr__emit_swapaxes, swap_axes},
    {hr__emit_expand_dims, expand},
    {hr__emit_squeeze, squeeze},
    {hr__emit_flip, flip},
    {hr__emit_slice, slice},
    {hr__emit_pad, pad},
};

/* start, start + step, ... for each slice, if neither number depends on the symbol. */
static int arange(const rows *r, const hr__node *node) {
  static const char *const fixed[] = {"start", "step"};
  for (int i = 0; i < 2; ++i) {
    const hr__node_attribute *a = find_attribute(node, fixed[i]);
    if (a != NULL && a->values != NULL && a->values[0] != 0 && r->axes[a->values[0]] != APART) {
      return MIXED;
    }
  }
  return find_axis(r, node->first);
}

/* Functions that record as another one does, but mean something else by it. */
static int apply_rule(const rows *r, const hr__node *node) {
  if (node->function == HR_FUNCTIONAL_TAKE) {
    return take(r, node);
  }
  if (node->function == HR_FUNCTIONAL_ARANGE) {
    return arange(r, node);
  }
  if (node->function == HR_FUNCTIONAL_RMS_NORM) {
    return leading(r, node, 1);
  }
  for (size_t i = 0; i < sizeof rules / sizeof *rules; ++i) {
    if (rules[i].emit == hr__function_row_of(node->function)->emit) {
      return rules[i].rule(r, node);
    }
  }
  return MIXED;
}

/* ---- nodes ---- */

typedef struct inputs {
  const rows *r;
  bool are_apart, have_numbers;
} inputs;

static void note_input(void *arg, const hr_value *value) {
  inputs *n = arg;
  n->are_apart &= n->r->axes[*value] == APART;
  n->have_numbers |= n->r->axes[*value] == NUMBERS;
}

static bool has_mixed_attribute(const rows *r, const hr__node *node) {
  hr__node alone = *node;
  inputs n = {r, true, false};
  alone.input_count = 0;
  hr__node_each_input(&alone, note_input, &n);
  bool may_have = node->function == HR_FUNCTIONAL_RESHAPE || node->function == HR_FUNCTIONAL_BROADCAST_TO ||
                  node->function == HR_FUNCTIONAL_FULL || node->function == HR_FUNCTIONAL_SLICE ||
                  node->function == HR_FUNCTIONAL_ARANGE;
  return !n.are_apart && !may_have;
}

/* The axis of the first result of a call. */
static int find_rows(const rows *r, const hr__node *node) {
  for (int i = 0; i < node->input_count; ++i) {
    if (node->inputs[i] != 0 && r->axes[node->inputs[i]] < APART) {
      return MIXED;
    }
  }
  return has_mixed_attribute(r, node) ? MIXED : apply_rule(r, node);
}

static int of_node(const rows *r, const hr__node *node) {
  inputs n = {r, true, false};
  hr__node_each_input(node, note_input, &n);
  if (node->kind == HR__NODE_INPUT) {
    return find_axis(r, node->first);
  }
  if (node->kind == HR__NODE_SYMBOL) {
    return strcmp(r->graph->symbols.data[node->symbol], r->symbol) == 0 ? NUMBERS : APART;
  }
  if (n.are_apart) {
    return APART;
  }
  int axis = node->kind == HR__NODE_CALL ? find_rows(r, node) : MIXED;
  bool is_number = axis < 0 && node->result_count == 1 && is_known(r, node->first);
  return is_number ? NUMBERS : axis;
}

static hr_status refuse(const rows *r, const hr__node *node) {
  char text[HR__GRAPH_NAME_TEXT];
  const char *name = node->kind == HR__NODE_CALL ? hr_functional_name(node->function) : "its operation";
  return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "\"%s\" (%s) does not keep the rows of \"%s\" apart",
                        hr__graph_label(r->graph, node->first, text), node->kind == HR__NODE_INPUT ? "input" : name,
                        r->symbol);
}

static hr_status note_results(const rows *r, const hr__node *node) {
  int axis = of_node(r, node);
  for (int i = 0; i < node->result_count; ++i) {
    if (axis == MIXED || (axis >= 0 && find_axis(r, node->first + i) != axis)) {
      return refuse(r, node);
    }
    r->axes[node->first + i] = axis;
  }
  return HR_OK;
}

static hr_status find_all(const rows *r, int *out_inputs, int *out_outputs) {
  const hr_graph *graph = r->graph;
  for (size_t n = 0; n < graph->nodes.count; ++n) {
    HR_RETURN_IF_ERROR(note_results(r, &graph->nodes.data[n]));
  }
  for (size_t i = 0; i < graph->inputs.count; ++i) {
    out_inputs[i] = r->axes[graph->inputs.data[i]];
  }
  for (size_t i = 0; i < graph->outputs.count; ++i) {
    hr_value value = graph->outputs.data[i].value;
    if (r->axes[value] == NUMBERS) {
      return refuse(r, hr__graph_node_of(graph, value));
    }
    out_outputs[i] = r->axes[value];
  }
  for (size_t i = 0; i < graph->assigned.count; ++i) {
    if (graph->assigned.data[i] != 0 && r->axes[graph->assigned.data[i]] != APART) {
      return refuse(r, hr__graph_node_of(graph, graph->assigned.data[i]));
    }
  }
  return HR_OK;
}

hr_status hr__graph_find_rows(const hr_graph *graph, const char *symbol, int *out_inputs, int *out_outputs) {
  rows r = {.graph = graph, .symbol = symbol};
  bool exists = false;
  for (size_t s = 0; s < graph->symbols.count; ++s) {
    exists |= strcmp(graph->symbols.data[s], symbol) == 0;
  }
  if (!exists) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "the graph has no symbol \"%.64s\"", symbol);
  }
  r.axes = hr_calloc(graph->values.count, sizeof *r.axes);
  hr_status status = r.axes != NULL ? find_all(&r, out_inputs, out_outputs)
                                    : hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "graph: no host memory for rows");
  hr_free(r.axes);
  return status;
}
