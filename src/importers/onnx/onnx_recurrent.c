/* onnx_recurrent.c: RNN, GRU and LSTM: one recurrent layer for each direction. */
#include "importers/onnx/onnx_importer.h"

typedef struct layer {
  hr_value x; /* [B, L, I] */
  hr_value weight, recurrent, bias, recurrent_bias, hidden, cell, peepholes, lengths;
  int64_t size;
  bool is_reverse;
  const char *activations[3];
} layer;

/* ---- weights ---- */

/* Slice `direction` of dim `axis`, without it. */
static hr_value part_of(hr__onnx_node *node, hr_value x, int axis, int direction) {
  return x != 0 ? hr__onnx_squeeze_dim(node, hr__onnx_narrow(node, x, axis, direction, 1), axis) : 0;
}

/* Parts of dim 0 in another order. */
static hr_value reorder(hr__onnx_node *node, hr_value x, int count, const int *order, int64_t size) {
  hr_value parts[4];
  if (x == 0) {
    return 0;
  }
  for (int i = 0; i < count; ++i) {
    parts[i] = hr__onnx_narrow(node, x, 0, order[i] * size, size);
  }
  return ADD(node, CONCAT, count, parts, WITH(hr__with_int("axis", 0)));
}

/* ---- activations ---- */

typedef struct activation_name {
  const char *onnx, *own;
} activation_name;
/* Not HardSigmoid, whose slope is 0.2 in ONNX, but 1 / 6 in a layer. */
static const activation_name names[] = {
    {"Tanh", "tanh"},         {"Sigmoid", "sigmoid"}, {"Relu", "relu"},     {"Softsign", "softsign"},
    {"Softplus", "softplus"}, {"Elu", "elu"},         {"Affine", "linear"},
};

static const char *activation(hr__onnx_node *node, hr__span text) {
  for (size_t i = 0; i < sizeof names / sizeof *names; ++i) {
    if (hr__span_is(text, names[i].onnx)) {
      return names[i].own;
    }
  }
  HR__ONNX_REFUSE(node, "activation \"%.32s\"", hr__onnx_string(node, text));
  return "tanh";
}

/* Of one direction; usual ones without the attribute. Their parameters have the defaults. */
static void read_activations(hr__onnx_node *node, int direction, int count, layer *l) {
  enum { TEXTS = 9, ROOM = 6 };
  hr__span texts[ROOM];
  int64_t given = 0;
  const hr__onnx_attribute *attribute = hr__onnx_find_attribute(node, "activations");
  for (int i = 0; i < 3; ++i) {
    l->activations[i] = i == 0 && count > 1 ? "sigmoid" : "tanh";
  }
  if (attribute == NULL) {
    return;
  }
  if (hr__onnx_find_attribute(node, "activation_alpha") != NULL ||
      hr__onnx_find_attribute(node, "activation_beta") != NULL) {
    HR__ONNX_REFUSE(node, "parameters of activations");
  }
  hr_status_ignore(hr__onnx_read_spans(attribute->message, TEXTS, ROOM, texts, &given));
  for (int i = 0; i < count && direction * count + i < given && given <= ROOM; ++i) {
    l->activations[i] = activation(node, texts[direction * count + i]);
  }
}

/* ---- one direction ---- */

static hr_graph_attribute reverse_of(const layer *l) {
  return hr__with_flag("reverse", l->is_reverse);
}
static hr_graph_attribute clip_of(hr__onnx_node *node) {
  return hr__with_real("clip", hr__onnx_real(node, "clip", 0));
}

static hr_value run_rnn(hr__onnx_node *node, layer *l) {
  hr_value bias = l->bias != 0 ? CALL(node, ADD, l->bias, l->recurrent_bias) : 0;
  return ADD(node, RNN, IN(l->x, l->weight, l->recurrent, bias, l->hidden, l->lengths),
             WITH(hr__with_text("activation", l->activations[0]), reverse_of(l), clip_of(node)));
}

static hr_value run_gru(hr__onnx_node *node, layer *l) {
  static const int order[3] = {1, 0, 2}; /* z r h */
  hr_value weight = reorder(node, l->weight, 3, order, l->size);
  hr_value recurrent = reorder(node, l->recurrent, 3, order, l->size);
  hr_value bias = reorder(node, l->bias, 3, order, l->size);
  hr_value recurrent_bias = reorder(node, l->recurrent_bias, 3, order, l->size);
  return ADD(node, GRU, IN(l->x, weight, recurrent, bias, recurrent_bias, l->hidden, l->lengths),
             WITH(hr__with_text("gate", l->activations[0]), hr__with_text("activation", l->activations[1]),
                  reverse_of(l), clip_of(node),
                  hr__with_flag("reset_before", hr__onnx_int(node, "linear_before_reset", 0) == 0)));
}

static hr_value run_lstm(hr__onnx_node *node, layer *l) {
  static const int order[4] = {0, 2, 3, 1}, peephole_order[3] = {0, 2, 1}; /* i o f c */
  hr_value weight = reorder(node, l->weight, 4, order, l->size);
  hr_value recurrent = reorder(node, l->recurrent, 4, order, l->size);
  hr_value sum = l->bias != 0 ? CALL(node, ADD, l->bias, l->recurrent_bias) : 0;
  hr_value bias = reorder(node, sum, 4, order, l->size);
  hr_value peepholes = reorder(node, l->peepholes, 3, peephole_order, l->size);
  return ADD(node, LSTM, IN(l->x, weight, recurrent, bias, l->hidden, l->cell, peepholes, l->lengths),
             WITH(hr__with_text("gate", l->activations[0]), hr__with_text("activation", l->activations[1]),
                  hr__with_text("output_activation", l->activations[2]), reverse_of(l), clip_of(node),
                  hr__with_flag("coupled", hr__onnx_int(node, "input_forget", 0) != 0)));
}

/* ---- the operator ---- */

static void read_layer(hr__onnx_node *node, int direction, int batch_axis, layer *l) {
  hr_value bias = part_of(node, hr__onnx_input(node, 3), 0, direction);
  int axis = batch_axis == 0 ? 1 : 0; /* of the directions in the states */
  l->weight = part_of(node, hr__onnx_input(node, 1), 0, direction);
  l->recurrent = part_of(node, hr__onnx_input(node, 2), 0, direction);
  l->hidden = part_of(node, hr__onnx_input(node, 5), axis, direction);
  l->cell = part_of(node, hr__onnx_input(node, 6), axis, direction);
  l->peepholes = part_of(node, hr__onnx_input(node, 7), 0, direction);
  if (bias != 0) {
    int64_t half = hr__onnx_known_dim(node, bias, 0) / 2;
    l->bias = hr__onnx_narrow(node, bias, 0, 0, half);
    l->recurrent_bias = hr__onnx_narrow(node, bias, 0, half, half);
  }
}

/* Steps behind an example's length are 0. y: [B, L, H] */
static hr_value mask_steps(hr__onnx_node *node, hr_value y, hr_value lengths) {
  if (lengths == 0) {
    return y;
  }
  int64_t steps = hr__onnx_known_dim(node, y, 1);
  hr_value step =
      ADD(node, ARANGE, 0, NULL, WITH(hr__with_real("stop", (double)steps), hr__with_dtype("dtype", HR_DTYPE_I64)));
  hr_value is_used = CALL(node, LESS, hr__onnx_along(node, step, 1, 3),
                          hr__onnx_along(node, hr__onnx_cast(node, lengths, HR_DTYPE_I64), 0, 3));
  return CALL(node, WHERE, is_used, y, hr__onnx_number(node, 0));
}

/* The state after the last step of the direction: [B, H]. */
static hr_value last_state(hr__onnx_node *node, hr_value y, bool is_reverse) {
  int64_t steps = hr__onnx_known_dim(node, y, 1);
  return hr__onnx_squeeze_dim(node, hr__onnx_narrow(node, y, 1, is_reverse ? 0 : steps - 1, 1), 1);
}

typedef struct results {
  hr_value steps[2], hidden[2], cell[2];
} results;

/* All steps [L, D, B, H] or [B, L, D, H], and the last states [D, B, H] or [B, D, H]. */
static void set_results(hr__onnx_node *node, const results *r, int directions, bool is_batch_first) {
  static const int64_t order[4] = {1, 2, 0, 3};
  hr_value steps = ADD(node, STACK, directions, r->steps, WITH(hr__with_int("axis", 2))); /* [B, L, D, H] */
  hr_graph_attribute axis = hr__with_int("axis", is_batch_first ? 1 : 0);
  hr__onnx_set(node, 0, is_batch_first ? steps : hr__onnx_permute(node, steps, 4, order));
  hr__onnx_set(node, 1, ADD(node, STACK, directions, r->hidden, 1, &axis));
  hr__onnx_set(node, 2, r->cell[0] != 0 ? ADD(node, STACK, directions, r->cell, 1, &axis) : 0);
}

void hr__onnx_map_recurrent(hr__onnx_node *node) {
  static const char *const words[] = {"forward", "reverse", "bidirectional"};
  int word = hr__onnx_word(node, "direction", 3, words), directions = word == 2 ? 2 : 1;
  bool is_batch_first = hr__onnx_int(node, "layout", 0) != 0, is_lstm = node->function == HR_FUNCTIONAL_LSTM;
  int activations = is_lstm ? 3 : node->function == HR_FUNCTIONAL_GRU ? 2 : 1;
  hr_value x = hr__onnx_input(node, 0);
  x = is_batch_first ? x : ADD(node, SWAPAXES, IN(x), WITH(hr__with_int("axis1", 0), hr__with_int("axis2", 1)));
  results r = {{0}};
  for (int d = 0; d < directions && !hr__onnx_failed(node); ++d) {
    layer l = {.x = x, .lengths = hr__onnx_input(node, 4), .is_reverse = word == 1 || d == 1};
    read_layer(node, d, is_batch_first ? 0 : 1, &l);
    l.size = hr__onnx_known_dim(node, l.recurrent, 1);
    read_activations(node, d, activations, &l);
    hr_value y = is_lstm ? run_lstm(node, &l) : activations == 2 ? run_gru(node, &l) : run_rnn(node, &l);
    r.steps[d] = mask_steps(node, y, l.lengths), r.hidden[d] = last_state(node, y, l.is_reverse);
    r.cell[d] = is_lstm && y != 0 ? last_state(node, y + 1, l.is_reverse) : 0;
  }
  set_results(node, &r, directions, is_batch_first);
}
