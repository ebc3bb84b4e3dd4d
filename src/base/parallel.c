/* The parallel loop, twice: on OpenMP's team, and on a pool of our own.
 *
 * Both always engage the whole team, even when fewer workers have units: libgomp ends the threads that a smaller region
 * leaves over and starts them again for the next larger one, which costs more than letting them find nothing.
 *
 * The pool: workers sleep until the job number changes, run their share, and the last one wakes the caller. A caller
 * that finds the pool taken by another thread runs its loop alone. The pool's threads live until the process ends, and
 * are replaced when the number of workers changes. */
#include <stdbool.h>

#include "base/thread.h"

/* The units of worker `worker` of `workers`: shares differ by at most one. */
static void run_share(int64_t units, int workers, int worker, hr_range_fn fn, void *arg) {
  int64_t each = units / workers, left = units % workers;
  int64_t begin = each * worker + (worker < left ? worker : left);
  int64_t end = begin + each + (worker < left ? 1 : 0);
  fn(arg, begin, end, worker);
}

/* How many workers get a share. */
static int worker_limit(int64_t units, int64_t grain) {
  int64_t shares = grain > 1 ? units / grain : units;
  int threads = hr_thread_count();
  return shares < threads ? (shares > 1 ? (int)shares : 1) : threads;
}

#ifdef HR_USE_OPENMP

#include <omp.h>

int hr_library_threads_set(int count) {
  int before = omp_get_max_threads();
  if (before != count) {
    omp_set_num_threads(count);
  }
  return before;
}

static bool inside_loop(void) {
  return omp_in_parallel();
}

static void run_team(int64_t units, int workers, hr_range_fn fn, void *arg) {
  int threads = hr_thread_count();
#pragma omp parallel num_threads(threads)
  {
    /* The runtime may grant a smaller team than asked: then a thread takes several shares. */
    for (int worker = omp_get_thread_num(); worker < workers; worker += omp_get_num_threads()) {
      run_share(units, workers, worker, fn, arg);
    }
  }
}

#else

#include "base/log.h"

int hr_library_threads_set(int count) {
  return count;
}

typedef struct pool {
  hr_mutex caller; /* held by the thread whose loop is running */
  hr_mutex mutex;  /* guards what follows */
  hr_cond wake, done;
  int64_t job; /* number of the current loop */
  int running; /* pool threads that have not finished it */
  bool stop;
  int wanted;       /* pool threads asked for, one less than workers */
  int thread_count; /* pool threads there are */
  int64_t units;
  int workers;
  hr_range_fn fn;
  void *arg;
  hr_thread threads[HR_THREADS_MAX];
} pool;

static pool team = {.caller = HR_MUTEX_INITIALIZER, .mutex = HR_MUTEX_INITIALIZER};
static _Thread_local bool thread_is_inside;

static bool inside_loop(void) {
  return thread_is_inside;
}

/* A pool thread; its worker number comes as the argument. */
static void run_worker(void *opaque) {
  int worker = (int)(intptr_t)opaque;
  thread_is_inside = true;
  hr_mutex_lock(&team.mutex);
  for (int64_t seen = 0;;) {
    while (team.job == seen && !team.stop) {
      hr_cond_wait(&team.wake, &team.mutex);
    }
    if (team.stop) {
      break;
    }
    seen = team.job;
    hr_mutex_unlock(&team.mutex);
    if (worker < team.workers) {
      run_share(team.units, team.workers, worker, team.fn, team.arg);
    }
    hr_mutex_lock(&team.mutex);
    if (--team.running == 0) {
      hr_cond_signal(&team.done);
    }
  }
  hr_mutex_unlock(&team.mutex);
}

static void stop_threads(void) {
  hr_mutex_lock(&team.mutex);
  team.stop = true;
  hr_cond_broadcast(&team.wake);
  hr_mutex_unlock(&team.mutex);
  for (int i = 0; i < team.thread_count; i++) {
    hr_thread_join(&team.threads[i]);
  }
  hr_cond_fini(&team.wake);
  hr_cond_fini(&team.done);
}

/* Brings the pool to `count` threads; fewer if the system gives no more, which is not asked again. */
static void resize(int count) {
  if (team.wanted == count) {
    return;
  }
  team.wanted = count;
  if (team.thread_count > 0) {
    stop_threads();
  }
  hr_cond_init(&team.wake);
  hr_cond_init(&team.done);
  team.stop = false;
  team.job = 0;
  team.thread_count = 0;
  while (team.thread_count < count) {
    int worker = team.thread_count + 1;
    hr_status status =
        hr_thread_start("headrace-worker", run_worker, (void *)(intptr_t)worker, &team.threads[worker - 1]);
    if (status != NULL) {
      hr_log(HR_LOG_DEVICE, "parallel loop: %s; %d workers", hr_status_message(status), worker);
      hr_status_ignore(status);
      return;
    }
    team.thread_count = worker;
  }
}

static void run_team(int64_t units, int workers, hr_range_fn fn, void *arg) {
  if (!hr_mutex_try_lock(&team.caller)) {
    fn(arg, 0, units, 0);
    return;
  }
  resize(hr_thread_count() - 1);
  workers = workers <= team.thread_count + 1 ? workers : team.thread_count + 1;
  hr_mutex_lock(&team.mutex);
  team.units = units;
  team.workers = workers;
  team.fn = fn;
  team.arg = arg;
  team.running = team.thread_count;
  team.job++;
  hr_cond_broadcast(&team.wake);
  hr_mutex_unlock(&team.mutex);
  thread_is_inside = true;
  run_share(units, workers, 0, fn, arg);
  thread_is_inside = false;
  hr_mutex_lock(&team.mutex);
  while (team.running > 0) {
    hr_cond_wait(&team.done, &team.mutex);
  }
  hr_mutex_unlock(&team.mutex);
  hr_mutex_unlock(&team.caller);
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
    run_team(units, workers, fn, arg);
  }
}
