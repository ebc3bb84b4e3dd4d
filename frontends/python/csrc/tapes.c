/* tapes.c: tapes and functions with a gradient of their own (headrace/transform.h), for headrace/transforms.py.
 *
 * A capsule owns a tape. _tape_close ends it even if others still hold the capsule: a traceback may, for long.
 *
 * Threads: records happen with the interpreter's lock held, and a tape keeps those that depend on its own copies of the
 * arguments. So tapes of several threads may be open on one stream.
 */
#include "extension.h"

#include "headrace/transform.h"

#define CAPSULE "headrace.tape"

typedef struct open_tape {
  hr_tape *tape; /* NULL: closed */
  hr_stream *stream;
  thread_hook hook;
} open_tape;

/* ---- lists of arrays ---- */

typedef struct tensors {
  Py_ssize_t count;
  const hr_tensor **data; /* the list's arrays own them */
} tensors;

static void drop_tensors(tensors *x) {
  PyMem_Free((void *)x->data);
  x->data = NULL;
}

static int take_tensor(PyObject *object, hr_stream *stream, const hr_tensor **out) {
  if (!is_array(object)) {
    PyErr_Format(PyExc_TypeError, "tape: expected an array, not %R", object);
    return -1;
  }
  const hr_tensor *x = &as_array(object)->tensor;
  if (as_array(object)->stream != stream && join_streams(stream, x, as_array(object)->stream, x) != stream) {
    PyErr_Format(PyExc_ValueError, "an array is on %s, expected %s as the other arrays that are differentiated",
                 hr_device_name(hr_stream_device(as_array(object)->stream)), hr_device_name(hr_stream_device(stream)));
    return -1;
  }
  *out = x;
  return 0;
}

/* The arrays of a list; NULL with an exception. */
static int take_tensors(PyObject *list, hr_stream *stream, tensors *out) {
  out->count = PyList_Size(list);
  out->data = out->count >= 0 ? PyMem_Malloc(((size_t)out->count + 1) * sizeof *out->data) : NULL;
  if (out->data == NULL) {
    if (out->count >= 0) {
      PyErr_NoMemory();
    }
    return -1;
  }
  for (Py_ssize_t i = 0; i < out->count; ++i) {
    if (take_tensor(PyList_GetItem(list, i), stream, &out->data[i]) < 0) {
      drop_tensors(out);
      return -1;
    }
  }
  return 0;
}

/* ---- tapes ---- */

static void close_tape(open_tape *open) {
  hr_tape_destroy(open->tape);
  open->tape = NULL;
  end_hook(&open->hook);
}

static void drop_tape(PyObject *capsule) {
  open_tape *open = PyCapsule_GetPointer(capsule, CAPSULE);
  if (open != NULL) {
    close_tape(open);
    PyMem_Free(open);
  }
}

static open_tape *tape_of(PyObject *capsule) {
  open_tape *open = PyCapsule_GetPointer(capsule, CAPSULE);
  if (open != NULL && open->tape == NULL) {
    PyErr_SetString(PyExc_RuntimeError, "the tape is closed");
    return NULL;
  }
  return open;
}

static PyObject *new_tape(hr_stream *stream) {
  open_tape *open = PyMem_Calloc(1, sizeof *open);
  if (open == NULL) {
    return PyErr_NoMemory();
  }
  open->stream = stream;
  begin_hook(&open->hook);
  hr_status status = hr_tape_begin(stream, &open->tape);
  PyObject *capsule = status == HR_OK ? PyCapsule_New(open, CAPSULE, drop_tape) : raise_status(status);
  if (capsule == NULL) {
    close_tape(open);
    PyMem_Free(open);
  }
  return capsule;
}

/* _tape_begin(arrays): a tape that watches the arrays of a list, which is not empty. */
static PyObject *begin(PyObject *module, PyObject *list) {
  (void)module;
  PyObject *first = PyList_GetItem(list, 0);
  if (first == NULL || !is_array(first)) {
    return first == NULL ? NULL : PyErr_Format(PyExc_TypeError, "tape: expected an array, not %R", first);
  }
  hr_stream *stream = as_array(first)->stream;
  tensors watched;
  if (take_tensors(list, stream, &watched) < 0) {
    return NULL;
  }
  PyObject *capsule = new_tape(stream);
  hr_status status = capsule != NULL ? hr_tape_watch(tape_of(capsule)->tape, (int)watched.count, watched.data) : HR_OK;
  drop_tensors(&watched);
  if (status != HR_OK) {
    Py_CLEAR(capsule);
    raise_status(status);
  }
  return capsule;
}

static PyObject *close_(PyObject *module, PyObject *capsule) {
  (void)module;
  open_tape *open = PyCapsule_GetPointer(capsule, CAPSULE);
  if (open == NULL) {
    return NULL;
  }
  close_tape(open);
  Py_RETURN_NONE;
}

static PyObject *end(PyObject *module, PyObject *capsule) {
  (void)module;
  open_tape *open = tape_of(capsule);
  if (open == NULL) {
    return NULL;
  }
  hr_tape_end(open->tape);
  Py_RETURN_NONE;
}

/* ---- gradients ---- */

/* The exception of a function with its own gradient comes first. */
static PyObject *raise_failure(hr_status status) {
  if (PyErr_Occurred()) {
    hr_status_ignore(status);
    return NULL;
  }
  return raise_status(status);
}

static PyObject *find_gradients(const open_tape *open, const tensors *outputs, const tensors *seeds,
                                const tensors *inputs) {
  hr_tensor *found = PyMem_Calloc((size_t)inputs->count + 1, sizeof *found);
  if (found == NULL) {
    return PyErr_NoMemory();
  }
  hr_status status = hr_tape_gradient(open->tape, (int)outputs->count, outputs->data, seeds->data, (int)inputs->count,
                                      inputs->data, found);
  PyObject *list = status == HR_OK ? list_of_tensors(open->stream, inputs->count, found) : raise_failure(status);
  PyMem_Free(found);
  return list;
}

static PyObject *find_products(const open_tape *open, const tensors *inputs, const tensors *tangents,
                               const tensors *outputs) {
  hr_tensor *found = PyMem_Calloc((size_t)outputs->count + 1, sizeof *found);
  if (found == NULL) {
    return PyErr_NoMemory();
  }
  hr_status status = hr_tape_product(open->tape, (int)inputs->count, inputs->data, tangents->data, (int)outputs->count,
                                     outputs->data, found);
  PyObject *list = status == HR_OK ? list_of_tensors(open->stream, outputs->count, found) : raise_failure(status);
  PyMem_Free(found);
  return list;
}

/* A function of a tape and three lists of arrays, of which the second may be None. */
static PyObject *with_lists(PyObject *args, const char *format,
                            PyObject *(*find)(const open_tape *, const tensors *, const tensors *, const tensors *)) {
  PyObject *capsule, *lists[3], *result = NULL;
  if (!PyArg_ParseTuple(args, format, &capsule, &lists[0], &lists[1], &lists[2])) {
    return NULL;
  }
  open_tape *open = tape_of(capsule);
  tensors taken[3] = {{0}};
  int is_taken = open != NULL;
  for (int i = 0; i < 3 && is_taken; ++i) {
    is_taken = (i == 1 && lists[i] == Py_None) || take_tensors(lists[i], open->stream, &taken[i]) == 0;
  }
  if (is_taken) {
    result = find(open, &taken[0], &taken[1], &taken[2]);
  }
  for (int i = 0; i < 3; ++i) {
    drop_tensors(&taken[i]);
  }
  return result;
}

/* _tape_gradient(tape, outputs, seeds, inputs): lists; seeds may be None, for ones. */
static PyObject *gradient(PyObject *module, PyObject *args) {
  (void)module;
  return with_lists(args, "OOOO:_tape_gradient", find_gradients);
}

/* _tape_product(tape, inputs, tangents, outputs): lists, of tangents with one for each input. */
static PyObject *product(PyObject *module, PyObject *args) {
  (void)module;
  return with_lists(args, "OOOO:_tape_product", find_products);
}

/* ---- functions with a gradient of their own ---- */

/* Further arrays on a call's tensors. Those without a buffer are None. */
static PyObject *list_of_shared(hr_stream *stream, int count, const hr_tensor *found) {
  PyObject *list = PyList_New(count);
  for (int i = 0; list != NULL && i < count; ++i) {
    PyObject *item = Py_None;
    if (found[i].buffer == NULL) {
      Py_INCREF(item);
    } else {
      item = (PyObject *)new_array(stream);
      if (item != NULL) {
        hr_buffer_retain(found[i].buffer);
        as_array(item)->tensor = found[i];
      }
    }
    if (item == NULL || PyList_SetItem(list, i, item) < 0) {
      Py_CLEAR(list);
    }
  }
  return list;
}

/* The function's results: a list of arrays and None. */
static int take_found(hr_stream *stream, PyObject *list, int count, hr_tensor *out) {
  if (!PyList_Check(list) || PyList_Size(list) != count) {
    PyErr_Format(PyExc_TypeError, "a gradient returned %R, expected a list of %d", list, count);
    return -1;
  }
  for (int i = 0; i < count; ++i) {
    PyObject *item = PyList_GetItem(list, i);
    const hr_tensor *found = NULL;
    if (item == Py_None) {
      continue;
    }
    if (take_tensor(item, stream, &found) < 0) {
      return -1;
    }
    hr_buffer_retain(found->buffer);
    out[i] = *found;
  }
  return 0;
}

/* function(inputs, given, outputs): the list of what is found for each of so many tensors. */
static hr_status call_function(const hr_custom_call *call, int which, int given_count, const hr_tensor *given,
                               int found_count, hr_tensor *out_found) {
  PyObject *inputs = list_of_shared(call->stream, call->input_count, call->inputs);
  PyObject *outputs = list_of_shared(call->stream, call->output_count, call->outputs);
  PyObject *others = list_of_shared(call->stream, given_count, given);
  PyObject *function = PyTuple_GetItem(call->arg, which), *found = NULL;
  if (inputs != NULL && outputs != NULL && others != NULL && function != NULL) {
    found = PyObject_CallFunctionObjArgs(function, inputs, others, outputs, NULL);
  }
  int is_taken = found != NULL && take_found(call->stream, found, found_count, out_found) == 0;
  Py_XDECREF(inputs);
  Py_XDECREF(outputs);
  Py_XDECREF(others);
  Py_XDECREF(found);
  return is_taken ? HR_OK : hr_status_make(HR_STATUS_CANCELLED, "an exception of Python");
}

static hr_status call_gradient(const hr_custom_call *call) {
  return call_function(call, 0, call->output_count, call->cotangents, call->input_count, call->gradients);
}

static hr_status call_product(const hr_custom_call *call) {
  return call_function(call, 1, call->input_count, call->tangents, call->output_count, call->products);
}

static void drop_functions(void *functions) {
  Py_DECREF((PyObject *)functions);
}

/* ---- the same, while they run ---- */

#define CUSTOM "headrace.custom"

static void cancel_custom(PyObject *capsule) {
  hr_custom *custom = PyCapsule_GetContext(capsule) == NULL ? PyCapsule_GetPointer(capsule, CUSTOM) : NULL;
  if (custom != NULL) {
    hr_status_ignore(hr_custom_end(custom, NULL, 0, NULL, 0, NULL));
  }
}

/* Takes the function out of its capsule; NULL with an exception if it has ended. */
static hr_custom *take_custom(PyObject *capsule) {
  hr_custom *custom = PyCapsule_GetPointer(capsule, CUSTOM);
  if (custom != NULL && PyCapsule_GetContext(capsule) != NULL) {
    PyErr_SetString(PyExc_RuntimeError, "the function has ended");
    return NULL;
  }
  return custom != NULL && PyCapsule_SetContext(capsule, capsule) == 0 ? custom : NULL;
}

/* _custom_begin(x): a function of arrays on x's device begins. None: no tape sees it. */
static PyObject *begin_custom(PyObject *module, PyObject *x) {
  (void)module;
  if (!is_array(x)) {
    return PyErr_Format(PyExc_TypeError, "expected an array, not %R", x);
  }
  hr_stream *stream = traced_stream(as_array(x)->stream);
  if (!has_hooks(stream)) {
    Py_RETURN_NONE;
  }
  hr_custom *custom;
  hr_status status = hr_custom_begin(stream, &custom);
  if (status != HR_OK) {
    return raise_status(status);
  }
  PyObject *capsule = PyCapsule_New(custom, CUSTOM, cancel_custom);
  if (capsule == NULL) {
    hr_status_ignore(hr_custom_end(custom, NULL, 0, NULL, 0, NULL));
  }
  return capsule;
}

/* _custom_cancel(function): it ends without a gradient; once more is fine. */
static PyObject *cancel(PyObject *module, PyObject *capsule) {
  (void)module;
  hr_custom *custom = take_custom(capsule);
  if (custom == NULL) {
    PyErr_Clear();
  } else {
    hr_status_ignore(hr_custom_end(custom, NULL, 0, NULL, 0, NULL));
  }
  Py_RETURN_NONE;
}

/* New arrays of the stream on the outputs, which hr_custom_end may replace. */
static PyObject *share_all(PyObject *list, hr_stream *stream) {
  Py_ssize_t count = PyList_Size(list);
  PyObject *all = count >= 0 ? PyList_New(count) : NULL;
  for (Py_ssize_t i = 0; all != NULL && i < count; ++i) {
    PyObject *item = PyList_GetItem(list, i);
    PyObject *own = is_array(item) ? (PyObject *)share_array(as_array(item))
                                   : PyErr_Format(PyExc_TypeError, "expected an array, not %R", item);
    int failed = own == NULL || move_to_trace(as_array(own), stream) < 0;
    if (failed) {
      Py_CLEAR(own);
    }
    if (own == NULL || PyList_SetItem(all, i, own) < 0) {
      Py_CLEAR(all);
    }
  }
  return all;
}

/* _custom_end(function, inputs, (gradient, product), outputs): lists of arrays, the inputs' not empty. The outputs that
 * tapes see. gradient(inputs, cotangents, outputs) returns the gradients of the inputs, product(inputs, tangents,
 * outputs) the products of the outputs; cotangents and tangents may be None. */
static PyObject *end_custom(PyObject *module, PyObject *args) {
  (void)module;
  PyObject *capsule, *inputs, *functions, *outputs;
  tensors taken[2] = {{0}};
  if (!PyArg_ParseTuple(args, "OOO!O:_custom_end", &capsule, &inputs, &PyTuple_Type, &functions, &outputs)) {
    return NULL;
  }
  PyObject *first = PyList_GetItem(inputs, 0);
  hr_stream *stream = first != NULL && is_array(first) ? traced_stream(as_array(first)->stream) : NULL;
  PyObject *all = first != NULL ? share_all(outputs, stream) : NULL;
  int is_taken =
      all != NULL && take_tensors(inputs, stream, &taken[0]) == 0 && take_tensors(all, stream, &taken[1]) == 0;
  hr_custom *custom = is_taken ? take_custom(capsule) : NULL;
  if (custom != NULL) {
    const hr_custom_spec spec = {"custom_function", call_gradient, functions, drop_functions, call_product};
    Py_INCREF(functions);
    hr_status status = hr_custom_end(custom, &spec, (int)taken[0].count, taken[0].data, (int)taken[1].count,
                                     (hr_tensor *const *)taken[1].data);
    if (status != HR_OK) {
      raise_status(status);
      Py_CLEAR(all);
    }
  } else {
    Py_CLEAR(all);
  }
  drop_tensors(&taken[0]);
  drop_tensors(&taken[1]);
  return all;
}

/* ---- copies ---- */

/* The copy of a row-major tensor, which is most of them. *out_is_made false: another one. */
static hr_status copy_alike(hr_stream *stream, const hr_tensor *x, hr_tensor *out, bool *out_is_made) {
  hr_view from = hr_tensor_view(x), made;
  HR_RETURN_IF_ERROR(hr_stream_record_alike(stream, HR_OP_COPY, 1, &from, &made));
  *out_is_made = made.buffer != NULL;
  if (*out_is_made) {
    *out = *x;
    out->buffer = made.buffer, out->offset = 0;
  }
  return HR_OK;
}

/* A trace copies arrays of the device's stream, too: a tape on its capture sees them. */
static PyObject *copy_of(array_object *x) {
  const hr_tensor *value = &x->tensor;
  hr_stream *stream = traced_stream(x->stream);
  array_object *copy = join_streams(stream, value, x->stream, value) == stream ? new_array(stream) : NULL;
  if (copy == NULL) {
    return NULL;
  }
  bool is_made;
  hr_status status = copy_alike(stream, value, &copy->tensor, &is_made);
  if (status == HR_OK && !is_made) {
    const hr_attribute shape = {.kind = HR_ATTRIBUTE_INTS, .count = value->rank, .value = {.ints = value->dims}};
    status = hr_functional_apply(stream, HR_FUNCTIONAL_FULL, 1, &value, 1, &shape, 1, &copy->tensor);
  }
  return (PyObject *)array_or_raise(copy, status);
}

/* _tape_copy(x): its elements in memory of their own. Tapes see it. */
static PyObject *copy(PyObject *module, PyObject *x) {
  (void)module;
  return is_array(x) ? copy_of(as_array(x)) : PyErr_Format(PyExc_TypeError, "expected an array, not %R", x);
}

/* _tape_copies(arrays): the list of their copies, and one of further arrays on these. */
static PyObject *copies(PyObject *module, PyObject *arrays) {
  (void)module;
  Py_ssize_t count = PyList_Size(arrays);
  PyObject *made = count >= 0 ? PyList_New(count) : NULL, *shared = count >= 0 ? PyList_New(count) : NULL;
  int failed = made == NULL || shared == NULL;
  for (Py_ssize_t i = 0; !failed && i < count; ++i) {
    PyObject *copied = copy(NULL, PyList_GetItem(arrays, i));
    PyObject *again = copied != NULL ? (PyObject *)share_array(as_array(copied)) : NULL;
    failed = again == NULL;
    (void)PyList_SetItem(made, i, copied);
    (void)PyList_SetItem(shared, i, again);
  }
  PyObject *both = !failed ? PyTuple_Pack(2, made, shared) : NULL;
  Py_XDECREF(made);
  Py_XDECREF(shared);
  return both;
}

/* stop_gradient(x): a copy that no tape sees. */
static PyObject *stop_gradient(PyObject *module, PyObject *x) {
  (void)module;
  if (!is_array(x)) {
    return PyErr_Format(PyExc_TypeError, "stop_gradient() expects an array, not %R", x);
  }
  array_object *constant = new_array(as_array(x)->stream);
  if (constant == NULL) {
    return NULL;
  }
  hr_status status = hr_stop_gradient(constant->stream, &as_array(x)->tensor, &constant->tensor);
  return (PyObject *)array_or_raise(constant, status);
}

PyMethodDef tape_methods[] = {
    {"_tape_begin", begin, METH_O, NULL},
    {"_tape_end", end, METH_O, NULL},
    {"_tape_close", close_, METH_O, NULL},
    {"_tape_gradient", gradient, METH_VARARGS, NULL},
    {"_tape_product", product, METH_VARARGS, NULL},
    {"_tape_copy", copy, METH_O, NULL},
    {"_tape_copies", copies, METH_O, NULL},
    {"_custom_begin", begin_custom, METH_O, NULL},
    {"_custom_end", end_custom, METH_VARARGS, NULL},
    {"_custom_cancel", cancel, METH_O, NULL},
    {"stop_gradient", stop_gradient, METH_O,
     "stop_gradient(x, /)\n--\n\nx's elements as a constant: gradients do not go through it."},
    {NULL, NULL, 0, NULL}};
