#include "headrace/stream.h"
#include "hr_test.h"

HR_TEST(counters_have_names_in_the_order_of_their_struct) {
  HR_ASSERT(strcmp(hr_stream_stat_name(0), "operations") == 0);
  HR_ASSERT(strcmp(hr_stream_stat_name(offsetof(hr_stats, cache_hits) / sizeof(int64_t)), "cache_hits") == 0);
  HR_ASSERT(strcmp(hr_memory_stat_name(offsetof(hr_memory_stats, limit_bytes) / sizeof(int64_t)), "limit_bytes") == 0);
  HR_ASSERT(hr_stream_stat_name(sizeof(hr_stats) / sizeof(int64_t)) == NULL);
  HR_ASSERT(hr_memory_stat_name(sizeof(hr_memory_stats) / sizeof(int64_t)) == NULL);
  HR_ASSERT(hr_stream_stat_name(-1) == NULL);
  for (int i = 0; hr_stream_stat_name(i) != NULL; ++i) {
    HR_ASSERT(strlen(hr_stream_stat_name(i)) > 0 && strlen(hr_stream_stat_meaning(i)) > 0);
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
  HR_ASSERT(newer.known.limit_bytes == 1 << 20);
  HR_ASSERT(newer.more == 0);
  HR_ASSERT(newer.guard == 7);
  hr_memory_stats older = {.allocation_count = 7};
  hr_device_memory_stats_read(device, offsetof(hr_memory_stats, allocation_count), &older);
  HR_ASSERT(older.limit_bytes == 1 << 20);
  HR_ASSERT(older.allocation_count == 7);
  hr_device_info info = {.total_bytes = 7};
  hr_device_describe_read(device, offsetof(hr_device_info, total_bytes), &info);
  HR_ASSERT(strcmp(info.driver, "null") == 0);
  HR_ASSERT(info.total_bytes == 7);
  hr_device_memory_limit(device, 0);
  hr_device_release(device);
}
