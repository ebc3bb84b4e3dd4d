/* Threads, the parallel loop, dynamic libraries. */
#include "base/thread.h"

#include <sched.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/dynlib.h"
#include "base/team.h"
#include "hr_test.h"

enum { UNITS = 1003 };

typedef struct visit_log {
  atomic_int visits[UNITS];
  atomic_int calls, worker_max;
  atomic_int busy[HR_THREADS_MAX]; /* a worker number is used by one thread at a time */
  atomic_bool clash;
} visit_log;

static void visit(void *arg, int64_t begin, int64_t end, int worker) {
  visit_log *log = arg;
  if (atomic_exchange(&log->busy[worker], 1) != 0) {
    atomic_store(&log->clash, true);
  }
  for (int64_t i = begin; i < end; ++i) {
    atomic_fetch_add(&log->visits[i], 1);
  }
  atomic_fetch_add(&log->calls, 1);
  if (worker > atomic_load(&log->worker_max)) {
    atomic_store(&log->worker_max, worker);
  }
  atomic_store(&log->busy[worker], 0);
}

static void assert_all_visited(visit_log *log, int64_t units) {
  for (int64_t i = 0; i < UNITS; ++i) {
    HR_ASSERT_EQ(log->visits[i], i < units ? 1 : 0);
  }
  HR_ASSERT(!log->clash);
}

HR_TEST(parallel_for_visits_each_unit_once) {
  static const int threads[] = {1, 2, 3, 7, 2, 0};
  for (size_t t = 0; t < sizeof threads / sizeof *threads; ++t) {
    hr_thread_count_set(threads[t]);
    for (int64_t units = 0; units <= UNITS; units += units < 10 ? 1 : 331) {
      static visit_log log;
      memset(&log, 0, sizeof log);
      hr_parallel_for(units, 1, visit, &log);
      assert_all_visited(&log, units);
      HR_ASSERT(log.worker_max < hr_thread_count());
    }
  }
}

HR_TEST(parallel_for_honours_the_grain) {
  hr_thread_count_set(4);
  static visit_log log;
  hr_parallel_for(1000, 1000, visit, &log);
  HR_ASSERT_EQ(log.calls, 1);
  memset(&log, 0, sizeof log);
  hr_parallel_for(999, 400, visit, &log);
  HR_ASSERT_EQ(log.calls, 2);
  assert_all_visited(&log, 999);
  hr_thread_count_set(0);
}

static void visit_nested(void *arg, int64_t begin, int64_t end, int worker) {
  (void)worker;
  for (int64_t i = begin; i < end; ++i) {
    static visit_log inner[4];
    hr_parallel_for(UNITS, 1, visit, &inner[i]);
    atomic_fetch_add((atomic_int *)arg, atomic_load(&inner[i].calls));
  }
}

HR_TEST(nested_loops_run_inline) {
  hr_thread_count_set(2);
  atomic_int calls = 0;
  hr_parallel_for(4, 1, visit_nested, &calls);
  HR_ASSERT_EQ(calls, 4);
  hr_thread_count_set(0);
}

HR_TEST(a_thread_may_run_its_loops_alone) {
  static visit_log alone, together;
  memset(&alone, 0, sizeof alone);
  memset(&together, 0, sizeof together);
  hr_thread_count_set(2);
  HR_ASSERT(!hr_parallel_set_alone(true));
  hr_parallel_for(UNITS, 1, visit, &alone);
  HR_ASSERT(hr_parallel_set_alone(false));
  hr_parallel_for(UNITS, 1, visit, &together);
  HR_ASSERT_EQ(alone.calls, 1);
  HR_ASSERT_EQ(together.calls, 2);
  assert_all_visited(&alone, UNITS);
  hr_thread_count_set(0);
}

static void run_loops(void *arg) {
  (void)arg;
  for (int i = 0; i < 50; ++i) {
    static _Thread_local visit_log log;
    memset(&log, 0, sizeof log);
    hr_parallel_for(UNITS, 1, visit, &log);
    for (int64_t k = 0; k < UNITS; ++k) {
      if (log.visits[k] != 1) {
        abort();
      }
    }
  }
}

HR_TEST(two_threads_can_loop_at_once) {
  hr_thread_count_set(2);
  hr_thread thread = {0};
  HR_ASSERT_OK(hr_thread_start("looper", run_loops, NULL, &thread));
  run_loops(NULL);
  hr_thread_join(&thread);
  hr_thread_count_set(0);
}

typedef struct relay {
  int64_t values[4]; /* one for each share */
  int64_t count;
} relay;

static void pass_on(void *arg, int64_t begin, int64_t end, int worker) {
  (void)worker;
  relay *r = arg;
  for (int64_t i = begin; i < end; ++i) {
    r->values[i] = (3 * r->values[i] + i) & 0xffff;
  }
}

static void rotate(relay *r) {
  int64_t first = r->values[0];
  for (int64_t i = 0; i + 1 < r->count; ++i) {
    r->values[i] = r->values[i + 1];
  }
  r->values[r->count - 1] = first;
}

/* Each loop reads data that another thread wrote in the previous loop, with waits of all kinds between them. */
HR_TEST(loops_read_the_writes_of_earlier_loops) {
  static const int64_t pauses_us[] = {0, 0, 0, 20, 300};
  for (int threads = 2; threads <= 4; ++threads) {
    hr_thread_count_set(threads);
    relay shared = {.count = threads}, alone = {.count = threads};
    for (int i = 0; i < 2000; ++i) {
      hr_parallel_for(threads, 1, pass_on, &shared);
      pass_on(&alone, 0, threads, 0);
      rotate(&shared), rotate(&alone);
      for (int k = 0; k < threads; ++k) {
        HR_ASSERT_EQ(shared.values[k], alone.values[k]);
      }
      if (i % 50 == 0) {
        usleep((useconds_t)pauses_us[i / 50 % 5]);
      }
      if (i == 1000) {
        hr_library_enters(2);
      }
    }
  }
  hr_thread_count_set(0);
}

typedef struct early_work {
  relay values;
  atomic_int runs;
} early_work;

static void run_early_work(void *arg) {
  early_work *l = arg;
  for (int i = 0; i < 5; ++i) {
    hr_parallel_for(l->values.count, 1, pass_on, &l->values);
    rotate(&l->values);
  }
  atomic_fetch_add(&l->runs, 1);
}

static void join_late(void *arg) {
  hr__team_join(*(uint64_t *)arg);
}

/* Early jobs of five loops each, joined at once, late, and by two threads, with loops of the caller between them. */
HR_TEST(early_jobs_run_once_and_their_loops_are_the_teams) {
  int early_count = 0;
  int64_t until = hr_clock_ns() + INT64_C(10000000000); /* a busy machine may leave the team asleep for a while */
  usleep(150000); /* long enough after the library's call, so that loops run on our team again */
  for (int threads = 2; threads <= 3; ++threads) {
    hr_thread_count_set(threads);
    early_work l = {.values = {.count = threads}};
    relay alone = {.count = threads};
    for (int i = 0; i < 1500 || (early_count == 0 && hr_core_count() > 1 && hr_clock_ns() < until); ++i) {
      uint64_t early = 0;
      int before = l.runs;
      hr_parallel_for(threads, 1, pass_on, &l.values);
      pass_on(&alone, 0, threads, 0);
      bool is_early = hr__team_submit_early(run_early_work, &l, &early);
      if (is_early && i % 100 == 7) {
        hr_thread other = {0};
        HR_ASSERT_OK(hr_thread_start("joiner", join_late, &early, &other));
        hr__team_join(early);
        hr_thread_join(&other);
      } else if (is_early) {
        for (int64_t end = hr_clock_ns() + i % 7 * 2000; hr_clock_ns() < end;) {
        }
        hr__team_join(early);
        hr__team_join(early);
      } else {
        run_early_work(&l);
      }
      HR_ASSERT_EQ(l.runs, before + 1);
      for (int k = 0; k < 5; ++k) {
        pass_on(&alone, 0, threads, 0);
        rotate(&alone);
      }
      for (int k = 0; k < threads; ++k) {
        HR_ASSERT_EQ(l.values.values[k], alone.values[k]);
      }
      early_count += is_early;
    }
  }
  HR_ASSERT(early_count > 0 || hr_core_count() < 2);
  hr_thread_count_set(0);
}

static void skip_units(void *arg, int64_t begin, int64_t end, int worker) {
  (void)arg, (void)begin, (void)end, (void)worker;
}

HR_TEST(the_most_threads_of_loops_and_library_calls_are_counted) {
  hr_thread_count_set(3);
  (void)hr_parallel_peak_take();
  HR_ASSERT_EQ(hr_parallel_peak_take(), 1);
  hr_parallel_for(2, 1, skip_units, NULL);
  HR_ASSERT_EQ(hr_parallel_peak_take(), 2);
  int before = hr_thread_limit_set(1);
  hr_parallel_for(3, 1, skip_units, NULL);
  (void)hr_thread_limit_set(before);
  HR_ASSERT_EQ(hr_parallel_peak_take(), 1);
  hr_parallel_for(3, 1, skip_units, NULL);
  hr_library_enters(2);
  HR_ASSERT_EQ(hr_parallel_peak_take(), 3);
  hr_library_enters(2);
  HR_ASSERT_EQ(hr_parallel_peak_take(), 2);
  hr_thread_count_set(0);
}

/* A team that sleeps, or that another thread uses, starts no early job. */
HR_TEST(early_jobs_are_refused_while_all_threads_sleep) {
  uint64_t early;
  early_work l = {.values = {.count = 2}};
  hr_thread_count_set(1);
  HR_ASSERT(!hr__team_submit_early(run_early_work, &l, &early));
  hr_thread_count_set(2);
  hr_parallel_for(2, 1, pass_on, &l.values);
  hr_library_enters(2);
#ifdef HR_USE_OPENMP
  HR_ASSERT(!hr__team_submit_early(run_early_work, &l, &early));
#endif
  HR_ASSERT_EQ(l.runs, 0);
  hr_thread_count_set(0);
}

/* A child of fork has none of its parent's workers. */
HR_TEST(a_child_of_fork_can_loop) {
#ifdef __SANITIZE_THREAD__
  HR_SKIP("the sanitizer lets no child of a process with threads start its own");
#endif
  hr_thread_count_set(3);
  usleep(150000); /* long enough after the library's call, because libgomp's team can't be forked */
  for (int i = 0; i < 20; ++i) {
    static visit_log log;
    memset(&log, 0, sizeof log);
    hr_parallel_for(UNITS, 1, visit, &log);
    usleep(i % 2 == 0 ? 0 : 300);
    pid_t child = fork();
    HR_ASSERT(child >= 0);
    if (child == 0) {
      memset(&log, 0, sizeof log);
      alarm(20);
      hr_parallel_for(UNITS, 1, visit, &log);
      hr_parallel_for(UNITS, 1, visit, &log);
      _exit(log.visits[0] == 2 && log.visits[UNITS - 1] == 2 ? 0 : 1);
    }
    int outcome = -1;
    HR_ASSERT(waitpid(child, &outcome, 0) == child);
    HR_ASSERT_EQ(outcome, 0);
  }
  hr_thread_count_set(0);
}

typedef struct mailbox {
  hr_mutex mutex;
  hr_cond cond;
  int letters;
} mailbox;

static void epilogue(void *arg) {
  mailbox *box = arg;
  hr_mutex_lock(&box->mutex);
  ++box->letters;
  hr_cond_signal(&box->cond);
  hr_mutex_unlock(&box->mutex);
}

HR_TEST(conditions_wake_and_time_out) {
  mailbox box = {0};
  hr_mutex_init(&box.mutex);
  hr_cond_init(&box.cond);
  hr_mutex_lock(&box.mutex);
  int64_t start = hr_clock_ns();
  while (hr_cond_wait_until(&box.cond, &box.mutex, start + 2000000)) {
  }
  HR_ASSERT(hr_clock_ns() - start >= 2000000);
  hr_thread thread = {0};
  HR_ASSERT_OK(hr_thread_start("a rather long thread name", epilogue, &box, &thread));
  while (box.letters == 0) {
    hr_cond_wait(&box.cond, &box.mutex);
  }
  HR_ASSERT(!hr_mutex_try_lock(&box.mutex));
  hr_mutex_unlock(&box.mutex);
  hr_thread_join(&thread);
  hr_thread_join(&thread);
  hr_cond_fini(&box.cond);
  hr_mutex_fini(&box.mutex);
}

static void do_nothing(void *arg) {
  (void)arg;
}

static hr_status start_and_join(void) {
  hr_thread thread = {0};
  HR_RETURN_IF_ERROR(hr_thread_start("idle", do_nothing, NULL, &thread));
  hr_thread_join(&thread);
  return HR_OK;
}

HR_TEST(thread_start_survives_lack_of_memory) {
  HR_TEST_OOM(start_and_join);
}

HR_TEST(thread_count_has_a_sane_default) {
  hr_thread_count_set(0);
  HR_ASSERT(hr_core_count() >= 1);
  HR_ASSERT(hr_thread_count() >= 1 && hr_thread_count() <= HR_THREADS_MAX);
}

HR_TEST(libraries_open_and_report) {
  hr_dynlib library = {0};
  HR_ASSERT_ERROR(hr_dynlib_open("libheadrace-none.so.9", &library), HR_STATUS_NOT_FOUND, "libheadrace-none.so.9");
  HR_ASSERT_STATUS(hr_dynlib_symbol(&library, "cos", &(void *){NULL}), HR_STATUS_FAILED_PRECONDITION);
  hr_status status = hr_dynlib_open("libm.so.6", &library);
  if (status != HR_OK) {
    hr_status_ignore(status);
    HR_SKIP("there is no libm.so.6");
  }
  static const char *const names[] = {"cos", "sin", "headrace_none"};
  void *addresses[3];
  HR_ASSERT_OK(hr_dynlib_symbols(&library, 2, names, addresses));
  double (*cosine)(double);
  memcpy(&cosine, &addresses[0], sizeof cosine);
  HR_ASSERT_NEAR(cosine(0.0), 1.0, 0.0);
  HR_ASSERT_ERROR(hr_dynlib_symbols(&library, 3, names, addresses), HR_STATUS_NOT_FOUND, "headrace_none");
  hr_dynlib_close(&library);
  hr_dynlib_close(&library);
}

#ifdef __linux__
static int allowed_processors(void) {
  cpu_set_t set;
  HR_ASSERT_EQ(sched_getaffinity(0, sizeof set, &set), 0);
  return CPU_COUNT(&set);
}

HR_TEST(a_thread_moves_to_another_processor_and_is_free_again) {
  hr_thread_places places = {0};
  int allowed = allowed_processors(), here = hr_thread_processor();
  if (allowed < 2) {
    HR_ASSERT(!hr_thread_move(&here, 1, &places) && !places.has_moved);
    return;
  }
  for (int i = 0; i < 4; ++i) {
    here = hr_thread_processor();
    HR_ASSERT(hr_thread_move(&here, 1, &places));
    HR_ASSERT(hr_thread_processor() != here);
    HR_ASSERT_EQ(allowed_processors(), allowed - 1);
  }
  int all[CPU_SETSIZE];
  for (int i = 0; i < CPU_SETSIZE; ++i) {
    all[i] = i;
  }
  HR_ASSERT(!hr_thread_move(all, CPU_SETSIZE, &places));
  hr_thread_move_end(&places);
  HR_ASSERT_EQ(allowed_processors(), allowed);
}
#endif

HR_TEST(processes_of_a_launcher_divide_the_cores) {
  HR_ASSERT_EQ(unsetenv("LOCAL_WORLD_SIZE"), 0);
  HR_ASSERT_EQ(hr_local_ranks(), 1);
  HR_ASSERT_EQ(setenv("LOCAL_WORLD_SIZE", "2", 1), 0);
  HR_ASSERT_EQ(hr_local_ranks(), 2);
  hr_thread_count_set(0);
  HR_ASSERT(hr_thread_count() == hr_core_count() / 2 || hr_core_count() == 1);
  HR_ASSERT_EQ(setenv("LOCAL_WORLD_SIZE", "none", 1), 0);
  HR_ASSERT_EQ(hr_local_ranks(), 1);
  HR_ASSERT_EQ(unsetenv("LOCAL_WORLD_SIZE"), 0);
  hr_thread_count_set(0);
}

/* Must be last: from here on the team considers the machine crowded. */
HR_TEST(two_losses_of_a_core_in_a_short_while_are_a_crowd) {
  enum { MS = 1000000 };
  int64_t t = hr_clock_ns() + INT64_C(1000000) * MS; /* later than all real times */
  usleep(10000);                                     /* the team is asleep after this */
  hr__team_note_loss(t);
  HR_ASSERT(!hr__team_is_crowded(t));
  hr__team_note_loss(t + 100 * MS); /* the system's own */
  HR_ASSERT(!hr__team_is_crowded(t + 100 * MS));
  hr__team_note_loss(t + 104 * MS);
  HR_ASSERT(hr__team_is_crowded(t + 104 * MS));
  HR_ASSERT(hr__team_is_crowded(t + 300 * MS));
  HR_ASSERT(!hr__team_is_crowded(t + 400 * MS));
}
