/* The recurrent provider of the host against the lowering of its operations (core/ops/lower_sequence.c), evaluated
 * element by element with libm. Rows lie apart, between NaN; the workspace begins as NaN.
 * tests/python/test_recurrent.py compares the bits of cells.
 */
#include "base/thread.h"
#include "layer_cases.h"

enum { ALIGNMENT = 64, RUNS = 3 };

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
    unsigned optional = optional_operands(&forms[f]);
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
