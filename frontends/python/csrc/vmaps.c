/* vmaps.c: batches of examples (headrace/transform.h) for headrace/transforms.py.
 *
 * A capsule owns a vmap. _vmap_end ends it even if others still hold the capsule: a traceback may, for long.
 */
#include "extension.h"

#include "headrace/transform.h"

#define CAPSULE "headrace.vmap"

typedef struct open_vmap {
  hr_vmap *vmap; /* NULL: it has ended */
  hr_stream *stream;
  thread_hook hook;
} open_vmap;

static void drop_vmap(PyObject *capsule) {
  open_vmap *open = PyCapsule_GetPointer(capsule, CAPSULE);
  if (open != NULL) {
    hr_vmap_end(open->vmap);
    end_hook(&open->hook);
    PyMem_Free(open);
  }
}

/* The vmap, and that the object is an array on its device. */
static open_vmap *vmap_for(PyObject *capsule, PyObject *x) {
  open_vmap *open = PyCapsule_GetPointer(capsule, CAPSULE);
  if (open == NULL) {
    return NULL;
  }
  if (!is_array(x)) {
    return (open_vmap *)(void *)PyErr_Format(PyExc_TypeError, "vmap: expected an array, not %R", x);
  }
  if (open->vmap == NULL) {
    PyErr_SetString(PyExc_RuntimeError, "the vmap has ended");
    return NULL;
  }
  const hr_tensor *tensor = &as_array(x)->tensor;
  if (as_array(x)->stream != open->stream &&
      join_streams(open->stream, tensor, as_array(x)->stream, tensor) != open->stream) {
    PyErr_Clear();
    return (open_vmap *)(void *)PyErr_Format(PyExc_ValueError, "vmap: an array is on %s, expected %s as the first one",
                                             hr_device_name(hr_stream_device(as_array(x)->stream)),
                                             hr_device_name(hr_stream_device(open->stream)));
  }
  return open;
}

/* _vmap_begin(x, size): on the device of an array. */
static PyObject *begin(PyObject *module, PyObject *args) {
  (void)module;
  PyObject *x;
  long long size;
  if (!PyArg_ParseTuple(args, "OL:_vmap_begin", &x, &size)) {
    return NULL;
  }
  if (!is_array(x)) {
    return PyErr_Format(PyExc_TypeError, "vmap: expected an array, not %R", x);
  }
  open_vmap *open = PyMem_Calloc(1, sizeof *open);
  if (open == NULL) {
    return PyErr_NoMemory();
  }
  open->stream = traced_stream(as_array(x)->stream);
  begin_hook(&open->hook);
  hr_status status = hr_vmap_begin(open->stream, size, &open->vmap);
  PyObject *capsule = status == HR_OK ? PyCapsule_New(open, CAPSULE, drop_vmap) : raise_status(status);
  if (capsule == NULL) {
    hr_vmap_end(open->vmap);
    end_hook(&open->hook);
    PyMem_Free(open);
  }
  return capsule;
}

static PyObject *end(PyObject *module, PyObject *capsule) {
  (void)module;
  open_vmap *open = PyCapsule_GetPointer(capsule, CAPSULE);
  if (open == NULL) {
    return NULL;
  }
  hr_vmap_end(open->vmap);
  open->vmap = NULL;
  end_hook(&open->hook);
  Py_RETURN_NONE;
}

typedef hr_status (*move_fn)(hr_vmap *vmap, const hr_tensor *x, int axis, hr_tensor *out);

static PyObject *move(PyObject *args, move_fn function) {
  PyObject *capsule, *x;
  int axis;
  if (!PyArg_ParseTuple(args, "OOi:_vmap", &capsule, &x, &axis)) {
    return NULL;
  }
  open_vmap *open = vmap_for(capsule, x);
  array_object *moved = open != NULL ? new_array(open->stream) : NULL;
  if (moved == NULL) {
    return NULL;
  }
  return (PyObject *)array_or_raise(moved, function(open->vmap, &as_array(x)->tensor, axis, &moved->tensor));
}

/* _vmap_split(vmap, x, axis): an example of x. */
static PyObject *split(PyObject *module, PyObject *args) {
  (void)module;
  return move(args, hr_vmap_split);
}

/* _vmap_join(vmap, example, axis): all examples. */
static PyObject *join(PyObject *module, PyObject *args) {
  (void)module;
  return move(args, hr_vmap_join);
}

/* _vmap_is_example(vmap, x) */
static PyObject *is_example(PyObject *module, PyObject *args) {
  (void)module;
  PyObject *capsule, *x;
  if (!PyArg_ParseTuple(args, "OO:_vmap_is_example", &capsule, &x)) {
    return NULL;
  }
  open_vmap *open = vmap_for(capsule, x);
  return open != NULL ? PyBool_FromLong(hr_vmap_is_example(open->vmap, &as_array(x)->tensor)) : NULL;
}

PyMethodDef vmap_methods[] = {
    {"_vmap_begin", begin, METH_VARARGS, NULL},           {"_vmap_end", end, METH_O, NULL},
    {"_vmap_split", split, METH_VARARGS, NULL},           {"_vmap_join", join, METH_VARARGS, NULL},
    {"_vmap_is_example", is_example, METH_VARARGS, NULL}, {NULL, NULL, 0, NULL}};
