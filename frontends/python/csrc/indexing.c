/* indexing.c: x[...], x[...] = v and the updates of x.at[...], by integers, slices, None, Ellipsis and arrays. */
#include <limits.h>

#include "extension.h"

/* A slice's bound: integers beyond 64 bits are beyond every array, too. */
static int take_bound(PyObject *bound, bool *has, int64_t *out) {
  *has = bound != Py_None;
  if (!*has) {
    return 0;
  }
  PyObject *index = PyNumber_Index(bound);
  int overflow = 0;
  *out = index != NULL ? PyLong_AsLongLongAndOverflow(index, &overflow) : -1;
  Py_XDECREF(index);
  *out = overflow > 0 ? LLONG_MAX : overflow < 0 ? LLONG_MIN : *out;
  return overflow == 0 && *out == -1 && PyErr_Occurred() ? -1 : 0;
}

int take_slice(PyObject *slice, hr_index *out) {
  static const char *const names[] = {"start", "stop", "step"};
  bool has[3];
  int64_t values[3] = {0, 0, 1};
  for (int i = 0; i < 3; ++i) {
    PyObject *bound = PyObject_GetAttrString(slice, names[i]);
    int failed = bound == NULL || take_bound(bound, &has[i], &values[i]) < 0;
    Py_XDECREF(bound);
    if (failed) {
      return -1;
    }
  }
  *out = (hr_index){HR_INDEX_SLICE, has[0], has[1], values[0], values[1], has[2] ? values[2] : 1};
  return 0;
}

static void drop_key(index_key *key) {
  for (int i = 0; i < key->array_count; ++i) {
    Py_XDECREF(key->arrays[i].owned);
  }
}

/* A list, a bool, or an array: of this type, or another one with dims. numpy.int64 has a buffer, but is no sequence. */
static bool is_array_index(PyObject *entry) {
  if (PyList_Check(entry) || PyBool_Check(entry)) {
    return true;
  }
  if (is_array(entry)) {
    return as_array(entry)->tensor.rank > 0 || as_array(entry)->tensor.dtype == HR_DTYPE_BOOL ||
           is_traced(as_array(entry)) || follows_mlx || has_hooks(as_array(entry)->stream); /* its value may differ */
  }
  bool may_be = !PyIndex_Check(entry) && !PyBytes_Check(entry) && PyObject_CheckBuffer(entry);
  bool has_dims = !may_be && !PyBytes_Check(entry) && PyObject_CheckBuffer(entry) && PySequence_Check(entry) &&
                  PySequence_Size(entry) >= 0;
  PyErr_Clear();
  return may_be || has_dims;
}

static PyObject *empty_list(PyObject *entry) {
  return PyList_Check(entry) && PyList_Size(entry) == 0 ? entry : NULL;
}

/* An empty list has no dtype: it names no element. */
static int take_array(hr_stream *stream, PyObject *entry, index_key *key) {
  if (key->array_count > HR_RANK_MAX) {
    PyErr_SetString(PyExc_IndexError, "too many indices for array");
    return -1;
  }
  operand *to = &key->arrays[key->array_count];
  if (is_array(entry)) {
    (void)take_operand(entry, to);
  } else {
    array_object *made = array_from(entry, empty_list(entry) != NULL ? HR_DTYPE_I64 : HR_DTYPE_NONE, stream, 1);
    if (made == NULL) {
      return -1;
    }
    *to = (operand){.tensor = &made->tensor, .stream = made->stream, .owned = (PyObject *)made};
  }
  ++key->array_count;
  key->indices[key->count].kind = HR_INDEX_ARRAY;
  key->indices[key->count].array = to->tensor;
  return 0;
}

static int take_integer(PyObject *entry, hr_index *out) {
  if (!PyIndex_Check(entry)) {
    PyErr_SetString(PyExc_IndexError,
                    "only integers, slices (`:`), ellipsis (`...`), None and arrays of integers or bool are valid "
                    "indices");
    return -1;
  }
  out->begin = integer_from(entry);
  if (out->begin == -1 && PyErr_Occurred()) {
    if (PyErr_ExceptionMatches(PyExc_OverflowError)) {
      PyErr_Clear();
      PyErr_Format(PyExc_IndexError, "index %R is out of bounds", entry);
    }
    return -1;
  }
  return 0;
}

static int take_index(hr_stream *stream, PyObject *entry, index_key *key) {
  hr_index *out = &key->indices[key->count];
  *out = (hr_index){.kind = HR_INDEX_AT};
  int result = 0;
  if (entry == Py_None || entry == Py_Ellipsis) {
    out->kind = entry == Py_None ? HR_INDEX_NEW : HR_INDEX_REST;
  } else if (PySlice_Check(entry)) {
    result = take_slice(entry, out);
  } else {
    result = is_array_index(entry) ? take_array(stream, entry, key) : take_integer(entry, out);
  }
  key->count += result == 0;
  return result;
}

/* 0, or -1 with an exception. The caller drops the key after success. */
static int take_key(hr_stream *stream, PyObject *object, index_key *key) {
  key->count = key->array_count = 0;
  Py_ssize_t count = PyTuple_Check(object) ? PyTuple_Size(object) : 1;
  if (count > KEYS_MAX) {
    PyErr_SetString(PyExc_IndexError, "too many indices for array");
    return -1;
  }
  for (Py_ssize_t i = 0; i < count; ++i) {
    if (take_index(stream, PyTuple_Check(object) ? PyTuple_GetItem(object, i) : object, key) < 0) {
      drop_key(key);
      return -1;
    }
  }
  return 0;
}

/* The stream of an operation on x, the key's arrays, and a value, which may be NULL; NULL with an exception. */
static hr_stream *join_all(const array_object *x, const index_key *key, const operand *value) {
  hr_stream *stream = x->stream;
  for (int pass = 0; pass < 2 && stream != NULL; ++pass) { /* the second one knows the stream */
    for (int i = 0; i < key->array_count && stream != NULL; ++i) {
      stream = join_streams(stream, &x->tensor, key->arrays[i].stream, key->arrays[i].tensor);
    }
    if (stream != NULL && value != NULL) {
      stream = join_streams(stream, &x->tensor, value->stream, value->tensor);
    }
  }
  return stream != NULL ? join_streams(stream, &x->tensor, x->stream, &x->tensor) : NULL;
}

static PyObject *view_at(array_object *x, int count, const hr_index *indices) {
  array_object *view = new_array(x->stream);
  hr_status status = view != NULL ? hr_array_index(&x->tensor, count, indices, &view->tensor) : HR_OK;
  return (PyObject *)array_or_raise(view, status);
}

static PyObject *select_at(array_object *x, const index_key *key) {
  hr_stream *stream = join_all(x, key, NULL);
  array_object *made = stream != NULL ? new_array(stream) : NULL;
  hr_status status =
      made != NULL ? hr_array_select(stream, &x->tensor, key->count, key->indices, &made->tensor) : HR_OK;
  return (PyObject *)array_or_raise(made, status);
}

/* The view by integers and slices is a part of the graph; what arrays select of it is a function. */
static PyObject *recorded_item(array_object *x, PyObject *object, const index_key *key) {
  hr_index basic[KEYS_MAX + HR_RANK_MAX];
  int count = 0;
  for (int i = 0; i < key->count; ++i) {
    const hr_index *index = &key->indices[i];
    bool is_mask = index->kind == HR_INDEX_ARRAY && index->array->dtype == HR_DTYPE_BOOL;
    for (int d = 0; d < (is_mask ? index->array->rank : 1) && count < KEYS_MAX + HR_RANK_MAX; ++d) {
      basic[count++] = index->kind == HR_INDEX_ARRAY ? (hr_index){.kind = HR_INDEX_SLICE, .step = 1} : *index;
    }
  }
  PyObject *view = view_at(x, count, basic), *result = NULL;
  if (view != NULL && record_index(x, object, key, as_array(view)) == 0) {
    result = key->array_count == 0 ? Py_NewRef(view) : select_at(x, key);
  }
  Py_XDECREF(view);
  return result;
}

PyObject *get_item(PyObject *self, PyObject *object) {
  array_object *x = as_array(self);
  index_key key;
  if (take_key(x->stream, object, &key) < 0) {
    return NULL;
  }
  PyObject *result = __builtin_expect(is_recorded(x->stream), 0) ? recorded_item(x, object, &key)
                     : key.array_count == 0                      ? view_at(x, key.count, key.indices)
                                                                 : select_at(x, &key);
  drop_key(&key);
  return result;
}

PyObject *get_row(PyObject *self, Py_ssize_t i) {
  hr_index index = {.kind = HR_INDEX_AT, .begin = i};
  if (__builtin_expect(is_recorded(as_array(self)->stream), 0)) {
    PyObject *number = PyLong_FromSsize_t(i), *row = number != NULL ? get_item(self, number) : NULL;
    Py_XDECREF(number);
    return row;
  }
  return view_at(as_array(self), 1, &index);
}

/* MLX does not check the number of slices that are assigned at a mask, so the mask need not be read. */
static bool scatters_slices(const hr_tensor *x, const index_key *key, const hr_tensor *value, hr_update update) {
  if (!follows_mlx || update != HR_UPDATE_SET || key->count != 1 || key->indices[0].kind != HR_INDEX_ARRAY) {
    return false;
  }
  const hr_tensor *mask = key->indices[0].array;
  return mask->dtype == HR_DTYPE_BOOL && mask->rank <= x->rank && value->rank == 1 + x->rank - mask->rank &&
         value->dims[0] > 1;
}

static hr_status scatter_slices(hr_stream *stream, hr_tensor *x, const hr_tensor *mask, const hr_tensor *value) {
  const hr_tensor *inputs[3] = {x, mask, value};
  hr_tensor made;
  hr_status status = hr_functional_apply(stream, HR_FUNCTIONAL_MASKED_SCATTER, 3, inputs, 0, NULL, 1, &made);
  if (status == HR_OK) {
    hr_tensor_release(x);
    *x = made;
  }
  return status;
}

/* A trace writes to memory of its own alone: an array of another stream, too, becomes one of the trace. */
static int write_item(array_object *x, const index_key *key, const operand *from, hr_update update) {
  hr_stream *stream = join_all(x, key, from);
  if (stream == NULL) {
    return -1;
  }
  hr_buffer *kept = keep_from_writes(x);
  hr_status status = scatters_slices(&x->tensor, key, from->tensor, update)
                         ? scatter_slices(stream, &x->tensor, key->indices[0].array, from->tensor)
                         : hr_array_update(stream, &x->tensor, key->count, key->indices, from->tensor, update);
  hr_buffer_release(kept);
  if (status != HR_OK) {
    raise_status(status);
    return -1;
  }
  if (x->stream == stream) {
    return 0;
  }
  x->stream = stream;
  return note_traced(x);
}

static int update_item(array_object *x, PyObject *object, PyObject *value, hr_update update) {
  index_key key;
  operand from = {.owned = NULL};
  if ((x->tensor.buffer == NULL && refuse_traced(x) < 0) || take_key(x->stream, object, &key) < 0) {
    return -1;
  }
  if (__builtin_expect(is_recorded(x->stream), 0)) {
    int recorded = record_update(x, object, &key, value, update);
    drop_key(&key);
    return recorded;
  }
  int result = want_operand("array", value, 1, &from);
  if (result > 0) {
    result = write_item(x, &key, &from, update);
  }
  Py_XDECREF(from.owned);
  drop_key(&key);
  return result;
}

int set_item(PyObject *self, PyObject *key, PyObject *value) {
  if (value == NULL) {
    PyErr_SetString(PyExc_TypeError, "elements of an array can't be deleted");
    return -1;
  }
  return update_item(as_array(self), key, value, HR_UPDATE_SET);
}

static PyObject *updated(PyObject *module, PyObject *args) {
  (void)module;
  PyObject *self, *key, *value;
  int update;
  if (!PyArg_ParseTuple(args, "OOOi", &self, &key, &value, &update)) {
    return NULL;
  }
  array_object *result = share_array(as_array(self));
  if (result != NULL && update_item(result, key, value, (hr_update)update) < 0) {
    Py_CLEAR(result);
  }
  return (PyObject *)result;
}

PyMethodDef indexing_methods[] = {
    {"_updated", updated, METH_VARARGS, "_updated(x, key, value, update)\n--\n\nFor headrace/_at.py."},
    {NULL, NULL, 0, NULL}};
