/* compiled.c: compile(f): functions whose operations are captured once for each signature, and replayed.
 * headrace/compiling.py is the public function.
 *
 * f runs as it is, without a capture,
 *   - in a trace, whose own capture gets the operations, and
 *   - while a tape or another hook sees the stream's records, which parts would evade.
 */
#include "captured.h"

#include <stddef.h>
#include <string.h>
#include <structmember.h>

/* ---- captures ---- */

enum { CAPTURES_MAX = 64 };

typedef struct compiled {
  PyObject_HEAD vector_call call;
  stateful_function f;
  PyObject *attributes, *references;
  int count;
  captured *captures[CAPTURES_MAX]; /* the last one used first */
} compiled;

static PyTypeObject *compiled_type;

static captured *find_captured(compiled *self, const signature *s) {
  size_t bytes = s->count * sizeof *s->words;
  for (int i = 0; i < self->count; ++i) {
    captured *c = self->captures[i];
    if (c->word_count == s->count && memcmp(c->words, s->words, bytes) == 0) {
      memmove(&self->captures[1], &self->captures[0], (size_t)i * sizeof c);
      self->captures[0] = c;
      return c;
    }
  }
  return NULL;
}

static void keep_captured(compiled *self, captured *c) {
  captured *oldest = self->count == CAPTURES_MAX ? self->captures[--self->count] : NULL;
  memmove(&self->captures[1], &self->captures[0], (size_t)self->count * sizeof c);
  self->captures[0] = c;
  ++self->count;
  ++c->users;
  drop_captured(oldest); /* may run Python code */
}

/* ---- calls ---- */

static PyObject *tuple_of(PyObject *const *args, Py_ssize_t count) {
  PyObject *tuple = PyTuple_New(count);
  for (Py_ssize_t i = 0; tuple != NULL && i < count; ++i) {
    (void)PyTuple_SetItem(tuple, i, Py_NewRef(args[i]));
  }
  return tuple;
}

/* 0: *out is NULL without named arguments. */
static int dict_of(PyObject *const *values, PyObject *names, PyObject **out) {
  Py_ssize_t count = names != NULL ? PyTuple_Size(names) : 0;
  *out = count > 0 ? PyDict_New() : NULL;
  for (Py_ssize_t i = 0; *out != NULL && i < count; ++i) {
    if (PyDict_SetItem(*out, PyTuple_GetItem(names, i), values[i]) < 0) {
      Py_CLEAR(*out);
    }
  }
  return *out == NULL && count > 0 ? -1 : 0;
}

static PyObject *call_directly(compiled *self, PyObject *const *args, Py_ssize_t count, PyObject *names) {
  PyObject *tuple = tuple_of(args, count), *named = NULL, *result = NULL;
  if (tuple != NULL && dict_of(args + count, names, &named) == 0) {
    result = PyObject_Call(self->f.function, tuple, named);
  }
  Py_XDECREF(tuple);
  Py_XDECREF(named);
  return result;
}

static captured *capture(compiled *self, const signature *s, PyObject *const *args, Py_ssize_t count, PyObject *names) {
  PyObject *tuple = tuple_of(args, count), *named = NULL;
  captured *c = NULL;
  if (tuple != NULL && dict_of(args + count, names, &named) == 0) {
    c = capture_function(&self->f, s, tuple, named);
  }
  Py_XDECREF(tuple);
  Py_XDECREF(named);
  return c;
}

static PyObject *call_new(compiled *self, const signature *s, PyObject *const *args, Py_ssize_t count,
                          PyObject *names) {
  for (int i = 0; i < s->array_count; ++i) {
    Py_INCREF((PyObject *)s->arrays[i]); /* the state may lose it meanwhile */
  }
  captured *c = capture(self, s, args, count, names);
  PyObject *result = NULL;
  if (c != NULL) {
    keep_captured(self, c);
    result = run_captured(&self->f, c, s->arrays);
    drop_captured(c);
  }
  for (int i = 0; i < s->array_count; ++i) {
    Py_DECREF((PyObject *)s->arrays[i]);
  }
  return result;
}

static int describe_call(compiled *self, signature *s, PyObject *const *args, Py_ssize_t count, PyObject *names) {
  hr_stream *chosen = default_stream(); /* of arrays that the function makes */
  if (chosen == NULL || add_arguments(s, args, count, names) < 0 ||
      (self->f.inputs != Py_None && add_state(s, self->f.inputs) < 0)) {
    return -1;
  }
  s->stream = s->stream != NULL ? s->stream : chosen;
  return add_word(s, (uint64_t)(uintptr_t)s->stream) < 0 || add_word(s, (uint64_t)(uintptr_t)chosen) < 0 ? -1 : 0;
}

static PyObject *call_compiled(PyObject *object, PyObject *const *args, size_t flags, PyObject *names) {
  compiled *self = (compiled *)object;
  Py_ssize_t count = (Py_ssize_t)(flags & (SIZE_MAX >> 1)); /* without PY_VECTORCALL_ARGUMENTS_OFFSET */
  if (is_tracing()) {
    return call_directly(self, args, count, names);
  }
  signature s;
  PyObject *result = NULL;
  init_signature(&s);
  if (describe_call(self, &s, args, count, names) == 0) {
    captured *found = NULL;
    if (__builtin_expect(has_hooks(s.stream), 0)) {
      result = call_directly(self, args, count, names);
    } else if (__builtin_expect((found = find_captured(self, &s)) != NULL, 1)) {
      result = run_captured(&self->f, found, s.arrays);
    } else {
      result = call_new(self, &s, args, count, names);
    }
  }
  drop_signature(&s);
  return result;
}

/* For callers without a vector of arguments. */
static PyObject *call_with_tuple(PyObject *self, PyObject *args, PyObject *named) {
  Py_ssize_t count = PyTuple_Size(args), named_count = named != NULL ? PyDict_Size(named) : 0, at = 0, i = count;
  PyObject **vector = PyMem_Calloc((size_t)count + (size_t)named_count + 1, sizeof *vector);
  PyObject *names = named_count > 0 ? PyDict_Keys(named) : NULL, *tuple = NULL, *result = NULL, *value;
  for (Py_ssize_t k = 0; vector != NULL && k < count; ++k) {
    vector[k] = PyTuple_GetItem(args, k);
  }
  while (vector != NULL && named_count > 0 && PyDict_Next(named, &at, &value, &vector[i])) {
    ++i;
  }
  if (names != NULL) {
    tuple = PyList_AsTuple(names);
  }
  if (vector == NULL) {
    PyErr_NoMemory();
  } else if (tuple != NULL || named_count == 0) {
    result = call_compiled(self, vector, (size_t)count, tuple);
  }
  Py_XDECREF(names);
  Py_XDECREF(tuple);
  PyMem_Free(vector);
  return result;
}

/* ---- the type ---- */

static int visit_compiled(PyObject *object, visitproc visit, void *arg) {
  compiled *self = (compiled *)object;
  Py_VISIT(Py_TYPE(object));
  Py_VISIT(self->f.function);
  Py_VISIT(self->f.inputs);
  Py_VISIT(self->f.outputs);
  Py_VISIT(self->attributes);
  for (int i = 0; i < self->count; ++i) {
    Py_VISIT(self->captures[i]->identities);
    Py_VISIT(self->captures[i]->result);
    Py_VISIT(self->captures[i]->state);
  }
  return 0;
}

static int clear_compiled(PyObject *object) {
  compiled *self = (compiled *)object;
  while (self->count > 0) {
    drop_captured(self->captures[--self->count]);
  }
  Py_CLEAR(self->f.function);
  Py_CLEAR(self->f.inputs);
  Py_CLEAR(self->f.outputs);
  Py_CLEAR(self->attributes);
  return 0;
}

static void drop_compiled(PyObject *object) {
  PyTypeObject *type = Py_TYPE(object);
  PyObject_GC_UnTrack(object);
  if (((compiled *)object)->references != NULL) {
    PyObject_ClearWeakRefs(object);
  }
  (void)clear_compiled(object);
  PyObject_GC_Del(object);
  Py_DECREF(type);
}

static PyObject *repr_of_compiled(PyObject *self) {
  return PyUnicode_FromFormat("<compiled %R>", ((compiled *)self)->f.function);
}

/* As a method, like functions. */
static PyObject *bind_compiled(PyObject *self, PyObject *object, PyObject *type) {
  (void)type;
  if (object == NULL || object == Py_None) {
    return Py_NewRef(self);
  }
  PyObject *types = PyImport_ImportModule("types");
  PyObject *method = types != NULL ? PyObject_CallMethod(types, "MethodType", "OO", self, object) : NULL;
  Py_XDECREF(types);
  return method;
}

static PyMemberDef compiled_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(compiled, call), READONLY, NULL},
    {"__dictoffset__", T_PYSSIZET, offsetof(compiled, attributes), READONLY, NULL},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(compiled, references), READONLY, NULL},
    {NULL, 0, 0, 0, NULL}};

static PyGetSetDef compiled_attributes[] = {{"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, NULL, NULL},
                                            {NULL, NULL, NULL, NULL, NULL}};

static PyType_Slot compiled_slots[] = {{Py_tp_dealloc, drop_compiled},
                                       {Py_tp_traverse, visit_compiled},
                                       {Py_tp_clear, clear_compiled},
                                       {Py_tp_call, call_with_tuple},
                                       {Py_tp_repr, repr_of_compiled},
                                       {Py_tp_descr_get, bind_compiled},
                                       {Py_tp_members, compiled_members},
                                       {Py_tp_getset, compiled_attributes},
                                       {Py_tp_doc, "A function whose operations are captured once for each signature."},
                                       {0, NULL}};

/* Py_TPFLAGS_HAVE_VECTORCALL: in the limited interface from 3.12 on, in CPython from 3.8 on. */
enum { HAS_VECTOR_CALL = 1 << 11 };

static PyType_Spec compiled_spec = {
    "headrace.Compiled", sizeof(compiled), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | HAS_VECTOR_CALL | Py_TPFLAGS_DISALLOW_INSTANTIATION, compiled_slots};

/* _compile(function, inputs, outputs) */
static PyObject *compile_function(PyObject *module, PyObject *args) {
  (void)module;
  PyObject *function, *inputs, *outputs;
  if (!PyArg_ParseTuple(args, "OOO:_compile", &function, &inputs, &outputs)) {
    return NULL;
  }
  compiled *self = (compiled *)PyType_GenericAlloc(compiled_type, 0);
  if (self != NULL) {
    self->call = call_compiled;
    self->f.function = Py_NewRef(function);
    self->f.inputs = Py_NewRef(inputs);
    self->f.outputs = Py_NewRef(outputs);
  }
  return (PyObject *)self;
}

/* _outside(function, argument): what happens in a trace, but does not belong to it. */
static PyObject *outside(PyObject *module, PyObject *args) {
  (void)module;
  PyObject *function, *argument;
  return PyArg_ParseTuple(args, "OO:_outside", &function, &argument) ? call_outside(function, argument) : NULL;
}

PyMethodDef compile_methods[] = {{"_compile", compile_function, METH_VARARGS, NULL},
                                 {"_outside", outside, METH_VARARGS, NULL},
                                 {NULL, NULL, 0, NULL}};

int add_compiled(PyObject *module) {
  (void)module;
  compiled_type = (PyTypeObject *)PyType_FromSpec(&compiled_spec);
  return compiled_type != NULL ? 0 : -1;
}
