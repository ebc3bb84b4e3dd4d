/* recorders.c: functions of arrays as graphs, for headrace/exporting.py. See hr_graph_recorder of headrace/graph.h.
 *
 * A recorder sees functions of the table. x[...] and x[...] = v are none: while a thread records, an index is added to
 * the graph as an index of a value, and a write becomes functions of headrace/_recorded.py.
 */
#include "extension.h"

typedef struct recording {
  struct recording *outer;
  hr_stream *stream;
  hr_graph_recorder *recorder;
  graph_object *owner;
  bool is_fixed; /* sizes are numbers of the graph, which must not become symbols */
} recording;

static int open_recordings; /* of all threads */
static _Thread_local recording *innermost;

bool is_recorded(const hr_stream *stream) {
  return open_recordings > 0 && innermost != NULL && innermost->stream == stream;
}

/* ---- indices ---- */

/* The key with whole dims in the place of arrays. */
static PyObject *basic_key(PyObject *key, const index_key *parsed) {
  Py_ssize_t count = PyTuple_Check(key) ? PyTuple_Size(key) : 1;
  PyObject *list = PyList_New(0), *whole = PySlice_New(NULL, NULL, NULL);
  int failed = list == NULL || whole == NULL;
  for (Py_ssize_t i = 0; i < count && !failed; ++i) {
    PyObject *entry = PyTuple_Check(key) ? PyTuple_GetItem(key, i) : key;
    const hr_index *index = &parsed->indices[i];
    bool is_array_index = index->kind == HR_INDEX_ARRAY;
    int dims = is_array_index && index->array->dtype == HR_DTYPE_BOOL ? index->array->rank : 1;
    for (int d = 0; d < dims && !failed; ++d) {
      failed = PyList_Append(list, is_array_index ? whole : entry) < 0;
    }
  }
  Py_XDECREF(whole);
  PyObject *tuple = failed ? NULL : PyList_AsTuple(list);
  Py_XDECREF(list);
  return tuple;
}

/* A view of x as the index of x's value. */
static int record_view(array_object *x, PyObject *key, array_object *view) {
  recording *r = innermost;
  hr_value value = 0;
  hr_status status = hr_graph_recorder_find(r->recorder, &x->tensor, &value);
  if (status != HR_OK) {
    raise_status(status);
    return -1;
  }
  PyObject *object = new_value(r->owner, value);
  PyObject *item = object != NULL ? index_any_size(object, key) : NULL;
  if (item != NULL) {
    status = hr_graph_recorder_bind(r->recorder, &view->tensor, ((value_object *)item)->value);
  }
  Py_XDECREF(object);
  Py_XDECREF(item);
  if (status != HR_OK) {
    raise_status(status);
  }
  return PyErr_Occurred() ? -1 : 0;
}

int record_index(array_object *x, PyObject *object, const index_key *key, array_object *view) {
  PyObject *basic = basic_key(object, key);
  int result = -1;
  if (basic != NULL) {
    result = record_view(x, basic, view);
  }
  Py_XDECREF(basic);
  return result;
}

/* The arrays of a key, in order. */
static PyObject *arrays_of(PyObject *key, const index_key *parsed) {
  PyObject *list = PyList_New(0);
  for (int i = 0, a = 0; list != NULL && i < parsed->count; ++i) {
    if (parsed->indices[i].kind == HR_INDEX_ARRAY) {
      PyObject *entry = PyTuple_Check(key) ? PyTuple_GetItem(key, i) : key;
      PyObject *owned = parsed->arrays[a++].owned;
      if (PyList_Append(list, owned != NULL ? owned : entry) < 0) {
        Py_CLEAR(list);
      }
    } else if (PyList_Append(list, Py_None) < 0) {
      Py_CLEAR(list);
    }
  }
  return list;
}

int record_update(array_object *x, PyObject *object, const index_key *key, PyObject *value, hr_update update) {
  PyObject *basic = basic_key(object, key), *arrays = arrays_of(object, key), *made = NULL;
  PyObject *module = basic != NULL && arrays != NULL ? PyImport_ImportModule("headrace._recorded") : NULL;
  array_object *before = module != NULL ? share_array(x) : NULL;
  if (before != NULL) {
    made = PyObject_CallMethod(module, "update", "OOOOi", (PyObject *)before, basic, arrays, value, (int)update);
  }
  if (made != NULL && is_array(made)) {
    hr_buffer_retain(as_array(made)->tensor.buffer);
    hr_tensor_release(&x->tensor);
    x->tensor = as_array(made)->tensor;
  }
  Py_XDECREF((PyObject *)before);
  Py_XDECREF(basic);
  Py_XDECREF(arrays);
  Py_XDECREF(module);
  Py_XDECREF(made);
  return made != NULL ? 0 : -1;
}

/* ---- recordings ---- */

static hr_status bind_all(recording *r, PyObject *arrays, PyObject *values) {
  hr_status status = HR_OK;
  Py_ssize_t count = PyList_Size(arrays);
  for (Py_ssize_t i = 0; i < count && status == HR_OK; ++i) {
    status = hr_graph_recorder_bind(r->recorder, &as_array(PyList_GetItem(arrays, i))->tensor,
                                    ((value_object *)PyList_GetItem(values, i))->value);
  }
  return status;
}

/* The values of the function's results, a list of arrays; NULL with an exception. */
static PyObject *values_of(recording *r, PyObject *results) {
  PyObject *list = PyList_New(0);
  Py_ssize_t count = list != NULL ? PyList_Size(results) : 0;
  for (Py_ssize_t i = 0; list != NULL && i < count; ++i) {
    hr_value value = 0;
    hr_status status = hr_graph_recorder_find(r->recorder, &as_array(PyList_GetItem(results, i))->tensor, &value);
    PyObject *object = status == HR_OK ? new_value(r->owner, value) : raise_status(status);
    if (object == NULL || PyList_Append(list, object) < 0) {
      Py_CLEAR(list);
    }
    Py_XDECREF(object);
  }
  return list;
}

static PyObject *record_with(recording *r, PyObject *arrays, PyObject *values, PyObject *function) {
  PyObject *list = NULL, *results = NULL;
  hr_status status = bind_all(r, arrays, values);
  r->outer = innermost;
  innermost = r;
  ++open_recordings;
  if (status == HR_OK) {
    results = PyObject_CallFunctionObjArgs(function, NULL);
  }
  list = results != NULL ? values_of(r, results) : NULL;
  innermost = r->outer;
  --open_recordings;
  Py_XDECREF(results);
  if (status != HR_OK) {
    raise_status(status);
  }
  return list;
}

/* _record(graph, arrays, values, function): what function() returns, a list of arrays, as values; and True if sizes
 * are numbers of the graph. */
static PyObject *record(PyObject *module, PyObject *args) {
  (void)module;
  PyObject *graph, *arrays, *values, *function;
  if (!PyArg_ParseTuple(args, "O!O!O!O", graph_type, &graph, &PyList_Type, &arrays, &PyList_Type, &values, &function)) {
    return NULL;
  }
  recording r = {.stream = default_stream(), .owner = (graph_object *)graph};
  if (r.stream == NULL || is_tracing()) {
    return r.stream == NULL
               ? NULL
               : PyErr_Format(PyExc_ValueError, "a function can't be exported while compile() traces another one");
  }
  hr_status status = hr_graph_recorder_begin(r.stream, r.owner->graph, &r.recorder);
  if (status != HR_OK) {
    return raise_status(status);
  }
  PyObject *list = record_with(&r, arrays, values, function);
  status = hr_graph_recorder_end(r.recorder);
  hr_status failure = hr_graph_take_failure(r.owner->graph);
  if (list == NULL || status == HR_OK) {
    hr_status_free(status);
    status = failure;
  } else {
    hr_status_free(failure);
  }
  if (list == NULL || status != HR_OK) {
    Py_XDECREF(list);
    if (list == NULL) {
      hr_status_free(status);
      return NULL;
    }
    return raise_status(status);
  }
  PyObject *result = Py_BuildValue("(OO)", list, r.is_fixed ? Py_True : Py_False);
  Py_DECREF(list);
  return result;
}

static PyObject *fix_sizes(PyObject *module, PyObject *unused) {
  (void)module, (void)unused;
  if (innermost != NULL) {
    innermost->is_fixed = true;
  }
  Py_RETURN_NONE;
}

PyMethodDef recorder_methods[] = {
    {"_record", record, METH_VARARGS, NULL}, {"_fix_sizes", fix_sizes, METH_NOARGS, NULL}, {NULL, NULL, 0, NULL}};
