/* Tests the promises of src/runtime/device.h on every device of every driver in the table.
 *
 * A test opens its own instance of each device and never checks the driver's name. Properties (is_host, has_contents)
 * and missing optional members describe the device's limits. Devices that compute nothing read zeros; everything else
 * holds for them, too. `make conformance` runs this file alone.
 */
#include "hr_test.h"

#include <stdatomic.h>

#include "base/thread.h"
#include "headrace/stream.h"
#include "runtime/device.h"

typedef struct subject {
  const hr_driver *driver;
  void *impl;
  hr_device_properties properties;
} subject;

static subject open_subject(const hr_driver *driver, int ordinal) {
  subject s = {.driver = driver};
  HR_ASSERT_OK(driver->open(ordinal, &s.impl));
  driver->properties(s.impl, &s.properties);
  return s;
}

static void for_each_device(void (*check)(const subject *s)) {
  for (int i = 0; hr_drivers[i] != NULL; ++i) {
    for (int ordinal = 0; ordinal < hr_drivers[i]->count(); ++ordinal) {
      fprintf(stderr, "  %s:%d\n", hr_drivers[i]->name, ordinal);
      subject s = open_subject(hr_drivers[i], ordinal);
      check(&s);
      s.driver->close(s.impl);
    }
  }
}

static void *allocate(const subject *s, size_t bytes) {
  void *address = NULL;
  HR_ASSERT_OK(s->driver->allocate(s->impl, bytes, &address));
  HR_ASSERT_NOT_NULL(address);
  return address;
}

static void flush(const subject *s) {
  if (s->driver->submit != NULL) {
    HR_ASSERT_OK(s->driver->submit(s->impl));
  }
  if (s->driver->flush != NULL) {
    HR_ASSERT_OK(s->driver->flush(s->impl));
  }
}

/* The result of reading `value`. */
static unsigned char seen(const subject *s, unsigned char value) {
  return s->properties.has_contents ? value : 0;
}

/* ---- the table ---- */

static void check_table(const subject *s) {
  const hr_driver *d = s->driver;
  HR_ASSERT(d->name != NULL && d->name[0] != '\0' && strchr(d->name, ':') == NULL);
  HR_ASSERT(d->count != NULL && d->open != NULL && d->close != NULL && d->properties != NULL && d->memory_info != NULL);
  HR_ASSERT(d->allocate != NULL && d->free != NULL && d->copy_in != NULL && d->copy_out != NULL);
  HR_ASSERT(d->copy_within != NULL && d->fill != NULL && d->launch != NULL);
  int events = (d->event_create != NULL) + (d->event_destroy != NULL) + (d->event_record != NULL) +
               (d->event_wait != NULL) + (d->event_elapsed != NULL);
  HR_ASSERT(events == 0 || events == 5);
  int graphs = (d->capture_begin != NULL) + (d->capture_end != NULL) + (d->graph_update != NULL) +
               (d->graph_launch != NULL) + (d->graph_destroy != NULL);
  HR_ASSERT(graphs == 0 || graphs == 5);
  int compiler = (d->compile != NULL) + (d->load != NULL) + (d->unload != NULL);
  HR_ASSERT_EQ(compiler, d->dialect == HR_DIALECT_HOST ? 0 : 3);
  HR_ASSERT(s->properties.description[0] != '\0');
  HR_ASSERT(memchr(s->properties.description, '\0', sizeof s->properties.description) != NULL);
  HR_ASSERT(s->properties.workers >= 1);
}

HR_TEST(the_table_is_complete) {
  for_each_device(check_table);
}

static void check_clock(const subject *s) {
  for (int64_t i = 0, before = INT64_MIN; i < 1000 && s->driver->timestamp != NULL; ++i) {
    int64_t now = s->driver->timestamp(s->impl);
    HR_ASSERT(now >= before);
    before = now;
  }
}

HR_TEST(the_clock_never_goes_back) {
  for_each_device(check_clock);
}

HR_TEST(names_find_their_devices_and_unknown_ones_say_what_there_is) {
  for (int i = 0; hr_drivers[i] != NULL; ++i) {
    char name[96];
    hr_device *device;
    int count = hr_drivers[i]->count();
    HR_ASSERT(count >= 0);
    snprintf(name, sizeof name, "%s:%d", hr_drivers[i]->name, count);
    HR_ASSERT_STATUS(hr_device_open(name, &device), HR_STATUS_NOT_FOUND);
    snprintf(name, sizeof name, "%s:", hr_drivers[i]->name);
    HR_ASSERT_STATUS(hr_device_open(name, &device), HR_STATUS_INVALID_ARGUMENT);
    snprintf(name, sizeof name, "no-%s", hr_drivers[i]->name);
    HR_ASSERT_ERROR(hr_device_open(name, &device), HR_STATUS_NOT_FOUND, hr_drivers[i]->name);
    if (count > 0) {
      HR_ASSERT_OK(hr_device_open(hr_drivers[i]->name, &device));
      HR_ASSERT_STR_EQ(hr_device_name(device), hr_drivers[i]->name);
      hr_device_release(device);
    }
  }
}

/* ---- memory ---- */

static void check_allocations(const subject *s) {
  static const size_t sizes[] = {1, 63, 64, 65, 4095, 4096, 100000, (2 << 20) - 1, 2 << 20, (2 << 20) + 1, 5 << 20};
  enum { COUNT = sizeof sizes / sizeof *sizes };
  void *blocks[COUNT];
  for (int i = 0; i < COUNT; ++i) {
    blocks[i] = allocate(s, sizes[i]);
    HR_ASSERT_EQ((uintptr_t)blocks[i] % 64, 0);
    for (int j = 0; j < i; ++j) {
      char *a = blocks[i], *b = blocks[j];
      HR_ASSERT(a + sizes[i] <= b || b + sizes[j] <= a);
    }
  }
  for (int i = 0; i < COUNT; ++i) { /* each block is its own, to the last byte */
    unsigned char pattern = (unsigned char)(i + 1);
    HR_ASSERT_OK(s->driver->fill(s->impl, blocks[i], &pattern, 1, sizes[i]));
  }
  flush(s);
  for (int i = 0; i < COUNT; ++i) {
    unsigned char first = 99, last = 99;
    HR_ASSERT_OK(s->driver->copy_out(s->impl, &first, blocks[i], 1));
    HR_ASSERT_OK(s->driver->copy_out(s->impl, &last, (char *)blocks[i] + sizes[i] - 1, 1));
    HR_ASSERT_EQ(first, seen(s, (unsigned char)(i + 1)));
    HR_ASSERT_EQ(last, seen(s, (unsigned char)(i + 1)));
  }
  for (int i = 0; i < COUNT; ++i) {
    s->driver->free(s->impl, blocks[i], sizes[i]);
  }
}

HR_TEST(blocks_are_aligned_and_apart) {
  for_each_device(check_allocations);
}

static void check_limits(const subject *s) {
  int64_t free_bytes = -1, total_bytes = -1;
  s->driver->memory_info(s->impl, &free_bytes, &total_bytes);
  HR_ASSERT(total_bytes > 0 && free_bytes >= 0 && free_bytes <= total_bytes);
  static const size_t sizes[] = {(size_t)1 << 60, (size_t)1 << 62, SIZE_MAX / 2, SIZE_MAX - 4096, SIZE_MAX};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; ++i) {
    void *address = NULL;
    HR_ASSERT_STATUS(s->driver->allocate(s->impl, sizes[i], &address), HR_STATUS_RESOURCE_EXHAUSTED);
    HR_ASSERT_NULL(address);
  }
  s->driver->free(s->impl, allocate(s, 1 << 20), 1 << 20); /* a failed call has no consequences */
}

HR_TEST(what_is_too_large_is_refused_and_harms_nothing) {
  for_each_device(check_limits);
}

static void check_caching(const subject *s) {
  hr_caching_allocator allocator;
  hr_block *kept, *small, *next;
  hr_caching_allocator_init(&allocator, s->driver, s->impl, "conformance", 8 << 20);
  HR_ASSERT_OK(hr_caching_allocator_alloc(&allocator, 3 << 20, &kept));
  HR_ASSERT_ERROR(hr_caching_allocator_alloc(&allocator, 6 << 20, &next), HR_STATUS_RESOURCE_EXHAUSTED, "6291456");
  HR_ASSERT_OK(hr_caching_allocator_alloc(&allocator, 100, &small));
  hr_caching_allocator_free(&allocator, kept);
  hr_caching_allocator_free(&allocator, small);
  HR_ASSERT_OK(hr_caching_allocator_alloc(&allocator, 6 << 20, &next)); /* cached memory is freed for it */
  hr_caching_allocator_free(&allocator, next);
  hr_caching_allocator_trim(&allocator);
  hr_memory_stats stats;
  hr_caching_allocator_stats(&allocator, &stats);
  HR_ASSERT_EQ(stats.allocated_bytes, 0);
  HR_ASSERT_EQ(stats.reserved_bytes, 0);
}

HR_TEST(a_limit_is_kept_and_cached_memory_makes_room) {
  for_each_device(check_caching);
}

/* ---- copies and fills ---- */

enum { COPY_BYTES = 3 << 20 };

static void check_copies(const subject *s) {
  static const size_t ranges[][3] = {/* to, from, bytes */
                                     {0, COPY_BYTES / 2, 0}, {1, 0, 1},
                                     {0, COPY_BYTES - 1, 1}, {100, 63, 37}, /* up to the next byte */
                                     {1000001, 7, 99999},    {COPY_BYTES / 2, 0, COPY_BYTES / 2}};
  unsigned char *expected = hr_malloc(COPY_BYTES), *back = hr_malloc(COPY_BYTES);
  char *block = allocate(s, COPY_BYTES);
  for (size_t i = 0; i < COPY_BYTES; ++i) {
    expected[i] = (unsigned char)(i * 7 + i / 251);
  }
  HR_ASSERT_OK(s->driver->copy_in(s->impl, block, expected, COPY_BYTES));
  for (size_t r = 0; r < sizeof ranges / sizeof *ranges; ++r) {
    size_t to = ranges[r][0], from = ranges[r][1], bytes = ranges[r][2];
    HR_ASSERT_OK(s->driver->copy_within(s->impl, block + to, block + from, bytes));
    memcpy(expected + to, expected + from, bytes);
  }
  HR_ASSERT_OK(s->driver->copy_in(s->impl, block + 12345, "in the middle", 13));
  HR_ASSERT_OK(s->driver->copy_in(s->impl, block + 5, "nothing", 0));
  memcpy(expected + 12345, "in the middle", 13);
  flush(s);
  memset(back, 99, COPY_BYTES);
  HR_ASSERT_OK(s->driver->copy_out(s->impl, back, block + 77, 0));
  HR_ASSERT_EQ(back[0], 99);
  HR_ASSERT_OK(s->driver->copy_out(s->impl, back, block + 1001, 2000));
  HR_ASSERT_EQ(back[2000], 99);
  HR_ASSERT_EQ(back[1999], seen(s, expected[3000]));
  HR_ASSERT_OK(s->driver->copy_out(s->impl, back, block, COPY_BYTES));
  for (size_t i = 0; i < COPY_BYTES; ++i) {
    HR_ASSERT_EQ(back[i], seen(s, expected[i]));
  }
  s->driver->free(s->impl, block, COPY_BYTES);
  hr_free(expected);
  hr_free(back);
}

HR_TEST(copies_move_the_bytes_that_were_named) {
  for_each_device(check_copies);
}

static void check_fills(const subject *s) {
  enum { BYTES = 4096 };
  static const unsigned char pattern[16] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
  unsigned char expected[BYTES] = {0}, back[BYTES];
  char *block = allocate(s, BYTES);
  HR_ASSERT_OK(s->driver->copy_in(s->impl, block, expected, BYTES));
  size_t at = 64;
  for (size_t size = 1; size <= 16; size *= 2) {
    static const size_t counts[] = {0, 1, 3, 17};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; ++i) {
      HR_ASSERT_OK(s->driver->fill(s->impl, block + at, pattern, size, counts[i]));
      for (size_t j = 0; j < size * counts[i]; ++j) {
        expected[at + j] = pattern[j % size];
      }
      at += size * (counts[i] + 1);
    }
  }
  HR_ASSERT(at < BYTES);
  flush(s);
  HR_ASSERT_OK(s->driver->copy_out(s->impl, back, block, BYTES));
  for (int i = 0; i < BYTES; ++i) {
    HR_ASSERT_EQ(back[i], seen(s, expected[i]));
  }
  s->driver->free(s->impl, block, BYTES);
}

HR_TEST(fills_repeat_patterns_of_every_size) {
  for_each_device(check_fills);
}

/* ---- kernels ---- */

enum { UNITS_MAX = 10007, SCRATCH_STEP = 5000 };

/* Counts the runs of each unit of each pass, and a driver's violations. */
typedef struct probe {
  hr_host_kernel kernel; /* first: run() gets it back */
  hr_host_pass passes[HR_HOST_KERNEL_PASS_MAX];
  const hr_scalar *scalars;
  void *workspace;
  atomic_uchar runs[HR_HOST_KERNEL_PASS_MAX][UNITS_MAX];
  atomic_llong done[HR_HOST_KERNEL_PASS_MAX];
  atomic_int bad_order, bad_range, bad_call, bad_scratch;
} probe;

static void run_probe(const hr_host_kernel *kernel, int pass, const hr_host_call *call, int64_t begin, int64_t end) {
  probe *p = (probe *)(uintptr_t)kernel;
  p->bad_range += begin < 0 || end > kernel->passes[pass].units || begin >= end;
  p->bad_call += call->scalars != p->scalars || call->workspace != p->workspace;
  p->bad_order += pass > 0 && atomic_load(&p->done[pass - 1]) != kernel->passes[pass - 1].units;
  unsigned char *scratch = call->scratch, mark = (unsigned char)(begin * 31 + 7);
  if (kernel->scratch_bytes > 0) {
    p->bad_scratch += (uintptr_t)scratch % 64 != 0;
    memset(scratch, mark, kernel->scratch_bytes);
  }
  int64_t *values = call->args[0];
  for (int64_t i = begin; i < end && i < UNITS_MAX; ++i) {
    atomic_fetch_add(&p->runs[pass][i], 1);
    values[i] = pass == 0 ? i : values[i] * 3 + pass;
  }
  for (size_t i = 0; i < kernel->scratch_bytes; ++i) { /* no other user */
    p->bad_scratch += scratch[i] != mark;
  }
  atomic_fetch_add(&p->done[pass], end - begin);
}

static void check_launch(const subject *s, int pass_count, int64_t units, int64_t grain, size_t scratch_bytes) {
  static probe p;
  static int64_t values[UNITS_MAX];
  hr_scalar scalar = hr_scalar_i64(5);
  size_t bytes = (size_t)(units > 0 ? units : 1) * sizeof *values;
  void *args[1] = {allocate(s, bytes)}, *workspace = allocate(s, 256);
  memset(&p, 0, sizeof p);
  p.kernel = (hr_host_kernel){.name = "probe",
                              .pass_count = pass_count,
                              .passes = p.passes,
                              .workspace_bytes = 256,
                              .scratch_bytes = scratch_bytes,
                              .run = run_probe};
  for (int pass = 0; pass < pass_count; ++pass) {
    p.passes[pass] = (hr_host_pass){units, grain};
  }
  p.scalars = &scalar;
  p.workspace = workspace;
  hr_host_call call = {.args = args, .scalars = &scalar, .workspace = workspace};
  HR_ASSERT_OK(s->driver->launch(s->impl, 1, &(hr_host_launch){&p.kernel, call}));
  flush(s);
  HR_ASSERT_OK(s->driver->copy_out(s->impl, values, args[0], (size_t)units * sizeof *values));
  HR_ASSERT_EQ(p.bad_range + p.bad_call + p.bad_order + p.bad_scratch, 0);
  for (int64_t i = 0; i < units; ++i) {
    int64_t value = i;
    for (int pass = 0; pass < pass_count; ++pass) {
      HR_ASSERT_EQ(p.runs[pass][i], s->properties.has_contents ? 1 : 0);
      value = pass > 0 ? value * 3 + pass : value;
    }
    HR_ASSERT_EQ(values[i], s->properties.has_contents ? value : 0);
  }
  s->driver->free(s->impl, args[0], bytes);
  s->driver->free(s->impl, workspace, 256);
}

/* Kernels of one launch, each with its own arguments: some of them empty, some with fewer passes than others. */
static void check_batch(const subject *s, const int64_t *units, int64_t grain) {
  enum { KERNELS = 5 };
  static probe probes[KERNELS];
  static int64_t values[UNITS_MAX];
  hr_host_launch launches[KERNELS];
  void *args[KERNELS][1];
  hr_scalar scalars[KERNELS] = {{0}};
  char *workspace = allocate(s, 64 * KERNELS);
  memset(probes, 0, sizeof probes);
  for (int k = 0; k < KERNELS; ++k) {
    probe *p = &probes[k];
    args[k][0] = allocate(s, sizeof values);
    p->kernel = (hr_host_kernel){.name = "probe",
                                 .pass_count = 1 + k % HR_HOST_KERNEL_PASS_MAX,
                                 .passes = p->passes,
                                 .workspace_bytes = 64,
                                 .scratch_bytes = (size_t)k * 64,
                                 .run = run_probe};
    for (int pass = 0; pass < p->kernel.pass_count; ++pass) {
      p->passes[pass] = (hr_host_pass){units[k], grain * (k + 1)};
    }
    p->scalars = &scalars[k];
    p->workspace = workspace + 64 * k;
    launches[k] = (hr_host_launch){&p->kernel, {.args = args[k], .scalars = p->scalars, .workspace = p->workspace}};
  }
  HR_ASSERT_OK(s->driver->launch(s->impl, KERNELS, launches));
  flush(s);
  for (int k = 0; k < KERNELS; ++k) {
    const probe *p = &probes[k];
    HR_ASSERT_EQ(p->bad_range + p->bad_call + p->bad_order + p->bad_scratch, 0);
    HR_ASSERT_OK(s->driver->copy_out(s->impl, values, args[k][0], (size_t)units[k] * sizeof *values));
    for (int64_t i = 0; i < units[k]; ++i) {
      int64_t value = i;
      for (int pass = 0; pass < p->kernel.pass_count; ++pass) {
        HR_ASSERT_EQ(p->runs[pass][i], s->properties.has_contents ? 1 : 0);
        value = pass > 0 ? value * 3 + pass : value;
      }
      HR_ASSERT_EQ(values[i], s->properties.has_contents ? value : 0);
    }
    s->driver->free(s->impl, args[k][0], sizeof values);
  }
  s->driver->free(s->impl, workspace, 64 * KERNELS);
}

static void check_batches(const subject *s) {
  static const int64_t units[][5] = {
      {1, 1, 1, 1, 1}, {0, 0, 0, 0, 0}, {3, 0, 1000, 1, 7}, {UNITS_MAX, 2, 3, 64, 0}, {5, 64, UNITS_MAX, 100, 4000}};
  for (size_t i = 0; s->properties.is_host && i < sizeof units / sizeof *units; ++i) {
    check_batch(s, units[i], 1);
    check_batch(s, units[i], 30);
    check_batch(s, units[i], 100000);
  }
}

HR_TEST(kernels_of_one_launch_run_like_kernels_by_themselves) {
  for_each_device(check_batches);
}

static void check_launches(const subject *s) {
  static const int64_t units[] = {0, 1, 2, 3, 64, 1000, UNITS_MAX};
  for (size_t i = 0; s->properties.is_host && i < sizeof units / sizeof *units; ++i) {
    for (int passes = 1; passes <= HR_HOST_KERNEL_PASS_MAX; ++passes) {
      check_launch(s, passes, units[i], 1, 0);
      check_launch(s, passes, units[i], 100, 1 + (size_t)i * SCRATCH_STEP); /* scratch that grows, and shrinks */
    }
  }
}

HR_TEST(kernels_run_each_unit_of_each_pass_once_and_passes_in_order) {
  for_each_device(check_launches);
}

typedef struct host_call {
  char *block;
  int64_t value;
  bool fails;
} host_call;

static hr_status run_host_call(void *arg) {
  host_call *c = arg;
  if (c->fails) {
    return hr_status_make(HR_STATUS_DATA_LOSS, "the library's own words");
  }
  memcpy(&c->value, c->block, sizeof c->value);
  memset(c->block, 0, sizeof c->value);
  return HR_OK;
}

static void check_calls(const subject *s) {
  if (s->driver->call == NULL || !s->properties.is_host) {
    return;
  }
  host_call c = {.block = allocate(s, 64)};
  int64_t pattern = 12345, back = 99;
  HR_ASSERT_OK(s->driver->fill(s->impl, c.block, &pattern, sizeof pattern, 1));
  HR_ASSERT_OK(s->driver->call(s->impl, run_host_call, &c));
  HR_ASSERT_OK(s->driver->fill(s->impl, c.block + 8, &pattern, sizeof pattern, 1));
  flush(s);
  HR_ASSERT_OK(s->driver->copy_out(s->impl, &back, c.block, sizeof back));
  HR_ASSERT_EQ(c.value, s->properties.has_contents ? pattern : 0);
  HR_ASSERT_EQ(back, 0);
  if (s->properties.has_contents) { /* reported by the call, or by the flush after it */
    c.fails = true;
    hr_status status = s->driver->call(s->impl, run_host_call, &c);
    status = status == HR_OK && s->driver->flush != NULL ? s->driver->flush(s->impl) : status;
    HR_ASSERT_ERROR(status, HR_STATUS_DATA_LOSS, "the library's own words");
  }
  s->driver->free(s->impl, c.block, 64);
}

HR_TEST(library_calls_run_in_order_and_report_what_they_say) {
  for_each_device(check_calls);
}

/* ---- events ---- */

static void check_events(const subject *s) {
  enum { COUNT = 4, BYTES = 1 << 20 };
  void *events[COUNT], *fresh, *block = allocate(s, BYTES);
  int64_t ns = 0, all = 0, sum = 0;
  if (s->driver->event_create == NULL) {
    s->driver->free(s->impl, block, BYTES);
    return;
  }
  HR_ASSERT_OK(s->driver->event_create(s->impl, &fresh));
  HR_ASSERT_OK(s->driver->event_wait(s->impl, fresh));
  for (int i = 0; i < COUNT; ++i) {
    HR_ASSERT_OK(s->driver->event_create(s->impl, &events[i]));
    HR_ASSERT_STATUS(s->driver->event_elapsed(s->impl, fresh, events[i], &ns), HR_STATUS_FAILED_PRECONDITION);
  }
  for (int round = 0; round < 2; ++round) { /* an event may be recorded again */
    for (unsigned char i = 0; i < COUNT; ++i) {
      HR_ASSERT_OK(s->driver->fill(s->impl, block, &i, 1, BYTES));
      HR_ASSERT_OK(s->driver->event_record(s->impl, events[i]));
    }
    HR_ASSERT_OK(s->driver->event_wait(s->impl, events[COUNT - 1]));
    unsigned char last = 99;
    HR_ASSERT_OK(s->driver->copy_out(s->impl, &last, (char *)block + BYTES - 1, 1));
    HR_ASSERT_EQ(last, seen(s, COUNT - 1)); /* work before an event has run when the wait is over */
    for (int i = 1; i < COUNT; ++i) {
      HR_ASSERT_OK(s->driver->event_elapsed(s->impl, events[i - 1], events[i], &ns));
      HR_ASSERT(ns >= 0);
      sum = i == 1 ? ns : sum + ns;
    }
    HR_ASSERT_OK(s->driver->event_elapsed(s->impl, events[0], events[COUNT - 1], &all));
    HR_ASSERT_NEAR(all, sum, 1000 * COUNT); /* a device's clock has a grain */
  }
  HR_ASSERT_STATUS(s->driver->event_elapsed(s->impl, events[0], fresh, &ns), HR_STATUS_FAILED_PRECONDITION);
  HR_ASSERT_STATUS(s->driver->event_elapsed(s->impl, fresh, events[0], &ns), HR_STATUS_FAILED_PRECONDITION);
  for (int i = 0; i < COUNT; ++i) {
    s->driver->event_destroy(s->impl, events[i]);
  }
  s->driver->event_destroy(s->impl, fresh);
  s->driver->free(s->impl, block, BYTES);
}

HR_TEST(events_stand_in_the_order_of_work) {
  for_each_device(check_events);
}

/* ---- threads ---- */

enum { THREADS = 4, ROUNDS = 200, ADDED = 16 };

typedef struct adder {
  const subject *s;
  hr_mutex *turn; /* any thread may submit work, one at a time */
  void *sums;
  hr_status status;
  bool is_memory_wrong;
} adder;

static void add_range(const hr_host_kernel *kernel, int pass, const hr_host_call *call, int64_t begin, int64_t end) {
  (void)kernel, (void)pass;
  int64_t *sums = call->args[0];
  for (int64_t i = begin; i < end; ++i) {
    sums[i] += call->scalars[0].value.i;
  }
}

static hr_status add_once(adder *a, int64_t value) {
  static const hr_host_pass pass = {.units = ADDED, .grain = 4};
  static const hr_host_kernel kernel = {
      .name = "add", .pass_count = 1, .passes = &pass, .scratch_bytes = 64, .run = add_range};
  hr_scalar scalar = hr_scalar_i64(value);
  void *args[1] = {a->sums};
  hr_host_call call = {.args = args, .scalars = &scalar};
  hr_mutex_lock(a->turn);
  hr_status status = a->s->driver->launch(a->s->impl, 1, &(hr_host_launch){&kernel, call});
  if (status == HR_OK && a->s->driver->submit != NULL) {
    status = a->s->driver->submit(a->s->impl);
  }
  if (status == HR_OK && a->s->driver->flush != NULL) { /* the scalar is this thread's */
    status = a->s->driver->flush(a->s->impl);
  }
  hr_mutex_unlock(a->turn);
  return status;
}

/* Memory of one's own, with no turn to wait for. */
static hr_status move_once(adder *a, size_t bytes) {
  const hr_driver *driver = a->s->driver;
  void *block;
  int64_t number = (int64_t)bytes * 3, back = 99, free_bytes, total_bytes;
  HR_RETURN_IF_ERROR(driver->allocate(a->s->impl, bytes, &block));
  hr_status status = driver->copy_in(a->s->impl, (char *)block + bytes - sizeof number, &number, sizeof number);
  if (status == HR_OK) {
    status = driver->copy_out(a->s->impl, &back, (char *)block + bytes - sizeof number, sizeof number);
  }
  a->is_memory_wrong |= status == HR_OK && back != (a->s->properties.has_contents ? number : 0);
  driver->memory_info(a->s->impl, &free_bytes, &total_bytes);
  a->is_memory_wrong |= free_bytes > total_bytes;
  driver->free(a->s->impl, block, bytes);
  return status;
}

static void add_many(void *arg) {
  adder *a = arg;
  for (int i = 0; i < ROUNDS && a->status == HR_OK; ++i) {
    a->status = a->s->properties.is_host ? add_once(a, i) : HR_OK;
    a->status = a->status == HR_OK ? move_once(a, 64 + (size_t)(i % 7) * 40000) : a->status;
  }
}

static void check_threads(const subject *s) {
  int64_t sums[ADDED] = {0};
  hr_mutex turn = HR_MUTEX_INITIALIZER;
  adder adders[THREADS];
  hr_thread threads[THREADS];
  void *block = allocate(s, sizeof sums);
  HR_ASSERT_OK(s->driver->copy_in(s->impl, block, sums, sizeof sums));
  for (int i = 0; i < THREADS; ++i) {
    adders[i] = (adder){.s = s, .turn = &turn, .sums = block};
    HR_ASSERT_OK(hr_thread_start("adder", add_many, &adders[i], &threads[i]));
  }
  for (int i = 0; i < THREADS; ++i) {
    hr_thread_join(&threads[i]);
  }
  for (int i = 0; i < THREADS; ++i) {
    HR_ASSERT_OK(adders[i].status);
    HR_ASSERT(!adders[i].is_memory_wrong);
  }
  HR_ASSERT_OK(s->driver->copy_out(s->impl, sums, block, sizeof sums));
  bool counts = s->properties.has_contents && s->properties.is_host;
  for (int i = 0; i < ADDED; ++i) {
    HR_ASSERT_EQ(sums[i], counts ? THREADS * ROUNDS * (ROUNDS - 1) / 2 : 0);
  }
  s->driver->free(s->impl, block, sizeof sums);
}

HR_TEST(many_small_launches_come_from_several_threads) {
  for_each_device(check_threads);
}

/* ---- another device ---- */

/* Copies from the driver's last device, or, if there is only one, from a second instance of it, after the source's work
 * has run. */
static void check_peer(const subject *s) {
  enum { BYTES = 3 << 20, SKIP = 4099 };
  if (s->driver->copy_peer == NULL) {
    return;
  }
  static unsigned char sent[BYTES], back[BYTES];
  subject other = open_subject(s->driver, s->driver->count() - 1);
  char *from = allocate(&other, BYTES), *to = allocate(s, BYTES);
  const unsigned char old = 7, pattern = 0x5a;
  for (size_t i = 0; i < BYTES; ++i) {
    sent[i] = (unsigned char)(i * 2654435761u >> 13);
  }
  HR_ASSERT_OK(other.driver->copy_in(other.impl, from, sent, BYTES));
  HR_ASSERT_OK(other.driver->fill(other.impl, from + SKIP, &pattern, 1, 100));
  if (other.driver->flush != NULL) {
    HR_ASSERT_OK(other.driver->flush(other.impl));
  }
  memset(sent + SKIP, pattern, 100);
  HR_ASSERT_OK(s->driver->fill(s->impl, to, &old, 1, BYTES)); /* before the copy, in any order of the two devices */
  HR_ASSERT_OK(s->driver->copy_peer(s->impl, to + 1, other.impl, from + 3, BYTES - 3));
  HR_ASSERT_OK(s->driver->copy_peer(s->impl, to, other.impl, from, 0));
  other.driver->free(other.impl, from, BYTES); /* it is over */
  other.driver->close(other.impl);
  HR_ASSERT_OK(s->driver->copy_out(s->impl, back, to, BYTES));
  if (s->properties.has_contents) {
    HR_ASSERT(back[0] == old && back[BYTES - 2] == old && back[BYTES - 1] == old);
    HR_ASSERT_EQ(memcmp(back + 1, sent + 3, BYTES - 3), 0);
  }
  s->driver->free(s->impl, to, BYTES);
}

HR_TEST(bytes_come_from_another_device) {
  for_each_device(check_peer);
}

/* ---- the end ---- */

static void check_close(const subject *s) {
  enum { BYTES = 1 << 20 };
  for (int i = 0; i < 20; ++i) { /* work that was given and never waited for */
    subject other = open_subject(s->driver, 0);
    unsigned char pattern = (unsigned char)i;
    void *block = allocate(&other, BYTES), *event = NULL;
    HR_ASSERT_OK(other.driver->fill(other.impl, block, &pattern, 1, BYTES / 2));
    HR_ASSERT_OK(other.driver->copy_within(other.impl, (char *)block + BYTES / 2, block, BYTES / 2));
    if (other.driver->event_create != NULL) {
      HR_ASSERT_OK(other.driver->event_create(other.impl, &event));
      HR_ASSERT_OK(other.driver->event_record(other.impl, event));
      other.driver->event_destroy(other.impl, event);
    }
    if (i % 2 == 0 && other.driver->submit != NULL) {
      HR_ASSERT_OK(other.driver->submit(other.impl));
    }
    other.driver->free(other.impl, block, BYTES);
    other.driver->close(other.impl);
  }
}

HR_TEST(a_device_closes_with_work_in_flight) {
  for_each_device(check_close);
}

static int oom_driver; /* whose turn it is */

static hr_status use_short_of_memory(void) {
  const hr_driver *driver = hr_drivers[oom_driver];
  void *impl, *block = NULL, *event = NULL;
  HR_RETURN_IF_ERROR(driver->open(0, &impl));
  hr_device_properties properties;
  driver->properties(impl, &properties);
  hr_status status = driver->allocate(impl, 4096, &block);
  if (status == HR_OK && driver->event_create != NULL) {
    status = driver->event_create(impl, &event);
  }
  if (status == HR_OK && properties.is_host) {
    static const hr_host_pass pass = {.units = ADDED, .grain = ADDED};
    static const hr_host_kernel kernel = {
        .name = "add", .pass_count = 1, .passes = &pass, .scratch_bytes = 640, .run = add_range};
    hr_scalar scalar = hr_scalar_i64(0);
    hr_host_call call = {.args = &block, .scalars = &scalar};
    memset(block, 0, ADDED * sizeof(int64_t));
    status = driver->launch(impl, 1, &(hr_host_launch){&kernel, call});
  }
  if (event != NULL) {
    driver->event_destroy(impl, event);
  }
  if (block != NULL) {
    driver->free(impl, block, 4096);
  }
  driver->close(impl);
  return status;
}

HR_TEST(failing_host_allocations_are_reported_and_leak_nothing) {
  for (oom_driver = 0; hr_drivers[oom_driver] != NULL; ++oom_driver) {
    if (hr_drivers[oom_driver]->count() > 0) {
      HR_TEST_OOM(use_short_of_memory);
    }
  }
}
