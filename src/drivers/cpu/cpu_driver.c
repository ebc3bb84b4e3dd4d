/* The CPU driver: host memory and the shared thread team.
 *
 * Blocks of 2 MB and more are mapped on their own, aligned to 2 MB; data written by the host gets huge pages. So are
 * those of 128 KB and more, aligned to pages: between the heap's blocks they would leave holes when they are freed. All
 * work is done during the call, so there is nothing to submit or flush.
 *
 * Each worker of a parallel loop has its own scratch, which grows to the largest kernel seen and is kept.
 */
#include "drivers/cpu/cpu_driver.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/allocator.h"
#include "base/env.h"
#include "base/integer.h"
#include "base/thread.h"

enum { ALIGNMENT = 64, DEVICES_MAX = 64, LANES = 2 };
#ifdef __SANITIZE_ADDRESS__ /* it checks the bounds of the heap's blocks */
enum { MAPPED_MIN = HR_HUGE_PAGE };
#else
enum { MAPPED_MIN = 128 << 10 };
#endif

/* An opening: the memory is the process's. */
typedef struct cpu_device {
  size_t scratch_bytes; /* of each worker that has scratch */
  int scratch_count;    /* workers that have scratch */
  void *scratch[HR_THREADS_MAX];
} cpu_device;

/* More than one on request, to test programs for several devices: each has its own queue and memory. Processes that a
 * launcher started find one device for each of them, since such programs use the device of their number. */
static int cpu_count(void) {
  int count = (int)hr_env_int(HR_ENV_CPU_DEVICES);
  return count > 0 ? count : (int)hr_min(hr_local_ranks(), DEVICES_MAX);
}

static hr_status cpu_open(int ordinal, void **out_impl) {
  (void)ordinal;
  cpu_device *device = hr_calloc(1, sizeof *device);
  if (device == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "cpu: no host memory");
  }
  *out_impl = device;
  return HR_OK;
}

static void drop_scratch(cpu_device *device) {
  for (int i = 0; i < device->scratch_count; ++i) {
    hr_aligned_free(device->scratch[i]);
  }
  device->scratch_count = 0;
}

static void cpu_close(void *impl) {
  drop_scratch(impl);
  hr_free(impl);
}

/* The model's name as the system reports it. */
static void read_model(char *out_text, size_t bytes) {
  snprintf(out_text, bytes, "host processor");
  FILE *file = fopen("/proc/cpuinfo", "r");
  char line[256];
  while (file != NULL && fgets(line, sizeof line, file) != NULL) {
    const char *colon = strchr(line, ':');
    if (strncmp(line, "model name", 10) == 0 && colon != NULL) {
      snprintf(out_text, bytes, "%.*s", (int)strcspn(colon + 2, "\n"), colon + 2);
      break;
    }
  }
  if (file != NULL) {
    fclose(file);
  }
}

static void cpu_properties(void *impl, hr_device_properties *out_properties) {
  (void)impl;
  *out_properties =
      (hr_device_properties){.workers = hr_thread_count(), .is_host = true, .has_contents = true, .lanes = LANES};
  read_model(out_properties->description, sizeof out_properties->description);
}

/* A number of kilobytes from /proc/meminfo, in bytes; -1 if the key is missing. */
static int64_t read_meminfo(const char *key) {
  FILE *file = fopen("/proc/meminfo", "r");
  char line[128];
  long long kilobytes = -1;
  while (file != NULL && fgets(line, sizeof line, file) != NULL) {
    if (strncmp(line, key, strlen(key)) == 0 && sscanf(line + strlen(key), " %lld", &kilobytes) == 1) {
      break;
    }
  }
  if (file != NULL) {
    fclose(file);
  }
  return kilobytes < 0 ? -1 : kilobytes * 1024;
}

/* The limit of this process's control group, or -1. */
static int64_t read_group_limit(void) {
  FILE *file = fopen("/sys/fs/cgroup/memory.max", "r");
  long long bytes = -1;
  if (file != NULL) {
    if (fscanf(file, "%lld", &bytes) != 1) {
      bytes = -1;
    }
    fclose(file);
  }
  return bytes;
}

static void cpu_memory_info(void *impl, int64_t *out_free_bytes, int64_t *out_total_bytes) {
  (void)impl;
  int64_t total = (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE), group = read_group_limit();
  int64_t available = read_meminfo("MemAvailable:");
  total = group > 0 && group < total ? group : total;
  *out_total_bytes = total;
  *out_free_bytes = available >= 0 && available < total ? available : total;
}

/* ---- memory ---- */

/* Maps `bytes` rounded to huge pages at an address aligned to them: maps one page more and unmaps the ends. */
static void *map_aligned(size_t bytes) {
  if (bytes > SIZE_MAX / 2) {
    errno = ENOMEM;
    return NULL;
  }
  size_t rounded = hr_align_up(bytes, HR_HUGE_PAGE), mapped = rounded + HR_HUGE_PAGE;
  char *start = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (start == MAP_FAILED) {
    return NULL;
  }
  char *aligned = (char *)(((uintptr_t)start + HR_HUGE_PAGE - 1) & ~(uintptr_t)(HR_HUGE_PAGE - 1));
  if (aligned > start) {
    munmap(start, (size_t)(aligned - start));
  }
  if (aligned + rounded < start + mapped) {
    munmap(aligned + rounded, (size_t)(start + mapped - (aligned + rounded)));
  }
  return aligned;
}

static void *map_pages(size_t bytes) {
  void *start = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return start == MAP_FAILED ? NULL : start;
}

/* Results of kernels get small pages, because the first touch of a huge page costs several times as much a byte on some
 * virtual machines. */
static hr_status cpu_allocate(void *impl, size_t bytes, void **out_address) {
  (void)impl;
  void *address = bytes >= HR_HUGE_PAGE ? map_aligned(bytes)
                  : bytes >= MAPPED_MIN ? map_pages(bytes)
                                        : aligned_alloc(ALIGNMENT, hr_align_up(bytes, ALIGNMENT));
  if (address == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "the system has no %zu bytes: %s", bytes, strerror(errno));
  }
  *out_address = address;
  return HR_OK;
}

static void cpu_free(void *impl, void *address, size_t bytes) {
  (void)impl;
  if (bytes >= HR_HUGE_PAGE) {
    munmap(address, hr_align_up(bytes, HR_HUGE_PAGE));
  } else if (bytes >= MAPPED_MIN) {
    munmap(address, bytes);
  } else {
    free(address);
  }
}

static hr_status cpu_copy_in(void *impl, void *to, const void *from, size_t bytes) {
  (void)impl;
  hr_huge_pages_advise(to, bytes); /* weights and batches, which are read in each step */
  memcpy(to, from, bytes);
  return HR_OK;
}

static hr_status cpu_copy_out(void *impl, void *to, const void *from, size_t bytes) {
  (void)impl;
  memcpy(to, from, bytes);
  return HR_OK;
}

/* Copies inside the device run in the order of the kernels, so they may use the team. */
static hr_status cpu_copy_within(void *impl, void *to, const void *from, size_t bytes) {
  (void)impl;
  hr_parallel_copy(to, from, bytes);
  return HR_OK;
}

static hr_status cpu_copy_peer(void *impl, void *to, void *from_impl, const void *from, size_t bytes) {
  (void)from_impl;
  return cpu_copy_in(impl, to, from, bytes);
}

static hr_status cpu_fill(void *impl, void *to, const void *pattern, size_t pattern_bytes, size_t count) {
  (void)impl;
  if (pattern_bytes == 1) {
    memset(to, *(const unsigned char *)pattern, count);
    return HR_OK;
  }
  for (size_t i = 0; i < count; ++i) {
    memcpy((char *)to + i * pattern_bytes, pattern, pattern_bytes);
  }
  return HR_OK;
}

/* ---- kernels ---- */

/* Grows every worker's scratch to at least `bytes`. */
static hr_status grow_scratch(cpu_device *device, size_t bytes) {
  int workers = hr_thread_count();
  if (bytes == 0 || (bytes <= device->scratch_bytes && workers <= device->scratch_count)) {
    return HR_OK;
  }
  size_t wanted = bytes > device->scratch_bytes ? bytes : device->scratch_bytes;
  drop_scratch(device);
  device->scratch_bytes = 0;
  for (int i = 0; i < workers; ++i) {
    device->scratch[i] = hr_aligned_malloc(wanted, ALIGNMENT);
    if (device->scratch[i] == NULL) {
      return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "cpu: no host memory for %zu bytes of scratch", wanted);
    }
    ++device->scratch_count;
  }
  device->scratch_bytes = wanted;
  return HR_OK;
}

typedef struct launch_work {
  int count;
  const hr_host_launch *launches;
  void *const *scratch;
  int pass;
  int64_t lots, single_lots; /* of the pass: of all kernels, and of those that are not shared */
  /* Lots of a kernel of which all threads take the same share: estimates of costs leave out how long memory takes. */
  int64_t shared_min;
  hr_thread_interrupt interrupt; /* of long launches, which then have parts of their results */
} launch_work;

/* Between looks for interrupts: kernels that write gigabytes of new pages take seconds. */
enum { PIECE_BYTES = 32 << 20 };

static bool are_long(int count, const hr_host_launch *launches) {
  int64_t bytes = 0;
  for (int i = 0; i < count; ++i) {
    bytes += launches[i].kernel->bytes;
  }
  return bytes > PIECE_BYTES;
}

static void run_range(const launch_work *work, const hr_host_launch *launch, int64_t begin, int64_t end, int worker) {
  const hr_host_kernel *kernel = launch->kernel;
  hr_host_call call = launch->call;
  call.scratch = work->scratch[worker];
  int64_t pieces = kernel->bytes / PIECE_BYTES + 1, piece = kernel->passes[work->pass].units / pieces + 1;
  for (int64_t at = begin, next; at < end && !hr_thread_interrupt_has_come(&work->interrupt); at = next) {
    next = end - at > piece ? at + piece : end;
    kernel->run(kernel, work->pass, &call, at, next);
  }
}

static void run_one(void *arg, int64_t begin, int64_t end, int worker) {
  const launch_work *work = arg;
  run_range(work, work->launches, begin, end, worker);
}

/* The work of several kernels is divided into lots of about equal cost: this many justify a thread. A lot has at least
 * one unit. */
enum { LOTS = 16, LOTS_MAX = 1 << 20 };

static int64_t lots_of(const hr_host_kernel *kernel, int pass) {
  const hr_host_pass none = {0, 1}, *p = pass < kernel->pass_count ? &kernel->passes[pass] : &none;
  int64_t units = p->units;
  double lots = (double)units * LOTS / (double)(p->grain > 0 ? p->grain : 1);
  lots = lots < LOTS_MAX ? lots : LOTS_MAX;
  return units <= 0 ? 0 : lots < 1 ? 1 : lots < (double)units ? (int64_t)lots : units;
}

/* The part of `count` that belongs to lots [0, at) of all `lots`. */
static int64_t part_of(int64_t count, int64_t at, int64_t lots) {
  return at < lots ? (int64_t)((double)count * (double)at / (double)lots) : count;
}

/* The work of lots [begin, end): a part of each shared kernel, and the same part of the lots of all other ones, which
 * are numbered consecutively. */
static void run_lots(void *arg, int64_t begin, int64_t end, int worker) {
  const launch_work *work = arg;
  int64_t first = part_of(work->single_lots, begin, work->lots), last = part_of(work->single_lots, end, work->lots);
  for (int i = 0; i < work->count; ++i) {
    const hr_host_kernel *kernel = work->launches[i].kernel;
    int64_t lots = lots_of(kernel, work->pass), units = lots > 0 ? kernel->passes[work->pass].units : 0;
    if (lots >= work->shared_min) {
      run_range(work, &work->launches[i], part_of(units, begin, work->lots), part_of(units, end, work->lots), worker);
      continue;
    }
    int64_t from = first > 0 ? first : 0, to = last < lots ? last : lots;
    if (from < to) {
      run_range(work, &work->launches[i], units * from / lots, units * to / lots, worker);
    }
    first -= lots, last -= lots; /* of the next one */
  }
}

static void run_together(launch_work *work) {
  work->shared_min = (int64_t)LOTS * hr_thread_count();
  for (work->pass = 0; work->pass < HR_HOST_KERNEL_PASS_MAX; ++work->pass) {
    work->lots = work->single_lots = 0;
    for (int i = 0; i < work->count; ++i) {
      int64_t lots = lots_of(work->launches[i].kernel, work->pass);
      work->lots += lots;
      work->single_lots += lots >= work->shared_min ? 0 : lots;
    }
    hr_parallel_for(work->lots, LOTS, run_lots, work);
  }
}

static hr_status cpu_launch(void *impl, int count, const hr_host_launch *launches) {
  cpu_device *device = impl;
  launch_work work = {.count = count, .launches = launches, .scratch = device->scratch};
  work.interrupt = are_long(count, launches) ? hr_thread_interrupt_get() : (hr_thread_interrupt){0};
  for (int i = 0; i < count; ++i) {
    HR_RETURN_IF_ERROR(grow_scratch(device, launches[i].kernel->scratch_bytes));
  }
  const hr_host_kernel *kernel = launches[0].kernel;
  for (; count == 1 && work.pass < kernel->pass_count; ++work.pass) {
    hr_parallel_for(kernel->passes[work.pass].units, kernel->passes[work.pass].grain, run_one, &work);
  }
  if (count > 1) {
    run_together(&work);
  }
  return !hr_thread_interrupt_has_come(&work.interrupt)
             ? HR_OK
             : hr_status_make(HR_STATUS_CANCELLED, "interrupted within %s", kernel->name);
}

/* ---- events: the time of their recording, because all earlier work has run by then ---- */

static hr_status cpu_event_create(void *impl, void **out_event) {
  (void)impl;
  *out_event = hr_calloc(1, sizeof(int64_t));
  return *out_event != NULL ? HR_OK : hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "cpu: no host memory for an event");
}

static void cpu_event_destroy(void *impl, void *event) {
  (void)impl;
  hr_free(event);
}

static hr_status cpu_event_record(void *impl, void *event) {
  (void)impl;
  *(int64_t *)event = hr_clock_ns();
  return HR_OK;
}

static hr_status cpu_event_wait(void *impl, void *event) {
  (void)impl, (void)event;
  return HR_OK;
}

static hr_status cpu_event_elapsed(void *impl, void *begin, void *end, int64_t *out_ns) {
  (void)impl;
  if (*(int64_t *)begin == 0 || *(int64_t *)end == 0) {
    return hr_status_make(HR_STATUS_FAILED_PRECONDITION, "cpu: elapsed time of an event that was never recorded");
  }
  *out_ns = *(int64_t *)end - *(int64_t *)begin;
  return HR_OK;
}

const hr_driver hr_cpu_driver = {
    .name = "cpu",
    .count = cpu_count,
    .open = cpu_open,
    .close = cpu_close,
    .properties = cpu_properties,
    .memory_info = cpu_memory_info,
    .allocate = cpu_allocate,
    .free = cpu_free,
    .copy_in = cpu_copy_in,
    .copy_out = cpu_copy_out,
    .copy_within = cpu_copy_within,
    .copy_peer = cpu_copy_peer,
    .fill = cpu_fill,
    .launch = cpu_launch,
    .event_create = cpu_event_create,
    .event_destroy = cpu_event_destroy,
    .event_record = cpu_event_record,
    .event_wait = cpu_event_wait,
    .event_elapsed = cpu_event_elapsed,
};
