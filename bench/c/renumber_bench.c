/* The cost of new dims: programs of one structure, files that HEADRACE_DUMP wrote, recorded one after the other without
 * running. The first few are compiled; the others get new numbers (engine/general_instance.h).
 *
 *   renumber_bench [--repeat N] [--evict MB | --memory] FILE...
 *
 * Prints nanoseconds a record, of the programs that got new numbers: the median of each, and of these the median and
 * the mean. `--evict 4` writes so much other memory in between, as kernels would; with 64, code and data come from
 * memory, as in a process that trains.
 *
 * --memory: each program is recorded three times, so that it is kept. Prints the mean of the host memory, as it is
 * counted, of those that are copies of a general plan, and of the general plans' instances, which new dims share.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../tools/replay.h"
#include "base/allocator.h"
#include "engine/stream.h"

enum { REPEATS = 20, REPEATS_MAX = 1000, FILES_MAX = 1000 };

static void check(hr_status status) {
  if (status != HR_OK) {
    fprintf(stderr, "renumber_bench: %s\n", hr_status_message(status));
    exit(1);
  }
}

static int compare(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double median(double *values, int count) {
  qsort(values, (size_t)count, sizeof *values, compare);
  return values[count / 2];
}

/* Fills the caches with `bytes` of other data. */
static void evict(size_t bytes) {
  static char *data;
  data = data != NULL ? data : malloc(bytes + 1);
  for (size_t i = 0; data != NULL && i < bytes; i += 64) {
    ++*(volatile char *)&data[i];
  }
}

/* Nanoseconds a record until the pending records are ready to run; 0: they were known, or were compiled. */
static double prepare_pending(hr_stream *stream) {
  hr_mutex_lock(&stream->mutex);
  double records = (double)stream->pending.records.count;
  hr_stats before = stream->stats;
  check(hr__stream_probe_pending(stream));
  hr__trace_clear(&stream->pending);
  bool is = stream->stats.general_plans > before.general_plans;
  double ns = is ? (double)(stream->stats.compile_ns - before.compile_ns) / records : 0;
  hr_mutex_unlock(&stream->mutex);
  return ns;
}

/* All keys are new again. */
static void forget_sightings(hr_stream *stream) {
  hr_mutex_lock(&stream->mutex);
  hr_free(stream->cache.general.sightings);
  stream->cache.general.sightings = NULL;
  hr_mutex_unlock(&stream->mutex);
}

/* All files use the first one's stream. */
static void open_all(int count, char **paths, replay *all) {
  for (int i = 0; i < count; ++i) {
    all[i] = (replay){.path = paths[i], .device_name = "cpu", .mode = -1};
    check(replay_open(&all[i]));
    if (i > 0) {
      hr_stream_release(all[i].stream);
      all[i].stream = all[0].stream;
    }
  }
}

static void close_all(int count, replay *all) {
  for (int i = count - 1; i >= 0; --i) {
    hr_stream *stream = all[i].stream;
    all[i].stream = i == 0 ? stream : NULL;
    replay_close(&all[i]);
  }
}

static void bench(int count, replay *all, int repeats, size_t evicted) {
  static double ns[FILES_MAX][REPEATS_MAX], medians[FILES_MAX];
  double sum = 0;
  int found = 0;
  for (int r = 0; r < repeats; ++r) {
    for (int i = 0; i < count; ++i) {
      check(replay_record(&all[i]));
      evict(evicted);
      ns[i][r] = prepare_pending(all[0].stream);
    }
    forget_sightings(all[0].stream);
  }
  for (int i = 0; i < count; ++i) {
    double own = median(ns[i], repeats);
    if (own > 0) {
      medians[found++] = own;
      sum += own;
    }
  }
  printf("%d of %d programs got new numbers: median %.0f, mean %.0f ns a record\n", found, count,
         found > 0 ? median(medians, found) : 0, found > 0 ? sum / found : 0);
}

static size_t bytes_of_generals(const hr_stream *stream) {
  size_t bytes = 0;
  for (size_t i = 0; i < stream->cache.general.count; ++i) {
    bytes += (size_t)stream->cache.general.all[i].bytes;
  }
  return bytes;
}

/* Of programs that are copies of a general plan: those of the first third teach it. */
static void measure_memory(int count, replay *all) {
  hr_stream *stream = all[0].stream;
  size_t counted = 0;
  int kept = 0;
  for (int i = 0; i < count; ++i) {
    int64_t compiles = stream->stats.compiles - stream->stats.general_plans;
    for (int times = 0; times < 3; ++times) {
      check(replay_record(&all[i]));
      (void)prepare_pending(stream);
    }
    if (i >= count / 3 && stream->stats.compiles - stream->stats.general_plans == compiles) {
      counted += stream->cache.newest->footprint;
      ++kept;
    }
  }
  printf("%d of %d programs are copies: %.1f KiB each; %zu instances of general plans: %.1f KiB\n", kept, count,
         kept > 0 ? (double)counted / 1024 / kept : 0, stream->cache.general.count,
         (double)bytes_of_generals(stream) / 1024);
}

int main(int argc, char **argv) {
  static replay all[FILES_MAX];
  static char *paths[FILES_MAX];
  int repeats = REPEATS, count = 0;
  size_t evicted = 0;
  bool measures_memory = false;
  setenv("HEADRACE_JIT", "off", 0);
  for (int i = 1; i < argc; ++i) {
    if (strcmp(argv[i], "--repeat") == 0 && i + 1 < argc) {
      repeats = atoi(argv[++i]);
      repeats = repeats < 1 ? 1 : repeats > REPEATS_MAX ? REPEATS_MAX : repeats;
    } else if (strcmp(argv[i], "--evict") == 0 && i + 1 < argc) {
      evicted = (size_t)strtoull(argv[++i], NULL, 10) << 20;
    } else if (strcmp(argv[i], "--memory") == 0) {
      measures_memory = true;
    } else if (count < FILES_MAX) {
      paths[count++] = argv[i];
    }
  }
  open_all(count, paths, all);
  if (measures_memory) {
    measure_memory(count, all);
  } else {
    bench(count, all, repeats, evicted);
  }
  close_all(count, all);
  return 0;
}
