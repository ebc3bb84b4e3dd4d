/* graph_node.h: the nodes of a graph, and facts about its values.
 *
 * Nodes stand in the order of their creation: inputs of a node are results of earlier ones. Nodes never change;
 * hr_graph_simplify makes another graph.
 *
 * A fact is the type of a value for given dims of the graph's inputs, and its elements if they are known on the host. A
 * graph has facts of its values at a few *points*, which are numbers in place of the symbols: different numbers for
 * different symbols. A fact that no symbol influences is there once. At one more point each symbol is 1: it only shows
 * that a description of a dim is wrong.
 */
#ifndef HEADRACE_GRAPH_GRAPH_NODE_H_
#define HEADRACE_GRAPH_GRAPH_NODE_H_

#include <stdatomic.h>

#include "base/arena.h"
#include "base/refcount.h"
#include "base/table.h"
#include "base/text.h"
#include "base/vector.h"
#include "headrace/graph.h"
#include "headrace/transform.h"

enum {
  HR__GRAPH_POINTS = 5,
  HR__GRAPH_SMALL = 4,              /* the point of ones, which is the last */
  HR__GRAPH_ATTRIBUTES_MAX = 16,    /* of a function */
  HR__GRAPH_OPERANDS_MAX = 1 << 16, /* inputs or results of a node */
  HR__GRAPH_HOST_MAX = 1024,        /* elements of a value that is known on the host */
  HR__GRAPH_HOST_FEW = 16,          /* elements of one that is known always */
  HR__GRAPH_HOST_BYTES = 16 << 20   /* of the elements of all others: of a graph, and of an evaluation */
};

typedef enum hr__node_kind {
  HR__NODE_INPUT = 0,
  HR__NODE_CONSTANT,
  HR__NODE_NUMBER,
  HR__NODE_SYMBOL,
  HR__NODE_SHAPE,    /* of its input */
  HR__NODE_CALL,     /* of a function */
  HR__NODE_GRADIENT, /* inputs: of, seed, values ... */
  HR__NODE_READ,     /* of its input */
  HR__NODE_INNER,    /* a call of inner[0]; inputs: arguments ... */
  HR__NODE_IF,       /* inner: then, otherwise; inputs: condition, arguments ... */
  HR__NODE_WHILE,    /* inner: body, condition; inputs: arguments ... */
  HR__NODE_FOR,      /* inner: body; inputs: count, arguments ... */
  HR__NODE_SCAN,     /* inner: body; inputs: arguments ... */
  HR__NODE_VMAP,     /* of inner[0]; inputs: arguments ... */
  HR__NODE_VARIABLE, /* a constant that runs assign */
  HR__NODE_HOST      /* a call of a function of the host */
} hr__node_kind;

/* Elements of constants, shared by graphs. */
typedef struct hr__blob {
  hr_refcount refcount;
  const void *bytes;
  void (*release)(void *arg); /* NULL: the bytes are a part of this block */
  void *arg;
} hr__blob;

/* A function of the host, shared by graphs and pending work. */
typedef struct hr__host {
  hr_refcount refcount;
  hr_function_spec spec;
  int result_count;
  hr_type *types; /* of results */
} hr__host;

typedef struct hr__node_attribute {
  hr_attribute value; /* kind NONE: the default */
  hr_value *values;   /* NULL, or one for each element; 0: the one of `value` */
  hr_value list;
} hr__node_attribute;

typedef struct hr__node {
  hr__node_kind kind;
  hr_functional function;
  int input_count, attribute_count, result_count;
  hr_value first;  /* result */
  uint32_t origin; /* hr_graph_origin */
  const hr_value *inputs;
  const hr__node_attribute *attributes; /* in the function's order; those at the end may be missing */
  hr_dtype dtype;                       /* of INPUT and CONSTANT, with rank and dims */
  int rank;
  const int64_t *dims; /* -1 - s: symbol number s */
  hr__blob *blob;      /* of CONSTANT and VARIABLE */
  hr__host *host;      /* of HOST */
  hr_scalar number;
  int symbol;                        /* of a read: its number at the point of ones */
  hr_graph *inner[2];                /* of control flow; the graph's `inner` has references */
  int carried_count, sequence_count; /* of loops */
  const int *axes;                   /* of VMAP: of the arguments, then of the results; -1: none */
} hr__node;

typedef struct hr__fact {
  bool is_set; /* else the inference failed */
  hr_dtype dtype;
  int rank;
  const int64_t *dims;
  const int64_t *numbers; /* row-major; NULL: not known on the host */
} hr__fact;

typedef struct hr__graph_value {
  int node, result;
  const char *name;       /* NULL: none */
  bool varies;            /* there is a fact for each point */
  bool is_watched;        /* by a gradient */
  bool has_input_numbers; /* it is computed from inputs, whose numbers the host may know */
  bool needs_numbers;     /* if the host knows its numbers, they decide what is recorded */
  const hr__fact *facts;  /* of point p: facts[p * stride] */
  int stride;
  const char *const *texts; /* of a value that varies: hr_type's symbols */
} hr__graph_value;

typedef struct hr__graph_output {
  const char *name;
  hr_value value;
} hr__graph_output;

struct hr_graph {
  hr_refcount refcount;
  hr_status failure;
  hr_arena arena, scratch;
  HR_VECTOR(hr__node) nodes;
  HR_VECTOR(hr__graph_value) values; /* number 0 is no value */
  HR_VECTOR(const char *) symbols;
  HR_VECTOR(hr_value) inputs;
  HR_VECTOR(hr__graph_output) outputs;
  HR_VECTOR(hr_graph *) inner; /* with references; none before one that it uses */
  HR_VECTOR(hr_value) variables;
  HR_VECTOR(hr_value) assigned; /* by variable; 0: nothing */
  hr_table inner_table;         /* by address: the place in `inner`, from 1 on */
  atomic_bool is_inner;         /* of another graph: it does not change any more */
  uint32_t origin;              /* of nodes that are added */
  bool has_origins;             /* some node has one */
  bool is_piece;                /* made by hr__graph_cut: dims of inputs are descriptions, and no run relies on them */
  int depth;                    /* of the graphs inside; 0: none */
  int64_t inner_values;         /* see HR_GRAPH_INNER_MAX */
  HR_VECTOR(int) data;          /* nodes of constants beside the text */
  hr_table names;               /* values by the hash of their name; see hr_graph_find */
  int operation_count, constant_count;
  int64_t constant_bytes, host_bytes; /* host_bytes: of facts' elements */
};

static inline bool hr__node_is_control(const hr__node *node) {
  return node->kind >= HR__NODE_INNER && node->kind <= HR__NODE_VMAP;
}
/* True if the call has a size for its result: a number that is not negative, or a value. */
static inline bool hr__node_has_size(const hr__node *node) {
  const hr__node_attribute *size = node->attribute_count > 0 ? &node->attributes[0] : NULL;
  return size != NULL &&
         (size->values != NULL || (size->value.kind == HR_ATTRIBUTE_INT && size->value.value.integer >= 0));
}
/* True for calls whose dims depend on data. */
static inline bool hr__node_is_unknown(const hr__node *node) {
  return node->kind == HR__NODE_CALL &&
         ((node->function == HR_FUNCTIONAL_NONZERO && !hr__node_has_size(node)) ||
          node->function == HR_FUNCTIONAL_COMPRESS || node->function == HR_FUNCTIONAL_UNIQUE ||
          node->function == HR_FUNCTIONAL_NON_MAX_SUPPRESSION);
}
/* Constants and variables have elements. */
static inline bool hr__node_has_elements(const hr__node *node) {
  return node->kind == HR__NODE_CONSTANT || node->kind == HR__NODE_VARIABLE;
}
static inline bool hr__node_is_loop(const hr__node *node) {
  return node->kind == HR__NODE_WHILE || node->kind == HR__NODE_FOR || node->kind == HR__NODE_SCAN;
}
/* The arguments of control flow begin behind the condition or the count. */
static inline int hr__node_first_argument(const hr__node *node) {
  return node->kind == HR__NODE_IF || node->kind == HR__NODE_FOR;
}
static inline const hr__graph_value *hr__graph_value_of(const hr_graph *graph, hr_value value) {
  return &graph->values.data[value];
}
static inline const hr__node *hr__graph_node_of(const hr_graph *graph, hr_value value) {
  return &graph->nodes.data[graph->values.data[value].node];
}
/* The value's name, or its number with a %: "%12", in `text`. */
enum { HR__GRAPH_NAME_TEXT = 16 };
const char *hr__graph_label(const hr_graph *graph, hr_value value, char *text);
/* True for letters, digits and underscores, of which the first is no digit. */
bool hr__is_word(const char *name);
/* The bytes of a constant's elements. */
size_t hr__graph_bytes(const hr__node *constant);
/* True for the small constants that are a part of the text. */
bool hr__graph_is_inline(const hr__node *constant);
/* A graph with the same nodes and values, in the same order; constants share their elements. variables: NULL, or for
 * each variable, in their order, the elements that are its initial value in the copy. The caller owns it. */
HR_MUST_USE hr_status hr__graph_copy(const hr_graph *graph, const void *const *variables, hr_graph **out_graph);
/* The place of an inner graph in `inner`, from 1 on; 0: it is none. */
size_t hr__graph_inner_place(const hr_graph *graph, const hr_graph *inner);
/* A copy of a node in another graph, whose values for the node's inputs are in `map`. Sets its first result. */
HR_MUST_USE hr_status hr__node_copy(const hr_graph *from, hr_graph *to, hr_value *map, hr_arena *arena,
                                    const hr__node *node, hr_value *out_first);
/* The same graph with functions in place of the operations between those that wait; graph_cut.c has an example. It may
 * be the graph itself. The caller owns one reference. */
HR_MUST_USE hr_status hr__graph_cut(hr_graph *graph, hr_graph **out_graph);
/* The axes of inputs and outputs along which the graph keeps the slices of a symbol apart (graph_rows.c); -1: none.
 * INVALID_ARGUMENT names the operation that does not. */
HR_MUST_USE hr_status hr__graph_find_rows(const hr_graph *graph, const char *symbol, int *out_inputs, int *out_outputs);
/* INVALID_ARGUMENT names an operation of a vmap's function that slices decide, or a result that differs between them
 * and has no axis. Axes are those of hr_graph_vmap, one for each input and output (graph_slices.c). */
HR_MUST_USE hr_status hr__graph_check_slices(const hr_graph *callee, const int *in_axes, const int *out_axes);
/* A constant with the elements of another one, which may belong to another graph. */
hr_value hr__graph_share_constant(hr_graph *graph, const hr__node *constant);
/* A constant in two steps: a block for its elements, which the caller writes and releases, and the value. NULL and 0
 * after a failure. */
hr__blob *hr__graph_create_blob(hr_graph *graph, const hr_type *type);
hr_value hr__graph_add_blob(hr_graph *graph, const hr_type *type, hr__blob *blob);
/* The number of a symbol, which is added; -1 after a failure. */
int hr__graph_add_symbol(hr_graph *graph, const char *name);
/* Keeps the first failure. Returns 0. */
hr_value hr__graph_fail(hr_graph *graph, hr_status failure);
/* False after a failure, which one for a graph that is another's is. */
bool hr__graph_can_change(hr_graph *graph);
hr_value hr__graph_no_memory(hr_graph *graph, const char *what);
#define HR__GRAPH_REFUSE(graph, ...) hr__graph_fail(graph, hr_status_make(HR_STATUS_INVALID_ARGUMENT, __VA_ARGS__))
/* False, with a failure, if no value can get the name. */
bool hr__graph_check_name(hr_graph *graph, const char *name);
/* True for a text that can be a name. */
bool hr__graph_is_name(const char *name);
/* The results beyond the first of each operation. */
static inline int64_t hr__graph_extra_results(const hr_graph *graph) {
  return (int64_t)graph->values.count - (int64_t)graph->nodes.count - 1;
}
/* Adds a node whose parts are in the arena; its results are inferred. Returns the first. */
hr_value hr__graph_add_node(hr_graph *graph, hr__node *node);
/* Adds the call `node` of another graph, whose values have the numbers in `map` here. The symbols have the same order
 * in both, and what the node reads has the same facts, so that those of its results are copied. Returns the first. */
hr_value hr__graph_add_copy(hr_graph *graph, const hr_graph *from, const hr__node *node, const hr_value *map);
/* True if the graph has all values that the node reads. */
bool hr__graph_has_inputs(const hr_graph *graph, const hr__node *node);
/* A copy in the graph's arena; NULL: no memory. */
const hr_value *hr__graph_copy_values(hr_graph *graph, int count, const hr_value *values);
void hr__blob_release(hr__blob *blob);
void hr__host_release(hr__host *host);
/* A call of the same function. */
hr_value hr__graph_share_host(hr_graph *graph, hr__host *host, int input_count, const hr_value *inputs);
/* Adds a node of control flow with the inner graphs, counts and inputs of `like`, whose inputs are other values. */
hr_value hr__graph_add_control(hr_graph *graph, const hr__node *like, hr_graph *const *inner, const hr_value *inputs);
/* hr_graph_variable without a copy, as hr_graph_constant_adopt. */
hr_value hr__graph_adopt_variable(hr_graph *graph, const char *name, const hr_type *type, const void *elements,
                                  void (*release)(void *arg), void *arg);
/* A variable with the elements of another one. */
hr_value hr__graph_share_variable(hr_graph *graph, const char *name, const hr__node *variable);
/* Appends a value's dtype and dims, as in the graph's text: f32[n, 3]. */
void hr__graph_print_type(const hr_graph *graph, hr_value value, hr_text *out);
/* Appends the attributes of a call that are given, as in the graph's text, but values without a name have their own
 * numbers. */
bool hr__graph_print_attributes(const hr_graph *graph, const hr__node *node, hr_text *out);
/* Calls visit(arg, &value) for each value that a node reads, none of which is 0; in a fixed order. */
void hr__node_each_input(const hr__node *node, void (*visit)(void *arg, const hr_value *value), void *arg);

/* ---- types ---- */

/* The number of a symbol at a point. */
int64_t hr__graph_point(int point, int symbol);
/* One of the numbers that no symbol has at the point, but for that of ones, in place of a number that no graph has. */
int64_t hr__graph_unknown(int point, int index);
/* Infers facts and texts of a node's results in the arenas of the graph. */
HR_MUST_USE hr_status hr__graph_infer(hr_graph *graph, const hr__node *node, hr__graph_value *out_results);
/* Copies facts and texts of the results of another graph's node. */
HR_MUST_USE hr_status hr__graph_copy_facts(hr_graph *graph, const hr_graph *from, const hr__node *node,
                                           hr__graph_value *out_results);
/* The number of results that a call has. */
HR_MUST_USE hr_status hr__graph_count_results(hr_graph *graph, const hr__node *node, int *out_count);
/* Describes how a dim depends on symbols: its sizes at the points where `is_set`; NULL: no memory. */
const char *hr__graph_dim_text(hr_graph *graph, const int64_t *sizes, const bool *is_set);

/* ---- inference and evaluation ---- */

typedef struct hr__frame {
  const hr_graph *graph;
  int point;              /* of the graph's facts */
  const int64_t *symbols; /* their numbers; NULL: those of the point */
  hr__fact *facts;        /* by value; NULL: those of the graph */
  hr_arena *arena;        /* of facts */
  hr_arena *scratch;      /* of a node */
  int64_t *host_bytes;    /* that elements of facts have */
  bool is_typing;         /* a graph is built: unknown dims have a number of the point */
} hr__frame;

static inline const hr__fact *hr__frame_fact(const hr__frame *frame, hr_value value) {
  const hr__graph_value *v = hr__graph_value_of(frame->graph, value);
  return frame->facts != NULL ? &frame->facts[value] : &v->facts[(v->varies ? frame->point : 0) * v->stride];
}
/* Infers the facts of a node's results. */
HR_MUST_USE hr_status hr__frame_infer(const hr__frame *frame, const hr__node *node, hr__fact *out_facts);
/* The same for control flow and reads, when the graph is built. */
HR_MUST_USE hr_status hr__frame_infer_control(const hr__frame *frame, const hr__node *node, hr__fact *out_facts);
/* The facts of the outputs of an inner graph for inputs of these facts. */
HR_MUST_USE hr_status hr__frame_infer_inner(const hr__frame *frame, const hr_graph *graph, const hr__fact *inputs,
                                            hr__fact *out_facts);
/* The slices of arguments that a vmap maps, in the place of these; sets their number. */
HR_MUST_USE hr_status hr__vmap_slice_facts(const hr__node *node, hr_arena *arena, hr__fact *arguments,
                                           int64_t *out_size);
/* A fact with one more dim, of `size`, in front of dim `axis`. */
HR_MUST_USE hr_status hr__frame_insert_dim(const hr__frame *frame, int axis, int64_t size, hr__fact *fact);
HR_MUST_USE hr_status hr__frame_infer_read(const hr__frame *frame, const hr__node *node, hr__fact *out_fact);
/* Facts of a call whose dims depend on data, when the graph is built; sets false if it is none. */
HR_MUST_USE hr_status hr__frame_infer_unknown(const hr__frame *frame, const hr__node *node,
                                              const hr_attribute *attributes, hr__fact *out_facts, bool *out_is_one);
/* A fact without numbers; fails if the elements exceed the address space. */
HR_MUST_USE hr_status hr__frame_set_fact(const hr__frame *frame, const char *name, hr_dtype dtype, int rank,
                                         const int64_t *dims, hr__fact *out);
/* True if elements of a value may be known on the host; counts their bytes. A value beyond the limit is computed by the
 * stream, as any other. */
bool hr__frame_may_know(const hr__frame *frame, hr_dtype dtype, int64_t count);
/* The attributes of a call with the elements that are computed; in the frame's scratch. */
HR_MUST_USE hr_status hr__frame_attributes(const hr__frame *frame, const hr__node *node, hr_attribute **out_attributes);
/* A row-major tensor without a buffer, or a number. */
void hr__frame_type(const hr__frame *frame, hr_value value, hr_tensor *out);

/* Computes the elements of a call's only result on the host, in `arena`, from those of the inputs, which are all known.
 * result: as inferred. Sets NULL if the function is not one of those that the host computes. */
HR_MUST_USE hr_status hr__integers_compute(const hr__node *node, const hr_attribute *attributes,
                                           const hr__fact *const *inputs, const hr_tensor *result, hr_arena *arena,
                                           const int64_t **out_numbers);
/* True for dtypes whose elements 64 signed bits hold. */
bool hr__is_host_dtype(hr_dtype dtype);
/* Elements in memory as integers, and back. */
void hr__integers_load(hr_dtype dtype, int64_t count, const void *elements, int64_t *out_numbers);
void hr__integers_store(hr_dtype dtype, int64_t count, const int64_t *numbers, void *out_elements);

/* Checks inputs against the graph's, and gives the numbers of its symbols. Dims of a piece's inputs are not checked,
 * nor are its symbols' numbers those of all dims. */
HR_MUST_USE hr_status hr__graph_bind(const hr_graph *graph, int input_count, const hr_tensor *const *inputs,
                                     int64_t *out_symbols);

/* Replaces an operand of an element-wise function that is one number everywhere by the number (graph_numbers.c). The
 * result is the same. False: there is none. */
bool hr__graph_use_numbers(const hr_graph *graph, hr_functional function, int count, hr_value *inputs);

#endif
