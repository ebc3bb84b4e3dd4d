/* run_package.c: `headrace run` of a package or a model: inputs from files of arrays, outputs to such files. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "commands.h"
#include "headrace/file.h"
#include "headrace/package.h"
#include "headrace/session.h"
#include "package.h"

enum { FILES_MAX = 256, PRINT_ELEMENTS = 8 };

/* NAME=FILE of --input or --output. */
typedef struct named_file {
  const char *name, *path;
  size_t length; /* of the name */
} named_file;

typedef struct package_run {
  const char *path, *device_name;
  int repeat, input_count, output_count, dim_count;
  bool prints;
  named_file inputs[FILES_MAX], outputs[FILES_MAX], dims[FILES_MAX]; /* dims: NAME=SIZE */
  hr_device *device;
  hr_stream *stream;
  hr_graph *graph;
  hr_session *session;
  hr_tensor *tensors, *results;
  const hr_tensor **places;
} package_run;

/* ---- arguments ---- */

static bool add_file(const char *text, named_file *files, int *count) {
  const char *equals = strchr(text, '=');
  if (equals == NULL || equals == text || *count == FILES_MAX) {
    return false;
  }
  files[(*count)++] = (named_file){text, equals + 1, (size_t)(equals - text)};
  return true;
}

/* NAME=SIZE: a size of 0 or more. */
static bool add_dim(package_run *r, const char *text) {
  char *end = NULL;
  if (!add_file(text, r->dims, &r->dim_count)) {
    return false;
  }
  const char *size = r->dims[r->dim_count - 1].path;
  return size[0] >= '0' && size[0] <= '9' && strtoll(size, &end, 10) < INT64_MAX && *end == '\0';
}

/* True if it is an option of this command, with its value. */
static bool parse_option(package_run *r, const char *option, const char *value) {
  if (strcmp(option, "--input") == 0) {
    return add_file(value, r->inputs, &r->input_count);
  }
  if (strcmp(option, "--output") == 0) {
    return add_file(value, r->outputs, &r->output_count);
  }
  if (strcmp(option, "--dim") == 0) {
    return add_dim(r, value);
  }
  if (strcmp(option, "--repeat") == 0) {
    return (r->repeat = atoi(value)) > 0;
  }
  if (strcmp(option, "--device") == 0) {
    r->device_name = value;
    return true;
  }
  return false;
}

static bool parse_arguments(package_run *r, int argc, char **argv) {
  for (int i = 0; i < argc; ++i) {
    if (strcmp(argv[i], "--print") == 0) {
      r->prints = true;
    } else if (argv[i][0] != '-' && r->path == NULL) {
      r->path = argv[i];
    } else if (i + 1 < argc && parse_option(r, argv[i], argv[i + 1])) {
      ++i;
    } else {
      fprintf(stderr, "headrace run: argument \"%s\" is unknown, or has no right value; see `headrace run --help`\n",
              argv[i]);
      return false;
    }
  }
  return true;
}

static const named_file *find_file(const named_file *files, int count, const char *name) {
  for (int i = 0; i < count; ++i) {
    if (strlen(name) == files[i].length && memcmp(name, files[i].name, files[i].length) == 0) {
      return &files[i];
    }
  }
  return NULL;
}

/* The first of the files whose name is none of those. */
static hr_status check_names(const package_run *r, const named_file *files, int count, bool are_inputs) {
  for (int i = 0; i < count; ++i) {
    int all = are_inputs ? hr_graph_input_count(r->graph) : hr_graph_output_count(r->graph);
    bool exists = false;
    for (int k = 0; k < all; ++k) {
      const char *name = are_inputs ? hr_graph_value_name(r->graph, hr_graph_input_value(r->graph, k))
                                    : hr_graph_output_name(r->graph, k);
      exists |= strlen(name) == files[i].length && memcmp(name, files[i].name, files[i].length) == 0;
    }
    if (!exists) {
      return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "the graph has no %s \"%.*s\"; `headrace inspect` lists them",
                            are_inputs ? "input" : "output", (int)files[i].length, files[i].name);
    }
  }
  return HR_OK;
}

/* ---- inputs and outputs ---- */

static hr_status read_input(package_run *r, const char *path, hr_tensor *out) {
  hr_file *file = NULL;
  HR_RETURN_IF_ERROR(hr_file_open(path, &file));
  hr_status status =
      hr_file_count(file) == 1
          ? hr_file_array(r->stream, file, 0, out)
          : hr_status_make(HR_STATUS_INVALID_ARGUMENT, "%s has %d arrays, expected one", path, hr_file_count(file));
  hr_file_close(file);
  return status;
}

/* The size of a dim: that of --dim, or 1. */
static int64_t dim_size(const package_run *r, const hr_type *type, int d) {
  if (type->symbols[d] == NULL) {
    return type->dims[d];
  }
  const named_file *given = find_file(r->dims, r->dim_count, type->symbols[d]);
  return given != NULL ? atoll(given->path) : 1;
}

/* Random numbers between -1 and 1, or zeros for other dtypes than f32. */
static hr_status make_input(package_run *r, hr_value value, hr_tensor *out) {
  hr_type type;
  int64_t dims[HR_RANK_MAX], count = 1;
  HR_RETURN_IF_ERROR(hr_graph_type(r->graph, value, &type));
  for (int d = 0; d < type.rank; ++d) {
    dims[d] = dim_size(r, &type, d);
    if (__builtin_mul_overflow(count, dims[d], &count) || count > INT32_MAX) {
      return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "input \"%s\" has too many elements",
                            hr_graph_value_name(r->graph, value));
    }
  }
  char *elements = calloc((size_t)count + 1, hr_dtype_size(type.dtype));
  if (elements == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no memory for input \"%s\"",
                          hr_graph_value_name(r->graph, value));
  }
  uint32_t state = (uint32_t)value;
  for (int64_t i = 0; type.dtype == HR_DTYPE_F32 && i < count; ++i) {
    state = state * 1664525u + 1013904223u;
    float number = (float)(state >> 8) / (float)(1 << 23) - 1;
    memcpy(elements + (size_t)i * sizeof number, &number, sizeof number);
  }
  hr_status status = hr_array_from_host(r->stream, type.dtype, type.rank, dims, elements, out);
  free(elements);
  return status;
}

static hr_status read_inputs(package_run *r) {
  for (int i = 0; i < hr_graph_input_count(r->graph); ++i) {
    hr_value value = hr_graph_input_value(r->graph, i);
    const named_file *file = find_file(r->inputs, r->input_count, hr_graph_value_name(r->graph, value));
    HR_RETURN_IF_ERROR(file != NULL ? read_input(r, file->path, &r->tensors[i]) : make_input(r, value, &r->tensors[i]));
    r->places[i] = &r->tensors[i];
  }
  return HR_OK;
}

static hr_status print_result(package_run *r, const char *name, const hr_tensor *x) {
  hr_tensor numbers = {0}, flat = {0};
  const hr_tensor *of = x;
  const hr_attribute f64 = {.kind = HR_ATTRIBUTE_DTYPE, .value = {.dtype = HR_DTYPE_F64}};
  int64_t count = hr_tensor_count(x);
  HR_RETURN_IF_ERROR(hr_functional_apply(r->stream, HR_FUNCTIONAL_ASTYPE, 1, &of, 1, &f64, 1, &numbers));
  flat = numbers;
  flat.rank = 1, flat.dims[0] = count < PRINT_ELEMENTS ? count : PRINT_ELEMENTS, flat.strides[0] = 1;
  double elements[PRINT_ELEMENTS];
  hr_status status = hr_array_read(r->stream, &flat, elements);
  printf("%s %s:", name, hr_dtype_name(x->dtype));
  for (int64_t i = 0; status == HR_OK && i < flat.dims[0]; ++i) {
    printf(" %.9g", elements[i]);
  }
  printf(count > PRINT_ELEMENTS ? " ... of %lld\n" : "\n", (long long)count);
  hr_tensor_release(&numbers);
  return status;
}

static hr_status write_results(package_run *r) {
  for (int i = 0; i < hr_graph_output_count(r->graph); ++i) {
    const char *name = hr_graph_output_name(r->graph, i);
    const hr_tensor *x = &r->results[i];
    const named_file *file = find_file(r->outputs, r->output_count, name);
    if (file != NULL) {
      const hr_file_contents contents = {.format = HR_FILE_NPY, .count = 1, .names = &name, .arrays = &x};
      HR_RETURN_IF_ERROR(hr_file_write(r->stream, file->path, &contents));
    }
    HR_RETURN_IF_ERROR(r->prints ? print_result(r, name, x) : HR_OK);
  }
  return HR_OK;
}

/* ---- running ---- */

static int64_t now_ns(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static void release_results(package_run *r) {
  for (int i = 0; r->results != NULL && i < hr_graph_output_count(r->graph); ++i) {
    hr_tensor_release(&r->results[i]);
  }
}

/* Runs and waits; the results of the last run stay. */
static hr_status repeat_run(package_run *r) {
  int64_t first = 0, best = INT64_MAX;
  for (int i = 0; i < r->repeat; ++i) {
    release_results(r);
    int64_t begin = now_ns();
    HR_RETURN_IF_ERROR(hr_session_run(r->session, hr_graph_input_count(r->graph), r->places,
                                      hr_graph_output_count(r->graph), r->results));
    HR_RETURN_IF_ERROR(hr_stream_synchronize(r->stream));
    int64_t ns = now_ns() - begin;
    first = i == 0 ? ns : first;
    best = ns < best ? ns : best;
  }
  printf("%s on %s: first run %.2f ms, best of %d %.1f us\n", r->path, r->device_name, (double)first * 1e-6, r->repeat,
         (double)best * 1e-3);
  return HR_OK;
}

static hr_status open_graph(package_run *r) {
  hr_package *package = NULL;
  if (is_onnx(r->path)) {
    return open_model(r->path, NULL, &r->graph);
  }
  HR_RETURN_IF_ERROR(hr_package_open(r->path, &package));
  hr_status status = hr_package_graph(package, &r->graph);
  hr_package_close(package);
  return status;
}

static hr_status run(package_run *r) {
  HR_RETURN_IF_ERROR(open_graph(r));
  HR_RETURN_IF_ERROR(check_names(r, r->inputs, r->input_count, true));
  HR_RETURN_IF_ERROR(check_names(r, r->outputs, r->output_count, false));
  HR_RETURN_IF_ERROR(hr_device_open(r->device_name, &r->device));
  HR_RETURN_IF_ERROR(hr_stream_create(r->device, &r->stream));
  r->tensors = calloc((size_t)hr_graph_input_count(r->graph) + 1, sizeof *r->tensors);
  r->places = calloc((size_t)hr_graph_input_count(r->graph) + 1, sizeof(hr_tensor *));
  r->results = calloc((size_t)hr_graph_output_count(r->graph) + 1, sizeof *r->results);
  if (r->tensors == NULL || r->places == NULL || r->results == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no memory for inputs");
  }
  HR_RETURN_IF_ERROR(read_inputs(r));
  HR_RETURN_IF_ERROR(hr_session_create(r->stream, r->graph, NULL, &r->session));
  HR_RETURN_IF_ERROR(repeat_run(r));
  return write_results(r);
}

int run_package(int argc, char **argv) {
  static package_run r = {.device_name = "cpu", .repeat = 1};
  if (!parse_arguments(&r, argc, argv)) {
    return 2;
  }
  int failed = headrace_fail(run(&r));
  release_results(&r);
  for (int i = 0; r.tensors != NULL && i < hr_graph_input_count(r.graph); ++i) {
    hr_tensor_release(&r.tensors[i]);
  }
  free(r.tensors);
  free(r.results);
  free(r.places);
  hr_session_release(r.session);
  hr_graph_release(r.graph);
  hr_stream_release(r.stream);
  hr_device_release(r.device);
  return failed;
}
