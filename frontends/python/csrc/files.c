/* files.c: save and load: files of arrays (headrace/file.h) by Python's paths and dicts. */
#include <stdlib.h>
#include <string.h>

#include "extension.h"
#include "headrace/file.h"

static PyObject *raise_file_status(hr_status status) {
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
  if (PyObject_HasAttrString(object, "write")) {
    PyErr_Format(PyExc_TypeError, "expected a path, not %R: arrays are saved to files with a name", object);
    return NULL;
  }
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

/* The arrays of a dict, and metadata. Other threads may change both while the file is written, so tensors are views of
 * its own, and the strings are those of copies. */
typedef struct request {
  Py_ssize_t count, text_count;
  PyObject *named, *described; /* copies of the dicts, or NULL */
  const char **names;
  const hr_tensor **arrays;
  hr_tensor *tensors;
  hr_file_text *texts;
  hr_stream *stream;
} request;

static void drop_request(request *r) {
  for (Py_ssize_t i = 0; i < r->count; ++i) {
    hr_tensor_release(&r->tensors[i]);
  }
  Py_XDECREF(r->named);
  Py_XDECREF(r->described);
  PyMem_Free(r->names);
  PyMem_Free(r->arrays);
  PyMem_Free(r->texts);
  PyMem_Free(r->tensors);
}

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
  hr_tensor *own = &r->tensors[r->count];
  r->names[r->count] = name != NULL ? string_of(name, "names") : "";
  if (r->names[r->count] == NULL || want_operand(function, value, 0, &x) < 0) {
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
  r->arrays[r->count++] = own;
  return 0;
}

static int make_request_room(request *r, Py_ssize_t count, Py_ssize_t text_count) {
  r->names = PyMem_Calloc((size_t)count + 1, sizeof *r->names);
  r->arrays = PyMem_Calloc((size_t)count + 1, sizeof *r->arrays);
  r->tensors = PyMem_Calloc((size_t)count + 1, sizeof *r->tensors);
  r->texts = PyMem_Calloc((size_t)text_count + 1, sizeof *r->texts);
  if (r->names == NULL || r->arrays == NULL || r->tensors == NULL || r->texts == NULL) {
    PyErr_NoMemory();
    return -1;
  }
  return 0;
}

static int add_all(request *r, const char *function, PyObject *arrays, PyObject *texts) {
  PyObject *key, *value;
  Py_ssize_t at = 0;
  r->named = arrays = PyDict_Copy(arrays);
  r->described = texts = texts != NULL ? PyDict_Copy(texts) : PyDict_New();
  if (arrays == NULL || texts == NULL || make_request_room(r, PyDict_Size(arrays), PyDict_Size(texts)) < 0) {
    return -1;
  }
  while (PyDict_Next(arrays, &at, &key, &value)) {
    if (add_array(r, function, key, value) < 0) {
      return -1;
    }
  }
  for (at = 0; PyDict_Next(texts, &at, &key, &value); ++r->text_count) {
    hr_file_text *text = &r->texts[r->text_count];
    text->key = string_of(key, "metadata"), text->value = text->key != NULL ? string_of(value, "metadata") : NULL;
    if (text->value == NULL) {
      return -1;
    }
  }
  return 0;
}

static PyObject *write_request(request *r, PyObject *path, hr_file_format format) {
  r->stream = r->stream != NULL ? r->stream : current_stream();
  if (r->stream == NULL) {
    return NULL;
  }
  hr_status status;
  const char *text = PyBytes_AsString(path);
  Py_BEGIN_ALLOW_THREADS;
  status = hr_file_write(r->stream, text, format, (int)r->count, r->names, r->arrays, (int)r->text_count, r->texts);
  Py_END_ALLOW_THREADS;
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
  PyObject *path = path_for(file, ".npy");
  if (path != NULL && make_request_room(&r, 1, 0) == 0 && add_array(&r, "save", NULL, array) == 0) {
    result = write_request(&r, path, HR_FILE_NPY);
  }
  drop_request(&r);
  Py_XDECREF(path);
  return result;
}

static PyObject *save_safetensors(PyObject *module, PyObject *args, PyObject *named) {
  static char *keywords[] = {"file", "arrays", "metadata", NULL};
  PyObject *file, *arrays, *texts = Py_None, *result = NULL;
  request r = {0};
  (void)module;
  if (!PyArg_ParseTupleAndKeywords(args, named, "OO!|O:save_safetensors", keywords, &file, &PyDict_Type, &arrays,
                                   &texts)) {
    return NULL;
  }
  if (texts != Py_None && !PyDict_Check(texts)) {
    PyErr_Format(PyExc_TypeError, "save_safetensors: metadata must be a dict of strings, not %R", texts);
    return NULL;
  }
  PyObject *path = path_for(file, ".safetensors");
  if (path != NULL && add_all(&r, "save_safetensors", arrays, texts != Py_None ? texts : NULL) == 0) {
    result = write_request(&r, path, HR_FILE_SAFETENSORS);
  }
  drop_request(&r);
  Py_XDECREF(path);
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

static PyObject *load_metadata(hr_file *file) {
  PyObject *texts = PyDict_New();
  for (int i = 0; texts != NULL && i < hr_file_metadata_count(file); ++i) {
    const char *key, *value;
    hr_file_metadata(file, i, &key, &value);
    if (put(texts, key, PyUnicode_FromString(value)) < 0) {
      Py_CLEAR(texts);
    }
  }
  return texts;
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
    PyObject *texts = load_metadata(file);
    PyObject *both = texts != NULL ? PyTuple_Pack(2, result, texts) : NULL;
    Py_XDECREF(texts);
    Py_DECREF(result);
    result = both;
  }
  hr_file_close(file);
  return result;
}

PyMethodDef file_methods[] = {
    {"save", save, METH_VARARGS, "save(file, array, /)\n--\n\nWrites an array as a NumPy file (.npy)."},
    {"save_safetensors", (PyCFunction)(void (*)(void))save_safetensors, METH_VARARGS | METH_KEYWORDS,
     "save_safetensors(file, arrays, metadata=None)\n--\n\nWrites a dict of arrays, and one of strings."},
    {"load", (PyCFunction)(void (*)(void))load, METH_VARARGS | METH_KEYWORDS,
     "load(file, return_metadata=False, device=None)\n--\n\n"
     "The array of an npy file, or a dict of those of a safetensors file; with return_metadata, (that, a dict)."},
    {NULL, NULL, 0, NULL}};
