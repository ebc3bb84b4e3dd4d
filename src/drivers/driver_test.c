/* Tests particular to one driver. The duties of every driver are tested in tests/c/driver_conformance_test.c. */
#include <string.h>

#include "hr_test.h"

#include "base/thread.h"
#include "drivers/cpu/cpu_driver.h"
#include "drivers/null/null_driver.h"

static void run_nothing(const hr_host_kernel *kernel, int pass, const hr_host_call *call, int64_t begin, int64_t end) {
  (void)kernel, (void)pass, (void)call, (void)begin, (void)end;
}

HR_TEST(the_null_device_accounts_for_everything) {
  enum { BYTES = 4096 };
  void *impl, *block;
  char host[BYTES] = {0};
  hr_null_counters counters;
  HR_ASSERT_OK(hr_null_driver.open(0, &impl));
  HR_ASSERT_OK(hr_null_driver.allocate(impl, BYTES, &block));
  HR_ASSERT_OK(hr_null_driver.copy_in(impl, block, host, BYTES));
  HR_ASSERT_OK(hr_null_driver.fill(impl, block, host, 4, BYTES / 4));
  HR_ASSERT_OK(hr_null_driver.copy_within(impl, block, (char *)block + BYTES / 2, BYTES / 2));
  const hr_host_pass passes[2] = {{1, 1}, {1, 1}};
  hr_host_kernel kernel = {.name = "nothing", .pass_count = 2, .passes = passes, .run = run_nothing};
  hr_host_call call = {.args = &block};
  HR_ASSERT_OK(hr_null_driver.launch(impl, 2, (hr_host_launch[]){{&kernel, call}, {&kernel, call}}));
  hr_null_counters_get(impl, &counters);
  HR_ASSERT_EQ(counters.bytes_allocated, BYTES);
  HR_ASSERT_EQ(counters.copies, 2);
  HR_ASSERT_EQ(counters.bytes_copied, BYTES + BYTES / 2);
  HR_ASSERT_EQ(counters.fills, 1);
  HR_ASSERT_EQ(counters.launches, 1);
  HR_ASSERT_EQ(counters.kernels, 2);
  HR_ASSERT_EQ(counters.passes, 4);
  hr_null_driver.free(impl, block, BYTES);
  hr_null_counters_get(impl, &counters);
  HR_ASSERT_EQ(counters.allocations, counters.frees);
  HR_ASSERT_EQ(counters.bytes_allocated, 0);
  hr_null_driver.close(impl);
}

/* A kernel that interrupts its own run. */
static atomic_uint_least64_t interrupted;
static int64_t units_run;
static void run_until_interrupted(const hr_host_kernel *kernel, int pass, const hr_host_call *call, int64_t begin,
                                  int64_t end) {
  (void)kernel, (void)pass, (void)call;
  units_run += end - begin;
  atomic_store(&interrupted, 1);
}

HR_TEST(an_interrupt_ends_a_long_kernel_early) {
  void *impl;
  const hr_host_pass pass = {64, 1};
  hr_host_kernel kernel = {
      .name = "long", .pass_count = 1, .passes = &pass, .bytes = INT64_C(1) << 30, .run = run_until_interrupted};
  const hr_host_launch launch = {&kernel, {0}};
  HR_ASSERT_OK(hr_cpu_driver.open(0, &impl));
  hr_thread_count_set(1);
  HR_ASSERT_OK(hr_cpu_driver.launch(impl, 1, &launch));
  HR_ASSERT_EQ(units_run, 64);
  atomic_store(&interrupted, 0);
  units_run = 0;
  hr_thread_interrupt before = hr_thread_interrupt_set((hr_thread_interrupt){&interrupted, 1});
  HR_ASSERT_ERROR(hr_cpu_driver.launch(impl, 1, &launch), HR_STATUS_CANCELLED, "within long");
  HR_ASSERT(units_run < 64);
  atomic_store(&interrupted, 0);
  kernel.bytes = 1 << 20;
  units_run = 0;
  HR_ASSERT_OK(hr_cpu_driver.launch(impl, 1, &launch));
  HR_ASSERT_EQ(units_run, 64);
  (void)hr_thread_interrupt_set(before);
  hr_thread_count_set(0);
  hr_cpu_driver.close(impl);
}

/* A kernel of several units that counts the runs of each, and the threads that run it. */
enum { UNITS_MAX = 4096, THREADS = 3 };
typedef struct counted {
  atomic_int runs[UNITS_MAX], ranges;
} counted;
static void run_counted(const hr_host_kernel *kernel, int pass, const hr_host_call *call, int64_t begin, int64_t end) {
  (void)kernel, (void)pass;
  counted *to = call->args[0];
  atomic_fetch_add(&to->ranges, begin < end);
  for (int64_t i = begin; i < end; ++i) {
    atomic_fetch_add(&to->runs[i], 1);
  }
}

HR_TEST(kernels_of_a_launch_share_the_threads) {
  /* The second and the last kernel have work for all threads, whatever the others cost. */
  enum { KERNELS = 6, SHARED = 1, OTHER = 5 };
  static counted counts[KERNELS];
  const hr_host_pass passes[KERNELS] = {{1, 1 << 20}, {UNITS_MAX, 64}, {7, 2}, {0, 1}, {3, 4}, {1000, 250}};
  void *impl, *args[KERNELS];
  hr_host_kernel kernels[KERNELS];
  hr_host_launch launches[KERNELS];
  for (int i = 0; i < KERNELS; ++i) {
    args[i] = &counts[i];
    kernels[i] = (hr_host_kernel){.name = "counted", .pass_count = 1, .passes = &passes[i], .run = run_counted};
    launches[i] = (hr_host_launch){&kernels[i], {.args = &args[i]}};
  }
  HR_ASSERT_OK(hr_cpu_driver.open(0, &impl));
  for (int threads = 1; threads <= THREADS; ++threads) {
    memset(counts, 0, sizeof counts);
    hr_thread_count_set(threads);
    HR_ASSERT_OK(hr_cpu_driver.launch(impl, KERNELS, launches));
    for (int i = 0; i < KERNELS; ++i) {
      for (int64_t unit = 0; unit < passes[i].units; ++unit) {
        HR_ASSERT_EQ(counts[i].runs[unit], 1);
      }
    }
    HR_ASSERT_EQ(counts[SHARED].ranges, threads);
    HR_ASSERT_EQ(counts[OTHER].ranges, threads);
  }
  hr_thread_count_set(0);
  hr_cpu_driver.close(impl);
}
