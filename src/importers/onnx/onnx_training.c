/* onnx_training.c: steps of optimizers, and gradients. The inputs of a step are rate, number of steps, then lists of as
 * many tensors: parameters, gradients, and states; outputs are lists, too. */
#include "importers/onnx/onnx_importer.h"

typedef struct step {
  hr_value rate, count, x, gradient, states[2];
} step;

static hr_value real(hr__onnx_node *node, const char *name, double otherwise) {
  return hr__onnx_number(node, hr__onnx_real(node, name, otherwise));
}

/* The number of tensors in each list; 0 after a failure. */
static int list_count(hr__onnx_node *node, int lists) {
  int tensors = node->input_count - 2;
  if (tensors < lists || tensors % lists != 0) {
    HR__ONNX_WRONG(node, "%d tensors, expected %d lists of them", tensors, lists);
    return 0;
  }
  return tensors / lists;
}

static step read_step(hr__onnx_node *node, int lists, int count, int i) {
  step s = {.rate = hr__onnx_input(node, 0), .count = hr__onnx_cast(node, hr__onnx_input(node, 1), HR_DTYPE_F32)};
  hr_value decay = 0;
  s.x = hr__onnx_input(node, 2 + i);
  decay = CALL(node, MULTIPLY, s.x, real(node, "norm_coefficient", 0));
  s.gradient = CALL(node, ADD, decay, hr__onnx_input(node, 2 + count + i));
  for (int k = 0; k < lists - 2; ++k) {
    s.states[k] = hr__onnx_input(node, 2 + (2 + k) * count + i);
  }
  return s;
}

/* old * factor + new * other */
static hr_value mix(hr__onnx_node *node, hr_value old, hr_value factor, hr_value new, hr_value other) {
  return CALL(node, ADD, CALL(node, MULTIPLY, old, factor), CALL(node, MULTIPLY, new, other));
}

/* x - rate * part / (sqrt(square) + epsilon) */
static hr_value descend(hr__onnx_node *node, const step *s, hr_value rate, hr_value part, hr_value square, double eps) {
  hr_value root = CALL(node, ADD, CALL(node, SQRT, square), real(node, "epsilon", eps));
  hr_value change = CALL(node, DIVIDE, CALL(node, MULTIPLY, rate, part), root);
  return CALL(node, SUBTRACT, s->x, change);
}

void hr__onnx_map_adagrad(hr__onnx_node *node) {
  int count = list_count(node, 3);
  for (int i = 0; i < count; ++i) {
    step s = read_step(node, 3, count, i);
    hr_value slower = CALL(node, MULTIPLY, s.count, real(node, "decay_factor", 0));
    hr_value rate = CALL(node, DIVIDE, s.rate, CALL(node, ADD, slower, hr__onnx_whole(node, 1)));
    hr_value square = CALL(node, ADD, s.states[0], CALL(node, SQUARE, s.gradient));
    hr__onnx_set(node, i, descend(node, &s, rate, s.gradient, square, 0));
    hr__onnx_set(node, count + i, square);
  }
}

/* 1 - factor^steps */
static hr_value correction(hr__onnx_node *node, const step *s, double factor) {
  hr_value power = CALL(node, POW, hr__onnx_number(node, factor), s->count);
  return CALL(node, SUBTRACT, hr__onnx_whole(node, 1), power);
}

void hr__onnx_map_adam(hr__onnx_node *node) {
  int count = list_count(node, 4);
  double alpha = hr__onnx_real(node, "alpha", 0.9), beta = hr__onnx_real(node, "beta", 0.999);
  for (int i = 0; i < count; ++i) {
    step s = read_step(node, 4, count, i);
    hr_value mean = mix(node, s.states[0], hr__onnx_number(node, alpha), s.gradient, hr__onnx_number(node, 1 - alpha));
    hr_value square = mix(node, s.states[1], hr__onnx_number(node, beta), CALL(node, SQUARE, s.gradient),
                          hr__onnx_number(node, 1 - beta));
    hr_value root = CALL(node, SQRT, correction(node, &s, beta));
    hr_value factor = CALL(node, DIVIDE, root, correction(node, &s, alpha));
    hr_value has_steps = CALL(node, GREATER, s.count, hr__onnx_whole(node, 0));
    hr_value rate = CALL(node, WHERE, has_steps, CALL(node, MULTIPLY, s.rate, factor), s.rate);
    hr_value x = descend(node, &s, rate, mean, square, 0);
    double post = hr__onnx_real(node, "norm_coefficient_post", 0);
    hr__onnx_set(node, i, post != 0 ? CALL(node, MULTIPLY, x, hr__onnx_number(node, 1 - post)) : x);
    hr__onnx_set(node, count + i, mean);
    hr__onnx_set(node, 2 * count + i, square);
  }
}

void hr__onnx_map_momentum(hr__onnx_node *node) {
  static const char *const words[] = {"standard", "nesterov"};
  int count = list_count(node, 3);
  bool is_nesterov = hr__onnx_word(node, "mode", 2, words) == 1;
  for (int i = 0; i < count; ++i) {
    step s = read_step(node, 3, count, i);
    hr_value alpha = real(node, "alpha", 0), has_steps = CALL(node, GREATER, s.count, hr__onnx_whole(node, 0));
    hr_value beta = CALL(node, WHERE, has_steps, hr__onnx_cast(node, real(node, "beta", 1), HR_DTYPE_F32),
                         hr__onnx_number(node, 1));
    hr_value velocity = mix(node, s.states[0], alpha, s.gradient, beta);
    hr_value change = is_nesterov ? CALL(node, ADD, s.gradient, CALL(node, MULTIPLY, velocity, alpha)) : velocity;
    hr__onnx_set(node, i, CALL(node, SUBTRACT, s.x, CALL(node, MULTIPLY, s.rate, change)));
    hr__onnx_set(node, count + i, velocity);
  }
}

/* ---- gradients ---- */

/* Names in an attribute; -1 after a failure. */
static int read_names(hr__onnx_node *node, const char *name, int room, hr__span *out_names) {
  enum { TEXTS = 9 };
  int64_t count = 0;
  const hr__onnx_attribute *attribute = hr__onnx_find_attribute(node, name);
  if (attribute == NULL) {
    return 0;
  }
  hr_status_ignore(hr__onnx_read_spans(attribute->message, TEXTS, room, out_names, &count));
  if (count > room) {
    HR__ONNX_REFUSE(node, "%s has %lld names, expected at most %d", name, (long long)count, room);
    return -1;
  }
  return (int)count;
}

/* The gradient is that of the graph as it is: each input is the value that has its name in xs or zs. */
static bool is_named(hr__onnx_node *node, int index, hr__span name) {
  hr__onnx_value value = {0};
  if (index < node->input_count && hr__onnx_scope_find(node->importer, node->scope, name, &value) &&
      value.value == hr__onnx_input(node, index)) {
    return true;
  }
  HR__ONNX_REFUSE(node, "input %d is another value than \"%.64s\"", index, hr__onnx_string(node, name));
  return false;
}

void hr__onnx_map_gradient(hr__onnx_node *node) {
  enum { ROOM = 256 };
  hr__span names[2 * ROOM];
  hr_value values[ROOM];
  const hr__onnx_attribute *y = hr__onnx_find_attribute(node, "y");
  hr__onnx_value of = {0};
  int count = read_names(node, "xs", ROOM, names);
  int others = count > 0 ? read_names(node, "zs", ROOM, names + count) : -1;
  if (others < 0) {
    HR__ONNX_WRONG(node, "xs has no names, expected at least one");
    return;
  }
  for (int i = 0; i < count + others; ++i) {
    if (!is_named(node, i, names[i])) {
      return;
    }
    values[i < count ? i : 0] = hr__onnx_input(node, i < count ? i : 0);
  }
  if (y == NULL || !hr__onnx_scope_find(node->importer, node->scope, y->bytes, &of) || of.value == 0) {
    HR__ONNX_WRONG(node, "y is \"%.64s\", expected the name of an earlier tensor",
                   y != NULL ? hr__onnx_string(node, y->bytes) : "");
    return;
  }
  hr_value first = hr_graph_gradient(node->graph, of.value, 0, count, values);
  for (int i = 0; i < count && first != 0; ++i) {
    hr__onnx_set(node, i, first + (hr_value)i);
  }
}
