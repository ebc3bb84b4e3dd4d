/* The runtime: allocator, handles, buffers, queue, names of devices. */
#include "hr_test.h"

#include "base/env.h"
#include "base/integer.h"
#include "runtime/buffer.h"
#include "runtime/cached_weights.h"
#include "runtime/registry.h"

/* ---- a driver with a memory budget ---- */

typedef struct budget {
  size_t left;
  int allocations, frees;
} budget;

static hr_status budget_allocate(void *impl, size_t bytes, void **out_address) {
  budget *b = impl;
  if (bytes > b->left) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "%zu left", b->left);
  }
  b->left -= bytes;
  ++b->allocations;
  *out_address = aligned_alloc(64, bytes);
  return HR_OK;
}

static void budget_free(void *impl, void *address, size_t bytes) {
  budget *b = impl;
  b->left += bytes;
  ++b->frees;
  free(address);
}

static hr_status budget_capture(void *impl, void **out_queue) {
  (void)impl, (void)out_queue;
  return HR_OK;
}

static const hr_driver budget_driver = {.name = "budget", .allocate = budget_allocate, .free = budget_free};

static hr_memory_stats stats_of(hr_caching_allocator *allocator) {
  hr_memory_stats stats;
  hr_caching_allocator_stats(allocator, &stats);
  return stats;
}

HR_TEST(sizes_round_up_by_an_eighth_at_most) {
  HR_ASSERT_EQ(hr__caching_allocator_round(0), 64);
  HR_ASSERT_EQ(hr__caching_allocator_round(64), 64);
  HR_ASSERT_EQ(hr__caching_allocator_round(65), 128);
  HR_ASSERT_EQ(hr__caching_allocator_round(513), 576);
  HR_ASSERT_EQ(hr__caching_allocator_round(1025), 1152);
  HR_ASSERT_EQ(hr__caching_allocator_round(1 << 20), 1 << 20);
  HR_ASSERT_EQ(hr__caching_allocator_round((1 << 20) + 1), (1 << 20) + (64 << 10));
  HR_ASSERT_EQ(hr__caching_allocator_round((16 << 20) + 1), 18 << 20);
  for (size_t bytes = 1024; bytes < (size_t)64 << 20; bytes = bytes * 17 / 16 + 1) {
    size_t rounded = hr__caching_allocator_round(bytes);
    HR_ASSERT(rounded >= bytes && rounded - bytes <= bytes / 8 + 64);
    HR_ASSERT_EQ(hr__caching_allocator_round(rounded), rounded);
  }
}

HR_TEST(blocks_are_aligned_apart_and_reused) {
  budget b = {.left = (size_t)1 << 30};
  hr_caching_allocator allocator;
  hr_caching_allocator_init(&allocator, &budget_driver, &b, "budget", 0);
  enum { COUNT = 400 };
  hr_block *blocks[COUNT];
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < COUNT; ++i) {
      size_t bytes = (size_t)(i * 397 % 100000) + 1;
      HR_ASSERT_OK(hr_caching_allocator_alloc(&allocator, bytes, &blocks[i]));
      HR_ASSERT(blocks[i]->bytes >= bytes && (uintptr_t)blocks[i]->address % 64 == 0);
      memset(blocks[i]->address, i, bytes);
    }
    for (int i = 0; i < COUNT; ++i) {
      HR_ASSERT_EQ(*(unsigned char *)blocks[i]->address, (unsigned char)i);
      hr_caching_allocator_free(&allocator, blocks[(i * 7) % COUNT]);
    }
  }
  hr_memory_stats stats = stats_of(&allocator);
  HR_ASSERT_EQ(stats.allocated_bytes, 0);
  HR_ASSERT_EQ(stats.allocation_count, 3 * COUNT);
  HR_ASSERT_EQ(stats.driver_allocation_count, b.allocations);
  HR_ASSERT(stats.driver_allocation_count <= COUNT && stats.reserved_bytes > 0);
  hr_caching_allocator_trim(&allocator);
  HR_ASSERT_EQ(stats_of(&allocator).reserved_bytes, 0);
  HR_ASSERT_EQ(b.frees, b.allocations);
}

HR_TEST(best_fit_wastes_an_eighth_at_most) {
  budget b = {.left = (size_t)1 << 30};
  hr_caching_allocator allocator;
  hr_block *large, *fits, *too_small;
  hr_caching_allocator_init(&allocator, &budget_driver, &b, "budget", 0);
  HR_ASSERT_OK(hr_caching_allocator_alloc(&allocator, 9 << 20, &large));
  hr_caching_allocator_free(&allocator, large);
  HR_ASSERT_OK(hr_caching_allocator_alloc(&allocator, 8 << 20, &fits));
  HR_ASSERT_EQ(b.allocations, 1);
  hr_caching_allocator_free(&allocator, fits);
  HR_ASSERT_OK(hr_caching_allocator_alloc(&allocator, 7 << 20, &too_small));
  HR_ASSERT_EQ(b.allocations, 2);
  hr_caching_allocator_free(&allocator, too_small);
  hr_caching_allocator_trim(&allocator);
}

/* Blocks released in any order: the lowest address of a kind comes first. A driver without graphs does so for small
 * blocks only. */
HR_TEST(requests_get_the_lowest_address_again) {
  enum { COUNT = 41 };
  static const size_t sizes[] = {64, 700, 20000, 100000, 9 << 20};
  budget b = {.left = (size_t)1 << 30};
  hr_driver with_graphs = budget_driver;
  with_graphs.capture_begin = budget_capture;
  for (size_t s = 0; s < sizeof sizes / sizeof *sizes; ++s) {
    hr_caching_allocator allocator;
    hr_block *blocks[COUNT], *again[COUNT], *lowest;
    hr_caching_allocator_init(&allocator, &with_graphs, &b, "budget", 0);
    for (int i = 0; i < COUNT; ++i) {
      HR_ASSERT_OK(hr_caching_allocator_alloc(&allocator, sizes[s], &blocks[i]));
    }
    for (int step = 1; step < COUNT; step += 2) {
      for (int i = 0; i < COUNT; ++i) {
        hr_caching_allocator_free(&allocator, blocks[(i * step) % COUNT]);
        HR_ASSERT_OK(hr_caching_allocator_alloc(&allocator, sizes[s], &lowest));
        hr_caching_allocator_free(&allocator, lowest);
      }
      const char *last = NULL;
      for (int i = 0; i < COUNT; ++i) {
        HR_ASSERT_OK(hr_caching_allocator_alloc(&allocator, sizes[s], &again[i]));
        HR_ASSERT((const char *)again[i]->address > last);
        last = again[i]->address;
      }
      memcpy(blocks, again, sizeof again);
    }
    for (int i = 0; i < COUNT; ++i) {
      hr_caching_allocator_free(&allocator, blocks[i]);
    }
    hr_caching_allocator_trim(&allocator);
    HR_ASSERT_EQ(stats_of(&allocator).reserved_bytes, 0);
  }
}

HR_TEST(refusals_return_the_cache_first_and_name_the_sizes) {
  budget b = {.left = (size_t)16 << 20};
  hr_caching_allocator allocator;
  hr_block *first, *second;
  hr_caching_allocator_init(&allocator, &budget_driver, &b, "budget", 0);
  HR_ASSERT_OK(hr_caching_allocator_alloc(&allocator, 10 << 20, &first));
  hr_caching_allocator_free(&allocator, first);
  HR_ASSERT_OK(hr_caching_allocator_alloc(&allocator, 4 << 20, &first)); /* 10 cached, 4 in use */
  HR_ASSERT_OK(hr_caching_allocator_alloc(&allocator, 12 << 20, &second));
  hr_block *third = NULL;
  HR_ASSERT_ERROR(hr_caching_allocator_alloc(&allocator, 1 << 20, &third), HR_STATUS_RESOURCE_EXHAUSTED,
                  "1048576 bytes requested, 16777216 allocated, 16777216 reserved");
  HR_ASSERT_NULL(third);
  hr_caching_allocator_free(&allocator, second);
  hr_caching_allocator_limit(&allocator, 6 << 20);
  HR_ASSERT_ERROR(hr_caching_allocator_alloc(&allocator, 3 << 20, &third), HR_STATUS_RESOURCE_EXHAUSTED,
                  "limit 6291456");
  HR_ASSERT_OK(hr_caching_allocator_alloc(&allocator, 2 << 20, &third));
  hr_caching_allocator_free(&allocator, third);
  hr_caching_allocator_free(&allocator, first);
  hr_caching_allocator_trim(&allocator);
}

typedef struct sums {
  int64_t segment_bytes, used_bytes, used_blocks, requested, free_bytes;
  const void *segment; /* the last one */
} sums;

static void add_block(void *arg, const hr_memory_block *block) {
  sums *s = arg;
  s->segment_bytes += block->segment != s->segment ? (int64_t)block->segment_bytes : 0;
  s->segment = block->segment;
  s->used_blocks += block->requested > 0;
  s->used_bytes += block->requested > 0 ? (int64_t)block->bytes : 0;
  s->free_bytes += block->requested > 0 ? 0 : (int64_t)block->bytes;
  s->requested += (int64_t)block->requested;
}

/* The gauges, the walk and the older statistics agree; small and large blocks sum up to all. */
static void expect_agreement(hr_device *device) {
  hr_memory_stats stats;
  hr_memory_gauges gauges;
  sums s = {0};
  hr_device_memory_stats(device, &stats);
  hr_device_memory_gauges(device, &gauges);
  hr_device_memory_walk(device, add_block, &s);
  HR_ASSERT_EQ(gauges.bytes[HR_MEMORY_ALL].current, stats.allocated_bytes);
  HR_ASSERT_EQ(gauges.reserved[HR_MEMORY_ALL].current, stats.reserved_bytes);
  HR_ASSERT_EQ(gauges.blocks[HR_MEMORY_ALL].current, s.used_blocks);
  HR_ASSERT_EQ(gauges.bytes[HR_MEMORY_ALL].current, s.used_bytes);
  HR_ASSERT_EQ(gauges.requested[HR_MEMORY_ALL].current, s.requested);
  HR_ASSERT_EQ(gauges.reserved[HR_MEMORY_ALL].current, s.segment_bytes);
  HR_ASSERT(s.used_bytes + s.free_bytes <= s.segment_bytes);
  const hr_gauge *const kinds[] = {gauges.blocks, gauges.bytes, gauges.requested, gauges.segments, gauges.reserved};
  for (int i = 0; i < 5; ++i) {
    const hr_gauge *all = &kinds[i][HR_MEMORY_ALL], *small = &kinds[i][HR_MEMORY_SMALL];
    const hr_gauge *large = &kinds[i][HR_MEMORY_LARGE];
    HR_ASSERT_EQ(all->current, small->current + large->current);
    HR_ASSERT_EQ(all->increased, small->increased + large->increased);
    HR_ASSERT_EQ(all->decreased, small->decreased + large->decreased);
    HR_ASSERT(all->peak >= all->current && all->peak <= small->peak + large->peak);
  }
}

HR_TEST(gauges_follow_blocks_and_segments) {
  enum { SMALL = 40, LARGE = 5 };
  hr_device *device;
  hr_block *blocks[SMALL + LARGE];
  hr_memory_gauges gauges, before;
  HR_ASSERT_OK(hr_device_open("cpu", &device));
  hr_caching_allocator *allocator = &device->allocator;
  hr_device_memory_trim(device);
  hr_device_memory_reset_totals(device);
  hr_device_memory_reset_peak(device);
  hr_device_memory_gauges(device, &before);
  for (int i = 0; i < SMALL + LARGE; ++i) {
    HR_ASSERT_OK(hr_caching_allocator_alloc(allocator, i < SMALL ? 20000 + i : 1000000 + i, &blocks[i]));
    expect_agreement(device);
  }
  hr_device_memory_gauges(device, &gauges);
  HR_ASSERT_EQ(gauges.blocks[HR_MEMORY_SMALL].increased, SMALL);
  HR_ASSERT_EQ(gauges.blocks[HR_MEMORY_LARGE].increased, LARGE);
  HR_ASSERT_EQ(gauges.requested[HR_MEMORY_LARGE].increased, LARGE * 1000000 + LARGE * (2 * SMALL + LARGE - 1) / 2);
  HR_ASSERT_EQ(gauges.segments[HR_MEMORY_LARGE].increased, LARGE);
  for (int i = 0; i < SMALL + LARGE; i += 2) {
    hr_caching_allocator_free(allocator, blocks[i]);
    expect_agreement(device);
  }
  for (int i = 1; i < SMALL + LARGE; i += 2) {
    hr_caching_allocator_give_back(allocator, blocks[i]);
    expect_agreement(device);
  }
  hr_device_memory_trim(device);
  expect_agreement(device);
  hr_device_memory_gauges(device, &gauges);
  HR_ASSERT_EQ(gauges.blocks[HR_MEMORY_ALL].current, before.blocks[HR_MEMORY_ALL].current);
  HR_ASSERT_EQ(gauges.blocks[HR_MEMORY_ALL].decreased, SMALL + LARGE);
  HR_ASSERT_EQ(gauges.blocks[HR_MEMORY_ALL].peak - before.blocks[HR_MEMORY_ALL].current, SMALL + LARGE);
  HR_ASSERT_EQ(gauges.reserved[HR_MEMORY_ALL].increased, gauges.reserved[HR_MEMORY_ALL].decreased);
  hr_device_memory_reset_totals(device);
  hr_device_memory_reset_peak(device);
  hr_device_memory_gauges(device, &gauges);
  HR_ASSERT_EQ(gauges.blocks[HR_MEMORY_ALL].decreased, 0);
  HR_ASSERT_EQ(gauges.blocks[HR_MEMORY_ALL].peak, gauges.blocks[HR_MEMORY_ALL].current);
  hr_device_release(device);
}

typedef struct journal {
  int counts[HR_MEMORY_REFUSED + 1];
  hr_memory_event last[HR_MEMORY_REFUSED + 1];
} journal;

static void note_event(void *arg, const hr_memory_event *event) {
  journal *j = arg;
  ++j->counts[event->action];
  j->last[event->action] = *event;
}

HR_TEST(an_observer_gets_the_events_of_memory) {
  hr_device *device;
  hr_buffer *buffer;
  hr_block *none = NULL;
  journal j;
  memset(&j, 0, sizeof j);
  HR_ASSERT_OK(hr_device_open("cpu", &device));
  hr_device_memory_trim(device);
  HR_ASSERT_OK(hr_buffer_create(device, 5000000, &buffer));
  hr_device_memory_observe(device, note_event, &j);
  HR_ASSERT_OK(hr__buffer_bind(buffer));
  HR_ASSERT_EQ(j.counts[HR_MEMORY_SEGMENT_ALLOCATED], 1);
  HR_ASSERT_EQ(j.counts[HR_MEMORY_ALLOCATED], 1);
  HR_ASSERT_EQ(j.last[HR_MEMORY_ALLOCATED].bytes, 5000000);
  HR_ASSERT(j.last[HR_MEMORY_ALLOCATED].address == hr__buffer_address(buffer) && j.last[HR_MEMORY_ALLOCATED].ns > 0);
  HR_ASSERT(j.last[HR_MEMORY_OWNED].address == hr__buffer_address(buffer));
  HR_ASSERT(j.last[HR_MEMORY_OWNED].handle == hr_buffer_handle(buffer));
  hr_buffer_release(buffer);
  HR_ASSERT_EQ(j.counts[HR_MEMORY_FREED], 1);
  HR_ASSERT_EQ(j.last[HR_MEMORY_FREED].bytes, 5000000);
  hr_device_memory_trim(device);
  HR_ASSERT(j.counts[HR_MEMORY_SEGMENT_FREED] >= 1);
  hr_device_memory_limit(device, 1 << 20);
  HR_ASSERT_STATUS(hr_caching_allocator_alloc(&device->allocator, 32 << 20, &none), HR_STATUS_RESOURCE_EXHAUSTED);
  HR_ASSERT_EQ(j.last[HR_MEMORY_REFUSED].bytes, 32 << 20);
  hr_device_memory_limit(device, 0);
  hr_device_memory_observe(device, NULL, NULL);
  const int count = j.counts[HR_MEMORY_ALLOCATED];
  HR_ASSERT_OK(hr_buffer_create(device, 100, &buffer));
  HR_ASSERT_OK(hr__buffer_bind(buffer));
  hr_buffer_release(buffer);
  HR_ASSERT_EQ(j.counts[HR_MEMORY_ALLOCATED], count);
  hr_device_release(device);
}

HR_TEST(a_refusal_lists_the_largest_blocks_in_use) {
  hr_device *device;
  hr_block *blocks[4], *none = NULL;
  hr_memory_gauges gauges;
  HR_ASSERT_OK(hr_device_open("cpu", &device));
  hr_device_memory_reset_totals(device);
  const size_t sizes[] = {3000000, 50000, 3000000, 2000000};
  for (int i = 0; i < 4; ++i) {
    HR_ASSERT_OK(hr_caching_allocator_alloc(&device->allocator, sizes[i], &blocks[i]));
  }
  hr_device_memory_limit(device, 16 << 20);
  HR_ASSERT_ERROR(hr_caching_allocator_alloc(&device->allocator, 32 << 20, &none), HR_STATUS_RESOURCE_EXHAUSTED,
                  "the largest in use: 2 of 3000000 bytes, 1 of 2000000 bytes, 1 of 50000 bytes");
  hr_device_memory_gauges(device, &gauges);
  HR_ASSERT_EQ(gauges.failures, 1);
  HR_ASSERT(gauges.retries >= 1);
  hr_device_memory_limit(device, 0);
  for (int i = 0; i < 4; ++i) {
    hr_caching_allocator_free(&device->allocator, blocks[i]);
  }
  hr_device_release(device);
}

/* ---- buffers ---- */

HR_TEST(handles_find_their_buffer_from_inside_and_one_past_the_end) {
  hr_device *device;
  HR_ASSERT_OK(hr_device_open("null", &device));
  static const size_t sizes[] = {0, 1, 63, 64, 65, 4096, 1 << 20, ((size_t)1 << 33) + 5};
  enum { COUNT = sizeof sizes / sizeof sizes[0] };
  hr_buffer *buffers[COUNT];
  for (int i = 0; i < COUNT; ++i) {
    HR_ASSERT_OK(hr_buffer_create(device, sizes[i], &buffers[i]));
    HR_ASSERT_EQ((uintptr_t)hr_buffer_handle(buffers[i]) % 64, 0);
  }
  for (int i = 0; i < COUNT; ++i) {
    const char *handle = hr_buffer_handle(buffers[i]);
    const size_t inside[] = {0, sizes[i] / 2, sizes[i]};
    for (int j = 0; j < 3; ++j) {
      size_t offset = 99;
      hr_buffer *found = hr_buffer_from_handle(handle + inside[j], &offset);
      HR_ASSERT(found == buffers[i]);
      HR_ASSERT_EQ(offset, inside[j]);
      hr_buffer_release(found);
    }
  }
  const char *gone = hr_buffer_handle(buffers[4]);
  for (int i = 0; i < COUNT; ++i) {
    hr_buffer_release(buffers[i]);
  }
  size_t offset;
  HR_ASSERT_NULL(hr_buffer_from_handle(gone, &offset));
  HR_ASSERT_NULL(hr_buffer_from_handle(&offset, &offset));
  HR_ASSERT_NULL(hr_buffer_from_handle(NULL, &offset));
  hr_buffer *huge;
  HR_ASSERT_STATUS(hr_buffer_create(device, (size_t)1 << 50, &huge), HR_STATUS_RESOURCE_EXHAUSTED);
  hr_device_release(device);
}

HR_TEST(in_flight_work_holds_a_buffer_but_does_not_count) {
  hr_device *device;
  hr_buffer *buffer;
  HR_ASSERT_OK(hr_device_open("cpu", &device));
  HR_ASSERT_OK(hr_buffer_create(device, 100, &buffer));
  HR_ASSERT_EQ(hr__buffer_holders(buffer), 1);
  hr_buffer_retain(buffer);
  hr__buffers_send(1, &buffer);
  HR_ASSERT_EQ(hr__buffer_holders(buffer), 1);
  void *handle = hr_buffer_handle(buffer);
  hr_buffer_release(buffer); /* other holders */
  HR_ASSERT_EQ(hr__buffer_holders(buffer), 0);
  size_t offset;
  hr_buffer *found = hr_buffer_from_handle(handle, &offset); /* it is still there */
  HR_ASSERT(found == buffer);
  HR_ASSERT_EQ(hr__buffer_holders(buffer), 1);
  hr__buffers_arrive(1, &buffer);
  HR_ASSERT_EQ(hr__buffer_holders(buffer), 1);
  hr_buffer_release(buffer);
  HR_ASSERT(hr_buffer_from_handle(handle, &offset) == NULL);
  hr_device_release(device);
}

HR_TEST(invalidate_is_reported_until_healed) {
  hr_device *device;
  hr_buffer *buffer;
  HR_ASSERT_OK(hr_device_open("cpu", &device));
  HR_ASSERT_OK(hr_buffer_create(device, 100, &buffer));
  HR_ASSERT_OK(hr__buffer_failure(buffer));
  hr_status status = hr_status_make(HR_STATUS_OUT_OF_RANGE, "index 7");
  hr__buffer_invalidate(buffer, status);
  hr_status_free(status);
  HR_ASSERT(hr__buffer_is_invalid(buffer));
  HR_ASSERT_ERROR(hr__buffer_failure(buffer), HR_STATUS_OUT_OF_RANGE, "index 7");
  hr__buffer_heal(buffer);
  HR_ASSERT(!hr__buffer_is_invalid(buffer));
  hr_buffer_release(buffer);
  hr_device_release(device);
}

/* ---- the queue ---- */

typedef struct test_job {
  hr_queue_job entry;
  int *list;
  atomic_int *count;
  int value;
} test_job;

static void run_test_job(hr_queue_job *entry) {
  test_job *job = (test_job *)entry;
  job->list[atomic_fetch_add(job->count, 1)] = job->value;
}

HR_TEST(queue_runs_in_order_and_inline_when_idle) {
  enum { COUNT = 100 };
  test_job jobs[COUNT];
  int list[COUNT];
  atomic_int count = 0;
  hr_queue queue;
  hr_queue_init(&queue);
  HR_ASSERT(hr_queue_begin_inline(&queue));
  HR_ASSERT(!hr_queue_begin_inline(&queue));
  hr_queue_end_inline(&queue);
  uint64_t number = 0;
  for (int round = 0; round < 2; ++round) {
    atomic_store(&count, 0);
    for (int i = 0; i < COUNT; ++i) {
      jobs[i] = (test_job){.entry = {.run = run_test_job}, .list = list, .count = &count, .value = i};
      number = hr_queue_push(&queue, &jobs[i].entry);
    }
    hr_queue_wait(&queue, number);
    for (int i = 0; i < COUNT; ++i) {
      HR_ASSERT_EQ(list[i], i);
    }
    hr_queue_stop(&queue);
  }
}

static void append_first(void *entry) {
  test_job *job = entry;
  job->list[atomic_fetch_add(job->count, 1)] = -job->value;
}

static void do_nothing(void *arg, int64_t begin, int64_t end, int worker) {
  (void)arg, (void)begin, (void)end, (void)worker;
}

/* A job that was submitted early runs and ends, once and in order, before the queue's next work. */
HR_TEST(queue_ends_what_was_led_first) {
  atomic_int count = 0;
  int list[4], early_count = 0;
  int64_t end = hr_clock_ns() + INT64_C(10000000000); /* a busy machine may leave the team asleep for a while */
  hr_queue queue;
  hr_queue_init(&queue);
  hr_thread_count_set(2);
  for (int i = 0; i < 200 || (early_count == 0 && hr_core_count() > 1 && hr_clock_ns() < end); ++i) {
    test_job early = {.entry = {.run = run_test_job}, .list = list, .count = &count, .value = 1}, other = early;
    other.value = 2;
    atomic_store(&count, 0);
    hr_parallel_for(2, 1, do_nothing, NULL); /* the team is awake */
    bool is_early = hr_queue_submit_early(&queue, &early.entry, append_first);
    HR_ASSERT(!is_early || !hr_queue_submit_early(&queue, &other.entry, append_first));
    if (i % 3 == 0) {
      hr_queue_wait(&queue, hr_queue_push(&queue, &other.entry));
    } else if (i % 3 == 1) {
      HR_ASSERT(hr_queue_begin_inline(&queue));
      run_test_job(&other.entry);
      hr_queue_end_inline(&queue);
    } else {
      hr_queue_drain(&queue);
      run_test_job(&other.entry);
    }
    HR_ASSERT_EQ(count, is_early ? 3 : 1);
    HR_ASSERT_EQ(list[count - 1], 2);
    HR_ASSERT(!is_early || (list[0] == -1 && list[1] == 1));
    early_count += is_early;
  }
  HR_ASSERT(early_count > 0 || hr_core_count() < 2);
  hr_queue_close(&queue);
  hr_thread_count_set(0);
}

/* ---- drivers ---- */

HR_TEST(devices_have_names_and_are_the_same_when_opened_twice) {
  hr_device *first, *second;
  HR_ASSERT_OK(hr_device_open("null", &first));
  HR_ASSERT_OK(hr_device_open("null:0", &second));
  HR_ASSERT(first == second);
  HR_ASSERT_STR_EQ(hr_device_name(first), "null");
  HR_ASSERT_ERROR(hr_device_open("nul", &second), HR_STATUS_NOT_FOUND, "this build has cpu, cuda, null");
  HR_ASSERT_ERROR(hr_device_open("null:1", &second), HR_STATUS_NOT_FOUND, "has 1 devices");
  HR_ASSERT_STATUS(hr_device_open("cpu:x", &second), HR_STATUS_INVALID_ARGUMENT);
  hr_device_release(first);
  hr_device_release(first);
}

HR_TEST(devices_are_counted_and_described) {
  int count = -1;
  HR_ASSERT_OK(hr_device_count("null", &count));
  HR_ASSERT_EQ(count, 1);
  HR_ASSERT_OK(hr_device_count("null:7", &count));
  HR_ASSERT_EQ(count, 1);
  HR_ASSERT_ERROR(hr_device_count("nul", &count), HR_STATUS_NOT_FOUND, "this build has cpu, cuda, null");
  HR_ASSERT_STATUS(hr_device_count(NULL, &count), HR_STATUS_INVALID_ARGUMENT);
  hr_device *device;
  hr_device_info info;
  HR_ASSERT_OK(hr_device_open("null", &device));
  hr_device_describe(device, &info);
  HR_ASSERT_STR_EQ(info.driver, "null");
  HR_ASSERT_STR_EQ(info.description, "accounts for everything, computes nothing");
  HR_ASSERT_EQ(info.ordinal, 0);
  HR_ASSERT_EQ(info.workers, 1);
  HR_ASSERT(info.total_bytes > 0);
  hr_buffer *buffer;
  HR_ASSERT_OK(hr_buffer_create(device, 64, &buffer));
  HR_ASSERT(hr_buffer_device(buffer) == device);
  hr_buffer_release(buffer);
  hr_device_release(device);
}

HR_TEST(several_cpu_devices_are_devices_of_their_own) {
  HR_ASSERT_EQ(setenv("HEADRACE_CPU_DEVICES", "2", 1), 0);
  hr__env_reload();
  hr_device *first, *second;
  hr_device_info info;
  int count = 0;
  HR_ASSERT_OK(hr_device_count("cpu", &count));
  HR_ASSERT_EQ(count, 2);
  HR_ASSERT_OK(hr_device_open("cpu", &first));
  HR_ASSERT_OK(hr_device_open("cpu:1", &second));
  HR_ASSERT(first != second);
  HR_ASSERT_STR_EQ(hr_device_name(second), "cpu:1");
  hr_device_describe(second, &info);
  HR_ASSERT_EQ(info.ordinal, 1);
  HR_ASSERT(info.is_host);
  hr_device_release(first);
  hr_device_release(second);
  HR_ASSERT_EQ(unsetenv("HEADRACE_CPU_DEVICES"), 0);
  hr__env_reload();
  HR_ASSERT_OK(hr_device_count("cpu", &count));
  HR_ASSERT_EQ(count, 1);
}

/* ---- cached weights of libraries ---- */

static void keep_bytes(uint64_t stamp, uint64_t recipe, size_t bytes, unsigned char value) {
  hr_cached_weights *made = hr__cached_weights_create(NULL, stamp, &recipe, 1, bytes);
  HR_ASSERT_NOT_NULL(made);
  memset(hr__cached_weights_data(made), value, bytes);
  hr__cached_weights_publish(made);
  hr__cached_weights_release(made);
}

static bool is_kept(uint64_t stamp, uint64_t recipe) {
  hr_cached_weights *found = hr__cached_weights_find(stamp, &recipe, 1);
  hr__cached_weights_release(found);
  return found != NULL;
}

HR_TEST(what_is_kept_is_found_by_contents_and_recipe) {
  keep_bytes(71, 1, 100, 1);
  keep_bytes(71, 2, 200, 2);
  keep_bytes(71, 2, 200, 3); /* the second of its kind is not published */
  keep_bytes(72, 1, 400, 4);
  HR_ASSERT_EQ(hr__cached_weights_bytes(), 700);
  HR_ASSERT(is_kept(71, 1) && is_kept(71, 2) && is_kept(72, 1) && !is_kept(72, 2) && !is_kept(73, 1));
  const uint64_t words[2] = {1, 2}, two = 2;
  HR_ASSERT_NULL(hr__cached_weights_find(71, words, 2));
  hr_cached_weights *held = hr__cached_weights_find(71, &two, 1);
  HR_ASSERT_EQ(*(unsigned char *)hr__cached_weights_data(held), 2);
  hr__cached_weights_forget(hr__context(), 71);
  HR_ASSERT(!is_kept(71, 1) && !is_kept(71, 2) && is_kept(72, 1));
  HR_ASSERT_EQ(((unsigned char *)hr__cached_weights_data(held))[199], 2); /* who holds one keeps it */
  hr__cached_weights_release(held);
  hr__cached_weights_forget_all();
  HR_ASSERT_EQ(hr__cached_weights_bytes(), 0);
  HR_ASSERT(!is_kept(72, 1));
}

HR_TEST(contents_requested_twice_are_kept) {
  static const struct {
    uint64_t stamp;
    uint64_t recipe;
    bool is_new, is_there;
  } runs[] = {{81, 1, false, false}, {82, 1, false, false}, {81, 2, false, false}, {0, 1, false, false},
              {0, 1, false, false},  {81, 1, true, true},   {81, 1, false, true},  {82, 1, true, true},
              {81, 2, true, true},   {83, 1, false, false}, {81, 1, false, true},  {83, 1, true, true}};
  for (size_t i = 0; i < sizeof runs / sizeof *runs; ++i) {
    bool is_new = !runs[i].is_new;
    hr_cached_weights *cached_weights = hr__cached_weights_get(runs[i].stamp, &runs[i].recipe, 1, 10, &is_new);
    HR_ASSERT_EQ(is_new, runs[i].is_new);
    HR_ASSERT_EQ(cached_weights != NULL, runs[i].is_there);
    if (is_new) {
      hr__cached_weights_publish(cached_weights);
    }
    hr__cached_weights_release(cached_weights);
  }
  hr__cached_weights_forget_all();
}

/* A loop over growing lengths: no block is used twice. */
HR_TEST(what_a_host_does_not_use_again_goes_back) {
  budget b = {.left = SIZE_MAX};
  hr_caching_allocator allocator;
  hr_caching_allocator_init(&allocator, &budget_driver, &b, "budget", 0);
  hr_block *held = NULL;
  HR_ASSERT_OK(hr_caching_allocator_alloc(&allocator, 20 << 20, &held));
  int64_t asked = 0;
  for (size_t length = 1; length <= 60; ++length) {
    hr_block *blocks[3];
    for (size_t i = 0; i < 3; ++i) {
      HR_ASSERT_OK(hr_caching_allocator_alloc(&allocator, (length << 20) + (i << 18), &blocks[i]));
      asked += (int64_t)blocks[i]->bytes;
    }
    for (size_t i = 0; i < 3; ++i) {
      hr_caching_allocator_free(&allocator, blocks[i]);
    }
    const hr_memory_stats stats = stats_of(&allocator);
    int64_t most = hr_max(2 * stats.allocated_bytes_peak, HR_ALLOCATOR_FREE_MIN);
    HR_ASSERT(stats.reserved_bytes <= most + stats.allocated_bytes_peak);
  }
  HR_ASSERT(stats_of(&allocator).reserved_bytes < asked / 4);
  hr_block *last = NULL;
  int64_t count = stats_of(&allocator).driver_allocation_count;
  HR_ASSERT_OK(hr_caching_allocator_alloc(&allocator, 60 << 20, &last)); /* the most recent ones are still cached */
  HR_ASSERT_EQ(stats_of(&allocator).driver_allocation_count, count);
  hr_caching_allocator_free(&allocator, last);
  hr_caching_allocator_free(&allocator, held);
  hr_caching_allocator_trim(&allocator);
  HR_ASSERT_EQ(stats_of(&allocator).reserved_bytes, 0);
}

/* Blocks of other sizes each time, at most 5 MB in use: the driver is not asked again once much is free. */
HR_TEST(much_free_memory_serves_smaller_requests) {
  enum { SIZES = 300, UNIT = 16384 };
  budget b = {.left = SIZE_MAX};
  hr_caching_allocator allocator;
  hr_caching_allocator_init(&allocator, &budget_driver, &b, "budget", 0);
  int64_t counts[2] = {0};
  for (int pass = 0; pass < 2; ++pass) {
    for (size_t i = 1; i <= SIZES; ++i) {
      hr_block *block;
      HR_ASSERT_OK(hr_caching_allocator_alloc(&allocator, (3 + i * 77 % SIZES % 211) * UNIT, &block));
      HR_ASSERT(block->bytes <= 2 * hr__caching_allocator_round((3 + i * 77 % SIZES % 211) * UNIT));
      hr_caching_allocator_free(&allocator, block);
      HR_ASSERT(stats_of(&allocator).reserved_bytes <= HR_ALLOCATOR_FREE_MIN + 2 * (SIZES + 3) * UNIT);
    }
    counts[pass] = stats_of(&allocator).driver_allocation_count;
  }
  HR_ASSERT(counts[1] - counts[0] < SIZES / 20);
  HR_ASSERT(stats_of(&allocator).reserved_bytes > HR_ALLOCATOR_FREE_MIN / 2);
  hr_caching_allocator_trim(&allocator);
  HR_ASSERT_EQ(stats_of(&allocator).reserved_bytes, 0);
}

/* A value that grows with each step: on a host it keeps its blocks, whose pages are there. */
HR_TEST(growing_values_keep_their_blocks_on_a_host) {
  hr_driver with_graphs = budget_driver;
  with_graphs.capture_begin = budget_capture;
  const hr_driver *drivers[] = {&budget_driver, &with_graphs};
  int64_t counts[2];
  for (int i = 0; i < 2; ++i) {
    budget b = {.left = SIZE_MAX};
    hr_caching_allocator allocator;
    hr_caching_allocator_init(&allocator, drivers[i], &b, "budget", 0);
    hr_block *held = NULL;
    for (size_t bytes = HR_ALLOCATOR_PAGE + 1; bytes <= (size_t)1 << 20; bytes += bytes / 16) {
      hr_block *block;
      HR_ASSERT_OK(hr_caching_allocator_alloc(&allocator, bytes, &block));
      HR_ASSERT(block->bytes >= bytes && block->bytes < 2 * bytes);
      if (held != NULL) {
        hr_caching_allocator_free(&allocator, held);
      }
      held = block;
    }
    hr_caching_allocator_free(&allocator, held);
    counts[i] = stats_of(&allocator).driver_allocation_count;
    hr_caching_allocator_trim(&allocator);
    HR_ASSERT_EQ(stats_of(&allocator).reserved_bytes, 0);
  }
  HR_ASSERT(counts[0] <= 3 + 2 * 5); /* a slab, or two blocks, of each size */
  HR_ASSERT(counts[1] > 70);
}

/* Programs with ever larger temporaries: only the last block stays. Graphs of devices refer to earlier ones. */
HR_TEST(outgrown_temporaries_go_back_on_a_host) {
  hr_driver with_graphs = budget_driver;
  with_graphs.capture_begin = budget_capture;
  const hr_driver *drivers[] = {&budget_driver, &with_graphs};
  for (int i = 0; i < 2; ++i) {
    budget b = {.left = SIZE_MAX};
    hr_device device = {.context = &hr__context_first, .driver = drivers[i]};
    hr_caching_allocator_init(&device.allocator, drivers[i], &b, "budget", 0);
    for (int j = 0; j < HR_LANES_MAX; ++j) {
      hr__lane_init(&device.lanes[j], &device, j);
    }
    hr_lane *lane = &device.lanes[0];
    void *address = NULL;
    for (size_t megabytes = 1; megabytes <= 64; megabytes *= 2) {
      HR_ASSERT_OK(hr__lane_shared(lane, megabytes << 20, &address));
      HR_ASSERT_OK(hr__lane_shared(lane, 1 << 20, &address));
    }
    HR_ASSERT_EQ(stats_of(&device.allocator).allocated_bytes, 64 << 20);
    HR_ASSERT_EQ(stats_of(&device.allocator).reserved_bytes, i == 0 ? 64 << 20 : 127 << 20);
    HR_ASSERT_EQ(atomic_load(&device.lane_bytes), 64 << 20);
    hr_device_memory_trim(&device);
    HR_ASSERT_EQ(stats_of(&device.allocator).reserved_bytes, 64 << 20);
    device.properties.is_host = true;
    hr_device_memory_trim(&device);
    HR_ASSERT_EQ(stats_of(&device.allocator).reserved_bytes, 0);
    HR_ASSERT_EQ(atomic_load(&device.lane_bytes), 0);
    HR_ASSERT_OK(hr__lane_shared(lane, 64 << 20, &address)); /* a quarter of room for what grows, if there is any */
    HR_ASSERT_OK(hr__lane_shared(lane, 80 << 20, &address));
    HR_ASSERT_EQ(lane->shared->bytes, 100 << 20);
    hr_caching_allocator_limit(&device.allocator, 120 << 20);
    HR_ASSERT_OK(hr__lane_shared(lane, 118 << 20, &address));
    HR_ASSERT_EQ(lane->shared->bytes, 118 << 20);
    HR_ASSERT_STATUS(hr__lane_shared(lane, 121 << 20, &address), HR_STATUS_RESOURCE_EXHAUSTED);
    hr_device_memory_trim(&device);
    for (int j = 0; j < HR_LANES_MAX; ++j) {
      hr__lane_fini(&device.lanes[j]);
    }
  }
}

/* Memory that one program needed goes back when the next ones need less for two windows of time, here of 0 seconds. */
HR_TEST(memory_that_was_needed_once_is_not_kept) {
  budget b = {.left = SIZE_MAX};
  hr_device device = {.context = &hr__context_first, .driver = &budget_driver, .properties.is_host = true};
  hr_caching_allocator_init(&device.allocator, &budget_driver, &b, "budget", 0);
  for (int j = 0; j < HR_LANES_MAX; ++j) {
    hr__lane_init(&device.lanes[j], &device, j);
  }
  hr_lane *lane = &device.lanes[0];
  void *address = NULL;
  hr_block *blocks[4];
  for (int i = 0; i < 4; ++i) {
    HR_ASSERT_OK(hr_caching_allocator_alloc(&device.allocator, 200 << 20, &blocks[i]));
  }
  for (int i = 0; i < 4; ++i) {
    hr_caching_allocator_free(&device.allocator, blocks[i]);
  }
  HR_ASSERT_OK(hr__lane_shared(lane, 900 << 20, &address));
  HR_ASSERT_EQ(stats_of(&device.allocator).reserved_bytes, 1700 << 20);
  for (int i = 0; i < 4; ++i) { /* within the window */
    HR_ASSERT_OK(hr__lane_shared(lane, 2 << 20, &address));
    HR_ASSERT_OK(hr_caching_allocator_alloc(&device.allocator, 4 << 20, &blocks[0]));
    hr_caching_allocator_free(&device.allocator, blocks[0]);
  }
  HR_ASSERT(stats_of(&device.allocator).reserved_bytes >= 1700 << 20);
  device.allocator.recent.window_ns = lane->recent.window_ns = 0;
  for (int i = 0; i < 4; ++i) {
    HR_ASSERT_OK(hr__lane_shared(lane, 2 << 20, &address));
    HR_ASSERT_OK(hr_caching_allocator_alloc(&device.allocator, 4 << 20, &blocks[0]));
    hr_caching_allocator_free(&device.allocator, blocks[0]);
  }
  HR_ASSERT(stats_of(&device.allocator).reserved_bytes <= 32 << 20);
  hr_device_memory_trim(&device);
  for (int j = 0; j < HR_LANES_MAX; ++j) {
    hr__lane_fini(&device.lanes[j]);
  }
}

HR_TEST(what_is_kept_on_a_device_makes_room_for_what_it_refused) {
  enum { ROOM = 4 << 20, KEPT = 3 << 20 };
  static const int64_t limits[] = {0, ROOM};
  for (int i = 0; i < 2; ++i) {
    budget b = {.left = limits[i] == 0 ? ROOM : 2 * ROOM};
    hr_device device = {.context = &hr__context_first, .driver = &budget_driver};
    hr_block *block = NULL;
    const uint64_t recipe = 1;
    hr_caching_allocator_init(&device.allocator, &budget_driver, &b, "budget", limits[i]);
    hr_cached_weights *made = hr__cached_weights_create(&device, 91, &recipe, 1, KEPT);
    HR_ASSERT_NOT_NULL(made);
    HR_ASSERT_EQ(stats_of(&device.allocator).allocated_bytes, KEPT);
    hr__cached_weights_publish(made);
    hr__cached_weights_release(made);
    HR_ASSERT_NULL(
        hr__cached_weights_create(&device, 92, &recipe, 1, 2 * ROOM)); /* too large: only cached weights are dropped */
    HR_ASSERT(!is_kept(91, 1) && stats_of(&device.allocator).allocated_bytes == 0);
    made = hr__cached_weights_create(&device, 91, &recipe, 1, KEPT);
    hr__cached_weights_publish(made);
    hr__cached_weights_release(made);
    HR_ASSERT_OK(hr_caching_allocator_alloc(&device.allocator, KEPT, &block));
    HR_ASSERT(!is_kept(91, 1));
    hr_caching_allocator_free(&device.allocator, block);
    hr_caching_allocator_trim(&device.allocator);
    HR_ASSERT_EQ(hr__cached_weights_bytes(), 0);
  }
}

HR_TEST(what_is_kept_goes_with_its_buffer_and_when_memory_is_out) {
  budget b = {.left = 4 << 20};
  hr_caching_allocator allocator;
  hr_block *block = NULL;
  hr_caching_allocator_init(&allocator, &budget_driver, &b, "budget", 0);
  keep_bytes(81, 1, 64, 1);
  HR_ASSERT_OK(hr_caching_allocator_alloc(&allocator, 1 << 20, &block));
  hr_caching_allocator_free(&allocator, block);
  HR_ASSERT(is_kept(81, 1));
  HR_ASSERT_STATUS(hr_caching_allocator_alloc(&allocator, 8 << 20, &block), HR_STATUS_RESOURCE_EXHAUSTED);
  HR_ASSERT(!is_kept(81, 1));
  hr_caching_allocator_trim(&allocator);

  hr_device *device;
  hr_buffer *buffer;
  HR_ASSERT_OK(hr_device_open("cpu", &device));
  HR_ASSERT_OK(hr_buffer_create(device, 64, &buffer));
  keep_bytes(82, 1, 64, 1);
  keep_bytes(83, 1, 64, 1);
  hr__cached_weights_note(&buffer->weights, hr__context(), 82);
  hr__cached_weights_note(&buffer->weights, hr__context(), 82);
  HR_ASSERT(is_kept(82, 1));
  hr__cached_weights_note(&buffer->weights, hr__context(), 83);
  HR_ASSERT(!is_kept(82, 1) && is_kept(83, 1));
  hr_buffer_release(buffer);
  HR_ASSERT(!is_kept(83, 1));
  hr_device_release(device);
}
