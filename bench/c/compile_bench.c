/* The cost of compiling programs: files that HEADRACE_DUMP wrote, recorded once and compiled again and again, without
 * running.
 *
 *   compile_bench [--repeat N] [--evict MB] FILE...
 *
 * Prints microseconds of CPU time a record: of the first compilation in this process, and of the best and the median of
 * the repetitions, which find the compiler's code and memory warm. On the wall clock, programs that take longer than
 * a slice of the scheduler would mostly be interrupted on a machine that others use. `--evict 64` reads so much other
 * memory before each of them, as a training step would: the caches are cold.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../../tools/replay.h"
#include "engine/stream.h"

enum { REPEATS = 20, REPEATS_MAX = 10000 };

static void check(hr_status status) {
  if (status != HR_OK) {
    fprintf(stderr, "compile_bench: %s\n", hr_status_message(status));
    exit(1);
  }
}

static int compare(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

/* CPU time of this thread. */
static int64_t thread_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Nanoseconds of a compilation of the pending records. */
static int64_t compile_pending(hr_stream *stream) {
  hr_mutex_lock(&stream->mutex);
  int64_t before = thread_ns();
  check(hr__stream_probe_pending(stream));
  int64_t ns = thread_ns() - before;
  hr__cache_clear(&stream->cache);
  hr_mutex_unlock(&stream->mutex);
  return ns;
}

static void discard_pending(hr_stream *stream) {
  hr_mutex_lock(&stream->mutex);
  hr__trace_clear(&stream->pending);
  hr_mutex_unlock(&stream->mutex);
}

/* Fills the caches with `bytes` of other data. */
static void evict(size_t bytes) {
  static char *data;
  data = data != NULL ? data : malloc(bytes + 1);
  for (size_t i = 0; data != NULL && i < bytes; i += 64) {
    ++*(volatile char *)&data[i];
  }
}

static void bench(const char *path, int repeats, size_t evicted) {
  replay r = {.path = path, .device_name = "cpu", .mode = -1};
  static int64_t ns[REPEATS_MAX];
  check(replay_open(&r));
  check(replay_record(&r));
  for (int i = 0; i < repeats; ++i) {
    evict(evicted);
    ns[i] = compile_pending(r.stream);
  }
  double records = (double)r.program.node_count * 1e3, first = (double)ns[0];
  qsort(ns, (size_t)repeats, sizeof *ns, compare);
  printf("%-40s %5d records: first %7.2f us a record, best %6.2f, median %6.2f\n", path, r.program.node_count,
         first / records, (double)ns[0] / records, (double)ns[repeats / 2] / records);
  discard_pending(r.stream);
  replay_close(&r);
}

int main(int argc, char **argv) {
  int repeats = REPEATS;
  size_t evicted = 0;
  setenv("HEADRACE_GENERAL_PLANS", "off", 1); /* plans of earlier compilations are not used */
  setenv("HEADRACE_JIT", "off", 0);
  for (int i = 1; i < argc; ++i) {
    if (strcmp(argv[i], "--repeat") == 0 && i + 1 < argc) {
      repeats = atoi(argv[++i]);
      repeats = repeats < 1 ? 1 : repeats > REPEATS_MAX ? REPEATS_MAX : repeats;
    } else if (strcmp(argv[i], "--evict") == 0 && i + 1 < argc) {
      evicted = (size_t)strtoull(argv[++i], NULL, 10) << 20;
    } else {
      bench(argv[i], repeats, evicted);
    }
  }
  return 0;
}
