/* The schedule verifier: the compiler's schedules pass, and each kind of damage is found. */
#include "hr_test.h"

#include "compiler/compile.h"

/* A product, a sum of its rows, a second product: three steps, with temporaries between them. */
static const char PROGRAM[] =
    "buffer %0 1024 live\nbuffer %1 1024 live\nbuffer %2 1024 dead fresh\nbuffer %3 1024 dead fresh\n"
    "buffer %4 1024 live fresh\n"
    "%2:f32[16,16]{16,1}+0 = matmul(%0:f32[16,16]{16,1}+0, %1:f32[16,16]{16,1}+0)\n"
    "%3:f32[16,16]{16,1}+0 = matmul(%2:f32[16,16]{16,1}+0, %1:f32[16,16]{16,1}+0)\n"
    "%4:f32[16,16]{16,1}+0 = matmul(%3:f32[16,16]{16,1}+0, %2:f32[16,16]{16,1}+0)\n";

static bool keeps_all(void *ctx, const hr_program *program, const hr_node *node) {
  (void)ctx, (void)program;
  return node->op == HR_OP_MATMUL;
}

typedef struct damaged {
  hr_program program;
  hr_schedule schedule;
  hr_step steps[8];
  hr_place places[8];
} damaged;

/* A schedule whose steps and places can be written. */
static void make(damaged *d, const char *text) {
  HR_ASSERT_OK(hr_program_parse(text, &d->program));
  HR_ASSERT_OK(hr_compile(&d->program, &(hr_target){.keeps = keeps_all, .verify = true}, &d->schedule));
  HR_ASSERT(d->schedule.step_count <= 8 && d->schedule.program.buffer_count <= 8);
  memcpy(d->steps, d->schedule.steps, (size_t)d->schedule.step_count * sizeof *d->steps);
  memcpy(d->places, d->schedule.places, (size_t)d->schedule.program.buffer_count * sizeof *d->places);
  d->schedule.steps = d->steps;
  d->schedule.places = d->places;
  HR_ASSERT_OK(hr_schedule_verify(&d->schedule));
}

static void expect(damaged *d, const char *message) {
  HR_ASSERT_ERROR(hr_schedule_verify(&d->schedule), HR_STATUS_INTERNAL, message);
  hr_schedule_fini(&d->schedule);
  hr_program_fini(&d->program);
}

HR_TEST(a_step_that_runs_before_its_input_is_found) {
  damaged d;
  make(&d, PROGRAM);
  HR_ASSERT(d.schedule.step_count == 3);
  hr_step first = d.steps[0];
  d.steps[0] = d.steps[1];
  d.steps[1] = first;
  expect(&d, "reads buffer 2 in step 0, before node 0 writes it in step 1");
}

HR_TEST(a_node_that_runs_twice_or_never_is_found) {
  damaged d;
  make(&d, PROGRAM);
  d.steps[1] = d.steps[0];
  expect(&d, "node 0 runs in step 0 and in step 1");
  make(&d, PROGRAM);
  d.schedule.step_count = 2;
  expect(&d, "node 2 runs in no step");
}

HR_TEST(live_values_that_share_bytes_are_found) {
  damaged d;
  make(&d, PROGRAM);
  HR_ASSERT(d.places[2].kind == HR_PLACE_ARENA && d.places[3].kind == HR_PLACE_ARENA);
  d.places[3].offset = d.places[2].offset + 1023;
  d.schedule.arena_bytes = 1 << 20;
  expect(&d, "share bytes of the arena");
}

HR_TEST(a_value_outside_of_the_arena_is_found) {
  damaged d;
  make(&d, PROGRAM);
  d.schedule.arena_bytes = d.places[3].offset + 1023;
  expect(&d, "of an arena of");
}

HR_TEST(buffers_that_outlive_the_program_are_not_in_the_arena) {
  damaged d;
  make(&d, PROGRAM);
  d.places[4] = d.places[3];
  expect(&d, "outlives it");
}

HR_TEST(a_value_of_two_steps_needs_memory) {
  damaged d;
  make(&d, PROGRAM);
  d.places[2].kind = HR_PLACE_NONE;
  expect(&d, "buffer 2 has no memory and is used in steps 0 to 2");
}

HR_TEST(a_store_to_older_memory_does_not_pass_a_check) {
  damaged d;
  make(&d, "buffer %0 8 live\nbuffer %1 64 live\n"
           "check_index(%0:i64[]{}+0) ints(0,5,0)\n"
           "%1:f32[16]{1}+0 = neg(%1:f32[16]{1}+0)\n");
  HR_ASSERT(d.schedule.step_count == 2);
  hr_step first = d.steps[0];
  d.steps[0] = d.steps[1];
  d.steps[1] = first;
  expect(&d, "before one that may fail, in step 1");
}
