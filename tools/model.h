/* model.h: models in files, for the commands: their graph, and inputs to try it with. */
#ifndef HEADRACE_TOOLS_MODEL_H_
#define HEADRACE_TOOLS_MODEL_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "headrace/graph.h"

/* NAME=VALUE in an argument. */
typedef struct named_value {
  const char *name, *value;
} named_value;
enum { NAMED_VALUES_MAX = 256 };
typedef struct named_values {
  int count;
  named_value data[NAMED_VALUES_MAX];
} named_values;

/* Ends the name in the text by a NUL in place of "=". False: no NAME=VALUE, or too many. */
bool add_named_value(named_values *values, char *text);
/* The same for NAME=SIZE: a size of 0 or more. */
bool add_named_size(named_values *sizes, char *text);
/* The value of a name; NULL: it has none. */
const char *find_named_value(const named_values *values, const char *name);
/* A size of 0 or more, and nothing behind it. */
bool parse_size(const char *text, int64_t *out_size);

/* True for a package, a StableHLO artifact, and the name of an ONNX model. */
bool is_model(const char *path);
/* The graph of one; the caller owns one reference. fixed: NULL, or the sizes of symbols of an
 * ONNX model that become numbers. */
hr_status open_model(const char *path, const named_values *fixed, hr_graph **out_graph);
/* Uses the kernels of a package (hr_package_trust). */
hr_status trust_model(const char *path);
/* `headrace run` of such a file. */
int run_model(int argc, char **argv);

/* The sizes of symbols: INVALID_ARGUMENT names the first that the graph does not have. */
hr_status check_symbols(const hr_graph *graph, const named_values *sizes);

/* An input of the graph with these sizes in place of symbols, 1 for those that are not given: random numbers between -1
 * and 1 for f32, zeros for other dtypes. The caller owns a reference of the tensor's buffer. */
hr_status make_input(hr_stream *stream, const hr_graph *graph, hr_value input, const named_values *sizes,
                     hr_tensor *out);

/* The tensors of a run: inputs and results. */
typedef struct model_tensors {
  int input_count, result_count;
  hr_tensor *inputs, *results;
  const hr_tensor **places; /* of the inputs */
} model_tensors;
hr_status allocate_tensors(const hr_graph *graph, model_tensors *out);
void release_results(model_tensors *tensors);
/* Releases all of them; zeroed ones are fine. */
void free_tensors(model_tensors *tensors);

#endif
