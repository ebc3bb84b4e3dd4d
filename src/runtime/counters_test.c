#include "headrace/stream.h"
#include "hr_test.h"

HR_TEST(counters_have_names_in_the_order_of_their_struct) {
  assert_string_equal(hr_stream_stat_name(0), "operations");
  assert_string_equal(hr_stream_stat_name(offsetof(hr_stats, cache_hits) / sizeof(int64_t)), "cache_hits");
  assert_string_equal(hr_memory_stat_name(offsetof(hr_memory_stats, limit_bytes) / sizeof(int64_t)), "limit_bytes");
  assert_null(hr_stream_stat_name(sizeof(hr_stats) / sizeof(int64_t)));
  assert_null(hr_memory_stat_name(sizeof(hr_memory_stats) / sizeof(int64_t)));
  assert_null(hr_stream_stat_name(-1));
  for (int i = 0; hr_stream_stat_name(i) != NULL; i++) {
    assert_true(strlen(hr_stream_stat_name(i)) > 0 && strlen(hr_stream_stat_meaning(i)) > 0);
  }
}

HR_TEST(readers_with_an_older_or_a_newer_struct_are_served) {
  hr_device *device;
  HR_ASSERT_OK(hr_device_open("null", &device));
  struct {
    hr_memory_stats known;
    int64_t more, guard;
  } newer = {.more = 7, .guard = 7};
  hr_device_memory_limit(device, 1 << 20);
  hr_device_memory_stats_read(device, offsetof(__typeof__(newer), guard), &newer.known);
  assert_int_equal(newer.known.limit_bytes, 1 << 20);
  assert_int_equal(newer.more, 0);
  assert_int_equal(newer.guard, 7);
  hr_memory_stats older = {.allocation_count = 7};
  hr_device_memory_stats_read(device, offsetof(hr_memory_stats, allocation_count), &older);
  assert_int_equal(older.limit_bytes, 1 << 20);
  assert_int_equal(older.allocation_count, 7);
  hr_device_info info = {.total_bytes = 7};
  hr_device_describe_read(device, offsetof(hr_device_info, total_bytes), &info);
  assert_string_equal(info.driver, "null");
  assert_int_equal(info.total_bytes, 7);
  hr_device_memory_limit(device, 0);
  hr_device_release(device);
}
