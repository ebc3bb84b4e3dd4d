/* model.c: models of files, whose format is known by their first bytes or their name. */
#include <stdlib.h>
#include <string.h>

#include "headrace/importer.h"
#include "headrace/package.h"
#include "package.h"

bool model_dims_add(model_dims *dims, const char *text) {
  const char *equals = strchr(text, '=');
  char *end = NULL;
  if (equals == NULL || equals == text || dims->count == MODEL_DIMS_MAX ||
      (size_t)(equals - text) >= sizeof dims->names[0] || equals[1] < '0' || equals[1] > '9') {
    return false;
  }
  memcpy(dims->names[dims->count], text, (size_t)(equals - text));
  dims->names[dims->count][equals - text] = '\0';
  dims->sizes[dims->count++] = strtoll(equals + 1, &end, 10);
  return *end == '\0' && dims->sizes[dims->count - 1] < INT64_MAX;
}

bool is_onnx(const char *path) {
  size_t length = strlen(path);
  return length > 5 && strcmp(path + length - 5, ".onnx") == 0;
}

hr_status open_model(const char *path, const model_dims *dims, hr_graph **out_graph) {
  hr_onnx_dim all[MODEL_DIMS_MAX];
  for (int i = 0; dims != NULL && i < dims->count; ++i) {
    all[i] = (hr_onnx_dim){dims->names[i], dims->sizes[i]};
  }
  const hr_onnx_options options = {.dim_count = dims != NULL ? dims->count : 0, .dims = all};
  return hr_onnx_open(path, &options, out_graph);
}
