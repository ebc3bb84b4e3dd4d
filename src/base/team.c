/* team.c: see team.h.
 *
 *   caller    fields of the loop, job = its number    share 0    shares not yet begun    waits for the others
 *   worker    sees the number, claims its share by an exchange of `taken`, runs it, done = number
 *
 * The thread that sets `taken` to the loop's number runs the share. A late worker finds it set and touches nothing
 * else: the fields of a loop are read only after claiming a share, and stay valid until that share is done.
 *
 * An early job (see team.h) has no shares and is for worker 1. Its function may start loops, until `early_done` is its
 * number:
 *
 *   caller    fields of the job, job = its number     does something else          join: share 0 of its later loops
 *   worker 1  sees the number, claims it              share 1, and share 0 unless begun             early_done = number
 */
#include "base/team.h"

#include <sched.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/context.h"
#include "base/env.h"
#include "base/fork.h"
#include "base/log.h"

/* WORKERS_BITS: one word holds a loop's number and its number of shares. */
enum { LINE = 128, WORKERS_BITS = 11, LOOKS = 64, PATIENCE = 2000, EARLY_WORKER = 1 };
static const int64_t TEAM_WATCH_NS = 1000000;
static const int64_t NEAR_NS = 100000000; /* a library's threads spin for some milliseconds */
/* Successive checks are microseconds apart: a longer gap was time of another process. A busy neighbour takes a core
 * every few milliseconds; a single loss may be the system's own. */
static const int64_t LOSS_NS = 300000, LOOK_NS = 2000000, LOSSES_APART_NS = 30000000, CROWDED_NS = 250000000;

/* The words that one worker and the caller exchange. */
typedef struct place {
  _Alignas(LINE) atomic_uint_least64_t taken; /* the last loop whose share was begun */
  atomic_uint_least64_t done;                 /* the last loop whose share the worker has ended */
} place;

typedef struct team {
  atomic_bool is_taken; /* by the thread whose loop is running, or for an early job */
  hr_range_fn fn;       /* the loop's */
  void *arg;
  int64_t units;
  void (*early)(void *arg);
  void *early_arg;
  hr_context *early_context;
  int limit;        /* of threads, which the loop's caller has set */
  int wanted;       /* threads requested, one less than workers */
  int thread_count; /* threads there are */
  bool watches;     /* threads have cores of their own to spin on */
  hr_thread threads[HR_THREADS_MAX];
  hr_mutex mutex; /* guards sleep */
  hr_cond wake;
  _Alignas(LINE) atomic_uint_least64_t job;
  _Alignas(LINE) atomic_uint_least64_t early_done; /* the last early job that has run */
  _Alignas(LINE) atomic_int sleepers;
  atomic_bool rests, stops;
  atomic_int worker_count;                        /* of parallel loops; 0: not set yet */
  atomic_int peak;                                /* most threads of a loop or a library's call; 0: none of several */
  atomic_int_least64_t library_ns;                /* when a library with a team of its own was called last */
  atomic_int_least64_t lost_ns, crowded_until_ns; /* when a thread lost its core; see hr__team_note_loss */
  place places[HR_THREADS_MAX];
} team;

/* One for the process, because its cores are shared. */
static team own = {.library_ns = INT64_MIN / 2, .lost_ns = INT64_MIN / 2};
static _Thread_local struct {
  bool is_inside, runs_early, is_alone;
  int worker;                    /* of the team; 0: none of its threads */
  int limit;                     /* of threads for its loops; 0: none */
  int64_t looked_ns, process_ns; /* the time, and the process's on all cores, at the last check */
  long switches;                 /* involuntary context switches at the last check */
  hr_thread_interrupt interrupt;
} thread;

hr_thread_interrupt hr_thread_interrupt_set(hr_thread_interrupt interrupt) {
  const hr_thread_interrupt before = thread.interrupt;
  thread.interrupt = interrupt;
  return before;
}

hr_thread_interrupt hr_thread_interrupt_get(void) {
  return thread.interrupt;
}

void hr__run_share(int64_t units, int workers, int worker, hr_range_fn fn, void *arg) {
  int64_t each = units / workers, left = units % workers;
  int64_t begin = each * worker + (worker < left ? worker : left);
  int64_t end = begin + each + (worker < left ? 1 : 0);
  fn(arg, begin, end, worker);
}

static int workers_of(uint64_t job) {
  return (int)(job & ((1 << WORKERS_BITS) - 1));
}

/* Claims the worker's share; true if the calling thread is to run it. */
static bool take(place *p, uint64_t job) {
  uint64_t before = atomic_load_explicit(&p->taken, memory_order_relaxed);
  return before < job && atomic_compare_exchange_strong(&p->taken, &before, job);
}

static bool is_early(uint64_t job) {
  return workers_of(job) == 0;
}

/* Runs the worker's share of the loop unless somebody has begun it. */
static void take_share(int worker, uint64_t job) {
  place *p = &own.places[worker];
  if (worker < workers_of(job) && take(p, job)) {
    int before = hr_thread_limit_set(own.limit);
    hr__run_share(own.units, workers_of(job), worker, own.fn, own.arg);
    (void)hr_thread_limit_set(before);
    atomic_store_explicit(&p->done, job, memory_order_release);
  }
}

/* Runs an early job that this thread has claimed. The team is free afterwards. */
static void run_early(uint64_t job) {
  bool was_inside = thread.is_inside;
  thread.is_inside = false;
  thread.runs_early = true;
  hr_context *before = hr__context_enter(own.early_context);
  own.early(own.early_arg);
  (void)hr__context_enter(before);
  thread.runs_early = false;
  thread.is_inside = was_inside;
  atomic_store_explicit(&own.early_done, job, memory_order_release);
  atomic_store_explicit(&own.is_taken, false, memory_order_release);
}

/* The calling thread is `worker` here. */
static void take_part(int worker, uint64_t job) {
  if (!is_early(job)) {
    take_share(worker, job);
  } else if (worker == EARLY_WORKER && take(&own.places[EARLY_WORKER], job)) {
    run_early(job);
  }
}

/* ---- neighbours ---- */

void hr__team_note_loss(int64_t now_ns) {
  int64_t before = atomic_exchange_explicit(&own.lost_ns, now_ns, memory_order_relaxed);
  if (now_ns - before < LOSSES_APART_NS) {
    atomic_store_explicit(&own.crowded_until_ns, now_ns + CROWDED_NS, memory_order_relaxed);
  }
}

bool hr__team_is_crowded(int64_t now_ns) {
  return now_ns < atomic_load_explicit(&own.crowded_until_ns, memory_order_relaxed);
}

#ifdef RUSAGE_THREAD
static int64_t process_time_ns(void) {
  struct timespec used = {0};
  (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return (int64_t)used.tv_sec * 1000000000 + used.tv_nsec;
}

/* True if this process used all but a twentieth of its cores' time: a thread lost its core to another one of it. */
static bool had_all_cores(int64_t ns, int64_t process_ns) {
  return process_ns >= ns * hr_core_count() / 20 * 19;
}
#endif

void hr__team_look_for_losses(int64_t now_ns) {
#ifdef RUSAGE_THREAD
  struct rusage usage;
  if (now_ns - thread.looked_ns < LOOK_NS || getrusage(RUSAGE_THREAD, &usage) != 0) {
    return;
  }
  int64_t process_ns = process_time_ns();
  int64_t losses = thread.looked_ns != 0 ? usage.ru_nivcsw - thread.switches : 0;
  if (losses > 0 && had_all_cores(now_ns - thread.looked_ns, process_ns - thread.process_ns)) {
    losses = 0;
  }
  if (losses > 1 && now_ns - thread.looked_ns < losses * LOSSES_APART_NS) {
    hr__team_note_loss(now_ns - 1);
  }
  if (losses > 0) {
    hr__team_note_loss(now_ns);
  }
  thread.looked_ns = now_ns;
  thread.process_ns = process_ns;
  thread.switches = usage.ru_nivcsw;
#else
  (void)now_ns;
#endif
}

/* ---- workers ---- */

/* Spins until a loop after `seen` arrives; returns `seen` if none came in time. The caller may need this very core,
 * while a library's thread spins on the other one. So this thread yields its core now and then. */
static uint64_t watch(uint64_t seen) {
  int64_t begin = own.watches ? hr_clock_ns() : 0, before = begin;
  bool watches = own.watches && !hr__team_is_crowded(begin);
  uint64_t job = seen;
  for (int looks = 0; watches && job == seen; ++looks) {
    bool is_round = looks % LOOKS == 0;
    int64_t now = is_round ? hr_clock_ns() : before;
    if (now - before > LOSS_NS) {
      hr__team_note_loss(now);
      break;
    }
    if (atomic_load_explicit(&own.rests, memory_order_relaxed) || now > begin + TEAM_WATCH_NS) {
      break;
    }
    before = now;
    if (is_round) {
      sched_yield();
    }
    hr_thread_relax();
    job = atomic_load_explicit(&own.job, memory_order_acquire);
  }
  return job;
}

/* Sleeps until there is a loop after `seen`, or the team ends. The caller stores the number and then reads `sleepers`;
 * a worker stores `sleepers` and then reads the number. So one of them sees the other. */
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

/* The main function of a team's thread; the argument is its worker number. */
static void run_worker(void *opaque) {
  (void)hr__context_enter(&hr__context_first); /* loops of all contexts run here */
  int worker = thread.worker = (int)(intptr_t)opaque;
  uint64_t seen = atomic_load_explicit(&own.places[worker].done, memory_order_relaxed);
  thread.is_inside = true;
  while (!atomic_load_explicit(&own.stops, memory_order_relaxed)) {
    uint64_t job = watch(seen);
    job = job == seen ? sleep_until_called(seen) : job;
    if (job != seen) {
      take_part(worker, job);
    }
    seen = job;
  }
}

/* ---- their number ---- */

/* Those of the process. */
static int count_workers(void) {
  int count = atomic_load_explicit(&own.worker_count, memory_order_relaxed);
  if (__builtin_expect(count == 0, 0)) {
    hr_thread_count_set(0);
    count = atomic_load_explicit(&own.worker_count, memory_order_relaxed);
  }
  return count;
}

int hr_thread_count(void) {
  int count = count_workers(), limit = thread.limit;
  return limit == 0 || limit > count ? count : limit;
}

int hr_thread_limit_set(int limit) {
  int before = thread.limit;
  thread.limit = limit;
  return before;
}

void hr__team_note_threads(int count) {
  int before = atomic_load_explicit(&own.peak, memory_order_relaxed);
  while (__builtin_expect(before < count, 0) && !atomic_compare_exchange_weak(&own.peak, &before, count)) {
  }
}

int hr_parallel_peak_take(void) {
  int count = atomic_exchange(&own.peak, 0);
  return count > 0 ? count : 1;
}

/* The cores that this process may use belong to it alone if its launcher has more of them. */
static int share_of_cores(void) {
  int cores = hr_core_count(), ranks = hr_local_ranks();
#ifdef __linux__
  cpu_set_t set;
  if (ranks > 1 && sched_getaffinity(getppid(), sizeof set, &set) == 0 && CPU_COUNT(&set) > cores) {
    return cores;
  }
#endif
  return cores > ranks ? cores / ranks : 1;
}

void hr_thread_count_set(int count) {
  if (count <= 0) {
    count = (int)hr_env_int(HR_ENV_THREADS);
  }
  if (count <= 0) {
    count = share_of_cores();
  }
  atomic_store(&own.worker_count, count < HR_THREADS_MAX ? count : HR_THREADS_MAX);
}

static void wake_all(void) {
  hr_mutex_lock(&own.mutex);
  hr_cond_broadcast(&own.wake);
  hr_mutex_unlock(&own.mutex);
}

static void stop_threads(void) {
  atomic_store(&own.stops, true);
  wake_all();
  for (int i = 0; i < own.thread_count; ++i) {
    hr_thread_join(&own.threads[i]);
  }
  own.thread_count = 0;
  hr_cond_fini(&own.wake);
  hr_mutex_fini(&own.mutex);
}

/* A child of fork has this thread alone; the state of the others is reset. */
void hr__team_forget(void) {
  own.wanted = own.thread_count = 0;
  atomic_store(&own.is_taken, false);
  atomic_store(&own.sleepers, 0);
  thread.is_inside = thread.runs_early = false;
  thread.worker = 0;
}

/* Resizes the team to `count` threads, or fewer if the system refuses more. The system is not asked again. */
static void resize(int count) {
  if (own.wanted == count) {
    return;
  }
  if (own.thread_count > 0) {
    stop_threads();
  }
  (void)hr__fork_prepare(); /* if it fails, a child of fork must not run loops */
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
    if (status != HR_OK) {
      hr_log(HR_LOG_DEVICE, "parallel loop: %s; %d workers", hr_status_message(status), worker);
      hr_status_ignore(status);
      return;
    }
    own.thread_count = worker;
  }
}

/* ---- loops ---- */

static uint64_t next_job(int workers) {
  uint64_t before = atomic_load_explicit(&own.job, memory_order_relaxed);
  return ((before >> WORKERS_BITS) + 1) << WORKERS_BITS | (uint64_t)workers;
}

/* The fields of the job must be set. */
static void announce(uint64_t job) {
  if (atomic_load_explicit(&own.rests, memory_order_relaxed)) {
    atomic_store(&own.rests, false);
  }
  atomic_store(&own.job, job);
  if (atomic_load(&own.sleepers) > 0) {
    wake_all();
  }
}

/* A slow worker may have lost its core to this thread. */
static void look_again(int looks) {
  if (looks < PATIENCE) {
    hr_thread_relax();
  } else {
    sched_yield();
  }
}

static void wait_for(const place *p, uint64_t job) {
  for (int looks = 0; atomic_load_explicit(&p->done, memory_order_acquire) != job; ++looks) {
    look_again(looks);
  }
}

/* The calling thread is worker `self` and claims its share before other threads can see the loop. */
static void run_loop(int64_t units, int workers, int self, hr_range_fn fn, void *arg) {
  uint64_t job = next_job(workers);
  own.units = units, own.fn = fn, own.arg = arg, own.limit = thread.limit;
  atomic_store_explicit(&own.places[self].taken, job, memory_order_relaxed);
  announce(job);
  hr__run_share(units, workers, self, fn, arg);
  for (int worker = workers - 1; worker >= 0; --worker) {
    if (worker != self) {
      take_share(worker, job);
    }
  }
  for (int worker = 0; worker < workers; ++worker) {
    if (worker != self) {
      wait_for(&own.places[worker], job);
    }
  }
}

bool hr__team_is_inside(void) {
  return thread.is_inside || thread.is_alone;
}

bool hr_parallel_set_alone(bool is_alone) {
  bool before = thread.is_alone;
  thread.is_alone = is_alone;
  return before;
}

bool hr__team_is_near_library(void) {
  int64_t now = hr_clock_ns();
  hr__team_look_for_losses(now);
  return !hr__team_runs_early() && now - atomic_load_explicit(&own.library_ns, memory_order_relaxed) < NEAR_NS;
}

void hr__team_leave_to_library(void) {
  int64_t now = hr_clock_ns();
  hr__team_look_for_losses(now);
  atomic_store_explicit(&own.library_ns, now, memory_order_relaxed);
  hr__team_rest();
}

void hr__team_rest(void) {
  if (!atomic_load_explicit(&own.rests, memory_order_relaxed)) {
    atomic_store(&own.rests, true);
  }
}

bool hr__team_runs_early(void) {
  return thread.runs_early && !thread.is_inside;
}

static bool take_team(void) {
  return !atomic_load_explicit(&own.is_taken, memory_order_relaxed) &&
         !atomic_exchange_explicit(&own.is_taken, true, memory_order_acquire);
}

bool hr__team_run(int64_t units, int workers, hr_range_fn fn, void *arg) {
  bool runs_early = thread.runs_early;
  if (!runs_early) {
    if (!take_team()) {
      return false;
    }
    resize(count_workers() - 1);
  }
  thread.is_inside = true;
  run_loop(units, workers <= own.thread_count + 1 ? workers : own.thread_count + 1, thread.worker, fn, arg);
  thread.is_inside = false;
  if (!runs_early) {
    atomic_store_explicit(&own.is_taken, false, memory_order_release);
  }
  return true;
}

/* ---- early jobs ---- */

bool hr__team_submit_early(void (*fn)(void *arg), void *arg, uint64_t *out_early) {
  if (thread.is_inside || thread.runs_early || !take_team()) {
    return false;
  }
  bool is_awake = own.thread_count >= EARLY_WORKER && own.wanted == count_workers() - 1 &&
                  !atomic_load_explicit(&own.rests, memory_order_relaxed) && atomic_load(&own.sleepers) == 0;
  if (!is_awake) {
    atomic_store_explicit(&own.is_taken, false, memory_order_release);
    return false;
  }
  own.early = fn, own.early_arg = arg, own.early_context = hr__context();
  *out_early = next_job(0);
  announce(*out_early);
  return true;
}

/* Share 0 is left for the thread that joins. In loops of other threads it is claimed before they become visible. */
void hr__team_join(uint64_t early) {
  if (take(&own.places[EARLY_WORKER], early)) {
    run_early(early);
    return;
  }
  uint64_t seen = early, job = early;
  for (int looks = 0; atomic_load_explicit(&own.early_done, memory_order_acquire) < early; ++looks) {
    if (job != seen) {
      seen = job;
      thread.is_inside = true;
      take_share(0, job);
      thread.is_inside = false;
      looks = 0;
    } else {
      look_again(looks);
    }
    job = atomic_load_explicit(&own.job, memory_order_acquire);
  }
}
