/* dtypes.c: dtype objects, one for each dtype, and their names elsewhere. */
#include <string.h>

#include "extension.h"

/* format: the buffer protocol's; NULL: it has none. */
static const struct {
  const char *name, *format;
} rows[HR_DTYPE_COUNT] = {
    [HR_DTYPE_BOOL] = {"bool", "?"},
    [HR_DTYPE_U8] = {"uint8", "B"},
    [HR_DTYPE_I8] = {"int8", "b"},
    [HR_DTYPE_U16] = {"uint16", "H"},
    [HR_DTYPE_I16] = {"int16", "h"},
    [HR_DTYPE_U32] = {"uint32", "I"},
    [HR_DTYPE_I32] = {"int32", "i"},
    [HR_DTYPE_U64] = {"uint64", "Q"},
    [HR_DTYPE_I64] = {"int64", "q"},
    [HR_DTYPE_F16] = {"float16", "e"},
    [HR_DTYPE_BF16] = {"bfloat16", NULL},
    [HR_DTYPE_F32] = {"float32", "f"},
    [HR_DTYPE_F64] = {"float64", "d"},
    [HR_DTYPE_C64] = {"complex64", "Zf"},
    [HR_DTYPE_C128] = {"complex128", "Zd"},
    [HR_DTYPE_F8E4M3FN] = {"float8_e4m3fn", NULL},
    [HR_DTYPE_F8E5M2] = {"float8_e5m2", NULL},
    [HR_DTYPE_F8E4M3FNUZ] = {"float8_e4m3fnuz", NULL},
    [HR_DTYPE_F8E5M2FNUZ] = {"float8_e5m2fnuz", NULL},
    [HR_DTYPE_F8E8M0FNU] = {"float8_e8m0fnu", NULL},
    [HR_DTYPE_F8E4M3] = {"float8_e4m3", NULL},
    [HR_DTYPE_F8E3M4] = {"float8_e3m4", NULL},
    [HR_DTYPE_F8E4M3B11FNUZ] = {"float8_e4m3b11fnuz", NULL},
    [HR_DTYPE_F4E2M1FN] = {"float4_e2m1fn", NULL},
};

static PyObject *objects[HR_DTYPE_COUNT];

const char *python_name(hr_dtype dtype) {
  return rows[dtype].name != NULL ? rows[dtype].name : hr_dtype_name(dtype);
}

const char *format_of_dtype(hr_dtype dtype) {
  return rows[dtype].format;
}

PyObject *dtype_object_of(hr_dtype dtype) {
  if (objects[dtype] == NULL) {
    PyErr_Format(PyExc_TypeError, "arrays of %s have no dtype here", hr_dtype_name(dtype));
  }
  return Py_XNewRef(objects[dtype]);
}

hr_dtype default_dtype(hr_dtype scalar) {
  return scalar == HR_DTYPE_F64 ? HR_DTYPE_F32 : scalar == HR_DTYPE_C128 ? HR_DTYPE_C64 : scalar;
}

hr_dtype dtype_of_format(const char *format) {
  char first = format[0];
  format += first == '@' || first == '=' || first == '<';
  if (strcmp(format, "l") == 0 || strcmp(format, "L") == 0) { /* eight bytes with native sizes, four without */
    bool is_wide = (first != '=' && first != '<') && sizeof(long) == 8;
    return format[0] == 'l' ? (is_wide ? HR_DTYPE_I64 : HR_DTYPE_I32) : (is_wide ? HR_DTYPE_U64 : HR_DTYPE_U32);
  }
  for (int i = 1; i < HR_DTYPE_COUNT; ++i) {
    if (rows[i].format != NULL && strcmp(rows[i].format, format) == 0) {
      return (hr_dtype)i;
    }
  }
  return HR_DTYPE_NONE;
}

static hr_dtype dtype_of_name(const char *name) {
  if (strcmp(name, "bool_") == 0) {
    return HR_DTYPE_BOOL;
  }
  for (int i = 1; i < HR_DTYPE_COUNT; ++i) {
    if (rows[i].name != NULL && strcmp(rows[i].name, name) == 0) {
      return (hr_dtype)i;
    }
  }
  return HR_DTYPE_NONE;
}

/* Python's types, a dtype's name, and objects with one: numpy.dtype has `name`, numpy.float32 is a type. */
static hr_dtype dtype_of_object(PyObject *object) {
  if (object == (PyObject *)&PyBool_Type || object == (PyObject *)&PyLong_Type) {
    return object == (PyObject *)&PyBool_Type ? HR_DTYPE_BOOL : HR_DTYPE_I64;
  }
  if (object == (PyObject *)&PyFloat_Type || object == (PyObject *)&PyComplex_Type) {
    return object == (PyObject *)&PyFloat_Type ? HR_DTYPE_F32 : HR_DTYPE_C64;
  }
  PyObject *name = PyUnicode_Check(object) ? Py_NewRef(object)
                                           : PyObject_GetAttrString(object, PyType_Check(object) ? "__name__" : "name");
  const char *text = name != NULL && PyUnicode_Check(name) ? PyUnicode_AsUTF8AndSize(name, NULL) : NULL;
  hr_dtype dtype = text != NULL ? dtype_of_name(text) : HR_DTYPE_NONE;
  Py_XDECREF(name);
  PyErr_Clear();
  return dtype;
}

hr_dtype dtype_from(PyObject *object) {
  if (object == NULL || object == Py_None) {
    return HR_DTYPE_NONE;
  }
  hr_dtype dtype = Py_TYPE(object) == dtype_type ? ((dtype_object *)object)->dtype : dtype_of_object(object);
  if (dtype == HR_DTYPE_NONE) {
    PyErr_Format(PyExc_TypeError, "%R is no dtype: expected headrace.float32 or another one of headrace's", object);
  }
  return dtype;
}

/* ---- the type ---- */

static PyObject *name_of(PyObject *self, void *unused) {
  (void)unused;
  return PyUnicode_FromString(python_name(((dtype_object *)self)->dtype));
}

static PyObject *size_of(PyObject *self, void *unused) {
  (void)unused;
  return PyLong_FromSize_t(hr_dtype_size(((dtype_object *)self)->dtype));
}

static PyObject *repr_of(PyObject *self) {
  const char *module = follows_mlx ? "mlx.core" : "headrace";
  return PyUnicode_FromFormat("%s.%s", module, python_name(((dtype_object *)self)->dtype));
}

static PyObject *text_of(PyObject *self) {
  return follows_mlx ? repr_of(self) : name_of(self, NULL);
}

/* numpy.dtype("float32") == headrace.float32 */
static PyObject *compare(PyObject *self, PyObject *other, int op) {
  if (op != Py_EQ && op != Py_NE) {
    Py_RETURN_NOTIMPLEMENTED;
  }
  hr_dtype right = Py_TYPE(other) == dtype_type                ? ((dtype_object *)other)->dtype
                   : PyObject_HasAttrString(other, "itemsize") ? dtype_of_object(other)
                                                               : HR_DTYPE_NONE;
  return PyBool_FromLong((((dtype_object *)self)->dtype == right) == (op == Py_EQ));
}

/* As equal as its name: numpy's dtypes hash by other rules, so that only lookups among headrace's own find it. */
static Py_hash_t hash_of(PyObject *self) {
  return 7919 + (Py_hash_t)((dtype_object *)self)->dtype;
}

/* A name: pickle finds the object in the module that the type names. */
static PyObject *reduce(PyObject *self, PyObject *unused) {
  (void)unused;
  return name_of(self, NULL);
}

static PyMethodDef methods[] = {{"__reduce__", reduce, METH_NOARGS, NULL}, {NULL, NULL, 0, NULL}};

static PyGetSetDef attributes[] = {{"name", name_of, NULL, "the name, such as \"float32\"", NULL},
                                   {"itemsize", size_of, NULL, "bytes of an element", NULL},
                                   {"size", size_of, NULL, "bytes of an element, as in MLX", NULL},
                                   {NULL, NULL, NULL, NULL, NULL}};

static PyType_Slot slots[] = {{Py_tp_repr, repr_of},
                              {Py_tp_str, text_of},
                              {Py_tp_richcompare, compare},
                              {Py_tp_hash, hash_of},
                              {Py_tp_getset, attributes},
                              {Py_tp_methods, methods},
                              {Py_tp_doc, "The type of an array's elements."},
                              {0, NULL}};

static PyType_Spec spec = {"headrace.dtype", sizeof(dtype_object), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};

int add_dtypes(PyObject *module) {
  dtype_type = (PyTypeObject *)PyType_FromSpec(&spec);
  if (dtype_type == NULL || PyModule_AddObjectRef(module, "dtype", (PyObject *)dtype_type) < 0) {
    return -1;
  }
  for (int i = 1; i < HR_DTYPE_COUNT; ++i) {
    if (rows[i].name == NULL) {
      continue;
    }
    dtype_object *object = PyObject_New(dtype_object, dtype_type);
    if (object == NULL) {
      return -1;
    }
    object->dtype = (hr_dtype)i;
    objects[i] = (PyObject *)object;
    if (PyModule_AddObjectRef(module, rows[i].name, objects[i]) < 0) {
      return -1;
    }
  }
  return 0;
}
