/* sessions.c: headrace.Session: a graph that answers for arrays, NumPy arrays and DLPack objects.
 *
 * A run records the graph's instance on the stream and returns arrays at once, which wait when they are read. If the
 * stream has hooks (gradients, vmap), or the thread traces, the graph's operations are recorded one by one instead:
 * then they belong to the gradient or the trace.
 */
#include <string.h>
#include <time.h>

#include "extension.h"

#include <structmember.h>

#include "headrace/session.h"

static PyTypeObject *session_type;

typedef struct session_object {
  PyObject_HEAD vector_call call;
  PyObject *weak;
  hr_session *session;
  hr_stream *stream;
  graph_object *graph;        /* as it was given */
  PyObject *inputs, *outputs; /* tuples of names */
  int input_count, output_count;
} session_object;

enum { FEW = 16 };

/* Arrays of a run, in the order of the graph's inputs; with references. */
typedef struct feeds {
  array_object **arrays;
  const hr_tensor **tensors;
  hr_tensor *results;
  int count;
  hr_stream *stream; /* of the run */
  array_object *own_arrays[FEW];
  const hr_tensor *own_tensors[FEW];
  hr_tensor own_results[FEW];
} feeds;

static int begin_feeds(feeds *f, const session_object *self) {
  size_t inputs = (size_t)self->input_count, outputs = (size_t)self->output_count;
  f->count = 0, f->stream = self->stream;
  f->arrays = f->own_arrays, f->tensors = f->own_tensors, f->results = f->own_results;
  if (inputs > FEW || outputs > FEW) {
    f->arrays = PyMem_Malloc((inputs + 1) * sizeof *f->arrays);
    f->tensors = PyMem_Malloc((inputs + 1) * sizeof *f->tensors);
    f->results = PyMem_Malloc((outputs + 1) * sizeof *f->results);
  }
  if (f->arrays == NULL || f->tensors == NULL || f->results == NULL) {
    PyErr_NoMemory();
    return -1;
  }
  return 0;
}

static void end_feeds(feeds *f) {
  for (int i = 0; i < f->count; ++i) {
    Py_DECREF((PyObject *)f->arrays[i]);
  }
  if (f->arrays != f->own_arrays) {
    PyMem_Free(f->arrays);
    PyMem_Free(f->tensors);
    PyMem_Free(f->results);
  }
}

/* ---- inputs ---- */

static hr_dtype dtype_of_input(const session_object *self, int i) {
  hr_type type = {.dtype = HR_DTYPE_NONE};
  const hr_graph *graph = hr_session_graph(self->session);
  hr_status_free(hr_graph_type(graph, hr_graph_input_value(graph, i), &type));
  return type.dtype;
}

/* The next input. Numbers and lists of Python have the input's dtype. */
static int add_feed(session_object *self, feeds *f, PyObject *object, int copy) {
  array_object *x;
  if (__builtin_expect(is_array(object), 1)) {
    x = (array_object *)Py_NewRef(object);
  } else {
    x = array_from(object, has_dtype(object) ? HR_DTYPE_NONE : dtype_of_input(self, f->count), self->stream, copy);
  }
  if (x == NULL) {
    return -1;
  }
  f->arrays[f->count] = x, f->tensors[f->count] = &x->tensor;
  ++f->count;
  if (__builtin_expect(x->stream != f->stream, 0)) {
    f->stream = join_streams(f->stream, &x->tensor, x->stream, &x->tensor);
  }
  return f->stream != NULL ? 0 : -1;
}

static PyObject *input_name(const session_object *self, int i) {
  return PyTuple_GetItem(self->inputs, i);
}

static int refuse_input(const session_object *self, PyObject *name, const char *reason) {
  PyErr_Format(PyExc_ValueError, "session: input %R %s; expected %R", name, reason, self->inputs);
  return -1;
}

/* The first name among feeds that no input has. */
static int refuse_unknown(const session_object *self, PyObject *names) {
  Py_ssize_t count = PyList_Size(names);
  for (Py_ssize_t k = 0; k < count; ++k) {
    PyObject *name = PyList_GetItem(names, k);
    int found = PySequence_Contains(self->inputs, name);
    if (found <= 0) {
      return found < 0 ? -1 : refuse_input(self, name, "is not known");
    }
  }
  PyErr_SetString(PyExc_ValueError, "session: an input is given twice");
  return -1;
}

static int add_dict(session_object *self, feeds *f, PyObject *dict, int copy) {
  for (int i = 0; i < self->input_count; ++i) {
    PyObject *object = PyDict_GetItemWithError(dict, input_name(self, i));
    if (object == NULL) {
      return PyErr_Occurred() ? -1 : refuse_input(self, input_name(self, i), "is missing");
    }
    if (add_feed(self, f, object, copy) < 0) {
      return -1;
    }
  }
  if (PyDict_Size(dict) == self->input_count) {
    return 0;
  }
  PyObject *names = PyDict_Keys(dict);
  int result = names != NULL ? refuse_unknown(self, names) : -1;
  Py_XDECREF(names);
  return result;
}

/* The argument with a name; NULL: there is none. Names of keywords are mostly the same objects as those of inputs. */
static PyObject *find_named(PyObject *const *values, PyObject *names, Py_ssize_t count, PyObject *name) {
  for (Py_ssize_t k = 0; k < count; ++k) {
    PyObject *given = PyTuple_GetItem(names, k);
    if (given == name || PyUnicode_Compare(given, name) == 0) {
      return values[k];
    }
  }
  return NULL;
}

static int refuse_names(session_object *self, PyObject *names, Py_ssize_t from) {
  PyObject *list = names != NULL ? PySequence_List(names) : PyList_New(0);
  int result = -1;
  if (list != NULL && PyList_Size(list) == 0) {
    PyErr_Format(PyExc_TypeError, "session: %zd inputs, expected %R", from, self->inputs);
  } else if (list != NULL) {
    result = refuse_unknown(self, list);
  }
  Py_XDECREF(list);
  return result;
}

/* Arguments of a call: the first inputs by position, the others by name. */
static int add_arguments_of(session_object *self, feeds *f, PyObject *const *args, Py_ssize_t count, PyObject *names) {
  Py_ssize_t named = names != NULL ? PyTuple_Size(names) : 0;
  for (int i = 0; i < self->input_count; ++i) {
    PyObject *object = i < count ? args[i] : find_named(args + count, names, named, input_name(self, i));
    if (object == NULL) {
      bool is_known = true;
      for (Py_ssize_t k = 0; k < named && is_known; ++k) {
        is_known = PySequence_Contains(self->inputs, PyTuple_GetItem(names, k)) == 1;
      }
      return is_known ? refuse_input(self, input_name(self, i), "is missing") : refuse_names(self, names, count);
    }
    if (add_feed(self, f, object, 1) < 0) {
      return -1;
    }
  }
  return count + named == self->input_count ? 0 : refuse_names(self, names, count);
}

/* ---- threads ---- */

/* A stream with hooks belongs to one thread (hook.h): no hook opens while a session records without Python's lock,
 * which guards these counts. */
static int open_runs, waiting_hooks;

static void let_others_run(void) {
  const struct timespec pause = {.tv_nsec = 20000};
  Py_BEGIN_ALLOW_THREADS;
  (void)nanosleep(&pause, NULL);
  Py_END_ALLOW_THREADS;
}

static thread_hook *open_hooks;

void begin_hook(thread_hook *hook) {
  ++waiting_hooks;
  while (open_runs > 0) {
    let_others_run();
  }
  --waiting_hooks;
  *hook = (thread_hook){PyThread_get_thread_ident(), open_hooks};
  open_hooks = hook;
}

void end_hook(thread_hook *hook) {
  for (thread_hook **at = &open_hooks; *at != NULL; at = &(*at)->next) {
    if (*at == hook) {
      *at = hook->next;
      return;
    }
  }
}

static bool has_own_hooks(void) {
  const thread_hook *hook = open_hooks;
  while (hook != NULL && hook->thread != PyThread_get_thread_ident()) {
    hook = hook->next;
  }
  return hook != NULL;
}

/* Gives up Python's lock during a use of the stream; NULL: it has hooks, and the lock is kept. */
static PyThreadState *unlock(hr_stream *stream) {
  while (waiting_hooks > 0) {
    let_others_run();
  }
  if (has_hooks(stream)) {
    return NULL;
  }
  ++open_runs;
  return PyEval_SaveThread();
}

static void lock_again(PyThreadState *state) {
  if (state != NULL) {
    PyEval_RestoreThread(state);
    --open_runs;
  }
}

/* ---- runs ---- */

static hr_status run_on_stream(session_object *self, feeds *f) {
  hr_stream *stream = traced_stream(f->stream);
  PyThreadState *state = stream == self->stream ? unlock(stream) : NULL;
  if (__builtin_expect(state != NULL, 1)) { /* it may wait for numbers, or for another thread's run */
    hr_status status = hr_session_run(self->session, f->count, f->tensors, self->output_count, f->results);
    lock_again(state);
    return status;
  }
  const hr_graph *graph = hr_session_graph(self->session);
  if (hr_graph_variable_count(graph) == 0) {
    return hr_graph_apply(graph, stream, f->count, f->tensors, self->output_count, f->results);
  }
  if (stream != self->stream || has_own_hooks()) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT,
                          "session: a graph with variables can't be a part of a gradient, vmap or compiled function");
  }
  return hr_session_run(self->session, f->count, f->tensors, self->output_count, f->results);
}

/* Inputs of the device's stream become constants of a trace. */
static int note_inputs(feeds *f) {
  hr_stream *stream = traced_stream(f->stream);
  for (int i = 0; stream != f->stream && i < f->count; ++i) {
    f->stream = join_streams(stream, f->tensors[i], f->arrays[i]->stream, f->tensors[i]);
    if (f->stream == NULL) {
      return -1;
    }
  }
  f->stream = stream;
  return 0;
}

/* All results as a list of arrays. */
static PyObject *run_feeds(session_object *self, feeds *f) {
  if (is_tracing() && note_inputs(f) < 0) {
    return NULL;
  }
  hr_status status = run_on_stream(self, f);
  return status == HR_OK ? list_of_tensors(f->stream, self->output_count, f->results) : raise_status(status);
}

static PyObject *dict_of_results(const session_object *self, PyObject *list) {
  PyObject *dict = PyDict_New();
  for (int i = 0; dict != NULL && i < self->output_count; ++i) {
    if (PyDict_SetItem(dict, PyTuple_GetItem(self->outputs, i), PyList_GetItem(list, i)) < 0) {
      Py_CLEAR(dict);
    }
  }
  return dict;
}

/* session(x=..., t=...) */
static PyObject *call_session(PyObject *object, PyObject *const *args, size_t flags, PyObject *names) {
  session_object *self = (session_object *)object;
  feeds f;
  PyObject *list = NULL;
  Py_ssize_t count = (Py_ssize_t)(flags & ~((size_t)1 << (8 * sizeof(size_t) - 1))); /* PyVectorcall_NARGS */
  if (begin_feeds(&f, self) == 0 && add_arguments_of(self, &f, args, count, names) == 0) {
    list = run_feeds(self, &f);
  }
  end_feeds(&f);
  PyObject *dict = list != NULL ? dict_of_results(self, list) : NULL;
  Py_XDECREF(list);
  return dict;
}

/* The same for a tuple and a dict. */
static PyObject *call_with_tuple(PyObject *object, PyObject *args, PyObject *named) {
  session_object *self = (session_object *)object;
  if (PyTuple_Size(args) > 0 && named != NULL && PyDict_Size(named) > 0) {
    PyErr_SetString(PyExc_TypeError, "session: inputs by position and by name, expected one of the two");
    return NULL;
  }
  feeds f;
  PyObject *list = NULL, *vector[1] = {NULL};
  int is_ready = begin_feeds(&f, self);
  if (is_ready == 0 && named != NULL && PyDict_Size(named) > 0) {
    is_ready = add_dict(self, &f, named, 1);
  } else if (is_ready == 0 && PyTuple_Size(args) != self->input_count) {
    is_ready = add_arguments_of(self, &f, vector, 0, NULL);
  }
  for (Py_ssize_t i = f.count; is_ready == 0 && i < self->input_count; ++i) {
    is_ready = add_feed(self, &f, PyTuple_GetItem(args, i), 1);
  }
  list = is_ready == 0 ? run_feeds(self, &f) : NULL;
  end_feeds(&f);
  PyObject *dict = list != NULL ? dict_of_results(self, list) : NULL;
  Py_XDECREF(list);
  return dict;
}

static PyObject *chosen_results(const session_object *self, PyObject *names, PyObject *list) {
  PyObject *sequence = PySequence_List(names), *chosen = PyList_New(0);
  Py_ssize_t count = sequence != NULL && chosen != NULL ? PyList_Size(sequence) : -1;
  int failed = count < 0;
  for (Py_ssize_t k = 0; k < count && !failed; ++k) {
    PyObject *name = PyList_GetItem(sequence, k);
    Py_ssize_t at = PySequence_Index(self->outputs, name);
    if (at < 0) {
      PyErr_Clear();
      PyErr_Format(PyExc_ValueError, "session: output %R is not known; expected %R", name, self->outputs);
    }
    failed = at < 0 || PyList_Append(chosen, PyList_GetItem(list, at)) < 0;
  }
  Py_XDECREF(sequence);
  if (failed) {
    Py_CLEAR(chosen);
  }
  return chosen;
}

/* run(outputs, feeds, share=False): a list */
static PyObject *run_session(PyObject *object, PyObject *const *args, Py_ssize_t count) {
  session_object *self = (session_object *)object;
  if (count < 2 || count > 3 || !PyDict_Check(args[1])) {
    PyErr_SetString(PyExc_TypeError, "run() expects names of outputs or None, and a dict of inputs by name");
    return NULL;
  }
  feeds f;
  PyObject *list = NULL;
  int copy = count == 3 && PyObject_IsTrue(args[2]) == 1 ? -1 : 1;
  if (begin_feeds(&f, self) == 0 && add_dict(self, &f, args[1], copy) == 0) {
    list = run_feeds(self, &f);
  }
  end_feeds(&f);
  if (list == NULL || args[0] == Py_None) {
    return list;
  }
  PyObject *chosen = chosen_results(self, args[0], list);
  Py_DECREF(list);
  return chosen;
}

/* ---- warm ---- */

/* The type of an input: an array's, or dims as a tuple. */
static int type_from(session_object *self, PyObject *object, int i, hr_tensor *out) {
  *out = (hr_tensor){.dtype = dtype_of_input(self, i)};
  if (!PyTuple_Check(object)) {
    array_object *x = array_from(object, has_dtype(object) ? HR_DTYPE_NONE : out->dtype, self->stream, -1);
    if (x == NULL) {
      return -1;
    }
    *out = x->tensor;
    out->buffer = NULL;
    Py_DECREF((PyObject *)x);
    return 0;
  }
  out->rank = integers_from(object, out->dims);
  int64_t count = 1;
  for (int d = out->rank - 1; d >= 0; --d) {
    if (out->dims[d] < 0) {
      PyErr_Format(PyExc_ValueError, "session: dim %d of input %R is %lld, expected a size", d, input_name(self, i),
                   (long long)out->dims[d]);
      return -1;
    }
    if (__builtin_mul_overflow(count, out->dims[d], &count)) {
      PyErr_Format(PyExc_ValueError, "session: input %R has more elements than 64 bits count", input_name(self, i));
      return -1;
    }
  }
  hr_tensor_set_row_major(out);
  return out->rank < 0 ? -1 : 0;
}

static int take_types(session_object *self, PyObject *named, hr_tensor *types, const hr_tensor **places) {
  for (int i = 0; i < self->input_count; ++i) {
    PyObject *object = named != NULL ? PyDict_GetItemWithError(named, input_name(self, i)) : NULL;
    if (object == NULL) {
      return PyErr_Occurred() ? -1 : refuse_input(self, input_name(self, i), "is missing");
    }
    if (type_from(self, object, i, &types[i]) < 0) {
      return -1;
    }
    places[i] = &types[i];
  }
  if (named == NULL || PyDict_Size(named) == self->input_count) {
    return 0;
  }
  PyObject *names = PyDict_Keys(named);
  int result = names != NULL ? refuse_unknown(self, names) : -1;
  Py_XDECREF(names);
  return result;
}

/* warm(x=(8, 3), ...) */
static PyObject *warm_session(PyObject *object, PyObject *args, PyObject *named) {
  session_object *self = (session_object *)object;
  if (PyTuple_Size(args) > 0) {
    PyErr_SetString(PyExc_TypeError, "warm() expects inputs by name: arrays, or tuples of dims");
    return NULL;
  }
  hr_tensor *types = PyMem_Calloc((size_t)self->input_count + 1, sizeof *types);
  const hr_tensor **places = PyMem_Calloc((size_t)self->input_count + 1, sizeof(hr_tensor *));
  hr_status status = HR_OK;
  if (types == NULL || places == NULL) {
    PyErr_NoMemory();
  } else if (take_types(self, named, types, places) == 0) {
    PyThreadState *state = unlock(self->stream);
    status = hr_session_warm(self->session, self->input_count, places);
    lock_again(state);
  }
  PyMem_Free(types);
  PyMem_Free(places);
  if (status != HR_OK) {
    raise_status(status);
  }
  return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
}

/* ---- variables ---- */

static const char *name_from(PyObject *name) {
  const char *text = PyUnicode_Check(name) ? PyUnicode_AsUTF8AndSize(name, NULL) : NULL;
  if (text == NULL && !PyErr_Occurred()) {
    PyErr_Format(PyExc_TypeError, "session: %R is no name of a variable", name);
  }
  return text;
}

static PyObject *read_variable(PyObject *object, PyObject *name) {
  session_object *self = (session_object *)object;
  const char *text = name_from(name);
  array_object *x = text != NULL ? new_array(self->stream) : NULL;
  hr_status status = x != NULL ? hr_session_variable(self->session, text, &x->tensor) : HR_OK;
  if (hr_status_code_of(status) == HR_STATUS_NOT_FOUND) {
    PyErr_SetString(PyExc_KeyError, hr_status_message(status));
    hr_status_free(status);
    Py_DECREF((PyObject *)x);
    return NULL;
  }
  return (PyObject *)array_or_raise(x, status);
}

/* set_variable(name, value) */
static PyObject *set_variable(PyObject *object, PyObject *args) {
  session_object *self = (session_object *)object;
  PyObject *name, *value;
  if (!PyArg_ParseTuple(args, "OO:set_variable", &name, &value)) {
    return NULL;
  }
  const char *text = name_from(name);
  array_object *x = text != NULL ? array_from(value, HR_DTYPE_NONE, self->stream, 1) : NULL;
  if (x == NULL) {
    return NULL;
  }
  hr_status status;
  if (x->stream == self->stream) {
    PyThreadState *state = unlock(self->stream);
    status = hr_session_set_variable(self->session, text, &x->tensor);
    lock_again(state);
  } else {
    status = hr_status_make(HR_STATUS_INVALID_ARGUMENT, "session: a value of another device or a trace");
  }
  Py_DECREF((PyObject *)x);
  return status == HR_OK ? Py_NewRef(Py_None) : raise_status(status);
}

/* snapshot(): a graph */
static PyObject *take_snapshot(PyObject *object, PyObject *unused) {
  (void)unused;
  hr_graph *graph = NULL;
  session_object *self = (session_object *)object;
  PyThreadState *state = unlock(self->stream);
  hr_status status = hr_session_snapshot(self->session, &graph);
  lock_again(state);
  return status == HR_OK ? new_graph(graph) : raise_status(status);
}

/* ---- attributes ---- */

static PyObject *read_stats(PyObject *object, PyObject *unused) {
  (void)unused;
  hr_session_stats s;
  hr_session_stats_read(((session_object *)object)->session, sizeof s, &s);
  return Py_BuildValue("{s:L,s:L,s:L,s:L,s:L,s:L,s:L,s:L,s:L,s:L}", "runs", (long long)s.runs, "instances",
                       (long long)s.instances, "kept", (long long)s.kept, "records", (long long)s.records,
                       "constant_bytes_copied", (long long)s.constant_bytes_copied, "waits", (long long)s.waits, "hits",
                       (long long)s.hits, "waits_for_instances", (long long)s.waits_for_instances, "kept_bytes",
                       (long long)s.kept_bytes, "padded", (long long)s.padded);
}

static PyObject *get_graph(PyObject *object, void *unused) {
  (void)unused;
  return Py_NewRef((PyObject *)((session_object *)object)->graph);
}

static PyObject *get_names(PyObject *object, void *is_output) {
  session_object *self = (session_object *)object;
  return Py_NewRef(is_output != NULL ? self->outputs : self->inputs);
}

static PyObject *get_session_device(PyObject *object, void *unused) {
  (void)unused;
  return PyUnicode_FromString(hr_device_name(hr_stream_device(((session_object *)object)->stream)));
}

static PyObject *repr_of_session(PyObject *object) {
  session_object *self = (session_object *)object;
  return PyUnicode_FromFormat("<headrace.Session: %R to %R on %s>", self->inputs, self->outputs,
                              hr_device_name(hr_stream_device(self->stream)));
}

/* ---- the type ---- */

static void drop_session(PyObject *object) {
  PyTypeObject *type = Py_TYPE(object);
  session_object *self = (session_object *)object;
  if (self->weak != NULL) {
    PyObject_ClearWeakRefs(object);
  }
  hr_session_release(self->session);
  Py_XDECREF((PyObject *)self->graph);
  Py_XDECREF(self->inputs);
  Py_XDECREF(self->outputs);
  PyObject_Free(object);
  Py_DECREF((PyObject *)type);
}

static int take_names(session_object *self) {
  const hr_graph *graph = hr_session_graph(self->session);
  self->input_count = hr_graph_input_count(graph), self->output_count = hr_graph_output_count(graph);
  self->inputs = PyTuple_New(self->input_count), self->outputs = PyTuple_New(self->output_count);
  for (int i = 0; self->inputs != NULL && i < self->input_count; ++i) {
    PyObject *name = PyUnicode_InternFromString(hr_graph_value_name(graph, hr_graph_input_value(graph, i)));
    (void)PyTuple_SetItem(self->inputs, i, name);
  }
  for (int i = 0; self->outputs != NULL && i < self->output_count; ++i) {
    (void)PyTuple_SetItem(self->outputs, i, PyUnicode_InternFromString(hr_graph_output_name(graph, i)));
  }
  return PyErr_Occurred() ? -1 : 0;
}

static PyObject *session_of(graph_object *graph, hr_stream *stream, const hr_session_options *options) {
  hr_session *session = NULL;
  hr_status status = hr_session_create(stream, graph->graph, options, &session);
  if (status != HR_OK) {
    return raise_status(status);
  }
  session_object *self = PyObject_New(session_object, session_type);
  if (self == NULL) {
    hr_session_release(session);
    return NULL;
  }
  self->call = call_session, self->weak = NULL, self->session = session, self->stream = stream;
  self->graph = (graph_object *)Py_NewRef((PyObject *)graph);
  self->inputs = self->outputs = NULL;
  if (take_names(self) < 0) {
    Py_DECREF((PyObject *)self);
    return NULL;
  }
  return (PyObject *)self;
}

/* ---- options ---- */

typedef struct given_options {
  hr_session_options options;
  hr_session_bucket *buckets;
  int64_t **sizes; /* of each bucket; owned */
} given_options;

static void drop_options(given_options *o) {
  for (int i = 0; o->sizes != NULL && i < o->options.bucket_count; ++i) {
    PyMem_Free(o->sizes[i]);
  }
  PyMem_Free(o->buckets);
  PyMem_Free(o->sizes);
}

/* A list of sizes, in ascending order. */
static int take_bucket(given_options *o, PyObject *name, PyObject *sizes) {
  int i = o->options.bucket_count++;
  PyObject *list = PySequence_List(sizes);
  Py_ssize_t count = list != NULL && PyList_Sort(list) == 0 ? PyList_Size(list) : -1;
  o->buckets[i].symbol = PyUnicode_Check(name) ? PyUnicode_AsUTF8AndSize(name, NULL) : NULL;
  o->sizes[i] = count >= 0 ? PyMem_Calloc((size_t)count + 1, sizeof *o->sizes[i]) : NULL;
  for (Py_ssize_t k = 0; o->sizes[i] != NULL && k < count && !PyErr_Occurred(); ++k) {
    o->sizes[i][k] = integer_from(PyList_GetItem(list, k));
  }
  Py_XDECREF(list);
  o->buckets[i].count = (int)count, o->buckets[i].sizes = o->sizes[i];
  if (o->buckets[i].symbol == NULL && !PyErr_Occurred()) {
    PyErr_Format(PyExc_TypeError, "session: buckets: %R is no symbol", name);
  }
  return PyErr_Occurred() ? -1 : 0;
}

/* {"n": [1, 8, 64]} */
static int take_buckets(given_options *o, PyObject *dict) {
  PyObject *name, *sizes;
  Py_ssize_t at = 0;
  if (dict == Py_None) {
    return 0;
  }
  if (!PyDict_Check(dict)) {
    PyErr_SetString(PyExc_TypeError, "session: buckets is a dict of lists of sizes by symbol");
    return -1;
  }
  size_t count = (size_t)PyDict_Size(dict) + 1;
  o->buckets = PyMem_Calloc(count, sizeof *o->buckets);
  o->sizes = PyMem_Calloc(count, sizeof *o->sizes);
  if (o->buckets == NULL || o->sizes == NULL) {
    PyErr_NoMemory();
    return -1;
  }
  o->options.buckets = o->buckets;
  while (PyDict_Next(dict, &at, &name, &sizes)) {
    if (take_bucket(o, name, sizes) < 0) {
      return -1;
    }
  }
  return 0;
}

static int take_precision(given_options *o, const char *name) {
  static const struct {
    const char *name;
    hr_dtype products;
  } all[] = {{"f32", HR_DTYPE_NONE},      {"float32", HR_DTYPE_NONE}, {"bf16", HR_DTYPE_BF16},
             {"bfloat16", HR_DTYPE_BF16}, {"f16", HR_DTYPE_F16},      {"float16", HR_DTYPE_F16}};
  for (size_t i = 0; name != NULL && i < sizeof all / sizeof *all; ++i) {
    if (strcmp(name, all[i].name) == 0) {
      o->options.products = all[i].products;
      return 0;
    }
  }
  if (name != NULL) {
    PyErr_Format(PyExc_ValueError, "session: precision is \"%s\", expected f32, bf16 or f16", name);
  }
  return name == NULL ? 0 : -1;
}

static PyObject *session_from(PyObject *source, PyObject *device, const hr_session_options *options) {
  if (options->instances_max < 1) {
    return PyErr_Format(PyExc_ValueError, "session: instances is %d, expected at least 1", options->instances_max);
  }
  if (options->bytes_max < 1) {
    return PyErr_Format(PyExc_ValueError, "session: instance_bytes is %lld, expected at least 1",
                        (long long)options->bytes_max);
  }
  if (is_tracing()) {
    PyErr_SetString(PyExc_ValueError, "session: a session can't be made while compile() traces a function");
    return NULL;
  }
  hr_stream *stream = stream_of_device(device);
  PyObject *graph = stream == NULL ? NULL : Py_TYPE(source) == graph_type ? Py_NewRef(source) : graph_of_file(source);
  PyObject *result = graph != NULL ? session_of((graph_object *)graph, stream, options) : NULL;
  Py_XDECREF(graph);
  return result;
}

/* Session(source, device=None, instances=64, simplify=True, instance_bytes=64 << 20, buckets=None, precision=None,
 * threads=0) */
static PyObject *create_session(PyTypeObject *type, PyObject *args, PyObject *names) {
  (void)type;
  static char *keywords[] = {"source",  "device",    "instances", "simplify", "instance_bytes",
                             "buckets", "precision", "threads",   NULL};
  PyObject *source, *device = Py_None, *buckets = Py_None, *result = NULL;
  int instances = HR_SESSION_INSTANCES, simplify = 1, threads = 0;
  long long bytes = HR_SESSION_BYTES;
  const char *precision = NULL;
  if (!PyArg_ParseTupleAndKeywords(args, names, "O|OipLOzi:Session", keywords, &source, &device, &instances, &simplify,
                                   &bytes, &buckets, &precision, &threads)) {
    return NULL;
  }
  given_options o = {
      .options = {.instances_max = instances, .keeps_operations = !simplify, .bytes_max = bytes, .threads = threads}};
  if (take_buckets(&o, buckets) == 0 && take_precision(&o, precision) == 0) {
    result = session_from(source, device, &o.options);
  }
  drop_options(&o);
  return result;
}

static PyMethodDef session_methods[] = {
    {"run", (PyCFunction)(void (*)(void))run_session, METH_FASTCALL,
     "run($self, outputs, feeds, share=False, /)\n--\n\nThe outputs with these names, all for None, as a list. share: "
     "the memory of inputs is read later, without a copy."},
    {"warm", (PyCFunction)(void (*)(void))warm_session, METH_VARARGS | METH_KEYWORDS,
     "warm($self, **inputs)\n--\n\nRecords the graph for inputs like these: arrays, or tuples of dims."},
    {"variable", read_variable, METH_O, "variable($self, name, /)\n--\n\nThe value of a variable of the graph."},
    {"set_variable", set_variable, METH_VARARGS,
     "set_variable($self, name, value, /)\n--\n\nSets a variable of the graph."},
    {"snapshot", take_snapshot, METH_NOARGS,
     "snapshot($self, /)\n--\n\nThe graph with the current values of its variables, which save() keeps in a package."},
    {"stats", read_stats, METH_NOARGS, "stats($self, /)\n--\n\nCounters: runs, instances, kept, records, waits, ..."},
    {NULL, NULL, 0, NULL}};

static PyGetSetDef session_attributes[] = {{"graph", get_graph, NULL, "the graph, as it was given", NULL},
                                           {"inputs", get_names, NULL, "names of inputs", NULL},
                                           {"outputs", get_names, NULL, "names of outputs", (void *)"outputs"},
                                           {"device", get_session_device, NULL, "name of the device", NULL},
                                           {NULL, NULL, NULL, NULL, NULL}};

static PyMemberDef session_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(session_object, call), READONLY, NULL},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(session_object, weak), READONLY, NULL},
    {NULL, 0, 0, 0, NULL}};

static PyType_Slot session_slots[] = {{Py_tp_dealloc, drop_session},
                                      {Py_tp_new, create_session},
                                      {Py_tp_call, call_with_tuple},
                                      {Py_tp_repr, repr_of_session},
                                      {Py_tp_methods, session_methods},
                                      {Py_tp_getset, session_attributes},
                                      {Py_tp_members, session_members},
                                      {Py_tp_doc, "A graph, or that of a file, which answers for arrays."},
                                      {0, NULL}};

enum { HAS_VECTOR_CALL = 1 << 11 }; /* as in compiled.c */
static PyType_Spec session_spec = {"headrace.Session", sizeof(session_object), 0, Py_TPFLAGS_DEFAULT | HAS_VECTOR_CALL,
                                   session_slots};

int add_sessions(PyObject *module) {
  session_type = (PyTypeObject *)PyType_FromSpec(&session_spec);
  return session_type != NULL ? PyModule_AddObjectRef(module, "Session", (PyObject *)session_type) : -1;
}
