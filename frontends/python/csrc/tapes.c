/* tapes.c: tapes (headrace/transform.h) for headrace/transforms.py.
 *
 * A capsule owns a tape. _tape_close ends it even if others still hold the capsule: a traceback may, for long.
 *
 * Threads: records happen with the interpreter's lock held, and a tape keeps those that depend on its own copies of the
 * arguments. So tapes of several threads may be open on one stream.
 */
#include "extension.h"

#include "headrace/hook.h"
#include "headrace/transform.h"

#define CAPSULE "headrace.tape"

typedef struct open_tape {
  hr_tape *tape; /* NULL: closed */
  hr_stream *stream;
} open_tape;

/* ---- lists of arrays ---- */

typedef struct tensors {
  Py_ssize_t count;
  const hr_tensor **data; /* the list's arrays own them */
} tensors;

static void drop_tensors(tensors *x) {
  PyMem_Free((void *)x->data);
  x->data = NULL;
}

static int take_tensor(PyObject *object, const hr_stream *stream, const hr_tensor **out) {
  if (!is_array(object)) {
    PyErr_Format(PyExc_TypeError, "tape: expected an array, not %R", object);
    return -1;
  }
  if (as_array(object)->stream != stream) {
    PyErr_Format(PyExc_ValueError, "an array is on %s, expected %s as the other arrays that are differentiated",
                 hr_device_name(hr_stream_device(as_array(object)->stream)), hr_device_name(hr_stream_device(stream)));
    return -1;
  }
  *out = &as_array(object)->tensor;
  return 0;
}

/* The arrays of a list; NULL with an exception. */
static int take_tensors(PyObject *list, const hr_stream *stream, tensors *out) {
  out->count = PyList_Size(list);
  out->data = out->count >= 0 ? PyMem_Malloc(((size_t)out->count + 1) * sizeof *out->data) : NULL;
  if (out->data == NULL) {
    if (out->count >= 0) {
      PyErr_NoMemory();
    }
    return -1;
  }
  for (Py_ssize_t i = 0; i < out->count; ++i) {
    if (take_tensor(PyList_GetItem(list, i), stream, &out->data[i]) < 0) {
      drop_tensors(out);
      return -1;
    }
  }
  return 0;
}

/* ---- tapes ---- */

static void close_tape(open_tape *open) {
  hr_tape_destroy(open->tape);
  open->tape = NULL;
}

static void drop_tape(PyObject *capsule) {
  open_tape *open = PyCapsule_GetPointer(capsule, CAPSULE);
  if (open != NULL) {
    close_tape(open);
    PyMem_Free(open);
  }
}

static open_tape *tape_of(PyObject *capsule) {
  open_tape *open = PyCapsule_GetPointer(capsule, CAPSULE);
  if (open != NULL && open->tape == NULL) {
    PyErr_SetString(PyExc_RuntimeError, "the tape is closed");
    return NULL;
  }
  return open;
}

static PyObject *new_tape(hr_stream *stream) {
  open_tape *open = PyMem_Calloc(1, sizeof *open);
  if (open == NULL) {
    return PyErr_NoMemory();
  }
  open->stream = stream;
  hr_status status = hr_tape_begin(stream, &open->tape);
  PyObject *capsule = status == HR_OK ? PyCapsule_New(open, CAPSULE, drop_tape) : raise_status(status);
  if (capsule == NULL) {
    close_tape(open);
    PyMem_Free(open);
  }
  return capsule;
}

/* _tape_begin(arrays): a tape that watches the arrays of a list, which is not empty. */
static PyObject *begin(PyObject *module, PyObject *list) {
  (void)module;
  PyObject *first = PyList_GetItem(list, 0);
  if (first == NULL || !is_array(first)) {
    return first == NULL ? NULL : PyErr_Format(PyExc_TypeError, "tape: expected an array, not %R", first);
  }
  hr_stream *stream = as_array(first)->stream;
  tensors watched;
  if (take_tensors(list, stream, &watched) < 0) {
    return NULL;
  }
  PyObject *capsule = new_tape(stream);
  hr_status status = capsule != NULL ? hr_tape_watch(tape_of(capsule)->tape, (int)watched.count, watched.data) : HR_OK;
  drop_tensors(&watched);
  if (status != HR_OK) {
    Py_CLEAR(capsule);
    raise_status(status);
  }
  return capsule;
}

static PyObject *close_(PyObject *module, PyObject *capsule) {
  (void)module;
  open_tape *open = PyCapsule_GetPointer(capsule, CAPSULE);
  if (open == NULL) {
    return NULL;
  }
  close_tape(open);
  Py_RETURN_NONE;
}

static PyObject *end(PyObject *module, PyObject *capsule) {
  (void)module;
  open_tape *open = tape_of(capsule);
  if (open == NULL) {
    return NULL;
  }
  hr_tape_end(open->tape);
  Py_RETURN_NONE;
}

/* ---- gradients ---- */

/* A list of new arrays, which take over the tensors' references. */
static PyObject *list_of_tensors(hr_stream *stream, Py_ssize_t count, hr_tensor *found) {
  PyObject *list = PyList_New(count);
  for (Py_ssize_t i = 0; i < count; ++i) {
    array_object *x = list != NULL ? new_array(stream) : NULL;
    if (x == NULL) {
      hr_tensor_release(&found[i]);
      Py_CLEAR(list);
      continue;
    }
    x->tensor = found[i];
    if (PyList_SetItem(list, i, (PyObject *)x) < 0) {
      Py_CLEAR(list);
    }
  }
  return list;
}

static PyObject *find_gradients(const open_tape *open, const tensors *outputs, const tensors *seeds,
                                const tensors *inputs) {
  hr_tensor *found = PyMem_Calloc((size_t)inputs->count + 1, sizeof *found);
  if (found == NULL) {
    return PyErr_NoMemory();
  }
  hr_status status = hr_tape_gradient(open->tape, (int)outputs->count, outputs->data, seeds->data, (int)inputs->count,
                                      inputs->data, found);
  PyObject *list = status == HR_OK ? list_of_tensors(open->stream, inputs->count, found) : raise_status(status);
  PyMem_Free(found);
  return list;
}

/* _tape_gradient(tape, outputs, seeds, inputs): lists; seeds may be None, for ones. */
static PyObject *gradient(PyObject *module, PyObject *args) {
  (void)module;
  PyObject *capsule, *lists[3], *result = NULL;
  if (!PyArg_ParseTuple(args, "OOOO:_tape_gradient", &capsule, &lists[0], &lists[1], &lists[2])) {
    return NULL;
  }
  open_tape *open = tape_of(capsule);
  tensors taken[3] = {{0}};
  int is_taken = open != NULL;
  for (int i = 0; i < 3 && is_taken; ++i) {
    is_taken = lists[i] == Py_None || take_tensors(lists[i], open->stream, &taken[i]) == 0;
  }
  if (is_taken) {
    result = find_gradients(open, &taken[0], &taken[1], &taken[2]);
  }
  for (int i = 0; i < 3; ++i) {
    drop_tensors(&taken[i]);
  }
  return result;
}

/* ---- copies ---- */

static PyObject *copy_of(array_object *x) {
  array_object *copy = new_array(x->stream);
  if (copy == NULL) {
    return NULL;
  }
  const hr_tensor *value = &x->tensor;
  const hr_attribute shape = {.kind = HR_ATTRIBUTE_INTS, .count = x->tensor.rank, .value = {.ints = x->tensor.dims}};
  hr_status status = hr_functional_apply(x->stream, HR_FUNCTIONAL_FULL, 1, &value, 1, &shape, 1, &copy->tensor);
  return (PyObject *)array_or_raise(copy, status);
}

/* _tape_copy(x): its elements in memory of their own. Tapes see it. */
static PyObject *copy(PyObject *module, PyObject *x) {
  (void)module;
  return is_array(x) ? copy_of(as_array(x)) : PyErr_Format(PyExc_TypeError, "expected an array, not %R", x);
}

/* stop_gradient(x): a copy that no tape sees. */
static PyObject *stop_gradient(PyObject *module, PyObject *x) {
  (void)module;
  if (!is_array(x)) {
    return PyErr_Format(PyExc_TypeError, "stop_gradient() expects an array, not %R", x);
  }
  hr_hook *top = hr_hook_set_top(as_array(x)->stream, NULL);
  PyObject *result = top != NULL ? copy_of(as_array(x)) : (PyObject *)share_array(as_array(x));
  (void)hr_hook_set_top(as_array(x)->stream, top);
  return result;
}

PyMethodDef tape_methods[] = {
    {"_tape_begin", begin, METH_O, NULL},
    {"_tape_end", end, METH_O, NULL},
    {"_tape_close", close_, METH_O, NULL},
    {"_tape_gradient", gradient, METH_VARARGS, NULL},
    {"_tape_copy", copy, METH_O, NULL},
    {"stop_gradient", stop_gradient, METH_O,
     "stop_gradient(x, /)\n--\n\nx's elements as a constant: gradients do not go through it."},
    {NULL, NULL, 0, NULL}};
