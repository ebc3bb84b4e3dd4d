/* captured.c: traces of functions, and replays of them. See captured.h.
 *
 *   trace     places for arrays ── the function ── outputs ── a part (headrace/part.h)
 *   replay    buffers of arrays, constants, new results ── the part, appended to the stream ── arrays of outputs
 *
 * Inputs of a part are row-major: views of other layouts are copied, in the same program. Outputs that are views of an
 * argument share the argument's memory. Arrays that the function captured are parameters, too, which the capture holds.
 */
#include "captured.h"

#include <string.h>

void drop_captured(captured *c) {
  if (c == NULL || --c->users > 0) {
    return;
  }
  for (int i = 0; i < c->constant_count; ++i) {
    hr_buffer_release(c->constants[i]);
  }
  hr_part_release(c->part);
  PyMem_Free(c->words);
  PyMem_Free(c->constants);
  PyMem_Free(c->result_bytes);
  PyMem_Free(c->outputs);
  Py_XDECREF(c->identities);
  Py_XDECREF(c->result);
  Py_XDECREF(c->state);
  PyMem_Free(c);
}

/* ---- replays ---- */

enum { INLINE_MAX = 48 };

typedef struct replay {
  hr_buffer **inputs;  /* those of the signature, then constants; the first input_count are references */
  hr_buffer **results; /* references */
  int input_count, result_count;
  hr_buffer *own[INLINE_MAX];
  hr_buffer **block; /* NULL: own */
} replay;

static bool is_default(const hr_tensor *x) {
  return x->offset == 0 && hr_tensor_is_row_major(x);
}

/* The buffer of a row-major copy, or the array's own one; a reference. */
static hr_status take_input(hr_stream *stream, const hr_tensor *x, hr_buffer **out) {
  if (__builtin_expect(is_default(x), 1)) {
    hr_buffer_retain(x->buffer);
    *out = x->buffer;
    return HR_OK;
  }
  const hr_attribute shape = {.kind = HR_ATTRIBUTE_INTS, .count = x->rank, .value = {.ints = x->dims}};
  hr_tensor copy;
  HR_RETURN_IF_ERROR(hr_functional_apply(stream, HR_FUNCTIONAL_FULL, 1, &x, 1, &shape, 1, &copy));
  *out = copy.buffer;
  return HR_OK;
}

static hr_status fill_replay(replay *r, const captured *c, array_object *const *arrays) {
  for (; r->input_count < c->input_count; ++r->input_count) {
    HR_RETURN_IF_ERROR(take_input(c->stream, &arrays[r->input_count]->tensor, &r->inputs[r->input_count]));
  }
  memcpy(&r->inputs[c->input_count], c->constants, (size_t)c->constant_count * sizeof *c->constants);
  hr_device *device = hr_stream_device(c->stream);
  for (; r->result_count < c->result_count; ++r->result_count) {
    HR_RETURN_IF_ERROR(hr_buffer_create(device, c->result_bytes[r->result_count], &r->results[r->result_count]));
  }
  return HR_OK;
}

static hr_status begin_replay(replay *r, const captured *c, array_object *const *arrays) {
  size_t before = (size_t)c->input_count + (size_t)c->constant_count, count = before + (size_t)c->result_count;
  r->input_count = r->result_count = 0;
  r->block = NULL;
  if (count > INLINE_MAX) {
    r->block = PyMem_Malloc(count * sizeof *r->block);
    if (r->block == NULL) {
      return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "compile: no memory for %zu buffers", count);
    }
  }
  r->inputs = r->block != NULL ? r->block : r->own;
  r->results = r->inputs + before;
  HR_RETURN_IF_ERROR(fill_replay(r, c, arrays));
  return hr_part_run(c->stream, c->part, r->inputs, r->results, NULL);
}

static void end_replay(replay *r) {
  for (int i = 0; i < r->input_count; ++i) {
    hr_buffer_release(r->inputs[i]);
  }
  for (int i = 0; i < r->result_count; ++i) {
    hr_buffer_release(r->results[i]);
  }
  PyMem_Free(r->block);
}

static array_object *output_array(const captured *c, const output *from, const replay *r) {
  array_object *x = new_array(c->stream);
  if (x != NULL) {
    x->tensor = from->tensor;
    x->tensor.buffer = from->kind == FROM_INPUT      ? r->inputs[from->index]
                       : from->kind == FROM_CONSTANT ? c->constants[from->index]
                                                     : r->results[from->index];
    hr_buffer_retain(x->tensor.buffer);
  }
  return x;
}

/* The tree with its arrays, and changes of the state. */
static PyObject *give_outputs(const stateful_function *f, const captured *c, array_object **arrays) {
  tree_arrays from = {arrays, 0};
  PyObject *tree = copy_tree(c->result, false, &from);
  if (tree != NULL && c->state != NULL && fill_tree(f->outputs, c->state, &from) < 0) {
    Py_CLEAR(tree);
  }
  return tree;
}

static PyObject *make_outputs(const stateful_function *f, const captured *c, const replay *r) {
  array_object *own[INLINE_MAX];
  array_object **arrays =
      c->output_count <= INLINE_MAX ? own : PyMem_Malloc((size_t)c->output_count * sizeof(array_object *));
  int made = 0;
  if (arrays == NULL) {
    return PyErr_NoMemory();
  }
  while (made < c->output_count && (arrays[made] = output_array(c, &c->outputs[made], r)) != NULL) {
    ++made;
  }
  PyObject *tree = made == c->output_count ? give_outputs(f, c, arrays) : NULL;
  for (int i = 0; i < made; ++i) {
    Py_DECREF((PyObject *)arrays[i]);
  }
  if (arrays != own) {
    PyMem_Free(arrays);
  }
  return tree;
}

PyObject *run_captured(const stateful_function *f, captured *c, array_object *const *arrays) {
  replay r;
  ++c->users;
  hr_status status = begin_replay(&r, c, arrays);
  PyObject *result = NULL;
  if (status != HR_OK) {
    raise_status(status);
  } else if (c->output_count == 1 && is_array(c->result) && c->state == NULL) {
    result = (PyObject *)output_array(c, &c->outputs[0], &r);
  } else {
    result = make_outputs(f, c, &r);
  }
  end_replay(&r);
  if (status == HR_OK) {
    hr_part_submit_early(c->stream, c->part);
  }
  drop_captured(c);
  return result;
}

/* ---- traces ---- */

/* The needs of one trace of the function, and its results. */
typedef struct tracing {
  const stateful_function *f;
  const signature *signature;
  trace trace;
  array_object **places; /* for the signature's arrays; references */
  hr_buffer **buffers;   /* theirs at the beginning; references, so that writes go to others */
  int place_count;
  PyObject *args, *names; /* of the call; names: NULL without any */
  PyObject *saved;        /* contents of the state's containers */
  PyObject *result, *state;
} tracing;

/* A row-major array of the capture. */
static array_object *make_place(hr_stream *capture, const hr_tensor *like) {
  array_object *place = new_array(capture);
  if (place == NULL) {
    return NULL;
  }
  hr_tensor *x = &place->tensor;
  *x = *like;
  x->buffer = NULL, x->offset = 0;
  hr_tensor_set_row_major(x);
  size_t bytes = (size_t)hr_tensor_count(x) * hr_dtype_size(x->dtype);
  hr_status status = hr_buffer_create(hr_stream_device(capture), bytes, &x->buffer);
  return array_or_raise(place, status);
}

static int make_places(tracing *t) {
  const signature *s = t->signature;
  t->places = PyMem_Calloc((size_t)s->array_count + 1, sizeof *t->places);
  t->buffers = PyMem_Calloc((size_t)s->array_count + 1, sizeof *t->buffers);
  if (t->places == NULL || t->buffers == NULL) {
    PyErr_NoMemory();
    return -1;
  }
  for (; t->place_count < s->array_count; ++t->place_count) {
    array_object *place = make_place(t->trace.capture, &s->arrays[t->place_count]->tensor);
    if (place == NULL) {
      return -1;
    }
    t->places[t->place_count] = place;
    t->buffers[t->place_count] = place->tensor.buffer;
    hr_buffer_retain(place->tensor.buffer);
  }
  return 0;
}

static void drop_places(tracing *t) {
  for (int i = 0; i < t->place_count; ++i) {
    Py_DECREF((PyObject *)t->places[i]);
    hr_buffer_release(t->buffers[i]);
  }
  PyMem_Free(t->places);
  PyMem_Free(t->buffers);
}

/* Puts places into arguments and state, and calls the function. */
static int call_traced(tracing *t) {
  const stateful_function *f = t->f;
  tree_arrays from = {t->places, 0}, own = {NULL, 0};
  PyObject *args = copy_tree(t->args, false, &from), *names = NULL, *result = NULL;
  if (args != NULL && t->names != NULL) {
    names = copy_tree(t->names, false, &from);
  }
  PyObject *inputs = copy_tree(f->inputs, true, &own);
  int is_ready =
      args != NULL && (names != NULL || t->names == NULL) && inputs != NULL && fill_tree(f->inputs, inputs, &from) == 0;
  if (is_ready) {
    result = PyObject_Call(f->function, args, names);
  }
  if (result != NULL) {
    t->result = copy_tree(result, false, &own);
    t->state = f->outputs != Py_None ? copy_tree(f->outputs, true, &own) : NULL;
  }
  Py_XDECREF(args);
  Py_XDECREF(names);
  Py_XDECREF(inputs);
  Py_XDECREF(result);
  return PyErr_Occurred() ? -1 : 0;
}

static int save_state(tracing *t) {
  t->saved = PyList_New(0);
  return t->saved == NULL || save_containers(t->f->inputs, t->saved) < 0 || save_containers(t->f->outputs, t->saved) < 0
             ? -1
             : 0;
}

/* ---- parts ---- */

/* The arrays of a tree, in order. */
static int list_arrays(PyObject *tree, PyObject *list) {
  if (is_array(tree)) {
    return PyList_Append(list, tree);
  }
  PyObject *children = PyDict_Check(tree)                          ? PyDict_Values(tree)
                       : PyList_Check(tree) || PyTuple_Check(tree) ? PySequence_List(tree)
                                                                   : NULL;
  int failed = children == NULL && PyErr_Occurred();
  for (Py_ssize_t i = 0; children != NULL && !failed && i < PyList_Size(children); ++i) {
    failed = list_arrays(PyList_GetItem(children, i), list) < 0;
  }
  Py_XDECREF(children);
  return failed ? -1 : 0;
}

static int find_buffer(hr_buffer *const *buffers, int count, const hr_buffer *wanted) {
  int i = 0;
  while (i < count && buffers[i] != wanted) {
    ++i;
  }
  return i < count ? i : -1;
}

/* The capture's results, and its parameters: places and constants. */
typedef struct interface {
  hr_buffer **buffers; /* parameters, then results; borrowed */
  int param_count, result_count;
} interface;

/* The memory of an array in a replay. Memory that exists already is a constant. */
static int place_output(tracing *t, const array_object *x, output *out) {
  const trace *own = &t->trace;
  hr_buffer *buffer = x->tensor.buffer;
  if (buffer == NULL) {
    return refuse_traced(x);
  }
  out->tensor = x->tensor;
  out->tensor.buffer = NULL;
  out->kind = FROM_INPUT, out->index = find_buffer(t->buffers, t->place_count, buffer);
  if (out->index >= 0) {
    return 0;
  }
  out->kind = FROM_CONSTANT;
  if (x->stream != own->capture && x->stream != own->stream) {
    PyErr_Format(PyExc_ValueError, "compile: a result is on %s, expected %s",
                 hr_device_name(hr_stream_device(x->stream)), hr_device_name(hr_stream_device(own->stream)));
    return -1;
  }
  if ((x->stream == own->stream || hr_buffer_has_memory(buffer)) && note_constant(&t->trace, &x->tensor) < 0) {
    return -1;
  }
  out->index = find_buffer(own->constants, own->constant_count, buffer);
  return 0;
}

static int place_outputs(tracing *t, PyObject *arrays, captured *c) {
  c->outputs = PyMem_Calloc((size_t)PyList_Size(arrays) + 1, sizeof *c->outputs);
  if (c->outputs == NULL) {
    PyErr_NoMemory();
    return -1;
  }
  for (; c->output_count < PyList_Size(arrays); ++c->output_count) {
    if (place_output(t, as_array(PyList_GetItem(arrays, c->output_count)), &c->outputs[c->output_count]) < 0) {
      return -1;
    }
  }
  return 0;
}

/* Outputs that are neither inputs nor constants are results: each buffer once. */
static void number_results(PyObject *arrays, captured *c, interface *all) {
  for (int i = 0; i < c->output_count; ++i) {
    output *out = &c->outputs[i];
    hr_buffer *buffer = as_array(PyList_GetItem(arrays, i))->tensor.buffer;
    if (out->kind != FROM_CONSTANT || out->index >= 0) {
      continue;
    }
    out->kind = FROM_RESULT;
    out->index = find_buffer(all->buffers + all->param_count, all->result_count, buffer);
    if (out->index < 0) {
      out->index = all->result_count++;
      all->buffers[all->param_count + out->index] = buffer;
      c->result_bytes[out->index] = hr_buffer_bytes(buffer);
    }
  }
}

static int take_constants(tracing *t, captured *c) {
  c->constants = PyMem_Calloc((size_t)t->trace.constant_count + 1, sizeof *c->constants);
  c->result_bytes = PyMem_Calloc((size_t)c->output_count + 1, sizeof *c->result_bytes);
  if (c->constants == NULL || c->result_bytes == NULL) {
    PyErr_NoMemory();
    return -1;
  }
  for (; c->constant_count < t->trace.constant_count; ++c->constant_count) {
    c->constants[c->constant_count] = t->trace.constants[c->constant_count];
    hr_buffer_retain(c->constants[c->constant_count]);
  }
  return 0;
}

static int make_part(tracing *t, PyObject *arrays, captured *c) {
  if (place_outputs(t, arrays, c) < 0 || take_constants(t, c) < 0) {
    return -1;
  }
  interface all = {.param_count = t->place_count + c->constant_count};
  all.buffers = PyMem_Calloc((size_t)all.param_count + (size_t)c->output_count + 1, sizeof *all.buffers);
  if (all.buffers == NULL) {
    PyErr_NoMemory();
    return -1;
  }
  for (int i = 0; i < t->place_count; ++i) {
    all.buffers[i] = t->buffers[i];
  }
  for (int i = 0; i < c->constant_count; ++i) {
    all.buffers[t->place_count + i] = c->constants[i];
  }
  number_results(arrays, c, &all);
  c->input_count = t->place_count, c->result_count = all.result_count;
  const hr_part_spec spec = {.param_count = all.param_count,
                             .result_count = all.result_count,
                             .params = all.buffers,
                             .results = all.buffers + all.param_count};
  hr_status status = hr_part_create(t->trace.capture, &spec, &c->part);
  PyMem_Free(all.buffers);
  if (status != HR_OK) {
    raise_status(status);
    return -1;
  }
  return 0;
}

static int copy_words(const signature *s, captured *c) {
  c->words = PyMem_Malloc(s->count * sizeof *c->words);
  if (c->words == NULL) {
    PyErr_NoMemory();
    return -1;
  }
  memcpy(c->words, s->words, s->count * sizeof *c->words);
  c->word_count = s->count;
  c->identities = s->identities != NULL ? Py_NewRef(s->identities) : NULL;
  return 0;
}

static captured *make_captured(tracing *t) {
  captured *c = PyMem_Calloc(1, sizeof *c);
  PyObject *arrays = PyList_New(0);
  int failed = c == NULL || arrays == NULL;
  if (c == NULL) {
    PyErr_NoMemory();
  }
  if (!failed) {
    c->users = 1, c->stream = t->trace.stream;
    c->result = Py_NewRef(t->result);
    c->state = t->state != NULL ? Py_NewRef(t->state) : NULL;
    failed = copy_words(t->signature, c) < 0 || list_arrays(c->result, arrays) < 0 ||
             (c->state != NULL && list_arrays(c->state, arrays) < 0) || make_part(t, arrays, c) < 0;
  }
  Py_XDECREF(arrays);
  if (failed) {
    drop_captured(c);
    return NULL;
  }
  return c;
}

static captured *trace_function(tracing *t) {
  captured *c = NULL;
  if (save_state(t) < 0 || begin_trace(&t->trace, t->signature->stream) < 0) {
    return NULL;
  }
  if (make_places(t) == 0) {
    int failed = call_traced(t) < 0;
    restore_containers(t->saved);
    c = failed ? NULL : make_captured(t);
  }
  end_trace(&t->trace);
  drop_places(t);
  return c;
}

captured *capture_function(const stateful_function *f, const signature *s, PyObject *args, PyObject *names) {
  tracing t = {.f = f, .signature = s, .args = args, .names = names};
  captured *c = trace_function(&t);
  Py_XDECREF(t.saved);
  Py_XDECREF(t.result);
  Py_XDECREF(t.state);
  return c;
}
