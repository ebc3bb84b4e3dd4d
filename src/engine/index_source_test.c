/* Known ranges of indices: their sources in compiled programs, and the ranges noted for writes of the host. */
#include "hr_test.h"

#include "compiler/compile.h"
#include "engine/index_source.h"

/* The source of the first check of a program with these nodes. Buffers: 0 values [8,4], 1 indices, 2 the result, then
 * two that die. */
static hr_index_source source_of(const char *nodes) {
  hr_text text = {0};
  hr_program program;
  hr_schedule schedule;
  const hr_target target = {.verify = true};
  hr_index_source source = {.kind = HR_INDEX_UNKNOWN, .count = -1};
  hr_text_printf(&text,
                 "buffer %%0 128 live\nbuffer %%1 48 live\nbuffer %%2 96 live fresh\nbuffer %%3 48 dead fresh\n"
                 "buffer %%4 96 dead fresh\nscalar $0 i64\nscalar $1 i64\n%s",
                 nodes);
  HR_ASSERT_OK(hr_program_parse(hr_text_chars(&text), &program));
  HR_ASSERT_OK(hr_compile(&program, &target, &schedule));
  for (int i = 0; source.count < 0 && i < schedule.step_count; ++i) {
    if (schedule.steps[i].kind == HR_STEP_CHECK) {
      source = hr__index_source_find(&schedule.program, schedule.steps[i].node);
    }
  }
  HR_ASSERT(source.count >= 0);
  hr_schedule_fini(&schedule);
  hr_program_fini(&program);
  hr_text_fini(&text);
  return source;
}

#define SELECT(index) "%2:f32[6,4]{4,1}+0 = index_select(%0:f32[8,4]{4,1}+0, " index ") ints(0)\n"

HR_TEST(indices_of_a_buffer) {
  hr_index_source all = source_of(SELECT("%1:i64[6]{1}+0"));
  HR_ASSERT_EQ(all.kind, HR_INDEX_BUFFER);
  HR_ASSERT_EQ(all.buffer, 1);
  HR_ASSERT_EQ(all.dtype, HR_DTYPE_I64);
  hr_index_source one = source_of("%2:f32[1,4]{4,1}+0 = index_select(%0:f32[8,4]{4,1}+0, %1:i64[1]{1}+3) ints(0)\n");
  HR_ASSERT_EQ(one.kind, HR_INDEX_BUFFER);
  hr_index_source copied = source_of("%3:i64[6]{1}+0 = copy(%1:i64[6]{-1}+5)\n" SELECT("%3:i64[6]{1}+0"));
  HR_ASSERT_EQ(copied.kind, HR_INDEX_BUFFER);
  HR_ASSERT_EQ(copied.buffer, 1);
  hr_index_source narrow = source_of("%3:i64[6]{1}+0 = copy(%1:i32[6]{1}+0)\n" SELECT("%3:i64[6]{1}+0"));
  HR_ASSERT_EQ(narrow.kind, HR_INDEX_BUFFER);
  HR_ASSERT_EQ(narrow.dtype, HR_DTYPE_I32);
}

HR_TEST(indices_that_are_counted) {
  hr_index_source count = source_of("%3:i64[6]{1}+0 = arange() scalars($0, $1)\n" SELECT("%3:i64[6]{1}+0"));
  HR_ASSERT_EQ(count.kind, HR_INDEX_COUNT);
  HR_ASSERT_EQ(count.count, 6);
  hr_scalar values[2] = {hr_scalar_i64(5), hr_scalar_i64(-1)};
  count.start = 0, count.step = 1;
  int64_t least, most;
  HR_ASSERT(hr__index_source_range(&count, NULL, NULL, values, &least, &most));
  HR_ASSERT_EQ(least, 0);
  HR_ASSERT_EQ(most, 5);
  values[1] = hr_scalar_i64(3);
  HR_ASSERT(hr__index_source_range(&count, NULL, NULL, values, &least, &most));
  HR_ASSERT_EQ(least, 5);
  HR_ASSERT_EQ(most, 20);
  values[1] = hr_scalar_i64(INT64_MAX / 2);
  HR_ASSERT(!hr__index_source_range(&count, NULL, NULL, values, &least, &most));
  values[1] = hr_scalar_f64(1);
  HR_ASSERT(!hr__index_source_range(&count, NULL, NULL, values, &least, &most));
}

/* Half of a buffer copied or counted, numbers that were computed, and those that the program has written over. */
HR_TEST(indices_without_a_known_range) {
  const char *const unknown[] = {
      "%3:i64[3]{1}+0 = copy(%1:i64[3]{1}+0)\n" SELECT("%3:i64[6]{1}+0"),
      "%3:i64[3]{1}+0 = arange() scalars($0, $1)\n" SELECT("%3:i64[6]{1}+0"),
      "%3:i64[3]{2}+0 = arange() scalars($0, $1)\n" SELECT("%3:i64[6]{1}+0"),
      "%3:i64[6]{1}+0 = add(%1:i64[6]{1}+0, %1:i64[6]{1}+0)\n" SELECT("%3:i64[6]{1}+0"),
      "%3:i64[6]{1}+0 = copy(%1:f64[6]{1}+0)\n" SELECT("%3:i64[6]{1}+0"),
      "%1:i64[6]{1}+0 = neg(%1:i64[6]{1}+0)\n" SELECT("%1:i64[6]{1}+0"),
      "%3:i64[1]{1}+0 = where(%1:bool[1]{1}+0, %1:i64[1]{1}+2, $0)\ncheck_index(%3:i64[]{}+0) ints(0,9,0)\n"};
  for (size_t i = 0; i < sizeof unknown / sizeof *unknown; ++i) {
    HR_ASSERT_EQ(source_of(unknown[i]).kind, HR_INDEX_UNKNOWN);
  }
}

HR_TEST(the_host_remembers_integers_until_they_are_others) {
  hr_device *device;
  hr_buffer *buffer;
  const int64_t values[3] = {7, -2, INT64_C(1) << 40};
  const hr_index_source source = {.kind = HR_INDEX_BUFFER, .dtype = HR_DTYPE_I64};
  hr_index_source narrow = source;
  int64_t least, most;
  narrow.dtype = HR_DTYPE_I32;
  HR_ASSERT_OK(hr_device_open("null", &device));
  HR_ASSERT_OK(hr_buffer_create(device, sizeof values, &buffer));
  uint64_t stamp = buffer->stamp, none = 0;
  HR_ASSERT(!hr__index_source_range(&source, &buffer, &stamp, NULL, &least, &most));
  hr__index_source_note(buffer, HR_DTYPE_I64, values, sizeof values);
  HR_ASSERT(hr__index_source_range(&source, &buffer, &stamp, NULL, &least, &most));
  HR_ASSERT_EQ(least, -2);
  HR_ASSERT_EQ(most, INT64_C(1) << 40);
  HR_ASSERT(!hr__index_source_range(&source, &buffer, &none, NULL, &least, &most));
  HR_ASSERT(!hr__index_source_range(&source, NULL, &stamp, NULL, &least, &most));
  HR_ASSERT(!hr__index_source_range(&narrow, &buffer, &stamp, NULL, &least, &most));
  hr__buffer_restamp(buffer);
  stamp = buffer->stamp;
  HR_ASSERT(!hr__index_source_range(&source, &buffer, &stamp, NULL, &least, &most));
  hr__index_source_note(buffer, HR_DTYPE_I64, values, 2 * sizeof *values); /* a part does not bound the rest */
  HR_ASSERT(!hr__index_source_range(&source, &buffer, &stamp, NULL, &least, &most));
  hr__index_source_note(buffer, HR_DTYPE_F64, values, sizeof values);
  HR_ASSERT(!hr__index_source_range(&source, &buffer, &stamp, NULL, &least, &most));
  hr__index_source_note(buffer, HR_DTYPE_I32, values, sizeof values);
  HR_ASSERT(hr__index_source_range(&narrow, &buffer, &stamp, NULL, &least, &most));
  HR_ASSERT_EQ(least, -2);
  HR_ASSERT_EQ(most, 256);
  hr_buffer_release(buffer);
  hr_device_release(device);
}
