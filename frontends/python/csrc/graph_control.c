/* graph_control.c: control flow and variables of headrace.Graph. An inner graph is a Graph, or a function of values, of
 * which headrace/_inner.py makes one. */
#include <string.h>

#include "extension.h"

static graph_object *as_graph(PyObject *object) {
  return (graph_object *)object;
}

/* ---- arguments ---- */

/* Values of a list or tuple, behind those that are there; -1 with an exception. */
typedef struct arguments {
  hr_value values[HR_GRAPH_OUTPUTS_MAX];
  int count;
} arguments;

static int add_argument(graph_object *owner, PyObject *object, arguments *to) {
  if (to->count == HR_GRAPH_OUTPUTS_MAX) {
    PyErr_Format(PyExc_ValueError, "graph: more than %d arguments", (int)HR_GRAPH_OUTPUTS_MAX);
    return -1;
  }
  hr_value value = value_from(owner, object, false);
  if (value < 0) {
    PyErr_Format(PyExc_TypeError, "graph: argument %d is %R, expected a value or an array", to->count, object);
  }
  to->values[to->count++] = value;
  return value > 0 ? 0 : -1;
}

static int add_sequence(graph_object *owner, PyObject *sequence, arguments *to) {
  PyObject *tuple = is_value(sequence) ? PyTuple_Pack(1, sequence) : PySequence_Tuple(sequence);
  int failed = tuple == NULL;
  for (Py_ssize_t i = 0; !failed && i < PyTuple_Size(tuple); ++i) {
    failed = add_argument(owner, PyTuple_GetItem(tuple, i), to) < 0;
  }
  Py_XDECREF(tuple);
  return failed ? -1 : 0;
}

/* The arguments as values, for _inner.py; a list. */
static PyObject *list_of(graph_object *owner, const arguments *from) {
  PyObject *list = PyList_New(from->count);
  for (int i = 0; list != NULL && i < from->count; ++i) {
    PyObject *value = new_value(owner, from->values[i]);
    if (value == NULL || PyList_SetItem(list, i, value) < 0) {
      Py_CLEAR(list);
    }
  }
  return list;
}

/* The graph itself, or one that the function builds for such arguments; a new reference. */
static PyObject *inner_graph(graph_object *owner, PyObject *object, const arguments *from, int sliced, int sliced_count,
                             bool is_counted) {
  if (Py_TYPE(object) == graph_type) {
    return Py_NewRef(object);
  }
  if (!PyCallable_Check(object)) {
    return PyErr_Format(PyExc_TypeError, "graph: %R is neither a Graph nor a function of values", object);
  }
  PyObject *module = PyImport_ImportModule("headrace._inner"), *list = module != NULL ? list_of(owner, from) : NULL;
  PyObject *made =
      list != NULL ? PyObject_CallMethod(module, "build", "OOiii", object, list, sliced, sliced_count, (int)is_counted)
                   : NULL;
  Py_XDECREF(module);
  Py_XDECREF(list);
  return made;
}

static PyObject *results(graph_object *owner, hr_value first) {
  if (first == 0) {
    return raise_of_graph(owner);
  }
  int count = hr_graph_result_count(owner->graph, first);
  PyObject *list = PyList_New(count);
  for (int i = 0; list != NULL && i < count; ++i) {
    PyObject *value = new_value(owner, first + i);
    if (value == NULL || PyList_SetItem(list, i, value) < 0) {
      Py_CLEAR(list);
    }
  }
  return list;
}

/* ---- calls and choices ---- */

/* The positional arguments from `first` on. */
static int take_rest(graph_object *owner, PyObject *args, Py_ssize_t first, arguments *to) {
  for (Py_ssize_t i = first; i < PyTuple_Size(args); ++i) {
    if (add_argument(owner, PyTuple_GetItem(args, i), to) < 0) {
      return -1;
    }
  }
  return 0;
}

static PyObject *refuse_few(const char *function, const char *expected) {
  return PyErr_Format(PyExc_TypeError, "%s() expects %s", function, expected);
}

/* call(callee, *args) */
static PyObject *add_callee(PyObject *self, PyObject *args) {
  arguments given = {.count = 0};
  if (PyTuple_Size(args) < 1) {
    return refuse_few("call", "a graph, and its arguments");
  }
  if (take_rest(as_graph(self), args, 1, &given) < 0) {
    return NULL;
  }
  PyObject *callee = inner_graph(as_graph(self), PyTuple_GetItem(args, 0), &given, 0, 0, false);
  if (callee == NULL) {
    return NULL;
  }
  hr_value first = hr_graph_call(as_graph(self)->graph, as_graph(callee)->graph, given.count, given.values);
  PyObject *list = results(as_graph(self), first);
  Py_DECREF(callee);
  return list;
}

/* cond(condition, then, otherwise, *args) */
static PyObject *add_condition(PyObject *self, PyObject *args) {
  arguments given = {.count = 0}, condition = {.count = 0};
  if (PyTuple_Size(args) < 3) {
    return refuse_few("cond", "a condition, two graphs or functions, and their arguments");
  }
  if (add_argument(as_graph(self), PyTuple_GetItem(args, 0), &condition) < 0 ||
      take_rest(as_graph(self), args, 3, &given) < 0) {
    return NULL;
  }
  PyObject *then = inner_graph(as_graph(self), PyTuple_GetItem(args, 1), &given, 0, 0, false);
  PyObject *otherwise =
      then != NULL ? inner_graph(as_graph(self), PyTuple_GetItem(args, 2), &given, 0, 0, false) : NULL;
  PyObject *list = NULL;
  if (otherwise != NULL) {
    list = results(as_graph(self), hr_graph_if(as_graph(self)->graph, condition.values[0], as_graph(then)->graph,
                                               as_graph(otherwise)->graph, given.count, given.values));
  }
  Py_XDECREF(then);
  Py_XDECREF(otherwise);
  return list;
}

/* ---- loops ---- */

/* while_loop(condition, body, carried, args=()) */
static PyObject *add_while(PyObject *self, PyObject *args, PyObject *names) {
  static char *keywords[] = {"condition", "body", "carried", "args", NULL};
  PyObject *condition, *body, *carried, *others = NULL, *list = NULL;
  arguments given = {.count = 0};
  if (!PyArg_ParseTupleAndKeywords(args, names, "OOO|O:while_loop", keywords, &condition, &body, &carried, &others) ||
      add_sequence(as_graph(self), carried, &given) < 0) {
    return NULL;
  }
  int carried_count = given.count;
  if (others != NULL && add_sequence(as_graph(self), others, &given) < 0) {
    return NULL;
  }
  PyObject *test = inner_graph(as_graph(self), condition, &given, 0, 0, false);
  PyObject *step = test != NULL ? inner_graph(as_graph(self), body, &given, 0, 0, false) : NULL;
  if (step != NULL) {
    list = results(as_graph(self), hr_graph_while(as_graph(self)->graph, as_graph(test)->graph, as_graph(step)->graph,
                                                  carried_count, given.count, given.values));
  }
  Py_XDECREF(test);
  Py_XDECREF(step);
  return list;
}

/* for_loop(count, body, carried, args=()) */
static PyObject *add_for(PyObject *self, PyObject *args, PyObject *names) {
  static char *keywords[] = {"count", "body", "carried", "args", NULL};
  PyObject *count, *body, *carried, *others = NULL, *list = NULL;
  arguments given = {.count = 0}, counts = {.count = 0};
  if (!PyArg_ParseTupleAndKeywords(args, names, "OOO|O:for_loop", keywords, &count, &body, &carried, &others) ||
      add_argument(as_graph(self), count, &counts) < 0 || add_sequence(as_graph(self), carried, &given) < 0) {
    return NULL;
  }
  int carried_count = given.count;
  if (others != NULL && add_sequence(as_graph(self), others, &given) < 0) {
    return NULL;
  }
  PyObject *step = inner_graph(as_graph(self), body, &given, 0, 0, true);
  if (step != NULL) {
    list = results(as_graph(self), hr_graph_for(as_graph(self)->graph, counts.values[0], as_graph(step)->graph,
                                                carried_count, given.count, given.values));
  }
  Py_XDECREF(step);
  return list;
}

/* scan(body, carried, sequences, args=()) */
static PyObject *add_scan(PyObject *self, PyObject *args, PyObject *names) {
  static char *keywords[] = {"body", "carried", "sequences", "args", NULL};
  PyObject *body, *carried, *sequences, *others = NULL, *list = NULL;
  arguments given = {.count = 0};
  if (!PyArg_ParseTupleAndKeywords(args, names, "OOO|O:scan", keywords, &body, &carried, &sequences, &others) ||
      add_sequence(as_graph(self), carried, &given) < 0) {
    return NULL;
  }
  int carried_count = given.count;
  if (add_sequence(as_graph(self), sequences, &given) < 0) {
    return NULL;
  }
  int sequence_count = given.count - carried_count;
  if (others != NULL && add_sequence(as_graph(self), others, &given) < 0) {
    return NULL;
  }
  PyObject *step = inner_graph(as_graph(self), body, &given, carried_count, sequence_count, false);
  if (step != NULL) {
    list = results(as_graph(self), hr_graph_scan(as_graph(self)->graph, as_graph(step)->graph, carried_count,
                                                 sequence_count, given.count, given.values));
  }
  Py_XDECREF(step);
  return list;
}

/* ---- vmaps ---- */

/* Axes of a list of integers; the count, or -1 with an exception. */
static int take_axes(PyObject *list, int room, int *out_axes) {
  Py_ssize_t count = PyList_Check(list) ? PyList_Size(list) : -1;
  for (Py_ssize_t i = 0; count <= room && i < count; ++i) {
    out_axes[i] = (int)PyLong_AsLong(PyList_GetItem(list, i));
    if (PyErr_Occurred()) {
      return -1;
    }
  }
  if (count < 0 || count > room) {
    PyErr_Format(PyExc_ValueError, "vmap() expects lists of at most %d axes", room);
    return -1;
  }
  return (int)count;
}

/* _vmap(callee, args, in_axes, out_axes): axes are lists of integers, -1 for none. _inner.py calls it. */
static PyObject *add_vmap(PyObject *self, PyObject *args) {
  PyObject *callee, *sequence, *into, *outward;
  arguments given = {.count = 0};
  int in_axes[HR_GRAPH_OUTPUTS_MAX], out_axes[HR_GRAPH_OUTPUTS_MAX];
  if (!PyArg_ParseTuple(args, "O!OOO:_vmap", graph_type, &callee, &sequence, &into, &outward) ||
      add_sequence(as_graph(self), sequence, &given) < 0) {
    return NULL;
  }
  int in_count = take_axes(into, HR_GRAPH_OUTPUTS_MAX, in_axes);
  int out_count = in_count >= 0 ? take_axes(outward, HR_GRAPH_OUTPUTS_MAX, out_axes) : -1;
  if (out_count < 0) {
    return NULL;
  }
  if (in_count != given.count || out_count != hr_graph_output_count(as_graph(callee)->graph)) {
    return PyErr_Format(PyExc_ValueError, "vmap() expects an axis for each argument and each output");
  }
  return results(as_graph(self), hr_graph_vmap(as_graph(self)->graph, as_graph(callee)->graph, given.count,
                                               given.values, in_axes, out_axes));
}

/* vmap(callee, *args, in_axes=0, out_axes=0) */
static PyObject *map_callee(PyObject *self, PyObject *args, PyObject *names) {
  static char *keywords[] = {"in_axes", "out_axes", NULL};
  PyObject *into = NULL, *outward = NULL, *zero = PyLong_FromLong(0), *none = PyTuple_New(0), *made = NULL;
  arguments given = {.count = 0};
  if (PyTuple_Size(args) < 2) {
    refuse_few("vmap", "a graph or a function, and its arguments");
  } else if (none != NULL && PyArg_ParseTupleAndKeywords(none, names, "|OO:vmap", keywords, &into, &outward) &&
             take_rest(as_graph(self), args, 1, &given) == 0) {
    PyObject *module = PyImport_ImportModule("headrace._inner");
    PyObject *list = module != NULL ? list_of(as_graph(self), &given) : NULL;
    if (list != NULL) {
      made = PyObject_CallMethod(module, "vmap", "OOOOO", self, PyTuple_GetItem(args, 0), list,
                                 into != NULL ? into : zero, outward != NULL ? outward : zero);
    }
    Py_XDECREF(list);
    Py_XDECREF(module);
  }
  Py_XDECREF(none);
  Py_XDECREF(zero);
  return made;
}

/* ---- numbers ---- */

static PyObject *read_numbers(PyObject *self, PyObject *x) {
  hr_value value = is_value(x) ? value_from(as_graph(self), x, false) : -1;
  if (value <= 0) {
    return value < 0 ? PyErr_Format(PyExc_TypeError, "read() expects a value of the graph, not %R", x) : NULL;
  }
  return new_value(as_graph(self), hr_graph_read(as_graph(self)->graph, value));
}

/* ---- variables ---- */

/* variable(name, value, dtype=None) */
static PyObject *add_variable(PyObject *self, PyObject *args, PyObject *names) {
  static char *keywords[] = {"name", "value", "dtype", NULL};
  const char *name;
  PyObject *object, *dtype_name = Py_None;
  if (!PyArg_ParseTupleAndKeywords(args, names, "sO|O:variable", keywords, &name, &object, &dtype_name)) {
    return NULL;
  }
  hr_dtype dtype = dtype_from(dtype_name);
  array_object *x = PyErr_Occurred() ? NULL : array_from(object, dtype, default_stream(), -1);
  hr_graph_elements elements;
  void *owned = NULL;
  PyObject *result = NULL;
  if (x != NULL && describe_elements(x, &elements, &owned) == 0) {
    hr_type type = {.dtype = elements.dtype, .rank = elements.rank};
    memcpy(type.dims, elements.dims, (size_t)type.rank * sizeof *type.dims);
    result = new_value(as_graph(self), hr_graph_variable(as_graph(self)->graph, name, &type, elements.address));
  }
  Py_XDECREF((PyObject *)x);
  free_elements(owned);
  return result;
}

/* assign(variable, value) */
static PyObject *assign_variable(PyObject *self, PyObject *args) {
  PyObject *variable, *object;
  if (!PyArg_ParseTuple(args, "O!O:assign", value_type, &variable, &object)) {
    return NULL;
  }
  arguments given = {.count = 0};
  if (add_argument(as_graph(self), variable, &given) < 0 || add_argument(as_graph(self), object, &given) < 0) {
    return NULL;
  }
  hr_graph_assign(as_graph(self)->graph, given.values[0], given.values[1]);
  hr_status status = hr_graph_take_failure(as_graph(self)->graph);
  return status == HR_OK ? Py_NewRef(Py_None) : raise_status(status);
}

PyMethodDef graph_control_methods[] = {
    {"call", add_callee, METH_VARARGS, "call($self, callee, *args)\n--\n\nThe outputs of another graph, a list."},
    {"cond", add_condition, METH_VARARGS,
     "cond($self, condition, then, otherwise, *args)\n--\n\nThe outputs of one of two graphs or functions, a list."},
    {"while_loop", (PyCFunction)(void (*)(void))add_while, METH_VARARGS | METH_KEYWORDS,
     "while_loop($self, condition, body, carried, args=())\n--\n\nThe carried values at the end, and the body's other "
     "outputs stacked."},
    {"for_loop", (PyCFunction)(void (*)(void))add_for, METH_VARARGS | METH_KEYWORDS,
     "for_loop($self, count, body, carried, args=())\n--\n\nAs while_loop, for a number of iterations, which the "
     "body's "
     "first input counts."},
    {"scan", (PyCFunction)(void (*)(void))add_scan, METH_VARARGS | METH_KEYWORDS,
     "scan($self, body, carried, sequences, args=())\n--\n\nAs while_loop, with a slice of each sequence in an "
     "iteration."},
    {"vmap", (PyCFunction)(void (*)(void))map_callee, METH_VARARGS | METH_KEYWORDS,
     "vmap($self, callee, *args, in_axes=0, out_axes=0)\n--\n\nThe outputs of a graph or function for all slices of "
     "its arguments, a list."},
    {"_vmap", add_vmap, METH_VARARGS, NULL},
    {"read", read_numbers, METH_O,
     "read($self, x, /)\n--\n\nIntegers that attributes may be computed from; a run waits."},
    {"variable", (PyCFunction)(void (*)(void))add_variable, METH_VARARGS | METH_KEYWORDS,
     "variable($self, name, value, dtype=None)\n--\n\nA value that a run keeps for the next one."},
    {"assign", assign_variable, METH_VARARGS,
     "assign($self, variable, value)\n--\n\nThe variable's value at the end of a run."},
    {NULL, NULL, 0, NULL}};
