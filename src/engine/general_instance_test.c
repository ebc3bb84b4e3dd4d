/* general_instance_test.c: keys of a known structure share an instance until one of them is met for the third time. */
#include "engine/general_instance.h"

#include "hr_test.h"

#ifdef __GLIBC__
#include <malloc.h>
#endif

#include "base/context.h"
#include "base/integer.h"
#include "engine/stream.h"

enum { COLUMNS = 8, LENGTH_MAX = 200 };

typedef struct user {
  hr_context *context; /* its own: what others have taught does not count */
  hr_device *device;
  hr_stream *stream;
} user;

static void open_user(user *u) {
  HR_ASSERT_OK(hr__context_create(&u->context));
  hr_context *before = hr__context_enter(u->context);
  HR_ASSERT_OK(hr_device_open("cpu", &u->device));
  HR_ASSERT_OK(hr_stream_create(u->device, &u->stream));
  hr_stream_set_mode(u->stream, HR_MODE_FUSE);
  (void)hr__context_enter(before);
}

static void close_user(user *u) {
  hr_stream_release(u->stream);
  hr_device_release(u->device);
  hr__context_destroy(u->context);
}

static hr_stats stats_of(const user *u) {
  hr_stats stats;
  hr_stream_stats(u->stream, &stats);
  return stats;
}

static hr_status record_all(user *u, hr_buffer *x, hr_buffer *sums, int64_t rows, float *out_values) {
  int64_t dims[2] = {rows, COLUMNS}, strides[2] = {COLUMNS, 1}, kept[2] = {1, COLUMNS};
  hr_scalar by = hr_scalar_f64(3), mean = hr_scalar_f64(1.0 / 4);
  hr_view in = {.buffer = x, .dtype = HR_DTYPE_F32, .rank = 2, .dims = dims, .strides = strides}, between = in;
  hr_view out = {.buffer = sums, .dtype = HR_DTYPE_F32, .rank = 2, .dims = kept, .strides = strides};
  hr_view factors[2] = {in, {.scalar = &by, .dtype = by.dtype}};
  hr_view halves[2] = {out, {.scalar = &mean, .dtype = mean.dtype}};
  int64_t mask[1] = {1};
  hr_attrs attrs = {.ints = mask, .int_count = 1};
  HR_RETURN_IF_ERROR(hr_buffer_create(u->device, (size_t)rows * COLUMNS * sizeof(float), &between.buffer));
  hr_status status = hr_stream_record(u->stream, HR_OP_MUL, NULL, 2, factors, 1, &between);
  status = status == HR_OK ? hr_stream_record(u->stream, HR_OP_SUM, &attrs, 1, &between, 1, &out) : status;
  status = status == HR_OK ? hr_stream_record(u->stream, HR_OP_MUL, NULL, 2, halves, 1, &out) : status;
  hr_buffer_release(between.buffer);
  return status == HR_OK ? hr_stream_read(u->stream, &out, out_values) : status;
}

/* Sums of 3 x over the rows, by 4; x is 1, 2, 3, .. by columns. */
static hr_status run(user *u, int64_t rows, float *out_values) {
  static float values[LENGTH_MAX * COLUMNS];
  int64_t dims[1] = {rows * COLUMNS}, strides[1] = {1};
  hr_view all = {.dtype = HR_DTYPE_F32, .rank = 1, .dims = dims, .strides = strides};
  hr_buffer *sums = NULL;
  for (int64_t i = 0; i < rows * COLUMNS; ++i) {
    values[i] = (float)(i % COLUMNS + 1);
  }
  HR_RETURN_IF_ERROR(hr_buffer_create(u->device, (size_t)rows * COLUMNS * sizeof(float), &all.buffer));
  hr_status status = hr_buffer_create(u->device, COLUMNS * sizeof(float), &sums);
  status = status == HR_OK ? hr_stream_write(u->stream, &all, values) : status;
  status = status == HR_OK ? record_all(u, all.buffer, sums, rows, out_values) : status;
  hr_buffer_release(all.buffer);
  hr_buffer_release(sums);
  return status;
}

static void expect(user *u, int64_t rows) {
  float values[COLUMNS] = {0};
  HR_ASSERT_OK(run(u, rows, values));
  for (int i = 0; i < COLUMNS; ++i) {
    HR_ASSERT_EQ(values[i], (float)((i + 1) * 3 * rows) / 4);
  }
}

/* Lengths of one class of reductions, the largest first, so that others are in range. */
static void teach(user *u) {
  for (int64_t rows = LENGTH_MAX; rows > LENGTH_MAX - 6; --rows) {
    expect(u, rows);
  }
}

/* The records of a plan that keeps only what differs from its model's key. */
static void expect_records(const hr_plan *plan, int64_t rows) {
  hr_program program;
  uint64_t *words = NULL;
  HR_ASSERT(plan->key.words == NULL && plan->key_changes.count > 0);
  HR_ASSERT_OK(hr__plan_decode_key(plan, &program, &words));
  HR_ASSERT_EQ(program.node_count, 3);
  HR_ASSERT_EQ(program.nodes[0].inputs[0].dims[0], rows);
  HR_ASSERT_EQ(program.nodes[1].outputs[0].dims[1], COLUMNS);
  hr_program_fini(&program);
  hr_free(words);
}

/* The costs of a plan that has packed them. */
static void expect_costs(hr_plan *plan) {
  HR_ASSERT(plan->costs == NULL && plan->packed_costs != NULL);
  const hr_step_cost *costs = hr__plan_costs(plan);
  int64_t bytes = 0, flops = 0;
  for (int i = 0; i < plan->schedule.step_count; ++i) {
    bytes += costs[i].bytes_read + costs[i].bytes_written;
    flops += costs[i].flops;
  }
  HR_ASSERT(bytes > 0 && flops > 0);
  HR_ASSERT_EQ(bytes, plan->bytes);
  HR_ASSERT_EQ(flops, plan->flops);
}

/* The costs of a plan that got new numbers, which are those of its steps as they are counted. */
static void expect_counted_costs(const hr_plan *plan) {
  int64_t bytes = 0, flops = 0;
  for (int i = 0; i < plan->schedule.step_count; ++i) {
    const hr_step *step = &plan->schedule.steps[i];
    hr_step_cost cost, own = plan->costs[i];
    HR_ASSERT(step->kind != HR_STEP_KERNEL || step->kernel->bytes == own.bytes_read + own.bytes_written);
    hr_schedule_count_traffic(&plan->schedule, step);
    hr_step_count_cost(step, &cost);
    HR_ASSERT_EQ(own.bytes_read, cost.bytes_read);
    HR_ASSERT_EQ(own.bytes_written, cost.bytes_written);
    HR_ASSERT_EQ(own.flops, cost.flops);
    bytes += cost.bytes_read + cost.bytes_written;
    flops += cost.flops;
  }
  HR_ASSERT(bytes > 0 && flops > 0);
  HR_ASSERT_EQ(plan->bytes, bytes);
  HR_ASSERT_EQ(plan->flops, flops);
}

HR_TEST(costs_of_new_dims_are_those_that_are_counted) {
  user u;
  open_user(&u);
  teach(&u);
  for (int64_t rows = 150; rows < 155; ++rows) {
    expect(&u, rows);
    HR_ASSERT_EQ(u.stream->cache.general.count, 1);
    expect_counted_costs(u.stream->cache.general.all[0].instance->plan);
  }
  close_user(&u);
}

HR_TEST(a_key_gets_an_instance_of_its_own_when_it_is_met_again_and_again) {
  user u;
  open_user(&u);
  teach(&u);
  int64_t entries = stats_of(&u).cache_entries, general = stats_of(&u).general_plans;
  for (int64_t rows = 101; rows < 160; ++rows) {
    expect(&u, rows);
  }
  HR_ASSERT_EQ(stats_of(&u).cache_entries, entries);
  HR_ASSERT_EQ(stats_of(&u).general_plans, general + 59);
  HR_ASSERT_EQ(u.stream->cache.general.count, 1);
  expect(&u, 120);
  HR_ASSERT_EQ(stats_of(&u).cache_entries, entries);
  expect(&u, 120);
  HR_ASSERT_EQ(stats_of(&u).cache_entries, entries + 1);
  hr_plan *own = u.stream->cache.newest->plan;
  HR_ASSERT(own->is_general && own->packed != NULL && own->schedule.steps == NULL); /* only what runs read */
  expect_records(own, 120);
  expect_costs(own);
  int64_t hits = stats_of(&u).cache_hits;
  expect(&u, 120);
  HR_ASSERT_EQ(stats_of(&u).cache_hits, hits + 1);
  close_user(&u);
}

static const hr_cached_kernel *first_kernel(const user *u) {
  const hr_instance *instance = u->stream->cache.general.all[0].instance;
  int i = 0;
  while (instance->steps[i].cached == NULL) {
    ++i;
  }
  return instance->steps[i].cached;
}

static void cycle(user *u, int passes) {
  for (int pass = 0; pass < passes; ++pass) {
    for (int64_t rows = 101; rows <= 101 + HR_CACHE_COPIES_MIN + 20; ++rows) {
      expect(u, rows);
    }
  }
}

/* Beyond their bound, keys of a long cycle share an instance, and a frequent one gets its own. */
HR_TEST(instances_of_their_own_are_bounded) {
  user u;
  open_user(&u);
  teach(&u);
  u.stream->cache.limits.copy_bytes = 1;
  cycle(&u, 4);
  int64_t hits = stats_of(&u).cache_hits;
  HR_ASSERT_EQ(u.stream->cache.copies, HR_CACHE_COPIES_MIN);
  for (int i = 0; i < 12; ++i) {
    expect(&u, 100);
  }
  HR_ASSERT_EQ(u.stream->cache.copies, HR_CACHE_COPIES_MIN);
  HR_ASSERT_EQ(stats_of(&u).cache_hits, hits + 4); /* its own from the eighth time on */
  close_user(&u);
}

/* The first ones keep their instances, which the others would evict just before their next use. */
HR_TEST(keys_of_a_long_cycle_do_not_evict_each_other) {
  user u;
  open_user(&u);
  teach(&u);
  u.stream->cache.limits.copy_bytes = 1;
  cycle(&u, 3);
  for (int pass = 0; pass < 20; ++pass) {
    int64_t hits = stats_of(&u).cache_hits;
    cycle(&u, 1);
    HR_ASSERT_EQ(stats_of(&u).cache_hits, hits + HR_CACHE_COPIES_MIN);
  }
  for (int i = 0; i < 3 * HR_CACHE_COPIES_MIN; ++i) { /* keys of which two alternate replace those of before */
    expect(&u, 101 + HR_CACHE_COPIES_MIN + i % 2);
  }
  int64_t hits = stats_of(&u).cache_hits;
  expect(&u, 101 + HR_CACHE_COPIES_MIN);
  expect(&u, 102 + HR_CACHE_COPIES_MIN);
  HR_ASSERT_EQ(stats_of(&u).cache_hits, hits + 2);
  HR_ASSERT_EQ(u.stream->cache.copies, HR_CACHE_COPIES_MIN);
  close_user(&u);
}

/* An instance that makes room leaves some bytes below the bound, but no room for all others. */
HR_TEST(keys_of_a_long_cycle_do_not_evict_each_other_at_a_bound_of_bytes) {
  user u;
  open_user(&u);
  teach(&u);
  cycle(&u, 4);
  hr_cache *cache = &u.stream->cache;
  HR_ASSERT(cache->copies >= HR_CACHE_COPIES_MIN + 18);
  cache->limits.copy_bytes = cache->copy_bytes - 12 * (cache->copy_bytes / cache->copies);
  for (int i = 0; i < 3; ++i) {
    expect(&u, 100);
  }
  HR_ASSERT(cache->copies <= HR_CACHE_COPIES_MIN + 11);
  for (int pass = 0; pass < 20; ++pass) {
    int64_t hits = stats_of(&u).cache_hits;
    cycle(&u, 1);
    HR_ASSERT(stats_of(&u).cache_hits >= hits + HR_CACHE_COPIES_MIN);
  }
  close_user(&u);
}

HR_TEST(kernels_of_new_dims_are_private_until_the_dims_stay) {
  user u;
  open_user(&u);
  teach(&u);
  expect(&u, 101);
  expect(&u, 102);
  HR_ASSERT(hr__kernel_is_private(first_kernel(&u)));
  expect(&u, 103);
  HR_ASSERT(hr__kernel_is_private(first_kernel(&u)));
  expect(&u, 103);
  HR_ASSERT(!hr__kernel_is_private(first_kernel(&u)));
  close_user(&u);
}

HR_TEST(an_instance_that_a_run_holds_is_left_alone) {
  user u;
  open_user(&u);
  teach(&u);
  expect(&u, 101);
  hr_instance *held = u.stream->cache.general.all[0].instance;
  hr_refcount_retain(&held->refcount);
  int64_t bytes = held->plan->bytes;
  expect(&u, 150);
  HR_ASSERT_EQ(u.stream->cache.general.count, 2);
  HR_ASSERT_EQ(held->plan->bytes, bytes);
  (void)hr_refcount_release(&held->refcount);
  expect(&u, 140);
  HR_ASSERT_EQ(u.stream->cache.general.count, 2);
  HR_ASSERT(held->plan->bytes != bytes);
  close_user(&u);
}

/* Fails each allocation of a run in turn, and returns their number. is_new: the shared instance is made anew. */
static int run_out(user *u, bool is_new) {
  float values[COLUMNS];
  int tries = 0;
  bool was_exhausted = true;
  for (int64_t n = 0; was_exhausted; ++n) {
    int64_t rows = 101 + n % 90;
    u->stream->cache.general.uses_at_trim = 0;
    if (is_new) {
      hr__general_instances_trim(&u->stream->cache.general);
    }
    hr__allocator_fail_after(n);
    hr_status status = run(u, rows, values);
    was_exhausted = hr__allocator_failures() > 0;
    hr__allocator_fail_after(-1);
    ++tries;
    if (status == HR_OK) {
      HR_ASSERT_EQ(values[0], (float)(3 * rows) / 4);
    }
    hr_status_ignore(status);
    expect(u, rows);
  }
  return tries - 1;
}

HR_TEST(memory_that_runs_out_costs_nothing_but_the_call) {
  user u;
  open_user(&u);
  teach(&u);
  int renumbered = run_out(&u, false), made = run_out(&u, true);
  HR_ASSERT(renumbered >= 1 && made > 5);
  close_user(&u);
}

/* The host's driver, without memory from some allocation on; negative: with all. */
static const hr_driver *host_driver;
static int64_t allocations_left = -1;

static hr_status allocate_some(void *impl, size_t bytes, void **out_address) {
  if (allocations_left == 0) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no memory on the device");
  }
  allocations_left -= allocations_left > 0;
  return host_driver->allocate(impl, bytes, out_address);
}

/* A run whose `n`th allocation on the device fails, and all later ones; false if there are not so many. */
static bool run_on_a_full_device(user *u, int64_t n) {
  float values[COLUMNS];
  hr_device_memory_trim(u->device);
  allocations_left = n;
  hr_status status = run(u, 150, values);
  allocations_left = -1;
  bool has_failed = status != HR_OK;
  HR_ASSERT_EQ(hr_status_code_of(status), has_failed ? HR_STATUS_RESOURCE_EXHAUSTED : HR_STATUS_OK);
  hr_status_ignore(status);
  expect(u, 101);
  expect(u, 150);
  return has_failed;
}

HR_TEST(a_smaller_run_follows_one_for_which_the_device_has_no_memory) {
  user u;
  open_user(&u);
  host_driver = u.device->driver;
  hr_driver driver = *host_driver;
  driver.allocate = allocate_some;
  u.device->driver = u.device->allocator.driver = &driver;
  teach(&u);
  int64_t n = 0;
  while (run_on_a_full_device(&u, n)) {
    ++n;
  }
  HR_ASSERT(n >= 2);
  u.device->driver = u.device->allocator.driver = host_driver;
  close_user(&u);
}

/* Of the process: the core's heap, and the C library's if that tells. */
static size_t heap_bytes(void) {
#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 33)
  struct mallinfo2 info = mallinfo2();
  return hr_heap_bytes() + info.uordblks + info.hblkhd;
#else
  return hr_heap_bytes();
#endif
}

static int64_t program_bytes_of(const user *u) {
  hr_memory_stats stats;
  hr_device_memory_stats(u->device, &stats);
  return stats.program_bytes;
}

HR_TEST(programs_are_counted_and_freed) {
  user u;
  open_user(&u);
  HR_ASSERT_EQ(program_bytes_of(&u), 0);
  teach(&u);
  int64_t compiled = program_bytes_of(&u), entries = stats_of(&u).cache_entries;
  HR_ASSERT(compiled > entries * 1024 && compiled < entries * 65536);
  for (int64_t rows = 101; rows < 160; ++rows) {
    expect(&u, rows);
  }
  HR_ASSERT_NEAR(program_bytes_of(&u), compiled, 1024); /* one for all of them */
  hr_stream_trim(u.stream);
  HR_ASSERT_EQ(program_bytes_of(&u), 0);
  HR_ASSERT_EQ(stats_of(&u).cache_entries, 0);
  for (int i = 0; i < 3; ++i) {
    expect(&u, LENGTH_MAX);
  }
  int64_t compiles = stats_of(&u).compiles;
  for (int i = 0; i < 3; ++i) { /* what a loop uses stays */
    hr_stream_trim(u.stream);
    HR_ASSERT(program_bytes_of(&u) > 1024);
    expect(&u, LENGTH_MAX);
  }
  HR_ASSERT_EQ(stats_of(&u).compiles, compiles);
  hr_stream_trim(u.stream);
  hr_stream_trim(u.stream);
  HR_ASSERT_EQ(program_bytes_of(&u), 0);
  close_user(&u);
}

/* The general plan's instance has kernels only until its next key. */
HR_TEST(kernels_count_as_those_of_the_programs_that_keep_them) {
  user u;
  open_user(&u);
  teach(&u);
  for (int i = 0; i < 3; ++i) {
    expect(&u, 120);
  }
  const hr_instance *own = u.stream->cache.newest;
  HR_ASSERT(own->plan->is_general && own->is_holder);
  size_t kernels = 0, before[8];
  for (int i = 0; i < own->step_count; ++i) {
    before[i] = own->steps[i].cached != NULL ? hr__kernel_footprint(own->steps[i].cached) : 0;
    kernels += before[i];
  }
  HR_ASSERT(kernels > 0 && own->footprint > own->plan->footprint + kernels);
  expect(&u, 131);
  for (int i = 0; i < own->step_count; ++i) {
    HR_ASSERT(own->steps[i].cached == NULL || hr__kernel_footprint(own->steps[i].cached) == before[i]);
  }
  close_user(&u);
}

/* ---- many structures ---- */

enum { CHAIN = 11, STRUCTURES = 1000, STRUCTURE_SIZES = 6 };

static hr_view rows_of(hr_buffer *buffer, int64_t dims[2], const int64_t strides[2]) {
  return (hr_view){.buffer = buffer, .dtype = HR_DTYPE_F32, .rank = 2, .dims = dims, .strides = strides};
}

/* Each bit of the number is an operation: twice the value, or one more. */
static void expect_chain(user *u, int structure, int64_t rows) {
  int64_t dims[2] = {rows, COLUMNS}, strides[2] = {COLUMNS, 1};
  float values[60 * COLUMNS], expected = 1;
  hr_scalar numbers[2] = {hr_scalar_f64(1), hr_scalar_f64(2)};
  hr_buffer *x, *y;
  for (int64_t i = 0; i < rows * COLUMNS; ++i) {
    values[i] = 1;
  }
  HR_ASSERT_OK(hr_buffer_create(u->device, (size_t)rows * COLUMNS * sizeof(float), &x));
  hr_view in = rows_of(x, dims, strides);
  HR_ASSERT_OK(hr_stream_write(u->stream, &in, values));
  for (int k = 0; k < CHAIN; ++k) {
    int doubles = structure >> k & 1;
    HR_ASSERT_OK(hr_buffer_create(u->device, (size_t)rows * COLUMNS * sizeof(float), &y));
    hr_view out = rows_of(y, dims, strides);
    hr_view operands[2] = {in, {.scalar = &numbers[doubles], .dtype = HR_DTYPE_F64}};
    HR_ASSERT_OK(hr_stream_record(u->stream, doubles ? HR_OP_MUL : HR_OP_ADD, NULL, 2, operands, 1, &out));
    hr_buffer_release(x);
    x = y, in = out;
    expected = doubles ? 2 * expected : expected + 1;
  }
  HR_ASSERT_OK(hr_stream_read(u->stream, &in, values));
  hr_buffer_release(x);
  for (int64_t i = 0; i < rows * COLUMNS; ++i) {
    HR_ASSERT_EQ(values[i], expected);
  }
}

/* More structures than there is room for, in turn: some are forgotten, and host memory stays. */
HR_TEST(a_thousand_structures_at_once_are_bounded) {
  user u;
  open_user(&u);
  size_t early = 0;
  int64_t program_bytes = 0;
  for (int structure = 0; structure < STRUCTURES; ++structure) {
    for (int64_t rows = 50; rows > 50 - STRUCTURE_SIZES; --rows) {
      expect_chain(&u, structure, rows);
    }
    if (structure == STRUCTURES / 2) {
      early = heap_bytes(), program_bytes = program_bytes_of(&u);
    }
  }
  HR_ASSERT(u.stream->cache.general.count <= HR_GENERAL_INSTANCES_MAX);
  HR_ASSERT(program_bytes_of(&u) <= program_bytes + program_bytes / 10);
  HR_ASSERT(heap_bytes() <= early + early / 10);
  int64_t general = stats_of(&u).general_plans;
  HR_ASSERT(general >= STRUCTURES);
  for (int structure = 0; structure < STRUCTURES; structure += 37) { /* forgotten ones are compiled again */
    expect_chain(&u, structure, 33);
  }
  close_user(&u);
}

/* The gradient of a mean squared error, 2 (x - target) / n for x = 3 and target = 1. */
static void expect_mean_gradient(user *u, int64_t rows, int64_t columns) {
  int64_t dims[2] = {rows, columns}, strides[2] = {columns, 1}, mean[1] = {1};
  float x[LENGTH_MAX * COLUMNS], target[LENGTH_MAX * COLUMNS], found[LENGTH_MAX * COLUMNS];
  hr_scalar one = hr_scalar_f64(1);
  hr_attrs attrs = {.ints = mean, .int_count = 1};
  hr_view views[3];
  for (int i = 0; i < 3; ++i) {
    hr_buffer *buffer;
    HR_ASSERT_OK(hr_buffer_create(u->device, (size_t)(rows * columns) * sizeof(float), &buffer));
    views[i] = rows_of(buffer, dims, strides);
  }
  for (int64_t i = 0; i < rows * columns; ++i) {
    x[i] = 3, target[i] = 1;
  }
  HR_ASSERT_OK(hr_stream_write(u->stream, &views[0], x));
  HR_ASSERT_OK(hr_stream_write(u->stream, &views[1], target));
  hr_view inputs[3] = {{.scalar = &one, .dtype = HR_DTYPE_F64}, views[0], views[1]};
  HR_ASSERT_OK(hr_stream_record(u->stream, HR_OP_MSE_LOSS_BACKWARD, &attrs, 3, inputs, 1, &views[2]));
  HR_ASSERT_OK(hr_stream_read(u->stream, &views[2], found));
  for (int64_t i = 0; i < rows * columns; ++i) {
    HR_ASSERT_EQ(found[i], 2 * (float)(2.0 / (double)(rows * columns)));
  }
  for (int i = 0; i < 3; ++i) {
    hr_buffer_release(views[i].buffer);
  }
}

HR_TEST(factors_by_counts_are_numbers) {
  user u;
  open_user(&u);
  for (int64_t rows = LENGTH_MAX; rows > 0; rows -= 3) {
    expect_mean_gradient(&u, rows, COLUMNS);
  }
  HR_ASSERT(stats_of(&u).general_plans > 30);
  close_user(&u);
}

/* The factor 2 / n of a mean over two elements is whole. */
HR_TEST(a_factor_that_is_whole_once_stays_a_factor) {
  static const int64_t LENGTHS[] = {16, 14, 12, 10, 8, 6, 4, 20, 2, 6, 2, 18};
  user u;
  open_user(&u);
  for (size_t i = 0; i < sizeof LENGTHS / sizeof *LENGTHS; ++i) {
    expect_mean_gradient(&u, LENGTHS[i], 1);
  }
  HR_ASSERT(stats_of(&u).general_plans > 3);
  close_user(&u);
}

/* A buffer that is written once and read by many records in views of two kinds: x + 1 + 2 + .. */
static void expect_many_reads(user *u, int64_t rows) {
  enum { READS = 50 };
  int64_t dims[2] = {rows, COLUMNS}, strides[2] = {COLUMNS, 1}, turned_dims[2] = {COLUMNS, rows};
  int64_t turned[2] = {1, COLUMNS};
  float values[LENGTH_MAX * COLUMNS] = {0};
  hr_buffer *x, *table, *sums[2];
  size_t bytes = (size_t)rows * COLUMNS * sizeof(float);
  hr_scalar two = hr_scalar_f64(2);
  HR_ASSERT_OK(hr_buffer_create(u->device, bytes, &x));
  HR_ASSERT_OK(hr_buffer_create(u->device, bytes, &table));
  for (int64_t i = 0; i < rows * COLUMNS; ++i) {
    values[i] = (float)(i % 7);
  }
  hr_view in = rows_of(x, dims, strides), out = rows_of(table, dims, strides);
  HR_ASSERT_OK(hr_stream_write(u->stream, &in, values));
  hr_view operands[2] = {in, {.scalar = &two, .dtype = HR_DTYPE_F64}};
  HR_ASSERT_OK(hr_stream_record(u->stream, HR_OP_MUL, NULL, 2, operands, 1, &out));
  for (int i = 0; i < 2; ++i) {
    HR_ASSERT_OK(hr_buffer_create(u->device, bytes, &sums[i]));
  }
  for (int k = 0; k < READS; ++k) { /* rows and columns in turn */
    int way = k % 2;
    hr_view read = rows_of(table, way ? turned_dims : dims, way ? turned : strides);
    hr_view sum = rows_of(sums[way], way ? turned_dims : dims, way ? turned : strides), both[2] = {sum, read};
    hr_op op = k < 2 ? HR_OP_COPY : HR_OP_ADD;
    HR_ASSERT_OK(hr_stream_record(u->stream, op, NULL, k < 2 ? 1 : 2, k < 2 ? &read : both, 1, &sum));
  }
  hr_view all = rows_of(sums[1], dims, strides);
  HR_ASSERT_OK(hr_stream_read(u->stream, &all, values));
  for (int64_t i = 0; i < rows * COLUMNS; ++i) {
    HR_ASSERT_EQ(values[i], (float)(i % 7 * 2 * (READS / 2)));
  }
  hr_buffer_release(x), hr_buffer_release(table), hr_buffer_release(sums[0]), hr_buffer_release(sums[1]);
}

HR_TEST(a_buffer_that_many_records_read_has_a_general_plan) {
  user u;
  open_user(&u);
  for (int64_t rows = LENGTH_MAX; rows > LENGTH_MAX - 20; --rows) {
    expect_many_reads(&u, rows);
  }
  HR_ASSERT(stats_of(&u).general_plans > 10);
  close_user(&u);
}

HR_TEST(guards_that_refuse_are_counted) {
  user u;
  open_user(&u);
  teach(&u);
  HR_ASSERT_EQ(stats_of(&u).guard_failures, 0);
  expect(&u, 33); /* below half of the smallest */
  HR_ASSERT_EQ(stats_of(&u).guard_failures, 1);
  close_user(&u);
}

/* The order of at most 64 elements (core/ir/kernel.h): up to 32 one after the other, more in lanes. */
static float sum_in_order(const float *x, int64_t count) {
  float lanes[HR_REDUCE_LANES] = {0}, sum = 0;
  HR_ASSERT(count <= HR_REDUCE_LANES);
  for (int64_t i = 0; i < count; ++i) {
    lanes[i] += x[i];
    sum += x[i];
  }
  for (int half = HR_REDUCE_LANES / 2; half > 0; half /= 2) {
    for (int l = 0; l < half; ++l) {
      lanes[l] += lanes[l + half];
    }
  }
  return count <= HR_REDUCE_SEQUENTIAL_MAX ? sum : lanes[0];
}

/* A sum over the last dim, of twice numbers that round. */
static void expect_sum(user *u, int64_t length) {
  int64_t dims[2] = {3, length}, strides[2] = {length, 1}, kept[2] = {3, 1}, mask[1] = {2};
  float x[3 * COLUMNS * COLUMNS], sums[3];
  hr_scalar two = hr_scalar_f64(2);
  hr_attrs attrs = {.ints = mask, .int_count = 1};
  hr_view in = {.dtype = HR_DTYPE_F32, .rank = 2, .dims = dims, .strides = strides}, between = in, out = in;
  out.dims = kept;
  HR_ASSERT(length <= COLUMNS * COLUMNS);
  for (int64_t i = 0; i < 3 * length; ++i) {
    x[i] = 1 / (float)(i + 1);
  }
  HR_ASSERT_OK(hr_buffer_create(u->device, 3 * (size_t)length * sizeof *x, &in.buffer));
  HR_ASSERT_OK(hr_buffer_create(u->device, 3 * (size_t)length * sizeof *x, &between.buffer));
  HR_ASSERT_OK(hr_buffer_create(u->device, 3 * (size_t)length * sizeof *x, &out.buffer));
  HR_ASSERT_OK(hr_stream_write(u->stream, &in, x));
  hr_view factors[2] = {in, {.scalar = &two, .dtype = two.dtype}};
  HR_ASSERT_OK(hr_stream_record(u->stream, HR_OP_MUL, NULL, 2, factors, 1, &between));
  HR_ASSERT_OK(hr_stream_record(u->stream, HR_OP_SUM, &attrs, 1, &between, 1, &out));
  hr_buffer_release(between.buffer);
  out.strides = (int64_t[]){length, 1};
  HR_ASSERT_OK(hr_stream_read(u->stream, &out, sums));
  for (int i = 0; i < 3; ++i) {
    HR_ASSERT_EQ(sums[i], 2 * sum_in_order(x + i * length, length));
  }
  hr_buffer_release(in.buffer);
  hr_buffer_release(out.buffer);
}

HR_TEST(a_plan_serves_dims_whose_sums_have_another_order) {
  user u;
  open_user(&u);
  for (int64_t length = 24; length < 29; ++length) {
    expect_sum(&u, length);
  }
  hr_stats before = stats_of(&u);
  for (int64_t length = 29; length < 48; ++length) {
    expect_sum(&u, length);
    expect_sum(&u, length - 12);
  }
  HR_ASSERT_EQ(stats_of(&u).compiles - before.compiles, stats_of(&u).general_plans - before.general_plans);
  HR_ASSERT_EQ(stats_of(&u).guard_failures, before.guard_failures);
  close_user(&u);
}

/* True if a program for that many rows is compiled. */
static bool compiles(user *u, int64_t rows) {
  hr_stats before = stats_of(u);
  expect(u, rows);
  return stats_of(u).compiles - before.compiles > stats_of(u).general_plans - before.general_plans;
}

HR_TEST(a_plan_that_was_right_out_of_reach_reaches_further) {
  user u;
  open_user(&u);
  for (int64_t rows = 9; rows < 13; ++rows) {
    expect(&u, rows);
  }
  HR_ASSERT(!compiles(&u, 22) && compiles(&u, 30));    /* the range ends at twice 12 */
  HR_ASSERT(!compiles(&u, 120) && compiles(&u, 122));  /* .. at four times 30, */
  HR_ASSERT(!compiles(&u, 200) && !compiles(&u, 123)); /* .. at eight times 122 */
  close_user(&u);
}

enum { SHIFT = 2000, SHIFTED_MAX = 5 * SHIFT, SHIFTED = 3 };

/* 1, 2, 3, .. */
static hr_view make_shiftable(user *u) {
  static float values[SHIFTED_MAX];
  static int64_t all_dims[1] = {SHIFTED_MAX}, strides[1] = {1};
  hr_view all = {.dtype = HR_DTYPE_F32, .rank = 1, .dims = all_dims, .strides = strides};
  for (int i = 0; i < SHIFTED_MAX; ++i) {
    values[i] = (float)(i + 1);
  }
  HR_ASSERT_OK(hr_buffer_create(u->device, sizeof values, &all.buffer));
  HR_ASSERT_OK(hr_stream_write(u->stream, &all, values));
  return all;
}

/* x[shift] .. x[shift + n - 1] become twice x[0] .. x[n - 1]. */
static void record_shifted(user *u, const hr_view *x, int64_t n, int64_t shift) {
  int64_t dims[1] = {n};
  hr_scalar two = hr_scalar_f64(2);
  hr_view from = *x, to = *x;
  from.dims = to.dims = dims;
  to.offset = shift;
  hr_view factors[2] = {from, {.scalar = &two, .dtype = two.dtype}};
  HR_ASSERT_OK(hr_stream_record(u->stream, HR_OP_MUL, NULL, 2, factors, 1, &to));
}

/* The views of the last two buffers are the same, so only one's overlaps are compared. */
static void expect_shifted(user *u, int64_t n) {
  static const int64_t shifts[SHIFTED] = {2 * SHIFT, SHIFT, SHIFT};
  static float values[SHIFTED_MAX];
  hr_view all[SHIFTED];
  for (int k = 0; k < SHIFTED; ++k) {
    all[k] = make_shiftable(u);
  }
  for (int k = 0; k < SHIFTED; ++k) {
    record_shifted(u, &all[k], n, shifts[k]);
  }
  for (int k = 0; k < SHIFTED; ++k) {
    HR_ASSERT_OK(hr_stream_read(u->stream, &all[k], values));
    hr_buffer_release(all[k].buffer);
    for (int i = 0; i < SHIFTED_MAX; ++i) {
      bool is_shifted = i >= shifts[k] && i < shifts[k] + n;
      HR_ASSERT_EQ(values[i], (float)(is_shifted ? 2 * (i - shifts[k] + 1) : i + 1));
    }
  }
}

HR_TEST(views_that_overlap_with_new_dims_are_noticed) {
  user u;
  open_user(&u);
  for (int64_t n = SHIFT - 1; n > SHIFT - 10; --n) {
    expect_shifted(&u, n);
  }
  int64_t general = stats_of(&u).general_plans;
  HR_ASSERT(general > 0);
  for (int64_t n = SHIFT + 10; n > SHIFT; --n) { /* read and written views overlap: another structure */
    expect_shifted(&u, n);
  }
  for (int64_t n = SHIFT - 10; n > SHIFT - 20; --n) {
    expect_shifted(&u, n);
    expect_shifted(&u, SHIFT + (SHIFT - n) * 10);
  }
  HR_ASSERT(stats_of(&u).general_plans >= general + 24);
  close_user(&u);
}

enum { TIMES = 60 };

/* One buffer is read and written many times, in three places. */
static void expect_shifted_often(user *u, int64_t n) {
  static float values[SHIFTED_MAX];
  hr_view x = make_shiftable(u);
  for (int k = 0; k < TIMES; ++k) {
    record_shifted(u, &x, n, k % 2 == 0 ? SHIFT : 2 * SHIFT);
  }
  HR_ASSERT_OK(hr_stream_read(u->stream, &x, values));
  hr_buffer_release(x.buffer);
  for (int i = 0; i < n; ++i) {
    HR_ASSERT_EQ(values[i], (float)(i + 1));
    HR_ASSERT(values[SHIFT + i] == 2 * values[i] && values[2 * SHIFT + i] == 2 * values[i]);
  }
}

HR_TEST(a_buffer_that_is_used_often_has_a_general_plan) {
  user u;
  open_user(&u);
  for (int64_t n = SHIFT - 1; n > SHIFT - 10; --n) {
    expect_shifted_often(&u, n);
  }
  int64_t general = stats_of(&u).general_plans;
  HR_ASSERT(general >= 5);
  close_user(&u);
}

enum { PLACES = 40, PLACE = 100 };

/* The first n numbers are read before PLACES places behind them, of which the last is then written. */
static void expect_places(user *u, int64_t n, int64_t written) {
  static float values[SHIFTED_MAX], sums[SHIFTED_MAX];
  hr_view x = make_shiftable(u), y = make_shiftable(u);
  hr_scalar two = hr_scalar_f64(2);
  for (int k = 0; k <= PLACES; ++k) {
    int64_t dims[1] = {k == 0 ? n : PLACE};
    hr_view from = x, to = y;
    from.dims = to.dims = dims;
    from.offset = to.offset = k == 0 ? 0 : SHIFT + (k - 1) * PLACE / 2;
    hr_view factors[2] = {from, {.scalar = &two, .dtype = two.dtype}};
    HR_ASSERT_OK(hr_stream_record(u->stream, HR_OP_MUL, NULL, 2, factors, 1, &to));
  }
  record_shifted(u, &x, PLACE, written);
  HR_ASSERT_OK(hr_stream_read(u->stream, &y, sums));
  HR_ASSERT_OK(hr_stream_read(u->stream, &x, values));
  hr_buffer_release(x.buffer);
  hr_buffer_release(y.buffer);
  for (int i = 0; i < n; ++i) {
    HR_ASSERT_EQ(sums[i], (float)(2 * (i + 1)));
  }
  for (int i = 0; i < PLACE; ++i) {
    HR_ASSERT_EQ(values[written + i], (float)(2 * (i + 1)));
  }
}

HR_TEST(an_early_view_that_overlaps_with_new_dims_is_noticed) {
  user u;
  open_user(&u);
  const int64_t written = SHIFT - 2 * PLACE;
  for (int64_t n = written; n > written - 10; --n) {
    expect_places(&u, n, written);
  }
  int64_t general = stats_of(&u).general_plans;
  for (int64_t n = written + 1; n < written + 10; ++n) { /* what is written was read */
    expect_places(&u, n, written);
  }
  HR_ASSERT_EQ(stats_of(&u).general_plans, general);
  close_user(&u);
}

/* ---- library calls ---- */

enum { DEPTH_MAX = 400, PRODUCTS = 2 };

static hr_view make_view(user *u, int64_t rows, int64_t columns, int64_t dims[2], int64_t strides[2]) {
  dims[0] = rows, dims[1] = columns, strides[0] = columns, strides[1] = 1;
  hr_view view = {.dtype = HR_DTYPE_F32, .rank = 2, .dims = dims, .strides = strides};
  HR_ASSERT_OK(hr_buffer_create(u->device, (size_t)(rows * columns) * sizeof(float), &view.buffer));
  return view;
}

static hr_view make_input(user *u, int64_t rows, int64_t columns, int seed, int64_t dims[2], int64_t strides[2]) {
  static float values[DEPTH_MAX * DEPTH_MAX];
  hr_view view = make_view(u, rows, columns, dims, strides);
  for (int64_t i = 0; i < rows * columns; ++i) {
    values[i] = (float)((i + seed) % 7 - 3);
  }
  HR_ASSERT_OK(hr_stream_write(u->stream, &view, values));
  return view;
}

/* Products of two rows of this depth, which the program makes, with one matrix: small whole numbers, exact in any
 * order. The two share a call. */
static void expect_products(user *u, int64_t depth, int64_t columns) {
  int64_t dims[3 * PRODUCTS + 1][2], strides[3 * PRODUCTS + 1][2];
  hr_view w = make_input(u, depth, columns, 5, dims[0], strides[0]), y[PRODUCTS];
  for (int i = 0; i < PRODUCTS; ++i) {
    int64_t(*own_dims)[2] = dims + 1 + 3 * i, (*own_strides)[2] = strides + 1 + 3 * i;
    hr_view x = make_input(u, 1, depth, i, own_dims[0], own_strides[0]);
    hr_view row = make_view(u, 1, depth, own_dims[1], own_strides[1]), factors[2] = {row, w};
    y[i] = make_view(u, 1, columns, own_dims[2], own_strides[2]);
    HR_ASSERT_OK(hr_stream_record(u->stream, HR_OP_NEG, NULL, 1, &x, 1, &row));
    HR_ASSERT_OK(hr_stream_record(u->stream, HR_OP_MATMUL, NULL, 2, factors, 1, &y[i]));
    hr_buffer_release(x.buffer);
    hr_buffer_release(row.buffer);
  }
  for (int i = 0; i < PRODUCTS; ++i) {
    float values[DEPTH_MAX];
    HR_ASSERT_OK(hr_stream_read(u->stream, &y[i], values));
    for (int64_t c = 0; c < columns; ++c) {
      int64_t sum = 0;
      for (int64_t k = 0; k < depth; ++k) {
        sum -= ((k + i) % 7 - 3) * ((k * columns + c + 5) % 7 - 3);
      }
      HR_ASSERT_EQ(values[c], (float)sum);
    }
  }
  hr_buffer_release(w.buffer);
  for (int i = 0; i < PRODUCTS; ++i) {
    hr_buffer_release(y[i].buffer);
  }
}

static const hr_exec_step *library_step(const hr_instance *instance, int number) {
  const hr_exec_step *step = instance->steps;
  while (step->kind != HR_STEP_LIBRARY || number-- > 0) {
    HR_ASSERT(++step < instance->steps + instance->step_count);
  }
  return step;
}

HR_TEST(prepared_products_get_new_numbers_in_place) {
  user u;
  open_user(&u);
  for (int64_t depth = DEPTH_MAX - 1; depth > DEPTH_MAX - 9; --depth) {
    expect_products(&u, depth, 390);
  }
  HR_ASSERT_EQ(u.stream->cache.general.count, 1);
  const hr_instance *instance = u.stream->cache.general.all[0].instance;
  const hr_exec_step *first = library_step(instance, 0), *second = library_step(instance, 1);
  HR_ASSERT_EQ(hr__step_like(second), first);
  const hr_step_call *own = first->call, *shared = second->call;
  const hr_prepared *prepared = own->ready.prepared;
  for (int64_t depth = 301; depth > 280; --depth) {
    expect_products(&u, depth, 390);
    HR_ASSERT(own->ready.prepared == prepared && shared->ready.prepared == prepared);
    HR_ASSERT(own->is_renumbered && own->tuning == NULL && shared->tuning == NULL);
    if (depth % 3 == 0) { /* may be tuned now */
      expect_products(&u, depth, 390);
      HR_ASSERT(!own->is_renumbered && shared->tuning == own->tuning);
    }
  }
  close_user(&u);
}

/* Temporaries are placed again if one needs more room: the places are those of the largest depth so far. */
static void expect_apart(const hr_schedule *schedule, int64_t depth, int64_t largest) {
  int count = 0;
  for (int i = 0; i < schedule->program.buffer_count; ++i) {
    const hr_place *a = &schedule->places[i];
    if (a->kind != HR_PLACE_ARENA) {
      continue;
    }
    ++count;
    HR_ASSERT_EQ(schedule->program.buffers[i].bytes, (size_t)depth * sizeof(float));
    HR_ASSERT(a->bytes >= schedule->program.buffers[i].bytes);
    HR_ASSERT(a->offset + a->bytes <= schedule->arena_bytes);
    for (int k = 0; k < i; ++k) {
      const hr_place *b = &schedule->places[k];
      bool is_beside = b->kind == HR_PLACE_ARENA && a->first <= b->last && b->first <= a->last;
      HR_ASSERT(!is_beside || a->offset + a->bytes <= b->offset || b->offset + b->bytes <= a->offset);
    }
  }
  HR_ASSERT_EQ(count, PRODUCTS);
  HR_ASSERT_EQ(schedule->arena_bytes, PRODUCTS * hr_align_up((size_t)largest * sizeof(float), HR_PLACE_ALIGNMENT));
}

/* -x of so many rows, which is one loop over all elements. */
static void expect_negated(user *u, int64_t rows) {
  enum { ROWS_MAX = 8 };
  float values[ROWS_MAX * COLUMNS], negated[ROWS_MAX * COLUMNS] = {0};
  int64_t dims[2] = {rows, COLUMNS}, strides[2] = {COLUMNS, 1};
  hr_view in = {.dtype = HR_DTYPE_F32, .rank = 2, .dims = dims, .strides = strides}, out = in;
  for (int i = 0; i < ROWS_MAX * COLUMNS; ++i) {
    values[i] = (float)i;
  }
  HR_ASSERT_OK(hr_buffer_create(u->device, (size_t)rows * COLUMNS * sizeof(float), &in.buffer));
  HR_ASSERT_OK(hr_buffer_create(u->device, (size_t)rows * COLUMNS * sizeof(float), &out.buffer));
  HR_ASSERT_OK(hr_stream_write(u->stream, &in, values));
  HR_ASSERT_OK(hr_stream_record(u->stream, HR_OP_NEG, NULL, 1, &in, 1, &out));
  HR_ASSERT_OK(hr_stream_read(u->stream, &out, negated));
  for (int64_t i = 0; i < rows * COLUMNS; ++i) {
    HR_ASSERT_EQ(negated[i], -values[i]);
  }
  hr_buffer_release(in.buffer);
  hr_buffer_release(out.buffer);
}

/* Its dims are in range, but of another class. */
HR_TEST(one_row_is_another_structure_than_the_one_before) {
  user u;
  open_user(&u);
  for (int64_t rows = 2; rows <= 4; ++rows) {
    expect_negated(&u, rows);
  }
  hr_stats before = stats_of(&u);
  expect_negated(&u, 5);
  HR_ASSERT_EQ(stats_of(&u).general_plans, before.general_plans + 1);
  expect_negated(&u, 1);
  HR_ASSERT_EQ(stats_of(&u).general_plans, before.general_plans + 1);
  close_user(&u);
}

HR_TEST(temporaries_of_new_dims_keep_apart) {
  enum { TAUGHT = 300 };
  int threads = hr_thread_count();
  hr_thread_count_set(2); /* so that both exist at a time: one thread hoists nothing */
  user u;
  open_user(&u);
  int64_t largest = 0;
  for (int64_t depth = TAUGHT; depth > TAUGHT - 9; --depth) {
    expect_products(&u, depth, 390);
    bool is_first = largest == 0 && u.stream->cache.general.count > 0;
    largest = is_first ? depth : largest;
  }
  for (int64_t n = 0; n < 60; ++n) {
    int64_t depth = n % 3 == 2 ? 381 - n : 301 + n;
    expect_products(&u, depth, 390);
    HR_ASSERT_EQ(u.stream->cache.general.count, 1);
    largest = depth > largest ? depth : largest;
    expect_apart(&u.stream->cache.general.all[0].instance->plan->schedule, depth, largest);
  }
  close_user(&u);
  hr_thread_count_set(threads);
}
