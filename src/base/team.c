/* team.c: see team.h.
 *
 *   caller    fields of the loop, job = its number    share 0    shares that nobody has begun    waits for the others
 *   worker    sees the number, takes its share by an exchange of its own `taken`, runs it, done = number
 *
 * Whoever sets `taken` to the loop's number runs the share. A worker that comes late finds it set, and touches nothing else: the
 * fields of a loop are read behind a share that was taken, and stay until that share is done.
 */
#include "base/team.h"

#include <sched.h>
#include <stdatomic.h>

#include "base/log.h"

/* WORKERS_BITS: a loop's number and how many have a share of it are one word. */
enum { LINE = 128, WORKERS_BITS = 11, LOOKS = 64, PATIENCE = 2000 };
static const int64_t TEAM_WATCH_NS = 200000;

/* What one worker and the caller exchange. */
typedef struct place {
  _Alignas(LINE) atomic_uint_least64_t taken; /* the last loop of which the share was begun */
  atomic_uint_least64_t done;                 /* and ended, by the worker */
} place;

typedef struct team {
  hr_mutex caller; /* held by the thread whose loop is running */
  hr_range_fn fn;  /* the loop's */
  void *arg;
  int64_t units;
  int wanted;       /* threads asked for, one less than workers */
  int thread_count; /* threads there are */
  bool watches;     /* threads have cores of their own to look out on */
  hr_thread threads[HR_THREADS_MAX];
  hr_mutex mutex; /* guards sleep */
  hr_cond wake;
  _Alignas(LINE) atomic_uint_least64_t job;
  atomic_int sleepers;
  atomic_bool rests, stops;
  place places[HR_THREADS_MAX];
} team;

static team own = {.caller = HR_MUTEX_INITIALIZER};
static _Thread_local bool thread_is_inside;

void hr__run_share(int64_t units, int workers, int worker, hr_range_fn fn, void *arg) {
  int64_t each = units / workers, left = units % workers;
  int64_t begin = each * worker + (worker < left ? worker : left);
  int64_t end = begin + each + (worker < left ? 1 : 0);
  fn(arg, begin, end, worker);
}

static int workers_of(uint64_t job) {
  return (int)(job & ((1 << WORKERS_BITS) - 1));
}

/* Whether the calling thread is the one to run the worker's share. */
static bool take(place *p, uint64_t job) {
  uint64_t before = atomic_load_explicit(&p->taken, memory_order_relaxed);
  return before < job && atomic_compare_exchange_strong(&p->taken, &before, job);
}

/* ---- workers ---- */

/* Looks out for a loop behind `seen`; gives `seen` when none has come in time. */
static uint64_t watch(uint64_t seen) {
  int64_t end = own.watches ? hr_clock_ns() + TEAM_WATCH_NS : 0;
  uint64_t job = seen;
  for (int looks = 0; own.watches && job == seen; looks++) {
    if (atomic_load_explicit(&own.rests, memory_order_relaxed) || (looks % LOOKS == 0 && hr_clock_ns() > end)) {
      break;
    }
    hr_thread_relax();
    job = atomic_load_explicit(&own.job, memory_order_acquire);
  }
  return job;
}

/* Sleeps until there is a loop behind `seen`, or the team ends. The caller looks for sleepers behind its store of the number, and
 * a worker for the number behind its own of `sleepers`: one of them sees the other. */
static uint64_t sleep_until_called(uint64_t seen) {
  uint64_t job;
  hr_mutex_lock(&own.mutex);
  atomic_fetch_add(&own.sleepers, 1);
  while ((job = atomic_load(&own.job)) == seen && !atomic_load(&own.stops)) {
    hr_cond_wait(&own.wake, &own.mutex);
  }
  atomic_fetch_sub(&own.sleepers, 1);
  hr_mutex_unlock(&own.mutex);
  return job;
}

/* A thread of the team; its worker number comes as the argument. */
static void run_worker(void *opaque) {
  int worker = (int)(intptr_t)opaque;
  place *p = &own.places[worker];
  uint64_t seen = atomic_load_explicit(&p->done, memory_order_relaxed);
  thread_is_inside = true;
  while (!atomic_load_explicit(&own.stops, memory_order_relaxed)) {
    uint64_t job = watch(seen);
    job = job == seen ? sleep_until_called(seen) : job;
    if (job != seen && worker < workers_of(job) && take(p, job)) {
      hr__run_share(own.units, workers_of(job), worker, own.fn, own.arg);
      atomic_store_explicit(&p->done, job, memory_order_release);
    }
    seen = job;
  }
}

/* ---- their number ---- */

static void wake_all(void) {
  hr_mutex_lock(&own.mutex);
  hr_cond_broadcast(&own.wake);
  hr_mutex_unlock(&own.mutex);
}

static void stop_threads(void) {
  atomic_store(&own.stops, true);
  wake_all();
  for (int i = 0; i < own.thread_count; i++) {
    hr_thread_join(&own.threads[i]);
  }
  own.thread_count = 0;
  hr_cond_fini(&own.wake);
  hr_mutex_fini(&own.mutex);
}

/* The child has this thread alone; what it leaves behind of the others is made anew. */
static void forget_threads(void) {
  hr_mutex_init(&own.caller);
  own.wanted = own.thread_count = 0;
  atomic_store(&own.sleepers, 0);
  thread_is_inside = false;
}

static void prepare_fork(void) {
  static atomic_bool is_prepared;
  if (!atomic_exchange(&is_prepared, true)) {
    (void)pthread_atfork(NULL, NULL, forget_threads); /* without it a child of fork must not loop */
  }
}

/* Brings the team to `count` threads; fewer if the system gives no more, which is not asked again. */
static void resize(int count) {
  if (own.wanted == count) {
    return;
  }
  if (own.thread_count > 0) {
    stop_threads();
  }
  prepare_fork();
  own.wanted = count;
  own.watches = count < hr_core_count();
  hr_mutex_init(&own.mutex);
  hr_cond_init(&own.wake);
  atomic_store(&own.stops, false);
  while (own.thread_count < count) {
    int worker = own.thread_count + 1;
    atomic_store(&own.places[worker].done, atomic_load(&own.job));
    hr_status status =
        hr_thread_start("headrace-worker", run_worker, (void *)(intptr_t)worker, &own.threads[worker - 1]);
    if (status != NULL) {
      hr_log(HR_LOG_DEVICE, "parallel loop: %s; %d workers", hr_status_message(status), worker);
      hr_status_ignore(status);
      return;
    }
    own.thread_count = worker;
  }
}

/* ---- loops ---- */

static uint64_t announce(int64_t units, int workers, hr_range_fn fn, void *arg) {
  uint64_t before = atomic_load_explicit(&own.job, memory_order_relaxed);
  uint64_t job = ((before >> WORKERS_BITS) + 1) << WORKERS_BITS | (uint64_t)workers;
  own.units = units, own.fn = fn, own.arg = arg;
  if (atomic_load_explicit(&own.rests, memory_order_relaxed)) {
    atomic_store(&own.rests, false);
  }
  atomic_store(&own.job, job);
  if (atomic_load(&own.sleepers) > 0) {
    wake_all();
  }
  return job;
}

/* A worker that takes long may have lost its core to this thread. */
static void wait_for(const place *p, uint64_t job) {
  for (int looks = 0; atomic_load_explicit(&p->done, memory_order_acquire) != job; looks++) {
    if (looks < PATIENCE) {
      hr_thread_relax();
    } else {
      sched_yield();
    }
  }
}

static void run_loop(int64_t units, int workers, hr_range_fn fn, void *arg) {
  uint64_t job = announce(units, workers, fn, arg);
  hr__run_share(units, workers, 0, fn, arg);
  for (int worker = workers - 1; worker > 0; worker--) {
    if (take(&own.places[worker], job)) {
      hr__run_share(units, workers, worker, fn, arg);
      atomic_store_explicit(&own.places[worker].done, job, memory_order_relaxed);
    }
  }
  for (int worker = 1; worker < workers; worker++) {
    wait_for(&own.places[worker], job);
  }
}

bool hr__team_is_inside(void) {
  return thread_is_inside;
}

void hr__team_rest(void) {
  if (!atomic_load_explicit(&own.rests, memory_order_relaxed)) {
    atomic_store(&own.rests, true);
  }
}

bool hr__team_run(int64_t units, int workers, hr_range_fn fn, void *arg) {
  if (!hr_mutex_try_lock(&own.caller)) {
    return false;
  }
  resize(hr_thread_count() - 1);
  thread_is_inside = true;
  run_loop(units, workers <= own.thread_count + 1 ? workers : own.thread_count + 1, fn, arg);
  thread_is_inside = false;
  hr_mutex_unlock(&own.caller);
  return true;
}
