/* Tuning-cache entries: a measured one is found by later processes, and by no other key; damaged files are absent.
 * Autotuning: a provider pair in the wrong order is corrected, and no result changes as long as the process lives.
 */
#include "engine/tuning_cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cache_folder.h"
#include "provider_cases.h"

#include "base/env.h"
#include "base/thread.h"
#include "engine/autotune.h"

/* ---- a folder for each test ---- */

static void begin(const char *mode) {
  make_root(NULL);
  setenv("HEADRACE_TUNING", mode, 1);
  hr__env_reload();
  hr__tuning_cache_forget();
}

static void remove_file(const char *path) {
  HR_ASSERT_EQ(unlink(path), 0);
}

static void end(void) {
  remove_root();
  unsetenv("HEADRACE_TUNING");
  hr__env_reload();
  hr__tuning_cache_forget();
}

static hr_tuning_entry *find(const char *key) {
  return hr__tuning_entry_find(key, strlen(key));
}

/* ---- the store ---- */

HR_TEST(a_choice_is_for_the_processes_that_come_later) {
  begin("measure");
  hr_tuning_entry *entry = find("product of 3 and 4");
  HR_ASSERT_STR_EQ(hr__tuning_entry_algorithm(entry), "");
  HR_ASSERT(hr__tuning_entry_claim(entry) && !hr__tuning_entry_claim(entry));
  hr__tuning_entry_unclaim(entry);
  HR_ASSERT(hr__tuning_entry_claim(entry));
  hr__tuning_entry_close(entry, "quick one", "quick one 3 us\n");
  HR_ASSERT(find("product of 3 and 4") == entry && !hr__tuning_entry_claim(entry));
  HR_ASSERT_STR_EQ(hr__tuning_entry_algorithm(entry), "");
  hr__tuning_cache_forget(); /* as another process */
  HR_ASSERT_STR_EQ(hr__tuning_entry_algorithm(find("product of 3 and 4")), "quick one");
  HR_ASSERT(!hr__tuning_entry_claim(find("product of 3 and 4")));
  HR_ASSERT_STR_EQ(hr__tuning_entry_algorithm(find("product of 3 and 5")), "");
  HR_ASSERT(hr__tuning_entry_claim(find("product of 3 and 5")));
  end();
}

HR_TEST(choices_are_found_after_many_keys_without_one) {
  begin("measure");
  for (int turn = 0; turn < 2; ++turn) { /* as two processes: the second finds what the first wrote */
    for (int i = 0; i < 40; ++i) {
      char key[32];
      snprintf(key, sizeof key, "product of %d and %d", turn, i);
      HR_ASSERT_STR_EQ(hr__tuning_entry_algorithm(find(key)), "");
    }
    hr_tuning_entry *entry = find("product of 3 and 4");
    HR_ASSERT_STR_EQ(hr__tuning_entry_algorithm(entry), turn == 0 ? "" : "quick one");
    if (turn == 0) {
      hr__tuning_entry_close(entry, "quick one", "quick one 3 us\n");
    }
    hr__tuning_cache_forget();
  }
  end();
}

HR_TEST(processes_share_choices) {
  begin("measure");
  pid_t child = fork();
  if (child == 0) {
    hr_tuning_entry *entry = find("shared");
    bool is_mine = hr__tuning_entry_claim(entry);
    hr__tuning_entry_close(entry, "of the child", "");
    _exit(is_mine ? 0 : 1);
  }
  int state = -1;
  HR_ASSERT_EQ(waitpid(child, &state, 0), child);
  HR_ASSERT_EQ(state, 0);
  HR_ASSERT_STR_EQ(hr__tuning_entry_algorithm(find("shared")), "of the child");
  end();
}

static long damage_at;

static void damage_file(const char *path) {
  int file = open(path, O_RDWR);
  char byte;
  HR_ASSERT(file >= 0 && pread(file, &byte, 1, damage_at) == 1);
  byte ^= 1;
  HR_ASSERT_EQ(pwrite(file, &byte, 1, damage_at), 1);
  close(file);
}

static void cut_file(const char *path) {
  HR_ASSERT_EQ(truncate(path, 20), 0);
}

HR_TEST(damaged_files_count_as_absent) {
  for (damage_at = 0; damage_at < 60; damage_at += 7) {
    begin("measure");
    hr__tuning_entry_close(find("key"), "algorithm", "what it took");
    HR_ASSERT_EQ(each_file("", damage_at < 42 ? damage_file : cut_file), 1);
    hr__tuning_cache_forget();
    HR_ASSERT_STR_EQ(hr__tuning_entry_algorithm(find("key")), "");
    HR_ASSERT(hr__tuning_entry_claim(find("key")));
    hr__tuning_entry_close(find("key"), "other", ""); /* and are made again */
    hr__tuning_cache_forget();
    HR_ASSERT_STR_EQ(hr__tuning_entry_algorithm(find("key")), "other");
    end();
  }
}

static char first_path[512];

static void note_path(const char *path) {
  snprintf(first_path, sizeof first_path, "%s", path);
}

static void become_first(const char *path) {
  if (strcmp(path, first_path) != 0) {
    HR_ASSERT_EQ(rename(path, first_path), 0);
  }
}

HR_TEST(a_file_of_another_key_is_foreign) {
  begin("measure");
  hr__tuning_entry_close(find("mine"), "algorithm", "");
  each_file("", note_path);
  hr__tuning_entry_close(find("another"), "other algorithm", "");
  each_file("", become_first);
  hr__tuning_cache_forget();
  HR_ASSERT_STR_EQ(hr__tuning_entry_algorithm(find("mine")), "");
  end();
}

HR_TEST(nothing_is_cached_without_a_folder_or_with_tuning_off) {
  begin("off");
  HR_ASSERT_NULL(find("key"));
  end();
  begin("read");
  HR_ASSERT(!hr__tuning_entry_claim(find("key")));
  setenv("HEADRACE_CACHE", "-", 1);
  hr__env_reload();
  hr__tuning_cache_forget();
  HR_ASSERT_NULL(find("key"));
  end();
}

HR_TEST(unknown_algorithm_names_are_ignored) {
  begin("measure");
  char algorithm[200];
  memset(algorithm, 'w', sizeof algorithm - 1);
  algorithm[sizeof algorithm - 1] = 0;
  hr__tuning_entry_close(find("key"), algorithm, "");
  hr__tuning_cache_forget();
  HR_ASSERT_STR_EQ(hr__tuning_entry_algorithm(find("key")), "");
  end();
}

/* ---- timings ---- */

/* Providers that fill the output with a number and take some time by the device's clock, which nothing else advances.
 */
struct hr_prepared {
  float number;
  int64_t ns;
  bool fails;
  int *runs;
};

static const int64_t ENOUGH_NS = INT64_C(20000000000);

static int64_t clock_ns;

static int64_t read_clock(void *impl) {
  (void)impl;
  return clock_ns;
}

static int slow_runs, quick_runs, failing_runs, prepared_count;

static hr_status make(float number, int64_t ns, bool fails, int *runs, hr_prepared **out_prepared, size_t *out_bytes) {
  *out_prepared = hr_malloc(sizeof **out_prepared);
  HR_ASSERT_NOT_NULL(*out_prepared);
  **out_prepared = (hr_prepared){number, ns, fails, runs};
  ++prepared_count;
  *out_bytes = 100;
  return HR_OK;
}

static hr_status prepare_slow(const hr_program *program, const hr_node *node, int algorithm, void *queue,
                              hr_prepared **out_prepared, size_t *out_bytes) {
  (void)program, (void)node, (void)queue;
  HR_ASSERT_EQ(algorithm, HR_ALGORITHM_OWN);
  return make(1, 300000, false, &slow_runs, out_prepared, out_bytes);
}

enum { ALGORITHM_NONE, ALGORITHM_FAILING, ALGORITHM_QUICK };
static const char *const algorithms[] = {"none", "failing", "quick", NULL};

static hr_status prepare_other(const hr_program *program, const hr_node *node, int algorithm, void *queue,
                               hr_prepared **out_prepared, size_t *out_bytes) {
  (void)program, (void)node, (void)queue;
  HR_ASSERT(algorithm != HR_ALGORITHM_OWN); /* takes_none */
  if (algorithm == ALGORITHM_NONE) {
    return hr_status_make(HR_STATUS_UNIMPLEMENTED, "no algorithm");
  }
  return make(2, 30000, algorithm == ALGORITHM_FAILING, algorithm == ALGORITHM_FAILING ? &failing_runs : &quick_runs,
              out_prepared, out_bytes);
}

static hr_status run(hr_prepared *p, void *const *args, void *workspace, void *queue) {
  (void)queue;
  memset(workspace, 0, 100);
  ++*p->runs;
  clock_ns += p->ns;
  *(float *)args[2] = p->number;
  return p->fails ? hr_status_make(HR_STATUS_INTERNAL, "an algorithm that fails") : HR_OK;
}

static bool is_limited; /* slow takes nothing */

static bool takes_all(const hr_program *program, const hr_node *node) {
  (void)program;
  return node->op == HR_OP_MATMUL && !is_limited;
}

static bool takes_none(const hr_program *program, const hr_node *node) {
  (void)program, (void)node;
  return false;
}

static void release(hr_prepared *p) {
  hr_free(p);
}

static bool slow_is_settled;

static bool is_settled(const hr_prepared *p) {
  (void)p;
  return slow_is_settled;
}

static const hr_provider slow = {.name = "slow",
                                 .supports = takes_all,
                                 .prepare = prepare_slow,
                                 .is_settled = is_settled,
                                 .run = run,
                                 .release = release};
static const hr_provider quick = {.name = "other",
                                  .supports = takes_none,
                                  .algorithms = algorithms,
                                  .prepare = prepare_other,
                                  .run = run,
                                  .release = release};
static const hr_provider *const both[] = {&slow, &quick, NULL};

typedef struct product_step {
  hr_device *device;
  const hr_driver *driver; /* the device's own, without the clock */
  op_case made;            /* the program */
  hr_tuning_entry *entry;
  hr_ready own;
  hr_tuning *tuning;
  bool is_settled, is_short;
  float result;
} product_step;

static void step_begin(product_step *s) {
  static hr_driver clocked;
  const product q = {0, {0}, 4, 5, 6};
  hr_text key = {0};
  *s = (product_step){.made =
                          product_case(&slow, &q, HR_DTYPE_F32, MATRIX_DENSE, MATRIX_DENSE, MATRIX_DENSE, BIAS_ABSENT)};
  HR_ASSERT_OK(hr_device_open("cpu", &s->device));
  s->driver = s->device->driver;
  clocked = *s->driver;
  clocked.timestamp = read_clock;
  s->device->driver = &clocked;
  op_case_node(&s->made);
  const hr_node *node = &s->made.program.nodes[0];
  hr__algorithms_key(both, s->device, &s->made.program, node, &key);
  s->entry = hr__tuning_entry_find(key.data, key.length);
  hr_text_fini(&key);
  HR_ASSERT_OK(hr__algorithms_prepare(s->device, both, &s->made.program, node, s->entry, &s->own));
  s->tuning = hr__tuning_create(s->device, both, &s->made.program, node, &s->own, s->entry);
}

static void step_run(product_step *s, int count) {
  float number;
  void *args[3] = {&number, &number, &s->result};
  char workspace[100];
  const uint64_t stamps[3] = {0};
  for (int i = 0; i < count; ++i) {
    s->result = 0;
    bool is_short = s->is_settled ? s->is_short : i % 2 != 0;
    const hr_tuning_call call = {args, stamps, workspace, is_short ? 10 : sizeof workspace, s->device->impl, NULL};
    HR_ASSERT_OK(s->tuning == NULL
                     ? hr__ready_run(s->device->driver, s->device->impl, &s->own, args, stamps, workspace, NULL)
                 : s->is_settled ? hr__tuning_run_settled(s->tuning, &s->own, &call)
                                 : hr__tuning_run(s->tuning, &s->own, &call));
  }
}

static void step_end(product_step *s) {
  hr__tuning_release(s->tuning);
  hr__ready_fini(&s->own);
  hr_program_fini(&s->made.program);
  s->device->driver = s->driver;
  hr_device_release(s->device);
}

HR_TEST(timings_correct_the_order_for_the_next_process) {
  begin("measure");
  product_step s;
  step_begin(&s);
  HR_ASSERT_NOT_NULL(s.tuning);
  slow_runs = quick_runs = failing_runs = 0;
  step_run(&s, 20);
  HR_ASSERT(quick_runs == 0 && slow_runs == 20); /* the budget was zero */
  hr__tuning_allow(ENOUGH_NS);
  for (int i = 0; i < 800; ++i) {
    step_run(&s, 1);
    HR_ASSERT_EQ(s.result, 1); /* regardless of earlier timings */
  }
  HR_ASSERT(quick_runs > 1 && quick_runs < 10 && failing_runs == 1 && slow_runs == 820);
  HR_ASSERT_STR_EQ(hr__tuning_entry_algorithm(s.entry), "");
  step_end(&s);
  step_begin(&s); /* a later program of the same process */
  HR_ASSERT(s.own.algorithm.provider == &slow && s.tuning == NULL);
  step_end(&s);
  hr__tuning_cache_forget();
  step_begin(&s);
  HR_ASSERT(s.own.algorithm.provider == &quick && s.own.algorithm.number == ALGORITHM_QUICK && s.tuning == NULL);
  step_run(&s, 1);
  HR_ASSERT_EQ(s.result, 2);
  step_end(&s);
  end();
}

HR_TEST(a_choice_that_the_node_has_not_leaves_it_to_the_first_provider) {
  begin("measure");
  static const char *const names[] = {"other none", "other", "other nothing", "gone", "slow "};
  for (size_t i = 0; i < sizeof names / sizeof *names; ++i) {
    product_step s;
    step_begin(&s);
    hr__tuning_entry_close(s.entry, names[i], "");
    step_end(&s);
    hr__tuning_cache_forget();
    step_begin(&s);
    HR_ASSERT(s.own.algorithm.provider == &slow);
    step_end(&s);
    each_file("", remove_file);
    hr__tuning_cache_forget();
  }
  end();
}

/* Other work, such as compilers of kernels, takes the cores during a program's first runs. */
HR_TEST(load_on_the_first_runs_counts_against_no_algorithm) {
  begin("measure");
  product_step s;
  step_begin(&s);
  hr__tuning_allow(ENOUGH_NS);
  for (int i = 0; i < 100; ++i) {
    s.own.prepared->ns = i < 7 ? 60000 : 29000;
    step_run(&s, 1);
    clock_ns += 30000000; /* the rest of the program, longer than the pause between two trials */
  }
  HR_ASSERT_EQ(each_file("", NULL), 1);
  step_end(&s);
  hr__tuning_cache_forget();
  step_begin(&s);
  HR_ASSERT(s.own.algorithm.provider == &slow && s.tuning == NULL);
  step_end(&s);
  end();
}

/* Programs that are made and not repeated claim nothing; of two that repeat one measures. */
HR_TEST(autotuning_that_ends_early_leaves_the_entry_to_another) {
  begin("measure");
  product_step once, first, second;
  step_begin(&once), step_begin(&first), step_begin(&second);
  hr__tuning_allow(ENOUGH_NS);
  quick_runs = 0;
  step_run(&once, 1);
  step_run(&first, 12);
  HR_ASSERT(quick_runs > 0);
  int before = quick_runs;
  step_run(&second, 20);
  HR_ASSERT(quick_runs == before && each_file("", NULL) == 0);
  step_end(&second);
  step_end(&first);
  step_begin(&first);
  step_run(&first, 800);
  HR_ASSERT(quick_runs > before && each_file("", NULL) == 1);
  step_end(&first);
  step_end(&once);
  end();
}

/* Replayed programs: all algorithms are timed before the first run, and every step that has not run yet uses the best
 * one. */
HR_TEST(settled_algorithms_count_from_the_first_run_on) {
  begin("measure");
  product_step first, second;
  step_begin(&first), step_begin(&second);
  first.is_settled = second.is_settled = true;
  slow_runs = quick_runs = failing_runs = prepared_count = 0;
  step_run(&first, 1);
  HR_ASSERT_EQ(first.result, 2);
  HR_ASSERT_EQ(prepared_count, 2); /* one that fails, and the one that stays */
  HR_ASSERT(slow_runs > 1 && quick_runs > 4 && failing_runs == 1 && each_file("", NULL) == 1);
  int before = quick_runs, slow_before = slow_runs;
  step_run(&first, 5);
  step_run(&second, 1);
  HR_ASSERT(first.result == 2 && second.result == 2);
  HR_ASSERT(quick_runs == before + 6 && slow_runs == slow_before && prepared_count == 3);
  HR_ASSERT_STR_EQ(hr__tuning_entry_algorithm(first.entry), "other quick");
  step_end(&first), step_end(&second);
  step_begin(&first);
  HR_ASSERT(first.own.algorithm.provider == &quick && first.tuning == NULL);
  step_end(&first);
  end();
}

HR_TEST(estimates_at_the_first_run_stay_for_the_process) {
  begin("measure");
  product_step first, second;
  step_begin(&first), step_begin(&second);
  first.is_settled = second.is_settled = first.is_short = true; /* without workspace no algorithm can be timed */
  step_run(&first, 1);
  step_run(&second, 3);
  HR_ASSERT(first.result == 1 && second.result == 1 && each_file("", NULL) == 0);
  HR_ASSERT_STR_EQ(hr__tuning_entry_algorithm(first.entry), "");
  step_end(&first), step_end(&second);
  hr__tuning_cache_forget();
  step_begin(&first); /* another process finds it open */
  HR_ASSERT_NOT_NULL(first.tuning);
  step_end(&first);
  end();
}

HR_TEST(steps_that_read_their_outputs_are_not_timed) {
  begin("measure");
  product_step s;
  step_begin(&s);
  hr__tuning_release(s.tuning);
  hr_node *node = &s.made.program.nodes[0];
  node->inputs[1].index = node->outputs[0].index;
  s.tuning = hr__tuning_create(s.device, both, &s.made.program, node, &s.own, s.entry);
  HR_ASSERT_NULL(s.tuning);
  step_end(&s);
  end();
}

HR_TEST(settled_calls_are_not_timed) {
  begin("measure");
  product_step s;
  slow_is_settled = true;
  step_begin(&s);
  HR_ASSERT_NULL(s.tuning);
  step_end(&s);
  slow_is_settled = false;
  step_begin(&s);
  HR_ASSERT_NOT_NULL(s.tuning);
  step_end(&s);
  end();
}

HR_TEST(keys_contain_everything_that_times_depend_on) {
  const product q = {0, {0}, 4, 5, 6};
  hr_device *device;
  HR_ASSERT_OK(hr_device_open("cpu", &device));
  hr_text keys[5] = {{0}};
  for (int i = 0; i < 5; ++i) {
    is_limited = i == 4;
    op_case t = product_case(&slow, &q, HR_DTYPE_F32, MATRIX_DENSE, i == 1 ? MATRIX_TRANSPOSED : MATRIX_DENSE,
                             MATRIX_DENSE, i == 3 ? BIAS_NONE : BIAS_ABSENT);
    t.writes_weights = i == 2;
    op_case_node(&t);
    hr__algorithms_key(both, device, &t.program, &t.program.nodes[0], &keys[i]);
    hr_program_fini(&t.program);
  }
  HR_ASSERT(strcmp(keys[0].data, keys[1].data) != 0);
  HR_ASSERT(strcmp(keys[0].data, keys[2].data) != 0);
  HR_ASSERT_STR_EQ(keys[0].data, keys[3].data);
  HR_ASSERT(strcmp(keys[0].data, keys[4].data) != 0);
  is_limited = false;
  for (int i = 0; i < 5; ++i) {
    hr_text_fini(&keys[i]);
  }
  hr_device_release(device);
}
