/* indexing.c: x[...] and x[...] = v by integers, slices, None and Ellipsis; x[indices] by one array of integers. */
#include <limits.h>

#include "extension.h"

/* A slice's bound: integers beyond 64 bits are beyond every array, too. */
static int take_bound(PyObject *bound, bool *has, int64_t *out) {
  *has = bound != Py_None;
  if (!*has) {
    return 0;
  }
  PyObject *index = PyNumber_Index(bound);
  int overflow = 0;
  *out = index != NULL ? PyLong_AsLongLongAndOverflow(index, &overflow) : -1;
  Py_XDECREF(index);
  *out = overflow > 0 ? LLONG_MAX : overflow < 0 ? LLONG_MIN : *out;
  return overflow == 0 && *out == -1 && PyErr_Occurred() ? -1 : 0;
}

static int take_slice(PyObject *slice, hr_index *out) {
  static const char *const names[] = {"start", "stop", "step"};
  bool has[3];
  int64_t values[3] = {0, 0, 1};
  for (int i = 0; i < 3; ++i) {
    PyObject *bound = PyObject_GetAttrString(slice, names[i]);
    int failed = bound == NULL || take_bound(bound, &has[i], &values[i]) < 0;
    Py_XDECREF(bound);
    if (failed) {
      return -1;
    }
  }
  *out = (hr_index){HR_INDEX_SLICE, has[0], has[1], values[0], values[1], has[2] ? values[2] : 1};
  return 0;
}

static int take_index(PyObject *key, hr_index *out) {
  *out = (hr_index){.kind = HR_INDEX_AT};
  if (key == Py_None || key == Py_Ellipsis) {
    out->kind = key == Py_None ? HR_INDEX_NEW : HR_INDEX_REST;
    return 0;
  }
  if (PySlice_Check(key)) {
    return take_slice(key, out);
  }
  bool is_bool = key == Py_True || key == Py_False;
  if (is_bool || !PyIndex_Check(key) || (is_array(key) && as_array(key)->tensor.rank > 0)) {
    PyErr_SetString(PyExc_IndexError,
                    "only integers, slices (`:`), ellipsis (`...`), None and a single array of integers are valid "
                    "indices");
    return -1;
  }
  out->begin = integer_from(key);
  if (out->begin == -1 && PyErr_Occurred()) {
    if (PyErr_ExceptionMatches(PyExc_OverflowError)) {
      PyErr_Clear();
      PyErr_Format(PyExc_IndexError, "index %R is out of bounds", key);
    }
    return -1;
  }
  return 0;
}

enum { KEYS_MAX = 2 * HR_RANK_MAX + 1 };

/* The number of indices; -1 with an exception. */
static int take_key(PyObject *key, hr_index *out) {
  if (!PyTuple_Check(key)) {
    return take_index(key, out) < 0 ? -1 : 1;
  }
  Py_ssize_t count = PyTuple_Size(key);
  if (count > KEYS_MAX) {
    PyErr_SetString(PyExc_IndexError, "too many indices for array");
    return -1;
  }
  for (Py_ssize_t i = 0; i < count; ++i) {
    if (take_index(PyTuple_GetItem(key, i), &out[i]) < 0) {
      return -1;
    }
  }
  return (int)count;
}

static PyObject *view_at(array_object *x, int count, const hr_index *indices) {
  array_object *view = new_array(x->stream);
  hr_status status = view != NULL ? hr_array_index(&x->tensor, count, indices, &view->tensor) : HR_OK;
  return (PyObject *)array_or_raise(view, status);
}

/* The rows of x at an array or a list of integers. */
static PyObject *take_rows(PyObject *self, PyObject *key) {
  operand rows;
  if (want_operand("index", key, 0, &rows) < 0) {
    return NULL;
  }
  PyObject *result = NULL;
  if (rows.tensor->dtype == HR_DTYPE_BOOL || as_array(self)->tensor.rank == 0) {
    PyErr_SetString(PyExc_IndexError, "masks are not supported as indices: use where()");
  } else {
    array_object *made = new_array(as_array(self)->stream);
    const hr_tensor *inputs[2] = {&as_array(self)->tensor, rows.tensor};
    hr_status status =
        made == NULL ? HR_OK
                     : hr_functional_apply(made->stream, HR_FUNCTIONAL_TAKE, 2, inputs, 0, NULL, 1, &made->tensor);
    result = (PyObject *)array_or_raise(made, status);
  }
  Py_XDECREF(rows.owned);
  return result;
}

/* A list, or an array with dims, of this type or another one: numpy.int64 has a buffer, too, but is no sequence. */
static bool is_rows(PyObject *key) {
  if (PyList_Check(key) || is_array(key)) {
    return PyList_Check(key) || as_array(key)->tensor.rank > 0;
  }
  bool may_be = !PyBytes_Check(key) && PyObject_CheckBuffer(key) && PySequence_Check(key);
  bool has_dims = may_be && PySequence_Size(key) >= 0;
  PyErr_Clear();
  return has_dims;
}

PyObject *get_item(PyObject *self, PyObject *key) {
  hr_index indices[KEYS_MAX];
  if (is_rows(key)) {
    return take_rows(self, key);
  }
  int count = take_key(key, indices);
  return count < 0 ? NULL : view_at(as_array(self), count, indices);
}

PyObject *get_row(PyObject *self, Py_ssize_t i) {
  hr_index index = {.kind = HR_INDEX_AT, .begin = i};
  return view_at(as_array(self), 1, &index);
}

int set_item(PyObject *self, PyObject *key, PyObject *value) {
  array_object *x = as_array(self);
  hr_index indices[KEYS_MAX];
  if (value == NULL) {
    PyErr_SetString(PyExc_TypeError, "elements of an array can't be deleted");
    return -1;
  }
  int count = take_key(key, indices);
  operand from;
  if (count < 0 || want_operand("array", value, 1, &from) < 0) {
    return -1;
  }
  hr_status status = from.stream != NULL && from.stream != x->stream
                         ? hr_status_make(HR_STATUS_INVALID_ARGUMENT, "arrays of two devices in one operation")
                         : hr_array_assign(x->stream, &x->tensor, count, indices, from.tensor);
  Py_XDECREF(from.owned);
  if (status != HR_OK) {
    raise_status(status);
    return -1;
  }
  return 0;
}
