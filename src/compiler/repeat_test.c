/* Programs whose cells repeat: instantiated, they give the same bits as compiled in the ordinary way. */
#include "cell_programs.h"
#include "same_schedule.h"

/* ---- running ---- */

static void check_equal(const maker *m, uint64_t seed, const char *what, void **memory, void **expected,
                        const char *text) {
  for (int i = 0; i < m->number_count; ++i) {
    const symbol *s = &m->symbols[m->numbered[i]];
    if (s->is_live && memcmp(memory[i], expected[i], (size_t)s->elements * 4) != 0) {
      fprintf(stderr, "%s\n", text);
      HR_FAIL("seed %llu, %s: buffer %%%d differs", (unsigned long long)seed, what, i);
    }
  }
}

/* Runs it in both ways; returns 1 if cells were instantiated. */
static int check_text(const maker *m, const char *text, uint64_t seed, hr__run_options options, const char *what) {
  hr_program program;
  int repeated = 0;
  HR_ASSERT_OK(hr_program_parse(text, &program));
  hr_scalar *arguments = make_arguments(m);
  void **memory = make_memory(m, seed), **expected = make_memory(m, seed);
  HR_ASSERT_OK(hr__run_interpreted(&program, expected, arguments, options));
  options.repeated = &repeated;
  HR_ASSERT_OK(hr__run_interpreted(&program, memory, arguments, options));
  check_equal(m, seed, what, memory, expected, text);
  free_memory(m, memory);
  free_memory(m, expected);
  free(arguments);
  hr_program_fini(&program);
  return repeated;
}

static int check_case(program_case *p, uint64_t seed) {
  hr_text text = {0};
  print_program(&p->m, &text);
  int repeated = check_text(&p->m, hr_text_chars(&text), seed, (hr__run_options){0}, "fused");
  repeated += check_text(&p->m, hr_text_chars(&text), seed, (hr__run_options){.row_alignment = 16}, "with products");
  repeated += check_text(&p->m, hr_text_chars(&text), seed, (hr__run_options){.recompute_bytes = 1}, "recomputed");
  hr_text_fini(&text);
  hr_text_fini(&p->m.lines);
  free(p);
  return repeated;
}

HR_TEST(random_cells_give_the_same_bits) {
  long count = hr__setting("HEADRACE_TEST_PROGRAMS", 300), seed = hr__setting("HEADRACE_TEST_SEED", 1);
  int repeated = 0;
  for (long i = 0; i < count; ++i) {
    repeated += check_case(make_case((uint64_t)(seed + i), 3), (uint64_t)(seed + i));
  }
  printf("%d of %ld programs were instantiated\n", repeated, 3 * count);
  HR_ASSERT(repeated * 10 >= count); /* the others break the pattern, or are small */
}

/* ---- the schedule ---- */

/* h = tanh(x[t] w + h u), written to y[t] and added to a sum. */
static void emit_recurrent(maker *m, int periods, int kept_period) {
  int weights[] = {new_symbol(m, 16, true, false), new_symbol(m, 16, true, false)};
  const int elements = elements_of(m);
  int x = new_symbol(m, elements * periods, true, false), y = new_symbol(m, elements * periods, true, false);
  int sum = new_symbol(m, elements, true, false), h = new_symbol(m, elements, true, false);
  for (int t = 0; t < periods; ++t) {
    view a = {new_symbol(m, elements, false, true), 0}, b = {new_symbol(m, elements, false, true), 0};
    view c = {new_symbol(m, elements, false, true), 0}, d = {new_symbol(m, elements, t == kept_period, true), 0};
    emit(m, 'm', "matmul", a, (view){x, t * elements}, (view){weights[0], 0});
    emit(m, 'm', "matmul", b, (view){h, 0}, (view){weights[1], 0});
    emit(m, '2', "add", c, a, b);
    emit(m, 's', "mul", c, c, (view){-1, 0});
    emit(m, '1', "tanh", d, c, (view){-1, 0});
    emit(m, '1', "copy", (view){y, t * elements}, d, (view){-1, 0});
    emit(m, '2', "add", (view){sum, 0}, (view){sum, 0}, d);
    h = d.id;
  }
}

static bool keeps_products(void *ctx, const hr_program *program, const hr_node *node) {
  (void)ctx, (void)program;
  return node->op == HR_OP_MATMUL && node->epilogue_count == 0;
}

/* 1: instantiated, and the same as compiled; 0: not instantiated; -1: another schedule. */
static int compare_schedules(const char *text) {
  hr_target target = {.verify = true, .keeps = keeps_products};
  hr_program program;
  hr_schedule repeated, ordinary;
  bool is;
  HR_ASSERT_OK(hr_program_parse(text, &program));
  HR_ASSERT_OK(hr_compile_repeats(&program, &target, &repeated, &is));
  int result = 0;
  if (is) {
    HR_ASSERT_OK(hr_compile(&program, &target, &ordinary));
    HR_ASSERT_OK(hr_schedule_compact(&ordinary));
    result = is_same_schedule(&repeated, &ordinary) ? 1 : -1;
    hr_schedule_fini(&ordinary);
    hr_schedule_fini(&repeated);
  }
  hr_program_fini(&program);
  return result;
}

static int compare_recurrent(int periods, int kept_period) {
  maker *m = calloc(1, sizeof *m);
  m->rows = 3;
  hr_text text = {0};
  emit_recurrent(m, periods, kept_period);
  print_program(m, &text);
  int result = compare_schedules(hr_text_chars(&text));
  hr_text_fini(&text);
  hr_text_fini(&m->lines);
  free(m);
  return result;
}

HR_TEST(instantiated_schedules_are_those_of_the_ordinary_compiler) {
  HR_ASSERT_EQ(compare_recurrent(30, 29), 1);
  HR_ASSERT_EQ(compare_recurrent(47, 46), 1);
  HR_ASSERT_EQ(compare_recurrent(60, -1), 1);
}

HR_TEST(few_cells_and_cells_with_a_result_of_their_own_are_compiled) {
  HR_ASSERT_EQ(compare_recurrent(9, 8), 0);
  HR_ASSERT_EQ(compare_recurrent(30, 15), 0);
}

/* ---- copies in a ring ---- */

enum { RING_MAX = 8 };

/* A copy, as the join of one piece. */
static void emit_join(maker *m, view to, view from) {
  (void)use(m, from.id);
  print_view(m, to, false);
  hr_text_printf(&m->lines, " = cat(");
  print_view(m, from, false);
  hr_text_printf(&m->lines, ") ints(0)\n");
}

/* m = tanh(m w); (a, b, ..) = (b, .., a), or (b, .., m) if it is a line. Keeps a and m of the last period: which of the
 * first ones a is depends on the number of periods. */
static void emit_ring(maker *m, int periods, int members, bool is_line, bool joins) {
  const int elements = elements_of(m);
  view none = {-1, 0}, ring[RING_MAX];
  int weight = new_symbol(m, 16, true, false), state = new_symbol(m, elements, true, false);
  for (int i = 0; i < members; ++i) {
    ring[i] = (view){new_symbol(m, elements, true, false), 0};
  }
  for (int t = 0; t < periods; ++t) {
    view product = {new_symbol(m, elements, false, true), 0}, next = {new_symbol(m, elements, false, true), 0};
    view before[RING_MAX];
    emit(m, 'm', "matmul", product, (view){state, 0}, (view){weight, 0});
    emit(m, '1', "tanh", next, product, none);
    memcpy(before, ring, sizeof before);
    for (int i = 0; i < members; ++i) {
      view from = is_line && i + 1 == members ? next : before[(i + 1) % members];
      ring[i].id = new_symbol(m, elements, false, true);
      if (joins) {
        emit_join(m, ring[i], from);
      } else {
        emit(m, '1', "copy", ring[i], from, none);
      }
    }
    state = next.id;
  }
  emit(m, '1', "neg", (view){new_symbol(m, elements, true, true), 0}, ring[0], none);
  emit(m, '1', "neg", (view){new_symbol(m, elements, true, true), 0}, (view){state, 0}, none);
}

static int check_ring(int periods, int members, bool is_line, bool joins) {
  program_case *p = calloc(1, sizeof *p);
  p->m.rows = 3;
  emit_ring(&p->m, periods, members, is_line, joins);
  return check_case(p, (uint64_t)periods);
}

HR_TEST(copies_in_a_ring_are_compiled) {
  for (int periods = 40; periods < 46; ++periods) {
    for (int joins = 0; joins < 2; ++joins) {
      HR_ASSERT_EQ(check_ring(periods, 2, false, joins), 0);
      HR_ASSERT_EQ(check_ring(periods, 3, false, joins), 0);
    }
  }
}

/* The last period reads what a period before made, as many as the line has members. */
HR_TEST(copies_in_a_long_line_are_compiled) {
  for (int joins = 0; joins < 2; ++joins) {
    HR_ASSERT(check_ring(40, 1, true, joins) > 0);
    HR_ASSERT_EQ(check_ring(40, RING_MAX, true, joins), 0);
    HR_ASSERT_EQ(check_ring(41, RING_MAX, true, joins), 0);
  }
}

/* ---- memory ---- */

static hr_program recurrent;

static hr_status compile_recurrent(void) {
  hr_target target = {.keeps = keeps_products};
  hr_schedule schedule;
  bool is;
  HR_RETURN_IF_ERROR(hr_compile_repeats(&recurrent, &target, &schedule, &is));
  HR_ASSERT(is);
  hr_schedule_fini(&schedule);
  return HR_OK;
}

HR_TEST(failing_allocations_leak_nothing) {
  maker *m = calloc(1, sizeof *m);
  m->rows = 3;
  hr_text text = {0};
  emit_recurrent(m, 30, 29);
  print_program(m, &text);
  HR_ASSERT_OK(hr_program_parse(hr_text_chars(&text), &recurrent));
  HR_TEST_OOM(compile_recurrent);
  hr_program_fini(&recurrent);
  hr_text_fini(&text);
  hr_text_fini(&m->lines);
  free(m);
}
