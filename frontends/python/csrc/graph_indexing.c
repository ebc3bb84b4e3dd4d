/* graph_indexing.c: x[...] of a value: slice, then squeeze and expand_dims. Bounds that depend on the sizes of dims
 * are integers of the graph, so that x[1:] and x[-1] are right for every size. */
#include <limits.h>
#include <string.h>

#include "extension.h"

typedef struct value_slice {
  graph_object *owner;
  hr_value x, shape; /* shape: 0 until it is needed */
  hr_type type;
  int dim;                                                           /* the next one of x */
  int place;                                                         /* the next one of the result */
  bool is_whole;                                                     /* nothing is cut */
  bool is_any;                                                       /* sizes are computed, also known ones */
  int64_t begin[HR_RANK_MAX], count[HR_RANK_MAX], step[HR_RANK_MAX]; /* count -1: the whole dim, of unknown size */
  hr_value begins[HR_RANK_MAX], counts[HR_RANK_MAX];                 /* 0: the numbers above */
  int64_t dropped[HR_RANK_MAX], added[2 * HR_RANK_MAX];
  int drop_count, add_count;
} value_slice;

/* ---- integers of the graph ---- */

static hr_value number(value_slice *s, int64_t value) {
  return hr_graph_number(s->owner->graph, hr_scalar_i64(value));
}

static hr_value combine(value_slice *s, hr_functional function, hr_value x, hr_value y) {
  return hr_graph_add(s->owner->graph, function, 2, (hr_value[]){x, y}, 0, NULL);
}

/* The size of the next dim: i64 without dims. */
static hr_value size_of(value_slice *s) {
  hr_graph *graph = s->owner->graph;
  const int64_t at[1] = {s->dim}, one[1] = {1}, axis[1] = {0};
  const char *names[3] = {"begin", "count", "step"};
  const int64_t *numbers[3] = {at, one, one};
  hr_graph_attribute attributes[3];
  for (int i = 0; i < 3; ++i) {
    attributes[i] = (hr_graph_attribute){
        .name = names[i], .value = {.kind = HR_ATTRIBUTE_INTS, .count = 1, .value = {.ints = numbers[i]}}};
  }
  s->shape = s->shape != 0 ? s->shape : hr_graph_shape(graph, s->x);
  hr_value element = hr_graph_add(graph, HR_FUNCTIONAL_SLICE, 1, &s->shape, 3, attributes);
  attributes[0] =
      (hr_graph_attribute){.name = "axis", .value = {.kind = HR_ATTRIBUTE_INTS, .count = 1, .value = {.ints = axis}}};
  return hr_graph_add(graph, HR_FUNCTIONAL_SQUEEZE, 1, &element, 1, attributes);
}

/* A place from the front: negative ones count from the end. */
static hr_value from_front(value_slice *s, hr_value size, hr_value at) {
  const hr_value is_negative = combine(s, HR_FUNCTIONAL_LESS, at, number(s, 0));
  const hr_value choice[3] = {is_negative, combine(s, HR_FUNCTIONAL_ADD, at, size), at};
  return hr_graph_add(s->owner->graph, HR_FUNCTIONAL_WHERE, 3, choice, 0, NULL);
}

/* A bound of a slice by Python's rules: 0 to the size for an upward step, -1 to the size - 1 for a downward one.
 * computed: 0, or a value in place of `at`. */
static hr_value bound(value_slice *s, hr_value size, hr_value computed, int64_t at, bool is_upward) {
  hr_value value = computed != 0 ? from_front(s, size, computed)
                   : at >= 0     ? number(s, at)
                                 : combine(s, HR_FUNCTIONAL_ADD, size, number(s, at));
  value = combine(s, HR_FUNCTIONAL_MAXIMUM, value, number(s, is_upward ? 0 : -1));
  return combine(s, HR_FUNCTIONAL_MINIMUM, value,
                 is_upward ? size : combine(s, HR_FUNCTIONAL_SUBTRACT, size, number(s, 1)));
}

/* ---- one index ---- */

/* Numbers of a dim whose size is one, by Python's rules. */
static int64_t clamped(int64_t at, int64_t size, bool is_upward) {
  int64_t low = is_upward ? 0 : -1, high = is_upward ? size : size - 1;
  at = at < 0 ? (at < -size - 1 ? -1 : at + size) : at;
  return at < low ? low : at > high ? high : at;
}

static void cut_known(value_slice *s, const hr_index *index) {
  bool is_upward = index->step > 0;
  int64_t size = s->type.dims[s->dim], stride = is_upward ? index->step : -(index->step + 1) + 1;
  int64_t begin = index->has_begin ? clamped(index->begin, size, is_upward) : is_upward ? 0 : size - 1;
  int64_t end = index->has_end ? clamped(index->end, size, is_upward) : is_upward ? size : -1;
  int64_t length = is_upward ? end - begin : begin - end;
  s->count[s->dim] = length > 0 ? (length - 1) / stride + 1 : 0;
  s->begin[s->dim] = length > 0 ? begin : 0;
}

/* bounds: 0, or values in place of begin and end. */
static void cut_symbolic(value_slice *s, const hr_index *index, const hr_value *bounds) {
  bool is_upward = index->step > 0;
  hr_value size = size_of(s), zero = number(s, 0);
  hr_value begin = index->has_begin ? bound(s, size, bounds[0], index->begin, is_upward)
                   : is_upward      ? zero
                                    : combine(s, HR_FUNCTIONAL_SUBTRACT, size, number(s, 1));
  hr_value end = index->has_end ? bound(s, size, bounds[1], index->end, is_upward) : is_upward ? size : number(s, -1);
  hr_value length =
      is_upward ? combine(s, HR_FUNCTIONAL_SUBTRACT, end, begin) : combine(s, HR_FUNCTIONAL_SUBTRACT, begin, end);
  int64_t stride = is_upward ? index->step : -index->step;
  if (stride > 1) {
    length = combine(s, HR_FUNCTIONAL_ADD, length, number(s, stride - 1));
    length = combine(s, HR_FUNCTIONAL_FLOOR_DIVIDE, length, number(s, stride));
  }
  hr_value count = combine(s, HR_FUNCTIONAL_MAXIMUM, length, zero);
  if (!is_upward) { /* a place of the dim, also for no elements */
    begin = combine(s, HR_FUNCTIONAL_MULTIPLY, begin, combine(s, HR_FUNCTIONAL_MINIMUM, count, number(s, 1)));
  }
  s->begins[s->dim] = begin, s->count[s->dim] = 0, s->counts[s->dim] = count;
}

static bool is_known(const value_slice *s) {
  return s->type.symbols[s->dim] == NULL && !s->is_any;
}

/* An integer without dims as a value of the graph; 0 with an exception. */
static hr_value take_place(value_slice *s, PyObject *object) {
  hr_type type;
  hr_value value = value_from(s->owner, object, false);
  hr_status status = value > 0 ? hr_graph_type(s->owner->graph, value, &type) : HR_OK;
  if (status != HR_OK) {
    raise_status(status);
    return 0;
  }

  if (value > 0 && (type.rank > 0 || type.dtype < HR_DTYPE_U8 || type.dtype > HR_DTYPE_I64)) {
    PyErr_Format(PyExc_TypeError, "%R is no integer without dims: use headrace.take for arrays of indices", object);
    return 0;
  }
  return value > 0 ? value : 0;
}

/* The numbers of a slice; values in place of begin and end are in `bounds`. */
static int take_bounds(value_slice *s, PyObject *slice, hr_index *index, hr_value *bounds) {
  static const char *const names[2] = {"start", "stop"};
  PyObject *parts[2] = {NULL, NULL}, *step = PyObject_GetAttrString(slice, "step"), *numbers = NULL;
  bool is_right = step != NULL;
  for (int i = 0; is_right && i < 2; ++i) {
    parts[i] = PyObject_GetAttrString(slice, names[i]);
    if (parts[i] != NULL && is_value(parts[i])) {
      bounds[i] = take_place(s, parts[i]);
      Py_DECREF(parts[i]);
      parts[i] = bounds[i] != 0 ? Py_NewRef(Py_None) : NULL;
    }
    is_right = parts[i] != NULL;
  }
  numbers = is_right ? PySlice_New(parts[0], parts[1], step) : NULL;
  int result = numbers != NULL ? take_slice(numbers, index) : -1;
  index->has_begin |= bounds[0] != 0, index->has_end |= bounds[1] != 0;
  Py_XDECREF(parts[0]);
  Py_XDECREF(parts[1]);
  Py_XDECREF(step);
  Py_XDECREF(numbers);
  return result;
}

static int take_range(value_slice *s, PyObject *slice) {
  hr_index index = {0};
  hr_value bounds[2] = {0, 0};
  if (take_bounds(s, slice, &index, bounds) < 0) {
    return -1;
  }
  if (index.step == 0 || index.step < -INT32_MAX || index.step > INT32_MAX) {
    PyErr_Format(PyExc_ValueError, "slice step is %lld, expected 1 to %d, or its negative", (long long)index.step,
                 (int)INT32_MAX);
    return -1;
  }
  s->step[s->dim] = index.step;
  if (index.step != 1 || index.has_begin || index.has_end) {
    s->is_whole = false;
    bool has_values = bounds[0] != 0 || bounds[1] != 0;
    is_known(s) && !has_values ? cut_known(s, &index) : cut_symbolic(s, &index, bounds);
  }
  ++s->dim, ++s->place;
  return 0;
}

static int take_at(value_slice *s, PyObject *entry) {
  int64_t at = integer_from(entry), size = s->type.dims[s->dim];
  if (at == -1 && PyErr_Occurred()) {
    return -1;
  }
  if (is_known(s) && (at < -size || at >= size)) {
    PyErr_Format(PyExc_IndexError, "index %lld is out of bounds for axis %d with size %lld", (long long)at, s->dim,
                 (long long)size);
    return -1;
  }
  s->is_whole = false;
  s->count[s->dim] = 1;
  s->begin[s->dim] = at < 0 ? at + size : at;
  if (at < 0 && !is_known(s)) {
    s->begins[s->dim] = combine(s, HR_FUNCTIONAL_ADD, size_of(s), number(s, at));
  }
  s->dropped[s->drop_count++] = s->dim++;
  return 0;
}

/* The place of a value. */
static int take_at_value(value_slice *s, PyObject *entry) {
  hr_value at = take_place(s, entry);
  if (at == 0) {
    return -1;
  }
  s->is_whole = false;
  s->count[s->dim] = 1, s->begin[s->dim] = 0;
  s->begins[s->dim] = from_front(s, size_of(s), at);
  s->dropped[s->drop_count++] = s->dim++;
  return 0;
}

/* ---- keys ---- */

static int refuse_key(PyObject *entry) {
  PyErr_Format(PyExc_TypeError,
               "a value of a graph takes integers, slices, None and `...` as indices, not %R: use headrace.take",
               entry);
  return -1;
}

/* rest: the dims that `...` stands for. */
static int take_entry(value_slice *s, PyObject *entry, int rest) {
  if (entry == Py_None) {
    s->added[s->add_count++] = s->place++;
    return 0;
  }
  if (entry == Py_Ellipsis) {
    s->dim += rest, s->place += rest;
    return 0;
  }
  if (is_value(entry)) {
    return take_at_value(s, entry);
  }
  if (!PySlice_Check(entry) && (PyBool_Check(entry) || !PyIndex_Check(entry))) {
    return refuse_key(entry);
  }
  return PySlice_Check(entry) ? take_range(s, entry) : take_at(s, entry);
}

static int take_entries(value_slice *s, PyObject *key) {
  Py_ssize_t count = PyTuple_Size(key);
  int used = 0, rests = 0;
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject *entry = PyTuple_GetItem(key, i);
    used += entry != Py_None && entry != Py_Ellipsis, rests += entry == Py_Ellipsis;
  }
  if (used > s->type.rank || rests > 1 || count > KEYS_MAX || count - used - rests + s->type.rank > HR_RANK_MAX) {
    PyErr_Format(PyExc_IndexError, "%zd indices for %d dims, expected no more, and `...` at most once", count,
                 s->type.rank);
    return -1;
  }
  for (Py_ssize_t i = 0; i < count; ++i) {
    if (take_entry(s, PyTuple_GetItem(key, i), s->type.rank - used) < 0) {
      return -1;
    }
  }
  return 0;
}

/* ---- results ---- */

static hr_graph_attribute integers(const char *name, int count, const int64_t *numbers, const hr_value *values) {
  return (hr_graph_attribute){
      .name = name, .value = {.kind = HR_ATTRIBUTE_INTS, .count = count, .value = {.ints = numbers}}, .values = values};
}

static PyObject *build_slice(value_slice *s) {
  hr_graph *graph = s->owner->graph;
  hr_value value = s->x;
  if (!s->is_whole) {
    for (s->dim = 0; s->dim < s->type.rank; ++s->dim) {
      bool is_cut = s->counts[s->dim] != 0 || s->count[s->dim] >= 0;
      s->counts[s->dim] = is_cut ? s->counts[s->dim] : size_of(s);
    }
    const hr_graph_attribute cut[3] = {integers("begin", s->type.rank, s->begin, s->begins),
                                       integers("count", s->type.rank, s->count, s->counts),
                                       integers("step", s->type.rank, s->step, NULL)};
    value = hr_graph_add(graph, HR_FUNCTIONAL_SLICE, 1, &value, 3, cut);
  }
  if (s->drop_count > 0) {
    const hr_graph_attribute axis = integers("axis", s->drop_count, s->dropped, NULL);
    value = hr_graph_add(graph, HR_FUNCTIONAL_SQUEEZE, 1, &value, 1, &axis);
  }
  if (s->add_count > 0) {
    const hr_graph_attribute axis = integers("axis", s->add_count, s->added, NULL);
    value = hr_graph_add(graph, HR_FUNCTIONAL_EXPAND_DIMS, 1, &value, 1, &axis);
  }
  return new_value(s->owner, value);
}

static PyObject *index_by(PyObject *self, PyObject *key, bool is_any) {
  value_slice s = {.owner = ((value_object *)self)->owner, .x = ((value_object *)self)->value};
  s.is_whole = true, s.is_any = is_any;
  hr_status status = hr_graph_type(s.owner->graph, s.x, &s.type);
  if (status != HR_OK) {
    return raise_status(status);
  }
  for (int d = 0; d < s.type.rank; ++d) {
    s.count[d] = is_any ? -1 : s.type.dims[d], s.step[d] = 1;
  }
  PyObject *tuple = PyTuple_Check(key) ? Py_NewRef(key) : PyTuple_Pack(1, key);
  PyObject *result = tuple != NULL && take_entries(&s, tuple) == 0 ? build_slice(&s) : NULL;
  Py_XDECREF(tuple);
  return result;
}

PyObject *index_value(PyObject *self, PyObject *key) {
  return index_by(self, key, false);
}

PyObject *index_any_size(PyObject *self, PyObject *key) {
  return index_by(self, key, true);
}
