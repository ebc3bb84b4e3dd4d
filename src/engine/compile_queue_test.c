/* The compiled tier from outside: programs give the right numbers with a compiler that is present, missing, failing or
 * hanging, and with a disk cache that is intact, damaged, foreign or shared by processes.
 */
#include "engine/compile_queue.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cache_folder.h"
#include "hr_test.h"

#include "base/env.h"
#include "base/log.h"
#include "base/thread.h"
#include "engine/compiled_kernel.h"
#include "engine/host_compiler.h"
#include "engine/kernel_cache.h"
#include "headrace/stream.h"
#include "only_kernel.h"

enum { COUNT = 1000 };
#include "vectors.h"

/* ---- a folder for each test ---- */

static void begin(const char *jit, const char *compiler) {
  const char *shared = getenv("HEADRACE_TEST_SHARED"); /* a test of several processes */
  if (shared != NULL && strcmp(shared, "home") == 0) {
    unsetenv("HEADRACE_CACHE"); /* the user's */
  } else {
    make_root(shared);
  }
  setenv("HEADRACE_JIT", jit, 1);
  if (compiler != NULL) {
    setenv("HEADRACE_CC", compiler, 1);
  } else {
    unsetenv("HEADRACE_CC");
  }
  hr__env_reload();
  hr__compile_queue_reset();
}

static void end(void) {
  hr__compile_queue_wait();
  if (getenv("HEADRACE_TEST_SHARED") == NULL) {
    remove_root();
  }
  unsetenv("HEADRACE_CACHE");
  unsetenv("HEADRACE_JIT");
  unsetenv("HEADRACE_CC");
  unsetenv("HEADRACE_CC_SECONDS");
  unsetenv("HEADRACE_CACHE_BYTES");
  hr__env_reload();
  hr__compile_queue_reset();
}

static bool has_compiler(void) {
  hr_host_compiler compiler;
  hr_status status = hr__host_compiler_find(0, &compiler);
  bool found = status == HR_OK;
  hr_status_free(status);
  return found;
}

static int64_t waiting(void) {
  hr_jit_counts now;
  hr__jit_counts(&now);
  return now.waiting;
}

/* The counts once the queue is empty. */
static hr_jit_counts counts(void) {
  hr_jit_counts now;
  hr__compile_queue_wait();
  hr__jit_counts(&now);
  return now;
}

/* ---- a program: y = (x * number + x), which is one kernel; `number` is the round ---- */

typedef struct fixture {
  hr_device *device;
  hr_stream *stream;
  hr_buffer *x;
} fixture;

static fixture open_fixture(void) {
  fixture f;
  float values[COUNT];
  for (int i = 0; i < COUNT; ++i) {
    values[i] = (float)i * 0.25f - 7;
  }
  HR_ASSERT_OK(hr_device_open("cpu", &f.device));
  HR_ASSERT_OK(hr_stream_create(f.device, &f.stream));
  HR_ASSERT_OK(hr_buffer_create(f.device, sizeof values, &f.x));
  hr_view view = view_of(f.x);
  HR_ASSERT_OK(hr_stream_write(f.stream, &view, values));
  return f;
}

static void close_fixture(fixture *f) {
  hr_buffer_release(f->x);
  hr_stream_release(f->stream);
  hr_device_release(f->device);
}

static void binary(const fixture *f, hr_op op, hr_view a, hr_view b, hr_buffer *out) {
  hr_view inputs[] = {a, b}, output = view_of(out);
  HR_ASSERT_OK(hr_stream_record(f->stream, op, NULL, 2, inputs, 1, &output));
}

static void check_round(const fixture *f, double number) {
  hr_buffer *t, *y;
  float values[COUNT];
  hr_scalar scalar = hr_scalar_f64(number);
  hr_view scale = {.scalar = &scalar, .dtype = HR_DTYPE_F64};
  HR_ASSERT_OK(hr_buffer_create(f->device, sizeof values, &t));
  HR_ASSERT_OK(hr_buffer_create(f->device, sizeof values, &y));
  binary(f, HR_OP_MUL, view_of(f->x), scale, t);
  binary(f, HR_OP_ADD, view_of(t), view_of(f->x), y);
  hr_buffer_release(t);
  hr_view view = view_of(y);
  HR_ASSERT_OK(hr_stream_read(f->stream, &view, values));
  hr_buffer_release(y);
  for (int i = 0; i < COUNT; ++i) {
    float x = (float)i * 0.25f - 7, product = x * (float)number;
    HR_ASSERT_EQ(values[i], product + x);
  }
}

static hr_stats check_rounds(int rounds) {
  fixture f = open_fixture();
  for (int k = 0; k < rounds; ++k) {
    check_round(&f, 2.0 + k);
  }
  hr_stats stats;
  hr_stream_stats(f.stream, &stats);
  close_fixture(&f);
  return stats;
}

/* ---- compilers ---- */

HR_TEST(code_takes_over_between_launches) {
  begin("auto", NULL);
  hr_jit_counts before = counts();
  fixture f = open_fixture();
  hr_stats stats;
  bool has_waited = !has_compiler();
  for (int k = 0; k < 9000; ++k) { /* 8 KB each: after 64 MB it is worth compiling */
    check_round(&f, k);
    has_waited |= waiting() == 1;
  }
  HR_ASSERT(has_waited);
  hr__compile_queue_wait();
  check_round(&f, 1);
  hr_stream_stats(f.stream, &stats);
  if (has_compiler()) {
    HR_ASSERT_EQ(counts().compiled, before.compiled + 1);
    HR_ASSERT_EQ(stats.jit_waiting, 0);
    HR_ASSERT(stats.kernels_interpreted < stats.kernels);
  }
  HR_ASSERT(stats.kernels_interpreted > 1000);
  close_fixture(&f);
  end();
}

/* The only kernel of a text, for a device that runs nothing. */
static hr_cached_kernel *acquire(const char *text) {
  static const hr_driver driver = {.name = "host", .dialect = HR_DIALECT_HOST};
  static hr_device device = {.context = &hr__context_first, .driver = &driver};
  hr_schedule schedule;
  hr_cached_kernel *cached;
  HR_ASSERT_OK(hr__kernel_acquire(hr__only_kernel(text, &schedule), &device, &cached));
  hr_schedule_fini(&schedule);
  return cached;
}

HR_TEST(kernels_that_are_slow_for_their_bytes_are_compiled_sooner) {
  begin("auto", NULL);
  hr_jit_counts before = counts();
  hr_cached_kernel *large =
      acquire("buffer %0 262144 live\nbuffer %1 262144 live fresh\n%1:f32[65536]{1}+0 = exp(%0:f32[65536]{1}+0)\n");
  hr_cached_kernel *small =
      acquire("buffer %0 256 live\nbuffer %1 256 live fresh\n%1:f32[64]{1}+0 = exp(%0:f32[64]{1}+0)\n");
  HR_ASSERT(hr__kernel_is_timed(large));
  HR_ASSERT(!hr__kernel_is_timed(small));
  (void)hr__kernel_use(large);
  hr__kernel_spend(large, INT64_C(1000000000)); /* once may be never again */
  HR_ASSERT(hr__kernel_is_timed(large));
  (void)hr__kernel_use(large);
  hr__kernel_spend(large, 1000);
  HR_ASSERT(!hr__kernel_is_timed(large));
  for (int k = 0; k < 300; ++k) { /* more bytes than an untimed kernel needs: it is not compiled twice */
    (void)hr__kernel_use(large);
    hr__kernel_spend(large, 10000000);
  }
  HR_ASSERT_EQ(counts().compiled, before.compiled + (has_compiler() ? 1 : 0));
  HR_ASSERT_EQ(hr__kernel_use(large) != hr__kernel_host(large), has_compiler());
  hr__kernel_release(large);
  hr__kernel_release(small);
  end();
}

/* So many launches of the kernel; returns the number of kernels that are compiled then. */
static int64_t use(hr_cached_kernel *cached, int count) {
  for (int i = 0; i < count; ++i) {
    (void)hr__kernel_use(cached);
  }
  return counts().compiled;
}

HR_TEST(kernels_of_long_texts_are_compiled_when_that_is_paid_for) {
  begin("auto", NULL);
  int64_t before = counts().compiled;
  hr_cached_kernel *rows = acquire("buffer %0 4096 live\nbuffer %1 4096 live fresh\n"
                                   "%1:f32[64,16]{16,1}+0 = log_softmax(%0:f32[64,16]{16,1}+0) ints(1)\n");
  HR_ASSERT_EQ(use(rows, 9000), before); /* 64 MB */
  HR_ASSERT_EQ(hr__kernel_postpone(rows, 2), !has_compiler());
  hr_cached_kernel *usual =
      acquire("buffer %0 4096 live\nbuffer %1 4096 live fresh\n%1:f32[1024]{1}+0 = exp(%0:f32[1024]{1}+0)\n");
  HR_ASSERT(hr__kernel_postpone(usual, 3));
  HR_ASSERT_EQ(use(usual, 24000), before);
  HR_ASSERT_EQ(use(usual, 1000), before + has_compiler());
  hr__kernel_release(rows);
  hr__kernel_release(usual);
  end();
}

HR_TEST(timed_kernels_of_long_texts_are_postponed_by_time) {
  begin("auto", NULL);
  int64_t before = counts().compiled;
  hr_cached_kernel *large =
      acquire("buffer %0 262144 live\nbuffer %1 262144 live fresh\n%1:f32[65536]{1}+0 = exp(%0:f32[65536]{1}+0)\n");
  HR_ASSERT_EQ(use(large, 2), before);
  HR_ASSERT(hr__kernel_postpone(large, 3));
  hr__kernel_spend(large, 17000000);
  HR_ASSERT_EQ(counts().compiled, before);
  HR_ASSERT(hr__kernel_is_timed(large));
  hr__kernel_spend(large, 1000000);
  HR_ASSERT_EQ(counts().compiled, before + has_compiler());
  hr__kernel_release(large);
  end();
}

HR_TEST(waiting_compiles_before_the_first_run) {
  begin("wait", NULL);
  hr_stats stats = check_rounds(3);
  HR_ASSERT_EQ(stats.kernels, 3);
  HR_ASSERT_EQ(stats.kernels_interpreted, has_compiler() ? 0 : 3);
  end();
}

/* x + x of `count` floats. */
static void check_length(const fixture *f, int64_t count) {
  hr_buffer *x, *y;
  float *values = malloc((size_t)count * sizeof *values);
  HR_ASSERT_OK(hr_buffer_create(f->device, (size_t)count * sizeof *values, &x));
  HR_ASSERT_OK(hr_buffer_create(f->device, (size_t)count * sizeof *values, &y));
  hr_view in = {.buffer = x, .dtype = HR_DTYPE_F32, .rank = 1, .dims = &count, .strides = vector_strides}, out = in;
  out.buffer = y;
  for (int64_t i = 0; i < count; ++i) {
    values[i] = (float)i;
  }
  HR_ASSERT_OK(hr_stream_write(f->stream, &in, values));
  HR_ASSERT_OK(hr_stream_record(f->stream, HR_OP_ADD, NULL, 2, (hr_view[]){in, in}, 1, &out));
  HR_ASSERT_OK(hr_stream_read(f->stream, &out, values));
  for (int64_t i = 0; i < count; ++i) {
    HR_ASSERT_EQ(values[i], 2 * (float)i);
  }
  hr_buffer_release(x);
  hr_buffer_release(y);
  free(values);
}

HR_TEST(lengths_share_code) {
  begin("wait", NULL);
  hr_jit_counts before = counts();
  fixture f = open_fixture();
  check_length(&f, 3001);
  check_length(&f, 5003);
  check_length(&f, 1500);
  if (has_compiler()) {
    HR_ASSERT_EQ(counts().compiled, before.compiled + 1);
    HR_ASSERT_EQ(counts().loaded, before.loaded + 2);
  }
  hr_stats stats;
  hr_stream_stats(f.stream, &stats);
  HR_ASSERT_EQ(stats.kernels_interpreted, has_compiler() ? 0 : 3);
  close_fixture(&f);
  end();
}

/* One length repeats until its kernel is compiled; meanwhile others run, by their general plan. */
HR_TEST(lengths_change_while_one_is_compiled) {
  enum { LENGTH = 500000, ROUNDS_MAX = 400 };
  begin("auto", NULL);
  fixture f = open_fixture();
  hr_stats stats;
  int changes = 0;
  for (int64_t n = LENGTH + 1; n < LENGTH + 7; ++n) {
    check_length(&f, n);
  }
  for (int k = 0; k < ROUNDS_MAX && has_compiler() && waiting() == 0; ++k) {
    check_length(&f, LENGTH);
  }
  for (; waiting() > 0 && changes < ROUNDS_MAX; ++changes) {
    check_length(&f, LENGTH - 1 - changes % 50);
    check_length(&f, changes % 3 == 0 ? LENGTH : LENGTH / 2 + changes);
  }
  hr__compile_queue_wait();
  hr_stream_stats(f.stream, &stats);
  int64_t interpreted = stats.kernels_interpreted, general = stats.general_plans;
  check_length(&f, LENGTH);
  check_length(&f, LENGTH - 100);
  hr_stream_stats(f.stream, &stats);
  HR_ASSERT(changes > 0 || !has_compiler());
  HR_ASSERT(general > 0 && stats.general_plans > general);
  HR_ASSERT_EQ(stats.kernels_interpreted, interpreted + (has_compiler() ? 1 : 2));
  close_fixture(&f);
  end();
}

HR_TEST(code_on_disk_is_loaded_before_the_first_use_of_large_kernels) {
  begin("wait", NULL);
  const char *exp_of_3m = "buffer %0 12000000 live\nbuffer %1 12000000 live fresh\n%1:f32[3000000]{1}+0 = exp(%0:f32["
                          "3000000]{1}+0)\n",
             *exp_of_2m = "buffer %0 8000000 live\nbuffer %1 8000000 live fresh\n%1:f32[2000000]{1}+0 = exp(%0:f32["
                          "2000000]{1}+0)\n",
             *log_of_2m = "buffer %0 8000000 live\nbuffer %1 8000000 live fresh\n%1:f32[2000000]{1}+0 = log(%0:f32["
                          "2000000]{1}+0)\n";
  hr_cached_kernel *first = acquire(exp_of_3m); /* one text for all lengths */
  hr_jit_counts before = counts();
  hr__kernel_release(first);
  setenv("HEADRACE_JIT", "auto", 1);
  hr__env_reload();
  hr_cached_kernel *known = acquire(exp_of_2m), *unknown = acquire(log_of_2m);
  HR_ASSERT_EQ(counts().loaded, before.loaded + (has_compiler() ? 1 : 0));
  HR_ASSERT_EQ(counts().compiled, before.compiled);
  HR_ASSERT_EQ(hr__kernel_use(known) != hr__kernel_host(known), has_compiler());
  HR_ASSERT(hr__kernel_use(unknown) == hr__kernel_host(unknown));
  for (int k = 0; k < 9; ++k) { /* only what is interpreted is compiled */
    (void)hr__kernel_use(known), (void)hr__kernel_use(unknown);
  }
  HR_ASSERT_EQ(counts().compiled, before.compiled + (has_compiler() ? 1 : 0));
  HR_ASSERT_EQ(counts().loaded, before.loaded + (has_compiler() ? 1 : 0));
  hr__kernel_release(known);
  hr__kernel_release(unknown);
  end();
}

HR_TEST(off_interprets) {
  begin("off", NULL);
  hr_jit_counts before = counts();
  hr_stats stats = check_rounds(400);
  HR_ASSERT_EQ(stats.kernels_interpreted, 400);
  HR_ASSERT_EQ(counts().compiled, before.compiled);
  end();
}

/* ---- messages to the user ---- */

static char log_path[128];

static void begin_log(void) {
  snprintf(log_path, sizeof log_path, "/tmp/headrace_log_%d", (int)getpid());
  unlink(log_path);
  setenv("HEADRACE_LOG", log_path, 1);
  hr__env_reload();
  hr__log_reload();
}

/* Removes the lines about oneDNN, which a machine may lack. */
static void drop_onednn(char *text) {
  char *to = text;
  for (char *line = text, *next; *line != 0; line = next) {
    next = line + strcspn(line, "\n");
    next += *next == '\n';
    char kept = *next;
    *next = 0;
    bool is_other = strstr(line, "oneDNN") == NULL;
    *next = kept;
    memmove(to, line, is_other ? (size_t)(next - line) : 0);
    to += is_other ? next - line : 0;
  }
  *to = 0;
}

/* Returns the log since its start; afterwards the log goes to standard error again. */
static const char *end_log(void) {
  static char text[8192];
  FILE *file = fopen(log_path, "rb");
  size_t length = file != NULL ? fread(text, 1, sizeof text - 1, file) : 0;
  text[length] = 0;
  if (file != NULL) {
    fclose(file);
  }
  drop_onednn(text);
  unlink(log_path);
  unsetenv("HEADRACE_LOG");
  hr__env_reload();
  hr__log_reload();
  return text;
}

static int line_count(const char *text) {
  int count = 0;
  for (; (text = strchr(text, '\n')) != NULL; ++text) {
    ++count;
  }
  return count;
}

/* Nothing is compiled, and a process prints one line, with these words. */
static void check_bad_compiler(const char *compiler, const char *reason, const char *remedy) {
  begin("wait", compiler);
  setenv("HEADRACE_CC_SECONDS", "1", 1);
  begin_log();
  hr_jit_counts before = counts();
  int64_t start = hr_clock_ns();
  for (int k = 0; k < 5; ++k) { /* each executable tries again */
    hr_stats stats = check_rounds(3);
    HR_ASSERT_EQ(stats.kernels_interpreted, 3);
  }
  HR_ASSERT_EQ(counts().compiled, before.compiled);
  HR_ASSERT(hr_clock_ns() - start < INT64_C(10) * 1000000000);
  const char *text = end_log();
  HR_ASSERT_EQ(line_count(text), 1);
  HR_ASSERT_CONTAINS(text, "headrace: warning: kernels stay interpreted");
  HR_ASSERT_CONTAINS(text, reason);
  HR_ASSERT_CONTAINS(text, remedy);
  end();
}

HR_TEST(a_compiler_that_is_missing_is_named_once) {
  check_bad_compiler("/nowhere/cc", "no compiler \"/nowhere/cc\"", "HEADRACE_CC");
}

HR_TEST(a_compiler_that_fails_is_named_once) {
  check_bad_compiler("false", "false\" does not work", "`pip install headrace[compiler]`");
}

HR_TEST(a_compiler_that_makes_nothing_is_named_once) {
  check_bad_compiler("true", "made no library", "`pip install headrace[compiler]`");
}

HR_TEST(a_machine_without_a_compiler_is_told_once) {
  char path[4096];
  hr_host_compiler compiler;
  snprintf(path, sizeof path, "%s", getenv("PATH"));
  setenv("PATH", "/nowhere", 1);
  hr_status status = hr__host_compiler_find(0, &compiler);
  bool has_wheel = status == HR_OK;
  hr_status_ignore(status);
  if (!has_wheel) {
    check_bad_compiler(NULL, "no gcc, cc or clang in PATH", "`apt install gcc`");
  }
  setenv("PATH", path, 1);
}

/* A compiler that exists and makes nothing, in front of one that works. */
HR_TEST(the_next_compiler_takes_the_turn_of_one_that_makes_nothing) {
  char link[256], path[4200], before[4096];
  hr_host_compiler compiler;
  hr_status status = hr__host_compiler_find(1, &compiler);
  bool has_two = status == HR_OK && strstr(compiler.path, "/gcc") == NULL;
  hr_status_ignore(status);
  if (!has_two) {
    HR_SKIP("one compiler");
  }
  begin("wait", NULL);
  snprintf(before, sizeof before, "%s", getenv("PATH"));
  snprintf(path, sizeof path, "%s:%s", root, before);
  snprintf(link, sizeof link, "%s/gcc", root);
  HR_ASSERT_EQ(symlink("/bin/true", link), 0);
  setenv("PATH", path, 1);
  begin_log();
  hr_stats stats = check_rounds(2);
  setenv("PATH", before, 1);
  HR_ASSERT_STR_EQ(end_log(), "");
  HR_ASSERT_EQ(stats.kernels_interpreted, 0);
  end();
}

HR_TEST(a_hanging_compiler_is_killed) {
  char path[96];
  snprintf(path, sizeof path, "/tmp/headrace_hang_%d", (int)getpid());
  int file = open(path, O_WRONLY | O_CREAT | O_EXCL, 0700);
  HR_ASSERT(file >= 0);
  static const char script[] = "#!/bin/sh\nsleep 600\n";
  HR_ASSERT_EQ(write(file, script, sizeof script - 1), (ssize_t)sizeof script - 1);
  close(file);
  check_bad_compiler(path, "was killed after 1.0 s", "HEADRACE_CC");
  unlink(path);
}

/* ---- the disk ---- */

static void cut_short(const char *path) {
  struct stat info;
  HR_ASSERT_EQ(stat(path, &info), 0);
  HR_ASSERT_EQ(truncate(path, info.st_size / 2), 0);
}

static void flip_byte(const char *path) {
  int file = open(path, O_RDWR);
  char byte;
  HR_ASSERT_EQ(pread(file, &byte, 1, 100), 1);
  byte = (char)(byte ^ 1);
  HR_ASSERT_EQ(pwrite(file, &byte, 1, 100), 1);
  close(file);
}

static void empty(const char *path) {
  HR_ASSERT_EQ(truncate(path, 0), 0);
}

static void open_to_others(const char *path) {
  HR_ASSERT_EQ(chmod(path, 0666), 0);
}

static void replace_by_link(const char *path) {
  unlink(path);
  HR_ASSERT_EQ(symlink("/etc/passwd", path), 0);
}

static void remove_file(const char *path) {
  unlink(path);
}

/* Runs the program as a new process would, and checks the counts of its kernel. */
static void run_again(int64_t compiled, int64_t loaded) {
  hr__compile_queue_reset();
  hr_jit_counts before = counts();
  hr_stats stats = check_rounds(2);
  HR_ASSERT_EQ(stats.kernels_interpreted, 0);
  HR_ASSERT_EQ(counts().compiled - before.compiled, compiled);
  HR_ASSERT_EQ(counts().loaded - before.loaded, loaded);
}

HR_TEST(kernels_are_found_on_disk_and_damaged_files_are_made_again) {
  if (!has_compiler()) {
    return;
  }
  begin("wait", NULL);
  run_again(1, 0);
  HR_ASSERT_EQ(each_file(".so", NULL), 1);
  HR_ASSERT_EQ(each_file(".ref", NULL), 1);
  run_again(0, 1);
  void (*const damages[])(const char *path) = {cut_short,      flip_byte,       empty,
                                               open_to_others, replace_by_link, remove_file};
  for (size_t k = 0; k < sizeof damages / sizeof *damages; ++k) {
    each_file(".so", damages[k]);
    run_again(1, 0);
    run_again(0, 1);
    each_file(".ref", damages[k]);
    run_again(1, 0);
    run_again(0, 1);
  }
  end();
}

/* True if a line of this process's memory map has all words. */
static bool maps(const char *word, const char *other) {
  FILE *file = fopen("/proc/self/maps", "r");
  char line[4096];
  bool found = false;
  HR_ASSERT(file != NULL);
  while (!found && fgets(line, sizeof line, file) != NULL) {
    found = strstr(line, word) != NULL && strstr(line, other) != NULL;
  }
  fclose(file);
  return found;
}

static bool stored_library_has(const char *symbol) {
  char command[512];
  snprintf(command, sizeof command, "grep -q '%s' '%s'/*.so", symbol, folder);
  return system(command) == 0;
}

HR_TEST(profilers_find_names_and_files) {
  begin("wait", NULL);
  fixture f = open_fixture();
  check_round(&f, 3);
  if (has_compiler()) {
    HR_ASSERT(stored_library_has("hr_mul_add_[0-9a-f]\\{8\\}_0"));
    HR_ASSERT(maps(folder, ".so"));
    HR_ASSERT(!maps("kernels.so", "(deleted)"));
  }
  close_fixture(&f);
  end();
}

HR_TEST(a_folder_that_others_may_write_to_is_not_used) {
  if (!has_compiler()) {
    return;
  }
  begin("wait", NULL);
  HR_ASSERT_EQ(chmod(root, 0777), 0);
  run_again(1, 0);
  HR_ASSERT_EQ(each_file(".so", NULL), 0);
  run_again(1, 0);
  HR_ASSERT_EQ(chmod(root, 0700), 0);
  run_again(1, 0);
  HR_ASSERT_EQ(each_file(".so", NULL), 1);
  end();
}

HR_TEST(no_folder_is_no_cache) {
  if (!has_compiler()) {
    return;
  }
  begin("wait", NULL);
  setenv("HEADRACE_CACHE", "-", 1);
  hr__env_reload();
  run_again(1, 0);
  run_again(1, 0);
  HR_ASSERT_EQ(each_file(".so", NULL), 0);
  end();
}

HR_TEST(processes_share_a_folder) {
  enum { PROCESSES = 4 };
  if (!has_compiler()) {
    return;
  }
  begin("wait", NULL);
  char command[1024], program[512];
  ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
  HR_ASSERT(length > 0);
  program[length] = 0;
  snprintf(command, sizeof command, "HEADRACE_TEST_SHARED=%s %s waiting 2> /dev/null", root, program);
  pid_t children[PROCESSES];
  for (int k = 0; k < PROCESSES; ++k) {
    children[k] = fork();
    if (children[k] == 0) {
      execl("/bin/sh", "sh", "-c", command, (char *)NULL);
      _exit(127);
    }
  }
  for (int k = 0; k < PROCESSES; ++k) {
    int result = -1;
    HR_ASSERT_EQ(waitpid(children[k], &result, 0), children[k]);
    HR_ASSERT_EQ(result, 0);
  }
  HR_ASSERT_EQ(each_file("", NULL), each_file(".ref", NULL) + each_file(".so", NULL));
  run_again(0, 1);
  end();
}

/* Runs `waiting` in a process of its own, by a shell whose command has the program's path for %s; its output goes to a
 * file. */
static const char *run_alone(const char *format) {
  static char text[8192];
  char command[2048], program[512], output[128], whole[4096];
  ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
  HR_ASSERT(length > 0);
  program[length] = 0;
  snprintf(output, sizeof output, "/tmp/headrace_output_%d", (int)getpid());
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
  snprintf(command, sizeof command, format, program);
#pragma GCC diagnostic pop
  snprintf(whole, sizeof whole, "{ %s; } > %s 2>&1", command, output);
  int result = system(whole);
  FILE *file = fopen(output, "rb");
  size_t count = file != NULL ? fread(text, 1, sizeof text - 1, file) : 0;
  text[count] = 0;
  if (file != NULL) {
    fclose(file);
  }
  drop_onednn(text);
  unlink(output);
  if (result != 0) {
    HR_FAIL("%s: %d: %s", whole, result, text);
  }
  return text;
}

static int warning_count(const char *text) {
  int count = 0;
  for (; (text = strstr(text, "headrace: warning: ")) != NULL; ++text) {
    ++count;
  }
  return count;
}

HR_TEST(without_a_home_kernels_are_compiled_and_one_line_tells) {
  if (!has_compiler()) {
    return;
  }
  const char *text = run_alone("env -u XDG_CACHE_HOME HOME=/proc/nowhere HEADRACE_TEST_SHARED=home %s waiting");
  HR_ASSERT_EQ(warning_count(text), 1);
  HR_ASSERT_CONTAINS(text, "compiled kernels are not kept");
  HR_ASSERT_CONTAINS(text, "HEADRACE_CACHE names another folder");
}

HR_TEST(a_missing_tmpdir_costs_nothing) {
  if (!has_compiler()) {
    return;
  }
  begin("wait", NULL);
  setenv("TMPDIR", "/nowhere/at/all", 1);
  begin_log();
  run_again(1, 0);
  unsetenv("TMPDIR");
  HR_ASSERT_STR_EQ(end_log(), "");
  end();
}

HR_TEST(mounts_that_forbid_execution_cost_nothing) {
  if (!has_compiler() || system("unshare -m true 2> /dev/null") != 0) {
    HR_SKIP("no compiler, or no right to mount");
  }
  const char *text = run_alone("unshare -m sh -c 'mount -t tmpfs -o noexec none /mnt && mkdir -m 700 /mnt/cache && "
                               "export TMPDIR=/mnt HEADRACE_TEST_SHARED=/mnt/cache && %1$s waiting && %1$s waiting && "
                               "test -e /mnt/cache/*/*.so'");
  HR_ASSERT_EQ(warning_count(text), 0);
}
