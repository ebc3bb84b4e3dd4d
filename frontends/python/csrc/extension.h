/* extension.h: the module headrace._arrays, in plain C on the public headers.
 *
 * An array object is a tensor (headrace/array.h) on a stream. One stream is open for each device that was used; they
 * live as long as the process. Functions that return an object return NULL with an exception set if they fail.
 *
 * The extension uses the limited interface of CPython 3.11, whose functions 3.10 has, too: one file serves all
 * versions. Threads: the interpreter's lock is held, except in waits.
 */
#ifndef HEADRACE_PYTHON_EXTENSION_H_
#define HEADRACE_PYTHON_EXTENSION_H_

#define PY_SSIZE_T_CLEAN
#include <patchlevel.h>
#if PY_VERSION_HEX >= 0x030B0000 && !defined(HR_PYTHON_FULL)
#define Py_LIMITED_API 0x030B0000
#endif
#include <Python.h>

#include "headrace/array.h"
#include "headrace/graph.h"

typedef struct array_object {
  PyObject_HEAD hr_stream *stream;
  PyObject *weak; /* references, NULL without any */
  hr_tensor tensor;
} array_object;

/* vectorcallfunc, which the limited interface lacks. */
typedef PyObject *(*vector_call)(PyObject *self, PyObject *const *args, size_t count, PyObject *names);

typedef struct dtype_object {
  PyObject_HEAD hr_dtype dtype;
} dtype_object;

/* ---- module.c ---- */

extern PyTypeObject *array_type, *dtype_type;

/* Raises the exception of a failure, whose status ends here; returns NULL. Statuses of the work itself may hold the
 * exception of a signal's handler. */
PyObject *raise_status(hr_status status);
/* The stream of a device by name; NULL or None: the default one. While the thread traces, that of the trace. */
hr_stream *stream_of_device(PyObject *name);
hr_stream *current_stream(void); /* the default one */
/* The default device's stream, whatever is traced; NULL with an exception. */
hr_stream *default_stream(void);
bool is_device_stream(const hr_stream *stream); /* false for captures */

/* ---- dtypes.c ---- */

int add_dtypes(PyObject *module);
PyObject *dtype_object_of(hr_dtype dtype);    /* a new reference */
hr_dtype dtype_from(PyObject *object);        /* None: NONE. NONE with an exception if it names no dtype */
hr_dtype dtype_of_format(const char *format); /* of the buffer protocol; NONE if there is none */
const char *format_of_dtype(hr_dtype dtype);  /* NULL if there is none */
const char *python_name(hr_dtype dtype);      /* "float32" */
hr_dtype default_dtype(hr_dtype scalar);      /* of a number of this dtype: f32 for F64, c64 for C128 */

/* ---- tracing.c ---- */

typedef struct trace {
  struct trace *outer;
  hr_stream *stream, *capture; /* the device's, and what the thread records on */
  PyObject *arrays;            /* all that belong to the capture */
  hr_buffer **constants;       /* of arrays that don't, but are used; references */
  int constant_count;
} trace;

extern int open_traces; /* of all threads */
/* The thread records on a capture of its own until the end; both belong into one function. */
int begin_trace(trace *t, hr_stream *stream);
void end_trace(trace *t);
bool is_tracing(void); /* this thread */
/* Calls a function with one argument as if the thread did not trace. */
PyObject *call_outside(PyObject *function, PyObject *argument);
/* The capture for new results on the stream's device, or the stream itself. */
hr_stream *traced_stream(hr_stream *stream);
bool is_traced(const array_object *x); /* by any thread */
int note_traced(array_object *x);      /* to be called for a new array */
int note_constant(trace *t, const hr_tensor *x);
/* The stream for an operation on x, of stream a, and y, of b; NULL stands for numbers. NULL with an exception if there
 * is none. */
hr_stream *join_streams(hr_stream *a, const hr_tensor *x, hr_stream *b, const hr_tensor *y);
/* An array of the device's stream becomes one of a trace, whose stream is given; others stay. -1 with an exception. */
int move_to_trace(array_object *x, hr_stream *stream);
/* -1 with an exception if the array has no value that can be read. */
int refuse_traced(const array_object *x);
bool has_hooks(hr_stream *stream);
/* A hook that a thread has opened: part of its owner's memory. */
typedef struct thread_hook {
  unsigned long thread;
  struct thread_hook *next;
} thread_hook;
/* Waits until no thread runs a session without Python's lock, and notes that this one opens a hook of a stream. */
void begin_hook(thread_hook *hook);
/* On any thread; one that has ended is fine. */
void end_hook(thread_hook *hook);
/* A constant that a trace must not write gets a reference more, which the caller releases; else NULL. */
hr_buffer *keep_from_writes(const array_object *x);

/* ---- arrays.c: the type ---- */

PyTypeObject *make_array_type(void);
/* A new array without a tensor. */
array_object *new_array(hr_stream *stream);
/* A list of new arrays, which take over the tensors' references, also after a failure. */
PyObject *list_of_tensors(hr_stream *stream, Py_ssize_t count, hr_tensor *tensors);
static inline int is_array(PyObject *object) {
  return Py_TYPE(object) == array_type;
}
static inline array_object *as_array(PyObject *object) {
  return (array_object *)object;
}
PyObject *scalar_object(const hr_scalar *value);
/* Waits for the elements, row-major, without the interpreter's lock. */
hr_status read_elements(array_object *x, void *elements);
/* The array, which may be NULL with an exception; or NULL with that of a failure, after which the array is dropped. */
static inline array_object *array_or_raise(array_object *x, hr_status status) {
  if (__builtin_expect(status == HR_OK, 1)) {
    return x;
  }
  Py_DECREF((PyObject *)x);
  raise_status(status);
  return NULL;
}
/* Another view of x's elements. */
array_object *share_array(array_object *x);

/* ---- operands.c: what may be given for an array ---- */

typedef struct operand {
  const hr_tensor *tensor;
  hr_stream *stream; /* NULL: a number */
  PyObject *owned;   /* NULL, or an array that was made for it */
  hr_tensor number;
} operand;

/* 1: `out` is set; 0: the object is no operand; -1: an exception is set. Numbers of Python are weak. Memory of other
 * objects is copied: its owner knows nothing of work that is pending. */
int take_operand(PyObject *object, operand *out);
/* The same, but arrays from any sequence, and 0 becomes a TypeError that names the function. */
int want_operand(const char *function, PyObject *object, int takes_numbers, operand *out);
/* 1: the object is a number of Python, which is stored. 0: it is none. -1: it is too large. */
int number_from(PyObject *object, hr_scalar *out_number);
/* An integer; -1 with an exception. */
int64_t integer_from(PyObject *object);
/* An integer or a sequence of them; the count, or -1 with an exception. */
int integers_from(PyObject *object, int64_t *out_integers);

/* ---- mlx.c: the rules of MLX, for a process that imports headrace.mlx ---- */

extern bool follows_mlx; /* set once */
extern PyMethodDef mlx_methods[];
/* An exception that is a ValueError, too, or the type itself without these rules. */
PyObject *mlx_exception(PyObject *type);
/* The dtype of numbers of Python: integers are i32 if all of them fit. */
hr_dtype mlx_default_dtype(hr_dtype scalar, bool is_wide);
/* A number of Python beside a tensor: 1 if it needs a dtype of its own, which is stored; -1 if it doesn't fit. */
int mlx_number_dtype(const hr_scalar *number, const hr_tensor *beside, hr_dtype *out_dtype);
/* Arrays of uint64 and of signed integers, which operators take as f32. */
bool mlx_promotes(PyObject *left, PyObject *right);
/* An array of another library as an operand: as take_operand, which other rules leave at 0. */
int take_foreign(PyObject *object, operand *out);
/* Neither an array nor a number: NotImplemented, or a ValueError. */
PyObject *refuse_operand(hr_functional function, PyObject *object);
/* x += y: x becomes the result of an operator, whose reference ends here. NULL and NotImplemented stay. */
PyObject *assign_result(PyObject *x, PyObject *result);

/* ---- creation.c ---- */

extern PyMethodDef creation_methods[];
/* copy: 1 always, 0 never (ValueError if it is needed), -1 if needed. */
array_object *array_from(PyObject *object, hr_dtype dtype, hr_stream *stream, int copy);
PyObject *convert_array(array_object *x, hr_dtype dtype);
/* The object brings a dtype of its own, by the buffer protocol, DLPack or numpy's method. */
bool has_dtype(PyObject *object);
/* Array(...): as array(...). */
PyObject *construct_array(PyTypeObject *type, PyObject *args, PyObject *names);

/* ---- indexing.c ---- */

enum { KEYS_MAX = 2 * HR_RANK_MAX + 1 };

/* A key of x[...]. */
typedef struct index_key {
  int count, array_count;
  hr_index indices[KEYS_MAX];
  operand arrays[HR_RANK_MAX + 1]; /* of these indices, in their order */
} index_key;

/* A slice of Python; -1 with an exception. */
int take_slice(PyObject *slice, hr_index *out);
PyObject *get_item(PyObject *self, PyObject *key);
int set_item(PyObject *self, PyObject *key, PyObject *value);
PyObject *get_row(PyObject *self, Py_ssize_t i);
extern PyMethodDef indexing_methods[];

/* ---- exchange.c: memory of others, and for others ---- */

/* An array on the memory of an object with the buffer protocol, or with __dlpack__; see array_from for `copy`. */
array_object *array_from_buffer(PyObject *object, hr_stream *stream, int copy);
array_object *array_from_dlpack(PyObject *object, hr_stream *stream, int copy);
int export_buffer(PyObject *self, void *view, int flags);
void release_buffer(PyObject *self, void *view);
/* Releases memory of Python's objects whose arrays are gone; cheap if there is none. */
void release_owners(void);
extern PyMethodDef exchange_methods[];
PyObject *export_dlpack(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names);
PyObject *dlpack_device(PyObject *self, PyObject *unused);

/* ---- trees.c ---- */

/* Arrays that stand for those of a tree, in order. NULL: the tree's own. */
typedef struct tree_arrays {
  array_object **arrays;
  Py_ssize_t at;
} tree_arrays;

/* The object's attribute `state`, if it has one and is no tree itself; else the object. */
PyObject *state_of(PyObject *object);
PyObject *copy_tree(PyObject *tree, bool is_state, tree_arrays *from);
/* Changes the containers of a state to what a copy of another one holds. */
int fill_tree(PyObject *live, PyObject *wanted, tree_arrays *from);
/* Adds all lists and dicts of a state with their contents to a list, and restores them. */
int save_containers(PyObject *tree, PyObject *saved);
void restore_containers(PyObject *saved);

/* ---- signature.c: what distinguishes the calls of a compiled function ---- */

enum { SIGNATURE_WORDS = 120, SIGNATURE_ARRAYS = 40 };

/* The structure of arguments and state, dtypes and dims of arrays, and values of constants, as words; and the arrays.
 * Everything is borrowed. */
typedef struct signature {
  uint64_t *words;
  array_object **arrays;
  size_t count, room;
  int array_count, array_room;
  hr_stream *stream;    /* of all arrays; NULL without one */
  bool is_state;        /* any object is a constant, by its identity */
  PyObject *identities; /* NULL, or a list of objects whose addresses are among the words */
  PyObject *states;     /* NULL, or a list of attributes `state`, which the arrays are in */
  uint64_t own_words[SIGNATURE_WORDS];
  array_object *own_arrays[SIGNATURE_ARRAYS];
} signature;

void init_signature(signature *s);
void drop_signature(signature *s);
int add_word(signature *s, uint64_t word);
int add_arguments(signature *s, PyObject *const *args, Py_ssize_t count, PyObject *names);
int add_state(signature *s, PyObject *tree);

/* ---- compiled.c ---- */

extern PyMethodDef compile_methods[];
int add_compiled(PyObject *module);

/* ---- tapes.c: for headrace/transforms.py ---- */

extern PyMethodDef tape_methods[];

/* ---- vmaps.c: the same ---- */

extern PyMethodDef vmap_methods[];

/* ---- lists.c: for headrace/optimizers ---- */

extern PyMethodDef list_methods[];

/* ---- places.c: for headrace/nn and headrace/optimizers ---- */

extern PyMethodDef place_methods[];

/* ---- files.c ---- */

extern PyMethodDef file_methods[];
/* raise_status for files, with the exceptions of Python's own files. */
PyObject *raise_file_status(hr_status status);

/* ---- pickling.c ---- */

extern PyMethodDef pickle_methods[];
PyObject *reduce_array(PyObject *self, PyObject *unused);

/* ---- graphs.c: graphs and their values ---- */

typedef struct graph_object {
  PyObject_HEAD hr_graph *graph;
  PyObject *weak;
} graph_object;

typedef struct value_object {
  PyObject_HEAD graph_object *owner;
  hr_value value;
} value_object;

extern PyTypeObject *graph_type, *value_type;
int add_graphs(PyObject *module);
static inline bool is_value(PyObject *object) {
  return Py_TYPE(object) == value_type;
}
/* A graph, whose reference it takes over. */
PyObject *new_graph(hr_graph *graph);
/* A value of the graph. 0: NULL with the graph's failure as an exception. */
PyObject *new_value(graph_object *owner, hr_value value);
/* An array's elements as host memory, which is also *owned for free(). -1 with an exception. */
int describe_elements(array_object *x, hr_graph_elements *out, void **owned);
void free_elements(void *owned);
/* Raises the graph's failure, which it forgets; returns NULL. */
PyObject *raise_of_graph(graph_object *owner);
/* An object in place of a value: one of the graph, numbers if takes_numbers, and arrays as constants. 0 with an
 * exception; -1 without one if the object is nothing of these. */
hr_value value_from(graph_object *owner, PyObject *object, bool takes_numbers);

/* ---- graph_calls.c ---- */

/* A function of one or two values; NotImplemented if an object is none. */
PyObject *graph_unary(hr_functional function, PyObject *x);
PyObject *graph_binary(hr_functional function, PyObject *x, PyObject *y);
/* An attribute of integers: of these, values of the graph, and names of symbols. -1 with an exception. */
typedef struct graph_integers {
  int64_t numbers[HR_RANK_MAX];
  hr_value values[HR_RANK_MAX];
  bool has_values;
} graph_integers;
int graph_integers_from(graph_object *owner, PyObject *object, const char *name, graph_integers *to,
                        hr_graph_attribute *out);
/* The first result of a call, or NULL with an exception. */
PyObject *add_call(graph_object *owner, hr_functional function, int input_count, const hr_value *inputs,
                   int attribute_count, const hr_graph_attribute *attributes);

/* ---- graph_control.c ---- */

extern PyMethodDef graph_control_methods[];

/* ---- graph_indexing.c ---- */

/* x[...] by integers, slices, None and Ellipsis. */
PyObject *index_value(PyObject *self, PyObject *key);
/* The same for every size of the dims, also of those that are known. */
PyObject *index_any_size(PyObject *self, PyObject *key);

/* ---- recorders.c ---- */

extern PyMethodDef recorder_methods[];
/* This thread records functions on the stream as a graph. */
bool is_recorded(const hr_stream *stream);
/* Adds the view of x by a key's integers and slices. */
int record_index(array_object *x, PyObject *object, const index_key *key, array_object *view);
/* x[key] = value or its like, as functions. */
int record_update(array_object *x, PyObject *object, const index_key *key, PyObject *value, hr_update update);

/* ---- packages.c ---- */

int add_packages(PyObject *module);

/* ---- models.c ---- */

extern PyMethodDef model_methods[];
/* The graph of a file: its path, or bytes. */
PyObject *graph_of_file(PyObject *source);

/* ---- sessions.c ---- */

int add_sessions(PyObject *module);

/* ---- functions.c ---- */

extern PyMethodDef function_methods[];
/* Those of the type that are functions of it: x.sum(). */
extern PyMethodDef array_function_methods[];
int add_methods(PyTypeObject *type, PyMethodDef *added);
/* A function of one or two operands; NotImplemented if an object is none. */
PyObject *apply_unary(hr_functional function, PyObject *x);
PyObject *apply_binary(hr_functional function, PyObject *x, PyObject *y);

#endif
