/* tracing.c: functions whose operations are recorded on a capture (headrace/part.h) in place of the device's stream.
 *
 * While a thread traces, the arrays that it creates belong to the capture, and so do results of operations on one of
 * them. They have shapes and dtypes, but no values. Other arrays may be operands, too: they are constants of the
 * trace, which keeps their memory as it is.
 *
 * When a trace ends, arrays of it may be left: in a list, in a traceback. They lose their buffers, and every use of
 * one raises ValueError.
 */
#include "extension.h"

#include "headrace/hook.h"
#include "headrace/part.h"

int open_traces;
static _Thread_local trace *innermost;

int begin_trace(trace *t, hr_stream *stream) {
  *t = (trace){.stream = stream, .outer = innermost, .arrays = PyList_New(0)};
  if (t->arrays == NULL) {
    return -1;
  }
  hr_status status = hr_capture_create(hr_stream_device(stream), &t->capture);
  if (status != HR_OK) {
    Py_CLEAR(t->arrays);
    raise_status(status);
    return -1;
  }
  innermost = t;
  ++open_traces;
  return 0;
}

void end_trace(trace *t) {
  innermost = t->outer;
  --open_traces;
  Py_ssize_t count = PyList_Size(t->arrays);
  for (Py_ssize_t i = 0; i < count; ++i) {
    array_object *x = as_array(PyList_GetItem(t->arrays, i));
    hr_buffer_release(x->tensor.buffer);
    x->tensor.buffer = NULL, x->stream = t->stream;
  }
  Py_CLEAR(t->arrays);
  for (int i = 0; i < t->constant_count; ++i) {
    hr_buffer_release(t->constants[i]);
  }
  PyMem_Free(t->constants);
  hr_stream_release(t->capture);
}

bool is_tracing(void) {
  return open_traces > 0 && innermost != NULL;
}

hr_stream *traced_stream(hr_stream *stream) {
  for (const trace *t = open_traces > 0 ? innermost : NULL; t != NULL; t = t->outer) {
    if (stream != NULL && hr_stream_device(t->capture) == hr_stream_device(stream)) {
      return t->capture;
    }
  }
  return stream;
}

PyObject *call_outside(PyObject *function, PyObject *argument) {
  trace *before = innermost;
  innermost = NULL;
  PyObject *result = PyObject_CallFunctionObjArgs(function, argument, NULL);
  innermost = before;
  return result;
}

bool has_hooks(hr_stream *stream) {
  return hr_hook_is_open(stream);
}

static trace *trace_of(const hr_stream *capture) {
  trace *t = open_traces > 0 ? innermost : NULL;
  while (t != NULL && t->capture != capture) {
    t = t->outer;
  }
  return t;
}

int note_traced(array_object *x) {
  trace *t = trace_of(x->stream);
  return t != NULL ? PyList_Append(t->arrays, (PyObject *)x) : 0;
}

int note_constant(trace *t, const hr_tensor *x) {
  if (x->buffer == NULL) {
    return 0;
  }
  for (int i = 0; i < t->constant_count; ++i) {
    if (t->constants[i] == x->buffer) {
      return 0;
    }
  }
  hr_buffer **constants = PyMem_Realloc(t->constants, ((size_t)t->constant_count + 1) * sizeof *constants);
  if (constants == NULL) {
    PyErr_NoMemory();
    return -1;
  }
  t->constants = constants;
  t->constants[t->constant_count++] = x->buffer;
  hr_buffer_retain(x->buffer);
  return 0;
}

int move_to_trace(array_object *x, hr_stream *stream) {
  if (x->stream == stream || join_streams(stream, &x->tensor, x->stream, &x->tensor) != stream) {
    return x->stream == stream || !PyErr_Occurred() ? 0 : -1;
  }
  x->stream = stream;
  return note_traced(x);
}

static hr_stream *refuse_streams(const hr_stream *a, const hr_stream *b) {
  PyErr_SetString(PyExc_ValueError, hr_stream_device(a) != hr_stream_device(b)
                                        ? "arrays of two devices in one operation"
                                        : "an array of a function that another thread traces");
  return NULL;
}

hr_stream *join_streams(hr_stream *a, const hr_tensor *x, hr_stream *b, const hr_tensor *y) {
  if (a == NULL || b == NULL || a == b) {
    return a != NULL ? a : b;
  }
  trace *t = open_traces > 0 ? innermost : NULL;
  while (t != NULL && t->capture != a && t->capture != b) {
    t = t->outer;
  }
  if (t == NULL || hr_stream_device(a) != hr_stream_device(b)) {
    return refuse_streams(a, b);
  }
  return note_constant(t, t->capture == a ? y : x) < 0 ? NULL : t->capture;
}

bool is_traced(const array_object *x) {
  return open_traces > 0 && !is_device_stream(x->stream);
}

int refuse_traced(const array_object *x) {
  if (is_traced(x) || x->tensor.buffer == NULL) {
    PyErr_SetString(PyExc_ValueError,
                    is_traced(x)
                        ? "an array has no value while compile() traces the function that makes it: return it, "
                          "and read it afterwards"
                        : "the array was made while compile() traced a function, and has no value outside of "
                          "it: return it, or list its place in `outputs`");
    return -1;
  }
  return 0;
}

hr_buffer *keep_from_writes(const array_object *x) {
  bool is_constant = is_traced(x) && hr_buffer_has_memory(x->tensor.buffer);
  hr_buffer_retain(is_constant ? x->tensor.buffer : NULL);
  return is_constant ? x->tensor.buffer : NULL;
}
