/* models.c: open_model(): graphs of packages and of ONNX models, by the file's contents. */
#include <string.h>

#include "extension.h"

#include "headrace/importer.h"

/* Replacements of symbols and inputs of an ONNX model; names are borrowed from dicts. */
typedef struct replacements {
  hr_onnx_options options;
  hr_onnx_dim *dims;
  hr_onnx_constant *constants;
  void **elements; /* owned */
} replacements;

/* ---- options ---- */

static const char *text_of(PyObject *name) {
  if (!PyUnicode_Check(name)) {
    PyErr_Format(PyExc_TypeError, "open_model(): %R is no name", name);
    return NULL;
  }
  return PyUnicode_AsUTF8AndSize(name, NULL);
}

static int take_sizes(PyObject *dict, replacements *r) {
  PyObject *name, *size;
  Py_ssize_t at = 0;
  r->dims = PyMem_Calloc((size_t)PyDict_Size(dict) + 1, sizeof *r->dims);
  while (r->dims != NULL && PyDict_Next(dict, &at, &name, &size)) {
    hr_onnx_dim *to = &r->dims[r->options.dim_count++];
    to->name = text_of(name);
    to->size = to->name != NULL ? integer_from(size) : 0;
    if (PyErr_Occurred()) {
      return -1;
    }
  }
  r->options.dims = r->dims;
  return r->dims != NULL ? 0 : -1;
}

static int take_elements(PyObject *object, hr_graph_elements *out, void **owned) {
  array_object *x = array_from(object, HR_DTYPE_NONE, default_stream(), -1);
  int result = x != NULL ? describe_elements(x, out, owned) : -1;
  Py_XDECREF((PyObject *)x);
  return result;
}

static int take_constants(PyObject *dict, replacements *r) {
  PyObject *name, *object;
  Py_ssize_t at = 0;
  size_t count = (size_t)PyDict_Size(dict) + 1;
  r->constants = PyMem_Calloc(count, sizeof *r->constants);
  r->elements = PyMem_Calloc(count, sizeof *r->elements);
  while (r->constants != NULL && r->elements != NULL && PyDict_Next(dict, &at, &name, &object)) {
    int i = r->options.constant_count++;
    r->constants[i].name = text_of(name);
    if (r->constants[i].name == NULL || take_elements(object, &r->constants[i].elements, &r->elements[i]) < 0) {
      return -1;
    }
  }
  r->options.constants = r->constants;
  return r->constants != NULL && r->elements != NULL ? 0 : -1;
}

static int take_replacements(PyObject *dims, PyObject *constants, replacements *r) {
  if ((dims != Py_None && !PyDict_Check(dims)) || (constants != Py_None && !PyDict_Check(constants))) {
    PyErr_SetString(PyExc_TypeError, "open_model(): dims and constants are dicts by name");
    return -1;
  }
  int failed =
      (dims != Py_None && take_sizes(dims, r) < 0) || (constants != Py_None && take_constants(constants, r) < 0);
  if (failed && !PyErr_Occurred()) {
    PyErr_NoMemory();
  }
  return failed ? -1 : 0;
}

static void drop_replacements(replacements *r) {
  for (int i = 0; r->elements != NULL && i < r->options.constant_count; ++i) {
    free_elements(r->elements[i]);
  }
  PyMem_Free(r->dims);
  PyMem_Free(r->constants);
  PyMem_Free(r->elements);
}

/* ---- files ---- */

static PyObject *open_with(PyObject *source, const replacements *r) {
  hr_graph *graph = NULL;
  hr_status status;
  PyObject *path = NULL;
  Py_buffer bytes;
  if (PyObject_CheckBuffer(source)) {
    if (PyObject_GetBuffer(source, &bytes, PyBUF_SIMPLE) < 0) {
      return NULL;
    }
    Py_BEGIN_ALLOW_THREADS;
    status = hr_model_open_bytes("bytes", bytes.buf, (size_t)bytes.len, &r->options, &graph);
    Py_END_ALLOW_THREADS;
    PyBuffer_Release(&bytes);
  } else {
    if (!PyUnicode_FSConverter(source, &path)) {
      return NULL;
    }
    const char *name = PyBytes_AsString(path);
    Py_BEGIN_ALLOW_THREADS;
    status = hr_model_open(name, &r->options, &graph);
    Py_END_ALLOW_THREADS;
    Py_DECREF(path);
  }
  return status == HR_OK ? new_graph(graph) : raise_file_status(status);
}

PyObject *graph_of_file(PyObject *source) {
  const replacements none = {0};
  return open_with(source, &none);
}

/* open_model(source, dims=None, constants=None, variables=False) */
static PyObject *open_model(PyObject *module, PyObject *args, PyObject *names) {
  (void)module;
  static char *keywords[] = {"", "dims", "constants", "variables", NULL};
  PyObject *source, *dims = Py_None, *constants = Py_None, *result = NULL;
  int has_variables = 0;
  if (!PyArg_ParseTupleAndKeywords(args, names, "O|OOp:open_model", keywords, &source, &dims, &constants,
                                   &has_variables)) {
    return NULL;
  }
  replacements r = {.options = {.has_variables = has_variables != 0}};
  if (take_replacements(dims, constants, &r) == 0) {
    result = open_with(source, &r);
  }
  drop_replacements(&r);
  return result;
}

PyMethodDef model_methods[] = {{"open_model", (PyCFunction)(void (*)(void))open_model, METH_VARARGS | METH_KEYWORDS,
                                "open_model(source, /, dims=None, constants=None, variables=False)\n--\n\nThe graph of "
                                "a package or an ONNX model: a path, or bytes. dims: sizes for symbols of a model, "
                                "constants: arrays for its inputs, by name; variables: its floating weights become "
                                "variables, which a graph can train."},
                               {NULL, NULL, 0, NULL}};
