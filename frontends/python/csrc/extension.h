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

typedef struct array_object {
  PyObject_HEAD hr_stream *stream;
  hr_tensor tensor;
} array_object;

typedef struct dtype_object {
  PyObject_HEAD hr_dtype dtype;
} dtype_object;

/* ---- module.c ---- */

extern PyTypeObject *array_type, *dtype_type;

/* Raises the exception of a failure, whose status ends here; returns NULL. Statuses of the work itself may hold the
 * exception of a signal's handler. */
PyObject *raise_status(hr_status status);
/* The default device's stream. */
hr_stream *current_stream(void);
/* The stream of a device by name; NULL or None: the default one. */
hr_stream *stream_of_device(PyObject *name);

/* ---- dtypes.c ---- */

int add_dtypes(PyObject *module);
PyObject *dtype_object_of(hr_dtype dtype);    /* a new reference */
hr_dtype dtype_from(PyObject *object);        /* None: NONE. NONE with an exception if it names no dtype */
hr_dtype dtype_of_format(const char *format); /* of the buffer protocol; NONE if there is none */
const char *format_of_dtype(hr_dtype dtype);  /* NULL if there is none */
const char *python_name(hr_dtype dtype);      /* "float32" */
hr_dtype default_dtype(hr_dtype scalar);      /* of a number of this dtype: f32 for F64, c64 for C128 */

/* ---- arrays.c: the type ---- */

PyTypeObject *make_array_type(void);
/* A new array without a tensor. */
array_object *new_array(hr_stream *stream);
static inline int is_array(PyObject *object) {
  return Py_TYPE(object) == array_type;
}
static inline array_object *as_array(PyObject *object) {
  return (array_object *)object;
}
PyObject *scalar_object(const hr_scalar *value);
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

/* ---- creation.c ---- */

extern PyMethodDef creation_methods[];
/* copy: 1 always, 0 never (ValueError if it is needed), -1 if needed. */
array_object *array_from(PyObject *object, hr_dtype dtype, hr_stream *stream, int copy);
PyObject *convert_array(array_object *x, hr_dtype dtype);

/* ---- indexing.c ---- */

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

/* ---- tapes.c: for headrace/transforms.py ---- */

extern PyMethodDef tape_methods[];

/* ---- files.c ---- */

extern PyMethodDef file_methods[];

/* ---- functions.c ---- */

extern PyMethodDef function_methods[];
/* Those of the type that are functions of it: x.sum(). */
extern PyMethodDef array_function_methods[];
/* A function of one or two operands; NotImplemented if an object is none. */
PyObject *apply_unary(hr_functional function, PyObject *x);
PyObject *apply_binary(hr_functional function, PyObject *x, PyObject *y);

#endif
