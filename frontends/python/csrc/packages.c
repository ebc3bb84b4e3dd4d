/* packages.c: headrace.Package: a graph in a file. See headrace/package.h. */
#include <string.h>

#include "extension.h"

#include "headrace/package.h"

static PyTypeObject *package_type;

typedef struct package_object {
  PyObject_HEAD hr_package *package; /* NULL: closed */
  PyObject *path;
} package_object;

static hr_package *package_of(PyObject *self) {
  hr_package *package = ((package_object *)self)->package;
  if (package == NULL) {
    PyErr_Format(PyExc_ValueError, "package %R is closed", ((package_object *)self)->path);
  }
  return package;
}

static PyObject *path_of(PyObject *object) {
  PyObject *bytes = NULL;
  return PyUnicode_FSConverter(object, &bytes) ? bytes : NULL;
}

static PyObject *open_package(PyObject *module, PyObject *object) {
  (void)module;
  PyObject *path = path_of(object);
  hr_package *package = NULL;
  hr_status status = path != NULL ? hr_package_open(PyBytes_AsString(path), &package) : HR_OK;
  Py_XDECREF(path);
  if (package == NULL) {
    return status != HR_OK ? raise_file_status(status) : NULL;
  }
  package_object *self = PyObject_New(package_object, package_type);
  if (self == NULL) {
    hr_package_close(package);
    return NULL;
  }
  self->package = package, self->path = Py_NewRef(object);
  return (PyObject *)self;
}

static PyObject *get_package_graph(PyObject *self, void *unused) {
  (void)unused;
  hr_package *package = package_of(self);
  hr_graph *graph = NULL;
  hr_status status = package != NULL ? hr_package_graph(package, &graph) : HR_OK;
  if (status != HR_OK) {
    return raise_file_status(status);
  }
  return package != NULL ? new_graph(graph) : NULL;
}

static PyObject *get_notes(PyObject *self, void *unused) {
  (void)unused;
  hr_package *package = package_of(self);
  PyObject *dict = package != NULL ? PyDict_New() : NULL;
  for (int i = 0; dict != NULL && i < hr_package_note_count(package); ++i) {
    hr_package_note note = hr_package_note_at(package, i);
    PyObject *value = PyUnicode_FromString(note.value);
    if (value == NULL || PyDict_SetItemString(dict, note.key, value) < 0) {
      Py_CLEAR(dict);
    }
    Py_XDECREF(value);
  }
  return dict;
}

static PyObject *get_bytes(PyObject *self, void *is_text) {
  hr_package *package = package_of(self);
  return package == NULL
             ? NULL
             : PyLong_FromLongLong(is_text != NULL ? hr_package_text_bytes(package) : hr_package_bytes(package));
}

static PyObject *get_path(PyObject *self, void *unused) {
  (void)unused;
  return Py_NewRef(((package_object *)self)->path);
}

static PyObject *verify(PyObject *self, PyObject *unused) {
  (void)unused;
  hr_package *package = package_of(self);
  hr_status status = package != NULL ? hr_package_verify(package) : HR_OK;
  if (status != HR_OK) {
    return raise_file_status(status);
  }
  return package != NULL ? Py_NewRef(Py_None) : NULL;
}

static PyObject *trust(PyObject *self, PyObject *unused) {
  (void)unused;
  hr_package *package = package_of(self);
  int count = 0;
  hr_status status = package != NULL ? hr_package_trust(package, &count) : HR_OK;
  if (status != HR_OK) {
    return raise_file_status(status);
  }
  return package != NULL ? PyLong_FromLong(count) : NULL;
}

static PyObject *close_package(PyObject *self, PyObject *unused) {
  (void)unused;
  hr_package_close(((package_object *)self)->package);
  ((package_object *)self)->package = NULL;
  Py_RETURN_NONE;
}

static PyObject *enter_package(PyObject *self, PyObject *unused) {
  (void)unused;
  return package_of(self) != NULL ? Py_NewRef(self) : NULL;
}

static PyObject *exit_package(PyObject *self, PyObject *args) {
  return close_package(self, args);
}

static PyObject *repr_of_package(PyObject *self) {
  const hr_package *package = ((package_object *)self)->package;
  PyObject *path = ((package_object *)self)->path;
  return package != NULL
             ? PyUnicode_FromFormat("<headrace.Package %R: %lld bytes>", path, (long long)hr_package_bytes(package))
             : PyUnicode_FromFormat("<headrace.Package %R: closed>", path);
}

static void drop_package(PyObject *self) {
  PyTypeObject *type = Py_TYPE(self);
  hr_package_close(((package_object *)self)->package);
  Py_XDECREF(((package_object *)self)->path);
  PyObject_Free(self);
  Py_DECREF((PyObject *)type);
}

static PyMethodDef package_methods_of[] = {
    {"verify", verify, METH_NOARGS, "verify($self, /)\n--\n\nCompares all constants with their hashes."},
    {"trust", trust, METH_NOARGS,
     "trust($self, /)\n--\n\nAdds the package's kernels, which are native code, to the user's cache; returns their "
     "number."},
    {"close", close_package, METH_NOARGS, "close($self, /)\n--\n\nCloses the package; its graphs stay valid."},
    {"__enter__", enter_package, METH_NOARGS, NULL},
    {"__exit__", exit_package, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL}};

static PyGetSetDef package_attributes[] = {
    {"graph", get_package_graph, NULL, "the graph, whose constants are in the file's mapping", NULL},
    {"notes", get_notes, NULL, "texts by name", NULL},
    {"bytes", get_bytes, NULL, "bytes of the file", NULL},
    {"text_bytes", get_bytes, NULL, "bytes of the graph's text", (void *)"text"},
    {"path", get_path, NULL, "the file", NULL},
    {NULL, NULL, NULL, NULL, NULL}};

static PyType_Slot package_slots[] = {{Py_tp_dealloc, drop_package},
                                      {Py_tp_repr, repr_of_package},
                                      {Py_tp_methods, package_methods_of},
                                      {Py_tp_getset, package_attributes},
                                      {Py_tp_doc, "A graph in a file, with notes."},
                                      {0, NULL}};

static PyType_Spec package_spec = {"headrace.Package", sizeof(package_object), 0,
                                   Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, package_slots};

static PyMethodDef methods[] = {{"open_package", open_package, METH_O,
                                 "open_package(path, /)\n--\n\nOpens a package: .graph, .notes, .verify(), .close()."},
                                {NULL, NULL, 0, NULL}};

int add_packages(PyObject *module) {
  package_type = (PyTypeObject *)PyType_FromSpec(&package_spec);
  return package_type != NULL && PyModule_AddFunctions(module, methods) == 0
             ? PyModule_AddObjectRef(module, "Package", (PyObject *)package_type)
             : -1;
}
