/* value_pair.h: a program in value form twice, of which a pass has changed one: visible results keep their bits. */
#ifndef HEADRACE_TESTS_VALUE_PAIR_H_
#define HEADRACE_TESTS_VALUE_PAIR_H_

#include "hr_test.h"

#include "compiler/passes.h"
#include "program_runner.h"

enum { VALUE_BUFFERS = 8, VALUE_FLOATS = 8 };

typedef struct value_pair {
  hr_program stream, programs[2]; /* as they were parsed; expanded, with versions */
} value_pair;

static value_pair open_value_pair(const char *text) {
  value_pair pair;
  HR_ASSERT_OK(hr_program_parse(text, &pair.stream));
  HR_ASSERT_OK(hr_program_verify(&pair.stream));
  for (int k = 0; k < 2; ++k) {
    HR_ASSERT_OK(hr_expand(&pair.stream, NULL, NULL, &pair.programs[k]));
    hr_versions(&pair.programs[k]);
  }
  return pair;
}

static void evaluate_value(hr_program *value, float memory[VALUE_BUFFERS][VALUE_FLOATS]) {
  const hr_scalar scalars[1] = {hr_scalar_f64(0.5)};
  void *addresses[VALUE_BUFFERS];
  hr_program loops;
  hr__to_stream_form(value);
  for (int n = 0; n < value->node_count; ++n) {
    value->nodes[n].is_loop = false; /* rows are recorded as they are */
  }
  HR_ASSERT_OK(hr_expand(value, NULL, NULL, &loops));
  for (int b = 0; b < VALUE_BUFFERS; ++b) {
    for (int i = 0; i < VALUE_FLOATS; ++i) {
      memory[b][i] = (float)(b * 8 + i);
    }
    addresses[b] = memory[b];
  }
  HR_ASSERT_OK(hr_program_evaluate(&loops, addresses, scalars));
  hr_program_fini(&loops);
}

/* Runs both, compares what is visible, and frees them. */
static void close_value_pair(value_pair *pair) {
  float memory[2][VALUE_BUFFERS][VALUE_FLOATS];
  for (int k = 0; k < 2; ++k) {
    evaluate_value(&pair->programs[k], memory[k]);
  }
  for (int b = 0; b < pair->stream.bound_count; ++b) {
    HR_ASSERT(pair->stream.buffers[b].is_dead || memcmp(memory[0][b], memory[1][b], sizeof memory[0][b]) == 0);
  }
  for (int k = 0; k < 2; ++k) {
    hr_program_fini(&pair->programs[k]);
  }
  hr_program_fini(&pair->stream);
}

#endif
