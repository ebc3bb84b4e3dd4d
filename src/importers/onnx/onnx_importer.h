/* onnx_importer.h: from the nodes of an ONNX graph to functions of a graph (graph.h).
 *
 * A map function (operators.def) reads the inputs and attributes of a node, adds functions to the graph, and sets the
 * node's outputs. Failures are kept by the graph: a function that adds returns 0 from then on, so that map functions
 * need few checks. The caller puts the node's name in front.
 *
 * Sequences and optionals are lists of the host, known when the model is imported. Functions are mapped in place, and
 * so is a branch that is known. Other branches, and bodies of loops, become inner graphs (onnx_inner.h).
 */
#ifndef HEADRACE_IMPORTERS_ONNX_ONNX_IMPORTER_H_
#define HEADRACE_IMPORTERS_ONNX_ONNX_IMPORTER_H_

#include "graph/graph_node.h"
#include "headrace/importer.h"
#include "importers/arguments.h"
#include "importers/onnx/onnx_file.h"
#include "importers/onnx/onnx_model.h"

enum {
  HR__ONNX_DEPTH_MAX = 32,      /* of subgraphs and functions in each other */
  HR__ONNX_NODES_MAX = 1 << 18, /* that are mapped, with repetitions */
  HR__ONNX_LIST_MAX = 1 << 16,  /* elements of a sequence */
  HR__ONNX_WORK_MAX = 1 << 23   /* names, elements of sequences and compared attributes, with repetitions */
};

typedef struct hr__onnx_list hr__onnx_list;
typedef struct hr__onnx_inner hr__onnx_inner; /* onnx_inner.h */

/* A tensor, a sequence or an optional. */
typedef struct hr__onnx_value {
  hr_value value;            /* a tensor; 0: none, or absent */
  const hr__onnx_list *list; /* NULL: no sequence */
  bool is_empty;             /* an optional without an element */
  int data_type;             /* of a tensor whose elements are wider than in ONNX: U4 ...; else 0 */
} hr__onnx_value;

struct hr__onnx_list {
  int count;
  hr_dtype dtype; /* of an empty one */
  const hr__onnx_value *values;
};

typedef struct hr__onnx_binding {
  hr__span name;
  hr__onnx_value value;
} hr__onnx_binding;

/* The names of a graph or a function. */
typedef struct hr__onnx_scope {
  struct hr__onnx_scope *outer; /* names of which are visible; NULL: none */
  hr__onnx_inner *inner;        /* of a subgraph that becomes an inner graph: it captures values of `outer` */
  hr_table names;               /* hr__onnx_binding by hash */
  hr_arena arena;               /* of them */
  const hr__onnx_opsets *opsets;
  int attribute_count; /* of the call of a function */
  const hr__onnx_attribute *attributes;
  int depth;
} hr__onnx_scope;

typedef struct hr__onnx_function {
  hr__onnx_operator op;
  hr__span message;
} hr__onnx_function;

/* Of an input's dim: its name in the file, or that of the input and the number of the dim. */
typedef struct hr__onnx_symbol {
  hr__span raw;
  int dim; /* -1: raw is the symbol's */
} hr__onnx_symbol;

typedef struct hr__onnx_importer {
  hr_graph *graph;       /* to which nodes are added: the model's, or an inner one */
  hr__onnx_inner *inner; /* of which it is; NULL: none */
  uint64_t graph_number, graph_count;
  hr_arena arena; /* lists */
  const char *path;
  hr__onnx_file *file; /* the first of those that are open */
  const hr_onnx_options *options;
  bool *is_fixed;   /* by constant of the options: it replaces an input */
  bool wants_fixed; /* another one has to, and the import begins again */
  hr__onnx_model model;
  HR_VECTOR(hr__onnx_function) functions;
  hr_table constants; /* values by the place of the message in the file, and the number of the graph */
  hr_table symbols;   /* hr__onnx_symbol by its name in the graph */
  int node_count;     /* mapped so far */
  int64_t work;       /* done so far, at most WORK_MAX */
} hr__onnx_importer;

typedef struct hr__onnx_node {
  hr__onnx_importer *importer;
  hr_graph *graph;
  hr__onnx_scope *scope;
  hr_arena *arena; /* of this node */
  const hr__onnx_call *call;
  int since; /* the version of the operator */
  hr_functional function;
  int input_count, output_count, attribute_count;
  const hr__onnx_attribute *attributes;
  hr__onnx_value *inputs, *outputs;
} hr__onnx_node;

/* ---- operators ---- */

typedef struct hr__onnx_operator_row {
  const char *domain, *name;
  void (*map)(hr__onnx_node *node); /* NULL: refused */
  hr_functional function;           /* for map functions of many operators */
  const char *since;                /* versions in order: "1, 6, 13" */
  const char *reason;               /* why it is refused, or which part of it */
} hr__onnx_operator_row;

/* The row of an operator; NULL: there is none. */
const hr__onnx_operator_row *hr__onnx_operator_find(hr__onnx_operator op);
/* Rows in the order of the table; NULL behind the last. */
const hr__onnx_operator_row *hr__onnx_operator_at(int index);
/* The newest version of an operator in an operator set; 0: it came later. */
int hr__onnx_operator_since(const hr__onnx_operator_row *row, int64_t opset);

#define HR_ONNX(Name, map, ...) void hr__onnx_map_##map(hr__onnx_node *node);
#define HR_ONNX_IN(domain, Name, map, ...) void hr__onnx_map_##map(hr__onnx_node *node);
#define HR_ONNX_REFUSED(...)
#include "importers/onnx/operators.def"
#undef HR_ONNX
#undef HR_ONNX_IN
#undef HR_ONNX_REFUSED

/* ---- scopes ---- */

/* Finds a name in a scope and those around it: the value of the graph to which the importer adds. */
bool hr__onnx_scope_find(hr__onnx_importer *importer, const hr__onnx_scope *scope, hr__span name,
                         hr__onnx_value *out_value);
/* Binds a name. DATA_LOSS if the scope has it already, or it is no text. */
HR_MUST_USE hr_status hr__onnx_scope_bind(hr__onnx_importer *importer, hr__onnx_scope *scope, hr__span name,
                                          hr__onnx_value value);
/* Counts work that is not by nodes. INVALID_ARGUMENT beyond WORK_MAX. */
HR_MUST_USE hr_status hr__onnx_charge(hr__onnx_importer *importer, int64_t work);
void hr__onnx_scope_fini(hr__onnx_scope *scope);
/* A tensor as a constant; the same message has one. */
HR_MUST_USE hr_status hr__onnx_constant(hr__onnx_importer *importer, hr__span message, hr__onnx_value *out_value);
/* The same; a failure names the tensor. */
HR_MUST_USE hr_status hr__onnx_initializer(hr__onnx_importer *importer, hr__span message, hr__onnx_tensor *out_tensor,
                                           hr__onnx_value *out_value);
/* Maps all nodes of a graph or a function. field: that of its nodes. */
HR_MUST_USE hr_status hr__onnx_run_nodes(hr__onnx_importer *importer, hr__onnx_scope *scope, hr__span message,
                                         uint32_t field);
/* Maps a subgraph of a node for these inputs. outputs: room for the graph's outputs, which are counted. inner: NULL, or
 * that to which the importer adds. */
HR_MUST_USE hr_status hr__onnx_run_subgraph(hr__onnx_node *node, hr__span graph, hr__onnx_inner *inner, int input_count,
                                            const hr__onnx_value *inputs, int room, hr__onnx_value *out_values,
                                            int *out_count);

/* ---- a node's attributes and inputs ---- */

const hr__onnx_attribute *hr__onnx_find_attribute(const hr__onnx_node *node, const char *name);
int64_t hr__onnx_int(const hr__onnx_node *node, const char *name, int64_t otherwise);
double hr__onnx_real(const hr__onnx_node *node, const char *name, double otherwise);
/* The number of a text among `count` words; -1 after a failure. The first is the default. */
int hr__onnx_word(hr__onnx_node *node, const char *name, int count, const char *const *words);
/* The integers of an attribute, at most HR_RANK_MAX; -1 if there is none. */
int hr__onnx_ints(hr__onnx_node *node, const char *name, int64_t *out_numbers);
int hr__onnx_reals(hr__onnx_node *node, const char *name, int room, double *out_numbers);
/* A text of an attribute or an input as a string in the node's arena. */
const char *hr__onnx_string(hr__onnx_node *node, hr__span text);

/* An input; 0: absent, or no tensor. */
hr_value hr__onnx_input(const hr__onnx_node *node, int index);
void hr__onnx_set(hr__onnx_node *node, int index, hr_value value);
/* The same for elements of input 0: the output has its data type. */
void hr__onnx_set_like(hr__onnx_node *node, int index, hr_value value);
/* True if the node's output is used. */
bool hr__onnx_wants(const hr__onnx_node *node, int index);

/* ---- facts about values; -1 or NONE after a failure ---- */

int hr__onnx_rank(const hr__onnx_node *node, hr_value value);
hr_dtype hr__onnx_dtype_of(const hr__onnx_node *node, hr_value value);
hr_dtype hr__onnx_dtype_in(const hr_graph *graph, hr_value value);
/* The size of a dim if it is the same for all symbols; else -1. */
int64_t hr__onnx_dim(const hr__onnx_node *node, hr_value value, int dim);
/* The same, or a failure. */
int64_t hr__onnx_known_dim(hr__onnx_node *node, hr_value value, int dim);
/* A negative axis from the end; fails if it is out of range. */
int hr__onnx_axis(hr__onnx_node *node, int64_t axis, int rank);
bool hr__onnx_is_float(hr_dtype dtype);

/* True if the host knows the elements of a value for all symbols. */
bool hr__onnx_host_knows(const hr_graph *graph, hr_value value);
/* The same, and they are the same for all symbols. */
bool hr__onnx_is_known(const hr_graph *graph, hr_value value);
/* A value whose elements the host knows when the graph is instantiated, so that attributes may depend on it. If they
 * are computed from an input of the model for which the options have a constant, that takes its place, and the import
 * begins again; of others a run reads up to 16 integers. 0 after a failure. what: the input's role. */
hr_value hr__onnx_on_host(hr__onnx_node *node, hr_value value, const char *what);
/* The numbers of a constant of at most `room` elements; -1 after a failure, as above. */
int hr__onnx_numbers(hr__onnx_node *node, hr_value value, const char *what, int room, double *out_numbers);
/* The same for integers. */
int hr__onnx_integers(hr__onnx_node *node, hr_value value, const char *what, int room, int64_t *out_numbers);
/* Integers of an input, or of an attribute in older versions; 0 of both: -1. */
int hr__onnx_ints_of(hr__onnx_node *node, int input, const char *attribute, int64_t *out_numbers);

/* ---- adding functions ---- */

hr_value hr__onnx_fail(hr__onnx_node *node, hr_status_code code, const char *format, ...) HR_PRINTF(3, 4);
#define HR__ONNX_REFUSE(node, ...) hr__onnx_fail(node, HR_STATUS_UNIMPLEMENTED, __VA_ARGS__)
#define HR__ONNX_WRONG(node, ...) hr__onnx_fail(node, HR_STATUS_INVALID_ARGUMENT, __VA_ARGS__)
bool hr__onnx_failed(const hr__onnx_node *node);

/* hr__onnx_add(node, HR_FUNCTIONAL_MAX, IN(x), WITH(ints("axis", 1, &axis))) */
hr_value hr__onnx_add(hr__onnx_node *node, hr_functional function, int input_count, const hr_value *inputs,
                      int attribute_count, const hr_graph_attribute *attributes);
#define PLAIN 0, NULL
#define ADD(node, NAME, ...) hr__onnx_add(node, HR_FUNCTIONAL_##NAME, __VA_ARGS__)
/* A function without attributes. */
#define CALL(node, NAME, ...) hr__onnx_add(node, HR_FUNCTIONAL_##NAME, IN(__VA_ARGS__), PLAIN)

/* x as another data type, as operator Cast does it, and the data type of a tensor of a graph. */
hr__onnx_value hr__onnx_convert(hr__onnx_node *node, const hr__onnx_value *x, int64_t data_type);
int64_t hr__onnx_data_type_of(const hr_graph *graph, const hr__onnx_value *x);
/* A convolution with the node's attributes. */
hr_value hr__onnx_convolve(hr__onnx_node *node, hr_value x, hr_value weight);

/* Usual functions. */
hr_value hr__onnx_number(hr__onnx_node *node, double number);
hr_value hr__onnx_whole(hr__onnx_node *node, int64_t number);
hr_value hr__onnx_cast(hr__onnx_node *node, hr_value x, hr_dtype dtype);
hr_value hr__onnx_reshape(hr__onnx_node *node, hr_value x, int rank, const int64_t *dims);
hr_value hr__onnx_permute(hr__onnx_node *node, hr_value x, int rank, const int64_t *axes);
/* x without, and with, dims of size 1 at an axis. */
hr_value hr__onnx_expand_dim(hr__onnx_node *node, hr_value x, int64_t axis);
hr_value hr__onnx_squeeze_dim(hr__onnx_node *node, hr_value x, int64_t axis);
/* A vector with as many dims as `rank`, along one axis. */
hr_value hr__onnx_along(hr__onnx_node *node, hr_value vector, int axis, int rank);
/* Elements begin ... begin + count - 1 of an axis. */
hr_value hr__onnx_narrow(hr__onnx_node *node, hr_value x, int axis, int64_t begin, int64_t count);
/* A constant of integers in one dim, and one of f32. */
hr_value hr__onnx_vector(hr__onnx_node *node, int count, const int64_t *numbers);
hr_value hr__onnx_floats(hr__onnx_node *node, int rank, const int64_t *dims, const float *numbers);
/* A sum, maximum, ... over axes, keeping them or not. axis_count 0: over none. */
hr_value hr__onnx_reduce(hr__onnx_node *node, hr_functional function, hr_value x, int axis_count, const int64_t *axes,
                         bool keeps);

#endif
