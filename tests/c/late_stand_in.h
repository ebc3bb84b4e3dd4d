/* late_stand_in.h: the CPU as a device whose work runs later than the job that submits it, on a thread of each opening.
 *
 * Events, and what follows them, are as in a queue of a GPU. Interpreted kernels alone: a launch keeps a copy of its
 * kernel, which may be destroyed or renumbered before it has run, and of its arguments. Threads wait a random time
 * before each piece of work, and memory that is freed is overwritten.
 */
#ifndef HEADRACE_TESTS_LATE_STAND_IN_H_
#define HEADRACE_TESTS_LATE_STAND_IN_H_

#include <limits.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "cpu_stand_in.h"

#include "base/allocator.h"
#include "base/interned.h"
#include "interp/interp_plan.h"
#include "runtime/queue.h"

enum { LATE_OPENINGS = 8, LATE_ARGS = 32, LATE_SPINS = 20000 };

typedef struct late_opening {
  void *cpu;
  hr_queue queue;
  uint64_t spins;
} late_opening;

typedef struct late_event {
  atomic_uintptr_t queue;
  atomic_uint_least64_t number; /* of the last work before it */
} late_event;

/* A piece of work: a launch, a copy, a fill, or a wait for other work. */
typedef struct late_work {
  hr_queue_job job; /* first */
  late_opening *opening;
  hr_host_launch launch;
  void *args[LATE_ARGS];
  hr_scalar scalars[LATE_ARGS];
  void *to;
  const void *from; /* NULL: a fill with `bytes` */
  size_t count, pattern_bytes;
  hr_queue *awaited;
  uint64_t number;
  char bytes[]; /* of the host */
} late_work;

static const hr_driver *late_cpu;
static hr_mutex late_mutex;
static late_opening *late_openings[LATE_OPENINGS];

static void late_run(hr_queue_job *job) {
  late_work *work = (late_work *)job;
  late_opening *opening = work->opening;
  bool before = hr_parallel_set_alone(true);
  opening->spins = opening->spins * UINT64_C(6364136223846793005) + 1442695040888963407;
  for (uint64_t i = 0, spins = (opening->spins >> 33) % LATE_SPINS; i < spins; ++i) {
    hr_thread_relax();
  }
  if (work->awaited != NULL) {
    hr_queue_wait(work->awaited, work->number);
  } else if (work->launch.kernel != NULL) {
    HR_ASSERT_OK(late_cpu->launch(opening->cpu, 1, &work->launch));
    hr_host_kernel *copy = (hr_host_kernel *)work->launch.kernel;
    copy->destroy(copy);
  } else if (work->from != NULL) {
    memcpy(work->to, work->from, work->count);
  } else {
    HR_ASSERT_OK(late_cpu->fill(opening->cpu, work->to, work->bytes, work->pattern_bytes, work->count));
  }
  (void)hr_parallel_set_alone(before);
  free(work);
}

static late_work *late_new(void *impl, const void *bytes, size_t count) {
  late_work *work = calloc(1, sizeof *work + count);
  HR_ASSERT_NOT_NULL(work);
  work->job.run = late_run;
  work->opening = impl;
  if (bytes != NULL) {
    memcpy(work->bytes, bytes, count);
  }
  return work;
}

static void late_push(late_work *work) {
  (void)hr_queue_push_within(&work->opening->queue, &work->job, INT_MAX);
}

static hr_status late_open(int ordinal, void **out_impl) {
  late_opening *opening = calloc(1, sizeof *opening);
  HR_ASSERT_OK(late_cpu->open(ordinal, &opening->cpu));
  hr_queue_init(&opening->queue);
  opening->spins = (uintptr_t)opening;
  hr_mutex_lock(&late_mutex);
  int i = 0;
  for (; late_openings[i] != NULL; ++i) {
  }
  late_openings[i] = opening;
  hr_mutex_unlock(&late_mutex);
  *out_impl = opening;
  return HR_OK;
}

static void late_close(void *impl) {
  late_opening *opening = impl;
  hr_queue_close(&opening->queue);
  hr_mutex_lock(&late_mutex);
  for (int i = 0; i < LATE_OPENINGS; ++i) {
    late_openings[i] = late_openings[i] == opening ? NULL : late_openings[i];
  }
  hr_mutex_unlock(&late_mutex);
  hr_queue_fini(&opening->queue);
  late_cpu->close(opening->cpu);
  free(opening);
}

static void late_properties(void *impl, hr_device_properties *out_properties) {
  late_cpu->properties(((late_opening *)impl)->cpu, out_properties);
  out_properties->is_host = false;
}

static void late_memory_info(void *impl, int64_t *out_free_bytes, int64_t *out_total_bytes) {
  late_cpu->memory_info(((late_opening *)impl)->cpu, out_free_bytes, out_total_bytes);
}

static hr_status late_allocate(void *impl, size_t bytes, void **out_address) {
  return late_cpu->allocate(((late_opening *)impl)->cpu, bytes, out_address);
}

static void late_free(void *impl, void *address, size_t bytes) {
  hr_mutex_lock(&late_mutex);
  for (int i = 0; i < LATE_OPENINGS; ++i) {
    if (late_openings[i] != NULL) {
      hr_queue_drain(&late_openings[i]->queue);
    }
  }
  hr_mutex_unlock(&late_mutex);
  memset(address, 0xA5, bytes);
  late_cpu->free(((late_opening *)impl)->cpu, address, bytes);
}

static hr_status late_flush(void *impl) {
  hr_queue_drain(&((late_opening *)impl)->queue);
  return HR_OK;
}

static hr_status late_copy_in(void *impl, void *to, const void *host, size_t bytes) {
  late_work *work = late_new(impl, host, bytes);
  work->to = to, work->from = work->bytes, work->count = bytes;
  late_push(work);
  return HR_OK;
}

static hr_status late_copy_within(void *impl, void *to, const void *from, size_t bytes) {
  late_work *work = late_new(impl, NULL, 0);
  work->to = to, work->from = from, work->count = bytes;
  late_push(work);
  return HR_OK;
}

static hr_status late_copy_out(void *impl, void *host, const void *from, size_t bytes) {
  HR_RETURN_IF_ERROR(late_copy_within(impl, host, from, bytes));
  return late_flush(impl);
}

static hr_status late_fill(void *impl, void *to, const void *pattern, size_t pattern_bytes, size_t count) {
  late_work *work = late_new(impl, pattern, pattern_bytes);
  work->to = to, work->pattern_bytes = pattern_bytes, work->count = count;
  late_push(work);
  return HR_OK;
}

/* The form of the kernel's plan: it runs like the first kernel of all, a fill, which is neither a gather nor a scatter.
 * Each CPU level has a function of its own for that. */
static const hr__form *late_form(const hr_host_kernel *kernel) {
  static _Atomic(uintptr_t) first; /* queues of several streams launch at the same time */
  uintptr_t none = 0, run = (uintptr_t)kernel->run;
  HR_ASSERT(atomic_compare_exchange_strong(&first, &none, run) || none == run);
  return hr__form_of((const hr__plan *)kernel);
}

/* As GPUs keep a kernel that is launched. */
static const hr_host_kernel *late_copy_kernel(const hr_host_kernel *kernel) {
  const hr__plan *plan = (const hr__plan *)kernel;
  size_t own = sizeof *plan + (size_t)hr__form_of(plan)->number_count * sizeof *plan->numbers;
  size_t passes = (size_t)kernel->pass_count * sizeof *kernel->passes;
  hr__plan *copy = hr_malloc(own + passes);
  HR_ASSERT_NOT_NULL(copy);
  memcpy(copy, plan, own);
  copy->base.passes = memcpy((char *)copy + own, kernel->passes, passes);
  hr_interned_retain(hr__form_of(copy));
  hr_interned_retain(hr__slots_of(copy));
  return &copy->base;
}

static void late_launch_one(void *impl, const hr_host_launch *launch) {
  const hr__form *form = late_form(launch->kernel);
  late_work *work = late_new(impl, NULL, 0);
  work->launch = *launch;
  work->launch.kernel = late_copy_kernel(launch->kernel);
  for (int i = 0; i < form->map_count; ++i) {
    int arg = hr__form_maps(form)[i].arg;
    HR_ASSERT(arg < LATE_ARGS);
    if (arg >= 0) {
      work->args[arg] = launch->call.args[arg];
    }
  }
  for (int i = 0; i < form->register_count; ++i) {
    const hr__register *reg = &hr__form_registers(form)[i];
    if (reg->place == HR__PLACE_SCALAR) {
      HR_ASSERT(reg->scalar < LATE_ARGS);
      work->scalars[reg->scalar] = launch->call.scalars[reg->scalar];
    }
  }
  work->launch.call.args = work->args;
  work->launch.call.scalars = work->scalars;
  late_push(work);
}

static hr_status late_launch(void *impl, int count, const hr_host_launch *launches) {
  for (int i = 0; i < count; ++i) {
    late_launch_one(impl, &launches[i]);
  }
  return HR_OK;
}

static hr_status late_call(void *impl, hr_host_fn fn, void *arg) {
  HR_RETURN_IF_ERROR(late_flush(impl));
  return fn(arg);
}

static hr_status late_event_create(void *impl, void **out_event) {
  (void)impl;
  *out_event = calloc(1, sizeof(late_event));
  return HR_OK;
}

static void late_event_destroy(void *impl, void *event) {
  (void)impl;
  free(event);
}

/* A reader may see the new number and the old queue, of which it would wait for too much: all records of an event are
 * of one queue. */
static hr_status late_event_record(void *impl, void *event) {
  late_event *self = event;
  late_opening *opening = impl;
  atomic_store(&self->queue, (uintptr_t)&opening->queue);
  atomic_store(&self->number, atomic_load(&opening->queue.pushed));
  return HR_OK;
}

static hr_status late_event_wait(void *impl, void *event) {
  late_event *self = event;
  (void)impl;
  hr_queue_wait((hr_queue *)atomic_load(&self->queue), atomic_load(&self->number));
  return HR_OK;
}

static hr_status late_event_follow(void *impl, void *event) {
  late_event *self = event;
  late_work *work = late_new(impl, NULL, 0);
  work->awaited = (hr_queue *)atomic_load(&self->queue);
  work->number = atomic_load(&self->number);
  late_push(work);
  return HR_OK;
}

static hr_status late_event_elapsed(void *impl, void *begin, void *end, int64_t *out_ns) {
  (void)impl, (void)begin, (void)end;
  *out_ns = 0;
  return HR_OK;
}

static hr_driver hr__late_driver(void) {
  setenv("HEADRACE_JIT", "off", 1);
  late_cpu = hr__cpu_driver();
  hr_mutex_init(&late_mutex);
  hr_driver driver = *late_cpu;
  driver.open = late_open, driver.close = late_close;
  driver.properties = late_properties, driver.memory_info = late_memory_info;
  driver.allocate = late_allocate, driver.free = late_free;
  driver.copy_in = late_copy_in, driver.copy_out = late_copy_out;
  driver.copy_within = late_copy_within, driver.copy_peer = NULL;
  driver.fill = late_fill, driver.launch = late_launch, driver.call = late_call, driver.flush = late_flush;
  driver.event_create = late_event_create, driver.event_destroy = late_event_destroy;
  driver.event_record = late_event_record, driver.event_wait = late_event_wait;
  driver.event_follow = late_event_follow, driver.event_elapsed = late_event_elapsed;
  return driver;
}

#endif
