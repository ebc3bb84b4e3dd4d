/* arrays.c: the type of arrays: life, attributes, operators, text. */
#include <stddef.h>
#include <string.h>

#include "extension.h"

#include <structmember.h>

/* ---- life: objects that were dropped are used again ---- */

enum { FREE_MAX = 256 };

static struct {
  array_object *objects[FREE_MAX];
  int count;
} dropped;

array_object *new_array(hr_stream *stream) {
  release_owners();
  array_object *x;
  if (dropped.count > 0) {
    x = dropped.objects[--dropped.count];
    (void)PyObject_Init((PyObject *)x, array_type);
  } else {
    x = PyObject_New(array_object, array_type);
    if (x == NULL) {
      return NULL;
    }
  }
  x->stream = stream;
  x->weak = NULL;
  x->tensor.buffer = NULL;
  if (__builtin_expect(open_traces > 0, 0) && note_traced(x) < 0) {
    Py_DECREF((PyObject *)x);
    return NULL;
  }
  return x;
}

PyObject *list_of_tensors(hr_stream *stream, Py_ssize_t count, hr_tensor *tensors) {
  PyObject *list = PyList_New(count);
  for (Py_ssize_t i = 0; i < count; ++i) {
    array_object *x = list != NULL ? new_array(stream) : NULL;
    if (x == NULL) {
      hr_tensor_release(&tensors[i]);
      Py_CLEAR(list);
      continue;
    }
    x->tensor = tensors[i];
    if (PyList_SetItem(list, i, (PyObject *)x) < 0) {
      Py_CLEAR(list);
    }
  }
  return list;
}

static void drop_array(PyObject *self) {
  array_object *x = as_array(self);
  PyTypeObject *type = Py_TYPE(self);
  if (x->weak != NULL) {
    PyObject_ClearWeakRefs(self);
  }
  hr_buffer_release(x->tensor.buffer);
  if (dropped.count < FREE_MAX) {
    dropped.objects[dropped.count++] = x;
  } else {
    PyObject_Free(self);
  }
  Py_DECREF(type);
}

array_object *share_array(array_object *x) {
  array_object *view = new_array(x->stream);
  if (view != NULL) {
    view->tensor = x->tensor;
    hr_buffer_retain(view->tensor.buffer);
  }
  return view;
}

/* ---- attributes ---- */

static PyObject *get_shape(PyObject *self, void *unused) {
  (void)unused;
  const hr_tensor *x = &as_array(self)->tensor;
  PyObject *shape = PyTuple_New(x->rank);
  for (int d = 0; shape != NULL && d < x->rank; ++d) {
    PyObject *size = PyLong_FromLongLong(x->dims[d]);
    if (size == NULL || PyTuple_SetItem(shape, d, size) < 0) {
      Py_CLEAR(shape);
    }
  }
  return shape;
}

static PyObject *get_dtype(PyObject *self, void *unused) {
  (void)unused;
  return dtype_object_of(as_array(self)->tensor.dtype);
}

static PyObject *get_ndim(PyObject *self, void *unused) {
  (void)unused;
  return PyLong_FromLong(as_array(self)->tensor.rank);
}

static PyObject *get_size(PyObject *self, void *unused) {
  (void)unused;
  return PyLong_FromLongLong(hr_tensor_count(&as_array(self)->tensor));
}

static PyObject *get_itemsize(PyObject *self, void *unused) {
  (void)unused;
  return PyLong_FromSize_t(hr_dtype_size(as_array(self)->tensor.dtype));
}

static PyObject *get_nbytes(PyObject *self, void *unused) {
  (void)unused;
  const hr_tensor *x = &as_array(self)->tensor;
  return PyLong_FromLongLong(hr_tensor_count(x) * (int64_t)hr_dtype_size(x->dtype));
}

static PyObject *get_device(PyObject *self, void *unused) {
  (void)unused;
  return PyUnicode_FromString(hr_device_name(hr_stream_device(as_array(self)->stream)));
}

static PyObject *get_transposed(PyObject *self, void *unused) {
  (void)unused;
  return apply_unary(HR_FUNCTIONAL_PERMUTE_DIMS, self);
}

/* The last two dims exchanged. */
static PyObject *get_matrix_transposed(PyObject *self, void *unused) {
  (void)unused;
  array_object *x = as_array(self);
  int rank = x->tensor.rank;
  if (rank < 2) {
    PyErr_Format(PyExc_ValueError, "matrix transpose with ndim < 2 is undefined");
    return NULL;
  }
  array_object *view = share_array(x);
  if (view != NULL) {
    hr_tensor *to = &view->tensor;
    to->dims[rank - 1] = x->tensor.dims[rank - 2], to->dims[rank - 2] = x->tensor.dims[rank - 1];
    to->strides[rank - 1] = x->tensor.strides[rank - 2], to->strides[rank - 2] = x->tensor.strides[rank - 1];
  }
  return (PyObject *)view;
}

static PyObject *get_real(PyObject *self, void *unused) {
  (void)unused;
  return apply_unary(HR_FUNCTIONAL_REAL, self);
}

static PyObject *get_imag(PyObject *self, void *unused) {
  (void)unused;
  return apply_unary(HR_FUNCTIONAL_IMAG, self);
}

/* Above numpy's 0: its operators leave the work to this type. */
static PyObject *get_priority(PyObject *self, void *unused) {
  (void)self, (void)unused;
  return PyFloat_FromDouble(100);
}

/* ---- elements as Python's numbers ---- */

PyObject *scalar_object(const hr_scalar *value) {
  switch (value->dtype) {
    case HR_DTYPE_BOOL:
      return PyBool_FromLong(value->value.i != 0);
    case HR_DTYPE_I64:
      return PyLong_FromLongLong(value->value.i);
    case HR_DTYPE_U64:
      return PyLong_FromUnsignedLongLong(value->value.u);
    case HR_DTYPE_C128:
      return PyComplex_FromDoubles(value->value.f[0], value->value.f[1]);
    default:
      return PyFloat_FromDouble(value->value.f[0]);
  }
}

/* Waits without the interpreter's lock. Another thread may write to the object meanwhile: the view is kept apart. */
hr_status read_elements(array_object *x, void *elements) {
  hr_stream *stream = x->stream;
  hr_tensor view = x->tensor;
  hr_buffer_retain(view.buffer);
  hr_status status;
  Py_BEGIN_ALLOW_THREADS;
  status = hr_array_read(stream, &view, elements);
  Py_END_ALLOW_THREADS;
  hr_buffer_release(view.buffer);
  return status;
}

static int read_scalar(PyObject *self, const char *what, hr_scalar *out) {
  array_object *x = as_array(self);
  double element[2];
  if (hr_tensor_count(&x->tensor) != 1) {
    PyErr_SetString(PyExc_ValueError, what);
    return -1;
  }
  if (refuse_traced(x) < 0) {
    return -1;
  }
  hr_status status = read_elements(x, element);
  if (status != HR_OK) {
    raise_status(status);
    return -1;
  }
  *out = hr_scalar_of(x->tensor.dtype, element);
  return 0;
}

static PyObject *item(PyObject *self, PyObject *unused) {
  (void)unused;
  hr_scalar value;
  return read_scalar(self, "can only convert an array of size 1 to a Python scalar", &value) < 0
             ? NULL
             : scalar_object(&value);
}

static int is_true(PyObject *self) {
  hr_scalar value;
  if (read_scalar(self,
                  "The truth value of an array with more than one element, or none, is ambiguous. Use a.any() or "
                  "a.all()",
                  &value) < 0) {
    return -1;
  }
  bool is_real = value.dtype == HR_DTYPE_F64, is_complex = value.dtype == HR_DTYPE_C128;
  return is_real      ? value.value.f[0] != 0
         : is_complex ? value.value.f[0] != 0 || value.value.f[1] != 0
                      : value.value.i != 0;
}

/* int(x), float(x) and complex(x): those of the element. */
static PyObject *convert_item(PyObject *self, PyTypeObject *type) {
  PyObject *value = item(self, NULL);
  PyObject *converted = value != NULL ? PyObject_CallFunctionObjArgs((PyObject *)type, value, NULL) : NULL;
  Py_XDECREF(value);
  return converted;
}

static PyObject *to_int(PyObject *self) {
  return convert_item(self, &PyLong_Type);
}

static PyObject *to_float(PyObject *self) {
  return convert_item(self, &PyFloat_Type);
}

static PyObject *to_complex(PyObject *self, PyObject *unused) {
  (void)unused;
  return convert_item(self, &PyComplex_Type);
}

static PyObject *to_index(PyObject *self) {
  hr_scalar value;
  if (read_scalar(self, "only integer scalar arrays can be converted to a scalar index", &value) < 0) {
    return NULL;
  }
  if (value.dtype != HR_DTYPE_I64 && value.dtype != HR_DTYPE_U64) {
    PyErr_SetString(PyExc_TypeError, "only integer scalar arrays can be converted to a scalar index");
    return NULL;
  }
  return scalar_object(&value);
}

/* A list for dim d, of lists or numbers; `*at` walks the elements. */
static PyObject *list_of(const hr_tensor *x, int d, const char **at) {
  if (d == x->rank) {
    hr_scalar value = hr_scalar_of(x->dtype, *at);
    *at += hr_dtype_size(x->dtype);
    return scalar_object(&value);
  }
  PyObject *list = PyList_New((Py_ssize_t)x->dims[d]);
  for (int64_t i = 0; list != NULL && i < x->dims[d]; ++i) {
    PyObject *entry = list_of(x, d + 1, at);
    if (entry == NULL || PyList_SetItem(list, (Py_ssize_t)i, entry) < 0) {
      Py_CLEAR(list);
    }
  }
  return list;
}

static PyObject *to_list(PyObject *self, PyObject *unused) {
  (void)unused;
  array_object *x = as_array(self);
  if (refuse_traced(x) < 0) {
    return NULL;
  }
  hr_tensor type = x->tensor; /* of what is read */
  size_t bytes = (size_t)hr_tensor_count(&type) * hr_dtype_size(type.dtype);
  char *elements = PyMem_Malloc(bytes > 0 ? bytes : 1);
  if (elements == NULL) {
    return PyErr_NoMemory();
  }
  const char *at = elements;
  hr_status status = bytes > 0 ? read_elements(x, elements) : HR_OK;
  PyObject *list = status == HR_OK ? list_of(&type, 0, &at) : raise_status(status);
  PyMem_Free(elements);
  return list;
}

/* ---- written in Python ---- */

static PyObject *call_python(const char *module_name, const char *function, PyObject *self) {
  PyObject *module = PyImport_ImportModule(module_name);
  PyObject *result = module != NULL ? PyObject_CallMethod(module, function, "O", self) : NULL;
  Py_XDECREF(module);
  return result;
}

static PyObject *get_at(PyObject *self, void *unused) {
  (void)unused;
  return call_python("headrace._at", "At", self);
}

static PyObject *repr_of(PyObject *self) {
  return call_python("headrace._text", "repr_of", self);
}

static PyObject *text_of(PyObject *self) {
  return call_python("headrace._text", "text_of", self);
}

/* A number's format for an array without dims; else only that of str. */
static PyObject *format_of(PyObject *self, PyObject *spec) {
  PyObject *value = as_array(self)->tensor.rank == 0 ? item(self, NULL) : PyObject_Str(self);
  PyObject *text = value != NULL ? PyObject_Format(value, spec) : NULL;
  Py_XDECREF(value);
  return text;
}

static PyGetSetDef attributes[] = {
    {"shape", get_shape, NULL, "sizes of the dims, a tuple", NULL},
    {"dtype", get_dtype, NULL, "type of the elements", NULL},
    {"ndim", get_ndim, NULL, "number of dims", NULL},
    {"size", get_size, NULL, "number of elements", NULL},
    {"itemsize", get_itemsize, NULL, "bytes of an element", NULL},
    {"nbytes", get_nbytes, NULL, "bytes of all elements", NULL},
    {"device", get_device, NULL, "name of the device", NULL},
    {"T", get_transposed, NULL, "the dims in reverse order, as a view", NULL},
    {"mT", get_matrix_transposed, NULL, "the last two dims exchanged, as a view", NULL},
    {"real", get_real, NULL, "real part", NULL},
    {"imag", get_imag, NULL, "imaginary part", NULL},
    {"at", get_at, NULL, "x.at[...].add(v): a new array with updated elements; also set, subtract, multiply, ...",
     NULL},
    {"__array_priority__", get_priority, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL}};

/* ---- operators ---- */

#define BINARY(name, FUNCTION)                           \
  static PyObject *name(PyObject *x, PyObject *y) {      \
    return apply_binary(HR_FUNCTIONAL_##FUNCTION, x, y); \
  }
#define UNARY(name, FUNCTION)                        \
  static PyObject *name(PyObject *x) {               \
    return apply_unary(HR_FUNCTIONAL_##FUNCTION, x); \
  }
#include "operators.def"

static PyObject *power(PyObject *x, PyObject *y, PyObject *modulus) {
  if (modulus != Py_None) {
    Py_RETURN_NOTIMPLEMENTED;
  }
  return apply_binary(HR_FUNCTIONAL_POW, x, y);
}

/* x += y and its like. */
#define IN_PLACE(name, operator)                                                          \
  static PyObject *name(PyObject *x, PyObject *y) {                                       \
    return follows_mlx ? assign_result(x, operator(x, y)) : Py_NewRef(Py_NotImplemented); \
  }
IN_PLACE(add_to, add)
IN_PLACE(subtract_to, subtract)
IN_PLACE(multiply_to, multiply)
IN_PLACE(floor_divide_to, floor_divide)
IN_PLACE(remainder_of_to, remainder_of)
IN_PLACE(matmul_to, matmul)
IN_PLACE(bitwise_and_to, bitwise_and)
IN_PLACE(bitwise_or_to, bitwise_or)
IN_PLACE(bitwise_xor_to, bitwise_xor)
IN_PLACE(shift_left_to, shift_left)
IN_PLACE(shift_right_to, shift_right)

static PyObject *divide_to(PyObject *x, PyObject *y) {
  hr_dtype dtype = as_array(x)->tensor.dtype;
  if (follows_mlx && dtype < HR_DTYPE_F16) {
    return PyErr_Format(PyExc_ValueError, "/= of an array of %s, expected a floating one", python_name(dtype));
  }
  return follows_mlx ? assign_result(x, divide(x, y)) : Py_NewRef(Py_NotImplemented);
}

static PyObject *raise_to(PyObject *x, PyObject *y, PyObject *modulus) {
  return follows_mlx ? assign_result(x, power(x, y, modulus)) : Py_NewRef(Py_NotImplemented);
}

static PyObject *positive(PyObject *x) {
  return (PyObject *)share_array(as_array(x));
}

static PyObject *compare(PyObject *x, PyObject *y, int op) {
  static const hr_functional functions[] = {
      [Py_LT] = HR_FUNCTIONAL_LESS,      [Py_LE] = HR_FUNCTIONAL_LESS_EQUAL, [Py_EQ] = HR_FUNCTIONAL_EQUAL,
      [Py_NE] = HR_FUNCTIONAL_NOT_EQUAL, [Py_GT] = HR_FUNCTIONAL_GREATER,    [Py_GE] = HR_FUNCTIONAL_GREATER_EQUAL};
  return apply_binary(functions[op], x, y);
}

/* ---- as a sequence ---- */

static Py_ssize_t length(PyObject *self) {
  const hr_tensor *x = &as_array(self)->tensor;
  if (x->rank == 0) {
    PyErr_SetString(PyExc_TypeError, "len() of unsized object");
    return -1;
  }
  return (Py_ssize_t)x->dims[0];
}

static PyObject *iterate(PyObject *self) {
  if (as_array(self)->tensor.rank == 0) {
    PyErr_SetString(PyExc_TypeError, "iteration over a 0-d array");
    return NULL;
  }
  return PySeqIter_New(self);
}

/* v in x: any(x == v) */
static int contains(PyObject *self, PyObject *value) {
  PyObject *equal = compare(self, value, Py_EQ);
  if (equal == NULL || equal == Py_NotImplemented) {
    Py_XDECREF(equal);
    return equal == NULL ? -1 : 0;
  }
  PyObject *any = apply_unary(HR_FUNCTIONAL_ANY, equal);
  int result = any != NULL ? is_true(any) : -1;
  Py_DECREF(equal);
  Py_XDECREF(any);
  return result;
}

/* ---- methods ---- */

static PyObject *reshape(PyObject *self, PyObject *args) {
  array_object *x = as_array(self);
  int64_t dims[HR_RANK_MAX];
  PyObject *first = PyTuple_Size(args) == 1 ? PyTuple_GetItem(args, 0) : NULL;
  hr_attribute shape = {.kind = HR_ATTRIBUTE_INTS, .value = {.ints = dims}};
  shape.count = integers_from(first != NULL ? first : args, dims);
  array_object *result = shape.count >= 0 ? new_array(x->stream) : NULL;
  if (result == NULL) {
    return NULL;
  }
  const hr_tensor *input = &x->tensor;
  hr_status status = hr_functional_apply(x->stream, HR_FUNCTIONAL_RESHAPE, 1, &input, 1, &shape, 1, &result->tensor);
  return (PyObject *)array_or_raise(result, status);
}

static PyObject *copy_of(PyObject *self, PyObject *unused) {
  (void)unused;
  return (PyObject *)share_array(as_array(self)); /* a write makes it one */
}

static PyObject *numpy_function(const char *name) {
  PyObject *numpy = PyImport_ImportModule("numpy");
  PyObject *function = numpy != NULL ? PyObject_GetAttrString(numpy, name) : NULL;
  Py_XDECREF(numpy);
  return function;
}

/* numpy.asarray(x): the memory itself if it has the dtype, which numpy may not write; else a copy. */
static PyObject *to_numpy(PyObject *self, PyObject *args, PyObject *names) {
  static char *keywords[] = {"dtype", "copy", NULL};
  PyObject *dtype = Py_None, *copy = Py_None;
  if (!PyArg_ParseTupleAndKeywords(args, names, "|OO:__array__", keywords, &dtype, &copy)) {
    return NULL;
  }
  array_object *x = as_array(self), *wide = NULL;
  if (format_of_dtype(x->tensor.dtype) == NULL) { /* numpy has no bfloat16 */
    wide = (array_object *)convert_array(x, HR_DTYPE_F32);
    if (wide == NULL) {
      return NULL;
    }
  }
  PyObject *view = PyMemoryView_FromObject(wide != NULL ? (PyObject *)wide : self);
  PyObject *function = view != NULL ? numpy_function(copy == Py_True ? "array" : "asarray") : NULL;
  PyObject *result = function != NULL ? PyObject_CallFunctionObjArgs(function, view, dtype, NULL) : NULL;
  Py_XDECREF((PyObject *)wide);
  Py_XDECREF(view);
  Py_XDECREF(function);
  return result;
}

/* A method that a function of headrace/standard.py is. */
static PyObject *call_standard(const char *function, PyObject *self, PyObject *args, PyObject *names) {
  PyObject *module = PyImport_ImportModule("headrace.standard");
  PyObject *callable = module != NULL ? PyObject_GetAttrString(module, function) : NULL;
  PyObject *first = callable != NULL ? PyTuple_Pack(1, self) : NULL;
  PyObject *all = first != NULL ? PySequence_Concat(first, args) : NULL;
  PyObject *result = all != NULL ? PyObject_Call(callable, all, names) : NULL;
  Py_XDECREF(module);
  Py_XDECREF(callable);
  Py_XDECREF(first);
  Py_XDECREF(all);
  return result;
}

static PyObject *namespace_of(PyObject *self, PyObject *args, PyObject *names) {
  return call_standard("_namespace", self, args, names);
}

static PyObject *to_device(PyObject *self, PyObject *args, PyObject *names) {
  return call_standard("_to_device", self, args, names);
}

static PyMethodDef methods[] = {
    {"item", item, METH_NOARGS, "item($self, /)\n--\n\nThe only element as a number of Python; waits."},
    {"tolist", to_list, METH_NOARGS, "tolist($self, /)\n--\n\nThe elements as nested lists; waits."},
    {"reshape", reshape, METH_VARARGS,
     "reshape($self, *shape)\n--\n\nThe elements in row-major order with other dims; one of them may be -1."},
    {"copy", copy_of, METH_NOARGS, "copy($self, /)\n--\n\nAn array with these elements, which no write changes."},
    {"to_device", (PyCFunction)(void (*)(void))to_device, METH_VARARGS | METH_KEYWORDS,
     "to_device($self, device, /, *, stream=None)\n--\n\nThe array itself, or a copy on the device of this name."},
    {"__array_namespace__", (PyCFunction)(void (*)(void))namespace_of, METH_VARARGS | METH_KEYWORDS,
     "__array_namespace__($self, /, *, api_version=None)\n--\n\nThe module headrace."},
    {"__reduce__", reduce_array, METH_NOARGS, NULL},
    {"__copy__", copy_of, METH_NOARGS, NULL},
    {"__deepcopy__", copy_of, METH_O, NULL},
    {"__array__", (PyCFunction)(void (*)(void))to_numpy, METH_VARARGS | METH_KEYWORDS, NULL},
    {"__complex__", to_complex, METH_NOARGS, NULL},
    {"__format__", format_of, METH_O, NULL},
    {"__dlpack__", (PyCFunction)(void (*)(void))export_dlpack, METH_FASTCALL | METH_KEYWORDS,
     "__dlpack__($self, /, *, stream=None, max_version=None, dl_device=None, copy=None)\n--\n\n"
     "The array's memory for another library; waits."},
    {"__dlpack_device__", dlpack_device, METH_NOARGS, "__dlpack_device__($self, /)\n--\n\nDLPack's type and number."},
    {NULL, NULL, 0, NULL}};

/* ---- the type ---- */

/* Slots of the buffer protocol: the limited interface has them from 3.11 on, CPython from 3.9 on. */
#ifndef Py_bf_getbuffer
#define Py_bf_getbuffer 1
#define Py_bf_releasebuffer 2
#endif

static PyMemberDef members[] = {{"__weaklistoffset__", T_PYSSIZET, offsetof(array_object, weak), READONLY, NULL},
                                {NULL, 0, 0, 0, NULL}};

static PyType_Slot slots[] = {
    {Py_tp_dealloc, drop_array},
    {Py_tp_repr, repr_of},
    {Py_tp_str, text_of},
    {Py_tp_richcompare, compare},
    {Py_tp_hash, PyObject_HashNotImplemented},
    {Py_tp_iter, iterate},
    {Py_tp_getset, attributes},
    {Py_tp_members, members},
    {Py_tp_methods, methods},
    {Py_tp_new, construct_array},
    {Py_tp_doc, "An array: dims, a dtype and elements, which are computed when they are read."},
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
    {Py_nb_inplace_add, add_to},
    {Py_nb_inplace_subtract, subtract_to},
    {Py_nb_inplace_multiply, multiply_to},
    {Py_nb_inplace_true_divide, divide_to},
    {Py_nb_inplace_floor_divide, floor_divide_to},
    {Py_nb_inplace_remainder, remainder_of_to},
    {Py_nb_inplace_matrix_multiply, matmul_to},
    {Py_nb_inplace_and, bitwise_and_to},
    {Py_nb_inplace_or, bitwise_or_to},
    {Py_nb_inplace_xor, bitwise_xor_to},
    {Py_nb_inplace_lshift, shift_left_to},
    {Py_nb_inplace_rshift, shift_right_to},
    {Py_nb_inplace_power, raise_to},
    {Py_nb_negative, negative},
    {Py_nb_positive, positive},
    {Py_nb_absolute, absolute},
    {Py_nb_invert, invert},
    {Py_nb_bool, is_true},
    {Py_nb_int, to_int},
    {Py_nb_float, to_float},
    {Py_nb_index, to_index},
    {Py_sq_length, length},
    {Py_sq_item, get_row},
    {Py_sq_contains, contains},
    {Py_mp_length, length},
    {Py_mp_subscript, get_item},
    {Py_mp_ass_subscript, set_item},
    {Py_bf_getbuffer, export_buffer},
    {Py_bf_releasebuffer, release_buffer},
    {0, NULL}};

static PyType_Spec spec = {"headrace.Array", sizeof(array_object), 0, Py_TPFLAGS_DEFAULT, slots};

int add_methods(PyTypeObject *type, PyMethodDef *added) {
  for (; added->ml_name != NULL; ++added) {
    PyObject *method = PyDescr_NewMethod(type, added);
    if (method == NULL || PyObject_SetAttrString((PyObject *)type, added->ml_name, method) < 0) {
      Py_XDECREF(method);
      return -1;
    }
    Py_DECREF(method);
  }
  return 0;
}

PyTypeObject *make_array_type(void) {
  PyTypeObject *type = (PyTypeObject *)PyType_FromSpec(&spec);
  if (type != NULL && add_methods(type, array_function_methods) < 0) {
    Py_CLEAR(type);
  }
  return type;
}
