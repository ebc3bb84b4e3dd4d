/* Which results take the memory of donated values, and what their programs compute. */
#include <string.h>

#include "hr_test.h"

#include "compiler/compile.h"

enum { COUNT = 128 * 128, BYTES = COUNT * sizeof(float), BUFFERS = 5 };

#define T(number) "%" #number ":f32[128,128]{128,1}+0"
#define TRANSPOSED(number) "%" #number ":f32[128,128]{1,128}+0"
/* %0 and %1 are donated, %2 and %3 results, %4 a temporary. */
#define BUFFERS_OF(second)            \
  "buffer %0 65536 dead\n"            \
  "buffer %1 " second "\n"            \
  "buffer %2 65536 live fresh free\n" \
  "buffer %3 65536 live fresh free\n" \
  "buffer %4 65536 dead fresh free\n"
#define PROGRAM(nodes) BUFFERS_OF("65536 dead") nodes

static hr_program parse(const char *text) {
  hr_program program;
  HR_ASSERT_OK(hr_program_parse(text, &program));
  program.buffers[0].growth = program.buffers[1].growth = HR_GROWTH_DONATED;
  return program;
}

/* The results of a program, with memory of its own for each buffer, or with that of what it takes over. */
static void evaluate(const hr_program *program, const uint32_t *takes, float (*out)[COUNT]) {
  static float memory[BUFFERS][COUNT];
  void *places[BUFFERS];
  for (int b = 0; b < BUFFERS; ++b) {
    for (int i = 0; i < COUNT; ++i) {
      memory[b][i] = b < 2 ? (float)(i % 977) * 0.5F + (float)b : -1;
    }
  }
  for (int b = 0; b < BUFFERS; ++b) {
    places[b] = takes != NULL && takes[b] != 0 ? memory[takes[b] - 1] : memory[b];
  }
  HR_ASSERT_OK(hr_program_verify(program));
  HR_ASSERT_OK(hr_program_evaluate(program, places, NULL));
  memcpy(out[0], places[2], BYTES);
  memcpy(out[1], places[3], BYTES);
}

/* %2 takes `first`, and %3 `second` (1 + the buffer, 0: none), and both have the values of the program as it was. */
static void check(const char *text, uint32_t first, uint32_t second) {
  static float expected[2][COUNT], found[2][COUNT];
  hr_program program = parse(text);
  const uint32_t *takes;
  evaluate(&program, NULL, expected);
  HR_ASSERT_OK(hr_donate(&program, &takes));
  HR_ASSERT(takes != NULL);
  HR_ASSERT_EQ(takes[2], first);
  HR_ASSERT_EQ(takes[3], second);
  for (int b = 0; b < BUFFERS; ++b) {
    HR_ASSERT_EQ(program.buffers[b].growth, HR_GROWTH_NONE);
    HR_ASSERT(takes[b] == 0 || (!program.buffers[b].is_fresh && !program.buffers[b].is_free));
  }
  evaluate(&program, takes, found);
  HR_ASSERT_BYTES_EQ(found, expected, sizeof expected);
  hr_program_fini(&program);
}

HR_TEST(a_result_takes_what_its_operation_reads) {
  check(PROGRAM(T(2) " = neg(" T(0) ")\n" T(3) " = neg(" T(1) ")\n"), 1, 2);
  check(PROGRAM(T(2) " = add(" T(0) ", " T(0) ")\n" T(3) " = neg(" T(2) ")\n"), 1, 0);
}

HR_TEST(a_result_takes_what_was_read_last_before) {
  check(PROGRAM(T(4) " = neg(" T(0) ")\n" T(2) " = exp(" T(4) ")\n" T(3) " = mul(" T(1) ", " T(2) ")\n"), 1, 2);
  check(PROGRAM(T(4) " = sub(" T(0) ", " T(1) ")\n" T(2) " = neg(" T(4) ")\n" T(3) " = copy(" T(4) ")\n"), 1, 2);
}

HR_TEST(values_that_are_read_later_stay) {
  check(PROGRAM(T(2) " = neg(" T(0) ")\n" T(3) " = mul(" T(0) ", " T(1) ")\n"), 0, 1);
  check(PROGRAM(T(2) " = neg(" T(0) ")\n" T(3) " = matmul(" T(0) ", " T(1) ")\n"), 0, 0);
}

HR_TEST(other_views_of_the_same_operation_stay) {
  check(PROGRAM(T(2) " = neg(" TRANSPOSED(0) ")\n" T(3) " = neg(" T(2) ")\n"), 0, 1);
  check(PROGRAM(T(2) " = add(" T(0) ", %0:f32[128,128]{0,1}+0)\n" T(3) " = neg(" T(1) ")\n"), 0, 2);
  check(PROGRAM(T(2) " = neg(%0:f32[128,128]{128,1}+0)\n%3:f32[128,64]{128,1}+0 = neg(%1:f32[128,64]{128,1}+0)\n"
                     "%3:f32[128,64]{128,1}+64 = neg(%1:f32[128,64]{128,1}+64)\n"),
        1, 0);
}

HR_TEST(sizes_must_be_equal_and_large) {
  check(BUFFERS_OF("65600 dead") T(2) " = neg(" T(1) ")\n" T(3) " = exp(" T(2) ")\n", 0, 0);
  check(
      "buffer %0 64 dead\nbuffer %1 64 dead\nbuffer %2 64 live fresh free\nbuffer %3 64 live fresh free\n"
      "buffer %4 64 dead fresh free\n%2:f32[16]{1}+0 = neg(%0:f32[16]{1}+0)\n%3:f32[16]{1}+0 = neg(%1:f32[16]{1}+0)\n",
      0, 0);
}

HR_TEST(living_and_written_values_stay) {
  check(BUFFERS_OF("65536 live") T(2) " = neg(" T(1) ")\n" T(3) " = exp(" T(2) ")\n", 0, 0);
  check(PROGRAM(T(1) " = exp(" T(0) ")\n" T(2) " = neg(" T(1) ")\n" T(3) " = neg(" T(2) ")\n"), 1, 0);
}

HR_TEST(without_permission_nothing_changes) {
  hr_program program = parse(PROGRAM(T(2) " = neg(" T(0) ")\n" T(3) " = neg(" T(1) ")\n"));
  program.buffers[0].growth = program.buffers[1].growth = HR_GROWTH_NONE;
  const uint32_t *takes = (const uint32_t[]){1};
  HR_ASSERT_OK(hr_donate(&program, &takes));
  HR_ASSERT(takes == NULL && program.nodes[0].inputs[0].index == 0 && program.buffers[2].is_fresh);
  hr_program_fini(&program);
}
