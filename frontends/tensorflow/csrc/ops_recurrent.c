/* ops_recurrent.c: rules of recurrent cells, single steps and blocks of steps, and of their gradients.
 *
 * Gates are columns of one product: of an LSTM the input i, the cell c, the forget gate f and the output o, in this
 * order or (BlockLSTMV2) i, f, c, o; peepholes are vectors that weigh the state in a gate.
 */
#include <string.h>

#include "node.h"

enum { GATES = 4 };

static htf_value join(htf_node *node, htf_value x, htf_value y, int64_t axis) {
  return htf_call(node, HR_FUNCTIONAL_CONCAT, INPUTS(x, y), ATTRIBUTES(htf_attr_int(axis)));
}

/* `count` columns of a matrix from `first` on. */
static htf_value columns(htf_node *node, htf_value x, int64_t first, int64_t count) {
  const int64_t dims[2] = {x->dims[0], count};
  return htf_view(node, x, 2, dims, x->strides, x->offset + (count > 0 ? first * x->strides[1] : 0));
}

static htf_value transposed(htf_node *node, htf_value x) {
  static const int order[2] = {1, 0};
  return htf_transpose(node, x, order);
}

static htf_value product(htf_node *node, htf_value x, htf_value y) {
  return htf_call2(node, HR_FUNCTIONAL_MATMUL, x, y);
}

static htf_value sum_rows(htf_node *node, htf_value x) {
  static const int64_t rows = 0;
  return htf_call(node, HR_FUNCTIONAL_SUM, INPUTS(x),
                  ATTRIBUTES(htf_attr_ints(&rows, 1), htf_attr_flag(false), htf_attr_dtype(x->dtype)));
}

static htf_value sigmoid(htf_node *node, htf_value x) {
  return htf_call1(node, HR_FUNCTIONAL_SIGMOID, x);
}

static htf_value tanh_of(htf_node *node, htf_value x) {
  return htf_call1(node, HR_FUNCTIONAL_TANH, x);
}

static htf_value complement(htf_node *node, htf_value x) {
  return htf_subtract(node, htf_number(node, 1), x);
}

/* gradient * y * (1 - y), and gradient * (1 - y * y). */
static htf_value through_sigmoid(htf_node *node, htf_value y, htf_value gradient) {
  return htf_multiply(node, htf_multiply(node, y, complement(node, y)), gradient);
}

static htf_value through_tanh(htf_node *node, htf_value y, htf_value gradient) {
  return htf_multiply(node, complement(node, htf_multiply(node, y, y)), gradient);
}

static bool is_matrix(htf_value x, int64_t rows, int64_t count) {
  return x->rank == 2 && x->dims[0] == rows && x->dims[1] == count;
}

static void check(htf_node *node, bool fits, const char *what) {
  if (!htf_has_failed(node) && !fits) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "%s: the dims of %s do not fit the others", node->kernel->row->op, what);
  }
}

/* ---- an LSTM ---- */

typedef struct lstm {
  htf_value weight, bias, peephole[3]; /* peepholes of i, f and o */
  bool has_peepholes, is_ifco;
  int64_t batch, inputs, units;
  double forget_bias, clip;
} lstm;

/* The results of a step, in the order of TensorFlow's outputs. */
enum { IN, STATE, FORGET, OUT, CELL, SQUASHED, HIDDEN, RESULTS };
typedef struct lstm_step {
  htf_value value[RESULTS];
} lstm_step;

/* Inputs from `first` on: the state and h before, w, three peepholes, b. */
static lstm read_lstm(htf_node *node, htf_value x, int first, htf_value *out_state, htf_value *out_hidden) {
  *out_state = htf_input(node, first), *out_hidden = htf_input(node, first + 1);
  lstm l = {.weight = htf_input(node, first + 2), .bias = htf_input(node, first + 6)};
  l.has_peepholes = htf_flag(node, "use_peephole");
  check(node, x->rank == 2 || x->rank == 3, "x");
  check(node, (*out_state)->rank == 2 && (*out_hidden)->rank == 2, "the state");
  if (htf_has_failed(node)) {
    return l;
  }
  l.batch = x->dims[x->rank - 2], l.inputs = x->dims[x->rank - 1], l.units = (*out_state)->dims[1];
  check(node, is_matrix(*out_state, l.batch, l.units) && is_matrix(*out_hidden, l.batch, l.units), "the state");
  check(node, is_matrix(l.weight, l.inputs + l.units, GATES * l.units), "w");
  check(node, l.bias->rank == 1 && l.bias->dims[0] == GATES * l.units, "b");
  for (int i = 0; i < 3; ++i) {
    l.peephole[i] = htf_input(node, first + 3 + i);
    check(node, !l.has_peepholes || (l.peephole[i]->rank == 1 && l.peephole[i]->dims[0] == l.units), "a peephole");
  }
  return l;
}

/* Gate i, c, f or o (0 to 3) of the product. */
static htf_value gate(htf_node *node, const lstm *l, htf_value gates, int which) {
  static const int places[GATES] = {0, 2, 1, 3};
  return columns(node, gates, (l->is_ifco ? places[which] : which) * l->units, l->units);
}

static htf_value peep(htf_node *node, const lstm *l, htf_value sum, int which, htf_value state) {
  return l->has_peepholes ? htf_add(node, sum, htf_multiply(node, state, l->peephole[which])) : sum;
}

static lstm_step run_step(htf_node *node, const lstm *l, htf_value x, htf_value state, htf_value hidden) {
  lstm_step s;
  htf_value gates = htf_add(node, product(node, join(node, x, hidden, 1), l->weight), l->bias);
  s.value[IN] = sigmoid(node, peep(node, l, gate(node, l, gates, 0), 0, state));
  s.value[CELL] = tanh_of(node, gate(node, l, gates, 1));
  htf_value forget = gate(node, l, gates, 2);
  forget = l->forget_bias != 0 ? htf_add(node, forget, htf_number(node, l->forget_bias)) : forget;
  s.value[FORGET] = sigmoid(node, peep(node, l, forget, 1, state));
  htf_value next =
      htf_add(node, htf_multiply(node, s.value[CELL], s.value[IN]), htf_multiply(node, state, s.value[FORGET]));
  if (l->clip > 0) {
    next = htf_call(node, HR_FUNCTIONAL_CLIP, INPUTS(next, htf_number(node, -l->clip), htf_number(node, l->clip)),
                    NO_ATTRIBUTES);
  }
  s.value[STATE] = next;
  s.value[OUT] = sigmoid(node, peep(node, l, gate(node, l, gates, 3), 2, next));
  s.value[SQUASHED] = tanh_of(node, next);
  s.value[HIDDEN] = htf_multiply(node, s.value[SQUASHED], s.value[OUT]);
  return s;
}

void htf_lstm_cell(htf_node *node) {
  htf_value x = htf_input(node, 0), state, hidden;
  lstm l = read_lstm(node, x, 1, &state, &hidden);
  check(node, x->rank == 2, "x");
  l.forget_bias = htf_real(node, "forget_bias"), l.clip = htf_real(node, "cell_clip");
  if (htf_has_failed(node)) {
    return;
  }
  lstm_step s = run_step(node, &l, x, state, hidden);
  for (int i = 0; i < RESULTS; ++i) {
    htf_output(node, i, s.value[i]);
  }
}

/* ---- blocks of steps [T, N, ..] ---- */

static htf_value step_of(htf_node *node, htf_value x, int64_t t) {
  return htf_view(node, x, 2, x->dims + 1, x->strides + 1, x->offset + t * x->strides[0]);
}

static void write_step(htf_node *node, htf_value whole, int64_t t, htf_value value) {
  htf_record(node, HR_OP_COPY, 0, NULL, INPUTS(value), step_of(node, whole, t));
}

/* The number of steps that count; others are zeros. */
static int64_t read_length(htf_node *node, htf_value x) {
  int64_t length = htf_host_int(node, 0);
  check(node, x->rank == 3, "x");
  if (!htf_has_failed(node) && (length < 0 || length > x->dims[0])) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "%s: seq_len_max %lld is not between 0 and %lld steps",
             node->kernel->row->op, (long long)length, (long long)x->dims[0]);
  }
  return length;
}

static void run_block(htf_node *node, bool is_ifco) {
  htf_value x = htf_input(node, 1), state, hidden, results[RESULTS];
  int64_t length = read_length(node, x);
  lstm l = read_lstm(node, x, 2, &state, &hidden);
  l.is_ifco = is_ifco, l.forget_bias = is_ifco ? 0 : htf_real(node, "forget_bias"),
  l.clip = htf_real(node, "cell_clip");
  if (htf_has_failed(node)) {
    return;
  }
  const int64_t dims[3] = {x->dims[0], l.batch, l.units};
  for (int i = 0; i < RESULTS; ++i) {
    results[i] = length == x->dims[0] ? htf_new(node, x->dtype, 3, dims) : htf_zeros(node, 3, dims, x->dtype);
  }
  for (int64_t t = 0; t < length && l.batch * l.units > 0; ++t) {
    lstm_step s = run_step(node, &l, step_of(node, x, t), state, hidden);
    for (int i = 0; i < RESULTS; ++i) {
      write_step(node, results[i], t, s.value[i]);
    }
    state = s.value[STATE], hidden = s.value[HIDDEN];
  }
  for (int i = 0; i < RESULTS; ++i) {
    htf_output(node, i, results[i]);
  }
}

void htf_lstm_block(htf_node *node) {
  run_block(node, false);
}

void htf_lstm_block_v2(htf_node *node) {
  run_block(node, true);
}

/* ---- gradients ---- */

/* Of the gates and the state before, and the sums of the peepholes'. */
typedef struct lstm_gradient {
  htf_value gates, state, peephole[3];
} lstm_gradient;

static lstm_gradient step_back(htf_node *node, const lstm *l, const lstm_step *s, htf_value before, htf_value of_state,
                               htf_value of_hidden) {
  htf_value in = s->value[IN], forget = s->value[FORGET], out = s->value[OUT], cell = s->value[CELL];
  htf_value squashed = s->value[SQUASHED];
  htf_value of_out = through_sigmoid(node, out, htf_multiply(node, of_hidden, squashed));
  htf_value through = through_tanh(node, squashed, htf_multiply(node, of_hidden, out));
  htf_value next = peep(node, l, htf_add(node, through, of_state), 2, of_out);
  htf_value of_cell = through_tanh(node, cell, htf_multiply(node, next, in));
  htf_value of_forget = through_sigmoid(node, forget, htf_multiply(node, next, before));
  htf_value of_in = through_sigmoid(node, in, htf_multiply(node, next, cell));
  lstm_gradient g = {.state = htf_multiply(node, next, forget)};
  g.state = peep(node, l, peep(node, l, g.state, 0, of_in), 1, of_forget);
  htf_value inner = l->is_ifco ? join(node, of_forget, of_cell, 1) : join(node, of_cell, of_forget, 1);
  g.gates = join(node, join(node, of_in, inner, 1), of_out, 1);
  for (int i = 0; i < 3; ++i) {
    htf_value of_gate = i == 0 ? of_in : i == 1 ? of_forget : of_out;
    g.peephole[i] = l->has_peepholes
                        ? sum_rows(node, htf_multiply(node, of_gate, i == 2 ? s->value[STATE] : before))
                        : htf_zeros(node, l->peephole[i]->rank, l->peephole[i]->dims, l->peephole[i]->dtype);
  }
  return g;
}

/* Inputs: those of the cell, then i, cs, f, o, ci, co, and the gradients of cs and h. */
void htf_lstm_cell_gradient(htf_node *node) {
  static const int places[RESULTS] = {8, 9, 10, 11, 12, 13, 13};
  htf_value x = htf_input(node, 0), state, hidden;
  lstm l = read_lstm(node, x, 1, &state, &hidden);
  htf_value of_state = htf_input(node, 14), of_hidden = htf_input(node, 15);
  lstm_step s;
  for (int i = 0; i < RESULTS; ++i) {
    s.value[i] = htf_input(node, places[i]);
    check(node, is_matrix(s.value[i], l.batch, l.units), "a result");
  }
  check(node, is_matrix(of_state, l.batch, l.units) && is_matrix(of_hidden, l.batch, l.units), "a gradient");
  if (htf_has_failed(node)) {
    return;
  }
  lstm_gradient g = step_back(node, &l, &s, state, of_state, of_hidden);
  htf_output(node, 0, g.state);
  htf_output(node, 1, g.gates);
  for (int i = 0; i < 3; ++i) {
    htf_output(node, 2 + i, g.peephole[i]);
  }
}

/* The gradients of a block, in the order of the outputs. */
typedef struct block_gradient {
  htf_value x, state, hidden, weight, peephole[3], bias;
} block_gradient;

/* One step back: `g` has the gradients of the steps behind. */
static void add_step(htf_node *node, const lstm *l, const lstm_step *s, htf_value x, const htf_value before[2],
                     const htf_value of[2], int64_t t, block_gradient *g) {
  lstm_gradient step =
      step_back(node, l, s, before[0], htf_add(node, of[0], g->state), htf_add(node, of[1], g->hidden));
  htf_value of_inputs = product(node, step.gates, transposed(node, l->weight));
  htf_value inputs = join(node, x, before[1], 1);
  write_step(node, g->x, t, columns(node, of_inputs, 0, l->inputs));
  g->state = step.state, g->hidden = columns(node, of_inputs, l->inputs, l->units);
  g->weight = htf_add(node, g->weight, product(node, transposed(node, inputs), step.gates));
  g->bias = htf_add(node, g->bias, sum_rows(node, step.gates));
  for (int i = 0; i < 3 && l->has_peepholes; ++i) {
    g->peephole[i] = htf_add(node, g->peephole[i], step.peephole[i]);
  }
}

static htf_value zeros_like(htf_node *node, htf_value x) {
  return htf_zeros(node, x->rank, x->dims, x->dtype);
}

/* Inputs: those of the block, its 7 results, the gradients of cs and h. */
static void block_back(htf_node *node, bool is_ifco) {
  htf_value x = htf_input(node, 1), state, hidden, results[RESULTS], of[2];
  int64_t length = read_length(node, x);
  lstm l = read_lstm(node, x, 2, &state, &hidden);
  l.is_ifco = is_ifco;
  for (int i = 0; i < RESULTS + 2; ++i) {
    htf_value value = htf_input(node, 9 + i);
    check(node,
          value->rank == 3 && value->dims[0] == x->dims[0] && value->dims[1] == l.batch && value->dims[2] == l.units,
          "a result");
    *(i < RESULTS ? &results[i] : &of[i - RESULTS]) = value;
  }
  if (htf_has_failed(node)) {
    return;
  }
  block_gradient g = {.x = zeros_like(node, x), .state = zeros_like(node, state), .hidden = zeros_like(node, hidden)};
  g.weight = zeros_like(node, l.weight), g.bias = zeros_like(node, l.bias);
  for (int i = 0; i < 3; ++i) {
    g.peephole[i] = zeros_like(node, l.peephole[i]);
  }
  for (int64_t t = length - 1; t >= 0 && l.batch * l.units > 0; --t) {
    lstm_step s;
    for (int i = 0; i < RESULTS; ++i) {
      s.value[i] = step_of(node, results[i], t);
    }
    const htf_value before[2] = {t > 0 ? step_of(node, results[STATE], t - 1) : state,
                                 t > 0 ? step_of(node, results[HIDDEN], t - 1) : hidden};
    const htf_value of_step[2] = {step_of(node, of[0], t), step_of(node, of[1], t)};
    add_step(node, &l, &s, step_of(node, x, t), before, of_step, t, &g);
  }
  const htf_value outputs[8] = {g.x, g.state, g.hidden, g.weight, g.peephole[0], g.peephole[1], g.peephole[2], g.bias};
  for (int i = 0; i < 8; ++i) {
    htf_output(node, i, outputs[i]);
  }
}

void htf_lstm_block_gradient(htf_node *node) {
  block_back(node, false);
}

void htf_lstm_block_gradient_v2(htf_node *node) {
  block_back(node, true);
}

/* ---- a GRU: gates r and u in one product, then the cell c ---- */

typedef struct gru {
  htf_value x, hidden, gate_weight, cell_weight;
  int64_t inputs, units;
} gru;

static gru read_gru(htf_node *node) {
  gru g = {.x = htf_input(node, 0),
           .hidden = htf_input(node, 1),
           .gate_weight = htf_input(node, 2),
           .cell_weight = htf_input(node, 3)};
  check(node, g.x->rank == 2 && g.hidden->rank == 2 && g.x->dims[0] == g.hidden->dims[0], "x");
  if (!htf_has_failed(node)) {
    g.inputs = g.x->dims[1], g.units = g.hidden->dims[1];
    check(node, is_matrix(g.gate_weight, g.inputs + g.units, 2 * g.units), "w_ru");
    check(node, is_matrix(g.cell_weight, g.inputs + g.units, g.units), "w_c");
  }
  return g;
}

void htf_gru_cell(htf_node *node) {
  gru g = read_gru(node);
  htf_value gate_bias = htf_input(node, 4), cell_bias = htf_input(node, 5);
  check(node, gate_bias->rank == 1 && gate_bias->dims[0] == 2 * g.units, "b_ru");
  check(node, cell_bias->rank == 1 && cell_bias->dims[0] == g.units, "b_c");
  if (htf_has_failed(node)) {
    return;
  }
  htf_value inputs = join(node, g.x, g.hidden, 1);
  htf_value gates = sigmoid(node, htf_add(node, product(node, inputs, g.gate_weight), gate_bias));
  htf_value reset = columns(node, gates, 0, g.units), update = columns(node, gates, g.units, g.units);
  htf_value reduced = join(node, g.x, htf_multiply(node, g.hidden, reset), 1);
  htf_value cell = tanh_of(node, htf_add(node, product(node, reduced, g.cell_weight), cell_bias));
  htf_output(node, 0, reset);
  htf_output(node, 1, update);
  htf_output(node, 2, cell);
  htf_output(node, 3, htf_add(node, htf_multiply(node, update, htf_subtract(node, g.hidden, cell)), cell));
}

/* Inputs: those of the cell, r, u, c, and the gradient of h. Outputs: the gradients of x, of h before, of the cell's
 * sum and of the gates'. */
void htf_gru_cell_gradient(htf_node *node) {
  gru g = read_gru(node);
  htf_value reset = htf_input(node, 6), update = htf_input(node, 7), cell = htf_input(node, 8);
  htf_value gradient = htf_input(node, 9);
  int64_t batch = htf_has_failed(node) ? 0 : g.x->dims[0];
  check(node, is_matrix(reset, batch, g.units) && is_matrix(update, batch, g.units), "a gate");
  check(node, is_matrix(cell, batch, g.units) && is_matrix(gradient, batch, g.units), "a gradient");
  if (htf_has_failed(node)) {
    return;
  }
  htf_value difference = htf_multiply(node, htf_subtract(node, g.hidden, cell), gradient);
  htf_value of_update = through_sigmoid(node, update, difference);
  htf_value of_cell = through_tanh(node, cell, htf_multiply(node, gradient, complement(node, update)));
  htf_value of_reduced = product(node, of_cell, transposed(node, g.cell_weight));
  htf_value of_product = columns(node, of_reduced, g.inputs, g.units);
  htf_value of_reset = through_sigmoid(node, reset, htf_multiply(node, of_product, g.hidden));
  htf_value of_gates = join(node, of_reset, of_update, 1);
  htf_value of_inputs = product(node, of_gates, transposed(node, g.gate_weight));
  htf_value of_hidden =
      htf_add(node, columns(node, of_inputs, g.inputs, g.units), htf_multiply(node, of_product, reset));
  htf_output(node, 0, htf_add(node, columns(node, of_inputs, 0, g.inputs), columns(node, of_reduced, 0, g.inputs)));
  htf_output(node, 1, htf_add(node, of_hidden, htf_multiply(node, gradient, update)));
  htf_output(node, 2, of_cell);
  htf_output(node, 3, of_gates);
}
