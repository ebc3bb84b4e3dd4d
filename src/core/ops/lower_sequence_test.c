/* Recurrent layers without a provider: the same nodes, and the same bits, as recorded products and cells. */
#include <stddef.h>

#include "lower_testing.h"

enum { T = 3, N = 2, H = 3 };

typedef struct numbers {
  float gates[T * N * 4 * H], first[2][N * H], weight[4 * H * H], bias[3 * H];
  float states[T * N * H], cells[T * N * H], workspace[T * N * 5 * H], last[2][N * H];
  float by_states[T * N * H], by_last[2][N * H], dgates[2][T * N * 4 * H], dfirst[2][N * H];
  float steps[2 * T][N * 4 * H]; /* temporaries of recorded steps */
} numbers;

static void fill(float *out, size_t bytes, int factor) {
  for (size_t i = 0; i < bytes / sizeof *out; ++i) {
    out[i] = (float)((int)(i * (size_t)factor + 5) % 29 - 14) / 16;
  }
}

static void init(numbers *n) {
  memset(n, 0, sizeof *n);
  fill(n->gates, sizeof n->gates, 7), fill(n->first[0], sizeof n->first, 11), fill(n->weight, sizeof n->weight, 13);
  fill(n->bias, sizeof n->bias, 3), fill(n->cells, sizeof n->cells, 5), fill(n->workspace, sizeof n->workspace, 9);
  fill(n->by_states, sizeof n->by_states, 17), fill(n->by_last[0], sizeof n->by_last, 19);
}

/* [T, N, columns]; or its step t. */
static hr_operand sequence(bench *t, float *data, int64_t columns) {
  return bench_tensor(t, HR_DTYPE_F32, data, (size_t)(T * N * columns) * sizeof *data, 3, (int64_t[]){T, N, columns});
}
static hr_operand at(bench *t, float *data, int64_t columns, int64_t time) {
  hr_operand x = sequence(t, data, columns);
  x.offset = time * N * columns;
  x.rank = 2, ++x.dims, ++x.strides;
  return x;
}
static hr_operand weight_of(bench *t, numbers *n, int64_t gates, bool is_transposed) {
  hr_operand w = bench_tensor(t, HR_DTYPE_F32, n->weight, sizeof n->weight, 2, (int64_t[]){gates * H, H});
  if (is_transposed) {
    int64_t *dims = HR_ARENA_ARRAY(&t->program.arena, int64_t, 4);
    dims[0] = H, dims[1] = gates * H, dims[2] = 1, dims[3] = H;
    w.dims = dims, w.strides = dims + 2;
  }
  return w;
}

static int64_t time_of(bool is_reverse, int64_t step) {
  return is_reverse ? T - 1 - step : step;
}

static hr_operand state(bench *t, float *data) {
  return bench_tensor(t, HR_DTYPE_F32, data, sizeof(float[N * H]), 2, (int64_t[]){N, H});
}

static void multiply(bench *t, hr_operand out, hr_operand left, hr_operand right, hr_operand addend) {
  bench_record(t, HR_OP_MATMUL, addend.kind == HR_OPERAND_NONE ? 2 : 3, (hr_operand[]){left, right, addend}, 1, &out, 0,
               NULL, NO_SCALARS);
}
static void copy(bench *t, float *to, hr_operand from) {
  bench_record(t, HR_OP_COPY, INPUTS(from), OUTPUTS(state(t, to)), NO_INTS, NO_SCALARS);
}

typedef void (*record_fn)(bench *t, numbers *n, bool is_reverse);

static void record_lstm(bench *t, numbers *n, bool is_reverse) {
  bench_record(
      t, HR_OP_LSTM,
      INPUTS(sequence(t, n->gates, 4 * H), state(t, n->first[0]), state(t, n->first[1]), weight_of(t, n, 4, false)),
      OUTPUTS(sequence(t, n->states, H), sequence(t, n->cells, H), sequence(t, n->workspace, 4 * H),
              state(t, n->last[0]), state(t, n->last[1])),
      INTS(is_reverse), NO_SCALARS);
}

static void record_lstm_steps(bench *t, numbers *n, bool is_reverse) {
  hr_operand h = state(t, n->first[0]), c = state(t, n->first[1]);
  for (int64_t step = 0; step < T; ++step) {
    int64_t time = time_of(is_reverse, step);
    hr_operand hidden = TENSOR(t, F32, n->steps[step], N, 4 * H);
    multiply(t, hidden, h, weight_of(t, n, 4, true), ABSENT);
    hr_operand states = at(t, n->states, H, time), cells = at(t, n->cells, H, time);
    bench_record(t, HR_OP_LSTM_CELL, INPUTS(at(t, n->gates, 4 * H, time), hidden, c),
                 OUTPUTS(states, cells, at(t, n->workspace, 4 * H, time)), NO_INTS, NO_SCALARS);
    h = states, c = cells;
  }
  copy(t, n->last[0], h), copy(t, n->last[1], c);
}

static void record_gru(bench *t, numbers *n, bool is_reverse) {
  bench_record(t, HR_OP_GRU,
               INPUTS(sequence(t, n->gates, 3 * H), state(t, n->first[0]), weight_of(t, n, 3, false),
                      TENSOR(t, F32, n->bias, 3 * H)),
               OUTPUTS(sequence(t, n->states, H), sequence(t, n->workspace, 5 * H), state(t, n->last[0])),
               INTS(is_reverse), NO_SCALARS);
}

static void record_gru_steps(bench *t, numbers *n, bool is_reverse) {
  hr_operand h = state(t, n->first[0]);
  for (int64_t step = 0; step < T; ++step) {
    int64_t time = time_of(is_reverse, step);
    hr_operand hidden = TENSOR(t, F32, n->steps[step], N, 3 * H), states = at(t, n->states, H, time);
    multiply(t, hidden, h, weight_of(t, n, 3, true), ABSENT);
    bench_record(t, HR_OP_GRU_CELL,
                 INPUTS(at(t, n->gates, 3 * H, time), hidden, h, ABSENT, TENSOR(t, F32, n->bias, 3 * H)),
                 OUTPUTS(states, at(t, n->workspace, 5 * H, time)), NO_INTS, NO_SCALARS);
    h = states;
  }
  copy(t, n->last[0], h);
}

static void record_lstm_backward(bench *t, numbers *n, bool is_reverse) {
  bench_record(t, HR_OP_LSTM_BACKWARD,
               INPUTS(sequence(t, n->by_states, H), ABSENT, state(t, n->by_last[1]), state(t, n->first[1]),
                      sequence(t, n->cells, H), sequence(t, n->workspace, 4 * H), weight_of(t, n, 4, false)),
               OUTPUTS(sequence(t, n->dgates[0], 4 * H), state(t, n->dfirst[0]), state(t, n->dfirst[1])),
               INTS(is_reverse), NO_SCALARS);
}

static void record_lstm_backward_steps(bench *t, numbers *n, bool is_reverse) {
  hr_operand dc = state(t, n->by_last[1]);
  for (int64_t step = T - 1; step >= 0; --step) {
    int64_t time = time_of(is_reverse, step);
    hr_operand dh = at(t, n->by_states, H, time);
    if (step < T - 1) {
      hr_operand product = TENSOR(t, F32, n->steps[step], N, H);
      multiply(t, product, at(t, n->dgates[0], 4 * H, time_of(is_reverse, step + 1)), weight_of(t, n, 4, false), dh);
      dh = product;
    }
    hr_operand before = step > 0 ? at(t, n->cells, H, time_of(is_reverse, step - 1)) : state(t, n->first[1]);
    hr_operand made = TENSOR(t, F32, n->steps[T + step], N, H);
    bench_record(t, HR_OP_LSTM_CELL_BACKWARD,
                 INPUTS(dh, dc, before, at(t, n->cells, H, time), at(t, n->workspace, 4 * H, time)),
                 OUTPUTS(at(t, n->dgates[0], 4 * H, time), made), NO_INTS, NO_SCALARS);
    dc = made;
  }
  hr_operand dh = TENSOR(t, F32, n->steps[T - 1], N, H);
  multiply(t, dh, at(t, n->dgates[0], 4 * H, time_of(is_reverse, 0)), weight_of(t, n, 4, false), ABSENT);
  copy(t, n->dfirst[0], dh), copy(t, n->dfirst[1], dc);
}

static void record_gru_backward(bench *t, numbers *n, bool is_reverse) {
  bench_record(t, HR_OP_GRU_BACKWARD,
               INPUTS(sequence(t, n->by_states, H), state(t, n->by_last[0]), sequence(t, n->workspace, 5 * H),
                      weight_of(t, n, 3, false)),
               OUTPUTS(sequence(t, n->dgates[0], 3 * H), sequence(t, n->dgates[1], 3 * H), state(t, n->dfirst[0])),
               INTS(is_reverse), NO_SCALARS);
}

static void record_gru_backward_steps(bench *t, numbers *n, bool is_reverse) {
  hr_operand dh = state(t, n->by_last[0]);
  for (int64_t step = T - 1; step >= 0; --step) {
    int64_t time = time_of(is_reverse, step);
    float *room = n->steps[T + step];
    hr_operand sum = bench_tensor(t, HR_DTYPE_F32, room, sizeof n->steps[0], 2, (int64_t[]){N, H});
    hr_operand through = sum, next = TENSOR(t, F32, n->steps[step], N, H);
    through.offset = N * H;
    bench_record(t, HR_OP_ADD, INPUTS(at(t, n->by_states, H, time), dh), OUTPUTS(sum), NO_INTS, NO_SCALARS);
    bench_record(t, HR_OP_GRU_CELL_BACKWARD, INPUTS(sum, at(t, n->workspace, 5 * H, time)),
                 OUTPUTS(at(t, n->dgates[0], 3 * H, time), at(t, n->dgates[1], 3 * H, time), through), NO_INTS,
                 NO_SCALARS);
    multiply(t, next, at(t, n->dgates[1], 3 * H, time), weight_of(t, n, 3, false), through);
    dh = next;
  }
  copy(t, n->dfirst[0], dh);
}

static bool keeps_products(void *ctx, const hr_program *program, const hr_node *node) {
  (void)ctx, (void)program;
  return node->op == HR_OP_MATMUL;
}

/* The same operations in the same order, with the same dims. */
static void check_nodes(bench *layer, bench *steps) {
  hr_program a, b;
  HR_ASSERT_OK(hr_expand(&layer->program, keeps_products, NULL, &a));
  HR_ASSERT_OK(hr_expand(&steps->program, keeps_products, NULL, &b));
  HR_ASSERT_EQ(a.node_count, b.node_count);
  for (int i = 0; i < a.node_count; ++i) {
    const hr_node *x = &a.nodes[i], *y = &b.nodes[i];
    HR_ASSERT_EQ(x->op, y->op);
    HR_ASSERT_EQ(x->input_count, y->input_count);
    for (int k = 0; k < x->input_count + x->output_count; ++k) {
      const hr_operand *p = hr_node_operand(x, k), *q = hr_node_operand(y, k);
      HR_ASSERT_EQ(p->kind, q->kind);
      HR_ASSERT_EQ(p->rank, q->rank);
      HR_ASSERT(p->rank == 0 || memcmp(p->dims, q->dims, (size_t)p->rank * sizeof *p->dims) == 0);
    }
  }
  hr_program_fini(&a), hr_program_fini(&b);
}

static void check(record_fn record, record_fn record_steps) {
  static numbers by_layer, by_steps;
  for (int is_reverse = 0; is_reverse < 2; ++is_reverse) {
    bench layer = bench_begin(), steps = bench_begin();
    init(&by_layer), init(&by_steps);
    record(&layer, &by_layer, is_reverse), record_steps(&steps, &by_steps, is_reverse);
    check_nodes(&layer, &steps);
    HR_ASSERT_OK(bench_run(&layer));
    HR_ASSERT_OK(bench_run(&steps));
    HR_ASSERT_BYTES_EQ(&by_layer, &by_steps, offsetof(numbers, steps));
  }
}

HR_TEST(layers_are_products_and_cells) {
  check(record_lstm, record_lstm_steps);
  check(record_gru, record_gru_steps);
}

HR_TEST(gradients_of_layers_are_products_and_cells) {
  check(record_lstm_backward, record_lstm_backward_steps);
  check(record_gru_backward, record_gru_backward_steps);
}

/* Results of all steps that nobody wants go to one place, step after step: the same nodes as with them. */
HR_TEST(layers_without_a_gradient_keep_one_step) {
  static numbers kept, others;
  init(&kept), init(&others);
  bench t = bench_begin(), all = bench_begin();
  bench_record(
      &t, HR_OP_LSTM,
      INPUTS(sequence(&t, others.gates, 4 * H), state(&t, others.first[0]), state(&t, others.first[1]),
             weight_of(&t, &others, 4, false)),
      OUTPUTS(sequence(&t, others.states, H), ABSENT, ABSENT, state(&t, others.last[0]), state(&t, others.last[1])),
      INTS(0), NO_SCALARS);
  record_lstm(&all, &kept, false);
  check_nodes(&t, &all);
  HR_ASSERT_OK(bench_run(&t));
  HR_ASSERT_OK(bench_run(&all));
  HR_ASSERT_BYTES_EQ(others.states, kept.states, sizeof kept.states);
  HR_ASSERT_BYTES_EQ(others.last, kept.last, sizeof kept.last);
}

/* A layer without steps passes its first state on, and its gradient back. */
HR_TEST(layers_without_steps) {
  static numbers n;
  init(&n);
  float none[1] = {0};
  bench t = bench_begin();
  hr_operand steps = TENSOR(&t, F32, none, 0, N, H), gates = TENSOR(&t, F32, none, 0, N, 4 * H);
  bench_record(&t, HR_OP_LSTM, INPUTS(gates, state(&t, n.first[0]), state(&t, n.first[1]), weight_of(&t, &n, 4, false)),
               OUTPUTS(steps, steps, gates, state(&t, n.last[0]), state(&t, n.last[1])), INTS(0), NO_SCALARS);
  bench_record(
      &t, HR_OP_LSTM_BACKWARD,
      INPUTS(steps, state(&t, n.by_last[0]), ABSENT, state(&t, n.first[1]), steps, gates, weight_of(&t, &n, 4, false)),
      OUTPUTS(gates, state(&t, n.dfirst[0]), state(&t, n.dfirst[1])), INTS(0), NO_SCALARS);
  memset(n.dfirst, 0xff, sizeof n.dfirst);
  HR_ASSERT_OK(bench_run(&t));
  HR_ASSERT_BYTES_EQ(n.last, n.first, sizeof n.last);
  HR_ASSERT_BYTES_EQ(n.dfirst[0], n.by_last[0], sizeof n.dfirst[0]);
  for (int i = 0; i < N * H; ++i) {
    HR_ASSERT(n.dfirst[1][i] == 0);
  }
}

HR_TEST(layers_report_failing_allocations) {
  static numbers n;
  init(&n);
  bench t = bench_begin();
  record_lstm(&t, &n, false), record_gru_backward(&t, &n, true);
  bench_check_oom(&t);
}
