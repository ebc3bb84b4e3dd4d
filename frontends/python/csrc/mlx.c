/* mlx.c: the rules of MLX that differ from Headrace's own, for processes that import headrace.mlx (docs/mlx.md):
 *
 * - Integers of Python are int32 if they fit, and numpy's float64 becomes float32. uint64 beside a signed integer
 *   becomes float32.
 * - x += y changes the object x. An operand that is neither an array nor a number is a ValueError.
 * - Errors that are IndexError and TypeError here are ValueError, too.
 */
#include <string.h>

#include "extension.h"

bool follows_mlx;

static PyObject *index_error, *type_error;

PyObject *mlx_exception(PyObject *type) {
  PyObject *both = type == PyExc_IndexError ? index_error : type_error;
  return follows_mlx && both != NULL ? both : type;
}

static bool is_narrow(const hr_scalar *number) {
  return number->value.i == (int32_t)number->value.i;
}

hr_dtype mlx_default_dtype(hr_dtype scalar, bool is_wide) {
  return follows_mlx && scalar == HR_DTYPE_I64 && !is_wide ? HR_DTYPE_I32 : scalar;
}

int mlx_number_dtype(const hr_scalar *number, const hr_tensor *beside, hr_dtype *out_dtype) {
  if (number->dtype != HR_DTYPE_I64) {
    return 0;
  }
  bool holds_less = beside->dtype == HR_DTYPE_I8 || beside->dtype == HR_DTYPE_I16 || beside->dtype == HR_DTYPE_I32;
  if (holds_less && !is_narrow(number)) {
    PyErr_Format(PyExc_ValueError, "%lld beside an array of %s, expected an integer that int32 holds",
                 (long long)number->value.i, python_name(beside->dtype));
    return -1;
  }
  *out_dtype = mlx_default_dtype(HR_DTYPE_I64, !is_narrow(number));
  return beside->dtype == HR_DTYPE_BOOL;
}

static bool is_signed(hr_dtype dtype) {
  return dtype == HR_DTYPE_I8 || dtype == HR_DTYPE_I16 || dtype == HR_DTYPE_I32 || dtype == HR_DTYPE_I64;
}

bool mlx_promotes(PyObject *left, PyObject *right) {
  if (!is_array(left) || !is_array(right)) {
    return false;
  }
  hr_dtype x = as_array(left)->tensor.dtype, y = as_array(right)->tensor.dtype;
  return (x == HR_DTYPE_U64 && is_signed(y)) || (y == HR_DTYPE_U64 && is_signed(x));
}

int take_foreign(PyObject *object, operand *out) {
  if (PyBytes_Check(object) || PyByteArray_Check(object) || !has_dtype(object)) {
    return 0;
  }
  array_object *made = array_from(object, HR_DTYPE_NONE, current_stream(), 1);
  if (made != NULL) {
    *out = (operand){.tensor = &made->tensor, .stream = made->stream, .owned = (PyObject *)made};
  }
  return made != NULL ? 1 : -1;
}

/* Objects of other classes may have operators of their own. */
static bool is_plain(PyObject *object) {
  return object == Py_None || PyUnicode_CheckExact(object) || PyList_CheckExact(object) || PyTuple_CheckExact(object) ||
         PyDict_CheckExact(object) || PyBytes_CheckExact(object);
}

PyObject *refuse_operand(hr_functional function, PyObject *object) {
  bool is_equality = function == HR_FUNCTIONAL_EQUAL || function == HR_FUNCTIONAL_NOT_EQUAL;
  if (!follows_mlx || is_equality || is_value(object) || !is_plain(object)) {
    Py_RETURN_NOTIMPLEMENTED;
  }
  return PyErr_Format(PyExc_ValueError, "%R is neither an array nor a number", object);
}

PyObject *assign_result(PyObject *x, PyObject *result) {
  if (result == NULL || !is_array(result)) {
    return result;
  }
  array_object *to = as_array(x), *from = as_array(result);
  hr_buffer_retain(from->tensor.buffer);
  hr_buffer_release(to->tensor.buffer);
  bool moves = to->stream != from->stream;
  to->tensor = from->tensor, to->stream = from->stream;
  Py_DECREF(result);
  return moves && note_traced(to) < 0 ? NULL : Py_NewRef(x);
}

/* x and y are arrays: x becomes y. */
static PyObject *assign(PyObject *module, PyObject *args) {
  (void)module;
  PyObject *x, *y;
  if (!PyArg_ParseTuple(args, "O!O!", array_type, &x, array_type, &y)) {
    return NULL;
  }
  return assign_result(x, Py_NewRef(y));
}

/* The shape of x's elements as elements of another dtype: the last dim has as many bytes. */
static int dims_of_bits(const hr_tensor *x, hr_dtype dtype, int64_t *out_dims) {
  size_t from = hr_dtype_size(x->dtype), to = hr_dtype_size(dtype);
  memcpy(out_dims, x->dims, (size_t)x->rank * sizeof *out_dims);
  if (from == to) {
    return 0;
  }
  int64_t bytes = x->rank > 0 ? x->dims[x->rank - 1] * (int64_t)from : -1;
  if (bytes < 0 || bytes % (int64_t)to != 0) {
    PyErr_Format(PyExc_ValueError, "view: %s as %s, expected a last dim that is a multiple of %zu bytes",
                 python_name(x->dtype), python_name(dtype), to);
    return -1;
  }
  out_dims[x->rank - 1] = bytes / (int64_t)to;
  return 0;
}

/* Waits: the bytes pass through the host. */
static PyObject *bits(PyObject *module, PyObject *args) {
  (void)module;
  PyObject *object, *name;
  if (!PyArg_ParseTuple(args, "O!O", array_type, &object, &name)) {
    return NULL;
  }
  array_object *x = as_array(object);
  hr_dtype dtype = dtype_from(name);
  int64_t dims[HR_RANK_MAX];
  if (dtype == HR_DTYPE_NONE || refuse_traced(x) < 0 || dims_of_bits(&x->tensor, dtype, dims) < 0) {
    return NULL;
  }
  size_t bytes = (size_t)hr_tensor_count(&x->tensor) * hr_dtype_size(x->tensor.dtype);
  void *elements = PyMem_Malloc(bytes + 1);
  array_object *result = elements != NULL ? new_array(x->stream) : (array_object *)PyErr_NoMemory();
  hr_status status = result != NULL && bytes > 0 ? hr_array_read(x->stream, &x->tensor, elements) : HR_OK;
  if (result != NULL && status == HR_OK) {
    status = hr_array_from_host(x->stream, dtype, x->tensor.rank, dims, elements, &result->tensor);
  }
  PyMem_Free(elements);
  return (PyObject *)array_or_raise(result, status);
}

static PyObject *exception_of_both(const char *name, PyObject *type) {
  PyObject *bases = PyTuple_Pack(2, type, PyExc_ValueError);
  PyObject *made = bases != NULL ? PyErr_NewException(name, bases, NULL) : NULL;
  Py_XDECREF(bases);
  return made;
}

static PyObject *follow_mlx(PyObject *module, PyObject *unused) {
  (void)module, (void)unused;
  if (!follows_mlx) {
    index_error = exception_of_both("headrace.mlx.IndexError", PyExc_IndexError);
    type_error = exception_of_both("headrace.mlx.TypeError", PyExc_TypeError);
    if (index_error == NULL || type_error == NULL) {
      return NULL;
    }
    follows_mlx = true;
  }
  Py_RETURN_NONE;
}

PyMethodDef mlx_methods[] = {
    {"_follow_mlx", follow_mlx, METH_NOARGS, "_follow_mlx()\n--\n\nFrom now on the rules of MLX hold: headrace/mlx."},
    {"_assign", assign, METH_VARARGS, "_assign(x, y)\n--\n\nThe object x becomes the array y."},
    {"_bits", bits, METH_VARARGS, "_bits(x, dtype)\n--\n\nThe bytes of x as another dtype; waits."},
    {NULL, NULL, 0, NULL}};
