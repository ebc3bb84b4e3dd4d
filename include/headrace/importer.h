/* importer.h: files of other formats as graphs (graph.h).
 *
 * ONNX: models of operator sets 1 to 27; docs/onnx.md lists the operators, and what is refused with its reason. The
 * file is mapped. Constants of at least 64 KB stay in the mapping, which lives as long as the graphs that use it;
 * others are copied. Data outside of the file is read from the model's folder or below it alone, and links are not
 * followed.
 *
 * StableHLO: portable artifacts, as of JAX's exports: bytecode of versions 0 to 6. The file is read, and constants are
 * copied.
 *
 * Files of unknown origin are safe to open: nothing of a file is executed, and all places and sizes are checked against
 * the file before they are used. Damaged files fail with DATA_LOSS, others with INVALID_ARGUMENT or UNIMPLEMENTED. The
 * message names the file, the node and the expected value: model.onnx: node 17 "conv_3" (Conv): ...
 *
 * Threads: any.
 */
#ifndef HEADRACE_IMPORTER_H_
#define HEADRACE_IMPORTER_H_

#include "headrace/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The size of a symbol of a model's inputs. */
typedef struct hr_onnx_dim {
  const char *name;
  int64_t size;
} hr_onnx_dim;

/* Elements of an input of a model. */
typedef struct hr_onnx_constant {
  const char *name;
  hr_graph_elements elements;
} hr_onnx_constant;

/* Zeroed: the defaults. */
typedef struct hr_onnx_options {
  int dim_count;
  const hr_onnx_dim *dims; /* symbols that are replaced by sizes */
  int constant_count;
  /* Elements for inputs on which dims of other values depend, such as a shape: the graph has a constant in place of
   * such an input. Inputs on which no dim depends stay inputs. The elements are copied. */
  const hr_onnx_constant *constants;
  bool has_variables; /* floating initializers are variables of the graph, with their names, instead of constants */
} hr_onnx_options;

/* Reads a model. The caller owns one reference of the graph. options: NULL: the defaults.
 *
 * Dims without a number are symbols with the model's name for them, or input_0, input_1, ...; characters that symbols
 * lack become underscores. Initializers that are inputs, too, are constants. */
HR_API HR_MUST_USE hr_status hr_onnx_open(const char *path, const hr_onnx_options *options, hr_graph **out_graph);
/* The same for bytes in memory, which are copied; `name` stands for the path in messages. Such a model has no data
 * outside of them. */
HR_API HR_MUST_USE hr_status hr_onnx_open_bytes(const char *name, const void *bytes, size_t size,
                                                const hr_onnx_options *options, hr_graph **out_graph);

/* Reads a StableHLO portable artifact: function main as a graph, whose inputs are arg0, arg1, ..., and whose outputs
 * are result0, result1, ... Their numbers are those of the file, whose tokens have none here. The caller owns one
 * reference of the graph.
 *
 * Integer division by 0, shifts by more than the width, and conversions of numbers that are too large have XLA's
 * results. UNIMPLEMENTED names the operation and its place in the program. */
HR_API HR_MUST_USE hr_status hr_stablehlo_open(const char *path, hr_graph **out_graph);
/* The same for bytes in memory, which are borrowed for the call; `name` stands for the path in messages. */
HR_API HR_MUST_USE hr_status hr_stablehlo_open_bytes(const char *name, const void *bytes, size_t size,
                                                     hr_graph **out_graph);

/* Zeroed: the defaults. */
typedef struct hr_stablehlo_options {
  /* (optional) The function of the host (hr_graph_host) that a custom call of this name is, if the importer has no
   * meaning for it: it gets the operands, without tokens, and the results. Its failure is that of the program;
   * NOT_FOUND: there is none. */
  hr_status (*find_function)(void *arg, const char *name, hr_function_spec *out_spec);
  void *arg;
  /* Of a program over several devices: the graph is that of one of them, whose inputs and outputs are its own shards.
   * Fewer than 2: there is one device. */
  int device_count, device_number;
  /* The function that gathers a tensor of `bytes` bytes from these devices: of input x and a flag it makes
   * [count, x's dims], and the flag. All of these devices call it, in the same order as all others. */
  hr_status (*find_gather)(void *arg, int count, const int *devices, size_t bytes, hr_function_spec *out_spec);
} hr_stablehlo_options;
/* The same with options. Custom calls of functions that have a side effect have one more input and one more result, at
 * their ends, bool[1], by which they run in the program's order. If there are any, the graph has one more output at its
 * end, "effects". */
HR_API HR_MUST_USE hr_status hr_stablehlo_open_program(const char *name, const void *bytes, size_t size,
                                                       const hr_stablehlo_options *options, hr_graph **out_graph);
/* Calls fn with the place in the program of each of these origins (hr_graph_origin), which operations of a graph that
 * was read from these bytes have: its name there, "jit(f)/add", and "f.py:3". Both are "" if the file has none. */
HR_API HR_MUST_USE hr_status hr_stablehlo_places(const void *bytes, size_t size, int count, const uint32_t *origins,
                                                 void (*fn)(void *arg, int index, const char *name, const char *source),
                                                 void *arg);
/* True for the first bytes of such an artifact. */
HR_API bool hr_stablehlo_is_one(const void *bytes, size_t size);
/* The same for the first bytes of a file; false if it can't be read. */
HR_API bool hr_stablehlo_is_file(const char *path);

enum {
  HR_STABLEHLO_KEPT = -1, /* the caller keeps the input */
  HR_STABLEHLO_ANY = -2,  /* its memory may become any output's */
  HR_STABLEHLO_TOKEN = -3 /* a token, which the graph lacks */
};
enum { HR_STABLEHLO_DEVICES_MAX = 64 };
/* The shards of a tensor: `parts` of each dim, and the devices that have them, shard after shard in row-major order,
 * with all devices that have the same one together. Each shard is the sum of `terms` tensors: its devices are in their
 * order. No devices: each has the whole tensor. */
typedef struct hr_stablehlo_shards {
  int rank, device_count, terms;
  int64_t parts[HR_RANK_MAX];
  int devices[HR_STABLEHLO_DEVICES_MAX];
} hr_stablehlo_shards;
/* The kind of memory that the file states for a tensor (mhlo.memory_kind); the device's for kinds of other names. */
typedef enum hr_stablehlo_memory {
  HR_STABLEHLO_DEVICE,
  HR_STABLEHLO_PINNED_HOST,
  HR_STABLEHLO_UNPINNED_HOST
} hr_stablehlo_memory;
/* The order of a tensor's dims in memory, beginning with the one whose neighbours are nearest. */
typedef struct hr_stablehlo_layout {
  int rank;
  int minor_to_major[HR_RANK_MAX];
  hr_stablehlo_memory memory;
} hr_stablehlo_layout;
/* The inputs and outputs of main in the file's order, tokens among them. The file's calls have all of these. */
typedef struct hr_stablehlo_main {
  int input_count, output_count;
  int *inputs, *outputs; /* for each: its number in the graph, or HR_STABLEHLO_TOKEN */
  int *donations;        /* for each input: the number of the output here that may have its memory, KEPT or ANY */
  int *output_bits;      /* for each: 2 or 4, those of an integer that the graph has in 8; or 0 */
  hr_stablehlo_shards *input_shards, *output_shards;   /* for each, as hr_stablehlo_open_program divides them */
  hr_stablehlo_layout *input_layouts, *output_layouts; /* for each, as the file states; the graph has none */
  char *name;                                          /* the module's, "jit_f"; NULL: it has none */
  char *note; /* main's attribute "headrace.note", a text of who wrote the file; NULL: there is none */
} hr_stablehlo_main;
/* Reads them. hr_stablehlo_main_fini frees the lists. */
HR_API HR_MUST_USE hr_status hr_stablehlo_read_main(const void *bytes, size_t size, hr_stablehlo_main *out_main);
/* Frees the lists; zeroed is fine. */
HR_API void hr_stablehlo_main_fini(hr_stablehlo_main *lists);

/* Opens a model of any format by its contents: a package (package.h), a StableHLO artifact, or else
 * an ONNX model. A name that ends with
 * .hrpkg is a package's. The caller owns one reference of the graph. options: NULL, or those of an ONNX model; other
 * formats refuse options other than the defaults (INVALID_ARGUMENT). Other errors are those of hr_package_open,
 * hr_package_graph, hr_stablehlo_open and hr_onnx_open. */
HR_API HR_MUST_USE hr_status hr_model_open(const char *path, const hr_onnx_options *options, hr_graph **out_graph);
/* The same for bytes in memory, which are copied; `name` stands for the path in messages. */
HR_API HR_MUST_USE hr_status hr_model_open_bytes(const char *name, const void *bytes, size_t size,
                                                 const hr_onnx_options *options, hr_graph **out_graph);

#ifdef __cplusplus
}
#endif

#endif
