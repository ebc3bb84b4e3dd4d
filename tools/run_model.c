/* run_model.c: `headrace run` of a package or an ONNX model: inputs from files of arrays, outputs to such files. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "headrace/file.h"
#include "headrace/profile.h"
#include "headrace/session.h"
#include "model.h"

enum { PRINT_ELEMENTS = 8 };

typedef struct model_run {
  const char *path, *device_name;
  int repeat;
  bool prints, trusts;
  named_values inputs, outputs, sizes; /* names of files; sizes of symbols */
  hr_device *device;
  hr_stream *stream;
  hr_graph *graph;
  hr_session *session;
  model_tensors tensors;
} model_run;

/* ---- arguments ---- */

/* NAME=FILE, or the file of the only input or output. */
static bool add_file(named_values *files, char *text) {
  if (text[0] != '\0' && strchr(text, '=') == NULL && files->count < NAMED_VALUES_MAX) {
    files->data[files->count++] = (named_value){NULL, text};
    return true;
  }
  return add_named_value(files, text);
}

/* True if it is an option of this command, with its value. */
static bool parse_option(model_run *r, const char *option, char *value) {
  if (strcmp(option, "--input") == 0) {
    return add_file(&r->inputs, value);
  }
  if (strcmp(option, "--output") == 0) {
    return add_file(&r->outputs, value);
  }
  if (strcmp(option, "--dim") == 0) {
    return add_named_size(&r->sizes, value);
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

static bool parse_arguments(model_run *r, int argc, char **argv) {
  for (int i = 0; i < argc; ++i) {
    if (strcmp(argv[i], "--print") == 0) {
      r->prints = true;
    } else if (strcmp(argv[i], "--trust") == 0) {
      r->trusts = true;
    } else if (argv[i][0] != '-' && r->path == NULL) {
      r->path = argv[i];
    } else if (i + 1 < argc && parse_option(r, argv[i], argv[i + 1])) {
      ++i;
    } else {
      headrace_bad_argument("run", argv[i]);
      return false;
    }
  }
  return true;
}

static int value_count(const hr_graph *graph, bool are_inputs) {
  return are_inputs ? hr_graph_input_count(graph) : hr_graph_output_count(graph);
}

static const char *value_name(const hr_graph *graph, bool is_input, int index) {
  return is_input ? hr_graph_value_name(graph, hr_graph_input_value(graph, index)) : hr_graph_output_name(graph, index);
}

/* True if an input, or an output, of the graph has this name. */
static bool has_value(const hr_graph *graph, const named_value *value, bool is_input) {
  for (int k = 0; k < value_count(graph, is_input); ++k) {
    if (strcmp(value_name(graph, is_input, k), value->name) == 0) {
      return true;
    }
  }
  return false;
}

/* Names the files without a name, and fails for the first whose name is none of those. */
static hr_status check_names(const hr_graph *graph, named_values *files, bool are_inputs) {
  const char *kind = are_inputs ? "input" : "output";
  for (int i = 0; i < files->count; ++i) {
    int count = value_count(graph, are_inputs);
    if (files->data[i].name == NULL && count != 1) {
      return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "--%s %s: the graph has %d %ss, expected NAME=FILE", kind,
                            files->data[i].value, count, kind);
    }
    if (files->data[i].name == NULL) {
      files->data[i].name = value_name(graph, are_inputs, 0);
    } else if (!has_value(graph, &files->data[i], are_inputs)) {
      return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "the graph has no %s \"%s\"; `headrace inspect` lists them",
                            kind, files->data[i].name);
    }
  }
  return HR_OK;
}

/* ---- inputs and outputs ---- */

static hr_status read_input(model_run *r, const char *path, hr_tensor *out) {
  hr_file *file = NULL;
  HR_RETURN_IF_ERROR(hr_file_open(path, &file));
  hr_status status =
      hr_file_count(file) == 1
          ? hr_file_array(r->stream, file, 0, out)
          : hr_status_make(HR_STATUS_INVALID_ARGUMENT, "%s has %d arrays, expected one", path, hr_file_count(file));
  hr_file_close(file);
  return status;
}

static hr_status read_inputs(model_run *r) {
  for (int i = 0; i < hr_graph_input_count(r->graph); ++i) {
    hr_value value = hr_graph_input_value(r->graph, i);
    const char *path = find_named_value(&r->inputs, hr_graph_value_name(r->graph, value));
    HR_RETURN_IF_ERROR(path != NULL ? read_input(r, path, &r->tensors.inputs[i])
                                    : make_input(r->stream, r->graph, value, &r->sizes, &r->tensors.inputs[i]));
  }
  return HR_OK;
}

static hr_status print_result(model_run *r, const char *name, const hr_tensor *x) {
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

static hr_status write_results(model_run *r) {
  for (int i = 0; i < hr_graph_output_count(r->graph); ++i) {
    const char *name = hr_graph_output_name(r->graph, i);
    const hr_tensor *x = &r->tensors.results[i];
    const char *path = find_named_value(&r->outputs, name);
    if (path != NULL) {
      const hr_file_contents contents = {.format = HR_FILE_NPY, .count = 1, .names = &name, .arrays = &x};
      HR_RETURN_IF_ERROR(hr_file_write(r->stream, path, &contents));
    }
    HR_RETURN_IF_ERROR(r->prints ? print_result(r, name, x) : HR_OK);
  }
  return HR_OK;
}

/* ---- running ---- */

/* Runs and waits; the results of the last run stay. */
static hr_status repeat_run(model_run *r) {
  int64_t first = 0, best = INT64_MAX;
  for (int i = 0; i < r->repeat; ++i) {
    release_results(&r->tensors);
    int64_t begin = hr_profile_clock_ns();
    HR_RETURN_IF_ERROR(hr_session_run(r->session, hr_graph_input_count(r->graph), r->tensors.places,
                                      hr_graph_output_count(r->graph), r->tensors.results));
    HR_RETURN_IF_ERROR(hr_stream_synchronize(r->stream));
    int64_t ns = hr_profile_clock_ns() - begin;
    first = i == 0 ? ns : first;
    best = ns < best ? ns : best;
  }
  printf("%s on %s: first run %.2f ms, best of %d %.1f us\n", r->path, r->device_name, (double)first * 1e-6, r->repeat,
         (double)best * 1e-3);
  return HR_OK;
}

static hr_status run(model_run *r) {
  HR_RETURN_IF_ERROR(r->trusts ? trust_model(r->path) : HR_OK);
  HR_RETURN_IF_ERROR(open_model(r->path, NULL, &r->graph));
  HR_RETURN_IF_ERROR(check_names(r->graph, &r->inputs, true));
  HR_RETURN_IF_ERROR(check_names(r->graph, &r->outputs, false));
  HR_RETURN_IF_ERROR(check_symbols(r->graph, &r->sizes));
  HR_RETURN_IF_ERROR(hr_device_open(r->device_name, &r->device));
  HR_RETURN_IF_ERROR(hr_stream_create(r->device, &r->stream));
  HR_RETURN_IF_ERROR(allocate_tensors(r->graph, &r->tensors));
  HR_RETURN_IF_ERROR(read_inputs(r));
  HR_RETURN_IF_ERROR(hr_session_create(r->stream, r->graph, NULL, &r->session));
  HR_RETURN_IF_ERROR(repeat_run(r));
  return write_results(r);
}

int run_model(int argc, char **argv) {
  static model_run r = {.device_name = "cpu", .repeat = 1};
  if (!parse_arguments(&r, argc, argv)) {
    return 2;
  }
  int failed = headrace_fail(run(&r));
  free_tensors(&r.tensors);
  hr_session_release(r.session);
  hr_graph_release(r.graph);
  hr_stream_release(r.stream);
  hr_device_release(r.device);
  return failed;
}
