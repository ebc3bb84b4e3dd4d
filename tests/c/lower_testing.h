/* lower_testing.h: a bench for tests of lowerings: records operations on arrays of the test and evaluates them with the
 * reference evaluator, which expands them first.
 *
 *   bench t = bench_begin();
 *   bench_record(&t, HR_OP_TRI, INPUTS(TENSOR(&t, F32, x, 3, 3)), OUTPUTS(TENSOR(&t, F32, y, 3, 3)), INTS(1),
 *                SCALARS(I64(0)));
 *   HR_ASSERT_OK(bench_run(&t));
 */
#ifndef HEADRACE_TESTS_LOWER_TESTING_H_
#define HEADRACE_TESTS_LOWER_TESTING_H_

#include <string.h>

#include "core/ir/build.h"
#include "core/ir/program.h"
#include "hr_test.h"

enum { BENCH_BUFFERS_MAX = 64, BENCH_SCALARS_MAX = 32 };

typedef struct bench {
  hr_program program;
  void *memory[BENCH_BUFFERS_MAX];
  hr_scalar arguments[BENCH_SCALARS_MAX];
} bench;

/* Numbers of both signs, in a different order for each factor. */
static inline void fill_numbers(double *out, int count, int factor) {
  for (int i = 0; i < count; ++i) {
    out[i] = (double)((i * factor + 3) % 23 - 11) / 4;
  }
}

static inline double dot(const double *a, const double *b, int count) {
  double sum = 0;
  for (int i = 0; i < count; ++i) {
    sum += a[i] * b[i];
  }
  return sum;
}

static inline bench bench_begin(void) {
  bench t = {0};
  hr_program_init(&t.program);
  return t;
}

/* A contiguous tensor on `data`; passing the same array twice gives the same buffer. */
static inline hr_operand bench_tensor(bench *t, hr_dtype dtype, void *data, size_t bytes, int rank,
                                      const int64_t *dims) {
  uint32_t buffer = 0;
  while ((int)buffer < t->program.buffer_count && t->memory[buffer] != data) {
    ++buffer;
  }
  if ((int)buffer == t->program.buffer_count) {
    HR_ASSERT(buffer < BENCH_BUFFERS_MAX);
    t->memory[buffer] = data;
    hr_program_add_buffer(&t->program, bytes, false, false);
    t->program.bound_count = t->program.buffer_count;
  }
  int64_t *strides = HR_ARENA_ARRAY(&t->program.arena, int64_t, (size_t)rank), step = 1;
  for (int d = rank - 1; d >= 0; --d) {
    strides[d] = step;
    step *= dims[d];
  }
  return (hr_operand){.kind = HR_OPERAND_VALUE,
                      .dtype = dtype,
                      .index = buffer,
                      .rank = rank,
                      .dims = hr_arena_dup(&t->program.arena, rank > 0 ? dims : NULL, (size_t)rank * sizeof *dims),
                      .strides = strides,
                      .fill = HR_NO_SCALAR};
}

/* A number that the caller passes as an operand. */
static inline hr_operand bench_number(bench *t, hr_scalar value) {
  HR_ASSERT(t->program.argument_count < BENCH_SCALARS_MAX);
  t->arguments[t->program.argument_count] = value;
  uint32_t index = hr_program_add_argument(&t->program, value.dtype);
  return (hr_operand){.kind = HR_OPERAND_SCALAR, .dtype = value.dtype, .index = index, .fill = HR_NO_SCALAR};
}

static inline void bench_record(bench *t, hr_op op, int input_count, const hr_operand *inputs, int output_count,
                                const hr_operand *outputs, int int_count, const int64_t *ints, int scalar_count,
                                const hr_scalar *scalars) {
  hr_node node = {.op = op,
                  .input_count = input_count,
                  .inputs = (hr_operand *)inputs,
                  .output_count = output_count,
                  .outputs = (hr_operand *)outputs,
                  .int_count = int_count,
                  .ints = ints,
                  .scalar_count = scalar_count,
                  .scalar_base = (uint32_t)t->program.scalar_count};
  for (int i = 0; i < scalar_count; ++i) {
    bench_number(t, scalars[i]);
  }
  HR_ASSERT(hr_program_append(&t->program, &node));
}

/* Evaluates the recorded program and ends the bench. */
static inline hr_status bench_run(bench *t) {
  hr_status status = hr_program_evaluate(&t->program, t->memory, t->arguments);
  hr_program_fini(&t->program);
  return status;
}

/* The number of loop nodes (and checks) that the recorded operations expand to; the bench stays usable. */
static inline int bench_count_nodes(bench *t) {
  hr_program expanded;
  HR_ASSERT_OK(hr_expand(&t->program, NULL, NULL, &expanded));
  int count = expanded.node_count;
  hr_program_fini(&expanded);
  return count;
}

static bench *bench_under_test;
static inline hr_status bench_expand(void) {
  hr_program expanded;
  hr_status status = hr_expand(&bench_under_test->program, NULL, NULL, &expanded);
  if (status == HR_OK) {
    hr_program_fini(&expanded);
  }
  return status;
}
/* Expansion reports every allocation that fails, and leaks nothing; ends the bench. */
static inline void bench_check_oom(bench *t) {
  bench_under_test = t;
  HR_TEST_OOM(bench_expand);
  hr_program_fini(&t->program);
}

#define BENCH_LIST(type, ...)                                     \
  (int)(sizeof((type[]){__VA_ARGS__}) / sizeof(type)), (type[]) { \
    __VA_ARGS__                                                   \
  }
#define INPUTS(...) BENCH_LIST(hr_operand, __VA_ARGS__)
#define OUTPUTS(...) BENCH_LIST(hr_operand, __VA_ARGS__)
#define INTS(...) BENCH_LIST(int64_t, __VA_ARGS__)
#define SCALARS(...) BENCH_LIST(hr_scalar, __VA_ARGS__)
#define NO_INPUTS 0, NULL
#define NO_INTS 0, NULL
#define NO_SCALARS 0, NULL
#define ABSENT ((hr_operand){.kind = HR_OPERAND_NONE, .fill = HR_NO_SCALAR})
#define TENSOR(t, dtype, data, ...) \
  bench_tensor((t), HR_DTYPE_##dtype, (data), sizeof(data), BENCH_LIST(int64_t, __VA_ARGS__))
/* A tensor without dims on a variable. */
#define NUMBER_TENSOR(t, dtype, variable) bench_tensor((t), HR_DTYPE_##dtype, &(variable), sizeof(variable), 0, NULL)
#define I64(value) hr_scalar_i64(value)
#define F64(value) hr_scalar_f64(value)

/* Asserts that arrays of floating point numbers differ by at most `tolerance`. */
#define ASSERT_ALL_NEAR(actual, expected, count, tolerance)        \
  do {                                                             \
    for (int at_ = 0; at_ < (int)(count); ++at_) {                 \
      HR_ASSERT_NEAR((actual)[at_], (expected)[at_], (tolerance)); \
    }                                                              \
  } while (0)
#define ASSERT_ALL_EQ(actual, expected, count)      \
  do {                                              \
    for (int at_ = 0; at_ < (int)(count); ++at_) {  \
      HR_ASSERT_EQ((actual)[at_], (expected)[at_]); \
    }                                               \
  } while (0)

#endif
