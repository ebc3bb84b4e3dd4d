/* model_open.c: models in files of any format that is read, by their contents. */
#include <string.h>

#include "headrace/importer.h"
#include "headrace/package.h"

static bool replaces(const hr_onnx_options *options) {
  return options != NULL && (options->dim_count > 0 || options->constant_count > 0 || options->has_variables);
}

static hr_status graph_of(hr_package *package, const hr_onnx_options *options, hr_graph **out_graph) {
  return replaces(options) ? hr_status_make(HR_STATUS_INVALID_ARGUMENT,
                                            "a package has no dims, constants or weights that can be replaced: use "
                                            "hr_graph_derive (Graph.derive)")
                           : hr_package_graph(package, out_graph);
}

static bool ends_with(const char *path, const char *end) {
  size_t length = strlen(path), tail = strlen(end);
  return length > tail && strcmp(path + length - tail, end) == 0;
}

/* A damaged package, too, which its name describes. */
static bool is_package(const char *path) {
  return hr_package_is_file(path) || ends_with(path, ".hrpkg");
}

static hr_status refuse_options(void) {
  return hr_status_make(HR_STATUS_INVALID_ARGUMENT,
                        "a StableHLO artifact has no dims, constants or weights that can be replaced");
}

/* Files of any other kind can't be read as the format without a mark. */
static hr_status describe_failure(const char *path, hr_status status) {
  bool may_be_other = hr_status_code_of(status) == HR_STATUS_DATA_LOSS && !ends_with(path, ".onnx");
  return may_be_other ? hr_status_annotate(status, "no package, no StableHLO artifact, and no ONNX model") : status;
}

hr_status hr_model_open(const char *path, const hr_onnx_options *options, hr_graph **out_graph) {
  hr_package *package = NULL;
  if (hr_stablehlo_is_file(path)) {
    return replaces(options) ? refuse_options() : hr_stablehlo_open(path, out_graph);
  }
  if (!is_package(path)) {
    return describe_failure(path, hr_onnx_open(path, options, out_graph));
  }
  HR_RETURN_IF_ERROR(hr_package_open(path, &package));
  hr_status status = graph_of(package, options, out_graph);
  hr_package_close(package);
  return status;
}

hr_status hr_model_open_bytes(const char *name, const void *bytes, size_t size, const hr_onnx_options *options,
                              hr_graph **out_graph) {
  hr_package *package = NULL;
  if (hr_stablehlo_is_one(bytes, size)) {
    return replaces(options) ? refuse_options() : hr_stablehlo_open_bytes(name, bytes, size, out_graph);
  }
  if (!hr_package_is_one(bytes, size)) {
    return hr_onnx_open_bytes(name, bytes, size, options, out_graph);
  }
  HR_RETURN_IF_ERROR(hr_package_open_bytes(name, bytes, size, &package));
  hr_status status = graph_of(package, options, out_graph);
  hr_package_close(package);
  return status;
}
