/* graphs.c: headrace.Graph and headrace.Value: graphs of headrace/graph.h, and values of them.
 *
 * A failure of the graph is the exception of the call that caused it, and the graph goes on without the call. Arrays
 * and NumPy arrays beside values become constants: copies, for which the array is waited for.
 */
#include <stdlib.h>
#include <string.h>

#include "extension.h"

#include <structmember.h>

#include "headrace/package.h"

PyTypeObject *graph_type, *value_type;

static graph_object *as_graph(PyObject *object) {
  return (graph_object *)object;
}

static value_object *as_value(PyObject *object) {
  return (value_object *)object;
}

/* ---- objects ---- */

PyObject *new_graph(hr_graph *graph) {
  graph_object *self = PyObject_New(graph_object, graph_type);
  if (self == NULL) {
    hr_graph_release(graph);
    return NULL;
  }
  self->graph = graph, self->weak = NULL;
  return (PyObject *)self;
}

static void drop_graph(PyObject *self) {
  PyTypeObject *type = Py_TYPE(self);
  if (as_graph(self)->weak != NULL) {
    PyObject_ClearWeakRefs(self);
  }
  hr_graph_release(as_graph(self)->graph);
  PyObject_Free(self);
  Py_DECREF((PyObject *)type);
}

PyObject *raise_of_graph(graph_object *owner) {
  return raise_status(hr_graph_take_failure(owner->graph));
}

PyObject *new_value(graph_object *owner, hr_value value) {
  if (value == 0) {
    return raise_of_graph(owner);
  }
  value_object *self = PyObject_New(value_object, value_type);
  if (self != NULL) {
    self->owner = (graph_object *)Py_NewRef((PyObject *)owner), self->value = value;
  }
  return (PyObject *)self;
}

static void drop_value(PyObject *self) {
  PyTypeObject *type = Py_TYPE(self);
  Py_DECREF((PyObject *)as_value(self)->owner);
  PyObject_Free(self);
  Py_DECREF((PyObject *)type);
}

static PyObject *create_graph(PyTypeObject *type, PyObject *args, PyObject *names) {
  (void)type;
  static char *keywords[] = {NULL};
  hr_graph *graph = NULL;
  if (!PyArg_ParseTupleAndKeywords(args, names, ":Graph", keywords)) {
    return NULL;
  }
  hr_status status = hr_graph_create(&graph);
  return status == HR_OK ? new_graph(graph) : raise_status(status);
}

/* ---- constants ---- */

static hr_value constant_of(graph_object *owner, array_object *x) {
  hr_type type = {.dtype = x->tensor.dtype, .rank = x->tensor.rank};
  memcpy(type.dims, x->tensor.dims, (size_t)type.rank * sizeof *type.dims);
  size_t bytes = (size_t)hr_tensor_count(&x->tensor) * hr_dtype_size(type.dtype);
  if (refuse_traced(x) < 0) {
    return 0;
  }
  void *elements = aligned_alloc(64, (bytes + 64) / 64 * 64);
  if (elements == NULL) {
    PyErr_NoMemory();
    return 0;
  }
  hr_status status = bytes > 0 ? read_elements(x, elements) : HR_OK;
  if (status != HR_OK) {
    free(elements);
    raise_status(status);
    return 0;
  }
  hr_value value = hr_graph_constant_adopt(owner->graph, &type, elements, free, elements);
  if (value == 0) {
    raise_of_graph(owner);
  }
  return value;
}

hr_value value_from(graph_object *owner, PyObject *object, bool takes_numbers) {
  hr_scalar number;
  if (is_value(object)) {
    if (as_value(object)->owner == owner) {
      return as_value(object)->value;
    }
    PyErr_SetString(PyExc_ValueError, "a value of another graph");
    return 0;
  }
  int found = takes_numbers ? number_from(object, &number) : 0;
  if (found != 0) {
    hr_value value = found > 0 ? hr_graph_number(owner->graph, number) : 0;
    if (found > 0 && value == 0) {
      raise_of_graph(owner);
    }
    return value;
  }
  if (object == Py_None || PyUnicode_Check(object) || PyBytes_Check(object)) {
    return -1;
  }
  array_object *x =
      is_array(object) ? (array_object *)Py_NewRef(object) : array_from(object, HR_DTYPE_NONE, default_stream(), -1);
  if (x == NULL) {
    return 0;
  }
  hr_value value = constant_of(owner, x);
  Py_DECREF((PyObject *)x);
  return value;
}

/* constant(value, name=None, dtype=None) */
static PyObject *add_constant(PyObject *self, PyObject *args, PyObject *names) {
  static char *keywords[] = {"", "name", "dtype", NULL};
  PyObject *object, *dtype_name = Py_None;
  const char *name = NULL;
  if (!PyArg_ParseTupleAndKeywords(args, names, "O|zO:constant", keywords, &object, &name, &dtype_name)) {
    return NULL;
  }
  hr_dtype dtype = dtype_from(dtype_name);
  if (PyErr_Occurred() || (name != NULL && hr_graph_find(as_graph(self)->graph, name) != 0)) {
    return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_ValueError, "graph: two values have the name \"%s\"", name);
  }
  array_object *x = array_from(object, dtype, default_stream(), -1);
  hr_value value = x != NULL ? constant_of(as_graph(self), x) : 0;
  Py_XDECREF((PyObject *)x);
  if (value != 0 && name != NULL) {
    hr_graph_name(as_graph(self)->graph, value, name);
    value = hr_graph_find(as_graph(self)->graph, name);
  }
  return value != 0 || !PyErr_Occurred() ? new_value(as_graph(self), value) : NULL;
}

/* ---- inputs and outputs ---- */

/* A dim: a size, or the name of a symbol, which is borrowed. */
static int take_dim(PyObject *entry, int d, hr_type *type) {
  if (PyUnicode_Check(entry)) {
    type->dims[d] = -1, type->symbols[d] = PyUnicode_AsUTF8AndSize(entry, NULL);
    return type->symbols[d] != NULL ? 0 : -1;
  }
  type->symbols[d] = NULL, type->dims[d] = integer_from(entry);
  if (type->dims[d] < 0 && !PyErr_Occurred()) {
    PyErr_Format(PyExc_ValueError, "graph: dim %d is %lld, expected a size or the name of a symbol", d,
                 (long long)type->dims[d]);
  }
  return PyErr_Occurred() ? -1 : 0;
}

static int take_dims(PyObject *dims, hr_type *type) {
  Py_ssize_t count = PyTuple_Size(dims);
  if (count > HR_RANK_MAX) {
    PyErr_Format(PyExc_ValueError, "graph: %zd dims, expected at most %d", count, (int)HR_RANK_MAX);
    return -1;
  }
  type->rank = (int)count;
  for (int d = 0; d < type->rank; ++d) {
    if (take_dim(PyTuple_GetItem(dims, d), d, type) < 0) {
      return -1;
    }
  }
  return 0;
}

/* input(name, dtype, dims) */
static PyObject *add_input(PyObject *self, PyObject *args, PyObject *names) {
  static char *keywords[] = {"name", "dtype", "dims", NULL};
  const char *name;
  PyObject *dtype, *dims = NULL;
  if (!PyArg_ParseTupleAndKeywords(args, names, "sO|O:input", keywords, &name, &dtype, &dims)) {
    return NULL;
  }
  hr_type type = {.dtype = dtype_from(dtype)};
  if (type.dtype == HR_DTYPE_NONE) {
    return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_TypeError, "graph: input \"%s\" needs a dtype", name);
  }
  bool is_one = dims != NULL && (PyUnicode_Check(dims) || PyIndex_Check(dims));
  PyObject *tuple = dims == NULL ? PyTuple_New(0) : is_one ? PyTuple_Pack(1, dims) : PySequence_Tuple(dims);
  hr_value value = 0;
  if (tuple != NULL && take_dims(tuple, &type) == 0) {
    value = hr_graph_input(as_graph(self)->graph, name, &type);
  }
  PyObject *result = PyErr_Occurred() ? NULL : new_value(as_graph(self), value);
  Py_XDECREF(tuple);
  return result;
}

/* output(name, value): value may be an array or a number, too */
static PyObject *add_output(PyObject *self, PyObject *args, PyObject *names) {
  static char *keywords[] = {"name", "value", NULL};
  const char *name;
  PyObject *object;
  if (!PyArg_ParseTupleAndKeywords(args, names, "zO:output", keywords, &name, &object)) {
    return NULL;
  }
  hr_value value = value_from(as_graph(self), object, false);
  if (value < 0) {
    return PyErr_Format(PyExc_TypeError, "graph: output \"%s\" is %R, expected a value of the graph",
                        name != NULL ? name : "", object);
  }
  if (value == 0) {
    return NULL;
  }
  hr_graph_output(as_graph(self)->graph, name, value);
  hr_status status = hr_graph_take_failure(as_graph(self)->graph);
  if (status != HR_OK) {
    return raise_status(status);
  }
  Py_RETURN_NONE;
}

static PyObject *symbol_value(PyObject *self, PyObject *name) {
  const char *text = PyUnicode_Check(name) ? PyUnicode_AsUTF8AndSize(name, NULL) : NULL;
  if (text == NULL) {
    return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_TypeError, "symbol() expects a name, not %R", name);
  }
  return new_value(as_graph(self), hr_graph_symbol(as_graph(self)->graph, text));
}

static PyObject *shape_value(PyObject *self, PyObject *x) {
  hr_value value = is_value(x) ? value_from(as_graph(self), x, false) : -1;
  if (value <= 0) {
    return value < 0 ? PyErr_Format(PyExc_TypeError, "shape() expects a value of the graph, not %R", x) : NULL;
  }
  return new_value(as_graph(self), hr_graph_shape(as_graph(self)->graph, value));
}

/* ---- gradients ---- */

static int take_list(graph_object *owner, PyObject *list, hr_value *out) {
  Py_ssize_t count = PyList_Size(list);
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject *entry = PyList_GetItem(list, i);
    if (!is_value(entry)) {
      PyErr_Format(PyExc_TypeError, "gradient() expects values of the graph, not %R", entry);
      return -1;
    }
    out[i] = value_from(owner, entry, false);
    if (out[i] == 0) {
      return -1;
    }
  }
  return 0;
}

static PyObject *list_of_values(graph_object *owner, hr_value first, Py_ssize_t count) {
  PyObject *list = first != 0 ? PyList_New(count) : raise_of_graph(owner);
  for (Py_ssize_t i = 0; list != NULL && i < count; ++i) {
    PyObject *value = new_value(owner, first + (hr_value)i);
    if (value == NULL || PyList_SetItem(list, i, value) < 0) {
      Py_CLEAR(list);
    }
  }
  return list;
}

static PyObject *gradients_by(graph_object *owner, hr_value of, hr_value seed, PyObject *list) {
  Py_ssize_t count = PyList_Size(list);
  hr_value *values = PyMem_Malloc(((size_t)count + 1) * sizeof *values);
  PyObject *result = NULL;
  if (values == NULL) {
    return PyErr_NoMemory();
  }
  if (count > HR_GRAPH_OUTPUTS_MAX) {
    PyErr_Format(PyExc_ValueError, "gradient: by %zd values, expected at most %d", count, (int)HR_GRAPH_OUTPUTS_MAX);
  } else if (take_list(owner, list, values) == 0) {
    result = list_of_values(owner, hr_graph_gradient(owner->graph, of, seed, (int)count, values), count);
  }
  PyMem_Free(values);
  return result;
}

/* gradient(of, by, seed=None) */
static PyObject *add_gradient(PyObject *self, PyObject *args, PyObject *names) {
  static char *keywords[] = {"of", "by", "seed", NULL};
  PyObject *of, *by, *seed = Py_None;
  if (!PyArg_ParseTupleAndKeywords(args, names, "O!O|O:gradient", keywords, value_type, &of, &by, &seed)) {
    return NULL;
  }
  PyObject *list = is_value(by) ? Py_BuildValue("[O]", by) : PySequence_List(by);
  hr_value value = list != NULL ? value_from(as_graph(self), of, false) : 0;
  hr_value start = value != 0 && seed != Py_None ? value_from(as_graph(self), seed, false) : 0;
  PyObject *result = NULL;
  if (value != 0 && (seed == Py_None || start > 0)) {
    result = gradients_by(as_graph(self), value, start, list);
  } else if (start < 0) {
    PyErr_Format(PyExc_TypeError, "gradient(): seed is %R, expected a value or an array", seed);
  }
  Py_XDECREF(list);
  if (result != NULL && is_value(by)) {
    PyObject *only = Py_NewRef(PyList_GetItem(result, 0));
    Py_DECREF(result);
    return only;
  }
  return result;
}

/* ---- text ---- */

typedef struct text {
  char *bytes;
  size_t count, room;
} text;

static hr_status add_text(void *arg, const void *bytes, size_t count) {
  text *t = arg;
  if (t->count + count > t->room) {
    size_t room = 2 * (t->count + count);
    char *grown = realloc(t->bytes, room);
    if (grown == NULL) {
      return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "graph: no memory for %zu bytes of text", room);
    }
    t->bytes = grown, t->room = room;
  }
  memcpy(t->bytes + t->count, bytes, count);
  t->count += count;
  return HR_OK;
}

static PyObject *text_of_graph(PyObject *self) {
  text t = {0};
  hr_status status = hr_graph_print(as_graph(self)->graph, add_text, &t);
  PyObject *result =
      status == HR_OK ? PyUnicode_DecodeUTF8(t.bytes, (Py_ssize_t)t.count, "strict") : raise_status(status);
  free(t.bytes);
  return result;
}

static PyObject *repr_of_graph(PyObject *self) {
  const hr_graph *graph = as_graph(self)->graph;
  return PyUnicode_FromFormat("<headrace.Graph: %d inputs, %d operations, %d outputs>", hr_graph_input_count(graph),
                              hr_graph_operation_count(graph), hr_graph_output_count(graph));
}

int describe_elements(array_object *x, hr_graph_elements *out, void **owned) {
  *out = (hr_graph_elements){.dtype = x->tensor.dtype, .rank = x->tensor.rank};
  memcpy(out->dims, x->tensor.dims, (size_t)out->rank * sizeof *out->dims);
  size_t bytes = (size_t)hr_tensor_count(&x->tensor) * hr_dtype_size(out->dtype);
  out->address = *owned = malloc(bytes + 1);
  if (*owned == NULL) {
    PyErr_NoMemory();
    return -1;
  }
  hr_status status = refuse_traced(x) == 0 && bytes > 0 ? read_elements(x, *owned) : HR_OK;
  if (status != HR_OK) {
    raise_status(status);
  }
  return PyErr_Occurred() ? -1 : 0;
}

void free_elements(void *owned) {
  free(owned);
}

static PyObject *parse_with(const char *characters, Py_ssize_t length, PyObject *list, hr_graph_elements *data,
                            void **owned) {
  Py_ssize_t count = PyList_Size(list);
  for (Py_ssize_t i = 0; i < count; ++i) {
    array_object *x = array_from(PyList_GetItem(list, i), HR_DTYPE_NONE, default_stream(), -1);
    int failed = x == NULL || describe_elements(x, &data[i], &owned[i]) < 0;
    Py_XDECREF((PyObject *)x);
    if (failed) {
      return NULL;
    }
  }
  hr_graph *graph = NULL;
  const hr_graph_source source = {.data_count = (int)count, .data = data};
  hr_status status = hr_graph_parse(characters, (size_t)length, &source, &graph);
  return status == HR_OK ? new_graph(graph) : raise_status(status);
}

/* parse(text, data=()) */
static PyObject *parse_graph(PyObject *unused, PyObject *args, PyObject *names) {
  (void)unused;
  static char *keywords[] = {"text", "data", NULL};
  const char *characters;
  Py_ssize_t length;
  PyObject *data = NULL;
  if (!PyArg_ParseTupleAndKeywords(args, names, "s#|O:parse", keywords, &characters, &length, &data)) {
    return NULL;
  }
  PyObject *list = data != NULL ? PySequence_List(data) : PyList_New(0);
  Py_ssize_t count = list != NULL ? PyList_Size(list) : 0;
  hr_graph_elements *elements = PyMem_Calloc((size_t)count + 1, sizeof *elements);
  void **owned = PyMem_Calloc((size_t)count + 1, sizeof *owned);
  PyObject *result = NULL;
  if (list != NULL && (elements == NULL || owned == NULL || count > INT32_MAX)) {
    PyErr_NoMemory();
  } else if (list != NULL) {
    result = parse_with(characters, length, list, elements, owned);
  }
  for (Py_ssize_t i = 0; owned != NULL && i < count; ++i) {
    free(owned[i]);
  }
  PyMem_Free(elements);
  PyMem_Free(owned);
  Py_XDECREF(list);
  return result;
}

/* ---- files ---- */

/* A list of pairs of texts, borrowed from it; the count, or -1 with an exception. */
static Py_ssize_t take_notes(PyObject *items, hr_package_note **out) {
  Py_ssize_t count = PyList_Size(items);
  *out = PyMem_Calloc((size_t)count + 1, sizeof **out);
  if (*out == NULL) {
    PyErr_NoMemory();
    return -1;
  }
  for (Py_ssize_t i = 0; i < count; ++i) {
    if (!PyArg_ParseTuple(PyList_GetItem(items, i), "ss;notes are texts by name", &(*out)[i].key, &(*out)[i].value)) {
      return -1;
    }
  }
  return count;
}

/* save(path, notes=None) */
static PyObject *save_graph(PyObject *self, PyObject *args, PyObject *names) {
  static char *keywords[] = {"path", "notes", NULL};
  PyObject *path = NULL, *dict = NULL;
  if (!PyArg_ParseTupleAndKeywords(args, names, "O&|O!:save", keywords, PyUnicode_FSConverter, &path, &PyDict_Type,
                                   &dict)) {
    return NULL;
  }
  PyObject *items = dict != NULL ? PyDict_Items(dict) : PyList_New(0);
  hr_package_note *notes = NULL;
  Py_ssize_t count = items != NULL ? take_notes(items, &notes) : -1;
  hr_status status = HR_OK;
  if (count >= 0) {
    hr_graph *graph = as_graph(self)->graph;
    hr_graph_retain(graph);
    Py_BEGIN_ALLOW_THREADS;
    status = hr_package_write(graph, PyBytes_AsString(path), (int)count, notes);
    Py_END_ALLOW_THREADS;
    hr_graph_release(graph);
  }
  PyMem_Free(notes);
  Py_XDECREF(items);
  Py_DECREF(path);
  if (status != HR_OK) {
    raise_status(status);
  }
  return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
}

/* simplify(fold=True) */
static PyObject *simplify_graph(PyObject *self, PyObject *args, PyObject *names) {
  static char *keywords[] = {"fold", NULL};
  int folds = 1;
  if (!PyArg_ParseTupleAndKeywords(args, names, "|p:simplify", keywords, &folds)) {
    return NULL;
  }
  hr_stream *stream = folds ? default_stream() : NULL;
  hr_graph *made = NULL;
  if (folds && stream == NULL) {
    return NULL;
  }
  hr_status status = hr_graph_simplify(as_graph(self)->graph, stream, &made);
  return status == HR_OK ? new_graph(made) : raise_status(status);
}

/* Numbers of outputs by name. */
static int take_outputs(const hr_graph *graph, PyObject *names, int *out) {
  Py_ssize_t count = PyList_Size(names);
  for (Py_ssize_t k = 0; k < count; ++k) {
    PyObject *name = PyList_GetItem(names, k);
    const char *characters = PyUnicode_Check(name) ? PyUnicode_AsUTF8AndSize(name, NULL) : NULL;
    out[k] = -1;
    for (int i = 0; characters != NULL && i < hr_graph_output_count(graph); ++i) {
      out[k] = strcmp(hr_graph_output_name(graph, i), characters) == 0 ? i : out[k];
    }
    if (out[k] < 0) {
      PyErr_Format(PyExc_ValueError, "graph: there is no output %R", name);
      return -1;
    }
  }
  return 0;
}

/* New dims of inputs by name; others stay. The names of symbols are borrowed from `kept`, a list of tuples. */
static int take_new_types(const hr_graph *graph, PyObject *dict, PyObject *kept, hr_type *out) {
  for (int i = 0; i < hr_graph_input_count(graph); ++i) {
    hr_value value = hr_graph_input_value(graph, i);
    hr_status_free(hr_graph_type(graph, value, &out[i]));
    PyObject *dims = PyDict_GetItemString(dict, hr_graph_value_name(graph, value));
    PyObject *tuple = dims != NULL ? PySequence_Tuple(dims) : NULL;
    int failed = dims != NULL && (tuple == NULL || PyList_Append(kept, tuple) < 0 || take_dims(tuple, &out[i]) < 0);
    Py_XDECREF(tuple);
    if (failed) {
      return -1;
    }
  }
  return 0;
}

static PyObject *derive_with(const hr_graph *graph, PyObject *names, PyObject *dict, int *outputs, hr_type *types) {
  PyObject *kept = PyList_New(0);
  hr_graph_change change = {.outputs = names != NULL ? outputs : NULL, .inputs = dict != NULL ? types : NULL};
  hr_graph *made = NULL;
  hr_status status = HR_OK;
  if (kept != NULL && (names == NULL || take_outputs(graph, names, outputs) == 0) &&
      (dict == NULL || take_new_types(graph, dict, kept, types) == 0)) {
    change.output_count = names != NULL ? (int)PyList_Size(names) : 0;
    status = hr_graph_derive(graph, &change, &made);
  }
  Py_XDECREF(kept);
  return made != NULL ? new_graph(made) : status != HR_OK ? raise_status(status) : NULL;
}

/* derive(outputs=None, inputs=None) */
static PyObject *derive_graph(PyObject *self, PyObject *args, PyObject *named) {
  static char *keywords[] = {"outputs", "inputs", NULL};
  PyObject *outputs = Py_None, *inputs = Py_None;
  if (!PyArg_ParseTupleAndKeywords(args, named, "|OO:derive", keywords, &outputs, &inputs)) {
    return NULL;
  }
  if (inputs != Py_None && !PyDict_Check(inputs)) {
    return PyErr_Format(PyExc_TypeError, "derive() expects a dict of dims by input, not %R", inputs);
  }
  const hr_graph *graph = as_graph(self)->graph;
  PyObject *names = outputs != Py_None ? PySequence_List(outputs) : NULL, *result = NULL;
  size_t count = names != NULL ? (size_t)PyList_Size(names) : 0;
  int *numbers = PyMem_Calloc(count + 1, sizeof *numbers);
  hr_type *types = PyMem_Calloc((size_t)hr_graph_input_count(graph) + 1, sizeof *types);
  if (numbers == NULL || types == NULL) {
    PyErr_NoMemory();
  } else if (outputs == Py_None || names != NULL) {
    result = derive_with(graph, names, inputs != Py_None ? inputs : NULL, numbers, types);
  }
  PyMem_Free(numbers);
  PyMem_Free(types);
  Py_XDECREF(names);
  return result;
}

/* ---- reading a graph ---- */

/* The dims of a type: sizes, and texts for those that depend on symbols. */
static PyObject *shape_of_type(const hr_type *type) {
  PyObject *shape = PyTuple_New(type->rank);
  for (int d = 0; shape != NULL && d < type->rank; ++d) {
    PyObject *dim =
        type->symbols[d] != NULL ? PyUnicode_FromString(type->symbols[d]) : PyLong_FromLongLong(type->dims[d]);
    if (dim == NULL || PyTuple_SetItem(shape, d, dim) < 0) {
      Py_CLEAR(shape);
    }
  }
  return shape;
}

static int add_entry(PyObject *dict, graph_object *owner, const char *name, hr_value value) {
  PyObject *entry = new_value(owner, value);
  int result = entry != NULL ? PyDict_SetItemString(dict, name, entry) : -1;
  Py_XDECREF(entry);
  return result;
}

/* Values of the graph by name, in their order. */
typedef struct listing {
  int (*count)(const hr_graph *graph);
  hr_value (*value)(const hr_graph *graph, int index);
  const char *(*name)(const hr_graph *graph, int index); /* NULL: the value's */
} listing;

static PyObject *dict_of(PyObject *self, void *closure) {
  const listing *l = closure;
  const hr_graph *graph = as_graph(self)->graph;
  PyObject *dict = PyDict_New();
  for (int i = 0; dict != NULL && i < l->count(graph); ++i) {
    hr_value value = l->value(graph, i);
    const char *name = l->name != NULL ? l->name(graph, i) : hr_graph_value_name(graph, value);
    if (add_entry(dict, as_graph(self), name, value) < 0) {
      Py_CLEAR(dict);
    }
  }
  return dict;
}

static const listing inputs = {hr_graph_input_count, hr_graph_input_value, NULL};
static const listing outputs = {hr_graph_output_count, hr_graph_output_value, hr_graph_output_name};
static const listing variables = {hr_graph_variable_count, hr_graph_variable_value, NULL};

static PyObject *get_symbols(PyObject *self, void *unused) {
  (void)unused;
  const hr_graph *graph = as_graph(self)->graph;
  PyObject *tuple = PyTuple_New(hr_graph_symbol_count(graph));
  for (int i = 0; tuple != NULL && i < hr_graph_symbol_count(graph); ++i) {
    PyObject *name = PyUnicode_FromString(hr_graph_symbol_name(graph, i));
    if (name == NULL || PyTuple_SetItem(tuple, i, name) < 0) {
      Py_CLEAR(tuple);
    }
  }
  return tuple;
}

static PyObject *get_operation_count(PyObject *self, void *unused) {
  (void)unused;
  return PyLong_FromLong(hr_graph_operation_count(as_graph(self)->graph));
}

static PyObject *get_constant_bytes(PyObject *self, void *unused) {
  (void)unused;
  return PyLong_FromLongLong(hr_graph_constant_bytes(as_graph(self)->graph));
}

/* graph["name"] */
static PyObject *find_value(PyObject *self, PyObject *name) {
  const char *characters = PyUnicode_Check(name) ? PyUnicode_AsUTF8AndSize(name, NULL) : NULL;
  hr_value value = characters != NULL ? hr_graph_find(as_graph(self)->graph, characters) : 0;
  if (value == 0) {
    PyErr_SetObject(PyExc_KeyError, name);
    return NULL;
  }
  return new_value(as_graph(self), value);
}

/* ---- values ---- */

static int type_of(PyObject *self, hr_type *out) {
  hr_status status = hr_graph_type(as_value(self)->owner->graph, as_value(self)->value, out);
  if (status != HR_OK) {
    raise_status(status);
    return -1;
  }
  return 0;
}

static PyObject *get_value_shape(PyObject *self, void *unused) {
  (void)unused;
  hr_type type;
  return type_of(self, &type) == 0 ? shape_of_type(&type) : NULL;
}

static PyObject *get_value_dtype(PyObject *self, void *unused) {
  (void)unused;
  hr_type type;
  return type_of(self, &type) == 0 ? dtype_object_of(type.dtype) : NULL;
}

static PyObject *get_value_ndim(PyObject *self, void *unused) {
  (void)unused;
  hr_type type;
  return type_of(self, &type) == 0 ? PyLong_FromLong(type.rank) : NULL;
}

static PyObject *get_value_graph(PyObject *self, void *unused) {
  (void)unused;
  return Py_NewRef((PyObject *)as_value(self)->owner);
}

static PyObject *get_value_name(PyObject *self, void *unused) {
  (void)unused;
  const char *name = hr_graph_value_name(as_value(self)->owner->graph, as_value(self)->value);
  return name != NULL ? PyUnicode_FromString(name) : Py_NewRef(Py_None);
}

static int set_value_name(PyObject *self, PyObject *name, void *unused) {
  (void)unused;
  const char *characters = name != NULL && PyUnicode_Check(name) ? PyUnicode_AsUTF8AndSize(name, NULL) : NULL;
  if (characters == NULL) {
    if (!PyErr_Occurred()) {
      PyErr_SetString(PyExc_TypeError, "the name of a value is a text, and can't be deleted");
    }
    return -1;
  }
  hr_graph *graph = as_value(self)->owner->graph;
  hr_graph_name(graph, as_value(self)->value, characters);
  hr_status status = hr_graph_take_failure(graph);
  if (status != HR_OK) {
    raise_status(status);
  }
  return PyErr_Occurred() ? -1 : 0;
}

static PyObject *reverse_dims(PyObject *self, void *unused) {
  (void)unused;
  return graph_unary(HR_FUNCTIONAL_PERMUTE_DIMS, self);
}

static PyObject *repr_of_value(PyObject *self) {
  PyObject *name = get_value_name(self, NULL), *shape = get_value_shape(self, NULL), *result = NULL;
  hr_type type;
  if (name != NULL && shape != NULL && type_of(self, &type) == 0) {
    result = name != Py_None ? PyUnicode_FromFormat("<headrace.Value %%%U: %s%R>", name, python_name(type.dtype), shape)
                             : PyUnicode_FromFormat("<headrace.Value %%%d: %s%R>", (int)as_value(self)->value,
                                                    python_name(type.dtype), shape);
  }
  Py_XDECREF(name);
  Py_XDECREF(shape);
  return result;
}

/* x.reshape(2, "n"), x.reshape((2, "n")) */
static PyObject *reshape_value(PyObject *self, PyObject *args) {
  PyObject *first = PyTuple_Size(args) == 1 ? PyTuple_GetItem(args, 0) : NULL;
  graph_integers integers;
  hr_graph_attribute shape;
  graph_object *owner = as_value(self)->owner;
  if (graph_integers_from(owner, first != NULL ? first : args, "shape", &integers, &shape) < 0) {
    return NULL;
  }
  return add_call(owner, HR_FUNCTIONAL_RESHAPE, 1, &as_value(self)->value, 1, &shape);
}

static int refuse_truth(PyObject *self) {
  (void)self;
  PyErr_SetString(PyExc_TypeError, "a value of a graph has no elements: use headrace.where for a choice by it");
  return -1;
}

static PyObject *refuse_iteration(PyObject *self) {
  (void)self;
  PyErr_SetString(PyExc_TypeError, "a value of a graph can't be iterated: use headrace.unstack or an index");
  return NULL;
}

/* ---- operators ---- */

#define BINARY(name, FUNCTION)                           \
  static PyObject *name(PyObject *x, PyObject *y) {      \
    return graph_binary(HR_FUNCTIONAL_##FUNCTION, x, y); \
  }
#define UNARY(name, FUNCTION)                        \
  static PyObject *name(PyObject *x) {               \
    return graph_unary(HR_FUNCTIONAL_##FUNCTION, x); \
  }
#include "operators.def"
UNARY(positive, POSITIVE)

static PyObject *power(PyObject *x, PyObject *y, PyObject *modulus) {
  if (modulus != Py_None) {
    Py_RETURN_NOTIMPLEMENTED;
  }
  return graph_binary(HR_FUNCTIONAL_POW, x, y);
}

static PyObject *compare(PyObject *x, PyObject *y, int op) {
  static const hr_functional functions[] = {
      [Py_LT] = HR_FUNCTIONAL_LESS,      [Py_LE] = HR_FUNCTIONAL_LESS_EQUAL, [Py_EQ] = HR_FUNCTIONAL_EQUAL,
      [Py_NE] = HR_FUNCTIONAL_NOT_EQUAL, [Py_GT] = HR_FUNCTIONAL_GREATER,    [Py_GE] = HR_FUNCTIONAL_GREATER_EQUAL};
  return graph_binary(functions[op], x, y);
}

/* ---- the types ---- */

static PyMethodDef graph_methods[] = {
    {"input", (PyCFunction)(void (*)(void))add_input, METH_VARARGS | METH_KEYWORDS,
     "input($self, name, dtype, dims=())\n--\n\nAn input; a dim is a size, or the name of a symbol."},
    {"constant", (PyCFunction)(void (*)(void))add_constant, METH_VARARGS | METH_KEYWORDS,
     "constant($self, value, /, name=None, dtype=None)\n--\n\nA copy of an array, or of anything that array() takes."},
    {"output", (PyCFunction)(void (*)(void))add_output, METH_VARARGS | METH_KEYWORDS,
     "output($self, name, value)\n--\n\nMakes a value a result of the graph."},
    {"symbol", symbol_value, METH_O, "symbol($self, name, /)\n--\n\nThe size of the dims with this symbol."},
    {"shape", shape_value, METH_O, "shape($self, x, /)\n--\n\nThe sizes of x's dims: int64 [ndim]."},
    {"gradient", (PyCFunction)(void (*)(void))add_gradient, METH_VARARGS | METH_KEYWORDS,
     "gradient($self, of, by, seed=None)\n--\n\nThe gradients of the sum of seed * of by a value or a list of them."},
    {"simplify", (PyCFunction)(void (*)(void))simplify_graph, METH_VARARGS | METH_KEYWORDS,
     "simplify($self, fold=True)\n--\n\nA graph without unneeded and equal operations; fold: and with constants in the "
     "place of what constants alone decide, else of small integers alone."},
    {"derive", (PyCFunction)(void (*)(void))derive_graph, METH_VARARGS | METH_KEYWORDS,
     "derive($self, outputs=None, inputs=None)\n--\n\nThe operations that these outputs need, in a graph of their own; "
     "inputs: other dims, by name."},
    {"save", (PyCFunction)(void (*)(void))save_graph, METH_VARARGS | METH_KEYWORDS,
     "save($self, path, notes=None)\n--\n\nWrites a package with the graph, its constants and notes, a dict of texts."},
    {"parse", (PyCFunction)(void (*)(void))parse_graph, METH_VARARGS | METH_KEYWORDS | METH_STATIC,
     "parse(text, data=())\n--\n\nReads a graph from text; data: the arrays #0, #1, ..."},
    {NULL, NULL, 0, NULL}};

static PyGetSetDef graph_attributes[] = {
    {"inputs", dict_of, NULL, "inputs by name, in their order", (void *)&inputs},
    {"outputs", dict_of, NULL, "outputs by name, in their order", (void *)&outputs},
    {"variables", dict_of, NULL, "variables by name, in their order", (void *)&variables},
    {"symbols", get_symbols, NULL, "names of symbols, in the order of their first use", NULL},
    {"operations", get_operation_count, NULL, "number of operations", NULL},
    {"constant_bytes", get_constant_bytes, NULL, "bytes of all constants", NULL},
    {NULL, NULL, NULL, NULL, NULL}};

static PyMemberDef graph_members[] = {{"__weaklistoffset__", T_PYSSIZET, offsetof(graph_object, weak), READONLY, NULL},
                                      {NULL, 0, 0, 0, NULL}};

static PyType_Slot graph_slots[] = {{Py_tp_dealloc, drop_graph},
                                    {Py_tp_new, create_graph},
                                    {Py_tp_repr, repr_of_graph},
                                    {Py_tp_str, text_of_graph},
                                    {Py_tp_methods, graph_methods},
                                    {Py_tp_getset, graph_attributes},
                                    {Py_tp_members, graph_members},
                                    {Py_mp_subscript, find_value},
                                    {Py_tp_doc, "Functions on named values, whose dims may be symbols."},
                                    {0, NULL}};

static PyType_Spec graph_spec = {"headrace.Graph", sizeof(graph_object), 0, Py_TPFLAGS_DEFAULT, graph_slots};

static PyMethodDef value_methods[] = {
    {"reshape", reshape_value, METH_VARARGS,
     "reshape($self, *shape)\n--\n\nThe elements with other dims: sizes, symbols, values, and one of them -1."},
    {NULL, NULL, 0, NULL}};

static PyGetSetDef value_attributes[] = {
    {"shape", get_value_shape, NULL, "dims: sizes, and texts for those that depend on symbols", NULL},
    {"dtype", get_value_dtype, NULL, "type of the elements", NULL},
    {"ndim", get_value_ndim, NULL, "number of dims", NULL},
    {"name", get_value_name, set_value_name, "name, or None; it can be set once", NULL},
    {"graph", get_value_graph, NULL, "the graph", NULL},
    {"T", reverse_dims, NULL, "the dims in reverse order", NULL},
    {NULL, NULL, NULL, NULL, NULL}};

static PyType_Slot value_slots[] = {{Py_tp_dealloc, drop_value},
                                    {Py_tp_repr, repr_of_value},
                                    {Py_tp_richcompare, compare},
                                    {Py_tp_hash, PyObject_HashNotImplemented},
                                    {Py_tp_iter, refuse_iteration},
                                    {Py_tp_methods, value_methods},
                                    {Py_tp_getset, value_attributes},
                                    {Py_tp_doc, "A value of a graph: a dtype and dims, without elements."},
                                    {Py_nb_add, add},
                                    {Py_nb_subtract, subtract},
                                    {Py_nb_multiply, multiply},
                                    {Py_nb_true_divide, divide},
                                    {Py_nb_floor_divide, floor_divide},
                                    {Py_nb_remainder, remainder_of},
                                    {Py_nb_power, power},
                                    {Py_nb_matrix_multiply, matmul},
                                    {Py_nb_and, bitwise_and},
                                    {Py_nb_or, bitwise_or},
                                    {Py_nb_xor, bitwise_xor},
                                    {Py_nb_lshift, shift_left},
                                    {Py_nb_rshift, shift_right},
                                    {Py_nb_negative, negative},
                                    {Py_nb_positive, positive},
                                    {Py_nb_absolute, absolute},
                                    {Py_nb_invert, invert},
                                    {Py_nb_bool, refuse_truth},
                                    {Py_mp_subscript, index_value},
                                    {0, NULL}};

static PyType_Spec value_spec = {"headrace.Value", sizeof(value_object), 0,
                                 Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, value_slots};

int add_graphs(PyObject *module) {
  graph_type = (PyTypeObject *)PyType_FromSpec(&graph_spec);
  value_type = (PyTypeObject *)PyType_FromSpec(&value_spec);
  if (graph_type == NULL || value_type == NULL || add_methods(value_type, array_function_methods) < 0 ||
      add_methods(graph_type, graph_control_methods) < 0) {
    return -1;
  }
  /* numpy's operators leave values to ours */
  return PyObject_SetAttrString((PyObject *)value_type, "__array_ufunc__", Py_None) < 0 ||
                 PyModule_AddObjectRef(module, "Graph", (PyObject *)graph_type) < 0 ||
                 PyModule_AddObjectRef(module, "Value", (PyObject *)value_type) < 0
             ? -1
             : 0;
}
