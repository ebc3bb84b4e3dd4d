/* The parallel loop, on one of two teams: OpenMP's, and one of our own (team.h).
 *
 * Our own begins and ends a loop sooner. OpenMP's is the one that oneDNN and frameworks use, and two teams that both
 * look out for work fight for the cores: so near a library's calls loops run on the library's team, and a library that
 * is about to run sends ours to sleep. Without OpenMP there is our own alone.
 *
 * OpenMP's always runs as a whole, even when fewer workers have units: libgomp ends the threads that a smaller region
 * leaves over and starts them again for the next larger one, which costs more than letting them find nothing. */
#include <stdbool.h>

#include "base/team.h"

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

void hr_library_enters(void) {
  hr__team_leave_to_library();
}

static bool inside_loop(void) {
  return hr__team_is_inside() || omp_in_parallel();
}

static void run_openmp(int64_t units, int workers, hr_range_fn fn, void *arg) {
  int threads = hr_thread_count();
#pragma omp parallel num_threads(threads)
  {
    /* The runtime may grant a smaller team than asked: then a thread takes several shares. */
    for (int worker = omp_get_thread_num(); worker < workers; worker += omp_get_num_threads()) {
      hr__run_share(units, workers, worker, fn, arg);
    }
  }
}

static void run_team(int64_t units, int workers, hr_range_fn fn, void *arg) {
  if (hr__team_is_near_library() || !hr__team_run(units, workers, fn, arg)) {
    run_openmp(units, workers, fn, arg);
  }
}

#else

int hr_library_threads_set(int count) {
  return count;
}

void hr_library_enters(void) {}

static bool inside_loop(void) {
  return hr__team_is_inside();
}

/* A caller that finds the team taken by another thread runs its loop alone. */
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
    run_team(units, workers, fn, arg);
  }
}
