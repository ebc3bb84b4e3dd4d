/* graph_calls.c: functions of the table on values of a graph, by the parser of arguments of functions.c.
 *
 * An argument that is a number for arrays may be a value: integers that the graph computes on the host when it is
 * instantiated. In lists of integers, a text is the name of a symbol.
 */
#include <string.h>

#include "functions.h"

typedef struct graph_call {
  const call *of;
  graph_object *owner;
  int input_count, attribute_count;
  hr_value inputs[INPUTS_MAX];
  hr_graph_attribute attributes[PARAMETERS_MAX];
  graph_integers integers[PARAMETERS_MAX];
} graph_call;

/* ---- the graph of the arguments ---- */

static graph_object *owner_of(PyObject *object) {
  if (object == NULL || is_value(object)) {
    return object != NULL ? ((value_object *)object)->owner : NULL;
  }
  bool is_list = PyList_Check(object);
  Py_ssize_t count = is_list ? PyList_Size(object) : PyTuple_Check(object) ? PyTuple_Size(object) : 0;
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject *entry = is_list ? PyList_GetItem(object, i) : PyTuple_GetItem(object, i);
    if (is_value(entry)) {
      return ((value_object *)entry)->owner;
    }
  }
  return NULL;
}

static graph_object *owner_of_call(const call *c) {
  graph_object *owner = NULL;
  for (int i = 0; owner == NULL && c->row->parameters[i].name != NULL; ++i) {
    owner = owner_of(c->values[i]);
  }
  return owner;
}

bool takes_values(const call *c) {
  return owner_of_call(c) != NULL;
}

/* ---- integers ---- */

/* The size of the dims with a symbol. Dims that depend on symbols in another way have a text, too. */
static hr_value symbol_of(graph_object *owner, PyObject *name) {
  const char *text = PyUnicode_AsUTF8AndSize(name, NULL);
  bool is_known = false;
  for (int i = 0; text != NULL && i < hr_graph_symbol_count(owner->graph); ++i) {
    is_known |= strcmp(hr_graph_symbol_name(owner->graph, i), text) == 0;
  }
  if (text != NULL && !is_known) {
    PyErr_Format(PyExc_ValueError,
                 "\"%s\" is no symbol of the graph: use graph.shape(x)[d] for a dim that depends on symbols", text);
  }
  hr_value value = is_known ? hr_graph_symbol(owner->graph, text) : 0;
  if (is_known && value == 0) {
    raise_of_graph(owner);
  }
  return value;
}

static int take_entry(graph_object *owner, PyObject *entry, int i, graph_integers *to) {
  bool is_symbol = PyUnicode_Check(entry);
  to->values[i] = 0, to->numbers[i] = 0;
  if (!is_symbol && !is_value(entry)) {
    to->numbers[i] = integer_from(entry);
    return to->numbers[i] == -1 && PyErr_Occurred() ? -1 : 0;
  }
  to->has_values = true;
  to->values[i] = is_symbol ? symbol_of(owner, entry) : value_from(owner, entry, false);
  return to->values[i] != 0 ? 0 : -1;
}

static int take_entries(graph_object *owner, PyObject *sequence, graph_integers *to) {
  Py_ssize_t count = PySequence_Size(sequence);
  if (count > HR_RANK_MAX) {
    PyErr_Format(PyExc_ValueError, "%zd integers, expected at most %d", count, (int)HR_RANK_MAX);
    return -1;
  }
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject *entry = PySequence_GetItem(sequence, i);
    int failed = entry == NULL || take_entry(owner, entry, (int)i, to) < 0;
    Py_XDECREF(entry);
    if (failed) {
      return -1;
    }
  }
  return (int)count;
}

int graph_integers_from(graph_object *owner, PyObject *object, const char *name, graph_integers *to,
                        hr_graph_attribute *out) {
  *out = (hr_graph_attribute){.name = name, .value = {.kind = HR_ATTRIBUTE_INTS}};
  to->has_values = false;
  hr_type type;
  if (is_value(object)) {
    hr_value value = value_from(owner, object, false);
    hr_status status = value != 0 ? hr_graph_type(owner->graph, value, &type) : HR_OK;
    if (status != HR_OK) {
      raise_status(status);
    }
    if (PyErr_Occurred()) {
      return -1;
    }
    if (type.rank > 0) {
      out->list = value;
      return 0;
    }
  }
  bool is_one = is_value(object) || PyUnicode_Check(object) || PyIndex_Check(object);
  int count = is_one ? (take_entry(owner, object, 0, to) == 0 ? 1 : -1) : take_entries(owner, object, to);
  out->value.count = count, out->value.value.ints = to->numbers;
  out->values = to->has_values ? to->values : NULL;
  return count < 0 ? -1 : 0;
}

/* ---- calls ---- */

/* Attributes that are computed: a value in the place of a number. */
static int take_computed(graph_call *g, const parameter *p, PyObject *value) {
  hr_graph_attribute *to = &g->attributes[g->attribute_count];
  graph_integers *room = &g->integers[g->attribute_count];
  room->values[0] = value_from(g->owner, value, false);
  if (room->values[0] == 0) {
    return -1;
  }
  *to = (hr_graph_attribute){.name = p->name, .values = room->values};
  to->value.kind = p->kind == PARAMETER_REAL ? HR_ATTRIBUTE_REAL : HR_ATTRIBUTE_INT;
  if (p->kind == PARAMETER_REAL) {
    to->value.value.number = hr_scalar_f64(0);
  }
  ++g->attribute_count;
  return 0;
}

static int take_graph_attribute(graph_call *g, call *c, const parameter *p, PyObject *value) {
  hr_graph_attribute *to = &g->attributes[g->attribute_count];
  if (value == NULL || value == Py_None) {
    return 0;
  }
  if (is_value(value) && (p->kind == PARAMETER_INT || p->kind == PARAMETER_REAL)) {
    return take_computed(g, p, value);
  }
  bool is_list = p->kind == PARAMETER_INTS || (p->kind == PARAMETER_LIST && owner_of(value) != NULL);
  if (is_list) {
    int result = graph_integers_from(g->owner, value, p->name, &g->integers[g->attribute_count], to);
    g->attribute_count += result == 0;
    return result;
  }
  *to = (hr_graph_attribute){.name = p->name};
  ++g->attribute_count;
  return take_attribute(c, p->kind, value, &to->value);
}

static int add_graph_input(graph_call *g, PyObject *object) {
  if (g->input_count >= INPUTS_MAX) {
    PyErr_Format(PyExc_ValueError, "%s(): at most %d arrays", g->of->row->name, (int)INPUTS_MAX);
    return -1;
  }
  hr_value value = value_from(g->owner, object, g->of->row->takes_numbers);
  if (value < 0) {
    PyErr_Format(PyExc_TypeError, "%s() expects values, arrays and numbers, not %R", g->of->row->name, object);
  }
  g->inputs[g->input_count++] = value;
  return value > 0 ? 0 : -1;
}

static int add_graph_inputs(graph_call *g, PyObject *sequence) {
  Py_ssize_t count = PySequence_Size(sequence);
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject *entry = PySequence_GetItem(sequence, i);
    int failed = entry == NULL || add_graph_input(g, entry) < 0;
    Py_XDECREF(entry);
    if (failed) {
      return -1;
    }
  }
  return count < 0 ? -1 : 0;
}

static int take_graph_values(graph_call *g, call *c) {
  for (int i = 0; c->row->parameters[i].name != NULL; ++i) {
    const parameter *p = &c->row->parameters[i];
    PyObject *value = c->values[i];
    if (p->kind == PARAMETER_OPTIONAL && (value == NULL || value == Py_None)) {
      g->inputs[g->input_count++] = 0;
      continue;
    }
    int failed = p->kind <= PARAMETER_OPTIONAL ? add_graph_input(g, value)
                 : p->kind <= PARAMETER_STAR   ? add_graph_inputs(g, value)
                                               : take_graph_attribute(g, c, p, value);
    if (failed < 0) {
      return -1;
    }
  }
  return 0;
}

/* One value, a tuple, or a list, as of arrays. */
static PyObject *results_of(graph_object *owner, hr_value first, int wanted) {
  if (first == 0 || wanted == 1) {
    return new_value(owner, first);
  }
  int count = hr_graph_result_count(owner->graph, first);
  PyObject *tuple = PyTuple_New(count), *list = NULL;
  for (int i = 0; tuple != NULL && i < count; ++i) {
    PyObject *value = new_value(owner, first + i);
    if (value == NULL || PyTuple_SetItem(tuple, i, value) < 0) {
      Py_CLEAR(tuple);
    }
  }
  if (wanted == 0 && tuple != NULL) {
    list = PySequence_List(tuple);
    Py_DECREF(tuple);
  }
  return wanted == 0 ? list : tuple;
}

PyObject *call_on_graph(call *c) {
  graph_call g = {.of = c, .owner = owner_of_call(c)};
  PyErr_Clear();
  c->list_count = c->attribute_count = 0;
  if (take_graph_values(&g, c) < 0) {
    return NULL;
  }
  hr_value first =
      hr_graph_add(g.owner->graph, c->row->function, g.input_count, g.inputs, g.attribute_count, g.attributes);
  return results_of(g.owner, first, c->row->result_count);
}

PyObject *add_call(graph_object *owner, hr_functional function, int input_count, const hr_value *inputs,
                   int attribute_count, const hr_graph_attribute *attributes) {
  return new_value(owner, hr_graph_add(owner->graph, function, input_count, inputs, attribute_count, attributes));
}

/* ---- operators ---- */

PyObject *graph_unary(hr_functional function, PyObject *x) {
  return add_call(((value_object *)x)->owner, function, 1, &((value_object *)x)->value, 0, NULL);
}

PyObject *graph_binary(hr_functional function, PyObject *left, PyObject *right) {
  graph_object *owner = ((value_object *)(is_value(left) ? left : right))->owner;
  bool takes_numbers = function != HR_FUNCTIONAL_MATMUL;
  hr_value inputs[2] = {value_from(owner, left, takes_numbers), 0};
  inputs[1] = inputs[0] > 0 ? value_from(owner, right, takes_numbers) : 0;
  if (inputs[0] < 0 || inputs[1] < 0) {
    Py_RETURN_NOTIMPLEMENTED;
  }
  return inputs[1] != 0 ? add_call(owner, function, 2, inputs, 0, NULL) : NULL;
}
