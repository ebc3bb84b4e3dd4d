/* Cats whose results grow: which get room, which take memory over, and what their programs compute. */
#include <stdlib.h>
#include <string.h>

#include "hr_test.h"

#include "compiler/compile.h"

enum {
  OUTER = 3,
  ROWS = 5,
  INNER = 4,
  ROOM = 9,
  OFFERED = 20,
  OLD = OUTER * ROWS * INNER,
  NEW = OUTER * (ROWS + 1) * INNER
};
static const hr_rows_layout rows_of_f32 = {4, OUTER, INNER};

static hr_program parse(const char *text, hr_growth growth, bool has_room) {
  hr_program program;
  HR_ASSERT_OK(hr_program_parse(text, &program));
  program.buffers[0].growth = growth;
  for (int b = 2; b < program.buffer_count; ++b) {
    program.buffers[b].offered_room = OUTER * OFFERED * INNER * sizeof(float);
  }
  if (has_room) {
    program.buffers[0].rows = hr_rows_pack(&rows_of_f32);
    program.buffers[0].room = OUTER * ROOM * INNER * sizeof(float);
  }
  return program;
}

/* %0 the old rows, %1 a row, %2 the result, %3 a copy of the last but one node's view. */
#define CAT(after)                  \
  "buffer %0 240 dead\n"            \
  "buffer %1 48 live\n"             \
  "buffer %2 288 live fresh free\n" \
  "buffer %3 288 live fresh\n"      \
  "%2:f32[3,6,4]{24,4,1}+0 = cat(%0:f32[3,5,4]{20,4,1}+0, %1:f32[3,1,4]{4,4,1}+0) ints(1)\n" after

static const char *const plain = CAT("%3:f32[3,6,4]{24,4,1}+0 = copy(%2:f32[3,6,4]{24,4,1}+0)\n");

HR_TEST(words_hold_rows) {
  const hr_rows_layout given = {2, 32, 128};
  hr_rows_layout back = hr_rows_unpack(hr_rows_pack(&given));
  HR_ASSERT_EQ(back.element_bytes, 2);
  HR_ASSERT_EQ(back.outer, 32);
  HR_ASSERT_EQ(back.inner, 128);
  HR_ASSERT(hr_layout_is_rows(hr_rows_pack(&given)));
  HR_ASSERT(!hr_layout_is_rows(hr_layout_pack(&(hr_buffer_layout){8, 64, 112 * 112})));
  HR_ASSERT_EQ(hr_rows_pack(&(hr_rows_layout){16, 2, 2}), 0);
  HR_ASSERT_EQ(hr_rows_pack(&(hr_rows_layout){4, INT64_C(1) << 40, 2}), 0);
}

/* The program's result %3, for %0 counting from 0 on and %1 from 1000 on. %2 is in `memory`, or in its own. */
static void evaluate(const hr_program *program, bool is_in_place, float *out) {
  float old[OUTER * ROOM * INNER] = {0}, row[OUTER * INNER], made[OUTER * OFFERED * INNER] = {0};
  int64_t pitch = program->buffers[0].rows != 0 ? ROOM * INNER : ROWS * INNER;
  for (int i = 0; i < OLD; ++i) {
    old[i / (ROWS * INNER) * pitch + i % (ROWS * INNER)] = (float)i;
  }
  for (int i = 0; i < OUTER * INNER; ++i) {
    row[i] = 1000 + (float)i;
  }
  HR_ASSERT_OK(hr_program_evaluate(program, (void *[4]){old, row, is_in_place ? old : made, out}, NULL));
}

static void check_copy(const hr_program *program, bool is_in_place) {
  float values[NEW];
  HR_ASSERT_OK(hr_program_verify(program));
  evaluate(program, is_in_place, values);
  for (int i = 0; i < NEW; ++i) {
    int outer = i / ((ROWS + 1) * INNER), row = i / INNER % (ROWS + 1), at = i % INNER;
    float expected = row < ROWS ? (float)((outer * ROWS + row) * INNER + at) : (float)(1000 + outer * INNER + at);
    HR_ASSERT_NEAR(values[i], expected, 0);
  }
}

HR_TEST(programs_without_permission_stay) {
  hr_program program = parse(plain, HR_GROWTH_NONE, false);
  HR_ASSERT_OK(hr_rooms(&program));
  HR_ASSERT_EQ(program.buffers[2].bytes, NEW * sizeof(float));
  HR_ASSERT(program.buffers[2].room == 0 && program.buffers[2].takes == 0 && program.buffers[2].is_free);
  check_copy(&program, false);
  hr_program_fini(&program);
}

HR_TEST(a_result_gets_room) {
  for (int has_room = 0; has_room < 2; ++has_room) {
    hr_program program = parse(plain, HR_GROWTH_NEW, has_room != 0);
    HR_ASSERT_OK(hr_rooms(&program));
    const hr_program_buffer *result = &program.buffers[2];
    HR_ASSERT_EQ(result->room, OUTER * OFFERED * INNER * sizeof(float));
    HR_ASSERT_EQ(result->bytes, result->room);
    HR_ASSERT_EQ(result->rows, hr_rows_pack(&rows_of_f32));
    HR_ASSERT(result->takes == 0 && result->is_fresh && !result->is_free);
    HR_ASSERT_EQ(program.nodes[0].input_count, 2);
    check_copy(&program, false);
    hr_program_fini(&program);
  }
}

HR_TEST(a_result_takes_memory_over) {
  hr_program program = parse(plain, HR_GROWTH_IN_PLACE, true);
  HR_ASSERT_OK(hr_rooms(&program));
  HR_ASSERT_EQ(program.buffers[2].takes, 1);
  HR_ASSERT_EQ(program.buffers[2].bytes, OUTER * ROOM * INNER * sizeof(float));
  HR_ASSERT(!program.buffers[2].is_fresh && program.buffers[2].room == 0);
  HR_ASSERT_EQ(program.nodes[0].input_count, 1);
  check_copy(&program, true);
  hr_program_fini(&program);
}

HR_TEST(without_outer_dims_no_view_changes) {
  const char *text = "buffer %0 80 dead\n"
                     "buffer %1 16 live\n"
                     "buffer %2 96 live fresh free\n"
                     "%2:f32[1,6,4]{24,4,1}+0 = cat(%0:f32[1,5,4]{20,4,1}+0, %1:f32[1,1,4]{4,4,1}+0) ints(1)\n";
  hr_program program = parse(text, HR_GROWTH_IN_PLACE, false);
  HR_ASSERT_OK(hr_rooms(&program));
  HR_ASSERT_EQ(program.buffers[2].takes, 1);
  HR_ASSERT_EQ(program.buffers[2].rows, 0);
  HR_ASSERT_EQ(program.buffers[2].bytes, 96);
  HR_ASSERT_EQ(program.nodes[0].outputs[0].offset, 20);
  HR_ASSERT_OK(hr_program_verify(&program));
  hr_program_fini(&program);
}

/* Permission is not enough: something else uses the old rows, or the result. */
HR_TEST(memory_is_not_taken_from_what_is_used_later) {
  static const char *const texts[] = {
      CAT("%3:f32[3,5,4]{20,4,1}+0 = copy(%0:f32[3,5,4]{20,4,1}+0)\n"),
      CAT("%0:f32[3,5,4]{20,4,1}+0 = relu(%0:f32[3,5,4]{20,4,1}+0)\n"),
      CAT("%3:f32[3,6,4]{24,4,1}+0 = cat(%0:f32[3,5,4]{20,4,1}+0, %1:f32[3,1,4]{4,4,1}+0) ints(1)\n"),
  };
  for (size_t i = 0; i < sizeof texts / sizeof *texts; ++i) {
    hr_program program = parse(texts[i], HR_GROWTH_IN_PLACE, true);
    HR_ASSERT_OK(hr_rooms(&program));
    HR_ASSERT_EQ(program.buffers[2].takes, 0);
    HR_ASSERT(program.buffers[2].room > 0);
    HR_ASSERT_OK(hr_program_verify(&program));
    hr_program_fini(&program);
  }
}

HR_TEST(only_the_last_of_two_cats_extends) {
  const char *text = "buffer %0 240 dead\n"
                     "buffer %1 48 live\n"
                     "buffer %2 288 live fresh free\n"
                     "buffer %3 288 live fresh free\n"
                     "%2:f32[3,6,4]{24,4,1}+0 = cat(%0:f32[3,5,4]{20,4,1}+0, %1:f32[3,1,4]{4,4,1}+0) ints(1)\n"
                     "%3:f32[3,6,4]{24,4,1}+0 = cat(%0:f32[3,5,4]{20,4,1}+0, %1:f32[3,1,4]{4,4,1}+0) ints(1)\n";
  hr_program program = parse(text, HR_GROWTH_IN_PLACE, true);
  HR_ASSERT_OK(hr_rooms(&program));
  HR_ASSERT_EQ(program.buffers[2].takes, 0);
  HR_ASSERT_EQ(program.buffers[3].takes, 1);
  hr_program_fini(&program);
}

HR_TEST(a_full_room_is_left) {
  hr_program program = parse(plain, HR_GROWTH_IN_PLACE, true);
  program.buffers[0].room = OLD * sizeof(float);
  HR_ASSERT_OK(hr_rooms(&program));
  HR_ASSERT_EQ(program.buffers[2].takes, 0);
  HR_ASSERT(program.buffers[2].room > 0);
  hr_program_fini(&program);
}

HR_TEST(live_pieces_and_early_results_are_copied) {
  hr_program program = parse(plain, HR_GROWTH_IN_PLACE, true);
  program.buffers[0].is_dead = false;
  HR_ASSERT_OK(hr_rooms(&program));
  HR_ASSERT(program.buffers[2].takes == 0 && program.buffers[2].room == 0);
  check_copy(&program, false);
  hr_program_fini(&program);
  program = parse("buffer %0 240 dead\n"
                  "buffer %1 48 live\n"
                  "buffer %2 288 live fresh free\n"
                  "%2:f32[4]{1}+0 = copy(%1:f32[4]{1}+0)\n"
                  "%2:f32[3,6,4]{24,4,1}+0 = cat(%0:f32[3,5,4]{20,4,1}+0, %1:f32[3,1,4]{4,4,1}+0) ints(1)\n",
                  HR_GROWTH_IN_PLACE, true);
  HR_ASSERT_OK(hr_rooms(&program));
  HR_ASSERT(program.buffers[2].takes == 0 && program.buffers[2].room == 0);
  hr_program_fini(&program);
}

/* Views that step from row to row of another outer index, or see other elements: no room for results, and buffers that
 * have room are refused. */
HR_TEST(views_across_rows_need_the_default_layout) {
  static const char *const texts[] = {
      CAT("%3:f32[72]{1}+0 = copy(%2:f32[72]{1}+0)\n"),
      CAT("%3:f32[18,4]{4,1}+0 = copy(%2:f32[18,4]{4,1}+0)\n"),
      CAT("%3:f16[144]{1}+0 = copy(%2:f16[144]{1}+0)\n"),
      CAT("%3:f32[5,4]{4,1}+0 = copy(%2:f32[5,4]{4,1}+12)\n"),
  };
  for (size_t i = 0; i < sizeof texts / sizeof *texts; ++i) {
    hr_program program = parse(texts[i], HR_GROWTH_IN_PLACE, true);
    HR_ASSERT_OK(hr_rooms(&program));
    HR_ASSERT(program.buffers[2].takes == 0 && program.buffers[2].room == 0 && !program.buffers[0].is_refused);
    hr_program_fini(&program);
  }
  hr_program program = parse("buffer %0 240 live\n"
                             "buffer %1 240 live fresh\n"
                             "%1:f32[60]{1}+0 = copy(%0:f32[60]{1}+0)\n",
                             HR_GROWTH_NONE, true);
  HR_ASSERT_OK(hr_rooms(&program));
  HR_ASSERT(program.buffers[0].is_refused);
  hr_program_fini(&program);
}

#define WRITE "%2:f32[3,1,4]{24,4,1}+8 = relu(%2:f32[3,1,4]{24,4,1}+20)\n"

/* Slices, reversed dims, permutations and steps of the result see the elements that they see without room. */
HR_TEST(views_see_the_same_elements) {
  static const char *const views[] = {
      "%3:f32[3,6,4]{24,4,1}+0 = copy(%2:f32[3,6,4]{-24,-4,-1}+71)\n",
      "%3:f32[4,6,3]{18,3,1}+0 = copy(%2:f32[4,6,3]{1,4,24}+0)\n",
      "%3:f32[2,3,4]{12,4,1}+0 = copy(%2:f32[2,3,4]{24,8,1}+28)\n",
      "%3:f32[3,2,3,4]{24,12,4,1}+0 = copy(%2:f32[3,2,3,4]{24,12,4,1}+0)\n",
      "%3:f32[6,3]{3,1}+0 = copy(%2:f32[6,3]{4,0}+26)\n",
      WRITE "%3:f32[3,6,4]{24,4,1}+0 = copy(%2:f32[3,6,4]{24,4,1}+0)\n",
  };
  for (size_t v = 0; v < sizeof views / sizeof *views; ++v) {
    char text[1024];
    (void)snprintf(text, sizeof text, "%s%s", CAT(""), views[v]);
    float expected[NEW] = {0}, values[NEW] = {0};
    for (int growth = HR_GROWTH_NONE; growth <= HR_GROWTH_IN_PLACE; ++growth) {
      hr_program program = parse(text, (hr_growth)growth, growth != HR_GROWTH_NONE);
      HR_ASSERT_OK(hr_rooms(&program));
      HR_ASSERT_OK(hr_program_verify(&program));
      HR_ASSERT_EQ(program.buffers[2].takes, growth == HR_GROWTH_IN_PLACE);
      evaluate(&program, growth == HR_GROWTH_IN_PLACE, growth == HR_GROWTH_NONE ? expected : values);
      HR_ASSERT(growth == HR_GROWTH_NONE || memcmp(expected, values, sizeof values) == 0);
      hr_program_fini(&program);
    }
  }
}
