/* node.h: one call of an operation of TensorFlow, as a rule of map.def sees it.
 *
 * A rule reads inputs as tensors or numbers of the host, applies functions (functional.h), and sets outputs. Errors are
 * kept: after the first one all calls do nothing and give an empty tensor, so rules need no checks between them.
 *
 * Values belong to the node and end with it.
 *
 * A node is a kernel's call, or it walks over the body of a cluster (cluster.h) with a scope: then inputs and outputs
 * are values of the scope, and records go to a capture.
 */
#ifndef HEADRACE_TENSORFLOW_NODE_H_
#define HEADRACE_TENSORFLOW_NODE_H_

#include "headrace/function.h"
#include "plugin.h"

typedef struct htf_node htf_node;
typedef struct htf_scope htf_scope;
typedef void (*htf_rule)(htf_node *node);
typedef const hr_tensor *htf_value;

enum { HTF_VALUES_INLINE = 10, HTF_ATTRIBUTES_MAX = 8, HTF_LIST_MAX = 32 };

/* An attribute of TensorFlow's node, read when the kernel is created. */
typedef struct htf_attribute {
  char name[40];
  char kind; /* b: bool, i: int, f: float, t: type, s: text, l: list of ints, r: list of floats, w: list of texts,
              * of kernels that join no cluster */
  int count;
  int64_t integer;
  double real;
  char text[96];
  int64_t list[HTF_LIST_MAX];
  float *reals; /* freed with the kernel */
} htf_attribute;

/* A row of map.def. */
typedef struct htf_row {
  const char *op;
  const char *type_name; /* the attribute that `types` is about; "": none. Two with a comma: each pair of types */
  uint32_t types;        /* a bit for each tf_dtype */
  const char *host;      /* arguments in the host's memory, with spaces between them; name@i32: those of i32 */
  const char *attributes;
  htf_rule rule;
  hr_functional function;
} htf_row;

/* The state of a kernel that draws random numbers: seeds, and the generator's blocks that its calls have used. */
typedef struct htf_generator {
  atomic_ullong blocks;
  uint64_t seed, seed2;
} htf_generator;

/* The kernel object of a node. */
typedef struct htf_kernel {
  const htf_row *row;
  htf_generator *generator; /* of rows with the attribute seed2 */
  atomic_ullong profiled;   /* by profiler.c */
  int count;
  htf_attribute attributes[];
} htf_kernel;

typedef struct htf_chunk {
  struct htf_chunk *next;
  int count;
  bool is_foreign[HTF_VALUES_INLINE]; /* TensorFlow has a tensor of the buffer */
  hr_tensor values[HTF_VALUES_INLINE];
} htf_chunk;

struct htf_node {
  const htf_kernel *kernel;
  hr_functional function;
  tf_context *context;
  tf_status *status; /* for calls of TensorFlow */
  htf_device *device;
  hr_stream *stream; /* the device's, or a capture */
  htf_scope *scope;  /* NULL: of a kernel */
  hr_status error;
  htf_chunk *chunk;
  htf_chunk first;
};

/* Begins and ends a call. The end reports the error. */
void htf_node_init(htf_node *node, const htf_kernel *kernel, tf_context *context);
void htf_node_fini(htf_node *node);
/* The same for a walk over a cluster's body. The end returns the error. */
void htf_node_open(htf_node *node, const htf_kernel *kernel, htf_device *device, hr_stream *stream, htf_scope *scope);
HR_MUST_USE hr_status htf_node_close(htf_node *node);

/* Values that come from now on are in chunks before the one that is returned. */
htf_chunk *htf_node_mark(htf_node *node);
/* Ends the values since a mark but those that `kept` points to, which move. */
void htf_node_sweep(htf_node *node, htf_chunk *mark, size_t count, htf_value *const *kept);

/* ---- errors ---- */

void htf_fail(htf_node *node, hr_status_code code, const char *format, ...) HR_PRINTF(3, 4);
/* Keeps the first error; true if there is one now. */
bool htf_keep(htf_node *node, hr_status status);
static inline bool htf_has_failed(const htf_node *node) {
  return node->error != HR_OK;
}
/* Dims as TensorFlow writes them, such as [2,3]. */
typedef struct htf_dims_text {
  char text[24 * HR_RANK_MAX];
} htf_dims_text;
htf_dims_text htf_text_of_dims(int rank, const int64_t *dims);
/* True if the last call of TensorFlow failed, whose error is kept. */
bool htf_has_refused(htf_node *node);

/* ---- inputs ---- */

int htf_input_count(htf_node *node);
/* True for a list of tensors. */
bool htf_is_list(htf_node *node, int index);
htf_value htf_input(htf_node *node, int index);
/* An input in the host's memory, of i32 or i64: its numbers (at most `most`), and how many they are. */
int htf_host_ints(htf_node *node, int index, int64_t *out_values, int most);
/* All of them, at most INT32_MAX, which the caller frees; NULL after a failure. */
int64_t *htf_host_numbers(htf_node *node, int index, int64_t *out_count);
/* The same of one number. */
int64_t htf_host_int(htf_node *node, int index);
/* The number of an input without dims, which others need not be. */
int64_t htf_host_scalar(htf_node *node, int index);
/* The dims of an input in the host's memory; how many they are. */
int htf_host_dims(htf_node *node, int index, int64_t dims[HR_RANK_MAX]);
/* The operation fails with this error unless an input in the host's memory has `rank` dims. */
void htf_expect_rank(htf_node *node, int index, int rank, const char *error);
/* The numbers of an input in the host's memory as dims; a negative one is InvalidArgumentError. */
int htf_read_dims(htf_node *node, int index, int64_t *out_dims);
/* One number of a float in the host's memory. */
double htf_host_real(htf_node *node, int index);
/* So many floats or signed integers. */
void htf_host_reals(htf_node *node, int index, double *out_values, int count);

/* ---- attributes ---- */

bool htf_has_attribute(const htf_node *node, const char *name);
bool htf_flag(const htf_node *node, const char *name);
/* The same; false if the row has no such attribute. */
bool htf_has_flag(const htf_node *node, const char *name);
int64_t htf_integer(const htf_node *node, const char *name);
double htf_real(const htf_node *node, const char *name);
const char *htf_text(const htf_node *node, const char *name);
/* The same, with a text for rows that have no such attribute. */
const char *htf_text_or(const htf_node *node, const char *name, const char *otherwise);
hr_dtype htf_dtype(const htf_node *node, const char *name);
const htf_attribute *htf_list(const htf_node *node, const char *name);

/* ---- values ---- */

/* The result of calls that fail. */
extern const hr_tensor htf_nothing;
/* A number of the host, weak in promotion. */
htf_value htf_number(htf_node *node, double number);
htf_value htf_number_of(htf_node *node, hr_scalar number);
/* The same elements with other dims, without a record if x is row-major. */
htf_value htf_reshape(htf_node *node, htf_value x, int rank, const int64_t *dims);
/* A view of x's buffer with other dims, strides and offset, without a record. */
htf_value htf_view(htf_node *node, htf_value x, int rank, const int64_t *dims, const int64_t *strides, int64_t offset);
/* x with its dims in another order, without a record. */
htf_value htf_transpose(htf_node *node, htf_value x, const int *order);
htf_value htf_cast(htf_node *node, htf_value x, hr_dtype dtype);
/* An axis of x from 0 on; InvalidArgumentError if it has none such. */
int htf_resolve_axis(htf_node *node, htf_value x, int64_t axis);
/* Any view, which takes over a reference to its buffer. */
htf_value htf_keep_value(htf_node *node, const hr_tensor *tensor);

#define HTF_COUNT(type, ...) ((int)(sizeof((type[]){__VA_ARGS__}) / sizeof(type)))
#define INPUTS(...)                                  \
  HTF_COUNT(htf_value, __VA_ARGS__), (htf_value[]) { \
    __VA_ARGS__                                      \
  }
#define ATTRIBUTES(...)                                    \
  HTF_COUNT(hr_attribute, __VA_ARGS__), (hr_attribute[]) { \
    __VA_ARGS__                                            \
  }
#define NO_ATTRIBUTES 0, NULL

/* Applies a function to values; NULL: an absent input. */
htf_value htf_call(htf_node *node, hr_functional function, int input_count, const htf_value *inputs,
                   int attribute_count, const hr_attribute *attributes);
/* The same with several results. */
void htf_call_many(htf_node *node, hr_functional function, int input_count, const htf_value *inputs,
                   int attribute_count, const hr_attribute *attributes, int result_count, htf_value *out_results);
htf_value htf_call1(htf_node *node, hr_functional function, htf_value x);
htf_value htf_call2(htf_node *node, hr_functional function, htf_value x, htf_value y);

static inline htf_value htf_add(htf_node *node, htf_value x, htf_value y) {
  return htf_call2(node, HR_FUNCTIONAL_ADD, x, y);
}
static inline htf_value htf_subtract(htf_node *node, htf_value x, htf_value y) {
  return htf_call2(node, HR_FUNCTIONAL_SUBTRACT, x, y);
}
static inline htf_value htf_multiply(htf_node *node, htf_value x, htf_value y) {
  return htf_call2(node, HR_FUNCTIONAL_MULTIPLY, x, y);
}
static inline htf_value htf_divide(htf_node *node, htf_value x, htf_value y) {
  return htf_call2(node, HR_FUNCTIONAL_DIVIDE, x, y);
}
static inline htf_value htf_where(htf_node *node, htf_value condition, htf_value x, htf_value y) {
  return htf_call(node, HR_FUNCTIONAL_WHERE, INPUTS(condition, x, y), NO_ATTRIBUTES);
}

static inline hr_attribute htf_attr_int(int64_t value) {
  return (hr_attribute){.kind = HR_ATTRIBUTE_INT, .value.integer = value};
}
static inline hr_attribute htf_attr_flag(bool value) {
  return (hr_attribute){.kind = HR_ATTRIBUTE_FLAG, .value.integer = value};
}
static inline hr_attribute htf_attr_real(double value) {
  return (hr_attribute){.kind = HR_ATTRIBUTE_REAL, .value.number = hr_scalar_f64(value)};
}
static inline hr_attribute htf_attr_ints(const int64_t *values, int count) {
  return (hr_attribute){.kind = HR_ATTRIBUTE_INTS, .count = count, .value.ints = values};
}
static inline hr_attribute htf_attr_dtype(hr_dtype dtype) {
  return (hr_attribute){.kind = HR_ATTRIBUTE_DTYPE, .value.dtype = dtype};
}
static inline hr_attribute htf_attr_text(const char *text) {
  return (hr_attribute){.kind = HR_ATTRIBUTE_TEXT, .value.text = text};
}

static inline htf_value htf_zeros(htf_node *node, int rank, const int64_t *dims, hr_dtype dtype) {
  return htf_call(node, HR_FUNCTIONAL_FULL, INPUTS(htf_number_of(node, hr_scalar_i64(0))),
                  ATTRIBUTES(htf_attr_ints(dims, rank), htf_attr_dtype(dtype)));
}
static inline htf_value htf_broadcast(htf_node *node, htf_value x, int rank, const int64_t *dims) {
  return htf_call(node, HR_FUNCTIONAL_BROADCAST_TO, INPUTS(x), ATTRIBUTES(htf_attr_ints(dims, rank)));
}
/* x with a new dim of 1 at the axis. */
static inline htf_value htf_expand(htf_node *node, htf_value x, int64_t axis) {
  return htf_call(node, HR_FUNCTIONAL_EXPAND_DIMS, INPUTS(x), ATTRIBUTES(htf_attr_ints(&axis, 1)));
}

/* A new tensor without contents. */
htf_value htf_new(htf_node *node, hr_dtype dtype, int rank, const int64_t *dims);
/* A vector of these elements, which the call copies. */
htf_value htf_constant(htf_node *node, hr_dtype dtype, int64_t count, const void *elements);
/* Records an operation of op.h with integers on values; htf_record has one output. */
void htf_record_many(htf_node *node, hr_op op, int int_count, const int64_t *ints, int input_count,
                     const htf_value *inputs, int output_count, const htf_value *outputs);
static inline void htf_record(htf_node *node, hr_op op, int int_count, const int64_t *ints, int input_count,
                              const htf_value *inputs, htf_value output) {
  htf_record_many(node, op, int_count, ints, input_count, inputs, 1, &output);
}

/* Memory of zeros for a function's argument; NULL, and an error, if there is none. */
void *htf_new_argument(htf_node *node, size_t bytes);
/* Records a function of the host (function.h) on values, which frees its argument. The first `updated` outputs have
 * contents. UNIMPLEMENTED on a device whose memory is not the host's. */
void htf_record_function(htf_node *node, hr_function_run run, void *argument, int input_count, const htf_value *inputs,
                         int updated, int output_count, const htf_value *outputs);

/* ---- outputs ---- */

int htf_output_count(const htf_node *node);
/* The dtype that TensorFlow expects. */
hr_dtype htf_output_dtype(const htf_node *node, int index);
/* Sets an output to a value, in the dtype that TensorFlow expects. A value that the node has made becomes the output
 * itself; others are copied. */
void htf_output(htf_node *node, int index, htf_value value);
/* A new output of i32 or i64 in the host's memory, of a kernel; NULL after a failure. */
void *htf_new_host_output(htf_node *node, int index, int rank, const int64_t *dims);
/* Sets an output in the host's memory to one number of i32. */
void htf_output_host(htf_node *node, int index, int32_t number);
/* Records a copy of a value to a tensor of TensorFlow's with the same number of elements. */
void htf_write(htf_node *node, tf_tensor *target, htf_value value);
/* The value of a tensor of TensorFlow's, which the caller keeps. */
htf_value htf_value_of(htf_node *node, tf_tensor *tensor);
/* TensorFlow has a tensor of the value's buffer, so that no output becomes this one. */
void htf_mark_foreign(htf_node *node, htf_value value);

/* ---- kernels ---- */

/* Reads an attribute of a known name and kind from `source`; a failure sets the status. */
typedef void (*htf_attribute_reader)(void *source, htf_attribute *attribute, tf_status *status);
/* NULL after a failure, which is in the status. */
htf_kernel *htf_kernel_create(const htf_row *row, htf_attribute_reader reader, void *source, tf_status *status);
void htf_kernel_destroy(void *kernel);
/* Gives an attribute memory for so many floats. */
bool htf_attribute_has_room(htf_attribute *attribute, int count, tf_status *status);
/* The row of an operation (of `size` bytes); NULL: there is none. */
const htf_row *htf_find_row(const char *op, size_t size);
/* The next word of a list with spaces; false at the end. */
bool htf_next_word(const char **list, char *word, size_t bytes);

/* Counts a step's kernels, and hands over the work of the last step when another one begins. */
HR_MUST_USE hr_status htf_note_step(htf_device *device, int64_t step, int kernels);
/* TensorFlow calls this if a variable must be copied before it is updated. */
void htf_copy_tensor(tf_context *context, tf_tensor *source, tf_tensor *target);

/* ---- rules that others call ---- */

/* Rows of x. */
htf_value htf_taken_rows(htf_node *node, htf_value x, htf_value indices);
/* The quotient of integers without its fraction. */
htf_value htf_divide_truncated(htf_node *node, htf_value x, htf_value y);
/* The sum of all inputs. */
void htf_add_tensors(htf_node *node);
/* A number in the dims of input 0. */
void htf_fill_like(htf_node *node, int64_t number);

/* All rules of ops_*.c and variables.c. */
#define OP(op, type_name, types, host, attributes, rule, function) void htf_##rule(htf_node *node);
#include "map.def"
#undef OP

#endif
