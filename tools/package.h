/* package.h: packages and models in the commands: their graph, described and run. */
#ifndef HEADRACE_TOOLS_PACKAGE_H_
#define HEADRACE_TOOLS_PACKAGE_H_

#include <stdbool.h>

#include "headrace/graph.h"

/* True if the file is a package, by its first bytes. */
bool is_package(const char *path);
/* `headrace run` of a package or a model. */
int run_package(int argc, char **argv);

enum { MODEL_DIMS_MAX = 64 };
/* NAME=SIZE of --dim. */
typedef struct model_dims {
  int count;
  char names[MODEL_DIMS_MAX][256];
  int64_t sizes[MODEL_DIMS_MAX];
} model_dims;
/* False if the text is no name and size. */
bool model_dims_add(model_dims *dims, const char *text);
/* True for the name of an ONNX file. */
bool is_onnx(const char *path);
/* Opens an ONNX file. dims: NULL: none. */
hr_status open_model(const char *path, const model_dims *dims, hr_graph **out_graph);

#endif
