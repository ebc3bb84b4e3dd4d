/* The parallel loop, on one of two thread teams: OpenMP's, or our own (team.h).
 *
 * Our own team starts and ends a loop sooner. oneDNN and frameworks use OpenMP's, and two spinning teams compete for
 * the cores. So loops close to a library's calls run on OpenMP's team, and a library call first puts ours to sleep.
 * Without OpenMP only our own exists.
 *
 * OpenMP's team always runs whole, even if fewer workers have units. libgomp ends the threads that a smaller region
 * leaves over and starts new ones for the next larger region, which costs more than idle workers. */
#include <stdbool.h>
#include <string.h>

#include "base/context.h"
#include "base/team.h"

/* The number of workers that get a share. */
static int worker_limit(int64_t units, int64_t grain) {
  int64_t shares = grain > 1 ? units / grain : units;
  int threads = hr_thread_count();
  return shares < threads ? (shares > 1 ? (int)shares : 1) : threads;
}

#ifdef HR_USE_OPENMP

#include <dlfcn.h>
#include <omp.h>

/* ---- OpenMP's threads beside busy neighbours ----
 *
 * libgomp's threads spin for milliseconds before they sleep: while they wait for work, and at the end of a region. If
 * another process has a core, each region then costs several scheduler time slices. libgomp spins much less while the
 * process has more of its threads than cores (GOMP_SPINCOUNT in its manual). So while the machine is crowded, one more
 * thread, which sleeps, holds a team of two. */
typedef struct holder {
  hr_mutex mutex;
  hr_cond wake;
  hr_thread thread;
  bool is_on, stops;
} holder;

static const int64_t HOLD_NS = 300000000;

static void init_holder(void *part) {
  holder *h = part;
  hr_mutex_init(&h->mutex);
  hr_cond_init(&h->wake);
}

/* The process ends. */
static void stop_holder(void *part) {
  holder *h = part;
  hr_mutex_lock(&h->mutex);
  h->stops = true;
  hr_cond_broadcast(&h->wake);
  hr_mutex_unlock(&h->mutex);
  hr_thread_join(&h->thread);
}

static void begin_fork(void *part) {
  hr_mutex_lock(&((holder *)part)->mutex);
}

static void end_fork(void *part, bool is_child) {
  holder *h = part;
  if (is_child) {
    h->thread = (hr_thread){0};
    h->is_on = false;
    hr_cond_init(&h->wake);
  }
  hr_mutex_unlock(&h->mutex);
}

static holder *own_holder(void) {
  static const hr_context_part kind = {.bytes = sizeof(holder),
                                       .init = init_holder,
                                       .stop = stop_holder,
                                       .begin_fork = begin_fork,
                                       .end_fork = end_fork};
  return hr__context_part(&hr__context_first, HR_CONTEXT_HOLDER, &kind);
}

static void hold(void *arg) {
  holder *h = arg;
  int64_t end = 0;
#pragma omp parallel num_threads(2)
  { /* the second thread stays with this one; an empty region would be optimised away */
    hr_thread_relax();
  }
  hr_mutex_lock(&h->mutex);
  while (!h->stops) {
    int64_t now = hr_clock_ns();
    end = hr__team_is_crowded(now) || end == 0 ? now + HOLD_NS : end;
    if (now >= end) {
      break;
    }
    (void)hr_cond_wait_until(&h->wake, &h->mutex, end);
  }
  h->is_on = false;
  hr_mutex_unlock(&h->mutex);
}

static void hold_while_crowded(void) {
  if (!hr__team_is_crowded(hr_clock_ns())) {
    return;
  }
  holder *h = own_holder();
  hr_mutex_lock(&h->mutex);
  if (!h->is_on && !h->stops) {
    hr_thread_join(&h->thread); /* of the previous time; it has ended */
    hr_status status = hr_thread_start("headrace-hold", hold, h, &h->thread);
    h->is_on = status == HR_OK;
    hr_status_ignore(status);
  }
  hr_mutex_unlock(&h->mutex);
}

/* ---- its loops ---- */

int hr_library_threads_set(int count) {
  int before = omp_get_max_threads();
  if (before != count) {
    omp_set_num_threads(count);
  }
  return before;
}

/* libgomp's team of a thread does not survive a fork: the child's next region would wait for it for ever. So the
 * thread that forks ends its team, and gets another one with its next region. The function is of OpenMP 5.0: the
 * libgomp of systems with glibc 2.28, which wheels are for, lacks it. */
void hr__parallel_begin_fork(void) {
  enum { HARD = 2 }; /* omp_pause_hard */
  void *found = dlsym(RTLD_DEFAULT, "omp_pause_resource_all");
  if (found != NULL && !omp_in_parallel()) {
    int (*pause)(int kind);
    memcpy(&pause, &found, sizeof pause);
    (void)pause(HARD);
  }
}

void hr_library_enters(int threads) {
  hr__team_note_threads(threads);
  hr__team_leave_to_library();
  hold_while_crowded();
}

static bool inside_loop(void) {
  return hr__team_is_inside() || omp_in_parallel();
}

static void run_openmp(int64_t units, int workers, hr_range_fn fn, void *arg) {
  hold_while_crowded();
  int threads = hr_thread_count(), limit = hr_thread_limit_set(0);
#pragma omp parallel num_threads(threads)
  {
    /* The runtime may grant fewer threads than requested: a thread then runs several shares. */
    (void)hr_thread_limit_set(limit);
    for (int worker = omp_get_thread_num(); worker < workers; worker += omp_get_num_threads()) {
      hr__run_share(units, workers, worker, fn, arg);
    }
    (void)hr_thread_limit_set(0);
  }
  (void)hr_thread_limit_set(limit);
}

static void run_team(int64_t units, int workers, hr_range_fn fn, void *arg) {
  if (hr__team_is_near_library() || !hr__team_run(units, workers, fn, arg)) {
    run_openmp(units, workers, fn, arg);
  }
}

#else

void hr__parallel_begin_fork(void) {}

int hr_library_threads_set(int count) {
  return count;
}

void hr_library_enters(int threads) {
  hr__team_note_threads(threads);
}

static bool inside_loop(void) {
  return hr__team_is_inside();
}

/* If another thread is using the team, the caller runs its loop alone. */
static void run_team(int64_t units, int workers, hr_range_fn fn, void *arg) {
  if (!hr__team_run(units, workers, fn, arg)) {
    fn(arg, 0, units, 0);
  }
}

#endif

void hr_parallel_for(int64_t units, int64_t grain, hr_range_fn fn, void *arg) {
  if (units <= 0) {
    return;
  }
  int workers = inside_loop() ? 1 : worker_limit(units, grain);
  if (workers == 1) {
    fn(arg, 0, units, 0);
  } else {
    hr__team_note_threads(workers);
    run_team(units, workers, fn, arg);
  }
}

/* ---- copies ---- */

typedef struct copy_work {
  char *to;
  const char *from;
} copy_work;

static void copy_range(void *arg, int64_t begin, int64_t end, int worker) {
  (void)worker;
  const copy_work *work = arg;
  memcpy(work->to + begin, work->from + begin, (size_t)(end - begin));
}

void hr_parallel_copy(void *to, const void *from, size_t bytes) {
  copy_work work = {to, from};
  hr_parallel_for((int64_t)bytes, 1 << 18, copy_range, &work);
}
