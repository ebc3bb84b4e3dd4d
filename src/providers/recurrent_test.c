/* The recurrent provider of the host against the lowering of its operations (core/ops/lower_sequence.c), evaluated
 * element by element with libm. Rows lie apart, between NaN; the workspace begins as NaN.
 * tests/python/test_recurrent.py compares the bits of cells.
 */
#include <math.h>

#include "base/thread.h"
#include "core/ir/dtype.h"
#include "lower_testing.h"
#include "providers/provider.h"

enum { OPERANDS = 10, ALIGNMENT = 64, PAD = 5, RUNS = 3 };

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

/* A call that gets the numbers of the next one, which is then not prepared; NULL: none. */
static bool keeps_call;
static hr_prepared *kept;

static hr_prepared *prepare(const hr_program *program, size_t *out_used) {
  const hr_provider *provider = &hr__recurrent_provider;
  hr_prepared *prepared = kept;
  HR_ASSERT(provider->supports(program, &program->nodes[0]));
  if (prepared != NULL) {
    HR_ASSERT(provider->renumber(prepared, program, &program->nodes[0], out_used));
  } else {
    HR_ASSERT_OK(provider->prepare(program, &program->nodes[0], HR_ALGORITHM_OWN, NULL, &prepared, out_used));
  }
  kept = keeps_call ? prepared : NULL;
  return prepared;
}

/* `runs` times, of weights that stay the same. */
static void run_provider(layer_case *c, int runs) {
  const hr_provider *provider = &hr__recurrent_provider;
  const hr_program *program = &c->bench.program;
  uint64_t stamps[OPERANDS];
  size_t used;
  hr_prepared *prepared = prepare(program, &used);
  size_t bytes = (used + 2 * ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  unsigned char *workspace = aligned_alloc(ALIGNMENT, bytes);
  HR_ASSERT_NOT_NULL(workspace);
  for (int i = 0; i < OPERANDS; ++i) {
    stamps[i] = random_state;
  }
  for (int i = 0; i < runs; ++i) {
    memset(workspace, 0xFF, bytes); /* NaN */
    provider->stamp(prepared, stamps);
    HR_ASSERT_OK(provider->run(prepared, c->memory[0], workspace, NULL));
  }
  for (size_t i = used; i < bytes; ++i) {
    HR_ASSERT_EQ(workspace[i], 0xFF);
  }
  free(workspace);
  if (!keeps_call) {
    provider->release(prepared);
  }
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

static void check(const form *f, const problem *p) {
  layer_case c = make_case(f, p);
  run_provider(&c, 1);
  run_reference(&c);
  compare(&c, p);
  free_case(&c);
}

static const int64_t sizes[][3] = {{1, 1, 1},  {2, 1, 16},  {3, 2, 3},  {2, 3, 17}, {4, 5, 15}, {2, 6, 64},
                                   {3, 7, 33}, {2, 13, 20}, {2, 4, 65}, {1, 8, 48}, {2, 1, 130}};
enum { SIZES = sizeof sizes / sizeof *sizes };

HR_TEST(recurrent_layers_at_the_edges_of_blocks) {
  for (int f = 0; f < FORMS; ++f) {
    for (int i = 0; i < 2 * SIZES; ++i) {
      const int64_t *s = sizes[i / 2];
      check(&forms[f], &(problem){s[0], s[1], s[2], .is_reverse = i % 2 != 0, .is_spread = i % 2 != 0});
    }
  }
}

HR_TEST(recurrent_layers_get_new_numbers_in_place) {
  for (int f = 0; f < FORMS; ++f) {
    keeps_call = true;
    for (int i = 0; i < SIZES; ++i) {
      const int64_t *s = sizes[i];
      check(&forms[f], &(problem){s[0], s[1], s[2]});
    }
    keeps_call = false;
    hr__recurrent_provider.release(kept);
    kept = NULL;
  }
}

/* Every optional operand alone, and all of them. */
HR_TEST(recurrent_layers_without_optional_operands) {
  for (int f = 0; f < FORMS; ++f) {
    const hr_op_row *row = hr_op_table(forms[f].op);
    unsigned optional = 0;
    for (int i = 0; i < forms[f].count; ++i) {
      bool is_input = i < forms[f].input_count;
      uint32_t required = is_input ? row->inputs.needed : row->outputs.needed;
      optional |= (required >> (is_input ? i : i - forms[f].input_count) & 1) != 0 ? 0 : 1u << i;
    }
    for (int i = 0; i <= forms[f].count; ++i) {
      problem p = {3, 5, 19, .absent = i == forms[f].count ? optional : optional & 1u << i};
      check(&forms[f], &p);
      p.steps = 1;
      check(&forms[f], &p);
    }
  }
}

HR_TEST(recurrent_layers_of_nan_and_infinities) {
  for (int f = 0; f < FORMS; ++f) {
    check(&forms[f], &(problem){3, 4, 18, .is_spoiled = true});
    check(&forms[f], &(problem){3, 4, 18, .is_spoiled = true, .is_reverse = true});
  }
}

/* ---- threads, cached weights ---- */

/* Rows divided among threads, steps divided among threads, neither. */
HR_TEST(recurrent_layers_have_the_same_bits_with_any_number_of_threads) {
  static const int64_t large[][3] = {{3, 41, 130}, {2, 3, 310}, {4, 3, 20}};
  for (int f = 0; f < FORMS; ++f) {
    for (int i = 0; i < 3; ++i) {
      problem p = {large[i][0], large[i][1], large[i][2]};
      layer_case cases[3];
      for (int threads = 1; threads <= 3; ++threads) {
        hr_thread_count_set(threads);
        random_state = 5;
        cases[threads - 1] = make_case(&forms[f], &p);
        run_provider(&cases[threads - 1], 1);
      }
      hr_thread_count_set(0);
      for (int k = 0; k < forms[f].count; ++k) {
        for (int threads = 1; threads < 3; ++threads) {
          HR_ASSERT_BYTES_EQ(cases[threads].memory[0][k], cases[0].memory[0][k], cases[0].bytes[k]);
        }
      }
      for (int k = 0; k < 3; ++k) {
        free_case(&cases[k]);
      }
    }
  }
}

/* The first run packs for itself, the second for the cache, the third reads the cache. */
HR_TEST(recurrent_layers_from_cached_weights) {
  for (int f = 0; f < FORMS; ++f) {
    for (int runs = 1; runs <= RUNS; ++runs) {
      problem p = {2, 3, 37};
      layer_case c = make_case(&forms[f], &p);
      run_provider(&c, runs);
      run_reference(&c);
      compare(&c, &p);
      free_case(&c);
    }
  }
}

HR_TEST(recurrent_layers_that_are_lowered) {
  problem p = {2, 3, 4};
  layer_case c = make_case(&forms[0], &p);
  hr_node *node = &c.bench.program.nodes[0];
  HR_ASSERT(hr__recurrent_provider.supports(&c.bench.program, node));
  node->inputs[1].strides = (int64_t[]){1, 3};
  HR_ASSERT(!hr__recurrent_provider.supports(&c.bench.program, node));
  node->inputs[1].strides = (int64_t[]){4, 1};
  node->outputs[0].dtype = HR_DTYPE_F16;
  HR_ASSERT(!hr__recurrent_provider.supports(&c.bench.program, node));
  node->outputs[0].dtype = HR_DTYPE_F32;
  node->op = HR_OP_LSTM_CELL;
  HR_ASSERT(!hr__recurrent_provider.supports(&c.bench.program, node));
  free_case(&c);
}
