/* pickling.c: arrays in pickles: elements in row-major order, dtype and shape. They are read onto the default device,
 * as the process that reads them may have other devices. */
#include "extension.h"

static PyObject *elements_of(array_object *x) {
  hr_status status = HR_OK;
  int64_t count = hr_tensor_count(&x->tensor);
  PyObject *bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)((size_t)count * hr_dtype_size(x->tensor.dtype)));
  char *elements = bytes != NULL ? PyBytes_AsString(bytes) : NULL;
  hr_tensor own = x->tensor; /* other threads may write to x */
  if (bytes == NULL || count == 0) {
    return bytes;
  }
  hr_buffer_retain(own.buffer);
  Py_BEGIN_ALLOW_THREADS;
  status = hr_array_read(x->stream, &own, elements);
  hr_tensor_release(&own);
  Py_END_ALLOW_THREADS;
  if (status != HR_OK) {
    Py_DECREF(bytes);
    return raise_status(status);
  }
  return bytes;
}

static PyObject *shape_of(const hr_tensor *x) {
  PyObject *shape = PyTuple_New(x->rank);
  for (int d = 0; shape != NULL && d < x->rank; ++d) {
    PyObject *dim = PyLong_FromLongLong(x->dims[d]);
    if (dim == NULL || PyTuple_SetItem(shape, d, dim) < 0) {
      Py_CLEAR(shape);
    }
  }
  return shape;
}

PyObject *reduce_array(PyObject *self, PyObject *unused) {
  array_object *x = as_array(self);
  (void)unused;
  if (refuse_traced(x) < 0) {
    return NULL;
  }
  PyObject *module = PyImport_ImportModule("headrace._arrays");
  PyObject *function = module != NULL ? PyObject_GetAttrString(module, "_unpickle") : NULL;
  Py_XDECREF(module);
  return function != NULL
             ? Py_BuildValue("N(NNN)", function, elements_of(x), dtype_object_of(x->tensor.dtype), shape_of(&x->tensor))
             : NULL;
}

static int check_size(hr_dtype dtype, int rank, const int64_t *dims, Py_ssize_t size) {
  int64_t bytes = (int64_t)hr_dtype_size(dtype);
  for (int d = 0; d < rank; ++d) {
    if (dims[d] < 0 || __builtin_mul_overflow(bytes, dims[d], &bytes)) {
      bytes = -1;
      break;
    }
  }
  if (bytes != size) {
    PyErr_Format(PyExc_ValueError, "a pickled array has %zd bytes, which its shape and dtype do not stand for", size);
    return -1;
  }
  return 0;
}

static PyObject *unpickle(PyObject *module, PyObject *args) {
  const char *elements;
  Py_ssize_t size;
  PyObject *named, *shape;
  int64_t dims[HR_RANK_MAX];
  (void)module;
  if (!PyArg_ParseTuple(args, "y#OO!:_unpickle", &elements, &size, &named, &PyTuple_Type, &shape)) {
    return NULL;
  }
  hr_dtype dtype = dtype_from(named);
  int rank = dtype != HR_DTYPE_NONE ? integers_from(shape, dims) : -1;
  if (rank < 0 || check_size(dtype, rank, dims, size) < 0) {
    if (!PyErr_Occurred()) {
      PyErr_SetString(PyExc_TypeError, "a pickled array has no dtype");
    }
    return NULL;
  }
  hr_stream *stream = current_stream();
  array_object *x = stream != NULL ? new_array(stream) : NULL;
  if (x == NULL) {
    return NULL;
  }
  return (PyObject *)array_or_raise(x, hr_array_from_host(stream, dtype, rank, dims, elements, &x->tensor));
}

PyMethodDef pickle_methods[] = {{"_unpickle", unpickle, METH_VARARGS, NULL}, {NULL, NULL, 0, NULL}};
