/* files.c: save and load: files of arrays (headrace/file.h) by Python's paths and dicts. */
#include <stdlib.h>
#include <string.h>

#include "extension.h"
#include "headrace/file.h"

PyObject *raise_file_status(hr_status status) {
  PyObject *type = NULL;
  switch (hr_status_code_of(status)) {
    case HR_STATUS_DATA_LOSS:
    case HR_STATUS_UNIMPLEMENTED:
      type = PyExc_ValueError;
      break;
    case HR_STATUS_NOT_FOUND:
      type = PyExc_FileNotFoundError;
      break;
    case HR_STATUS_PERMISSION_DENIED:
      type = PyExc_PermissionError;
      break;
    case HR_STATUS_UNAVAILABLE:
      type = PyExc_OSError;
      break;
    default:
      return raise_status(status);
  }
  PyErr_SetString(type, hr_status_message(status));
  hr_status_free(status);
  return NULL;
}

/* ---- save ---- */

/* Bytes of a path that ends as the format's files do. */
static PyObject *path_for(PyObject *object, const char *ending) {
  PyObject *path = NULL;
  if (!PyUnicode_FSConverter(object, &path)) {
    return NULL;
  }
  const char *text = PyBytes_AsString(path);
  size_t length = strlen(text), end = strlen(ending);
  if (length < end || strcmp(text + length - end, ending) != 0) {
    PyObject *longer = PyBytes_FromFormat("%s%s", text, ending);
    Py_DECREF(path);
    return longer;
  }
  return path;
}

/* The contents of a file. Other threads may change dicts while the file is written, so tensors are views of the
 * request's own, and strings are those of objects that it keeps. */
typedef struct request {
  hr_file_contents contents;
  PyObject *kept; /* a list */
  const char **names;
  const hr_tensor **arrays;
  hr_tensor *tensors;
  hr_file_value *values;
  hr_stream *stream;
} request;

static void drop_request(request *r) {
  for (int i = 0; i < r->contents.count; ++i) {
    hr_tensor_release(&r->tensors[i]);
  }
  for (int i = 0; i < r->contents.value_count; ++i) {
    PyMem_Free((void *)(uintptr_t)r->values[i].strings);
    PyMem_Free((void *)(uintptr_t)r->values[i].numbers);
  }
  Py_XDECREF(r->kept);
  PyMem_Free(r->names);
  PyMem_Free(r->arrays);
  PyMem_Free(r->values);
  PyMem_Free(r->tensors);
}

/* Keeps an object, whose reference it takes, until the request is dropped. */
static PyObject *keep(request *r, PyObject *object) {
  if (object == NULL || PyList_Append(r->kept, object) < 0) {
    Py_XDECREF(object);
    return NULL;
  }
  Py_DECREF(object);
  return object;
}

/* The characters of a string without zeros. */
static const char *string_of(PyObject *object, const char *what) {
  Py_ssize_t length = 0;
  const char *text = PyUnicode_Check(object) ? PyUnicode_AsUTF8AndSize(object, &length) : NULL;
  if (text != NULL && strlen(text) == (size_t)length) {
    return text;
  }
  if (!PyErr_Occurred()) {
    PyErr_Format(text != NULL ? PyExc_ValueError : PyExc_TypeError, "%s must be strings without zeros, not %R", what,
                 object);
  }
  return NULL;
}

static int add_array(request *r, const char *function, PyObject *name, PyObject *value) {
  operand x;
  int i = r->contents.count;
  hr_tensor *own = &r->tensors[i];
  r->names[i] = name != NULL ? string_of(name, "names") : "";
  if (r->names[i] == NULL || want_operand(function, value, 0, &x) < 0) {
    return -1;
  }
  if (r->stream != NULL && x.stream != r->stream) {
    PyErr_Format(PyExc_ValueError, "%s: arrays of two devices", function);
    Py_XDECREF(x.owned);
    return -1;
  }
  if (is_array(value) && refuse_traced(as_array(value)) < 0) {
    return -1;
  }
  *own = *x.tensor, r->stream = x.stream;
  hr_buffer_retain(own->buffer);
  Py_XDECREF(x.owned);
  r->arrays[i] = own;
  ++r->contents.count;
  return 0;
}

static int make_request(request *r, hr_file_format format, Py_ssize_t count, Py_ssize_t value_count) {
  r->names = PyMem_Calloc((size_t)count + 1, sizeof *r->names);
  r->arrays = PyMem_Calloc((size_t)count + 1, sizeof *r->arrays);
  r->tensors = PyMem_Calloc((size_t)count + 1, sizeof *r->tensors);
  r->values = PyMem_Calloc((size_t)value_count + 1, sizeof *r->values);
  r->kept = PyList_New(0);
  r->contents = (hr_file_contents){.format = format, .names = r->names, .arrays = r->arrays, .values = r->values};
  if (r->names == NULL || r->arrays == NULL || r->tensors == NULL || r->values == NULL) {
    PyErr_NoMemory();
    return -1;
  }
  return r->kept != NULL ? 0 : -1;
}

/* ---- metadata ---- */

/* Strings of one object or of a list. Bytes that are no UTF-8 are those that load has put into surrogates. */
static int set_strings(request *r, hr_file_value *value, PyObject *const *objects, Py_ssize_t count) {
  hr_file_string *strings = PyMem_Calloc((size_t)count + 1, sizeof *strings);
  if (strings == NULL) {
    PyErr_NoMemory();
    return -1;
  }
  value->strings = strings, value->count = count;
  for (Py_ssize_t i = 0; i < count; ++i) {
    char *chars;
    Py_ssize_t length;
    PyObject *bytes = keep(r, PyUnicode_AsEncodedString(objects[i], "utf-8", "surrogateescape"));
    if (bytes == NULL || PyBytes_AsStringAndSize(bytes, &chars, &length) < 0) {
      return -1;
    }
    strings[i] = (hr_file_string){chars, (size_t)length};
  }
  return 0;
}

static int set_string_list(request *r, hr_file_value *value, PyObject *list) {
  Py_ssize_t count = PyList_Size(list);
  PyObject **objects = PyMem_Calloc((size_t)count + 1, sizeof *objects);
  int result = objects != NULL ? 0 : -1;
  if (objects == NULL) {
    PyErr_NoMemory();
  }
  for (Py_ssize_t i = 0; i < count && result == 0; ++i) {
    objects[i] = PyList_GetItem(list, i);
    if (!PyUnicode_Check(objects[i])) {
      PyErr_Format(PyExc_TypeError, "metadata: a list of strings has %R", objects[i]);
      result = -1;
    }
  }
  result = result == 0 ? set_strings(r, value, objects, count) : -1;
  PyMem_Free(objects);
  value->kind = HR_FILE_STRINGS;
  return result;
}

/* Numbers of an array with at most one dim. */
static int set_numbers(hr_file_value *value, PyObject *object) {
  operand x;
  if (want_operand("metadata", object, 0, &x) < 0) {
    return -1;
  }
  hr_status status = HR_OK;
  int64_t count = hr_tensor_count(x.tensor);
  void *numbers = PyMem_Malloc((size_t)count * hr_dtype_size(x.tensor->dtype) + 1);
  value->kind = x.tensor->rank == 0 ? HR_FILE_NUMBER : HR_FILE_NUMBERS;
  value->dtype = x.tensor->dtype, value->count = count, value->numbers = numbers;
  if (numbers == NULL) {
    PyErr_NoMemory();
  } else if (x.tensor->rank > 1) {
    PyErr_Format(PyExc_ValueError, "metadata: an array has %d dims, expected at most one", x.tensor->rank);
  } else if (!is_array(object) || refuse_traced(as_array(object)) == 0) {
    Py_BEGIN_ALLOW_THREADS;
    status = count > 0 ? hr_array_read(x.stream, x.tensor, numbers) : HR_OK;
    Py_END_ALLOW_THREADS;
    if (status != HR_OK) {
      raise_status(status);
    }
  }
  Py_XDECREF(x.owned);
  return PyErr_Occurred() ? -1 : 0;
}

static int add_value(request *r, PyObject *key, PyObject *object) {
  hr_file_value *value = &r->values[r->contents.value_count++];
  bool is_gguf = r->contents.format == HR_FILE_GGUF;
  value->key = string_of(key, "metadata");
  if (value->key == NULL || (!is_gguf && string_of(object, "metadata") == NULL)) {
    return -1;
  }
  if (PyUnicode_Check(object)) {
    return set_strings(r, value, &object, 1);
  }
  bool is_list = PyList_Check(object) && PyList_Size(object) > 0 && PyUnicode_Check(PyList_GetItem(object, 0));
  return is_list ? set_string_list(r, value, object) : set_numbers(value, object);
}

static int add_all(request *r, const char *function, hr_file_format format, PyObject *arrays, PyObject *values) {
  PyObject *key, *value;
  Py_ssize_t at = 0, value_count = values != Py_None ? PyDict_Size(values) : 0;
  if (make_request(r, format, PyDict_Size(arrays), value_count) < 0) {
    return -1;
  }
  arrays = keep(r, PyDict_Copy(arrays));
  values = values != Py_None ? keep(r, PyDict_Copy(values)) : keep(r, PyDict_New());
  if (arrays == NULL || values == NULL) {
    return -1;
  }
  while (PyDict_Next(arrays, &at, &key, &value)) {
    if (add_array(r, function, key, value) < 0) {
      return -1;
    }
  }
  for (at = 0; PyDict_Next(values, &at, &key, &value);) {
    if (add_value(r, key, value) < 0) {
      return -1;
    }
  }
  return 0;
}

/* ---- writing ---- */

/* Calls `write` of a file object; other failures than Python's don't occur in it. */
static hr_status write_object(void *object, const void *bytes, size_t count) {
  PyGILState_STATE gil = PyGILState_Ensure();
  PyObject *view = PyMemoryView_FromMemory((char *)(uintptr_t)bytes, (Py_ssize_t)count, PyBUF_READ);
  PyObject *result = view != NULL ? PyObject_CallMethod(object, "write", "O", view) : NULL;
  bool is_short = result != NULL && PyLong_Check(result) && PyLong_AsSsize_t(result) != (Py_ssize_t)count;
  if (is_short) {
    PyErr_Format(PyExc_OSError, "a file object wrote %R of %zu bytes", result, count);
  }
  PyObject *released = view != NULL && !PyErr_Occurred() ? PyObject_CallMethod(view, "release", NULL) : NULL;
  hr_status status = result != NULL && !is_short && released != NULL
                         ? HR_OK
                         : hr_status_make(HR_STATUS_CANCELLED, "a file object raised an exception");
  Py_XDECREF(released);
  Py_XDECREF(result);
  Py_XDECREF(view);
  PyGILState_Release(gil);
  return status;
}

static PyObject *write_request(request *r, PyObject *file, const char *ending) {
  bool is_object = PyObject_HasAttrString(file, "write");
  PyObject *path = is_object ? NULL : path_for(file, ending);
  r->stream = r->stream != NULL ? r->stream : current_stream();
  if (r->stream == NULL || (path == NULL && !is_object)) {
    Py_XDECREF(path);
    return NULL;
  }
  hr_status status;
  const char *text = path != NULL ? PyBytes_AsString(path) : NULL;
  Py_BEGIN_ALLOW_THREADS;
  status = is_object ? hr_file_write_to(r->stream, write_object, file, &r->contents)
                     : hr_file_write(r->stream, text, &r->contents);
  Py_END_ALLOW_THREADS;
  Py_XDECREF(path);
  if (status != HR_OK && PyErr_Occurred()) {
    hr_status_free(status);
    return NULL;
  }
  if (status != HR_OK) {
    return raise_file_status(status);
  }
  Py_RETURN_NONE;
}

static PyObject *save(PyObject *module, PyObject *args) {
  PyObject *file, *array, *result = NULL;
  request r = {0};
  (void)module;
  if (!PyArg_ParseTuple(args, "OO:save", &file, &array)) {
    return NULL;
  }
  if (make_request(&r, HR_FILE_NPY, 1, 0) == 0 && add_array(&r, "save", NULL, array) == 0) {
    result = write_request(&r, file, ".npy");
  }
  drop_request(&r);
  return result;
}

/* save_...(file, arrays, metadata=None) */
static PyObject *save_dict(PyObject *args, PyObject *named, const char *function, const char *ending,
                           hr_file_format format) {
  static char *keywords[] = {"file", "arrays", "metadata", NULL};
  PyObject *file, *arrays, *values = Py_None, *result = NULL;
  request r = {0};
  if (!PyArg_ParseTupleAndKeywords(args, named, "OO!|O", keywords, &file, &PyDict_Type, &arrays, &values)) {
    return NULL;
  }
  if (values != Py_None && !PyDict_Check(values)) {
    PyErr_Format(PyExc_TypeError, "%s: metadata must be a dict, not %R", function, values);
    return NULL;
  }
  if (add_all(&r, function, format, arrays, values) == 0) {
    result = write_request(&r, file, ending);
  }
  drop_request(&r);
  return result;
}

static PyObject *save_safetensors(PyObject *module, PyObject *args, PyObject *named) {
  (void)module;
  return save_dict(args, named, "save_safetensors", ".safetensors", HR_FILE_SAFETENSORS);
}

static PyObject *save_gguf(PyObject *module, PyObject *args, PyObject *named) {
  (void)module;
  return save_dict(args, named, "save_gguf", ".gguf", HR_FILE_GGUF);
}

/* The arrays of savez by name: those without one are arr_0, arr_1, ... */
static PyObject *name_arrays(const char *function, PyObject *args, PyObject *named) {
  PyObject *arrays = named != NULL ? PyDict_Copy(named) : PyDict_New();
  for (Py_ssize_t i = 1; arrays != NULL && i < PyTuple_Size(args); ++i) {
    PyObject *name = PyUnicode_FromFormat("arr_%zd", i - 1);
    int found = name != NULL ? PyDict_Contains(arrays, name) : -1;
    if (found > 0) {
      PyErr_Format(PyExc_ValueError, "%s: %U is the name of an array without a name, too", function, name);
    }
    if (found != 0 || PyDict_SetItem(arrays, name, PyTuple_GetItem(args, i)) < 0) {
      Py_CLEAR(arrays);
    }
    Py_XDECREF(name);
  }
  return arrays;
}

static PyObject *savez(PyObject *module, PyObject *args, PyObject *named) {
  PyObject *result = NULL;
  request r = {0};
  (void)module;
  if (PyTuple_Size(args) == 0) {
    PyErr_SetString(PyExc_TypeError, "savez: expected a file before the arrays");
    return NULL;
  }
  PyObject *arrays = name_arrays("savez", args, named);
  if (arrays != NULL && add_all(&r, "savez", HR_FILE_NPZ, arrays, Py_None) == 0) {
    result = write_request(&r, PyTuple_GetItem(args, 0), ".npz");
  }
  drop_request(&r);
  Py_XDECREF(arrays);
  return result;
}

/* ---- load ---- */

/* Opens what `read` of a file object returns. */
static hr_file *open_contents(PyObject *object) {
  hr_file *file = NULL;
  char *bytes;
  Py_ssize_t size;
  PyObject *contents = PyObject_CallMethod(object, "read", NULL);
  if (contents == NULL || PyBytes_AsStringAndSize(contents, &bytes, &size) < 0) {
    Py_XDECREF(contents);
    return NULL;
  }
  hr_status status = hr_file_open_bytes("file object", bytes, (size_t)size, &file);
  Py_DECREF(contents);
  return status == HR_OK ? file : (hr_file *)raise_file_status(status);
}

static hr_file *open_object(PyObject *object) {
  PyObject *path = NULL;
  hr_file *file = NULL;
  if (PyObject_HasAttrString(object, "read")) {
    return open_contents(object);
  }
  if (!PyUnicode_FSConverter(object, &path)) {
    return NULL;
  }
  hr_status status;
  const char *text = PyBytes_AsString(path);
  Py_BEGIN_ALLOW_THREADS;
  status = hr_file_open(text, &file);
  Py_END_ALLOW_THREADS;
  Py_DECREF(path);
  return status == HR_OK ? file : (hr_file *)raise_file_status(status);
}

static PyObject *load_array(hr_stream *stream, hr_file *file, int i) {
  array_object *x = new_array(stream);
  if (x == NULL) {
    return NULL;
  }
  hr_status status;
  hr_tensor tensor = {0};
  Py_BEGIN_ALLOW_THREADS;
  status = hr_file_array(stream, file, i, &tensor);
  Py_END_ALLOW_THREADS;
  if (status != HR_OK) {
    Py_DECREF((PyObject *)x);
    return raise_file_status(status);
  }
  x->tensor = tensor;
  return (PyObject *)x;
}

/* Adds a value, whose reference it takes. */
static int put(PyObject *dict, const char *key, PyObject *value) {
  int result = value != NULL ? PyDict_SetItemString(dict, key, value) : -1;
  Py_XDECREF(value);
  return result;
}

static PyObject *load_arrays(hr_stream *stream, hr_file *file) {
  PyObject *arrays = PyDict_New();
  for (int i = 0; arrays != NULL && i < hr_file_count(file); ++i) {
    if (put(arrays, hr_file_name(file, i), load_array(stream, file, i)) < 0) {
      Py_CLEAR(arrays);
    }
  }
  return arrays;
}

/* Strings of a gguf file may have any bytes: those that are no UTF-8 become surrogates. */
static PyObject *load_string(const hr_file_string *string) {
  return PyUnicode_DecodeUTF8(string->chars, (Py_ssize_t)string->length, "surrogateescape");
}

static PyObject *load_strings(const hr_file_value *value) {
  PyObject *list = PyList_New(0);
  for (int64_t i = 0; list != NULL && i < value->count; ++i) {
    PyObject *string = load_string(&value->strings[i]);
    if (string == NULL || PyList_Append(list, string) < 0) {
      Py_CLEAR(list);
    }
    Py_XDECREF(string);
  }
  return list;
}

static PyObject *load_numbers(hr_stream *stream, const hr_file_value *value) {
  array_object *x = new_array(stream);
  hr_status status = x != NULL ? hr_array_from_host(stream, value->dtype, value->kind == HR_FILE_NUMBERS, &value->count,
                                                    value->numbers, &x->tensor)
                               : HR_OK;
  if (status != HR_OK) {
    Py_DECREF((PyObject *)x);
    return raise_status(status);
  }
  return (PyObject *)x;
}

static PyObject *load_metadata(hr_stream *stream, hr_file *file) {
  PyObject *values = PyDict_New();
  for (int i = 0; values != NULL && i < hr_file_value_count(file); ++i) {
    const hr_file_value *value = hr_file_value_at(file, i);
    PyObject *object = value->kind == HR_FILE_STRING    ? load_string(value->strings)
                       : value->kind == HR_FILE_STRINGS ? load_strings(value)
                                                        : load_numbers(stream, value);
    if (put(values, value->key, object) < 0) {
      Py_CLEAR(values);
    }
  }
  return values;
}

static PyObject *load(PyObject *module, PyObject *args, PyObject *named) {
  static char *keywords[] = {"file", "return_metadata", "device", NULL};
  PyObject *object, *device = Py_None;
  int wants_metadata = 0;
  (void)module;
  if (!PyArg_ParseTupleAndKeywords(args, named, "O|pO:load", keywords, &object, &wants_metadata, &device)) {
    return NULL;
  }
  hr_stream *stream = stream_of_device(device);
  hr_file *file = stream != NULL ? open_object(object) : NULL;
  if (file == NULL) {
    return NULL;
  }
  PyObject *result = hr_file_format_of(file) == HR_FILE_NPY ? load_array(stream, file, 0) : load_arrays(stream, file);
  if (result != NULL && wants_metadata) {
    PyObject *texts = load_metadata(stream, file);
    PyObject *both = texts != NULL ? PyTuple_Pack(2, result, texts) : NULL;
    Py_XDECREF(texts);
    Py_DECREF(result);
    result = both;
  }
  hr_file_close(file);
  return result;
}

PyMethodDef file_methods[] = {
    {"save", save, METH_VARARGS,
     "save(file, array, /)\n--\n\nWrites an array as a NumPy file (.npy), to a path or an object with `write`."},
    {"savez", (PyCFunction)(void (*)(void))savez, METH_VARARGS | METH_KEYWORDS,
     "savez(file, /, *args, **kwargs)\n--\n\n"
     "Writes arrays as NumPy's archive (.npz). Those without a name get arr_0, arr_1, ..."},
    {"save_safetensors", (PyCFunction)(void (*)(void))save_safetensors, METH_VARARGS | METH_KEYWORDS,
     "save_safetensors(file, arrays, metadata=None)\n--\n\nWrites a dict of arrays, and one of strings."},
    {"save_gguf", (PyCFunction)(void (*)(void))save_gguf, METH_VARARGS | METH_KEYWORDS,
     "save_gguf(file, arrays, metadata=None)\n--\n\n"
     "Writes a dict of arrays, and one of strings, lists of strings, numbers, and arrays of at most one dim."},
    {"load", (PyCFunction)(void (*)(void))load, METH_VARARGS | METH_KEYWORDS,
     "load(file, return_metadata=False, device=None)\n--\n\n"
     "The array of an npy file, or a dict of those of an npz, safetensors or gguf file; with return_metadata, (that, a "
     "dict)."},
    {NULL, NULL, 0, NULL}};
