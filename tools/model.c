/* model.c: models in files, whose format is known by their first bytes or their name; inputs of random numbers. */
#include "model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "headrace/array.h"
#include "headrace/importer.h"
#include "headrace/package.h"

bool is_model(const char *path) {
  size_t length = strlen(path);
  return hr_package_is_file(path) || hr_stablehlo_is_file(path) ||
         (length > 5 && strcmp(path + length - 5, ".onnx") == 0);
}

hr_status open_model(const char *path, const named_values *fixed, hr_graph **out_graph) {
  hr_onnx_dim dims[NAMED_VALUES_MAX];
  int count = fixed != NULL && !hr_package_is_file(path) ? fixed->count : 0;
  for (int i = 0; i < count; ++i) {
    dims[i].name = fixed->data[i].name;
    parse_size(fixed->data[i].value, &dims[i].size);
  }
  const hr_onnx_options options = {.dim_count = count, .dims = dims};
  return hr_model_open(path, &options, out_graph);
}

hr_status trust_model(const char *path) {
  hr_package *package = NULL;
  int count = 0;
  HR_RETURN_IF_ERROR(hr_package_open(path, &package));
  hr_status status = hr_package_trust(package, &count);
  hr_package_close(package);
  return status;
}

/* ---- names with values ---- */

bool add_named_value(named_values *values, char *text) {
  char *equals = strchr(text, '=');
  if (equals == NULL || equals == text || values->count == NAMED_VALUES_MAX) {
    return false;
  }
  *equals = '\0';
  values->data[values->count++] = (named_value){text, equals + 1};
  return true;
}

bool parse_size(const char *text, int64_t *out_size) {
  char *end = NULL;
  *out_size = strtoll(text, &end, 10);
  return text[0] >= '0' && text[0] <= '9' && *out_size < INT64_MAX && *end == '\0';
}

bool add_named_size(named_values *sizes, char *text) {
  int64_t size;
  return add_named_value(sizes, text) && parse_size(sizes->data[sizes->count - 1].value, &size);
}

const char *find_named_value(const named_values *values, const char *name) {
  for (int i = 0; i < values->count; ++i) {
    if (strcmp(values->data[i].name, name) == 0) {
      return values->data[i].value;
    }
  }
  return NULL;
}

hr_status check_symbols(const hr_graph *graph, const named_values *sizes) {
  for (int i = 0; i < sizes->count; ++i) {
    bool exists = false;
    for (int k = 0; k < hr_graph_symbol_count(graph); ++k) {
      exists |= strcmp(sizes->data[i].name, hr_graph_symbol_name(graph, k)) == 0;
    }
    if (!exists) {
      return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "the graph has no symbol \"%s\"; `headrace inspect` lists them",
                            sizes->data[i].name);
    }
  }
  return HR_OK;
}

/* ---- tensors ---- */

static int64_t dim_size(const hr_type *type, int d, const named_values *sizes) {
  int64_t size = 1;
  if (type->symbols[d] == NULL) {
    return type->dims[d];
  }
  const char *given = find_named_value(sizes, type->symbols[d]);
  return given != NULL && parse_size(given, &size) ? size : 1;
}

static void fill_random(float *numbers, int64_t count, uint32_t state) {
  for (int64_t i = 0; i < count; ++i) {
    state = state * 1664525u + 1013904223u;
    numbers[i] = (float)(state >> 8) / (float)(1 << 23) - 1;
  }
}

hr_status make_input(hr_stream *stream, const hr_graph *graph, hr_value input, const named_values *sizes,
                     hr_tensor *out) {
  hr_type type;
  int64_t dims[HR_RANK_MAX], count = 1;
  HR_RETURN_IF_ERROR(hr_graph_type(graph, input, &type));
  for (int d = 0; d < type.rank; ++d) {
    dims[d] = dim_size(&type, d, sizes);
    if (__builtin_mul_overflow(count, dims[d], &count) || count > INT32_MAX) {
      return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "input \"%s\" has too many elements",
                            hr_graph_value_name(graph, input));
    }
  }
  void *elements = calloc((size_t)count + 1, hr_dtype_size(type.dtype));
  if (elements == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no memory for input \"%s\"",
                          hr_graph_value_name(graph, input));
  }
  if (type.dtype == HR_DTYPE_F32) {
    fill_random(elements, count, (uint32_t)input);
  }
  hr_status status = hr_array_from_host(stream, type.dtype, type.rank, dims, elements, out);
  free(elements);
  return status;
}

hr_status allocate_tensors(const hr_graph *graph, model_tensors *out) {
  out->input_count = hr_graph_input_count(graph), out->result_count = hr_graph_output_count(graph);
  out->inputs = calloc((size_t)out->input_count + 1, sizeof *out->inputs);
  out->places = calloc((size_t)out->input_count + 1, sizeof *out->places);
  out->results = calloc((size_t)out->result_count + 1, sizeof *out->results);
  if (out->inputs == NULL || out->places == NULL || out->results == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no memory for %d inputs", out->input_count);
  }
  for (int i = 0; i < out->input_count; ++i) {
    out->places[i] = &out->inputs[i];
  }
  return HR_OK;
}

void release_results(model_tensors *tensors) {
  for (int i = 0; tensors->results != NULL && i < tensors->result_count; ++i) {
    hr_tensor_release(&tensors->results[i]);
  }
}

void free_tensors(model_tensors *tensors) {
  release_results(tensors);
  for (int i = 0; tensors->inputs != NULL && i < tensors->input_count; ++i) {
    hr_tensor_release(&tensors->inputs[i]);
  }
  free(tensors->inputs);
  free(tensors->results);
  free(tensors->places);
  *tensors = (model_tensors){0};
}
