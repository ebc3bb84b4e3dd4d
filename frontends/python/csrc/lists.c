/* lists.c: element-wise functions of lists of arrays, in one record, for headrace/optimizers. */
#include "extension.h"

enum { OPERANDS_MAX = 2 };

/* An operand of all calls: a list with an array for each, or an array or number that all share. */
typedef struct lists {
  hr_functional function;
  Py_ssize_t count;
  int operand_count;
  PyObject *const *operands;
  hr_tensor numbers[OPERANDS_MAX];
  hr_stream *stream; /* of all arrays; NULL: they have several, or none is a list */
} lists;

static hr_functional function_of(PyObject *name) {
  static const struct {
    const char *name;
    hr_functional function;
  } known[] = {{"multiply", HR_FUNCTIONAL_MULTIPLY}, {"add", HR_FUNCTIONAL_ADD},
               {"subtract", HR_FUNCTIONAL_SUBTRACT}, {"divide", HR_FUNCTIONAL_DIVIDE},
               {"square", HR_FUNCTIONAL_SQUARE},     {"sqrt", HR_FUNCTIONAL_SQRT},
               {"maximum", HR_FUNCTIONAL_MAXIMUM}};
  for (size_t i = 0; i < sizeof known / sizeof *known; ++i) {
    if (PyUnicode_CompareWithASCIIString(name, known[i].name) == 0) {
      return known[i].function;
    }
  }
  PyErr_Format(PyExc_ValueError, "_each: no function %R of lists", name);
  return HR_FUNCTIONAL_NONE;
}

/* Operand k of call i; borrowed. */
static PyObject *operand_at(const lists *l, int k, Py_ssize_t i) {
  PyObject *given = l->operands[k];
  return PyList_CheckExact(given) ? PyList_GetItem(given, i) : given;
}

static int measure(lists *l) {
  l->count = -1;
  for (int k = 0; k < l->operand_count; ++k) {
    Py_ssize_t size = PyList_CheckExact(l->operands[k]) ? PyList_Size(l->operands[k]) : l->count;
    if (l->count >= 0 && size != l->count) {
      PyErr_Format(PyExc_ValueError, "_each: lists of %zd and %zd arrays", l->count, size);
      return -1;
    }
    l->count = size;
  }
  if (l->count < 0) {
    PyErr_SetString(PyExc_TypeError, "_each: no operand is a list");
    return -1;
  }
  return 0;
}

/* True if the operand is as all others of one record: a number, or an array with a value on their stream. */
static int take_at(lists *l, int k, Py_ssize_t i, const hr_tensor **out) {
  PyObject *object = operand_at(l, k, i);
  if (is_array(object)) {
    array_object *x = as_array(object);
    *out = &x->tensor;
    l->stream = l->stream == NULL ? x->stream : l->stream;
    return x->stream == l->stream && x->tensor.buffer != NULL;
  }
  hr_scalar number;
  if (PyList_CheckExact(l->operands[k]) || number_from(object, &number) != 1) {
    PyErr_Clear();
    return 0;
  }
  if (i == 0) {
    l->numbers[k] = hr_tensor_number(number);
  }
  *out = &l->numbers[k];
  return 1;
}

/* One call after the other: under a tape or another hook, and for arrays of several streams. */
static PyObject *apply_singly(const lists *l) {
  PyObject *results = PyList_New(l->count);
  for (Py_ssize_t i = 0; results != NULL && i < l->count; ++i) {
    PyObject *x = operand_at(l, 0, i), *y = l->operand_count > 1 ? operand_at(l, 1, i) : NULL;
    bool has_array = is_array(x) || (y != NULL && is_array(y));
    PyObject *result = NULL;
    if (!has_array) {
      PyErr_Format(PyExc_TypeError, "expected an array, not %R", x);
    } else {
      result = y != NULL ? apply_binary(l->function, x, y) : apply_unary(l->function, x);
    }
    if (result == Py_NotImplemented) {
      PyErr_Format(PyExc_TypeError, "expected arrays or numbers, not %R and %R", x, y);
      Py_CLEAR(result);
    }
    if (result == NULL || PyList_SetItem(results, i, result) < 0) {
      Py_CLEAR(results);
    }
  }
  return results;
}

static PyObject *apply_at_once(lists *l, const hr_tensor **inputs, hr_tensor *results) {
  bool are_alike = true;
  for (int k = 0; are_alike && k < l->operand_count; ++k) {
    for (Py_ssize_t i = 0; are_alike && i < l->count; ++i) {
      are_alike = take_at(l, k, i, &inputs[k * l->count + i]);
    }
  }
  if (!are_alike || l->stream == NULL || has_hooks(l->stream)) {
    return apply_singly(l);
  }
  hr_status status = hr_functional_apply_each(l->stream, l->function, (int)l->count, (int)(l->operand_count * l->count),
                                              inputs, results);
  return status == HR_OK ? list_of_tensors(l->stream, l->count, results) : raise_status(status);
}

/* _each(name, x) or _each(name, x, y): the list of name(x[i], y[i]), as one record if it can be one. An operand is a
 * list of arrays, or an array or number for all; at least one is a list. */
static PyObject *apply_each(PyObject *module, PyObject *const *args, Py_ssize_t count) {
  (void)module;
  if (count < 2 || count > 1 + OPERANDS_MAX) {
    return PyErr_Format(PyExc_TypeError, "_each() expects 2 or 3 arguments, not %zd", count);
  }
  lists l = {.function = function_of(args[0]), .operand_count = (int)count - 1, .operands = args + 1};
  if (l.function == HR_FUNCTIONAL_NONE || measure(&l) < 0) {
    return NULL;
  }
  if (l.count == 0) {
    return PyList_New(0);
  }
  const hr_tensor **inputs = PyMem_Malloc((size_t)(l.operand_count * l.count) * sizeof *inputs);
  hr_tensor *results = PyMem_Malloc((size_t)l.count * sizeof *results);
  PyObject *list = inputs != NULL && results != NULL ? apply_at_once(&l, inputs, results) : PyErr_NoMemory();
  PyMem_Free((void *)inputs);
  PyMem_Free(results);
  return list;
}

PyMethodDef list_methods[] = {{"_each", (PyCFunction)(void (*)(void))apply_each, METH_FASTCALL, NULL},
                              {NULL, NULL, 0, NULL}};
