/* creation.c: arrays of numbers, lists, other arrays and other libraries' memory. */
#include <string.h>

#include "extension.h"

/* ---- numbers and nested lists ---- */

typedef struct leaves {
  PyObject **objects; /* borrowed */
  Py_ssize_t count, room;
  int rank;
  int64_t dims[HR_RANK_MAX];
  hr_dtype dtype; /* of the highest number: BOOL, I64, U64, F64, C128 */
  bool is_wide;   /* an integer is outside of int32 */
  bool has_array; /* among the entries: they are no numbers */
} leaves;

static bool is_list(PyObject *object) {
  return PyList_Check(object) || PyTuple_Check(object);
}

/* Only those of lists and tuples are borrowed. */
static PyObject *entry_of(PyObject *list, Py_ssize_t i) {
  return PyList_Check(list) ? PyList_GetItem(list, i) : PyTuple_GetItem(list, i);
}

static Py_ssize_t size_of(PyObject *list) {
  return PyList_Check(list) ? PyList_Size(list) : PyTuple_Size(list);
}

static int add_leaf(leaves *to, PyObject *object) {
  if (to->count == to->room) {
    Py_ssize_t room = to->room > 0 ? 2 * to->room : 64;
    PyObject **objects = PyMem_Realloc(to->objects, (size_t)room * sizeof *objects);
    if (objects == NULL) {
      PyErr_NoMemory();
      return -1;
    }
    to->objects = objects, to->room = room;
  }
  hr_scalar number;
  int found = number_from(object, &number);
  if (found != 1) {
    if (found == 0) {
      PyErr_Format(mlx_exception(PyExc_TypeError), "%R is neither an array nor a number nor a list of them", object);
    }
    return -1;
  }
  static const int ranks[HR_DTYPE_COUNT] = {
      [HR_DTYPE_BOOL] = 1, [HR_DTYPE_I64] = 2, [HR_DTYPE_U64] = 3, [HR_DTYPE_F64] = 4, [HR_DTYPE_C128] = 5};
  to->dtype = ranks[number.dtype] > ranks[to->dtype] ? number.dtype : to->dtype;
  to->is_wide |= number.dtype == HR_DTYPE_I64 && number.value.i != (int32_t)number.value.i;
  to->objects[to->count++] = object;
  return 0;
}

static int refuse_ragged(int depth) {
  PyErr_Format(PyExc_ValueError, "the lists at depth %d differ in length: expected those of an array", depth);
  return -1;
}

/* The first path to a number gives the dims. */
static int add_leaves(leaves *to, PyObject *object, int depth) {
  if (is_array(object)) {
    to->has_array = true;
    return -1;
  }
  if (!is_list(object)) {
    return depth == to->rank ? add_leaf(to, object) : refuse_ragged(depth);
  }
  if (depth >= to->rank || size_of(object) != to->dims[depth]) {
    return refuse_ragged(depth);
  }
  for (Py_ssize_t i = 0; i < size_of(object); ++i) {
    if (add_leaves(to, entry_of(object, i), depth + 1) < 0) {
      return -1;
    }
  }
  return 0;
}

static int measure(leaves *to, PyObject *object) {
  while (is_list(object)) {
    if (to->rank == HR_RANK_MAX) {
      PyErr_Format(PyExc_ValueError, "lists of more than %d levels", (int)HR_RANK_MAX);
      return -1;
    }
    to->dims[to->rank++] = size_of(object);
    if (size_of(object) == 0) {
      break;
    }
    object = entry_of(object, 0);
  }
  return 0;
}

static void store_number(char *elements, Py_ssize_t i, hr_dtype dtype, const hr_scalar *number) {
  double real = number->dtype == HR_DTYPE_F64 || number->dtype == HR_DTYPE_C128 ? number->value.f[0]
                : number->dtype == HR_DTYPE_U64                                 ? (double)number->value.u
                                                                                : (double)number->value.i;
  switch (dtype) {
    case HR_DTYPE_BOOL:
      elements[i] = (char)number->value.i;
      break;
    case HR_DTYPE_F64:
      ((double *)(void *)elements)[i] = real;
      break;
    case HR_DTYPE_C128:
      ((double *)(void *)elements)[2 * i] = real;
      ((double *)(void *)elements)[2 * i + 1] = number->dtype == HR_DTYPE_C128 ? number->value.f[1] : 0;
      break;
    default: /* negative numbers beside U64 wrap, and fail in take_numbers */
      ((int64_t *)(void *)elements)[i] = number->value.i;
  }
}

/* The numbers as elements of their highest dtype. */
static array_object *array_of_leaves(const leaves *from, hr_stream *stream) {
  hr_dtype dtype = from->dtype != HR_DTYPE_NONE ? from->dtype : HR_DTYPE_F64; /* of nothing, as numpy */
  char *elements = PyMem_Malloc((size_t)from->count * hr_dtype_size(dtype) + 1);
  if (elements == NULL) {
    PyErr_NoMemory();
    return NULL;
  }
  for (Py_ssize_t i = 0; i < from->count; ++i) {
    hr_scalar number;
    (void)number_from(from->objects[i], &number);
    store_number(elements, i, dtype, &number);
  }
  array_object *x = new_array(stream);
  hr_status status =
      x != NULL ? hr_array_from_host(stream, dtype, from->rank, from->dims, elements, &x->tensor) : HR_OK;
  PyMem_Free(elements);
  return array_or_raise(x, status);
}

static array_object *array_of_arrays(PyObject *list, hr_stream *stream);

/* out_default: the dtype that the array gets if none is wanted. */
static array_object *array_of_numbers(PyObject *object, hr_stream *stream, hr_dtype *out_default) {
  leaves found = {0};
  array_object *x = NULL;
  if (measure(&found, object) == 0 && add_leaves(&found, object, 0) == 0) {
    x = array_of_leaves(&found, stream);
  }
  PyMem_Free(found.objects);
  if (found.has_array) {
    return array_of_arrays(object, stream);
  }
  if (x != NULL) {
    *out_default = mlx_default_dtype(default_dtype(x->tensor.dtype), found.is_wide);
  }
  return x;
}

static bool is_number(PyObject *object) {
  return PyFloat_Check(object) || PyLong_Check(object) || PyComplex_Check(object);
}

bool has_dtype(PyObject *object) {
  return !is_number(object) && (PyObject_CheckBuffer(object) || PyObject_HasAttrString(object, "__dlpack__") ||
                                PyObject_HasAttrString(object, "__array__"));
}

/* ---- lists of arrays ---- */

static bool has_arrays(PyObject *object) {
  while (is_list(object) && size_of(object) > 0) {
    object = entry_of(object, 0);
  }
  return is_array(object) || (!is_list(object) && has_dtype(object));
}

static PyObject *stack(PyObject *list) {
  PyObject *module = PyImport_ImportModule("headrace._arrays");
  PyObject *result = module != NULL ? PyObject_CallMethod(module, "stack", "O", list) : NULL;
  Py_XDECREF(module);
  return result;
}

static array_object *array_of_arrays(PyObject *list, hr_stream *stream) {
  PyObject *parts = PyList_New(0);
  for (Py_ssize_t i = 0; parts != NULL && i < size_of(list); ++i) {
    array_object *part = array_from(entry_of(list, i), HR_DTYPE_NONE, stream, 1);
    if (part == NULL || PyList_Append(parts, (PyObject *)part) < 0) {
      Py_CLEAR(parts);
    }
    Py_XDECREF((PyObject *)part);
  }
  PyObject *result = parts != NULL ? stack(parts) : NULL;
  Py_XDECREF(parts);
  return (array_object *)result;
}

/* ---- any object ---- */

PyObject *convert_array(array_object *x, hr_dtype dtype) {
  array_object *result = new_array(x->stream);
  if (result == NULL) {
    return NULL;
  }
  const hr_tensor *input = &x->tensor;
  hr_attribute to = {.kind = HR_ATTRIBUTE_DTYPE, .value = {.dtype = dtype}};
  hr_status status = hr_functional_apply(x->stream, HR_FUNCTIONAL_ASTYPE, 1, &input, 1, &to, 1, &result->tensor);
  if (status != HR_OK) {
    Py_DECREF(result);
    return raise_status(status);
  }
  return (PyObject *)result;
}

/* From another device, through the host. */
static array_object *move_array(array_object *x, hr_stream *stream) {
  hr_tensor type = x->tensor;
  size_t bytes = hr_dtype_size(type.dtype);
  for (int d = 0; d < type.rank; ++d) {
    bytes *= (size_t)type.dims[d];
  }
  if (refuse_traced(x) < 0) {
    return NULL;
  }
  void *elements = PyMem_Malloc(bytes + 1);
  array_object *moved = elements != NULL ? new_array(stream) : (array_object *)PyErr_NoMemory();
  hr_status status = moved != NULL && bytes > 0 ? hr_array_read(x->stream, &type, elements) : HR_OK;
  if (moved != NULL && status == HR_OK) {
    status = hr_array_from_host(stream, type.dtype, type.rank, type.dims, elements, &moved->tensor);
  }
  PyMem_Free(elements);
  return array_or_raise(moved, status);
}

static array_object *array_of_others(PyObject *object, hr_stream *stream, int copy) {
  if (PyObject_CheckBuffer(object)) {
    return array_from_buffer(object, stream, copy);
  }
  if (PyObject_HasAttrString(object, "__dlpack__")) {
    return array_from_dlpack(object, stream, copy);
  }
  PyObject *made = PyObject_CallMethod(object, "__array__", NULL);
  array_object *x = made != NULL ? array_from_buffer(made, stream, copy) : NULL;
  Py_XDECREF(made);
  return x;
}

/* out_default: the dtype that the array gets if none is wanted, if it is not its own. */
static array_object *make_array(PyObject *object, hr_stream *stream, int copy, hr_dtype *out_default) {
  if (is_array(object)) {
    bool is_here = hr_stream_device(as_array(object)->stream) == hr_stream_device(stream);
    return is_here ? share_array(as_array(object)) : move_array(as_array(object), stream);
  }
  if (is_list(object) && has_arrays(object)) {
    return array_of_arrays(object, stream);
  }
  if (is_list(object) || !has_dtype(object)) {
    return array_of_numbers(object, stream, out_default);
  }
  array_object *x = array_of_others(object, stream, copy);
  *out_default = x != NULL && follows_mlx ? default_dtype(x->tensor.dtype) : HR_DTYPE_NONE;
  return x;
}

array_object *array_from(PyObject *object, hr_dtype dtype, hr_stream *stream, int copy) {
  if (stream == NULL) {
    return NULL;
  }
  hr_dtype otherwise = HR_DTYPE_NONE;
  array_object *x = make_array(object, stream, copy, &otherwise);
  if (x == NULL) {
    return NULL;
  }
  dtype = dtype != HR_DTYPE_NONE ? dtype : otherwise;
  if (dtype == HR_DTYPE_NONE || dtype == x->tensor.dtype) {
    return x;
  }
  PyObject *converted = NULL;
  if (copy == 0) {
    PyErr_SetString(PyExc_ValueError, "another dtype needs a copy, which copy=False excludes");
  } else {
    converted = convert_array(x, dtype);
  }
  Py_DECREF(x);
  return (array_object *)converted;
}

/* ---- functions ---- */

/* True for an array with this dtype (NONE: any) on this stream's device. */
static bool is_already(PyObject *object, hr_dtype dtype, hr_stream *stream) {
  if (!is_array(object) || stream == NULL) {
    return false;
  }
  array_object *x = as_array(object);
  bool has_dtype = dtype == HR_DTYPE_NONE || dtype == x->tensor.dtype;
  return has_dtype && hr_stream_device(x->stream) == hr_stream_device(stream);
}

/* The object itself if nothing changes and no copy is wanted: then later writes to it are seen. */
static PyObject *array_with(PyObject *args, PyObject *names, const char *format, PyObject *copy) {
  static char *keywords[] = {"", "dtype", "copy", "device", NULL};
  PyObject *object, *dtype = Py_None, *device = Py_None;
  if (!PyArg_ParseTupleAndKeywords(args, names, format, keywords, &object, &dtype, &copy, &device)) {
    return NULL;
  }
  hr_dtype wanted = dtype_from(dtype);
  int copies = copy == Py_None ? -1 : PyObject_IsTrue(copy);
  if (PyErr_Occurred()) {
    return NULL;
  }
  hr_stream *stream = device == Py_None && is_array(object) ? as_array(object)->stream : stream_of_device(device);
  return copies <= 0 && is_already(object, wanted, stream) ? Py_NewRef(object)
                                                           : (PyObject *)array_from(object, wanted, stream, copies);
}

static PyObject *array(PyObject *module, PyObject *args, PyObject *names) {
  (void)module;
  return array_with(args, names, "O|OOO:array", Py_True);
}

PyObject *construct_array(PyTypeObject *type, PyObject *args, PyObject *names) {
  (void)type;
  return array(NULL, args, names);
}

static PyObject *asarray(PyObject *module, PyObject *args, PyObject *names) {
  (void)module;
  return array_with(args, names, "O|OOO:asarray", Py_None);
}

static PyObject *filled(hr_stream *stream, const hr_tensor *value, const hr_attribute *shape, hr_dtype dtype) {
  array_object *result = new_array(stream);
  const hr_attribute attributes[2] = {
      *shape, {.kind = dtype != HR_DTYPE_NONE ? HR_ATTRIBUTE_DTYPE : HR_ATTRIBUTE_NONE, .value = {.dtype = dtype}}};
  hr_status status = result != NULL
                         ? hr_functional_apply(stream, HR_FUNCTIONAL_FULL, 1, &value, 2, attributes, 1, &result->tensor)
                         : HR_OK;
  return (PyObject *)array_or_raise(result, status);
}

/* value: NULL is the number. of: an array whose shape, dtype and device are used, or NULL. */
static PyObject *fill(PyObject *shape, PyObject *value, PyObject *dtype, PyObject *device, double number,
                      array_object *of) {
  int64_t dims[HR_RANK_MAX];
  const hr_tensor *like = of != NULL ? &of->tensor : NULL;
  hr_attribute ints = {.kind = HR_ATTRIBUTE_INTS};
  hr_stream *stream = of != NULL && device == Py_None ? traced_stream(of->stream) : stream_of_device(device);
  hr_dtype wanted = stream != NULL ? dtype_from(dtype) : HR_DTYPE_NONE;
  if (stream == NULL || PyErr_Occurred()) {
    return NULL;
  }
  ints.count = like != NULL ? like->rank : integers_from(shape, dims);
  ints.value.ints = like != NULL ? like->dims : dims;
  if (ints.count < 0) {
    return NULL;
  }
  if (wanted == HR_DTYPE_NONE && (value == NULL || like != NULL)) {
    wanted = like != NULL ? like->dtype : HR_DTYPE_F32;
  }
  if (value == NULL) {
    hr_tensor constant = hr_tensor_number(hr_scalar_f64(number));
    return filled(stream, &constant, &ints, wanted);
  }
  operand x;
  if (want_operand("full", value, 1, &x) < 0) {
    return NULL;
  }
  stream = join_streams(stream, like != NULL ? like : x.tensor, x.stream, x.tensor);
  PyObject *result = stream != NULL ? filled(stream, x.tensor, &ints, wanted) : NULL;
  Py_XDECREF(x.owned);
  return result;
}

static PyObject *fill_shape(PyObject *args, PyObject *names, const char *format, double number) {
  static char *keywords[] = {"shape", "dtype", "device", NULL};
  PyObject *shape, *dtype = Py_None, *device = Py_None;
  return PyArg_ParseTupleAndKeywords(args, names, format, keywords, &shape, &dtype, &device)
             ? fill(shape, NULL, dtype, device, number, NULL)
             : NULL;
}

static PyObject *zeros(PyObject *module, PyObject *args, PyObject *names) {
  (void)module;
  return fill_shape(args, names, "O|OO:zeros", 0);
}

static PyObject *ones(PyObject *module, PyObject *args, PyObject *names) {
  (void)module;
  return fill_shape(args, names, "O|OO:ones", 1);
}

static PyObject *full(PyObject *module, PyObject *args, PyObject *names) {
  static char *keywords[] = {"shape", "fill_value", "dtype", "device", NULL};
  PyObject *shape, *value, *dtype = Py_None, *device = Py_None;
  (void)module;
  return PyArg_ParseTupleAndKeywords(args, names, "OO|OO:full", keywords, &shape, &value, &dtype, &device)
             ? fill(shape, value, dtype, device, 0, NULL)
             : NULL;
}

static PyObject *fill_like(PyObject *args, PyObject *names, const char *format, double number) {
  static char *keywords[] = {"", "dtype", "device", NULL};
  PyObject *like, *dtype = Py_None, *device = Py_None;
  if (!PyArg_ParseTupleAndKeywords(args, names, format, keywords, array_type, &like, &dtype, &device)) {
    return NULL;
  }
  return fill(NULL, NULL, dtype, device, number, as_array(like));
}

static PyObject *zeros_like(PyObject *module, PyObject *args, PyObject *names) {
  (void)module;
  return fill_like(args, names, "O!|OO:zeros_like", 0);
}

static PyObject *ones_like(PyObject *module, PyObject *args, PyObject *names) {
  (void)module;
  return fill_like(args, names, "O!|OO:ones_like", 1);
}

static PyObject *full_like(PyObject *module, PyObject *args, PyObject *names) {
  static char *keywords[] = {"", "fill_value", "dtype", "device", NULL};
  PyObject *like, *value, *dtype = Py_None, *device = Py_None;
  (void)module;
  return PyArg_ParseTupleAndKeywords(args, names, "O!O|OO:full_like", keywords, array_type, &like, &value, &dtype,
                                     &device)
             ? fill(NULL, value, dtype, device, 0, as_array(like))
             : NULL;
}

/* A function of numbers alone. */
static PyObject *created(hr_functional function, PyObject *device, int count, const hr_attribute *attributes) {
  hr_stream *stream = stream_of_device(device);
  array_object *result = stream != NULL ? new_array(stream) : NULL;
  hr_status status =
      result != NULL ? hr_functional_apply(stream, function, 0, NULL, count, attributes, 1, &result->tensor) : HR_OK;
  return (PyObject *)array_or_raise(result, status);
}

static int take_number_or(PyObject *object, int64_t otherwise, hr_attribute *out) {
  out->kind = HR_ATTRIBUTE_REAL, out->value.number = hr_scalar_i64(otherwise);
  if (object == Py_None) {
    return 0;
  }
  int found = number_from(object, &out->value.number);
  if (found == 0) { /* numpy's integers, and arrays without dims */
    out->value.number = hr_scalar_i64(integer_from(object));
    found = PyErr_Occurred() ? -1 : 1;
  }
  return found < 0 ? -1 : 0;
}

/* arange of which a value of a graph decides the elements: in that graph. */
static PyObject *arange_on_graph(PyObject *const *bounds, PyObject *dtype) {
  static const char *const names[3] = {"start", "stop", "step"};
  hr_graph_attribute attributes[4];
  hr_value values[3] = {0, 0, 0};
  graph_object *owner = NULL;
  for (int i = 0; i < 3 && owner == NULL; ++i) {
    owner = is_value(bounds[i]) ? ((value_object *)bounds[i])->owner : NULL;
  }
  for (int i = 0; i < 3; ++i) {
    attributes[i] = (hr_graph_attribute){.name = names[i]};
    if (!is_value(bounds[i])) {
      if (take_number_or(bounds[i], i == 2, &attributes[i].value) < 0) {
        return NULL;
      }
      continue;
    }
    values[i] = value_from(owner, bounds[i], false);
    if (values[i] <= 0) {
      return NULL;
    }
    attributes[i].value = (hr_attribute){.kind = HR_ATTRIBUTE_REAL, .value = {.number = hr_scalar_i64(0)}};
    attributes[i].values = &values[i];
  }
  hr_dtype given = dtype_from(dtype);
  attributes[3] =
      (hr_graph_attribute){.name = "dtype", .value = {.kind = HR_ATTRIBUTE_DTYPE, .value = {.dtype = given}}};
  return PyErr_Occurred() ? NULL : add_call(owner, HR_FUNCTIONAL_ARANGE, 0, NULL, dtype != Py_None ? 4 : 3, attributes);
}

static PyObject *arange(PyObject *module, PyObject *args, PyObject *names) {
  static char *keywords[] = {"start", "stop", "step", "dtype", "device", NULL};
  PyObject *start, *stop = Py_None, *step = Py_None, *dtype = Py_None, *device = Py_None;
  (void)module;
  if (!PyArg_ParseTupleAndKeywords(args, names, "O|OOOO:arange", keywords, &start, &stop, &step, &dtype, &device)) {
    return NULL;
  }
  bool has_stop = stop != Py_None;
  hr_attribute attributes[4];
  if (is_value(start) || is_value(stop) || is_value(step)) {
    PyObject *const bounds[3] = {has_stop ? start : Py_None, has_stop ? stop : start, step};
    return arange_on_graph(bounds, dtype);
  }
  if (take_number_or(has_stop ? start : Py_None, 0, &attributes[0]) < 0 ||
      take_number_or(has_stop ? stop : start, 0, &attributes[1]) < 0 || take_number_or(step, 1, &attributes[2]) < 0) {
    return NULL;
  }
  attributes[3] = (hr_attribute){.kind = dtype != Py_None ? HR_ATTRIBUTE_DTYPE : HR_ATTRIBUTE_NONE,
                                 .value = {.dtype = dtype_from(dtype)}};
  return PyErr_Occurred() ? NULL : created(HR_FUNCTIONAL_ARANGE, device, 4, attributes);
}

#define FAR (INT64_C(1) << 62)

static PyObject *eye(PyObject *module, PyObject *args, PyObject *names) {
  static char *keywords[] = {"n_rows", "n_cols", "k", "dtype", "device", NULL};
  long long rows, k = 0;
  PyObject *columns = Py_None, *diagonal = NULL, *dtype = Py_None, *device = Py_None;
  (void)module;
  if (!PyArg_ParseTupleAndKeywords(args, names, "L|O$OOO:eye", keywords, &rows, &columns, &diagonal, &dtype, &device)) {
    return NULL;
  }
  if (diagonal != NULL) { /* one of more than 62 bits is outside every matrix, too */
    int overflow = 0;
    k = PyLong_AsLongLongAndOverflow(diagonal, &overflow);
    k = overflow != 0 || k > FAR || k < -FAR ? ((overflow < 0 || k < -FAR) ? -FAR : FAR) : k;
  }
  hr_attribute attributes[4] = {
      {.kind = HR_ATTRIBUTE_INT, .value = {.integer = rows}},
      {.kind = HR_ATTRIBUTE_INT, .value = {.integer = columns != Py_None ? integer_from(columns) : rows}},
      {.kind = dtype != Py_None ? HR_ATTRIBUTE_DTYPE : HR_ATTRIBUTE_NONE, .value = {.dtype = dtype_from(dtype)}},
      {.kind = HR_ATTRIBUTE_INT, .value = {.integer = k}}};
  if (!PyErr_Occurred() && attributes[1].value.integer < 0) {
    PyErr_SetString(PyExc_ValueError, "eye: negative dimensions are not allowed");
  }
  return PyErr_Occurred() ? NULL : created(HR_FUNCTIONAL_EYE, device, 4, attributes);
}

/* start + i * step in f64, as numpy computes it; the last one is stop itself. */
static array_object *evenly(double start, double stop, long long count, bool has_stop, hr_stream *stream) {
  double *values = PyMem_Malloc((size_t)count * sizeof *values + 1);
  array_object *x = values != NULL ? new_array(stream) : (array_object *)PyErr_NoMemory();
  long long steps = has_stop ? count - 1 : count;
  double step = steps > 0 ? (stop - start) / (double)steps : 0;
  for (long long i = 0; x != NULL && i < count; ++i) {
    values[i] = (double)i * step + start;
  }
  if (x != NULL && has_stop && count > 1) {
    values[count - 1] = stop;
  }
  const int64_t dims[1] = {count};
  hr_status status = x != NULL ? hr_array_from_host(stream, HR_DTYPE_F64, 1, dims, values, &x->tensor) : HR_OK;
  PyMem_Free(values);
  return array_or_raise(x, status);
}

static PyObject *linspace(PyObject *module, PyObject *args, PyObject *names) {
  static char *keywords[] = {"start", "stop", "num", "endpoint", "dtype", "device", NULL};
  double start, stop;
  long long count = 50;
  int endpoint = 1;
  PyObject *dtype = Py_None, *device = Py_None;
  (void)module;
  if (!PyArg_ParseTupleAndKeywords(args, names, "dd|LpOO:linspace", keywords, &start, &stop, &count, &endpoint, &dtype,
                                   &device)) {
    return NULL;
  }
  hr_dtype wanted = dtype_from(dtype);
  hr_stream *stream = PyErr_Occurred() ? NULL : stream_of_device(device);
  if (count < 0 || count > PY_SSIZE_T_MAX / 16) {
    PyErr_Format(PyExc_ValueError, "linspace: %lld elements", count);
  }
  array_object *x = stream != NULL && !PyErr_Occurred() ? evenly(start, stop, count, endpoint, stream) : NULL;
  PyObject *result = x != NULL ? convert_array(x, wanted != HR_DTYPE_NONE ? wanted : HR_DTYPE_F32) : NULL;
  Py_XDECREF((PyObject *)x);
  return result;
}

#define KEYWORDS(function) (PyCFunction)(void (*)(void)) function, METH_VARARGS | METH_KEYWORDS

PyMethodDef creation_methods[] = {
    {"array", KEYWORDS(array),
     "array(object, /, dtype=None, copy=True, device=None)\n--\n\nAn array of numbers, nested lists, arrays, or "
     "objects "
     "with the buffer protocol, whose elements are copied."},
    {"asarray", KEYWORDS(asarray),
     "asarray(object, /, dtype=None, copy=None, device=None)\n--\n\nThe same; memory is shared if it can be. Its owner "
     "must not write to it while work on it is pending (eval)."},
    {"zeros", KEYWORDS(zeros), "zeros(shape, dtype=None, device=None)\n--\n\n0 everywhere; float32 without dtype."},
    {"ones", KEYWORDS(ones), "ones(shape, dtype=None, device=None)\n--\n\n1 everywhere; float32 without dtype."},
    {"empty", KEYWORDS(zeros), "empty(shape, dtype=None, device=None)\n--\n\nAs zeros."},
    {"full", KEYWORDS(full),
     "full(shape, fill_value, dtype=None, device=None)\n--\n\nA number everywhere; without dtype that of "
     "array(number)."},
    {"zeros_like", KEYWORDS(zeros_like), "zeros_like(x, /, dtype=None, device=None)\n--\n\n0 in x's shape and dtype."},
    {"ones_like", KEYWORDS(ones_like), "ones_like(x, /, dtype=None, device=None)\n--\n\n1 in x's shape and dtype."},
    {"empty_like", KEYWORDS(zeros_like), "empty_like(x, /, dtype=None, device=None)\n--\n\nAs zeros_like."},
    {"full_like", KEYWORDS(full_like),
     "full_like(x, /, fill_value, dtype=None, device=None)\n--\n\nA number in x's shape and dtype."},
    {"arange", KEYWORDS(arange),
     "arange(start, stop=None, step=1, dtype=None, device=None)\n--\n\nstart, start + step, ... before stop; with one "
     "number from 0 to it. int64 for integers, else float32."},
    {"linspace", KEYWORDS(linspace),
     "linspace(start, stop, num=50, endpoint=True, dtype=None, device=None)\n--\n\nEvenly spaced numbers; float32 "
     "without "
     "dtype."},
    {"eye", KEYWORDS(eye),
     "eye(n_rows, n_cols=None, *, k=0, dtype=None, device=None)\n--\n\nOnes on diagonal k; float32 without dtype."},
    {NULL, NULL, 0, NULL}};
