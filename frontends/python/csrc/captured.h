/* captured.h: the operations of a function of arrays for one signature, which can run again with other arrays. */
#ifndef HEADRACE_PYTHON_CAPTURED_H_
#define HEADRACE_PYTHON_CAPTURED_H_

#include "extension.h"

#include "headrace/part.h"

/* A function, and the state that it reads and changes: trees, or None. */
typedef struct stateful_function {
  PyObject *function, *inputs, *outputs;
} stateful_function;

typedef enum source_kind { FROM_INPUT = 0, FROM_CONSTANT, FROM_RESULT } source_kind;

/* An array that a run gives: a view of a buffer of that kind. */
typedef struct output {
  source_kind kind;
  int index;
  hr_tensor tensor; /* without its buffer */
} output;

typedef struct captured {
  Py_ssize_t users; /* the list of captures, and calls */
  uint64_t *words;  /* of its signature */
  size_t word_count;
  PyObject *identities; /* NULL, or what the words have addresses of */
  hr_stream *stream;
  hr_part *part;
  int input_count, constant_count, result_count, output_count;
  hr_buffer **constants; /* references */
  size_t *result_bytes;
  output *outputs;
  PyObject *result; /* the tree that the function returned, with arrays as places */
  PyObject *state;  /* of what `outputs` held afterwards; NULL without it */
} captured;

/* Calls the function with arrays of a trace in place of the signature's; NULL with an exception. The state stays. */
captured *capture_function(const stateful_function *f, const signature *s, PyObject *args, PyObject *names);
/* Drops a use; NULL is fine. */
void drop_captured(captured *c);
/* The function's result for these arrays, and the changes of its state. */
PyObject *run_captured(const stateful_function *f, captured *c, array_object *const *arrays);

#endif
