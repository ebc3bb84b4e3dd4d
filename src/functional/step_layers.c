/* step_layers.c: recurrent cells and layers of x [.., L, I], or of one step, x [.., I].
 *
 * Sums of all steps are one product, x W^T + b. The rows LSTM and GRU compute the steps if they have the usual
 * functions and no lengths; other layers are recorded step by step:
 *
 *   rnn    h = a(s + h R^T)
 *   gru    r, z = g(s + h R^T + c);  n = a(s + r * (h R^T + c)), or a(s + (r * h) R^T + c);  h = (1 - z) n + z h
 *   lstm   i, f, o = g(s + h R^T + p c);  c = f c + i a(s + h R^T);  h = o b(c)
 */
#include "base/allocator.h"
#include "functional/formula.h"

enum { TANH, SIGMOID, RELU, HARD_SIGMOID, SOFTSIGN, SOFTPLUS, ELU, LINEAR, WORDS };
static const char *const words[WORDS] = {"tanh",     "sigmoid",  "relu", "hard_sigmoid",
                                         "softsign", "softplus", "elu",  "linear"};

typedef struct layer {
  const hr__function_call *call;
  hr_op row;    /* LSTM, GRU, or TANH: rnn */
  bool is_cell; /* x has no dim of steps */
  int gates;    /* number */
  int lead;     /* dims of x before steps */
  int64_t batch, steps, hidden;
  hr_dtype dtype;
  bool is_reversed, resets_before, is_coupled;
  int gate, activation, output;            /* functions */
  double clip;                             /* 0: none */
  const hr_tensor *sums;                   /* [T, N, gates * H] */
  const hr_tensor *recurrent, *transposed; /* [gates * H, H], [H, gates * H] */
  const hr_tensor *bias;                   /* of the recurrent product, or NULL */
  const hr_tensor *first[2];               /* h and c [N, H] */
  const hr_tensor *peepholes, *lengths;    /* NULL, or [3 * H] and [N, 1] */
} layer;

/* ---- arguments by their names ---- */

static const hr_tensor *input_of(const hr__function_call *c, const char *name) {
  size_t length = strlen(name);
  for (int i = 0; i < c->row->input_count; ++i) {
    const char *own = c->row->inputs[i];
    if (strncmp(own, name, length) == 0 && (own[length] == '\0' || own[length] == '?')) {
      return c->inputs[i];
    }
  }
  return NULL;
}

static int attribute_of(const hr__function_call *c, const char *name) {
  int i = 0;
  while (c->row->attributes[i].name != NULL && strcmp(c->row->attributes[i].name, name) != 0) {
    ++i;
  }
  return c->row->attributes[i].name != NULL ? i : -1;
}

static bool flag_of(const hr__function_call *c, const char *name) {
  int index = attribute_of(c, name);
  return index >= 0 && hr__int_attribute(c, index) != 0;
}

static hr_status word_of(const hr__function_call *c, const char *name, int *out_word) {
  int index = attribute_of(c, name);
  return index >= 0 ? hr__word_attribute(c, index, WORDS, words, out_word) : HR_OK;
}

static hr_status read_attributes(const hr__function_call *c, layer *l) {
  l->gate = SIGMOID, l->activation = TANH, l->output = TANH;
  HR_RETURN_IF_ERROR(word_of(c, "gate", &l->gate));
  HR_RETURN_IF_ERROR(word_of(c, "activation", &l->activation));
  HR_RETURN_IF_ERROR(word_of(c, "output_activation", &l->output));
  hr_scalar clip = hr__real_attribute(c, attribute_of(c, "clip"));
  l->clip = hr_scalar_as_f64(&clip);
  l->is_reversed = flag_of(c, "reverse"), l->is_coupled = flag_of(c, "coupled");
  l->resets_before = flag_of(c, "reset_before");
  return l->clip >= 0 ? HR_OK : HR__CALL_FAIL(c, "clip is %g, expected 0 or more", l->clip);
}

/* ---- dims ---- */

static hr_status want_dims(const layer *l, const char *name, int rank, const int64_t *dims) {
  const hr_tensor *x = input_of(l->call, name);
  bool fits = x == NULL || x->rank == rank;
  for (int d = 0; fits && x != NULL && d < rank; ++d) {
    fits = x->dims[d] == dims[d];
  }
  char text[HR__SHAPE_TEXT], expected[HR__SHAPE_TEXT];
  return fits ? HR_OK
              : HR__CALL_FAIL(l->call, "%s has dims %s, expected %s", name, hr__shape_text(x->rank, x->dims, text),
                              hr__shape_text(rank, dims, expected));
}

static hr_status read_dims(const hr__function_call *c, layer *l) {
  const hr_tensor *x = input_of(c, "x"), *recurrent = input_of(c, "recurrent");
  char text[HR__SHAPE_TEXT];
  l->lead = x->rank - (l->is_cell ? 1 : 2);
  if (l->lead < 0 || (!l->is_cell && x->dims[l->lead] == 0)) {
    return HR__CALL_FAIL(c, "x has dims %s, expected %s", hr__shape_text(x->rank, x->dims, text),
                         l->is_cell ? "one or more" : "two or more, and at least one step");
  }
  if (recurrent->rank != 2 || recurrent->dims[0] != l->gates * recurrent->dims[1]) {
    return HR__CALL_FAIL(c, "recurrent has dims %s, expected %d times as many rows as columns",
                         hr__shape_text(recurrent->rank, recurrent->dims, text), l->gates);
  }
  l->hidden = recurrent->dims[1], l->steps = l->is_cell ? 1 : x->dims[l->lead], l->batch = 1;
  for (int d = 0; d < l->lead; ++d) {
    l->batch *= x->dims[d];
  }
  int64_t dims[HR_RANK_MAX + 1];
  const int64_t rows = l->gates * l->hidden, three = 3 * l->hidden;
  HR_RETURN_IF_ERROR(want_dims(l, "weight", 2, (int64_t[2]){rows, x->dims[x->rank - 1]}));
  HR_RETURN_IF_ERROR(want_dims(l, "bias", 1, &rows));
  HR_RETURN_IF_ERROR(want_dims(l, "recurrent_bias", 1, &rows));
  HR_RETURN_IF_ERROR(want_dims(l, "peepholes", 1, &three));
  HR_RETURN_IF_ERROR(want_dims(l, "lengths", l->lead, x->dims));
  hr__copy_dims(x->rank, x->dims, dims);
  dims[l->lead] = l->hidden;
  HR_RETURN_IF_ERROR(want_dims(l, "hidden", l->lead + 1, dims));
  return want_dims(l, "cell", l->lead + 1, dims);
}

static hr_status read_dtype(const hr__function_call *c, layer *l) {
  l->dtype = HR_DTYPE_NONE;
  const hr_tensor *lengths = input_of(c, "lengths");
  for (int i = 0; i < c->input_count; ++i) {
    if (c->inputs[i] != NULL && c->inputs[i] != lengths) {
      hr_dtype own = c->inputs[i]->dtype;
      l->dtype = l->dtype == HR_DTYPE_NONE ? own : hr_dtype_promote(l->dtype, own);
    }
  }
  return hr_dtype_is_real(l->dtype) ? HR_OK
                                    : HR__CALL_FAIL(c, "dtype %s, expected a floating one", hr_dtype_name(l->dtype));
}

/* ---- what is the same in all steps ---- */

static const hr_tensor *converted(hr__formula *f, const layer *l, const char *name) {
  const hr_tensor *x = input_of(l->call, name);
  return x != NULL ? hr__as_dtype(f, x, l->dtype) : NULL;
}

/* h or c before the first step, [N, H]; zeros without the input. */
static const hr_tensor *state_of(hr__formula *f, const layer *l, const char *name) {
  const int64_t dims[2] = {l->batch, l->hidden};
  const hr_tensor *given = converted(f, l, name);
  return hr__formula_failed(f) ? NULL
         : given != NULL       ? hr__as_dims(f, given, 2, dims)
                               : hr__copied(f, hr__integer(f, 0), l->dtype, 2, dims);
}

/* x W^T + b. Rows are examples, then steps, or the other way round, if x's memory has that order. */
static const hr_tensor *sums_of(hr__formula *f, const layer *l) {
  const hr_tensor *weight = converted(f, l, "weight"), *x = converted(f, l, "x");
  if (hr__formula_failed(f)) {
    return x;
  }
  const int64_t inputs = weight->dims[1], cube[3] = {l->batch, l->steps, inputs},
                rows[2] = {l->batch * l->steps, inputs};
  x = hr__as_dims(f, x, 3, cube);
  bool by_steps = !hr__formula_failed(f) && l->batch > 1 && x->strides[0] != l->steps * x->strides[1];
  x = hr__as_dims(f, by_steps ? hr__moved(f, x, 0, 1) : x, 2, rows);
  const hr_tensor *operands[3] = {x, hr__moved(f, weight, 0, 1), converted(f, l, "bias")};
  const hr_tensor *sums = hr__step(f, HR_OP_MATMUL, NULL, operands[2] != NULL ? 3 : 2, operands, HR_DTYPE_NONE);
  const int64_t width = l->gates * l->hidden;
  const int64_t dims[3] = {by_steps ? l->steps : l->batch, by_steps ? l->batch : l->steps, width};
  sums = hr__formula_failed(f) ? sums : hr__as_dims(f, sums, 3, dims);
  return by_steps ? sums : hr__moved(f, sums, 0, 1);
}

static void prepare(hr__formula *f, layer *l) {
  const int64_t column[2] = {l->batch, 1};
  const hr_tensor *lengths = input_of(l->call, "lengths");
  l->sums = sums_of(f, l);
  l->recurrent = converted(f, l, "recurrent");
  l->transposed = hr__formula_failed(f) ? l->recurrent : hr__moved(f, l->recurrent, 0, 1);
  l->bias = converted(f, l, "recurrent_bias");
  l->peepholes = converted(f, l, "peepholes");
  l->lengths = lengths != NULL ? hr__as_dims(f, hr__places(f, lengths), 2, column) : NULL;
  l->first[0] = state_of(f, l, "hidden");
  l->first[1] = l->row == HR_OP_LSTM ? state_of(f, l, "cell") : NULL;
}

/* ---- one step ---- */

static const hr_tensor *activated(hr__formula *f, const layer *l, int word, const hr_tensor *x) {
  static const hr_functional functions[WORDS] = {
      HR_FUNCTIONAL_TANH,     HR_FUNCTIONAL_SIGMOID,  HR_FUNCTIONAL_RELU, HR_FUNCTIONAL_HARD_SIGMOID,
      HR_FUNCTIONAL_SOFTSIGN, HR_FUNCTIONAL_SOFTPLUS, HR_FUNCTIONAL_ELU,  HR_FUNCTIONAL_POSITIVE};
  if (l->clip > 0) {
    x = hr__ternary(f, HR_OP_CLAMP, x, hr__real(f, -l->clip), hr__real(f, l->clip));
  }
  return hr__formula_failed(f) ? x : hr__function(f, functions[word], 1, &x, 0, NULL);
}

/* Gate i of sums [N, gates * H], or of weights along dim `dim`. */
static const hr_tensor *gate_of(hr__formula *f, const layer *l, const hr_tensor *x, int dim, int i, int count) {
  return hr__part(f, x, dim, i * l->hidden, count * l->hidden);
}

static const hr_tensor *product(hr__formula *f, const hr_tensor *x, const hr_tensor *y, const hr_tensor *bias) {
  const hr_tensor *operands[3] = {x, y, bias};
  return hr__step(f, HR_OP_MATMUL, NULL, bias != NULL ? 3 : 2, operands, HR_DTYPE_NONE);
}

static const hr_tensor *gru_step(hr__formula *f, const layer *l, const hr_tensor *sums, const hr_tensor *h) {
  int count = l->resets_before ? 2 : 3;
  const hr_tensor *rows = gate_of(f, l, l->transposed, 1, 0, count);
  const hr_tensor *bias = l->bias != NULL ? gate_of(f, l, l->bias, 0, 0, count) : NULL;
  const hr_tensor *from_h = product(f, h, rows, bias), *gates[2], *of_n;
  for (int i = 0; i < 2; ++i) {
    const hr_tensor *sum = hr__plus(f, gate_of(f, l, sums, 1, i, 1), gate_of(f, l, from_h, 1, i, 1));
    gates[i] = activated(f, l, l->gate, sum);
  }
  if (l->resets_before) {
    bias = l->bias != NULL ? gate_of(f, l, l->bias, 0, 2, 1) : NULL;
    of_n = product(f, hr__times(f, gates[0], h), gate_of(f, l, l->transposed, 1, 2, 1), bias);
  } else {
    of_n = hr__times(f, gates[0], gate_of(f, l, from_h, 1, 2, 1));
  }
  const hr_tensor *n = activated(f, l, l->activation, hr__plus(f, gate_of(f, l, sums, 1, 2, 1), of_n));
  return hr__ternary(f, HR_OP_LERP, n, h, gates[1]);
}

/* c times the peepholes of a gate is added. */
static const hr_tensor *peeped(hr__formula *f, const layer *l, const hr_tensor *sum, const hr_tensor *c, int i) {
  return l->peepholes == NULL ? sum : hr__plus(f, sum, hr__times(f, gate_of(f, l, l->peepholes, 0, i, 1), c));
}

static void lstm_step(hr__formula *f, const layer *l, const hr_tensor *sums, const hr_tensor *const before[2],
                      const hr_tensor *after[2]) {
  enum { INPUT, FORGET, CELL, OUTPUT };
  const hr_tensor *all = product(f, before[0], l->transposed, sums), *c = before[1];
  const hr_tensor *i = activated(f, l, l->gate, peeped(f, l, gate_of(f, l, all, 1, INPUT, 1), c, 0));
  const hr_tensor *keeps = l->is_coupled
                               ? hr__binary(f, HR_OP_SUB, hr__integer(f, 1), i)
                               : activated(f, l, l->gate, peeped(f, l, gate_of(f, l, all, 1, FORGET, 1), c, 1));
  const hr_tensor *new = activated(f, l, l->activation, gate_of(f, l, all, 1, CELL, 1));
  c = hr__plus(f, hr__times(f, keeps, c), hr__times(f, i, new));
  const hr_tensor *o = activated(f, l, l->gate, peeped(f, l, gate_of(f, l, all, 1, OUTPUT, 1), c, 2));
  layer unbounded = *l;
  unbounded.clip = 0;
  after[0] = hr__times(f, o, activated(f, &unbounded, l->output, c)), after[1] = c;
}

/* The states after step t: `out`, which the caller releases. */
static hr_status run_step(const layer *l, int64_t t, const hr_tensor *const before[2], hr_tensor out[2]) {
  hr__formula f;
  hr__function_call call = *l->call;
  call.output = out, call.output_count = l->row == HR_OP_LSTM ? 2 : 1;
  hr__formula_begin(&f, &call);
  const hr_tensor *sums = hr__without(&f, hr__part(&f, l->sums, 0, t, 1), 1 << 0), *after[2] = {NULL};
  if (l->row == HR_OP_LSTM) {
    lstm_step(&f, l, sums, before, after);
  } else {
    after[0] = l->row == HR_OP_GRU ? gru_step(&f, l, sums, before[0])
                                   : activated(&f, l, l->activation, product(&f, before[0], l->transposed, sums));
  }
  if (l->lengths != NULL) {
    const hr_tensor *runs = hr__binary(&f, HR_OP_GT, l->lengths, hr__integer(&f, t));
    for (int i = 0; i < call.output_count; ++i) {
      after[i] = hr__ternary(&f, HR_OP_WHERE, runs, after[i], before[i]);
    }
  }
  return hr__formula_finish(&f, call.output_count, after);
}

/* ---- all steps ---- */

/* One state of all steps [T, N, H] of places [T, 2]. */
static const hr_tensor *joined(hr__formula *f, const layer *l, const hr_tensor *states, int which) {
  hr_tensor *views = hr_malloc((size_t)l->steps * sizeof *views);
  const hr_tensor **inputs = hr_malloc((size_t)l->steps * sizeof *inputs), *all = l->sums;
  if (views == NULL || inputs == NULL) {
    hr__formula_fail(f, hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "%s: no host memory for %lld steps",
                                       l->call->row->name, (long long)l->steps));
  }
  for (int64_t t = 0; !hr__formula_failed(f) && t < l->steps; ++t) {
    hr__copy_tensor(&states[2 * t + which], &views[t]);
    views[t].dims[2] = 1, views[t].strides[2] = 1, views[t].rank = 3;
    hr__move_dim(&views[t], 2, 0);
    inputs[t] = &views[t];
  }
  if (!hr__formula_failed(f)) {
    const int64_t ints[1] = {0};
    hr_attrs attrs = {.int_count = 1, .ints = ints};
    all = hr__step(f, HR_OP_CAT, &attrs, (int)l->steps, inputs, HR_DTYPE_NONE);
  }
  hr_free(views);
  hr_free(inputs);
  return all;
}

static hr_status run_steps(const layer *l, hr_tensor *states) {
  const hr_tensor *before[2] = {l->first[0], l->first[1]};
  for (int64_t i = 0; i < l->steps; ++i) {
    int64_t t = l->is_reversed ? l->steps - 1 - i : i;
    hr_tensor *after = &states[2 * t];
    HR_RETURN_IF_ERROR(run_step(l, t, before, after));
    before[0] = &after[0], before[1] = &after[1];
  }
  return HR_OK;
}

static void step_by_step(hr__formula *f, const layer *l, const hr_tensor *all[2]) {
  bool is_possible = !hr__formula_failed(f) && l->steps < INT32_MAX / 4;
  hr_tensor *states = is_possible ? hr_calloc(2 * (size_t)l->steps, sizeof *states) : NULL;
  if (states == NULL) {
    hr__formula_fail(f, hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "%s: no host memory for %lld steps",
                                       l->call->row->name, (long long)l->steps));
    return;
  }
  hr__formula_fail(f, run_steps(l, states));
  for (int i = 0; i < (l->row == HR_OP_LSTM ? 2 : 1); ++i) {
    all[i] = joined(f, l, states, i);
  }
  for (int64_t i = 0; i < 2 * l->steps; ++i) {
    hr_tensor_release(&states[i]);
  }
  hr_free(states);
}

static void by_row(hr__formula *f, const layer *l, const hr_tensor *all[2]) {
  bool is_lstm = l->row == HR_OP_LSTM;
  const hr_tensor *lstm[4] = {l->sums, l->first[0], l->first[1], l->recurrent};
  const hr_tensor *gru[4] = {l->sums, l->first[0], l->recurrent, l->bias};
  const int64_t ints[1] = {l->is_reversed};
  hr_attrs attrs = {.int_count = 1, .ints = ints};
  hr_tensor *h = hr__output(f, HR_DTYPE_NONE, 0, NULL), *c = is_lstm ? hr__output(f, HR_DTYPE_NONE, 0, NULL) : NULL;
  hr_tensor *outputs[2] = {h, c};
  hr__record_to(f, l->row, &attrs, 4, is_lstm ? lstm : gru, is_lstm ? 2 : 1, outputs);
  all[0] = h, all[1] = c;
}

/* True if a row of ops.def computes it. */
static bool has_row(const layer *l) {
  bool is_usual = l->gate == SIGMOID && l->activation == TANH && l->output == TANH && l->clip == 0;
  return l->row != HR_OP_TANH && is_usual && l->lengths == NULL && l->peepholes == NULL && !l->is_coupled &&
         !l->resets_before;
}

/* [T, N, H] with x's leading dims, and that of steps. */
static const hr_tensor *with_lead(hr__formula *f, const layer *l, const hr_tensor *all) {
  const hr_tensor *x = input_of(l->call, "x");
  int64_t dims[HR_RANK_MAX + 1];
  int rank = l->lead;
  if (hr__formula_failed(f)) {
    return all;
  }
  hr__copy_dims(rank, x->dims, dims);
  if (!l->is_cell) {
    dims[rank++] = l->steps;
  }
  dims[rank++] = l->hidden;
  return hr__as_dims(f, hr__moved(f, all, 0, 1), rank, dims);
}

static hr_status emit(const hr__function_call *c, hr_op row, int gates, bool is_cell) {
  layer l = {.call = c, .row = row, .is_cell = is_cell, .gates = gates};
  HR_RETURN_IF_ERROR(read_attributes(c, &l));
  HR_RETURN_IF_ERROR(read_dims(c, &l));
  HR_RETURN_IF_ERROR(read_dtype(c, &l));
  hr__formula f;
  hr__formula_begin(&f, c);
  prepare(&f, &l);
  const hr_tensor *all[2] = {l.sums, l.sums};
  (has_row(&l) ? by_row : step_by_step)(&f, &l, all);
  int count = row == HR_OP_LSTM ? 2 : 1;
  for (int i = 0; i < count; ++i) {
    all[i] = with_lead(&f, &l, all[i]);
  }
  return hr__formula_finish(&f, count, all);
}

hr_status hr__emit_rnn(const hr__function_call *c) {
  return emit(c, HR_OP_TANH, 1, false);
}
hr_status hr__emit_rnn_cell(const hr__function_call *c) {
  return emit(c, HR_OP_TANH, 1, true);
}
hr_status hr__emit_gru(const hr__function_call *c) {
  return emit(c, HR_OP_GRU, 3, false);
}
hr_status hr__emit_gru_cell(const hr__function_call *c) {
  return emit(c, HR_OP_GRU, 3, true);
}
hr_status hr__emit_lstm(const hr__function_call *c) {
  return emit(c, HR_OP_LSTM, 4, false);
}
hr_status hr__emit_lstm_cell(const hr__function_call *c) {
  return emit(c, HR_OP_LSTM, 4, true);
}
