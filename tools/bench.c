/* bench.c: `headrace bench`: the times of a graph's answers for several sizes of its batch, on random inputs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "against.h"
#include "commands.h"
#include "headrace/profile.h"
#include "headrace/session.h"
#include "model.h"
#include "progress.h"

enum { BATCHES_MAX = 64, RUNS_MIN = 3, RUNS_MAX = 1 << 20 };

typedef struct bench {
  const char *path, *device_name, *batch_name; /* batch_name: the first dim of the first input; NULL: no symbol */
  const char *engines;                         /* NULL: no others */
  against against;
  int batch_count;
  int64_t batches[BATCHES_MAX];
  double seconds; /* for each batch */
  bool trusts;
  hr_dtype products; /* hr_session_options */
  named_values sizes;
  hr_device *device;
  hr_stream *stream;
  hr_graph *graph;
  hr_session *session;
  model_tensors tensors;
  int64_t open_ns, *times; /* times: of the runs of one batch, RUNS_MAX */
} bench;

typedef struct bench_row {
  int64_t first_ns, median_ns, best_ns;
  int runs;
} bench_row;

/* ---- arguments ---- */

/* Sizes with commas between them. */
static bool parse_batches(bench *b, const char *text) {
  char *end = NULL;
  do {
    if (*text < '0' || *text > '9' || b->batch_count == BATCHES_MAX) {
      return false;
    }
    int64_t size = strtoll(text, &end, 10);
    if (size > INT32_MAX || (*end != ',' && *end != '\0')) {
      return false;
    }
    b->batches[b->batch_count++] = size;
    text = end + 1;
  } while (*end == ',');
  return true;
}

static bool parse_option(bench *b, const char *option, char *value) {
  char *end = NULL;
  if (strcmp(option, "--batch") == 0) {
    return parse_batches(b, value);
  }
  if (strcmp(option, "--dim") == 0) {
    return add_named_size(&b->sizes, value);
  }
  if (strcmp(option, "--seconds") == 0) {
    b->seconds = strtod(value, &end);
    return b->seconds > 0 && b->seconds <= 3600 && *end == '\0';
  }
  if (strcmp(option, "--against") == 0) {
    b->engines = value;
    return true;
  }
  if (strcmp(option, "--precision") == 0) {
    b->products = strcmp(value, "f32") == 0 ? HR_DTYPE_NONE : hr_dtype_parse(value);
    return strcmp(value, "f32") == 0 || b->products == HR_DTYPE_BF16 || b->products == HR_DTYPE_F16;
  }
  if (strcmp(option, "--device") == 0) {
    b->device_name = value;
    return true;
  }
  return false;
}

static bool parse_arguments(bench *b, int argc, char **argv) {
  for (int i = 0; i < argc; ++i) {
    if (argv[i][0] != '-' && b->path == NULL) {
      b->path = argv[i];
    } else if (strcmp(argv[i], "--trust") == 0) {
      b->trusts = true;
    } else if (i + 1 < argc && parse_option(b, argv[i], argv[i + 1])) {
      ++i;
    } else {
      headrace_bad_argument("bench", argv[i]);
      return false;
    }
  }
  if (b->path == NULL) {
    headrace_missing("bench", "a file");
  }
  return b->path != NULL;
}

/* ---- measuring ---- */

/* The symbol of the first input's first dim is the batch; its sizes are those of --batch, or that of --dim, or 1. */
static hr_status find_batch(bench *b) {
  hr_type type = {0};
  if (hr_graph_input_count(b->graph) > 0) {
    HR_RETURN_IF_ERROR(hr_graph_type(b->graph, hr_graph_input_value(b->graph, 0), &type));
  }
  b->batch_name = type.rank > 0 ? type.symbols[0] : NULL;
  if (b->batch_name == NULL && b->batch_count > 0) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT,
                          "--batch: the first dim of the first input is a number, expected a symbol");
  }
  const char *given = b->batch_name != NULL ? find_named_value(&b->sizes, b->batch_name) : NULL;
  if (given != NULL && b->batch_count > 0) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "--batch and --dim both have sizes of \"%s\"", b->batch_name);
  }
  if (b->batch_count == 0) {
    b->batches[b->batch_count++] = 1;
  }
  if (given != NULL && !parse_size(given, &b->batches[0])) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "--dim %s=%s is no size", b->batch_name, given);
  }
  return HR_OK;
}

static hr_status run_once(bench *b, int64_t *out_ns) {
  release_results(&b->tensors);
  int64_t begin = hr_profile_clock_ns();
  HR_RETURN_IF_ERROR(hr_session_run(b->session, b->tensors.input_count, b->tensors.places, b->tensors.result_count,
                                    b->tensors.results));
  HR_RETURN_IF_ERROR(hr_stream_synchronize(b->stream));
  *out_ns = hr_profile_clock_ns() - begin;
  return HR_OK;
}

static int by_time(const void *x, const void *y) {
  int64_t a = *(const int64_t *)x, b = *(const int64_t *)y;
  return (a > b) - (a < b);
}

/* Runs for the time that was asked for, after the first answer. */
static hr_status measure(bench *b, int64_t batch, bench_row *out) {
  HR_RETURN_IF_ERROR(run_once(b, &out->first_ns));
  char what[32];
  snprintf(what, sizeof what, "batch %lld", (long long)batch);
  const int64_t begin = hr_profile_clock_ns(), limit = (int64_t)(b->seconds * 1e9);
  int64_t passed = 0, shown = 0;
  for (out->runs = 0; out->runs < RUNS_MIN || (passed < limit && out->runs < RUNS_MAX); ++out->runs) {
    HR_RETURN_IF_ERROR(run_once(b, &b->times[out->runs]));
    passed = hr_profile_clock_ns() - begin;
    if (passed >= shown) {
      show_progress(what, (double)passed / (double)limit);
      shown = passed + limit / 20;
    }
  }
  clear_progress();
  qsort(b->times, (size_t)out->runs, sizeof *b->times, by_time);
  out->median_ns = b->times[out->runs / 2];
  out->best_ns = b->times[0];
  return HR_OK;
}

/* Inputs of this batch; those of the former one go. */
static hr_status make_inputs(bench *b, int64_t batch) {
  char text[64];
  named_values sizes = b->sizes;
  free_tensors(&b->tensors);
  HR_RETURN_IF_ERROR(allocate_tensors(b->graph, &b->tensors));
  if (b->batch_name != NULL && sizes.count < NAMED_VALUES_MAX) {
    snprintf(text, sizeof text, "%lld", (long long)batch);
    sizes.data[sizes.count++] = (named_value){b->batch_name, text};
  }
  for (int i = 0; i < b->tensors.input_count; ++i) {
    HR_RETURN_IF_ERROR(
        make_input(b->stream, b->graph, hr_graph_input_value(b->graph, i), &sizes, &b->tensors.inputs[i]));
  }
  return hr_stream_synchronize(b->stream);
}

static void print_row(int64_t batch, const bench_row *row) {
  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  printf("%8lld %12.3f %12.4f %12.4f %8d %12.1f\n", (long long)batch, (double)row->first_ns * 1e-6,
         (double)row->median_ns * 1e-6, (double)row->best_ns * 1e-6, row->runs, (double)usage.ru_maxrss / 1024);
  fflush(stdout);
}

static hr_status run(bench *b) {
  HR_RETURN_IF_ERROR(b->engines != NULL ? against_check(b->engines, b->path) : HR_OK);
  HR_RETURN_IF_ERROR(b->trusts ? trust_model(b->path) : HR_OK);
  const hr_session_options options = {.products = b->products};
  int64_t begin = hr_profile_clock_ns();
  HR_RETURN_IF_ERROR(open_model(b->path, NULL, &b->graph));
  HR_RETURN_IF_ERROR(check_symbols(b->graph, &b->sizes));
  HR_RETURN_IF_ERROR(find_batch(b));
  HR_RETURN_IF_ERROR(hr_device_open(b->device_name, &b->device));
  HR_RETURN_IF_ERROR(hr_stream_create(b->device, &b->stream));
  HR_RETURN_IF_ERROR(hr_session_create(b->stream, b->graph, &options, &b->session));
  b->open_ns = hr_profile_clock_ns() - begin;
  b->times = malloc(RUNS_MAX * sizeof *b->times);
  if (b->times == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no memory for the times of %d runs", RUNS_MAX);
  }
  printf("%s on %s: opened in %.3f ms\n", b->path, b->device_name, (double)b->open_ns * 1e-6);
  printf("%8s %12s %12s %12s %8s %12s\n", "batch", "first, ms", "median, ms", "best, ms", "runs", "peak, MiB");
  for (int i = 0; i < b->batch_count; ++i) {
    bench_row row = {0};
    HR_RETURN_IF_ERROR(make_inputs(b, b->batches[i]));
    HR_RETURN_IF_ERROR(measure(b, b->batches[i], &row));
    print_row(b->batches[i], &row);
    HR_RETURN_IF_ERROR(against_add(&b->against, b->batches[i], b->graph, b->tensors.input_count, b->tensors.inputs));
  }
  return b->engines != NULL ? against_run(&b->against, b->engines, b->path, b->seconds, b->products) : HR_OK;
}

int headrace_bench(int argc, char **argv) {
  static bench b = {.device_name = "cpu", .seconds = 1};
  if (!parse_arguments(&b, argc, argv)) {
    return 2;
  }
  int failed = headrace_fail(run(&b));
  clear_progress();
  free_tensors(&b.tensors);
  hr_session_release(b.session);
  hr_graph_release(b.graph);
  hr_stream_release(b.stream);
  hr_device_release(b.device);
  free(b.times);
  against_free(&b.against);
  return failed;
}
