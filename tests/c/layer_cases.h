/* layer_cases.h: layers of LSTM and GRU, and their gradients, for the providers that run them, against the lowering of
 * their operations (core/ops/lower_sequence.c), evaluated element by element with libm. Rows lie apart, between NaN. */
#ifndef HEADRACE_TESTS_LAYER_CASES_H_
#define HEADRACE_TESTS_LAYER_CASES_H_

#include <math.h>

#include "core/ir/dtype.h"
#include "lower_testing.h"
#include "providers/provider.h"

enum { OPERANDS = 10, PAD = 5 };

/* For each operand, inputs first: s steps [T, N, n * H], n rows [N, H], w the weight [n * H, H], b a bias [n * H]. */
typedef struct form {
  hr_op op;
  int input_count, count;
  char kinds[OPERANDS];
  int factors[OPERANDS];
} form;

static const form forms[] = {
    {HR_OP_LSTM, 4, 9, "snnwsssnn", {4, 1, 1, 4, 1, 1, 4, 1, 1}},
    {HR_OP_LSTM_BACKWARD, 7, 10, "snnnsswsnn", {1, 1, 1, 1, 1, 4, 4, 4, 1, 1}},
    {HR_OP_GRU, 4, 7, "snwbssn", {3, 1, 3, 3, 1, 5, 1}},
    {HR_OP_GRU_BACKWARD, 4, 7, "snswssn", {1, 1, 5, 3, 3, 3, 1}},
};
enum { FORMS = sizeof forms / sizeof *forms };

typedef struct problem {
  int64_t steps, batch, hidden;
  bool is_reverse, is_spoiled;
  unsigned absent; /* a bit for each operand */
  bool is_spread;  /* the columns of gradients of results */
} problem;

typedef struct layer_case {
  const form *form;
  bench bench;
  void *memory[2][OPERANDS]; /* the provider's, the reference's */
  size_t bytes[OPERANDS];
} layer_case;

static uint64_t random_state = 1;

static float random_number(void) { /* in [-1, 1) */
  random_state = random_state * 6364136223846793005u + 1442695040888963407u;
  return (float)((double)(int32_t)(random_state >> 32) / 2147483648.0);
}

static bool is_absent(const problem *p, int i) {
  return (p->absent >> i & 1) != 0;
}

static hr_operand make_operand(layer_case *c, const problem *p, int i) {
  char kind = c->form->kinds[i];
  int64_t width = c->form->factors[i] * p->hidden, rows = kind == 'w' ? width : p->batch;
  int64_t dims[3] = {p->steps, rows, kind == 'w' || kind == 'n' ? p->hidden : width};
  int rank = kind == 's' ? 3 : kind == 'b' ? 1 : 2, first = 3 - rank;
  int64_t column = p->is_spread && i < 3 && c->form->op == HR_OP_LSTM_BACKWARD ? 2 : 1;
  int64_t row = dims[2] * column + (kind == 'w' ? 0 : PAD), time = dims[1] * row + PAD;
  int64_t count = PAD + (rank > 2 ? dims[0] : 1) * time + row, strides[3] = {time, row, column};
  float *data = malloc((size_t)count * sizeof *data);
  HR_ASSERT_NOT_NULL(data);
  for (int64_t k = 0; k < count; ++k) {
    data[k] = NAN;
  }
  for (int64_t t = 0; t < (rank > 2 ? dims[0] : 1); ++t) {
    for (int64_t r = 0; r < (rank > 1 ? dims[1] : 1); ++r) {
      for (int64_t k = 0; k < dims[2]; ++k) {
        data[PAD + t * time + r * row + k * column] = random_number() * (kind == 'w' ? 1 / sqrtf((float)p->hidden) : 1);
      }
    }
  }
  if (p->is_spoiled && i == 0 && kind == 's') {
    data[PAD] = INFINITY, data[PAD + (dims[1] - 1) * row + dims[2] - 1] = NAN;
  }
  hr_operand x = bench_tensor(&c->bench, HR_DTYPE_F32, data, (size_t)count * sizeof *data, rank, dims + first);
  x.offset = PAD;
  x.strides = hr_arena_dup(&c->bench.program.arena, strides + first, (size_t)rank * sizeof *strides);
  c->memory[0][i] = data, c->bytes[i] = (size_t)count * sizeof *data;
  c->memory[1][i] = malloc(c->bytes[i]);
  HR_ASSERT_NOT_NULL(c->memory[1][i]);
  memcpy(c->memory[1][i], data, c->bytes[i]);
  return x;
}

static layer_case make_case(const form *f, const problem *p) {
  layer_case c = {.form = f, .bench = bench_begin()};
  hr_operand operands[OPERANDS];
  for (int i = 0; i < f->count; ++i) {
    operands[i] = is_absent(p, i) ? ABSENT : make_operand(&c, p, i);
  }
  bench_record(&c.bench, f->op, f->input_count, operands, f->count - f->input_count, operands + f->input_count,
               INTS(p->is_reverse), NO_SCALARS);
  return c;
}

static void free_case(layer_case *c) {
  for (int i = 0; i < c->form->count; ++i) {
    free(c->memory[0][i]), free(c->memory[1][i]);
  }
  hr_program_fini(&c->bench.program);
}

static void run_reference(layer_case *c) {
  void *memory[BENCH_BUFFERS_MAX] = {0};
  int count = 0;
  for (int i = 0; i < c->form->count; ++i) {
    if (c->memory[1][i] != NULL) {
      memory[count++] = c->memory[1][i];
    }
  }
  HR_ASSERT_OK(hr_program_evaluate(&c->bench.program, memory, NULL));
}

static void compare(const layer_case *c, const problem *p) {
  for (int i = 0; i < c->form->count; ++i) {
    const float *actual = c->memory[0][i], *expected = c->memory[1][i];
    for (size_t k = 0; k < c->bytes[i] / sizeof *actual; ++k) {
      float error = fabsf(actual[k] - expected[k]), bound = 4e-6f * (1 + fabsf(expected[k]));
      bool are_nan = isnan(actual[k]) && isnan(expected[k]);
      if (!are_nan && actual[k] != expected[k] && !(error <= bound)) {
        printf("%s: T %d N %d H %d: operand %d, element %d\n", hr_op_table(c->form->op)->name, (int)p->steps,
               (int)p->batch, (int)p->hidden, i, (int)k);
        HR_ASSERT_NEAR(actual[k], expected[k], bound);
      }
    }
  }
}

/* Every optional operand of a form, as bits. */
static unsigned optional_operands(const form *f) {
  const hr_op_row *row = hr_op_table(f->op);
  unsigned optional = 0;
  for (int i = 0; i < f->count; ++i) {
    bool is_input = i < f->input_count;
    uint32_t required = is_input ? row->inputs.needed : row->outputs.needed;
    optional |= (required >> (is_input ? i : i - f->input_count) & 1) != 0 ? 0 : 1u << i;
  }
  return optional;
}

#endif
