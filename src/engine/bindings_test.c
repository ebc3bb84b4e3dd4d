/* bindings_test.c: the places and scalars of a schedule, in a few bytes each. */
#include "engine/bindings.h"

#include "hr_test.h"

#include "base/allocator.h"

enum { BUFFERS = 5, SCALARS = 6 };

static hr_program_scalar constant(double value) {
  return (hr_program_scalar){.dtype = HR_DTYPE_F64, .is_constant = true, .value = hr_scalar_f64(value)};
}

static const hr_program_buffer buffers[BUFFERS] = {
    {.bytes = 256}, {.bytes = 512, .room = 1024, .takes = 1}, {.bytes = 64, .layout = 7}, {.bytes = 64}, {.bytes = 64}};
static const hr_place places[BUFFERS] = {{.kind = HR_PLACE_BOUND},
                                         {.kind = HR_PLACE_BOUND},
                                         {.kind = HR_PLACE_NONE},
                                         {.kind = HR_PLACE_ARENA, .offset = 128},
                                         {.kind = HR_PLACE_ARENA, .offset = (size_t)1 << 37}};

static hr_schedule schedule_of(hr_program_scalar *scalars) {
  return (hr_schedule){.program = {.buffer_count = BUFFERS,
                                   .bound_count = 3,
                                   .buffers = (hr_program_buffer *)buffers,
                                   .scalar_count = SCALARS,
                                   .scalars = scalars},
                       .places = places};
}

HR_TEST(bindings_give_a_run_its_addresses_and_numbers) {
  hr_program_scalar scalars[SCALARS] = {constant(0.5), {.dtype = HR_DTYPE_F64, .argument = 1}, constant(0.0),
                                        constant(0.5), {.dtype = HR_DTYPE_F64, .argument = 0}, constant(-0.0)};
  const hr_schedule schedule = schedule_of(scalars);
  hr_bindings *bindings = hr__bindings_make(&schedule);
  HR_ASSERT_NOT_NULL(bindings);
  HR_ASSERT_EQ(bindings->constant_count, 3); /* zeros of both signs */
  for (int i = 0; i < BUFFERS; ++i) {
    HR_ASSERT_EQ(hr__bindings_kind(bindings, (size_t)i), places[i].kind);
  }
  HR_ASSERT_EQ(hr__bindings_buffer(bindings, 0)->room, 0);
  HR_ASSERT_EQ(hr__bindings_buffer(bindings, 1)->room, 1024);
  HR_ASSERT_EQ(hr__bindings_buffer(bindings, 1)->takes, 1);
  HR_ASSERT_EQ(hr__bindings_buffer(bindings, 2)->layout, 7);
  char first, second, *shared = (char *)64;
  void *bound[] = {&first, &second, NULL}, *addresses[BUFFERS];
  hr__bindings_addresses(bindings, shared, bound, addresses);
  HR_ASSERT(addresses[0] == &first && addresses[1] == &second && addresses[2] == NULL);
  HR_ASSERT(addresses[3] == shared + 128 && addresses[4] == shared + ((size_t)1 << 37));
  const hr_scalar arguments[] = {hr_scalar_f64(2), hr_scalar_f64(3)};
  const double expected[SCALARS] = {0.5, 3, 0.0, 0.5, 2, -0.0};
  hr_scalar values[SCALARS];
  hr__bindings_values(bindings, arguments, values);
  for (int i = 0; i < SCALARS; ++i) {
    HR_ASSERT(memcmp(&values[i].value.f[0], &expected[i], sizeof expected[i]) == 0);
  }
  hr_free(bindings);
}

HR_TEST(bindings_refuse_what_does_not_fit) {
  hr_program_scalar scalars[SCALARS] = {{.argument = UINT32_MAX}};
  hr_schedule schedule = schedule_of(scalars);
  HR_ASSERT_NULL(hr__bindings_make(&schedule));
  scalars[0].argument = 0;
  hr_place far[BUFFERS];
  memcpy(far, places, sizeof far);
  far[4].offset = (size_t)HR_BINDING_SPECIALS * HR_BINDING_BLOCK;
  schedule.places = far;
  HR_ASSERT_NULL(hr__bindings_make(&schedule));
  far[4].offset -= HR_BINDING_BLOCK;
  for (int fail = 0; fail < 2; ++fail) {
    hr__allocator_fail_after(fail);
    HR_ASSERT_NULL(hr__bindings_make(&schedule));
    hr__allocator_fail_after(-1);
  }
  hr_bindings *bindings = hr__bindings_make(&schedule);
  HR_ASSERT_NOT_NULL(bindings);
  hr_free(bindings);
}
