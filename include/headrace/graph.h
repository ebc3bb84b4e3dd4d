/* graph.h: graphs: functions of functional.h on named values, whose dims may be symbols.
 *
 * A graph never runs. A session (session.h) instantiates it for the dims of its inputs: each node is recorded on a
 * capture (part.h), and a run appends the records to a stream. hr_graph_apply records a graph once, on any stream.
 *
 *   hr_graph_create(&graph);
 *   x = hr_graph_input(graph, "x", &(hr_type){.dtype = HR_DTYPE_F32, .rank = 2, .dims = {-1, 3}, .symbols = {"n"}});
 *   y = hr_graph_add(graph, HR_FUNCTIONAL_MATMUL, 2, (hr_value[]){x, w}, 0, NULL);
 *   hr_graph_output(graph, "y", y);
 *   status = hr_graph_status(graph);
 *
 * Dims: nothing symbolic is computed. The types of values are inferred for a few numbers in place of the symbols, and
 * inferred again when the graph is instantiated. hr_graph_type describes how the results depend on the symbols. An
 * operation that fails for all of these numbers is an error of the graph: two symbols are different dims. So is one
 * whose results have another rank or dtype for other numbers.
 *
 * Small integers, such as shapes, are computed on the host when the graph is instantiated, and attributes may be
 * computed from them (hr_graph_attribute).
 *
 * Errors: functions that add to a graph return 0 after a failure, and keep the first one for hr_graph_status. From then
 * on they do nothing. A value 0 among inputs means that an optional input is absent.
 *
 * Threads: a graph belongs to one thread at a time while it is built; later any may read it.
 */
#ifndef HEADRACE_GRAPH_H_
#define HEADRACE_GRAPH_H_

#include "headrace/function.h"
#include "headrace/functional.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct hr_graph hr_graph;

/* A value of a graph, numbered from 1; 0: absent. */
typedef int32_t hr_value;

enum {
  HR_GRAPH_NAME_MAX = 1023,   /* bytes of a name */
  HR_GRAPH_SYMBOLS_MAX = 256, /* symbols of a graph */
  HR_GRAPH_OUTPUTS_MAX = 1 << 12,
  HR_GRAPH_NODES_MAX = 1 << 20,
  HR_GRAPH_RESULTS_MAX = 1 << 18, /* results beyond the first of each operation: of a graph, of a text's functions */
  HR_GRAPH_DEPTH_MAX = 32,        /* graphs inside of graphs */
  HR_GRAPH_INNER_MAX = 1 << 20    /* values of inner graphs and their outputs, at each use; in a loop 4 times */
};

/* dims: -1 for a dim that is not a number. symbols: for such a dim, of an input, the name of its symbol, which begins
 * with a letter and consists of letters, digits and underscores. Of other values it may also be an expression, such as
 * "2*n+1", or "?" if the dim depends on symbols in another way. Otherwise NULL. */
typedef struct hr_type {
  hr_dtype dtype;
  int rank;
  int64_t dims[HR_RANK_MAX];
  const char *symbols[HR_RANK_MAX];
} hr_type;

/* An empty graph; the caller owns one reference. */
HR_API HR_MUST_USE hr_status hr_graph_create(hr_graph **out_graph);
/* Adds and drops a reference; NULL is fine. */
HR_API void hr_graph_retain(hr_graph *graph);
HR_API void hr_graph_release(hr_graph *graph);

/* The first failure of a function that added to the graph, as a status of the caller's; OK if there is none. */
HR_API HR_MUST_USE hr_status hr_graph_status(const hr_graph *graph);
/* The same, and the graph forgets it: calls add to it again. The calls since the failure have added nothing. */
HR_API HR_MUST_USE hr_status hr_graph_take_failure(hr_graph *graph);

/* ---- values ---- */

/* An input. Names of values are UTF-8 without control characters, and unique. */
HR_API hr_value hr_graph_input(hr_graph *graph, const char *name, const hr_type *type);
/* A constant: a copy of row-major elements in the host's memory. The type has no symbols. */
HR_API hr_value hr_graph_constant(hr_graph *graph, const hr_type *type, const void *elements);
/* The same without a copy, for elements at any address. Devices of the host use them in place, too, if the address is a
 * multiple of 64, or there are at least 64 KB (a multiple of the dtype's size on other processors than x86-64). They
 * must not change before release(arg), which is called once, from any thread: also after a failure. */
HR_API hr_value hr_graph_constant_adopt(hr_graph *graph, const hr_type *type, const void *elements,
                                        void (*release)(void *arg), void *arg);
/* A number as an input of element-wise functions; its dtype is weak in promotion (hr_tensor_number). */
HR_API hr_value hr_graph_number(hr_graph *graph, hr_scalar number);
/* The size of the dims that have this symbol: i64 without dims. Inputs of the graph define the symbol, before or
 * later. */
HR_API hr_value hr_graph_symbol(hr_graph *graph, const char *name);
/* The dims of a value: i64 [rank]. */
HR_API hr_value hr_graph_shape(hr_graph *graph, hr_value x);

/* An attribute of a function, by name. Everything is copied. */
typedef struct hr_graph_attribute {
  const char *name;
  hr_attribute value;
  const hr_value *values; /* NULL, or for INT and REAL one, for INTS value.count values: integers without dims that are
                           * computed on the host; 0: the one in `value` */
  hr_value list;          /* of INTS, not 0: all of them, a value of one dim; `value` has the kind alone */
} hr_graph_attribute;

/* Applies a function; attributes that are not given have their defaults. Returns the first result; the others have the
 * next numbers. */
HR_API hr_value hr_graph_add(hr_graph *graph, hr_functional function, int input_count, const hr_value *inputs,
                             int attribute_count, const hr_graph_attribute *attributes);
/* The number of results of the operation whose first result is `first`; 1 for values that are no results. */
HR_API int hr_graph_result_count(const hr_graph *graph, hr_value first);

/* The gradients of the sum over all elements of seed * of by `count` values, of the dtype and dims of these
 * (transform.h). seed: 0: ones, or a value that can be broadcast to `of`. Returns the first gradient; the others have
 * the next numbers. `of` and all values are floating. An operation without a gradient is reported by
 * hr_session_run. */
HR_API hr_value hr_graph_gradient(hr_graph *graph, hr_value of, hr_value seed, int count, const hr_value *values);

/* ---- control flow ---- */

/* An inner graph is a function of its inputs alone: values of the graph around it that it reads are arguments, too.
 * From its first use on it can't be changed (FAILED_PRECONDITION), so that no graph contains itself; the graphs that
 * use it retain it. It has no variables, and at least one output. Arguments have the dtypes and dims of its inputs, in
 * their order; symbols belong to each graph alone. Each of these functions returns the first result, as hr_graph_add
 * does.
 *
 * A session repeats the records of a body as often as its count demands, if that is known when the graph is
 * instantiated: from shapes, constants, and integers computed from them. Otherwise a run reads the number, for which it
 * waits (hr_session_stats, waits). On a capture, and without a stream, hr_graph_apply fails with UNIMPLEMENTED and the
 * name of the value. Values of carried inputs are computed on the host, too: a loop with a counter does not wait. */

/* The callee's outputs for these arguments. */
HR_API hr_value hr_graph_call(hr_graph *graph, hr_graph *callee, int argument_count, const hr_value *arguments);
/* The outputs of one of two graphs, by a condition of one element, which is true if it is not 0. Outputs of the same
 * number have one dtype and rank; dims that differ are "?". */
HR_API hr_value hr_graph_if(hr_graph *graph, hr_value condition, hr_graph *then, hr_graph *otherwise,
                            int argument_count, const hr_value *arguments);
/* Loops. The first `carried_count` arguments are the start of what iterations pass on: outputs 0 to carried_count - 1
 * of `body` are the next values of these inputs, with the same dtype and rank. Dims may change from one iteration to
 * the next. The other arguments are the same in each iteration. Results: the carried values at the end, then each
 * further output of the body, stacked along a new first dim, whose size is the number of iterations. */
/* condition: of the same inputs as `body`, with one output of one element: the loop ends when it is 0. */
HR_API hr_value hr_graph_while(hr_graph *graph, hr_graph *condition, hr_graph *body, int carried_count,
                               int argument_count, const hr_value *arguments);
/* count: integers, one element; negative: 0. The body's first input is the number of the iteration: i64 without dims.
 */
HR_API hr_value hr_graph_for(hr_graph *graph, hr_value count, hr_graph *body, int carried_count, int argument_count,
                             const hr_value *arguments);
/* The arguments behind the carried ones are `sequence_count` sequences, at least one. An iteration has slice i of each
 * along its first dim, all of which have one size: the number of iterations. flip and moveaxis (functional.h) turn a
 * sequence, and are views. */
HR_API hr_value hr_graph_scan(hr_graph *graph, hr_graph *body, int carried_count, int sequence_count,
                              int argument_count, const hr_value *arguments);

/* The callee's outputs for each slice of some arguments, recorded once for all slices (transform.h, hr_vmap). in_axes:
 * for each argument the dim along which it is sliced, or -1: it is the same in all calls. At least one is sliced, and
 * all sizes are one. The callee's inputs have the dims of slices. out_axes: for each output the new dim that has all
 * slices, or -1 for one that is the same in all calls. Results have the bits of a loop but for products and
 * convolutions.
 *
 * Refused, with the operation's name: branches, counts, reads and dims that slices decide, and outputs that differ
 * between slices, but have no dim for them. */
HR_API hr_value hr_graph_vmap(hr_graph *graph, hr_graph *callee, int argument_count, const hr_value *arguments,
                              const int *in_axes, const int *out_axes);

/* Integers, or bools, that attributes may be computed from: at most 16 elements. A run waits for those that the host
 * does not compute. Types are inferred for any numbers: dims that depend on them are "?". */
HR_API hr_value hr_graph_read(hr_graph *graph, hr_value x);

/* A function of the host (function.h) as an operation, whose results have these types, without symbols. It runs in each
 * run of the graph if an output needs one of its results; such functions are not joined. For functions with effects
 * beside their results, each one gets a value from the former one and passes it on, and the last is an output: then all
 * of them run, in this order.
 *
 * The spec's `arg` is released once, when neither a graph nor pending work needs it any more; after a failure, too. The
 * spec has no updated outputs, and is not late. Graphs with such functions have no text that can be read. */
HR_API hr_value hr_graph_host(hr_graph *graph, const hr_function_spec *spec, int input_count, const hr_value *inputs,
                              int result_count, const hr_type *types);

/* ---- variables ---- */

/* A value that a session keeps from one run to the next: row-major elements in the host's memory, which are copied, are
 * its initial value. The type has no symbols. In a run it has the value from the run's begin. hr_graph_apply computes
 * with the initial value, and assigns nothing. */
HR_API hr_value hr_graph_variable(hr_graph *graph, const char *name, const hr_type *type, const void *elements);
/* At the end of a run the variable gets a value of its own dtype and dims. A variable is assigned once. */
HR_API void hr_graph_assign(hr_graph *graph, hr_value variable, hr_value value);
/* Variables in their order, and what is assigned to one; 0: nothing. */
HR_API int hr_graph_variable_count(const hr_graph *graph);
HR_API hr_value hr_graph_variable_value(const hr_graph *graph, int index);
HR_API hr_value hr_graph_assigned_value(const hr_graph *graph, int index);

/* Gives a value a name in messages and in text; it must have none. */
HR_API void hr_graph_name(hr_graph *graph, hr_value value, const char *name);
/* Operations that are added from now on have this number, as the place in a program of which the graph is made; 0:
 * none. Profiles have it (hr_profile_origin), and graphs that are made of this one. */
HR_API void hr_graph_origin(hr_graph *graph, uint32_t origin);
/* Makes a value a result of the graph. Names of outputs are unique among outputs; NULL: the value's name. */
HR_API void hr_graph_output(hr_graph *graph, const char *name, hr_value value);

/* ---- reading a graph ---- */

/* The type of a value; its texts live as long as the graph. INVALID_ARGUMENT if there is no such value. */
HR_API HR_MUST_USE hr_status hr_graph_type(const hr_graph *graph, hr_value value, hr_type *out_type);
/* The value of a name; 0: there is none. The name of a value; NULL: it has none. */
HR_API hr_value hr_graph_find(const hr_graph *graph, const char *name);
HR_API const char *hr_graph_value_name(const hr_graph *graph, hr_value value);
/* Inputs and outputs in their order. */
HR_API int hr_graph_input_count(const hr_graph *graph);
HR_API hr_value hr_graph_input_value(const hr_graph *graph, int index);
HR_API int hr_graph_output_count(const hr_graph *graph);
HR_API hr_value hr_graph_output_value(const hr_graph *graph, int index);
HR_API const char *hr_graph_output_name(const hr_graph *graph, int index);
/* The number of operations: functions, shapes, gradients and control flow. Inner graphs have their own. */
HR_API int hr_graph_operation_count(const hr_graph *graph);
/* Inner graphs, and those inside of them: each once, none before one that it uses. Borrowed. */
HR_API int hr_graph_inner_count(const hr_graph *graph);
HR_API const hr_graph *hr_graph_inner(const hr_graph *graph, int index);
/* The number of constants and variables, also of inner graphs, and the bytes of their elements. */
HR_API int hr_graph_constant_count(const hr_graph *graph);
HR_API int64_t hr_graph_constant_bytes(const hr_graph *graph);
/* The arithmetic of a graph as it stands, with symbols as 1: two operations for each factor of a product or a
 * convolution, one for each element of others. Bodies of loops count once, and so does each branch. */
typedef struct hr_graph_cost {
  double operations, transcendentals;
} hr_graph_cost;
HR_API void hr_graph_cost_of(const hr_graph *graph, hr_graph_cost *out_cost);
/* Symbols, in the order of their first use. */
HR_API int hr_graph_symbol_count(const hr_graph *graph);
HR_API const char *hr_graph_symbol_name(const hr_graph *graph, int index);

/* ---- rewriting ---- */

/* A graph with the same inputs and outputs,
 *
 * - without operations that no output needs,
 * - with one operation in place of several equal ones,
 * - with constants in place of what a stream can compute of constants (stream NULL: of small integers alone). It waits
 *   for the stream,
 * - with one attention in place of its products, scale, mask and softmax, which changes last bits,
 * - with less padding behind convolutions whose last elements no max pool reads, if the stream's device is the host;
 *   the library may add in another order then.
 *
 * Values keep their names. Values of gradients stay as they are. The caller owns one reference. Fails with the graph's
 * own failure. */
HR_API HR_MUST_USE hr_status hr_graph_simplify(const hr_graph *graph, hr_stream *stream, hr_graph **out_graph);

/* A graph whose products, convolutions and attention of f32 have factors and results that are rounded to bf16 or f16;
 * sums are f32. Attention is joined first, as by hr_graph_simplify. Between products, relu, max_pool, changes of the
 * shape and sums of two results (residuals) stay rounded. Inputs, outputs and all other operations stay as they are. Of
 * inner graphs, too. The caller owns one reference. */
HR_API HR_MUST_USE hr_status hr_graph_round_products(const hr_graph *graph, hr_dtype dtype, hr_graph **out_graph);

/* Another graph with the same operations: with some of the outputs and the inputs that they need, or for other types of
 * the inputs. Values keep their names, and constants share their elements. The caller owns one reference. */
typedef struct hr_graph_change {
  int output_count;
  const int *outputs;    /* numbers of the graph's outputs, in their new order, without assignments; NULL: all, and all
                          * inputs and assignments */
  const hr_type *inputs; /* NULL, or for each input of the graph its new type; a symbol may be a new one */
} hr_graph_change;
HR_API HR_MUST_USE hr_status hr_graph_derive(const hr_graph *graph, const hr_graph_change *change,
                                             hr_graph **out_graph);

/* ---- applying a graph ---- */

/* Records the graph on a stream or a capture, for inputs in the order of the graph. NULL infers: results have types
 * without buffers. Results are as of hr_functional_apply, in the order of the outputs, all of them; they may share
 * memory with inputs.
 *
 * INVALID_ARGUMENT names the input, its dims and those wanted, and two inputs whose dims of one symbol differ. Failures
 * of operations have the name of their value in front. */
HR_API HR_MUST_USE hr_status hr_graph_apply(const hr_graph *graph, hr_stream *stream, int input_count,
                                            const hr_tensor *const *inputs, int result_count, hr_tensor *out_results);

/* ---- recording a graph ---- */

/* A recorder adds each function that is applied to a stream or a capture (hr_functional_apply) to a graph, and lets the
 * stream record it, too. So a program that computes on tensors becomes a graph: for examples of the inputs, whose dims
 * stand for symbols.
 *
 * Tensors that the recorder does not know become constants: it waits for them, which a capture can't do. A view of an
 * input or a result that no function made, such as that of hr_array_index, is refused: UNIMPLEMENTED. Integers that
 * the program computed from dims are a part of the graph as numbers: reshape to -1 and keep dims in place of them.
 * Operations that are recorded by other means than functions are refused at the end. */
typedef struct hr_graph_recorder hr_graph_recorder;

/* Begins to add to a graph; retains both. The caller owns the recorder. The last to begin on a stream is the first to
 * end. */
HR_API HR_MUST_USE hr_status hr_graph_recorder_begin(hr_stream *stream, hr_graph *graph,
                                                     hr_graph_recorder **out_recorder);
/* From now on the tensor stands for a value of its dtype and number of dims, such as an input. */
HR_API HR_MUST_USE hr_status hr_graph_recorder_bind(hr_graph_recorder *recorder, const hr_tensor *tensor,
                                                    hr_value value);
/* The value for which a tensor, or a number, stands. */
HR_API HR_MUST_USE hr_status hr_graph_recorder_find(hr_graph_recorder *recorder, const hr_tensor *tensor,
                                                    hr_value *out_value);
/* Ends and frees a recorder. UNIMPLEMENTED if something else than functions was recorded meanwhile, with its name. */
HR_API HR_MUST_USE hr_status hr_graph_recorder_end(hr_graph_recorder *recorder);

/* ---- text ---- */

/* Passes the graph as text to `write`, whose failure ends the call and is its result. docs/graphs.md has the grammar.
 * Small constants are a part of the text, the others are numbers: #0, #1, ... by the order of hr_graph_data. */
HR_API HR_MUST_USE hr_status hr_graph_print(const hr_graph *graph,
                                            hr_status (*write)(void *arg, const void *bytes, size_t count), void *arg);

/* The elements of a constant, row-major. The address is borrowed from the graph or the caller. */
typedef struct hr_graph_elements {
  hr_dtype dtype;
  int rank;
  int64_t dims[HR_RANK_MAX];
  const void *address;
} hr_graph_elements;

/* The number of constants that are no part of the text, and one of them. */
HR_API int hr_graph_data_count(const hr_graph *graph);
HR_API hr_graph_elements hr_graph_data(const hr_graph *graph, int index);

/* Reads text of `length` bytes; any text is safe. data: the elements of #0, #1, ... If `release` is NULL, they are
 * copied; else they are adopted, retain(arg) is called for each constant that uses them, and release(arg) as often.
 *
 * INVALID_ARGUMENT has line and column, the actual and the expected text, or the failure of an operation. */
typedef struct hr_graph_source {
  int data_count;
  const hr_graph_elements *data;
  void (*retain)(void *arg);
  void (*release)(void *arg);
  void *arg;
} hr_graph_source;
HR_API HR_MUST_USE hr_status hr_graph_parse(const char *text, size_t length, const hr_graph_source *source,
                                            hr_graph **out_graph);

#ifdef __cplusplus
}
#endif

#endif
