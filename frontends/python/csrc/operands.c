/* operands.c: Python's objects as operands of functions. */
#include "extension.h"

/* ---- numbers ---- */

static int integer_number(PyObject *object, hr_scalar *out) {
  int overflow;
  long long value = PyLong_AsLongLongAndOverflow(object, &overflow);
  if (overflow == 0) {
    *out = hr_scalar_i64(value);
    return value == -1 && PyErr_Occurred() ? -1 : 1;
  }
  unsigned long long wide = overflow > 0 ? PyLong_AsUnsignedLongLong(object) : ULLONG_MAX;
  if (overflow < 0 || PyErr_Occurred()) {
    PyErr_Clear();
    PyErr_SetString(PyExc_OverflowError, "Python integer too large for 64 bits");
    return -1;
  }
  *out = hr_scalar_u64(wide);
  return 1;
}

int number_from(PyObject *object, hr_scalar *out) {
  if (PyFloat_Check(object)) {
    *out = hr_scalar_f64(PyFloat_AsDouble(object));
    return 1;
  }
  if (object == Py_True || object == Py_False) {
    *out = hr_scalar_bool(object == Py_True);
    return 1;
  }
  if (PyLong_Check(object)) {
    return integer_number(object, out);
  }
  if (PyComplex_Check(object)) {
    *out = hr_scalar_c128(PyComplex_RealAsDouble(object), PyComplex_ImagAsDouble(object));
    return 1;
  }
  return 0;
}

int64_t integer_from(PyObject *object) {
  PyObject *index = PyNumber_Index(object);
  long long value = index != NULL ? PyLong_AsLongLong(index) : -1;
  Py_XDECREF(index);
  return value;
}

int integers_from(PyObject *object, int64_t *out) {
  if (PyIndex_Check(object) && !(is_array(object) && as_array(object)->tensor.rank > 0)) {
    out[0] = integer_from(object);
    return out[0] == -1 && PyErr_Occurred() ? -1 : 1;
  }
  Py_ssize_t count = PySequence_Size(object);
  if (count < 0 || count > HR_RANK_MAX) {
    if (count > HR_RANK_MAX) {
      PyErr_Format(PyExc_ValueError, "%zd integers, expected at most %d", count, (int)HR_RANK_MAX);
    }
    return -1;
  }
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject *entry = PySequence_GetItem(object, i);
    out[i] = entry != NULL ? integer_from(entry) : -1;
    Py_XDECREF(entry);
    if (out[i] == -1 && PyErr_Occurred()) {
      return -1;
    }
  }
  return (int)count;
}

/* ---- operands ---- */

static int take_number(PyObject *object, operand *out) {
  hr_scalar number;
  int found = number_from(object, &number);
  if (found == 1) {
    out->number = hr_tensor_number(number);
    out->tensor = &out->number;
    out->stream = NULL;
  }
  return found;
}

static int take_new(array_object *made, operand *out) {
  if (made == NULL) {
    return -1;
  }
  out->owned = (PyObject *)made;
  out->tensor = &made->tensor;
  out->stream = made->stream;
  return 1;
}

int take_operand(PyObject *object, operand *out) {
  out->owned = NULL;
  if (is_array(object)) {
    out->tensor = &as_array(object)->tensor;
    out->stream = as_array(object)->stream;
    return 1;
  }
  int found = take_number(object, out);
  if (found != 0 || PyBytes_Check(object) || PyByteArray_Check(object) || !PyObject_CheckBuffer(object)) {
    return found;
  }
  return take_new(array_from_buffer(object, current_stream(), 1), out);
}

int want_operand(const char *function, PyObject *object, int takes_numbers, operand *out) {
  int found = take_operand(object, out);
  if (found == 1 && out->stream == NULL && !takes_numbers) {
    return take_new(array_from(object, HR_DTYPE_NONE, current_stream(), 1), out);
  }
  if (found != 0) {
    return found;
  }
  if (PyList_Check(object) || PyTuple_Check(object)) {
    return take_new(array_from(object, HR_DTYPE_NONE, current_stream(), 1), out);
  }
  PyErr_Format(PyExc_TypeError, "%s() expects arrays and numbers, not %R", function, object);
  return -1;
}
