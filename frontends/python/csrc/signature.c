/* signature.c: what distinguishes the calls of a compiled function, as words that are compared.
 *
 *   a word of kind, rank or count, and dtype or type   then
 *   an array                                            its dims
 *   a number, text                                      its value
 *   a list, tuple or dict                               its children, in a dict after their keys
 *
 * Equal words are equal calls: values are compared by their bits, and subclasses by the address of their type.
 */
#include <string.h>

#include "extension.h"

typedef enum word_kind {
  WORD_ARRAY = 1,
  WORD_NONE,
  WORD_BOOL,
  WORD_INTEGER,
  WORD_LARGE, /* an integer of more than 64 bits, as text */
  WORD_FLOAT,
  WORD_COMPLEX,
  WORD_TEXT,
  WORD_BYTES,
  WORD_DTYPE,
  WORD_LIST,
  WORD_TUPLE,
  WORD_DICT,
  WORD_TYPE, /* that of the following object, if it is a subclass */
  WORD_IDENTITY
} word_kind;

void init_signature(signature *s) {
  s->words = s->own_words, s->room = SIGNATURE_WORDS, s->count = 0;
  s->arrays = s->own_arrays, s->array_room = SIGNATURE_ARRAYS, s->array_count = 0;
  s->stream = NULL, s->is_state = false, s->identities = s->states = NULL;
}

void drop_signature(signature *s) {
  if (s->words != s->own_words) {
    PyMem_Free(s->words);
  }
  if (s->arrays != s->own_arrays) {
    PyMem_Free(s->arrays);
  }
  Py_CLEAR(s->identities);
  Py_CLEAR(s->states);
}

/* A larger copy of `data`, which is freed unless it is `own`; NULL with an exception. */
static void *grow(void *data, const void *own, size_t used, size_t bytes) {
  void *larger = PyMem_Malloc(bytes);
  if (larger == NULL) {
    PyErr_NoMemory();
    return NULL;
  }
  memcpy(larger, data, used);
  if (data != own) {
    PyMem_Free(data);
  }
  return larger;
}

static int make_room(signature *s, size_t count) {
  if (__builtin_expect(s->count + count <= s->room, 1)) {
    return 0;
  }
  size_t room = 2 * (s->count + count);
  uint64_t *words = grow(s->words, s->own_words, s->count * sizeof *words, room * sizeof *words);
  if (words == NULL) {
    return -1;
  }
  s->words = words, s->room = room;
  return 0;
}

int add_word(signature *s, uint64_t word) {
  if (make_room(s, 1) < 0) {
    return -1;
  }
  s->words[s->count++] = word;
  return 0;
}

static uint64_t head(word_kind kind, uint64_t count) {
  return (uint64_t)kind | count << 8;
}

static int add_bytes(signature *s, word_kind kind, const void *bytes, size_t count) {
  size_t words = (count + 7) / 8;
  if (make_room(s, words + 2) < 0) {
    return -1;
  }
  s->words[s->count] = head(kind, count);
  s->words[s->count + words] = 0; /* the last one's unused bytes */
  memcpy(&s->words[s->count + 1], bytes, count);
  s->count += words + 1;
  return 0;
}

static int keep(PyObject **list, PyObject *object) {
  if (*list == NULL) {
    *list = PyList_New(0);
  }
  return *list != NULL ? PyList_Append(*list, object) : -1;
}

static int add_identity(signature *s, word_kind kind, PyObject *object) {
  if (keep(&s->identities, object) < 0) {
    return -1;
  }
  return add_word(s, head(kind, 0)) < 0 ? -1 : add_word(s, (uint64_t)(uintptr_t)object);
}

/* ---- leaves ---- */

static int refuse_array(const signature *s, const array_object *x) {
  if (x->tensor.buffer == NULL) {
    return refuse_traced(x);
  }
  PyErr_Format(PyExc_ValueError, "compile: an array is on %s, expected %s as the others",
               hr_device_name(hr_stream_device(x->stream)), hr_device_name(hr_stream_device(s->stream)));
  return -1;
}

static int add_array(signature *s, array_object *x) {
  const hr_tensor *tensor = &x->tensor;
  if (s->stream == NULL) {
    s->stream = x->stream;
  }
  if (__builtin_expect(s->stream != x->stream || tensor->buffer == NULL, 0)) {
    return refuse_array(s, x);
  }
  if (make_room(s, (size_t)tensor->rank + 1) < 0) {
    return -1;
  }
  if (__builtin_expect(s->array_count == s->array_room, 0)) {
    size_t used = (size_t)s->array_count * sizeof *s->arrays;
    array_object **arrays = grow(s->arrays, s->own_arrays, used, 2 * used);
    if (arrays == NULL) {
      return -1;
    }
    s->arrays = arrays, s->array_room *= 2;
  }
  s->arrays[s->array_count++] = x;
  uint64_t *words = &s->words[s->count];
  words[0] = head(WORD_ARRAY, (uint64_t)tensor->rank | (uint64_t)tensor->dtype << 8);
  for (int d = 0; d < tensor->rank; ++d) {
    words[d + 1] = (uint64_t)tensor->dims[d];
  }
  s->count += (size_t)tensor->rank + 1;
  return 0;
}

static int add_text(signature *s, word_kind kind, PyObject *text) {
  Py_ssize_t length = 0;
  const char *bytes = PyUnicode_AsUTF8AndSize(text, &length);
  return bytes != NULL ? add_bytes(s, kind, bytes, (size_t)length) : -1;
}

static int add_integer(signature *s, PyObject *object) {
  int overflow;
  long long value = PyLong_AsLongLongAndOverflow(object, &overflow);
  if (overflow == 0) {
    return value == -1 && PyErr_Occurred() ? -1 : add_bytes(s, WORD_INTEGER, &value, sizeof value);
  }
  PyObject *text = PyNumber_ToBase(object, 16);
  int failed = text == NULL || add_text(s, WORD_LARGE, text) < 0;
  Py_XDECREF(text);
  return failed ? -1 : 0;
}

/* 1: the object is a constant, and was added; 0: it is none. */
static int add_constant(signature *s, PyObject *object) {
  int failed;
  if (object == Py_None) {
    failed = add_word(s, head(WORD_NONE, 0));
  } else if (object == Py_True || object == Py_False) {
    failed = add_word(s, head(WORD_BOOL, object == Py_True));
  } else if (PyLong_Check(object)) {
    failed = add_integer(s, object);
  } else if (PyFloat_Check(object)) {
    double value = PyFloat_AsDouble(object);
    failed = add_bytes(s, WORD_FLOAT, &value, sizeof value);
  } else if (PyUnicode_Check(object)) {
    failed = add_text(s, WORD_TEXT, object);
  } else if (PyBytes_Check(object)) {
    failed = add_bytes(s, WORD_BYTES, PyBytes_AsString(object), (size_t)PyBytes_Size(object));
  } else if (PyComplex_Check(object)) {
    double parts[2] = {PyComplex_RealAsDouble(object), PyComplex_ImagAsDouble(object)};
    failed = add_bytes(s, WORD_COMPLEX, parts, sizeof parts);
  } else if (Py_TYPE(object) == dtype_type) {
    failed = add_word(s, head(WORD_DTYPE, (uint64_t)((dtype_object *)object)->dtype));
  } else {
    return 0;
  }
  return failed ? -1 : 1;
}

/* ---- trees ---- */

static int add_object(signature *s, PyObject *object);

static int add_sequence(signature *s, PyObject *object) {
  bool is_list = PyList_Check(object);
  Py_ssize_t count = is_list ? PyList_Size(object) : PyTuple_Size(object);
  if (add_word(s, head(is_list ? WORD_LIST : WORD_TUPLE, (uint64_t)count)) < 0) {
    return -1;
  }
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject *child = is_list ? PyList_GetItem(object, i) : PyTuple_GetItem(object, i);
    if (child == NULL || add_object(s, child) < 0) {
      return -1;
    }
  }
  return 0;
}

static int add_dict(signature *s, PyObject *object) {
  Py_ssize_t at = 0;
  PyObject *key, *child;
  if (add_word(s, head(WORD_DICT, (uint64_t)PyDict_Size(object))) < 0) {
    return -1;
  }
  while (PyDict_Next(object, &at, &key, &child)) {
    if (add_object(s, key) < 0 || add_object(s, child) < 0) {
      return -1;
    }
  }
  return 0;
}

/* An object of an unknown type: that of its state, or itself. */
static int add_other(signature *s, PyObject *object) {
  if (!s->is_state) {
    PyErr_Format(PyExc_ValueError,
                 "compile: an argument is %R, expected arrays, numbers, text, None, dtypes, or lists, tuples and dicts "
                 "of them",
                 object);
    return -1;
  }
  PyObject *state = state_of(object);
  int failed = state == object                                           ? add_identity(s, WORD_IDENTITY, object)
               : keep(&s->states, state) < 0 || add_object(s, state) < 0 ? -1
                                                                         : 0;
  Py_DECREF(state);
  return failed;
}

static bool is_subclass(PyObject *object) {
  PyTypeObject *type = Py_TYPE(object);
  return type != &PyLong_Type && type != &PyFloat_Type && type != &PyUnicode_Type && type != &PyList_Type &&
         type != &PyTuple_Type && type != &PyDict_Type && type != &PyBool_Type && type != &PyBytes_Type &&
         type != &PyComplex_Type && type != dtype_type && object != Py_None;
}

static int add_object(signature *s, PyObject *object) {
  if (is_array(object)) {
    return add_array(s, as_array(object));
  }
  if (is_subclass(object) && add_identity(s, WORD_TYPE, (PyObject *)Py_TYPE(object)) < 0) {
    return -1;
  }
  int found = add_constant(s, object);
  if (found != 0) {
    return found < 0 ? -1 : 0;
  }
  bool is_dict = PyDict_Check(object), is_sequence = PyList_Check(object) || PyTuple_Check(object);
  if (!is_dict && !is_sequence) {
    return add_other(s, object);
  }
  if (Py_EnterRecursiveCall(" in the arguments of a compiled function")) {
    return -1;
  }
  int failed = is_dict ? add_dict(s, object) : add_sequence(s, object);
  Py_LeaveRecursiveCall();
  return failed;
}

int add_arguments(signature *s, PyObject *const *args, Py_ssize_t count, PyObject *names) {
  Py_ssize_t named = names != NULL ? PyTuple_Size(names) : 0;
  if (add_word(s, (uint64_t)count << 32 | (uint64_t)named) < 0) {
    return -1;
  }
  for (Py_ssize_t i = 0; i < count; ++i) {
    if (add_object(s, args[i]) < 0) {
      return -1;
    }
  }
  for (Py_ssize_t i = 0; i < named; ++i) {
    if (add_text(s, WORD_TEXT, PyTuple_GetItem(names, i)) < 0 || add_object(s, args[count + i]) < 0) {
      return -1;
    }
  }
  return 0;
}

int add_state(signature *s, PyObject *tree) {
  s->is_state = true;
  return add_object(s, tree);
}
