/* model_open.c: models in files of any format that is read, by their contents. */
#include <string.h>

#include "headrace/importer.h"
#include "headrace/package.h"

static hr_status graph_of(hr_package *package, const hr_onnx_options *options, hr_graph **out_graph) {
  bool replaces = options != NULL && (options->dim_count > 0 || options->constant_count > 0 || options->has_variables);
  return replaces ? hr_status_make(HR_STATUS_INVALID_ARGUMENT,
                                   "a package has no dims, constants or weights that can be replaced: use "
                                   "hr_graph_derive (Graph.derive)")
                  : hr_package_graph(package, out_graph);
}

/* A damaged package, too, which its name describes. */
static bool is_package(const char *path) {
  size_t length = strlen(path);
  return hr_package_is_file(path) || (length > 6 && strcmp(path + length - 6, ".hrpkg") == 0);
}

hr_status hr_model_open(const char *path, const hr_onnx_options *options, hr_graph **out_graph) {
  hr_package *package = NULL;
  if (!is_package(path)) {
    return hr_onnx_open(path, options, out_graph);
  }
  HR_RETURN_IF_ERROR(hr_package_open(path, &package));
  hr_status status = graph_of(package, options, out_graph);
  hr_package_close(package);
  return status;
}

hr_status hr_model_open_bytes(const char *name, const void *bytes, size_t size, const hr_onnx_options *options,
                              hr_graph **out_graph) {
  hr_package *package = NULL;
  if (!hr_package_is_one(bytes, size)) {
    return hr_onnx_open_bytes(name, bytes, size, options, out_graph);
  }
  HR_RETURN_IF_ERROR(hr_package_open_bytes(name, bytes, size, &package));
  hr_status status = graph_of(package, options, out_graph);
  hr_package_close(package);
  return status;
}
