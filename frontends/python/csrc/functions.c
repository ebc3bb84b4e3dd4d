/* functions.c: the functions of headrace/functional.h, from the generated table functions.inc: one parser of arguments
 * for all. */
#include <string.h>

#include "functions.h"

/* ---- which argument belongs to which parameter ---- */

static int find_parameter(const function_row *row, PyObject *name) {
  for (int i = 0; row->parameters[i].name != NULL; ++i) {
    if (PyUnicode_CompareWithASCIIString(name, row->parameters[i].name) == 0) {
      return i;
    }
  }
  PyErr_Format(PyExc_TypeError, "%s() got an unexpected keyword argument %R", row->name, name);
  return -1;
}

static int place_names(call *c, PyObject *const *args, PyObject *names) {
  Py_ssize_t count = names != NULL ? PyTuple_Size(names) : 0;
  for (Py_ssize_t i = 0; i < count; ++i) {
    int at = find_parameter(c->row, PyTuple_GetItem(names, i));
    if (at < 0) {
      return -1;
    }
    if (c->values[at] != NULL) {
      PyErr_Format(PyExc_TypeError, "%s() got multiple values for argument '%s'", c->row->name,
                   c->row->parameters[at].name);
      return -1;
    }
    c->values[at] = args[i];
  }
  return 0;
}

static int place_arguments(call *c, PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names) {
  int parameters = 0, first = self != NULL;
  for (; c->row->parameters[parameters].name != NULL; ++parameters) {
    c->values[parameters] = NULL;
  }
  if (count + first > parameters) {
    PyErr_Format(PyExc_TypeError, "%s() takes at most %d arguments (%zd given)", c->row->name, parameters - first,
                 count);
    return -1;
  }
  c->values[0] = self;
  for (Py_ssize_t i = 0; i < count; ++i) {
    c->values[first + i] = args[i];
  }
  if (place_names(c, args + count, names) < 0) {
    return -1;
  }
  for (int i = 0; i < parameters; ++i) {
    if (c->row->parameters[i].is_required && c->values[i] == NULL) {
      PyErr_Format(PyExc_TypeError, "%s() missing required argument '%s'", c->row->name, c->row->parameters[i].name);
      return -1;
    }
  }
  return 0;
}

/* ---- inputs ---- */

/* The stream of all inputs; `stream` is that of the last one. */
static int check_stream(call *c, hr_stream *stream) {
  if (c->stream == stream || stream == NULL) {
    return 0;
  }
  hr_stream *before = c->stream;
  const hr_tensor *last = c->inputs[c->input_count - 1];
  for (int i = 0; i < c->input_count; ++i) {
    c->stream = join_streams(before, c->inputs[i] != NULL ? c->inputs[i] : last, stream, last);
    if (c->stream == NULL) {
      return -1;
    }
  }
  return 0;
}

static int add_input(call *c, PyObject *object) {
  operand input;
  int takes = c->row->takes_numbers && c->number_count < 4;
  if (c->input_count >= INPUTS_MAX) {
    PyErr_Format(PyExc_ValueError, "%s(): at most %d arrays", c->row->name, (int)INPUTS_MAX);
    return -1;
  }
  if (want_operand(c->row->name, object, takes, &input) < 0) {
    return -1;
  }
  if (input.stream == NULL) {
    hr_tensor *number = &c->numbers[c->number_count++];
    *number = hr_tensor_number(input.number.number);
    input.tensor = number;
  }
  c->owned[c->input_count] = input.owned;
  c->inputs[c->input_count++] = input.tensor;
  return check_stream(c, input.stream);
}

static int add_inputs(call *c, PyObject *sequence) {
  Py_ssize_t count = PySequence_Size(sequence);
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject *entry = PySequence_GetItem(sequence, i);
    int failed = entry == NULL || add_input(c, entry) < 0;
    if (!failed && c->owned[c->input_count - 1] == NULL) {
      c->owned[c->input_count - 1] = entry; /* of the sequence, which may make it */
    } else {
      Py_XDECREF(entry);
    }
    if (failed) {
      return -1;
    }
  }
  return count < 0 ? -1 : 0;
}

/* ---- attributes ---- */

/* A sequence of numbers; the count, or -1 with an exception. */
static int reals_from(PyObject *object, double *out) {
  Py_ssize_t count = PySequence_Size(object);
  if (count > HR_RANK_MAX) {
    PyErr_Format(PyExc_ValueError, "%zd numbers, expected at most %d", count, (int)HR_RANK_MAX);
  }
  for (Py_ssize_t i = 0; i < count && !PyErr_Occurred(); ++i) {
    PyObject *entry = PySequence_GetItem(object, i);
    out[i] = entry != NULL ? PyFloat_AsDouble(entry) : 0;
    Py_XDECREF(entry);
  }
  return PyErr_Occurred() ? -1 : (int)count;
}

/* Integers of any number, which become the first of the call's lists; the count, or -1 with an exception. */
static int take_long_list(call *c, PyObject *value) {
  Py_ssize_t count = PySequence_Size(value);
  if (count > INT32_MAX) {
    PyErr_Format(PyExc_ValueError, "%s(): %zd integers, expected at most %d", c->row->name, count, (int)INT32_MAX);
  }
  if (PyErr_Occurred()) {
    return -1;
  }
  long_list *list = PyMem_Malloc(sizeof *list + ((size_t)count + 1) * sizeof *list->integers);
  if (list == NULL) {
    PyErr_NoMemory();
    return -1;
  }
  list->next = c->long_lists, c->long_lists = list;
  for (Py_ssize_t i = 0; i < count && !PyErr_Occurred(); ++i) {
    PyObject *entry = PySequence_GetItem(value, i);
    list->integers[i] = entry != NULL ? integer_from(entry) : 0;
    Py_XDECREF(entry);
  }
  return PyErr_Occurred() ? -1 : (int)count;
}

static void free_long_lists(call *c) {
  for (long_list *list = c->long_lists; list != NULL; list = c->long_lists) {
    c->long_lists = list->next;
    PyMem_Free(list);
  }
}

int take_attribute(call *c, parameter_kind kind, PyObject *value, hr_attribute *to) {
  to->kind = HR_ATTRIBUTE_NONE;
  if (value == NULL || value == Py_None) {
    return 0;
  }
  switch (kind) {
    case PARAMETER_INT:
      to->kind = HR_ATTRIBUTE_INT, to->value.integer = integer_from(value);
      break;
    case PARAMETER_FLAG:
      to->kind = HR_ATTRIBUTE_FLAG, to->value.integer = PyObject_IsTrue(value);
      break;
    case PARAMETER_REAL:
      to->kind = HR_ATTRIBUTE_REAL;
      if (number_from(value, &to->value.number) == 0) {
        PyErr_Format(PyExc_TypeError, "%s(): %R is no number", c->row->name, value);
      }
      break;
    case PARAMETER_DTYPE:
      to->kind = HR_ATTRIBUTE_DTYPE, to->value.dtype = dtype_from(value);
      break;
    case PARAMETER_TEXT:
      to->kind = HR_ATTRIBUTE_TEXT;
      to->value.text = PyUnicode_Check(value) ? PyUnicode_AsUTF8AndSize(value, NULL) : NULL;
      if (to->value.text == NULL && !PyErr_Occurred()) {
        PyErr_Format(PyExc_TypeError, "%s(): %R is no text", c->row->name, value);
      }
      break;
    case PARAMETER_REALS:
      to->kind = HR_ATTRIBUTE_REALS, to->value.reals = c->lists[c->list_count].reals;
      to->count = reals_from(value, c->lists[c->list_count++].reals);
      break;
    case PARAMETER_LIST:
      to->kind = HR_ATTRIBUTE_INTS;
      to->count = take_long_list(c, value);
      to->value.ints = c->long_lists != NULL ? c->long_lists->integers : NULL;
      break;
    default:
      to->kind = HR_ATTRIBUTE_INTS, to->value.ints = c->lists[c->list_count].integers;
      to->count = integers_from(value, c->lists[c->list_count++].integers);
  }
  return PyErr_Occurred() ? -1 : 0;
}

static int take_values(call *c) {
  for (int i = 0; c->row->parameters[i].name != NULL; ++i) {
    const parameter *p = &c->row->parameters[i];
    PyObject *value = c->values[i];
    int failed;
    if (p->kind == PARAMETER_OPTIONAL && (value == NULL || value == Py_None)) {
      c->owned[c->input_count] = NULL;
      c->inputs[c->input_count++] = NULL;
      continue;
    }
    failed = p->kind <= PARAMETER_OPTIONAL ? add_input(c, value)
             : p->kind <= PARAMETER_STAR   ? add_inputs(c, value)
                                           : take_attribute(c, p->kind, value, &c->attributes[c->attribute_count++]);
    if (failed < 0) {
      return -1;
    }
  }
  if (c->stream == NULL) {
    c->stream = current_stream();
  }
  return c->stream != NULL ? 0 : -1;
}

/* ---- results ---- */

static PyObject *apply_one(call *c) {
  array_object *result = new_array(c->stream);
  if (result == NULL) {
    return NULL;
  }
  hr_status status = hr_functional_apply(c->stream, c->row->function, c->input_count, c->inputs, c->attribute_count,
                                         c->attributes, 1, &result->tensor);
  return (PyObject *)array_or_raise(result, status);
}

static PyObject *apply_to_results(call *c, int count, hr_tensor *results) {
  hr_status status = hr_functional_apply(c->stream, c->row->function, c->input_count, c->inputs, c->attribute_count,
                                         c->attributes, count, results);
  PyObject *tuple = status == HR_OK ? PyTuple_New(count) : raise_status(status);
  for (int i = 0; status == HR_OK && i < count; ++i) {
    array_object *result = tuple != NULL ? new_array(c->stream) : NULL;
    if (result == NULL) {
      hr_tensor_release(&results[i]);
      Py_CLEAR(tuple);
      continue;
    }
    result->tensor = results[i];
    (void)PyTuple_SetItem(tuple, i, (PyObject *)result);
  }
  return tuple;
}

static PyObject *apply_several(call *c) {
  hr_tensor few[FEW_RESULTS], *results = few;
  int count = c->row->result_count;
  if (count <= 0) {
    hr_status status = hr_functional_result_count(c->row->function, c->input_count, c->inputs, c->attribute_count,
                                                  c->attributes, &count);
    results = status == HR_OK ? PyMem_Malloc(((size_t)count + 1) * sizeof *results) : NULL;
    if (results == NULL) {
      return status == HR_OK ? PyErr_NoMemory() : raise_status(status);
    }
  }
  PyObject *tuple = apply_to_results(c, count, results), *list = NULL;
  if (c->row->result_count == 0 && tuple != NULL) {
    list = PySequence_List(tuple);
    Py_DECREF(tuple);
  }
  if (results != few) {
    PyMem_Free(results);
  }
  return c->row->result_count == 0 ? list : tuple;
}

/* ---- operators ---- */

PyObject *apply_unary(hr_functional function, PyObject *object) {
  array_object *x = as_array(object), *result = new_array(x->stream);
  if (result == NULL) {
    return NULL;
  }
  const hr_tensor *input = &x->tensor;
  hr_status status = hr_functional_apply(x->stream, function, 1, &input, 0, NULL, 1, &result->tensor);
  return (PyObject *)array_or_raise(result, status);
}

static PyObject *apply_to(hr_functional function, hr_stream *stream, const hr_tensor *x, const hr_tensor *y) {
  array_object *result = new_array(stream);
  if (result == NULL) {
    return NULL;
  }
  const hr_tensor *inputs[2] = {x, y};
  hr_status status = hr_functional_apply(stream, function, 2, inputs, 0, NULL, 1, &result->tensor);
  return (PyObject *)array_or_raise(result, status);
}

/* A number beside an array gets a dtype of its own, if MLX's rules give it one. */
static int give_dtype(operand *number, PyObject *object, const operand *beside) {
  hr_dtype dtype;
  int gets = mlx_number_dtype(&number->number.number, beside->tensor, &dtype);
  array_object *made = gets > 0 ? array_from(object, dtype, beside->stream, 1) : NULL;
  if (made != NULL) {
    *number = (operand){.tensor = &made->tensor, .stream = made->stream, .owned = (PyObject *)made};
  }
  return gets == 0 || made != NULL ? 0 : -1;
}

static int give_dtypes(PyObject *left, operand *x, PyObject *right, operand *y) {
  return x->stream == NULL && y->stream != NULL   ? give_dtype(x, left, y)
         : y->stream == NULL && x->stream != NULL ? give_dtype(y, right, x)
                                                  : 0;
}

static int take_any(PyObject *object, operand *out) {
  int found = take_operand(object, out);
  return found == 0 && follows_mlx ? take_foreign(object, out) : found;
}

/* At least one of the two is an array. */
static PyObject *apply_mixed(hr_functional function, PyObject *left, PyObject *right) {
  operand x, y;
  int found = take_any(left, &x);
  if (found <= 0) {
    return found < 0 ? NULL : refuse_operand(function, left);
  }
  found = take_any(right, &y);
  PyObject *result = NULL;
  if (found == 0) {
    result = refuse_operand(function, right);
  } else if (found == 1 && (!follows_mlx || give_dtypes(left, &x, right, &y) == 0)) {
    hr_stream *stream = join_streams(x.stream, x.tensor, y.stream, y.tensor);
    result = stream != NULL ? apply_to(function, stream, x.tensor, y.tensor) : NULL;
  }
  Py_XDECREF(x.owned);
  if (found == 1) {
    Py_XDECREF(y.owned);
  }
  return result;
}

/* On the arrays as f32. */
static PyObject *apply_as_f32(hr_functional function, PyObject *left, PyObject *right) {
  PyObject *x = convert_array(as_array(left), HR_DTYPE_F32), *y = convert_array(as_array(right), HR_DTYPE_F32);
  PyObject *result = x != NULL && y != NULL ? apply_mixed(function, x, y) : NULL;
  Py_XDECREF(x);
  Py_XDECREF(y);
  return result;
}

PyObject *apply_binary(hr_functional function, PyObject *left, PyObject *right) {
  if (__builtin_expect(follows_mlx, 0) && mlx_promotes(left, right)) {
    return apply_as_f32(function, left, right);
  }
  if (is_array(left) && is_array(right) && as_array(left)->stream == as_array(right)->stream) {
    return apply_to(function, as_array(left)->stream, &as_array(left)->tensor, &as_array(right)->tensor);
  }
  return apply_mixed(function, left, right);
}

/* ---- functions ---- */

static PyObject *call_any(const function_row *row, PyObject *self, PyObject *const *args, Py_ssize_t count,
                          PyObject *names) {
  call c;
  c.row = row, c.stream = NULL;
  c.input_count = c.attribute_count = c.number_count = c.list_count = 0;
  c.long_lists = NULL;
  if (place_arguments(&c, self, args, count, names) < 0) {
    return NULL;
  }
  PyObject *result = NULL;
  if (take_values(&c) == 0) {
    result = row->result_count == 1 ? apply_one(&c) : apply_several(&c);
  } else if (takes_values(&c)) { /* of a graph: no arrays, so that arrays pay nothing for graphs */
    result = call_on_graph(&c);
  }
  for (int i = 0; i < c.input_count; ++i) {
    Py_XDECREF(c.owned[i]);
  }
  free_long_lists(&c);
  return result;
}

/* All positional arguments are one: their tuple. */
static PyObject *call_starred(const function_row *row, PyObject *const *args, Py_ssize_t count, PyObject *names) {
  PyObject *values[1 + PARAMETERS_MAX];
  Py_ssize_t named = names != NULL ? PyTuple_Size(names) : 0;
  if (named > PARAMETERS_MAX) {
    return PyErr_Format(PyExc_TypeError, "%s() got %zd keyword arguments", row->name, named);
  }
  values[0] = PyTuple_New(count);
  for (Py_ssize_t i = 0; values[0] != NULL && i < count; ++i) {
    (void)PyTuple_SetItem(values[0], i, Py_NewRef(args[i]));
  }
  for (Py_ssize_t i = 0; i < named; ++i) {
    values[1 + i] = args[count + i];
  }
  PyObject *result = values[0] != NULL ? call_any(row, NULL, values, 1, names) : NULL;
  Py_XDECREF(values[0]);
  return result;
}

/* Arrays alone, by position: as operators. Everything else is parsed. */
static PyObject *call_function(const function_row *row, PyObject *self, PyObject *const *args, Py_ssize_t count,
                               PyObject *names) {
  const parameter *p = row->parameters;
  bool is_plain = self == NULL && names == NULL && row->result_count == 1 && p[0].kind == PARAMETER_INPUT;
  bool takes_two = p[0].name != NULL && p[1].name != NULL && p[1].kind == PARAMETER_INPUT && p[2].name == NULL;
  if (is_plain && takes_two && count == 2 && is_array(args[0]) && is_array(args[1])) {
    return apply_binary(row->function, args[0], args[1]);
  }
  if (is_plain && count == 1 && p[1].name == NULL && is_array(args[0])) {
    return apply_unary(row->function, args[0]);
  }
  return p[0].kind == PARAMETER_STAR ? call_starred(row, args, count, names) : call_any(row, self, args, count, names);
}

/* ---- the table ---- */

#define FUNCTION(NAME)                                                                                           \
  static PyObject *function_##NAME(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *names) { \
    (void)module;                                                                                                \
    return call_function(&rows[HR_FUNCTIONAL_##NAME], NULL, args, count, names);                                 \
  }
#define METHOD(NAME)                                                                                         \
  static PyObject *method_##NAME(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names) { \
    return call_function(&rows[HR_FUNCTIONAL_##NAME], self, args, count, names);                             \
  }
#define ENTRY(prefix, NAME, name, doc) \
  {name, (PyCFunction)(void (*)(void))prefix##_##NAME, METH_FASTCALL | METH_KEYWORDS, doc},
#include "functions.inc"
