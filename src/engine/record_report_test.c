/* HEADRACE_TRACE and HEADRACE_PROFILE: each child is a program that ends in another way. The parent opens nothing. */
#include "hr_test.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/record_trace.h"
#include "headrace/profile.h"
#include "headrace/stream.h"

enum { COUNT = 64, TEXT_MAX = 1 << 16 };
#include "vectors.h"

/* tanh of 64 numbers, twice; a single number is read. Nothing is released: the pointers outlive the function, so that
 * leak checkers see them. */
static hr_status work(void) {
  static hr_device *device;
  static hr_stream *stream;
  static hr_buffer *x, *y;
  float values[COUNT] = {1}, result;
  HR_RETURN_IF_ERROR(hr_device_open("cpu", &device));
  HR_RETURN_IF_ERROR(hr_stream_create(device, &stream));
  HR_RETURN_IF_ERROR(hr_buffer_create(device, sizeof values, &x));
  HR_RETURN_IF_ERROR(hr_buffer_create(device, sizeof values, &y));
  hr_view in = view_of(x), out = view_of(y), one = out;
  const int64_t single[1] = {1};
  one.dims = single;
  HR_RETURN_IF_ERROR(hr_stream_write(stream, &in, values));
  for (int i = 0; i < 2; ++i) {
    HR_RETURN_IF_ERROR(hr_stream_record(stream, HR_OP_TANH, NULL, 1, &in, 1, &out));
    HR_RETURN_IF_ERROR(hr_stream_read(stream, &one, &result));
  }
  return HR_OK;
}

static void work_and_exit(void) {
  exit(work() != HR_OK);
}

static void work_and_be_interrupted(void) {
  if (work() == HR_OK) {
    raise(SIGINT);
    sleep(20); /* the report is written by a thread, which then ends the process */
  }
  exit(1);
}

static void work_and_fork(void) {
  hr_status status = work();
  pid_t child = fork();
  if (child == 0) {
    exit(0);
  }
  int outcome = 1;
  exit(status != HR_OK || waitpid(child, &outcome, 0) != child || outcome != 0);
}

static void report_and_leave(void) {
  hr_status status = work();
  hr_profile_report();
  hr_profile_report();
  _exit(status != HR_OK);
}

static const char *folder(void) {
  static char path[64];
  if (path[0] == '\0') {
    strcpy(path, "/tmp/headrace-report-XXXXXX");
    HR_ASSERT(mkdtemp(path) != NULL);
  }
  return path;
}

static const char *path_of(const char *name) {
  static char path[128];
  snprintf(path, sizeof path, "%s/%s", folder(), name);
  return path;
}

static char text[TEXT_MAX];

static const char *read_file(const char *name) {
  FILE *file = fopen(path_of(name), "r");
  HR_ASSERT(file != NULL);
  text[fread(text, 1, sizeof text - 1, file)] = '\0';
  fclose(file);
  remove(path_of(name));
  return text;
}

/* Runs fn in a child with these settings; its standard error is the file "errors". Returns the result of waitpid. */
static int run_child(void (*fn)(void), const char *tables, const char *trace) {
  (void)folder(); /* the parent's, for all children */
  pid_t child = fork();
  HR_ASSERT(child >= 0);
  if (child == 0) {
    int file = open(path_of("errors"), O_CREAT | O_TRUNC | O_WRONLY, 0600);
    dup2(file, STDERR_FILENO);
    setenv("HEADRACE_PROFILE", tables, 1);
    setenv("HEADRACE_TRACE", trace, 1);
    setenv("HEADRACE_JIT", "off", 1);
    signal(SIGINT, SIG_DFL);
    fn();
  }
  int outcome = -1;
  HR_ASSERT(waitpid(child, &outcome, 0) == child);
  return outcome;
}

static int count(const char *in, const char *part) {
  int times = 0;
  for (const char *at = strstr(in, part); at != NULL; at = strstr(at + 1, part)) {
    ++times;
  }
  return times;
}

static void check_tables(const char *errors) {
  HR_ASSERT_EQ(count(errors, "headrace: operations: 2 launches"), 1);
  HR_ASSERT_EQ(count(errors, "f32[64] -> f32[64]"), 1);
  HR_ASSERT_EQ(count(errors, "headrace: copies: 3 in"), 1);
  HR_ASSERT_EQ(count(errors, "device to host, single numbers"), 1);
  HR_ASSERT_EQ(count(errors, "headrace: fallbacks to the host: 0"), 1);
  HR_ASSERT_EQ(count(errors, "HEADRACE_PROFILE") + count(errors, "HEADRACE_TRACE"), 0); /* warnings */
}

HR_TEST(tables_are_printed_at_exit) {
  HR_ASSERT_EQ(run_child(work_and_exit, "all", ""), 0);
  check_tables(read_file("errors"));
}

HR_TEST(only_the_tables_that_are_named_are_printed) {
  HR_ASSERT_EQ(run_child(work_and_exit, "copies", ""), 0);
  const char *errors = read_file("errors");
  HR_ASSERT_EQ(count(errors, "headrace: copies: "), 1);
  HR_ASSERT_EQ(count(errors, "headrace: operations: ") + count(errors, "headrace: fallbacks"), 0);
  HR_ASSERT_EQ(run_child(work_and_exit, "copies,kernels", ""), 0);
  HR_ASSERT_CONTAINS(read_file("errors"), "HEADRACE_PROFILE: \"kernels\" is no table");
}

HR_TEST(tables_are_printed_once_on_an_interrupt_which_ends_the_process) {
  int outcome = run_child(work_and_be_interrupted, "all", "");
  HR_ASSERT(WIFSIGNALED(outcome) && WTERMSIG(outcome) == SIGINT);
  check_tables(read_file("errors"));
}

HR_TEST(a_forked_child_prints_nothing) {
  HR_ASSERT_EQ(run_child(work_and_fork, "all", ""), 0);
  check_tables(read_file("errors"));
}

HR_TEST(a_program_may_report_before_it_ends) {
  HR_ASSERT_EQ(run_child(report_and_leave, "all", ""), 0);
  check_tables(read_file("errors"));
}

HR_TEST(a_timeline_has_kernels_copies_commits_and_arrows) {
  char path[128];
  snprintf(path, sizeof path, "%s", path_of("trace.json"));
  HR_ASSERT_EQ(run_child(work_and_exit, "", path), 0);
  HR_ASSERT_EQ(count(read_file("errors"), "HEADRACE_TRACE"), 0);
  const char *trace = read_file("trace.json");
  HR_ASSERT_EQ(count(trace, "\"cat\":\"kernel\""), 2);
  HR_ASSERT_EQ(count(trace, "\"ph\":\"s\""), 2);
  HR_ASSERT_EQ(count(trace, "\"ph\":\"f\""), 2);
  HR_ASSERT_EQ(count(trace, "\"name\":\"copy out\""), 2);
  HR_ASSERT_EQ(count(trace, "\"operation names\":[\"tanh\"]"), 2);
  HR_ASSERT_EQ(count(trace, "{") - count(trace, "}"), 0);
  HR_ASSERT_CONTAINS(trace, "\n]}\n");
}

/* A commit of two kernels, and one of the kernels. */
static void write_known_events(hr_trace_file *file) {
  static const char *const names[] = {"tanh", "add"};
  const hr_profile_record commit = {
      .kind = HR_PROFILE_COMMIT, .begin_ns = 1000, .end_ns = 1300, .name = "c", .shapes = "", .provider = ""};
  const hr_profile_record kernel = {.kind = HR_PROFILE_KERNEL,
                                    .begin_ns = 1100,
                                    .end_ns = 1200,
                                    .name = "k",
                                    .shapes = "",
                                    .provider = "",
                                    .device = "cpu:0",
                                    .bytes_read = 50,
                                    .bandwidth_share = 0.5,
                                    .operation_count = 2,
                                    .operations = (const uint64_t[]){0, 1},
                                    .operation_names = names};
  hr__trace_protobuf.track(file, 2, "cpu:0", &kernel);
  hr__trace_protobuf.event(
      file, &(const hr_trace_event){.record = &commit, .prefix = "", .category = "commit", .track = 1, .out = {7, 2}});
  hr__trace_protobuf.event(
      file, &(const hr_trace_event){.record = &kernel, .prefix = "p ", .category = "kernel", .track = 2, .in = {7, 1}});
}

/* Lengths of messages have four bytes. */
#define HR_LENGTH(bytes) bytes "\x80\x80\0"

HR_TEST(a_timeline_in_perfettos_format_has_known_bytes) {
  static const char track[] = "\x0a" HR_LENGTH("\x9d") "\x50\x01\xe2\x03" HR_LENGTH(
      "\x95") "\x08\x82\x80\x80\x80\x90\x01\x28\x80\x80\x80\x80\x90\x01\x12\x05"
              "cpu:0";
  static const char commit[] = "\x0a" HR_LENGTH("\xc3") "\x50\x01\x40\xe8\x07\x5a" HR_LENGTH(
      "\xb9") "\x48\x01\x58\x81\x80\x80\x80\x90\x01\xb2\x01\x06"
              "commit\xba\x01\x01"
              "c"
              "\xf9\x02\x07\0\0\0\0\0\0\0\xf9\x02\x08\0\0\0\0\0\0\0"
              "\x22" HR_LENGTH("\x8a") "\x52\x03"
                                       "run\x32\x03"
                                       "0.0";
  hr_trace_file file = {.pid = 9};
  write_known_events(&file);
  HR_ASSERT(!file.text.failed);
  HR_ASSERT_BYTES_EQ(file.text.data, track, sizeof track - 1);
  HR_ASSERT_BYTES_EQ(file.text.data + sizeof track - 1, commit, sizeof commit - 1);
  hr_text_fini(&file.text);
}

HR_TEST(a_timeline_that_cannot_be_written_is_one_warning) {
  HR_ASSERT_EQ(run_child(work_and_exit, "", "/nowhere/trace.json"), 0);
  const char *errors = read_file("errors");
  HR_ASSERT_EQ(count(errors, "HEADRACE_TRACE"), 1);
  HR_ASSERT_CONTAINS(errors, "HEADRACE_TRACE: can't write \"/nowhere/trace.json\": No such file or directory");
  remove(folder());
}
