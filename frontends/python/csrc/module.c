/* module.c: the module, its streams, exceptions and waits. */
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "extension.h"

PyTypeObject *array_type, *dtype_type;

/* ---- exceptions ---- */

/* The exception that a signal's handler raised in a wait of the main thread. */
static struct { PyObject *type, *value, *traceback; } raised;

static bool handler_raises(void *arg) {
  (void)arg;
  if (syscall(SYS_gettid) != getpid() || !Py_IsInitialized()) {
    return false;
  }
  PyGILState_STATE state = PyGILState_Ensure();
  bool raises = PyErr_Occurred() == NULL && PyErr_CheckSignals() != 0;
  if (raises) {
    PyErr_Fetch(&raised.type, &raised.value, &raised.traceback);
  }
  Py_BEGIN_ALLOW_THREADS; /* others go on while a record waits for its place in the queue */
  Py_END_ALLOW_THREADS;
  PyGILState_Release(state);
  return raises;
}

static PyObject *exception_of(hr_status_code code) {
  switch (code) {
    case HR_STATUS_INVALID_ARGUMENT:
    case HR_STATUS_ALREADY_EXISTS:
      return PyExc_ValueError;
    case HR_STATUS_OUT_OF_RANGE:
      return mlx_exception(PyExc_IndexError);
    case HR_STATUS_UNIMPLEMENTED:
      return mlx_exception(PyExc_TypeError);
    case HR_STATUS_RESOURCE_EXHAUSTED:
      return PyExc_MemoryError;
    case HR_STATUS_CANCELLED:
      return PyExc_KeyboardInterrupt;
    default:
      return PyExc_RuntimeError;
  }
}

PyObject *raise_status(hr_status status) {
  if (hr_status_code_of(status) == HR_STATUS_CANCELLED && raised.type != NULL) {
    PyErr_Restore(raised.type, raised.value, raised.traceback);
    memset(&raised, 0, sizeof raised);
  } else if (hr_status_code_of(status) == HR_STATUS_FAILED_PRECONDITION && is_tracing()) { /* of a capture */
    PyErr_Format(PyExc_ValueError, "an array has no value while compile() traces the function that makes it: %s",
                 hr_status_message(status));
  } else {
    PyErr_SetString(exception_of(hr_status_code_of(status)), hr_status_message(status));
  }
  hr_status_free(status);
  return NULL;
}

/* ---- streams ---- */

enum { STREAMS_MAX = 64 };

static struct {
  hr_stream *all[STREAMS_MAX];
  int count;
  hr_stream *current;
} streams;

static hr_stream *find_stream(const hr_device *device) {
  for (int i = 0; i < streams.count; ++i) {
    if (hr_stream_device(streams.all[i]) == device) {
      return streams.all[i];
    }
  }
  return NULL;
}

static hr_status open_stream(const char *name, hr_stream **out_stream) {
  hr_device *device;
  HR_RETURN_IF_ERROR(hr_device_open(name, &device));
  hr_stream *stream = find_stream(device);
  hr_status status = HR_OK;
  if (stream == NULL) {
    status = streams.count < STREAMS_MAX
                 ? hr_stream_create(device, &stream)
                 : hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "%d devices are open already", streams.count);
    if (status == HR_OK) {
      hr_stream_set_interrupt_check(stream, handler_raises, NULL);
      hr_stream_open_libraries(stream);
      streams.all[streams.count++] = stream;
    }
  }
  hr_device_release(device);
  *out_stream = stream;
  return status;
}

static hr_stream *stream_of_name(const char *name) {
  hr_stream *stream = NULL;
  hr_status status = open_stream(name, &stream);
  if (status != HR_OK) {
    raise_status(status);
    return NULL;
  }
  return stream;
}

bool is_device_stream(const hr_stream *stream) {
  for (int i = 0; i < streams.count; ++i) {
    if (streams.all[i] == stream) {
      return true;
    }
  }
  return false;
}

hr_stream *default_stream(void) {
  if (streams.current == NULL) {
    const char *chosen = getenv("HEADRACE_DEVICE");
    streams.current = stream_of_name(chosen != NULL && chosen[0] != '\0' ? chosen : "cpu");
  }
  return streams.current;
}

hr_stream *current_stream(void) {
  return traced_stream(default_stream());
}

static hr_stream *find_device(PyObject *name) {
  if (name == NULL || name == Py_None) {
    return default_stream();
  }
  const char *text = PyUnicode_Check(name) ? PyUnicode_AsUTF8AndSize(name, NULL) : NULL;
  if (text == NULL) {
    if (!PyErr_Occurred()) {
      PyErr_Format(PyExc_TypeError, "device must be a name such as \"cpu\", not %R", name);
    }
    return NULL;
  }
  return stream_of_name(text);
}

hr_stream *stream_of_device(PyObject *name) {
  return traced_stream(find_device(name));
}

static PyObject *choose_device(PyObject *module, PyObject *args) {
  (void)module;
  PyObject *name = Py_None;
  if (!PyArg_ParseTuple(args, "|O:device", &name)) {
    return NULL;
  }
  hr_stream *stream = find_device(name);
  if (stream == NULL) {
    return NULL;
  }
  streams.current = stream;
  return PyUnicode_FromString(hr_device_name(hr_stream_device(stream)));
}

/* ---- waits ---- */

/* -1 with an exception if the object is an array that is being traced, or a container with one. */
static int refuse_traced_in(PyObject *object) {
  if (is_array(object)) {
    return refuse_traced(as_array(object));
  }
  PyObject *children = PyDict_Check(object)                            ? PyDict_Values(object)
                       : PyList_Check(object) || PyTuple_Check(object) ? PySequence_List(object)
                                                                       : NULL;
  int failed = children == NULL && PyErr_Occurred();
  for (Py_ssize_t i = 0; children != NULL && !failed && i < PyList_Size(children); ++i) {
    failed = refuse_traced_in(PyList_GetItem(children, i)) < 0;
  }
  Py_XDECREF(children);
  return failed ? -1 : 0;
}

/* Keeps the interpreter's lock for what takes no longer than to release it and take it again. */
static hr_status finish_streams(void) {
  int i = 0;
  while (i < streams.count && hr_stream_finish_short(streams.all[i])) {
    ++i;
  }
  hr_status status = HR_OK;
  if (i < streams.count) {
    Py_BEGIN_ALLOW_THREADS;
    for (; i < streams.count && status == HR_OK; ++i) {
      status = hr_stream_synchronize(streams.all[i]);
    }
    Py_END_ALLOW_THREADS;
  }
  return status;
}

static PyObject *evaluate(PyObject *module, PyObject *const *args, Py_ssize_t count) {
  (void)module;
  for (Py_ssize_t i = 0; i < count; ++i) {
    if (!is_array(args[i]) && !PyList_Check(args[i]) && !PyTuple_Check(args[i]) && !PyDict_Check(args[i])) {
      PyErr_Format(PyExc_TypeError, "eval() expects arrays, or lists, tuples and dicts of them, not %R", args[i]);
      return NULL;
    }
    if (is_tracing() && refuse_traced_in(args[i]) < 0) {
      return NULL;
    }
  }
  hr_status status = finish_streams();
  release_owners();
  if (status != HR_OK) {
    return raise_status(status);
  }
  Py_RETURN_NONE;
}

static PyObject *read_stats(PyObject *module, PyObject *unused) {
  (void)module, (void)unused;
  hr_stream *stream = default_stream();
  if (stream == NULL) {
    return NULL;
  }
  hr_stats stats;
  hr_stream_stats(stream, &stats);
  PyObject *dict = PyDict_New();
  const int64_t *counters = (const int64_t *)&stats; /* all are of one type, in the order of their names */
  for (int i = 0; dict != NULL && hr_stream_stat_name(i) != NULL; ++i) {
    PyObject *number = PyLong_FromLongLong(counters[i]);
    if (number == NULL || PyDict_SetItemString(dict, hr_stream_stat_name(i), number) < 0) {
      Py_CLEAR(dict);
    }
    Py_XDECREF(number);
  }
  return dict;
}

/* Counters of the default device's memory, in bytes; the action changes it before. */
static PyObject *read_memory(PyObject *module, PyObject *args) {
  (void)module;
  const char *action = "";
  long long limit = -1;
  hr_stream *stream = PyArg_ParseTuple(args, "|sL:_memory", &action, &limit) ? default_stream() : NULL;
  if (stream == NULL) {
    return NULL;
  }
  hr_device *device = hr_stream_device(stream);
  if (strcmp(action, "reset_peak") == 0) {
    hr_device_memory_reset_peak(device);
  } else if (strcmp(action, "trim") == 0) {
    hr_device_memory_trim(device);
  } else if (strcmp(action, "limit") == 0) {
    hr_device_memory_limit(device, limit);
  }
  hr_memory_stats stats;
  hr_device_memory_stats(device, &stats);
  return Py_BuildValue("{s:L,s:L,s:L,s:L,s:L}", "active", (long long)stats.allocated_bytes, "peak",
                       (long long)stats.allocated_bytes_peak, "reserved", (long long)stats.reserved_bytes,
                       "allocations", (long long)stats.allocation_count, "temporary", (long long)stats.temporary_bytes);
}

/* Submits the pending work of all devices without waiting for it. */
static PyObject *submit(PyObject *module, PyObject *unused) {
  (void)module, (void)unused;
  for (int i = 0; i < streams.count; ++i) {
    hr_status status = hr_stream_commit(streams.all[i]);
    if (status != HR_OK) {
      return raise_status(status);
    }
  }
  Py_RETURN_NONE;
}

/* ---- the module ---- */

static PyMethodDef module_methods[] = {
    {"eval", (PyCFunction)(void (*)(void))evaluate, METH_FASTCALL,
     "eval(*arrays)\n--\n\nRuns all pending work and waits for it. Its errors are raised here."},
    {"device", choose_device, METH_VARARGS,
     "device(name=None, /)\n--\n\nThe name of the device of new arrays; with a name, such as \"cuda:1\", selects it."},
    {"stats", read_stats, METH_NOARGS,
     "stats()\n--\n\nCounters of the default device's stream: operations, commits and kernels."},
    {"_memory", read_memory, METH_VARARGS,
     "_memory(action='', limit=-1, /)\n--\n\nactive, peak and reserved bytes of the default device, and its number of "
     "allocations, after "
     "'reset_peak', 'trim' or 'limit'."},
    {"_submit", submit, METH_NOARGS, "_submit()\n--\n\nSubmits all pending work without waiting for it."},
    {NULL, NULL, 0, NULL}};

/* The types and the streams are the process's, so there is one module, too. */
static PyObject *first_module;

/* Methods in Python, which are loaded when they are used. */
static int add_late_methods(void) {
  PyObject *methods = PyImport_ImportModule("headrace._numpy.methods");
  PyObject *done = methods != NULL ? PyObject_CallMethod(methods, "attach", "O", array_type) : NULL;
  Py_XDECREF(methods);
  Py_XDECREF(done);
  return done != NULL ? 0 : -1;
}

static int fill_module(PyObject *module) {
  array_type = make_array_type();
  (void)Py_AtExit(hr_libraries_wait);
  if (array_type == NULL || add_dtypes(module) < 0 || PyModule_AddFunctions(module, creation_methods) < 0 ||
      PyModule_AddFunctions(module, exchange_methods) < 0 || PyModule_AddFunctions(module, function_methods) < 0 ||
      PyModule_AddFunctions(module, tape_methods) < 0 || PyModule_AddFunctions(module, indexing_methods) < 0 ||
      PyModule_AddFunctions(module, file_methods) < 0 || PyModule_AddFunctions(module, compile_methods) < 0 ||
      PyModule_AddFunctions(module, vmap_methods) < 0 || PyModule_AddFunctions(module, pickle_methods) < 0 ||
      PyModule_AddFunctions(module, mlx_methods) < 0 || PyModule_AddFunctions(module, list_methods) < 0 ||
      PyModule_AddFunctions(module, place_methods) < 0 || PyModule_AddFunctions(module, recorder_methods) < 0 ||
      PyModule_AddFunctions(module, model_methods) < 0 || add_compiled(module) < 0 || add_graphs(module) < 0 ||
      add_sessions(module) < 0 || add_packages(module) < 0 ||
      PyModule_AddObjectRef(module, "Array", (PyObject *)array_type) < 0 || add_late_methods() < 0) {
    return -1;
  }
  Py_INCREF(module);
  first_module = module;
  return 0;
}

/* Runs for each interpreter, and again if the module was removed from sys.modules. */
static int execute(PyObject *module) {
  if (PyInterpreterState_GetID(PyInterpreterState_Get()) != 0) {
    PyErr_SetString(PyExc_ImportError,
                    "headrace: arrays belong to the main interpreter, and another interpreter of the "
                    "process (a subinterpreter) can't import them: use threads or processes");
    return -1;
  }
  return first_module != NULL ? PyDict_Update(PyModule_GetDict(module), PyModule_GetDict(first_module))
                              : fill_module(module);
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, execute}, {0, NULL}};
static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "headrace._arrays", NULL, 0, module_methods, slots, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__arrays(void);
PyMODINIT_FUNC PyInit__arrays(void) {
  return PyModuleDef_Init(&definition);
}
